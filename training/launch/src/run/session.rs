//! A run in a session of a cluster's: who starts the ranks is the session's agent, outside of the container, on all the session's nodes.
//!
//! What people see is what they see elsewhere: labelled lines, Ctrl-C for all ranks, one exit status. Which way the ranks take to find each other
//! is the agent's choice, and said in one line.

use std::collections::BTreeMap;
use std::io::{PipeReader, Read as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use eirene_steps::{Answer, Asker, ImageMpi, Program, Request, StepRequest, StepSignal, WireError, Word};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::event::{Event, Stream};
use super::labelled::{Labelled, Line};
use super::options::{Bind, Hosts, Options};
use super::printer::{Output, Printer};
use super::report::{Look, Report};
use super::signals::Signals;
use super::{Ending, Stop};
use crate::error::Error;

/// How long the last lines may take after the step has ended.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Has the session's agent, which listens at `socket`, run the ranks. `mpi` is the image's, `exclude` names nodes that are left out.
///
/// # Errors
/// As [`super::run`]; what the agent refuses is [`Error::Refused`].
pub fn in_session(
    options: &Options,
    socket: &Path,
    session: SessionOptions,
    stdout: Output,
    stderr: Output,
) -> Result<Ending, Error> {
    let request = request(options, session)?;
    let signals = Signals::listen()?;
    let printer = Printer::start(stdout, stderr, None, 0)?;
    let failed = "cannot make a pipe";
    let (out, out_end) = std::io::pipe().map_err(Error::system(failed))?;
    let (err, err_end) = std::io::pipe().map_err(Error::system(failed))?;
    let input = if options.stdin {
        std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::system("standard input is closed"))?
    } else {
        std::fs::File::open("/dev/null").map_err(Error::system("cannot open /dev/null"))?.into()
    };
    let borrowed = [input.as_fd(), out_end.as_fd(), err_end.as_fd()];
    let asker = Asker::ask(socket, &Request::Step(request), &borrowed).map_err(|error| gone(&error))?;
    // The step alone holds them now: their end is the step's.
    drop((input, out_end, err_end));
    let look = Look { labels: options.labels, color: options.color, files: false };
    let outputs = [Source::new(out, Stream::Stdout), Source::new(err, Stream::Stderr)];
    let report = Report::new(look, Vec::new(), std::iter::empty());
    let labelled = options.labels && options.output.is_none();
    let limit = options.limit.map(|limit| Instant::now() + limit);
    Waiting {
        asker,
        signals,
        printer,
        outputs,
        report,
        labelled,
        failure: None,
        grace: options.grace,
        limit,
        stop: Stop::Not,
    }
    .until_ended()
}

/// The nodes of its session that a run uses, in the session's order; none where that is not known here, or is for the agent to refuse.
///
/// # Errors
/// [`Error::Usage`] for what is no list of nodes, and what is wrong with a host file.
pub fn session_nodes(options: &Options, exclude: &[String], oversubscribe: bool) -> Result<Vec<String>, Error> {
    let all = options.launcher.get("SLURM_JOB_NODELIST").and_then(|list| eirene_hostlist::expand(list).ok());
    let (all, named) = (all.unwrap_or_default(), named(&options.hosts)?);
    if named.iter().chain(exclude).any(|node| !all.contains(node)) {
        return Ok(Vec::new());
    }
    let counts = options.launcher.get("SLURM_JOB_CPUS_PER_NODE").and_then(|text| eirene_hostlist::counts(text).ok());
    // Where SLURM does not say, there is room for all.
    let processors = |index: usize| {
        counts.as_ref().map_or(u32::MAX, |counts| counts.get(index).or(counts.last()).copied().unwrap_or(u32::MAX))
    };
    let wanted = |node: &String| (named.is_empty() || named.contains(node)) && !exclude.contains(node);
    let mut nodes: Vec<(String, u32)> = all
        .into_iter()
        .enumerate()
        .filter(|(_, node)| wanted(node))
        .map(|(index, node)| (node, processors(index)))
        .collect();
    let each = options.ranks_per_node.unwrap_or(1);
    let ranks = match options.ranks {
        Some(ranks) => ranks,
        None => options.ranks_per_node.unwrap_or(0).saturating_mul(u32::try_from(nodes.len()).unwrap_or(u32::MAX)),
    };
    if ranks == 0 || each == 0 {
        return Ok(Vec::new());
    }
    nodes.truncate(usize::try_from(ranks.div_ceil(each)).unwrap_or(usize::MAX));
    let room = nodes.iter().fold(0_u32, |sum, (_, processors)| {
        sum.saturating_add(options.ranks_per_node.map_or(*processors, |each| each.min(*processors)))
    });
    if room < ranks && !oversubscribe {
        return Ok(Vec::new());
    }
    Ok(nodes.into_iter().map(|(node, _)| node).collect())
}

