//! What was measured, and which algorithm it speaks for.

use std::sync::Arc;

use eirene_train_schedule::{Algorithm, Collective};
use serde::{Deserialize, Serialize};

use super::MEASURED;
use super::candidates::{is_offered, with_segments};
use super::machine::Key;
use crate::call;
use crate::choice::{Topology, Way};

/// What the file looks like. Another number for every change of it, and of what is measured.
const FORMAT: u32 = 1;

/// Sizes that are measured: powers of four from 1 KiB to 64 MiB.
pub(super) const SIZES: usize = 9;

/// The size of a class, in bytes.
pub(super) fn size(class: usize) -> usize {
    1024 << (2 * class)
}

/// The class of a size: that of the nearest power of four, by their ratio.
pub(super) fn class(bytes: usize) -> usize {
    let half_of_smallest = size(0).ilog2() as usize - 1;
    let log = bytes.max(1).ilog2() as usize;
    (log.saturating_sub(half_of_smallest) / 2).min(SIZES - 1)
}

/// What was measured for one collective and size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    pub(super) collective: Collective,
    /// Bytes; 0 where one algorithm is for all sizes, as ranks know only their own.
    pub(super) bytes: usize,
    /// What is clearly faster than what the thresholds say; none if nothing is.
    pub(super) chosen: Option<Way>,
    /// The fastest and what the thresholds say: microseconds, ascending.
    pub(super) times: Vec<(Way, f64)>,
}

impl Case {
    /// The way for a call of so many bytes, in pieces as large as those that were measured.
    pub(crate) fn way(&self, bytes: usize, ranks: u32) -> Option<Way> {
        let Way::Schedule(chosen) = self.chosen.as_ref()? else { return Some(Way::Mpi) };
        Some(Way::Schedule(match chosen.segments() {
            Some(measured) if measured > 1 && self.bytes > 0 => {
                with_segments(chosen, measured as usize * bytes / self.bytes, ranks)
            }
            _ => chosen.clone(),
        }))
    }
}

/// All that was measured on one topology.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    key: Key,
    /// The day, as 2026-11-21.
    measured: String,
    /// By the collective's number and the class of the size.
    cases: [[Option<Arc<Case>>; SIZES]; call::KINDS],
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTable {
    format: u32,
    topology: Key,
    measured: String,
    cases: Vec<WrittenCase>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    collective: String,
    bytes: usize,
    chosen: Option<String>,
    microseconds: Vec<(String, f64)>,
}

