//! Spaces. Whoever changes one reads it, changes the copy and writes it back; the version tells whether somebody else was faster.

use eirene_core::audit::AuditEntry;
use eirene_core::space::MadeAt;
use eirene_core::storage::{Bytes, Files, Identity, Limit};
use eirene_core::{Reason, RootName, Sentence, Space, SpaceId, SpaceName, SpaceOwner, UserId, Username};
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, maybe_micros, micros, signed};

macro_rules! select {
    ($($rest:expr),*) => {
        concat!("SELECT spaces.serial, spaces.id, spaces.name, spaces.kind, spaces.title, spaces.root_name, spaces.owner_id,
            users.username AS owner_name, spaces.group_name, spaces.writable, spaces.hint, spaces.desired, spaces.state,
            spaces.undetermined, spaces.reason_code, spaces.reason_text, spaces.inode, spaces.fs_identity,
            spaces.limit_bytes, spaces.limit_files, spaces.limit_state, spaces.limit_said, spaces.hint_state,
            spaces.hint_said, spaces.expires_at,
            spaces.warned, spaces.retired_at, spaces.remove_after, spaces.kept_s, spaces.watched_at,
            spaces.created_at, spaces.version
        FROM spaces LEFT JOIN users ON users.id = spaces.owner_id ", $($rest),*)
    };
}

// The literal condition for spaces that are not gone is that of the partial index.
statements! {
    INSERT = "INSERT INTO spaces (id, name, kind, title, root_name, owner_id, group_name, writable, hint, desired, state,
            undetermined, reason_code, reason_text, inode, fs_identity, limit_bytes, limit_files, expires_at, warned,
            retired_at, remove_after, created_at, version, limit_state, limit_said, hint_state, hint_said,
            kept_s, watched_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
            $23, $24, $25, $26, $27, $28, $29, $30)
        RETURNING serial";
    BY_ID = select!("WHERE spaces.id = $1");
    BY_NAME = select!("WHERE spaces.name = $1 AND spaces.state <> 'gone'");
    OF_PERSON = select!("WHERE spaces.owner_id = $1 AND spaces.state <> 'gone' ORDER BY spaces.name");
    OF_GROUPS = select!("WHERE spaces.owner_id IS NULL AND spaces.state <> 'gone' ORDER BY spaces.name");
    PAGE = select!("WHERE spaces.name > COALESCE(CAST($1 AS TEXT), '') AND spaces.state <> 'gone'
        ORDER BY spaces.name LIMIT $2");
    WITHOUT_HOME = "SELECT users.id FROM users
        WHERE users.uid IS NOT NULL AND users.state = 'active' AND NOT EXISTS (
            SELECT 1 FROM spaces WHERE spaces.owner_id = users.id AND spaces.kind = 'home' AND spaces.state <> 'gone')
        ORDER BY users.id LIMIT $1";
    WITH_HOME = "SELECT users.username FROM space_usage
        JOIN spaces ON spaces.id = space_usage.space_id JOIN users ON users.id = spaces.owner_id
        WHERE spaces.kind = 'home' AND spaces.state = 'present' AND users.uid IS NOT NULL AND users.state = 'active'
        ORDER BY space_usage.seen_at DESC, users.username LIMIT $1";
    NEVER_SEEN = select!("WHERE spaces.state = 'present' AND NOT spaces.undetermined AND NOT EXISTS (
            SELECT 1 FROM space_usage WHERE space_usage.space_id = spaces.id)
        ORDER BY spaces.serial DESC LIMIT $1");
    WITHOUT_ONE_IN = "SELECT users.id FROM users
        WHERE users.uid IS NOT NULL AND users.state = 'active' AND NOT EXISTS (
            SELECT 1 FROM spaces
            WHERE spaces.owner_id = users.id AND spaces.root_name = $1 AND spaces.state <> 'gone')
        ORDER BY users.id LIMIT $2";
    /// The newest of each root: a marker may have been written after older ones were made.
    MADE_ON = "SELECT id, root_name, fs_identity FROM spaces WHERE serial IN (
            SELECT MAX(serial) FROM spaces
            WHERE fs_identity IS NOT NULL AND state IN ('present', 'retired') GROUP BY root_name)
        ORDER BY root_name";
    TO_CHANGE = select!("WHERE spaces.state <> 'gone' AND spaces.kind <> 'home' AND (spaces.desired <> spaces.state
            OR spaces.state = 'present' AND (spaces.limit_state IN ('wanted', 'not_held')
                OR spaces.hint_state IN ('wanted', 'not_applied')))
        ORDER BY spaces.serial");
    /// Time that was counted since the row was read stays: `WATCHED` does not count the version up. It begins anew where the state changes.
    UPDATE = "UPDATE spaces SET title = $1, hint = $2, desired = $3, state = $4, undetermined = $5, reason_code = $6,
            reason_text = $7, inode = $8, fs_identity = $9, limit_bytes = $10, limit_files = $11, expires_at = $12,
            warned = $13, retired_at = $14, remove_after = $15, version = version + 1, limit_state = $18, limit_said = $19,
            hint_state = $20, hint_said = $21,
            kept_s = CASE WHEN state = $4 THEN kept_s ELSE $22 END,
            watched_at = CASE WHEN state = $4 AND watched_at > COALESCE(CAST($23 AS BIGINT), 0) THEN watched_at
                ELSE $23 END
        WHERE id = $16 AND version = $17";
    WATCHED = "UPDATE spaces SET kept_s = $1, watched_at = $2, warned = $3 WHERE id = $4 AND version = $5";
}

