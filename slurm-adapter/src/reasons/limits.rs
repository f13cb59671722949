//! Reasons about limits. SLURM makes them of parts: whose limit (`Assoc`, `QOS`, or nothing where the end says it), of what sort
//! (`Grp` for all together, `Max`, `Min`), of what (`Cpu`, `Mem`, `GRES` …), counted how (at once, or in minutes), and per what.

use eirene_core::Reason;

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
    code: &'static str,
    plain: &'static str,
}

/// What is limited; longer words stand before their beginnings.
const WHAT: [What; 12] = [
    What { words: &["CPU", "Cpu"], code: "cpu", plain: "CPUs" },
    What { words: &["Memory", "Mem"], code: "memory", plain: "memory" },
    What { words: &["Node"], code: "node", plain: "nodes" },
    What { words: &["GRES"], code: "gpu", plain: "GPUs or similar devices" },
    What { words: &["License"], code: "licence", plain: "software licences" },
    What { words: &["BB"], code: "burst_buffer", plain: "burst buffer space" },
    What { words: &["Billing"], code: "billing", plain: "billing units" },
    What { words: &["Energy"], code: "energy", plain: "energy" },
    What { words: &["Unknown"], code: "resource", plain: "some resource" },
    What { words: &["SubmitJobs", "SubmitJob"], code: "submitted_jobs", plain: "jobs in the queue" },
    What { words: &["Jobs"], code: "jobs", plain: "running jobs" },
    What { words: &["WallDuration", "Wall"], code: "time", plain: "running time" },
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
    let owner = match whose {
        Whose::Account => "your account",
        Whose::Quality => "the quality of service",
    };
    let plain = what.plain;
    let is_time = what.code == "time";
    let subject = match (counted, per) {
        (Counted::AtOnce, Per::Job) => format!("{plain} in one job"),
        (Counted::AtOnce, Per::Node) => format!("{plain} on one node"),
        (Counted::AtOnce, Per::User) => format!("{plain} for one person"),
        (Counted::AtOnce, Per::Account) => format!("{plain} for one account"),
        (Counted::AtOnce, Per::Nothing) if is_time => format!("{plain} in all"),
        (Counted::AtOnce, Per::Nothing) => format!("{plain} at one time"),
        (Counted::Minutes, Per::Job) => format!("{plain} times minutes in one job"),
        (Counted::Minutes, _) => format!("{plain} times minutes in all"),
        (Counted::RunMinutes, Per::User) => format!("{plain} times the minutes still to run, for one person"),
        (Counted::RunMinutes, Per::Account) => format!("{plain} times the minutes still to run, for one account"),
        (Counted::RunMinutes, _) => format!("{plain} times the minutes still to run"),
    };
    let sentence = match sort {
        Sort::Together => format!("The limit of {owner} for {subject}, all its jobs together, is reached."),
        Sort::Most => format!("The limit of {owner} for {subject} is reached."),
        Sort::Least => format!("The job asks for less than the least that {owner} wants of {subject}."),
    };
    let never = per == Per::Job || per == Per::Node;
    let advice = match (sort, counted) {
        (Sort::Least, _) => format!("Ask for more, or choose another {}.", choice(whose)),
        (Sort::Most, _) if never => format!("Ask for less, or choose another {}.", choice(whose)),
        (Sort::Together, Counted::Minutes) => budget(whose),
        (Sort::Together, Counted::AtOnce) if is_time => budget(whose),
        (Sort::Together | Sort::Most, _) => {
            "It starts when other jobs under that limit end; asking for less may help.".to_owned()
        }
    };
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
    Reason::new(format!("limit_{code}"), format!("{sentence} {advice}"))
}

fn choice(whose: Whose) -> &'static str {
    match whose {
        Whose::Account => "account",
        Whose::Quality => "quality of service",
    }
}

fn budget(whose: Whose) -> String {
    format!("Choose another {}, or ask the people who run the cluster for more.", choice(whose))
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
            "The limit of the quality of service for running time in one job is reached. Ask for less, or choose another \
             quality of service.",
        );
        reads_as(
            "QOSMinCpuNotSatisfied",
            "limit_quality_least_cpu",
            "The job asks for less than the least that the quality of service wants of CPUs at one time. Ask for more, or \
             choose another quality of service.",
        );
        reads_as(
            "AssocGrpGRESMinutes",
            "limit_account_total_gpu_minutes",
            "The limit of your account for GPUs or similar devices times minutes in all, all its jobs together, is reached. \
             Choose another account, or ask the people who run the cluster for more.",
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
