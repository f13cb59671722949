//! The scheduler over SLURM's own programs, which the launcher runs. The forms of their arguments are in this crate's README.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use eirene_core::clock::Clock;
use eirene_core::launcher::{Launcher, SlurmProgram};
use eirene_core::scheduler::{
    self, Account, CallAs, Job, JobIdentity, JobSpec, Node, Partition, Scheduler, SchedulerError, SchedulerResult,
    signed_reason,
};
use eirene_core::{DrainReason, NodeName, Username};
use jiff::Timestamp;

use crate::calls::{
    Program, Ran, accounted_from, after_submit, bad_name, check_node, check_spec, decide, decode, is_job_name, run,
    said, unreachable,
};
use crate::convert;
use crate::default_partition::DefaultPartition;
use crate::doubts::Doubts;
use crate::listing::Listing;
use crate::owners::{self, SystemUserIds, UserIds};
use crate::places::Places;
use crate::refusals::{Verdict, error, number_of, of_node, says_no_accounting, verdict};
use crate::versions;
use crate::wire::{AccountedJobs, Answer, Envelope, Jobs, Nodes, Partitions, PersonAccounts};

/// The scheduler over SLURM's own programs.
pub struct SlurmCli {
    cluster: String,
    launcher: Arc<dyn Launcher>,
    clock: Arc<dyn Clock>,
    default_partition: DefaultPartition,
    user_ids: Arc<dyn UserIds>,
    places: Places,
    doubts: Doubts,
    /// Whether the programs are new enough: asked until they are.
    is_supported: AtomicBool,
}

impl SlurmCli {
    /// The SLURM that the launcher's programs talk to; `cluster` is what we call it.
    pub fn new(cluster: &str, launcher: Arc<dyn Launcher>, clock: Arc<dyn Clock>) -> Self {
        Self {
            cluster: cluster.to_owned(),
            default_partition: DefaultPartition::new(Arc::clone(&launcher), Arc::clone(&clock)),
            clock,
            launcher,
            user_ids: Arc::new(SystemUserIds),
            places: Places::default(),
            doubts: Doubts::default(),
            is_supported: AtomicBool::new(false),
        }
    }

    /// The same with other knowledge of user ids than the operating system's.
    #[must_use]
    pub fn with_user_ids(mut self, user_ids: Arc<dyn UserIds>) -> Self {
        self.user_ids = user_ids;
        self
    }

