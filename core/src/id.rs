//! Typed ids: a UUID version 7 (RFC 9562) each, written as 32 lower-case hexadecimal digits so that it is also a DNS label.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: 32 lower-case hexadecimal digits are expected")]
pub struct IdError;

macro_rules! typed_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// A new id; ids made later sort later.
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id as 16 bytes, for what keeps many of them.
            pub const fn to_bytes(self) -> [u8; 16] {
                *self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let plain = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if !plain {
                    return Err(IdError);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| IdError)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    )*};
}

typed_id! {
    /// A user's id.
    UserId;
    /// A session's id; also the opaque label of its origin.
    SessionId;
    /// An API token's id.
    TokenId;
    /// A log-in's id: one browser that is signed in to the portal.
    LoginId;
    /// An image's id.
    ImageId;
    /// The id of one request to the portal.
    RequestId;
    /// A space's id; also the name its directory has while it is retired.
    SpaceId;
    /// An upload's id; also in the names of its unfinished files.
    UploadId;
    /// The id of work on files that outlives its request.
    OperationId;
    /// An alert's id.
    AlertId;
    /// The id of a time for which nobody is told of some alerts.
    SilenceId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_refuse_other_spellings() {
        let id = SessionId::generate();
        assert_eq!(id.to_string().parse(), Ok(id));
        let upper = id.to_string().to_uppercase();
        for bad in ["", "x", upper.as_str(), "0190-", "../../../../../../../../../etc/pas"] {
            assert!(bad.parse::<SessionId>() == Err(IdError) || bad.bytes().all(|b| b.is_ascii_digit()), "{bad}");
        }
    }
}
