//! What the webhook is told and when: what is due goes out one at a time, every end after its beginning. One that takes nothing is asked ever more
//! rarely, and what is over before it takes anything is dropped and counted. How a message looks and travels is the [webhook](super::webhook)'s.

use std::sync::{MutexGuard, PoisonError};

use eirene_core::alert::{Alert, KnownAlert, Silence};
use jiff::{SignedDuration, Timestamp};

use super::Alerts;
use super::webhook::{Sent, Webhook};
use crate::health::problem::Trouble;

/// A webhook that was away is told of what goes on, of what is over and began within this time, and of the end of whatever it was told of.
const TOLD_WITHIN: SignedDuration = SignedDuration::from_hours(24);
/// A webhook that takes nothing is asked again after this time, and then after twice as long; so is, always, whether an alert is still silenced.
const AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// How often that time is doubled at the most: what is raised when the webhook is well again waits for no more than two minutes.
const MOST_DOUBLED: u32 = 2;
/// What is dropped, as it was over and told to nobody in time, is counted where that time has run out within this one, or it has ended within it: it is
/// looked at every few seconds, and what happened before there was a webhook is nothing that one has missed.
const DROPPED_WITHIN: SignedDuration = SignedDuration::from_hours(1);
/// Alerts that are sent in a run.
const MOST_TOLD: u32 = 50;
/// Alerts that are dropped in a run.
const MOST_DROPPED: u32 = 500;

/// What became of a delivery that need not be tried again.
enum Delivered {
    Taken,
    Refused,
}

/// How sending to the webhook goes.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// What was wrong the last time, and what it said.
    trouble: Option<(Trouble, String)>,
    /// How often in a row it has taken nothing.
    failures: u32,
    /// It is not asked again before then.
    again: Option<Timestamp>,
}

impl Sending {
    /// Why it is not asked now, where it is to be left alone for a while.
    fn waits(&self, now: Timestamp) -> Option<&str> {
        let left = self.again?.duration_since(now);
        // A clock that was set back makes nobody wait for longer.
        let waits = left.is_positive() && left <= AGAIN.saturating_mul(1 << MOST_DOUBLED);
        self.trouble.as_ref().filter(|_| waits).map(|(_, why)| why.as_str())
    }

    /// Whether it was left alone for a while as it took nothing at all.
    fn waited(&self) -> bool {
        matches!(self.trouble, Some((Trouble::WebhookAway | Trouble::WebhookRefuses, _)))
    }

    /// It has taken nothing; says when it is asked again.
    fn put_off(&mut self, now: Timestamp, trouble: Trouble, why: String) -> Timestamp {
        let wait = AGAIN.saturating_mul(1 << self.failures.min(MOST_DOUBLED));
        let again = now.saturating_add(wait).unwrap_or(now);
        *self = Self { trouble: Some((trouble, why)), failures: self.failures.saturating_add(1), again: Some(again) };
        again
    }
}

impl Alerts {
    /// How sending goes, for the health page: what was wrong with the last one, and what the webhook said of it. None where there is no webhook.
    pub fn sending(&self) -> Option<Result<(), (Trouble, String)>> {
        self.sends().map(|sending| sending.trouble.clone().map_or(Ok(()), Err))
    }

