//! Tuning: measuring once for each topology which algorithms are fast, keeping what was found, and saying why something is chosen.
//!
//! What is chosen rests on three things, the first that has an answer: what somebody asks for ([`overrides`]), what was measured ([`table`]),
//! and thresholds ([`crate::choice`]). All ranks have to choose alike, so rank 0 of the world says once what holds for all ([`policy`]), and
//! what a group measures its rank 0 decides and tells ([`trial`], [`survey`]). What was measured is kept in a file ([`cache`]) for the next
//! world on the same topology ([`machine`]).
//!
//! Every algorithm that is tried is proven like any other before it runs. Where all buffers lie in arenas there is one algorithm, and nothing
//! to measure.

pub(crate) mod candidates;
pub(crate) mod explain;
pub(crate) mod machine;
pub(crate) mod overrides;
pub(crate) mod policy;
pub(crate) mod table;

mod cache;
mod survey;
mod trial;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eirene_train_schedule::Collective;

use self::policy::Tuning;
use self::table::{SIZES, Table, size};
use self::trial::{Ground, least, text_everywhere};
use crate::error::Error;
use crate::group::Group;
use crate::memory::bell::now;

/// Collectives between whose algorithms there is a choice.
pub(crate) const MEASURED: [Collective; 6] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Broadcast { root: 0 },
    Collective::Reduce { root: 0 },
    Collective::AllToAll,
];

/// What has become of a wish to tune a group. Shown, it is a sentence.
#[derive(Debug, Clone, PartialEq)]
pub enum Tuned {
    /// Tuning is off: thresholds decide.
    Off,
    /// One rank has nothing to choose.
    Alone,
    /// What was measured before is used.
    Kept {
        /// When it was measured, as 2026-11-21.
        measured: String,
        /// For how many collectives and sizes.
        cases: usize,
    },
    /// Nothing was measured before, and it is not to be measured now.
    Nothing {
        /// Why what was kept is of no use, if there was anything.
        remark: Option<String>,
    },
    /// It was measured now.
    Measured {
        /// Collectives and sizes.
        cases: usize,
        /// How long that took.
        took: Duration,
        /// Where it is kept, or why it is not. Of rank 0's; the others do not know.
        kept: Option<Result<PathBuf, String>>,
        /// Why what was kept before was of no use, if there was anything.
        remark: Option<String>,
    },
}

impl fmt::Display for Tuned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remark = match self {
            Self::Off => return write!(formatter, "tuning is off: thresholds decide"),
            Self::Alone => return write!(formatter, "one rank has nothing to choose"),
            Self::Kept { measured, cases } => {
                return write!(formatter, "{cases} cases were measured on {measured} on this topology");
            }
            Self::Nothing { remark } => {
                write!(formatter, "nothing was measured on this topology")?;
                remark
            }
            Self::Measured { cases, took, kept, remark } => {
                write!(formatter, "measured {cases} cases in {:.1} s", took.as_secs_f64())?;
                match kept {
                    Some(Ok(path)) => write!(formatter, "; kept in {}", path.display())?,
                    Some(Err(reason)) => write!(formatter, "; not kept: {reason}")?,
                    None => {}
                }
                remark
            }
        };
        remark.as_ref().map_or(Ok(()), |remark| write!(formatter, " ({remark})"))
    }
}

impl Group {
    /// Finds out which algorithms are fast for this group, if that is wanted ([`Options`](crate::Options::tuning)): takes what was measured
    /// before on such a topology, or measures for about as long as `budget` says, and keeps what was found. From then on the group chooses by
    /// it, and if it has all ranks of the world, so do later groups of all ranks.
    ///
    /// All ranks of the group call this, while nothing else of the group's is under way on any of them.
    ///
    /// # Errors
    /// As any collective of the group; not keeping what was found is none.
    pub fn tune(&self, budget: Duration) -> Result<Tuned, Error> {
        let tuning = self.policy().tuning();
        if tuning == Tuning::Off {
            return Ok(Tuned::Off);
        }
        if self.size() == 1 {
            return Ok(Tuned::Alone);
        }
        let (kept, remark) = self.kept(tuning)?;
        let tuned = match kept {
            Some(table) => {
                let (measured, cases) = (table.measured().to_owned(), table.len());
                self.adopt(table);
                Tuned::Kept { measured, cases }
            }
            None if tuning == Tuning::Read => Tuned::Nothing { remark },
            None => self.measure_and_keep(budget, remark)?,
        };
        self.tell(&tuned.to_string());
        Ok(tuned)
    }

