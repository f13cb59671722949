//! What holds the jobs on each node to what they have asked for: the last that was said, a row for each node.

use eirene_core::NodeName;
use eirene_core::confinement::{ConfinedNode, Held};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    PUT = "INSERT INTO node_confinement (node, confined_by, memory_held, cpus_held, at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (node) DO UPDATE SET confined_by = excluded.confined_by, memory_held = excluded.memory_held,
        cpus_held = excluded.cpus_held, at = excluded.at";
    ALL = "SELECT node, confined_by, memory_held, cpus_held, at FROM node_confinement ORDER BY node";
    OF_NODE = "SELECT node, confined_by, memory_held, cpus_held, at FROM node_confinement WHERE node = $1";
    PRUNE = "DELETE FROM node_confinement WHERE at < $1";
}

#[derive(FromRow)]
struct ConfinedRow {
    node: String,
    confined_by: String,
    memory_held: Option<bool>,
    cpus_held: Option<bool>,
    at: i64,
}

impl ConfinedRow {
    fn into_confined(self) -> Result<ConfinedNode, DbError> {
        let place = Place { table: "node_confinement", row: &self.node };
        Ok(ConfinedNode {
            node: place.text("node", &self.node)?,
            by: place.text("confined_by", &self.confined_by)?,
            held: Held { memory: self.memory_held, cpus: self.cpus_held },
            at: place.time("at", self.at)?,
        })
    }
}

impl Db {
    /// Writes down what was said of a node, in the place of what was said before.
    pub async fn put_confined_node(&self, confined: &ConfinedNode) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(PUT)
            .bind(confined.node.as_str())
            .bind(confined.by.as_str())
            .bind(confined.held.memory)
            .bind(confined.held.cpus)
            .bind(micros(confined.at))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// All nodes of which it was said, by name.
    pub async fn confined_nodes(&self) -> Result<Vec<ConfinedNode>, DbError> {
        let rows: Vec<ConfinedRow> = on_db!(self, pool => sqlx::query_as(ALL).fetch_all(pool).await)?;
        rows.into_iter().map(ConfinedRow::into_confined).collect()
    }

    /// One node; none of which nobody has said it.
    pub async fn confined_node(&self, node: &NodeName) -> Result<Option<ConfinedNode>, DbError> {
        let row: Option<ConfinedRow> =
            on_db!(self, pool => sqlx::query_as(OF_NODE).bind(node.as_str()).fetch_optional(pool).await)?;
        row.map(ConfinedRow::into_confined).transpose()
    }

    /// Forgets what was last said before `before`; says of how many nodes.
    pub async fn prune_confined_nodes(&self, before: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool =>
            sqlx::query(PRUNE).bind(micros(before)).execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
