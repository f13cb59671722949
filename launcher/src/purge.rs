//! What the child that empties a space keeps of root's rights: to go through and remove what is anybody's (capabilities(7)), and nothing else.
//!
//! A process that changes its user loses every right, and a program that it becomes starts without any, so both have to be asked to leave these
//! two: `PR_SET_KEEPCAPS` for the one, the ambient set for the other, which also holds where no new rights can be had.

use std::io;

/// `CAP_DAC_OVERRIDE`: to go past permissions of files and directories.
const DAC_OVERRIDE: libc::c_ulong = 1;
/// `CAP_FOWNER`: to remove from a directory with the sticky bit what is somebody else's.
const FOWNER: libc::c_ulong = 3;
const RIGHTS: u32 = (1 << DAC_OVERRIDE) | (1 << FOWNER);
/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`: two words of 32 rights.
const VERSION: u32 = 0x2008_0522;
const ON: libc::c_ulong = 1;
/// `PR_CAP_AMBIENT_RAISE`.
const RAISE: libc::c_ulong = 2;
const NOTHING: libc::c_ulong = 0;

/// Before the user is changed.
#[expect(unsafe_code, reason = "nix has no keepcaps")]
pub(crate) fn keep_rights() -> io::Result<()> {
    // SAFETY: numbers only.
    done(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, ON, NOTHING, NOTHING, NOTHING) })
}

/// After it: gives up all but the two, and has the program that is started keep them.
#[expect(unsafe_code, reason = "nix has no capabilities")]
pub(crate) fn reduce_rights() -> io::Result<()> {
    // The version, and this process.
    let header = [VERSION, 0];
    // Effective, permitted and inheritable; the same of the rights from 32 on.
    let rights = [RIGHTS, RIGHTS, RIGHTS, 0, 0, 0];
    // SAFETY: a header and two words of rights, as this version wants them; the kernel keeps neither.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), rights.as_ptr()) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    for right in [DAC_OVERRIDE, FOWNER] {
        // SAFETY: numbers only.
        done(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, RAISE, right, NOTHING, NOTHING) })?;
    }
    Ok(())
}

fn done(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
