//! What was seen of each space: the last look, samples of those before, and what its people had measured.

use eirene_core::SpaceId;
use eirene_core::space::{Level, Measured, Measurement, SeenUsage, UsageSample};
use eirene_core::storage::{Bytes, Files};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros, signed};

statements! {
    /// What the owner was told is not written by a look.
    SEEN = "INSERT INTO space_usage (space_id, usage, level, told_level, seen_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (space_id) DO UPDATE
        SET usage = excluded.usage, level = excluded.level, seen_at = excluded.seen_at";
    TOLD = "UPDATE space_usage SET told_level = $1 WHERE space_id = $2 AND told_level = $3";
    OF_SPACE = "SELECT space_id, usage, level, told_level, seen_at FROM space_usage WHERE space_id = $1";
    ALL = "SELECT space_id, usage, level, told_level, seen_at FROM space_usage ORDER BY space_id";
    SAMPLE = "INSERT INTO space_samples (space_id, at, used_bytes, used_files, limit_bytes) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (space_id, at) DO UPDATE
        SET used_bytes = excluded.used_bytes, used_files = excluded.used_files, limit_bytes = excluded.limit_bytes";
    SAMPLES = "SELECT at, used_bytes, used_files, limit_bytes FROM space_samples
        WHERE space_id = $1 AND at >= $2 ORDER BY at";
    /// Of each day (in microseconds, UTC) the last sample stays.
    THIN = "DELETE FROM space_samples WHERE at < $1 AND EXISTS (
        SELECT 1 FROM space_samples AS later
        WHERE later.space_id = space_samples.space_id AND later.at > space_samples.at
            AND later.at / 86400000000 = space_samples.at / 86400000000)";
    PRUNE = "DELETE FROM space_samples WHERE at < $1";
    /// What was measured later stays, unless it is later than now: a clock that was ahead said so.
    MEASURED = "INSERT INTO space_measured (space_id, user_id, used_bytes, used_files, approximate, at)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (space_id) DO UPDATE
        SET user_id = excluded.user_id, used_bytes = excluded.used_bytes, used_files = excluded.used_files,
            approximate = excluded.approximate, at = excluded.at
        WHERE space_measured.at <= excluded.at OR space_measured.at > $7";
    MEASUREMENT = "SELECT user_id, used_bytes, used_files, approximate, at FROM space_measured WHERE space_id = $1";
}

#[derive(FromRow)]
struct UsageRow {
    space_id: String,
    usage: String,
    level: String,
    told_level: String,
    seen_at: i64,
}

impl UsageRow {
    fn into_seen(self) -> Result<(SpaceId, SeenUsage), DbError> {
        let place = Place { table: "space_usage", row: &self.space_id };
        let seen = SeenUsage {
            usage: place.json("usage", &self.usage)?,
            level: place.text("level", &self.level)?,
            told: place.text("told_level", &self.told_level)?,
            seen_at: place.time("seen_at", self.seen_at)?,
        };
        Ok((place.text("space_id", &self.space_id)?, seen))
    }
}

#[derive(FromRow)]
struct SampleRow {
    at: i64,
    used_bytes: i64,
    used_files: Option<i64>,
    limit_bytes: Option<i64>,
}

impl SampleRow {
    fn into_sample(self, space: SpaceId) -> Result<UsageSample, DbError> {
        let row = space.to_string();
        let place = Place { table: "space_samples", row: &row };
        let maybe = |column, stored: Option<i64>| stored.map(|stored| place.number(column, stored)).transpose();
        Ok(UsageSample {
            at: place.time("at", self.at)?,
            used_bytes: Bytes(place.number("used_bytes", self.used_bytes)?),
            used_files: maybe("used_files", self.used_files)?.map(Files),
            limit_bytes: maybe("limit_bytes", self.limit_bytes)?.map(Bytes),
        })
    }
}

#[derive(FromRow)]
struct MeasuredRow {
    user_id: String,
    used_bytes: i64,
    used_files: i64,
    approximate: bool,
    at: i64,
}

impl MeasuredRow {
    fn into_measurement(self, space: SpaceId) -> Result<Measurement, DbError> {
        let row = space.to_string();
        let place = Place { table: "space_measured", row: &row };
        Ok(Measurement {
            used_bytes: Bytes(place.number("used_bytes", self.used_bytes)?),
            used_files: Files(place.number("used_files", self.used_files)?),
            measured: Measured {
                by: place.text("user_id", &self.user_id)?,
                at: place.time("at", self.at)?,
                approximate: self.approximate,
            },
        })
    }
}