    fn measure_and_keep(&self, budget: Duration, remark: Option<String>) -> Result<Tuned, Error> {
        let began = now();
        let table = self.measure(budget)?;
        let took = now().saturating_duration_since(began);
        let kept = (self.rank() == 0).then(|| match self.policy().cache() {
            Some(directory) => cache::write(directory, &table),
            None => Err("neither EIRENE_TRAIN_CACHE, XDG_CACHE_HOME nor HOME names a directory".to_owned()),
        });
        let tuned = Tuned::Measured { cases: table.len(), took, kept, remark };
        self.adopt(table);
        Ok(tuned)
    }

    /// What rank 0 has of before, on every rank, and what is to be said of it.
    fn kept(&self, tuning: Tuning) -> Result<(Option<Arc<Table>>, Option<String>), Error> {
        let (mut found, mut remark) = (None, None);
        if self.rank() == 0 && tuning != Tuning::Again {
            found = self.table().map(|table| table.write());
            if let Some(directory) = self.policy().cache().filter(|_| found.is_none()) {
                match cache::read(directory, &self.policy().key(self.topology())) {
                    Ok(table) => found = table.map(|table| table.write()),
                    Err(reason) => remark = Some(reason),
                }
            }
        }
        let text = text_everywhere(self, &found.unwrap_or_default())?;
        let remark = Some(text_everywhere(self, &remark.unwrap_or_default())?).filter(|remark| !remark.is_empty());
        if text.is_empty() {
            return Ok((None, remark));
        }
        self.read(&text).map(|table| (Some(table), remark))
    }

    fn read(&self, text: &str) -> Result<Arc<Table>, Error> {
        let wrong =
            |reason: String| Error::Mismatch { message: format!("rank 0 of the group has sent a table: {reason}") };
        let table = Table::read(text).map_err(wrong)?;
        if table.is_for(self.topology()) {
            Ok(Arc::new(table))
        } else {
            Err(wrong("it is for ranks that lie on other nodes".to_owned()))
        }
    }

    /// Measures on all ranks.
    fn measure(&self, budget: Duration) -> Result<Arc<Table>, Error> {
        // Input, output and the engine's scratch.
        let room = machine::memory_left(self.near()) / 3;
        let mut largest = (0..SIZES).map(size).filter(|bytes| *bytes <= room).max().unwrap_or(0);
        let mut ground = loop {
            match Ground::new(self, largest) {
                Some(ground) => break ground,
                None => largest /= 4,
            }
        };
        let largest = usize::try_from(least(self, largest as u64)?).unwrap_or(usize::MAX);
        let text = if self.rank() == 0 {
            let cases = survey::survey(self.topology(), largest, budget, &mut ground)?;
            ground.end()?;
            Table::new(self.policy().key(self.topology()), today(), cases).write()
        } else {
            ground.follow()?;
            String::new()
        };
        drop(ground);
        let table = self.read(&text_everywhere(self, &text)?)?;
        self.forget_schedules();
        Ok(table)
    }
}

/// The day, as 2026-11-21.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    day(seconds / 86400)
}

/// A day of the Gregorian calendar, by its number since 1970. Years begin in March here, so that leap days are at their ends (Howard Hinnant,
/// "chrono-compatible low-level date algorithms").
fn day(number: u64) -> String {
    let number = number + 719_468;
    let (era, of_era) = (number / 146_097, number % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (number, wanted) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_723, "2024-01-01"),
            (20_778, "2026-11-21"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(day(number), wanted);
        }
    }

    #[test]
    fn what_has_become_of_it_is_a_sentence() {
        let measured = |kept, remark| Tuned::Measured { cases: 96, took: Duration::from_millis(1_800), kept, remark };
        assert_eq!(
            measured(Some(Ok("/c/t.json".into())), None).to_string(),
            "measured 96 cases in 1.8 s; kept in /c/t.json"
        );
        assert_eq!(
            measured(Some(Err("it is full".to_owned())), Some("x is ignored".to_owned())).to_string(),
            "measured 96 cases in 1.8 s; not kept: it is full (x is ignored)"
        );
    }
}
