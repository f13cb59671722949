//! What the storage's servers did in the last day, and who asked for it: a point for each look, in memory alone. A restart of the portal begins
//! anew: the store of samples is no place for it, as its series are a session's or the cluster's, by names that are known beforehand.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use eirene_core::storage::{Bytes, Known, OperationsOf, Partial, Role, ServerSample};
use jiff::Timestamp;

/// Points kept of each role: a day of looks a minute apart.
const MOST: usize = 1440;
/// Users that a point names; all others are one sum. So a day of both roles takes about 2 MiB at most.
pub const MOST_USERS: usize = 10;

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

/// What one user asked, or several together, by the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Operations.
    pub operations: f64,
    /// Bytes read, where the servers say.
    pub read: Option<f64>,
    /// Bytes written, where the servers say.
    pub written: Option<f64>,
}

impl Load {
    /// Bytes read and written.
    pub fn bytes(&self) -> Option<f64> {
        Some(self.read? + self.written?)
    }

    /// What is left of this without those; what rounds to nothing over so many seconds is nothing.
    fn without(&self, those: &[(OperationsOf, Load)], over_s: f64) -> Option<Self> {
        let less = |all: f64, one: f64| (((all - one) * over_s).round() / over_s).max(0.0);
        let sum = |of: fn(&Load) -> Option<f64>| those.iter().map(|(_, load)| of(load)).sum::<Option<f64>>();
        let rest = Self {
            operations: less(self.operations, those.iter().map(|(_, load)| load.operations).sum()),
            read: self.read.and_then(|all| Some(less(all, sum(|load| load.read)?))),
            written: self.written.and_then(|all| Some(less(all, sum(|load| load.written)?))),
        };
        rest.is_something().then_some(rest)
    }

    fn is_something(&self) -> bool {
        self.operations > 0.0 || [self.read, self.written].into_iter().flatten().any(|bytes| bytes > 0.0)
    }
}

/// What users asked of all servers of a role together, over some seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct UsersPoint {
    /// When they were counted.
    pub at: Timestamp,
    /// Seconds before that it is the mean of.
    pub over_s: f64,
    /// Those who asked most, most bytes first, then most operations; at most [`MOST_USERS`]. Who asked nothing is not among them.
    pub users: Vec<(OperationsOf, Load)>,
    /// All others together; none where they asked nothing.
    pub others: Option<Load>,
}

impl UsersPoint {
    /// The point of who asked how much, and of what all of them asked.
    pub(super) fn new(at: Timestamp, over_s: f64, mut loads: Vec<(OperationsOf, Load)>, all: &Load) -> Self {
        loads.retain(|(_, load)| load.is_something());
        let users = greatest(loads);
        let others = all.without(&users, over_s);
        Self { at, over_s, users, others }
    }
}

/// Half of them by bytes, the other half by operations: a storage is loaded by either. Where no bytes are told, all by operations.
fn greatest(mut loads: Vec<(OperationsOf, Load)>) -> Vec<(OperationsOf, Load)> {
    type Asker = (OperationsOf, Load);
    let by_operations = |(_, one): &Asker, (_, other): &Asker| other.operations.total_cmp(&one.operations);
    let by_bytes = |one: &Asker, other: &Asker| {
        let bytes = |(_, load): &Asker| load.bytes().unwrap_or(0.0);
        bytes(other).total_cmp(&bytes(one)).then_with(|| by_operations(one, other))
    };
    loads.sort_by(by_bytes);
    let by_bytes_alone = loads.len().min(MOST_USERS / 2);
    loads[by_bytes_alone..].sort_by(by_operations);
    loads.truncate(MOST_USERS);
    loads.sort_by(by_bytes);
    loads
}

/// The last points of each role.
#[derive(Debug, Default)]
pub struct History {
    points: Mutex<HashMap<Role, VecDeque<Point>>>,
    users: Mutex<HashMap<Role, VecDeque<UsersPoint>>>,
}

