//! Who may do what with one thing, line by line: shown, changed, and asked about once more where a change is seldom meant.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use eirene_api::view::AclLine;
use eirene_core::SpaceName;
use eirene_files_protocol::{AclEntry, EntryKind, Permissions, RelativePath, Rights, Who};
use eirene_http::extract::{CsrfForm, Id, SignedIn};
use eirene_http::problem::HttpError;
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_services::files::lists::{Added, HandedOn, change, dangers};
use eirene_services::files::path::AskedPath;
use eirene_words::say;
use serde::Deserialize;

use super::super::views::FormError;
use super::super::views::files::Ground;
use super::super::views::layout::Place;
use super::super::views::permissions::{OFF, PermissionsPage, Typed};
use super::super::{Shown, layout, show, show_as, words};
use super::{At, Trouble, forms, ground, troubled};

/// Who is to get what.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewList {
    raw: String,
    /// Each line's person or group, in the order of `may`.
    #[serde(default)]
    who: Vec<String>,
    #[serde(default)]
    may: Vec<String>,
    #[serde(default)]
    new_kind: String,
    #[serde(default)]
    new_name: String,
    #[serde(default)]
    new_may: String,
    #[serde(default)]
    handed_on: String,
    recursive: Option<String>,
    sure: Option<String>,
}

/// One thing, and who may do what with it now.
struct Now {
    ground: Ground,
    path: RelativePath,
    is_directory: bool,
    permissions: Permissions,
}

async fn now(app: &App, signed_in: &SignedIn, space: &SpaceName, asked: &AskedPath) -> Result<Now, AppError> {
    let ground = ground(app, signed_in, space).await?;
    asked.parse_inside()?;
    let looked = app.files.look(&signed_in.actor, space, asked).await?;
    let (path, permissions) = app.files.permissions(&signed_in.actor, space, asked).await?;
    Ok(Now { ground, path, is_directory: looked.stated.kind == EntryKind::Directory, permissions })
}

impl Now {
    fn page(self, signed_in: &SignedIn, typed: &Typed) -> PermissionsPage {
        let layout = layout(signed_in, Place::Spaces, "");
        let about = (&self.path, self.is_directory);
        let mut page = PermissionsPage::new(words(), layout, self.ground, about, (&self.permissions, typed));
        page.layout.title.clone_from(&page.name);
        page
    }
}

impl NewList {
    /// What was typed, as far as it can be shown again.
    ///
    /// # Errors
    /// That it is nothing that the form sends.
    fn typed(&self) -> Result<Typed, AppError> {
        let strange = || AppError::Invalid(vec![FieldError::new("who", say("wrong.acl"))]);
        if self.who.len() != self.may.len() {
            return Err(strange());
        }
        let lines = self.who.iter().zip(&self.may).map(|(who, may)| {
            let line = AclLine { who: who.clone(), may: "---".to_owned(), name: None };
            Ok((line.entry().ok_or_else(strange)?.who, may.clone()))
        });
        Ok(Typed {
            lines: lines.collect::<Result<_, AppError>>()?,
            new_is_group: self.new_kind == "group",
            new_name: self.new_name.trim().to_owned(),
            new_may: self.new_may.clone(),
            handed_on: match self.handed_on.as_str() {
                "same" => HandedOn::Same,
                "nothing" => HandedOn::Nothing,
                _ => HandedOn::Keep,
            },
            recursive: self.recursive.is_some(),
        })
    }
}

/// The lines that are to be in effect, with whom the form adds.
async fn lines(app: &App, now: &Permissions, typed: &Typed) -> Result<Vec<AclEntry>, AppError> {
    let strange = || AppError::Invalid(vec![FieldError::new("may", say("wrong.acl"))]);
    let mut lines = Vec::with_capacity(typed.lines.len() + 1);
    for (who, may) in &typed.lines {
        // Only who is named can be taken off.
        if may == OFF && matches!(who, Who::User(_) | Who::Group(_)) {
            continue;
        }
        lines.push(AclEntry { who: *who, may: Rights::try_from(may.clone()).map_err(|_| strange())? });
    }
    if !typed.new_name.is_empty() {
        let may = Rights::try_from(typed.new_may.clone()).map_err(|_| strange())?;
        let name = typed.new_name.as_str();
        let added = if typed.new_is_group { Added::Group(name) } else { Added::Person(name) };
        app.files.add_line(now, &mut lines, added, may).await?;
    }
    Ok(lines)
}

/// `GET /spaces/{space}/files/permissions`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Id(space): Id<SpaceName>,
    Query(at): Query<At>,
) -> Shown {
    let asked = AskedPath::new("path", at.path, at.raw_path);
    match now(&app, &signed_in, &space, &asked).await {
        Ok(now) => {
            let typed = Typed::untouched(&now.permissions, now.is_directory);
            let mut page = now.page(&signed_in, &typed);
            page.layout.notice = at.done.notice();
            Ok(show(&page)?.into_response())
        }
        Err(error) => troubled(&signed_in, error, Trouble::reading(&space, &asked)),
    }
}

/// `POST /spaces/{space}/files/permissions/list`
pub(crate) async fn set(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<NewList>,
) -> Shown {
    let asked = forms::asked(&form.raw);
    let bytes = asked.parse().map(|path| path.as_bytes().to_vec()).unwrap_or_default();
    let back = Ground::new(&space, "", true).permissions_href(&bytes);
    match changed(&app, &signed_in, &space, &asked, &form).await {
        Ok(Outcome::Set) => {
            let code = if form.recursive.is_some() { "permissions_below" } else { "permissions" };
            Ok(forms::done(&back, code).into_response())
        }
        Ok(Outcome::Again(page)) => again(&page),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(back)),
    }
}

/// What came of a form.
enum Outcome {
    Set,
    /// It is shown again, with what is wrong or what is to be agreed to.
    Again(Box<PermissionsPage>),
}

fn again(page: &PermissionsPage) -> Result<Response, HttpError> {
    show_as(StatusCode::UNPROCESSABLE_ENTITY, page)
}

async fn changed(
    app: &App,
    signed_in: &SignedIn,
    space: &SpaceName,
    asked: &AskedPath,
    form: &NewList,
) -> Result<Outcome, AppError> {
    let now = now(app, signed_in, space, asked).await?;
    let typed = form.typed()?;
    let wanted = async {
        let lines = lines(app, &now.permissions, &typed).await?;
        let change = change(&now.permissions, lines.clone(), typed.handed_on)?;
        Ok((lines, change))
    };
    let (lines, change) = match wanted.await {
        Ok(wanted) => wanted,
        Err(AppError::Invalid(errors)) => {
            let errors = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
            return Ok(Outcome::Again(Box::new(now.page(signed_in, &typed).with_errors(errors))));
        }
        Err(other) => return Err(other),
    };
    let dangers = dangers(&now.permissions, now.is_directory, &lines);
    if !dangers.is_empty() && form.sure.is_none() {
        let page = now.page(signed_in, &typed).with_dangers(words(), &dangers);
        return Ok(Outcome::Again(Box::new(page)));
    }
    let actor = &signed_in.actor;
    if typed.recursive && now.is_directory {
        app.files.set_permissions_below(&app.operations, actor, space, asked, change).await?;
    } else {
        app.files.set_permissions(actor, space, asked, change).await?;
    }
    Ok(Outcome::Set)
}
