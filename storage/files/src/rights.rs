//! Who may do what with something, where that changes or is copied: in no moment more than before and afterwards.
//!
//! Where something has an access list, the group's bits of its mode are the list's mask, the most that anybody named in it gets. They say nothing of
//! the group, and would be the group's as soon as they stood there alone.

use eirene_files_protocol::{Code, EntryKind};
use rustix::fs::Statx;

use crate::acl::{ACCESS, Bits, DEFAULT, as_bits, parse};
use crate::beneath::Place;

/// Whether a copy has its original's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    Kept,
    /// There can be none where it lies, and somebody is named in them.
    Lost,
}

/// Leaves something these bits and no access list; `special` are the others of its mode. What it hands on to what is made in it stays.
pub(crate) fn leave_bits(place: &Place, bits: u16, special: u16) -> Result<(), Code> {
    let now = place.look()?.1.stx_mode;
    if let Some(narrowed) = before_the_list_goes(now, bits) {
        place.set_mode(narrowed | special)?;
    }
    place.remove_attribute(ACCESS)?;
    place.set_mode(bits | special)
}

/// The bits that something needs before its list goes, where else the group would have more by its mask than it is to have, or whoever was named to
/// have less would have more as one of everybody else.
fn before_the_list_goes(now: u16, bits: u16) -> Option<u16> {
    (now & 0o077 & !bits != 0).then_some(now & bits)
}

/// Gives a copy the permissions of its original, which was found so. As `cp -p` does where it cannot give it the original's group too: the bits are
/// the original's, and what they say of the group is of the one that the copy belongs to where it lies, as what is copied into a group's space is for
/// that group. What the directory around it hands on to what is made there is taken from it again: for that nobody gets in. But a directory that
/// hands nothing on itself goes on with what it has inherited, as with the group: that is about what is made in it from now on, and in a group's
/// space it is how the others get to write that.
///
/// The copy is its owner's alone before, as what is made with bits of the owner is, whatever it inherits.
pub(crate) fn keep(original: &Place, found: &Statx, copy: &Place) -> Result<Lists, Code> {
    let access = list(original, ACCESS)?;
    // Looked at after the list. Where one came or went since it was found, its mask stands in one of the two only.
    let bits = found.stx_mode & original.look()?.1.stx_mode & 0o777;
    let (kind, made) = copy.look()?;
    let (mut lists, mut special) = (Lists::Kept, 0);
    if kind == EntryKind::Directory {
        special = made.stx_mode & 0o2000;
        if let Some(default) = list(original, DEFAULT)?
            && !takes(copy, DEFAULT, &default)?
            && left_of(&default, found, &made).loses
        {
            lists = Lists::Lost;
        }
    }
    match access {
        None => leave_bits(copy, bits, special)?,
        // The kernel sets the bits with it.
        Some(access) if takes(copy, ACCESS, &access)? => {}
        Some(access) => {
            let left = left_of(&access, found, &made);
            copy.set_mode(left.mode & bits | special)?;
            if left.loses {
                lists = Lists::Lost;
            }
        }
    }
    Ok(lists)
}

/// A list as it is kept, if there is one. One that is too long to be looked at is none that can be copied.
fn list(original: &Place, attribute: &str) -> Result<Option<Vec<u8>>, Code> {
    original.attribute(attribute).map_err(|why| if why == Code::TooMany { Code::NotSupported } else { why })
}

/// Sets a list. `false` where there can be none.
fn takes(copy: &Place, attribute: &str, list: &[u8]) -> Result<bool, Code> {
    match copy.set_attribute(attribute, list) {
        Ok(()) => Ok(true),
        Err(Code::NotSupported) => Ok(false),
        Err(why) => Err(why),
    }
}

/// What is left, for what was made so, of the list of what was found so, where there can be none. Of one that cannot be read nothing is known but
/// its owner's bits.
fn left_of(list: &[u8], found: &Statx, made: &Statx) -> Bits {
    let owners_alone = Bits { mode: found.stx_mode & 0o700, loses: true };
    parse(list).map_or(owners_alone, |entries| as_bits(&entries, found.stx_gid, made.stx_gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_list_something_is_never_opened_wider_than_it_is_to_be() {
        for now in 0..=0o777 {
            for bits in 0..=0o777 {
                let then = before_the_list_goes(now, bits).unwrap_or(now);
                assert_eq!(then & 0o070 & !bits, 0, "{now:o} {bits:o}: the group");
                assert_eq!(then & 0o007 & !bits, 0, "{now:o} {bits:o}: whoever was named to have less");
                assert_eq!(then & !now, 0, "{now:o} {bits:o}: nobody gets more before the list has gone");
            }
        }
        assert_eq!(before_the_list_goes(0o660, 0o600), Some(0o600));
        assert_eq!(before_the_list_goes(0o644, 0o640), Some(0o640), "somebody may have been denied by name");
        assert_eq!(before_the_list_goes(0o640, 0o660), None, "nothing to narrow");
    }
}
