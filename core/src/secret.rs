//! Secrets: made from the operating system's randomness, shown once, stored hashed, compared in constant time.

use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rand::TryRng as _;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

/// Number of random bytes in a secret: 256 bits.
const SECRET_BYTES: usize = 32;

/// A high-entropy secret (never a password): 43 characters of URL-safe base64.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// A new secret.
    ///
    /// # Panics
    /// When the operating system has no randomness, which leaves nothing safe to do.
    #[expect(clippy::expect_used, reason = "without randomness nothing is safe")]
    pub fn generate() -> Self {
        let mut bytes = [0_u8; SECRET_BYTES];
        rand::rngs::SysRng.try_fill_bytes(&mut bytes).expect("the operating system gives randomness");
        Self(SecretString::from(BASE64URL_NOPAD.encode(&bytes)))
    }

    /// Takes a secret that came from outside, as it is.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The text itself; call only where it leaves for its owner.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// What is stored: a hash that is enough for 256-bit secrets.
    pub fn hash(&self) -> SecretHash {
        SecretHash(HEXLOWER.encode(&Sha256::digest(self.expose().as_bytes())))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a [`Secret`], lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHash(String);

impl SecretHash {
    /// Takes a hash as stored.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// As stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `secret` has this hash, in constant time.
    pub fn matches(&self, secret: &Secret) -> bool {
        self.0.as_bytes().ct_eq(secret.hash().0.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_match_their_hash_and_do_not_print() {
        let (a, b) = (Secret::generate(), Secret::generate());
        assert!(a.hash().matches(&a));
        assert!(!a.hash().matches(&b));
        assert!(!format!("{a:?}").contains(a.expose()));
        assert_eq!(a.expose().len(), 43);
    }
}
