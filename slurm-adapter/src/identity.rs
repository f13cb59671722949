//! Which job is which.
//!
//! SLURM uses job numbers again, and it moves a job's submit time when it requeues the job. So the identity that a submit
//! returns holds the *first* submit time, [`Scheduler::jobs`](eirene_core::scheduler::Scheduler::jobs) reports what SLURM says
//! now, and [`same_job`] compares the two. A job's name, where it is known, is the stronger proof: markers are unguessable.

use eirene_core::scheduler::{Job, JobIdentity};

/// How the names of our jobs begin; a name that begins so proves nothing, since anybody may choose it.
pub const JOB_NAME_PREFIX: &str = "eirene-";

/// Whether a job's name looks like one of ours.
pub fn is_ours(name: &str) -> bool {
    name.starts_with(JOB_NAME_PREFIX)
}

/// Whether `seen` is the job that was `known` by the identity of its first submit.
pub fn same_job(known: &JobIdentity, seen: &Job) -> bool {
    let moved = seen.restart_count > 0 && seen.identity.submitted_at > known.submitted_at;
    known.cluster == seen.identity.cluster
        && known.id == seen.identity.id
        && (known.submitted_at == seen.identity.submitted_at || moved)
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::JobState;
    use jiff::Timestamp;

    use super::*;

    fn seen(second: i64, restart_count: u32) -> Job {
        Job {
            identity: identity(second),
            name: "eirene-x".into(),
            uid: 2001,
            state: JobState::Running,
            word: "RUNNING".into(),
            reason: None,
            partition: "main".into(),
            nodes: Vec::new(),
            restart_count,
            started_at: None,
            ends_at: None,
            preempted_at: None,
            exit_code: None,
            gpus: Vec::new(),
        }
    }

    fn identity(second: i64) -> JobIdentity {
        JobIdentity { cluster: "demo".into(), id: 7, submitted_at: Timestamp::from_second(second).unwrap() }
    }

    #[test]
    fn a_requeue_moves_the_submit_time_forward_only() {
        assert!(same_job(&identity(100), &seen(100, 0)));
        assert!(same_job(&identity(100), &seen(160, 1)));
        assert!(!same_job(&identity(100), &seen(160, 0)), "a later job with the same number");
        assert!(!same_job(&identity(100), &seen(40, 1)), "an earlier job with the same number");
    }

    #[test]
    fn number_and_cluster_count() {
        let known = identity(100);
        assert!(!same_job(&JobIdentity { id: 8, ..known.clone() }, &seen(100, 0)));
        assert!(!same_job(&JobIdentity { cluster: "other".into(), ..known }, &seen(100, 0)));
    }
}
