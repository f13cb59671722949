//! Which groups a person is in, as the user database says it.
//!
//! [`LocalGroups`] asks it from this process, the way every program of this host does (`nsswitch.conf`); the launcher can take its place behind
//! [`GroupSource`]. An answer holds for a minute. No answer is an error and never "no groups": a database that is away would take people's
//! spaces from them.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::{Clock, GroupName, Username};
use nix::unistd::{Group, User};
use tokio::sync::Semaphore;

use super::access::GroupsAway;
use crate::kept::Kept;

/// Longest wait for the user database.
const WAIT: Duration = Duration::from_secs(5);
/// Questions that may be open at once. One that hangs keeps its thread, and others need some too.
const MOST_OPEN: usize = 8;

/// What the user database knows of people: their groups, and where their homes are.
#[async_trait]
pub trait GroupSource: Send + Sync + 'static {
    /// All groups of a person. One that the database does not know is [`GroupsAway`] too: whoever has an account here was known when it was made.
    async fn groups_of(&self, person: &Username) -> Result<Vec<GroupName>, GroupsAway>;

    /// Whether it knows a person. Other than above, not knowing is an answer here.
    async fn knows(&self, person: &Username) -> Result<bool, GroupsAway>;

    /// The number of a person.
    async fn uid_of(&self, person: &Username) -> Result<Option<u32>, GroupsAway>;

    /// The number of a group.
    async fn number_of(&self, group: &GroupName) -> Result<Option<u32>, GroupsAway>;

    /// A person's home directory, absolute.
    async fn home_of(&self, person: &Username) -> Result<PathBuf, GroupsAway>;
}

/// Asks the user database from this process, in a thread that is given up when it takes too long.
#[derive(Debug, Clone)]
pub struct LocalGroups {
    open: Arc<Semaphore>,
}

impl Default for LocalGroups {
    fn default() -> Self {
        Self { open: Arc::new(Semaphore::new(MOST_OPEN)) }
    }
}

impl LocalGroups {
    /// Runs a question that may hang beside the others.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> Result<T, GroupsAway> + Send + 'static,
    ) -> Result<T, GroupsAway> {
        let answer = async {
            let place = Arc::clone(&self.open).acquire_owned().await.map_err(|_| GroupsAway)?;
            let asked = tokio::task::spawn_blocking(move || {
                let _place = place;
                ask()
            });
            asked.await.map_err(|_| GroupsAway)?
        };
        tokio::time::timeout(WAIT, answer).await.map_err(|_| GroupsAway)?
    }
}

#[async_trait]
impl GroupSource for LocalGroups {
    async fn groups_of(&self, person: &Username) -> Result<Vec<GroupName>, GroupsAway> {
        let person = person.clone();
        self.ask(move || {
            let user = User::from_name(person.as_str()).ok().flatten().ok_or(GroupsAway)?;
            let name = CString::new(person.as_str()).map_err(|_| GroupsAway)?;
            let numbers = nix::unistd::getgrouplist(&name, user.gid).map_err(|_| GroupsAway)?;
            let mut groups = Vec::new();
            for number in numbers {
                // A number without a name, or with one that no space can have, opens nothing.
                let group = Group::from_gid(number).map_err(|_| GroupsAway)?;
                groups.extend(group.and_then(|group| group.name.parse().ok()));
            }
            Ok(groups)
        })
        .await
    }

    async fn knows(&self, person: &Username) -> Result<bool, GroupsAway> {
        let person = person.clone();
        self.ask(move || Ok(User::from_name(person.as_str()).map_err(|_| GroupsAway)?.is_some())).await
    }

    async fn uid_of(&self, person: &Username) -> Result<Option<u32>, GroupsAway> {
        let person = person.clone();
        self.ask(move || {
            let found = User::from_name(person.as_str()).map_err(|_| GroupsAway)?;
            Ok(found.map(|user| user.uid.as_raw()))
        })
        .await
    }

