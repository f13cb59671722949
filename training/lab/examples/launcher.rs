//! The command `eirene-train` as the lab's tests find it: programs of other packages are not built for them.

use std::process::ExitCode;

use eirene_train_launch::command::{self, Context};

fn main() -> ExitCode {
    command::main(std::env::args_os(), &Context::of_this_program()).into()
}
