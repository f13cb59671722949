//! Fast scratch as a session has it: filled before the program starts, emptied when it has ended, whatever ends it, and nothing left.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eirene_core::scratch::JobScratch;
use eirene_tunnel::message::{FromAgent, FromPortal, ScratchWord, StopCause};
use nix::sys::signal::Signal;
use tokio::process::Command;

use crate::support::{Control, HOUR, Job, Portal, WITHIN, is_ready};

const IN_AND_OUT: &str = r#"{"kind":"node","stage_in":[{"from":"home:data","to":"in"}],
    "stage_out":[{"from":"results","to":"home:kept","on":"success"},{"from":"log","to":"home:log"}]}"#;

/// Works with what was brought in.
const WORKS: &str = "#!/bin/sh\nset -e\nmkdir \"$LOCAL/results\"\ncat \"$LOCAL/in/a\" >\"$LOCAL/results/b\"\necho worked >\"$LOCAL/log\"\n";

/// Says that it works, and goes on until it is told twice to end, or until its scratch is gone.
const GOES_ON: &str = "#!/bin/sh\ntold=\ntrap '[ -z \"$told\" ] || exit 0; told=1; echo told >>\"$LOCAL/log\"' TERM\n\
    mkdir \"$LOCAL/results\"\necho works >\"$LOCAL/log\"\necho begun\nwhile [ -e \"$LOCAL\" ]; do sleep 0.05; done\n";

/// Ends once the other node's container is there.
const UNTIL_BOTH: &str = "#!/bin/sh\nset -e\nmkdir \"$LOCAL/results\"\necho first >\"$LOCAL/log\"\n\
    until [ -e \"$HOME\"/c2/disk/eirene-scratch-*/*/data/log ]; do sleep 0.05; done\n";

fn wanted(lists: &'static str) -> impl FnOnce(&Path, &str) -> JobScratch {
    move |_, base| JobScratch {
        wanted: serde_json::from_str(lists).unwrap(),
        base: base.to_owned(),
        spaces: BTreeMap::new(),
        reserve_s: 60,
    }
}

fn started(portal: &Portal, script: &str, nodes: &str) -> Job {
    Job::start_in_scratch(portal, script, HOUR, nodes, wanted(IN_AND_OUT))
}

/// What is left of scratches on a node.
fn left(job: &Job, node: &str) -> Vec<PathBuf> {
    let own = job.home.join(node).join(format!("disk/eirene-scratch-{}", nix::unistd::geteuid()));
    let Ok(entries) = std::fs::read_dir(own) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn read(job: &Job, name: &str) -> Option<String> {
    std::fs::read_to_string(job.home.join(name)).ok()
}

fn is_scratch(said: &FromAgent, wanted: ScratchWord) -> bool {
    matches!(said, FromAgent::Scratch { state, .. } if *state == wanted)
}

fn has_begun(job: &Job) -> impl Future<Output = ()> {
    job.logged("begun")
}

#[tokio::test]
async fn a_program_has_its_scratch_and_what_it_made_there_is_kept() {
    let portal = Portal::open().await;
    let mut job = started(&portal, WORKS, "c1");
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(|said| is_scratch(said, ScratchWord::Done)).await;
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(0), code: None, text: None });
    assert_eq!(job.exit().await, 0);
    assert_eq!((read(&job, "kept/b").as_deref(), read(&job, "log").as_deref()), (Some("alpha"), Some("worked\n")));
    assert_eq!(left(&job, "c1"), Vec::<PathBuf>::new());
    let log = job.log();
    assert!(log.contains("variables [\"EIRENE_SCRATCH='/local'\"]"), "{log}");
    assert!(log.contains("copied `home:data` to the scratch: 1 file, 0 MiB"), "{log}");
}

#[tokio::test]
async fn how_far_it_is_is_told_whenever_that_changes() {
    let portal = Portal::open().await;
    let mut job = started(&portal, GOES_ON, "c1");
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(|said| is_scratch(said, ScratchWord::Ready)).await;
    has_begun(&job).await;
    // Whoever comes later hears how it is then.
    drop((control, opener));
    let (_, opener) = portal.welcome(None).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(|said| is_scratch(said, ScratchWord::Ready)).await;
    control.tell(FromPortal::Stop { grace_s: 1 }).await;
    control.wait_for(|said| is_scratch(said, ScratchWord::Done)).await;
    control.last_word().await;
    job.exit().await;
}

