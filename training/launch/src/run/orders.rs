//! What a node is told, and how that is written: one message, its length first, fields in a fixed order.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use eirene_train_mesh::Secret;

use crate::run::keeper::MOST_GROUPS;
use crate::run::options::Bind;

/// Longest message that is read; a launcher's environment is far smaller.
pub(crate) const LONGEST: usize = 16 * 1024 * 1024;

/// Everything a node needs to start its ranks.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) world: String,
    pub(crate) size: u32,
    /// The first of this node's ranks.
    pub(crate) first: u32,
    /// How many ranks this node has.
    pub(crate) count: u32,
    /// This node's number in `hosts`.
    pub(crate) node: u32,
    pub(crate) hosts: Vec<String>,
    pub(crate) secret: Secret,
    pub(crate) meeting: Rendezvous,
    /// For programs that meet in torch's own way.
    pub(crate) master: (String, u16),
    pub(crate) program: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) bind: Bind,
    /// Whether progress bars are shown as lines.
    pub(crate) bars: bool,
    /// Whether rank 0 is told what comes on the launcher's standard input.
    pub(crate) stdin: bool,
}

/// Where the ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rendezvous {
    /// In the run's directory on this only node.
    Here,
    /// At rank 0's host.
    Address { host: String, port: u16 },
}

impl Orders {
    /// This node's name.
    pub(crate) fn host(&self) -> &str {
        self.hosts.get(self.node as usize).map_or("this host", String::as_str)
    }

    /// As bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.text(&self.world);
        for number in [self.size, self.first, self.count, self.node] {
            writer.number(number);
        }
        writer.list(self.hosts.iter().map(String::as_bytes));
        writer.bytes(self.secret.expose());
        match &self.meeting {
            Rendezvous::Here => writer.number(0),
            Rendezvous::Address { host, port } => {
                writer.number(u32::from(*port));
                writer.text(host);
            }
        }
        writer.text(&self.master.0);
        writer.number(u32::from(self.master.1));
        writer.list(self.program.iter().map(|word| word.as_bytes()));
        writer.list(self.environment.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        writer.bytes(self.directory.as_ref().map_or(&[][..], |path| path.as_os_str().as_bytes()));
        writer.number(match self.bind {
            Bind::None => 0,
            Bind::Core => 1,
        });
        writer.number(u32::from(self.bars));
        writer.number(u32::from(self.stdin));
        writer.out
    }

    /// From bytes; nothing for anything that [`Self::encode`] does not write.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        let world = reader.text()?;
        let (size, first, count, node) = (reader.number()?, reader.number()?, reader.number()?, reader.number()?);
        let hosts = reader.list()?.into_iter().map(|host| String::from_utf8(host).ok()).collect::<Option<Vec<_>>>()?;
        let secret = Secret::from_bytes(reader.bytes()?.try_into().ok()?);
        let meeting = match u16::try_from(reader.number()?).ok()? {
            0 => Rendezvous::Here,
            port => Rendezvous::Address { port, host: reader.text()? },
        };
        let master = (reader.text()?, u16::try_from(reader.number()?).ok()?);
        let program: Vec<OsString> = reader.list()?.into_iter().map(OsString::from_vec).collect();
        let words = reader.list()?;
        let (pairs, []) = words.as_chunks::<2>() else { return None };
        let environment = pairs
            .iter()
            .map(|[name, value]| (OsString::from_vec(name.clone()), OsString::from_vec(value.clone())))
            .collect();
        let directory = reader.bytes()?;
        let directory = (!directory.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(directory)));
        let bind = match reader.number()? {
            0 => Bind::None,
            1 => Bind::Core,
            _ => return None,
        };
        let (bars, stdin) = (reader.flag()?, reader.flag()?);
        let fits = first.checked_add(count).is_some_and(|end| end <= size) && (node as usize) < hosts.len();
        let sound = fits && count as usize <= MOST_GROUPS && !program.is_empty() && reader.rest.is_empty();
        sound.then_some(Self {
            world,
            size,
            first,
            count,
            node,
            hosts,
            secret,
            meeting,
            master,
            program,
            environment,
            directory,
            bind,
            bars,
            stdin,
        })
    }
}

#[derive(Default)]
struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn number(&mut self, number: u32) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u32);
        self.out.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn list<'a>(&mut self, items: impl Iterator<Item = &'a [u8]>) {
        let items: Vec<&[u8]> = items.collect();
        self.number(items.len() as u32);
        for item in items {
            self.bytes(item);
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.number()? as usize;
        // Each item has at least its length: a count beyond that is a lie that must not reserve memory.
        if count > self.rest.len() / 4 {
            return None;
        }
        (0..count).map(|_| self.bytes().map(<[u8]>::to_vec)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders() -> Orders {
        Orders {
            world: "run-1".to_owned(),
            size: 6,
            first: 2,
            count: 4,
            node: 1,
            hosts: vec!["a".to_owned(), "b".to_owned()],
            secret: Secret::from_bytes([7; 16]),
            meeting: Rendezvous::Address { host: "a".to_owned(), port: 4711 },
            master: ("a".to_owned(), 4712),
            program: vec![OsString::from("python3"), OsString::from_vec(vec![0xff, b'\n'])],
            environment: vec![(OsString::from("A"), OsString::from("b c"))],
            directory: Some(PathBuf::from("/home/ada")),
            bind: Bind::Core,
            bars: true,
            stdin: true,
        }
    }

    #[test]
    fn orders_are_read_as_they_were_written() {
        for orders in [orders(), Orders { meeting: Rendezvous::Here, directory: None, ..orders() }] {
            let read = Orders::decode(&orders.encode()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{orders:?}"));
            assert_eq!(read.secret.expose(), orders.secret.expose());
        }
    }

    #[test]
    fn orders_for_ranks_that_the_world_does_not_have_are_refused() {
        for wrong in [
            Orders { first: 3, ..orders() },
            Orders { first: u32::MAX, ..orders() },
            Orders { node: 2, ..orders() },
            Orders { program: Vec::new(), ..orders() },
            Orders { size: 1 << 20, first: 0, count: 1 << 19, ..orders() },
        ] {
            assert!(Orders::decode(&wrong.encode()).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn orders_cut_short_or_with_more_behind_are_refused() {
        let whole = orders().encode();
        for end in 0..whole.len() {
            assert!(Orders::decode(&whole[..end]).is_none(), "cut at {end}");
        }
        assert!(Orders::decode(&[whole, vec![0]].concat()).is_none());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Orders::decode(&bytes);
        }

        #[test]
        fn one_wrong_byte_never_panics(at in 0_usize..200, byte in any::<u8>()) {
            let mut bytes = orders().encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Orders::decode(&bytes);
        }
    }
}
