//! The past of nodes: a row for each change.

use eirene_core::NodeName;
use eirene_core::node_history::{GONE, NodeChange};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    /// Of two portals that see the same one writes it.
    PUT = "INSERT INTO node_history (node, at, state, reason) VALUES ($1, $2, $3, $4) ON CONFLICT (node, at) DO NOTHING";
    LAST = "SELECT node, at, state, reason FROM node_history
        WHERE at = (SELECT MAX(later.at) FROM node_history AS later WHERE later.node = node_history.node) ORDER BY node";
    OF_NODE = "SELECT node, at, state, reason FROM node_history WHERE node = $1 ORDER BY at DESC LIMIT $2";
    /// Where there are no more than $2, the inner select finds nothing.
    TRIM = "DELETE FROM node_history WHERE node = $1
        AND at <= (SELECT older.at FROM node_history AS older WHERE older.node = $1 ORDER BY older.at DESC LIMIT 1 OFFSET $2)";
    /// What a node is now stays, however long it has been so.
    PRUNE = "DELETE FROM node_history WHERE at < $1 AND (state = $2 OR EXISTS (
        SELECT 1 FROM node_history AS later WHERE later.node = node_history.node AND later.at > node_history.at))";
}

#[derive(FromRow)]
struct ChangeRow {
    node: String,
    at: i64,
    state: String,
    reason: Option<String>,
}

impl ChangeRow {
    fn into_change(self) -> Result<NodeChange, DbError> {
        let place = Place { table: "node_history", row: &self.node };
        Ok(NodeChange {
            node: place.text("node", &self.node)?,
            at: place.time("at", self.at)?,
            state: self.state,
            reason: self.reason,
        })
    }
}

impl Db {
    /// Writes down a change, and forgets all of the node's but the last `most`. Where that fails halfway, the next change forgets more.
    pub async fn put_node_change(&self, change: &NodeChange, most: u32) -> Result<(), DbError> {
        let node = change.node.as_str();
        on_db!(self, pool => sqlx::query(PUT)
            .bind(node)
            .bind(micros(change.at))
            .bind(change.state.as_str())
            .bind(change.reason.as_deref())
            .execute(pool).await.map(drop))?;
        on_db!(self, pool => sqlx::query(TRIM).bind(node).bind(i64::from(most)).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// What each node was last written down to be, those that are gone among them; by name.
    pub async fn last_node_changes(&self) -> Result<Vec<NodeChange>, DbError> {
        let rows: Vec<ChangeRow> = on_db!(self, pool => sqlx::query_as(LAST).fetch_all(pool).await)?;
        rows.into_iter().map(ChangeRow::into_change).collect()
    }

    /// The last `limit` changes of a node, newest first; none of one that was never seen.
    pub async fn node_history(&self, node: &NodeName, limit: u32) -> Result<Vec<NodeChange>, DbError> {
        let rows: Vec<ChangeRow> = on_db!(self, pool =>
            sqlx::query_as(OF_NODE).bind(node.as_str()).bind(i64::from(limit)).fetch_all(pool).await)?;
        rows.into_iter().map(ChangeRow::into_change).collect()
    }

    /// Forgets what was before `before`, but for what nodes are since then. Says how many changes went.
    pub async fn prune_node_history(&self, before: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool => sqlx::query(PRUNE)
            .bind(micros(before))
            .bind(GONE)
            .execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
