//! The two cookies: the portal's and, on each session's origin, the app's. Both bear the `__Host-` prefix, so that no
//! other host can set or shadow them; neither is accepted for the other.

use eirene_core::secret::Secret;
use eirene_services::logins;
use http::{HeaderMap, HeaderValue, header};

/// The portal's cookie.
pub const LOGIN: &str = "__Host-eirene";
/// The app's cookie, on a session's origin.
pub const APP: &str = "__Host-eirene_app";
/// What all our cookies' names begin with: none of them reaches an app, and no app can set one.
pub const PREFIX: &str = "__Host-eirene";
/// What stands between two cookies.
const SEPARATOR: &[u8] = b"; ";
/// Most bytes of cookies that an app gets. Scripts of another session can set cookies for all of them; Node refuses a head of 16 KiB, Tornado one of
/// 64 KiB.
const MOST_FOR_APP: usize = 8 * 1024;
/// No value of ours is longer.
const MAX_VALUE: usize = 128;

/// The value of a cookie.
pub fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    pairs(headers).find(|(key, _)| *key == name).map(|(_, value)| value).filter(|v| v.len() <= MAX_VALUE)
}

/// All cookies of a request, as `(name, value)`.
pub fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
}

/// Takes our cookies out of a request and leaves the others, as far as an app reads them: of more than [`MOST_FOR_APP`] the longest are left out.
pub fn strip(headers: &mut HeaderMap) {
    let has_ours = |value: &HeaderValue| value.as_bytes().windows(PREFIX.len()).any(|w| w == PREFIX.as_bytes());
    let cookies = headers.get_all(header::COOKIE);
    let bytes: usize = cookies.iter().map(HeaderValue::len).sum();
    if bytes <= MOST_FOR_APP && !cookies.iter().any(has_ours) {
        return;
    }
    let is_ours = |pair: &[u8]| pair.starts_with(PREFIX.as_bytes());
    let length = |pair: &[u8]| pair.len() + SEPARATOR.len();
    let mut lengths: Vec<usize> = split(headers).filter(|pair| !is_ours(pair)).map(length).collect();
    lengths.sort_unstable();
    let (mut left, mut longest) = (MOST_FOR_APP, 0);
    for equals in lengths.chunk_by(|a, b| a == b) {
        let Some(rest) = left.checked_sub(equals.iter().sum()) else { break };
        (left, longest) = (rest, equals[0]);
    }
    rewrite(headers, |pair| !is_ours(pair) && length(pair) <= longest, None);
}

/// Puts a cookie into a request, in the place of all of its name.
pub fn replace(headers: &mut HeaderMap, name: &str, value: &str) {
    let has_name = |pair: &[u8]| pair.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii() == name.as_bytes();
    rewrite(headers, |pair| !has_name(pair), Some(&format!("{name}={value}")));
}

fn split(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|header| header.as_bytes().split(|b| *b == b';'));
    pairs.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty())
}

/// Keeps these cookies of a request, with `more` at their end, in one header.
fn rewrite(headers: &mut HeaderMap, keep: impl Fn(&[u8]) -> bool, more: Option<&str>) {
    let pairs = split(headers).filter(|pair| keep(pair));
    let kept = pairs.chain(more.map(str::as_bytes)).collect::<Vec<_>>().join(SEPARATOR);
    headers.remove(header::COOKIE);
    if !kept.is_empty()
        && let Ok(value) = HeaderValue::from_bytes(&kept)
    {
        headers.insert(header::COOKIE, value);
    }
}

/// `Set-Cookie` for a new log-in.
pub fn set_login(secret: &Secret) -> HeaderValue {
    set(LOGIN, secret.expose(), logins::ABSOLUTE.as_secs())
}

/// `Set-Cookie` that takes the log-in away.
pub fn clear_login() -> HeaderValue {
    set(LOGIN, "", 0)
}

/// `Set-Cookie` for a browser that was handed over.
pub fn set_app(secret: &Secret) -> HeaderValue {
    set(APP, secret.expose(), logins::ABSOLUTE.as_secs())
}

fn set(name: &str, value: &str, max_age_s: i64) -> HeaderValue {
    let text = format!("{name}={value}; Path=/; Max-Age={max_age_s}; Secure; HttpOnly; SameSite=Lax");
    let mut value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(text: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(text).unwrap())])
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let headers = cookies("a=1; __Host-eirene_app=app; __Host-eirene=portal; b=x=y");
        assert_eq!(value(&headers, LOGIN), Some("portal"));
        assert_eq!(value(&headers, APP), Some("app"));
        assert_eq!(value(&headers, "b"), Some("x=y"));
        assert_eq!(value(&headers, "__Host"), None);
        assert_eq!(value(&cookies(&format!("__Host-eirene={}", "x".repeat(200))), LOGIN), None);
    }

    #[test]
    fn ours_are_taken_out_and_the_others_stay() {
        let mut headers = cookies("a=1; __Host-eirene=secret;__Host-eirene_app=secret; _xsrf=2|x");
        strip(&mut headers);
        assert_eq!(headers.get(header::COOKIE).unwrap(), "a=1; _xsrf=2|x");
        let mut headers = cookies("__Host-eirene=secret");
        strip(&mut headers);
        assert!(headers.get(header::COOKIE).is_none());
        let mut headers = cookies("a=1");
        strip(&mut headers);
        assert_eq!(headers.get(header::COOKIE).unwrap(), "a=1");
    }

    #[test]
    fn of_too_many_for_an_app_the_longest_are_left_out() {
        let bomb = format!("bomb={}", "x".repeat(4080));
        let mut headers = cookies(
            &[vec![bomb.as_str(); 180], vec!["_xsrf=2|x", "__Host-eirene_app=secret", "a=1"]].concat().join("; "),
        );
        strip(&mut headers);
        assert_eq!(headers.get(header::COOKIE).unwrap(), "_xsrf=2|x; a=1");
        let some = format!("c={}", "x".repeat(96));
        let mut headers = cookies(&[vec![some.as_str(); 100], vec!["a=1"]].concat().join("; "));
        strip(&mut headers);
        assert_eq!(headers.get(header::COOKIE).unwrap(), "a=1", "none of equals is preferred");
        let most = format!("a={}", "x".repeat(MOST_FOR_APP - 4));
        let mut headers = cookies(&most);
        strip(&mut headers);
        assert_eq!(headers.get(header::COOKIE).unwrap(), most.as_str());
    }

    #[test]
    fn cookies_are_set_with_every_protection() {
        let header = set_login(&Secret::from_text("x"));
        assert_eq!(header, "__Host-eirene=x; Path=/; Max-Age=604800; Secure; HttpOnly; SameSite=Lax");
        assert!(clear_login().to_str().unwrap().starts_with("__Host-eirene=; Path=/; Max-Age=0;"));
    }
}
