//! Alerts: one's own for everybody, all for admins, and what nobody, or oneself, is not told of for a time.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::alert::AlertRule;
use eirene_core::{AlertId, Sentence, SessionId};
use eirene_http::extract::{AdminForm, CsrfForm, SignedIn, SignedInAdmin};
use eirene_services::Page;
use eirene_services::alerts::{ListAlerts, Listed, NewOwnSilence, NewSilence, no_job};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_words::say;
use serde::Deserialize;

use super::login::Nothing;
use super::views::FormError;
use super::views::alerts::{AlertRow, AlertsFragment, AlertsPage, SilenceForm, SilenceRow};
use super::views::layout::Place;
use super::{Done, Shown, layout, show, show_as, words};

/// Alerts on one page.
const PAGE: u32 = 50;
/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 30;
/// Hours that the form for a silence begins with.
const FIRST_HOURS: &str = "4";

/// Which part of the list, and what has just been done.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Part {
    cursor: Option<String>,
    /// `all` is what is over as well.
    show: Option<String>,
    /// The alert that a silence is wanted for.
    silence: Option<String>,
    #[serde(flatten)]
    done: Done,
}

impl Part {
    fn past(&self) -> bool {
        self.show.as_deref() == Some("all")
    }
}

/// Whose alerts, and where their page is.
#[derive(Debug, Clone, Copy)]
struct List {
    all: bool,
    path: &'static str,
    fragment: &'static str,
}

const MINE: List = List { all: false, path: "/alerts", fragment: "/fragments/alerts" };
const ALL: List = List { all: true, path: "/admin/alerts", fragment: "/fragments/admin/alerts" };

async fn found(app: &App, me: &SignedIn, list: List, part: &Part) -> Result<Page<Listed>, AppError> {
    // A cursor that is none of ours is the beginning.
    let before = part.cursor.as_deref().and_then(|cursor| cursor.parse::<AlertId>().ok());
    let which = ListAlerts { all: list.all, open_only: !part.past(), before, limit: PAGE };
    app.alerts.list(&me.actor, which).await
}

fn rows(list: List, found: &Page<Listed>) -> Vec<AlertRow> {
    found.items.iter().map(|listed| AlertRow::new(words(), listed, list.all)).collect()
}

/// The sessions and runs that these alerts are about, with their names: those a silence may be of.
fn jobs<'a>(listed: impl Iterator<Item = &'a Listed>) -> Vec<(String, String)> {
    let mut jobs: Vec<(String, String)> = Vec::new();
    for known in listed.map(|listed| &listed.known) {
        let Some((id, (name, ..))) = known.alert.session.zip(known.session.as_ref()) else { continue };
        let id = id.to_string();
        if jobs.iter().all(|(known, _)| *known != id) {
            jobs.push((id, name.clone()));
        }
    }
    jobs
}

fn none(part: &Part) -> String {
    words().get(if part.past() { "alert_list.none_ever" } else { "alert_list.none" })
}

/// The page but for its form, and what it lists.
async fn view(app: &App, me: &SignedIn, list: List, part: &Part) -> Result<(AlertsPage, Vec<Listed>), AppError> {
    let found = found(app, me, list, part).await?;
    let alerts = rows(list, &found);
    let (place, lede) =
        if list.all { (Place::AllAlerts, "alert_list.lede_all") } else { (Place::Alerts, "alert_list.lede") };
    let silences =
        if list.all { app.alerts.silences(&me.actor).await? } else { app.alerts.own_silences(&me.actor).await? };
    let show = if part.past() { "?show=all" } else { "" };
    let with_cursor =
        |next: String| format!("{}{}cursor={next}", list.path, if part.past() { "?show=all&" } else { "?" });
    let (other_href, other) = if part.past() {
        (list.path.to_owned(), "alert_list.show_open")
    } else {
        (format!("{}?show=all", list.path), "alert_list.show_all")
    };
    // A reload would take what is being typed, and has no page after a form that was wrong.
    let refresh_s = if part.silence.is_some() { 0 } else { REFRESH_S };
    let events = if list.all { "/live/events?all=true" } else { "/live/events" };
    let page = AlertsPage {
        layout: layout(me, place, &words().get("alert_list.title"))
            .live(events, refresh_s)
            .with_notice(part.done.notice()),
        lede: words().get(lede),
        csrf: me.csrf.clone(),
        alerts,
        nothing: none(part),
        fragment_href: format!("{}{show}", list.fragment),
        older_href: found.next.map(with_cursor).unwrap_or_default(),
        newest_href: if part.cursor.is_some() { format!("{}{show}", list.path) } else { String::new() },
        other_href,
        other: words().get(other),
        silences: silences.iter().map(|silence| SilenceRow::new(words(), silence, list.all)).collect(),
        form: SilenceForm::default(),
        errors: Vec::new(),
    };
    Ok((page, found.items))
}

