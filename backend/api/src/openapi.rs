//! The document that describes the API, OpenAPI 3.1: made of the handlers, with what all of them have in common added in
//! one place, so that it says every status a request can meet.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use eirene_http::problem::Problem;
use eirene_services::error::FieldError;
use http::{HeaderValue, header};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, License, ObjectBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Response as Documented,
    ResponseBuilder, Schema, Type,
};
use utoipa::{PartialSchema as _, ToSchema};

static TEXT: LazyLock<String> = LazyLock::new(|| super::parts().1.to_pretty_json().unwrap_or_default());

/// What stands above the routes.
pub(crate) fn frame() -> OpenApi {
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    let info = InfoBuilder::new()
        .title("Eirene")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Interactive sessions and runs on a SLURM cluster. Times are RFC 3339 in UTC; errors are `application/problem+json` \
             with a stable `code`; unknown fields are refused.",
        ))
        .license(Some(license))
        .build();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token from `POST /api/v1/tokens`"))
        .build();
    let basic = HttpBuilder::new().scheme(HttpAuthScheme::Basic).description(Some("User name and password")).build();
    let mut document = OpenApiBuilder::new()
        .info(info)
        .security(Some([SecurityRequirement::new("token", Vec::<String>::new())]))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    components.add_security_scheme("password", SecurityScheme::Http(basic));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.schemas.insert(FieldError::name().into_owned(), FieldError::schema());
    document
}

/// Adds to every operation what every operation may answer.
pub(crate) fn finish(mut document: OpenApi) -> OpenApi {
    for (path, item) in &mut document.paths.paths {
        let in_path = path.contains('{');
        let public = path == "/api/v1/openapi.json";
        for (method, operation) in operations(item) {
            for parameter in operation.parameters.iter_mut().flatten() {
                never_null(parameter);
                of_one_type(parameter);
            }
            let name = path.trim_start_matches("/api/v1/").replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            operation.operation_id = Some(format!("{method}_{}", name.replace("__", "_").trim_end_matches('_')));
            for (status, text) in of_files(path) {
                operation.responses.responses.insert((*status).to_owned(), RefOr::T(problem(status, text)));
            }
            complete(operation, in_path, public);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let all = [
        ("get", &mut item.get),
        ("post", &mut item.post),
        ("put", &mut item.put),
        ("patch", &mut item.patch),
        ("delete", &mut item.delete),
        ("head", &mut item.head),
        ("options", &mut item.options),
    ];
    all.into_iter().filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}

/// A parameter that is optional is left out, not null.
fn never_null(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(parameter) = parameter
        && let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema
        && let SchemaType::Array(types) = &schema.schema_type
        && let Some(one) = types.iter().find(|one| **one != Type::Null)
    {
        schema.schema_type = SchemaType::Type(one.clone());
    }
}

/// A default of a word of a list is written beside the list: utoipa makes an object of it that no word is.
fn of_one_type(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(parameter) = parameter
        && let Some(RefOr::T(Schema::AllOf(all))) = &parameter.schema
        && let [RefOr::T(Schema::Object(words)), RefOr::T(Schema::Object(beside))] = all.items.as_slice()
        && beside.properties.is_empty()
    {
        let mut words = words.clone();
        words.default.clone_from(&beside.default);
        parameter.schema = Some(RefOr::T(Schema::Object(words)));
    }
}

/// What requests about files may answer besides.
fn of_files(path: &str) -> &'static [(&'static str, &'static str)] {
    const CONFLICT: (&str, &str) = ("409", "It contradicts what lies there");
    if path.ends_with("/files/content") {
        const { &[CONFLICT, ("412", "It is not what you think"), ("416", "The file has no such bytes")] }
    } else if path.ends_with("/operations/{id}/results") {
        const { &[CONFLICT, ("410", "It is not kept any more")] }
    } else if ["/files", "/trash", "/scan"].iter().any(|part| path.contains(part)) {
        const { &[CONFLICT, ("507", "There is no room")] }
    } else {
        &[]
    }
}

fn complete(operation: &mut Operation, in_path: bool, public: bool) {
    let mut statuses = vec![
        ("429", "Too many tries, or too many streams at once"),
        ("500", "Something went wrong on our side"),
        ("503", "The database or the launcher is away"),
    ];
    if public {
        operation.security = Some(vec![SecurityRequirement::default()]);
    } else {
        statuses.push(("401", "No valid credentials"));
        statuses.push(("403", "You may not do that"));
    }
    if in_path {
        statuses.push(("404", "There is no such thing, or you may not see it"));
    }
    if operation.parameters.is_some() {
        statuses.push(("414", "The address is too long"));
    }
    if operation.parameters.is_some() || operation.request_body.is_some() {
        statuses.push(("422", "The input is wrong; `errors` names the fields"));
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.required = Some(utoipa::openapi::Required::True);
        statuses.extend([
            ("400", "The body is not valid JSON"),
            ("408", "The body did not arrive"),
            ("409", "It contradicts what is there"),
            ("413", "The body is too large"),
            ("415", "The body is not JSON"),
        ]);
    }
    for (status, text) in statuses {
        let response = problem(status, text);
        operation.responses.responses.insert(status.to_owned(), RefOr::T(response));
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            let id = HeaderBuilder::new().schema(Some(ObjectBuilder::new().schema_type(Type::String)));
            response.headers.insert("X-Request-Id".to_owned(), id.description(Some("The request's id")).build().into());
            if response.description.is_empty() {
                "Done".clone_into(&mut response.description);
            }
        }
    }
}

