//! Who may wish for what, and what a wish leaves out.

use super::*;

#[tokio::test]
async fn only_admins_wish_and_what_cannot_be_is_named_by_its_field() {
    let test = TestApp::new().await;
    let (ada, admin) = (test.ada().await, admin(&test).await);
    let making = &test.app.making;
    let space = making.create(&admin, for_group("stars")).await.unwrap();
    for refused in [
        making.create(&ada, for_group("moons")).await,
        making.change(&ada, &space.name, &ChangeSpace::default()).await,
        making.retire(&ada, &space.name).await,
        making.restore(&ada, &space.name).await,
    ] {
        assert!(matches!(refused, Err(AppError::Forbidden { .. })), "{refused:?}");
    }
    let ada_s = |root: &str, name: &str| NewSpace { owner: Some("ada".parse().unwrap()), ..wish(root, name) };
    let past = Some(test.clock.now());
    for (new, field) in [
        (wish("nowhere", "x"), "root"),
        (wish("project", ""), "name"),
        (wish("project", "home"), "name"),
        (wish("project", "home-ada"), "name"),
        (wish("project", "scratch-ada"), "name"),
        (wish("scratch", "x"), "owner"),
        (ada_s("project", "x"), "owner"),
        (ada_s("scratch", "mine"), "name"),
        (NewSpace { owner: Some("nobody-here".parse().unwrap()), ..wish("scratch", "") }, "owner"),
        (NewSpace { group: Some("physics".parse().unwrap()), ..ada_s("scratch", "") }, "owner"),
        (NewSpace { expires_at: past, ..for_group("x") }, "expires_at"),
    ] {
        let wrong = making.create(&admin, new).await.unwrap_err();
        assert!(matches!(&wrong, AppError::Invalid(errors) if errors[0].field == field), "{field}: {wrong:?}");
    }
    assert!(matches!(making.create(&admin, for_group("stars")).await, Err(AppError::Conflict { .. })));
    test.app.spaces.list(&ada).await.unwrap();
    let home = making.retire(&admin, &"home-ada".parse().unwrap()).await;
    assert!(matches!(home, Err(AppError::Conflict { code: "is_a_home", .. })), "{home:?}");
    assert!(matches!(making.retire(&admin, &"nothing".parse().unwrap()).await, Err(AppError::NotFound)));
}

#[tokio::test]
async fn a_new_end_forgets_warnings_of_the_old_and_one_that_is_over_does_not_come_back_with_the_space() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let making = &test.app.making;
    let end = test.clock.now() + DAY * 5;
    let space = making.create(&admin, NewSpace { expires_at: Some(end), ..for_group("stars") }).await.unwrap();
    let present = settle(&test, "stars").await.unwrap();
    let warned = vec![eirene_core::space::Warned { days: 3, at: test.clock.now(), waited_s: 0 }];
    test.app.db.update_space(&Space { warned, ..present }, &[]).await.unwrap();
    let change = |end| ChangeSpace { expires_at: Some(End::At(end)), ..ChangeSpace::default() };
    let same = making.change(&admin, &space.name, &change(end)).await.unwrap();
    assert_eq!(same.warned.len(), 1);
    let later = making.change(&admin, &space.name, &change(end + DAY)).await.unwrap();
    assert_eq!((later.warned.len(), later.expires_at), (0, Some(end + DAY)));
    making.retire(&admin, &space.name).await.unwrap();
    settle(&test, "stars").await.unwrap();
    test.clock.advance_s(7 * 24 * 60 * 60);
    let back = making.restore(&admin, &space.name).await.unwrap();
    assert_eq!((back.desired, back.expires_at), (SpaceDesired::Present, None));
}

#[tokio::test]
async fn a_title_that_is_emptied_is_the_usual_one_again() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.ada().await;
    let making = &test.app.making;
    let hers = NewSpace { owner: Some("ada".parse().unwrap()), ..wish("scratch", "") };
    for new in [for_group("stars"), hers] {
        let made = making.create(&admin, new).await.unwrap();
        let titled = |title| ChangeSpace { title: Some(title), ..ChangeSpace::default() };
        let other = titled(Title::Is("Another".parse().unwrap()));
        assert_eq!(making.change(&admin, &made.name, &other).await.unwrap().title.as_str(), "Another");
        let same = making.change(&admin, &made.name, &ChangeSpace::default()).await.unwrap();
        assert_eq!(same.title.as_str(), "Another", "what is not said stays");
        assert_eq!(making.change(&admin, &made.name, &titled(Title::Usual)).await.unwrap().title, made.title);
    }
}

#[tokio::test]
async fn only_admins_set_limits_and_none_that_no_space_can_have() {
    let test = TestApp::new().await;
    let (admin, ada) = (admin(&test).await, test.person("ada", 2001, Role::Researcher).await);
    test.app.making.create(&admin, for_group("stars")).await.unwrap();
    let stars = settle(&test, "stars").await.unwrap();
    let change = ChangeSpace { limits: limits(GIB), ..ChangeSpace::default() };
    assert!(matches!(
        test.app.making.change(&ada, &stars.name, &change).await,
        Err(AppError::Forbidden { .. } | AppError::NotFound)
    ));
    let files = |files| NewLimits { files: Some(Limit::At(Files(files))), ..NewLimits::default() };
    for (limits, field) in [
        (limits(Limit::At(Bytes(0))), "limit_bytes"),
        (limits(Limit::At(Bytes(u64::MAX))), "limit_bytes"),
        (files(0), "limit_files"),
    ] {
        let change = ChangeSpace { limits, ..ChangeSpace::default() };
        match test.app.making.change(&admin, &stars.name, &change).await {
            Err(AppError::Invalid(errors)) => assert_eq!(errors[0].field, field),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(test.app.db.space(stars.id).await.unwrap().unwrap().limit_state, LimitState::Unset);
}

#[tokio::test]
async fn what_is_made_by_itself_has_its_roots_limit_and_end_and_what_is_there_keeps_what_it_has() {
    let mut test = TestApp::new().await;
    test.ada().await;
    test.app.making.add_personal(10).await.unwrap();
    let mut config = (*test.app.config).clone();
    let scratch = &mut config.spaces.roots[0];
    (scratch.limit, scratch.limit_files) = (Some(crate::config::Size(1 << 30)), Some(9));
    scratch.lifetime_days = Some(60);
    test.rebuild(config);
    let admin = admin(&test).await;
    test.app.making.add_personal(10).await.unwrap();
    test.launcher.spaces.lock().unwrap().counts = true;
    let made = settle(&test, "scratch-root-admin").await.unwrap();
    assert_eq!((made.limit_bytes, made.limit_files), (GIB, Limit::At(Files(9))));
    assert_eq!((made.state, made.limit_state), (SpaceState::Present, LimitState::Held));
    assert_eq!(made.expires_at, Some(test.clock.now() + DAY * 60));
    let before = settle(&test, "scratch-ada").await.unwrap();
    assert_eq!((before.limit_bytes, before.expires_at), (Limit::Unlimited, None));
    // What an admin makes has what the admin said.
    test.person("grace", 2005, Role::Researcher).await;
    let grace = NewSpace { owner: Some("grace".parse().unwrap()), ..wish("scratch", "") };
    let said = test.app.making.create(&admin, grace).await.unwrap();
    assert_eq!((said.limit_state, said.expires_at), (LimitState::Unset, None));
}
