//! The demo cluster: its log-ins from `var/demo.json`, its containers through `docker exec`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::portal::NOTICE;
use crate::until;

/// A requeued job is back in the queue within this time.
const BACK: Duration = Duration::from_secs(90);

/// A log-in.
#[derive(Debug, Clone, Deserialize)]
pub struct Account {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

/// `var/demo.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Demo {
    /// Portal address.
    pub portal_url: String,
    /// Host and port under which session origins lie.
    pub apps_domain: String,
    /// The admin.
    pub admin: Account,
    /// Ordinary people, by name.
    pub users: BTreeMap<String, Account>,
}

/// The checkout's root.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Demo {
    /// Reads the file; without it the cluster is not up.
    pub fn load() -> anyhow::Result<Self> {
        let path = root().join("var/demo.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no `{}`: bring the demo cluster up with `make demo`", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The log-in of `username`.
    pub fn account(&self, username: &str) -> anyhow::Result<&Account> {
        if username == self.admin.username {
            return Ok(&self.admin);
        }
        self.users.get(username).with_context(|| format!("the demo has no `{username}`"))
    }
}

/// Runs a program in a container as `user` and gives its output; another exit status than 0 is an error.
pub async fn exec(container: &str, user: &str, arguments: &[&str]) -> anyhow::Result<String> {
    exec_with_input(container, user, arguments, "").await
}

/// Like [`exec`], with text on standard input.
pub async fn exec_with_input(container: &str, user: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = Command::new("docker")
        .args(["exec", "-i", "-u", user, container])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("`docker` is needed")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await?;
    }
    let output = tokio::time::timeout(Duration::from_mins(2), child.wait_with_output()).await??;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success(),
        "`{}` in {container} as {user}: {} {stdout}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout)
}

/// Puts a file of this machine's into a container, as root's.
pub async fn copy(file: &Path, container: &str, to: &str) -> anyhow::Result<()> {
    let copied = Command::new("docker").arg("cp").arg(file).arg(format!("{container}:{to}")).output().await?;
    anyhow::ensure!(copied.status.success(), "docker cp: {}", String::from_utf8_lossy(&copied.stderr));
    exec(container, "root", &["chown", "root:root", to]).await.map(drop)
}

/// Stops or starts one daemon of a container.
pub async fn daemon(container: &str, name: &str, verb: &str) -> anyhow::Result<()> {
    exec(container, "root", &["demo-ctl", name, verb]).await.map(drop)
}

/// The portal's database file, opened beside the portal: for what no interface says, and where no test can wait for the days that have to pass.
pub async fn database() -> anyhow::Result<sqlx::SqliteConnection> {
    use sqlx::Connection as _;
    let format = "{{range .Mounts}}{{if eq .Destination \"/var/lib/eirene\"}}{{.Source}}{{end}}{{end}}";
    let mount = Command::new("docker").args(["inspect", "--format", format, "portal"]).output().await?;
    let file = format!("sqlite://{}/eirene.db", String::from_utf8(mount.stdout)?.trim());
    Ok(sqlx::SqliteConnection::connect(&file).await?)
}

/// Numbers of the live jobs whose name is `name`, asked as the operator.
pub async fn jobs_named(name: &str) -> anyhow::Result<Vec<u32>> {
    let text = exec("head", "root", &["squeue", "--noheader", "--format=%A", &format!("--name={name}")]).await?;
    text.split_whitespace().map(|word| Ok(word.parse()?)).collect()
}

/// SLURM holds a requeued job back for two minutes, in which its earlier run ends; an operator can let it go as soon as that has.
pub async fn begin_now(job: &str) -> anyhow::Result<()> {
    until("the job is back in the queue", BACK, || async {
        let state = exec("head", "root", &["squeue", "--noheader", "--format=%T", &format!("--jobs={job}")]).await?;
        Ok((state.trim() == "PENDING").then_some(()))
    })
    .await?;
    for node in ["c1", "c2"] {
        until("its earlier run is gone", BACK, || async {
            let left = exec(node, "root", &["sh", "-c", &format!("pgrep -f '^slurmstepd: .{job}[.]' || :")]).await?;
            Ok(left.trim().is_empty().then_some(()))
        })
        .await?;
    }
    // Nodes take the credential of a start within the same second for the revoked one of the earlier run; what is told them may be a second late.
    let second = || async { anyhow::Ok(exec("head", "root", &["date", "+%s"]).await?.trim().parse::<u64>()?) };
    let gone = second().await?;
    until("a later second", BACK, || async { Ok((second().await? > gone + 1).then_some(())) }).await?;
    exec("head", "root", &["scontrol", "update", &format!("jobid={job}"), "starttime=now"]).await.map(drop)
}

/// The step of a job that has so many tasks, as SLURM names it (`7.1`). Helpers have one task each.
pub async fn step_of(job: &str, tasks: u32) -> anyhow::Result<String> {
    let text = exec("head", "root", &["squeue", "--noheader", "--steps", "--format=%i %A"]).await?;
    let (of_job, tasks) = (format!("{job}."), tasks.to_string());
    let mut steps = text.lines().filter_map(|line| line.trim().split_once(' '));
    let wanted = steps.find(|(step, count)| step.starts_with(&of_job) && count.trim() == tasks);
    let (step, _) = wanted.with_context(|| format!("no step of job {job} has {tasks} tasks: {text}"))?;
    Ok(step.to_owned())
}

