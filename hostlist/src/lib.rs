//! SLURM's host lists: `c[1-3,07-09],x1`, also with several brackets in one name (`r[1-2]n[01-04]`).
//!
//! For the scheduler adapter and the training runtime alike: inside a container there is often no `scontrol` to expand one. And what SLURM counts
//! by node, in the order of such a list.

/// What was given is no host list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host list")]
pub struct Malformed;

/// Most names one list may stand for: a hostile or broken list must not fill the memory.
pub const MOST_NAMES: usize = 65_536;

/// Most digits of a number in a range.
const MOST_DIGITS: usize = 18;

/// The names a host list stands for, in its order, at most [`MOST_NAMES`]; none for an empty text.
///
/// # Errors
/// [`Malformed`] when brackets do not match, a range runs backwards, a name is no host name or the list stands for too many.
pub fn expand(text: &str) -> Result<Vec<String>, Malformed> {
    let mut names = Vec::new();
    if text.trim().is_empty() {
        return Ok(names);
    }
    for item in split_outside_brackets(text.trim()).ok_or(Malformed)? {
        names.extend(expand_item(item, MOST_NAMES - names.len()).ok_or(Malformed)?);
    }
    if names.iter().all(|name| is_host_name(name)) { Ok(names) } else { Err(Malformed) }
}

/// Counts by node, at most [`MOST_NAMES`]: `8(x2),4` are eight on the first two nodes and four on the third.
///
/// # Errors
/// [`Malformed`] for what is no such text, also a count of nothing.
pub fn counts(text: &str) -> Result<Vec<u32>, Malformed> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => {
                (count, times.strip_suffix(')').and_then(|times| times.parse::<usize>().ok()).ok_or(Malformed)?)
            }
            None => (part, 1),
        };
        let count = count.parse::<u32>().ok().filter(|count| *count > 0).ok_or(Malformed)?;
        if times > MOST_NAMES - all.len() {
            return Err(Malformed);
        }
        all.extend(std::iter::repeat_n(count, times));
    }
    Ok(all)
}

/// Letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
fn is_host_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The items between commas that are in no bracket; none when brackets do not match or are nested.
fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let mut items = Vec::new();
    let (mut begin, mut inside) = (0, false);
    for (index, c) in text.char_indices() {
        match c {
            '[' if inside => return None,
            ']' if !inside => return None,
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                items.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    items.push(&text[begin..]);
    (!inside).then_some(items)
}

/// All names of one item, at most `room`.
fn expand_item(item: &str, room: usize) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, behind)) = rest.split_once('[') {
        let (ranges, behind) = behind.split_once(']')?;
        let numbers = numbers(ranges, room / names.len())?;
        names =
            names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}"))).collect();
        rest = behind;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    (names.len() <= room).then_some(names)
}

/// The numbers of `1-3,07-09`, as written, at most `room`.
fn numbers(ranges: &str, room: usize) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        if [low, high]
            .iter()
            .any(|text| text.is_empty() || text.len() > MOST_DIGITS || !text.bytes().all(|byte| byte.is_ascii_digit()))
        {
            return None;
        }
        let width = low.len();
        let (low, high) = (low.parse::<u64>().ok()?, high.parse::<u64>().ok()?);
        let count = usize::try_from(high.checked_sub(low)?).ok()?.checked_add(1)?;
        if count > room.checked_sub(numbers.len())? {
            return None;
        }
        numbers.extend((low..=high).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expanded(text: &str) -> Vec<String> {
        expand(text).unwrap()
    }

    #[test]
    fn ranges_lists_and_padding_are_expanded() {
        assert_eq!(expanded("c[1-3,07-09],x1"), ["c1", "c2", "c3", "c07", "c08", "c09", "x1"]);
        assert_eq!(expanded("r[1-2]n[01-02]"), ["r1n01", "r1n02", "r2n01", "r2n02"]);
        assert_eq!(expanded("n[9-11]-ib"), ["n9-ib", "n10-ib", "n11-ib"]);
        assert_eq!(expanded("n[098-101]"), ["n098", "n099", "n100", "n101"]);
        assert_eq!(expanded("gpu-a.example.org"), ["gpu-a.example.org"]);
        assert!(expanded("").is_empty());
    }

    #[test]
    fn counts_are_told_node_by_node() {
        assert_eq!(counts("8(x2),4"), Ok(vec![8, 8, 4]));
        assert_eq!(counts("1"), Ok(vec![1]));
        for bad in ["", "x", "4(x", "4(xy)", "0", "4,,4", "1(x99999999999)", "1(x40000),1(x40000)"] {
            assert_eq!(counts(bad), Err(Malformed), "{bad}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for bad in [
            "c[1-3",
            "c1-3]",
            "c[3-1]",
            "c[]",
            "c[1,]",
            "c[a-b]",
            "c[1-2[3]]",
            ",",
            "a,,b",
            "c 1",
            "$(id)",
            "c[1-2-3]",
            "-c1",
        ] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bomb_does_not_explode() {
        assert_eq!(expand("c[1-65536]").unwrap().len(), MOST_NAMES);
        for bomb in [
            "c[1-65537]",
            "c[1-999999999999999999]",
            "a[1-1000]b[1-1000]c[1-1000]",
            "c[1-65536],d",
            "c[0-99999999999999999999]",
        ] {
            assert!(expand(bomb).is_err(), "{bomb}");
        }
    }

    proptest! {
        #[test]
        fn a_range_has_its_numbers(low in 0_u32..2000, more in 0_u32..200, width in 1_usize..6) {
            let text = format!("n[{low:0width$}-{:0width$}]", low + more);
            let names = expanded(&text);
            prop_assert_eq!(names.len(), more as usize + 1);
            prop_assert_eq!(names.first().cloned(), Some(format!("n{low:0width$}")));
            prop_assert_eq!(names.last().cloned(), Some(format!("n{:0width$}", low + more)));
        }

        #[test]
        fn no_text_panics_or_grows(text in "[a-c0-9,\\[\\]-]{0,60}") {
            if let Ok(names) = expand(&text) {
                prop_assert!(names.len() <= MOST_NAMES);
            }
        }
    }
}
