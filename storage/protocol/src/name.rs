//! Names of files are bytes, and hostile: parsed once, here, into what cannot lead anywhere.
//!
//! In JSON they are `{"t": "text"}`, or `{"b": "base64url"}` where they are not UTF-8, so every name comes back byte for byte.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

/// Most bytes of a component (`NAME_MAX`).
const MOST_NAME: usize = 255;
/// Most bytes of a path (`PATH_MAX` without its end).
const MOST_PATH: usize = 4095;

/// Why bytes are no name or no path below a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A name has at least one byte.
    #[error("a component is empty")]
    Empty,
    /// `.` or `..`.
    #[error("`.` and `..` are no components")]
    Dots,
    /// Begins with a slash.
    #[error("a path is relative to its space")]
    Absolute,
    /// A slash in a name.
    #[error("a name has no slash")]
    Slash,
    /// A byte that ends a C string.
    #[error("a name has no NUL")]
    Nul,
    /// Longer than a file system takes.
    #[error("a component has at most {MOST_NAME} bytes, a path {MOST_PATH}")]
    TooLong,
    /// Not base64url.
    #[error("the bytes of a name are not base64url")]
    Encoding,
}

/// How bytes are written in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Written {
    #[serde(rename = "t")]
    Text(String),
    #[serde(rename = "b")]
    Bytes(String),
}

impl Written {
    fn bytes(self) -> Result<Vec<u8>, PathError> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Bytes(text) => BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| PathError::Encoding),
        }
    }
}

impl From<Vec<u8>> for Written {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(BASE64URL_NOPAD.encode(error.as_bytes())),
        }
    }
}

/// Bytes that somebody wrote, as they are: the text of a link, an absolute root. Whoever shows them escapes them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct HostileText(pub Vec<u8>);

/// One component of a path: no slash, no NUL, not `.` or `..`, 1 to 255 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Name(Vec<u8>);

/// A path below a space: components with single slashes between them. Empty, it is the space itself.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct RelativePath(Vec<u8>);

fn check_component(bytes: &[u8]) -> Result<(), PathError> {
    match bytes {
        b"" => Err(PathError::Empty),
        b"." | b".." => Err(PathError::Dots),
        _ if bytes.contains(&0) => Err(PathError::Nul),
        _ if bytes.len() > MOST_NAME => Err(PathError::TooLong),
        _ => Ok(()),
    }
}

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    /// The rule it breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        check_component(bytes)?;
        if bytes.contains(&b'/') { Err(PathError::Slash) } else { Ok(Self(bytes.to_vec())) }
    }

    /// A name that is one by how it is made.
    pub(crate) fn known(bytes: Vec<u8>) -> Self {
        debug_assert!(Self::parse(&bytes).is_ok());
        Self(bytes)
    }

    /// The name as it is on disk.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl RelativePath {
    /// Parses a path. Nothing is normalised: what is not exactly one way to write a path below the space is refused.
    ///
    /// # Errors
    /// The rule it breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.len() > MOST_PATH {
            return Err(PathError::TooLong);
        }
        bytes.split(|byte| *byte == b'/').try_for_each(check_component)?;
        Ok(Self(bytes.to_vec()))
    }

    /// The path as bytes, without a slash at either end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the space itself.
    pub fn is_space(&self) -> bool {
        self.0.is_empty()
    }

    /// The components from the space down.
    pub fn components(&self) -> impl Iterator<Item = Name> {
        self.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(|part| Name(part.to_vec()))
    }

    /// The directory and the last component; none for the space itself.
    pub fn split_last(&self) -> Option<(Self, Name)> {
        if self.is_space() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (Self(self.0[..slash].to_vec()), Name(self.0[slash + 1..].to_vec())),
            None => (Self::default(), Name(self.0.clone())),
        })
    }

    /// What lies in this directory under `name`.
    ///
    /// # Errors
    /// [`PathError::TooLong`].
    pub fn join(&self, name: &Name) -> Result<Self, PathError> {
        if self.is_space() {
            return Ok(Self(name.0.clone()));
        }
        let joined = [self.as_bytes(), b"/", name.as_bytes()].concat();
        if joined.len() > MOST_PATH { Err(PathError::TooLong) } else { Ok(Self(joined)) }
    }

    /// Whether the path leads into one of the reserved directories, which lie directly below the space.
    pub fn is_reserved(&self, reserved: &[Name]) -> bool {
        self.components().next().is_some_and(|first| reserved.contains(&first))
    }
}

