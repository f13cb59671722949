//! A scheduler in memory.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use eirene_core::clock::MockClock;
use eirene_core::launcher::Cause;
use eirene_core::scheduler::{
    Account, CallAs, Job, JobIdentity, JobSpec, JobState, Jobs, Node, Partition, Scheduler, SchedulerError,
    SchedulerResult, signed_reason,
};
use eirene_core::{Clock as _, DrainReason, NodeName, Reason, Sentence, Username};
use jiff::Timestamp;

use super::cluster::{nodes, partitions};
use super::{job, queue, session};
use crate::cause;

/// What the scheduler of a test says.
pub(crate) fn said(text: &str) -> Sentence {
    Sentence::from_elsewhere(text)
}

/// What the next submit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitMood {
    /// Makes a job and says so.
    Good,
    /// Makes a job; the answer is lost.
    AnswerLost,
    /// Makes no job; there is no answer.
    NothingHappens,
    /// Refuses.
    Refuses,
}

/// What the scheduler in memory knows.
pub struct SchedulerState {
    pub reachable: bool,
    pub mood: SubmitMood,
    pub jobs: Vec<Job>,
    pub accounted: Vec<Job>,
    /// Everybody's.
    pub accounts: Vec<Account>,
    pub accounting_reachable: bool,
    /// Whether there is such a thing.
    pub accounting: bool,
    pub submits: Vec<(Username, JobSpec)>,
    pub cancels: Vec<(CallAs, u32)>,
    /// For what it was asked to change something, as its adapter's calls of the launcher would say.
    pub causes: Vec<Cause>,
    pub person_may_cancel: bool,
    pub nodes: Vec<Node>,
    /// Whether the service account may drain and resume.
    pub may_change_nodes: bool,
    next_id: u32,
}

/// A scheduler in memory.
#[derive(Clone)]
pub struct FakeScheduler {
    state: Arc<Mutex<SchedulerState>>,
    clock: MockClock,
    /// Locked while questions for jobs get no answer.
    gate: Arc<tokio::sync::Mutex<()>>,
}

impl FakeScheduler {
    pub fn new(clock: MockClock) -> Self {
        let state = SchedulerState {
            reachable: true,
            mood: SubmitMood::Good,
            jobs: vec![],
            accounted: vec![],
            accounts: vec![],
            accounting_reachable: true,
            accounting: true,
            submits: vec![],
            cancels: vec![],
            causes: vec![],
            person_may_cancel: true,
            nodes: nodes(),
            may_change_nodes: true,
            next_id: 100,
        };
        Self { state: Arc::new(Mutex::new(state)), clock, gate: Arc::default() }
    }

    /// Answers no question for jobs until what this returns is dropped.
    pub async fn hold(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.gate).lock_owned().await
    }

    pub fn state(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap()
    }

    /// Changes the one job.
    pub fn change_job(&self, edit: impl FnOnce(&mut Job)) {
        let mut state = self.state();
        assert_eq!(state.jobs.len(), 1);
        edit(&mut state.jobs[0]);
    }

    /// Puts the one job into a state.
    pub fn job_becomes(&self, next: JobState) {
        let now = self.clock.now();
        self.change_job(|job| {
            job.state = next;
            if next != JobState::Pending {
                job.reason = None;
                job.nodes = vec!["c1".parse().unwrap()];
                job.started_at = job.started_at.or(Some(now));
            }
        });
    }

    pub fn asked(&self) -> SchedulerResult<MutexGuard<'_, SchedulerState>> {
        let state = self.state();
        if state.reachable { Ok(state) } else { Err(away()) }
    }
}

fn away() -> SchedulerError {
    SchedulerError::Unreachable { what: "a test".into(), source: None }
}

#[async_trait]
impl Scheduler for FakeScheduler {
    async fn ping(&self) -> SchedulerResult<String> {
        self.asked().map(|_| "fake".into())
    }

    async fn submit(&self, person: &Username, spec: &JobSpec) -> SchedulerResult<JobIdentity> {
        // Another task may run here, as with a real scheduler.
        tokio::task::yield_now().await;
        let now = self.clock.now();
        let mut state = self.asked()?;
        state.submits.push((person.clone(), spec.clone()));
        state.causes.push(cause::present());
        match state.mood {
            SubmitMood::Refuses => {
                return Err(SchedulerError::Refused { reason: Reason::new("no_account", said("no such account")) });
            }
            SubmitMood::NothingHappens => return Err(away()),
            SubmitMood::Good | SubmitMood::AnswerLost => {}
        }
        state.next_id += 1;
        let mut made = job(&session(person.as_str()), state.next_id, JobState::Pending);
        made.name.clone_from(&spec.name);
        made.identity.submitted_at = now;
        let identity = made.identity.clone();
        state.jobs.push(made);
        if state.mood == SubmitMood::AnswerLost { Err(away()) } else { Ok(identity) }
    }

    async fn jobs(&self) -> SchedulerResult<Jobs> {
        let _held = self.gate.lock().await;
        let ours = self.asked()?.jobs.clone();
        Ok(Jobs { queue: queue(&ours), ours })
    }

    async fn job(&self, id: u32) -> SchedulerResult<Option<Job>> {
        Ok(self.asked()?.jobs.iter().find(|job| job.identity.id == id).cloned())
    }

    async fn accounted_jobs(&self, name: &str, _since: Timestamp) -> SchedulerResult<Vec<Job>> {
        let state = self.asked()?;
        if !state.accounting_reachable {
            return Err(away());
        }
        if !state.accounting {
            return Err(SchedulerError::NoAccounting);
        }
        Ok(state.accounted.iter().filter(|job| job.name == name).cloned().collect())
    }

    async fn accounts(&self, _person: &Username) -> SchedulerResult<Vec<Account>> {
        let state = self.asked()?;
        if state.accounting { Ok(state.accounts.clone()) } else { Err(SchedulerError::NoAccounting) }
    }

    async fn cancel(&self, as_: &CallAs, id: u32) -> SchedulerResult<()> {
        let mut state = self.asked()?;
        if !state.person_may_cancel && matches!(as_, CallAs::Person(_)) {
            return Err(SchedulerError::Refused { reason: Reason::new("denied", said("denied")) });
        }
        state.cancels.push((as_.clone(), id));
        state.causes.push(cause::present());
        for job in state.jobs.iter_mut().filter(|job| job.identity.id == id && !job.state.is_final()) {
            job.state = JobState::Cancelled;
        }
        Ok(())
    }

    async fn nodes(&self) -> SchedulerResult<Vec<Node>> {
        self.asked().map(|state| state.nodes.clone())
    }

    async fn drain_node(&self, node: &NodeName, reason: &DrainReason, by: &Username) -> SchedulerResult<()> {
        self.change_node(node, "drained", Some(signed_reason(reason, by)))
    }

    async fn resume_node(&self, node: &NodeName) -> SchedulerResult<()> {
        self.change_node(node, "idle", None)
    }

    async fn partitions(&self) -> SchedulerResult<Vec<Partition>> {
        self.asked().map(|_| partitions())
    }
}
