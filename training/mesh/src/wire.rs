//! The bodies of the mesh's own messages: numbers in little endian, byte strings with their length before them. Reading
//! is total: what does not fit is `None`, and nothing is allocated for a length before that many bytes are there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::error::Error;

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(self, value: &[u8]) -> Self {
        let mut writer = self.u32(value.len() as u32);
        writer.0.extend_from_slice(value);
        writer
    }

    pub(crate) fn ranks(self, ranks: &[u32]) -> Self {
        ranks.iter().fold(self.u32(ranks.len() as u32), |writer, rank| writer.u32(*rank))
    }

    pub(crate) fn addresses(self, addresses: &[SocketAddr]) -> Self {
        addresses.iter().fold(self.u32(addresses.len() as u32), |writer, address| {
            let ip = match address.ip() {
                IpAddr::V4(ip) => writer.bytes(&ip.octets()),
                IpAddr::V6(ip) => writer.bytes(&ip.octets()),
            };
            ip.u32(u32::from(address.port()))
        })
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(length)?;
        self.0 = later;
        Some(now)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    pub(crate) fn ranks(&mut self) -> Option<Vec<u32>> {
        let length = self.u32()?;
        (0..length).map(|_| self.u32()).collect()
    }

    pub(crate) fn addresses(&mut self) -> Option<Vec<SocketAddr>> {
        let length = self.u32()?;
        let one = |_| {
            let ip = self.bytes()?;
            let port = u16::try_from(self.u32()?).ok()?;
            let ip = match ip.len() {
                4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(ip).ok()?)),
                16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?)),
                _ => return None,
            };
            Some(SocketAddr::new(ip, port))
        };
        (0..length).map(one).collect()
    }

    /// True if all was read.
    pub(crate) fn at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where a rank can be reached, and on which node it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Ranks with the same are on one node, if they can also reach each other's sockets.
    pub(crate) node: [u8; 16],
    /// Ranks with the same share a network stack.
    pub(crate) host: [u8; 16],
    /// The directory with the rank's socket; empty if it has none.
    pub(crate) directory: Vec<u8>,
    /// The socket's name in it.
    pub(crate) name: String,
    /// Where the rank listens on the network.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Entry {
    pub(crate) fn write(&self, writer: Writer) -> Writer {
        let writer = writer.bytes(&self.node).bytes(&self.host).bytes(&self.directory);
        writer.bytes(self.name.as_bytes()).addresses(&self.addresses)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            node: reader.bytes()?.try_into().ok()?,
            host: reader.bytes()?.try_into().ok()?,
            directory: reader.bytes()?.to_vec(),
            name: reader.text()?,
            addresses: reader.addresses()?,
        })
    }
}

/// The whole table, in the order of ranks.
pub(crate) fn write_table(table: &[Entry]) -> Vec<u8> {
    table.iter().fold(Writer::default(), |writer, entry| entry.write(writer)).done()
}

pub(crate) fn read_table(bytes: &[u8], size: u32) -> Option<Vec<Entry>> {
    let mut reader = Reader::new(bytes);
    let table = (0..size).map(|_| Entry::read(&mut reader)).collect::<Option<Vec<_>>>()?;
    reader.at_end().then_some(table)
}

/// Rank 0's verdict on a world that did not come about, for the other ranks.
pub(crate) fn write_error(error: &Error, of: u32) -> Vec<u8> {
    let writer = Writer::default();
    match error {
        Error::Timeout { waited, missing, strangers } => {
            writer.u32(1).u64(waited.as_millis() as u64).ranks(missing).u32(*strangers)
        }
        Error::Died { rank } => writer.u32(2).u32(*rank),
        Error::Duplicate { rank } => writer.u32(3).u32(*rank),
        Error::WorldSize { rank, theirs, ours } => writer.u32(4).u32(*rank).u32(*theirs).u32(*ours),
        Error::Unreachable { from, to } => writer.u32(5).u32(*from).u32(*to),
        Error::Corrupt { rank } => writer.u32(6).u32(*rank),
        Error::Failed { rank, reason } => writer.u32(7).u32(*rank).bytes(short(reason).as_bytes()),
        other => writer.u32(7).u32(of).bytes(short(&other.whole()).as_bytes()),
    }
    .done()
}

pub(crate) fn read_error(bytes: &[u8]) -> Option<Error> {
    let mut reader = Reader::new(bytes);
    Some(match reader.u32()? {
        1 => Error::Timeout {
            waited: Duration::from_millis(reader.u64()?),
            missing: reader.ranks()?,
            strangers: reader.u32()?,
        },
        2 => Error::Died { rank: reader.u32()? },
        3 => Error::Duplicate { rank: reader.u32()? },
        4 => Error::WorldSize { rank: reader.u32()?, theirs: reader.u32()?, ours: reader.u32()? },
        5 => Error::Unreachable { from: reader.u32()?, to: reader.u32()? },
        6 => Error::Corrupt { rank: reader.u32()? },
        7 => Error::Failed { rank: reader.u32()?, reason: reader.text()? },
        _ => return None,
    })
}

/// As much of a text as fits into a message about failure.
pub(crate) fn short(text: &str) -> &str {
    const MOST: usize = 16 << 10;
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let address = (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
        let bytes = proptest::collection::vec(any::<u8>(), 0..60);
        (any::<[u8; 16]>(), any::<[u8; 16]>(), bytes, "[a-z0-9]{0,20}", proptest::collection::vec(address, 0..6))
            .prop_map(|(node, host, directory, name, addresses)| Entry { node, host, directory, name, addresses })
    }

    proptest! {
        #[test]
        fn a_table_is_read_as_it_was_written(table in proptest::collection::vec(entry(), 0..5)) {
            let bytes = write_table(&table);
            prop_assert_eq!(read_table(&bytes, table.len() as u32), Some(table.clone()));
            prop_assert_eq!(read_table(&bytes, table.len() as u32 + 1), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), size: u32) {
            let _ = read_table(&bytes, size);
            let _ = read_error(&bytes);
            let _ = Reader::new(&bytes).ranks();
            let _ = Reader::new(&bytes).addresses();
        }

        #[test]
        fn a_cut_or_changed_table_is_read_without_panic(table in proptest::collection::vec(entry(), 1..4), at: prop::sample::Index, flip: u8) {
            let mut bytes = write_table(&table);
            let at = at.index(bytes.len());
            prop_assert_eq!(read_table(&bytes[..at], table.len() as u32), None);
            bytes[at] ^= flip;
            let _ = read_table(&bytes, table.len() as u32);
        }

        #[test]
        fn failures_keep_their_meaning(rank: u32, other: u32, missing in proptest::collection::vec(any::<u32>(), 0..9), reason: String) {
            for error in [
                Error::Timeout { waited: Duration::from_millis(u64::from(other)), missing, strangers: rank },
                Error::Died { rank },
                Error::Duplicate { rank },
                Error::WorldSize { rank, theirs: other, ours: rank },
                Error::Unreachable { from: rank, to: other },
                Error::Corrupt { rank },
                Error::Failed { rank, reason },
            ] {
                let read = read_error(&write_error(&error, 0)).unwrap();
                prop_assert_eq!(format!("{read:?}"), format!("{error:?}"));
            }
        }
    }
}
