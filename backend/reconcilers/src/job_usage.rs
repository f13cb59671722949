//! Measures what sessions and runs use of what they hold: while they last, and once more when they are over. What was not measured because the
//! portal was away is measured as soon as it is back, as long as there are samples.

use async_trait::async_trait;
use eirene_services::app::App;

use super::driver::Reconciler;

/// Sessions that are measured in a run.
const MOST: u32 = 200;

/// Measures sessions.
pub(super) struct MeasureJobs {
    app: App,
}

impl MeasureJobs {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for MeasureJobs {
    fn name(&self) -> &'static str {
        "job_usage"
    }

    async fn run(&self) -> anyhow::Result<()> {
        self.app.efficiency.measure_some(MOST).await?;
        Ok(())
    }
}