#[derive(FromRow)]
struct SpaceRow {
    serial: i64,
    id: String,
    name: String,
    kind: String,
    title: String,
    root_name: String,
    owner_id: Option<String>,
    owner_name: Option<String>,
    group_name: Option<String>,
    writable: bool,
    hint: String,
    desired: String,
    state: String,
    undetermined: bool,
    reason_code: Option<String>,
    reason_text: Option<String>,
    inode: Option<i64>,
    fs_identity: Option<String>,
    limit_bytes: Option<i64>,
    limit_files: Option<i64>,
    limit_state: String,
    limit_said: Option<String>,
    hint_state: String,
    hint_said: Option<String>,
    expires_at: Option<i64>,
    warned: String,
    retired_at: Option<i64>,
    remove_after: Option<i64>,
    kept_s: i64,
    watched_at: Option<i64>,
    created_at: i64,
    version: i64,
}

impl SpaceRow {
    fn into_space(self) -> Result<Space, DbError> {
        let place = Place { table: "spaces", row: &self.id };
        let limit = |column, stored: Option<i64>| match stored {
            None => Ok(Limit::Unlimited),
            Some(stored) => place.number(column, stored).map(Limit::At),
        };
        let owner = match (&self.owner_id, &self.owner_name, &self.group_name) {
            (Some(id), Some(name), None) => {
                SpaceOwner::Person { id: place.text("owner_id", id)?, name: place.text("owner_name", name)? }
            }
            (None, None, Some(group)) => SpaceOwner::Group(place.text("group_name", group)?),
            (None, None, None) => SpaceOwner::Everybody,
            _ => return Err(place.wrong("owner_id")),
        };
        Ok(Space {
            id: place.text("id", &self.id)?,
            serial: place.number("serial", self.serial)?,
            name: place.text("name", &self.name)?,
            kind: place.text("kind", &self.kind)?,
            title: place.line("title", &self.title)?,
            root: place.text("root_name", &self.root_name)?,
            owner,
            writable: self.writable,
            hint: place.text("hint", &self.hint)?,
            hint_state: place.text("hint_state", &self.hint_state)?,
            hint_said: self.hint_said,
            desired: place.text("desired", &self.desired)?,
            state: place.text("state", &self.state)?,
            undetermined: self.undetermined,
            made_at: match (self.inode, &self.fs_identity) {
                (Some(inode), Some(stored)) => {
                    Some(MadeAt { inode: inode.cast_unsigned(), identity: place.json("fs_identity", stored)? })
                }
                (None, None) => None,
                _ => return Err(place.wrong("inode")),
            },
            limit_bytes: limit("limit_bytes", self.limit_bytes)?.map(Bytes),
            limit_files: limit("limit_files", self.limit_files)?.map(Files),
            limit_state: place.text("limit_state", &self.limit_state)?,
            limit_said: self.limit_said,
            expires_at: place.maybe_time("expires_at", self.expires_at)?,
            warned: place.json("warned", &self.warned)?,
            retired_at: place.maybe_time("retired_at", self.retired_at)?,
            remove_after: place.maybe_time("remove_after", self.remove_after)?,
            kept_s: place.number("kept_s", self.kept_s)?,
            watched_at: place.maybe_time("watched_at", self.watched_at)?,
            created_at: place.time("created_at", self.created_at)?,
            version: self.version,
            reason: match (self.reason_code, self.reason_text) {
                (Some(code), Some(text)) => Some(Reason::new(code, Sentence::from_elsewhere(&text))),
                (None, None) => None,
                _ => return Err(place.wrong("reason_code")),
            },
        })
    }
}

/// A limit as it is stored: none is no limit.
fn stored(limit: Limit<u64>) -> Option<i64> {
    match limit {
        Limit::Unlimited => None,
        Limit::At(most) => Some(signed(most)),
    }
}

