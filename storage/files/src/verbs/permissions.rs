//! Permissions: looked at and changed by descriptor, so that what was looked at is what is changed. Links have none and are left alone.

use std::rc::Rc;

use eirene_files_protocol::{
    AclEntry, Answer, Code, EntryKind, LookAtPermissions, PermissionChange, Permissions, RelativePath, Rights,
    SetPermissions, Share, Who,
};
use rustix::fs::Statx;

use crate::accounts::Id;
use crate::acl::{ACCESS, DEFAULT, compose, parse};
use crate::beneath::Place;
use crate::rights::leave_bits;
use crate::server::Job;
use crate::walk::{Account, Step, Walk};

pub(super) fn look(job: &Job, wanted: &LookAtPermissions) -> Result<Answer, Code> {
    let place = job.space(wanted.space)?.source(&wanted.path)?;
    let (kind, found) = place.look()?;
    let list = |attribute| -> Result<Option<Vec<AclEntry>>, Code> {
        let bytes = place.attribute(attribute)?;
        bytes.map(|bytes| parse(&bytes).ok_or(Code::NotSupported)).transpose()
    };
    let access = if kind == EntryKind::Link { None } else { list(ACCESS)? };
    let default = if kind == EntryKind::Directory { list(DEFAULT)? } else { None };
    let mode = found.stx_mode & 0o7777;
    let listed = access.iter().chain(&default).flatten().filter_map(|line| match line.who {
        Who::User(id) => Some(Id::User(id)),
        Who::Group(id) => Some(Id::Group(id)),
        Who::Owner | Who::OwningGroup | Who::Mask | Who::Other => None,
    });
    let ids = [Id::User(found.stx_uid), Id::Group(found.stx_gid)].into_iter().chain(listed);
    let accounts = job.directory().names(ids);
    Ok(Answer::Permissions(Permissions {
        owner: found.stx_uid,
        group: found.stx_gid,
        mode,
        mine: found.stx_uid == rustix::process::geteuid().as_raw(),
        lists: kind != EntryKind::Link && place.keeps_lists()?,
        share: if access.is_none() && default.is_none() { word(kind, mode) } else { None },
        access,
        default,
        accounts,
    }))
}

/// The word for permission bits, if there is one.
fn word(kind: EntryKind, mode: u16) -> Option<Share> {
    let words = [Share::Private, Share::GroupReads, Share::GroupWrites];
    words.into_iter().find(|word| shared(kind, mode, *word) == mode & 0o777)
}

/// The permission bits of a word: who may run a file is whoever may read it, if its owner may.
fn shared(kind: EntryKind, mode: u16, share: Share) -> u16 {
    let is_run = kind == EntryKind::Directory || mode & 0o100 != 0;
    let owner = if is_run { 0o700 } else { 0o600 };
    let group = match share {
        Share::Private => 0,
        Share::GroupReads => 0o040,
        Share::GroupWrites => 0o060,
    };
    owner | group | if is_run && group != 0 { 0o010 } else { 0 }
}

pub(super) fn set(job: &Job, wanted: &SetPermissions) -> Result<Answer, Code> {
    let spot = job.space(wanted.space)?.spot(&wanted.path)?;
    let change = Change::new(&wanted.change)?;
    let top = spot.found()?;
    let (kind, found) = top.look()?;
    let mut account = Account::new();
    if kind != EntryKind::Directory || !wanted.recursive {
        change.apply(&top, kind, &found, false)?;
        account.done(0);
        return Ok(Answer::PermissionsSet(account.walked));
    }
    let mut walk = Walk::new(false);
    enter(&mut walk, &change, &Rc::new(top), RelativePath::default(), found)?;
    while let Some(step) = walk.step(spot.space, &job.cancelled)? {
        account.say(job)?;
        let Some(level) = walk.here() else { break };
        match step {
            Step::Entry(name) => {
                let Ok(path) = level.path.join(&name) else {
                    account.skip(level.path.clone(), Code::TooDeep);
                    continue;
                };
                let looked = level.place.child(&name).and_then(|place| Ok((place.look()?, place)));
                let done = looked.and_then(|((kind, found), place)| match kind {
                    // A link has no permissions: nothing is left out.
                    EntryKind::Link => Ok(false),
                    EntryKind::Directory => {
                        enter(&mut walk, &change, &Rc::new(place), path.clone(), found).map(|()| false)
                    }
                    _ => change.apply(&place, kind, &found, true).map(|()| true),
                });
                match done {
                    Ok(true) => account.done(0),
                    Ok(false) => {}
                    Err(why) => account.skip(path, why),
                }
            }
            Step::Unlisted(why) => account.skip(level.path.clone(), why),
            Step::Leave => {
                let Some(level) = walk.leave() else { break };
                // Last: it may take away what was needed to go through it.
                let (place, found) = level.data;
                match change.apply(&place, EntryKind::Directory, &found, true) {
                    Ok(()) => account.done(0),
                    Err(why) => account.skip(level.path, why),
                }
            }
        }
    }
    Ok(Answer::PermissionsSet(account.walked))
}

