//! Notes once a minute how the cluster is, from the snapshot: how many jobs run and wait, how many GPUs they have and want.

use async_trait::async_trait;
use eirene_services::app::App;

use super::driver::Reconciler;

/// Notes it.
pub(super) struct NoteCluster {
    app: App,
}

impl NoteCluster {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for NoteCluster {
    fn name(&self) -> &'static str {
        "cluster_past"
    }

    async fn run(&self) -> anyhow::Result<()> {
        Ok(self.app.samples.note_cluster(&self.app.cluster.snapshot()).await?)
    }
}
