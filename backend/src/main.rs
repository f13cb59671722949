//! `eirened`: the portal, and the commands its operator needs on the same machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    eirene_backend::commands::main()
}
