//! Rank 0's part of a meeting: it knows who is there, passes everybody's addresses around, and decides when the world
//! stands or why it does not. Whatever it decides, everybody who came hears it.

use std::time::{Duration, Instant};

use crate::door::Guest;
use crate::error::Error;
use crate::floor::{Event, Floor};
use crate::join::listen_inside;
use crate::plan::{Phase, Plan};
use crate::proof::Verdict;
use crate::seal::{Kind, Message};
use crate::wire::{Entry, Reader, Writer, read_error, write_error, write_table};

/// How long the others have to hear a verdict.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long after a failure rank 0 stays to tell those who come only now.
const LINGER: Duration = Duration::from_secs(1);
/// How long ranks that are late have to say for whom they wait.
const EXCUSE: Duration = Duration::from_secs(1);

/// What rank 0 knows of another rank.
#[derive(Default)]
struct Seat {
    life: u64,
    entry: Option<Entry>,
    listening: bool,
    /// It has all connections; these ranks of its node it could not reach inside the node.
    linked: Option<Vec<u32>>,
    /// It has said for whom it waits.
    waits_for: Option<Vec<u32>>,
}

/// What all ranks do together, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Arriving,
    Listening,
    Linking,
}

pub(crate) struct Judge<'a> {
    plan: &'a Plan,
    pub(crate) floor: Floor,
    own: Entry,
    /// Where everybody is, once everybody is there.
    pub(crate) table: Vec<Entry>,
    seats: Vec<Seat>,
    began: Instant,
    until: Instant,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(plan: &'a Plan, floor: Floor, own: Entry) -> Self {
        let began = Instant::now();
        let seats = (0..plan.size).map(|_| Seat::default()).collect();
        Self { plan, floor, own, table: Vec::new(), seats, began, until: began + plan.timeout }
    }

    /// Brings the world together, and gives each rank's node.
    pub(crate) fn preside(&mut self) -> Result<Vec<u32>, Error> {
        let result = self.sessions();
        match &result {
            Ok(nodes) => {
                self.floor.shut();
                let nodes = Writer::default().ranks(nodes).done();
                self.floor.tell_all(Kind::Go, &nodes, Instant::now() + FAREWELL);
            }
            Err(error) => {
                let word = write_error(error, 0);
                self.floor.tell_all(Kind::Failed, &word, Instant::now() + FAREWELL);
                self.linger(&word);
                self.floor.shut();
            }
        }
        result
    }

    /// Tells those who come a little late why the world did not come about, lest they wait for it in vain.
    fn linger(&mut self, word: &[u8]) {
        let until = (Instant::now() + LINGER).min(self.until);
        while self.seats.iter().skip(1).any(|seat| seat.life == 0) && Instant::now() < until {
            let Ok(events) = self.floor.round(until) else { return };
            for event in events {
                let Event::Guest(guest) = event else { continue };
                let at = guest.wish.from as usize;
                // Whatever comes of it: the one who came hears of it one way or the other.
                let _ = self.receive(guest);
                if let Some(talk) = self.floor.talks.get_mut(at).and_then(Option::as_mut) {
                    talk.say(Kind::Failed, word);
                }
            }
        }
    }

    fn sessions(&mut self) -> Result<Vec<u32>, Error> {
        self.session(Stage::Arriving)?;
        self.plan.tell(Phase::Arrived);
        self.table = self.seats.iter().map(|seat| seat.entry.clone().unwrap_or(self.own.clone())).collect();
        let bytes = write_table(&self.table);
        if bytes.len() > crate::seal::MOST_BYTES {
            return Err(Error::invalid(
                "the ranks have more addresses than can be passed around: name the interfaces to use",
            ));
        }
        self.floor.tell_all(Kind::Table, &bytes, self.until);
        listen_inside(&mut self.floor, self.plan, &self.own, &self.table)?;
        self.plan.tell(Phase::Listening);
        self.session(Stage::Listening)?;
        self.floor.tell_all(Kind::Dial, &[], self.until);
        self.plan.tell(Phase::Calling);
        self.session(Stage::Linking)?;
        self.plan.tell(Phase::Linked);
        let apart = |rank: u32| self.seats[rank as usize].linked.clone().unwrap_or_default();
        Ok(number_nodes(&self.table, &(0..self.plan.size).map(apart).collect::<Vec<_>>()))
    }

    fn others(&self) -> impl Iterator<Item = (u32, &Seat)> {
        (0_u32..).zip(&self.seats).skip(1)
    }

    /// Who has not done its part.
    fn behind(&self, stage: Stage) -> Vec<u32> {
        let behind = self.others().filter(|(_, seat)| match stage {
            Stage::Arriving => seat.entry.is_none(),
            Stage::Listening => !seat.listening,
            Stage::Linking => seat.linked.is_none(),
        });
        behind.map(|(rank, _)| rank).collect()
    }

    fn session(&mut self, stage: Stage) -> Result<(), Error> {
        loop {
            let behind = self.behind(stage);
            let own = stage == Stage::Linking && !self.floor.missing().is_empty();
            if behind.is_empty() && !own {
                return Ok(());
            }
            if Instant::now() >= self.until {
                return Err(self.too_late(stage));
            }
            for event in self.floor.round(self.until)? {
                self.decide(event)?;
            }
        }
    }

    fn decide(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Guest(guest) => self.receive(guest),
            Event::Said(rank, message) => self.hear(rank, &message),
            // One that had not said anything yet may come again.
            Event::Gone(rank) if self.seats[rank as usize].entry.is_none() => Ok(()),
            Event::Gone(rank) => Err(Error::Died { rank }),
            Event::Corrupt(rank) => Err(Error::Corrupt { rank }),
        }
    }

    fn receive(&mut self, guest: Guest) -> Result<(), Error> {
        let wish = guest.wish;
        if wish.to != 0 || wish.from == 0 {
            let taken = wish.from == 0;
            guest.refuse(if taken { Verdict::Taken } else { Verdict::Unwanted });
            return if taken { Err(Error::Duplicate { rank: 0 }) } else { Ok(()) };
        }
        if wish.size != self.plan.size {
            if let Some(seat) = self.seats.get_mut(wish.from as usize) {
                seat.life = wish.mark;
            }
            guest.refuse(Verdict::WrongSize(self.plan.size));
            return Err(Error::WorldSize { rank: wish.from, theirs: wish.size, ours: self.plan.size });
        }
        let at = wish.from as usize;
        let Some(seat) = self.seats.get_mut(at) else {
            guest.refuse(Verdict::Unwanted);
            return Ok(());
        };
        let alone = self.floor.talks[at].is_none() && seat.entry.is_none();
        if !alone && (seat.life != wish.mark || seat.entry.is_some()) {
            guest.refuse(Verdict::Taken);
            return Err(Error::Duplicate { rank: wish.from });
        }
        seat.life = wish.mark;
        self.floor.talks[at] = guest.welcome();
        Ok(())
    }

    fn hear(&mut self, rank: u32, message: &Message) -> Result<(), Error> {
        let corrupt = || Error::Corrupt { rank };
        let mut reader = Reader::new(&message.bytes);
        let seat = &mut self.seats[rank as usize];
        match message.kind {
            Kind::Arrived if seat.entry.is_none() => {
                let left = Duration::from_millis(reader.u64().ok_or_else(corrupt)?);
                seat.entry = Some(Entry::read(&mut reader).filter(|_| reader.at_end()).ok_or_else(corrupt)?);
                self.until = self.until.min(Instant::now() + left);
            }
            Kind::Listening => seat.listening = true,
            Kind::Linked => seat.linked = Some(reader.ranks().ok_or_else(corrupt)?),
            Kind::Waiting => seat.waits_for = Some(reader.ranks().ok_or_else(corrupt)?),
            Kind::Failed => return Err(read_error(&message.bytes).unwrap_or_else(corrupt)),
            _ => return Err(corrupt()),
        }
        Ok(())
    }

    /// Time is up: who is to blame.
    fn too_late(&mut self, stage: Stage) -> Error {
        let timeout = |judge: &Self, missing| Error::Timeout {
            waited: judge.began.elapsed(),
            missing,
            strangers: judge.floor.door.strangers,
        };
        if stage != Stage::Linking {
            return timeout(self, self.behind(stage));
        }
        let until = Instant::now() + EXCUSE;
        self.floor.tell_all(Kind::Waiting, &[], until);
        let silent = |judge: &Self| -> Vec<u32> {
            let silent = judge.others().filter(|(_, seat)| seat.linked.is_none() && seat.waits_for.is_none());
            silent.map(|(rank, _)| rank).collect()
        };
        while !silent(self).is_empty() && Instant::now() < until {
            match self.floor.round(until) {
                Ok(events) => {
                    for event in events {
                        if let Err(error) = self.decide(event) {
                            return error;
                        }
                    }
                }
                Err(error) => return error,
            }
        }
        let missing = silent(self);
        if !missing.is_empty() {
            return timeout(self, missing);
        }
        let pair = |from: u32, to: u32| Error::Unreachable { from: from.max(to), to: from.min(to) };
        let theirs = self.others().find_map(|(rank, seat)| Some(pair(rank, *seat.waits_for.as_ref()?.first()?)));
        let ours = self.floor.missing().first().map(|&other| pair(0, other));
        theirs.or(ours).unwrap_or_else(|| timeout(self, self.behind(stage)))
    }
}

