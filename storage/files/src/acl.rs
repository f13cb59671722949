//! Access control lists as the kernel keeps them: `system.posix_acl_access` and `system.posix_acl_default`, version 2.
//!
//! A head of four bytes with the version, then eight bytes a line: tag, rights, id, all little-endian (`linux/posix_acl_xattr.h`).

use std::collections::BTreeMap;

use eirene_files_protocol::{AclEntry, Code, MOST_ACL, Rights, Who};

/// Attribute of an entry's own list.
pub(crate) const ACCESS: &str = "system.posix_acl_access";
/// Attribute of a directory's list for what is made in it.
pub(crate) const DEFAULT: &str = "system.posix_acl_default";
/// Most bytes of an attribute that are read: a longer one is said to be too many.
pub(crate) const MOST_BYTES: usize = HEAD + LINE * MOST_ACL;

const VERSION: u32 = 2;
const HEAD: usize = 4;
const LINE: usize = 8;
/// The id of a line that has none.
const NOBODY: u32 = u32::MAX;

fn who(tag: u16, id: u32) -> Option<Who> {
    Some(match tag {
        0x01 => Who::Owner,
        0x02 => Who::User(id),
        0x04 => Who::OwningGroup,
        0x08 => Who::Group(id),
        0x10 => Who::Mask,
        0x20 => Who::Other,
        _ => return None,
    })
}

fn tag(who: Who) -> (u16, u32) {
    match who {
        Who::Owner => (0x01, NOBODY),
        Who::User(id) => (0x02, id),
        Who::OwningGroup => (0x04, NOBODY),
        Who::Group(id) => (0x08, id),
        Who::Mask => (0x10, NOBODY),
        Who::Other => (0x20, NOBODY),
    }
}

/// Reads an attribute; none where it is no list of this version.
pub(crate) fn parse(bytes: &[u8]) -> Option<Vec<AclEntry>> {
    let (version, lines) = bytes.split_first_chunk::<HEAD>()?;
    if u32::from_le_bytes(*version) != VERSION || !lines.len().is_multiple_of(LINE) {
        return None;
    }
    let line = |line: &[u8]| {
        let [t0, t1, p0, p1, id @ ..] = <[u8; LINE]>::try_from(line).ok()?;
        let bits = u16::from_le_bytes([p0, p1]);
        let who = who(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id))?;
        (bits < 8).then_some(AclEntry { who, may: Rights::from_bits(bits) })
    };
    lines.chunks(LINE).map(line).collect()
}

/// The attribute of a list: sorted, with the mask that is needed where somebody is named and none is given.
///
/// # Errors
/// [`Code::Invalid`] where somebody is named twice, or the owner, the owning group or everybody else not at all.
pub(crate) fn compose(entries: &[AclEntry]) -> Result<Vec<u8>, Code> {
    let mut lines = BTreeMap::new();
    for entry in entries {
        if matches!(entry.who, Who::User(NOBODY) | Who::Group(NOBODY)) || lines.insert(entry.who, entry.may).is_some() {
            return Err(Code::Invalid);
        }
    }
    if entries.len() > MOST_ACL || ![Who::Owner, Who::OwningGroup, Who::Other].iter().all(|who| lines.contains_key(who))
    {
        return Err(Code::Invalid);
    }
    let is_masked = |who: &Who| matches!(who, Who::User(_) | Who::Group(_) | Who::OwningGroup);
    if lines.keys().any(|who| matches!(who, Who::User(_) | Who::Group(_))) && !lines.contains_key(&Who::Mask) {
        let all = lines.iter().filter(|(who, _)| is_masked(who)).fold(0, |all, (_, may)| all | may.bits());
        lines.insert(Who::Mask, Rights::from_bits(all));
    }
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (who, may) in lines {
        let (tag, id) = tag(who);
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&may.bits().to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    Ok(bytes)
}

/// What is left of a list where there can be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bits {
    /// Permission bits that give nobody more than the list did.
    pub(crate) mode: u16,
    /// Whether somebody is named in it besides the group that the bits are for, which all lists of a group's space name.
    pub(crate) loses: bool,
}

