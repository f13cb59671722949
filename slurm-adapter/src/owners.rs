//! The accounting database names a job's owner; the port speaks of user ids. This is where one becomes the other.

use std::sync::Arc;

use eirene_core::scheduler::{SchedulerError, SchedulerResult};

/// Knows user ids.
pub trait UserIds: Send + Sync + 'static {
    /// The user id of `name`; none when there is no such user. May block.
    fn uid(&self, name: &str) -> Option<u32>;
}

/// The operating system's users: the same that the launcher runs jobs as.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemUserIds;

impl UserIds for SystemUserIds {
    fn uid(&self, name: &str) -> Option<u32> {
        nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
    }
}

/// Looks `names` up off the async threads; a name that is a number stands for itself.
pub(crate) async fn look_up(
    user_ids: &Arc<dyn UserIds>,
    names: Vec<String>,
) -> SchedulerResult<impl Fn(&str) -> Option<u32> + use<>> {
    let user_ids = Arc::clone(user_ids);
    let known = tokio::task::spawn_blocking(move || {
        let uid = |name: &str| name.parse().ok().or_else(|| user_ids.uid(name));
        names.into_iter().filter_map(|name| Some((uid(&name)?, name))).collect::<Vec<_>>()
    })
    .await
    .map_err(|source| SchedulerError::Unreachable {
        what: "look up job owners".into(),
        source: Some(Box::new(source)),
    })?;
    Ok(move |name: &str| known.iter().find(|(_, have)| have == name).map(|(uid, _)| *uid))
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
}
