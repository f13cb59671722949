//! One file on its way into a space: in pieces that the portal takes whole or not at all, from wherever it says the upload is.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use data_encoding::{BASE64, HEXLOWER};
use eirene_core::{SpaceName, UploadId};
use indicatif::ProgressBar;
use sha2::{Digest as _, Sha256};

use crate::api::{Api, ApiError, Standing};
use crate::arguments::CopyFiles;
use crate::patience::Patience;
use crate::transfers::Transfer;

/// Bytes of a piece: what is in memory at a time, and what is sent again at most.
const PIECE: u64 = 8 * 1024 * 1024;
/// Times in a row that a piece may be tried without getting further.
const TRIES: u32 = 30;

/// Sends one file to `path` in `space`; where it lies then.
pub(crate) async fn send(
    api: &Api,
    file: &Path,
    space: &SpaceName,
    path: &[u8],
    wish: &CopyFiles,
    bar: &ProgressBar,
) -> anyhow::Result<String> {
    let shown = || format!("cannot read `{}`", file.display());
    let source = File::open(file).with_context(shown)?;
    let found = source.metadata().with_context(shown)?;
    ensure!(found.is_file(), "`{}` is no file", file.display());
    let whole = file.canonicalize().with_context(shown)?;
    let when = [found.mtime().to_le_bytes(), found.mtime_nsec().to_le_bytes()].concat();
    let size = found.len().to_le_bytes();
    let marks: [&[u8]; 6] =
        [api.base().as_bytes(), whole.as_os_str().as_bytes(), space.as_str().as_bytes(), path, &size, &when];
    let transfer = Transfer::of(&marks)?;
    if wish.no_resume {
        transfer.forget()?;
    }
    let sending = Sending { api, source, found, transfer };
    let (id, standing) = sending.begin(space, path, wish, file).await?;
    let sent = sending.send(id, standing, bar).await;
    if let Err(error) = &sent
        && is_final(error)
    {
        // Nothing is left of what cannot go on; why it cannot is what is told.
        let _ = api.end_upload(id).await;
        sending.transfer.forget()?;
    }
    let path = sent.with_context(|| format!("`{}` was not copied", file.display()))?;
    sending.transfer.forget()?;
    Ok(path)
}

struct Sending<'a> {
    api: &'a Api,
    source: File,
    found: Metadata,
    transfer: Transfer,
}

impl Sending<'_> {
    /// The upload that was interrupted, or a new one.
    async fn begin(
        &self,
        space: &SpaceName,
        path: &[u8],
        wish: &CopyFiles,
        file: &Path,
    ) -> anyhow::Result<(UploadId, Standing)> {
        if let Some(id) = self.transfer.upload() {
            match self.api.look_at_upload(id).await {
                Ok(standing) => return Ok((id, standing)),
                // It is over, or could not get its name: that one is ended, and another begun.
                Err(error) if matches!(status(&error), Some(404 | 409 | 410 | 460)) => {
                    let _ = self.api.end_upload(id).await;
                    self.transfer.forget()?;
                }
                Err(error) => return Err(error),
            }
        }
        let mut metadata = vec![("path", path.to_vec()), ("on_conflict", wish.on_conflict.as_str().into())];
        if let Ok(modified) = self.found.modified()
            && let Ok(modified) = jiff::Timestamp::try_from(modified)
        {
            metadata.push(("modified", modified.to_string().into()));
        }
        if wish.parents {
            metadata.push(("parents", "true".into()));
        }
        if wish.checksum {
            metadata.push(("sha256", sum_of(file)?.into()));
        }
        let metadata: Vec<String> =
            metadata.iter().map(|(key, value)| format!("{key} {}", BASE64.encode(value))).collect();
        let (id, standing) = self.api.make_upload(space, self.found.len(), &metadata.join(",")).await?;
        self.transfer.remember(id)?;
        Ok((id, standing))
    }

    async fn send(&self, id: UploadId, mut standing: Standing, bar: &ProgressBar) -> anyhow::Result<String> {
        let (mut patience, mut tries) = (Patience::new(), 0);
        loop {
            if let Some(path) = standing.path {
                return Ok(path);
            }
            bar.set_position(standing.offset);
            let piece = self.piece(standing.offset)?;
            let sum = format!("sha256 {}", BASE64.encode(&Sha256::digest(&piece)));
            let before = standing.offset;
            let next = match self.api.append_to_upload(id, before, piece, &sum).await {
                // Where it is now is asked, whatever was thought of it.
                Err(error) if goes_on(&error) => {
                    tries += 1;
                    if tries >= TRIES {
                        return Err(error);
                    }
                    patience.pause().await;
                    // An answer to this one has no words of its own.
                    self.api.look_at_upload(id).await.map_err(|looked| looked.context(error.to_string()))
                }
                answer => answer,
            };
            standing = match next {
                Ok(next) => next,
                Err(error) if goes_on(&error) => Standing { offset: before, path: None },
                Err(error) => return Err(error),
            };
            if standing.offset > before {
                (patience, tries) = (Patience::new(), 0);
            }
        }
    }

    /// The bytes from there on, if the file is still the one that was begun with.
    fn piece(&self, offset: u64) -> anyhow::Result<Vec<u8>> {
        let now = self.source.metadata()?;
        let same = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec());
        let left = self.found.len().saturating_sub(offset);
        if same(&now) != same(&self.found) || left == 0 {
            return Err(Changed.into());
        }
        let mut piece = vec![0; usize::try_from(left.min(PIECE))?];
        self.source.read_exact_at(&mut piece, offset)?;
        Ok(piece)
    }
}

/// The file is not what it was when it was begun with.
#[derive(Debug, thiserror::Error)]
#[error("it changed while it was sent; copy it again")]
struct Changed;

/// The portal's status, where it answered.
fn status(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref()? {
        ApiError::Refused(problem) | ApiError::Unavailable(problem) => Some(problem.status),
        ApiError::Unreachable { .. } => None,
    }
}

/// Whether the same bytes may well be taken a little later.
fn goes_on(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        // The storage is full: somebody has to make room first, and the same command goes on then.
        Some(ApiError::Unavailable(problem)) => problem.status != 507,
        Some(ApiError::Unreachable { .. }) => true,
        Some(ApiError::Refused(problem)) => {
            matches!(problem.code.as_str(), "offset_differs" | "checksum_differs" | "locked" | "cut_off")
                || problem.status == 429
        }
        None => false,
    }
}

/// Whether the upload is good for nothing any more.
fn is_final(error: &anyhow::Error) -> bool {
    let refused =
        matches!(error.downcast_ref(), Some(ApiError::Refused(problem)) if !matches!(problem.status, 401 | 403));
    error.is::<Changed>() || refused && !goes_on(error)
}

/// SHA-256 of a file, as hexadecimal digits.
fn sum_of(file: &Path) -> anyhow::Result<String> {
    let mut source = File::open(file)?;
    let (mut sum, mut buffer) = (Sha256::new(), vec![0; 1024 * 1024]);
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(HEXLOWER.encode(&sum.finalize())),
            read => sum.update(&buffer[..read]),
        }
    }
}
