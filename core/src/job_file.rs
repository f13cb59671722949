//! The file the launcher writes as the person and the agent reads: all a job needs to find its way home.
//!
//! It is the only place where the job's secret lies; mode 0600, in a 0700 directory. See `ARCHITECTURE.md`, "the way of a job".

use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::name::AppName;
use crate::run::RunProgram;
use crate::scratch::JobScratch;

/// Name of the environment variable that tells the batch script where the job file lies.
pub const JOB_FILE_VARIABLE: &str = "EIRENE_JOB_FILE";
/// Name of the environment variable that tells the batch script where the agent lies.
pub const AGENT_VARIABLE: &str = "EIRENE_AGENT";
/// The batch script of every session: a constant, so nothing can be smuggled into it.
pub const BATCH_SCRIPT: &str = "#!/bin/sh\nexec \"$EIRENE_AGENT\" run --job-file \"$EIRENE_JOB_FILE\"\n";
/// Name of the environment variable that tells a rescue what was left.
pub const LEFT_VARIABLE: &str = "EIRENE_LEFT_SCRATCH";
/// The batch script of every rescue: what a killed job left in its scratch is brought back.
pub const RESCUE_SCRIPT: &str = "#!/bin/sh\nexec \"$EIRENE_AGENT\" rescue \"$EIRENE_LEFT_SCRATCH\"\n";

/// Content of `job.json`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// Session.
    pub session: SessionId,
    /// The restart count this secret is for; the agent waits for a file whose count is its own `SLURM_RESTART_COUNT`.
    pub restart_count: u32,
    /// The job's secret, exchanged for a tunnel key at the first connection.
    pub secret: String,
    /// `host:port` the agent dials.
    pub portal: String,
    /// SHA-256 of the portal's tunnel certificate (DER), lower-case hexadecimal.
    pub portal_pin: String,
    /// The container and app to start.
    pub app: AppSpec,
    /// The trace of the session's start ([`crate::trace`]), where it is kept. Agents that do not know it yet see it only where there are traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// What the agent starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppSpec {
    /// App, for example `jupyterlab`.
    pub app: AppName,
    /// Absolute path of the SIF file.
    pub image_path: String,
    /// Whether GPUs are allocated.
    pub gpus: bool,
    /// Extra bind mounts, host path → container path, read-only or not; the person's home is always there.
    pub binds: Vec<Bind>,
    /// The app's own origin, for example `https://<id>.apps.example.org`: apps check WebSocket origins against it.
    pub origin: String,
    /// Seconds the app has to become ready.
    pub ready_within_s: u32,
    /// What a run carries out in the app's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunProgram>,
    /// Fast scratch for as long as the job lasts. Agents that do not know it yet see it only where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<JobScratch>,
}

/// One bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// Path on the node.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// Whether it may be written to.
    pub writable: bool,
    /// Whether a node that does not have the source goes without it. Agents that do not know this yet see it only where there are spaces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl std::fmt::Debug for JobFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobFile")
            .field("session", &self.session)
            .field("restart_count", &self.restart_count)
            .field("portal", &self.portal)
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as portals wrote it before there was scratch.
    const EARLIER: &str = r#"{"app":"jupyterlab","image_path":"/srv/x.sif","gpus":false,"binds":[],"origin":"https://x.example.org","ready_within_s":9}"#;

    #[test]
    fn what_was_not_asked_for_is_not_in_the_file_and_earlier_files_are_read() {
        let app: AppSpec = serde_json::from_str(EARLIER).unwrap();
        assert_eq!((&app.run, &app.scratch), (&None, &None));
        assert_eq!(serde_json::to_string(&app).unwrap(), EARLIER, "an agent of before reads it");
        let scratch =
            r#"{"wanted":{"kind":"node"},"base":"/local","spaces":{"project":"/srv/project"},"reserve_s":600}"#;
        let text = EARLIER.replace('}', &format!(r#","scratch":{scratch}}}"#));
        let app: AppSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(app.scratch.as_ref().unwrap().spaces[&"project".parse().unwrap()], "/srv/project");
        assert_eq!(serde_json::to_string(&app).unwrap(), text);
    }

    #[test]
    fn a_file_without_a_trace_is_as_it_was_before_there_were_any() {
        let session = crate::SessionId::generate();
        let before = format!(
            r#"{{"session":"{session}","restart_count":0,"secret":"s","portal":"p:1","portal_pin":"00","app":{EARLIER}}}"#
        );
        let file: JobFile = serde_json::from_str(&before).unwrap();
        assert_eq!(serde_json::to_string(&file).unwrap(), before, "an agent of before reads it");
        let trace = crate::trace::TraceContext::of_session(session, true).to_string();
        let traced = JobFile { trace: Some(trace.clone()), ..file };
        let again: JobFile = serde_json::from_str(&serde_json::to_string(&traced).unwrap()).unwrap();
        assert_eq!(again.trace, Some(trace));
    }
}
