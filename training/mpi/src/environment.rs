//! What is seen from this process: variables, loaded libraries, the launcher, open sockets. Everything comes
//! in by value, so that rules about it are tested by parameter; [`Surroundings::of_process`] is the one place
//! that looks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Environment variables, as a map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }

    pub(crate) fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.range(prefix.to_owned()..).map_while(move |(name, value)| {
            name.starts_with(prefix).then_some((name.as_str(), value.as_str())).filter(|(_, value)| !value.is_empty())
        })
    }
}

impl<Name: Into<String>, Value: Into<String>> FromIterator<(Name, Value)> for Environment {
    fn from_iter<I: IntoIterator<Item = (Name, Value)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Who started this process, as far as MPI is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// A PMIx server: Open MPI's mpirun, or `srun --mpi=pmix`.
    Pmix,
    /// PMI 1 or 2: MPICH's Hydra, or `srun --mpi=pmi2`.
    Pmi,
    /// Open MPI's variables without PMIx: something hid it.
    OpenMpi,
    /// A SLURM step that offers no way for an MPI to find its peers.
    Slurm,
    /// torchrun, which offers none either.
    Torchrun,
    /// None of these: a world of one.
    Nobody,
}

/// What the environment promises about the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Who promises.
    pub launcher: Launcher,
    /// Tasks, with the variable that says so; none where nobody says.
    pub tasks: Option<(u32, &'static str)>,
    /// This task's number, with the variable that says so.
    pub rank: Option<(u32, &'static str)>,
}

impl Environment {
    /// Reads the promise, in this order: PMIx, PMI, Open MPI, SLURM, torchrun.
    pub fn promise(&self) -> Promise {
        let first = |names: &[&'static str]| names.iter().find_map(|name| Some((self.number(name)?, *name)));
        let step = self.get("SLURM_STEP_ID").or_else(|| self.get("SLURM_STEPID")).is_some();
        let slurm = || step.then(|| first(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"])).flatten();
        if self.get("PMIX_NAMESPACE").is_some() || self.get("PMIX_RANK").is_some() {
            let tasks = first(&["OMPI_COMM_WORLD_SIZE"])
                .or_else(|| if self.get("PRTE_LAUNCHED").is_some() { None } else { slurm() });
            return Promise { launcher: Launcher::Pmix, tasks, rank: first(&["PMIX_RANK"]) };
        }
        if ["PMI_RANK", "PMI_FD", "PMI_PORT", "PMI_SIZE"].iter().any(|name| self.get(name).is_some()) {
            let tasks = first(&["PMI_SIZE"]).or_else(slurm);
            return Promise { launcher: Launcher::Pmi, tasks, rank: first(&["PMI_RANK"]) };
        }
        if let Some(tasks) = first(&["OMPI_COMM_WORLD_SIZE"]) {
            let rank = first(&["OMPI_COMM_WORLD_RANK"]);
            return Promise { launcher: Launcher::OpenMpi, tasks: Some(tasks), rank };
        }
        if let Some(tasks) = slurm() {
            return Promise { launcher: Launcher::Slurm, tasks: Some(tasks), rank: first(&["SLURM_PROCID"]) };
        }
        if self.get("RANK").is_some() && self.get("MASTER_ADDR").is_some() {
            let tasks = first(&["WORLD_SIZE"]);
            return Promise { launcher: Launcher::Torchrun, tasks, rank: first(&["RANK"]) };
        }
        Promise { launcher: Launcher::Nobody, tasks: None, rank: None }
    }
}

/// All that decides which MPI fits, gathered once.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The variables.
    pub environment: Environment,
    /// Files mapped into this process, in the order of the kernel's list.
    pub loaded: Vec<PathBuf>,
    /// Programs of the parent process and its parents, nearest first.
    pub ancestors: Vec<PathBuf>,
    /// The Python prefix (`sys.prefix`); `VIRTUAL_ENV` counts as well.
    pub prefix: Option<PathBuf>,
    /// TCP ports on which somebody in this network namespace listens; none where it cannot be known.
    pub listening: Option<BTreeSet<u16>>,
    /// Descriptors open in this process; none where it cannot be known.
    pub descriptors: Option<BTreeSet<i32>>,
}

impl Surroundings {
    /// Looks around from this process. `prefix` is Python's `sys.prefix`, where there is a Python.
    pub fn of_process(prefix: Option<PathBuf>) -> Self {
        Self {
            environment: Environment::of_process(),
            loaded: loaded(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()),
            ancestors: ancestors(),
            prefix,
            listening: listening(),
            descriptors: descriptors(),
        }
    }
}

/// The files in a `/proc/self/maps`, each once.
pub(crate) fn loaded(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(start) = line.find('/') else { continue };
        let path = PathBuf::from(&line[start..]);
        if files.last() != Some(&path) && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

fn ancestors() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..8 {
        if process <= 1 {
            break;
        }
        if let Ok(program) = std::fs::read_link(format!("/proc/{process}/exe")) {
            found.push(program);
        }
        let Some(parent) =
            std::fs::read_to_string(format!("/proc/{process}/stat")).ok().and_then(|stat| parent_of(&stat))
        else {
            break;
        };
        process = parent;
    }
    found
}

/// The parent in a `/proc/PID/stat`; the name before it may itself hold brackets and blanks.
fn parent_of(stat: &str) -> Option<u32> {
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()
}

fn listening() -> Option<BTreeSet<u16>> {
    let four = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    let six = std::fs::read_to_string("/proc/self/net/tcp6").unwrap_or_default();
    Some(listening_in(&four).chain(listening_in(&six)).collect())
}

/// Ports in state LISTEN (0A) of a `/proc/net/tcp`.
fn listening_in(table: &str) -> impl Iterator<Item = u16> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        let state = fields.nth(1)?;
        let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (state == "0A").then_some(port)
    })
}

