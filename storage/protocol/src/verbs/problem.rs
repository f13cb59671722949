//! Why a request was not done, as codes: the words for people are the portal's.

use serde::{Deserialize, Serialize};

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// What is wrong.
    pub code: Code,
    /// The file's size, where a range was asked for that it does not have; where an upload goes on, with every problem of writing to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self { code, bytes: None }
    }
}

/// What is wrong; each is a decision of whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No such space in this process.
    NoSuchSpace,
    /// Nothing there.
    NotFound,
    /// The person may not.
    Forbidden,
    /// A link on the way leads out of the space.
    LeadsOut,
    /// Something else is mounted on the way.
    CrossesAMount,
    /// Belongs to the platform.
    Reserved,
    /// A directory is needed.
    NotADirectory,
    /// A directory cannot be read as a file.
    IsADirectory,
    /// Pipes, sockets and devices, and what the file system does not do.
    NotSupported,
    /// Links that lead to each other, or too many.
    TooManyLinks,
    /// Deeper or longer than can be gone into.
    TooDeep,
    /// The file has no such bytes.
    OutOfRange,
    /// It changed while it was looked at.
    ChangedMeanwhile,
    /// It changes so often that it could not be opened, or the system has it in use; ask again.
    Busy,
    /// Something lies there already.
    Exists,
    /// There is something in the directory.
    NotEmpty,
    /// A directory cannot lie in itself.
    IntoItself,
    /// It cannot be moved there, only copied.
    OtherFileSystem,
    /// The file system takes no name of that length.
    NameTooLong,
    /// The file system takes no file of that size.
    TooLarge,
    /// The file system is full.
    NoSpace,
    /// The person's quota is used up. Some file systems say [`Code::NoSpace`] to that: the portal knows the quota.
    OverQuota,
    /// Nothing may be changed in this space, or on this file system.
    ReadOnly,
    /// The other end of the stream was closed.
    CutOff,
    /// Somebody else is writing to the upload.
    Locked,
    /// The upload is somewhere else.
    OffsetDiffers,
    /// The bytes are others than were meant.
    ChecksumDiffers,
    /// An upload into it goes on later, and would go with it.
    UploadUnfinished,
    /// There is no such upload, or what lies there is not what was uploaded.
    UploadGone,
    /// As asked.
    Cancelled,
    /// The file system does not answer, or has lost this.
    Away,
    /// No more can be opened now.
    TooMany,
    /// Bytes are missing in its copy, though it was not changed.
    NotWhole,
    /// It is copied, but there can be no access lists there, and its list named people or groups.
    ListLost,
    /// Not an archive that can be read, or one that is damaged or was cut off.
    NotAnArchive,
    /// What an archive would become is beyond all measure.
    ArchiveTooLarge,
    /// A member of an archive is made to mislead: its name leads elsewhere, or it is not what it says it is.
    Unsafe,
    /// The request contradicts itself.
    Invalid,
    /// Anything else the system said.
    Failed,
}