impl Table {
    /// Of what was measured on a day.
    pub(super) fn new(key: Key, measured: String, list: Vec<Case>) -> Self {
        let mut cases = [const { [const { None }; SIZES] }; call::KINDS];
        for case in list {
            let (collective, bytes) = (case.collective, case.bytes);
            cases[call::kind(collective) as usize][class(bytes)] = Some(Arc::new(case));
        }
        Self { key, measured, cases }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The day it was measured.
    pub(super) fn measured(&self) -> &str {
        &self.measured
    }

    /// How many cases it has.
    pub(super) fn len(&self) -> usize {
        self.cases.iter().flatten().flatten().count()
    }

    /// Whether it was measured on ranks that lie like these.
    pub(crate) fn is_for(&self, topology: &Topology) -> bool {
        self.key.nodes == topology.nodes()
    }

    /// What was measured for a call, if anything was.
    pub(crate) fn case(&self, collective: Collective, bytes: usize) -> Option<Arc<Case>> {
        self.cases[call::kind(collective) as usize][class(bytes)].clone()
    }

    /// What a case says, in words.
    pub(crate) fn words(&self, case: &Case) -> String {
        let times: Vec<String> =
            case.times.iter().map(|(way, time)| format!("{way} {}", microseconds(*time))).collect();
        let at = if case.bytes > 0 { format!(" at {}", bytes(case.bytes)) } else { String::new() };
        format!("measured {} on this topology{at}: {}", self.measured, times.join(", "))
    }

    /// As it is kept and sent.
    pub(super) fn write(&self) -> String {
        let name = |way: &Way| way.to_string();
        let written = |case: &Arc<Case>| WrittenCase {
            collective: case.collective.name().to_owned(),
            bytes: case.bytes,
            chosen: case.chosen.as_ref().map(name),
            microseconds: case.times.iter().map(|(way, time)| (name(way), *time)).collect(),
        };
        let table = WrittenTable {
            format: FORMAT,
            topology: self.key.clone(),
            measured: self.measured.clone(),
            cases: self.cases.iter().flatten().flatten().map(written).collect(),
        };
        // Nothing in it cannot be written: the keys are strings and the numbers finite.
        serde_json::to_string_pretty(&table).unwrap_or_default()
    }

    /// Reads what was written; whatever is not just as it would be written now is refused.
    ///
    /// # Errors
    /// Why it is of no use.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct OnlyFormat {
            format: u32,
        }
        let format = serde_json::from_str::<OnlyFormat>(text).map_err(|error| error.to_string())?.format;
        if format != FORMAT {
            return Err(format!("it has format {format}, and this version reads {FORMAT}"));
        }
        let written: WrittenTable = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let topology = Topology::new(&written.topology.nodes);
        if topology.nodes() != written.topology.nodes {
            return Err("its nodes are not numbered in order".to_owned());
        }
        let day = &written.measured;
        if day.len() != 10 || !day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            return Err(format!("`{day}` is no day"));
        }
        let mut cases: Vec<Case> = Vec::new();
        for case in &written.cases {
            let case = read_case(case, &topology, written.topology.mpi.is_some())
                .map_err(|reason| format!("{} of {} bytes: {reason}", case.collective, case.bytes))?;
            if cases.iter().any(|known| (known.collective, known.bytes) == (case.collective, case.bytes)) {
                return Err(format!("{} of {} bytes is there twice", case.collective, case.bytes));
            }
            cases.push(case);
        }
        Ok(Self::new(written.topology, written.measured, cases))
    }
}

fn read_case(written: &WrittenCase, topology: &Topology, mpi: bool) -> Result<Case, String> {
    let collective = MEASURED.into_iter().find(|collective| collective.name() == written.collective);
    let collective = collective.ok_or("no such collective is measured")?;
    let is_for_all = collective == Collective::AllToAll;
    if (written.bytes == 0) != is_for_all || (!is_for_all && size(class(written.bytes)) != written.bytes) {
        return Err("this size is not measured".to_owned());
    }
    let is_there = |way: &Way| match way {
        Way::Mpi => mpi,
        Way::Schedule(algorithm) => *algorithm != Algorithm::Shared && is_offered(collective, algorithm, topology),
    };
    let way = |name: &str| {
        let known = Way::named(name, topology.nodes()).filter(is_there);
        known.ok_or_else(|| format!("there is no `{name}` here"))
    };
    let time = |(name, time): &(String, f64)| {
        if time.is_finite() && *time > 0.0 { Ok((way(name)?, *time)) } else { Err(format!("{time} is no time")) }
    };
    let chosen = written.chosen.as_deref().map(way).transpose()?;
    let times = written.microseconds.iter().map(time).collect::<Result<Vec<_>, _>>()?;
    if chosen.as_ref().is_some_and(|chosen| times.first().is_none_or(|(first, _)| first != chosen)) {
        return Err("what is chosen is not what was fastest".to_owned());
    }
    Ok(Case { collective, bytes: written.bytes, chosen, times })
}

/// A time for people.
fn microseconds(time: f64) -> String {
    if time < 10.0 { format!("{time:.1} us") } else { format!("{time:.0} us") }
}

