//! The job's processes: which they are and what each uses.
//!
//! Where the job has a control group, its processes are those in it. Elsewhere they are the person's processes whose environment names
//! the job (only one's own can be read), and whose parent or session's leader is one of them; who was one stays one, wherever it is moved.
//!
//! A known process costs two reads of open descriptors. At most [`MOST_KEPT`] processes have theirs kept, so that the agent does not run
//! out of descriptors; others are opened each time.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::Room;
use crate::parse::{self, Stat};
use crate::tally::{Account, Tally};

/// Most processes whose files are kept open, two each.
const MOST_KEPT: usize = 128;
/// Most processes of the job that are looked at.
const MOST_PROCESSES: usize = 16 * 1024;
/// How often a process that is not the job's is asked again: one that has just been started may still become it by execve(2).
const LOOKS: u8 = 3;

/// One of the job's.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) stat: Stat,
    /// Bytes read and written.
    pub(crate) io: Option<(u64, u64)>,
    /// How often it was looked at.
    pub(crate) looks: u32,
    files: Option<(File, Option<File>)>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Processes {
    proc: PathBuf,
    job: u32,
    uid: u32,
    by_id: HashMap<u32, Process>,
    /// Others of the person's: when they began, and how often they were asked.
    strangers: HashMap<u32, (u64, u8)>,
    cpu: Tally,
    read: Tally,
    written: Tally,
}

/// Sums over all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Ticks.
    pub(crate) cpu: Option<u64>,
    /// Bytes.
    pub(crate) read: Option<u64>,
    /// Bytes.
    pub(crate) written: Option<u64>,
    /// Pages.
    pub(crate) resident: Option<u64>,
}

impl Processes {
    pub(crate) fn new(proc: PathBuf, job: u32, uid: u32) -> Self {
        let (by_id, strangers) = (HashMap::new(), HashMap::new());
        let (cpu, read, written) = (Tally::default(), Tally::default(), Tally::default());
        Self { proc, job, uid, by_id, strangers, cpu, read, written }
    }

    /// The processes as they were last looked at.
    pub(crate) fn all(&self) -> &HashMap<u32, Process> {
        &self.by_id
    }

    /// Looks at all of them. In `groups` there are the paths of the job's control groups, none where it has none.
    pub(crate) fn look(&mut self, groups: &[String], room: &mut Room) -> Sums {
        let Some(there) = self.list() else { return Sums::default() };
        self.by_id.retain(|id, process| there.contains(id) && again(&self.proc.join(id.to_string()), process, room));
        self.strangers.retain(|id, _| there.contains(id));
        let mut unknown: Vec<u32> = there.into_iter().filter(|id| !self.by_id.contains_key(id)).collect();
        unknown.sort_unstable();
        let mut others = Vec::new();
        for id in unknown {
            if let Some(stat) = self.examine(id, groups, room) {
                others.push((id, stat));
            }
        }
        if groups.is_empty() {
            self.take_relatives(others, room);
        }
        self.sums()
    }

