//! Files and directories with all in them, as one stream.
//!
//! The walk goes by descriptors: what lies under a name is found once, looked at, and opened by what was found; no link is followed and no
//! mount entered below the top. Pipes, sockets and devices, what may not be read and what goes meanwhile are left out and named in the
//! answer. A file that shrinks is filled up with zeros, because its size is said already, and named too. A zip has no links either, and says
//! in a file of its own what it leaves out, because whoever unpacks it sees no answer.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use eirene_files_protocol::{
    Answer, Archive, ArchiveFormat, Archived, Code, EntryKind, MOST_ARCHIVED, MOST_SKIPPED, Name, Progress,
    RelativePath, Skipped, UPLOAD_PREFIX,
};
use rustix::fs::Statx;
use tar::EntryType;

use super::tar_writer::{END, Head, padding};
use super::zip_writer::{self, Zip};
use crate::beneath::{Last, Place, Space, modified};
use crate::directory::Names;
use crate::server::Job;
use crate::stream::Stream;

/// How deep a walk goes: each level holds a descriptor, and ten walks have to share a thousand.
const MOST_DEPTH: usize = 80;
/// Most bytes of skipped paths: all that is said of them has to fit into a frame.
const MOST_SKIPPED_BYTES: usize = 16 * 1024;
/// How often to say how far it is.
const SAY: Duration = Duration::from_secs(1);
/// Bytes of the buffer where a checksum is needed.
const BUFFER: usize = 256 * 1024;
/// How a zip's list of what is left out is called, and how where that is taken.
const SKIPPED: &str = "SKIPPED.txt";
const SKIPPED_TOO: &str = "SKIPPED by the portal.txt";
/// Zeros written at once.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A directory that is being walked.
struct Level {
    place: Place,
    names: Names,
    next: u32,
    /// Below the thing that was asked for.
    path: RelativePath,
}

/// How it is written.
enum Writer {
    Tar,
    Zip(Zip),
}

struct Walk<'a> {
    writer: Writer,
    /// Whether there is a file already that is called as the list of what is left out.
    names_skipped: bool,
    job: &'a Job,
    space: &'a Space,
    stream: &'a mut Stream,
    /// What is in the archive by its own name now.
    top: &'a Name,
    /// Whether there are others.
    several: bool,
    entries: u64,
    skipped: Vec<Skipped>,
    skipped_in_all: u64,
    said: Instant,
}

pub(super) fn run(job: &Job, archive: &Archive, stream: &mut Stream) -> Result<Answer, Code> {
    let writer = match archive.format {
        ArchiveFormat::Tar => Writer::Tar,
        ArchiveFormat::Zip => Writer::Zip(Zip::default()),
    };
    let space = job.space(archive.space)?;
    let (first, others) = archive.items.split_first().ok_or(Code::Invalid)?;
    let mut names: Vec<&Name> = archive.items.iter().map(|item| &item.top).collect();
    names.sort_unstable();
    if archive.items.len() > MOST_ARCHIVED || names.windows(2).any(|two| two[0] == two[1]) {
        return Err(Code::Invalid);
    }
    let several = !others.is_empty();
    let mut walk = Walk {
        writer,
        names_skipped: false,
        job,
        space,
        stream,
        top: &first.top,
        several,
        entries: 0,
        skipped: Vec::new(),
        skipped_in_all: 0,
        said: Instant::now(),
    };
    let mut kind = EntryKind::Directory;
    for item in &archive.items {
        walk.top = &item.top;
        match find(space, item) {
            Ok((place, found)) => {
                kind = found;
                walk.walk(place)?;
            }
            // What cannot be archived at all is no archive of nothing.
            Err(why) if !several => return Err(why),
            Err(why) => walk.skip(RelativePath::default(), why),
        }
    }
    if several || kind == EntryKind::Directory {
        walk.say_what_is_left_out()?;
    }
    let Walk { writer, entries, skipped, skipped_in_all, .. } = walk;
    match writer {
        Writer::Tar => stream.write(&END)?,
        Writer::Zip(zip) => {
            let at = stream.written();
            stream.write(&zip.end(at))?;
        }
    }
    Ok(Answer::Written { bytes: stream.written(), entries, skipped, skipped_in_all })
}

/// What is asked for by its own name, if it can be archived.
fn find(space: &Space, item: &Archived) -> Result<(Place, EntryKind), Code> {
    let place = space.find(&item.path, Last::Followed)?;
    let kind = place.look()?.0;
    match kind {
        EntryKind::Directory => drop(place.list()?),
        EntryKind::File => drop(place.read()?),
        EntryKind::Link | EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => return Err(Code::NotSupported),
    }
    Ok((place, kind))
}

