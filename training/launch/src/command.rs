//! The command `eirene-train`, as far as it belongs here: `run`, and `node`, which `run` starts on other hosts.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::environment::Environment;
use crate::error::Error;
use crate::run::{self, Bind, Ending, Hosts, Options};
use crate::variables;

/// What the command needs to know of the process it is in.
#[derive(Debug, Clone)]
pub struct Context {
    /// The interpreter for programs that end in `.py`, and for `-m` and `-c`.
    pub python: OsString,
    /// The command by which other hosts start this very program with `node`: `[python, -m, eirene_train, node]`.
    pub node_command: Vec<OsString>,
    /// The environment.
    pub environment: Environment,
}

impl Context {
    /// For a program of its own, without an interpreter around it.
    pub fn of_this_program() -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("eirene-train"));
        Self {
            python: "python3".into(),
            node_command: vec![program.into_os_string(), "node".into()],
            environment: Environment::of_this_process(),
        }
    }
}

/// Start, look after and end the ranks of a training program.
#[derive(Debug, Parser)]
#[command(name = "eirene-train", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<Run>),
    /// Run ranks of another host's `run`, which tells on stdin what to do.
    #[command(hide = true)]
    Node,
}

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
                        eirene-train run --nodes all --ranks-per-node 2 train.py   (in a job of SLURM's)"
)]
pub struct Run {
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
    /// Do not write each line's rank before it
    #[arg(long)]
    no_labels: bool,
    /// Write each rank's output to a file of its own in this directory
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// The program and its arguments; `.py`, `-m` and `-c` are run by Python
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The whole command: `arguments` with the program's name first. Gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>, context: &Context) -> u8 {
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(answer) => {
            let _ = answer.print();
            return u8::try_from(answer.exit_code()).unwrap_or(2);
        }
    };
    let done = match parsed.verb {
        Verb::Run(arguments) => run(*arguments, context).map(Ending::exit_code),
        Verb::Node => node(context).map(|()| 0),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "eirene-train: {error}");
        error.exit_code()
    })
}

/// `eirene-train run`, to this process's stdout and stderr.
///
/// # Errors
/// As [`crate::run`].
pub fn run(arguments: Run, context: &Context) -> Result<Ending, Error> {
    let color = std::io::stdout().is_terminal() && wants_color(&context.environment);
    let options = Options { color, ..arguments.options(context)? };
    run::run(&options, Box::new(std::io::stdout()), Box::new(std::io::stderr()))
}

/// `eirene-train node`, on this process's stdin and stdout.
///
/// # Errors
/// As [`crate::node`].
pub fn node(context: &Context) -> Result<(), Error> {
    let failed = "cannot read orders";
    let orders = std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::system(failed))?;
    run::node(orders, Box::new(std::io::stdout()), &context.environment)
}

fn wants_color(environment: &Environment) -> bool {
    environment.get("NO_COLOR").is_none() && environment.get("TERM").is_some_and(|term| term != "dumb")
}

impl Run {
    /// As options, without colours.
    ///
    /// # Errors
    /// [`Error::Usage`] for what does not go together.
    pub fn options(self, context: &Context) -> Result<Options, Error> {
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
        Ok(Options {
            ranks: if hosts == Hosts::Here { self.ranks.or(self.ranks_per_node) } else { self.ranks },
            hosts,
            ranks_per_node: self.ranks_per_node,
            timeout: self.timeout,
            grace: self.grace,
            labels: !self.no_labels,
            output: self.output,
            bind: self.bind,
            environment,
            address: self.address,
            ..Options::new(program, context.node_command.clone(), context.environment.clone())
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
    let is_script = Path::new(first).extension().is_some_and(|extension| extension == "py");
    let interpreter = (is_module || is_script).then(|| python.to_owned());
    Ok(interpreter.into_iter().chain(words).collect())
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

    fn options(line: &str) -> Result<Options, String> {
        let words = ["eirene-train", "run"].into_iter().chain(line.split(' ')).map(OsString::from);
        let context = Context {
            python: "/py".into(),
            node_command: vec!["node".into()],
            environment: Environment::new([("HOME", "/home/ada")], "here", 1000),
        };
        let parsed = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        match parsed.verb {
            Verb::Run(arguments) => arguments.options(&context).map_err(|error| error.to_string()),
            Verb::Node => Err("node".to_owned()),
        }
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
