//! Ranks as threads of one process: meeting in every way, talking, handing descriptors over, leaving.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::deep::assert_within;
use crate::world::{AT_ONCE, How, each, free_port, join_all, private, secret, soon, until, world};
use eirene_train_mesh::{Error, Meeting, Mesh, Plan, Secrecy, Trouble};

/// Every rank sends to every other and gets what was sent to it.
fn everybody_talks(meshes: &[Mesh]) {
    each(meshes, |mesh| {
        let others: Vec<u32> = (0..mesh.size()).filter(|&other| other != mesh.rank()).collect();
        for &to in &others {
            mesh.send(to, 7, format!("{} to {to}", mesh.rank()).as_bytes(), &[]).unwrap();
        }
        for &from in &others {
            let (bytes, fds) = mesh.receive(from, 7, soon()).unwrap();
            assert_eq!(String::from_utf8(bytes).unwrap(), format!("{from} to {}", mesh.rank()));
            assert!(fds.is_empty());
        }
        assert_eq!(mesh.trouble(), None);
    });
}

#[test]
fn worlds_of_one_to_nine_meet_in_a_directory() {
    for size in 1..=9 {
        let directory = private();
        let meshes = world(&How::Directory(directory.path().into()), size, |_| {});
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
        everybody_talks(&meshes);
        assert!((0..size).all(|rank| meshes.iter().all(|mesh| mesh.node_of(rank) == 0 && mesh.nodes() == 1)));
    }
}

#[test]
fn worlds_of_one_to_nine_meet_by_a_file() {
    for size in 1..=9 {
        let directory = private();
        let rooms = private();
        let path = directory.path().join("meeting");
        let meshes = world(&How::File(path), size, |plan| plan.directory = Some(rooms.path().into()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
        assert_eq!(std::fs::read_dir(rooms.path()).unwrap().count(), 0, "nothing is left");
        everybody_talks(&meshes);
    }
}

#[test]
fn worlds_of_one_to_nine_meet_at_an_address() {
    for size in 1..=9 {
        let meshes = world(&How::Address(free_port()), size, |_| {});
        everybody_talks(&meshes);
    }
}

#[test]
fn rank_0_can_use_an_inherited_listener() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let how = How::Address(listener.local_addr().unwrap().port());
    let mut plans: Vec<Plan> = (0..3).map(|rank| how.plan(rank, 3)).collect();
    plans[0].meeting = Meeting::Listener(listener.into());
    let meshes: Vec<Mesh> = join_all(plans).into_iter().map(Result::unwrap).collect();
    everybody_talks(&meshes);
}

#[test]
fn ranks_of_pretended_nodes_talk_over_the_network() {
    let directory = private();
    let how = How::File(directory.path().join("meeting"));
    let plans = (0..5).map(|rank| {
        let mut plan = how.plan(rank, 5);
        plan.node = Some(["b", "a", "b", "c", "a"][rank as usize].into());
        plan
    });
    let meshes: Vec<Mesh> = join_all(plans.collect()).into_iter().map(Result::unwrap).collect();
    for mesh in &meshes {
        assert_eq!([0, 1, 2, 3, 4].map(|rank| mesh.node_of(rank)), [0, 1, 0, 2, 1]);
        assert_eq!(mesh.nodes(), 3);
    }
    everybody_talks(&meshes);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(meshes[0].send(1, 1, b"", &[file.as_fd()]), Err(Error::OtherNode { rank: 1 })));
    meshes[0].send(2, 1, b"", &[file.as_fd()]).unwrap();
    assert_eq!(meshes[2].receive(0, 1, soon()).unwrap().1.len(), 1);
}