fn descriptors() -> Option<BTreeSet<i32>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(pairs: &[(&str, &str)]) -> Promise {
        pairs.iter().copied().collect::<Environment>().promise()
    }

    #[test]
    fn pmix_comes_before_pmi_before_slurm_before_torchrun() {
        let all = [
            ("PMIX_RANK", "0"),
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "3"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("RANK", "0"),
            ("MASTER_ADDR", "a"),
            ("WORLD_SIZE", "5"),
        ];
        let seen = |from: usize| {
            let promise = promise(&all[from..]);
            (promise.launcher, promise.tasks)
        };
        assert_eq!(seen(0), (Launcher::Pmix, Some((2, "SLURM_STEP_NUM_TASKS"))));
        assert_eq!(seen(1), (Launcher::Pmi, Some((3, "PMI_SIZE"))));
        assert_eq!(seen(3), (Launcher::Slurm, Some((2, "SLURM_STEP_NUM_TASKS"))));
        assert_eq!(seen(5), (Launcher::Torchrun, Some((5, "WORLD_SIZE"))));
        assert_eq!(seen(7), (Launcher::Nobody, None));
    }

    #[test]
    fn slurm_promises_tasks_only_inside_a_step() {
        assert_eq!(promise(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]).launcher, Launcher::Nobody);
        assert_eq!(promise(&[("SLURM_NTASKS", "4"), ("SLURM_STEPID", "1")]).tasks, Some((4, "SLURM_NTASKS")),);
        assert_eq!(
            promise(&[("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_STEP_ID", "1")]).tasks,
            Some((1, "SLURM_STEP_NUM_TASKS")),
        );
    }

    #[test]
    fn mpirun_s_own_count_wins_over_the_step_it_runs_in() {
        let promise = promise(&[
            ("PMIX_NAMESPACE", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
        ]);
        assert_eq!(promise.tasks, Some((4, "OMPI_COMM_WORLD_SIZE")));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        assert_eq!(promise(&[("PMIX_RANK", ""), ("PMI_RANK", "")]).launcher, Launcher::Nobody);
    }

    #[test]
    fn maps_give_each_file_once_with_its_blanks() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 1 /opt/my mpi/libmpi.so.40\n\
                    55d1-55d2 r-xp 00001000 fe:00 1 /opt/my mpi/libmpi.so.40\n\
                    7ff0-7ff1 rw-p 00000000 00:00 0 [stack]\n\
                    7ff1-7ff2 r--p 00000000 fe:00 2 /lib/libc.so.6\n";
        assert_eq!(loaded(maps), [PathBuf::from("/opt/my mpi/libmpi.so.40"), PathBuf::from("/lib/libc.so.6")]);
    }

    #[test]
    fn listening_ports_are_those_in_state_listen() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000\n";
        assert_eq!(listening_in(table).collect::<Vec<_>>(), [8080]);
    }

    #[test]
    fn a_process_name_with_brackets_does_not_hide_its_parent() {
        assert_eq!(parent_of("12 (a) b) (c)) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("nonsense"), None);
    }
}
