//! The two cookies: the portal's and, on each session's origin, the app's. Both bear the `__Host-` prefix, so that no
//! other host can set or shadow them; neither is accepted for the other.

use http::{HeaderMap, HeaderValue, header};

use eirene_core::secret::Secret;

use crate::services::logins;

/// The portal's cookie.
pub const LOGIN: &str = "__Host-eirene";
/// The app's cookie, on a session's origin.
pub const APP: &str = "__Host-eirene_app";
/// What all our cookies' names begin with: none of them reaches an app, and no app can set one.
pub const PREFIX: &str = "__Host-eirene";
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

/// Takes our cookies out of a request and leaves the others.
pub fn strip(headers: &mut HeaderMap) {
    if !headers
        .get_all(header::COOKIE)
        .iter()
        .any(|v| v.as_bytes().windows(PREFIX.len()).any(|w| w == PREFIX.as_bytes()))
    {
        return;
    }
    rewrite(headers, |pair| !pair.starts_with(PREFIX.as_bytes()), None);
}

/// Puts a cookie into a request, in the place of all of its name.
pub fn replace(headers: &mut HeaderMap, name: &str, value: &str) {
    let has_name = |pair: &[u8]| pair.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii() == name.as_bytes();
    rewrite(headers, |pair| !has_name(pair), Some(&format!("{name}={value}")));
}

/// Keeps these cookies of a request, with `more` at their end, in one header.
fn rewrite(headers: &mut HeaderMap, keep: impl Fn(&[u8]) -> bool, more: Option<&str>) {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|header| header.as_bytes().split(|b| *b == b';'));
    let pairs = pairs.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty() && keep(pair));
    let kept = pairs.chain(more.map(str::as_bytes)).collect::<Vec<_>>().join(&b"; "[..]);
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
    fn cookies_are_set_with_every_protection() {
        let header = set_login(&Secret::from_text("x"));
        assert_eq!(header, "__Host-eirene=x; Path=/; Max-Age=604800; Secure; HttpOnly; SameSite=Lax");
        assert!(clear_login().to_str().unwrap().starts_with("__Host-eirene=; Path=/; Max-Age=0;"));
    }
}
