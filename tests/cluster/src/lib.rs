//! What the tests on the demo cluster share: the cluster's log-ins and containers, the API and the command line as a person uses them, a Jupyter
//! kernel reached as a browser reaches it, a GPU's driver that there is not, and a training that may be disturbed. It leaves all judging to the
//! tests.

pub mod cli;
pub mod demo;
pub mod driver;
pub mod kernel;
pub mod portal;
pub mod training;

/// Python that asks for steps by the protocol itself, for cells and scripts of images without `eirene-train`.
pub const ASKER: &str = include_str!("asker.py");

use std::time::{Duration, Instant};

/// Waits until `probe` gives a value, asking four times a second; fails with `what` after `within`.
pub async fn until<T, F>(what: &str, within: Duration, mut probe: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let begun = Instant::now();
    let mut last = None;
    loop {
        match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        if begun.elapsed() > within {
            let why = last.map_or_else(String::new, |error| format!(" (last error: {error:#})"));
            anyhow::bail!("not within {within:?}: {what}{why}");
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Whether everything is tested, and times that only a quiet machine keeps are measured: with `EIRENE_TEST_DEEP`.
pub fn deep() -> bool {
    std::env::var_os("EIRENE_TEST_DEEP").is_some_and(|deep| !deep.is_empty())
}

/// Some of these, others for another `EIRENE_TEST_SEED`; all of them with `EIRENE_TEST_DEEP=1`.
pub fn sample<T: Copy>(all: &[T], count: usize) -> Vec<T> {
    if deep() {
        return all.to_vec();
    }
    let seed: usize = std::env::var("EIRENE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20);
    (0..count.min(all.len())).map(|number| all[(seed + number) % all.len()]).collect()
}
