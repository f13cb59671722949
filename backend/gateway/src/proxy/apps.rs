//! What single apps need to know of a request, where that is not the same for all of them.

use eirene_core::AppName;
use eirene_http::cookies;
use http::{HeaderMap, HeaderName, HeaderValue};

/// JupyterLab's cookie and header against requests that another page has caused; both have the same value.
const XSRF_COOKIE: &str = "_xsrf";
const XSRF_HEADER: HeaderName = HeaderName::from_static("x-xsrftoken");
const XSRF_VALUE: &str = "00000000000000000000000000000000";

/// Tells the app that a program sends this, which was admitted by its token. No page can make a browser send that, so nothing has to be guarded
/// against; JupyterLab would ask a program for what only its own pages know.
pub(super) fn by_token(app: &AppName, headers: &mut HeaderMap) {
    if app.as_str() != "jupyterlab" {
        return;
    }
    cookies::replace(headers, XSRF_COOKIE, XSRF_VALUE);
    headers.insert(XSRF_HEADER, HeaderValue::from_static(XSRF_VALUE));
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn only_jupyterlab_is_told_by_its_own_words() {
        let given = HeaderMap::from_iter([
            (header::COOKIE, HeaderValue::from_static("a=1; _xsrf=2|old; b=2")),
            (XSRF_HEADER, HeaderValue::from_static("other")),
        ]);
        let mut headers = given.clone();
        by_token(&"jupyterlab".parse().unwrap(), &mut headers);
        let cookies: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; _xsrf=00000000000000000000000000000000"]);
        assert_eq!(headers[XSRF_HEADER], XSRF_VALUE);
        let mut headers = given.clone();
        by_token(&"other".parse().unwrap(), &mut headers);
        assert_eq!(headers, given);
    }
}
