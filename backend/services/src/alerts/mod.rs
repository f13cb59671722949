//! Alerts: what somebody should know now, told on pages, in events and by webhook; acknowledged, and for a time silenced.
//!
//! Readings come from [`sessions`] and [`platform`], the [`watch`] decides by them alone, and what it decides becomes rows here. Samples are an
//! agent's word, and an agent is its person's: an alert about a session leads to nothing but words. What is about the platform is for admins.

pub mod platform;
mod rules;
mod sending;
mod sessions;
#[cfg(test)]
mod tests;
mod text;
mod watch;
pub mod webhook;

use eirene_core::text::is_printable;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex as StdMutex};

use eirene_core::alert::{Alert, AlertRule, KnownAlert, Silence, SilencedJob};
use eirene_core::{AlertId, Clock, Scope, Sentence, Session, SessionId, SilenceId, UserId};
use eirene_database::{Db, DbError};
use eirene_words::{say, say_with};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::sync::Mutex;

use crate::Page;
use crate::actor::Actor;
use crate::audit::{Audit, by_system};
use crate::config;
use crate::error::{AppError, FieldError};
use crate::events::{EventKind, Events, Fact};
use crate::samples::Samples;
use crate::shared::Shared;
use rules::Settings;
use sending::Sending;
use watch::{Reading, Round, Watch};

pub use text::text;

/// Longest subject of a silence, in characters.
pub const MOST_SUBJECT: usize = 300;
/// Longest reason of a silence, in characters.
pub const MOST_REASON: usize = 200;
/// Longest silence: a month.
pub const MOST_MINUTES: u32 = 31 * 24 * 60;
/// Silences that one person may have for themselves at once: all of them are looked at whenever somebody is told of an alert.
pub const MOST_OWN: usize = 64;
/// Alerts about one session that its pages show.
const MOST_OF_SESSION: u32 = 100;

/// The detail of an alert that says of which GPU there is only a part: it is about that GPU as a whole.
const PART_OF: &str = "part_of";
/// The detail of an alert that says which way a clock is wrong, and what it is where that is behind.
const WAY: &str = "way";
const BEHIND: &str = "behind";
/// What an alert is about where most nodes are off by the same: the portal's clock. No node is called so.
const PORTAL_CLOCK: &str = "portal/clock";

/// What the service is made of.
pub struct Parts {
    /// Database.
    pub db: Db,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Audit log.
    pub audit: Audit,
    /// Events.
    pub events: Events,
    /// Samples.
    pub samples: Samples,
}

/// An alert as it is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The alert.
    pub known: KnownAlert,
    /// What it says.
    pub text: Sentence,
    /// Whether nobody is told of it for now, or whoever reads this is not.
    pub silenced: bool,
}

/// A silence about to be made.
#[derive(Debug, Clone, Default)]
pub struct NewSilence {
    /// Of which rule; none is any.
    pub rule: Option<AlertRule>,
    /// About what; none is anything.
    pub subject: Option<String>,
    /// For how long, minutes.
    pub minutes: u32,
    /// Why.
    pub reason: String,
}

/// A silence that somebody is about to make for themselves, about what is theirs.
#[derive(Debug, Clone)]
pub struct NewOwnSilence {
    /// Of which rule about sessions and runs.
    pub rule: AlertRule,
    /// About which session or run; none is all of theirs.
    pub job: Option<SessionId>,
    /// For how long, minutes.
    pub minutes: u32,
    /// Why, for whoever wants to say it.
    pub reason: Option<String>,
}

/// Which alerts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListAlerts {
    /// Everybody's and the platform's, for admins.
    pub all: bool,
    /// Only those that go on.
    pub open_only: bool,
    /// Those before this one.
    pub before: Option<AlertId>,
    /// At most so many.
    pub limit: u32,
}

/// The alerts. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    inner: Shared<Inner>,
}

struct Inner {
    parts: Parts,
    settings: BTreeMap<AlertRule, Settings>,
    /// None until what was raised before is known.
    watch: Mutex<Option<Watch>>,
    /// Held from counting a person's silences to adding one.
    silencing: Mutex<()>,
    /// How sending goes; none where there is no webhook.
    sending: Option<StdMutex<Sending>>,
}

