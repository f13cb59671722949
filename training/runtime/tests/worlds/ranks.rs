//! Worlds whose ranks are threads of the test.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eirene_train_mesh::{Meeting, Mesh, Plan, Secret};
use eirene_train_runtime::{Error, Interrupted, Options, World};

/// Long enough for everything that goes well.
pub(crate) const AMPLE: Duration = Duration::from_mins(5);

/// In the deep tests a rank that notices something has noticed it by then.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A directory in which ranks may meet; it goes when this is dropped.
pub(crate) fn meeting_place() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o700)).tempdir().unwrap()
}

static WORLDS: AtomicU64 = AtomicU64::new(0);

/// Runs `rank` once for each node named, as a rank on that node that has joined by its own options or could not, and returns what they
/// return, by rank. Ranks with the same name share memory; others talk over TCP.
pub(crate) fn joining<T: Send>(
    nodes: &[&str],
    options: impl Fn(u32) -> Options + Sync,
    rank: impl Fn(Result<World, Error>) -> T + Sync,
) -> Vec<T> {
    let directory = meeting_place();
    let id = format!("test {} {}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
    // Nobody fails before all have joined: who is late would hear of it instead.
    let joined = std::sync::Barrier::new(nodes.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..nodes.len())
            .map(|number| {
                let (rank, options, joined) = (&rank, &options, &joined);
                let (id, directory) = (id.clone(), directory.path().to_path_buf());
                scope.spawn(move || {
                    let mut plan = Plan::new(number as u32, nodes.len() as u32, id, Meeting::Directory(directory));
                    plan.secret = Some(Secret::from_bytes([7; 16]));
                    plan.node = Some(nodes[number].to_owned());
                    plan.timeout = AMPLE;
                    let world =
                        World::over(Mesh::join(plan).unwrap(), &Options { timeout: AMPLE, ..options(number as u32) });
                    joined.wait();
                    rank(world)
                })
            })
            .collect();
        let said = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left in the directory");
        said
    })
}

/// As [`joining`], for ranks that all join, by the options that hold unless said otherwise.
pub(crate) fn on_nodes<T: Send>(nodes: &[&str], rank: impl Fn(World) -> T + Sync) -> Vec<T> {
    joining(nodes, |_| Options::default(), |world| rank(world.unwrap()))
}

/// As [`on_nodes`], all on one node.
pub(crate) fn on_one_node<T: Send>(ranks: usize, rank: impl Fn(World) -> T + Sync) -> Vec<T> {
    on_nodes(&vec!["here"; ranks], rank)
}

/// As [`on_nodes`], where ranks can be interrupted.
pub(crate) fn on_nodes_until<T: Send>(
    nodes: &[&str],
    interrupted: impl Fn(u32) -> Option<Interrupted> + Sync,
    rank: impl Fn(World) -> T + Sync,
) -> Vec<T> {
    let options = |number| Options { interrupted: interrupted(number), ..Options::default() };
    joining(nodes, options, |world| rank(world.unwrap()))
}
