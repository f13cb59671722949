//! The portal: pages for people, rendered on the server, made livelier by small modules, whole without them.
//!
//! A handler reads the request, calls one service and shows a [view](views). Words come from one catalogue (`eirene-words`), widgets from
//! components below `frontend/templates`. What programs need is the API's; what keeps a page true is the live feed's, both next door.

mod account;
mod admin;
mod alerts;
mod assets;
mod charts;
mod cluster;
mod dashboard;
mod files;
#[cfg(test)]
mod handler_tests;
mod history;
mod login;
mod pages;
mod runs;
pub mod samples;
mod session;
mod sizes;
mod spaces;
mod start;
#[cfg(test)]
mod tests;
mod views;

use std::sync::LazyLock;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use eirene_http::extract::SignedIn;
use eirene_http::problem::HttpError;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_words::words;
use jiff::Timestamp;
use serde::Deserialize;

use self::pages::{Page, Pages};
use self::views::layout::{Layout, Notice, Place, Tone};
use self::views::session::sentence;
use self::views::simple::ErrorPage;

/// What a handler answers.
type Shown = Result<Response, HttpError>;

/// Templates: constants of the binary, parsed on first use, which is when the router is built.
#[expect(clippy::expect_used, reason = "embedded in the binary; a test loads and renders them all")]
static PAGES: LazyLock<Pages> = LazyLock::new(|| Pages::load().expect("the embedded templates are good"));

/// Shows a view.
fn show<P: Page>(page: &P) -> Result<Html<String>, HttpError> {
    Ok(PAGES.render(page).map_err(|error| AppError::Internal(error.into()))?)
}

/// Shows a view with another status than 200.
fn show_as<P: Page>(status: StatusCode, page: &P) -> Shown {
    Ok((status, show(page)?).into_response())
}

/// The frame around a page for whoever is signed in.
fn layout(signed_in: &SignedIn, place: Place, title: &str) -> Layout {
    Layout::for_user(words(), &signed_in.actor.user, &signed_in.csrf, place, title)
}

fn now(app: &App) -> Timestamp {
    app.clock.now()
}

/// What has just been done, carried over a redirection by its code alone.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Done {
    done: Option<String>,
}

impl Done {
    /// The notice for it; a code nobody knows says nothing.
    fn notice(&self) -> Option<Notice> {
        let key = match self.done.as_deref()? {
            "stopping" => "notice.stopping",
            "cancelling" => "notice.cancelling",
            "requeued" => "notice.requeued",
            "token_deleted" => "notice.token_deleted",
            "password_changed" => "notice.password_changed",
            "disabled" => "notice.disabled",
            "enabled" => "notice.enabled",
            "logged_out" => "notice.logged_out",
            "made" => "notice.made",
            "moved" => "notice.moved",
            "moving" => "notice.moving",
            "copying" => "notice.copying",
            "unpacking" => "notice.unpacking",
            "trashed" => "notice.trashed",
            "restored" => "notice.restored",
            "deleting" => "notice.deleting",
            "permissions" => "notice.permissions",
            "permissions_below" => "notice.permissions_below",
            "space_wished" => "notice.space_wished",
            "space_changed" => "notice.space_changed",
            "old_files_looking" => "notice.old_files_looking",
            "old_files_rule" => "notice.old_files_rule",
            "space_retiring" => "notice.space_retiring",
            "space_restoring" => "notice.space_restoring",
            "acknowledged" => "notice.acknowledged",
            "silenced" => "notice.silenced",
            "silence_ended" => "notice.silence_ended",
            "own_silenced" => "notice.own_silenced",
            "own_silence_ended" => "notice.own_silence_ended",
            "node_draining" => "notice.node_draining",
            "node_resuming" => "notice.node_resuming",
            _ => return None,
        };
        Some(Notice { tone: Tone::Good, text: words().get(key) })
    }
}

