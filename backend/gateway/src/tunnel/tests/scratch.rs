//! What an agent says of its session's scratch, believable or not.

use eirene_core::{KeptOn, Role, ScratchPhase};
use eirene_services::sessions::StartSession;
use eirene_tunnel::message::{Amount, ScratchReport, ScratchWord};
use futures_util::StreamExt as _;

use super::*;

impl Door {
    /// With a session that has a scratch, on two nodes.
    async fn open_in_scratch() -> Self {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let wanted = r#"{"kind":"node","stage_out":[{"from":"out","to":"home:kept"}]}"#;
        let wish = StartSession { scratch: Some(serde_json::from_str(wanted).unwrap()), ..TestApp::wish() };
        let (session, _) = test.app.sessions.start(&ada, wish, None).await.unwrap();
        let nodes = || vec!["c1".parse().unwrap(), "c2".parse().unwrap()];
        let session = test.app.sessions.change(session.id, |session| session.nodes = nodes()).await.unwrap().unwrap();
        Self::before(test, ada, session).await
    }
}

fn scratch(state: ScratchWord, bytes: u64, nodes: Vec<ScratchReport>) -> FromAgent {
    let amount = |bytes| Amount { bytes, files: 1 };
    FromAgent::Scratch { state, copied: amount(bytes), total: Some(amount(100)), nodes }
}

fn keeps(name: &str, text: &str) -> ScratchReport {
    let copied = Amount::default();
    ScratchReport { name: name.into(), copied, total: None, kept: true, text: Some(text.into()) }
}

#[tokio::test]
async fn how_a_scratch_is_is_told_as_it_goes_and_only_its_changes_are_written() {
    let door = Door::open_in_scratch().await;
    let (mut agent, _) = door.agent().await;
    let (events, id) = (&door.test.app.events, door.session.id);
    let mut told = events.subscribe(&door.ada, Some((JobKind::Session, id)), None).await.unwrap();
    let grace = door.test.person("grace", 2002, Role::Researcher).await;
    assert!(events.subscribe(&grace, Some((JobKind::Session, id)), None).await.is_err(), "another person's");
    let mut hers = events.subscribe(&grace, None, None).await.unwrap();
    agent.say(&scratch(ScratchWord::Filling, 10, Vec::new())).await;
    agent.say(&scratch(ScratchWord::Filling, 20, Vec::new())).await;
    let mut copied = Vec::new();
    let heard = async {
        while copied.len() < 2 {
            let event = told.next().await.unwrap();
            if event.kind == EventKind::Scratch {
                assert_eq!((event.id, event.owner), (None, Some(door.ada.user.id)), "it is passed on and not kept");
                let Fact::Session(session) = &event.fact else { panic!("{event:?}") };
                assert_eq!(session.scratch_state.as_ref().unwrap().phase, ScratchPhase::Filling);
                copied.push(door.test.app.nodes.copied(session).unwrap().all.copied.bytes);
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("the last event arrives");
    // How much it is is read when it is shown.
    assert_eq!(copied.last(), Some(&20));
    let version = door.row().await.version;
    agent.say(&scratch(ScratchWord::Filling, 30, Vec::new())).await;
    agent.say(&scratch(ScratchWord::Unknown, 0, Vec::new())).await;
    agent.say(&scratch(ScratchWord::Emptying, 40, Vec::new())).await;
    agent.say(&scratch(ScratchWord::Filling, 50, Vec::new())).await;
    let bad = vec![keeps("c2", "no room\u{1b}[2J"), keeps("d7", "not its own"), keeps("<b>", "no name")];
    agent.say(&scratch(ScratchWord::Kept, 0, bad)).await;
    let phase = async |phase| door.row().await.scratch_state.is_some_and(|known| known.phase == phase);
    door.until("kept", async || phase(ScratchPhase::Kept).await).await;
    let kept = door.row().await;
    let on = KeptOn::new("c2".parse().unwrap(), Some("no room\u{fffd}[2J".into()));
    assert_eq!(kept.scratch_state.as_ref().unwrap().kept, [on]);
    assert_eq!(kept.version, version + 2, "what only moves is not written, nor what goes back");
    agent.say(&scratch(ScratchWord::Done, 0, Vec::new())).await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    assert!(phase(ScratchPhase::Kept).await, "what was said last of all stays");
    events.publish(EventKind::Notice, None, None, serde_json::json!({"code": "end"})).await;
    let first = hers.next().await.unwrap();
    let Fact::Small(said) = &first.fact else { panic!("{first:?}") };
    assert_eq!(said["code"], "end", "nobody else hears of any of it");
}

#[tokio::test]
async fn a_session_without_a_scratch_has_no_state_of_one_whatever_its_agent_says() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.say(&scratch(ScratchWord::Kept, 1, vec![keeps("c1", "x")])).await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    assert_eq!(door.row().await.scratch_state, None);
}
