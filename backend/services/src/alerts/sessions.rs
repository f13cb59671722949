//! Readings of sessions and runs, from their samples.

use std::collections::{BTreeMap, HashMap, HashSet};

use eirene_core::alert::AlertRule;
use eirene_core::{Session, SessionId};
use eirene_monitoring::{MOST_GPUS, Metric};
use eirene_monitoring_store::Point;

use super::watch::{Reading, Round};
use super::{BEHIND, PART_OF, PORTAL_CLOCK, WAY};
use crate::efficiency::IDLE_PERCENT;
use crate::error::AppError;
use crate::samples::{Back, MEMORY, Recent, Samples, WrongClock, memory_shares};

/// What has to be known at once, and is cheap to ask.
const AT_ONCE: [AlertRule; 2] = [AlertRule::MemoryNearlyFull, AlertRule::GpuLost];
/// What needs a longer look back.
const LATER: [AlertRule; 3] = [AlertRule::GpuMemoryErrors, AlertRule::GpuThrottled, AlertRule::GpusIdle];

const MINUTE_MS: i64 = 60_000;
const ERRORS: Back = Back { length_ms: 60 * MINUTE_MS, points: 60 };
const THROTTLED: Back = Back { length_ms: 5 * MINUTE_MS, points: 60 };
/// A GPU that has computed nothing for longer is not more idle.
const IDLE: Back = Back { length_ms: 180 * MINUTE_MS, points: 180 };

/// Most nodes and devices of a session that a rule looks at: whatever an agent says, it is one session's.
const MOST_SUBJECTS: usize = 1024;

/// Looks at `sessions`; `thoroughly` at what needs a longer look back, too. Without samples nothing is known.
///
/// # Errors
/// As the samples say, but for [`AppError::Unavailable`].
pub(super) async fn look(samples: &Samples, sessions: &[Session], thoroughly: bool) -> Result<Round, AppError> {
    let held = |session: &Session| {
        let id = session.id;
        session.nodes.iter().map(move |node| format!("{id}/{node}")).collect::<Vec<_>>()
    };
    let mut round = Round { held: sessions.iter().flat_map(held).collect(), ..Round::default() };
    let ids = |with: &dyn Fn(&Session) -> bool| -> Vec<SessionId> {
        sessions.iter().filter(|session| with(session)).map(|session| session.id).collect()
    };
    let has_gpus = |session: &Session| session.resources.gpus > 0;
    let all = ids(&|_| true);
    match samples.recent(all, &MEMORY, Back::LAST).await {
        Ok(found) => each(&mut round, sessions, found, memory),
        Err(AppError::Unavailable { .. }) => {
            round.unknown.extend(AT_ONCE.into_iter().chain(LATER));
            return Ok(round);
        }
        Err(error) => return Err(error),
    }
    let with_gpus = ids(&has_gpus);
    let found = samples.recent(with_gpus.clone(), &[Metric::GpuUp], Back::LAST).await?;
    each(&mut round, sessions, found, lost);
    if !thoroughly {
        round.unknown.extend(LATER);
        return Ok(round);
    }
    let found = samples.recent(with_gpus.clone(), &[Metric::GpuUp, Metric::GpuEccUncorrected], ERRORS).await?;
    each(&mut round, sessions, found, errors);
    let found = samples.recent(with_gpus.clone(), &[Metric::GpuUp, Metric::GpuThrottled], THROTTLED).await?;
    each(&mut round, sessions, found, throttled);
    let found = samples.recent(with_gpus, &[Metric::GpuUtil, Metric::GpuUp, Metric::GpuProcesses], IDLE).await?;
    each(&mut round, sessions, found, idle);
    Ok(round)
}

