//! The sections about shared storage: what it is, where spaces lie in it, and what may move in and out of them.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use eirene_core::job_file::Bind;
use eirene_core::old_files::OldFilesRule;
use eirene_core::space::{Policy, StripeHint};
use eirene_core::{RootName, Space, SpaceKind, SpaceTitle};
use serde::Deserialize;

use super::{BindPath, ConfigError};

/// What the shared storage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageAdapter {
    /// Any mounted file system.
    Posix,
    /// BeeGFS 7 through `beegfs-ctl`.
    Beegfs7,
    /// BeeGFS 8 through `beegfs`.
    Beegfs8,
}

/// The shared storage.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Storage {
    /// What it is.
    pub adapter: StorageAdapter,
    /// Seconds between two looks at its health.
    pub poll_interval_s: u64,
    /// Free, per cent of a target or file system: warned below the first, an error below the second.
    pub near_full_percent: [u8; 2],
}

/// Spaces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spaces {
    /// Where spaces lie besides homes.
    pub roots: Vec<Root>,
    /// Used, per cent of a space's limit: its people are told at the first and again at the second.
    pub warn_percent: [u8; 2],
}

/// Whose the spaces of a root are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// Each is a person's; everybody has one at most, and addresses it by the root's name.
    Person,
    /// Each is a group's, or everybody's to read.
    Group,
}

/// How much: a whole number and `M`, `G` or `T`, of 1024 of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = text.strip_suffix("iB").unwrap_or(&text);
        let units = [("M", 20_u32), ("G", 30), ("T", 40)];
        let found = units.into_iter().find_map(|(unit, bits)| Some((plain.strip_suffix(unit)?, bits)));
        let bytes = found.and_then(|(digits, bits)| digits.parse::<u64>().ok()?.checked_mul(1 << bits));
        bytes.map(Self).ok_or_else(|| format!("`{text}` is no size: a whole number and M, G or T, for example `500G`"))
    }
}

/// A directory in which spaces lie.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Name.
    pub name: RootName,
    /// What its spaces are for.
    pub kind: SpaceKind,
    /// Whose they are.
    #[serde(default = "of_groups")]
    pub per: Per,
    /// What people read.
    pub title: SpaceTitle,
    /// The directory on the portal's host.
    pub path: PathBuf,
    /// The same directory on the nodes; none is where it is on the portal's host.
    #[serde(default)]
    pub node_path: Option<PathBuf>,
    /// Where sessions see its spaces: one's own there, those of groups below it by name. None is nowhere.
    #[serde(default)]
    pub mounted_at: Option<PathBuf>,
    /// What its spaces are mostly filled with, where nothing else is said.
    #[serde(default = "usual")]
    pub hint: StripeHint,
    /// How much a space may hold that is made in it by itself; none is no limit.
    #[serde(default)]
    pub limit: Option<Size>,
    /// How many files and directories.
    #[serde(default)]
    pub limit_files: Option<u64>,
    /// On BeeGFS, which counts by person and group: a space's limit is its owner's in the pool where its files lie.
    #[serde(default)]
    pub owner_limits: bool,
    /// Days after which such a space expires; none is never.
    #[serde(default)]
    pub lifetime_days: Option<u32>,
    /// Days before its end on which the owner of a space is warned.
    #[serde(default = "warn_days")]
    pub warn_days: Vec<u32>,
    /// Days a retired space is kept.
    #[serde(default = "grace_days")]
    pub grace_days: u32,
    /// Only say what would be done to spaces that are over.
    #[serde(default = "on_trial")]
    pub dry_run: bool,
    /// What becomes of files in them that nobody changes or reads; none is nothing.
    #[serde(default)]
    pub old_files: Option<OldFiles>,
}

/// What becomes of old files in the spaces of a root.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldFiles {
    /// Days after which a file that was neither changed nor read is old.
    pub days: u32,
    /// Days from telling the owner to the removal.
    #[serde(default = "old_files_warn_days")]
    pub warn_days: u32,
    /// Only say what would be removed.
    #[serde(default = "on_trial")]
    pub dry_run: bool,
}

