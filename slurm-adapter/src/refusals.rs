//! What SLURM's error numbers mean for a caller.
//!
//! Only numbers that are listed here as refusals count as such. Everything else, known or not, leaves the outcome open: a job may
//! exist although its submit failed for a reason nobody has heard of.

use eirene_core::Reason;
use eirene_core::scheduler::SchedulerError;
use eirene_core::text::one_line;
use eirene_words::say;

/// What an error number decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The scheduler has no such job.
    NoSuchJob,
    /// The job is over, or ending.
    AlreadyOver,
    /// The scheduler does not accept who we are.
    NotAccepted,
    /// It was refused.
    Refused(Reason),
    /// Nothing was found in the accounting database.
    NothingFound,
    /// The cluster has no accounting database.
    NoAccounting,
    /// A failure without a cause of its own: what a site's own submit rules answer, but also a lost connection.
    Unspecified,
    /// Nothing is known.
    Unknown,
}

/// The number that SLURM gives failures without a number.
pub(crate) const UNSPECIFIED: i64 = -1;

/// The number for "you may not".
pub(crate) const ACCESS_DENIED: i64 = 2002;

/// What `number` decides.
pub(crate) fn verdict(number: i64) -> Verdict {
    match number {
        2017 => Verdict::NoSuchJob,
        2021 | 2084 => Verdict::AlreadyOver,
        1007 | 6000 | 6001 | 6006 | 9008 => Verdict::NotAccepted,
        9003 => Verdict::NothingFound,
        UNSPECIFIED => Verdict::Unspecified,
        _ => REFUSALS
            .iter()
            .find(|(numbers, _)| numbers.contains(&number))
            .map_or(Verdict::Unknown, |(_, code)| Verdict::Refused(refused(code))),
    }
}

/// The number of the error that SLURM's programs print as `text` at the end of a line.
pub(crate) fn number_of(text: &str) -> Option<i64> {
    let text = text.trim_end();
    TEXTS.iter().find(|(known, _)| text.ends_with(known)).map(|(_, number)| *number)
}

/// Whether a SLURM program says that its cluster has no accounting database; there is no number for that.
pub(crate) fn says_no_accounting(text: &str) -> bool {
    let says = |line: &str| {
        let line = line.trim().to_ascii_lowercase();
        // `sacct`, and `sacctmgr`.
        line.ends_with("slurm accounting storage is disabled")
            || line.ends_with("not running a supported accounting_storage plugin")
    };
    text.lines().any(says)
}

/// The error for a verdict that is none of the special cases of the call; `what` was tried, `said` is what came back.
pub(crate) fn error(verdict: Verdict, what: &str, said: &str) -> SchedulerError {
    let said = tame(said);
    match verdict {
        Verdict::Refused(reason) => SchedulerError::Refused { reason },
        Verdict::NoAccounting => SchedulerError::NoAccounting,
        Verdict::NotAccepted => SchedulerError::Unauthorised { what: format!("{what}: {said}") },
        Verdict::NoSuchJob => SchedulerError::Refused { reason: refused("no_such_job") },
        Verdict::AlreadyOver => SchedulerError::Refused { reason: refused("already_over") },
        Verdict::NothingFound | Verdict::Unspecified | Verdict::Unknown => {
            SchedulerError::Unreachable { what: format!("{what}: {said}"), source: None }
        }
    }
}

/// What `verdict` is where a node is changed: two refusals are worded for jobs.
pub(crate) fn of_node(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Refused(reason) => Verdict::Refused(match reason.code.as_str() {
            "not_permitted" => refused("node_not_permitted"),
            "nodes_unknown" => refused("node_unknown"),
            _ => reason,
        }),
        other => other,
    }
}

/// Text from outside, fit for one line of a log.
pub(crate) fn tame(text: &str) -> String {
    one_line(text, 300)
}

/// What a submit rule of the site's own says.
pub(crate) fn site_rule() -> Reason {
    refused("site_rule")
}

/// A refusal, in the catalogue's words for its code.
pub(crate) fn refused(code: &str) -> Reason {
    Reason::new(code, say(&format!("refused.{code}")))
}

/// SLURM's numbers and our code, by which the catalogue has the sentence.
type Refusal = (&'static [i64], &'static str);

