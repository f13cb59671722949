//! What the owner's process is asked to do: look what is old, list it, remove what was listed. Each is an operation of the owner's.

use std::io;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use eirene_core::Space;
use eirene_core::audit::NewAuditEvent;
use eirene_core::file_work::OperationKind;
use eirene_core::old_files::{
    OldFileExample, OldFilesDoubt, OldFilesFound, OldFilesList, OldFilesLook, OldFilesOfOther, OldFilesRemoval,
    OldFilesRule, OldFilesState,
};
use eirene_files_protocol::{
    Answer, ListOld, ListedOld, MOST_OTHERS, MOST_REMOVED_OLD, OldFile, OldOfOther, Part, Progress, RelativePath,
    RemoveOld, Verb,
};
use eirene_words::say_count;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::decide::{is_of_rule, rule_of};
use super::list::{Reader, Writer};
use super::{Inner, Line, PEOPLE_FRESH, Turn, WHO};
use crate::actor::Actor;
use crate::audit::by_system;
use crate::error::AppError;
use crate::events::EventKind;
use crate::files::path::shown;
use crate::files::{Need, Within, answered};
use crate::operations::{Finished, Handle};

/// Files that are shown of a list.
const EXAMPLES: usize = 20;
/// Bytes of one request, as JSON makes them at most: a frame takes a little more.
const MOST_ASKED: usize = 96 * 1024;
/// How long it is taken for certain that removing is right.
const CERTAIN_FOR: Duration = Duration::from_mins(5);
/// Parts of a list that may wait to be written down, each as long as a frame is. A disk that does not keep up is no reason to hold all of it.
const MOST_UNWRITTEN: usize = 256;
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Look what is old, for whoever asked.
    Look,
    /// List it, to be removed by the list.
    List,
    /// Remove what is listed.
    Remove,
}

/// How going through a list ended.
enum Ended {
    /// At its end.
    Through,
    /// It is not to be gone through any more.
    NotWanted,
    /// It cannot be known any more whether it is right.
    Doubt(OldFilesDoubt),
    /// The list cannot be read.
    ListLost,
}

/// A task under way.
struct Working {
    line: Line,
    within: Within,
    rule: OldFilesRule,
    _turn: Option<Turn>,
}

/// Begins a task when its turn has come. It is no operation before: one that waits would keep the person's own from theirs.
pub(super) async fn begin_in_turn(line: Line, owner: Actor, rule: OldFilesRule, task: Task) {
    let (inner, of) = (line.inner.clone(), line.of);
    let Some(turn) = inner.turn(owner.user.id).await else { return };
    let Err(error) = begin(line, owner, rule, task, Some(turn)).await else { return };
    tracing::info!(space.id = %of.space, %error, "Old files could not be looked at");
    if task != Task::Look
        && let Err(error) = inner.doubt(of, OldFilesDoubt::Files).await
    {
        tracing::warn!(space.id = %of.space, %error, "It could not be written why old files were not looked at");
    }
}

/// Begins a task as whose files the line is about, in its `turn` where it has to have one.
///
/// # Errors
/// That the person has no such space now, or as much under way as there may be.
pub(super) async fn begin(
    line: Line,
    owner: Actor,
    rule: OldFilesRule,
    task: Task,
    turn: Option<Turn>,
) -> Result<(), AppError> {
    let (inner, of) = (line.inner.clone(), line.of);
    let need = if task == Task::Look { Need::Read } else { Need::Write };
    let within = inner.parts.files.within_id(&owner, of.space, need).await?;
    let request = json!({"remove": task == Task::Remove, "days": rule.days});
    let working = Working { line, within: within.clone(), rule, _turn: turn };
    let work = move |handle: Handle| async move { working.carry_out(task, &handle).await };
    let operation = inner.parts.operations.begin(&within, OperationKind::OldFiles, request, work).await?;
    if let Some(running) = inner.running().get_mut(&of) {
        *running = Some(operation.id);
    }
    Ok(())
}

impl Working {
    fn inner(&self) -> &Inner {
        &self.line.inner
    }

    fn space(&self) -> &Space {
        self.within.space()
    }

    async fn edit(&self, edit: impl Fn(&mut OldFilesState)) -> Result<OldFilesState, AppError> {
        self.inner().edit(self.line.of, edit).await
    }

