//! The start form: what fits, what does not, and why.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::ProjectName;
use eirene_core::image::Image;
use eirene_core::scratch::ScratchKind;
use eirene_core::secret::Secret;
use eirene_http::extract::{CsrfForm, SignedIn};
use eirene_services::app::App;
use eirene_services::cluster::ClusterView;
use eirene_services::cluster::room::room;
use eirene_services::error::{AppError, FieldError};
use eirene_services::sessions::{IdempotencyKey, StartSession, fits};
use eirene_services::spaces::HomeTrouble;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::views::FormError;
use super::views::cluster::FreeView;
use super::views::layout::Place;
use super::views::presets::presets;
use super::views::scratch_form::unsaid;
use super::views::start::{Ground, HomeNotice, Sees, StartInput, StartPage};
use super::views::verdict::{Verdict, VerdictFragment};
use super::{Shown, layout, show, show_as, words};

/// The size the form begins with: that of the API's defaults.
pub(super) const FIRST_SIZE: &str = "small";

/// What can be started and on what.
pub(crate) struct Land {
    pub(crate) images: Vec<Image>,
    cluster: ClusterView,
    home: Option<HomeTrouble>,
    scratch: Vec<ScratchKind>,
    projects: Vec<ProjectName>,
}

impl Land {
    /// Reads the catalogue, the snapshot and what was last seen of the home; asks neither scheduler nor storage anything.
    pub(crate) async fn read(app: &App, signed_in: &SignedIn) -> Result<Self, AppError> {
        Ok(Self {
            images: app.images.list(&signed_in.actor).await?,
            cluster: app.overview.cluster(&signed_in.actor).await?,
            home: app.spaces.home_trouble(&signed_in.actor).await?,
            scratch: app.config.scratch.kinds(),
            projects: Vec::new(),
        })
    }

    /// The same with the person's projects, for which SLURM's accounting database may be asked.
    pub(crate) async fn with_projects(app: &App, signed_in: &SignedIn) -> Result<Self, AppError> {
        let land = Self::read(app, signed_in).await?;
        Ok(Self { projects: app.projects.of(&signed_in.actor.user.username).await, ..land })
    }

    /// For the views.
    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground {
            words: words(),
            images: &self.images,
            cluster: &self.cluster,
            scratch: &self.scratch,
            projects: &self.projects,
        }
    }

    /// What is free.
    pub(crate) fn free(&self) -> FreeView {
        FreeView::new(words(), &self.cluster.nodes, self.cluster.at, self.cluster.reachable)
    }

    /// What is the matter with the home.
    pub(crate) fn home(&self) -> Option<HomeNotice> {
        self.home.map(|trouble| HomeNotice::new(words(), trouble))
    }

    fn verdict(&self, input: &StartInput) -> Verdict {
        let resources = match (input.resources(words()), input.wanted_scratch(words())) {
            (Ok(resources), Ok(_)) => resources,
            (resources, scratch) => {
                let errors = [resources.err(), scratch.err()].into_iter().flatten().flatten();
                return Verdict::impossible(words(), errors.collect());
            }
        };
        if !self.cluster.reachable {
            return Verdict::unknown(words());
        }
        match fits(&resources, &self.cluster.as_snapshot()) {
            Ok(()) => Verdict::possible(words(), &room(&self.cluster, &resources), &resources, self.cluster.at),
            Err(errors) => Verdict::impossible(words(), form_errors(&errors)),
        }
    }

    fn page(
        &self,
        signed_in: &SignedIn,
        sees: Sees,
        input: &StartInput,
        size: &str,
        errors: Vec<FormError>,
    ) -> StartPage {
        let ground = self.ground();
        StartPage {
            layout: layout(signed_in, Place::Start, &words().get("start.page_title")),
            form: ground.form(input, &errors),
            presets: ground.presets(size, &String::new),
            free: self.free(),
            // What is wrong is said once, above the form.
            verdict: errors.is_empty().then(|| self.verdict(input)),
            errors,
            has_images: !self.images.is_empty(),
            home: self.home(),
            sees,
        }
    }
}

/// What will be seen of the person's spaces by what they start now.
pub(crate) async fn sees(app: &App, signed_in: &SignedIn) -> Result<Sees, AppError> {
    match app.spaces.in_sessions(signed_in.actor.user.id).await {
        Ok(known) => Ok(Sees::new(Some(&known))),
        // The form goes on without it: what is started waits by itself until it can be told.
        Err(AppError::Unavailable { .. }) => Ok(Sees::new(None)),
        Err(error) => Err(error),
    }
}

/// A key that makes two clicks one start.
pub(crate) fn new_key() -> String {
    Secret::generate().expose().to_owned()
}

pub(super) fn form_errors(errors: &[FieldError]) -> Vec<FormError> {
    errors.iter().map(|error| FormError::from_service(words(), error)).collect()
}

/// What the form begins with.
#[derive(Deserialize)]
pub(crate) struct Beginning {
    size: Option<String>,
    from: Option<String>,
}

