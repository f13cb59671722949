//! Reads `/proc/self/mountinfo` (proc(5)). A mount is found by its id, which the kernel gives for an open directory: a path may be covered
//! by another mount, hold links, or be mounted twice.

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The kernel's id.
    pub(super) id: u64,
    /// The directory of the file system that is mounted.
    pub(super) root: String,
    /// Where.
    pub(super) point: String,
    /// Type.
    pub(super) kind: String,
    /// Device or server.
    pub(super) source: String,
}

/// The mount of this id; lines that cannot be read are nobody's.
pub(super) fn by_id(mountinfo: &str, id: u64) -> Option<Mount> {
    mountinfo.lines().filter_map(read).find(|mount| mount.id == id)
}

fn read(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ');
    let id = words.next()?.parse().ok()?;
    let (root, point) = (words.nth(2)?, words.next()?);
    let mut words = file_system.split(' ');
    let (kind, source) = (words.next()?, words.next()?);
    Some(Mount { id, root: plain(root), point: plain(point), kind: plain(kind), source: plain(source) })
}

/// Spaces, tabs, newlines and backslashes are written as `\` and three octal digits.
fn plain(word: &str) -> String {
    let bytes = word.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = (bytes[at] == b'\\').then(|| bytes.get(at + 1..at + 4).and_then(byte_of)).flatten();
        text.push(octal.unwrap_or(bytes[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn byte_of(octal: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
36 22 0:45 /sub /mnt/a\\040b rw,nosuid shared:5 master:1 - beegfs beegfs_nodev rw,cfgFile=/etc/x\n\
37 22 0:45 / /mnt/b ro - nfs4 server:/export\\134x rw\n\
broken line\n";

    #[test]
    fn a_mount_is_found_by_its_id() {
        let mount = by_id(SAMPLE, 36).unwrap();
        assert_eq!((mount.root.as_str(), mount.point.as_str(), mount.kind.as_str()), ("/sub", "/mnt/a b", "beegfs"));
        assert_eq!(by_id(SAMPLE, 37).unwrap().source, "server:/export\\x");
        assert_eq!(by_id(SAMPLE, 38), None);
    }

    proptest! {
        #[test]
        fn no_mountinfo_panics(text in "[ -\\\\0-9a-z/\n]{0,200}", id in any::<u64>()) {
            let _ = by_id(&text, id);
        }

        #[test]
        fn any_name_of_a_mount_point_is_read_as_it_is(name in "[ -~\t]{1,40}") {
            let octal = |c: char| format!("\\{:03o}", c as u32);
            let written: String =
                name.chars().map(|c| if " \t\\".contains(c) { octal(c) } else { c.to_string() }).collect();
            let line = format!("1 0 0:1 / /{written} rw - xfs s rw\n");
            prop_assert_eq!(by_id(&line, 1).unwrap().point, format!("/{name}"));
        }
    }
}
