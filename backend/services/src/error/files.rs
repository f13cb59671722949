//! Why nothing came of a request about files: what the file process said, or that it said nothing, as decisions of whoever asked. One table.

use eirene_core::Sentence;
use eirene_core::launcher::LauncherError;
use eirene_files_protocol::{Code, Problem, ProtocolError};
use eirene_words::{say, say_with};

use super::AppError;
use crate::file_processes::FilesError;

/// What kind of trouble; each is another answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is nothing there.
    NotThere,
    /// The file system, or the space, does not let the person.
    MayNot,
    /// It contradicts what lies there.
    Conflict,
    /// It cannot be asked so.
    Wrong,
    /// The file has no such bytes.
    OutOfRange,
    /// There is no room.
    NoRoom,
    /// Larger than the file system takes.
    TooLarge,
    /// Somebody else has it.
    Locked,
    /// It was there and will not be again.
    Gone,
    /// The bytes are others than were meant.
    ChecksumDiffers,
    /// Whoever sent or read did not go on.
    BrokenOff,
    /// More than may be asked at once.
    TooMany,
    /// The storage cannot be reached now.
    Away,
    /// Anything else.
    Failed,
}

/// Why nothing came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesTrouble {
    /// What kind.
    pub kind: Kind,
    /// Stable code.
    pub code: &'static str,
    /// One sentence.
    pub text: Sentence,
    /// Seconds after which it is worth trying again.
    pub retry_after_s: Option<u64>,
    /// The file's size where a range was asked for that it does not have; where an upload goes on.
    pub bytes: Option<u64>,
}

/// Seconds after which to ask again where more is asked than may be at once.
const BUSY_S: u64 = 5;
/// Seconds after which to ask a storage again that did not answer.
const AWAY_S: u64 = 10;

impl FilesTrouble {
    fn new(kind: Kind, code: &'static str, text: Sentence) -> Self {
        let retry_after_s = match kind {
            Kind::TooMany => Some(BUSY_S),
            Kind::Away => Some(AWAY_S),
            _ => None,
        };
        Self { kind, code, text, retry_after_s, bytes: None }
    }

    /// Nothing may be changed in this space.
    pub fn read_only() -> Self {
        Self::from(Code::ReadOnly)
    }

    /// The file is another by now.
    pub fn changed_meanwhile() -> Self {
        Self::from(Code::ChangedMeanwhile)
    }

    /// A file of this size has no such bytes.
    pub fn out_of_range(size: u64) -> Self {
        Self { bytes: Some(size), ..Self::from(Code::OutOfRange) }
    }

    /// The space is not there yet, or was taken away.
    pub fn not_present() -> Self {
        Self::new(Kind::Conflict, "space_not_present", say("problem.space_not_present"))
    }

    /// The person has as many transfers as there may be, or everybody together has.
    pub fn too_many_transfers() -> Self {
        Self::new(Kind::TooMany, "too_many_transfers", say("problem.too_many_transfers"))
    }

    /// The person has as many operations as there may be.
    pub fn too_many_operations() -> Self {
        Self::new(Kind::TooMany, "too_many_operations", say("problem.too_many_operations"))
    }

    /// It was copied to another file system, and then did not go: why.
    pub fn original_kept(why: &Sentence) -> Self {
        let text = say_with("problem.original_kept", &[("why", why.as_str())]);
        Self::new(Kind::Conflict, "original_kept", text)
    }

    /// An upload into this directory is not finished, and would go with it.
    pub fn upload_unfinished(directory: &str) -> Self {
        Self::at(directory, Code::UploadUnfinished)
    }

    /// The copy of what lies there has lost something.
    pub fn not_whole(path: &str) -> Self {
        Self::at(path, Code::NotWhole)
    }

    /// The same of one thing among several.
    fn at(path: &str, code: Code) -> Self {
        let trouble = Self::from(code);
        let text = say_with("problem.one_of_them", &[("path", path), ("why", trouble.text.as_str())]);
        Self { text, ..trouble }
    }

    /// Whether it can only be copied there.
    pub fn is_other_file_system(&self) -> bool {
        self.code == "other_file_system"
    }

    /// Nobody wants it any more.
    pub fn cancelled() -> Self {
        Self::from(Code::Cancelled)
    }

    /// What was found is not kept any more.
    pub fn results_gone() -> Self {
        Self::new(Kind::Gone, "results_gone", say("problem.results_gone"))
    }

    /// Whether nothing is known of what was asked, so that asking for more would only wait.
    pub fn is_silence(&self) -> bool {
        matches!(self.kind, Kind::Away | Kind::TooMany)
    }

    /// The storage does not answer.
    pub fn away(retry_after_s: u64) -> Self {
        let trouble = Self::new(Kind::Away, "storage_away", say("problem.storage_away"));
        Self { retry_after_s: Some(retry_after_s), ..trouble }
    }
}

