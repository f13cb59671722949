//! Whether this process is the one that joined. A fork has the memory and the descriptors of a rank but is none: data loaders fork, and a child
//! that took part would take messages from its parent. Asking the kernel each time would cost more than a small collective.
#![expect(unsafe_code, reason = "the C library alone can say that it forks")]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How often this process or one of those that it was forked from has come out of a fork as the child, since this was first asked.
pub(crate) fn count() -> u32 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to a number.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let before = count();
        // SAFETY: the child calls nothing but what may be called there, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(count() != before + 1);
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(count(), before);
    }
}
