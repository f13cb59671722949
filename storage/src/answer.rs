//! Judges a tool's exit status and its text together: either alone is known to lie. BeeGFS prints half answers with a status that is not
//! zero, and sentences of trouble with one that is.

use eirene_core::storage::{Partial, Ran, StorageError};

use crate::doubts::{Doubts, printable};
use crate::noise::{self, Trouble};

/// Where the launcher cuts standard output; an answer of that length has lost its end.
const MOST_STDOUT: usize = 16 * 1024 * 1024;

/// What is to be thought of an answer without rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Empty {
    /// There is always a row: it was not understood.
    Wrong,
    /// There may be none.
    Fine,
    /// There may be none, which is then said: where nothing at all is printed nobody answered.
    Said,
}

/// Reads an answer's rows by `parse` and adds the doubts that status and standard error give.
pub(crate) fn rows<T>(
    ran: &Ran,
    empty: Empty,
    parse: impl FnOnce(&str) -> Partial<Vec<T>>,
) -> Result<Partial<Vec<T>>, StorageError> {
    if ran.stdout.len() >= MOST_STDOUT {
        return Err(StorageError::Malformed { what: "the answer is too long and was cut".into() });
    }
    let parsed = parse(&ran.stdout);
    let complaint = said(ran);
    if parsed.value.is_empty() {
        if let Some((trouble, line)) = complaint {
            return Err(trouble.error(line));
        }
        if ran.status == 0 && empty == Empty::Said && first_line(&ran.stdout).or(first_line(&ran.stderr)).is_none() {
            return Err(Trouble::Away.error("the servers said nothing: they are down, or have only just started"));
        }
        if ran.status != 0 || empty == Empty::Wrong || !parsed.doubts.is_empty() {
            let what = parsed.doubts.first().map_or_else(|| no_rows(ran), |doubt| doubt.text.clone());
            return Err(StorageError::Malformed { what });
        }
        return Ok(parsed);
    }
    let mut doubts = Doubts::default();
    doubts.add(parsed.doubts);
    if ran.status != 0 {
        doubts.whole(first_line(&ran.stderr).unwrap_or("the tool ended with an error"));
    } else if let Some((_, line)) = noise::complaint(&ran.stderr) {
        doubts.whole(line);
    }
    Ok(doubts.with(parsed.value))
}

/// Judges an answer that is a success or not, and holds nothing else. Beside a success only whole sentences of trouble count: remarks about
/// licences and connections are made there, too, and what was set is read back anyway.
pub(crate) fn done(ran: &Ran) -> Result<(), StorageError> {
    if ran.status == 0 {
        let mut lines = ran.stderr.lines().chain(ran.stdout.lines());
        return match lines.find_map(|line| noise::trouble(line).map(|trouble| trouble.error(line))) {
            Some(error) => Err(error),
            None => Ok(()),
        };
    }
    match said(ran) {
        Some((trouble, line)) => Err(trouble.error(line)),
        None => Err(StorageError::Malformed { what: no_rows(ran) }),
    }
}

/// The sentence of trouble in an answer, if there is one.
fn said(ran: &Ran) -> Option<(Trouble, &str)> {
    let in_answer = || ran.stdout.lines().find_map(|line| noise::trouble(line).map(|trouble| (trouble, line)));
    noise::complaint(&ran.stderr).or_else(in_answer)
}

fn no_rows(ran: &Ran) -> String {
    let line = first_line(&ran.stderr).or_else(|| first_line(&ran.stdout)).unwrap_or("nothing was printed");
    format!("exit status {}: {}", ran.status, printable(line))
}

/// The first line that says something: the banner of 7 does not.
fn first_line(text: &str) -> Option<&str> {
    let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("| ") && !line.starts_with("-----");
    text.lines().find(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(status: i32, stdout: &str, stderr: &str) -> Ran {
        Ran { status, stdout: stdout.into(), stderr: stderr.into() }
    }

    fn read(ran: &Ran, empty: Empty) -> Result<Partial<Vec<String>>, StorageError> {
        rows(ran, empty, |text| {
            let mut doubts = Doubts::default();
            let rows = noise::lines(text, &mut doubts).into_iter().map(|(_, line)| line.to_owned()).collect();
            doubts.with(rows)
        })
    }

    #[test]
    fn status_and_text_are_judged_together() {
        assert!(read(&ran(0, "a\n", ""), Empty::Wrong).unwrap().doubts.is_empty());
        assert!(!read(&ran(1, "a\n", ""), Empty::Wrong).unwrap().doubts.is_empty());
        assert!(!read(&ran(0, "a\nUnable to connect\n", ""), Empty::Wrong).unwrap().doubts.is_empty());
        assert!(!read(&ran(0, "a\n", "Communication with server failed: x"), Empty::Wrong).unwrap().doubts.is_empty());
        let away = read(&ran(0, "", "Communication with server failed: x"), Empty::Fine);
        assert!(matches!(away, Err(StorageError::Away { .. })), "{away:?}");
        assert!(matches!(read(&ran(0, "", ""), Empty::Wrong), Err(StorageError::Malformed { .. })));
        assert!(matches!(read(&ran(7, "", ""), Empty::Fine), Err(StorageError::Malformed { .. })));
        assert!(read(&ran(0, "", ""), Empty::Fine).unwrap().value.is_empty());
        assert!(matches!(read(&ran(0, "\n", ""), Empty::Said), Err(StorageError::Away { .. })));
        assert!(matches!(read(&ran(7, "", ""), Empty::Said), Err(StorageError::Malformed { .. })));
        let none = |_: &str| Partial { value: Vec::<u8>::new(), doubts: Vec::new() };
        assert!(rows(&ran(0, "Sum: 0 [sum]\n", ""), Empty::Said, none).unwrap().value.is_empty());
    }

    #[test]
    fn an_answer_that_was_cut_is_none() {
        let cut = read(&ran(0, &"a\n".repeat(MOST_STDOUT / 2), ""), Empty::Wrong);
        assert!(matches!(cut, Err(StorageError::Malformed { .. })), "{cut:?}");
    }

    #[test]
    fn a_change_is_done_or_not() {
        assert!(done(&ran(0, "Using default storage pool (1)\n", "")).is_ok());
        assert!(matches!(
            done(&ran(1, "This mode requires root privileges.\n", "")),
            Err(StorageError::Refused { .. })
        ));
        assert!(matches!(done(&ran(1, "", "what")), Err(StorageError::Malformed { .. })));
        assert!(
            matches!(done(&ran(0, "Unable to resolve given name: ada\n", "")), Err(StorageError::NoSuchPlace { path }) if path == "ada")
        );
        assert!(done(&ran(0, "", "the license ends in 30 days\n")).is_ok());
        assert!(matches!(done(&ran(1, "", "the license has ended\n")), Err(StorageError::Refused { .. })));
    }
}
