//! What a copy of a directory has left that was cut off, and how the next one of the same goes on with it.
//!
//! The half copy lies under its hidden name, its owner's alone, and a note beside it says which directory it is and at which start of the system it
//! was made: of what was written before another start nobody knows how much reached the disk. Only what the note says is gone on with, so
//! a directory that somebody renames to that name is not, and nothing in it is touched. In it every entry counts that is the same as its original by
//! now; everything else in it is ours and gives way.

use std::fs::File;
use std::io::Read as _;
use std::rc::Rc;

use eirene_files_protocol::{Code, CopyFiles, EntryKind, Name, PartId};
use rustix::fs::{SeekFrom, Statx, seek};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::compare::same_time;
use super::delete::Removal;
use crate::beneath::Place;
use crate::change::is_same;
use crate::directory::Names;
use crate::errno::code;
use crate::server::Job;
use crate::trash::write_all;
use crate::walk::Account;

/// Most bytes of a note.
const MOST_NOTE: u64 = 1024;

/// Which directory is a copy on its way.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    boot: String,
    inode: u64,
}

/// The directory in which a copy is to grow, and whether an earlier one has left something in it.
pub(super) fn begin(job: &Job, directory: &Place, wanted: &CopyFiles) -> Result<(Rc<Place>, bool), Code> {
    for earlier in &wanted.earlier {
        if let Some(top) = take(job, directory, *earlier, wanted.id)? {
            return Ok((Rc::new(top), true));
        }
    }
    let part = wanted.id.file_name();
    directory.make_private_directory(&part)?;
    let top = directory.child(&part)?;
    let (_, found) = top.look()?;
    // Without a note it is a copy as any; it only begins anew where it is cut off.
    if write_note(job, directory, wanted.id, &found).is_err() {
        let _ = directory.remove_file(&wanted.id.note_name());
    }
    Ok((Rc::new(top), false))
}

/// Gives what an earlier copy left the name of this one; none where there is nothing that can be gone on with.
fn take(job: &Job, directory: &Place, earlier: PartId, id: PartId) -> Result<Option<Place>, Code> {
    let Some((top, found)) = left(job, directory, earlier) else { return Ok(None) };
    // Noted first: wherever this is killed, what was left has a note beside it.
    let noted = write_note(job, directory, id, &found);
    if noted.and_then(|()| directory.rename_new(&earlier.file_name(), directory, &id.file_name())).is_err() {
        let _ = directory.remove_file(&id.note_name());
        return Ok(None);
    }
    // By its name it is known from now on, so that has to be the one that was looked at.
    if !is_same(&directory.child(&id.file_name())?.look()?.1, &found) {
        let _ = directory.remove_file(&id.note_name());
        return Err(Code::ChangedMeanwhile);
    }
    let _ = directory.remove_file(&earlier.note_name());
    Ok(Some(top))
}

/// What an earlier copy left, if it is that and nobody else can have been in it.
fn left(job: &Job, directory: &Place, id: PartId) -> Option<(Place, Statx)> {
    let top = directory.child(&id.file_name()).ok()?;
    let (kind, found) = top.look().ok()?;
    let note = Note { boot: job.boot().to_owned(), inode: found.stx_ino };
    let is_own = kind == EntryKind::Directory && is_mine(&found) && found.stx_mode & 0o777 | 0o700 == 0o700;
    (is_own && read_note(directory, id)? == note).then_some((top, found))
}

fn write_note(job: &Job, directory: &Place, id: PartId, found: &Statx) -> Result<(), Code> {
    let note = Note { boot: job.boot().to_owned(), inode: found.stx_ino };
    let text = serde_json::to_vec(&note).map_err(|_| Code::Failed)?;
    write_all(&directory.create_private(&id.note_name())?, &text)
}

