//! `support-bundle`: what somebody who helps needs to know, in one file: versions, the configuration, what `doctor` says, what the running portal
//! says of itself, and the last lines of the journal.
//!
//! No secret is in it, for three reasons, each enough: the configuration is printed by types that hide their content; what the configuration and
//! its files hold is known, and taken out of everything; and so is whatever looks like a token, a header that opens a door, a password in an address
//! or a private key. Names of people and nodes are in it, and the command says so.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use eirene_core::{Clock as _, SystemClock};
use eirene_services::config::Config;
use eirene_services::tokens::PREFIX;
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, header, redirect};
use secrecy::ExposeSecret as _;
use tokio::process::Command;

use super::{ConfigFile, doctor, say};

/// The portal and the journal have this long to answer.
const WAIT: Duration = Duration::from_secs(15);
/// Longest part of the bundle.
const MOST_BYTES: usize = 8 << 20;
/// Lines of the journal.
const LINES: &str = "4000";
/// What stands in a secret's place.
const LEFT_OUT: &str = "[left out]";
/// Shorter ones could be any word, and are found nowhere but where the types hide them.
const SHORTEST_SECRET: usize = 6;
/// Characters of a token of ours after its beginning.
const TOKEN_CHARS: usize = 43;
/// How a JSON Web Token begins: `{"` in base64url.
const JWT: &str = "eyJ";
/// Headers whose values open a door, in small letters; `Set-Cookie` and `Proxy-Authorization` end with these. The last is slurmrestd's.
const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "x-slurm-user-token"];

/// Where to.
#[derive(Debug, Args)]
pub(super) struct SupportBundle {
    #[command(flatten)]
    file: ConfigFile,
    /// The new file, such as `support.tar.gz`.
    path: PathBuf,
}

impl SupportBundle {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let name = self.path.display();
        // Before anything is asked: a name that is taken costs no waiting.
        let mut options = OpenOptions::new();
        let out = options.write(true).create_new(true).mode(0o600).open(&self.path);
        let out = out.with_context(|| format!("`{name}` cannot be made"))?;
        let written = write(out, &parts(&self.file.config).await);
        if written.is_err() {
            // Half of it would look like all of it.
            let _ = std::fs::remove_file(&self.path);
        }
        written.with_context(|| format!("`{name}` cannot be written"))?;
        say(&format!(
            "`{name}` is written, without secrets. Names of people and nodes are in it: look at it before you send it."
        ));
        Ok(())
    }
}

/// A file of the bundle.
type Part = (&'static str, String);

async fn parts(path: &Path) -> Vec<Part> {
    let config = Config::load(path);
    let mut secrets = BTreeSet::new();
    let mut parts = vec![("about.txt", about())];
    match &config {
        Ok(config) => {
            secrets = known_secrets(config);
            parts.push(("config.txt", format!("{config:#?}\n")));
        }
        // What is wrong may be told with what was written there.
        Err(_) => parts.push(("config.txt", "It is not understood; `doctor.txt` says why.\n".into())),
    }
    let found = doctor::findings(path).await;
    let lines = found.map_or_else(|error| format!("{error:#}"), |found| doctor::lines(&found).join("\n"));
    parts.push(("doctor.txt", lines));
    if let Ok(config) = &config {
        for (name, path) in [("readyz.txt", "/readyz"), ("metrics.txt", "/metrics")] {
            let said = portal(config, path).await;
            parts.push((name, said.unwrap_or_else(|error| format!("{error:#}\n"))));
        }
    }
    parts.push(("journal.txt", journal().await.unwrap_or_else(|error| format!("{error:#}\n"))));
    parts.into_iter().map(|(name, text)| (name, scrubbed(&cut(text), &secrets))).collect()
}

fn write(out: std::fs::File, parts: &[Part]) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    let seconds = u64::try_from(SystemClock.now().as_second()).unwrap_or_default();
    for (name, text) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(seconds);
        archive.append_data(&mut header, Path::new("eirene-support").join(name), text.as_bytes())?;
    }
    let mut out = archive.into_inner()?.finish()?;
    out.flush()?;
    out.sync_all()
}

