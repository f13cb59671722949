//! The site's own Zabbix: values of the platform, its nodes, GPUs and sessions go there ([`items`], [`outbox`]), and what it says of a node is shown
//! on the node's page ([`reading`]). Nothing here decides anything: a Zabbix that is away, or lies, changes words on pages of admins and no more.
//!
//! When values are sent is the reconciler `zabbix`'s business; how Zabbix is spoken to is `monitoring/zabbix`'s.

pub mod items;
mod outbox;
mod reading;
#[cfg(any(test, feature = "testing"))]
#[expect(missing_docs, clippy::unwrap_used, reason = "arrangements of tests")]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use eirene_core::Clock;
use eirene_database::Db;
use eirene_zabbix::{Api, Limits, Psk, Sender, TlsFiles};
use jiff::SignedDuration;

use crate::agents::TunnelRegistry;
use crate::cluster::Cluster;
use crate::config::{self, ZabbixTls};
use crate::error::AppError;
use crate::health::problem::Trouble;
use crate::samples::Samples;
use crate::shared::Shared;
use crate::upkeep::Upkeep;
use items::{BACK, METRICS, Round, Seen};
use outbox::Outbox;
use reading::Cache;

pub use reading::{NodeInZabbix, SeenInZabbix, ShownItem};

/// A batch of values has this long from the connection to the answer.
const SEND_WAIT: Duration = Duration::from_secs(10);
/// A round sends for this long; what is left then goes with the next.
const SEND_FOR: Duration = Duration::from_mins(1);
/// The database has this long to answer.
const DATABASE_WAIT: Duration = Duration::from_secs(3);
/// One question to the API, and its answer.
///
/// The longest answer is that to 1,000 problems, each with room for 4 KiB: a name has up to 2,048 characters, of which one that is not ASCII is
/// written in six bytes.
const API: Limits = Limits { wait: Duration::from_secs(3), most_bytes: 4 * 1024 * 1024 };
/// What a discovery rule was told is told again after so many rounds, in case Zabbix did not know the rule then.
const TELL_AGAIN: i64 = 10;

/// What the service is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The cluster as last seen.
    pub cluster: Cluster,
    /// What sessions use.
    pub samples: Samples,
    /// Agents that are connected.
    pub tunnels: TunnelRegistry,
    /// Which nodes there are, and who may see them.
    pub upkeep: Upkeep,
}

/// What came of the last round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Zabbix has taken values.
    Taken,
    /// It has looked at them and taken none.
    NoneTaken,
    /// They could not be sent.
    Failed,
}

/// The site's Zabbix. Cheap to clone.
#[derive(Clone)]
pub struct Zabbix {
    inner: Shared<Inner>,
}