impl Walk<'_> {
    fn walk(&mut self, top: Place) -> Result<(), Code> {
        let mut levels: Vec<Level> = self.enter(top, RelativePath::default(), 0)?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            if level.next as usize == level.names.len() {
                if level.names.at_least() {
                    let path = level.path.clone();
                    self.skip(path, Code::TooMany);
                }
                levels.pop();
                continue;
            }
            self.job.cancelled.check()?;
            let name = level.names.get(level.next);
            let of_the_platform =
                name.starts_with(UPLOAD_PREFIX) || (level.place.is_root() && self.space.reserves(name));
            let name = Name::parse(name);
            level.next += 1;
            let Ok(name) = name else { continue };
            if of_the_platform {
                continue;
            }
            let Ok(path) = level.path.join(&name) else {
                let path = level.path.clone();
                self.skip(path, Code::TooDeep);
                continue;
            };
            match level.place.child(&name) {
                Ok(place) => {
                    let depth = levels.len();
                    levels.extend(self.enter(place, path, depth)?);
                }
                Err(why) => self.skip(path, why),
            }
            self.say()?;
        }
        Ok(())
    }

    /// Writes one entry; the level to walk, if it is a directory. Only what concerns the stream is an error.
    fn enter(&mut self, place: Place, path: RelativePath, depth: usize) -> Result<Option<Level>, Code> {
        let (kind, found) = match place.look() {
            Ok(looked) => looked,
            Err(why) => {
                self.skip(path, why);
                return Ok(None);
            }
        };
        match kind {
            EntryKind::Directory if depth >= MOST_DEPTH => self.skip(path, Code::TooDeep),
            EntryKind::Directory => {
                match place.list().and_then(|directory| Names::read(&directory, &self.job.cancelled)) {
                    Ok(names) => {
                        self.head(&path, EntryType::Directory, b"", 0, &found)?;
                        return Ok(Some(Level { place, names, next: 0, path }));
                    }
                    Err(why @ (Code::CutOff | Code::Cancelled)) => return Err(why),
                    Err(why) => self.skip(path, why),
                }
            }
            EntryKind::File => match place.read() {
                Ok((file, found)) => self.file(path, &file, &found)?,
                Err(why) => self.skip(path, why),
            },
            EntryKind::Link => match place.link_text() {
                Ok(text) if matches!(self.writer, Writer::Tar) => {
                    self.head(&path, EntryType::Symlink, &text, 0, &found)?;
                }
                Ok(_) => self.skip(path, Code::NotSupported),
                Err(why) => self.skip(path, why),
            },
            EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => self.skip(path, Code::NotSupported),
        }
        Ok(None)
    }

    fn file(&mut self, path: RelativePath, file: &OwnedFd, found: &Statx) -> Result<(), Code> {
        let name = if self.several { self.path_in_archive(&path) } else { path.as_bytes().to_vec() };
        self.names_skipped |= name == SKIPPED.as_bytes();
        if let Writer::Zip(zip) = &self.writer {
            if zip.has_room(path.as_bytes().len()) {
                return self.zip_file(path, file, found);
            }
            self.skip(path, Code::TooMany);
            return Ok(());
        }
        let bytes = found.stx_size;
        self.head(&path, EntryType::Regular, b"", bytes, found)?;
        let before = self.stream.written();
        let sent = match self.stream.send_file(file, 0, bytes) {
            Ok(reached) => reached,
            Err(why @ (Code::CutOff | Code::Cancelled)) => return Err(why),
            // The head is out: what the file system does not give any more is filled up.
            Err(_) => self.stream.written() - before,
        };
        if sent < bytes {
            self.skip(path, Code::ChangedMeanwhile);
            self.fill(bytes - sent)?;
        }
        self.stream.write(padding(bytes))
    }

    /// Zeros in the place of what is not there any more.
    fn fill(&mut self, many: u64) -> Result<(), Code> {
        zeros(many).try_for_each(|zeros| self.stream.write(zeros))
    }

    fn zip_file(&mut self, path: RelativePath, file: &OwnedFd, found: &Statx) -> Result<(), Code> {
        let name = self.path_in_archive(&path);
        let (bytes, modified) = (found.stx_size, modified(found).seconds);
        let head = zip_writer::Head { path: name, bytes, mode: found.stx_mode, modified };
        let begin = self.stream.written();
        self.stream.write(&Zip::begin(&head))?;
        let mut sum = crc32fast::Hasher::new();
        let mut buffer = vec![0; BUFFER];
        let mut at = 0;
        while at < head.bytes {
            let count = usize::try_from(head.bytes - at).map_or(BUFFER, |left| left.min(BUFFER));
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut buffer[..count], at)).unwrap_or(0);
            if read == 0 {
                break;
            }
            sum.update(&buffer[..read]);
            self.stream.write(&buffer[..read])?;
            at += read as u64;
        }
        if at < head.bytes {
            self.skip(path, Code::ChangedMeanwhile);
            zeros(head.bytes - at).for_each(|zeros| sum.update(zeros));
            self.fill(head.bytes - at)?;
        }
        self.zip_end(&head, begin, sum.finalize())
    }

    fn zip_end(&mut self, head: &zip_writer::Head, begin: u64, sum: u32) -> Result<(), Code> {
        self.entries += 1;
        if let Writer::Zip(zip) = &mut self.writer {
            let behind = zip.end_of(head, begin, sum);
            self.stream.write(&behind)?;
        }
        Ok(())
    }

    /// A zip's own list of what is left out.
    fn say_what_is_left_out(&mut self) -> Result<(), Code> {
        if self.skipped_in_all == 0 || !matches!(self.writer, Writer::Zip(_)) {
            return Ok(());
        }
        let mut text = format!("{} left out\n", self.skipped_in_all);
        for skipped in &self.skipped {
            // Names are escaped: this is read on terminals.
            text.extend([&skipped.path.as_bytes().escape_ascii().to_string(), ": ", &word(skipped.why), "\n"]);
        }
        let name = if self.names_skipped { SKIPPED_TOO } else { SKIPPED };
        // Of several things it lies beside them, of a directory in it.
        let path = if self.several {
            name.as_bytes().to_vec()
        } else {
            self.path_in_archive(&RelativePath::parse(name.as_bytes()).map_err(|_| Code::Failed)?)
        };
        let head = zip_writer::Head { path, bytes: text.len() as u64, mode: 0o100_644, modified: 0 };
        let begin = self.stream.written();
        self.stream.write(&Zip::begin(&head))?;
        self.stream.write(text.as_bytes())?;
        self.zip_end(&head, begin, crc32fast::hash(text.as_bytes()))
    }

    fn path_in_archive(&self, path: &RelativePath) -> Vec<u8> {
        let mut name = self.top.as_bytes().to_vec();
        if !path.is_space() {
            name.push(b'/');
            name.extend_from_slice(path.as_bytes());
        }
        name
    }

    fn head(
        &mut self,
        path: &RelativePath,
        kind: EntryType,
        link: &[u8],
        bytes: u64,
        found: &Statx,
    ) -> Result<(), Code> {
        let mut name = self.path_in_archive(path);
        if kind == EntryType::Directory {
            name.push(b'/');
        }
        if let Writer::Zip(zip) = &self.writer {
            if !zip.has_room(name.len()) {
                self.skip(path.clone(), Code::TooMany);
                return Ok(());
            }
            let head = zip_writer::Head { path: name, bytes, mode: found.stx_mode, modified: modified(found).seconds };
            let begin = self.stream.written();
            self.stream.write(&Zip::begin(&head))?;
            return self.zip_end(&head, begin, 0);
        }
        let owner = (found.stx_uid, found.stx_gid);
        let head =
            Head { path: &name, kind, link, bytes, mode: found.stx_mode, owner, modified: modified(found).seconds };
        self.entries += 1;
        self.stream.write(&head.blocks()?)
    }

    fn skip(&mut self, path: RelativePath, why: Code) {
        self.skipped_in_all += 1;
        // What is too long with the name in front is said as far as it fits: by the name.
        let whole = |whole: Vec<u8>| RelativePath::parse(&whole).ok();
        let path = if self.several {
            let name = || whole(self.top.as_bytes().to_vec()).unwrap_or_default();
            whole(self.path_in_archive(&path)).unwrap_or_else(name)
        } else {
            path
        };
        let bytes: usize = self.skipped.iter().map(|skipped| skipped.path.as_bytes().len()).sum();
        if self.skipped.len() < MOST_SKIPPED && bytes + path.as_bytes().len() <= MOST_SKIPPED_BYTES {
            self.skipped.push(Skipped { path, why });
        }
    }

    fn say(&mut self) -> Result<(), Code> {
        if self.said.elapsed() < SAY {
            return Ok(());
        }
        self.said = Instant::now();
        self.job.progress(Progress { entries: self.entries, bytes: self.stream.written() })
    }
}

/// So many zeros, in pieces.
fn zeros(mut left: u64) -> impl Iterator<Item = &'static [u8]> {
    std::iter::from_fn(move || {
        let now = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        left -= now as u64;
        (now > 0).then_some(&ZEROS[..now])
    })
}

/// A code as it is written everywhere.
fn word(code: Code) -> String {
    serde_json::to_string(&code).unwrap_or_default().trim_matches('"').to_owned()
}
