//! The verbs: a line in, an answer out, one audit line between them.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_core::clock::Clock;
use eirene_core::launcher::{
    Cause, LauncherAnswer, LauncherCall, LauncherRequest, NOT_UNDERSTOOD, SlurmProgram, SpaceAt, SpaceFor,
};
use eirene_core::name::RootName;
use eirene_core::storage::{Place, QuotaOf, QuotaRange};
use eirene_core::{SessionId, SpaceId, SpaceName, Username};
use tracing::Span;

use crate::as_person::Task;
use crate::as_root::{Order, Outcome, Work};
use crate::audit::{self, Entry, Peer};
use crate::config::{Config, Per};
use crate::people::{self, Person};
use crate::places::Places;
use crate::project::Project;
use crate::space_root::{Most, Whose};
use crate::{Refusal, beegfs, child, files, program, slurm, token};

/// Longest work in somebody's home directory.
const FILE_LIMIT: Duration = Duration::from_secs(10);
/// Longest run of a SLURM program: the portal waits for ten seconds, and an answer that comes in time says what became of a submit.
const SLURM_LIMIT: Duration = Duration::from_secs(8);

/// So many runs of BeeGFS's tool at once: each holds a thread here, and asks the same servers.
const MOST_BEEGFS: usize = 2;

/// Longest look at a file system: what takes longer does not answer.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// Looks of one person, or of the service account, that have not ended: those at a mount that hangs. They have places of their own, so that
/// such a mount does not keep the account from asking SLURM.
const MOST_LOOKS: usize = 4;

/// Longest change of a root of spaces; removing goes on at the next call.
const ROOT_LIMIT: Duration = Duration::from_secs(16);

/// Longest target of a call in the audit log; the name of a node has 255 at most.
const LONGEST_TARGET_CHARS: usize = 300;

/// Answers calls; shared by all connections.
pub struct Verbs {
    config: Config,
    clock: Arc<dyn Clock>,
    children: Places,
    files: Places,
    beegfs: Places,
    looks: Places,
    roots: Places,
}

/// What goes back to the portal.
#[derive(Debug)]
pub struct Answered {
    /// The answer.
    pub answer: LauncherAnswer,
    /// What goes with it.
    pub descriptor: Option<OwnedFd>,
}

impl From<LauncherAnswer> for Answered {
    fn from(answer: LauncherAnswer) -> Self {
        Self { answer, descriptor: None }
    }
}

/// What the audit line says about a call.
#[derive(Debug, Default)]
struct Call {
    verb: &'static str,
    cause: Cause,
    person: Option<Username>,
    program: Option<SlurmProgram>,
    target: Option<String>,
}

impl Verbs {
    /// Verbs under one configuration.
    pub fn new(config: Config, clock: Arc<dyn Clock>) -> Self {
        let children = Places::new(child::MOST_CHILDREN, usize::MAX);
        let files = Places::new(files::MOST_EACH, config.most_files);
        let beegfs = Places::new(MOST_BEEGFS, MOST_BEEGFS);
        let looks = Places::new(MOST_LOOKS, usize::MAX);
        // Who changes a root changes it alone.
        let roots = Places::new(1, usize::MAX);
        Self { config, clock, children, files, beegfs, looks, roots }
    }

    /// Answers one line.
    pub fn answer(&self, peer: Peer, line: &[u8]) -> Answered {
        let begun = Instant::now();
        let parsed = serde_json::from_slice::<LauncherCall>(line)
            // The parser's own words may repeat the input, which may hold a secret.
            .map_err(|error| Refusal::bad_request(format!("{NOT_UNDERSTOOD}, at column {}", error.column())));
        let call = parsed.as_ref().map_or(Call { verb: "unknown", ..Call::default() }, |parsed| Call {
            cause: parsed.cause,
            ..describe(&parsed.request)
        });
        let _within = span(call.cause).entered();
        let outcome = parsed.and_then(|parsed| self.perform(peer, call.cause, parsed.request));
        self.close(peer, &call, outcome, begun)
    }

    /// Notes a call that was refused before it was read.
    pub fn refuse(&self, peer: Peer, verb: &'static str, refusal: Refusal) -> Answered {
        self.close(peer, &Call { verb, ..Call::default() }, Err(refusal), Instant::now())
    }

