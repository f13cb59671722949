//! What the storage's servers do, and who asks how much of them: the last hour of both as a picture and a table, the last second of each server,
//! and the people and nodes that ask most.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eirene_core::Username;
use eirene_core::storage::{OperationsOf, Role, ServerSample};
use eirene_services::storage::history::{Load, MOST_USERS, Point, UsersPoint};
use eirene_services::storage::judge::role_word;
use eirene_services::storage::stats::{Operations, Row, Servers};
use eirene_words::Words;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::chart::{self, Sample};
use super::format::{self, Time};
use super::layout::Layout;
use crate::pages::Page;

/// Minutes of the picture.
pub(crate) const MINUTES: u32 = 60;
/// People and nodes that are named.
const MOST: usize = 20;
/// People who have a line of their own in the picture of who asked.
const MOST_LINES: usize = 3;
/// Rows of the picture's table.
const MOST_POINTS: usize = 60;

/// One row of the picture's table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PointView {
    /// When.
    at: Time,
    /// Bytes read by the second; empty where nobody tells.
    read: String,
    /// Bytes written.
    written: String,
    /// Requests.
    requests: String,
    /// Most requests that waited.
    queued: String,
}

/// One line of a picture.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StretchesView {
    /// What or who it is, and its highest value.
    label: String,
    /// Which style of line it has.
    style: usize,
    /// Each of its stretches, as points.
    pieces: Vec<String>,
}

/// What somebody asked at some time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AskedView {
    /// Who.
    who: String,
    /// How much; empty where nobody tells.
    much: String,
}

/// One row of the table of who asked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AskedRowView {
    /// When.
    at: Time,
    /// The same as the lines.
    asked: Vec<AskedView>,
    /// Who asked most then, and how much; empty where nobody did.
    most: String,
}

/// Who asked in the last hour.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct UsersHourView {
    /// The picture in words; empty where there is none.
    text: String,
    /// Its lines: those who asked most in the hour, and everybody else.
    lines: Vec<StretchesView>,
    /// Whose lines they are.
    heads: Vec<String>,
    /// The same as a table, the newest first.
    rows: Vec<AskedRowView>,
    /// Of whom something is kept, in a sentence.
    kept: String,
}

/// A server in its last second.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerView {
    /// Its name.
    name: String,
    /// Bytes read by the second; empty where it does not tell.
    read: String,
    /// Bytes written.
    written: String,
    /// Requests.
    requests: String,
    /// Requests that wait.
    queued: String,
    /// Workers that are busy.
    busy: String,
}

/// Somebody who asks.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AskerView {
    /// Who.
    name: String,
    /// Operations by the second; empty where that cannot be told.
    rate: String,
    /// Bytes read by the second.
    read: String,
    /// Bytes written.
    written: String,
    /// Operations since the servers were started.
    total: String,
}

/// People, or nodes.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AskersView {
    /// Who asks most, the busiest first.
    rows: Vec<AskerView>,
    /// What is doubtful, what is left out, and since when rates are: a sentence each.
    remarks: Vec<String>,
    /// Why there is nobody; empty where there is.
    nobody: String,
}

/// What servers of one role do.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ActivityView {
    /// Whether it is about the servers of names, not of contents.
    metadata: bool,
    /// The picture in words; empty where there is none.
    text: String,
    /// Its lines.
    lines: Vec<StretchesView>,
    /// The same as a table, the newest first.
    points: Vec<PointView>,
    /// Servers now.
    servers: Vec<ServerView>,
    /// What is doubtful about them.
    doubts: Vec<String>,
    /// Why there are none; empty where there are.
    no_servers: String,
    /// Who asked in the last hour.
    users_hour: UsersHourView,
    /// Who asks.
    people: AskersView,
    /// From where.
    nodes: AskersView,
}

/// All that an [`ActivityView`] is made of.
pub(crate) struct Seen<'a> {
    /// Of which servers.
    pub(crate) role: Role,
    /// Servers now.
    pub(crate) servers: &'a Servers,
    /// Their last hour, oldest first.
    pub(crate) history: &'a [Point],
    /// How often they are looked at.
    pub(crate) every: SignedDuration,
    /// Who asked in that hour, oldest first.
    pub(crate) users_history: &'a [UsersPoint],
    /// Who asks.
    pub(crate) people: &'a Operations,
    /// From where.
    pub(crate) nodes: &'a Operations,
    /// People's names, by number.
    pub(crate) names: &'a BTreeMap<u32, Username>,
    /// Now.
    pub(crate) now: Timestamp,
}

