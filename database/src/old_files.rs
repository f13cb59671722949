//! Old files: one row a space, and one a member in a space of a group, with sums and examples. What is listed lies in files of the service's.

use eirene_core::audit::AuditEntry;
use eirene_core::old_files::{OldFilesOf, OldFilesState};
use eirene_core::{SpaceId, UserId, Username};
use serde::Serialize;
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, maybe_micros, signed};

statements! {
    OF_SPACE = "SELECT space_id, exempt, days, seen_at, steady_s, doubt, list, look, removed, strangers, version FROM old_files
        WHERE space_id = $1";
    /// A row that is not there has the version 0, which no stored one has.
    PUT = "INSERT INTO old_files (space_id, exempt, days, seen_at, steady_s, doubt, list, look, removed, version, strangers)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10 + 1, $11)
        ON CONFLICT (space_id) DO UPDATE
        SET exempt = excluded.exempt, days = excluded.days, seen_at = excluded.seen_at, steady_s = excluded.steady_s,
            doubt = excluded.doubt, list = excluded.list, look = excluded.look, removed = excluded.removed,
            strangers = excluded.strangers, version = excluded.version
        WHERE old_files.version = excluded.version - 1";
    OF_MEMBER = "SELECT user_id, seen_at, steady_s, doubt, list, look, removed, version FROM old_files_of_members
        WHERE space_id = $1 AND user_id = $2";
    OF_MEMBERS = "SELECT o.user_id, o.seen_at, o.steady_s, o.doubt, o.list, o.look, o.removed, o.version, u.username
        FROM old_files_of_members o JOIN users u ON u.id = o.user_id WHERE o.space_id = $1 ORDER BY u.username";
    PUT_MEMBER = "INSERT INTO old_files_of_members (space_id, user_id, seen_at, steady_s, doubt, list, look, removed, version)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9 + 1)
        ON CONFLICT (space_id, user_id) DO UPDATE
        SET seen_at = excluded.seen_at, steady_s = excluded.steady_s, doubt = excluded.doubt, list = excluded.list,
            look = excluded.look, removed = excluded.removed, version = excluded.version
        WHERE old_files_of_members.version = excluded.version - 1";
    FORGET_MEMBER = "DELETE FROM old_files_of_members WHERE space_id = $1 AND user_id = $2";
    /// Rows without a list change too: whoever is about to write one has read the row as it was before.
    CLEAR_LISTS = "UPDATE old_files_of_members SET list = NULL, version = version + 1 WHERE space_id = $1";
}

#[derive(FromRow)]
struct StateRow {
    space_id: String,
    exempt: bool,
    days: Option<i64>,
    seen_at: Option<i64>,
    steady_s: i64,
    doubt: Option<String>,
    list: Option<String>,
    look: Option<String>,
    removed: Option<String>,
    strangers: Option<String>,
    version: i64,
}

impl StateRow {
    fn into_state(self) -> Result<OldFilesState, DbError> {
        let place = Place { table: "old_files", row: &self.space_id };
        let space: SpaceId = place.text("space_id", &self.space_id)?;
        Ok(OldFilesState {
            of: space.into(),
            exempt: self.exempt,
            days: self.days.map(|days| place.number("days", days)).transpose()?,
            seen_at: place.maybe_time("seen_at", self.seen_at)?,
            steady_s: place.number("steady_s", self.steady_s)?,
            doubt: place.maybe_text("doubt", self.doubt.as_deref())?,
            list: self.list.map(|list| place.json("list", &list)).transpose()?,
            look: self.look.map(|look| place.json("look", &look)).transpose()?,
            removed: self.removed.map(|removed| place.json("removed", &removed)).transpose()?,
            strangers: self.strangers.map_or(Ok(vec![]), |strangers| place.json("strangers", &strangers))?,
            version: self.version,
        })
    }
}

#[derive(FromRow)]
struct MemberRow {
    user_id: String,
    seen_at: Option<i64>,
    steady_s: i64,
    doubt: Option<String>,
    list: Option<String>,
    look: Option<String>,
    removed: Option<String>,
    version: i64,
}

#[derive(FromRow)]
struct NamedRow {
    #[sqlx(flatten)]
    row: MemberRow,
    username: String,
}

impl MemberRow {
    /// With what holds for all members of the space.
    fn into_state(self, of_all: &OldFilesState) -> Result<OldFilesState, DbError> {
        let place = Place { table: "old_files_of_members", row: &self.user_id };
        Ok(OldFilesState {
            of: OldFilesOf { space: of_all.of.space, member: Some(place.text("user_id", &self.user_id)?) },
            exempt: of_all.exempt,
            days: of_all.days,
            seen_at: place.maybe_time("seen_at", self.seen_at)?,
            steady_s: place.number("steady_s", self.steady_s)?,
            doubt: place.maybe_text("doubt", self.doubt.as_deref())?,
            list: self.list.map(|list| place.json("list", &list)).transpose()?,
            look: self.look.map(|look| place.json("look", &look)).transpose()?,
            removed: self.removed.map(|removed| place.json("removed", &removed)).transpose()?,
            strangers: vec![],
            version: self.version,
        })
    }
}

