//! Writes a zip archive as a stream: stored, never compressed, every size with 64 bits (APPNOTE 6.3.10).
//!
//! The bytes of a file are the caller's to write, exactly as many as its head says. Their checksum is known behind them only, so it comes
//! there; the list at the end has everything once more, and is what most readers go by. That list is held until then, and bounded.

/// Most bytes of the list at the end.
const MOST_LIST: usize = 64 * 1024 * 1024;
/// What a reader has to know: 64 bits.
const NEEDED: u16 = 45;
/// Made on a Unix, so that permissions are read as such.
const MADE_BY: u16 = 3 << 8 | NEEDED;
/// The checksum comes behind the bytes.
const CHECKSUM_BEHIND: u16 = 1 << 3;
/// The name is UTF-8.
const IS_UTF_8: u16 = 1 << 11;
/// A size that is in the record of 64 bits instead.
const ELSEWHERE: u32 = u32::MAX;

/// What is said of an entry.
#[derive(Debug, Clone)]
pub(super) struct Head {
    /// Path in the archive, a directory's with a slash at its end.
    pub(super) path: Vec<u8>,
    /// Bytes that follow.
    pub(super) bytes: u64,
    /// Kind and permissions, as a file system has them.
    pub(super) mode: u16,
    /// Last change of content in seconds since 1970.
    pub(super) modified: i64,
}

/// The archive so far.
#[derive(Debug, Default)]
pub(super) struct Zip {
    list: Vec<u8>,
    entries: u64,
}

/// Numbers as zip has them.
trait Little {
    fn u16(&mut self, number: u16);
    fn u32(&mut self, number: u32);
    fn u64(&mut self, number: u64);
}

impl Little for Vec<u8> {
    fn u16(&mut self, number: u16) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.extend_from_slice(&number.to_le_bytes());
    }
}

impl Head {
    fn is_directory(&self) -> bool {
        self.path.ends_with(b"/")
    }

    /// The name as it is written: what is a separator or steers a terminal elsewhere is none here.
    fn name(&self) -> Vec<u8> {
        let harmless = |byte: &u8| if *byte == b'\\' || byte.is_ascii_control() { b'_' } else { *byte };
        self.path.iter().map(harmless).collect()
    }

    fn flags(&self) -> u16 {
        let utf_8 = if std::str::from_utf8(&self.path).is_ok() { IS_UTF_8 } else { 0 };
        utf_8 | if self.is_directory() { 0 } else { CHECKSUM_BEHIND }
    }

    /// What both records of an entry begin with, from the flags to the sizes.
    fn common(&self, record: &mut Vec<u8>, checksum: u32) {
        record.u16(self.flags());
        record.u16(0);
        let (date, time) = dos_time(self.modified);
        record.u16(time);
        record.u16(date);
        record.u32(checksum);
        record.u32(ELSEWHERE);
        record.u32(ELSEWHERE);
        record.u16(self.path.len() as u16);
    }
}

impl Zip {
    /// What comes before an entry's bytes.
    pub(super) fn begin(head: &Head) -> Vec<u8> {
        let mut record = Vec::with_capacity(64 + head.path.len());
        record.u32(0x0403_4b50);
        record.u16(NEEDED);
        head.common(&mut record, 0);
        record.u16(20);
        record.extend_from_slice(&head.name());
        record.u16(1);
        record.u16(16);
        record.u64(head.bytes);
        record.u64(head.bytes);
        record
    }

    /// Whether the list has room for another entry.
    pub(super) fn has_room(&self, path: usize) -> bool {
        self.list.len() + path + 256 <= MOST_LIST
    }

