//! Memory: how much there is, what limits there are, and whether it can be shared the way ranks share it.
#![expect(unsafe_code, reason = "maps memory, and forks a child that reads this process's memory")]

use std::fs;
use std::num::NonZeroUsize;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, ftruncate};
use serde_json::json;

use crate::finding::{Finding, Section, bytes};
use crate::group::Groups;

/// A limit on a process: what holds now, and how far it may be raised; none where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

/// What is there.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) total: Option<u64>,
    pub(crate) available: Option<u64>,
    /// Bytes that the control group allows, and those in use.
    pub(crate) group: Option<(u64, u64)>,
    pub(crate) locked: Limit,
    pub(crate) address_space: Limit,
    pub(crate) descriptors: Limit,
    /// Whether memory can be made, sealed and shared as ranks do it.
    pub(crate) memfd: Result<(), String>,
    /// Size of `/dev/shm`; none where it is not there.
    pub(crate) shm: Option<u64>,
    /// Whether a process that is no parent of this one may read its memory (CMA).
    pub(crate) cma: Result<(), String>,
    /// The kernel's `ptrace_scope`, where it has one.
    pub(crate) scope: Option<String>,
    /// Whether there is a network that wants memory locked.
    pub(crate) infiniband: bool,
}

impl Facts {
    pub(crate) fn look(groups: &Groups, infiniband: bool) -> Self {
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let shm = nix::sys::statvfs::statvfs("/dev/shm").ok();
        Self {
            total: kibibytes(&info, "MemTotal"),
            available: available(),
            group: groups.memory(),
            locked: limit(Resource::RLIMIT_MEMLOCK),
            address_space: limit(Resource::RLIMIT_AS),
            descriptors: limit(Resource::RLIMIT_NOFILE),
            memfd: try_memfd(),
            shm: shm.map(|found| found.blocks().saturating_mul(found.fragment_size())),
            cma: try_cma(),
            scope: fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok().map(|text| text.trim().to_owned()),
            infiniband,
        }
    }
}

/// Bytes that new programs may take, as the system estimates it.
pub(crate) fn available() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable")
}

/// A line `Name:   123 kB`.
fn kibibytes(info: &str, name: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn limit(which: Resource) -> Limit {
    let known = |value: u64| (value != libc::RLIM_INFINITY).then_some(value);
    getrlimit(which).map_or_else(|_| Limit::default(), |(soft, hard)| Limit { soft: known(soft), hard: known(hard) })
}

/// Makes a page, seals its size, maps it, writes to it.
fn try_memfd() -> Result<(), String> {
    const BYTES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
    let failed = |what: &'static str| move |errno: nix::Error| format!("{what}: {}", errno.desc());
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(c"eirene-train-doctor", flags).map_err(failed("memfd_create"))?;
    ftruncate(&file, 4096).map_err(failed("ftruncate"))?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)).map_err(failed("seal"))?;
    let (rights, kind) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let page = unsafe { mmap(None, BYTES, rights, kind, &file, 0) }.map_err(failed("mmap"))?;
    // SAFETY: the page was just mapped for writing, and nobody else knows it.
    unsafe { page.cast::<u8>().as_ptr().write_volatile(1) };
    // SAFETY: it is ours, and not used again.
    unsafe { munmap(page, BYTES.get()) }.map_err(failed("munmap"))
}

/// A child reads a word of its parent: what ranks are to each other, of which none is the other's parent either.
fn try_cma() -> Result<(), String> {
    const WORD: u64 = 0x6569_7265_6e65_2121;
    let word = WORD;
    let parent = std::process::id().cast_signed();
    let mut copy = 0_u64;
    let there = libc::iovec { iov_base: (&raw const word).cast_mut().cast(), iov_len: 8 };
    let here = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: 8 };
    // SAFETY: the child calls nothing but two system calls.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // SAFETY: the places are good here and, at the same addresses, in the parent, which waits.
            let read = unsafe { libc::process_vm_readv(parent, &raw const here, 1, &raw const there, 1, 0) };
            let code = if read == 8 && copy == WORD { 0 } else { nix::errno::Errno::last_raw() & 0xff };
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(if read == 8 { i32::from(copy != WORD) } else { code.max(1) }) }
        }
        Ok(ForkResult::Parent { child }) => match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            Ok(WaitStatus::Exited(_, code)) => Err(nix::errno::Errno::from_raw(code).desc().to_owned()),
            Ok(status) => Err(format!("the process that tried it ended: {status:?}")),
            Err(errno) => Err(errno.desc().to_owned()),
        },
        Err(errno) => Err(format!("no process can be forked: {}", errno.desc())),
    }
}

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mut findings = Vec::new();
    findings.extend(amount(facts));
    findings.extend(group(facts));
    findings.push(match &facts.memfd {
        Ok(()) => Finding::ok("memory.memfd", "memory can be made, sealed and shared by descriptor (memfd)"),
        Err(problem) => Finding::problem(
            "memory.memfd",
            format!("memory cannot be shared by descriptor: {problem}"),
            "ranks of a node share memfds: let the container's seccomp profile pass memfd_create, or use Linux 3.17 or newer",
        ),
    });
    findings.push(match facts.shm {
        Some(size) => {
            Finding::ok("memory.shm", format!("/dev/shm holds {}; not used by ranks", bytes(size))).with(size)
        }
        None => Finding::ok("memory.shm", "/dev/shm is not there; not used by ranks"),
    });
    findings.push(cma(facts));
    findings.extend(limits(facts));
    Section { name: "memory", title: "memory", findings }
}

