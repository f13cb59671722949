//! The app's process in its container: started with an environment of its own, watched, ended, and nothing of it left.
//!
//! The container has a PID namespace of its own, so ending its first process ends all. What escapes the direct child becomes a child
//! of the agent, which is a subreaper (prctl(2)), and is swept at the end. An agent that is killed cannot sweep: then the [guard]
//! ends the container.
//!
//! [guard]: crate::guard

mod place;

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use eirene_containers::apptainer::{self, BindMount, ContainerPath, Exec, SpecError};
use eirene_core::job_file::{AppSpec, Bind};
use eirene_core::scratch::SCRATCH_TARGET;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use crate::app::RUNTIME;
use crate::image_mount;
use crate::job::Environment;
use crate::log::Log;
use crate::runtime_directory::{RuntimeDirectory, inside};
use crate::scratch::Spot;

pub(crate) use place::{Announcement, GUARD_SOCKET, Place};

/// Where the guard's program is seen in the container.
pub(crate) const GUARD: &str = "/run/eirene-guard";

/// What the guard reads when the end is near: the app gets SIGUSR1, if it has a handler.
pub(crate) const WARNING: u8 = b'w';

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
    /// The session's scratch was removed.
    #[error("the session's fast scratch is not on this node any more")]
    NoScratch,
    /// The program could not be started.
    #[error("the container could not be started")]
    Start(#[source] io::Error),
}

/// A session's container, the same on all its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    image: String,
    home: String,
    binds: Vec<Bind>,
    /// Each node finds its own.
    scratch: Option<Spot>,
    gpus: bool,
}

/// What runs in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    /// Program and arguments; without any, the container is only held ready.
    pub(crate) command: Vec<String>,
    /// Its environment beside the image's.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether it writes into its image's own directories.
    pub(crate) writable_image: bool,
    /// Working directory; none is the home.
    pub(crate) directory: Option<String>,
}

impl Spec {
    /// As the job file says; `scratch` is where the session's scratch is on each of its nodes.
    pub(crate) fn new(app: &AppSpec, home: &str, scratch: Option<Spot>) -> Self {
        let binds = app.binds.clone();
        Self { image: app.image_path.clone(), home: home.to_owned(), binds, scratch, gpus: app.gpus }
    }

    /// The program that runs containers, and its arguments for a command of one's own in a container of its own, which gets its environment
    /// from [`in_container`].
    pub(crate) fn alone(
        &self,
        environment: &Environment,
        directory: &Path,
        working_directory: &str,
        command: Vec<String>,
    ) -> Result<(PathBuf, Vec<String>), ContainerError> {
        let exec = Exec {
            image: path(&self.image)?,
            home: path(&self.home)?,
            binds: self.all_binds(directory)?,
            environment: None,
            nvidia: self.gpus,
            writable_image: false,
            directory: path(working_directory)?,
            command,
        };
        Ok((self.engine(environment)?, exec.arguments()))
    }

    fn engine(&self, environment: &Environment) -> Result<PathBuf, ContainerError> {
        if !Path::new(&self.image).is_file() {
            return Err(ContainerError::NoImage(self.image.clone()));
        }
        let found = ["apptainer", "singularity"].iter().find_map(|name| environment.find_program(name));
        found.ok_or(ContainerError::NoEngine)
    }