/// What goes in and out of spaces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Files {
    /// Transfers one person may have at once.
    pub transfers_per_person: u32,
    /// Transfers of everybody together.
    pub transfers: u32,
    /// Seconds without a request after which a person's file process is ended.
    pub idle_s: u64,
    /// Days an upload that nobody goes on with is kept.
    pub upload_days: u32,
}

/// What a limit of bytes can be: less would refuse the first file, and more is more than 8-byte counters of blocks hold with room to spare.
pub const LIMIT_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 60;
/// The same of files.
pub const LIMIT_FILES: RangeInclusive<u64> = 1..=1 << 60;
/// Days after which files can be old: whoever is away for a week comes back to what they left.
pub const OLD_DAYS: RangeInclusive<u32> = 7..=3650;

fn of_groups() -> Per {
    Per::Group
}

fn usual() -> StripeHint {
    StripeHint::Usual
}

fn warn_days() -> Vec<u32> {
    vec![14, 3, 1]
}

fn grace_days() -> u32 {
    30
}

fn old_files_warn_days() -> u32 {
    14
}

fn on_trial() -> bool {
    true
}

impl Root {
    /// Whether spaces in it are to be written to.
    pub fn is_writable(&self) -> bool {
        self.kind != SpaceKind::Shared
    }

    /// Where a space lies on the nodes.
    pub fn on_nodes(&self, space: &Space) -> PathBuf {
        self.node_path.as_ref().unwrap_or(&self.path).join(space.name.as_str())
    }

    /// Where sessions see a space; none where they do not.
    pub fn seen_at(&self, space: &Space) -> Option<PathBuf> {
        let at = self.mounted_at.as_ref()?;
        Some(match self.per {
            Per::Person => at.clone(),
            Per::Group => at.join(space.name.as_str()),
        })
    }

    /// Whether everybody has one space in it at most.
    pub fn is_personal(&self) -> bool {
        self.per == Per::Person
    }

    /// How a session gets a space; a node that does not have it goes without.
    pub fn bind(&self, space: &Space, writable: bool) -> Option<Bind> {
        let target = self.seen_at(space)?;
        let shown = |path: PathBuf| path.to_string_lossy().into_owned();
        Some(Bind { source: shown(self.on_nodes(space)), target: shown(target), writable, optional: true })
    }

    /// What becomes of old files in its spaces; none is nothing.
    pub fn old_files(&self) -> Option<OldFilesRule> {
        let OldFiles { days, warn_days, dry_run } = self.old_files?;
        Some(OldFilesRule { days, warn_days, dry_run })
    }

    /// What happens to its spaces in time.
    pub fn policy(&self) -> Policy {
        Policy { warn_days: self.warn_days.clone(), grace_days: self.grace_days, dry_run: self.dry_run }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self { adapter: StorageAdapter::Posix, poll_interval_s: 60, near_full_percent: [10, 5] }
    }
}

impl Default for Spaces {
    fn default() -> Self {
        Self { roots: vec![], warn_percent: [80, 95] }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self { transfers_per_person: 8, transfers: 128, idle_s: 300, upload_days: 7 }
    }
}

fn wrong(key: &'static str, message: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Value { key, message: message.into() })
}

impl Storage {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(10..=3600).contains(&self.poll_interval_s) {
            return wrong("storage.poll_interval_s", "10 to 3600");
        }
        let [warning, error] = self.near_full_percent;
        if !(1..=50).contains(&error) || !(1..=50).contains(&warning) || error >= warning {
            return wrong("storage.near_full_percent", "two numbers of 1 to 50, the larger first");
        }
        Ok(())
    }
}

impl Spaces {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let [first, second] = self.warn_percent;
        if !(1..=99).contains(&first) || !(1..=99).contains(&second) || first >= second {
            return wrong("spaces.warn_percent", "two numbers of 1 to 99, the smaller first");
        }
        for (at, root) in self.roots.iter().enumerate() {
            root.check()?;
            for other in &self.roots[..at] {
                if other.name == root.name {
                    return wrong("spaces.roots", format!("two of them are called `{}`", root.name));
                }
                if other.path.starts_with(&root.path) || root.path.starts_with(&other.path) {
                    return wrong("spaces.roots", format!("`{}` and `{}` lie in each other", other.name, root.name));
                }
            }
        }
        Ok(())
    }
}

