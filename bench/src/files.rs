//! Files through the portal, with everything real but SLURM: eirened, the launcher, the person's file process, over one connection of loopback.
//! `dd` and `du` do the same on the same disk in turns.
//!
//! `bench/files` starts this as root, with a person and a portal's account in a user database of its own and the person's home still empty.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use data_encoding::BASE64;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::load::{self, Case};
use crate::process::{peak, resident, stop};
use crate::results;
use crate::rig::{Account, Accounts, Rig};
use crate::source::{Compared, MIB, PIECE, Sums, random_file};
use crate::stats::median;
use crate::summary::Goal;
use crate::table::{mebibytes, millis, table};
use crate::wire::Wire;

/// Transfers at once, where their memory is measured.
const TRANSFERS: usize = 8;
/// Seconds that an echo is listened to.
const ECHO_S: f64 = 3.0;
/// How often it is asked whether a scan is over.
const ASK: Duration = Duration::from_millis(50);

/// Milliseconds for the first page.
const PAGE_GOAL: Goal = Goal::AtMost(100.0);
/// Share of what `dd` does in a second.
const TRANSFER_GOAL: Goal = Goal::AtLeast(0.7);
/// MiB a transfer.
const MEMORY_GOAL: Goal = Goal::AtMost(16.0);
/// Times the time of `du`.
const SCAN_GOAL: Goal = Goal::AtMost(1.0);
/// Times what `dd` needs alone.
const YIELD_GOAL: Goal = Goal::AtMost(1.1);

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Entries of the large directory.
    #[arg(long, default_value_t = 100_000)]
    entries: usize,
    /// Size of the file that goes up and down, MiB.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// Files that are measured.
    #[arg(long, default_value_t = 1_000_000)]
    files: usize,
    /// A directory of the disk to measure.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// The person's home, an empty directory.
    #[arg(long)]
    home: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    entries: usize,
    mebibytes: u64,
    files: usize,
    caches_dropped: bool,
    page_cold_ms: Vec<f64>,
    page_warm_ms: Vec<f64>,
    page_by_size_ms: Vec<f64>,
    dd_up_s: Vec<f64>,
    up_s: Vec<f64>,
    up_with_sum_s: Vec<f64>,
    #[serde(default)]
    up_with_sums_s: Vec<f64>,
    dd_down_s: Vec<f64>,
    down_s: Vec<f64>,
    portal_transfer_bytes: f64,
    process_transfer_bytes: f64,
    echo_alone_p99_us: Vec<f64>,
    echo_beside_two_p99_us: Vec<f64>,
    echo_beside_p99_us: Vec<f64>,
    #[serde(default)]
    echo_beside_copies_p99_us: Vec<f64>,
    du_s: Vec<f64>,
    scan_s: Vec<f64>,
    dd_alone_s: Vec<f64>,
    #[serde(default)]
    dd_beside_du_s: Vec<f64>,
    dd_beside_scan_s: Vec<f64>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(options.rounds > 0 && options.mebibytes > 0, "at least one round, and one MiB");
    let dir = tempfile::Builder::new().prefix("eirene-bench-").tempdir_in(&options.directory)?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let accounts =
        Accounts { person: Account { name: "bench", id: 29871 }, portal: Account { name: "bench-portal", id: 972 } };
    // The home lies on the disk that is measured, under the name that the user database has.
    let disk = dir.path().join("home");
    std::fs::create_dir(&disk)?;
    let bound = Command::new("mount").arg("--bind").args([&disk, &options.home]).status().await?;
    ensure!(bound.success(), "mount ended with {bound}");
    let person = &accounts.person;
    chown(&disk, Some(person.id), Some(person.id))?;
    let rig = Rig::start_with(1, dir.path(), Some(&accounts)).await?;
    let bench = Bench { rig: &rig, home: &options.home, dir: dir.path(), person, options };
    let figures = bench.measure().await?;
    stop(rig.into_servers()).await?;
    let unbound = Command::new("umount").arg("--lazy").arg(&options.home).status().await?;
    ensure!(unbound.success(), "umount ended with {unbound}");
    let figures = serde_json::to_value(figures)?;
    results::write("files", &figures)?;
    show(&figures)
}

struct Bench<'a> {
    rig: &'a Rig,
    home: &'a Path,
    dir: &'a Path,
    person: &'a Account,
    options: &'a Options,
}

