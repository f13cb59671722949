//! Sends values to the site's Zabbix, every period. One that is away is one warning, and values wait for it as long as there is room.

use async_trait::async_trait;
use eirene_services::app::App;

use super::driver::Reconciler;

/// Sends them.
pub(super) struct TellZabbix {
    app: App,
}

impl TellZabbix {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for TellZabbix {
    fn name(&self) -> &'static str {
        "zabbix"
    }

    async fn run(&self) -> anyhow::Result<()> {
        self.app.zabbix.round().await
    }
}
