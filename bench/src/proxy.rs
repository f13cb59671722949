//! Requests and WebSocket messages through the proxy. All sides run at once on the same machine, share one upstream, and take
//! turns: in every round each case goes through every side, in another order each time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::StatusCode;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::http::Ask;
use crate::load::{self, Case, Load, Target};
use crate::nginx;
use crate::process::{Answers, Server, free_address, root, stop};
use crate::results;
use crate::rig::Rig;
use crate::stats::median;
use crate::summary::Goal;
use crate::table::{count, millis, table};
use crate::upstream;

/// Connections at once.
const CONNECTIONS: [usize; 3] = [1, 50, 200];
/// What the sides are compared by.
const RATIOS: [Ratio; 5] = [
    Ratio {
        title: "proxy / nginx",
        ours: Side::Proxy,
        peer: Side::Nginx,
        figure: |l| l.per_s,
        goal: Goal::AtLeast(1.0),
    },
    Ratio { title: "p99", ours: Side::Proxy, peer: Side::Nginx, figure: |l| l.p99_us, goal: Goal::AtMost(1.0) },
    Ratio {
        title: "chain / 2 nginx",
        ours: Side::Chain,
        peer: Side::TwoNginx,
        figure: |l| l.per_s,
        goal: Goal::AtLeast(1.0),
    },
    Ratio { title: "p99", ours: Side::Chain, peer: Side::TwoNginx, figure: |l| l.p99_us, goal: Goal::AtMost(1.0) },
    Ratio { title: "chain / CHP", ours: Side::Chain, peer: Side::Chp, figure: |l| l.per_s, goal: Goal::AtLeast(1.5) },
];

/// Milliseconds a stalled download may add to an echo.
const STALLED: Goal = Goal::AtMost(20.0);

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only these sides.
    #[arg(long, value_enum, value_delimiter = ',')]
    sides: Vec<Side>,
    /// Only these cases.
    #[arg(long, value_enum, value_delimiter = ',')]
    cases: Vec<Case>,
    /// Only these numbers of connections.
    #[arg(long, value_delimiter = ',')]
    connections: Vec<usize>,
}

/// Who carries the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// One nginx hop to the upstream's unix socket.
    Nginx,
    /// Our proxy alone to the same socket.
    Proxy,
    /// Two nginx hops in a row with TLS between them.
    TwoNginx,
    /// Our proxy, the tunnel with TLS, the agent.
    Chain,
    /// configurable-http-proxy's one plain hop.
    Chp,
}

impl Side {
    const ALL: [Self; 5] = [Self::Nginx, Self::Proxy, Self::TwoNginx, Self::Chain, Self::Chp];

    fn title(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Proxy => "proxy alone",
            Self::TwoNginx => "2 nginx, TLS",
            Self::Chain => "chain",
            Self::Chp => "CHP",
        }
    }
}

struct Ratio {
    title: &'static str,
    ours: Side,
    peer: Side,
    figure: fn(&Load) -> f64,
    goal: Goal,
}

/// One measurement.
#[derive(Serialize, Deserialize)]
struct Measured {
    round: usize,
    case: Case,
    connections: usize,
    side: Side,
    #[serde(flatten)]
    load: Load,
}

/// An echo on one connection through the chain, without and with a stalled download beside it.
#[derive(Serialize, Deserialize)]
struct Stalled {
    alone: Load,
    beside: Load,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    seconds: f64,
    measured: Vec<Measured>,
    stalled: Vec<Stalled>,
}

/// A side that runs.
struct Running {
    side: Side,
    target: Target,
    servers: Vec<Server>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("eirene-bench-").tempdir()?;
    let socket = dir.path().join("app.sock");
    let listen = free_address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("upstream").arg("--socket").arg(&socket).arg("--listen").arg(listen.to_string());
    let mut app = Server::start("upstream", command, dir.path())?;
    app.wait(Answers::Unix(&socket)).await?;

