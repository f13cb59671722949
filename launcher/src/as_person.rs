//! The child: becomes the person for good, then does one task with the person's own rights.
//!
//! It is a fresh process of the same program. Its name and ids are arguments; the task, which may hold a secret, comes through
//! standard input and is read only after root's rights are gone. Because it *is* the person, a link that the person has laid leads
//! nowhere the person could not go alone; below the home directory none is followed all the same.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use eirene_core::SessionId;
use eirene_core::launcher::{MAX_LOG_BYTES, MAX_REQUEST_BYTES};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, fchmod, mkdirat, umask};
use nix::unistd::{
    Gid, Uid, UnlinkatFlags, fexecve, fsync, getppid, getresgid, getresuid, initgroups, setresgid, setresuid, setuid,
    unlinkat,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{in_namespace, program, purge};

/// Exit status of a child that did not do its task; its standard error says why.
pub const NOT_DONE: u8 = 125;

const JOB_FILE: &str = "job.json";
const JOB_LOG: &str = "job.log";
/// A request at its longest, each byte of it escaped.
const LONGEST_TASK_BYTES: usize = 6 * MAX_REQUEST_BYTES;
/// Descriptors of a file process: each request has a few.
const MOST_DESCRIPTORS: u64 = 1024;
/// Memory of its own, bytes.
const MOST_DATA_BYTES: u64 = 256 * 1024 * 1024;
const NICER: libc::c_int = 5;

/// Whom to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Log-in name, for the supplementary groups.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// The launcher's process, with which everything done for it ends.
    pub launcher: u32,
    /// Whether it keeps the right to remove anybody's files, and the directory it was started in: the purge account's alone.
    pub purge: bool,
}

/// What to do; written to the child's standard input behind its length (eight bytes, big-endian).
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Writes the job file.
    Write {
        /// Home directory.
        home: PathBuf,
        /// Session.
        session: SessionId,
        /// Whole content.
        content: String,
    },
    /// Writes the end of the job's log to standard output.
    Read {
        /// Home directory.
        home: PathBuf,
        /// Session.
        session: SessionId,
    },
    /// Removes the job file.
    Remove {
        /// Home directory.
        home: PathBuf,
        /// Session.
        session: SessionId,
    },
    /// Becomes a program; what is left of standard input is the program's.
    Run {
        /// Absolute path.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its whole environment.
        environment: Vec<(String, String)>,
    },
    /// Becomes a program that takes itself for root, in a user namespace in which it is alone.
    RunAsRootOfNothing {
        /// Absolute path.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its whole environment.
        environment: Vec<(String, String)>,
    },
    /// Becomes the program that empties the directory it is started in.
    Purge {
        /// Absolute path; root's alone.
        program: PathBuf,
    },
    /// Becomes the file process, within limits: standard input is its channel.
    Become {
        /// Absolute path; root's alone.
        program: PathBuf,
        /// Its whole environment.
        environment: Vec<(String, String)>,
    },
}

/// Runs the child's side.
pub fn main(identity: &Identity) -> ExitCode {
    match become_person(identity).and_then(|()| read_task()).and_then(|task| perform(task, identity.purge)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody listens when this fails, too.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(NOT_DONE)
        }
    }
}

/// What every child begins with: no descriptor but the standard streams, no signal held back, and nothing of what it makes open to others.
pub(crate) fn begin() -> io::Result<()> {
    close_descriptors()?;
    umask(Mode::from_bits_truncate(0o077));
    // The launcher waits for its signals with a descriptor and blocks them; what is run here is to be ended by them.
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Has this process end with the one that started it.
pub(crate) fn end_with(launcher: u32) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if u32::try_from(getppid().as_raw()) != Ok(launcher) {
        return Err(io::Error::other("the launcher has gone"));
    }
    Ok(())
}

/// Gives up root's rights for those of the person, and the way back.
fn become_person(identity: &Identity) -> io::Result<()> {
    begin()?;
    if identity.purge {
        purge::keep_rights()?;
    } else {
        std::env::set_current_dir("/")?;
    }
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    if uid.is_root() || gid.as_raw() == 0 {
        return Err(io::Error::other("root is no person"));
    }
    let name = CString::new(identity.name.as_str())?;
    initgroups(&name, gid)?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    if identity.purge {
        purge::reduce_rights()?;
    }
    nix::sys::prctl::set_no_new_privs()?;
    // Only now: a change of identity undoes it (prctl(2)). A program that is run keeps it, because it gains no rights.
    end_with(identity.launcher)?;
    let (uids, gids) = (getresuid()?, getresgid()?);
    let is_person =
        [uids.real, uids.effective, uids.saved] == [uid; 3] && [gids.real, gids.effective, gids.saved] == [gid; 3];
    if !is_person || setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("root's rights are still there"));
    }
    Ok(())
}

