//! BeeGFS On Demand: a file system over the disks of a job's nodes, which the site's prolog starts and its epilog ends (`deploy/slurm/`).
//!
//! The agent starts nothing of it, because that takes root: it waits until the file system is mounted where the prolog puts it, and says what to
//! look at where it is not. **BeeOND itself was not run with this**: it is written to its documentation, and tested against mount tables.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the file system is waited for: a prolog that is still at it has a minute itself.
pub(super) const WITHIN: Duration = Duration::from_mins(1);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// What BeeGFS calls itself in the mount table.
const TYPE: &str = "beegfs";

/// Why there is no such file system.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BeeondError {
    /// Nothing is mounted there.
    #[error(
        "node {node} has no BeeOND file system at `{mount}` after {within_s} seconds: the administrator finds out why in the log of the job's \
         first node, from `eirene-beeond-prolog`"
    )]
    Missing {
        /// The node.
        node: String,
        /// Where it should be.
        mount: String,
        /// How long it was waited for.
        within_s: u64,
    },
    /// Another file system is.
    #[error(
        "what is mounted at `{mount}` on node {node} is `{kind}` and not BeeGFS: the administrator looks at the prolog's settings"
    )]
    Other {
        /// The node.
        node: String,
        /// Where it is.
        mount: String,
        /// What it is.
        kind: String,
    },
    /// Nobody wants it any more.
    #[error("waiting for the BeeOND file system was broken off")]
    BrokenOff,
}

/// Waits until a BeeGFS is mounted there. Blocks.
pub(super) fn wait(mount: &Path, node: &str, within: Duration, broken_off: &AtomicBool) -> Result<(), BeeondError> {
    let table = || std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    wait_in(table, mount, node, within, broken_off)
}

fn wait_in(
    table: impl Fn() -> String,
    mount: &Path,
    node: &str,
    within: Duration,
    broken_off: &AtomicBool,
) -> Result<(), BeeondError> {
    let begun = Instant::now();
    let (node, shown) = (node.to_owned(), mount.display().to_string());
    loop {
        let kind = mounted(&table(), mount);
        if kind.as_deref() == Some(TYPE) {
            return Ok(());
        }
        if broken_off.load(Ordering::Relaxed) {
            return Err(BeeondError::BrokenOff);
        }
        if begun.elapsed() >= within {
            return Err(match kind {
                Some(kind) => BeeondError::Other { node, mount: shown, kind },
                None => BeeondError::Missing { node, mount: shown, within_s: within.as_secs() },
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// The type of what is mounted at a path, by the mount table (proc(5), `mountinfo`): of several the last, which hides the others.
fn mounted(table: &str, at: &Path) -> Option<String> {
    let of = |line: &str| {
        let (own, rest) = line.split_once(" - ")?;
        let mount_point = unescaped(own.split(' ').nth(4)?);
        // What leads to it counts as written: `/mnt/x/` is `/mnt/x`.
        (mount_point.components().eq(at.components())).then(|| rest.split(' ').next().unwrap_or_default().to_owned())
    };
    table.lines().filter_map(of).next_back()
}

/// A path as the mount table writes it: space, tab, newline and backslash as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let (bytes, mut plain, mut index) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(index) {
        let digits = bytes.get(index + 1..index + 4).filter(|_| *byte == b'\\');
        let octal = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(octal.unwrap_or(*byte));
        index += if octal.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsStr::from_bytes(&plain))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TABLE: &str = "\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:41 / /mnt/beeond/17 rw,relatime shared:20 master:3 - beegfs beegfs_ondemand rw,cfgFile=/tmp/c
41 22 0:42 / /mnt/bee\\040ond/18 rw - beegfs beegfs_ondemand rw
42 22 0:43 / /mnt/beeond/19 rw - beegfs beegfs_ondemand rw
43 22 0:44 / /mnt/beeond/19 rw - tmpfs tmpfs rw
broken
";

    #[test]
    fn the_table_says_what_is_mounted_and_only_there() {
        for (at, kind) in [
            ("/mnt/beeond/17", Some("beegfs")),
            ("/mnt/beeond/17/", Some("beegfs")),
            ("/mnt/bee ond/18", Some("beegfs")),
            ("/mnt/beeond/19", Some("tmpfs")),
            ("/mnt/beeond/1", None),
            ("/mnt/beeond/17/below", None),
        ] {
            assert_eq!(mounted(TABLE, Path::new(at)).as_deref(), kind, "{at}");
        }
    }

    #[test]
    fn it_is_waited_for_so_long_and_what_to_look_at_is_said() {
        let (wanted, more) = (AtomicBool::new(false), Duration::from_hours(1));
        let looks = Cell::new(0);
        let comes = || {
            looks.set(looks.get() + 1);
            if looks.get() > 2 { TABLE.to_owned() } else { String::new() }
        };
        assert_eq!(wait_in(comes, Path::new("/mnt/beeond/17"), "c1", more, &wanted), Ok(()));
        let at = |mount: &str, within| wait_in(|| TABLE.to_owned(), Path::new(mount), "c1", within, &wanted);
        let missing = at("/mnt/beeond/3", Duration::ZERO).unwrap_err().to_string();
        assert!(missing.contains("/mnt/beeond/3") && missing.contains("eirene-beeond-prolog"), "{missing}");
        assert!(
            matches!(at("/mnt/beeond/19", Duration::ZERO), Err(BeeondError::Other { kind, .. }) if kind == "tmpfs")
        );
        wanted.store(true, Ordering::Relaxed);
        assert_eq!(at("/mnt/beeond/3", more), Err(BeeondError::BrokenOff), "nobody waits an hour for nothing");
    }
}
