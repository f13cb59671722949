//! Looks at the spaces of roots that say what becomes of old files, once an interval: at most one step each, and none in any doubt. What takes long
//! goes on as an operation of the owner's.

use async_trait::async_trait;
use eirene_services::app::App;

use super::driver::Reconciler;

/// Lists old files, tells of them, and has removed what was listed for long.
pub(super) struct OldFiles {
    app: App,
}

impl OldFiles {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for OldFiles {
    fn name(&self) -> &'static str {
        "old_files"
    }

    async fn run(&self) -> anyhow::Result<()> {
        Ok(self.app.old_files.run().await?)
    }

    fn has_more(&self) -> bool {
        self.app.old_files.has_more()
    }
}
