//! What may take long and is therefore an [operation](crate::operations): copies, moves to other file systems, archives that are
//! unpacked, deletions, permissions of all below, searches. What is measured has [rules of its own](crate::scans).

use std::time::Duration;

use eirene_core::file_work::{OnConflict, Operation, OperationKind};
use eirene_core::{Sentence, SpaceName};
use eirene_files_protocol::{
    Answer, Code, Compare, Copied, CopyFiles, Delete, EmptyTrash, Extract, Extracted, Found, MOST_MEMBER_NAME,
    MOST_SKIPPED, Move, Moved, Outcome, Part, PartId, PermissionChange, Progress, PutInTrash, RelativePath, Search,
    SetPermissions, Spot, TrashId, Verb, Walked, Which,
};
use eirene_words::{say_count, say_with};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::changing::{MoveWish, on_conflict};
use super::path::{AskedPath, shown};
use super::{Files, Need, Within, answered};
use crate::actor::Actor;
use crate::error::AppError;
use crate::error::files::FilesTrouble;
use crate::file_processes::{Event, Request};
use crate::operations::{Finished, Handle, Left, Operations, part_of};

/// How long nothing may be heard of work that waits for a thread, or goes through a directory without an end.
const QUIET: Duration = Duration::from_mins(30);
/// How long work that was cancelled may take to clear away what it has made, before somebody else is to look after that.
const CLEARING: Duration = Duration::from_secs(10);

/// Until the operation is known, whose id names the part.
const NO_PART: PartId = PartId([0; 16]);

/// What is searched for.
#[derive(Debug, Clone)]
pub struct SearchWish {
    /// Below which directory.
    pub path: AskedPath,
    /// Of what name.
    pub name: String,
    /// Only of this kind.
    pub kind: Option<eirene_files_protocol::EntryKind>,
    /// At least so large.
    pub least_bytes: Option<u64>,
    /// At most so large.
    pub most_bytes: Option<u64>,
    /// Changed since, in seconds since 1970.
    pub since: Option<i64>,
    /// How many at most.
    pub limit: u32,
}

/// What is copied, and how.
#[derive(Debug, Clone, Copy)]
pub struct CopyWish<'a> {
    /// What, and where to.
    pub places: &'a [MoveWish],
    /// Where something lies already.
    pub conflict: OnConflict,
    /// Whether the same copy is gone on with where it was interrupted, which it is where nothing is said. Where it is wanted in so many words, what
    /// lies there already and is the same counts as copied, whoever put it there.
    pub resume: Option<bool>,
}

impl Files {
    /// Copies things, one after the other.
    pub async fn copy(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        to_space: Option<&SpaceName>,
        wish: CopyWish<'_>,
    ) -> Result<Operation, AppError> {
        actor.require(Need::Write.scope())?;
        let (within, to) = self.two(actor, space, to_space, Need::Read).await?;
        let (places, request) = places(&within, &to, wish.places)?;
        let same_is_done = wish.resume == Some(true);
        let copy = |(from, to): (Spot, Spot)| {
            let (path, on_conflict) = (from.path.clone(), on_conflict(wish.conflict));
            (path, Verb::Copy(CopyFiles { id: NO_PART, earlier: Vec::new(), same_is_done, from, to, on_conflict }))
        };
        let verbs = places.into_iter().map(copy).collect();
        if wish.resume == Some(false) {
            operations.give_up_the_same(&within, OperationKind::Copy, &request).await?;
        }
        self.walk(operations, &within, OperationKind::Copy, "files.copy", request, verbs).await
    }

