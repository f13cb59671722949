//! Members of a zip, by the list at its end (APPNOTE 6.3.10), and each only where it says the same of itself as that list does.
//!
//! Readers differ in which of the two they believe, and archives are made to mislead one of them: a member whose names differ, or whose bytes
//! are another's too, is refused. Encrypted members and other compressions than deflate are not supported.

use std::collections::HashSet;
use std::io::Read;

use crc32fast::Hasher;
use eirene_files_protocol::Code;

use super::gunzip::inflate;
use super::source::Source;
use super::{Extraction, Head, MOST_MEMBERS, Member};

/// Bytes of the record at the very end, and most of the comment behind it.
const END: u64 = 22;
const MOST_COMMENT: u64 = 0xFFFF;
/// Bytes of what is said of a member in the list, and before its bytes, without names.
const LISTED: usize = 46;
const LOCAL: usize = 30;
/// Most bytes of a link's text.
const MOST_LINK: u64 = 4095;
/// A number that is in the record of 64 bits instead.
const ELSEWHERE: u64 = 0xFFFF_FFFF;
/// The bits of a mode that say what something is.
const KIND: u32 = 0o170_000;
/// Most members whose bytes are others' too: beyond, nothing in it is what it says.
const MOST_SHARED: usize = 10_000;

/// A little-endian number at a place in a record that is long enough.
fn u16_at(record: &[u8], at: usize) -> u64 {
    u64::from(record.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]])))
}

fn u32_at(record: &[u8], at: usize) -> u64 {
    u16_at(record, at) | u16_at(record, at + 2) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u32_at(record, at) | u32_at(record, at + 4) << 32
}

/// Where the list is.
struct List {
    begin: u64,
    end: u64,
    members: u64,
}

/// A member, as the list has it.
struct Listed {
    name: Vec<u8>,
    flags: u64,
    method: u64,
    checksum: u32,
    compressed: u64,
    bytes: u64,
    /// Where what it says of itself begins.
    at: u64,
    mode: Option<u32>,
    modified: i64,
}

/// Takes each member.
///
/// # Errors
/// [`Code::NotAnArchive`] where it is none, is damaged or was cut off; what ends an extraction.
pub(super) fn read(extraction: &mut Extraction<'_>, source: &Source) -> Result<(), Code> {
    let list = find_list(source)?;
    if list.members > MOST_MEMBERS {
        return Err(Code::ArchiveTooLarge);
    }
    let shared = shared(source, &list)?;
    each(source, &list, |member| {
        let head = Head { name: &member.name, mode: member.mode, modified: Some(member.modified) };
        match begin(source, &list, member) {
            Ok(_) if shared.contains(&member.at) => extraction.refuse(&member.name, Code::Unsafe),
            Ok(at) => {
                let taken = take(extraction, source, &head, member, at);
                taken.map_err(|why| if why == Code::NotAnArchive { source.why() } else { why })?;
            }
            Err(why @ (Code::Unsafe | Code::NotSupported)) => extraction.refuse(&member.name, why),
            Err(why) => return Err(why),
        }
        Ok(())
    })
}

fn take(
    extraction: &mut Extraction<'_>,
    source: &Source,
    head: &Head<'_>,
    member: &Listed,
    at: u64,
) -> Result<(), Code> {
    let compressed = source.stream(at, at.checked_add(member.compressed).ok_or(Code::NotAnArchive)?);
    let decoded: Box<dyn Read> = if member.method == 0 { Box::new(compressed) } else { Box::new(inflate(compressed)) };
    let mut content = Checked { decoded, sum: Hasher::new(), expected: member.checksum };
    match member.mode.map(|mode| mode & KIND) {
        _ if member.name.ends_with(b"/") => extraction.take(head, Member::Directory),
        Some(0o040_000) => extraction.take(head, Member::Directory),
        Some(0o120_000) => {
            if member.bytes > MOST_LINK {
                extraction.refuse(&member.name, Code::LeadsOut);
                return Ok(());
            }
            let mut target = Vec::new();
            content.take(MOST_LINK + 1).read_to_end(&mut target).map_err(|_| Code::NotAnArchive)?;
            extraction.take(head, Member::Link(target))
        }
        None | Some(0 | 0o100_000) => {
            extraction.take(head, Member::File { bytes: member.bytes, content: &mut content })
        }
        Some(_) => extraction.take(head, Member::Special),
    }
}