fn spaces(rows: Vec<SpaceRow>) -> Result<Vec<Space>, DbError> {
    rows.into_iter().map(SpaceRow::into_space).collect()
}

impl Db {
    /// Adds a space and gives it with its number; `Conflict` when its name is taken. The space and its lines in the audit log
    /// are one.
    pub async fn insert_space(&self, mut space: Space, audit: &[AuditEntry]) -> Result<Space, DbError> {
        let warned = serde_json::to_string(&space.warned).map_err(DbError::encode)?;
        let identity = identity(&space)?;
        let group = match &space.owner {
            SpaceOwner::Group(group) => Some(group.as_str()),
            SpaceOwner::Person { .. } | SpaceOwner::Everybody => None,
        };
        let serial: Result<i64, DbError> = in_transaction!(self, tx => {
            let serial = sqlx::query_scalar(INSERT)
            .bind(space.id.to_string())
            .bind(space.name.as_str())
            .bind(space.kind.as_str())
            .bind(space.title.as_str())
            .bind(space.root.as_str())
            .bind(space.owner_id().map(|id| id.to_string()))
            .bind(group)
            .bind(space.writable)
            .bind(space.hint.as_str())
            .bind(space.desired.as_str())
            .bind(space.state.as_str())
            .bind(space.undetermined)
            .bind(space.reason.as_ref().map(|reason| reason.code.as_str()))
            .bind(space.reason.as_ref().map(|reason| reason.text.as_str()))
            .bind(space.made_at.as_ref().map(|made| made.inode.cast_signed()))
            .bind(identity)
            .bind(stored(space.limit_bytes.map(|limit| limit.0)))
            .bind(stored(space.limit_files.map(|limit| limit.0)))
            .bind(maybe_micros(space.expires_at))
            .bind(warned)
            .bind(maybe_micros(space.retired_at))
            .bind(maybe_micros(space.remove_after))
            .bind(micros(space.created_at))
            .bind(space.version)
            .bind(space.limit_state.as_str())
            .bind(space.limit_said.as_deref())
            .bind(space.hint_state.as_str())
            .bind(space.hint_said.as_deref())
            .bind(signed(space.kept_s))
            .bind(maybe_micros(space.watched_at))
            .fetch_one(&mut *tx).await
            .map_err(DbError::conflict("space"))?;
            for entry in audit {
                append!(&mut *tx, entry)?;
            }
            Ok::<i64, DbError>(serial)
        });
        let row = space.id.to_string();
        space.serial = Place { table: "spaces", row: &row }.number("serial", serial?)?;
        Ok(space)
    }

