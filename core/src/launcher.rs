//! What the one privileged process does for the others: the messages on its unix socket, and the port services use.
//!
//! One request per connection line: the client writes a [`LauncherCall`] as one line of JSON (at most
//! [`MAX_REQUEST_BYTES`]), the launcher answers a [`LauncherAnswer`] as one line and waits for the next request. With the first byte of
//! [`LauncherAnswer::Files`] comes one descriptor.

use std::os::fd::OwnedFd;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::id::{RequestId, SessionId, SpaceId};
use crate::name::{GroupName, RootName, SpaceName, Username};
use crate::storage::{KernelQuotas, Place, QuotaOf};

/// Longest request line, bytes.
pub const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// Most bytes of a job's log the launcher reads at once.
pub const MAX_LOG_BYTES: u64 = 64 * 1024;

/// Most groups of a person that are told; the kernel takes 65536.
pub const MOST_GROUPS: usize = 4096;

/// How the text of a refusal begins where the line was not understood, and so nothing was done.
pub const NOT_UNDERSTOOD: &str = "no request";

/// For what something is asked, so that the logs of two processes can be read beside each other. Nothing is decided by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The request to the portal; none where nobody waits for an answer.
    #[serde(rename = "request_id", default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The session it is about, as far as the portal knows that it is about one.
    #[serde(rename = "session_id", default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// What goes over the socket. A launcher that is older than causes does not understand a line with one; see [`NOT_UNDERSTOOD`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherCall {
    /// For what. It is the first to take its fields: the request knows no others than its own, and refuses them.
    #[serde(flatten)]
    pub cause: Cause,
    /// What is wanted.
    #[serde(flatten)]
    pub request: LauncherRequest,
}

