//! Ranks as processes: deaths in every phase, forks, stopped ranks, what is left behind, and many at once.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::deep::{assert_within, deep};
use crate::process::{Orders, PHASES, Rank, expect_all, say, serve, sockets, tell_all};
use crate::world::{AT_ONCE, How, best_within, free_port, private, soon, until};
use eirene_train_mesh::{Mesh, Phase, Secrecy};
use nix::sys::signal::Signal;

/// Not a test: what the processes of the tests here run.
#[test]
#[ignore = "run by the other tests as a rank's process"]
fn rank() {
    serve(obey);
}

fn obey(mesh: &Mesh, line: &str) {
    let others = (0..mesh.size()).filter(|&other| other != mesh.rank());
    match line {
        // With every other rank, two pieces of memory change hands.
        "exchange" => {
            for to in others.clone() {
                let file = tempfile::tempfile().unwrap();
                std::io::Write::write_all(&mut &file, format!("{} to {to}", mesh.rank()).as_bytes()).unwrap();
                mesh.send(to, 3, b"", &[file.as_fd()]).unwrap();
            }
            for from in others {
                let (_, mut fds) = mesh.receive(from, 3, soon()).unwrap();
                let mut file = std::fs::File::from(fds.pop().unwrap());
                let mut text = String::new();
                std::io::Seek::rewind(&mut file).unwrap();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, format!("{from} to {}", mesh.rank()));
            }
            say("exchanged");
        }
        "connect" => {
            for other in others {
                mesh.connect(other, 1, Secrecy::Sealed, soon()).unwrap();
            }
            say("connected");
        }
        // Nothing that the meeting used is still open.
        "sockets" => say(&format!("{}", sockets("self").len())),
        "listeners" => say(&format!("{:?}", listeners())),
        // A fork that lives on, as a data loader's worker does, and uses what it has inherited.
        "fork" => match fork() {
            0 => {
                let refused = mesh.send(1 - mesh.rank(), 1, b"", &[]).is_err();
                drop_copy(mesh);
                say(&format!("fork refused {refused}, sockets {}", sockets("self").len()));
                loop {
                    nix::unistd::pause();
                }
            }
            child => say(&format!("forked {child}")),
        },
        "abort" => mesh.abort("told to"),
        // More than the other machine has taken when it is gone.
        "send" => others.for_each(|to| drop(mesh.send(to, 9, b"are you there?", &[]))),
        other => panic!("unknown order {other}"),
    }
}

/// Drops a mesh in a fork, as a language's own cleaning up would.
#[expect(unsafe_code, reason = "the mesh of the forked child is a copy of its own")]
fn drop_copy(mesh: &Mesh) {
    // SAFETY: nobody uses the child's copy after this.
    drop(unsafe { std::ptr::read(mesh) });
}

#[expect(unsafe_code, reason = "fork is what is tested")]
fn fork() -> i32 {
    // SAFETY: the child only uses what works in one: no locks of other threads are held, for the test has none.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => 0,
        nix::unistd::ForkResult::Parent { child } => child.as_raw(),
    }
}

/// This process's sockets that listen.
fn listeners() -> Vec<String> {
    let own = sockets("self");
    let listens = |path: &str, inode: usize, state: usize, value: &str| -> Vec<String> {
        let table = std::fs::read_to_string(path).unwrap_or_default();
        let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = rows
            .filter(|row| row.get(state) == Some(&value) && own.iter().any(|it| row.get(inode) == Some(&it.as_str())));
        found.map(|row| row.join(" ")).collect()
    };
    // SO_ACCEPTCONN in the flags of a unix socket; state "listen" of one on the network.
    let mut all = listens("/proc/self/net/unix", 6, 3, "00010000");
    all.extend(listens("/proc/self/net/tcp", 9, 3, "0A"));
    all.extend(listens("/proc/self/net/tcp6", 9, 3, "0A"));
    all
}

fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).unwrap().count() == 0
}

fn meet(orders: &[Orders]) -> Vec<Rank> {
    let ranks = Rank::start_all("processes::rank", orders);
    expect_all(&ranks, "joined");
    ranks
}

fn orders(size: u32, how: &How) -> Vec<Orders> {
    (0..size).map(|rank| Orders::new(rank, size, how)).collect()
}

#[test]
fn processes_meet_in_every_way_and_leave_nothing() {
    let (directory, rooms) = (private(), private());
    let path = directory.path().to_path_buf();
    for how in [How::Directory(path.clone()), How::File(path.join("meeting")), How::Address(free_port())] {
        for size in [2, 5] {
            let mut orders = orders(size, &how);
            for orders in &mut orders {
                orders.rooms = Some(rooms.path().into());
            }
            let mut ranks = meet(&orders);
            assert!(is_empty(&path) && is_empty(rooms.path()));
            for (what, done) in [("exchange", "exchanged"), ("connect", "connected")] {
                tell_all(&mut ranks, what);
                expect_all(&ranks, done);
            }
            for rank in &mut ranks {
                assert_eq!(rank.ask("listeners"), "[]");
                assert_eq!(rank.ask("sockets"), (size - 1).to_string(), "only the control connections are open");
                assert_eq!(rank.ask("quiet"), "None");
            }
            for rank in &mut ranks {
                assert_eq!(rank.ask("leave"), "left");
                assert!(rank.child.wait().unwrap().success());
            }
        }
    }
}

#[test]
fn a_rank_killed_while_meeting_is_named_and_nothing_is_left() {
    std::thread::scope(|scope| {
        for by_file in [false, true] {
            for dies_at in PHASES {
                for (victim, shared) in [(0, false), (2, false), (1, true)] {
                    let case = move || killed_while_meeting(by_file, dies_at, victim, shared);
                    // Only these last to the end, by when all others must have come: they wait for it together.
                    if dies_at == Phase::Meeting {
                        scope.spawn(case);
                    } else {
                        case();
                    }
                }
            }
        }
    });
}

fn killed_while_meeting(by_file: bool, dies_at: Phase, victim: usize, shared: bool) {
    let (directory, rooms) = (private(), private());
    let path = directory.path().to_path_buf();
    let how = if by_file { How::File(path.join("meeting")) } else { How::Directory(path.clone()) };
    let mut orders = orders(4, &how);
    for orders in &mut orders {
        orders.rooms = Some(rooms.path().into());
        orders.shared_rooms = shared;
        orders.timeout = Duration::from_secs(if dies_at == Phase::Meeting { 20 } else { 60 });
    }
    orders[victim].dies_at = Some(dies_at);
    let mut ranks = Rank::start_all("processes::rank", &orders);
    let began = Instant::now();
    for (at, rank) in ranks.iter_mut().enumerate().filter(|(at, _)| *at != victim) {
        let heard = rank.hear().unwrap();
        let named = if dies_at == Phase::Meeting {
            heard.contains(&format!("for rank {victim}"))
        } else if heard == "joined" {
            // The last word was out already: then it is a death like any other.
            rank.ask("trouble") == format!("Died {{ rank: {victim} }}")
        } else {
            heard == format!("failed: rank {victim} died")
        };
        assert!(named, "rank {at}, victim {victim} at {dies_at:?} by {how:?}: {heard}");
    }
    assert_within(Duration::from_secs(40), began.elapsed());
    assert!(is_empty(rooms.path()), "victim {victim} at {dies_at:?} by {how:?}");
    assert!(is_empty(&path), "victim {victim} at {dies_at:?} by {how:?}");
}

