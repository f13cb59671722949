//! One step of a space towards what is wanted of it: made, adjusted, taken away, brought back or removed by the launcher, and written down. Each finds
//! itself done where an answer was lost.

use eirene_core::audit::NewAuditEvent;
use eirene_core::launcher::{LauncherAnswer, LauncherError, LauncherRequest, SpaceFor};
use eirene_core::space::{LimitState, MadeAt, SpaceDesired};
use eirene_core::storage::Place;
use eirene_core::{Reason, Space, SpaceOwner, SpaceState, UserState};
use eirene_words::{say, say_with};
use jiff::Timestamp;
use serde_json::json;

use super::{DAY, Making, details, hinting, limiting};
use crate::audit::by_system;
use crate::error::AppError;
use crate::events::EventKind;
use crate::spaces::{NOT_SHARED, lasting, people};

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// It was done.
    Done,
    /// A part of it was: the same goes on at once.
    More,
    /// It was refused, or somebody did not answer: later.
    Later,
}

impl Making {
    /// Takes a space one step towards what is wanted of it.
    pub async fn step(&self, space: &Space) -> Result<Stepped, AppError> {
        let stepped = match (space.state, space.desired) {
            (SpaceState::Gone, _) | (SpaceState::Retired, SpaceDesired::Retired) => return Ok(Stepped::Done),
            (SpaceState::Present, SpaceDesired::Present) => self.adjust(space).await,
            // Also what is not wanted any more: it may have been made without that being written down.
            (SpaceState::Wanted, _) => self.make(space).await,
            (SpaceState::Present, SpaceDesired::Retired | SpaceDesired::Gone) => self.take_away(space).await,
            (SpaceState::Retired, SpaceDesired::Present) => self.bring_back(space).await,
            (SpaceState::Retired, SpaceDesired::Gone) => self.remove(space).await,
        };
        match stepped {
            Err(Trouble::Failed(error)) => Err(error),
            Err(Trouble::Refused { code, text }) => {
                let never_made =
                    matches!(code.as_str(), "conflict" | "unknown_person" | "unknown_group" | "bad_request");
                if space.state == SpaceState::Wanted && space.desired != SpaceDesired::Present && never_made {
                    // There is nothing of ours there, and nothing is wanted there.
                    self.write(Space { state: SpaceState::Gone, ..space.clone() }, []).await?;
                    return Ok(Stepped::Done);
                }
                tracing::info!(space = %space.name, code, text, "A space is not as it is wanted");
                let reason = Reason::new(reason_code(space), say_with(reason_key(space), &[("said", &text)]));
                if space.reason.as_ref() != Some(&reason) {
                    self.write(Space { reason: Some(reason), ..space.clone() }, []).await?;
                }
                Ok(Stepped::Later)
            }
            Err(Trouble::Away(error)) => {
                tracing::info!(space = %space.name, error, "A space is not as it is wanted yet");
                Ok(Stepped::Later)
            }
            Ok(stepped) => Ok(stepped),
        }
    }

    async fn make(&self, space: &Space) -> Result<Stepped, Trouble> {
        let of = match &space.owner {
            SpaceOwner::Person { name, .. } => SpaceFor::Person(name.clone()),
            SpaceOwner::Group(group) => SpaceFor::Group { group: group.clone(), writable: space.writable },
            SpaceOwner::Everybody => SpaceFor::Everybody,
        };
        let request = LauncherRequest::MakeSpace { root: space.root.clone(), name: space.name.clone(), of };
        let LauncherAnswer::Space { inode, unshared, .. } = self.ask(request).await? else {
            return Err(Trouble::odd());
        };
        // Of the root, because that is also there while the space is not.
        let place = Place::Root(space.root.clone());
        let seen = self.inner.storage.port().file_system(&place).await;
        let identity = seen.map_err(|error| Trouble::Away(error.to_string()))?.identity;
        // Before anybody can fill it, because it holds for what is made afterwards.
        let (hint_state, hint_said) = self.spread(space).await?;
        let made_at = Some(MadeAt { inode, identity });
        let state = SpaceState::Present;
        let reason = unshared.then(|| Reason::new(NOT_SHARED, say("space.not_shared")));
        let made = Space { state, made_at, reason, hint_state, hint_said, ..space.clone() };
        if made.limit_state == LimitState::Unset {
            self.prepare_for_limits(&made).await;
        }
        let audit = |action, outcome| by_system("space_make", action, space.name.as_str(), outcome, details(space));
        let not_shared = unshared.then(|| audit("space.not_shared", "refused"));
        let events = [Some(audit("space.made", "ok")), not_shared, hinting::audited(space, &made)];
        self.write(made, events.into_iter().flatten()).await?;
        if unshared {
            tracing::warn!(space = %space.name, root = %space.root, "A group's space has no default access list: its file system keeps none");
        }
        let is_done = space.desired == SpaceDesired::Present && space.limit_state != LimitState::Wanted;
        Ok(if is_done { Stepped::Done } else { Stepped::More })
    }

