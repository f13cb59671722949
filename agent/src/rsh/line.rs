//! The command line of ssh(1), as far as it says which command runs on which node: launchers write it, so all of it is understood, what does
//! not matter within a session is passed over, and what asks for more than a command is refused by name.

use std::ffi::OsString;

/// Options that matter only to a connection over the network: without, and with an argument of their own.
const PASSED_OVER: &str = "1246aACgkKqTtvxXyY";
const PASSED_OVER_WITH: &str = "BbcEeFIimPpS";
/// Options that ask for more than a command.
const MORE: &str = "GMNs";
const MORE_WITH: &str = "DJLOQRWw";

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// The version (`-V`).
    Version,
    /// A command.
    Call(Call),
}

/// A command on another node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// The node, as it was written.
    pub(super) host: String,
    /// As whom, if that was said.
    pub(super) user: Option<String>,
    /// One argument for the shell over there; without it that shell reads its standard input.
    pub(super) command: Option<String>,
    /// Whether it reads nothing (`-n`).
    pub(super) no_input: bool,
    /// Whether the caller does not wait (`-f`).
    pub(super) background: bool,
}

/// Understands a command line without the program's name; otherwise one sentence.
pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Line, String> {
    let text =
        |word: OsString| word.into_string().map_err(|word| format!("`{}` is no text in UTF-8", word.to_string_lossy()));
    let mut words = words.into_iter().map(text).peekable();
    let (mut call, mut host) = (Call::default(), None);
    loop {
        // Options may stand before the host and behind it, up to `--` or the command's first word.
        while let Some(word) = words.next_if(|word| word.as_ref().is_ok_and(|word| is_option(word))) {
            let word = word?;
            if word == "--" {
                break;
            }
            if options(&word[1..], &mut words, &mut call)? {
                return Ok(Line::Version);
            }
        }
        if host.is_some() {
            break;
        }
        let Some(word) = words.next() else {
            return Err("say on which node: `eirene-rsh NODE COMMAND`".to_owned());
        };
        host = Some(word?);
    }
    let host = host.unwrap_or_default();
    // A name may hold an `@`, a host may not.
    match host.rsplit_once('@') {
        Some((user, host)) => (call.user, call.host) = (Some(user.to_owned()), host.to_owned()),
        None => call.host = host,
    }
    let command = words.collect::<Result<Vec<_>, _>>()?;
    // As ssh does it: what the words were is the other shell's to say.
    call.command = (!command.is_empty()).then(|| command.join(" "));
    Ok(Line::Call(call))
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// One word of options, without its dash; true where it asks for the version.
fn options(
    word: &str,
    words: &mut impl Iterator<Item = Result<String, String>>,
    call: &mut Call,
) -> Result<bool, String> {
    let more =
        |letter| format!("`-{letter}` is more than eirene-rsh does: it runs a command on a node of this session");
    for (at, letter) in word.char_indices() {
        match letter {
            'V' => return Ok(true),
            'n' => call.no_input = true,
            'f' => (call.no_input, call.background) = (true, true),
            _ if PASSED_OVER.contains(letter) => {}
            _ if MORE.contains(letter) || MORE_WITH.contains(letter) => return Err(more(letter)),
            _ if letter == 'l' || letter == 'o' || PASSED_OVER_WITH.contains(letter) => {
                let rest = &word[at + 1..];
                let value = if rest.is_empty() { words.next().transpose()? } else { Some(rest.to_owned()) };
                let value = value.ok_or_else(|| format!("`-{letter}` needs an argument"))?;
                match letter {
                    'l' => call.user = Some(value),
                    'o' => call.user = named_user(&value).or(call.user.take()),
                    _ => {}
                }
                return Ok(false);
            }
            _ => return Err(format!("`-{letter}` is no option of ssh's")),
        }
    }
    Ok(false)
}

/// The name in `User=ada` (ssh_config(5)).
fn named_user(option: &str) -> Option<String> {
    let (name, value) = option.split_once(['=', ' '])?;
    name.trim().eq_ignore_ascii_case("user").then(|| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(words: &[&str]) -> Result<Line, String> {
        read(words.iter().map(OsString::from))
    }

    fn call(words: &[&str]) -> Call {
        match line(words) {
            Ok(Line::Call(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn launchers_lines_are_understood() {
        let plain = Call { host: "c2".into(), command: Some("hostname".into()), ..Call::default() };
        for words in [
            &["c2", "hostname"][..],
            &["-x", "c2", "hostname"],
            &["-xqTtA", "-p", "2222", "-p2222", "c2", "hostname"],
            &["-o", "StrictHostKeyChecking=no", "-oBatchMode=yes", "-i", "/key", "c2", "hostname"],
            &["c2", "-q", "--", "hostname"],
            &["--", "c2", "hostname"],
        ] {
            assert_eq!(call(words), plain, "{words:?}");
        }
        assert_eq!(call(&["-n", "c2", "hostname"]), Call { no_input: true, ..plain.clone() });
        assert_eq!(call(&["-f", "c2", "hostname"]), Call { no_input: true, background: true, ..plain.clone() });
        for words in [
            &["-l", "ada", "c2", "hostname"][..],
            &["-lada", "c2", "hostname"],
            &["ada@c2", "hostname"],
            &["c2", "-l", "ada", "hostname"],
            &["-o", "User=ada", "c2", "hostname"],
            &["-o", "user ada", "c2", "hostname"],
        ] {
            assert_eq!(call(words), Call { user: Some("ada".into()), ..plain.clone() }, "{words:?}");
        }
        assert_eq!(call(&["c2"]).command, None);
        // A dash behind the command's first word is the command's.
        assert_eq!(call(&["c2", "ls", "-l", "--", "x"]).command.as_deref(), Some("ls -l -- x"));
        assert_eq!(line(&["-V"]), Ok(Line::Version));
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let refused = |words: &[&str]| line(words).unwrap_err();
        assert!(refused(&[]).starts_with("say on which node"));
        assert!(refused(&["-x"]).starts_with("say on which node"));
        assert_eq!(refused(&["-p"]), "`-p` needs an argument");
        assert_eq!(refused(&["-z", "c2"]), "`-z` is no option of ssh's");
        for option in ["-L", "-R", "-D", "-J", "-W", "-w", "-O", "-Q", "-G", "-M", "-N", "-s"] {
            assert!(refused(&[option, "c2", "true"]).starts_with(&format!("`{option}` is more than")), "{option}");
        }
    }

    proptest! {
        #[test]
        fn a_command_stays_one_argument_byte_for_byte(options in prop::collection::vec("-[1246aACgkKqTtvxXyY]{1,4}", 0..4),
                                                      first in "[^\0-][^\0]{0,30}", more in prop::collection::vec("[^\0]{0,20}", 0..5)) {
            let command: Vec<String> = std::iter::once(first).chain(more).collect();
            let words = options.into_iter().chain(["c2".to_owned()]).chain(command.clone());
            let Ok(Line::Call(call)) = read(words.map(OsString::from)) else { panic!("refused") };
            prop_assert_eq!(call.command, Some(command.join(" ")));
            prop_assert_eq!(call.host, "c2");
        }

        #[test]
        fn no_line_is_a_panic(words in prop::collection::vec("\\PC{0,8}", 0..6)) {
            let _ = read(words.into_iter().map(OsString::from));
        }
    }
}