/// Nodes whose clocks are wrong, for admins, by the word of the agents there; in place of all that are off by the same, where these are most, the
/// portal's own, which is nobody's word alone.
pub(super) fn clocks(samples: &Samples, sessions: &[Session]) -> Vec<Reading> {
    let sessions: HashMap<SessionId, &Session> = sessions.iter().map(|session| (session.id, session)).collect();
    let reading = |clock: &WrongClock, subject: &str, session| {
        let way = if clock.ahead.is_negative() { BEHIND } else { "ahead" };
        Reading {
            rule: AlertRule::NodeClockOff,
            subject: subject.to_owned(),
            value: clock.minutes() as f64,
            session,
            is_for_operators: true,
            details: BTreeMap::from([(WAY.to_owned(), way.to_owned())]),
        }
    };
    let of_node = |clock: &WrongClock| {
        let session = sessions.get(&clock.session)?;
        let mut reading = reading(clock, &clock.node, Some((session.id, session.owner)));
        reading.details.insert("node".to_owned(), clock.node.clone());
        Some(reading)
    };
    let (common, own): (Vec<WrongClock>, Vec<WrongClock>) =
        samples.wrong_clocks().into_iter().partition(|clock| clock.is_common);
    let portal = common.first().map(|clock| reading(clock, PORTAL_CLOCK, None));
    portal.into_iter().chain(own.iter().filter_map(of_node)).collect()
}

/// A value about a part of a session: its rule, the node and the GPU, the value, and whether the session has only a part of that GPU.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    rule: AlertRule,
    node: Option<String>,
    gpu: Option<String>,
    value: f64,
    is_shared: bool,
}

fn each(
    round: &mut Round,
    sessions: &[Session],
    found: Vec<(SessionId, Vec<Recent>)>,
    parts: impl Fn(&[Recent]) -> Vec<Part>,
) {
    let sessions: HashMap<SessionId, &Session> = sessions.iter().map(|session| (session.id, session)).collect();
    for (id, recent) in found {
        let Some(session) = sessions.get(&id) else { continue };
        let parts = parts(&recent).into_iter().take(MOST_SUBJECTS);
        round.readings.extend(parts.map(|part| part.of(session)));
    }
}

impl Part {
    fn of(self, session: &Session) -> Reading {
        // What slows the whole down slows each part. An error was in one of them, and nobody tells in whose.
        let is_for_operators = self.is_shared && self.rule == AlertRule::GpuMemoryErrors;
        let (mut about, mut details) = (Vec::new(), BTreeMap::new());
        if !is_for_operators {
            about.push(session.id.to_string());
            details.insert("job".to_owned(), session.name.to_string());
        }
        if let Some(gpu) = self.gpu.clone().filter(|_| self.is_shared) {
            details.insert(PART_OF.to_owned(), gpu);
        }
        for (name, part) in [("node", self.node), ("gpu", self.gpu)] {
            if let Some(part) = part {
                about.push(part.clone());
                details.insert(name.to_owned(), part);
            }
        }
        let (rule, subject, session) = (self.rule, about.join("/"), Some((session.id, session.owner)));
        Reading { rule, subject, value: self.value, session, is_for_operators, details }
    }
}

fn memory(recent: &[Recent]) -> Vec<Part> {
    let rule = AlertRule::MemoryNearlyFull;
    let part = |(node, value)| Part { rule, node: Some(node), gpu: None, value, is_shared: false };
    memory_shares(recent).into_iter().map(part).collect()
}

/// What each GPU's `metric` comes to.
fn of_gpus(recent: &[Recent], rule: AlertRule, metric: Metric, value: impl Fn(&[Point]) -> Option<f64>) -> Vec<Part> {
    let divided = divided(recent);
    let part = |line: &Recent| {
        let (node, gpu) = place(line)?;
        let is_shared = divided.contains(&(node, gpu));
        Some(Part {
            rule,
            node: Some(node.to_owned()),
            gpu: Some(gpu.to_owned()),
            value: value(&line.points)?,
            is_shared,
        })
    };
    recent.iter().filter(|line| line.metric == metric).filter_map(part).collect()
}

/// The node and the GPU.
fn place(line: &Recent) -> Option<(&str, &str)> {
    Some((line.node.as_str(), line.device.as_deref()?))
}

/// The GPUs of which there are only parts: those are up as `1.0`, and what the GPU has as a whole is told as `1`. A number and nothing else, because
/// operators are told of it by an agent's word.
fn divided(recent: &[Recent]) -> HashSet<(&str, &str)> {
    let up: HashSet<(&str, &str)> =
        recent.iter().filter(|line| line.metric == Metric::GpuUp).filter_map(place).collect();
    let is_number =
        |gpu: &str| gpu.parse::<usize>().is_ok_and(|number| number < MOST_GPUS && number.to_string() == gpu);
    let wholes = up.iter().filter_map(|&(node, part)| Some((node, part.split_once('.')?.0)));
    wholes.filter(|whole| is_number(whole.1) && !up.contains(whole)).collect()
}

