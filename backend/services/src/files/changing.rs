//! What answers at once and changes something: directories, names, the trash, permissions. Of several things each is done by itself, and what
//! could not be done is named; where nothing at all was done, why is the answer.

use eirene_core::SpaceName;
use eirene_core::file_work::OnConflict;
use eirene_files_protocol::{
    self as protocol, Answer, ListTrash, LookAtPermissions, MOST_TRASHED, MakeDirectory, Move, Moved, Part,
    PermissionChange, Permissions, PutInTrash, RelativePath, Restore, SetPermissions, Spot, TrashId, Trashed, Verb,
};
use serde_json::json;

use super::path::AskedPath;
use super::{Files, Need, Within, answered};
use crate::actor::Actor;
use crate::error::AppError;
use crate::error::files::FilesTrouble;

/// From where to where.
#[derive(Debug, Clone)]
pub struct MoveWish {
    /// What.
    pub from: AskedPath,
    /// Its new path.
    pub to: AskedPath,
}

impl MoveWish {
    /// Both places, which are not the spaces themselves.
    pub(super) fn spots(&self, within: &Within, to: &Within) -> Result<(Spot, Spot), AppError> {
        let (from, target) = (self.from.parse_inside()?, self.to.parse_inside()?);
        Ok((within.spot(from), to.spot(target)))
    }
}

/// What became of several things.
#[derive(Debug)]
pub struct Each<T> {
    /// What was done, by the path it was asked with.
    pub done: Vec<(RelativePath, T)>,
    /// What was not, and why.
    pub refused: Vec<(RelativePath, FilesTrouble)>,
}

/// A page of a trash.
#[derive(Debug)]
pub struct TrashPage {
    /// What lies there, the newest first.
    pub items: Vec<Trashed>,
    /// How many lie there in all.
    pub entries: u64,
    /// Behind this the next page begins.
    pub next: Option<TrashId>,
}

/// What happens where something lies already, as the process is told.
pub fn on_conflict(wanted: OnConflict) -> protocol::OnConflict {
    match wanted {
        OnConflict::Refuse => protocol::OnConflict::Refuse,
        OnConflict::KeepBoth => protocol::OnConflict::KeepBoth,
        OnConflict::Replace => protocol::OnConflict::Replace,
    }
}

impl Within {
    /// A place in the space.
    pub(super) fn spot(&self, path: RelativePath) -> Spot {
        Spot { space: self.number(), path }
    }
}

