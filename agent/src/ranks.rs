//! A rank, as SLURM starts it: a task that enters the session's container on its node and runs the program there.
//!
//! The task stays outside as its parent, so that SLURM sees one process tree, and tells how it ended. Signals for the rank alone come through
//! it: what SLURM sends goes to every process of a step, and would end a data loader's workers with a warning that is the program's to take.
//!
//! Between the two, in the container, stands the same program once more: what the rank leaves behind becomes its child, for nobody outside of
//! the container's processes can adopt it, and is ended with the rank.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use eirene_steps::Program;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::RUNTIME;
use crate::container::{GUARD, Place, Spec, in_container};
use crate::ends::{Asked, Teller, how, now};
use crate::guard;
use crate::job::{Environment, JobError, read_exactly};
use crate::launchers::NODE_RANK;
use crate::log::Log;
use crate::processes::{self, Process};
use crate::runtime_directory::{RANKS, inside as seen_inside};

/// Exit status when the program could not be started, as shells say it.
const EXIT_NOT_FOUND: u8 = 127;
/// Exit status when the node was not ready.
const EXIT_NOT_READY: u8 = 126;
/// What a rank's task ends with that SLURM ends because of another one, whose own status then is the larger: the step's.
const EXIT_WITH_OTHERS: u8 = 1;
/// How long a rank's end may take from its beginning, microseconds. A program that has closed what it never opened, and lives, has not begun to end.
pub(crate) const BEGINNING: i64 = 1_000_000;
/// How far two deliveries of a signal to a whole step lie apart.
const SAME: Duration = Duration::from_millis(200);
/// By this the training runtime knows that a session's agent has started a rank, and that torch's variables are there for others.
const STEP_VARIABLE: &str = "EIRENE_TRAIN_STEP";
/// What a rank of the training runtime ends with when another one is to blame.
pub(crate) const BECAUSE_OF_ANOTHER: u8 = 113;
/// Longest file of a step, bytes: a request and a little more.
const MOST_BYTES: u64 = 2 << 20;
/// What tells a rank's task to hand SIGTERM to its program: SIGTERM itself comes from SLURM, to all processes alike.
pub(crate) const TERMINATE: Signal = Signal::SIGQUIT;
/// How long a task that has failed stays, so that the other ranks can say what they saw before SLURM ends them.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What all ranks of a step are told, in a private file that all nodes see.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Its number in this session.
    pub(crate) number: u32,
    /// The runtime directory of each node.
    pub(crate) directories: BTreeMap<String, PathBuf>,
    /// The container, where ranks need one of their own.
    pub(crate) container: Spec,
    /// What is run.
    pub(crate) program: Program,
    /// Threads for libraries that would take a whole node each, where nobody has said otherwise.
    pub(crate) threads: Option<u32>,
    /// A directory for one file a rank.
    pub(crate) output: Option<String>,
    /// Whether others are told and ended when this rank fails.
    pub(crate) together: bool,
    /// Where ranks that know torch's own variables meet: rank 0's node, and a port that was free there.
    pub(crate) master: Option<(String, u16)>,
}