fn amount(facts: &Facts) -> Option<Finding> {
    const LITTLE: u64 = 512 << 20;
    let (total, available) = (facts.total?, facts.available?);
    let fact = format!("{} of {} are available", bytes(available), bytes(total));
    let value = json!({"total": total, "available": available});
    Some(if available < LITTLE {
        Finding::warning("memory.available", fact, "end what else runs here, or use a larger machine").with(value)
    } else {
        Finding::ok("memory.available", fact).with(value)
    })
}

fn group(facts: &Facts) -> Option<Finding> {
    const LITTLE: u64 = 512 << 20;
    let (allowed, used) = facts.group?;
    let fact = format!("the control group allows {}, of which {} are used", bytes(allowed), bytes(used));
    let value = json!({"allowed": allowed, "used": used});
    Some(if allowed.saturating_sub(used) < LITTLE {
        let cure = "memory that ranks share counts here as well: ask for more (`srun --mem`, `docker run --memory`)";
        Finding::warning("memory.group", fact, cure).with(value)
    } else {
        Finding::ok("memory.group", fact).with(value)
    })
}

fn cma(facts: &Facts) -> Finding {
    let scope = facts.scope.as_ref().map(|scope| format!(" (ptrace_scope {scope})")).unwrap_or_default();
    match &facts.cma {
        Ok(()) => {
            Finding::ok("memory.cma", format!("processes may read each other's memory (CMA){scope}; not used by ranks"))
        }
        Err(problem) => Finding::note(
            "memory.cma",
            format!("processes may not read each other's memory (CMA){scope}: {problem}; not used by ranks"),
            "nothing for eirene-train; if an Open MPI here complains of it, set OMPI_MCA_btl_vader_single_copy_mechanism=none (4) or \
             OMPI_MCA_smsc=^cma (5)",
        ),
    }
}

