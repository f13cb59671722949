//! What a launcher and its nodes say to each other over a remote shell's pipes.
//!
//! To the node: messages with their length before them. From the node: lines, for remote shells put lines of their own in between
//! (greetings, warnings), and some pass on nothing but lines. A line that begins with our mark is a frame; any other is noise, shown
//! as such.

use crate::run::event::{End, Event, Stream};
use crate::run::orders::{LONGEST, Orders};

/// What begins a frame: a character that no greeting has, and a word.
const MARK: &[u8] = b"\x1eeirene ";

/// Both sides must be of the same make: what is said has no other version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a launcher tells a node.
#[derive(Debug)]
pub(crate) enum Message {
    /// Get ready; open a port to meet at, if this is rank 0's node.
    Prepare { listen: bool },
    /// Start these ranks.
    Start(Box<Orders>),
    /// Send all ranks a signal.
    Signal(i32),
    /// Rank 0 is to read this; nothing at all is the end.
    Input(Vec<u8>),
}

impl Message {
    /// With its length before it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Prepare { listen } => (b'P', vec![u8::from(*listen)]),
            Self::Start(orders) => (b'S', orders.encode()),
            Self::Signal(signal) => (b'K', signal.to_le_bytes().to_vec()),
            Self::Input(bytes) => (b'I', bytes.clone()),
        };
        let mut out = ((body.len() + 1) as u32).to_le_bytes().to_vec();
        out.push(kind);
        out.extend_from_slice(&body);
        out
    }

    /// Takes the first whole message off `buffer`: nothing while it is not whole, an error for what is none.
    pub(crate) fn take(buffer: &mut Vec<u8>) -> Result<Option<Self>, &'static str> {
        let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > LONGEST {
            return Err("a message of impossible length came");
        }
        let Some(body) = buffer.get(4..4 + length) else { return Ok(None) };
        let message = match body {
            [b'P', listen @ (0 | 1)] => Self::Prepare { listen: *listen == 1 },
            [b'S', orders @ ..] => {
                Self::Start(Box::new(Orders::decode(orders).ok_or("orders came that make no sense")?))
            }
            [b'K', signal @ ..] => {
                Self::Signal(i32::from_le_bytes(signal.try_into().map_err(|_| "a signal came that is none")?))
            }
            [b'I', bytes @ ..] => Self::Input(bytes.to_vec()),
            _ => return Err("a message came that is not known"),
        };
        buffer.drain(..4 + length);
        Ok(Some(message))
    }
}

/// What a node tells its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// It is there.
    Ready(Ready),
    /// Something happened to a rank.
    Event(Event),
    /// The ranks could not be started.
    Failed { code: u8, problem: String },
    /// All ranks have ended, and nothing is left of them.
    Done,
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) version: String,
    /// The port to meet at, where it was asked to open one; 0 else.
    pub(crate) port: u16,
    /// A free port for torch's own way to meet.
    pub(crate) master_port: u16,
    /// The address by which the remote shell reached it, where known.
    pub(crate) address: Option<String>,
    /// The host's own name.
    pub(crate) hostname: String,
}

