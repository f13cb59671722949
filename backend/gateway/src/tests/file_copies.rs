//! Copies over HTTP that are asked for again after the portal, or their process, ended while they ran.

use std::time::Duration;

use eirene_core::file_work::{Operation, OperationKind, OperationState};
use eirene_core::{Clock as _, OperationId, Username};
use eirene_files_protocol::{Channel, CopyFiles, FromFiles, Outcome, ToFiles, Verb};
use eirene_services::operations::part_of;
use eirene_services::testing::FilesStandIn;
use serde_json::json;

use super::file_moves::{Asked, well};
use super::files::opened;
use super::*;

/// A process that is silent of a copy that begins anew.
fn says(verb: &Verb) -> Option<Outcome> {
    match verb {
        Verb::Copy(copy) if copy.earlier.is_empty() => None,
        other => well(other),
    }
}

/// A process that is killed over a copy.
fn dies() -> FilesStandIn {
    Arc::new(|_: Username, channel: Channel| {
        let mut buffer = Vec::new();
        while let Ok(Some(packet)) = channel.receive(&mut buffer) {
            let frame = match ToFiles::decode(packet.bytes).unwrap() {
                ToFiles::Open(open) => opened(&open),
                ToFiles::Cancel(_) => continue,
                ToFiles::Request(number, verb) => match says(&verb) {
                    Some(outcome) => FromFiles::Reply(number, outcome),
                    None => return,
                },
            };
            let _ = channel.send(&frame.encode().unwrap(), None);
        }
    })
}

fn body(to: &str) -> Value {
    json!({"items": [{"path": "d", "to": to}], "to_space": "physics"})
}

