use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use eirene_core::scratch::{JobScratch, ScratchSpec};

use super::stage::Code;
use super::*;

fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A person's home and a node's disk.
struct Node {
    home: tempfile::TempDir,
    base: tempfile::TempDir,
    log: Log,
}

impl Node {
    fn new() -> Self {
        let node = Self { home: place(), base: place(), log: Log::new(std::io::sink()) };
        node.keep("data/train/a", "alpha");
        node.keep("data/train/deep/b", &"b".repeat(100_000));
        symlink("a", node.home.path().join("data/train/link")).unwrap();
        node.keep("one", "1");
        node
    }

    fn keep(&self, name: &str, text: &str) {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn kept(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.home.path().join(name)).ok()
    }

    fn scratch(&self, wanted: &str) -> JobScratch {
        let wanted: ScratchSpec = serde_json::from_str(wanted).unwrap();
        wanted.check().unwrap();
        let base = self.base.path().to_str().unwrap().to_owned();
        JobScratch { wanted, base, spaces: BTreeMap::new(), reserve_s: 60 }
    }

    fn assignment(&self, wanted: &str, name: &str, nodes: &[&str]) -> Assignment {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        Assignment::new(&self.scratch(wanted), 7, name, self.home.path().to_str().unwrap(), &nodes)
    }

    fn prepare(&self, wanted: &str, name: &str) -> Result<Held, Trouble> {
        self.prepare_with(wanted, name, &[])
    }

    /// With other spaces than the home.
    fn prepare_with(&self, wanted: &str, name: &str, spaces: &[(&str, &Path)]) -> Result<Held, Trouble> {
        let place = |(space, path): &(&str, &Path)| (space.parse().unwrap(), path.to_str().unwrap().to_owned());
        let scratch = JobScratch { spaces: spaces.iter().map(place).collect(), ..self.scratch(wanted) };
        let assignment = Assignment::new(&scratch, 7, name, self.home.path().to_str().unwrap(), &["c1".to_owned()]);
        prepare(&assignment, &AtomicBool::new(false), &Meter::default(), &self.log).map(Option::unwrap)
    }

    /// Where the person's own directory is, if nobody else has its name.
    fn own(&self) -> PathBuf {
        self.base.path().join(own_name(uid()))
    }

    fn data(&self, name: &str) -> PathBuf {
        self.own().join(name).join(DATA)
    }

    /// What is left of scratches.
    fn left(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.own()) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Everything in the home whose name is not a name of content.
    fn unfinished(&self) -> usize {
        fn count(directory: &Path) -> usize {
            let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
            entries
                .map(|entry| {
                    let hidden = entry.file_name().to_string_lossy().starts_with(".eirene-stage-");
                    usize::from(hidden) + if entry.file_type().unwrap().is_dir() { count(&entry.path()) } else { 0 }
                })
                .sum()
        }
        count(self.home.path())
    }
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const IN_AND_OUT: &str = r#"{"kind":"node","size_mib":1,
    "stage_in":[{"from":"home:data","to":"in"},{"from":"home:one","to":"deep/one"}],
    "stage_out":[{"from":"results","to":"home:kept/today"},{"from":"log","to":"home:kept/log"}]}"#;

#[test]
fn it_is_private_filled_emptied_and_leaves_nothing() {
    let node = Node::new();
    let mut held = node.prepare(IN_AND_OUT, "s.0").unwrap();
    let data = node.data("s.0");
    for place in [data.clone(), data.parent().unwrap().to_owned(), data.parent().unwrap().parent().unwrap().to_owned()]
    {
        let metadata = std::fs::metadata(&place).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (uid(), 0o700), "{}", place.display());
    }
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    assert_eq!(
        (read("in/train/a"), read("in/train/link"), read("deep/one")),
        ("alpha".into(), "alpha".into(), "1".into())
    );
    assert_eq!(read("in/train/deep/b").len(), 100_000);
    assert!(std::fs::symlink_metadata(data.join("in/train/link")).unwrap().is_symlink());
    held.hand_over().unwrap();
    std::fs::create_dir_all(data.join("results/more")).unwrap();
    std::fs::write(data.join("results/more/model"), "weights").unwrap();
    std::fs::write(data.join("log"), "done").unwrap();
    node.keep("kept/today/more/model", "of yesterday");
    node.keep("kept/today/else", "stays");
    held.finish(true).unwrap();
    assert_eq!(node.kept("kept/today/more/model").as_deref(), Some("weights"));
    assert_eq!((node.kept("kept/log"), node.kept("kept/today/else")), (Some("done".into()), Some("stays".into())));
    assert_eq!((node.left(), node.unfinished()), (Vec::new(), 0));
}

