//! What takes the room in a space: the page that is clicked through, and the buttons that begin and end measuring.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::Space;
use eirene_http::extract::{CsrfForm, SignedIn};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::files::path::AskedPath;
use eirene_services::scans::Sizes;
use serde::Deserialize;

use super::login::Nothing;
use super::spaces::name;
use super::views::layout::Place;
use super::views::sizes::{SizesFragment, SizesPage, SizesView, query};
use super::{Shown, layout, show, words};

/// Directories on the page.
const MOST: usize = 100;
/// Seconds after which a browser without scripts looks again while something is measured.
const REFRESH_S: u32 = 15;

/// Which directory, in an address and in a form.
#[derive(Deserialize)]
pub(crate) struct Where {
    path: Option<String>,
    raw_path: Option<String>,
}

impl Where {
    /// A field that is empty is none.
    fn asked(self) -> AskedPath {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        AskedPath::new("path", given(self.path), given(self.raw_path))
    }
}

async fn sizes(app: &App, signed_in: &SignedIn, text: &str, at: Where) -> Result<(Space, Sizes), AppError> {
    let name = name(text)?;
    // Whoever may not use it hears nothing of it, an admin neither.
    let sizes = app.scans.sizes(&signed_in.actor, &name, &at.asked(), MOST).await?;
    Ok((app.spaces.get(&signed_in.actor, &name).await?.space, sizes))
}

/// `GET /spaces/{space}/sizes?path=`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(at): Query<Where>,
) -> Shown {
    let (space, sizes) = sizes(&app, &signed_in, &text, at).await?;
    let view = SizesView::new(words(), &space, &sizes);
    let refresh_s = if view.runs { REFRESH_S } else { 0 };
    let layout = layout(&signed_in, Place::Spaces, &words().get("my_spaces.sizes_page.title"));
    let page = SizesPage {
        layout: layout.live("/live/events", refresh_s),
        lede: words().fill("my_spaces.sizes_page.lede", &[("title", space.title.as_str())]),
        space_href: format!("/spaces/{}", space.name),
        fragment_href: format!("/fragments/spaces/{}/sizes{}", space.name, query(&sizes.path)),
        sizes: view,
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/spaces/{space}/sizes?path=`
pub(crate) async fn fragment(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(at): Query<Where>,
) -> Shown {
    let (space, sizes) = sizes(&app, &signed_in, &text, at).await?;
    let layout = layout(&signed_in, Place::Spaces, "");
    Ok(show(&SizesFragment { layout, sizes: SizesView::new(words(), &space, &sizes) })?.into_response())
}

/// `POST /spaces/{space}/sizes`
pub(crate) async fn start(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, at): CsrfForm<Where>,
) -> Shown {
    let (name, path) = (name(&text)?, at.asked());
    app.scans.start(&signed_in.actor, &name, &path).await?;
    Ok(Redirect::to(&format!("/spaces/{name}/sizes{}", query(&path.parse()?))).into_response())
}

/// `POST /spaces/{space}/sizes/stop`
pub(crate) async fn stop(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let name = name(&text)?;
    app.scans.stop(&signed_in.actor, &name).await?;
    Ok(Redirect::to(&format!("/spaces/{name}/sizes")).into_response())
}
