//! `eirene-train doctor`, on this machine, under real launchers, and with libraries that misbehave.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{PROGRAM, Run, marks};

/// A command without what launchers and people may have left in this environment.
fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let inherited = name.to_string_lossy();
        if ["SLURM_", "PMI", "OMPI_", "PRTE_", "EIRENE_"].iter().any(|start| inherited.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    clean(PROGRAM).arg("doctor").args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The findings of this name.
fn findings<'a>(report: &'a Value, id: &str) -> Vec<&'a Value> {
    let sections = report["sections"].as_array().unwrap();
    let all = sections.iter().flat_map(|section| section["findings"].as_array().unwrap());
    all.filter(|finding| finding["id"] == id).collect()
}

fn level_and_fact(report: &Value, id: &str) -> (String, String) {
    let found = findings(report, id);
    assert_eq!(found.len(), 1, "{id} in {report:#}");
    (found[0]["level"].as_str().unwrap().to_owned(), found[0]["fact"].as_str().unwrap().to_owned())
}

fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[test]
fn this_machine_is_examined_and_really_tried() {
    let output = doctor(&["--json"], &[]);
    let report = report(&output);
    assert_eq!(
        (report["schema"].as_u64(), report["rank"].as_u64(), report["size"].as_u64()),
        (Some(1), Some(0), Some(1))
    );
    assert_eq!(output.status.code(), Some(i32::from(report["problems"] != 0)));
    assert_eq!(report["ok"], report["problems"] == 0);
    let names: Vec<&str> =
        report["sections"].as_array().unwrap().iter().map(|section| section["name"].as_str().unwrap()).collect();
    let expected = ["process", "mpi", "used", "node", "memory", "network", "devices", "cache", "python", "trial"];
    assert_eq!(names, expected);
    assert_eq!(level_and_fact(&report, "trial.ranks").0, "ok", "{report:#}");
    assert_eq!(level_and_fact(&report, "memory.memfd").0, "ok");
    for section in report["sections"].as_array().unwrap() {
        for finding in section["findings"].as_array().unwrap() {
            let is_ok = finding["level"] == "ok";
            assert_eq!(finding["cure"].is_null(), is_ok, "whatever is not ok has a cure: {finding}");
        }
    }
}

