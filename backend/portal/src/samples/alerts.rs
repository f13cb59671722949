//! Alerts: one's own, an admin's with everything that can be said, a form that was wrong, and none at all.

use eirene_core::account::Role;
use eirene_core::alert::{Alert, AlertRule, AlertSeverity, KnownAlert, Silence, SilencedJob};
use eirene_core::{AlertId, JobKind, SessionId, SilenceId, UserId};
use eirene_services::alerts::{Listed, text};
use eirene_services::error::FieldError;
use eirene_words::{say, words};
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::views::FormError;
use crate::views::alerts::{AlertRow, AlertsFragment, AlertsPage, SilenceForm, SilenceRow};
use crate::views::layout::Place;

impl Samples {
    /// An alert about a node of a session, or about a node.
    pub(super) fn alert(&self, rule: AlertRule, severity: AlertSeverity, details: &[(&str, &str)]) -> Alert {
        Alert {
            id: AlertId::generate(),
            rule,
            severity,
            subject: "n1".into(),
            session: rule.is_of_sessions().then(SessionId::generate),
            owner: None,
            value: 0.97,
            details: details.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            started_at: self.now - SignedDuration::from_mins(12),
            ended_at: None,
            acknowledged: None,
        }
    }

    fn listed(&self) -> Result<Vec<Listed>> {
        use AlertRule as R;
        use AlertSeverity::{Critical, Info, Warning};
        let mut all = vec![
            self.alert(R::MemoryNearlyFull, Warning, &[("node", "n1")]),
            self.alert(R::GpusIdle, Info, &[]),
            self.alert(R::NodeDown, Critical, &[("node", "n1"), ("reason", HOSTILE)]),
            self.alert(R::StorageBroken, Critical, &[("reason", &"does not answer ".repeat(12))]),
            self.alert(R::GpuLost, Critical, &[("node", "n1"), ("gpu", "3")]),
        ];
        all[1].value = 42.0;
        all[2].acknowledged = Some(("admin".parse()?, self.now));
        all[4].ended_at = Some(self.now);
        let jobs = [
            Some((HOSTILE.to_owned(), JobKind::Run, "ada".parse()?)),
            Some(("Thesis, chapter 3".to_owned(), JobKind::Session, "a-very-long-user-name-on-purpose".parse()?)),
        ];
        let silenced = |alert: &Alert| alert.rule == R::StorageBroken;
        let listed = |(at, alert): (usize, Alert)| Listed {
            text: text(&alert),
            silenced: silenced(&alert),
            known: KnownAlert { session: alert.session.and(jobs[at % 2].clone()), alert, is_told: false },
        };
        Ok(all.into_iter().enumerate().map(listed).collect())
    }

    fn silence(&self, rule: Option<AlertRule>, subject: Option<&str>) -> Result<Silence> {
        Ok(Silence {
            id: SilenceId::generate(),
            rule,
            subject: subject.map(Into::into),
            owner: None,
            job: None,
            until: self.now + SignedDuration::from_hours(4),
            reason: HOSTILE.into(),
            by: "admin".parse()?,
            created_at: self.now,
        })
    }

    /// What a person has silenced for themselves: of one session, and of all.
    fn own_silences(&self) -> Result<[Silence; 2]> {
        let job = SilencedJob { id: SessionId::generate(), name: HOSTILE.to_owned(), kind: JobKind::Session };
        let one = Silence {
            owner: Some(UserId::generate()),
            job: Some(job),
            by: "ada".parse()?,
            ..self.silence(Some(AlertRule::GpusIdle), None)?
        };
        let all = Silence { id: SilenceId::generate(), job: None, reason: String::new(), ..one.clone() };
        Ok([one, all])
    }

    /// The pages of alerts.
    pub(super) fn alerts(&mut self) -> Result<()> {
        let listed = self.listed()?;
        let rows = |admin: bool| -> Vec<AlertRow> {
            listed.iter().map(|listed| AlertRow::new(words(), listed, admin)).collect()
        };
        let page = |layout, alerts, none: &str| AlertsPage {
            layout,
            lede: words().get("alert_list.lede"),
            csrf: "sample-csrf".into(),
            alerts,
            nothing: words().get(none),
            fragment_href: "/fragments/alerts".into(),
            older_href: String::new(),
            newest_href: String::new(),
            other_href: "/alerts?show=all".into(),
            other: words().get("alert_list.show_all"),
            silences: Vec::new(),
            form: SilenceForm::own(words(), &[], ("", ""), "4", "", &[]),
            errors: Vec::new(),
        };
        let title = words().get("alert_list.title");
        let mine = self.layout(Place::Alerts, &title, Role::Researcher)?;
        let own = self.own_silences()?;
        let jobs = [(SessionId::generate().to_string(), HOSTILE.to_owned())];
        let silencing = AlertsPage {
            silences: own.iter().map(|silence| SilenceRow::new(words(), silence, false)).collect(),
            form: SilenceForm::own(words(), &jobs, ("gpus_idle", jobs[0].0.as_str()), "24", "", &[]),
            ..page(mine.clone(), rows(false), "alert_list.none")
        };
        self.add("alerts", &silencing)?;
        self.add("alerts-none", &page(mine, Vec::new(), "alert_list.none"))?;
        let errors = [FieldError::new("reason", say("wrong.plain"))];
        let errors: Vec<FormError> = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
        let silences = [
            self.silence(Some(AlertRule::NodeDown), Some("n1"))?,
            self.silence(None, None)?,
            self.silence(None, Some(HOSTILE))?,
        ];
        let silences = silences.iter().chain(&own);
        let admin = AlertsPage {
            lede: words().get("alert_list.lede_all"),
            older_href: "/admin/alerts?cursor=1".into(),
            newest_href: "/admin/alerts".into(),
            silences: silences.map(|silence| SilenceRow::new(words(), silence, true)).collect(),
            form: SilenceForm::new(words(), "node_down", HOSTILE, "4", "", &errors),
            errors,
            ..page(self.layout(Place::AllAlerts, &title, Role::Admin)?, rows(true), "alert_list.none")
        };
        self.add("admin-alerts", &admin)?;
        let fragment =
            AlertsFragment { csrf: "sample-csrf".into(), alerts: rows(false), nothing: words().get("alert_list.none") };
        self.add("fragment-alerts", &fragment)?;
        Ok(())
    }
}