    /// Has a space that is there limited and spread as it is wanted. What somebody would not do is written down with the reason, and tried again later.
    async fn adjust(&self, space: &Space) -> Result<Stepped, Trouble> {
        let (limit_state, limit_said) = self.limit(space).await?;
        let (mut now, mut away) = (Space { limit_state, limit_said, ..space.clone() }, None);
        match self.spread(space).await {
            Ok(hinted) => (now.hint_state, now.hint_said) = hinted,
            // What became of the limit is written down all the same.
            Err(Trouble::Away(error)) => away = Some(error),
            Err(trouble) => return Err(trouble),
        }
        if now != *space {
            let events = [limiting::audited(space, &now), hinting::audited(space, &now)];
            self.write(now.clone(), events.into_iter().flatten()).await?;
        }
        if let Some(error) = away {
            return Err(Trouble::Away(error));
        }
        Ok(if limiting::is_due(&now) || hinting::is_due(&now) { Stepped::Later } else { Stepped::Done })
    }

    async fn take_away(&self, space: &Space) -> Result<Stepped, Trouble> {
        let inode = inode(space)?;
        let (root, name) = (space.root.clone(), space.name.clone());
        self.ask(LauncherRequest::RetireSpace { root, name, inode, id: space.id }).await?;
        let now = self.inner.clock.now();
        let days = self.root(&space.root).map_or(i32::MAX, |root| i32::try_from(root.grace_days).unwrap_or(i32::MAX));
        let remove_after = now.checked_add(DAY * days).unwrap_or(Timestamp::MAX);
        let retired = Space {
            state: SpaceState::Retired,
            retired_at: Some(now),
            remove_after: Some(remove_after),
            kept_s: 0,
            watched_at: Some(now),
            undetermined: false,
            reason: lasting(space),
            ..space.clone()
        };
        self.write(retired, [audit("space.retired", space)]).await?;
        self.tell(space, "space_retired", "space.retired").await;
        Ok(if space.desired == SpaceDesired::Retired { Stepped::Done } else { Stepped::More })
    }

    async fn bring_back(&self, space: &Space) -> Result<Stepped, Trouble> {
        let inode = inode(space)?;
        let (root, name) = (space.root.clone(), space.name.clone());
        self.ask(LauncherRequest::RestoreSpace { root, name, inode, id: space.id }).await?;
        let mut back = Space {
            state: SpaceState::Present,
            retired_at: None,
            remove_after: None,
            kept_s: 0,
            watched_at: Some(self.inner.clock.now()),
            reason: lasting(space),
            ..space.clone()
        };
        if back.limit_state != LimitState::Unset {
            // What its owner may use was judged without it meanwhile.
            (back.limit_state, back.limit_said) = (LimitState::Wanted, None);
        }
        let is_done = back.limit_state == LimitState::Unset;
        self.write(back, [audit("space.restored", space)]).await?;
        self.tell(space, "space_restored", "space.restored").await;
        Ok(if is_done { Stepped::Done } else { Stepped::More })
    }