/// A size for people.
pub(super) fn bytes(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x0010_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tuning::machine::Machine;

    /// A small table.
    pub(in super::super) fn sample() -> Table {
        let key = Key::of(
            &Topology::new(&[0, 0]),
            &Machine { cores: 2, mpi: None, encryption: crate::world::Encryption::On },
        );
        let ring = Way::Schedule(Algorithm::SegmentedRing { segments: 4 });
        let direct = Way::Schedule(Algorithm::Direct { segments: 2 });
        let case = |collective, bytes, chosen: Option<&Way>| Case {
            collective,
            bytes,
            chosen: chosen.cloned(),
            times: vec![(ring.clone(), 1.5), (direct.clone(), 903.0)],
        };
        let cases = vec![case(Collective::AllReduce, 1 << 20, Some(&ring)), case(Collective::AllReduce, 4096, None)];
        Table::new(key, "2026-11-21".to_owned(), cases)
    }

    #[test]
    fn mpi_is_in_a_table_only_where_it_is_in_use() {
        let machine = Machine { cores: 2, mpi: Some("MPICH 4".to_owned()), encryption: crate::world::Encryption::On };
        let case = Case {
            collective: Collective::AllReduce,
            bytes: 4096,
            chosen: Some(Way::Mpi),
            times: vec![(Way::Mpi, 1.5)],
        };
        let key = Key::of(&Topology::new(&[0, 1]), &machine);
        let table = Table::new(key, "2026-11-21".to_owned(), vec![case]);
        assert_eq!(Table::read(&table.write()).unwrap(), table);
        let without = table.write().replace("\"MPICH 4\"", "null");
        assert!(Table::read(&without).unwrap_err().contains("no `mpi` here"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let table = sample();
        assert_eq!(Table::read(&table.write()).unwrap(), table);
    }

    #[test]
    fn what_is_not_just_so_is_refused() {
        let good = sample().write();
        for (from, to, reason) in [
            ("\"format\": 1", "\"format\": 2", "format 2"),
            ("\"format\": 1", "\"more\": 1", "missing field"),
            ("\"measured\"", "\"new\": 1, \"measured\"", "unknown field"),
            ("2026-11-21", "some day!!", "no day"),
            ("1048576", "1048577", "not measured"),
            ("1048576", "4096", "twice"),
            ("ring/4", "ring/0", "no `ring/0`"),
            ("ring/4", "binomial", "no `binomial`"),
            ("1.5", "-1.5", "no time"),
            ("\"chosen\": \"ring/4\"", "\"chosen\": \"direct/2\"", "not what was fastest"),
            ("allreduce", "barrier", "no such collective"),
            ("}", "", "key must be a string"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            let error = Table::read(&bad).unwrap_err();
            assert!(error.contains(reason), "{from} → {to}: {error}");
        }
        for cut in 0..good.len() {
            assert!(Table::read(&good[..cut]).is_err());
        }
    }

    #[test]
    fn a_size_belongs_to_the_nearest_that_was_measured() {
        for (bytes, wanted) in [
            (0, 0),
            (1, 0),
            (1024, 0),
            (2047, 0),
            (2048, 1),
            (4096, 1),
            (8191, 1),
            (8192, 2),
            (64 << 20, 8),
            (usize::MAX, 8),
        ] {
            assert_eq!(class(bytes), wanted, "{bytes}");
        }
        assert!((0..SIZES).all(|number| class(size(number)) == number));
        assert_eq!(size(SIZES - 1), 64 << 20);
    }

    #[test]
    fn pieces_stay_as_large_as_those_that_were_measured() {
        let table = sample();
        let at = |bytes| table.case(Collective::AllReduce, bytes).and_then(|case| case.way(bytes, 2));
        assert_eq!(at(1 << 20), Some(Way::Schedule(Algorithm::SegmentedRing { segments: 4 })));
        assert_eq!(at(3 << 19), Some(Way::Schedule(Algorithm::SegmentedRing { segments: 6 })));
        assert_eq!(at(1 << 19), Some(Way::Schedule(Algorithm::SegmentedRing { segments: 2 })));
        assert_eq!(at(4096), None, "nothing was clearly faster");
        assert!(table.case(Collective::AllReduce, 1 << 24).is_none());
    }
}