#[test]
fn descriptors_arrive_with_their_message() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    let pipes: Vec<_> = (0..40).map(|_| std::io::pipe().unwrap()).collect();
    // Messages of every size between them, so that reads end in the middle of some.
    for (at, (_, writer)) in pipes.iter().enumerate() {
        meshes[0].send(1, 5, &vec![at as u8; at * 3001], &[]).unwrap();
        let twice: Vec<_> = (0..at % 3).map(|_| writer.as_fd()).collect();
        meshes[0].send(1, 6, &[at as u8], &twice).unwrap();
    }
    for (at, (reader, _)) in pipes.iter().enumerate() {
        assert_eq!(meshes[1].receive(0, 5, soon()).unwrap().0, vec![at as u8; at * 3001]);
        let (bytes, fds) = meshes[1].receive(0, 6, soon()).unwrap();
        assert_eq!((bytes, fds.len()), (vec![at as u8], at % 3));
        for fd in fds {
            std::fs::File::from(fd).write_all(&[at as u8]).unwrap();
            let mut byte = [0];
            let mut reader: &std::io::PipeReader = reader;
            reader.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [at as u8]);
        }
    }
}

#[test]
fn long_messages_and_many_at_once_arrive_whole() {
    let directory = private();
    for node in [None, Some(())] {
        let how = How::File(directory.path().join("meeting"));
        let plans = (0..2).map(|rank| {
            let mut plan = how.plan(rank, 2);
            plan.node = node.map(|()| rank.to_string());
            plan
        });
        let meshes: Vec<Mesh> = join_all(plans.collect()).into_iter().map(Result::unwrap).collect();
        each(&meshes, |mesh| {
            let other = 1 - mesh.rank();
            for at in 0..5_u8 {
                mesh.send(other, u64::from(at % 3), &vec![at; 1 << 20], &[]).unwrap();
            }
            for at in 0..5_u8 {
                assert!(mesh.receive(other, u64::from(at % 3), soon()).unwrap().0 == vec![at; 1 << 20]);
            }
            assert!(matches!(mesh.send(other, 0, &vec![0; (1 << 20) + 1], &[]), Err(Error::Invalid { .. })));
            assert!(matches!(mesh.send(mesh.rank(), 0, &[], &[]), Err(Error::Invalid { .. })));
            assert!(matches!(mesh.send(9, 0, &[], &[]), Err(Error::Invalid { .. })));
        });
    }
}

#[test]
fn unread_messages_stop_at_a_bound_and_go_on_when_read() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    let sent = AtomicU32::new(0);
    let number = 40_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..number {
                meshes[0].send(1, 1, b"", &[]).unwrap();
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
        until("the inbox is full", || matches!(meshes[1].receive(0, 2, Instant::now()), Err(Error::Full { rank: 0 })));
        assert!(sent.load(Ordering::SeqCst) < number);
        for _ in 0..number {
            meshes[1].receive(0, 1, soon()).unwrap();
        }
    });
    assert_eq!(meshes[1].trouble(), None);
}

#[test]
fn whoever_need_not_wait_for_a_rank_that_reads_nothing_gives_up() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    let mut asked = 0;
    let mut sent = 0_u32;
    // The first that finds no room gives up when it is asked for the third time.
    let error = loop {
        let give_up = || {
            asked += 1;
            asked == 3
        };
        match meshes[0].send_unless(1, 1, &sent.to_le_bytes(), &[], give_up) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Timeout { missing, .. } if *missing == [1]), "{error}");
    for number in 0..sent {
        assert_eq!(meshes[1].receive(0, 1, soon()).unwrap().0, number.to_le_bytes());
    }
    assert_eq!(meshes.iter().find_map(Mesh::trouble), None);
    // What was given up was not sent, and nothing is torn.
    meshes[0].send(1, 1, b"last", &[]).unwrap();
    assert_eq!(meshes[1].receive(0, 1, soon()).unwrap().0, b"last");
}

