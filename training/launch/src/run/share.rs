//! What the ranks of a node have in common: the run's directory, the secret, the processors, the variables.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use eirene_train_mesh::Secret;
use nix::fcntl::{FcntlArg, Flock, FlockArg, SealFlag, fcntl};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;

use crate::error::Error;
use crate::run::options::Bind;
use crate::run::orders::{Orders, Rendezvous};
use crate::variables;

/// The file in a run's directory that its launcher keeps locked. The directory itself is the ranks' to lock while they meet.
const HELD: &str = "held";
/// Beginning of the name of every run's directory.
const PREFIX: &str = "eirene-train-run.";

/// A directory without an owner is not swept before this age: its owner may be about to lock it.
const SWEPT_AFTER: Duration = Duration::from_mins(1);

/// What programs look for to see how many ranks a node has, and what other launchers leave. Ranks started by us are nobody else's.
const FOREIGN: [&str; 22] = [
    "PMIX_*",
    "PMI_*",
    "PMI2_*",
    "PRTE_*",
    "OMPI_COMM_WORLD_*",
    "OMPI_MCA_ess*",
    "OMPI_MCA_orte_*",
    "OMPI_MCA_pmix",
    "OMPI_UNIVERSE_SIZE",
    "HYDI_*",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_STEP*",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "TORCHELASTIC_*",
    "GROUP_*",
    "ROLE_*",
    "EIRENE_TRAIN_MEETING",
    "EIRENE_TRAIN_STARTER",
];

/// The run's directory on this node, and what is handed to all ranks.
pub(crate) struct Share {
    directory: PathBuf,
    /// Held as long as the run lives: whoever can lock the directory may remove it.
    _lock: Flock<File>,
    environment: Vec<(OsString, OsString)>,
    cpus: Vec<usize>,
    bind: Bind,
    ranks: u32,
}

impl Share {
    /// Makes the run's directory, and sweeps away those whose runs were killed together with their keepers.
    pub(crate) fn new() -> Result<Self, Error> {
        let uid = nix::unistd::getuid().as_raw();
        let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = base.filter(|path| fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid));
        let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
        sweep(&base, uid);
        let directory = nix::unistd::mkdtemp(&base.join(format!("{PREFIX}XXXXXX")))
            .map_err(|errno| Error::system(format!("cannot make a directory in {}", base.display()))(errno.into()))?;
        let lock =
            File::create_new(directory.join(HELD)).map_err(Error::system("cannot write to the run's directory"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| Error::system("cannot lock the run's directory")(errno.into()))?;
        Ok(Self {
            directory,
            _lock: lock,
            environment: std::env::vars_os().filter(|(name, _)| !is_foreign(name)).collect(),
            cpus: allowed_cpus(),
            bind: Bind::None,
            ranks: 1,
        })
    }

    /// Learns what this node is to do, and lays the secret into the directory for ranks whose descriptor is closed on the way.
    pub(crate) fn prepare(&mut self, orders: &Orders) -> Result<(), Error> {
        self.bind = orders.bind;
        self.ranks = orders.count.max(1);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(self.secret_file()).map_err(Error::system("cannot write the run's secret"))?;
        file.write_all(orders.secret.expose()).map_err(Error::system("cannot write the run's secret"))
    }

    /// The run's directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The processors of one rank, where ranks are bound.
    pub(crate) fn cpus(&self, local: u32) -> Option<CpuSet> {
        match self.bind {
            Bind::None => None,
            Bind::Core => {
                let mut set = CpuSet::new();
                for cpu in portion(&self.cpus, local as usize, self.ranks as usize) {
                    set.set(*cpu).ok()?;
                }
                Some(set)
            }
        }
    }

