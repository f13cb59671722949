//! Moves to another file system over HTTP, against a process that says what a test has it say: a copy that is compared, and an original that goes
//! into the trash or stays.

use std::sync::Mutex;
use std::time::Duration;

use eirene_core::file_work::{Upload, UploadState};
use eirene_core::{SpaceKind, SpaceOwner, UploadId, Username};
use eirene_files_protocol::{
    Answer as Said, Channel, Code, Copied, FromFiles, Moved, OnConflict, Outcome, RelativePath, Skipped, Spot, ToFiles,
    TrashId, Verb, Walked,
};
use eirene_services::spaces::testing::a_space;
use eirene_services::testing::FilesStandIn;
use serde_json::json;

use super::files::opened;
use super::*;

/// What a process says to a verb; nothing where it is silent.
pub(super) type Says = fn(&Verb) -> Option<Outcome>;

/// All that a process was asked.
pub(super) type Asked = Arc<Mutex<Vec<Verb>>>;

const ORIGINAL: TrashId = TrashId([7; 16]);

fn scripted(says: Says, asked: &Asked) -> FilesStandIn {
    let asked = Arc::clone(asked);
    Arc::new(move |_: Username, channel: Channel| {
        let mut buffer = Vec::new();
        while let Ok(Some(packet)) = channel.receive(&mut buffer) {
            let frame = match ToFiles::decode(packet.bytes).unwrap() {
                ToFiles::Open(open) => opened(&open),
                ToFiles::Cancel(number) => FromFiles::Reply(number, problem(Code::Cancelled)),
                ToFiles::Request(number, verb) => {
                    let outcome = says(&verb);
                    asked.lock().unwrap().push(verb);
                    let Some(outcome) = outcome else { continue };
                    FromFiles::Reply(number, outcome)
                }
            };
            let _ = channel.send(&frame.encode().unwrap(), None);
        }
    })
}

fn problem(code: Code) -> Outcome {
    Outcome::Problem(code.into())
}

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

fn walked() -> Walked {
    Walked { entries: 3, bytes: 10, ..Walked::default() }
}

fn without(name: &str, why: Code) -> Walked {
    Walked { skipped: vec![Skipped { path: path(name), why }], skipped_in_all: 1, ..walked() }
}

fn copied(to: &Spot, walked: Walked) -> Outcome {
    Outcome::Done(Said::Copied(Copied { moved: Moved { path: to.path.clone(), trashed: None }, walked }))
}

/// Another file system, on which all goes well; of two of a name both are kept.
pub(super) fn well(verb: &Verb) -> Option<Outcome> {
    match verb {
        Verb::Move(_) => Some(problem(Code::OtherFileSystem)),
        Verb::Copy(copy) if copy.on_conflict == OnConflict::KeepBoth => {
            Some(copied(&Spot { path: path("e (2)"), ..copy.to.clone() }, walked()))
        }
        Verb::Copy(copy) => Some(copied(&copy.to, walked())),
        Verb::FindUnfinished(_) => Some(Outcome::Done(Said::FoundUnfinished { directory: None })),
        Verb::Compare(_) => Some(Outcome::Done(Said::Compared(walked()))),
        Verb::PutInTrash(_) => Some(Outcome::Done(Said::PutInTrash { id: ORIGINAL })),
        _ => None,
    }
}

/// Which verbs were asked.
fn kinds(asked: &Asked) -> Vec<&'static str> {
    let kind = |verb: &Verb| match verb {
        Verb::Move(_) => "move",
        Verb::FindUnfinished(_) => "look",
        Verb::Copy(_) => "copy",
        Verb::Compare(_) => "compare",
        Verb::PutInTrash(_) => "trash",
        _ => "another",
    };
    asked.lock().unwrap().iter().map(kind).collect()
}