/// Closes whatever the launcher's own parent left open, except the standard streams.
#[expect(unsafe_code, reason = "nix has no close_range")]
fn close_descriptors() -> io::Result<()> {
    // SAFETY: called first in a fresh process, before it has opened anything: nobody owns a descriptor from 3 on.
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads the task and not a byte more: the rest belongs to the program that may be run. Where standard input is a channel, length and task are
/// a packet each, because a packet is read whole.
pub(crate) fn read_task<T: DeserializeOwned>() -> io::Result<T> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut length = [0; 8];
    input.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_be_bytes(length)).ok().filter(|length| *length <= LONGEST_TASK_BYTES);
    let mut task = vec![0; length.ok_or_else(|| io::Error::other("the task is too long"))?];
    input.read_exact(&mut task)?;
    Ok(serde_json::from_slice(&task)?)
}

fn perform(task: Task, purge: bool) -> io::Result<()> {
    // Whoever may remove anything does nothing else.
    if purge != matches!(task, Task::Purge { .. }) {
        return Err(io::Error::other("this task is not this account's"));
    }
    match task {
        Task::Write { home, session, content } => write_job_file(&home, session, content.as_bytes()),
        Task::Read { home, session } => read_log(&home, session, &mut io::stdout()),
        Task::Remove { home, session } => remove_job_file(&home, session),
        Task::Run { program, arguments, environment } => {
            // SLURM gives the umask of a submit to the job: people expect the usual one.
            umask(Mode::from_bits_truncate(0o022));
            Err(Command::new(program).args(arguments).env_clear().envs(environment).exec())
        }
        Task::RunAsRootOfNothing { program, arguments, environment } => {
            in_namespace::enter()?;
            Err(Command::new(program).args(arguments).env_clear().envs(environment).exec())
        }
        Task::Purge { program } => {
            let opened = program::open_trusted(&program)?;
            let name = CString::new(program.into_os_string().into_vec())?;
            let Err(error) = fexecve(opened, &[name, c"purge".to_owned()], &[] as &[CString]);
            Err(error.into())
        }
        Task::Become { program, environment } => {
            let opened = program::open_trusted(&program)?;
            keep_within_limits()?;
            // New files are the group's to read, and nobody else's.
            umask(Mode::from_bits_truncate(0o027));
            let name = CString::new(program.into_os_string().into_vec())?;
            let environment = environment.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
            let environment = environment.collect::<Result<Vec<_>, _>>()?;
            let Err(error) = fexecve(opened, &[name], &environment);
            Err(error.into())
        }
    }
}

/// What a file process may take: it is to be small, and to come after whatever else the machine does.
#[expect(unsafe_code, reason = "nix has no nice")]
fn keep_within_limits() -> io::Result<()> {
    let limits = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, MOST_DESCRIPTORS),
        (Resource::RLIMIT_DATA, MOST_DATA_BYTES),
    ];
    for (resource, most) in limits {
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, most.min(hard), most.min(hard))?;
    }
    // SAFETY: a number only. To become nicer needs no right, so there is no error to look for.
    unsafe { libc::nice(NICER) };
    Ok(())
}

fn write_job_file(home: &Path, session: SessionId, content: &[u8]) -> io::Result<()> {
    let directory = session_directory(home, session, true)?;
    let unfinished = format!(".{JOB_FILE}.{}", std::process::id());
    remove(&directory, &unfinished)?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(&directory, unfinished.as_str(), flags, Mode::from_bits_truncate(0o600))?);
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(&directory, unfinished.as_str(), &directory, JOB_FILE)?))
        .and_then(|()| Ok(fsync(&directory)?));
    if written.is_err() {
        remove(&directory, &unfinished)?;
    }
    written
}

fn read_log(home: &Path, session: SessionId, output: &mut impl Write) -> io::Result<()> {
    let directory = match session_directory(home, session, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    // Not blocking: a pipe in the log's place must not hold us.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut file = match openat(&directory, JOB_LOG, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        other => File::from(other?),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("the log is no plain file"));
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(MAX_LOG_BYTES)))?;
    io::copy(&mut file.take(MAX_LOG_BYTES), output)?;
    output.flush()
}

