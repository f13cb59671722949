//! Filling a scratch before the program starts, and bringing out what was asked for when it has ended.
//!
//! Everything is written down before it is begun and after it is done, so whoever comes after a kill does what is left and nothing twice: this
//! session's next helper, the person's next agent on the node, or `eirene-agent rescue`. A program whose agent was killed did not end well: then
//! only what is wanted always is brought out. What cannot be brought out stays where it is, and is said.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use eirene_core::SpaceName;
use eirene_core::scratch::{
    HOME_SPACE, JobScratch, ScratchKind, ScratchSpec, StageOn, StageOut, StagePath, brought_out, not_brought_out,
};
use eirene_tunnel::message::Amount;
use serde::{Deserialize, Serialize};

use super::beneath::Root;
use super::copy::{Copier, CopyError, Counts};
use super::journal::{Journal, Phase, Progress};
use super::measure::Measure;
use super::standing::Meter;
use super::{Scratch, ScratchError, Spot, beeond, heal_left};
use crate::log::Log;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// There is no scratch.
    ScratchUnavailable,
    /// Something could not be copied to it.
    StageInFailed,
    /// Something could not be copied from it.
    StageOutFailed,
}

impl Code {
    /// The code by which the portal knows it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ScratchUnavailable => "scratch_unavailable",
            Self::StageInFailed => "stage_in_failed",
            Self::StageOutFailed => "stage_out_failed",
        }
    }
}

/// What went wrong, as code and sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trouble {
    /// For the portal.
    pub(crate) code: Code,
    /// For people.
    pub(crate) text: String,
}

impl Trouble {
    pub(crate) fn new(code: Code, text: impl fmt::Display) -> Self {
        Self { code, text: text.to_string() }
    }