impl Bench<'_> {
    async fn measure(&self) -> anyhow::Result<Figures> {
        let Options { rounds, entries, mebibytes, files, .. } = *self.options;
        println!("making a directory of {entries} entries and a tree of {files} files");
        self.make_files(&self.home.join("many"), entries, entries)?;
        self.make_files(&self.home.join("tree"), files, 100)?;
        let source = self.dir.join("source");
        let sums = random_file(&source, mebibytes * MIB)?;
        let caches_dropped = drop_caches();
        let mut portal = Portal::connect(self.rig).await?;
        let mut figures = Figures {
            entries,
            mebibytes,
            files,
            caches_dropped,
            page_cold_ms: Vec::new(),
            page_warm_ms: Vec::new(),
            page_by_size_ms: Vec::new(),
            dd_up_s: Vec::new(),
            up_s: Vec::new(),
            up_with_sum_s: Vec::new(),
            up_with_sums_s: Vec::new(),
            dd_down_s: Vec::new(),
            down_s: Vec::new(),
            portal_transfer_bytes: 0.0,
            process_transfer_bytes: 0.0,
            echo_alone_p99_us: Vec::new(),
            echo_beside_two_p99_us: Vec::new(),
            echo_beside_p99_us: Vec::new(),
            echo_beside_copies_p99_us: Vec::new(),
            du_s: Vec::new(),
            scan_s: Vec::new(),
            dd_alone_s: Vec::new(),
            dd_beside_du_s: Vec::new(),
            dd_beside_scan_s: Vec::new(),
        };
        // The process is started by the first request, and that is no part of a page.
        portal.page("", "name").await?;
        for round in 1..=rounds {
            println!("round {round} of {rounds}");
            drop_caches();
            figures.page_cold_ms.push(portal.page("many", "name").await?);
            figures.page_warm_ms.push(portal.page("many", "name").await?);
            figures.page_by_size_ms.push(portal.page("many", "size").await?);
            self.up(&mut portal, &source, &sums, &mut figures).await?;
            self.down(&mut portal, &source, &mut figures).await?;
            let target = self.rig.target()?;
            figures.echo_alone_p99_us.push(load::run(Case::WebSocket, &target, 1, ECHO_S, self.dir).await?.p99_us);
            figures.echo_beside_two_p99_us.push(self.transfers(2, &source, &target).await?.0);
            let (beside, portal_bytes, process_bytes) = self.transfers(TRANSFERS, &source, &target).await?;
            figures.echo_beside_p99_us.push(beside);
            figures.echo_beside_copies_p99_us.push(self.copies(&source, &target).await?);
            figures.portal_transfer_bytes = figures.portal_transfer_bytes.max(portal_bytes);
            figures.process_transfer_bytes = figures.process_transfer_bytes.max(process_bytes);
            self.room(&mut portal, &source, &mut figures).await?;
        }
        Ok(figures)
    }

    /// Empty files of the person's, so many in each directory.
    fn make_files(&self, top: &Path, count: usize, in_each: usize) -> anyhow::Result<()> {
        let own = |path: &Path| chown(path, Some(self.person.id), Some(self.person.id));
        std::fs::create_dir(top)?;
        own(top)?;
        let mut directory = top.to_owned();
        for number in 0..count {
            if in_each < count && number % in_each == 0 {
                directory = top.join(format!("d{}", number / in_each));
                std::fs::create_dir(&directory)?;
                own(&directory)?;
            }
            let path = directory.join(format!("file-{number:07}.dat"));
            File::create(&path)?;
            own(&path)?;
        }
        Ok(())
    }

    /// `dd` into the home, an upload, one with the sum of each piece, as browsers and the command line send it, and one whose whole is compared.
    async fn up(&self, portal: &mut Portal, source: &Path, sums: &Sums, figures: &mut Figures) -> anyhow::Result<()> {
        let target = self.home.join("dd");
        warm(source)?;
        figures.dd_up_s.push(dd(source, &target).await?);
        std::fs::remove_file(&target)?;
        for (compared, times) in [
            (Compared::Nothing, &mut figures.up_s),
            (Compared::Pieces(&sums.pieces), &mut figures.up_with_sums_s),
            (Compared::Whole(&sums.whole), &mut figures.up_with_sum_s),
        ] {
            let begun = Instant::now();
            portal.upload(source, "up", compared).await?;
            times.push(begun.elapsed().as_secs_f64());
            std::fs::remove_file(self.home.join("up"))?;
        }
        Ok(())
    }

    /// `dd` out of the home and a download, with the file in memory for both.
    async fn down(&self, portal: &mut Portal, source: &Path, figures: &mut Figures) -> anyhow::Result<()> {
        let (file, target) = (self.home.join("file"), self.dir.join("down"));
        std::fs::copy(source, &file)?;
        chown(&file, Some(self.person.id), Some(self.person.id))?;
        figures.dd_down_s.push(dd(&file, &target).await?);
        std::fs::remove_file(&target)?;
        let begun = Instant::now();
        portal.download("file", Some(&target)).await?;
        figures.down_s.push(begun.elapsed().as_secs_f64());
        ensure!(std::fs::metadata(&target)?.len() == self.options.mebibytes * MIB, "the download is not whole");
        std::fs::remove_file(&target)?;
        Ok(())
    }

    /// Transfers at once, half of them up: an echo beside them, and what they take of memory, of each process.
    async fn transfers(&self, count: usize, source: &Path, target: &load::Target) -> anyhow::Result<(f64, f64, f64)> {
        let eirened = self.rig.portal.pid().context("eirened has ended")?;
        let process = child_of(self.rig.launcher().context("the launcher has ended")?)?;
        let idle = (resident(eirened)?, resident(process)?);
        for pid in [eirened, process] {
            // What was most begins anew (proc(5)).
            std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
        }
        let mut portals = Vec::new();
        for _ in 0..count {
            portals.push(Portal::connect(self.rig).await?);
        }
        let over = std::cell::Cell::new(false);
        let all = portals.into_iter().enumerate().map(|(number, mut portal)| {
            let over = &over;
            async move {
                while !over.get() {
                    if number % 2 == 0 {
                        portal.download("file", None).await?;
                    } else {
                        let name = format!("up-{number}");
                        portal.upload(source, &name, Compared::Nothing).await?;
                        std::fs::remove_file(self.home.join(name))?;
                    }
                }
                anyhow::Ok(())
            }
        });
        let echo = async {
            let load = load::run(Case::WebSocket, target, 1, ECHO_S, self.dir).await;
            over.set(true);
            load
        };
        let (echo, ended) = tokio::join!(echo, futures_util::future::try_join_all(all));
        ended?;
        let more = |pid, idle: u64| anyhow::Ok(peak(pid)?.saturating_sub(idle) as f64 / count as f64);
        Ok((echo?.p99_us, more(eirened, idle.0)?, more(process, idle.1)?))
    }

    /// As many copies that have nothing to do with us, half of them to the disk: what the echo has to bear where the machine is full.
    async fn copies(&self, source: &Path, target: &load::Target) -> anyhow::Result<f64> {
        let (mut copies, mut kill) = (Vec::new(), Command::new("kill"));
        kill.arg("--");
        for number in 0..TRANSFERS {
            let copied = self.dir.join(format!("copied-{number}"));
            let to = if number % 2 == 0 { Path::new("/dev/null") } else { copied.as_path() };
            let mut copy = Command::new("sh");
            // Should this end before it ends them, they end by themselves.
            let copying = r#"while [ -e "/proc/$3" ] && cat "$1" | cat >"$2"; do :; done"#;
            copy.args(["-c", copying, "sh"]).arg(source).arg(to).arg(std::process::id().to_string());
            let copy = copy.process_group(0).spawn()?;
            kill.arg(format!("-{}", copy.id().context("a copy has ended")?));
            copies.push((copy, copied));
        }
        let echo = load::run(Case::WebSocket, target, 1, ECHO_S, self.dir).await;
        kill.status().await?;
        for (mut copy, copied) in copies {
            copy.wait().await?;
            if copied.exists() {
                std::fs::remove_file(copied)?;
            }
        }
        Ok(echo?.p99_us)
    }

    /// `du` and a scan of the same tree; then `dd` alone and beside a scan.
    async fn room(&self, portal: &mut Portal, source: &Path, figures: &mut Figures) -> anyhow::Result<()> {
        drop_caches();
        let begun = Instant::now();
        let mut du = Command::new("du");
        let status = du.arg("-s").arg(self.home.join("tree")).stdout(Stdio::null()).status().await?;
        ensure!(status.success(), "du ended with {status}");
        figures.du_s.push(begun.elapsed().as_secs_f64());
        drop_caches();
        let begun = Instant::now();
        let scan = portal.begin_scan("tree").await?;
        let progress = portal.wait_for(&scan).await?;
        figures.scan_s.push(begun.elapsed().as_secs_f64());
        ensure!(progress["complete"] == true, "the scan was not complete: {progress}");
        let target = self.home.join("dd");
        warm(source)?;
        figures.dd_alone_s.push(dd(source, &target).await?);
        // Each writes a new file: to make room in an old one takes its time, too.
        std::fs::remove_file(&target)?;
        let mut beside = du.spawn()?;
        figures.dd_beside_du_s.push(dd(source, &target).await?);
        beside.wait().await?;
        std::fs::remove_file(&target)?;
        let scan = portal.begin_scan("tree").await?;
        figures.dd_beside_scan_s.push(dd(source, &target).await?);
        portal.wait_for(&scan).await?;
        std::fs::remove_file(&target)?;
        Ok(())
    }
}

