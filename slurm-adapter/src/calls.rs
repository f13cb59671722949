//! What both implementations ask the launcher for, and how they read an answer: with a time limit on every call.

use std::time::Duration;

use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest, SlurmProgram};
use eirene_core::scheduler::{CallAs, JobSpec, SchedulerError, SchedulerResult};
use eirene_core::{NodeName, Reason, Sentence, Username};
use eirene_words::say;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::refusals::{UNSPECIFIED, Verdict, refused, verdict};
use crate::wire::Failure;

/// Longest time one call may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Above this many bytes JSON is read off the async threads.
const LARGE_BYTES: usize = 256 * 1024;

/// How far the portal's clock and the cluster's may differ when the accounting database is asked for jobs since some time:
/// a clock that is behind must not hide a job, and the name alone says whose it is.
const CLOCK_SLACK_S: i64 = 600;

/// Longest time limit that is passed on, minutes: below SLURM's marks for "none" and "no limit", and nine years.
const LONGEST_WALLTIME_MIN: u32 = 5_000_000;

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) as_: &'a CallAs,
    pub(crate) file: SlurmProgram,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) input: String,
}

impl<'a> Program<'a> {
    /// A program without environment and input.
    pub(crate) fn plain(as_: &'a CallAs, file: SlurmProgram, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { as_, file, arguments, environment: Vec::new(), input: String::new() }
    }
}

/// Sends one request to the launcher.
pub(crate) async fn ask(
    launcher: &dyn Launcher,
    request: LauncherRequest,
    what: &str,
) -> SchedulerResult<LauncherAnswer> {
    let answer = tokio::time::timeout(TIMEOUT, launcher.call(request)).await;
    let answer = answer.map_err(|_| unreachable(what, "the launcher took too long"))?;
    answer.map_err(|error| match error {
        LauncherError::Refused { code, text }
            if matches!(code.as_str(), "unknown_person" | "forbidden_person" | "bad_request") =>
        {
            SchedulerError::Refused { reason: Reason::new(code, Sentence::from_elsewhere(&text)) }
        }
        error => SchedulerError::Unreachable { what: what.to_owned(), source: Some(Box::new(error)) },
    })
}

/// Has the launcher run a SLURM program.
pub(crate) async fn run(launcher: &dyn Launcher, program: Program<'_>, what: &str) -> SchedulerResult<Ran> {
    let person = match program.as_ {
        CallAs::Service => None,
        CallAs::Person(person) => Some(person.clone()),
    };
    let request = LauncherRequest::RunSlurm {
        person,
        program: program.file,
        arguments: program.arguments,
        environment: program.environment,
        input: program.input,
    };
    match ask(launcher, request, what).await? {
        LauncherAnswer::Ran { status, stdout, stderr } => Ok(Ran { status, stdout, stderr }),
        _ => Err(SchedulerError::Malformed { what: format!("{what}: the launcher answered something else") }),
    }
}

/// Reads JSON; what cannot be read says nothing about the outcome.
pub(crate) async fn decode<T: DeserializeOwned + Send + 'static>(body: Vec<u8>, what: &str) -> SchedulerResult<T> {
    let result = if body.len() < LARGE_BYTES {
        serde_json::from_slice(&body)
    } else {
        tokio::task::spawn_blocking(move || serde_json::from_slice(&body))
            .await
            .map_err(|source| SchedulerError::Unreachable { what: what.to_owned(), source: Some(Box::new(source)) })?
    };
    result.map_err(|error| SchedulerError::Malformed { what: format!("{what}: {error}") })
}

