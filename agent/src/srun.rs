//! Command lines of srun(1), inside the job's allocation. Everything is said by arguments: the batch step's own variables, which are about one
//! task on one node, are kept from it.

use std::ffi::OsString;
use std::path::PathBuf;

use tokio::process::Command;

use crate::job::Environment;

/// How SLURM starts steps in this job.
#[derive(Debug, Clone)]
pub(crate) struct Srun {
    program: PathBuf,
    agent: PathBuf,
    job: u32,
    environment: Vec<(String, String)>,
}

impl Srun {
    /// For a job, or none where there is no `srun` in the job's PATH.
    pub(crate) fn find(job: u32, environment: &Environment) -> Option<Self> {
        let program = environment.find_program("srun")?;
        let agent = std::env::current_exe().ok()?;
        let mut kept = environment.of_programs();
        // Where a cluster's configuration is not in its usual place; and how often the job was started again, which SLURM tells the batch script
        // alone. A step knows it by its srun.
        kept.extend(environment.select(|name| matches!(name, "SLURM_CONF" | "SLURM_RESTART_COUNT")));
        Some(Self { program, agent, job, environment: kept })
    }

    /// A step that takes nothing from others: it shares what the job has, and waits for nobody. Of GPUs nothing is said, and by that SLURM gives it
    /// all that the job has on its nodes. `options` are srun's, `words` the agent's own.
    pub(crate) fn step(&self, options: &[String], words: &[&OsString]) -> Command {
        let mut command = self.command();
        command
            .args([format!("--jobid={}", self.job)])
            .args(["--overlap", "--mem=0", "--chdir=/", "--export=ALL", "--quiet", "--input=0"])
            .args(options)
            .arg(&self.agent)
            .args(words);
        command
    }

    /// Ways in which this SLURM helps ranks find each other: `pmix`, `pmi2` and the like.
    pub(crate) async fn ways(&self) -> Vec<String> {
        let asked = self.command().arg("--mpi=list").stdin(std::process::Stdio::null()).output().await;
        let text = asked.map(|asked| [asked.stdout, asked.stderr].concat()).unwrap_or_default();
        ways(&String::from_utf8_lossy(&text))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(self.environment.iter().cloned()).kill_on_drop(true);
        command
    }

    /// The program that starts steps.
    #[cfg(test)]
    pub(crate) fn of(program: &str) -> Self {
        Self { program: program.into(), agent: "/agent".into(), job: 7, environment: Vec::new() }
    }
}

/// The words of `srun --mpi=list`, of old and new versions.
fn ways(text: &str) -> Vec<String> {
    let mut all: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("srun: ").or(Some(line.trim())))
        .filter(|line| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .map(ToOwned::to_owned)
        .collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::environment;

    #[test]
    fn the_ways_of_old_and_new_versions_are_read() {
        let new = "MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2\nspecific pmix plugin versions available: pmix_v5\n";
        assert_eq!(ways(new), ["none", "pmi2", "pmix"]);
        let old = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n";
        assert_eq!(ways(old), ["none", "pmi2"]);
        assert!(ways("srun: error: no such thing").is_empty());
    }

    #[test]
    fn a_step_is_told_everything_by_arguments() {
        let srun = Srun::of("/usr/bin/srun");
        let command = srun.step(&["--nodes=1".into()], &[&"rank".into()]);
        let words: Vec<_> = command.as_std().get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.first().map(AsRef::as_ref), Some("--jobid=7"));
        assert_eq!(words[words.len() - 3..], ["--nodes=1", "/agent", "rank"]);
        // No step of the person's takes from another what that one has, or waits for it.
        for word in ["--overlap", "--mem=0"] {
            assert!(words.iter().any(|told| told == word), "{word}: {words:?}");
        }
    }

    #[test]
    fn a_step_knows_of_the_batch_script_s_variables_only_what_is_the_job_s() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("srun"), "").unwrap();
        let given = environment(&[
            ("PATH", directory.path().to_str().unwrap()),
            ("SLURM_CONF", "/opt/slurm.conf"),
            ("SLURM_RESTART_COUNT", "1"),
            ("SLURM_PROCID", "0"),
            ("SLURM_CPUS_PER_TASK", "2"),
        ]);
        let command = Srun::find(7, &given).unwrap().step(&[], &[]);
        let names: Vec<_> = command.as_std().get_envs().map(|(name, _)| name.to_string_lossy()).collect();
        assert_eq!(names, ["PATH", "SLURM_CONF", "SLURM_RESTART_COUNT"]);
    }
}
