//! Host names as DNS compares them (RFC 4343): small and capital letters are the same, and so is a name with a dot at its end.

use eirene_core::SessionId;

/// Length of a session's id in a host name.
const SESSION_LABEL: usize = 32;

/// A host with its port, in the one spelling that is compared; none where it is no text.
fn plain(authority: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(authority).ok()?.to_ascii_lowercase();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(port)),
        _ => (text.as_str(), None),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    Some(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Whether both are the same host and port.
pub fn same_authority(one: &[u8], other: &[u8]) -> bool {
    one == other || plain(one).is_some_and(|one| plain(other).is_some_and(|other| one == other))
}

/// Whether both are the same scheme, host and port.
pub fn same_origin(one: &[u8], other: &str) -> bool {
    let parts =
        |text: &str| text.split_once("://").map(|(scheme, authority)| (scheme.to_owned(), authority.to_owned()));
    let (Some((scheme, host)), Some((other_scheme, other_host))) =
        (std::str::from_utf8(one).ok().and_then(parts), parts(other))
    else {
        return false;
    };
    scheme.eq_ignore_ascii_case(&other_scheme) && same_authority(host.as_bytes(), other_host.as_bytes())
}

/// The session that `authority` stands for, below `apps_domain`.
pub fn session_of(authority: &[u8], apps_domain: &str) -> Option<SessionId> {
    let (label, rest) = authority.split_at_checked(SESSION_LABEL)?;
    same_authority(rest.strip_prefix(b".")?, apps_domain.as_bytes()).then_some(())?;
    label_of(label)
}

/// The session whose host name is somewhere in `bytes`.
pub fn session_within(bytes: &[u8], apps_domain: &str) -> Option<SessionId> {
    let host = apps_domain.split(':').next()?.as_bytes();
    let at = bytes.windows(host.len()).position(|window| window.eq_ignore_ascii_case(host))?;
    label_of(bytes.get(at.checked_sub(SESSION_LABEL + 1)?..at)?.strip_suffix(b".")?)
}

fn label_of(label: &[u8]) -> Option<SessionId> {
    std::str::from_utf8(label).ok()?.to_ascii_lowercase().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_dns_does() {
        for (one, other, same) in [
            ("eirene.example.org", "EIRENE.Example.org", true),
            ("eirene.example.org", "eirene.example.org.", true),
            ("eirene.example.org:8443", "Eirene.example.org.:8443", true),
            ("eirene.example.org", "eirene.example.org..", false),
            ("eirene.example.org", ".eirene.example.org", false),
            ("eirene.example.org", "eirene.example.org:8443", false),
            ("eirene.example.org:8443", "eirene.example.org:08443", false),
            ("eirene.example.org", "eirene.example.org:", false),
            ("eirene.example.org", "eirene.example.org.evil.example", false),
            ("eirene.example.org", "", false),
            ("[::1]:80", "[::1]:80", true),
        ] {
            assert_eq!(same_authority(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
            let origin = format!("https://{other}");
            assert_eq!(same_origin(origin.as_bytes(), &format!("https://{one}")), same, "{one} {other}");
            assert!(!same_origin(format!("http://{other}").as_bytes(), &format!("https://{one}")));
            let session = SessionId::generate();
            let label = session.to_string().to_ascii_uppercase();
            let of = session_of(format!("{label}.{other}").as_bytes(), one);
            assert_eq!(of, same.then_some(session), "{one} {other}");
            for bad in [format!("x{label}.{one}"), format!("{label}x{one}"), format!("{label}.x.{one}"), one.to_owned()]
            {
                assert_eq!(session_of(bad.as_bytes(), one), None, "{bad}");
            }
        }
        assert!(!same_origin(b"null", "https://eirene.example.org"));
        assert_eq!(session_of("é".repeat(40).as_bytes(), "apps.example.org"), None);
    }

    #[test]
    fn a_session_is_found_among_the_first_bytes_of_a_connection() {
        let id = SessionId::generate();
        let in_head = format!("GET /lab HTTP/1.1\r\nHost: {id}.apps.example.org:8443\r\n\r\n");
        let in_hello = [&[22, 3, 1, 2, 0, 0, 0, 64][..], format!("{id}.apps.example.org").as_bytes(), &[0, 5]].concat();
        for said in [in_head.as_bytes(), in_head.to_ascii_uppercase().as_bytes(), &in_hello] {
            assert_eq!(session_within(said, "apps.example.org:8443"), Some(id));
            assert_eq!(session_within(said, "apps.example.com"), None);
        }
        for said in ["apps.example.org", "x.apps.example.org", "", &format!("{id}apps.example.org")] {
            assert_eq!(session_within(said.as_bytes(), "apps.example.org"), None, "{said}");
        }
    }
}
