//! One file on its way into a space: in pieces that the portal takes whole or not at all, from wherever it says the upload is.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use eirene_core::UploadId;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::api::{Api, ApiError, Standing, status};
use crate::arguments::files::CopyFiles;
use crate::output::{self, Meter};
use crate::patience::{Patience, persist, persist_once};
use crate::place::Spot;
use crate::transfers::Transfer;

/// Bytes of a piece: what is in memory at a time, and what is sent again at most.
const PIECE: u64 = 8 * 1024 * 1024;
/// What a piece is cut down to on a line on which larger ones do not come through in the time that the portal may be silent.
const SMALLEST: u64 = 256 * 1024;
/// Times in a row that a piece may be tried without getting further.
const TRIES: u32 = 30;

/// A file of this machine that is to be sent.
pub(crate) struct Source {
    file: File,
    found: Metadata,
    path: PathBuf,
}

impl Source {
    /// Opens it. What was named may be a link; what was found in a directory is no link, and is not followed if it became one.
    ///
    /// # Errors
    /// It cannot be read, or is no file.
    pub(crate) fn open(path: &Path, follow: bool) -> anyhow::Result<Self> {
        let said = || format!("cannot read `{}`", output::name(path.as_os_str().as_bytes()));
        // A pipe without a writer would be waited for.
        let flags = if follow { OFlags::NONBLOCK } else { OFlags::NONBLOCK | OFlags::NOFOLLOW };
        let file =
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).with_context(said)?;
        let found = file.metadata().with_context(said)?;
        ensure!(found.is_file(), "`{}` is no file", output::name(path.as_os_str().as_bytes()));
        Ok(Self { file, found, path: path.canonicalize().with_context(said)? })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.found.len()
    }

    /// The time of its last change, in seconds since 1970.
    pub(crate) fn modified_s(&self) -> i64 {
        self.found.mtime()
    }

    /// Which version of which file it is.
    pub(crate) fn version(&self) -> Version {
        Version::of(&self.found)
    }

    /// SHA-256, as hexadecimal digits.
    fn sum(&self) -> anyhow::Result<String> {
        let (mut sum, mut buffer, mut at) = (Sha256::new(), vec![0; 1024 * 1024], 0);
        loop {
            match self.file.read_at(&mut buffer, at)? {
                0 => return Ok(HEXLOWER.encode(&sum.finalize())),
                read => {
                    sum.update(&buffer[..read]);
                    at += read as u64;
                }
            }
        }
    }
}

/// By what a file is known again, if nobody wrote to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Version {
    pub(crate) fn of(found: &Metadata) -> Self {
        let modified = (found.mtime(), found.mtime_nsec());
        Self { device: found.dev(), inode: found.ino(), bytes: found.len(), modified }
    }
}

/// Whether what lies there is what is here, by its SHA-256, and nobody wrote to it here since it was opened.
///
/// # Errors
/// It is not, or that cannot be found out.
pub(crate) async fn compare(api: &Api, source: &Source, at: &Spot) -> anyhow::Result<()> {
    let there = persist(async || api.sum(at).await).await?;
    let here = source.sum()?;
    ensure!(Version::of(&source.file.metadata()?) == source.version(), Changed);
    ensure!(here == HEXLOWER.encode(&there), "`{at}` is there, but is another one by its SHA-256");
    Ok(())
}

/// Sends one file; where it lies then.
pub(crate) async fn send(
    api: &Api,
    source: &Source,
    to: &Spot,
    wish: &CopyFiles,
    meter: &Meter<'_>,
) -> anyhow::Result<Spot> {
    let transfer = transfer(api, source, to)?;
    if wish.no_resume {
        transfer.forget()?;
    }
    let sending = Sending { api, source, transfer };
    let (id, standing) = sending.begin(to, wish).await?;
    let sent = sending.send(id, standing, meter).await;
    if let Err(error) = &sent
        && is_final(error)
    {
        // Nothing is left of what cannot go on; why it cannot is what is told.
        let _ = api.end_upload(id).await;
        sending.transfer.forget()?;
    }
    let path = sent?;
    sending.transfer.forget()?;
    Ok(to.at(unescaped(&path)))
}

/// Forgets what is remembered of sending it.
pub(crate) fn forget(api: &Api, source: &Source, to: &Spot) -> anyhow::Result<()> {
    transfer(api, source, to)?.forget()
}

/// Where it is remembered: a file that changed, or goes elsewhere, is another transfer.
fn transfer(api: &Api, source: &Source, to: &Spot) -> anyhow::Result<Transfer> {
    let found = &source.found;
    let when = [found.mtime().to_le_bytes(), found.mtime_nsec().to_le_bytes()].concat();
    let size = found.len().to_le_bytes();
    let path = source.path.as_os_str().as_bytes();
    let marks: [&[u8]; 6] = [api.base().as_bytes(), path, to.space.as_str().as_bytes(), &to.path, &size, &when];
    Transfer::of(&marks)
}