impl Db {
    /// Writes down a look. `seen.told` counts only for a space that was never looked at before; see [`Db::note_told`].
    pub async fn note_usage(&self, space: SpaceId, seen: &SeenUsage) -> Result<(), DbError> {
        let usage = serde_json::to_string(&seen.usage).map_err(DbError::encode)?;
        on_db!(self, pool => sqlx::query(SEEN)
            .bind(space.to_string())
            .bind(usage)
            .bind(seen.level.as_str())
            .bind(seen.told.as_str())
            .bind(micros(seen.seen_at))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Notes what the owner is told now in the place of `before`. Of several callers one gets true, and it is the one who tells.
    pub async fn note_told(&self, space: SpaceId, before: Level, now: Level) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(TOLD)
            .bind(now.as_str())
            .bind(space.to_string())
            .bind(before.as_str())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// The last look at a space.
    pub async fn usage(&self, space: SpaceId) -> Result<Option<SeenUsage>, DbError> {
        let row: Option<UsageRow> =
            on_db!(self, pool => sqlx::query_as(OF_SPACE).bind(space.to_string()).fetch_optional(pool).await)?;
        Ok(row.map(UsageRow::into_seen).transpose()?.map(|(_, seen)| seen))
    }

    /// The last look at every space.
    pub async fn usages(&self) -> Result<Vec<(SpaceId, SeenUsage)>, DbError> {
        let rows: Vec<UsageRow> = on_db!(self, pool => sqlx::query_as(ALL).fetch_all(pool).await)?;
        rows.into_iter().map(UsageRow::into_seen).collect()
    }

    /// Keeps a sample; a later one of the same time takes its place.
    pub async fn insert_sample(&self, space: SpaceId, sample: &UsageSample) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(SAMPLE)
            .bind(space.to_string())
            .bind(micros(sample.at))
            .bind(signed(sample.used_bytes.0))
            .bind(sample.used_files.map(|files| signed(files.0)))
            .bind(sample.limit_bytes.map(|bytes| signed(bytes.0)))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Keeps what measuring a whole space came to, unless something later is kept that was measured by `now`.
    pub async fn note_measurement(
        &self,
        space: SpaceId,
        measurement: &Measurement,
        now: Timestamp,
    ) -> Result<(), DbError> {
        let Measurement { used_bytes, used_files, measured } = measurement;
        on_db!(self, pool => sqlx::query(MEASURED)
            .bind(space.to_string())
            .bind(measured.by.to_string())
            .bind(signed(used_bytes.0))
            .bind(signed(used_files.0))
            .bind(measured.approximate)
            .bind(micros(measured.at))
            .bind(micros(now))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// What measuring the whole space last came to.
    pub async fn measurement(&self, space: SpaceId) -> Result<Option<Measurement>, DbError> {
        let row: Option<MeasuredRow> =
            on_db!(self, pool => sqlx::query_as(MEASUREMENT).bind(space.to_string()).fetch_optional(pool).await)?;
        row.map(|row| row.into_measurement(space)).transpose()
    }

    /// Samples of a space from `since` on, oldest first.
    pub async fn samples(&self, space: SpaceId, since: Timestamp) -> Result<Vec<UsageSample>, DbError> {
        let rows: Vec<SampleRow> = on_db!(self, pool => sqlx::query_as(SAMPLES)
            .bind(space.to_string())
            .bind(micros(since))
            .fetch_all(pool).await)?;
        rows.into_iter().map(|row| row.into_sample(space)).collect()
    }

    /// Keeps of the samples before `thin_before` the last of each day, and none before `keep_from`. Says how many went.
    pub async fn thin_samples(&self, thin_before: Timestamp, keep_from: Timestamp) -> Result<u64, DbError> {
        let mut deleted = 0;
        for (statement, before) in [(THIN, thin_before), (PRUNE, keep_from)] {
            deleted += on_db!(self, pool =>
                sqlx::query(statement).bind(micros(before)).execute(pool).await.map(|done| done.rows_affected()))?;
        }
        Ok(deleted)
    }
}
