//! One file on its way out of a space: into a part beside its name, on from what is there of it if the file still is the same, and under its name
//! when it is whole.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use eirene_core::file_work::OnConflict;
use jiff::Timestamp;
use reqwest::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::api::files::{Entry, Wanted};
use crate::api::{Api, ApiError, may_pass, status};
use crate::arguments::files::CopyFiles;
use crate::local::{Directory, Exists, Filling, Name, Part};
use crate::output::{self, Meter};
use crate::patience::{Patience, persist};
use crate::place::Spot;
use crate::transfers::Transfer;

/// Times in a row that it may break off without getting further.
const TRIES: u32 = 30;
/// How long what came waits for more to come, with which it is written faster.
const MOST_HELD: Duration = Duration::from_secs(1);
/// What is larger is looked at once more when it has come: it may have been written to meanwhile.
const LOOKED_AGAIN: u64 = 1024 * 1024;

/// The file is not what it was when it was begun with.
#[derive(Debug, thiserror::Error)]
#[error("it changed while it was read; copy it again")]
struct Changed;

/// What came is not what was sent.
#[derive(Debug, thiserror::Error)]
#[error("what came is not what lies there, by its SHA-256; copy it again")]
struct Differs;

/// What the part is a part of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    etag: String,
    bytes: u64,
    modified: Option<Timestamp>,
}

/// What came.
pub(crate) struct Fetched {
    pub(crate) bytes: u64,
    /// Where it lies.
    pub(crate) path: PathBuf,
}

/// Fetches one file into a directory, where it gets `name`.
///
/// # Errors
/// The name is taken, the portal refuses or is away, or it cannot be written. What is there of it stays if the same command can go on with it.
pub(crate) async fn fetch(
    api: &Api,
    from: &Spot,
    entry: &Entry,
    into: &Directory,
    name: &Name,
    wish: &CopyFiles,
    meter: &Meter<'_>,
) -> anyhow::Result<Fetched> {
    let path = into.path_of(name);
    if wish.on_conflict == OnConflict::Refuse && into.look(name)?.is_some() {
        return Err(Exists(output::name(path.as_os_str().as_bytes())).into());
    }
    let marks: [&[u8]; 5] =
        [b"download", api.base().as_bytes(), from.space.as_str().as_bytes(), &from.path, path.as_os_str().as_bytes()];
    let transfer = Transfer::of(&marks)?;
    if wish.no_resume {
        transfer.forget()?;
    }
    // Letters of the owner, of the group and of others; the umask decides what is left of them here.
    let executable = entry.mode.as_ref().is_some_and(|mode| mode.as_bytes().get(2) == Some(&b'x'));
    let part = into.part(name, executable)?;
    let fetching = Fetching { api, from, entry, wish, meter, transfer: &transfer };
    match fetching.whole(&part).await {
        Ok(known) => {
            let finished = part.finish(known.modified, wish.on_conflict)?;
            transfer.forget()?;
            Ok(Fetched { bytes: known.bytes, path: finished })
        }
        Err(error) => {
            if is_final(&error) || part.len()? == 0 {
                part.remove()?;
                transfer.forget()?;
            }
            Err(error)
        }
    }
}

/// Whether what lies here under this name, by all that is known of it the same, is what lies there.
///
/// # Errors
/// It is not, or that cannot be found out.
pub(crate) async fn compare(api: &Api, from: &Spot, into: &Directory, name: &Name) -> anyhow::Result<()> {
    let there = persist(async || api.sum(from).await).await?;
    ensure!(
        into.sum(name)? == there,
        "a file of its size and time is there already, but is another one by its SHA-256"
    );
    Ok(())
}

struct Fetching<'a> {
    api: &'a Api,
    from: &'a Spot,
    entry: &'a Entry,
    wish: &'a CopyFiles,
    meter: &'a Meter<'a>,
    transfer: &'a Transfer,
}

