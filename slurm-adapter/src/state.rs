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

/// A node's state in plain words, and whether SLURM starts jobs there.
pub(crate) type NodeState = (&'static str, bool);

/// What the administrators or SLURM's own checks have taken out of service, or SLURM has given up on.
const BROKEN: [&str; 6] = ["DOWN", "ERROR", "FAIL", "INVALID_REG", "INVALID", "INVAL"];
/// SLURM expects no answer from a node that it switches on or restarts.
const SWITCHED_ON: [&str; 2] = ["POWERING_UP", "POWER_UP"];
const SWITCHED_OFF: [&str; 2] = ["POWERING_DOWN", "POWER_DOWN"];

/// A node's state in plain words, and whether SLURM starts jobs there; none for a node that is only planned for the future.
///
/// What SLURM does on purpose is no failure: a node that is restarted counts as `DOWN` in SLURM until it is back, and one that is switched on
/// does not respond. Where either takes too long, SLURM removes the flag, and the node is down.
pub(crate) fn node_state(words: &[String]) -> Option<NodeState> {
    let has = |word: &str| words.iter().any(|have| have == word);
    let any = |list: &[&str]| list.iter().any(|word| has(word));
    let busy = any(&["ALLOCATED", "MIXED", "COMPLETING"]);
    Some(if has("FUTURE") {
        return None;
    } else if has("REBOOT_ISSUED") {
        ("rebooting", false)
    } else if any(&BROKEN) {
        ("down", false)
    } else if any(&["DRAIN", "POWER_DRAIN"]) {
        (if busy { "draining" } else { "drained" }, false)
    } else if any(&SWITCHED_OFF) {
        ("powering down", false)
    } else if has("NOT_RESPONDING") && !has("POWERED_DOWN") && !any(&SWITCHED_ON) {
        ("down", false)
    } else if any(&["RESERVED", "MAINTENANCE", "BLOCKED"]) {
        ("reserved", false)
    } else if has("MIXED") {
        ("mixed", true)
    } else if any(&["ALLOCATED", "COMPLETING"]) {
        ("allocated", true)
    } else if has("IDLE") {
        ("idle", true)
    } else {
        ("unknown", false)
    })
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

    /// Every base word of a node of SLURM 23.11 to 26.05, with the state it is by itself.
    const NODE_BASES: [(&str, Option<NodeState>); 10] = [
        ("IDLE", IDLE),
        ("MIXED", Some(("mixed", true))),
        ("ALLOCATED", Some(("allocated", true))),
        ("DOWN", DOWN),
        ("ERROR", DOWN),
        ("INVALID", DOWN),
        ("INVAL", DOWN),
        ("UNKNOWN", Some(("unknown", false))),
        ("EXTERNAL", Some(("unknown", false))),
        ("FUTURE", None),
    ];
    const IDLE: Option<NodeState> = Some(("idle", true));
    const DOWN: Option<NodeState> = Some(("down", false));
    const RESERVED: Option<NodeState> = Some(("reserved", false));
    const POWERING_DOWN: Option<NodeState> = Some(("powering down", false));

    /// Every flag of a node, with what an idle and a partly used node (`mixed`) are with it.
    const NODE_FLAGS: [(&str, Option<NodeState>, &str); 25] = [
        ("RESERVED", RESERVED, "reserved"),
        ("UNDRAIN", IDLE, "mixed"),
        ("CLOUD", IDLE, "mixed"),
        ("RESUME", IDLE, "mixed"),
        ("DRAIN", Some(("drained", false)), "draining"),
        ("COMPLETING", Some(("allocated", true)), "mixed"),
        ("NOT_RESPONDING", DOWN, "down"),
        ("POWERED_DOWN", IDLE, "mixed"),
        ("FAIL", DOWN, "down"),
        ("POWERING_UP", IDLE, "mixed"),
        ("MAINTENANCE", RESERVED, "reserved"),
        ("REBOOT_REQUESTED", IDLE, "mixed"),
        ("REBOOT_CANCELED", IDLE, "mixed"),
        ("POWERING_DOWN", POWERING_DOWN, "powering down"),
        ("DYNAMIC_FUTURE", IDLE, "mixed"),
        ("REBOOT_ISSUED", Some(("rebooting", false)), "rebooting"),
        ("PLANNED", IDLE, "mixed"),
        ("INVALID_REG", DOWN, "down"),
        ("POWER_DOWN", POWERING_DOWN, "powering down"),
        ("POWER_UP", IDLE, "mixed"),
        ("POWER_DRAIN", Some(("drained", false)), "draining"),
        ("DYNAMIC_NORM", IDLE, "mixed"),
        ("BLOCKED", RESERVED, "reserved"),
        ("PERFCTRS", IDLE, "mixed"),
        ("SOMETHING_NEW", IDLE, "mixed"),
    ];

    #[test]
    fn every_base_with_every_flag_of_a_node_has_a_state() {
        for (base, alone) in NODE_BASES {
            assert_eq!(node_state(&words(base)), alone, "{base}");
            for (flag, idle, mixed) in NODE_FLAGS {
                let both = node_state(&words(&format!("{base}+{flag}")));
                let expected = match base {
                    "IDLE" => idle,
                    "MIXED" => Some((mixed, idle.is_some_and(|(_, available)| available))),
                    // A busy node is what a mixed one is, but for its own word.
                    "ALLOCATED" => Some((
                        if mixed == "mixed" { "allocated" } else { mixed },
                        idle.is_some_and(|(_, available)| available),
                    )),
                    // Only a restart that SLURM has ordered explains that a node is down.
                    _ if alone == DOWN && flag != "REBOOT_ISSUED" => DOWN,
                    "FUTURE" => None,
                    _ => continue,
                };
                assert_eq!(both, expected, "{base}+{flag}");
            }
        }
    }

    #[test]
    fn what_slurm_does_on_purpose_is_no_failure() {
        for (text, expected) in [
            ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", ("mixed", true)),
            ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", ("allocated", true)),
            ("IDLE+CLOUD+POWERED_DOWN", ("idle", true)),
            ("IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN", ("idle", true)),
            ("IDLE+CLOUD+POWERING_DOWN", ("powering down", false)),
            ("IDLE+CLOUD+NOT_RESPONDING+POWERING_DOWN", ("powering down", false)),
            ("MIXED+REBOOT_REQUESTED", ("mixed", true)),
            ("MIXED+DRAIN+REBOOT_REQUESTED", ("draining", false)),
            ("DOWN+NOT_RESPONDING+REBOOT_ISSUED", ("rebooting", false)),
            ("MIXED+DRAIN+POWER_DOWN", ("draining", false)),
            ("IDLE+NOT_RESPONDING+DRAIN", ("drained", false)),
            ("DOWN+DRAIN", ("down", false)),
            ("DOWN+CLOUD+POWERED_DOWN", ("down", false)),
            ("IDLE+PLANNED+RESERVED", ("reserved", false)),
        ] {
            assert_eq!(node_state(&words(text)), Some(expected), "{text}");
        }
    }
}
