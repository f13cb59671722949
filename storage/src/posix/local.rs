//! Looks at places from this process, each time in a thread of its own that is given up when it takes too long. For hosts where this
//! process may see the mounts; a thread that hangs in a dead mount stays until the mount comes back, and meanwhile nobody looks there again.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::name::{RootName, Username};
use eirene_core::storage::{Identity, Place, StorageError, Why};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::mounts::{self, Mount};
use super::patience::{Patience, RETRY_AFTER_S};
use super::{Look, Own, OwnQuota, Probe, Project, Room};

/// How long a look may take.
const LONGEST: Duration = Duration::from_secs(10);
/// The administrator's marker in a root of spaces, and the most it may hold, bytes.
const MARKER: &str = ".eirene-root";
const LONGEST_MARKER: u64 = 64;
/// Most of a module's version that is read, bytes.
const LONGEST_VERSION: u64 = 64;

/// Looks from this process at directories that root's configuration names.
#[derive(Debug, Clone)]
pub struct LocalProbe {
    roots: BTreeMap<RootName, PathBuf>,
    patience: Patience,
}

impl LocalProbe {
    /// Knows these roots of spaces; homes are asked of the user database.
    pub fn new(roots: BTreeMap<RootName, PathBuf>) -> Self {
        Self { roots, patience: Patience::default() }
    }

    /// The directory that is opened as it is, and what is opened beneath it without following a link.
    fn paths(&self, place: &Place) -> Result<(PathBuf, PathBuf), StorageError> {
        let root = |name: &RootName| {
            self.roots.get(name).cloned().ok_or_else(|| StorageError::NoSuchPlace { path: name.to_string() })
        };
        Ok(match place {
            Place::Home(person) => (home(person)?, PathBuf::new()),
            Place::InHome { person, below } => (home(person)?, below.as_str().into()),
            Place::Root(name) => (root(name)?, PathBuf::new()),
            Place::Space { root: name, name: space, below } => {
                let beneath = below
                    .as_ref()
                    .map_or_else(|| space.as_str().into(), |b| Path::new(space.as_str()).join(b.as_str()));
                (root(name)?, beneath)
            }
            Place::OwnSpace { root: name, name: space, .. } => (root(name)?, space.as_str().into()),
        })
    }

    fn look_now(&self, place: &Place) -> Result<Look, StorageError> {
        let (base, beneath) = self.paths(place)?;
        match place {
            Place::Home(_) | Place::OwnSpace { .. } => look_at_own(&base, &beneath),
            Place::InHome { .. } => look_at(&base, &beneath, false),
            Place::Root(_) | Place::Space { .. } => look_at(&base, &beneath, true),
        }
    }
}

/// The home of a person, as the user database has it.
fn home(person: &Username) -> Result<PathBuf, StorageError> {
    let user = nix::unistd::User::from_name(person.as_str()).map_err(away)?;
    Ok(user.ok_or_else(|| StorageError::NoSuchPlace { path: format!("~{person}") })?.dir)
}

/// Looks at `beneath` below `base`, which is opened as it is, and beneath which no link is followed; `marked` has the administrator's marker in
/// `base` read. It may take for ever.
///
/// # Errors
/// What the kernel said.
pub fn look_at(base: &Path, beneath: &Path, marked: bool) -> Result<Look, StorageError> {
    look(base, beneath, marked, |_| None)
}

/// Looks at `beneath` below `base` as [`look_at`] does, and asks what the file system counts for whoever looks, where the directory is theirs: a
/// home, which is a base of its own, or their space. It may take for ever.
///
/// # Errors
/// As [`look_at`].
pub fn look_at_own(base: &Path, beneath: &Path) -> Result<Look, StorageError> {
    look(base, beneath, false, own_quota)
}

