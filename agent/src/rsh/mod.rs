//! `eirene-rsh`: ssh's command line, for launchers in a session. What it is asked for goes to the session's agent as one typed request, and the
//! command's shell is the container's own, on the other node. There are no keys and no ports: who reaches the step socket is the person.
//!
//! It is the agent's own program under another name, so it is there in every image. Under the name `ssh` it stands before an image's own ssh, to
//! which it gives everything that is not about a node of this session.

mod line;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use eirene_steps::{Answer, Asker, Program, RemoteRequest, Request, WireError};

use crate::container::GUARD;
use crate::launchers;
use line::{Call, Line};

/// What ssh ends with where it is its own failure.
pub(crate) const EXIT_FAILED: u8 = 255;

/// The name under which this program was started, if it is one that speaks ssh's command line.
pub fn name(program: &OsString) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    [launchers::RSH, launchers::SSH].into_iter().find(|known| name == *known)
}

/// Runs a command line of ssh's, without the program's name, that was given under `name`; gives the exit status. To be called while the process
/// has one thread.
pub fn rsh(name: &str, words: &[OsString]) -> u8 {
    let outcome = match line::read(words.iter().cloned()) {
        Ok(Line::Version) => {
            say(launchers::RSH, &format!("version {}, with ssh's command line", env!("CARGO_PKG_VERSION")));
            return 0;
        }
        Ok(Line::Call(call)) => carry_out(&call),
        Err(text) => Err(Failed::NotOurs(text)),
    };
    match outcome {
        Ok(status) => status,
        Err(Failed::NotOurs(text)) => {
            let other = (name == launchers::SSH).then(image_s_own).flatten();
            let why = match other {
                // Gives back control only where it could not be started.
                Some(other) => {
                    format!(
                        "`{}` cannot be started: {}",
                        other.display(),
                        std::process::Command::new(&other).args(words).exec()
                    )
                }
                None => text,
            };
            say(name, &why);
            EXIT_FAILED
        }
        Err(Failed::Here(text)) => {
            say(name, &text);
            EXIT_FAILED
        }
    }
}

/// Why a command did not run, in one sentence.
enum Failed {
    /// It is not about this session: an image's own ssh may have an answer.
    NotOurs(String),
    /// It is.
    Here(String),
}

fn carry_out(call: &Call) -> Result<u8, Failed> {
    if let Some(user) = call.user.as_deref().filter(|user| !is_own(user)) {
        return Err(Failed::NotOurs(format!(
            "a session's commands run as the person whose it is, and not as `{user}`"
        )));
    }
    if call.command.is_none() && !call.no_input && io::stdin().is_terminal() {
        let text =
            format!("say a command: there is no terminal on the other node, as in `eirene-rsh {} hostname`", call.host);
        return Err(Failed::Here(text));
    }
    let socket = std::env::var_os(eirene_steps::SOCKET_VARIABLE).map_or_else(launchers::socket, PathBuf::from);
    let null = std::fs::File::open("/dev/null").map_err(|error| Failed::Here(format!("/dev/null: {error}")))?;
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let input = if call.no_input || !may_read() { null.as_fd() } else { input.as_fd() };
    let program = Program { command: call.command.iter().cloned().collect(), ..Program::default() };
    let request = Request::Remote(RemoteRequest { node: call.host.clone(), program });
    let mut asker =
        Asker::ask(&socket, &request, &[input, output.as_fd(), errors.as_fd()]).map_err(|error| match error {
            WireError::Broken(error) => Failed::NotOurs(format!(
                "`{}` cannot be reached: this is not within a session of several nodes ({}: {error})",
                call.host,
                socket.display()
            )),
            error => Failed::Here(error.to_string()),
        })?;
    let gone = |error: WireError| Failed::Here(format!("`{}`: {error}", call.host));
    loop {
        match asker.hear().map_err(gone)? {
            // From here on the caller goes its own way; what it gave for output stays open.
            Answer::Starting { .. } if call.background => {
                nix::unistd::daemon(true, true).map_err(|error| gone(io::Error::from(error).into()))?;
            }
            Answer::Starting { .. } => {}
            Answer::Refused { code, text } if code == NO_SUCH_NODE => return Err(Failed::NotOurs(text)),
            Answer::Refused { text, .. } => return Err(Failed::Here(text)),
            Answer::Ended { status } => return Ok(status),
        }
    }
}

/// The code with which a host that is no node of the session is refused.
pub(crate) const NO_SUCH_NODE: &str = "no_such_node";

/// Whether this process may read its standard input: a terminal is for whoever is in its foreground (tcsetpgrp(3)), and who starts commands in
/// the background would lose what is typed to them.
fn may_read() -> bool {
    let input = io::stdin();
    !input.is_terminal() || nix::unistd::tcgetpgrp(&input).is_ok_and(|foreground| foreground == nix::unistd::getpgrp())
}

/// Whether this is the person's own name: as the session says it, or the image's list of users.
fn is_own(user: &str) -> bool {
    let said = ["USER", "LOGNAME"].into_iter().any(|name| std::env::var(name).is_ok_and(|own| own == user));
    let uid = nix::unistd::geteuid().to_string();
    let listed = |line: &str| {
        let mut fields = line.split(':');
        fields.next() == Some(user) && fields.nth(1) == Some(&uid)
    };
    said || std::fs::read_to_string("/etc/passwd").is_ok_and(|text| text.lines().any(listed))
}

/// The next `ssh` in the PATH that is not this program.
fn image_s_own() -> Option<PathBuf> {
    let own = std::fs::canonicalize(GUARD).or_else(|_| std::env::current_exe()).ok();
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(launchers::SSH));
    candidates.find(|candidate| candidate.is_file() && std::fs::canonicalize(candidate).ok() != own)
}

fn say(name: &str, text: &str) {
    use std::io::Write as _;
    // Nobody can be told that there is no standard error.
    let _ = writeln!(io::stderr(), "{name}: {text}");
}