fn limits(facts: &Facts) -> Vec<Finding> {
    const FEW_DESCRIPTORS: u64 = 256;
    const TOO_FEW_DESCRIPTORS: u64 = 48;
    const LITTLE_SPACE: u64 = 8 << 30;
    let mut findings = Vec::new();

    let Limit { soft, hard } = facts.descriptors;
    let raise = hard.map_or_else(|| "`ulimit -n 4096`".to_owned(), |hard| format!("`ulimit -n {hard}`"));
    let value = json!({"soft": soft, "hard": hard});
    let cure =
        format!("a rank needs a few for each other rank: {raise} before the start, or ask the administrator for more");
    findings.push(
        match soft {
            Some(few) if few < TOO_FEW_DESCRIPTORS => {
                Finding::problem("memory.descriptors", format!("only {few} open files a process"), cure)
            }
            Some(few) if few < FEW_DESCRIPTORS => {
                Finding::warning("memory.descriptors", format!("{few} open files a process"), cure)
            }
            Some(number) => Finding::ok("memory.descriptors", format!("{number} open files a process")),
            None => Finding::ok("memory.descriptors", "open files are not limited"),
        }
        .with(value),
    );

    let Limit { soft, hard } = facts.address_space;
    let value = json!({"soft": soft, "hard": hard});
    findings.push(
        match soft {
            Some(space) => {
                let level = if space < LITTLE_SPACE { Finding::problem } else { Finding::warning };
                let fact = format!("address space is limited to {} a process (RLIMIT_AS)", bytes(space));
                level(
                    "memory.address_space",
                    fact,
                    "torch and memory that ranks share need address space that they never fill: `ulimit -v unlimited`",
                )
            }
            None => Finding::ok("memory.address_space", "address space is not limited"),
        }
        .with(value),
    );

    let Limit { soft, hard } = facts.locked;
    let value = json!({"soft": soft, "hard": hard});
    findings.push(match soft {
        Some(locked) if facts.infiniband => Finding::warning(
            "memory.locked",
            format!("{} may be locked (RLIMIT_MEMLOCK), and InfiniBand wants more", bytes(locked)),
            "not needed by ranks' own connections, but by MPI and NCCL: `ulimit -l unlimited`, or `--ulimit memlock=-1` for containers",
        ),
        Some(locked) => Finding::ok("memory.locked", format!("{} may be locked (RLIMIT_MEMLOCK); ranks lock none", bytes(locked))),
        None => Finding::ok("memory.locked", "any amount may be locked; ranks lock none"),
    }
    .with(value));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn facts() -> Facts {
        Facts {
            total: Some(16 << 30),
            available: Some(8 << 30),
            group: None,
            locked: Limit { soft: Some(8 << 20), hard: Some(8 << 20) },
            address_space: Limit::default(),
            descriptors: Limit { soft: Some(1024), hard: Some(4096) },
            memfd: Ok(()),
            shm: Some(64 << 20),
            cma: Ok(()),
            scope: Some("1".to_owned()),
            infiniband: false,
        }
    }

    fn level(facts: &Facts, id: &str) -> Level {
        judge(facts).findings.iter().find(|finding| finding.id == id).unwrap().level
    }

    #[test]
    fn a_good_machine_has_nothing_to_say_of() {
        assert!(judge(&facts()).findings.iter().all(|finding| finding.level == Level::Ok));
    }

    #[test]
    fn without_memfd_nothing_works() {
        let section = judge(&Facts { memfd: Err("memfd_create: Operation not permitted".to_owned()), ..facts() });
        let finding = section.findings.iter().find(|finding| finding.id == "memory.memfd").unwrap();
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.cure.as_ref().unwrap().contains("seccomp"));
    }

    #[test]
    fn tiny_limits_are_said() {
        let files = |number| Facts { descriptors: Limit { soft: Some(number), hard: Some(4096) }, ..facts() };
        assert_eq!(level(&files(32), "memory.descriptors"), Level::Problem);
        assert_eq!(level(&files(200), "memory.descriptors"), Level::Warning);
        let space = |number| Facts { address_space: Limit { soft: Some(number), hard: None }, ..facts() };
        assert_eq!(level(&space(1 << 30), "memory.address_space"), Level::Problem);
        assert_eq!(level(&space(64 << 30), "memory.address_space"), Level::Warning);
        assert_eq!(level(&Facts { available: Some(100 << 20), ..facts() }, "memory.available"), Level::Warning);
        assert_eq!(level(&Facts { group: Some((1 << 30, 1 << 30)), ..facts() }, "memory.group"), Level::Warning);
        assert_eq!(level(&Facts { group: Some((4 << 30, 1 << 30)), ..facts() }, "memory.group"), Level::Ok);
    }

    #[test]
    fn locked_memory_matters_to_infiniband_only() {
        assert_eq!(level(&facts(), "memory.locked"), Level::Ok);
        assert_eq!(level(&Facts { infiniband: true, ..facts() }, "memory.locked"), Level::Warning);
        let unlimited = Facts { infiniband: true, locked: Limit::default(), ..facts() };
        assert_eq!(level(&unlimited, "memory.locked"), Level::Ok);
    }

    #[test]
    fn what_is_not_depended_on_is_no_problem() {
        let bare = Facts { shm: None, cma: Err("Operation not permitted".to_owned()), total: None, ..facts() };
        assert_eq!((level(&bare, "memory.shm"), level(&bare, "memory.cma")), (Level::Ok, Level::Note));
        assert!(judge(&bare).findings.iter().all(|finding| finding.id != "memory.available"));
    }

    #[test]
    fn this_machine_is_seen() {
        let facts = Facts::look(&Groups::look(), false);
        assert_eq!(facts.memfd, Ok(()));
        assert!(facts.total > facts.available && facts.available > Some(0), "{facts:?}");
        assert_eq!(kibibytes("MemTotal:  12 kB\nMemFree: 1 kB\n", "MemFree"), Some(1024));
        assert_eq!(kibibytes("MemTotal: x kB", "MemTotal"), None);
    }
}
