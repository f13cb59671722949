//! `eirene-train` as a program of its own, without Python around it.

use std::process::ExitCode;

use eirene_train_command::Context;

fn main() -> ExitCode {
    eirene_train_command::main(std::env::args_os(), &Context::of_this_program()).into()
}