struct Inner {
    parts: Parts,
    config: config::Zabbix,
    outbox: Mutex<Outbox>,
    /// Made anew after a failure: certificates may have been renewed.
    sender: Mutex<Option<Arc<Sender>>>,
    last: Mutex<Option<Last>>,
    /// Likewise: its token may be another, and so may its version.
    api: Mutex<Option<Arc<Api>>>,
    cache: Cache,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Zabbix {
    /// Zabbix as it is configured. Opens nothing.
    pub fn new(parts: Parts, config: &config::Zabbix) -> Self {
        let inner = Inner {
            parts,
            config: config.clone(),
            outbox: Mutex::default(),
            sender: Mutex::default(),
            last: Mutex::default(),
            api: Mutex::default(),
            cache: Cache::default(),
        };
        Self { inner: Shared::new(inner) }
    }

    /// Looks at everything, and sends what Zabbix has not taken yet. Does nothing where no server is configured.
    ///
    /// # Errors
    /// The database's, or why nothing could be sent. What was not sent is kept for a while, so that a short outage leaves no gap.
    pub async fn round(&self) -> anyhow::Result<()> {
        let Some(server) = &self.inner.config.server else { return Ok(()) };
        let gathered = self.gather().await;
        let sent = self.send(server).await;
        metrics::gauge!("eirene_zabbix_values_waiting").set(f64::from(lock(&self.inner.outbox).waiting()));
        gathered?;
        sent
    }

    async fn gather(&self) -> Result<(), AppError> {
        let Inner { parts, config, .. } = &*self.inner;
        let begun = Instant::now();
        let round = match tokio::time::timeout(DATABASE_WAIT, parts.db.ping()).await {
            Ok(Ok(())) => self.look(begun.elapsed()).await?,
            _ => items::without_database(&parts.cluster.snapshot(), parts.tunnels.count()),
        };
        let again =
            SignedDuration::from_secs(i64::try_from(config.period_s).unwrap_or(i64::MAX).saturating_mul(TELL_AGAIN));
        let dropped = lock(&self.inner.outbox).push(round, &config.host, parts.clock.now(), again);
        metrics::counter!("eirene_zabbix_values_total", "result" => "dropped").increment(dropped);
        Ok(())
    }

    async fn look(&self, database: Duration) -> Result<Round, AppError> {
        let Inner { parts, config, .. } = &*self.inner;
        let live = parts.db.live_sessions().await?;
        let alerts = parts.db.open_alerts().await?;
        let have_begun = live.iter().filter(|session| session.started_at.is_some()).map(|session| session.id).collect();
        let recent = match parts.samples.recent(have_begun, &METRICS, BACK).await {
            // Without samples there are no figures of what is used, and all others.
            Err(AppError::Unavailable { .. }) => Vec::new(),
            recent => recent?,
        };
        Ok(items::look(&Seen {
            snapshot: &parts.cluster.snapshot(),
            live: &live,
            alerts: &alerts,
            recent: &recent,
            database,
            agents: parts.tunnels.count(),
            with_sessions: config.sessions,
            now: parts.clock.now(),
        }))
    }

    async fn send(&self, server: &str) -> anyhow::Result<()> {
        let sent = self.send_all(server).await;
        let (last, answer) = match sent {
            Ok(last) => (last, Ok(())),
            Err(error) => {
                *lock(&self.inner.sender) = None;
                metrics::counter!("eirene_zabbix_failures_total").increment(1);
                (Some(Last::Failed), Err(error))
            }
        };
        if last.is_some() {
            *lock(&self.inner.last) = last;
        }
        answer
    }

    async fn send_all(&self, server: &str) -> anyhow::Result<Option<Last>> {
        let sender = self.sender(server).await?;
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < SEND_FOR {
            // A copy: what is not taken stays where it is, whenever this is ended.
            let batch = lock(&self.inner.outbox).batch();
            if batch.is_empty() {
                break;
            }
            let taken = sender.send(&batch).await.context("Zabbix takes no values")?;
            lock(&self.inner.outbox).was_taken(batch.len());
            metrics::counter!("eirene_zabbix_values_total", "result" => "taken").increment(taken.processed);
            metrics::counter!("eirene_zabbix_values_total", "result" => "refused").increment(taken.failed);
            // A round of which anything was taken is a good one: what Zabbix has just discovered it takes a minute later.
            last = if taken.processed > 0 { Some(Last::Taken) } else { last.or(Some(Last::NoneTaken)) };
        }
        Ok(last)
    }

    async fn sender(&self, server: &str) -> anyhow::Result<Arc<Sender>> {
        if let Some(sender) = &*lock(&self.inner.sender) {
            return Ok(Arc::clone(sender));
        }
        let (server, config) = (server.to_owned(), self.inner.config.clone());
        // It reads files.
        let made = tokio::task::spawn_blocking(move || sender(&server, &config)).await??;
        let made = Arc::new(made);
        *lock(&self.inner.sender) = Some(Arc::clone(&made));
        Ok(made)
    }

    /// How sending goes, for the health page; none where nothing is sent.
    pub fn sending(&self) -> Option<Result<(), Trouble>> {
        self.inner.config.server.as_ref()?;
        Some(match *lock(&self.inner.last) {
            None | Some(Last::Taken) => Ok(()),
            Some(Last::NoneTaken) => Err(Trouble::ZabbixTakesNothing),
            Some(Last::Failed) => Err(Trouble::ZabbixAway),
        })
    }
}

/// Whoever sends, as it is configured.
///
/// # Errors
/// A file of the configuration cannot be used.
fn sender(server: &str, config: &config::Zabbix) -> anyhow::Result<Sender> {
    Ok(match config.tls {
        ZabbixTls::Plain => Sender::plain(server, SEND_WAIT),
        ZabbixTls::Certificate => {
            let files = TlsFiles {
                ca: config.tls_ca.clone().context("`zabbix.tls_ca` is missing")?,
                client: config.tls_cert.clone().zip(config.tls_key.clone()),
                server_name: config.tls_name.clone(),
            };
            Sender::tls(server, SEND_WAIT, &files)?
        }
        ZabbixTls::Psk => {
            let psk = Psk {
                program: config.sender.clone(),
                identity: config.psk_identity.clone().context("`zabbix.psk_identity` is missing")?,
                file: config.psk_file.clone().context("`zabbix.psk_file` is missing")?,
            };
            Sender::psk(server, SEND_WAIT, psk)?
        }
    })
}

/// The API, as it is configured; none where it is not.
///
/// # Errors
/// A file of the configuration cannot be used.
fn api(config: &config::Zabbix) -> anyhow::Result<Option<Api>> {
    let (Some(url), Some(token)) = (&config.api_url, config.api_token()?) else { return Ok(None) };
    let ca = match &config.api_ca {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("`{}` cannot be read", path.display()))?),
        None => None,
    };
    Ok(Some(Api::new(url, token, ca.as_deref(), API)?))
}

/// What `doctor` says of a Zabbix: whether values could be sent, and whether it can be read. None where nothing is configured.
///
/// # Errors
/// Why one of both cannot be done.
pub async fn examine(config: &config::Zabbix) -> anyhow::Result<Option<String>> {
    let mut said = Vec::new();
    if let Some(server) = &config.server {
        sender(server, config)?.reach().await.with_context(|| format!("no values can be sent to `{server}`"))?;
        said.push(format!("`{server}` takes connections"));
    }
    if let Some(api) = api(config)? {
        let version = api.version().await.context("problems and history cannot be read")?;
        let host = api.host(&config.host).await.context("problems and history cannot be read")?;
        let name = &config.host;
        anyhow::ensure!(
            host.is_some(),
            "the API answers, but the token may not see a host `{name}`: make it, and let the token's user read it"
        );
        said.push(format!("the API of {version} answers, the host `{name}` is there"));
    }
    Ok((!said.is_empty()).then(|| said.join("; ")))
}