#[test]
fn a_killed_rank_is_named_on_all_others_at_once() {
    let directory = private();
    for apart in [false, true] {
        for victim in [0, 1, 3] {
            let mut orders = orders(4, &How::File(directory.path().join("meeting")));
            for orders in &mut orders {
                orders.apart = apart;
            }
            let mut ranks = meet(&orders);
            let began = Instant::now();
            ranks[victim].signal(Signal::SIGKILL);
            for (_, rank) in ranks.iter_mut().enumerate().filter(|(at, _)| *at != victim) {
                assert_eq!(rank.ask("trouble"), format!("Died {{ rank: {victim} }}"));
            }
            assert_within(AT_ONCE, began.elapsed());
        }
    }
}

#[test]
fn an_abort_is_heard_by_processes_with_its_reason() {
    let directory = private();
    let mut ranks = meet(&orders(3, &How::Directory(directory.path().into())));
    ranks[1].tell("abort");
    for rank in &mut ranks {
        assert_eq!(rank.ask("trouble"), r#"Aborted { rank: 1, reason: "told to" }"#);
    }
    // Who then ends, however roughly, changes nothing.
    ranks[2].signal(Signal::SIGKILL);
    ranks[2].child.wait().unwrap();
    assert_eq!(ranks[0].ask("quiet"), r#"Some(Aborted { rank: 1, reason: "told to" })"#);
}

#[test]
fn a_stopped_rank_is_not_dead() {
    let directory = private();
    let mut orders = orders(3, &How::File(directory.path().join("meeting")));
    for orders in &mut orders {
        orders.apart = true;
    }
    let mut ranks = meet(&orders);
    ranks[1].signal(Signal::SIGSTOP);
    if deep() {
        // Longer than a machine that is gone would have.
        let began = Instant::now();
        until("time has passed", || began.elapsed() > Duration::from_secs(6));
    }
    assert_eq!(ranks[0].ask("quiet"), "None");
    assert_eq!(ranks[2].ask("quiet"), "None");
    ranks[1].signal(Signal::SIGCONT);
    tell_all(&mut ranks, "connect");
    expect_all(&ranks, "connected");
}

#[test]
fn a_fork_neither_speaks_for_its_parent_nor_hides_its_death() {
    let directory = private();
    for apart in [false, true] {
        let mut orders = orders(2, &How::File(directory.path().join("meeting")));
        for orders in &mut orders {
            orders.apart = apart;
        }
        let mut ranks = meet(&orders);
        ranks[1].tell("fork");
        let mut said = [ranks[1].hear().unwrap(), ranks[1].hear().unwrap()];
        said.sort();
        assert_eq!(said[0], "fork refused true, sockets 0");
        let fork: i32 = said[1].strip_prefix("forked ").unwrap().parse().unwrap();
        // The fork has dropped its copy; its parent goes on.
        tell_all(&mut ranks, "connect");
        expect_all(&ranks, "connected");
        assert_eq!(ranks[0].ask("quiet"), "None");
        let began = Instant::now();
        ranks[1].signal(Signal::SIGKILL);
        assert_eq!(ranks[0].ask("trouble"), "Died { rank: 1 }");
        assert_within(AT_ONCE, began.elapsed());
        let fork = nix::unistd::Pid::from_raw(fork);
        nix::sys::signal::kill(fork, Signal::SIGKILL).expect("the fork still lives");
    }
}

#[test]
fn sixty_four_processes_meet() {
    let directory = private();
    let path = directory.path().to_path_buf();
    for how in [How::Directory(path.clone()), How::File(path.join("meeting"))] {
        // In five seconds; as long as the processors are shared, so much longer.
        let longest = || Duration::from_secs(5).mul_f64(waiting_for_a_processor());
        best_within(longest, || {
            let began = Instant::now();
            let mut ranks = meet(&orders(64, &how));
            let took = began.elapsed();
            tell_all(&mut ranks, "leave");
            expect_all(&ranks, "left");
            took
        });
    }
}

/// How many processes share a processor of this machine, of late; at least one.
fn waiting_for_a_processor() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load.split(' ').next().unwrap().parse().unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    (load / processors as f64).max(1.0)
}

/// Runs a tool to its end.
fn tool(line: &str) {
    let mut words = line.split(' ');
    let status = std::process::Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{line}");
}

#[test]
#[ignore = "needs network namespaces, and `ip`, `unshare` and `nsenter`"]
fn a_machine_that_vanishes_is_noticed_in_seconds() {
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net"]).arg(std::env::current_exe().unwrap());
    command.args(["processes::two_machines", "--exact", "--ignored", "--nocapture"]).env("MESH_TEST_MACHINES", "1");
    assert!(command.status().unwrap().success());
}

/// Not a test by itself: runs in a network of its own.
#[test]
#[ignore = "run by another test in a network of its own"]
fn two_machines() {
    if std::env::var_os("MESH_TEST_MACHINES").is_none() {
        return;
    }
    let directory = private();
    tool("ip link set lo up");
    for busy in [false, true] {
        let orders = orders(2, &How::File(directory.path().join("meeting")));
        let mut command = std::process::Command::new("unshare");
        command.arg("--net");
        let second = Rank::start_by(command, "processes::rank", &orders[1]);
        let process = second.child.id();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        until("the other machine is there", || std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap() != own);
        tool(&format!("ip link add near type veth peer name far netns {process}"));
        tool("ip addr add 10.9.9.1/24 dev near");
        tool("ip link set near up");
        tool(&format!("nsenter --target {process} --net ip addr add 10.9.9.2/24 dev far"));
        tool(&format!("nsenter --target {process} --net ip link set far up"));
        let first = Rank::start("processes::rank", &orders[0]);
        first.expect("joined");
        second.expect("joined");
        let mut both = [first, second];
        tell_all(&mut both, "connect");
        expect_all(&both, "connected");
        tool("ip link set near down");
        let began = Instant::now();
        if busy {
            tell_all(&mut both, "send");
        }
        assert_eq!(both[0].ask("trouble"), "Died { rank: 1 }");
        assert_eq!(both[1].ask("trouble"), "Died { rank: 0 }");
        // It is given up after some four seconds, and this one may have other things to do.
        assert_within(Duration::from_secs(8), began.elapsed());
        tool("ip link del near");
    }
}

#[test]
#[ignore = "kills ranks at many moments, for minutes"]
fn a_rank_killed_at_any_moment_is_named_and_nothing_is_left() {
    let directory = private();
    let path = directory.path().to_path_buf();
    for round in 0..120_u64 {
        let rooms = private();
        let how = if round % 2 == 0 { How::Directory(path.clone()) } else { How::File(path.join("meeting")) };
        let mut orders = orders(5, &how);
        for orders in &mut orders {
            orders.rooms = Some(rooms.path().into());
            orders.timeout = Duration::from_secs(5);
            orders.apart = round % 6 == 1;
        }
        let victim = (round * 7 % 5) as usize;
        let mut ranks = Rank::start_all("processes::rank", &orders);
        let moment = Instant::now() + Duration::from_micros(round * 7919 % 60_000);
        until("the moment has come", || Instant::now() >= moment);
        ranks[victim].signal(Signal::SIGKILL);
        for (at, rank) in ranks.iter_mut().enumerate().filter(|(at, _)| *at != victim) {
            let heard = rank.hear().unwrap();
            let named = match heard.as_str() {
                "joined" => rank.ask("trouble") == format!("Died {{ rank: {victim} }}"),
                other => {
                    other == format!("failed: rank {victim} died")
                        || other.starts_with("failed: waited") && other.ends_with(&format!("for rank {victim}"))
                }
            };
            assert!(named, "round {round}, rank {at}, victim {victim}: {heard}");
        }
        let left: Vec<_> =
            [rooms.path(), &path].iter().flat_map(|path| std::fs::read_dir(path).unwrap().flatten()).collect();
        assert!(left.is_empty(), "round {round}, victim {victim}: {left:?}");
    }
}
