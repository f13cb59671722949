//! How old files in a space stand, in a word for programs and a sentence for people.

use eirene_core::Sentence;
use eirene_core::old_files::OldFilesDoubt;
use eirene_words::{say, say_count};

use super::OldFilesReport;
use super::decide::is_of_rule;

/// How old files in a space stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing becomes of them there.
    None,
    /// An admin has exempted the space.
    Exempt,
    /// It cannot be known what is right, so nothing is done.
    Undetermined(OldFilesDoubt),
    /// They were not listed yet.
    NotListed,
    /// There were none.
    Nothing,
    /// They are listed, and on trial nothing is removed.
    Trial,
    /// They are listed, and the owner was not told yet.
    Untold,
    /// They are listed, and go when their time has come.
    Waiting,
}

impl Standing {
    /// How what a report says stands.
    pub fn of(report: &OldFilesReport) -> Self {
        let state = &report.state;
        match (report.rule, state.doubt, &state.list) {
            (None, ..) => Self::None,
            (Some(_), ..) if state.exempt => Self::Exempt,
            (Some(_), Some(doubt), _) => Self::Undetermined(doubt),
            (Some(_), None, None) => Self::NotListed,
            (Some(rule), None, Some(list)) if !is_of_rule(list, rule) => Self::NotListed,
            (Some(_), None, Some(list)) if list.found.files == 0 => Self::Nothing,
            (Some(_), None, Some(list)) if list.dry_run => Self::Trial,
            (Some(_), None, Some(list)) if list.told_at.is_none() => Self::Untold,
            (Some(_), None, Some(_)) => Self::Waiting,
        }
    }

    /// The word programs know it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exempt => "exempt",
            Self::Undetermined(_) => "undetermined",
            Self::NotListed => "not_listed",
            Self::Nothing => "nothing",
            Self::Trial => "trial",
            Self::Untold => "untold",
            Self::Waiting => "waiting",
        }
    }
}

impl OldFilesReport {
    /// How it stands, in a sentence.
    pub fn sentence(&self) -> Sentence {
        let files = self.state.list.as_ref().map_or(0, |list| list.found.files);
        match Standing::of(self) {
            Standing::None => say("old_files.none"),
            Standing::Exempt => say("old_files.exempt"),
            Standing::Undetermined(doubt) => sentence_of(doubt),
            Standing::NotListed => say("old_files.not_listed"),
            Standing::Nothing => say("old_files.nothing"),
            Standing::Trial => say_count("old_files.trial", files, &[]),
            Standing::Untold => say_count("old_files.untold", files, &[]),
            Standing::Waiting => say_count("old_files.waiting", files, &[]),
        }
    }
}

fn sentence_of(doubt: OldFilesDoubt) -> Sentence {
    say(match doubt {
        OldFilesDoubt::StorageAway => "old_files.doubt.storage_away",
        OldFilesDoubt::PlaceUnknown => "old_files.doubt.place_unknown",
        OldFilesDoubt::OtherFileSystem => "old_files.doubt.other_file_system",
        OldFilesDoubt::OtherDirectory => "old_files.doubt.other_directory",
        OldFilesDoubt::NotWatched => "old_files.doubt.not_watched",
        OldFilesDoubt::Clock => "old_files.doubt.clock",
        OldFilesDoubt::People => "old_files.doubt.people",
        OldFilesDoubt::OwnerUnknown => "old_files.doubt.owner_unknown",
        OldFilesDoubt::OwnerDisabled => "old_files.doubt.owner_disabled",
        OldFilesDoubt::Files => "old_files.doubt.files",
        OldFilesDoubt::ListLost => "old_files.doubt.list_lost",
        OldFilesDoubt::NotTold => "old_files.doubt.not_told",
    })
}
