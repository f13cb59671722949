//! The headers of what people have in their files. To a browser it is never a document of ours: it is saved, not shown, and nothing in it runs.

use std::fmt::Write as _;

use axum::response::Response;
use eirene_core::text::is_printable;
use eirene_files_protocol::Moment;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;

/// In a response's extensions: its body is somebody's file, and its policy is the sandbox.
#[derive(Debug, Clone, Copy)]
pub struct UserContent;

/// The policy of what is somebody's.
pub const POLICY: &str = "sandbox; default-src 'none'";

/// Puts the headers on a response whose body is somebody's file of this name.
pub fn secure(response: &mut Response, name: &[u8]) {
    response.extensions_mut().insert(UserContent);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, disposition(name));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
}

/// Puts the headers on a response whose body is ours and tells of what is in somebody's file: should a browser be led to it, it is nothing
/// there either, and nobody keeps it.
pub fn private(response: &mut Response) {
    response.extensions_mut().insert(UserContent);
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
}

/// Says when the content was last changed, where that is a date that can be written.
pub fn last_modified(headers: &mut HeaderMap, modified: Moment) {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let text = Timestamp::from_second(modified.seconds).and_then(|at| printer.timestamp_to_rfc9110_string(&at));
    if let Some(value) = text.ok().and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::LAST_MODIFIED, value);
    }
}

/// `attachment` with the file's name (RFC 6266, RFC 8187). What could end a header, mislead a reader or be a path is `_`.
pub fn disposition(name: &[u8]) -> HeaderValue {
    let text: String = String::from_utf8_lossy(name).chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let ascii: String = text.chars().map(|c| if c.is_ascii() && c != '%' { c } else { '_' }).collect();
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    let value = format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}");
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("attachment"))
}

/// Whether a character may stand in the name that is proposed.
fn is_plain(c: char) -> bool {
    is_printable(c) && !['"', '\\', '/', '\''].contains(&c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_proposed_and_nothing_else() {
        for (name, expected) in [
            ("a.txt", "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"),
            ("a b%.é", "attachment; filename=\"a b_._\"; filename*=UTF-8''a%20b%25.%C3%A9"),
            (
                "x\r\nSet-Cookie: a=b",
                "attachment; filename=\"x__Set-Cookie: a=b\"; filename*=UTF-8''x__Set-Cookie%3A%20a%3Db",
            ),
            (
                "\"; filename=\"evil.exe",
                "attachment; filename=\"_; filename=_evil.exe\"; filename*=UTF-8''_%3B%20filename%3D_evil.exe",
            ),
            ("\u{202e}gpj.exe", "attachment; filename=\"_gpj.exe\"; filename*=UTF-8''_gpj.exe"),
        ] {
            assert_eq!(disposition(name.as_bytes()).to_str().unwrap(), expected);
        }
        let name = disposition(b"caf\xe9");
        assert_eq!(name.to_str().unwrap(), "attachment; filename=\"caf_\"; filename*=UTF-8''caf%EF%BF%BD");
    }

    proptest! {
        #[test]
        fn no_name_gets_out_of_its_quotes(name in prop::collection::vec(any::<u8>(), 0..255)) {
            let value = disposition(&name);
            let text = value.to_str().unwrap();
            prop_assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert_eq!(text.matches('"').count(), 2);
            prop_assert!(!text.contains('\\') && !text.contains('/'));
        }
    }
}