/// Bytes whose checksum is compared at their end.
struct Checked {
    decoded: Box<dyn Read>,
    sum: Hasher,
    expected: u32,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.decoded.read(buffer)?;
        self.sum.update(&buffer[..read]);
        if read == 0 && !buffer.is_empty() && self.sum.clone().finalize() != self.expected {
            return Err(std::io::Error::other("the checksum is another"));
        }
        Ok(read)
    }
}

/// Finds the list by the record at the very end: the list ends where that begins, so that no other can be found.
fn find_list(source: &Source) -> Result<List, Code> {
    let begin = source.bytes().saturating_sub(END + MOST_COMMENT);
    let mut tail = vec![0; usize::try_from(source.bytes() - begin).map_err(|_| Code::NotAnArchive)?];
    source.read_all_at(&mut tail, begin)?;
    let is_end = |at: &usize| {
        let record = &tail[*at..];
        record.starts_with(b"PK\x05\x06") && u16_at(record, 20) + END == record.len() as u64
    };
    let at = (0..(tail.len() + 1).saturating_sub(END as usize)).rev().find(is_end).ok_or(Code::NotAnArchive)?;
    let (record, at) = (&tail[at..], begin + at as u64);
    let small =
        List { begin: u32_at(record, 16), end: u32_at(record, 16) + u32_at(record, 12), members: u16_at(record, 10) };
    let is_whole = u32_at(record, 4) == 0 && u16_at(record, 8) == small.members;
    let is_large = small.members == 0xFFFF || u32_at(record, 12) == ELSEWHERE || small.begin == ELSEWHERE;
    let (list, end) = if is_large && let Some(large) = find_large(source, at)? { large } else { (small, at) };
    if (is_whole || is_large) && list.begin <= list.end && list.end == end { Ok(list) } else { Err(Code::NotAnArchive) }
}

/// The list by the records with 64 bits in front of the last one, where there are any; and where the first of those is.
fn find_large(source: &Source, end: u64) -> Result<Option<(List, u64)>, Code> {
    let (mut locator, mut record) = ([0; 20], [0; 56]);
    let Some(before) = end.checked_sub(20) else { return Ok(None) };
    source.read_all_at(&mut locator, before)?;
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    let at = u64_at(&locator, 8);
    if at >= before {
        return Err(Code::NotAnArchive);
    }
    source.read_all_at(&mut record, at)?;
    let length = u64_at(&record, 4).checked_add(12).and_then(|length| length.checked_add(at));
    let is_one = u32_at(&record, 16) == 0 && u32_at(&record, 20) == 0 && u64_at(&record, 24) == u64_at(&record, 32);
    if !record.starts_with(b"PK\x06\x06") || length != Some(before) || !is_one {
        return Err(Code::NotAnArchive);
    }
    let begin = u64_at(&record, 48);
    let end = begin.checked_add(u64_at(&record, 40)).ok_or(Code::NotAnArchive)?;
    Ok(Some((List { begin, end, members: u64_at(&record, 32) }, at)))
}

/// Goes through the list.
fn each(source: &Source, list: &List, mut take: impl FnMut(&Listed) -> Result<(), Code>) -> Result<(), Code> {
    let mut stream = source.stream(list.begin, list.end);
    let mut read = |bytes: &mut [u8]| stream.read_exact(bytes).map_err(|_| source.why());
    for _ in 0..list.members {
        let mut record = [0; LISTED];
        read(&mut record)?;
        if !record.starts_with(b"PK\x01\x02") {
            return Err(Code::NotAnArchive);
        }
        let length = |at| u16_at(&record, at) as usize;
        let mut name = vec![0; length(28)];
        read(&mut name)?;
        let mut extra = vec![0; length(30)];
        read(&mut extra)?;
        let mut comment = vec![0; length(32)];
        read(&mut comment)?;
        take(&Listed::new(&record, name, &extra)?)?;
    }
    // Nothing is left over that another reader would find.
    if stream.read(&mut [0]).map_err(|_| source.why())? == 0 { Ok(()) } else { Err(Code::NotAnArchive) }
}

