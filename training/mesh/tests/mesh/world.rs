//! Worlds of ranks as threads of one process, and what every test of them needs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use eirene_train_mesh::{Error, Meeting, Mesh, Plan, Secret};

use crate::deep::deep;

/// Long enough for a busy machine; a test that works never waits so long.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_mins(2)
}

/// The deep tests hear of a death or an abort by then; far less than anybody waits for what does not come.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(5);

pub(crate) fn secret() -> Secret {
    Secret::from_bytes(*b"sixteen bytes ok")
}

/// A private directory.
pub(crate) fn private() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    directory
}

/// How the ranks of a test find each other.
#[derive(Clone, Debug)]
pub(crate) enum How {
    Directory(PathBuf),
    File(PathBuf),
    Address(u16),
}

impl How {
    pub(crate) fn meeting(&self) -> Meeting {
        match self {
            Self::Directory(path) => Meeting::Directory(path.clone()),
            Self::File(path) => Meeting::File(path.clone()),
            Self::Address(port) => Meeting::Address { host: "localhost".into(), port: *port },
        }
    }

    pub(crate) fn plan(&self, rank: u32, size: u32) -> Plan {
        let mut plan = Plan::new(rank, size, "test", self.meeting());
        plan.timeout = Duration::from_mins(1);
        if matches!(self, Self::Address(_)) {
            plan.secret = Some(secret());
        }
        plan
    }
}

/// A port that nobody listens on and that the system gives to nobody who does not ask for it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 400) as u16 * 50;
    loop {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Joins all plans, each in a thread, and gives what became of them in the same order.
pub(crate) fn join_all(plans: Vec<Plan>) -> Vec<Result<Mesh, Error>> {
    let threads: Vec<_> = plans.into_iter().map(|plan| std::thread::spawn(move || Mesh::join(plan))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// A world whose ranks all came.
pub(crate) fn world(how: &How, size: u32, change: impl Fn(&mut Plan)) -> Vec<Mesh> {
    let plans = (0..size).map(|rank| {
        let mut plan = how.plan(rank, size);
        change(&mut plan);
        plan
    });
    join_all(plans.collect()).into_iter().map(|mesh| mesh.unwrap()).collect()
}

/// Runs `act` for each rank in a thread of its own.
pub(crate) fn each(meshes: &[Mesh], act: impl Fn(&Mesh) + Sync) {
    std::thread::scope(|scope| {
        for mesh in meshes {
            scope.spawn(|| act(mesh));
        }
    });
}

/// Acts once. The deep tests act again until it takes less than `longest`, five times at most: the machine may have other things to do.
pub(crate) fn best_within(longest: impl Fn() -> Duration, act: impl Fn() -> Duration) {
    let mut took = vec![act()];
    while deep() && took.iter().all(|took| *took >= longest()) {
        assert!(took.len() < 5, "{took:?}, and must take less than {:?}", longest());
        took.push(act());
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = soon();
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