    /// Writes the audit line; an answer that leaves no trace is not given.
    fn close(&self, peer: Peer, call: &Call, outcome: Result<Answered, Refusal>, begun: Instant) -> Answered {
        let entry = Entry {
            time: self.clock.now().to_string(),
            peer,
            verb: call.verb,
            cause: call.cause,
            person: call.person.as_ref().map(Username::as_str),
            program: call.program.map(slurm::file_name),
            target: call.target.clone(),
            outcome: outcome.as_ref().map_or_else(|refusal| refusal.code, |_| "done"),
            reason: outcome.as_ref().err().map(|refusal| refusal.text.as_str()),
            status: match outcome {
                Ok(Answered { answer: LauncherAnswer::Ran { status, .. }, .. }) => Some(status),
                _ => None,
            },
            duration_ms: milliseconds(begun.elapsed()),
        };
        let noted = audit::write(&self.config.audit_log, &entry);
        let outcome = match noted {
            Ok(()) => outcome,
            Err(error) => {
                tracing::error!(%error, path = %self.config.audit_log.display(), "could not write the audit log");
                Err(Refusal::away("the launcher cannot write its audit log"))
            }
        };
        outcome.unwrap_or_else(|refusal| {
            LauncherAnswer::Refused { code: refusal.code.to_owned(), text: refusal.text }.into()
        })
    }

    fn perform(&self, peer: Peer, cause: Cause, request: LauncherRequest) -> Result<Answered, Refusal> {
        let answer = match request {
            LauncherRequest::SignToken { person } => self.sign(&people::person(&person, &self.config)?.name),
            LauncherRequest::SignServiceToken {} => self.sign(&people::service_account(&self.config)?.name),
            LauncherRequest::WriteJobFile { person, session, content } => {
                let person = people::person(&person, &self.config)?;
                let directory = person.home.join(format!(".eirene/sessions/{session}")).display().to_string();
                self.in_home(&person, &Task::Write { home: person.home.clone(), session, content })?;
                Ok(LauncherAnswer::Written { directory })
            }
            LauncherRequest::ReadJobLog { person, session } => {
                let person = people::person(&person, &self.config)?;
                let log = self.in_home(&person, &Task::Read { home: person.home.clone(), session })?;
                Ok(LauncherAnswer::Log { text: String::from_utf8_lossy(&log).into_owned() })
            }
            LauncherRequest::RemoveJobFile { person, session } => {
                let person = people::person(&person, &self.config)?;
                self.in_home(&person, &Task::Remove { home: person.home.clone(), session })?;
                Ok(LauncherAnswer::Done)
            }
            LauncherRequest::RunSlurm { person, program, arguments, environment, input } => {
                slurm::check(program, person.is_some(), &arguments, &environment, &input)?;
                let person = match person {
                    Some(name) => people::person(&name, &self.config)?,
                    None => people::service_account(&self.config)?,
                };
                self.run_slurm(&person, program, arguments, environment, &input)
            }
            LauncherRequest::RunBeegfs { arguments } => self.run_beegfs(arguments),
            LauncherRequest::Measure { place } => self.measure(&place),
            LauncherRequest::ReadQuotas { root, of, first, last } => self.read_quotas(&root, of, first, last),
            LauncherRequest::GroupsOf { person } => {
                let person = people::person(&person, &self.config)?;
                let groups = people::groups(&person)?;
                Ok(LauncherAnswer::Groups { home: person.home.display().to_string(), groups })
            }
            LauncherRequest::MakeSpace { root, name, of } => self.make_space(&root, name, &of),
            LauncherRequest::LimitSpace { root, name, inode, serial, bytes, files } => {
                let project = self.project(serial).ok_or_else(|| {
                    Refusal::not_configured(format!("space number {serial} has no id in `project_ids` of the launcher"))
                })?;
                self.change(&root, Work::Limit { name, inode, project, most: Most { bytes, files } })
            }
            LauncherRequest::RetireSpace { root, name, inode, id } => {
                self.change(&root, Work::Retire { name, inode, id })
            }
            LauncherRequest::RestoreSpace { root, name, inode, id } => {
                self.change(&root, Work::Restore { name, inode, id })
            }
            LauncherRequest::RemoveRetired { root, inode, id, serial } => {
                self.remove_retired(&root, inode, id, self.project(serial))
            }
            LauncherRequest::LookForSpace { root, at } => self.change(&root, Work::Look { at }),
            LauncherRequest::OpenFiles { person } => {
                let channel = self.open_files(peer, cause, &people::person(&person, &self.config)?)?;
                return Ok(Answered { answer: LauncherAnswer::Files, descriptor: Some(channel) });
            }
        };
        Ok(answer?.into())
    }

