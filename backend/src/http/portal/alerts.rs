//! Alerts: one's own for everybody, all for admins, and what nobody is told of for a time.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::AlertId;
use eirene_words::say;
use serde::Deserialize;

use super::login::Nothing;
use super::views::FormError;
use super::views::alerts::{AlertRow, AlertsFragment, AlertsPage, SilenceForm, SilenceRow};
use super::views::layout::Place;
use super::{Done, Shown, layout, show, show_as, words};
use crate::app::App;
use crate::error::{AppError, FieldError};
use crate::http::extract::{AdminForm, CsrfForm, SignedIn, SignedInAdmin};
use crate::services::alerts::{ListAlerts, NewSilence};

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

async fn rows(app: &App, me: &SignedIn, list: List, part: &Part) -> Result<(Vec<AlertRow>, Option<String>), AppError> {
    // A cursor that is none of ours is the beginning.
    let before = part.cursor.as_deref().and_then(|cursor| cursor.parse::<AlertId>().ok());
    let which = ListAlerts { all: list.all, open_only: !part.past(), before, limit: PAGE };
    let found = app.alerts.list(&me.actor, which).await?;
    Ok((found.items.iter().map(|listed| AlertRow::new(words(), listed, list.all)).collect(), found.next))
}

fn none(part: &Part) -> String {
    words().get(if part.past() { "alert_list.none_ever" } else { "alert_list.none" })
}

async fn view(app: &App, me: &SignedIn, list: List, part: &Part) -> Result<AlertsPage, AppError> {
    let (alerts, next) = rows(app, me, list, part).await?;
    let (place, lede) =
        if list.all { (Place::AllAlerts, "alert_list.lede_all") } else { (Place::Alerts, "alert_list.lede") };
    let silences = if list.all { app.alerts.silences(&me.actor).await? } else { Vec::new() };
    let show = if part.past() { "?show=all" } else { "" };
    let with_cursor =
        |next: String| format!("{}{}cursor={next}", list.path, if part.past() { "?show=all&" } else { "?" });
    let (other_href, other) = if part.past() {
        (list.path.to_owned(), "alert_list.show_open")
    } else {
        (format!("{}?show=all", list.path), "alert_list.show_all")
    };
    let events = if list.all { "/live/events?all=true" } else { "/live/events" };
    Ok(AlertsPage {
        layout: layout(me, place, &words().get("alert_list.title"))
            .live(events, REFRESH_S)
            .with_notice(part.done.notice()),
        lede: words().get(lede),
        csrf: me.csrf.clone(),
        alerts,
        nothing: none(part),
        fragment_href: format!("{}{show}", list.fragment),
        older_href: next.map(with_cursor).unwrap_or_default(),
        newest_href: if part.cursor.is_some() { format!("{}{show}", list.path) } else { String::new() },
        other_href,
        other: words().get(other),
        silences: silences.iter().map(|silence| SilenceRow::new(words(), silence)).collect(),
        form: None,
        errors: Vec::new(),
    })
}

/// `GET /alerts`
pub(crate) async fn page(State(app): State<App>, me: SignedIn, Query(part): Query<Part>) -> Shown {
    Ok(show(&view(&app, &me, MINE, &part).await?)?.into_response())
}

/// `GET /admin/alerts`
pub(crate) async fn all(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let mut page = view(&app, &me, ALL, &part).await?;
    let about = match part.silence.as_deref().and_then(|id| id.parse::<AlertId>().ok()) {
        Some(id) => app.alerts.get(&me.actor, id).await.ok().map(|found| found.known.alert),
        None => None,
    };
    let (rule, subject) = about.map(|alert| (alert.rule.as_str(), alert.subject)).unwrap_or_default();
    page.form = Some(SilenceForm::new(words(), rule, &subject, FIRST_HOURS, "", &[]));
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/alerts`
pub(crate) async fn fragment(State(app): State<App>, me: SignedIn, Query(part): Query<Part>) -> Shown {
    let (alerts, _) = rows(&app, &me, MINE, &part).await?;
    Ok(show(&AlertsFragment { csrf: me.csrf.clone(), alerts, nothing: none(&part) })?.into_response())
}

/// `GET /fragments/admin/alerts`
pub(crate) async fn all_fragment(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Query(part): Query<Part>,
) -> Shown {
    let (alerts, _) = rows(&app, &me, ALL, &part).await?;
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

impl WantedSilence {
    fn wish(&self) -> Result<NewSilence, AppError> {
        let wrong = |field: &str, text| AppError::Invalid(vec![FieldError::new(field, text)]);
        let rule = (!self.rule.is_empty()).then(|| self.rule.parse()).transpose();
        let hours: u32 = self.hours.parse().map_err(|_| wrong("hours", say("wrong.plain")))?;
        let subject = Some(self.subject.trim()).filter(|subject| !subject.is_empty()).map(str::to_owned);
        Ok(NewSilence {
            rule: rule.map_err(|error| AppError::Invalid(vec![FieldError::no_name("rule", error)]))?,
            subject,
            minutes: hours.saturating_mul(60),
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
    let mut page = view(&app, &me, ALL, &Part::default()).await?;
    let WantedSilence { rule, subject, hours, reason } = &form;
    page.form = Some(SilenceForm::new(words(), rule, subject, hours, reason, &errors));
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
