//! Sends with the site's own `zabbix_sender`, for pre-shared keys. Values go in by standard input and the key stays in its file, so that neither
//! is in an argument vector. It forks for every packet, so it has a process group of its own, which is ended as a whole.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::packet::{counts, short};
use crate::sender::{SendError, Taken, split_address};
use crate::value::Value;

/// Most of what it says that is read, bytes.
const MOST_SAID: u64 = 16 * 1024;

/// How values are sent with a pre-shared key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Psk {
    /// `zabbix_sender`.
    pub program: PathBuf,
    /// Identity of the key, which is no secret.
    pub identity: String,
    /// File that holds the key.
    pub file: PathBuf,
}

impl Psk {
    /// Sends one batch; ended when the caller stops waiting.
    pub(crate) async fn send(&self, address: &str, values: &[Value]) -> Result<Taken, SendError> {
        let (host, port) = split_address(address);
        let mut child = Command::new(&self.program)
            .args(["-z", host, "-p", port, "-T", "-N", "-i", "-", "--tls-connect", "psk"])
            .args(["--tls-psk-identity", &self.identity, "--tls-psk-file"])
            .arg(&self.file)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(|source| SendError::Program { program: self.program.clone(), source })?;
        let mut group = Group::of(&child);
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let text = lines(values);
        let write = async {
            let Some(mut input) = input else { return };
            // It may end without having read everything; then its status says why.
            let _ = input.write_all(text.as_bytes()).await;
        };
        let ((), said, complained, status) = tokio::join!(write, read_some(output), read_some(errors), child.wait());
        // Nobody writes any more, so nobody of the group is left.
        group.0 = None;
        let status = status.map_err(|source| SendError::Program { program: self.program.clone(), source })?;
        judged(status, &said, &complained)
    }
}

/// The program and what it has started, ended when nobody waits for them any more: what goes on sending after its time is up would send twice.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The number is nobody else's as long as one of the group is there. It may have ended in between.
        let _ = self.0.map(|group| killpg(group, Signal::SIGKILL));
    }
}

/// Reads on to the end, so that nobody waits for a full pipe, and keeps the beginning.
async fn read_some(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept = Vec::new();
    let _ = (&mut from).take(MOST_SAID).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}

/// 0 when all were taken, 2 when some were not, anything else when they were not sent.
fn judged(status: ExitStatus, said: &str, complained: &str) -> Result<Taken, SendError> {
    let mut taken = Taken::default();
    let mut answers = 0;
    for info in said.lines().filter_map(|line| line.trim().strip_suffix('"')?.split_once("\": \"")) {
        let Some((processed, failed)) = counts(info.1) else { continue };
        taken.processed = taken.processed.saturating_add(processed);
        taken.failed = taken.failed.saturating_add(failed);
        answers += 1;
    }
    match status.code() {
        Some(0 | 2) if answers > 0 => Ok(taken),
        code => {
            let why = [complained, said].into_iter().map(short).find(|text| !text.is_empty()).unwrap_or_default();
            let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("status {code}"));
            Err(SendError::Refused(format!("zabbix_sender ended with {code}: {why}")))
        }
    }
}

/// A line for each value: host, key, seconds, nanoseconds, value; whatever a person may have written is in quotes.
fn lines(values: &[Value]) -> String {
    let mut text = String::new();
    for value in values {
        let (host, key, said) = (quoted(&value.host), quoted(&value.key), quoted(&value.value));
        let _ = writeln!(text, "{host} {key} {} {} {said}", value.clock, value.ns);
    }
    text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Why the program cannot be what it is said to be.
///
/// # Errors
/// The program is not there, or the key cannot be read.
pub(crate) fn look(psk: &Psk) -> io::Result<()> {
    std::fs::metadata(&psk.program)?;
    std::fs::File::open(&psk.file).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn value(value: &str) -> Value {
        Value { host: "eirene".into(), key: "k[c1]".into(), value: value.into(), clock: 5, ns: 7 }
    }

    #[test]
    fn whatever_a_value_holds_it_stays_one_line_and_one_value() {
        let text = lines(&[value("1.5"), value("a \"b\" \\ \r\nnext k 1 1 2")]);
        let expected =
            "\"eirene\" \"k[c1]\" 5 7 \"1.5\"\n\"eirene\" \"k[c1]\" 5 7 \"a \\\"b\\\" \\\\  \\nnext k 1 1 2\"\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn its_status_and_its_answers_are_read_together() {
        let status = |code: i32| ExitStatus::from_raw(code << 8);
        let said = "Response from \"z:10051\": \"processed: 2; failed: 0; total: 2; seconds spent: 0.00\"\n\
                    Response from \"z:10051\": \"processed: 1; failed: 3; total: 4; seconds spent: 0.00\"\n\
                    sent: 6; skipped: 0; total: 6\n";
        assert_eq!(judged(status(2), said, "").unwrap(), Taken { processed: 3, failed: 3 });
        let error = judged(status(1), "sent: 0; skipped: 0; total: 1\n", "cannot read\nPSK").unwrap_err().to_string();
        assert!(error.contains("status 1: cannot read PSK"), "{error}");
        assert!(judged(status(0), "", "").is_err(), "no answer was seen");
        assert!(judged(ExitStatus::from_raw(9), said, "").is_err(), "it was killed");
    }
}