impl Server {
    /// Ada, who may write into the space of physics too, with a process that says this.
    pub(super) async fn ada_in_physics(&self, says: Says) -> (Person, Asked) {
        let asked = Asked::default();
        let (ada, _) = self.ada_at_home(scripted(says, &asked)).await;
        self.test.app.db.insert_space(a_space(SpaceOwner::Group("physics".parse().unwrap())), &[]).await.unwrap();
        self.test.groups.add("ada", "physics");
        // Her groups are known for a minute.
        self.test.clock.advance_s(120);
        (ada, asked)
    }

    /// Asks for a move of these to physics, as an operation.
    async fn moved_far(&self, person: &Person, items: Value, on_conflict: &str) -> Answer {
        let body = json!({"items": items, "to_space": "physics", "on_conflict": on_conflict, "as_operation": true});
        self.send_json(person, "POST", "/files/move", &body).await
    }
}

#[tokio::test]
async fn what_lies_on_another_file_system_is_copied_compared_and_put_into_the_trash() {
    let server = Server::start().await;
    let (ada, asked) = server.ada_in_physics(well).await;
    let body = json!({"items": [{"path": "d", "to": "e"}], "to_space": "physics"});
    let at_once = server.send_json(&ada, "POST", "/files/move", &body).await;
    assert_eq!((at_once.status, &at_once.json()["code"]), (StatusCode::CONFLICT, &"other_file_system".into()));
    asked.lock().unwrap().clear();

    let accepted = server.moved_far(&ada, json!([{"path": "d", "to": "e"}]), "keep_both").await;
    let over = server.over(&ada, &accepted).await;
    assert_eq!((&over["state"], &over["kind"]), (&"done".into(), &"move".into()), "{over}");
    assert_eq!((&over["progress"]["entries"], &over["progress"]["bytes"]), (&3.into(), &10.into()));
    let item = json!({"path": "e (2)", "raw_path": null, "trashed": null, "original": ORIGINAL.to_string()});
    assert_eq!((&over["progress"]["items"], &over["progress"]["refused"]), (&json!([item]), &json!([])));
    assert_eq!(kinds(&asked), ["move", "look", "copy", "compare", "trash"]);
    let asked = asked.lock().unwrap();
    let (Verb::Copy(copy), Verb::Compare(compare), Verb::PutInTrash(put)) = (&asked[2], &asked[3], &asked[4]) else {
        panic!("{asked:?}");
    };
    assert_eq!((&copy.from.path, &copy.to.path), (&path("d"), &path("e")));
    assert_ne!(copy.from.space, copy.to.space);
    assert_eq!((&compare.from, &compare.to.path), (&copy.from, &path("e (2)")), "what lies there is compared");
    assert_eq!(compare.to.space, copy.to.space);
    assert_eq!((put.space, &put.path), (copy.from.space, &copy.from.path));
}