/// `GET /sessions/new`
pub(crate) async fn page(State(app): State<App>, signed_in: SignedIn, Query(beginning): Query<Beginning>) -> Shown {
    let land = Land::with_projects(&app, &signed_in).await?;
    let ground = land.ground();
    let (mut size, mut errors) = (String::new(), Vec::new());
    let mut input = if let Some(id) = beginning.from.and_then(|id| id.parse().ok()) {
        let session = app.sessions.get(&signed_in.actor, id).await?;
        errors = unsaid(words(), session.scratch.as_ref());
        StartInput::again(&session)
    } else {
        let wanted = beginning.size.as_deref().unwrap_or(FIRST_SIZE);
        let sizes = presets(ground.cluster);
        let preset = sizes.iter().find(|preset| preset.code == wanted).or(sizes.first());
        size = preset.map(|preset| preset.code.clone()).unwrap_or_default();
        preset.map(|preset| StartInput::from_resources(&preset.resources)).unwrap_or_default()
    };
    input.key = new_key();
    let input = ground.with_defaults(input);
    Ok(show(&land.page(&signed_in, sees(&app, &signed_in).await?, &input, &size, errors))?.into_response())
}

/// `POST /sessions`: starts it, or shows the form again with what is wrong.
pub(crate) async fn start(State(app): State<App>, CsrfForm(signed_in, input): CsrfForm<StartInput>) -> Shown {
    let outcome = match wish(&input) {
        Ok((wish, key)) => match app.sessions.start(&signed_in.actor, wish, key).await {
            Ok((session, _)) => return Ok(Redirect::to(&format!("/sessions/{}", session.id)).into_response()),
            Err(AppError::Invalid(errors)) => form_errors(&errors),
            // Also the same key for another form: whoever came back and changed something gets a new key with it.
            Err(AppError::Conflict { text, .. } | AppError::Forbidden { text, .. }) => {
                vec![FormError::from_service(words(), &FieldError::new("", text))]
            }
            Err(error) => return Err(error.into()),
        },
        Err(errors) => errors,
    };
    let land = Land::with_projects(&app, &signed_in).await?;
    let mut again = land.ground().with_defaults(input);
    again.key = new_key();
    show_as(
        StatusCode::UNPROCESSABLE_ENTITY,
        &land.page(&signed_in, sees(&app, &signed_in).await?, &again, "", outcome),
    )
}

/// What the service is asked for.
fn wish(input: &StartInput) -> Result<(StartSession, Option<IdempotencyKey>), Vec<FormError>> {
    let (resources, scratch) = (input.resources(words()), input.wanted_scratch(words()));
    let mut errors = resources.as_ref().err().cloned().unwrap_or_default();
    errors.extend(scratch.as_ref().err().cloned().unwrap_or_default());
    let mut parse = |field: &str, problem: eirene_core::name::NameError| {
        errors.push(FormError::from_service(words(), &FieldError::no_name(field, problem)));
    };
    let name = match input.name.trim() {
        "" => None,
        text => text.parse().map_err(|error| parse("name", error)).ok(),
    };
    let app = input.app.parse().map_err(|error| parse("app", error)).ok();
    let image = input.image.parse().map_err(|error| parse("image", error)).ok();
    let project = match input.project.trim() {
        "" => None,
        text => text.parse().map_err(|error| parse("project", error)).ok(),
    };
    let (Ok(resources), Ok(scratch), Some(app), Some(image), true) =
        (resources, scratch, app, image, errors.is_empty())
    else {
        return Err(errors);
    };
    let key =
        (!input.key.is_empty()).then(|| IdempotencyKey { key: input.key.clone(), body_sha256: input.fingerprint() });
    Ok((StartSession { name, app, image, project, resources, scratch }, key))
}

impl StartInput {
    /// What is the same for two sendings of one form and differs when anything in it does.
    fn fingerprint(&self) -> String {
        let mut plain = self.clone();
        plain.key.clear();
        fingerprint(&plain)
    }
}

/// The same of any form without its key.
pub(super) fn fingerprint(form: &impl Serialize) -> String {
    let text = serde_json::to_vec(form).unwrap_or_default();
    data_encoding::HEXLOWER.encode(&Sha256::digest(text))
}

/// `POST /sessions/check`: the form again, with a verdict; for browsers without scripts.
pub(crate) async fn check(State(app): State<App>, CsrfForm(signed_in, input): CsrfForm<StartInput>) -> Shown {
    let land = Land::with_projects(&app, &signed_in).await?;
    Ok(show(&land.page(&signed_in, sees(&app, &signed_in).await?, &input, "", Vec::new()))?.into_response())
}

/// `POST /fragments/check`: the verdict alone.
pub(crate) async fn check_fragment(State(app): State<App>, CsrfForm(signed_in, input): CsrfForm<StartInput>) -> Shown {
    let land = Land::read(&app, &signed_in).await?;
    Ok(show(&VerdictFragment { verdict: land.verdict(&input) })?.into_response())
}
