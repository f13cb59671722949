//! Servers as child processes: started, awaited, killed when dropped; what they print goes to a file.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

/// A server that runs until this is dropped.
pub(crate) struct Server {
    child: Child,
    name: String,
    log: PathBuf,
}

/// Where a server answers once it is up.
pub(crate) enum Answers<'a> {
    /// On this address.
    Tcp(SocketAddr),
    /// On this unix socket.
    Unix(&'a Path),
}

impl Server {
    /// Starts `command`, with its output in `dir/NAME.log`.
    pub(crate) fn start(name: &str, mut command: Command, dir: &Path) -> anyhow::Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { child, name: name.to_owned(), log })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The end of what it printed.
    pub(crate) fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Waits until it accepts connections.
    pub(crate) async fn wait(&mut self, answers: Answers<'_>) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let up = match answers {
                Answers::Tcp(address) => TcpStream::connect(address).await.is_ok(),
                Answers::Unix(path) => UnixStream::connect(path).await.is_ok(),
            };
            if up {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}:\n{}", self.name, self.said());
            }
            if begun.elapsed() > Duration::from_secs(30) {
                bail!("{} does not answer:\n{}", self.name, self.said());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Asks all to end, so that nothing of them is left, and waits; what does not end in time is killed.
pub(crate) async fn stop(mut servers: Vec<Server>) -> anyhow::Result<()> {
    let pids: Vec<String> = servers.iter().filter_map(|server| Some(server.pid()?.to_string())).collect();
    Command::new("kill").args(pids).stderr(Stdio::null()).status().await?;
    let until = Instant::now() + Duration::from_secs(15);
    for server in &mut servers {
        let left = until.saturating_duration_since(Instant::now());
        if tokio::time::timeout(left, server.child.wait()).await.is_err() {
            server.child.kill().await?;
        }
    }
    Ok(())
}

/// A loopback address nobody listens on now.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The checkout's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Resident memory of a process, bytes.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The most it ever had.
pub(crate) fn peak(pid: u32) -> anyhow::Result<u64> {
    status_bytes(pid, "VmHWM:")
}

/// A line of `/proc/PID/status` (proc(5)).
fn status_bytes(pid: u32, name: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
