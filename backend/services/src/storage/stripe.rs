//! What the storage knows of a directory, above all how its new files are spread over targets: what people see of it, and what a space's hint
//! makes of it.
//!
//! A directory is asked about by its place, whose path the probe has resolved: BeeGFS's tools follow no link without a mount, so a path that
//! somebody else named would be another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eirene_core::space::StripeHint;
use eirene_core::storage::{Ability, Below, Entry, Known, Pattern, Place, SetStripe, StorageError, Stripe};
use eirene_core::{Clock, Space};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;

use super::Storage;
use super::snapshot::{Trouble, TroubleKind};
use crate::spaces::hint;
use crate::spaces::look::place_of;

/// How long what was seen of a directory is shown again.
const HOLDS: SignedDuration = SignedDuration::from_mins(5);
/// Directories that are kept.
const MOST: usize = 1000;
/// How long somebody who looks at a directory waits for this.
const WAIT: Duration = Duration::from_secs(4);

/// What became of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Nothing is to be changed: the hint asks for nothing, or it is so already.
    AsItIs,
    /// Where the space lies, files are not spread.
    CannotSpread,
    /// It was set and read back. It holds for files that are made from now on.
    Set(SetStripe),
}

type Seen = HashMap<Place, (Timestamp, Entry)>;

/// Stripe patterns. Cheap to clone.
#[derive(Clone)]
pub struct Stripes {
    storage: Storage,
    clock: Arc<dyn Clock>,
    seen: Arc<Mutex<Seen>>,
    /// People's questions take one place of the tool's at most, so that they keep nobody from seeing how the storage is.
    turn: Arc<Semaphore>,
}

impl Stripes {
    /// Stripe patterns of `storage`.
    pub fn new(storage: Storage, clock: Arc<dyn Clock>) -> Self {
        Self { storage, clock, seen: Arc::default(), turn: Arc::new(Semaphore::new(1)) }
    }

    /// What the storage knows of a directory of a space, above all how its new files are spread, where it tells that soon; `below` is the
    /// directory's path in the space, empty for the space itself. Whoever asks has seen to it who may.
    pub async fn of(&self, space: &Space, below: &[u8]) -> Option<Entry> {
        let can = self.storage.snapshot().capabilities.as_ref().map(|can| can.stripe_read);
        if can != Some(Ability::Yes) {
            return None;
        }
        let place = below_of(place_of(space), below)?;
        if let Some(seen) = self.kept(&place) {
            return Some(seen);
        }
        let _turn = self.turn.try_acquire().ok()?;
        let entry = tokio::time::timeout(WAIT, self.storage.port().entry(&place)).await.ok()?.ok()?;
        self.keep(place, entry.clone());
        Some(entry)
    }

    /// Spreads the files that are made in a space from now on as its hint says, and reads back that it is so.
    ///
    /// # Errors
    /// What the storage said instead; what was before may have been changed where it did not answer.
    pub async fn apply_hint(&self, space: &Space) -> Result<Applied, Trouble> {
        if space.hint == StripeHint::Usual {
            return Ok(Applied::AsItIs);
        }
        let (port, place) = (self.storage.port(), place_of(space));
        let now = match port.entry(&place).await {
            Ok(entry) => entry.stripe,
            // Of another file system: what is called a wrong question is one about such a place.
            Err(StorageError::Unsupported(_) | StorageError::Invalid(_)) => return Ok(Applied::CannotSpread),
            Err(error) => return Err(Trouble::from(&error)),
        };
        let Some(now) = now.value() else { return Err(not_told("how its files are spread")) };
        let Some(wanted) = hint::stripe(space.hint, self.targets(space.hint, now).await?) else {
            return Ok(Applied::AsItIs);
        };
        let same = |wanted: SetStripe| {
            wanted.chunk.is_none_or(|chunk| now.chunk == Known::Known(chunk))
                && wanted.targets.is_none_or(|targets| now.targets_wanted == Known::Known(targets))
        };
        if same(wanted) {
            return Ok(Applied::AsItIs);
        }
        let set = port.set_stripe(&place, &wanted).await;
        self.forget(&place);
        match set {
            Ok(()) => Ok(Applied::Set(wanted)),
            Err(error) => Err(Trouble::from(&error)),
        }
    }

    /// Targets, or pairs of them, that new files can be spread over.
    async fn targets(&self, hint: StripeHint, now: &Stripe) -> Result<u32, Trouble> {
        if hint == StripeHint::SmallFiles {
            // One will do, and there is one.
            return Ok(1);
        }
        let pools = self.storage.port().pools().await.map_err(|error| Trouble::from(&error))?;
        let pool = now.pool.value().and_then(|(id, _)| pools.value.iter().find(|pool| pool.id == *id));
        let pool = pool.ok_or_else(|| not_told("which targets its pool has"))?;
        let many = if now.pattern == Pattern::BuddyMirror { pool.mirrors.len() } else { pool.targets.len() };
        u32::try_from(many).ok().filter(|many| *many > 0).ok_or_else(|| not_told("which targets its pool has"))
    }

