//! A user namespace in which this process is root, and outside of which it is who it was.
//!
//! BeeGFS's tools do some things only for root, and ask nothing but their own user id; the servers believe whoever knows the file system's
//! secret. Such a tool needs to *be called* root and needs none of root's rights. In the namespace one user exists, who is root there; every
//! file, process and socket outside is asked for with the account's own rights.

use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::unistd::{getegid, geteuid};

/// Makes the namespace and enters it. The process has one thread and has given up root's rights.
///
/// # Errors
/// Where the system has no user namespaces for ordinary users.
pub(crate) fn enter() -> io::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    // Since the change of identity `/proc/self` is root's, and the maps could not be written. The task holds no secret.
    prctl::set_dumpable(true)?;
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| {
        io::Error::other(format!("a user namespace, which this system may have switched off: {}", error.desc()))
    })?;
    // Groups are kept as they are: a group may be what the secret is readable for. Without this a map of groups is refused.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