#[test]
fn an_abort_reaches_everybody_at_once_and_rings_their_bells() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 4, |_| {});
    let rung = Arc::new(AtomicU32::new(0));
    for mesh in &meshes {
        let rung = Arc::clone(&rung);
        mesh.on_trouble(Box::new(move || {
            rung.fetch_add(1, Ordering::SeqCst);
        }));
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| meshes[0].receive(1, 1, soon()));
        let began = Instant::now();
        meshes[2].abort("loss is not a number");
        match waiting.join().unwrap() {
            Err(Error::Aborted { rank: 2, reason }) => assert_eq!(reason, "loss is not a number"),
            other => panic!("{other:?}"),
        }
        assert_within(AT_ONCE, began.elapsed());
    });
    let expected = Some(Trouble::Aborted { rank: 2, reason: "loss is not a number".into() });
    until("everybody knows", || meshes.iter().all(|mesh| mesh.trouble() == expected));
    until("every bell was rung", || rung.load(Ordering::SeqCst) == 4);
    assert!(matches!(meshes[0].send(1, 1, b"", &[]), Err(Error::Aborted { rank: 2, .. })));
    // Nothing more is to be expected of who has ended it, nor of who says goodbye in spite of it.
    assert!(meshes[0].is_over(2) && !meshes[0].is_over(1));
    meshes[3].part();
    until("the goodbye is heard", || meshes[0].is_over(3));
    // Who fails because of it passes the first cause on.
    meshes[1].abort("rank 2 gave up");
    drop(meshes);
    assert_eq!(rung.load(Ordering::SeqCst), 4);
}

