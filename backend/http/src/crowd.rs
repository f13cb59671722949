//! Who is connected, and who gives way where there are too many.
//!
//! An address has so many connections of people who are not signed in, and the portal so many in all. Beyond that the oldest one without a request
//! in progress gives way, so that idle connections block no one else at the same address. Connections on which
//! somebody has signed in are counted for that person, and give way to nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use eirene_core::UserId;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How many there may be.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// In all.
    pub in_all: usize,
    /// Of one address without signing in, and of one person.
    pub of_one: usize,
    /// With a long head of a request that has not come to its end.
    pub long_heads: usize,
}

/// Who is connected. Cheap to clone.
#[derive(Clone)]
pub struct Crowd {
    most: Most,
    long_heads: Arc<Semaphore>,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    /// By age.
    all: BTreeMap<u64, Arc<Connected>>,
    of_address: HashMap<IpAddr, BTreeSet<u64>>,
    of_person: HashMap<UserId, BTreeSet<u64>>,
    next: u64,
}

struct Connected {
    number: u64,
    /// Whose it is as long as nobody has signed in; none for one that is not counted.
    address: Option<IpAddr>,
    /// Who has signed in on it, where it is counted for them.
    person: OnceLock<UserId>,
    gives_way: CancellationToken,
    in_progress: AtomicUsize,
    requests: AtomicU64,
    is_upgraded: AtomicBool,
}

/// A connection's place among the others, for its requests.
#[derive(Clone)]
pub struct Standing {
    crowd: Crowd,
    connected: Arc<Connected>,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Standing({})", self.connected.number)
    }
}

/// A connection's place, until this is dropped.
pub struct Guest(Standing);

/// A request in progress, until this is dropped.
pub struct InProgress(Arc<Connected>);

impl Crowd {
    /// Nobody yet.
    pub fn new(most: Most) -> Self {
        Self { most, long_heads: Arc::new(Semaphore::new(most.long_heads)), open: Arc::default() }
    }

    /// A place for a connection from `address`, which is none for our own proxies; none where nobody gives way.
    pub fn admit(&self, address: Option<IpAddr>) -> Option<Guest> {
        let mut open = self.lock();
        if let Some(theirs) = address.and_then(|address| open.of_address.get(&address))
            && theirs.len() >= self.most.of_one
        {
            let idle = theirs.iter().copied().find(|number| open.is_idle(*number))?;
            open.remove(idle)?.gives_way.cancel();
        }
        if open.all.len() >= self.most.in_all {
            let strangers = open.of_address.values().flatten().copied();
            let idle = strangers.filter(|number| open.is_idle(*number)).min()?;
            open.remove(idle)?.gives_way.cancel();
        }
        let connected = Arc::new(Connected {
            number: open.next,
            address,
            person: OnceLock::new(),
            gives_way: CancellationToken::new(),
            in_progress: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            is_upgraded: AtomicBool::new(false),
        });
        open.next += 1;
        open.all.insert(connected.number, Arc::clone(&connected));
        if let Some(address) = address {
            open.of_address.entry(address).or_default().insert(connected.number);
        }
        drop(open);
        Some(Guest(Standing { crowd: self.clone(), connected }))
    }

