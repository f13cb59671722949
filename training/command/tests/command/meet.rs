//! Ranks really meet, whoever started them: by the mesh, with the plan that was detected.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Run, marks};
use crate::hosts::over_ssh;

/// The program that every rank runs.
pub(crate) fn hello() -> String {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/hello");
    program.to_str().unwrap().to_owned()
}

pub(crate) fn heard(ranks: u32) -> Vec<String> {
    let mut lines: Vec<String> =
        (0..ranks).map(|rank| format!("rank {rank} of {ranks} heard {}", (rank + 1) % ranks)).collect();
    lines.sort();
    lines
}

pub(crate) fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with("rank ")).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A command whose directories lie in a place of its own.
fn command(program: &str) -> (Command, tempfile::TempDir) {
    let base = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env("XDG_RUNTIME_DIR", base.path()).env("HOME", base.path());
    (command, base)
}

fn assert_met(output: &Output, ranks: u32, base: &tempfile::TempDir) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(sorted(&String::from_utf8_lossy(&output.stdout)), heard(ranks), "{stderr}");
    assert_eq!(marks(base.path(), "eirene-"), Vec::<PathBuf>::new());
}

#[test]
fn ranks_of_a_run_meet() {
    for ranks in [1_u32, 2, 7] {
        let ended = Run::new(["-n", &ranks.to_string(), "--no-labels", &hello()]).end();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        if ranks > 1 {
            assert_eq!(sorted(&ended.stdout()), heard(ranks));
        }
        ended.assert_nothing_left();
    }
}

#[test]
fn ranks_of_two_hosts_meet() {
    let program = hello();
    let words = ["--nodes", "alpha,beta", "--ranks-per-node", "2", "--address", "127.0.0.1", "--no-labels", &program];
    let ended = over_ssh(words).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(sorted(&ended.stdout()), heard(4), "{}", ended.stderr);
    ended.assert_nothing_left();
}

#[test]
fn ranks_whose_descriptors_are_closed_on_the_way_meet_by_the_file() {
    let script = format!("eval \"exec $EIRENE_TRAIN_SECRET_FD<&-\"; exec {}", hello());
    let ended = Run::new(["-n", "2", "--no-labels", "bash", "-c", &script]).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(sorted(&ended.stdout()), heard(2));
}

#[test]
fn ranks_started_by_hand_with_torchrun_s_variables_meet() {
    let base = tempfile::tempdir().unwrap();
    let start = |rank: u32| {
        let mut command = Command::new(hello());
        command
            .env("XDG_RUNTIME_DIR", base.path())
            .env("HOME", base.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "3")
            .env("MASTER_ADDR", "localhost")
            .env("MASTER_PORT", "29500");
        command.env("LOCAL_RANK", rank.to_string()).env("LOCAL_WORLD_SIZE", "3");
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..3).map(start).collect();
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let text: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect();
    let errors: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).collect();
    assert_eq!(sorted(&text), heard(3), "{errors}");
    assert_eq!(marks(base.path(), "eirene-"), Vec::<PathBuf>::new());
}

#[test]
fn ranks_that_know_no_common_node_meet_by_a_file() {
    let base = tempfile::tempdir().unwrap();
    let start = |rank: u32| {
        let mut command = Command::new(hello());
        command.env_remove("XDG_RUNTIME_DIR").env("EIRENE_TRAIN_MEETING", base.path().join("shared"));
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("EIRENE_TRAIN_WORLD", "by hand");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..2).map(start).collect();
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let text: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect();
    let errors: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).collect();
    assert!(errors.contains("ranks meet by file "), "{errors}");
    assert_eq!(sorted(&text), heard(2), "{errors}");
    assert_eq!(std::fs::read_dir(base.path().join("shared")).unwrap().count(), 0);
    // Whoever is alone, or meets by a file, makes no directory to meet in.
    let output =
        Command::new(hello()).env_remove("XDG_RUNTIME_DIR").env("EIRENE_TRAIN_STARTER", "alone").output().unwrap();
    assert!(output.status.success());
    let made = marks(Path::new("/tmp"), &format!("eirene-train-{}-", nix::unistd::getuid()));
    let is_ours = |path: &PathBuf| ["-alone-", "-by-hand-"].iter().any(|name| path.to_string_lossy().contains(name));
    assert_eq!(made.into_iter().filter(is_ours).collect::<Vec<_>>(), Vec::<PathBuf>::new());
}

#[test]
fn ranks_meet_in_the_directory_that_they_are_told() {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("here");
    let start = |rank: u32, directory: &Path| {
        let mut command = Command::new(hello());
        command.arg("1").env("XDG_RUNTIME_DIR", base.path()).env("EIRENE_TRAIN_WORLD", "told");
        command.env("EIRENE_TRAIN_MEETING", format!("directory:{}", directory.display()));
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("LOCAL_WORLD_SIZE", "2");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..2).map(|rank| start(rank, &place)).collect();
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    // It is not ours to remove; nothing is left in it, and there was no other.
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
    let output = start(1, &base.path().join("elsewhere")).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("elsewhere`") && output.status.code() == Some(1), "{said}");
}

#[test]
fn ranks_that_wait_in_vain_say_where_and_what_to_do() {
    let base = tempfile::tempdir().unwrap();
    let wait = |local: &str| {
        let mut command = Command::new(hello());
        command.arg("1").env("XDG_RUNTIME_DIR", base.path()).env("EIRENE_TRAIN_MEETING", base.path().join("shared"));
        command
            .env("RANK", "1")
            .env("WORLD_SIZE", "2")
            .env("LOCAL_WORLD_SIZE", local)
            .env("EIRENE_TRAIN_WORLD", "half");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let parts = [
        "waited 1.0 s",
        "the 2 ranks of `half` were to meet by file `",
        "EIRENE_TRAIN_MEETING to a directory that they all see",
    ];
    let error = wait("1");
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let error = wait("2");
    assert!(error.contains("were to meet in directory `") && error.contains("set EIRENE_TRAIN_DIRECTORY"), "{error}");
}

#[test]
fn ranks_under_open_mpi_s_mpirun_meet_without_its_library() {
    let (mut command, base) = command("mpirun.openmpi");
    command
        .args(["--allow-run-as-root", "--oversubscribe", "-n", "4", &hello()])
        .env("EIRENE_TRAIN_TRANSPORT", "builtin");
    assert_met(&command.output().unwrap(), 4, &base);
}

#[test]
fn ranks_under_mpich_s_mpiexec_meet_without_its_library() {
    let (mut command, base) = command("mpiexec.mpich");
    // A shell that stays between the launcher and its ranks.
    command.args(["-n", "4", "sh", "-c", &format!("{}; exit $?", hello())]);
    assert_met(&command.output().unwrap(), 4, &base);
}
