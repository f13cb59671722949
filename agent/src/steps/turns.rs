//! Whose turn it is: a session runs one step at a time. A step that is being ended is waited for, because who ended it may have the next one
//! ready at once: a kernel that was started again, a cell that was run again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::Refusal;

/// How long the end of an asker that was killed may not have been heard of yet, when it is already seen elsewhere.
const UNHEARD: Duration = Duration::from_millis(200);

/// The turns of one session. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Turns {
    current: Arc<watch::Sender<Option<Current>>>,
}

/// The step that has the turn.
struct Current {
    /// For people.
    what: String,
    is_ending: bool,
}

/// The turn of a step, until this is dropped.
pub(super) struct Turn {
    turns: Turns,
}

impl Turns {
    /// Takes the turn for a step. Can be cancelled.
    ///
    /// # Errors
    /// `busy` where another step has it and is not being ended.
    pub(super) async fn take(&self, what: &str) -> Result<Turn, Refusal> {
        let mut current = self.current.subscribe();
        let heard = Instant::now() + UNHEARD;
        loop {
            // Whatever changes from here on is seen.
            current.mark_unchanged();
            let mut other = None;
            let is_taken = self.current.send_if_modified(|current| {
                other = current.as_ref().map(|current| (current.what.clone(), current.is_ending));
                if other.is_none() {
                    *current = Some(Current { what: what.to_owned(), is_ending: false });
                }
                other.is_none()
            });
            match other {
                _ if is_taken => return Ok(Turn { turns: self.clone() }),
                // Its sender lives as long as this does.
                Some((_, true)) => drop(current.changed().await),
                Some((other, false)) if timeout_at(heard, current.changed()).await.is_err() => {
                    let text = format!(
                        "a step runs already: {other}. Wait for it, or end it first: Ctrl-C where it was started, `%eirene stop` in its notebook"
                    );
                    return Err(Refusal("busy", text));
                }
                Some((_, false)) | None => {}
            }
        }
    }

    /// What is being ended now, for people.
    pub(super) fn ending(&self) -> Option<String> {
        self.current.borrow().as_ref().filter(|current| current.is_ending).map(|current| current.what.clone())
    }
}

impl Turn {
    /// The step is as good as over: who comes now waits.
    pub(super) fn ends(&self) {
        self.turns.current.send_if_modified(|current| {
            current.as_mut().is_some_and(|current| !std::mem::replace(&mut current.is_ending, true))
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.current.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether somebody waits for the turn, and does not have it.
    async fn waits(turns: &Turns) -> bool {
        tokio::time::timeout(10 * UNHEARD, turns.take("next")).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_runs_keeps_others_out_and_one_that_is_being_ended_is_waited_for() {
        let turns = Turns::default();
        let first = turns.take("first").await.unwrap();
        let Err(Refusal(code, text)) = turns.take("second").await else { panic!("two at a time") };
        assert_eq!(code, "busy");
        assert!(text.contains("a step runs already: first"), "{text}");
        assert_eq!(turns.ending(), None);

        first.ends();
        assert_eq!(turns.ending().as_deref(), Some("first"));
        assert!(waits(&turns).await);
        let (next, ()) = tokio::join!(turns.take("second"), async { drop(first) });
        assert!(turns.take("third").await.is_err(), "it has the turn");
        drop(next);
        turns.take("third").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_heard_of_late_is_waited_for() {
        let turns = Turns::default();
        let first = turns.take("first").await.unwrap();
        let late = async {
            tokio::time::sleep(UNHEARD / 2).await;
            first.ends();
            tokio::time::sleep(10 * UNHEARD).await;
            drop(first);
        };
        let (next, ()) = tokio::join!(turns.take("second"), late);
        next.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_that_wait_one_has_it() {
        let turns = Turns::default();
        let first = turns.take("first").await.unwrap();
        first.ends();
        let (one, other, ()) = tokio::join!(turns.take("one"), turns.take("other"), async { drop(first) });
        assert!(one.is_ok() != other.is_ok());
    }
}