    let wanted = if options.sides.is_empty() { &Side::ALL[..] } else { &options.sides };
    let plain = dir.path().join("plain-headers");
    std::fs::write(&plain, "Host: bench.localhost\n")?;
    let mut sides = Vec::new();
    for &side in wanted {
        let (servers, target) = match side {
            Side::Nginx => {
                let (server, address) = nginx::single(&socket, dir.path()).await?;
                (vec![server], Target { address, headers: plain.clone() })
            }
            Side::TwoNginx => {
                let tls = nginx::Tls::new(dir.path())?;
                let (servers, address) = nginx::double(&socket, &tls, dir.path()).await?;
                (servers.into(), Target { address, headers: plain.clone() })
            }
            Side::Chp => {
                let (server, address) = chp(listen, dir.path()).await?;
                (vec![server], Target { address, headers: plain.clone() })
            }
            Side::Chain => {
                let rig = Rig::start(1, dir.path()).await?;
                let target = rig.target()?;
                (rig.into_servers(), target)
            }
            Side::Proxy => alone(&socket, dir.path()).await?,
        };
        let running = Running { side, target, servers };
        check(&running).await.with_context(|| side.title())?;
        sides.push(running);
    }

    let measured = measure(options, &mut sides, dir.path()).await;
    let chain = sides.iter().find(|running| running.side == Side::Chain);
    let stalled = match chain {
        Some(chain) => stalled(options, &chain.target, dir.path()).await,
        None => Ok(Vec::new()),
    };
    stop(sides.into_iter().flat_map(|running| running.servers).chain([app]).collect()).await?;
    let figures = Figures { seconds: options.seconds, measured: measured?, stalled: stalled? };
    let figures = serde_json::to_value(figures)?;
    results::write("proxy", &figures)?;
    show(&figures)
}

async fn measure(options: &Options, sides: &mut [Running], dir: &Path) -> anyhow::Result<Vec<Measured>> {
    let cases = if options.cases.is_empty() { &Case::ALL[..] } else { &options.cases };
    let connections = if options.connections.is_empty() { &CONNECTIONS[..] } else { &options.connections };
    let mut measured = Vec::new();
    // Round 0 warms up and is not kept.
    for round in 0..=options.rounds {
        for &case in cases {
            for &connections in connections {
                sides.shuffle(&mut rand::rng());
                for running in &*sides {
                    let seconds = if round == 0 { 1.0 } else { options.seconds };
                    let load = load::run(case, &running.target, connections, seconds, dir)
                        .await
                        .with_context(|| format!("{}, {}, {connections}", running.side.title(), case.title()))?;
                    if round > 0 {
                        measured.push(Measured { round, case, connections, side: running.side, load });
                    }
                }
            }
        }
        println!("{}", if round == 0 { "warm".to_owned() } else { format!("round {round} of {}", options.rounds) });
    }
    Ok(measured)
}

/// Downloads 1 GiB and stops reading; the echo shares its session, its tunnel and its agent.
async fn stalled(options: &Options, target: &Target, dir: &Path) -> anyhow::Result<Vec<Stalled>> {
    let headers = std::fs::read_to_string(&target.headers)?.trim_end().replace('\n', "\r\n");
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let alone = load::run(Case::WebSocket, target, 1, options.seconds, dir).await?;
        let mut download = TcpStream::connect(target.address).await?;
        download.write_all(format!("GET /huge HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes()).await?;
        let mut first = [0; 1024];
        let read = download.read(&mut first).await?;
        ensure!(first[..read].starts_with(b"HTTP/1.1 200"), "the download was refused");
        // Long enough for every buffer on the way to fill.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let beside = load::run(Case::WebSocket, target, 1, options.seconds, dir).await?;
        rounds.push(Stalled { alone, beside });
    }
    Ok(rounds)
}

/// Prints the tables of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let Figures { measured, seconds, stalled } = Figures::deserialize(figures)?;
    let of = |(case, connections): (Case, usize), side: Side, figure: fn(&Load) -> f64| -> Option<f64> {
        let all: Vec<f64> = measured
            .iter()
            .filter(|m| m.case == case && m.connections == connections && m.side == side)
            .map(|m| figure(&m.load))
            .collect();
        (!all.is_empty()).then(|| median(&all))
    };
    let mut kinds: Vec<(Case, usize)> = Vec::new();
    for m in &measured {
        if !kinds.contains(&(m.case, m.connections)) {
            kinds.push((m.case, m.connections));
        }
    }
    let rounds = measured.iter().map(|m| m.round).max().unwrap_or(0);
    println!("medians of {rounds} rounds of {seconds} s: requests or messages a second, p50 and p99 in ms");
    let mut absolute = table(&[&["", "conn."], &Side::ALL.map(Side::title)[..]].concat());
    let titles = RATIOS.each_ref().map(|ratio| format!("{}\n{}", ratio.title, ratio.goal));
    let mut ratios = table(&[&["ratio of medians", "conn."], &titles.each_ref().map(String::as_str)[..]].concat());
    for &kind in &kinds {
        let name = [kind.0.title().to_owned(), kind.1.to_string()];
        let figures = Side::ALL.map(|side| {
            let figure = |figure| of(kind, side, figure).unwrap_or_default();
            let (per_s, p50, p99) = (figure(|l| l.per_s), figure(|l| l.p50_us), figure(|l| l.p99_us));
            if per_s > 0.0 { format!("{}  {}  {}", count(per_s), millis(p50), millis(p99)) } else { "–".to_owned() }
        });
        absolute.add_row(name.iter().chain(&figures));
        let marks = RATIOS.iter().map(|ratio| {
            let figure = |side| of(kind, side, ratio.figure);
            match (figure(ratio.ours), figure(ratio.peer)) {
                (Some(ours), Some(peer)) => ratio.goal.mark(ours / peer),
                _ => "–".to_owned(),
            }
        });
        ratios.add_row(name.iter().cloned().chain(marks));
    }
    println!("{absolute}\n\n{ratios}");
    if !stalled.is_empty() {
        let added = |figure: fn(&Load) -> f64| {
            median(&stalled.iter().map(|s| (figure(&s.beside) - figure(&s.alone)) / 1000.0).collect::<Vec<_>>())
        };
        let (p50, p99) = (added(|l| l.p50_us), added(|l| l.p99_us));
        let (p50, p99) = (STALLED.mark(p50), STALLED.mark(p99));
        println!("\na stalled 1 GiB download adds to an echo, ms: p50 {p50}  p99 {p99}  (goal {STALLED})");
    }
    Ok(())
}

