//! Whom a space is for: the people with an account here who reach it, for what they are to be told.

use eirene_core::{GroupName, User, UserId, UserState};
use eirene_database::{Db, DbError};

use super::groups::{GroupSource, KnownGroups};

/// Rows that are read at once.
const PAGE: u32 = 200;

/// Everybody who is a person of the cluster, disabled or not, by name.
pub(super) async fn of_the_cluster(db: &Db) -> Result<Vec<User>, DbError> {
    let mut all: Vec<User> = Vec::new();
    loop {
        let cursor = all.last().map(|user| user.username.to_string());
        let page = db.users(cursor, PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        all.extend(page);
        if is_last {
            break;
        }
    }
    all.retain(|user| user.uid.is_some());
    Ok(all)
}

/// Those of these people who are in a group, and whether the user database told it of all of them.
pub(super) async fn in_group(
    source: &dyn GroupSource,
    people: impl Iterator<Item = &User>,
    group: &GroupName,
) -> (Vec<UserId>, bool) {
    let (mut found, mut told) = (Vec::new(), true);
    for person in people {
        match source.groups_of(&person.username).await {
            Ok(groups) if groups.contains(group) => found.push(person.id),
            Ok(_) => {}
            Err(_) => told = false,
        }
    }
    (found, told)
}

/// Those who may sign in and are in a group; none where the user database does not say it of all of them now. Somebody whom it does not know is in
/// none.
pub(super) async fn members(db: &Db, known: &KnownGroups, group: &GroupName) -> Result<Option<Vec<UserId>>, DbError> {
    let mut members = Vec::new();
    for user in of_the_cluster(db).await?.iter().filter(|user| user.state == UserState::Active) {
        match known.of(&user.username).await {
            Ok(groups) if groups.contains(group) => members.push(user.id),
            Ok(_) => {}
            // Who is not there any more keeps nobody else from being told.
            Err(_) => match known.source().knows(&user.username).await {
                Ok(false) => {}
                Ok(true) | Err(_) => return Ok(None),
            },
        }
    }
    Ok(Some(members))
}
