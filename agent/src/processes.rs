//! The processes below this one: adopted when their parents end, found, and ended.

use std::io;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Rounds of looking for what is left, and the pause between them.
const SWEEPS: u32 = 50;
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// Makes this process the parent of what its children leave behind (prctl(2)).
pub(crate) fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)
}

/// Kills every process below this one, until there is none.
pub(crate) async fn sweep() {
    for _ in 0..SWEEPS {
        let left = descendants(nix::unistd::getpid().as_raw());
        if left.is_empty() {
            return;
        }
        for pid in left {
            // Gone already is what is wanted.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        while matches!(
            nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG)),
            Ok(status) if status != nix::sys::wait::WaitStatus::StillAlive
        ) {}
        tokio::time::sleep(SWEEP_PAUSE).await;
    }
}

/// All processes below `ancestor`, from `/proc/<pid>/stat` (proc(5)).
fn descendants(ancestor: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let parents: Vec<(i32, i32)> = entries
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name may hold anything; what follows its last parenthesis is `state parent …`.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}