#[tokio::test]
async fn whatever_goes_wrong_leaves_the_original_where_it_is_and_says_why() {
    let cases: [(&str, Says, &str, &str, &[&str]); 11] = [
        (
            "taken",
            |verb| match verb {
                Verb::Move(_) => Some(problem(Code::Exists)),
                other => well(other),
            },
            "exists",
            "lies there already",
            &["move"],
        ),
        (
            "no room",
            |verb| match verb {
                Verb::Copy(_) => Some(problem(Code::NoSpace)),
                other => well(other),
            },
            "no_space",
            "",
            &["move", "look", "copy"],
        ),
        (
            "not whole",
            |verb| match verb {
                Verb::Copy(copy) => Some(copied(&copy.to, without("sub/x", Code::Forbidden))),
                other => well(other),
            },
            "original_kept",
            "`d/sub/x`: the permissions there do not let you",
            &["move", "look", "copy"],
        ),
        (
            "not with its list",
            |verb| match verb {
                Verb::Copy(copy) => Some(copied(&copy.to, without("", Code::ListLost))),
                other => well(other),
            },
            "original_kept",
            "`d`: the storage there keeps no access lists",
            &["move", "look", "copy"],
        ),
        (
            "changed meanwhile",
            |verb| match verb {
                Verb::Compare(_) => Some(Outcome::Done(Said::Compared(without("sub/x", Code::ChangedMeanwhile)))),
                other => well(other),
            },
            "original_kept",
            "`d/sub/x` was changed meanwhile",
            &["move", "look", "copy", "compare"],
        ),
        (
            "a copy that is short",
            |verb| match verb {
                Verb::Compare(_) => Some(Outcome::Done(Said::Compared(without("sub/x", Code::NotWhole)))),
                other => well(other),
            },
            "original_kept",
            "`d/sub/x`: bytes of it are missing in the copy",
            &["move", "look", "copy", "compare"],
        ),
        (
            "somebody's upload, or one that was given up",
            |verb| match verb {
                Verb::FindUnfinished(_) => Some(Outcome::Done(Said::FoundUnfinished { directory: Some(path("sub")) })),
                other => well(other),
            },
            "upload_unfinished",
            "`d/sub`: an upload into it is not finished",
            &["move", "look"],
        ),
        (
            "somebody's upload that began meanwhile",
            |verb| match verb {
                Verb::Compare(_) => Some(Outcome::Done(Said::Compared(without("sub", Code::UploadUnfinished)))),
                other => well(other),
            },
            "original_kept",
            "`d/sub`: an upload into it is not finished",
            &["move", "look", "copy", "compare"],
        ),
        (
            "not to be compared",
            |verb| match verb {
                Verb::Compare(_) => Some(problem(Code::Away)),
                other => well(other),
            },
            "original_kept",
            "the original stays where it is",
            &["move", "look", "copy", "compare"],
        ),
        (
            "no trash",
            |verb| match verb {
                Verb::PutInTrash(_) => Some(problem(Code::NotSupported)),
                other => well(other),
            },
            "original_kept",
            "the storage cannot do this with it",
            &["move", "look", "copy", "compare", "trash"],
        ),
        (
            "another answer",
            |verb| match verb {
                Verb::Compare(_) => Some(Outcome::Done(Said::Made { made: true })),
                other => well(other),
            },
            "files_failed",
            "",
            &["move", "look", "copy", "compare"],
        ),
    ];
    for (what, says, code, text, verbs) in cases {
        let server = Server::start().await;
        let (ada, asked) = server.ada_in_physics(says).await;
        let accepted = server.moved_far(&ada, json!([{"path": "d", "to": "e"}]), "refuse").await;
        let over = server.over(&ada, &accepted).await;
        assert_eq!((&over["state"], &over["problem"]["code"]), (&"failed".into(), &code.into()), "{what}: {over}");
        assert!(over["problem"]["text"].as_str().unwrap().contains(text), "{what}: {over}");
        assert_eq!(kinds(&asked), verbs, "{what}");
    }
}

#[tokio::test]
async fn where_only_some_have_to_be_copied_the_answer_says_which() {
    let server = Server::start().await;
    let says: Says = |verb| match verb {
        Verb::Move(wanted) if wanted.from.path == path("taken") => Some(problem(Code::Exists)),
        other => well(other),
    };
    let (ada, asked) = server.ada_in_physics(says).await;
    let moved = async |names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| json!({"path": name, "to": name})).collect();
        let body = json!({"items": items, "to_space": "physics"});
        server.send_json(&ada, "POST", "/files/move", &body).await
    };
    for (names, code) in [(["taken", "taken"], "exists"), (["far", "further"], "other_file_system")] {
        let answer = moved(&names).await;
        assert_eq!((answer.status, &answer.json()["code"]), (StatusCode::CONFLICT, &code.into()), "{names:?}");
    }
    let answer = moved(&["taken", "far"]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let said = answer.json();
    let of = |at: usize| (&said["refused"][at]["path"], &said["refused"][at]["code"]);
    assert_eq!((&said["items"], of(0)), (&json!([]), (&"taken".into(), &"exists".into())));
    assert_eq!(of(1), (&"far".into(), &"other_file_system".into()));
    assert!(kinds(&asked).iter().all(|kind| *kind == "move"), "nothing is copied that nobody asked for");
}