/// The alert that a silence is wanted for, where there is one that may be seen.
async fn wanted(app: &App, me: &SignedIn, part: &Part) -> Option<Listed> {
    let id = part.silence.as_deref()?.parse::<AlertId>().ok()?;
    app.alerts.get(&me.actor, id).await.ok()
}

/// `GET /alerts`
pub(crate) async fn page(State(app): State<App>, me: SignedIn, Query(part): Query<Part>) -> Shown {
    let (mut page, listed) = view(&app, &me, MINE, &part).await?;
    // An admin may see others', and silences them where all are.
    let about = wanted(&app, &me, &part).await.filter(|listed| listed.known.alert.owner == Some(me.actor.user.id));
    let alert = about.as_ref().map(|listed| &listed.known.alert);
    let rule = alert.map_or("", |alert| alert.rule.as_str());
    let job = alert.and_then(|alert| alert.session).map(|id| id.to_string()).unwrap_or_default();
    page.form =
        SilenceForm::own(words(), &jobs(listed.iter().chain(&about)), (rule, job.as_str()), FIRST_HOURS, "", &[]);
    Ok(show(&page)?.into_response())
}

/// `GET /admin/alerts`
pub(crate) async fn all(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let (mut page, _) = view(&app, &me, ALL, &part).await?;
    let about = wanted(&app, &me, &part).await.map(|listed| listed.known.alert);
    let (rule, subject) = about.map(|alert| (alert.rule.as_str(), alert.subject)).unwrap_or_default();
    page.form = SilenceForm::new(words(), rule, &subject, FIRST_HOURS, "", &[]);
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/alerts`
pub(crate) async fn fragment(State(app): State<App>, me: SignedIn, Query(part): Query<Part>) -> Shown {
    let alerts = rows(MINE, &found(&app, &me, MINE, &part).await?);
    Ok(show(&AlertsFragment { csrf: me.csrf.clone(), alerts, nothing: none(&part) })?.into_response())
}

/// `GET /fragments/admin/alerts`
pub(crate) async fn all_fragment(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Query(part): Query<Part>,
) -> Shown {
    let alerts = rows(ALL, &found(&app, &me, ALL, &part).await?);
    Ok(show(&AlertsFragment { csrf: me.csrf.clone(), alerts, nothing: none(&part) })?.into_response())
}

/// `POST /alerts/{id}/acknowledge`: back to where whoever knows now came from.
pub(crate) async fn acknowledge(
    State(app): State<App>,
    Path(id): Path<String>,
    CsrfForm(me, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let id = id.parse().map_err(|_| AppError::NotFound)?;
    let found = app.alerts.acknowledge(&me.actor, id).await?;
    let is_theirs = found.known.alert.owner == Some(me.actor.user.id);
    let path = if is_theirs { MINE.path } else { ALL.path };
    Ok(Redirect::to(&format!("{path}?done=acknowledged")).into_response())
}

/// The form for a silence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedSilence {
    #[serde(default)]
    rule: String,
    #[serde(default)]
    subject: String,
    hours: String,
    #[serde(default)]
    reason: String,
}

fn wrong(field: &str, text: Sentence) -> AppError {
    AppError::Invalid(vec![FieldError::new(field, text)])
}

fn minutes(hours: &str) -> Result<u32, AppError> {
    let hours: u32 = hours.parse().map_err(|_| wrong("hours", say("wrong.plain")))?;
    Ok(hours.saturating_mul(60))
}

impl WantedSilence {
    fn wish(&self) -> Result<NewSilence, AppError> {
        let rule = (!self.rule.is_empty()).then(|| self.rule.parse()).transpose();
        let minutes = minutes(&self.hours)?;
        let subject = Some(self.subject.trim()).filter(|subject| !subject.is_empty()).map(str::to_owned);
        Ok(NewSilence {
            rule: rule.map_err(|error| AppError::Invalid(vec![FieldError::no_name("rule", error)]))?,
            subject,
            minutes,
            reason: self.reason.trim().to_owned(),
        })
    }
}

/// `POST /admin/alerts/silences`
pub(crate) async fn silence(State(app): State<App>, AdminForm(me, form): AdminForm<WantedSilence>) -> Shown {
    let made = match form.wish() {
        Ok(wish) => app.alerts.silence(&me.actor, wish).await,
        Err(error) => Err(error),
    };
    let errors = match made {
        Ok(_) => return Ok(Redirect::to(&format!("{}?done=silenced", ALL.path)).into_response()),
        Err(AppError::Invalid(errors)) => errors,
        Err(error) => return Err(error.into()),
    };
    let errors: Vec<FormError> = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
    let (mut page, _) = view(&app, &me, ALL, &Part::default()).await?;
    page.layout.refresh_s = 0;
    let WantedSilence { rule, subject, hours, reason } = &form;
    page.form = SilenceForm::new(words(), rule, subject, hours, reason, &errors);
    page.errors = errors;
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}

/// `POST /admin/alerts/silences/{id}/end`
pub(crate) async fn end_silence(
    State(app): State<App>,
    Path(id): Path<String>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    let id = id.parse().map_err(|_| AppError::NotFound)?;
    app.alerts.unsilence(&me.actor, id).await?;
    Ok(Redirect::to(&format!("{}?done=silence_ended", ALL.path)).into_response())
}

/// The form for a silence of one's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedOwnSilence {
    rule: String,
    #[serde(default)]
    job: String,
    hours: String,
    #[serde(default)]
    reason: String,
}

impl WantedOwnSilence {
    fn wish(&self) -> Result<NewOwnSilence, AppError> {
        let rule = self.rule.parse::<AlertRule>();
        let rule = rule.map_err(|error| AppError::Invalid(vec![FieldError::no_name("rule", error)]))?;
        // What is no id is the id of nothing: it must not become a silence of all.
        let job = (!self.job.is_empty()).then(|| self.job.parse::<SessionId>()).transpose();
        let job = job.map_err(|_| AppError::Invalid(vec![no_job()]))?;
        let reason = Some(self.reason.trim()).filter(|reason| !reason.is_empty()).map(str::to_owned);
        Ok(NewOwnSilence { rule, job, minutes: minutes(&self.hours)?, reason })
    }
}

/// `POST /alerts/silences`
pub(crate) async fn silence_own(State(app): State<App>, CsrfForm(me, form): CsrfForm<WantedOwnSilence>) -> Shown {
    let made = match form.wish() {
        Ok(wish) => app.alerts.silence_own(&me.actor, wish).await,
        Err(error) => Err(error),
    };
    let errors = match made {
        Ok(_) => return Ok(Redirect::to(&format!("{}?done=own_silenced", MINE.path)).into_response()),
        Err(AppError::Invalid(errors)) => errors,
        Err(error) => return Err(error.into()),
    };
    let errors: Vec<FormError> = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
    let (mut page, listed) = view(&app, &me, MINE, &Part::default()).await?;
    page.layout.refresh_s = 0;
    let WantedOwnSilence { rule, job, hours, reason } = &form;
    let chosen = (rule.as_str(), job.as_str());
    page.form = SilenceForm::own(words(), &jobs(listed.iter()), chosen, hours, reason, &errors);
    page.errors = errors;
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}

/// `POST /alerts/silences/{id}/end`
pub(crate) async fn end_own_silence(
    State(app): State<App>,
    Path(id): Path<String>,
    CsrfForm(me, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let id = id.parse().map_err(|_| AppError::NotFound)?;
    app.alerts.unsilence_own(&me.actor, id).await?;
    Ok(Redirect::to(&format!("{}?done=own_silence_ended", MINE.path)).into_response())
}
