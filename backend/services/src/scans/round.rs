//! One round: measures everything below a directory anew, piece by piece, and writes down what is whole.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eirene_core::space::{Measured as MeasuredSpace, Measurement};
use eirene_core::storage::{Bytes, Files};
use eirene_files_protocol::{
    Answer, KnownDirectory, MOST_KNOWN, Measured, Part, Progress, RelativePath, Scan, Scanned, Verb,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::store::{Kept, Record, RoundState, ScanFile};
use super::tree::{Directory, above};
use super::{Line, Scans, blocking, done};
use crate::error::AppError;
use crate::error::files::{FilesTrouble, Kind};
use crate::files::long::skipped;
use crate::files::path::shown;
use crate::files::{Within, answered};
use crate::operations::{Finished, Handle};

/// How long the process is asked to measure at a time.
const SLICE: Duration = Duration::from_mins(1);
/// The same where a minute was too short for any directory near the top.
const LONGEST_SLICE: Duration = Duration::from_hours(1);
/// A round that is older is begun anew and not gone on with.
const ROUND_HOLDS: SignedDuration = SignedDuration::from_hours(24);
/// How often a process that does not answer is asked again before the round is given up for now.
const PATIENCE: u32 = 5;
/// What is said of something that is a file by now.
const NO_DIRECTORY: &str = "not_a_directory";
/// What is heard of one slice and kept in memory, directories.
const MOST_HEARD: usize = 100_000;

/// The work of one round.
pub(super) struct Scanning {
    pub(super) scans: Scans,
    pub(super) within: Within,
    pub(super) path: RelativePath,
    pub(super) line: Line,
}

/// What a round writes on, and what is kept of it.
struct Book {
    file: Arc<Mutex<ScanFile>>,
    kept: Arc<Mutex<Kept>>,
}

/// What came of one directory: whether all of it was measured.
#[derive(Default)]
struct Sum {
    complete: bool,
    approximate: bool,
    skipped: Vec<Value>,
    skipped_in_all: u64,
    /// Whether something of it may not have been looked at, in whichever slice. What was measured besides is not gone into again, so the last
    /// slice does not know.
    unseen: bool,
    /// How many slices it took.
    slices: u32,
}

/// How much of a directory is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slices {
    /// As much as one slice has room for.
    One,
    /// All of it.
    All,
}

impl Scanning {
    pub(super) async fn carry_out(self, handle: Handle) -> Result<Finished, AppError> {
        let path = self.scans.inner.path(self.line.key);
        let (file, kept) = blocking(move || ScanFile::open(path)).await?;
        let book = Book { file: Arc::new(Mutex::new(file)), kept: Arc::new(Mutex::new(kept)) };
        if let Some(running) = self.scans.inner.running().get_mut(&self.line.key) {
            running.kept = Some(Arc::clone(&book.kept));
        }
        let outcome = self.round(&handle, &book).await;
        let end = match &outcome {
            Ok(_) => vec![],
            // There is nothing to go on with: something else is measured next.
            Err(AppError::Files(trouble)) if trouble.kind == Kind::NotThere || trouble.code == NO_DIRECTORY => {
                let at = self.scans.inner.clock.now();
                vec![Record::Gone(self.path.clone()), Record::Done { at, approximate: false, skipped: 0 }]
            }
            Err(_) => vec![Record::Stopped],
        };
        book.add(end).await?;
        outcome
    }

    async fn round(&self, handle: &Handle, book: &Book) -> Result<Finished, AppError> {
        let now = self.scans.inner.clock.now();
        let goes_on = book.kept().round.as_ref().is_some_and(|round| {
            let age = now.duration_since(round.begun);
            round.path == self.path
                && !matches!(round.state, RoundState::Done { .. })
                && (SignedDuration::ZERO..ROUND_HOLDS).contains(&age)
        });
        if !goes_on {
            book.add(vec![Record::Begun { at: now, path: self.path.clone(), anew: true }]).await?;
        }
        let since = book.kept().round.as_ref().map_or(now, |round| round.begun);
        // Most trees are gone through in one slice, and in the order in which the disk has them.
        let mut sum = self.measure(handle, book, &self.path, since, Slices::One).await?;
        if !sum.complete {
            let first = sum;
            sum = self.refresh(handle, book, since).await?;
            sum.approximate |= first.approximate;
            sum.unseen |= first.unseen;
            sum.slices += first.slices;
        }
        // What was left out before a round was gone on with is not known any more.
        sum.unseen |= goes_on;
        let end = if sum.complete {
            let at = self.scans.inner.clock.now();
            Record::Done { at, approximate: sum.approximate, skipped: sum.skipped_in_all }
        } else {
            Record::Stopped
        };
        book.add(vec![end]).await?;
        book.shorten().await?;
        self.note(book, since, &sum).await;
        Ok(book.finished(&self.path, since, &sum))
    }