    fn unavailable(error: &ScratchError) -> Self {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Self::new(Code::ScratchUnavailable, format!("{error}{cause}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What one node is to do for its scratch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Assignment {
    /// What was asked for.
    wanted: ScratchSpec,
    /// Where the scratch is made.
    spot: Spot,
    /// Where the spaces lie.
    spaces: BTreeMap<SpaceName, PathBuf>,
    /// The session.
    session: String,
    /// This node's name.
    node: String,
    /// Which of several it is, where each has a scratch of its own.
    number: Option<u32>,
    /// Whether it is the first node's scratch that is seen here.
    shared: bool,
}

impl Assignment {
    /// What the first of a job's nodes is to do. `name` is `<session>.<restart>`.
    pub(crate) fn new(scratch: &JobScratch, job: u32, name: &str, home: &str, nodes: &[String]) -> Self {
        let base = PathBuf::from(&scratch.base);
        let home = HOME_SPACE.parse().ok().map(|space: SpaceName| (space, PathBuf::from(home)));
        let spaces = scratch.spaces.iter().map(|(space, path)| (space.clone(), PathBuf::from(path)));
        let own = scratch.wanted.kind == ScratchKind::Node;
        Self {
            wanted: scratch.wanted.clone(),
            spot: Spot { base: if own { base } else { base.join(job.to_string()) }, name: name.to_owned() },
            spaces: spaces.chain(home).collect(),
            session: name.split('.').next().unwrap_or_default().to_owned(),
            node: nodes.first().cloned().unwrap_or_default(),
            number: (own && nodes.len() > 1).then_some(0),
            shared: false,
        }
    }

    /// The same for another of its nodes, counted from 0.
    pub(crate) fn of(&self, node: &str, number: usize) -> Self {
        let shared = self.wanted.kind == ScratchKind::Beeond;
        let number = u32::try_from(number).ok().filter(|_| !shared);
        Self { node: node.to_owned(), number, shared, ..self.clone() }
    }

    /// By what every node finds its scratch.
    pub(crate) fn spot(&self) -> &Spot {
        &self.spot
    }

    /// Its node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Whether each node has a scratch of its own.
    pub(crate) fn is_of_nodes(&self) -> bool {
        self.wanted.kind == ScratchKind::Node
    }

    /// Whether something is to be brought out at all.
    pub(crate) fn brings_out(&self) -> bool {
        !self.wanted.stage_out.is_empty()
    }

    fn journal(&self) -> Journal {
        Journal {
            session: self.session.clone(),
            node: self.number,
            spaces: self.spaces.clone(),
            stage_in: self.wanted.stage_in.iter().map(|entry| (entry.clone(), Progress::Waiting)).collect(),
            stage_out: self.wanted.stage_out.iter().map(|entry| (entry.clone(), Progress::Waiting)).collect(),
            phase: Phase::In,
            succeeded: false,
        }
    }
}

/// A scratch that this process looks after. It stays where it is, with its journal, unless it is finished.
pub(crate) struct Held {
    scratch: Scratch,
    journal: Journal,
    meter: Meter,
    log: Log,
}

/// Makes a node's scratch and fills it, and counts that on `meter`. Blocks, until that is done or `broken_off` is set. None: it is another node's,
/// and can be seen here.
pub(crate) fn prepare(
    assignment: &Assignment,
    broken_off: &AtomicBool,
    meter: &Meter,
    log: &Log,
) -> Result<Option<Held>, Trouble> {
    let uid = nix::unistd::geteuid().as_raw();
    if assignment.wanted.kind == ScratchKind::Beeond {
        let mounted = beeond::wait(&assignment.spot.base, &assignment.node, beeond::WITHIN, broken_off);
        mounted.map_err(|error| Trouble::new(Code::ScratchUnavailable, error))?;
    }
    if assignment.shared {
        return Ok(None);
    }
    let scratch = Scratch::make(&assignment.spot, uid, &assignment.node, assignment.wanted.size_mib, log)
        .map_err(|error| Trouble::unavailable(&error))?;
    let (Spot { base, name: own }, log_of_left) = (assignment.spot.clone(), log.clone());
    // A start does not wait for what earlier ones left.
    std::thread::spawn(move || heal_left(&base, uid, OsStr::new(&own), &log_of_left));
    let unreadable =
        |error| Trouble::new(Code::ScratchUnavailable, format!("the scratch's journal cannot be kept: {error}"));
    let mut journal = assignment.journal();
    if let Some(earlier) = scratch.journal(uid).map_err(unreadable)?.filter(|_| scratch.found) {
        // An earlier helper of this start was lost: what its program wrote is there, and this one goes on with it.
        journal.stage_in = earlier.stage_in;
        journal.phase = if earlier.phase == Phase::In { Phase::In } else { Phase::Used };
    }
    journal.write(scratch.directory()).map_err(unreadable)?;
    let mut held = Held { scratch, journal, meter: meter.clone(), log: log.clone() };
    match held.bring_in(broken_off) {
        Ok(()) => Ok(Some(held)),
        Err(trouble) => {
            // Nothing in it is anybody's work; what cannot be removed is the next agent's to remove.
            let _ = held.scratch.remove();
            Err(trouble)
        }
    }
}

impl Held {
    fn bring_in(&mut self, broken_off: &AtomicBool) -> Result<(), Trouble> {
        let failed = |text: String| Trouble::new(Code::StageInFailed, text);
        if self.journal.phase != Phase::In {
            return Ok(());
        }
        // Better before the program than after it: what it makes would have nowhere to go.
        for (entry, _) in &self.journal.stage_out {
            self.space(&entry.to.space).map_err(|error| {
                failed(format!("nothing was started: `{}` could not be copied to `{}`: {error}", entry.from, entry.to))
            })?;
        }
        let data = Root::open(&self.scratch.data()).map_err(|error| failed(error.to_string()))?;
        let places = || self.journal.stage_in.iter().map(|(entry, _)| (&entry.from.space, &entry.from.path));
        self.measure(places().map(|(space, path)| Some((self.space(space).ok()?, path))), broken_off);
        for index in 0..self.journal.stage_in.len() {
            let (entry, progress) = self.journal.stage_in[index].clone();
            if progress == Progress::Copied {
                continue;
            }
            let told =
                |why: &dyn fmt::Display| failed(format!("`{}` could not be copied to the scratch: {why}", entry.from));
            self.note(|journal| journal.stage_in[index].1 = Progress::Copying).map_err(|error| told(&error))?;
            let space = self.space(&entry.from.space).map_err(|error| told(&error))?;
            let counts = self.copy((&space, &entry.from.path), (&data, &entry.to), None, broken_off);
            let counts = counts.map_err(|error| told(&error))?;
            self.log.say(&format!("copied `{}` to the scratch: {counts}", entry.from));
            self.note(|journal| journal.stage_in[index].1 = Progress::Copied).map_err(|error| told(&error))?;
        }
        Ok(())
    }

    /// The program is about to have it: from now on what is in it may be its work.
    pub(crate) fn hand_over(&mut self) -> Result<(), Trouble> {
        let noted = self.note(|journal| journal.phase = Phase::Used);
        noted.map_err(|error| {
            self.take_back();
            Trouble::new(Code::ScratchUnavailable, format!("the scratch's journal cannot be kept: {error}"))
        })
    }

    /// The program could not be started after all.
    pub(crate) fn take_back(&mut self) {
        self.journal.phase = Phase::In;
    }

    /// Brings out what is wanted after such an end, then removes the scratch. Where something cannot be brought out it stays, and the trouble says
    /// where. What no program has had is only removed. Blocks.
    pub(crate) fn finish(mut self, succeeded: bool) -> Result<(), Trouble> {
        if self.journal.phase == Phase::In {
            // What cannot be removed is the next agent's to remove.
            let _ = self.scratch.remove();
            return Ok(());
        }
        let trouble = |error: std::io::Error| {
            Trouble::new(Code::StageOutFailed, format!("the scratch's journal cannot be kept: {error}"))
        };
        if self.journal.phase != Phase::Out {
            self.note(|journal| (journal.phase, journal.succeeded) = (Phase::Out, succeeded)).map_err(trouble)?;
        }
        self.bring_out()?;
        if !self.journal.stage_out.is_empty() {
            self.log.say(&brought_out(&self.scratch.name()));
        }
        self.note(|journal| journal.phase = Phase::Done).map_err(trouble)?;
        let path = self.scratch.path.display().to_string();
        if let Err(error) = self.scratch.remove() {
            // Nothing is owed; the person's next agent on this node tries again.
            self.log.say(&format!("the scratch `{path}` could not be removed: {error}"));
        }
        Ok(())
    }

    fn bring_out(&mut self) -> Result<(), Trouble> {
        let lost = |why: &dyn fmt::Display| Trouble::new(Code::StageOutFailed, why);
        let data = Root::open(&self.scratch.data()).map_err(|error| lost(&error))?;
        let into = self.journal.node.map(|node| format!("node{node}"));
        // What is begun is finished; SLURM ends it if it must, and then somebody comes after.
        let never = AtomicBool::new(false);
        let wanted = |entry: &StageOut| entry.on == StageOn::Always || self.journal.succeeded;
        let wanted = self.journal.stage_out.iter().filter(|(entry, _)| wanted(entry));
        self.measure(wanted.map(|(entry, _)| Some((Root::open(&self.scratch.data()).ok()?, &entry.from))), &never);
        let mut first_trouble = None;
        for index in 0..self.journal.stage_out.len() {
            let (entry, progress) = self.journal.stage_out[index].clone();
            let progress = match progress {
                Progress::Copied | Progress::NotWanted | Progress::NotThere => continue,
                _ if entry.on == StageOn::Success && !self.journal.succeeded => Progress::NotWanted,
                _ => {
                    self.note(|journal| journal.stage_out[index].1 = Progress::Copying)
                        .map_err(|error| lost(&error))?;
                    let copied = self.space(&entry.to.space).and_then(|space| {
                        self.copy((&data, &entry.from), (&space, &entry.to.path), into.as_deref(), &never)
                    });
                    match copied {
                        Ok(counts) => {
                            self.log
                                .say(&format!("copied `{}` of the scratch to `{}`: {counts}", entry.from, entry.to));
                            Progress::Copied
                        }
                        Err(CopyError::NoSource) => {
                            self.log.say(&format!("the scratch has no `{}` to copy to `{}`", entry.from, entry.to));
                            Progress::NotThere
                        }
                        Err(error) => {
                            let (from, place) = (&entry.from, self.scratch.path.display());
                            let text = format!(
                                "`{from}` of the scratch could not be copied to `{}`: {error}; it is still in `{place}`",
                                entry.to
                            );
                            self.log.say(&text);
                            first_trouble.get_or_insert(Trouble::new(Code::StageOutFailed, text));
                            continue;
                        }
                    }
                }
            };
            self.note(|journal| journal.stage_out[index].1 = progress).map_err(|error| lost(&error))?;
        }
        first_trouble.map_or(Ok(()), Err)
    }

    /// Says how much is about to be copied, where somebody wants to know.
    fn measure<'a>(&self, mut places: impl Iterator<Item = Option<(Root, &'a StagePath)>>, broken_off: &AtomicBool) {
        if self.meter.is_watched() {
            let mut measure = Measure::new(broken_off);
            let sum =
                places.try_fold(Amount::default(), |_, place| place.and_then(|(root, path)| measure.add(&root, path)));
            self.meter.begin(sum);
        }
    }

    fn copy(
        &self,
        from: (&Root, &StagePath),
        to: (&Root, &StagePath),
        into: Option<&str>,
        broken_off: &AtomicBool,
    ) -> Result<Counts, CopyError> {
        let copier = Copier::new(&self.journal.mark(), broken_off, &self.meter);
        copier.map_err(|error| CopyError::Other(self.journal.mark(), error))?.copy(from, to, into)
    }

    fn space(&self, name: &SpaceName) -> Result<Root, CopyError> {
        let none = || CopyError::NoSpace(name.to_string());
        let path = self.journal.spaces.get(name).ok_or_else(none)?;
        Root::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => none(),
            _ => CopyError::Other(format!("{name}:"), error),
        })
    }

    fn note(&mut self, change: impl FnOnce(&mut Journal)) -> std::io::Result<()> {
        change(&mut self.journal);
        self.journal.write(self.scratch.directory())
    }
}