    /// Moves things, one after the other, also to another file system: there each is copied, the copy is compared, and the original goes into
    /// the trash. Whatever fails or ends on the way leaves the original where it is, and so does an upload into it that is not finished: its bytes
    /// are in no copy.
    pub async fn move_as_operation(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        to_space: Option<&SpaceName>,
        wishes: &[MoveWish],
        conflict: OnConflict,
    ) -> Result<Operation, AppError> {
        let (within, to) = self.two(actor, space, to_space, Need::Write).await?;
        let (places, request) = places(&within, &to, wishes)?;
        let target = to.space().name.clone();
        let asking = within.clone();
        let work = move |handle: Handle| async move {
            let mut all = Walked::default();
            let (mut items, mut refused, mut first) = (Vec::new(), Vec::new(), None);
            for (number, (from, to)) in places.into_iter().enumerate() {
                let path = from.path.clone();
                let wanted = Move { from, to, on_conflict: on_conflict(conflict) };
                match asking.move_one(&handle, number, wanted, &mut all).await {
                    Ok(item) => items.push(item),
                    Err(AppError::Files(trouble)) if !handle.cancelled.is_cancelled() => {
                        refused.push(refusal(&path, &trouble));
                        first.get_or_insert(*trouble);
                    }
                    Err(other) => return Err(other),
                }
            }
            let done = json!({"count": items.len(), "to": target, "entries": all.entries, "bytes": all.bytes});
            asking.note("files.move", done).await;
            match first {
                Some(trouble) if items.is_empty() => Err(trouble.into()),
                _ => {
                    let mut summary = summary(&all);
                    summary["items"] = Value::Array(items);
                    summary["refused"] = Value::Array(refused);
                    Ok(Finished { summary, results: vec![] })
                }
            }
        };
        operations.begin(&within, OperationKind::Move, request, work).await
    }