    fn open_files(&self, peer: Peer, cause: Cause, person: &Person) -> Result<OwnedFd, Refusal> {
        let Some(program) = &self.config.files_program else {
            return Err(Refusal::not_configured("the launcher's configuration names no `files_program`"));
        };
        let (log, clock, name) = (self.config.audit_log.clone(), Arc::clone(&self.clock), person.name.clone());
        files::open(&self.files, person, program, move |status, lived| {
            let entry = Entry {
                time: clock.now().to_string(),
                peer,
                verb: "files_ended",
                cause,
                person: Some(name.as_str()),
                program: None,
                target: None,
                outcome: "done",
                reason: None,
                status: Some(status),
                duration_ms: milliseconds(lived),
            };
            if let Err(error) = audit::write(&log, &entry) {
                tracing::error!(%error, path = %log.display(), "could not write the audit log");
            }
        })
    }

    fn sign(&self, name: &Username) -> Result<LauncherAnswer, Refusal> {
        let key = token::read_key(&self.config.jwt_key)?;
        let expires_in_s = self.config.token_lifetime_s;
        let token = token::sign(&key, name, self.clock.now(), expires_in_s)?;
        Ok(LauncherAnswer::Token { token, expires_in_s })
    }

    fn in_home(&self, person: &Person, task: &Task) -> Result<Vec<u8>, Refusal> {
        let ended = child::run(&self.children, person, task, "", FILE_LIMIT)?;
        if ended.status == 0 {
            Ok(ended.stdout)
        } else {
            Err(Refusal::away("the work in the home directory was cut short"))
        }
    }

    fn run_slurm(
        &self,
        person: &Person,
        program: SlurmProgram,
        arguments: Vec<String>,
        given: Vec<(String, String)>,
        input: &str,
    ) -> Result<LauncherAnswer, Refusal> {
        let name = person.name.to_string();
        let home = person.home.display().to_string();
        let own =
            [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("HOME", &home), ("USER", &name), ("LOGNAME", &name)];
        let mut environment: Vec<_> = own.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        if let Ok(configuration) = std::env::var("SLURM_CONF") {
            environment.push(("SLURM_CONF".to_owned(), configuration));
        }
        // Of two values of one name the later one holds.
        environment.extend(given);
        let task = Task::Run { program: slurm::path(&self.config.slurm_bin_dir, program), arguments, environment };
        Ok(child::run(&self.children, person, &task, input, SLURM_LIMIT)?.into())
    }

    fn run_beegfs(&self, given: Vec<String>) -> Result<LauncherAnswer, Refusal> {
        let Some(settings) = &self.config.beegfs else {
            return Err(Refusal::not_configured("the launcher's configuration has no section `[beegfs]`"));
        };
        let limit = beegfs::check(settings.generation, &given)?;
        let account = people::beegfs_account(&self.config, settings)?;
        program::open_trusted(&settings.program).map_err(|error| Refusal::failed(error.to_string()))?;
        let own = [("PATH", "/usr/bin:/bin"), ("LANG", "C")];
        let environment = own.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let mut arguments = settings.settings();
        arguments.extend(given);
        let program = settings.program.clone();
        let task = if settings.user_namespace {
            Task::RunAsRootOfNothing { program, arguments, environment }
        } else {
            Task::Run { program, arguments, environment }
        };
        Ok(child::run(&self.beegfs, &account, &task, "", limit)?.into())
    }
}

