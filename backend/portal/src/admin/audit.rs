//! The audit log, newest first, filtered by who and what.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_http::extract::SignedInAdmin;
use eirene_services::app::App;
use eirene_services::audit::AuditQuery;
use serde::Deserialize;

use super::encode;
use crate::views::Field;
use crate::views::admin::{AuditPage, AuditView};
use crate::views::layout::Place;
use crate::{Shown, layout, show, words};

/// Lines on one page.
const PAGE: u32 = 50;

/// Which lines.
#[derive(Deserialize)]
pub(crate) struct Part {
    before: Option<i64>,
    #[serde(default)]
    actor: String,
    #[serde(default)]
    action: String,
}

impl Part {
    fn href(&self, before: Option<i64>) -> String {
        let href = format!("/admin/audit?actor={}&action={}", encode(self.actor.trim()), encode(self.action.trim()));
        match before {
            Some(before) => format!("{href}&before={before}"),
            None => href,
        }
    }
}

fn given(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// `GET /admin/audit`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let query = AuditQuery { before: part.before, limit: PAGE, actor: given(&part.actor), action: given(&part.action) };
    let events = app.audit.list(&me.actor, query).await?;
    let full = events.len() == PAGE as usize;
    let page = AuditPage {
        layout: layout(&me, Place::Audit, &words().get("audit.title")),
        older_href: events.last().filter(|_| full).map(|last| part.href(Some(last.id))).unwrap_or_default(),
        newest_href: if part.before.is_some() { part.href(None) } else { String::new() },
        events: events.iter().map(|event| AuditView::new(words(), event)).collect(),
        actor: Field::new(part.actor.trim()),
        action: Field::new(part.action.trim()),
    };
    Ok(show(&page)?.into_response())
}
