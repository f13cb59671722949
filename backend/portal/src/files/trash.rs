//! The trash of a space: what lies there, putting it back, deleting it for good.

use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::SpaceName;
use eirene_core::file_work::OnConflict;
use eirene_files_protocol::TrashId;
use eirene_http::extract::{CsrfForm, Id, InSpace, SignedIn};
use eirene_services::app::App;
use eirene_services::error::AppError;
use serde::Deserialize;

use super::super::login::Nothing;
use super::super::views::files::TrashPage;
use super::super::views::layout::Place;
use super::super::views::simple::ConfirmPage;
use super::super::{Done, Shown, layout, show, words};
use super::{Ground, Trouble, ground, troubled};

/// Things on a page.
const PAGE: u32 = 100;

/// Which part of the trash.
#[derive(Deserialize)]
pub(crate) struct Part {
    cursor: Option<String>,
    #[serde(flatten)]
    done: Done,
}

/// `GET /spaces/{space}/trash`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Id(space): Id<SpaceName>,
    Query(part): Query<Part>,
) -> Shown {
    let after: Option<TrashId> = part.cursor.and_then(|cursor| cursor.parse().ok());
    let found = async {
        let ground = ground(&app, &signed_in, &space).await?;
        Ok((ground, app.files.trash(&signed_in.actor, &space, after, PAGE).await?))
    };
    let (ground, found) = match found.await {
        Ok(found) => found,
        Err(error) => {
            let home = Ground::new(&space, "", false);
            return troubled(&signed_in, error, Trouble { back_href: home.files_href, again_href: home.trash_href });
        }
    };
    let words = words();
    let next = found.next.map(|id| format!("{}?cursor={id}", ground.trash_href));
    let page = TrashPage {
        layout: layout(&signed_in, Place::Spaces, &words.get("trash.title")).with_notice(part.done.notice()),
        rows: found.items.iter().map(|trashed| ground.trash_row(words, trashed)).collect(),
        count: words.count("browser.count", found.entries),
        empty_href: format!("{}/empty", ground.trash_href),
        next_href: next.unwrap_or_default(),
        ground,
    };
    Ok(show(&page)?.into_response())
}

/// `POST /spaces/{space}/trash/{id}/restore`. Where something lies already, the old thing gets another name.
pub(crate) async fn restore(
    State(app): State<App>,
    InSpace(space, id): InSpace<TrashId>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let ground = Ground::new(&space, "", true);
    match app.files.restore(&signed_in.actor, &space, id, None, OnConflict::KeepBoth).await {
        Ok(moved) => {
            let above = moved.path.split_last().map(|(above, _)| above).unwrap_or_default();
            let href = ground.directory_href(above.as_bytes());
            let joint = if href.contains('?') { '&' } else { '?' };
            Ok(Redirect::to(&format!("{href}{joint}done=restored")).into_response())
        }
        Err(error) => troubled(&signed_in, error, Trouble::of_form(ground.trash_href)),
    }
}

/// A page that asks once more, for whoever may use the space.
async fn ask(app: &App, signed_in: &SignedIn, space: &SpaceName, action: String, texts: [&str; 3]) -> Shown {
    let [title, text, yes] = texts;
    let found = ground(app, signed_in, space).await;
    let ground = match found {
        Ok(ground) => ground,
        Err(error) => return troubled(signed_in, error, Trouble::of_form(format!("/spaces/{space}/trash"))),
    };
    let words = words();
    let page = ConfirmPage {
        layout: layout(signed_in, Place::Spaces, &words.get(title)),
        title: words.get(title),
        text: words.get(text),
        action,
        yes: words.get(yes),
        back_href: ground.trash_href,
    };
    Ok(show(&page)?.into_response())
}

/// `GET /spaces/{space}/trash/{id}/delete`: asks once more.
pub(crate) async fn delete_page(
    State(app): State<App>,
    signed_in: SignedIn,
    InSpace(space, id): InSpace<TrashId>,
) -> Shown {
    let texts = ["trash.delete_title", "trash.delete_text", "trash.delete_yes"];
    ask(&app, &signed_in, &space, format!("/spaces/{space}/trash/{id}/delete"), texts).await
}

/// `GET /spaces/{space}/trash/empty`: asks once more.
pub(crate) async fn empty_page(State(app): State<App>, signed_in: SignedIn, Id(space): Id<SpaceName>) -> Shown {
    let texts = ["trash.empty_title", "trash.empty_text", "trash.empty_yes"];
    ask(&app, &signed_in, &space, format!("/spaces/{space}/trash/empty"), texts).await
}

/// `POST /spaces/{space}/trash/{id}/delete`
pub(crate) async fn delete(
    State(app): State<App>,
    InSpace(space, id): InSpace<TrashId>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    remove(&app, &signed_in, &space, Some(id)).await
}

/// `POST /spaces/{space}/trash/empty`
pub(crate) async fn empty(
    State(app): State<App>,
    Id(space): Id<SpaceName>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    remove(&app, &signed_in, &space, None).await
}

async fn remove(app: &App, signed_in: &SignedIn, space: &SpaceName, id: Option<TrashId>) -> Shown {
    let back = format!("/spaces/{space}/trash");
    let begun: Result<_, AppError> = app.files.empty_trash(&app.operations, &signed_in.actor, space, id).await;
    match begun {
        Ok(_) => Ok(Redirect::to(&format!("{back}?done=deleting")).into_response()),
        Err(error) => troubled(signed_in, error, Trouble::of_form(back)),
    }
}