impl Frame {
    /// As a line.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MARK.to_vec();
        match self {
            Self::Ready(ready) => {
                let address = ready.address.as_deref().unwrap_or("-");
                let Ready { version, port, master_port, hostname, .. } = ready;
                out.extend_from_slice(format!("ready {version} {port} {master_port} {address} ").as_bytes());
                escape(hostname.as_bytes(), &mut out);
            }
            Self::Event(Event::Started { rank, pid }) => {
                out.extend_from_slice(format!("started {rank} {pid}").as_bytes());
            }
            Self::Event(Event::Lines { rank, stream, lines }) => {
                let word = match stream {
                    Stream::Stdout => "out",
                    Stream::Stderr => "err",
                };
                out.extend_from_slice(format!("{word} {rank} ").as_bytes());
                escape(lines, &mut out);
            }
            Self::Event(Event::Ended { rank, end: End::Code(code) }) => {
                out.extend_from_slice(format!("exited {rank} {code}").as_bytes());
            }
            Self::Event(Event::Ended { rank, end: End::Signal(signal) }) => {
                out.extend_from_slice(format!("killed {rank} {signal}").as_bytes());
            }
            // A node has no nodes of its own.
            Self::Event(Event::Noise { .. } | Event::Lost { .. }) => return Vec::new(),
            Self::Failed { code, problem } => {
                out.extend_from_slice(format!("failed {code} ").as_bytes());
                escape(problem.as_bytes(), &mut out);
            }
            Self::Done => out.extend_from_slice(b"done"),
        }
        out.push(b'\n');
        out
    }

    /// From a line without its end: nothing for noise, an error for a frame that makes no sense.
    pub(crate) fn decode(line: &[u8]) -> Result<Option<Self>, &'static str> {
        const WRONG: &str = "sent a message that is not understood";
        let Some(frame) = line.strip_prefix(MARK) else { return Ok(None) };
        let frame = frame.strip_suffix(b"\r").unwrap_or(frame);
        let mut words = frame.splitn(2, |byte| *byte == b' ');
        let kind = words.next().unwrap_or_default();
        let rest = words.next().unwrap_or_default();
        let decoded = match kind {
            b"ready" => ready(rest).map(Self::Ready),
            b"started" => two(rest).map(|(rank, pid)| Self::Event(Event::Started { rank, pid })),
            b"out" => lines(rest, Stream::Stdout),
            b"err" => lines(rest, Stream::Stderr),
            b"exited" => two(rest).and_then(|(rank, code)| {
                Some(Self::Event(Event::Ended { rank, end: End::Code(u8::try_from(code).ok()?) }))
            }),
            b"killed" => two(rest).and_then(|(rank, signal)| {
                let signal = i32::try_from(signal).ok().filter(|signal| *signal < 128)?;
                Some(Self::Event(Event::Ended { rank, end: End::Signal(signal) }))
            }),
            b"failed" => failed(rest),
            b"done" if rest.is_empty() => Some(Self::Done),
            _ => None,
        };
        decoded.map(Some).ok_or(WRONG)
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    crate::detect::parse(std::str::from_utf8(bytes).ok()?)
}

fn two(rest: &[u8]) -> Option<(u32, u32)> {
    let (first, second) = split(rest)?;
    Some((number(first)?, number(second)?))
}

fn split(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = rest.iter().position(|byte| *byte == b' ')?;
    Some((&rest[..at], &rest[at + 1..]))
}

fn ready(rest: &[u8]) -> Option<Ready> {
    let text = String::from_utf8(unescape(rest)?).ok()?;
    let [version, port, master_port, address, hostname] = text.splitn(5, ' ').collect::<Vec<_>>().try_into().ok()?;
    let to_port = |text: &str| u16::try_from(crate::detect::parse(text)?).ok();
    Some(Ready {
        version: version.to_owned(),
        port: to_port(port)?,
        master_port: to_port(master_port)?,
        address: (address != "-").then(|| address.to_owned()),
        hostname: hostname.to_owned(),
    })
}

fn lines(rest: &[u8], stream: Stream) -> Option<Frame> {
    let (rank, lines) = split(rest)?;
    Some(Frame::Event(Event::Lines { rank: number(rank)?, stream, lines: unescape(lines)? }))
}

fn failed(rest: &[u8]) -> Option<Frame> {
    let (code, problem) = split(rest)?;
    let problem = String::from_utf8_lossy(&unescape(problem)?).into_owned();
    Some(Frame::Failed { code: u8::try_from(number(code)?).ok()?, problem })
}

/// Line ends become letters, so that anything fits into one line.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 8);
    for byte in bytes {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
}

