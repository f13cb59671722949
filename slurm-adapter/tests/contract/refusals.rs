//! Submits that are refused, with the same words by both implementations.

use eirene_core::scheduler::{CallAs, Job, JobIdentity, JobSpec, Scheduler, SchedulerError};

use crate::cluster::{Cluster, ada, small_job, until_job};

crate::contract! {
    refusals_say_why;
    a_refused_submit_leaves_nothing_that_may_run;
    nodes_that_are_not_there_are_not_changed;
}

fn with(change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    let mut spec = small_job("exit 0");
    change(&mut spec);
    spec
}

async fn refusals_say_why(_: &Cluster, scheduler: &dyn Scheduler) {
    for (what, spec, code) in [
        ("account", with(|spec| spec.account = Some("nope".parse().unwrap())), "account_unknown"),
        ("quality of service", with(|spec| spec.qos = Some("nope".parse().unwrap())), "quality_unknown"),
        ("partition", with(|spec| spec.partition = Some("nope".parse().unwrap())), "partition_unknown"),
        ("GPU type", with(|spec| (spec.gpus, spec.gpu_type) = (1, Some("zzz".parse().unwrap()))), "does_not_fit"),
        ("number of GPUs", with(|spec| spec.gpus = 9), "does_not_fit"),
        ("memory", with(|spec| spec.memory_mib = 1_000_000), "does_not_fit"),
        ("no memory", with(|spec| spec.memory_mib = 0), "size_missing"),
        ("endless", with(|spec| spec.walltime_min = u32::MAX), "bad_time_limit"),
        ("name", with(|spec| spec.name = "x'; $(id)".into()), "bad_name"),
        ("environment", with(|spec| spec.environment.push(("LD_PRELOAD".into(), "/tmp/x".into()))), "bad_environment"),
    ] {
        let error = scheduler.submit(&ada(), &spec).await.unwrap_err();
        let SchedulerError::Refused { reason } = error else { panic!("{what}: {error:?}") };
        assert_eq!(reason.code, code, "{what}: {}", reason.text);
        assert!(reason.text.ends_with('.'), "{}", reason.text);
    }
    // SLURM 26.05 takes these, and they wait.
    for (what, spec, code) in [
        ("CPUs", with(|spec| spec.cpus = 900), "partition_rules"),
        ("nodes", with(|spec| spec.nodes = 9), "partition_nodes"),
    ] {
        let reason_of = |job: &Job| job.reason.as_ref().map(|reason| reason.code.clone());
        match scheduler.submit(&ada(), &spec).await {
            Err(SchedulerError::Refused { reason }) => assert_eq!(reason.code, "does_not_fit", "{what}"),
            Err(error) => panic!("{what}: {error:?}"),
            Ok(JobIdentity { id, .. }) => {
                until_job(scheduler, id, what, |job| reason_of(job).as_deref() == Some(code)).await;
                scheduler.cancel(&CallAs::Person(ada()), id).await.unwrap();
            }
        }
    }
}

async fn a_refused_submit_leaves_nothing_that_may_run(_: &Cluster, scheduler: &dyn Scheduler) {
    let spec = with(|spec| spec.gpus = 9);
    scheduler.submit(&ada(), &spec).await.unwrap_err();
    let jobs = scheduler.jobs().await.unwrap();
    // SLURM keeps a record of some of the jobs that it refuses.
    assert!(jobs.ours.iter().filter(|job| job.name == spec.name).all(|job| job.state.is_final()));
}

async fn nodes_that_are_not_there_are_not_changed(_: &Cluster, scheduler: &dyn Scheduler) {
    let reason = "a test".parse().unwrap();
    for name in ["nope", "ALL"] {
        let node = name.parse().unwrap();
        for answer in [scheduler.drain_node(&node, &reason, &ada()).await, scheduler.resume_node(&node).await] {
            let error = answer.unwrap_err();
            let SchedulerError::Refused { reason } = error else { panic!("{name}: {error:?}") };
            assert_eq!(reason.code, "node_unknown", "{name}: {}", reason.text);
        }
    }
}
