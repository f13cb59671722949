//! Everybody's spaces: the list, making one, changing it, taking it away and bringing it back, and what its policy would do.

use std::str::FromStr;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::space::HintState;
use eirene_core::storage::{Bytes, Files, Limit};
use eirene_core::{NameError, SpaceKind, SpaceName};
use eirene_http::extract::{AdminForm, Id, SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_services::old_files::{OldFilesChange, OldFilesDays};
use eirene_services::spaces::SpaceSeen;
use eirene_services::spaces::making::{ChangeSpace, End, NewLimits, NewSpace, Title};
use eirene_words::say;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::encode;
use crate::login::Nothing;
use crate::views::layout::Place;
use crate::views::managing::{
    ManagedPage, ManagingPage, PolicyPage, PolicyShown, RowView, ShownSpace, SpaceForm, href,
};
use crate::views::old_files::OldFilesForm;
use crate::views::simple::ConfirmPage;
use crate::views::space::date;
use crate::views::{Field, FormError};
use crate::{Done, Shown, layout, now, show, show_as, words};

/// Spaces on one page.
const PAGE: u32 = 50;
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Which part of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    cursor: Option<String>,
    #[serde(flatten)]
    done: Done,
}

/// The form that makes a space. What is left empty is not said.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    root: String,
    name: String,
    title: String,
    owner: String,
    group: String,
    hint: String,
    expires_at: String,
    limit_gib: String,
    limit_files: String,
}

/// The form that changes one, and what it was shown with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    title: String,
    hint: String,
    expires_at: String,
    limit_gib: String,
    limit_files: String,
    shown_title: String,
    shown_hint: String,
    shown_expires_at: String,
    shown_limit_gib: String,
    shown_limit_files: String,
}

/// The form that says what becomes of old files in one space.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldFilesRule {
    /// There where it is ticked.
    exempt: Option<String>,
    days: String,
}

/// Reads a form's fields and keeps all that is wrong with them, not the first alone.
#[derive(Default)]
struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    /// What is there; none for an empty field, or one that is wrong.
    fn some<T: FromStr<Err = NameError>>(&mut self, field: &'static str, text: &str) -> Option<T> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        text.parse().map_err(|error| self.errors.push(FieldError::no_name(field, error))).ok()
    }

    /// The same of a field that may not be empty.
    fn one<T: FromStr<Err = NameError>>(&mut self, field: &'static str, text: &str) -> Option<T> {
        if text.trim().is_empty() {
            self.errors.push(FieldError::new(field, say("wrong.missing_field")));
        }
        self.some(field, text)
    }

    /// The end of a day by UTC, which pages tell days by; none for an empty field, or one that is wrong.
    fn day(&mut self, text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let day = text.parse::<Date>().and_then(Date::tomorrow).and_then(|next| next.to_zoned(TimeZone::UTC));
        if day.is_err() {
            self.errors.push(FieldError::new("expires_at", say("wrong.day")));
        }
        day.ok().map(|day| day.timestamp())
    }

    /// A limit in GiB; none for an empty field, or one that is wrong.
    fn gib(&mut self, text: &str) -> Option<Limit<Bytes>> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let bytes = text.parse::<u64>().ok().and_then(|gib| gib.checked_mul(1 << 30));
        if bytes.is_none() {
            self.errors.push(FieldError::new("limit_bytes", say("wrong.whole_gib")));
        }
        bytes.map(|bytes| Limit::At(Bytes(bytes)))
    }

    /// A limit of files; none for an empty field, or one that is wrong.
    fn files(&mut self, text: &str) -> Option<Limit<Files>> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let files = text.parse::<u64>().ok();
        if files.is_none() {
            self.errors.push(FieldError::new("limit_files", say("wrong.whole_files")));
        }
        files.map(|files| Limit::At(Files(files)))
    }

    /// What was read, unless something was wrong with it.
    fn done<T>(self, read: Option<T>) -> Result<T, AppError> {
        match read {
            Some(read) if self.errors.is_empty() => Ok(read),
            _ => Err(AppError::Invalid(self.errors)),
        }
    }
}

/// What a form shows of an error; gives back what is no fault of the form.
fn of_form(error: AppError, conflict_at: &'static str) -> Result<Vec<FormError>, AppError> {
    let errors = match error {
        AppError::Invalid(errors) => errors,
        AppError::Conflict { code: "conflict", text } => vec![FieldError::new(conflict_at, text)],
        error => return Err(error),
    };
    Ok(errors.iter().map(|error| FormError::from_service(words(), error)).collect())
}

async fn list(app: &App, me: &SignedIn, cursor: Option<String>, form: SpaceForm) -> Result<ManagingPage, AppError> {
    let page = app.spaces.all(&me.actor, cursor, PAGE).await?;
    Ok(ManagingPage {
        layout: layout(me, Place::Storage, &words().get("spaces_admin.title")),
        spaces: page.items.iter().map(|seen| RowView::new(words(), seen)).collect(),
        next_href: page
            .next
            .map(|cursor| format!("/admin/storage/spaces?cursor={}", encode(&cursor)))
            .unwrap_or_default(),
        form,
    })
}

