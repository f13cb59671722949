//! One rank's part of one schedule, under way. It never waits: it does what can be done and says whether that was all.

use std::ops::Range;
use std::sync::Arc;

use eirene_train_reduce::Reduction;
use eirene_train_schedule::{Space, Span, Step, Verified, sends_empty};

use crate::call::{describe, difference, is_in_blocks};
use crate::error::Error;
use crate::extent::{Extents, Table};
use crate::link::{Link, Outgoing};
use crate::memory::meeting::Meeting;
use crate::message::Head;

/// Where another rank's buffers are in this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    /// Where its input begins.
    pub(crate) input: *mut u8,
    /// Where its output begins.
    pub(crate) output: *mut u8,
}

/// The links of a group by rank; none to oneself.
pub(crate) type Links = [Option<Link>];

/// What a look at a task has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing.
    Nothing,
    /// Something.
    Some,
    /// It is finished: all is received, and everything that is sent has left the caller's memory.
    Done,
}

/// A schedule under way.
pub(crate) struct Task {
    schedule: Arc<Verified>,
    me: u32,
    head: Head,
    last: Head,
    /// Messages without content are sent, too, so that it is seen where a rank takes for empty what is not.
    sends_empty: bool,
    /// Bytes of an element.
    size: usize,
    /// For parts that more will be added to, and for those that are complete then.
    reductions: Option<(Reduction, Reduction)>,
    input: Table,
    output: Table,
    scratch: Table,
    /// All ranks' buffers, where they can be reached.
    mapped: Vec<Mapped>,
    /// The step it is at.
    at: usize,
    state: State,
    pending: Vec<(u32, Outgoing)>,
    /// The call as which another rank has called something else, if the message that shows it does not say what.
    in_question: Option<u64>,
}

// SAFETY: addresses of buffers which the caller has promised to leave alone until the task is done.
#[expect(unsafe_code, reason = "tasks go from the caller to the progress thread")]
unsafe impl Send for Task {}

/// How far the current step is.
struct State {
    begun: bool,
    /// Bytes received.
    got: usize,
    own: Extents,
    into: Extents,
}

impl State {
    fn fresh() -> Self {
        Self { begun: false, got: 0, own: Extents::empty(), into: Extents::empty() }
    }
}

/// What a task is made of.
pub(crate) struct Parts {
    /// The proven schedule.
    pub(crate) schedule: Arc<Verified>,
    /// The rank in it.
    pub(crate) me: u32,
    /// What its messages say of themselves.
    pub(crate) head: Head,
    /// The call before, for messages to people.
    pub(crate) last: Head,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// Intermediate and finishing reduction.
    pub(crate) reductions: Option<(Reduction, Reduction)>,
    /// The caller's input.
    pub(crate) input: Table,
    /// The caller's output.
    pub(crate) output: Table,
    /// The engine's scratch memory, cut like the output.
    pub(crate) scratch: Table,
    /// All ranks' buffers, for schedules that reach into them.
    pub(crate) mapped: Vec<Mapped>,
}

