//! The command `eirene-train`: its verbs, and who carries them out.
//!
//! It is one command with two doors: the program of this crate, and Python's (`python -m eirene_train`), which differ in their [`Context`].
//! What verbs do is left to others: `eirene-train-launch` starts ranks.

mod context;
mod run;

use std::ffi::OsString;
use std::io::Write as _;

use clap::{Parser, Subcommand};
use eirene_train_launch::Ending;

pub use context::Context;

/// Start, look after and end the ranks of a training program.
#[derive(Debug, Parser)]
#[command(name = "eirene-train", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<run::Run>),
    /// Run ranks of another host's `run`, which tells on stdin what to do.
    #[command(hide = true)]
    Node,
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
        Verb::Run(arguments) => run::run(*arguments, context).map(Ending::exit_code),
        Verb::Node => run::node(context).map(|()| 0),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "eirene-train: {error}");
        error.exit_code()
    })
}