/// Why a rank was not started.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error("the session's container is not ready on this node")]
    NotReady(#[source] io::Error),
    #[error("`{0}` is no directory on this node")]
    Directory(String, #[source] io::Error),
    #[error("its output cannot be written to `{0}`")]
    Output(String, #[source] io::Error),
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// Runs one rank of the step of this file; gives its exit status. To be called while the process has one thread.
pub fn rank(file: &Path, digest: &str, log: &Log) -> u8 {
    let environment = Environment::from_pairs(std::env::vars_os());
    let own = environment.get("SLURM_PROCID").unwrap_or("0").to_owned();
    let uid = nix::unistd::geteuid().as_raw();
    let text = read_exactly(file, uid, MOST_BYTES, digest);
    let step: Step = match text.and_then(|text| serde_json::from_str(&text).map_err(JobError::Damaged)) {
        Ok(step) => step,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            let node = environment.get("SLURMD_NODENAME").unwrap_or("?");
            log.say(&format!(
                "rank {own} on {node}: what it is to do cannot be read from the home directory: {error}{source}"
            ));
            return EXIT_NOT_READY;
        }
    };
    let outcome = begin(&step, &environment, &own);
    let (command, registered, teller) = match outcome {
        Ok(begun) => begun,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            log.say(&format!("rank {own}: {error}{source}"));
            return EXIT_NOT_READY;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| runtime.block_on(watch(command, Child::Task, &teller)));
    drop(registered);
    let (status, asked, told) = match ended {
        Ok(End { status, asked, told }) => (status, asked, told),
        Err(error) => {
            log.say(&format!("rank {own} could not be started: {error}"));
            return EXIT_NOT_READY;
        }
    };
    if status != 0 && step.together && !asked {
        // The agent says it of the rank that failed first. Where it cannot be told, nobody else does.
        if status != BECAUSE_OF_ANOTHER && !told {
            log.say(&format!("rank {own} on {} {}", environment.get("SLURMD_NODENAME").unwrap_or("?"), how(status)));
        }
        std::thread::sleep(LAST_WORDS);
    }
    if status != 0 && asked { EXIT_WITH_OTHERS } else { status }
}

/// Runs a rank's program in the container, ends what it leaves behind, and itself ends with its own parent; gives the program's exit status.
pub async fn inside(command: &[OsString], log: &Log) -> u8 {
    let Some((program, arguments)) = command.split_first() else { return EXIT_NOT_FOUND };
    let alone = processes::adopt_orphans().and_then(|()| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGHUP)?));
    let mut command = Command::new(program);
    command.args(arguments);
    let ended = match alone {
        Ok(()) => {
            let number = |name: &str| std::env::var(name).ok()?.parse().ok();
            let own = number(STEP_VARIABLE).zip(number("SLURM_PROCID"));
            let (step, rank) = own.unwrap_or_default();
            watch(command, Child::Program, &Teller::new(Path::new(RUNTIME), step, rank)).await
        }
        Err(error) => Err(error),
    };
    processes::sweep().await;
    ended.map_or_else(
        |error| {
            let rank = std::env::var("SLURM_PROCID").unwrap_or_default();
            log.say(&format!("rank {rank}: `{}` cannot be started: {error}", program.to_string_lossy()));
            EXIT_NOT_FOUND
        },
        |end| end.status,
    )
}

/// How a rank ended.
struct End {
    status: u8,
    /// SLURM had asked the step to end before.
    asked: bool,
    /// The agent knows, as far as there was something to tell.
    told: bool,
}

/// Everything up to the start: where, as what, with which environment.
fn begin(step: &Step, environment: &Environment, own: &str) -> Result<(Command, Registered, Teller), NotStarted> {
    let node = environment.get("SLURMD_NODENAME").unwrap_or_default();
    let not_ready = || NotStarted::NotReady(io::ErrorKind::NotFound.into());
    let directory = step.directories.get(node).ok_or_else(not_ready)?;
    let place = Place::read(directory).map_err(NotStarted::NotReady)?;
    let registered = Registered::new(directory, step.number, own).map_err(NotStarted::NotReady)?;
    // From in the container the path is another one.
    let teller = Teller::new(&seen_inside(directory), step.number, own.parse().unwrap_or_default());
    let variables = variables(step, environment);
    let inside: Vec<String> =
        [GUARD, "inside", "--"].map(ToOwned::to_owned).into_iter().chain(step.program.command.clone()).collect();
    let mut command = if place.open {
        place.enter().map_err(NotStarted::NotReady)?;
        let wanted = &step.program.directory;
        std::env::set_current_dir(wanted).map_err(|error| NotStarted::Directory(wanted.clone(), error))?;
        let mut command = Command::new(GUARD);
        command.args(&inside[1..]).env_clear().envs(variables);
        command
    } else {
        let (engine, arguments) = step
            .container
            .alone(environment, directory, &step.program.directory, inside)
            .map_err(|error| NotStarted::Other(error.into()))?;
        let mut command = Command::new(engine);
        command.args(arguments).env_clear().envs(environment.of_programs()).envs(in_container(variables));
        command
    };
    if let Some(output) = &step.output {
        let width = environment.get("SLURM_NTASKS").map_or(1, str::len);
        let path = Path::new(output).join(format!("rank-{own:0>width$}.log"));
        let failed = |error| NotStarted::Output(path.display().to_string(), error);
        std::fs::create_dir_all(output).map_err(failed)?;
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
        command.stdout(file.try_clone().map_err(failed)?).stderr(Stdio::from(file));
    }
    Ok((command, registered, teller))
}