    /// Notes what the whole space holds, where all of it was measured and nothing was left out.
    async fn note(&self, book: &Book, since: Timestamp, sum: &Sum) {
        let now = self.scans.inner.clock.now();
        let (space, user) = self.line.key;
        let Some(measurement) = book.whole_space(&self.path, since, sum).map(|(bytes, files)| Measurement {
            used_bytes: Bytes(bytes),
            used_files: Files(files),
            // Names of one file that are met in different slices are not known to be of one.
            measured: MeasuredSpace { by: user, at: now, approximate: sum.approximate || sum.slices > 1 },
        }) else {
            return;
        };
        if let Err(error) = self.scans.inner.spaces.note_measurement(space, &measurement).await {
            tracing::warn!(space.id = %space, user.id = %user, %error, "What a space was measured to hold could not be kept");
        }
    }

    /// Measures what takes longer than a slice: what is known of it one by one, so that numbers are refreshed in their turn, then the rest.
    async fn refresh(&self, handle: &Handle, book: &Book, since: Timestamp) -> Result<Sum, AppError> {
        let mut sum = Sum { complete: true, ..Sum::default() };
        for piece in book.oldest(&self.path, since) {
            match self.measure(handle, book, &piece, since, Slices::All).await {
                Ok(part) => sum.add(part),
                // It went while nobody looked, is no directory any more, or is another's. What is there now is met from above.
                Err(AppError::Files(trouble))
                    if matches!(trouble.kind, Kind::NotThere | Kind::MayNot) || trouble.code == NO_DIRECTORY =>
                {
                    book.add(vec![Record::Gone(piece)]).await?;
                }
                Err(error) => return Err(error),
            }
        }
        sum.add(self.measure(handle, book, &self.path, since, Slices::All).await?);
        Ok(sum)
    }

    /// Measures a directory, a slice at a time: to its end, or as far as one slice goes.
    async fn measure(
        &self,
        handle: &Handle,
        book: &Book,
        top: &RelativePath,
        since: Timestamp,
        slices: Slices,
    ) -> Result<Sum, AppError> {
        let (mut slice, mut silent) = (SLICE, 0);
        let mut sum = Sum::default();
        loop {
            let fresh = book.kept().tree.fresh(top, since);
            let known = book.known(top, since);
            let before = done(&book.kept(), &self.path, since);
            let scan = Scan {
                space: self.within.number(),
                path: top.clone(),
                known: known.iter().filter_map(|(known, _)| relative(known, top)).collect(),
                budget_ms: u64::try_from(slice.as_millis()).unwrap_or(u64::MAX),
            };
            let mut heard: Vec<Measured> = Vec::new();
            let before = Progress { entries: before.0, bytes: before.1 };
            let answer = self
                .within
                .ask_long(handle, Verb::Scan(scan), before, |part| {
                    heard.extend(answered!(part, Part::Measured(some) => some)?);
                    if heard.len() > MOST_HEARD {
                        keep_larger_half(&mut heard);
                    }
                    Ok(())
                })
                .await;
            let now = self.scans.inner.clock.now();
            let scanned = match answer {
                Ok(answer) => answered!(answer, Answer::Scanned(scanned) => scanned)?,
                Err(AppError::Files(trouble)) if trouble.kind == Kind::Away && silent < PATIENCE => {
                    book.add(whole(&heard, &known, top, None, now)).await?;
                    // What it left out it would have said at the end.
                    sum.unseen = true;
                    silent = if book.kept().tree.fresh(top, since) > fresh { 0 } else { silent + 1 };
                    wait(handle, Duration::from_secs(1 << silent)).await?;
                    continue;
                }
                Err(error) => {
                    book.add(whole(&heard, &known, top, None, now)).await?;
                    return Err(error);
                }
            };
            silent = 0;
            book.add(whole(&heard, &known, top, Some(&scanned), now)).await?;
            sum.approximate |= scanned.approximate;
            sum.unseen |= scanned.walked.skipped_in_all > 0;
            sum.slices += 1;
            sum.skipped_in_all = scanned.walked.skipped_in_all;
            sum.skipped = skipped(&scanned.walked);
            let is_further = book.kept().tree.fresh(top, since) > fresh;
            match (scanned.complete, is_further) {
                (true, _) => return Ok(Sum { complete: true, ..sum }),
                (false, _) if slices == Slices::One => return Ok(sum),
                (false, true) => {}
                (false, false) if slice >= LONGEST_SLICE => return Ok(sum),
                (false, false) => slice = LONGEST_SLICE.min(slice * 2),
            }
        }
    }
}