#[test]
fn people_get_words_that_need_no_colour() {
    let output = doctor(&["--quick"], &[("TERM", "xterm")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text:?}");
    says(&text, &["this process\n  ok ", "\nMPI\n", "\nmemory\n", " warning"]);
    assert!(!text.contains("really tried"), "{text}");
}

#[test]
fn a_bare_environment_is_survived() {
    let output = Command::new(PROGRAM).args(["doctor", "--json"]).env_clear().output().unwrap();
    let report = report(&output);
    assert_eq!(level_and_fact(&report, "cache.directory").0, "note");
    assert_eq!(level_and_fact(&report, "trial.ranks").0, "ok", "{report:#}");
}

#[test]
fn tiny_limits_are_found() {
    let script = format!("ulimit -n 40; ulimit -v 4000000; exec {PROGRAM} doctor --json --quick");
    let output = clean("sh").args(["-c", &script]).output().unwrap();
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(level_and_fact(&report, "memory.descriptors").0, "problem");
    assert_eq!(level_and_fact(&report, "memory.address_space").0, "problem");
}

#[test]
fn outputs_that_nobody_takes_are_said() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = clean(PROGRAM).args(["doctor", "--quick"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["eirene-train: cannot write output"]);
}

/// A launcher with its arguments up to the number of ranks, and the name of its library.
fn launchers() -> Vec<(Vec<String>, &'static str)> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let root: &[&str] = if nix::unistd::geteuid().is_root() { &["--allow-run-as-root"] } else { &[] };
    let mut all = Vec::new();
    let version =
        |program: &str| clean(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let is = |program: &str, word: &str| String::from_utf8_lossy(&version(program)).contains(word);
    if is("mpirun.openmpi", "4.") {
        all.push((words(&[&["mpirun.openmpi"], root, &["--oversubscribe", "-n"]].concat()), "Open MPI 4"));
    }
    if is("mpiexec.mpich", "HYDRA") {
        all.push((words(&["mpiexec.mpich", "-n"]), "MPICH 4"));
    }
    if let Some(wheels) = std::env::var_os("EIRENE_TEST_MPI_WHEELS").map(PathBuf::from) {
        let program = |name: &str| wheels.join("bin").join(name).display().to_string();
        let (prte, hydra) = (program("prterun"), program("mpiexec.hydra"));
        if Path::new(&prte).exists() {
            let start = [prte.as_str(), "--personality", "ompi"];
            all.push((words(&[&start, root, &["--map-by", ":OVERSUBSCRIBE", "-n"]].concat()), "Open MPI 5"));
        }
        if Path::new(&hydra).exists() {
            all.push((words(&[hydra.as_str(), "-n"]), "MPICH 5"));
        }
    }
    assert!(!all.is_empty(), "no MPI is installed: install openmpi-bin or mpich");
    all
}

#[test]
fn under_a_launcher_its_own_mpi_is_chosen_and_comes_up_whole() {
    for (words, library) in launchers() {
        let output = clean(&words[0]).args(&words[1..]).args(["2", PROGRAM, "doctor", "--json"]).output().unwrap();
        let report = report(&output);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {report:#}");
        assert_eq!((report["rank"].as_u64(), report["size"].as_u64()), (Some(0), Some(2)), "{words:?}");
        says(&level_and_fact(&report, "mpi.chosen").1, &[library]);
        let (level, fact) = level_and_fact(&report, "trial.mpi");
        assert_eq!(level, "ok", "{fact}");
        says(&fact, &[library, "rank 0 of 2"]);
        assert_eq!(findings(&report, "used.mpi")[0]["value"], "mpi");
        let mut command = clean(&words[0]);
        let output =
            command.args(&words[1..]).args(["2", PROGRAM, "doctor", "--quick"]).env("TERM", "xterm").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains('\x1b') && text.matches("this process").count() == 1, "{text}");
    }
}

#[test]
fn a_launcher_and_another_s_library_are_a_problem_on_every_rank() {
    for (words, library) in launchers() {
        let is_open = library.starts_with("Open MPI");
        let other = if is_open { "libmpich.so.12" } else { "libmpi.so.40" };
        let named = format!("EIRENE_TRAIN_MPI={other}");
        let output = clean(&words[0])
            .args(&words[1..])
            .args(["2", "env", &named, PROGRAM, "doctor", "--json", "--quick"])
            .output()
            .unwrap();
        let report = report(&output);
        assert!(!output.status.success(), "{words:?}");
        let (level, fact) = level_and_fact(&report, "mpi.chosen");
        assert_eq!(level, "problem", "{words:?}: {fact}");
        says(
            &fact,
            &[if is_open { "PMIx" } else { "PMI" }, if is_open { "MPICH" } else { "Open MPI" }, "worlds of one"],
        );
    }
}

/// An installed library, by its name for the loader.
fn installed() -> &'static str {
    let report = report(&doctor(&["--json", "--quick"], &[]));
    let all: BTreeSet<String> = findings(&report, "mpi.library")
        .iter()
        .filter_map(|finding| Some(Path::new(finding["value"]["library"].as_str()?).file_name()?.to_str()?.to_owned()))
        .collect();
    ["libmpich.so.12", "libmpi.so.40"].into_iter().find(|name| all.contains(*name)).expect("no MPI is installed")
}

#[test]
fn tasks_that_would_be_worlds_of_one_are_a_problem_that_names_both_sides_and_the_cure() {
    let step =
        [("SLURM_STEP_ID", "0"), ("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("HOME", "/tmp")];
    let asked = [&step[..], &[("EIRENE_TRAIN_MPI", installed())]].concat();
    let output = doctor(&["--json", "--quick"], &asked);
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    let (level, fact) = level_and_fact(&report, "mpi.chosen");
    assert_eq!(level, "problem");
    says(&fact, &["SLURM", "SLURM_NTASKS=4", "4 worlds of one", "MPI"]);
    says(findings(&report, "mpi.chosen")[0]["cure"].as_str().unwrap(), &["srun --mpi=pmix", "EIRENE_TRAIN_MPI=none"]);
}

/// A library that is an installed MPI in everything but what this source says.
fn misbehaving(folder: &Path, source: &str) -> String {
    let (code, library) = (folder.join("library.c"), folder.join("libmpi_test.so"));
    std::fs::write(&code, source).unwrap();
    let beside = format!("-l:{}", installed());
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(&library).arg(&code).arg(beside);
    let done = compiler.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    library.into_os_string().into_string().unwrap()
}

#[test]
fn libraries_that_hang_or_end_the_process_are_problems_and_the_doctor_goes_on() {
    let init = |body: &str| {
        format!(
            "#include <stdlib.h>\n#include <unistd.h>\nint MPI_Init_thread(int *a, char ***b, int c, int *d) {{ {body} }}\n"
        )
    };
    let start = "#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }\nint MPI_Init_thread(void) { return 0; }\n";
    for (source, id, words) in [
        (init("for (;;) pause();"), "trial.mpi", ["MPI_Init", "after 3s"]),
        (init("abort();"), "trial.mpi", ["does not start", "signal 6"]),
        (init("write(2, \"no fabric\\n\", 10); _exit(14);"), "trial.mpi", ["code 14", "no fabric"]),
        (start.to_owned(), "mpi.library", ["libmpi_test.so", "after 3s"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let library = misbehaving(folder.path(), &source);
        let output = doctor(&["--json"], &[("EIRENE_TRAIN_MPI", &library)]);
        let report = report(&output);
        assert_eq!(output.status.code(), Some(1), "{source}");
        let (level, fact) = level_and_fact(&report, id);
        assert_eq!(level, "problem", "{source}: {fact}");
        says(&fact, &words);
        // The two ranks are tried all the same.
        assert_eq!(level_and_fact(&report, "trial.ranks").0, "ok", "{report:#}");
    }
}

#[test]
fn no_secret_is_shown_to_people_or_programs() {
    let key = "5f1e2d3c4b5a69788796a5b4c3d2e1f0";
    for form in ["--json", "--quick"] {
        let script = format!(
            "[ $RANK = 0 ] && od -An -tx1 $EIRENE_TRAIN_SECRET_FILE | tr -d ' \\n' > $BASE/secret-copy; exec {PROGRAM} doctor {form}"
        );
        let ended =
            Run::script(2, &["--no-labels"], &script).env("WANDB_API_KEY", key).env("CUDA_VISIBLE_DEVICES", key).end();
        let secret = std::fs::read_to_string(&marks(ended.base.path(), "secret-copy")[0]).unwrap();
        assert_eq!(secret.len(), 32);
        let all = format!("{}{}", ended.stdout(), ended.stderr);
        says(&all, &["started by eirene-train run", "EIRENE_TRAIN_", "(hidden)"]);
        assert!(!all.contains(&secret), "{all}");
        assert!(!all.contains(key), "{all}");
    }
}

#[test]
fn completions_are_scripts() {
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef eirene-train"), ("fish", "complete -c eirene-train")]
    {
        let output = clean(PROGRAM).args(["completions", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        says(&text, &[word, "doctor", "bench"]);
    }
    let output = clean(PROGRAM).args(["completions", "tcsh"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["`bash`, `zsh` and `fish`"]);
}

#[test]
fn exit_codes_are_in_the_help() {
    let text = String::from_utf8(clean(PROGRAM).args(["doctor", "--help"]).output().unwrap().stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    says(&text, &["Exits with 0 where there is no problem, with 1 where there is one"]);
}
