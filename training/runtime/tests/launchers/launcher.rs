//! The launchers, and how each is told to start so many ranks of a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::started::{Started, program};

/// Who speaks what with the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `eirene-train run`.
    Run,
    /// Open MPI 4's mpirun.
    Orte,
    /// Open MPI 5's.
    Prrte,
    /// MPICH's mpiexec.
    Hydra,
    /// `srun --mpi=pmix`.
    SlurmPmix,
    /// `srun --mpi=pmi2`.
    SlurmPmi2,
    /// `srun --mpi=none`.
    Slurm,
    /// torchrun.
    Torchrun,
}

/// A launcher that is installed here.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The command, up to the number of ranks.
    words: Vec<OsString>,
    /// Where its SLURM is, if it is one.
    conf: Option<PathBuf>,
}

impl Launcher {
    fn new(name: &'static str, kind: Kind, program: &Path, arguments: &[&str]) -> Self {
        let words = std::iter::once(program.as_os_str().to_owned()).chain(arguments.iter().map(OsString::from));
        Self { name, kind, words: words.collect(), conf: None }
    }

    /// Starts ranks of `conformance` with these arguments and variables.
    pub(crate) fn start(&self, ranks: u32, arguments: &[&str], variables: &[(&str, &str)]) -> Started {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(ranks.to_string()).arg(program()).args(arguments);
        if let Some(conf) = &self.conf {
            command.env("SLURM_CONF", conf);
        }
        Started::new(command, variables)
    }
}

/// `eirene-train run`.
pub(crate) fn run() -> Launcher {
    Launcher::new("eirene-train run", Kind::Run, &program(), &["run", "--no-labels", "-n"])
}

/// Open MPI's and MPICH's launchers from the system's packages.
pub(crate) fn mpi_s() -> Vec<Launcher> {
    vec![
        Launcher::new("mpirun (Open MPI 4)", Kind::Orte, &installed("mpirun.openmpi", "openmpi-bin"), &open_mpi(&[])),
        Launcher::new("mpiexec (MPICH 4)", Kind::Hydra, &installed("mpiexec.mpich", "mpich"), &["-n"]),
    ]
}

/// `srun` in its three ways.
pub(crate) fn srun_s(conf: &Path) -> Vec<Launcher> {
    let srun = installed("srun", "slurm-client");
    let of = |name, kind, way| Launcher {
        conf: Some(conf.to_owned()),
        ..Launcher::new(name, kind, &srun, &[way, "--overcommit", "--nodes=1", "--ntasks"])
    };
    vec![
        of("srun --mpi=pmix", Kind::SlurmPmix, "--mpi=pmix"),
        of("srun --mpi=pmi2", Kind::SlurmPmi2, "--mpi=pmi2"),
        of("srun --mpi=none", Kind::Slurm, "--mpi=none"),
    ]
}

/// The wheels' launchers and torchrun, in the virtual environment that EIRENE_TEST_MPI_WHEELS names.
pub(crate) fn wheels() -> Vec<Launcher> {
    let root = wheels_root();
    let program = |name: &str| {
        let path = root.join("bin").join(name);
        assert!(path.exists(), "{} is not there: training/check installs it", path.display());
        path
    };
    let prterun = open_mpi(&["--personality", "ompi", "--map-by", ":OVERSUBSCRIBE"]);
    vec![
        Launcher::new("mpirun (Open MPI 5)", Kind::Prrte, &program("prterun"), &prterun),
        Launcher::new("mpiexec (MPICH 5)", Kind::Hydra, &program("mpiexec.hydra"), &["-n"]),
        Launcher::new("torchrun", Kind::Torchrun, &program("torchrun"), &["--no-python", "--nproc-per-node"]),
    ]
}

/// The virtual environment with the wheels.
pub(crate) fn wheels_root() -> PathBuf {
    let root = std::env::var_os("EIRENE_TEST_MPI_WHEELS");
    root.map(PathBuf::from).expect("EIRENE_TEST_MPI_WHEELS must name training/check's virtual environment")
}

fn open_mpi<'a>(before: &[&'a str]) -> Vec<&'a str> {
    let root: &[&str] = if nix::unistd::geteuid().is_root() { &["--allow-run-as-root"] } else { &[] };
    let personality = before.len().min(2);
    let more: &[&str] = if before.is_empty() { &["--oversubscribe", "-n"] } else { &["-n"] };
    [&before[..personality], root, &before[personality..], more].concat()
}

/// A program in PATH. That it is missing is a failure: these tests would prove nothing.
fn installed(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("`{name}` is not installed: deploy/packages {name}={package}"))
}
