//! The real agent binary against a portal in this process and a container engine that is a small script: start, ready, streams,
//! a portal that goes away, every way to end.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

mod scratch;
mod support;

use std::path::PathBuf;
use std::time::Duration;

use eirene_core::SessionId;
use eirene_core::run::RunProgram;
use eirene_tunnel::handshake::Credential;
use eirene_tunnel::message::{AgentWork, FromAgent, FromPortal, StopCause};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use support::{Control, HOUR, Job, Portal, WITHIN, get, is_ready};

/// A run that saves when it is warned, and then ends with status 9.
const SAVES: &str =
    "#!/bin/sh\necho \"run $1 in $PWD\"\ntrap 'echo saving; exit 9' TERM\nwhile :; do sleep 0.05; done\n";

#[tokio::test]
async fn it_starts_says_ready_forwards_and_stops_when_asked() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    let (hello, opener) = portal.welcome(Some("key")).await;
    assert_eq!((hello.session, hello.slurm_job_id, hello.node.as_str()), (job.session, 7, "c1"));
    assert_eq!(hello.credential, Credential::JobSecret("the-secret".into()));
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    let FromAgent::Traced { spans } = control.wait_for(|said| matches!(said, FromAgent::Traced { .. })).await else {
        panic!("it was waited for");
    };
    let works: Vec<_> = spans.iter().map(|span| span.work).collect();
    assert_eq!(works, [AgentWork::Prepare, AgentWork::Dial, AgentWork::App], "its part of the trace of the start");
    assert!(spans.iter().all(|span| span.from_ms <= span.to_ms), "{spans:?}");
    assert!(get(&opener).await.ends_with("hello"));
    control.tell(FromPortal::SendLog { offset: 0 }).await;
    let log = control.wait_for(|said| matches!(said, FromAgent::Log { .. })).await;
    assert_eq!(log, FromAgent::Log { offset: 0, text: "engine started\n".into() });
    control.wait_for(|said| *said == FromAgent::Heartbeat).await;
    control.tell(FromPortal::Stop { grace_s: 5 }).await;
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Request }).await;
    assert!(matches!(control.last_word().await, FromAgent::Exited { code: None, .. }));
    assert_eq!(job.exit().await, 0);
    assert!(!job.log().contains("the-secret"));
}

#[tokio::test]
async fn a_run_is_ready_once_it_has_begun_is_warned_and_ends_with_its_own_status() {
    let portal = Portal::open().await;
    let mut job = Job::start_run(&portal, SAVES, Duration::from_mins(2));
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    job.logged("run a b in ").await;
    job.signal(nix::sys::signal::Signal::SIGUSR1);
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Walltime }).await;
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(9), code: None, text: None });
    assert_eq!(job.exit().await, 9);
    let log = job.log();
    assert!(log.contains(&format!("run a b in {}", job.home.display())) && log.contains("saving"), "{log}");
    assert!(log.contains("warned") && log.contains("the program ended with status 9"), "{log}");
}

#[tokio::test]
async fn a_run_that_ended_before_anybody_listened_brings_its_log() {
    let portal = Portal::open().await;
    let mut job = Job::start_run(&portal, "#!/bin/sh\necho short\n", HOUR);
    job.logged("short").await;
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open_silently(&opener).await;
    let mut beats = 0;
    while beats < 2 {
        match control.hear().await {
            FromAgent::Heartbeat => beats += 1,
            FromAgent::Exited { .. } => panic!("its last word comes after its log, which nobody has asked for yet"),
            _ => {}
        }
    }
    control.tell(FromPortal::SendLog { offset: 0 }).await;
    let said = control.wait_for(|said| matches!(said, FromAgent::Log { .. } | FromAgent::Exited { .. })).await;
    assert!(matches!(&said, FromAgent::Log { offset: 0, text } if text.contains("short")), "{said:?}");
    assert!(matches!(control.last_word().await, FromAgent::Exited { status: Some(0), code: None, .. }));
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn a_run_whose_file_is_not_there_says_so() {
    let portal = Portal::open().await;
    let run = RunProgram { file: "gone.py".into(), arguments: Vec::new(), ranks: None, preflight: true };
    let mut job = Job::start_with(&portal, "run", None, 20, Some((run, "")), HOUR, |_, _, _| ());
    let (_, opener) = portal.welcome(Some("key")).await;
    let said = Control::open(&opener).await.last_word().await;
    let FromAgent::Exited { code: Some(code), text: Some(text), .. } = said else { panic!("{said:?}") };
    assert_eq!((code.as_str(), text.as_str()), ("not_started", "there is no file `gone.py` in the home directory"));
    assert_eq!(job.exit().await, 3);
}

#[tokio::test]
async fn a_run_that_makes_room_for_another_job_leaves_its_own_to_the_scheduler() {
    let portal = Portal::open().await;
    let mut job = Job::start_run(&portal, SAVES, HOUR);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    job.logged("run a b in ").await;
    job.signal(nix::sys::signal::Signal::SIGUSR1);
    job.logged("waits for the scheduler to take the nodes").await;
    // Had it said that it is over, the portal would have ended the job.
    let said = |said: &FromAgent| matches!(said, FromAgent::Stopping { .. } | FromAgent::Exited { .. });
    job.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(control.wait_for(said).await, FromAgent::Stopping { why: StopCause::Signal });
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(9), code: None, text: None });
    job.exit().await;
}

