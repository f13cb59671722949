//! Frames: a head of twelve bytes (magic, version, kind, number of the request; little-endian) and JSON behind it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Hello, MOST_BYTES, Open, Outcome, Part, Progress, Verb};

const MAGIC: u16 = 0xE1F1;
const VERSION: u8 = 1;
const HEAD: usize = 12;

/// A request, numbered by the portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestNumber(pub u64);

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A verb.
    Request = 0,
    /// The last word on a request.
    Reply = 1,
    /// A part of an answer.
    More = 2,
    /// How far a request is.
    Progress = 3,
    /// A request is no longer wanted.
    Cancel = 4,
    /// The process's first word.
    Hello = 5,
    /// The portal's first word.
    Open = 6,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        [Self::Request, Self::Reply, Self::More, Self::Progress, Self::Cancel, Self::Hello, Self::Open]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes are no frame. Whoever hears one ends the channel: the other side is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Over [`MOST_BYTES`].
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// Not our magic, or no whole head.
    #[error("not a frame")]
    NoFrame,
    /// Another version of the protocol.
    #[error("version {0} of the file protocol is not known")]
    Version(u8),
    /// A kind that this side does not take.
    #[error("a frame of kind {0} is not expected here")]
    Kind(u8),
    /// Bytes behind a frame that has none.
    #[error("a frame has bytes that it cannot have")]
    Surplus,
    /// Something else than what the kind says; the source may quote it, and belongs into no log.
    #[error("a frame was not understood")]
    NotUnderstood(#[from] serde_json::Error),
}

/// What the portal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToFiles {
    /// First, and once.
    Open(Open),
    /// Do this.
    Request(RequestNumber, Verb),
    /// No longer wanted; the reply still comes.
    Cancel(RequestNumber),
}

/// What the file process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromFiles {
    /// First, and once.
    Hello(Hello),
    /// A part of the answer.
    More(RequestNumber, Part),
    /// The last word.
    Reply(RequestNumber, Outcome),
    /// How far it is.
    Progress(RequestNumber, Progress),
}

fn encode(kind: Kind, number: RequestNumber, body: Option<&impl Serialize>) -> Result<Vec<u8>, ProtocolError> {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&[VERSION, kind as u8]);
    bytes.extend_from_slice(&number.0.to_le_bytes());
    if let Some(body) = body {
        serde_json::to_writer(&mut bytes, body)?;
    }
    if bytes.len() > MOST_BYTES { Err(ProtocolError::TooLong(bytes.len())) } else { Ok(bytes) }
}

fn head(bytes: &[u8]) -> Result<(u8, RequestNumber, &[u8]), ProtocolError> {
    if bytes.len() > MOST_BYTES {
        return Err(ProtocolError::TooLong(bytes.len()));
    }
    let (head, body) = bytes.split_first_chunk::<HEAD>().ok_or(ProtocolError::NoFrame)?;
    let [first, second, version, kind, number @ ..] = *head;
    if u16::from_le_bytes([first, second]) != MAGIC {
        return Err(ProtocolError::NoFrame);
    }
    if version != VERSION {
        return Err(ProtocolError::Version(version));
    }
    Ok((kind, RequestNumber(u64::from_le_bytes(number)), body))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ProtocolError> {
    Ok(serde_json::from_slice(body)?)
}

/// The first word of either side belongs to no request.
fn unnumbered(number: RequestNumber) -> Result<(), ProtocolError> {
    if number.0 == 0 { Ok(()) } else { Err(ProtocolError::Surplus) }
}

impl ToFiles {
    /// The frame's bytes.
    ///
    /// # Errors
    /// [`ProtocolError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        match self {
            Self::Open(open) => encode(Kind::Open, RequestNumber(0), Some(open)),
            Self::Request(number, verb) => encode(Kind::Request, *number, Some(verb)),
            Self::Cancel(number) => encode(Kind::Cancel, *number, None::<&()>),
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let (kind, number, body) = head(bytes)?;
        match Kind::parse(kind) {
            Some(Kind::Open) => unnumbered(number).and_then(|()| parse(body)).map(Self::Open),
            Some(Kind::Request) => Ok(Self::Request(number, parse(body)?)),
            Some(Kind::Cancel) if body.is_empty() => Ok(Self::Cancel(number)),
            Some(Kind::Cancel) => Err(ProtocolError::Surplus),
            Some(Kind::Reply | Kind::More | Kind::Progress | Kind::Hello) | None => Err(ProtocolError::Kind(kind)),
        }
    }
}

