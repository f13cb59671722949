//! The keeper: a small process that outlives a launcher killed without mercy, ends what the launcher started, and removes the run's
//! directory.
//!
//! It is forked, not started as a program, and holds one end of a pipe. As long as the launcher lives, it is told of process groups
//! that come and go; when the pipe closes without a farewell, the launcher is dead. Between fork and exit only system calls are made
//! and nothing is allocated, for the launcher may be a process with threads (Python).

#![expect(unsafe_code, reason = "fork, and system calls on bare memory after it")]

use std::ffi::{CStr, CString};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use crate::error::Error;

/// Most process groups that a keeper remembers, and so most ranks on a node.
pub(crate) const MOST_GROUPS: usize = 4096;

/// How deep the run's directory may be.
const DEEPEST: u32 = 4;

/// The launcher's end of the pipe.
pub(crate) struct Keeper {
    pipe: std::io::PipeWriter,
    pid: Pid,
}

/// What a keeper is told, eight bytes each time, so that a pipe never splits it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Watch = 1,
    Forget = 2,
    Farewell = 3,
}

impl Keeper {
    /// Forks a keeper for a directory.
    pub(crate) fn fork(directory: &Path) -> Result<Self, Error> {
        let failed = "cannot fork the keeper of the run's directory";
        let path = CString::new(directory.as_os_str().as_bytes())
            .map_err(|_| Error::Usage(format!("`{}` is no path", directory.display())))?;
        let (reader, pipe) = std::io::pipe().map_err(Error::system(failed))?;
        let mut groups = vec![0_i32; MOST_GROUPS].into_boxed_slice();
        let reader = reader;
        // SAFETY: the child calls `keep`, which makes only system calls, allocates nothing and does not return.
        match unsafe { fork() }.map_err(|errno| Error::system(failed)(errno.into()))? {
            ForkResult::Child => keep(reader.as_raw_fd(), &mut groups, &path),
            ForkResult::Parent { child } => Ok(Self { pipe, pid: child }),
        }
    }

    /// From now on this group is ended if the launcher dies.
    pub(crate) fn watch(&mut self, group: Pid) {
        self.tell(Word::Watch, group);
    }

    /// This group is no longer ours.
    pub(crate) fn forget(&mut self, group: Pid) {
        self.tell(Word::Forget, group);
    }

    fn tell(&mut self, word: Word, group: Pid) {
        let mut message = [0; 8];
        message[..4].copy_from_slice(&(word as u32).to_ne_bytes());
        message[4..].copy_from_slice(&group.as_raw().to_ne_bytes());
        // A keeper that somebody killed cannot be told anything; the run goes on without one.
        let _ = self.pipe.write_all(&message);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tell(Word::Farewell, Pid::from_raw(0));
        let _ = waitpid(self.pid, None);
    }
}

/// The keeper's life. System calls only.
fn keep(pipe: RawFd, groups: &mut [i32], directory: &CStr) -> ! {
    // SAFETY: plain system calls on numbers, and on memory that this process owns.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"eirene-keeper".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGCHLD] {
            libc::signal(signal, libc::SIG_IGN);
        }
        close_all_but(pipe);
        let mut used = 0_usize;
        loop {
            let mut message = [0_u8; 8];
            let read = libc::read(pipe, message.as_mut_ptr().cast(), 8);
            if read < 0 && *libc::__errno_location() == libc::EINTR {
                continue;
            }
            if read != 8 {
                break;
            }
            let word = u32::from_ne_bytes([message[0], message[1], message[2], message[3]]);
            let group = i32::from_ne_bytes([message[4], message[5], message[6], message[7]]);
            if word == Word::Farewell as u32 {
                libc::_exit(0);
            }
            if word == Word::Watch as u32 && used < groups.len() && group > 1 {
                groups[used] = group;
                used += 1;
            }
            if word == Word::Forget as u32
                && let Some(index) = groups[..used].iter().position(|known| *known == group)
            {
                used -= 1;
                groups[index] = groups[used];
            }
        }
        for group in &groups[..used] {
            libc::kill(-group, libc::SIGKILL);
        }
        let open = libc::open(directory.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW);
        if open >= 0 {
            empty(open, DEEPEST);
            libc::rmdir(directory.as_ptr());
        }
        libc::_exit(0)
    }
}

/// Closes every descriptor but one, so that nobody waits for the end of an output that only the keeper still holds.
///
/// # Safety
/// Nothing may use the other descriptors afterwards.
unsafe fn close_all_but(kept: RawFd) {
    // SAFETY: system calls on numbers.
    unsafe {
        let (before, after) = (kept.unsigned_abs(), kept.unsigned_abs() + 1);
        let first = before == 0 || libc::syscall(libc::SYS_close_range, 0_u32, before - 1, 0_u32) == 0;
        if first && libc::syscall(libc::SYS_close_range, after, u32::MAX, 0_u32) == 0 {
            return;
        }
        // Kernels before 5.9.
        for descriptor in (0..65_536).filter(|descriptor| *descriptor != kept) {
            libc::close(descriptor);
        }
    }
}

/// Removes everything in a directory.
///
/// # Safety
/// `directory` is an open directory of this process's own.
unsafe fn empty(directory: RawFd, depth: u32) {
    // Names begin 19 bytes into an entry, behind two numbers of eight bytes, a length of two and a kind of one.
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    #[repr(align(8))]
    struct Buffer([u8; 2048]);
    let mut buffer = Buffer([0; 2048]);
    loop {
        let mut removed = false;
        // SAFETY: the kernel writes at most the buffer's length into it, in whole entries.
        unsafe {
            libc::lseek(directory, 0, libc::SEEK_SET);
            loop {
                let read = libc::syscall(libc::SYS_getdents64, directory, buffer.0.as_mut_ptr(), buffer.0.len());
                let Ok(read) = usize::try_from(read) else { return };
                if read == 0 {
                    break;
                }
                let mut at = 0;
                while at + NAME_AT < read {
                    let length =
                        usize::from(u16::from_ne_bytes([buffer.0[at + LENGTH_AT], buffer.0[at + LENGTH_AT + 1]]));
                    let name = buffer.0.as_ptr().add(at + NAME_AT).cast::<libc::c_char>();
                    let dots = CStr::from_ptr(name);
                    if dots != c"." && dots != c".." {
                        removed |= remove(directory, name, depth);
                    }
                    if length == 0 {
                        return;
                    }
                    at += length;
                }
            }
        }
        if !removed {
            return;
        }
    }
}

/// Removes one thing in a directory; whether it is gone.
///
/// # Safety
/// `directory` is open, `name` is a text that ends with a zero.
unsafe fn remove(directory: RawFd, name: *const libc::c_char, depth: u32) -> bool {
    // SAFETY: system calls on an open directory and a name within it.
    unsafe {
        if libc::unlinkat(directory, name, 0) == 0 {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let open = libc::openat(directory, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW);
        if open < 0 {
            return false;
        }
        empty(open, depth - 1);
        libc::close(open);
        libc::unlinkat(directory, name, libc::AT_REMOVEDIR) == 0
    }
}
