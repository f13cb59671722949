//! What the contract runs over. The stand-ins for BeeGFS's tools answer each question from a fixture and nothing else; a question without a
//! fixture is one that goes unanswered. Where a BeeGFS runs, its own tool answers in their place.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::RootName;
use eirene_core::storage::{BeegfsTool, KernelQuotas, Place, QuotaRange, Ran, SharedStorage, StorageError, Why};
use eirene_launcher::beegfs::check;
use eirene_launcher::config::Generation;
use eirene_storage::{Beegfs7, Beegfs8, LocalProbe, Look, Posix, Probe};
use tempfile::TempDir;

use crate::beegfs7_real::{Daemons, said};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing.
    None,
    /// The server of the second storage target is down.
    TargetAway,
    /// Rows, and a sentence of trouble beside them.
    HalfAnswer,
    /// Quotas are refused.
    QuotaRefused,
    /// Nothing is known of anybody's quota.
    QuotaUnknown,
    /// Rows of the first of two pools, and a sentence of trouble in the place of the second.
    PoolLost,
    /// Nobody answers anything.
    Silence,
}

/// One implementation in a temporary directory that has a root of spaces, `all`, with the space `home` in it.
pub(crate) struct Bench {
    folder: TempDir,
    make: fn(Arc<dyn Probe>, Trouble) -> Arc<dyn SharedStorage>,
    kind: Option<&'static str>,
    /// Those behind it, where it is a BeeGFS that runs.
    daemons: Option<Daemons>,
}

impl Bench {
    pub(crate) fn storage(&self) -> Arc<dyn SharedStorage> {
        self.with(Trouble::None)
    }

    pub(crate) fn with(&self, trouble: Trouble) -> Arc<dyn SharedStorage> {
        if let Some(daemons) = &self.daemons {
            daemons.bring_into(trouble);
        }
        let roots = BTreeMap::from([("all".parse().unwrap(), self.folder.path().to_owned())]);
        let point = self.folder.path().canonicalize().unwrap().to_string_lossy().into_owned();
        let probe = StandIn { probe: LocalProbe::new(roots), kind: self.kind, point, trouble };
        (self.make)(Arc::new(probe), trouble)
    }

    /// Whether what is set is there afterwards: the answers of stand-ins do not change.
    pub(crate) fn is_real(&self) -> bool {
        self.daemons.is_some()
    }

    /// Whether this can go wrong here. Stand-ins play all of it; real servers can be stopped, by a program that does it, and nothing else.
    pub(crate) fn can_be_in(&self, trouble: Trouble) -> bool {
        self.daemons.as_ref().is_none_or(|daemons| daemons.can_be_in(trouble))
    }

    /// Where its root of spaces lies.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The space that is there.
    pub(crate) fn home() -> Place {
        Place::Space { root: "all".parse().unwrap(), name: "home".parse().unwrap(), below: None }
    }
}

pub(crate) fn bench(kind: Option<&'static str>, make: fn(Arc<dyn Probe>, Trouble) -> Arc<dyn SharedStorage>) -> Bench {
    bench_in(TempDir::new().unwrap(), kind, make)
}

fn bench_in(
    folder: TempDir,
    kind: Option<&'static str>,
    make: fn(Arc<dyn Probe>, Trouble) -> Arc<dyn SharedStorage>,
) -> Bench {
    fs::create_dir(folder.path().join("home")).unwrap();
    std::os::unix::fs::symlink("/", folder.path().join("out")).unwrap();
    Bench { folder, make, kind, daemons: None }
}

pub(crate) fn posix() -> Bench {
    bench(None, |probe, _| Arc::new(Posix::new(probe)))
}

/// On the disk that this variable names, as `<device>:<mount point>`.
pub(crate) fn posix_on(variable: &str) -> Bench {
    let said = std::env::var(variable).expect("storage/tests/with-xfs runs this");
    let (_, point) = said.split_once(':').unwrap();
    bench_in(TempDir::new_in(point).unwrap(), None, |probe, _| Arc::new(Posix::new(probe)))
}

pub(crate) fn beegfs7() -> Bench {
    bench(Some("beegfs"), |probe, trouble| seven(captured, trouble, probe))
}

/// The daemons that `EIRENE_TEST_BEEGFS7` names, for as long as the bench is there. No client mounts them: the temporary directory stands for that.
pub(crate) fn beegfs7_real() -> Bench {
    let daemons = Daemons::take();
    let bench = bench(Some("beegfs"), |probe, _| seven(said, Trouble::None, probe));
    Bench { daemons: Some(daemons), ..bench }
}

