//! Fast scratch: what a session or a run may ask for here, and what its job has to know of it.

use eirene_core::scratch::{
    BEEOND_FEATURE, HOME_SPACE, JobScratch, MAX_ENTRIES, ScratchError, ScratchKind, ScratchSpec, SpacePath, StageOut,
};
use eirene_core::{FeatureName, Session, SpaceName};
use eirene_words::{say, say_with};

use crate::config::Scratch;
use crate::error::FieldError;
use crate::spaces::in_sessions::{InSessions, Named};

/// What goes in, as a field, and what comes back.
const IN: &str = "scratch.stage_in";
const OUT: &str = "scratch.stage_out";

/// What is wrong with what is wanted, by field.
pub(super) fn wrong(wanted: &ScratchSpec, offered: &Scratch) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if base(wanted.kind, offered).is_none() {
        let kind = [("kind", wanted.kind.as_str())];
        errors.push(FieldError::new("scratch.kind", say_with("wrong.no_scratch", &kind)));
    }
    if let Err(error) = wanted.check() {
        let what_goes_in = ScratchSpec { stage_out: Vec::new(), ..wanted.clone() };
        let (field, key) = match error {
            ScratchError::TooMany if wanted.stage_in.len() > MAX_ENTRIES => (IN, "wrong.scratch_entries"),
            ScratchError::TooMany => (OUT, "wrong.scratch_entries"),
            ScratchError::SameTarget if what_goes_in.check().is_err() => (IN, "wrong.scratch_targets"),
            ScratchError::SameTarget => (OUT, "wrong.scratch_targets"),
            ScratchError::Size => ("scratch.size_mib", "wrong.scratch_size"),
            // These are found where they are read.
            ScratchError::Path | ScratchError::Place => ("scratch", "wrong.plain"),
        };
        errors.push(FieldError::new(field, say(key)));
    }
    errors
}

/// Whether the lists name anything but the home, so that it has to be asked which spaces there are.
pub(super) fn names_others(wanted: &ScratchSpec) -> bool {
    wanted.spaces().iter().any(|space| space.as_str() != HOME_SPACE)
}

/// What is wrong with the spaces that the lists name. One that the person may not use is told as one that there is not.
pub(super) fn wrong_spaces(wanted: &ScratchSpec, spaces: &InSessions) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in wanted.spaces() {
        let goes_in = wanted.stage_in.iter().any(|entry| entry.from.space == *name);
        let (field, key) = match (spaces.named(name), named(wanted, name, spaces)) {
            (None, _) => (if goes_in { IN } else { OUT }, "wrong.no_space"),
            (Some(_), None) => (OUT, "wrong.read_only_space"),
            (Some(_), Some(_)) => continue,
        };
        errors.push(FieldError::new(field, say_with(key, &[("space", name.as_str())])));
    }
    // Two names of one space are two ways to say one target.
    let same = |one: &SpacePath, other: &SpacePath| {
        one.space != other.space && one.path == other.path && spaces.named(&one.space) == spaces.named(&other.space)
    };
    let twice = |one: &StageOut| wanted.stage_out.iter().any(|other| same(&one.to, &other.to));
    if errors.is_empty() && wanted.stage_out.iter().any(twice) {
        errors.push(FieldError::new(OUT, say("wrong.scratch_targets")));
    }
    errors
}

/// The space of this name, if the lists may do with it what they want to.
pub fn named<'a>(wanted: &ScratchSpec, name: &SpaceName, spaces: &'a InSessions) -> Option<Named<'a>> {
    let is_target = wanted.stage_out.iter().any(|entry| entry.to.space == *name);
    spaces.named(name).filter(|named| named.is_writable() || !is_target)
}

/// What the job file says of it; none where none was asked for, or it is not offered any more: then the program finds none, and says so.
pub fn for_job(session: &Session, offered: &Scratch) -> Option<JobScratch> {
    let wanted = session.scratch.clone()?;
    let base = base(wanted.kind, offered)?.display().to_string();
    Some(JobScratch { base, spaces: std::collections::BTreeMap::new(), reserve_s: reserve_s(session, offered), wanted })
}

