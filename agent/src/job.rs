//! Who this job is: SLURM's variables, and the job file the launcher wrote as the person.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use eirene_core::job_file::JobFile;

use sha2::{Digest as _, Sha256};

use crate::allocation::Allocation;
use crate::log::Log;
use crate::samples::Sampled;

/// Longest job file, bytes.
const MAX_JOB_FILE: u64 = 256 * 1024;
/// After a requeue the portal writes a file with a new secret; so long is it waited for. A job that waits costs its allocation, but one
/// that gives up costs the session: a portal that is being repaired has half an hour.
const NEW_FILE_WITHIN: Duration = Duration::from_mins(30);
/// Pause between two looks at the file.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The process environment, read once.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Takes pairs as [`std::env::vars_os`] gives them. A person may have set variables that are no text; they are left out.
    pub fn from_pairs(pairs: impl Iterator<Item = (OsString, OsString)>) -> Self {
        Self(pairs.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect())
    }

    /// The value of a variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Where programs are looked for.
    pub(crate) fn path(&self) -> &str {
        self.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin")
    }

    /// A program in the job's PATH.
    pub(crate) fn find_program(&self, name: &str) -> Option<PathBuf> {
        let mut candidates = self.path().split(':').map(|directory| Path::new(directory).join(name));
        candidates.find(|candidate| candidate.is_absolute() && candidate.is_file())
    }

    /// The variables that programs of the node get which the agent starts.
    pub(crate) fn of_programs(&self) -> Vec<(String, String)> {
        self.select(|name| matches!(name, "PATH" | "HOME" | "USER" | "LOGNAME" | "LANG" | "TMPDIR"))
    }

    /// The variables whose names satisfy `wanted`.
    pub(crate) fn select(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        self.0.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Why this is no job the agent can serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// A variable every job has is missing or is not what it should be.
    #[error("`{0}` is not set as SLURM sets it: the agent is started by a batch job")]
    Variable(&'static str),
    /// The job file cannot be read.
    #[error("the job file cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// Others could have read or written the job file.
    #[error("the job file is not private: it must belong to this user and have mode 0600")]
    NotPrivate,
    /// A file for a helper or for ranks is not as the agent wrote it.
    #[error("the file was changed after it was written")]
    Replaced,
    /// The job file is damaged.
    #[error("the job file was not understood")]
    Damaged(#[source] serde_json::Error),
    /// The portal wrote no file for this restart.
    #[error("the job was started again, and the portal wrote no new job file in time")]
    NoNewFile,
}

/// Memory that SLURM gives a job, in MiB (sbatch(1)); what it does not say, or says as 0 for all there is, is none.
#[derive(Debug, Clone, Copy)]
struct Memory {
    per_node: Option<u64>,
    per_cpu: Option<u64>,
}

impl Memory {
    fn read(environment: &Environment) -> Self {
        let mebibytes = |name: &str| environment.get(name)?.parse::<u64>().ok().filter(|mebibytes| *mebibytes > 0);
        Self { per_node: mebibytes("SLURM_MEM_PER_NODE"), per_cpu: mebibytes("SLURM_MEM_PER_CPU") }
    }

    /// On a node of so many processors, bytes.
    fn of_node(self, cpus: u32) -> Option<u64> {
        let by_cpu = self.per_cpu.map(|mebibytes| mebibytes.saturating_mul(cpus.into()));
        Some(self.per_node.or(by_cpu)?.saturating_mul(1024 * 1024))
    }
}

/// This job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The job file.
    pub(crate) file: JobFile,
    /// Where the job file is.
    path: PathBuf,
    /// Number of the job.
    pub(crate) id: u32,
    /// Effective user id.
    pub(crate) uid: u32,
    /// This node.
    pub(crate) node: String,
    /// All nodes and what the job has of them.
    pub(crate) allocation: Allocation,
    /// When the time limit is over, Unix seconds.
    pub(crate) ends_at: Option<u64>,
    /// SLURM's variables about memory, which are the same for all nodes.
    memory: Memory,
}

impl Job {
    /// Reads variables and file; waits for the file of this restart.
    pub(crate) async fn read(path: &Path, environment: &Environment, log: &Log) -> Result<Self, JobError> {
        let number = |name: &'static str| environment.get(name)?.parse::<u32>().ok();
        let id = number("SLURM_JOB_ID").ok_or(JobError::Variable("SLURM_JOB_ID"))?;
        let restart_count = number("SLURM_RESTART_COUNT").unwrap_or(0);
        let node = environment.get("SLURMD_NODENAME").ok_or(JobError::Variable("SLURMD_NODENAME"))?.to_owned();
        let uid = nix::unistd::geteuid().as_raw();
        let file = wait_for(path, uid, restart_count, log).await?;
        let ends_at = environment.get("SLURM_JOB_END_TIME").and_then(|text| text.parse().ok());
        let allocation = Allocation::read(environment, &node).ok_or(JobError::Variable("SLURM_JOB_NODELIST"))?;
        let memory = Memory::read(environment);
        Ok(Self { file, path: path.to_owned(), id, uid, allocation, node, ends_at, memory })
    }

    /// The session's directory in the person's home, which all nodes see.
    pub(crate) fn home_directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// What tells this start of this session from every other: names what it leaves on nodes.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.file.session, self.file.restart_count)
    }

    /// What is to be sampled on a node with so many processors of the job's.
    pub(crate) fn sampled(&self, node: &str, cpus: u32) -> Sampled {
        let nodes = self.allocation.nodes.len();
        let (memory_limit, gpus) = (self.memory.of_node(cpus), self.file.app.gpus);
        Sampled { job: self.id, node: node.to_owned(), nodes, memory_limit, gpus }
    }

    /// The secret that is in the job file now, if that is still the file of this session and this restart. A portal whose database was
    /// restored may have written a new one.
    pub(crate) fn secret_now(&self) -> Option<String> {
        let now = read_file(&self.path, self.uid).ok()?;
        let same = (now.session, now.restart_count) == (self.file.session, self.file.restart_count);
        same.then_some(now.secret)
    }
}

