//! WebSocket load: every connection sends a message and waits for its echo, again and again.
//!
//! Runs as a process of its own, prints one line of JSON ([`crate::load::Load`]). The token comes from a file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};

use crate::load::Load;
use crate::stats;

/// Bytes of a message.
const MESSAGE: usize = 64;

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Address to connect to.
    #[arg(long)]
    address: SocketAddr,
    /// File with headers, one `Name: value` a line.
    #[arg(long)]
    headers: PathBuf,
    /// Connections.
    #[arg(long)]
    connections: usize,
    /// Seconds, once all are connected.
    #[arg(long)]
    seconds: f64,
}

/// Connects all, lets them echo, prints the figures.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let headers = std::fs::read_to_string(&options.headers)?;
    let mut sockets = Vec::with_capacity(options.connections);
    for _ in 0..options.connections {
        sockets.push(connect(options.address, &headers).await?);
    }
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(options.seconds);
    let mut echoes = JoinSet::new();
    for socket in sockets {
        echoes.spawn(echo(socket, until));
    }
    let mut latencies_us = Vec::new();
    while let Some(ended) = echoes.join_next().await {
        latencies_us.extend(ended??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let per_s = latencies_us.len() as f64 / seconds;
    let (p50_us, p99_us) = (stats::percentile(&mut latencies_us, 50.0), stats::percentile(&mut latencies_us, 99.0));
    println!("{}", serde_json::to_string(&Load { per_s, p50_us, p99_us })?);
    Ok(())
}

async fn connect(address: SocketAddr, headers: &str) -> anyhow::Result<WebSocketStream<TcpStream>> {
    let mut request = format!("ws://{address}/echo").into_client_request()?;
    for line in headers.lines() {
        let (name, value) = line.split_once(": ").context("a header is `Name: value`")?;
        request.headers_mut().insert(HeaderName::try_from(name)?, HeaderValue::from_str(value)?);
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (socket, _) = tokio_tungstenite::client_async(request, stream).await.context("WebSocket upgrade")?;
    Ok(socket)
}

async fn echo(mut socket: WebSocketStream<TcpStream>, until: Instant) -> anyhow::Result<Vec<f64>> {
    let payload = Bytes::from_static(&[b'w'; MESSAGE]);
    let mut latencies_us = Vec::with_capacity(1 << 14);
    loop {
        let sent = Instant::now();
        if sent >= until {
            return Ok(latencies_us);
        }
        socket.send(Message::Binary(payload.clone())).await?;
        match socket.next().await.context("the socket was closed")?? {
            Message::Binary(echoed) => ensure!(echoed == payload, "another message came back"),
            other => bail!("unexpected message {other:?}"),
        }
        latencies_us.push(sent.elapsed().as_secs_f64() * 1e6);
    }
}
