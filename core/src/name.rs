//! Names are parsed once, at the edge; whoever holds one of these types holds a good name.
//!
//! All are ASCII without white space, quotes, slashes or leading dashes, so none can change the meaning of an argument vector,
//! a path or a host name. [`SessionName`], [`SpaceTitle`] and [`DrainReason`] alone are free text, and so are hostile text for whoever shows
//! them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::is_printable;

/// Why a text is no name of the wanted kind: the rule it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Small letters, digits and a few signs, at most so many.
    #[error("1 to {0} of a–z, 0–9, `-`, `_` and `.`, beginning with a letter or digit")]
    Lower(usize),
    /// Small letters, digits and dashes, at most so many.
    #[error("1 to {0} of a–z, 0–9 and `-`, beginning with a letter or digit")]
    Dashed(usize),
    /// Letters, digits and a few signs, at most so many.
    #[error("1 to {0} letters, digits, `-`, `_` and `.`, beginning with a letter or digit")]
    Word(usize),
    /// A name as SLURM takes it, at most so many characters.
    #[error("1 to {0} letters, digits, `-`, `_`, `.`, `+` and `@`, beginning with a letter, digit or `_`")]
    Slurm(usize),
    /// Any printable text, at most so many characters.
    #[error("1 to {0} printable characters, no white space at either end")]
    Printable(usize),
    /// One of these words, each in backticks.
    #[error("not one of: {0}")]
    OneOf(&'static str),
}

impl NameError {
    /// Whether `text` keeps the rule.
    fn allows(self, text: &str) -> bool {
        match self {
            Self::Lower(longest) => lower_word(text, longest, b"-_."),
            Self::Dashed(longest) => lower_word(text, longest, b"-"),
            Self::Word(longest) => word(text, longest, b"-_."),
            Self::Slurm(longest) => word(text.strip_prefix('_').unwrap_or(text), longest, b"-_.+@"),
            Self::Printable(longest) => {
                let ends_well = !text.is_empty() && text.trim() == text;
                ends_well && text.chars().count() <= longest && text.chars().all(is_printable)
            }
            Self::OneOf(_) => false,
        }
    }
}

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
    ($($(#[$doc:meta])* $name:ident, $rule:expr;)*) => {$(
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
                let rule: NameError = $rule;
                if rule.allows(text) { Ok(Self(text.to_owned())) } else { Err(rule) }
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
    Username, NameError::Lower(32);
    /// A project; it maps to a SLURM account.
    ProjectName, NameError::Lower(64);
    /// A SLURM account.
    AccountName, NameError::Slurm(64);
    /// A SLURM quality of service.
    QosName, NameError::Slurm(64);
    /// A SLURM partition.
    PartitionName, NameError::Slurm(64);
    /// A feature of nodes, as the cluster calls it.
    FeatureName, NameError::Slurm(64);
    /// A GPU type as the cluster calls it.
    GpuType, NameError::Slurm(64);
    /// A compute node.
    NodeName, NameError::Word(255);
    /// An image of the catalogue.
    ImageName, NameError::Lower(64);
    /// An app of an image, for example `jupyterlab`.
    AppName, NameError::Dashed(32);
    /// A directory in which spaces are made, as the administrator calls it.
    RootName, NameError::Lower(32);
    /// A space; also the name of its directory.
    SpaceName, NameError::Lower(64);
    /// A POSIX group.
    GroupName, NameError::Word(64);
    /// What people read in a space's place: any printable text.
    SpaceTitle, NameError::Printable(80);
    /// What a person calls a session: any printable text.
    SessionName, NameError::Printable(80);
    /// Why a node is drained: one line of any printable text.
    DrainReason, NameError::Printable(200);
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
        for bad in [
            "", "-x", "..", "a b", "a,b", "a=b", "a:b", "a\0", "+a", "@a", "_", "__", "a&b", "a|b", "a[1]", "a*2",
            "a(b)", "a;b", "$(id)",
        ] {
            assert!(bad.parse::<PartitionName>().is_err(), "{bad:?}");
        }
        for good in ["1g.5gb+me", "a100_80gb", "_debug", "p-12@site", "GPU.a"] {
            assert!(good.parse::<GpuType>().is_ok() && good.parse::<AccountName>().is_ok(), "{good}");
        }
        assert!("ada".parse::<Username>().is_ok());
        assert!("GPU-a100".parse::<PartitionName>().is_ok());
    }

    #[test]
    fn session_names_are_free_but_printable() {
        assert!("Übung 3: <b>'; $(x)".parse::<SessionName>().is_ok());
        for bad in ["", " ", " a", "a\u{0}", "a\nb", "gpj\u{202e}.exe", "\u{2066}a", "a\u{feff}b"] {
            assert!(bad.parse::<SessionName>().is_err(), "{bad:?}");
        }
        assert!("x".repeat(81).parse::<SessionName>().is_err());
        assert!("ü".repeat(200).parse::<DrainReason>().is_ok());
        assert!("ü".repeat(201).parse::<DrainReason>().is_err());
    }
}