fn look(
    base: &Path,
    beneath: &Path,
    marked: bool,
    own: impl FnOnce(&OwnedFd) -> Option<Own>,
) -> Result<Look, StorageError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    // Nothing in it is read, so it need not be readable; of one that is not the project is not seen.
    let only_there = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let shown = base.join(beneath);
    let root = open(base, flags, Mode::empty())
        .or_else(|error| if_hidden(error, || open(base, only_there, Mode::empty())))
        .map_err(|error| wrong(error, &shown))?;
    let marker = if marked { marker(&root) } else { None };
    let directory = if beneath.as_os_str().is_empty() {
        root
    } else {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let beneath = |flags| openat2(&root, beneath, OpenHow::new().flags(flags).resolve(resolve));
        beneath(flags)
            .or_else(|error| if_hidden(error, || beneath(only_there)))
            .map_err(|error| wrong(error, &shown))?
    };
    let mount = mount_of(&directory)?;
    let point = open(Path::new(&mount.point), only_there, Mode::empty())
        .ok()
        .filter(|point| mount_id(point).is_some_and(|id| id == mount.id));
    let statistics = fstatvfs(&directory).map_err(|error| wrong(error, &shown))?;
    let root_inode = point.as_ref().and_then(inode);
    let before = point.as_ref().and_then(|point| room(point).ok());
    let here = room(&directory).map_err(|error| wrong(error, &shown))?;
    let after = point.as_ref().and_then(|point| room(point).ok());
    Ok(Look {
        path: of_descriptor(&directory)?.to_string_lossy().into_owned(),
        directory: here,
        mount: after,
        steady: before.map(|room| room.files) == after.map(|room| room.files),
        project: project(&directory),
        mount_point: mount.point,
        mounted: mount.root,
        client_version: client_version(&mount.kind),
        own: own(&directory),
        identity: Identity {
            kind: mount.kind,
            source: mount.source,
            root_inode,
            marker,
            fs_id: statistics.filesystem_id(),
            mount_id: mount.id,
        },
    })
}

fn if_hidden(error: Errno, otherwise: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    if error == Errno::EACCES { otherwise() } else { Err(error) }
}

#[async_trait]
impl Probe for LocalProbe {
    async fn look(&self, place: &Place) -> Result<Look, StorageError> {
        let (probe, at) = (self.clone(), place.clone());
        self.patience.wait(place, LONGEST, move || probe.look_now(&at)).await
    }

    fn roots(&self) -> Vec<RootName> {
        self.roots.keys().cloned().collect()
    }
}

/// What an error of the kernel means: a stale or dead mount is away, nothing else is.
fn wrong(error: Errno, path: &Path) -> StorageError {
    let path = path.to_string_lossy().into_owned();
    match error {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG => StorageError::NoSuchPlace { path },
        Errno::EACCES | Errno::EPERM | Errno::ELOOP | Errno::EXDEV => {
            StorageError::Refused { why: Why::Refused, text: format!("`{path}`: {}", error.desc()) }
        }
        other => away(other),
    }
}

fn away(error: Errno) -> StorageError {
    StorageError::Away { source: Some(error.into()), retry_after_s: RETRY_AFTER_S }
}

fn of_descriptor(file: &OwnedFd) -> Result<PathBuf, StorageError> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|error| StorageError::Away { source: Some(error.into()), retry_after_s: RETRY_AFTER_S })
}

fn mount_of(file: &OwnedFd) -> Result<Mount, StorageError> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_id(file).and_then(|id| mounts::by_id(&mountinfo, id)).ok_or_else(|| StorageError::Malformed {
        what: "the mount of a directory is not in `/proc/self/mountinfo`".into(),
    })
}

/// What the client's module says of itself; it is text of the kernel's, and bounded all the same.
fn client_version(kind: &str) -> Option<String> {
    if kind != "beegfs" {
        return None;
    }
    let mut text = String::new();
    fs::File::open("/sys/module/beegfs/version").ok()?.take(LONGEST_VERSION).read_to_string(&mut text).ok()?;
    let word = text.trim();
    (!word.is_empty() && !word.chars().any(char::is_control)).then(|| word.to_owned())
}

fn mount_id(file: &OwnedFd) -> Option<u64> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    about.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

fn inode(file: &OwnedFd) -> Option<u64> {
    Some(fs::File::from(file.try_clone().ok()?).metadata().ok()?.ino())
}

fn room(file: &OwnedFd) -> Result<Room, Errno> {
    let said = fstatvfs(file)?;
    let block = said.fragment_size();
    Ok(Room {
        total: said.blocks().saturating_mul(block),
        free: said.blocks_free().saturating_mul(block),
        available: said.blocks_available().saturating_mul(block),
        files: said.files(),
        files_free: said.files_free(),
        read_only: said.flags().contains(FsFlags::ST_RDONLY),
    })
}

/// The marker of a root, if it is a small plain file in it.
fn marker(root: &OwnedFd) -> Option<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = fs::File::from(nix::fcntl::openat(root, MARKER, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LONGEST_MARKER + 1).read_to_string(&mut text).ok()?;
    let word = text.trim();
    (!word.is_empty() && text.len() as u64 <= LONGEST_MARKER && word.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| word.to_owned())
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_on_write_extent_size: u32,
    padding: [u8; 8],
}

