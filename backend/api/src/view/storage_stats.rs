//! What the storage's servers do, as the API shows it to admins. A rate that nobody can tell is absent, and never 0.

use eirene_core::storage::{Bytes, Known, OperationsOf, ServerSample, Why};
use eirene_services::storage::history::{Load, Point, UsersPoint};
use eirene_services::storage::judge::role_word;
use eirene_services::storage::stats::{Operations, Rates, Row, Servers};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What servers do, or what users or clients ask of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageStats)]
pub struct StorageStatsView {
    /// Servers in their last second, where those were asked for.
    servers: Vec<ServerView>,
    /// Their last minutes together, oldest first, where that was asked for.
    history: Vec<PointView>,
    /// What users asked in the last minutes, oldest first, where that was asked for.
    history_of_users: Vec<UsersPointView>,
    /// Users or clients, where those were asked for, most operations first.
    operations: Vec<OperationsView>,
    /// When users or clients were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    as_of: Option<Timestamp>,
    /// Seconds between the two counts that their rates come from; absent without rates, as at the first question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    over_s: Option<f64>,
    /// Whether a server was started anew since the count before: then there are no rates this time.
    restarted: bool,
    /// Users or clients that are not shown because there are too many.
    left_out: u64,
    /// What is doubtful.
    doubts: Vec<String>,
    /// Why there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    missing: Option<Why>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    text: Option<String>,
}

/// A server in its last second.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageServerStats)]
pub(super) struct ServerView {
    /// Role and number; absent where the storage told all servers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "storage:1")]
    id: Option<String>,
    /// What the administrator of the storage calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    alias: Option<String>,
    /// When, by the server's own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    at: Option<Timestamp>,
    /// Bytes written to its disks in that second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    written_bytes_per_s: Option<u64>,
    /// Bytes read from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    read_bytes_per_s: Option<u64>,
    /// Requests carried out.
    requests_per_s: u64,
    /// Requests that wait.
    queued: u64,
    /// Workers that are busy.
    busy: u64,
}

/// All servers of a role together, in the mean of some seconds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageServersPoint)]
pub(super) struct PointView {
    /// When it was asked.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Seconds before that it is the mean of.
    over_s: u32,
    /// Bytes written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    written_bytes_per_s: Option<f64>,
    /// Bytes read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    read_bytes_per_s: Option<f64>,
    /// Requests carried out.
    requests_per_s: f64,
    /// Most requests that waited, at one server in one second.
    queued_most: u64,
}

/// What users asked of all servers of a role together, in the mean of some seconds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageUsersPoint)]
pub(super) struct UsersPointView {
    /// When they were counted.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Seconds before that it is the mean of.
    over_s: f64,
    /// Those who asked most, at most ten: most bytes first, then most operations. Who asked nothing is not among them.
    users: Vec<UserLoadView>,
    /// All others together; absent where they asked nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    others: Option<UserLoadView>,
}

/// What one user asked, or several together.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageUserLoad)]
pub(super) struct UserLoadView {
    /// The user's number; absent for several, and where the servers could not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    user: Option<u32>,
    /// Operations by the second.
    per_s: f64,
    /// Bytes read by the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    read_bytes_per_s: Option<f64>,
    /// Bytes written by the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    written_bytes_per_s: Option<f64>,
}

/// What one user or client did since the servers were started.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageOperations)]
pub(super) struct OperationsView {
    /// A user's number; absent for clients, and where the servers could not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    user: Option<u32>,
    /// A client's address; absent for users and servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    client: Option<String>,
    /// Requests of the storage's own servers to each other; present only where it is true.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    servers: bool,
    /// Operations since the servers were started.
    total: u64,
    /// The same by the second; absent where that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    per_s: Option<f64>,
    /// Bytes read by the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    read_bytes_per_s: Option<f64>,
    /// Bytes written by the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    written_bytes_per_s: Option<f64>,
    /// By the storage's own names of operations.
    operations: Vec<OperationView>,
}

/// One kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageOperation)]
pub(super) struct OperationView {
    /// The storage's own name.
    name: String,
    /// Since the servers were started.
    total: u64,
    /// By the second; absent where that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    per_s: Option<f64>,
}

/// Three digits are more than a rate of seconds has.
fn rounded(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}

fn bytes(known: Known<Bytes>) -> Option<u64> {
    known.value().map(|bytes| bytes.0)
}

