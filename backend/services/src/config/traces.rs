//! `[traces]`: where OpenTelemetry traces are sent, and how many of them.

use std::path::PathBuf;

use serde::Deserialize;

use super::ConfigError;
use super::address::is_private;

/// Traces from a click to an app that answers. Without an address there are none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traces {
    /// Where a collector takes OTLP over HTTP, up to what stands before `/v1/traces`.
    pub url: Option<String>,
    /// File that holds the token it wants.
    pub bearer_token_file: Option<PathBuf>,
    /// Certificates it is known by, PEM; those of the system where nothing is said.
    pub ca_file: Option<PathBuf>,
    /// Which part of all traces is sent, 0 to 1.
    pub sample: f64,
}

impl Default for Traces {
    fn default() -> Self {
        Self { url: None, bearer_token_file: None, ca_file: None, sample: 1.0 }
    }
}

impl Traces {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, message: &str| Err(ConfigError::Value { key, message: message.into() });
        if !(0.0..=1.0).contains(&self.sample) {
            return wrong("traces.sample", "0 to 1");
        }
        let Some(url) = &self.url else {
            if self.bearer_token_file.is_some() || self.ca_file.is_some() {
                return wrong("traces.url", "is missing, and the other keys need it");
            }
            return Ok(());
        };
        match is_private(url) {
            None => wrong(
                "traces.url",
                "`http://` or `https://`, a host and perhaps a path, such as `http://127.0.0.1:4318`",
            ),
            Some(false) if self.bearer_token_file.is_some() => {
                wrong("traces.url", "a token needs `https://`, or a host on this machine")
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(traces: &Traces) -> String {
        traces.check().unwrap_err().to_string()
    }

    #[test]
    fn there_are_none_unless_they_are_asked_for() {
        let none = Traces::default();
        assert!(none.check().is_ok() && none.url.is_none());
        assert!(refused(&Traces { ca_file: Some("/ca".into()), ..none }).starts_with("`traces.url`"));
    }

    #[test]
    fn an_address_and_a_part_are_checked() {
        let at = |url: &str| Traces { url: Some(url.into()), ..Traces::default() };
        assert!(at("http://127.0.0.1:4318").check().is_ok() && at("https://c.example.org/otlp").check().is_ok());
        for wrong in ["127.0.0.1:4318", "grpc://c:4317", "https://key:secret@c"] {
            let said = refused(&at(wrong));
            assert!(said.starts_with("`traces.url`") && !said.contains("secret"), "{said}");
        }
        let with = |url| Traces { bearer_token_file: Some("/token".into()), ..at(url) };
        assert!(with("https://c").check().is_ok());
        assert!(refused(&with("http://c:4318")).contains("https://"));
        for sample in [-0.1, 1.1, f64::NAN] {
            assert!(refused(&Traces { sample, ..Traces::default() }).starts_with("`traces.sample`"), "{sample}");
        }
    }
}
