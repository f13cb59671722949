//! What only the deep tests do: they run with `EIRENE_TEST_DEEP`, on a machine that has nothing else to do.

use std::time::Duration;

/// Whether the deep tests run.
pub(crate) fn deep() -> bool {
    std::env::var_os("EIRENE_TEST_DEEP").is_some_and(|value| !value.is_empty())
}

/// The product promises to take less than `longest`. Only the deep tests measure it: a busy machine takes longer.
#[track_caller]
pub(crate) fn assert_within(longest: Duration, took: Duration) {
    assert!(!deep() || took < longest, "it took {took:?}, and must take less than {longest:?}");
}
