//! Runs: starting, listing, showing, cancelling, requeueing; their events and logs.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::{JobKind, RunProgram, ScratchSpec, SessionId};
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::{HttpError, HttpResult, Problem};
use eirene_services::app::App;
use eirene_services::runs::{RunSize, SizeParts, StartRun, no_session};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::List;
use super::wanted::{self, Since, Which, name};
use crate::streams::{self, LogOf, Wanted};
use crate::view::RunView;

/// A run to be started. CPUs, memory and GPUs are per node. What is left out is the default, or as the session in `like` has it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRun {
    /// What you call it; the file's name when nothing is given.
    #[schema(min_length = 1, max_length = 80, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "epoch 3")]
    name: Option<String>,
    /// What to run, as the container sees it: absolute, or relative to your home. `.ipynb` is executed as a notebook, `.py` by the image's
    /// Python, anything else as it is. Its directory is the working directory.
    #[schema(
        min_length = 1,
        max_length = 4096,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^/\x00-\x1f\x7f-\x9f]$",
        example = "train.py"
    )]
    file: String,
    /// Arguments; a notebook takes none.
    #[serde(default)]
    #[schema(max_items = 256)]
    arguments: Vec<String>,
    /// Ranks on all nodes together, at most as many as there are CPUs; one process on the first node when nothing is given. A notebook is
    /// one process, whose cells start ranks.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(minimum = 1, nullable = false)]
    ranks: Option<u32>,
    /// Whether nodes and the links between them are tried before ranks start on several nodes.
    #[serde(default = "preflight")]
    #[schema(default = true)]
    preflight: bool,
    /// One of your own sessions, live or over. The run has its image, the very file whatever the name means by now, its project and its size, but
    /// for what is given here. It has a scratch only where one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[0-9a-f]{32}$")]
    like: Option<String>,
    /// Image, by name: the file that the catalogue has for it now. By default `jupyter`, or the session's own file when `like` is given.
    #[serde(default, deserialize_with = "body::some_text")]
    #[schema(nullable = false, pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$", default = "jupyter")]
    image: Option<String>,
    /// Project; it maps to a SLURM account. By default none, or the session's when `like` is given.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$")]
    project: Option<String>,
    /// Partition; by default the cluster's default one, or the session's when `like` is given.
    #[schema(pattern = "^_?[A-Za-z0-9][A-Za-z0-9_.+@-]{0,63}$")]
    partition: Option<String>,
    /// Number of nodes; by default 1, or the session's when `like` is given.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 100_000, default = 1)]
    nodes: Option<u32>,
    /// CPUs per node; by default 2, or the session's when `like` is given.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 100_000, default = 2)]
    cpus: Option<u32>,
    /// Memory per node, MiB; by default 2048, or the session's when `like` is given.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 64, maximum = 1_073_741_824_u64, default = 2048)]
    memory_mib: Option<u64>,
    /// GPUs per node; by default 0, or the session's when `like` is given.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 0, maximum = 1024, default = 0)]
    gpus: Option<u32>,
    /// GPU type; needs at least one GPU. By default any, or the session's when `like` is given and `gpus` is not 0.
    #[schema(pattern = "^_?[A-Za-z0-9][A-Za-z0-9_.+@-]{0,63}$")]
    gpu_type: Option<String>,
    /// Longest time, minutes; by default 60, or the session's when `like` is given.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 527_040, default = 60)]
    walltime_min: Option<u32>,
    /// Fast scratch on its nodes, seen as `/local`, for as long as it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scratch: Option<ScratchSpec>,
}

fn preflight() -> bool {
    true
}

impl NewRun {
    /// Where no session says the rest, the defaults are said: the same request is the same, however many of them it spells out.
    fn spelled_out(mut self) -> Self {
        if self.like.is_none() {
            self.image.get_or_insert_with(wanted::image);
            self.nodes.get_or_insert_with(wanted::nodes);
            self.cpus.get_or_insert_with(wanted::cpus);
            self.memory_mib.get_or_insert_with(wanted::memory_mib);
            self.gpus.get_or_insert(0);
            self.walltime_min.get_or_insert_with(wanted::walltime_min);
        }
        self
    }

    fn parse(self) -> HttpResult<StartRun> {
        let mut errors = Vec::new();
        // What is no id is the id of nothing.
        let like =
            self.like.as_deref().and_then(|text| text.parse::<SessionId>().map_err(|_| errors.push(no_session())).ok());
        let image = self.image.as_deref().and_then(|text| name(&mut errors, "image", text));
        let title = self.name.as_deref().and_then(|text| name(&mut errors, "name", text));
        let project = self.project.as_deref().and_then(|text| name(&mut errors, "project", text));
        let partition = self.partition.as_deref().and_then(|text| name(&mut errors, "partition", text));
        let gpu_type = self.gpu_type.as_deref().and_then(|text| name(&mut errors, "gpu_type", text));
        if !errors.is_empty() {
            return Err(HttpError::invalid(errors));
        }
        let size = RunSize::Parts(SizeParts {
            partition,
            nodes: self.nodes,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            gpus: self.gpus,
            gpu_type,
            walltime_min: self.walltime_min,
        });
        let program =
            RunProgram { file: self.file, arguments: self.arguments, ranks: self.ranks, preflight: self.preflight };
        Ok(StartRun { name: title, program, like, image, project, size, scratch: self.scratch })
    }
}