async fn wait(handle: &Handle, time: Duration) -> Result<(), AppError> {
    tokio::select! {
        () = handle.cancelled.cancelled() => Err(FilesTrouble::cancelled().into()),
        () = tokio::time::sleep(time) => Ok(()),
    }
}

/// Keeps the larger half, in its order. What the others hold is in the sums of those above them, which come after them.
fn keep_larger_half(heard: &mut Vec<Measured>) {
    let mut sizes: Vec<u64> = heard.iter().map(|one| one.bytes).collect();
    let middle = sizes.len() / 2;
    let (_, median, _) = sizes.select_nth_unstable(middle);
    let median = *median;
    heard.retain(|one| one.bytes > median);
}

/// A directory's path below `top`, for the process.
fn relative(directory: &Directory, top: &RelativePath) -> Option<KnownDirectory> {
    let path = directory.path.as_bytes();
    let rest = if top.is_space() { path } else { path.strip_prefix(top.as_bytes())?.strip_prefix(b"/")? };
    let path = RelativePath::parse(rest).ok()?;
    Some(KnownDirectory { path, device: directory.device, inode: directory.inode })
}

/// A path below `top` as one below the space. What is too long for that is in what lies above it.
fn joined(top: &RelativePath, path: &RelativePath) -> Option<RelativePath> {
    match (top.is_space(), path.is_space()) {
        (true, _) => Some(path.clone()),
        (false, true) => Some(top.clone()),
        (false, false) => RelativePath::parse(&[top.as_bytes(), b"/", path.as_bytes()].concat()).ok(),
    }
}

/// What was heard of a slice, as records: each directory with what was known to be in it. Without the slice's last word it is not known which
/// of them were still there, so only what lies above none of them is taken.
fn whole(
    heard: &[Measured],
    known: &[(Directory, u32)],
    top: &RelativePath,
    end: Option<&Scanned>,
    now: Timestamp,
) -> Vec<Record> {
    let met: HashSet<u32> = end.into_iter().flat_map(|end| end.met.iter().copied()).collect();
    let heard: Vec<(RelativePath, &Measured)> =
        heard.iter().filter_map(|one| Some((joined(top, &one.directory.path)?, one))).collect();
    let anew: HashSet<&[u8]> = heard.iter().map(|(path, _)| path.as_bytes()).collect();
    let mut besides: HashMap<&[u8], (u64, u64)> = HashMap::new();
    let mut gone = Vec::new();
    for (directory, place) in known {
        let is_met = met.contains(place);
        for above in above(directory.path.as_bytes()) {
            let (bytes, files) = besides.entry(above).or_default();
            if is_met {
                *bytes = bytes.saturating_add(directory.bytes);
                *files = files.saturating_add(directory.files);
            }
        }
        // Whatever lies above it was gone through to its end, and it was not there.
        let is_gone = !is_met
            && end.is_some()
            && !anew.contains(directory.path.as_bytes())
            && above(directory.path.as_bytes()).any(|above| anew.contains(above));
        if is_gone {
            gone.push(Record::Gone(directory.path.clone()));
        }
    }
    let mut records = gone;
    for (path, one) in &heard {
        let besides = besides.get(path.as_bytes());
        if besides.is_some() && end.is_none() {
            continue;
        }
        let (bytes, files) = besides.copied().unwrap_or_default();
        records.push(Record::Measured(Directory {
            path: path.clone(),
            device: one.directory.device,
            inode: one.directory.inode,
            bytes: one.bytes.saturating_add(bytes),
            files: one.entries.saturating_add(files),
            own_bytes: one.own_bytes,
            own_files: one.own_entries,
            at: now,
        }));
    }
    // Something in it could not be looked at, so the process does not say that it is whole; all else of it is known all the same.
    let rest = end.filter(|end| end.complete && !anew.contains(top.as_bytes()));
    if let Some(end) = rest {
        let (bytes, files) = besides.get(top.as_bytes()).copied().unwrap_or_default();
        records.push(Record::Measured(Directory {
            path: top.clone(),
            device: 0,
            inode: 0,
            bytes: end.walked.bytes.saturating_add(bytes),
            files: end.walked.entries.saturating_add(files),
            own_bytes: 0,
            own_files: 0,
            at: now,
        }));
    }
    records
}

