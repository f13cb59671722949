//! How a rank waits for what others do in shared memory: it spins for as long as a wake-up would take, lets others run, then sleeps on a
//! futex. With more ranks than cores a spinning rank would keep the very one from running that it waits for, so there it hardly spins.
//!
//! Who lets others run gets the core back when they give it up. Another rank that waits does so in microseconds; a program that computes
//! takes its whole time slice, and it can be on the same core again at the next wait. A sleeper is given the core as soon as it is woken. So
//! whoever has lost the core to such a program sleeps right after spinning, for a while. Where ranks share cores the program was most likely
//! one of them, between two calls: there the while is short.
//!
//! Between two turns the waiter tries what it waits for, and that takes as long as it takes: an MPI that is asked may itself let others run at
//! every question, on a busy machine for a time slice of each. So it is the clock, not the number of turns, that says when to look whether the
//! wait is in vain.

use std::sync::atomic::AtomicU32 as Count;
use std::time::{Duration, Instant};

use super::sync::{AtomicU32, Ordering, fence};

/// The longest a waiter goes without looking whether a rank has died, asleep or not; whoever does what is waited for wakes a sleeper at once.
const NAP: Duration = Duration::from_millis(50);

/// As [`NAP`], for those who also wait for what comes over the network: below the time in which a socket's buffer fills.
const FAR_NAP: Duration = Duration::from_micros(200);

/// What [`FAR_NAP`] grows to when nothing comes. A rank may wait for ever, as one of a notebook does between two cells: at the pace of a message
/// that would cost every core some percent; and a kernel was seen (6.18) that let a control group starve all others for a minute when one of its
/// tasks woke up that often beside one that spun.
const LONG_FAR_NAP: Duration = Duration::from_millis(5);

/// By which part of a wait so far the next nap may prolong it.
const PART: u32 = 32;

/// So many turns go by between two glances at the clock: one costs about as much as a turn does.
const GLANCE: u32 = 8;

/// Longer away from the core than other ranks that wait would take it: somebody computes there.
const TAKEN: Duration = Duration::from_micros(300);

/// For so many waits nobody is let run before sleeping, once the core has been taken. Measured: with four ranks on two cores 256 waits, as
/// many as a loop of small calls has in 10 ms, made such a loop twice as slow after every pause of one rank, and trained no faster.
const WARY: u32 = 256;

/// As [`WARY`], where ranks share cores.
const WARY_CROWDED: u32 = 16;

/// Whether the core was taken from this process lately: how many waits are left for which it is remembered.
struct Wary(Count);

static WARY_LEFT: Wary = Wary(Count::new(0));

impl Wary {
    /// Another wait begins; whether it had better not let others run.
    fn begins(&self) -> bool {
        let left = self.0.load(std::sync::atomic::Ordering::Relaxed);
        // Two threads that count the same wait do no harm.
        self.0.store(left.saturating_sub(1), std::sync::atomic::Ordering::Relaxed);
        left > 0
    }

    /// The core was given away for so long; whether it was taken, which is remembered for so many waits.
    fn was_away(&self, time: Duration, waits: u32) -> bool {
        let is_taken = time > TAKEN;
        if is_taken {
            self.0.store(waits, std::sync::atomic::Ordering::Relaxed);
        }
        is_taken
    }
}

/// The word on which the threads of one rank sleep.
#[repr(C, align(128))]
pub(crate) struct Bell {
    rings: AtomicU32,
    sleepers: AtomicU32,
    #[cfg(loom)]
    futex: super::sync::Futex,
}

impl Bell {
    /// A bell in memory of this process.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self {
            rings: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            #[cfg(loom)]
            futex: super::sync::Futex::new(),
        }
    }

    /// Wakes whoever sleeps here. To be called after what they wait for has been written.
    pub(crate) fn ring(&self) {
        // Pairs with the one in `sleep`: either the sleeper sees what was written, or we see the sleeper.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.rings.fetch_add(1, Ordering::Release);
            self.wake_all();
        }
    }

    /// Sleeps until somebody rings, unless `ready` by now; at most `longest`. Says whether somebody rang.
    pub(crate) fn sleep(&self, longest: Duration, mut ready: impl FnMut() -> bool) -> bool {
        let seen = self.rings.load(Ordering::Acquire);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready() {
            self.wait(seen, longest);
        }
        self.sleepers.fetch_sub(1, Ordering::Release);
        self.rings.load(Ordering::Relaxed) != seen
    }
}

/// How long to spin and to yield before sleeping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    spins: u32,
    yields: u32,
    /// For how many waits to be wary.
    wary: u32,
    nap: Duration,
}

