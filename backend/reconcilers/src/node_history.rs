//! Writes down what nodes were, whenever their state or reason has changed.

use async_trait::async_trait;
use eirene_services::app::App;

use super::driver::Reconciler;

/// Writes it down.
pub(super) struct NodeHistory {
    app: App,
}

impl NodeHistory {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for NodeHistory {
    fn name(&self) -> &'static str {
        "node_history"
    }

    async fn run(&self) -> anyhow::Result<()> {
        self.app.upkeep.note_history().await?;
        Ok(())
    }
}
