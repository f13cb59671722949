//! What can be typed to run the platform.

use clap::{Args, Subcommand};
use eirene_core::{GroupName, NameError, RootName, SessionId, SpaceName, SpaceTitle, Username};

use crate::arguments::memory_mib;
use crate::commands::alert::AdminAlert;
use crate::commands::efficiency::AdminEfficiency;
use crate::commands::node::AdminNode;
use crate::commands::storage::AdminStorage;
use crate::times;

#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// People
    #[command(subcommand)]
    User(AdminUser),
    /// Everybody's sessions
    #[command(subcommand)]
    Session(AdminSession),
    /// Everybody's runs
    #[command(subcommand)]
    Run(AdminRun),
    /// What somebody should know now, and what nobody is told of for a time
    #[command(subcommand)]
    Alert(AdminAlert),
    /// What sessions and runs held of the cluster, and what they used of it
    Efficiency(AdminEfficiency),
    /// Nodes
    #[command(subcommand)]
    Node(AdminNode),
    /// The shared storage
    #[command(subcommand)]
    Storage(AdminStorage),
    /// Spaces
    #[command(subcommand)]
    Space(AdminSpace),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminSpace {
    /// Have a space made, for a group, for everybody to read, or for one person as its root is for
    Create {
        /// Its name; left out where everybody has one in the root
        #[arg(required_unless_present = "owner")]
        name: Option<SpaceName>,
        /// The root it is to lie in
        #[arg(long)]
        root: RootName,
        /// The POSIX group it is for
        #[arg(long, conflicts_with = "owner")]
        group: Option<GroupName>,
        /// The person it is for
        #[arg(long)]
        owner: Option<Username>,
        #[command(flatten)]
        about: AboutSpace,
    },
    /// List everybody's spaces
    #[command(alias = "ls")]
    List,
    /// Show a space
    Show {
        /// Its name, as `list` shows it
        space: SpaceName,
    },
    /// Change a space
    Set {
        /// Its name, as `list` shows it
        space: SpaceName,
        #[command(flatten)]
        about: AboutSpace,
        /// Let it never expire
        #[arg(long, conflicts_with = "expires")]
        never_expires: bool,
        /// Let it hold any number of bytes and files
        #[arg(long, conflicts_with_all = ["limit", "limit_files"])]
        no_limit: bool,
    },
    /// Take a space away: nobody reaches it any more, and it can be brought back
    Retire {
        /// Its name, as `list` shows it
        space: SpaceName,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Bring a space back
    Restore {
        /// Its name, as `list` shows it
        space: SpaceName,
    },
    /// Show what becomes of files in a space that nobody changes or reads, or change that
    OldFiles {
        /// Its name, as `list` shows it
        space: SpaceName,
        /// Look now what is old; nothing is removed
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        rule: OldFilesRule,
    },
}

/// What becomes of old files in one space, where that is not what its root says.
#[derive(Debug, Args)]
pub(crate) struct OldFilesRule {
    /// Let nothing of it be listed or removed
    #[arg(long, conflicts_with_all = ["not_exempt", "dry_run"])]
    pub(crate) exempt: bool,
    /// Let it be as its root says again
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) not_exempt: bool,
    /// Days after which a file is old there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(7..=3650), conflicts_with = "dry_run")]
    pub(crate) days: Option<u32>,
    /// Let that be what its root says again
    #[arg(long, conflicts_with_all = ["days", "dry_run"])]
    pub(crate) usual_days: bool,
}

/// What can be said of a space at any time.
#[derive(Debug, Args)]
pub(crate) struct AboutSpace {
    /// What people read; an empty one is its name, or its root's title where everybody has one there
    #[arg(long, value_parser = title)]
    pub(crate) title: Option<String>,
    /// What it is mostly filled with
    #[arg(long, value_parser = ["usual", "small_files", "large_sequential"])]
    pub(crate) hint: Option<String>,
    /// When it expires: `2027-03-01` is the end of that day by UTC, `2027-03-01T17:00:00Z` a time
    #[arg(long, value_parser = times::end)]
    pub(crate) expires: Option<jiff::Timestamp>,
    /// How much it may hold: `500G`
    #[arg(long, value_name = "SIZE", value_parser = memory_mib)]
    pub(crate) limit: Option<u64>,
    /// How many files and directories it may hold
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit_files: Option<u64>,
}

/// A title, or an empty one, which takes away what it was given.
fn title(text: &str) -> Result<String, NameError> {
    if text.trim().is_empty() {
        return Ok(String::new());
    }
    text.parse().map(|title: SpaceTitle| title.to_string())
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminUser {
    /// Give a POSIX account of the cluster an account here; prints the password once
    Add {
        /// Its name
        username: Username,
        /// Also let them run the platform
        #[arg(long)]
        admin: bool,
        /// Read the password from standard input instead of making one
        #[arg(long)]
        password_stdin: bool,
    },
    /// List people
    #[command(alias = "ls")]
    List,
    /// Stop somebody from signing in; their tokens and log-ins end at once
    Disable {
        /// Their user name
        username: Username,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Let somebody sign in again
    Enable {
        /// Their user name
        username: Username,
    },
    /// Give somebody a new password; prints it once
    ResetPassword {
        /// Their user name
        username: Username,
        /// Read the password from standard input instead of making one
        #[arg(long)]
        password_stdin: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminSession {
    /// List everybody's sessions
    #[command(alias = "ls")]
    List {
        /// Also the ones that are over
        #[arg(long)]
        all: bool,
    },
    /// Stop somebody's session
    Stop {
        /// Its id, whole
        session: SessionId,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminRun {
    /// List everybody's runs
    #[command(alias = "ls")]
    List {
        /// Also the ones that are over
        #[arg(long)]
        all: bool,
    },
    /// Cancel somebody's run
    Cancel {
        /// Its id, whole
        run: SessionId,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}
