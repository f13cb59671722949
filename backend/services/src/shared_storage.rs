//! The shared storage that the configuration names. Whatever it is, the launcher looks at it, and where it has a tool, the launcher runs that.

use std::sync::Arc;

use eirene_core::launcher::Launcher;
use eirene_core::storage::SharedStorage;
use eirene_storage::{Beegfs7, Beegfs8, LocalProbe, Posix};

use crate::beegfs_tool::LauncherTool;
use crate::config::{Config, StorageAdapter};
use crate::probe::LauncherProbe;

/// The adapter of `config`, behind `launcher`. Nothing is asked yet.
pub fn shared_storage(config: &Config, launcher: &Arc<dyn Launcher>) -> Arc<dyn SharedStorage> {
    let roots = config.spaces.roots.iter().map(|root| (root.name.clone(), root.path.clone())).collect();
    let posix = Posix::new(Arc::new(LauncherProbe::new(Arc::clone(launcher), LocalProbe::new(roots))));
    let tool = || Arc::new(LauncherTool::new(Arc::clone(launcher)));
    match config.storage.adapter {
        StorageAdapter::Posix => Arc::new(posix),
        StorageAdapter::Beegfs7 => Arc::new(Beegfs7::new(tool(), posix)),
        StorageAdapter::Beegfs8 => Arc::new(Beegfs8::new(tool(), posix)),
    }
}
