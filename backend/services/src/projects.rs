//! Projects of people: the SLURM accounts under which they may submit.
//!
//! The accounting database is asked as the person, and its answer holds for a minute. Where SLURM has no such database, or does not answer in time,
//! nothing is known and nothing is refused: SLURM decides when the job is submitted.

use std::sync::Arc;
use std::time::Duration;

use eirene_core::scheduler::{Account, Scheduler};
use eirene_core::{Clock, PartitionName, ProjectName, Username};
use eirene_words::say_with;

use super::kept::Kept;
use crate::error::FieldError;

/// Longest wait for the accounting database.
const WAIT: Duration = Duration::from_secs(2);

/// The projects. Cheap to clone.
#[derive(Clone)]
pub struct Projects {
    scheduler: Arc<dyn Scheduler>,
    known: Kept<Arc<[Account]>>,
}

impl Projects {
    /// Those that `scheduler` has.
    pub fn new(scheduler: Arc<dyn Scheduler>, clock: Arc<dyn Clock>) -> Self {
        Self { scheduler, known: Kept::new(clock) }
    }

    /// The projects of `person`, the default one first; empty where nothing is known.
    pub async fn of(&self, person: &Username) -> Vec<ProjectName> {
        names(&self.accounts(person).await)
    }

    /// What is wrong with a project in which SLURM does not know `person`, at least not in this partition.
    pub(super) async fn wrong(
        &self,
        person: &Username,
        project: &ProjectName,
        partition: Option<&PartitionName>,
    ) -> Option<FieldError> {
        if takes(&self.accounts(person).await, project, partition) {
            return None;
        }
        // Somebody may have been added since.
        let accounts = self.ask(person).await;
        if takes(&accounts, project, partition) {
            return None;
        }
        let known = names(&accounts);
        let key = if known.contains(project) { "wrong.project_partition" } else { "wrong.no_project" };
        let known: Vec<&str> = known.iter().map(ProjectName::as_str).collect();
        let values = [("project", project.as_str()), ("projects", &known.join(", "))];
        Some(FieldError::new("project", say_with(key, &values)))
    }

    async fn accounts(&self, person: &Username) -> Arc<[Account]> {
        match self.known.get(person) {
            Some(accounts) => accounts,
            None => self.ask(person).await,
        }
    }

    async fn ask(&self, person: &Username) -> Arc<[Account]> {
        let accounts: Arc<[Account]> = match tokio::time::timeout(WAIT, self.scheduler.accounts(person)).await {
            Ok(Ok(accounts)) => accounts.into(),
            Ok(Err(error)) => {
                tracing::debug!(%error, "The accounts of a person are not known");
                Arc::default()
            }
            Err(_) => Arc::default(),
        };
        self.known.put(person, Arc::clone(&accounts));
        accounts
    }
}

/// Whether jobs of `project` are taken in `partition`, or in the default one, as far as is known.
fn takes(accounts: &[Account], project: &ProjectName, partition: Option<&PartitionName>) -> bool {
    let fits = |account: &Account| {
        let is_there = partition.is_none() || account.partition.is_none() || account.partition.as_ref() == partition;
        account.name.as_str() == project.as_str() && is_there
    };
    accounts.is_empty() || accounts.iter().any(fits)
}

/// Each project once. An account whose name is none of a project cannot be chosen.
fn names(accounts: &[Account]) -> Vec<ProjectName> {
    let mut names: Vec<ProjectName> = Vec::new();
    for name in accounts.iter().filter_map(|account| account.name.as_str().parse().ok()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestApp;

    fn account(name: &str, partition: Option<&str>, is_default: bool) -> Account {
        Account { name: name.parse().unwrap(), partition: partition.map(|name| name.parse().unwrap()), is_default }
    }

    #[tokio::test]
    async fn a_project_that_slurm_does_not_know_for_somebody_is_wrong() {
        let test = TestApp::new().await;
        let projects = &test.app.projects;
        let ada: Username = "ada".parse().unwrap();
        let wrong = async |project: &str, partition: Option<&str>| {
            let partition = partition.map(|name| name.parse().unwrap());
            projects.wrong(&ada, &project.parse().unwrap(), partition.as_ref()).await.map(|error| error.message)
        };
        assert_eq!(wrong("optics", None).await, None, "nothing is known");
        test.scheduler.state().accounts =
            vec![account("optics", None, true), account("maps", Some("gpu"), false), account("A+B", None, false)];
        test.clock.advance_s(60);
        for (project, partition) in [("optics", None), ("optics", Some("main")), ("maps", None), ("maps", Some("gpu"))]
        {
            assert_eq!(wrong(project, partition).await, None, "{project} {partition:?}");
        }
        let said = wrong("stars", None).await.unwrap();
        assert!(said.contains("stars") && said.ends_with("optics, maps"), "{said}");
        let said = wrong("maps", Some("main")).await.unwrap();
        assert!(said.contains("partition"), "{said}");
        let names = projects.of(&ada).await;
        assert_eq!(names.iter().map(ProjectName::as_str).collect::<Vec<_>>(), ["optics", "maps"]);
        // A person who was added a moment ago is not refused by an earlier answer.
        test.scheduler.state().accounts.push(account("stars", None, false));
        assert_eq!(wrong("stars", None).await, None);
    }

    #[tokio::test]
    async fn nobody_is_refused_while_the_accounts_cannot_be_asked() {
        let test = TestApp::new().await;
        let (ada, project) = ("ada".parse().unwrap(), "stars".parse().unwrap());
        test.scheduler.state().accounts = vec![account("optics", None, true)];
        for (accounting, reachable) in [(false, true), (true, false)] {
            (test.scheduler.state().accounting, test.scheduler.state().reachable) = (accounting, reachable);
            test.clock.advance_s(60);
            assert_eq!(test.app.projects.wrong(&ada, &project, None).await, None);
        }
        test.scheduler.state().reachable = true;
        assert!(test.app.projects.wrong(&ada, &project, None).await.is_none(), "what was found holds for a minute");
        test.clock.advance_s(60);
        assert!(test.app.projects.wrong(&ada, &project, None).await.is_some());
    }
}