impl Files {
    /// Makes a directory. Whether it was not there before; it may only have been where parents are made too.
    pub async fn make_directory(
        &self,
        actor: &Actor,
        space: &SpaceName,
        path: &AskedPath,
        parents: bool,
    ) -> Result<(RelativePath, bool), AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let path = path.parse_inside()?;
        let make = MakeDirectory { space: within.number(), path: path.clone(), parents };
        let done = within.ask(Verb::MakeDirectory(make)).await?;
        let made = answered!(done.answer, Answer::Made { made } => made)?;
        within.note("files.make_directory", json!({"count": 1})).await;
        Ok((path, made))
    }

    /// Gives things other names or other places, in the same space or in another one of the person's on the same file system. After each
    /// `moved` is told.
    pub async fn move_each(
        &self,
        actor: &Actor,
        space: &SpaceName,
        to_space: Option<&SpaceName>,
        wishes: &[MoveWish],
        conflict: OnConflict,
        moved: &(dyn Fn() + Sync),
    ) -> Result<Each<Moved>, AppError> {
        let (within, to) = self.two(actor, space, to_space, Need::Write).await?;
        let mut verbs = Vec::with_capacity(wishes.len());
        for wish in wishes {
            let (from, to) = wish.spots(&within, &to)?;
            let path = from.path.clone();
            verbs.push((path, Verb::Move(Move { from, to, on_conflict: on_conflict(conflict) })));
        }
        let each = within.each(verbs, moved, |answer| answered!(answer, Answer::Moved(moved) => moved)).await?;
        if !each.done.is_empty() {
            within.note("files.move", json!({"count": each.done.len(), "to": to.space().name})).await;
        }
        Ok(each)
    }

    /// Puts things into the trash.
    pub async fn trash_each(
        &self,
        actor: &Actor,
        space: &SpaceName,
        paths: &[AskedPath],
        moved: &(dyn Fn() + Sync),
    ) -> Result<Each<TrashId>, AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let mut verbs = Vec::with_capacity(paths.len());
        for path in paths {
            let path = path.parse_inside()?;
            verbs.push((path.clone(), Verb::PutInTrash(PutInTrash { space: within.number(), path })));
        }
        let each = within.each(verbs, moved, |answer| answered!(answer, Answer::PutInTrash { id } => id)).await?;
        within.note("files.trash", json!({"count": each.done.len()})).await;
        Ok(each)
    }

    /// A page of the trash.
    pub async fn trash(
        &self,
        actor: &Actor,
        space: &SpaceName,
        after: Option<TrashId>,
        limit: u32,
    ) -> Result<TrashPage, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let list = ListTrash { space: within.number(), after, limit: limit.clamp(1, MOST_TRASHED) };
        let done = within.ask(Verb::ListTrash(list)).await?;
        let (entries, next) = answered!(done.answer, Answer::TrashListed { entries, next } => (entries, next))?;
        let mut items = Vec::new();
        for part in done.parts {
            items.extend(answered!(part, Part::Trashed(trashed) => trashed)?);
        }
        Ok(TrashPage { items, entries, next })
    }

    /// Puts something back where it was, or elsewhere.
    pub async fn restore(
        &self,
        actor: &Actor,
        space: &SpaceName,
        id: TrashId,
        to: Option<&AskedPath>,
        conflict: OnConflict,
    ) -> Result<Moved, AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let to = to.map(AskedPath::parse_inside).transpose()?;
        let restore = Restore { space: within.number(), id, to, on_conflict: on_conflict(conflict) };
        let done = within.ask(Verb::Restore(restore)).await?;
        let moved = answered!(done.answer, Answer::Moved(moved) => moved)?;
        within.note("files.restore", json!({"count": 1})).await;
        Ok(moved)
    }

    /// Who may do what with something.
    pub async fn permissions(
        &self,
        actor: &Actor,
        space: &SpaceName,
        path: &AskedPath,
    ) -> Result<(RelativePath, Permissions), AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = path.parse()?;
        Ok((path.clone(), within.permissions(path).await?))
    }

    /// Changes who may do what with one thing.
    pub async fn set_permissions(
        &self,
        actor: &Actor,
        space: &SpaceName,
        path: &AskedPath,
        change: PermissionChange,
    ) -> Result<(RelativePath, Permissions), AppError> {
        let within = self.within(actor, space, Need::Write).await?;
        let path = path.parse_inside()?;
        let set = SetPermissions { space: within.number(), path: path.clone(), change, recursive: false };
        let done = within.ask(Verb::SetPermissions(set)).await?;
        answered!(done.answer, Answer::PermissionsSet(_) => ())?;
        within.note("files.permissions", json!({"count": 1})).await;
        Ok((path.clone(), within.permissions(path).await?))
    }

    /// A space, and the one things go to: another of the person's, or the same.
    pub(super) async fn two(
        &self,
        actor: &Actor,
        space: &SpaceName,
        to_space: Option<&SpaceName>,
        need: Need,
    ) -> Result<(Within, Within), AppError> {
        let within = self.within(actor, space, need).await?;
        let to = match to_space {
            Some(name) => self.within(actor, name, Need::Write).await?,
            None if need == Need::Write => within.clone(),
            None => self.within(actor, space, Need::Write).await?,
        };
        Ok((within, to))
    }
}

impl Within {
    async fn permissions(&self, path: RelativePath) -> Result<Permissions, AppError> {
        let done = self.ask(Verb::LookAtPermissions(LookAtPermissions { space: self.number(), path })).await?;
        answered!(done.answer, Answer::Permissions(permissions) => permissions)
    }

    /// Asks for one after the other. Where the storage falls silent no more are asked for, and those are refused by the same word.
    async fn each<T>(
        &self,
        verbs: Vec<(RelativePath, Verb)>,
        moved: &(dyn Fn() + Sync),
        read: impl Fn(Answer) -> Result<T, AppError>,
    ) -> Result<Each<T>, AppError> {
        let mut each = Each { done: vec![], refused: vec![] };
        let mut silent: Option<FilesTrouble> = None;
        for (path, verb) in verbs {
            let answer = match &silent {
                Some(trouble) => Err(trouble.clone().into()),
                None => self.ask(verb).await.and_then(|done| read(done.answer)),
            };
            moved();
            match answer {
                Ok(value) => each.done.push((path, value)),
                Err(AppError::Files(trouble)) => {
                    silent = silent.or_else(|| trouble.is_silence().then(|| (*trouble).clone()));
                    each.refused.push((path, *trouble));
                }
                Err(other) => return Err(other),
            }
        }
        // Some of them can be copied there and others cannot: whoever asked has to know which.
        let far = each.refused.iter().filter(|(_, trouble)| trouble.is_other_file_system()).count();
        let is_mixed = far > 0 && far < each.refused.len();
        match each.refused.first() {
            Some((_, trouble)) if each.done.is_empty() && !is_mixed => Err(trouble.clone().into()),
            _ => Ok(each),
        }
    }
}