/// The copies that the process was asked for, once there are so many.
async fn copies(asked: &Asked, many: usize) -> Vec<CopyFiles> {
    let copy = |verb: &Verb| match verb {
        Verb::Copy(copy) => Some(copy.clone()),
        _ => None,
    };
    loop {
        let copies: Vec<_> = asked.lock().unwrap().iter().filter_map(copy).collect();
        if copies.len() >= many {
            return copies;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn id_of(accepted: &Answer) -> OperationId {
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.body);
    accepted.header("location").rsplit('/').next().unwrap().parse().unwrap()
}

impl Server {
    async fn copied(&self, person: &Person, body: &Value) -> Answer {
        self.send_json(person, "POST", "/files/copy", body).await
    }

    /// Ada, and a copy of hers that was interrupted.
    async fn interrupted(&self) -> (Person, Asked, Operation) {
        let (ada, asked) = self.ada_in_physics(says).await;
        let accepted = self.copied(&ada, &body("e")).await;
        assert_eq!(copies(&asked, 1).await[0].earlier, []);
        assert_eq!(self.test.app.operations.begin_anew().await.unwrap(), 1);
        assert_eq!(self.over(&ada, &accepted).await["state"], "interrupted");
        let row = self.test.app.db.operation(id_of(&accepted)).await.unwrap().unwrap();
        (ada, asked, row)
    }
}

#[tokio::test]
async fn the_same_copy_goes_on_and_once_it_is_done_the_next_begins_anew() {
    let server = Server::start().await;
    let (ada, asked, first) = server.interrupted().await;
    let again = server.copied(&ada, &body("e")).await;
    assert_eq!(server.over(&ada, &again).await["state"], "done");
    let copy = copies(&asked, 2).await.remove(1);
    assert_eq!(copy.id, part_of(id_of(&again), 0));
    assert_eq!((copy.earlier, copy.same_is_done), (vec![part_of(first.id, 0)], true));

    let next = server.copied(&ada, &body("e")).await;
    let copy = copies(&asked, 3).await.remove(2);
    assert_eq!((copy.id, copy.earlier, copy.same_is_done), (part_of(id_of(&next), 0), vec![], false));
}

#[tokio::test]
async fn of_several_that_were_interrupted_the_newest_comes_first() {
    let server = Server::start().await;
    let (ada, asked, first) = server.interrupted().await;
    let second = Operation { id: OperationId::generate(), ..first.clone() };
    server.test.app.db.insert_operation(&second).await.unwrap();
    let again = server.copied(&ada, &body("e")).await;
    assert_eq!(server.over(&ada, &again).await["state"], "done");
    let mut ids = [first.id, second.id];
    ids.sort_by_key(|id| std::cmp::Reverse(id.to_string()));
    assert_eq!(copies(&asked, 2).await[1].earlier, ids.map(|id| part_of(id, 0)));
}

#[tokio::test]
async fn nothing_of_another_person_of_another_kind_or_of_another_request_is_gone_on_with() {
    let server = Server::start().await;
    let (ada, asked, first) = server.interrupted().await;
    let grace = server.grace().await;
    let other = Operation { id: OperationId::generate(), ..first.clone() };
    server.test.app.db.note_left(first.id, &json!({"cleared": true})).await.unwrap();
    for other in [
        Operation { user: grace.actor.user.id, ..other.clone() },
        Operation { id: OperationId::generate(), kind: OperationKind::Move, ..other.clone() },
        Operation { id: OperationId::generate(), state: OperationState::Failed, ..other.clone() },
        Operation { id: OperationId::generate(), request: json!({"items": [], "to_space": "physics"}), ..other },
    ] {
        server.test.app.db.insert_operation(&other).await.unwrap();
    }
    server.copied(&ada, &body("e")).await;
    assert_eq!(copies(&asked, 2).await[1].earlier, []);
}

#[tokio::test]
async fn what_is_given_up_or_is_to_begin_anew_is_gone_on_with_by_nobody_and_removed() {
    for gives_up in [true, false] {
        let server = Server::start().await;
        let (ada, asked, first) = server.interrupted().await;
        let mut anew = body("e");
        if gives_up {
            let place = format!("/api/v1/operations/{}", first.id);
            let grace = server.grace().await;
            let answer = server.portal(Ask::new("DELETE", &place).bearer(&grace)).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "somebody else's");
            let answer = server.portal(Ask::new("DELETE", &place).bearer(&ada)).await;
            assert_eq!((answer.status, &answer.json()["state"]), (StatusCode::ACCEPTED, &"interrupted".into()));
        } else {
            anew["resume"] = json!(false);
        }
        server.copied(&ada, &anew).await;
        assert_eq!(copies(&asked, 2).await[1].earlier, []);
        let left = server.test.app.db.interrupted_operations(9, first.ended_at.unwrap()).await.unwrap();
        assert_eq!(left.iter().map(|one| one.id).collect::<Vec<_>>(), [first.id]);
    }
}

#[tokio::test]
async fn what_lies_there_and_is_the_same_counts_where_that_is_asked_for() {
    let server = Server::start().await;
    let (ada, asked) = server.ada_in_physics(says).await;
    let mut wanted = body("e");
    server.copied(&ada, &wanted).await;
    wanted["resume"] = json!(true);
    wanted["items"][0]["to"] = json!("f");
    server.copied(&ada, &wanted).await;
    let mut said: Vec<_> = copies(&asked, 2).await.iter().map(|copy| copy.same_is_done).collect();
    said.sort_unstable();
    assert_eq!(said, [false, true]);
}

#[tokio::test]
async fn a_move_to_another_file_system_goes_on_with_what_was_copied() {
    let server = Server::start().await;
    let (ada, asked) = server.ada_in_physics(says).await;
    let moved = json!({"items": [{"path": "d", "to": "e"}], "to_space": "physics", "as_operation": true});
    let first = server.send_json(&ada, "POST", "/files/move", &moved).await;
    copies(&asked, 1).await;
    assert_eq!(server.test.app.operations.begin_anew().await.unwrap(), 1);
    let again = server.send_json(&ada, "POST", "/files/move", &moved).await;
    assert_eq!(server.over(&ada, &again).await["state"], "done");
    let copy = copies(&asked, 2).await.remove(1);
    assert_eq!(copy.earlier, [part_of(id_of(&first), 0)]);
    assert!(!copy.same_is_done, "the original goes for no copy of somebody else's");
}

#[tokio::test]
async fn a_copy_or_a_move_whose_process_is_lost_is_interrupted_and_what_it_left_is_found_again() {
    for (place, kind) in [("/files/copy", "copy"), ("/files/move", "move")] {
        let server = Server::start().await;
        let (ada, _) = server.ada_at_home(dies()).await;
        let wanted = json!({"items": [{"path": "d", "to": "e"}], "as_operation": true});
        let wanted = if kind == "copy" { json!({"items": wanted["items"]}) } else { wanted };
        let accepted = server.send_json(&ada, "POST", place, &wanted).await;
        let over = server.over(&ada, &accepted).await;
        assert_eq!((&over["state"], &over["kind"]), (&"interrupted".into(), &kind.into()), "{over}");
        let db = &server.test.app.db;
        let ids = |rows: Vec<Operation>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
        let id = id_of(&accepted);
        assert_eq!(ids(db.interrupted_of(ada.actor.user.id, 9).await.unwrap()), [id], "to be gone on with");
        let now = server.test.clock.now();
        assert!(db.interrupted_operations(9, now).await.unwrap().is_empty(), "not to be removed yet");
        server.test.clock.advance_s(1);
        let later = server.test.clock.now();
        assert_eq!(ids(db.interrupted_operations(9, later).await.unwrap()), [id], "to be removed later");
    }
}
