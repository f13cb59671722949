//! Names are parsed once, at the edge; whoever holds one of these types holds a good name.
//!
//! All are ASCII without white space, quotes, slashes or leading dashes, so none can change the meaning of an argument vector,
//! a path or a host name. [`SessionName`] alone is free text, and so is hostile text for whoever shows it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is no name of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub &'static str);

fn word(text: &str, longest: usize, extra: &[u8]) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= longest
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || extra.contains(b))
}

fn lower_word(text: &str, longest: usize, extra: &[u8]) -> bool {
    word(text, longest, extra) && !text.bytes().any(|b| b.is_ascii_uppercase())
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $check:expr, $rule:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                let good: fn(&str) -> bool = $check;
                if good(text) { Ok(Self(text.to_owned())) } else { Err(NameError($rule)) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )*};
}

names! {
    /// A person's POSIX log-in name; also the name in the portal.
    Username, |t| lower_word(t, 32, b"-_."), "1 to 32 of a–z, 0–9, `-`, `_` and `.`, beginning with a letter or digit";
    /// A project; it maps to a SLURM account.
    ProjectName, |t| lower_word(t, 64, b"-_."), "1 to 64 of a–z, 0–9, `-`, `_` and `.`, beginning with a letter or digit";
    /// A SLURM account.
    AccountName, |t| word(t, 64, b"-_."), "1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
    /// A SLURM quality of service.
    QosName, |t| word(t, 64, b"-_."), "1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
    /// A SLURM partition.
    PartitionName, |t| word(t, 64, b"-_."), "1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
    /// A GPU type as the cluster calls it.
    GpuType, |t| word(t, 64, b"-_."), "1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
    /// A compute node.
    NodeName, |t| word(t, 255, b"-_."), "1 to 255 letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
    /// An image of the catalogue.
    ImageName, |t| lower_word(t, 64, b"-_."), "1 to 64 of a–z, 0–9, `-`, `_` and `.`, beginning with a letter or digit";
    /// An app of an image, for example `jupyterlab`.
    AppName, |t| lower_word(t, 32, b"-"), "1 to 32 of a–z, 0–9 and `-`, beginning with a letter or digit";
    /// What a person calls a session: any printable text.
    SessionName, |t| !t.trim().is_empty() && t.trim() == t && t.chars().count() <= 80 && !t.chars().any(char::is_control),
        "1 to 80 printable characters, no white space at either end";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_no_name() {
        for bad in ["", "-x", ".", "..", "a b", "a/b", "a'b", "$(id)", "a;b", "<script>", "a\0", "a\n", "Ada", "ä"] {
            assert!(bad.parse::<Username>().is_err(), "{bad:?}");
            assert!(bad.parse::<ImageName>().is_err(), "{bad:?}");
        }
        for bad in ["", "-x", "..", "a b", "a,b", "a=b", "a:b", "a\0"] {
            assert!(bad.parse::<PartitionName>().is_err(), "{bad:?}");
        }
        assert!("ada".parse::<Username>().is_ok());
        assert!("GPU-a100".parse::<PartitionName>().is_ok());
    }

    #[test]
    fn session_names_are_free_but_printable() {
        assert!("Übung 3: <b>'; $(x)".parse::<SessionName>().is_ok());
        for bad in ["", " ", " a", "a\u{0}", "a\nb"] {
            assert!(bad.parse::<SessionName>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(81).parse::<SessionName>().is_err());
    }
}