#[tokio::test]
async fn of_several_things_each_is_moved_by_itself() {
    let server = Server::start().await;
    let says: Says = |verb| match verb {
        // One lies on the same file system.
        Verb::Move(wanted) if wanted.from.path == path("near") => {
            Some(Outcome::Done(Said::Moved(Moved { path: wanted.to.path.clone(), trashed: None })))
        }
        Verb::Copy(copy) if copy.from.path == path("bad") => Some(problem(Code::Forbidden)),
        other => well(other),
    };
    let (ada, asked) = server.ada_in_physics(says).await;
    let items = ["bad", "near", "far"].map(|name| json!({"path": name, "to": format!("new/{name}")}));
    let accepted = server.moved_far(&ada, json!(items), "refuse").await;
    let over = server.over(&ada, &accepted).await;
    let progress = &over["progress"];
    assert_eq!((&over["state"], &progress["entries"]), (&"done".into(), &4.into()), "{over}");
    assert_eq!((&progress["items"][0]["path"], &progress["items"][0]["original"]), (&"new/near".into(), &Value::Null));
    assert_eq!(progress["items"][1]["original"], ORIGINAL.to_string());
    assert_eq!((&progress["refused"][0]["path"], progress["refused"][1].is_null()), (&"bad".into(), true));
    assert_eq!(kinds(&asked), ["move", "look", "copy", "move", "move", "look", "copy", "compare", "trash"]);
    let parts: Vec<_> = asked.lock().unwrap().iter().filter_map(copy_of).collect();
    assert_ne!(parts[0], parts[1], "what is not whole yet has a name of its own");
}

#[tokio::test]
async fn nothing_is_copied_of_a_directory_into_which_an_upload_of_ones_own_is_not_finished() {
    let server = Server::start().await;
    let (ada, asked) = server.ada_in_physics(well).await;
    let spaces = server.test.app.spaces.list(&ada.actor).await.unwrap();
    let home = spaces.iter().find(|listed| listed.space.kind == SpaceKind::Home).unwrap().space.id;
    let now = server.test.clock.now();
    let upload = |directory: &str, expires_at| Upload {
        id: UploadId::generate(),
        user: ada.actor.user.id,
        space: home,
        directory: directory.into(),
        file_name: b"a".to_vec(),
        length: Some(7),
        checksum: None,
        on_conflict: eirene_core::file_work::OnConflict::Refuse,
        state: UploadState::Open,
        final_name: None,
        created_at: now,
        last_seen_at: now,
        expires_at,
    };
    let later = now + Duration::from_hours(1);
    let physics = spaces.iter().find(|listed| listed.space.id != home).unwrap().space.id;
    for elsewhere in [
        upload("", later),
        upload("de/sub", later),
        upload("d/sub", now),
        Upload { space: physics, ..upload("d/sub", later) },
    ] {
        server.test.app.db.insert_upload(&elsewhere).await.unwrap();
    }
    let moved = async || {
        asked.lock().unwrap().clear();
        let accepted = server.moved_far(&ada, json!([{"path": "d", "to": "e"}]), "refuse").await;
        server.over(&ada, &accepted).await
    };
    assert_eq!(moved().await["state"], "done", "those lie elsewhere, or are over");
    for directory in ["d/sub", "d"] {
        let into = upload(directory, later);
        server.test.app.db.insert_upload(&into).await.unwrap();
        let over = moved().await;
        assert_eq!(
            (&over["state"], &over["problem"]["code"]),
            (&"failed".into(), &"upload_unfinished".into()),
            "{over}"
        );
        let text = over["problem"]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("`{directory}`: an upload into it")), "{text}");
        assert_eq!(kinds(&asked), ["move"]);
        server.test.app.db.delete_upload(into.id).await.unwrap();
    }
    assert_eq!(moved().await["state"], "done");
}

