//! Spaces: the list, and one space's page.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::{SpaceName, SpaceState};
use eirene_http::extract::{CsrfForm, SignedIn};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::spaces::SpaceSeen;

use super::login::Nothing;
use super::views::group_limits::GroupLimitsView;
use super::views::layout::Place;
use super::views::old_files::{OldFilesShown, PromisedFragment, PromisedView};
use super::views::space::{HistoryView, SpaceFragment, SpacePage, SpaceView, SpacesFragment, SpacesPage, details};
use super::views::stripe;
use super::{Done, Shown, layout, show, words};

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 60;
/// How long a page waits for limits of groups that nobody asked for of late; the next look has them.
const GROUP_LIMITS_WAIT: Duration = Duration::from_secs(1);
/// Days of the history.
const DAYS: u32 = 30;

/// The name of a space as it stands in an address; what is no name is not there.
pub(super) fn name(text: &str) -> Result<SpaceName, AppError> {
    text.parse().map_err(|_| AppError::NotFound)
}

/// `GET /spaces`
pub(crate) async fn list(State(app): State<App>, signed_in: SignedIn) -> Shown {
    let spaces = app.spaces.list(&signed_in.actor).await?;
    let promised = app.old_files.promised(&signed_in.actor, &spaces).await?;
    let promised = PromisedView::all(words(), &promised);
    let layout = layout(&signed_in, Place::Spaces, &words().get("my_spaces.title")).live("/live/events", REFRESH_S);
    let group_limits = group_limits(&app, &signed_in).await?;
    Ok(show(&SpacesPage { layout, spaces: views(&spaces, &signed_in), group_limits, promised })?.into_response())
}

/// `GET /fragments/spaces`
pub(crate) async fn list_fragment(State(app): State<App>, signed_in: SignedIn) -> Shown {
    let spaces = app.spaces.list(&signed_in.actor).await?;
    let group_limits = group_limits(&app, &signed_in).await?;
    Ok(show(&SpacesFragment { spaces: views(&spaces, &signed_in), group_limits })?.into_response())
}

async fn group_limits(app: &App, signed_in: &SignedIn) -> Result<GroupLimitsView, AppError> {
    match app.spaces.group_limits(&signed_in.actor, GROUP_LIMITS_WAIT).await {
        Ok(limits) => Ok(GroupLimitsView::new(words(), &limits)),
        // The spaces are worth seeing without them.
        Err(AppError::Unavailable { .. }) => Ok(GroupLimitsView::unknown(words())),
        Err(error) => Err(error),
    }
}

fn views(spaces: &[SpaceSeen], signed_in: &SignedIn) -> Vec<SpaceView> {
    let me = signed_in.actor.user.id;
    // What is in one's list is what one may use.
    spaces.iter().map(|seen| SpaceView::new(words(), seen, me, true)).collect()
}

/// `GET /fragments/old-files`
pub(crate) async fn promised_fragment(State(app): State<App>, signed_in: SignedIn) -> Shown {
    // What is known of is said, as on the first page: not knowing the rest is no fault of the connection.
    let spaces = app.spaces.list_known(&signed_in.actor).await?;
    let promised = app.old_files.promised(&signed_in.actor, &spaces).await?;
    Ok(show(&PromisedFragment { promised: PromisedView::all(words(), &promised) })?.into_response())
}

/// `GET /spaces/{space}`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(done): Query<Done>,
) -> Shown {
    let (seen, space, history) = one(&app, &signed_in, &text).await?;
    let layout = layout(&signed_in, Place::Spaces, &space.title).live("/live/events", REFRESH_S);
    let layout = layout.with_notice(done.notice());
    let mut details = details(words(), &seen, signed_in.actor.user.id);
    // What is not there is not asked about.
    if seen.space.state == SpaceState::Present
        && let Some(entry) = app.stripes.of(&seen.space, b"").await
    {
        details.extend(stripe::facts(words(), &entry));
    }
    let old_files = app.old_files.report(&signed_in.actor, &seen.space.name).await?;
    let old_files = OldFilesShown::new(words(), seen.space.name.as_str(), &old_files);
    Ok(show(&SpacePage { layout, space, history, details, old_files })?.into_response())
}

/// `POST /spaces/{space}/old-files`: has it looked which files are old.
pub(crate) async fn look_for_old_files(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let name = name(&text)?;
    app.old_files.look(&signed_in.actor, &name).await?;
    Ok(Redirect::to(&format!("/spaces/{name}?done=old_files_looking")).into_response())
}

/// `GET /fragments/spaces/{space}`
pub(crate) async fn fragment(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let (_, space, history) = one(&app, &signed_in, &text).await?;
    Ok(show(&SpaceFragment { space, history })?.into_response())
}

async fn one(
    app: &App,
    signed_in: &SignedIn,
    text: &str,
) -> Result<(SpaceSeen, SpaceView, Option<HistoryView>), AppError> {
    let seen = app.spaces.get(&signed_in.actor, &name(text)?).await?;
    let samples = app.spaces.samples(&signed_in.actor, &seen.space.name, DAYS).await?;
    let may_open = app.spaces.may_open(&signed_in.actor, &seen.space).await;
    let view = SpaceView::new(words(), &seen, signed_in.actor.user.id, may_open);
    Ok((seen, view, HistoryView::new(words(), &samples)))
}
