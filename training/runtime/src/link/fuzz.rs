//! Whatever bytes come over a connection, a stream gives messages as their heads say, or an error that names the rank; it never takes more
//! memory than its own, and never more bytes than were sent. Here any bytes come, in any pieces, and valid streams that were cut or changed.
//! A sealed stream gives the messages that were sent, and of one that was touched nothing from there on.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use eirene_train_mesh::{Opening, Sealing, TAG};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::sealed::{LENGTH, RECORD, WIRE};
use super::{Link, Outgoing, Sealed, Stream};
use crate::extent::{Extent, Extents};
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

fn plain(socket: TcpStream) -> Link {
    Link::Stream(Stream::new(7, socket).unwrap())
}

fn sealed(socket: TcpStream) -> Link {
    let ends = (Sealing::new([1; 32].into()), Opening::new([2; 32].into()));
    Link::Sealed(Box::new(Sealed::new(7, socket, ends).unwrap()))
}

/// Messages as they go over the wire to a sealed stream, record by record, with the number of messages that have begun by each.
fn records(messages: &mut [(Head, Vec<u8>)]) -> Vec<(usize, Vec<u8>)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    far.set_nonblocking(true).unwrap();
    let ends = (Sealing::new([2; 32].into()), Opening::new([1; 32].into()));
    let mut near = Sealed::new(1, near, ends).unwrap();
    let (mut wire, mut begun) = (Vec::new(), Vec::new());
    for (head, content) in messages {
        begun.push(wire.len());
        let mut what = Extents::empty();
        let third = content.len() / 3;
        // In two parts, as a schedule's blocks are.
        let (one, other) = content.split_at_mut(third);
        for part in [one, other] {
            what.push(Extent { address: part.as_mut_ptr(), bytes: part.len() });
        }
        let mut message = Outgoing::new(*head, what);
        let mut part = vec![0; 1 << 16];
        while !near.push(&mut message).unwrap() {
            wire.extend_from_slice(far.read(&mut part).map_or(&[], |bytes| &part[..bytes]));
        }
        // All that was pushed is on its way.
        let bytes = HEAD + content.len();
        let whole = bytes + bytes.div_ceil(RECORD) * (LENGTH + TAG);
        while wire.len() < begun[begun.len() - 1] + whole {
            wire.extend_from_slice(far.read(&mut part).map_or(&[], |bytes| &part[..bytes]));
        }
    }
    let (mut rest, mut at, mut records) = (&wire[..], 0, Vec::new());
    while let Some(length) = rest.first_chunk::<LENGTH>() {
        let (record, later) = rest.split_at(LENGTH + u64::from_le_bytes(*length) as usize + TAG);
        records.push((begun.iter().filter(|begin| **begin <= at).count(), record.to_vec()));
        (rest, at) = (later, at + record.len());
    }
    records
}

/// What a peer that reads as it likes makes of bytes that come in these pieces and then end: messages, and the error at the end.
fn read(bytes: &[u8], pieces: &[usize], stores: &[bool], over: impl FnOnce(TcpStream) -> Link) -> (Messages, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = over(listener.accept().unwrap().0);
    let is_sealed = matches!(far, Link::Sealed(_));
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
                match far.next() {
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
                        // Who has stored a part of a word can expect no words, where nothing is copied to be read in words.
                        let in_words = current.as_ref().is_none_or(|(_, taken)| taken.len() % size_of::<u64>() == 0);
                        let is_aligned = content.as_ptr().addr().is_multiple_of(align_of::<u64>());
                        assert!(is_aligned || (is_sealed && !in_words));
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
    let (messages, error) = read(bytes, pieces, stores, plain);
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
        let (messages, error) = read(&bytes, &[100], &[store], plain);
        assert!(messages.is_empty() && error.contains("closed"), "{error}");
    }
}

/// Messages of some length, now and then of several records.
fn long_message() -> impl Strategy<Value = (Head, Vec<u8>)> {
    let length = prop_oneof![6 => 0_usize..3000, 1 => RECORD - HEAD - 9..RECORD - HEAD + 9, 1 => 0_usize..3 * RECORD];
    (message(), length, any::<u8>())
        .prop_map(|((head, _), length, seed)| (head, (0..length).map(|at| (at * 31 + at / 256) as u8 ^ seed).collect()))
}

/// Larger pieces, for longer streams.
fn long_ways() -> impl Strategy<Value = Ways> {
    let piece = prop_oneof![0_usize..HEAD, 0_usize..5000, 0_usize..2 * WIRE];
    (prop::collection::vec(piece, 1..8), prop::collection::vec(any::<bool>(), 1..5))
}

/// What was sent, with the lengths that the heads are given on the way.
fn sent(messages: &[(Head, Vec<u8>)]) -> Messages {
    messages.iter().map(|(head, content)| (Head { bytes: content.len() as u64, ..*head }, content.clone())).collect()
}

#[test]
fn sealed_messages_come_whole_in_whatever_pieces() {
    let check = |(mut messages, (pieces, stores)): (Messages, Ways)| {
        let wire: Vec<u8> = records(&mut messages).into_iter().flat_map(|(_, record)| record).collect();
        let (came, error) = read(&wire, &pieces, &stores, sealed);
        assert!(came == sent(&messages), "{} messages of {}", came.len(), messages.len());
        assert!(error.contains("rank 7") && error.contains("closed"), "{error}");
        Ok(())
    };
    runner().run(&(prop::collection::vec(long_message(), 0..6), long_ways()), check).unwrap();
}

