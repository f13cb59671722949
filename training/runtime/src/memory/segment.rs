//! One memfd, mapped.

use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::error::Error;

/// What is shared between processes begins at multiples of this: a cache line, and the next one that is fetched with it.
pub(crate) const LINE: usize = 128;

/// Nobody may make it smaller under the others' feet (that would be a SIGBUS for them), or take the seals off.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// Memory shared with other processes. Zero when new.
#[derive(Debug)]
pub(crate) struct Segment {
    address: NonNull<u8>,
    bytes: NonZeroUsize,
    /// None for somebody else's: the mapping is all that is needed of it, and a process may not have many open.
    descriptor: Option<OwnedFd>,
}

// SAFETY: it is plain memory; whoever writes to it answers for how.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// New memory, committed when it is first touched, or by [`Self::commit`].
    pub(crate) fn new(name: &CStr, bytes: usize) -> Result<Self, Error> {
        let refused = |what: &str, errno: nix::Error| Error::memory(bytes, what, errno);
        let length = i64::try_from(bytes).map_err(|_| refused("size", nix::Error::EOVERFLOW))?;
        let descriptor = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(|errno| refused("create", errno))?;
        ftruncate(&descriptor, length).map_err(|errno| refused("size", errno))?;
        fcntl(&descriptor, FcntlArg::F_ADD_SEALS(SEALS)).map_err(|errno| refused("seal", errno))?;
        let mut segment = Self::map(&descriptor, bytes)?;
        segment.descriptor = Some(descriptor);
        Ok(segment)
    }

    /// Whether a file may be so long: the system's answer to trying would be a signal.
    pub(crate) fn may_be(bytes: usize) -> bool {
        getrlimit(Resource::RLIMIT_FSIZE).is_ok_and(|(soft, _)| bytes as u64 <= soft)
    }

    /// Sees to it that some of our own memory is there now: too little is an error here and not a signal later.
    pub(crate) fn commit(&self, begin: usize, bytes: usize) -> Result<(), Error> {
        // The kernel would take what is left from everybody, and then end somebody, before it says no.
        if available().is_some_and(|left| bytes > left) {
            return Err(Error::memory(bytes, "commit", nix::Error::ENOMEM));
        }
        self.allocate(FallocateFlags::empty(), begin, bytes).map_err(|errno| Error::memory(bytes, "commit", errno))
    }

    /// Gives some of our own memory back to the system, for all who have mapped it; it is zero when it is used again.
    pub(crate) fn give_back(&self, begin: usize, bytes: usize) {
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // Where that is refused, it goes with the last mapping.
        let _ = self.allocate(hole, begin, bytes);
    }

    fn allocate(&self, flags: FallocateFlags, begin: usize, bytes: usize) -> Result<(), nix::Error> {
        let descriptor = self.descriptor.as_ref().ok_or(nix::Error::EBADF)?;
        let number = |value: usize| i64::try_from(value).map_err(|_| nix::Error::EOVERFLOW);
        fallocate(descriptor, flags, number(begin)?, number(bytes)?)
    }

    /// Somebody else's memory, of which `bytes` are wanted.
    pub(crate) fn theirs(descriptor: &OwnedFd, bytes: usize) -> Result<Self, Error> {
        let refused = |what: &str, errno: nix::Error| Error::memory(bytes, what, errno);
        let seals = fcntl(descriptor, FcntlArg::F_GET_SEALS).map_err(|errno| refused("read the seals of", errno))?;
        let there = fstat(descriptor).map_err(|errno| refused("measure", errno))?.st_size;
        if !SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK)
            || usize::try_from(there).unwrap_or(0) < bytes
        {
            return Err(refused("trust", nix::Error::EINVAL));
        }
        Self::map(descriptor, bytes)
    }

    fn map(descriptor: &OwnedFd, bytes: usize) -> Result<Self, Error> {
        let length = NonZeroUsize::new(bytes).ok_or_else(|| Error::memory(0, "map", nix::Error::EINVAL))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, descriptor, 0)
        }
        .map_err(|errno| Error::memory(bytes, "map", errno))?;
        Ok(Self { address: address.cast(), bytes: length, descriptor: None })
    }

    /// Asks for large pages, where the machine gives them for such memory.
    pub(crate) fn prefer_large_pages(&self) {
        // SAFETY: advice about a mapping that is ours. A refusal leaves small pages, which is no error.
        let _ = unsafe {
            nix::sys::mman::madvise(self.address.cast(), self.bytes.get(), nix::sys::mman::MmapAdvise::MADV_HUGEPAGE)
        };
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// What to hand to another rank; none if this is another rank's.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// The `T` at an offset.
    ///
    /// # Safety
    /// `T` must be valid for any bytes and for changes by others at any time: atomics, and structures of them.
    pub(crate) unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(
            offset + size_of::<T>() <= self.bytes() && offset.is_multiple_of(align_of::<T>()),
            "within the segment"
        );
        // SAFETY: within the mapping and aligned, as just seen (a mapping begins at a page); the rest is the caller's word.
        unsafe { &*self.address().add(offset).cast() }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length; whoever holds addresses into it holds the segment too.
        let _ = unsafe { munmap(self.address.cast(), self.bytes.get()) };
    }
}

/// Bytes that this process can still have: what the machine has, and what the control groups leave it. None where nobody says.
pub(crate) fn available() -> Option<usize> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_groups(Path::new("/sys/fs/cgroup"), &groups).into_iter().chain(machine).min()
}

