//! Access control lists as people see and set them: without the mask, which is worked out of what everybody is to get, and with the dangers of
//! a change named before it is made.

use eirene_core::{GroupName, Sentence, Username};
use eirene_files_protocol::{AclEntry, MOST_ACL, PermissionChange, Permissions, Rights, Who};
use eirene_words::{say, say_with};

use super::Files;
use crate::error::{AppError, FieldError};

const READ: u16 = 4;
const WRITE: u16 = 2;
const RUN: u16 = 1;

/// Lines to choose by name that a list has beside those that every list has, and the mask.
pub const MOST_NAMED: usize = MOST_ACL - 4;

/// What is made in a directory from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HandedOn {
    /// Gets what it would get today.
    #[default]
    Keep,
    /// Gets the directory's list.
    Same,
    /// Gets nothing of the directory's.
    Nothing,
}

/// Whom a line to be added is about, by the name that somebody typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added<'a> {
    /// A person.
    Person(&'a str),
    /// A group.
    Group(&'a str),
}

/// What a change would do that people seldom mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Danger {
    /// The owner could not open it any more.
    LocksOut,
    /// Everybody could read what not everybody could.
    OpensToRead,
    /// Everybody could change what not everybody could.
    OpensToWrite,
}

/// Who gets what in the end: the list without its mask, or what the permission bits say where there is none.
pub fn in_effect(now: &Permissions) -> Vec<AclEntry> {
    match &now.access {
        Some(list) => unmasked(list),
        None => [(Who::Owner, 6), (Who::OwningGroup, 3), (Who::Other, 0)]
            .map(|(who, shift)| AclEntry { who, may: Rights::from_bits(now.mode >> shift) })
            .into(),
    }
}

/// A list with its mask applied, in the order in which lists are kept.
pub fn unmasked(list: &[AclEntry]) -> Vec<AclEntry> {
    let mask = list.iter().find(|line| line.who == Who::Mask).map_or(7, |line| line.may.bits());
    let mut lines: Vec<AclEntry> = list
        .iter()
        .filter(|line| line.who != Who::Mask)
        .map(|line| match line.who {
            Who::User(_) | Who::OwningGroup | Who::Group(_) => {
                AclEntry { may: Rights::from_bits(line.may.bits() & mask), ..*line }
            }
            Who::Owner | Who::Other | Who::Mask => *line,
        })
        .collect();
    lines.sort_by_key(|line| line.who);
    lines
}

/// The change that makes `lines` be in effect. Where the file system keeps no lists, and nobody is named, they are permission bits.
///
/// # Errors
/// By field: that it is no list, or that somebody is named where there are no lists.
pub fn change(now: &Permissions, lines: Vec<AclEntry>, handed_on: HandedOn) -> Result<PermissionChange, AppError> {
    let may = |who| lines.iter().find(|line| line.who == who).map(|line| line.may.bits());
    let (Some(owner), Some(group), Some(other)) = (may(Who::Owner), may(Who::OwningGroup), may(Who::Other)) else {
        return Err(wrong("who", say("wrong.acl")));
    };
    let mut all: Vec<Who> = lines.iter().map(|line| line.who).collect();
    all.sort_unstable();
    if all.windows(2).any(|two| two[0] == two[1]) || all.contains(&Who::Mask) {
        return Err(wrong("who", say("wrong.acl")));
    }
    if lines.len() > MOST_NAMED {
        return Err(wrong("who", say_with("wrong.none_or_many", &[("most", &MOST_NAMED.to_string())])));
    }
    if !now.lists {
        return if lines.len() > 3 || handed_on == HandedOn::Same {
            Err(wrong("new_name", say("wrong.no_lists")))
        } else {
            Ok(PermissionChange::Mode(owner << 6 | group << 3 | other))
        };
    }
    let default = match handed_on {
        HandedOn::Keep => now.default.clone().unwrap_or_default(),
        HandedOn::Same => lines.clone(),
        HandedOn::Nothing => Vec::new(),
    };
    Ok(PermissionChange::Acl { access: lines, default })
}

/// What of a change to `lines` people seldom mean.
pub fn dangers(now: &Permissions, is_directory: bool, lines: &[AclEntry]) -> Vec<Danger> {
    let may = |lines: &[AclEntry], who| lines.iter().find(|line| line.who == who).map_or(0, |line| line.may.bits());
    let needed = if is_directory { READ | RUN } else { READ };
    let locked_out = |lines: &[AclEntry]| may(lines, Who::Owner) & needed != needed;
    let before = in_effect(now);
    let opened = may(lines, Who::Other) & !may(&before, Who::Other);
    let mut dangers = Vec::new();
    if locked_out(lines) && !locked_out(&before) {
        dangers.push(Danger::LocksOut);
    }
    if opened & WRITE != 0 {
        dangers.push(Danger::OpensToWrite);
    } else if opened & READ != 0 {
        dangers.push(Danger::OpensToRead);
    }
    dangers
}