impl FromFiles {
    /// The frame's bytes.
    ///
    /// # Errors
    /// [`ProtocolError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        match self {
            Self::Hello(hello) => encode(Kind::Hello, RequestNumber(0), Some(hello)),
            Self::More(number, part) => encode(Kind::More, *number, Some(part)),
            Self::Reply(number, outcome) => encode(Kind::Reply, *number, Some(outcome)),
            Self::Progress(number, progress) => encode(Kind::Progress, *number, Some(progress)),
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let (kind, number, body) = head(bytes)?;
        match Kind::parse(kind) {
            Some(Kind::Hello) => unnumbered(number).and_then(|()| parse(body)).map(Self::Hello),
            Some(Kind::More) => Ok(Self::More(number, parse(body)?)),
            Some(Kind::Reply) => Ok(Self::Reply(number, parse(body)?)),
            Some(Kind::Progress) => Ok(Self::Progress(number, parse(body)?)),
            Some(Kind::Request | Kind::Cancel | Kind::Open) | None => Err(ProtocolError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Accounts, Answer, Code, Cursor, Entry, EntryKind, HostileText, List, Listed, MadeAt, Moment, Name, OpenSpace,
        Problem, Read, RelativePath, Sort, SpaceNumber, Stat, samples,
    };

    fn path(text: &str) -> RelativePath {
        RelativePath::parse(text.as_bytes()).unwrap()
    }

    fn to_files() -> Vec<ToFiles> {
        let space = SpaceNumber(3);
        let number = RequestNumber(u64::MAX);
        let root = HostileText(b"/scratch/ada".to_vec());
        let reserved = vec![Name::parse(b".eirene").unwrap()];
        let after = Some(Cursor { offset: 9, mark: 7 });
        let list = List {
            space,
            path: path(""),
            sort: Sort::Bytes,
            descending: true,
            hidden: false,
            filter: Some("é".into()),
            after,
            limit: 500,
        };
        let home = OpenSpace { number: space, root, writable: true, reserved, made: None };
        let made = |marker| Some(MadeAt { inode: u64::MAX, marker });
        let marked = OpenSpace { made: made(Some("00ff".into())), ..home.clone() };
        let unmarked = OpenSpace { made: made(None), ..home.clone() };
        let mut frames = vec![
            ToFiles::Open(Open { spaces: vec![home, marked, unmarked] }),
            ToFiles::Request(number, Verb::List(list)),
            ToFiles::Request(number, Verb::Stat(Stat { space, path: path("a/b") })),
            ToFiles::Request(
                RequestNumber(0),
                Verb::Read(Read { space, path: path("a"), from: 1, to: Some(u64::MAX) }),
            ),
            ToFiles::Cancel(number),
        ];
        frames.extend(samples::verbs().into_iter().map(|verb| ToFiles::Request(number, verb)));
        frames
    }

    fn from_files() -> Vec<FromFiles> {
        let number = RequestNumber(5);
        let name = Name::parse(b"\xff\n<b>").unwrap();
        let modified = Some(Moment { seconds: -1, nanoseconds: 999_999_999 });
        let entry = Entry {
            name,
            kind: EntryKind::File,
            bytes: Some(1),
            modified,
            mode: None,
            owner: None,
            group: None,
            links: None,
        };
        let listed = Listed { entries: 1, at_least: false, next: None, accounts: Accounts::default() };
        let mut frames = vec![
            FromFiles::Hello(Hello { uid: 1000, landlock: Some(7), spaces: Vec::new() }),
            FromFiles::More(number, Part::Entries(vec![entry])),
            FromFiles::Reply(number, Outcome::Done(Answer::Listed(listed))),
            FromFiles::Reply(number, Outcome::Problem(Problem { code: Code::OutOfRange, bytes: Some(9) })),
            FromFiles::Progress(number, Progress { entries: 1, bytes: 2 }),
        ];
        frames.extend(samples::parts().into_iter().map(|part| FromFiles::More(number, part)));
        frames.extend(samples::answers().into_iter().map(|answer| FromFiles::Reply(number, Outcome::Done(answer))));
        frames
    }

    #[test]
    fn every_frame_comes_back_as_it_was_and_only_on_its_own_side() {
        for frame in to_files() {
            let bytes = frame.encode().unwrap();
            assert_eq!(ToFiles::decode(&bytes).unwrap(), frame);
            assert!(matches!(FromFiles::decode(&bytes), Err(ProtocolError::Kind(_))));
        }
        for frame in from_files() {
            let bytes = frame.encode().unwrap();
            assert_eq!(FromFiles::decode(&bytes).unwrap(), frame);
            assert!(matches!(ToFiles::decode(&bytes), Err(ProtocolError::Kind(_))));
        }
    }

    #[test]
    fn what_is_no_frame_is_told_by_name() {
        let good = ToFiles::Cancel(RequestNumber(1)).encode().unwrap();
        let with = |place: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[place] = byte;
            ToFiles::decode(&bytes)
        };
        assert!(matches!(ToFiles::decode(&[]), Err(ProtocolError::NoFrame)));
        assert!(matches!(ToFiles::decode(&good[..11]), Err(ProtocolError::NoFrame)));
        assert!(matches!(with(0, 0), Err(ProtocolError::NoFrame)));
        assert!(matches!(with(2, 2), Err(ProtocolError::Version(2))));
        assert!(matches!(with(3, 7), Err(ProtocolError::Kind(7))));
        assert!(matches!(ToFiles::decode(&[good.as_slice(), b"x"].concat()), Err(ProtocolError::Surplus)));
        assert!(matches!(ToFiles::decode(&vec![0; MOST_BYTES + 1]), Err(ProtocolError::TooLong(_))));
        let mut numbered = ToFiles::Open(Open { spaces: Vec::new() }).encode().unwrap();
        numbered[4] = 1;
        assert!(matches!(ToFiles::decode(&numbered), Err(ProtocolError::Surplus)));
    }