    /// Makes a new directory of what is in an archive.
    pub async fn extract(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        wish: &MoveWish,
        conflict: OnConflict,
    ) -> Result<Operation, AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let (from, to) = (wish.from.parse_inside()?, wish.to.parse_inside()?);
        let (shown_to, raw_to) = shown(to.as_bytes());
        let request = json!({"path": shown(from.as_bytes()).0, "to": shown_to, "raw_to": raw_to});
        let verb = Verb::Extract(Extract {
            id: NO_PART,
            from: within.spot(from),
            to: within.spot(to),
            on_conflict: on_conflict(conflict),
        });
        let asking = within.clone();
        let work = move |handle: Handle| async move {
            let nothing = Progress { entries: 0, bytes: 0 };
            let verb = with_part(verb, &handle, 0);
            let answer = asking.ask_long(&handle, verb, nothing, |_| Err(super::wrong_answer())).await?;
            let extracted = answered!(answer, Answer::Extracted(extracted) => extracted)?;
            let Extracted { moved, entries, bytes, refused, refused_in_all } = extracted;
            asking.note("files.extract", json!({"count": 1, "entries": entries, "bytes": bytes})).await;
            let (path, raw_path) = shown(moved.path.as_bytes());
            let refused: Vec<Value> = refused
                .iter()
                .take(MOST_SKIPPED)
                .map(|member| {
                    let trouble = FilesTrouble::from(member.why);
                    let name = &member.name.0[..member.name.0.len().min(MOST_MEMBER_NAME)];
                    json!({"path": shown(name).0, "code": trouble.code, "text": trouble.text.as_str()})
                })
                .collect();
            let summary = json!({
                "entries": entries, "bytes": bytes, "path": path, "raw_path": raw_path,
                "trashed": moved.trashed.map(|id| id.to_string()), "skipped": refused, "skipped_in_all": refused_in_all,
            });
            Ok(Finished { summary, results: vec![] })
        };
        operations.begin(&within, OperationKind::Extract, request, work).await
    }

    /// Deletes things for good.
    pub async fn delete(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        paths: &[AskedPath],
    ) -> Result<Operation, AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let (mut verbs, mut asked) = (Vec::new(), Vec::new());
        for path in paths {
            let path = path.parse_inside()?;
            asked.push(shown(path.as_bytes()).0);
            verbs.push((path.clone(), Verb::Delete(Delete { space: within.number(), path })));
        }
        self.walk(operations, &within, OperationKind::Delete, "files.delete", json!({"paths": asked}), verbs).await
    }

    /// Removes one thing from the trash for good, or all of it.
    pub async fn empty_trash(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        one: Option<TrashId>,
    ) -> Result<Operation, AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let which = one.map_or(Which::Before(u64::MAX), Which::One);
        let verb = Verb::EmptyTrash(EmptyTrash { space: within.number(), which });
        let request = json!({"trash": one.map_or("all".to_owned(), |id| id.to_string())});
        let verbs = vec![(RelativePath::default(), verb)];
        self.walk(operations, &within, OperationKind::Delete, "files.empty_trash", request, verbs).await
    }

    /// Changes who may do what with a directory and all in it.
    pub async fn set_permissions_below(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        path: &AskedPath,
        change: PermissionChange,
    ) -> Result<Operation, AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let path = path.parse_inside()?;
        let request = json!({"path": shown(path.as_bytes()).0});
        let set = SetPermissions { space: within.number(), path: path.clone(), change, recursive: true };
        let verbs = vec![(path, Verb::SetPermissions(set))];
        self.walk(operations, &within, OperationKind::Permissions, "files.permissions", request, verbs).await
    }

    /// Searches by name.
    pub async fn search(
        &self,
        operations: &Operations,
        actor: &Actor,
        space: &SpaceName,
        wish: SearchWish,
    ) -> Result<Operation, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = wish.path.parse()?;
        let request = json!({"path": shown(path.as_bytes()).0, "name": wish.name});
        let verb = Verb::Search(Search {
            space: within.number(),
            path: path.clone(),
            name: wish.name,
            kind: wish.kind,
            least_bytes: wish.least_bytes,
            most_bytes: wish.most_bytes,
            since: wish.since,
            limit: wish.limit,
        });
        let asking = within.clone();
        let work = move |handle: Handle| async move {
            let mut found = Vec::new();
            let answer = asking
                .ask_long(&handle, verb, Progress { entries: 0, bytes: 0 }, |part| {
                    let some = answered!(part, Part::Found(some) => some)?;
                    found.extend(some.iter().map(|one| show_found(&path, one)));
                    Ok(())
                })
                .await?;
            let searched = answered!(answer, Answer::Searched(searched) => searched)?;
            let mut summary = summary(&searched.walked);
            summary["found"] = json!(found.len());
            summary["more"] = json!(searched.more);
            Ok(Finished { summary, results: found })
        };
        operations.begin(&within, OperationKind::Search, request, work).await
    }

    /// Work that goes through directories and answers with what it did and left alone, one verb after the other. One that fails does not keep
    /// the others from being tried; where none was done, why is what came of it.
    async fn walk(
        &self,
        operations: &Operations,
        within: &Within,
        kind: OperationKind,
        action: &'static str,
        request: Value,
        verbs: Vec<(RelativePath, Verb)>,
    ) -> Result<Operation, AppError> {
        let asking = within.clone();
        let work = move |handle: Handle| async move {
            let mut all = Walked::default();
            let (mut refused, mut first, mut done) = (Vec::new(), None, 0_usize);
            for (number, (path, verb)) in verbs.into_iter().enumerate() {
                let verb = with_part(verb, &handle, number);
                let before = Progress { entries: all.entries, bytes: all.bytes };
                let answer = asking.ask_long(&handle, verb, before, |_| Err(super::wrong_answer())).await;
                match answer.and_then(walked) {
                    Ok(some) => {
                        done += 1;
                        add(&mut all, some);
                    }
                    Err(AppError::Files(trouble)) if !handle.cancelled.is_cancelled() => {
                        refused.push(refusal(&path, &trouble));
                        first.get_or_insert(*trouble);
                    }
                    Err(other) => return Err(other),
                }
            }
            asking.note(action, json!({"count": done, "entries": all.entries, "bytes": all.bytes})).await;
            match first {
                Some(trouble) if done == 0 => Err(trouble.into()),
                _ => {
                    let mut summary = summary(&all);
                    summary["refused"] = Value::Array(refused);
                    Ok(Finished { summary, results: vec![] })
                }
            }
        };
        operations.begin(within, kind, request, work).await
    }
}

