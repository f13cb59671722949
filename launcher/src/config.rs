//! The launcher's own configuration: a file of root's, because whoever writes it decides whose tokens are signed.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use eirene_core::Username;
use eirene_core::name::RootName;
use nix::unistd::User;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// Nobody below this is a person, whatever the configuration says.
const LOWEST_UID: u32 = 1000;
/// A token that outlives this is no short-lived token.
const LONGEST_TOKEN_S: u64 = 3600;
/// Each file process costs two threads here and one process.
const MOST_FILES: usize = 4096;

/// `launcher.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to listen.
    pub socket: PathBuf,
    /// The one user who may connect.
    pub peer_user: Username,
    /// File with the key SLURM's `auth/jwt` checks tokens with.
    pub jwt_key: PathBuf,
    /// `SlurmUser` of `slurm.conf`, who may do anything in the cluster: nobody is signed in as that user.
    pub slurm_user: Username,
    /// The account for the snapshot of the whole cluster and for operator verbs.
    pub service_account: Username,
    /// Lowest user id of a person.
    #[serde(default = "lowest_uid")]
    pub min_uid: u32,
    /// How long tokens hold.
    #[serde(default = "token_lifetime")]
    pub token_lifetime_s: u64,
    /// Where SLURM's programs lie.
    #[serde(default = "slurm_bin_dir")]
    pub slurm_bin_dir: PathBuf,
    /// One line for each call goes here.
    pub audit_log: PathBuf,
    /// The program that looks after people's files; without one none is started.
    #[serde(default)]
    pub files_program: Option<PathBuf>,
    /// File processes at the same time, of all people together.
    #[serde(default = "most_files")]
    pub most_files: usize,
    /// The program that looks at file systems; without one nothing is measured.
    #[serde(default)]
    pub look_program: Option<PathBuf>,
    /// Directories in which spaces lie; nothing else is looked at but homes.
    #[serde(default)]
    pub space_root: Vec<SpaceRoot>,
    /// First and last project id that spaces get on file systems with project quotas: of each file system nobody else may use them.
    #[serde(default = "project_ids")]
    pub project_ids: (u32, u32),
    /// The account that empties spaces that were taken away and whose time is over; without it none is removed.
    #[serde(default)]
    pub purge_account: Option<Username>,
    /// BeeGFS's tool; without this section none is run.
    #[serde(default)]
    pub beegfs: Option<Beegfs>,
    /// How it logs.
    #[serde(default)]
    pub log: Log,
}

/// `[log]`: what is written to standard error, as eirened has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Which lines: `info`, or per module as `tracing` filters are written.
    pub filter: String,
    /// How they look.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// `[[space_root]]`: a directory in which spaces lie.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceRoot {
    /// How the portal calls it.
    pub name: RootName,
    /// Absolute path.
    pub path: PathBuf,
    /// Whose spaces are made in it; without this none is.
    #[serde(default)]
    pub per: Option<Per>,
}

/// Whose the spaces of a root are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// Each is a person's.
    Person,
    /// Each is a group's, or everybody's to read.
    Group,
}

/// `[beegfs]`: the tool, as whom it runs, and the site's settings, which nobody can set from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beegfs {
    /// 7 or 8, which decides which command lines may run.
    pub generation: Generation,
    /// `beegfs-ctl` of 7, or `beegfs` of 8; root's, writable by nobody else.
    pub program: PathBuf,
    /// An account of its own, which may read the secret of the file system.
    pub account: Username,
    /// 7: the client's configuration, `--cfgFile=`.
    #[serde(default)]
    pub client_config: Option<PathBuf>,
    /// 8: `HOST:PORT` of the management service, `--mgmtd-addr=`.
    #[serde(default)]
    pub mgmtd: Option<String>,
    /// 8: the shared secret, `--auth-file=`.
    #[serde(default)]
    pub auth_file: Option<PathBuf>,
    /// 8: the management service's certificate, `--tls-cert-file=`.
    #[serde(default)]
    pub tls_cert: Option<PathBuf>,
    /// Whether the tool is root in a user namespace of its own, which it asks for; where those are switched off it has fewer commands.
    #[serde(default = "yes")]
    pub user_namespace: bool,
}

/// A generation of BeeGFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u8")]
pub enum Generation {
    /// 7.x, `beegfs-ctl`.
    Seven,
    /// 8.x, `beegfs`.
    Eight,
}

impl TryFrom<u8> for Generation {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, &'static str> {
        match number {
            7 => Ok(Self::Seven),
            8 => Ok(Self::Eight),
            _ => Err("`generation` must be 7 or 8"),
        }
    }
}

impl Beegfs {
    /// The site's settings, which come before every other argument.
    pub fn settings(&self) -> Vec<String> {
        let path = |name: &str, path: &Option<PathBuf>| path.as_ref().map(|path| format!("{name}={}", path.display()));
        let mgmtd = self.mgmtd.as_ref().map(|address| format!("--mgmtd-addr={address}"));
        let settings = [
            path("--cfgFile", &self.client_config),
            mgmtd,
            path("--auth-file", &self.auth_file),
            path("--tls-cert-file", &self.tls_cert),
        ];
        settings.into_iter().flatten().collect()
    }