#[tokio::test]
async fn what_cannot_be_brought_in_ends_the_session_with_that_reason() {
    let portal = Portal::open().await;
    for (lists, code, words) in [
        (
            r#"{"kind":"node","stage_in":[{"from":"home:gone","to":"x"}]}"#,
            "stage_in_failed",
            "`home:gone` could not be copied to the scratch: it is not there",
        ),
        (r#"{"kind":"node","size_mib":1099511627776}"#, "scratch_unavailable", "MiB free for fast scratch"),
    ] {
        let mut job = Job::start_in_scratch(&portal, WORKS, HOUR, "c1", wanted(lists));
        let (_, opener) = portal.welcome(Some("key")).await;
        let mut control = Control::open(&opener).await;
        control.wait_for(|said| is_scratch(said, ScratchWord::Done)).await;
        let said = control.last_word().await;
        let FromAgent::Exited { status: None, code: Some(said), text: Some(text) } = said else { panic!("{said:?}") };
        assert_eq!(said, code);
        assert!(text.contains(words), "{text}");
        assert_eq!(job.exit().await, 3);
        assert!(!job.log().contains("engine started"), "nothing begins without its scratch");
        assert_eq!(left(&job, "c1").len(), 0);
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_file_system_that_does_not_come() {
    let portal = Portal::open().await;
    let mut job = Job::start_in_scratch(&portal, WORKS, HOUR, "c1", wanted(r#"{"kind":"beeond"}"#));
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    job.logged("preparing the session's scratch").await;
    control.tell(FromPortal::Stop { grace_s: 5 }).await;
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Request }).await;
    assert_eq!(control.last_word().await, FromAgent::Exited { status: None, code: None, text: None });
    assert_ne!(job.exit().await, 0, "a run that did not come to its end");
    assert!(!job.log().contains("engine started"));
}

#[tokio::test]
async fn the_time_before_the_limit_is_for_what_is_to_be_kept() {
    let portal = Portal::open().await;
    // A minute is kept free, so the program is ended ten seconds after its warning at the latest.
    let soon = Duration::from_secs(65);
    let mut job = Job::start_in_scratch(&portal, GOES_ON, soon, "c1", wanted(IN_AND_OUT));
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    has_begun(&job).await;
    job.signal(Signal::SIGUSR1);
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Walltime }).await;
    control.last_word().await;
    job.exit().await;
    assert_eq!(read(&job, "log").as_deref(), Some("works\ntold\n"), "it could save");
    assert_eq!((read(&job, "kept"), left(&job, "c1").len()), (None, 0), "it did not end well");
    assert!(job.log().contains("the rest of the time is for what is to be kept of the scratch"));
}

#[tokio::test]
async fn what_cannot_be_kept_is_said_and_stays() {
    let portal = Portal::open().await;
    let lists = r#"{"kind":"node","stage_in":[{"from":"home:data","to":"in"}],"stage_out":[{"from":"log","to":"home:data/a/log"}]}"#;
    let mut job = Job::start_in_scratch(&portal, WORKS, HOUR, "c1", wanted(lists));
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    let kept = control.wait_for(|said| is_scratch(said, ScratchWord::Kept)).await;
    let FromAgent::Scratch { nodes, .. } = kept else { panic!("{kept:?}") };
    assert_eq!((nodes.len(), nodes[0].name.as_str(), nodes[0].kept), (1, "c1", true));
    assert!(nodes[0].text.as_ref().unwrap().contains("of another kind"), "{nodes:?}");
    let said = control.last_word().await;
    let FromAgent::Exited { status: Some(0), code: Some(code), text: Some(text) } = said else { panic!("{said:?}") };
    assert!(code == "stage_out_failed" && text.contains("of another kind; it is still in"), "{code}: {text}");
    assert_eq!(job.exit().await, 6);
    let kept = left(&job, "c1");
    assert_eq!(std::fs::read_to_string(kept[0].join("data/log")).unwrap(), "worked\n");
}

#[tokio::test]
async fn an_agent_that_is_killed_leaves_what_a_rescue_brings_out() {
    let portal = Portal::open().await;
    let mut job = started(&portal, GOES_ON, "c1");
    drop(portal.welcome(Some("key")).await);
    has_begun(&job).await;
    job.signal(Signal::SIGKILL);
    job.child.wait().await.unwrap();
    let scratch = left(&job, "c1").remove(0);
    let rescue = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eirene-agent"));
        let status = command.arg("rescue").arg(&scratch).stdout(Stdio::null()).status();
        tokio::time::timeout(WITHIN, status).await.unwrap().unwrap().code()
    };
    assert_eq!(rescue().await, Some(0));
    assert_eq!((read(&job, "log").as_deref(), read(&job, "kept")), (Some("works\n"), None));
    assert_eq!((left(&job, "c1").len(), rescue().await), (0, Some(0)));
    tidy(&job);
}

/// Removes what a killed agent left as its runtime directory.
fn tidy(job: &Job) {
    let runtime = format!("/tmp/eirene-{}/{}.0", nix::unistd::geteuid(), job.session);
    // Another test's agent, which is the same person's, may have been there first: it removes what nobody holds any more.
    match std::fs::remove_dir_all(Path::new(&runtime)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed.unwrap(),
    }
}