impl Alerts {
    /// Alerts by the rules of `config`.
    pub fn new(parts: Parts, config: &config::Alerts) -> Self {
        let of = |rule: &AlertRule| Some((*rule, Settings::of(*rule, config)?));
        let settings = AlertRule::ALL.iter().filter_map(of).collect();
        let sending = config.has_webhook().then(StdMutex::default);
        let (watch, silencing) = (Mutex::default(), Mutex::default());
        Self { inner: Shared::new(Inner { parts, settings, watch, silencing, sending }) }
    }

    fn db(&self) -> &Db {
        &self.inner.parts.db
    }

    fn now(&self) -> Timestamp {
        self.inner.parts.clock.now()
    }

    /// Looks at the platform and at everything that is not over, and raises and ends what is due; `thoroughly` also at what takes a longer look
    /// back.
    ///
    /// # Errors
    /// The database's. What could not be written is due the next time.
    pub async fn look(&self, seen: &platform::Seen<'_>, thoroughly: bool) -> Result<(), AppError> {
        let begun: Vec<Session> = seen.live.iter().filter(|session| session.started_at.is_some()).cloned().collect();
        let mut round = platform::look(seen);
        let of_sessions = sessions::look(&self.inner.parts.samples, &begun, thoroughly).await?;
        round.readings.extend(of_sessions.readings);
        round.unknown.extend(of_sessions.unknown);
        round.unknown_of.extend(of_sessions.unknown_of);
        round.held.extend(of_sessions.held);
        round.readings.extend(sessions::clocks(&self.inner.parts.samples, &begun));
        self.take(round, &begun.iter().map(|session| session.id).collect()).await
    }

    async fn take(&self, round: Round, live: &HashSet<SessionId>) -> Result<(), AppError> {
        let mut watch = self.inner.watch.lock().await;
        if watch.is_none() {
            let mut adopted = Watch::default();
            adopted.adopt(&self.db().open_alerts().await?);
            *watch = Some(adopted);
        }
        let Some(known) = watch.as_mut() else { return Ok(()) };
        let now = self.now();
        known.keep_sessions(live);
        let changes = known.look(round, now, &self.inner.settings);
        let mut trouble = Ok(());
        for reading in changes.raise {
            match self.raise(&reading, now).await {
                Ok(id) => known.was_raised(&reading, id),
                Err(error) => trouble = Err(error),
            }
        }
        for (reading, id) in changes.found {
            match self.found_again(&reading, id).await {
                Ok(true) => known.was_told(&reading),
                Ok(false) => {}
                Err(error) => {
                    known.was_not_told(&reading);
                    trouble = Err(error);
                }
            }
        }
        for (key, id) in changes.end {
            match self.end(id, now).await {
                Ok(()) => known.was_ended(&key, now),
                Err(error) => trouble = Err(error),
            }
        }
        for (rule, count) in known.raised() {
            metrics::gauge!("eirene_alerts", "rule" => rule.as_str()).set(count);
        }
        if matches!(trouble, Err(AppError::Conflict { .. })) {
            // There is one that this watch does not know, so it begins anew with what there is.
            *watch = None;
            return Ok(());
        }
        trouble
    }

    async fn raise(&self, reading: &Reading, now: Timestamp) -> Result<AlertId, AppError> {
        let Some(settings) = self.inner.settings.get(&reading.rule) else { return Err(AppError::NotFound) };
        let session = reading.session.filter(|_| !reading.is_for_operators);
        let alert = Alert {
            id: AlertId::generate(),
            rule: reading.rule,
            severity: settings.severity,
            subject: reading.subject.clone(),
            session: session.map(|(session, _)| session),
            owner: session.map(|(_, owner)| owner),
            value: reading.value,
            details: reading.details.clone(),
            started_at: now,
            ended_at: None,
            acknowledged: None,
        };
        self.db().insert_alert(&alert).await?;
        metrics::counter!("eirene_alerts_raised_total", "rule" => alert.rule.as_str()).increment(1);
        if alert.owner.is_none() {
            tracing::warn!(rule = %alert.rule, subject = alert.subject, "Alert: {}", text(&alert).as_str());
        }
        self.tell(alert.id).await;
        Ok(alert.id)
    }

