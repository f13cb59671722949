//! Places as they are typed: `SPACE:PATH` in a space, anything else on this machine. Paths are bytes, as names are.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use data_encoding::BASE64URL_NOPAD;
use eirene_core::SpaceName;
use serde_json::{Map, Value};

use crate::output;

/// Where something is, or shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// On this machine.
    Local(PathBuf),
    /// In a space.
    Space(Spot),
}

/// A path below a space, without slashes around it; empty for the space itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) space: SpaceName,
    pub(crate) path: Vec<u8>,
    /// Whether it was said to be a directory: by a slash at its end, or by nothing at all.
    pub(crate) is_directory: bool,
}

/// Text that is no place in a space.
#[derive(Debug, thiserror::Error)]
#[error("not a place in a space: `SPACE:PATH`, such as `home:data/`")]
pub(crate) struct NoSpot;

impl From<OsString> for Place {
    fn from(text: OsString) -> Self {
        match Spot::parse(&text) {
            Ok(spot) => Self::Space(spot),
            Err(NoSpot) => Self::Local(text.into()),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => f.write_str(&output::name(path.as_os_str().as_bytes())),
            Self::Space(spot) => spot.fmt(f),
        }
    }
}

impl Place {
    /// Reads whatever the shell hands over.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(Self::from)
    }
}

impl Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space, output::name(&self.path))
    }
}

impl Spot {
    /// The same, for what can only be in a space.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| Self::parse(&text))
    }

    /// What stands before the first colon is a space, unless no space can be called that.
    fn parse(text: &OsStr) -> Result<Self, NoSpot> {
        let colon = text.as_bytes().iter().position(|byte| *byte == b':').ok_or(NoSpot)?;
        let (space, path) = text.as_bytes().split_at(colon);
        let space = std::str::from_utf8(space).ok().and_then(|space| space.parse().ok()).ok_or(NoSpot)?;
        let path = &path[1..];
        let ends = path.len() - path.iter().rev().take_while(|byte| **byte == b'/').count();
        Ok(Self { space, path: path[..ends].to_vec(), is_directory: ends < path.len() || path.is_empty() })
    }

    /// What it ends in; none for the space itself.
    pub(crate) fn last_name(&self) -> Option<&[u8]> {
        self.path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())
    }

    /// Something of this name in it.
    pub(crate) fn below(&self, name: &[u8]) -> Self {
        let path = if self.path.is_empty() { name.to_vec() } else { [&self.path, name].join(&b'/') };
        Self { space: self.space.clone(), path, is_directory: false }
    }

    /// The directory it is in; none for the space itself.
    pub(crate) fn parent(&self) -> Option<Self> {
        self.last_name()?;
        let end = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
        Some(Self { space: self.space.clone(), path: self.path[..end].to_vec(), is_directory: true })
    }

    /// The same place, at another path.
    pub(crate) fn at(&self, path: Vec<u8>) -> Self {
        Self { space: self.space.clone(), path, is_directory: false }
    }

    /// What of this name goes to where this is typed: into it if it is a directory, else under its own name.
    pub(crate) fn taking(&self, name: &[u8]) -> Self {
        if self.is_directory { self.below(name) } else { self.clone() }
    }

    /// As the portal takes it: `path`, or `raw_path` where it is no text.
    pub(crate) fn asked(&self) -> (&'static str, String) {
        match std::str::from_utf8(&self.path) {
            Ok(path) => ("path", path.to_owned()),
            Err(_) => ("raw_path", BASE64URL_NOPAD.encode(&self.path)),
        }
    }

    /// Puts it into the body of a request, under `key` or its raw form.
    pub(crate) fn put(&self, key: &str, into: &mut Map<String, Value>) {
        put_bytes(key, &self.path, into);
    }
}

/// Bytes in JSON as the portal writes them, and reads them: text where they are some, else as base64url.
pub(crate) fn put_bytes(key: &str, bytes: &[u8], into: &mut Map<String, Value>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => into.insert(key.to_owned(), text.into()),
        Err(_) => into.insert(format!("raw_{key}"), BASE64URL_NOPAD.encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn spot(text: &[u8]) -> Option<(String, Vec<u8>, bool)> {
        match Place::from(OsString::from_vec(text.to_vec())) {
            Place::Space(spot) => Some((spot.space.to_string(), spot.path, spot.is_directory)),
            Place::Local(_) => None,
        }
    }

    #[test]
    fn a_place_is_in_a_space_where_a_space_stands_before_the_colon() {
        let is = |space: &str, path: &[u8], directory| Some((space.to_owned(), path.to_vec(), directory));
        assert_eq!(spot(b"home:"), is("home", b"", true));
        assert_eq!(spot(b"home:data/"), is("home", b"data", true));
        assert_eq!(spot(b"home:data"), is("home", b"data", false));
        assert_eq!(spot(b"home:/"), is("home", b"", true));
        assert_eq!(spot(b"physics-2026:data/b:c"), is("physics-2026", b"data/b:c", false));
        assert_eq!(spot(b"home:caf\xe9\n"), is("home", b"caf\xe9\n", false));
        for local in ["a", "./a:b", "/a:b", "../x:y", ":a", "", "Data:x"] {
            assert_eq!(spot(local.as_bytes()), None, "{local}");
        }
    }

    #[test]
    fn a_slash_at_the_end_says_into() {
        let taking = |text: &str| Spot::parse(OsStr::new(text)).unwrap().taking(b"a").path;
        assert_eq!(taking("home:"), b"a");
        assert_eq!(taking("home:d/"), b"d/a");
        assert_eq!(taking("home:d/e"), b"d/e");
        let deep = Spot::parse(OsStr::new("home:d/e")).unwrap();
        assert_eq!(deep.parent().unwrap().path, b"d");
        assert_eq!(deep.parent().unwrap().parent().unwrap().path, b"");
        assert!(deep.parent().unwrap().parent().unwrap().parent().is_none());
    }

    #[test]
    fn what_is_no_text_goes_as_bytes() {
        let raw = Spot::parse(&OsString::from_vec(b"home:\xff".to_vec())).unwrap();
        assert_eq!(raw.asked(), ("raw_path", "_w".to_owned()));
        let mut body = Map::new();
        raw.put("to", &mut body);
        assert_eq!(Value::Object(body), serde_json::json!({"raw_to": "_w"}));
        assert_eq!(raw.to_string(), "home:\u{fffd}");
    }
}