/// Waits until SLURM's accounting has the end of a job, and compares state and exit code (`COMPLETED|0:0`) of each of its starts.
pub async fn is_accounted(job: &str, expected: &[&str]) -> anyhow::Result<()> {
    let query = ["sacct", "-X", "-n", "-P", "--duplicates", "-o", "State,ExitCode", "-j", job];
    // Who cancelled a job stands behind its state.
    let plain = |line: &str| {
        let (state, exit) = line.split_once('|').unwrap_or((line, ""));
        format!("{}|{exit}", state.split(' ').next().unwrap_or_default())
    };
    let said = until("its end in accounting", NOTICE, || async {
        let said: Vec<String> = exec("head", "root", &query).await?.lines().map(plain).collect();
        let goes_on = said.last().is_none_or(|last| last.starts_with("RUNNING") || last.starts_with("PENDING"));
        Ok((!goes_on).then_some(said))
    });
    let said = said.await.with_context(|| format!("job {job}"))?;
    ensure!(said == expected, "job {job}: {said:?}, not {expected:?}");
    Ok(())
}

/// A node's slurmd ends with everything of a job there, at once, as when the machine does; SLURM gives the node up a minute later
/// (`SlurmdTimeout`). When this is dropped it is brought back, and takes work.
pub async fn lose_node(node: &str, job: &str) -> anyhow::Result<Restore> {
    // Whatever a job starts is below one of its slurmstepd: its agent and its helpers adopt what others leave behind.
    const LOSE: &str = r#"
tree() {
    echo "$1"
    pgrep -P "$1" | while read -r below; do tree "$below"; done
}
all=$(for top in $(pgrep -f "^slurmstepd: .$1[.]"); do tree "$top"; done)
[ -n "$all" ] || exit
touch /run/demo/slurmd.down
kill -KILL "$(cat /run/demo/slurmd.pid)" $all
# What has ended meanwhile is lost as well.
:
"#;
    const TAKES_WORK: &str = r#"
for look in $(seq 240); do
    sinfo --noheader --format=%t --nodes="$1" | grep -qE '^(idle|mix|alloc|comp|plnd)-?$' && exit
    sleep 0.25
done
"#;
    let restored = Restore::with(&[
        &["exec", node, "demo-ctl", "slurmd", "start"],
        &["exec", "head", "sh", "-c", TAKES_WORK, "sh", node],
    ]);
    exec(node, "root", &["sh", "-c", LOSE, "sh", job]).await.with_context(|| format!("job {job} is not on {node}"))?;
    Ok(restored)
}

/// A job of this person's in the ordinary QOS, for both nodes and with so much memory on each, MB, that nothing else has room beside it.
pub async fn take_the_nodes(username: &str, memory: u32) -> anyhow::Result<String> {
    let (memory, home) = (format!("--mem={memory}M"), format!("--chdir=/home/{username}"));
    let job = ["sbatch", "--parsable", "--account=research", "--nodes=2", "--ntasks-per-node=1", &memory, "--time=5"];
    let rest = [&home, "--output=/dev/null", "--wrap=sleep 240"];
    Ok(exec("head", username, &[&job[..], &rest[..]].concat()).await?.trim().to_owned())
}

/// Ends the job that took the nodes, once it has them, and lets the one that gave way begin again.
pub async fn give_back(taker: &str, job: &str) -> anyhow::Result<()> {
    until("the nodes were taken", BACK, || async {
        let state = exec("head", "root", &["squeue", "--noheader", "--format=%T", &format!("--jobs={taker}")]).await?;
        Ok((state.trim() == "RUNNING").then_some(()))
    })
    .await?;
    exec("head", "root", &["scancel", taker]).await?;
    begin_now(job).await
}

/// Brings back whatever a test took away, also when the test fails half way.
pub struct Restore(Vec<Vec<String>>);

impl Restore {
    /// Runs these `docker` argument vectors when dropped.
    pub fn with(commands: &[&[&str]]) -> Self {
        Self(commands.iter().map(|words| words.iter().map(ToString::to_string).collect()).collect())
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        for words in &self.0 {
            // Nothing can be done about a failure here; the next test's own checks will name it.
            let _ =
                std::process::Command::new("docker").args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// Waits until nobody's process and no session's directory is left of somebody on any node; says what is, if that takes too long.
pub async fn nothing_is_left_of(user: &str) -> anyhow::Result<()> {
    for node in ["c1", "c2"] {
        let look = format!("ps -o pid=,etimes=,stat=,args= -u {user}; ls -A /tmp/eirene-$(id -u {user})");
        until(&format!("nothing is left on {node}"), NOTICE, || async {
            let left = exec(node, "root", &["sh", "-c", &look]).await?;
            anyhow::ensure!(left.trim().is_empty(), "{left}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
