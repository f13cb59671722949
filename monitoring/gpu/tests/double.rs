//! The helper as it runs, on a double of NVML: eight GPUs, divided ones, one that is lost, memory errors, hostile texts, a driver that goes.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use eirene_monitoring::{Gpu, GpuSaid};
use serde_json::{Value, json};

/// The helper, and what it answers from.
struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    state: PathBuf,
    _directory: tempfile::TempDir,
}

/// Figures of one look, by name.
type Figures = Vec<(String, f64)>;

impl Helper {
    fn start(state: &Value, environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let program = Path::new(env!("CARGO_BIN_EXE_eirene-gpu"));
        let double = program.with_file_name("examples").join("libnvml_double.so");
        assert!(double.exists(), "{} is built with the tests", double.display());
        std::fs::write(&path, state.to_string()).unwrap();
        let mut command = Command::new(program);
        command.args(["--interval-s", "1", "--sysfs", "/nonexistent", "--library"]).arg(double);
        command.env_remove("CUDA_VISIBLE_DEVICES").envs(environment.iter().copied()).env("NVML_DOUBLE", &path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, lines) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()).lines());
        let mut helper = Self { child, input, lines, state: path, _directory: directory };
        assert!(matches!(helper.next(), GpuSaid::Hello { version: 1 }));
        helper
    }

    /// What the driver says from now on; whole, whenever it is read.
    fn becomes(&self, state: &Value) {
        let new = self.state.with_extension("new");
        std::fs::write(&new, state.to_string()).unwrap();
        std::fs::rename(new, &self.state).unwrap();
    }

    fn next(&mut self) -> GpuSaid {
        let line = self.lines.next().expect("it goes on").unwrap();
        GpuSaid::read(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn gpus(&mut self) -> Vec<Gpu> {
        match self.next() {
            GpuSaid::Gpus { gpus } => gpus,
            other => panic!("{other:?}"),
        }
    }

    fn figures(&mut self) -> Figures {
        match self.next() {
            GpuSaid::Samples { samples } => samples.iter().map(|one| (one.series.to_string(), one.value)).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for figures that are as wanted.
    fn until(&mut self, wanted: impl Fn(&Figures) -> bool) -> Figures {
        for _ in 0..20 {
            if let GpuSaid::Samples { samples } = self.next() {
                let figures = samples.iter().map(|one| (one.series.to_string(), one.value)).collect();
                if wanted(&figures) {
                    return figures;
                }
            }
        }
        panic!("never as wanted");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gpu(number: u32) -> Value {
    json!({
        "uuid": format!("GPU-{number:08x}-0000"), "name": "NVIDIA H200", "util": [number * 10, 5], "memory": [150_000_000_000_u64, 1_000_000_000_u64],
        "power": 350_500, "temperature": 40 + number, "ecc": [number, 0], "reasons": 1,
    })
}

fn of<'a>(figures: &'a Figures, end: &str) -> Vec<(&'a str, f64)> {
    figures.iter().filter(|(name, _)| name.ends_with(end)).map(|(name, value)| (name.as_str(), *value)).collect()
}

#[test]
fn eight_gpus_are_told_with_all_that_the_driver_has() {
    let mut state = json!({"gpus": (0..8).map(gpu).collect::<Vec<_>>()});
    state["gpus"][3]["reasons"] = json!(0x20 | 1);
    state["gpus"][5]["ecc"] = json!([12, 2]);
    let own = std::process::id();
    state["gpus"][0]["processes"] = json!([[own, 700], [0, 9]]);
    state["gpus"][1]["processes"] = json!([[own, 300]]);
    state["gpus"][2]["processes"] = json!([]);
    state["gpus"][1]["samples"] = json!([[own, 10, 50], [own, 11, 100], [0, 12, 100]]);
    let mut helper = Helper::start(&state, &[]);
    let gpus = helper.gpus();
    assert_eq!(gpus.iter().map(|gpu| gpu.id.as_str()).collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!((gpus[2].uuid.as_str(), gpus[2].name.as_str()), ("GPU-00000002-0000", "NVIDIA H200"));
    let figures = helper.figures();
    assert_eq!(
        of(&figures, "/5"),
        [
            ("gpu_util/5", 0.5),
            ("gpu_memory_util/5", 0.05),
            ("gpu_memory_bytes/5", 1e9),
            ("gpu_memory_limit_bytes/5", 1.5e11),
            ("gpu_power_watts/5", 350.5),
            ("gpu_temperature_celsius/5", 45.0),
            ("gpu_ecc_corrected/5", 12.0),
            ("gpu_ecc_uncorrected/5", 2.0),
            ("gpu_throttled/5", 0.0),
            ("gpu_up/5", 1.0),
        ],
        "and no power limit: this driver has no such function"
    );
    assert_eq!(of(&figures, "gpu_throttled/3"), [("gpu_throttled/3", 1.0)], "too hot; 1 alone is idle");
    let on: Vec<_> = figures.iter().filter(|(name, _)| name.starts_with("gpu_processes/")).cloned().collect();
    let expected =
        [("gpu_processes/0".to_owned(), 1.0), ("gpu_processes/1".to_owned(), 1.0), ("gpu_processes/2".to_owned(), 0.0)];
    assert_eq!(on, expected, "nobody tells of the others");
    let programs: Vec<_> = figures.iter().filter(|(name, _)| name.contains("_process") && name.contains(':')).collect();
    assert_eq!(programs.len(), 2, "of others nothing is told: {programs:?}");
    assert!(programs[0].0.starts_with(&format!("gpu_memory_process_bytes/{own}:")), "{programs:?}");
    assert!((programs[0].1 - 1000.0).abs() < 1e-9 && (programs[1].1 - 0.75).abs() < 1e-9, "{programs:?}");
    let later = helper.figures();
    assert_eq!(of(&later, "gpu_up/0"), [("gpu_up/0", 1.0)], "and which GPUs there are is said once");
}

#[test]
fn one_that_is_lost_is_told_as_lost_and_the_others_go_on() {
    let mut state = json!({"gpus": (0..3).map(gpu).collect::<Vec<_>>()});
    let mut helper = Helper::start(&state, &[]);
    helper.gpus();
    helper.figures();
    state["gpus"][1]["lost"] = json!(true);
    helper.becomes(&state);
    let figures = helper.until(|figures| of(figures, "gpu_up/1") == [("gpu_up/1", 0.0)]);
    assert_eq!(of(&figures, "/1"), [("gpu_up/1", 0.0)], "nothing else of it");
    assert_eq!(of(&figures, "gpu_up/2"), [("gpu_up/2", 1.0)]);
    state["gpus"][1]["lost"] = json!(false);
    helper.becomes(&state);
    helper.until(|figures| of(figures, "gpu_up/1") == [("gpu_up/1", 1.0)]);
}

#[test]
fn one_that_was_lost_before_anybody_looked_is_told_where_it_is_the_job_s() {
    let mut state = json!({"gpus": (0..3).map(gpu).collect::<Vec<_>>()});
    for lost in [1, 2] {
        state["gpus"][lost]["lost"] = json!(true);
    }
    let mut helper = Helper::start(&state, &[("CUDA_VISIBLE_DEVICES", "0,1")]);
    let gpus = helper.gpus();
    let all: Vec<_> = gpus.iter().map(|gpu| (gpu.id.as_str(), gpu.uuid.as_str(), gpu.name.as_str())).collect();
    assert_eq!(all, [("0", "GPU-00000000-0000", "NVIDIA H200"), ("1", "", "NVIDIA GPU")], "the third is another's");
    let figures = helper.figures();
    assert_eq!((of(&figures, "/1"), of(&figures, "/2")), (vec![("gpu_up/1", 0.0)], vec![]));
    // What it is is known once it is back.
    state["gpus"][1]["lost"] = json!(false);
    helper.becomes(&state);
    helper.until(|figures| of(figures, "gpu_up/1") == [("gpu_up/1", 1.0)]);
    // Where nothing says which GPUs are the job's, a lost one may be anybody's.
    state["gpus"][1]["lost"] = json!(true);
    let mut helper = Helper::start(&state, &[]);
    assert_eq!(helper.gpus().len(), 1);
}

#[test]
fn one_that_was_seen_and_does_not_answer_is_lost_after_three_looks_whatever_the_driver_calls_it() {
    let mut state = json!({"gpus": (0..3).map(gpu).collect::<Vec<_>>()});
    let mut helper = Helper::start(&state, &[]);
    helper.gpus();
    helper.figures();
    // `NVML_ERROR_UNKNOWN`
    state["gpus"][1]["error"] = json!(999);
    helper.becomes(&state);
    let mut looks: Vec<Option<f64>> = Vec::new();
    while looks.last() != Some(&Some(0.0)) {
        assert!(looks.len() < 20, "{looks:?}");
        // Which GPUs there are is not said anew: none has gone.
        looks.push(of(&helper.figures(), "gpu_up/1").first().map(|(_, up)| *up));
    }
    looks.retain(|up| *up != Some(1.0));
    assert_eq!(looks, [None, None, Some(0.0)], "two looks may be chance");
    let figures = helper.figures();
    assert_eq!(of(&figures, "/1"), [("gpu_up/1", 0.0)], "nothing else of it");
    assert_eq!(of(&figures, "gpu_up/2"), [("gpu_up/2", 1.0)]);
    state["gpus"][1]["error"] = json!(0);
    helper.becomes(&state);
    helper.until(|figures| of(figures, "gpu_up/1") == [("gpu_up/1", 1.0)]);
    // `NVML_ERROR_NO_PERMISSION`: it is not the job's any more.
    state["gpus"][1]["error"] = json!(4);
    helper.becomes(&state);
    let mut said = (0..20).map(|_| helper.next());
    let gpus = said.find_map(|said| if let GpuSaid::Gpus { gpus } = said { Some(gpus) } else { None }).unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu.id.as_str()).collect::<Vec<_>>(), ["0", "2"]);
    // What was never seen may be anybody's.
    state["gpus"][1]["error"] = json!(999);
    assert_eq!(Helper::start(&state, &[]).gpus().len(), 2);
}

#[test]
fn one_that_is_not_counted_any_more_is_lost() {
    let mut helper = Helper::start(&json!({"gpus": [gpu(0), gpu(1)]}), &[]);
    assert_eq!(helper.gpus().len(), 2);
    helper.figures();
    helper.becomes(&json!({"gpus": [gpu(0)]}));
    let figures = helper.until(|figures| of(figures, "gpu_up/1") == [("gpu_up/1", 0.0)]);
    assert_eq!(of(&figures, "gpu_up/0"), [("gpu_up/0", 1.0)]);
}

#[test]
fn parts_of_a_gpu_are_told_apart_and_have_no_figures_that_they_cannot_have() {
    let mut state = json!({"gpus": [gpu(0), gpu(1)]});
    state["gpus"][1]["parts"] = json!([
        {"uuid": "MIG-a", "memory": [10, 1]}, {"uuid": "MIG-b", "name": "H200 MIG 1g.18gb", "memory": [10, 2]},
    ]);
    let mut helper = Helper::start(&state, &[]);
    let gpus = helper.gpus();
    let all: Vec<_> = gpus.iter().map(|gpu| (gpu.id.as_str(), gpu.uuid.as_str(), gpu.part_of.as_deref())).collect();
    assert_eq!(
        all,
        [("0", "GPU-00000000-0000", None), ("1.0", "MIG-a", Some("1")), ("1.1", "MIG-b", Some("1"))],
        "the GPU itself is not told beside its parts"
    );
    assert_eq!((gpus[1].name.as_str(), gpus[2].name.as_str()), ("NVIDIA H200", "H200 MIG 1g.18gb"));
    let figures = helper.figures();
    assert_eq!(
        of(&figures, "/1.1"),
        [("gpu_memory_bytes/1.1", 2.0), ("gpu_memory_limit_bytes/1.1", 10.0), ("gpu_up/1.1", 1.0)]
    );
    let of_the_whole = [
        ("gpu_power_watts/1", 350.5),
        ("gpu_temperature_celsius/1", 41.0),
        ("gpu_ecc_corrected/1", 1.0),
        ("gpu_ecc_uncorrected/1", 0.0),
        ("gpu_throttled/1", 0.0),
    ];
    assert_eq!(of(&figures, "/1"), of_the_whole, "once, and nothing that would make it a GPU beside its parts");
    drop(helper);
    let mut one = Helper::start(&state, &[("CUDA_VISIBLE_DEVICES", "MIG-b")]);
    assert_eq!(one.gpus().iter().map(|gpu| gpu.id.clone()).collect::<Vec<_>>(), ["1.1"]);
    let figures = one.figures();
    assert_eq!((of(&figures, "/1"), of(&figures, "/0")), (of_the_whole.to_vec(), vec![]), "of one part as well");
}

/// A GPU with GPM in three parts, of which the last two are of one GPU instance. Of samples there is room for those of two looks, and no more.
fn divided(busy: [&Value; 2]) -> Value {
    let mut state = json!({"gpus": [gpu(0), gpu(1)], "most_samples": 4});
    state["gpus"][1]["gpm"] = json!(true);
    state["gpus"][1]["parts"] = json!([
        {"uuid": "MIG-a", "instance": 5, "busy": busy[0]}, {"uuid": "MIG-b", "instance": 7, "busy": busy[1]},
        {"uuid": "MIG-c", "instance": 7, "busy": busy[1]},
    ]);
    state
}

/// How busy parts are, as it is told in one look.
fn use_of_parts(figures: &Figures) -> Vec<(&str, f64)> {
    let is_it = |name: &str| ["gpu_util/1", "gpu_memory_util/1"].iter().any(|begin| name.starts_with(begin));
    figures.iter().filter(|(name, _)| is_it(name)).map(|(name, value)| (name.as_str(), *value)).collect()
}

#[test]
fn how_busy_a_part_is_is_told_from_the_second_look_on_by_its_gpu_instance() {
    let mut helper = Helper::start(&divided([&json!([50, 12.5]), &json!([100.5, 0])]), &[]);
    helper.gpus();
    let figures = helper.figures();
    assert!(use_of_parts(&figures).is_empty(), "there is nothing before the first look: {figures:?}");
    assert_eq!(of(&figures, "/1.2"), [("gpu_up/1.2", 1.0)]);
    // Every look takes samples of both instances, and keeps those of the look before until it has: what is not freed leaves no room for a figure.
    for _ in 0..4 {
        let figures = helper.figures();
        assert_eq!(
            use_of_parts(&figures),
            [
                ("gpu_util/1.0", 0.5),
                ("gpu_memory_util/1.0", 0.125),
                ("gpu_util/1.1", 1.0),
                ("gpu_memory_util/1.1", 0.0),
                ("gpu_util/1.2", 1.0),
                ("gpu_memory_util/1.2", 0.0),
            ]
        );
    }
    helper.becomes(&divided([&json!([0, 0]), &json!([25, 0])]));
    let figures = helper.until(|figures| of(figures, "gpu_util/1.0") == [("gpu_util/1.0", 0.0)]);
    assert_eq!((of(&figures, "util/1.2").len(), of(&figures, "gpu_util/1.2")), (2, vec![("gpu_util/1.2", 0.25)]));
    // What is kept is freed before the driver is let go: the double aborts else.
    drop(helper.input.take());
    while helper.lines.next().is_some() {}
    assert!(helper.child.wait().unwrap().success());
}

#[test]
fn how_busy_a_part_is_is_not_told_where_the_driver_does_not_know() {
    // No number is NVML's word for it; and an instance that is not known, a figure that the GPU has not.
    let mut state = divided([&json!([null, 20]), &json!([])]);
    let mut helper = Helper::start(&state, &[]);
    helper.gpus();
    helper.figures();
    for _ in 0..2 {
        let figures = helper.figures();
        assert_eq!(use_of_parts(&figures), [("gpu_memory_util/1.0", 0.2)]);
    }
    state["gpus"][1]["parts"][0]["instance"] = json!(null);
    helper.becomes(&state);
    helper.until(|figures| use_of_parts(figures).is_empty());
    // As before Hopper.
    state = divided([&json!([50, 20]), &json!([50, 20])]);
    state["gpus"][1]["gpm"] = json!(false);
    let mut helper = Helper::start(&state, &[]);
    helper.gpus();
    for _ in 0..3 {
        let figures = helper.figures();
        assert_eq!((use_of_parts(&figures), of(&figures, "gpu_up/1.2")), (vec![], vec![("gpu_up/1.2", 1.0)]));
    }
}

#[test]
fn how_busy_parts_are_begins_anew_with_a_gpu_or_a_driver_that_comes_back() {
    let whole = divided([&json!([50, 20]), &json!([50, 20])]);
    let mut helper = Helper::start(&whole, &[("CUDA_VISIBLE_DEVICES", "MIG-a")]);
    helper.gpus();
    let is_told = |figures: &Figures| of(figures, "gpu_util/1.0") == [("gpu_util/1.0", 0.5)];
    let is_up = |figures: &Figures| of(figures, "gpu_up/1.0") == [("gpu_up/1.0", 1.0)];
    let is_lost = |figures: &Figures| of(figures, "gpu_up/1.0") == [("gpu_up/1.0", 0.0)];
    let figures = helper.until(is_told);
    assert_eq!(use_of_parts(&figures).len(), 2, "of the others' parts nothing is asked");
    let (mut lost, mut gone) = (whole.clone(), whole.clone());
    lost["gpus"][1]["lost"] = json!(true);
    gone["init"] = json!(9);
    for away in [lost, gone] {
        helper.becomes(&away);
        let figures = helper.until(is_lost);
        assert!(use_of_parts(&figures).is_empty(), "nothing else of it: {figures:?}");
        helper.becomes(&whole);
        let figures = helper.until(is_up);
        assert!(use_of_parts(&figures).is_empty(), "what was before has gone with it: {figures:?}");
        helper.until(is_told);
    }
}

#[test]
fn with_a_divided_gpu_all_of_its_parts_are_lost() {
    let mut state = json!({"gpus": [gpu(0), gpu(1)]});
    state["gpus"][1]["parts"] = json!([{"uuid": "MIG-a", "memory": [10, 1]}, {"uuid": "MIG-b", "memory": [10, 2]}]);
    let mut helper = Helper::start(&state, &[]);
    assert_eq!(helper.gpus().len(), 3);
    helper.figures();
    state["gpus"][1]["lost"] = json!(true);
    helper.becomes(&state);
    // Which GPUs there are is not said anew: none has gone.
    let figures = helper.until(|figures| of(figures, "gpu_up/1.0") == [("gpu_up/1.0", 0.0)]);
    assert_eq!((of(&figures, "/1.1"), of(&figures, "/1")), (vec![("gpu_up/1.1", 0.0)], vec![]));
    assert_eq!(of(&figures, "gpu_up/0"), [("gpu_up/0", 1.0)]);
    state["gpus"][1]["lost"] = json!(false);
    helper.becomes(&state);
    helper.until(|figures| of(figures, "gpu_memory_bytes/1.1") == [("gpu_memory_bytes/1.1", 2.0)]);
}

#[test]
fn who_is_on_a_gpu_is_told_also_where_nobody_tells_how_much_they_hold() {
    let own = std::process::id();
    let mut state = json!({"gpus": [gpu(0), gpu(1), gpu(2)]});
    state["gpus"][0]["processes"] = json!([[own, null], [0, null]]);
    state["gpus"][1]["parts"] = json!([
        {"uuid": "MIG-a", "processes": [[own, 7]]}, {"uuid": "MIG-b", "processes": []}, {"uuid": "MIG-c"},
    ]);
    let mut helper = Helper::start(&state, &[]);
    helper.gpus();
    let figures = helper.figures();
    let on: Vec<_> = figures.iter().filter(|(name, _)| name.starts_with("gpu_processes/")).cloned().collect();
    let expected = [("gpu_processes/0", 1.0), ("gpu_processes/1.0", 1.0), ("gpu_processes/1.1", 0.0)];
    assert_eq!(on, expected.map(|(name, value)| (name.to_owned(), value)));
    let held: Vec<_> = figures.iter().filter(|(name, _)| name.starts_with("gpu_memory_process_bytes/")).collect();
    assert!(held.is_empty(), "what is not known is not 0: {held:?}");
}

#[test]
fn only_the_job_s_gpus_are_told() {
    let state = json!({"gpus": (0..4).map(gpu).collect::<Vec<_>>()});
    for (wish, ids) in [("2,3", vec!["2", "3"]), ("GPU-00000001", vec!["1"]), ("", vec![]), ("NoDevFiles", vec![])] {
        let mut helper = Helper::start(&state, &[("CUDA_VISIBLE_DEVICES", wish)]);
        assert_eq!(helper.gpus().iter().map(|gpu| gpu.id.clone()).collect::<Vec<_>>(), ids, "{wish}");
    }
}

#[test]
fn hostile_texts_and_figures_are_no_harm() {
    let mut state = json!({"gpus": [gpu(0), gpu(1), gpu(2)]});
    state["gpus"][0]["name"] = json!("x".repeat(5000));
    state["gpus"][1]["uuid"] = json!("y".repeat(5000));
    state["gpus"][1]["util"] = json!([4_000_000_000_u32, 101]);
    state["gpus"][2] = json!({"uuid": "GPU-bare"});
    let mut helper = Helper::start(&state, &[]);
    let gpus = helper.gpus();
    assert!(gpus.iter().all(|gpu| gpu.name.len() < 200 && gpu.uuid.len() < 200), "{gpus:?}");
    let figures = helper.figures();
    assert_eq!(of(&figures, "/2"), [("gpu_up/2", 1.0)], "what is not supported is missing, and not 0");
    assert!(figures.iter().all(|(_, value)| value.is_finite()));
}

#[test]
fn a_driver_that_is_not_there_is_said_once_and_the_helper_ends_with_its_parent() {
    let mut helper = Helper::start(&json!({"init": 9, "gpus": []}), &[]);
    assert_eq!(helper.gpus(), []);
    assert!(matches!(helper.next(), GpuSaid::Trouble { text } if text.contains("driver")), "what is missing is said");
    drop(helper.input.take());
    assert!(helper.lines.next().is_none(), "said once, and nothing after it");
    assert!(helper.child.wait().unwrap().success());
}

#[test]
fn a_driver_that_goes_takes_its_gpus_with_it_and_brings_them_back() {
    let mut helper = Helper::start(&json!({"gpus": [gpu(0)]}), &[]);
    assert_eq!(helper.gpus().len(), 1);
    helper.figures();
    helper.becomes(&json!({"init": 9, "gpus": [gpu(0)]}));
    loop {
        match helper.next() {
            GpuSaid::Samples { .. } => {}
            GpuSaid::Trouble { text } => {
                assert!(text.starts_with("NVML: "), "{text}");
                break;
            }
            // The job has it as before: who watches has to hear that it is not up, and not that there is none to be up.
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(helper.figures(), [("gpu_up/0".to_owned(), 0.0)]);
    helper.becomes(&json!({"gpus": [gpu(0)]}));
    helper.until(|figures| of(figures, "gpu_up/0") == [("gpu_up/0", 1.0)]);
}
