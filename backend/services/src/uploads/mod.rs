//! Uploads that go on where they stopped, whatever ended meanwhile: the browser, this portal, the person's file process.
//!
//! A row says whose an upload is and where the file shall lie. How far it has come is asked of the file process each time and kept nowhere here.
//! The row is written before anything is made and removed after everything is, so that nothing lies in a space that no row knows of. The last
//! byte gives the file its name; an upload that has all its bytes and could not get its name says why whenever it is asked about.

mod flow;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use eirene_core::file_work::{OnConflict, Upload, UploadState};
use eirene_core::{Clock, Scope, SpaceName, UploadId, UserId};
use eirene_database::Db;
use eirene_files_protocol::{
    self as protocol, Answer, Checksum, Code, CreateUpload, Digest, Moment, Name, PartSpot, RelativePath, Verb,
    WriteUpload,
};
use eirene_words::say_with;
use futures_util::Stream;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

pub use self::flow::{Quiet, discard};
use super::actor::{Actor, Via};
use super::files::{Files, Need, Transfer, Within, answered};
use crate::cause;
use crate::error::AppError;
use crate::error::files::{FilesTrouble, Kind};
use crate::shared::Shared;

/// The largest upload, bytes: the largest file there can be.
pub const MOST_BYTES: u64 = i64::MAX as u64;
/// Most uploads of one person that are not finished.
const MOST_OPEN: usize = 200;
/// That somebody goes on with an upload is written down as often as this at most: twice for each piece the database's disk would be waited for.
const SEEN_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// How long it is known that an upload was finished.
const FINISHED_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Most uploads that are looked at in one run that removes what is left over.
const MOST_CLEARED: u32 = 1000;
/// Most time between two such looks, which are made once an hour: what is more was a pause or a clock that jumped.
const LOOKS_APART: SignedDuration = SignedDuration::from_hours(2);
/// For how long an upload has to have been seen to be over, by a clock that went on as clocks do, before it is removed, seconds.
const SURELY_OVER_S: u64 = 24 * 60 * 60;

/// Uploads. Cheap to clone.
#[derive(Clone)]
pub struct Uploads {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    files: Files,
    /// How long an upload is kept that nobody goes on with.
    kept: SignedDuration,
    quiet: Quiet,
    /// When this portal last looked for uploads that are over.
    last_look: Mutex<Option<Timestamp>>,
}

/// A new upload.
#[derive(Debug, Clone)]
pub struct NewUpload {
    /// Where the file shall lie; not the space itself.
    pub path: RelativePath,
    /// Its size, bytes.
    pub length: u64,
    /// SHA-256 of the whole, to be compared.
    pub sha256: Option<Digest<32>>,
    /// Last change of content.
    pub modified: Option<Moment>,
    /// Where the name is taken.
    pub on_conflict: OnConflict,
    /// Whether directories on the way are made.
    pub parents: bool,
}

/// Bytes that are announced.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Where they begin.
    pub offset: u64,
    /// How many, where that is said.
    pub bytes: Option<u64>,
    /// What they have to add up to.
    pub checksum: Option<Checksum>,
}

/// An upload as it stands.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The row.
    pub upload: Upload,
    /// Where it goes on.
    pub offset: u64,
}

/// An upload whose next bytes may come.
pub struct Ready {
    uploads: Uploads,
    within: Within,
    upload: Upload,
    piece: Piece,
    place: Transfer,
}

impl Seen {
    /// Where the file was to lie.
    ///
    /// # Errors
    /// A row that makes no sense.
    pub fn wanted(&self) -> Result<RelativePath, AppError> {
        below(&self.upload, &self.upload.file_name)
    }

    /// Where the file lies, once it is whole.
    ///
    /// # Errors
    /// A row that makes no sense.
    pub fn path(&self) -> Result<Option<RelativePath>, AppError> {
        self.upload.final_name.as_ref().map(|name| below(&self.upload, name)).transpose()
    }
}