fn lost(recent: &[Recent]) -> Vec<Part> {
    of_gpus(recent, AlertRule::GpuLost, Metric::GpuUp, |points| Some(1.0 - points.last()?.max))
}

fn errors(recent: &[Recent]) -> Vec<Part> {
    of_gpus(recent, AlertRule::GpuMemoryErrors, Metric::GpuEccUncorrected, rise)
}

/// By how much a counter has risen in all. One that has fallen began anew, and counts from there: what it rose by meanwhile nobody knows.
fn rise(points: &[Point]) -> Option<f64> {
    let (first, rest) = points.split_first()?;
    // A point may be many samples, and then a fall in it looks like a rise. Whether it was one the next says.
    let fell = rest.first().is_some_and(|next| next.max < first.max);
    let mut sum = if fell { 0.0 } else { first.max - first.min };
    let (mut before, mut may_have_fallen) = (first, true);
    for point in rest {
        sum += if point.max >= before.max {
            point.max - before.max
        } else {
            let since = if may_have_fallen { before.min.min(point.min) } else { point.min };
            (point.max - since).max(0.0)
        };
        may_have_fallen = point.max >= before.max && point.min < before.max;
        before = point;
    }
    Some(sum)
}

fn throttled(recent: &[Recent]) -> Vec<Part> {
    let mean = |points: &[Point]| {
        let count: f64 = points.iter().map(|point| f64::from(point.count)).sum();
        let sum: f64 = points.iter().map(|point| point.mean * f64::from(point.count)).sum();
        (count > 0.0).then(|| sum / count)
    };
    of_gpus(recent, AlertRule::GpuThrottled, Metric::GpuThrottled, mean)
}

/// Minutes since any of its GPUs has last computed, or may have, or since there is something to know. None while one of them may compute and does
/// not tell it.
fn idle(recent: &[Recent]) -> Vec<Part> {
    let computes = |point: &Point| point.max >= IDLE_PERCENT / 100.0;
    let told = || recent.iter().filter(|line| line.metric == Metric::GpuUtil);
    let last_ms = told().filter_map(|line| line.points.last()).map(|point| point.at_ms).max();
    let first_ms = told().filter_map(|line| line.points.first()).map(|point| point.at_ms).min();
    let (Some(last_ms), Some(first_ms)) = (last_ms, first_ms) else { return Vec::new() };
    let may_compute = last_untold(recent);
    if may_compute.is_some_and(|at_ms| at_ms >= last_ms) {
        return Vec::new();
    }
    let busy = told().flat_map(|line| &line.points).filter(|point| computes(point)).map(|point| point.at_ms);
    let since = busy.chain(may_compute).fold(first_ms, i64::max);
    let minutes = last_ms.saturating_sub(since) / MINUTE_MS;
    #[expect(clippy::cast_precision_loss, reason = "minutes of a few hours")]
    let value = minutes as f64;
    vec![Part { rule: AlertRule::GpusIdle, node: None, gpu: None, value, is_shared: false }]
}