    fn check(&self, config: &Config) -> Result<(), String> {
        let paths = [Some(&self.program), self.client_config.as_ref(), self.auth_file.as_ref(), self.tls_cert.as_ref()];
        if let Some(path) = paths.into_iter().flatten().find(|path| !path.is_absolute()) {
            return Err(format!("`{}` is not an absolute path", path.display()));
        }
        let (seven, eight) = (self.client_config.is_some(), self.mgmtd.is_some());
        let others = self.auth_file.is_some() || self.tls_cert.is_some();
        let right = match self.generation {
            Generation::Seven => seven && !eight && !others,
            Generation::Eight => eight && !seven,
        };
        if !right {
            return Err("BeeGFS 7 has `client_config`, 8 has `mgmtd`, `auth_file` and `tls_cert`".into());
        }
        let address = self.mgmtd.as_deref().unwrap_or("a");
        if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte))
        {
            return Err("`mgmtd` must be HOST:PORT".into());
        }
        let taken = [&config.peer_user, &config.slurm_user, &config.service_account];
        if taken.contains(&&self.account) || crate::people::SYSTEM_NAMES.contains(&self.account.as_str()) {
            return Err(format!("BeeGFS's `account` cannot be `{}`", self.account));
        }
        Ok(())
    }
}

/// Whether a path names each directory on the way once, and is not `/` itself.
fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && path.parent().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn yes() -> bool {
    true
}

fn most_files() -> usize {
    256
}

fn project_ids() -> (u32, u32) {
    (100_000, 999_999)
}

fn lowest_uid() -> u32 {
    LOWEST_UID
}

fn token_lifetime() -> u64 {
    300
}

fn slurm_bin_dir() -> PathBuf {
    PathBuf::from("/usr/bin")
}

/// Why the launcher does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else could have written it.
    #[error("`{0}` must belong to root and be writable by nobody else")]
    Untrusted(PathBuf),
    /// It is not what it should be.
    #[error("`{path}` is wrong: {text}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        text: String,
    },
    /// The peer does not exist.
    #[error("there is no user `{0}` to serve")]
    NoPeer(Username),
}

