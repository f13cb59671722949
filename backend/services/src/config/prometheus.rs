//! `[prometheus]`: an existing Prometheus that charts are read from, instead of the built-in store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::ConfigError;
use super::address::is_private;

/// Agents sample in the middle of each of these, and spans of charts are multiples of it, seconds.
const SAMPLE_S: u32 = 5;

/// Where Prometheus is, and how it is asked. Without an address it is not asked at all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prometheus {
    /// Its address, up to what stands before `/api/v1`.
    pub url: Option<String>,
    /// File that holds the token it wants.
    pub bearer_token_file: Option<PathBuf>,
    /// File that holds `name:password`, where it wants those.
    pub basic_auth_file: Option<PathBuf>,
    /// Certificates it is known by, PEM; those of the system where nothing is said.
    pub ca_file: Option<PathBuf>,
    /// Seconds an answer may take, all that a chart needs together.
    pub timeout_s: u64,
    /// Seconds between two scrapes of a session, as Prometheus is configured.
    pub scrape_interval_s: u32,
    /// Labels that all series of this portal have there, where there are other portals' too.
    pub labels: BTreeMap<String, String>,
}

impl Default for Prometheus {
    fn default() -> Self {
        Self {
            url: None,
            bearer_token_file: None,
            basic_auth_file: None,
            ca_file: None,
            timeout_s: 5,
            scrape_interval_s: 60,
            labels: BTreeMap::new(),
        }
    }
}

impl Prometheus {
    /// `exposed`: whether sessions are there for Prometheus at all.
    pub(super) fn check(&self, exposed: bool) -> Result<(), ConfigError> {
        let wrong = |key, message: String| Err(ConfigError::Value { key, message });
        let secrets = [&self.bearer_token_file, &self.basic_auth_file];
        if secrets.iter().all(|file| file.is_some()) {
            return wrong("prometheus.bearer_token_file", "give this or `basic_auth_file`, not both".into());
        }
        let has_secret = secrets.iter().any(|file| file.is_some());
        let Some(url) = &self.url else {
            if has_secret || self.ca_file.is_some() || !self.labels.is_empty() {
                return wrong("prometheus.url", "is missing, and the other keys need it".into());
            }
            return Ok(());
        };
        let Some(is_private) = is_private(url) else {
            return wrong(
                "prometheus.url",
                "`http://` or `https://`, a host and perhaps a path; a name and password go into `basic_auth_file`"
                    .into(),
            );
        };
        if has_secret && !is_private {
            return wrong("prometheus.url", "a token or password needs `https://`, or a host on this machine".into());
        }
        if !exposed {
            return wrong("prometheus.url", "needs `sessions = true` in `[metrics]`: else it knows no session".into());
        }
        if !(1..=60).contains(&self.timeout_s) {
            return wrong("prometheus.timeout_s", "1 to 60".into());
        }
        if !(SAMPLE_S..=300).contains(&self.scrape_interval_s) || !self.scrape_interval_s.is_multiple_of(SAMPLE_S) {
            return wrong("prometheus.scrape_interval_s", format!("a multiple of {SAMPLE_S}, {SAMPLE_S} to 300"));
        }
        if let Some(name) = self.labels.keys().find(|name| !is_label(name)) {
            return wrong("prometheus.labels", format!("`{name}` is no name of a label"));
        }
        Ok(())
    }
}

/// What labels are called (prometheus.io/docs/concepts/data_model): without the underscores that are Prometheus' own.
fn is_label(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(word) && name.starts_with(|first: char| first.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Prometheus {
        Prometheus { url: Some(url.into()), ..Prometheus::default() }
    }

    fn refused(config: &Prometheus) -> String {
        config.check(true).unwrap_err().to_string()
    }

    #[test]
    fn without_an_address_nothing_is_asked_and_nothing_else_may_be_said() {
        assert!(Prometheus::default().check(false).is_ok());
        let lonely = Prometheus { ca_file: Some("/ca.pem".into()), ..Prometheus::default() };
        assert!(refused(&lonely).starts_with("`prometheus.url`"));
    }

    #[test]
    fn an_address_has_no_password_in_it_and_secrets_do_not_go_in_the_clear() {
        for good in ["https://p.example.org", "http://p:9090", "https://p.example.org/select/0/prometheus/"] {
            assert!(at(good).check(true).is_ok(), "{good}");
        }
        for wrong in ["p:9090", "ftp://p", "https://ada:secret@p", "https://p/?token=secret", ""] {
            let said = refused(&at(wrong));
            assert!(said.starts_with("`prometheus.url`") && !said.contains("secret"), "{said}");
        }
        let with = |url| Prometheus { bearer_token_file: Some("/token".into()), ..at(url) };
        assert!(with("https://p").check(true).is_ok() && with("http://127.0.0.1:9090").check(true).is_ok());
        assert!(refused(&with("http://p:9090")).contains("https://"));
        let both = Prometheus { basic_auth_file: Some("/password".into()), ..with("https://p") };
        assert!(refused(&both).contains("not both"));
    }

    #[test]
    fn it_is_not_read_what_nobody_has_told_it() {
        assert!(at("https://p").check(false).unwrap_err().to_string().contains("[metrics]"));
    }

    #[test]
    fn times_and_labels_are_checked() {
        for seconds in [0, 4, 7, 305] {
            let config = Prometheus { scrape_interval_s: seconds, ..at("https://p") };
            assert!(refused(&config).starts_with("`prometheus.scrape_interval_s`"), "{seconds}");
        }
        assert!(refused(&Prometheus { timeout_s: 0, ..at("https://p") }).starts_with("`prometheus.timeout_s`"));
        for name in ["", "__name__", "a-b", "1a", "a\"} or up{b=\""] {
            let labels = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            assert!(refused(&Prometheus { labels, ..at("https://p") }).starts_with("`prometheus.labels`"), "{name}");
        }
    }
}