impl Verbs {
    /// A root of the configuration, and its place there.
    fn root(&self, name: &RootName) -> Result<(u32, &crate::config::SpaceRoot), Refusal> {
        let found = (0..).zip(&self.config.space_root).find(|(_, root)| root.name == *name);
        found.ok_or_else(|| Refusal::not_configured(format!("there is no `space_root` of the name `{name}`")))
    }

    /// Changes a root in which spaces are made.
    fn change(&self, name: &RootName, work: Work) -> Result<LauncherAnswer, Refusal> {
        let (number, root) = self.root(name)?;
        if root.per.is_none() {
            return Err(Refusal::bad_request(format!("no spaces are made in `{name}`: its `space_root` has no `per`")));
        }
        let order = Order { root: root.path.clone(), work };
        let place = self.roots.take(number);
        let place = place.ok_or_else(|| Refusal::away("an earlier change of this root has not ended yet"))?;
        match child::as_root(place, &order, ROOT_LIMIT)? {
            Outcome::Answer(LauncherAnswer::Refused { code, text }) => Err(Refusal::said(&code, text)),
            Outcome::Answer(answer) => Ok(answer),
            Outcome::Project(_) => Err(Refusal::failed("the change of a root came to something else")),
        }
    }

    fn make_space(&self, root: &RootName, name: SpaceName, of: &SpaceFor) -> Result<LauncherAnswer, Refusal> {
        let per = self.root(root)?.1.per;
        let whose = match (of, per) {
            (SpaceFor::Person(person), Some(Per::Person)) => {
                let person = people::person(person, &self.config)?;
                Whose::Person { uid: person.uid, gid: person.gid }
            }
            (SpaceFor::Group { group, writable }, Some(Per::Group)) => {
                Whose::Group { gid: people::group(group, &self.config)?, writable: *writable }
            }
            (SpaceFor::Everybody, Some(Per::Group)) => Whose::Everybody,
            _ => return Err(Refusal::bad_request(format!("spaces in `{root}` are not made for those"))),
        };
        self.change(root, Work::Make { name, whose })
    }

    /// The project of a space of this number, where there is one for it.
    fn project(&self, serial: u32) -> Option<u32> {
        let (first, last) = self.config.project_ids;
        first.checked_add(serial).filter(|id| *id <= last)
    }

    fn remove_retired(
        &self,
        root: &RootName,
        inode: u64,
        id: SpaceId,
        project: Option<u32>,
    ) -> Result<LauncherAnswer, Refusal> {
        let account = people::purge_account(&self.config)?.into();
        let program = self.config.files_program.clone();
        let program =
            program.ok_or_else(|| Refusal::not_configured("the launcher's configuration names no `files_program`"))?;
        program::open_trusted(&program).map_err(|error| Refusal::failed(error.to_string()))?;
        self.change(root, Work::Remove { inode, id, project, account, program })
    }

    fn measure(&self, place: &Place) -> Result<LauncherAnswer, Refusal> {
        let Some(program) = &self.config.look_program else {
            return Err(Refusal::not_configured("the launcher's configuration names no `look_program`"));
        };
        let root = |name: &RootName| -> Result<String, Refusal> { Ok(self.root(name)?.1.path.display().to_string()) };
        program::open_trusted(program).map_err(|error| Refusal::failed(error.to_string()))?;
        let mut arguments = Vec::new();
        let person = match place {
            Place::Home(person) => {
                let person = people::person(person, &self.config)?;
                arguments.extend(["home".to_owned(), person.home.display().to_string()]);
                person
            }
            Place::InHome { person, below } => {
                let person = people::person(person, &self.config)?;
                arguments.extend(["home".to_owned(), person.home.display().to_string(), below.as_str().to_owned()]);
                person
            }
            // What is counted for somebody is told to nobody else, and by the program only where the directory is theirs.
            Place::OwnSpace { root: name, name: space, person } => {
                let person = people::person(person, &self.config)?;
                arguments.extend(["own".to_owned(), root(name)?, space.to_string()]);
                person
            }
            Place::Root(name) => {
                arguments.extend(["root".to_owned(), root(name)?]);
                people::service_account(&self.config)?
            }
            Place::Space { root: name, name: space, below } => {
                let beneath = below.as_ref().map_or_else(|| space.to_string(), |b| format!("{space}/{}", b.as_str()));
                arguments.extend(["root".to_owned(), root(name)?, beneath]);
                let account = people::service_account(&self.config)?;
                // Of one that was made here only its people may be able to open the directory, and so see its project. What lies below has its own.
                if below.is_none() && self.root(name)?.1.per.is_some() {
                    arguments.extend(self.project_of(name, space, &account)?.map(|project| project.to_string()));
                }
                account
            }
        };
        let task = Task::Run { program: program.clone(), arguments, environment: Vec::new() };
        Ok(child::run(&self.looks, &person, &task, "", LOOK_LIMIT)?.into())
    }

