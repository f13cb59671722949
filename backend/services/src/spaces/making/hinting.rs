//! How the files of a space are spread over targets: a wish like the others, carried out where the storage spreads files. What it would not do is
//! written down with what it said, and tried again; where nothing is spread there is nothing to do.

use eirene_core::Space;
use eirene_core::audit::NewAuditEvent;
use eirene_core::space::{HintState, StripeHint};

use super::steps::Trouble;
use super::{Making, details};
use crate::audit::by_system;
use crate::storage::snapshot::TroubleKind;
use crate::storage::stripe::Applied;

/// What became of a hint, and why it is not applied.
pub(super) type Hinted = (HintState, Option<String>);

/// Writes the wish into a row, also where it is the same as before: then it is applied once more.
pub(super) fn wish(space: &mut Space, hint: StripeHint) {
    let state = match hint {
        StripeHint::Usual => HintState::Unset,
        StripeHint::SmallFiles | StripeHint::LargeSequential => HintState::Wanted,
    };
    (space.hint, space.hint_state, space.hint_said) = (hint, state, None);
}

/// Whether the storage is to be asked, for the first time or again.
pub(super) fn is_due(space: &Space) -> bool {
    matches!(space.hint_state, HintState::Wanted | HintState::NotApplied)
}

impl Making {
    /// Has the storage spread the files of a space as its hint says, where that is due.
    pub(super) async fn spread(&self, space: &Space) -> Result<Hinted, Trouble> {
        if !is_due(space) {
            return Ok((space.hint_state, space.hint_said.clone()));
        }
        match self.inner.stripes.apply_hint(space).await {
            Ok(Applied::CannotSpread) => Ok((HintState::Unset, None)),
            Ok(Applied::AsItIs | Applied::Set(_)) => Ok((HintState::Applied, None)),
            Err(trouble) if trouble.kind == TroubleKind::Away => Err(Trouble::Away(trouble.text)),
            Err(trouble) => Ok((HintState::NotApplied, Some(trouble.text))),
        }
    }
}

/// What the audit log says of the outcome of a hint, where that is new.
pub(super) fn audited(before: &Space, now: &Space) -> Option<NewAuditEvent> {
    if (before.hint_state, &before.hint_said) == (now.hint_state, &now.hint_said) {
        return None;
    }
    let (target, details) = (now.name.as_str(), details(now));
    match now.hint_state {
        HintState::Applied => Some(by_system("space_make", "space.spread", target, "ok", details)),
        HintState::NotApplied => Some(by_system("space_make", "space.not_spread", target, "refused", details)),
        HintState::Unset | HintState::Wanted => None,
    }
}
