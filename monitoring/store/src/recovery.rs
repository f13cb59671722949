//! The start: finds out what the last process had finished, removes what it had not, and reads the journals into open chunks.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::disk::{BROKEN, Disk, FileName, Kind, SegmentName, io_at};
use crate::dropped::{self, Dropped};
use crate::journal;
use crate::open::Open;
use crate::segment::{ReadError, Segment};
use crate::writer::{Left, Writer};
use crate::{Options, StoreError};

/// What lies there.
#[derive(Debug, Default)]
struct Found {
    segments: Vec<Segment>,
    /// Their bytes by number.
    journals: BTreeMap<u64, u64>,
    dropped: Dropped,
    broken: Vec<(String, u64)>,
    damage: u64,
    /// The highest number of all names, so that none is used twice.
    highest: u64,
}

/// Opens the directory; the file holds its lock.
pub(crate) fn start(path: &Path, options: &Options) -> Result<(Writer, File), StoreError> {
    let (mut disk, lock) = Disk::open(path, options.disk_bytes)?;
    let mut found = find(&disk)?;
    settle(&disk, &mut found)?;
    let mut open = Open::new(std::mem::take(&mut found.dropped));
    read_journals(&disk, &mut found, &mut open, options)?;
    disk.sync()?;
    disk.add(found.segments.iter().map(|segment| segment.bytes).sum());
    disk.add(found.journals.values().sum());
    disk.add(found.broken.iter().map(|(_, bytes)| bytes).sum());
    disk.add(std::fs::metadata(disk.path(dropped::NAME)).map_or(0, |data| data.len()));
    found.segments.sort_by_key(|segment| segment.name);
    let latest = found.segments.iter().map(Segment::last).max();
    open.newest = open.newest.max(latest.unwrap_or(i64::MIN));
    open.segments = Arc::new(found.segments.into_iter().map(Arc::new).collect());
    open.after_replay();
    let unwritten = open.take_pending();
    let current = found.highest + 1;
    let mut writer = Writer {
        disk,
        open: Arc::new(Mutex::new(open)),
        options: options.clone(),
        journal: None,
        current,
        lowest: found.journals.keys().next().copied().unwrap_or(current),
        journals: found.journals,
        unwritten,
        flushed: Instant::now(),
        sealed_at: None,
        left: Left::default(),
        broken: found.broken,
        damage: found.damage,
    };
    // The bound may be another than before.
    writer.room(0)?;
    Ok((writer, lock))
}

fn find(disk: &Disk) -> Result<Found, StoreError> {
    let mut found = Found::default();
    for (name, bytes) in disk.files()? {
        if name.ends_with(BROKEN) {
            found.broken.push((name, bytes));
            continue;
        }
        if name == dropped::NAME {
            let path = disk.path(&name);
            match Dropped::read(&std::fs::read(&path).map_err(io_at(&path))?) {
                Some(dropped) => found.dropped = dropped,
                None => found.set_aside(disk, &name, bytes)?,
            }
        }
        match FileName::parse(&name) {
            Some(FileName::Journal(number)) => {
                found.highest = found.highest.max(number);
                found.journals.insert(number, bytes);
            }
            Some(FileName::Segment(segment)) => {
                found.highest = found.highest.max(segment.highest);
                match Segment::open(disk, segment) {
                    Ok(segment) => found.segments.push(segment),
                    Err(ReadError::Gone) => {}
                    Err(ReadError::Broken) => found.set_aside(disk, &name, bytes)?,
                    Err(ReadError::Io(source)) => return Err(StoreError::Io { path: disk.path(&name), source }),
                }
            }
            None => {}
        }
    }
    Ok(found)
}

impl Found {
    fn set_aside(&mut self, disk: &Disk, name: &str, bytes: u64) -> Result<(), StoreError> {
        self.broken.push((disk.set_aside(name)?, bytes));
        self.damage += 1;
        Ok(())
    }
}

/// Removes what was finished with, or not finished.
fn settle(disk: &Disk, found: &mut Found) -> Result<(), StoreError> {
    let names: Vec<SegmentName> = found.segments.iter().map(|segment| segment.name).collect();
    let raw =
        |number: &u64| names.iter().any(|name| name.kind == Kind::Raw && (name.lowest..=name.highest).contains(number));
    let (closed, live): (Vec<u64>, Vec<u64>) = found.journals.keys().copied().partition(raw);
    for number in closed {
        disk.remove(&FileName::Journal(number).to_string())?;
        found.journals.remove(&number);
    }
    let stale = |name: &SegmentName| {
        let replaced = names.iter().any(|other| replaces(other, name));
        // Minutes that have their name while their journal is still needed: the samples never got theirs.
        let early =
            name.kind == Kind::Minutes && live.iter().any(|number| (name.lowest..=name.highest).contains(number));
        replaced || early
    };
    for name in names.iter().filter(|name| stale(name)) {
        disk.remove(&name.to_string())?;
    }
    found.segments.retain(|segment| !stale(&segment.name));
    Ok(())
}

/// Whether a segment was made of another, among others.
fn replaces(new: &SegmentName, old: &SegmentName) -> bool {
    let holds = new.kind == old.kind && new.lowest <= old.lowest && old.highest <= new.highest;
    let same = new.lowest == old.lowest && new.highest == old.highest;
    holds && (!same || new.version > old.version)
}

/// Reads what is whole of the journals, and cuts off the rest.
fn read_journals(disk: &Disk, found: &mut Found, open: &mut Open, options: &Options) -> Result<(), StoreError> {
    let mut gone = Vec::new();
    for (&number, length) in &mut found.journals {
        let name = FileName::Journal(number).to_string();
        let path = disk.path(&name);
        let bytes = std::fs::read(&path).map_err(io_at(&path))?;
        let mut names = HashMap::new();
        let Some(whole) = journal::replay(&bytes, number, |record| open.replay(&mut names, record, options.late_ms))
        else {
            found.damage += 1;
            disk.remove(&name)?;
            gone.push(number);
            continue;
        };
        if whole < bytes.len() {
            found.damage += 1;
            let file = OpenOptions::new().write(true).open(&path).map_err(io_at(&path))?;
            file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(io_at(&path))?;
        }
        *length = whole as u64;
    }
    found.journals.retain(|number, _| !gone.contains(number));
    Ok(())
}
