//! Two ways to carry many streams over one TLS connection, in turns: HTTP/2 in reverse (what this crate does) and yamux; beside them
//! no multiplexing at all, a TLS connection a stream, to show what either costs.
//!
//! Both ends live in this process, a single-threaded runtime each, over loopback TCP. `bench/tunnel` builds and runs it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for one terminal; a failure ends it")]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_tunnel::{Acceptor, Limits, Opener, StreamKind};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::compat::{FuturesAsyncReadCompatExt as _, TokioAsyncReadCompatExt as _};

const REQUEST: usize = 300;
const ANSWER: usize = 600;
const BULK: usize = 1 << 30;

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}
type Stream = Box<dyn Duplex>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Http2,
    Yamux,
    Bare,
}

/// Opens streams to the agent's end.
#[derive(Clone)]
enum Streams {
    Http2(Opener),
    Yamux(mpsc::Sender<oneshot::Sender<Stream>>),
    Bare(mpsc::Sender<oneshot::Sender<Stream>>),
}

impl Streams {
    async fn open(&self, kind: u8) -> Stream {
        let mut stream: Stream = match self {
            Self::Http2(opener) => Box::new(opener.open(StreamKind::App).await.unwrap()),
            Self::Yamux(asked) | Self::Bare(asked) => {
                let (answer, answered) = oneshot::channel();
                asked.send(answer).await.unwrap();
                answered.await.unwrap()
            }
        };
        stream.write_u8(kind).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }
}

/// The agent's end of one stream: answers requests, or sends as much as is taken.
async fn serve(mut stream: impl Duplex) {
    match stream.read_u8().await {
        Ok(b'r') => {
            let (mut request, answer) = ([0; REQUEST], [1; ANSWER]);
            while stream.read_exact(&mut request).await.is_ok() {
                if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
        Ok(_) => {
            let zeros = vec![0; 64 * 1024];
            while stream.write_all(&zeros).await.is_ok() {}
        }
        Err(_) => {}
    }
}

/// The agent dials; its end runs on a thread of its own until the process ends.
fn agent(side: Side, port: u16) {
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
            let connector = TlsConnector::from(Arc::new(client_config()));
            // An error says that the round is over.
            let dial = || async {
                let stream = TcpStream::connect(("127.0.0.1", port)).await?;
                stream.set_nodelay(true)?;
                connector.connect(ServerName::try_from("portal").unwrap(), stream).await
            };
            match side {
                Side::Http2 => {
                    let mut acceptor = Acceptor::start(dial().await.unwrap(), Limits::default()).await.unwrap();
                    while let Ok(Some((_, stream))) = acceptor.accept().await {
                        tokio::spawn(serve(stream));
                    }
                }
                Side::Yamux => {
                    let config = yamux::Config::default();
                    let mut connection =
                        yamux::Connection::new(dial().await.unwrap().compat(), config, yamux::Mode::Server);
                    while let Some(Ok(stream)) = poll_fn(|cx| connection.poll_next_inbound(cx)).await {
                        tokio::spawn(serve(stream.compat()));
                    }
                }
                Side::Bare => {
                    while let Ok(stream) = dial().await {
                        tokio::spawn(serve(stream));
                    }
                }
            }
        });
    });
}

async fn portal(side: Side) -> Streams {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    agent(side, listener.local_addr().unwrap().port());
    let acceptor = TlsAcceptor::from(Arc::new(server_config()));
    let accept = async move || {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        acceptor.accept(stream).await.unwrap()
    };
    match side {
        Side::Http2 => {
            let (opener, driver) = Opener::start(accept().await, Limits::default()).await.unwrap();
            tokio::spawn(driver);
            Streams::Http2(opener)
        }
        Side::Yamux => {
            let config = yamux::Config::default();
            let mut connection = yamux::Connection::new(accept().await.compat(), config, yamux::Mode::Client);
            let (asked, mut asking) = mpsc::channel::<oneshot::Sender<Stream>>(1);
            tokio::spawn(async move {
                let mut waiting = None;
                poll_fn(|cx| {
                    loop {
                        if waiting.is_none()
                            && let std::task::Poll::Ready(Some(asker)) = asking.poll_recv(cx)
                        {
                            waiting = Some(asker);
                        }
                        if waiting.is_some()
                            && let std::task::Poll::Ready(stream) = connection.poll_new_outbound(cx)
                        {
                            let stream: Stream = Box::new(stream.unwrap().compat());
                            let _ = waiting.take().unwrap().send(stream);
                            continue;
                        }
                        return connection.poll_next_inbound(cx).map(|_| ());
                    }
                })
                .await;
            });
            Streams::Yamux(asked)
        }
        Side::Bare => {
            let (asked, mut asking) = mpsc::channel::<oneshot::Sender<Stream>>(1);
            tokio::spawn(async move {
                while let Some(asker) = asking.recv().await {
                    let _ = asker.send(Box::new(accept().await));
                }
            });
            Streams::Bare(asked)
        }
    }
}