fn problem(status: &str, text: &str) -> Documented {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let mut response = ResponseBuilder::new().description(text).content("application/problem+json", content);
    let whole = || ObjectBuilder::new().schema_type(Type::Integer);
    match status {
        "401" => {
            let header = HeaderBuilder::new().description(Some("How to sign in")).build();
            response = response.header("WWW-Authenticate", header);
        }
        "429" | "503" => {
            let seconds = HeaderBuilder::new().schema(Some(whole())).description(Some("Seconds to wait")).build();
            response = response.header("Retry-After", seconds);
        }
        _ => {}
    }
    response.build()
}

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "document", responses((status = 200, body = Object)))]
pub(crate) async fn show() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], TEXT.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/openapi.json` is this document; `EIRENE_WRITE_OPENAPI=1` writes it anew.
    #[test]
    fn the_published_document_is_true() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let text = format!("{}\n", TEXT.as_str());
        if std::env::var_os("EIRENE_WRITE_OPENAPI").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == text,
            "docs/openapi.json differs from the code; look at the difference after `EIRENE_WRITE_OPENAPI=1 cargo test -p eirene-api openapi`"
        );
    }

    #[test]
    fn nothing_is_to_be_a_word_and_an_object() {
        fn look(value: &serde_json::Value, at: &str) {
            match value {
                serde_json::Value::Object(fields) => {
                    let all = fields.get("allOf").and_then(serde_json::Value::as_array).into_iter().flatten();
                    let types: std::collections::BTreeSet<_> =
                        all.filter_map(|part| part.get("type")).map(ToString::to_string).collect();
                    assert!(types.len() < 2, "{at} is to be {types:?} at once");
                    for (name, value) in fields {
                        look(value, &format!("{at}/{name}"));
                    }
                }
                serde_json::Value::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        look(item, &format!("{at}/{index}"));
                    }
                }
                _ => {}
            }
        }
        look(&serde_json::from_str(&TEXT).unwrap(), "");
    }

    #[test]
    fn every_operation_says_what_it_may_answer() {
        let document = super::super::parts().1;
        assert!(document.paths.paths.len() >= 14);
        for (path, item) in document.paths.paths.clone() {
            let mut item = item;
            for (_, operation) in operations(&mut item) {
                let statuses: Vec<&String> = operation.responses.responses.keys().collect();
                assert!(statuses.iter().any(|status| status.starts_with('2')), "{path}: {statuses:?}");
                assert!(operation.responses.responses.contains_key("503"), "{path}");
                assert!(operation.summary.is_some(), "{path} has no summary");
                assert!(operation.operation_id.is_some(), "{path} has no operation id");
            }
        }
    }
}
