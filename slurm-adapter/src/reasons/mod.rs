//! Why a job waits or ended, in plain words: SLURM's reasons as a stable code, one sentence and one piece of advice. The words
//! themselves are the catalogue's.
//!
//! The reasons about limits are built from parts in SLURM, so [`limits`] reads them by their parts; the others are in a table.

mod limits;
mod table;

use eirene_core::Reason;
use eirene_core::scheduler::JobState;
use eirene_words::{say, say_with};

/// SLURM's longer description of a job that waits for nodes of which none takes jobs now: its reason may be `Resources` all the same.
const NODES_OUT_OF_SERVICE: &str = "Nodes required for job are DOWN, DRAINED or reserved";

/// The reason for a job in `state` whose SLURM reason is `word`, with a longer description where SLURM has one; none when there is nothing to explain.
pub(crate) fn of_job(state: JobState, word: &str, description: &str) -> Option<Reason> {
    let word = first_word(word);
    match state {
        JobState::Pending if description.trim_start_matches('(').starts_with(NODES_OUT_OF_SERVICE) => {
            Some(of_word("ReqNodeNotAvail"))
        }
        JobState::Running | JobState::Completing | JobState::Completed => None,
        JobState::Pending if word.is_empty() || word == "None" => {
            Some(Reason::new("not_considered_yet", say("job.not_considered_yet")))
        }
        JobState::Pending => Some(of_word(&word)),
        JobState::Configuring => Some(Reason::new("nodes_starting", say("job.nodes_starting"))),
        JobState::Suspended => Some(Reason::new("suspended", say("job.suspended"))),
        JobState::Cancelled
        | JobState::Failed
        | JobState::TimedOut
        | JobState::NodeFailed
        | JobState::OutOfMemory
        | JobState::Preempted => Some(table::lookup(&word).filter(|_| word != "None").unwrap_or_else(|| of_end(state))),
    }
}

/// What a reason word says.
fn of_word(word: &str) -> Reason {
    table::lookup(word).or_else(|| limits::read(word)).unwrap_or_else(|| {
        let shown =
            word.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).take(64).collect::<String>();
        Reason::new("other", say_with("job.other", &[("word", &shown)]))
    })
}

/// What an end says for itself.
fn of_end(state: JobState) -> Reason {
    let (code, key) = match state {
        JobState::Cancelled => ("cancelled", "job.cancelled"),
        JobState::TimedOut => ("time_limit", "job.time_limit"),
        JobState::NodeFailed => ("node_failed", "job.node_failed"),
        JobState::OutOfMemory => ("out_of_memory", "job.out_of_memory_end"),
        JobState::Preempted => ("preempted", "job.preempted"),
        JobState::Failed
        | JobState::Pending
        | JobState::Configuring
        | JobState::Running
        | JobState::Suspended
        | JobState::Completing
        | JobState::Completed => ("failed", "job.failed"),
    };
    Reason::new(code, say(key))
}

/// The word itself: some reasons carry details behind a comma, a colon or in parentheses.
fn first_word(text: &str) -> String {
    let text = text.trim().trim_start_matches('(');
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every word of SLURM's reason table in the versions 22.05 to 26.05, collected from its public source.
    const WORDS: &str = include_str!("../../tests/fixtures/reason-words-22.05-to-26.05.txt");

    #[test]
    fn every_reason_word_has_its_own_entry() {
        let words = WORDS.lines().collect::<Vec<_>>();
        assert!(words.len() > 200, "the list is whole");
        for word in words {
            let reason = of_job(JobState::Pending, word, "").unwrap();
            assert_ne!(reason.code, "other", "{word}");
            let (sentence, advice) = reason.text.split_once(". ").unwrap_or_else(|| panic!("{word}: {}", reason.text));
            assert!(sentence.len() > 15 && advice.len() > 15 && advice.ends_with('.'), "{word}: {}", reason.text);
            assert!(reason.code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{word}");
            assert!(
                !reason.text.contains("QOS") && !reason.text.contains("TRES") && !reason.text.contains("GRES"),
                "{word}"
            );
            assert!(word.len() < 12 || !reason.text.contains(word), "{word} is no plain word");
        }
    }

    #[test]
    fn no_reason_advises_what_nobody_can_choose_here() {
        for word in WORDS.lines() {
            let reason = of_job(JobState::Pending, word, "").unwrap();
            let (_, advice) = reason.text.split_once(". ").unwrap();
            assert!(!advice.contains("another quality") && !advice.contains("another account"), "{word}: {advice}");
            // Asking for less of a job makes no job fewer.
            let counts_jobs = reason.code.ends_with("_jobs") || reason.code.contains("_jobs_");
            assert!(!counts_jobs || !advice.contains("less"), "{word}: {advice}");
        }
    }

    #[test]
    fn details_behind_the_word_do_not_matter() {
        for text in [
            "ReqNodeNotAvail, UnavailableNodes:c[1-2]",
            "ReqNodeNotAvail",
            "(ReqNodeNotAvail, May be reserved for other job)",
            " ReqNodeNotAvail(Unavailable:c1)",
        ] {
            assert_eq!(of_job(JobState::Pending, text, "").unwrap().code, "nodes_not_available", "{text}");
        }
    }

    #[test]
    fn nodes_out_of_service_are_not_called_in_use() {
        let description = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions";
        for word in ["Resources", "Priority", "None", ""] {
            assert_eq!(of_job(JobState::Pending, word, description).unwrap().code, "nodes_not_available", "{word}");
        }
        assert_eq!(of_job(JobState::Pending, "Resources", "").unwrap().code, "waiting_for_resources");
        assert_eq!(of_job(JobState::Pending, "Resources", "Resources").unwrap().code, "waiting_for_resources");
        assert_eq!(of_job(JobState::Running, "None", description), None);
    }

    #[test]
    fn unknown_words_are_shown_tamed() {
        let reason = of_job(JobState::Pending, "NewThing<script>", "").unwrap();
        assert_eq!(reason.code, "other");
        assert!(reason.text.contains("`NewThing`"), "{}", reason.text);
        let long = of_job(JobState::Pending, &"x".repeat(10_000), "").unwrap();
        assert!(long.text.len() < 300);
    }

    #[test]
    fn an_end_is_explained_by_its_reason_or_else_by_its_state() {
        assert_eq!(of_job(JobState::Completed, "None", ""), None);
        assert_eq!(of_job(JobState::Running, "None", ""), None);
        assert_eq!(of_job(JobState::Cancelled, "None", "").unwrap().code, "cancelled");
        assert_eq!(of_job(JobState::TimedOut, "TimeLimit", "").unwrap().code, "time_limit");
        assert_eq!(of_job(JobState::Failed, "NonZeroExitCode", "").unwrap().code, "exit_status");
        assert_eq!(of_job(JobState::Failed, "JobLaunchFailure", "").unwrap().code, "launch_failed");
        assert_eq!(of_job(JobState::NodeFailed, "NodeDown", "").unwrap().code, "node_failed");
        assert_eq!(of_job(JobState::Failed, "Whatever", "").unwrap().code, "failed");
        assert_eq!(of_job(JobState::Pending, "", "").unwrap().code, "not_considered_yet");
    }
}
