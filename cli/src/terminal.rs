//! What others wrote, made safe for a terminal: text, line ends, tabs and colours pass; what moves the cursor, sets the title, fills the
//! clipboard or asks the terminal anything does not (ECMA-48; xterm's "Control Sequences").

/// Longest colour sequence that is passed on.
const LONGEST_COLOUR: usize = 32;

/// Filters bytes as they come; a sequence may be cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Filter(State);

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and `[`: the parameters so far.
    Control(Vec<u8>),
    /// In a control sequence that is no colour, before its last byte.
    Foreign,
    /// After the first byte of U+0080 to U+00BF; U+0080 to U+009F are controls.
    Upper,
}

impl Filter {
    /// What of `bytes` may be shown.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.0 = match (std::mem::take(&mut self.0), byte) {
                (State::Escape, b'[') => State::Control(Vec::new()),
                (State::Control(parameters), b'm') => {
                    shown.extend_from_slice(b"\x1b[");
                    shown.extend_from_slice(&parameters);
                    shown.push(b'm');
                    State::Text
                }
                (State::Control(mut parameters), b'0'..=b'9' | b';' | b':') if parameters.len() < LONGEST_COLOUR => {
                    parameters.push(byte);
                    State::Control(parameters)
                }
                (State::Control(_) | State::Foreign, 0x20..=0x3f) => State::Foreign,
                (State::Control(_) | State::Foreign, 0x40..=0x7e) | (State::Upper, 0x80..=0x9f) => State::Text,
                (State::Upper, 0xa0..=0xbf) => {
                    shown.extend_from_slice(&[0xc2, byte]);
                    State::Text
                }
                (_, 0x1b) => State::Escape,
                (_, 0xc2) => State::Upper,
                (_, b'\n' | b'\r' | b'\t' | 0x20..=0x7e | 0x80..) => {
                    shown.push(byte);
                    State::Text
                }
                (_, _) => State::Text,
            };
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same in one piece and byte by byte.
    fn shown(text: &str) -> String {
        let mut filter = Filter::default();
        let single: Vec<u8> = text.bytes().flat_map(|byte| filter.pass(&[byte])).collect();
        assert_eq!(single, Filter::default().pass(text.as_bytes()));
        String::from_utf8(single).unwrap()
    }

    #[test]
    fn text_and_colours_pass() {
        for text in ["plain\n\ttext\r\n", "größer ½ 日本", "\u{1b}[1;38:5:3mred\u{1b}[0m", "\u{1b}[m"] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn what_acts_on_the_terminal_does_not() {
        for (text, left) in [
            ("\u{1b}]52;c;ZXZpbA==\u{7}x", "]52;c;ZXZpbA==x"),
            ("\u{1b}]0;title\u{1b}\\x", "]0;title\\x"),
            ("a\u{1b}[2Jb\u{1b}[10;10Hc\u{1b}[?1049hd", "abcd"),
            ("a\u{9b}2Jb\u{9d}0;t\u{9c}", "a2Jb0;t"),
            ("a\u{8}\u{7f}\u{0}b\u{1b}cd", "abcd"),
        ] {
            assert_eq!(shown(text), left, "{text:?}");
        }
    }
}
