//! Runs: the list, the form, one run's page and log, cancelling and requeueing.

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::id::SessionId;
use eirene_core::name::ImageName;
use eirene_core::session::Session;
use eirene_http::extract::{CsrfForm, SignedIn};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_services::runs::{RunSize, StartRun};
use eirene_services::sessions::{IdempotencyKey, ListSessions};
use eirene_words::say;
use serde::Deserialize;

use super::login::Nothing;
use super::session::{alerts, usage};
use super::start::{FIRST_SIZE, Land, fingerprint, form_errors, new_key, sees};
use super::views::FormError;
use super::views::layout::Place;
use super::views::presets::presets;
use super::views::run::{LikeView, RunFragment, RunInput, RunPage, RunView, RunsFragment, RunsPage, StartRunPage};
use super::views::scratch_form::unsaid;
use super::views::simple::ConfirmPage;
use super::views::start::{Sees, StartInput};
use super::views::usage::UsageFragment;
use super::{Done, Shown, admin, layout, now, show, show_as, words};

/// Runs on one page.
const PAGE: u32 = 50;
/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 15;

/// Which part of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    cursor: Option<String>,
}

impl Part {
    fn query(&self) -> String {
        self.cursor.as_deref().map(|cursor| format!("?cursor={}", admin::encode(cursor))).unwrap_or_default()
    }
}

/// A part of my runs, and where the next one begins.
async fn mine(app: &App, signed_in: &SignedIn, part: &Part) -> Result<(Vec<RunView>, Option<String>), AppError> {
    let ask = ListSessions { all: false, live_only: false, cursor: part.cursor.clone(), limit: PAGE };
    let found = app.runs.list(&signed_in.actor, ask).await?;
    let view = |run: &_| RunView::new(words(), run, None, now(app));
    Ok((found.items.iter().map(view).collect(), found.next))
}