impl Patience {
    /// For `ranks` that share `cores`.
    pub(crate) fn new(ranks: usize, cores: usize) -> Self {
        // A futex's wake-up takes some 5 µs to 50 µs, a pause some 40 ns: spin about as long.
        let (spins, yields, wary) = if ranks <= cores { (1000, 200, WARY) } else { (8, 400, WARY_CROWDED) };
        Self { spins, yields, wary, nap: NAP }
    }

    /// The same, for a thread that must not keep others of its rank from running.
    pub(crate) fn modest(self) -> Self {
        Self { spins: self.spins.min(50), yields: self.yields.min(20), ..self }
    }

    /// The same, where some ranks are on other nodes and cannot ring.
    pub(crate) fn with_far_ranks(self) -> Self {
        Self { nap: FAR_NAP, ..self }
    }

    /// The same, where MPI carries messages: it moves only while it is called, so whoever sleeps stops what is under way.
    pub(crate) fn with_mpi(self) -> Self {
        Self { yields: self.yields * 20, ..self.with_far_ranks() }
    }

    /// How long to sleep when nothing has happened for so long.
    fn nap_after(self, quiet: Duration) -> Duration {
        if self.nap < LONG_FAR_NAP { (quiet / PART).clamp(self.nap, LONG_FAR_NAP) } else { self.nap }
    }
}

/// One wait.
pub(crate) struct Waiting<'a> {
    bell: &'a Bell,
    patience: Patience,
    turns: u32,
    deadline: Option<Instant>,
    /// When it was last looked whether all are well; at first, when the clock was first seen. None before that.
    looked: Option<Instant>,
    /// Whether that was looked at since something has happened. No wait is given up before.
    has_looked: bool,
    /// Since when nothing has happened; none before the first nap.
    quiet_since: Option<Instant>,
}

/// What a wait has come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Look again.
    Again,
    /// Look again, and whether all are well: after sleep, or because that was not looked at for long.
    Look,
    /// It has taken too long.
    TooLong,
}

impl<'a> Waiting<'a> {
    /// Begins to wait.
    pub(crate) fn new(bell: &'a Bell, mut patience: Patience, deadline: Option<Instant>) -> Self {
        if WARY_LEFT.begins() {
            patience.yields = 0;
        }
        Self { bell, patience, turns: 0, deadline, looked: None, has_looked: false, quiet_since: None }
    }

    /// Something has happened: be quick again.
    pub(crate) fn progressed(&mut self) {
        (self.turns, self.looked, self.has_looked, self.quiet_since) = (0, None, false, None);
    }

    /// Spends a moment, however is right by now. `ready` says whether there is something to do, and is asked once more before sleeping.
    pub(crate) fn turn(&mut self, ready: impl FnMut() -> bool) -> Turn {
        self.turns = self.turns.saturating_add(1);
        if self.turns <= self.patience.spins {
            if self.turns.is_multiple_of(GLANCE)
                && let Some(turn) = self.at(now())
            {
                return turn;
            }
            std::hint::spin_loop();
            return Turn::Again;
        }
        if self.turns <= self.patience.spins + self.patience.yields {
            let left = now();
            if let Some(turn) = self.at(left) {
                return turn;
            }
            std::thread::yield_now();
            if WARY_LEFT.was_away(left.elapsed(), self.patience.wary) {
                self.patience.yields = 0;
            }
            return Turn::Again;
        }
        self.rest(ready)
    }

    /// What is due at this time, whatever the turn.
    fn at(&mut self, time: Instant) -> Option<Turn> {
        if self.has_looked && self.deadline.is_some_and(|deadline| deadline <= time) {
            return Some(Turn::TooLong);
        }
        let looked = *self.looked.get_or_insert(time);
        (time.saturating_duration_since(looked) >= NAP).then(|| self.look(time))
    }

    fn look(&mut self, time: Instant) -> Turn {
        (self.looked, self.has_looked) = (Some(time), true);
        Turn::Look
    }

    /// Sleeps right away.
    pub(crate) fn rest(&mut self, ready: impl FnMut() -> bool) -> Turn {
        let time = now();
        let quiet = time.saturating_duration_since(*self.quiet_since.get_or_insert(time));
        self.sleep(time, self.patience.nap_after(quiet), ready)
    }

    /// Sleeps until somebody rings: nothing here is waited for that comes without a ring.
    pub(crate) fn doze(&mut self, ready: impl FnMut() -> bool) -> Turn {
        self.sleep(now(), NAP, ready)
    }

    fn sleep(&mut self, time: Instant, longest: Duration, ready: impl FnMut() -> bool) -> Turn {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(time));
        if left == Some(Duration::ZERO) {
            return if self.has_looked { Turn::TooLong } else { self.look(time) };
        }
        if self.bell.sleep(left.map_or(longest, |left| left.min(longest)), ready) {
            // Somebody has begun something, here or on this node.
            self.quiet_since = None;
        }
        self.look(time)
    }
}