/// `_IOR('X', 31, struct fsxattr)` and the flag that what is made below gets the project, of `linux/fs.h`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_XFLAG_PROJINHERIT: u32 = 0x0000_0200;

#[expect(unsafe_code, reason = "nix knows no ioctl for project ids")]
fn project(directory: &OwnedFd) -> Option<Project> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open for the whole call, and the kernel writes at most the 28 bytes of `Attributes`, which are all plain numbers.
    let status = unsafe {
        libc::ioctl(directory.as_fd().as_raw_fd(), FS_IOC_FSGETXATTR.into(), std::ptr::from_mut(&mut attributes))
    };
    (status == 0).then_some(Project { id: attributes.project, inherited: attributes.flags & FS_XFLAG_PROJINHERIT != 0 })
}

/// `QCMD` of `linux/quota.h` shifts the command by 8; the lowest bits are `USRQUOTA`, 0.
const GET_USER_QUOTA: u32 = (libc::Q_GETQUOTA as u32) << 8;
/// Units in which limits of bytes count (`QIF_DQBLKSIZE`); what is used is told in bytes.
const QUOTA_BLOCK: u64 = 1024;

/// What the file system of a directory counts for whoever looks. Only of a directory of theirs: it is whose home it is that is asked for, and the
/// kernel tells people nobody else's. Root is held by no quota.
fn own_quota(directory: &OwnedFd) -> Option<Own> {
    let uid = nix::unistd::geteuid();
    let owner = fstat(directory).ok()?.st_uid;
    (!uid.is_root() && owner == uid.as_raw()).then(|| told(owner, user_quota(directory, owner)))
}

#[expect(unsafe_code, reason = "nix knows no quotactl_fd(2)")]
fn user_quota(directory: &OwnedFd, uid: u32) -> Result<libc::dqblk, Errno> {
    // SAFETY: all its fields are numbers, which may be 0.
    let mut told: libc::dqblk = unsafe { std::mem::zeroed() };
    let directory = directory.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for the whole call, and the kernel writes one `dqblk`.
    let status =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, directory, GET_USER_QUOTA, uid, std::ptr::from_mut(&mut told)) };
    Errno::result(status).map(|_| told)
}