    fn sends(&self) -> Option<MutexGuard<'_, Sending>> {
        self.inner.sending.as_ref().map(|sending| sending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How sending goes now.
    fn now_sends(&self, sending: Sending) {
        if let Some(mut before) = self.sends() {
            *before = sending;
        }
    }

    /// Sends what is due to `webhook`. Who takes nothing is asked once, and again later: until then that is what is wrong.
    ///
    /// # Errors
    /// The database's, and that the webhook takes nothing.
    pub async fn tell_webhook(&self, webhook: &Webhook) -> anyhow::Result<()> {
        let now = self.now();
        let since = now.saturating_sub(TOLD_WITHIN).unwrap_or(now);
        let silences = self.db().silences(None, now).await?;
        self.drop_untold(&silences, now, since).await?;
        if let Some(why) = self.sends().and_then(|sending| sending.waits(now).map(ToOwned::to_owned)) {
            anyhow::bail!("the webhook does not take alerts: {why}");
        }
        let mut was_asked = false;
        for known in self.db().alerts_to_tell(now, since, MOST_TOLD).await? {
            let (id, over) = (known.alert.id, known.alert.ended_at.is_some());
            let is_silenced = silences.iter().any(|silence| silence.covers(&known.alert, now));
            // Who was told that it is raised waits for the end, silence or not.
            if is_silenced && !(over && known.is_told) {
                if over {
                    // Of what is over before its silence nobody needs to hear.
                    self.db().alert_told(id, true).await?;
                } else {
                    // What outlasts its silence is told then, so it is looked at again and again.
                    self.db().alert_not_told(id, now.saturating_add(AGAIN).unwrap_or(now)).await?;
                }
                continue;
            }
            was_asked = true;
            // Nobody hears of an end without a beginning: that goes first, also where it is over by now.
            if !known.is_told {
                let raised = KnownAlert { alert: Alert { ended_at: None, ..known.alert.clone() }, ..known.clone() };
                match self.deliver(webhook, &raised).await? {
                    Delivered::Taken => self.db().alert_told(id, false).await?,
                    Delivered::Refused => {
                        self.db().alert_refused(id).await?;
                        continue;
                    }
                }
            }
            if over {
                self.deliver(webhook, &known).await?;
                self.db().alert_told(id, true).await?;
            }
        }
        // Of one that was away nobody knows how it is now: there is nothing more for it, and what is said of it would stay for ever.
        if !was_asked && self.sends().is_some_and(|sending| sending.waited()) {
            self.now_sends(Sending::default());
        }
        Ok(())
    }

    /// Gives up what is over, was told to nobody and has begun before `since`, and counts it. What was silenced when it ended nobody has missed.
    async fn drop_untold(&self, silences: &[Silence], now: Timestamp, since: Timestamp) -> anyhow::Result<()> {
        let before = |at: Timestamp| at.saturating_sub(DROPPED_WITHIN).unwrap_or(at);
        let mut dropped = 0;
        for known in self.db().untold_alerts(before(since), since, before(now), MOST_DROPPED).await? {
            let id = known.alert.id;
            if silences.iter().any(|silence| silence.covers(&known.alert, now)) {
                self.db().alert_told(id, true).await?;
            } else {
                self.db().alert_dropped(id).await?;
                dropped += 1;
            }
        }
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "The webhook has taken nothing for so long that alerts are over and it is not told of them"
            );
            count_messages("dropped", dropped);
        }
        Ok(())
    }

    /// Sends an alert as it is given. Who takes none is asked again later, and is an error.
    async fn deliver(&self, webhook: &Webhook, known: &KnownAlert) -> anyhow::Result<Delivered> {
        let id = known.alert.id;
        match webhook.send(known).await {
            Sent::Taken => {
                count_messages("taken", 1);
                self.now_sends(Sending::default());
                Ok(Delivered::Taken)
            }
            Sent::Refused(status) => {
                tracing::warn!(alert.id = %id, %status, "The webhook refuses an alert; it is not sent again");
                count_messages("given_up", 1);
                let trouble = Some((Trouble::WebhookRefusedOne, format!("it answered {status}")));
                self.now_sends(Sending { trouble, ..Sending::default() });
                Ok(Delivered::Refused)
            }
            Sent::Later(trouble, why) => {
                let reason = if trouble == Trouble::WebhookRefuses { "refused" } else { "away" };
                metrics::counter!("eirene_alert_webhook_failures_total", "reason" => reason).increment(1);
                let now = self.now();
                let again = self.sends().map(|mut sending| sending.put_off(now, trouble, why.clone()));
                let again = again.map_or_else(|| now.saturating_add(AGAIN), Ok)?;
                self.db().alert_not_told(id, again).await?;
                anyhow::bail!("the webhook does not take alerts: {why}");
            }
        }
    }
}

/// Counts what became of messages for the webhook.
fn count_messages(result: &'static str, many: u64) {
    metrics::counter!("eirene_alert_webhook_messages_total", "result" => result).increment(many);
}
