//! Members of a tar, as they come. Only the reader of headers is somebody else's, and it is given no more bytes than headers have: it would
//! hold a long name of any length.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use eirene_files_protocol::Code;
use tar::{Archive, EntryType};

use super::source::Source;
use super::{Extraction, Head, Member};

/// Most bytes of all that is said before a member.
const MOST_HEADER: u64 = 1024 * 1024;
/// How many times what may come of an archive may be read on the way, headers and what is refused among it.
const MOST_PASSED: u64 = 4;

/// Takes each member; of what is compressed all is read, to its checksum.
///
/// # Errors
/// [`Code::NotAnArchive`] where it is none, is damaged or was cut off; what ends an extraction.
pub(super) fn read(
    extraction: &mut Extraction<'_>,
    source: &Source,
    stream: impl Read,
    is_compressed: bool,
) -> Result<(), Code> {
    let mut left = extraction.most().saturating_mul(MOST_PASSED);
    let meter =
        Rc::new(Meter { at_once: Cell::new(MOST_HEADER), in_all: Cell::new(left), is_exceeded: Cell::new(false) });
    let why = || if meter.is_exceeded.get() { Code::ArchiveTooLarge } else { source.why() };
    let mut archive = Archive::new(Metered { stream, meter: Rc::clone(&meter) });
    let mut entries = archive.entries().map_err(|_| why())?;
    loop {
        meter.at_once.set(MOST_HEADER);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(|_| why())?;
        meter.at_once.set(u64::MAX);
        let name = entry.path_bytes().into_owned();
        let (kind, mode) = (entry.header().entry_type(), entry.header().mode().ok());
        let modified = entry.header().mtime().ok().and_then(|seconds| i64::try_from(seconds).ok());
        let head = Head { name: &name, mode, modified };
        let target = entry.link_name_bytes().map(Cow::into_owned).unwrap_or_default();
        let bytes = entry.size();
        let member = match kind {
            // Of all that follows, as who made it.
            EntryType::XGlobalHeader => continue,
            EntryType::Directory => Member::Directory,
            // Old writers say nothing else of a directory.
            EntryType::Regular if name.ends_with(b"/") => Member::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                Member::File { bytes, content: &mut entry }
            }
            EntryType::Symlink => Member::Link(target),
            EntryType::Link => Member::HardLink(target),
            _ => Member::Special,
        };
        let taken = extraction.take(&head, member);
        taken.map_err(|ended| if ended == Code::NotAnArchive { why() } else { ended })?;
        // What was not made has bytes all the same; a hole that it says it has is of any size, and read from nowhere.
        let drained = io::copy(&mut (&mut entry).take(left.saturating_add(1)), &mut io::sink()).map_err(|_| why())?;
        left = left.checked_sub(drained).ok_or(Code::ArchiveTooLarge)?;
    }
    if is_compressed {
        // Its checksum comes last, behind what is read of a tar.
        meter.at_once.set(u64::MAX);
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|_| why())?;
    }
    Ok(())
}

/// How many bytes may be read yet.
struct Meter {
    /// Until something else is read.
    at_once: Cell<u64>,
    in_all: Cell<u64>,
    is_exceeded: Cell<bool>,
}

struct Metered<R> {
    stream: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let meter = &self.meter;
        let most = meter.at_once.get().min(meter.in_all.get());
        let most = usize::try_from(most).map_or(buffer.len(), |most| most.min(buffer.len()));
        if most == 0 && !buffer.is_empty() {
            meter.is_exceeded.set(true);
            return Err(io::Error::other("more than an archive may have"));
        }
        let read = self.stream.read(&mut buffer[..most])?;
        meter.at_once.set(meter.at_once.get() - read as u64);
        meter.in_all.set(meter.in_all.get() - read as u64);
        Ok(read)
    }
}
