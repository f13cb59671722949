//! SLURM's states of jobs and nodes in our words.
//!
//! A state is one base word and any number of flags. Of what a flag adds, only that counts which changes what a person would say:
//! a job that goes back to the queue waits, whatever it was; one whose nodes are still being prepared or cleaned is not yet, or
//! not yet no longer, there.

use eirene_core::scheduler::JobState;

/// Flags of a job that goes, or has gone, back to the queue.
const BACK_TO_QUEUE: [&str; 7] =
    ["REQUEUED", "REQUEUE", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "EXPEDITING"];

/// Our word for a job's state; none when no base word is known.
pub(crate) fn job_state(words: &[String]) -> Option<JobState> {
    let has = |word: &str| words.iter().any(|have| have == word);
    let base = words.iter().find_map(|word| base_state(word));
    if has("REVOKED") {
        return Some(JobState::Cancelled);
    }
    if BACK_TO_QUEUE.iter().any(|flag| has(flag)) || base == Some(JobState::Pending) {
        return Some(JobState::Pending);
    }
    if has("COMPLETING") || has("STAGE_OUT") {
        return Some(JobState::Completing);
    }
    match base {
        Some(JobState::Running) | None if has("CONFIGURING") || has("POWER_UP_NODE") => Some(JobState::Configuring),
        Some(JobState::Running) | None if has("STOPPED") => Some(JobState::Suspended),
        None if has("LAUNCH_FAILED") || has("RECONFIG_FAIL") || has("GETENV_FAILED") => Some(JobState::Failed),
        None if has("RESIZING") || has("SIGNALING") => Some(JobState::Running),
        base => base,
    }
}

fn base_state(word: &str) -> Option<JobState> {
    Some(match word {
        "PENDING" => JobState::Pending,
        "RUNNING" => JobState::Running,
        "SUSPENDED" => JobState::Suspended,
        "COMPLETED" => JobState::Completed,
        "CANCELLED" => JobState::Cancelled,
        "FAILED" => JobState::Failed,
        "TIMEOUT" | "DEADLINE" => JobState::TimedOut,
        "NODE_FAIL" | "BOOT_FAIL" => JobState::NodeFailed,
        "PREEMPTED" => JobState::Preempted,
        "OUT_OF_MEMORY" => JobState::OutOfMemory,
        _ => return None,
    })
}