/// What the asker has, and over it what SLURM has set for this rank.
fn variables(step: &Step, environment: &Environment) -> Vec<(String, String)> {
    let of_step = |name: &str| {
        name.starts_with("SLURM_")
            || name.starts_with("PMI")
            || name == "SLURMD_NODENAME"
            || name.ends_with("_VISIBLE_DEVICES")
            || name == "GPU_DEVICE_ORDINAL"
            // The asker's node is not the rank's.
            || name == NODE_RANK
            // The socket is the app's: a rank's own ranks would wait for the step that it is of.
            || name == eirene_steps::SOCKET_VARIABLE
    };
    let asked: BTreeMap<String, String> = step.program.environment.iter().cloned().collect();
    // A job's variables are about the app's step; half of them beside this step's would name a step that there is not.
    let mut all: BTreeMap<String, String> = asked.into_iter().filter(|(name, _)| !of_step(name)).collect();
    all.extend(environment.select(of_step));
    if environment.get("PMIX_NAMESPACE").is_some() {
        // PMIx's files lie in a directory of the node that the container has not; its connection has all that is in them.
        all.insert("PMIX_MCA_gds".to_owned(), "hash".to_owned());
    }
    all.insert(STEP_VARIABLE.to_owned(), step.number.to_string());
    if let Some(threads) = step.threads {
        all.insert("OMP_NUM_THREADS".to_owned(), threads.to_string());
    }
    if let Some((node, port)) = &step.master {
        all.insert("MASTER_ADDR".to_owned(), node.clone());
        all.insert("MASTER_PORT".to_owned(), port.to_string());
        let here = environment.get("SLURM_NODEID").and_then(|node| node.parse().ok());
        let local = here.zip(environment.get("SLURM_STEP_TASKS_PER_NODE")).and_then(|(here, text)| on_node(text, here));
        let of_slurm = [("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID")];
        for (name, slurm) in of_slurm {
            all.extend(environment.get(slurm).map(|value| (name.to_owned(), value.to_owned())));
        }
        all.extend(local.map(|count| ("LOCAL_WORLD_SIZE".to_owned(), count.to_string())));
    }
    if let Some(node) = environment.get("SLURMD_NODENAME") {
        all.insert("HOSTNAME".to_owned(), node.to_owned());
    }
    all.into_iter().filter(|(_, value)| !value.contains('\0')).collect()
}

/// The tasks of one node in `2(x3),1`.
fn on_node(text: &str, node: usize) -> Option<u32> {
    eirene_hostlist::counts(text).ok()?.get(node).copied()
}

/// Who is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Child {
    /// The rank's program.
    Program,
    /// The task that stands before it, in the container, and takes every signal.
    Task,
}