/// The fixed verb list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum LauncherRequest {
    /// Sign a SLURM JWT for a person (user id at or above the configured minimum).
    SignToken {
        /// Person.
        person: Username,
    },
    /// Sign a SLURM JWT for the one service account of the launcher's own config. (With braces: serde lets unknown fields of a unit variant pass.)
    SignServiceToken {},
    /// As the person: make `~/.eirene/sessions/<session>/` (0700) and write `job.json` (0600) into it, replacing atomically.
    WriteJobFile {
        /// Person.
        person: Username,
        /// Session.
        session: SessionId,
        /// Whole content of the file.
        content: String,
    },
    /// As the person: read the end of `~/.eirene/sessions/<session>/job.log`, at most [`MAX_LOG_BYTES`].
    ReadJobLog {
        /// Person.
        person: Username,
        /// Session.
        session: SessionId,
    },
    /// As the person: remove `job.json` (the secret); the log stays.
    RemoveJobFile {
        /// Person.
        person: Username,
        /// Session.
        session: SessionId,
    },
    /// Start the person's file process and hand over the other end of its channel.
    OpenFiles {
        /// Person.
        person: Username,
    },
    /// Run one SLURM command as the person or as the service account, from a fixed list.
    RunSlurm {
        /// Person; none is the service account.
        person: Option<Username>,
        /// Program.
        program: SlurmProgram,
        /// Arguments; the launcher refuses what its own table does not know.
        arguments: Vec<String>,
        /// Environment of the program beside the launcher's own small one (empty but for `sbatch`, which hands it to the job).
        #[serde(default)]
        environment: Vec<(String, String)>,
        /// Standard input (the batch script for `sbatch`).
        #[serde(default)]
        input: String,
    },
    /// Run BeeGFS's tool, as the account of the launcher's own configuration, from a fixed list.
    RunBeegfs {
        /// Arguments; the launcher refuses what its own table does not know, and puts the site's settings in front.
        arguments: Vec<String>,
    },
    /// Who a person is by the user database: home and groups.
    GroupsOf {
        /// Person.
        person: Username,
    },
    /// Look at the file system of a place: a home as its person, everything else as the service account. What it sees is the answer's standard output.
    Measure {
        /// Place; its directory is in the launcher's own configuration, or the person's home.
        place: Place,
    },
    /// Tell what the file system of a root counts for users or groups, of which the kernel tells root alone about everybody.
    ReadQuotas {
        /// A root of the launcher's own configuration.
        root: RootName,
        /// Of what.
        of: QuotaOf,
        /// The first number.
        first: u32,
        /// The last one; with the first at most [`QuotaRange::MOST`](crate::storage::QuotaRange::MOST) of them.
        last: u32,
    },
    /// Make the directory of a space, which nobody can reach before it is as it should be. One that is there already and whose it should be is
    /// left as it is.
    MakeSpace {
        /// A root of the launcher's own configuration.
        root: RootName,
        /// Name of the directory.
        name: SpaceName,
        /// Whose it is.
        of: SpaceFor,
    },
    /// Set how much a space may hold, where its file system counts by directory. The same again changes nothing.
    LimitSpace {
        /// The root it lies in.
        root: RootName,
        /// Name of the directory.
        name: SpaceName,
        /// Inode of the directory: any other one is left alone.
        inode: u64,
        /// Its number, which no other space has ever had.
        serial: u32,
        /// Most bytes; none is no limit.
        bytes: Option<u64>,
        /// Most files and directories; none is no limit.
        files: Option<u64>,
    },
    /// Take a space away so that nobody can reach it, restorably; one that was taken away already stays so.
    RetireSpace {
        /// The root it lies in.
        root: RootName,
        /// Name of the directory.
        name: SpaceName,
        /// Inode of the directory: any other one is left alone.
        inode: u64,
        /// What it is called while it is away.
        id: SpaceId,
    },
    /// Bring a space back that was taken away; one that is back already stays so.
    RestoreSpace {
        /// The root it lies in.
        root: RootName,
        /// Name of the directory.
        name: SpaceName,
        /// Inode of the directory.
        inode: u64,
        /// What it is called while it is away.
        id: SpaceId,
    },
    /// Remove what a space that was taken away holds, for a while, and the space itself once it is empty. What is gone already stays so.
    RemoveRetired {
        /// The root it lies in.
        root: RootName,
        /// Inode of the directory.
        inode: u64,
        /// What it is called while it is away.
        id: SpaceId,
        /// Its number, by which a limit of it is found that nobody else would take back.
        serial: u32,
    },
    /// Look whether a space is where it should be, and what time the storage takes it for: a file of the root's is touched.
    LookForSpace {
        /// The root it lies in.
        root: RootName,
        /// Where it should be.
        at: SpaceAt,
    },
}

/// Whose a space's directory is, and who may write into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SpaceFor {
    /// One person's, closed to everybody else.
    Person(Username),
    /// A group's, closed to everybody else.
    Group {
        /// The POSIX group.
        group: GroupName,
        /// Whether its people may write; otherwise the administrator alone fills it.
        writable: bool,
    },
    /// Everybody's to read; the administrator alone fills it.
    Everybody,
}

/// Where a space's directory should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SpaceAt {
    /// In its root, under its name.
    Present(SpaceName),
    /// Where spaces are kept that were taken away.
    Retired(SpaceId),
}

/// SLURM programs the launcher may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlurmProgram {
    /// Submits.
    Sbatch,
    /// Cancels.
    Scancel,
    /// Lists jobs.
    Squeue,
    /// Lists accounted jobs.
    Sacct,
    /// Lists a person's accounts.
    Sacctmgr,
    /// Shows nodes, partitions, the config; pings.
    Scontrol,
    /// Lists partitions and nodes.
    Sinfo,
}

