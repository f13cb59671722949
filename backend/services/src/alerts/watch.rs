//! What is over its threshold, since when, and for which of it there is an alert: decided from readings and the time alone.
//!
//! An alert is raised once its reading has been over the threshold for long enough, and ends once it has been back for long enough; a value between
//! the two thresholds changes nothing. Nothing here is kept: what was about to be raised begins anew with the process, what is raised is adopted.
//!
//! Several sessions may tell operators of the same GPU, and any of their agents may lie. Each is judged by its own word, with what it may raise of its
//! own: the first that may raises the alert, which goes on for as long as any of them that was over the threshold finds what it is about. So no lie
//! keeps an alert from being raised by what another has found, or ends it. Nor does it keep others quiet once somebody has said that they know of
//! memory errors: what they know is one person's word, and that another's session finds the same is news. That the next session of the same person
//! does is none, nor that each session on a node finds what is wrong with all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use eirene_core::alert::{Alert, AlertRule};
use eirene_core::{AlertId, SessionId, UserId};
use jiff::{SignedDuration, Timestamp};

use super::rules::Settings;

/// What has ended is not raised again within this time: what goes up and down is told of now and then.
const QUIET: SignedDuration = SignedDuration::from_mins(5);
/// Most alerts about one session, one after the other: samples are an agent's word, and an agent is its person's.
const MOST_OF_SESSION: u32 = 64;

/// One value of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// Of which rule.
    pub rule: AlertRule,
    /// About what, see [`Alert::subject`].
    pub subject: String,
    /// The value.
    pub value: f64,
    /// Of whose session it is.
    pub session: Option<(SessionId, UserId)>,
    /// Whether it is for admins alone, and the session only who told of it.
    pub(crate) is_for_operators: bool,
    /// What its sentence says besides.
    pub details: BTreeMap<String, String>,
}

/// What was read at one time.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// What is known. What is not read any more is back, but for a GPU that was lost on one of [`Round::held`].
    pub(crate) readings: Vec<Reading>,
    /// Rules of which nothing is known this time, and so nothing changes.
    pub unknown: BTreeSet<AlertRule>,
    /// What else nothing is known of, where the rest of its rule is known.
    pub unknown_of: HashSet<Key>,
    /// Nodes that sessions hold, as subjects about them begin: `session/node`.
    pub held: HashSet<String>,
}

impl Reading {
    fn key(&self) -> Key {
        (self.rule, self.subject.clone())
    }

    fn by(&self) -> By {
        self.session.filter(|_| self.is_for_operators).map(|(session, _)| session)
    }

    /// Whose word it is, where it is news that somebody else finds the same.
    fn news_of(&self) -> Option<UserId> {
        let is_news = self.is_for_operators && self.rule == AlertRule::GpuMemoryErrors;
        self.session.filter(|_| is_news).map(|(_, owner)| owner)
    }
}

/// What an alert is about: no two are about the same.
pub(crate) type Key = (AlertRule, String);

/// Whose word it is, where several sessions may tell of the same; none where only one can, and of what was adopted.
type By = Option<SessionId>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Over the threshold since then.
    Rising(Timestamp),
    /// There is an alert; back since then.
    Raised(AlertId, Option<Timestamp>),
    /// There was an alert until then.
    Ended(Timestamp),
}

impl Phase {
    /// The alert that there is.
    fn alert(&self) -> Option<AlertId> {
        match self {
            Self::Raised(id, _) => Some(*id),
            Self::Rising(_) | Self::Ended(_) => None,
        }
    }

    /// Whether there is an alert, and it has been back for so long.
    fn is_back_for(&self, wait: SignedDuration, now: Timestamp) -> bool {
        matches!(self, Self::Raised(_, Some(since)) if now.duration_since(*since) >= wait)
    }
}

/// What has to change.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Changes {
    /// To be raised.
    pub raise: Vec<Reading>,
    /// What there is an alert of, and a session finds whose person has had no part in it so far.
    pub found: Vec<(Reading, AlertId)>,
    /// To be ended.
    pub end: Vec<(Key, AlertId)>,
    /// What those to be raised are about.
    about: HashSet<Key>,
    /// How many of those to be raised are about each session.
    of_sessions: HashMap<SessionId, u32>,
}