impl Sum {
    fn add(&mut self, part: Self) {
        self.complete &= part.complete;
        self.approximate |= part.approximate;
        self.unseen |= part.unseen;
        self.slices = self.slices.saturating_add(part.slices);
        self.skipped_in_all = self.skipped_in_all.saturating_add(part.skipped_in_all);
        let room = eirene_files_protocol::MOST_SKIPPED.saturating_sub(self.skipped.len());
        self.skipped.extend(part.skipped.into_iter().take(room));
    }
}

impl Book {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes records down and takes them.
    async fn add(&self, records: Vec<Record>) -> Result<(), AppError> {
        if records.is_empty() {
            return Ok(());
        }
        let (file, kept) = (Arc::clone(&self.file), Arc::clone(&self.kept));
        blocking(move || {
            file.lock().unwrap_or_else(PoisonError::into_inner).add(&records)?;
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            for record in records {
                kept.take(record);
            }
            Ok(())
        })
        .await
    }

    /// Writes the file anew, with nothing in it that was replaced since.
    async fn shorten(&self) -> Result<(), AppError> {
        let (file, kept) = (Arc::clone(&self.file), Arc::clone(&self.kept));
        blocking(move || {
            let kept = {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.tree.keep_largest();
                kept.clone()
            };
            file.lock().unwrap_or_else(PoisonError::into_inner).replace(&kept)
        })
        .await
    }

    /// What is to be measured anew piece by piece, the oldest first.
    fn oldest(&self, path: &RelativePath, since: Timestamp) -> Vec<RelativePath> {
        let kept = self.kept();
        let mut pieces = kept.tree.children(path);
        pieces.retain(|piece| piece.at < since);
        pieces.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| a.path.cmp(&b.path)));
        pieces.into_iter().map(|piece| piece.path.clone()).collect()
    }

    /// What need not be gone into again, with the places it has in the request. Of more than can be said those that take longest are.
    fn known(&self, top: &RelativePath, since: Timestamp) -> Vec<(Directory, u32)> {
        let kept = self.kept();
        let mut tops = kept.tree.fresh_tops(top, since);
        // Of one whose inode is not known nothing can be told.
        tops.retain(|directory| directory.inode != 0 && relative(directory, top).is_some());
        tops.sort_by(|a, b| b.files.cmp(&a.files).then_with(|| a.path.cmp(&b.path)));
        tops.truncate(MOST_KNOWN);
        tops.into_iter().cloned().zip(0..).collect()
    }

    /// Bytes and files of the whole space, if that is what was measured and all of it was: the process itself says so of a directory only where it
    /// could look at everything in it, and names its inode then.
    fn whole_space(&self, path: &RelativePath, since: Timestamp, sum: &Sum) -> Option<(u64, u64)> {
        if !path.is_space() || !sum.complete || sum.unseen {
            return None;
        }
        let kept = self.kept();
        let whole = kept.tree.get(path).filter(|whole| whole.at >= since && whole.inode != 0)?;
        Some((whole.bytes, whole.files))
    }

    fn finished(&self, path: &RelativePath, since: Timestamp, sum: &Sum) -> Finished {
        let kept = self.kept();
        let (files, bytes) = done(&kept, path, since);
        let summary = json!({
            "entries": files, "bytes": bytes, "skipped": sum.skipped, "skipped_in_all": sum.skipped_in_all,
            "complete": sum.complete, "approximate": sum.approximate,
        });
        let results = kept.tree.largest(path).into_iter().map(|one| {
            let (path, raw_path) = shown(one.path.as_bytes());
            json!({
                "path": path, "raw_path": raw_path, "bytes": one.bytes, "entries": one.files,
                "own_bytes": one.own_bytes, "own_entries": one.own_files,
            })
        });
        Finished { summary, results: results.collect() }
    }
}

