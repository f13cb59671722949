//! Who has a channel, for how long, and when the next process is started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use eirene_core::{Role, UserState};
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::file_processes::{FilesChannel, FilesError, FilesPool};
use crate::testing::{FakeLauncher, TestApp, entry};

/// A launcher whose file processes are served by `serve`, and how many were started.
fn launcher(serve: impl Fn(Peer) + Send + Sync + 'static) -> (FakeLauncher, Arc<AtomicUsize>) {
    let (launcher, started) = (FakeLauncher::default(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&started);
    *launcher.files.lock().unwrap() = Some(Arc::new(move |_, channel| {
        count.fetch_add(1, Ordering::SeqCst);
        serve(Peer::new(channel));
    }));
    (launcher, started)
}

/// Answers every list, and nothing else.
fn lists(mut peer: Peer) {
    peer.hello(UID);
    while let Some(frame) = peer.hear() {
        if let ToFiles::Request(number, Verb::List(_)) = frame {
            peer.say(&listed(number));
        }
    }
}

#[tokio::test]
async fn a_person_has_one_process_until_other_spaces_are_needed() {
    let (launcher, started) = launcher(lists);
    let pool = FilesPool::new(Arc::new(launcher), patient());
    let ada = owner("ada");
    let spaces = one_space();
    let (first, second) = tokio::join!(pool.channel(&ada, &spaces, ONE), pool.channel(&ada, &spaces, ONE));
    assert!(first.unwrap().ask(list()).await.is_ok());
    let old = second.unwrap();
    assert_eq!(started.load(Ordering::SeqCst), 1);
    let (transfer, _stream) = old.begin(read("a")).await.unwrap();
    let more = [spaces, vec![space(2, Path::new("/project/x"))]].concat();
    let new = pool.channel(&ada, &more, ONE).await.unwrap();
    assert_eq!(started.load(Ordering::SeqCst), 2);
    assert_eq!(new.hello().spaces.len(), 2);
    assert!(new.ask(list()).await.is_ok() && old.is_open(), "what is under way goes on");
    drop(transfer);
    // The stand-in never answers a read, so the old channel waits for its last word; closing it ends that.
    assert!(old.is_open());
    old.close();
    assert!(!old.is_open() && new.is_open());
}

/// What a process says of the second of its spaces as long as that is not back.
#[derive(Debug, Clone, Copy)]
enum Lost {
    /// It could not be opened.
    Unopened(Code),
    /// It was opened; asked for, it is this.
    Opened(Code),
}

/// A process that says so, and whether the space is back.
fn loses(lost: Lost, back: Arc<AtomicBool>) -> impl Fn(Peer) + Send + Sync + 'static {
    move |mut peer: Peer| {
        // Only a process that is started then finds what has come back.
        let lost = (!back.load(Ordering::SeqCst)).then_some(lost);
        peer.hello_of(UID, |number| match lost {
            Some(Lost::Unopened(code)) if number != ONE => Some(code),
            _ => None,
        });
        while let Some(frame) = peer.hear() {
            let ToFiles::Request(number, Verb::List(_)) = frame else { continue };
            match lost {
                Some(Lost::Opened(code)) => peer.say(&FromFiles::Reply(number, Outcome::Problem(code.into()))),
                _ => peer.say(&listed(number)),
            }
        }
    }
}

#[tokio::test]
async fn a_space_that_comes_back_is_found_by_another_process_and_what_is_under_way_goes_on() {
    let two = SpaceNumber(2);
    let spaces = [one_space(), vec![space(2, Path::new("/project/x"))]].concat();
    for (lost, is_replaced) in [
        (Lost::Unopened(Code::NoSuchSpace), true),
        (Lost::Unopened(Code::Away), true),
        // What the person may not open, no other process opens.
        (Lost::Unopened(Code::Forbidden), false),
        (Lost::Opened(Code::Away), true),
        // As what goes from one space to another is answered.
        (Lost::Opened(Code::NoSuchSpace), true),
        (Lost::Opened(Code::NotFound), false),
    ] {
        let back = Arc::new(AtomicBool::new(false));
        let (launcher, started) = launcher(loses(lost, Arc::clone(&back)));
        let pool = FilesPool::new(Arc::new(launcher), Limits { pause: Duration::ZERO, ..patient() });
        let ada = owner("ada");
        let old = pool.channel(&ada, &spaces, two).await.unwrap();
        let (transfer, _stream) = old.begin(read("a")).await.unwrap();
        let answer = old.ask(list()).await.unwrap().outcome;
        if let Lost::Unopened(_) = lost {
            assert!(answer.is_ok());
            pool.channel(&ada, &spaces, ONE).await.unwrap();
            assert_eq!(started.load(Ordering::SeqCst), 1, "{lost:?}: the other space is there");
        } else {
            assert!(answer.is_err());
        }
        back.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            let new = pool.channel(&ada, &spaces, two).await.unwrap();
            assert_eq!(
                new.ask(list()).await.unwrap().outcome.is_ok() && new.hello().spaces[1].problem.is_none(),
                is_replaced
            );
        }
        assert_eq!(started.load(Ordering::SeqCst), if is_replaced { 2 } else { 1 }, "{lost:?}");
        assert!(old.is_open(), "{lost:?}: what is under way goes on");
        drop(transfer);
    }
}

