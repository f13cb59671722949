//! What the storage's servers did in the last day, and who asked for it: a point for each look. It is read from memory; each look is a row of the
//! database as well, so that a portal that was started anew has them again. Points alone are written down, and never the counts that they are
//! differences of: so none goes over a time in which there was no portal. The store of samples is no place for it, as its series are a session's or
//! the cluster's, by names that are known beforehand.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use eirene_core::storage::{Bytes, Known, OperationsOf, Partial, Role, ServerSample};
use eirene_database::StorageLook;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::judge::role_word;

/// For how long looks are kept.
pub const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Points kept of each role: a day of looks a minute apart.
pub(super) const MOST: u32 = 1440;
/// Users that a point names; all others are one sum. So a day of both roles takes about 2 MiB at most.
pub const MOST_USERS: usize = 10;

/// All servers of a role together, over some seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// What a look at the servers of a role came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    /// What they did.
    pub servers: Option<Point>,
    /// What users asked of them.
    pub users: Option<UsersPoint>,
}

impl Look {
    /// As it is written down; none where nothing was told.
    pub(super) fn to_stored(&self, at: Timestamp) -> serde_json::Result<Option<StorageLook>> {
        let servers = self.servers.as_ref().map(serde_json::to_string).transpose()?;
        let users = self.users.as_ref().map(serde_json::to_string).transpose()?;
        let is_told = servers.is_some() || users.is_some();
        Ok(is_told.then_some(StorageLook { at, servers, users }))
    }

    /// As it was written down.
    fn from_stored(stored: &StorageLook) -> anyhow::Result<Self> {
        let servers: Option<Point> = stored.servers.as_deref().map(serde_json::from_str).transpose()?;
        let users: Option<UsersPoint> = stored.users.as_deref().map(serde_json::from_str).transpose()?;
        let of_servers = servers.as_ref().map(|point| f64::from(point.over_s));
        for over_s in of_servers.into_iter().chain(users.as_ref().map(|point| point.over_s)) {
            let is_some_time = over_s > 0.0 && over_s <= KEPT.as_secs_f64();
            anyhow::ensure!(is_some_time, "a mean of {over_s} seconds is none");
        }
        Ok(Self { servers, users })
    }
}

/// The last points of each role.
#[derive(Debug, Default)]
pub struct History {
    points: Mutex<HashMap<Role, VecDeque<Point>>>,
    users: Mutex<HashMap<Role, VecDeque<UsersPoint>>>,
}

impl History {
    /// Adds what a look came to.
    pub fn add(&self, role: Role, look: Look) {
        if let Some(point) = look.servers {
            push(self.points.lock().unwrap_or_else(PoisonError::into_inner).entry(role).or_default(), point);
        }
        if let Some(point) = look.users {
            push(self.users.lock().unwrap_or_else(PoisonError::into_inner).entry(role).or_default(), point);
        }
    }