    /// What the file system of a root counts for others. It takes one of the looks' places, as it may hang like them.
    fn read_quotas(&self, name: &RootName, of: QuotaOf, first: u32, last: u32) -> Result<LauncherAnswer, Refusal> {
        if last.checked_sub(first).is_none_or(|more| more >= QuotaRange::MOST) {
            return Err(Refusal::bad_request(format!("a range of ids has 1 to {} of them", QuotaRange::MOST)));
        }
        let root = self.root(name)?.1;
        let place = child::take(&self.looks, &people::service_account(&self.config)?)?;
        // Only where spaces are made a root has a marker.
        let work = Work::Quotas { marked: root.per.is_some(), of, first, last };
        match child::as_root(place, &Order { root: root.path.clone(), work }, LOOK_LIMIT)? {
            Outcome::Answer(LauncherAnswer::Refused { code, text }) => Err(Refusal::said(&code, text)),
            Outcome::Answer(answer) => Ok(answer),
            Outcome::Project(_) => Err(Refusal::failed("the question for quotas came to something else")),
        }
    }

    /// The project of a space that was made here. It takes one of the looks' places: a mount that hangs hangs this, too.
    fn project_of(&self, root: &RootName, name: &SpaceName, account: &Person) -> Result<Option<Project>, Refusal> {
        let place = child::take(&self.looks, account)?;
        let order = Order { root: self.root(root)?.1.path.clone(), work: Work::Project { name: name.clone() } };
        match child::as_root(place, &order, LOOK_LIMIT)? {
            Outcome::Project(project) => Ok(project),
            Outcome::Answer(_) => Err(Refusal::failed("the look for a project came to something else")),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What every line that is logged on the way of a call says: for what it was made, where the portal has said so.
fn span(cause: Cause) -> Span {
    if cause == Cause::default() {
        return Span::none();
    }
    // Of the highest level: lines of any have it, whatever the filter leaves out.
    tracing::error_span!(
        "call",
        request.id = cause.request.map(tracing::field::display),
        session.id = cause.session.map(tracing::field::display)
    )
}

fn describe(request: &LauncherRequest) -> Call {
    let in_home = |verb, person: &Username, session: &SessionId| Call {
        verb,
        person: Some(person.clone()),
        target: Some(session.to_string()),
        ..Call::default()
    };
    let on_space =
        |verb, root: &RootName, name: &str| Call { verb, target: Some(format!("{root}/{name}")), ..Call::default() };
    match request {
        LauncherRequest::SignToken { person } => {
            Call { verb: "sign_token", person: Some(person.clone()), ..Call::default() }
        }
        LauncherRequest::SignServiceToken {} => Call { verb: "sign_service_token", ..Call::default() },
        LauncherRequest::WriteJobFile { person, session, .. } => in_home("write_job_file", person, session),
        LauncherRequest::ReadJobLog { person, session } => in_home("read_job_log", person, session),
        LauncherRequest::RemoveJobFile { person, session } => in_home("remove_job_file", person, session),
        LauncherRequest::MakeSpace { root, name, of } => Call {
            verb: "make_space",
            person: match of {
                SpaceFor::Person(person) => Some(person.clone()),
                SpaceFor::Group { .. } | SpaceFor::Everybody => None,
            },
            target: Some(format!("{root}/{name}")),
            ..Call::default()
        },
        LauncherRequest::LimitSpace { root, name, .. } => on_space("limit_space", root, name.as_str()),
        LauncherRequest::RetireSpace { root, name, .. } => on_space("retire_space", root, name.as_str()),
        LauncherRequest::RestoreSpace { root, name, .. } => on_space("restore_space", root, name.as_str()),
        LauncherRequest::RemoveRetired { root, id, .. } => on_space("remove_retired", root, &id.to_string()),
        LauncherRequest::LookForSpace { root, at: SpaceAt::Present(name) } => {
            on_space("look_for_space", root, name.as_str())
        }
        LauncherRequest::LookForSpace { root, at: SpaceAt::Retired(id) } => {
            on_space("look_for_space", root, &id.to_string())
        }
        LauncherRequest::OpenFiles { person } => {
            Call { verb: "open_files", person: Some(person.clone()), ..Call::default() }
        }
        LauncherRequest::GroupsOf { person } => {
            Call { verb: "groups_of", person: Some(person.clone()), ..Call::default() }
        }
        LauncherRequest::Measure { place } => {
            let (person, target) = match place {
                Place::Home(person) | Place::InHome { person, .. } => (Some(person.clone()), None),
                Place::OwnSpace { root, name, person } => (Some(person.clone()), Some(format!("{root}/{name}"))),
                Place::Root(root) => (None, Some(root.to_string())),
                Place::Space { root, name, .. } => (None, Some(format!("{root}/{name}"))),
            };
            Call { verb: "measure", person, target, ..Call::default() }
        }
        LauncherRequest::ReadQuotas { root, .. } => {
            Call { verb: "read_quotas", target: Some(root.to_string()), ..Call::default() }
        }
        LauncherRequest::RunBeegfs { arguments } => Call {
            verb: "run_beegfs",
            // What changes something is told, but for the path it changes; what only looks comes every minute.
            target: beegfs::change(arguments),
            ..Call::default()
        },
        LauncherRequest::RunSlurm { person, program, arguments, .. } => Call {
            verb: "run_slurm",
            person: person.clone(),
            program: Some(*program),
            target: changed(*program, arguments),
            ..Call::default()
        },
    }
}

/// What a program of SLURM's changes that is not named elsewhere: a submitted session, a cancelled job, a node. Anything else may be long.
fn changed(program: SlurmProgram, arguments: &[String]) -> Option<String> {
    let named = match (program, arguments) {
        (SlurmProgram::Sbatch, _) => submitted(arguments)?.to_string(),
        (SlurmProgram::Scancel, [job, ..]) => job.clone(),
        (SlurmProgram::Scontrol, [verb, node, state, ..]) if verb == "update" => format!("{node} {state}"),
        _ => return None,
    };
    Some(named.chars().take(LONGEST_TARGET_CHARS).collect())
}

/// The session whose job is submitted: its job writes its log into the session's directory.
fn submitted(arguments: &[String]) -> Option<SessionId> {
    let log = arguments.iter().find_map(|argument| argument.strip_prefix("--output="))?;
    Path::new(log).parent()?.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submit_is_noted_with_its_session_and_with_no_other_text() {
        let id = SessionId::generate();
        let target = |log: &str| {
            let arguments = ["--parsable", "--chdir=/home/ada", log, "--export=ALL"].map(str::to_owned);
            describe(&LauncherRequest::RunSlurm {
                person: "ada".parse().ok(),
                program: SlurmProgram::Sbatch,
                arguments: arguments.to_vec(),
                environment: Vec::new(),
                input: String::new(),
            })
            .target
        };
        assert_eq!(target(&format!("--output=/home/ada/.eirene/sessions/{id}/job.log")), Some(id.to_string()));
        for other in [
            "--output=",
            "--output=/",
            "--output=/home/ada/log",
            "--output=/home/ada/.eirene/sessions/..",
            "--output=/home/ada/.eirene/sessions/a\nforged line/job.log",
            &format!("--output=/home/ada/{}/job.log", "A".repeat(32)),
            &format!("--output=/home/ada/{id}{id}/job.log"),
            &format!("--error=/home/ada/.eirene/sessions/{id}/job.log"),
        ] {
            assert_eq!(target(other), None, "{other}");
        }
    }
}
