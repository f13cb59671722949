//! `eirene-train run`, and `node`, which `run` starts on other hosts: from words on the command line to what
//! `eirene-train-launch` is asked to do.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use eirene_train_launch::{Ending, Environment, Error, Hosts, Options, SessionOptions, variables};

use crate::context::Context;
use crate::image_mpi;
use crate::preflight::{self, Gate, How};

/// Run a program as several ranks, here or on several hosts.
///
/// Ranks find each other without an address or a port. Programs that call `init_process_group("gloo")` or the like find RANK,
/// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (a free port) as torchrun sets them.
///
/// The first rank that fails ends all others; its code is the command's, 128 + N if signal N killed it. Code 113 says that a rank ended
/// only because another one failed, which is then looked for.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  eirene-train run -n 4 train.py --epochs 3\n  eirene-train run -n 2 -m my.module\n  \
                        eirene-train run --nodes 'c[1-4]' --ranks-per-node 2 train.py\n  \
                        eirene-train run --nodes all --ranks-per-node 2 train.py   (in a job of SLURM's)\n\nIn a session of Eirene's the \
                        session's agent starts the ranks, on all its nodes unless told otherwise."
)]
pub(crate) struct Run {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "RANKS")]
    ranks: Option<u32>,
    /// On these hosts: a list like `c[1-4],d7`, or `all` of SLURM's job
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    nodes: Option<String>,
    /// On the hosts of this file, one a line: `host slots=4`, `host:4` or `host`
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// Ranks on each host
    #[arg(long, value_name = "RANKS")]
    ranks_per_node: Option<u32>,
    /// How others reach rank 0's host, if not by its name in the list
    #[arg(long, value_name = "HOST")]
    address: Option<String>,
    /// How long hosts may take to answer
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    /// How long ranks may take to end when asked, before they are killed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    grace: Duration,
    /// Keep each rank on processors of its own
    #[arg(long, value_name = "HOW", default_value = "none")]
    bind: Bind,
    /// A variable for all ranks; without a value, the one it has here
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<OsString>,
    /// Say which algorithm is chosen for each kind of collective, and why
    #[arg(long)]
    explain: bool,
    /// Give rank 0 what comes on standard input; without it, no rank has any
    #[arg(long)]
    stdin: bool,
    /// Do not write each line's rank before it
    #[arg(long)]
    no_labels: bool,
    /// In a session: start the ranks in this container, without the session's agent
    #[arg(long, conflicts_with_all = ["nodes", "hostfile"])]
    here: bool,
    /// In a session: leave these nodes out
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "here")]
    exclude: Vec<String>,
    /// In a session: allow more ranks than processors
    #[arg(long, conflicts_with = "here")]
    oversubscribe: bool,
    /// In a session: what is done before ranks start on several nodes; `once`, unless EIRENE_TRAIN_PREFLIGHT says otherwise
    #[arg(long, value_name = "HOW", conflicts_with_all = ["here", "no_preflight"])]
    preflight: Option<How>,
    /// In a session: start the ranks without trying nodes and links first
    #[arg(long)]
    no_preflight: bool,
    /// Write each rank's output to a file of its own in this directory
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// The program and its arguments; `.py`, `-m` and `-c` are run by Python
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Whether a rank is kept on processors of its own.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bind {
    /// No: the system moves it as it likes.
    None,
    /// Yes: the node's processors are dealt out among its ranks.
    Core,
}

/// `eirene-train run`, to this process's stdout and stderr.
///
/// # Errors
/// As [`eirene_train_launch::run`]; [`crate::error::Error::Sick`] where a node of a session is.
pub(crate) fn run(arguments: Run, context: &Context) -> Result<Ending, crate::error::Error> {
    let color = io::stdout().is_terminal() && wants_color(&context.environment);
    let socket = context.environment.get(variables::STEPS).filter(|_| !arguments.here).map(PathBuf::from);
    let (exclude, oversubscribe) = (arguments.exclude.clone(), arguments.oversubscribe);
    // Other hosts may have files that this one does not; a session's nodes see the same.
    if (socket.is_some() || (arguments.nodes.is_none() && arguments.hostfile.is_none()))
        && let Some(script) = arguments.program.first().filter(|program| is_script(program))
    {
        look_for(Path::new(script))?;
    }
    let how = arguments.preflight(&context.environment)?;
    let options = Options { color, ..arguments.options(context)? };
    let (stdout, stderr) = (Box::new(io::stdout()), Box::new(io::stderr()));
    let Some(socket) = socket else {
        if !exclude.is_empty() {
            return Err(Error::Usage("`--exclude` is for sessions: name the hosts that are wanted".to_owned()).into());
        }
        return Ok(eirene_train_launch::run(&options, stdout, stderr)?);
    };
    let mut session = SessionOptions { mpi: image_mpi::of_session(context, &socket)?, exclude, oversubscribe };
    if let Some(how) = how {
        session.exclude = match preflight::before(&options, &session, how, &socket, context)? {
            Gate::Open(exclude) => exclude,
            Gate::Shut(ending) => return Ok(ending),
        };
    }
    let outcome = eirene_train_launch::in_session(&options, &socket, session, stdout, stderr);
    preflight::after(&socket, &outcome);
    Ok(outcome?)
}

