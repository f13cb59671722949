//! Reasons about limits. SLURM makes them of parts: whose limit (`Assoc`, `QOS`, or nothing where the end says it), of what sort
//! (`Grp` for all together, `Max`, `Min`), of what (`Cpu`, `Mem`, `GRES` …), counted how (at once, or in minutes), and per what.
//! The catalogue has a whole sentence for each owner and sort, which takes in what is counted and the advice.

use eirene_core::Reason;
use eirene_words::{say, say_with};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Account,
    Quality,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Together,
    Most,
    Least,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    AtOnce,
    Minutes,
    RunMinutes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Per {
    Job,
    Node,
    User,
    Account,
    Nothing,
}

struct What {
    words: &'static [&'static str],
    /// Part of the reason's code, and of the key of its name.
    code: &'static str,
}

/// What is limited; longer words stand before their beginnings.
const WHAT: [What; 12] = [
    What { words: &["CPU", "Cpu"], code: "cpu" },
    What { words: &["Memory", "Mem"], code: "memory" },
    What { words: &["Node"], code: "node" },
    What { words: &["GRES"], code: "gpu" },
    What { words: &["License"], code: "licence" },
    What { words: &["BB"], code: "burst_buffer" },
    What { words: &["Billing"], code: "billing" },
    What { words: &["Energy"], code: "energy" },
    What { words: &["Unknown"], code: "resource" },
    What { words: &["SubmitJobs", "SubmitJob"], code: "submitted_jobs" },
    What { words: &["Jobs"], code: "jobs" },
    What { words: &["WallDuration", "Wall"], code: "time" },
];

/// Reads a reason about a limit.
pub(super) fn read(word: &str) -> Option<Reason> {
    let (named, rest) = match word {
        _ if word.starts_with("Assoc") => (Some(Whose::Account), &word[5..]),
        _ if word.starts_with("QOS") => (Some(Whose::Quality), &word[3..]),
        _ => (None, word),
    };
    let (sort, rest) = [("Grp", Sort::Together), ("Max", Sort::Most), ("Min", Sort::Least)]
        .into_iter()
        .find_map(|(begin, sort)| rest.strip_prefix(begin).map(|rest| (sort, rest)))?;
    let (what, rest) = WHAT
        .iter()
        .find_map(|what| what.words.iter().find_map(|begin| rest.strip_prefix(begin)).map(|rest| (what, rest)))?;
    let (counted, rest) =
        [("RunMinutes", Counted::RunMinutes), ("RunMins", Counted::RunMinutes), ("Minutes", Counted::Minutes)]
            .into_iter()
            .find_map(|(begin, counted)| rest.strip_prefix(begin).map(|rest| (counted, rest)))
            .unwrap_or((Counted::AtOnce, rest));
    let (per, rest) =
        [("PerJob", Per::Job), ("PerNode", Per::Node), ("PerUser", Per::User), ("PerAccount", Per::Account)]
            .into_iter()
            .find_map(|(begin, per)| rest.strip_prefix(begin).map(|rest| (per, rest)))
            .unwrap_or((Per::Nothing, rest));
    if !matches!(rest, "" | "Limit" | "NotSatisfied") || (named.is_none() && per == Per::Nothing) {
        return None;
    }
    Some(explain(named.unwrap_or(Whose::Quality), sort, what, counted, per))
}

