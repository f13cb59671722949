//! Who has which spaces and finds them, and what becomes of that while nobody can tell who is in which group.

use eirene_core::Role;

use super::*;
use crate::actor::Via;

#[tokio::test]
async fn everybody_with_a_user_id_has_a_home_and_sees_what_their_groups_have() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    add(&test, "physics", group("physics")).await;
    add(&test, "aaa-data", SpaceOwner::Everybody).await;
    add(&test, "scratch-ada", person(ada.user.id, "ada")).await;
    test.groups.add("ada", "physics");
    let spaces = &test.app.spaces;
    assert_eq!(names(&spaces.list(&ada).await.unwrap()), ["home-ada", "aaa-data", "physics", "scratch-ada"]);
    assert_eq!(names(&spaces.list(&grace).await.unwrap()), ["home-grace", "aaa-data"]);
    for hidden in ["physics", "home-ada", "scratch-ada"] {
        let got = spaces.get(&grace, &hidden.parse().unwrap()).await;
        assert!(matches!(got, Err(AppError::Hidden)), "{hidden}: {got:?}");
        let got = spaces.samples(&grace, &hidden.parse().unwrap(), 30).await;
        assert!(matches!(got, Err(AppError::Hidden)), "{hidden}: {got:?}");
    }
    assert!(matches!(spaces.get(&grace, &"nothing".parse().unwrap()).await, Err(AppError::NotFound)));
    assert!(matches!(spaces.all(&grace, None, 10).await, Err(AppError::Forbidden { .. })));

    let admin = test.person("root-admin", 2003, Role::Admin).await;
    assert_eq!(names(&spaces.list(&admin).await.unwrap()), ["home-root-admin", "aaa-data"]);
    let page = spaces.all(&admin, None, 3).await.unwrap();
    assert_eq!(names(&page.items), ["aaa-data", "home-ada", "home-grace"]);
    assert_eq!(page.next.as_deref(), Some("home-grace"));
    let rest = spaces.all(&admin, page.next, 9).await.unwrap();
    assert_eq!((names(&rest.items), rest.next), (vec!["home-root-admin", "physics", "scratch-ada"], None));
}

#[tokio::test]
async fn ones_own_are_found_by_what_they_are_and_a_namesake_is_not_taken_for_them() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let own = Space {
        id: SpaceId::generate(),
        name: "scratch-ada".parse().unwrap(),
        root: "scratch".parse().unwrap(),
        kind: SpaceKind::Scratch,
        ..a_space(person(ada.user.id, "ada"))
    };
    test.app.db.insert_space(own, &[]).await.unwrap();
    let named = async |actor: &Actor, name: &str| {
        let got = test.app.spaces.get(actor, &name.parse().unwrap()).await;
        got.ok().map(|seen| seen.space.name.to_string())
    };
    assert_eq!(named(&ada, "home").await.as_deref(), Some("home-ada"));
    assert_eq!(named(&grace, "home").await.as_deref(), Some("home-grace"));
    assert_eq!(named(&ada, "scratch").await.as_deref(), Some("scratch-ada"));
    assert_eq!(named(&grace, "scratch").await, None);
    assert_eq!(named(&ada, "project").await, None, "a root of groups is nobody's own");
}

#[tokio::test]
async fn a_token_needs_the_right_to_files_and_an_account_without_a_user_id_has_no_home() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let via = Via::Token { id: eirene_core::TokenId::generate(), scopes: Scope::DEFAULT.to_vec() };
    let program = Actor { via, ..ada };
    assert!(matches!(test.app.spaces.list(&program).await, Err(AppError::Forbidden { .. })));
    let home = "home".parse().unwrap();
    assert!(matches!(test.app.spaces.get(&program, &home).await, Err(AppError::Forbidden { .. })));
    let mut admin = test.person("root-admin", 2003, Role::Admin).await;
    admin.user.uid = None;
    assert_eq!(names(&test.app.spaces.list(&admin).await.unwrap()), Vec::<&str>::new());
}

#[tokio::test]
async fn a_user_database_that_is_away_takes_nobodys_space() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    assert_eq!(test.app.spaces.list(&ada).await.unwrap().len(), 1);
    test.groups.go_away();
    assert_eq!(test.app.spaces.list(&ada).await.unwrap().len(), 1, "nobody has to be asked");
    add(&test, "physics", group("physics")).await;
    for got in [
        test.app.spaces.list(&ada).await.map(drop),
        test.app.spaces.get(&ada, &"physics".parse().unwrap()).await.map(drop),
    ] {
        assert!(matches!(got, Err(AppError::Unavailable { .. })), "{got:?}");
    }
    assert_eq!(names(&test.app.spaces.list_known(&ada).await.unwrap()), ["home-ada"]);
    assert!(test.app.spaces.get(&ada, &"home".parse().unwrap()).await.is_ok());
}

#[tokio::test]
async fn while_groups_cannot_be_told_nobody_can_tell_what_is_there() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    test.app.spaces.list(&ada).await.unwrap();
    add(&test, "physics", group("physics")).await;
    add(&test, "data", SpaceOwner::Everybody).await;
    test.groups.go_away();
    for name in ["physics", "home-ada", "nothing"] {
        let got = test.app.spaces.get(&grace, &name.parse().unwrap()).await;
        assert!(matches!(got, Err(AppError::Unavailable { .. })), "{name}: {got:?}");
    }
    assert!(test.app.spaces.get(&grace, &"data".parse().unwrap()).await.is_ok());
}
