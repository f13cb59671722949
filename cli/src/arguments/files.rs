//! What can be typed about files.

use clap::{Args, Subcommand};
use eirene_core::SpaceName;
use eirene_core::file_work::OnConflict;

use crate::place::{Place, Spot};

#[derive(Debug, Subcommand)]
pub(crate) enum Fs {
    /// List a directory of a space
    #[command(alias = "list")]
    Ls(ListFiles),
    /// Copy files into a space, out of it, or from one to another; the same command goes on where an earlier one was interrupted
    Cp(CopyFiles),
    /// Move or rename what is in a space, also to another space; or move between this machine and a space, where it is copied, compared and only
    /// then removed
    Mv(MoveFiles),
    /// Put files into the trash, or delete them for good
    Rm(RemoveFiles),
    /// Make directories in a space
    Mkdir(MakeDirectories),
    /// Measure what takes the room in a space, the largest directories first
    Du(DiskUse),
    /// See how full your spaces are, and how much of what your groups may use is left
    Quota,
    /// See, restore and empty the trash of a space
    #[command(subcommand)]
    Trash(Trash),
}

#[derive(Debug, Args)]
pub(crate) struct ListFiles {
    /// Directory or file in a space
    #[arg(value_name = "SPACE:PATH", value_parser = Spot::parser())]
    pub(crate) place: Spot,
    /// With permissions, owner, size and time of the last change
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Also names that begin with a dot
    #[arg(long, short)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CopyFiles {
    /// What: `SPACE:PATH`, or a path of this machine (`./a:b` where it has a colon)
    #[arg(required = true, value_name = "FROM", value_parser = Place::parser())]
    pub(crate) from: Vec<Place>,
    /// Where to. What is empty or ends with `/` is a directory into which it goes; anything else is the name it gets
    #[arg(value_name = "TO", value_parser = Place::parser())]
    pub(crate) to: Place,
    /// Also directories, with all in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Where the name is taken: `refuse`, `keep_both`, or `replace`, which in a space puts the old one into the trash
    #[arg(long, default_value = "refuse", value_name = "WHAT")]
    pub(crate) on_conflict: OnConflict,
    /// Pass over what is there already
    #[arg(long, short = 'n', conflicts_with = "on_conflict")]
    pub(crate) no_clobber: bool,
    /// Make directories that are missing on the way there
    #[arg(long, short)]
    pub(crate) parents: bool,
    /// Have the whole compared by its SHA-256, for which it is read twice; it is sent once
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Begin anew where an earlier copy was interrupted
    #[arg(long)]
    pub(crate) no_resume: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MoveFiles {
    /// What: `SPACE:PATH`, or a path of this machine (`./a:b` where it has a colon). Directories go with all in them
    #[arg(required = true, value_name = "FROM", value_parser = Place::parser())]
    pub(crate) from: Vec<Place>,
    /// Where to. What is empty or ends with `/` is a directory into which it goes; anything else is the name it gets
    #[arg(value_name = "TO", value_parser = Place::parser())]
    pub(crate) to: Place,
    /// Where the name is taken: `refuse`, `keep_both`, or `replace`, which in a space puts the old one into the trash
    #[arg(long, default_value = "refuse", value_name = "WHAT")]
    pub(crate) on_conflict: OnConflict,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveFiles {
    /// What
    #[arg(required = true, value_name = "SPACE:PATH", value_parser = Spot::parser())]
    pub(crate) places: Vec<Spot>,
    /// Also directories, with all in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// For good, and not into the trash
    #[arg(long)]
    pub(crate) delete: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MakeDirectories {
    /// Which
    #[arg(required = true, value_name = "SPACE:PATH", value_parser = Spot::parser())]
    pub(crate) places: Vec<Spot>,
    /// Also those on the way; one that is there is as good
    #[arg(long, short)]
    pub(crate) parents: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiskUse {
    /// Directory in a space
    #[arg(value_name = "SPACE:PATH", value_parser = Spot::parser())]
    pub(crate) place: Spot,
    /// Directories that lie so deep, at most
    #[arg(long, short = 'd', value_name = "N", default_value_t = 1)]
    pub(crate) depth: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Trash {
    /// List what is in your trash of a space, the newest first
    #[command(alias = "list")]
    Ls {
        /// Space
        #[arg(default_value = "home")]
        space: SpaceName,
    },
    /// Put something back where it was
    Restore {
        /// Space
        space: SpaceName,
        /// Its id, as the list has it
        #[arg(value_parser = trash_id)]
        id: String,
        /// Put it here instead: a path in the space
        #[arg(long, value_name = "SPACE:PATH", value_parser = Spot::parser())]
        to: Option<Spot>,
        /// Where the name is taken: `refuse`, `keep_both` or `replace`
        #[arg(long, default_value = "refuse", value_name = "WHAT")]
        on_conflict: OnConflict,
    },
    /// Delete all that is in your trash of a space for good
    Empty {
        /// Space
        space: SpaceName,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// An id gets into an address: it is one, or nothing.
fn trash_id(text: &str) -> Result<String, String> {
    let well = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if well { Ok(text.to_owned()) } else { Err("an id of the trash has 32 hexadecimal digits".to_owned()) }
}
