//! `eirene fs cp`: which way it goes, several files at a time, and what became of each.

mod across;
mod apart;
mod down;
mod up;

use std::io;

use anyhow::{bail, ensure};
use eirene_core::file_work::OnConflict;
use futures_util::future::LocalBoxFuture;
use futures_util::{Stream, StreamExt as _};
use indicatif::ProgressBar;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::{NotDone, SomeFailed, item, put_place, undone};
use crate::api::{Api, ApiError, code, status};
use crate::arguments::files::{CopyFiles, MoveFiles};
use crate::local::Exists;
use crate::operations::{Interrupted, OperationFailed};
use crate::output;
use crate::place::{Place, Spot};
use crate::transfers::Transfer;

/// Files on their way at a time.
const AT_ONCE: usize = 4;

/// What became of one thing.
struct Outcome {
    from: Place,
    to: Place,
    /// Whether the person named it, so that it is told by itself.
    named: bool,
    did: anyhow::Result<Did>,
}

enum Did {
    /// It was copied: so many bytes, where that is known here.
    Copied(Option<u64>),
    /// It was there already, of the same size and time.
    There,
    /// Something else was there, which was not to be touched.
    Skipped,
}

/// A file to be copied, or what there is to say of something that is none.
enum Step<'a> {
    Copy(LocalBoxFuture<'a, Outcome>),
    Said(Outcome),
}

pub(super) async fn copy(api: &Api, wish: &CopyFiles, json: bool) -> anyhow::Result<()> {
    let spots: Vec<&Spot> = wish.from.iter().filter_map(spot).collect();
    ensure!(
        spots.is_empty() || spots.len() == wish.from.len(),
        "give what lies on this machine and what lies in spaces to commands of their own"
    );
    match (&wish.to, spots.is_empty()) {
        (Place::Space(to), true) => up::copy(api, wish, to, json).await,
        (Place::Local(to), false) => down::copy(api, wish, &spots, to, json).await,
        (Place::Space(to), false) => across::copy(api, wish, &spots, to, json).await,
        (Place::Local(_), true) => {
            bail!("neither is a place in a space, such as `home:data/`: on this machine there is `cp`")
        }
    }
}

/// Moves one thing between this machine and a space, with all in it: it is copied, compared, and removed once all of it is there. Where it lies then.
///
/// # Errors
/// Where anything of it was not copied, or is not the same, all of it stays where it is. What appeared or was changed meanwhile stays in any case.
pub(super) async fn carry(api: &Api, wish: &MoveFiles, from: &Place, to: &Place, json: bool) -> anyhow::Result<Place> {
    let wish = CopyFiles {
        from: vec![from.clone()],
        to: to.clone(),
        recursive: true,
        on_conflict: wish.on_conflict,
        no_clobber: false,
        parents: false,
        // What is sent is compared when it lies there, also what lay there before.
        checksum: matches!(from, Place::Space(_)),
        no_resume: false,
    };
    let carried = match (from, to) {
        (Place::Local(from), Place::Space(to)) => up::carry(api, &wish, from, to, json).await.map(Place::Space),
        (Place::Space(from), Place::Local(to)) => down::carry(api, &wish, from, to, json).await.map(Place::Local),
        _ => bail!("one of both has to be a place in a space, and the other on this machine"),
    };
    carried.map_err(|error| match error.downcast::<SomeFailed>() {
        Ok(some) => {
            NotDone(format!("{some}; the others lie at `{to}` as well, and all of `{from}` stays where it is")).into()
        }
        Err(error) => error,
    })
}

fn spot(place: &Place) -> Option<&Spot> {
    match place {
        Place::Space(spot) => Some(spot),
        Place::Local(_) => None,
    }
}