    fn all_binds(&self, directory: &Path) -> Result<Vec<BindMount>, ContainerError> {
        let own = |part: &str, target: &str| {
            let source = inside(directory).join(part);
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
        for bind in self.binds.iter().filter(|bind| is_here(bind)) {
            binds.push(BindMount { source: path(&bind.source)?, target: path(&bind.target)?, writable: bind.writable });
        }
        if let Some(scratch) = &self.scratch {
            let data = scratch.data().ok_or(ContainerError::NoScratch)?;
            binds.push(BindMount {
                source: path(&data.to_string_lossy())?,
                target: path(SCRATCH_TARGET)?,
                writable: true,
            });
        }
        Ok(binds)
    }
}

/// Whether a bind is made on this node.
fn is_here(bind: &Bind) -> bool {
    !bind.optional || Path::new(&bind.source).is_dir()
}

/// The variables that give a process in a container of its own this environment (apptainer-exec(1), "--env"), whichever of the two programs
/// starts it.
pub(crate) fn in_container(variables: Vec<(String, String)>) -> Vec<(String, String)> {
    let both = |(name, value): (String, String)| {
        [(format!("SINGULARITYENV_{name}"), value.clone()), (format!("APPTAINERENV_{name}"), value)]
    };
    variables.into_iter().flat_map(both).collect()
}

/// A container whose first program is the guard.
pub(crate) struct Container {
    child: Child,
    group: Pid,
    /// Closed by the kernel when the agent ends, however it ends.
    guard: Option<ChildStdin>,
}

impl Container {
    /// Starts it; what its content writes goes to the log.
    pub(crate) fn start(
        spec: &Spec,
        content: Content,
        environment: &Environment,
        directory: &RuntimeDirectory,
        log: &Log,
    ) -> Result<Self, ContainerError> {
        let engine = spec.engine(environment)?;
        for absent in spec.binds.iter().filter(|bind| !is_here(bind)) {
            log.say(&format!("this node has no `{}`, so there is no `{}`", absent.source, absent.target));
        }
        let text = apptainer::environment_file(&content.environment)?;
        let file = directory.write("environment", &text).map_err(ContainerError::Start)?;
        let exec = Exec {
            image: path(&spec.image)?,
            home: path(&spec.home)?,
            binds: spec.all_binds(directory.path())?,
            environment: Some(path(&file.to_string_lossy())?),
            nvidia: spec.gpus,
            writable_image: content.writable_image,
            directory: path(content.directory.as_deref().unwrap_or(&spec.home))?,
            command: guarded(content.command),
        };
        let mut command = Command::new(engine);
        command
            .args(exec.arguments())
            .env_clear()
            .envs(environment.of_programs())
            .env("PATH", image_mount::prepare(directory.path(), environment.path()).map_err(ContainerError::Start)?)
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
        Ok(Self { child, group, guard })
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

    /// Tells the program early that the end is near, if it can hear that.
    pub(crate) async fn warn(&mut self) {
        if let Some(guard) = &mut self.guard {
            // It may have ended in between.
            let _ = guard.write_all(&[WARNING]).await;
        }
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

fn guarded(command: Vec<String>) -> Vec<String> {
    [GUARD, "guard", "--"].into_iter().map(ToOwned::to_owned).chain(command).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_have_a_space_goes_without_it_and_what_every_session_sees_must_be_there() {
        let node = tempfile::tempdir().unwrap();
        let bind = |name: &str, optional| Bind {
            source: node.path().join(name).display().to_string(),
            target: format!("/{name}"),
            writable: true,
            optional,
        };
        std::fs::create_dir(node.path().join("stars")).unwrap();
        std::fs::write(node.path().join("file"), "").unwrap();
        let app = AppSpec {
            app: "jupyterlab".parse().unwrap(),
            image_path: "/srv/x.sif".into(),
            gpus: false,
            binds: vec![bind("stars", true), bind("moons", true), bind("file", true), bind("data", false)],
            origin: "https://x.example.org".into(),
            ready_within_s: 9,
            run: None,
            scratch: None,
        };
        let binds = Spec::new(&app, "/home/ada", None).all_binds(node.path()).unwrap();
        let own = Spec::new(&AppSpec { binds: vec![], ..app }, "/home/ada", None).all_binds(node.path()).unwrap();
        let targets: Vec<&str> = binds[own.len()..].iter().map(|bind| bind.target.as_str()).collect();
        assert_eq!(targets, ["/stars", "/data"]);
    }
}