/// What is left where there can be none, of a list of what belonged to the group `owning`; the bits are for what belongs to `group`.
pub(crate) fn as_bits(entries: &[AclEntry], owning: u32, group: u32) -> Bits {
    let of = |who: Who| entries.iter().find(|entry| entry.who == who).map(|entry| entry.may.bits());
    let mask = of(Who::Mask).unwrap_or(7);
    let of_owning = of(Who::OwningGroup).unwrap_or(0) & mask;
    let named = of(Who::Group(group)).map(|may| may & mask);
    let mut others = of(Who::Other).unwrap_or(0);
    let of_group = if group == owning {
        Some(of_owning | named.unwrap_or(0))
    } else {
        // Whoever is in the group of before is one of everybody else then.
        others &= of_owning;
        named
    };
    let mut in_group = of_group.unwrap_or(7);
    let mut loses = false;
    for entry in entries {
        let may = entry.may.bits() & mask;
        // Whoever is named is one of the group or of everybody else then, and may have been named to have less.
        match entry.who {
            Who::User(_) => (in_group, others, loses) = (in_group & may, others & may, true),
            Who::Group(id) if id != group => (others, loses) = (others & may, true),
            Who::Owner | Who::OwningGroup | Who::Group(_) | Who::Mask | Who::Other => {}
        }
    }
    // A group of which the list says nothing was of everybody else.
    let in_group = if of_group.is_some() { in_group } else { others };
    Bits { mode: (of(Who::Owner).unwrap_or(0) << 6) | (in_group << 3) | others, loses }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(who: Who, bits: u16) -> AclEntry {
        AclEntry { who, may: Rights::from_bits(bits) }
    }

    /// As `setfacl -m u:1000:rw` leaves it on a file of mode 0640.
    const KERNELS: [u8; 44] = [
        2, 0, 0, 0, //
        1, 0, 6, 0, 255, 255, 255, 255, //
        2, 0, 6, 0, 232, 3, 0, 0, //
        4, 0, 4, 0, 255, 255, 255, 255, //
        16, 0, 6, 0, 255, 255, 255, 255, //
        32, 0, 0, 0, 255, 255, 255, 255,
    ];

    #[test]
    fn the_kernels_own_is_read_and_written_byte_for_byte() {
        let entries = [line(Who::Other, 0), line(Who::User(1000), 6), line(Who::OwningGroup, 4), line(Who::Owner, 6)];
        assert_eq!(compose(&entries).unwrap(), KERNELS, "sorted, and with its mask");
        let read = parse(&KERNELS).unwrap();
        assert_eq!(read.len(), 5);
        assert_eq!(compose(&read).unwrap(), KERNELS);
    }

    #[test]
    fn a_list_that_is_none_is_not_written() {
        let least = [line(Who::Owner, 6), line(Who::OwningGroup, 4), line(Who::Other, 0)];
        assert!(compose(&least).is_ok());
        for missing in 0..3 {
            let mut without = least.to_vec();
            without.remove(missing);
            assert_eq!(compose(&without), Err(Code::Invalid));
        }
        for twice in [line(Who::Owner, 0), line(Who::User(u32::MAX), 0), line(Who::Group(u32::MAX), 0)] {
            assert_eq!(compose(&[least.as_slice(), &[twice]].concat()), Err(Code::Invalid));
        }
    }

    #[test]
    fn bits_in_the_place_of_a_list_give_nobody_more() {
        const OWN: u32 = 100;
        let least = |group, other| vec![line(Who::Owner, 6), line(Who::OwningGroup, group), line(Who::Other, other)];
        let of = |owning, group, other, named: &[(Who, u16)]| {
            let named = named.iter().map(|(who, bits)| line(*who, *bits));
            as_bits(&least(group, other).into_iter().chain(named).collect::<Vec<_>>(), owning, OWN)
        };
        let with = |group, other, named: &[(Who, u16)]| of(OWN, group, other, named);
        let from_elsewhere = |group, other, named: &[(Who, u16)]| of(300, group, other, named);
        let (ada, own, other) = (Who::User(1000), Who::Group(OWN), Who::Group(200));
        for (bits, mode, loses) in [
            (with(4, 4, &[]), 0o644, false),
            (with(0, 0, &[(ada, 6), (Who::Mask, 6)]), 0o600, true),
            (with(7, 0, &[(ada, 6), (Who::Mask, 6)]), 0o660, true),
            (with(6, 0, &[(ada, 6), (Who::Mask, 4)]), 0o640, true),
            // Named to have less than the group, or everybody else.
            (with(6, 4, &[(ada, 0), (Who::Mask, 6)]), 0o600, true),
            (with(6, 4, &[(other, 0), (Who::Mask, 6)]), 0o660, true),
            // As in a group's space.
            (with(7, 0, &[(own, 7), (Who::Mask, 6)]), 0o660, false),
            (with(0, 0, &[(own, 6), (Who::Mask, 6)]), 0o660, false),
            // What its own group had before is not the new one's.
            (from_elsewhere(6, 0, &[(ada, 6), (Who::Mask, 6)]), 0o600, true),
            (from_elsewhere(6, 0, &[(own, 0), (Who::Mask, 6)]), 0o600, false),
            (from_elsewhere(0, 0, &[(own, 6), (Who::Mask, 4)]), 0o640, false),
            (from_elsewhere(6, 4, &[(ada, 6), (Who::Mask, 6)]), 0o644, true),
            (from_elsewhere(0, 4, &[(ada, 6), (Who::Mask, 6)]), 0o600, true),
            (from_elsewhere(6, 4, &[(other, 0), (Who::Mask, 6)]), 0o600, true),
        ] {
            assert_eq!(bits, Bits { mode, loses });
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_what_is_read_can_be_written(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [KERNELS[..4].to_vec(), bytes].concat();
            if let Some(entries) = parse(&bytes)
                && let Ok(written) = compose(&entries)
            {
                let again = parse(&written).unwrap();
                prop_assert!(entries.iter().all(|entry| again.contains(entry)));
            }
        }

        #[test]
        fn any_list_comes_back(users in prop::collection::btree_map(0..u32::MAX, 0..8_u16, 0..20), bits in 0..8_u16) {
            let named = users.iter().map(|(id, bits)| line(Who::User(*id), *bits));
            let entries: Vec<_> =
                named.chain([line(Who::Owner, bits), line(Who::OwningGroup, bits), line(Who::Other, bits)]).collect();
            let read = parse(&compose(&entries).unwrap()).unwrap();
            prop_assert!(entries.iter().all(|entry| read.contains(entry)));
            prop_assert_eq!(read.len(), entries.len() + usize::from(!users.is_empty()));
        }
    }
}