fn remove_job_file(home: &Path, session: SessionId) -> io::Result<()> {
    match session_directory(home, session, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => remove(&other?, JOB_FILE),
    }
}

/// Removes a file; none is as good as removed.
fn remove(directory: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens `.eirene/sessions/<session>` below the home directory, folder by folder, none of them a link and all of them the
/// person's own and closed to others.
fn session_directory(home: &Path, session: SessionId, make: bool) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let private = Mode::from_bits_truncate(0o700);
    let mut directory = open(home, flags, Mode::empty()).map_err(|error| {
        io::Error::new(io::Error::from(error).kind(), format!("the home directory: {}", error.desc()))
    })?;
    for name in [".eirene", "sessions", session.to_string().as_str()] {
        if make {
            match mkdirat(&directory, name, private) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        directory = openat(&directory, name, flags | OFlag::O_NOFOLLOW, Mode::empty())?;
        let metadata = File::from(directory.try_clone()?).metadata()?;
        if metadata.uid() != nix::unistd::geteuid().as_raw() {
            return Err(io::Error::other(format!("`{name}` belongs to somebody else")));
        }
        if metadata.mode() & 0o077 != 0 {
            fchmod(&directory, private)?;
        }
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_job_file_is_written_read_and_removed() {
        let home = tempfile::tempdir().unwrap();
        let session = SessionId::generate();
        let directory = home.path().join(format!(".eirene/sessions/{session}"));
        write_job_file(home.path(), session, b"first").unwrap();
        write_job_file(home.path(), session, b"second").unwrap();
        assert_eq!(std::fs::read(directory.join(JOB_FILE)).unwrap(), b"second");
        assert_eq!(mode(&directory.join(JOB_FILE)), 0o600);
        assert_eq!([mode(&directory), mode(&home.path().join(".eirene"))], [0o700; 2]);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing unfinished is left");
        remove_job_file(home.path(), session).unwrap();
        remove_job_file(home.path(), session).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        remove_job_file(home.path(), SessionId::generate()).unwrap();
    }

    #[test]
    fn the_end_of_a_long_log_is_read_and_a_missing_one_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let session = SessionId::generate();
        let mut output = Vec::new();
        read_log(home.path(), session, &mut output).unwrap();
        write_job_file(home.path(), session, b"").unwrap();
        read_log(home.path(), session, &mut output).unwrap();
        assert!(output.is_empty());
        let log = home.path().join(format!(".eirene/sessions/{session}/{JOB_LOG}"));
        let text = vec![b'a'; 2 * MAX_LOG_BYTES as usize];
        std::fs::write(&log, [text.as_slice(), b"end"].concat()).unwrap();
        read_log(home.path(), session, &mut output).unwrap();
        assert_eq!(output.len() as u64, MAX_LOG_BYTES);
        assert!(output.ends_with(b"aend"));
    }

    #[test]
    fn links_and_pipes_below_the_home_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let session = SessionId::generate();
        symlink(elsewhere.path(), home.path().join(".eirene")).unwrap();
        assert!(write_job_file(home.path(), session, b"secret").is_err());
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);

        std::fs::remove_file(home.path().join(".eirene")).unwrap();
        write_job_file(home.path(), session, b"secret").unwrap();
        let directory = home.path().join(format!(".eirene/sessions/{session}"));
        symlink("/etc/passwd", directory.join(JOB_LOG)).unwrap();
        assert!(read_log(home.path(), session, &mut Vec::new()).is_err());
        std::fs::remove_file(directory.join(JOB_LOG)).unwrap();
        nix::unistd::mkfifo(&directory.join(JOB_LOG), Mode::from_bits_truncate(0o600)).unwrap();
        assert!(read_log(home.path(), session, &mut Vec::new()).is_err());
    }

    #[test]
    fn open_folders_are_closed_and_a_link_as_job_file_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let session = SessionId::generate();
        let directory = home.path().join(format!(".eirene/sessions/{session}"));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        let victim = home.path().join("victim");
        std::fs::write(&victim, "kept").unwrap();
        symlink(&victim, directory.join(JOB_FILE)).unwrap();
        write_job_file(home.path(), session, b"secret").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(JOB_FILE)), 0o600);
    }
}
