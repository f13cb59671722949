//! Strangers on the same machine: they connect, flood, stay silent, guess, replay, reflect, and sit on the wire.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eirene_train_mesh::{Error, Meeting, Mesh, Phase, Plan, Secret, Trouble};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::deep::assert_within;
use crate::process::{Orders, Rank, expect_all, sockets};
use crate::world::{How, best_within, free_port, join_all, private, secret, soon, until};

/// The listener's first bytes and the caller's answer.
const CHALLENGE: usize = 32;
const HELLO: usize = 96;

/// A rank that joins in a thread, and the moment when it looks for the others.
struct Joining {
    thread: std::thread::JoinHandle<Result<Mesh, Error>>,
}

impl Joining {
    fn start(mut plan: Plan) -> Self {
        let (told, phases) = std::sync::mpsc::channel();
        plan.progress = Some(Box::new(move |phase| {
            let _ = told.send(phase);
        }));
        let thread = std::thread::spawn(|| Mesh::join(plan));
        assert_eq!(phases.recv().unwrap(), Phase::Meeting);
        Self { thread }
    }

    fn end(self) -> Result<Mesh, Error> {
        self.thread.join().unwrap()
    }
}

fn knock(port: u16) -> TcpStream {
    let end = soon();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(end - Instant::now())).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

/// All that still comes from the other end.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    // A reset connection is a closed door too.
    assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the connection stays open");
    bytes
}

#[test]
fn a_stranger_gets_random_bytes_and_a_closed_door() {
    let port = free_port();
    let how = How::Address(port);
    let first = Joining::start(how.plan(0, 2));
    let mut seen = Vec::new();
    for garbage in [vec![0; HELLO], vec![0xff; HELLO], b"GET / HTTP/1.1\r\n\r\n".repeat(20), vec![7; 1 << 20]] {
        let mut stranger = knock(port);
        let _ = stranger.write_all(&garbage);
        let said = rest(&stranger);
        assert!(said.len() == CHALLENGE || said.is_empty(), "{} bytes", said.len());
        assert!(!seen.contains(&said) || said.is_empty(), "never the same");
        seen.push(said);
    }
    let second = Mesh::join(how.plan(1, 2)).unwrap();
    first.end().unwrap().send(1, 1, b"fine", &[]).unwrap();
    assert_eq!(second.receive(0, 1, soon()).unwrap().0, b"fine");
}

#[test]
fn five_hundred_silent_strangers_do_not_keep_the_ranks_out() {
    // Silent ones are dropped after three seconds: ranks that met sooner have not waited for that.
    best_within(
        || Duration::from_secs(3),
        || {
            let port = free_port();
            let how = How::Address(port);
            let first = Joining::start(how.plan(0, 4));
            let strangers: Vec<TcpStream> = (0..500).map(|_| knock(port)).collect();
            let began = Instant::now();
            let others = join_all((1..4).map(|rank| how.plan(rank, 4)).collect());
            assert!(others.iter().all(Result::is_ok) && first.end().is_ok());
            let took = began.elapsed();
            drop(strangers);
            took
        },
    );
}

#[test]
fn a_silent_stranger_is_dropped_in_time() {
    let port = free_port();
    let first = Joining::start(How::Address(port).plan(0, 2));
    let stranger = knock(port);
    let began = Instant::now();
    assert_eq!(rest(&stranger).len(), CHALLENGE);
    assert_within(Duration::from_secs(15), began.elapsed());
    // Before the meeting itself gives up.
    Mesh::join(How::Address(port).plan(1, 2)).unwrap();
    first.end().unwrap();
}

#[test]
fn a_storm_of_guesses_does_not_keep_the_ranks_out() {
    let port = free_port();
    let how = How::Address(port);
    let first = Joining::start(how.plan(0, 4));
    let (over, guesses) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for seed in 0..4_u8 {
            let (over, guesses) = (&over, &guesses);
            scope.spawn(move || {
                let mut hello = [seed; HELLO];
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut stranger) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                    let mut challenge = [0; CHALLENGE];
                    let _ = stranger.read_exact(&mut challenge);
                    hello[..CHALLENGE].copy_from_slice(&challenge);
                    let _ = stranger.write_all(&hello);
                    guesses.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("the storm is on", || guesses.load(Ordering::Relaxed) > 200);
        let others = join_all((1..4).map(|rank| how.plan(rank, 4)).collect());
        over.store(true, Ordering::Relaxed);
        let all: Vec<Result<Mesh, Error>> = others.into_iter().chain([first.end()]).collect();
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    });
}

