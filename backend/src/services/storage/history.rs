//! What the storage's servers did in the last day: a point for each look, in memory alone. A restart of the portal begins anew.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use eirene_core::storage::{Bytes, Known, Partial, Role, ServerSample};
use jiff::Timestamp;

/// Points kept of each role: a day of looks a minute apart.
const MOST: usize = 1440;

/// All servers of a role together, over some seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// When it was asked.
    pub at: Timestamp,
    /// Seconds it is the mean of.
    pub over_s: u32,
    /// Bytes written by the second, where the servers say.
    pub written_per_s: Option<f64>,
    /// Bytes read by the second, where the servers say.
    pub read_per_s: Option<f64>,
    /// Requests by the second.
    pub requests_per_s: f64,
    /// Most requests that waited, at one server in one second.
    pub queued_most: u64,
}

/// The last points of each role.
#[derive(Debug, Default)]
pub struct History {
    points: Mutex<HashMap<Role, VecDeque<Point>>>,
}

impl History {
    /// Adds what came for the last `seconds`. An answer with doubts gives no point: a sum with a hole in it is no sum.
    pub fn add(&self, role: Role, at: Timestamp, seconds: u32, answer: &Partial<Vec<ServerSample>>) {
        let Some(point) = point(at, seconds, answer) else { return };
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        let points = points.entry(role).or_default();
        if points.len() >= MOST {
            points.pop_front();
        }
        points.push_back(point);
    }

    /// The points of a role since then, oldest first.
    pub fn since(&self, role: Role, since: Timestamp) -> Vec<Point> {
        let points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        points.get(&role).into_iter().flatten().filter(|point| point.at >= since).cloned().collect()
    }
}

/// The sum over servers of each one's mean: some storages tell all servers in one row a second, some tell each one's seconds.
fn point(at: Timestamp, seconds: u32, answer: &Partial<Vec<ServerSample>>) -> Option<Point> {
    if !answer.doubts.is_empty() || answer.value.is_empty() {
        return None;
    }
    let mut servers: HashMap<Option<u32>, Vec<&ServerSample>> = HashMap::new();
    for sample in &answer.value {
        servers.entry(sample.node.value().map(|node| node.number)).or_default().push(sample);
    }
    let sum = |of: &dyn Fn(&ServerSample) -> Option<u64>| {
        servers.values().map(|samples| mean(samples, of)).sum::<Option<f64>>()
    };
    let bytes = |known: &Known<Bytes>| known.value().map(|bytes| bytes.0);
    let longest = servers.values().map(Vec::len).max().and_then(|rows| u32::try_from(rows).ok());
    Some(Point {
        at,
        over_s: longest.unwrap_or(seconds).min(seconds.max(1)),
        written_per_s: sum(&|sample| bytes(&sample.written)),
        read_per_s: sum(&|sample| bytes(&sample.read)),
        requests_per_s: sum(&|sample| Some(sample.requests))?,
        queued_most: answer.value.iter().map(|sample| sample.queued).max()?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a mean is no count")]
fn mean(samples: &[&ServerSample], of: &dyn Fn(&ServerSample) -> Option<u64>) -> Option<f64> {
    let all = samples.iter().map(|sample| of(sample).map(u128::from)).sum::<Option<u128>>()?;
    Some(all as f64 / samples.len() as f64)
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::{Doubt, DoubtAbout, NodeId, Why};
    use jiff::SignedDuration;

    use super::*;
    use crate::testing::start_time;

    fn sample(server: Option<u32>, at_s: u64, written: Option<u64>, requests: u64) -> ServerSample {
        let node = |number| NodeId { role: Role::Storage, number, alias: None };
        ServerSample {
            node: server.map_or(Known::Missing(Why::NotSupported), |number| Known::Known(node(number))),
            at_s,
            written: written.map_or(Known::Missing(Why::NotSupported), |bytes| Known::Known(Bytes(bytes))),
            read: Known::Known(Bytes(0)),
            requests,
            queued: at_s,
            busy: 0,
        }
    }

    fn sure(value: Vec<ServerSample>) -> Partial<Vec<ServerSample>> {
        Partial { value, doubts: vec![] }
    }

    #[test]
    fn servers_that_are_told_together_and_each_for_itself_give_the_same_point() {
        let together = sure(vec![sample(None, 1, Some(30), 4), sample(None, 2, Some(50), 8)]);
        let each = sure(vec![
            sample(Some(1), 1, Some(10), 1),
            sample(Some(1), 2, Some(20), 3),
            sample(Some(2), 1, Some(20), 3),
            sample(Some(2), 2, Some(30), 5),
        ]);
        let seen = point(start_time(), 60, &together).unwrap();
        assert_eq!(Some(&seen), point(start_time(), 60, &each).as_ref());
        assert_eq!((seen.written_per_s, seen.requests_per_s, seen.over_s), (Some(40.0), 6.0, 2));
        assert_eq!((seen.read_per_s, seen.queued_most), (Some(0.0), 2));
    }

    #[test]
    fn what_one_server_does_not_say_is_no_sum() {
        let seen = point(start_time(), 60, &sure(vec![sample(Some(1), 1, Some(1), 1), sample(Some(2), 1, None, 2)]));
        let seen = seen.unwrap();
        assert_eq!((seen.written_per_s, seen.requests_per_s), (None, 3.0));
        assert_eq!(point(start_time(), 60, &sure(vec![])), None);
        let doubt = Doubt { about: DoubtAbout::Whole, text: "half of it".into() };
        let half = Partial { value: vec![sample(None, 1, Some(1), 1)], doubts: vec![doubt] };
        assert_eq!(point(start_time(), 60, &half), None);
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let history = History::default();
        for minute in 0..2000 {
            let at = start_time() + SignedDuration::from_mins(minute);
            history.add(Role::Storage, at, 60, &sure(vec![sample(None, 1, Some(1), 1)]));
        }
        let all = history.since(Role::Storage, start_time());
        assert_eq!(all.len(), MOST);
        assert_eq!(all.last().unwrap().at, start_time() + SignedDuration::from_mins(1999));
        let hour = history.since(Role::Storage, start_time() + SignedDuration::from_mins(1940));
        assert_eq!(hour.len(), 60);
        assert_eq!(history.since(Role::Metadata, start_time()), []);
    }
}