#[tokio::test]
async fn a_space_that_stays_away_starts_no_process_for_each_request() {
    for lost in [Lost::Unopened(Code::NoSuchSpace), Lost::Opened(Code::Away)] {
        let (launcher, started) = launcher(loses(lost, Arc::default()));
        let pool = FilesPool::new(Arc::new(launcher), patient());
        let ada = owner("ada");
        for _ in 0..5 {
            let channel = pool.channel(&ada, &[space(2, Path::new("/project/x"))], SpaceNumber(2)).await.unwrap();
            assert!(channel.ask(list()).await.is_ok());
        }
        assert_eq!(started.load(Ordering::SeqCst), 1, "{lost:?}");
    }
}

#[tokio::test]
async fn a_process_that_failed_is_not_started_again_at_once() {
    let (launcher, started) = launcher(|mut peer| peer.hello(2002));
    let files = Arc::clone(&launcher.files);
    let limits = Limits { pause: Duration::from_millis(400), ..patient() };
    let pool = FilesPool::new(Arc::new(launcher), limits);
    let ada = owner("ada");
    let begun = Instant::now();
    assert!(matches!(pool.channel(&ada, &one_space(), ONE).await, Err(FilesError::WrongUser { said: 2002 })));
    *files.lock().unwrap() = Some(Arc::new(|_, channel| lists(Peer::new(channel))));
    let channel = loop {
        match pool.channel(&ada, &one_space(), ONE).await {
            Ok(channel) => break channel,
            Err(FilesError::Away { retry_after_s: 1 }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert_eq!(started.load(Ordering::SeqCst), 1);
    assert!(channel.ask(list()).await.is_ok());
    assert!(pool.channel(&owner("grace"), &one_space(), ONE).await.is_ok(), "others are not kept from theirs");
}

#[tokio::test]
async fn who_is_revoked_has_nothing_under_way_any_more() {
    let (launcher, started) = launcher(lists);
    let pool = FilesPool::new(Arc::new(launcher), patient());
    let (ada, grace) = (owner("ada"), owner("grace"));
    let hers = pool.channel(&ada, &one_space(), ONE).await.unwrap();
    let others = pool.channel(&grace, &one_space(), ONE).await.unwrap();
    let (mut transfer, mut stream) = hers.begin(read("a")).await.unwrap();
    pool.revoke(ada.id);
    assert!(matches!(transfer.next().await, Err(FilesError::Ended)));
    assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0, "nor is its stream open");
    assert!(!hers.is_open() && others.is_open());
    assert!(pool.channel(&ada, &one_space(), ONE).await.is_ok(), "whether she may is not asked here");
    assert_eq!(started.load(Ordering::SeqCst), 3);
    pool.close();
    assert!(!others.is_open());
}

#[tokio::test]
async fn the_channel_unused_for_longest_makes_room() {
    let (launcher, _) = launcher(lists);
    let pool = FilesPool::new(Arc::new(launcher), Limits { most: 2, ..patient() });
    let (ada, grace, mary) = (owner("ada"), owner("grace"), owner("mary"));
    let first = pool.channel(&ada, &one_space(), ONE).await.unwrap();
    let second = pool.channel(&grace, &one_space(), ONE).await.unwrap();
    pool.channel(&ada, &one_space(), ONE).await.unwrap();
    let third = pool.channel(&mary, &one_space(), ONE).await.unwrap();
    assert!(first.is_open() && !second.is_open() && third.is_open());
    let _busy = [first.begin(read("a")).await.unwrap(), third.begin(read("a")).await.unwrap()];
    assert!(matches!(pool.channel(&grace, &one_space(), ONE).await, Err(FilesError::Busy)), "all are in use");
}

#[tokio::test]
async fn a_refusal_of_the_launcher_is_said_as_it_is() {
    let pool = FilesPool::new(Arc::new(FakeLauncher::default()), patient());
    let refused = pool.channel(&owner("ada"), &one_space(), ONE).await;
    assert!(matches!(refused, Err(FilesError::Launcher(_))), "{refused:?}");
}

#[tokio::test]
async fn whoever_is_disabled_loses_the_file_process_at_once_and_behind_our_back_at_the_next_sweep() {
    let test = TestApp::new().await;
    *test.launcher.files.lock().unwrap() = Some(Arc::new(|_, channel| lists(Peer::new(channel))));
    let admin = test.person("root-of-portal", 1, Role::Admin).await;
    let mut channels = Vec::new();
    for name in ["ada", "grace", "mary"] {
        let user = test.person(name, UID, Role::Researcher).await.user;
        let owner = Owner { id: user.id, name: user.username.clone(), uid: UID };
        channels.push((user, test.app.file_processes.channel(&owner, &one_space(), ONE).await.unwrap()));
    }
    let open = |channels: &[(eirene_core::User, FilesChannel)]| -> Vec<bool> {
        channels.iter().map(|(_, channel)| channel.is_open()).collect()
    };
    test.app.accounts.set_state(&admin, &channels[0].0.username, UserState::Disabled).await.unwrap();
    assert_eq!(open(&channels), [false, true, true]);
    test.app.db.set_user_state(channels[1].0.id, UserState::Disabled, &entry()).await.unwrap();
    test.app.access.recheck(channels[2].0.id).await;
    assert_eq!(open(&channels), [false, true, true], "who lost a token or a log-in is still who she is");
    test.app.access.sweep().await;
    assert_eq!(open(&channels), [false, false, true]);
}
