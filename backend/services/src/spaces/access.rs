//! Who may do what with a space: the first of three locks. The second is that a person's files are opened by a process that is the person, the
//! third is the kernel's own permissions.
//!
//! Admins are not asked about here: they see rows and usage, never files, and what they see they see by another rule.

use eirene_core::{GroupName, Space, SpaceOwner, SpaceState, UserId};

/// What somebody may do with what is in a space. Later ones may do more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Nothing: for them it does not exist.
    Hidden,
    /// Read.
    Read,
    /// Read and write, as far as the file system lets them.
    Write,
}

/// The groups of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups<'a> {
    /// All of them.
    Known(&'a [GroupName]),
    /// The user database does not answer.
    Away,
}

/// Whether a person is in a group cannot be known now. Neither yes nor no would be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the user database does not answer")]
pub struct GroupsAway;

/// What `person` may do in `space`. A space that is not there is nobody's; while it is retired nobody reaches it.
pub fn reach(space: &Space, person: UserId, groups: Groups<'_>) -> Result<Reach, GroupsAway> {
    let theirs = match (&space.owner, groups) {
        (SpaceOwner::Person { id, .. }, _) => *id == person,
        (SpaceOwner::Everybody, _) => true,
        (SpaceOwner::Group(group), Groups::Known(groups)) => groups.contains(group),
        (SpaceOwner::Group(_), Groups::Away) => return Err(GroupsAway),
    };
    Ok(match (theirs, space.state) {
        (false, _) | (true, SpaceState::Gone) => Reach::Hidden,
        (true, SpaceState::Wanted | SpaceState::Retired) => Reach::Read,
        (true, SpaceState::Present) if !space.writable || space.owner == SpaceOwner::Everybody => Reach::Read,
        (true, SpaceState::Present) => Reach::Write,
    })
}

#[cfg(test)]
mod tests {
    use eirene_core::{SpaceKind, Username};
    use proptest::prelude::*;

    use super::*;
    use crate::spaces::testing::{a_space, person};

    fn owners() -> impl Strategy<Value = (SpaceOwner, Option<UserId>, Option<GroupName>)> {
        let ada = UserId::generate();
        prop_oneof![
            Just((person(ada, "ada"), Some(ada), None)),
            "[a-z]{1,3}".prop_map(|name| {
                let group: GroupName = name.parse().unwrap();
                (SpaceOwner::Group(group.clone()), None, Some(group))
            }),
            Just((SpaceOwner::Everybody, None, None)),
        ]
    }

    proptest! {
        #[test]
        fn nobody_reaches_what_is_neither_theirs_nor_their_groups_nor_everybodys(
            (owner, of, group) in owners(),
            groups in proptest::collection::vec("[a-z]{1,3}", 0..4),
            writable in any::<bool>(),
            state in proptest::sample::select(SpaceState::ALL),
        ) {
            let groups: Vec<GroupName> = groups.iter().map(|name| name.parse().unwrap()).collect();
            let space = Space { writable, state, ..a_space(owner.clone()) };
            let stranger = reach(&space, UserId::generate(), Groups::Known(&groups)).unwrap();
            let open = owner == SpaceOwner::Everybody || group.as_ref().is_some_and(|group| groups.contains(group));
            prop_assert!(open || stranger == Reach::Hidden);
            prop_assert!(stranger < Reach::Write || writable && state == SpaceState::Present);
            if let Some(of) = of {
                prop_assert_eq!(reach(&space, of, Groups::Away).unwrap() == Reach::Hidden, state == SpaceState::Gone);
            }
        }
    }

    #[test]
    fn a_user_database_that_does_not_answer_is_no_no() {
        let group = a_space(SpaceOwner::Group("physics".parse().unwrap()));
        assert_eq!(reach(&group, UserId::generate(), Groups::Away), Err(GroupsAway));
        let ada = UserId::generate();
        assert_eq!(reach(&a_space(person(ada, "ada")), ada, Groups::Away), Ok(Reach::Write));
        assert_eq!(reach(&a_space(SpaceOwner::Everybody), ada, Groups::Away), Ok(Reach::Read));
    }

    #[test]
    fn a_namesake_is_somebody_else() {
        let name: Username = "ada".parse().unwrap();
        let space = Space { kind: SpaceKind::Home, ..a_space(SpaceOwner::Person { id: UserId::generate(), name }) };
        assert_eq!(reach(&space, UserId::generate(), Groups::Known(&[])), Ok(Reach::Hidden));
    }
}
