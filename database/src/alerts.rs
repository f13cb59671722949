//! Alerts, whether a webhook has taken them, and the times for which nobody is told.

use std::collections::BTreeMap;

use eirene_core::alert::{Alert, KnownAlert, Silence, SilencedJob};
use eirene_core::audit::AuditEntry;
use eirene_core::{AlertId, JobKind, SessionId, SilenceId, UserId, Username};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

/// What `told` says a webhook has taken: nothing yet is 0.
const RAISED: i64 = 1;
/// It has taken that the alert is over, or need not hear of it any more.
const OVER: i64 = 2;
/// It has refused to hear that the alert is raised, so the end is none of its business either.
const REFUSED: i64 = 3;
/// It has taken nothing for so long that it is not told any more.
const DROPPED: i64 = 4;

macro_rules! columns {
    () => {
        "alerts.id, alerts.rule, alerts.severity, alerts.subject, alerts.session_id, alerts.owner_id, alerts.value, alerts.details, \
         alerts.started_at, alerts.ended_at, alerts.acknowledged_by, alerts.acknowledged_at"
    };
}

/// Alerts with what their sessions are called.
macro_rules! known {
    ($($rest:expr),*) => {
        concat!(
            "SELECT ",
            columns!(),
            ", alerts.told, sessions.name AS session_name, sessions.program IS NOT NULL AS is_run, users.username AS owner_name
            FROM alerts LEFT JOIN sessions ON sessions.id = alerts.session_id LEFT JOIN users ON users.id = sessions.owner_id ",
            $($rest),*
        )
    };
}

