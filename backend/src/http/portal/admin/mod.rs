//! Pages for those who run the portal; everybody else is told that there is nothing here.

pub(crate) mod activity;
pub(crate) mod audit;
pub(crate) mod nodes;
pub(crate) mod people;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod spaces;
pub(crate) mod storage;

/// Text as a part of a query: everything but letters, digits and `-._~` as `%XX`.
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_in_a_query_cannot_become_more_than_text() {
        assert_eq!(super::encode("a&b=c d/ü"), "a%26b%3Dc%20d%2F%C3%BC");
    }
}