async fn wait_for(path: &Path, uid: u32, restart_count: u32, log: &Log) -> Result<JobFile, JobError> {
    let begun = tokio::time::Instant::now();
    let mut told = false;
    loop {
        let file = read_file(path, uid);
        match file {
            Ok(file) if file.restart_count == restart_count => return Ok(file),
            // A file that is not there (any more) is written again after a requeue.
            Err(error) if restart_count == 0 => return Err(error),
            Err(error @ (JobError::NotPrivate | JobError::Damaged(_))) => return Err(error),
            _ if begun.elapsed() > NEW_FILE_WITHIN => return Err(JobError::NoNewFile),
            _ => {}
        }
        if !told {
            log.say("started again; waiting for the portal's new job file");
            told = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn read_file(path: &Path, uid: u32) -> Result<JobFile, JobError> {
    let text = read_private(path, uid, MAX_JOB_FILE)?;
    serde_json::from_str(&text).map_err(JobError::Damaged)
}

/// The text of a file that only this person may read or write.
pub(crate) fn read_private(path: &Path, uid: u32, most: u64) -> Result<String, JobError> {
    let mut file = File::open(path).map_err(JobError::Unreadable)?;
    let metadata = file.metadata().map_err(JobError::Unreadable)?;
    if metadata.uid() != uid || metadata.mode() & 0o077 != 0 || !metadata.is_file() {
        return Err(JobError::NotPrivate);
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(most).read_to_string(&mut text).map_err(JobError::Unreadable)?;
    Ok(text)
}

/// Makes a file that only this person may read or write, in place of an earlier one.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    // A file system of the network may say only now that there is no room.
    file.sync_all()
}

/// SHA-256 of a text, in hexadecimal.
pub(crate) fn digest(text: &str) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

/// The text of a private file that is to have this digest: every program of the person's may write where it lies, and what is not as it was
/// written is not followed.
pub(crate) fn read_exactly(path: &Path, uid: u32, most: u64, expected: &str) -> Result<String, JobError> {
    let text = read_private(path, uid, most)?;
    if digest(&text) == expected { Ok(text) } else { Err(JobError::Replaced) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use eirene_core::SessionId;
    use eirene_core::job_file::AppSpec;

    use super::*;

    pub(crate) fn file(restart_count: u32) -> JobFile {
        JobFile {
            session: SessionId::generate(),
            restart_count,
            secret: "secret".into(),
            portal: "127.0.0.1:1".into(),
            portal_pin: "00".repeat(32),
            app: AppSpec {
                app: "jupyterlab".parse().unwrap(),
                image_path: "/srv/x.sif".into(),
                gpus: false,
                binds: Vec::new(),
                origin: "http://x.apps.eirene.localhost".into(),
                ready_within_s: 5,
                run: None,
                scratch: None,
            },
            trace: None,
        }
    }

    fn write(path: &Path, file: &JobFile, mode: u32) {
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, serde_json::to_string(file).unwrap()).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(fresh, path).unwrap();
    }

    pub(crate) fn environment(extra: &[(&str, &str)]) -> Environment {
        let pairs = [("SLURM_JOB_ID", "7"), ("SLURMD_NODENAME", "c1")].iter().chain(extra);
        Environment::from_pairs(pairs.map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn variables_that_are_no_text_are_left_out() {
        use std::os::unix::ffi::OsStringExt as _;
        let pairs = [("A".into(), OsString::from_vec(vec![0xff])), ("B".into(), "b".into())];
        let environment = Environment::from_pairs(pairs.into_iter());
        assert_eq!(environment.select(|_| true), [("B".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn the_job_s_memory_is_what_slurm_says() {
        let limit = |variables: &[(&str, &str)]| Memory::read(&environment(variables)).of_node(4);
        assert_eq!(limit(&[("SLURM_MEM_PER_NODE", "2048")]), Some(2 << 30));
        assert_eq!(limit(&[("SLURM_MEM_PER_CPU", "512")]), Some(2 << 30));
        assert_eq!(limit(&[("SLURM_MEM_PER_NODE", "0")]), None, "all there is");
        assert_eq!(limit(&[("SLURM_MEM_PER_NODE", "much")]), None);
        assert_eq!(limit(&[("SLURM_MEM_PER_CPU", "18446744073709551615")]), Some(u64::MAX));
    }

    #[tokio::test]
    async fn a_file_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.json");
        let log = Log::new(std::io::sink());
        write(&path, &file(0), 0o644);
        assert!(matches!(Job::read(&path, &environment(&[]), &log).await, Err(JobError::NotPrivate)));
        write(&path, &file(0), 0o600);
        assert_eq!(Job::read(&path, &environment(&[]), &log).await.unwrap().id, 7);
        assert!(matches!(
            Job::read(&path, &Environment::default(), &log).await,
            Err(JobError::Variable("SLURM_JOB_ID"))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_job_waits_for_its_own_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.json");
        write(&path, &file(0), 0o600);
        let again = path.clone();
        let writer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(29)).await;
            write(&again, &file(1), 0o600);
        });
        let log = Log::new(std::io::sink());
        let restarted = environment(&[("SLURM_RESTART_COUNT", "1")]);
        assert_eq!(Job::read(&path, &restarted, &log).await.unwrap().file.restart_count, 1);
        writer.await.unwrap();
        let twice = environment(&[("SLURM_RESTART_COUNT", "2")]);
        assert!(matches!(Job::read(&path, &twice, &log).await, Err(JobError::NoNewFile)));
    }
}