impl Uploads {
    /// Uploads into the spaces of `files`, each kept for so many days after its last byte.
    pub fn new(db: Db, clock: Arc<dyn Clock>, files: Files, days: u32) -> Self {
        let kept = SignedDuration::from_hours(24) * i32::try_from(days).unwrap_or(i32::MAX);
        let inner = Inner { db, clock, files, kept, quiet: Quiet::default(), last_look: Mutex::default() };
        Self { inner: Shared::new(inner) }
    }

    /// The largest upload that may be made.
    pub fn most(&self, actor: &Actor) -> Result<u64, AppError> {
        actor.require(Scope::FilesWrite)?;
        Ok(MOST_BYTES)
    }

    /// The same, for somebody who may put files into this space; for everybody else it is not there, whatever they say about files.
    pub async fn most_in(&self, actor: &Actor, space: &SpaceName) -> Result<u64, AppError> {
        self.inner.files.within(actor, space, Need::Write).await?;
        self.most(actor)
    }

    /// Makes an upload. One of no bytes is finished at once.
    pub async fn create(&self, actor: &Actor, space: &SpaceName, new: NewUpload) -> Result<Seen, AppError> {
        let within = self.inner.files.within(actor, space, Need::Write).await?;
        let (directory, name) =
            new.path.split_last().ok_or_else(|| AppError::from(FilesTrouble::from(Code::Exists)))?;
        if self.inner.db.open_uploads(actor.user.id).await?.len() >= MOST_OPEN {
            let text = say_with("problem.too_many_uploads", &[("n", &MOST_OPEN.to_string())]);
            return Err(AppError::Conflict { code: "too_many_uploads", text });
        }
        let now = self.inner.clock.now();
        let upload = Upload {
            id: UploadId::generate(),
            user: actor.user.id,
            space: within.space().id,
            directory: directory.as_bytes().to_vec(),
            file_name: name.as_bytes().to_vec(),
            length: Some(new.length),
            checksum: new.sha256.map(|sum| sum.to_string()),
            on_conflict: new.on_conflict,
            state: UploadState::Open,
            final_name: None,
            created_at: now,
            last_seen_at: now,
            expires_at: now + self.inner.kept,
        };
        let verb = Verb::CreateUpload(CreateUpload {
            part: spot(&within, &upload)?,
            name,
            length: Some(new.length),
            sha256: new.sha256,
            modified: new.modified,
            on_conflict: as_protocol(new.on_conflict),
            parents: new.parents,
        });
        // Where the process cannot be asked, nothing is written down; where its answer is lost, the row says what has to be removed.
        let channel = within.channel().await?;
        self.inner.db.insert_upload(&upload).await?;
        if let Err(problem) = channel.ask(verb).await?.outcome {
            self.inner.db.delete_upload(upload.id).await?;
            return Err(problem.into());
        }
        if new.length == 0 {
            return self.finish(within, upload).await;
        }
        Ok(Seen { upload, offset: 0 })
    }

    /// Makes an upload with its first bytes. Where more of them can come later it is there with what came; where not it is not there.
    pub async fn create_with<B, E>(
        &self,
        actor: &Actor,
        space: &SpaceName,
        new: NewUpload,
        first: Piece,
        body: B,
        moved: impl Fn() + Send + Sync + 'static,
    ) -> Result<Seen, AppError>
    where
        B: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
        E: Send + 'static,
    {
        let made = self.create(actor, space, new).await?;
        if made.upload.state == UploadState::Finished {
            return Ok(made);
        }
        let id = made.upload.id;
        let taken = match self.ready(actor, id, first).await {
            Ok(ready) => ready.take(body, moved).await,
            Err(error) => Err(error),
        };
        let Err(AppError::Files(trouble)) = &taken else { return taken };
        if matches!(trouble.kind, Kind::BrokenOff | Kind::NoRoom | Kind::TooMany | Kind::Away) {
            return Ok(Seen { offset: trouble.bytes.unwrap_or(0), ..made });
        }
        self.end(actor, id).await?;
        taken
    }