impl Task {
    /// At its beginning.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { schedule, me, head, last, size, reductions, input, output, scratch, mapped } = parts;
        let (at, state, pending, in_question) = (0, State::fresh(), Vec::new(), None);
        let even = !is_in_blocks(&head) || head.root == 0;
        let sends_empty = sends_empty(schedule.collective(), even, head.elements);
        Self {
            schedule,
            me,
            head,
            last,
            sends_empty,
            size,
            reductions,
            input,
            output,
            scratch,
            mapped,
            at,
            state,
            pending,
            in_question,
        }
    }

    /// Whether it reaches into the others' memory, instead of exchanging messages with them.
    pub(crate) fn reaches(&self) -> bool {
        let between_memories = |step: &Step| matches!(step, Step::RemoteCombine { .. } | Step::RemoteCopy { .. });
        let schedule = self.schedule.schedule();
        // Programs are long where there are many ranks: most calls need no look at them.
        !self.mapped.is_empty() && schedule.programs.iter().any(|program| program.iter().any(between_memories))
    }

    /// The call as which another rank has called something else, if the message for which it has failed does not say what.
    pub(crate) fn in_question(&self) -> Option<u64> {
        self.in_question
    }

    /// Does what can be done now.
    pub(crate) fn poll(&mut self, links: &mut Links, mut meeting: Option<&mut Meeting>) -> Result<Progress, Error> {
        let schedule = Arc::clone(&self.schedule);
        let program = schedule.program(self.me);
        let mut moved = self.push_pending(links)?;
        while let Some(step) = program.get(self.at) {
            let before = self.state.got;
            let done = match step {
                Step::Copy { from, to } => self.copy(from, to),
                Step::Send { to, what } => self.send(*to, what, links)?,
                Step::Receive { from, into } => self.receive(*from, into, links)?,
                Step::Combine { from, own, into, finish } => self.combine(from, own, into, *finish, links)?,
                Step::Fence => self.fence(&mut meeting)?,
                Step::RemoteCombine { from, chunks, into, at, finish } => {
                    self.remote_combine(from, chunks, into, *at, *finish)
                }
                Step::RemoteCopy { of, from, to } => self.remote_copy(*of, from, to),
            };
            moved |= done || self.state.got > before;
            if !done {
                if !moved && !self.pending.is_empty() {
                    // What others send while they wait for us to take it must not wait for our turn to take it.
                    links.iter_mut().flatten().for_each(Link::absorb);
                }
                return Ok(if moved { Progress::Some } else { Progress::Nothing });
            }
            self.at += 1;
            self.state = State::fresh();
        }
        Ok(match (self.pending.is_empty(), moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Some,
            (false, false) => Progress::Nothing,
        })
    }

    /// The ranks that must do something before it can go on.
    pub(crate) fn waits_for(&self, links: &mut Links, meeting: Option<&Meeting>) -> Vec<u32> {
        let silent = |rank: &u32| !matches!(link(links, *rank).next(), Ok(Some(_)));
        match self.schedule.program(self.me).get(self.at) {
            Some(Step::Receive { from, .. }) => Some(*from).filter(silent).into_iter().collect(),
            Some(Step::Combine { from, .. }) => from.iter().copied().filter(silent).collect(),
            Some(Step::Fence) => meeting.map(Meeting::not_arrived).unwrap_or_default(),
            _ => self.pending.iter().map(|(to, _)| *to).collect(),
        }
    }

    fn span(&self, span: &Span) -> Extents {
        let table = match span.space {
            Space::Input => &self.input,
            Space::Output => &self.output,
            Space::Scratch => &self.scratch,
        };
        table.span(&span.chunks)
    }

    /// Whether a message of so many bytes is sent, and waited for.
    fn is_sent(&self, bytes: usize) -> bool {
        bytes > 0 || self.sends_empty
    }

    fn push_pending(&mut self, links: &mut Links) -> Result<bool, Error> {
        if self.pending.is_empty() {
            return Ok(false);
        }
        let mut moved = false;
        let mut stuck: Vec<u32> = Vec::new();
        let mut error = None;
        self.pending.retain_mut(|(to, message)| {
            // Messages to one rank keep their order.
            if error.is_some() || stuck.contains(to) {
                return true;
            }
            let before = message.sent;
            match link(links, *to).push(message) {
                Ok(true) => {
                    moved = true;
                    false
                }
                Ok(false) => {
                    moved |= message.sent > before;
                    stuck.push(*to);
                    true
                }
                Err(failed) => {
                    error = Some(failed);
                    true
                }
            }
        });
        error.map_or(Ok(moved), Err)
    }

    /// Whether what a step writes is still being sent.
    fn is_being_sent(&self, what: &Extents) -> bool {
        self.pending.iter().any(|(_, message)| message.what.meet(what))
    }

    fn copy(&mut self, from: &Span, to: &Span) -> bool {
        let (from, to) = (self.span(from), self.span(to));
        // In place there is nothing to copy, and nothing to wait for.
        if from == to {
            return true;
        }
        if self.is_being_sent(&to) {
            return false;
        }
        copy_extents(&from, &to);
        true
    }

    fn send(&mut self, to: u32, what: &Span, links: &mut Links) -> Result<bool, Error> {
        let what = self.span(what);
        if self.is_sent(what.bytes()) {
            let mut message = Outgoing::new(self.head, what);
            let waits = self.pending.iter().any(|(other, _)| *other == to);
            if waits || !link(links, to).push(&mut message)? {
                self.pending.push((to, message));
            }
        }
        Ok(true)
    }

    /// Checks that the next message of a rank is the one that is expected. False if it is not here yet.
    fn expects(&mut self, from: u32, bytes: usize, links: &mut Links) -> Result<bool, Error> {
        let Some(head) = link(links, from).next()? else { return Ok(false) };
        let wanted = Head { bytes: bytes as u64, ..self.head };
        if head == wanted {
            return Ok(true);
        }
        let same_call = Head { bytes: wanted.bytes, ..head } == wanted;
        let me = format!("{} of the group", self.me);
        let message = if same_call {
            format!(
                "in {}, rank {from} of the group sends {} bytes where rank {me} expects {bytes}",
                describe(&wanted),
                head.bytes
            )
        } else if head.call < wanted.call && self.last.call > 0 {
            format!(
                "rank {me} has called {}, after {}, rank {from} of the group {}",
                describe(&wanted),
                describe(&self.last),
                describe(&head)
            )
        } else {
            let [kind, dtype, op, _] = wanted.kind;
            let alike = Head { bytes: head.bytes, kind: [kind, dtype, op, head.kind[3]], ..wanted };
            let later = head.call > wanted.call;
            self.in_question = (later || head == alike).then_some(if later { wanted.call } else { wanted.call - 1 });
            difference(me, &wanted, format!("{from} of the group"), &head)
        };
        Err(Error::Mismatch { message })
    }

    fn receive(&mut self, from: u32, into: &Span, links: &mut Links) -> Result<bool, Error> {
        if !self.state.begun {
            let into = self.span(into);
            if !self.is_sent(into.bytes()) {
                return Ok(true);
            }
            if self.is_being_sent(&into) || !self.expects(from, into.bytes(), links)? {
                return Ok(false);
            }
            self.state.into = into;
            self.state.begun = true;
        }
        let total = self.state.into.bytes();
        loop {
            let run = self.state.into.at(self.state.got);
            let bytes = link(links, from).store(run.address, run.bytes)?;
            self.state.got += bytes;
            if self.state.got == total {
                return Ok(true);
            }
            if bytes == 0 {
                return Ok(false);
            }
        }
    }

    #[expect(unsafe_code, reason = "reduces into the caller's memory")]
    fn combine(
        &mut self,
        from: &[u32],
        own: &Span,
        into: &Span,
        finish: bool,
        links: &mut Links,
    ) -> Result<bool, Error> {
        if !self.state.begun {
            let (own, into) = (self.span(own), self.span(into));
            if !self.is_sent(into.bytes()) {
                return Ok(true);
            }
            if self.is_being_sent(&into) {
                return Ok(false);
            }
            for rank in from {
                if !self.expects(*rank, into.bytes(), links)? {
                    return Ok(false);
                }
            }
            (self.state.own, self.state.into) = (own, into);
            self.state.begun = true;
        }
        let total = self.state.into.bytes();
        if total == 0 {
            for rank in from {
                link(links, *rank).take(0);
            }
        }
        while self.state.got < total {
            let (own, into) = (self.state.own.at(self.state.got), self.state.into.at(self.state.got));
            let mut bytes = own.bytes.min(into.bytes);
            let mut sources: [*const u8; MOST_AT_ONCE] = [std::ptr::null(); MOST_AT_ONCE];
            let mut many = Vec::new();
            let count = from.len() + 1;
            let sources = if count <= MOST_AT_ONCE {
                &mut sources[..count]
            } else {
                many.resize(count, std::ptr::null());
                &mut many[..]
            };
            let mut at = 0;
            for rank in from {
                if at == from.iter().take_while(|rank| **rank < self.me).count() {
                    sources[at] = own.address;
                    at += 1;
                }
                match link(links, *rank).peek()? {
                    Some((_, content)) if !content.is_empty() => {
                        bytes = bytes.min(content.len());
                        sources[at] = content.as_ptr();
                    }
                    _ => return Ok(false),
                }
                at += 1;
            }
            if at == from.len() {
                sources[at] = own.address;
            }
            let elements = bytes / self.size;
            if elements == 0 {
                return Ok(false);
            }
            let reduction = self.reduction(finish);
            // SAFETY: all sources have so many bytes here; the output is the own part or apart from all sources, as the verifier has shown
            // for the spans; nobody else touches the caller's buffers meanwhile.
            unsafe { reduction.run(&[into.address], sources, elements) };
            for rank in from {
                link(links, *rank).take(elements * self.size);
            }
            self.state.got += elements * self.size;
        }
        Ok(true)
    }

    fn reduction(&self, finish: bool) -> &Reduction {
        let Some((intermediate, finishing)) = &self.reductions else {
            unreachable!("only schedules of reducing collectives combine")
        };
        if finish { finishing } else { intermediate }
    }

    fn fence(&mut self, meeting: &mut Option<&mut Meeting>) -> Result<bool, Error> {
        let Some(meeting) = meeting else {
            return Err(Error::Invalid { message: "a fence among ranks that share no memory".to_owned() });
        };
        if !self.pending.is_empty() {
            return Ok(false);
        }
        if !self.state.begun {
            meeting.arrive(None);
            self.state.begun = true;
        }
        Ok(meeting.complete())
    }

    /// How far into its buffer a chunk begins.
    fn offset(&self, space: Space, chunk: u32) -> usize {
        let (table, own) = match space {
            Space::Input => (&self.input, self.mapped[self.me as usize].input),
            Space::Output | Space::Scratch => (&self.output, self.mapped[self.me as usize].output),
        };
        table.begin(chunk) as usize - own as usize
    }

    #[expect(unsafe_code, reason = "reads and writes other ranks' memory, between fences")]
    fn remote_combine(&mut self, from: &[u32], chunks: &Range<u32>, into: &[u32], at: u32, finish: bool) -> bool {
        let bytes = self.input.span(chunks).bytes();
        let (input, output) = (self.offset(Space::Input, chunks.start), self.offset(Space::Output, at));
        let sources: Vec<*const u8> =
            from.iter().map(|rank| self.mapped[*rank as usize].input.wrapping_add(input).cast_const()).collect();
        let outputs: Vec<*mut u8> =
            into.iter().map(|rank| self.mapped[*rank as usize].output.wrapping_add(output)).collect();
        // SAFETY: every rank's buffer is mapped whole and cut alike; between two fences nobody else touches these chunks, as the verifier
        // has shown; each output is exactly a source's memory, in place, or apart.
        unsafe { self.reduction(finish).run(&outputs, &sources, bytes / self.size) };
        true
    }

    #[expect(unsafe_code, reason = "reads other ranks' memory, between fences")]
    fn remote_copy(&mut self, of: u32, from: &Span, to: &Span) -> bool {
        let theirs = match from.space {
            Space::Input => self.mapped[of as usize].input,
            Space::Output | Space::Scratch => self.mapped[of as usize].output,
        };
        let source = theirs.wrapping_add(self.offset(from.space, from.chunks.start));
        let to = self.span(to);
        let mut copied = 0;
        while copied < to.bytes() {
            let run = to.at(copied);
            // SAFETY: as in `remote_combine`; in place nothing is copied onto itself.
            unsafe {
                let source = source.wrapping_add(copied);
                if !std::ptr::eq(source, run.address) {
                    eirene_train_reduce::copy(run.address, source, run.bytes, false);
                }
            }
            copied += run.bytes;
        }
        true
    }
}

/// Ranks that are combined without memory of their own for the list of them.
const MOST_AT_ONCE: usize = 16;

/// Copies between runs of memory; onto itself, nothing.
#[expect(unsafe_code, reason = "copies within the caller's memory")]
fn copy_extents(from: &Extents, to: &Extents) {
    let mut copied = 0;
    while copied < to.bytes().min(from.bytes()) {
        let (source, run) = (from.at(copied), to.at(copied));
        let bytes = source.bytes.min(run.bytes);
        // SAFETY: within the caller's buffers; `copy` allows that they are the same.
        unsafe { std::ptr::copy(source.address, run.address, bytes) };
        copied += bytes;
    }
}

/// The link to a rank.
pub(crate) fn link(links: &mut Links, rank: u32) -> &mut Link {
    match &mut links[rank as usize] {
        Some(link) => link,
        None => unreachable!("verified schedules send to nobody but the group's other ranks"),
    }
}
