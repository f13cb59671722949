//! The command `eirene-train`: its verbs, and who carries them out.
//!
//! It is one command with two doors: the program of this crate, and Python's (`python -m eirene_train`), which differ in their [`Context`].
//! What verbs do is left to others: `eirene-train-launch` starts ranks, `eirene-train-doctor` examines, `bench` is Python's.

mod bench;
mod beside;
mod context;
mod doctor;
mod error;
mod image_mpi;
mod preflight;
mod run;

use std::ffi::OsString;
use std::io::Write as _;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use eirene_train_launch::Ending;

use crate::error::Error;

pub use context::Context;

const NAME: &str = "eirene-train";

/// Start, look after and end the ranks of a training program.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<run::Run>),
    Doctor(doctor::Doctor),
    Preflight(preflight::Preflight),
    /// Measure collectives and training steps beside what else is here (in Python; `bench --help` says more)
    #[command(disable_help_flag = true)]
    Bench {
        /// Handed over unchanged
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Print a completion script for your shell
    Completions {
        /// `bash`, `zsh` or `fish`
        #[arg(value_parser = shell, value_name = "SHELL")]
        shell: Shell,
    },
    /// Run ranks of another host's `run`, which tells on stdin what to do.
    #[command(hide = true)]
    Node,
    /// What each of the preflight's ranks does.
    #[command(hide = true, name = preflight::RANK)]
    PreflightRank,
    /// What the doctor's children do.
    #[command(hide = true, name = doctor::LOOK)]
    Look {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
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
    carry_out(parsed.verb, context).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "{NAME}: {error}");
        error.exit_code()
    })
}

fn carry_out(verb: Verb, context: &Context) -> Result<u8, Error> {
    match verb {
        Verb::Run(arguments) => run::run(*arguments, context).map(Ending::exit_code),
        Verb::Doctor(arguments) => Ok(doctor::doctor(&arguments, context)?),
        Verb::Preflight(arguments) => preflight::preflight(arguments, context),
        Verb::PreflightRank => Ok(preflight::rank(context)?),
        Verb::Bench { arguments } => match bench::bench(&arguments, context)? {},
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
            std::io::stdout().write_all(&script)?;
            Ok(0)
        }
        Verb::Node => Ok(run::node(context).map(|()| 0)?),
        Verb::Look { words } => Ok(doctor::look(&words, context)),
    }
}

fn shell(name: &str) -> Result<Shell, String> {
    match name {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("there are scripts for `bash`, `zsh` and `fish`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(line: &str) -> Vec<OsString> {
        let words = ["eirene-train", "bench"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).unwrap().verb {
            Verb::Bench { arguments } => arguments,
            _ => panic!("{line} is no bench"),
        }
    }

    #[test]
    fn bench_gets_its_arguments_unchanged() {
        for line in ["", "--help", "-h", "allreduce --sizes 1k,2k --json -", "synthetic -- --x", "--version"] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(bench(line), words, "{line}");
        }
    }

    #[test]
    fn bench_without_python_says_what_it_needs() {
        let error = carry_out(Verb::Bench { arguments: Vec::new() }, &Context::of_this_program()).unwrap_err();
        assert!(error.to_string().starts_with("bench needs the Python package eirene_train with torch"), "{error}");
        let nowhere = Context::of_python("/nowhere/python".into(), None);
        let error = carry_out(Verb::Bench { arguments: Vec::new() }, &nowhere).unwrap_err();
        assert_eq!(error.exit_code(), 127, "{error}");
    }
}