    /// How an upload stands. One that has all its bytes gets its name now, if it could not before.
    pub async fn look(&self, actor: &Actor, id: UploadId) -> Result<Seen, AppError> {
        let (within, upload) = self.own(actor, id).await?;
        if upload.state == UploadState::Finished {
            return Ok(Seen { offset: upload.length.unwrap_or(0), upload });
        }
        self.check_end(&upload)?;
        let done = within.ask(Verb::LookAtUpload(spot(&within, &upload)?)).await?;
        let state = answered!(done.answer, Answer::Upload(state) => state)?;
        if state.finished.is_some() || Some(state.offset) == upload.length {
            return self.finish(within, upload).await;
        }
        Ok(Seen { upload, offset: state.offset })
    }

    /// An upload to which these bytes can be added, and a place for the transfer.
    pub async fn ready(&self, actor: &Actor, id: UploadId, piece: Piece) -> Result<Ready, AppError> {
        let (within, upload) = self.own(actor, id).await?;
        let length = upload.length.unwrap_or(MOST_BYTES);
        let finished = || FilesTrouble { bytes: Some(length), ..FilesTrouble::from(Code::OffsetDiffers) };
        if upload.state == UploadState::Finished {
            return Err(finished().into());
        }
        self.check_end(&upload)?;
        if piece.offset.saturating_add(piece.bytes.unwrap_or(0)) > length {
            return Err(AppError::TooLarge);
        }
        let place = self.inner.files.transfer(actor.user.id)?;
        // Whoever goes on with it now is not too late while they do.
        if self.seen(&upload).await?.is_none() {
            // It was finished a moment ago, or what is left of it is being removed.
            let now = self.inner.db.upload(id).await?;
            let is_finished = now.is_some_and(|now| now.state == UploadState::Finished);
            let why = if is_finished { finished() } else { FilesTrouble::from(Code::UploadGone) };
            return Err(why.into());
        }
        Ok(Ready { uploads: self.clone(), within, upload, piece, place })
    }

    /// Ends an upload: what came of it is removed. Of a finished one only that it was one is forgotten.
    pub async fn end(&self, actor: &Actor, id: UploadId) -> Result<(), AppError> {
        let (within, upload) = self.own(actor, id).await?;
        if upload.state == UploadState::Open {
            self.remove(&within, &upload).await?;
        }
        Ok(self.inner.db.delete_upload(id).await?)
    }

    /// Removes what is left of uploads that are over, as the people they are of. Over is what was seen to be so for a day in which the clock went on as
    /// clocks do: one that jumped ends no upload until somebody could see to it. What was counted is kept, so that a portal that is restarted loses
    /// the time in between and no more. Of what cannot be asked about nothing is known, and it is left for the next time; `most` is how long a run may
    /// begin something.
    pub async fn clear(&self, most: Duration) -> Result<(), AppError> {
        let begun = std::time::Instant::now();
        let now = self.inner.clock.now();
        let last = self.inner.last_look.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        self.inner.db.count_left_over(now, passed_s(last, now)).await?;
        let left_over = self.inner.db.left_over_uploads(now, SURELY_OVER_S, MOST_CLEARED).await?;
        let mut silent: HashSet<UserId> = HashSet::new();
        for upload in left_over {
            if begun.elapsed() > most {
                break;
            }
            if silent.contains(&upload.user) {
                continue;
            }
            let (id, user) = (upload.id, upload.user);
            match self.clear_one(upload).await {
                Ok(()) => {}
                // Each question that hangs costs its whole patience.
                Err(AppError::Files(trouble)) if trouble.kind == Kind::Away => drop(silent.insert(user)),
                Err(error) => tracing::warn!(upload.id = %id, %error, "What is left of an upload could not be removed"),
            }
        }
        for user in silent {
            tracing::warn!(user.id = %user, "A person's storage did not answer about uploads that are over");
        }
        Ok(())
    }

