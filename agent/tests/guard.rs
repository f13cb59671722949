//! The guard as the container runs it, without a container: it passes on how the app ended, tells it once to end, and leaves nothing
//! when the agent's end of the pipe closes.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const WITHIN: Duration = Duration::from_mins(2);

struct Guard {
    child: Child,
    agent: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Guard {
    fn start(script: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_eirene-agent"))
            .args(["guard", "--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (agent, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, agent, output: BufReader::new(output).lines() }
    }

    async fn line(&mut self) -> String {
        tokio::time::timeout(WITHIN, self.output.next_line()).await.unwrap().unwrap().unwrap()
    }

    async fn code(&mut self) -> Option<i32> {
        tokio::time::timeout(WITHIN, self.child.wait()).await.unwrap().unwrap().code()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), signal).unwrap();
    }
}

#[tokio::test]
async fn how_the_app_ended_is_passed_on() {
    assert_eq!(Guard::start("exit 7").code().await, Some(7));
    assert_eq!(Guard::start("kill -KILL $$").code().await, Some(137));
}

#[tokio::test]
async fn the_app_is_told_once_to_end() {
    let mut guard =
        Guard::start("trap 'echo told' TERM; echo up; while :; do sleep 0.05; [ -e /proc/$PPID/exe ] || exit; done");
    assert_eq!(guard.line().await, "up");
    for _ in 0..3 {
        guard.signal(Signal::SIGTERM);
    }
    assert_eq!(guard.line().await, "told");
    drop(guard.agent);
    assert_eq!(guard.output.next_line().await.unwrap(), None, "once");
    assert_eq!(tokio::time::timeout(WITHIN, guard.child.wait()).await.unwrap().unwrap().code(), Some(137));
}

#[tokio::test]
async fn nothing_is_left_when_the_agent_goes() {
    // One child that ignores being asked, one that left the session and whose parent has ended.
    let mut guard = Guard::start("trap '' TERM; (setsid sleep 1000 & echo $!); echo $$; while :; do sleep 1; done");
    let pids = [guard.line().await, guard.line().await];
    let lives = |pid: &String| PathBuf::from(format!("/proc/{}", pid.trim())).exists();
    assert!(pids.iter().all(lives), "{pids:?}");
    drop(guard.agent);
    assert_eq!(tokio::time::timeout(WITHIN, guard.child.wait()).await.unwrap().unwrap().code(), Some(137));
    assert!(!pids.iter().any(lives), "{pids:?}");
}

#[tokio::test]
async fn what_was_left_behind_is_buried_while_the_app_goes_on() {
    let mut guard = Guard::start("(sleep 0.1 & echo $!); echo up; exec sleep 1000");
    let orphan = PathBuf::from(format!("/proc/{}", guard.line().await.trim()));
    assert_eq!(guard.line().await, "up");
    // A process that nobody has waited for stays in the list after its end.
    tokio::time::timeout(WITHIN, async {
        while orphan.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert!(guard.child.try_wait().unwrap().is_none(), "the app goes on");
    drop(guard.agent);
    assert_eq!(tokio::time::timeout(WITHIN, guard.child.wait()).await.unwrap().unwrap().code(), Some(137));
}
