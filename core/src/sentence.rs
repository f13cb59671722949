//! What people read: a text that was not written into the code.

use std::fmt;

use crate::text::one_line;

/// A sentence for people. There is none from a literal: it comes from the message catalogue (the crate `eirene-words`), or somebody
/// else has said it. Whatever explains something takes one of these, so that every word of ours can be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence(String);

impl Sentence {
    /// A message of the catalogue; only `eirene-words` has any.
    pub fn from_catalogue(text: String) -> Self {
        Self(text)
    }

    /// What a person or another program has said, or what was written down earlier, on one line.
    pub fn from_elsewhere(text: &str) -> Self {
        Self(one_line(text, usize::MAX))
    }

    /// The sentence as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Sentence> for String {
    fn from(sentence: Sentence) -> Self {
        sentence.0
    }
}
