//! `eirene-train preflight`, and the same before a step of several nodes: one rank on each node tries it and its links, and what is sick is named
//! before a program's ranks start.
//!
//! What is tried and how it is judged is `eirene-train-doctor`'s; here is who starts it, what is said, and when it is left out.

mod remember;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use eirene_train_doctor::preflight::{self, State, Verdict, Words};
use eirene_train_launch::{Ending, Hosts, Options, SessionOptions, session_nodes, variables};

use crate::context::Context;
use crate::error::Error;
use remember::Memory;

/// The hidden verb of its ranks.
pub(crate) const RANK: &str = "preflight-rank";

/// What the command exits with where something is sick.
const SICK: u8 = 1;
/// Most that is kept of what ranks write.
const MOST_BYTES: usize = 4 << 20;
/// How long ranks may take to end when their time is over.
const GRACE: Duration = Duration::from_secs(2);
/// How often nodes are left out and the others tried again.
const TRIES: usize = 3;

/// Try nodes and the links between them: memory, processor, bandwidth, latency, an allreduce.
///
/// Starts one rank on each node for about a second, and says for each node and link whether it is ok, slow or sick. In a session of Eirene's all
/// its nodes are tried unless told otherwise, in a job of SLURM's too; elsewhere name them.
///
/// Exits with 0 where nothing is sick, with 1 where something is, with 2 where it cannot be tried.
#[derive(Debug, Clone, Args)]
pub(crate) struct Preflight {
    /// These nodes: a list like `c[1-4],d7`, or `all` of SLURM's job
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    nodes: Option<String>,
    /// The hosts of this file, one a line
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// In a session: leave these nodes out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    exclude: Vec<String>,
    /// How others reach the first host, if not by its name in the list
    #[arg(long, value_name = "HOST")]
    address: Option<String>,
    /// Write JSON: the fields only ever grow
    #[arg(long)]
    json: bool,
}

/// What is done before a step of several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum How {
    /// Try nodes that were not tried in the last quarter of an hour; start nothing where one is sick
    Once,
    /// Try them each time
    Always,
    /// Leave out what is sick, and start on the others where the ranks fit there
    Exclude,
}

/// How the ranks that follow are to be started.
pub(crate) enum Gate {
    /// Without these nodes.
    Open(Vec<String>),
    /// Not at all: somebody has ended the preflight.
    Shut(Ending),
}

/// What came of one.
enum Outcome {
    Judged(Verdict, Duration),
    /// Nothing is known, for no rank has said a word; the last words of whoever was to start them.
    Untold(String),
    Interrupted(Ending),
}

/// `eirene-train preflight`, to stdout. Gives the exit code.
///
/// # Errors
/// As [`eirene_train_launch::run`]; when stdout takes nothing.
pub(crate) fn preflight(arguments: Preflight, context: &Context) -> Result<u8, Error> {
    let socket = context.environment.get(variables::STEPS).map(PathBuf::from);
    let hosts = match (arguments.nodes, arguments.hostfile) {
        (Some(list), _) => Hosts::List(list),
        (None, Some(file)) => Hosts::File(file),
        (None, None) => Hosts::List("all".to_owned()),
    };
    if socket.is_none() && !arguments.exclude.is_empty() {
        let text = "`--exclude` is for sessions: name the hosts that are wanted";
        return Err(eirene_train_launch::Error::Usage(text.to_owned()).into());
    }
    let outcome = fly(hosts, arguments.exclude, arguments.address, socket.as_deref(), &[], context)?;
    let (verdict, took) = match outcome {
        Outcome::Judged(verdict, took) => (verdict, took),
        Outcome::Interrupted(ending) => return Ok(ending.exit_code()),
        Outcome::Untold(why) => {
            return Err(eirene_train_launch::Error::Usage(format!("no rank has said anything: {why}")).into());
        }
    };
    let mut to = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut to, &verdict).map_err(io::Error::from)?;
        writeln!(to)?;
    } else {
        write!(to, "{}", verdict.table())?;
        verdict.warnings().iter().try_for_each(|warning| writeln!(to, "{warning}"))?;
        match verdict.state {
            State::Sick => writeln!(to, "preflight: {}", verdict.illness())?,
            _ => writeln!(to, "{}", verdict.summary(took))?,
        }
    }
    to.flush()?;
    Ok(if verdict.state == State::Sick { SICK } else { 0 })
}

/// What one rank of it does. Gives the exit code.
///
/// # Errors
/// When nobody takes what there is to say.
#[expect(unsafe_code, reason = "ignores a signal")]
pub(crate) fn rank(context: &Context) -> io::Result<u8> {
    // A launcher asks all others to end when one has died; what they saw of that is still to be said, and takes less than its patience.
    // SAFETY: no handler is run.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    preflight::rank(&context.environment, &mut io::stdout().lock())?;
    Ok(0)
}

