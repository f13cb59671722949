//! What becomes of a job, and what is seen of it.

use std::time::{Duration, Instant};

use eirene_core::NodeName;
use eirene_core::clock::{Clock as _, SystemClock};
use eirene_core::scheduler::{CallAs, Job, JobSpec, JobState, Scheduler, SchedulerError};
use eirene_slurm_adapter::same_job;
use jiff::SignedDuration;

use crate::cluster::{Cluster, UNKNOWN_JOB, ada, grace, small_job, until_job};

crate::contract! {
    it_answers_with_its_version;
    a_job_is_submitted_runs_and_completes;
    a_job_runs_on_the_node_it_names;
    a_job_that_fails_says_so;
    a_job_that_cannot_run_waits_with_a_reason;
    a_cancelled_job_is_cancelled_and_cancelling_again_is_no_error;
    only_the_owner_and_the_operator_cancel;
    an_unknown_job_is_none;
    the_accounting_database_finds_a_job_by_its_name;
    the_accounts_of_a_person_are_listed;
    gpus_are_allocated_and_seen;
    a_requeued_job_is_the_same_job;
    a_name_made_to_deceive_is_only_a_name;
    nodes_and_partitions_are_seen;
}

async fn it_answers_with_its_version(_: &Cluster, scheduler: &dyn Scheduler) {
    let version = scheduler.ping().await.unwrap();
    assert!(version.starts_with("SLURM 2"), "{version}");
}

async fn a_job_is_submitted_runs_and_completes(cluster: &Cluster, scheduler: &dyn Scheduler) {
    let before = SystemClock.now();
    let spec = small_job("env; pwd; sleep 2");
    let identity = scheduler.submit(&ada(), &spec).await.unwrap();
    assert_eq!(identity.cluster, "demo");
    assert!((identity.submitted_at - before).get_seconds().abs() < 60, "{identity:?}");
    let running = until_job(scheduler, identity.id, "runs", |job| job.state != JobState::Pending).await;
    assert_eq!(running.identity, identity);
    assert_eq!((running.name.as_str(), running.uid, running.partition.as_str()), (spec.name.as_str(), 2001, "main"));
    assert_eq!((running.restart_count, running.nodes.len()), (0, 1));
    assert!(running.started_at.is_some() && running.ends_at.is_some());
    let over = until_job(scheduler, identity.id, "completes", |job| job.state.is_final()).await;
    assert_eq!((over.state, over.exit_code, over.reason), (JobState::Completed, Some(0), None));
    assert_eq!(scheduler.job(identity.id).await.unwrap().map(|job| job.identity), Some(identity));

    let log = cluster.read_file(&spec.output).await.expect("the job wrote its log");
    let lines = log.lines().collect::<Vec<_>>();
    assert!(lines.contains(&"EIRENE_CONTRACT=a b;$(c)"), "the environment is given as it is: {log}");
    assert!(lines.contains(&"PATH=/usr/bin:/bin") && lines.contains(&"/home/ada"), "{log}");
    assert!(!log.contains("HOME=/root") && !log.contains("SLURM_JWT"), "nothing of ours leaks: {log}");
}

async fn a_job_runs_on_the_node_it_names(_: &Cluster, scheduler: &dyn Scheduler) {
    for name in ["c2", "c1"] {
        let spec = JobSpec { node: Some(name.parse().unwrap()), ..small_job("exit 0") };
        let identity = scheduler.submit(&ada(), &spec).await.unwrap();
        let over = until_job(scheduler, identity.id, "completes", |job| job.state.is_final()).await;
        assert_eq!(over.nodes, [name.parse::<NodeName>().unwrap()]);
    }
}

async fn a_job_that_fails_says_so(_: &Cluster, scheduler: &dyn Scheduler) {
    let identity = scheduler.submit(&ada(), &small_job("exit 3")).await.unwrap();
    let over = until_job(scheduler, identity.id, "fails", |job| job.state.is_final()).await;
    assert_eq!((over.state, over.exit_code), (JobState::Failed, Some(3)));
    assert_eq!(over.reason.map(|reason| reason.code).as_deref(), Some("exit_status"));
}

async fn a_job_that_cannot_run_waits_with_a_reason(_: &Cluster, scheduler: &dyn Scheduler) {
    let mut spec = small_job("exit 0");
    spec.walltime_min = 14_400;
    let identity = scheduler.submit(&ada(), &spec).await.unwrap();
    let reasoned = |code: &str| code != "not_considered_yet";
    let waiting = until_job(scheduler, identity.id, "has a reason", |job| {
        job.reason.as_ref().is_some_and(|reason| reasoned(&reason.code))
    })
    .await;
    assert_eq!(waiting.state, JobState::Pending);
    assert_eq!(waiting.reason.unwrap().code, "partition_time");
    assert_eq!((waiting.ends_at, waiting.exit_code, waiting.nodes.len()), (None, None, 0));
    scheduler.cancel(&CallAs::Person(ada()), identity.id).await.unwrap();
    until_job(scheduler, identity.id, "is cancelled", |job| job.state == JobState::Cancelled).await;
}