/// Numbers the nodes by their lowest ranks. Ranks share a node if their entries say so and none of them failed to reach
/// another of them inside it.
fn number_nodes(table: &[Entry], apart: &[Vec<u32>]) -> Vec<u32> {
    let mut nodes: Vec<Vec<usize>> = Vec::new();
    let mut numbers = vec![0; table.len()];
    let reached =
        |one: usize, other: usize| !apart[one].contains(&(other as u32)) && !apart[other].contains(&(one as u32));
    for rank in 0..table.len() {
        let fits =
            |node: &Vec<usize>| node.iter().all(|&other| table[other].node == table[rank].node && reached(rank, other));
        let at = nodes.iter().position(fits).unwrap_or_else(|| {
            nodes.push(Vec::new());
            nodes.len() - 1
        });
        nodes[at].push(rank);
        numbers[rank] = at as u32;
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_lowest_rank() {
        let table: Vec<Entry> = [1, 2, 1, 2, 3].map(|node| Entry { node: [node; 16], ..Entry::default() }).into();
        assert_eq!(number_nodes(&table, &vec![Vec::new(); 5]), [0, 1, 0, 1, 2]);
    }

    #[test]
    fn ranks_that_cannot_reach_each_other_inside_the_node_count_as_apart() {
        let table = vec![Entry::default(); 4];
        assert_eq!(number_nodes(&table, &[vec![], vec![], vec![0, 1], vec![0, 1]]), [0, 0, 1, 1]);
        assert_eq!(number_nodes(&table, &[vec![], vec![0], vec![], vec![]]), [0, 1, 0, 0]);
    }
}