/// The launcher's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LauncherAnswer {
    /// A token and how long it holds.
    Token {
        /// The JWT.
        token: String,
        /// Seconds until it expires.
        expires_in_s: u64,
    },
    /// Done; the directory of the session as the person sees it.
    Written {
        /// Absolute path of `~/.eirene/sessions/<session>`.
        directory: String,
    },
    /// End of a log.
    Log {
        /// Text; bytes that are not UTF-8 are replaced.
        text: String,
    },
    /// Done.
    Done,
    /// The file process was started; its channel comes along as a descriptor.
    Files,
    /// Who a person is by the user database, as their processes would be.
    Groups {
        /// Home directory.
        home: String,
        /// Names of their groups, at most [`MOST_GROUPS`]; a group without a name is left out.
        groups: Vec<String>,
    },
    /// A space's directory is where it should be.
    Space {
        /// Whether it was made just now.
        made: bool,
        /// Inode of the directory.
        inode: u64,
        /// Whether a group's space that may be written has no default access list, because its file system keeps none: what somebody makes in it is
        /// the others' to write only where the umask leaves them that. Launchers that do not look at it say nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unshared: bool,
    },
    /// What was seen of a space's place.
    SpaceSeen {
        /// Inode of the directory; none where there is none.
        inode: Option<u64>,
        /// What the storage took for the time when a file was touched there just now, seconds since 1970.
        file_time_s: i64,
    },
    /// A space that was taken away is being removed.
    Removed {
        /// Whether nothing of it is left; otherwise the same again goes on.
        done: bool,
    },
    /// What a file system counts for the numbers that were asked for.
    Quotas(KernelQuotas),
    /// A program ended.
    Ran {
        /// Exit status; -1 when ended by a signal.
        status: i32,
        /// Standard output, cut at 16 MiB.
        stdout: String,
        /// Standard error, cut at 64 KiB.
        stderr: String,
    },
    /// Not done.
    Refused {
        /// Stable code: `unknown_person`, `forbidden_person`, `unknown_group`, `bad_request`, `conflict` where something else lies in the way,
        /// `missing` where a space is neither here nor there, `not_supported` where the file system does not count by directory, or not for users and groups, `not_enabled` where it
        /// could and that is not switched on, `failed`, `not_configured` (the launcher's own configuration does
        /// not have what is asked for), or `away` for what passes (a program or a home that
        /// took too long, a user database or an audit log that is not there): whether it was done is not known, and it may be asked again.
        code: String,
        /// One sentence.
        text: String,
    },
}

/// Why the launcher did not do it.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// No launcher, or no answer: nothing is known.
    #[error("the launcher cannot be reached: {what}")]
    Unreachable {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: Option<std::io::Error>,
    },
    /// It answered and refused.
    #[error("the launcher refused: {text}")]
    Refused {
        /// Stable code.
        code: String,
        /// One sentence.
        text: String,
    },
}

