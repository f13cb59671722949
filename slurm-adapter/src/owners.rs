//! The accounting database names a job's owner; the port speaks of user ids. This is where one becomes the other.

use std::io;
use std::sync::Arc;

use eirene_core::scheduler::{SchedulerError, SchedulerResult};

/// Knows user ids.
pub trait UserIds: Send + Sync + 'static {
    /// The user id of `name`; none when there surely is no such user, an error when that cannot be said. May block.
    fn uid(&self, name: &str) -> io::Result<Option<u32>>;
}

/// The operating system's users: the same that the launcher runs jobs as.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemUserIds;

impl UserIds for SystemUserIds {
    fn uid(&self, name: &str) -> io::Result<Option<u32>> {
        Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
    }
}

/// Looks `names` up off the async threads; a name that is a number stands for itself.
pub(crate) async fn look_up(
    user_ids: &Arc<dyn UserIds>,
    names: Vec<String>,
) -> SchedulerResult<impl Fn(&str) -> Option<u32> + use<>> {
    let user_ids = Arc::clone(user_ids);
    let known = tokio::task::spawn_blocking(move || {
        let uid = |name: &str| name.parse().map_or_else(|_| user_ids.uid(name), |uid| Ok(Some(uid)));
        names.into_iter().map(|name| Ok((uid(&name)?, name))).collect::<io::Result<Vec<_>>>()
    })
    .await
    .map_err(|source| lost(Box::new(source)))?
    .map_err(|source| lost(Box::new(source)))?;
    Ok(move |name: &str| known.iter().find(|(_, have)| have == name).and_then(|(uid, _)| *uid))
}

fn lost(source: Box<dyn std::error::Error + Send + Sync>) -> SchedulerError {
    SchedulerError::Unreachable { what: "look up job owners".into(), source: Some(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_become_ids_and_unknown_ones_stay_unknown() {
        let user_ids: Arc<dyn UserIds> = Arc::new(SystemUserIds);
        let names = ["root", "2001", "no-such-user-here"].map(str::to_owned).to_vec();
        let uid_of = look_up(&user_ids, names).await.unwrap();
        assert_eq!(uid_of("root"), Some(0));
        assert_eq!(uid_of("2001"), Some(2001));
        assert_eq!(uid_of("no-such-user-here"), None);
    }

    #[tokio::test]
    async fn a_user_database_that_does_not_answer_says_nothing_about_a_user() {
        struct Away;
        impl UserIds for Away {
            fn uid(&self, _: &str) -> io::Result<Option<u32>> {
                Err(io::Error::other("no answer"))
            }
        }
        let user_ids: Arc<dyn UserIds> = Arc::new(Away);
        let Err(error) = look_up(&user_ids, vec!["ada".into()]).await else { panic!("nothing is known") };
        assert!(matches!(error, SchedulerError::Unreachable { .. }));
    }
}
