//! What an actor may do with which resource.

use eirene_core::{JobKind, Session, SessionId};
use eirene_database::Db;

use super::actor::Actor;
use crate::error::AppError;

/// The session, or the run, if `actor` may see it: its owner and admins may. Neither is ever taken for the other.
pub(crate) async fn visible(db: &Db, actor: &Actor, kind: JobKind, id: SessionId) -> Result<Session, AppError> {
    let session = db.session(id).await?.filter(|session| session.kind() == kind).ok_or(AppError::NotFound)?;
    if session.owner != actor.user.id && !actor.acts_as_admin() {
        return Err(AppError::Hidden);
    }
    Ok(session)
}