/// Goes into a directory, and where that is what the change is to allow, changes it first.
fn enter(
    walk: &mut Walk<(Rc<Place>, Statx)>,
    change: &Change,
    place: &Rc<Place>,
    path: RelativePath,
    found: Statx,
) -> Result<(), Code> {
    let data = (Rc::clone(place), found);
    match walk.enter(place, path.clone(), data) {
        Err(Code::Forbidden) => {
            change.apply(place, EntryKind::Directory, &found, true)?;
            walk.enter(place, path, (Rc::clone(place), found))
        }
        other => other,
    }
}

/// A change that can be made.
enum Change {
    Share(Share),
    Mode(u16),
    Acl { access: Vec<AclEntry>, default: Option<Vec<u8>> },
}

impl Change {
    fn new(wanted: &PermissionChange) -> Result<Self, Code> {
        Ok(match wanted {
            PermissionChange::Share(share) => Self::Share(*share),
            PermissionChange::Mode(mode) if *mode <= 0o777 => Self::Mode(*mode),
            PermissionChange::Mode(_) => return Err(Code::Invalid),
            PermissionChange::Acl { access, default } => {
                compose(access)?;
                let default = if default.is_empty() { None } else { Some(compose(default)?) };
                Self::Acl { access: access.clone(), default }
            }
        })
    }

    /// Changes one entry; `below` is what only comes along.
    fn apply(&self, place: &Place, kind: EntryKind, found: &Statx, below: bool) -> Result<(), Code> {
        let is_directory = match kind {
            EntryKind::Directory => true,
            EntryKind::File => false,
            EntryKind::Link | EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => {
                return Err(Code::NotSupported);
            }
        };
        // A directory hands its group on, and keeps others from removing what is not theirs.
        let kept = if is_directory { found.stx_mode & 0o3000 } else { 0 };
        let was_run = found.stx_mode & 0o100 != 0;
        match self {
            Self::Share(share) => {
                if is_directory {
                    place.remove_attribute(DEFAULT)?;
                }
                leave_bits(place, shared(kind, found.stx_mode, *share), kept)
            }
            Self::Mode(mode) => {
                let mode = match (below, is_directory) {
                    (false, _) => *mode,
                    (true, true) => mode | (mode & 0o444) >> 2,
                    (true, false) if was_run => *mode,
                    (true, false) => mode & !0o111,
                };
                place.set_mode(mode | kept)
            }
            Self::Acl { access, default } => {
                if below && !is_directory && !was_run {
                    let rest = |entry: &AclEntry| match entry.who {
                        Who::Mask => *entry,
                        _ => AclEntry { may: Rights::from_bits(entry.may.bits() & 6), ..*entry },
                    };
                    let access: Vec<_> = access.iter().map(rest).collect();
                    return place.set_attribute(ACCESS, &compose(&access)?);
                }
                place.set_attribute(ACCESS, &compose(access)?)?;
                match default {
                    Some(default) if is_directory => place.set_attribute(DEFAULT, default),
                    None if is_directory => place.remove_attribute(DEFAULT),
                    _ => Ok(()),
                }
            }
        }
    }
}
