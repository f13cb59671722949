//! Against file processes that lie, flood, fall silent and go, and against the real one.

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc as threads;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eirene_core::{Role, UserId, UserState};
use eirene_files_protocol::{
    Accounts, Answer, Channel, Code, Entry, EntryKind, FromFiles, Hello, HostileText, List, Listed, MOST_BYTES, Name,
    Open, OpenSpace, OpenedSpace, Outcome, Part, Piece, Preview, Problem, Progress, Read, RelativePath, RequestNumber,
    Sort, SpaceNumber, Stat, ToFiles, Verb,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt as _;

use crate::files::{Event, FilesChannel, FilesError, FilesPool, Limits, MOST_AT_ONCE, Owner};
use crate::testing::{FakeLauncher, TestApp};

const UID: u32 = 2001;
/// The space of [`one_space`].
const ONE: SpaceNumber = SpaceNumber(1);
/// After so long a test has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Long enough for nothing to happen by itself.
fn patient() -> Limits {
    Limits { reply: PATIENCE, idle: PATIENCE, pause: PATIENCE, most: 8 }
}

fn space(number: u32, root: &Path) -> OpenSpace {
    let root = HostileText(root.as_os_str().as_bytes().to_vec());
    OpenSpace { number: SpaceNumber(number), root, writable: false, reserved: Vec::new(), made: None }
}

fn one_space() -> Vec<OpenSpace> {
    vec![space(1, Path::new("/scratch/ada"))]
}

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

fn list() -> Verb {
    Verb::List(List {
        space: SpaceNumber(1),
        path: path(""),
        sort: Sort::Name,
        descending: false,
        hidden: false,
        filter: None,
        after: None,
        limit: 100,
    })
}

fn read(name: &str) -> Verb {
    Verb::Read(Read { space: SpaceNumber(1), path: path(name), from: 0, to: None })
}

fn owner(name: &str) -> Owner {
    Owner { id: UserId::generate(), name: name.parse().unwrap(), uid: UID }
}

/// The far end of a channel, in the hands of a test.
struct Peer {
    channel: Channel,
    buffer: Vec<u8>,
}

impl Peer {
    fn new(channel: Channel) -> Self {
        rustix::net::sockopt::set_socket_timeout(&channel, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))
            .unwrap();
        Self { channel, buffer: Vec::new() }
    }

    /// The next frame; none when the portal has closed the channel.
    fn hear(&mut self) -> Option<ToFiles> {
        let packet = self.channel.receive(&mut self.buffer).ok().flatten()?;
        Some(ToFiles::decode(packet.bytes).unwrap())
    }

    fn hello(&mut self, uid: u32) {
        self.hello_of(uid, |_| None);
    }

    /// A hello in which spaces have problems.
    fn hello_of(&mut self, uid: u32, problem: impl Fn(SpaceNumber) -> Option<Code>) {
        let Some(ToFiles::Open(open)) = self.hear() else { panic!("the portal opens first") };
        let number = |space: &OpenSpace| space.number;
        let opened = |number| OpenedSpace { number, problem: problem(number).map(Problem::from) };
        let spaces = open.spaces.iter().map(number).map(opened).collect();
        self.say(&FromFiles::Hello(Hello { uid, landlock: None, spaces }));
    }

    fn request(&mut self) -> RequestNumber {
        match self.hear() {
            Some(ToFiles::Request(number, _)) => number,
            other => panic!("{other:?}"),
        }
    }

    /// Says it; to nobody where the portal has gone.
    fn say(&self, frame: &FromFiles) {
        let _ = self.channel.send(&frame.encode().unwrap(), None);
    }

    fn say_raw(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
        let _ = sendmsg(&self.channel, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    }
}

fn listed(number: RequestNumber) -> FromFiles {
    let listed = Listed { entries: 0, at_least: false, next: None, accounts: Accounts::default() };
    FromFiles::Reply(number, Outcome::Done(Answer::Listed(listed)))
}

fn entries(many: usize) -> Part {
    let name = Name::parse(b"a").unwrap();
    let entry = Entry {
        name,
        kind: EntryKind::File,
        bytes: None,
        modified: None,
        mode: None,
        owner: None,
        group: None,
        links: None,
    };
    Part::Entries(vec![entry; many])
}

/// A channel whose far end does what `serve` does after a good beginning; it says when the portal has closed it.
async fn channel(
    limits: Limits,
    serve: impl FnOnce(&mut Peer) + Send + 'static,
) -> (FilesChannel, tokio::sync::oneshot::Receiver<()>) {
    let (near, far) = Channel::pair().unwrap();
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut peer = Peer::new(far);
        peer.hello(UID);
        serve(&mut peer);
        while peer.hear().is_some() {}
        let _ = closed.send(());
    });
    let open = Open { spaces: one_space() };
    let channel = FilesChannel::open(near.into_descriptor(), UID, &open, limits).await.unwrap();
    (channel, is_closed)
}

