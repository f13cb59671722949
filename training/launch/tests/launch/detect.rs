//! Detection, on variables captured from real launchers (their versions are in the files' names) and on garbage.

use std::path::{Path, PathBuf};

use eirene_train_launch::{Environment, Error, Launch, Mpi, Place, SecretSource, Starter};
use proptest::prelude::*;

fn captured(name: &str) -> Environment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured").join(format!("{name}.env"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Environment::new(text.lines().map(|line| line.split_once('=').expect("a variable")), "c1", 1000)
}

fn detect(environment: &Environment) -> Launch {
    Launch::detect(environment).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(environment: &Environment) -> String {
    match Launch::detect(environment) {
        Ok(launch) => panic!("detected: {}", launch.explain()),
        Err(error) => error.to_string(),
    }
}

fn set(variables: &[(&str, &str)]) -> Environment {
    Environment::new(variables.iter().copied(), "c1", 1000)
}

#[test]
fn real_launchers_are_told_apart() {
    let table = [
        // launcher, who, rank, size, local rank and size, whether its MPI is used
        ("mpirun-openmpi-4.1.4", Starter::Pmix, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("mpirun-openmpi-5.0.11", Starter::Pmix, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("mpirun-openmpi-4.1.4-in-salloc-slurm-22.05.8", Starter::Pmix, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("mpiexec-mpich-4.0.2", Starter::Pmi, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("mpiexec-mpich-5.0.2", Starter::Pmi, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("srun-pmix-slurm-22.05.8", Starter::Pmix, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("srun-pmi2-slurm-22.05.8", Starter::Pmi, (1, 2), Some((1, 2)), Mpi::WhereThere),
        ("srun-slurm-22.05.8", Starter::Slurm, (1, 2), Some((1, 2)), Mpi::Never),
        ("sbatch-slurm-22.05.8", Starter::Alone, (0, 1), Some((0, 1)), Mpi::Never),
        ("salloc-slurm-22.05.8", Starter::Alone, (0, 1), Some((0, 1)), Mpi::Never),
        ("torchrun-2.15.0", Starter::Torchrun, (1, 2), Some((1, 2)), Mpi::Never),
        ("torchrun-2.15.0-in-srun-slurm-22.05.8", Starter::Torchrun, (1, 2), Some((1, 2)), Mpi::Never),
    ];
    for (name, starter, whole, local, mpi) in table {
        let launch = detect(&captured(name));
        let found = (launch.starter, (launch.rank, launch.size), launch.local_rank.zip(launch.local_size), launch.mpi);
        assert_eq!(found, (starter, whole, local, mpi), "{name}: {}", launch.explain());
    }
}

#[test]
fn nobody_is_a_world_of_one() {
    let launch = detect(&set(&[("PATH", "/bin"), ("RANK", "private")]));
    assert_eq!(
        launch.explain(),
        "rank 0 of 1, 0 of 1 on this node; started by nobody (no launcher's variables are set); no MPI"
    );
    assert_eq!((launch.place, launch.secret, launch.nodes), (Place::Nobody, SecretSource::None, vec!["c1".to_owned()]));
}

#[test]
fn one_line_says_what_was_found_and_what_follows() {
    assert_eq!(
        detect(&captured("srun-slurm-22.05.8").with("XDG_RUNTIME_DIR", "/run/user/1000")).explain(),
        "rank 1 of 2, 1 of 2 on this node; started by SLURM (SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2); no MPI; ranks meet in \
         directory /run/user/1000/eirene-train-1000-slurm-6.0-capture-c8f14d80d0f4a33a"
    );
    assert_eq!(
        detect(&captured("sbatch-slurm-22.05.8")).explain(),
        "rank 0 of 1, 0 of 1 on this node; started by nobody (no launcher's variables are set); no MPI; this is the script or shell \
         of SLURM's job 9, not a task of a step: start ranks by `srun` or `eirene-train run`"
    );
    assert_eq!(
        detect(&captured("torchrun-2.15.0-in-srun-slurm-22.05.8")).explain().split("; ").last(),
        Some("SLURM started torchrun's agents")
    );
}

#[test]
fn a_launcher_that_tells_no_size_is_helped_by_a_variable() {
    let environment = captured("prterun-openmpi-5.0.11");
    assert_eq!(
        refused(&environment),
        "PMIX_RANK is 1, but `EIRENE_TRAIN_SIZE` is not set; this launcher does not tell how many ranks there are: set it to their \
         number"
    );
    let launch = detect(&environment.with("EIRENE_TRAIN_SIZE", "2"));
    assert_eq!((launch.starter, launch.rank, launch.size), (Starter::Pmix, 1, 2));
}

#[test]
fn several_tasks_with_a_world_of_one_each_are_refused() {
    assert_eq!(
        refused(&captured("mpirun-openmpi-4.1.4-in-srun-slurm-22.05.8")),
        "PMIx says rank 0 of 1 (PMIX_RANK=0, PMIX_NAMESPACE=1208221697, OMPI_COMM_WORLD_SIZE=1), but SLURM says rank 0 of 2 \
         (SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=2); every task of the step would be a world of its own: start by `srun --mpi=pmix` \
         alone, or by `mpirun` alone, or say whom to believe by EIRENE_TRAIN_STARTER=pmix (or =slurm)"
    );
    let overruled = captured("mpirun-openmpi-4.1.4-in-srun-slurm-22.05.8").with("EIRENE_TRAIN_STARTER", "slurm");
    assert_eq!(detect(&overruled).size, 2);
}

#[test]
fn an_mpi_that_sees_another_world_than_its_launcher_is_an_error_with_a_cure() {
    let launch = detect(&captured("srun-pmix-slurm-22.05.8"));
    launch.check_mpi(1, 2, "Open MPI 5.0.11").unwrap();
    assert_eq!(
        launch.check_mpi(0, 1, "Open MPI 5.0.11").unwrap_err().to_string(),
        "PMIx says rank 1 of 2 (PMIX_RANK=1, PMIX_NAMESPACE=slurm.pmix.7.0, the step's tasks=2), but Open MPI 5.0.11 says rank 0 of \
         1; the library cannot talk to this PMIx: pass PMIX_* and its directories into the container, use an MPI with the \
         launcher's PMIx version, or set EIRENE_TRAIN_TRANSPORT=builtin"
    );
    for name in ["srun-pmi2-slurm-22.05.8", "srun-slurm-22.05.8", "mpiexec-mpich-5.0.2", "mpirun-openmpi-4.1.4"] {
        let error = detect(&captured(name)).check_mpi(0, 1, "MPI").unwrap_err().to_string();
        assert!(
            error.contains("of 2") && error.contains("of 1") && error.contains("EIRENE_TRAIN_TRANSPORT=builtin"),
            "{error}"
        );
    }
}

#[test]
fn contradictions_name_both_sides_and_the_cure() {
    let table: [(&str, Environment, &[&str]); 8] = [
        (
            "rank outside the world",
            set(&[("RANK", "4"), ("WORLD_SIZE", "4")]),
            &["RANK=4, WORLD_SIZE=4", "go from 0 to 3"],
        ),
        (
            "open mpi in a larger step",
            set(&[
                ("OMPI_COMM_WORLD_RANK", "0"),
                ("OMPI_COMM_WORLD_SIZE", "1"),
                ("SLURM_JOB_ID", "7"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "2"),
                ("SLURM_NTASKS", "4"),
            ]),
            &[
                "Open MPI says rank 0 of 1",
                "SLURM says rank 2 of 4 (SLURM_PROCID=2, SLURM_NTASKS=4)",
                "srun --mpi=pmix",
            ],
        ),
        (
            "a torchrun in every task",
            captured("srun-slurm-22.05.8")
                .with("RANK", "0")
                .with("WORLD_SIZE", "2")
                .with("GROUP_WORLD_SIZE", "1")
                .with("TORCHELASTIC_RUN_ID", "none"),
            &["SLURM says rank 1 of 2", "torchrun says rank 0 of 2", "from 1 agent (GROUP_WORLD_SIZE)", "--nnodes"],
        ),
        (
            "torchrun's names by hand, wrong",
            captured("srun-slurm-22.05.8").with("RANK", "1").with("WORLD_SIZE", "4"),
            &["SLURM says rank 1 of 2", "torchrun says rank 1 of 4", "unset RANK and WORLD_SIZE"],
        ),
        (
            "mpirun inside run",
            captured("mpirun-openmpi-4.1.4").with("EIRENE_TRAIN_RANK", "0").with("EIRENE_TRAIN_SIZE", "4"),
            &["eirene-train run says rank 0 of 4", "PMIx says rank 1 of 2", "one launcher"],
        ),
        (
            "torchrun inside run",
            captured("torchrun-2.15.0").with("EIRENE_TRAIN_RANK", "0").with("EIRENE_TRAIN_SIZE", "2"),
            &["eirene-train run says rank 0 of 2", "torchrun says rank 1 of 2"],
        ),
        (
            "mpi asked for without one",
            captured("torchrun-2.15.0").with("EIRENE_TRAIN_TRANSPORT", "mpi"),
            &["EIRENE_TRAIN_TRANSPORT is `mpi`", "torchrun starts no MPI", "mpirun"],
        ),
        (
            "pmix changed on the way",
            captured("srun-pmix-slurm-22.05.8").with("PMIX_RANK", "0"),
            &["PMIx says rank 0 of 2", "SLURM says rank 1 of 2", "fresh `srun`"],
        ),
    ];
    for (name, environment, parts) in table {
        assert!(matches!(Launch::detect(&environment), Err(Error::Contradiction { .. })), "{name}");
        let error = refused(&environment);
        assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
    }
}

#[test]
fn mpirun_s_own_helpers_under_srun_are_no_contradiction() {
    // On a second node, `mpirun` runs within a step of one helper a node.
    let environment = captured("mpirun-openmpi-4.1.4")
        .with("SLURM_JOB_ID", "7")
        .with("SLURM_STEP_ID", "0")
        .with("SLURM_PROCID", "0")
        .with("SLURM_NTASKS", "1");
    let launch = detect(&environment);
    assert_eq!((launch.starter, launch.rank, launch.size), (Starter::Pmix, 1, 2));
    assert!(launch.explain().ends_with("SLURM's step of 1 only carries PMIx"), "{}", launch.explain());
}

#[test]
fn one_torchrun_a_node_under_srun_is_torchrun_s_world() {
    let environment = captured("srun-pmix-slurm-22.05.8")
        .with("RANK", "5")
        .with("WORLD_SIZE", "8")
        .with("LOCAL_RANK", "1")
        .with("LOCAL_WORLD_SIZE", "4")
        .with("GROUP_WORLD_SIZE", "2")
        .with("TORCHELASTIC_RUN_ID", "x")
        .with("HOME", "/home/ada");
    let launch = detect(&environment);
    assert_eq!((launch.starter, launch.rank, launch.size, launch.mpi), (Starter::Torchrun, 5, 8, Mpi::Never));
    let Place::File(path) = &launch.place else { panic!("{:?}", launch.place) };
    assert!(path.starts_with("/home/ada/.cache/eirene-train"), "{}", path.display());
}

#[test]
fn slurm_s_nodes_and_their_tasks_are_known() {
    let launch = detect(
        &captured("srun-slurm-22.05.8")
            .with("SLURM_STEP_NODELIST", "c[1-3,07]")
            .with("SLURM_STEP_NUM_NODES", "4")
            .with("SLURM_STEP_NUM_TASKS", "7")
            .with("SLURM_STEP_TASKS_PER_NODE", "2(x3),1")
            .with("SLURM_NODEID", "3")
            .with("SLURM_LOCALID", "0")
            .with("SLURM_PROCID", "6")
            .with("EIRENE_TRAIN_MEETING", "/shared/meet"),
    );
    assert_eq!(launch.nodes, ["c1", "c2", "c3", "c07"]);
    assert_eq!((launch.rank, launch.size, launch.local_size, launch.node), (6, 7, Some(1), Some(3)));
    assert_eq!(
        launch.place,
        Place::File(PathBuf::from("/shared/meet/1000-slurm-6.0-capture-c8f14d80d0f4a33a.meeting"))
    );
    assert_eq!(launch.secret, SecretSource::Meeting);
}

#[test]
fn slurm_s_own_steps_are_no_tasks() {
    for step in ["4294967290", "4294967291", "4294967292"] {
        let launch = detect(&captured("srun-slurm-22.05.8").with("SLURM_STEP_ID", step));
        assert_eq!((launch.starter, launch.rank, launch.size), (Starter::Alone, 0, 1), "{step}");
    }
}

#[test]
fn a_task_whose_launcher_is_half_hidden_is_no_world_of_one() {
    // What is there, what is said of it, and what is missing.
    type Half<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
    let table: [Half; 9] = [
        (
            &[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")],
            "SLURM_PROCID is 1 (SLURM_NTASKS=4), which no batch script has",
            "SLURM_STEP_ID",
        ),
        (
            &[("SLURM_JOBID", "7"), ("SLURM_PROCID", "3")],
            "SLURM_PROCID is 3, which no batch script has",
            "SLURM_STEP_ID",
        ),
        (
            &[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")],
            "SLURM_PROCID is 1 (SLURM_NTASKS=4), which no batch script has",
            "SLURM_JOB_ID",
        ),
        // Rank 0 of the same step.
        (
            &[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "4")],
            "SLURM_STEP_NUM_TASKS is 4, which no batch script has",
            "SLURM_STEP_ID",
        ),
        (&[("PMIX_RANK", "0")], "PMIX_RANK is 0", "PMIX_NAMESPACE"),
        (&[("PMIX_RANK", "3"), ("PMIX_VERSION", "4.2.2")], "PMIX_RANK is 3", "PMIX_NAMESPACE"),
        (&[("OMPI_COMM_WORLD_SIZE", "2")], "OMPI_COMM_WORLD_SIZE is 2", "OMPI_COMM_WORLD_RANK"),
        (&[("PMI_SIZE", "2")], "PMI_SIZE is 2", "PMI_RANK"),
        (&[("EIRENE_TRAIN_SIZE", "2")], "EIRENE_TRAIN_SIZE is 2", "EIRENE_TRAIN_RANK"),
    ];
    for (variables, found, missing) in table {
        let environment = set(variables);
        assert!(matches!(Launch::detect(&environment), Err(Error::Missing { .. })), "{variables:?}");
        let error = refused(&environment);
        assert!(error.starts_with(&format!("{found}, but `{missing}` is not set; ")), "{error}");
        assert!(error.contains("container") && error.contains("EIRENE_TRAIN_STARTER=alone or unset"), "{error}");
        let alone = detect(&environment.clone().with("EIRENE_TRAIN_STARTER", "alone"));
        assert_eq!((alone.starter, alone.rank, alone.size), (Starter::Alone, 0, 1), "{variables:?}");
        // Whoever is there in full is believed.
        let inner = [("TORCHELASTIC_RUN_ID", "x"), ("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")];
        let torchrun = inner.iter().fold(environment, |environment, (name, value)| environment.with(name, value));
        assert_eq!(detect(&torchrun).starter, Starter::Torchrun, "{variables:?}");
    }
    let slurm = set(&[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "1"), ("EIRENE_TRAIN_STARTER", "slurm")]);
    assert!(refused(&slurm).contains("`SLURM_STEP_ID` is not set"), "{}", refused(&slurm));
}

#[test]
fn the_script_of_a_job_is_no_task_although_it_has_some_of_a_task_s_variables() {
    let batch = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_NODEID", "0")];
    let launch = detect(&set(&batch));
    assert_eq!((launch.starter, launch.rank, launch.size), (Starter::Alone, 0, 1));
    // One task is a world of one in either case.
    for one in [("OMPI_COMM_WORLD_SIZE", "1"), ("PMI_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "1")] {
        assert_eq!(detect(&set(&[one])).starter, Starter::Alone, "{one:?}");
    }
}

#[test]
fn worlds_that_could_meet_each_other_have_other_places() {
    let place = |environment: &Environment| detect(environment).place;
    let slurm = captured("srun-slurm-22.05.8");
    let torchrun = captured("torchrun-2.15.0");
    let others = [
        slurm.clone(),
        slurm.clone().with("SLURM_STEP_ID", "1"),
        slurm.clone().with("SLURM_JOB_ID", "70"),
        slurm.clone().with("SLURM_RESTART_COUNT", "1"),
        slurm.with("SLURM_CLUSTER_NAME", "other"),
        torchrun.clone(),
        torchrun.clone().with("TORCHELASTIC_RESTART_COUNT", "1"),
        torchrun.clone().with("TORCHELASTIC_RUN_ID", "other"),
        torchrun.with("MASTER_PORT", "1"),
    ];
    let mut places: Vec<String> = others.iter().map(|other| format!("{:?}", place(other))).collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), others.len());
}

#[test]
fn our_own_run_says_where_to_meet_and_where_the_secret_is() {
    let run = [
        ("EIRENE_TRAIN_RANK", "3"),
        ("EIRENE_TRAIN_SIZE", "4"),
        ("EIRENE_TRAIN_LOCAL_RANK", "1"),
        ("EIRENE_TRAIN_LOCAL_SIZE", "2"),
        ("EIRENE_TRAIN_NODES", "c[1-2]"),
        ("EIRENE_TRAIN_WORLD", "run-1"),
        ("EIRENE_TRAIN_SECRET_FD", "9"),
    ];
    let meet = |value| detect(&set(&run).with("EIRENE_TRAIN_MEETING", value)).place;
    assert_eq!(meet("tcp://c1:4711"), Place::Address { host: "c1".to_owned(), port: 4711 });
    assert_eq!(meet("tcp://[fd00::1]:4711"), Place::Address { host: "fd00::1".to_owned(), port: 4711 });
    assert_eq!(meet("descriptor:7"), Place::Listener(7));
    assert_eq!(meet("directory:/run/x"), Place::Directory("/run/x".into()));
    for wrong in
        ["", "tcp://c1", "tcp://:1", "tcp://c1:0", "tcp://c1:65536", "descriptor:2", "descriptor:x", "directory:x", "x"]
    {
        let environment = set(&run).with("EIRENE_TRAIN_MEETING", wrong);
        let is_refused = matches!(Launch::detect(&environment), Err(Error::Malformed { .. } | Error::Missing { .. }));
        assert!(is_refused, "{wrong}");
    }
    let without_secret = set(&run).without("EIRENE_TRAIN_SECRET_FD").with("EIRENE_TRAIN_MEETING", "tcp://c1:4711");
    assert!(refused(&without_secret).contains("`EIRENE_TRAIN_SECRET_FILE` is not set"));
}

#[test]
fn numbers_are_digits_and_nothing_else() {
    for wrong in
        ["", " 1", "+1", "-1", "1.0", "0x1", "1e3", "4294967296", "99999999999999999999", "\u{661}", "1\n", "\u{0}"]
    {
        let environment = set(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "2")]);
        let error = Launch::detect(&environment.with("SLURM_PROCID", wrong)).expect_err(wrong);
        assert!(matches!(error, Error::Malformed { .. } | Error::Missing { .. }), "{wrong:?}: {error}");
        assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
    }
}

#[test]
fn a_directory_that_somebody_else_made_or_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("meet");
    let uid = nix::unistd::getuid().as_raw();
    let environment = |uid| {
        Environment::new(
            [("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2"), ("EIRENE_TRAIN_WORLD", "w")],
            "c1",
            uid,
        )
        .with("EIRENE_TRAIN_DIRECTORY", path.to_str().unwrap())
    };
    let plan = |uid| detect(&environment(uid)).plan(std::time::Duration::from_secs(1)).map(|plan| format!("{plan:?}"));
    let plan_error = |uid| plan(uid).unwrap_err().to_string();

    assert!(plan(uid).unwrap().contains("meet"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    plan(uid).unwrap();
    assert!(
        plan_error(uid + 1).contains(&format!("belongs to user {uid} and not to {}: somebody made it first", uid + 1))
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(plan_error(uid).contains("is open to others (mode 0750, must be 0700)"));
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(base.path(), &path).unwrap();
    assert!(plan_error(uid).contains("is not a directory"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    assert!(plan_error(uid).contains("is not a directory"));
}

#[test]
fn a_world_without_a_name_cannot_meet() {
    let environment = set(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("HOME", "/home/ada")]);
    let error = detect(&environment).plan(std::time::Duration::from_secs(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "torchrun gave this world no name, but `EIRENE_TRAIN_WORLD` is not set; set it to a word that is the same for all ranks of \
         this run and for no other run"
    );
}

const NAMES: [&str; 40] = [
    "EIRENE_TRAIN_RANK",
    "EIRENE_TRAIN_SIZE",
    "EIRENE_TRAIN_LOCAL_RANK",
    "EIRENE_TRAIN_LOCAL_SIZE",
    "EIRENE_TRAIN_NODES",
    "EIRENE_TRAIN_WORLD",
    "EIRENE_TRAIN_SECRET_FD",
    "EIRENE_TRAIN_SECRET_FILE",
    "EIRENE_TRAIN_MEETING",
    "EIRENE_TRAIN_DIRECTORY",
    "EIRENE_TRAIN_TRANSPORT",
    "EIRENE_TRAIN_STARTER",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_JOBID",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NODEID",
    "SLURM_LOCALID",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "HOME",
];

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0_u32..5).prop_map(|number| number.to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
        1 => "slurm\\.pmix\\.[0-9]\\.[0-9]",
        1 => "c\\[[0-9]{1,3}-[0-9]{1,3}\\]",
        1 => "[0-9]{1,10}\\(x[0-9]{1,10}\\),[0-9]",
        1 => "(tcp://|descriptor:|directory:/|/)[a-z0-9:\\[\\]]{0,8}",
        1 => "\\PC{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_garbage_makes_a_world_that_cannot_be(chosen in prop::collection::vec((0..NAMES.len(), value()), 0..16)) {
        let variables = chosen.iter().map(|(name, value)| (NAMES[*name], value.as_str()));
        match Launch::detect(&Environment::new(variables, "c1", 1000)) {
            Ok(launch) => {
                prop_assert!(launch.rank < launch.size);
                prop_assert!(launch.local_size.is_none_or(|local| local > 0 && local <= launch.size));
                prop_assert!(launch.size == 1 || launch.place != Place::Nobody);
                prop_assert!(!launch.explain().contains('\n') || chosen.iter().any(|(_, value)| value.contains('\n')));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