impl Changes {
    fn add(&mut self, reading: &Reading) {
        // Of several who find the same at the same time one tells of it.
        if !self.about.insert(reading.key()) {
            return;
        }
        if let Some((session, _)) = reading.session {
            *self.of_sessions.entry(session).or_default() += 1;
        }
        self.raise.push(reading.clone());
    }
}

/// The watch.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    known: HashMap<Key, HashMap<By, Phase>>,
    of_sessions: HashMap<SessionId, u32>,
    /// Whose sessions have had a part in an alert for as long as there is that one, see [`Reading::news_of`].
    people: HashMap<Key, HashSet<UserId>>,
}

impl Watch {
    /// Takes over alerts that are raised already.
    pub(crate) fn adopt(&mut self, open: &[Alert]) {
        for alert in open {
            let claims = self.known.entry((alert.rule, alert.subject.clone())).or_default();
            claims.insert(None, Phase::Raised(alert.id, None));
        }
    }

    /// How many alerts of each rule there are.
    pub(crate) fn raised(&self) -> BTreeMap<AlertRule, u32> {
        let mut counts: BTreeMap<AlertRule, u32> = AlertRule::ALL.iter().map(|rule| (*rule, 0)).collect();
        for ((rule, _), claims) in &self.known {
            if claims.values().any(|phase| phase.alert().is_some()) {
                *counts.entry(*rule).or_default() += 1;
            }
        }
        counts
    }

    /// Says what has to change. It is asked again until [`Watch::was_raised`] or [`Watch::was_ended`] is told that it has.
    pub(crate) fn look(&mut self, round: Round, now: Timestamp, settings: &BTreeMap<AlertRule, Settings>) -> Changes {
        let mut changes = Changes::default();
        let mut seen = HashSet::new();
        for reading in round.readings {
            let Some(settings) = settings.get(&reading.rule).filter(|_| reading.value.is_finite()) else { continue };
            let claim = (reading.key(), reading.by());
            self.take(&claim, &reading, settings, now, &mut changes);
            seen.insert(claim);
        }
        // A GPU that is lost may take with it whoever tells of it: that it is back has to be said.
        let stays = |(rule, subject): &Key, phase: &Phase| {
            let is_held = || subject.rsplit_once('/').is_some_and(|(node, _)| round.held.contains(node));
            *rule == AlertRule::GpuLost
                && settings.contains_key(rule)
                && matches!(phase, Phase::Raised(_, None))
                && is_held()
        };
        let is_unknown = |key: &Key| round.unknown.contains(&key.0) || round.unknown_of.contains(key);
        let gone = |claim: &(Key, By), phase: &Phase| {
            !is_unknown(&claim.0) && !seen.contains(claim) && !stays(&claim.0, phase)
        };
        let mut missing = Vec::new();
        for (key, claims) in &self.known {
            for (by, phase) in claims {
                let claim = (key.clone(), *by);
                if gone(&claim, phase) {
                    missing.push(claim);
                }
            }
        }
        for claim in missing {
            self.back(&claim, now);
        }
        self.end(is_unknown, now, settings, &mut changes);
        for claims in self.known.values_mut() {
            claims.retain(|_, phase| !matches!(phase, Phase::Ended(at) if now.duration_since(*at) >= QUIET));
        }
        self.known.retain(|_, claims| !claims.is_empty());
        let goes_on = |claims: &HashMap<By, Phase>| claims.values().any(|phase| phase.alert().is_some());
        self.people.retain(|key, _| self.known.get(key).is_some_and(goes_on));
        changes
    }

    fn take(
        &mut self,
        claim: &(Key, By),
        reading: &Reading,
        settings: &Settings,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        if settings.is_back(reading.rule, reading.value) {
            return self.back(claim, now);
        }
        let is_over = settings.is_over(reading.rule, reading.value);
        let (key, by) = claim;
        let claims = self.known.entry(key.clone()).or_default();
        let own = claims.get(by).copied();
        // Whose the adopted one was nobody knows: it may have been this one's.
        let has_part = own.or_else(|| claims.get(&None).copied()).is_some_and(|phase| phase.alert().is_some());
        let since = match (own, claims.values().find_map(Phase::alert)) {
            // Of what there is an alert there is no second one, and it goes on for as long as anybody finds it who was over the threshold once.
            (_, Some(id)) if is_over || has_part => {
                claims.insert(*by, Phase::Raised(id, None));
                return self.take_part(reading, id, has_part, changes);
            }
            (Some(Phase::Rising(_)), _) if !is_over => {
                claims.remove(by);
                return;
            }
            // A clock that was set back counts from there.
            (Some(Phase::Rising(since)), None) => since.min(now),
            (None, None) if is_over => now,
            _ => return,
        };
        claims.insert(*by, Phase::Rising(since));
        let long_enough = now.duration_since(since) >= settings.raise_after;
        if long_enough && self.may_raise(reading, changes) {
            changes.add(reading);
        }
    }