/// What a list of failures decides together: an explicit refusal counts whatever stands beside it, "no such job" only alone.
pub(crate) fn decide(failures: &[Failure]) -> Verdict {
    let verdicts = failures.iter().map(|failure| failure.number.map_or(Verdict::Unknown, verdict)).collect::<Vec<_>>();
    let all = |wanted: Verdict| verdicts.iter().all(|verdict| *verdict == wanted).then_some(wanted);
    let not_accepted = verdicts.contains(&Verdict::NotAccepted).then_some(Verdict::NotAccepted);
    let refused = || verdicts.iter().find(|verdict| matches!(verdict, Verdict::Refused(_))).cloned();
    not_accepted
        .or_else(refused)
        .or_else(|| all(Verdict::NoSuchJob))
        .or_else(|| all(Verdict::AlreadyOver))
        .or_else(|| all(Verdict::NothingFound))
        .or_else(|| failures.iter().all(|failure| failure.number == Some(UNSPECIFIED)).then_some(Verdict::Unspecified))
        .unwrap_or(Verdict::Unknown)
}

/// What failures say, in one line.
pub(crate) fn said(failures: &[Failure]) -> String {
    failures.iter().map(|failure| failure.said.as_str()).collect::<Vec<_>>().join("; ")
}

/// An error that leaves everything open.
pub(crate) fn unreachable(what: &str, why: &str) -> SchedulerError {
    SchedulerError::Unreachable { what: format!("{what}: {why}"), source: None }
}

/// An error after a submit that made a job: whatever it says, the job is there.
pub(crate) fn after_submit(what: &str, error: SchedulerError) -> SchedulerError {
    if error.is_undetermined() { error } else { unreachable(what, &error.to_string()) }
}

/// Refuses what no scheduler should be asked for: zero means "everything" to SLURM in places.
pub(crate) fn check_spec(spec: &JobSpec) -> SchedulerResult<()> {
    let refuse = |code: &str, key: &str| Err(SchedulerError::Refused { reason: Reason::new(code, say(key)) });
    if spec.nodes == 0 || spec.cpus == 0 || spec.memory_mib == 0 {
        return refuse("size_missing", "refused.zero_size");
    }
    if spec.walltime_min == 0 || spec.walltime_min > LONGEST_WALLTIME_MIN {
        return refuse("bad_time_limit", "refused.no_time_limit");
    }
    if !is_job_name(&spec.name) {
        return Err(bad_name());
    }
    let good_name = |name: &str| {
        name.bytes().next().is_some_and(|first| first.is_ascii_uppercase() || first == b'_')
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            && !["SLURM", "SBATCH", "LD_"].iter().any(|begin| name.starts_with(begin))
    };
    if spec.environment.iter().any(|(name, value)| !good_name(name) || value.chars().any(char::is_control)) {
        return refuse("bad_environment", "refused.bad_environment");
    }
    Ok(())
}

/// Refuses the one name that is no node's: to SLURM it is all of them, in capitals or not.
pub(crate) fn check_node(node: &NodeName) -> SchedulerResult<()> {
    let is_all = node.as_str().eq_ignore_ascii_case("all");
    if is_all { Err(SchedulerError::Refused { reason: refused("node_unknown") }) } else { Ok(()) }
}

/// What a name that [`is_job_name`] does not let pass is answered with.
pub(crate) fn bad_name() -> SchedulerError {
    SchedulerError::Refused { reason: refused("bad_name") }
}

/// For jobs accounted since `since`: from when to ask the database, which does not want to hear of the future, and since when a
/// job counts, both in Unix seconds and with some slack for clocks that differ.
pub(crate) fn accounted_from(since: Timestamp, now: Timestamp) -> (i64, i64) {
    let with_slack = |time: Timestamp| time.as_second().saturating_sub(CLOCK_SLACK_S).max(1);
    (with_slack(since.min(now)), with_slack(since))
}

/// Whether a text may be a job name in an argument and in a query.
pub(crate) fn is_job_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    name.len() <= 255
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(good)
}

/// The user a call is made as, for logs and headers.
pub(crate) fn user_name<'a>(as_: &'a CallAs, service_account: &'a str) -> &'a str {
    match as_ {
        CallAs::Service => service_account,
        CallAs::Person(person) => Username::as_str(person),
    }
}