    fn kept(&self, place: &Place) -> Option<Entry> {
        let now = self.clock.now();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(place).filter(|(at, _)| now.duration_since(*at).abs() < HOLDS).map(|(_, entry)| entry.clone())
    }

    fn keep(&self, place: Place, entry: Entry) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(place, (self.clock.now(), entry));
    }

    fn forget(&self, place: &Place) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
    }
}

/// The place of a directory in a space; none where nobody can be asked about it.
fn below_of(place: Place, path: &[u8]) -> Option<Place> {
    if path.is_empty() {
        return Some(place);
    }
    let below: Below = std::str::from_utf8(path).ok()?.parse().ok()?;
    match place {
        Place::Space { root, name, .. } => Some(Place::Space { root, name, below: Some(below) }),
        Place::Home(person) => Some(Place::InHome { person, below }),
        Place::InHome { .. } | Place::OwnSpace { .. } | Place::Root(_) => None,
    }
}

fn not_told(what: &str) -> Trouble {
    Trouble { kind: TroubleKind::NotUnderstood, text: format!("the storage does not tell {what}") }
}

#[cfg(test)]
mod tests {
    use eirene_core::SpaceOwner;
    use eirene_core::storage::Bytes;

    use super::*;
    use crate::spaces::testing::a_space;
    use crate::testing::{StorageMood, TestApp};

    fn space(hint: StripeHint) -> Space {
        Space { hint, ..a_space(SpaceOwner::Group("physics".parse().unwrap())) }
    }

    fn stripes(test: &TestApp) -> Stripes {
        Stripes::new(test.app.storage.clone(), Arc::new(test.clock.clone()))
    }

    #[tokio::test]
    async fn a_hint_is_set_once_and_read_back() {
        let test = TestApp::new().await;
        let stripes = stripes(&test);
        let large = space(StripeHint::LargeSequential);
        assert_eq!(stripes.apply_hint(&large).await, Ok(Applied::CannotSpread), "a plain file system");
        test.storage.state().spread_over(3);
        let wanted = SetStripe { chunk: Some(Bytes(1 << 20)), targets: Some(3), ..SetStripe::default() };
        assert_eq!(stripes.apply_hint(&large).await, Ok(Applied::Set(wanted)));
        assert_eq!(stripes.apply_hint(&large).await, Ok(Applied::AsItIs));
        let Ok(Applied::Set(small)) = stripes.apply_hint(&space(StripeHint::SmallFiles)).await else { panic!() };
        assert_eq!(small.targets, Some(1));
        assert_eq!(stripes.apply_hint(&space(StripeHint::Usual)).await, Ok(Applied::AsItIs));
        test.storage.state().keeps_stripes = false;
        let failed = stripes.apply_hint(&large).await.unwrap_err();
        assert_eq!(failed.kind, TroubleKind::NotUnderstood, "what was set is not there afterwards");
        test.storage.state().mood = StorageMood::Away;
        assert_eq!(stripes.apply_hint(&large).await.unwrap_err().kind, TroubleKind::Away);
    }

    #[tokio::test]
    async fn a_pattern_is_shown_where_it_is_told_and_asked_for_seldom() {
        let test = TestApp::new().await;
        let (stripes, space) = (stripes(&test), space(StripeHint::Usual));
        test.app.storage.look().await;
        assert_eq!(stripes.of(&space, b"").await, None, "a plain file system");
        test.storage.state().spread_over(3);
        test.clock.advance_s(3600);
        test.app.storage.look().await;
        let asked = || test.storage.state().entries.clone();
        let entry = stripes.of(&space, b"").await.unwrap();
        assert_eq!(entry.stripe.value().unwrap().targets_wanted, Known::Known(2));
        assert!(stripes.of(&space, b"a/b c").await.is_some() && stripes.of(&space, b"a/b c").await.is_some());
        assert_eq!(asked(), ["physics", "physics/a/b c"]);
        for odd in [&b"a\xff"[..], b"../x", b"/etc", b"a\nb"] {
            assert_eq!(stripes.of(&space, odd).await, None, "{odd:?}");
        }
        assert_eq!(asked().len(), 2, "nobody is asked about such a path");
        test.clock.advance_s(600);
        test.storage.state().mood = StorageMood::Away;
        assert_eq!(stripes.of(&space, b"").await, None, "no answer is no pattern");
        test.storage.state().mood = StorageMood::Good;
        let _busy = stripes.turn.try_acquire().unwrap();
        assert_eq!(stripes.of(&space, b"").await, None, "somebody else asks");
    }
}
