//! What people and groups use of the storage and may use, by number.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_core::storage::{Ability, QuotaOf, Why};
use eirene_http::extract::{SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::AppError;
use serde::Deserialize;

use crate::views::Field;
use crate::views::layout::Place;
use crate::views::quotas::{AskedFor, Outcome, QuotasPage};
use crate::views::session::sentence;
use crate::{Shown, layout, show, words};

/// Whose quotas, as it was typed.
#[derive(Deserialize)]
pub(crate) struct Which {
    #[serde(default)]
    of: String,
    #[serde(default)]
    first: String,
    #[serde(default)]
    last: String,
}

/// `GET /admin/storage/quotas`
pub(crate) async fn page(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Query(which): Query<Which>,
) -> Shown {
    let mut asked = AskedFor {
        groups: which.of == "group",
        first: Field::new(which.first.trim()),
        last: Field::new(which.last.trim()),
    };
    let outcome = ask(&app, &me, &mut asked).await?;
    let report = app.storage.report(&me.actor)?;
    let pools = report.snapshot.pools.got().map_or(&[][..], |pools| &pools.value);
    let names = app.accounts.names(&me.actor, &outcome.users()).await?;
    let layout = layout(&me, Place::Storage, &words().get("quotas.title"));
    // Where it is not known, whoever tries is told.
    let can = report.snapshot.capabilities.as_ref();
    let sets = can.is_none_or(|can| !matches!(can.quota_write, Ability::No(Why::NotSupported | Why::Unlicensed)));
    Ok(show(&QuotasPage::new(words(), layout, asked, &outcome, pools, &names, sets))?.into_response())
}

/// Asks the storage, and notes beside the fields what is wrong with them.
async fn ask(app: &App, me: &SignedIn, asked: &mut AskedFor) -> Result<Outcome, AppError> {
    if asked.first.value.is_empty() && asked.last.value.is_empty() {
        return Ok(Outcome::NotAsked);
    }
    let first = number(&mut asked.first);
    let last = if asked.last.value.is_empty() { first } else { number(&mut asked.last) };
    let (Some(first), Some(last)) = (first, last) else { return Ok(Outcome::NotAsked) };
    let of = if asked.groups { QuotaOf::Group } else { QuotaOf::User };
    match app.storage.quotas(&me.actor, of, first, last).await {
        Ok(quotas) => Ok(Outcome::Told(quotas)),
        Err(AppError::Invalid(errors)) => {
            asked.last.error = errors.first().map(|error| sentence(&error.message)).unwrap_or_default();
            Ok(Outcome::NotAsked)
        }
        Err(AppError::Unavailable { what, .. }) => {
            let text = words().fill("problem.unavailable", &[("what", what.as_str())]);
            Ok(Outcome::Trouble(sentence(&text)))
        }
        Err(error) => Err(error),
    }
}

fn number(field: &mut Field) -> Option<u32> {
    let number = field.value.parse().ok();
    if number.is_none() {
        field.error = words().get("quotas.wrong_number");
    }
    number
}