impl From<Code> for FilesTrouble {
    fn from(code: Code) -> Self {
        let (kind, code, text) = match code {
            Code::NoSuchSpace => (Kind::Away, "storage_gone", say("problem.storage_gone")),
            Code::NotFound => (Kind::NotThere, "no_such_path", say("problem.no_such_path")),
            Code::Forbidden => (Kind::MayNot, "permission_denied", say("problem.permission_denied")),
            Code::LeadsOut => (Kind::MayNot, "leads_out", say("problem.leads_out")),
            Code::CrossesAMount => (Kind::MayNot, "crosses_a_mount", say("problem.crosses_a_mount")),
            Code::Reserved => (Kind::MayNot, "reserved", say("problem.reserved")),
            Code::ReadOnly => (Kind::MayNot, "read_only", say("problem.read_only")),
            Code::NotADirectory => (Kind::Conflict, "not_a_directory", say("problem.not_a_directory")),
            Code::IsADirectory => (Kind::Conflict, "is_a_directory", say("problem.is_a_directory")),
            Code::TooManyLinks => (Kind::Conflict, "too_many_links", say("problem.too_many_links")),
            Code::ChangedMeanwhile => (Kind::Conflict, "changed_meanwhile", say("problem.changed_meanwhile")),
            Code::Busy => (Kind::Conflict, "busy", say("problem.busy")),
            Code::NotWhole => (Kind::Conflict, "not_whole", say("problem.not_whole")),
            Code::Exists => (Kind::Conflict, "exists", say("problem.exists")),
            Code::NotEmpty => (Kind::Conflict, "not_empty", say("problem.not_empty")),
            Code::IntoItself => (Kind::Conflict, "into_itself", say("problem.into_itself")),
            Code::OtherFileSystem => (Kind::Conflict, "other_file_system", say("problem.other_file_system")),
            Code::UploadUnfinished => (Kind::Conflict, "upload_unfinished", say("problem.upload_unfinished")),
            Code::OffsetDiffers => (Kind::Conflict, "offset_differs", say("problem.offset_differs")),
            Code::Cancelled => (Kind::Conflict, "cancelled", say("problem.cancelled")),
            Code::NotSupported => (Kind::Wrong, "not_supported", say("problem.not_supported")),
            Code::ListLost => (Kind::Wrong, "list_lost", say("problem.list_lost")),
            Code::TooDeep => (Kind::Wrong, "too_deep", say("problem.too_deep")),
            Code::NameTooLong => (Kind::Wrong, "name_too_long", say("problem.name_too_long")),
            Code::NotAnArchive => (Kind::Wrong, "not_an_archive", say("problem.not_an_archive")),
            Code::ArchiveTooLarge => (Kind::Wrong, "archive_too_large", say("problem.archive_too_large")),
            Code::Unsafe => (Kind::Wrong, "unsafe_member", say("problem.unsafe_member")),
            Code::Invalid => (Kind::Wrong, "contradiction", say("problem.contradiction")),
            Code::OutOfRange => (Kind::OutOfRange, "out_of_range", say("problem.out_of_range")),
            Code::TooLarge => (Kind::TooLarge, "file_too_large", say("problem.file_too_large")),
            Code::NoSpace => (Kind::NoRoom, "no_space", say("problem.no_space")),
            Code::OverQuota => (Kind::NoRoom, "over_quota", say("problem.over_quota")),
            Code::Locked => (Kind::Locked, "locked", say("problem.locked")),
            Code::UploadGone => (Kind::Gone, "upload_gone", say("problem.upload_gone")),
            Code::ChecksumDiffers => (Kind::ChecksumDiffers, "checksum_differs", say("problem.checksum_differs")),
            Code::CutOff => (Kind::BrokenOff, "cut_off", say("problem.cut_off")),
            Code::TooMany => (Kind::TooMany, "files_busy", say("problem.files_busy")),
            Code::Away => (Kind::Away, "storage_away", say("problem.storage_away")),
            Code::Failed => (Kind::Failed, "files_failed", say("problem.files_failed")),
        };
        Self::new(kind, code, text)
    }
}

impl From<Problem> for FilesTrouble {
    fn from(problem: Problem) -> Self {
        Self { bytes: problem.bytes, ..Self::from(problem.code) }
    }
}

impl From<Problem> for AppError {
    fn from(problem: Problem) -> Self {
        FilesTrouble::from(problem).into()
    }
}

impl From<FilesTrouble> for AppError {
    fn from(trouble: FilesTrouble) -> Self {
        Self::Files(Box::new(trouble))
    }
}

impl From<FilesError> for AppError {
    /// Whatever the process did, nothing is known of what was asked; who is to know why reads the log.
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Away { retry_after_s } => FilesTrouble::away(retry_after_s).into(),
            FilesError::Ended => FilesTrouble::away(1).into(),
            FilesError::Broken(_) | FilesError::WrongUser { .. } => FilesTrouble::away(AWAY_S).into(),
            FilesError::Busy => FilesTrouble::from(Code::TooMany).into(),
            FilesError::Unsayable(ProtocolError::TooLong(_)) => Self::TooLarge,
            FilesError::Unsayable(error) => Self::Internal(error.into()),
            FilesError::Launcher(error) => {
                let retry_after_s = if matches!(error, LauncherError::Refused { .. }) { 60 } else { AWAY_S };
                tracing::error!(%error, "no file process could be started");
                FilesTrouble::away(retry_after_s).into()
            }
        }
    }
}
