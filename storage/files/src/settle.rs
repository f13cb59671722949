//! Gives something its name where something else may lie already: a move, a copy or an upload that is whole, what comes out of the trash.
//!
//! Nothing is ever written over. What has to give way goes to the trash, and where that cannot be, it stays and nothing has happened. A
//! process that is killed in between leaves both: the newcomer under its old name or the new one, the other there or in the trash.

use eirene_files_protocol::{Code, EntryKind, Moved, Name, OnConflict, TrashId};

use crate::beneath::Place;
use crate::change::{Spot, is_same};
use crate::trash::Trash;

/// Most numbers that are tried: `name (2)` to `name (100)`.
const MOST_NUMBERS: u32 = 100;
/// How often somebody else may be quicker.
const TRIES: u32 = 8;
/// Most bytes of a name.
const MOST_NAME: usize = 255;
/// Most bytes of what is taken for an extension.
const MOST_EXTENSION: usize = 16;

/// Renames `name` in `from` to `to`, by the rule for conflicts.
pub(crate) fn settle(from: &Place, name: &Name, to: &Spot<'_>, on_conflict: OnConflict) -> Result<Moved, Code> {
    for _ in 0..TRIES {
        let moved = |new: &Name, trashed| to.path_of(new).map(|path| Moved { path, trashed });
        match from.rename_new(name, &to.directory, &to.name) {
            Ok(()) => return moved(&to.name, None),
            Err(Code::Exists) => {}
            Err(why) => return Err(why),
        }
        match on_conflict {
            OnConflict::Refuse => return Err(Code::Exists),
            OnConflict::KeepBoth => {
                let is_directory = from.child(name)?.look()?.0 == EntryKind::Directory;
                for new in others(&to.name, is_directory) {
                    match from.rename_new(name, &to.directory, &new) {
                        Ok(()) => return moved(&new, None),
                        Err(Code::Exists) => {}
                        Err(why) => return Err(why),
                    }
                }
                return Err(Code::Exists);
            }
            OnConflict::Replace => match replace(from, name, to) {
                Ok(trashed) => return moved(&to.name, trashed),
                // It went meanwhile, or another came: look anew.
                Err(Code::NotFound | Code::Exists) if to.found().is_err() => {}
                Err(why) => return Err(why),
            },
        }
    }
    Err(Code::Busy)
}

/// Puts what lies there into the trash, and the newcomer in its place.
fn replace(from: &Place, name: &Name, to: &Spot<'_>) -> Result<Option<TrashId>, Code> {
    let (newcomer, old) = (from.child(name)?.look()?.1, to.found()?.look()?);
    if is_same(&newcomer, &old.1) {
        // Another spelling of the same name, where a file system does not tell them apart; two names of one file stay two.
        let only_name = old.0 == EntryKind::Directory || old.1.stx_nlink == 1;
        let same_spot = is_same(&from.look()?.1, &to.directory.look()?.1) && *name == to.name;
        return if only_name && !same_spot {
            from.rename_over(name, &to.directory, &to.name).map(|()| None)
        } else {
            Err(Code::Exists)
        };
    }
    let trash = Trash::open(to.space)?;
    let id = trash.announce(to.path_of(&to.name)?, &old)?;
    if from.exchange(name, &to.directory, &to.name)? {
        // The old one lies under the newcomer's old name now.
        if let Err(why) = trash.take(id, from, name) {
            from.exchange(name, &to.directory, &to.name)?;
            trash.forget(id);
            return Err(why);
        }
        return Ok(Some(id));
    }
    if let Err(why) = trash.take(id, &to.directory, &to.name) {
        trash.forget(id);
        return Err(why);
    }
    if let Err(why) = from.rename_new(name, &to.directory, &to.name) {
        // Where somebody was quicker, the old one stays in the trash, from where it can be restored.
        if trash.give_back(id, &to.directory, &to.name).is_ok() {
            trash.forget(id);
        }
        return Err(why);
    }
    Ok(Some(id))
}