/// The nodes that hosts are in a session; none are all.
fn named(hosts: &Hosts) -> Result<Vec<String>, Error> {
    match hosts {
        Hosts::Here => Ok(Vec::new()),
        Hosts::List(list) if list == "all" => Ok(Vec::new()),
        Hosts::List(list) => eirene_hostlist::expand(list)
            .map_err(|_| Error::Usage(format!("`{list}` is no list of nodes; write `c1,c2` or `c[1-4]`"))),
        Hosts::File(path) => Ok(super::hosts::from_file(path)?.into_iter().map(|slots| slots.host).collect()),
    }
}

/// What only a session has.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The image's MPI.
    pub mpi: Option<ImageMpi>,
    /// Nodes of the session that are left out.
    pub exclude: Vec<String>,
    /// Whether there may be more ranks than processors.
    pub oversubscribe: bool,
}

fn gone(error: &WireError) -> Error {
    let source = std::io::Error::other(error.to_string());
    Error::System { what: "the session's agent cannot be asked to start ranks".to_owned(), source }
}

/// The request that options stand for.
fn request(options: &Options, session: SessionOptions) -> Result<StepRequest, Error> {
    let text = |word: &std::ffi::OsStr| {
        let text = word.to_str().map(ToOwned::to_owned);
        text.ok_or_else(|| Error::Usage(format!("`{}` is no text in UTF-8", word.to_string_lossy())))
    };
    let nodes = named(&options.hosts)?;
    let mut environment: BTreeMap<String, String> =
        options.launcher.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    for (name, value) in &options.environment {
        environment.insert(text(name)?, text(value)?);
    }
    let directory = std::env::current_dir().map_err(Error::system("the working directory is gone"))?;
    // Where the ranks' directory is another one, a path that begins here would be another file.
    let output = options.output.as_ref().map(|output| text(directory.join(output).as_os_str())).transpose()?;
    Ok(StepRequest {
        ranks: options.ranks,
        ranks_per_node: options.ranks_per_node,
        nodes,
        exclude: session.exclude,
        oversubscribe: session.oversubscribe,
        bind: options.bind == Bind::Core,
        labels: options.labels && options.output.is_none(),
        output,
        mpi: session.mpi,
        program: Program {
            command: options.program.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
            directory: text(directory.as_os_str())?,
            environment: environment.into_iter().collect(),
        },
    })
}

/// One of the step's outputs.
struct Source {
    pipe: Option<PipeReader>,
    stream: Stream,
    labelled: Labelled,
}

impl Source {
    fn new(pipe: PipeReader, stream: Stream) -> Self {
        Self { pipe: Some(pipe), stream, labelled: Labelled::default() }
    }

    /// Reads once; nothing at the end.
    fn read(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 64 * 1024];
        let read = self.pipe.as_mut().map_or(0, |pipe| pipe.read(&mut buffer).unwrap_or(0));
        if read == 0 {
            self.pipe = None;
        }
        buffer.truncate(read);
        buffer
    }
}

struct Waiting {
    asker: Asker,
    signals: Signals,
    printer: Printer,
    outputs: [Source; 2],
    report: Report,
    labelled: bool,
    /// The rank that failed first, and how, as the agent has said.
    failure: Option<String>,
    grace: Duration,
    /// When all is ended, however far it is.
    limit: Option<Instant>,
    stop: Stop,
}

