//! What a rank must know to join: who it is, how large the world is, where rank 0 is found.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::place;
use crate::secret::Secret;

/// How rank 0 is found.
#[derive(Debug)]
pub enum Meeting {
    /// Nobody is to be found: the world has one rank.
    Nobody,
    /// A directory of ours with mode 0700 on this node, in which rank 0 listens on a unix socket. All ranks are on one
    /// node. Without a secret in the plan, rank 0 puts one there while the ranks meet.
    Directory(PathBuf),
    /// A file on a path that every rank sees. Rank 0 writes into it where it listens, and the secret if the plan has
    /// none; the others wait for it. A file that an earlier world left is waited out. Rank 0 removes the file.
    File(PathBuf),
    /// Rank 0 listens on this port; the others find it by this name.
    Address {
        /// Name or address of rank 0's machine.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Rank 0 only: a socket that already listens, inherited from who started the ranks.
    Listener(OwnedFd),
}

/// How far a rank has come with joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It begins to look for rank 0, or to wait for the others.
    Meeting,
    /// It has proven who it is; rank 0 knows of it. (Rank 0: everybody is there.)
    Arrived,
    /// It can be called by the others.
    Listening,
    /// It begins to call the others.
    Calling,
    /// It has a connection to every other rank.
    Linked,
    /// Everybody has.
    Joined,
}

/// Told of each phase as it begins.
pub type Progress = Box<dyn Fn(Phase) + Send>;

/// What a rank must know to join.
pub struct Plan {
    /// Who we are: 0 to `size` - 1.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Names this world among others; it goes into every proof.
    pub world: String,
    /// What the ranks know and nobody else does. May be left out where rank 0 can hand it over by file.
    pub secret: Option<Secret>,
    /// How rank 0 is found.
    pub meeting: Meeting,
    /// How long to wait for everybody.
    pub timeout: Duration,
    /// A directory of ours with mode 0700 for the ranks' sockets. Left out, each rank makes one for a moment in
    /// `XDG_RUNTIME_DIR`, `TMPDIR` or `/tmp`.
    pub directory: Option<PathBuf>,
    /// Splits one machine into nodes: ranks with different names count as on different nodes.
    pub node: Option<String>,
    /// Interfaces or addresses to listen on and to offer to the others; all if empty.
    pub interfaces: Vec<String>,
    /// Told of each phase of joining.
    pub progress: Option<Progress>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plan")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("world", &self.world)
            .field("secret", &self.secret)
            .field("meeting", &self.meeting)
            .field("timeout", &self.timeout)
            .field("directory", &self.directory)
            .field("node", &self.node)
            .field("interfaces", &self.interfaces)
            .finish_non_exhaustive()
    }
}

/// More ranks than this cannot all hold connections to each other.
const MOST_RANKS: u32 = 4096;

impl Plan {
    /// A plan with a time limit of five minutes, all interfaces (or those that `EIRENE_TRAIN_INTERFACE` lists, with
    /// commas between them) and nothing else said.
    pub fn new(rank: u32, size: u32, world: impl Into<String>, meeting: Meeting) -> Self {
        Self {
            rank,
            size,
            world: world.into(),
            secret: None,
            meeting,
            timeout: Duration::from_mins(5),
            directory: None,
            node: None,
            interfaces: place::listed_interfaces(),
            progress: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let (rank, size) = (self.rank, self.size);
        if size == 0 || rank >= size {
            return Err(Error::invalid(format!("there is no rank {rank} in a world of {size} ranks")));
        }
        if size > MOST_RANKS {
            return Err(Error::invalid(format!("a world of {size} ranks is too large; at most {MOST_RANKS}")));
        }
        let what = match &self.meeting {
            _ if size == 1 => return Ok(()),
            Meeting::Nobody => format!("a world of {size} ranks needs a way to find rank 0"),
            Meeting::Listener(_) if rank != 0 => "only rank 0 can use a socket that already listens".to_owned(),
            Meeting::Address { .. } | Meeting::Listener(_) if self.secret.is_none() => {
                "ranks that meet on the network need a secret: hand it over by descriptor or in a private file"
                    .to_owned()
            }
            Meeting::Address { port: 0, .. } => "rank 0's port must be known".to_owned(),
            Meeting::Directory(path) | Meeting::File(path) if !path.is_absolute() => {
                format!("`{}` must be an absolute path", path.display())
            }
            Meeting::Directory(_) | Meeting::File(_) | Meeting::Address { .. } | Meeting::Listener(_) => return Ok(()),
        };
        Err(Error::Invalid { what })
    }

    pub(crate) fn tell(&self, phase: Phase) {
        if let Some(progress) = &self.progress {
            progress(phase);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_without_sense_are_refused() {
        let plan = |rank, size, meeting| Plan::new(rank, size, "w", meeting).check();
        assert!(plan(0, 1, Meeting::Nobody).is_ok());
        assert!(plan(0, 2, Meeting::Directory("/d".into())).is_ok());
        for wrong in [
            plan(0, 0, Meeting::Nobody),
            plan(2, 2, Meeting::Nobody),
            plan(0, 2, Meeting::Nobody),
            plan(0, 5000, Meeting::Directory("/d".into())),
            plan(0, 2, Meeting::Directory("d".into())),
            plan(0, 2, Meeting::Address { host: "localhost".into(), port: 1 }),
        ] {
            assert!(matches!(wrong, Err(Error::Invalid { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn a_printed_plan_shows_no_secret() {
        let mut plan = Plan::new(0, 2, "w", Meeting::File("/f".into()));
        plan.secret = Some(Secret::from_bytes([0xcd; 16]));
        let shown = format!("{plan:?}");
        assert!(shown.contains("Secret(..)") && !shown.contains("cd") && !shown.contains("205"), "{shown}");
    }
}
