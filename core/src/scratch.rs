//! Fast scratch of one session or run: room on the nodes' own disks for as long as the job lasts, what is copied there before the program starts,
//! and what is copied back when it has ended.
//!
//! Here are the words and what may be asked for. Directories and copies are the agent's; which spaces a person may name is the services'.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::id::SessionId;
use crate::name::SpaceName;

/// Where a program finds its scratch in the container.
pub const SCRATCH_TARGET: &str = "/local";
/// The variable that says so.
pub const SCRATCH_VARIABLE: &str = "EIRENE_SCRATCH";
/// The space that everybody has: one's own home directory.
pub const HOME_SPACE: &str = "home";
/// The feature of nodes on which the site starts a file system over a job's nodes.
pub const BEEOND_FEATURE: &str = "beeond";
/// Most entries of one list.
pub const MAX_ENTRIES: usize = 64;
/// Longest path, bytes: `PATH_MAX` of Linux.
pub const MAX_PATH: usize = 4096;
/// Most components of a path.
pub const MAX_DEPTH: usize = 64;
/// Longest component, bytes: `NAME_MAX` of Linux.
pub const MAX_COMPONENT: usize = 255;
/// Most room that can be asked for, MiB (1 EiB).
pub const MAX_SIZE_MIB: u64 = 1 << 40;

word_enum! {
    /// What the scratch is made of.
    ScratchKind {
        /// Each node's own disk, for itself.
        Node = "node",
        /// BeeGFS On Demand: the disks of all the job's nodes as one file system that all of them see.
        Beeond = "beeond",
    }
}

word_enum! {
    /// When something is copied back.
    StageOn {
        /// However the program ended, or was ended.
        Always = "always",
        /// Only after a good end: a run's own with status 0, or a session's by its owner.
        Success = "success",
    }
}

/// Why a list or a path cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScratchError {
    /// Absolute, with `..`, or with what no file system or log takes.
    #[error(
        "a path is relative, of at most {MAX_PATH} bytes and {MAX_DEPTH} parts without `.`, `..` and control characters"
    )]
    Path,
    /// No colon, or no name before it.
    #[error("a place is `SPACE:PATH`, for example `home:data/train`")]
    Place,
    /// Too many entries.
    #[error("each list has at most {MAX_ENTRIES} entries")]
    TooMany,
    /// Two entries of a list lead to the same place.
    #[error("two entries of one list have the same target")]
    SameTarget,
    /// No room, or more than there is anywhere.
    #[error("`size_mib` is between 1 and {MAX_SIZE_MIB}")]
    Size,
}

/// Name of the directory that holds a person's scratches, in a node's directory for them. Where another user has that name, the agent uses one
/// with a dot and a random suffix behind it.
pub fn own_name(uid: u32) -> String {
    format!("eirene-scratch-{uid}")
}

/// The scratch of one start of a session, on each of its nodes. Where another user has the name of the directory it is in, `eirene-agent rescue`
/// finds it by its last part.
pub fn left_directory(base: &Path, uid: u32, session: SessionId, restart_count: u32) -> PathBuf {
    base.join(own_name(uid)).join(format!("{session}.{restart_count}"))
}

/// What a job's own log says at the end of a scratch from which nothing is owed any more. `name` is `<session>.<restart>`.
pub fn brought_out(name: &str) -> String {
    format!("all that was to be kept of scratch {name} is in its place")
}

/// The same of one from which not everything could be brought out.
pub fn not_brought_out(name: &str) -> String {
    format!("not all that was to be kept of scratch {name} could be brought out")
}

/// A path beneath something: `/` between components, none of which leads elsewhere. Empty is that something itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StagePath(String);

impl StagePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its components, in order.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }
}

impl FromStr for StagePath {
    type Err = ScratchError;
    fn from_str(text: &str) -> Result<Self, ScratchError> {
        let good = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= MAX_COMPONENT;
        // A slash at the end says what is meant and changes nothing.
        let path = text.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(text);
        let whole = path.is_empty() || (path.split('/').all(good) && path.split('/').count() <= MAX_DEPTH);
        if !whole || text.len() > MAX_PATH || text.chars().any(char::is_control) {
            return Err(ScratchError::Path);
        }
        Ok(Self(path.to_owned()))
    }
}

impl TryFrom<String> for StagePath {
    type Error = ScratchError;
    fn try_from(text: String) -> Result<Self, ScratchError> {
        text.parse()
    }
}

impl From<StagePath> for String {
    fn from(path: StagePath) -> Self {
        path.0
    }
}

impl fmt::Display for StagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path in a space, written `space:path`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpacePath {
    /// The space, as the person calls it.
    pub space: SpaceName,
    /// Where in it.
    pub path: StagePath,
}