#[cfg(test)]
mod tests {
    use eirene_files_protocol::Walked;

    use super::*;
    use crate::testing::start_time;

    fn path(text: &str) -> RelativePath {
        if text.is_empty() { RelativePath::default() } else { RelativePath::parse(text.as_bytes()).unwrap() }
    }

    fn measured(text: &str, bytes: u64) -> Measured {
        let directory = KnownDirectory { path: path(text), device: 1, inode: 2 };
        Measured { directory, bytes, entries: 1, own_bytes: 0, own_entries: 0 }
    }

    fn known(directories: &[(&str, u64)]) -> Vec<(Directory, u32)> {
        let directory = |(text, bytes): &(&str, u64)| Directory {
            path: path(text),
            device: 1,
            inode: 2,
            bytes: *bytes,
            files: 1,
            own_bytes: 0,
            own_files: 0,
            at: start_time(),
        };
        directories.iter().map(directory).zip(0..).collect()
    }

    fn end(complete: bool, met: &[u32]) -> Scanned {
        let walked = Walked { bytes: 7, ..Walked::default() };
        Scanned { complete, met: met.to_vec(), approximate: false, walked }
    }

    fn said(records: &[Record]) -> Vec<(String, Option<u64>)> {
        let text = |path: &RelativePath| String::from_utf8_lossy(path.as_bytes()).into_owned();
        let said = |record: &Record| match record {
            Record::Measured(directory) => (text(&directory.path), Some(directory.bytes)),
            Record::Gone(path) => (text(path), None),
            other => panic!("{other:?}"),
        };
        records.iter().map(said).collect()
    }

    fn owned(said: &[(&str, Option<u64>)]) -> Vec<(String, Option<u64>)> {
        said.iter().map(|(text, bytes)| ((*text).to_owned(), *bytes)).collect()
    }

    #[test]
    fn what_was_known_is_added_where_it_was_met_and_is_gone_where_it_was_not() {
        let heard = [measured("a/d", 1), measured("a", 3), measured("e", 2)];
        let known = known(&[("t/a/b", 10), ("t/a/c", 20), ("t/x/y", 40), ("t/e", 80)]);
        let records = whole(&heard, &known, &path("t"), Some(&end(false, &[0])), start_time());
        // `x` was not gone through to its end, so nothing is known of `y`; `e` is another one by now.
        let expected = owned(&[("t/a/c", None), ("t/a/d", Some(1)), ("t/a", Some(13)), ("t/e", Some(2))]);
        assert_eq!(said(&records), expected);
        // Without a last word, nothing is said of what lies above the known.
        let records = whole(&heard, &known, &path("t"), None, start_time());
        assert_eq!(said(&records), owned(&[("t/a/d", Some(1)), ("t/e", Some(2))]));
    }

    #[test]
    fn of_very_many_the_larger_half_is_kept_as_it_came() {
        let mut heard = vec![measured("a", 5), measured("b", 1), measured("c", 3), measured("d", 9)];
        keep_larger_half(&mut heard);
        assert_eq!(heard.iter().map(|one| one.bytes).collect::<Vec<_>>(), [9]);
        let mut heard = vec![measured("a", 5), measured("b", 1), measured("c", 3), measured("d", 9), measured("e", 4)];
        keep_larger_half(&mut heard);
        assert_eq!(heard.iter().map(|one| one.bytes).collect::<Vec<_>>(), [5, 9]);
    }

    #[test]
    fn a_directory_with_something_in_it_that_cannot_be_looked_at_has_a_sum_too() {
        let known = known(&[("a", 10)]);
        let records = whole(&[measured("b", 3)], &known, &path(""), Some(&end(true, &[0])), start_time());
        assert_eq!(said(&records), owned(&[("b", Some(3)), ("", Some(17))]));
        let records = whole(&[measured("b", 3)], &known, &path(""), Some(&end(false, &[0])), start_time());
        assert_eq!(said(&records), owned(&[("b", Some(3))]));
    }
}
