//! `[zabbix]`: where the site's Zabbix is, how it is spoken to, and under which names it knows the platform and its nodes.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::ConfigError;
use super::address::is_private_way;

/// What stands for a node's name in `node_host`.
const NODE: &str = "{node}";
/// Longest technical name of a host in Zabbix.
const MOST_NAME: usize = 128;
/// Most items that a node's page shows, and the longest of their keys.
const MOST_HISTORY: usize = 8;
const MOST_KEY: usize = 2048;

/// How the connection to Zabbix is protected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZabbixTls {
    /// Not at all.
    #[default]
    Plain,
    /// By certificates.
    Certificate,
    /// By a pre-shared key, through the site's own `zabbix_sender`.
    Psk,
}

/// The site's Zabbix.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Zabbix {
    /// `host:port` of the server or proxy that takes values; none sends nothing.
    pub server: Option<String>,
    /// The platform's own host in Zabbix, with the template on it.
    pub host: String,
    /// Seconds between two rounds of values.
    pub period_s: u64,
    /// Whether values of single sessions are sent too.
    pub sessions: bool,
    /// How the connection is protected.
    pub tls: ZabbixTls,
    /// The site's CA, which has signed the server's certificate, PEM.
    pub tls_ca: Option<PathBuf>,
    /// Our own certificate with its chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// Key of our own certificate, PEM.
    pub tls_key: Option<PathBuf>,
    /// Name in the server's certificate, where it is not that of its address.
    pub tls_name: Option<String>,
    /// Identity of the pre-shared key.
    pub psk_identity: Option<String>,
    /// File that holds the pre-shared key.
    pub psk_file: Option<PathBuf>,
    /// The site's `zabbix_sender`.
    pub sender: PathBuf,
    /// Address of the front end's `api_jsonrpc.php`; none reads nothing.
    pub api_url: Option<String>,
    /// Whether the token may go to another machine over plain HTTP, where everybody on the way can read it.
    pub api_plain: bool,
    /// File that holds the API's token.
    pub api_token_file: Option<PathBuf>,
    /// CA of the front end's certificate, PEM, besides those of the system.
    pub api_ca: Option<PathBuf>,
    /// A node's own host in Zabbix: its name, with `{node}` for what SLURM calls it.
    pub node_host: String,
    /// Keys of those items of a node's own host that its page shows.
    pub history: Vec<String>,
}

impl Default for Zabbix {
    fn default() -> Self {
        let history = ["system.cpu.load[all,avg1]", "system.cpu.util", "vm.memory.utilization"];
        Self {
            server: None,
            host: "eirene".into(),
            period_s: 60,
            sessions: false,
            tls: ZabbixTls::Plain,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            tls_name: None,
            psk_identity: None,
            psk_file: None,
            sender: "/usr/bin/zabbix_sender".into(),
            api_url: None,
            api_plain: false,
            api_token_file: None,
            api_ca: None,
            node_host: NODE.into(),
            history: history.map(str::to_owned).to_vec(),
        }
    }
}

impl Zabbix {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, message: &str| Err(ConfigError::Value { key, message: message.into() });
        if self.server.as_deref().is_some_and(|server| !is_address(server)) {
            return wrong("zabbix.server", "a host and perhaps a port, such as `zabbix.example.org:10051`");
        }
        if !is_host(&self.host) {
            return wrong("zabbix.host", "1 to 128 letters, digits, blanks and `_.-`, as Zabbix has it");
        }
        if !self.node_host.contains(NODE) || !is_host(&self.node_host_of("c")) {
            return wrong("zabbix.node_host", "the name of a host with `{node}` in it, such as `{node}.example.org`");
        }
        if !(10..=3600).contains(&self.period_s) {
            return wrong("zabbix.period_s", "10 to 3600");
        }
        if self.tls == ZabbixTls::Certificate && self.tls_ca.is_none() {
            return wrong("zabbix.tls_ca", "needed by `tls = \"certificate\"`");
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return wrong("zabbix.tls_cert", "`tls_cert` and `tls_key` belong together");
        }
        if self.tls == ZabbixTls::Psk && (self.psk_identity.is_none() || self.psk_file.is_none()) {
            return wrong("zabbix.psk_file", "`psk_identity` and `psk_file` are needed by `tls = \"psk\"`");
        }
        if [&self.psk_identity, &self.tls_name].into_iter().flatten().any(|text| !is_line(text, MOST_NAME)) {
            return wrong("zabbix.psk_identity", "this and `tls_name` are 1 to 128 printable characters");
        }
        if self.api_url.is_some() != self.api_token_file.is_some() {
            return wrong("zabbix.api_url", "`api_url` and `api_token_file` belong together");
        }
        if self.api_url.as_deref().is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
            return wrong("zabbix.api_url", "an address that begins with `http://` or `https://`");
        }
        let goes_plain = |url: &str| url.starts_with("http://") && is_private_way(url) != Some(true);
        if !self.api_plain && self.api_url.as_deref().is_some_and(goes_plain) {
            return wrong(
                "zabbix.api_url",
                "the token needs `https://`, or a host on this machine; `api_plain = true` sends it where others can read it",
            );
        }
        if self.history.len() > MOST_HISTORY || self.history.iter().any(|key| !is_line(key, MOST_KEY)) {
            return wrong("zabbix.history", "at most 8 keys of items");
        }
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key, &self.psk_file, &self.api_token_file, &self.api_ca];
        let mut files = files.into_iter().flatten().chain([&self.sender]);
        if let Some(path) = files.find(|path| !path.is_absolute()) {
            let message = format!("`{}` is not an absolute path", path.display());
            return Err(ConfigError::Value { key: "zabbix", message });
        }
        Ok(())
    }

    /// What a node's own host is called in Zabbix.
    pub fn node_host_of(&self, node: &str) -> String {
        self.node_host.replace(NODE, node)
    }

    /// The API's token.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn api_token(&self) -> anyhow::Result<Option<SecretString>> {
        Ok(self.api_token_file.as_deref().map(super::read_secret).transpose()?)
    }

    /// What nobody else may read, as far as it can be read: for whoever takes secrets out of texts.
    pub fn secrets(&self) -> Vec<SecretString> {
        let read = |path: &Path| super::read_secret(path).ok();
        let in_url = self.api_url.as_deref().and_then(|url| {
            let (login, _) = url.split_once("://")?.1.split_once('@')?;
            Some(SecretString::from(login.split_once(':')?.1))
        });
        let files = [&self.api_token_file, &self.psk_file, &self.tls_key];
        let in_files = files.into_iter().flatten().filter_map(|path| read(path));
        in_files.chain(in_url).filter(|secret| !secret.expose_secret().is_empty()).collect()
    }
}