    async fn run(&self, program: Program<'_>, what: &str) -> SchedulerResult<Ran> {
        if !self.is_supported.load(Ordering::Relaxed) {
            let version = Program::plain(program.as_, SlurmProgram::Scontrol, &["--version"]);
            match run(self.launcher.as_ref(), version, "ask for SLURM's version").await {
                Ok(ran) => {
                    versions::check_programs(&ran.stdout)?;
                    self.is_supported.store(true, Ordering::Relaxed);
                }
                // A launcher that is older than the portal does not run it.
                Err(SchedulerError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        run(self.launcher.as_ref(), program, what).await
    }

    /// Runs a program that prints JSON: the value, or what its failure decides and says.
    async fn json<T: Answer>(
        &self,
        as_: &CallAs,
        program: SlurmProgram,
        arguments: &[&str],
        what: &str,
    ) -> SchedulerResult<Result<T, (Verdict, String)>> {
        let ran = self.run(Program::plain(as_, program, arguments), what).await?;
        if ran.status != 0 {
            return Ok(Err(ran.failure()));
        }
        let value: T = decode(ran.stdout.into_bytes(), what).await?;
        let failures = value.errors();
        Ok(if failures.is_empty() { Ok(value) } else { Err((decide(&failures), said(&failures))) })
    }

    /// The same where every failure is an error.
    async fn list<T: Answer>(&self, program: SlurmProgram, arguments: &[&str], what: &str) -> SchedulerResult<T> {
        self.json(&CallAs::Service, program, arguments, what)
            .await?
            .map_err(|(verdict, said)| error(verdict, what, &said))
    }

    /// Changes one node, as the service account.
    async fn change_node(&self, node: &NodeName, changes: &[&str], what: &str) -> SchedulerResult<()> {
        check_node(node)?;
        let _place = self.places.other(what).await?;
        let name = format!("nodename={node}");
        let arguments = [&["update", name.as_str()][..], changes].concat();
        let ran = self.run(Program::plain(&CallAs::Service, SlurmProgram::Scontrol, &arguments), what).await?;
        if ran.status == 0 {
            return Ok(());
        }
        let (verdict, said) = ran.failure();
        Err(error(of_node(verdict), what, &said))
    }
}

impl Ran {
    /// What a program that failed decided, by the last line of its errors that is known.
    fn failure(&self) -> (Verdict, String) {
        if says_no_accounting(&self.stderr) {
            return (Verdict::NoAccounting, self.stderr.clone());
        }
        let number = self.stderr.lines().rev().find_map(number_of);
        (number.map_or(Verdict::Unknown, verdict), format!("exit status {}: {}", self.status, self.stderr))
    }
}

#[async_trait]
impl Scheduler for SlurmCli {
    async fn ping(&self) -> SchedulerResult<String> {
        let what = "ping the scheduler";
        let _place = self.places.poll(what).await?;
        let answer: Envelope = self.list(SlurmProgram::Scontrol, &["--json", "ping"], what).await?;
        answer.version_if_up().ok_or_else(|| unreachable(what, "it does not answer"))
    }

    async fn submit(&self, person: &Username, spec: &JobSpec) -> SchedulerResult<JobIdentity> {
        let what = "submit a job";
        check_spec(spec)?;
        let as_ = CallAs::Person(person.clone());
        let program = Program {
            as_: &as_,
            file: SlurmProgram::Sbatch,
            arguments: submit_arguments(spec),
            environment: spec.environment.clone(),
            input: spec.script.clone(),
        };
        let ran = self.run(program, what).await?;
        if ran.status != 0 {
            let (verdict, said) = ran.failure();
            if verdict != Verdict::Unspecified {
                return Err(error(verdict, what, &said));
            }
            return Err(self.doubts.judge(self, &spec.name, self.clock.now(), what, &said).await);
        }
        // `--parsable` prints the number, and the cluster behind a semicolon where there are several.
        let id = ran.stdout.trim().split(';').next().and_then(|id| id.parse::<u32>().ok());
        let id = id.ok_or_else(|| SchedulerError::Malformed { what: format!("{what}: no job number") })?;
        self.doubts.forget(&spec.name);
        match self.job(id).await.map_err(|error| after_submit(what, error))? {
            Some(job) if job.name == spec.name => Ok(job.identity),
            Some(_) | None => Err(unreachable(what, &format!("job {id} was made but could not be read back"))),
        }
    }

    async fn jobs(&self) -> SchedulerResult<scheduler::Jobs> {
        let what = "list all jobs";
        let _place = self.places.poll(what).await?;
        let answer: Listing = self.list(SlurmProgram::Squeue, &["--json", "--all", "--states=all"], what).await?;
        answer.into_jobs(&self.cluster)
    }

    async fn job(&self, id: u32) -> SchedulerResult<Option<Job>> {
        let what = "ask for a job";
        let _place = self.places.other(what).await?;
        let arguments = ["--json", "--all", "--states=all", &format!("--jobs={id}")];
        match self.json::<Jobs>(&CallAs::Service, SlurmProgram::Squeue, &arguments, what).await? {
            Ok(answer) => convert::one_job(&self.cluster, &answer, id).map(Some),
            Err((Verdict::NoSuchJob, _)) => Ok(None),
            Err((verdict, said)) => Err(error(verdict, what, &said)),
        }
    }

    async fn accounted_jobs(&self, name: &str, since: Timestamp) -> SchedulerResult<Vec<Job>> {
        let what = "look a job up in the accounting database";
        if !is_job_name(name) {
            return Err(bad_name());
        }
        let _place = self.places.other(what).await?;
        let (from_s, since_s) = accounted_from(since, self.clock.now());
        let (by_name, from) = (format!("--name={name}"), format!("--starttime=uts{from_s}"));
        let arguments = ["--json", "--allusers", "--duplicates", &by_name, &from];
        let answer: AccountedJobs = self.list(SlurmProgram::Sacct, &arguments, what).await?;
        let uid_of = owners::look_up(&self.user_ids, convert::owners(&answer)).await?;
        convert::accounted_jobs(&self.cluster, &answer, name, since_s, uid_of)
    }

    async fn accounts(&self, person: &Username) -> SchedulerResult<Vec<Account>> {
        let what = "list a person's accounts";
        let as_ = CallAs::Person(person.clone());
        let arguments = ["--json", "show", "associations", "where", &format!("user={person}")];
        let read = self.json::<PersonAccounts>(&as_, SlurmProgram::Sacctmgr, &arguments, what).await?;
        let answer = read.map_err(|(verdict, said)| error(verdict, what, &said))?;
        Ok(convert::accounts(&answer, person))
    }

    async fn cancel(&self, as_: &CallAs, id: u32) -> SchedulerResult<()> {
        let what = "cancel a job";
        let _place = match as_ {
            CallAs::Service => Some(self.places.other(what).await?),
            CallAs::Person(_) => None,
        };
        let ran = self.run(Program::plain(as_, SlurmProgram::Scancel, &[&id.to_string()]), what).await?;
        if ran.status == 0 {
            return Ok(());
        }
        match ran.failure() {
            (Verdict::NoSuchJob | Verdict::AlreadyOver, _) => Ok(()),
            (verdict, said) => Err(error(verdict, what, &said)),
        }
    }

    async fn nodes(&self) -> SchedulerResult<Vec<Node>> {
        let what = "list all nodes";
        let _place = self.places.poll(what).await?;
        let answer: Nodes = self.list(SlurmProgram::Scontrol, &["--json", "--all", "show", "nodes"], what).await?;
        Ok(convert::nodes(&answer))
    }

    async fn drain_node(&self, node: &NodeName, reason: &DrainReason, by: &Username) -> SchedulerResult<()> {
        let reason = format!("reason={}", signed_reason(reason, by));
        self.change_node(node, &["state=drain", &reason], "drain a node").await
    }

    async fn resume_node(&self, node: &NodeName) -> SchedulerResult<()> {
        self.change_node(node, &["state=resume"], "resume a node").await
    }

    async fn partitions(&self) -> SchedulerResult<Vec<Partition>> {
        let arguments = ["--json", "--all", "show", "partitions"];
        let what = "list all partitions";
        let _place = self.places.poll(what).await?;
        let answer: Partitions = self.list(SlurmProgram::Scontrol, &arguments, what).await?;
        Ok(self.default_partition.partitions(&answer).await)
    }
}

/// The arguments of a submit, in the order of the README's table.
fn submit_arguments(spec: &JobSpec) -> Vec<String> {
    let gpus = match (spec.gpus, &spec.gpu_type) {
        (0, _) => None,
        (count, None) => Some(format!("--gres=gpu:{count}")),
        (count, Some(of_type)) => Some(format!("--gres=gpu:{of_type}:{count}")),
    };
    [
        Some("--parsable".to_owned()),
        Some(format!("--job-name={}", spec.name)),
        spec.account.as_ref().map(|account| format!("--account={account}")),
        spec.qos.as_ref().map(|qos| format!("--qos={qos}")),
        spec.partition.as_ref().map(|partition| format!("--partition={partition}")),
        spec.node.as_ref().map(|node| format!("--nodelist={node}")),
        spec.feature.as_ref().map(|feature| format!("--constraint={feature}")),
        Some(format!("--nodes={}", spec.nodes)),
        Some(format!("--ntasks={}", spec.nodes)),
        Some("--ntasks-per-node=1".to_owned()),
        Some(format!("--cpus-per-task={}", spec.cpus)),
        Some(format!("--mem={}M", spec.memory_mib)),
        gpus,
        Some(format!("--time={}", spec.walltime_min)),
        Some(format!("--signal=B:USR1@{}", spec.warn_before_end_s.clamp(1, u16::MAX.into()))),
        Some("--requeue".to_owned()),
        // The other nodes, and the app on the first, go on without one that fails.
        (spec.nodes > 1).then(|| "--no-kill".to_owned()),
        Some("--open-mode=append".to_owned()),
        Some(format!("--chdir={}", spec.directory)),
        Some(format!("--output={}", spec.output)),
        Some(format!("--error={}", spec.output)),
        Some("--export=ALL".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}