/// The end of it is worth more than its beginning.
fn cut(text: String) -> String {
    let Some(over) = text.len().checked_sub(MOST_BYTES).filter(|over| *over > 0) else { return text };
    let from = (over..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("[the first {from} bytes are left out]\n{}", text.get(from..).unwrap_or_default())
}

fn about() -> String {
    let mut text = format!("eirened {}\nmade at {}\n", env!("CARGO_PKG_VERSION"), SystemClock.now());
    for path in ["/etc/os-release", "/proc/version", "/proc/uptime", "/proc/loadavg", "/proc/meminfo"] {
        let said = std::fs::read_to_string(path).unwrap_or_else(|error| format!("{error}\n"));
        let _ = writeln!(text, "\n== {path}\n{}", said.trim_end());
    }
    text
}

/// What the running portal says of itself, on this machine: at the listener of its metrics, or at its own under its own name.
async fn portal(config: &Config, path: &str) -> anyhow::Result<String> {
    let of_metrics = config.metrics.listen.filter(|_| path == "/metrics");
    let mut address = of_metrics.unwrap_or(config.server.listen);
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let scheme = if of_metrics.is_none() && config.server.tls_cert.is_some() { "https" } else { "http" };
    let client = Client::builder().redirect(redirect::Policy::none()).timeout(WAIT).no_proxy();
    // It is asked by its address, which is in no certificate; it is told nothing, and one that is over is a reason to ask.
    let client = client.tls_danger_accept_invalid_certs(true).build()?;
    let request = client.get(format!("{scheme}://{address}{path}")).header(header::HOST, config.portal_authority());
    let answer = request.send().await.context("the portal does not answer")?;
    let status = answer.status();
    Ok(format!("{status}\n{}", answer.text().await?))
}

/// The last lines of our services, where there is a journal and it may be read.
async fn journal() -> anyhow::Result<String> {
    let mut command = Command::new("journalctl");
    command.args(["--unit=eirened", "--unit=eirene-launcher", "--no-pager", "--output=short-iso", "--lines", LINES]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let asked = tokio::time::timeout(WAIT, command.output()).await.context("the journal does not answer")?;
    let said = asked.context("there is no journal here; add the log of eirened yourself")?;
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    Ok(format!("{errors}{}", String::from_utf8_lossy(&said.stdout)))
}

/// Every secret that the configuration and its files hold.
fn known_secrets(config: &Config) -> BTreeSet<String> {
    let mut secrets = BTreeSet::new();
    let mut add = |text: &str| {
        let lines = text.lines().map(str::trim);
        let long = lines.filter(|line| line.len() >= SHORTEST_SECRET && !line.starts_with("-----"));
        secrets.extend(long.map(str::to_owned));
    };
    for url in [config.database_url().ok(), config.alerts.webhook_address().ok().flatten()].into_iter().flatten() {
        let url = url.expose_secret();
        // Where a SQLite database lies is no secret, and stands in many a useful line.
        if url.starts_with("sqlite:") {
            continue;
        }
        add(url);
        if let Some(password) =
            url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).and_then(|(user, _)| user.split_once(':'))
        {
            add(password.1);
        }
    }
    if let Ok(Some(key)) = config.alerts.webhook_secret() {
        add(key.expose_secret());
    }
    for secret in config.zabbix.secrets() {
        add(secret.expose_secret());
    }
    let (prometheus, traces) = (&config.prometheus, &config.traces);
    let tokens = [prometheus.bearer_token_file.clone(), traces.bearer_token_file.clone()];
    let keys = [Some(config.server.state_dir.join("tunnel.key")), config.server.tls_key.clone()];
    for key in keys.into_iter().chain(tokens).flatten() {
        add(&std::fs::read_to_string(key).unwrap_or_default());
    }
    if let Some(file) = &prometheus.basic_auth_file {
        let login = std::fs::read_to_string(file).unwrap_or_default();
        add(&login);
        // Without its name, too: that is how it may stand somewhere.
        add(login.split_once(':').map_or("", |(_, password)| password));
    }
    secrets
}

/// Without the secrets that are known, and without what looks like one.
fn scrubbed(text: &str, secrets: &BTreeSet<String>) -> String {
    let mut text = text.to_owned();
    // Longest first: a secret may begin with another.
    let mut by_length: Vec<&String> = secrets.iter().collect();
    by_length.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in by_length {
        text = text.replace(secret.as_str(), LEFT_OUT);
    }
    let mut in_key = false;
    let mut clean = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (begins, ends) = (line.contains("-----BEGIN ") && line.contains("PRIVATE KEY"), line.contains("-----END "));
        if in_key || begins {
            if begins {
                clean.push_str(LEFT_OUT);
                clean.push('\n');
            }
            in_key = !ends;
            continue;
        }
        clean.push_str(&without_passwords(&without_tokens(&without_jwts(&without_headers(line)))));
    }
    clean
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Tokens of ours are known by their beginning.
fn without_tokens(line: &str) -> String {
    let mut parts = line.split(PREFIX);
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c| !is_token_char(c)).unwrap_or(part.len());
        let (token, rest) = part.split_at(end);
        if token.len() >= TOKEN_CHARS {
            clean.push_str(LEFT_OUT);
        } else {
            clean.push_str(PREFIX);
            clean.push_str(token);
        }
        clean.push_str(rest);
    }
    clean
}