    /// A space by id, also when it is gone.
    pub async fn space(&self, id: SpaceId) -> Result<Option<Space>, DbError> {
        let row: Option<SpaceRow> =
            on_db!(self, pool => sqlx::query_as(BY_ID).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(SpaceRow::into_space).transpose()
    }

    /// The space of this name that is not gone.
    pub async fn space_by_name(&self, name: &SpaceName) -> Result<Option<Space>, DbError> {
        let row: Option<SpaceRow> =
            on_db!(self, pool => sqlx::query_as(BY_NAME).bind(name.as_str()).fetch_optional(pool).await)?;
        row.map(SpaceRow::into_space).transpose()
    }

    /// A person's own spaces that are not gone, by name.
    pub async fn spaces_of_person(&self, person: UserId) -> Result<Vec<Space>, DbError> {
        let person = person.to_string();
        let rows = on_db!(self, pool => sqlx::query_as(OF_PERSON).bind(person).fetch_all(pool).await)?;
        spaces(rows)
    }

    /// The spaces of groups and of everybody that are not gone, by name.
    pub async fn spaces_of_groups(&self) -> Result<Vec<Space>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(OF_GROUPS).fetch_all(pool).await)?;
        spaces(rows)
    }

    /// Everybody's spaces that are not gone, by name, from after the name `cursor` on.
    pub async fn spaces(&self, cursor: Option<String>, limit: u32) -> Result<Vec<Space>, DbError> {
        let rows = on_db!(self, pool =>
            sqlx::query_as(PAGE).bind(cursor).bind(i64::from(limit)).fetch_all(pool).await)?;
        spaces(rows)
    }

    /// People with a user id whose home has no row yet, at most so many.
    pub async fn people_without_home(&self, limit: u32) -> Result<Vec<UserId>, DbError> {
        let ids: Vec<String> = on_db!(self, pool =>
            sqlx::query_scalar(WITHOUT_HOME).bind(i64::from(limit)).fetch_all(pool).await)?;
        ids.iter().map(|id| Place { table: "users", row: id }.text("id", id)).collect()
    }

    /// Active people whose homes have answered a look, who answered last first, at most so many.
    pub async fn people_with_home(&self, limit: u32) -> Result<Vec<Username>, DbError> {
        let names: Vec<String> = on_db!(self, pool =>
            sqlx::query_scalar(WITH_HOME).bind(i64::from(limit)).fetch_all(pool).await)?;
        names.iter().map(|name| Place { table: "users", row: name }.text("username", name)).collect()
    }

    /// Spaces that are there and that no look has answered or failed at yet, the newest first, at most so many.
    pub async fn spaces_never_seen(&self, limit: u32) -> Result<Vec<Space>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(NEVER_SEEN).bind(i64::from(limit)).fetch_all(pool).await)?;
        spaces(rows)
    }

    /// People with a user id who have no space in a root of which everybody has one, at most so many.
    pub async fn people_without_space_in(&self, root: &RootName, limit: u32) -> Result<Vec<UserId>, DbError> {
        let ids: Vec<String> = on_db!(self, pool =>
            sqlx::query_scalar(WITHOUT_ONE_IN).bind(root.as_str()).bind(i64::from(limit)).fetch_all(pool).await)?;
        ids.iter().map(|id| Place { table: "users", row: id }.text("id", id)).collect()
    }

    /// The file system that the newest space of each root was made on, of those that are there.
    pub async fn file_systems_of_roots(&self) -> Result<Vec<(RootName, Identity)>, DbError> {
        let rows: Vec<(String, String, String)> = on_db!(self, pool => sqlx::query_as(MADE_ON).fetch_all(pool).await)?;
        let of_root = |(id, root, identity): &(String, String, String)| -> Result<(RootName, Identity), DbError> {
            let place = Place { table: "spaces", row: id };
            Ok((place.text("root_name", root)?, place.json("fs_identity", identity)?))
        };
        rows.iter().map(of_root).collect()
    }

    /// The spaces that are not as they are wanted, the oldest first.
    pub async fn spaces_to_change(&self) -> Result<Vec<Space>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(TO_CHANGE).fetch_all(pool).await)?;
        spaces(rows)
    }

    /// Writes a changed space back when its version is still the stored one, and counts the version up. False, with nothing changed,
    /// when somebody else was faster. Name, number, kind, root and owner stay; so does the time that was counted meanwhile, unless the state
    /// changes. The change and its lines in the audit log are one.
    pub async fn update_space(&self, space: &Space, audit: &[AuditEntry]) -> Result<bool, DbError> {
        let warned = serde_json::to_string(&space.warned).map_err(DbError::encode)?;
        let identity = identity(space)?;
        in_transaction!(self, tx => {
            let changed = sqlx::query(UPDATE)
            .bind(space.title.as_str())
            .bind(space.hint.as_str())
            .bind(space.desired.as_str())
            .bind(space.state.as_str())
            .bind(space.undetermined)
            .bind(space.reason.as_ref().map(|reason| reason.code.as_str()))
            .bind(space.reason.as_ref().map(|reason| reason.text.as_str()))
            .bind(space.made_at.as_ref().map(|made| made.inode.cast_signed()))
            .bind(identity)
            .bind(stored(space.limit_bytes.map(|limit| limit.0)))
            .bind(stored(space.limit_files.map(|limit| limit.0)))
            .bind(maybe_micros(space.expires_at))
            .bind(warned)
            .bind(maybe_micros(space.retired_at))
            .bind(maybe_micros(space.remove_after))
            .bind(space.id.to_string())
            .bind(space.version)
            .bind(space.limit_state.as_str())
            .bind(space.limit_said.as_deref())
            .bind(space.hint_state.as_str())
            .bind(space.hint_said.as_deref())
            .bind(signed(space.kept_s))
            .bind(maybe_micros(space.watched_at))
            .execute(&mut *tx).await
            .map_err(DbError::conflict("space"))?
            .rows_affected() > 0;
            if changed {
                for entry in audit {
                    append!(&mut *tx, entry)?;
                }
            }
            Ok::<bool, DbError>(changed)
        })
    }

    /// Writes the time that was counted of a space, when its version is still the stored one. That changes nothing for anybody else, so the version
    /// stays. False where somebody has changed it meanwhile: then nothing was counted.
    pub async fn note_watched(&self, space: &Space) -> Result<bool, DbError> {
        let warned = serde_json::to_string(&space.warned).map_err(DbError::encode)?;
        let changed = on_db!(self, pool => sqlx::query(WATCHED)
            .bind(signed(space.kept_s))
            .bind(maybe_micros(space.watched_at))
            .bind(warned)
            .bind(space.id.to_string())
            .bind(space.version)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }
}

fn identity(space: &Space) -> Result<Option<String>, DbError> {
    let identity = space.made_at.as_ref().map(|made| serde_json::to_string(&made.identity));
    identity.transpose().map_err(DbError::encode)
}