/// `eirene-train node`, on this process's stdin and stdout.
///
/// # Errors
/// As [`eirene_train_launch::node`].
pub(crate) fn node(context: &Context) -> Result<(), Error> {
    let orders = io::stdin().as_fd().try_clone_to_owned();
    let orders = orders.map_err(|source| Error::System { what: "cannot read orders".to_owned(), source })?;
    eirene_train_launch::node(orders, Box::new(io::stdout()), &context.environment)
}

/// Whether a terminal is to get colours.
pub(crate) fn wants_color(environment: &Environment) -> bool {
    environment.get("NO_COLOR").is_none() && environment.get("TERM").is_some_and(|term| term != "dumb")
}

impl Run {
    /// What is to be done before ranks start on several nodes of a session, if anything.
    ///
    /// # Errors
    /// [`Error::Usage`] where the environment asks for what there is not.
    fn preflight(&self, environment: &Environment) -> Result<Option<How>, Error> {
        if self.no_preflight {
            return Ok(None);
        }
        match (self.preflight, environment.get(variables::PREFLIGHT)) {
            (Some(how), _) => Ok(Some(how)),
            (None, None) => Ok(Some(How::Once)),
            (None, Some("off")) => Ok(None),
            (None, Some(text)) => How::from_str(text, false).map(Some).map_err(|_| {
                let name = variables::PREFLIGHT;
                Error::Usage(format!("{name} is `{text}`; it may be `once`, `always`, `exclude` or `off`"))
            }),
        }
    }

    /// As options, without colours.
    ///
    /// # Errors
    /// [`Error::Usage`] for what does not go together.
    fn options(self, context: &Context) -> Result<Options, Error> {
        let program = resolve(self.program, &context.python)?;
        let mut environment: Vec<(OsString, OsString)> =
            self.environment.iter().map(|text| variable(text, &context.environment)).collect::<Result<_, _>>()?;
        if self.explain {
            environment.push((variables::EXPLAIN.into(), "1".into()));
        }
        let hosts = match (self.nodes, self.hostfile) {
            (Some(list), _) => Hosts::List(list),
            (None, Some(file)) => Hosts::File(file),
            (None, None) => Hosts::Here,
        };
        // A session without names is all its nodes, and its agent counts them.
        let in_session = context.environment.get(variables::STEPS).is_some() && !self.here;
        let one_node = hosts == Hosts::Here && !in_session;
        Ok(Options {
            ranks: if one_node { self.ranks.or(self.ranks_per_node) } else { self.ranks },
            hosts,
            ranks_per_node: self.ranks_per_node,
            timeout: self.timeout,
            grace: self.grace,
            labels: !self.no_labels,
            stdin: self.stdin,
            output: self.output,
            bind: match self.bind {
                Bind::None => eirene_train_launch::Bind::None,
                Bind::Core => eirene_train_launch::Bind::Core,
            },
            environment,
            address: self.address,
            ..Options::new(program, context.node_command(), context.environment.clone())
        })
    }
}

/// The program with its interpreter, where it needs one.
fn resolve(words: Vec<OsString>, python: &OsStr) -> Result<Vec<OsString>, Error> {
    let first = words.first().map(OsString::as_os_str).unwrap_or_default();
    let is_module = first == "-m" || first == "-c";
    if is_module && words.len() < 2 {
        return Err(Error::Usage(format!("`{}` needs a word behind it", first.display())));
    }
    if first.as_encoded_bytes().starts_with(b"-") && !is_module {
        return Err(Error::Usage(format!("there is no option `{}`; see `eirene-train run --help`", first.display())));
    }
    let is_script = is_script(first);
    let interpreter = (is_module || is_script).then(|| python.to_owned());
    Ok(interpreter.into_iter().chain(words).collect())
}

/// Whether it is for Python by its name.
fn is_script(program: &OsStr) -> bool {
    Path::new(program).extension().is_some_and(|extension| extension == "py")
}

/// Whether the script is there, where ranks begin in this directory or one like it: said once and at once, instead of by Python and every rank.
///
/// # Errors
/// [`Error::Usage`] where it is not, or is no file.
fn look_for(script: &Path) -> Result<(), Error> {
    let shown = script.display();
    match std::fs::metadata(script) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(Error::Usage(format!("`{shown}` is no file"))),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let here =
                std::env::current_dir().map_or_else(|_| "this directory".to_owned(), |here| here.display().to_string());
            let place = if script.is_absolute() { String::new() } else { format!(" in {here}") };
            Err(Error::Usage(format!("there is no script `{shown}`{place}")))
        }
        // Whatever else there is to say of it Python says better.
        Err(_) => Ok(()),
    }
}

