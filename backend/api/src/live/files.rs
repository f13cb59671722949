//! Files for the portal's pages: the API's own handlers, mounted a second time. Here they know the log-in's cookie and no token, and whatever
//! changes something needs an origin of ours and the log-in's form token. What is asked and answered is the API's in every word, but for
//! the addresses in `Location`, which stay on this side.

use axum::Router;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use eirene_http::extract::{FromPage, SignedIn};
use eirene_http::problem::HttpError;
use eirene_http::request::{CausedBy, SEC_FETCH_SITE, caused_by};
use eirene_services::app::App;
use eirene_services::uploads::discard;
use eirene_words::say;
use http::{HeaderValue, Method, StatusCode, header};

use crate::tus;
use crate::{changes, files, operations, permissions, scans, trash};

/// Where the API's handlers say that something is.
const API: &str = "/api/v1/";
/// Where it is for pages.
const LIVE: &str = "/live/";

/// The router.
pub fn router(app: &App) -> Router<App> {
    let uploads = uploads::router().layer(from_fn_with_state(app.clone(), for_pages)).layer(from_fn(tus::speak));
    routes().layer(from_fn_with_state(app.clone(), for_pages)).merge(uploads)
}

eirene_http::listed_routes! {
    GET "/live/spaces/{space}/files" => files::list;
    GET "/live/spaces/{space}/files/entry" => files::entry;
    GET "/live/spaces/{space}/files/content" => files::content;
    GET "/live/spaces/{space}/files/archive" => files::archive;
    GET "/live/spaces/{space}/files/preview" => files::preview;
    POST "/live/spaces/{space}/files/search" => files::search;
    POST "/live/spaces/{space}/files/directories" => changes::make_directory;
    POST "/live/spaces/{space}/files/move" => changes::move_files;
    POST "/live/spaces/{space}/files/copy" => changes::copy;
    POST "/live/spaces/{space}/files/delete" => changes::delete;
    POST "/live/spaces/{space}/files/extract" => changes::extract;
    POST "/live/spaces/{space}/files/trash" => trash::put;
    GET "/live/spaces/{space}/files/permissions" => permissions::show;
    PUT "/live/spaces/{space}/files/permissions" => permissions::set;
    GET "/live/spaces/{space}/scan" => scans::show;
    POST "/live/spaces/{space}/scan" => scans::start;
    GET "/live/spaces/{space}/trash" => trash::list;
    DELETE "/live/spaces/{space}/trash" => trash::empty;
    POST "/live/spaces/{space}/trash/{id}/restore" => trash::restore;
    DELETE "/live/spaces/{space}/trash/{id}" => trash::remove;
    GET "/live/operations" => operations::list;
    GET "/live/operations/{id}" => operations::show;
    DELETE "/live/operations/{id}" => operations::cancel;
    GET "/live/operations/{id}/results" => operations::results;
}

/// Uploads: each answer of theirs says the protocol's version.
pub mod uploads {
    use axum::Router;
    use eirene_services::app::App;

    use crate::uploads;

    /// The router.
    pub(super) fn router() -> Router<App> {
        routes()
    }

    eirene_http::listed_routes! {
        POST "/live/spaces/{space}/uploads" => uploads::create;
        HEAD "/live/uploads/{id}" => uploads::look;
        PATCH "/live/uploads/{id}" => uploads::append;
        DELETE "/live/uploads/{id}" => uploads::end;
    }
}

/// Lets a request through as the person whose log-in it carries. That what changes something comes from a page of ours has been checked
/// for all of `/live/` by now; here reading is refused too where the browser says that another site causes it.
async fn for_pages(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let person = match SignedIn::from_request_parts(&mut parts, &app).await {
        Ok(person) => person,
        Err(response) => {
            discard(&mut body.into_data_stream()).await;
            return response;
        }
    };
    let foreign = caused_by(&parts.headers, app.config.portal_origin()) == CausedBy::Foreign;
    let typed = parts.headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "none");
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let refused = if foreign && !(typed && reads) {
        Some(HttpError::new(StatusCode::FORBIDDEN, "foreign_origin", say("problem.foreign_page")))
    } else if !reads && !person.sent_form_token(&parts.headers) {
        Some(HttpError::new(StatusCode::FORBIDDEN, "form_token", say("problem.form_token")))
    } else {
        None
    };
    if let Some(error) = refused {
        // Whoever still sends does not hear the answer.
        discard(&mut body.into_data_stream()).await;
        return error.into_response();
    }
    parts.extensions.insert(FromPage::new(person));
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if let Some(place) = response.headers().get(header::LOCATION).and_then(of_pages) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// An address of the API's as pages ask for it; none for any other.
fn of_pages(place: &HeaderValue) -> Option<HeaderValue> {
    let rest = place.to_str().ok()?.strip_prefix(API)?;
    HeaderValue::try_from(format!("{LIVE}{rest}")).ok()
}
