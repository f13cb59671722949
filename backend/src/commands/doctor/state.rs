//! What eirened keeps in its state directory: whether it is private, and can be written.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use eirene_gateway::tunnel::TunnelIdentity;
use eirene_services::config::Config;
use rustix::fs::{Access, access, statvfs};

use super::Finding;
use crate::commands::owner;

const MIB: u64 = 1024 * 1024;

pub(super) fn state_dir(path: &Path) -> Finding {
    let name = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Finding::Broken(format!("`{name}`: {error}")),
    };
    let mode = metadata.permissions().mode() & 0o777;
    if !metadata.is_dir() {
        return Finding::Broken(format!("`{name}` is no directory"));
    }
    if mode & 0o077 != 0 {
        return Finding::Broken(format!("`{name}` is open to others (mode {mode:o}): chmod 0700 {name}"));
    }
    match owner::check(path, nix::unistd::geteuid()) {
        Ok(()) => Finding::Good(format!("`{name}` is private")),
        Err(error) => Finding::Broken(error.to_string()),
    }
}

/// Samples of sessions, from outside: eirened has them to itself, and `/readyz` says whether it writes them.
pub(super) fn samples(config: &Config) -> Finding {
    let path = config.server.state_dir.join("samples");
    let name = path.display();
    let files = match std::fs::read_dir(&path) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Finding::Doubtful(format!("`{name}` is not there yet; `serve` makes it"));
        }
        Err(error) => return Finding::Broken(format!("`{name}`: {error}; charts stay empty")),
    };
    if let Err(error) = access(&path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        return Finding::Broken(format!("`{name}` cannot be written: {error}; charts stay empty"));
    }
    let used: u64 = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let most = config.samples.disk_mib.saturating_mul(MIB);
    let free = match statvfs(&path) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => return Finding::Broken(format!("`{name}`: {error}")),
    };
    let says = format!("{} of {} MiB are in use", used / MIB, most / MIB);
    if free < most.saturating_sub(used) {
        let left = free / MIB;
        return Finding::Doubtful(format!(
            "{says}, and the disk has only {left} MiB left: make room, or set `[samples] disk_mib` lower"
        ));
    }
    Finding::Good(says)
}

pub(super) fn tunnel(config: &Config) -> Finding {
    let key = config.server.state_dir.join("tunnel.key");
    let Ok(metadata) = std::fs::metadata(&key) else {
        return Finding::Doubtful("no certificate yet; `serve` makes it at its first start".into());
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Finding::Broken(format!("`{}` is open to others (mode {mode:o})", key.display()));
    }
    let loaded = TunnelIdentity::load(&config.server.state_dir);
    Finding::from_result(loaded.map(|identity| format!("certificate {}…", &identity.pin()[..12])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_cannot_be_kept_are_broken_and_those_that_are_there_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nportal_url = \"https://a.b\"\napps_domain = \"c.d\"\nstate_dir = {:?}\n[tunnel]\nadvertise = \"a:1\"\n[samples]\ndisk_mib = 16\n",
            dir.path()
        );
        let config = Config::from_text(&text).unwrap();
        let store = dir.path().join("samples");
        assert!(matches!(samples(&config), Finding::Doubtful(text) if text.contains("not there yet")));
        std::fs::write(&store, "a file").unwrap();
        assert!(matches!(samples(&config), Finding::Broken(text) if text.contains("charts stay empty")));
        std::fs::remove_file(&store).unwrap();
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join("raw-1"), vec![0; 3 * 1024 * 1024]).unwrap();
        let (Finding::Good(said) | Finding::Doubtful(said)) = samples(&config) else { panic!("it is there") };
        assert!(said.starts_with("3 of 16 MiB are in use"), "{said}");
    }

    #[test]
    fn a_state_directory_that_others_may_read_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let open_to = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        open_to(0o755);
        assert!(matches!(state_dir(dir.path()), Finding::Broken(_)));
        open_to(0o700);
        assert!(matches!(state_dir(dir.path()), Finding::Good(_)));
        assert!(matches!(state_dir(&dir.path().join("none")), Finding::Broken(_)));
    }
}