    fn audit(&self, action: &'static str, outcome: &'static str, mut details: serde_json::Value) -> NewAuditEvent {
        if self.line.of.member.is_some() {
            details["member"] = json!(self.within.actor().user.username);
        }
        by_system(WHO, action, self.space().name.as_str(), outcome, details)
    }

    async fn carry_out(self, task: Task, handle: &Handle) -> Result<Finished, AppError> {
        let done = match task {
            Task::Look => self.look(handle).await,
            Task::List => self.list(handle).await,
            Task::Remove => self.remove(handle).await,
        };
        if done.is_err() && task != Task::Look {
            self.edit(|state| state.doubt = Some(OldFilesDoubt::Files)).await?;
        }
        done
    }

    async fn look(&self, handle: &Handle) -> Result<Finished, AppError> {
        let at = self.inner().parts.clock.now();
        let found = self.find(handle, at, before(at, self.rule.days)?, None).await?;
        let look = OldFilesLook { at, days: self.rule.days, found };
        self.edit(|state| state.look = Some(look.clone())).await?;
        Ok(finished(&look.found))
    }

    async fn list(&self, handle: &Handle) -> Result<Finished, AppError> {
        let (at, path) = (self.inner().parts.clock.now(), self.inner().path(self.line.of));
        let before = before(at, self.rule.days)?;
        // What is there is another list than the row knows, from the moment on in which the new one has its name.
        self.edit(|state| state.list = None).await?;
        let writer = blocking(move || Writer::begin(path, at)).await?;
        let found = self.find(handle, at, before, Some(writer)).await?;
        let list = OldFilesList {
            at,
            before,
            days: self.rule.days,
            warn_days: self.rule.warn_days,
            dry_run: self.rule.dry_run,
            told_at: None,
            waited_s: 0,
            found,
        };
        // An admin may have exempted it meanwhile.
        let recorded = |_: &OldFilesState| {
            let details = json!({"files": list.found.files, "bytes": list.found.bytes, "dry_run": list.dry_run});
            Some(self.audit("space.old_files_list", "ok", details))
        };
        let keep = |state: &mut OldFilesState| state.list = (!state.exempt).then(|| list.clone());
        let state = self.inner().edit_and_record(self.line.of, recorded, keep).await?;
        if state.list.is_some() && !list.dry_run && list.found.files > 0 {
            self.inner().tell(self.space(), self.line.of).await?;
        }
        Ok(finished(&list.found))
    }

    /// Has the process tell what is old; with a writer, that is written down.
    async fn find(
        &self,
        handle: &Handle,
        now: Timestamp,
        before: Timestamp,
        writer: Option<Writer>,
    ) -> Result<OldFilesFound, AppError> {
        let (said, heard) = sync_channel(MOST_UNWRITTEN);
        let writing = tokio::task::spawn_blocking(move || take_down(&heard, writer));
        let verb = Verb::ListOld(ListOld {
            space: self.within.number(),
            path: RelativePath::default(),
            before: before.as_second(),
            now: now.as_second(),
        });
        let nothing = Progress { entries: 0, bytes: 0 };
        let answer = self
            .within
            .ask_long(handle, verb, nothing, |part| {
                let files = answered!(part, Part::Old(files) => files)?;
                match said.try_send(files) {
                    // Who writes down has ended only where that failed, which is heard below.
                    Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
                    Err(TrySendError::Full(_)) => Err(AppError::Internal(anyhow::anyhow!("the disk does not keep up"))),
                }
            })
            .await;
        drop(said);
        let written = writing.await.map_err(|error| AppError::Internal(error.into()))?;
        let ListedOld { walked, saved, more, others } = answered!(answer?, Answer::ListedOld(listed) => listed)?;
        let (mut found, writer) = written.map_err(|error| AppError::Internal(error.into()))?;
        (found.saved, found.skipped, found.more) = (saved, walked.skipped_in_all, more);
        if self.line.of.member.is_some() {
            let counted = |OldOfOther { uid, files, bytes }| OldFilesOfOther { uid, files, bytes };
            found.others = others.into_iter().take(MOST_OTHERS).map(counted).collect();
        }
        if let Some(writer) = writer {
            blocking(move || writer.finish()).await?;
        }
        Ok(found)
    }