/// `GET /runs`
pub(crate) async fn list(State(app): State<App>, signed_in: SignedIn, Query(part): Query<Part>) -> Shown {
    let (runs, next) = mine(&app, &signed_in, &part).await?;
    let page = RunsPage {
        layout: layout(&signed_in, Place::Runs, &words().get("runs.title")).live("/live/events", REFRESH_S),
        runs,
        fragment_href: format!("/fragments/runs{}", part.query()),
        older_href: next.map(|next| format!("/runs?cursor={next}")).unwrap_or_default(),
        newest_href: if part.cursor.is_some() { "/runs".to_owned() } else { String::new() },
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/runs`
pub(crate) async fn list_fragment(State(app): State<App>, signed_in: SignedIn, Query(part): Query<Part>) -> Shown {
    let (runs, _) = mine(&app, &signed_in, &part).await?;
    Ok(show(&RunsFragment { runs })?.into_response())
}

/// What the form begins with.
#[derive(Deserialize)]
pub(crate) struct Beginning {
    from: Option<String>,
    like: Option<String>,
}

/// The session that a run is to be like; no text is none.
async fn model(app: &App, signed_in: &SignedIn, text: Option<&str>) -> Result<Option<Session>, AppError> {
    match text {
        Some(text) => app.runs.model(&signed_in.actor, id(text)?).await.map(Some),
        None => Ok(None),
    }
}

fn form_page(
    land: &Land,
    signed_in: &SignedIn,
    sees: Sees,
    input: &RunInput,
    like: Option<&Session>,
    errors: Vec<FormError>,
) -> StartRunPage {
    let ground = land.ground();
    let form = ground.form(&ground.with_defaults(input.size()), &errors);
    let form = match like {
        Some(session) => form.with_image(&session.image),
        None => form,
    };
    StartRunPage {
        layout: layout(signed_in, Place::Runs, &words().get("start_run.page_title")),
        has_images: !form.images.is_empty(),
        form,
        run: input.fields(&errors),
        like: like.map(LikeView::new),
        free: land.free(),
        home: land.home(),
        errors,
        sees,
    }
}

/// `GET /runs/new`
pub(crate) async fn form(State(app): State<App>, signed_in: SignedIn, Query(beginning): Query<Beginning>) -> Shown {
    let land = Land::with_projects(&app, &signed_in).await?;
    let like = model(&app, &signed_in, beginning.like.as_deref()).await?;
    let mut errors = Vec::new();
    let mut input = if let Some(session) = &like {
        RunInput::like(session)
    } else if let Some(id) = beginning.from.and_then(|id| id.parse().ok()) {
        let run = app.runs.get(&signed_in.actor, id).await?;
        errors = unsaid(words(), run.scratch.as_ref());
        RunInput::again(&run)
    } else {
        let ground = land.ground();
        let sizes = presets(ground.cluster);
        let first = sizes.iter().find(|size| size.code == FIRST_SIZE).or(sizes.first());
        RunInput::of_size(first.map(|size| StartInput::from_resources(&size.resources)).unwrap_or_default())
    };
    input.key = new_key();
    let sees = sees(&app, &signed_in).await?;
    Ok(show(&form_page(&land, &signed_in, sees, &input, like.as_ref(), errors))?.into_response())
}

/// `POST /runs`: starts it, or shows the form again with what is wrong.
pub(crate) async fn start(State(app): State<App>, CsrfForm(signed_in, input): CsrfForm<RunInput>) -> Shown {
    let like = model(&app, &signed_in, Some(input.like.as_str()).filter(|text| !text.is_empty())).await?;
    let outcome = match wish(&input, like.as_ref()) {
        Ok((wish, key)) => match app.runs.start(&signed_in.actor, wish, key).await {
            Ok((run, _)) => return Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response()),
            Err(AppError::Invalid(errors)) => form_errors(&errors),
            Err(AppError::Conflict { text, .. } | AppError::Forbidden { text, .. }) => {
                vec![FormError::from_service(words(), &FieldError::new("", text))]
            }
            Err(error) => return Err(error.into()),
        },
        Err(errors) => errors,
    };
    let land = Land::with_projects(&app, &signed_in).await?;
    let again = RunInput { key: new_key(), ..input };
    let sees = sees(&app, &signed_in).await?;
    let page = form_page(&land, &signed_in, sees, &again, like.as_ref(), outcome);
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}

/// What the service is asked for.
fn wish(input: &RunInput, like: Option<&Session>) -> Result<(StartRun, Option<IdempotencyKey>), Vec<FormError>> {
    let size = input.size();
    let (resources, scratch) = (size.resources(words()), size.wanted_scratch(words()));
    let program = input.program(words());
    let mut errors = resources.as_ref().err().cloned().unwrap_or_default();
    errors.extend(scratch.as_ref().err().cloned().unwrap_or_default());
    errors.extend(program.as_ref().err().cloned());
    let mut parse = |field: &str, problem: eirene_core::name::NameError| {
        errors.push(FormError::from_service(words(), &FieldError::no_name(field, problem)));
    };
    let name = match input.name.trim() {
        "" => None,
        text => text.parse().map_err(|error| parse("name", error)).ok(),
    };
    let image = input.image.parse::<ImageName>().map_err(|error| parse("image", error)).ok();
    let project = match input.project.trim() {
        "" => None,
        text => text.parse().map_err(|error| parse("project", error)).ok(),
    };
    let (Ok(resources), Ok(scratch), Ok(program), Some(image), true) =
        (resources, scratch, program, image, errors.is_empty())
    else {
        return Err(errors);
    };
    // The name that the session has is its very file, as the form began; another one is the catalogue's.
    let image = like.is_none_or(|session| session.image != image).then_some(image);
    let size = RunSize::Whole(resources);
    let plain = RunInput { key: String::new(), ..input.clone() };
    let key =
        (!input.key.is_empty()).then(|| IdempotencyKey { key: input.key.clone(), body_sha256: fingerprint(&plain) });
    let like = like.map(|session| session.id);
    Ok((StartRun { name, program, like, image, project, size, scratch }, key))
}

/// An id as typed; what is no id is not there.
fn id(text: &str) -> Result<SessionId, AppError> {
    text.parse().map_err(|_| AppError::NotFound)
}

/// One run, how it is shown to whoever looks, and whether it is somebody else's.
async fn find(app: &App, signed_in: &SignedIn, text: &str) -> Result<(Session, RunView, bool), AppError> {
    let run = app.runs.get(&signed_in.actor, id(text)?).await?;
    let later = app.runs.later(&signed_in.actor, run.id).await?;
    let view = RunView::new(words(), &run, later.as_ref(), now(app)).with_nodes(words(), &app.nodes.of(&run));
    let view = view.with_copied(words(), &run, app.nodes.copied(&run).as_ref());
    let foreign = run.owner != signed_in.actor.user.id;
    let view = if foreign { view.foreign() } else { view };
    Ok((run, view, foreign))
}

/// Which part of the log.
#[derive(Deserialize)]
pub(crate) struct Which {
    rank: Option<String>,
    done: Option<String>,
}

impl Which {
    fn rank(&self) -> Result<Option<u32>, AppError> {
        match self.rank.as_deref().map(str::trim) {
            None | Some("") => Ok(None),
            Some(text) => {
                let wrong = |_| AppError::Invalid(vec![FieldError::new("rank", say("wrong.plain"))]);
                text.parse().map(Some).map_err(wrong)
            }
        }
    }
}

/// `GET /runs/{id}`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(which): Query<Which>,
) -> Shown {
    let (run, mut view, foreign) = find(&app, &signed_in, &text).await?;
    view.job.alerts = alerts(&app, &run, &signed_in).await;
    let rank = which.rank()?;
    let log = app.runs.read_log(&signed_in.actor, run.id, rank).await?;
    let over = run.state.is_final();
    let done = Done { done: which.done };
    let mut layout = layout(&signed_in, Place::Runs, run.name.as_str()).with_notice(done.notice());
    // What is kept of a scratch is not for ever.
    if !over || view.job.scratch.is_some() {
        layout = layout.live(format!("/live/runs/{}/events", run.id), REFRESH_S);
    }
    let of_rank = |before: char| rank.map(|rank| format!("{before}rank={rank}")).unwrap_or_default();
    let page = RunPage {
        layout,
        rank: rank.map(|rank| rank.to_string()).unwrap_or_default(),
        log,
        log_href: if over { String::new() } else { format!("/live/runs/{}/logs?follow=true{}", run.id, of_rank('&')) },
        whole_href: format!("/runs/{}/log{}", run.id, of_rank('?')),
        usage: usage(&app, &run).await,
        usage_href: if over { String::new() } else { format!("/fragments/runs/{}/usage", run.id) },
        run: view,
        foreign,
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/runs/{id}`
pub(crate) async fn fragment(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let (run, mut view, foreign) = find(&app, &signed_in, &text).await?;
    view.job.alerts = alerts(&app, &run, &signed_in).await;
    Ok(show(&RunFragment { run: view, foreign })?.into_response())
}

/// `GET /fragments/runs/{id}/usage`
pub(crate) async fn usage_fragment(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let (run, _, _) = find(&app, &signed_in, &text).await?;
    Ok(show(&UsageFragment { usage: usage(&app, &run).await })?.into_response())
}

/// `GET /runs/{id}/log`: the log as text.
pub(crate) async fn log(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(which): Query<Which>,
) -> Shown {
    let log = app.runs.read_log(&signed_in.actor, id(&text)?, which.rank()?).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], log).into_response())
}