#[tokio::test]
async fn a_portal_that_restarts_is_dialled_again_with_the_tunnel_key() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    drop((control, opener));
    let (hello, opener) = portal.welcome(None).await;
    assert_eq!(hello.credential, Credential::TunnelKey("key".into()));
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    assert!(get(&opener).await.ends_with("hello"));
    job.signal(nix::sys::signal::Signal::SIGTERM);
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Signal }).await;
    control.last_word().await;
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn an_app_that_fails_says_its_status() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "fail", None, 20);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    let said = control.last_word().await;
    assert_eq!(said, FromAgent::Exited { status: Some(7), code: None, text: None });
    assert_eq!(job.exit().await, 7);
}

#[tokio::test]
async fn an_app_that_never_answers_is_ended_with_a_reason() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "silent", None, 1);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    let said = control.last_word().await;
    assert!(matches!(&said, FromAgent::Exited { code: Some(code), .. } if code == "never_ready"), "{said:?}");
    assert_eq!(job.exit().await, 3);
}

#[tokio::test]
async fn what_does_not_end_is_killed_and_orphans_are_swept() {
    for behaviour in ["stubborn", "orphan"] {
        let portal = Portal::open().await;
        let mut job = Job::start(&portal, behaviour, None, 20);
        let (_, opener) = portal.welcome(Some("key")).await;
        let mut control = Control::open(&opener).await;
        control.wait_for(is_ready).await;
        control.tell(FromPortal::Stop { grace_s: 1 }).await;
        control.last_word().await;
        assert_eq!(job.exit().await, 0, "{behaviour}");
        if let Some(orphan) = job.log().lines().find_map(|line| line.strip_prefix("orphan ").map(ToOwned::to_owned)) {
            assert!(!PathBuf::from(format!("/proc/{orphan}")).exists(), "the orphan {orphan} lives");
        } else {
            assert_eq!(behaviour, "stubborn");
        }
    }
}

#[tokio::test]
async fn a_portal_with_another_key_learns_nothing() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", Some(&"00".repeat(32)), 20);
    let (stream, _) = tokio::time::timeout(WITHIN, portal.listener.accept()).await.unwrap().unwrap();
    let accepted = portal.acceptor.accept(stream).await;
    if let Ok(mut stream) = accepted {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes).await;
        assert!(read.is_err() || bytes.is_empty(), "{} bytes", bytes.len());
    }
    job.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_job() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    portal.refuse(true, || {}).await;
    assert_eq!(job.exit().await, 4);
    assert!(job.log().contains("the session is over"));
}

#[tokio::test]
async fn key_and_secret_are_shown_in_turn_and_a_new_secret_is_taken() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    let (secret, key) = (Credential::JobSecret("the-secret".into()), Credential::TunnelKey("key".into()));
    let fresh = Credential::JobSecret("fresh".into());
    assert_eq!(portal.refuse(false, || {}).await, secret);
    drop(portal.welcome(Some("key")).await);
    // Files that are not this agent's, or that others could have written, change nothing.
    let other_session =
        || job.write_file(0o600, |file| (file.secret, file.session) = ("x".into(), SessionId::generate()));
    assert_eq!(portal.refuse(false, other_session).await, key);
    let other_run = || job.write_file(0o600, |file| (file.secret, file.restart_count) = ("x".into(), 1));
    assert_eq!(portal.refuse(false, other_run).await, secret);
    assert_eq!(portal.refuse(false, || job.write_file(0o644, |file| file.secret = "x".into())).await, key);
    assert_eq!(portal.refuse(false, || job.write_file(0o600, |file| file.secret = "fresh".into())).await, secret);
    let remove = || std::fs::remove_file(job.home.join("job.json")).unwrap();
    assert_eq!(portal.refuse(false, remove).await, fresh);
    assert_eq!(portal.refuse(false, || {}).await, key);
    let (hello, opener) = portal.welcome(Some("another key")).await;
    assert_eq!(hello.credential, fresh);
    drop(opener);
    let (hello, opener) = portal.welcome(None).await;
    assert_eq!(hello.credential, Credential::TunnelKey("another key".into()));
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    job.signal(nix::sys::signal::Signal::SIGTERM);
    control.last_word().await;
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn a_last_word_that_was_not_noted_is_said_again() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "fail", None, 20);
    let last = |said: &FromAgent| *said == FromAgent::Exited { status: Some(7), code: None, text: None };
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(last).await;
    // The portal could not write it down.
    drop((control, opener));
    let (_, opener) = portal.welcome(None).await;
    assert!(last(&Control::open(&opener).await.last_word().await));
    assert_eq!(job.exit().await, 7);
}

#[tokio::test]
async fn a_signal_counts_before_the_end_that_came_with_it() {
    use nix::sys::signal::Signal;
    // Which of the two is seen first must not be left to chance, so one time says little.
    for _ in 0..6 {
        let portal = Portal::open().await;
        let mut job = Job::start(&portal, "serve", None, 20);
        let (_, opener) = portal.welcome(Some("key")).await;
        let mut control = Control::open(&opener).await;
        control.wait_for(is_ready).await;
        job.signal(Signal::SIGSTOP);
        let mut app = UnixStream::connect(job.socket()).await.unwrap();
        app.write_all(b"GET /quit HTTP/1.0\r\n\r\n").await.unwrap();
        tokio::time::timeout(WITHIN, async {
            while job.state_of_child() != Some('Z') {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        job.signal(Signal::SIGTERM);
        job.signal(Signal::SIGCONT);
        let said = |said: &FromAgent| matches!(said, FromAgent::Stopping { .. } | FromAgent::Exited { .. });
        assert_eq!(control.wait_for(said).await, FromAgent::Stopping { why: StopCause::Signal });
        control.last_word().await;
        assert_eq!(job.exit().await, 0);
    }
}
