//! The demo cluster as the contract tests see it: the launcher's verbs done by `docker exec`, and the schedulers under test.

use std::process::Stdio;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use eirene_core::Username;
use eirene_core::clock::{Clock as _, SystemClock};
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest, SlurmProgram};
use eirene_core::scheduler::{Job, JobSpec, Scheduler};
use eirene_slurm_adapter::{JOB_NAME_PREFIX, SlurmCli, SlurmRestd, UserIds};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

pub(crate) const SERVICE_ACCOUNT: &str = "eirene-op";

/// A job number that SLURM could give out and the demo never reaches; above 67 108 863 slurmrestd says by itself that there is no
/// such job.
pub(crate) const UNKNOWN_JOB: u32 = 66_000_000;

/// What the file named by `EIRENE_TEST_CLUSTER` may say; the demo's own names are the default.
#[derive(Debug, Default, Deserialize)]
struct ClusterFile {
    head_container: Option<String>,
    slurmrestd_url: Option<String>,
}

/// The cluster under test.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) head: String,
    pub(crate) url: String,
}

impl Cluster {
    /// The cluster, or none when only unit tests are wanted.
    pub(crate) async fn find() -> Option<Self> {
        use_ring();
        if std::env::var_os("EIRENE_UNIT_ONLY").is_some_and(|value| value == "1") {
            return None;
        }
        let path = std::env::var("EIRENE_TEST_CLUSTER")
            .expect("start the demo cluster: make demo, then EIRENE_TEST_CLUSTER=var/demo.json");
        let file =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; start the demo cluster: make demo"));
        let file: ClusterFile = serde_json::from_slice(&file).expect("the cluster file is JSON");
        let head = file.head_container.unwrap_or_else(|| "head".to_owned());
        let url = match file.slurmrestd_url {
            Some(url) => url,
            None => format!("http://{}:6820", address_of(&head).await),
        };
        Some(Self { head, url })
    }

