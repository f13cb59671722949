//! The programs behind a launcher that does what a test wants.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::clock::{Clock as _, SystemClock};
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest, SlurmProgram};
use eirene_core::scheduler::{CallAs, Scheduler};
use eirene_slurm_adapter::SlurmCli;
use tokio::sync::Semaphore;

use crate::{ada, all_nodes, c1, decided, fan, listed, spec};

/// Children of one user that the launcher allows.
const MOST_CHILDREN: usize = 8;

type Answers = dyn Fn(SlurmProgram, &[String]) -> Said + Send + Sync;

enum Said {
    Ran(i32, String, &'static str),
    /// Ran once the gate opens.
    Later(String),
    Never,
    Refused,
}

/// A launcher that counts its children of the service account.
struct StandIn {
    /// What `scontrol --version` prints; none where the launcher is too old to run it.
    version: Option<&'static str>,
    answers: Box<Answers>,
    gate: Semaphore,
    children: AtomicUsize,
    most: AtomicUsize,
    lines: Mutex<Vec<String>>,
}

impl StandIn {
    fn new(answers: impl Fn(SlurmProgram, &[String]) -> Said + Send + Sync + 'static) -> Arc<Self> {
        Self::of_version(Some("slurm-wlm 26.05.5\n"), answers)
    }

    fn of_version(
        version: Option<&'static str>,
        answers: impl Fn(SlurmProgram, &[String]) -> Said + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            version,
            answers: Box::new(answers),
            gate: Semaphore::new(0),
            children: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            lines: Mutex::default(),
        })
    }

    fn cli(self: &Arc<Self>) -> SlurmCli {
        let launcher: Arc<dyn Launcher> = Arc::<Self>::clone(self);
        SlurmCli::new("demo", launcher, Arc::new(SystemClock))
    }

    async fn until_children(&self, count: usize) {
        let waiting = async {
            while self.children.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("so many children come");
    }
}

fn refused() -> LauncherError {
    LauncherError::Refused { code: "failed".into(), text: "earlier calls have not ended yet".into() }
}

#[async_trait]
impl Launcher for StandIn {
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        let LauncherRequest::RunSlurm { person, program, arguments, .. } = request else { return Err(refused()) };
        if arguments == ["--version"] {
            let unknown = || LauncherError::Refused { code: "bad_request".into(), text: "these arguments".into() };
            let version = self.version.ok_or_else(unknown)?;
            return Ok(LauncherAnswer::Ran { status: 0, stdout: version.into(), stderr: String::new() });
        }
        self.lines.lock().unwrap().push(format!("{program:?} {}", arguments.join(" ")));
        if person.is_none() {
            let children = self.children.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(children, Ordering::SeqCst);
            if children > MOST_CHILDREN {
                self.children.fetch_sub(1, Ordering::SeqCst);
                return Err(refused());
            }
        }
        let answer = match (self.answers)(program, &arguments) {
            Said::Ran(status, stdout, stderr) => Ok(LauncherAnswer::Ran { status, stdout, stderr: stderr.into() }),
            Said::Later(stdout) => {
                let _open = self.gate.acquire().await.unwrap();
                Ok(LauncherAnswer::Ran { status: 0, stdout, stderr: String::new() })
            }
            Said::Never => pending().await,
            Said::Refused => Err(refused()),
        };
        if person.is_none() {
            self.children.fetch_sub(1, Ordering::SeqCst);
        }
        answer
    }
}