statements! {
    INSERT = "INSERT INTO alerts (id, rule, severity, subject, session_id, owner_id, value, details, started_at, ended_at, told,
            tell_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, NULL, 0, $9)";
    OPEN = concat!("SELECT ", columns!(), " FROM alerts WHERE ended_at IS NULL ORDER BY id");
    BY_ID = known!("WHERE alerts.id = $1");
    /// The latest first.
    LIST = known!("WHERE (CAST($1 AS TEXT) IS NULL OR alerts.owner_id = $1) AND (CAST($2 AS TEXT) IS NULL OR alerts.id < $2)
        AND (alerts.ended_at IS NULL OR $3 = FALSE) ORDER BY alerts.id DESC LIMIT $4");
    OF_SESSION = concat!("SELECT ", columns!(), " FROM alerts WHERE session_id = $1 ORDER BY id DESC LIMIT $2");
    END = "UPDATE alerts SET ended_at = $1, tell_at = $1 WHERE id = $2 AND ended_at IS NULL";
    ACKNOWLEDGE = "UPDATE alerts SET acknowledged_by = $1, acknowledged_at = $2 WHERE id = $3 AND acknowledged_by IS NULL";
    UNACKNOWLEDGE = "UPDATE alerts SET acknowledged_by = NULL, acknowledged_at = NULL
        WHERE id = $1 AND acknowledged_by IS NOT NULL AND ended_at IS NULL";
    /// What a webhook has not taken yet, unless it was given up: what goes on however long ago it began, for it may have been silenced since
    /// then, and what is over where it began lately. Who has taken that one is raised waits for its end.
    TO_TELL = known!("WHERE alerts.tell_at <= $1 AND ((alerts.told = 0 AND (alerts.ended_at IS NULL OR alerts.started_at >= $2))
        OR (alerts.told = 1 AND alerts.ended_at IS NOT NULL)) ORDER BY alerts.tell_at, alerts.id LIMIT $3");
    TOLD = "UPDATE alerts SET told = $1 WHERE id = $2";
    /// What is over and has begun too long ago to be told: within this time, or it has ended lately.
    UNTOLD = known!("WHERE alerts.told = 0 AND alerts.started_at < $2 AND (alerts.started_at >= $1 OR alerts.ended_at >= $3)
        AND alerts.ended_at IS NOT NULL ORDER BY alerts.id LIMIT $4");
    NOT_TOLD = "UPDATE alerts SET tell_at = $1 WHERE id = $2";
    PRUNE = "DELETE FROM alerts WHERE ended_at < $1";
    INSERT_SILENCE = "INSERT INTO alert_silences (id, rule, subject, owner_id, session_id, until, reason, created_by,
            created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    /// Those of one person's own, or all.
    SILENCES = "SELECT alert_silences.id, alert_silences.rule, alert_silences.subject, alert_silences.owner_id,
            alert_silences.session_id, alert_silences.until, alert_silences.reason, alert_silences.created_by,
            alert_silences.created_at, sessions.name AS session_name, sessions.program IS NOT NULL AS is_run
        FROM alert_silences LEFT JOIN sessions ON sessions.id = alert_silences.session_id
        WHERE alert_silences.until > $1 AND (CAST($2 AS TEXT) IS NULL OR alert_silences.owner_id = $2)
        ORDER BY alert_silences.until, alert_silences.id";
    DELETE_SILENCE = "DELETE FROM alert_silences WHERE id = $1 AND (CAST($2 AS TEXT) IS NULL OR owner_id = $2)";
    PRUNE_SILENCES = "DELETE FROM alert_silences WHERE until < $1";
}

#[derive(FromRow)]
struct AlertRow {
    id: String,
    rule: String,
    severity: String,
    subject: String,
    session_id: Option<String>,
    owner_id: Option<String>,
    value: f64,
    details: String,
    started_at: i64,
    ended_at: Option<i64>,
    acknowledged_by: Option<String>,
    acknowledged_at: Option<i64>,
}

impl AlertRow {
    fn into_alert(self) -> Result<Alert, DbError> {
        let place = Place { table: "alerts", row: &self.id };
        let by: Option<Username> = place.maybe_text("acknowledged_by", self.acknowledged_by.as_deref())?;
        let at = place.maybe_time("acknowledged_at", self.acknowledged_at)?;
        let details: BTreeMap<String, String> = place.json("details", &self.details)?;
        Ok(Alert {
            id: place.text("id", &self.id)?,
            rule: place.text("rule", &self.rule)?,
            severity: place.text("severity", &self.severity)?,
            session: place.maybe_text("session_id", self.session_id.as_deref())?,
            owner: place.maybe_text("owner_id", self.owner_id.as_deref())?,
            value: self.value,
            details,
            started_at: place.time("started_at", self.started_at)?,
            ended_at: place.maybe_time("ended_at", self.ended_at)?,
            acknowledged: by.zip(at),
            subject: self.subject,
        })
    }
}

#[derive(FromRow)]
struct KnownRow {
    #[sqlx(flatten)]
    alert: AlertRow,
    told: i64,
    session_name: Option<String>,
    is_run: bool,
    owner_name: Option<String>,
}

impl KnownRow {
    fn into_known(self) -> Result<KnownAlert, DbError> {
        let owner =
            Place { table: "alerts", row: &self.alert.id }.maybe_text("owner_id", self.owner_name.as_deref())?;
        let kind = job_kind(self.is_run);
        let session = self.session_name.zip(owner).map(|(name, owner)| (name, kind, owner));
        Ok(KnownAlert { alert: self.alert.into_alert()?, session, is_told: matches!(self.told, RAISED | OVER) })
    }
}

#[derive(FromRow)]
struct SilenceRow {
    id: String,
    rule: Option<String>,
    subject: Option<String>,
    owner_id: Option<String>,
    session_id: Option<String>,
    until: i64,
    reason: String,
    created_by: String,
    created_at: i64,
    session_name: Option<String>,
    is_run: bool,
}

impl SilenceRow {
    fn into_silence(self) -> Result<Silence, DbError> {
        let place = Place { table: "alert_silences", row: &self.id };
        let session = place.maybe_text("session_id", self.session_id.as_deref())?;
        let kind = job_kind(self.is_run);
        Ok(Silence {
            id: place.text("id", &self.id)?,
            rule: place.maybe_text("rule", self.rule.as_deref())?,
            owner: place.maybe_text("owner_id", self.owner_id.as_deref())?,
            job: session.zip(self.session_name).map(|(id, name)| SilencedJob { id, name, kind }),
            until: place.time("until", self.until)?,
            by: place.text("created_by", &self.created_by)?,
            created_at: place.time("created_at", self.created_at)?,
            subject: self.subject,
            reason: self.reason,
        })
    }
}

fn job_kind(is_run: bool) -> JobKind {
    if is_run { JobKind::Run } else { JobKind::Session }
}

fn all_known(rows: Vec<KnownRow>) -> Result<Vec<KnownAlert>, DbError> {
    rows.into_iter().map(KnownRow::into_known).collect()
}

impl Db {
    /// Adds an alert that goes on.
    ///
    /// # Errors
    /// [`DbError::Conflict`] where one of its rule goes on about the same already.
    pub async fn insert_alert(&self, alert: &Alert) -> Result<(), DbError> {
        let details = serde_json::to_string(&alert.details).unwrap_or_else(|_| "{}".into());
        on_db!(self, pool => sqlx::query(INSERT)
            .bind(alert.id.to_string())
            .bind(alert.rule.as_str())
            .bind(alert.severity.as_str())
            .bind(&alert.subject)
            .bind(alert.session.map(|id| id.to_string()))
            .bind(alert.owner.map(|id| id.to_string()))
            .bind(alert.value)
            .bind(details)
            .bind(micros(alert.started_at))
            .execute(pool).await.map(drop))
        .map_err(DbError::conflict("alert"))
    }

    /// Alerts that go on, oldest first.
    pub async fn open_alerts(&self) -> Result<Vec<Alert>, DbError> {
        let rows: Vec<AlertRow> = on_db!(self, pool => sqlx::query_as(OPEN).fetch_all(pool).await)?;
        rows.into_iter().map(AlertRow::into_alert).collect()
    }

    /// One alert.
    pub async fn alert(&self, id: AlertId) -> Result<Option<KnownAlert>, DbError> {
        let row: Option<KnownRow> =
            on_db!(self, pool => sqlx::query_as(BY_ID).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(KnownRow::into_known).transpose()
    }

    /// Alerts of one person, or all, the latest first; those before `before`, and only those that go on.
    pub async fn alerts(
        &self,
        owner: Option<UserId>,
        before: Option<AlertId>,
        open_only: bool,
        limit: u32,
    ) -> Result<Vec<KnownAlert>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(LIST)
            .bind(owner.map(|id| id.to_string()))
            .bind(before.map(|id| id.to_string()))
            .bind(open_only)
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        all_known(rows)
    }

    /// Alerts about a session or run, the latest first.
    pub async fn alerts_of_session(&self, session: SessionId, limit: u32) -> Result<Vec<Alert>, DbError> {
        let rows: Vec<AlertRow> = on_db!(self, pool => sqlx::query_as(OF_SESSION)
            .bind(session.to_string())
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter().map(AlertRow::into_alert).collect()
    }

    /// Ends an alert; false where it was over.
    pub async fn end_alert(&self, id: AlertId, at: Timestamp) -> Result<bool, DbError> {
        let done = on_db!(self, pool => sqlx::query(END)
            .bind(micros(at))
            .bind(id.to_string())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(done > 0)
    }

    /// Somebody knows of an alert; false where somebody has said so before.
    pub async fn acknowledge_alert(
        &self,
        id: AlertId,
        by: &Username,
        at: Timestamp,
        audit: &AuditEntry,
    ) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let changed = sqlx::query(ACKNOWLEDGE)
                .bind(by.as_str())
                .bind(micros(at))
                .bind(id.to_string())
                .execute(&mut *tx).await?
                .rows_affected() > 0;
            if changed {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(changed)
        })
    }

    /// What somebody knew of an alert that goes on is not all any more; false where nobody has said that they know.
    pub async fn unacknowledge_alert(&self, id: AlertId, audit: &AuditEntry) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let changed = sqlx::query(UNACKNOWLEDGE).bind(id.to_string()).execute(&mut *tx).await?.rows_affected() > 0;
            if changed {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(changed)
        })
    }

    /// Alerts that a webhook is to be told of at `now`: those that go on, those that are over and have begun since `since`, and the ends of
    /// those it was told of.
    pub async fn alerts_to_tell(
        &self,
        now: Timestamp,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<KnownAlert>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(TO_TELL)
            .bind(micros(now))
            .bind(micros(since))
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        all_known(rows)
    }

    /// A webhook has taken an alert: that it is raised, or that it is over.
    pub async fn alert_told(&self, id: AlertId, over: bool) -> Result<(), DbError> {
        self.set_told(id, if over { OVER } else { RAISED }).await
    }

    /// A webhook has refused to hear that an alert is raised: it is told nothing of that one any more.
    pub async fn alert_refused(&self, id: AlertId) -> Result<(), DbError> {
        self.set_told(id, REFUSED).await
    }

    /// Alerts of which a webhook has not heard and that have begun before `before` and are over: those begun since `from`, and however long ago
    /// they began, those that have ended since `ended`.
    pub async fn untold_alerts(
        &self,
        from: Timestamp,
        before: Timestamp,
        ended: Timestamp,
        limit: u32,
    ) -> Result<Vec<KnownAlert>, DbError> {
        let rows = on_db!(self, pool => sqlx::query_as(UNTOLD)
            .bind(micros(from))
            .bind(micros(before))
            .bind(micros(ended))
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        all_known(rows)
    }

    /// A webhook has not heard of an alert in time, and is told nothing of it any more.
    pub async fn alert_dropped(&self, id: AlertId) -> Result<(), DbError> {
        self.set_told(id, DROPPED).await
    }

    async fn set_told(&self, id: AlertId, told: i64) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(TOLD)
            .bind(told)
            .bind(id.to_string())
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// A webhook has not taken an alert: it is told again at `again`.
    pub async fn alert_not_told(&self, id: AlertId, again: Timestamp) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(NOT_TOLD)
            .bind(micros(again))
            .bind(id.to_string())
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Deletes alerts and silences that were over before `before`; says how many.
    pub async fn prune_alerts(&self, before: Timestamp) -> Result<u64, DbError> {
        let mut deleted = 0;
        for statement in [PRUNE, PRUNE_SILENCES] {
            deleted += on_db!(self, pool =>
                sqlx::query(statement).bind(micros(before)).execute(pool).await.map(|done| done.rows_affected()))?;
        }
        Ok(deleted)
    }

    /// Adds a silence.
    pub async fn insert_silence(&self, silence: &Silence, audit: &AuditEntry) -> Result<(), DbError> {
        in_transaction!(self, tx => {
            sqlx::query(INSERT_SILENCE)
                .bind(silence.id.to_string())
                .bind(silence.rule.map(eirene_core::alert::AlertRule::as_str))
                .bind(silence.subject.as_deref())
                .bind(silence.owner.map(|id| id.to_string()))
                .bind(silence.job.as_ref().map(|job| job.id.to_string()))
                .bind(micros(silence.until))
                .bind(&silence.reason)
                .bind(silence.by.as_str())
                .bind(micros(silence.created_at))
                .execute(&mut *tx).await?;
            append!(&mut *tx, audit)?;
            Ok::<(), DbError>(())
        })
    }

    /// Silences that are not over, those that end first first: of one person's own, or all, admins' and people's own.
    pub async fn silences(&self, owner: Option<UserId>, now: Timestamp) -> Result<Vec<Silence>, DbError> {
        let rows: Vec<SilenceRow> = on_db!(self, pool => sqlx::query_as(SILENCES)
            .bind(micros(now))
            .bind(owner.map(|id| id.to_string()))
            .fetch_all(pool).await)?;
        rows.into_iter().map(SilenceRow::into_silence).collect()
    }

    /// Takes a silence away, of one person's own or any; false where there is none.
    pub async fn delete_silence(
        &self,
        owner: Option<UserId>,
        id: SilenceId,
        audit: &AuditEntry,
    ) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let deleted = sqlx::query(DELETE_SILENCE)
                .bind(id.to_string())
                .bind(owner.map(|id| id.to_string()))
                .execute(&mut *tx).await?
                .rows_affected() > 0;
            if deleted {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(deleted)
        })
    }
}