/// `dd` with what it wrote on the disk at its end; seconds.
async fn dd(from: &Path, to: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", from.display())).arg(format!("of={}", to.display())).args(["bs=1M", "conv=fsync"]);
    let status = dd.stderr(Stdio::null()).status().await?;
    ensure!(status.success(), "dd ended with {status}");
    Ok(begun.elapsed().as_secs_f64())
}

/// Everything is read from the disk again; whether that was allowed.
fn drop_caches() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Reads a file, so that it is in memory for whoever comes first.
fn warm(path: &Path) -> anyhow::Result<()> {
    std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
    Ok(())
}

/// The one file process that the launcher has started.
fn child_of(launcher: u32) -> anyhow::Result<u32> {
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("PPid:") == Some(&launcher.to_string()) && field("Name:") == Some("eirene-files") {
            return Ok(pid);
        }
    }
    bail!("the launcher has started no file process")
}

/// One connection to the portal, kept.
struct Portal {
    sender: SendRequest<Full<Bytes>>,
    address: std::net::SocketAddr,
    host: String,
    bearer: String,
}

impl Portal {
    async fn connect(rig: &Rig) -> anyhow::Result<Self> {
        let (address, host) = rig.portal_at();
        Ok(Self { sender: Self::dial(address).await?, address, host, bearer: rig.bearer() })
    }