impl Within {
    /// Moves one thing: by its name where that can be, else by a copy. Where it lies now; `all` gets what was gone through for it.
    async fn move_one(
        &self,
        handle: &Handle,
        number: usize,
        wanted: Move,
        all: &mut Walked,
    ) -> Result<Value, AppError> {
        let before = |all: &Walked| Progress { entries: all.entries, bytes: all.bytes };
        let nothing = |_| Err(super::wrong_answer());
        match self.ask_long(handle, Verb::Move(wanted.clone()), before(all), nothing).await {
            Ok(answer) => {
                let moved = answered!(answer, Answer::Moved(moved) => moved)?;
                all.entries = all.entries.saturating_add(1);
                return Ok(show_moved(&moved, None));
            }
            Err(AppError::Files(trouble)) if trouble.is_other_file_system() => {}
            Err(error) => return Err(error),
        }
        let Move { from, to, on_conflict } = wanted;
        let unfinished = async || {
            let directory = handle.upload_into(&from.path).await?;
            Ok::<_, AppError>(directory.map(|path| FilesTrouble::upload_unfinished(&shown(path.as_bytes()).0)))
        };
        // Nothing is copied for nothing: their own are known, and anybody's lie there, also what was given up and is not cleared away yet.
        if let Some(trouble) = unfinished().await? {
            return Err(trouble.into());
        }
        let answer = self.ask_long(handle, Verb::FindUnfinished(from.clone()), before(all), nothing).await?;
        if let Some(directory) = answered!(answer, Answer::FoundUnfinished { directory } => directory)? {
            return Err(FilesTrouble::upload_unfinished(&below(&from.path, &directory).0).into());
        }
        // What lies there already may be anybody's: the original goes only for a copy that was made for it.
        let copy = CopyFiles {
            id: NO_PART,
            earlier: Vec::new(),
            same_is_done: false,
            from: from.clone(),
            to: to.clone(),
            on_conflict,
        };
        let copy = with_part(Verb::Copy(copy), handle, number);
        let answer = self.ask_long(handle, copy, before(all), nothing).await?;
        let Copied { moved, walked } = answered!(answer, Answer::Copied(copied) => copied)?;
        let left_out = left_out(&from.path, &walked);
        add(all, walked);
        // Nothing below is a failure of the copy: that lies there, whole or not, and who asked has to know it.
        let kept = |trouble: &FilesTrouble| AppError::from(FilesTrouble::original_kept(&trouble.text));
        if let Some(why) = left_out {
            return Err(FilesTrouble::original_kept(&why).into());
        }
        let compare = Compare { from: from.clone(), to: Spot { space: to.space, path: moved.path.clone() } };
        let compared = match self.ask_long(handle, Verb::Compare(compare), before(all), nothing).await {
            Ok(answer) => answered!(answer, Answer::Compared(walked) => walked)?,
            Err(AppError::Files(trouble)) => return Err(kept(&trouble)),
            Err(other) => return Err(other),
        };
        if compared.skipped_in_all > 0 {
            let first = compared.skipped.first();
            let path = first.map_or_else(|| shown(from.path.as_bytes()).0, |first| below(&from.path, &first.path).0);
            let why = match first.map(|first| first.why) {
                Some(Code::UploadUnfinished) => FilesTrouble::upload_unfinished(&path).text,
                Some(Code::NotWhole) => FilesTrouble::not_whole(&path).text,
                _ => say_with("problem.original_changed", &[("path", &path)]),
            };
            return Err(FilesTrouble::original_kept(&why).into());
        }
        if let Some(trouble) = unfinished().await? {
            return Err(kept(&trouble));
        }
        let put = PutInTrash { space: from.space, path: from.path.clone() };
        match self.ask_long(handle, Verb::PutInTrash(put), before(all), nothing).await {
            Ok(answer) => {
                let id = answered!(answer, Answer::PutInTrash { id } => id)?;
                Ok(show_moved(&moved, Some(id)))
            }
            Err(AppError::Files(trouble)) => Err(kept(&trouble)),
            Err(other) => Err(other),
        }
    }

