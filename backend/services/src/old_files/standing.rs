//! How old files in a space stand, in a word for programs and a sentence for people.

use eirene_core::Sentence;
use eirene_core::old_files::{OldFilesDoubt, OldFilesLook, OldFilesRule, OldFilesState};
use eirene_words::{say, say_count};

use super::decide::is_of_rule;
use super::{OldFilesMember, OldFilesReport};

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
    /// In a space of a group, of whose members whoever asks is none: each member's stand apart.
    ByMember,
}

impl Standing {
    /// How what a report says stands.
    pub fn of(report: &OldFilesReport) -> Self {
        match report.rule {
            None => Self::None,
            Some(_) if report.is_shared && !report.is_own && !report.state.exempt => Self::ByMember,
            Some(rule) => Self::of_state(&report.state, rule),
        }
    }

    /// How one person's files stand by a rule.
    pub fn of_state(state: &OldFilesState, rule: OldFilesRule) -> Self {
        match (state.doubt, &state.list) {
            _ if state.exempt => Self::Exempt,
            (Some(doubt), _) => Self::Undetermined(doubt),
            (None, None) => Self::NotListed,
            (None, Some(list)) if !is_of_rule(list, rule) => Self::NotListed,
            (None, Some(list)) if list.found.files == 0 => Self::Nothing,
            (None, Some(list)) if list.dry_run => Self::Trial,
            (None, Some(list)) if list.told_at.is_none() => Self::Untold,
            (None, Some(_)) => Self::Waiting,
        }
    }

    /// Why it cannot be known what is right, where that is so.
    pub fn doubt(self) -> Option<OldFilesDoubt> {
        if let Self::Undetermined(doubt) = self { Some(doubt) } else { None }
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
            Self::ByMember => "by_member",
        }
    }

    /// The same in a sentence, where `files` are listed.
    fn sentence(self, files: u64) -> Sentence {
        match self {
            Self::None => say("old_files.none"),
            Self::Exempt => say("old_files.exempt"),
            Self::Undetermined(doubt) => sentence_of(doubt),
            Self::NotListed => say("old_files.not_listed"),
            Self::Nothing => say("old_files.nothing"),
            Self::Trial => say_count("old_files.trial", files, &[]),
            Self::Untold => say_count("old_files.untold", files, &[]),
            Self::Waiting => say_count("old_files.waiting", files, &[]),
            Self::ByMember => say_count("old_files.by_member", files, &[]),
        }
    }
}

impl OldFilesReport {
    /// How it stands, in a sentence.
    pub fn sentence(&self) -> Sentence {
        let of_members: u64 = self.members.iter().map(|member| listed(&member.state)).sum();
        let standing = Standing::of(self);
        standing.sentence(if standing == Standing::ByMember { of_members } else { listed(&self.state) })
    }
}

impl OldFilesMember {
    /// How a member's files stand by a rule, and the same in a sentence.
    pub fn standing(&self, rule: OldFilesRule) -> (Standing, Sentence) {
        let standing = Standing::of_state(&self.state, rule);
        (standing, standing.sentence(listed(&self.state)))
    }

    /// What a look found that somebody asked for, if nothing was listed since.
    pub fn looked(&self) -> Option<&OldFilesLook> {
        let listed_at = self.state.list.as_ref().map(|list| list.at);
        self.state.look.as_ref().filter(|look| Some(look.at) > listed_at)
    }
}

fn listed(state: &OldFilesState) -> u64 {
    state.list.as_ref().map_or(0, |list| list.found.files)
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
        OldFilesDoubt::NoMember => "old_files.doubt.no_member",
        OldFilesDoubt::Files => "old_files.doubt.files",
        OldFilesDoubt::ListLost => "old_files.doubt.list_lost",
        OldFilesDoubt::NotTold => "old_files.doubt.not_told",
    })
}
