//! What is said on the control stream, and what becomes of the session by it.

use eirene_tunnel::message::{NodeReport, NodeState, StepReport};
use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use super::*;

#[tokio::test]
async fn an_agent_that_breaks_the_rules_loses_its_tunnel_and_nothing_else() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    agent.control.write_all(&vec![b'x'; message::MAX_LINE + 1]).await.unwrap();
    tokio::time::timeout(PATIENCE, agent.moving).await.expect("the tunnel is closed").unwrap();
    assert_eq!(door.row().await.state, SessionState::Running);
    door.until("gone", async || !door.test.app.tunnels.is_live(door.session.id)).await;
}

#[tokio::test]
async fn the_log_arrives_and_is_bounded_in_what_one_message_may_hold() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.say(&FromAgent::Log { offset: 0, text: "first line\n".into() }).await;
    agent.say(&FromAgent::Log { offset: 0, text: "first line\nsecond line\n".into() }).await;
    let logs = &door.test.app.logs;
    door.until("logged", async || {
        logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap().contains("second")
    })
    .await;
    assert_eq!(logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap(), "first line\nsecond line\n");
}

#[tokio::test]
async fn what_runs_on_the_nodes_is_told_to_who_may_see_the_session_and_forgotten_with_the_agent() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    let nodes = &door.test.app.nodes;
    let change = door.test.app.sessions.change(door.session.id, |session| session.nodes = vec!["c1".parse().unwrap()]);
    change.await.unwrap();
    let mut events =
        door.test.app.events.subscribe(&door.ada, Some((JobKind::Session, door.session.id)), None).await.unwrap();
    let report = NodeReport { name: "c1".into(), state: NodeState::Ready, text: None };
    let step = StepReport { number: 1, command: "python3 train.py".into(), ranks: 2, nodes: vec!["c1".into()] };
    agent.say(&FromAgent::Nodes { nodes: vec![report], steps: vec![step] }).await;
    let told = async || nodes.of(&door.row().await).first().is_some_and(|node| !node.steps.is_empty());
    door.until("told", told).await;
    let event = async { while events.next().await.is_some_and(|event| event.kind != EventKind::Nodes) {} };
    tokio::time::timeout(PATIENCE, event).await.expect("an event");
    drop(agent);
    door.until("forgotten", async || nodes.of(&door.row().await)[0].state.is_none()).await;
}

#[tokio::test]
async fn what_cannot_be_noted_ends_the_connection_so_that_it_is_said_again() {
    for word in [FromAgent::Ready, exited(Some(0), None)] {
        let door = Door::open().await;
        let (mut agent, _) = door.agent().await;
        door.until_state(SessionState::Starting).await;
        door.test.app.db.close().await;
        agent.say(&word).await;
        tokio::time::timeout(PATIENCE, agent.moving).await.expect("the tunnel is closed").unwrap();
        let heard = async {
            while let Some(_order) = message::read::<FromPortal>(&mut agent.control, &mut Vec::new()).await? {}
            Ok(())
        };
        let heard: Result<(), std::io::Error> = heard.await;
        assert!(heard.is_err(), "a clean end would say that it was noted");
    }
}

#[tokio::test]
async fn a_last_word_that_was_noted_is_answered_with_a_clean_end() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.told().await;
    agent.say(&exited(Some(3), None)).await;
    agent.control.shutdown().await.unwrap();
    assert_eq!(agent.told().await, None);
    assert_eq!(door.row().await.reason.map(|reason| reason.code).as_deref(), Some("app_failed"));
}