fn copy_of(verb: &Verb) -> Option<eirene_files_protocol::PartId> {
    match verb {
        Verb::Copy(copy) => Some(copy.id),
        _ => None,
    }
}

#[tokio::test]
async fn an_end_before_all_is_there_leaves_the_original_where_it_is() {
    let says: [Says; 2] = [
        |verb| match verb {
            Verb::Copy(_) => None,
            other => well(other),
        },
        |verb| match verb {
            Verb::Compare(_) => None,
            other => well(other),
        },
    ];
    for (says, last) in says.into_iter().zip(["copy", "compare"]) {
        let server = Server::start().await;
        let (ada, asked) = server.ada_in_physics(says).await;
        let accepted = server.moved_far(&ada, json!([{"path": "d", "to": "e"}]), "refuse").await;
        let until_last = async |times: usize| {
            while kinds(&asked).iter().filter(|kind| **kind == last).count() < times {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        until_last(1).await;
        let ends = server.portal(Ask::new("DELETE", accepted.header("location")).bearer(&ada)).await;
        assert_eq!(ends.status, StatusCode::ACCEPTED);
        assert_eq!(server.over(&ada, &accepted).await["state"], "cancelled", "{last}");

        let left = server.moved_far(&ada, json!([{"path": "d", "to": "e"}]), "refuse").await;
        until_last(2).await;
        assert_eq!(server.test.app.operations.begin_anew().await.unwrap(), 1);
        assert_eq!(server.over(&ada, &left).await["state"], "interrupted", "{last}");
        assert!(!kinds(&asked).contains(&"trash"), "{last}");
    }
}

#[tokio::test]
async fn a_move_as_an_operation_asks_for_the_same_rights() {
    let server = Server::start().await;
    let (ada, asked) = server.ada_in_physics(well).await;
    let reads = server.with_scopes(&ada, &[Scope::FilesRead]).await;
    let items = json!([{"path": "d", "to": "e"}]);
    assert_eq!(server.moved_far(&reads, items.clone(), "refuse").await.status, StatusCode::FORBIDDEN);
    let data = eirene_core::Space { name: "data".parse().unwrap(), ..a_space(SpaceOwner::Everybody) };
    server.test.app.db.insert_space(data, &[]).await.unwrap();
    for (to, status) in [("data", StatusCode::FORBIDDEN), ("nowhere", StatusCode::NOT_FOUND)] {
        let body = json!({"items": items, "to_space": to, "as_operation": true});
        assert_eq!(server.send_json(&ada, "POST", "/files/move", &body).await.status, status, "{to}");
    }
    assert!(kinds(&asked).is_empty());
}

#[tokio::test]
async fn a_form_moves_into_another_space_at_once_or_begins_an_operation() {
    let fields = [("raw", "ZA"), ("to", "x/e"), ("to_space", "physics"), ("on_conflict", "refuse")];
    let near: Says = |verb| match verb {
        Verb::Move(wanted) => Some(Outcome::Done(Said::Moved(Moved { path: wanted.to.path.clone(), trashed: None }))),
        _ => None,
    };
    let cases: [(Says, &str, &[&str]); 2] =
        [(near, "moved", &["move"]), (well, "moving", &["move", "move", "look", "copy", "compare", "trash"])];
    for (says, done, verbs) in cases {
        let server = Server::start().await;
        let (ada, asked) = server.ada_in_physics(says).await;
        let answer = server.portal(Ask::new("POST", "/spaces/home/files/move").form(&ada, &fields)).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        assert_eq!(answer.header("location"), format!("/spaces/physics/files?path=x&done={done}"));
        while kinds(&asked).len() < verbs.len() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(kinds(&asked), verbs);
        let asked = asked.lock().unwrap();
        let Verb::Move(wanted) = &asked[0] else { panic!("{asked:?}") };
        assert_ne!(wanted.from.space, wanted.to.space);
    }
}
