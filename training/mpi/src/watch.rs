//! A word to the user where MPI_Init ends the process: it may call `exit` with a banner of its own, and would
//! say nothing of launcher and library. The note is written while the process exits, only if Init is still on.
#![expect(unsafe_code, reason = "atexit, and write in its handler")]

use std::sync::{Mutex, Once};

static NOTE: Mutex<Option<String>> = Mutex::new(None);
static REGISTERED: Once = Once::new();

/// While this lives, an exit of the process writes the note to standard error.
pub(crate) struct Watch(());

impl Watch {
    pub(crate) fn new(note: String) -> Self {
        REGISTERED.call_once(|| {
            // SAFETY: the handler takes nothing, returns nothing and does not unwind.
            unsafe { libc::atexit(tell) };
        });
        put(Some(note));
        Self(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        put(None);
    }
}

fn put(note: Option<String>) {
    if let Ok(mut slot) = NOTE.lock() {
        *slot = note;
    }
}

extern "C" fn tell() {
    let Ok(mut slot) = NOTE.try_lock() else { return };
    let Some(note) = slot.take() else { return };
    // SAFETY: the pointer and length are those of the string. What could not be written is lost: there is
    // nobody left to tell.
    unsafe { libc::write(2, note.as_ptr().cast(), note.len()) };
}