/// The names that are tried where one is taken: `name (2).ext` and on, cut where they would be too long, never within a character.
pub(crate) fn others(name: &Name, is_directory: bool) -> impl Iterator<Item = Name> {
    let bytes = name.as_bytes();
    let stem = if is_directory { bytes.len() } else { stem(bytes) };
    let (stem, extension) = (bytes[..stem].to_vec(), bytes[stem..].to_vec());
    (2..=MOST_NUMBERS).filter_map(move |number| {
        let number = format!(" ({number})");
        let room = MOST_NAME - number.len() - extension.len();
        let stem = cut(&stem, room);
        Name::parse(&[stem, number.as_bytes(), &extension].concat()).ok()
    })
}

/// Where the extension begins: the last dot and what is behind it, and `.tar` before that; none in a name that begins with its only dot.
fn stem(name: &[u8]) -> usize {
    let dot = |name: &[u8]| {
        let dot = name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len());
        let plain = name[dot..].iter().skip(1).all(u8::is_ascii_alphanumeric);
        let fits = (2..=MOST_EXTENSION).contains(&(name.len() - dot));
        if dot > 0 && plain && fits { dot } else { name.len() }
    };
    let last = dot(name);
    match name[..last].strip_suffix(b".tar") {
        Some(stem) if last < name.len() && !stem.is_empty() => stem.len(),
        _ => last,
    }
}

/// The first bytes of a text, at most so many, without a broken character at the end.
fn cut(text: &[u8], most: usize) -> &[u8] {
    if text.len() <= most {
        return text;
    }
    let is_inside = |at: usize| text[at] & 0b1100_0000 == 0b1000_0000;
    // What is not UTF-8 has no characters to spare: it is cut anywhere.
    let end = (most.saturating_sub(3)..=most).rev().find(|end| !is_inside(*end)).unwrap_or(most);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_keeps_the_extension_and_whole_characters() {
        let other = |name: &[u8], is_directory| {
            let name = others(&Name::parse(name).unwrap(), is_directory).next().unwrap();
            name.as_bytes().to_vec()
        };
        for (name, expected) in [
            ("data.csv", "data (2).csv"),
            ("data", "data (2)"),
            ("a.tar.gz", "a (2).tar.gz"),
            (".tar.gz", ".tar (2).gz"),
            (".bashrc", ".bashrc (2)"),
            ("v1. final", "v1. final (2)"),
            ("ends.", "ends. (2)"),
            ("x.averyveryverylongextension", "x.averyveryverylongextension (2)"),
        ] {
            assert_eq!(other(name.as_bytes(), false), expected.as_bytes());
        }
        assert_eq!(other(b"v1.2", true), b"v1.2 (2)");
        let crab = "\u{1f980}";
        let long = other(format!("{}abc", crab.repeat(63)).as_bytes(), false);
        assert_eq!(long, format!("{} (2)", crab.repeat(62)).into_bytes());
        let long = other(&[[b'n'; 251].as_slice(), b".csv"].concat(), false);
        assert_eq!(long, [[b'n'; 247].as_slice(), b" (2).csv"].concat());
        let long = other(&[0x80; 255], false);
        assert_eq!(long.len(), 255, "bytes that are no text are cut anywhere");
        assert_eq!(others(&Name::parse(b"n").unwrap(), false).count(), 99);
    }

    proptest::proptest! {
        #[test]
        fn any_name_has_others_of_at_most_255_bytes(
            bytes in proptest::collection::vec(1..=255_u8, 1..=255), is_directory in proptest::bool::ANY
        ) {
            if let Ok(name) = Name::parse(&bytes) {
                let all: Vec<_> = others(&name, is_directory).collect();
                let unique: std::collections::BTreeSet<_> = all.iter().map(Name::as_bytes).collect();
                proptest::prop_assert_eq!((all.len(), unique.len()), (99, 99));
                proptest::prop_assert!(!all.contains(&name));
                // Text stays text.
                if std::str::from_utf8(&bytes).is_ok() {
                    proptest::prop_assert!(all.iter().all(|other| std::str::from_utf8(other.as_bytes()).is_ok()));
                }
            }
        }
    }
}