impl Fetching<'_> {
    async fn whole(&self, part: &Part<'_>) -> anyhow::Result<Known> {
        // What is longer than the whole is no part of it.
        let length = part.len()?;
        let mut known = self.transfer.known::<Known>().filter(|known| length <= known.bytes);
        if known.is_none() {
            part.cut(0)?;
        }
        let (mut patience, mut tries) = (Patience::new(), 0);
        let known = loop {
            let before = (known.clone(), part.len()?);
            match self.more(part, &mut known).await {
                Ok(known) => break known,
                Err(error) if may_pass(&error) => {
                    // Another version from its beginning on is no progress: it could go on like that for ever.
                    if known == before.0 && part.len()? > before.1 {
                        (patience, tries) = (Patience::new(), 0);
                    }
                    tries += 1;
                    if tries >= TRIES {
                        return Err(error);
                    }
                    patience.pause_after(&error).await;
                }
                Err(error) => return Err(error),
            }
        };
        let gone = |error: anyhow::Error| if status(&error) == Some(412) { Changed.into() } else { error };
        let there =
            if self.wish.checksum { Some(persist(async || self.api.sum(self.from).await).await?) } else { None };
        // Whether the sum, too, is that of this version.
        if there.is_some() || known.bytes > LOOKED_AGAIN {
            persist(async || self.api.is_still(self.from, &known.etag).await).await.map_err(gone)?;
        }
        if let Some(there) = there {
            ensure!(part.sum()? == there, Differs);
        }
        Ok(known)
    }

    /// What is still to come, as far as the answer goes.
    async fn more(&self, part: &Part<'_>, known: &mut Option<Known>) -> anyhow::Result<Known> {
        let have = part.len()?;
        // The last byte again where all is there: what the answer says of it tells whether the file is the same.
        let from = known.as_ref().map_or(0, |known| have.min(known.bytes.saturating_sub(1)));
        let wanted = match known {
            Some(known) if from > 0 => Wanted::From(from, &known.etag),
            _ => Wanted::Whole,
        };
        let response = self.api.content(self.from, wanted).await?;
        let (of, at) = match (response.status(), &*known) {
            (StatusCode::PARTIAL_CONTENT, Some(known)) => {
                let range = format!("bytes {from}-{}/{}", known.bytes.saturating_sub(1), known.bytes);
                ensure!(
                    header(&response, "content-range") == Some(range.as_str()),
                    "the portal sent another part than was asked for"
                );
                (known.clone(), from)
            }
            (StatusCode::OK, _) => {
                let fresh = self.begin(&response)?;
                part.cut(0)?;
                self.transfer.remember(&fresh)?;
                *known = Some(fresh.clone());
                (fresh, 0)
            }
            _ => bail!("the portal's answer was not understood"),
        };
        part.cut(at)?;
        self.meter.to(at);
        let (mut response, mut filling) = (response, Filling::new(part, at));
        let came = loop {
            match tokio::time::timeout(MOST_HELD, response.chunk()).await {
                Ok(Ok(Some(bytes))) => filling.add(&bytes)?,
                Ok(other) => break other,
                Err(_) => filling.write()?,
            }
            self.meter.to(filling.end());
        };
        // However it ended, what came is there.
        filling.write()?;
        came.map_err(|error| self.api.unreachable(error))?;
        if filling.end() < of.bytes {
            return Err(self.api.cut_short().into());
        }
        ensure!(filling.end() == of.bytes, "the portal sent more than it said");
        Ok(of)
    }

    fn begin(&self, response: &Response) -> anyhow::Result<Known> {
        let etag = header(response, "etag").context("the portal did not say which version it sends")?.to_owned();
        let bytes = response.content_length().context("the portal did not say how much it sends")?;
        let parser = jiff::fmt::rfc2822::DateTimeParser::new();
        let modified = header(response, "last-modified").and_then(|text| parser.parse_timestamp(text).ok());
        // The listing knows it closer; if it is of the same second, it is of the same version.
        let closer = self.entry.modified_at.filter(|at| modified.is_some_and(|m| m.as_second() == at.as_second()));
        Ok(Known { etag, bytes, modified: closer.or(modified) })
    }
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Whether what is there of it is good for nothing any more.
fn is_final(error: &anyhow::Error) -> bool {
    let refused = matches!(error.downcast_ref(), Some(ApiError::Refused(p)) if !matches!(p.status, 401 | 403 | 429));
    error.is::<Changed>() || error.is::<Differs>() || refused
}
