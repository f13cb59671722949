//! The command line: what can be typed, with its help. Values are parsed here, so that commands see good ones only.

pub(crate) mod admin;
pub(crate) mod files;

use clap::{Args, Parser, Subcommand};
use eirene_core::scratch::{ScratchError, ScratchKind, ScratchSpec, StageIn, StageOn, StageOut};
use eirene_core::{AppName, GpuType, ImageName, PartitionName, ProjectName, SessionId, SessionName, TokenId, Username};

use crate::arguments::admin::Admin;
use crate::arguments::files::Fs;
use crate::commands::alert::Alert;
use crate::reference::Reference;

/// Interactive sessions and runs on the cluster from the command line.
///
/// Exit status: 0 done, 1 refused by the portal, answered with no, some of the files failed, or the session or run failed, 2 wrong usage or no answer.
#[derive(Debug, Parser)]
#[command(name = "eirene", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// Portal address, for example `https://eirene.example.org`; remembered by `eirene login`
    #[arg(long, global = true, env = "EIRENE_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sign in: get a token and keep it in your config directory
    Login(Login),
    /// Sign out: delete the token here and at the portal
    Logout,
    /// Show who you are signed in as
    Whoami,
    /// Start, watch and stop sessions
    #[command(subcommand)]
    Session(Session),
    /// Run scripts and notebooks without a browser
    #[command(subcommand)]
    Run(Run),
    /// Files in your spaces, and between them and this machine
    #[command(subcommand)]
    Fs(Fs),
    /// See the cluster's nodes
    #[command(subcommand)]
    Node(Node),
    /// What you should know about your sessions and runs
    #[command(subcommand)]
    Alert(Alert),
    /// See and revoke your tokens
    #[command(subcommand)]
    Token(Token),
    /// Run the platform (needs `eirene login --admin`)
    #[command(subcommand)]
    Admin(Admin),
    /// Print a completion script for your shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// User name; asked for when left out
    #[arg(long)]
    pub(crate) username: Option<Username>,
    /// Read the password from standard input instead of asking
    #[arg(long)]
    pub(crate) password_stdin: bool,
    /// Ask for a token that may also run the platform
    #[arg(long)]
    pub(crate) admin: bool,
    /// Days until the token expires
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub(crate) days: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Start a session and wait until it runs
    Start(Box<Start>),
    /// List your sessions, newest first
    #[command(alias = "ls")]
    List {
        /// Also the ones that are over
        #[arg(long)]
        all: bool,
    },
    /// Show one session
    Show {
        /// Its name, its id, or how its id begins
        session: Reference<SessionId>,
    },
    /// Show what a session holds and uses, and what could be done better
    Efficiency {
        /// Its name, its id, or how its id begins
        session: Reference<SessionId>,
    },
    /// Open a session in the browser
    Open {
        /// Its name, its id, or how its id begins
        session: Reference<SessionId>,
        /// Only print the address
        #[arg(long)]
        print: bool,
    },
    /// Print a session's log
    Logs {
        /// Its name, its id, or how its id begins
        session: Reference<SessionId>,
        /// Go on until the session is over
        #[arg(long, short)]
        follow: bool,
    },
    /// Stop a session and wait until it is over
    Stop {
        /// Its name, its id, or how its id begins
        session: Reference<SessionId>,
        /// Do not wait
        #[arg(long)]
        no_wait: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// What to call it
    #[arg(long)]
    pub(crate) name: Option<SessionName>,
    /// App to run
    #[arg(long, default_value = "jupyterlab")]
    pub(crate) app: AppName,
    #[command(flatten)]
    pub(crate) size: Size,
    /// Use this key: the same start asked for twice starts once
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Do not wait until it runs
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Open it in the browser once it runs
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) open: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Run {
    /// Start a run of a script or a notebook
    Start(Box<StartRun>),
    /// List your runs, newest first
    #[command(alias = "ls")]
    List {
        /// Also the ones that are over
        #[arg(long)]
        all: bool,
    },
    /// Show one run
    Show {
        /// Its name, its id, or how its id begins
        run: Reference<SessionId>,
    },
    /// Show what a run holds and uses, and what could be done better
    Efficiency {
        /// Its name, its id, or how its id begins
        run: Reference<SessionId>,
    },
    /// Print a run's log
    Logs {
        /// Its name, its id, or how its id begins
        run: Reference<SessionId>,
        /// Only the lines of this rank
        #[arg(long, value_name = "N")]
        rank: Option<u32>,
        /// Go on until the run is over
        #[arg(long, short)]
        follow: bool,
    },
    /// Cancel a run and wait until it is over
    Cancel {
        /// Its name, its id, or how its id begins
        run: Reference<SessionId>,
        /// Do not wait
        #[arg(long)]
        no_wait: bool,
    },
    /// Start a run anew with everything as it was; one that is not over is cancelled first
    Requeue {
        /// Its name, its id, or how its id begins
        run: Reference<SessionId>,
        /// Use this key: the same requeue asked for twice happens once
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        #[command(flatten)]
        watch: Watch,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StartRun {
    /// Script or notebook, as the container sees it: absolute, or relative to your home. `.ipynb` is executed as a notebook, `.py` by the
    /// image's Python, anything else as it is; the working directory is the file's
    pub(crate) file: String,
    /// Arguments for the script; those that begin with a dash go after `--`
    pub(crate) arguments: Vec<String>,
    /// Ranks on all nodes together; one process when left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks: Option<u32>,
    /// Do not try nodes and links before ranks start on several nodes
    #[arg(long)]
    pub(crate) no_preflight: bool,
    /// What to call it; the file's name when left out
    #[arg(long)]
    pub(crate) name: Option<SessionName>,
    /// With the very image, the project and the size of this session of yours, live or over, where nothing else is given: its name, its id,
    /// or how its id begins
    #[arg(long, value_name = "SESSION")]
    pub(crate) like: Option<Reference<SessionId>>,
    #[command(flatten)]
    pub(crate) size: Size,
    /// Use this key: the same start asked for twice starts once
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// How long a command stays with a run.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Watch {
    /// Wait until it is over; the exit status is 0 when its program ended well, else 1
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print its log until it is over; the exit status is that of `--wait`
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// Where it runs and on how much. What was not given is none here: a run that is like a session has the rest of that.
#[derive(Debug, Args)]
pub(crate) struct Size {
    /// Image to run it in; `jupyter` when left out
    #[arg(long)]
    pub(crate) image: Option<ImageName>,
    /// Project it is for
    #[arg(long)]
    pub(crate) project: Option<ProjectName>,
    /// Partition; the cluster's default when left out
    #[arg(long)]
    pub(crate) partition: Option<PartitionName>,
    /// Number of nodes; 1 when left out
    #[arg(long)]
    pub(crate) nodes: Option<u32>,
    /// CPUs per node; 2 when left out
    #[arg(long)]
    pub(crate) cpus: Option<u32>,
    /// Memory per node, for example `4G` or `2048M`; `2G` when left out
    #[arg(long, value_parser = memory_mib)]
    pub(crate) memory: Option<u64>,
    /// GPUs per node, for example `1` or `a100:2`; none when left out
    #[arg(long, value_parser = gpus)]
    pub(crate) gpus: Option<Gpus>,
    /// Longest time, for example `90m` or `8h`; `1h` when left out
    #[arg(long, value_parser = minutes)]
    pub(crate) walltime: Option<u32>,
    #[command(flatten)]
    pub(crate) scratch: Scratch,
}

/// Fast scratch on its nodes.
#[derive(Debug, Args)]
pub(crate) struct Scratch {
    /// Fast scratch on its nodes, seen as `/local`: `node` or `beeond`
    #[arg(id = "scratch", long = "scratch", value_name = "KIND")]
    pub(crate) kind: Option<ScratchKind>,
    /// Room it needs on each node, for example `200G`
    #[arg(id = "scratch-size", long = "scratch-size", value_name = "SIZE", value_parser = memory_mib, requires = "scratch")]
    pub(crate) size: Option<u64>,
    /// Copy this to the scratch first, for example `home:data=in`
    #[arg(long, value_name = "SPACE:PATH=PLACE", value_parser = stage_in, requires = "scratch")]
    pub(crate) stage_in: Vec<StageIn>,
    /// Copy this back at the end, for example `results=home:today`
    #[arg(long, value_name = "PLACE=SPACE:PATH", value_parser = stage_out, requires = "scratch")]
    pub(crate) stage_out: Vec<StageOut>,
    /// The same, only after a good end
    #[arg(long, value_name = "PLACE=SPACE:PATH", value_parser = stage_out_on_success, requires = "scratch")]
    pub(crate) stage_out_on_success: Vec<StageOut>,
}

impl Scratch {
    /// What is asked for, if anything.
    pub(crate) fn asked(self) -> Option<ScratchSpec> {
        let stage_out = self.stage_out.into_iter().chain(self.stage_out_on_success).collect();
        self.kind.map(|kind| ScratchSpec { kind, size_mib: self.size, stage_in: self.stage_in, stage_out })
    }
}

/// The place has no `=`, the path may.
fn stage_in(text: &str) -> Result<StageIn, String> {
    let (from, to) = text.rsplit_once('=').ok_or("`SPACE:PATH=PLACE`, for example `home:data=in`")?;
    let wrong = |error: ScratchError| error.to_string();
    Ok(StageIn { from: from.parse().map_err(wrong)?, to: to.parse().map_err(wrong)? })
}

fn stage_out(text: &str) -> Result<StageOut, String> {
    let (from, to) = text.split_once('=').ok_or("`PLACE=SPACE:PATH`, for example `results=home:today`")?;
    let wrong = |error: ScratchError| error.to_string();
    Ok(StageOut { from: from.parse().map_err(wrong)?, to: to.parse().map_err(wrong)?, on: StageOn::Always })
}

fn stage_out_on_success(text: &str) -> Result<StageOut, String> {
    Ok(StageOut { on: StageOn::Success, ..stage_out(text)? })
}

/// GPUs asked for: a count, and a type or any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpus {
    pub(crate) count: u32,
    pub(crate) gpu_type: Option<GpuType>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// List nodes with what is free on them
    #[command(alias = "ls")]
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List your tokens
    #[command(alias = "ls")]
    List,
    /// End tokens: whoever uses one of them is signed out
    Revoke {
        /// Its name, its id, or how its id begins
        #[arg(required = true)]
        token: Vec<Reference<TokenId>>,
    },
}

pub(crate) fn memory_mib(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text
        .trim_end_matches(['i', 'B'])
        .split_at_checked(text.trim_end_matches(['i', 'B']).len().saturating_sub(1))
    {
        Some((digits, "G" | "g")) => (digits, 1024),
        Some((digits, "M" | "m")) => (digits, 1),
        Some((digits, "T" | "t")) => (digits, 1024 * 1024),
        _ => return Err("give a unit: `4G` or `2048M`".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a whole number and a unit, for example `4G`".to_owned())?;
    number.checked_mul(factor).filter(|mib| *mib > 0).ok_or_else(|| "out of range".to_owned())
}

fn gpus(text: &str) -> Result<Gpus, String> {
    let (gpu_type, count) = match text.split_once(':') {
        Some((gpu_type, count)) => (Some(gpu_type.parse::<GpuType>().map_err(|e| e.to_string())?), count),
        None => (None, text),
    };
    let count = count.parse().map_err(|_| "a number, or a type and a number: `a100:2`".to_owned())?;
    Ok(Gpus { count, gpu_type })
}

fn minutes(text: &str) -> Result<u32, String> {
    let problem = || "minutes or hours, for example `90m` or `8h`".to_owned();
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'h') => (&text[..text.len() - 1], 60),
        Some(b'm') => (&text[..text.len() - 1], 1),
        Some(b'd') => (&text[..text.len() - 1], 24 * 60),
        Some(_) => (text, 1),
        None => return Err(problem()),
    };
    let number: u32 = digits.parse().map_err(|_| problem())?;
    number.checked_mul(factor).filter(|m| *m > 0).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// What of a command, and of those in it, is not explained.
    fn unexplained(command: &clap::Command, path: &str) -> Vec<String> {
        let arguments = command.get_arguments().filter(|argument| argument.get_help().is_none());
        let mut all: Vec<String> = arguments.map(|argument| format!("{path} {}", argument.get_id())).collect();
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name());
            if below.get_about().is_none() {
                all.push(path.clone());
            }
            all.extend(unexplained(below, &path));
        }
        all
    }

    #[test]
    fn everything_that_can_be_typed_has_a_help_text() {
        assert_eq!(unexplained(&Arguments::command(), "eirene"), [""; 0]);
    }

    #[test]
    fn sizes_times_and_gpus_are_read_or_refused() {
        assert_eq!(memory_mib("4G"), Ok(4096));
        assert_eq!(memory_mib("512MiB"), Ok(512));
        for bad in ["", "4", "G", "-1G", "99999999999999999999G", "0M", "4G; id"] {
            assert!(memory_mib(bad).is_err(), "{bad}");
        }
        assert_eq!(minutes("90"), Ok(90));
        assert_eq!(minutes("8h"), Ok(480));
        for bad in ["", "h", "0m", "1.5h", "99999999h"] {
            assert!(minutes(bad).is_err(), "{bad}");
        }
        assert_eq!(gpus("a100:2").map(|g| (g.count, g.gpu_type.map(String::from))), Ok((2, Some("a100".to_owned()))));
        for bad in ["", "x", "a100", "-1", "$(id):1", "a:b:1"] {
            assert!(gpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_programs_own_options_come_after_two_dashes() {
        let parse = |words: &[&str]| match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Run(Run::Start(start))) => Some((start.file, start.arguments, start.ranks)),
            _ => None,
        };
        let words = ["eirene", "run", "start", "train.py", "data", "--ranks", "8", "--", "--lr", "0.1", "--ranks"];
        let arguments = ["data", "--lr", "0.1", "--ranks"].map(str::to_owned).to_vec();
        assert_eq!(parse(&words), Some(("train.py".to_owned(), arguments, Some(8))));
        assert_eq!(parse(&["eirene", "run", "start", "train.py", "--lr", "0.1"]), None, "no option is guessed at");
        assert_eq!(parse(&["eirene", "run", "start", "train.py", "--ranks", "0"]), None);
        assert_eq!(parse(&["eirene", "run", "start"]), None);
    }

    #[test]
    fn hostile_names_are_refused_before_anything_is_sent() {
        for bad in ["'; drop", "$(id)", "<script>", "a\u{0}"] {
            assert!(Arguments::try_parse_from(["eirene", "session", "start", "--image", bad]).is_err(), "{bad}");
        }
        assert!(Arguments::try_parse_from(["eirene", "session", "stop", "a\u{1b}"]).is_err());
        assert!(Arguments::try_parse_from(["eirene", "admin", "session", "stop", "../../users"]).is_err());
    }
}