    /// Takes back that somebody knows of an alert, as another's session finds the same: they know of one person's word, which may be a lie. Whether
    /// anybody had said so.
    async fn found_again(&self, reading: &Reading, id: AlertId) -> Result<bool, AppError> {
        let details = json!({"rule": reading.rule, "subject": reading.subject, "value": reading.value});
        let event = by_system("alerts", "alert.unacknowledge", &id.to_string(), "ok", details);
        if !self.db().unacknowledge_alert(id, &self.inner.parts.audit.entry(event)).await? {
            return Ok(false);
        }
        self.tell(id).await;
        Ok(true)
    }

    async fn end(&self, id: AlertId, now: Timestamp) -> Result<(), AppError> {
        if self.db().end_alert(id, now).await? {
            self.tell(id).await;
        }
        Ok(())
    }

    /// Tells open pages how an alert is; not those of whose it is, where they have silenced it.
    async fn tell(&self, id: AlertId) {
        let now = self.now();
        let looked = async { Ok::<_, DbError>((self.db().alert(id).await?, self.db().silences(None, now).await?)) };
        let (found, silences) = match looked.await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::warn!(alert.id = %id, %error, "Nobody was told of an alert");
                return;
            }
        };
        let Some(known) = found else { return };
        let alert = &known.alert;
        // Who may have been told that it goes on, as their silence is a later one, is told that it is over.
        let is_awaited = |silence: &Silence| alert.ended_at.is_some() && silence.created_at > alert.started_at;
        let is_hidden = silences.iter().any(|silence| silence.hides(alert, now) && !is_awaited(silence));
        let (session, owner) = (alert.session, alert.owner.filter(|_| !is_hidden));
        let listed = self.listed(known, None, &silences);
        self.inner.parts.events.publish(EventKind::Alert, session, owner, Fact::Alert(Box::new(listed))).await;
    }

    /// As `reader` sees it; nobody in particular sees what is silenced for everybody.
    fn listed(&self, known: KnownAlert, reader: Option<UserId>, silences: &[Silence]) -> Listed {
        let (alert, now) = (&known.alert, self.now());
        let is_readers = reader.is_some() && reader == alert.owner;
        let silenced =
            silences.iter().any(|silence| silence.covers(alert, now) || (is_readers && silence.hides(alert, now)));
        Listed { text: text(alert), silenced, known }
    }

    /// Alerts, the latest first: one's own, or all.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for all, for who is no admin.
    pub async fn list(&self, actor: &Actor, which: ListAlerts) -> Result<Page<Listed>, AppError> {
        actor.require(Scope::SessionsRead)?;
        if which.all {
            actor.require_admin()?;
        }
        let owner = (!which.all).then_some(actor.user.id);
        let limit = which.limit.max(1);
        let mut found = self.db().alerts(owner, which.before, which.open_only, limit.saturating_add(1)).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|known| known.alert.id.to_string());
        let silences = self.db().silences(None, self.now()).await?;
        Ok(Page { items: found.into_iter().map(|known| self.listed(known, owner, &silences)).collect(), next })
    }

    /// One alert: one's own; an admin's any.
    ///
    /// # Errors
    /// [`AppError::NotFound`] for what is not there, [`AppError::Hidden`] for what may not be seen.
    pub async fn get(&self, actor: &Actor, id: AlertId) -> Result<Listed, AppError> {
        actor.require(Scope::SessionsRead)?;
        let known = self.db().alert(id).await?.ok_or(AppError::NotFound)?;
        if known.alert.owner != Some(actor.user.id) && !actor.acts_as_admin() {
            return Err(AppError::Hidden);
        }
        let silences = self.db().silences(None, self.now()).await?;
        Ok(self.listed(known, Some(actor.user.id), &silences))
    }

    /// The present state of an alert as `reader` sees it. The caller has authorised the reader.
    pub async fn as_it_is(&self, id: AlertId, reader: UserId) -> Result<Option<Listed>, AppError> {
        let Some(known) = self.db().alert(id).await? else { return Ok(None) };
        let silences = self.db().silences(None, self.now()).await?;
        Ok(Some(self.listed(known, Some(reader), &silences)))
    }

    /// Alerts about a session or run, the latest first. The caller has asked whether it may be seen.
    ///
    /// # Errors
    /// The database's.
    pub async fn of_session(&self, session: SessionId) -> Result<Vec<Alert>, AppError> {
        Ok(self.db().alerts_of_session(session, MOST_OF_SESSION).await?)
    }

    /// Those of [`Alerts::of_session`] that `actor` is to be told of, which are all but for what is theirs and silenced by them.
    ///
    /// # Errors
    /// The database's.
    pub async fn told_of_session(&self, actor: &Actor, session: SessionId) -> Result<Vec<Alert>, AppError> {
        let mut alerts = self.of_session(session).await?;
        let now = self.now();
        let own = self.db().silences(Some(actor.user.id), now).await?;
        alerts.retain(|alert| !own.iter().any(|silence| silence.hides(alert, now)));
        Ok(alerts)
    }

    /// Says that somebody knows. Who has said so first is kept.
    ///
    /// # Errors
    /// As [`Alerts::get`], and what the means of signing in do not allow.
    pub async fn acknowledge(&self, actor: &Actor, id: AlertId) -> Result<Listed, AppError> {
        actor.require(Scope::SessionsWrite)?;
        let found = self.get(actor, id).await?;
        let details = json!({"rule": found.known.alert.rule, "subject": found.known.alert.subject});
        let audit = self.inner.parts.audit.entry(actor.audit("alert.acknowledge", &id.to_string(), "ok", details));
        if self.db().acknowledge_alert(id, &actor.user.username, self.now(), &audit).await? {
            self.tell(id).await;
        }
        self.get(actor, id).await
    }

    /// Silences that are not over, for admins: theirs, and what people have silenced for themselves.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for who is no admin.
    pub async fn silences(&self, actor: &Actor) -> Result<Vec<Silence>, AppError> {
        actor.require_admin()?;
        Ok(self.db().silences(None, self.now()).await?)
    }

    /// What somebody has silenced for themselves and is not over.
    ///
    /// # Errors
    /// What the means of signing in do not allow.
    pub async fn own_silences(&self, actor: &Actor) -> Result<Vec<Silence>, AppError> {
        actor.require(Scope::SessionsRead)?;
        Ok(self.db().silences(Some(actor.user.id), self.now()).await?)
    }

    /// Has nobody told of some alerts for a time.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for who is no admin; a time or a reason that cannot be.
    pub async fn silence(&self, actor: &Actor, new: NewSilence) -> Result<Silence, AppError> {
        actor.require_admin()?;
        check(&new)?;
        let NewSilence { rule, subject, minutes, reason } = new;
        let silence = Silence { rule, subject, reason, ..self.begun(actor, minutes) };
        let details = json!({
            "rule": silence.rule, "subject": silence.subject, "until": silence.until, "reason": silence.reason,
        });
        let audit = self.inner.parts.audit.entry(actor.audit("alert.silence", &silence.id.to_string(), "ok", details));
        self.db().insert_silence(&silence, &audit).await?;
        Ok(silence)
    }

    /// Has `actor` alone not told of some alerts about their own sessions and runs for a time. Admins still are.
    ///
    /// # Errors
    /// A rule of the platform's, a session or run that is not theirs, a time or a reason that cannot be; [`AppError::Conflict`] where they have
    /// silenced much already; what the means of signing in do not allow.
    pub async fn silence_own(&self, actor: &Actor, new: NewOwnSilence) -> Result<Silence, AppError> {
        actor.require(Scope::SessionsWrite)?;
        let job = check_own(&new, self.own_job(actor, new.job).await?)?;
        let reason = new.reason.unwrap_or_default();
        let begun = self.begun(actor, new.minutes);
        let silence = Silence { rule: Some(new.rule), owner: Some(actor.user.id), job, reason, ..begun };
        let _counted = self.inner.silencing.lock().await;
        if self.db().silences(Some(actor.user.id), self.now()).await?.len() >= MOST_OWN {
            let text = say_with("problem.too_many_silences", &[("n", &MOST_OWN.to_string())]);
            return Err(AppError::Conflict { code: "too_many_silences", text });
        }
        let details = json!({
            "own": true, "rule": silence.rule, "job": silence.job.as_ref().map(|job| job.id), "until": silence.until,
            "reason": silence.reason,
        });
        let audit = self.inner.parts.audit.entry(actor.audit("alert.silence", &silence.id.to_string(), "ok", details));
        self.db().insert_silence(&silence, &audit).await?;
        Ok(silence)
    }

    /// A silence of everything for everybody, from now on.
    fn begun(&self, actor: &Actor, minutes: u32) -> Silence {
        let now = self.now();
        Silence {
            id: SilenceId::generate(),
            rule: None,
            subject: None,
            owner: None,
            job: None,
            until: now.saturating_add(SignedDuration::from_mins(minutes.into())).unwrap_or(now),
            reason: String::new(),
            by: actor.user.username.clone(),
            created_at: now,
        }
    }

    /// The session or run of `actor`'s with this id: what is somebody else's is as good as not there, for admins too.
    async fn own_job(&self, actor: &Actor, id: Option<SessionId>) -> Result<OwnJob, AppError> {
        let Some(id) = id else { return Ok(OwnJob::Any) };
        let found = self.db().session(id).await?.filter(|session| session.owner == actor.user.id);
        Ok(found.map_or(OwnJob::None, |session| {
            OwnJob::One(SilencedJob { id, name: session.name.to_string(), kind: session.kind() })
        }))
    }

    /// Takes a silence away: an admin's, or whatever somebody has silenced for themselves.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for who is no admin, [`AppError::NotFound`].
    pub async fn unsilence(&self, actor: &Actor, id: SilenceId) -> Result<(), AppError> {
        actor.require_admin()?;
        self.take_away(actor, None, id).await
    }

    /// Takes a silence away that `actor` has made for themselves.
    ///
    /// # Errors
    /// [`AppError::NotFound`] for what is not there and for everybody else's; what the means of signing in do not allow.
    pub async fn unsilence_own(&self, actor: &Actor, id: SilenceId) -> Result<(), AppError> {
        actor.require(Scope::SessionsWrite)?;
        self.take_away(actor, Some(actor.user.id), id).await
    }

    async fn take_away(&self, actor: &Actor, owner: Option<UserId>, id: SilenceId) -> Result<(), AppError> {
        let audit = self.inner.parts.audit.entry(actor.audit("alert.unsilence", &id.to_string(), "ok", json!({})));
        if self.db().delete_silence(owner, id, &audit).await? { Ok(()) } else { Err(AppError::NotFound) }
    }

    /// Removes alerts and silences that were over before `before`.
    ///
    /// # Errors
    /// The database's.
    pub async fn prune(&self, before: Timestamp) -> Result<u64, DbError> {
        self.db().prune_alerts(before).await
    }
}

