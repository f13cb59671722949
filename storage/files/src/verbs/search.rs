//! A search by name below a directory. No pattern costs more than the name is long.

use std::char::ToLowercase;

use eirene_files_protocol::{
    Answer, Code, EntryKind, Found, MOST_BYTES, MOST_FOUND, Part, RelativePath, Search, Searched,
};
use unicode_normalization::UnicodeNormalization as _;

use crate::beneath::{Last, kind_of_entry, look_at_entry, modified};
use crate::server::Job;
use crate::walk::{Account, Step, Walk};

/// Most characters of what is looked for.
const MOST_PATTERN: usize = 255;
/// Most results of a frame.
const MOST_IN_FRAME: usize = 200;

pub(super) fn run(job: &Job, search: &Search) -> Result<Answer, Code> {
    if search.limit == 0 || search.limit > MOST_FOUND || search.name.chars().count() > MOST_PATTERN {
        return Err(Code::Invalid);
    }
    let space = job.space(search.space)?;
    let top = space.find(&search.path, Last::Followed)?;
    if top.look()?.0 != EntryKind::Directory {
        return Err(Code::NotADirectory);
    }
    let pattern = Pattern::new(&search.name);
    let mut account = Account::new();
    let mut results = Results::new(job);
    let mut walk = Walk::new(false);
    walk.enter(&top, RelativePath::default(), ())?;
    while let Some(step) = walk.step(space, &job.cancelled)? {
        account.say(job)?;
        let Some(level) = walk.here() else { break };
        match step {
            Step::Entry(name) => {
                account.done(0);
                let looked = look_at_entry(level.place.as_fd(), name.as_bytes());
                let kind = kind_of_entry(&looked);
                let Ok(path) = level.path.join(&name) else {
                    account.skip(level.path.clone(), Code::TooDeep);
                    continue;
                };
                let is_plain = kind != EntryKind::Mount;
                let looked = looked.ok().filter(|_| is_plain);
                let (bytes, time) = (looked.as_ref().map(|found| found.stx_size), looked.as_ref().map(modified));
                let is_wanted = search.kind.is_none_or(|wanted| wanted == kind)
                    && search.least_bytes.is_none_or(|least| bytes.is_some_and(|bytes| bytes >= least))
                    && search.most_bytes.is_none_or(|most| bytes.is_some_and(|bytes| bytes <= most))
                    && search.since.is_none_or(|since| time.is_some_and(|time| time.seconds >= since));
                if is_wanted && pattern.matches(name.as_bytes()) {
                    results.push(Found { path: path.clone(), kind, bytes, modified: time })?;
                    if results.found == u64::from(search.limit) {
                        results.send()?;
                        let walked = account.walked;
                        return Ok(Answer::Searched(Searched { found: results.found, more: true, walked }));
                    }
                }
                if kind == EntryKind::Directory {
                    let place = level.place.child(&name);
                    if let Err(why) = place.and_then(|place| walk.enter(&place, path.clone(), ())) {
                        account.skip(path, why);
                    }
                }
            }
            Step::Unlisted(why) => account.skip(level.path.clone(), why),
            Step::Leave => drop(walk.leave()),
        }
    }
    results.send()?;
    Ok(Answer::Searched(Searched { found: results.found, more: false, walked: account.walked }))
}

/// What was found, in frames as large as they may be.
struct Results<'a> {
    job: &'a Job,
    frame: Vec<Found>,
    bytes: usize,
    found: u64,
}

impl<'a> Results<'a> {
    fn new(job: &'a Job) -> Self {
        Self { job, frame: Vec::new(), bytes: 0, found: 0 }
    }

    fn push(&mut self, found: Found) -> Result<(), Code> {
        // JSON makes at most six bytes of one.
        let most = 200 + 6 * found.path.as_bytes().len();
        if self.bytes + most > MOST_BYTES - 1024 || self.frame.len() == MOST_IN_FRAME {
            self.send()?;
        }
        self.bytes += most;
        self.found += 1;
        self.frame.push(found);
        Ok(())
    }

    fn send(&mut self) -> Result<(), Code> {
        self.bytes = 0;
        if self.frame.is_empty() { Ok(()) } else { self.job.part(Part::Found(std::mem::take(&mut self.frame))) }
    }
}

/// What a name is to be like.
enum Pattern {
    Contains(String),
    Like(Vec<char>),
}

/// What is compared of a name: composed characters (NFC), without the difference of case. One letter stays one, so that `?` stands for it: what
/// becomes two in upper case only, as the sharp s, stays as it is.
fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // Composed again at the end: what was made lower case may compose where it did not before.
    text.nfc().flat_map(lower).nfc().collect()
}