    async fn dial(address: std::net::SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        // The portal closes what was silent for long, as while a disk was written out.
        if self.sender.ready().await.is_err() {
            self.sender = Self::dial(self.address).await?;
            self.sender.ready().await?;
        }
        let mut request = Request::builder().method(method).uri(path).header("host", &self.host);
        request = request.header("authorization", &self.bearer).header("tus-resumable", "1.0.0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.sender.send_request(request.body(Full::new(body))?).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&text))
    }

    async fn json(&mut self, method: &str, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let response = self.ask(method, path, &[("content-type", "application/json")], body).await?;
        Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
    }

    /// The first page of a directory of the home; milliseconds.
    async fn page(&mut self, path: &str, sort: &str) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let page = self.json("GET", &format!("/api/v1/spaces/home/files?path={path}&sort={sort}"), None).await?;
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        ensure!(path.is_empty() || page["items"].as_array().is_some_and(|items| items.len() == 200), "half a page");
        Ok(took)
    }

    /// A file into the home, in pieces.
    async fn upload(&mut self, source: &Path, name: &str, compared: Compared<'_>) -> anyhow::Result<()> {
        let file = File::open(source)?;
        let length = file.metadata()?.len();
        let mut metadata = format!("path {}", BASE64.encode(name.as_bytes()));
        if let Compared::Whole(sum) = compared {
            metadata = format!("{metadata},sha256 {}", BASE64.encode(sum.as_bytes()));
        }
        let whole = length.to_string();
        let headers = [("upload-length", whole.as_str()), ("upload-metadata", metadata.as_str())];
        let made = self.ask("POST", "/api/v1/spaces/home/uploads", &headers, Bytes::new()).await?;
        let place = made.headers().get("location").context("no address of the upload")?.to_str()?.to_owned();
        made.into_body().collect().await?;
        let sums = if let Compared::Pieces(sums) = compared { sums.to_vec() } else { Vec::new() };
        self.blocking(move |wire| {
            for (number, begin) in (0..length).step_by(PIECE as usize).enumerate() {
                let sum = sums.get(number).map(String::as_str);
                wire.send(&place, &file, (begin, length.min(begin + PIECE)), sum)?;
            }
            Ok(())
        })
        .await
    }

    /// A file of the home, to a file that is on the disk in the end, or to nowhere.
    async fn download(&self, name: &str, target: Option<&Path>) -> anyhow::Result<()> {
        let path = format!("/api/v1/spaces/home/files/content?path={name}");
        let file = target.map(File::create).transpose()?;
        self.blocking(move |wire| {
            wire.fetch(&path, file.as_ref())?;
            Ok(file.map_or(Ok(()), |file| file.sync_all())?)
        })
        .await
    }

    /// A connection and a thread for one transfer.
    async fn blocking(
        &self,
        transfer: impl FnOnce(&mut Wire) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (address, host, bearer) = (self.address, self.host.clone(), self.bearer.clone());
        tokio::task::spawn_blocking(move || transfer(&mut Wire::connect(address, &host, &bearer)?)).await?
    }

