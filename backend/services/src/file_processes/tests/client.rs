//! One channel, against a far end that lies, floods, falls silent and goes.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc as threads;

use eirene_files_protocol::{MOST_BYTES, Piece, Preview, Progress};

use super::*;
use crate::file_processes::{FilesChannel, FilesError, MOST_AT_ONCE};

/// A channel whose far end does what `serve` does after a good beginning; it says when the portal has closed it.
async fn channel(
    limits: Limits,
    serve: impl FnOnce(&mut Peer) + Send + 'static,
) -> (FilesChannel, tokio::sync::oneshot::Receiver<()>) {
    let (near, far) = Channel::pair().unwrap();
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut peer = Peer::new(far);
        peer.hello(UID);
        serve(&mut peer);
        while peer.hear().is_some() {}
        let _ = closed.send(());
    });
    let open = Open { spaces: one_space() };
    let channel = FilesChannel::open(near.into_descriptor(), UID, &open, limits).await.unwrap();
    (channel, is_closed)
}

type Hostility = (&'static str, fn(&mut Peer, RequestNumber));

const HOSTILITIES: [Hostility; 13] = [
    ("an oversized packet", |peer, _| peer.say_raw(&vec![0; MOST_BYTES + 1], &[])),
    ("noise", |peer, _| peer.say_raw(b"noise", &[])),
    ("an empty packet", |peer, _| peer.say_raw(b"", &[])),
    ("a frame of the portal's", |peer, number| peer.say_raw(&ToFiles::Cancel(number).encode().unwrap(), &[])),
    ("nested without end", |peer, number| {
        let head = listed(number).encode().unwrap()[..12].to_vec();
        peer.say_raw(&[head, vec![b'['; 100_000]].concat(), &[]);
    }),
    ("a reply to nothing", |peer, _| peer.say(&listed(RequestNumber(77)))),
    ("a part of nothing", |peer, _| peer.say(&FromFiles::More(RequestNumber(77), entries(1)))),
    ("a second reply", |peer, number| (0..2).for_each(|_| peer.say(&listed(number)))),
    ("a second hello", |peer, _| peer.say(&FromFiles::Hello(Hello { uid: UID, landlock: None, spaces: Vec::new() }))),
    ("an answer without end", |peer, number| {
        (0..100).for_each(|_| peer.say(&FromFiles::More(number, entries(1000))));
    }),
    ("a storm of progress", |peer, number| {
        (0..1000).for_each(|_| peer.say(&FromFiles::Progress(number, Progress { entries: 1, bytes: 1 })));
    }),
    ("a descriptor", |peer, number| {
        let (near, _far) = StdUnixStream::pair().unwrap();
        peer.say_raw(&listed(number).encode().unwrap(), &[near.as_fd()]);
    }),
    ("a flood of descriptors", |peer, number| {
        let (near, _far) = StdUnixStream::pair().unwrap();
        peer.say_raw(&listed(number).encode().unwrap(), &[near.as_fd(); 64]);
    }),
];

#[tokio::test]
async fn a_hostile_files_process_is_cut_off() {
    for (what, hostility) in HOSTILITIES {
        let (channel, closed) = channel(patient(), move |peer| {
            let number = peer.request();
            hostility(peer, number);
        })
        .await;
        let answer = channel.ask(list()).await;
        let expected = match what {
            // The kernel does not tell it from the end.
            "an empty packet" => matches!(answer, Err(FilesError::Ended)),
            "a second reply" => answer.is_ok(),
            _ => matches!(answer, Err(FilesError::Broken(_))),
        };
        assert!(expected, "{what}: {answer:?}");
        tokio::time::timeout(PATIENCE, closed).await.expect(what).unwrap();
        assert!(!channel.is_open() && channel.failed_at().is_some(), "{what}");
        assert!(channel.ask(list()).await.is_err(), "{what}: it is not asked again");
    }
}

#[tokio::test]
async fn a_preview_without_end_is_cut_off() {
    for (piece, many) in [
        (Piece::Output, 1000),
        (Piece::Row(vec![String::new(); 1000]), 1),
        (Piece::Row(vec![]), 1000),
        (Piece::Text("x".repeat(60_000)), 1),
    ] {
        let flood = Part::Preview(vec![piece.clone(); many]);
        let (channel, closed) = channel(patient(), move |peer| {
            let number = peer.request();
            (0..200).for_each(|_| peer.say(&FromFiles::More(number, flood.clone())));
        })
        .await;
        let preview = Verb::Preview(Preview { space: SpaceNumber(1), path: path("a"), page: 0 });
        let answer = channel.ask(preview).await;
        assert!(matches!(answer, Err(FilesError::Broken(_))), "{piece:?}");
        tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_process_of_somebody_else_or_with_other_spaces_is_not_used() {
    let open = |hello: fn(&mut Peer)| async move {
        let (near, far) = Channel::pair().unwrap();
        let (closed, is_closed) = threads::channel();
        std::thread::spawn(move || {
            let mut peer = Peer::new(far);
            hello(&mut peer);
            assert!(peer.hear().is_none());
            closed.send(()).unwrap();
        });
        let open = Open { spaces: one_space() };
        let result = FilesChannel::open(near.into_descriptor(), UID, &open, patient()).await;
        tokio::task::spawn_blocking(move || is_closed.recv_timeout(PATIENCE).unwrap()).await.unwrap();
        result.err()
    };
    let stranger = open(|peer| peer.hello(2002)).await;
    assert!(matches!(stranger, Some(FilesError::WrongUser { said: 2002 })), "{stranger:?}");
    let none = open(|peer| {
        peer.hear();
        peer.say(&FromFiles::Hello(Hello { uid: UID, landlock: None, spaces: Vec::new() }));
    });
    assert!(matches!(none.await, Some(FilesError::Broken(_))));
    let early = open(|peer| {
        peer.hear();
        peer.say(&listed(RequestNumber(1)));
    });
    assert!(matches!(early.await, Some(FilesError::Broken(_))));
}

#[tokio::test]
async fn a_process_that_is_silent_is_given_up_with_all_that_was_asked_of_it() {
    let (channel, closed) = channel(patient(), |peer| {
        let (first, _second) = (peer.request(), peer.request());
        peer.say(&FromFiles::More(first, entries(1)));
    })
    .await;
    // Time passes where nothing else happens, once the channel is open.
    tokio::time::pause();
    let (first, second) = tokio::join!(channel.ask(list()), channel.ask(list()));
    for answer in [first, second] {
        assert!(matches!(answer, Err(FilesError::Away { retry_after_s: 10 })), "{answer:?}");
    }
    closed.await.unwrap();
    // A hello that does not come is no different.
    let (near, far) = Channel::pair().unwrap();
    let open = Open { spaces: one_space() };
    let silent = FilesChannel::open(near.into_descriptor(), UID, &open, patient()).await;
    assert!(matches!(silent, Err(FilesError::Away { .. })), "{silent:?}");
    assert!(matches!(Peer::new(far).hear(), Some(ToFiles::Open(_))));
}

#[tokio::test]
async fn a_process_that_goes_is_noticed_by_whoever_waits() {
    let (near, far) = Channel::pair().unwrap();
    std::thread::spawn(move || {
        let mut peer = Peer::new(far);
        peer.hello(UID);
        peer.request();
    });
    let open = Open { spaces: one_space() };
    let channel = FilesChannel::open(near.into_descriptor(), UID, &open, patient()).await.unwrap();
    let answer = channel.ask(list()).await;
    assert!(matches!(answer, Err(FilesError::Ended)), "{answer:?}");
}

#[tokio::test]
async fn what_nobody_waits_for_is_cancelled_and_answers_find_whoever_asked() {
    let (channel, _closed) = channel(patient(), |peer| {
        let [first, second] = [peer.request(), peer.request()];
        let Some(ToFiles::Cancel(cancelled)) = peer.hear() else { panic!("nothing was cancelled") };
        assert_eq!(cancelled, first);
        // It was on its way already: no harm.
        peer.say(&FromFiles::More(first, entries(1)));
        peer.say(&listed(first));
        peer.say(&FromFiles::More(second, entries(3)));
        peer.say(&FromFiles::More(second, entries(4)));
        peer.say(&listed(second));
    })
    .await;
    let (given_up, _stream) = channel.begin(read("a")).await.unwrap();
    let waiting = channel.clone();
    let waiting = tokio::spawn(async move { waiting.ask(list()).await });
    // The second is on its way before the first is given up: the far end hears them in this order.
    while channel.running() < 2 {
        tokio::task::yield_now().await;
    }
    drop(given_up);
    let heard = waiting.await.unwrap().unwrap();
    assert_eq!(heard.parts, [entries(3), entries(4)]);
    assert!(channel.is_open() && channel.idle_since().is_some());
}

#[tokio::test]
async fn only_so_much_is_asked_at_once() {
    let (channel, _closed) = channel(patient(), |_| {}).await;
    let mut begun = Vec::new();
    for _ in 0..MOST_AT_ONCE {
        begun.push(channel.begin(read("a")).await.unwrap());
    }
    // Time passes where nothing else happens.
    tokio::time::pause();
    assert!(matches!(channel.begin(read("a")).await, Err(FilesError::Busy)));
    assert!(channel.is_open(), "transfers may take as long as they like");
}

#[tokio::test]
async fn an_unused_channel_is_closed_and_one_in_use_is_not() {
    let (answer, wait) = threads::channel();
    let limits = Limits { reply: 9 * PATIENCE, ..patient() };
    let (channel, closed) = channel(limits, move |peer| {
        let number = peer.request();
        wait.recv_timeout(PATIENCE).unwrap();
        peer.say(&listed(number));
    })
    .await;
    // Time passes where nothing else happens, once the channel is open.
    tokio::time::pause();
    let asking = channel.clone();
    let asking = tokio::spawn(async move { asking.ask(list()).await });
    tokio::time::sleep(3 * limits.idle).await;
    tokio::time::resume();
    answer.send(()).unwrap();
    assert!(asking.await.unwrap().is_ok(), "the answer took longer than that");
    tokio::time::pause();
    closed.await.unwrap();
    assert!(channel.failed_at().is_none(), "that is no failure");
}

#[tokio::test]
async fn a_retired_channel_closes_with_its_last_answer() {
    let (answer, wait) = threads::channel();
    let (channel, closed) = channel(patient(), move |peer| {
        let number = peer.request();
        wait.recv_timeout(PATIENCE).unwrap();
        peer.say(&listed(number));
    })
    .await;
    let asking = channel.clone();
    let asking = tokio::spawn(async move { asking.ask(list()).await });
    while channel.idle_since().is_some() {
        tokio::task::yield_now().await;
    }
    channel.retire();
    assert!(channel.is_open());
    answer.send(()).unwrap();
    assert!(asking.await.unwrap().is_ok());
    tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
}