fn unescape(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        out.push(match rest.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b'\\' => b'\\',
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame> {
        let ready = Ready {
            version: VERSION.to_owned(),
            port: 4711,
            master_port: 4712,
            address: Some("192.0.2.7".to_owned()),
            hostname: "c1".to_owned(),
        };
        vec![
            Frame::Ready(ready.clone()),
            Frame::Ready(Ready { address: None, port: 0, ..ready }),
            Frame::Event(Event::Started { rank: 3, pid: 77 }),
            Frame::Event(Event::Lines { rank: 3, stream: Stream::Stdout, lines: b"a\\n\n\r\n\xff\x00".to_vec() }),
            Frame::Event(Event::Lines { rank: 0, stream: Stream::Stderr, lines: b"\x1eeirene done\n".to_vec() }),
            Frame::Event(Event::Ended { rank: 1, end: End::Code(255) }),
            Frame::Event(Event::Ended { rank: 1, end: End::Signal(9) }),
            Frame::Failed { code: 127, problem: "no such\nfile".to_owned() },
            Frame::Done,
        ]
    }

    #[test]
    fn frames_are_one_line_each_and_are_read_as_they_were_written() {
        for frame in frames() {
            let line = frame.encode();
            assert_eq!(line.split(|byte| *byte == b'\n').count(), 2, "{frame:?}");
            assert_eq!(Frame::decode(line.strip_suffix(b"\n").unwrap()), Ok(Some(frame)));
        }
    }

    #[test]
    fn what_a_remote_shell_says_itself_is_noise() {
        assert_eq!(Frame::decode(b"Welcome to c1!"), Ok(None));
        assert_eq!(Frame::decode(b"eirene done"), Ok(None));
    }

    #[test]
    fn frames_that_make_no_sense_are_refused() {
        for line in [
            "",
            "x",
            "done now",
            "exited 1",
            "exited 1 256",
            "killed 1 128",
            "out 1",
            "out x y",
            "out 1 \\x",
            "ready 1 2 3",
        ] {
            let line = [MARK, line.as_bytes()].concat();
            assert!(Frame::decode(&line).is_err(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn messages_come_out_of_a_stream_one_by_one() {
        let mut stream = [Message::Prepare { listen: true }.encode(), Message::Signal(15).encode()].concat();
        let tail = stream.split_off(stream.len() - 1);
        assert!(matches!(Message::take(&mut stream), Ok(Some(Message::Prepare { listen: true }))));
        assert!(matches!(Message::take(&mut stream), Ok(None)));
        stream.extend(tail);
        assert!(matches!(Message::take(&mut stream), Ok(Some(Message::Signal(15)))));
        assert!(stream.is_empty());
    }

    #[test]
    fn messages_that_make_no_sense_are_refused_before_they_fill_the_memory() {
        for wrong in [
            &b"\0\0\0\0"[..],
            b"\xff\xff\xff\xff",
            b"\x01\0\0\0X",
            b"\x02\0\0\0P\x02",
            b"\x02\0\0\0K\x02",
            b"\x02\0\0\0S\x02",
        ] {
            assert!(Message::take(&mut wrong.to_vec()).is_err(), "{}", wrong.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..100), marked in any::<bool>()) {
            let line = if marked { [MARK, &line].concat() } else { line };
            let _ = Frame::decode(&line);
        }

        #[test]
        fn a_cut_or_changed_frame_is_another_or_refused(which: prop::sample::Index, at: prop::sample::Index, with: u8, cut: bool) {
            let mut line = which.get(&frames()).encode();
            line.pop();
            let at = at.index(line.len());
            if cut {
                line.truncate(at);
            } else {
                line[at] = with;
            }
            let _ = Frame::decode(&line);
        }

        #[test]
        fn cut_or_changed_messages_are_others_or_refused(at: prop::sample::Index, with: u8, cut: bool) {
            let input = Message::Input(b"words".to_vec());
            let messages = [Message::Prepare { listen: true }, Message::Signal(2), input, Message::Prepare { listen: false }];
            let mut bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] = with;
            }
            // Every message takes bytes, so there is an end.
            let before = bytes.len();
            let mut count = 0;
            while let Ok(Some(_)) = Message::take(&mut bytes) {
                count += 1;
            }
            prop_assert!(count <= before);
        }

        #[test]
        fn any_lines_survive(lines in prop::collection::vec(any::<u8>(), 0..100)) {
            let frame = Frame::Event(Event::Lines { rank: 9, stream: Stream::Stdout, lines });
            let line = frame.encode();
            prop_assert_eq!(Frame::decode(&line[..line.len() - 1]), Ok(Some(frame)));
        }

        #[test]
        fn any_message_is_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Message::take(&mut bytes);
        }
    }
}
