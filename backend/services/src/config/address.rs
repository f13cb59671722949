//! Addresses of services that eirened asks over HTTP.

/// Whether nobody on the way can read what is sent there; none of what is no address.
pub(super) fn is_private(url: &str) -> Option<bool> {
    let parsed = url.parse::<http::Uri>().ok()?;
    if parsed.query().is_some() || parsed.authority()?.as_str().contains('@') {
        return None;
    }
    is_private_way(url)
}

/// The same, where a name and password or a question may be part of the address.
pub(super) fn is_private_way(url: &str) -> Option<bool> {
    let url = url.parse::<http::Uri>().ok()?;
    let host = url.authority()?.host();
    match url.scheme_str()? {
        "https" => Some(true),
        "http" => Some(matches!(host, "localhost" | "127.0.0.1" | "[::1]")),
        _ => None,
    }
}
