//! Trying again: how long to pause, what is worth it, and when to give up.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::{ApiError, may_pass, was_not_begun};

/// How long a portal may be away; a restart takes seconds, an upgrade a minute or two.
const LONGEST: Duration = Duration::from_mins(5);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest that the portal may ask to be left alone; what is longer is asked again then all the same.
const LONGEST_WISH: Duration = Duration::from_mins(1);

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
        self.pause_after(&error).await;
        Ok(())
    }

    /// Pauses for as long as the portal asks to be left alone, or longer each time.
    pub(crate) async fn pause_after(&mut self, error: &anyhow::Error) {
        let wish = match error.downcast_ref() {
            Some(ApiError::Unavailable(problem) | ApiError::Refused(problem)) => problem.retry_after,
            _ => None,
        };
        self.pause = self.pause.max(wish.unwrap_or_default().min(LONGEST_WISH));
        self.pause().await;
    }
}

/// Asks for what can be asked for again, until there is an answer or patience ends.
pub(crate) async fn persist<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut patience = Patience::new();
    loop {
        match ask().await {
            Err(error) => patience.bear(error).await?,
            answered => return answered,
        }
    }
}

/// The same for a change: once more only where it was not begun, so that nothing is done twice.
pub(crate) async fn persist_once<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut patience = Patience::new();
    loop {
        match ask().await {
            Err(error) if was_not_begun(&error) => patience.bear(error).await?,
            answered => return answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Problem;

    fn unavailable(status: u16, retry_after: Option<u64>) -> anyhow::Error {
        let retry_after = retry_after.map(Duration::from_secs);
        ApiError::Unavailable(Problem { status, retry_after, ..Problem::default() }).into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_portal_is_left_alone_for_as_long_as_it_asks() {
        let (began, mut patience) = (Instant::now(), Patience::new());
        patience.bear(unavailable(503, Some(20))).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(20));
        patience.bear(unavailable(503, Some(1_000_000))).await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(20) + LONGEST_WISH, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_asked_for_again_only_if_it_was_not_begun() {
        for (status, asked) in [(503, 2), (502, 1), (500, 1)] {
            let mut times = 0;
            let _ = persist_once(async || {
                times += 1;
                if times < 2 { Err(unavailable(status, None)) } else { Ok(()) }
            })
            .await;
            assert_eq!(times, asked, "{status}");
        }
        assert!(Patience::new().bear(unavailable(507, None)).await.is_err(), "room does not make itself");
    }

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
