//! What ids are called: asked of the system's own databases (NSS) by one thread, remembered, and never waited for for long.
//!
//! A directory service that hangs holds up this thread alone: whoever lists has numbers then, and names when it answers again. The thread is
//! confined in its own way, because it reads what the others may not: how the system looks names up, and nothing of anybody's. All it is
//! told is ids.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eirene_files_protocol::{AccountName, Accounts, MOST_ACCOUNTS};
use nix::unistd::{Gid, Group, Uid, User};

use crate::confine::confine_to_lookups;

/// How long an answer may wait for names, all together.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long what was found out is believed.
const FRESH: Duration = Duration::from_mins(10);
/// The same where nothing could be found out.
const FAILED: Duration = Duration::from_secs(30);
/// Most ids that are remembered.
const MOST_KNOWN: usize = 8_192;
/// Most ids that wait to be asked for.
const MOST_WAITING: usize = 1_024;
/// What looks names up is the system's, and may need more than our own threads.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// A user's or a group's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    User(u32),
    Group(u32),
}

struct Known {
    /// None: it has none.
    name: Option<AccountName>,
    until: Instant,
}

#[derive(Default)]
struct State {
    known: HashMap<Id, Known>,
    /// Asked for, and not answered yet.
    waiting: HashMap<Id, Instant>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    answered: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is asked of the thread that looks names up; cheap to clone.
#[derive(Clone)]
pub(crate) struct Directory {
    shared: Arc<Shared>,
    asked: SyncSender<Id>,
}

/// How names are looked up; an error is not a no.
type Look = fn(Id) -> Result<Option<String>, nix::Error>;

fn look(id: Id) -> Result<Option<String>, nix::Error> {
    match id {
        Id::User(id) => Ok(User::from_uid(Uid::from_raw(id))?.map(|user| user.name)),
        Id::Group(id) => Ok(Group::from_gid(Gid::from_raw(id))?.map(|group| group.name)),
    }
}

impl Directory {
    /// Starts the thread: before the caller is confined, which it would inherit. With `landlock` it is confined to what lookups need.
    ///
    /// # Errors
    /// That there is no thread.
    pub(crate) fn start(landlock: bool) -> std::io::Result<Self> {
        Self::start_with(look, landlock)
    }

    fn start_with(look: Look, landlock: bool) -> std::io::Result<Self> {
        let (asked, asks) = sync_channel(MOST_WAITING);
        let shared = Arc::<Shared>::default();
        let thread = Arc::clone(&shared);
        let work = move || {
            // Unconfined it would be the weakest wall; without it there are numbers.
            let nothing: Look = |_| Ok(None);
            let look = if landlock && confine_to_lookups().is_err() { nothing } else { look };
            answer(&thread, &asks, look);
        };
        std::thread::Builder::new().name("accounts".into()).stack_size(STACK_BYTES).spawn(work)?;
        Ok(Self { shared, asked })
    }