    async fn begin_scan(&mut self, path: &str) -> anyhow::Result<String> {
        let scan = self.json("POST", "/api/v1/spaces/home/scan", Some(serde_json::json!({"path": path}))).await?;
        Ok(scan["id"].as_str().context("no operation")?.to_owned())
    }

    /// Waits for an operation; how far it came.
    async fn wait_for(&mut self, id: &str) -> anyhow::Result<Value> {
        loop {
            let operation = self.json("GET", &format!("/api/v1/operations/{id}"), None).await?;
            match operation["state"].as_str() {
                Some("waiting" | "running") => tokio::time::sleep(ASK).await,
                Some("done") => return Ok(operation["progress"].clone()),
                _ => bail!("the scan did not end well: {operation}"),
            }
        }
    }
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let figures = Figures::deserialize(figures)?;
    let mut table = table(&["files", "peer", "ours", "figure", "goal", "reached"]);
    let mut row = |what: String, peer: String, ours: String, figure: f64, goal: Option<Goal>| {
        let (goal, mark) = goal.map(|goal| (goal.to_string(), goal.mark(figure))).unwrap_or_default();
        table.add_row([what, peer, ours, format!("{figure:.2}"), goal, mark]);
    };
    let cold = if figures.caches_dropped { "cold" } else { "caches could not be dropped" };
    for (how, times, goal) in [
        (cold, &figures.page_cold_ms, Some(PAGE_GOAL)),
        ("warm", &figures.page_warm_ms, None),
        ("by size", &figures.page_by_size_ms, None),
    ] {
        let took = median(times);
        let what = format!("first page of {}, {how}, ms", figures.entries);
        row(what, String::new(), millis(took * 1000.0), took, goal);
    }
    for (what, peer, ours, goal) in [
        ("up", &figures.dd_up_s, &figures.up_s, Some(TRANSFER_GOAL)),
        ("up, each piece compared", &figures.dd_up_s, &figures.up_with_sums_s, Some(TRANSFER_GOAL)),
        ("up, the whole compared", &figures.dd_up_s, &figures.up_with_sum_s, None),
        ("down", &figures.dd_down_s, &figures.down_s, Some(TRANSFER_GOAL)),
    ] {
        // Figures from before it was measured have none.
        if ours.is_empty() {
            continue;
        }
        let (peer, ours) = (median(peer), median(ours));
        let what = format!("{} MiB {what}, s; share of dd's speed", figures.mebibytes);
        row(what, format!("{peer:.2}"), format!("{ours:.2}"), peer / ours, goal);
    }
    let transfer = figures.portal_transfer_bytes + figures.process_transfer_bytes;
    let what = "memory of a transfer, both processes, MiB".to_owned();
    row(what, String::new(), mebibytes(transfer), transfer / MIB as f64, Some(MEMORY_GOAL));
    let (alone, beside) = (median(&figures.echo_alone_p99_us), median(&figures.echo_beside_p99_us));
    // Twice as long, or two milliseconds more: whichever is more.
    let most = (alone + 2000.0).max(2.0 * alone) / alone;
    let two = median(&figures.echo_beside_two_p99_us);
    let what = "echo p99 beside one up and one down, ms; times alone".to_owned();
    row(what, millis(alone), millis(two), two / alone, Some(Goal::AtMost(most)));
    let what = format!("the same beside {TRANSFERS} transfers");
    row(what, millis(alone), millis(beside), beside / alone, None);
    if !figures.echo_beside_copies_p99_us.is_empty() {
        let copies = median(&figures.echo_beside_copies_p99_us);
        let what = format!("the same, ms; times beside {TRANSFERS} copies by `cat`");
        row(what, millis(copies), millis(beside), beside / copies, None);
    }
    let (du, scan) = (median(&figures.du_s), median(&figures.scan_s));
    let what = format!("du of {} files, s; times du", figures.files);
    row(what, format!("{du:.2}"), format!("{scan:.2}"), scan / du, Some(SCAN_GOAL));
    let alone = median(&figures.dd_alone_s);
    for (what, beside, goal) in [
        ("dd beside a scan, s; times alone", &figures.dd_beside_scan_s, Some(YIELD_GOAL)),
        ("dd beside du, s; times alone", &figures.dd_beside_du_s, None),
    ] {
        // Figures from before it was measured have none.
        if !beside.is_empty() {
            let beside = median(beside);
            row(what.into(), format!("{alone:.2}"), format!("{beside:.2}"), beside / alone, goal);
        }
    }
    println!("{table}");
    Ok(())
}