impl ActivityView {
    /// Shows what was seen.
    pub(crate) fn new(words: &Words, seen: &Seen<'_>) -> Self {
        let metadata = seen.role == Role::Metadata;
        let (lines, text) = picture(words, seen);
        let servers = &seen.servers.answer;
        Self {
            metadata,
            text,
            lines,
            points: seen.history.iter().rev().take(MOST_POINTS).map(|point| of_point(words, point)).collect(),
            servers: servers.value.iter().map(|sample| of_server(words, sample)).collect(),
            doubts: servers.doubts.iter().map(|doubt| doubt.text.clone()).collect(),
            no_servers: nothing(words, seen.servers.missing.as_ref(), servers.value.is_empty()),
            users_hour: users_hour(words, seen),
            people: askers(words, seen.people, seen.names),
            nodes: askers(words, seen.nodes, seen.names),
        }
    }
}

/// The users whose names are wanted, each once.
pub(crate) fn numbers(people: &Operations, history: &[UsersPoint]) -> Vec<u32> {
    let measure = Measure::of(history);
    let most = history.iter().filter_map(|point| Some(measure.most(point)?.0));
    let now = busiest(people).into_iter().map(|row| &row.counts.of);
    let wanted: BTreeSet<u32> = now.chain(most).chain(measure.busiest(history)).filter_map(number).collect();
    wanted.into_iter().collect()
}

fn number(of: &OperationsOf) -> Option<u32> {
    match of {
        OperationsOf::User(number) => Some(*number),
        OperationsOf::Client(_) | OperationsOf::UnknownUser | OperationsOf::Servers => None,
    }
}

/// What those who ask are compared by: bytes where they are told, else operations.
#[derive(Clone, Copy)]
struct Measure {
    in_bytes: bool,
}

impl Measure {
    fn of(history: &[UsersPoint]) -> Self {
        let mut all = history.iter().flat_map(|point| point.users.iter().map(|(_, load)| load).chain(&point.others));
        Self { in_bytes: all.any(|load| load.bytes().is_some()) }
    }

    fn value(self, load: &Load) -> Option<f64> {
        if self.in_bytes { load.bytes() } else { Some(load.operations) }
    }

    fn shown(self, words: &Words, value: u64) -> String {
        if self.in_bytes { rate(words, Some(value)) } else { per_second(words, &format::number(value)) }
    }

