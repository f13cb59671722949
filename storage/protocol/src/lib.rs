//! What the portal and a person's file process say to each other: frames, verbs, names, limits, and the socket that carries them.
//!
//! One frame is one packet of a `SOCK_SEQPACKET` socket, at most [`MOST_BYTES`]. The portal begins with [`Open`], the process answers
//! [`Hello`]; then come requests, each with a number of the portal's choosing, and for each any number of [`Part`]s and exactly one
//! [`Outcome`]. Bytes of files never go in frames: such a request brings one descriptor, the process's end of a stream, and what was written
//! to it counts only once the outcome says so. The portal cancels by number, and ends everything by closing the socket.
//!
//! Both sides take the other for hostile: decoding never panics and never takes more memory than a small multiple of a packet. What a verb
//! does is the file process's (`storage/files`), who may ask is the portal's; nothing here opens a file.

#[cfg(feature = "tokio")]
mod asynchronous;
mod channel;
mod frame;
mod name;
#[cfg(test)]
mod samples;
mod verbs;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncChannel;
pub use channel::{Channel, ChannelError, Packet};
pub use frame::{FromFiles, Kind, ProtocolError, RequestNumber, ToFiles};
pub use name::{HostileText, Name, PathError, RelativePath};
pub use verbs::{
    AccountName, AccountNameError, Accounts, AclEntry, Answer, Archive, ArchiveFormat, Archived, CellKind, Checksum,
    Code, Compare, Copied, CopyFiles, CreateUpload, Cursor, CursorError, Delete, Digest, EmptyTrash, Encoding, Entry,
    EntryKind, Extract, Extracted, Found, Hello, IdError, KnownDirectory, Link, List, ListOld, ListTrash, Listed,
    ListedOld, LookAtPermissions, MadeAt, MakeDirectory, Measured, Moment, Move, Moved, OldFile, OldOfOther,
    OnConflict, Open, OpenSpace, OpenedSpace, Outcome, Part, PartId, PartSpot, PermissionChange, Permissions, Piece,
    Preview, Previewed, Problem, Progress, PutInTrash, Read, ReadBegins, Refused, RemoveOld, RemovedOld, Restore,
    Rights, RightsError, Scan, Scanned, Search, Searched, SetPermissions, Share, Shown, Skipped, Sort, SpaceNumber,
    Spot, Stat, Stated, SumUp, TrashId, Trashed, UploadState, Verb, Version, Walked, Which, Who, WriteUpload,
};

/// Most bytes of one frame, its head included.
pub const MOST_BYTES: usize = 128 * 1024;

/// Most requests that may be under way at once.
pub const MOST_REQUESTS: usize = 64;

/// Most spaces one process opens.
pub const MOST_SPACES: usize = 256;

/// Most entries one page of a listing has.
pub const MOST_ENTRIES: u32 = 5_000;

/// Most entries one page of a trash has.
pub const MOST_TRASHED: u32 = 1_000;

/// Most users, and most groups, whose names an answer says.
pub const MOST_ACCOUNTS: usize = 256;

/// Most things that are put into one archive by their own names.
pub const MOST_ARCHIVED: usize = 500;

/// Most lines of an access control list.
pub const MOST_ACL: usize = 512;

/// Most entries one search finds.
pub const MOST_FOUND: u32 = 1_000;

/// Most files one list of old files has.
pub const MOST_OLD: u64 = 1_000_000;

/// Most other people whose old files a list counts.
pub const MOST_OTHERS: usize = 256;

/// Most bytes that the files of one list of old files take in its frames, all in all.
pub const MOST_OLD_BYTES: usize = 240 * 1024 * 1024;

/// Most old files that are removed by one request.
pub const MOST_REMOVED_OLD: usize = 100;

/// Most directories a scan is told to leave out.
pub const MOST_KNOWN: usize = 1_000;

/// Most skipped entries an answer names; the rest is only counted.
pub const MOST_SKIPPED: usize = 100;

/// Most pieces of one preview, each cell of a table counted too.
pub const MOST_PIECES: usize = 20_000;

/// Most bytes that the frames of one preview have, all in all.
pub const MOST_PREVIEW_BYTES: usize = 8 * 1024 * 1024;

/// Most bytes of the name of a member of an archive that is refused.
pub const MOST_MEMBER_NAME: usize = 255;

/// The trash of a space: its own verbs reach it, no other does.
pub const TRASH: &[u8] = b".eirene-trash";

/// How the names of files begin that an upload has not finished: shown as uploads, never as files.
pub const UPLOAD_PREFIX: &[u8] = b".eirene-upload-";