const REFUSALS: &[Refusal] = &[
    (&[2000], "partition_unknown"),
    (&[2001], "partition_missing"),
    (&[2002, 2010, 2092], "not_permitted"),
    (&[2003], "partition_not_allowed"),
    (&[2004, 2018], "nodes_unknown"),
    (&[2005, 2069], "too_many_cpus"),
    (&[2006], "bad_node_count"),
    (&[2008], "size_missing"),
    (&[2009, 2127], "script_missing"),
    (&[2012], "path_too_long"),
    (&[2014, 2015, 2178], "does_not_fit"),
    (&[2023, 2025, 2132], "bad_task_count"),
    (&[2028], "node_not_drained"),
    (&[2029, 2114, 2121, 2133, 2171], "bad_feature"),
    (&[2036, 2122, 8001], "not_supported"),
    (&[2037, 2105], "submits_closed"),
    (&[2038, 2071], "bad_dependency"),
    (&[2039], "batch_only"),
    (&[2044], "too_much_memory"),
    (&[2045, 2167], "account_unknown"),
    (&[2048], "bad_licence"),
    (&[2050], "accounting_policy"),
    (&[2051, 2054, 2124, 8000], "bad_time_limit"),
    (&[2052, 2053, 2056, 2118], "bad_reservation"),
    (&[2057], "bad_key"),
    (&[2063], "directory_missing"),
    (&[2066, 2170], "quality_unknown"),
    (&[2068], "nodes_not_available"),
    (&[2070, 2101], "partition_closed"),
    (&[2072, 2102, 2115, 2119, 2134], "bad_gpu"),
    (&[2074], "quality_usage"),
    (&[2081], "bad_array"),
    (&[2093, 2094], "burst_buffer"),
    (&[2098], "scheduled_job"),
    (&[2099], "bad_label"),
    (&[2113, 2163, 2164, 2165, 2166], "person_unknown"),
    (&[2123], "bad_priority"),
    (&[2130], "several_partitions"),
];