fn json<T: Serialize>(value: Option<&T>) -> Result<Option<String>, DbError> {
    value.map(serde_json::to_string).transpose().map_err(DbError::encode)
}

impl Db {
    /// What is known of old files; where nothing is known, that. A member's has the exemption and the days of the space.
    pub async fn old_files(&self, of: impl Into<OldFilesOf>) -> Result<OldFilesState, DbError> {
        let of = of.into();
        let Some(member) = of.member else { return self.old_files_of_space(of.space).await };
        let (space, user) = (of.space.to_string(), member.to_string());
        // Before the space's: an exemption that comes between the two makes this row another one, and one that came before is read.
        let row: Option<MemberRow> =
            on_db!(self, pool => sqlx::query_as(OF_MEMBER).bind(space).bind(user).fetch_optional(pool).await)?;
        let of_all = self.old_files_of_space(of.space).await?;
        match row {
            Some(row) => row.into_state(&of_all),
            None => Ok(OldFilesState { exempt: of_all.exempt, days: of_all.days, ..OldFilesState::new(of) }),
        }
    }

    async fn old_files_of_space(&self, space: SpaceId) -> Result<OldFilesState, DbError> {
        let id = space.to_string();
        let row: Option<StateRow> = on_db!(self, pool => sqlx::query_as(OF_SPACE).bind(id).fetch_optional(pool).await)?;
        row.map_or_else(|| Ok(OldFilesState::new(space)), StateRow::into_state)
    }

    /// What is known of old files of the members of a space's group, by their names.
    pub async fn old_files_of_members(&self, space: SpaceId) -> Result<Vec<(Username, OldFilesState)>, DbError> {
        let id = space.to_string();
        let rows: Vec<NamedRow> = on_db!(self, pool => sqlx::query_as(OF_MEMBERS).bind(id).fetch_all(pool).await)?;
        let of_all = self.old_files_of_space(space).await?;
        let named = |NamedRow { row, username }| {
            let name = Place { table: "users", row: &row.user_id }.text("username", &username)?;
            Ok((name, row.into_state(&of_all)?))
        };
        rows.into_iter().map(named).collect()
    }

    /// Writes what is known back when its version is still the stored one, and counts the version up. False, with nothing changed, when somebody
    /// else was faster. Of a member's the exemption and the days are the space's, and stay. The change
    /// and its lines in the audit log are one.
    pub async fn put_old_files(&self, state: &OldFilesState, audit: &[AuditEntry]) -> Result<bool, DbError> {
        let (list, look) = (json(state.list.as_ref())?, json(state.look.as_ref())?);
        let removed = json(state.removed.as_ref())?;
        let (space, seen_at, steady_s) =
            (state.of.space.to_string(), maybe_micros(state.seen_at), signed(state.steady_s));
        let doubt = state.doubt.map(eirene_core::old_files::OldFilesDoubt::as_str);
        let strangers = json(Some(&state.strangers).filter(|strangers| !strangers.is_empty()))?;
        in_transaction!(self, tx => {
            let done = match state.of.member {
                Some(member) => sqlx::query(PUT_MEMBER)
                    .bind(space)
                    .bind(member.to_string())
                    .bind(seen_at)
                    .bind(steady_s)
                    .bind(doubt)
                    .bind(list)
                    .bind(look)
                    .bind(removed)
                    .bind(state.version)
                    .execute(&mut *tx).await?
                    .rows_affected(),
                None => sqlx::query(PUT)
                    .bind(space)
                    .bind(state.exempt)
                    .bind(state.days.map(i64::from))
                    .bind(seen_at)
                    .bind(steady_s)
                    .bind(doubt)
                    .bind(list)
                    .bind(look)
                    .bind(removed)
                    .bind(state.version)
                    .bind(strangers)
                    .execute(&mut *tx).await?
                    .rows_affected(),
            };
            if done > 0 {
                for entry in audit {
                    append!(&mut *tx, entry)?;
                }
            }
            Ok::<bool, DbError>(done > 0)
        })
    }

    /// Forgets what is known of a member's: what was listed of theirs is not.
    pub async fn forget_old_files(&self, space: SpaceId, member: UserId) -> Result<(), DbError> {
        let (space, member) = (space.to_string(), member.to_string());
        on_db!(self, pool => sqlx::query(FORGET_MEMBER).bind(space).bind(member).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Takes what is listed of every member of a space's group from the rows, also from whoever is about to write one.
    pub async fn clear_old_files(&self, space: SpaceId) -> Result<(), DbError> {
        let id = space.to_string();
        on_db!(self, pool => sqlx::query(CLEAR_LISTS).bind(id).execute(pool).await.map(drop))?;
        Ok(())
    }
}
