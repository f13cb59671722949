//! What a fork of the process may not do: keep the ranks' connections open in its parent's name.
//!
//! A data loader's worker is a fork that never runs another program, so close-on-exec does not help. If it kept the
//! sockets, the other ranks would not notice its parent's death while it lives. So in every child, before `fork`
//! returns, each registered descriptor is made to stand for the null device. The numbers stay taken, so whoever holds
//! them in the child may close them without harm.

#![expect(unsafe_code, reason = "acting in a forked child is a matter of raw descriptors")]

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// One registered descriptor. Places are used again but never given back, so a child can walk them without a lock.
struct Place {
    fd: AtomicI32,
    next: *const Place,
}

/// No descriptor is registered here; the place can be taken.
const FREE: i32 = -1;
/// The place is taken, its descriptor already or still unregistered.
const TAKEN: i32 = -2;

static FIRST: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
static HOOK: Once = Once::new();

fn places() -> impl Iterator<Item = &'static Place> {
    let mut next = FIRST.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: places are leaked boxes, linked before they are published, and never freed or moved.
        let place = unsafe { next.as_ref() }?;
        next = place.next;
        Some(place)
    })
}

/// Keeps a descriptor from forks of this process while it lives. Drop it before the descriptor is closed.
#[derive(Debug)]
pub struct KeepFromForks {
    place: &'static AtomicI32,
    process: u32,
}

impl KeepFromForks {
    /// From now on, in forks of this process the descriptor stands for the null device.
    pub fn new(fd: BorrowedFd<'_>) -> Self {
        // SAFETY: the handler does only what is allowed between fork and exec in a process with threads.
        HOOK.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(blind));
        });
        let free = |place: &&Place| place.fd.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let place = places().find(free).map_or_else(add, |place| &place.fd);
        place.store(fd.as_raw_fd(), Ordering::Release);
        Self { place, process: std::process::id() }
    }
}

fn add() -> &'static AtomicI32 {
    let place = Box::into_raw(Box::new(Place { fd: AtomicI32::new(TAKEN), next: ptr::null() }));
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        // SAFETY: nobody else has the place before it is published below.
        unsafe { (*place).next = first };
        match FIRST.compare_exchange_weak(first, place, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the place is never freed; from here on it is only shared.
            Ok(_) => return unsafe { &(*place).fd },
            Err(now) => first = now,
        }
    }
}

impl Drop for KeepFromForks {
    fn drop(&mut self) {
        // In a fork the place is the child's copy, and the descriptor is blind already.
        if self.process == std::process::id() {
            self.place.store(FREE, Ordering::Release);
        }
    }
}

/// Runs in the child, alone, before `fork` returns there.
extern "C" fn blind() {
    // SAFETY: the path is a constant; `open`, `dup3` and `close` may be called here.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if null < 0 {
        return;
    }
    for place in places() {
        let fd = place.fd.load(Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the number is a registered descriptor of the parent, so it is open here too.
            unsafe { libc::dup3(null, fd, libc::O_CLOEXEC) };
            // Done for the child's own forks too, for whom the number may stand for something else.
            place.fd.store(FREE, Ordering::Relaxed);
        }
    }
    // SAFETY: opened above, known to nobody else.
    unsafe { libc::close(null) };
}