    async fn number_of(&self, group: &GroupName) -> Result<Option<u32>, GroupsAway> {
        let group = group.clone();
        self.ask(move || {
            let found = Group::from_name(group.as_str()).map_err(|_| GroupsAway)?;
            Ok(found.map(|group| group.gid.as_raw()))
        })
        .await
    }

    async fn home_of(&self, person: &Username) -> Result<PathBuf, GroupsAway> {
        let person = person.clone();
        self.ask(move || Ok(User::from_name(person.as_str()).ok().flatten().ok_or(GroupsAway)?.dir)).await
    }
}

/// Keeps answers for a while.
#[derive(Clone)]
pub(crate) struct KnownGroups {
    source: Arc<dyn GroupSource>,
    known: Kept<Arc<[GroupName]>>,
    homes: Kept<PathBuf>,
}

impl KnownGroups {
    pub(crate) fn new(source: Arc<dyn GroupSource>, clock: Arc<dyn Clock>) -> Self {
        Self { source, known: Kept::new(Arc::clone(&clock)), homes: Kept::new(clock) }
    }

    /// Whoever is asked.
    pub(super) fn source(&self) -> &dyn GroupSource {
        &*self.source
    }

    /// All groups of a person, at most a minute old.
    pub(crate) async fn of(&self, person: &Username) -> Result<Arc<[GroupName]>, GroupsAway> {
        if let Some(groups) = self.known.get(person) {
            return Ok(groups);
        }
        let groups: Arc<[GroupName]> = self.source.groups_of(person).await?.into();
        self.known.put(person, Arc::clone(&groups));
        Ok(groups)
    }

    pub(super) async fn uid_of(&self, person: &Username) -> Result<Option<u32>, GroupsAway> {
        self.source.uid_of(person).await
    }

    pub(super) async fn number_of(&self, group: &GroupName) -> Result<Option<u32>, GroupsAway> {
        self.source.number_of(group).await
    }

    /// A person's home directory, as it was a minute ago.
    pub(super) async fn home_of(&self, person: &Username) -> Result<PathBuf, GroupsAway> {
        if let Some(home) = self.homes.get(person) {
            return Ok(home);
        }
        let home = self.source.home_of(person).await?;
        self.homes.put(person, home.clone());
        Ok(home)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[tokio::test]
    async fn this_hosts_user_database_is_asked() {
        let database = LocalGroups::default();
        let root = database.groups_of(&"root".parse().unwrap()).await.unwrap();
        assert!(root.contains(&"root".parse().unwrap()), "{root:?}");
        assert_eq!(database.home_of(&"root".parse().unwrap()).await, Ok(PathBuf::from("/root")));
        assert_eq!(database.number_of(&"root".parse().unwrap()).await, Ok(Some(0)));
        assert_eq!(database.knows(&"root".parse().unwrap()).await, Ok(true));
        assert_eq!(database.knows(&"no.such.person.here".parse().unwrap()).await, Ok(false));
        assert_eq!(database.number_of(&"no.such.group.here".parse().unwrap()).await, Ok(None));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn questions_that_hang_leave_threads_for_others() {
        let database = LocalGroups::default();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let mut hanging = Vec::new();
        for _ in 0..MOST_OPEN {
            let (database, held) = (database.clone(), Arc::clone(&held));
            let hang = move || {
                // Ends when the other end is dropped; the others wait for this one.
                let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
                Ok(())
            };
            hanging.push(tokio::spawn(async move { database.ask(hang).await }));
        }
        while database.open.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let next = database.ask(|| Ok(7));
        drop(release);
        assert_eq!(next.await, Ok(7));
        for asked in hanging {
            assert_eq!(asked.await.unwrap(), Ok(()));
        }
    }

    #[tokio::test]
    async fn somebody_unknown_is_not_somebody_without_groups() {
        assert_eq!(LocalGroups::default().groups_of(&"nobody.knows.them".parse().unwrap()).await, Err(GroupsAway));
    }
}
