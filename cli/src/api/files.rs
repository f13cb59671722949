//! What is in spaces, over HTTP: entries, pages of directories, bytes, and work that outlives its request.

use anyhow::Context as _;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use eirene_core::OperationId;
use eirene_core::file_work::OperationState;
use jiff::Timestamp;
use reqwest::{Method, Response};
use serde::Deserialize;
use serde_json::Value;

use super::{Api, QueryPair as _};
use crate::place::Spot;

/// Entries of a page: as many as the portal gives.
const PAGE: &str = "1000";

/// What something in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Directory,
    File,
    Link,
    Mount,
    /// A pipe, a socket, a device; or a kind that this program does not know.
    #[serde(other)]
    Other,
}

/// Something in a space, as the portal says it. Nothing of it is believed: names are other people's.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Entry {
    path: String,
    raw_path: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) modified_at: Option<Timestamp>,
    pub(crate) mode: Option<String>,
    pub(crate) uid: Option<u32>,
    /// Its owner's name, where the portal knows it.
    pub(crate) owner: Option<String>,
    link: Option<Link>,
}

#[derive(Debug, Clone, Deserialize)]
struct Link {
    leads_to: Option<Kind>,
}

impl Entry {
    /// Its path below the space, in bytes.
    pub(crate) fn path(&self) -> anyhow::Result<Vec<u8>> {
        bytes_of(&self.path, self.raw_path.as_deref())
    }

    /// What it is; of a link, what it leads to in the space.
    pub(crate) fn kind_behind(&self) -> Kind {
        self.link.as_ref().and_then(|link| link.leads_to).unwrap_or(self.kind)
    }

    /// Whether everything that is known of it says that it is this.
    pub(crate) fn is_same_file(&self, bytes: u64, modified_s: i64) -> bool {
        self.kind == Kind::File
            && self.size_bytes == Some(bytes)
            && self.modified_at.is_some_and(|at| at.as_second() == modified_s)
    }

    /// Whether it is this file, and was not written to since.
    pub(crate) fn is_still(&self, before: &Self) -> bool {
        let of = |entry: &Self| (entry.kind, entry.size_bytes, entry.modified_at);
        self.kind == Kind::File && of(self) == of(before)
    }
}

/// A path as the portal writes it.
pub(crate) fn bytes_of(text: &str, raw: Option<&str>) -> anyhow::Result<Vec<u8>> {
    match raw {
        Some(raw) => BASE64URL_NOPAD.decode(raw.as_bytes()).context("the portal's answer has a name that is none"),
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// A page of a directory.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    pub(crate) next: Option<String>,
}

/// What of a file is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// All of it.
    Whole,
    /// From this byte on if it still is this version, else all of it.
    From(u64, &'a str),
}

/// What an entry says where its checksum was asked for.
#[derive(Deserialize)]
struct Summed {
    sha256: String,
}

/// Work that outlives its request.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Operation {
    pub(crate) id: OperationId,
    pub(crate) state: OperationState,
    /// What was asked for.
    #[serde(default)]
    pub(crate) request: Value,
    #[serde(default)]
    pub(crate) progress: OperationProgress,
    pub(crate) problem: Option<Trouble>,
}

/// How far it is, and once it is over what it left alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OperationProgress {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: Vec<Refusal>,
    pub(crate) skipped_in_all: u64,
    /// Of a move: where each lies now.
    pub(crate) items: Vec<Value>,
}

/// Why something was not done.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) code: String,
    pub(crate) text: String,
}

/// What was not done, and why.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Refusal {
    path: String,
    #[serde(default)]
    raw_path: Option<String>,
    pub(crate) code: String,
    pub(crate) text: String,
}

impl Refusal {
    /// With which path.
    pub(crate) fn path(&self) -> anyhow::Result<Vec<u8>> {
        bytes_of(&self.path, self.raw_path.as_deref())
    }
}

impl Api {
    /// One entry, closely.
    pub(crate) async fn entry(&self, of: &Spot) -> anyhow::Result<Value> {
        let (key, path) = of.asked();
        let request = self.request(Method::GET, &format!("spaces/{}/files/entry", of.space))?;
        self.json(request.query_pair(key, &path)?).await
    }

    /// A page of a directory, by name.
    pub(crate) async fn page_of(&self, directory: &Spot, hidden: bool, cursor: Option<&str>) -> anyhow::Result<Page> {
        let (key, path) = directory.asked();
        let request = self.request(Method::GET, &format!("spaces/{}/files", directory.space))?;
        let mut request = request.query_pair(key, &path)?.query_pair("limit", PAGE)?;
        request = request.query_pair("hidden", if hidden { "true" } else { "false" })?;
        if let Some(cursor) = cursor {
            request = request.query_pair("cursor", cursor)?;
        }
        Ok(serde_json::from_value(self.json(request).await?)?)
    }

    /// The bytes of a file.
    pub(crate) async fn content(&self, of: &Spot, wanted: Wanted<'_>) -> anyhow::Result<Response> {
        let (key, path) = of.asked();
        let request = self.request(Method::GET, &format!("spaces/{}/files/content", of.space))?;
        let request = request.query_pair(key, &path)?;
        let request = match wanted {
            Wanted::Whole => request,
            Wanted::From(byte, tag) => request.header("range", format!("bytes={byte}-")).header("if-range", tag),
        };
        self.send(request).await
    }

    /// SHA-256 of a file, as the portal reckons it where it lies; signs of life come while it does.
    pub(crate) async fn sum(&self, of: &Spot) -> anyhow::Result<[u8; 32]> {
        let (key, path) = of.asked();
        let request = self.request(Method::GET, &format!("spaces/{}/files/entry", of.space))?;
        let response = self.send(request.query_pair(key, &path)?.query_pair("checksum", "sha256")?).await?;
        let text = response.text().await.map_err(|error| self.unreachable(error))?;
        if text.trim().is_empty() {
            // It ended with its signs of life.
            return Err(self.cut_short().into());
        }
        let summed = serde_json::from_str::<Summed>(&text).ok();
        let sum = summed.and_then(|summed| HEXLOWER.decode(summed.sha256.as_bytes()).ok()?.try_into().ok());
        sum.context("the portal's answer has no checksum")
    }

    /// Whether a file is still of this version; if not, the answer is a refusal.
    pub(crate) async fn is_still(&self, of: &Spot, tag: &str) -> anyhow::Result<()> {
        let (key, path) = of.asked();
        let request = self.request(Method::HEAD, &format!("spaces/{}/files/content", of.space))?;
        self.send(request.query_pair(key, &path)?.header("if-match", tag)).await.map(drop)
    }

    /// How an operation stands.
    pub(crate) async fn operation(&self, id: OperationId) -> anyhow::Result<Operation> {
        Ok(serde_json::from_value(self.get(&format!("operations/{id}")).await?)?)
    }
}
