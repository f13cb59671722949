//! An agent that is not ours: it speaks HTTP/2 by hand and breaks its rules. It may end its own tunnel, and nothing else: memory stays
//! bounded, and the tunnel beside it goes on.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::time::Duration;

use eirene_tunnel::{Acceptor, Limits, Opener, StreamKind, TunnelError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

const WITHIN: Duration = Duration::from_mins(1);
/// What an attack may cost at most, in memory: far below what it sends.
const ROOM_MIB: u64 = 40;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// `:status 200` by its place in HPACK's static table.
const OK: &[u8] = &[0x88];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A portal's end whose agent is ours to play; the portal has opened one stream.
struct Attack {
    opener: Opener,
    driver: JoinHandle<Result<(), TunnelError>>,
    stream: eirene_tunnel::TunnelStream,
    agent: DuplexStream,
}

impl Attack {
    async fn begin() -> Self {
        let (portal, mut agent) = tokio::io::duplex(64 * 1024);
        let (opener, driver) = Opener::start(portal, Limits::default()).await.unwrap();
        let driver = tokio::spawn(driver);
        agent.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let stream = opener.open(StreamKind::App).await.unwrap();
        // The portal's preface, then frames until the one that opens the stream.
        agent.read_exact(&mut [0; 24]).await.unwrap();
        loop {
            let mut head = [0; 9];
            agent.read_exact(&mut head).await.unwrap();
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            agent.read_exact(&mut vec![0; length]).await.unwrap();
            if head[3] == HEADERS {
                return Self { opener, driver, stream, agent };
            }
        }
    }

    /// Sends the same bytes again and again while the portal takes them; all it says is thrown away. Gives the number of bytes sent.
    async fn pour(agent: DuplexStream, bytes: Vec<u8>, most: usize) -> usize {
        let (mut read, mut write) = tokio::io::split(agent);
        let drain = tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
        let mut sent = 0;
        while sent < most && write.write_all(&bytes).await.is_ok() {
            sent += bytes.len();
        }
        drain.abort();
        sent
    }
}

/// A tunnel of somebody else.
struct Neighbour(eirene_tunnel::TunnelStream);

impl Neighbour {
    async fn new() -> Self {
        let (portal, agent) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let mut acceptor = Acceptor::start(agent, Limits::default()).await.unwrap();
            while let Ok(Some((_, stream))) = acceptor.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(stream);
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        let (opener, driver) = Opener::start(portal, Limits::default()).await.unwrap();
        tokio::spawn(driver);
        Self(opener.open(StreamKind::Control).await.unwrap())
    }

    async fn goes_on(&mut self) {
        self.0.write_all(b"still there?").await.unwrap();
        let mut answer = [0; 12];
        tokio::time::timeout(WITHIN, self.0.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"still there?");
    }
}

/// Most memory this process ever had in use.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn broken_rules_end_the_own_tunnel_and_no_other() {
    let mut neighbour = Neighbour::new().await;
    let streams = || (0..10_000_u32).flat_map(|n| frame(HEADERS, END_HEADERS, 2 * n + 2, OK)).collect::<Vec<u8>>();
    let own_streams = || (1..10_000_u32).flat_map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, OK)).collect::<Vec<u8>>();
    let too_much = || {
        let mut bytes = frame(HEADERS, END_HEADERS, 1, OK);
        for _ in 0..17 {
            bytes.extend(frame(DATA, 0, 1, &[0; 16 * 1024]));
        }
        bytes
    };
    let header_without_end = || {
        let mut bytes = frame(HEADERS, 0, 1, OK);
        for _ in 0..10_000 {
            bytes.extend(frame(CONTINUATION, 0, 1, &[0x40, 1, b'a', 1, b'b']));
        }
        bytes
    };
    let cases: [(&str, Vec<u8>); 9] = [
        ("a frame longer than agreed", frame(DATA, 0, 1, &vec![0; 33 * 1024])),
        ("a frame of 16 MiB", vec![0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]),
        ("ten thousand streams of its own", streams()),
        ("answers to streams nobody opened", own_streams()),
        ("a stream pushed", frame(PUSH, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])),
        ("more than the window", too_much()),
        ("a window of nothing", frame(WINDOW, 0, 0, &[0; 4])),
        ("a header that never ends", header_without_end()),
        ("a continuation of nothing", frame(CONTINUATION, 0, 1, OK)),
    ];
    for (what, bytes) in cases {
        let Attack { opener, driver, mut stream, agent } = Attack::begin().await;
        let pour = tokio::spawn(Attack::pour(agent, bytes, 1));
        let mut got = Vec::new();
        let read = tokio::time::timeout(WITHIN, stream.read_to_end(&mut got)).await.expect(what);
        assert!(read.is_err() && got.len() <= Limits::default().stream_window as usize, "{what}: {} bytes", got.len());
        let ended = tokio::time::timeout(WITHIN, async {
            pour.await.unwrap();
            driver.await.unwrap()
        });
        // Some only lose the stream; then the agent, who has gone by now, has lost the tunnel too.
        let _ = ended.await.expect(what);
        assert!(matches!(opener.open(StreamKind::App).await, Err(TunnelError::Closed)), "{what}");
        neighbour.goes_on().await;
    }
}

