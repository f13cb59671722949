//! A launcher in memory, with the directories of spaces that it makes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use eirene_core::clock::MockClock;
use eirene_core::launcher::{Cause, Launcher, LauncherAnswer, LauncherError, LauncherRequest, SpaceAt, SpaceFor};
use eirene_core::{Clock as _, Username};
use eirene_files_protocol::Channel;
use jiff::Timestamp;

use super::start_time;
use crate::cause;

/// A launcher in memory: keeps what it was asked.
#[derive(Clone)]
pub struct FakeLauncher {
    pub calls: Arc<Mutex<Vec<LauncherRequest>>>,
    /// For what each of its calls was made.
    pub causes: Arc<Mutex<Vec<Cause>>>,
    /// Refuses to write job files with this code.
    pub refusal: Arc<Mutex<Option<&'static str>>>,
    /// The log of every job.
    pub job_log: Arc<Mutex<String>>,
    /// What stands in for file processes: each gets its end of a channel, in a thread of its own. Without one none is started.
    pub files: Arc<Mutex<Option<FilesStandIn>>>,
    /// Directories of spaces.
    pub spaces: Arc<Mutex<FakeRoots>>,
    pub clock: MockClock,
}

/// Directories of spaces in memory, by their inodes.
#[derive(Debug, Default)]
pub struct FakeRoots {
    /// By root and name.
    pub present: BTreeMap<String, u64>,
    /// By id.
    pub retired: BTreeMap<String, u64>,
    /// Whether the file system counts by directory.
    pub counts: bool,
    /// Bytes and files that spaces may hold, by root and name.
    pub limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Whether the file system keeps no access lists.
    pub no_lists: bool,
    /// Refuses every change with this code.
    pub refusal: Option<&'static str>,
    /// Does the next thing and loses the answer, as when it is killed in between.
    pub loses_an_answer: bool,
    /// Calls it takes to remove something.
    pub removals_left: u32,
    /// How far the storage's clock is from the portal's, seconds.
    pub clock_is_off_by_s: i64,
    next: u64,
}

impl FakeRoots {
    fn change(&mut self, request: &LauncherRequest, now: Timestamp) -> Result<LauncherAnswer, LauncherError> {
        let refused = |code: &str| LauncherError::Refused { code: code.into(), text: "no".into() };
        if let Some(code) = self.refusal {
            return Err(refused(code));
        }
        let answer = match request {
            LauncherRequest::MakeSpace { root, name, of } => {
                let unshared = self.no_lists && matches!(of, SpaceFor::Group { writable: true, .. });
                let key = format!("{root}/{name}");
                let made = !self.present.contains_key(&key);
                self.next += 1;
                let inode = *self.present.entry(key).or_insert(self.next);
                LauncherAnswer::Space { made, inode, unshared }
            }
            LauncherRequest::LimitSpace { root, name, inode, bytes, files, .. } => {
                if !self.counts {
                    return Err(refused("not_supported"));
                }
                let key = format!("{root}/{name}");
                if self.present.get(&key) != Some(inode) {
                    return Err(refused("missing"));
                }
                self.limits.insert(key, (*bytes, *files));
                LauncherAnswer::Done
            }
            LauncherRequest::RetireSpace { root, name, inode, id } => {
                if self.retired.get(&id.to_string()) != Some(inode) {
                    let found = self.present.remove(&format!("{root}/{name}")).ok_or_else(|| refused("missing"))?;
                    self.retired.insert(id.to_string(), found);
                }
                LauncherAnswer::Space { made: false, inode: *inode, unshared: false }
            }
            LauncherRequest::RestoreSpace { root, name, inode, id } => {
                let key = format!("{root}/{name}");
                if self.present.get(&key) != Some(inode) {
                    let found = self.retired.remove(&id.to_string()).ok_or_else(|| refused("missing"))?;
                    self.present.insert(key, found);
                }
                LauncherAnswer::Space { made: false, inode: *inode, unshared: false }
            }
            LauncherRequest::RemoveRetired { id, .. } if self.removals_left == 0 => {
                self.retired.remove(&id.to_string());
                LauncherAnswer::Removed { done: true }
            }
            LauncherRequest::RemoveRetired { .. } => {
                self.removals_left -= 1;
                LauncherAnswer::Removed { done: false }
            }
            LauncherRequest::LookForSpace { root, at } => LauncherAnswer::SpaceSeen {
                inode: match at {
                    SpaceAt::Present(name) => self.present.get(&format!("{root}/{name}")).copied(),
                    SpaceAt::Retired(id) => self.retired.get(&id.to_string()).copied(),
                },
                file_time_s: now.as_second() + self.clock_is_off_by_s,
            },
            other => panic!("{other:?}"),
        };
        if std::mem::take(&mut self.loses_an_answer) {
            return Err(LauncherError::Unreachable { what: "a test".into(), source: None });
        }
        Ok(answer)
    }
}

/// Serves one channel of a person's.
pub type FilesStandIn = Arc<dyn Fn(Username, Channel) + Send + Sync>;

impl Default for FakeLauncher {
    fn default() -> Self {
        Self {
            calls: Arc::default(),
            causes: Arc::default(),
            refusal: Arc::default(),
            job_log: Arc::new(Mutex::new("the last words\n".into())),
            files: Arc::default(),
            spaces: Arc::default(),
            clock: MockClock::new(start_time()),
        }
    }
}

impl FakeLauncher {
    /// Restart counts and secrets of the job files it wrote, oldest first.
    pub fn job_files(&self) -> Vec<eirene_core::job_file::JobFile> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter_map(|call| match call {
                LauncherRequest::WriteJobFile { content, .. } => Some(serde_json::from_str(content).unwrap()),
                _ => None,
            })
            .collect()
    }
}

#[async_trait]
impl Launcher for FakeLauncher {
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        self.causes.lock().unwrap().push(cause::present());
        let refusal = *self.refusal.lock().unwrap();
        let answer = match &request {
            LauncherRequest::WriteJobFile { person, session, .. } => match refusal {
                Some("away") => return Err(LauncherError::Unreachable { what: "a test".into(), source: None }),
                Some(code) => return Err(LauncherError::Refused { code: code.into(), text: "no space left".into() }),
                None => LauncherAnswer::Written { directory: format!("/home/{person}/.eirene/sessions/{session}") },
            },
            LauncherRequest::ReadJobLog { .. } => LauncherAnswer::Log { text: self.job_log.lock().unwrap().clone() },
            LauncherRequest::MakeSpace { .. }
            | LauncherRequest::LimitSpace { .. }
            | LauncherRequest::RetireSpace { .. }
            | LauncherRequest::RestoreSpace { .. }
            | LauncherRequest::RemoveRetired { .. }
            | LauncherRequest::LookForSpace { .. } => {
                self.calls.lock().unwrap().push(request.clone());
                return self.spaces.lock().unwrap().change(&request, self.clock.now());
            }
            _ => LauncherAnswer::Done,
        };
        self.calls.lock().unwrap().push(request);
        Ok(answer)
    }

    async fn open_files(&self, person: &Username) -> Result<OwnedFd, LauncherError> {
        self.causes.lock().unwrap().push(cause::present());
        self.calls.lock().unwrap().push(LauncherRequest::OpenFiles { person: person.clone() });
        let Some(serve) = self.files.lock().unwrap().clone() else {
            return Err(LauncherError::Refused { code: "failed".into(), text: "no file process".into() });
        };
        let (portals, theirs) = Channel::pair().unwrap();
        let person = person.clone();
        std::thread::spawn(move || serve(person, theirs));
        Ok(portals.into_descriptor())
    }
}