#[test]
fn of_a_sealed_stream_that_was_touched_nothing_comes_from_there_on() {
    let deed = prop_oneof![
        4 => (any::<prop::sample::Index>(), 1_u8..).prop_map(|(at, flip)| Deed::Change(at, flip)),
        1 => any::<prop::sample::Index>().prop_map(Deed::Cut),
        1 => any::<prop::sample::Index>().prop_map(Deed::Drop),
        1 => any::<prop::sample::Index>().prop_map(Deed::Double),
        1 => any::<prop::sample::Index>().prop_map(Deed::Swap),
    ];
    let check = |(mut messages, deed, (pieces, stores)): (Messages, Deed, Ways)| {
        let mut records = records(&mut messages);
        let touched = deed.done(&mut records);
        let wire: Vec<u8> = records.iter().flat_map(|(_, record)| record.clone()).collect();
        let (came, error) = read(&wire, &pieces, &stores, sealed);
        let whole = touched.map_or(messages.len(), |begun| begun - 1);
        assert!(came == sent(&messages)[..whole], "{} messages, not {whole}, after {deed:?}", came.len());
        assert!(error.contains("rank 7"), "{error}");
        let is_cut = matches!(deed, Deed::Cut(_) | Deed::Drop(_)) || error.contains("closed");
        assert!(is_cut || error.contains("not what the other side sent"), "{error} after {deed:?}");
        Ok(())
    };
    runner().run(&(prop::collection::vec(long_message(), 1..5), deed, long_ways()), check).unwrap();
}

/// What is done to a row of records.
#[derive(Debug, Clone)]
enum Deed {
    Change(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Drop(prop::sample::Index),
    Double(prop::sample::Index),
    Swap(prop::sample::Index),
}

impl Deed {
    /// Does it; says how many messages had begun where it shows, if it does.
    fn done(&self, records: &mut Vec<(usize, Vec<u8>)>) -> Option<usize> {
        let (Self::Change(at, _) | Self::Cut(at) | Self::Drop(at) | Self::Double(at) | Self::Swap(at)) = self;
        let which = at.index(records.len());
        let begun = records[which].0;
        let record = &mut records[which].1;
        let byte = at.index(record.len());
        match self {
            Self::Change(_, flip) => record[byte] ^= flip,
            Self::Cut(_) => {
                record.truncate(byte);
                records.truncate(which + 1);
            }
            Self::Drop(_) => drop(records.remove(which)),
            // The first of the two is still as it was sent.
            Self::Double(_) => {
                records.insert(which + 1, records[which].clone());
                let goes_on = records.get(which + 2).is_some_and(|next| next.0 == begun);
                return Some(if goes_on { begun } else { begun + 1 });
            }
            Self::Swap(_) if which + 1 < records.len() => records.swap(which, which + 1),
            Self::Swap(_) => return None,
        }
        Some(begun)
    }
}

#[test]
fn any_bytes_on_a_sealed_stream_are_an_error() {
    let check = |(bytes, (pieces, stores)): (Vec<u8>, Ways)| {
        let (messages, error) = read(&bytes, &pieces, &stores, sealed);
        assert!(messages.is_empty() && error.contains("rank 7"), "{error}");
        Ok(())
    };
    runner().run(&(prop::collection::vec(any::<u8>(), 0..400), ways()), check).unwrap();
}

/// A record that the other side has sealed, whatever is in it.
fn record(sealing: &mut Sealing, bytes: &[u8]) -> Vec<u8> {
    let (length, mut bytes) = ((bytes.len() as u64).to_le_bytes(), bytes.to_vec());
    let tag = sealing.seal(&length, &mut bytes);
    [&length[..], &bytes, &tag].concat()
}

#[test]
fn records_that_do_not_fit_their_message_are_an_error() {
    let head = |bytes: u64| Head { bytes, ..Head::default() }.to_bytes();
    let long = vec![0; RECORD + 1];
    let cases: [(&[&[u8]], &str); 7] = [
        (&[&[]], "not what the other side sent"),
        (&[&long], "not what the other side sent"),
        (&[&head(100)[..31]], "31 bytes came where a message begins"),
        (&[&[&head(4)[..], &[0; 5]].concat()], "5 bytes came where 4 are missing"),
        (&[&[&head(100)[..], &[0; 12]].concat()], "12 bytes came where 100 are missing"),
        (&[&[&head(100)[..], &[0; 16]].concat(), &[0; 85]], "85 bytes came where 84 are missing"),
        (&[&[&head(100)[..], &[0; 16]].concat(), &[0; 20]], "20 bytes came where 84 are missing"),
    ];
    for (plain, expected) in cases {
        for store in [false, true] {
            let mut sealing = Sealing::new([2; 32].into());
            let wire: Vec<u8> = plain.iter().flat_map(|bytes| record(&mut sealing, bytes)).collect();
            let (messages, error) = read(&wire, &[WIRE], &[store], sealed);
            assert!(messages.is_empty() && error.contains(expected), "{error}, not {expected}");
        }
    }
}