    async fn clear_one(&self, upload: Upload) -> Result<(), AppError> {
        let Some(user) = self.inner.db.user(upload.user).await? else { return Ok(()) };
        let person = Actor { user, via: Via::Cli, address: None, request_id: None };
        let within = self.inner.files.within_id(&person, upload.space, Need::Write).await?;
        let verb = Verb::LookAtUpload(spot(&within, &upload)?);
        match within.channel().await?.ask(verb).await?.outcome {
            // It had its name before this portal could write that down.
            Ok(Answer::Upload(state)) if state.finished.is_some() => {
                self.finish(within, upload).await?;
                return Ok(());
            }
            Ok(_) => {}
            // So it is also below a mount point whose file system is away: the row is the last that knows of what lies there.
            Err(problem) if matches!(problem.code, Code::UploadGone | Code::NotFound) => {
                if self.inner.clock.now() < upload.expires_at + self.inner.kept {
                    return Ok(());
                }
            }
            Err(problem) => return Err(problem.into()),
        }
        // Its row was read before all questions of this run: somebody may have gone on with it since.
        if self.inner.db.claim_left_over(upload.id, self.inner.clock.now(), SURELY_OVER_S).await? {
            self.remove(&within, &upload).await?;
            self.inner.db.delete_upload(upload.id).await?;
        }
        Ok(())
    }

    /// A person's own upload; anybody else's is not there.
    async fn own(&self, actor: &Actor, id: UploadId) -> Result<(Within, Upload), AppError> {
        actor.require(Scope::FilesWrite)?;
        let upload = self.inner.db.upload(id).await?.ok_or(AppError::NotFound)?;
        if upload.user != actor.user.id {
            return Err(AppError::Hidden);
        }
        let within = self.inner.files.within_id(actor, upload.space, Need::Write).await?;
        Ok((within, upload))
    }

    fn check_end(&self, upload: &Upload) -> Result<(), AppError> {
        let over = upload.expires_at <= self.inner.clock.now();
        if over { Err(FilesTrouble::from(Code::UploadGone).into()) } else { Ok(()) }
    }

    /// Writes down that somebody goes on with it, where that was not done a moment ago; until when it is kept is given back, and nothing where nobody
    /// can go on with it any more.
    async fn seen(&self, upload: &Upload) -> Result<Option<Timestamp>, AppError> {
        let now = self.inner.clock.now();
        if (SignedDuration::ZERO..SEEN_EVERY).contains(&now.duration_since(upload.last_seen_at)) {
            return Ok(Some(upload.expires_at));
        }
        let expires_at = now + self.inner.kept;
        Ok(self.inner.db.upload_seen(upload.id, now, expires_at, None).await?.then_some(expires_at))
    }

    /// Gives what is whole its name. Goes on when nobody waits for it any more: the sum of the whole may have to be made again.
    async fn finish(&self, within: Within, upload: Upload) -> Result<Seen, AppError> {
        let uploads = self.clone();
        let finishing = cause::spawn(async move { uploads.finish_now(&within, upload).await });
        finishing.await.map_err(|error| AppError::Internal(error.into()))?
    }

    async fn finish_now(&self, within: &Within, mut upload: Upload) -> Result<Seen, AppError> {
        let spot = spot(within, &upload)?;
        let done = within.ask(Verb::FinishUpload(spot.clone())).await?;
        let moved = answered!(done.answer, Answer::Moved(moved) => moved)?;
        let name = moved.path.split_last().map(|(_, name)| name);
        let name = name.ok_or_else(super::files::wrong_answer)?.as_bytes().to_vec();
        let now = self.inner.clock.now();
        let bytes = upload.length.unwrap_or(0);
        if self.inner.db.finish_upload(upload.id, &name, now, now + FINISHED_KEPT).await? {
            within.note("files.upload", json!({"bytes": bytes})).await;
        }
        upload.state = UploadState::Finished;
        upload.final_name = Some(name);
        upload.expires_at = now + FINISHED_KEPT;
        // What the process has noted of it is known here now. Where that cannot be removed, a small hidden file stays.
        if let Err(error) = within.ask(Verb::RemovePart(spot)).await {
            tracing::warn!(upload.id = %upload.id, %error, "The notes on a finished upload could not be removed");
        }
        Ok(Seen { upload, offset: bytes })
    }