#[tokio::test]
async fn floods_cost_bounded_memory() {
    let before = peak_mib();
    let mut neighbour = Neighbour::new().await;
    let headers = frame(HEADERS, END_HEADERS, 1, OK);
    let tiny = frame(DATA, 0, 1, b"x").repeat(1000);
    let empty = frame(DATA, 0, 1, b"").repeat(1000);
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(1000);
    let settings = frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]).repeat(1000);
    let resets = frame(RESET, 0, 1, &[0, 0, 0, 8]).repeat(1000);
    let windows = frame(WINDOW, 0, 1, &[0, 0, 0, 1]).repeat(1000);
    for (what, flood) in [
        ("tiny", tiny),
        ("empty", empty),
        ("pings", pings),
        ("settings", settings),
        ("resets", resets),
        ("windows", windows),
    ] {
        let Attack { driver, stream, mut agent, .. } = Attack::begin().await;
        agent.write_all(&headers).await.unwrap();
        // Nobody reads the stream meanwhile.
        let sent = tokio::time::timeout(WITHIN, Attack::pour(agent, flood, 8 << 20)).await.expect(what);
        let _ = tokio::time::timeout(WITHIN, driver).await.expect(what);
        drop(stream);
        neighbour.goes_on().await;
        let used = peak_mib().saturating_sub(before);
        assert!(used < ROOM_MIB, "{what}: {used} MiB after {sent} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reads_nothing_stops_the_writer_not_the_portal() {
    let before = peak_mib();
    let mut neighbour = Neighbour::new().await;
    let (portal, agent) = tokio::io::duplex(64 * 1024);
    let (opener, driver) = Opener::start(portal, Limits::default()).await.unwrap();
    let driver = tokio::spawn(driver);
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(opener.open(StreamKind::App).await.unwrap());
    }
    let part = vec![0; 64 * 1024];
    for stream in &mut streams {
        let mut taken = 0;
        // Time stands still while anything can go on, so this deadline passes when everything waits.
        while tokio::time::timeout(Duration::from_secs(1), stream.write_all(&part)).await.is_ok() {
            taken += part.len();
            assert!(taken <= Limits::default().send_buffer as usize, "{taken} bytes and still going");
        }
    }
    neighbour.goes_on().await;
    assert!(peak_mib().saturating_sub(before) < ROOM_MIB);
    drop(agent);
    assert!(driver.await.unwrap().is_err());
    assert!(streams[0].write_all(b"x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_allows_no_streams_does_not_let_them_pile_up() {
    let (portal, mut agent) = tokio::io::duplex(64 * 1024);
    let limits = Limits { max_streams: 8, ..Limits::default() };
    let (opener, driver) = Opener::start(portal, limits).await.unwrap();
    let driver = tokio::spawn(driver);
    agent.write_all(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0])).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(opener.open(StreamKind::App).await.unwrap());
    }
    let ninth = tokio::time::timeout(Duration::from_secs(1), opener.open(StreamKind::App)).await;
    assert!(ninth.is_err(), "a ninth stream was opened");
    streams.pop();
    assert!(opener.open(StreamKind::App).await.is_ok(), "a place that was given back");

    let waiting = tokio::spawn({
        let opener = opener.clone();
        async move {
            let _ninth = opener.open(StreamKind::App).await;
            opener.open(StreamKind::App).await.err()
        }
    });
    driver.abort();
    opener.closed().await;
    assert!(opener.is_closed());
    assert!(matches!(waiting.await.unwrap(), Some(TunnelError::Closed)));
}