/// Does what comes, some at a time, until all is done, it makes no sense to go on, or somebody presses Ctrl-C.
async fn run<'a>(steps: impl Stream<Item = Step<'a>>, report: &mut Report<'_>) -> anyhow::Result<()> {
    let outcomes = steps.map(|step| async move {
        match step {
            Step::Copy(copying) => copying.await,
            Step::Said(outcome) => outcome,
        }
    });
    let mut outcomes = std::pin::pin!(outcomes.buffer_unordered(AT_ONCE));
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            outcome = outcomes.next() => match outcome {
                Some(outcome) => report.take(outcome)?,
                None => return Ok(()),
            },
            _ = interrupts.recv() => return Err(INTERRUPTED.into()),
        }
    }
}

const INTERRUPTED: Interrupted = Interrupted("interrupted; the same command goes on where it stopped");

/// Does what can be left undone, unless somebody presses Ctrl-C.
async fn unless_interrupted<T>(doing: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = doing => done,
        _ = interrupts.recv() => Err(INTERRUPTED.into()),
    }
}

/// Tells what became of each, and of all.
struct Report<'a> {
    wish: &'a CopyFiles,
    json: bool,
    bar: &'a ProgressBar,
    /// Whether files are counted that nobody named.
    counts: bool,
    /// Whether it is a part of a move, which tells by itself what became of what was named.
    moves: bool,
    copied: u64,
    bytes: u64,
    there: u64,
    skipped: u64,
    failed: u64,
    /// Directories that this command made, or went on with: it goes on with them until all is well.
    trees: Vec<Transfer>,
}

impl<'a> Report<'a> {
    fn new(wish: &'a CopyFiles, json: bool, bar: &'a ProgressBar) -> Self {
        let counts = wish.recursive && !matches!((&wish.from[..], &wish.to), ([Place::Space(_), ..], Place::Space(_)));
        let (moves, trees) = (false, Vec::new());
        Self { wish, json, bar, counts, moves, copied: 0, bytes: 0, there: 0, skipped: 0, failed: 0, trees }
    }

    /// The same as a part of a move.
    fn of_move(wish: &'a CopyFiles, json: bool, bar: &'a ProgressBar) -> Self {
        Self { counts: false, moves: true, ..Self::new(wish, json, bar) }
    }

    fn take(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        let Outcome { from, to, named, did } = outcome;
        let did = match did {
            Err(error) if self.wish.no_clobber && is_taken(&error) => Ok(Did::Skipped),
            did => did,
        };
        let (state, bytes, sentence) = match did {
            Ok(Did::Copied(bytes)) => {
                self.copied += 1;
                self.bytes += bytes.unwrap_or_default();
                ("copied", bytes, format!("Copied {from} to {to}."))
            }
            Ok(Did::There) => {
                self.there += 1;
                ("there", None, format!("{to} is the same already."))
            }
            Ok(Did::Skipped) => {
                self.skipped += 1;
                ("skipped", None, format!("{to} is there already."))
            }
            Err(error) => return self.failed(&from, &to, named, error),
        };
        if self.moves {
            return Ok(());
        }
        if self.json {
            let mut item = item("from", &from);
            put_place("to", &to, &mut item);
            item.insert("state".to_owned(), state.into());
            if let Some(bytes) = bytes {
                item.insert("bytes".to_owned(), bytes.into());
            }
            return self.bar.suspend(|| output::json_line(&Value::Object(item)));
        }
        if named {
            self.bar.suspend(|| output::say(&sentence));
        }
        Ok(())
    }

    fn failed(&mut self, from: &Place, to: &Place, named: bool, error: anyhow::Error) -> anyhow::Result<()> {
        self.failed += 1;
        if self.moves && named {
            return Err(error);
        }
        if self.json {
            let mut item = item("from", from);
            put_place("to", to, &mut item);
            item.insert("state".to_owned(), "failed".into());
            item.insert("error".to_owned(), format!("{error:#}").into());
            self.bar.suspend(|| output::json_line(&Value::Object(item)))?;
        }
        let single = named && self.wish.from.len() == 1;
        // What helps none of the others ends the command, and what is not done stays undone.
        let error = undone(error, format!("`{from}` was not copied"));
        if single || concerns_all(&error) {
            return Err(error);
        }
        if !self.json {
            self.bar.suspend(|| output::say(&format!("error: {error:#}")));
        }
        Ok(())
    }