/// `GET /runs/{id}/cancel`: asks once more.
pub(crate) async fn cancel_page(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let (run, view, _) = find(&app, &signed_in, &text).await?;
    let title = words().fill("run.cancel_title", &[("name", run.name.as_str())]);
    let page = ConfirmPage {
        layout: layout(&signed_in, Place::Runs, &title),
        title,
        text: words().get("run.cancel_text"),
        action: format!("{}/cancel", view.job.href),
        yes: words().get("run.cancel_yes"),
        back_href: view.job.href,
    };
    Ok(show(&page)?.into_response())
}

/// `POST /runs/{id}/cancel`
pub(crate) async fn cancel(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let run = app.runs.cancel(&signed_in.actor, id(&text)?).await?;
    Ok(Redirect::to(&format!("/runs/{}?done=cancelling", run.id)).into_response())
}

/// `GET /runs/{id}/requeue`: asks once more.
pub(crate) async fn requeue_page(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let (run, view, _) = find(&app, &signed_in, &text).await?;
    if view.requeue_href.is_empty() {
        return Err(AppError::NotFound.into());
    }
    let title = words().fill("run.requeue_title", &[("name", run.name.as_str())]);
    let page = ConfirmPage {
        layout: layout(&signed_in, Place::Runs, &title),
        title,
        text: view.requeue_text,
        action: view.requeue_href,
        yes: words().get("run.requeue_yes"),
        back_href: view.job.href,
    };
    Ok(show(&page)?.into_response())
}

/// `POST /runs/{id}/requeue`: over to the new run, also for whoever pressed twice.
pub(crate) async fn requeue(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let id = id(&text)?;
    let new = match app.runs.requeue(&signed_in.actor, id, None).await {
        Ok((run, _)) => run,
        Err(error @ AppError::Conflict { code: "already_requeued", .. }) => {
            app.runs.later(&signed_in.actor, id).await?.ok_or(error)?
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Redirect::to(&format!("/runs/{}?done=requeued", new.id)).into_response())
}
