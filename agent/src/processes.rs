//! The processes below this one: adopted when their parents end, found, and ended.

use std::io;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Rounds of looking for what is left, and the pause between them.
const SWEEPS: u32 = 50;
const SWEEP_PAUSE: Duration = Duration::from_millis(20);
/// The shortest turn that the scheduler gives, nanoseconds.
const SHORT_TURN: u64 = 100_000;

/// A process as one can find it again: numbers are used anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    /// Its number, as seen from outside of containers.
    pub(crate) pid: i32,
    /// When it began, in clock ticks since boot.
    started: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, started: started(&std::fs::read_to_string(format!("/proc/{pid}/stat"))?)? })
    }

    /// This one.
    pub(crate) fn own() -> io::Result<Self> {
        Self::of(nix::unistd::getpid().as_raw())
    }

    /// Whether what a `stat` file says is about this process.
    pub(crate) fn is(&self, stat: &str) -> bool {
        started(stat).is_ok_and(|started| started == self.started)
    }

    /// Sends a signal, if it is still there.
    pub(crate) fn signal(&self, signal: Signal) {
        if Self::of(self.pid).is_ok_and(|now| now == *self) {
            // It may have ended in between.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// When a process began (proc(5), `stat`, field 22). The name before it may hold anything.
fn started(stat: &str) -> io::Result<u64> {
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    field.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Lets this thread compute at once when it is woken, beside programs that compute all the time: it asks for short turns, and the scheduler gives
/// those earlier (sched_setattr(2); EEVDF, Linux 6.12). It gets no more of the processor, and nothing changes on older kernels. What is started later
/// inherits it.
#[expect(unsafe_code, reason = "sched_setattr(2): no crate that we have calls it")]
pub(crate) fn wake_early() -> io::Result<()> {
    let mut wanted = scheduling()?;
    wanted.sched_runtime = SHORT_TURN;
    // SAFETY: the kernel reads as many bytes as `size` says.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    nix::errno::Errno::result(set)?;
    Ok(())
}

/// How this thread is scheduled.
#[expect(unsafe_code, reason = "sched_getattr(2): no crate that we have calls it")]
fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: all its fields are numbers, which may be 0.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most as many bytes as it is told.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size_of_val(&now), 0) };
    nix::errno::Errno::result(got)?;
    Ok(now)
}

/// Whether a process has a handler for a signal (proc(5), `SigCgt`).
pub(crate) fn handles(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}

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

/// This process's children that have ended and were not waited for.
pub(crate) fn ended_children() -> Vec<i32> {
    let own = nix::unistd::getpid().as_raw();
    all().into_iter().filter(|process| process.parent == own && process.ended).map(|process| process.pid).collect()
}

/// From now on adopted children that have ended are taken leave of, as long as the runtime lives: a session lasts, its processes are limited in
/// number, and each `srun` leaves one that watches over it. This process's own children, for which their starters wait, are in its process group
/// or lead one.
pub(crate) fn reap_adopted() -> io::Result<()> {
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())?;
    let (own, group) = (nix::unistd::getpid().as_raw(), nix::unistd::getpgrp().as_raw());
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            for kin in all().into_iter().filter(|kin| kin.parent == own && kin.ended && kin.is_adopted(group)) {
                let _ = nix::sys::wait::waitpid(Pid::from_raw(kin.pid), Some(nix::sys::wait::WaitPidFlag::WNOHANG));
            }
        }
    });
    Ok(())
}

/// All processes below `ancestor`, from `/proc/<pid>/stat` (proc(5)).
fn descendants(ancestor: i32) -> Vec<i32> {
    let processes = all();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(processes.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        next += 1;
    }
    found.split_off(1)
}

/// A process's place among others.
struct Kin {
    pid: i32,
    parent: i32,
    group: i32,
    ended: bool,
}

impl Kin {
    /// Whether a child was somebody else's before, as far as its process group tells; `group` is the parent's.
    fn is_adopted(&self, group: i32) -> bool {
        self.group != group && self.group != self.pid
    }
}

/// All processes that can be seen.
fn all() -> Vec<Kin> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name may hold anything; what follows its last parenthesis is `state parent group …`.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let ended = fields.next()? == "Z";
            let mut number = || fields.next()?.parse().ok();
            Some(Kin { pid, parent: number()?, group: number()?, ended })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let own = Process::own().unwrap();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(own.is(&stat));
        assert!(!Process { started: own.started + 1, ..own }.is(&stat));
    }

    #[test]
    fn who_asks_for_short_turns_gets_no_more_than_before() {
        let before = scheduling().unwrap();
        wake_early().unwrap();
        let after = scheduling().unwrap();
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        // Kernels before 6.12 tell no turn and take no note of one.
        let turn = if before.sched_runtime == 0 { 0 } else { SHORT_TURN };
        assert_eq!(after.sched_runtime, turn);
    }

    #[tokio::test]
    async fn what_a_child_leaves_behind_is_taken_leave_of_and_a_child_is_not() {
        adopt_orphans().unwrap();
        reap_adopted().unwrap();
        // Both end, the second once it was seen; the one is a child of this process's, the other one that child's, in its group.
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "sleep 1000 & exit 3"]).process_group(0);
        let mut child = command.spawn().unwrap();
        let group = i32::try_from(child.id().unwrap()).unwrap();
        let mut adopted = false;
        for _ in 0..12_000 {
            let left: Vec<Kin> = all().into_iter().filter(|kin| kin.group == group && kin.pid != group).collect();
            if let Some(orphan) = left.iter().find(|kin| kin.parent == nix::unistd::getpid().as_raw()) {
                adopted = true;
                // It may have ended since.
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(orphan.pid), nix::sys::signal::SIGKILL);
            }
            if adopted && left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(adopted && !all().iter().any(|kin| kin.group == group && kin.pid != group));
        assert_eq!(child.wait().await.unwrap().code(), Some(3));
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let fields = (4..=25).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started(&format!("7 (a) b) S {fields}")).unwrap(), 22);
        assert!(started("7 (a").is_err());
    }
}
