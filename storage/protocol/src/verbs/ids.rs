//! Ids of what the platform keeps among people's files: 128 bits, written as 32 small hex digits, so that they are names of files too.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::{Name, UPLOAD_PREFIX};

/// Not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is 32 hex digits")]
pub struct IdError;

macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&HEXLOWER.encode(&self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| IdError)?;
                bytes.try_into().map(Self).map_err(|_| IdError)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

id! {
    /// What lies in a trash. It begins with the time it was put there (48 bits, milliseconds since 1970), so the newest is the greatest.
    TrashId
}

id! {
    /// What is not whole yet: an upload, or a copy on its way. The portal draws it at random, and can have removed by it what a cut-off
    /// request left.
    PartId
}

impl TrashId {
    /// When it was put there, in milliseconds since 1970.
    pub fn milliseconds(self) -> u64 {
        self.0[..6].iter().fold(0, |time, byte| time << 8 | u64::from(*byte))
    }
}

impl PartId {
    /// How it is called until it is whole: hidden in the directory it is for, where quotas and default permissions are right from the start.
    pub fn file_name(self) -> Name {
        Name::known([UPLOAD_PREFIX, self.to_string().as_bytes()].concat())
    }

    /// How the file is called that says what is known of an upload.
    pub fn sidecar_name(self) -> Name {
        Name::known([self.file_name().as_bytes(), b".json"].concat())
    }

    /// How the file is called that says which directory is a copy on its way, and that it can be gone on with.
    pub fn note_name(self) -> Name {
        Name::known([self.file_name().as_bytes(), b".copy"].concat())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_is_written_in_exactly_one_way() {
        let text = "0123456789abcdef0123456789abcdef";
        assert_eq!(text.parse::<TrashId>().unwrap().to_string(), text);
        assert_eq!(text.parse::<TrashId>().unwrap().milliseconds(), 0x0123_4567_89ab);
        for bad in [
            "",
            "0123456789abcdef",
            "0123456789ABCDEF0123456789ABCDEF",
            "../3456789abcdef0123456789abcdef",
            &text.repeat(2),
        ] {
            assert_eq!(bad.parse::<TrashId>(), Err(IdError), "{bad}");
            assert!(serde_json::from_str::<PartId>(&format!("\"{bad}\"")).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_id_survives_and_names_a_hidden_file(bytes in any::<[u8; 16]>()) {
            let id = PartId(bytes);
            prop_assert_eq!(serde_json::from_str::<PartId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
            prop_assert_eq!(Name::parse(id.file_name().as_bytes()).unwrap(), id.file_name());
            prop_assert!(id.file_name().as_bytes().starts_with(UPLOAD_PREFIX));
            prop_assert_eq!(Name::parse(id.sidecar_name().as_bytes()).unwrap(), id.sidecar_name());
            prop_assert_eq!(Name::parse(id.note_name().as_bytes()).unwrap(), id.note_name());
        }

        #[test]
        fn no_text_makes_an_id_panic(text in "\\PC{0,40}") {
            if let Ok(id) = text.parse::<TrashId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