pub(crate) fn beegfs8_3() -> Bench {
    bench(Some("beegfs"), |probe, trouble| eight(captured_8_3, trouble, probe))
}

pub(crate) fn beegfs8_4() -> Bench {
    bench(Some("beegfs"), |probe, trouble| eight(captured_8_4, trouble, probe))
}

/// BeeGFS 8 behind a tool that answers so.
pub(crate) fn eight(answer: Answer, trouble: Trouble, probe: Arc<dyn Probe>) -> Arc<dyn SharedStorage> {
    let tool = Tool { answer, generation: Generation::Eight, trouble };
    Arc::new(Beegfs8::new(Arc::new(tool), Posix::new(probe)))
}

/// BeeGFS 7 behind a tool that answers so.
pub(crate) fn seven(answer: Answer, trouble: Trouble, probe: Arc<dyn Probe>) -> Arc<dyn SharedStorage> {
    let tool = Tool { answer, generation: Generation::Seven, trouble };
    Arc::new(Beegfs7::new(Arc::new(tool), Posix::new(probe)))
}

/// Looks at the temporary directory, and says that BeeGFS is mounted there where that is the bench.
struct StandIn {
    probe: LocalProbe,
    kind: Option<&'static str>,
    point: String,
    trouble: Trouble,
}

#[async_trait]
impl Probe for StandIn {
    async fn look(&self, place: &Place) -> Result<Look, StorageError> {
        if self.trouble == Trouble::Silence {
            return Err(away());
        }
        let mut look = self.probe.look(place).await?;
        if let Some(kind) = self.kind {
            look.identity.kind = kind.into();
            look.mount_point.clone_from(&self.point);
            look.mounted = "/".into();
        }
        Ok(look)
    }

    fn roots(&self) -> Vec<RootName> {
        self.probe.roots()
    }

    /// As the launcher asks, but from this process: whoever is not root is refused, or told that nobody counts.
    async fn counted(&self, _: &RootName, range: QuotaRange) -> Result<KernelQuotas, StorageError> {
        let refused = |why, text: String| Err(StorageError::Refused { why, text });
        match self.trouble {
            Trouble::Silence => Err(away()),
            Trouble::QuotaRefused => refused(Why::Refused, "only root may ask".into()),
            Trouble::QuotaUnknown => Err(StorageError::Malformed { what: "what is counted".into() }),
            _ => eirene_launcher::space_root::quotas(Path::new(&self.point), false, range).or_else(|refusal| {
                match refusal.code {
                    "not_supported" => Err(StorageError::Unsupported("quotas of users and groups")),
                    "not_enabled" => refused(Why::NotEnabled, refusal.text),
                    _ => refused(Why::Refused, refusal.text),
                }
            }),
        }
    }
}

/// What a tool says to these arguments; `None` where it says nothing.
pub(crate) type Answer = fn(&[String], Trouble) -> Option<Ran>;

struct Tool {
    answer: Answer,
    generation: Generation,
    trouble: Trouble,
}

#[async_trait]
impl BeegfsTool for Tool {
    async fn run(&self, arguments: &[String]) -> Result<Ran, StorageError> {
        // Whatever an adapter asks is in the launcher's table, so that neither changes alone.
        check(self.generation, arguments).unwrap_or_else(|refusal| panic!("{}: {arguments:?}", refusal.text));
        if self.trouble == Trouble::Silence {
            return Err(away());
        }
        (self.answer)(arguments, self.trouble).ok_or_else(away)
    }
}

fn away() -> StorageError {
    StorageError::Away { source: None, retry_after_s: 10 }
}

