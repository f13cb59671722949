//! What is known of a request before anybody looks at it: its id, where it comes from, and who turned out to send it.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use eirene_core::{RequestId, User, UserId, Username};
use eirene_services::config::Network;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::host::same_origin;
use crate::crowd::Standing;

/// Where the client's address is read from behind a proxy.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The browser's word on who caused a request.
pub const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What proxies say of the client, and anybody may say of themselves without being believed.
pub const CLAIMS: [HeaderName; 7] = [
    header::FORWARDED,
    X_FORWARDED_FOR,
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
];

/// In the extensions of every request of the portal's origin.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// Our own id; one from outside is never taken over.
    pub id: RequestId,
    /// The client.
    pub address: Option<IpAddr>,
    /// Whether it came through a proxy that is not listed as one, or that does not say for whom, so that the address may be the proxy's own.
    pub is_forwarded: bool,
    user: Arc<OnceLock<(UserId, Username)>>,
    standing: Option<Standing>,
}

impl RequestInfo {
    /// Of a request that came in from `address`.
    pub fn new(address: Option<IpAddr>) -> Self {
        Self { id: RequestId::generate(), address, is_forwarded: false, user: Arc::default(), standing: None }
    }

    /// Of a request with these headers that came in from `peer`.
    pub fn of(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> Self {
        let is_trusted = trusted.iter().any(|network| network.contains(peer));
        let is_forwarded = if is_trusted {
            !headers.contains_key(X_FORWARDED_FOR)
        } else {
            CLAIMS.iter().any(|name| headers.contains_key(name))
        };
        Self { is_forwarded, ..Self::new(client_address(peer, headers, trusted)) }
    }

    /// The same with the place of its connection among the others.
    pub fn with_standing(self, standing: Option<Standing>) -> Self {
        Self { standing, ..self }
    }

    /// Notes who sends it, for logs, and for the limits of connections.
    pub fn sent_by(&self, user: &User) {
        let _ = self.user.set((user.id, user.username.clone()));
        if let Some(standing) = &self.standing {
            standing.signed_in(user.id);
        }
    }

    /// Who sends it, once that is known.
    pub fn sender(&self) -> Option<&(UserId, Username)> {
        self.user.get()
    }
}

/// The client's address: the last hop that is not one of our own proxies. None when what a proxy says cannot be read, so
/// that nobody is taken for the proxy.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> Option<IpAddr> {
    let is_proxy = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_proxy(peer) {
        return Some(peer);
    }
    let mut client = peer;
    // From the right, each by itself: what is on the left of the client's own address may be anything.
    for value in headers.get_all(X_FORWARDED_FOR).iter().rev() {
        for hop in value.as_bytes().rsplit(|byte| *byte == b',') {
            client = std::str::from_utf8(hop.trim_ascii()).ok()?.parse().ok()?;
            if !is_proxy(client) {
                return Some(client);
            }
        }
    }
    Some(client)
}

/// What a request says about where it was caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CausedBy {
    /// A page of `own`.
    Own,
    /// Something else.
    Foreign,
    /// It does not say: no browser of our time sends that with an unsafe verb.
    Unknown,
}

/// Where a request was caused, by `Origin`, and by `Sec-Fetch-Site` where there is no `Origin`.
pub fn caused_by(headers: &HeaderMap, own: &str) -> CausedBy {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (Some(origin), None) if same_origin(origin.as_bytes(), own) => CausedBy::Own,
        (Some(_), _) => CausedBy::Foreign,
        (None, _) => match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
            Some(b"same-origin") => CausedBy::Own,
            Some(_) => CausedBy::Foreign,
            None => CausedBy::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn only_listed_proxies_are_believed() {
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let of = |peer: &str, forwarded: &'static str, trusted: &[Network]| {
            let address = client_address(peer.parse().unwrap(), &headers(&[("x-forwarded-for", forwarded)]), trusted);
            address.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
        };
        assert_eq!(of("203.0.113.9", "198.51.100.1", &trusted), "203.0.113.9");
        assert_eq!(of("10.0.0.1", "198.51.100.1", &[]), "10.0.0.1");
        assert_eq!(of("10.0.0.1", "198.51.100.1", &trusted), "198.51.100.1");
        assert_eq!(of("10.0.0.1", "6.6.6.6, 198.51.100.1, 10.0.0.2", &trusted), "198.51.100.1");
        assert_eq!(of("10.0.0.1", "nonsense", &trusted), "unknown");
        assert_eq!(of("10.0.0.1", "nonsense, 198.51.100.1", &trusted), "198.51.100.1");
        assert_eq!(of("10.0.0.1", "nonsense, 10.0.0.2", &trusted), "unknown");
    }

    #[test]
    fn a_byte_that_is_no_text_hides_nobody() {
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let of = |values: &[&[u8]]| {
            let values = values.iter().map(|value| (X_FORWARDED_FOR, HeaderValue::from_bytes(value).unwrap()));
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(name, value);
            }
            client_address("10.0.0.1".parse().unwrap(), &headers, &trusted)
        };
        let client = Some("198.51.100.1".parse().unwrap());
        assert_eq!(of(&[b"\xff, 198.51.100.1"]), client);
        assert_eq!(of(&[b"\xff", b"198.51.100.1, 10.0.0.2"]), client);
        assert_eq!(of(&[b"198.51.100.1, \xff"]), None);
        assert_eq!(of(&[b"198.51.100.1", b"\xff"]), None);
        assert_eq!(of(&[]), "10.0.0.1".parse().ok(), "the proxy itself asks");
    }

    #[test]
    fn an_origin_is_compared_whole() {
        let own = "https://eirene.example.org";
        assert_eq!(caused_by(&headers(&[("origin", "https://eirene.example.org")]), own), CausedBy::Own);
        for foreign in ["https://eirene.example.org.evil.example", "http://eirene.example.org", "null", ""] {
            let with = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_str(foreign).unwrap())]);
            assert_eq!(caused_by(&with, own), CausedBy::Foreign, "{foreign}");
        }
        assert_eq!(caused_by(&headers(&[("sec-fetch-site", "same-origin")]), own), CausedBy::Own);
        assert_eq!(caused_by(&headers(&[("sec-fetch-site", "same-site")]), own), CausedBy::Foreign);
        assert_eq!(caused_by(&headers(&[("sec-fetch-site", "none")]), own), CausedBy::Foreign);
        let both = headers(&[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")]);
        assert_eq!(caused_by(&both, own), CausedBy::Foreign);
        assert_eq!(caused_by(&HeaderMap::new(), own), CausedBy::Unknown);
    }
}
