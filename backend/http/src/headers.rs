//! The security headers of everything the portal's own origin answers.

use axum::response::Response;
use http::{HeaderName, HeaderValue, header};

use super::content::UserContent;

/// In a response's extensions: the one other origin a form of this page may be sent to. The page then also says where
/// the form comes from, because the other side checks that.
#[derive(Debug, Clone)]
pub struct FormTarget(pub String);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
                      connect-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; \
                      base-uri 'none'";

const FIXED: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    (HeaderName::from_static("x-permitted-cross-domain-policies"), "none"),
];

/// Puts the headers on; what a handler set itself in `Cache-Control` stays, and the policy of what is somebody's file, which is narrower.
pub fn secure(response: &mut Response, https: bool) {
    let target = response.extensions_mut().remove::<FormTarget>();
    let owns = response.extensions_mut().remove::<UserContent>();
    let headers = response.headers_mut();
    for (name, value) in FIXED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let (policy, referrer) = match target {
        None => (HeaderValue::from_static(POLICY), "same-origin"),
        // With `same-origin` the browser would send `Origin: null` to the other side.
        Some(FormTarget(origin)) => {
            let policy = POLICY.replace("form-action 'self'", &format!("form-action 'self' {origin}"));
            (HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static(POLICY)), "strict-origin")
        }
    };
    if owns.is_none() {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static(referrer));
    if https {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