#[test]
fn a_flood_does_not_exhaust_a_rank_that_may_open_few_files() {
    let directory = private();
    let how = How::Address(free_port());
    let How::Address(port) = how else { unreachable!() };
    let mut first = Rank::start("processes::rank", &Orders::new(0, 2, &how));
    drop(knock(port));
    let limit = libc::rlimit { rlim_cur: 60, rlim_max: 60 };
    #[expect(unsafe_code, reason = "nix has no prlimit")]
    // SAFETY: the limit is read only, and nothing is written back.
    let set = unsafe {
        libc::prlimit(first.child.id().cast_signed(), libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
    let strangers: Vec<TcpStream> = (0..300).map(|_| knock(port)).collect();
    let second = Mesh::join(how.plan(1, 2)).unwrap();
    first.expect("joined");
    assert_eq!(first.ask("quiet"), "None");
    drop((strangers, second, directory));
}

/// Sits between a caller and a listener, and does to the bytes what `bend` says. Counts start with the connection.
struct Wire {
    port: u16,
    /// What listeners and callers sent, connection by connection.
    recorded: Arc<Mutex<Vec<[Vec<u8>; 2]>>>,
}

/// Bytes from a direction (true: from the caller), with their place in the connection's stream, its number first.
type Bend = dyn Fn(usize, bool, usize, Vec<u8>) -> Vec<u8> + Send + Sync;

impl Wire {
    fn to(target: u16, bend: Box<Bend>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&recorded);
        let bend: Arc<Bend> = bend.into();
        // Ends with the test's process: it only waits.
        std::thread::spawn(move || {
            for caller in listener.incoming().map_while(Result::ok) {
                let Ok(listener) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let number = record.lock().unwrap().len();
                record.lock().unwrap().push([Vec::new(), Vec::new()]);
                for from_caller in [true, false] {
                    let (mut from, mut to) = (caller.try_clone().unwrap(), listener.try_clone().unwrap());
                    if !from_caller {
                        std::mem::swap(&mut from, &mut to);
                    }
                    let (bend, record) = (Arc::clone(&bend), Arc::clone(&record));
                    std::thread::spawn(move || {
                        let (mut at, mut buffer) = (0, vec![0; 4096]);
                        while let Ok(length @ 1..) = from.read(&mut buffer) {
                            let part = usize::from(from_caller);
                            record.lock().unwrap()[number][part].extend_from_slice(&buffer[..length]);
                            let bent = bend(number, from_caller, at, buffer[..length].to_vec());
                            at += length;
                            if to.write_all(&bent).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { port, recorded }
    }
}

/// Two ranks of different nodes, the second of which reaches the first through a wire.
fn meet_through(wire: &Wire, port: u16, timeout: Duration) -> (Result<Mesh, Error>, Result<Mesh, Error>) {
    let plan = |rank: u32, port| {
        let mut plan = How::Address(port).plan(rank, 2);
        plan.node = Some(rank.to_string());
        plan.timeout = timeout;
        plan
    };
    let mut both = join_all(vec![plan(0, port), plan(1, wire.port)]).into_iter();
    (both.next().unwrap(), both.next().unwrap())
}

#[test]
fn a_recorded_proof_opens_no_door() {
    let port = free_port();
    let wire = Wire::to(port, Box::new(|_, _, _, bytes| bytes));
    let (first, second) = meet_through(&wire, port, Duration::from_mins(1));
    drop((first.unwrap(), second.unwrap()));
    let recorded: Vec<Vec<u8>> = wire.recorded.lock().unwrap().iter().map(|[_, caller]| caller.clone()).collect();
    assert!(recorded.len() >= 2 && recorded.iter().all(|bytes| bytes.len() >= HELLO));
    // The same world again, with the same secret, at the same place.
    let how = How::Address(port);
    let first = Joining::start(how.plan(0, 2));
    for bytes in &recorded {
        let mut stranger = knock(port);
        stranger.write_all(bytes).unwrap();
        assert!(rest(&stranger).len() <= CHALLENGE, "no answer");
        // Patiently, as the protocol goes.
        let mut stranger = knock(port);
        stranger.read_exact(&mut [0; CHALLENGE]).unwrap();
        stranger.write_all(&bytes[..HELLO]).unwrap();
        assert!(rest(&stranger).is_empty(), "no answer");
    }
    Mesh::join(how.plan(1, 2)).unwrap();
    first.end().unwrap();
}

#[test]
fn an_echo_is_not_taken_for_rank_0() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answers);
    std::thread::spawn(move || {
        for mut caller in listener.incoming().map_while(Result::ok) {
            let mut hello = [0; HELLO];
            let _ = caller.write_all(&[9; CHALLENGE]);
            if caller.read_exact(&mut hello).is_ok() {
                // The proof where an answer's would be, after a friendly verdict; then the whole once more.
                let mut answer = vec![0; 8];
                answer.extend_from_slice(&hello[64..]);
                answer.extend_from_slice(&hello);
                let _ = caller.write_all(&answer);
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let mut plan = How::Address(port).plan(1, 2);
    plan.timeout = Duration::from_secs(20);
    let result = Mesh::join(plan);
    assert!(matches!(result, Err(Error::Refused { .. } | Error::Timeout { .. })), "{result:?}");
    assert!(answers.load(Ordering::SeqCst) > 1);
}

#[test]
fn one_connection_cannot_be_turned_into_another() {
    let port = free_port();
    let held: Mutex<Option<Vec<u8>>> = Mutex::default();
    let wire = Wire::to(
        port,
        Box::new(move |_, from_caller, at, bytes| {
            if !from_caller || at != 0 {
                return bytes;
            }
            // Each connection gets the hello of the one before it.
            held.lock().unwrap().replace(bytes.clone()).unwrap_or(bytes)
        }),
    );
    // The ranks still find each other, by another of their addresses.
    let (first, second) = meet_through(&wire, port, Duration::from_mins(1));
    let came = talk([&first.unwrap(), &second.unwrap()]);
    assert_eq!(came, [20, 20]);
    let recorded = wire.recorded.lock().unwrap();
    assert!(recorded.len() > 1);
    for [listener, caller] in &recorded[1..] {
        assert_eq!((listener.len(), caller.len()), (CHALLENGE, HELLO), "no answer");
    }
}

/// Sends numbered messages both ways; gives how many came, having made sure that they are the ones that were sent.
fn talk(meshes: [&Mesh; 2]) -> [usize; 2] {
    let letter = |at: usize| vec![at as u8; at * 37 % 400];
    std::thread::scope(|scope| {
        let side = |at: usize| {
            let mesh = meshes[at];
            move || {
                let other = 1 - mesh.rank();
                let sent = (0..20).take_while(|&at| mesh.send(other, 5, &letter(at), &[]).is_ok()).count();
                let end = Instant::now() + Duration::from_secs(if sent == 20 { 20 } else { 1 });
                let mut came = 0;
                while came < 20
                    && let Ok((bytes, _)) = mesh.receive(other, 5, end)
                {
                    assert_eq!(bytes, letter(came));
                    came += 1;
                }
                came
            }
        };
        let threads = [scope.spawn(side(0)), scope.spawn(side(1))];
        threads.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn bytes_changed_added_or_lost_on_the_wire_are_never_believed() {
    let strategy = (0..2_usize, any::<bool>(), 0..4000_usize, 0..3_usize, 1..=255_u8);
    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let broken = AtomicUsize::new(0);
    runner
        .run(&strategy, |(connection, from_caller, place, deed, flip)| {
            let meet = |patience| {
                let port = free_port();
                let done = Arc::new(AtomicBool::new(false));
                let deed_done = Arc::clone(&done);
                let bend = move |number: usize, caller: bool, at: usize, mut bytes: Vec<u8>| {
                    let here = (at..at + bytes.len()).contains(&place);
                    if here && caller == from_caller && number == connection && !deed_done.swap(true, Ordering::SeqCst)
                    {
                        let place = place - at;
                        match deed {
                            0 => bytes[place] ^= flip,
                            1 => bytes.insert(place, flip),
                            _ => drop(bytes.remove(place)),
                        }
                    }
                    bytes
                };
                let (first, second) = meet_through(&Wire::to(port, Box::new(bend)), port, patience);
                (first, second, done)
            };
            let (mut first, mut second, mut done) = meet(Duration::from_secs(3));
            if (first.is_err() || second.is_err()) && !done.load(Ordering::SeqCst) {
                // The byte was not reached: the ranks had too little time, or there is something to find.
                (first, second, done) = meet(Duration::from_mins(1));
            }
            if let (Ok(first), Ok(second)) = (&first, &second) {
                let came = talk([first, second]);
                if came != [20, 20] {
                    broken.fetch_add(1, Ordering::SeqCst);
                    prop_assert!(done.load(Ordering::SeqCst));
                    let corrupt = |mesh: &Mesh| matches!(mesh.trouble(), Some(Trouble::Corrupt { .. }));
                    // A byte too few shows only when the connection ends or another comes.
                    let short = deed == 2;
                    prop_assert!(
                        short || corrupt(first) || corrupt(second),
                        "{:?} {:?}",
                        first.trouble(),
                        second.trouble()
                    );
                }
            } else {
                prop_assert!(done.load(Ordering::SeqCst), "{first:?} {second:?}");
            }
            Ok(())
        })
        .unwrap();
    assert!(broken.load(Ordering::SeqCst) > 5, "some of it hit messages");
}

#[test]
fn data_connections_are_proven_too() {
    let directory = private();
    let orders = [0, 1].map(|rank| {
        let mut orders = Orders::new(rank, 2, &How::File(directory.path().join("meeting")));
        orders.apart = true;
        orders
    });
    let mut ranks = Rank::start_all("processes::rank", &orders);
    expect_all(&ranks, "joined");
    ranks[0].tell("connect");
    let process = ranks[0].child.id();
    until("rank 0 listens", || !listeners(process).is_empty());
    let address = listeners(process)[0];
    let strangers: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
    for mut stranger in strangers.iter().take(100) {
        let _ = stranger.write_all(&[3; HELLO * 2]);
    }
    ranks[1].tell("connect");
    expect_all(&ranks, "connected");
    assert_eq!(ranks[0].ask("listeners"), "[]");
    assert!(ranks.iter_mut().all(|rank| rank.ask("quiet") == "None"));
    drop(strangers);
}

/// Where a process listens on the network, as far as that has one address.
fn listeners(process: u32) -> Vec<SocketAddr> {
    let own = sockets(&process.to_string());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = rows.filter(|row| row[3] == "0A" && own.iter().any(|inode| inode == row[9]));
    let address = |row: Vec<&str>| {
        let (ip, port) = row[1].split_once(':').unwrap();
        let ip = u32::from_str_radix(ip, 16).unwrap().to_ne_bytes();
        SocketAddr::from((ip, u16::from_str_radix(port, 16).unwrap()))
    };
    listening.map(address).collect()
}

#[test]
fn secrets_do_not_cross_worlds() {
    let port = free_port();
    let first = Joining::start(How::Address(port).plan(0, 2));
    let mut other = How::Address(port).plan(1, 2);
    other.world = "another".into();
    other.timeout = Duration::from_secs(40);
    assert!(matches!(Mesh::join(other), Err(Error::Refused { world }) if world == "another"));
    let mut without = Plan::new(1, 2, "test", Meeting::Address { host: "localhost".into(), port });
    without.secret = None;
    assert!(matches!(Mesh::join(without), Err(Error::Invalid { .. })));
    let mut true_one = How::Address(port).plan(1, 2);
    true_one.secret = Some(Secret::from_bytes(*secret().expose()));
    Mesh::join(true_one).unwrap();
    first.end().unwrap();
}