#[tokio::test]
async fn an_agent_that_comes_and_goes_does_not_keep_the_poller_busy() {
    let door = Door::open().await;
    let (woken, bell) = (Arc::new(std::sync::atomic::AtomicU32::new(0)), door.test.app.nudges.clone());
    let counter = Arc::clone(&woken);
    tokio::spawn(async move {
        loop {
            bell.poll().notified().await;
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let begun = std::time::Instant::now();
    let (mut agent, key) = door.agent().await;
    for _ in 0..10 {
        for _ in 0..3 {
            agent.say(&exited(Some(0), None)).await;
        }
        drop(agent.control);
        agent.moving.abort();
        door.until("gone", async || !door.test.app.tunnels.is_live(door.session.id)).await;
        let again = Hello { credential: Credential::TunnelKey(key.clone()), ..door.hello() };
        let (mut io, _) = door.introduce(&again).await.unwrap();
        handshake::confirm(&mut io).await.unwrap();
        agent = Agent::start(io).await;
    }
    let most = 3 + u32::try_from(begun.elapsed().as_secs() / 5).unwrap();
    let times = woken.load(std::sync::atomic::Ordering::Relaxed);
    assert!((1..=most).contains(&times), "{times} times");
}

#[tokio::test]
async fn an_agent_that_is_quicker_than_the_poller_wakes_it() {
    let door = Door::open().await;
    let bell = door.test.app.nudges.clone();
    let (_agent, _) = door.agent().await;
    assert!(door.session.nodes.is_empty());
    tokio::time::timeout(PATIENCE, bell.poll().notified()).await.unwrap();
}

#[tokio::test]
async fn a_stop_is_told_and_the_end_closes_all_streams() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.told().await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    let tunnels = &door.test.app.tunnels;
    let revoked = tunnels.revoked(door.session.id);
    assert!(tunnels.stop(door.session.id));
    assert!(matches!(agent.told().await, Some(FromPortal::Stop { .. })));
    assert!(!revoked.is_cancelled());
    tunnels.close(door.session.id);
    assert!(revoked.is_cancelled() && tunnels.revoked(door.session.id).is_cancelled());
    tokio::time::timeout(PATIENCE, agent.moving).await.expect("the tunnel is closed").unwrap();
}

#[tokio::test]
async fn an_app_that_ended_is_judged_by_its_status_unless_a_signal_ended_it() {
    for (messages, state, code) in [
        (vec![exited(Some(0), None)], SessionState::Stopping, Some("app_ended")),
        (vec![exited(Some(3), None)], SessionState::Stopping, Some("app_failed")),
        (vec![exited(None, Some("never_ready"))], SessionState::Stopping, Some("never_ready")),
        (vec![exited(None, Some("image_missing"))], SessionState::Stopping, Some("agent_failed")),
        (vec![exited(None, Some("scratch_unavailable"))], SessionState::Stopping, Some("scratch_unavailable")),
        (vec![exited(None, Some("stage_in_failed"))], SessionState::Stopping, Some("stage_in_failed")),
        (vec![stopping(message::StopCause::Walltime)], SessionState::Stopping, Some("walltime_reached")),
        (vec![stopping(message::StopCause::Signal), exited(Some(1), None), log("end")], SessionState::Running, None),
        (vec![exited(None, None), exited(Some(143), None), log("end")], SessionState::Running, None),
    ] {
        let door = Door::open().await;
        let (mut agent, _) = door.agent().await;
        agent.say(&FromAgent::Ready).await;
        door.until_state(SessionState::Running).await;
        let waits_for_log = messages.len() > 1;
        for message in &messages {
            agent.say(message).await;
        }
        if waits_for_log {
            let logs = &door.test.app.logs;
            door.until("all heard", async || {
                logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap() == "end"
            })
            .await;
        }
        door.until_state(state).await;
        assert_eq!(door.row().await.reason.map(|reason| reason.code).as_deref(), code);
    }
}

#[tokio::test]
async fn what_could_not_be_kept_of_a_scratch_is_told_however_the_session_was_ended() {
    for why in [None, Some(message::StopCause::Walltime), Some(message::StopCause::Request)] {
        let door = Door::open().await;
        let (mut agent, _) = door.agent().await;
        agent.say(&FromAgent::Ready).await;
        door.until_state(SessionState::Running).await;
        for word in why.map(stopping).into_iter().chain([exited(Some(0), Some("stage_out_failed"))]) {
            agent.say(&word).await;
        }
        let told = async || door.row().await.reason.is_some_and(|reason| reason.code == "stage_out_failed");
        door.until("the reason is recorded", told).await;
        let version = door.row().await.version;
        agent.say(&exited(Some(0), Some("stage_out_failed"))).await;
        agent.say(&log("end")).await;
        let heard =
            async || door.test.app.logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap() == "end";
        door.until("all heard", heard).await;
        let row = door.row().await;
        assert_eq!((row.version, row.state), (version, SessionState::Stopping), "what is noted is noted");
        assert!(row.reason.unwrap().text.starts_with("Not everything that was to be kept"));
    }
}

#[tokio::test]
async fn how_a_runs_program_ended_is_kept_also_when_a_signal_ended_it() {
    for (status, state, code) in [
        (0, SessionState::Stopping, Some("program_ended")),
        (3, SessionState::Stopping, Some("program_failed")),
        (137, SessionState::Running, None),
    ] {
        let door = Door::open_for_run().await;
        let (mut agent, _) = door.agent().await;
        agent.say(&FromAgent::Ready).await;
        door.until_state(SessionState::Running).await;
        agent.say(&exited(Some(status), None)).await;
        door.until("its status is kept", async || door.row().await.exit_status == Some(status)).await;
        let row = door.row().await;
        assert_eq!((row.state, row.reason.map(|reason| reason.code).as_deref()), (state, code));
    }
}