/// What somebody has named as a session or run of theirs.
enum OwnJob {
    Any,
    One(SilencedJob),
    /// It is not theirs, or not there.
    None,
}

fn check(new: &NewSilence) -> Result<(), AppError> {
    let subject = new.subject.as_deref().and_then(|subject| wrong_text("subject", subject, MOST_SUBJECT));
    let wrong = wrong_text("reason", &new.reason, MOST_REASON).into_iter().chain(subject);
    all_right(wrong.chain(wrong_minutes(new.minutes)).collect())
}

fn check_own(new: &NewOwnSilence, job: OwnJob) -> Result<Option<SilencedJob>, AppError> {
    let mut wrong = Vec::new();
    if !new.rule.is_of_sessions() {
        wrong.push(FieldError::new("rule", say("wrong.no_own_rule")));
    }
    let job = match job {
        OwnJob::Any => None,
        OwnJob::One(job) => Some(job),
        OwnJob::None => {
            wrong.push(no_job());
            None
        }
    };
    wrong.extend(new.reason.as_deref().and_then(|reason| wrong_text("reason", reason, MOST_REASON)));
    wrong.extend(wrong_minutes(new.minutes));
    all_right(wrong).map(|()| job)
}

/// That it is the id of no session or run of theirs: of none at all, or of somebody else's.
pub fn no_job() -> FieldError {
    FieldError::new("job", say("wrong.no_job"))
}

fn wrong_text(field: &str, text: &str, most: usize) -> Option<FieldError> {
    let length = text.chars().count();
    let is_right = (1..=most).contains(&length) && text.trim() == text && text.chars().all(is_printable);
    (!is_right).then(|| FieldError::new(field, say_with("wrong.printable", &[("n", &most.to_string())])))
}

fn wrong_minutes(minutes: u32) -> Option<FieldError> {
    let most = MOST_MINUTES.to_string();
    let wrong = || FieldError::new("minutes", say_with("wrong.between", &[("least", "1"), ("most", &most)]));
    (!(1..=MOST_MINUTES).contains(&minutes)).then(wrong)
}

fn all_right(wrong: Vec<FieldError>) -> Result<(), AppError> {
    if wrong.is_empty() { Ok(()) } else { Err(AppError::Invalid(wrong)) }
}