    /// What connections with a long head share.
    pub fn long_heads(&self) -> &Arc<Semaphore> {
        &self.long_heads
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn is_idle(&self, number: u64) -> bool {
        self.all.get(&number).is_some_and(|connected| connected.in_progress.load(Ordering::SeqCst) == 0)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Connected>> {
        let connected = self.all.remove(&number)?;
        if let Some(address) = connected.address {
            leave(&mut self.of_address, address, number);
        }
        if let Some(person) = connected.person.get() {
            leave(&mut self.of_person, *person, number);
        }
        Some(connected)
    }
}

/// Removes the key with its last connection, so that the map does not grow forever.
fn leave<K: std::hash::Hash + Eq>(places: &mut HashMap<K, BTreeSet<u64>>, key: K, number: u64) {
    if let std::collections::hash_map::Entry::Occupied(mut numbers) = places.entry(key) {
        numbers.get_mut().remove(&number);
        if numbers.get().is_empty() {
            numbers.remove();
        }
    }
}

impl Guest {
    /// For its requests.
    pub fn standing(&self) -> Standing {
        self.0.clone()
    }

    /// Comes when it has to give way.
    pub async fn gives_way(&self) {
        self.0.connected.gives_way.cancelled().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.crowd.lock().remove(self.0.connected.number);
    }
}

impl Standing {
    /// A request has come to the end of its head.
    pub fn begin(&self) -> InProgress {
        self.connected.requests.fetch_add(1, Ordering::SeqCst);
        self.connected.in_progress.fetch_add(1, Ordering::SeqCst);
        InProgress(Arc::clone(&self.connected))
    }

    /// Whether what comes now is no head of a request: one is in progress, or the connection has become a WebSocket.
    pub fn is_busy(&self) -> bool {
        self.connected.in_progress.load(Ordering::SeqCst) > 0 || self.connected.is_upgraded.load(Ordering::SeqCst)
    }

    /// How many requests have come.
    pub fn requests(&self) -> u64 {
        self.connected.requests.load(Ordering::SeqCst)
    }

    /// What connections with a long head share.
    pub fn long_heads(&self) -> &Arc<Semaphore> {
        self.crowd.long_heads()
    }

    /// Somebody who is signed in has sent a request. Beyond as many connections as one may have it stays among those of its address.
    pub fn signed_in(&self, person: UserId) {
        let Connected { number, address: Some(address), .. } = *self.connected else { return };
        if self.connected.person.get().is_some() {
            return;
        }
        let mut open = self.crowd.lock();
        // One that has been told to give way is in no list.
        let theirs = open.of_person.get(&person).map_or(0, BTreeSet::len);
        if open.all.contains_key(&number)
            && theirs < self.crowd.most.of_one
            && self.connected.person.set(person).is_ok()
        {
            open.of_person.entry(person).or_default().insert(number);
            leave(&mut open.of_address, address, number);
        }
    }
}

impl InProgress {
    /// The connection speaks something else from now on.
    pub fn upgrade(self) {
        self.0.is_upgraded.store(true, Ordering::SeqCst);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(in_all: usize, of_one: usize) -> Crowd {
        Crowd::new(Most { in_all, of_one, long_heads: 1 })
    }

    fn address(last: u8) -> IpAddr {
        [198, 51, 100, last].into()
    }

    fn has_to_leave(guest: &Guest) -> bool {
        guest.0.connected.gives_way.is_cancelled()
    }

    #[test]
    fn the_oldest_that_asks_for_nothing_gives_way() {
        let crowd = crowd(9, 3);
        let [busy, oldest, idle] = [(); 3].map(|()| crowd.admit(Some(address(1))).unwrap());
        let request = busy.standing().begin();
        let fourth = crowd.admit(Some(address(1))).unwrap();
        assert_eq!([&busy, &oldest, &idle, &fourth].map(has_to_leave), [false, true, false, false]);
        assert!(crowd.admit(Some(address(2))).is_some(), "another's");
        let _requests = [&idle, &fourth].map(|guest| guest.standing().begin());
        assert!(crowd.admit(Some(address(1))).is_none(), "all are busy");
        drop(request);
        let _fifth = crowd.admit(Some(address(1))).unwrap();
        assert!(has_to_leave(&busy));
        drop((busy, oldest, idle, fourth));
    }

    #[test]
    fn at_most_so_many_in_all_and_our_proxies_stay() {
        let crowd = crowd(3, 2);
        let (proxy, first, second) = (crowd.admit(None), crowd.admit(Some(address(1))), crowd.admit(Some(address(2))));
        let third = crowd.admit(Some(address(3))).unwrap();
        let gone = [&proxy, &first, &second].map(|guest| has_to_leave(guest.as_ref().unwrap()));
        assert_eq!(gone, [false, true, false]);
        assert!(!has_to_leave(&third));
    }

    #[test]
    fn who_is_signed_in_is_counted_apart_and_gives_way_to_nobody() {
        let crowd = crowd(4, 2);
        let ada = UserId::generate();
        let hers = [(); 2].map(|()| {
            let guest = crowd.admit(Some(address(1))).unwrap();
            guest.standing().signed_in(ada);
            guest
        });
        let [first, second] = [(); 2].map(|()| crowd.admit(Some(address(1))).unwrap());
        assert!(!hers.iter().any(has_to_leave) && !has_to_leave(&first));
        second.standing().signed_in(ada);
        let third = crowd.admit(Some(address(1))).unwrap();
        assert_eq!([&first, &second, &third].map(has_to_leave), [true, false, false], "she has two already");
        drop(third);
        drop(hers);
        second.standing().signed_in(ada);
        let [_, fourth] = [(); 2].map(|()| crowd.admit(Some(address(1))).unwrap());
        assert!(!has_to_leave(&second) && !has_to_leave(&fourth));
    }

    #[test]
    fn nobody_is_remembered() {
        let crowd = crowd(2, 2);
        let guests = [(); 3].map(|()| crowd.admit(Some(address(1))).unwrap());
        for guest in &guests {
            guest.standing().signed_in(UserId::generate());
        }
        drop(guests);
        let open = crowd.lock();
        assert!(open.all.is_empty() && open.of_address.is_empty() && open.of_person.is_empty());
    }
}
