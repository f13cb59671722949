//! How a session's fast scratch is, as the pages say it: one line, and a bar where it is known how much there is to copy.

use eirene_core::session::Session;
use eirene_core::{KeptOn, ScratchPhase};
use eirene_services::nodes::{Copied, Share};
use eirene_words::Words;
use serde::Serialize;

use super::format;
use super::session::sentence;

/// The line; only where there is something to say.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ScratchLine {
    /// How it is, in one sentence.
    pub(crate) text: String,
    /// How much of the copy is done; none where that is not known.
    pub(crate) percent: Option<u8>,
    /// Whether something is not in its place.
    pub(crate) kept: bool,
    /// What more there is to say, one line for each node.
    pub(crate) nodes: Vec<String>,
}

/// What is said while it is filled: before anything was counted, of how much, and how much.
const FILLING: [&str; 3] = ["scratch_state.filling", "scratch_state.filling_of", "scratch_state.filling_some"];
/// The same while it is emptied.
const EMPTYING: [&str; 3] = ["scratch_state.emptying", "scratch_state.emptying_of", "scratch_state.emptying_some"];

impl ScratchLine {
    /// Of the scratch of a session's present start. What is as it should be is not said, nor what a session that is over has not finished.
    pub(crate) fn new(words: &Words, session: &Session, copied: Option<&Copied>) -> Option<Self> {
        let known = session.scratch_state.as_ref().filter(|known| known.restart_count == session.restart_count)?;
        let over = session.state.is_final();
        match known.phase {
            ScratchPhase::Filling if !over => Some(Self::copying(words, FILLING, copied)),
            ScratchPhase::Emptying if !over => Some(Self::copying(words, EMPTYING, copied)),
            ScratchPhase::Kept if known.kept.iter().any(|kept| kept.rescue.job.is_some()) => {
                Some(Self::kept(words, "scratch_state.rescuing", &known.kept))
            }
            ScratchPhase::Kept => Some(Self::kept(words, "scratch_state.kept", &known.kept)),
            ScratchPhase::Lost => Some(Self::kept(words, "scratch_state.lost", &known.kept)),
            ScratchPhase::Filling | ScratchPhase::Emptying | ScratchPhase::Ready | ScratchPhase::Done => None,
        }
    }

    fn copying(words: &Words, [nothing, of, some]: [&str; 3], copied: Option<&Copied>) -> Self {
        let say = |share: &Share| {
            let done = format::bytes(words, share.copied.bytes);
            match share.total {
                Some(total) => {
                    let total = format::bytes(words, total.bytes);
                    words.fill(of, &[("copied", &done), ("total", &total)])
                }
                None => words.fill(some, &[("copied", &done)]),
            }
        };
        // Where nothing was counted yet there may be nothing to copy at all.
        let all = copied.map(|copied| &copied.all).filter(|all| all.copied.files > 0 || all.total.is_some());
        let node = |(name, share): &(_, Share)| {
            let values = [("node", ToString::to_string(name)), ("share", part(words, share))];
            words.fill("scratch_state.node", &values.each_ref().map(|(key, value)| (*key, value.as_str())))
        };
        Self {
            text: all.map_or_else(|| words.get(nothing), say),
            percent: all.and_then(percent),
            kept: false,
            nodes: copied.map(|copied| copied.nodes.iter().map(node).collect()).unwrap_or_default(),
        }
    }

    fn kept(words: &Words, key: &str, kept: &[KeptOn]) -> Self {
        let nodes: Vec<String> = kept.iter().map(|kept| kept.node.to_string()).collect();
        let why = |kept: &KeptOn| {
            let text = sentence(kept.text.as_deref()?);
            Some(words.fill("scratch_state.node", &[("node", kept.node.as_str()), ("share", &text)]))
        };
        Self {
            text: words.fill(key, &[("nodes", &nodes.join(", "))]),
            percent: None,
            kept: true,
            nodes: kept.iter().filter_map(why).collect(),
        }
    }
}

fn part(words: &Words, share: &Share) -> String {
    let done = format::bytes(words, share.copied.bytes);
    match share.total {
        Some(total) => {
            words.fill("scratch_state.part", &[("copied", &done), ("total", &format::bytes(words, total.bytes))])
        }
        None => done,
    }
}

/// By bytes, or by files where they are all empty.
fn percent(share: &Share) -> Option<u8> {
    let total = share.total?;
    let (part, whole) = match total.bytes {
        0 => (share.copied.files, total.files),
        bytes => (share.copied.bytes, bytes),
    };
    u8::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).ok()
}

#[cfg(test)]
mod tests {
    use eirene_core::{ScratchState, SessionState};
    use eirene_tunnel::message::Amount;

    use super::*;

    fn session(phase: ScratchPhase) -> Session {
        let mut session = eirene_services::testing::session("ada");
        session.state = SessionState::Starting;
        session.scratch_state = Some(ScratchState::new(0, phase, Vec::new()));
        session
    }

    fn share(bytes: u64, total: Option<u64>) -> Share {
        let amount = |bytes| Amount { bytes, files: 1 };
        Share::of(amount(bytes), total.map(amount))
    }

    #[test]
    fn a_copy_is_one_sentence_with_what_is_known_of_it() {
        let words = eirene_words::words();
        let line = |phase, copied: Option<Share>| {
            let copied = copied.map(|all| Copied { all, nodes: vec![("c1".parse().unwrap(), all)] });
            ScratchLine::new(words, &session(phase), copied.as_ref()).unwrap()
        };
        let known = line(ScratchPhase::Filling, Some(share(3 << 30, Some(12 << 30))));
        assert_eq!(
            (known.text.as_str(), known.percent),
            ("Copying 3\u{a0}GiB of 12\u{a0}GiB to the nodes’ scratch.", Some(25))
        );
        assert_eq!(known.nodes, ["c1: 3\u{a0}GiB of 12\u{a0}GiB"]);
        let unknown = line(ScratchPhase::Emptying, Some(share(3 << 30, None)));
        assert!(unknown.text.contains("3\u{a0}GiB so far") && unknown.percent.is_none(), "{unknown:?}");
        assert!(line(ScratchPhase::Filling, None).text.contains("being prepared"));
        assert_eq!(percent(&share(0, Some(0))), Some(100), "empty files are counted");
        assert_eq!(percent(&share(u64::MAX, Some(1))), Some(100));
    }

    #[test]
    fn what_is_as_it_should_be_is_not_said() {
        let words = eirene_words::words();
        let said = |session: &Session| ScratchLine::new(words, session, None).is_some();
        for phase in [ScratchPhase::Ready, ScratchPhase::Done] {
            assert!(!said(&session(phase)), "{phase}");
        }
        let mut over = session(ScratchPhase::Emptying);
        assert!(said(&over));
        over.state = SessionState::Failed;
        assert!(!said(&over));
        let mut kept = session(ScratchPhase::Kept);
        kept.state = SessionState::Failed;
        assert!(said(&kept));
        kept.restart_count = 1;
        assert!(!said(&kept), "of an earlier start");
    }
}
