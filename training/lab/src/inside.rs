//! Being in a node.

use std::fs::{self, File};
use std::path::Path;

use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, sethostname};

use crate::error::Error;
use crate::{Nodes, names};

fn open(namespace: &str) -> Result<File, Error> {
    File::open(Path::new(names::DIRECTORY).join(namespace)).map_err(Error::system("open the node's namespace"))
}

/// Moves the calling thread into a node, under a host name of its own and on the node's processors, with all that it starts. A program does it
/// before it has threads.
///
/// # Errors
/// When the node is gone, or this is not root.
pub fn enter(nodes: &Nodes, node: u32) -> Result<(), Error> {
    let (namespace, host) = (nodes.namespace(node), crate::host(node));
    setns(open(&namespace)?, CloneFlags::CLONE_NEWNET).map_err(Error::system("enter the node"))?;
    unshare(CloneFlags::CLONE_NEWUTS).map_err(Error::system("get a host name of its own"))?;
    sethostname(host).map_err(Error::system("set the node's host name"))?;
    let failed = "keep the node on processors of its own";
    let here = Pid::from_raw(0);
    let all = sched_getaffinity(here).map_err(Error::system(failed))?;
    let all: Vec<usize> = (0..CpuSet::count()).filter(|processor| all.is_set(*processor) == Ok(true)).collect();
    let mut own = CpuSet::new();
    for processor in share(&all, node, nodes.count()) {
        own.set(*processor).map_err(Error::system(failed))?;
    }
    sched_setaffinity(here, &own).map_err(Error::system(failed))
}

/// The processors of a node: hosts share none, so neither do nodes where there is one for each. A rank that waits by spinning would take the time
/// of the very ranks that it waits for.
fn share(processors: &[usize], node: u32, nodes: u32) -> &[usize] {
    let (each, index) = (processors.len() / nodes as usize, node as usize - 1);
    if each == 0 { processors } else { &processors[index * each..(index + 1) * each] }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_no_processor_unless_they_must() {
        assert_eq!(share(&[0, 1], 1, 2), [0]);
        assert_eq!(share(&[0, 1], 2, 2), [1]);
        assert_eq!(share(&[2, 3, 5, 7, 8], 2, 2), [5, 7]);
        assert_eq!(share(&[0, 1], 3, 3), [0, 1]);
    }
}
