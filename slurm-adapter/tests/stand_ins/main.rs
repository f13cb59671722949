//! What a real cluster does not do on demand: answers that are huge, crowds of calls, a missing accounting database, errors without a
//! cause. A launcher and a slurmrestd stand in for it; whatever they say was seen from SLURM 24.11.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cli;
mod restd;

use std::sync::Once;

use eirene_core::scheduler::{JobSpec, SchedulerError};
use eirene_core::{DrainReason, NodeName, Username};

fn ada() -> Username {
    "ada".parse().unwrap()
}

fn c1() -> NodeName {
    "c1".parse().unwrap()
}

fn all_nodes() -> NodeName {
    "All".parse().unwrap()
}

fn fan() -> DrainReason {
    "the \"fan\"; $(id)".parse().unwrap()
}

fn spec(name: &str) -> JobSpec {
    JobSpec {
        name: name.into(),
        account: None,
        qos: None,
        partition: None,
        node: None,
        feature: None,
        nodes: 1,
        cpus: 1,
        memory_mib: 100,
        gpus: 0,
        gpu_type: None,
        walltime_min: 1,
        script: "#!/bin/sh\n".into(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: "/tmp".into(),
        output: "/tmp/x.log".into(),
        warn_before_end_s: 10,
    }
}

/// One job as slurmctld lists it.
fn listed(id: u32, name: &str) -> String {
    format!(r#"{{"job_id":{id},"name":"{name}","user_id":2001,"job_state":["PENDING"],"submit_time":1795250479}}"#)
}

/// The code of a refusal, or `open` where nothing is known.
fn decided(error: &SchedulerError) -> &str {
    match error {
        SchedulerError::Refused { reason } => &reason.code,
        SchedulerError::NoAccounting => "no accounting",
        SchedulerError::Unreachable { .. } | SchedulerError::Malformed { .. } => "open",
        SchedulerError::Unauthorised { .. } => "unauthorised",
        SchedulerError::Unsupported { .. } => "unsupported",
    }
}

/// rustls asks for its provider once per process, and reqwest for rustls even where nothing is encrypted.
fn use_ring() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::ring::default_provider().install_default().expect("the first provider"));
}