fn variable(text: &OsStr, environment: &Environment) -> Result<(OsString, OsString), Error> {
    let shown = text.to_string_lossy();
    match shown.split_once('=') {
        Some(("", _)) => Err(Error::Usage(format!("`--env {shown}` names no variable"))),
        Some((name, value)) => Ok((name.into(), value.into())),
        None => match environment.get(&shown) {
            Some(value) => Ok((text.to_owned(), value.into())),
            None => Err(Error::Usage(format!("`--env {shown}`: it is not set here; give a value, `--env {shown}=…`"))),
        },
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    const LONGEST: f64 = 1e6;
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=LONGEST).contains(number));
    number.map(Duration::from_secs_f64).ok_or_else(|| "not a number of seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        run: Run,
    }

    fn options(line: &str) -> Result<Options, String> {
        options_with(("HOME", "/home/ada"), line)
    }

    fn options_with(variable: (&str, &str), line: &str) -> Result<Options, String> {
        let environment = Environment::new([variable], "here", 1000);
        let context = Context { python: "/py".into(), environment, ..Context::of_this_program() };
        parse(line)?.options(&context).map_err(|error| error.to_string())
    }

    fn parse(line: &str) -> Result<Run, String> {
        let words = std::iter::once("eirene-train run").chain(line.split(' ')).map(OsString::from);
        let parsed = <Only as clap::Parser>::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.run)
    }

    #[test]
    fn what_is_done_before_ranks_start_is_said_here_or_by_a_variable() {
        let wanted = |line: &str, value: &str| {
            let environment = Environment::new([(variables::PREFLIGHT, value)], "here", 1000);
            parse(line).unwrap().preflight(&environment).map_err(|error| error.to_string())
        };
        assert_eq!(wanted("-n 2 x", ""), Ok(Some(How::Once)));
        assert_eq!(wanted("-n 2 x", "off"), Ok(None));
        assert_eq!(wanted("-n 2 x", "exclude"), Ok(Some(How::Exclude)));
        assert_eq!(wanted("-n 2 --preflight always x", "off"), Ok(Some(How::Always)));
        assert_eq!(wanted("-n 2 --no-preflight x", "always"), Ok(None));
        let refused = "EIRENE_TRAIN_PREFLIGHT is `maybe`; it may be `once`, `always`, `exclude` or `off`";
        assert_eq!(wanted("-n 2 x", "maybe"), Err(refused.to_owned()));
    }

    #[test]
    fn ranks_per_node_are_all_there_are_on_one_host_and_counted_by_a_session() {
        let ranks = |options: Result<Options, String>| options.map(|options| (options.ranks, options.ranks_per_node));
        assert_eq!(ranks(options("--ranks-per-node 2 x")), Ok((Some(2), Some(2))));
        let session = (variables::STEPS, "/run/eirene/steps.sock");
        assert_eq!(ranks(options_with(session, "--ranks-per-node 2 x")), Ok((None, Some(2))));
        assert_eq!(ranks(options_with(session, "--here --ranks-per-node 2 x")), Ok((Some(2), Some(2))));
    }

    fn program(line: &str) -> Vec<String> {
        options(line).unwrap().program.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn python_programs_get_their_interpreter_and_all_arguments_reach_them() {
        assert_eq!(program("-n 2 train.py --lr 3 -n 7"), ["/py", "train.py", "--lr", "3", "-n", "7"]);
        assert_eq!(program("-n 2 -- train.py --help"), ["/py", "train.py", "--help"]);
        assert_eq!(program("-n 2 -m pkg.train -n 7"), ["/py", "-m", "pkg.train", "-n", "7"]);
        assert_eq!(program("-n 2 -c print(1)"), ["/py", "-c", "print(1)"]);
        assert_eq!(program("-n 2 ./solver -m x"), ["./solver", "-m", "x"]);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            options("-n 2 --bogus train.py").unwrap_err(),
            "there is no option `--bogus`; see `eirene-train run --help`"
        );
        assert_eq!(options("-n 2 -m").unwrap_err(), "`-m` needs a word behind it");
        assert!(options("-n x train.py").unwrap_err().contains("invalid value 'x' for '--ranks <RANKS>'"));
        assert!(options("-n 2 --grace -1 train.py").unwrap_err().contains("not a number of seconds"));
        assert!(options("-n 2 --nodes a --hostfile b train.py").unwrap_err().contains("cannot be used with"));
        assert!(options("-n 2").unwrap_err().contains("PROGRAM"));
    }

    #[test]
    fn variables_come_with_their_value_or_with_the_one_they_have_here() {
        let given = options("-n 2 --env A=b=c --env HOME true").unwrap().environment;
        assert_eq!(given, [("A".into(), "b=c".into()), ("HOME".into(), "/home/ada".into())]);
        assert!(options("-n 2 --env NOT_THERE true").unwrap_err().contains("it is not set here"));
        let explained = options("-n 2 --explain --env A=b true").unwrap().environment;
        assert_eq!(explained, [("A".into(), "b".into()), ("EIRENE_TRAIN_EXPLAIN".into(), "1".into())]);
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let environment = Environment::new([("TERM", "xterm")], "here", 1000);
        assert!(wants_color(&environment));
        assert!(!wants_color(&environment.clone().with("NO_COLOR", "1")));
        assert!(!wants_color(&environment.with("TERM", "dumb")));
    }
}
