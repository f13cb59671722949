//! The preflight, with real ranks and a double of a session's agent that starts them all on this machine.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eirene_steps::{Answer, Descriptors, Receiver, Request, StepRequest, Word, frame, parse};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{PROGRAM, Run};
use crate::deep::assert_within;

/// How the line begins that says that nodes were tried. A machine that is busy with other tests may be called slow.
const TRIED: &str = "eirene-train: preflight: 2 nodes, 1 link";

/// What becomes of a node's rank once it has said its first word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// It says none: something else runs in its place.
    Absent,
    /// It stops.
    Stopped,
    /// It is killed.
    Killed,
    /// Its node is lost, and no step is started there.
    Lost,
}

/// The agent of a session with some nodes.
pub(crate) struct Agent {
    directory: tempfile::TempDir,
    pub(crate) asked: Arc<Mutex<Vec<StepRequest>>>,
}

impl Agent {
    /// On these nodes; ranks of a preflight on one of them may have a fate.
    pub(crate) fn start(nodes: &[&str], fate: Option<(&str, Fate)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("steps.sock")).unwrap();
        let asked: Arc<Mutex<Vec<StepRequest>>> = Arc::default();
        let names: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
        let (fate, base, list) =
            (fate.map(|(name, fate)| (name.to_owned(), fate)), directory.path().to_owned(), Arc::clone(&asked));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                serve(&socket.unwrap(), &names, fate.as_ref(), &base, &list);
            }
        });
        Self { directory, asked }
    }

    /// `eirene-train run` in the session.
    pub(crate) fn run<'a>(&self, nodes: &str, words: impl IntoIterator<Item = &'a str>) -> Run {
        let home = self.directory.path();
        let run = Run::new(words).env("EIRENE_TRAIN_STEPS", home.join("steps.sock"));
        run.env("SLURM_JOB_NODELIST", nodes).env("HOME", home)
    }

    /// The programs that were started so far, with their nodes.
    fn started(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let shown = asked.iter().map(|step| {
            let words = &step.program.command;
            let what = words.iter().find(|word| *word == "preflight-rank").unwrap_or(&words[0]);
            format!("{what} on {} without {}", step.nodes.join(","), step.exclude.join(","))
        });
        shown.collect()
    }
}

fn serve(
    socket: &UnixStream,
    nodes: &[String],
    fate: Option<&(String, Fate)>,
    base: &Path,
    asked: &Mutex<Vec<StepRequest>>,
) {
    let mut receiver = Receiver::default();
    let request = loop {
        assert!(receiver.receive(socket).unwrap());
        if let Some(request) = parse::<Request>(&mut receiver.bytes).unwrap() {
            break request;
        }
    };
    let Request::Step(step) = request else { panic!("{request:?}") };
    let Descriptors([_, output, errors]) = receiver.descriptors().unwrap();
    asked.lock().unwrap().push(step.clone());
    let say = |answer: &Answer| drop((&mut &*socket).write_all(&frame(answer).unwrap()));
    if let Some((node, Fate::Lost)) = fate
        && step.wants(node)
    {
        let text =
            format!("node {node} cannot be used now: its helper has ended. Leave it out with `--exclude {node}`");
        return say(&Answer::Refused { code: "node_not_ready".to_owned(), text });
    }
    say(&Answer::Starting { text: "as wanted".to_owned() });
    let is_preflight = step.program.command.iter().any(|word| word == "preflight-rank");
    let used: Vec<&String> = nodes.iter().filter(|name| step.wants(name)).collect();
    let number = asked.lock().unwrap().len();
    let mut children = Vec::new();
    for (rank, name) in used.iter().enumerate() {
        let fate = fate.filter(|(node, _)| is_preflight && node == *name).map(|(_, fate)| *fate);
        let absent = ["sleep".to_owned(), "1000".to_owned()];
        let words = if matches!(fate, Some(Fate::Absent)) { &absent[..] } else { &step.program.command };
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .envs(step.program.environment.iter().cloned())
            .env_remove("EIRENE_TRAIN_STEPS");
        let place = [("RANK", rank), ("SIZE", used.len()), ("LOCAL_RANK", 0), ("LOCAL_SIZE", 1), ("NODE", rank)];
        command.envs(place.map(|(name, value)| (format!("EIRENE_TRAIN_{name}"), value.to_string())));
        let names: Vec<&str> = used.iter().map(|name| name.as_str()).collect();
        command.env("EIRENE_TRAIN_NODES", names.join(",")).env("EIRENE_TRAIN_WORLD", format!("step-{number}"));
        command.env("EIRENE_TRAIN_MEETING", base.join("meeting"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::from(errors.try_clone().unwrap()));
        let mut child = command.spawn().unwrap();
        let (lines, mut to) = (BufReader::new(child.stdout.take().unwrap()), File::from(output.try_clone().unwrap()));
        let pid = Pid::from_raw(child.id().cast_signed());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = to.write_all(format!("{rank}: {line}\n").as_bytes());
                match fate {
                    Some(Fate::Stopped) => drop(kill(pid, Signal::SIGSTOP)),
                    Some(Fate::Killed) => drop(kill(pid, Signal::SIGKILL)),
                    _ => {}
                }
            }
        });
        children.push(child);
    }
    drop(output);
    let status = watch(socket, &mut children, errors.into());
    say(&Answer::Ended { status });
}