impl Waiting {
    fn until_ended(mut self) -> Result<Ending, Error> {
        let (mut ending, mut interrupted, mut over_by) = (None, None, None);
        while ending.is_none() || self.outputs.iter().any(|source| source.pipe.is_some()) {
            if over_by.is_some_and(|by| Instant::now() >= by) {
                break;
            }
            if self.stop == Stop::Not && ending.is_none() && self.limit.is_some_and(|limit| Instant::now() >= limit) {
                interrupted.get_or_insert(Signal::SIGALRM);
                self.end();
                // An agent that cannot end it goes on trying; it is not waited for.
                over_by = Some(Instant::now() + LAST_LINES);
            }
            let ready = self.wait(ending.is_none(), over_by)?;
            for signal in self.signals.take() {
                match signal {
                    Signal::SIGCHLD => {}
                    _ if ending.is_some() => {}
                    Signal::SIGUSR1 => self.tell(Word::Signal { signal: StepSignal::User1 }),
                    Signal::SIGUSR2 => self.tell(Word::Signal { signal: StepSignal::User2 }),
                    _ => {
                        interrupted.get_or_insert(signal);
                        self.interrupt(signal);
                    }
                }
            }
            self.printer.heard();
            if matches!(self.stop, Stop::Asked(by) if Instant::now() >= by) {
                self.end();
            }
            for (at, _) in ready.outputs.iter().enumerate().filter(|(_, ready)| **ready) {
                self.show(at);
            }
            self.show_bars();
            if over_by.is_some() && (self.printer.is_full() || ready.outputs.contains(&true)) {
                // Who reads slowly still gets everything.
                over_by = Some(Instant::now() + LAST_LINES);
            }
            if ready.asker && ending.is_none() {
                match self.asker.hear().map_err(|error| gone(&error))? {
                    Answer::Starting { text } => self.say(&text),
                    Answer::Refused { code, text } => return Err(Error::Refused { code, text }),
                    Answer::Ended { status } => {
                        ending = Some(status);
                        over_by = Some(Instant::now() + LAST_LINES);
                    }
                }
            }
        }
        for at in 0..self.outputs.len() {
            // Whoever has not closed an output leaves nothing in it unseen.
            let rest = self.outputs[at].labelled.finish();
            self.print(at, rest);
        }
        if interrupted.is_none() && ending != Some(0) {
            // With a rank that failed first, SLURM has cancelled what was left.
            let cancelled = self.outputs.iter().any(|source| source.labelled.was_cancelled());
            let cancelled = || cancelled.then(|| "the step was cancelled in SLURM".to_owned());
            if let Some(failure) = self.failure.take().or_else(cancelled) {
                self.say(&format!("the run failed: {failure}"));
            }
        }
        self.printer.is_written(LAST_LINES);
        Ok(match (interrupted, ending) {
            (Some(signal), _) => Ending::Interrupted(signal as i32),
            (None, Some(0)) => Ending::Well,
            (None, status) => Ending::Failed(status.unwrap_or(1)),
        })
    }

