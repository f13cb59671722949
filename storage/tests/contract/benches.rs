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

pub(crate) fn beegfs8() -> Bench {
    bench(Some("beegfs"), |probe, trouble| {
        let tool = Tool { answer: written, generation: Generation::Eight, trouble };
        Arc::new(Beegfs8::new(Arc::new(tool), Posix::new(probe)))
    })
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

/// `beegfs` 8.4.0 as its source says.
fn written(arguments: &[String], trouble: Trouble) -> Option<Ran> {
    let asked = arguments.join(" ");
    let has = |words: &str| asked.contains(words);
    if trouble == Trouble::QuotaRefused && has("quota ") {
        return Some(bad("Error: only root can query arbitrary user ids\n"));
    }
    if trouble == Trouble::QuotaUnknown && has("quota list-usage") {
        let stderr =
            "WARNING: No information found for the specified ID(s). Either these ID(s) do not exist, or …\n".into();
        return Some(Ran { status: 0, stdout: String::new(), stderr });
    }
    let name = match asked.as_str() {
        "version" => "version",
        _ if has(" node list ") => "node-list",
        _ if has(" target list ") => "target-list",
        _ if has(" pool list ") => "pool-list",
        _ if has(" quota list-usage --uids=1000-1000") => "quota-list-usage",
        _ if has(" quota list-usage --uids=0-0") => {
            return Some(good(
                fixture("beegfs-8.4.0/written-from-source-8.4.0-quota-list-usage").replace(":1000,", ":0,"),
            ));
        }
        _ if has(" quota set-") || has(" entry set ") => return Some(good(String::new())),
        _ if has(" entry info --mount=none /") => "entry-info",
        _ if has(" stats server ") => "stats-server",
        _ if has(" stats user --node-type=meta ") => "stats-user",
        _ => return None,
    };
    let mut ran = good(fixture(&format!("beegfs-8.4.0/written-from-source-8.4.0-{name}")));
    if name == "quota-list-usage" {
        ran.stdout = ran.stdout.split_inclusive('\n').filter(|line| line.contains("1000,")).collect();
        ran.stderr =
            "INFO: Quota usage information is fetched every 30s from the server nodes, thus it may be old.\n".into();
    }
    if trouble == Trouble::PoolLost && name == "pool-list" {
        ran.stdout = ran.stdout.replacen("\"alias\":\"fast\",", "", 1);
        assert!(!ran.stdout.contains("fast"), "its row lacks what it must have");
    }
    if trouble == Trouble::HalfAnswer && name == "node-list" {
        ran.status = 5;
        ran.stderr = "Error: at least one node is unreachable\n".into();
    }
    Some(ran)
}