    /// What comes behind an entry's bytes, which began at `at`.
    pub(super) fn end_of(&mut self, head: &Head, at: u64, checksum: u32) -> Vec<u8> {
        let record = &mut self.list;
        record.u32(0x0201_4b50);
        record.u16(MADE_BY);
        record.u16(NEEDED);
        head.common(record, checksum);
        record.u16(28);
        // No comment, the first disk, nothing internal.
        record.extend_from_slice(&[0; 6]);
        record.u32(u32::from(head.mode & !0o7000) << 16 | if head.is_directory() { 0x10 } else { 0 });
        record.u32(ELSEWHERE);
        record.extend_from_slice(&head.name());
        record.u16(1);
        record.u16(24);
        record.u64(head.bytes);
        record.u64(head.bytes);
        record.u64(at);
        self.entries += 1;
        let mut behind = Vec::new();
        if !head.is_directory() {
            behind.u32(0x0807_4b50);
            behind.u32(checksum);
            behind.u64(head.bytes);
            behind.u64(head.bytes);
        }
        behind
    }

    /// The list and the end of the archive, at `at`.
    pub(super) fn end(self, at: u64) -> Vec<u8> {
        let (mut end, entries) = (self.list, self.entries);
        let bytes = end.len() as u64;
        end.u32(0x0606_4b50);
        end.u64(44);
        end.u16(MADE_BY);
        end.u16(NEEDED);
        end.u64(0);
        end.u64(entries);
        end.u64(entries);
        end.u64(bytes);
        end.u64(at);
        end.u32(0x0706_4b50);
        end.u32(0);
        end.u64(at + bytes);
        end.u32(1);
        end.u32(0x0605_4b50);
        end.u32(0);
        end.u16(u16::MAX);
        end.u16(u16::MAX);
        end.u32(ELSEWHERE);
        end.u32(ELSEWHERE);
        end.u16(0);
        end
    }
}

/// A time as zip has it, in UTC: two seconds are the least it knows, and 1980 the first year.
fn dos_time(seconds: i64) -> (u16, u16) {
    const FIRST: i64 = 315_532_800;
    const LAST: i64 = 4_354_819_199;
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0, in eras of 400 years (Howard Hinnant's way of counting).
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let date = (year - 1980) << 9 | month << 5 | day;
    let time = ((of_day / 3_600) << 11) | ((of_day / 60 % 60) << 5) | (of_day % 60 / 2);
    (date as u16, time as u16)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn what_lies_beyond_four_gibibytes_is_found_by_others() {
        const LARGE: u64 = 5 << 30;
        // The bytes of the large one are a hole.
        let file = tempfile::tempfile().unwrap();
        let (mut zip, mut at) = (Zip::default(), 0);
        let put = |record: &[u8], at: &mut u64| {
            file.write_all_at(record, *at).unwrap();
            *at += record.len() as u64;
        };
        for (path, bytes, text) in [("large", LARGE, ""), ("behind", 4, "text")] {
            let head = Head { path: path.into(), bytes, mode: 0o100_644, modified: 0 };
            let begin = at;
            put(&Zip::begin(&head), &mut at);
            put(text.as_bytes(), &mut at);
            at += bytes - text.len() as u64;
            put(&zip.end_of(&head, begin, crc32fast::hash(text.as_bytes())), &mut at);
        }
        put(&zip.end(at), &mut at);
        let mut archive = ::zip::ZipArchive::new(&file).unwrap();
        assert_eq!(archive.len(), 2);
        let large = archive.by_name("large").unwrap();
        assert_eq!((large.size(), large.compressed_size(), large.header_start()), (LARGE, LARGE, 0));
        drop(large);
        let mut behind = archive.by_name("behind").unwrap();
        assert!(behind.header_start() > LARGE);
        let mut text = String::new();
        behind.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }

    #[test]
    fn a_time_is_the_date_it_stands_for() {
        let text = |seconds| {
            let (date, time) = dos_time(seconds);
            let (year, month, day) = ((date >> 9) + 1980, date >> 5 & 15, date & 31);
            format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02}", time >> 11, time >> 5 & 63, (time & 31) * 2)
        };
        for (seconds, expected) in [
            (0, "1980-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_709_210_096, "2024-02-29 12:34:56"),
            (1_767_225_599, "2025-12-31 23:59:58"),
            (i64::MAX, "2107-12-31 23:59:58"),
            (i64::MIN, "1980-01-01 00:00:00"),
        ] {
            assert_eq!(text(seconds), expected);
        }
    }
}
