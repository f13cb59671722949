//! The app's process in its container: started with an environment of its own, watched, ended, and nothing of it left.
//!
//! The container has a PID namespace of its own, so ending its first process ends all. What escapes the direct child becomes a child
//! of the agent, which is a subreaper (prctl(2)), and is swept at the end. An agent that is killed cannot sweep: then the [guard]
//! ends the container.
//!
//! [guard]: crate::guard

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use eirene_containers::apptainer::{self, BindMount, ContainerPath, Exec, SpecError};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStdin, Command};

use crate::app::{App, AppContext, RUNTIME};
use crate::job::{Environment, Job};
use crate::log::Log;
use crate::runtime_directory::RuntimeDirectory;

/// Where the guard's program is seen in the container.
const GUARD: &str = "/run/eirene-guard";

/// Why the container could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerError {
    /// Something of it cannot be handed to Apptainer.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The node has neither program.
    #[error("this node has no Apptainer: `apptainer` and `singularity` are not in the PATH of jobs")]
    NoEngine,
    /// The image's file is not there.
    #[error("the image `{0}` is not on this node: the directory of images is not mounted, or the file was removed")]
    NoImage(String),
    /// The program could not be started.
    #[error("the container could not be started")]
    Start(#[source] io::Error),
}

/// A started app.
pub(crate) struct Container {
    child: Child,
    group: Pid,
    /// Closed by the kernel when the agent ends, however it ends.
    _guard: Option<ChildStdin>,
}

impl Container {
    /// Starts the app; its output goes to the log.
    pub(crate) fn start(
        job: &Job,
        app: &App,
        environment: &Environment,
        directory: &RuntimeDirectory,
        log: &Log,
    ) -> Result<Self, ContainerError> {
        let home = environment.get("HOME").unwrap_or("/");
        let context = AppContext { home, origin: &job.file.app.origin };
        let image = &job.file.app.image_path;
        if !Path::new(image).is_file() {
            return Err(ContainerError::NoImage(image.clone()));
        }
        let engine = engine(environment).ok_or(ContainerError::NoEngine)?;
        let text = apptainer::environment_file(&inside(app, context, environment, job))?;
        let file = directory.write("environment", &text).map_err(ContainerError::Start)?;
        let exec = Exec {
            image: path(image)?,
            home: path(home)?,
            binds: binds(job, directory)?,
            environment: path(&file.to_string_lossy())?,
            nvidia: job.file.app.gpus,
            writable_image: app.writable_image,
            directory: path(home)?,
            command: guarded((app.command)(context)),
        };
        let mut command = Command::new(engine);
        command
            .args(exec.arguments())
            .env_clear()
            .envs(environment.select(|name| matches!(name, "PATH" | "HOME" | "USER" | "LOGNAME" | "LANG" | "TMPDIR")))
            .envs(environment.select(|name| name.ends_with("_VISIBLE_DEVICES")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(ContainerError::Start)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map_or(Pid::from_raw(0), Pid::from_raw);
        for output in [
            child.stdout.take().map(|o| Box::new(o) as Box<dyn AsyncRead + Send + Unpin>),
            child.stderr.take().map(|o| Box::new(o) as Box<dyn AsyncRead + Send + Unpin>),
        ]
        .into_iter()
        .flatten()
        {
            tokio::spawn(copy_to_log(output, log.clone()));
        }
        let guard = child.stdin.take();
        Ok(Self { child, group, _guard: guard })
    }

    /// Waits until the app has ended. Can be cancelled and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the app to end; after `grace` it is killed. Gives its exit status.
    pub(crate) async fn end(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        if let Ok(status) = tokio::time::timeout(grace, self.child.wait()).await {
            return status;
        }
        self.signal(Signal::SIGKILL);
        self.child.wait().await
    }

    fn signal(&self, signal: Signal) {
        if self.group.as_raw() > 0 {
            // It may have ended in between.
            let _ = killpg(self.group, signal);
        }
    }
}

/// How an exit status is told: the number, or none when a signal ended the app.
pub(crate) fn code(status: ExitStatus) -> Option<i32> {
    if status.signal().is_some() { None } else { status.code() }
}

fn path(text: &str) -> Result<ContainerPath, SpecError> {
    ContainerPath::try_from(text)
}

fn binds(job: &Job, directory: &RuntimeDirectory) -> Result<Vec<BindMount>, ContainerError> {
    let own = |part: &str, target: &str| {
        let source = directory.path().join(part);
        let source = source.to_string_lossy();
        Ok::<_, SpecError>(BindMount {
            source: path(source.trim_end_matches('/'))?,
            target: path(target)?,
            writable: true,
        })
    };
    // The container's own /tmp would be a few megabytes of memory.
    let mut binds = vec![own("", RUNTIME)?, own("tmp", "/tmp")?, own("tmp", "/var/tmp")?];
    let agent = std::env::current_exe().map_err(ContainerError::Start)?;
    binds.push(BindMount { source: path(&agent.to_string_lossy())?, target: path(GUARD)?, writable: false });
    for bind in &job.file.app.binds {
        binds.push(BindMount { source: path(&bind.source)?, target: path(&bind.target)?, writable: bind.writable });
    }
    Ok(binds)
}

fn guarded(command: Vec<String>) -> Vec<String> {
    [GUARD, "guard", "--"].into_iter().map(ToOwned::to_owned).chain(command).collect()
}

fn inside(app: &App, context: AppContext<'_>, environment: &Environment, job: &Job) -> Vec<(String, String)> {
    let mut variables = environment.select(|name| {
        matches!(name, "USER" | "LOGNAME" | "TZ" | "SLURM_JOB_ID" | "SLURM_JOB_NODELIST" | "SLURM_JOB_NUM_NODES")
            || matches!(
                name,
                "SLURM_CPUS_PER_TASK" | "SLURM_CPUS_ON_NODE" | "SLURM_MEM_PER_NODE" | "SLURM_JOB_PARTITION"
            )
            || name.ends_with("_VISIBLE_DEVICES")
    });
    variables.retain(|(_, value)| !value.contains(['\n', '\r', '\0']));
    variables.push(("SHELL".to_owned(), "/bin/bash".to_owned()));
    variables.push(("EIRENE_SESSION".to_owned(), job.file.session.to_string()));
    if let Some(cpus) = environment.get("SLURM_CPUS_PER_TASK") {
        // Libraries otherwise start a thread for every core of the node.
        variables.push(("OMP_NUM_THREADS".to_owned(), cpus.to_owned()));
    }
    variables.extend((app.environment)(context).into_iter().map(|(name, value)| (name.to_owned(), value)));
    variables
}

fn engine(environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    ["apptainer", "singularity"]
        .iter()
        .flat_map(|name| path.split(':').map(move |directory| Path::new(directory).join(name)))
        .find(|candidate| candidate.is_absolute() && candidate.is_file())
}

async fn copy_to_log(mut output: Box<dyn AsyncRead + Send + Unpin>, log: Log) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(read) = output.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        log.write(&buffer[..read]);
    }
}