/// A side that answers wrongly would be fast: both answers are looked at before anything is measured.
async fn check(running: &Running) -> anyhow::Result<()> {
    let headers = std::fs::read_to_string(&running.target.headers)?;
    let header = |name: &str| headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let ask = |path, authorization| Ask {
        address: running.target.address,
        host: header("Host").unwrap_or_default(),
        method: "GET",
        path,
        authorization,
        body: None,
    };
    let authorization = header("Authorization");
    let (status, body) = ask("/small", authorization).send().await?;
    ensure!(status == StatusCode::OK && body == upstream::SMALL, "small: {status}, {} bytes", body.len());
    let (status, body) = ask("/large", authorization).send().await?;
    ensure!(status == StatusCode::OK && body.len() == upstream::LARGE, "large: {status}, {} bytes", body.len());
    if authorization.is_some() {
        let (status, _) = ask("/small", None).send().await?;
        ensure!(status != StatusCode::OK, "answers without a token");
        let (status, _) = ask("/small", Some("Bearer eir_wrong")).send().await?;
        ensure!(status != StatusCode::OK, "answers with a wrong token");
    }
    Ok(())
}

/// Our proxy with a unix socket behind it instead of a tunnel: `backend/examples/bench_proxy.rs` puts it together.
async fn alone(socket: &Path, dir: &Path) -> anyhow::Result<(Vec<Server>, Target)> {
    let program = std::env::current_exe()?.with_file_name("examples").join("bench_proxy");
    ensure!(program.exists(), "no `{}`: bench/proxy builds it", program.display());
    let (address, state) = (free_address()?, dir.join("alone"));
    std::fs::create_dir(&state)?;
    let mut command = Command::new(program);
    command.arg(address.to_string()).arg(socket).arg(&state);
    let mut server = Server::start("bench_proxy", command, dir)?;
    server.wait(Answers::Tcp(address)).await?;
    Ok((vec![server], Target { address, headers: state.join("headers") }))
}

/// configurable-http-proxy over TCP: to a unix socket it opens a new connection for every request, which would be unfair.
async fn chp(upstream: std::net::SocketAddr, dir: &Path) -> anyhow::Result<(Server, std::net::SocketAddr)> {
    let (address, api) = (free_address()?, free_address()?);
    let program: PathBuf = root().join("var/bench/peers/node_modules/.bin/configurable-http-proxy");
    ensure!(program.exists(), "no configurable-http-proxy in var/bench/peers: bench/proxy installs it");
    let mut command = Command::new(program);
    command
        .args(["--ip", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--api-ip", "127.0.0.1", "--api-port", &api.port().to_string()])
        .args(["--default-target", &format!("http://{upstream}"), "--log-level", "warn"])
        .env("NODE_ENV", "production")
        .env("CONFIGPROXY_AUTH_TOKEN", format!("{:032x}", rand::random::<u128>()));
    let mut server = Server::start("chp", command, dir)?;
    server.wait(Answers::Tcp(address)).await?;
    Ok((server, address))
}
