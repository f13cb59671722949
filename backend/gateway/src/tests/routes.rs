//! Who may do what on every route. A route that is not in the table fails the test, and so does a line without a route.

use std::collections::{BTreeMap, BTreeSet};

use eirene_api::live;
use eirene_core::AlertId;
use eirene_core::alert::{Alert, AlertRule, AlertSeverity};
use eirene_services::files::path::AskedPath;
use serde_json::json;

use super::*;
use crate::{health, proxy};

/// Method, path, and the status for nobody, another person, the owner (`ada`, whose things the path names), an admin.
const TABLE: &[(&str, &str, [u16; 4])] = &[
    // For everybody.
    ("GET", "/static/{version}/{*name}", [404, 404, 404, 404]),
    ("GET", "/favicon.ico", [200, 200, 200, 200]),
    ("GET", "/healthz", [200, 200, 200, 200]),
    ("GET", "/readyz", [200, 200, 200, 200]),
    ("GET", "/metrics", [200, 200, 200, 200]),
    // Nobody has asked for them in the configuration.
    ("GET", "/metrics/sessions", [404, 404, 404, 404]),
    ("GET", "/metrics/sessions/{id}", [404, 404, 404, 404]),
    ("GET", "/login", [200, 303, 303, 303]),
    ("POST", "/login", [401, 401, 401, 401]),
    ("GET", "/api/v1/openapi.json", [200, 200, 200, 200]),
    // Pages of whoever is signed in.
    ("POST", "/logout", [401, 303, 303, 303]),
    ("GET", "/", [303, 200, 200, 200]),
    ("GET", "/fragments/sessions", [303, 200, 200, 200]),
    ("GET", "/fragments/free", [303, 200, 200, 200]),
    ("GET", "/sessions", [303, 200, 200, 200]),
    ("GET", "/sessions/new", [303, 200, 200, 200]),
    ("POST", "/sessions", [401, 422, 422, 422]),
    ("POST", "/sessions/check", [401, 200, 200, 200]),
    ("POST", "/fragments/check", [401, 200, 200, 200]),
    ("GET", "/account", [303, 200, 200, 200]),
    ("POST", "/account/tokens", [401, 422, 422, 422]),
    ("POST", "/account/password", [401, 422, 422, 422]),
    ("GET", "/live/events", [303, 200, 200, 200]),
    ("GET", "/live/cluster", [303, 200, 200, 200]),
    // Pages of what is in ada's home: hers alone.
    ("GET", "/spaces/{space}/files", [303, 404, 200, 404]),
    ("GET", "/spaces/{space}/files/entry", [303, 404, 200, 404]),
    ("POST", "/spaces/{space}/files/directories", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/files/move", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/files/copy", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/files/extract", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/files/trash", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/files/archive", [401, 404, 200, 404]),
    ("GET", "/spaces/{space}/files/permissions", [303, 404, 200, 404]),
    ("POST", "/spaces/{space}/files/permissions", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/files/permissions/list", [401, 404, 303, 404]),
    ("GET", "/spaces/{space}/trash", [303, 404, 200, 404]),
    ("GET", "/spaces/{space}/trash/empty", [303, 404, 200, 404]),
    ("POST", "/spaces/{space}/trash/empty", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/trash/{id}/restore", [401, 404, 303, 404]),
    ("GET", "/spaces/{space}/trash/{id}/delete", [303, 404, 200, 404]),
    ("POST", "/spaces/{space}/trash/{id}/delete", [401, 404, 303, 404]),
    // Files for pages: the same as the API's, by the log-in.
    ("GET", "/live/spaces/{space}/files", [303, 404, 200, 404]),
    ("GET", "/live/spaces/{space}/files/entry", [303, 404, 200, 404]),
    ("GET", "/live/spaces/{space}/files/content", [303, 404, 200, 404]),
    ("GET", "/live/spaces/{space}/files/archive", [303, 404, 200, 404]),
    ("GET", "/live/spaces/{space}/files/permissions", [303, 404, 200, 404]),
    ("PUT", "/live/spaces/{space}/files/permissions", [401, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/files/directories", [401, 404, 201, 404]),
    ("POST", "/live/spaces/{space}/files/move", [401, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/files/copy", [401, 404, 202, 404]),
    ("POST", "/live/spaces/{space}/files/trash", [401, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/files/delete", [401, 404, 202, 404]),
    ("POST", "/live/spaces/{space}/files/search", [401, 404, 202, 404]),
    ("GET", "/live/spaces/{space}/files/preview", [303, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/files/extract", [401, 404, 202, 404]),
    ("GET", "/live/spaces/{space}/scan", [303, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/scan", [401, 404, 202, 404]),
    ("GET", "/live/spaces/{space}/trash", [303, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/trash/{id}/restore", [401, 404, 200, 404]),
    ("DELETE", "/live/spaces/{space}/trash/{id}", [401, 404, 202, 404]),
    ("DELETE", "/live/spaces/{space}/trash", [401, 404, 202, 404]),
    ("GET", "/live/operations", [303, 200, 200, 200]),
    ("GET", "/live/operations/{id}", [303, 404, 200, 404]),
    ("DELETE", "/live/operations/{id}", [401, 404, 202, 404]),
    ("GET", "/live/operations/{id}/results", [303, 404, 200, 404]),
    ("POST", "/live/spaces/{space}/uploads", [401, 404, 201, 404]),
    ("HEAD", "/live/uploads/{id}", [401, 404, 200, 404]),
    ("PATCH", "/live/uploads/{id}", [401, 404, 409, 404]),
    ("DELETE", "/live/uploads/{id}", [401, 404, 204, 404]),
    // Pages of ada's session: the owner's and the admins', but only the owner reaches the app.
    ("GET", "/sessions/{id}", [303, 404, 200, 200]),
    ("GET", "/sessions/{id}/log", [303, 404, 200, 200]),
    ("GET", "/sessions/{id}/charts", [303, 404, 200, 200]),
    ("GET", "/sessions/{id}/stop", [303, 404, 200, 200]),
    ("POST", "/sessions/{id}/stop", [401, 404, 303, 303]),
    ("GET", "/sessions/{id}/open", [303, 404, 200, 404]),
    ("GET", "/open", [303, 404, 200, 404]),
    ("GET", "/fragments/sessions/{id}", [303, 404, 200, 200]),
    ("GET", "/fragments/sessions/{id}/usage", [303, 404, 200, 200]),
    ("GET", "/fragments/waiting/{id}", [303, 404, 200, 404]),
    ("GET", "/live/sessions/{id}", [303, 404, 200, 200]),
    ("GET", "/live/sessions/{id}/events", [303, 404, 200, 200]),
    ("GET", "/live/sessions/{id}/logs", [303, 404, 200, 200]),
    ("GET", "/live/sessions/{id}/samples", [303, 404, 200, 200]),
    ("GET", "/live/runs/{id}/samples", [303, 404, 200, 200]),
    // Pages of runs; only its owner starts one anew.
    ("GET", "/runs", [303, 200, 200, 200]),
    ("GET", "/fragments/runs", [303, 200, 200, 200]),
    ("GET", "/runs/new", [303, 200, 200, 200]),
    ("POST", "/runs", [401, 422, 422, 422]),
    ("GET", "/runs/{id}", [303, 404, 200, 200]),
    ("GET", "/runs/{id}/log", [303, 404, 200, 200]),
    ("GET", "/runs/{id}/charts", [303, 404, 200, 200]),
    ("GET", "/runs/{id}/cancel", [303, 404, 200, 200]),
    ("POST", "/runs/{id}/cancel", [401, 404, 303, 303]),
    ("GET", "/runs/{id}/requeue", [303, 404, 200, 404]),
    // Ada has as many runs by now as she may.
    ("POST", "/runs/{id}/requeue", [401, 404, 409, 403]),
    ("GET", "/fragments/runs/{id}", [303, 404, 200, 200]),
    ("GET", "/fragments/runs/{id}/usage", [303, 404, 200, 200]),
    ("GET", "/live/runs/{id}/events", [303, 404, 200, 200]),
    ("GET", "/live/runs/{id}/logs", [303, 404, 200, 200]),
    // Pages of spaces: ada's home is for others not there, and an admin sees what it uses.
    ("GET", "/spaces", [303, 200, 200, 200]),
    ("GET", "/fragments/old-files", [303, 200, 200, 200]),
    ("GET", "/fragments/spaces", [303, 200, 200, 200]),
    ("GET", "/spaces/{space}", [303, 404, 200, 200]),
    ("GET", "/fragments/spaces/{space}", [303, 404, 200, 200]),
    // What takes the room in it is hers alone.
    ("GET", "/spaces/{space}/sizes", [303, 404, 200, 404]),
    ("POST", "/spaces/{space}/sizes", [401, 404, 303, 404]),
    ("POST", "/spaces/{space}/sizes/stop", [401, 404, 303, 404]),
    ("GET", "/fragments/spaces/{space}/sizes", [303, 404, 200, 404]),
    ("POST", "/spaces/{space}/old-files", [401, 404, 409, 409]),
    // Alerts: one about ada's session; an admin may know of it too.
    ("GET", "/alerts", [303, 200, 200, 200]),
    ("GET", "/fragments/alerts", [303, 200, 200, 200]),
    ("POST", "/alerts/{id}/acknowledge", [401, 404, 303, 303]),
    // A form that says nothing silences nothing, and none of the ids that stand in these paths is a silence.
    ("POST", "/alerts/silences", [401, 422, 422, 422]),
    ("POST", "/alerts/silences/{id}/end", [401, 404, 404, 404]),
    ("GET", "/admin/alerts", [303, 404, 404, 200]),
    ("GET", "/fragments/admin/alerts", [303, 404, 404, 200]),
    ("POST", "/admin/alerts/silences", [401, 404, 404, 422]),
    // There is none.
    ("POST", "/admin/alerts/silences/{id}/end", [401, 404, 404, 404]),
    ("GET", "/api/v1/alerts", [401, 200, 200, 200]),
    ("GET", "/api/v1/alerts/{id}", [401, 404, 200, 200]),
    ("POST", "/api/v1/alerts/{id}/acknowledge", [401, 404, 200, 200]),
    ("GET", "/api/v1/alert-silences", [401, 403, 403, 200]),
    ("POST", "/api/v1/alert-silences", [401, 403, 403, 422]),
    ("DELETE", "/api/v1/alert-silences/{id}", [401, 403, 403, 404]),
    ("GET", "/api/v1/me/alert-silences", [401, 200, 200, 200]),
    ("POST", "/api/v1/me/alert-silences", [401, 422, 422, 422]),
    ("DELETE", "/api/v1/me/alert-silences/{id}", [401, 404, 404, 404]),
    ("GET", "/cluster", [303, 200, 200, 200]),
    ("GET", "/fragments/cluster", [303, 200, 200, 200]),
    // Pages of ada's token.
    ("GET", "/account/tokens/{id}/delete", [303, 404, 200, 404]),
    ("POST", "/account/tokens/{id}/delete", [401, 404, 303, 404]),
    // Pages that do not exist for those who are no admins.
    ("GET", "/admin/users", [303, 404, 404, 200]),
    ("POST", "/admin/users", [401, 404, 404, 422]),
    ("GET", "/admin/users/{username}/disable", [303, 404, 404, 200]),
    ("POST", "/admin/users/{username}/disable", [401, 404, 404, 303]),
    ("GET", "/admin/users/{username}/enable", [303, 404, 404, 200]),
    ("POST", "/admin/users/{username}/enable", [401, 404, 404, 303]),
    ("GET", "/admin/users/{username}/reset-password", [303, 404, 404, 200]),
    ("POST", "/admin/users/{username}/reset-password", [401, 404, 404, 200]),
    ("GET", "/admin/sessions", [303, 404, 404, 200]),
    ("GET", "/fragments/admin/sessions", [303, 404, 404, 200]),
    ("GET", "/admin/runs", [303, 404, 404, 200]),
    ("GET", "/fragments/admin/runs", [303, 404, 404, 200]),
    ("GET", "/admin/nodes", [303, 404, 404, 200]),
    ("GET", "/admin/nodes/{name}", [303, 404, 404, 200]),
    ("POST", "/admin/nodes/{name}/drain", [401, 404, 404, 422]),
    ("POST", "/admin/nodes/{name}/resume", [401, 404, 404, 303]),
    ("GET", "/admin/storage", [303, 404, 404, 200]),
    // Everybody's spaces; the one in the path is ada's home, which nobody changes here.
    ("GET", "/admin/efficiency", [303, 404, 404, 200]),
    ("GET", "/admin/storage/activity", [303, 404, 404, 200]),
    ("GET", "/admin/storage/quotas", [303, 404, 404, 200]),
    ("GET", "/fragments/admin/storage/activity", [303, 404, 404, 200]),
    ("GET", "/admin/storage/spaces", [303, 404, 404, 200]),
    ("POST", "/admin/storage/spaces", [401, 404, 404, 422]),
    ("GET", "/admin/storage/spaces/{space}", [303, 404, 404, 200]),
    ("POST", "/admin/storage/spaces/{space}", [401, 404, 404, 422]),
    ("GET", "/admin/storage/spaces/{space}/retire", [303, 404, 404, 409]),
    ("POST", "/admin/storage/spaces/{space}/retire", [401, 404, 404, 409]),
    ("POST", "/admin/storage/spaces/{space}/restore", [401, 404, 404, 409]),
    ("GET", "/admin/storage/spaces/{space}/policy", [303, 404, 404, 200]),
    ("POST", "/admin/storage/spaces/{space}/old-files", [401, 404, 404, 422]),
    ("GET", "/admin/health", [303, 404, 404, 200]),
    ("GET", "/fragments/admin/health", [303, 404, 404, 200]),
    ("GET", "/admin/audit", [303, 404, 404, 200]),
    // The API.
    ("GET", "/api/v1/me", [401, 200, 200, 200]),
    ("GET", "/api/v1/cluster", [401, 200, 200, 200]),
    ("GET", "/api/v1/cluster/history", [401, 200, 200, 200]),
    ("GET", "/api/v1/nodes", [401, 200, 200, 200]),
    ("POST", "/api/v1/nodes/{name}/drain", [401, 403, 403, 422]),
    ("POST", "/api/v1/nodes/{name}/resume", [401, 403, 403, 204]),
    ("GET", "/api/v1/nodes/{name}/history", [401, 403, 403, 200]),
    ("GET", "/api/v1/nodes/{name}/confinement", [401, 403, 403, 200]),
    ("GET", "/api/v1/nodes/{name}/zabbix", [401, 403, 403, 200]),
    ("GET", "/api/v1/images", [401, 200, 200, 200]),
    ("GET", "/api/v1/events", [401, 200, 200, 200]),
    ("GET", "/api/v1/tokens", [401, 200, 200, 200]),
    // A token is no password.
    ("POST", "/api/v1/tokens", [401, 401, 401, 401]),
    ("GET", "/api/v1/tokens/{id}", [401, 404, 200, 404]),
    ("DELETE", "/api/v1/tokens/{id}", [401, 404, 204, 404]),
    ("GET", "/api/v1/sessions", [401, 200, 200, 200]),
    // A body that says nothing starts what is usual; ada has as many sessions by now as she may.
    ("POST", "/api/v1/sessions", [401, 201, 409, 201]),
    ("GET", "/api/v1/sessions/{id}", [401, 404, 200, 200]),
    ("DELETE", "/api/v1/sessions/{id}", [401, 404, 202, 202]),
    ("GET", "/api/v1/sessions/{id}/events", [401, 404, 200, 200]),
    ("GET", "/api/v1/sessions/{id}/logs", [401, 404, 200, 200]),
    ("GET", "/api/v1/sessions/{id}/samples", [401, 404, 200, 200]),
    ("GET", "/api/v1/runs/{id}/samples", [401, 404, 200, 200]),
    // Neither has begun.
    ("GET", "/api/v1/sessions/{id}/efficiency", [401, 404, 404, 404]),
    ("GET", "/api/v1/runs/{id}/efficiency", [401, 404, 404, 404]),
    ("GET", "/api/v1/efficiency", [401, 403, 403, 200]),
    ("GET", "/api/v1/runs", [401, 200, 200, 200]),
    ("POST", "/api/v1/runs", [401, 422, 422, 422]),
    ("GET", "/api/v1/runs/{id}", [401, 404, 200, 200]),
    ("DELETE", "/api/v1/runs/{id}", [401, 404, 202, 202]),
    // Ada has as many runs by now as she may, and an admin repeats nobody else's.
    ("POST", "/api/v1/runs/{id}/requeue", [401, 404, 409, 403]),
    ("GET", "/api/v1/runs/{id}/events", [401, 404, 200, 200]),
    ("GET", "/api/v1/runs/{id}/logs", [401, 404, 200, 200]),
    ("GET", "/api/v1/spaces", [401, 200, 200, 200]),
    ("GET", "/api/v1/me/group-limits", [401, 200, 200, 200]),
    // Ada's home: for others there is none, and an admin sees what it uses.
    ("GET", "/api/v1/spaces/{space}", [401, 404, 200, 200]),
    ("GET", "/api/v1/spaces/{space}/usage", [401, 404, 200, 200]),
    // Of a home nothing becomes of old files.
    ("GET", "/api/v1/spaces/{space}/old-files", [401, 404, 200, 200]),
    ("POST", "/api/v1/spaces/{space}/old-files", [401, 404, 422, 422]),
    ("PATCH", "/api/v1/spaces/{space}/old-files", [401, 403, 403, 409]),
    // Spaces are made by admins, and homes by nobody here.
    ("POST", "/api/v1/spaces", [401, 403, 403, 422]),
    ("PATCH", "/api/v1/spaces/{space}", [401, 403, 403, 409]),
    ("DELETE", "/api/v1/spaces/{space}", [401, 403, 403, 409]),
    ("POST", "/api/v1/spaces/{space}/restore", [401, 403, 403, 409]),
    ("POST", "/api/v1/spaces/{space}/policy", [401, 403, 403, 422]),
    // What is in it is hers alone: admins have no right to files.
    ("GET", "/api/v1/spaces/{space}/files", [401, 404, 200, 404]),
    ("GET", "/api/v1/spaces/{space}/files/entry", [401, 404, 200, 404]),
    ("GET", "/api/v1/spaces/{space}/files/content", [401, 404, 200, 404]),
    ("GET", "/api/v1/spaces/{space}/files/archive", [401, 404, 200, 404]),
    ("GET", "/api/v1/spaces/{space}/files/preview", [401, 404, 200, 404]),
    ("GET", "/api/v1/spaces/{space}/files/permissions", [401, 404, 200, 404]),
    ("PUT", "/api/v1/spaces/{space}/files/permissions", [401, 404, 200, 404]),
    ("POST", "/api/v1/spaces/{space}/files/directories", [401, 404, 201, 404]),
    ("POST", "/api/v1/spaces/{space}/files/move", [401, 404, 200, 404]),
    ("POST", "/api/v1/spaces/{space}/files/copy", [401, 404, 202, 404]),
    ("POST", "/api/v1/spaces/{space}/files/extract", [401, 404, 202, 404]),
    ("POST", "/api/v1/spaces/{space}/files/trash", [401, 404, 200, 404]),
    ("POST", "/api/v1/spaces/{space}/files/delete", [401, 404, 202, 404]),
    ("POST", "/api/v1/spaces/{space}/files/search", [401, 404, 202, 404]),
    ("GET", "/api/v1/spaces/{space}/scan", [401, 404, 200, 404]),
    ("POST", "/api/v1/spaces/{space}/scan", [401, 404, 202, 404]),
    ("GET", "/api/v1/spaces/{space}/trash", [401, 404, 200, 404]),
    ("POST", "/api/v1/spaces/{space}/trash/{id}/restore", [401, 404, 200, 404]),
    ("DELETE", "/api/v1/spaces/{space}/trash/{id}", [401, 404, 202, 404]),
    ("DELETE", "/api/v1/spaces/{space}/trash", [401, 404, 202, 404]),
    ("GET", "/api/v1/operations", [401, 200, 200, 200]),
    ("GET", "/api/v1/operations/{id}", [401, 404, 200, 404]),
    ("DELETE", "/api/v1/operations/{id}", [401, 404, 202, 404]),
    ("GET", "/api/v1/operations/{id}/results", [401, 404, 200, 404]),
    // Into ada's home.
    ("OPTIONS", "/api/v1/spaces/{space}/uploads", [401, 204, 204, 204]),
    ("POST", "/api/v1/spaces/{space}/uploads", [401, 404, 201, 404]),
    // Ada's upload, which is finished.
    ("OPTIONS", "/api/v1/uploads/{id}", [401, 204, 204, 204]),
    ("HEAD", "/api/v1/uploads/{id}", [401, 404, 200, 404]),
    ("PATCH", "/api/v1/uploads/{id}", [401, 404, 409, 404]),
    ("DELETE", "/api/v1/uploads/{id}", [401, 404, 204, 404]),
    ("GET", "/api/v1/health", [401, 403, 403, 200]),
    ("GET", "/api/v1/storage", [401, 403, 403, 200]),
    ("GET", "/api/v1/storage/quotas", [401, 403, 403, 200]),
    ("GET", "/api/v1/storage/stats", [401, 403, 403, 200]),
    // A body that says nothing sets nothing; the storage of these tests has no default quotas.
    ("PUT", "/api/v1/storage/quotas/{of}/{number}", [401, 403, 403, 422]),
    ("GET", "/api/v1/storage/default-quotas/{pool}", [401, 403, 403, 409]),
    ("PUT", "/api/v1/storage/default-quotas/{pool}", [401, 403, 403, 422]),
    ("GET", "/api/v1/adopted-jobs", [401, 403, 403, 200]),
    ("GET", "/api/v1/audit", [401, 403, 403, 200]),
    ("GET", "/api/v1/users", [401, 403, 403, 200]),
    ("POST", "/api/v1/users", [401, 403, 403, 422]),
    ("POST", "/api/v1/users/{username}/disable", [401, 403, 403, 200]),
    ("POST", "/api/v1/users/{username}/enable", [401, 403, 403, 200]),
    ("POST", "/api/v1/users/{username}/reset-password", [401, 403, 403, 200]),
];

/// The same on the origin of ada's session, for what is not the app's: who may enter is said by the one-time code alone, and only the
/// portal's own page may bring it.
const ORIGIN_TABLE: &[(&str, &str, [u16; 4])] =
    &[("POST", "/.eirene/enter", [403, 403, 403, 403]), ("GET", "/.eirene/style.css", [200, 200, 200, 200])];

/// What a path can be asked for.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// Everything the router knows, by the lists it is built of.
fn routes() -> BTreeSet<(String, String)> {
    let pages = eirene_portal::ROUTES.iter().chain(live::ROUTES).chain(live::files::ROUTES);
    let pages = pages.chain(live::files::uploads::ROUTES).chain(health::ROUTES);
    let mut all: BTreeSet<(String, String)> =
        pages.map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    let document = serde_json::to_value(eirene_api::parts().1).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|key| METHODS.contains(&key.as_str())) {
            all.insert((method.to_uppercase(), path.clone()));
        }
    }
    all
}

#[test]
fn every_route_has_its_line_and_every_line_its_route() {
    let owned = |(method, path): &(&str, &str)| ((*method).to_owned(), (*path).to_owned());
    for (table, routes) in [(TABLE, routes()), (ORIGIN_TABLE, proxy::ROUTES.iter().map(owned).collect())] {
        let in_table: BTreeSet<(String, String)> =
            table.iter().map(|(method, path, _)| owned(&(*method, *path))).collect();
        let missing: Vec<_> = routes.difference(&in_table).collect();
        let stale: Vec<_> = in_table.difference(&routes).collect();
        assert!(missing.is_empty() && stale.is_empty(), "not in the table: {missing:#?}; no longer there: {stale:#?}");
        assert_eq!(in_table.len(), table.len(), "a route is in the table twice");
    }
}

/// Fills a path with ada's things.
async fn fill(server: &Server, ada: &Person, path: &str) -> String {
    let mut path = path.replace("{username}", "ada").replace("{version}/{*name}", "0/nothing.css");
    if path.contains("/tokens/{id}") {
        let new = NewToken { name: "one".into(), scopes: None, expires_in_s: None };
        let made = server.test.app.tokens.create(&ada.actor, new).await.unwrap();
        path = path.replace("{id}", &made.token.id.to_string());
    }
    path = path.replace("{of}/{number}", "user/2001").replace("{pool}", "1");
    if path.contains("/nodes/{name}") {
        path = path.replace("{name}", "c1");
    }
    if path.contains("/uploads/{id}") {
        path = path.replace("{id}", &uploads::finished(server, ada).await.to_string());
    }
    if path.contains("{space}") {
        path = path.replace("{space}", server.test.app.spaces.list(&ada.actor).await.unwrap()[0].space.name.as_str());
    }
    if path.contains("/files") || path.contains("/trash") {
        // Whatever a line before has moved or removed is there again.
        for name in ["a", "b"] {
            std::fs::write(server.test.directory.path().join("home/ada").join(name), "x").unwrap();
        }
        let _ = std::fs::remove_file(server.test.directory.path().join("home/ada/c"));
        if !path.ends_with("/files") && !path.ends_with("/trash") {
            path.push_str("?path=a");
        }
    }
    if path.contains("/trash/{id}") {
        let space = "home".parse().unwrap();
        let a = AskedPath::new("path", Some("a".into()), None);
        let thrown = server.test.app.files.trash_each(&ada.actor, &space, &[a], &|| {}).await.unwrap();
        path = path.replace("{id}", &thrown.done[0].1.to_string()).replace("?path=a", "");
    }
    if path.contains("/operations/{id}") {
        let (space, all) = ("home".parse().unwrap(), AskedPath::default());
        let operations = &server.test.app.operations;
        let id = server.test.app.scans.start(&ada.actor, &space, &all).await.unwrap().id;
        while !operations.get(&ada.actor, id).await.unwrap().state.is_final() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        path = path.replace("{id}", &id.to_string());
    }
    if path.contains("/alerts/{id}") {
        path = path.replace("{id}", &raised(server, ada).await.to_string());
    }
    if path.contains("/runs/{id}") {
        path = path.replace("{id}", &server.run(ada).await.id.to_string());
    }
    if path.contains("{id}") || path == "/open" {
        let session = server.session(ada).await;
        path = path.replace("{id}", &session.id.to_string());
        if path == "/open" {
            path = format!("/open?session={}", session.id);
        }
    }
    path
}

/// An alert about a session of ada's that goes on.
async fn raised(server: &Server, ada: &Person) -> AlertId {
    let session = server.session(ada).await;
    let alert = Alert {
        id: AlertId::generate(),
        rule: AlertRule::GpuLost,
        severity: AlertSeverity::Critical,
        subject: AlertId::generate().to_string(),
        session: Some(session.id),
        owner: Some(session.owner),
        value: 1.0,
        details: BTreeMap::new(),
        started_at: session.created_at,
        ended_at: None,
        acknowledged: None,
    };
    server.test.app.db.insert_alert(&alert).await.unwrap();
    alert.id
}

/// A body that says nothing, or where nothing can be said so, as little as can.
pub(super) fn body(path: &str) -> Value {
    let place = path.split('?').next().unwrap_or_default();
    match place.rsplit_once("/files/").map_or("", |(_, verb)| verb) {
        "directories" => json!({"path": "d", "parents": true}),
        "move" | "copy" => json!({"items": [{"path": "b", "to": "c"}]}),
        "extract" => json!({"path": "a", "to": "e"}),
        "trash" => json!({"paths": ["a"]}),
        "delete" => json!({"paths": ["z"], "sure": true}),
        "search" => json!({"name": "a"}),
        "permissions" => json!({"path": "a", "mode": "0600"}),
        _ => json!({}),
    }
}

/// What a form about files says: as little as can be said.
fn fields(path: &str) -> &'static [(&'static str, &'static str)] {
    let place = path.split('?').next().unwrap_or_default();
    match place.rsplit_once("/files/").map_or("", |(_, verb)| verb) {
        "directories" => &[("raw", ""), ("name", "e")],
        // `b` as base64url.
        "move" | "copy" => &[("raw", "Yg"), ("to", "c"), ("on_conflict", "refuse")],
        // Of `a`, by another name than the request for programs has.
        "extract" => &[("raw", "YQ"), ("to", "f"), ("on_conflict", "refuse")],
        "trash" => &[("raw", "YQ")],
        "archive" => &[("raw", "YQ"), ("format", "zip")],
        "permissions" => &[("raw", "YQ"), ("share", "private")],
        "permissions/list" => &[
            ("raw", "YQ"),
            ("who", "owner"),
            ("may", "rw-"),
            ("who", "owning_group"),
            ("may", "r--"),
            ("who", "other"),
            ("may", "---"),
        ],
        _ => &[],
    }
}

/// The request as each of the four sends it: a body that says nothing, with the credentials this part of the site knows.
fn ask(method: &str, path: &str, person: Option<&Person>) -> Ask {
    let ask = Ask::new(method, path);
    if ["/live/spaces/", "/live/uploads/", "/live/operations"].iter().any(|mount| path.starts_with(mount)) {
        let ask = match method {
            _ if path.contains("/uploads") => uploads::speaks(ask),
            "POST" | "PUT" => ask.json(&body(path)),
            _ => ask,
        };
        return match person {
            Some(person) => ask.script(person),
            None => ask.with("origin", PORTAL_ORIGIN),
        };
    }
    let program = path.starts_with("/api/");
    match (person, method, program) {
        (None, "POST", false) => {
            ask.with("content-type", FORM).with("origin", PORTAL_ORIGIN).body("username=x&password=x")
        }
        (None, "POST" | "PUT", true) => ask.json(&serde_json::json!({})),
        (None, _, _) => ask,
        (Some(_), "POST", _) if path == "/login" => {
            ask.with("content-type", FORM).with("origin", PORTAL_ORIGIN).body("username=x&password=x")
        }
        (Some(person), "POST", false) => ask.form(person, fields(path)),
        (Some(person), _, true) if path.contains("/uploads") => uploads::speaks(ask).bearer(person),
        (Some(person), "POST" | "PUT" | "PATCH", true) => ask.bearer(person).json(&body(path)),
        (Some(person), _, true) => ask.bearer(person),
        (Some(person), _, false) => ask.cookie(person),
    }
}

#[tokio::test]
async fn every_route_answers_each_of_the_four_as_the_table_says() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(files::real()).await;
    // What runs are of, which are started again.
    std::fs::create_dir(home.join("work")).unwrap();
    std::fs::write(home.join("work/train.py"), "").unwrap();
    let (grace, admin) = (server.grace().await, server.admin().await);
    let mut wrong = Vec::new();
    for (method, path, expected) in TABLE {
        let mut got = [0; 4];
        for (status, user) in got.iter_mut().zip([None, Some(&grace), Some(&ada), Some(&admin)]) {
            // Whatever a line before has ended is there again, and nothing piles up.
            server.test.app.db.replace_password(ada.actor.user.id, "another", None, &entry()).await.unwrap();
            server
                .test
                .app
                .db
                .set_user_state(ada.actor.user.id, eirene_core::UserState::Active, &entry())
                .await
                .unwrap();
            let owner = server.sign_in(ada.actor.user.clone()).await;
            let path = fill(&server, &owner, path).await;
            let person = match user {
                Some(person) if person.actor.user.id == ada.actor.user.id => {
                    Some(server.sign_in(ada.actor.user.clone()).await)
                }
                Some(person) => {
                    server.test.app.db.replace_password(person.actor.user.id, "another", None, &entry()).await.unwrap();
                    Some(server.sign_in(person.actor.user.clone()).await)
                }
                None => None,
            };
            *status = server.open(ask(method, &path, person.as_ref()).to(PORTAL)).await.status().as_u16();
        }
        if got != *expected {
            wrong.push(format!("{method} {path}: {got:?} and not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn every_route_of_a_sessions_origin_answers_each_of_the_four_as_the_table_says() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let session = server.session(&ada).await.id;
    for (method, path, expected) in ORIGIN_TABLE {
        for (expected, person) in expected.iter().zip([None, Some(&grace), Some(&ada), Some(&admin)]) {
            let mut ask = Ask::new(method, path);
            if let Some(person) = person {
                ask = ask.bearer(person).cookie(person);
            }
            let answer = server.app(session, ask).await;
            assert_eq!(answer.status.as_u16(), *expected, "{method} {path}: {}", answer.body);
        }
    }
    assert_eq!(server.apps.opened(), 0, "these paths are not the app's");
}