/// Small requests on `count` streams, one at a time on each.
async fn requests(streams: &Streams, count: usize, time: Duration) -> Vec<(&'static str, f64)> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(streams.open(b'r').await);
    }
    let (begun, before) = (Instant::now(), cpu());
    let tasks: Vec<_> = open
        .into_iter()
        .map(|mut stream| {
            tokio::spawn(async move {
                let (request, mut answer, mut took) = ([0; REQUEST], [0; ANSWER], Vec::new());
                while begun.elapsed() < time {
                    let asked = Instant::now();
                    stream.write_all(&request).await.unwrap();
                    stream.flush().await.unwrap();
                    stream.read_exact(&mut answer).await.unwrap();
                    took.push(asked.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    let (elapsed, used) = (begun.elapsed(), cpu().saturating_sub(before));
    took.sort_unstable();
    vec![
        ("requests/s", took.len() as f64 / elapsed.as_secs_f64()),
        ("p50 µs", micros(took[took.len() / 2])),
        ("p99 µs", micros(took[took.len() * 99 / 100])),
        ("CPU µs/request", micros(used) / took.len() as f64),
    ]
}

/// One GiB over `count` streams.
async fn bulk(streams: &Streams, count: usize) -> Vec<(&'static str, f64)> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(streams.open(b'z').await);
    }
    let (begun, before) = (Instant::now(), cpu());
    let tasks: Vec<_> =
        open.into_iter().map(|stream| tokio::spawn(async move { take(stream, BULK / count).await })).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let gib = (BULK >> 20) as f64;
    vec![
        ("MiB/s", gib / begun.elapsed().as_secs_f64()),
        ("CPU ms/MiB", cpu().saturating_sub(before).as_secs_f64() * 1000.0 / gib),
    ]
}

async fn take(mut stream: Stream, mut bytes: usize) {
    let mut buffer = vec![0; 64 * 1024];
    while bytes > 0 {
        bytes = bytes.saturating_sub(stream.read(&mut buffer).await.unwrap());
    }
}

#[derive(Debug, Clone, Copy)]
enum Beside {
    Nothing,
    Stalled,
    Running,
}

/// An echo every two milliseconds beside a download that nobody reads, or that somebody reads as fast as it comes.
async fn echo(streams: &Streams, beside: Beside, time: Duration) -> Vec<(&'static str, f64)> {
    let mut download = match beside {
        Beside::Nothing => None,
        Beside::Stalled | Beside::Running => Some(streams.open(b'z').await),
    };
    let mut reading = None;
    if let Some(stream) = &mut download {
        // It has begun, and with nobody reading it has come to its end after this many bytes.
        stream.read_exact(&mut [0; 1024]).await.unwrap();
        if matches!(beside, Beside::Running) {
            let stream = download.take().unwrap();
            reading = Some(tokio::spawn(take(stream, usize::MAX)));
        }
    }
    let mut stream = streams.open(b'r').await;
    let (begun, request, mut answer, mut took) = (Instant::now(), [0; REQUEST], [0; ANSWER], Vec::new());
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    while begun.elapsed() < time {
        pace.tick().await;
        let asked = Instant::now();
        stream.write_all(&request).await.unwrap();
        stream.flush().await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        took.push(asked.elapsed());
    }
    if let Some(reading) = reading {
        reading.abort();
    }
    took.sort_unstable();
    vec![
        ("p50 µs", micros(took[took.len() / 2])),
        ("p99 µs", micros(took[took.len() * 99 / 100])),
        ("worst µs", micros(took[took.len() - 1])),
    ]
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds().unsigned_abs())
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5, |text| text.parse().unwrap());
    let time = Duration::from_secs(1);
    let mut figures: BTreeMap<(&str, Side, usize), (&str, Vec<f64>)> = BTreeMap::new();
    for _ in 0..rounds {
        for side in [Side::Http2, Side::Yamux, Side::Bare] {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let streams = portal(side).await;
                let mut note = |case, measured: Vec<(&'static str, f64)>| {
                    for (place, (unit, value)) in measured.into_iter().enumerate() {
                        figures.entry((case, side, place)).or_insert_with(|| (unit, Vec::new())).1.push(value);
                    }
                };
                note("1 requests, 1 stream", requests(&streams, 1, time).await);
                note("2 requests, 50 streams", requests(&streams, 50, time).await);
                note("5 echo alone", echo(&streams, Beside::Nothing, time).await);
                note("6 echo beside a stalled download", echo(&streams, Beside::Stalled, time).await);
                note("7 echo beside a running download", echo(&streams, Beside::Running, time).await);
                note("3 1 GiB, 1 stream", bulk(&streams, 1).await);
                if side != Side::Bare {
                    note("4 1 GiB, 50 streams", bulk(&streams, 50).await);
                }
            });
        }
    }
    println!(
        "medians of {rounds} rounds in turns; an answer is {ANSWER} bytes long, TLS 1.3 on loopback, both ends on this machine"
    );
    let mut line = None;
    for ((case, side, _), (unit, mut values)) in figures {
        if line != Some((case, side)) {
            let name = match side {
                Side::Http2 => "http/2",
                Side::Yamux => "yamux",
                Side::Bare => "no mux",
            };
            print!("\n{:<34}{name:<8}", &case[2..]);
            line = Some((case, side));
        }
        values.sort_by(f64::total_cmp);
        let value = values[values.len() / 2];
        print!("{:>12.*} {unit:<14}", if value < 10.0 { 2 } else { 0 }, value);
    }
    println!();
}

fn server_config() -> rustls::ServerConfig {
    let made = rcgen::generate_simple_self_signed(vec!["portal".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap()
}

fn client_config() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth()
}

/// Believes everybody: only speed is measured here.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
