//! Every page and every template, held against each other.

use std::collections::BTreeSet;

use eirene_core::Sentence;
use eirene_core::scheduler::{Node, Partition};
use eirene_core::session::{Desired, Reason, SessionState};
use eirene_services::cluster::concern::Concern;
use eirene_services::cluster::{ClusterView, Snapshot};
use eirene_words::words;

use super::samples::{Samples, pages};
use super::views::cluster::FreeView;
use super::views::presets::presets;
use super::views::session::SessionView;

/// Everything between `start` and `end` in `text`, as often as it occurs.
fn between<'a>(text: &'a str, start: &str, end: char) -> Vec<&'a str> {
    text.split(start).skip(1).filter_map(|rest| rest.split_once(end).map(|(inside, _)| inside)).collect()
}

fn sources(folder: &std::path::Path, extension: &str, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, extension, into);
        } else if path.extension().is_some_and(|found| found == extension) {
            into.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_page_renders_and_nothing_hostile_gets_through() {
    let pages = pages().unwrap();
    assert!(pages.len() > 35);
    for (name, html) in pages {
        assert!(!html.contains("<script>alert"), "{name}");
        assert!(!html.contains("style="), "{name} has an inline style");
        assert!(!html.contains(" onclick"), "{name} has an inline script");
        for script in between(&html, "<script", '>') {
            assert!(script.contains("src=\"/static/"), "{name}: {script}");
        }
        for address in between(&html, "href=\"", '"').into_iter().chain(between(&html, "src=\"", '"')) {
            assert!(address.starts_with(['/', '#']), "{name} leads elsewhere: {address}");
        }
    }
}

#[test]
fn every_template_is_rendered_by_a_sample() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    sources(&root.join("src/views"), "rs", &mut code);
    let shown: BTreeSet<&str> = between(&code, "TEMPLATE: &'static str = \"", '"').into_iter().collect();
    for folder in ["pages", "pages/admin", "pages/files", "fragments"] {
        for entry in std::fs::read_dir(root.join("../../frontend/templates").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap());
                assert!(shown.contains(name.as_str()), "no view shows {name}");
            }
        }
    }
}

#[test]
fn the_page_of_a_session_says_what_watching_it_takes() {
    let pages = pages().unwrap();
    let says = |name: &str| pages.iter().any(|(known, html)| known == name && html.contains("Watching takes "));
    assert!(says("session-running") && says("session-many-gpus") && says("session-ended"));
    assert!(!says("session-queued"), "nobody watches what has not begun");
}

#[test]
fn what_one_can_do_with_a_session_follows_from_its_state() {
    let samples = Samples::new().unwrap();
    let words = words();
    for state in SessionState::ALL {
        let mut session = samples.session("x", *state).unwrap();
        let view = SessionView::new(words, &session, samples.now);
        assert_eq!(!view.open_href.is_empty(), *state == SessionState::Running, "{state} opens");
        assert_eq!(!view.again_href.is_empty(), state.is_final(), "{state} starts again");
        assert_eq!(view.run_href, format!("/runs/new?like={}", session.id), "{state}: a run may always be like it");
        let stops = matches!(state, SessionState::Queued | SessionState::Starting | SessionState::Running);
        assert_eq!(!view.stop_href.is_empty(), stops, "{state} stops");
        assert_eq!(
            view.left.is_empty(),
            !matches!(state, SessionState::Starting | SessionState::Running),
            "{state} has time left"
        );
        assert!(view.doubt.is_empty());
        let foreign = view.without_app();
        let starts = [&foreign.open_href, &foreign.again_href, &foreign.run_href];
        assert!(starts.iter().all(|href| href.is_empty()), "{state}: the app, and to start anything, is the owner's");

        session.undetermined = true;
        assert_eq!(
            SessionView::new(words, &session, samples.now).doubt.is_empty(),
            state.is_final(),
            "{state} is in doubt"
        );
        session.desired = Desired::Ended;
        assert!(SessionView::new(words, &session, samples.now).stop_href.is_empty(), "{state} was asked already");
    }
}

#[test]
fn a_session_says_why_in_a_sentence_and_when_it_may_start() {
    let samples = Samples::new().unwrap();
    let words = words();
    let mut session = samples.session("x", SessionState::Queued).unwrap();
    session.reason = Some(Reason::new("priority", Sentence::from_elsewhere("others in `main` come first")));
    session.start_estimate = Some(samples.now + jiff::SignedDuration::from_mins(5));
    let view = SessionView::new(words, &session, samples.now);
    assert_eq!((view.line, view.reason), (words.get("line.queued"), "Others in “main” come first.".to_owned()));
    assert!(view.estimate.is_some());
    let later = SessionView::new(words, &session, samples.now + jiff::SignedDuration::from_mins(6));
    assert!(later.estimate.is_none(), "an estimate that has passed is none");

    session.state = SessionState::Failed;
    let failed = SessionView::new(words, &session, samples.now);
    assert_eq!((failed.line.as_str(), failed.reason.as_str()), ("Others in “main” come first.", ""));
}

#[test]
fn the_last_minutes_are_a_warning() {
    let samples = Samples::new().unwrap();
    let session = samples.session("x", SessionState::Running).unwrap();
    let view = |before_end: i64| {
        let now = session.ends_at.unwrap() - jiff::SignedDuration::from_mins(before_end);
        SessionView::new(words(), &session, now)
    };
    assert!(!view(11).left_is_short);
    assert!(view(9).left_is_short);
    assert_eq!(view(-5).left, "0\u{a0}min left");
}

#[test]
fn gpus_of_a_node_that_takes_no_jobs_are_not_free() {
    let nodes = Samples::nodes().unwrap();
    let free = FreeView::new(words(), &nodes, None, true);
    let gpus: Vec<_> =
        free.gpus.iter().map(|item| (item.label.as_str(), item.text.as_str(), item.slots.len())).collect();
    assert_eq!(gpus, [("a100", "0 of 2", 2), ("h100", "1 of 2", 2)]);
}

#[test]
fn ready_made_sizes_are_cut_to_what_there_is() {
    let cluster = |nodes: Vec<Node>, partitions: Vec<Partition>| {
        let snapshot = Snapshot {
            nodes: nodes.into(),
            partitions: partitions.into(),
            ..eirene_services::testing::snapshot(vec![])
        };
        ClusterView::of(&snapshot, &Concern::of(&snapshot, None, &[]))
    };
    let (nodes, mut partitions) = (Samples::nodes().unwrap(), Samples::partitions().unwrap());
    let codes =
        |sizes: &[super::views::presets::Preset]| sizes.iter().map(|size| size.code.clone()).collect::<Vec<_>>();
    let all = presets(&cluster(nodes.clone(), partitions.clone()));
    assert_eq!(codes(&all), ["small", "medium", "gpu-a100", "gpu-h100"]);
    partitions[0].max_walltime_min = Some(45);
    let small = Node { cpus: 1, memory_mib: 2000, ..nodes[2].clone() };
    let sizes = presets(&cluster(vec![small], partitions));
    assert_eq!(codes(&sizes), ["small", "medium"]);
    for size in sizes {
        assert_eq!((size.resources.cpus, size.resources.memory_mib, size.resources.walltime_min), (1, 2000, 45));
    }
    assert_eq!(codes(&presets(&cluster(vec![], vec![]))), ["small", "medium"], "while the cluster has not been seen");
}
