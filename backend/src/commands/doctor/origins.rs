//! How browsers reach the portal: certificates, whose end is known in time, and the domain of the apps.

use anyhow::Context as _;
use eirene_core::{Clock as _, SystemClock};
use eirene_gateway::server::read_certificate;
use eirene_services::alerts::platform;
use eirene_services::config::Config;
use eirene_services::outward;
use jiff::Timestamp;
use reqwest::tls::TlsInfo;
use reqwest::{Client, redirect};

use super::{Finding, HOST_WAIT};

/// Days before its end from which a certificate is doubtful, as the alert `certificate_ends` has it.
const CERTIFICATE_DAYS: i64 = 14;

pub(super) fn tls(config: &Config) -> Finding {
    match (&config.server.tls_cert, &config.server.tls_key) {
        (Some(certificate), Some(key)) => {
            let ends = read_certificate(certificate, key).and_then(|_| platform::certificate_ends(certificate));
            match ends {
                Ok(ends) => {
                    let belong = format!("`{}` and its key belong together", certificate.display());
                    lasts(&belong, ends, SystemClock.now())
                }
                Err(error) => Finding::Broken(format!("{error:#}")),
            }
        }
        _ if config.server.listen.ip().is_loopback() => {
            Finding::Good("plain HTTP on loopback, for a proxy in front".into())
        }
        _ => Finding::Doubtful("plain HTTP on an address others may reach: only behind a proxy, or for a demo".into()),
    }
}

/// Whether the proxy in front of the portal is listed, where there must be one.
pub(super) fn proxy(config: &Config) -> Option<Finding> {
    let unlisted = "a proxy in front does TLS, and `server.trusted_proxies` lists none: all people count as one address for the limits on sign-ins and \
                    connections, and `/metrics` is closed; list the proxy's address";
    config.is_behind_proxy().then(|| {
        if config.has_unlisted_proxy() {
            Finding::Doubtful(unlisted.into())
        } else {
            Finding::Good(format!("{} listed", config.server.trusted_proxies.len()))
        }
    })
}

/// What is said of a certificate that is over at `ends`.
fn lasts(what: &str, ends: Timestamp, now: Timestamp) -> Finding {
    if ends <= now {
        return Finding::Broken(format!("{what}, but it is over since {ends}: browsers refuse it; renew it"));
    }
    let days = ends.duration_since(now).as_hours() / 24;
    if days < CERTIFICATE_DAYS {
        return Finding::Doubtful(format!("{what}, but it is over in {days} days, at {ends}: renew it"));
    }
    Finding::Good(format!("{what}, until {ends}"))
}

/// The certificate that browsers are shown where somebody in front of the portal does TLS: no file of ours says when it is over.
pub(super) async fn shown_certificate(origin: &str) -> Finding {
    match shown_until(origin).await {
        Ok(ends) => lasts(&format!("`{origin}` shows one"), ends, SystemClock.now()),
        // The way from here to the proxy may be closed, though it is open for people.
        Err(error) => Finding::Doubtful(format!("`{origin}`: {error:#}; look yourself when its certificate is over")),
    }
}

/// When it is over. Whether it is believed is for browsers to say: one that is over would not be, and then nothing were known of it.
async fn shown_until(origin: &str) -> anyhow::Result<Timestamp> {
    let client = Client::builder().redirect(redirect::Policy::none()).timeout(HOST_WAIT);
    let client = client.tls_info(true).tls_danger_accept_invalid_certs(true).build()?;
    let answer = client.get(format!("{origin}/healthz")).send().await;
    let answer = answer.map_err(|error| anyhow::anyhow!(outward::why(error)))?;
    let shown = answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
    platform::ends(shown.context("no certificate is shown")?)
}

/// Without a list of public suffixes the last two labels have to do.
pub(super) fn apps_domain(config: &Config) -> Finding {
    let site = |authority: &str| -> Vec<String> {
        let host = authority.split(':').next().unwrap_or_default();
        host.rsplit('.').take(2).map(str::to_owned).collect()
    };
    let apps = &config.server.apps_domain;
    if site(config.portal_authority()) == site(apps) {
        return Finding::Doubtful(format!(
            "`{apps}` seems to be of the same site as the portal; a domain of its own is safer"
        ));
    }
    Finding::Good(format!("`{apps}` is a site of its own"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::config;

    #[test]
    fn an_apps_domain_of_the_same_site_is_doubtful() {
        let own = config("https://eirene.example.org", "apps.example.net");
        assert!(matches!(apps_domain(&own), Finding::Good(_)));
        let same = config("https://eirene.example.org:8443", "apps.example.org:8443");
        assert!(matches!(apps_domain(&same), Finding::Doubtful(_)));
    }

    #[test]
    fn a_proxy_that_does_tls_is_to_be_listed() {
        let mut config = config("https://eirene.example.org", "apps.example.net");
        assert!(matches!(proxy(&config), Some(Finding::Doubtful(_))));
        config.server.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        assert!(matches!(proxy(&config), Some(Finding::Good(_))));
        assert!(proxy(&crate::commands::testing::config("http://localhost:8080", "apps.localhost")).is_none());
    }

    #[test]
    fn a_certificate_is_doubtful_two_weeks_before_its_end_and_broken_afterwards() {
        let ends: Timestamp = "2031-05-01T00:00:00Z".parse().unwrap();
        let at = |now: &str| lasts("it", ends, now.parse().unwrap());
        assert!(matches!(at("2031-04-16T00:00:00Z"), Finding::Good(text) if text.contains("until 2031-05-01")));
        assert!(matches!(at("2031-04-20T00:00:00Z"), Finding::Doubtful(text) if text.contains("in 11 days")));
        assert!(matches!(at("2031-05-01T00:00:00Z"), Finding::Broken(text) if text.contains("over since 2031-05-01")));
    }

    #[tokio::test]
    async fn the_certificate_of_a_proxy_is_looked_at_whoever_has_signed_it() {
        let port = crate::commands::testing::tls_mirror().await;
        let origin = format!("https://127.0.0.1:{port}");
        assert_eq!(shown_until(&origin).await.unwrap(), "2031-05-01T00:00:00Z".parse().unwrap());
        let nobody = shown_certificate("https://127.0.0.1:1").await;
        assert!(matches!(&nobody, Finding::Doubtful(text) if text.contains("look yourself")), "{nobody:?}");
    }
}