    pub(crate) fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::new(DockerLauncher { head: self.head.clone() })
    }

    fn user_ids(&self) -> Arc<dyn UserIds> {
        Arc::new(DockerUserIds { head: self.head.clone() })
    }

    /// slurmrestd with no data parser newer than `newest`.
    pub(crate) fn restd(&self, newest: u32) -> SlurmRestd {
        self.restd_at(&self.url).with_newest_parser(newest)
    }

    /// Whether this SLURM has the data parser `v0.0.<parser>`, and a newer one.
    pub(crate) async fn has_older_parser(&self, parser: u32) -> bool {
        let files = self.on_head("root", &["find", "/usr/lib", "-name", "data_parser_v*.so"]).await;
        let version = |path: &str| path.rsplit_once("data_parser_v0_0_")?.1.strip_suffix(".so")?.parse::<u32>().ok();
        let parsers = files.lines().filter_map(version).collect::<Vec<_>>();
        let newest = parsers.iter().max().expect("SLURM has data parsers");
        parsers.contains(&parser) && parser < *newest
    }

    pub(crate) fn restd_at(&self, url: &str) -> SlurmRestd {
        SlurmRestd::new(url, SERVICE_ACCOUNT, "demo", self.launcher(), Arc::new(SystemClock))
            .expect("a good address")
            .with_user_ids(self.user_ids())
    }

    pub(crate) fn cli(&self) -> SlurmCli {
        SlurmCli::new("demo", self.launcher(), Arc::new(SystemClock)).with_user_ids(self.user_ids())
    }

    /// Runs a command in the head's container and returns what it prints.
    pub(crate) async fn on_head(&self, user: &str, command: &[&str]) -> String {
        let output = Command::new("docker")
            .args(["exec", "-u", user, &self.head])
            .args(command)
            .output()
            .await
            .expect("docker runs");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The content of a file under `/home`, as a node sees it.
    pub(crate) async fn read_file(&self, path: &str) -> Option<String> {
        let output = Command::new("docker").args(["exec", "c1", "cat", path]).output().await.expect("docker runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// rustls asks for its provider once per process, and reqwest for rustls even where nothing is encrypted.
pub(crate) fn use_ring() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::ring::default_provider().install_default().expect("the first provider"));
}

async fn address_of(container: &str) -> String {
    let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let output = Command::new("docker").args(["inspect", "-f", format, container]).output().await.expect("docker runs");
    assert!(output.status.success(), "no container `{container}`: start the demo cluster: make demo");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The launcher's SLURM verbs, as root of the head's container.
struct DockerLauncher {
    head: String,
}

#[async_trait]
impl Launcher for DockerLauncher {
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        match request {
            LauncherRequest::SignToken { person } => self.token(person.as_str()).await,
            LauncherRequest::SignServiceToken {} => self.token(SERVICE_ACCOUNT).await,
            LauncherRequest::RunSlurm { person, program, arguments, environment, input } => {
                let user = person.as_ref().map_or(SERVICE_ACCOUNT, Username::as_str);
                let file = match program {
                    SlurmProgram::Sbatch => "sbatch",
                    SlurmProgram::Scancel => "scancel",
                    SlurmProgram::Squeue => "squeue",
                    SlurmProgram::Sacct => "sacct",
                    SlurmProgram::Sacctmgr => "sacctmgr",
                    SlurmProgram::Scontrol => "scontrol",
                    SlurmProgram::Sinfo => "sinfo",
                };
                let variables = environment.iter().map(|(name, value)| format!("{name}={value}"));
                let command =
                    ["env", "-i", "PATH=/usr/bin:/bin", "LC_ALL=C"].map(str::to_owned).into_iter().chain(variables);
                let command = command.chain([format!("/usr/bin/{file}")]).chain(arguments).collect::<Vec<_>>();
                self.run(user, &command, &input).await
            }
            other => panic!("the adapter has no use for {other:?}"),
        }
    }
}

impl DockerLauncher {
    async fn token(&self, user: &str) -> Result<LauncherAnswer, LauncherError> {
        let command = ["scontrol", "token", &format!("username={user}"), "lifespan=600"].map(str::to_owned);
        let LauncherAnswer::Ran { stdout, .. } = self.run("root", &command, "").await? else { panic!("a program ran") };
        let Some(token) = stdout.trim().strip_prefix("SLURM_JWT=") else {
            return Err(LauncherError::Unreachable { what: "sign a token".into(), source: None });
        };
        Ok(LauncherAnswer::Token { token: token.to_owned(), expires_in_s: 600 })
    }

    async fn run(&self, user: &str, command: &[String], input: &str) -> Result<LauncherAnswer, LauncherError> {
        let lost = |source| LauncherError::Unreachable { what: "docker exec".into(), source: Some(source) };
        let mut child = Command::new("docker")
            .args(["exec", "-i", "-u", user, &self.head])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(lost)?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(input.as_bytes()).await.map_err(lost)?;
        drop(stdin);
        let output = child.wait_with_output().await.map_err(lost)?;
        Ok(LauncherAnswer::Ran {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

struct DockerUserIds {
    head: String,
}

impl UserIds for DockerUserIds {
    fn uid(&self, name: &str) -> std::io::Result<Option<u32>> {
        let output = std::process::Command::new("docker").args(["exec", &self.head, "id", "-u", name]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
    }
}

pub(crate) fn ada() -> Username {
    "ada".parse().expect("a name")
}

pub(crate) fn grace() -> Username {
    "grace".parse().expect("a name")
}

/// A small job of `ada`'s with a name of its own that runs `script`.
pub(crate) fn small_job(script: &str) -> JobSpec {
    let name = format!("{JOB_NAME_PREFIX}contract-{}-{:x}", std::process::id(), SystemClock.now().as_microsecond());
    let output = format!("/home/ada/{name}.log");
    JobSpec {
        name,
        account: Some("research".parse().expect("a name")),
        qos: Some("normal".parse().expect("a name")),
        partition: Some("main".parse().expect("a name")),
        node: None,
        feature: None,
        nodes: 1,
        cpus: 1,
        memory_mib: 200,
        gpus: 0,
        gpu_type: None,
        walltime_min: 2,
        script: format!("#!/bin/sh\n{script}\n"),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("EIRENE_CONTRACT".into(), "a b;$(c)".into())],
        directory: "/home/ada".into(),
        output,
        warn_before_end_s: 60,
    }
}

/// Waits until the job satisfies `wanted`, by the one list of all jobs.
pub(crate) async fn until_job(scheduler: &dyn Scheduler, id: u32, what: &str, wanted: impl Fn(&Job) -> bool) -> Job {
    let begun = Instant::now();
    loop {
        let jobs = scheduler.jobs().await.expect("the list of jobs");
        let job = jobs.ours.into_iter().find(|job| job.identity.id == id).expect("the job is in the list");
        if wanted(&job) {
            return job;
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "{what}: {job:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
