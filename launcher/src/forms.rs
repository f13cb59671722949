//! Forms of command lines: which arguments, in which order, and what may stand in their values' places.
//!
//! A command line that fits no form does not run. Which forms there are is each program's own affair.

use eirene_core::scheduler::read_signed_reason;

/// Longest path.
pub(crate) const LONGEST_PATH_BYTES: usize = 1024;
/// Longest name.
pub(crate) const LONGEST_NAME_BYTES: usize = 255;
const MOST_DIGITS: usize = 10;
/// As many as every 64-bit number has at least.
const MOST_DIGITS_OF_AMOUNTS: usize = 19;

/// What stands in a value's place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Name,
    /// A positive decimal number.
    Number,
    /// `N`, or `NAME:N`.
    Gpus,
    /// An absolute path; `%j` in it is the job's number.
    Path,
    /// A decimal number, 0 among them.
    Id,
    /// Two of them, the second no smaller: `A-B`.
    Range,
    /// How much: digits or `unlimited`.
    Limit,
    /// An absolute path in a storage, whatever its names are made of.
    StoragePath,
    /// The name of one node: not `all`, which is every node to SLURM.
    Node,
    /// Why a node is drained, and who says so: one argument of free text, so for no program that reads it as anything else.
    DrainReason,
}

/// An argument, or several.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// This very argument.
    Word(&'static str),
    /// A beginning, a value, an end.
    Must(&'static str, Value, &'static str),
    /// The same, but it may be missing.
    May(&'static str, Value, &'static str),
    /// This very argument, or none.
    MayWord(&'static str),
    /// These very arguments.
    Words(&'static [&'static str]),
    /// One of these arguments.
    OneOf(&'static [&'static str]),
    /// One of these arguments, or none.
    MayOneOf(&'static [&'static str]),
}

/// Whether the arguments are the parts, all of them and nothing else.
pub(crate) fn fits(parts: &[Part], arguments: &[String]) -> bool {
    let mut rest = arguments.iter().map(String::as_str).peekable();
    for part in parts {
        let (good, optional): (&dyn Fn(&str) -> bool, bool) = match *part {
            Part::Word(word) => (&move |argument| argument == word, false),
            Part::MayWord(word) => (&move |argument| argument == word, true),
            Part::Must(begin, value, end) => (&move |argument| has_value(argument, begin, value, end), false),
            Part::May(begin, value, end) => (&move |argument| has_value(argument, begin, value, end), true),
            Part::OneOf(words) => (&move |argument| words.contains(&argument), false),
            Part::MayOneOf(words) => (&move |argument| words.contains(&argument), true),
            Part::Words(words) => {
                if words.iter().all(|word| rest.next_if_eq(word).is_some()) {
                    continue;
                }
                return false;
            }
        };
        if rest.next_if(|argument| good(argument)).is_none() && !optional {
            return false;
        }
    }
    rest.next().is_none()
}

fn has_value(argument: &str, begin: &str, value: Value, end: &str) -> bool {
    let Some(text) = argument.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)) else { return false };
    match value {
        Value::Name => is_name(text),
        Value::Number => is_number(text),
        Value::Gpus => match text.rsplit_once(':') {
            Some((name, number)) => is_name(name) && is_number(number),
            None => is_number(text),
        },
        Value::Path => is_path(text),
        Value::Id => is_id(text),
        Value::Range => text.split_once('-').is_some_and(|(first, last)| {
            is_id(first) && is_id(last) && first.parse::<u64>().ok() <= last.parse::<u64>().ok()
        }),
        Value::Limit => text == "unlimited" || is_amount(text),
        Value::StoragePath => is_storage_path(text),
        Value::Node => is_name(text) && !text.eq_ignore_ascii_case("all"),
        Value::DrainReason => read_signed_reason(text).is_some(),
    }
}

fn is_id(text: &str) -> bool {
    text == "0" || is_number(text)
}

fn is_amount(text: &str) -> bool {
    text == "0"
        || (1..=MOST_DIGITS_OF_AMOUNTS).contains(&text.len())
            && !text.starts_with('0')
            && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// One argument, whatever it is made of; without control characters, which would end lines of logs.
fn is_storage_path(text: &str) -> bool {
    text.len() <= LONGEST_PATH_BYTES
        && text.starts_with('/')
        && !text.chars().any(char::is_control)
        && !text.split('/').any(|component| matches!(component, "." | ".."))
}

/// The names of SLURM that the portal takes too.
fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME_BYTES
        && text.strip_prefix('_').unwrap_or(text).bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-+@".contains(&byte))
}

fn is_number(text: &str) -> bool {
    (1..=MOST_DIGITS).contains(&text.len()) && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_path(text: &str) -> bool {
    text.len() <= LONGEST_PATH_BYTES
        && text.starts_with('/')
        && !text.replace("%j", "").chars().any(|c| c.is_whitespace() || c.is_control() || ",%\\\"'".contains(c))
        && !text.split('/').any(|component| component == "..")
}