    async fn remove(&self, handle: &Handle) -> Result<Finished, AppError> {
        let Some(list) = self.edit(|_| {}).await?.list else { return Ok(Finished::default()) };
        let begun = self.audit("space.old_files_remove", "begun", json!({"files": list.found.files}));
        self.inner().parts.audit.begin(begun).await?;
        let mut removal = OldFilesRemoval::default();
        let ended = self.go_through(handle, &list, &mut removal).await;
        let (at, now) = (list.at, self.inner().parts.clock.now());
        let recorded = self.edit(|state| {
            if removal != OldFilesRemoval::default() {
                state.removed = Some((now, removal));
            }
            let is_over = matches!(ended, Ok(Ended::Through | Ended::ListLost));
            state.list = state.list.take().filter(|list| !is_over || list.at != at);
            state.doubt = match ended {
                Ok(Ended::Doubt(doubt)) => Some(doubt),
                Ok(Ended::ListLost) => Some(OldFilesDoubt::ListLost),
                Ok(Ended::Through | Ended::NotWanted) | Err(_) => state.doubt,
            };
        });
        let recorded = recorded.await;
        let OldFilesRemoval { files, bytes, kept, gone, failed } = removal;
        let (outcome, why) = match &ended {
            Ok(Ended::Through) => ("ok", None),
            Ok(Ended::NotWanted) => ("stopped", None),
            Ok(Ended::Doubt(doubt)) => ("stopped", Some(*doubt)),
            Ok(Ended::ListLost) => ("failed", Some(OldFilesDoubt::ListLost)),
            Err(_) => ("failed", Some(OldFilesDoubt::Files)),
        };
        let details = json!({"files": files, "bytes": bytes, "kept": kept, "gone": gone, "failed": failed, "why": why});
        self.inner().parts.audit.record(self.audit("space.old_files_remove", outcome, details)).await;
        if files > 0 {
            self.tell_of_removal(files).await;
        }
        recorded?;
        ended.map(|_| Finished { summary: json!({"entries": files, "bytes": bytes}), results: vec![] })
    }

    /// Removes what is listed, as long as that is right.
    async fn go_through(
        &self,
        handle: &Handle,
        list: &OldFilesList,
        removal: &mut OldFilesRemoval,
    ) -> Result<Ended, AppError> {
        let (at, path) = (list.at, self.inner().path(self.line.of));
        let Ok(mut reader) = blocking(move || Reader::open(&path, at)).await else { return Ok(Ended::ListLost) };
        let mut certain = None;
        loop {
            let read = tokio::task::spawn_blocking(move || (reader.next(), reader)).await;
            let (read, same) = read.map_err(|error| AppError::Internal(error.into()))?;
            reader = same;
            let files = match read {
                Ok(Some(files)) => files,
                Ok(None) => return Ok(Ended::Through),
                // Nothing is removed by what cannot be read: it is listed anew, and waits anew.
                Err(_) => return Ok(Ended::ListLost),
            };
            for some in asked_together(&files) {
                if let Some(ended) = self.why_not(list, &mut certain).await? {
                    return Ok(ended);
                }
                self.remove_some(handle, list, some, removal).await?;
            }
        }
    }

    /// Why no more is to be removed by a list, if that is so. Who wants what is asked each time; what could make it a mistake is asked when it was
    /// last `certain` some time ago: it may have taken its turn long after it was found due, and go on for hours.
    async fn why_not(&self, list: &OldFilesList, certain: &mut Option<Instant>) -> Result<Option<Ended>, AppError> {
        let (inner, of) = (self.inner(), self.line.of);
        let state = inner.parts.db.old_files(of).await?;
        let Some(space) = inner.parts.db.space(of.space).await? else { return Ok(Some(Ended::NotWanted)) };
        let rule = inner.rule(&space).map(|rule| rule_of(&state, rule));
        let is_wanted = rule.is_some_and(|rule| !rule.dry_run && is_of_rule(list, rule))
            && !state.exempt
            && space.owner == self.space().owner
            && state.list.is_some_and(|listed| listed.at == list.at && listed.told_at.is_some());
        if !is_wanted {
            return Ok(Some(Ended::NotWanted));
        }
        // The looks go on meanwhile, and see a clock that jumps and a mount that goes.
        if let Some(doubt) = state.doubt {
            return Ok(Some(Ended::Doubt(doubt)));
        }
        if certain.is_none_or(|at| at.elapsed() > CERTAIN_FOR) {
            let people = inner.people(PEOPLE_FRESH).await?;
            let person = self.within.actor().user.id;
            if let Err(doubt) = inner.certain(&space, person, &people, state.seen_at).await {
                return Ok(Some(Ended::Doubt(doubt)));
            }
            *certain = Some(Instant::now());
        }
        Ok(None)
    }