/// Where others may write to the directory a note may be anybody's: it counts only as a plain file of the person's with one name, to which nobody else
/// has any right. What others could write to, they could also give that name.
fn read_note(directory: &Place, id: PartId) -> Option<Note> {
    let (file, found) = directory.child(&id.note_name()).ok()?.read().ok()?;
    if found.stx_nlink != 1 || !is_mine(&found) || found.stx_mode & 0o077 != 0 {
        return None;
    }
    let mut text = Vec::new();
    File::from(file).take(MOST_NOTE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Removes what a copy made under its hidden name, and its note once that is gone. What is another than the note says was put there by somebody: it
/// stays.
pub(super) fn remove(removal: &Removal<'_>, directory: &Place, id: PartId, account: &mut Account) -> Result<(), Code> {
    let part = id.file_name();
    let is_another = match (read_note(directory, id), directory.child(&part)) {
        (Some(note), Ok(there)) => there.look()?.1.stx_ino != note.inode,
        _ => false,
    };
    if !is_another {
        removal.remove_all(directory, &part, account)?;
    }
    match directory.remove_file(&id.note_name()) {
        Ok(()) => {
            account.done(0);
            Ok(())
        }
        // A directory is no note, and may be anybody's.
        Err(Code::NotFound | Code::IsADirectory) => Ok(()),
        Err(why) => Err(why),
    }
}

fn is_mine(found: &Statx) -> bool {
    found.stx_uid == geteuid().as_raw()
}

/// What lies under a name where an earlier copy was; none where nothing does.
pub(super) fn there(target: &Place, name: &Name) -> Result<Option<(Place, EntryKind, Statx)>, Code> {
    match target.child(name) {
        Ok(place) => place.look().map(|(kind, found)| Some((place, kind, found))),
        Err(Code::NotFound) => Ok(None),
        Err(why) => Err(why),
    }
}

/// Whether what an earlier copy made is whole, and its original still the same: by its kind, a file's size, time of change and mode, and what a link
/// says. A time is the last that a copy sets, so what is not whole has another one.
pub(super) fn is_whole(original: (&Place, EntryKind, &Statx), made: (&Place, EntryKind, &Statx)) -> Result<bool, Code> {
    let ((original, kind, found), (copy, kind_of_copy, made)) = (original, made);
    if kind != kind_of_copy || !is_mine(made) {
        return Ok(false);
    }
    match kind {
        EntryKind::File => {
            let same_mode = found.stx_mode & 0o777 == made.stx_mode & 0o7777;
            // Names that were of one file and are not any more are not to share one.
            let same_names = found.stx_nlink > 1 || made.stx_nlink == 1;
            Ok(found.stx_size == made.stx_size && same_time(found, made) && same_mode && same_names)
        }
        EntryKind::Link => Ok(original.link_text()? == copy.link_text()?),
        EntryKind::Directory | EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => Ok(false),
    }
}

/// Removes from a directory of the copy what the original does not have, or has no more. Where that cannot be said, nothing goes; where something does
/// not go, that is an error.
pub(super) fn sweep(original: &Place, copy: &Place, removal: &Removal<'_>) -> Result<(), Code> {
    let listed = copy.listed()?;
    let mut buffer = Vec::new();
    loop {
        let mut removed = false;
        seek(listed.as_fd(), SeekFrom::Start(0)).map_err(code)?;
        loop {
            removal.cancelled.check()?;
            let names = Names::read_some(listed.as_fd(), &mut buffer)?;
            if names.len() == 0 {
                break;
            }
            for at in 0..names.len() {
                let Ok(name) = Name::parse(names.get(at as u32)) else { continue };
                match original.child(&name) {
                    Ok(_) => {}
                    Err(Code::NotFound | Code::CrossesAMount) => {
                        // One that is listed and is not there would be listed for ever.
                        removed |= copy.child(&name).is_ok();
                        removal.remove_all(copy, &name, &mut Account::new())?;
                    }
                    Err(why) => return Err(why),
                }
            }
        }
        // Names are passed over by some file systems where others are removed while they are listed.
        if !removed {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_is_torn_or_of_another_version_says_nothing() {
        let note = Note { boot: "a".into(), inode: u64::MAX };
        let text = serde_json::to_vec(&note).unwrap();
        assert!((text.len() as u64) < MOST_NOTE);
        assert_eq!(serde_json::from_slice::<Note>(&text).unwrap(), note);
        assert!((0..text.len()).all(|end| serde_json::from_slice::<Note>(&text[..end]).is_err()));
        assert!(serde_json::from_slice::<Note>(br#"{"boot":"a","inode":1,"more":1}"#).is_err());
    }
}
