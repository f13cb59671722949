//! The command `eirene-train` as the lab's tests find it: programs of other packages are not built for them.

use std::process::ExitCode;

use eirene_train_command::Context;

fn main() -> ExitCode {
    eirene_train_command::main(std::env::args_os(), &Context::of_this_program()).into()
}