/// An error as a page. Texts of ours are shown; where a text could tell what should stay untold, the catalogue's is.
pub fn error_page(status: StatusCode, text: &str, request_id: &str) -> Response {
    let words = words();
    let number = status.as_u16();
    let general = || if status.is_server_error() { "500" } else { "400" }.to_owned();
    let title = words
        .find(&format!("error.title_{number}"))
        .map_or_else(|| words.get(&format!("error.title_{}", general())), ToOwned::to_owned);
    let text = match words.find(&format!("error.text_{number}")) {
        Some(known) => known.to_owned(),
        None if status.is_server_error() => words.get("error.text_500"),
        None => sentence(text),
    };
    let layout = Layout::for_nobody(words, &title);
    let page = ErrorPage { layout, status: number, title, text, request_id: request_id.to_owned() };
    match PAGES.render(&page) {
        Ok(html) => (status, html).into_response(),
        Err(error) => {
            tracing::error!(%error, "The error page could not be shown");
            status.into_response()
        }
    }
}

/// The portal's pages, fragments and static files.
pub fn router() -> Router<App> {
    routes().layer(axum::Extension(PAGES.assets().clone()))
}

eirene_http::listed_routes! {
    GET "/static/{version}/{*name}" => assets::file;
    GET "/favicon.ico" => assets::favicon;

    GET "/login" => login::page;
    POST "/login" => login::log_in;
    POST "/logout" => login::log_out;

    GET "/" => dashboard::page;
    GET "/fragments/sessions" => dashboard::sessions_fragment;
    GET "/fragments/free" => dashboard::free_fragment;

    GET "/sessions" => history::page;
    GET "/sessions/new" => start::page;
    POST "/sessions" => start::start;
    POST "/sessions/check" => start::check;
    POST "/fragments/check" => start::check_fragment;

    GET "/sessions/{id}" => session::page;
    GET "/sessions/{id}/charts" => charts::of_session;
    GET "/sessions/{id}/log" => session::log;
    GET "/sessions/{id}/stop" => session::stop_page;
    POST "/sessions/{id}/stop" => session::stop;
    GET "/sessions/{id}/open" => session::open;
    GET "/open" => session::open_from_origin;
    GET "/fragments/sessions/{id}" => session::fragment;
    GET "/fragments/sessions/{id}/usage" => session::usage_fragment;
    GET "/fragments/waiting/{id}" => session::waiting_fragment;

    GET "/runs" => runs::list;
    GET "/runs/new" => runs::form;
    POST "/runs" => runs::start;
    GET "/runs/{id}" => runs::page;
    GET "/runs/{id}/charts" => charts::of_run;
    GET "/runs/{id}/log" => runs::log;
    GET "/runs/{id}/cancel" => runs::cancel_page;
    POST "/runs/{id}/cancel" => runs::cancel;
    GET "/runs/{id}/requeue" => runs::requeue_page;
    POST "/runs/{id}/requeue" => runs::requeue;
    GET "/fragments/runs" => runs::list_fragment;
    GET "/fragments/runs/{id}" => runs::fragment;
    GET "/fragments/runs/{id}/usage" => runs::usage_fragment;

    GET "/spaces/{space}/files" => files::page;
    GET "/spaces/{space}/files/entry" => files::entry;
    POST "/spaces/{space}/files/directories" => files::make_directory;
    POST "/spaces/{space}/files/move" => files::move_to;
    POST "/spaces/{space}/files/copy" => files::copy;
    POST "/spaces/{space}/files/extract" => files::extract;
    POST "/spaces/{space}/files/trash" => files::throw_away;
    POST "/spaces/{space}/files/archive" => files::archive;
    GET "/spaces/{space}/files/permissions" => files::permissions_page;
    POST "/spaces/{space}/files/permissions" => files::change_permissions;
    POST "/spaces/{space}/files/permissions/list" => files::set_list;
    GET "/spaces/{space}/trash" => files::trash_page;
    GET "/spaces/{space}/trash/empty" => files::empty_page;
    POST "/spaces/{space}/trash/empty" => files::empty;
    POST "/spaces/{space}/trash/{id}/restore" => files::restore;
    GET "/spaces/{space}/trash/{id}/delete" => files::delete_page;
    POST "/spaces/{space}/trash/{id}/delete" => files::delete;

    GET "/spaces" => spaces::list;
    GET "/spaces/{space}" => spaces::page;
    GET "/fragments/old-files" => spaces::promised_fragment;
    GET "/fragments/spaces" => spaces::list_fragment;
    GET "/fragments/spaces/{space}" => spaces::fragment;
    GET "/spaces/{space}/sizes" => sizes::page;
    POST "/spaces/{space}/sizes" => sizes::start;
    POST "/spaces/{space}/sizes/stop" => sizes::stop;
    POST "/spaces/{space}/old-files" => spaces::look_for_old_files;
    GET "/fragments/spaces/{space}/sizes" => sizes::fragment;

    GET "/cluster" => cluster::page;
    GET "/fragments/cluster" => cluster::fragment;

    GET "/alerts" => alerts::page;
    GET "/fragments/alerts" => alerts::fragment;
    POST "/alerts/{id}/acknowledge" => alerts::acknowledge;
    POST "/alerts/silences" => alerts::silence_own;
    POST "/alerts/silences/{id}/end" => alerts::end_own_silence;

    GET "/account" => account::page;
    POST "/account/tokens" => account::make_token;
    GET "/account/tokens/{id}/delete" => account::delete_token_page;
    POST "/account/tokens/{id}/delete" => account::delete_token;
    POST "/account/password" => account::change_password;

    GET "/admin/users" => admin::people::page;
    POST "/admin/users" => admin::people::add;
    GET "/admin/users/{username}/disable" => admin::people::disable_page;
    POST "/admin/users/{username}/disable" => admin::people::disable;
    GET "/admin/users/{username}/enable" => admin::people::enable_page;
    POST "/admin/users/{username}/enable" => admin::people::enable;
    GET "/admin/users/{username}/reset-password" => admin::people::reset_page;
    POST "/admin/users/{username}/reset-password" => admin::people::reset;
    GET "/admin/sessions" => admin::sessions::page;
    GET "/fragments/admin/sessions" => admin::sessions::fragment;
    GET "/admin/runs" => admin::runs::page;
    GET "/fragments/admin/runs" => admin::runs::fragment;
    GET "/admin/nodes" => admin::nodes::page;
    GET "/admin/nodes/{name}" => admin::nodes::one;
    POST "/admin/nodes/{name}/drain" => admin::nodes::drain;
    POST "/admin/nodes/{name}/resume" => admin::nodes::resume;
    GET "/admin/efficiency" => admin::efficiency::page;
    GET "/admin/storage" => admin::storage::page;
    GET "/admin/storage/activity" => admin::activity::page;
    GET "/admin/storage/quotas" => admin::quotas::page;
    GET "/fragments/admin/storage/activity" => admin::activity::fragment;
    GET "/admin/storage/spaces" => admin::spaces::page;
    POST "/admin/storage/spaces" => admin::spaces::make;
    GET "/admin/storage/spaces/{space}" => admin::spaces::one;
    POST "/admin/storage/spaces/{space}" => admin::spaces::change;
    GET "/admin/storage/spaces/{space}/retire" => admin::spaces::retire_page;
    POST "/admin/storage/spaces/{space}/retire" => admin::spaces::retire;
    POST "/admin/storage/spaces/{space}/restore" => admin::spaces::restore;
    GET "/admin/storage/spaces/{space}/policy" => admin::spaces::policy;
    POST "/admin/storage/spaces/{space}/old-files" => admin::spaces::change_old_files;
    GET "/admin/alerts" => alerts::all;
    GET "/fragments/admin/alerts" => alerts::all_fragment;
    POST "/admin/alerts/silences" => alerts::silence;
    POST "/admin/alerts/silences/{id}/end" => alerts::end_silence;
    GET "/admin/health" => admin::health::page;
    GET "/fragments/admin/health" => admin::health::fragment;
    GET "/admin/audit" => admin::audit::page;
}
