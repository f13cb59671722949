//! Whatever bytes come over a connection, a stream gives messages as their heads say, or an error that names the rank; it never takes more
//! memory than its own, and never more bytes than were sent. Here any bytes come, in any pieces, and valid streams that were cut or changed.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::Stream;
use crate::message::{HEAD, Head};

/// Messages with their content.
type Messages = Vec<(Head, Vec<u8>)>;
/// In pieces of what lengths bytes come, and whether what is read is stored or looked at; each again and again.
type Ways = (Vec<usize>, Vec<bool>);

/// Messages one after the other as they go over the wire.
fn written(messages: &[(Head, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (head, content) in messages {
        bytes.extend(Head { bytes: content.len() as u64, ..*head }.to_bytes());
        bytes.extend(content);
    }
    bytes
}

/// What a peer that reads as it likes makes of bytes that come in these pieces and then end: messages, and the error at the end.
fn read(bytes: &[u8], pieces: &[usize], stores: &[bool]) -> (Messages, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = Stream::new(7, listener.accept().unwrap().0).unwrap();
    let mut rest = bytes;
    let mut pieces = pieces.iter().cycle();
    let mut stores = stores.iter().cycle();
    let mut messages: Messages = Vec::new();
    let mut current: Option<(Head, Vec<u8>)> = None;
    loop {
        if rest.is_empty() {
            near.shutdown(std::net::Shutdown::Write).unwrap();
        } else {
            let piece = rest.len().min(1 + pieces.next().unwrap_or(&0));
            near.write_all(&rest[..piece]).unwrap();
            rest = &rest[piece..];
        }
        // Until nothing more is here for now.
        loop {
            let mut room = [0_u8; 57];
            let took = if *stores.next().unwrap_or(&true) {
                match far.head() {
                    Err(error) => return (messages, error.to_string()),
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        let taken = &mut current.get_or_insert((head, Vec::new())).1;
                        match far.store(room.as_mut_ptr(), room.len()) {
                            Err(error) => return (messages, error.to_string()),
                            Ok(bytes) => {
                                taken.extend(&room[..bytes]);
                                bytes
                            }
                        }
                    }
                }
            } else {
                match far.peek() {
                    Err(error) => return (messages, error.to_string()),
                    Ok(None) => break,
                    Ok(Some((head, content))) => {
                        assert!(content.as_ptr().addr().is_multiple_of(align_of::<u64>()));
                        let bytes = content.len();
                        current.get_or_insert((head, Vec::new())).1.extend(content);
                        if bytes > 0 || head.bytes == 0 {
                            far.take(bytes);
                        }
                        bytes
                    }
                }
            };
            if let Some((head, content)) = current.take_if(|(head, content)| content.len() as u64 == head.bytes) {
                messages.push((head, content));
            } else if took == 0 {
                break;
            }
        }
    }
}

fn message() -> impl Strategy<Value = (Head, Vec<u8>)> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<[u8; 4]>());
    let head = numbers.prop_map(|(call, elements, root, kind)| Head { call, bytes: 0, elements, root, kind });
    let length = prop_oneof![Just(0_usize), 1_usize..40, 40_usize..3000];
    (head, length.prop_flat_map(|length| prop::collection::vec(any::<u8>(), length)))
}

fn ways() -> impl Strategy<Value = Ways> {
    let piece = prop_oneof![0_usize..HEAD, 0_usize..5000];
    (prop::collection::vec(piece, 1..8), prop::collection::vec(any::<bool>(), 1..5))
}

/// By EIRENE_TEST_SEED, where it is set; many more with EIRENE_TEST_DEEP.
fn runner() -> TestRunner {
    let deep = std::env::var("EIRENE_TEST_DEEP").is_ok_and(|deep| deep == "1");
    let config = Config { cases: if deep { 5000 } else { 150 }, ..Config::default() };
    match std::env::var("EIRENE_TEST_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => {
            let seed: Vec<u8> = seed.to_le_bytes().repeat(4);
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
        }
        None => TestRunner::new(config),
    }
}

/// The messages that some bytes hold whole, by the plainest reading.
fn whole(mut bytes: &[u8]) -> Messages {
    let mut messages = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        let head = Head::from_bytes(head);
        let Some(content) = usize::try_from(head.bytes).ok().and_then(|length| rest.get(..length)) else { break };
        messages.push((head, content.to_vec()));
        bytes = &rest[content.len()..];
    }
    messages
}

fn holds(bytes: &[u8], (pieces, stores): &Ways) {
    let (messages, error) = read(bytes, pieces, stores);
    assert!(messages == whole(bytes), "{} messages instead of {}", messages.len(), whole(bytes).len());
    assert!(error.contains("rank 7"), "{error}");
}

#[test]
fn any_bytes_are_messages_or_an_error() {
    let bytes = prop::collection::vec(any::<u8>(), 0..400);
    runner()
        .run(&(bytes, ways()), |(bytes, ways)| {
            holds(&bytes, &ways);
            Ok(())
        })
        .unwrap();
}

#[test]
fn valid_messages_come_whole_in_whatever_pieces() {
    let messages = prop::collection::vec(message(), 0..6);
    let check = |(messages, ways): (Messages, Ways)| {
        let bytes = written(&messages);
        let expected = whole(&bytes);
        assert!(expected.iter().map(|(_, content)| content).eq(messages.iter().map(|(_, content)| content)));
        holds(&bytes, &ways);
        Ok(())
    };
    runner().run(&(messages, ways()), check).unwrap();
}

#[test]
fn messages_that_were_cut_or_changed_are_others_or_an_error() {
    let messages = prop::collection::vec(message(), 1..5);
    let check = |(messages, at, flip, cut, ways): (Messages, prop::sample::Index, u8, bool, Ways)| {
        let mut bytes = written(&messages);
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= flip;
        }
        holds(&bytes, &ways);
        Ok(())
    };
    runner().run(&(messages, any::<prop::sample::Index>(), any::<u8>(), any::<bool>(), ways()), check).unwrap();
}

/// The largest length a head can claim takes no memory before its content is here.
#[test]
fn a_length_beyond_everything_is_waited_for_and_not_allocated() {
    let bytes = [&Head { bytes: u64::MAX, ..Head::default() }.to_bytes()[..], &[1; 1000]].concat();
    for store in [false, true] {
        let (messages, error) = read(&bytes, &[100], &[store]);
        assert!(messages.is_empty() && error.contains("closed"), "{error}");
    }
}