#[tokio::test]
async fn every_node_has_a_scratch_of_its_own_and_keeps_what_is_in_it() {
    let portal = Portal::open().await;
    let mut job = started(&portal, UNTIL_BOTH, "c[1-2]");
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(0), code: None, text: None });
    assert_eq!(job.exit().await, 0, "{}", job.log());
    assert_eq!(read(&job, "log/node0").as_deref(), Some("first\n"));
    assert_eq!(read(&job, "log/node1").as_deref(), Some("log of another node"));
    assert_eq!((left(&job, "c1").len(), left(&job, "c2").len()), (0, 0));
    assert!(job.log().contains("node c2: [eirene] copied `home:data` to the scratch"), "{}", job.log());
}

/// Has another user take the name of the person's own directory on a node; gives what the log says of it. Another user takes root to be.
fn squat(home: &Path, node: &str) -> &'static str {
    let own = home.join(node).join(format!("disk/eirene-scratch-{}", nix::unistd::geteuid()));
    std::fs::write(&own, "").unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&own, Some(54_321), None).unwrap();
        "belongs to user 54321"
    } else {
        "is not a directory"
    }
}

/// What the agent has made on a node instead, and what is in it.
fn beside(job: &Job, node: &str) -> (PathBuf, usize) {
    let own = format!("eirene-scratch-{}", nix::unistd::geteuid());
    let entries = std::fs::read_dir(job.home.join(node).join("disk")).unwrap().map(|entry| entry.unwrap());
    let [made] = entries
        .filter(|entry| entry.file_name().to_str().unwrap() != own)
        .map(|entry| entry.path())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    assert!(made.file_name().unwrap().to_str().unwrap().starts_with(&format!("{own}.")), "{}", made.display());
    let left = std::fs::read_dir(&made).unwrap().count();
    (made, left)
}

#[tokio::test]
async fn a_node_where_another_took_the_name_has_a_scratch_beside_it() {
    let portal = Portal::open().await;
    let mut why = "";
    let mut job = Job::start_in_scratch(&portal, UNTIL_BOTH, HOUR, "c[1-2]", |home, base| {
        why = squat(home, "c2");
        wanted(IN_AND_OUT)(home, base)
    });
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(0), code: None, text: None });
    assert_eq!(job.exit().await, 0, "{}", job.log());
    assert_eq!(read(&job, "log/node0").as_deref(), Some("first\n"));
    assert_eq!(read(&job, "log/node1").as_deref(), Some("log of another node"));
    assert_eq!((left(&job, "c1").len(), beside(&job, "c2").1), (0, 0));
    let log = job.log();
    let words = format!("eirene-scratch-{}` {why}. Using `", nix::unistd::geteuid());
    let line = log.lines().find(|line| line.contains(&words)).unwrap();
    assert!(line.starts_with("[eirene] node c2: [eirene] "), "{line}");
}

#[tokio::test]
async fn a_rescue_finds_what_is_owed_beside_a_name_that_another_took() {
    let portal = Portal::open().await;
    let mut job = Job::start_in_scratch(&portal, GOES_ON, HOUR, "c1", |home, base| {
        squat(home, "c1");
        wanted(IN_AND_OUT)(home, base)
    });
    drop(portal.welcome(Some("key")).await);
    has_begun(&job).await;
    job.signal(Signal::SIGKILL);
    job.child.wait().await.unwrap();
    let (made, 1) = beside(&job, "c1") else { panic!("one scratch is left") };
    let name = std::fs::read_dir(&made).unwrap().next().unwrap().unwrap().file_name();
    // As the portal asks for it.
    let asked = job.home.join(format!("c1/disk/eirene-scratch-{}", nix::unistd::geteuid())).join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_eirene-agent"));
    let status = command.arg("rescue").arg(&asked).stdout(Stdio::null()).status();
    assert_eq!(tokio::time::timeout(WITHIN, status).await.unwrap().unwrap().code(), Some(0));
    assert_eq!((read(&job, "log").as_deref(), beside(&job, "c1").1), (Some("works\n"), 0));
    tidy(&job);
}

#[tokio::test]
async fn a_node_whose_scratch_cannot_be_filled_ends_the_session_and_leaves_nothing_on_any() {
    let portal = Portal::open().await;
    let without_disk = |home: &Path, base: &str| {
        std::fs::remove_dir(home.join("c2/disk")).unwrap();
        wanted(IN_AND_OUT)(home, base)
    };
    let mut job = Job::start_in_scratch(&portal, GOES_ON, HOUR, "c[1-2]", without_disk);
    let (_, opener) = portal.welcome(Some("key")).await;
    let said = Control::open(&opener).await.last_word().await;
    let FromAgent::Exited { code: Some(code), text: Some(text), .. } = said else { panic!("{said:?}") };
    assert!(code == "scratch_unavailable" && text.starts_with("node c2 has no directory"), "{code}: {text}");
    assert_eq!(job.exit().await, 3);
    assert_eq!(left(&job, "c1").len(), 0);
}
