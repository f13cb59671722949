//! An MPI in a session's image that will not do: what is said of it before anything starts.

use crate::preflight::Agent;

/// All names by which an MPI is looked for.
const NAMES: [&str; 9] = [
    "libmpi_abi.so.1",
    "libmpi_abi.so.0",
    "libmpi_abi.so",
    "libmpi.so.40",
    "libmpi.so.12",
    "libmpich.so.12",
    "libmpi_cray.so.12",
    "libmpi_gnu.so.12",
    "libmpi.so",
];

#[test]
fn an_mpi_that_is_asked_for_and_cannot_be_used_is_one_sentence_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("libmpi.so");
    std::fs::write(&text, "no library\n").unwrap();
    let named = "EIRENE_TRAIN_MPI names a library that cannot be used: ";
    for (variables, said) in [
        (&[("EIRENE_TRAIN_MPI", "/nowhere/libmpi.so")][..], format!("{named}`/nowhere/libmpi.so` does not open: ")),
        (&[("EIRENE_TRAIN_MPI", text.to_str().unwrap())], format!("{named}`{}` does not open: ", text.display())),
        (&[("EIRENE_TRAIN_MPI", "libm.so.6")], format!("{named}`libm.so.6` is no MPI this program knows: ")),
        (
            &[("EIRENE_TRAIN_MPI", "none"), ("EIRENE_TRAIN_TRANSPORT", "mpi")],
            "EIRENE_TRAIN_TRANSPORT=mpi asks for an MPI, and MPI is switched off by `EIRENE_TRAIN_MPI=none`; unset it"
                .to_owned(),
        ),
    ] {
        // Two nodes: they are not even tried.
        let agent = Agent::start(&["c1", "c2"], None);
        let mut run = agent.run("c[1-2]", ["-n", "2", "echo", "hello"]);
        for (name, value) in variables {
            run = run.env(name, value);
        }
        let ended = run.end();
        assert_eq!((ended.code, ended.stdout().as_str()), (2, ""), "{}", ended.stderr);
        assert!(ended.stderr.starts_with(&format!("eirene-train: {said}")), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(agent.asked.lock().unwrap().is_empty());
    }
}

#[test]
fn an_mpi_of_the_image_that_does_not_open_is_said_and_done_without() {
    let directory = tempfile::tempdir().unwrap();
    for name in NAMES {
        std::fs::write(directory.path().join(name), "no library\n").unwrap();
    }
    let agent = Agent::start(&["c1"], None);
    // No launcher in the path, beside which there could be another.
    let run = agent.run("c1", ["-n", "1", "/bin/echo", "hello"]).env("LD_LIBRARY_PATH", directory.path());
    let ended = run.env("PATH", directory.path()).end();
    assert_eq!((ended.code, ended.stdout().matches("hello").count()), (0, 1), "{}", ended.stderr);
    let said = "eirene-train: an MPI of the image's is of no use: `libmpi";
    let line = ended.stderr.lines().find(|line| line.starts_with(said)).unwrap_or_else(|| panic!("{}", ended.stderr));
    assert!(line.contains(" does not open: ") && line.ends_with("; ranks do without it"), "{line}");
    assert_eq!(agent.asked.lock().unwrap().iter().filter(|step| step.mpi.is_none()).count(), 1);
}

#[test]
fn an_image_without_an_mpi_is_nothing_to_speak_of() {
    let empty = tempfile::tempdir().unwrap();
    let agent = Agent::start(&["c1"], None);
    let run = agent.run("c1", ["-n", "1", "/bin/echo", "hello"]).env("EIRENE_TRAIN_MPI", "none");
    let ended = run.env("PATH", empty.path()).end();
    assert_eq!((ended.code, ended.stdout().matches("hello").count()), (0, 1), "{}", ended.stderr);
    assert!(!ended.stderr.contains("MPI"), "{}", ended.stderr);
}