impl FromStr for SpacePath {
    type Err = ScratchError;
    fn from_str(text: &str) -> Result<Self, ScratchError> {
        let (space, path) = text.split_once(':').ok_or(ScratchError::Place)?;
        Ok(Self { space: space.parse().map_err(|_| ScratchError::Place)?, path: path.parse()? })
    }
}

impl TryFrom<String> for SpacePath {
    type Error = ScratchError;
    fn try_from(text: String) -> Result<Self, ScratchError> {
        text.parse()
    }
}

impl From<SpacePath> for String {
    fn from(place: SpacePath) -> Self {
        place.to_string()
    }
}

impl fmt::Display for SpacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space, self.path)
    }
}

/// What is copied to the scratch before the program starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageIn {
    /// A file or a directory of a space.
    #[schema(value_type = String, example = "home:data/train")]
    pub from: SpacePath,
    /// What it is called in the scratch. What is in a directory goes into the directory of that name, or into the scratch itself if empty.
    #[schema(value_type = String, example = "train")]
    pub to: StagePath,
}

/// What is copied back when the program has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageOut {
    /// A file or a directory of the scratch; empty is all of it.
    #[schema(value_type = String, example = "results")]
    pub from: StagePath,
    /// What it is called in a space; files that are there already are replaced. With several nodes, each with a scratch of its own, it is a
    /// directory that holds what each node has under `node0`, `node1` and so on.
    #[schema(value_type = String, example = "home:results/today")]
    pub to: SpacePath,
    /// After which ends.
    #[serde(default = "always")]
    pub on: StageOn,
}

fn always() -> StageOn {
    StageOn::Always
}

/// The scratch that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScratchSpec {
    /// What it is made of.
    pub kind: ScratchKind,
    /// Room that each node must have free there, MiB. It is looked at, not set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_mib: Option<u64>,
    /// Copied in this order before the program starts; what fails there ends the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stage_in: Vec<StageIn>,
    /// Copied in this order when the program has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stage_out: Vec<StageOut>,
}

