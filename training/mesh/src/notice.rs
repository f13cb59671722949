//! The meeting file: where rank 0 listens, written for the ranks that see the same path.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::error::Error;
use crate::proof::digest;
use crate::secret::{Secret, from_hex, open_private, random_u64, to_hex};

const FIRST_LINE: &str = "eirene-train-mesh 1";
/// Longer files are not ours.
const MOST_BYTES: u64 = 64 << 10;

/// What stands in the file.
#[derive(Debug)]
pub(crate) struct Notice {
    /// Stands for the world's id.
    pub(crate) world: [u8; 32],
    /// Rank 0's host, as its entry says it.
    pub(crate) host: [u8; 16],
    /// Where rank 0 listens; none if it does so beside the file.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The secret, if the plan had none.
    pub(crate) secret: Option<Secret>,
}

impl Notice {
    pub(crate) fn new(world: &str, host: [u8; 16], addresses: Vec<SocketAddr>, secret: Option<Secret>) -> Self {
        Self { world: digest(world), host, addresses, secret }
    }

    fn to_text(&self) -> Zeroizing<String> {
        let addresses: Vec<String> = self.addresses.iter().map(|address| format!("address {address}\n")).collect();
        let addresses = addresses.concat();
        let (world, host) = (to_hex(&self.world), to_hex(&self.host));
        let mut text = Zeroizing::new(String::with_capacity(512 + addresses.len()));
        for part in [FIRST_LINE, "\nworld ", &world, "\nhost ", &host, "\n", &addresses] {
            text.push_str(part);
        }
        if let Some(secret) = &self.secret {
            text.push_str("secret ");
            text.push_str(&secret.to_hex());
            text.push('\n');
        }
        text
    }

    /// Total: anything but a whole notice is `None`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let (mut world, mut host) = ([0; 32], [0; 16]);
        let ids = from_hex(lines.next()?.strip_prefix("world ")?.as_bytes(), &mut world)
            && from_hex(lines.next()?.strip_prefix("host ")?.as_bytes(), &mut host);
        let mut notice = Self { world, host, addresses: Vec::new(), secret: None };
        for line in lines {
            match line.split_once(' ')? {
                ("address", address) => notice.addresses.push(address.parse().ok()?),
                ("secret", digits) => notice.secret = Some(Secret::from_hex(digits)?),
                _ => return None,
            }
        }
        ids.then_some(notice)
    }

    /// Reads the file; `None` if it is not there (yet), or not of this world.
    pub(crate) fn read(path: &Path, world: &str) -> Result<Option<Self>, Error> {
        let file = match open_private(path) {
            Ok(file) => file,
            Err(Error::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Zeroizing::new(String::new());
        // A file of a dead world may be anything; it is waited out.
        let read = file.take(MOST_BYTES).read_to_string(&mut text);
        Ok(read.ok().and_then(|_| Self::parse(&text)).filter(|notice| notice.world == digest(world)))
    }
}

/// The file, as rank 0 has written it; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Posted {
    path: PathBuf,
    inode: u64,
    process: u32,
}

impl Posted {
    /// Writes the notice whole and at once, readable by us only.
    pub(crate) fn write(path: &Path, notice: &Notice) -> Result<Self, Error> {
        let mut name = path.file_name().ok_or_else(|| Error::invalid("the meeting file needs a name"))?.to_owned();
        name.push(format!(".{}", to_hex(&random_u64()?.to_le_bytes())));
        let draft = path.with_file_name(name);
        let written = Self::draft(&draft, notice).and_then(|inode| {
            fs::rename(&draft, path).map_err(Error::system("put the meeting file in its place"))?;
            Ok(inode)
        });
        match written {
            Ok(inode) => Ok(Self { path: path.into(), inode, process: std::process::id() }),
            Err(error) => {
                let _ = fs::remove_file(&draft);
                Err(error)
            }
        }
    }

    fn draft(draft: &Path, notice: &Notice) -> Result<u64, Error> {
        use std::os::unix::fs::MetadataExt as _;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(draft)
            .map_err(Error::system("make the meeting file"))?;
        file.write_all(notice.to_text().as_bytes()).map_err(Error::system("write the meeting file"))?;
        Ok(file.metadata().map_err(Error::system("look at the meeting file"))?.ino())
    }
}

/// Removes a meeting file whose writer is dead, and what it may have been about to put in its place.
pub(crate) fn remove_dead(path: &Path) {
    let _ = fs::remove_file(path);
    remove_drafts(path, Duration::ZERO);
}

/// Removes what was to become the meeting file and is at least this old: a writer that lives puts it in its place at once.
pub(crate) fn remove_drafts(path: &Path, age: Duration) {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let draft = entry.file_name();
        let number = draft.to_str().and_then(|draft| draft.strip_prefix(name)?.strip_prefix('.'));
        let is_old = || {
            let modified = entry.metadata().and_then(|meta| meta.modified());
            age.is_zero() || modified.is_ok_and(|at| at.elapsed().is_ok_and(|past| past >= age))
        };
        if number.is_some_and(|number| from_hex(number.as_bytes(), &mut [0; 8])) && is_old() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        use std::os::unix::fs::MetadataExt as _;
        if self.process == std::process::id() && fs::symlink_metadata(&self.path).is_ok_and(|it| it.ino() == self.inode)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_notice_is_read_by_its_world_only_and_goes_with_its_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meeting");
        assert!(Notice::read(&path, "w").unwrap().is_none());
        let addresses = vec!["10.0.0.1:7".parse().unwrap(), "[fd00::1]:7".parse().unwrap()];
        let notice = Notice::new("w", [3; 16], addresses.clone(), Some(Secret::from_bytes([5; 16])));
        let posted = Posted::write(&path, &notice).unwrap();
        let read = Notice::read(&path, "w").unwrap().unwrap();
        assert_eq!((read.addresses, read.host), (addresses, [3; 16]));
        assert_eq!(read.secret.unwrap().expose(), &[5; 16]);
        assert!(Notice::read(&path, "v").unwrap().is_none());
        let later = Posted::write(&path, &notice).unwrap();
        drop(posted);
        assert!(path.exists(), "a later writer's file stays");
        drop(later);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

        // Its writer was killed before it put it in its place.
        Posted::draft(&directory.path().join("meeting.00112233445566ff"), &notice).unwrap();
        fs::write(directory.path().join("meeting.old"), "somebody's").unwrap();
        remove_drafts(&path, Duration::from_hours(1));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "it may live");
        remove_drafts(&path, Duration::from_nanos(1));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_notice_others_could_have_written_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("meeting");
        let _posted = Posted::write(&path, &Notice::new("w", [3; 16], Vec::new(), None)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(matches!(Notice::read(&path, "w"), Err(Error::SecretFile { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String, at: prop::sample::Index, with: char) {
            let _ = Notice::parse(&text);
            let notice = Notice::new("w", [3; 16], vec!["10.0.0.1:7".parse().unwrap()], Some(Secret::from_bytes([5; 16])));
            let mut changed: Vec<char> = notice.to_text().chars().collect();
            let at = at.index(changed.len());
            changed[at] = with;
            let _ = Notice::parse(&changed.iter().collect::<String>());
            let cut: String = changed.iter().take(at).collect();
            let _ = Notice::parse(&cut);
        }
    }
}
