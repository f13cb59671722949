//! Benchmarks: Eirene and the peer it is compared with take turns in one run, medians and their ratio are printed, the raw
//! figures go to `bench/results/` as JSON.
//!
//! Each benchmark is a script beside this package's `Cargo.toml`; the scripts install what is needed and call this program. It
//! judges nothing: figures are for reading, tests never assert time.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod demo;
mod files;
mod http;
mod launch;
mod load;
mod memory;
mod nginx;
mod probe;
mod process;
mod proxy;
mod results;
mod rig;
mod sampling;
mod scrape;
mod source;
mod stats;
mod steps;
mod store;
mod summary;
mod table;
mod upstream;
mod websocket;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Benchmarks of Eirene; the scripts in `bench/` call this.
#[derive(Parser)]
#[command(name = "eirene-bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Listing, uploading, downloading and measuring files through the portal, against `dd` and `du`.
    Files(files::Options),
    /// From a start to the first page of the app, against a bare `sbatch`.
    Launch(launch::Options),
    /// Resident memory with many sessions, sizes of the binaries.
    Memory(memory::Options),
    /// The inside half of `launch`: runs in the portal container, reads its task from standard input.
    Probe,
    /// Requests and messages through the proxy, against nginx and configurable-http-proxy.
    Proxy(proxy::Options),
    /// What watching a session takes of a core: a job of many processes on a node with eight GPUs.
    Sampling(sampling::Options),
    /// What Prometheus asks for, with many running sessions.
    Scrape(scrape::Options),
    /// What agents of a benchmark start instead of Apptainer.
    #[command(hide = true)]
    StandIn {
        /// Apptainer's arguments.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// A step of a session's that does nothing, against bare `srun` and `apptainer exec`.
    Steps(steps::Options),
    /// The built-in store of samples, against rows in SQLite, Parquet and an embedded store.
    Store(store::Options),
    /// The newest results side by side with the goals.
    Summary,
    /// The app behind all proxies: small and large answers, a WebSocket echo.
    Upstream {
        /// Unix socket to listen on.
        #[arg(long)]
        socket: Option<PathBuf>,
        /// Address to listen on.
        #[arg(long)]
        listen: Option<SocketAddr>,
    },
    /// WebSocket load: every connection sends a message and waits for its echo.
    Websocket(websocket::Options),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // One thread: the program's own parts must not take more of the machine than they need.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.command {
            Command::Files(options) => files::run(&options).await,
            Command::Launch(options) => launch::run(&options).await,
            Command::Memory(options) => memory::run(&options).await,
            Command::Probe => probe::run().await,
            Command::Steps(options) => steps::run(&options).await,
            Command::Store(options) => store::run(&options).await,
            Command::Proxy(options) => proxy::run(&options).await,
            Command::Sampling(options) => sampling::run(&options).await,
            Command::Scrape(options) => scrape::run(&options).await,
            Command::StandIn { arguments } => rig::stand_in(&arguments).await,
            Command::Summary => summary::run(),
            Command::Upstream { socket, listen } => upstream::serve(socket.as_deref(), listen).await,
            Command::Websocket(options) => websocket::run(&options).await,
        }
    })
}