/// The launcher, as services and the SLURM adapter see it.
#[async_trait]
pub trait Launcher: Send + Sync + 'static {
    /// Sends one request and waits for its answer; [`LauncherAnswer::Refused`] comes back as an error.
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError>;

    /// Starts the person's file process and gives this end of its channel, a `SOCK_SEQPACKET` socket. The process ends when the channel is closed.
    ///
    /// # Errors
    /// As [`Launcher::call`]. Launchers that start no file process refuse.
    async fn open_files(&self, person: &Username) -> Result<OwnedFd, LauncherError> {
        let text = format!("this launcher starts no file process for `{person}`");
        Err(LauncherError::Refused { code: "failed".into(), text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::KernelQuota;

    #[test]
    fn quotas_are_asked_for_and_told_in_these_words() {
        let (root, of) = ("scratch".parse().unwrap(), QuotaOf::Group);
        let asked = LauncherRequest::ReadQuotas { root, of, first: 1, last: 9 };
        let text = r#"{"verb":"read_quotas","root":"scratch","of":"group","first":1,"last":9}"#;
        assert_eq!(serde_json::to_string(&asked).unwrap(), text);
        let row = KernelQuota { id: 7, used: 4096, limit: Some(u64::MAX), files: 2, files_limit: None };
        let told = LauncherAnswer::Quotas(KernelQuotas { device: 5, rows: vec![row] });
        let text = serde_json::to_string(&told).unwrap();
        assert!(text.starts_with(r#"{"answer":"quotas","device":5,"rows":[{"id":7,"#), "{text}");
        assert_eq!(serde_json::from_str::<LauncherAnswer>(&text).unwrap(), told);
    }

    #[test]
    fn no_verb_takes_a_field_that_it_does_not_know() {
        let (session, root, of) = (SessionId::generate(), "scratch".parse().unwrap(), QuotaOf::User);
        let person: Username = "ada".parse().unwrap();
        for request in [
            LauncherRequest::SignToken { person: person.clone() },
            LauncherRequest::SignServiceToken {},
            LauncherRequest::ReadJobLog { person: person.clone(), session },
            LauncherRequest::RemoveJobFile { person: person.clone(), session },
            LauncherRequest::OpenFiles { person: person.clone() },
            LauncherRequest::RunBeegfs { arguments: Vec::new() },
            LauncherRequest::GroupsOf { person },
            LauncherRequest::ReadQuotas { root, of, first: 1, last: 9 },
        ] {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<LauncherCall>(&text).unwrap().request, request);
            let more = text.replacen('{', r#"{"more":1,"#, 1);
            assert!(serde_json::from_str::<LauncherCall>(&more).is_err(), "{more}");
        }
    }

    #[test]
    fn a_call_is_its_request_with_what_it_is_for_beside_it_and_nothing_else() {
        let read = |text: &str| serde_json::from_str::<LauncherCall>(text).ok();
        let (request, session) = (RequestId::generate(), SessionId::generate());
        let sign = LauncherRequest::SignToken { person: "ada".parse().unwrap() };
        let plain = LauncherCall { cause: Cause::default(), request: sign.clone() };
        // As portals say it that know of no causes.
        let text = r#"{"verb":"sign_token","person":"ada"}"#;
        assert_eq!(serde_json::to_string(&plain).unwrap(), text);
        assert_eq!(read(text), Some(plain));
        let cause = Cause { request: Some(request), session: Some(session) };
        let whole = LauncherCall { cause, request: sign.clone() };
        let text = serde_json::to_string(&whole).unwrap();
        let expected =
            format!(r#"{{"request_id":"{request}","session_id":"{session}","verb":"sign_token","person":"ada"}}"#);
        assert_eq!(text, expected);
        assert_eq!(read(&text), Some(whole));
        // A launcher that is older than causes refuses the line, and does nothing by halves.
        assert!(serde_json::from_str::<LauncherRequest>(&text).is_err());
        let with = |more: &str| read(&format!(r#"{{"verb":"sign_token","person":"ada",{more}}}"#));
        assert_eq!(with(&format!(r#""request_id":"{request}""#)).unwrap().cause.request, Some(request));
        for more in [
            r#""uid":0"#.to_owned(),
            r#""request_id":7"#.to_owned(),
            r#""request_id":"""#.to_owned(),
            format!(r#""request_id":"{}""#, request.to_string().to_uppercase()),
            format!(r#""request_id":"{request}\n""#),
            format!(r#""request_id":"{request}","request_id":"{request}""#),
            format!(r#""request_id":"{}""#, "0".repeat(10_000)),
            format!(r#""session_id":"\u001b[2J{}""#, &session.to_string()[..28]),
        ] {
            assert_eq!(with(&more), None, "{more}");
        }
    }

    #[test]
    fn an_answer_of_a_launcher_that_does_not_look_at_access_lists_is_read_and_written_as_it_was() {
        let text = r#"{"answer":"space","made":true,"inode":7}"#;
        let answer: LauncherAnswer = serde_json::from_str(text).unwrap();
        assert_eq!(answer, LauncherAnswer::Space { made: true, inode: 7, unshared: false });
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
    }
}