fn of_machine(information: &str) -> Option<usize> {
    let line = information.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// What each control group that this process is in, and each above it, leaves it.
fn of_groups(mount: &Path, groups: &str) -> Vec<usize> {
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let rooms = groups.lines().flat_map(|line| {
        // Version 2: `0::/path`; version 1: `n:memory:/path`.
        let (root, limit, usage, cached, path) = match line.split_once("::") {
            Some((_, path)) => {
                (mount.to_owned(), "memory.max", "memory.current", ["inactive_file", "active_file"], path)
            }
            None => match line.split_once(":memory:") {
                Some((_, path)) => {
                    let cached = ["total_inactive_file", "total_active_file"];
                    (mount.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", cached, path)
                }
                None => return Vec::new(),
            },
        };
        let path = Path::new(path.trim_start_matches('/'));
        let room = |group: &Path| {
            let place = root.join(group);
            let used = number(place.join(usage))?;
            // What was read from files makes way.
            let cache = std::fs::read_to_string(place.join("memory.stat")).unwrap_or_default();
            let cache = cache.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| cached.contains(name));
            let cache: usize = cache.filter_map(|(_, bytes)| bytes.trim().parse::<usize>().ok()).sum();
            Some(number(place.join(limit))?.saturating_sub(used.saturating_sub(cache)))
        };
        path.ancestors().filter_map(room).collect()
    });
    rooms.collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn what_the_machine_has_left_is_read_in_bytes() {
        assert_eq!(of_machine("MemTotal:  9 kB\nMemAvailable:   1234 kB\n"), Some(1234 << 10));
        assert_eq!(of_machine("MemTotal:  9 kB\n"), None);
    }

    #[test]
    fn the_job_s_limit_is_found_above_its_step_s_group() {
        let mount = tempfile::tempdir().unwrap();
        for (group, files) in [
            ("system.slice/slurmstepd.scope/job_42", [("memory.max", "100"), ("memory.current", "30")]),
            ("system.slice/slurmstepd.scope/s5K1KKYAYG5D00", [("memory.max", "200"), ("memory.current", "30")]),
            ("memory/slurm/uid_1000/job_42", [("memory.limit_in_bytes", "300"), ("memory.usage_in_bytes", "30")]),
        ] {
            let place = mount.path().join(group);
            std::fs::create_dir_all(place.join("step_0/user/task_0")).unwrap();
            std::fs::write(place.join("step_0/memory.max"), "max\n").unwrap();
            for (name, text) in files {
                std::fs::write(place.join(name), text).unwrap();
            }
            let lines = if group.starts_with("memory") {
                "inactive_file 1\nactive_file 1\ntotal_inactive_file 12\ntotal_active_file 3\n"
            } else {
                "anon 9\nfile 20\ninactive_file 12\nactive_file 3\nshmem 5\n"
            };
            std::fs::write(place.join("memory.stat"), lines).unwrap();
        }
        for (groups, expected) in [
            // SLURM 24.11, SLURM 26.05, and version 1 with either.
            ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", &[85][..]),
            ("0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n", &[185]),
            (
                "5:cpu,cpuacct:/\n4:memory:/slurm/uid_1000/job_42/step_0/task_0\n0::/system.slice/slurmd.service\n",
                &[285],
            ),
            ("0::/system.slice/slurmd.service\n", &[]),
            ("", &[]),
        ] {
            assert_eq!(of_groups(mount.path(), groups), expected, "{groups}");
        }
    }

    #[test]
    fn two_mappings_are_the_same_memory() {
        let mine = Segment::new(c"test", 10_000).unwrap();
        let theirs = Segment::theirs(&mine.descriptor().unwrap().try_clone_to_owned().unwrap(), 10_000).unwrap();
        // SAFETY: atomics.
        let (a, b) = unsafe { (mine.at::<AtomicU64>(8), theirs.at::<AtomicU64>(8)) };
        a.store(7, Ordering::Release);
        assert_eq!(b.load(Ordering::Acquire), 7);
    }

    #[test]
    fn nobody_can_shrink_it() {
        let segment = Segment::new(c"test", 10_000).unwrap();
        assert!(ftruncate(segment.descriptor().unwrap(), 100).is_err());
    }

    #[test]
    fn memory_that_could_shrink_or_is_too_small_is_not_trusted() {
        let open = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&open, 10_000).unwrap();
        assert!(Segment::theirs(&open, 10_000).is_err());
        let small = Segment::new(c"test", 4096).unwrap();
        assert!(Segment::theirs(&small.descriptor().unwrap().try_clone_to_owned().unwrap(), 10_000).is_err());
    }

    #[test]
    fn what_is_given_back_is_gone_for_all_who_have_it_mapped() {
        let mine = Segment::new(c"test", 1 << 20).unwrap();
        let theirs = Segment::theirs(&mine.descriptor().unwrap().try_clone_to_owned().unwrap(), 1 << 20).unwrap();
        let pages = || fstat(mine.descriptor().unwrap()).unwrap().st_blocks;
        mine.commit(4096, 8192).unwrap();
        assert!(pages() > 0);
        // SAFETY: atomics.
        let (a, b) = unsafe { (mine.at::<AtomicU64>(4096), theirs.at::<AtomicU64>(4096)) };
        a.store(7, Ordering::Release);
        mine.give_back(4096, 8192);
        assert_eq!(pages(), 0);
        assert_eq!(b.load(Ordering::Acquire), 0);
    }

    #[test]
    fn too_much_is_an_error_that_says_how_much() {
        let segment = Segment::new(c"test", 1 << 42).unwrap();
        let error = segment.commit(0, 1 << 42).unwrap_err();
        assert!(error.to_string().contains("4398046511104"), "{error}");
    }
}
