//! Paths as requests say them, made into what cannot lead anywhere else than below a space.

use data_encoding::BASE64URL_NOPAD;
use eirene_core::Sentence;
use eirene_files_protocol::{Name, PathError, RelativePath};
use eirene_words::{say, say_with};

use crate::error::{AppError, FieldError};

/// Most bytes of a path.
pub const MOST_BYTES: usize = 4095;
/// Most names in a path. The file process goes deeper by itself.
pub const MOST_DEPTH: usize = 64;

/// A path that somebody sent: as text or, where a name is not UTF-8, as base64url of its bytes. It is parsed only once it is known that the
/// person may use the space, so that nobody else hears what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedPath {
    field: String,
    text: Option<String>,
    raw: Option<String>,
}

impl AskedPath {
    /// What came in `field`, and in the field of the same name with `raw_` before its last part.
    pub fn new(field: impl Into<String>, text: Option<String>, raw: Option<String>) -> Self {
        Self { field: field.into(), text, raw }
    }

    /// The path; nothing said is the space itself.
    ///
    /// # Errors
    /// What is wrong with which field.
    pub fn parse(&self) -> Result<RelativePath, AppError> {
        let (field, bytes) = match (&self.text, &self.raw) {
            (None, None) => return Ok(RelativePath::default()),
            (Some(text), None) => (self.field.clone(), text.as_bytes().to_vec()),
            (None, Some(raw)) => (self.raw_field(), self.decode(raw)?),
            (Some(_), Some(_)) => return Err(wrong(self.raw_field(), say("wrong.both_paths"))),
        };
        let path = RelativePath::parse(&bytes).map_err(|error| wrong(field.clone(), broken_rule(error)))?;
        if path.components().count() > MOST_DEPTH {
            return Err(wrong(field, broken_rule(PathError::TooLong)));
        }
        Ok(path)
    }

    /// The path of something in the space, and not of the space itself.
    ///
    /// # Errors
    /// As [`AskedPath::parse`].
    pub fn parse_inside(&self) -> Result<RelativePath, AppError> {
        let path = self.parse()?;
        if path.is_space() { Err(wrong(self.field.clone(), say("wrong.space_itself"))) } else { Ok(path) }
    }

    fn decode(&self, raw: &str) -> Result<Vec<u8>, AppError> {
        let wrong = |_| wrong(self.raw_field(), broken_rule(PathError::Encoding));
        BASE64URL_NOPAD.decode(raw.as_bytes()).map_err(wrong)
    }

    fn raw_field(&self) -> String {
        match self.field.rsplit_once('.') {
            Some((before, last)) => format!("{before}.raw_{last}"),
            None => format!("raw_{}", self.field),
        }
    }
}

fn wrong(field: String, message: Sentence) -> AppError {
    AppError::Invalid(vec![FieldError::new(field, message)])
}

fn broken_rule(error: PathError) -> Sentence {
    match error {
        PathError::TooLong => {
            let (bytes, names) = (MOST_BYTES.to_string(), MOST_DEPTH.to_string());
            say_with("wrong.space_path_long", &[("bytes", &bytes), ("names", &names)])
        }
        PathError::Encoding => say("wrong.raw_path"),
        PathError::Empty | PathError::Dots | PathError::Absolute | PathError::Slash | PathError::Nul => {
            say("wrong.space_path")
        }
    }
}

/// Bytes of a name or a path as they are shown: the text, with U+FFFD where it is none, and then also the bytes.
pub fn shown(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(BASE64URL_NOPAD.encode(bytes))),
    }
}

/// What a path ends in; none for the space itself.
pub fn last_name(path: &RelativePath) -> Option<Name> {
    path.split_last().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(text: Option<&str>, raw: Option<&str>) -> AskedPath {
        AskedPath::new("items[0].path", text.map(str::to_owned), raw.map(str::to_owned))
    }

    fn field(error: &AppError) -> String {
        match error {
            AppError::Invalid(errors) => errors[0].field.clone(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_path_is_refused_by_its_field() {
        let long = "n".repeat(256);
        let deep = ["d"; MOST_DEPTH + 1].join("/");
        for bad in ["..", "a/../b", "/etc/passwd", "a//b", "a/", "./a", "a\0b", long.as_str(), deep.as_str()] {
            assert_eq!(field(&asked(Some(bad), None).parse().unwrap_err()), "items[0].path", "{bad:?}");
        }
        for bad in ["Li4", "*", "YQ=="] {
            assert_eq!(field(&asked(None, Some(bad)).parse().unwrap_err()), "items[0].raw_path", "{bad:?}");
        }
        assert_eq!(field(&asked(Some("a"), Some("YQ")).parse().unwrap_err()), "items[0].raw_path");
        assert_eq!(field(&asked(None, None).parse_inside().unwrap_err()), "items[0].path");
        assert_eq!(field(&asked(Some(""), None).parse_inside().unwrap_err()), "items[0].path");
        let full = ["d"; MOST_DEPTH].join("/");
        assert_eq!(asked(Some(&full), None).parse().unwrap().as_bytes(), full.as_bytes());
    }

    proptest! {
        #[test]
        fn what_is_shown_of_a_path_asks_for_it_again(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            if let Ok(path) = RelativePath::parse(&bytes) {
                let (text, raw) = shown(path.as_bytes());
                let again = if raw.is_some() { asked(None, raw.as_deref()) } else { asked(Some(&text), None) };
                prop_assert_eq!(again.parse().unwrap(), path);
            }
        }
    }
}