fn fixture(path: &str) -> String {
    fs::read_to_string(format!("{}/tests/fixtures/{path}.txt", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn good(stdout: String) -> Ran {
    Ran { status: 0, stdout, stderr: String::new() }
}

fn bad(stderr: &str) -> Ran {
    Ran { status: 1, stdout: String::new(), stderr: stderr.into() }
}

/// `beegfs-ctl` 7.4.7 as it was captured.
pub(crate) fn captured(arguments: &[String], trouble: Trouble) -> Option<Ran> {
    let asked = arguments.join(" ");
    if trouble == Trouble::QuotaRefused && asked.contains("quota") {
        return Some(bad("This mode requires root privileges.\n"));
    }
    let name = match asked.as_str() {
        asked if trouble == Trouble::QuotaUnknown && asked.contains("--withzero") => "getquota-range-csv",
        "--version" => "version",
        "--listnodes --nodetype=meta --details --reachable" => "listnodes-meta",
        "--listnodes --nodetype=management --details --reachable" if trouble == Trouble::HalfAnswer => return None,
        // Nobody captured the management's own; it is the same machine.
        "--listnodes --nodetype=storage --details --reachable"
        | "--listnodes --nodetype=management --details --reachable" => "listnodes-storage",
        "--listtargets --nodetype=meta --state --spaceinfo" => "listtargets-meta",
        "--listtargets --nodetype=storage --state --spaceinfo --pools --longnodes" => "listtargets-storage",
        "--liststoragepools" if trouble == Trouble::PoolLost => "liststoragepools-two",
        "--liststoragepools" => "liststoragepools",
        "--getquota --uid 1000 --withzero --csv" => "getquota-user-csv",
        "--getquota --uid 0 --withzero --csv" => "getquota-one",
        // With a pool only the table for programs is printed; the numbers are those of the captured table for people.
        "--getquota --defaultlimits --csv --storagepoolid=1" => {
            return Some(good(
                "user size limit,user chunk files limit,group size limit,group chunk files\n\
                 53687091200,unlimited,unlimited,unlimited\n"
                    .into(),
            ));
        }
        asked if asked.starts_with("--setquota --default --uid ") => "setquota-default",
        asked if asked.starts_with("--setquota --uid 1000 ") => "setquota-user",
        "--setquota --uid 0 --sizelimit=unlimited --inodelimit=unlimited --storagepoolid=1" => "setquota-user",
        "--getentryinfo --unmounted /" => "getentryinfo",
        "--getentryinfo --unmounted /home" => "getentryinfo-home",
        asked if asked.starts_with("--setpattern --unmounted ") && asked.ends_with(" /home") => "setpattern",
        asked if asked.starts_with("--serverstats --nodetype=storage --history=") => "serverstats",
        "--serverstats --nodetype=storage --interval=0 --perserver --names" => "serverstats-now",
        "--userstats --nodetype=meta --interval=0" => "userstats",
        "--clientstats --nodetype=storage --interval=0" => "clientstats",
        _ => return None,
    };
    let (status, mut stdout) = body(name);
    let mut ran = Ran { status, stdout: String::new(), stderr: String::new() };
    if trouble == Trouble::TargetAway && name == "listtargets-storage" {
        stdout = stdout.replacen(
            "252.0GiB     227.7GiB  90%       16.8M       16.1M  96%",
            "0.0GiB 0.0GiB 0% 0.0M 0.0M 0%",
            1,
        );
        ran.status = 1;
        ran.stderr = " [ERROR from beegfs-storage vm [ID: 1]: Communication error]\n".into();
    }
    if trouble == Trouble::PoolLost && name == "getquota-user-csv" {
        // As the capture of a server that is down has it, and behind the first pool, which was answered.
        let (status, down) = body("down-getquota");
        let (_, down) = down.split_once("Quota information for storage pool ").unwrap();
        stdout.push_str("\nQuota information for storage pool ");
        stdout.push_str(&down.replacen("Default (ID: 1):", "fast (ID: 2):", 1));
        ran.status = status;
    }
    ran.stdout = stdout;
    Some(ran)
}

/// A capture's status and what was printed, without the command above it.
fn body(name: &str) -> (i32, String) {
    let text = fixture(&format!("beegfs-7.4.7/{name}"));
    let (_, rest) = text.split_once('\n').unwrap();
    let (stdout, status) = rest.rsplit_once("[exit ").unwrap();
    (status.trim_end().trim_end_matches(']').parse().unwrap(), stdout.to_owned())
}

/// `beegfs` 8.3.1 as it was captured.
fn captured_8_3(arguments: &[String], trouble: Trouble) -> Option<Ran> {
    captured_8("beegfs-8.3.1", arguments, trouble)
}

/// `beegfs` shortly before 8.4.0 as it was captured.
fn captured_8_4(arguments: &[String], trouble: Trouble) -> Option<Ran> {
    captured_8("beegfs-8.4-pre", arguments, trouble)
}

/// The captured answers to the contract's questions. Limits and the state of a target are put where the contract
/// looks for them: what is around them is as it was printed.
fn captured_8(release: &str, arguments: &[String], trouble: Trouble) -> Option<Ran> {
    let asked: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--disable-alerts").collect();
    if asked.len() < arguments.len() && release == "beegfs-8.3.1" {
        return Some(bad("Error: unknown flag: --disable-alerts\n"));
    }
    let asked = asked.join(" ");
    let asked = asked.rsplit_once("--log-level=0 ").map_or(asked.as_str(), |(_, question)| question);
    let (columns, question) = asked.split_once(' ').filter(|_| asked.starts_with("--columns=")).unwrap_or(("", asked));
    assert_eq!(columns.is_empty(), !asked.starts_with("--columns="));
    if trouble == Trouble::QuotaRefused && question.starts_with("quota ") {
        return Some(bad("Error: only root can query arbitrary user ids\n"));
    }
    let nobody = trouble == Trouble::QuotaUnknown;
    let down = trouble == Trouble::TargetAway;
    let name = match question {
        "version" => "version",
        "node list --with-nics --reachability-check --reachability-error" if down => "node-list-st2-just-killed",
        "node list --with-nics --reachability-check --reachability-error" => "lic-node-list",
        "target list --state --capacity" => "target-list-st2-just-killed",
        "pool list --with-limits" => "lic-pool-list",
        "quota list-usage --uids=1000-1000" if !nobody => "lic-quota-users",
        "quota list-usage --uids=0-0" => "lic-quota-root",
        "quota list-limits --uids=1000-1000" if !nobody => "lic-limits",
        "quota list-limits --uids=1700-1700" => "lic-limits",
        _ if question.starts_with("quota list-usage ") => "lic-quota-none",
        _ if question.starts_with("quota list-limits ") => "lic-limits-none",
        _ if question.starts_with("quota set-limits s:9 ") => "lic-set-badpool",
        _ if question.starts_with("quota set-limits ") => "lic-set",
        _ if question.starts_with("quota set-defaults ") => "lic-defaults",
        "entry info --mount=none /" => "entry-root",
        "entry info --mount=none /home" => "entry-dir",
        _ if question.starts_with("entry set --mount=none ") && question.ends_with(" /home") => "set-stripe",
        _ if question.starts_with("stats server m:1 ") => "stats-meta",
        _ if question.starts_with("stats server s:") => "stats-history",
        "stats user m:1 --node-type=meta --interval=0s" => "users",
        "stats client m:1 --node-type=meta --interval=0s" => "clients",
        _ => return None,
    };
    let mut ran = captured_answer(release, name);
    let in_place = |stdout: &str, this: &str, that: &str| {
        assert!(stdout.contains(this), "{this} in {stdout}");
        stdout.replacen(this, that, 1)
    };
    match name {
        "lic-pool-list" => {
            ran.stdout = in_place(&ran.stdout, "\"user_space_limit\":\"∞\"", "\"user_space_limit\":\"53687091200\"");
        }
        "lic-limits" if question.ends_with("=1000-1000") => {
            ran.stdout = ran.stdout.replace("\"id\":1700", "\"id\":1000");
            let limits = "\"inode\":\"100000\",\"pool\":\"storage_pool_default\",\"space\":\"10737418240\"";
            let own = "\"inode\":\"-\",\"pool\":\"storage_pool_default\",\"space\":\"1000000\"";
            ran.stdout = in_place(&ran.stdout, own, limits);
        }
        "lic-quota-users" => {
            ran.stdout = ran.stdout.split_inclusive('\n').filter(|line| line.contains("\"id\":1000,")).collect();
        }
        "stats-history" if question.starts_with("stats server s:2 ") => {
            ran.stdout = ran.stdout.replace("\"s:1\"", "\"s:2\"").replace("storage_1", "storage_2");
        }
        _ => {}
    }
    if down && name == "target-list-st2-just-killed" {
        // Some seconds later, with the numbers that the management keeps.
        let (others, row) = ran.stdout.trim_end().rsplit_once('\n').unwrap();
        assert!(row.contains("target_storage_2"), "{row}");
        ran.stdout = format!("{others}\n{}\n", in_place(row, "\"Online\"", "\"Offline\""));
    }
    if trouble == Trouble::PoolLost && name == "lic-pool-list" {
        ran.stdout = in_place(&ran.stdout, "\"alias\":\"fast\",", "");
    }
    if trouble == Trouble::HalfAnswer && name == "lic-node-list" {
        ran.stdout.truncate(ran.stdout.trim_end().len() - 20);
    }
    Some(ran)
}

/// A capture of 8: arguments, status and both outputs.
fn captured_answer(release: &str, name: &str) -> Ran {
    let path = format!("{}/tests/fixtures/{release}/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let capture: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let text = |of: &str| capture[of].as_str().unwrap().to_owned();
    let status = i32::try_from(capture["status"].as_i64().unwrap()).unwrap();
    Ran { status, stdout: text("stdout"), stderr: text("stderr") }
}