    /// Asks for what takes long, until it is done or no longer wanted; what was done `before` is added to how far it is.
    pub(crate) async fn ask_long(
        &self,
        handle: &Handle,
        verb: Verb,
        before: Progress,
        take: impl FnMut(Part) -> Result<(), AppError>,
    ) -> Result<Answer, AppError> {
        let is_copy = matches!(verb, Verb::Copy(_));
        let leaves = is_copy || matches!(verb, Verb::Extract(_));
        let mut request = self.channel().await?.start(verb).await?;
        if is_copy {
            // A portal that ends drops this, too: what was copied stays then, to be gone on with.
            request.outlive();
        }
        let answer = hear(&mut request, handle, leaves, before, take).await;
        // However it ended but well, nobody wants it any more.
        request.cancel();
        answer
    }
}

/// What is heard of a request, until it is done or no longer wanted. Of one that `leaves` something where it is not cleared away, it is noted when nobody
/// says that it was.
async fn hear(
    request: &mut Request,
    handle: &Handle,
    leaves: bool,
    before: Progress,
    mut take: impl FnMut(Part) -> Result<(), AppError>,
) -> Result<Answer, AppError> {
    let leave = |left| {
        if leaves {
            handle.leave(left);
        }
    };
    loop {
        let event = tokio::select! {
            () = handle.cancelled.cancelled() => {
                request.cancel();
                if leaves && !timeout(CLEARING, clears_away(request)).await.unwrap_or(false) {
                    handle.leave(Left::Unwanted);
                }
                return Err(FilesTrouble::cancelled().into());
            }
            event = timeout(QUIET, request.next()) => event,
        };
        let event = match event {
            Ok(Ok(event)) => event,
            Ok(Err(error)) => {
                leave(Left::Kept);
                return Err(error.into());
            }
            // Its process is there, and may still write to it.
            Err(_) => {
                leave(Left::Unwanted);
                return Err(FilesTrouble::away(60).into());
            }
        };
        match event {
            Event::Part(part) => take(part)?,
            Event::Progress(Progress { entries, bytes }) => handle.progress(Progress {
                entries: before.entries.saturating_add(entries),
                bytes: before.bytes.saturating_add(bytes),
            }),
            Event::Outcome(Outcome::Done(answer)) => return Ok(answer),
            Event::Outcome(Outcome::Problem(problem)) => {
                if keeps_from_clearing(problem.code) {
                    leave(Left::Unwanted);
                }
                return Err(problem.into());
            }
        }
    }
}

/// Whether a request that was cancelled says its last word, and has cleared away by then.
async fn clears_away(request: &mut Request) -> bool {
    loop {
        match request.next().await {
            Ok(Event::Outcome(Outcome::Problem(problem))) => return !keeps_from_clearing(problem.code),
            Ok(Event::Outcome(Outcome::Done(_))) => return true,
            Ok(Event::Part(_) | Event::Progress(_)) => {}
            Err(_) => return false,
        }
    }
}

/// Whether what ended the work of a process may also have kept it from clearing away.
fn keeps_from_clearing(code: Code) -> bool {
    matches!(code, Code::Away | Code::CutOff)
}

/// From where to where, and all of it as the operation's row has it.
fn places(within: &Within, to: &Within, wishes: &[MoveWish]) -> Result<(Vec<(Spot, Spot)>, Value), AppError> {
    let places = wishes.iter().map(|wish| wish.spots(within, to)).collect::<Result<Vec<_>, _>>()?;
    let asked: Vec<Value> = places.iter().map(|(from, target)| from_to(&from.path, &target.path)).collect();
    let request = json!({"items": asked, "to_space": to.space().name});
    Ok((places, request))
}

/// From where to where, as an operation's row has it.
fn from_to(from: &RelativePath, to: &RelativePath) -> Value {
    let ((path, raw_path), (to, raw_to)) = (shown(from.as_bytes()), shown(to.as_bytes()));
    json!({"path": path, "raw_path": raw_path, "to": to, "raw_to": raw_to})
}