/// What SLURM's programs print for the numbers that decide something, as its error table has it since 22.05.
const TEXTS: &[(&str, i64)] = &[
    ("Invalid job id specified", 2017),
    ("Job/step already completing or completed", 2021),
    ("Job has already finished", 2084),
    ("Protocol authentication error", 1007),
    ("Invalid authentication credential", 6000),
    ("Authentication credential expired", 6001),
    ("Authentication credential invalid", 6006),
    ("Invalid partition name specified", 2000),
    ("No partition specified or system default partition", 2001),
    ("Access/permission denied", 2002),
    ("User's group not permitted to use this partition", 2003),
    ("Requested nodes not in this partition", 2004),
    ("More processors requested than permitted", 2005),
    ("Node count specification invalid", 2006),
    ("Job size specification needs to be provided", 2008),
    ("Job script not specified", 2009),
    ("Invalid user id", 2010),
    ("Pathname of a file, directory or other parameter too long", 2012),
    ("Requested node configuration is not available", 2014),
    ("Requested partition configuration not available now", 2015),
    ("Invalid node name specified", 2018),
    ("Task distribution specification invalid", 2023),
    ("Task count specification invalid", 2025),
    ("Invalid node state specified", 2028),
    ("Invalid feature specification", 2029),
    ("Requested operation not supported on this system", 2036),
    ("Requested operation is presently disabled", 2037),
    ("Job dependency problem", 2038),
    ("Only batch jobs are accepted or processed", 2039),
    ("Memory required by task is not available", 2044),
    ("Invalid account or account/partition combination specified", 2045),
    ("Invalid license specification", 2048),
    ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", 2050),
    ("Requested time limit is invalid (missing or exceeds some limit)", 2051),
    ("Access denied to requested reservation", 2052),
    ("Requested reservation is invalid", 2053),
    ("Invalid time specified", 2054),
    ("Requested reservation not usable now", 2056),
    ("Invalid wckey specification", 2057),
    ("Job cannot be submitted without the current working directory specified.", 2063),
    ("Invalid qos specification", 2066),
    ("Required node not available (down, drained or reserved)", 2068),
    ("CPU count specification invalid", 2069),
    ("Required partition not available (inactive or drain)", 2070),
    ("Circular job dependency", 2071),
    ("Invalid generic resource (gres) specification", 2072),
    ("Requested account has breached requested QOS usage threshold", 2074),
    ("Invalid job array specification", 2081),
    ("Burst Buffer permission denied", 2092),
    ("Burst Buffer resource limit exceeded", 2093),
    ("Burst Buffer request invalid", 2094),
    ("Cannot cancel scrontab jobs without --cron flag.", 2098),
    ("Invalid mcs_label specified", 2099),
    ("Partition in DOWN state", 2101),
    ("Duplicate generic resource (gres) specification", 2102),
    ("System submissions disabled", 2105),
    ("Invalid group id", 2113),
    ("Invalid Trackable RESource (TRES) specification", 2115),
    ("Job can not start due to maintenance reservation.", 2118),
    ("Invalid GRES specification (with and without type identification)", 2119),
    ("Requested GRES option unsupported by configured SelectType plugin", 2122),
    ("Invalid --nice value", 2123),
    ("Invalid time-min specification (exceeds job's time or other limits)", 2124),
    ("Environment is missing in job", 2127),
    ("Multiple partition job request not supported when a partition is set in the association", 2130),
    ("Cannot request more threads per core than the job allocation", 2132),
    ("Invalid preferred feature specification", 2133),
    ("Insufficient GRES available in allocation", 2134),
    ("Invalid or unknown association", 2167),
    ("Time limit specification required, but not provided", 8000),
    ("Unspecified error", UNSPECIFIED),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_connections_and_unknown_numbers_decide_nothing() {
        // 1 is what slurmrestd 24.11 answers to a cancel while slurmctld is down, in words "Operation not permitted".
        for number in [
            0, 1, 1000, 1001, 1021, 1800, 1801, 1802, 1803, 1804, 1805, 2007, 2019, 2027, 2090, 2131, 5004, 7000,
            99_999,
        ] {
            assert_eq!(verdict(number), Verdict::Unknown, "{number}");
        }
        assert!(error(Verdict::Unknown, "asked", "x").is_undetermined());
        assert!(error(Verdict::Unspecified, "asked", "x").is_undetermined());
    }

    #[test]
    fn only_one_number_says_that_a_job_is_gone() {
        let gone = (-10..20_000).filter(|number| verdict(*number) == Verdict::NoSuchJob).collect::<Vec<_>>();
        assert_eq!(gone, [2017]);
    }

    #[test]
    fn numbers_stand_once_and_texts_lead_to_numbers_that_decide() {
        let mut numbers = REFUSALS.iter().flat_map(|(numbers, _)| numbers.iter()).collect::<Vec<_>>();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
        for (text, number) in TEXTS {
            assert_eq!(number_of(text), Some(*number), "{text}");
            assert_ne!(verdict(*number), Verdict::Unknown, "{text}");
        }
    }

    #[test]
    fn refusals_are_plain_and_end_with_advice() {
        for (numbers, code) in REFUSALS {
            let text = refused(code).text;
            assert!(text.matches(". ").count() >= 1 && text.ends_with('.'), "{numbers:?} {text}");
            assert!(!text.contains("QOS") && !text.contains("GRES") && !text.contains("SLURM"), "{text}");
            assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{code}");
        }
    }

    #[test]
    fn a_node_has_refusals_of_its_own() {
        for (number, code) in [
            (2002, "node_not_permitted"),
            (2010, "node_not_permitted"),
            (2018, "node_unknown"),
            (2028, "node_not_drained"),
        ] {
            let Verdict::Refused(reason) = of_node(verdict(number)) else { panic!("{number}") };
            assert_eq!((reason.code.as_str(), reason.text.ends_with('.')), (code, true), "{number}");
        }
        assert_eq!(of_node(Verdict::NotAccepted), Verdict::NotAccepted);
    }

    #[test]
    fn program_lines_are_understood() {
        assert_eq!(number_of("sbatch: error: Batch job submission failed: Invalid qos specification\n"), Some(2066));
        assert_eq!(number_of("scancel: error: Kill job error on job id 14: Access/permission denied"), Some(2002));
        assert_eq!(number_of("slurm_update error: Invalid user id\n"), Some(2010));
        assert_eq!(number_of("slurm_load_jobs error: Invalid job id specified"), Some(2017));
        assert_eq!(number_of("Unable to contact slurm controller (connect failure)"), None);
        assert_eq!(number_of(""), None);
    }

    #[test]
    fn only_the_very_words_say_that_there_is_no_accounting() {
        assert!(says_no_accounting("Slurm accounting storage is disabled\n"));
        assert!(says_no_accounting("sacct: SLURM accounting storage is disabled\n"));
        assert!(says_no_accounting("You are not running a supported accounting_storage plugin\nOnly 'slurmdbd' is.\n"));
        for text in [
            "",
            "sacct: error: Problem talking to the database: Connection refused",
            "Slurm accounting storage is disabled. Could not query the following: [TRES].",
            "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:head:6819",
        ] {
            assert!(!says_no_accounting(text), "{text}");
        }
    }

    #[test]
    fn words_from_outside_are_tamed() {
        assert_eq!(tame("a\nb\u{1b}[31m\tc"), "a b\u{fffd}[31m c");
        assert_eq!(tame(&"x".repeat(1000)).len(), 300);
    }
}