type Hostility = (&'static str, fn(&mut Peer, RequestNumber));

const HOSTILITIES: [Hostility; 13] = [
    ("an oversized packet", |peer, _| peer.say_raw(&vec![0; MOST_BYTES + 1], &[])),
    ("noise", |peer, _| peer.say_raw(b"noise", &[])),
    ("an empty packet", |peer, _| peer.say_raw(b"", &[])),
    ("a frame of the portal's", |peer, number| peer.say_raw(&ToFiles::Cancel(number).encode().unwrap(), &[])),
    ("nested without end", |peer, number| {
        let head = listed(number).encode().unwrap()[..12].to_vec();
        peer.say_raw(&[head, vec![b'['; 100_000]].concat(), &[]);
    }),
    ("a reply to nothing", |peer, _| peer.say(&listed(RequestNumber(77)))),
    ("a part of nothing", |peer, _| peer.say(&FromFiles::More(RequestNumber(77), entries(1)))),
    ("a second reply", |peer, number| (0..2).for_each(|_| peer.say(&listed(number)))),
    ("a second hello", |peer, _| peer.say(&FromFiles::Hello(Hello { uid: UID, landlock: None, spaces: Vec::new() }))),
    ("an answer without end", |peer, number| {
        (0..100).for_each(|_| peer.say(&FromFiles::More(number, entries(1000))));
    }),
    ("a storm of progress", |peer, number| {
        (0..1000).for_each(|_| peer.say(&FromFiles::Progress(number, Progress { entries: 1, bytes: 1 })));
    }),
    ("a descriptor", |peer, number| {
        let (near, _far) = StdUnixStream::pair().unwrap();
        peer.say_raw(&listed(number).encode().unwrap(), &[near.as_fd()]);
    }),
    ("a flood of descriptors", |peer, number| {
        let (near, _far) = StdUnixStream::pair().unwrap();
        peer.say_raw(&listed(number).encode().unwrap(), &[near.as_fd(); 64]);
    }),
];

#[tokio::test]
async fn a_hostile_files_process_is_cut_off() {
    for (what, hostility) in HOSTILITIES {
        let (channel, closed) = channel(patient(), move |peer| {
            let number = peer.request();
            hostility(peer, number);
        })
        .await;
        let answer = channel.ask(list()).await;
        let expected = match what {
            // The kernel does not tell it from the end.
            "an empty packet" => matches!(answer, Err(FilesError::Ended)),
            "a second reply" => answer.is_ok(),
            _ => matches!(answer, Err(FilesError::Broken(_))),
        };
        assert!(expected, "{what}: {answer:?}");
        tokio::time::timeout(PATIENCE, closed).await.expect(what).unwrap();
        assert!(!channel.is_open() && channel.failed_at().is_some(), "{what}");
        assert!(channel.ask(list()).await.is_err(), "{what}: it is not asked again");
    }
}

#[tokio::test]
async fn a_preview_without_end_is_cut_off() {
    for (piece, many) in [
        (Piece::Output, 1000),
        (Piece::Row(vec![String::new(); 1000]), 1),
        (Piece::Row(vec![]), 1000),
        (Piece::Text("x".repeat(60_000)), 1),
    ] {
        let flood = Part::Preview(vec![piece.clone(); many]);
        let (channel, closed) = channel(patient(), move |peer| {
            let number = peer.request();
            (0..200).for_each(|_| peer.say(&FromFiles::More(number, flood.clone())));
        })
        .await;
        let preview = Verb::Preview(Preview { space: SpaceNumber(1), path: path("a"), page: 0 });
        let answer = channel.ask(preview).await;
        assert!(matches!(answer, Err(FilesError::Broken(_))), "{piece:?}");
        tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_process_of_somebody_else_or_with_other_spaces_is_not_used() {
    let open = |hello: fn(&mut Peer)| async move {
        let (near, far) = Channel::pair().unwrap();
        let (closed, is_closed) = threads::channel();
        std::thread::spawn(move || {
            let mut peer = Peer::new(far);
            hello(&mut peer);
            assert!(peer.hear().is_none());
            closed.send(()).unwrap();
        });
        let open = Open { spaces: one_space() };
        let result = FilesChannel::open(near.into_descriptor(), UID, &open, patient()).await;
        tokio::task::spawn_blocking(move || is_closed.recv_timeout(PATIENCE).unwrap()).await.unwrap();
        result.err()
    };
    let stranger = open(|peer| peer.hello(2002)).await;
    assert!(matches!(stranger, Some(FilesError::WrongUser { said: 2002 })), "{stranger:?}");
    let none = open(|peer| {
        peer.hear();
        peer.say(&FromFiles::Hello(Hello { uid: UID, landlock: None, spaces: Vec::new() }));
    });
    assert!(matches!(none.await, Some(FilesError::Broken(_))));
    let early = open(|peer| {
        peer.hear();
        peer.say(&listed(RequestNumber(1)));
    });
    assert!(matches!(early.await, Some(FilesError::Broken(_))));
}

#[tokio::test]
async fn a_process_that_is_silent_is_given_up_with_all_that_was_asked_of_it() {
    let limits = Limits { reply: Duration::from_millis(200), ..patient() };
    let (channel, closed) = channel(limits, |peer| {
        let (first, _second) = (peer.request(), peer.request());
        peer.say(&FromFiles::More(first, entries(1)));
    })
    .await;
    let (first, second) = tokio::join!(channel.ask(list()), channel.ask(list()));
    for answer in [first, second] {
        assert!(matches!(answer, Err(FilesError::Away { retry_after_s: 10 })), "{answer:?}");
    }
    tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
    // A hello that does not come is no different.
    let (near, far) = Channel::pair().unwrap();
    let open = Open { spaces: one_space() };
    let silent = FilesChannel::open(near.into_descriptor(), UID, &open, limits).await;
    assert!(matches!(silent, Err(FilesError::Away { .. })), "{silent:?}");
    assert!(matches!(Peer::new(far).hear(), Some(ToFiles::Open(_))));
}

#[tokio::test]
async fn a_process_that_goes_is_noticed_by_whoever_waits() {
    let (near, far) = Channel::pair().unwrap();
    std::thread::spawn(move || {
        let mut peer = Peer::new(far);
        peer.hello(UID);
        peer.request();
    });
    let open = Open { spaces: one_space() };
    let channel = FilesChannel::open(near.into_descriptor(), UID, &open, patient()).await.unwrap();
    let answer = channel.ask(list()).await;
    assert!(matches!(answer, Err(FilesError::Ended)), "{answer:?}");
}

#[tokio::test]
async fn what_nobody_waits_for_is_cancelled_and_answers_find_whoever_asked() {
    let (channel, _closed) = channel(patient(), |peer| {
        let [first, second] = [peer.request(), peer.request()];
        let Some(ToFiles::Cancel(cancelled)) = peer.hear() else { panic!("nothing was cancelled") };
        assert_eq!(cancelled, first);
        // It was on its way already: no harm.
        peer.say(&FromFiles::More(first, entries(1)));
        peer.say(&listed(first));
        peer.say(&FromFiles::More(second, entries(3)));
        peer.say(&FromFiles::More(second, entries(4)));
        peer.say(&listed(second));
    })
    .await;
    let (given_up, _stream) = channel.begin(read("a")).await.unwrap();
    let waiting = channel.clone();
    let waiting = tokio::spawn(async move { waiting.ask(list()).await });
    // The second is on its way before the first is given up: the far end hears them in this order.
    while channel.running() < 2 {
        tokio::task::yield_now().await;
    }
    drop(given_up);
    let heard = waiting.await.unwrap().unwrap();
    assert_eq!(heard.parts, [entries(3), entries(4)]);
    assert!(channel.is_open() && channel.idle_since().is_some());
}

#[tokio::test]
async fn only_so_much_is_asked_at_once() {
    let limits = Limits { reply: Duration::from_millis(300), ..patient() };
    let (channel, _closed) = channel(limits, |_| {}).await;
    let mut begun = Vec::new();
    for _ in 0..MOST_AT_ONCE {
        begun.push(channel.begin(read("a")).await.unwrap());
    }
    assert!(matches!(channel.begin(read("a")).await, Err(FilesError::Busy)));
    assert!(channel.is_open(), "transfers may take as long as they like");
}

#[tokio::test]
async fn an_unused_channel_is_closed_and_one_in_use_is_not() {
    let limits = Limits { idle: Duration::from_millis(50), ..patient() };
    let (channel, closed) = channel(limits, |peer| {
        let number = peer.request();
        std::thread::sleep(Duration::from_millis(300));
        peer.say(&listed(number));
    })
    .await;
    assert!(channel.ask(list()).await.is_ok(), "the answer took longer than that");
    tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
    assert!(channel.failed_at().is_none(), "that is no failure");
}

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
async fn a_retired_channel_closes_with_its_last_answer() {
    let (answer, wait) = threads::channel();
    let (channel, closed) = channel(patient(), move |peer| {
        let number = peer.request();
        wait.recv_timeout(PATIENCE).unwrap();
        peer.say(&listed(number));
    })
    .await;
    let asking = channel.clone();
    let asking = tokio::spawn(async move { asking.ask(list()).await });
    while channel.idle_since().is_some() {
        tokio::task::yield_now().await;
    }
    channel.retire();
    assert!(channel.is_open());
    answer.send(()).unwrap();
    assert!(asking.await.unwrap().is_ok());
    tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
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
    test.app.db.set_user_state(channels[1].0.id, UserState::Disabled).await.unwrap();
    test.app.access.recheck(channels[2].0.id).await;
    assert_eq!(open(&channels), [false, true, true], "who lost a token or a log-in is still who she is");
    test.app.access.sweep().await;
    assert_eq!(open(&channels), [false, false, true]);
}

/// The library of `eirene-files` in a thread of its own, which it confines; it says when it ended.
fn real(ended: threads::Sender<bool>) -> FakeLauncher {
    let launcher = FakeLauncher::default();
    let ended = Mutex::new(ended);
    *launcher.files.lock().unwrap() = Some(Arc::new(move |_, channel| {
        let served = eirene_files::serve(channel, &eirene_files::Settings { least_uid: 0, landlock: true });
        ended.lock().unwrap().send(served.is_ok()).unwrap();
    }));
    launcher
}

#[tokio::test]
async fn the_real_file_process_lists_reads_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("one"), "content").unwrap();
    let mut large = std::fs::File::create(directory.path().join("two")).unwrap();
    large.write_all(&vec![7; 4 << 20]).unwrap();
    let (ended, has_ended) = threads::channel();
    let pool = FilesPool::new(Arc::new(real(ended)), patient());
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), ..owner("ada") };
    let channel = pool.channel(&owner, &[space(1, directory.path())], ONE).await.unwrap();
    assert_eq!(channel.hello().spaces[0].problem, None);
    let heard = channel.ask(list()).await.unwrap();
    let names: Vec<_> = heard
        .parts
        .iter()
        .flat_map(|part| if let Part::Entries(entries) = part { entries.clone() } else { Vec::new() })
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, [Name::parse(b"one").unwrap(), Name::parse(b"two").unwrap()]);
    let problem = channel.ask(Verb::Stat(Stat { space: SpaceNumber(1), path: path("none") })).await.unwrap();
    assert!(problem.outcome.is_err());

    let (mut request, mut stream) = channel.begin(read("two")).await.unwrap();
    assert!(matches!(request.next_in_time().await.unwrap(), Event::Part(Part::ReadBegins(_))));
    let mut content = Vec::new();
    stream.read_to_end(&mut content).await.unwrap();
    assert_eq!(content, vec![7; 4 << 20]);
    let last = request.next_in_time().await.unwrap();
    assert!(
        matches!(last, Event::Outcome(Outcome::Done(Answer::Written { bytes, .. })) if bytes == 4 << 20),
        "{last:?}"
    );

    // Given up in the middle: the place comes back, and the process goes on.
    let (request, stream) = channel.begin(read("two")).await.unwrap();
    drop((request, stream));
    while channel.idle_since().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(channel.ask(list()).await.unwrap().outcome.is_ok());
    pool.close();
    let served = tokio::task::spawn_blocking(move || has_ended.recv_timeout(PATIENCE)).await.unwrap();
    assert_eq!(served, Ok(true), "the process ends when its channel does");
}
