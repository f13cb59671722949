//! Archives as somebody makes them who means no good: any name, any kind, and members that say two things of themselves.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use tar::{Builder, EntryType, Header};

/// What a member is in these tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Directory,
    Link(Vec<u8>),
    HardLink(Vec<u8>),
    Device,
    Pipe,
    Setuid,
}

/// A member by name and kind.
pub(crate) type Member = (Vec<u8>, Kind);

pub(crate) fn member(name: impl AsRef<[u8]>, kind: Kind) -> Member {
    (name.as_ref().to_vec(), kind)
}

pub(crate) fn file(name: impl AsRef<[u8]>, content: &str) -> Member {
    member(name, Kind::File(content.into()))
}

pub(crate) fn link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Member {
    member(name, Kind::Link(target.as_ref().to_vec()))
}

/// A tar of these; names that have no room in a head come in a record of their own.
pub(crate) fn tar(members: &[Member]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (name, kind) in members {
        let (kind, mode, content, target): (_, _, &[u8], &[u8]) = match kind {
            Kind::File(content) => (EntryType::Regular, 0o644, content, b""),
            Kind::Directory => (EntryType::Directory, 0o755, b"", b""),
            Kind::Link(target) => (EntryType::Symlink, 0o777, b"", target),
            Kind::HardLink(target) => (EntryType::Link, 0o644, b"", target),
            Kind::Device => (EntryType::Char, 0o666, b"", b""),
            Kind::Pipe => (EntryType::Fifo, 0o644, b"", b""),
            Kind::Setuid => (EntryType::Regular, 0o4755, b"#!/bin/sh", b""),
        };
        for (long, kind) in [(name.as_slice(), b'L'), (target, b'K')] {
            if long.len() > 100 {
                let head = head(b"././@LongLink", EntryType::new(kind), 0o644, long.len() as u64 + 1, b"");
                archive.append(&head, [long, b"\0"].concat().as_slice()).unwrap();
            }
        }
        archive.append(&head(name, kind, mode, content.len() as u64, target), content).unwrap();
    }
    archive.into_inner().unwrap()
}

/// A head whose name nobody looks at.
pub(crate) fn head(name: &[u8], kind: EntryType, mode: u32, bytes: u64, target: &[u8]) -> Header {
    let mut head = Header::new_gnu();
    head.set_entry_type(kind);
    head.set_mode(mode);
    head.set_size(bytes);
    head.set_mtime(1_000_000_000);
    let length = name.len().min(100);
    head.as_old_mut().name[..length].copy_from_slice(&name[..length]);
    let length = target.len().min(100);
    head.as_old_mut().linkname[..length].copy_from_slice(&target[..length]);
    head.set_cksum();
    head
}

/// A tar of one member that says it is a hole of so many bytes.
pub(crate) fn hole(name: &[u8], bytes: u64) -> Vec<u8> {
    let mut head = head(name, EntryType::GNUSparse, 0o644, 0, b"");
    let gnu = head.as_gnu_mut().unwrap();
    gnu.set_real_size(bytes);
    gnu.sparse[0].set_offset(bytes);
    gnu.sparse[0].set_length(0);
    head.set_cksum();
    [head.as_bytes().as_slice(), &[0; 1024]].concat()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// How a zip lies.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lies {
    /// What each member is called where its bytes are; none: as in the list.
    pub(crate) local: Option<&'static [u8]>,
    /// The list says of each member that its bytes are the first one's.
    pub(crate) overlap: bool,
    /// Added to each checksum.
    pub(crate) checksum: u32,
    /// Whether members are said to be encrypted.
    pub(crate) encrypted: bool,
    /// Added to how many members there are.
    pub(crate) more: u16,
}

/// A zip of these.
pub(crate) fn zip(members: &[Member]) -> Vec<u8> {
    lying_zip(members, Lies::default())
}

/// A zip of these that lies.
pub(crate) fn lying_zip(members: &[Member], lies: Lies) -> Vec<u8> {
    let (mut bytes, mut list) = (Vec::new(), Vec::new());
    for (name, kind) in members {
        let (mode, content): (u32, &[u8]) = match kind {
            Kind::File(content) => (0o100_644, content),
            Kind::Directory => (0o040_755, b""),
            Kind::Link(target) => (0o120_777, target),
            // There are none in a zip: it is a file.
            Kind::HardLink(target) => (0o100_644, target),
            Kind::Device => (0o020_666, b""),
            Kind::Pipe => (0o010_644, b""),
            Kind::Setuid => (0o104_755, b"#!/bin/sh"),
        };
        let compressed = deflate(content);
        let at = if lies.overlap { 0 } else { bytes.len() as u32 };
        let mut common = Vec::new();
        for number in [u16::from(lies.encrypted), 8, 0, 0x21] {
            common.extend_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(content).wrapping_add(lies.checksum);
        for number in [sum, compressed.len() as u32, content.len() as u32] {
            common.extend_from_slice(&number.to_le_bytes());
        }
        let local = lies.local.unwrap_or(name.as_slice());
        bytes.extend_from_slice(b"PK\x03\x04\x14\0");
        bytes.extend_from_slice(&common);
        bytes.extend_from_slice(&[(local.len() as u16).to_le_bytes(), [0, 0]].concat());
        bytes.extend_from_slice(&[local, &compressed].concat());
        list.extend_from_slice(b"PK\x01\x02\x14\x03\x14\0");
        list.extend_from_slice(&common);
        list.extend_from_slice(&(name.len() as u16).to_le_bytes());
        list.extend_from_slice(&[0; 8]);
        list.extend_from_slice(&(mode << 16).to_le_bytes());
        list.extend_from_slice(&at.to_le_bytes());
        list.extend_from_slice(name);
    }
    let begin = bytes.len() as u32;
    let many = (members.len() as u16 + lies.more).to_le_bytes();
    let end =
        [b"PK\x05\x06\0\0\0\0".as_slice(), &many, &many, &(list.len() as u32).to_le_bytes(), &begin.to_le_bytes()];
    [bytes, list, end.concat(), vec![0, 0]].concat()
}