/// Stays with the ranks to their end; gives the step's status.
fn watch(socket: &UnixStream, children: &mut [Child], mut errors: File) -> u8 {
    socket.set_nonblocking(true).unwrap();
    let (mut receiver, mut status, mut end) = (Receiver::default(), 0, None);
    loop {
        let mut left = 0;
        for (rank, child) in children.iter_mut().enumerate() {
            match child.try_wait().unwrap() {
                None => left += 1,
                Some(ended) if !ended.success() && status == 0 => {
                    status = ended.code().map_or(137, |code| u8::try_from(code).unwrap());
                    let _ = writeln!(errors, "eirene-agent: rank {rank} on c{} was killed by signal SIGKILL", rank + 1);
                    // By then the others have said what they saw, and ended.
                    end = Some(Instant::now() + Duration::from_secs(10));
                }
                Some(_) => {}
            }
        }
        if left == 0 {
            return status;
        }
        let is_told = match receiver.receive(socket) {
            Ok(true) => matches!(parse::<Word>(&mut receiver.bytes), Ok(Some(Word::End {}))),
            Ok(false) => true,
            Err(_) => false,
        };
        if is_told || end.is_some_and(|end| Instant::now() >= end) {
            status = if status == 0 { 137 } else { status };
            for child in children.iter_mut() {
                let _ = child.kill();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nodes_that_are_well_are_tried_once_and_said_in_a_line() {
    let agent = Agent::start(&["c1", "c2"], None);
    let ended = agent.run("c[1-2]", ["-n", "2", "echo", "hello"]).end();
    assert_eq!((ended.code, ended.stdout().matches("hello").count()), (0, 2), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches(TRIED).count(), 1, "{}", ended.stderr);
    // What is known need not be tried again, nor what nobody wants tried, nor a node alone.
    for words in
        [&["-n", "2", "true"][..], &["--exclude", "c2", "-n", "1", "true"], &["--no-preflight", "-n", "2", "true"]]
    {
        let ended = agent.run("c[1-2]", words.iter().copied()).end();
        assert!(ended.code == 0 && !ended.stderr.contains(TRIED), "{}", ended.stderr);
    }
    let tried = "preflight-rank on c1,c2 without ";
    assert_eq!(
        agent.started(),
        [tried, "echo on  without ", "true on  without ", "true on  without c2", "true on  without "]
    );
    // A step that a signal has ended may have met a node that is not well any more.
    assert_eq!(agent.run("c[1-2]", ["-n", "2", "sh", "-c", "kill -9 $$"]).end().code, 137);
    let ended = agent.run("c[1-2]", ["-n", "2", "true"]).end();
    assert!(ended.stderr.contains(TRIED), "{}", ended.stderr);
    let ended = agent.run("c[1-2]", ["--preflight", "always", "-n", "2", "true"]).end();
    assert!(ended.stderr.contains(TRIED), "{}", ended.stderr);
    // What the agent will not start is not tried; a variable can ask for it each time.
    let always = ["--preflight", "always", "-n", "3", "true"];
    let ended = agent.run("c[1-2]", always).env("SLURM_JOB_CPUS_PER_NODE", "1(x2)").end();
    assert!(!ended.stderr.contains(TRIED), "{}", ended.stderr);
    let ended = agent.run("c[1-2]", ["-n", "2", "true"]).env("EIRENE_TRAIN_PREFLIGHT", "always").end();
    assert!(ended.stderr.contains(TRIED), "{}", ended.stderr);
}

#[test]
fn a_node_whose_rank_stops_is_named_and_nothing_is_started() {
    let agent = Agent::start(&["c1", "c2"], Some(("c2", Fate::Stopped)));
    let began = Instant::now();
    let ended = agent.run("c[1-2]", ["-n", "2", "echo", "hello"]).end();
    assert_eq!((ended.code, ended.stdout().as_str()), (2, ""), "{}", ended.stderr);
    let line = ended.stderr.lines().last().unwrap();
    assert!(line.starts_with("eirene-train: preflight: node c2 is sick: it stopped answering while "), "{line}");
    assert!(line.contains("Nothing was started") && line.contains("`--exclude c2`"), "{line}");
    assert_eq!(agent.started().len(), 1);
    assert_within(Duration::from_secs(40), began.elapsed());
}

#[test]
fn a_node_where_nothing_begins_is_left_out_where_that_is_wanted() {
    let agent = Agent::start(&["c1", "c2", "c3"], Some(("c2", Fate::Absent)));
    let ended = agent.run("c[1-3]", ["--preflight", "exclude", "-n", "3", "echo", "hello"]).end();
    assert_eq!((ended.code, ended.stdout().matches("hello").count()), (0, 2), "{}", ended.stderr);
    assert!(ended.stderr.contains("node c2 is sick: nothing began there"), "{}", ended.stderr);
    assert!(ended.stderr.contains("; left out: c2\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains(TRIED), "{}", ended.stderr);
    let started = ["preflight-rank on c1,c2,c3 without ", "preflight-rank on c1,c3 without ", "echo on  without c2"];
    assert_eq!(agent.started(), started);
}

#[test]
fn a_node_that_is_lost_is_left_out_where_that_is_wanted() {
    let agent = Agent::start(&["c1", "c2", "c3"], Some(("c2", Fate::Lost)));
    let refused = agent.run("c[1-3]", ["-n", "3", "echo", "hello"]).end();
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.starts_with("eirene-train: node c2 cannot be used now: "), "{}", refused.stderr);
    let ended = agent.run("c[1-3]", ["--preflight", "exclude", "-n", "3", "echo", "hello"]).end();
    assert_eq!((ended.code, ended.stdout().matches("hello").count()), (0, 2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("preflight: node c2 cannot be used now: its helper has ended; left out: c2\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_rank_that_is_killed_is_told_from_those_that_are_ended_with_it() {
    let agent = Agent::start(&["c1", "c2", "c3"], Some(("c2", Fate::Killed)));
    let ended = agent.run("c[1-3]", ["-n", "3", "echo", "hello"]).end();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("node c2 is sick: its process was ended while "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("node c1") && !ended.stderr.contains("node c3"), "{}", ended.stderr);
}

#[test]
fn ranks_that_say_nothing_are_no_reason_to_start_nothing() {
    // A program that is not this one: what begins in its place has no word to say.
    let agent = Agent::start(&["c1", "c2"], None);
    let base = agent.directory.path();
    let copy = base.join("eirene-train");
    std::fs::copy(PROGRAM, &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["run", "-n", "2", "echo", "hello"]).env("EIRENE_TRAIN_STEPS", base.join("steps.sock"));
    command.env("SLURM_JOB_NODELIST", "c[1-2]").env("EIRENE_TRAIN_STARTER", "pmix").stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("preflight: no rank has said anything ("), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("hello").count(), 2);
}

#[test]
fn it_can_be_asked_for_by_hand_with_a_table_or_json() {
    let agent = Agent::start(&["c1", "c2"], None);
    let ask = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("preflight").args(words).env("EIRENE_TRAIN_STEPS", agent.directory.path().join("steps.sock"));
        command.env("SLURM_JOB_NODELIST", "c[1-2]").stdin(Stdio::null()).output().unwrap()
    };
    let output = ask(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let first: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(first[..5], ["node", "c1", "c2", "link", "c1-c2"], "{text}");
    assert!(text.lines().last().unwrap().starts_with("preflight: 2 nodes, 1 link"), "{text}");
    let output = ask(&["--json", "--nodes", "c1,c2"]);
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &verdict["links"][0]["nodes"]), (Some(0), &serde_json::json!(["c1", "c2"])));
    assert!(verdict["nodes"][1]["free_bytes"].as_u64().unwrap() > 0 && verdict["exclude"] == serde_json::json!([]));
}

#[test]
fn without_a_session_hosts_are_named() {
    let mut command = Command::new(PROGRAM);
    let output = command.arg("preflight").env_remove("SLURM_JOB_NODELIST").stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(stderr.contains("`--nodes all` are those of SLURM's job, but this is in none"), "{stderr}");
}