impl StorageStatsView {
    /// Servers now, and their last minutes.
    pub fn of_servers(servers: Servers, history: &[Point]) -> Self {
        let (missing, text) = servers.missing.unzip();
        Self {
            servers: servers.answer.value.into_iter().map(ServerView::from).collect(),
            history: history.iter().map(PointView::from).collect(),
            doubts: servers.answer.doubts.into_iter().map(|doubt| doubt.text).collect(),
            missing,
            text,
            ..Self::default()
        }
    }

    /// Users now, and their last minutes.
    pub fn of_users(operations: Operations, history: &[UsersPoint]) -> Self {
        let history_of_users = history.iter().map(UsersPointView::from).collect();
        Self { history_of_users, ..Self::from(operations) }
    }
}

impl From<Operations> for StorageStatsView {
    fn from(operations: Operations) -> Self {
        let (missing, text) = operations.missing.unzip();
        Self {
            operations: operations.rows.into_iter().map(OperationsView::from).collect(),
            as_of: missing.is_none().then_some(operations.at),
            over_s: operations.over_s.map(rounded),
            restarted: operations.restarted,
            left_out: operations.left_out as u64,
            doubts: operations.doubts,
            missing,
            text,
            ..Self::default()
        }
    }
}

impl From<ServerSample> for ServerView {
    fn from(sample: ServerSample) -> Self {
        let node = sample.node.value().cloned();
        Self {
            id: node.as_ref().map(|node| format!("{}:{}", role_word(node.role), node.number)),
            alias: node.and_then(|node| node.alias),
            at: i64::try_from(sample.at_s).ok().and_then(|at| Timestamp::from_second(at).ok()),
            written_bytes_per_s: bytes(sample.written),
            read_bytes_per_s: bytes(sample.read),
            requests_per_s: sample.requests,
            queued: sample.queued,
            busy: sample.busy,
        }
    }
}

impl From<&Point> for PointView {
    fn from(point: &Point) -> Self {
        Self {
            at: point.at,
            over_s: point.over_s,
            written_bytes_per_s: point.written_per_s.map(rounded),
            read_bytes_per_s: point.read_per_s.map(rounded),
            requests_per_s: rounded(point.requests_per_s),
            queued_most: point.queued_most,
        }
    }
}

impl UserLoadView {
    fn new(user: Option<u32>, load: &Load) -> Self {
        Self {
            user,
            per_s: rounded(load.operations),
            read_bytes_per_s: load.read.map(rounded),
            written_bytes_per_s: load.written.map(rounded),
        }
    }
}

impl From<&UsersPoint> for UsersPointView {
    fn from(point: &UsersPoint) -> Self {
        let number = |of: &OperationsOf| match of {
            OperationsOf::User(number) => Some(*number),
            OperationsOf::UnknownUser | OperationsOf::Client(_) | OperationsOf::Servers => None,
        };
        Self {
            at: point.at,
            over_s: rounded(point.over_s),
            users: point.users.iter().map(|(of, load)| UserLoadView::new(number(of), load)).collect(),
            others: point.others.as_ref().map(|load| UserLoadView::new(None, load)),
        }
    }
}

impl From<Row> for OperationsView {
    fn from(row: Row) -> Self {
        let Row { counts, per_s } = row;
        let servers = counts.of == OperationsOf::Servers;
        let (user, client) = match counts.of {
            OperationsOf::User(user) => (Some(user), None),
            OperationsOf::Client(client) => (None, Some(client)),
            OperationsOf::UnknownUser | OperationsOf::Servers => (None, None),
        };
        let rate_of = |name: &str, rates: &Rates| {
            let found = rates.by_name.iter().find(|(other, _)| other == name);
            rounded(found.map_or(0.0, |(_, rate)| *rate))
        };
        let operations = counts.by_name.into_iter().map(|(name, total)| {
            let per_s = per_s.as_ref().map(|rates| rate_of(&name, rates));
            OperationView { name, total, per_s }
        });
        Self {
            user,
            client,
            servers,
            total: counts.total,
            operations: operations.collect(),
            read_bytes_per_s: per_s.as_ref().and_then(|rates| rates.read).map(rounded),
            written_bytes_per_s: per_s.as_ref().and_then(|rates| rates.written).map(rounded),
            per_s: per_s.map(|rates| rounded(rates.total)),
        }
    }
}