    fn list(&self) -> Option<HashSet<u32>> {
        let entries = std::fs::read_dir(&self.proc).ok()?;
        Some(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    /// Takes an unknown process in if it says itself that it is the job's; gives it back if it is the person's, and not known to be another's.
    fn examine(&mut self, id: u32, groups: &[String], room: &mut Room) -> Option<Stat> {
        let path = self.proc.join(id.to_string());
        if groups.is_empty() && std::fs::metadata(&path).ok()?.uid() != self.uid {
            return None;
        }
        let stat = parse::stat(&room.once(&path.join("stat"))?)?;
        let looks = self.strangers.get(&id).filter(|(start, _)| *start == stat.start).map_or(0, |(_, looks)| *looks);
        let is_ours = looks < LOOKS
            && if groups.is_empty() {
                let environment = File::open(path.join("environ")).ok();
                environment
                    .is_some_and(|file| room.read(&file).is_ok_and(|bytes| parse::environment_is_of(bytes, self.job)))
            } else {
                let within = room.once(&path.join("cgroup"));
                within.is_some_and(|text| text.lines().any(|line| is_within(line, groups)))
            };
        if is_ours {
            self.take(id, &path, room);
            return None;
        }
        self.strangers.insert(id, (stat.start, looks.saturating_add(1)));
        Some(stat)
    }

    /// Takes in those whose parent or session is the job's, until there are no more.
    fn take_relatives(&mut self, mut others: Vec<(u32, Stat)>, room: &mut Room) {
        loop {
            let sessions: HashSet<u32> =
                self.by_id.iter().filter(|(id, process)| process.stat.session == **id).map(|(id, _)| *id).collect();
            let (ours, rest): (Vec<_>, Vec<_>) = others
                .into_iter()
                .partition(|(_, stat)| self.by_id.contains_key(&stat.parent) || sessions.contains(&stat.session));
            if ours.is_empty() {
                return;
            }
            let before = self.by_id.len();
            for (id, _) in ours {
                self.take(id, &self.proc.join(id.to_string()), room);
            }
            // Those that ended meanwhile are not there to have relatives.
            if self.by_id.len() == before {
                return;
            }
            others = rest;
        }
    }

    fn take(&mut self, id: u32, path: &Path, room: &mut Room) {
        if self.by_id.len() >= MOST_PROCESSES {
            return;
        }
        let Ok(file) = File::open(path.join("stat")) else { return };
        let Some(stat) = room.text(&file).and_then(|text| parse::stat(&text)) else { return };
        let io_file = File::open(path.join("io")).ok();
        let io = io_file.as_ref().and_then(|file| parse::process_io(&room.text(file)?));
        let kept = self.by_id.values().filter(|process| process.files.is_some()).count() < MOST_KEPT;
        self.strangers.remove(&id);
        self.by_id.insert(id, Process { stat, io, looks: 1, files: kept.then_some((file, io_file)) });
    }

    fn sums(&mut self) -> Sums {
        let account =
            |stat: &Stat, total, inherited| Account { start: stat.start, parent: stat.parent, total, inherited };
        let each = || self.by_id.iter();
        let cpu = each()
            .map(|(id, Process { stat, .. })| {
                (*id, account(stat, stat.own.saturating_add(stat.children), stat.children))
            })
            .collect();
        let with_io = || each().filter_map(|(id, process)| Some((*id, &process.stat, process.io?)));
        let read = with_io().map(|(id, stat, (read, _))| (id, account(stat, read, read))).collect();
        let written = with_io().map(|(id, stat, (_, written))| (id, account(stat, written, written))).collect();
        let resident = each().map(|(_, process)| process.stat.resident).reduce(u64::saturating_add);
        Sums { cpu: self.cpu.sum(cpu), read: self.read.sum(read), written: self.written.sum(written), resident }
    }
}

/// Whether a line of `/proc/PID/cgroup` names one of these groups or one below.
fn is_within(line: &str, groups: &[String]) -> bool {
    let Some(path) = line.splitn(3, ':').nth(2) else { return false };
    groups
        .iter()
        .any(|group| path.strip_prefix(group.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Looks at a known process again; false once it has ended.
fn again(path: &Path, process: &mut Process, room: &mut Room) -> bool {
    let stat = match &process.files {
        Some((file, _)) => room.text(file).and_then(|text| parse::stat(&text)),
        None => room.once(&path.join("stat")).and_then(|text| parse::stat(&text)),
    };
    let Some(stat) = stat.filter(|stat| stat.start == process.stat.start) else { return false };
    process.stat = stat;
    let io = match &process.files {
        Some((_, file)) => file.as_ref().and_then(|file| parse::process_io(&room.text(file)?)),
        None => room.once(&path.join("io")).and_then(|text| parse::process_io(&text)),
    };
    // What was said once holds: a process that has become another's by execve(2) does not say it any more.
    process.io = io.or(process.io);
    process.looks = process.looks.saturating_add(1);
    true
}
