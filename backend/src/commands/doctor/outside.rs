//! Whom else the portal talks to: the scheduler, and the site's Prometheus, Zabbix, webhook and collector of traces.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use eirene_core::launcher::Launcher;
use eirene_core::scheduler::Node;
use eirene_core::{Clock, SystemClock};
use eirene_services::config::Config;
use eirene_services::samples::{History as _, Prometheus};
use eirene_services::traces::Traces;
use eirene_services::zabbix;
use eirene_slurm_adapter::is_newer_than_tested;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use tokio::net::TcpStream;

use super::{Finding, HOST_WAIT};
use crate::commands::serve;

/// Whether the Prometheus that charts are read from answers us, by the same question that `/readyz` asks.
pub(super) async fn prometheus(config: &Config) -> anyhow::Result<()> {
    if let Some(prometheus) = Prometheus::new(&config.prometheus)? {
        prometheus.reach().await?;
    }
    Ok(())
}

/// What the scheduler answers, and whether nodes have GPUs.
pub(super) async fn scheduler(config: &Config, launcher: Arc<dyn Launcher>) -> anyhow::Result<(Finding, bool)> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let scheduler = serve::scheduler(config, &launcher, &clock)?;
    let version = scheduler.ping().await?;
    let (nodes, jobs) = (scheduler.nodes().await?, scheduler.jobs().await?.ours.len());
    let has_gpus = nodes.iter().any(|node| node.gpus.iter().any(|gpus| gpus.total > 0));
    Ok((scheduled(&version, jobs, &nodes), has_gpus))
}

/// What it answered; whether the portal is tested with its version; and whether its accounting counts GPUs: without, their hours are in no report of
/// the site's.
fn scheduled(version: &str, jobs: usize, nodes: &[Node]) -> Finding {
    let is_newer = is_newer_than_tested(version);
    let remark = if is_newer { "; the portal is tested with SLURM up to 26.05" } else { "" };
    let answered = format!("{version}; {} nodes, {jobs} jobs seen{remark}", nodes.len());
    let uncounted = nodes.iter().filter(|node| !node.has_counted_gpus).map(|node| node.name.as_str());
    match uncounted.collect::<Vec<_>>().as_slice() {
        [] if is_newer => Finding::Doubtful(answered),
        [] => Finding::Good(answered),
        [first, more @ ..] => {
            let others = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            Finding::Doubtful(format!(
                "{answered}; SLURM does not count the GPUs of {first}{others} in its accounting: add `gres/gpu`, and `gres/gpu:TYPE` for each \
                 type, to `AccountingStorageTRES` in slurm.conf, and restart slurmctld"
            ))
        }
    }
}

/// The site's Zabbix: whether values can be sent, and problems read.
pub(super) async fn site_zabbix(config: &Config) -> Finding {
    let zabbix = &config.zabbix;
    let secrets = [&zabbix.psk_file, &zabbix.tls_key, &zabbix.api_token_file];
    for path in secrets.into_iter().flatten() {
        let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o777);
        if let Ok(mode) = mode
            && mode & 0o007 != 0
        {
            return Finding::Broken(format!("everybody may read `{}` (mode {mode:o})", path.display()));
        }
    }
    let found = match zabbix::examine(zabbix).await {
        Ok(Some(found)) => found,
        Ok(None) => return Finding::Good("not configured".into()),
        Err(error) => return Finding::Broken(format!("{error:#}")),
    };
    if zabbix.api_url.as_deref().is_some_and(|url| url.starts_with("http://")) {
        return Finding::Doubtful(format!("{found}; the API's token goes over plain HTTP"));
    }
    Finding::Good(found)
}

/// Whether the host that takes alerts takes connections. Nothing is sent: an alert that is none would be told to people.
pub(super) async fn webhook(config: &Config) -> Finding {
    let alerts = &config.alerts;
    let address = match alerts.webhook_secret().and_then(|_| alerts.webhook_address()) {
        Ok(Some(address)) => address,
        Ok(None) => return Finding::Good("not configured".into()),
        Err(error) => return Finding::Broken(format!("{error:#}")),
    };
    // Neither the address nor the error of whoever parses it: both may hold a secret.
    let url = Url::parse(address.expose_secret()).ok();
    let Some((host, port)) = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?))) else {
        return Finding::Broken("its address is not understood".into());
    };
    // An address of IPv6 stands in brackets.
    let reached = tokio::time::timeout(HOST_WAIT, TcpStream::connect((host.trim_matches(['[', ']']), port))).await;
    let why = match reached {
        Ok(Ok(_)) => return Finding::Good("its host takes connections; nothing was sent".into()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", HOST_WAIT.as_secs()),
    };
    // Alerts may have to go through a proxy, which takes this one's place.
    Finding::Doubtful(format!("its host takes no connection from here: {why}; alerts are kept for a day"))
}