#[test]
fn what_cannot_be_brought_in_is_said_and_leaves_nothing() {
    let node = Node::new();
    let outside = place();
    std::fs::write(outside.path().join("secret"), "s").unwrap();
    symlink(outside.path(), node.home.path().join("away")).unwrap();
    nix::unistd::mkfifo(&node.home.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (from, to, words) in [
        ("gone", "x", "is not there"),
        ("away/secret", "x", "leads out"),
        ("away", "x", "leads out"),
        ("pipe", "x", "neither a file nor a directory"),
        ("one", "", "of another kind"),
    ] {
        let wanted = format!(r#"{{"kind":"node","stage_in":[{{"from":"home:{from}","to":"{to}"}}]}}"#);
        let trouble = node.prepare(&wanted, "s.0").err().unwrap();
        assert_eq!(trouble.code, Code::StageInFailed);
        assert!(trouble.text.contains(&format!("`home:{from}`")) && trouble.text.contains(words), "{trouble}");
        assert_eq!(node.left(), Vec::<String>::new(), "{from}");
    }
    let other = node.prepare(r#"{"kind":"node","stage_in":[{"from":"project:x","to":"x"}]}"#, "s.0").err().unwrap();
    assert!(other.text.contains("`project:x`") && other.text.contains("the space `project` is not there"), "{other}");
    let assignment = node.assignment(IN_AND_OUT, "s.0", &["c1"]);
    let broken_off = prepare(&assignment, &AtomicBool::new(true), &Meter::default(), &node.log).err().unwrap();
    assert!(broken_off.text.contains("broken off"), "{broken_off}");
    assert_eq!(node.left(), Vec::<String>::new());
}

const FROM_AND_TO_A_PROJECT: &str = r#"{"kind":"node",
    "stage_in":[{"from":"project-x:data","to":"in"},{"from":"home:one","to":"one"}],
    "stage_out":[{"from":"results","to":"project-x:kept"},{"from":"log","to":"scratch:log"}]}"#;

/// A project with something in it, and a scratch of the person's own.
fn project_and_scratch() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let roots = place();
    let (project, scratch) = (roots.path().join("project/project-x"), roots.path().join("scratch/scratch-ada"));
    std::fs::create_dir_all(project.join("data/deep")).unwrap();
    std::fs::write(project.join("data/deep/a"), "theirs").unwrap();
    std::fs::create_dir_all(&scratch).unwrap();
    (roots, project, scratch)
}

#[test]
fn other_spaces_fill_it_and_take_what_comes_out_also_by_whoever_comes_after_a_kill() {
    for killed in [false, true] {
        let node = Node::new();
        let (_roots, project, own) = project_and_scratch();
        let spaces: [(&str, &Path); 2] = [("project-x", &project), ("scratch", &own)];
        let mut held = node.prepare_with(FROM_AND_TO_A_PROJECT, "s.0", &spaces).unwrap();
        let data = node.data("s.0");
        assert_eq!(std::fs::read_to_string(data.join("in/deep/a")).unwrap(), "theirs");
        assert_eq!(std::fs::read_to_string(data.join("one")).unwrap(), "1");
        held.hand_over().unwrap();
        std::fs::create_dir(data.join("results")).unwrap();
        std::fs::write(data.join("results/model"), "weights").unwrap();
        std::fs::write(data.join("log"), "done").unwrap();
        if killed {
            drop(held);
            assert_eq!(rescue(data.parent().unwrap(), &node.log), 0);
        } else {
            held.finish(true).unwrap();
        }
        assert_eq!(std::fs::read_to_string(project.join("kept/model")).unwrap(), "weights");
        assert_eq!(std::fs::read_to_string(own.join("log")).unwrap(), "done");
        assert_eq!((node.kept("log"), node.left()), (None, Vec::new()));
    }
}

#[test]
fn a_space_that_is_taken_away_meanwhile_leaves_the_results_on_the_node_and_gets_them_when_it_is_back() {
    let node = Node::new();
    let (roots, project, own) = project_and_scratch();
    let spaces: [(&str, &Path); 2] = [("project-x", &project), ("scratch", &own)];
    let mut held = node.prepare_with(FROM_AND_TO_A_PROJECT, "s.0", &spaces).unwrap();
    held.hand_over().unwrap();
    let data = node.data("s.0");
    std::fs::create_dir(data.join("results")).unwrap();
    std::fs::write(data.join("results/model"), "weights").unwrap();
    std::fs::write(data.join("log"), "done").unwrap();
    let away = roots.path().join("retired");
    std::fs::rename(&project, &away).unwrap();
    let trouble = held.finish(true).unwrap_err();
    assert_eq!(trouble.code, Code::StageOutFailed);
    let scratch = data.parent().unwrap();
    for words in ["`project-x:kept`", "the space `project-x` is not there", &scratch.display().to_string()] {
        assert!(trouble.text.contains(words), "{trouble}");
    }
    assert!(!project.exists(), "nothing makes it anew");
    assert_eq!(std::fs::read_to_string(own.join("log")).unwrap(), "done", "what has a place is brought there");
    assert_eq!(std::fs::read_to_string(data.join("results/model")).unwrap(), "weights");
    assert_eq!(rescue(scratch, &node.log), 1);
    std::fs::rename(&away, &project).unwrap();
    assert_eq!(rescue(scratch, &node.log), 0);
    assert_eq!(std::fs::read_to_string(project.join("kept/model")).unwrap(), "weights");
    assert_eq!(node.left(), Vec::<String>::new());
}

#[test]
fn without_the_space_that_is_to_take_the_results_nothing_is_started() {
    let node = Node::new();
    let (_roots, project, _own) = project_and_scratch();
    let trouble = node.prepare_with(FROM_AND_TO_A_PROJECT, "s.0", &[("project-x", &project)]).err().unwrap();
    assert_eq!(trouble.code, Code::StageInFailed);
    assert!(trouble.text.contains("`scratch:log`") && trouble.text.contains("`scratch` is not there"), "{trouble}");
    assert_eq!(node.left(), Vec::<String>::new());
}

#[test]
fn links_that_others_put_into_a_shared_space_lead_nowhere_else() {
    let node = Node::new();
    let (_roots, project, own) = project_and_scratch();
    node.keep("secret", "hers");
    symlink(node.home.path(), project.join("data/home")).unwrap();
    symlink(node.home.path(), project.join("kept")).unwrap();
    let spaces: [(&str, &Path); 2] = [("project-x", &project), ("scratch", &own)];
    for from in ["data/home", "data/home/secret"] {
        let wanted = format!(r#"{{"kind":"node","stage_in":[{{"from":"project-x:{from}","to":"x"}}]}}"#);
        let trouble = node.prepare_with(&wanted, "s.0", &spaces).err().unwrap();
        assert!(trouble.text.contains("leads out"), "{trouble}");
    }
    let mut held = node.prepare_with(FROM_AND_TO_A_PROJECT, "s.0", &spaces).unwrap();
    held.hand_over().unwrap();
    let data = node.data("s.0");
    assert!(std::fs::symlink_metadata(data.join("in/home")).unwrap().is_symlink(), "as a link, not what it leads to");
    std::fs::create_dir(data.join("results")).unwrap();
    std::fs::write(data.join("results/secret"), "overwritten").unwrap();
    let trouble = held.finish(true).unwrap_err();
    assert!(trouble.text.contains("leads out"), "{trouble}");
    assert_eq!(node.kept("secret").as_deref(), Some("hers"));
}

#[test]
fn what_others_prepared_is_not_used() {
    let node = Node::new();
    let own = node.own();
    let trap = place();
    let refused = |why: &str| {
        let trouble = node.prepare(IN_AND_OUT, "s.0").err().unwrap();
        assert_eq!(trouble.code, Code::ScratchUnavailable, "{why}");
        assert!(trouble.text.contains("c1"), "{trouble}");
    };
    std::fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
    symlink(trap.path(), own.join("s.0")).unwrap();
    refused("a link in one's own directory");
    assert_eq!(std::fs::read_dir(trap.path()).unwrap().count(), 0);
    std::fs::remove_file(own.join("s.0")).unwrap();
    std::fs::set_permissions(node.base.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    refused("a base that others may rename in");
    std::fs::set_permissions(node.base.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    node.prepare(IN_AND_OUT, "s.0").unwrap().finish(true).unwrap();
}

/// The only directory with a suffix.
fn other_than(own: &Path) -> PathBuf {
    let [other] = others(own).unwrap().try_into().unwrap();
    other
}

/// Writes into a scratch what is to be kept, and leaves it as a killed agent does.
fn leave(node: &Node, name: &str, text: &str) -> PathBuf {
    let mut held = node.prepare(IN_AND_OUT, name).unwrap();
    held.hand_over().unwrap();
    let data = node.assignment(IN_AND_OUT, name, &["c1"]).spot().data().unwrap();
    std::fs::write(data.join("log"), text).unwrap();
    data.parent().unwrap().to_owned()
}

#[test]
fn a_scratch_beside_a_name_that_is_taken_is_found_by_all_who_look_for_it() {
    let node = Node::new();
    let (own, trap) = (node.own(), place());
    // As a runtime directory of the person's is called, where a link of another's would lead a rescue to.
    let decoy = trap.path().join("s.0");
    std::fs::DirBuilder::new().mode(0o700).create(&decoy).unwrap();
    std::fs::write(decoy.join("kept"), "").unwrap();
    symlink(trap.path(), &own).unwrap();
    let spot = node.assignment(IN_AND_OUT, "s.0", &["c1"]).spot().clone();
    assert_eq!(spot.data(), None, "what a link leads to is nobody's scratch");

    leave(&node, "s.0", "first");
    let other = other_than(&own);
    let data = other.join("s.0").join(DATA);
    assert_eq!(spot.data().as_ref(), Some(&data), "the container sees it");
    // A lost helper's successor goes on in it, also where the name is free by then.
    std::fs::remove_file(&own).unwrap();
    drop(node.prepare(IN_AND_OUT, "s.0").unwrap());
    assert_eq!((spot.data().as_ref(), own.exists()), (Some(&data), false));
    symlink(trap.path(), &own).unwrap();
    // The portal knows the name without a suffix only.
    assert_eq!(rescue(&own.join("s.0"), &node.log), 0);
    assert_eq!((node.kept("kept/log").as_deref(), other.join("s.0").exists()), (Some("first"), false));
    assert_eq!(rescue(&own.join("s.0"), &node.log), 0, "what is not there needs nothing");

    leave(&node, "t.0", "second");
    // Those of before may still be at it, in threads of their own.
    let begun = std::time::Instant::now();
    while other.join("t.0").exists() {
        assert!(begun.elapsed() < Duration::from_mins(2), "what was left is still there");
        heal_left(node.base.path(), uid(), OsStr::new("new.0"), &node.log);
    }
    assert_eq!(node.kept("kept/log").as_deref(), Some("second"));
    assert!(decoy.join("kept").exists() && std::fs::read_dir(trap.path()).unwrap().count() == 1, "links lead nowhere");
}

#[test]
fn a_rescue_that_cannot_look_at_its_scratch_is_tried_again() {
    let node = Node::new();
    let scratch = leave(&node, "s.0", "owed");
    std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(rescue(&scratch, &node.log), 1, "it is there, and open to others");
    std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(0o700)).unwrap();
    // What a person opened to others themselves still has what is owed to them.
    std::fs::set_permissions(node.own(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!((rescue(&scratch, &node.log), node.kept("kept/log").as_deref()), (0, Some("owed")));
}

#[test]
fn in_a_directory_of_another_user_nothing_is_owed() {
    if uid() == 0 {
        let node = Node::new();
        let own = node.own();
        std::fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(own.join("s.0")).unwrap();
        for mode in [0o700, 0o755] {
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&own, Some(54_321), None).unwrap();
            assert_eq!(rescue(&own.join("s.0"), &node.log), 0);
            assert!(own.join("s.0").exists(), "what is in it is left alone");
        }
        node.prepare(IN_AND_OUT, "s.0").unwrap().finish(true).unwrap();
        assert!(own.join("s.0").exists());
    }
}

#[test]
fn a_base_is_safe_if_nobody_else_can_change_what_lies_in_it() {
    for (owner, mode, safe) in [
        (0, 0o755, true),
        (0, 0o1777, true),
        (0, 0o777, false),
        (0, 0o775, false),
        (0, 0o1775, true),
        (1000, 0o700, true),
        (1001, 0o1777, false),
        (1001, 0o755, false),
    ] {
        assert_eq!(is_safe(owner, mode, 1000), safe, "{owner} {mode:o}");
    }
}

#[test]
fn a_node_without_the_directory_or_the_room_is_named() {
    let node = Node::new();
    let much = node.prepare(r#"{"kind":"node","size_mib":1099511627776}"#, "s.0").err().unwrap();
    assert!(much.text.contains("MiB free") && much.text.contains("1099511627776"), "{much}");
    let assignment = node.assignment(IN_AND_OUT, "s.0", &["c1"]);
    std::fs::remove_dir_all(node.base.path()).unwrap();
    let none = prepare(&assignment, &AtomicBool::new(false), &Meter::default(), &node.log).err().unwrap();
    assert!(none.text.starts_with("node c1 has no directory"), "{none}");
}

#[test]
fn after_a_bad_end_only_what_is_wanted_always_is_brought_out() {
    let wanted = r#"{"kind":"node","stage_out":[
        {"from":"model","to":"home:model","on":"success"},{"from":"log","to":"home:log","on":"always"},{"from":"none","to":"home:none"}]}"#;
    for succeeded in [true, false] {
        let node = Node::new();
        let mut held = node.prepare(wanted, "s.0").unwrap();
        held.hand_over().unwrap();
        for name in ["model", "log"] {
            std::fs::write(node.data("s.0").join(name), name).unwrap();
        }
        held.finish(succeeded).unwrap();
        assert_eq!(node.kept("model").is_some(), succeeded);
        assert_eq!((node.kept("log").as_deref(), node.kept("none"), node.left().len()), (Some("log"), None, 0));
    }
}

#[test]
fn several_nodes_bring_out_beside_each_other() {
    let node = Node::new();
    let first = node.assignment(IN_AND_OUT, "s.0", &["c1", "c2"]);
    for (assignment, number) in [(first.clone(), 0), (first.of("c2", 1), 1)] {
        assert_eq!(assignment.spot(), first.spot(), "one name on all nodes");
        let mut held = prepare(&assignment, &AtomicBool::new(false), &Meter::default(), &node.log).unwrap().unwrap();
        held.hand_over().unwrap();
        std::fs::create_dir(node.data("s.0").join("results")).unwrap();
        std::fs::write(node.data("s.0").join("results/part"), number.to_string()).unwrap();
        std::fs::write(node.data("s.0").join("log"), "l").unwrap();
        held.finish(true).unwrap();
    }
    assert_eq!(node.kept("kept/today/node0/part").as_deref(), Some("0"));
    assert_eq!(node.kept("kept/today/node1/part").as_deref(), Some("1"));
    assert_eq!((node.kept("kept/log/node0"), node.kept("kept/log/node1")), (Some("l".into()), Some("l".into())));
}

#[test]
fn what_cannot_be_brought_out_stays_and_is_brought_out_later() {
    let node = Node::new();
    let outside = place();
    symlink(outside.path(), node.home.path().join("kept")).unwrap();
    let mut held = node.prepare(IN_AND_OUT, "s.0").unwrap();
    held.hand_over().unwrap();
    std::fs::write(node.data("s.0").join("log"), "precious").unwrap();
    let trouble = held.finish(true).unwrap_err();
    assert_eq!(trouble.code, Code::StageOutFailed);
    assert!(trouble.text.contains("leads out") && trouble.text.contains("still in"), "{trouble}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "a link leads nothing out");
    assert_eq!(node.left(), ["s.0"]);
    let scratch = node.data("s.0").parent().unwrap().to_owned();
    assert_eq!(rescue(&scratch, &node.log), 1, "nothing has changed");
    std::fs::remove_file(node.home.path().join("kept")).unwrap();
    assert_eq!(rescue(&scratch, &node.log), 0);
    assert_eq!(node.kept("kept/log").as_deref(), Some("precious"));
    assert_eq!((node.left(), node.unfinished()), (Vec::new(), 0));
    assert_eq!(rescue(&scratch, &node.log), 0, "what is not there needs nothing");
}

#[test]
fn the_next_agent_removes_what_nobody_needs_and_brings_out_what_is_owed() {
    let node = Node::new();
    let mut used = node.prepare(IN_AND_OUT, "used.0").unwrap();
    used.hand_over().unwrap();
    // As agents leave them that are killed: while filling, with the program at work, and before there was a journal.
    drop(node.prepare(IN_AND_OUT, "filling.0").unwrap());
    let mut working = node.prepare(IN_AND_OUT, "working.0").unwrap();
    working.hand_over().unwrap();
    std::fs::write(node.data("working.0").join("log"), "owed").unwrap();
    drop(working);
    let own = node.own();
    std::fs::create_dir_all(own.join("bare.0/data/x")).unwrap();
    std::fs::set_permissions(own.join("bare.0"), std::fs::Permissions::from_mode(0o700)).unwrap();
    // Those of before may still be at it, in threads of their own.
    let begun = std::time::Instant::now();
    while node.left() != ["used.0"] {
        assert!(begun.elapsed() < Duration::from_mins(2), "{:?}", node.left());
        heal_left(node.base.path(), uid(), OsStr::new("new.0"), &node.log);
    }
    assert_eq!(node.kept("kept/log").as_deref(), Some("owed"));
    assert_eq!(rescue(&own.join("used.0"), &node.log), 1, "its session goes on");
    used.finish(true).unwrap();
    assert_eq!(node.left().len(), 0);
}

#[test]
fn a_start_does_not_wait_for_what_others_left() {
    let node = Node::new();
    drop(node.prepare(IN_AND_OUT, "left.0").unwrap());
    let held = node.prepare(IN_AND_OUT, "new.0").unwrap();
    let begun = std::time::Instant::now();
    while node.left() != ["new.0"] {
        assert!(begun.elapsed() < Duration::from_mins(2), "{:?}", node.left());
        std::thread::yield_now();
    }
    held.finish(true).unwrap();
}

#[test]
fn a_helper_that_was_lost_leaves_its_programs_files_to_the_next() {
    let node = Node::new();
    let mut held = node.prepare(IN_AND_OUT, "s.0").unwrap();
    held.hand_over().unwrap();
    assert_eq!(node.prepare(IN_AND_OUT, "s.0").err().unwrap().code, Code::ScratchUnavailable, "it is in use");
    std::fs::write(node.data("s.0").join("in/train/a"), "changed by the program").unwrap();
    drop(held);
    let mut held = node.prepare(IN_AND_OUT, "s.0").unwrap();
    held.hand_over().unwrap();
    assert_eq!(std::fs::read_to_string(node.data("s.0").join("in/train/a")).unwrap(), "changed by the program");
    held.finish(true).unwrap();
    assert_eq!(node.left().len(), 0);
}

#[test]
fn a_journal_that_is_not_understood_keeps_what_it_is_about() {
    let node = Node::new();
    let mut held = node.prepare(IN_AND_OUT, "s.0").unwrap();
    held.hand_over().unwrap();
    let scratch = node.data("s.0").parent().unwrap().to_owned();
    drop(held);
    std::fs::write(scratch.join("journal.json"), "{").unwrap();
    assert_eq!(rescue(&scratch, &node.log), 1);
    heal_left(node.base.path(), uid(), OsStr::new("new.0"), &node.log);
    assert_eq!(node.left(), ["s.0"]);
}