/// What was not done, and why.
fn refusal(path: &RelativePath, trouble: &FilesTrouble) -> Value {
    let (path, raw_path) = shown(path.as_bytes());
    json!({"path": path, "raw_path": raw_path, "code": trouble.code, "text": trouble.text.as_str()})
}

/// Where something lies now, what had to give way, and what became of the original where it was copied.
fn show_moved(moved: &Moved, original: Option<TrashId>) -> Value {
    let (path, raw_path) = shown(moved.path.as_bytes());
    let id = |id: TrashId| id.to_string();
    json!({"path": path, "raw_path": raw_path, "trashed": moved.trashed.map(id), "original": original.map(id)})
}

/// What a copy has not of what was at that path; none where it is whole.
fn left_out(from: &RelativePath, walked: &Walked) -> Option<Sentence> {
    let n = walked.skipped_in_all;
    let first = walked.skipped.first();
    let path = first.map_or_else(|| shown(from.as_bytes()).0, |first| below(from, &first.path).0);
    let why = FilesTrouble::from(first.map_or(Code::Failed, |first| first.why)).text;
    let values = [("path", path.as_str()), ("why", why.as_str())];
    (n > 0).then(|| say_count("problem.copied_in_part", n, &values))
}

/// The verb, with the name of what is not whole yet where it makes something, and what the same that were interrupted called it. Of a copy that goes on
/// what had its name already, when the portal ended, is done.
fn with_part(mut verb: Verb, handle: &Handle, number: usize) -> Verb {
    let id = part_of(handle.id(), number);
    match &mut verb {
        Verb::Copy(copy) => {
            copy.id = id;
            copy.earlier = handle.earlier().iter().map(|earlier| part_of(*earlier, number)).collect();
            copy.same_is_done |= handle.kind() == OperationKind::Copy && !copy.earlier.is_empty();
        }
        Verb::Extract(extract) => extract.id = id,
        _ => {}
    }
    verb
}

fn walked(answer: Answer) -> Result<Walked, AppError> {
    match answer {
        Answer::Removed(walked) | Answer::PermissionsSet(walked) => Ok(walked),
        Answer::Copied(copied) => Ok(copied.walked),
        _ => Err(super::wrong_answer()),
    }
}

fn add(all: &mut Walked, some: Walked) {
    all.entries = all.entries.saturating_add(some.entries);
    all.bytes = all.bytes.saturating_add(some.bytes);
    all.skipped_in_all = all.skipped_in_all.saturating_add(some.skipped_in_all);
    let room = MOST_SKIPPED.saturating_sub(all.skipped.len());
    all.skipped.extend(some.skipped.into_iter().take(room));
}

fn summary(walked: &Walked) -> Value {
    json!({
        "entries": walked.entries, "bytes": walked.bytes, "skipped": skipped(walked), "skipped_in_all": walked.skipped_in_all,
    })
}

/// What was left alone, and why.
pub fn skipped(walked: &Walked) -> Vec<Value> {
    let show = |skipped: &eirene_files_protocol::Skipped| {
        let trouble = FilesTrouble::from(skipped.why);
        let (path, raw_path) = shown(skipped.path.as_bytes());
        json!({"path": path, "raw_path": raw_path, "code": trouble.code, "text": trouble.text.as_str()})
    };
    walked.skipped.iter().map(show).collect()
}

/// A path below another, for who asks for it again.
fn below(directory: &RelativePath, path: &RelativePath) -> (String, Option<String>) {
    match (directory.is_space(), path.is_space()) {
        (true, _) => shown(path.as_bytes()),
        (false, true) => shown(directory.as_bytes()),
        (false, false) => shown(&[directory.as_bytes(), b"/", path.as_bytes()].concat()),
    }
}

fn show_found(directory: &RelativePath, found: &Found) -> Value {
    let (path, raw_path) = below(directory, &found.path);
    json!({
        "path": path, "raw_path": raw_path, "kind": found.kind, "size_bytes": found.bytes,
        "modified_at": found.modified.and_then(|at| jiff::Timestamp::from_second(at.seconds).ok()),
    })
}