/// JSON Web Tokens, as SLURM takes them: parts in base64url with points between them (RFC 7519). One that was cut has told enough with two.
fn without_jwts(line: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find(JWT) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c| !is_token_char(c) && c != '.').unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let parts = word.split('.').filter(|part| !part.is_empty()).count();
        clean.push_str(before);
        clean.push_str(if parts > 1 { LEFT_OUT } else { word });
        rest = after;
    }
    clean.push_str(rest);
    clean
}

/// What headers hold that open a door, however they are written down: `Cookie: …`, `"cookie": "…"`, `cookie=…`, and the same within a text.
fn without_headers(line: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(value) = first_secret(&rest.to_ascii_lowercase()) {
        clean.push_str(rest.get(..value.start).unwrap_or_default());
        clean.push_str(LEFT_OUT);
        rest = rest.get(value.end..).unwrap_or_default();
    }
    clean.push_str(rest);
    clean
}

/// Where the first value of such a header lies in a line of small letters.
fn first_secret(line: &str) -> Option<Range<usize>> {
    let names = SECRET_HEADERS.into_iter().flat_map(|name| line.match_indices(name));
    names.filter_map(|(at, name)| value(line, at + name.len())).min_by_key(|value| value.start)
}

/// Where the value lies of a name that ends at `from`. In quotes it reaches to the next ones that are as much escaped, else to the end of the line.
fn value(line: &str, from: usize) -> Option<Range<usize>> {
    let behind = line.get(from..)?;
    let named = behind.trim_start_matches(['\\', '"', '\'', ' ']);
    let was_quoted = behind.get(..behind.len() - named.len())?.contains(['"', '\'']);
    // A list of pairs has a comma there.
    let written = named.strip_prefix([':', '=']).or_else(|| named.strip_prefix(',').filter(|_| was_quoted))?;
    let written = written.trim_start_matches([' ', '\t']);
    let quoted = written.trim_start_matches('\\');
    let end = line.trim_end_matches(['\r', '\n']).len();
    let Some(quote) = quoted.chars().next().filter(|c| ['"', '\''].contains(c)) else {
        let start = line.len() - written.len();
        return (start < end).then_some(start..end);
    };
    let (escapes, start) = (written.len() - quoted.len(), line.len() - quoted.len() + 1);
    let mut run = 0;
    for (at, c) in line.get(start..end)?.char_indices() {
        if c == quote && run <= escapes {
            return Some(start..start + at - run);
        }
        run = if c == '\\' { run + 1 } else { 0 };
    }
    Some(start..end)
}

