//! What forms change: a new directory, another place, a copy, the trash, permissions. A form says its path by its bytes, because a browser
//! does not send every character of a name as it was.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect};
use data_encoding::BASE64URL_NOPAD;
use eirene_api::files::{Format, packed};
use eirene_core::SpaceName;
use eirene_core::file_work::OnConflict;
use eirene_files_protocol::{PermissionChange, RelativePath, Share};
use eirene_http::extract::{Caller, CsrfForm, Id};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_services::files::changing::{Each, MoveWish};
use eirene_services::files::long::CopyWish;
use eirene_services::files::path::AskedPath;
use eirene_words::say;
use serde::Deserialize;

use super::super::Shown;
use super::{Ground, Trouble, troubled};

/// A name in a directory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewName {
    raw: String,
    name: String,
}

/// Another path for something, in the same space or in another one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPlace {
    raw: String,
    to: String,
    to_space: Option<SpaceName>,
    on_conflict: OnConflict,
}

/// The directory that an archive becomes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPath {
    raw: String,
    to: String,
    on_conflict: OnConflict,
}

/// Something.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct This {
    raw: String,
}

/// What is picked, to be saved as one archive.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Picked {
    raw: Vec<String>,
    format: Format,
}

/// Who may do what with something.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewShare {
    raw: String,
    share: String,
    recursive: Option<String>,
}

pub(super) fn asked(raw: &str) -> AskedPath {
    AskedPath::new("path", None, Some(raw.to_owned()))
}

/// The page of the directory that something lies in.
fn directory_of(ground: &Ground, path: &AskedPath) -> String {
    let above = path.parse().ok().and_then(|path| path.split_last());
    ground.directory_href(above.map_or_else(RelativePath::default, |(above, _)| above).as_bytes())
}

/// The address with what has just been done.
pub(super) fn done(href: &str, code: &str) -> Redirect {
    let joint = if href.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{href}{joint}done={code}"))
}

/// What was asked for one thing, as the answer to that.
fn only<T>(each: Each<T>) -> Result<T, AppError> {
    let Each { done, refused } = each;
    match (done.into_iter().next(), refused.into_iter().next()) {
        (Some((_, done)), None) => Ok(done),
        (_, Some((_, trouble))) => Err(trouble.into()),
        (None, None) => Err(AppError::NotFound),
    }
}

/// `POST /spaces/{space}/files/directories`
pub(crate) async fn make_directory(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<NewName>,
) -> Shown {
    let ground = Ground::new(&space, "", true);
    let above = BASE64URL_NOPAD.decode(form.raw.as_bytes()).unwrap_or_default();
    let back = ground.directory_href(&above);
    let whole = if above.is_empty() { Vec::new() } else { [&above[..], b"/"].concat() };
    let path = if form.name.is_empty() || form.name.contains('/') {
        Err(AppError::Invalid(vec![FieldError::new("name", say("wrong.one_name"))]))
    } else {
        Ok(asked(&BASE64URL_NOPAD.encode(&[&whole[..], form.name.as_bytes()].concat())))
    };
    let made = async { app.files.make_directory(&signed_in.actor, &space, &path?, false).await };
    match made.await {
        Ok(_) => Ok(done(&back, "made").into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(back)),
    }
}

fn wish(raw: &str, to: &str) -> MoveWish {
    MoveWish { from: asked(raw), to: AskedPath::new("to", Some(to.to_owned()), None) }
}

impl NewPlace {
    /// What is wished, the page it is wished on, and the page of where it comes to lie.
    fn wish(&self, space: &SpaceName) -> (MoveWish, String, String) {
        let wish = wish(&self.raw, &self.to);
        let from = directory_of(&Ground::new(space, "", true), &wish.from);
        let to = directory_of(&Ground::new(self.to_space.as_ref().unwrap_or(space), "", true), &wish.to);
        (wish, from, to)
    }
}

