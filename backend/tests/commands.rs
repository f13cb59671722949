//! The offline commands of `eirened`, run as an operator runs them.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Portal {
    directory: tempfile::TempDir,
}

struct Outcome {
    code: Option<i32>,
    text: String,
}

impl Portal {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nportal_url = \"https://e.example.org\"\napps_domain = \"apps.example.net\"\nstate_dir = \"{}\"\n\
             [tunnel]\nadvertise = \"e.example.org:7443\"\n[launcher]\nsocket = \"{}\"\n[slurm]\nslurmrestd_url = \"http://127.0.0.1:1\"\n",
            directory.path().display(),
            directory.path().join("no-launcher.sock").display(),
        );
        std::fs::write(directory.path().join("eirened.toml"), text).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[&str], input: &str) -> Outcome {
        let mut child = Command::new(env!("CARGO_BIN_EXE_eirened"))
            .args(arguments)
            .env_clear()
            .env("EIRENE_CONFIG", self.path("eirened.toml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        Outcome { code: output.status.code(), text: String::from_utf8(text).unwrap() }
    }

    fn good(&self, arguments: &[&str], input: &str) -> String {
        let outcome = self.run(arguments, input);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.text);
        outcome.text
    }
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_account_is_made_once_and_its_password_changes_only_when_asked() {
    let portal = Portal::new();
    let create = ["create-admin", "--username", "first.admin", "--password-stdin"];
    assert!(portal.good(&create, "a long enough password\n").contains("was made"));
    assert!(portal.good(&create, "another long password\n").contains("exists already"));
    let reset = [&create[..], &["--reset"]].concat();
    assert!(portal.good(&reset, "another long password\n").contains("new password"));
    let printed = portal.good(&["create-admin", "--username", "second.admin"], "");
    assert!(printed.contains("shown this once"), "{printed}");
    let unknown =
        portal.run(&["create-user", "--username", "nobody.here", "--password-stdin"], "long enough password\n");
    assert_eq!(unknown.code, Some(1), "{}", unknown.text);
    assert!(unknown.text.contains("nobody.here"), "{}", unknown.text);
    let other = portal.run(&["create-user", "--username", "first.admin", "--password-stdin"], "long enough password\n");
    assert_eq!(other.code, Some(1), "an admin is not taken for a researcher: {}", other.text);
    let silent = portal.run(&create, "");
    assert_eq!(silent.code, Some(1), "{}", silent.text);
}

#[test]
fn a_backup_brings_back_what_was_there_and_nothing_else() {
    let portal = Portal::new();
    let create =
        |name: &str| portal.good(&["create-admin", "--username", name, "--password-stdin"], "a long password\n");
    create("before.backup");
    let backup = portal.path("backup.db");
    portal.good(&["backup", name(&backup)], "");
    assert_eq!(portal.run(&["backup", name(&backup)], "").code, Some(1), "nothing is written over");
    create("after.backup");
    portal.good(&["restore", name(&backup)], "");
    assert!(create("before.backup").contains("exists already"));
    assert!(create("after.backup").contains("was made"));
    let nonsense = portal.path("nonsense.db");
    std::fs::write(&nonsense, "no database").unwrap();
    assert_eq!(portal.run(&["restore", name(&nonsense)], "").code, Some(1));
    assert!(create("before.backup").contains("exists already"), "a bad backup leaves the database as it was");
}

#[test]
fn the_catalogue_takes_a_file_once() {
    let portal = Portal::new();
    let sif = portal.path("a.sif");
    std::fs::write(&sif, "image").unwrap();
    let add = ["image", "add", "jupyter", "--sif", name(&sif)];
    portal.good(&add, "");
    portal.good(&add, "");
    let list = portal.good(&["image", "list"], "");
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(list.contains("6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"), "{list}");
    portal.good(&["image", "retire", "jupyter"], "");
    assert_eq!(portal.good(&["image", "list"], ""), "");
    assert_eq!(portal.run(&["image", "retire", "jupyter"], "").code, Some(1));
}

#[test]
fn the_doctor_names_what_is_broken() {
    let portal = Portal::new();
    portal.good(&["migrate"], "");
    let found = portal.run(&["doctor"], "");
    assert_eq!(found.code, Some(1));
    for line in ["ok       config", "ok       database", "BROKEN   launcher", "BROKEN   scheduler"] {
        assert!(found.text.contains(line), "{line} in\n{}", found.text);
    }
    assert_eq!(portal.run(&["config", "check"], "").code, Some(0));
    std::fs::write(portal.path("eirened.toml"), "[server]\nlistn = 1\n").unwrap();
    let wrong = portal.run(&["config", "check"], "");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.text.contains("listn"), "{}", wrong.text);
    assert_eq!(portal.run(&["nonsense"], "").code, Some(2));
    let sample = portal.good(&["config", "sample"], "");
    assert_eq!(sample, include_str!("../../deploy/config.example.toml"));
}