impl Config {
    /// Reads and checks the file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        // Opened once, so that what is checked is what is read.
        let mut file = std::fs::File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 || !metadata.is_file() {
            return Err(ConfigError::Untrusted(path.to_owned()));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text).map_err(|text| ConfigError::Wrong { path: path.to_owned(), text })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let roots = config.space_root.iter().map(|root| &root.path);
        let paths = [&config.socket, &config.jwt_key, &config.slurm_bin_dir, &config.audit_log];
        if let Some(path) = paths
            .into_iter()
            .chain(&config.files_program)
            .chain(&config.look_program)
            .chain(roots)
            .find(|path| !path.is_absolute())
        {
            return Err(format!("`{}` is not an absolute path", path.display()));
        }
        if config.min_uid < LOWEST_UID {
            return Err(format!("`min_uid` must be at least {LOWEST_UID}"));
        }
        if !(1..=LONGEST_TOKEN_S).contains(&config.token_lifetime_s) {
            return Err(format!("`token_lifetime_s` must be 1 to {LONGEST_TOKEN_S}"));
        }
        let (first, last) = config.project_ids;
        if first == 0 || first > last {
            return Err("`project_ids` must be the first and the last id, and no id is 0".into());
        }
        if !(1..=MOST_FILES).contains(&config.most_files) {
            return Err(format!("`most_files` must be 1 to {MOST_FILES}"));
        }
        let account = &config.service_account;
        if crate::people::SYSTEM_NAMES.contains(&account.as_str()) || *account == config.slurm_user {
            return Err(format!("`service_account` cannot be `{}`", config.service_account));
        }
        if let Some(root) = config.space_root.iter().find(|root| !is_plain(&root.path)) {
            return Err(format!("`{}` is no plain path of a directory below `/`", root.path.display()));
        }
        if let Some(account) = &config.purge_account {
            let taken = [&config.peer_user, &config.slurm_user, &config.service_account];
            let of_beegfs = config.beegfs.as_ref().is_some_and(|beegfs| beegfs.account == *account);
            if of_beegfs || taken.contains(&account) || crate::people::SYSTEM_NAMES.contains(&account.as_str()) {
                return Err(format!("`purge_account` cannot be `{account}`"));
            }
        }
        let names: BTreeSet<&RootName> = config.space_root.iter().map(|root| &root.name).collect();
        if names.len() < config.space_root.len() {
            return Err("two of `space_root` have one name".into());
        }
        if let Some(beegfs) = &config.beegfs {
            beegfs.check(&config)?;
        }
        EnvFilter::try_new(&config.log.filter).map_err(|error| format!("`log.filter` is not understood: {error}"))?;
        Ok(config)
    }

    /// The one user who may connect.
    pub fn peer(&self) -> Result<User, ConfigError> {
        User::from_name(self.peer_user.as_str())
            .ok()
            .flatten()
            .ok_or_else(|| ConfigError::NoPeer(self.peer_user.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = "socket = \"/run/eirene/launcher.sock\"\npeer_user = \"eirene\"\njwt_key = \"/etc/slurm/jwt_hs256.key\"\n\
                        slurm_user = \"slurm\"\nservice_account = \"eirene-op\"\naudit_log = \"/var/log/eirene/launcher.log\"\n";

    #[test]
    fn what_is_left_out_has_safe_values() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!((config.min_uid, config.token_lifetime_s), (1000, 300));
        assert_eq!(config.slurm_bin_dir, Path::new("/usr/bin"));
        assert_eq!((config.files_program, config.most_files), (None, 256), "nobody's files are opened unasked");
    }

    #[test]
    fn the_demos_configuration_is_a_good_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/demo/launcher.toml");
        Config::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    }

    #[test]
    fn unsafe_values_are_refused() {
        for line in [
            "project_ids = [0, 9]",
            "project_ids = [10, 9]",
            "min_uid = 0",
            "min_uid = 999",
            "token_lifetime_s = 0",
            "token_lifetime_s = 86400",
            "shell = \"/bin/sh\"",
            "files_program = \"eirene-files\"",
            "look_program = \"eirene-look\"",
            "[[space_root]]\nname = \"scratch\"\npath = \"scratch\"",
            "[[space_root]]\nname = \"scratch\"\npath = \"/\"",
            "[[space_root]]\nname = \"scratch\"\npath = \"/srv/../etc\"",
            "[[space_root]]\nname = \"scratch\"\npath = \"/srv\"\nper = \"everybody\"",
            "purge_account = \"root\"",
            "purge_account = \"slurm\"",
            "purge_account = \"eirene\"",
            "purge_account = \"eirene-op\"",
            "[[space_root]]\nname = \"../etc\"\npath = \"/scratch\"",
            "[[space_root]]\nname = \"a\"\npath = \"/a\"\n[[space_root]]\nname = \"a\"\npath = \"/b\"",
            "most_files = 0",
            "most_files = 4097",
            "[log]\nfilter = \"eirene=loud\"",
            "[log]\nformat = \"xml\"",
            "[log]\ncolour = true",
        ] {
            assert!(Config::parse(&format!("{GOOD}{line}\n")).is_err(), "{line}");
        }
        assert!(Config::parse(&GOOD.replace("eirene-op", "root")).is_err());
        assert!(Config::parse(&GOOD.replace("eirene-op", "slurm")).is_err());
        assert!(Config::parse(&GOOD.replace("/run/eirene", "run/eirene")).is_err());
        assert!(Config::parse("").is_err());
    }

    #[test]
    fn each_generation_of_beegfs_has_settings_of_its_own() {
        let with = |lines: &str| Config::parse(&format!("{GOOD}[beegfs]\n{lines}"));
        let seven = "generation = 7\nprogram = \"/opt/ctl\"\naccount = \"bee\"\nclient_config = \"/etc/bee.conf\"\n";
        let eight = "generation = 8\nprogram = \"/opt/beegfs\"\naccount = \"bee\"\nmgmtd = \"mgmt:8010\"\nauth_file = \"/etc/auth\"\n";
        let settings = |lines| with(lines).unwrap().beegfs.unwrap().settings();
        assert_eq!(settings(seven), ["--cfgFile=/etc/bee.conf"]);
        assert_eq!(settings(eight), ["--mgmtd-addr=mgmt:8010", "--auth-file=/etc/auth"]);
        assert!(with(seven).unwrap().beegfs.unwrap().user_namespace);
        for (good, bad) in [
            ("generation = 7", "generation = 6"),
            ("generation = 7", "generation = 8"),
            ("/opt/ctl", "ctl"),
            ("\"bee\"", "\"root\""),
            ("\"bee\"", "\"slurm\""),
            ("\"bee\"", "\"eirene\""),
            ("\"bee\"", "\"eirene-op\""),
            ("client_config = \"/etc/bee.conf\"", ""),
            ("client_config = \"/etc/bee.conf\"", "client_config = \"/etc/bee.conf\"\nmgmtd = \"mgmt\""),
            ("client_config = \"/etc/bee.conf\"", "client_config = \"/etc/bee.conf\"\nas_root = true"),
        ] {
            assert!(with(&seven.replace(good, bad)).is_err(), "{bad}");
        }
        assert!(with(&eight.replace("mgmt:8010", "mgmt 8010")).is_err());
        assert!(with(&eight.replace("mgmt:8010", "")).is_err());
        assert!(with(&eight.replace("/etc/auth", "auth")).is_err());
    }

    #[test]
    fn a_file_that_others_can_write_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("launcher.toml");
        std::fs::write(&path, GOOD).unwrap();
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Config::load(&path), Err(ConfigError::Untrusted(_))), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        if nix::unistd::geteuid().is_root() {
            Config::load(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        }
        assert!(matches!(Config::load(&path), Err(ConfigError::Untrusted(_))), "the file is not root's");
        assert!(matches!(
            Config::load(directory.path()),
            Err(ConfigError::Untrusted(_) | ConfigError::Unreadable { .. })
        ));
    }
}