impl Root {
    fn check(&self) -> Result<(), ConfigError> {
        let name = &self.name;
        if name.as_str() == Space::HOME_ROOT || self.kind == SpaceKind::Home {
            return wrong("spaces.roots", format!("`{name}`: homes are the site's, and `home` is their own root"));
        }
        let plain = self
            .path
            .components()
            .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
        if !self.path.is_absolute() || !plain || self.path.parent().is_none() {
            let path = self.path.display();
            return wrong("spaces.roots", format!("`{name}`: `{path}` is no absolute path of a directory below `/`"));
        }
        if let Some(at) = &self.mounted_at {
            // By the rules of those that an administrator writes down for every session.
            let node = self.node_path.as_ref().unwrap_or(&self.path);
            if let Err(error) = format!("{}:{}", node.display(), at.display()).parse::<BindPath>() {
                return wrong("spaces.roots", format!("`{name}`: {error}"));
            }
        }
        if self.per == Per::Person && self.kind != SpaceKind::Scratch {
            return wrong("spaces.roots", format!("`{name}`: `per = \"person\"` is for roots of the kind `scratch`"));
        }
        let falls = self.warn_days.windows(2).all(|two| two[0] > two[1]);
        if !falls || self.warn_days.iter().any(|days| !(1..=365).contains(days)) {
            return wrong("spaces.roots", format!("`{name}`: `warn_days` are numbers of 1 to 365, the largest first"));
        }
        if !(1..=3650).contains(&self.grace_days) {
            return wrong("spaces.roots", format!("`{name}`: `grace_days` is a number of 1 to 3650"));
        }
        self.check_old_files()?;
        self.check_what_is_made_by_itself()
    }

    fn check_old_files(&self) -> Result<(), ConfigError> {
        let (name, Some(old)) = (&self.name, self.old_files) else { return Ok(()) };
        if !self.is_writable() {
            // What is only read is filled by the site, and is the site's to tidy up.
            return wrong(
                "spaces.roots",
                format!("`{name}`: `old_files` is for roots in whose spaces people may write"),
            );
        }
        if !OLD_DAYS.contains(&old.days) {
            return wrong("spaces.roots", format!("`{name}`: `old_files.days` is a number of 7 to 3650"));
        }
        if !(1..=365).contains(&old.warn_days) {
            return wrong("spaces.roots", format!("`{name}`: `old_files.warn_days` is a number of 1 to 365"));
        }
        Ok(())
    }

    fn check_what_is_made_by_itself(&self) -> Result<(), ConfigError> {
        let name = &self.name;
        let is_said = self.limit.is_some() || self.limit_files.is_some() || self.lifetime_days.is_some();
        if is_said && self.per != Per::Person {
            let keys =
                "`limit`, `limit_files` and `lifetime_days` are for what is made by itself, with `per = \"person\"`";
            return wrong("spaces.roots", format!("`{name}`: {keys}"));
        }
        if self.limit.is_some_and(|Size(bytes)| !LIMIT_BYTES.contains(&bytes)) {
            return wrong("spaces.roots", format!("`{name}`: `limit` is `1M` at least, and an exbibyte at most"));
        }
        if self.limit_files.is_some_and(|files| !LIMIT_FILES.contains(&files)) {
            return wrong("spaces.roots", format!("`{name}`: `limit_files` is 1 at least"));
        }
        let first_warning = self.warn_days.first().copied().unwrap_or(0);
        if self.lifetime_days.is_some_and(|days| !(first_warning + 1..=3650).contains(&days)) {
            let least = first_warning + 1;
            return wrong(
                "spaces.roots",
                format!("`{name}`: `lifetime_days` is a number of {least} to 3650: more than `warn_days`"),
            );
        }
        Ok(())
    }
}

impl Files {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=64).contains(&self.transfers_per_person) {
            return wrong("files.transfers_per_person", "1 to 64");
        }
        if !(self.transfers_per_person..=4096).contains(&self.transfers) {
            return wrong("files.transfers", "from `transfers_per_person` to 4096");
        }
        if !(10..=86_400).contains(&self.idle_s) {
            return wrong("files.idle_s", "10 to 86400");
        }
        if !(1..=90).contains(&self.upload_days) {
            return wrong("files.upload_days", "1 to 90");
        }
        Ok(())
    }
}