/// Seconds before its time limit at which a session's program is ended, so that something can be copied back.
pub fn reserve_s(session: &Session, offered: &Scratch) -> u32 {
    let brings_out = session.scratch.as_ref().is_some_and(|scratch| !scratch.stage_out.is_empty());
    let half = session.resources.walltime_min.saturating_mul(30);
    if brings_out { offered.stage_out_reserve_s.min(half) } else { 0 }
}

/// The feature its nodes must have.
pub fn feature(session: &Session) -> Option<FeatureName> {
    let on_demand = session.scratch.as_ref().is_some_and(|scratch| scratch.kind == ScratchKind::Beeond);
    BEEOND_FEATURE.parse().ok().filter(|_| on_demand)
}

fn base(kind: ScratchKind, offered: &Scratch) -> Option<&std::path::Path> {
    match kind {
        ScratchKind::Node => offered.node.as_deref(),
        ScratchKind::Beeond => offered.beeond.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::session;

    fn offered() -> Scratch {
        Scratch { node: Some("/local".into()), ..Scratch::default() }
    }

    fn asked(text: &str) -> ScratchSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_not_offered_or_not_known_is_named() {
        let fields = |text: &str| -> Vec<(String, String)> {
            wrong(&asked(text), &offered()).into_iter().map(|error| (error.field, error.message)).collect()
        };
        assert_eq!(fields(r#"{"kind":"node","stage_in":[{"from":"home:a","to":"a"}]}"#), []);
        let said = fields(r#"{"kind":"beeond","size_mib":0,"stage_in":[{"from":"home:a","to":"a"}]}"#);
        let names: Vec<&str> = said.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(names, ["scratch.kind", "scratch.size_mib"]);
        assert!(said[0].1.contains("`beeond`"), "{said:?}");
        for (list, text) in [
            (OUT, r#"{"kind":"node","stage_out":[{"from":"a","to":"home:x"},{"from":"b","to":"home:x"}]}"#),
            (IN, r#"{"kind":"node","stage_in":[{"from":"home:a","to":"x"},{"from":"home:b","to":"x"}]}"#),
        ] {
            let said = fields(text);
            assert_eq!(said.iter().map(|(field, _)| field.as_str()).collect::<Vec<_>>(), [list]);
        }
        let many: Vec<String> = (0..=MAX_ENTRIES).map(|n| format!(r#"{{"from":"a","to":"home:{n}"}}"#)).collect();
        let said = fields(&format!(r#"{{"kind":"node","stage_out":[{}]}}"#, many.join(",")));
        assert_eq!(said.first().map(|(field, _)| field.as_str()), Some(OUT));
    }

    #[test]
    fn the_reserve_is_for_what_is_copied_back_and_leaves_half_of_the_time() {
        let mut one = session("ada");
        assert_eq!((reserve_s(&one, &offered()), for_job(&one, &offered())), (0, None));
        one.scratch = Some(asked(r#"{"kind":"node"}"#));
        assert_eq!((reserve_s(&one, &offered()), feature(&one)), (0, None));
        one.scratch = Some(asked(r#"{"kind":"node","stage_out":[{"from":"a","to":"home:x"}]}"#));
        one.resources.walltime_min = 60;
        let file = for_job(&one, &offered()).unwrap();
        assert_eq!((file.reserve_s, file.base.as_str(), file.spaces.len()), (600, "/local", 0));
        one.resources.walltime_min = 10;
        assert_eq!(reserve_s(&one, &offered()), 300);
        one.scratch = Some(asked(r#"{"kind":"beeond"}"#));
        assert_eq!(feature(&one).map(|feature| feature.to_string()).as_deref(), Some("beeond"));
        assert_eq!(for_job(&one, &offered()), None, "not offered any more");
    }
}