/// `scheme://user:password@host` without the password (RFC 3986, section 3.2.1).
fn without_passwords(line: &str) -> String {
    let mut parts = line.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str("://");
        let end = part.find(|c: char| c.is_whitespace() || "/?#\"'`<>".contains(c)).unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
            Some((user, host)) => {
                let _ = write!(clean, "{user}:{LEFT_OUT}@{host}");
            }
            None => clean.push_str(authority),
        }
        clean.push_str(rest);
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    /// What a secret of each sort is in the test below; none may come out again.
    const PLANTED: [&str; 10] = [
        "pl4nted-database",
        "pl4nted-hook",
        "pl4nted-signing-key",
        "pl4ntedTunnelKey",
        "pl4nted-in-passing",
        "pl4nted-signature",
        "pl4nted-zabbix-token",
        "pl4nted-zabbix-log-in",
        "pl4nted-prometheus-password",
        "pl4nted-traces-token",
    ];
    /// The head of a JSON Web Token, and what it says.
    const SAYS: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJhZGEifQ";

    fn planted(directory: &Path) -> PathBuf {
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let [database, hook, signing, tunnel, passing, signature, token, login, password, traces] = PLANTED;
        let url = write("url", &format!("postgres://eirene:{database}@127.0.0.1:1/{passing}\n"));
        let signing = write("signing", &format!("{signing}\n"));
        let token = write("token", &format!("{token}\n"));
        let basic_auth = write("basic-auth", &format!("eirene:{password}\n"));
        let bearer = write("bearer", &format!("{traces}\n"));
        write("tunnel.key", &format!("-----BEGIN PRIVATE KEY-----\n{tunnel}\n-----END PRIVATE KEY-----\n"));
        write(
            "eirened.toml",
            &format!(
                "[server]\nlisten = \"127.0.0.1:1\"\nportal_url = \"http://a.b\"\napps_domain = \"c.d\"\nstate_dir = {directory:?}\n[database]\nurl_file = {url:?}\n\
                 [tunnel]\nadvertise = \"a:1\"\n[launcher]\nsocket = \"{}/{SAYS}.{signature}\"\n[alerts]\nwebhook_url = \"https://127.0.0.1:1/{hook}\"\n\
                 webhook_secret_file = {signing:?}\n[zabbix]\napi_url = \"http://u:{login}@127.0.0.1:1/\"\napi_token_file = {token:?}\n\
                 [metrics]\nsessions = true\n[prometheus]\nurl = \"http://127.0.0.1:1/{password}\"\nbasic_auth_file = {basic_auth:?}\n\
                 [traces]\nurl = \"http://127.0.0.1:1/{traces}\"\nbearer_token_file = {bearer:?}\n",
                directory.display()
            ),
        )
    }

    fn unpacked(path: &Path) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(path).unwrap()));
        let read = |entry: std::io::Result<tar::Entry<'_, GzDecoder<std::fs::File>>>| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (name, text)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[tokio::test]
    async fn no_secret_that_was_planted_is_in_the_bundle() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let config = planted(directory.path());
        let path = directory.path().join("support.tar.gz");
        let bundle = || SupportBundle { file: ConfigFile { config: config.clone() }, path: path.clone() };
        bundle().run().await.unwrap();
        let files = unpacked(&path);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["about.txt", "config.txt", "doctor.txt", "readyz.txt", "metrics.txt", "journal.txt"]);
        for (name, text) in &files {
            assert!(!text.is_empty(), "{name}");
            for secret in PLANTED {
                assert!(!text.contains(secret), "{secret} is in {name}:\n{text}");
            }
        }
        assert!(files[1].1.contains("webhook_url") && files[1].1.contains("c.d"), "{}", files[1].1);
        assert!(files[2].1.contains("BROKEN"), "{}", files[2].1);
        assert!(files[3].1.contains("does not answer"), "{}", files[3].1);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let before = std::fs::read(&path).unwrap();
        assert!(bundle().run().await.unwrap_err().to_string().contains("cannot be made"));
        assert_eq!(std::fs::read(&path).unwrap(), before, "what is there stays");
    }

    #[tokio::test]
    async fn a_portal_that_does_tls_itself_is_asked_too_and_under_its_own_name() {
        let port = crate::commands::testing::tls_mirror().await;
        let text = format!(
            "[server]\nlisten = \"0.0.0.0:{port}\"\nportal_url = \"https://portal.example.org:8443\"\napps_domain = \"c.d\"\n\
             tls_cert = \"/none.pem\"\ntls_key = \"/none.key\"\n[tunnel]\nadvertise = \"a:1\"\n"
        );
        let config = Config::from_text(&text).unwrap();
        for path in ["/readyz", "/metrics"] {
            let said = portal(&config, path).await.unwrap().to_ascii_lowercase();
            assert!(said.starts_with(&format!("200 ok\nget {path} http/1.1\r\n")), "{said}");
            assert_eq!(said.matches("host: portal.example.org:8443\r\n").count(), 1, "{said}");
            assert_eq!(said.matches("host:").count(), 1, "{said}");
        }
    }

    #[test]
    fn a_token_for_prometheus_is_known_and_a_password_also_without_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::load(&planted(directory.path())).unwrap();
        let token = directory.path().join("prometheus");
        std::fs::write(&token, "pl4nted-prometheus-token\n").unwrap();
        config.prometheus.bearer_token_file = Some(token);
        let secrets = known_secrets(&config);
        for secret in ["pl4nted-prometheus-token", "pl4nted-prometheus-password", "pl4nted-traces-token"] {
            assert!(secrets.contains(secret), "{secret}");
        }
    }

    #[tokio::test]
    async fn a_configuration_that_is_not_understood_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("eirened.toml");
        std::fs::write(&config, "[database]\nurl = \"postgres://a:pl4nted@h/d\"\nnonsense = 1\n").unwrap();
        let parts = parts(&config).await;
        assert!(parts.iter().all(|(_, text)| !text.contains("pl4nted")), "{parts:?}");
        assert!(parts.iter().any(|(name, text)| *name == "doctor.txt" && text.contains("nonsense")), "{parts:?}");
    }

    #[test]
    fn what_looks_like_a_secret_is_left_out_wherever_it_stands() {
        let none = BTreeSet::new();
        let token = format!("{PREFIX}{}", "aB3-_".repeat(9));
        for (text, clean) in [
            (format!("bearer {token}, again {token}"), format!("bearer {LEFT_OUT}, again {LEFT_OUT}")),
            (format!("a word like {PREFIX}short stays"), format!("a word like {PREFIX}short stays")),
            ("at postgres://u:p@ss@h/d now".into(), format!("at postgres://u:{LEFT_OUT}@h/d now")),
            ("at https://h/a:b@c stays".into(), "at https://h/a:b@c stays".into()),
            (format!("refused {SAYS}.pl4nted_-x, again"), format!("refused {LEFT_OUT}, again")),
            (format!("SLURM_JWT={SAYS} was cut"), format!("SLURM_JWT={LEFT_OUT} was cut")),
            ("eyJust a word, and eyJ. another".into(), "eyJust a word, and eyJ. another".into()),
            (
                "> Authorization: Basic cGw0bnRlZA==\n> Host: h".into(),
                format!("> Authorization: {LEFT_OUT}\n> Host: h"),
            ),
            ("set-cookie: __Host-eirene=pl4nted; Path=/\r\n".into(), format!("set-cookie: {LEFT_OUT}\r\n")),
            (
                r#"headers={"cookie": "a=\"pl4nted\"; b=c", "host": "h", "X-SLURM-USER-TOKEN": "pl4nted"} took=3"#
                    .into(),
                format!(
                    r#"headers={{"cookie": "{LEFT_OUT}", "host": "h", "X-SLURM-USER-TOKEN": "{LEFT_OUT}"}} took=3"#
                ),
            ),
            (
                r#"{"message":"asked with {\"Authorization\":\"Bearer pl4nted\"}","level":"INFO"}"#.into(),
                format!(r#"{{"message":"asked with {{\"Authorization\":\"{LEFT_OUT}\"}}","level":"INFO"}}"#),
            ),
            ("cookie=pl4nted other=pl4nted".into(), format!("cookie={LEFT_OUT}")),
            ("é proxy-authorization: 'pl4nted' é".into(), format!("é proxy-authorization: '{LEFT_OUT}' é")),
            (
                r#"[("cookie", "pl4nted"), ("host", "h"), ('Authorization', 'Basic pl4nted')]"#.into(),
                format!(r#"[("cookie", "{LEFT_OUT}"), ("host", "h"), ('Authorization', '{LEFT_OUT}')]"#),
            ),
            ("no cookie, no authorization.".into(), "no cookie, no authorization.".into()),
            ("Cookie:\n".into(), "Cookie:\n".into()),
            (
                "x\n-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----\ny".into(),
                format!("x\n{LEFT_OUT}\ny"),
            ),
        ] {
            assert_eq!(scrubbed(&text, &none), clean);
        }
        let known = BTreeSet::from(["abcdef".to_owned(), "abcdefgh".to_owned()]);
        assert_eq!(scrubbed("1 abcdefgh 2 abcdef 3", &known), format!("1 {LEFT_OUT} 2 {LEFT_OUT} 3"));
    }

    #[test]
    fn of_what_is_too_long_the_end_is_kept() {
        let text = format!("{}é{}", "x".repeat(MOST_BYTES), "y".repeat(10));
        let cut = cut(text);
        assert!(cut.len() < MOST_BYTES + 100 && cut.ends_with("yyyyyyyyyy") && cut.starts_with("[the first"));
    }
}
