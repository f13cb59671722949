//! Tokens for SLURM's `auth/jwt`: HS256 over the claims SLURM reads (`iat`, `exp`, `sun`).

use std::io::Read;
use std::path::Path;

use data_encoding::BASE64URL_NOPAD;
use eirene_core::Username;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::Serialize;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::Refusal;

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const LONGEST_KEY_BYTES: u64 = 64 * 1024;
const SHORTEST_KEY_BYTES: usize = 16;

#[derive(Serialize)]
struct Claims<'a> {
    exp: i64,
    iat: i64,
    sun: &'a str,
}

/// Reads the key. It is read for each token: a key that was changed is used at once, and none lies in memory between calls.
pub fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let mut key = Zeroizing::new(Vec::with_capacity(4096));
    std::fs::File::open(path)
        .and_then(|file| file.take(LONGEST_KEY_BYTES).read_to_end(&mut key))
        .map_err(|error| Refusal::failed(format!("the signing key cannot be read: {}", error.kind())))?;
    if key.len() < SHORTEST_KEY_BYTES {
        return Err(Refusal::failed("the signing key is too short"));
    }
    Ok(key)
}

/// Signs a token for `name` that holds from `now` for `lifetime_s`.
pub fn sign(key: &[u8], name: &Username, now: Timestamp, lifetime_s: u64) -> Result<String, Refusal> {
    let iat = now.as_second();
    let exp = i64::try_from(lifetime_s).ok().and_then(|lifetime| iat.checked_add(lifetime));
    let exp = exp.ok_or_else(|| Refusal::failed("the token's lifetime is out of range"))?;
    let claims = serde_json::to_vec(&Claims { exp, iat, sun: name.as_str() })
        .map_err(|error| Refusal::failed(format!("the token cannot be written: {error}")))?;
    let mut token = format!("{}.{}", BASE64URL_NOPAD.encode(HEADER.as_bytes()), BASE64URL_NOPAD.encode(&claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| Refusal::failed("the signing key cannot be used"))?;
    mac.update(token.as_bytes());
    token.push('.');
    token.push_str(&BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()));
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's `hmac`, `hashlib` and `base64`.
    const KNOWN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
         eyJleHAiOjE3MDAwMDAzMDAsImlhdCI6MTcwMDAwMDAwMCwic3VuIjoiYWRhIn0.\
         CACEMntMphRmDFkRHv1gfICjdKO3BdiMbfH6LxvNTu4";

    #[test]
    fn a_token_is_what_another_implementation_computes() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let token = sign(b"0123456789abcdef0123456789abcdef", &"ada".parse().unwrap(), now, 300).unwrap();
        assert_eq!(token, KNOWN);
    }

    #[test]
    fn a_missing_or_empty_key_signs_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert_eq!(read_key(&path).unwrap_err().code, "failed");
        std::fs::write(&path, "short").unwrap();
        assert_eq!(read_key(&path).unwrap_err().code, "failed");
        std::fs::write(&path, [7; 32]).unwrap();
        assert_eq!(read_key(&path).unwrap().as_slice(), [7; 32]);
    }
}