async fn a_cancelled_job_is_cancelled_and_cancelling_again_is_no_error(_: &Cluster, scheduler: &dyn Scheduler) {
    let person = CallAs::Person(ada());
    let identity = scheduler.submit(&ada(), &small_job("sleep 60")).await.unwrap();
    until_job(scheduler, identity.id, "runs", |job| job.state == JobState::Running).await;
    scheduler.cancel(&person, identity.id).await.unwrap();
    let over = until_job(scheduler, identity.id, "is over", |job| job.state.is_final()).await;
    assert_eq!(over.state, JobState::Cancelled);
    assert_eq!(over.reason.map(|reason| reason.code).as_deref(), Some("cancelled"));
    scheduler.cancel(&person, identity.id).await.unwrap();
    scheduler.cancel(&CallAs::Service, identity.id).await.unwrap();
    scheduler.cancel(&person, UNKNOWN_JOB).await.unwrap();
    scheduler.cancel(&CallAs::Service, UNKNOWN_JOB).await.unwrap();
}

async fn only_the_owner_and_the_operator_cancel(_: &Cluster, scheduler: &dyn Scheduler) {
    let identity = scheduler.submit(&ada(), &small_job("sleep 60")).await.unwrap();
    until_job(scheduler, identity.id, "runs", |job| job.state == JobState::Running).await;
    let refused = scheduler.cancel(&CallAs::Person(grace()), identity.id).await.unwrap_err();
    let SchedulerError::Refused { reason } = refused else { panic!("{refused:?}") };
    assert_eq!(reason.code, "not_permitted");
    assert_eq!(scheduler.job(identity.id).await.unwrap().map(|job| job.state), Some(JobState::Running));
    scheduler.cancel(&CallAs::Service, identity.id).await.unwrap();
    until_job(scheduler, identity.id, "is over", |job| job.state == JobState::Cancelled).await;
}

async fn an_unknown_job_is_none(_: &Cluster, scheduler: &dyn Scheduler) {
    assert_eq!(scheduler.job(UNKNOWN_JOB).await.unwrap(), None);
}

