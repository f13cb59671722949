//! A place in a space, as it is typed: `SPACE:PATH`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::str::FromStr;

use eirene_core::SpaceName;

/// `SPACE:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: SpaceName,
    /// Below the space; empty, or ending with `/`, for a directory.
    pub(crate) path: String,
}

/// Text that is no place.
#[derive(Debug, thiserror::Error)]
#[error("not a place in a space: `SPACE:PATH`, such as `home:data/`")]
pub(crate) struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (space, path) = text.split_once(':').ok_or(NoPlace)?;
        Ok(Self { space: space.parse().map_err(|_| NoPlace)?, path: path.to_owned() })
    }
}

impl Place {
    /// Whether it is said to be a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.path.is_empty() || self.path.ends_with('/')
    }

    /// Where a file of this name goes: bytes, as names are.
    pub(crate) fn file(&self, name: &OsStr) -> Vec<u8> {
        let mut path = self.path.clone().into_bytes();
        if self.is_directory() {
            path.extend_from_slice(name.as_bytes());
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_space_and_a_path() {
        let file = |text: &str| text.parse::<Place>().map(|place| place.file(OsStr::new("a.bin"))).ok();
        assert_eq!(file("home:"), Some(b"a.bin".to_vec()));
        assert_eq!(file("home:data/"), Some(b"data/a.bin".to_vec()));
        assert_eq!(file("physics-2026:data/b:c"), Some(b"data/b:c".to_vec()));
        for local in ["a", "./a:b", "/a:b", "../x:y", ":a", ""] {
            assert_eq!(file(local), None, "{local}");
        }
    }
}