    /// Waits until something can be done, and says what.
    fn wait(&self, with_asker: bool, over_by: Option<Instant>) -> Result<Ready, Error> {
        if with_asker && self.asker.has_more() {
            return Ok(Ready { asker: true, outputs: [false; 2] });
        }
        let asked = match self.stop {
            Stop::Asked(by) => Some(by),
            Stop::Not => self.limit.filter(|_| with_asker),
            Stop::Killed(_) => None,
        };
        let bar = self.outputs.iter().filter_map(|source| source.labelled.next_bar()).min();
        let timeout = over_by.into_iter().chain(asked).chain(bar).min().map_or(PollTimeout::NONE, |by| {
            let left = by.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let full = self.printer.is_full();
        let pipes = self.outputs.each_ref().map(|source| source.pipe.as_ref().filter(|_| !full));
        let all = [Some(self.signals.as_fd()), Some(self.printer.as_fd()), with_asker.then(|| self.asker.as_fd())];
        let all = all.into_iter().chain(pipes.map(|pipe| pipe.map(AsFd::as_fd)));
        let (places, mut waited): (Vec<usize>, Vec<PollFd<'_>>) = all
            .enumerate()
            .filter_map(|(place, descriptor)| Some((place, PollFd::new(descriptor?, PollFlags::POLLIN))))
            .unzip();
        match poll(&mut waited, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Error::system("cannot wait for ranks")(errno.into())),
        }
        let mut ready = [false; 5];
        for (place, descriptor) in places.into_iter().zip(&waited) {
            ready[place] = descriptor.any().unwrap_or(false);
        }
        let [_, _, asker, out, err] = ready;
        Ok(Ready { asker, outputs: [out, err] })
    }

    /// Shows what has come on one of the outputs.
    fn show(&mut self, at: usize) {
        let source = &mut self.outputs[at];
        let text = source.read();
        if !self.labelled {
            let target = match source.stream {
                Stream::Stdout => super::Target::Stdout,
                Stream::Stderr => super::Target::Stderr,
            };
            return self.printer.print(target, text);
        }
        let lines = if source.pipe.is_some() { source.labelled.push(&text) } else { source.labelled.finish() };
        self.print(at, lines);
    }

    /// Shows progress bars that are to be shown now.
    fn show_bars(&mut self) {
        let now = Instant::now();
        for at in 0..self.outputs.len() {
            let bars = self.outputs[at].labelled.bars(now);
            self.print(at, bars);
        }
    }

    fn print(&mut self, at: usize, lines: Vec<Line>) {
        let stream = self.outputs[at].stream;
        for (rank, line) in lines {
            let Some(rank) = rank else {
                self.printer.print(super::Target::Stderr, line);
                continue;
            };
            if stream == Stream::Stderr {
                self.failure = self.failure.take().or_else(|| failure(rank, &line));
            }
            if let Some((target, bytes)) = self.report.note(&Event::Lines { rank, stream, lines: line }) {
                self.printer.print(target, bytes);
            }
        }
    }

    fn say(&self, text: &str) {
        self.printer.print(super::Target::Stderr, format!("eirene-train: {text}\n").into_bytes());
    }

    /// Ctrl-C is for the ranks, and after the time they have for it the end; a second one, or another signal, is the end at once.
    fn interrupt(&mut self, signal: Signal) {
        let word = match signal {
            Signal::SIGINT => StepSignal::Interrupt,
            Signal::SIGTERM => StepSignal::Terminate,
            // The terminal has gone, or whoever waited here.
            _ => return self.end(),
        };
        if self.stop != Stop::Not {
            return self.end();
        }
        self.tell(Word::Signal { signal: word });
        self.stop = Stop::Asked(Instant::now() + self.grace);
    }

    fn end(&mut self) {
        self.tell(Word::End {});
        self.stop = Stop::Killed(Instant::now());
    }

    fn tell(&mut self, word: Word) {
        // An agent that is gone is noticed where it is listened to.
        let _ = self.asker.say(word);
    }
}

struct Ready {
    asker: bool,
    outputs: [bool; 2],
}

/// How the rank that failed first has ended, where this line of it is the agent's that says so.
fn failure(rank: u32, line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line).ok()?.trim_end().strip_prefix("[eirene] ")?;
    let how = text.strip_prefix(&format!("rank {rank} on "))?.split_once(' ')?.1;
    let is_its_end = how.starts_with("was killed by signal ") || how.starts_with("ended with status ");
    is_its_end.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn the_agent_names_the_socket_as_it_is_looked_for() {
        assert_eq!(crate::variables::STEPS, eirene_steps::SOCKET_VARIABLE);
    }

    #[test]
    fn the_agent_s_line_on_a_rank_s_end_is_known() {
        let killed = b"[eirene] rank 3 on c2 was killed by signal SIGKILL\n";
        assert_eq!(failure(3, killed).as_deref(), Some("rank 3 on c2 was killed by signal SIGKILL"));
        assert_eq!(
            failure(1, b"[eirene] rank 1 on c2 ended with status 3\n").as_deref(),
            Some("rank 1 on c2 ended with status 3")
        );
        assert_eq!(failure(2, killed), None, "it is another's");
        assert_eq!(failure(3, b"rank 3 on c2 was killed by signal SIGKILL\n"), None);
        assert_eq!(failure(3, b"[eirene] rank 3: `x` cannot be started: no such file\n"), None);
    }

    #[test]
    fn a_request_says_what_the_options_say() {
        let launcher = Environment::new([("HOME", "/home/ada"), ("A", "1")], "here", 1000);
        let options = Options {
            ranks: Some(4),
            hosts: Hosts::List("c[1-2]".into()),
            environment: vec![("A".into(), "2".into())],
            output: Some("logs".into()),
            bind: Bind::Core,
            ..Options::new(vec!["python".into(), "train.py".into()], Vec::new(), launcher)
        };
        let session = SessionOptions { exclude: vec!["c2".into()], ..SessionOptions::default() };
        let asked = request(&options, session).unwrap();
        assert_eq!(
            (asked.ranks, asked.nodes, asked.exclude),
            (Some(4), vec!["c1".into(), "c2".into()], vec!["c2".into()])
        );
        assert!(asked.bind && !asked.labels);
        let directory = std::env::current_dir().unwrap();
        assert_eq!(asked.output.as_deref(), directory.join("logs").to_str());
        assert_eq!(asked.program.command, ["python", "train.py"]);
        assert_eq!(asked.program.environment, [("A".into(), "2".into()), ("HOME".into(), "/home/ada".into())]);
        let all = Options { hosts: Hosts::List("all".into()), ..options };
        assert!(request(&all, SessionOptions::default()).unwrap().nodes.is_empty());
    }

    #[test]
    fn the_nodes_of_a_run_are_those_that_get_ranks() {
        let launcher = [("SLURM_JOB_NODELIST", "c[1-4]"), ("SLURM_JOB_CPUS_PER_NODE", "4(x3),2")];
        let launcher = Environment::new(launcher, "here", 1000);
        let options = Options::new(vec!["train".into()], Vec::new(), launcher);
        let nodes = |options: &Options, exclude: &[&str]| {
            let exclude: Vec<String> = exclude.iter().map(|name| (*name).to_owned()).collect();
            session_nodes(options, &exclude, false).unwrap().join(",")
        };
        let ranks = |ranks, ranks_per_node| Options { ranks: Some(ranks), ranks_per_node, ..options.clone() };
        assert_eq!(nodes(&ranks(8, None), &[]), "c1,c2,c3,c4");
        assert_eq!(nodes(&ranks(8, None), &["c2"]), "c1,c3,c4");
        assert_eq!(nodes(&ranks(1, None), &[]), "c1");
        assert_eq!(nodes(&ranks(3, Some(2)), &[]), "c1,c2");
        let two = Options { hosts: Hosts::List("c4,c3".into()), ..ranks(6, None) };
        assert_eq!(nodes(&two, &[]), "c3,c4");
        // So are ranks that have no room, or no number.
        assert_eq!(nodes(&Options { ranks: Some(7), ..two.clone() }, &[]), "");
        assert_eq!(session_nodes(&Options { ranks: Some(7), ..two.clone() }, &[], true).unwrap(), ["c3", "c4"]);
        for (count, each) in [(15, None), (8, Some(8)), (0, None), (4, Some(0)), (16, Some(4))] {
            assert_eq!(nodes(&ranks(count, each), &[]), "", "{count} {each:?}");
        }
        assert_eq!(nodes(&ranks(12, Some(4)), &[]), "c1,c2,c3");
        assert_eq!(nodes(&options, &[]), "");
        // What is no node of the session is the agent's to refuse.
        assert_eq!(nodes(&two, &["d1"]), "");
        assert_eq!(nodes(&Options { hosts: Hosts::List("c1,d1".into()), ..ranks(2, None) }, &[]), "");
        assert_eq!(
            nodes(&Options { launcher: Environment::new([("A", "1")], "here", 1000), ..ranks(2, None) }, &[]),
            ""
        );
    }
}
