//! Readers of the kernel's files, as pure functions. What is not understood is not there: no line and no figure is guessed.
//!
//! Formats: proc_pid_stat(5), proc_pid_io(5), proc_pid_mountinfo(5), proc_stat(5), proc_meminfo(5); the kernel's
//! Documentation/admin-guide/cgroup-v2.rst (`cpu.stat`, `memory.*`, `io.stat`), cgroup-v1/{cpuacct,memory,blkio-controller}.rst,
//! accounting/psi.rst; `/proc/net/dev` in proc_net(5); `mountstats` is written by fs/nfs/super.c.

/// From here on a limit is none: in version 1 it is then the largest number of whole pages.
pub(crate) const NO_LIMIT: u64 = 1 << 60;

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) parent: u32,
    pub(crate) session: u32,
    /// Ticks of its own, user and system.
    pub(crate) own: u64,
    /// Ticks of children that it has waited for, and of theirs.
    pub(crate) children: u64,
    /// When it began, ticks since the node did.
    pub(crate) start: u64,
    /// Pages.
    pub(crate) resident: u64,
}

/// `/proc/PID/stat`. The name may hold anything, parentheses and spaces too: it ends at the last one.
pub(crate) fn stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    // The first one here is the third of the manual page: the state.
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let field = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
    // Times of children are signed in the format, though never negative.
    Some(Stat {
        name: name.to_owned(),
        parent: u32::try_from(field(4)?).ok()?,
        session: u32::try_from(field(6)?).ok()?,
        own: field(14)?.checked_add(field(15)?)?,
        children: field(16)?.checked_add(field(17)?)?,
        start: field(22)?,
        resident: field(24)?,
    })
}

/// The number behind a key, in lines of `key number` or `key: number kB`.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.split_ascii_whitespace().next().is_some_and(|word| word.trim_end_matches(':') == key))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A file of one number. `max` is none.
pub(crate) fn single(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Bytes read and written, `/proc/PID/io`. Both are what storage saw; `rchar` and `wchar` would count the page cache and pipes.
pub(crate) fn process_io(text: &str) -> Option<(u64, u64)> {
    Some((keyed(text, "read_bytes")?, keyed(text, "write_bytes")?))
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Major and minor number, as written.
    pub(crate) device: String,
    /// Which directory of it is mounted.
    pub(crate) root: String,
    pub(crate) point: String,
    pub(crate) kind: String,
    /// Options of the file system: a hierarchy of control groups names its controllers there.
    pub(crate) options: String,
}

/// `/proc/PID/mountinfo`.
pub(crate) fn mounts(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ').skip(2);
    let mut tail = tail.split(' ');
    Some(Mount {
        device: head.next()?.to_owned(),
        root: unescape(head.next()?),
        point: unescape(head.next()?),
        kind: tail.next()?.to_owned(),
        options: tail.nth(1)?.to_owned(),
    })
}

/// The kernel writes blanks and backslashes in paths as three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = |digits: &[u8; 3]| {
            let [a, b, c] = *digits;
            let fits = (b'0'..=b'3').contains(&a) && [b, c].iter().all(|digit| (b'0'..=b'7').contains(digit));
            fits.then(|| (a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
        };
        let escaped = after.first_chunk::<3>().filter(|_| byte == b'\\').and_then(octal);
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a process is in the hierarchy with this controller, `/proc/PID/cgroup`; the empty one is version 2.
pub(crate) fn cgroup<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// The job's own group above a process: the parent of the step's group, `step_batch` or `step_0`. SLURM calls it `job_ID`; from 26.05 on it names it
/// by the job's SLUID in version 2. Where a job runs a SLURM of its own, the innermost group counts.
pub(crate) fn job_group(path: &str) -> Option<&str> {
    let step = path.rfind("/step_")?;
    path.get(..step).filter(|job| !job.is_empty())
}

/// Bytes read and written by device, `io.stat` of version 2: `8:0 rbytes=1 wbytes=2 rios=…`.
pub(crate) fn io_stat(text: &str) -> Vec<(String, u64, u64)> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let device = words.next().filter(|word| word.contains(':'))?;
        let (mut read, mut written) = (None, None);
        for word in words {
            match word.split_once('=')? {
                ("rbytes", number) => read = number.parse().ok(),
                ("wbytes", number) => written = number.parse().ok(),
                _ => {}
            }
        }
        Some((device.to_owned(), read?, written?))
    };
    text.lines().filter_map(line).collect()
}

/// The same of version 1, `blkio.throttle.io_service_bytes_recursive`: `8:0 Read 1`, then `8:0 Write 2`.
pub(crate) fn blkio(text: &str) -> Vec<(String, u64, u64)> {
    let mut found: Vec<(String, Option<u64>, Option<u64>)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [device, what, number] = words[..] else { continue };
        let Ok(number) = number.parse() else { continue };
        if !found.iter().any(|(known, ..)| known == device) {
            found.push((device.to_owned(), None, None));
        }
        let Some((_, read, written)) = found.iter_mut().find(|(known, ..)| known == device) else { continue };
        match what {
            "Read" => *read = Some(number),
            "Write" => *written = Some(number),
            _ => {}
        }
    }
    found.into_iter().filter_map(|(device, read, written)| Some((device, read?, written?))).collect()
}

