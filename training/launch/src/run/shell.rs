//! How other hosts are reached: the command that starts a node there, and what it takes along.

#![expect(unsafe_code, reason = "there is no safe way to run code between fork and exec")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::environment::Environment;
use crate::run::hosts::Placed;
use crate::run::options::Options;
use crate::variables;

/// Variables that ranks on other hosts get from here: what says where programs and libraries are, and what tunes them. The rest is
/// each host's own; `--env` passes on more.
const PASSED_ON: [&str; 16] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_*",
    "OMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "KMP_*",
    "GOMP_*",
    "TORCH*",
    "NCCL_*",
    "GLOO_*",
    "CUDA_*",
    "EIRENE_TRAIN_*",
    "LANG",
];

/// How other hosts are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shell {
    /// Within SLURM's allocation: one step a host.
    Srun,
    /// By this command, the host and the quoted command behind it.
    Remote(Vec<OsString>),
}

impl Shell {
    pub(crate) fn of(options: &Options) -> Self {
        if let Some(words) = options.launcher.get(variables::RSH) {
            return Self::Remote(words.split_whitespace().map(OsString::from).collect());
        }
        if options.launcher.get("SLURM_JOB_ID").is_some() && is_on_path("srun", &options.launcher) {
            return Self::Srun;
        }
        let patience = format!("ConnectTimeout={}", options.timeout.as_secs().max(1));
        Self::Remote(["ssh", "-T", "-o", "BatchMode=yes", "-o", &patience].map(OsString::from).to_vec())
    }

    /// The command that starts a host's node.
    pub(crate) fn words(&self, placed: &Placed, options: &Options) -> Vec<OsString> {
        let node: Vec<OsString> = match options.launcher.get(variables::REMOTE) {
            Some(words) => words.split_whitespace().map(OsString::from).collect(),
            None => options.node_command.clone(),
        };
        match self {
            _ if placed.here => node,
            Self::Srun => {
                let one = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mpi=none", "--quiet"];
                let there = format!("--nodelist={}", placed.name);
                one.map(OsString::from).into_iter().chain([there.into()]).chain(node).collect()
            }
            Self::Remote(shell) => {
                let quoted: Vec<Vec<u8>> = node.iter().map(|word| quote(word)).collect();
                let command = OsString::from_vec(quoted.join(&b' '));
                shell.iter().cloned().chain([placed.name.clone().into(), command]).collect()
            }
        }
    }
}

fn is_on_path(program: &str, launcher: &Environment) -> bool {
    launcher
        .get("PATH")
        .is_some_and(|path| std::env::split_paths(path).any(|directory| directory.join(program).is_file()))
}

/// A word as a remote shell reads it back unchanged.
fn quote(word: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return bytes.to_vec();
    }
    let mut out = vec![b'\''];
    for byte in bytes {
        if *byte == b'\'' {
            out.extend_from_slice(b"'\\''");
        } else {
            out.push(*byte);
        }
    }
    out.push(b'\'');
    out
}

/// A host's name without the user to log in as.
pub(crate) fn bare(name: &str) -> &str {
    name.split_once('@').map_or(name, |(_, host)| host)
}

/// What goes along to other hosts.
pub(crate) fn passed_on(options: &Options) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr| {
        PASSED_ON.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.as_bytes().starts_with(beginning.as_bytes()),
            None => name == *pattern,
        })
    };
    let own = std::env::vars_os().filter(|(name, _)| passes(name));
    own.chain(options.environment.iter().cloned()).collect()
}

/// A remote shell that lives longer than the launcher would keep its node alive.
pub(crate) fn die_with_launcher(command: &mut Command) {
    let launcher = Pid::this();
    // SAFETY: prctl(2) and getppid(2) are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() == launcher { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn within_a_slurm_job_hosts_are_reached_by_srun_and_else_by_ssh() {
        let bin = tempfile::tempdir().unwrap();
        std::fs::write(bin.path().join("srun"), "").unwrap();
        let launcher = Environment::new([("PATH", bin.path().to_str().unwrap())], "here", 1000);
        let node = vec![OsString::from("/opt/it's here/python"), OsString::from("node")];
        let options = |launcher| Options::new(vec!["true".into()], node.clone(), launcher);
        let placed = Placed { name: "ada@c1".to_owned(), count: 1, here: false };
        let words = |launcher| {
            let options = options(launcher);
            let words = Shell::of(&options).words(&placed, &options);
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
        };
        let remote = r"'/opt/it'\''s here/python' node";
        assert_eq!(
            words(launcher.clone()),
            ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "ada@c1", remote]
        );
        let in_job = words(launcher.clone().with("SLURM_JOB_ID", "7"));
        assert_eq!(in_job[0], "srun");
        assert_eq!(in_job[in_job.len() - 3..], ["--nodelist=ada@c1", "/opt/it's here/python", "node"]);
        let own =
            launcher.with("SLURM_JOB_ID", "7").with(variables::RSH, "ssh -p 2222").with(variables::REMOTE, "et node");
        assert_eq!(words(own), ["ssh", "-p", "2222", "ada@c1", "et node"]);
    }

    proptest! {
        #[test]
        fn a_shell_reads_quoted_words_back(word in "[^\\x00]{0,20}") {
            let quoted = OsString::from_vec([b"printf %s ".to_vec(), quote(OsStr::new(&word))].concat());
            let output = Command::new("sh").arg("-c").arg(quoted).output().unwrap();
            prop_assert_eq!(output.stdout, word.as_bytes());
        }
    }
}