/// `POST /spaces/{space}/files/move`
pub(crate) async fn move_to(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<NewPlace>,
) -> Shown {
    let (wish, from, to) = form.wish(&space);
    let (actor, target, wishes, conflict) = (&signed_in.actor, form.to_space.as_ref(), [wish], form.on_conflict);
    let moved = match app.files.move_each(actor, &space, target, &wishes, conflict, &|| {}).await.and_then(only) {
        Ok(_) => Ok("moved"),
        Err(AppError::Files(trouble)) if trouble.is_other_file_system() => {
            let begun = app.files.move_as_operation(&app.operations, actor, &space, target, &wishes, conflict).await;
            begun.map(|_| "moving")
        }
        Err(error) => Err(error),
    };
    match moved {
        Ok(code) => Ok(done(&to, code).into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(from)),
    }
}

/// `POST /spaces/{space}/files/copy`
pub(crate) async fn copy(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<NewPlace>,
) -> Shown {
    let (wish, from, to) = form.wish(&space);
    let (actor, target) = (&signed_in.actor, form.to_space.as_ref());
    let wish = CopyWish { places: &[wish], conflict: form.on_conflict, resume: None };
    match app.files.copy(&app.operations, actor, &space, target, wish).await {
        Ok(_) => Ok(done(&to, "copying").into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(from)),
    }
}

/// `POST /spaces/{space}/files/extract`
pub(crate) async fn extract(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<NewPath>,
) -> Shown {
    let (ground, wish) = (Ground::new(&space, "", true), wish(&form.raw, &form.to));
    let (from, to) = (directory_of(&ground, &wish.from), directory_of(&ground, &wish.to));
    match app.files.extract(&app.operations, &signed_in.actor, &space, &wish, form.on_conflict).await {
        Ok(_) => Ok(done(&to, "unpacking").into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(from)),
    }
}

/// `POST /spaces/{space}/files/trash`
pub(crate) async fn throw_away(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<This>,
) -> Shown {
    let path = asked(&form.raw);
    let back = directory_of(&Ground::new(&space, "", true), &path);
    match app.files.trash_each(&signed_in.actor, &space, &[path], &|| {}).await.and_then(only) {
        Ok(id) => Ok(done(&back, &format!("trashed&undo={id}")).into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(back)),
    }
}

/// `POST /spaces/{space}/files/archive`: what is picked, as one archive. It changes nothing; as a form it has room for many paths.
pub(crate) async fn archive(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<Picked>,
) -> Shown {
    let paths: Vec<AskedPath> = form.raw.iter().map(|raw| asked(raw)).collect();
    let back = paths.first().map_or_else(
        || Ground::new(&space, "", true).files_href,
        |first| directory_of(&Ground::new(&space, "", true), first),
    );
    let caller = Caller { actor: signed_in.actor.clone(), ticket: signed_in.ticket };
    match packed(&app, caller, &space, &paths, form.format.into()).await {
        Ok(response) => Ok(response),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(back)),
    }
}

/// `POST /spaces/{space}/files/permissions`
pub(crate) async fn change_permissions(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, form): CsrfForm<NewShare>,
) -> Shown {
    let path = asked(&form.raw);
    let bytes = path.parse().map(|path| path.as_bytes().to_vec()).unwrap_or_default();
    let back = Ground::new(&space, "", true).entry_href(&bytes);
    let (actor, below) = (&signed_in.actor, form.recursive.is_some());
    let changed = async {
        let change = PermissionChange::Share(match form.share.as_str() {
            "private" => Share::Private,
            "group_reads" => Share::GroupReads,
            "group_writes" => Share::GroupWrites,
            _ => return Err(AppError::Invalid(vec![FieldError::new("share", say("wrong.one_change"))])),
        });
        if below {
            app.files.set_permissions_below(&app.operations, actor, &space, &path, change).await.map(|_| ())
        } else {
            app.files.set_permissions(actor, &space, &path, change).await.map(|_| ())
        }
    };
    match changed.await {
        Ok(()) => Ok(done(&back, if below { "permissions_below" } else { "permissions" }).into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::of_form(back)),
    }
}