impl History {
    /// Adds what came for the last `seconds`. An answer with doubts gives no point: a sum with a hole in it is no sum.
    pub fn add(&self, role: Role, at: Timestamp, seconds: u32, answer: &Partial<Vec<ServerSample>>) {
        let Some(point) = point(at, seconds, answer) else { return };
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        push(points.entry(role).or_default(), point);
    }

    /// Adds what users asked.
    pub fn add_users(&self, role: Role, point: UsersPoint) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        push(users.entry(role).or_default(), point);
    }

    /// The points of a role since then, oldest first.
    pub fn since(&self, role: Role, since: Timestamp) -> Vec<Point> {
        let points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        points.get(&role).into_iter().flatten().filter(|point| point.at >= since).cloned().collect()
    }

    /// What users asked of a role since then, oldest first.
    pub fn users_since(&self, role: Role, since: Timestamp) -> Vec<UsersPoint> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.get(&role).into_iter().flatten().filter(|point| point.at >= since).cloned().collect()
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() >= MOST {
        points.pop_front();
    }
    points.push_back(point);
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
        for minute in 0..2000 {
            let at = start_time() + SignedDuration::from_mins(minute);
            let all = Load { operations: 1.0, read: None, written: None };
            history.add_users(Role::Metadata, UsersPoint::new(at, 60.0, vec![], &all));
        }
        assert_eq!(history.users_since(Role::Metadata, start_time()).len(), MOST);
        assert_eq!(history.users_since(Role::Metadata, start_time() + SignedDuration::from_mins(1940)).len(), 60);
        assert_eq!(history.users_since(Role::Storage, start_time()), []);
    }

    fn load(operations: f64, bytes: Option<f64>) -> Load {
        Load { operations, read: bytes, written: bytes.map(|_| 0.0) }
    }

    fn named(point: &UsersPoint) -> Vec<u32> {
        let number = |(of, _): &(OperationsOf, Load)| match of {
            OperationsOf::User(number) => *number,
            OperationsOf::UnknownUser | OperationsOf::Client(_) => panic!("{of:?}"),
        };
        point.users.iter().map(number).collect()
    }

    #[test]
    fn those_who_ask_most_are_named_and_all_others_are_one_sum() {
        let loads: Vec<_> =
            (0..30).map(|user| (OperationsOf::User(user), load(f64::from(user), Some(f64::from(30 - user))))).collect();
        let all = load(loads.iter().map(|(_, load)| load.operations).sum(), Some((1..=30).map(f64::from).sum()));
        let point = UsersPoint::new(start_time(), 60.0, loads, &all);
        assert_eq!(named(&point), [0, 1, 2, 3, 4, 25, 26, 27, 28, 29], "five by bytes, and five by operations");
        assert_eq!(point.others, Some(load(f64::from((5..25).sum::<u32>()), Some(f64::from((6..=25).sum::<u32>())))));
    }

    #[test]
    fn without_bytes_operations_decide_and_who_asked_nothing_is_nobody() {
        let loads: Vec<_> = (0..12).map(|user| (OperationsOf::User(user), load(f64::from(user), None))).collect();
        let point = UsersPoint::new(start_time(), 7.0, loads, &load(66.0, None));
        assert_eq!(named(&point), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(point.others, Some(load(1.0, None)));
        let loads = vec![(OperationsOf::User(1), load(0.1, None)), (OperationsOf::User(2), load(0.0, None))];
        let point = UsersPoint::new(start_time(), 10.0, loads, &load(0.1 + 1e-12, None));
        assert_eq!((named(&point), point.others), (vec![1], None));
    }

    #[test]
    fn bytes_that_one_of_them_does_not_tell_are_no_sum() {
        let loads = vec![(OperationsOf::User(1), load(1.0, Some(5.0))), (OperationsOf::UnknownUser, load(1.0, None))];
        let point = UsersPoint::new(start_time(), 10.0, loads, &load(3.0, Some(9.0)));
        assert_eq!(point.users.len(), 2);
        assert_eq!(point.others, Some(Load { operations: 1.0, read: None, written: None }));
    }
}