    /// Who asked most at one point, and how much.
    fn most(self, point: &UsersPoint) -> Option<(&OperationsOf, f64)> {
        let told = point.users.iter().filter_map(|(of, load)| Some((of, self.value(load)?)));
        told.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Those who asked most in all points together, and so have lines.
    fn busiest(self, history: &[UsersPoint]) -> Vec<&OperationsOf> {
        let mut sums: HashMap<&OperationsOf, f64> = HashMap::new();
        for point in history {
            for (of, load) in &point.users {
                *sums.entry(of).or_default() += self.value(load).unwrap_or(0.0) * point.over_s;
            }
        }
        let mut sums: Vec<(&OperationsOf, f64)> = sums.into_iter().filter(|(_, sum)| *sum > 0.0).collect();
        // Of those who asked the same, the order is not the map's.
        sums.sort_by(|(one, first), (other, second)| {
            second.total_cmp(first).then_with(|| number(one).cmp(&number(other)))
        });
        sums.into_iter().take(MOST_LINES).map(|(of, _)| of).collect()
    }

    /// What somebody asked at one point. Who is not named there may be among the others, if those asked anything.
    fn of_one(self, point: &UsersPoint, of: &OperationsOf) -> Option<f64> {
        match point.users.iter().find(|(who, _)| who == of) {
            Some((_, load)) => self.value(load),
            None => point.others.is_none().then_some(0.0),
        }
    }

    /// What everybody but those asked at one point.
    fn of_others(self, point: &UsersPoint, those: &[&OperationsOf]) -> Option<f64> {
        let others = point.users.iter().filter(|(of, _)| !those.contains(&of)).map(|(_, load)| load);
        others.chain(&point.others).map(|load| self.value(load)).sum()
    }
}

/// The picture of who asked in the last hour, and its table.
fn users_hour(words: &Words, seen: &Seen<'_>) -> UsersHourView {
    type Series = (String, Vec<Sample>);
    let history = seen.users_history;
    let measure = Measure::of(history);
    let busiest = measure.busiest(history);
    if busiest.is_empty() {
        return UsersHourView::default();
    }
    let series = |value: &dyn Fn(&UsersPoint) -> Option<f64>| -> Vec<Sample> {
        let over = |point: &UsersPoint| SignedDuration::try_from_secs_f64(point.over_s).unwrap_or(SignedDuration::ZERO);
        let sample = |point: &UsersPoint| Sample { at: point.at, over: over(point), value: value(point).map(whole) };
        history.iter().map(sample).collect()
    };
    let mut all: Vec<Series> =
        busiest.iter().map(|of| (who(words, seen.names, of), series(&|point| measure.of_one(point, of)))).collect();
    let others = series(&|point| measure.of_others(point, &busiest));
    if most(&others) > 0 {
        all.push((words.get("activity.everybody_else"), others));
    }
    let from = seen.now - SignedDuration::from_mins(MINUTES.into());
    let top = all.iter().map(|(_, samples)| most(samples)).max().unwrap_or(0);
    let lines: Vec<StretchesView> = all
        .iter()
        .zip(1..)
        .map(|((who, samples), style)| {
            let most = measure.shown(words, most(samples));
            StretchesView {
                label: words.fill("activity.line", &[("what", who), ("most", &most)]),
                style,
                pieces: chart::stretches(samples, SignedDuration::ZERO, from, seen.now, top),
            }
        })
        .collect();
    let row = |(place, point): (usize, &UsersPoint)| {
        let much = |samples: &[Sample]| samples.get(place).and_then(|sample| sample.value);
        let most = measure.most(point).map(|(of, value)| {
            let (who, what) = (who(words, seen.names, of), measure.shown(words, whole(value)));
            words.fill("activity.asked", &[("who", &who), ("what", &what)])
        });
        AskedRowView {
            at: Time::new(point.at),
            asked: all
                .iter()
                .map(|(who, samples)| AskedView {
                    who: who.clone(),
                    much: much(samples).map(|value| measure.shown(words, value)).unwrap_or_default(),
                })
                .collect(),
            most: most.unwrap_or_default(),
        }
    };
    let said: Vec<&str> = lines.iter().map(|line| line.label.as_str()).collect();
    UsersHourView {
        text: words.fill("activity.users_chart", &[("lines", &said.join(", "))]),
        heads: all.iter().map(|(who, _)| who.clone()).collect(),
        rows: history.iter().enumerate().rev().take(MOST_POINTS).map(row).collect(),
        kept: words.fill("activity.users_kept", &[("n", &MOST_USERS.to_string())]),
        lines,
    }
}

/// The picture of an hour: bytes that servers of contents read and write, requests of those that hold names. Servers remember no more than their last
/// minute, so points follow each other as long as no look is missing.
fn picture(words: &Words, seen: &Seen<'_>) -> (Vec<StretchesView>, String) {
    type Value = fn(&Point) -> Option<f64>;
    let kinds: &[(&str, Value)] = if seen.role == Role::Metadata {
        &[("activity.requests", |point| Some(point.requests_per_s))]
    } else {
        &[("activity.read", |point| point.read_per_s), ("activity.written", |point| point.written_per_s)]
    };
    let (from, apart) = (seen.now - SignedDuration::from_mins(MINUTES.into()), seen.every * 3 / 2);
    let sample = |point: &Point, value: Value| Sample {
        at: point.at,
        over: SignedDuration::from_secs(point.over_s.into()),
        value: value(point).map(whole),
    };
    let series: Vec<(&str, Vec<Sample>)> = kinds
        .iter()
        .map(|(key, value)| (*key, seen.history.iter().map(|point| sample(point, *value)).collect()))
        .filter(|(_, samples): &(_, Vec<Sample>)| samples.iter().any(|sample| sample.value.is_some()))
        .collect();
    let top = series.iter().map(|(_, samples)| most(samples)).max().unwrap_or(0);
    let shown = |value| {
        if seen.role == Role::Metadata { per_second(words, &format::number(value)) } else { rate(words, Some(value)) }
    };
    let lines: Vec<StretchesView> = series
        .iter()
        .zip(1..)
        .map(|((key, samples), style)| StretchesView {
            label: words.fill("activity.line", &[("what", &words.get(key)), ("most", &shown(most(samples)))]),
            style,
            pieces: chart::stretches(samples, apart, from, seen.now, top),
        })
        .collect();
    let said: Vec<&str> = lines.iter().map(|line| line.label.as_str()).collect();
    let text =
        if said.is_empty() { String::new() } else { words.fill("activity.chart", &[("lines", &said.join(", "))]) };
    (lines, text)
}

/// The highest value of a line.
fn most(samples: &[Sample]) -> u64 {
    samples.iter().filter_map(|sample| sample.value).max().unwrap_or(0)
}

fn of_server(words: &Words, sample: &ServerSample) -> ServerView {
    let name = sample.node.value().map(|node| {
        let number = format!("{}:{}", role_word(node.role), node.number);
        node.alias.as_ref().map_or(number.clone(), |alias| format!("{alias} ({number})"))
    });
    ServerView {
        name: name.unwrap_or_else(|| words.get("activity.all_servers")),
        read: rate(words, sample.read.value().map(|read| read.0)),
        written: rate(words, sample.written.value().map(|written| written.0)),
        requests: format::number(sample.requests),
        queued: format::number(sample.queued),
        busy: format::number(sample.busy),
    }
}

fn of_point(words: &Words, point: &Point) -> PointView {
    PointView {
        at: Time::new(point.at),
        read: rate(words, point.read_per_s.map(whole)),
        written: rate(words, point.written_per_s.map(whole)),
        requests: format::number(whole(point.requests_per_s)),
        queued: format::number(point.queued_most),
    }
}

/// Those who ask most now; where no rate is known, those who have asked most.
fn busiest(operations: &Operations) -> Vec<&Row> {
    let mut rows: Vec<&Row> = operations.rows.iter().collect();
    let rate = |row: &Row| row.per_s.as_ref().map_or(0.0, |rates| rates.total);
    rows.sort_by(|one, other| rate(other).total_cmp(&rate(one)).then(other.counts.total.cmp(&one.counts.total)));
    rows.truncate(MOST);
    rows
}

/// What somebody is called.
fn who(words: &Words, names: &BTreeMap<u32, Username>, of: &OperationsOf) -> String {
    match of {
        OperationsOf::User(number) => names.get(number).map_or_else(
            || words.fill("activity.number", &[("number", &number.to_string())]),
            |name| format!("{name} ({number})"),
        ),
        OperationsOf::Client(client) => client.clone(),
        OperationsOf::UnknownUser => words.get("activity.unknown_user"),
        OperationsOf::Servers => words.get("activity.own_servers"),
    }
}

fn askers(words: &Words, operations: &Operations, names: &BTreeMap<u32, Username>) -> AskersView {
    let row = |row: &Row| {
        let rates = row.per_s.as_ref();
        AskerView {
            name: who(words, names, &row.counts.of),
            rate: rates.map(|rates| format::number(whole(rates.total))).unwrap_or_default(),
            read: rate(words, rates.and_then(|rates| rates.read).map(whole)),
            written: rate(words, rates.and_then(|rates| rates.written).map(whole)),
            total: format::number(row.counts.total),
        }
    };
    let rows: Vec<AskerView> = busiest(operations).into_iter().map(row).collect();
    let since = match operations.over_s {
        _ if rows.is_empty() => None,
        Some(over_s) => Some(words.count("activity.over", whole(over_s).max(1))),
        None if operations.restarted => Some(words.get("activity.restarted")),
        None => Some(words.get("activity.first_count")),
    };
    let others = operations.rows.len().saturating_sub(rows.len()) + operations.left_out;
    let others = (others > 0).then(|| words.count("activity.others", others as u64));
    AskersView {
        nobody: nothing(words, operations.missing.as_ref(), rows.is_empty()),
        remarks: since.into_iter().chain(others).chain(operations.doubts.iter().cloned()).collect(),
        rows,
    }
}

/// Why there is nothing, where there is nothing.
fn nothing<W>(words: &Words, missing: Option<&(W, String)>, is_empty: bool) -> String {
    match missing {
        Some((_, text)) => super::session::sentence(text),
        None if is_empty => words.get("activity.nobody"),
        None => String::new(),
    }
}

/// Bytes by the second; empty where nobody tells.
fn rate(words: &Words, bytes: Option<u64>) -> String {
    bytes.map(|bytes| per_second(words, &format::bytes(words, bytes))).unwrap_or_default()
}

fn per_second(words: &Words, n: &str) -> String {
    words.fill("unit.per_second", &[("n", n)])
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive, and shown by the whole"
)]
fn whole(rate: f64) -> u64 {
    rate.max(0.0).round() as u64
}

/// What the storage does.
#[derive(Debug, Serialize)]
pub(crate) struct ActivityPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What it does.
    pub(crate) activity: ActivityView,
    /// Where what changes comes from.
    pub(crate) fragment_href: String,
}

impl Page for ActivityPage {
    const TEMPLATE: &'static str = "pages/admin/activity.html";
}

/// What changes on that page, by itself.
#[derive(Debug, Serialize)]
pub(crate) struct ActivityFragment {
    /// What it does.
    pub(crate) activity: ActivityView,
}

impl Page for ActivityFragment {
    const TEMPLATE: &'static str = "fragments/activity.html";
}