/// A node's state in plain words, and whether it takes jobs.
pub(crate) fn node_state(words: &[String]) -> (&'static str, bool) {
    let has = |word: &str| words.iter().any(|have| have == word);
    let any = |list: &[&str]| list.iter().any(|word| has(word));
    let busy = any(&["ALLOCATED", "MIXED", "COMPLETING"]);
    if any(&["DOWN", "ERROR", "FAIL", "NOT_RESPONDING", "INVALID_REG", "FUTURE", "POWERING_DOWN", "REBOOT_ISSUED"]) {
        return ("down", false);
    }
    if any(&["DRAIN", "POWER_DRAIN", "REBOOT_REQUESTED"]) {
        return (if busy { "draining" } else { "drained" }, false);
    }
    if any(&["RESERVED", "MAINTENANCE", "BLOCKED"]) {
        return ("reserved", false);
    }
    if has("MIXED") {
        ("mixed", true)
    } else if any(&["ALLOCATED", "COMPLETING"]) {
        ("allocated", true)
    } else if has("IDLE") {
        ("idle", true)
    } else {
        ("unknown", false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every base word and flag of SLURM 22.05 to 26.05.
    const BASES: [&str; 12] = [
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    ];
    const FLAGS: [&str; 17] = [
        "LAUNCH_FAILED",
        "GETENV_FAILED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RESIZING",
        "CONFIGURING",
        "COMPLETING",
        "STOPPED",
        "RECONFIG_FAIL",
        "POWER_UP_NODE",
        "REVOKED",
        "REQUEUE_FED",
        "RESV_DEL_HOLD",
        "SIGNALING",
        "STAGE_OUT",
        "EXPEDITING",
    ];

    fn words(text: &str) -> Vec<String> {
        text.split('+').map(str::to_owned).collect()
    }

    fn state(text: &str) -> Option<JobState> {
        job_state(&words(text))
    }

    #[test]
    fn states_are_said_in_our_words() {
        for (text, expected) in [
            ("PENDING", JobState::Pending),
            ("RUNNING", JobState::Running),
            ("RUNNING+CONFIGURING", JobState::Configuring),
            ("CONFIGURING", JobState::Configuring),
            ("RUNNING+POWER_UP_NODE", JobState::Configuring),
            ("RUNNING+COMPLETING", JobState::Completing),
            ("COMPLETED+COMPLETING", JobState::Completing),
            ("CANCELLED+COMPLETING", JobState::Completing),
            ("COMPLETED+STAGE_OUT", JobState::Completing),
            ("PENDING+REQUEUED", JobState::Pending),
            ("PENDING+COMPLETING+REQUEUED", JobState::Pending),
            ("COMPLETED+REQUEUED", JobState::Pending),
            ("PENDING+SPECIAL_EXIT", JobState::Pending),
            ("PENDING+RESV_DEL_HOLD", JobState::Pending),
            ("PENDING+LAUNCH_FAILED", JobState::Pending),
            ("SUSPENDED", JobState::Suspended),
            ("RUNNING+STOPPED", JobState::Suspended),
            ("RUNNING+SIGNALING", JobState::Running),
            ("RUNNING+RESIZING", JobState::Running),
            ("PENDING+REVOKED", JobState::Cancelled),
            ("CANCELLED+REVOKED", JobState::Cancelled),
            ("COMPLETED", JobState::Completed),
            ("CANCELLED", JobState::Cancelled),
            ("FAILED", JobState::Failed),
            ("FAILED+LAUNCH_FAILED", JobState::Failed),
            ("TIMEOUT", JobState::TimedOut),
            ("DEADLINE", JobState::TimedOut),
            ("NODE_FAIL", JobState::NodeFailed),
            ("BOOT_FAIL", JobState::NodeFailed),
            ("PREEMPTED", JobState::Preempted),
            ("OUT_OF_MEMORY", JobState::OutOfMemory),
        ] {
            assert_eq!(state(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn unknown_words_are_not_guessed_at_but_do_not_hide_a_known_base() {
        assert_eq!(state("SLEEPING"), None);
        assert_eq!(state(""), None);
        assert_eq!(state("RUNNING+SOMETHING_NEW"), Some(JobState::Running));
    }

    #[test]
    fn every_base_with_every_flag_has_a_state_and_no_waiting_job_is_over() {
        for base in BASES {
            for flag in FLAGS {
                let both = state(&format!("{base}+{flag}"));
                assert!(both.is_some(), "{base}+{flag}");
                if BACK_TO_QUEUE.contains(&flag) {
                    assert_eq!(both, Some(JobState::Pending), "{base}+{flag}");
                }
                if matches!(flag, "COMPLETING" | "STAGE_OUT") {
                    assert!(!both.unwrap().is_final(), "{base}+{flag}");
                }
            }
        }
        for flag in FLAGS {
            assert!(state(flag).is_some(), "{flag} alone");
        }
    }

    #[test]
    fn nodes_are_said_in_our_words() {
        for (text, expected) in [
            ("IDLE", ("idle", true)),
            ("MIXED", ("mixed", true)),
            ("ALLOCATED", ("allocated", true)),
            ("MIXED+PLANNED", ("mixed", true)),
            ("IDLE+CLOUD+POWERED_DOWN", ("idle", true)),
            ("IDLE+COMPLETING", ("allocated", true)),
            ("DOWN", ("down", false)),
            ("IDLE+NOT_RESPONDING", ("down", false)),
            ("DOWN+DRAIN", ("down", false)),
            ("IDLE+DRAIN", ("drained", false)),
            ("MIXED+DRAIN", ("draining", false)),
            ("IDLE+RESERVED", ("reserved", false)),
            ("IDLE+MAINTENANCE", ("reserved", false)),
            ("UNKNOWN", ("unknown", false)),
        ] {
            assert_eq!(node_state(&words(text)), expected, "{text}");
        }
    }
}