macro_rules! written {
    ($name:ident, $parse:expr) => {
        impl TryFrom<Written> for $name {
            type Error = PathError;

            fn try_from(written: Written) -> Result<Self, PathError> {
                let bytes = written.bytes()?;
                $parse(bytes)
            }
        }

        impl From<$name> for Written {
            fn from(name: $name) -> Self {
                name.0.into()
            }
        }

        impl fmt::Debug for $name {
            /// Escaped: logs and test output are read on terminals.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }
    };
}

written!(HostileText, |bytes| Ok(HostileText(bytes)));
written!(Name, |bytes: Vec<u8>| Name::parse(&bytes));
written!(RelativePath, |bytes: Vec<u8>| RelativePath::parse(&bytes));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_written_in_exactly_one_way() {
        for good in ["", "a", "a/b", "...", "..a/b..", ".hidden", " ", "a b", "\u{202e}x", "a\nb", "a\\..\\b"] {
            assert_eq!(RelativePath::parse(good.as_bytes()).unwrap().as_bytes(), good.as_bytes());
        }
        let bad: [(&[u8], PathError); 12] = [
            (b"/", PathError::Absolute),
            (b"/etc/passwd", PathError::Absolute),
            (b"..", PathError::Dots),
            (b"a/../b", PathError::Dots),
            (b"a/..", PathError::Dots),
            (b"../a", PathError::Dots),
            (b".", PathError::Dots),
            (b"a/./b", PathError::Dots),
            (b"a//b", PathError::Empty),
            (b"a/", PathError::Empty),
            (b"a\0b", PathError::Nul),
            (b"a/\0", PathError::Nul),
        ];
        for (path, error) in bad {
            assert_eq!(RelativePath::parse(path), Err(error), "{}", path.escape_ascii());
        }
        assert_eq!(Name::parse(b"a/b"), Err(PathError::Slash));
        assert_eq!(Name::parse(b""), Err(PathError::Empty));
    }

    #[test]
    fn a_component_has_255_bytes_and_a_path_4095() {
        let (name, longer) = (vec![b'n'; 255], vec![b'n'; 256]);
        assert!(Name::parse(&name).is_ok());
        assert_eq!(Name::parse(&longer), Err(PathError::TooLong));
        assert_eq!(RelativePath::parse(&[b"a/", longer.as_slice()].concat()), Err(PathError::TooLong));
        let path = RelativePath::parse(&[name.as_slice(); 15].join(&b'/')).unwrap();
        assert!(path.join(&Name(vec![b'n'; 255])).is_ok());
        let full = RelativePath::parse(&[name.as_slice(); 16].join(&b'/')).unwrap();
        assert_eq!(full.as_bytes().len(), MOST_PATH);
        assert_eq!(full.join(&Name(b"n".to_vec())), Err(PathError::TooLong));
        assert_eq!(RelativePath::parse(&[full.as_bytes(), b"/n"].concat()), Err(PathError::TooLong));
    }

    #[test]
    fn reserved_is_what_lies_in_the_first_component() {
        let reserved = [Name::parse(b".eirene").unwrap()];
        for (path, is) in
            [(".eirene", true), (".eirene/sessions/1", true), (".eirene2", false), ("a/.eirene", false), ("", false)]
        {
            assert_eq!(RelativePath::parse(path.as_bytes()).unwrap().is_reserved(&reserved), is, "{path}");
        }
    }

    #[test]
    fn what_is_not_utf_8_comes_back_byte_for_byte() {
        let path = RelativePath::parse(b"caf\xe9/\xff\xfe").unwrap();
        let written = serde_json::to_string(&path).unwrap();
        assert_eq!(written, r#"{"b":"Y2Fm6S___g"}"#);
        assert_eq!(serde_json::from_str::<RelativePath>(&written).unwrap(), path);
        for bad in [
            r#"{"t":"../a"}"#,
            r#"{"b":"Li4"}"#,
            r#"{"b":"*"}"#,
            r#""a""#,
            r#"{"t":"a","b":"YQ"}"#,
            r#"{"t":"a\u0000"}"#,
        ] {
            assert!(serde_json::from_str::<RelativePath>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn no_relative_path_parses_to_one_that_leaves(
            parts in prop::collection::vec(prop_oneof![Just("..".to_owned()), Just(String::new()), Just(".".to_owned()), "[./a\\x00é]{0,4}"], 0..6)
        ) {
            if let Ok(path) = RelativePath::parse(parts.join("/").as_bytes()) {
                // Nothing that the kernel would treat otherwise than as a plain name.
                let plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
                prop_assert!(path.is_space() || path.as_bytes().split(|byte| *byte == b'/').all(plain));
                let again = path.components().try_fold(RelativePath::default(), |path, name| path.join(&name));
                prop_assert_eq!(again.unwrap(), path);
            }
        }

        #[test]
        fn any_name_survives_the_way_there_and_back(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = HostileText(bytes.clone());
            prop_assert_eq!(serde_json::from_slice::<HostileText>(&serde_json::to_vec(&text).unwrap()).unwrap(), text);
            if let Ok(name) = Name::parse(&bytes) {
                prop_assert_eq!(serde_json::from_slice::<Name>(&serde_json::to_vec(&name).unwrap()).unwrap(), name);
            }
        }
    }
}