    /// Puts what was written down, newest first, before what was seen since. A look that makes no sense is left out.
    pub(super) fn recall(&self, role: Role, stored: &[StorageLook]) {
        let (mut points, mut users, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for look in stored {
            match Look::from_stored(look) {
                Ok(look) => {
                    points.extend(look.servers);
                    users.extend(look.users);
                }
                Err(error) => errors.push(error),
            }
        }
        if let Some(error) = errors.first() {
            let (role, looks) = (role_word(role), errors.len());
            tracing::warn!(role, looks, %error, "Looks at the storage that were written down are not understood");
        }
        let mut known = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        put_before(known.entry(role).or_default(), points, |point| point.at);
        let mut known = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        put_before(known.entry(role).or_default(), users, |point| point.at);
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
    if points.len() >= MOST as usize {
        points.pop_front();
    }
    points.push_back(point);
}

/// Puts points, newest first, before those that are there. What is not earlier than these is there already, or another clock has dated it.
fn put_before<T>(points: &mut VecDeque<T>, earlier: Vec<T>, at: impl Fn(&T) -> Timestamp) {
    let first = points.front().map(&at);
    let room = (MOST as usize).saturating_sub(points.len());
    for point in earlier.into_iter().filter(|point| first.is_none_or(|first| at(point) < first)).take(room) {
        points.push_front(point);
    }
}

impl Point {
    /// The sum over servers of each one's mean: some storages tell all servers in one row a second, some tell each one's seconds. An answer with
    /// doubts gives no point: a sum with a hole in it is no sum.
    pub(super) fn of(at: Timestamp, seconds: u32, answer: &Partial<Vec<ServerSample>>) -> Option<Self> {
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
        Some(Self {
            at,
            over_s: longest.unwrap_or(seconds).min(seconds.max(1)),
            written_per_s: sum(&|sample| bytes(&sample.written)),
            read_per_s: sum(&|sample| bytes(&sample.read)),
            requests_per_s: sum(&|sample| Some(sample.requests))?,
            queued_most: answer.value.iter().map(|sample| sample.queued).max()?,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean is no count")]
fn mean(samples: &[&ServerSample], of: &dyn Fn(&ServerSample) -> Option<u64>) -> Option<f64> {
    let all = samples.iter().map(|sample| of(sample).map(u128::from)).sum::<Option<u128>>()?;
    Some(all as f64 / samples.len() as f64)
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::{Doubt, DoubtAbout, NodeId, Why};

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
        let seen = Point::of(start_time(), 60, &together).unwrap();
        assert_eq!(Some(&seen), Point::of(start_time(), 60, &each).as_ref());
        assert_eq!((seen.written_per_s, seen.requests_per_s, seen.over_s), (Some(40.0), 6.0, 2));
        assert_eq!((seen.read_per_s, seen.queued_most), (Some(0.0), 2));
    }

    #[test]
    fn what_one_server_does_not_say_is_no_sum() {
        let seen =
            Point::of(start_time(), 60, &sure(vec![sample(Some(1), 1, Some(1), 1), sample(Some(2), 1, None, 2)]));
        let seen = seen.unwrap();
        assert_eq!((seen.written_per_s, seen.requests_per_s), (None, 3.0));
        assert_eq!(Point::of(start_time(), 60, &sure(vec![])), None);
        let doubt = Doubt { about: DoubtAbout::Whole, text: "half of it".into() };
        let half = Partial { value: vec![sample(None, 1, Some(1), 1)], doubts: vec![doubt] };
        assert_eq!(Point::of(start_time(), 60, &half), None);
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let history = History::default();
        for minute in 0..2000 {
            let at = start_time() + SignedDuration::from_mins(minute);
            let servers = Point::of(at, 60, &sure(vec![sample(None, 1, Some(1), 1)]));
            history.add(Role::Storage, Look { servers, users: None });
        }
        let all = history.since(Role::Storage, start_time());
        assert_eq!(all.len(), MOST as usize);
        assert_eq!(all.last().unwrap().at, start_time() + SignedDuration::from_mins(1999));
        let hour = history.since(Role::Storage, start_time() + SignedDuration::from_mins(1940));
        assert_eq!(hour.len(), 60);
        assert_eq!(history.since(Role::Metadata, start_time()), []);
        for minute in 0..2000 {
            let at = start_time() + SignedDuration::from_mins(minute);
            let all = Load { operations: 1.0, read: None, written: None };
            let users = Some(UsersPoint::new(at, 60.0, vec![], &all));
            history.add(Role::Metadata, Look { servers: None, users });
        }
        assert_eq!(history.users_since(Role::Metadata, start_time()).len(), MOST as usize);
        assert_eq!(history.users_since(Role::Metadata, start_time() + SignedDuration::from_mins(1940)).len(), 60);
        assert_eq!(history.users_since(Role::Storage, start_time()), []);
    }

    fn stored(minute: i64, history: &History) -> StorageLook {
        let at = start_time() + SignedDuration::from_mins(minute);
        let servers = Point::of(at, 60, &sure(vec![sample(None, 1, Some(1), 1)]));
        let loads = vec![(OperationsOf::User(7), load(2.0, Some(0.5))), (OperationsOf::UnknownUser, load(1.5, None))];
        let users = Some(UsersPoint::new(at, 60.0, loads, &load(9.0, None)));
        let look = Look { servers, users };
        history.add(Role::Storage, look.clone());
        look.to_stored(at).unwrap().unwrap()
    }

    #[test]
    fn what_was_written_down_is_the_same_again_and_comes_before_what_was_seen_since() {
        let all = |history: &History| {
            (history.since(Role::Storage, start_time()), history.users_since(Role::Storage, start_time()))
        };
        let (whole, since) = (History::default(), History::default());
        let mut looks: Vec<StorageLook> = (0..2).map(|minute| stored(minute, &whole)).collect();
        looks.extend((10..12).map(|minute| {
            stored(minute, &since);
            stored(minute, &whole)
        }));
        looks.reverse();
        // Twice, as where the database was lost halfway.
        for _ in 0..2 {
            since.recall(Role::Storage, &looks);
            assert_eq!(all(&since), all(&whole));
        }
        assert_eq!(all(&whole).1[0].users[1].0, OperationsOf::UnknownUser);
        assert_eq!(since.since(Role::Metadata, start_time()), []);
        assert_eq!(Look::default().to_stored(start_time()).unwrap(), None, "nothing was told");
    }

    #[test]
    fn no_more_is_recalled_than_is_kept() {
        let (whole, full) = (History::default(), History::default());
        let mut looks: Vec<StorageLook> = (0..2000).map(|minute| stored(minute, &whole)).collect();
        looks.reverse();
        stored(2000, &full);
        full.recall(Role::Storage, &looks);
        let points = full.since(Role::Storage, start_time());
        assert_eq!(points.len(), MOST as usize);
        assert_eq!(points[0].at, start_time() + SignedDuration::from_mins(2001 - i64::from(MOST)));
    }

    #[test]
    fn a_look_that_makes_no_sense_is_none() {
        let history = History::default();
        let good = stored(0, &history);
        assert!(Look::from_stored(&good).is_ok());
        let with = |of: &str, other: &str| {
            let users = good.users.as_ref().map(|users| users.replace(of, other));
            assert_ne!(users, good.users, "{of}");
            StorageLook { users, ..good.clone() }
        };
        for bad in [
            StorageLook { servers: Some("{".into()), ..good.clone() },
            StorageLook { servers: Some("{}".into()), ..good.clone() },
            with("60.0", "0.0"),
            with("60.0", "-60.0"),
            with("60.0", "86401.0"),
            with("60.0", "null"),
            with("unknown_user", "everybody"),
        ] {
            assert!(Look::from_stored(&bad).is_err(), "{bad:?}");
        }
    }

    fn load(operations: f64, bytes: Option<f64>) -> Load {
        Load { operations, read: bytes, written: bytes.map(|_| 0.0) }
    }

    fn named(point: &UsersPoint) -> Vec<u32> {
        let number = |(of, _): &(OperationsOf, Load)| match of {
            OperationsOf::User(number) => *number,
            OperationsOf::UnknownUser | OperationsOf::Client(_) | OperationsOf::Servers => panic!("{of:?}"),
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
