//! `[alerts]`: where alerts are sent, and rules that are other than built in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use eirene_core::alert::{AlertRule, AlertSeverity};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::ConfigError;

/// What somebody should know now.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alerts {
    /// Where alerts are sent, in the form of Alertmanager's webhooks; none sends them nowhere.
    pub webhook_url: Option<SecretString>,
    /// File that holds the address, where it contains a secret.
    pub webhook_url_file: Option<PathBuf>,
    /// File that holds the key with which what is sent is signed.
    pub webhook_secret_file: Option<PathBuf>,
    /// Days an alert is kept that is over.
    pub keep_days: u32,
    /// Rules that are other than built in.
    pub rules: BTreeMap<AlertRule, AlertRuleChanges>,
}

/// What is other about a rule; what is left out is as built in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertRuleChanges {
    /// Whether it says nothing at all.
    pub off: bool,
    /// How bad it is.
    pub severity: Option<AlertSeverity>,
    /// From this value on it is raised.
    pub raise: Option<f64>,
    /// Beyond this value it ends.
    pub clear: Option<f64>,
    /// Seconds it has to be over the threshold before it is raised.
    pub raise_after_s: Option<u32>,
    /// Seconds it has to be back before it ends.
    pub clear_after_s: Option<u32>,
}

impl AlertRuleChanges {
    fn check(&self, rule: AlertRule) -> Result<(), &'static str> {
        if [self.raise, self.clear].into_iter().flatten().any(|value| !value.is_finite()) {
            return Err("`raise` and `clear` are numbers");
        }
        match (self.raise, self.clear) {
            (None, Some(_)) => Err("`clear` needs `raise` beside it"),
            (Some(raise), Some(clear)) if rule.is_below() && clear < raise => Err("`clear` lies below `raise`"),
            (Some(raise), Some(clear)) if !rule.is_below() && clear > raise => Err("`clear` lies above `raise`"),
            _ => Ok(()),
        }
    }
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            webhook_url: None,
            webhook_url_file: None,
            webhook_secret_file: None,
            keep_days: 90,
            rules: BTreeMap::new(),
        }
    }
}

impl Alerts {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, message: String| Err(ConfigError::Value { key, message });
        if self.webhook_url.is_some() && self.webhook_url_file.is_some() {
            return wrong("alerts.webhook_url", "give `webhook_url` or `webhook_url_file`, not both".into());
        }
        if self.webhook_url.as_ref().is_some_and(|url| !is_address(url.expose_secret())) {
            return wrong("alerts.webhook_url", "an address that begins with `http://` or `https://`".into());
        }
        if !(1..=3650).contains(&self.keep_days) {
            return wrong("alerts.keep_days", "1 to 3650".into());
        }
        for (rule, changes) in &self.rules {
            if let Err(why) = changes.check(*rule) {
                return wrong("alerts.rules", format!("`{rule}`: {why}"));
            }
        }
        Ok(())
    }

    /// Whether alerts are sent anywhere.
    pub fn has_webhook(&self) -> bool {
        self.webhook_url.is_some() || self.webhook_url_file.is_some()
    }

    /// Where alerts are sent.
    ///
    /// # Errors
    /// The file cannot be read, or holds no address.
    pub fn webhook_address(&self) -> anyhow::Result<Option<SecretString>> {
        let Some(file) = &self.webhook_url_file else { return Ok(self.webhook_url.clone()) };
        let text = super::read_secret(file)?;
        anyhow::ensure!(is_address(text.expose_secret()), "`{}` holds no address", file.display());
        Ok(Some(text))
    }

    /// With what it is signed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn webhook_secret(&self) -> anyhow::Result<Option<SecretString>> {
        Ok(self.webhook_secret_file.as_ref().map(|file| super::read_secret(file)).transpose()?)
    }
}

fn is_address(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}