/// Finishes what somebody left who is gone, and removes it.
pub(super) fn settle(scratch: Scratch, uid: u32, log: &Log) -> Result<(), Trouble> {
    let shown = scratch.path.display().to_string();
    let lost = |error: std::io::Error| Trouble::new(Code::StageOutFailed, format!("`{shown}` is kept: {error}"));
    match scratch.journal(uid).map_err(lost)? {
        Some(journal) if journal.owes() => {
            log.say(&format!("finishes what session {} left in its scratch", journal.session));
            Held { scratch, journal, meter: Meter::default(), log: log.clone() }.finish(false)
        }
        journal => {
            // Whoever was at it may have been killed before it could be said.
            if journal.is_some_and(|journal| !journal.stage_out.is_empty()) {
                log.say(&brought_out(&scratch.name()));
            }
            scratch.remove().map_err(lost)
        }
    }
}

/// Brings out by its journal what a session that was broken off left in a scratch on this node, and removes the scratch; gives the exit status.
/// A scratch that is not there any more needs nothing; one whose own directory had to have another name is found there. What is said of it goes to the end of the job's own log too, where the portal finds it
/// when the job is over.
pub fn rescue(directory: &Path, log: &Log) -> u8 {
    let uid = nix::unistd::geteuid().as_raw();
    let scratch = match Scratch::find(directory, uid) {
        Ok(scratch) => scratch,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return 0,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            log.say("the scratch is in use: its session, or another rescue, goes on");
            return 1;
        }
        Err(error) => {
            log.say(&format!("this is no scratch of this person's: {error}"));
            return 1;
        }
    };
    let name = scratch.name();
    let of_job = scratch.journal(uid).ok().flatten().and_then(|journal| job_log(&journal));
    let log = of_job.map_or_else(|| log.clone(), |file| Log::new(Both(file, log.clone())));
    match settle(scratch, uid, &log) {
        Ok(()) => 0,
        Err(trouble) => {
            log.say(&trouble.text);
            log.say(&not_brought_out(&name));
            1
        }
    }
}

/// The log of a scratch's job, where there is one.
fn job_log(journal: &Journal) -> Option<File> {
    let home: SpaceName = HOME_SPACE.parse().ok()?;
    let path = journal.spaces.get(&home)?.join(".eirene/sessions").join(&journal.session).join("job.log");
    // A pipe in its place must not hold us.
    OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path).ok()
}

/// Passes on what is said to a file and to another log.
struct Both(File, Log);

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full home must not keep it from the other.
        let _ = self.0.write_all(bytes);
        self.1.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