impl ScratchSpec {
    /// Whether this can be made at all.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ScratchError> {
        if self.stage_in.len() > MAX_ENTRIES || self.stage_out.len() > MAX_ENTRIES {
            return Err(ScratchError::TooMany);
        }
        if self.size_mib.is_some_and(|size| size == 0 || size > MAX_SIZE_MIB) {
            return Err(ScratchError::Size);
        }
        // What is in a directory may be added to what is there; the same target twice is a slip.
        let same =
            |targets: Vec<&StagePath>| targets.iter().any(|one| targets.iter().filter(|to| *to == one).count() > 1);
        let into = self.stage_in.iter().map(|entry| &entry.to).filter(|to| !to.as_str().is_empty()).collect();
        let twice = |one: &StageOut| self.stage_out.iter().filter(|other| other.to == one.to).count() > 1;
        if same(into) || self.stage_out.iter().any(twice) {
            return Err(ScratchError::SameTarget);
        }
        Ok(())
    }

    /// The spaces that the lists name, each once.
    pub fn spaces(&self) -> Vec<&SpaceName> {
        let from = self.stage_in.iter().map(|entry| &entry.from.space);
        let mut all: Vec<&SpaceName> = from.chain(self.stage_out.iter().map(|entry| &entry.to.space)).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// The same with what the nodes need to know: part of the job file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobScratch {
    /// What was asked for.
    pub wanted: ScratchSpec,
    /// Directory of the nodes, absolute: in it scratches are made (`node`), or the file systems of jobs are mounted, each under its job's
    /// number (`beeond`).
    pub base: String,
    /// Where the spaces that the lists name lie on the nodes. Without [`HOME_SPACE`], which is where the job's home is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spaces: BTreeMap<SpaceName, String>,
    /// Seconds before the time limit at which the program is ended where something is to be copied back.
    pub reserve_s: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec() -> ScratchSpec {
        ScratchSpec {
            kind: ScratchKind::Node,
            size_mib: Some(100),
            stage_in: vec![StageIn { from: "home:data/".parse().unwrap(), to: "in".parse().unwrap() }],
            stage_out: vec![StageOut {
                from: "out".parse().unwrap(),
                to: "home:results/new".parse().unwrap(),
                on: StageOn::Success,
            }],
        }
    }

    #[test]
    fn a_scratch_is_written_as_it_is_read() {
        let text = r#"{"kind":"node","size_mib":100,"stage_in":[{"from":"home:data","to":"in"}],
            "stage_out":[{"from":"out","to":"home:results/new","on":"success"}]}"#;
        let read: ScratchSpec = serde_json::from_str(text).unwrap();
        assert_eq!((&read, read.check()), (&spec(), Ok(())));
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(written, text.replace("\n            ", ""));
        let least: ScratchSpec = serde_json::from_str(r#"{"kind":"beeond"}"#).unwrap();
        assert_eq!((least.kind, least.stage_in.len(), least.size_mib), (ScratchKind::Beeond, 0, None));
        assert_eq!(serde_json::to_string(&least).unwrap(), r#"{"kind":"beeond"}"#);
        let always: StageOut = serde_json::from_str(r#"{"from":"","to":"home:"}"#).unwrap();
        assert_eq!((always.on, always.from.components().count()), (StageOn::Always, 0));
        assert_eq!(read.spaces().iter().map(|space| space.as_str()).collect::<Vec<_>>(), [HOME_SPACE]);
    }

    #[test]
    fn what_nobody_can_have_meant_is_refused() {
        for bad in ["/", "//", "/etc", "a//b", "..", "a/..", "../a", "./a", "a/.", "a\0b", "a\nb"] {
            assert_eq!(bad.parse::<StagePath>(), Err(ScratchError::Path), "{bad:?}");
        }
        for bad in [String::from("a/").repeat(MAX_DEPTH + 1), "x".repeat(MAX_COMPONENT + 1), "a".repeat(MAX_PATH + 1)] {
            assert!(bad.parse::<StagePath>().is_err(), "{} bytes", bad.len());
        }
        for bad in ["", "home", ":a", "Home:a", "../x:a"] {
            assert_eq!(bad.parse::<SpacePath>(), Err(ScratchError::Place), "{bad:?}");
        }
        assert_eq!("home:/etc".parse::<SpacePath>(), Err(ScratchError::Path));
        assert!(
            serde_json::from_str::<ScratchSpec>(r#"{"kind":"node","sice_mib":1}"#).is_err(),
            "a slip is not passed over"
        );
        assert!(
            serde_json::from_str::<ScratchSpec>(r#"{"kind":"node","stage_in":[{"from":"home:../x","to":""}]}"#)
                .is_err()
        );
    }

    #[test]
    fn lists_are_bounded_and_their_targets_differ() {
        let check = |change: &dyn Fn(&mut ScratchSpec)| {
            let mut wanted = spec();
            change(&mut wanted);
            wanted.check()
        };
        assert_eq!(check(&|wanted| wanted.size_mib = Some(0)), Err(ScratchError::Size));
        assert_eq!(check(&|wanted| wanted.size_mib = Some(MAX_SIZE_MIB + 1)), Err(ScratchError::Size));
        assert_eq!(check(&|wanted| wanted.stage_in.push(wanted.stage_in[0].clone())), Err(ScratchError::SameTarget));
        assert_eq!(check(&|wanted| wanted.stage_out.push(wanted.stage_out[0].clone())), Err(ScratchError::SameTarget));
        let many = |wanted: &mut ScratchSpec| {
            wanted.stage_in = (0..=MAX_ENTRIES)
                .map(|number| StageIn { from: "home:".parse().unwrap(), to: number.to_string().parse().unwrap() })
                .collect();
        };
        assert_eq!(check(&many), Err(ScratchError::TooMany));
    }

    proptest! {
        #[test]
        fn no_path_that_parses_leads_out(text in "[a./ ~\\\\:-]{0,24}|\\PC{0,40}") {
            if let Ok(path) = text.parse::<StagePath>() {
                prop_assert!(!path.as_str().starts_with('/'));
                for component in path.components() {
                    prop_assert!(component != ".." && component != "." && !component.contains('\0'));
                }
                // Joined to a directory it stays beneath it, whoever joins.
                let joined = std::path::Path::new("/base").join(path.as_str());
                prop_assert!(joined.starts_with("/base"));
                prop_assert!(joined.components().all(|part| part != std::path::Component::ParentDir));
                prop_assert_eq!(path.as_str().parse::<StagePath>(), Ok(path.clone()));
            }
        }

        #[test]
        fn a_place_is_read_back_as_it_was_written(space in "[a-z0-9][a-z0-9._-]{0,20}", path in "([a-z :=%é]{1,8}/){0,3}[a-z]{1,8}") {
            let text = format!("{space}:{path}");
            let place: SpacePath = text.parse().unwrap();
            prop_assert_eq!(place.to_string(), text.clone());
            let json = serde_json::to_string(&place).unwrap();
            prop_assert_eq!(serde_json::from_str::<SpacePath>(&json).unwrap(), place);
        }

        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,60}") {
            let _ = text.parse::<SpacePath>();
            let _ = serde_json::from_str::<ScratchSpec>(&text);
        }
    }
}
