//! Being in a node.

use std::fs::{self, File};
use std::path::Path;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, sethostname};

use crate::error::Error;
use crate::names;

fn open(namespace: &str) -> Result<File, Error> {
    File::open(Path::new(names::DIRECTORY).join(namespace)).map_err(Error::system("open the node's namespace"))
}

/// Moves the calling thread into a node, under a host name of its own, with all that it starts. A program does it before it has threads.
///
/// # Errors
/// When the node is gone, or this is not root.
pub fn enter(namespace: &str, host: &str) -> Result<(), Error> {
    setns(open(namespace)?, CloneFlags::CLONE_NEWNET).map_err(Error::system("enter the node"))?;
    unshare(CloneFlags::CLONE_NEWUTS).map_err(Error::system("get a host name of its own"))?;
    sethostname(host).map_err(Error::system("set the node's host name"))
}

/// Does something in a node.
pub(crate) fn within<T: Send>(namespace: &str, what: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let file = open(namespace)?;
    let inside = move || match setns(file, CloneFlags::CLONE_NEWNET) {
        Ok(()) => Ok(what()),
        Err(error) => Err(Error::system("enter the node")(error)),
    };
    // A thread that ends there need not come back.
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Kills what runs in a namespace; says how many there were.
pub(crate) fn kill_all(namespace: &str) -> Result<usize, Error> {
    use std::os::unix::fs::MetadataExt as _;
    let own = open(namespace)?.metadata().map_err(Error::system("look at the node's namespace"))?;
    let mut count = 0;
    for entry in fs::read_dir("/proc").map_err(Error::system("list processes"))?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let theirs = fs::metadata(entry.path().join("ns/net"));
        if theirs.is_ok_and(|theirs| (theirs.dev(), theirs.ino()) == (own.dev(), own.ino())) {
            count += 1;
            // Who has ended meanwhile needs no more.
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
    }
    Ok(count)
}