#[test]
fn a_callback_that_comes_late_is_called_at_once() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    meshes[0].abort("enough");
    let rung = Arc::new(AtomicU32::new(0));
    let bell = Arc::clone(&rung);
    meshes[0].on_trouble(Box::new(move || {
        bell.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(rung.load(Ordering::SeqCst), 1);
}

#[test]
fn who_says_goodbye_has_not_died() {
    let directory = private();
    for node in [None, Some(())] {
        let how = How::File(directory.path().join("meeting"));
        let plans = (0..3).map(|rank| {
            let mut plan = how.plan(rank, 3);
            plan.node = node.map(|()| rank.to_string());
            plan
        });
        let mut meshes: Vec<Mesh> = join_all(plans.collect()).into_iter().map(Result::unwrap).collect();
        meshes[1].send(0, 1, b"last", &[]).unwrap();
        drop(meshes.remove(1));
        until("the goodbye is heard", || meshes.iter().all(|mesh| mesh.left(1)));
        assert_eq!(meshes[0].receive(1, 1, soon()).unwrap().0, b"last");
        assert!(matches!(meshes[0].receive(1, 1, soon()), Err(Error::Left { rank: 1 })));
        assert!(matches!(meshes[0].connect(1, 1, Secrecy::Sealed, soon()), Err(Error::Left { rank: 1 })));
        until("sending fails", || matches!(meshes[0].send(1, 1, b"", &[]), Err(Error::Left { rank: 1 })));
        meshes[0].send(2, 1, b"still here", &[]).unwrap();
        assert!(meshes.iter().all(|mesh| mesh.trouble().is_none() && !mesh.left(0)));
        meshes[0].leave();
        assert!(matches!(meshes[0].send(2, 1, b"", &[]), Err(Error::Left { rank: 0 })));
    }
}

#[test]
fn a_missing_rank_is_named_by_all_who_came() {
    // They wait at the same time.
    std::thread::scope(|scope| {
        scope.spawn(|| assert_two_are_missing(|path| How::Directory(path.into())));
        scope.spawn(|| assert_two_are_missing(|path| How::File(path.join("meeting"))));
        scope.spawn(|| assert_two_are_missing(|_| How::Address(free_port())));
    });
}

fn assert_two_are_missing(way: impl Fn(&std::path::Path) -> How) {
    let directory = private();
    let how = way(directory.path());
    let plans = [0, 1, 3].map(|rank| {
        let mut plan = how.plan(rank, 5);
        // The most impatient sets the time for all, by when those who come have come.
        plan.timeout = Duration::from_secs(if rank == 3 { 20 } else { 60 });
        plan
    });
    let began = Instant::now();
    for result in join_all(plans.into()) {
        match result {
            Err(Error::Timeout { missing, .. }) => assert_eq!(missing, [2, 4]),
            other => panic!("{other:?}"),
        }
    }
    assert_within(Duration::from_secs(40), began.elapsed());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_missing_rank_0_is_named() {
    let directory = private();
    for how in
        [How::Directory(directory.path().into()), How::File(directory.path().join("m")), How::Address(free_port())]
    {
        let mut plan = how.plan(1, 2);
        plan.timeout = Duration::from_millis(200);
        match Mesh::join(plan) {
            Err(Error::Timeout { missing, waited, .. }) => {
                assert_eq!(missing, [0]);
                assert_within(Duration::from_secs(30), waited);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn two_processes_of_one_rank_fail_by_name() {
    let directory = private();
    let how = How::Directory(directory.path().into());
    let plans = [0, 1, 2, 2].map(|rank| how.plan(rank, 4));
    let results = join_all(plans.into());
    assert!(results.iter().all(|result| matches!(result, Err(Error::Duplicate { rank: 2 }))), "{results:?}");
}

#[test]
fn a_second_rank_0_is_refused() {
    let directory = private();
    let how = How::Directory(directory.path().into());
    let mut plans = [0, 0].map(|rank| how.plan(rank, 2));
    for plan in &mut plans {
        // Both are there before the first gives up.
        plan.timeout = Duration::from_secs(4);
    }
    let results = join_all(plans.into());
    let duplicates = results.iter().filter(|result| matches!(result, Err(Error::Duplicate { rank: 0 }))).count();
    assert_eq!(duplicates, 1, "{results:?}");
}

#[test]
fn a_rank_of_a_world_of_another_size_is_named() {
    let directory = private();
    let how = How::Directory(directory.path().into());
    let plans = vec![how.plan(0, 3), how.plan(1, 4), how.plan(2, 3)];
    for result in join_all(plans) {
        match result {
            Err(Error::WorldSize { rank: 1, theirs: 4, ours: 3 }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stale_file_is_waited_out() {
    let directory = private();
    let path = directory.path().join("meeting");
    let how = How::File(path.clone());
    // A dead world of the same name left it: nobody listens there.
    let port = free_port();
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let text = format!(
        "eirene-train-mesh 1\nworld {digest}\nhost {}\naddress 127.0.0.1:{port}\nsecret {}\n",
        "00".repeat(16),
        "11".repeat(16)
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::thread::scope(|scope| {
        let (told, phase) = std::sync::mpsc::channel();
        let mut plan = how.plan(1, 2);
        plan.progress = Some(Box::new(move |phase| {
            let _ = told.send(phase);
        }));
        let member = scope.spawn(|| Mesh::join(plan));
        phase.recv().unwrap();
        let first = Mesh::join(how.plan(0, 2)).unwrap();
        let member = member.join().unwrap().unwrap();
        everybody_talks(&[first, member]);
    });
    assert!(!path.exists());
}

#[test]
fn another_secret_is_refused_and_rank_0_says_that_somebody_came() {
    let how = How::Address(free_port());
    let [first, mut other, mut impatient] = [0, 1, 2].map(|rank| how.plan(rank, 3));
    other.secret = Some(eirene_train_mesh::Secret::from_bytes([1; 16]));
    impatient.timeout = Duration::from_secs(5);
    let first = std::thread::spawn(|| Mesh::join(first));
    // It is refused as often as it takes to be sure; only then the rank comes that sets the time for all.
    let refused = Mesh::join(other).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    assert!(refused.to_string().contains("is the secret the same"));
    for result in [Mesh::join(impatient), first.join().unwrap()] {
        match result {
            Err(Error::Timeout { missing, strangers, .. }) => assert!(missing == [1] && strangers >= 20),
            other => panic!("{other:?}"),
        }
    }
    drop(secret());
}

#[test]
fn a_rank_that_cannot_start_is_named_to_all() {
    let directory = private();
    let rooms = private();
    let how = How::File(directory.path().join("meeting"));
    let path = rooms.path().join("mine");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let plans = (0..3).map(|rank| {
        let mut plan = how.plan(rank, 3);
        if rank == 1 {
            plan.directory = Some(path.clone());
            let path = path.clone();
            plan.progress = Some(Box::new(move |phase| {
                if phase == eirene_train_mesh::Phase::Arrived {
                    std::fs::remove_dir(&path).unwrap();
                }
            }));
        }
        plan
    });
    let results = join_all(plans.collect());
    for at in [0, 2] {
        match &results[at] {
            Err(Error::Failed { rank: 1, reason }) => assert!(reason.contains("private directory"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(&results[1], Err(Error::System { .. })), "{:?}", results[1]);
}

#[test]
fn a_world_of_one_needs_nobody() {
    let mesh = Mesh::join(Plan::new(0, 1, "w", Meeting::Nobody)).unwrap();
    assert_eq!((mesh.rank(), mesh.size(), mesh.node_of(0), mesh.nodes()), (0, 1, 0, 1));
    assert!(matches!(mesh.send(0, 0, b"", &[]), Err(Error::Invalid { .. })));
    mesh.abort("done");
    assert!(matches!(mesh.trouble(), Some(Trouble::Aborted { rank: 0, .. })));
    let _: Vec<OwnedFd> = Vec::new();
}

/// A rank whose socket in `rooms` vanishes before anybody has called it.
fn unreachable_inside(mut plan: Plan, rooms: &std::path::Path) -> Plan {
    let rooms = rooms.to_path_buf();
    let name = format!("rank{}-", plan.rank);
    plan.progress = Some(Box::new(move |phase| {
        let found = std::fs::read_dir(&rooms).unwrap().flatten();
        for entry in found.filter(|entry| entry.file_name().to_str().unwrap().starts_with(&name)) {
            if phase == eirene_train_mesh::Phase::Listening {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }));
    plan
}

#[test]
fn ranks_that_cannot_reach_each_other_are_named() {
    let directory = private();
    let how = How::Directory(directory.path().into());
    let plans = (0..4).map(|rank| {
        let mut plan = how.plan(rank, 4);
        plan.timeout = Duration::from_secs(10);
        if rank == 2 { unreachable_inside(plan, directory.path()) } else { plan }
    });
    for result in join_all(plans.collect()) {
        assert!(matches!(result, Err(Error::Unreachable { from: 3, to: 2 })), "{result:?}");
    }
}

#[test]
fn ranks_that_cannot_reach_each_other_inside_the_node_meet_outside_it() {
    let (directory, rooms) = (private(), private());
    let how = How::File(directory.path().join("meeting"));
    let plans = (0..4).map(|rank| {
        let mut plan = how.plan(rank, 4);
        plan.directory = Some(rooms.path().into());
        if rank == 1 { unreachable_inside(plan, rooms.path()) } else { plan }
    });
    let meshes: Vec<Mesh> = join_all(plans.collect()).into_iter().map(Result::unwrap).collect();
    for mesh in &meshes {
        assert_eq!([0, 1, 2, 3].map(|rank| mesh.node_of(rank)), [0, 0, 1, 1]);
    }
    everybody_talks(&meshes);
}

#[test]
fn a_rank_with_an_interface_that_is_not_there_is_named_to_all() {
    let directory = private();
    let how = How::File(directory.path().join("meeting"));
    let mut plans: Vec<Plan> = (0..3).map(|rank| how.plan(rank, 3)).collect();
    plans[1].interfaces = vec!["nosuch0".into()];
    let results = join_all(plans);
    for at in [0, 2] {
        match &results[at] {
            Err(Error::Failed { rank: 1, reason }) => assert!(reason.contains("`nosuch0`"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(&results[1], Err(Error::Invalid { .. })), "{:?}", results[1]);
}

#[test]
fn ranks_kept_to_one_interface_listen_nowhere_else() {
    let directory = private();
    let path = directory.path().join("meeting");
    let how = How::File(path.clone());
    let plan = |rank: u32| {
        let mut plan = how.plan(rank, 2);
        plan.node = Some(rank.to_string());
        plan.interfaces = vec!["lo".into()];
        plan
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| Mesh::join(plan(0)));
        until("the file is there", || path.exists());
        let text = std::fs::read_to_string(&path).unwrap();
        let addresses: Vec<std::net::SocketAddr> = text
            .lines()
            .filter_map(|line| line.strip_prefix("address "))
            .map(|address| address.parse().unwrap())
            .collect();
        assert!(!addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
        let second = Mesh::join(plan(1)).unwrap();
        everybody_talks(&[first.join().unwrap().unwrap(), second]);
    });
}