/// When a GPU was last up that never tells whether it computes, without it being known that no process was on it then.
fn last_untold(recent: &[Recent]) -> Option<i64> {
    let of = |metric: Metric| recent.iter().filter(move |line| line.metric == metric);
    let told: HashSet<(&str, &str)> = of(Metric::GpuUtil).filter_map(place).collect();
    let counts: HashMap<(&str, &str), &[Point]> =
        of(Metric::GpuProcesses).filter_map(|line| Some((place(line)?, line.points.as_slice()))).collect();
    let last = |line: &Recent| {
        let at = place(line).filter(|at| !told.contains(at))?;
        let counts = counts.get(&at).copied().unwrap_or_default();
        let is_empty = |at_ms: i64| {
            // A sample that was lost changes nothing.
            let so_far = counts.partition_point(|point| point.at_ms <= at_ms);
            counts.get(..so_far).and_then(<[Point]>::last).is_some_and(|point| point.max <= 0.0)
        };
        let may_compute = |point: &&Point| point.max > 0.0 && !is_empty(point.at_ms);
        line.points.iter().rev().find(may_compute).map(|point| point.at_ms)
    };
    of(Metric::GpuUp).filter_map(last).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(metric: Metric, device: Option<&str>, values: &[f64]) -> Recent {
        let point = |(at, value): (usize, &f64)| Point {
            at_ms: i64::try_from(at).unwrap() * MINUTE_MS,
            min: *value,
            mean: *value,
            max: *value,
            count: 1,
        };
        let points = values.iter().enumerate().map(point).collect();
        Recent { metric, node: "n1".into(), device: device.map(Into::into), points }
    }

    fn values(parts: &[Part]) -> Vec<f64> {
        parts.iter().map(|part| part.value).collect()
    }

    #[test]
    fn memory_counts_without_what_the_kernel_takes_back_and_nowhere_without_a_limit() {
        let held = line(Metric::Memory, None, &[10.0, 90.0]);
        let limit = line(Metric::MemoryLimit, None, &[100.0, 100.0]);
        let cache = line(Metric::MemoryReclaimable, None, &[0.0, 30.0]);
        assert_eq!(values(&memory(&[held.clone(), limit.clone(), cache])), [0.6]);
        assert_eq!(values(&memory(&[held.clone(), limit.clone()])), [0.9]);
        assert_eq!(values(&memory(std::slice::from_ref(&held))), Vec::<f64>::new());
        assert_eq!(values(&memory(&[held, line(Metric::MemoryLimit, None, &[0.0])])), Vec::<f64>::new());
        assert_eq!(values(&memory(&[limit])), Vec::<f64>::new());
    }

    #[test]
    fn a_gpu_is_lost_once_it_says_so_and_errors_are_those_of_the_time() {
        let up = line(Metric::GpuUp, Some("0"), &[1.0, 1.0, 0.0]);
        assert_eq!(values(&lost(&[up])), [1.0]);
        assert_eq!(values(&errors(&[line(Metric::GpuEccUncorrected, Some("0"), &[3.0, 3.0, 5.0])])), [2.0]);
        assert_eq!(values(&errors(&[line(Metric::GpuEccUncorrected, Some("0"), &[5.0, 0.0])])), [0.0], "it began anew");
        let after_a_reset = line(Metric::GpuEccUncorrected, Some("0"), &[5.0, 0.0, 2.0]);
        assert_eq!(values(&errors(&[after_a_reset])), [2.0], "what came after it counts at once");
        assert_eq!(values(&errors(&[line(Metric::GpuEccUncorrected, Some("0"), &[1.0, 3.0, 0.0, 0.0, 1.0])])), [3.0]);
        let slow = line(Metric::GpuThrottled, Some("1"), &[0.0, 1.0, 1.0, 1.0]);
        assert_eq!(values(&throttled(&[slow])), [0.75]);
    }

    #[test]
    fn a_counter_that_falls_within_a_point_of_many_samples_has_not_risen_by_that() {
        let rise_of = |points: &[(f64, f64)]| {
            let point = |(at, &(min, max)): (usize, &(f64, f64))| Point {
                at_ms: i64::try_from(at).unwrap() * MINUTE_MS,
                min,
                mean: f64::midpoint(min, max),
                max,
                count: 12,
            };
            rise(&points.iter().enumerate().map(point).collect::<Vec<_>>())
        };
        assert_eq!(rise_of(&[]), None);
        assert_eq!(rise_of(&[(0.0, 2.0)]), Some(2.0));
        assert_eq!(rise_of(&[(0.0, 2.0), (2.0, 3.0)]), Some(3.0));
        assert_eq!(rise_of(&[(0.0, 5.0), (0.0, 0.0)]), Some(0.0), "it fell in the first");
        assert_eq!(rise_of(&[(5.0, 5.0), (0.0, 5.0), (0.0, 0.0)]), Some(0.0), "and in a later one");
        assert_eq!(rise_of(&[(5.0, 5.0), (0.0, 5.0), (2.0, 2.0)]), Some(2.0), "it rose between two points");
        assert_eq!(rise_of(&[(5.0, 5.0), (0.0, 2.0), (2.0, 2.0)]), Some(2.0), "it fell between them");
    }

    #[test]
    fn a_gpu_is_shared_where_only_parts_of_it_are_up() {
        let up = |device| line(Metric::GpuUp, Some(device), &[1.0]);
        let errors_of = |device| line(Metric::GpuEccUncorrected, Some(device), &[0.0, 1.0]);
        let all = ["0", "1.0", "1.1", "02.0", "999.0", "amd0"].map(up).into_iter();
        let all: Vec<Recent> = all.chain(["0", "1", "02", "999", "amd0"].map(errors_of)).collect();
        let found = errors(&all);
        let shared: Vec<_> = found.iter().map(|part| (part.gpu.as_deref().unwrap(), part.is_shared)).collect();
        assert_eq!(shared, [("0", false), ("1", true), ("02", false), ("999", false), ("amd0", false)]);
        // What was had as a whole was not divided then.
        assert!(errors(&[up("1"), up("1.0"), errors_of("1")]).iter().all(|part| !part.is_shared));
    }

    #[test]
    fn gpus_are_idle_since_the_last_of_them_has_computed() {
        let one = line(Metric::GpuUtil, Some("0"), &[0.9, 0.0, 0.0, 0.0, 0.0]);
        let other = line(Metric::GpuUtil, Some("1"), &[0.0, 0.0, 0.9, 0.01, 0.0]);
        assert_eq!(values(&idle(std::slice::from_ref(&one))), [4.0]);
        assert_eq!(values(&idle(&[one.clone(), other])), [2.0]);
        // A part counts by its own figure, where there is one.
        let part = line(Metric::GpuUtil, Some("1.0"), &[0.0, 0.0, 0.0, 0.9, 0.0]);
        assert_eq!(values(&idle(&[one, part])), [1.0]);
        assert_eq!(values(&idle(&[line(Metric::GpuUtil, Some("0"), &[0.0; 31])])), [30.0]);
        assert_eq!(values(&idle(&[])), Vec::<f64>::new());
    }

    #[test]
    fn gpus_are_not_idle_while_one_that_does_not_tell_may_compute() {
        let nothing = Vec::<f64>::new();
        let up = |device, values: &[f64]| line(Metric::GpuUp, Some(device), values);
        let on = |device, values: &[f64]| line(Metric::GpuProcesses, Some(device), values);
        let of_idle = |more: &[Recent]| {
            let told = [line(Metric::GpuUtil, Some("1.0"), &[0.0; 41]), up("1.0", &[1.0; 41]), on("1.0", &[1.0; 41])];
            values(&idle(&[told.as_slice(), more].concat()))
        };
        assert_eq!(of_idle(&[]), [40.0], "a process that does nothing is idle");
        assert_eq!(of_idle(&[up("1.1", &[1.0; 41])]), nothing, "nobody tells who is on it");
        assert_eq!(of_idle(&[up("1.1", &[1.0; 41]), on("1.1", &[1.0; 41])]), nothing);
        assert_eq!(of_idle(&[up("1.1", &[1.0; 41]), on("1.1", &[0.0; 41])]), [40.0], "it is empty");
        // Its process went after ten minutes; a count that was lost later brings none back.
        let left: Vec<f64> = [[1.0; 11].as_slice(), &[0.0; 20]].concat();
        assert_eq!(of_idle(&[up("1.1", &[1.0; 41]), on("1.1", &left)]), [30.0]);
        let came: Vec<f64> = [[0.0; 40].as_slice(), &[1.0]].concat();
        assert_eq!(of_idle(&[up("1.1", &[1.0; 41]), on("1.1", &came)]), nothing);
        // A GPU that is lost computes nothing, from when on it is.
        let lost: Vec<f64> = [[1.0; 6].as_slice(), &[0.0; 35]].concat();
        assert_eq!(of_idle(&[up("1.1", &lost)]), [35.0]);
        // On another node it is another.
        let other = Recent { node: "n2".into(), ..up("1.0", &[1.0; 41]) };
        assert_eq!(of_idle(&[other]), nothing);
        assert_eq!(values(&idle(&[up("1.1", &[1.0; 41]), on("1.1", &[0.0; 41])])), nothing, "nobody tells of any");
    }
}
