//! Streams over one connection: order, half-close, a reader that stalls, peers that misbehave.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::time::Duration;

use eirene_tunnel::{Acceptor, Limits, Opener, StreamKind, TunnelError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

const WITHIN: Duration = Duration::from_secs(20);

/// An agent that echoes control streams and sends endless zeros on app streams.
async fn agent(io: DuplexStream) {
    let mut acceptor = Acceptor::start(io, Limits::default()).await.unwrap();
    while let Ok(Some((kind, mut stream))) = acceptor.accept().await {
        tokio::spawn(async move {
            match kind {
                StreamKind::Control => {
                    let (mut read, mut write) = tokio::io::split(stream);
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    let _ = write.shutdown().await;
                }
                StreamKind::App => while stream.write_all(&[0; 16 * 1024]).await.is_ok() {},
            }
        });
    }
}

async fn pair() -> Opener {
    let (a, b) = tokio::io::duplex(64 * 1024);
    tokio::spawn(agent(b));
    let (opener, driver) = Opener::start(a, Limits::default()).await.unwrap();
    tokio::spawn(driver);
    opener
}

#[tokio::test]
async fn bytes_arrive_in_order_and_half_close_reaches_the_other_side() {
    let opener = pair().await;
    let stream = opener.open(StreamKind::Control).await.unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut read, mut write) = tokio::io::split(stream);
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    tokio::time::timeout(WITHIN, read.read_to_end(&mut got)).await.unwrap().unwrap();
    writer.await.unwrap();
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
}

#[tokio::test]
async fn streams_nobody_reads_hold_up_no_other() {
    let opener = pair().await;
    let mut stalled = Vec::new();
    for _ in 0..200 {
        stalled.push(opener.open(StreamKind::App).await.unwrap());
    }
    let mut echo = opener.open(StreamKind::Control).await.unwrap();
    for round in 0..100_u8 {
        echo.write_all(&[round; 64]).await.unwrap();
        let mut back = [0; 64];
        tokio::time::timeout(WITHIN, echo.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(back, [round; 64]);
    }
    // A stalled stream still holds what came first, and goes on when it is read.
    let mut first = stalled.remove(0);
    let mut much = vec![1; 2_000_000];
    tokio::time::timeout(WITHIN, first.read_exact(&mut much)).await.unwrap().unwrap();
    assert!(much.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn dropping_a_stream_ends_it_on_the_other_side() {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let (opener, driver) = Opener::start(a, Limits::default()).await.unwrap();
    tokio::spawn(driver);
    let accepted = tokio::spawn(async move {
        let mut acceptor = Acceptor::start(b, Limits::default()).await.unwrap();
        let (_, mut stream) = acceptor.accept().await.unwrap().unwrap();
        let reading = tokio::spawn(async move {
            let byte = stream.read_u8().await?;
            stream.write_u8(byte).await?;
            stream.read_u8().await
        });
        let moving = tokio::spawn(async move { while let Ok(Some(_)) = acceptor.accept().await {} });
        let result = tokio::time::timeout(WITHIN, reading).await.unwrap().unwrap();
        moving.abort();
        result
    });
    let mut stream = opener.open(StreamKind::App).await.unwrap();
    stream.write_u8(7).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 7);
    drop(stream);
    assert!(accepted.await.unwrap().is_err());
}

#[tokio::test]
async fn a_lost_connection_is_said_on_every_stream_and_to_who_waits() {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let moving = tokio::spawn(agent(b));
    let (opener, driver) = Opener::start(a, Limits::default()).await.unwrap();
    tokio::spawn(driver);
    let mut stream = opener.open(StreamKind::Control).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    moving.abort();
    tokio::time::timeout(WITHIN, opener.closed()).await.unwrap();
    let _ = stream.read_u8().await.unwrap_err();
    assert!(matches!(opener.open(StreamKind::App).await, Err(TunnelError::Closed)));
}

#[tokio::test]
async fn a_peer_that_speaks_nonsense_loses_its_own_connection_only() {
    for nonsense in [&[0_u8; 4096][..], &[255; 4096], b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let (a, mut b) = tokio::io::duplex(64 * 1024);
        let (opener, driver) = Opener::start(a, Limits::default()).await.unwrap();
        let driver = tokio::spawn(driver);
        b.write_all(nonsense).await.unwrap();
        let result = tokio::time::timeout(WITHIN, driver).await.unwrap().unwrap();
        assert!(result.is_err());
        assert!(opener.is_closed());
    }
}
