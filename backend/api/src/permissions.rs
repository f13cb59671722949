//! Who may do what with files: in a word, as digits, or as an access control list.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::SpaceName;
use eirene_files_protocol::{AclEntry, MOST_ACL, PermissionChange, Share};
use eirene_http::body;
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::files::path::AskedPath;
use eirene_words::{say, say_with};
use serde::Deserialize;
use utoipa::ToSchema;

use super::files::At;
use super::operations::accepted;
use super::wrong;
use crate::view::{AclLine, OperationView, PermissionsView};

/// Permissions in a word. The owner may always read and write.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShareWord {
    /// The owner alone.
    Private,
    /// Everyone in the group may read.
    GroupReads,
    /// Everyone in the group may read and write.
    GroupWrites,
}

/// How permissions are to be: one of `share`, `mode` and `acl`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPermissions {
    /// Of what.
    #[schema(max_length = 4095)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    raw_path: Option<String>,
    /// In a word.
    share: Option<ShareWord>,
    /// As octal digits, at most `0777`.
    #[schema(pattern = "^0?[0-7]{3}$", example = "0640")]
    mode: Option<String>,
    /// As a list with `owner`, `owning_group` and `other` in it.
    #[schema(max_items = 512)]
    acl: Option<Vec<AclLine>>,
    /// With `acl`, a directory's list for what is made in it.
    #[schema(max_items = 512)]
    default_acl: Option<Vec<AclLine>>,
    /// Whether with all below too; then it is an operation.
    #[serde(default)]
    recursive: bool,
}

impl NewPermissions {
    fn change(&self) -> HttpResult<PermissionChange> {
        match (self.share, &self.mode, &self.acl, &self.default_acl) {
            (Some(share), None, None, None) => Ok(PermissionChange::Share(match share {
                ShareWord::Private => Share::Private,
                ShareWord::GroupReads => Share::GroupReads,
                ShareWord::GroupWrites => Share::GroupWrites,
            })),
            (None, Some(mode), None, None) => {
                digits(mode).map(PermissionChange::Mode).ok_or_else(|| wrong("mode", say("wrong.mode")))
            }
            (None, None, Some(access), default) => Ok(PermissionChange::Acl {
                access: lines("acl", access)?,
                default: lines("default_acl", default.as_deref().unwrap_or_default())?,
            }),
            _ => Err(wrong("share", say("wrong.one_change"))),
        }
    }
}

/// Three or four octal digits without the bits that give a program its owner's rights.
fn digits(text: &str) -> Option<u16> {
    let octal = matches!(text.len(), 3 | 4) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let bits = octal.then(|| u16::from_str_radix(text, 8).ok()).flatten()?;
    (bits <= 0o777).then_some(bits)
}

fn lines(field: &str, lines: &[AclLine]) -> HttpResult<Vec<AclEntry>> {
    if lines.len() > MOST_ACL {
        return Err(wrong(field, say_with("wrong.none_or_many", &[("most", &MOST_ACL.to_string())])));
    }
    let entries = lines
        .iter()
        .enumerate()
        .map(|(at, line)| line.entry().ok_or_else(|| wrong(&format!("{field}[{at}]"), say("wrong.acl"))));
    entries.collect()
}

/// Who may do what with a file or a directory.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/files/permissions", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), At),
    responses((status = 200, body = PermissionsView))
)]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(at): body::Query<At>,
) -> HttpResult<Json<PermissionsView>> {
    let (path, permissions) = app.files.permissions(&caller.actor, &space, &at.asked()).await?;
    Ok(Json(PermissionsView::new(&path, &permissions)))
}

/// Change who may do what; with all below as an operation. Nothing of it ever gives a program its owner's rights.
#[utoipa::path(
    put, path = "/api/v1/spaces/{space}/files/permissions", tag = "files", request_body = NewPermissions,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 200, body = PermissionsView), (status = 202, body = OperationView))
)]
pub(crate) async fn set(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(new): body::Json<NewPermissions>,
) -> HttpResult<Response> {
    let change = new.change()?;
    let path = AskedPath::new("path", new.path, new.raw_path);
    if new.recursive {
        return accepted(app.files.set_permissions_below(&app.operations, &caller.actor, &space, &path, change).await?);
    }
    let (path, permissions) = app.files.set_permissions(&caller.actor, &space, &path, change).await?;
    Ok(Json(PermissionsView::new(&path, &permissions)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_octal_and_give_nobody_the_owners_rights() {
        for (text, bits) in [("640", 0o640), ("0640", 0o640), ("0777", 0o777), ("000", 0)] {
            assert_eq!(digits(text), Some(bits), "{text}");
        }
        for text in ["", "64", "1777", "4755", "2750", "0o64", "+640", "888", "00640", " 640"] {
            assert_eq!(digits(text), None, "{text}");
        }
    }
}