#[tokio::test]
async fn programs_that_are_too_old_are_refused_before_they_do_anything() {
    let launcher = StandIn::of_version(Some("slurm-wlm 22.05.8\n"), |_, _| Said::Ran(0, jobs(&[]), ""));
    let cli = launcher.cli();
    let errors = [
        cli.ping().await.unwrap_err(),
        cli.jobs().await.unwrap_err(),
        cli.submit(&ada(), &spec("eirene-a")).await.unwrap_err(),
        cli.drain_node(&c1(), &fan(), &ada()).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(decided(&error), "unsupported");
        assert!(error.to_string().starts_with("SLURM 22.05.8 is not supported: "), "{error}");
    }
    assert_eq!(launcher.lines.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn programs_of_an_untested_or_unknown_version_are_used() {
    for version in [Some("slurm 27.05.1\n"), Some(""), Some("slurm-wlm 23.11.4\n"), None] {
        let launcher = StandIn::of_version(version, |_, _| Said::Ran(0, jobs(&[listed(2, "eirene-a")]), ""));
        assert_eq!(launcher.cli().jobs().await.unwrap().ours.len(), 1, "{version:?}");
    }
}

fn jobs(jobs: &[String]) -> String {
    format!(r#"{{"jobs":[{}]}}"#, jobs.join(","))
}

#[tokio::test]
async fn no_accounting_database_is_an_answer_and_a_silent_one_is_none() {
    for (stderr, expected) in [
        ("Slurm accounting storage is disabled\n", "no accounting"),
        ("sacct: error: Problem talking to the database: Connection refused\n", "open"),
        ("", "open"),
    ] {
        let launcher = StandIn::new(move |_, _| Said::Ran(1, String::new(), stderr));
        let error = launcher.cli().accounted_jobs("eirene-x", SystemClock.now()).await.unwrap_err();
        assert_eq!(decided(&error), expected, "{stderr}");
    }
}

const UNSPECIFIED: &str = "sbatch: error: Batch job submission failed: Unspecified error\n";

fn submits_fail(listed: Vec<String>) -> Arc<StandIn> {
    StandIn::new(move |program, _| match program {
        SlurmProgram::Sbatch => Said::Ran(1, String::new(), UNSPECIFIED),
        _ => Said::Ran(0, jobs(&listed), ""),
    })
}

#[tokio::test]
async fn an_error_without_a_cause_refuses_only_the_second_time() {
    let cli = submits_fail(Vec::new()).cli();
    let submit = async |name: &str| decided(&cli.submit(&ada(), &spec(name)).await.unwrap_err()).to_owned();
    assert_eq!(submit("eirene-a").await, "open");
    assert_eq!(submit("eirene-b").await, "open", "every name has its own first time");
    assert_eq!(submit("eirene-a").await, "site_rule");
}

#[tokio::test]
async fn a_job_that_came_after_all_is_not_refused() {
    let cli = submits_fail(vec![listed(7, "eirene-a")]).cli();
    for _ in 0..3 {
        assert_eq!(decided(&cli.submit(&ada(), &spec("eirene-a")).await.unwrap_err()), "open");
    }
}

#[tokio::test]
async fn a_job_that_was_made_is_never_refused() {
    let launcher = StandIn::new(|program, _| match program {
        SlurmProgram::Sbatch => Said::Ran(0, "7\n".into(), ""),
        _ => Said::Ran(1, String::new(), "slurm_load_jobs error: Access/permission denied\n"),
    });
    assert_eq!(decided(&launcher.cli().submit(&ada(), &spec("eirene-a")).await.unwrap_err()), "open");
}

#[tokio::test]
async fn a_crowd_waits_for_its_turn_and_the_poll_does_not() {
    let launcher = StandIn::new(|program, arguments| match (program, arguments.last().map(String::as_str)) {
        (SlurmProgram::Sbatch, _) => Said::Ran(0, "7\n".into(), ""),
        (SlurmProgram::Squeue, Some("--states=all")) => Said::Ran(0, jobs(&[listed(7, "eirene-a")]), ""),
        (SlurmProgram::Scancel, _) => Said::Later(String::new()),
        _ => Said::Later(jobs(&[listed(7, "eirene-a")])),
    });
    let cli = Arc::new(launcher.cli());
    let submits = (0..32).map(|_| {
        let cli = Arc::clone(&cli);
        tokio::spawn(async move { cli.submit(&ada(), &spec("eirene-a")).await })
    });
    let submits = submits.collect::<Vec<_>>();
    launcher.until_children(5).await;
    let cancel = tokio::spawn({
        let cli = Arc::clone(&cli);
        async move { cli.cancel(&CallAs::Service, 7).await }
    });
    let seen = tokio::time::timeout(Duration::from_mins(1), cli.jobs()).await.expect("the poll waits for nobody");
    assert_eq!(seen.unwrap().ours.len(), 1);
    launcher.gate.add_permits(1);
    for submit in submits {
        assert_eq!(submit.await.unwrap().unwrap().id, 7);
    }
    cancel.await.unwrap().unwrap();
    assert_eq!(launcher.most.load(Ordering::SeqCst), 6);
}

#[tokio::test(start_paused = true)]
async fn partitions_are_listed_whatever_becomes_of_sinfo() {
    let partitions = include_str!("../fixtures/scontrol-24.11.5-partitions.json");
    for sinfo in [|| Said::Ran(1, String::new(), "sinfo: error"), || Said::Never, || Said::Refused] {
        let launcher = StandIn::new(move |program, _| match program {
            SlurmProgram::Sinfo => sinfo(),
            _ => Said::Ran(0, partitions.into(), ""),
        });
        let asked = tokio::time::timeout(Duration::from_secs(8), launcher.cli().partitions()).await;
        let listed = asked.expect("it does not wait long for sinfo").unwrap();
        assert_eq!(listed.iter().map(|partition| partition.is_default).collect::<Vec<_>>(), [false, false]);
        assert!(launcher.lines.lock().unwrap().iter().any(|line| line.starts_with("Sinfo")));
    }
}

#[tokio::test]
async fn sinfo_is_not_asked_where_the_answer_names_the_default() {
    let partitions = include_str!("../fixtures/scontrol-26.05.5-partitions.json");
    let launcher = StandIn::new(move |program, _| match program {
        // As it was some minutes ago.
        SlurmProgram::Sinfo => Said::Ran(0, "long*\nmain\n".into(), ""),
        _ => Said::Ran(0, partitions.into(), ""),
    });
    let listed = launcher.cli().partitions().await.unwrap();
    assert_eq!(listed.iter().map(|partition| partition.is_default).collect::<Vec<_>>(), [true, false, false]);
    assert!(launcher.lines.lock().unwrap().iter().all(|line| !line.starts_with("Sinfo")));
}

#[tokio::test]
async fn other_peoples_jobs_are_left_out() {
    let launcher = StandIn::new(|_, _| Said::Ran(0, jobs(&[listed(1, "other"), listed(2, "eirene-a")]), ""));
    let seen = launcher.cli().jobs().await.unwrap();
    assert_eq!(seen.ours.iter().map(|job| job.identity.id).collect::<Vec<_>>(), [2]);
    assert_eq!(seen.queue.running_in(|_| true) + seen.queue.waiting_in(|_| true).jobs, 2, "but count");
}

#[tokio::test]
async fn a_node_is_drained_with_who_asked_and_resumed() {
    let launcher = StandIn::new(|_, _| Said::Ran(0, String::new(), ""));
    let cli = launcher.cli();
    cli.drain_node(&c1(), &fan(), &ada()).await.unwrap();
    cli.resume_node(&c1()).await.unwrap();
    assert_eq!(decided(&cli.resume_node(&all_nodes()).await.unwrap_err()), "node_unknown");
    assert_eq!(decided(&cli.drain_node(&all_nodes(), &fan(), &ada()).await.unwrap_err()), "node_unknown");
    let lines = launcher.lines.lock().unwrap();
    assert_eq!(
        *lines,
        [
            "Scontrol update nodename=c1 state=drain reason=the \"fan\"; $(id) (eirene: ada)",
            "Scontrol update nodename=c1 state=resume"
        ]
    );
}

#[tokio::test]
async fn a_node_that_is_not_changed_says_why() {
    for (stderr, code) in [
        ("slurm_update error: Invalid user id\n", "node_not_permitted"),
        ("slurm_update error: Access/permission denied\n", "node_not_permitted"),
        ("slurm_update error: Invalid node name specified\n", "node_unknown"),
        ("slurm_update error: Invalid node state specified\n", "node_not_drained"),
        ("slurm_update error: Unable to contact slurm controller (connect failure)\n", "open"),
        ("", "open"),
    ] {
        let cli = StandIn::new(move |_, _| Said::Ran(1, String::new(), stderr)).cli();
        assert_eq!(decided(&cli.drain_node(&c1(), &fan(), &ada()).await.unwrap_err()), code, "{stderr}");
        assert_eq!(decided(&cli.resume_node(&c1()).await.unwrap_err()), code, "{stderr}");
    }
}