/// By way of upper case, where two small letters have the same, as the two forms of a small sigma.
fn lower(letter: char) -> ToLowercase {
    let mut upper = letter.to_uppercase();
    let single = if upper.len() == 1 { upper.next() } else { None };
    single.unwrap_or(letter).to_lowercase()
}

impl Pattern {
    fn new(text: &str) -> Self {
        let text = folded(text);
        if text.contains(['*', '?']) { Self::Like(text.chars().collect()) } else { Self::Contains(text) }
    }

    fn matches(&self, name: &[u8]) -> bool {
        let name = folded(&String::from_utf8_lossy(name));
        match self {
            Self::Contains(text) => name.contains(text.as_str()),
            Self::Like(pattern) => is_like(&name.chars().collect::<Vec<_>>(), pattern),
        }
    }
}

/// Whether a name is like a pattern. Only the last star met is gone back to, so this is at most the product of both lengths.
fn is_like(name: &[char], pattern: &[char]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star = None;
    while at < name.len() {
        match pattern.get(place) {
            Some('*') => {
                star = Some((place + 1, at));
                place += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[at] => {
                at += 1;
                place += 1;
            }
            _ => match &mut star {
                Some((behind, from)) => {
                    *from += 1;
                    (place, at) = (*behind, *from);
                }
                None => return false,
            },
        }
    }
    pattern[place..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_contains_or_is_like_what_is_looked_for() {
        for (pattern, name, matches) in [
            ("RES", "my results.csv", true),
            ("", "anything", true),
            ("\u{c4}", "\u{e4}pfel", true),
            ("*.csv", "results.CSV", true),
            ("*.csv", "results.csv.gz", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**a", "a", true),
            ("[a]*", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name.as_bytes()), matches, "{pattern} {name}");
        }
        assert!(Pattern::new("caf").matches(b"caf\xe9"));
    }

    #[test]
    fn a_name_is_found_whichever_way_its_letters_are_written() {
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
        for pattern in [composed, decomposed, "CAF\u{c9}", "CAFE\u{301}", "*f\u{e9}*", "*fe\u{301}*", "caf?"] {
            for name in [composed, decomposed, "Caf\u{c9}", "CafE\u{301}"] {
                assert!(Pattern::new(pattern).matches(name.as_bytes()), "{pattern:?} {name:?}");
            }
            assert!(!Pattern::new(pattern).matches(b"cafes"), "{pattern:?}");
        }
        for (pattern, name, matches) in [
            // A letter with its mark is not the letter without, in whichever form it is.
            ("cafe", composed, false),
            ("cafe", decomposed, false),
            ("\u{212b}", "a\u{30a}ngstrom", true),
            ("\u{3c3}", "\u{39f}\u{394}\u{39f}\u{3a3}", true),
            ("\u{3bf}\u{3b4}\u{3bf}\u{3c2}", "\u{39f}\u{394}\u{39f}\u{3a3}", true),
            ("s\u{307}\u{323}", "\u{1e68}", true),
            ("\u{d55c}", "\u{1112}\u{1161}\u{11ab}", true),
            ("stra?e", "stra\u{df}e", true),
            ("STRA\u{1e9e}E", "stra\u{df}e", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name.as_bytes()), matches, "{pattern:?} {name:?}");
        }
        // What is no text stays what it is, and what stands around it is found in both forms.
        for name in [&b"\xff caf\xc3\xa9"[..], b"\xff cafe\xcc\x81"] {
            for pattern in [composed, decomposed, "*\u{c9}"] {
                assert!(Pattern::new(pattern).matches(name), "{pattern:?} {name:?}");
            }
        }
        assert!(!Pattern::new(composed).matches(b"caf\xe9"), "a byte that is no text is no letter");
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = Pattern::new(&"*a".repeat(120));
        assert!(!pattern.matches("a".repeat(119).as_bytes()));
        assert!(!Pattern::new(&format!("{}b", "*a".repeat(100))).matches("a".repeat(255).as_bytes()));
    }

    fn slow(name: &[char], pattern: &[char]) -> bool {
        match (name, pattern) {
            ([], []) => true,
            (_, ['*', rest @ ..]) => (0..=name.len()).any(|skip| slow(&name[skip..], rest)),
            ([first, name @ ..], [wanted, rest @ ..]) if *wanted == '?' || wanted == first => slow(name, rest),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_is_what_stars_and_question_marks_mean(name in "[ab]{0,8}", pattern in "[ab*?]{0,8}") {
            let (name, pattern): (Vec<_>, Vec<_>) = (name.chars().collect(), pattern.chars().collect());
            prop_assert_eq!(is_like(&name, &pattern), slow(&name, &pattern));
        }
    }
}
