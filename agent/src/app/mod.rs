//! What can be started in a session: one file an app, a table of all.

mod jupyterlab;

use eirene_core::AppName;
use eirene_core::scratch::{SCRATCH_TARGET, SCRATCH_VARIABLE};

use crate::job::{Environment, Job};
use crate::launchers;
use crate::samples::{REPORT_SOCKET, REPORT_VARIABLE};
use crate::steps::STEPS_SOCKET;

/// The variable that says which session this is.
pub(crate) const SESSION: &str = "EIRENE_SESSION";
/// Where the runtime directory is seen in the container.
pub(crate) const RUNTIME: &str = "/run/eirene";
/// Name of the app's socket in the runtime directory.
pub(crate) const SOCKET: &str = "app.sock";

/// What an app needs to know of its session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppContext<'a> {
    /// The person's home.
    pub(crate) home: &'a str,
    /// The session's origin, as browsers name it.
    pub(crate) origin: &'a str,
}

/// An app: how it is started, and how one knows that it answers.
pub(crate) struct App {
    /// Program and arguments in the container.
    pub(crate) command: fn(AppContext<'_>) -> Vec<String>,
    /// Environment beside the session's own.
    pub(crate) environment: fn(AppContext<'_>) -> Vec<(&'static str, String)>,
    /// Whether it writes into its image's own directories.
    pub(crate) writable_image: bool,
    /// Path that answers 200 as soon as the app does.
    pub(crate) ready_path: &'static str,
}

/// The app of this name.
pub(crate) fn find(name: &AppName) -> Option<&'static App> {
    match name.as_str() {
        "jupyterlab" => Some(&jupyterlab::APP),
        _ => None,
    }
}

/// The environment of what runs in a container: a small one, made anew, and what is this program's `own`.
pub(crate) fn environment(
    own: Vec<(&'static str, String)>,
    environment: &Environment,
    job: &Job,
) -> Vec<(String, String)> {
    let mut variables = session(environment, &job.allocation.nodes, &job.node);
    variables.push((SESSION.to_owned(), job.file.session.to_string()));
    variables.extend(job.file.app.scratch.as_ref().map(|_| scratch()));
    variables.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
    variables
}

/// Where a program finds the session's scratch.
pub(crate) fn scratch() -> (String, String) {
    (SCRATCH_VARIABLE.to_owned(), SCRATCH_TARGET.to_owned())
}

/// The part of it that is the session's, on each of its nodes.
pub(crate) fn session(environment: &Environment, nodes: &[(String, u32)], here: &str) -> Vec<(String, String)> {
    let mut variables = environment.select(|name| {
        matches!(name, "USER" | "LOGNAME" | "TZ" | "SLURM_JOB_ID" | "SLURM_JOB_NODELIST" | "SLURM_JOB_NUM_NODES")
            || matches!(
                name,
                "SLURM_CPUS_PER_TASK"
                    | "SLURM_CPUS_ON_NODE"
                    | "SLURM_JOB_CPUS_PER_NODE"
                    | "SLURM_MEM_PER_NODE"
                    | "SLURM_JOB_PARTITION"
                    | "SLURM_RESTART_COUNT"
            )
            || name.ends_with("_VISIBLE_DEVICES")
    });
    variables.retain(|(_, value)| !value.contains(['\n', '\r', '\0']));
    variables.push(("SHELL".to_owned(), "/bin/bash".to_owned()));
    variables.push((REPORT_VARIABLE.to_owned(), format!("{RUNTIME}/{REPORT_SOCKET}")));
    variables.push((eirene_steps::SOCKET_VARIABLE.to_owned(), format!("{RUNTIME}/{STEPS_SOCKET}")));
    if let Some(cpus) = environment.get("SLURM_CPUS_PER_TASK") {
        // Libraries otherwise start a thread for every core of the node.
        variables.push(("OMP_NUM_THREADS".to_owned(), cpus.to_owned()));
    }
    variables.extend(launchers::variables(nodes, here));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::environment;

    #[test]
    fn what_runs_knows_its_job_and_how_often_that_was_started_again() {
        let given = environment(&[("SLURM_RESTART_COUNT", "1"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")]);
        let mut of_slurm = session(&given, &[("c1".to_owned(), 2)], "c1");
        of_slurm.retain(|(name, _)| name.starts_with("SLURM"));
        let expected = [("SLURM_JOB_ID", "7"), ("SLURM_RESTART_COUNT", "1")];
        assert_eq!(of_slurm, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
