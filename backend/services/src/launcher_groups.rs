//! Which groups people are in, as the launcher says it: what is shown of group spaces is then what a person's own processes reach, because
//! the launcher is who gives those their groups.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest, MOST_GROUPS};
use eirene_core::{GroupName, Username};

use crate::spaces::access::GroupsAway;
use crate::spaces::groups::{GroupSource, LocalGroups};

/// The user database as the launcher sees it; it is the same host's.
pub struct LauncherGroups {
    launcher: Arc<dyn Launcher>,
    local: LocalGroups,
}

/// What the launcher says of a person.
enum Said {
    Groups {
        home: String,
        groups: Vec<String>,
    },
    /// The launcher acts as nobody of that name, so nothing is reached as them.
    Nobody,
}

impl LauncherGroups {
    /// Asks `launcher` about people. What belongs to no person is asked by `local`.
    pub fn new(launcher: Arc<dyn Launcher>, local: LocalGroups) -> Self {
        Self { launcher, local }
    }

    async fn ask(&self, person: &Username) -> Result<Said, GroupsAway> {
        match self.launcher.call(LauncherRequest::GroupsOf { person: person.clone() }).await {
            Ok(LauncherAnswer::Groups { home, groups }) if groups.len() <= MOST_GROUPS => {
                Ok(Said::Groups { home, groups })
            }
            Ok(_) => Err(GroupsAway),
            Err(LauncherError::Refused { code, .. }) if code == "forbidden_person" => Ok(Said::Nobody),
            Err(error) => {
                tracing::warn!(%error, "The groups of {person} are not known");
                Err(GroupsAway)
            }
        }
    }
}

#[async_trait]
impl GroupSource for LauncherGroups {
    async fn groups_of(&self, person: &Username) -> Result<Vec<GroupName>, GroupsAway> {
        Ok(match self.ask(person).await? {
            // One with a name that no space can have opens nothing.
            Said::Groups { groups, .. } => groups.iter().filter_map(|group| group.parse().ok()).collect(),
            Said::Nobody => vec![],
        })
    }

    async fn knows(&self, person: &Username) -> Result<bool, GroupsAway> {
        match self.launcher.call(LauncherRequest::GroupsOf { person: person.clone() }).await {
            Ok(LauncherAnswer::Groups { .. }) => Ok(true),
            Err(LauncherError::Refused { code, .. }) if code == "forbidden_person" => Ok(true),
            Err(LauncherError::Refused { code, .. }) if code == "unknown_person" => Ok(false),
            Ok(_) => Err(GroupsAway),
            Err(error) => {
                tracing::warn!(%error, "Whether the user database knows {person} is not known");
                Err(GroupsAway)
            }
        }
    }

    async fn uid_of(&self, person: &Username) -> Result<Option<u32>, GroupsAway> {
        self.local.uid_of(person).await
    }

    async fn number_of(&self, group: &GroupName) -> Result<Option<u32>, GroupsAway> {
        self.local.number_of(group).await
    }

    async fn home_of(&self, person: &Username) -> Result<PathBuf, GroupsAway> {
        match self.ask(person).await? {
            Said::Groups { home, .. } if home.starts_with('/') => Ok(home.into()),
            Said::Groups { .. } | Said::Nobody => Err(GroupsAway),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Says(Mutex<Option<Result<LauncherAnswer, LauncherError>>>);

    #[async_trait]
    impl Launcher for Says {
        async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
            assert_eq!(request, LauncherRequest::GroupsOf { person: "ada".parse().unwrap() });
            self.0.lock().unwrap().take().unwrap()
        }
    }

    fn says(answer: Result<LauncherAnswer, LauncherError>) -> LauncherGroups {
        LauncherGroups::new(Arc::new(Says(Mutex::new(Some(answer)))), LocalGroups::default())
    }

    #[expect(clippy::unnecessary_wraps, reason = "what the launcher says")]
    fn groups(home: &str, groups: &[&str]) -> Result<LauncherAnswer, LauncherError> {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        Ok(LauncherAnswer::Groups { home: home.into(), groups })
    }

    fn refused(code: &str) -> Result<LauncherAnswer, LauncherError> {
        Err(LauncherError::Refused { code: code.into(), text: "a reason".into() })
    }

    #[tokio::test]
    async fn groups_are_those_a_process_of_the_persons_has_and_silence_is_never_none() {
        let ada: Username = "ada".parse().unwrap();
        let said = says(groups("/home/ada", &["ada", "physics", "two words"])).groups_of(&ada).await.unwrap();
        assert_eq!(said, ["ada".parse().unwrap(), "physics".parse().unwrap()]);
        assert_eq!(says(refused("forbidden_person")).groups_of(&ada).await, Ok(vec![]), "nothing is reached as them");
        for known in [groups("/home/ada", &[]), refused("forbidden_person")] {
            assert_eq!(says(known).knows(&ada).await, Ok(true));
        }
        for code in ["away", "unknown_person", "bad_request"] {
            assert_eq!(says(refused(code)).groups_of(&ada).await, Err(GroupsAway), "{code}");
            let known = if code == "unknown_person" { Ok(false) } else { Err(GroupsAway) };
            assert_eq!(says(refused(code)).knows(&ada).await, known, "{code}");
        }
        let gone = || Err(LauncherError::Unreachable { what: "a test".into(), source: None });
        assert_eq!(says(gone()).groups_of(&ada).await, Err(GroupsAway));
        assert_eq!(says(Ok(LauncherAnswer::Done)).groups_of(&ada).await, Err(GroupsAway));
        assert_eq!(
            says(groups("/", &vec!["g"; MOST_GROUPS + 1])).groups_of(&ada).await,
            Err(GroupsAway),
            "without end"
        );
    }

    #[tokio::test]
    async fn a_home_is_a_path_or_not_known() {
        let ada: Username = "ada".parse().unwrap();
        assert_eq!(says(groups("/home/ada", &[])).home_of(&ada).await, Ok("/home/ada".into()));
        assert_eq!(says(groups("home", &[])).home_of(&ada).await, Err(GroupsAway));
        assert_eq!(says(refused("forbidden_person")).home_of(&ada).await, Err(GroupsAway));
    }
}