    /// How it went. As a part of a move it is not over yet: what it goes on with then, until that is.
    fn end(self) -> anyhow::Result<Vec<Transfer>> {
        self.bar.finish_and_clear();
        let Self { copied, bytes, there, skipped, failed, .. } = self;
        if !self.json && self.counts {
            let files = if copied == 1 { "file" } else { "files" };
            let mut sentence = format!("Copied {copied} {files} ({})", output::bytes(bytes));
            if there > 0 {
                sentence += "; ";
                sentence += &there.to_string();
                sentence += " were the same already";
            }
            if skipped > 0 {
                sentence += "; ";
                sentence += &skipped.to_string();
                sentence += " were there already";
            }
            output::say(&format!("{sentence}."));
        }
        if failed > 0 {
            return Err(SomeFailed { failed, all: copied + there + skipped + failed, done: "copied" }.into());
        }
        if self.moves {
            return Ok(self.trees);
        }
        // All is there: a directory of that name is not this command's any more.
        self.trees.iter().try_for_each(Transfer::forget)?;
        Ok(Vec::new())
    }
}

/// Whether it is only that the name is taken.
fn is_taken(error: &anyhow::Error) -> bool {
    let failed = error.downcast_ref::<OperationFailed>().is_some_and(|failed| failed.code == "exists");
    failed || error.is::<Exists>() || code(error) == Some("exists")
}

/// Whether it would be the same with any other file.
fn concerns_all(error: &anyhow::Error) -> bool {
    let full = error.downcast_ref::<io::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
        )
    });
    let nobody = matches!(error.downcast_ref(), Some(ApiError::Unreachable { .. }));
    full || nobody
        || error.is::<Interrupted>()
        || matches!(status(error), Some(401 | 502 | 503 | 504 | 507))
        || matches!(code(error), Some("insufficient_scope" | "read_only" | "not_found"))
}

/// Whether what was found may be taken for the same, or has to give way; with neither, why it is not copied.
fn beside(found_same: bool, wish: &CopyFiles, to: &Place) -> Option<anyhow::Result<Did>> {
    match wish.on_conflict {
        _ if found_same => Some(Ok(Did::There)),
        OnConflict::Refuse => Some(Err(Exists(to.to_string()).into())),
        OnConflict::KeepBoth | OnConflict::Replace => None,
    }
}

/// Whether a directory that is there under the wished name is one that this same command began with: it goes on then, and is refused else.
fn tree(marks: &[&[u8]], is_there: bool, to: &Place) -> anyhow::Result<Transfer> {
    let tree = Transfer::of(marks)?;
    if is_there && tree.known::<Begun>().is_none() {
        return Err(NotDone(format!("`{to}` is there already: end it with `/` to copy into it")).into());
    }
    tree.remember(&Begun { begun: true })?;
    Ok(tree)
}

/// That a directory was begun with.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Begun {
    begun: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Problem;

    #[test]
    fn what_is_wrong_with_one_file_does_not_keep_the_others_from_being_copied() {
        let refused = |status, code: &str| {
            let problem = Problem { status, code: code.to_owned(), ..Problem::default() };
            if status < 500 { ApiError::Refused(problem) } else { ApiError::Unavailable(problem) }
        };
        let full = || anyhow::Error::from(io::Error::from(io::ErrorKind::StorageFull)).context("there is no room");
        assert!(concerns_all(&full()) && concerns_all(&undone(full(), "not copied".to_owned())));
        for (status, code, all) in [
            (507, "no_space", true),
            (503, "storage_away", true),
            (401, "unauthenticated", true),
            (403, "insufficient_scope", true),
            (403, "permission_denied", false),
            (404, "no_such_path", false),
            (409, "exists", false),
            (500, "files_failed", false),
        ] {
            assert_eq!(concerns_all(&refused(status, code).into()), all, "{code}");
        }
        assert!(is_taken(&refused(409, "exists").into()) && !is_taken(&refused(409, "is_a_directory").into()));
    }
}