async fn the_accounting_database_finds_a_job_by_its_name(_: &Cluster, scheduler: &dyn Scheduler) {
    let before = SystemClock.now();
    let spec = small_job("exit 0");
    let identity = scheduler.submit(&ada(), &spec).await.unwrap();
    let begun = Instant::now();
    let found = loop {
        let found = scheduler.accounted_jobs(&spec.name, before).await.unwrap();
        if found.first().is_some_and(|job| job.state.is_final()) {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "the database knows the job: {found:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let [job] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&job.identity, &job.name, job.uid, job.state), (&identity, &spec.name, 2001, JobState::Completed));
    assert_eq!(scheduler.accounted_jobs(&format!("{}-not", spec.name), before).await.unwrap(), []);
    let later = before + SignedDuration::from_mins(30);
    assert_eq!(scheduler.accounted_jobs(&spec.name, later).await.unwrap(), []);
}

async fn the_accounts_of_a_person_are_listed(_: &Cluster, scheduler: &dyn Scheduler) {
    let accounts = scheduler.accounts(&ada()).await.unwrap();
    let seen = accounts.iter().map(|account| (account.name.as_str(), account.partition.as_ref(), account.is_default));
    assert_eq!(seen.collect::<Vec<_>>(), [("research", None, true), ("spare", None, false)]);
}

async fn gpus_are_allocated_and_seen(_: &Cluster, scheduler: &dyn Scheduler) {
    let mut typed = small_job("sleep 60");
    (typed.gpus, typed.gpu_type) = (1, Some("h100".parse().unwrap()));
    let identity = scheduler.submit(&ada(), &typed).await.unwrap();
    let running = until_job(scheduler, identity.id, "runs", |job| job.state == JobState::Running).await;
    assert_eq!(running.gpus, [("h100".to_owned(), 1)]);
    assert_eq!(running.nodes.first().map(ToString::to_string).as_deref(), Some("c2"));
    let nodes = scheduler.nodes().await.unwrap();
    let node = nodes.iter().find(|node| node.name.as_str() == "c2").unwrap();
    assert!(node.gpus[0].allocated >= 1 && node.cpus_allocated >= 1 && node.memory_allocated_mib >= 200, "{node:?}");
    scheduler.cancel(&CallAs::Service, identity.id).await.unwrap();

    let mut any = small_job("sleep 60");
    any.gpus = 1;
    let identity = scheduler.submit(&ada(), &any).await.unwrap();
    let running = until_job(scheduler, identity.id, "runs", |job| job.state == JobState::Running).await;
    assert_eq!(running.gpus.iter().map(|(_, count)| count).sum::<u32>(), 1, "{:?}", running.gpus);
    scheduler.cancel(&CallAs::Service, identity.id).await.unwrap();
    until_job(scheduler, identity.id, "is over", |job| job.state.is_final()).await;
}

async fn a_requeued_job_is_the_same_job(cluster: &Cluster, scheduler: &dyn Scheduler) {
    let first = scheduler.submit(&ada(), &small_job("sleep 60")).await.unwrap();
    until_job(scheduler, first.id, "runs", |job| job.state == JobState::Running).await;
    // A requeue in the submit's own second would leave its submit time.
    let begun = Instant::now();
    while SystemClock.now().as_second() <= first.submitted_at.as_second() + 1 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the clock goes on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.on_head(crate::cluster::SERVICE_ACCOUNT, &["scontrol", "requeue", &first.id.to_string()]).await;
    let again = until_job(scheduler, first.id, "was requeued", |job| job.restart_count == 1).await;
    assert_eq!(again.state, JobState::Pending);
    assert!(same_job(&first, &again));
    // SLURM moves the submit time a moment after it counts the restart.
    let moved = |job: &Job| job.identity.submitted_at > first.submitted_at;
    let again = until_job(scheduler, first.id, "has a new submit time", moved).await;
    assert!(same_job(&first, &again));
    scheduler.cancel(&CallAs::Service, first.id).await.unwrap();
}

async fn a_name_made_to_deceive_is_only_a_name(cluster: &Cluster, scheduler: &dyn Scheduler) {
    let name = "eirene-x\n{\"jobs\":[]},\"'<script>;1|2";
    let arguments = ["sbatch", "--parsable", "--time=1", "--mem=100M", "--chdir=/tmp", "--wrap=sleep 20"];
    let named = format!("--job-name={name}");
    let id = cluster.on_head("grace", &[&arguments[..], &[named.as_str()]].concat()).await;
    let id = id.trim().parse::<u32>().unwrap();
    let job = until_job(scheduler, id, "is there", |_| true).await;
    assert_eq!((job.name.as_str(), job.uid), (name, 2002));
    scheduler.cancel(&CallAs::Person(grace()), id).await.unwrap();
}

async fn nodes_and_partitions_are_seen(_: &Cluster, scheduler: &dyn Scheduler) {
    let nodes = scheduler.nodes().await.unwrap();
    let names = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["c1", "c2"]);
    for (node, of_type) in nodes.iter().zip(["a100", "h100"]) {
        assert!(node.available, "{node:?}");
        assert_eq!((node.cpus, node.memory_mib), (8, 16_000));
        assert_eq!(
            node.gpus.iter().map(|gpus| (gpus.gpu_type.as_str(), gpus.total)).collect::<Vec<_>>(),
            [(of_type, 2)]
        );
        assert!(node.partitions.iter().any(|partition| partition.as_str() == "main"));
    }
    let mut partitions = scheduler.partitions().await.unwrap();
    partitions.sort_by(|a, b| a.name.cmp(&b.name));
    let seen = partitions
        .iter()
        .map(|p| (p.name.as_str(), p.is_default, p.available, p.max_walltime_min, p.nodes.len()))
        .collect::<Vec<_>>();
    assert_eq!(seen, [("long", false, true, Some(2880), 1), ("main", true, true, Some(480), 2)]);
}

/// The batch shell alone gets SIGUSR1 before the end. SLURM looks at warnings twice a minute, so both implementations wait at once.
#[tokio::test]
async fn the_batch_shell_is_warned_before_the_end() {
    let Some(cluster) = Cluster::find().await else { return };
    let (restd, cli) = (cluster.restd(u32::MAX), cluster.cli());
    let warned = async |scheduler: &dyn Scheduler| {
        let mut spec = small_job("trap 'echo warned; exit 7' USR1; while :; do sleep 1; done");
        (spec.walltime_min, spec.warn_before_end_s) = (2, 110);
        let identity = scheduler.submit(&ada(), &spec).await.unwrap();
        let over = until_job(scheduler, identity.id, "is warned", |job| job.state.is_final()).await;
        assert_eq!(over.exit_code, Some(7), "{over:?}");
    };
    tokio::join!(warned(&restd), warned(&cli));
}
