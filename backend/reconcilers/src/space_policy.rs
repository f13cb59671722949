//! Looks at the spaces whose time may be over, once an interval: at most one step each, and none in any doubt. The first look after a start only
//! notes that it looked.

use std::time::Duration;

use async_trait::async_trait;
use eirene_services::app::App;
use eirene_services::spaces::policing;

use super::driver::Reconciler;

/// Time between two looks.
pub(super) const EVERY: Duration = policing::INTERVAL.unsigned_abs();

/// Carries out the policies of roots.
pub(super) struct SpacePolicy {
    app: App,
}

impl SpacePolicy {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for SpacePolicy {
    fn name(&self) -> &'static str {
        "space_policy"
    }

    async fn run(&self) -> anyhow::Result<()> {
        Ok(self.app.policing.run().await?)
    }
}
