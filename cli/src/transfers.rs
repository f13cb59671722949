//! What is remembered of a transfer that may be interrupted: which upload it is, or of which version the part is, and nothing that opens a door.
//! One file each, mode 0600, named by what goes where: another file, or the same one after it was changed, is another transfer.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use data_encoding::HEXLOWER;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

/// Where a transfer is remembered.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    file: PathBuf,
}

impl Transfer {
    /// The transfer of which these are the marks.
    pub(crate) fn of(marks: &[&[u8]]) -> anyhow::Result<Self> {
        let directories = directories::ProjectDirs::from("", "", "eirene").context("no home directory: set `HOME`")?;
        let state = directories.state_dir().unwrap_or_else(|| directories.data_local_dir());
        Ok(Self::within(&state.join("transfers"), marks))
    }

    fn within(directory: &Path, marks: &[&[u8]]) -> Self {
        let mut sum = Sha256::new();
        for mark in marks {
            // Each with its length: no two lists of marks are the same bytes.
            sum.update((mark.len() as u64).to_le_bytes());
            sum.update(mark);
        }
        Self { file: directory.join(format!("{}.json", HEXLOWER.encode(&sum.finalize()))) }
    }

    /// What is remembered of it; none where there is nothing, or nothing that makes sense.
    pub(crate) fn known<T: DeserializeOwned>(&self) -> Option<T> {
        let text = fs::read_to_string(&self.file).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Remembers this of it.
    pub(crate) fn remember(&self, known: &impl Serialize) -> anyhow::Result<()> {
        let said = || format!("cannot write `{}`", self.file.display());
        let directory = self.file.parent().context("no directory for what is remembered")?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(said)?;
        let fresh = self.file.with_extension(std::process::id().to_string());
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
        let text = serde_json::to_vec(known)?;
        file.as_mut().map_or(Ok(()), |file| file.write_all(&text)).with_context(said)?;
        file.with_context(said)?;
        fs::rename(&fresh, &self.file).with_context(said)
    }

    /// Forgets it.
    pub(crate) fn forget(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_transfer_is_remembered_in_private_by_all_its_marks() {
        let home = tempfile::tempdir().unwrap();
        let at = |marks: &[&[u8]]| Transfer::within(&home.path().join("transfers"), marks);
        let transfer = at(&[b"portal", b"file"]);
        assert_eq!(transfer.known::<u32>(), None);
        transfer.remember(&7).unwrap();
        assert_eq!(at(&[b"portal", b"file"]).known(), Some(7));
        for other in [&[b"portal".as_slice(), b"files"], &[b"portalf".as_slice(), b"ile"]] {
            assert_eq!(at(other).known::<u32>(), None);
        }
        assert_eq!(fs::metadata(&transfer.file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&transfer.file, "{").unwrap();
        assert_eq!(transfer.known::<u32>(), None, "what makes no sense is nothing");
        transfer.forget().unwrap();
        transfer.forget().unwrap();
        assert!(!transfer.file.exists());
    }
}
