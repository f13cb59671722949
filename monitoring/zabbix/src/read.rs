//! What is read: hosts, their problems, and how their items went. The API has numbers as texts; whatever is none is an error, and whatever is of
//! no use is left out.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::api::{Api, ApiError};

/// A host in Zabbix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(u64);

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nobody has said.
    NotClassified,
    /// Good to know.
    Information,
    /// Something to look at.
    Warning,
    /// Something to do.
    Average,
    /// Something important is broken.
    High,
    /// Nothing goes.
    Disaster,
}

impl Severity {
    /// Its word in our API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotClassified => "not_classified",
            Self::Information => "information",
            Self::Warning => "warning",
            Self::Average => "average",
            Self::High => "high",
            Self::Disaster => "disaster",
        }
    }

    const fn of(number: u64) -> Self {
        match number {
            1 => Self::Information,
            2 => Self::Warning,
            3 => Self::Average,
            4 => Self::High,
            5 => Self::Disaster,
            _ => Self::NotClassified,
        }
    }
}

/// A problem that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Number of its event.
    pub event: u64,
    /// Since when, seconds since 1970.
    pub clock: i64,
    /// What it says; text of whoever made the trigger.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// Whether somebody has said that they know.
    pub acknowledged: bool,
    /// Whether nobody is told of it for now: the host is in maintenance, or somebody has asked for silence.
    pub suppressed: bool,
}

/// A numeric item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its number.
    pub id: u64,
    /// Its key.
    pub key: String,
    /// Its name; text of whoever made it.
    pub name: String,
    /// Its unit: `%`, `B`; may be empty.
    pub units: String,
    /// Whether its values are whole numbers, which the history keeps apart.
    pub is_whole: bool,
}

/// A value of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When, seconds since 1970.
    pub clock: i64,
    /// The value.
    pub value: f64,
}

/// A number, however it is written.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[derive(Deserialize)]
struct SaidHost {
    #[serde(deserialize_with = "number")]
    hostid: u64,
}

#[derive(Deserialize)]
struct SaidProblem {
    #[serde(deserialize_with = "number")]
    eventid: u64,
    #[serde(deserialize_with = "number")]
    clock: u64,
    name: String,
    #[serde(deserialize_with = "number")]
    severity: u64,
    #[serde(deserialize_with = "number")]
    acknowledged: u64,
    #[serde(deserialize_with = "number")]
    suppressed: u64,
}

impl From<SaidProblem> for Problem {
    fn from(said: SaidProblem) -> Self {
        Self {
            event: said.eventid,
            clock: i64::try_from(said.clock).unwrap_or(i64::MAX),
            name: said.name,
            severity: Severity::of(said.severity),
            acknowledged: said.acknowledged != 0,
            suppressed: said.suppressed != 0,
        }
    }
}

#[derive(Deserialize)]
struct SaidItem {
    #[serde(deserialize_with = "number")]
    itemid: u64,
    #[serde(rename = "key_")]
    key: String,
    name: String,
    #[serde(deserialize_with = "number")]
    value_type: u64,
    #[serde(default)]
    units: String,
}

#[derive(Deserialize)]
struct SaidPoint {
    #[serde(deserialize_with = "number")]
    clock: u64,
    value: String,
}

/// Kinds of values as the history keeps them.
const FLOAT: u64 = 0;
const WHOLE: u64 = 3;

impl Api {
    /// The host of this technical name; none where there is none that the token may see.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn host(&self, name: &str) -> Result<Option<HostId>, ApiError> {
        let params = json!({"output": ["hostid"], "filter": {"host": [name]}, "limit": 1});
        let found: Vec<SaidHost> = self.call("host.get", &params).await?;
        Ok(found.first().map(|host| HostId(host.hostid)))
    }

    /// Problems of a host that go on, the newest first; with `tag` only those that have it with this value.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn problems(
        &self,
        host: HostId,
        tag: Option<(&str, &str)>,
        most: usize,
    ) -> Result<Vec<Problem>, ApiError> {
        const EQUALS: u64 = 1;
        let mut params = json!({
            "output": ["eventid", "clock", "name", "severity", "acknowledged", "suppressed"],
            "hostids": [host.0.to_string()],
            "sortfield": ["eventid"],
            "sortorder": "DESC",
            "limit": most,
        });
        if let Some((tag, value)) = tag {
            params["tags"] = json!([{"tag": tag, "value": value, "operator": EQUALS}]);
        }
        let found: Vec<SaidProblem> = self.call("problem.get", &params).await?;
        Ok(found.into_iter().take(most).map(Problem::from).collect())
    }

    /// Those of a host's items with these keys that are numbers, in the order of the keys.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn items(&self, host: HostId, keys: &[String]) -> Result<Vec<Item>, ApiError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let params = json!({
            "output": ["itemid", "key_", "name", "value_type", "units"],
            "hostids": [host.0.to_string()],
            "filter": {"key_": keys},
            "limit": keys.len(),
        });
        let found: Vec<SaidItem> = self.call("item.get", &params).await?;
        // A key that nobody asked for is not shown, and none twice: each item that is told is one more question.
        let numeric =
            found.into_iter().filter(|item| matches!(item.value_type, FLOAT | WHOLE) && keys.contains(&item.key));
        let mut items: Vec<Item> = numeric
            .map(|SaidItem { itemid, key, name, value_type, units }| Item {
                id: itemid,
                key,
                name,
                units,
                is_whole: value_type == WHOLE,
            })
            .collect();
        items.sort_by_key(|item| keys.iter().position(|key| *key == item.key));
        items.dedup_by(|next, first| next.key == first.key);
        Ok(items)
    }

    /// The last values of an item since a time, in order.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn history(&self, item: &Item, from: i64, most: usize) -> Result<Vec<Point>, ApiError> {
        let params: Value = json!({
            "output": ["clock", "value"],
            "history": if item.is_whole { WHOLE } else { FLOAT },
            "itemids": [item.id.to_string()],
            "time_from": from,
            "sortfield": "clock",
            "sortorder": "DESC",
            "limit": most,
        });
        let found: Vec<SaidPoint> = self.call("history.get", &params).await?;
        let point = |said: &SaidPoint| {
            let value = said.value.parse::<f64>().ok().filter(|value| value.is_finite())?;
            Some(Point { clock: i64::try_from(said.clock).ok()?, value })
        };
        let mut points: Vec<Point> = found.iter().take(most).filter_map(point).collect();
        points.sort_by_key(|point| point.clock);
        Ok(points)
    }
}
