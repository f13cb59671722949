//! Whose channel is open, and when another is opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eirene_core::launcher::Launcher;
use eirene_core::{UserId, Username};
use eirene_files_protocol::{Open, OpenSpace, SpaceNumber};
use tokio::time::Instant;

use crate::file_processes::{FilesChannel, FilesError, Limits};

/// Whose files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The portal's number.
    pub id: UserId,
    /// Log-in name, which the launcher knows.
    pub name: Username,
    /// User id, which the process must have.
    pub uid: u32,
}

/// The file processes of all people.
pub struct FilesPool {
    launcher: Arc<dyn Launcher>,
    limits: Limits,
    people: Mutex<HashMap<UserId, Person>>,
}

#[derive(Default)]
struct Person {
    /// Held while a process is started: one at a time.
    starting: Arc<tokio::sync::Mutex<()>>,
    channel: Option<(Open, FilesChannel)>,
    /// When a process of this person's failed last.
    failed: Option<Instant>,
}

impl FilesPool {
    /// Processes that `launcher` starts.
    pub fn new(launcher: Arc<dyn Launcher>, limits: Limits) -> Self {
        Self { launcher, limits, people: Mutex::default() }
    }

    /// A channel whose process has opened exactly these spaces; the one that is there, or a new one. A process cannot open more than it was
    /// started with, so for other spaces another takes its place, once what is under way there is done. So it does where the `wanted` one may
    /// have come back since.
    ///
    /// # Errors
    /// As [`FilesError`] says: [`FilesError::Away`] where the last process failed a moment ago, [`FilesError::Busy`] where all are in use.
    pub async fn channel(
        &self,
        owner: &Owner,
        spaces: &[OpenSpace],
        wanted: SpaceNumber,
    ) -> Result<FilesChannel, FilesError> {
        let starting = Arc::clone(&self.people().entry(owner.id).or_default().starting);
        let _alone = starting.lock().await;
        if let Some(channel) = self.usable(owner, spaces, wanted, &starting)? {
            return Ok(channel);
        }
        self.make_room()?;
        let open = Open { spaces: spaces.to_vec() };
        let started = self.start(owner, &open).await;
        let mut people = self.people();
        // Whoever was revoked meanwhile is another entry, or none.
        let person = people.get_mut(&owner.id).filter(|person| Arc::ptr_eq(&person.starting, &starting));
        match (started, person) {
            (Ok(channel), Some(person)) => {
                person.channel = Some((open, channel.clone()));
                Ok(channel)
            }
            (Ok(channel), None) => {
                channel.close();
                Err(FilesError::Ended)
            }
            (Err(error), person) => {
                if let Some(person) = person {
                    person.failed = Some(Instant::now());
                }
                Err(error)
            }
        }
    }

    /// Who has a channel, or had one a moment ago.
    pub fn owners(&self) -> Vec<UserId> {
        self.people().keys().copied().collect()
    }

    /// Closes a person's channel with all that is under way: the rights are gone.
    pub fn revoke(&self, id: UserId) {
        if let Some((_, channel)) = self.people().remove(&id).and_then(|person| person.channel) {
            channel.close();
        }
    }

    /// Closes all of them.
    pub fn close(&self) {
        for (_, channel) in self.people().drain().filter_map(|(_, person)| person.channel) {
            channel.close();
        }
    }

    fn people(&self) -> MutexGuard<'_, HashMap<UserId, Person>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel that is there, if it will do.
    fn usable(
        &self,
        owner: &Owner,
        spaces: &[OpenSpace],
        wanted: SpaceNumber,
        starting: &Arc<tokio::sync::Mutex<()>>,
    ) -> Result<Option<FilesChannel>, FilesError> {
        let mut people = self.people();
        let person = people.get_mut(&owner.id).filter(|person| Arc::ptr_eq(&person.starting, starting));
        let person = person.ok_or(FilesError::Ended)?;
        if let Some((open, channel)) = &person.channel {
            if channel.is_open() && open.spaces == spaces && !channel.is_stale(wanted) {
                channel.touch();
                return Ok(Some(channel.clone()));
            }
            channel.retire();
        }
        let failed = person.channel.take().and_then(|(_, channel)| channel.failed_at());
        person.failed = person.failed.max(failed);
        let left = person.failed.and_then(|at| self.limits.pause.checked_sub(at.elapsed()));
        left.map_or(Ok(None), |left| Err(FilesError::Away { retry_after_s: left.as_secs() + 1 }))
    }

    /// Forgets people who have nothing here, and closes the channel that was unused for longest where there are as many as there may be.
    fn make_room(&self) -> Result<(), FilesError> {
        let mut people = self.people();
        people.retain(|_, person| {
            let open = person.channel.as_ref().is_some_and(|(_, channel)| channel.is_open());
            let failing = person.failed.is_some_and(|at| at.elapsed() < self.limits.pause);
            open || failing || Arc::strong_count(&person.starting) > 1
        });
        let open = people.values().filter_map(|person| person.channel.as_ref()).map(|(_, channel)| channel);
        let open: Vec<&FilesChannel> = open.filter(|channel| channel.is_open()).collect();
        if open.len() < self.limits.most {
            return Ok(());
        }
        let unused = open.into_iter().filter_map(|channel| Some((channel.idle_since()?, channel)));
        let (_, channel) = unused.min_by_key(|(since, _)| *since).ok_or(FilesError::Busy)?;
        channel.close();
        Ok(())
    }

    async fn start(&self, owner: &Owner, open: &Open) -> Result<FilesChannel, FilesError> {
        let descriptor = self.launcher.open_files(&owner.name).await?;
        let channel = FilesChannel::open(descriptor, owner.uid, open, self.limits).await;
        if let Err(error) = &channel {
            tracing::error!(user.id = %owner.id, %error, "a file process could not be used");
        }
        channel
    }
}