/// Waits for a child, and passes on what is meant for it alone.
async fn watch(command: Command, kind: Child, teller: &Teller) -> io::Result<End> {
    let kinds = [SignalKind::interrupt(), SignalKind::user_defined1(), SignalKind::user_defined2()];
    let [mut interrupt, mut user1, mut user2] = [signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?];
    let mut end = signal(SignalKind::quit())?;
    // The first is SLURM's, which sends it to the program as well; the second says that the parent is gone.
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut asked = false;
    let (life, held) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    // The program inherits it.
    fcntl(&held, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut child = tokio::process::Command::from(command).spawn()?;
    drop(held);
    if kind == Child::Program {
        // Where the system does not let it, the order of ends is less sure on a busy node.
        let _ = processes::wake_early();
    }
    let mut life = tokio::net::unix::pipe::Receiver::from_owned_fd(life)?;
    let mut let_go = None;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(nix::unistd::Pid::from_raw);
    let tell = |signal| {
        // What warns would be the end of a program that has nothing to say to it. It may have ended in between.
        let is_asked = matches!(signal, Signal::SIGINT | Signal::SIGTERM);
        let is_taken = |pid| is_asked || kind == Child::Task || processes::handles(pid, signal);
        if let Some(pid) = pid.filter(|pid| is_taken(*pid)) {
            let _ = nix::sys::signal::kill(pid, signal);
        }
    };
    loop {
        tokio::select! {
            ended = child.wait() => {
                let status = guard::code(ended?);
                // The same signal has come, or comes, to this process.
                let by_signal = status == 128 + Signal::SIGTERM as u8;
                let mut told = true;
                let seen = now();
                let at = let_go.filter(|let_go| seen - let_go < BEGINNING).unwrap_or(seen);
                let status_said = Some(status);
                if status == 0 {
                    // It is not to be waited for.
                    told = let_go.is_none() || teller.tell(status_said, Asked::No, at);
                } else if !asked {
                    told = teller.tell(status_said, if by_signal { Asked::Perhaps } else { Asked::No }, at);
                }
                if by_signal && !asked {
                    asked = tokio::time::timeout(SAME, terminate.recv()).await.is_ok();
                    told = teller.tell(status_said, if asked { Asked::Yes } else { Asked::No }, at);
                }
                return Ok(End { status, asked, told });
            }
            // Nobody writes to it: it is at its end. What ranks start and leave behind holds it, too; then it says nothing.
            _ = life.read_u8(), if let_go.is_none() && kind == Child::Program => {
                let at = now();
                let_go = Some(at);
                if !asked {
                    teller.tell(None, Asked::Perhaps, at);
                }
            }
            _ = interrupt.recv() => tell(Signal::SIGINT),
            _ = user1.recv() => tell(Signal::SIGUSR1),
            _ = user2.recv() => tell(Signal::SIGUSR2),
            _ = end.recv() => {
                asked = true;
                tell(if kind == Child::Task { TERMINATE } else { Signal::SIGTERM });
            }
            _ = terminate.recv() => asked = true,
            _ = hang_up.recv() => return Ok(End { status: EXIT_WITH_OTHERS, asked: true, told: true }),
        }
    }
}

/// Word of a rank in its node's runtime directory, so that it can be sent signals. Taken back when dropped.
struct Registered {
    directory: std::os::fd::OwnedFd,
    name: String,
}

impl Registered {
    fn new(directory: &Path, step: u32, rank: &str) -> io::Result<Self> {
        let directory = directory.join(RANKS);
        let name = format!("{step}.{rank}");
        std::fs::write(directory.join(&name), serde_json::to_vec(&Process::own()?)?)?;
        Ok(Self { directory: std::fs::File::open(directory)?.into(), name })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // By descriptor: in the container the path is another one. What stays is known to be over by the process's beginning.
        let _ = nix::unistd::unlinkat(&self.directory, self.name.as_str(), nix::unistd::UnlinkatFlags::NoRemoveDir);
    }
}

/// Sends a signal to all ranks of a step on this node.
pub(crate) fn signal_all(directory: &Path, step: u32, signal: Signal) {
    let prefix = format!("{step}.");
    let Ok(entries) = std::fs::read_dir(directory.join(RANKS)) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        // Ranks write small files; whatever else there is must not hold up who asks.
        let text =
            entry.file_type().is_ok_and(|kind| kind.is_file()).then(|| std::fs::read(entry.path()).ok()).flatten();
        let process = text.and_then(|text| serde_json::from_slice::<Process>(&text).ok());
        if let Some(process) = process {
            process.signal(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::environment;

    fn step(pairs: &[(&str, &str)]) -> Step {
        let environment = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let app = crate::job::tests::file(0).app;
        Step {
            number: 1,
            directories: BTreeMap::new(),
            container: Spec::new(&app, "/home/ada", None),
            program: Program { command: vec!["true".into()], directory: "/".into(), environment },
            threads: Some(2),
            output: None,
            together: false,
            master: Some(("c1".into(), 4711)),
        }
    }

    #[test]
    fn a_rank_has_the_asker_s_variables_and_its_own_step_s() {
        let step = step(&[
            ("WANDB_MODE", "offline"),
            ("SLURM_STEP_ID", "batch"),
            ("PMI_RANK", "9"),
            ("OMP_NUM_THREADS", "64"),
        ]);
        let given = environment(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
            ("PMIX_NAMESPACE", "slurm.pmix.7.1"),
            ("LD_PRELOAD", "x"),
        ]);
        let all: BTreeMap<_, _> = variables(&step, &given).into_iter().collect();
        let get = |name: &str| all.get(name).map(String::as_str);
        assert_eq!((get("WANDB_MODE"), get("SLURM_PROCID"), get("HOSTNAME")), (Some("offline"), Some("3"), Some("c1")));
        assert_eq!((get("SLURM_STEP_ID"), get("PMI_RANK"), get("LD_PRELOAD")), (None, None, None));
        assert_eq!((get("RANK"), get("LOCAL_WORLD_SIZE")), (Some("3"), Some("1")));
        assert_eq!((get("MASTER_ADDR"), get("MASTER_PORT")), (Some("c1"), Some("4711")));
        assert_eq!((get("PMIX_MCA_gds"), get("OMP_NUM_THREADS")), (Some("hash"), Some("2")));
    }

    #[test]
    fn a_rank_knows_how_often_its_job_was_started_again() {
        let restarts = |asked: &[(&str, &str)], given: &[(&str, &str)]| {
            let all: BTreeMap<_, _> = variables(&step(asked), &environment(given)).into_iter().collect();
            all.get("SLURM_RESTART_COUNT").cloned()
        };
        let (once, twice) = ([("SLURM_RESTART_COUNT", "1")], [("SLURM_RESTART_COUNT", "2")]);
        assert_eq!(restarts(&once, &once).as_deref(), Some("1"));
        // Its own step is asked, whatever a program says.
        assert_eq!(restarts(&twice, &once).as_deref(), Some("1"));
        assert_eq!(restarts(&once, &[]), None);
    }

    #[test]
    fn a_warning_is_for_programs_that_take_it() {
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(sleeper.id()).unwrap());
        assert!(!processes::handles(pid, Signal::SIGUSR1));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(!processes::handles(pid, Signal::SIGUSR1), "it is gone");
        let mut shell = Command::new("sh")
            .args(["-c", "trap 'exit 3' USR1; echo up; while :; do sleep 0.01; done"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut up).unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(shell.id()).unwrap());
        assert!(processes::handles(pid, Signal::SIGUSR1) && !processes::handles(pid, Signal::SIGUSR2));
        nix::sys::signal::kill(pid, Signal::SIGUSR1).unwrap();
        assert_eq!(shell.wait().unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn a_rank_that_lets_go_of_what_it_has_is_told_of_before_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        crate::ends::listen(directory.path(), move |end| assert!(sender.send(end).is_ok())).unwrap();
        let teller = Teller::new(directory.path(), 7, 3);
        let shell = |script: &str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", script]);
            shell
        };
        // It closes all it has as the kernel does, and ends when that was heard.
        let go = directory.path().join("go");
        let lets_go = "for fd in /proc/self/fd/*; do fd=${fd##*/}; [ $fd -le 2 ] || eval \"exec $fd>&-\"; done";
        let waits = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
        for status in [5, 0] {
            let hear = async {
                let first = heard.recv().await.unwrap();
                std::fs::write(&go, "").unwrap();
                (first, heard.recv().await.unwrap())
            };
            let program = shell(&format!("{lets_go}; {waits}; exit {status}"));
            let (ended, (first, then)) = tokio::join!(watch(program, Child::Program, &teller), hear);
            std::fs::remove_file(&go).unwrap();
            assert_eq!(ended.unwrap().status, status);
            assert_eq!((first.status, then.status), (None, Some(status)));
            // On a busy machine the end can come too late to have begun then.
            assert!(then.at == first.at || then.at - first.at >= BEGINNING, "{first:?} {then:?}");
        }
        // Whoever stands before the container is not asked.
        assert_eq!(watch(shell("exit 5"), Child::Task, &teller).await.unwrap().status, 5);
        assert_eq!(heard.recv().await.unwrap().status, Some(5));
    }

    #[tokio::test]
    async fn a_signal_reaches_the_ranks_of_its_step_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(RANKS)).unwrap();
        let registered = Registered::new(directory.path(), 12, "0").unwrap();
        let mut heard = signal(SignalKind::user_defined2()).unwrap();
        let mut later = signal(SignalKind::user_defined1()).unwrap();
        signal_all(directory.path(), 1, Signal::SIGUSR2);
        signal_all(directory.path(), 12, Signal::SIGUSR1);
        later.recv().await.unwrap();
        assert!(tokio::time::timeout(Duration::ZERO, heard.recv()).await.is_err());
        signal_all(directory.path(), 12, Signal::SIGUSR2);
        heard.recv().await.unwrap();
        drop(registered);
        assert_eq!(std::fs::read_dir(directory.path().join(RANKS)).unwrap().count(), 0);
    }
}
