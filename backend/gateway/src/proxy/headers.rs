//! What of a request an app may see, and what of its answer a browser may see.

use std::net::IpAddr;

use eirene_http::cookies;
use eirene_http::request::{CLAIMS, X_FORWARDED_FOR};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Meant for the next hop alone (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// For us and not for the app: our own listener answers `Expect`.
const OURS: [HeaderName; 2] = [header::AUTHORIZATION, header::EXPECT];

/// What an app must not say: it would reach beyond its own origin, or loosen what guards it.
const OVERREACH: [HeaderName; 11] = [
    // It would end the browser's sign-in at this origin, and slow everything down.
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("service-worker-allowed"),
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
    HeaderName::from_static("access-control-allow-private-network"),
    header::ALT_SVC,
    header::STRICT_TRANSPORT_SECURITY,
];

/// Whether a request asks for a WebSocket, the one protocol that is upgraded to.
pub(super) fn wants_websocket(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && named_in_connection(headers, "upgrade")
}

fn named_in_connection(headers: &HeaderMap, name: &str) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case(name))
}

/// Takes out what the other side names in `Connection`, and that header.
fn strip_named_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|text| text.split(','))
            .filter_map(|token| token.trim().parse().ok())
            // These say how long the body is and where it goes: nobody takes them out by naming them here.
            .filter(|name| ![header::HOST, header::CONTENT_LENGTH, header::COOKIE].contains(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
}

/// Takes out what is `unwanted`: one look at each header there is, instead of one search for each that there might be.
fn strip(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let found: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Makes a request fit for the app: nothing of ours in it, and true words about where it came from.
pub(super) fn for_app(headers: &mut HeaderMap, websocket: bool, client: Option<IpAddr>, scheme: &'static str) {
    strip_named_hop_by_hop(headers);
    strip(headers, |name| HOP_BY_HOP.contains(name) || CLAIMS.contains(name) || OURS.contains(name));
    cookies::strip(headers);
    if let Some(host) = headers.get(header::HOST).cloned() {
        headers.insert(X_FORWARDED_HOST, host);
    }
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    if let Some(Ok(client)) = client.map(|client| HeaderValue::from_str(&client.to_string())) {
        headers.insert(X_FORWARDED_FOR, client);
    }
    if websocket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, WEBSOCKET);
    }
}

/// Makes an answer fit for the browser.
pub(super) fn for_browser(headers: &mut HeaderMap, websocket: bool) {
    strip_named_hop_by_hop(headers);
    strip(headers, |name| HOP_BY_HOP.contains(name) || OVERREACH.contains(name));
    if headers.contains_key(header::SET_COOKIE) {
        let kept: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().filter_map(own_cookie).collect();
        headers.remove(header::SET_COOKIE);
        for value in kept {
            headers.append(header::SET_COOKIE, value);
        }
    }
    if websocket {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, WEBSOCKET);
    }
}

/// An app's cookie, for its own host alone; none of our names, and none without a name: browsers send only its value, which may look like one of ours.
fn own_cookie(value: &HeaderValue) -> Option<HeaderValue> {
    let mut parts = value.as_bytes().split(|b| *b == b';');
    let pair = parts.next().unwrap_or_default();
    let mut name_and_value = pair.splitn(2, |b| *b == b'=');
    let name = name_and_value.next().unwrap_or_default().trim_ascii();
    let prefix = cookies::PREFIX.as_bytes();
    let is_nameless = name.is_empty() || name_and_value.next().is_none();
    if is_nameless || name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)) {
        return None;
    }
    let is_domain = |part: &[u8]| {
        let key = part.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
        key.eq_ignore_ascii_case(b"domain")
    };
    let mut kept = pair.to_vec();
    for part in parts.filter(|part| !is_domain(part)) {
        kept.push(b';');
        kept.extend_from_slice(part);
    }
    HeaderValue::from_bytes(&kept).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_app_sees_neither_secrets_nor_false_claims() {
        let mut headers = map(&[
            ("host", "x.apps.example.org"),
            ("authorization", "Bearer eir_secret"),
            ("cookie", "__Host-eirene_app=secret; _xsrf=1"),
            ("cookie", "__Host-eirene=secret"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "gopher"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("connection", "keep-alive, X-Secret-Hop, host, cookie"),
            ("x-secret-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
            ("content-length", "3"),
        ]);
        for_app(&mut headers, false, "203.0.113.9".parse().ok(), "https");
        assert_eq!(
            shown(&headers),
            [
                "accept: */*",
                "content-length: 3",
                "cookie: _xsrf=1",
                "host: x.apps.example.org",
                "x-forwarded-for: 203.0.113.9",
                "x-forwarded-host: x.apps.example.org",
                "x-forwarded-proto: https",
            ]
        );
    }

    #[test]
    fn the_browser_sees_nothing_that_reaches_beyond_the_origin() {
        let mut headers = map(&[
            ("set-cookie", "_xsrf=2; Path=/; Domain=.apps.example.org; Secure"),
            ("set-cookie", "a=1; dOmAiN = example.org"),
            ("set-cookie", "__Host-eirene_app=evil; Path=/; Secure"),
            ("set-cookie", "__host-EIRENE=evil; Path=/; Secure"),
            ("set-cookie", "=__Host-eirene_app=evil; Path=/"),
            ("set-cookie", " = __Host-eirene=evil; Path=/"),
            ("set-cookie", "__Host-eirene_app"),
            ("set-cookie", "nameless; Path=/"),
            ("set-cookie", "plain=1; HttpOnly"),
            ("access-control-allow-origin", "*"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=1; includeSubDomains"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("content-security-policy", "frame-ancestors 'self'"),
        ]);
        for_browser(&mut headers, false);
        assert_eq!(
            shown(&headers),
            [
                "content-security-policy: frame-ancestors 'self'",
                "set-cookie: _xsrf=2; Path=/; Secure",
                "set-cookie: a=1",
                "set-cookie: plain=1; HttpOnly",
            ]
        );
    }

    #[test]
    fn only_a_websocket_is_upgraded_to() {
        assert!(wants_websocket(&map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")])));
        assert!(!wants_websocket(&map(&[("connection", "Upgrade"), ("upgrade", "h2c")])));
        assert!(!wants_websocket(&map(&[("connection", "close"), ("upgrade", "websocket")])));
        let mut headers = map(&[
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "websocket"),
            ("http2-settings", "x"),
            ("x-forwarded-for", "6.6.6.6"),
        ]);
        for_app(&mut headers, true, None, "http");
        assert!(headers.get("x-forwarded-for").is_none(), "the client's own word is not passed on");
        assert_eq!(headers.get("connection").unwrap(), "upgrade");
        assert_eq!(headers.get("upgrade").unwrap(), "websocket");
        assert!(headers.get("http2-settings").is_none());
    }
}