impl Listed {
    fn new(record: &[u8; LISTED], name: Vec<u8>, extra: &[u8]) -> Result<Self, Code> {
        let mut listed = Self {
            name,
            flags: u16_at(record, 8),
            method: u16_at(record, 10),
            checksum: u32_at(record, 16) as u32,
            compressed: u32_at(record, 20),
            bytes: u32_at(record, 24),
            at: u32_at(record, 42),
            // Only a Unix says what it means by it.
            mode: matches!(record[5], 3 | 19).then(|| (u32_at(record, 38) >> 16) as u32),
            modified: seconds(u16_at(record, 14), u16_at(record, 12)),
        };
        let mut rest = extra;
        while rest.len() >= 4 {
            let (kind, length) = (u16_at(rest, 0), u16_at(rest, 2) as usize);
            let field = rest.get(4..4 + length).ok_or(Code::NotAnArchive)?;
            match kind {
                // Numbers of 64 bits, those that have no room elsewhere, in this order.
                1 => {
                    let mut at = 0;
                    for number in [&mut listed.bytes, &mut listed.compressed, &mut listed.at] {
                        if *number == ELSEWHERE {
                            *number =
                                if field.len() >= at + 8 { u64_at(field, at) } else { return Err(Code::NotAnArchive) };
                            at += 8;
                        }
                    }
                }
                0x5455 if field.len() >= 5 && field[0] & 1 == 1 => {
                    listed.modified = i64::from((u32_at(field, 1) as u32).cast_signed());
                }
                _ => {}
            }
            rest = &rest[4 + length..];
        }
        if listed.method == 0 && listed.compressed != listed.bytes {
            return Err(Code::NotAnArchive);
        }
        Ok(listed)
    }
}

/// Where a member's bytes begin, if it says the same of itself as the list does.
fn begin(source: &Source, list: &List, member: &Listed) -> Result<u64, Code> {
    if member.at > list.begin || member.compressed > list.begin {
        return Err(Code::NotAnArchive);
    }
    let mut record = [0; LOCAL];
    source.read_all_at(&mut record, member.at)?;
    let (name, extra) = (u16_at(&record, 26), u16_at(&record, 28));
    let behind = |more: u64| member.at.checked_add(more).filter(|at| *at <= list.begin).ok_or(Code::NotAnArchive);
    let begin = behind(LOCAL as u64 + name + extra)?;
    behind(LOCAL as u64 + name + extra + member.compressed)?;
    let mut local = vec![0; name as usize];
    source.read_all_at(&mut local, member.at + LOCAL as u64)?;
    let is_same = local == member.name && u16_at(&record, 8) == member.method;
    if !record.starts_with(b"PK\x03\x04") || !is_same {
        return Err(Code::Unsafe);
    }
    // Encrypted, or compressed otherwise.
    if member.flags & 1 != 0 || !matches!(member.method, 0 | 8) { Err(Code::NotSupported) } else { Ok(begin) }
}

/// Where members begin whose bytes belong to another one too.
fn shared(source: &Source, list: &List) -> Result<HashSet<u64>, Code> {
    let mut spans = Vec::new();
    each(source, list, |member| {
        let begin = match begin(source, list, member) {
            Ok(begin) => begin,
            // It is refused anyway, and its bytes are nobody's.
            Err(Code::Unsafe | Code::NotSupported) => return Ok(()),
            Err(why) => return Err(why),
        };
        spans.push((member.at, begin + member.compressed));
        Ok(())
    })?;
    spans.sort_unstable();
    let mut shared = HashSet::new();
    let mut last = (0, 0);
    for span in spans {
        if span.0 < last.1 {
            shared.extend([span.0, last.0]);
            if shared.len() > MOST_SHARED {
                return Err(Code::NotAnArchive);
            }
        }
        if span.1 > last.1 {
            last = span;
        }
    }
    Ok(shared)
}

/// A time as zip has it, taken as UTC, in seconds since 1970.
fn seconds(date: u64, time: u64) -> i64 {
    let [date, time] = [date, time].map(u64::cast_signed);
    let (year, month, day) = ((date >> 9) + 1980, date >> 5 & 15, date & 31);
    // Days since the first of March of the year 0, in eras of 400 years (Howard Hinnant's way of counting).
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    days * 86_400 + (time >> 11) * 3_600 + (time >> 5 & 63) * 60 + (time & 31) * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_time_it_stands_for() {
        for (year, month, day, expected) in [
            (1980, 1, 1, 315_532_800),
            (2000, 2, 29, 951_782_400),
            (2000, 3, 1, 951_868_800),
            (2107, 12, 31, 4_354_732_800),
        ] {
            assert_eq!(seconds((year - 1980) << 9 | month << 5 | day, 0), expected);
        }
        let (date, time) = ((2024 - 1980) * 512 + 2 * 32 + 29, 12 * 2048 + 34 * 32 + 28);
        assert_eq!(seconds(date, time), 1_709_210_096);
    }
}