/// What is remembered of an upload.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    upload: UploadId,
}

struct Sending<'a> {
    api: &'a Api,
    source: &'a Source,
    transfer: Transfer,
}

impl Sending<'_> {
    /// The upload that was interrupted, or a new one.
    async fn begin(&self, to: &Spot, wish: &CopyFiles) -> anyhow::Result<(UploadId, Standing)> {
        if let Some(Known { upload: id }) = self.transfer.known() {
            match persist(async || self.api.look_at_upload(id).await).await {
                Ok(standing) => return Ok((id, standing)),
                // It is over, or could not get its name: that one is ended, and another begun.
                Err(error) if matches!(status(&error), Some(404 | 409 | 410 | 460)) => {
                    let _ = self.api.end_upload(id).await;
                    self.transfer.forget()?;
                }
                Err(error) => return Err(error),
            }
        }
        let mut metadata = vec![("path", to.path.clone()), ("on_conflict", wish.on_conflict.as_str().into())];
        if let Ok(modified) = self.source.found.modified()
            && let Ok(modified) = jiff::Timestamp::try_from(modified)
        {
            metadata.push(("modified", modified.to_string().into()));
        }
        if wish.parents {
            metadata.push(("parents", "true".into()));
        }
        if wish.checksum {
            metadata.push(("sha256", self.source.sum()?.into()));
        }
        let metadata: Vec<String> =
            metadata.iter().map(|(key, value)| format!("{key} {}", BASE64.encode(value))).collect();
        let (metadata, length) = (metadata.join(","), self.source.bytes());
        let make = async || self.api.make_upload(&to.space, length, &metadata).await;
        let (id, standing) = persist_once(make).await?;
        self.transfer.remember(&Known { upload: id })?;
        Ok((id, standing))
    }

    async fn send(&self, id: UploadId, mut standing: Standing, meter: &Meter<'_>) -> anyhow::Result<String> {
        let (mut patience, mut tries, mut most) = (Patience::new(), 0, PIECE);
        let mut furthest = standing.offset;
        loop {
            if let Some(path) = standing.path {
                meter.to(self.source.bytes());
                return Ok(path);
            }
            meter.to(standing.offset);
            let piece = self.piece(standing.offset, most)?;
            let sum = format!("crc32 {}", BASE64.encode(&crc32fast::hash(&piece).to_be_bytes()));
            let before = standing.offset;
            let next = match self.api.append_to_upload(id, before, piece, &sum).await {
                // Where it is now is asked, whatever was thought of it.
                Err(error) if goes_on(&error) => {
                    tries += 1;
                    if matches!(error.downcast_ref(), Some(ApiError::Unreachable { .. })) {
                        most = (most / 2).max(SMALLEST);
                    }
                    if tries >= TRIES {
                        return Err(error);
                    }
                    patience.pause_after(&error).await;
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
            // What it had before, and lost, is no progress: it could go on like that for ever.
            if standing.offset > furthest {
                furthest = standing.offset;
                (patience, tries) = (Patience::new(), 0);
            }
        }
    }

    /// So many bytes from there on at most, if the file is still the one that was begun with.
    fn piece(&self, offset: u64, most: u64) -> anyhow::Result<Vec<u8>> {
        let (now, found) = (self.source.file.metadata()?, &self.source.found);
        let same = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec());
        let left = found.len().saturating_sub(offset);
        if same(&now) != same(found) || left == 0 {
            return Err(Changed.into());
        }
        let mut piece = vec![0; usize::try_from(left.min(most))?];
        self.source.file.read_exact_at(&mut piece, offset)?;
        Ok(piece)
    }
}

/// The file is not what it was when it was begun with.
#[derive(Debug, thiserror::Error)]
#[error("it changed while it was sent; copy it again")]
struct Changed;

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

/// A path as it stands in a header: bytes that a URL has no letters for are `%XX`.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut path, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let byte = match after {
            [high, low, ..] if *first == b'%' => HEXLOWER_PERMISSIVE.decode(&[*high, *low]).ok(),
            _ => None,
        };
        rest = if byte.is_some() { &after[2..] } else { after };
        path.extend(byte.unwrap_or_else(|| vec![*first]));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_header_is_bytes() {
        for (text, path) in [
            ("a/b", &b"a/b"[..]),
            ("a%20b", b"a b"),
            ("%c3%BC%0D%ff", b"\xc3\xbc\r\xff"),
            ("%", b"%"),
            ("%zz%2", b"%zz%2"),
        ] {
            assert_eq!(unescaped(text), path, "{text}");
        }
    }
}