    /// What these are called, as far as it is known in time; the first of many.
    pub(crate) fn names(&self, ids: impl IntoIterator<Item = Id>) -> Accounts {
        let (mut users, mut groups) = (0, 0);
        let mut wanted: Vec<Id> = Vec::new();
        for id in ids {
            let many = if matches!(id, Id::User(_)) { &mut users } else { &mut groups };
            if *many < MOST_ACCOUNTS && !wanted.contains(&id) {
                *many += 1;
                wanted.push(id);
            }
        }
        let begin = Instant::now();
        let mut state = self.shared.state();
        for id in &wanted {
            let is_fresh = state.known.get(id).is_some_and(|known| known.until > begin);
            if !is_fresh && !state.waiting.contains_key(id) && self.asked.try_send(*id).is_ok() {
                state.waiting.insert(*id, begin);
            }
        }
        loop {
            // What is known from before is as good as waiting; what hangs has been waited for by whoever asked first.
            let waits = |id: &&Id| {
                let since = state.waiting.get(id);
                !state.known.contains_key(id) && since.is_some_and(|since| since.elapsed() < PATIENCE)
            };
            let left = PATIENCE.saturating_sub(begin.elapsed());
            if left.is_zero() || !wanted.iter().any(|id| waits(&id)) {
                break;
            }
            let waited = self.shared.answered.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut accounts = Accounts::default();
        for id in wanted {
            let name = state.known.get(&id).and_then(|known| known.name.clone());
            let Some(name) = name else { continue };
            match id {
                Id::User(id) => accounts.users.insert(id, name),
                Id::Group(id) => accounts.groups.insert(id, name),
            };
        }
        accounts
    }
}

fn answer(shared: &Shared, asks: &Receiver<Id>, look: Look) {
    while let Ok(id) = asks.recv() {
        let looked = look(id);
        let now = Instant::now();
        let known = if let Ok(name) = looked {
            Known { name: name.and_then(|name| name.try_into().ok()), until: now + FRESH }
        } else {
            // What was known before stays.
            let before = shared.state().known.remove(&id).and_then(|known| known.name);
            Known { name: before, until: now + FAILED }
        };
        let mut state = shared.state();
        state.waiting.remove(&id);
        if state.known.len() >= MOST_KNOWN {
            state.known.retain(|_, known| known.until > now);
        }
        if state.known.len() >= MOST_KNOWN {
            state.known.clear();
        }
        state.known.insert(id, known);
        drop(state);
        shared.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> AccountName {
        AccountName::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn names_are_the_systems_and_what_has_none_is_left_out() {
        let directory = Directory::start(true).unwrap();
        // The first look may load what the system looks names up with.
        let mut accounts = Accounts::default();
        while accounts.users.is_empty() || accounts.groups.is_empty() {
            accounts = directory.names([Id::User(0), Id::Group(0), Id::User(0), Id::User(4_000_000_123)]);
        }
        assert_eq!(accounts.users, [(0, name("root"))].into());
        assert_eq!(accounts.groups, [(0, name("root"))].into());
    }

    #[test]
    fn a_directory_service_that_hangs_costs_little_and_once() {
        let hangs: Look = |id| match id {
            Id::User(_) => Ok(Some("ada".into())),
            Id::Group(_) => loop {
                std::thread::park();
            },
        };
        let directory = Directory::start_with(hangs, false).unwrap();
        while directory.names([Id::User(1)]).is_empty() {}
        directory.names([Id::Group(1), Id::Group(2)]);
        // From now on nobody waits for it, and what is known is known.
        let begin = Instant::now();
        for _ in 0..1000 {
            let accounts = directory.names([Id::User(1), Id::Group(1), Id::Group(2)]);
            assert_eq!(accounts.users, [(1, name("ada"))].into());
            assert!(accounts.groups.is_empty());
        }
        assert!(begin.elapsed() < 500 * PATIENCE, "{:?}", begin.elapsed());
    }

    #[test]
    fn an_answer_is_bounded_and_so_is_what_is_remembered() {
        let odd: Look = |id| match id {
            Id::User(id) if id % 2 == 1 => Ok(Some(format!("user{id}"))),
            Id::User(_) => Ok(Some("\u{1b}[31m".into())),
            Id::Group(_) => Err(nix::Error::EIO),
        };
        let directory = Directory::start_with(odd, false).unwrap();
        for begin in (0..3 * MOST_KNOWN as u32).step_by(MOST_ACCOUNTS) {
            let ids = || (begin..begin + 2 * MOST_ACCOUNTS as u32).map(Id::User).chain([Id::Group(begin)]);
            while directory.names(ids()).users.len() < MOST_ACCOUNTS / 2 {}
            let accounts = directory.names(ids());
            assert!(accounts.users.len() <= MOST_ACCOUNTS / 2 && accounts.users.keys().all(|id| id % 2 == 1));
            assert!(accounts.groups.is_empty());
        }
        assert!(directory.shared.state().known.len() <= MOST_KNOWN);
    }
}
