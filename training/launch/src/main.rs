//! `eirene-train` as a program of its own, without Python around it: `run` and `node`.

use std::process::ExitCode;

use eirene_train_launch::command::{self, Context};

fn main() -> ExitCode {
    command::main(std::env::args_os(), &Context::of_this_program()).into()
}