/// `GET /admin/storage/spaces`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let form = SpaceForm::empty(words(), app.making.roots());
    let mut page = list(&app, &me, part.cursor, form).await?;
    page.layout = page.layout.with_notice(part.done.notice());
    Ok(show(&page)?.into_response())
}

fn read_wish(wish: &Wish) -> Result<NewSpace, AppError> {
    let mut reader = Reader::default();
    let root = reader.one("root", &wish.root);
    let (name, title) = (reader.some("name", &wish.name), reader.some("title", &wish.title));
    let (owner, group) = (reader.some("owner", &wish.owner), reader.some("group", &wish.group));
    let (hint, expires_at) = (reader.some("hint", &wish.hint), reader.day(&wish.expires_at));
    let limits = NewLimits { bytes: reader.gib(&wish.limit_gib), files: reader.files(&wish.limit_files) };
    reader.done(root.map(|root| NewSpace { root, name, title, owner, group, hint, expires_at, limits }))
}

/// `POST /admin/storage/spaces`: has a space made.
pub(crate) async fn make(State(app): State<App>, AdminForm(me, wish): AdminForm<Wish>) -> Shown {
    let made = async { app.making.create(&me.actor, read_wish(&wish)?).await };
    let errors = match made.await {
        Ok(space) => {
            let to = format!("/admin/storage/spaces/{}?done=space_wished", space.name);
            return Ok(Redirect::to(&to).into_response());
        }
        Err(error) => of_form(error, "name")?,
    };
    let mut form = SpaceForm::empty(words(), app.making.roots());
    for choice in &mut form.roots {
        choice.selected = choice.value == wish.root;
    }
    for choice in &mut form.hints {
        choice.selected = choice.value == wish.hint;
    }
    form.name = Field::new(wish.name);
    form.title = Field::new(wish.title);
    form.owner = Field::new(wish.owner);
    form.group = Field::new(wish.group);
    form.expires_at = Field::new(wish.expires_at);
    form.limit_gib = Field::new(wish.limit_gib);
    form.limit_files = Field::new(wish.limit_files);
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &list(&app, &me, None, form.refused(errors)).await?)
}

/// What taking a space away means, with the day until which it can be undone at least.
fn retire_text(app: &App, seen: &SpaceSeen) -> String {
    let root = app.making.roots().iter().find(|root| root.name == seen.space.root);
    let until = root.and_then(|root| now(app).checked_add(DAY * i32::try_from(root.grace_days).ok()?).ok());
    match until {
        Some(until) => words().fill("spaces_admin.retire_text", &[("until", &date(until))]),
        // Its root is not configured any more: nothing removes it.
        None => words().get("spaces_admin.retire_text_no_root"),
    }
}

fn managed(app: &App, me: &SignedIn, seen: &SpaceSeen, form: SpaceForm) -> ManagedPage {
    let layout = layout(me, Place::Storage, seen.space.title.as_str());
    ManagedPage::new(words(), layout, seen, me.actor.user.id, retire_text(app, seen), form)
}

/// `GET /admin/storage/spaces/{space}`
pub(crate) async fn one(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Id(space): Id<SpaceName>,
    Query(done): Query<Done>,
) -> Shown {
    let seen = app.spaces.get(&me.actor, &space).await?;
    let mut page = managed(&app, &me, &seen, SpaceForm::of(words(), &seen));
    page.layout = page.layout.with_notice(done.notice());
    Ok(show(&page)?.into_response())
}

/// What was not touched stays as it is now, which need not be what was shown: a program may have set something else since. Nor does a form tell all
/// that there is: an end may have an hour, and a limit need not be whole GiB.
fn read_change(change: &Change, seen: &SpaceSeen) -> Result<ChangeSpace, AppError> {
    let touched = |typed: &str, shown: &str| typed.trim() != shown.trim();
    let mut reader = Reader::default();
    let (title, hint) = (reader.some("title", &change.title), reader.one("hint", &change.hint));
    let title = touched(&change.title, &change.shown_title).then(|| title.map_or(Title::Usual, Title::Is));
    let end = reader.day(&change.expires_at);
    let expires_at = touched(&change.expires_at, &change.shown_expires_at).then(|| end.map_or(End::Never, End::At));
    // One that was not applied is tried again at once when it is sent once more.
    let is_tried_again = seen.space.hint_state == HintState::NotApplied;
    let other_hint = touched(&change.hint, &change.shown_hint);
    let hint = hint.filter(|hint| if *hint == seen.space.hint { is_tried_again } else { other_hint });
    let (bytes, files) = (reader.gib(&change.limit_gib), reader.files(&change.limit_files));
    let other_bytes = touched(&change.limit_gib, &change.shown_limit_gib);
    let other_files = touched(&change.limit_files, &change.shown_limit_files);
    let limits = NewLimits {
        bytes: other_bytes.then(|| bytes.unwrap_or(Limit::Unlimited)),
        files: other_files.then(|| files.unwrap_or(Limit::Unlimited)),
    };
    reader.done(Some(ChangeSpace { title, hint, expires_at, limits }))
}