    async fn remove_some(
        &self,
        handle: &Handle,
        list: &OldFilesList,
        files: &[OldFile],
        removal: &mut OldFilesRemoval,
    ) -> Result<(), AppError> {
        let verb = Verb::RemoveOld(RemoveOld {
            space: self.within.number(),
            before: list.before.as_second(),
            now: self.inner().parts.clock.now().as_second(),
            files: files.to_vec(),
        });
        let done = Progress { entries: removal.files, bytes: removal.bytes };
        let answer = self.within.ask_long(handle, verb, done, |_| Err(crate::files::wrong_answer())).await?;
        let removed = answered!(answer, Answer::RemovedOld(removed) => removed)?;
        removal.files = removal.files.saturating_add(removed.walked.entries);
        removal.bytes = removal.bytes.saturating_add(removed.walked.bytes);
        removal.kept = removal.kept.saturating_add(removed.kept);
        removal.gone = removal.gone.saturating_add(removed.gone);
        removal.failed = removal.failed.saturating_add(removed.walked.skipped_in_all);
        handle.progress(Progress { entries: removal.files, bytes: removal.bytes });
        metrics::counter!("eirene_old_files_removed_total").increment(removed.walked.entries);
        metrics::counter!("eirene_old_files_removed_bytes_total").increment(removed.walked.bytes);
        Ok(())
    }

    async fn tell_of_removal(&self, files: u64) {
        let space = self.space();
        let is_shared = self.line.of.member.is_some();
        let key = if is_shared { "space.old_files_of_yours_removed" } else { "space.old_files_removed" };
        let text = say_count(key, files, &[("name", space.title.as_str())]);
        let data = json!({"code": "old_files_removed", "text": text.as_str(), "space": space.name, "files": files});
        let whom = Some(self.within.actor().user.id);
        self.inner().parts.events.publish(EventKind::Notice, None, whom, data).await;
    }
}

/// The time before which a file must have been changed and read last to be old.
fn before(now: Timestamp, days: u32) -> Result<Timestamp, AppError> {
    let age = DAY * i32::try_from(days).unwrap_or(i32::MAX);
    now.checked_sub(age).map_err(|error| AppError::Internal(error.into()))
}

fn finished(found: &OldFilesFound) -> Finished {
    Finished { summary: json!({"entries": found.files, "bytes": found.bytes}), results: vec![] }
}

/// Writes down what comes, and sums it up.
fn take_down(
    heard: &Receiver<Vec<OldFile>>,
    mut writer: Option<Writer>,
) -> io::Result<(OldFilesFound, Option<Writer>)> {
    let mut found = OldFilesFound::default();
    while let Ok(files) = heard.recv() {
        for file in &files {
            found.files += 1;
            found.bytes = found.bytes.saturating_add(file.version.bytes);
            keep_if_large(&mut found.examples, file);
        }
        if let Some(writer) = &mut writer {
            writer.add(&files)?;
        }
    }
    Ok((found, writer))
}

/// Keeps the largest, the largest first.
fn keep_if_large(examples: &mut Vec<OldFileExample>, file: &OldFile) {
    let bytes = file.version.bytes;
    let place = examples.partition_point(|example| example.bytes >= bytes);
    if place < EXAMPLES {
        let (path, raw_path) = shown(file.path.as_bytes());
        let modified_at = Timestamp::from_second(file.version.modified.seconds).ok();
        let changed_at = Timestamp::from_second(file.version.changed.seconds).ok();
        examples.insert(place, OldFileExample { path, raw_path, bytes, modified_at, changed_at });
        examples.truncate(EXAMPLES);
    }
}

/// The same files in pieces, each of which fits into a request.
fn asked_together(files: &[OldFile]) -> impl Iterator<Item = &[OldFile]> {
    let mut rest = files;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |file: &&OldFile| {
            // JSON makes at most six bytes of one.
            bytes += 300 + 6 * file.path.as_bytes().len();
            bytes <= MOST_ASKED
        };
        let many = rest.iter().take(MOST_REMOVED_OLD).take_while(fits).count().max(1).min(rest.len());
        let (some, after) = rest.split_at(many);
        rest = after;
        (!some.is_empty()).then_some(some)
    })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| AppError::Internal(error.into()))?;
    done.map_err(|error| AppError::Internal(error.into()))
}