    fn secret_file(&self) -> PathBuf {
        self.directory.join("secret")
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A descriptor of its own for each rank, for a position in it is shared by all who inherit it.
pub(crate) fn secret_descriptor(secret: &Secret) -> Result<OwnedFd, Error> {
    let failed = "cannot hand over the run's secret";
    let descriptor = memfd_create(c"eirene-train-secret", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
        .map_err(|errno| Error::system(failed)(errno.into()))?;
    let mut file = File::from(descriptor);
    file.write_all(secret.expose()).map_err(Error::system(failed))?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|errno| Error::system(failed)(errno.into()))?;
    Ok(file.into())
}

/// All variables of a rank.
pub(crate) fn variables(
    orders: &Orders,
    share: &Share,
    local: u32,
    secret: RawFd,
    listener: Option<RawFd>,
) -> Vec<(OsString, OsString)> {
    let rank = orders.first + local;
    let meeting = match (listener, &orders.meeting) {
        (Some(descriptor), _) => format!("descriptor:{descriptor}"),
        (None, Rendezvous::Here) => format!("directory:{}", share.directory.display()),
        (None, Rendezvous::Address { host, port }) => format!("tcp://{host}:{port}"),
    };
    let mut all = share.environment.clone();
    all.extend(orders.environment.iter().filter(|(name, _)| !is_foreign(name)).cloned());
    let has = |name: &str| all.iter().any(|(known, value)| known == name && !value.is_empty());
    let threads = (share.cpus.len() / orders.count.max(1) as usize).max(1);
    let defaults = [("OMP_NUM_THREADS", threads.to_string()), ("PYTHONUNBUFFERED", "1".to_owned())];
    let defaults: Vec<_> = defaults.into_iter().filter(|(name, _)| !has(name)).collect();
    let ours = [
        (variables::RANK, rank.to_string()),
        (variables::SIZE, orders.size.to_string()),
        (variables::LOCAL_RANK, local.to_string()),
        (variables::LOCAL_SIZE, orders.count.to_string()),
        (variables::NODE, orders.node.to_string()),
        (variables::NODES, orders.hosts.join(",")),
        (variables::WORLD, orders.world.clone()),
        (variables::MEETING, meeting),
        (variables::SECRET_FD, secret.to_string()),
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", orders.size.to_string()),
        ("LOCAL_RANK", local.to_string()),
        ("LOCAL_WORLD_SIZE", orders.count.to_string()),
        ("MASTER_ADDR", orders.master.0.clone()),
        ("MASTER_PORT", orders.master.1.to_string()),
    ];
    let texts = defaults.into_iter().chain(ours).map(|(name, value)| (OsString::from(name), OsString::from(value)));
    all.extend(texts);
    all.push((variables::SECRET_FILE.into(), share.secret_file().into_os_string()));
    all.push((variables::DIRECTORY.into(), share.directory.clone().into_os_string()));
    all
}

/// Whether a variable is another launcher's, and would mislead our ranks.
pub(crate) fn is_foreign(name: &OsStr) -> bool {
    FOREIGN.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.as_bytes().starts_with(beginning.as_bytes()),
        None => name == *pattern,
    })
}

/// The processors this process may use.
fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return vec![0] };
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// One of `parts` equal portions; when there are more parts than things, things are used in turn.
fn portion<T>(things: &[T], part: usize, parts: usize) -> &[T] {
    if things.is_empty() {
        return things;
    }
    if parts >= things.len() {
        let index = part % things.len();
        return &things[index..=index];
    }
    &things[part * things.len() / parts..(part + 1) * things.len() / parts]
}

/// Removes the directories of runs that nothing is left of.
fn sweep(base: &Path, uid: u32) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())) {
        let Ok(found) = entry.metadata() else { continue };
        let age = found.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
        if !found.is_dir() || found.uid() != uid || age < SWEPT_AFTER {
            continue;
        }
        let is_dead = match File::open(entry.path().join(HELD)) {
            Ok(open) => Flock::lock(open, FlockArg::LockExclusiveNonblock).is_ok(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if is_dead {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_cover_all_processors_once() {
        let cpus: Vec<usize> = (0..10).collect();
        let all: Vec<usize> = (0..4).flat_map(|part| portion(&cpus, part, 4).to_vec()).collect();
        assert_eq!(all, cpus);
        assert_eq!(portion(&cpus, 13, 64), &[3]);
        assert_eq!(portion(&[7_usize][..0], 0, 4), &[0_usize; 0]);
    }

    #[test]
    fn other_launchers_variables_do_not_reach_ranks() {
        for name in ["PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "TORCHELASTIC_RUN_ID"]
        {
            assert!(is_foreign(OsStr::new(name)), "{name}");
        }
        for name in ["SLURM_JOB_ID", "OMPI_MCA_btl", "PATH", "RANKS", "EIRENE_TRAIN_TRANSPORT"] {
            assert!(!is_foreign(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_run_s_directory_is_its_owner_s_only_and_goes_with_the_run() {
        let share = Share::new().unwrap();
        let path = share.directory().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        drop(share);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_run_s_directory_is_swept_and_a_living_one_s_is_not() {
        let base = tempfile::tempdir().unwrap();
        let uid = nix::unistd::getuid().as_raw();
        let old = std::time::SystemTime::now() - 2 * SWEPT_AFTER;
        let make = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            let held = File::create_new(path.join(HELD)).unwrap();
            File::open(&path).unwrap().set_modified(old).unwrap();
            (path, held)
        };
        let (dead, _) = make("eirene-train-run.dead");
        let (living, open) = make("eirene-train-run.living");
        let (other, _) = make("somebody-else");
        let fresh = base.path().join("eirene-train-run.fresh");
        fs::create_dir(&fresh).unwrap();
        let _held = Flock::lock(open, FlockArg::LockExclusiveNonblock).unwrap();
        sweep(base.path(), uid);
        assert!(!dead.exists() && living.exists() && other.exists() && fresh.exists());
    }
}
