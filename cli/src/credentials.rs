//! Where the token is kept: `credentials.toml` in the config directory, mode 0600, in a directory of mode 0700.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// What `eirene login` keeps.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Credentials {
    /// Portal address.
    pub(crate) url: String,
    /// User name.
    pub(crate) username: String,
    /// Token's id, to delete it.
    pub(crate) token_id: String,
    /// The token.
    pub(crate) token: String,
}

fn directory() -> anyhow::Result<PathBuf> {
    let directories = directories::ProjectDirs::from("", "", "eirene").context("no home directory: set `HOME`")?;
    Ok(directories.config_dir().to_owned())
}

fn file() -> anyhow::Result<PathBuf> {
    Ok(directory()?.join("credentials.toml"))
}

/// The stored credentials, or none. A file that others may read is refused.
pub(crate) fn load() -> anyhow::Result<Option<Credentials>> {
    load_from(&file()?)
}

fn load_from(path: &Path) -> anyhow::Result<Option<Credentials>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    };
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!(
            "`{0}` can be read by others: run `chmod 600 {0}`, and sign in again if others use this machine",
            path.display()
        );
    }
    toml::from_str(&text).map(Some).with_context(|| format!("`{}` is damaged: sign in again", path.display()))
}

/// Stores credentials, replacing what was there at once.
pub(crate) fn store(credentials: &Credentials) -> anyhow::Result<PathBuf> {
    let directory = directory()?;
    store_in(&directory, credentials)
}

fn store_in(directory: &Path, credentials: &Credentials) -> anyhow::Result<PathBuf> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("cannot make `{}`", directory.display()))?;
    let path = directory.join("credentials.toml");
    let fresh = directory.join(format!(".credentials.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(toml::to_string(credentials)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}

/// Removes the stored credentials.
pub(crate) fn forget() -> anyhow::Result<()> {
    match fs::remove_file(file()?) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_and_a_public_one_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("config/eirene");
        let credentials = Credentials {
            url: "http://eirene.localhost".into(),
            username: "ada".into(),
            token_id: "t".into(),
            token: "secret".into(),
        };
        let path = store_in(&directory, &credentials).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(load_from(&path).unwrap().unwrap().token, "secret");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load_from(&path).is_err());
        assert!(load_from(&directory.join("nothing")).unwrap().is_none());
    }
}