    #[test]
    fn unknown_verbs_fields_and_evil_paths_are_not_understood() {
        let frame = |body: &str| {
            let head = ToFiles::Request(RequestNumber(1), Verb::Stat(Stat { space: SpaceNumber(1), path: path("") }));
            ToFiles::decode(&[&head.encode().unwrap()[..HEAD], body.as_bytes()].concat())
        };
        assert!(frame(r#"{"stat":{"space":1,"path":{"t":"a"}}}"#).is_ok());
        for bad in [
            r#"{"stat":{"space":1,"path":{"t":"a/../b"}}}"#,
            r#"{"stat":{"space":1,"path":{"t":"/a"}}}"#,
            r#"{"stat":{"space":-1,"path":{"t":"a"}}}"#,
            r#"{"stat":{"space":1,"path":{"t":"a"},"follow":true}}"#,
            r#"{"stat":{"space":1}}"#,
            r#"{"run":{"command":"x"}}"#,
            r#"{"stat":{"space":1,"path":{"t":"a"}}} {}"#,
            "",
        ] {
            assert!(matches!(frame(bad), Err(ProtocolError::NotUnderstood(_))), "{bad}");
        }
        assert!(frame(&"[".repeat(100_000)).is_err(), "depth is bounded");
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_made() {
        let root = HostileText(vec![b'a'; MOST_BYTES]);
        let space = OpenSpace { number: SpaceNumber(1), root, writable: false, reserved: Vec::new(), made: None };
        assert!(matches!(ToFiles::Open(Open { spaces: vec![space] }).encode(), Err(ProtocolError::TooLong(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn decode_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ToFiles::decode(&bytes);
            let _ = FromFiles::decode(&bytes);
        }

        #[test]
        fn decode_never_panics_on_what_is_nearly_a_frame(
            which in any::<prop::sample::Index>(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
        ) {
            let good: Vec<_> = to_files().iter().map(ToFiles::encode).chain(from_files().iter().map(FromFiles::encode)).collect();
            let mut bytes = which.get(&good).as_ref().unwrap().clone();
            for (place, byte) in flips {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            // What is understood can be said again.
            if let Ok(frame) = ToFiles::decode(&bytes) {
                prop_assert_eq!(ToFiles::decode(&frame.encode().unwrap()).unwrap(), frame);
            }
            if let Ok(frame) = FromFiles::decode(&bytes) {
                prop_assert_eq!(FromFiles::decode(&frame.encode().unwrap()).unwrap(), frame);
            }
        }
    }
}
