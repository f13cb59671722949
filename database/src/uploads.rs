//! Uploads that are under way, and those that have just been finished.

use data_encoding::BASE64URL_NOPAD;
use eirene_core::file_work::Upload;
use eirene_core::{UploadId, UserId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros, signed};

macro_rules! select {
    ($($rest:expr),*) => {
        concat!("SELECT id, user_id, space_id, directory, file_name, length, checksum, on_conflict, state, final_name,
            created_at, last_seen_at, expires_at FROM uploads ", $($rest),*)
    };
}

statements! {
    INSERT = "INSERT INTO uploads (id, user_id, space_id, directory, file_name, length, checksum, on_conflict, state,
            final_name, created_at, last_seen_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    BY_ID = select!("WHERE id = $1");
    OPEN_OF_USER = select!("WHERE user_id = $1 AND state = 'open' ORDER BY id");
    LEFT_OVER = select!("WHERE state = 'open' AND expires_at <= $1 AND over_s >= $2 ORDER BY expires_at, id LIMIT $3");
    NOT_OVER = "UPDATE uploads SET over_s = NULL WHERE over_s IS NOT NULL AND expires_at > $1";
    OVER = "UPDATE uploads SET over_s = COALESCE(over_s + CAST($1 AS BIGINT), 0) WHERE state = 'open' AND expires_at <= $2";
    SEEN = "UPDATE uploads SET over_s = NULL, last_seen_at = $1, expires_at = $2, length = COALESCE(length, CAST($3 AS BIGINT))
        WHERE id = $4 AND state = 'open' AND last_seen_at < expires_at";
    // Whoever has an upload removed has seen it at its very end, which nobody else has.
    CLAIM = "UPDATE uploads SET last_seen_at = expires_at WHERE id = $1 AND state = 'open' AND expires_at <= $2 AND over_s >= $3";
    FINISH = "UPDATE uploads SET state = 'finished', final_name = $1, last_seen_at = $2, expires_at = $3
        WHERE id = $4 AND state = 'open'";
    DELETE = "DELETE FROM uploads WHERE id = $1";
}

#[derive(FromRow)]
struct UploadRow {
    id: String,
    user_id: String,
    space_id: String,
    directory: String,
    file_name: String,
    length: Option<i64>,
    checksum: Option<String>,
    on_conflict: String,
    state: String,
    final_name: Option<String>,
    created_at: i64,
    last_seen_at: i64,
    expires_at: i64,
}

impl UploadRow {
    fn into_upload(self) -> Result<Upload, DbError> {
        let place = Place { table: "uploads", row: &self.id };
        let bytes = |column, stored: &str| BASE64URL_NOPAD.decode(stored.as_bytes()).map_err(|_| place.wrong(column));
        Ok(Upload {
            id: place.text("id", &self.id)?,
            user: place.text("user_id", &self.user_id)?,
            space: place.text("space_id", &self.space_id)?,
            directory: bytes("directory", &self.directory)?,
            file_name: bytes("file_name", &self.file_name)?,
            length: self.length.map(|length| place.number("length", length)).transpose()?,
            on_conflict: place.text("on_conflict", &self.on_conflict)?,
            state: place.text("state", &self.state)?,
            final_name: self.final_name.as_deref().map(|name| bytes("final_name", name)).transpose()?,
            created_at: place.time("created_at", self.created_at)?,
            last_seen_at: place.time("last_seen_at", self.last_seen_at)?,
            expires_at: place.time("expires_at", self.expires_at)?,
            checksum: self.checksum,
        })
    }
}

fn uploads(rows: Vec<UploadRow>) -> Result<Vec<Upload>, DbError> {
    rows.into_iter().map(UploadRow::into_upload).collect()
}

impl Db {
    /// Adds an upload.
    pub async fn insert_upload(&self, upload: &Upload) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(INSERT)
            .bind(upload.id.to_string())
            .bind(upload.user.to_string())
            .bind(upload.space.to_string())
            .bind(BASE64URL_NOPAD.encode(&upload.directory))
            .bind(BASE64URL_NOPAD.encode(&upload.file_name))
            .bind(upload.length.map(signed))
            .bind(upload.checksum.as_deref())
            .bind(upload.on_conflict.as_str())
            .bind(upload.state.as_str())
            .bind(upload.final_name.as_ref().map(|name| BASE64URL_NOPAD.encode(name)))
            .bind(micros(upload.created_at))
            .bind(micros(upload.last_seen_at))
            .bind(micros(upload.expires_at))
            .execute(pool).await.map(drop))
        .map_err(DbError::conflict("upload"))
    }

    /// An upload by id.
    pub async fn upload(&self, id: UploadId) -> Result<Option<Upload>, DbError> {
        let row: Option<UploadRow> =
            on_db!(self, pool => sqlx::query_as(BY_ID).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(UploadRow::into_upload).transpose()
    }

    /// A person's uploads that are not finished, oldest first.
    pub async fn open_uploads(&self, user: UserId) -> Result<Vec<Upload>, DbError> {
        let user = user.to_string();
        let rows = on_db!(self, pool => sqlx::query_as(OPEN_OF_USER).bind(user).fetch_all(pool).await)?;
        uploads(rows)
    }

    /// Counts for how long uploads are over their end: `passed_s` more of those that were so at the look before, from nothing on of the others. With
    /// none, of all from nothing on.
    pub async fn count_left_over(&self, now: Timestamp, passed_s: Option<u64>) -> Result<(), DbError> {
        let not_over = if passed_s.is_some() { micros(now) } else { i64::MIN };
        on_db!(self, pool => sqlx::query(NOT_OVER).bind(not_over).execute(pool).await.map(drop))?;
        on_db!(self, pool => sqlx::query(OVER)
            .bind(signed(passed_s.unwrap_or_default()))
            .bind(micros(now))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Uploads that are over their end, and were for at least `over_s` by [`Db::count_left_over`], and not finished, at most so many. What is there of
    /// them has to be removed as the person before [`Db::delete_upload`]; so nothing but that ends them.
    pub async fn left_over_uploads(&self, now: Timestamp, over_s: u64, limit: u32) -> Result<Vec<Upload>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(LEFT_OVER)
            .bind(micros(now))
            .bind(signed(over_s))
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        uploads(rows)
    }

    /// Takes an upload for removal if it still is what [`Db::left_over_uploads`] gives: from then on nobody goes on with it. False when somebody did
    /// since that was asked. What was taken can be taken again.
    pub async fn claim_left_over(&self, id: UploadId, now: Timestamp, over_s: u64) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(CLAIM)
            .bind(id.to_string())
            .bind(micros(now))
            .bind(signed(over_s))
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Notes that more came, and the length when it was said only now. False when the upload is not open, or taken for removal.
    pub async fn upload_seen(
        &self,
        id: UploadId,
        now: Timestamp,
        expires_at: Timestamp,
        length: Option<u64>,
    ) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(SEEN)
            .bind(micros(now))
            .bind(micros(expires_at))
            .bind(length.map(signed))
            .bind(id.to_string())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Notes that all is there under its final name; the row stays until `expires_at`. False when it was noted before.
    pub async fn finish_upload(
        &self,
        id: UploadId,
        final_name: &[u8],
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(FINISH)
            .bind(BASE64URL_NOPAD.encode(final_name))
            .bind(micros(now))
            .bind(micros(expires_at))
            .bind(id.to_string())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Removes an upload's row.
    pub async fn delete_upload(&self, id: UploadId) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(DELETE).bind(id.to_string()).execute(pool).await.map(drop))?;
        Ok(())
    }
}
