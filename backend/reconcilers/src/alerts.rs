//! Looks every few seconds for what somebody should know, and sends it to the webhook.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use eirene_services::alerts::platform::{Certificate, Seen, certificate_ends, last_certificate_ends};
use eirene_services::alerts::webhook::Webhook;
use eirene_services::app::App;
use eirene_services::config::CertificateFile;
use eirene_services::launcher_client::LauncherClient;
use tokio::sync::Mutex as AsyncMutex;

use super::driver::Reconciler;

/// The database and the launcher have this long to answer.
const WAIT: Duration = Duration::from_secs(3);
/// What takes a longer look back is looked at so often.
const THOROUGHLY: Duration = Duration::from_mins(1);
/// Certificates are read so often.
const CERTIFICATES: Duration = Duration::from_hours(1);

/// Looks.
pub(super) struct LookForAlerts {
    app: App,
    last: Mutex<Last>,
}

/// When what was looked at that is not looked at every time.
#[derive(Default)]
struct Last {
    thoroughly: Option<Instant>,
    certificates: Option<(Instant, Vec<Certificate>)>,
}

impl LookForAlerts {
    pub(super) fn new(app: App) -> Self {
        Self { app, last: Mutex::default() }
    }

    /// Whether it is time for a longer look, and what is known of the certificates.
    fn rarely(&self) -> (bool, Vec<Certificate>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
        let thoroughly = is_due(last.thoroughly, THOROUGHLY);
        if thoroughly {
            last.thoroughly = Some(Instant::now());
        }
        let (read_at, known) = last.certificates.take().unzip();
        let known: Vec<Certificate> = known.unwrap_or_default();
        let (read_at, certificates) = match read_at {
            Some(at) if !is_due(Some(at), CERTIFICATES) => (at, known),
            _ => (Instant::now(), self.certificates(&known)),
        };
        last.certificates = Some((read_at, certificates.clone()));
        (thoroughly, certificates)
    }

    /// Reads them. Of one that cannot be read now, as somebody may be writing it, what was `known` of it stays.
    fn certificates(&self, known: &[Certificate]) -> Vec<Certificate> {
        let read = |CertificateFile { key, path, is_ca }: CertificateFile<'_>| {
            let ends = if is_ca { last_certificate_ends(path) } else { certificate_ends(path) };
            let ends = match ends {
                Ok(ends) => Some(ends),
                Err(error) => {
                    tracing::warn!(
                        setting = key,
                        error = format!("{error:#}"),
                        "Nobody knows when a certificate is over"
                    );
                    known.iter().find(|known| known.path == path).and_then(|known| known.ends)
                }
            };
            Certificate { key, path: path.to_owned(), ends }
        };
        self.app.config.certificates().into_iter().map(read).collect()
    }
}

#[async_trait]
impl Reconciler for LookForAlerts {
    fn name(&self) -> &'static str {
        "alerts"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let app = &self.app;
        let begun = Instant::now();
        let answered = tokio::time::timeout(WAIT, app.db.ping()).await;
        // No answer at all is told by what cannot be written then, and by `/readyz`.
        let database = matches!(answered, Ok(Ok(()))).then(|| begun.elapsed());
        // A new one each time: what it has asked is whether somebody takes connections now.
        let launcher = LauncherClient::new(&app.config.launcher.socket);
        let launcher = matches!(tokio::time::timeout(WAIT, launcher.reach()).await, Ok(Ok(())));
        let (thoroughly, certificates) = self.rarely();
        let live = app.db.live_sessions().await?;
        let snapshot = app.cluster.snapshot();
        let seen = Seen {
            snapshot: &snapshot,
            live: &live,
            reconcilers: &app.status.all(),
            findings: &app.storage.findings(),
            database,
            launcher,
            certificates: &certificates,
            now: app.clock.now(),
        };
        app.alerts.look(&seen, thoroughly).await?;
        Ok(())
    }
}

/// Sends.
pub(super) struct TellWebhook {
    app: App,
    webhook: AsyncMutex<Option<Webhook>>,
}

impl TellWebhook {
    pub(super) fn new(app: App) -> Self {
        Self { app, webhook: AsyncMutex::default() }
    }
}

#[async_trait]
impl Reconciler for TellWebhook {
    fn name(&self) -> &'static str {
        "alert_webhook"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let mut held = self.webhook.lock().await;
        let webhook = match held.take() {
            Some(webhook) => webhook,
            // A file of the configuration that cannot be read now may be readable later.
            None => match Webhook::new(&self.app.config)? {
                Some(webhook) => webhook,
                None => return Ok(()),
            },
        };
        self.app.alerts.tell_webhook(&webhook).await?;
        // One that takes nothing is made anew: whoever puts its address or its key right writes that into the files it is read from.
        *held = Some(webhook);
        Ok(())
    }
}
