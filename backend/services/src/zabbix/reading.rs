//! What Zabbix says of a node: its problems, and how some of its items went. For admins.
//!
//! A node is two things there: its own host, which the site made and which its agent speaks for, and a part of the platform's host, where our template's
//! triggers have the tag `node`. What was read is good for some seconds and is read once for all who ask meanwhile, so that open pages never are
//! more than one reader of each node; a Zabbix that did not answer is left alone for as long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eirene_core::NodeName;
use eirene_zabbix::{Api, ApiError, Item, Point, Problem};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex as Turn;

use super::{Zabbix, api, lock};
use crate::actor::Actor;
use crate::error::AppError;
use crate::nodes::clean;

/// So long what was read is good.
const FRESH: SignedDuration = SignedDuration::from_secs(15);
/// All questions about a node together have this long.
const READ_WAIT: Duration = Duration::from_secs(6);
/// Nodes that are remembered.
const MOST_REMEMBERED: usize = 256;
/// Problems of a node that are shown: the worst.
const MOST_PROBLEMS: usize = 50;
/// Problems of a host that are asked for: Zabbix gives the newest, and the worst of those are looked for here. An answer has room for
/// them ([`super::API`]).
const MOST_ASKED: usize = 1000;
/// How far back items are shown, and in how many values at most.
const BACK: SignedDuration = SignedDuration::from_hours(1);
const MOST_POINTS: usize = 240;
/// The tag of our triggers that says which node they are about.
const TAG: &str = "node";

/// An item, and how it went.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownItem {
    /// The item.
    pub item: Item,
    /// Its values of the last hour, in order; may be empty.
    pub points: Vec<Point>,
}

/// What Zabbix says of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenInZabbix {
    /// When it was asked.
    pub at: Timestamp,
    /// What the node's own host is called there; none where there is no such host that we may see.
    pub host: Option<String>,
    /// Problems that go on, the worst first.
    pub problems: Vec<Problem>,
    /// Items of its own host.
    pub items: Vec<ShownItem>,
}

/// A node as Zabbix knows it.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeInZabbix {
    /// No Zabbix is configured to be read.
    NotConfigured,
    /// It gives no answer, or none that is understood.
    Away,
    /// It has answered.
    Seen(Arc<SeenInZabbix>),
}

/// What was last read of a node, and when.
type Read = Option<(Timestamp, NodeInZabbix)>;

/// What was read lately. Who reads a node holds its turn; the others wait for what comes of it.
#[derive(Default)]
pub(super) struct Cache {
    nodes: Mutex<HashMap<NodeName, Arc<Turn<Read>>>>,
    /// When it last gave no answer, while that is so.
    away: Mutex<Option<Timestamp>>,
}

impl Cache {
    fn turn(&self, node: &NodeName) -> Arc<Turn<Read>> {
        let mut nodes = lock(&self.nodes);
        if nodes.len() >= MOST_REMEMBERED && !nodes.contains_key(node) {
            // Whoever waits for a turn has it in the hand.
            nodes.clear();
        }
        Arc::clone(nodes.entry(node.clone()).or_default())
    }
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(at);
    !age.is_negative() && age < FRESH
}

impl Zabbix {
    /// What Zabbix says of a node.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for who is no admin, [`AppError::NotFound`] for a node that neither is nor was. A Zabbix that is away is no error.
    pub async fn of_node(&self, actor: &Actor, node: &NodeName) -> Result<NodeInZabbix, AppError> {
        self.inner.parts.upkeep.must_be_known(actor, node).await?;
        if self.inner.config.api_url.is_none() {
            return Ok(NodeInZabbix::NotConfigured);
        }
        let turn = self.inner.cache.turn(node);
        // A task of its own, so that a page that is closed meanwhile does not have it begun anew by the next.
        let (zabbix, node) = (self.clone(), node.clone());
        let reading = tokio::spawn(async move {
            let mut last = turn.lock().await;
            let now = zabbix.inner.parts.clock.now();
            if let Some((_, known)) = last.as_ref().filter(|(at, _)| is_fresh(*at, now)) {
                return known.clone();
            }
            let read = zabbix.read_unless_away(&node, now).await;
            *last = Some((now, read.clone()));
            read
        });
        reading.await.map_err(|error| AppError::Internal(error.into()))
    }

    async fn read_unless_away(&self, node: &NodeName, now: Timestamp) -> NodeInZabbix {
        if lock(&self.inner.cache.away).is_some_and(|at| is_fresh(at, now)) {
            return NodeInZabbix::Away;
        }
        let reading = tokio::time::timeout(READ_WAIT, self.read(node, now)).await;
        let read = reading.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {} s", READ_WAIT.as_secs())));
        let mut away = lock(&self.inner.cache.away);
        match read {
            Ok(seen) => {
                if away.take().is_some() {
                    tracing::info!("Zabbix can be read again");
                }
                NodeInZabbix::Seen(Arc::new(seen))
            }
            Err(error) => {
                *lock(&self.inner.api) = None;
                // One line for an outage, not one for a page.
                if away.replace(now).is_none() {
                    tracing::warn!(error = format!("{error:#}"), "Zabbix cannot be read for now");
                }
                NodeInZabbix::Away
            }
        }
    }

    async fn read(&self, node: &NodeName, now: Timestamp) -> anyhow::Result<SeenInZabbix> {
        let api = self.api().await?;
        Ok(self.ask(&api, node, now).await?)
    }

    async fn api(&self) -> anyhow::Result<Arc<Api>> {
        if let Some(api) = &*lock(&self.inner.api) {
            return Ok(Arc::clone(api));
        }
        let config = self.inner.config.clone();
        // It reads files.
        let made = tokio::task::spawn_blocking(move || api(&config)).await??;
        let made = Arc::new(made.ok_or_else(|| anyhow::anyhow!("no API is configured"))?);
        *lock(&self.inner.api) = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn ask(&self, api: &Api, node: &NodeName, now: Timestamp) -> Result<SeenInZabbix, ApiError> {
        let config = &self.inner.config;
        let name = config.node_host_of(node.as_str());
        let own = api.host(&name).await?;
        let mut problems = Vec::new();
        let mut items = Vec::new();
        if let Some(own) = own {
            problems.extend(api.problems(own, None, MOST_ASKED).await?);
            let from = now.as_second().saturating_sub(BACK.as_secs());
            for item in api.items(own, &config.history).await? {
                let points = api.history(&item, from, MOST_POINTS).await?;
                let item = Item { name: clean(&item.name), units: clean(&item.units), ..item };
                items.push(ShownItem { item, points });
            }
        }
        // A site may have given the platform's host to the node's own machine.
        let platform = if config.host == name { None } else { api.host(&config.host).await? };
        if let Some(platform) = platform {
            problems.extend(api.problems(platform, Some((TAG, node.as_str())), MOST_ASKED).await?);
        }
        Ok(SeenInZabbix { at: now, host: own.map(|_| name), problems: worst(problems), items })
    }
}

/// The worst first, then the newest; what Zabbix' people wrote made one short line.
fn worst(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems
        .sort_by_key(|problem| (std::cmp::Reverse(problem.severity), std::cmp::Reverse(problem.clock), problem.event));
    problems.dedup_by_key(|problem| problem.event);
    problems.truncate(MOST_PROBLEMS);
    for problem in &mut problems {
        problem.name = clean(&problem.name);
    }
    problems
}