    async fn remove(&self, space: &Space) -> Result<Stepped, Trouble> {
        let (root, inode, id, serial) = (space.root.clone(), inode(space)?, space.id, space.serial);
        let request = LauncherRequest::RemoveRetired { root, inode, id, serial };
        let LauncherAnswer::Removed { done } = self.ask(request).await? else { return Err(Trouble::odd()) };
        if !done {
            return Ok(Stepped::More);
        }
        self.write(Space { state: SpaceState::Gone, reason: None, ..space.clone() }, [audit("space.removed", space)])
            .await?;
        Ok(Stepped::Done)
    }

    pub(super) async fn ask(&self, request: LauncherRequest) -> Result<LauncherAnswer, Trouble> {
        self.inner.launcher.call(request).await.map_err(|error| match error {
            LauncherError::Refused { code, text } if code != "away" => Trouble::Refused { code, text },
            error => Trouble::Away(error.to_string()),
        })
    }

    /// Writes what was done, and records it. Where somebody changed the row meanwhile the next run finds it done, records it then, and goes on from
    /// what is wanted then.
    async fn write(&self, space: Space, events: impl IntoIterator<Item = NewAuditEvent>) -> Result<(), AppError> {
        let audit: Vec<_> = events.into_iter().map(|event| self.inner.audit.entry(event)).collect();
        if !self.inner.db.update_space(&space, &audit).await? {
            tracing::info!(space = %space.name, "A space was changed by somebody else meanwhile; the next run goes on");
        }
        Ok(())
    }

    /// Tells the space's people, as far as it can be known now who they are: what became of it is seen in its state, too.
    async fn tell(&self, space: &Space, code: &str, key: &str) {
        let text = say_with(key, &[("name", space.title.as_str())]);
        let data = json!({"code": code, "text": text.as_str(), "space": space.name});
        let whom = match &space.owner {
            SpaceOwner::Person { id, .. } => vec![Some(*id)],
            SpaceOwner::Everybody => vec![None],
            SpaceOwner::Group(group) => match people::of_the_cluster(&self.inner.db).await {
                Ok(all) => {
                    let active = all.iter().filter(|user| user.state == UserState::Active);
                    let (members, _) = people::in_group(&*self.inner.groups, active, group).await;
                    members.into_iter().map(Some).collect()
                }
                Err(error) => {
                    tracing::warn!(space = %space.name, %error, "A space's people were not told what became of it");
                    return;
                }
            },
        };
        for person in whom {
            self.inner.events.publish(EventKind::Notice, None, person, data.clone()).await;
        }
    }
}

/// Why a step was not taken.
pub(super) enum Trouble {
    /// The launcher will not, until somebody changes something.
    Refused { code: String, text: String },
    /// Somebody did not answer.
    Away(String),
    /// The database, or a fault of ours.
    Failed(AppError),
}

impl Trouble {
    pub(super) fn odd() -> Self {
        Self::Away("the launcher gave another answer".into())
    }
}

impl From<AppError> for Trouble {
    fn from(error: AppError) -> Self {
        Self::Failed(error)
    }
}

/// Inode of the directory that was made.
pub(super) fn inode(space: &Space) -> Result<u64, Trouble> {
    let made = space.made_at.as_ref().map(|made| made.inode);
    made.ok_or_else(|| Trouble::Refused { code: "missing".into(), text: "it was never noted where it was made".into() })
}

fn audit(action: &'static str, space: &Space) -> NewAuditEvent {
    by_system("space_make", action, space.name.as_str(), "ok", details(space))
}

fn reason_code(space: &Space) -> &'static str {
    match space.state {
        SpaceState::Wanted => "not_made",
        SpaceState::Present | SpaceState::Retired | SpaceState::Gone => "not_moved",
    }
}

fn reason_key(space: &Space) -> &'static str {
    match space.state {
        SpaceState::Wanted => "space.not_made",
        SpaceState::Present | SpaceState::Retired | SpaceState::Gone => "space.not_moved",
    }
}
