//! `eirene-train-nodes`: emulated nodes from a shell.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's answers and complaints")]

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, ExitStatus};

use clap::{Parser, Subcommand};
use eirene_train_lab::{Error, Nodes, Owner, address, enter};

/// The lab that is meant where none is named.
const LAB: &str = "EIRENE_TRAIN_LAB";

/// Pretend to have several nodes on this machine, with wires between them. Needs root.
///
/// Nodes are called node1, node2 and so on, also as hosts; node1 has the address 10.77.0.1.
#[derive(Debug, Parser)]
#[command(
    name = "eirene-train-nodes",
    version,
    after_help = "Examples:\n  eirene-train-nodes with 2 --rate 1gbit -- eirene-train run --nodes 'node[1-2]' --ranks-per-node 2 train.py\n  \
                  export EIRENE_TRAIN_LAB=$(eirene-train-nodes up 2)\n  eirene-train-nodes exec node1 -- ip address"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Set up nodes and say the lab's name. Once the calling shell has ended, the next lab takes it down
    Up {
        /// How many
        count: u32,
        /// Of each wire, in each direction, as tc writes it
        #[arg(long, default_value = "1gbit")]
        rate: String,
    },
    /// Set up nodes, run a command outside of them that finds them by its environment, and take them down
    With {
        /// How many
        count: u32,
        /// Of each wire, in each direction, as tc writes it
        #[arg(long, default_value = "1gbit")]
        rate: String,
        /// `eirene-train run --nodes …` in it reaches the nodes
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Run a command in a node
    Exec {
        #[command(flatten)]
        lab: Named,
        /// Its name or number
        node: String,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Run a command line in a node, as ssh would: `EIRENE_TRAIN_RSH="eirene-train-nodes rsh"`
    Rsh {
        #[command(flatten)]
        lab: Named,
        /// Its name or number
        node: String,
        /// For a shell
        command: OsString,
    },
    /// Say what a node has sent and received
    Bytes {
        #[command(flatten)]
        lab: Named,
        /// Its name or number
        node: String,
    },
    /// End what runs in the nodes and remove them
    Down {
        #[command(flatten)]
        lab: Named,
    },
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Which lab
    #[arg(long, env = LAB)]
    lab: String,
}

fn main() -> ExitCode {
    match act(Arguments::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("eirene-train-nodes: {error}");
            ExitCode::from(2)
        }
    }
}

fn act(verb: Verb) -> Result<ExitCode, Error> {
    match verb {
        Verb::Up { count, rate } => {
            let owner = Owner::of(std::os::unix::process::parent_id());
            let owner = owner.ok_or_else(|| gone("the calling shell has ended"))?;
            let nodes = std::mem::ManuallyDrop::new(Nodes::up(count, &rate, owner)?);
            println!("{}", nodes.name());
        }
        Verb::With { count, rate, command } => {
            let owner = Owner::this().ok_or_else(|| gone("`/proc` says nothing of this process"))?;
            let nodes = Nodes::up(count, &rate, owner)?;
            let status = with(&nodes, &command);
            nodes.down()?;
            return Ok(code(status?));
        }
        Verb::Exec { lab, node, command } => {
            into(&lab.lab, &node)?;
            let (program, arguments) = command.split_first().ok_or_else(|| gone("no command"))?;
            return Err(not_started(Command::new(program).args(arguments).exec()));
        }
        Verb::Rsh { lab, node, command } => {
            let number = into(&lab.lab, &node)?;
            let address = address(number);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(command).env("SSH_CONNECTION", format!("{address} 0 {address} 22"));
            return Err(not_started(shell.exec()));
        }
        Verb::Bytes { lab, node } => {
            let nodes = Nodes::of(&lab.lab)?;
            let bytes = nodes.bytes(nodes.number(&node)?)?;
            println!("sent {} received {}", bytes.sent, bytes.received);
        }
        Verb::Down { lab } => Nodes::of(&lab.lab)?.down()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Enters a node; its number.
fn into(lab: &str, node: &str) -> Result<u32, Error> {
    let nodes = Nodes::of(lab)?;
    let number = nodes.number(node)?;
    enter(&nodes, number)?;
    Ok(number)
}

fn with(nodes: &Nodes, command: &[OsString]) -> Result<ExitStatus, Error> {
    let own = std::env::current_exe().map_err(not_started)?;
    let (program, arguments) = command.split_first().ok_or_else(|| gone("no command"))?;
    let shell = format!("{} rsh", own.display());
    let mut command = Command::new(program);
    command.args(arguments).env(LAB, nodes.name()).env("EIRENE_TRAIN_RSH", shell);
    command.status().map_err(not_started)
}

fn not_started(source: std::io::Error) -> Error {
    Error::System { what: "start the command", source }
}

fn gone(what: &'static str) -> Error {
    not_started(std::io::Error::other(what))
}

fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}