fn explain(whose: Whose, sort: Sort, what: &What, counted: Counted, per: Per) -> Reason {
    let is_time = what.code == "time";
    let counted_as = match (counted, per) {
        (Counted::AtOnce, Per::Job) => "limit.of.job",
        (Counted::AtOnce, Per::Node) => "limit.of.node",
        (Counted::AtOnce, Per::User) => "limit.of.person",
        (Counted::AtOnce, Per::Account) => "limit.of.account",
        (Counted::AtOnce, Per::Nothing) if is_time => "limit.of.all",
        (Counted::AtOnce, Per::Nothing) => "limit.of.moment",
        (Counted::Minutes, Per::Job) => "limit.of.minutes_job",
        (Counted::Minutes, _) => "limit.of.minutes_all",
        (Counted::RunMinutes, Per::User) => "limit.of.run_minutes_person",
        (Counted::RunMinutes, Per::Account) => "limit.of.run_minutes_account",
        (Counted::RunMinutes, _) => "limit.of.run_minutes",
    };
    let sentence = match (whose, sort) {
        (Whose::Account, Sort::Together) => "limit.account.together",
        (Whose::Account, Sort::Most) => "limit.account.most",
        (Whose::Account, Sort::Least) => "limit.account.least",
        (Whose::Quality, Sort::Together) => "limit.quality.together",
        (Whose::Quality, Sort::Most) => "limit.quality.most",
        (Whose::Quality, Sort::Least) => "limit.quality.least",
    };
    let never = per == Per::Job || per == Per::Node;
    let advice = match (sort, counted, whose) {
        (Sort::Least, _, Whose::Account) => "limit.advice.more_account",
        (Sort::Least, _, Whose::Quality) => "limit.advice.more_quality",
        (Sort::Most, _, Whose::Account) if never => "limit.advice.less_account",
        (Sort::Most, _, Whose::Quality) if never => "limit.advice.less_quality",
        (Sort::Together, Counted::Minutes, _) => budget(whose),
        (Sort::Together, Counted::AtOnce, _) if is_time => budget(whose),
        // Less of a job is no fewer jobs.
        (Sort::Together | Sort::Most, _, _) if matches!(what.code, "jobs" | "submitted_jobs") => {
            "limit.advice.wait_jobs"
        }
        (Sort::Together | Sort::Most, Counted::RunMinutes, _) => "limit.advice.wait_time",
        (Sort::Together | Sort::Most, _, _) => "limit.advice.wait",
    };
    let name = say(&format!("limit.what.{}", what.code));
    let of = say_with(counted_as, &[("what", name.as_str())]);
    let text = say_with(sentence, &[("what", of.as_str()), ("advice", say(advice).as_str())]);
    let code = [
        match whose {
            Whose::Account => "account",
            Whose::Quality => "quality",
        },
        match sort {
            Sort::Together => "total",
            Sort::Most => "most",
            Sort::Least => "least",
        },
        what.code,
        match counted {
            Counted::AtOnce => "",
            Counted::Minutes => "minutes",
            Counted::RunMinutes => "run_minutes",
        },
        match per {
            Per::Job => "per_job",
            Per::Node => "per_node",
            Per::User => "per_person",
            Per::Account => "per_account",
            Per::Nothing => "",
        },
    ];
    let code = code.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    Reason::new(format!("limit_{code}"), text)
}

fn budget(whose: Whose) -> &'static str {
    match whose {
        Whose::Account => "limit.advice.budget_account",
        Whose::Quality => "limit.advice.budget_quality",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads_as(word: &str, code: &str, text: &str) {
        let reason = read(word).unwrap_or_else(|| panic!("{word}"));
        assert_eq!((reason.code.as_str(), reason.text.as_str()), (code, text), "{word}");
    }

    #[test]
    fn parts_make_a_sentence() {
        reads_as(
            "AssocGrpCpuLimit",
            "limit_account_total_cpu",
            "The limit of your account for CPUs at one time, all its jobs together, is reached. It starts when other jobs under \
             that limit end; asking for less may help.",
        );
        reads_as(
            "QOSMaxGRESPerUser",
            "limit_quality_most_gpu_per_person",
            "The limit of the quality of service for GPUs or similar devices for one person is reached. It starts when other \
             jobs under that limit end; asking for less may help.",
        );
        reads_as(
            "QOSMaxWallDurationPerJobLimit",
            "limit_quality_most_time_per_job",
            "The limit of the quality of service for running time in one job is reached. Ask for less, or ask the \
             administrators for a higher limit.",
        );
        reads_as(
            "QOSMinCpuNotSatisfied",
            "limit_quality_least_cpu",
            "The job asks for less than the least that the quality of service wants of CPUs at one time. Ask for more, or \
             ask the administrators for a lower limit.",
        );
        reads_as(
            "AssocGrpGRESMinutes",
            "limit_account_total_gpu_minutes",
            "The limit of your account for GPUs or similar devices times minutes in all, all its jobs together, is reached. \
             Choose another project, or ask the administrators for more.",
        );
        reads_as(
            "QOSMaxJobsPerUserLimit",
            "limit_quality_most_jobs_per_person",
            "The limit of the quality of service for running jobs for one person is reached. It starts when one of them ends.",
        );
        reads_as(
            "AssocGrpGRESRunMinutes",
            "limit_account_total_gpu_run_minutes",
            "The limit of your account for GPUs or similar devices times the minutes still to run, all its jobs together, is \
             reached. It starts when other jobs under that limit end; a shorter time limit may help.",
        );
    }

    #[test]
    fn other_words_are_left_alone() {
        for word in ["", "Assoc", "QOSMax", "QOSMaxThings", "MaxMemPerLimit", "MaxCpu", "AssocGrpCpuLimitX", "Priority"]
        {
            assert!(read(word).is_none(), "{word}");
        }
    }
}
