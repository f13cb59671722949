//! How the launcher logs, as its configuration says.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;

use crate::bench::PROGRAM;

#[test]
fn the_log_is_written_for_machines_where_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("launcher.toml");
    // It serves nobody that there is, says so, and stops.
    let says = |section: &str| {
        let text = format!(
            "socket = \"{0}/launcher.sock\"\npeer_user = \"nobody-of-that-name\"\njwt_key = \"{0}/key\"\nslurm_user = \"slurm\"\n\
             service_account = \"op\"\naudit_log = \"{0}/audit.log\"\n{section}",
            directory.path().display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let output = Command::new(PROGRAM).arg("--config").arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let plain = says("");
    assert!(plain.contains("the launcher stopped") && !plain.starts_with('{'), "{plain}");
    if !nix::unistd::geteuid().is_root() {
        // A file that is not root's chooses nothing.
        assert!(!says("[log]\nformat = \"json\"\n").starts_with('{'));
        return;
    }
    let lines = says("[log]\nformat = \"json\"\n");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("nobody-of-that-name"), "{line}");
    assert_eq!(says("[log]\nformat = \"json\"\nfilter = \"off\"\n"), "");
    let wrong = says("[log]\nfilter = \"eirene=loud\"\n");
    assert!(wrong.contains("`log.filter` is not understood"), "{wrong}");
}