/// Start a run: a script or a notebook, without a browser. The same `Idempotency-Key` and body again give the same run.
///
/// While SLURM is away the run is taken all the same and waits as `queued`, with the reason.
#[utoipa::path(
    post, path = "/api/v1/runs", tag = "runs", request_body = NewRun,
    params(("Idempotency-Key" = Option<String>, Header, description = "Any text of your choice, unguessable to others",
        min_length = 1, max_length = 255, pattern = "^[!-~]+$")),
    responses((status = 201, body = RunView, headers(("Location" = String, description = "The run"))))
)]
pub(crate) async fn start(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body::Json(new): body::Json<NewRun>,
) -> HttpResult<Response> {
    let new = new.spelled_out();
    let key = wanted::key(&headers, &new)?;
    let (run, _new) = app.runs.start(&caller.actor, new.parse()?, key).await?;
    Ok(wanted::created(&format!("/api/v1/runs/{}", run.id), RunView::new(&run)))
}

/// List runs, newest first.
#[utoipa::path(
    get, path = "/api/v1/runs", tag = "runs", params(Which), responses((status = 200, body = List<RunView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<List<RunView>>> {
    let page = app.runs.list(&caller.actor, which.query()?).await?;
    Ok(Json(List { items: page.items.iter().map(RunView::new).collect(), next: page.next }))
}

/// Show a run.
#[utoipa::path(
    get, path = "/api/v1/runs/{id}", tag = "runs",
    params(("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = RunView))
)]
pub(crate) async fn show(State(app): State<App>, caller: Caller, Id(id): Id<SessionId>) -> HttpResult<Json<RunView>> {
    let run = app.runs.get(&caller.actor, id).await?;
    let copied = app.nodes.copied(&run);
    Ok(Json(RunView::new(&run).with_nodes(&app.nodes.of(&run)).with_copied(copied.as_ref())))
}

/// Cancel a run. Asking again changes nothing.
#[utoipa::path(
    delete, path = "/api/v1/runs/{id}", tag = "runs",
    params(("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$")),
    responses((status = 202, body = RunView))
)]
pub(crate) async fn cancel(State(app): State<App>, caller: Caller, Id(id): Id<SessionId>) -> HttpResult<Response> {
    let run = app.runs.cancel(&caller.actor, id).await?;
    Ok((StatusCode::ACCEPTED, Json(RunView::new(&run))).into_response())
}

/// Start a run anew, with everything as it was. One that is not over is cancelled, and the new one waits until it has ended.
///
/// A run is requeued once; after that what was made of it is. The same `Idempotency-Key` again gives the same run.
#[utoipa::path(
    post, path = "/api/v1/runs/{id}/requeue", tag = "runs",
    params(
        ("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Any text of your choice, unguessable to others",
            min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    responses(
        (status = 201, body = RunView, headers(("Location" = String, description = "The new run"))),
        (status = 409, description = "It was requeued already, or you have as many runs as you may", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn requeue(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
) -> HttpResult<Response> {
    let key = wanted::key(&headers, &("requeue", id))?;
    let (run, _new) = app.runs.requeue(&caller.actor, id, key).await?;
    Ok(wanted::created(&format!("/api/v1/runs/{}", run.id), RunView::new(&run)))
}

/// Follow a run's events, as server-sent events: `state`, `scratch` and `log`.
///
/// `state` carries the run as `GET /api/v1/runs/{id}` shows it, `log` new text of its log.
#[utoipa::path(
    get, path = "/api/v1/runs/{id}/events", tag = "events",
    params(
        ("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$"),
        Since,
        ("Last-Event-ID" = Option<i64>, Header, description = "The last event you have", minimum = 0),
    ),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(crate) async fn events(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
    body::Query(since): body::Query<Since>,
) -> HttpResult<Response> {
    let last_id = streams::last_id(&headers, since.last_id)?;
    streams::events(&app, &caller.actor, caller.ticket, Wanted::One(JobKind::Run, id), last_id).await
}

/// How a run's log is read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// Only the lines of this rank, without the `[N] ` or `[0, 2-4] ` they begin with.
    #[param(minimum = 0, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    rank: Option<u32>,
    /// Stay, and send what is added, until the run is over.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    follow: Option<bool>,
}

/// Read a run's log. Where it has ranks, every line of one begins with `[N] `; other lines are not a rank's. What several ranks of a notebook's cell
/// have said alike is one line, which begins with all of them: `[0-3] `, `[0, 2-4] `.
#[utoipa::path(
    get, path = "/api/v1/runs/{id}/logs", tag = "runs",
    params(("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$"), How),
    responses((status = 200, content_type = "text/plain", body = String))
)]
pub(crate) async fn logs(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    body::Query(how): body::Query<How>,
) -> HttpResult<Response> {
    let of = LogOf::Run(id, how.rank);
    streams::log(&app, &caller.actor, caller.ticket, of, how.follow.unwrap_or(false)).await
}
