//! Trying again: how long to pause, what is worth it, and when to give up.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::may_pass;

/// How long a portal may be away; a restart takes seconds, an upgrade a minute or two.
const LONGEST: Duration = Duration::from_mins(5);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The patience left with a portal that has answered before.
pub(crate) struct Patience {
    pause: Duration,
    away_since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { pause: FIRST_PAUSE, away_since: None }
    }

    /// All is well again.
    pub(crate) fn restore(&mut self) {
        *self = Self::new();
    }

    /// Pauses, longer each time.
    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Pauses after `error`, or gives it back: it will not pass, or has not for too long.
    pub(crate) async fn bear(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if !may_pass(&error) || since.elapsed() >= LONGEST {
            return Err(error);
        }
        self.pause().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ApiError, Problem};

    #[tokio::test(start_paused = true)]
    async fn an_absent_portal_is_borne_for_minutes_with_pauses_but_not_for_ever() {
        let began = Instant::now();
        let mut patience = Patience::new();
        let mut tries = 0;
        while patience.bear(ApiError::Unavailable(Problem::default()).into()).await.is_ok() {
            tries += 1;
        }
        assert!((Duration::from_mins(2)..Duration::from_mins(6)).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!((10..60).contains(&tries), "{tries}");
        patience.restore();
        assert!(patience.bear(ApiError::Unavailable(Problem::default()).into()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_final() {
        let began = Instant::now();
        assert!(Patience::new().bear(ApiError::Refused(Problem::default()).into()).await.is_err());
        assert!(Patience::new().bear(anyhow::anyhow!("not understood")).await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