/// Whether the collector takes traces.
pub(super) async fn traces(config: &Config) -> Finding {
    let exporter = match Traces::new(&config.traces) {
        Ok((_, Some(exporter))) => exporter,
        Ok((_, None)) => return Finding::Good("not configured".into()),
        Err(error) => return Finding::Broken(format!("{error:#}")),
    };
    let reached = exporter.reach().await;
    Finding::from_result(reached.map(|()| "the collector takes them".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with this besides.
    fn with(section: &str) -> Config {
        let text = format!(
            "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n{section}\n"
        );
        Config::from_text(&text).unwrap()
    }

    #[test]
    fn a_slurm_newer_than_the_tested_ones_is_remarked_on() {
        assert_eq!(scheduled("SLURM 26.05.5", 2, &[]), Finding::Good("SLURM 26.05.5; 0 nodes, 2 jobs seen".into()));
        let newer = scheduled("SLURM 27.05.0", 2, &[]);
        assert!(matches!(&newer, Finding::Doubtful(text) if text.contains("SLURM up to 26.05")), "{newer:?}");
    }

    #[tokio::test]
    async fn a_zabbix_that_is_away_or_whose_secrets_are_open_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let with = |section: &str| {
            let text = format!(
                "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\n[tunnel]\nadvertise = \"a:1\"\n[zabbix]\n{section}\n"
            );
            Config::from_text(&text).unwrap()
        };
        assert_eq!(site_zabbix(&with("")).await, Finding::Good("not configured".into()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("server = \"{}\"", listener.local_addr().unwrap());
        assert!(matches!(site_zabbix(&with(&server)).await, Finding::Good(text) if text.contains("takes connections")));
        drop(listener);
        let away = site_zabbix(&with(&server)).await;
        assert!(matches!(&away, Finding::Broken(text) if text.contains("no values can be sent")), "{away:?}");
        let key = dir.path().join("psk");
        std::fs::write(&key, "5ec2e7").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = site_zabbix(&with(&format!("{server}\npsk_file = {key:?}"))).await;
        assert!(matches!(&open, Finding::Broken(text) if text.contains("everybody may read")), "{open:?}");
    }

    #[tokio::test]
    async fn a_webhook_is_reached_without_sending_it_anything_and_its_address_is_not_repeated() {
        assert_eq!(webhook(&with("")).await, Finding::Good("not configured".into()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = with(&format!("[alerts]\nwebhook_url = \"http://u:5ec2e7@{address}/hook?key=5ec2e7\""));
        let found = webhook(&config).await;
        assert!(matches!(&found, Finding::Good(text) if text.contains("takes connections")), "{found:?}");
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut sent = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut sent).await.unwrap();
        assert_eq!(sent, b"");
        drop(listener);
        let away = webhook(&config).await;
        assert!(matches!(&away, Finding::Doubtful(text) if text.contains("takes no connection")), "{away:?}");
        assert!(!format!("{found:?}{away:?}").contains("5ec2e7"), "{away:?}");
        let unread = webhook(&with("[alerts]\nwebhook_url_file = \"/none/of/this\"")).await;
        assert!(matches!(&unread, Finding::Broken(text) if text.contains("/none/of/this")), "{unread:?}");
    }

    #[tokio::test]
    async fn a_collector_that_is_away_is_broken() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert_eq!(traces(&with("")).await, Finding::Good("not configured".into()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = with(&format!("[traces]\nurl = \"http://{}\"", listener.local_addr().unwrap()));
        let takes = axum::Router::new().route("/v1/traces", axum::routing::post(|| async { "{}" }));
        let serving = tokio::spawn(async move { axum::serve(listener, takes).await });
        assert!(matches!(traces(&config).await, Finding::Good(text) if text.contains("takes them")));
        serving.abort();
        let _ = serving.await;
        assert!(matches!(traces(&config).await, Finding::Broken(_)));
    }
}