/// Tries the nodes that a step in the session of this socket would use, where there are several, and says on stderr what came of it.
///
/// # Errors
/// [`Error::Sick`]; as [`eirene_train_launch::in_session`].
pub(crate) fn before(
    options: &Options,
    session: &SessionOptions,
    how: How,
    socket: &Path,
    context: &Context,
) -> Result<Gate, Error> {
    let mut exclude = session.exclude.clone();
    let memory = Memory::beside(socket);
    for _ in 0..TRIES {
        let nodes = session_nodes(options, &exclude, session.oversubscribe)?;
        if nodes.len() < 2 {
            break;
        }
        if how != How::Always
            && let Some(warnings) = memory.of(&nodes)
        {
            say_all(&warnings);
            break;
        }
        let outcome = fly(Hosts::List(nodes.join(",")), Vec::new(), None, Some(socket), &nodes, context);
        if let (How::Exclude, Err(error)) = (how, &outcome)
            && let Some(node) = lost(error, &nodes)
        {
            let why = error.to_string();
            let why = why.split(". ").next().unwrap_or_default();
            say(&format!("preflight: {why}; left out: {node}"));
            exclude.push(node);
            continue;
        }
        let (verdict, took) = match outcome? {
            Outcome::Judged(verdict, took) => (verdict, took),
            Outcome::Interrupted(ending) => return Ok(Gate::Shut(ending)),
            Outcome::Untold(why) => {
                say(&format!("preflight: no rank has said anything ({why}); the program is started all the same"));
                break;
            }
        };
        let warnings = verdict.warnings();
        say_all(&warnings);
        if verdict.state < State::Sick {
            say(&verdict.summary(took));
            memory.keep(&nodes, &warnings);
            break;
        }
        memory.forget();
        if how != How::Exclude || verdict.exclude.is_empty() {
            return Err(Error::Sick(verdict.refusal()));
        }
        say(&format!("preflight: {}; left out: {}", verdict.illness(), verdict.exclude.join(", ")));
        exclude.extend(verdict.exclude);
    }
    Ok(Gate::Open(exclude))
}

/// The node for which the agent has refused a step.
fn lost(error: &Error, nodes: &[String]) -> Option<String> {
    let Error::Launch(eirene_train_launch::Error::Refused { code, text }) = error else { return None };
    let node = text.strip_prefix("node ")?.split(' ').next()?;
    (code == "node_not_ready" && nodes.iter().any(|name| name == node)).then(|| node.to_owned())
}

/// Forgets that the nodes were well, where a step has ended as it does when one is not.
pub(crate) fn after(socket: &Path, outcome: &Result<Ending, eirene_train_launch::Error>) {
    // What programs end with by themselves is less; signals, and what follows from another rank's end, are more.
    const FIRST_STRANGE: u8 = eirene_train_launch::BECAUSE_OF_ANOTHER;
    let is_strange = match outcome {
        Ok(Ending::Failed(code)) => *code >= FIRST_STRANGE,
        Ok(Ending::Well | Ending::Interrupted(_)) => false,
        Err(_) => true,
    };
    if is_strange {
        Memory::beside(socket).forget();
    }
}

fn say(text: &str) {
    // Who does not read stderr does not want to know.
    let _ = writeln!(io::stderr(), "eirene-train: {text}");
}

fn say_all(texts: &[String]) {
    for text in texts {
        say(text);
    }
}

/// Starts the ranks, and waits for what they say.
fn fly(
    hosts: Hosts,
    exclude: Vec<String>,
    address: Option<String>,
    socket: Option<&Path>,
    names: &[String],
    context: &Context,
) -> Result<Outcome, Error> {
    let program = context.program.iter().cloned().chain([RANK.into()]).collect();
    let options = Options {
        hosts,
        address,
        ranks_per_node: Some(1),
        grace: GRACE,
        limit: Some(preflight::LIMIT),
        // The runtime's own way works wherever MPI's does, starts sooner, and says who is missing.
        environment: vec![(variables::TRANSPORT.into(), "builtin".into())],
        ..Options::new(program, context.node_command(), context.environment.clone())
    };
    let (out, errors) = (Kept::default(), Kept::default());
    let (stdout, stderr) = (Box::new(out.clone()), Box::new(errors.clone()));
    let began = Instant::now();
    let ending = match socket {
        Some(socket) => {
            let session = SessionOptions { exclude, oversubscribe: true, mpi: None };
            eirene_train_launch::in_session(&options, socket, session, stdout, stderr)?
        }
        None => eirene_train_launch::run(&options, stdout, stderr)?,
    };
    let took = began.elapsed();
    match ending {
        // That is the limit's.
        Ending::Interrupted(libc::SIGALRM) | Ending::Well | Ending::Failed(_) => {}
        Ending::Interrupted(_) => return Ok(Outcome::Interrupted(ending)),
    }
    let words = Words::read(&out.take(), &errors.take());
    if words.is_empty() {
        let said = errors.take();
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("they ended without a word");
        return Ok(Outcome::Untold(last.trim().to_owned()));
    }
    Ok(Outcome::Judged(preflight::judge(&words, names), took))
}

/// What ranks write, kept.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