    /// Removes what came of it. Where the directory is gone, so is that.
    async fn remove(&self, within: &Within, upload: &Upload) -> Result<(), AppError> {
        let verb = Verb::RemovePart(spot(within, upload)?);
        match within.channel().await?.ask(verb).await?.outcome {
            Ok(Answer::Removed(_)) => Ok(()),
            Ok(_) => Err(super::files::wrong_answer()),
            Err(problem) if problem.code == Code::NotFound => Ok(()),
            Err(problem) => Err(problem.into()),
        }
    }
}

impl Ready {
    /// Takes the bytes as fast as the storage does, and finishes the upload with the last of them. What came counts, however it ends: whoever
    /// stops sending for a minute is let go, and one that goes away cuts nothing short of what they had sent. `moved` is called whenever bytes
    /// move.
    ///
    /// # Errors
    /// As [`AppError`] says; with [`FilesTrouble::bytes`] it says where the upload goes on.
    pub async fn take<B, E>(self, body: B, moved: impl Fn() + Send + Sync + 'static) -> Result<Seen, AppError>
    where
        B: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
        E: Send + 'static,
    {
        // A connection that ends takes its handler along, and not this.
        let taking = cause::spawn(self.take_now(body, moved));
        taking.await.map_err(|error| AppError::Internal(error.into()))?
    }

    async fn take_now<B, E>(self, mut body: B, moved: impl Fn() + Send + Sync) -> Result<Seen, AppError>
    where
        B: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
    {
        let Self { uploads, within, mut upload, piece, place } = self;
        let verb = Verb::WriteUpload(WriteUpload {
            part: spot(&within, &upload)?,
            offset: piece.offset,
            bytes: piece.bytes,
            length: None,
            checksum: piece.checksum,
        });
        let (request, stream) = within.begin(verb).await?;
        let (outcome, whole) = flow::feed(request, stream, &mut body, &moved, uploads.inner.quiet).await?;
        drop(place);
        let state = answered!(outcome?, Answer::Upload(state) => state)?;
        // One that was ended meanwhile is gone for the next bytes, or for whoever finishes it.
        upload.expires_at = uploads.seen(&upload).await?.unwrap_or(upload.expires_at);
        if Some(state.offset) == upload.length {
            return uploads.finish_now(&within, upload).await;
        }
        if !whole {
            return Err(FilesTrouble { bytes: Some(state.offset), ..FilesTrouble::from(Code::CutOff) }.into());
        }
        Ok(Seen { upload, offset: state.offset })
    }
}

/// Seconds since the last look, if there was one; none where the clock jumped.
fn passed_s(last: Option<Timestamp>, now: Timestamp) -> Option<u64> {
    let since = last.map_or(SignedDuration::ZERO, |last| now.duration_since(last));
    (SignedDuration::ZERO..=LOOKS_APART).contains(&since).then(|| since.as_secs().unsigned_abs())
}

/// How the file process knows an upload.
fn spot(within: &Within, upload: &Upload) -> Result<PartSpot, AppError> {
    let id = upload.id.to_string().parse().map_err(|_| senseless(upload))?;
    let directory = RelativePath::parse(&upload.directory).map_err(|_| senseless(upload))?;
    Ok(PartSpot { space: within.number(), directory, id })
}

/// A name in an upload's directory.
fn below(upload: &Upload, name: &[u8]) -> Result<RelativePath, AppError> {
    let directory = RelativePath::parse(&upload.directory).map_err(|_| senseless(upload))?;
    Name::parse(name).and_then(|name| directory.join(&name)).map_err(|_| senseless(upload))
}

fn senseless(upload: &Upload) -> AppError {
    AppError::Internal(anyhow::anyhow!("the row of upload {} makes no sense", upload.id))
}

fn as_protocol(on_conflict: OnConflict) -> protocol::OnConflict {
    match on_conflict {
        OnConflict::Refuse => protocol::OnConflict::Refuse,
        OnConflict::KeepBoth => protocol::OnConflict::KeepBoth,
        OnConflict::Replace => protocol::OnConflict::Replace,
    }
}
