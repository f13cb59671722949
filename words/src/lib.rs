//! The message catalogue: every word a person reads on a page of ours or in an answer to a request, from one file.
//!
//! Code asks by key: the portal's views for texts ([`Words::get`], [`Words::fill`], [`Words::count`]), whoever explains something for
//! a [`Sentence`] ([`say`], [`say_with`], [`say_count`]). Reasons, problems and field errors take nothing but sentences, so none of
//! them can be written into the code. Tests read all sources: they find keys that nobody defined, messages that nobody says and
//! sentences that went round the catalogue, so that a second language is a second file.
//!
//! What programs on the nodes, the launcher, the commands and the logs say is theirs and does not come from here.

mod catalogue;
#[cfg(test)]
mod sources;

use std::sync::LazyLock;

use eirene_core::Sentence;

pub use catalogue::{Words, WordsError, fill};

#[expect(clippy::expect_used, reason = "compiled in; a test reads it")]
static ENGLISH: LazyLock<Words> = LazyLock::new(|| {
    Words::parse(include_str!("../../frontend/messages/en.toml")).expect("the compiled-in catalogue is good")
});

/// The catalogue, compiled in and read once.
pub fn words() -> &'static Words {
    &ENGLISH
}

/// The sentence with this key.
pub fn say(key: &str) -> Sentence {
    Sentence::from_catalogue(words().get(key))
}

/// The sentence with this key, each `{name}` replaced by the value given for it.
pub fn say_with(key: &str, values: &[(&str, &str)]) -> Sentence {
    Sentence::from_catalogue(words().fill(key, values))
}

/// The sentence with this key for a number of things, `{n}` and each other `{name}` replaced.
pub fn say_count(key: &str, n: u64, values: &[(&str, &str)]) -> Sentence {
    Sentence::from_catalogue(words().count_with(key, n, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_those_of_the_catalogue() {
        assert_eq!(say("reason.stopped").as_str(), "It was stopped as asked.");
        assert_eq!(say_with("wrong.between", &[("least", "1"), ("most", "9")]).as_str(), "must be between 1 and 9");
        assert_eq!(say_count("problem.invalid", 1, &[]).as_str(), "one field is wrong");
        assert_eq!(say_count("problem.invalid", 3, &[]).as_str(), "3 fields are wrong");
    }
}
