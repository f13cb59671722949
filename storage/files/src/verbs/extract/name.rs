//! Names of members: what leads anywhere else than below the new directory is no name, however it is written.

use eirene_files_protocol::{Code, RelativePath, UPLOAD_PREFIX};

/// How deep a member may lie: walks that copy or remove the directory go as deep.
const MOST_DEPTH: usize = 60;

/// The path of a member below the new directory; none: the directory itself, as `./`.
///
/// # Errors
/// [`Code::Unsafe`] for what is empty, absolute, of a drive, or climbs, also for whoever takes a backslash for a slash; [`Code::TooDeep`],
/// [`Code::NameTooLong`], and [`Code::Reserved`] for what the platform would take for its own.
pub(super) fn parse(name: &[u8]) -> Result<Option<RelativePath>, Code> {
    check_climbing(name, |byte| *byte == b'/')?;
    check_climbing(name, |byte| matches!(byte, b'/' | b'\\'))?;
    // A directory's name ends with a slash; writers of archives begin with `./`.
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| *part != b".").collect();
    if parts.is_empty() {
        return Ok(None);
    }
    if parts.iter().any(|part| part.is_empty()) {
        return Err(Code::Unsafe);
    }
    if parts.iter().any(|part| part.len() > 255) {
        return Err(Code::NameTooLong);
    }
    if parts.iter().any(|part| part.starts_with(UPLOAD_PREFIX)) {
        return Err(Code::Reserved);
    }
    if parts.len() > MOST_DEPTH {
        return Err(Code::TooDeep);
    }
    RelativePath::parse(&parts.join(&b'/')).map(Some).map_err(|_| Code::Unsafe)
}

fn check_climbing(name: &[u8], is_separator: impl Fn(&u8) -> bool) -> Result<(), Code> {
    let is_drive = matches!(name, [letter, b':', rest @ ..]
        if letter.is_ascii_alphabetic() && rest.first().is_none_or(&is_separator));
    let is_absolute = name.first().is_none_or(&is_separator);
    if is_drive || is_absolute || name.contains(&0) || name.split(is_separator).any(|part| part == b"..") {
        return Err(Code::Unsafe);
    }
    Ok(())
}

/// Whether a symbolic link at `path` stays below the new directory. It may climb before it names anything, as far as its own directories
/// reach, and not after: a name could be another link, from whose end `..` leads elsewhere than the text says.
pub(super) fn stays(path: &RelativePath, target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) || target.len() > 4095 {
        return false;
    }
    let mut room = path.components().count().saturating_sub(1);
    let mut has_named = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if has_named || room == 0 => return false,
            b".." => room -= 1,
            _ => has_named = true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        let long = [b'n'; 256];
        let deep = ["d"; MOST_DEPTH + 1].join("/");
        let evil: [(&[u8], Code); 21] = [
            (b"", Code::Unsafe),
            (b"/", Code::Unsafe),
            (b"/etc/passwd", Code::Unsafe),
            (b"..", Code::Unsafe),
            (b"../a", Code::Unsafe),
            (b"a/../../b", Code::Unsafe),
            (b"a/..", Code::Unsafe),
            (b"a//b", Code::Unsafe),
            (b"..\\a", Code::Unsafe),
            (b"a\\..\\..\\b", Code::Unsafe),
            (b"\\\\server\\share", Code::Unsafe),
            (b"C:\\x", Code::Unsafe),
            (b"c:/x", Code::Unsafe),
            (b"C:", Code::Unsafe),
            (b"a\0b", Code::Unsafe),
            (b"a//", Code::Unsafe),
            (b".//", Code::Unsafe),
            (b".//.", Code::Unsafe),
            (&long, Code::NameTooLong),
            (b"a/.eirene-upload-x", Code::Reserved),
            (deep.as_bytes(), Code::TooDeep),
        ];
        for (name, why) in evil {
            assert_eq!(parse(name), Err(why), "{}", name.escape_ascii());
        }
        let fine: [(&[u8], &[u8]); 6] = [
            (b"./a/./b", b"a/b"),
            (b"a/", b"a"),
            (b"a:b", b"a:b"),
            (b"...", b"..."),
            (b"unit-x\\x2dy", b"unit-x\\x2dy"),
            (b"caf\xe9", b"caf\xe9"),
        ];
        for (name, path) in fine {
            assert_eq!(parse(name).unwrap().unwrap().as_bytes(), path, "{}", name.escape_ascii());
        }
        assert_eq!(parse(b"./"), Ok(None));
    }

    #[test]
    fn a_link_that_may_leave_does_not_stay() {
        let link = RelativePath::parse(b"a/b/link").unwrap();
        for stays in [b"x".as_slice(), b"../x", b"../../x", b"./../x/y", b"..", b"../..", b"x/"] {
            assert!(super::stays(&link, stays), "{}", stays.escape_ascii());
        }
        for leaves in [b"".as_slice(), b"/x", b"../../../x", b"../../..", b"x/../../../..", b"x/../y", b"x\0y"] {
            assert!(!super::stays(&link, leaves), "{}", leaves.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_member_lies_elsewhere_than_below(name in prop::collection::vec(prop::sample::select(b"./\\:Ca\0".to_vec()), 0..12)) {
            if let Ok(Some(path)) = parse(&name) {
                let is_plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
                prop_assert!(path.as_bytes().split(|byte| *byte == b'/').all(is_plain));
                prop_assert!(!name.starts_with(b"/") && !name.starts_with(b"\\"));
            }
        }

        #[test]
        fn a_link_that_stays_resolves_below(depth in 0_usize..4, target in "(\\.\\./|\\./|a/|b/|/){0,6}(\\.\\.|a)?") {
            let link = RelativePath::parse([vec!["d"; depth], vec!["link"]].concat().join("/").as_bytes()).unwrap();
            if stays(&link, target.as_bytes()) {
                let mut at = depth;
                for part in target.split('/') {
                    match part {
                        "" | "." => {}
                        ".." => {
                            prop_assert!(at > 0);
                            at -= 1;
                        }
                        _ => at += 1,
                    }
                }
            }
        }
    }
}