    /// A session finds what there is an alert of; `has_part` where it has had one before.
    fn take_part(&mut self, reading: &Reading, id: AlertId, has_part: bool, changes: &mut Changes) {
        let Some(person) = reading.news_of() else { return };
        let may_tell = has_part || self.may_raise(reading, changes);
        if may_tell && self.people.entry(reading.key()).or_default().insert(person) && !has_part {
            changes.found.push((reading.clone(), id));
        }
    }

    /// Ends what nobody finds any more. Whoever has been back for long enough before the others has nothing to do with it from then on.
    fn end(
        &mut self,
        is_unknown: impl Fn(&Key) -> bool,
        now: Timestamp,
        settings: &BTreeMap<AlertRule, Settings>,
        changes: &mut Changes,
    ) {
        for (key, claims) in self.known.iter_mut().filter(|(key, _)| !is_unknown(key)) {
            let Some(id) = claims.values().find_map(Phase::alert) else { continue };
            // A rule that is off now has nothing to say of what it said before.
            let wait = settings.get(&key.0).map_or(SignedDuration::ZERO, |settings| settings.clear_after);
            if claims.values().any(|phase| phase.alert().is_some() && !phase.is_back_for(wait, now)) {
                claims.retain(|_, phase| !phase.is_back_for(wait, now));
            } else {
                changes.end.push((key.clone(), id));
            }
        }
    }

    /// Whether there may be one more about its session, besides those that are about to be raised.
    fn may_raise(&self, reading: &Reading, changes: &Changes) -> bool {
        let Some((session, _)) = reading.session else { return true };
        let raised = self.of_sessions.get(&session).copied().unwrap_or_default();
        raised.saturating_add(changes.of_sessions.get(&session).copied().unwrap_or_default()) < MOST_OF_SESSION
    }

    fn back(&mut self, (key, by): &(Key, By), now: Timestamp) {
        let Some(claims) = self.known.get_mut(key) else { return };
        match claims.get_mut(by) {
            Some(Phase::Rising(_)) => {
                claims.remove(by);
            }
            Some(Phase::Raised(_, back_since)) => *back_since = Some(back_since.map_or(now, |since| since.min(now))),
            Some(Phase::Ended(_)) | None => {}
        }
    }

    /// An alert was raised.
    pub(crate) fn was_raised(&mut self, reading: &Reading, id: AlertId) {
        self.was_told(reading);
        self.known.entry(reading.key()).or_default().insert(reading.by(), Phase::Raised(id, None));
        if let Some(person) = reading.news_of() {
            self.people.entry(reading.key()).or_default().insert(person);
        }
    }

    /// Somebody was told of it: of what a session says that is done so often and no more.
    pub(crate) fn was_told(&mut self, reading: &Reading) {
        if let Some((session, _)) = reading.session {
            *self.of_sessions.entry(session).or_default() += 1;
        }
    }

    /// That it was found by another could not be written: it is asked for again.
    pub(crate) fn was_not_told(&mut self, reading: &Reading) {
        if let Some(claims) = self.known.get_mut(&reading.key()) {
            claims.remove(&reading.by());
        }
        if let (Some(people), Some(person)) = (self.people.get_mut(&reading.key()), reading.news_of()) {
            people.remove(&person);
        }
    }

    /// An alert was ended.
    pub(crate) fn was_ended(&mut self, key: &Key, now: Timestamp) {
        let Some(claims) = self.known.get_mut(key) else { return };
        for phase in claims.values_mut().filter(|phase| phase.alert().is_some()) {
            *phase = Phase::Ended(now);
        }
    }

    /// Forgets how much was said of sessions that are over.
    pub(crate) fn keep_sessions(&mut self, live: &HashSet<SessionId>) {
        self.of_sessions.retain(|session, _| live.contains(session));
    }
}

#[cfg(test)]
mod tests;
