//! Removes what is left of uploads that nobody went on with, and of copies and extractions that a restart cut off.

use std::time::Duration;

use async_trait::async_trait;
use eirene_services::app::App;

use super::driver::Reconciler;

/// A run begins nothing after this time, so that it ends before it is ended.
const LONGEST: Duration = Duration::from_mins(1);

/// Removes them.
pub(super) struct UploadLeftovers {
    app: App,
}

impl UploadLeftovers {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for UploadLeftovers {
    fn name(&self) -> &'static str {
        "upload_leftovers"
    }

    async fn run(&self) -> anyhow::Result<()> {
        self.app.uploads.clear(LONGEST).await?;
        Ok(self.app.operations.clear(&self.app.files, LONGEST).await?)
    }
}
