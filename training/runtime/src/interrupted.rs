//! A caller that waits can be asked to give up: by Ctrl-C, say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::bell::now;

/// How often it is asked.
pub(crate) const OFTEN: Duration = Duration::from_millis(50);

/// Says whether the thread that calls it, and that has waited for a while in a blocking call, is to give up. Half a collective cannot be taken
/// back: giving up ends the world.
#[derive(Clone)]
pub struct Interrupted {
    ask: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Interrupted {
    /// By asking `ask`, which must not use the world.
    pub fn by(ask: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask) }
    }
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interrupted")
    }
}

/// One wait, in which it is asked now and then.
pub(crate) struct Asking<'a> {
    interrupted: Option<&'a Interrupted>,
    last: Instant,
}

impl<'a> Asking<'a> {
    /// Begins to wait.
    pub(crate) fn new(interrupted: Option<&'a Interrupted>) -> Self {
        Self { interrupted, last: now() }
    }

    /// Whether to give up.
    pub(crate) fn says_stop(&mut self) -> bool {
        let Some(interrupted) = self.interrupted.filter(|_| self.last.elapsed() >= OFTEN) else { return false };
        self.last = now();
        (interrupted.ask)()
    }
}