fn is_line(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// Letters, digits, blanks and `_.-` are what Zabbix takes.
fn is_host(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_. -".contains(&byte);
    (1..=MOST_NAME).contains(&text.len()) && text.bytes().all(plain) && text.trim() == text
}

/// A host, and perhaps a port; no list, and nothing that a program takes for an option.
fn is_address(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let Ok(authority) = text.parse::<http::uri::Authority>() else { return false };
    let (_, after_host) = text.split_at(text.find(']').unwrap_or_default());
    let has_port = !after_host.contains(':') || authority.port_u16().is_some_and(|port| port > 0);
    !text.starts_with(['-', ':', '.']) && text.bytes().all(plain) && has_port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(section: &str) -> Result<Config, ConfigError> {
        Config::from_text(&format!(
            "[server]\nportal_url = \"https://e.example.org\"\napps_domain = \"a.example.org\"\n\
             [tunnel]\nadvertise = \"e.example.org:7443\"\n[zabbix]\n{section}\n"
        ))
    }

    #[test]
    fn nothing_is_sent_or_read_unless_it_is_said_where() {
        let zabbix = read("").unwrap().zabbix;
        assert!(zabbix.server.is_none() && zabbix.api_url.is_none() && !zabbix.sessions);
        assert_eq!(zabbix.node_host_of("c1"), "c1");
        let zabbix = read("server = \"[2001:db8::1]:10051\"\nnode_host = \"gpu {node}.example.org\"").unwrap().zabbix;
        assert_eq!(zabbix.node_host_of("c1"), "gpu c1.example.org");
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        let long = format!("host = \"{}\"", "x".repeat(129));
        for (section, key) in [
            ("server = \"a,b\"", "zabbix.server"),
            ("server = \"-z\"", "zabbix.server"),
            ("server = \"http://z\"", "zabbix.server"),
            ("server = \"\"", "zabbix.server"),
            ("server = \"z:\"", "zabbix.server"),
            ("server = \"z:trapper\"", "zabbix.server"),
            ("server = \"[::1]:0\"", "zabbix.server"),
            ("server = \"z:65536\"", "zabbix.server"),
            ("host = \"\"", "zabbix.host"),
            ("host = \" a\"", "zabbix.host"),
            ("host = \"a\\nb\"", "zabbix.host"),
            (&long, "zabbix.host"),
            ("node_host = \"c1\"", "zabbix.node_host"),
            ("node_host = \"{node}/\"", "zabbix.node_host"),
            ("period_s = 9", "zabbix.period_s"),
            ("tls = \"certificate\"", "zabbix.tls_ca"),
            ("tls_cert = \"/a\"", "zabbix.tls_cert"),
            ("tls = \"psk\"\npsk_identity = \"a\"", "zabbix.psk_file"),
            ("psk_identity = \"a\\u0007\"", "zabbix.psk_identity"),
            ("api_url = \"https://z/\"", "zabbix.api_url"),
            ("api_url = \"z\"\napi_token_file = \"/t\"", "zabbix.api_url"),
            ("api_url = \"http://z/\"\napi_token_file = \"/t\"", "zabbix.api_url"),
            ("api_url = \"http://localhost@z/\"\napi_token_file = \"/t\"", "zabbix.api_url"),
            ("api_url = \"http://127.0.0.1.example.org/\"\napi_token_file = \"/t\"", "zabbix.api_url"),
            ("api_ca = \"here\"", "zabbix"),
            ("history = [\"\"]", "zabbix.history"),
            ("tls = \"yes\"", "yes"),
        ] {
            let error = read(section).unwrap_err().to_string();
            assert!(error.contains(key), "{section}: {error}");
        }
    }

    #[test]
    fn a_token_stays_here_goes_by_tls_or_goes_plain_where_that_is_said() {
        for section in [
            "api_url = \"https://z/\"",
            "api_url = \"http://u:word@localhost:8080/api_jsonrpc.php\"",
            "api_url = \"http://[::1]/\"",
            "api_url = \"http://z/\"\napi_plain = true",
        ] {
            assert!(read(&format!("{section}\napi_token_file = \"/t\"")).is_ok(), "{section}");
        }
    }

    #[test]
    fn secrets_are_found_wherever_they_lie() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "a-token\n").unwrap();
        let zabbix = read(&format!("api_url = \"https://u:word@z/\"\napi_token_file = {file:?}")).unwrap().zabbix;
        let found: Vec<String> = zabbix.secrets().iter().map(|secret| secret.expose_secret().to_owned()).collect();
        assert_eq!(found, ["a-token", "word"]);
        assert_eq!(zabbix.api_token().unwrap().unwrap().expose_secret(), "a-token");
        assert!(read("").unwrap().zabbix.api_token().unwrap().is_none());
    }
}
