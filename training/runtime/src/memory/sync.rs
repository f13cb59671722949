//! The atomics of shared memory, and what they guard: the machine's, or the model checker's (`--cfg loom`), which tries every order in which
//! threads can see each other's writes.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A value that ranks take turns to use.
#[cfg(not(loom))]
#[repr(transparent)]
pub(super) struct Shared<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T: Copy> Shared<T> {
    /// Reads it.
    ///
    /// # Safety
    /// It must be this rank's turn to read.
    pub(super) unsafe fn get(&self) -> T {
        // SAFETY: as promised to us.
        unsafe { *self.0.get() }
    }

    /// Writes it.
    ///
    /// # Safety
    /// It must be this rank's turn, and no other's.
    pub(super) unsafe fn set(&self, value: T) {
        // SAFETY: as promised to us.
        unsafe { *self.0.get() = value };
    }
}

/// A value of which the model checker sees whether two threads use it at once.
#[cfg(loom)]
pub(super) struct Shared<T>(loom::cell::UnsafeCell<T>);

#[cfg(loom)]
impl<T: Copy> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    pub(super) unsafe fn get(&self) -> T {
        self.0.with(|value| unsafe { *value })
    }

    pub(super) unsafe fn set(&self, value: T) {
        self.0.with_mut(|place| unsafe { *place = value });
    }
}

/// What the kernel's futex does, for the model checker: the word is compared and the sleep begun as one.
#[cfg(loom)]
pub(super) struct Futex {
    asleep: loom::sync::Mutex<()>,
    awake: loom::sync::Condvar,
}

#[cfg(loom)]
impl Futex {
    pub(super) fn new() -> Self {
        Self { asleep: loom::sync::Mutex::new(()), awake: loom::sync::Condvar::new() }
    }

    pub(super) fn wait(&self, word: &AtomicU32, seen: u32) {
        let guard = self.asleep.lock().unwrap();
        if word.load(Ordering::SeqCst) == seen {
            drop(self.awake.wait(guard).unwrap());
        }
    }

    pub(super) fn wake_all(&self) {
        drop(self.asleep.lock().unwrap());
        self.awake.notify_all();
    }
}
