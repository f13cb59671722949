//! Heads of a tar archive: POSIX `ustar`, with an extended head where a name is longer than its field or not UTF-8.
//!
//! The bytes of a file are the caller's to write, exactly as many as the head says, and [`padding`] behind them.

use eirene_files_protocol::Code;
use tar::{EntryType, Header};

/// A block, and what lengths are rounded up to.
const BLOCK: u64 = 512;

/// What a head says.
#[derive(Debug)]
pub(super) struct Head<'a> {
    /// Path in the archive.
    pub(super) path: &'a [u8],
    /// File, directory or link.
    pub(super) kind: EntryType,
    /// Text of a link.
    pub(super) link: &'a [u8],
    /// Bytes that follow.
    pub(super) bytes: u64,
    /// Permissions; what would give rights to whoever unpacks it is left out.
    pub(super) mode: u16,
    /// Owner and group by number.
    pub(super) owner: (u32, u32),
    /// Last change of content in seconds since 1970.
    pub(super) modified: i64,
}

impl Head<'_> {
    /// The blocks of the head.
    pub(super) fn blocks(&self) -> Result<Vec<u8>, Code> {
        let mut header = Header::new_ustar();
        header.set_entry_type(self.kind);
        header.set_mode(u32::from(self.mode) & 0o777);
        header.set_uid(u64::from(self.owner.0));
        header.set_gid(u64::from(self.owner.1));
        header.set_size(self.bytes);
        header.set_mtime(u64::try_from(self.modified).unwrap_or(0));
        let mut records = Vec::new();
        let fields = header.as_old_mut();
        for (field, key, text) in [(&mut fields.name, "path", self.path), (&mut fields.linkname, "linkpath", self.link)]
        {
            let fits = text.len() <= field.len();
            let short = &text[..text.len().min(field.len())];
            field[..short.len()].copy_from_slice(short);
            if !fits || !text.is_ascii() {
                record(&mut records, key, text);
            }
        }
        header.set_cksum();
        if records.is_empty() {
            return Ok(header.as_bytes().to_vec());
        }
        if std::str::from_utf8(self.path).is_err() || std::str::from_utf8(self.link).is_err() {
            let mut charset = Vec::new();
            record(&mut charset, "hdrcharset", b"BINARY");
            records.splice(0..0, charset);
        }
        let mut extended = Header::new_ustar();
        extended.set_entry_type(EntryType::XHeader);
        extended.set_path("extended").map_err(|_| Code::Failed)?;
        extended.set_mode(0o644);
        extended.set_size(records.len() as u64);
        extended.set_cksum();
        let mut blocks = extended.as_bytes().to_vec();
        let padding = padding(records.len() as u64);
        blocks.append(&mut records);
        blocks.extend_from_slice(padding);
        blocks.extend_from_slice(header.as_bytes());
        Ok(blocks)
    }
}

/// A record of an extended head: its own length in digits, counted in, then `key=value`.
fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = " ".len() + key.len() + "=".len() + value.len() + "\n".len();
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// What fills the last block.
pub(super) fn padding(bytes: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    let over = (bytes % BLOCK) as usize;
    if over == 0 { &[] } else { &ZEROS[over..] }
}

/// What ends an archive: two blocks of nothing.
pub(super) const END: [u8; 2 * BLOCK as usize] = [0; 2 * BLOCK as usize];

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn names_of_any_length_and_bytes_come_out_as_they_went_in() {
        let long = [b"d/".as_slice(), &[b'n'; 255]].concat();
        let names: [&[u8]; 8] = [
            b"a",
            b"caf\xe9",
            "\u{1f980}\u{202e}".as_bytes(),
            b"new\nline",
            &long,
            &long[..100],
            &long[..101],
            &long[..99],
        ];
        let mut archive = Vec::new();
        for path in names {
            let head =
                Head { path, kind: EntryType::Regular, link: b"", bytes: 3, mode: 0o6755, owner: (1, 2), modified: -5 };
            archive.extend(head.blocks().unwrap());
            archive.extend(b"abc");
            archive.extend(padding(3));
        }
        let head = Head {
            path: b"l",
            kind: EntryType::Symlink,
            link: &long,
            bytes: 0,
            mode: 0o777,
            owner: (1, 2),
            modified: 5,
        };
        archive.extend(head.blocks().unwrap());
        archive.extend(END);
        let mut read = tar::Archive::new(archive.as_slice());
        let mut seen = Vec::new();
        for entry in read.entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mode().unwrap() & 0o7000, 0, "nothing that gives rights");
            seen.push(entry.path_bytes().into_owned());
            if entry.header().entry_type() == EntryType::Symlink {
                assert_eq!(entry.link_name_bytes().unwrap(), long.as_slice());
            } else {
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                assert_eq!(text, "abc");
            }
        }
        assert_eq!(seen, [names.as_slice(), &[b"l"]].concat());
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for length in 0..300 {
            let mut bytes = Vec::new();
            record(&mut bytes, "path", &vec![b'x'; length]);
            let said: usize = String::from_utf8(bytes.clone()).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(said, bytes.len());
        }
    }
}