/// The clock of waits.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// futex(2), for words that processes share.
#[cfg(not(loom))]
impl Bell {
    fn wait(&self, seen: u32, longest: Duration) {
        let longest = libc::timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // SAFETY: the word outlives the call; the kernel only reads it and the time.
        unsafe { libc::syscall(libc::SYS_futex, self.rings.as_ptr(), libc::FUTEX_WAIT, seen, &raw const longest) };
    }

    fn wake_all(&self) {
        // SAFETY: the kernel only takes the address.
        unsafe { libc::syscall(libc::SYS_futex, self.rings.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// For the model checker a sleep has no end of its own: a ring that is missed is a deadlock, which it finds.
#[cfg(loom)]
impl Bell {
    fn wait(&self, seen: u32, _longest: Duration) {
        self.futex.wait(&self.rings, seen);
    }

    fn wake_all(&self) {
        self.futex.wake_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_ring_wakes_a_sleeper_at_once() {
        let (bell, done) = (Bell::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    bell.sleep(Duration::from_hours(1), || done.load(Ordering::Acquire));
                }
            });
            done.store(true, Ordering::Release);
            bell.ring();
        });
    }

    #[test]
    fn a_core_that_was_taken_is_remembered_for_a_while() {
        let wary = Wary(Count::new(0));
        assert!(!wary.begins() && !wary.was_away(TAKEN, WARY) && !wary.begins());
        for waits in [WARY, WARY_CROWDED] {
            assert!(wary.was_away(TAKEN * 2, waits));
            assert_eq!((0..2 * WARY).filter(|_| wary.begins()).count(), waits as usize);
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let bell = Bell::new();
        let mut waiting = Waiting::new(&bell, Patience::new(2, 1), Some(now() + Duration::from_millis(20)));
        while waiting.turn(|| false) != Turn::TooLong {}
    }

    /// A wait in which every question takes a millisecond, and its turns until one is not merely another.
    fn slow_turns(waiting: &mut Waiting<'_>) -> (u32, Turn) {
        for turns in 1.. {
            std::thread::sleep(Duration::from_millis(1));
            let turn = waiting.turn(|| false);
            if turn != Turn::Again {
                return (turns, turn);
            }
        }
        unreachable!("a wait has turns without end")
    }

    #[test]
    fn who_asks_something_slow_looks_by_the_clock() {
        // Many spins; few spins, and many turns in which others are let run.
        for (ranks, cores) in [(1, 2), (3, 2)] {
            let bell = Bell::new();
            let mut waiting = Waiting::new(&bell, Patience::new(ranks, cores).with_mpi(), None);
            let most = NAP.as_millis() as u32 + 3 * GLANCE;
            for _ in 0..2 {
                let (turns, turn) = slow_turns(&mut waiting);
                assert!(turns <= most && turn == Turn::Look, "{turn:?} after {turns} turns of {ranks} ranks");
            }
        }
    }

    #[test]
    fn who_asks_something_slow_sees_the_deadline_once_it_has_looked() {
        let bell = Bell::new();
        let mut waiting = Waiting::new(&bell, Patience::new(1, 2), Some(now() + Duration::from_millis(5)));
        assert_eq!(slow_turns(&mut waiting).1, Turn::Look);
        let (turns, turn) = slow_turns(&mut waiting);
        assert!(turns <= GLANCE && turn == Turn::TooLong, "{turn:?} after {turns} turns");
    }

    #[test]
    fn naps_of_a_long_wait_grow_until_something_happens() {
        let (near, far) = (Patience::new(2, 2), Patience::new(2, 2).with_far_ranks());
        for (quiet_ms, nap_us) in [(0, 200), (5, 200), (64, 2000), (10_000, 5000)] {
            let quiet = Duration::from_millis(quiet_ms);
            assert_eq!((near.nap_after(quiet), far.nap_after(quiet)), (NAP, Duration::from_micros(nap_us)));
        }
        let bell = Bell::new();
        let mut waiting = Waiting::new(&bell, far, None);
        waiting.rest(|| false);
        assert!(waiting.quiet_since.is_some());
        waiting.rest(|| {
            bell.ring();
            false
        });
        assert_eq!(waiting.quiet_since, None);
        waiting.rest(|| false);
        waiting.progressed();
        assert_eq!(waiting.quiet_since, None);
    }

    #[test]
    fn a_wait_that_was_over_before_it_began_looks_once() {
        let bell = Bell::new();
        let mut waiting = Waiting::new(&bell, Patience::new(2, 1), Some(now()));
        assert_eq!([(); 2].map(|()| waiting.rest(|| false)), [Turn::Look, Turn::TooLong]);
    }
}
