//! What a space's hint means to storage that spreads files over targets. Whoever makes a space applies it (`services::storage::stripe`). It holds
//! for files that are made afterwards, and where the storage cannot spread, the hint is kept and does nothing.

use eirene_core::space::StripeHint;
use eirene_core::storage::{Bytes, SetStripe};

/// Small files lie on one target: a second one is another server to ask, for nothing.
const SMALL_CHUNK: Bytes = Bytes(64 << 10);
/// Large files are read by many at once, from several targets; with more than these few one slow target slows every file.
const LARGE_CHUNK: Bytes = Bytes(1 << 20);
const LARGE_TARGETS: u32 = 4;

/// What to ask the storage for, in a pool of so many targets; none where everything is to stay as it is.
pub fn stripe(hint: StripeHint, targets_in_pool: u32) -> Option<SetStripe> {
    let (chunk, targets) = match hint {
        StripeHint::Usual => return None,
        StripeHint::SmallFiles => (SMALL_CHUNK, 1),
        StripeHint::LargeSequential => (LARGE_CHUNK, LARGE_TARGETS.min(targets_in_pool).max(1)),
    };
    Some(SetStripe { chunk: Some(chunk), targets: Some(targets), ..SetStripe::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_asks_for_no_more_targets_than_there_are_and_for_at_least_one() {
        for pool in 0..10 {
            assert_eq!(stripe(StripeHint::Usual, pool), None);
            let targets = |hint| stripe(hint, pool).unwrap().targets.unwrap();
            assert_eq!(targets(StripeHint::SmallFiles), 1);
            assert_eq!(targets(StripeHint::LargeSequential), pool.clamp(1, 4));
        }
    }

    #[test]
    fn chunks_are_powers_of_two_that_beegfs_takes() {
        for hint in [StripeHint::SmallFiles, StripeHint::LargeSequential] {
            let chunk = stripe(hint, 4).unwrap().chunk.unwrap().0;
            assert!(chunk.is_power_of_two() && (64 << 10..=1 << 31).contains(&chunk));
        }
    }
}
