//! Into the trash, what lies there, and out of it.

use std::cmp::Reverse;

use eirene_files_protocol::{
    Answer, Code, EmptyTrash, ListTrash, MOST_BYTES, MOST_TRASHED, Part, PutInTrash, Restore, TrashId, Trashed, Which,
};

use super::delete::Removal;
use crate::beneath::{kind_of_entry, look_at_entry};
use crate::directory::Names;
use crate::server::Job;
use crate::settle::settle;
use crate::trash::{Trash, file_name};
use crate::walk::Account;

pub(super) fn put(job: &Job, wanted: &PutInTrash) -> Result<Answer, Code> {
    let spot = job.space(wanted.space)?.spot(&wanted.path)?;
    let found = spot.found()?.look()?;
    let trash = Trash::open(spot.space)?;
    let id = trash.announce(spot.path_of(&spot.name)?, &found)?;
    if let Err(why) = trash.take(id, &spot.directory, &spot.name) {
        trash.forget(id);
        return Err(why);
    }
    Ok(Answer::PutInTrash { id })
}

/// What lies in one of a trash's directories.
fn ids(job: &Job, directory: &crate::beneath::Place) -> Result<Vec<TrashId>, Code> {
    let names = Names::read(&directory.list()?, &job.cancelled)?;
    let ids = (0..names.len() as u32).filter_map(|place| std::str::from_utf8(names.get(place)).ok()?.parse().ok());
    Ok(ids.collect())
}

/// The entries of trashes, each with its trash.
fn all_ids<'a>(job: &Job, trashes: &'a [Trash]) -> Result<Vec<(TrashId, &'a Trash)>, Code> {
    let mut all = Vec::new();
    for trash in trashes {
        all.extend(ids(job, &trash.files)?.into_iter().map(|id| (id, trash)));
    }
    Ok(all)
}

pub(super) fn list(job: &Job, wanted: &ListTrash) -> Result<Answer, Code> {
    if wanted.limit == 0 || wanted.limit > MOST_TRASHED {
        return Err(Code::Invalid);
    }
    let trashes = Trash::all(job.space(wanted.space)?)?;
    let mut ids = all_ids(job, &trashes)?;
    let entries = ids.len() as u64;
    ids.sort_unstable_by_key(|(id, _)| Reverse(*id));
    let begin = wanted.after.map_or(0, |after| ids.partition_point(|(id, _)| *id >= after));
    let end = (begin + wanted.limit as usize).min(ids.len());
    let page = &ids[begin..end];
    let mut frame = Vec::new();
    let mut bytes = 0;
    for (id, trash) in page {
        job.cancelled.check()?;
        let trashed = if let Some(info) = trash.info(*id) {
            Trashed { id: *id, origin: Some(info.path), kind: info.kind, bytes: info.bytes }
        } else {
            let looked = look_at_entry(trash.files.as_fd(), file_name(*id)?.as_bytes());
            Trashed { id: *id, origin: None, kind: kind_of_entry(&looked), bytes: None }
        };
        // JSON makes at most six bytes of one.
        let most = 160 + 6 * trashed.origin.as_ref().map_or(0, |path| path.as_bytes().len());
        if bytes + most > MOST_BYTES - 1024 {
            job.part(Part::Trashed(std::mem::take(&mut frame)))?;
            bytes = 0;
        }
        bytes += most;
        frame.push(trashed);
    }
    if !frame.is_empty() {
        job.part(Part::Trashed(frame))?;
    }
    let next = page.last().map(|(id, _)| *id).filter(|_| end < ids.len());
    Ok(Answer::TrashListed { entries, next })
}

pub(super) fn restore(job: &Job, wanted: &Restore) -> Result<Answer, Code> {
    let space = job.space(wanted.space)?;
    let trash = Trash::holding(space, wanted.id)?;
    let name = file_name(wanted.id)?;
    // What an announcement says is hostile like any path: a program of the person's may have written it.
    let to = match &wanted.to {
        Some(to) => to.clone(),
        None => trash.info(wanted.id).map(|info| info.path).ok_or(Code::NotFound)?,
    };
    let moved = settle(&trash.files, &name, &space.spot(&to)?, wanted.on_conflict)?;
    trash.forget(wanted.id);
    Ok(Answer::Moved(moved))
}

pub(super) fn empty(job: &Job, wanted: &EmptyTrash) -> Result<Answer, Code> {
    let space = job.space(wanted.space)?;
    space.check_writable()?;
    let mut account = Account::new();
    let trashes = match wanted.which {
        Which::One(id) => vec![Trash::holding(space, id)?],
        Which::Before(_) => Trash::all(space)?,
    };
    let chosen = match wanted.which {
        Which::One(id) => trashes.iter().map(|trash| (id, trash)).collect(),
        Which::Before(time) => {
            let mut ids = all_ids(job, &trashes)?;
            ids.retain(|(id, _)| id.milliseconds() < time);
            ids
        }
    };
    let removal = Removal { job, space, cancelled: &job.cancelled, opens: false };
    for (id, trash) in chosen {
        // The announcement goes last: until then what is left of it can still be found, and removed again.
        if removal.remove(&trash.files, &file_name(id)?, &mut account)? {
            trash.forget(id);
        }
    }
    if let Which::Before(_) = wanted.which {
        for trash in &trashes {
            for id in ids(job, &trash.info)? {
                if trash.is_left_over(id) {
                    trash.forget(id);
                }
            }
        }
    }
    Ok(Answer::Removed(account.walked))
}