/// What an answer of quotactl(2) means.
fn told(uid: u32, answer: Result<libc::dqblk, Errno>) -> Own {
    // 0 is no limit.
    let lower = |soft: u64, hard: u64| [soft, hard].into_iter().filter(|limit| *limit > 0).min();
    match answer {
        Ok(told) => Own::Told(OwnQuota {
            uid,
            used: told.dqb_curspace,
            limit: lower(told.dqb_bsoftlimit, told.dqb_bhardlimit).map(|blocks| blocks.saturating_mul(QUOTA_BLOCK)),
            files: told.dqb_curinodes,
            files_limit: lower(told.dqb_isoftlimit, told.dqb_ihardlimit),
        }),
        Err(Errno::ESRCH) => Own::Missing(Why::NotEnabled),
        // NFS and others count for nobody here; before Linux 5.14 nobody can be asked by a descriptor.
        Err(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV | Errno::ENOTBLK) => {
            Own::Missing(Why::NotSupported)
        }
        // Where nobody can write nobody is told either: the question may have to make a record.
        Err(Errno::EPERM | Errno::EACCES | Errno::EROFS) => Own::Missing(Why::Refused),
        // XFS has nothing written down of somebody who never had anything.
        Err(Errno::ENOENT) => Own::Missing(Why::NeverMeasured),
        Err(_) => Own::Missing(Why::DidNotAnswer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "as where it is asked for")]
    fn a_quota_is_read_with_its_units_and_no_answer_is_a_number() {
        // SAFETY: all its fields are numbers, which may be 0.
        let mut answer: libc::dqblk = unsafe { std::mem::zeroed() };
        (answer.dqb_curspace, answer.dqb_curinodes) = (5000, 3);
        let free = OwnQuota { uid: 7, used: 5000, limit: None, files: 3, files_limit: None };
        assert_eq!(told(7, Ok(answer)), Own::Told(free));
        (answer.dqb_bhardlimit, answer.dqb_ihardlimit) = (20, 50);
        let hard = OwnQuota { limit: Some(20 << 10), files_limit: Some(50), ..free };
        assert_eq!(told(7, Ok(answer)), Own::Told(hard));
        (answer.dqb_bsoftlimit, answer.dqb_isoftlimit) = (10, 60);
        assert_eq!(told(7, Ok(answer)), Own::Told(OwnQuota { limit: Some(10 << 10), ..hard }));
        for (error, why) in [
            (Errno::ESRCH, Why::NotEnabled),
            (Errno::ENOSYS, Why::NotSupported),
            (Errno::EPERM, Why::Refused),
            (Errno::EROFS, Why::Refused),
            (Errno::ENOENT, Why::NeverMeasured),
            (Errno::EIO, Why::DidNotAnswer),
        ] {
            assert_eq!(told(7, Err(error)), Own::Missing(why), "{error}");
        }
        assert_eq!(size_of::<libc::dqblk>(), 72, "`struct if_dqblk` of `linux/quota.h`");
    }

    #[test]
    fn a_quota_is_asked_for_by_whose_home_it_is_and_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        assert_eq!(look_at_own(folder.path(), Path::new("")).unwrap().own.is_some(), !is_root, "root is held by none");
        assert_eq!(look_at_own(Path::new("/"), Path::new("")).unwrap().own, None, "it is root's");
        assert_eq!(look_at(folder.path(), Path::new(""), false).unwrap().own, None, "it is no home");
        let proc: OwnedFd = fs::File::open("/proc/self").unwrap().into();
        assert!(user_quota(&proc, 7).is_err(), "it counts nobody's");
    }

    #[test]
    fn the_kernel_writes_no_more_than_fits() {
        assert_eq!(size_of::<Attributes>(), 28);
        assert_eq!(FS_IOC_FSGETXATTR >> 16 & 0x3fff, 28);
    }

    fn probe(folder: &Path) -> (LocalProbe, Place) {
        let name: RootName = "all".parse().unwrap();
        (LocalProbe::new(BTreeMap::from([(name.clone(), folder.to_owned())])), Place::Root(name))
    }

    #[test]
    fn a_marker_is_a_small_file_of_hex_digits_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (probe, root) = probe(folder.path());
        let marker = || probe.look_now(&root).unwrap().identity.marker;
        let file = folder.path().join(MARKER);
        assert_eq!(marker(), None);
        fs::write(&file, "0123456789abcdef\n").unwrap();
        assert_eq!(marker().as_deref(), Some("0123456789abcdef"));
        for bad in ["", "not hex", &"a".repeat(65)] {
            fs::write(&file, bad).unwrap();
            assert_eq!(marker(), None, "{bad:?}");
        }
        fs::write(folder.path().join("other"), "0123").unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("other", &file).unwrap();
        assert_eq!(marker(), None, "a link");
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
        assert_eq!(marker(), None, "a pipe, which nobody waits for");
    }

    #[test]
    fn a_look_tells_the_mount_and_what_it_says_is_what_the_system_says() {
        let folder = tempfile::tempdir().unwrap();
        let (probe, root) = probe(folder.path());
        let look = probe.look_now(&root).unwrap();
        assert_eq!(Path::new(&look.path), folder.path().canonicalize().unwrap());
        assert!(look.path.starts_with(look.mount_point.trim_end_matches('/')), "{look:?}");
        assert_eq!(look.identity.root_inode, Some(fs::metadata(&look.mount_point).unwrap().ino()));
        assert_eq!(look.directory.total, look.mount.unwrap().total, "no project quota here");
    }

    #[test]
    fn a_person_nobody_knows_has_no_home() {
        let (probe, _) = probe(Path::new("/"));
        let look = probe.look_now(&Place::Home("nobody.knows.them".parse().unwrap()));
        assert!(matches!(look, Err(StorageError::NoSuchPlace { .. })), "{look:?}");
    }

    #[test]
    fn a_dead_mount_is_away_and_a_missing_directory_is_not() {
        let path = Path::new("/x");
        for dead in [Errno::ESTALE, Errno::EHOSTDOWN, Errno::ENOTCONN, Errno::ETIMEDOUT, Errno::EIO] {
            assert!(matches!(wrong(dead, path), StorageError::Away { .. }), "{dead}");
        }
        assert!(matches!(wrong(Errno::ENOENT, path), StorageError::NoSuchPlace { .. }));
        assert!(matches!(wrong(Errno::EACCES, path), StorageError::Refused { .. }));
    }
}
