//! Limits of the owners of spaces, where storage counts by person and group.

use eirene_core::space::{LimitedOwner, OwnerLimit};
use eirene_core::storage::{Bytes, PoolId, QuotaId};
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, signed};

statements! {
    ALL = "SELECT quota_of, number, pool, owner_id, group_name, bytes, judged_by FROM owner_limits
        ORDER BY quota_of, number, pool";
    OF_ONE = "SELECT quota_of, number, pool, owner_id, group_name, bytes, judged_by FROM owner_limits
        WHERE quota_of = $1 AND number = $2 AND pool = $3";
    PUT = "INSERT INTO owner_limits (quota_of, number, pool, owner_id, group_name, bytes, judged_by)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (quota_of, number, pool) DO UPDATE
        SET owner_id = excluded.owner_id, group_name = excluded.group_name, bytes = excluded.bytes,
            judged_by = excluded.judged_by";
    FORGET = "DELETE FROM owner_limits WHERE quota_of = $1 AND number = $2 AND pool = $3";
}

#[derive(FromRow)]
struct LimitRow {
    quota_of: String,
    number: i64,
    pool: i64,
    owner_id: Option<String>,
    group_name: Option<String>,
    bytes: i64,
    judged_by: String,
}

impl LimitRow {
    fn into_limit(self) -> Result<OwnerLimit, DbError> {
        let row = format!("{} {} in {}", self.quota_of, self.number, self.pool);
        let place = Place { table: "owner_limits", row: &row };
        let number = place.number("number", self.number)?;
        let (owner, id) = match (&self.owner_id, &self.group_name) {
            (Some(id), _) => (LimitedOwner::Person(place.text("owner_id", id)?), QuotaId::User(number)),
            (None, group) => {
                let group = place.text("group_name", group.as_deref().unwrap_or_default())?;
                (LimitedOwner::Group(group), QuotaId::Group(number))
            }
        };
        Ok(OwnerLimit {
            owner,
            id,
            pool: PoolId(place.number("pool", self.pool)?),
            bytes: Bytes(place.number("bytes", self.bytes)?),
            judged_by: self.judged_by,
        })
    }
}

/// How a row is found.
fn key(id: QuotaId, pool: PoolId) -> (&'static str, i64, i64) {
    let (of, number) = match id {
        QuotaId::User(number) => ("user", number),
        QuotaId::Group(number) => ("group", number),
        // Directories are limited by the launcher, and none of those has a row.
        QuotaId::Project(number) => ("project", number),
    };
    (of, i64::from(number), i64::from(pool.0))
}

impl Db {
    /// All limits that owners have for the sake of their spaces.
    pub async fn owner_limits(&self) -> Result<Vec<OwnerLimit>, DbError> {
        let rows: Vec<LimitRow> = on_db!(self, pool => sqlx::query_as(ALL).fetch_all(pool).await)?;
        rows.into_iter().map(LimitRow::into_limit).collect()
    }

    /// What somebody is limited to in a pool for the sake of their spaces.
    pub async fn owner_limit(&self, id: QuotaId, in_pool: PoolId) -> Result<Option<OwnerLimit>, DbError> {
        let (of, number, number_of_pool) = key(id, in_pool);
        let row: Option<LimitRow> = on_db!(self, pool =>
            sqlx::query_as(OF_ONE).bind(of).bind(number).bind(number_of_pool).fetch_optional(pool).await)?;
        row.map(LimitRow::into_limit).transpose()
    }

    /// Writes down what somebody is limited to.
    pub async fn put_owner_limit(&self, limit: &OwnerLimit) -> Result<(), DbError> {
        let (of, number, number_of_pool) = key(limit.id, limit.pool);
        let (person, group) = match &limit.owner {
            LimitedOwner::Person(id) => (Some(id.to_string()), None),
            LimitedOwner::Group(group) => (None, Some(group.to_string())),
        };
        on_db!(self, pool => sqlx::query(PUT)
            .bind(of)
            .bind(number)
            .bind(number_of_pool)
            .bind(person)
            .bind(group)
            .bind(signed(limit.bytes.0))
            .bind(limit.judged_by.as_str())
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Forgets that somebody is limited in a pool.
    pub async fn forget_owner_limit(&self, id: QuotaId, in_pool: PoolId) -> Result<(), DbError> {
        let (of, number, number_of_pool) = key(id, in_pool);
        on_db!(self, pool =>
            sqlx::query(FORGET).bind(of).bind(number).bind(number_of_pool).execute(pool).await.map(drop))?;
        Ok(())
    }
}