/// Microseconds in which some task waited, of a pressure file.
pub(crate) fn pressure(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Bytes received and sent by interface, `/proc/net/dev`.
pub(crate) fn interfaces(text: &str) -> Vec<(&str, u64, u64)> {
    let line = |line: &'_ str| {
        let (_, figures) = line.rsplit_once(':')?;
        let figures: Vec<&str> = figures.split_ascii_whitespace().collect();
        Some((figures.first()?.parse().ok()?, figures.get(8)?.parse().ok()?))
    };
    let named = |text| Some((text, line(text)?));
    text.lines()
        .filter_map(named)
        .filter_map(|(text, (received, sent))| Some((text.rsplit_once(':')?.0.trim(), received, sent)))
        .collect()
}

/// Bytes read from and written to servers by mount, `/proc/PID/mountstats` of NFS.
pub(crate) fn mount_stats(text: &str) -> Vec<(String, u64, u64)> {
    let (mut point, mut found) = (None, Vec::new());
    for line in text.lines() {
        if line.starts_with("device ") {
            point = line
                .split_once(" mounted on ")
                .and_then(|(_, rest)| Some(unescape(rest.split_once(" with fstype ")?.0)));
        } else if let Some(figures) = line.trim_start().strip_prefix("bytes:") {
            // Normal read and written, direct read and written, then what the server read and wrote.
            let figures: Vec<Option<u64>> = figures.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
            if let (Some(point), Some(&Some(read)), Some(&Some(written))) =
                (point.take(), figures.get(4), figures.get(5))
            {
                found.push((point, read, written));
            }
        }
    }
    found
}

/// Ticks in which each core was busy, `/proc/stat`. Guests are in user and nice already; stolen time is another machine's.
pub(crate) fn cores(text: &str) -> Vec<(u16, u64)> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let core = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let figures: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, _idle, _waiting, irq, soft, ..] = figures[..] else { return None };
        Some((core, [nice, system, irq, soft].into_iter().try_fold(user, u64::checked_add)?))
    };
    text.lines().filter_map(line).collect()
}

/// Nanoseconds by core, `cpuacct.usage_percpu`: cores that never ran anything are 0.
pub(crate) fn usage_by_core(text: &str) -> Vec<(u16, u64)> {
    let number = |(core, word): (usize, &str)| Some((u16::try_from(core).ok()?, word.parse().ok()?));
    text.split_ascii_whitespace().enumerate().map_while(number).filter(|(_, used)| *used > 0).collect()
}

/// Whether a list such as `0-3,8` has a core, cpuset(7). What cannot be read has none.
pub(crate) fn in_list(list: &str, core: u16) -> bool {
    list.trim().split(',').any(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        matches!((low.parse::<u16>(), high.parse::<u16>()), (Ok(low), Ok(high)) if (low..=high).contains(&core))
    })
}

/// A limit, or a quota with the period behind it. What is none is the largest number: `max`, and in version 1 of a quota `-1`.
pub(crate) fn limit(text: &str) -> Option<u64> {
    match text.split_ascii_whitespace().next()? {
        "max" | "-1" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Whether a limit of memory is less than the node's memory. One that is at least that tells nothing: who asked for all of it is held to it, or
/// somebody has written down a number that holds nobody.
pub(crate) fn limits_memory(text: &str, node: Option<u64>) -> Option<bool> {
    match limit(text)? {
        NO_LIMIT.. => Some(false),
        limit => (limit < node?).then_some(true),
    }
}

/// Whether a quota of processor time and its period, as in `cpu.max`, are less than all the time of all cores.
pub(crate) fn limits_time(text: &str, cores: usize) -> Option<bool> {
    let quota = limit(text)?;
    if quota >= NO_LIMIT {
        return Some(false);
    }
    let period: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let all = period.checked_mul(cores as u64).filter(|all| *all > 0)?;
    Some(quota < all)
}

/// Whether a group's list of cores, `cpuset.cpus`, lacks some of the node's. An empty one in version 2 is none of its own, so it lacks none.
/// A list of all cores tells nothing: who asked for all of them is held to them, or version 1 has passed on the list of the group above.
pub(crate) fn lacks_some(list: &str, cores: &[u16]) -> Option<bool> {
    if list.trim().is_empty() {
        return Some(false);
    }
    let has = |core: &&u16| in_list(list, **core);
    match cores.iter().filter(has).count() {
        0 => None,
        count => (count < cores.len()).then_some(true),
    }
}

/// Whether an environment, `/proc/PID/environ`, is of this job. SLURM sets both names.
pub(crate) fn environment_is_of(environment: &[u8], job: u32) -> bool {
    let (new, old) = (format!("SLURM_JOB_ID={job}"), format!("SLURM_JOBID={job}"));
    environment.split(|byte| *byte == 0).any(|word| word == new.as_bytes() || word == old.as_bytes())
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
