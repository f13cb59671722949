//! What the kernel said, as a decision. The one table.

use eirene_files_protocol::Code;
use rustix::io::Errno;

/// What an errno means.
pub(crate) fn code(errno: Errno) -> Code {
    match errno {
        Errno::NOENT => Code::NotFound,
        Errno::ACCESS | Errno::PERM => Code::Forbidden,
        Errno::NOTDIR => Code::NotADirectory,
        Errno::ISDIR => Code::IsADirectory,
        Errno::EXIST => Code::Exists,
        Errno::NOTEMPTY => Code::NotEmpty,
        Errno::LOOP => Code::TooManyLinks,
        Errno::XDEV => Code::LeadsOut,
        Errno::AGAIN | Errno::BUSY | Errno::TXTBSY => Code::Busy,
        Errno::NAMETOOLONG => Code::NameTooLong,
        Errno::FBIG | Errno::OVERFLOW => Code::TooLarge,
        Errno::NOSPC => Code::NoSpace,
        Errno::DQUOT => Code::OverQuota,
        Errno::ROFS => Code::ReadOnly,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::MLINK => Code::TooMany,
        // A disk that was pulled out answers with the same as a bad sector: either is the storage's trouble, and may pass.
        Errno::IO
        | Errno::STALE
        | Errno::NOTCONN
        | Errno::TIMEDOUT
        | Errno::HOSTDOWN
        | Errno::NODEV
        | Errno::SHUTDOWN => Code::Away,
        Errno::OPNOTSUPP | Errno::NXIO | Errno::NOSYS => Code::NotSupported,
        Errno::PIPE | Errno::CONNRESET => Code::CutOff,
        _ => Code::Failed,
    }
}

/// What an errno of a rename or a hard link means: two of them mean something else than where paths are resolved.
pub(crate) fn renaming(errno: Errno) -> Code {
    match errno {
        Errno::XDEV => Code::OtherFileSystem,
        Errno::INVAL => Code::IntoItself,
        other => code(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_can_do_something_about_has_a_word_of_its_own() {
        for (errno, expected) in [
            (Errno::NOSPC, Code::NoSpace),
            (Errno::DQUOT, Code::OverQuota),
            (Errno::ROFS, Code::ReadOnly),
            (Errno::STALE, Code::Away),
            (Errno::NOTCONN, Code::Away),
            (Errno::NAMETOOLONG, Code::NameTooLong),
            (Errno::XDEV, Code::LeadsOut),
            (Errno::IO, Code::Away),
            (Errno::SHUTDOWN, Code::Away),
            (Errno::NOTTY, Code::Failed),
        ] {
            assert_eq!(code(errno), expected);
        }
        assert_eq!(renaming(Errno::XDEV), Code::OtherFileSystem);
        assert_eq!(renaming(Errno::NOSPC), Code::NoSpace);
    }
}