/// `POST /admin/storage/spaces/{space}`: changes its title, what it is filled with, its end, or its limits.
pub(crate) async fn change(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    AdminForm(me, change): AdminForm<Change>,
) -> Shown {
    let seen = app.spaces.get(&me.actor, &space).await?;
    let changed = async { app.making.change(&me.actor, &seen.space.name, &read_change(&change, &seen)?).await };
    let errors = match changed.await {
        Ok(_) => return Ok(Redirect::to(&format!("{}?done=space_changed", href(&seen))).into_response()),
        Err(error) => of_form(error, "")?,
    };
    let mut form = SpaceForm::of(words(), &seen);
    for choice in &mut form.hints {
        choice.selected = choice.value == change.hint;
    }
    form.title = Field::new(change.title);
    form.expires_at = Field::new(change.expires_at);
    form.limit_gib = Field::new(change.limit_gib);
    form.limit_files = Field::new(change.limit_files);
    // The fields that were not touched hold what was shown at first, and still do.
    form.shown = ShownSpace {
        title: change.shown_title,
        hint: change.shown_hint,
        expires_at: change.shown_expires_at,
        limit_gib: change.shown_limit_gib,
        limit_files: change.shown_limit_files,
    };
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &managed(&app, &me, &seen, form.refused(errors)))
}

/// `GET /admin/storage/spaces/{space}/retire`: asks once more.
pub(crate) async fn retire_page(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Id(space): Id<SpaceName>,
) -> Shown {
    let seen = app.spaces.get(&me.actor, &space).await?;
    if seen.space.kind == SpaceKind::Home {
        return Err(AppError::Conflict { code: "is_a_home", text: say("problem.is_a_home") }.into());
    }
    let title = words().fill("spaces_admin.retire_title", &[("name", seen.space.name.as_str())]);
    let page = ConfirmPage {
        layout: layout(&me, Place::Storage, &title),
        title,
        text: retire_text(&app, &seen),
        action: format!("{}/retire", href(&seen)),
        yes: words().get("spaces_admin.retire"),
        back_href: href(&seen),
    };
    Ok(show(&page)?.into_response())
}

/// `POST /admin/storage/spaces/{space}/retire`
pub(crate) async fn retire(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    app.making.retire(&me.actor, &space).await?;
    Ok(Redirect::to(&format!("/admin/storage/spaces/{space}?done=space_retiring")).into_response())
}

/// `POST /admin/storage/spaces/{space}/restore`
pub(crate) async fn restore(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    app.making.restore(&me.actor, &space).await?;
    Ok(Redirect::to(&format!("/admin/storage/spaces/{space}?done=space_restoring")).into_response())
}

async fn policy_page(app: &App, me: &SignedIn, space: &SpaceName) -> Result<PolicyPage, AppError> {
    let seen = app.spaces.get(&me.actor, space).await?;
    let report = app.policing.report(&me.actor, &seen.space.name).await?;
    let old_files = app.old_files.report(&me.actor, &seen.space.name).await?;
    Ok(PolicyPage {
        layout: layout(me, Place::Storage, &words().get("spaces_admin.policy")),
        name: seen.space.name.to_string(),
        href: href(&seen),
        policy: PolicyShown::new(words(), &report),
        old_files: OldFilesForm::new(words(), &href(&seen), &old_files),
    })
}

/// `GET /admin/storage/spaces/{space}/policy`: nothing is done.
pub(crate) async fn policy(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Id(space): Id<SpaceName>,
    Query(done): Query<Done>,
) -> Shown {
    let mut page = policy_page(&app, &me, &space).await?;
    page.layout = page.layout.with_notice(done.notice());
    Ok(show(&page)?.into_response())
}

fn read_old_files(rule: &OldFilesRule) -> Result<OldFilesChange, AppError> {
    let text = rule.days.trim();
    let days = if text.is_empty() { Ok(OldFilesDays::OfRoot) } else { text.parse().map(OldFilesDays::Own) };
    let days = days.map_err(|_| AppError::Invalid(vec![FieldError::new("days", say("wrong.whole_days"))]))?;
    Ok(OldFilesChange { exempt: Some(rule.exempt.is_some()), days: Some(days) })
}

/// `POST /admin/storage/spaces/{space}/old-files`: exempts it, or says after how many days a file is old there.
pub(crate) async fn change_old_files(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    AdminForm(me, rule): AdminForm<OldFilesRule>,
) -> Shown {
    let changed = async { app.old_files.change(&me.actor, &space, read_old_files(&rule)?).await };
    let errors = match changed.await {
        Ok(_) => {
            let to = format!("/admin/storage/spaces/{space}/policy?done=old_files_rule");
            return Ok(Redirect::to(&to).into_response());
        }
        Err(error) => of_form(error, "")?,
    };
    let mut page = policy_page(&app, &me, &space).await?;
    page.old_files = page.old_files.refused(rule.exempt.is_some(), rule.days, errors);
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}
