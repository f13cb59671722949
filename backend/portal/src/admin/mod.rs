//! Pages for those who run the portal; everybody else is told that there is nothing here.

pub(crate) mod activity;
pub(crate) mod audit;
pub(crate) mod efficiency;
pub(crate) mod health;
pub(crate) mod nodes;
pub(crate) mod people;
pub(crate) mod quotas;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod spaces;
pub(crate) mod storage;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All that is not unreserved (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Text as a part of a query.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_in_a_query_cannot_become_more_than_text() {
        assert_eq!(super::encode("a&b=c d/ü"), "a%26b%3Dc%20d%2F%C3%BC");
    }
}