impl Files {
    /// Adds a line for somebody by name to those in effect.
    ///
    /// # Errors
    /// By field: that nobody is called so, or that they have a line already.
    pub async fn add_line(
        &self,
        now: &Permissions,
        lines: &mut Vec<AclEntry>,
        added: Added<'_>,
        may: Rights,
    ) -> Result<(), AppError> {
        let spaces = &self.inner.spaces;
        let (name, number) = match added {
            Added::Person(name) => (
                name,
                match name.parse::<Username>() {
                    Ok(person) => spaces.number_of_person(&person).await?.map(Who::User),
                    Err(_) => None,
                },
            ),
            Added::Group(name) => (
                name,
                match name.parse::<GroupName>() {
                    Ok(group) => spaces.number_of_group(&group).await?.map(Who::Group),
                    Err(_) => None,
                },
            ),
        };
        let Some(who) = number else {
            let key = if matches!(added, Added::Person(_)) { "wrong.nobody_called" } else { "wrong.no_group_called" };
            return Err(wrong("new_name", say_with(key, &[("name", name)])));
        };
        let has_one = lines.iter().any(|line| line.who == who);
        if has_one || who == Who::User(now.owner) || who == Who::Group(now.group) {
            return Err(wrong("new_name", say_with("wrong.listed_already", &[("name", name)])));
        }
        lines.push(AclEntry { who, may });
        Ok(())
    }
}

fn wrong(field: &str, message: Sentence) -> AppError {
    AppError::Invalid(vec![FieldError::new(field, message)])
}

#[cfg(test)]
mod tests {
    use eirene_files_protocol::Accounts;

    use super::*;

    fn line(who: Who, bits: u16) -> AclEntry {
        AclEntry { who, may: Rights::from_bits(bits) }
    }

    fn least(owner: u16, group: u16, other: u16) -> Vec<AclEntry> {
        vec![line(Who::Owner, owner), line(Who::OwningGroup, group), line(Who::Other, other)]
    }

    fn now(mode: u16, access: Option<Vec<AclEntry>>) -> Permissions {
        Permissions {
            owner: 1,
            group: 2,
            mode,
            mine: true,
            lists: true,
            share: None,
            access,
            default: None,
            accounts: Accounts::default(),
        }
    }

    #[test]
    fn what_the_mask_takes_away_is_not_in_effect() {
        assert_eq!(in_effect(&now(0o2751, None)), least(7, 5, 1));
        let list = [least(6, 7, 4), vec![line(Who::Mask, 4), line(Who::User(9), 7), line(Who::Group(8), 2)]].concat();
        let seen = [line(Who::Owner, 6), line(Who::User(9), 4), line(Who::OwningGroup, 4), line(Who::Group(8), 0)];
        assert_eq!(in_effect(&now(0o644, Some(list))), [&seen[..], &[line(Who::Other, 4)]].concat());
    }

    #[test]
    fn a_list_is_set_as_one_and_without_lists_as_bits() {
        let default = least(7, 0, 0);
        let with = Permissions { default: Some(default.clone()), ..now(0o700, None) };
        let wanted = [least(7, 5, 0), vec![line(Who::User(9), 5)]].concat();
        for (handed_on, expected) in
            [(HandedOn::Keep, default), (HandedOn::Same, wanted.clone()), (HandedOn::Nothing, vec![])]
        {
            let expected = PermissionChange::Acl { access: wanted.clone(), default: expected };
            assert_eq!(change(&with, wanted.clone(), handed_on).unwrap(), expected, "{handed_on:?}");
        }
        let without = Permissions { lists: false, ..now(0o700, None) };
        let bits = PermissionChange::Mode(0o750);
        assert_eq!(change(&without, least(7, 5, 0), HandedOn::Keep).unwrap(), bits);
        assert!(change(&without, wanted, HandedOn::Keep).is_err());
        assert!(change(&without, least(7, 5, 0), HandedOn::Same).is_err());
    }

    #[test]
    fn what_is_no_list_is_no_change() {
        let many: Vec<_> = (10..10 + MOST_ACL as u32).map(|id| line(Who::User(id), 4)).collect();
        for lines in [
            vec![],
            least(7, 5, 0)[..2].to_vec(),
            [least(7, 5, 0), vec![line(Who::Other, 1)]].concat(),
            [least(7, 5, 0), vec![line(Who::Mask, 1)]].concat(),
            [least(7, 5, 0), many].concat(),
        ] {
            assert!(change(&now(0o700, None), lines, HandedOn::Keep).is_err());
        }
    }

    #[test]
    fn dangers_are_what_a_change_adds() {
        let dangers = |mode, is_directory, lines: Vec<AclEntry>| dangers(&now(mode, None), is_directory, &lines);
        assert_eq!(dangers(0o640, false, least(6, 6, 0)), []);
        assert_eq!(dangers(0o640, false, least(4, 4, 1)), [], "to run what cannot be read is nothing");
        assert_eq!(dangers(0o640, false, least(2, 4, 4)), [Danger::LocksOut, Danger::OpensToRead]);
        assert_eq!(dangers(0o755, true, least(6, 5, 7)), [Danger::LocksOut, Danger::OpensToWrite]);
        assert_eq!(dangers(0o600, false, least(6, 0, 6)), [Danger::OpensToWrite]);
        assert_eq!(dangers(0o044, false, least(0, 4, 4)), [], "it was so before");
    }
}
