//! Doing in a child what may hang, crash or end the process: libraries of others, and whole runs.
#![expect(unsafe_code, reason = "ending the child with its parent, and its whole group at the limit")]

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not in time: it was killed.
    TimedOut(Duration),
    /// It could not be started.
    NotStarted(String),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "ended with code {code}"),
            Self::Signal(signal) => write!(formatter, "was killed by signal {signal}"),
            Self::TimedOut(limit) => write!(formatter, "had not ended after {limit:?}"),
            Self::NotStarted(problem) => write!(formatter, "could not be started: {problem}"),
        }
    }
}

/// A child's end and its words.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// What a child of ours answered, among whatever else libraries write.
    pub(crate) fn answer(&self) -> Option<serde_json::Value> {
        let line = self.stdout.lines().rev().find_map(|line| line.strip_prefix(ANSWER))?;
        serde_json::from_str(line).ok()
    }

    /// The last lines on stderr, for people.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 3;
        const LONGEST: usize = 400;
        let lines: Vec<&str> = self.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join(" / ");
        let start = last.len().saturating_sub(LONGEST);
        let start = (start..last.len()).find(|at| last.is_char_boundary(*at)).unwrap_or(0);
        last[start..].to_owned()
    }
}

/// Stands before what our own children answer.
pub(crate) const ANSWER: &str = "eirene-train-look: ";

/// Most bytes kept of each of a child's outputs.
const MOST: u64 = 256 << 10;

/// Runs a program with more variables, in a process group of its own, for so long at most. Nothing of it is left afterwards.
pub(crate) fn run(words: &[OsString], variables: &[(&str, &OsStr)], limit: Duration) -> Ended {
    let begun = Instant::now();
    let ended = |ending, stdout, stderr| Ended { ending, stdout, stderr, took: begun.elapsed() };
    let Some((program, arguments)) = words.split_first() else {
        return ended(Ending::NotStarted("there is no program".to_owned()), String::new(), String::new());
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: prctl may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return ended(Ending::NotStarted(error.to_string()), String::new(), String::new()),
    };
    let outputs = [child.stdout.take().map(read), child.stderr.take().map(read)];
    let status = wait(&mut child, begun + limit);
    // What the child started and left behind goes with it.
    // SAFETY: the group is the child's own.
    unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
    let ending = if let Some(status) = status {
        status.code().map_or_else(|| Ending::Signal(status.signal().unwrap_or(0)), Ending::Code)
    } else {
        // It was killed, and is gone as soon as the system lets it.
        let _ = child.wait();
        Ending::TimedOut(limit)
    };
    let [stdout, stderr] = outputs.map(|output| output.as_ref().map(heard).unwrap_or_default());
    ended(ending, stdout, stderr)
}

fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Reads on a thread: a child must not wait for room in a pipe.
fn read(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(MOST).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
        // The rest is read away.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    });
    receiver
}

/// What was read. A process that left the group may hold the pipe: it is not waited for.
fn heard(output: &Receiver<Vec<u8>>) -> String {
    let bytes = output.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ended {
        run(&["sh".into(), "-c".into(), script.into()], &[("WORD", OsStr::new("hello"))], limit)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_child_s_end_and_words_are_heard() {
        let ended = shell("echo $WORD; echo 'eirene-train-look: {\"a\": 1}'; echo x; echo oh >&2; exit 3", LONG);
        assert_eq!((&ended.ending, ended.last_words().as_str()), (&Ending::Code(3), "oh"));
        assert!(ended.stdout.starts_with("hello\n"), "{}", ended.stdout);
        assert_eq!(ended.answer().unwrap(), serde_json::json!({"a": 1}));
        assert_eq!(shell("kill -9 $$", LONG).ending, Ending::Signal(9));
        assert!(matches!(run(&["/nowhere/x".into()], &[], LONG).ending, Ending::NotStarted(_)));
        assert!(matches!(run(&[], &[], LONG).ending, Ending::NotStarted(_)));
    }

    #[test]
    fn a_child_that_hangs_is_ended_with_all_that_it_started() {
        let ended = shell("sleep 1000 & echo $! $$; wait", Duration::from_millis(300));
        assert_eq!(ended.ending, Ending::TimedOut(Duration::from_millis(300)));
        for pid in ended.stdout.split_whitespace() {
            let begun = Instant::now();
            // The orphan is gone as soon as its new parent has noticed.
            let is_there =
                || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
            while is_there() {
                assert!(begun.elapsed() < LONG, "{pid} is still there");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_child_that_says_too_much_is_not_kept_waiting() {
        let ended = shell("head -c 3000000 /dev/zero | tr '\\0' x; exit 5", LONG);
        assert_eq!((ended.ending, ended.stdout.len() as u64), (Ending::Code(5), MOST));
    }
}
