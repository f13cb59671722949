//! Whether a world uses MPI, on which all its ranks decide together: one that waits in MPI's start for another which will not come would
//! wait for long.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use eirene_train_launch::Launch;
use eirene_train_mesh::Mesh;
use eirene_train_mpi::{Error as MpiError, Library, Mpi, Surroundings, ThreadLevel, choose};

use super::{Engine, LOOK};
use crate::error::Error;
use crate::memory::bell::now;
use crate::world::Options;

/// What messages over the mesh are about that decide on MPI.
const TOPIC_MPI: u64 = 0x4d50_4900;

/// How much longer than MPI's start the others' word on theirs may take.
const WORD: Duration = Duration::from_secs(5);

/// What a rank says of its MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    /// It is well: the library's name.
    Good(String),
    /// There is none.
    None(String),
    /// There is one that will not do.
    Bad(String),
}

impl Said {
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, text) = match self {
            Self::Good(text) => (0, text),
            Self::None(text) => (1, text),
            Self::Bad(text) => (2, text),
        };
        [&[kind], text.as_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes.get(1..).unwrap_or_default()).into_owned();
        match bytes.first() {
            Some(0) => Self::Good(text),
            Some(1) => Self::None(text),
            _ => Self::Bad(text),
        }
    }
}

/// Opens and starts MPI where this world is to use it; none where it does without.
///
/// # Errors
/// On all ranks alike: [`Error::Mpi`] where MPI must be used and a rank has none, where a launcher and a library cannot meet, or where ranks
/// have different libraries. It names the rank and the cure.
pub(crate) fn open(mesh: &Mesh, launch: &Launch, options: &Options) -> Result<Option<Arc<Engine>>, Error> {
    use eirene_train_launch::Mpi as Wanted;
    let wanted = match launch.mpi {
        Wanted::Never => false,
        Wanted::WhereThere => mesh.nodes() > 1,
        Wanted::Must => true,
    };
    if !wanted {
        return Ok(None);
    }
    let around = Surroundings::of_process(options.prefix.clone());
    let library = choose(&around);
    let said = match &library {
        Ok(library) => Said::Good(library.identity().name.clone()),
        Err(error @ (MpiError::Disabled | MpiError::NotFound { .. })) => Said::None(error.to_string()),
        Err(error) => Said::Bad(error.to_string()),
    };
    let all = exchange(mesh, &said, now() + options.timeout)?;
    if let Some(error) = objection(&all, launch.mpi == Wanted::Must) {
        return Err(error);
    }
    let is_everywhere = all.iter().all(|said| matches!(said, Said::Good(_)));
    let Some(library) = library.ok().filter(|_| is_everywhere) else { return Ok(None) };
    let mpi = start(mesh, launch, options, library, around)?;
    Ok(Some(Engine::new(mpi)))
}

/// What all ranks say, by rank.
fn exchange(mesh: &Mesh, own: &Said, deadline: Instant) -> Result<Vec<Said>, Error> {
    tell(mesh, own)?;
    let hear = |rank: u32| {
        if rank == mesh.rank() {
            return Ok(own.clone());
        }
        let (bytes, _) = mesh.receive(rank, TOPIC_MPI, deadline)?;
        Ok(Said::from_bytes(&bytes))
    };
    (0..mesh.size()).map(hear).collect()
}

fn tell(mesh: &Mesh, own: &Said) -> Result<(), Error> {
    let bytes = own.to_bytes();
    for rank in (0..mesh.size()).filter(|rank| *rank != mesh.rank()) {
        mesh.send(rank, TOPIC_MPI, &bytes, &[])?;
    }
    Ok(())
}

/// Why a world in which this was said cannot go on, if it cannot; the same on all ranks.
fn objection(all: &[Said], must: bool) -> Option<Error> {
    let mut good: Option<(usize, &String)> = None;
    for (rank, said) in all.iter().enumerate() {
        match (said, good) {
            (Said::Bad(why), _) => return Some(Error::Mpi(format!("rank {rank}: {why}"))),
            (Said::None(why), _) if must => {
                return Some(Error::Mpi(format!(
                    "rank {rank}: {why}; install one there, name it by EIRENE_TRAIN_MPI, or set EIRENE_TRAIN_TRANSPORT=builtin"
                )));
            }
            (Said::Good(name), Some((first, other))) if name != other => {
                return Some(Error::Mpi(format!(
                    "rank {first} has opened {other} and rank {rank} {name}, which do not understand each other; name one library for \
                     all by EIRENE_TRAIN_MPI, or set EIRENE_TRAIN_TRANSPORT=builtin"
                )));
            }
            (Said::Good(name), None) => good = Some((rank, name)),
            (Said::Good(_) | Said::None(_), _) => {}
        }
    }
    None
}

/// Starts MPI on all ranks; if it fails on one it fails on all, as soon as that one knows.
fn start(
    mesh: &Mesh,
    launch: &Launch,
    options: &Options,
    library: Library,
    around: Surroundings,
) -> Result<Mpi, Error> {
    let wanted = eirene_train_mpi::Options {
        limit: options.timeout,
        expected: Some(launch.size),
        // Whoever waits at the end looks how the others are, and gives up by that.
        farewell: Duration::from_hours(24 * 365),
        // All calls go through the engine, one at a time.
        threads: ThreadLevel::Serialized,
        ..eirene_train_mpi::Options::default()
    };
    let name = library.identity().to_string();
    let (give, take) = channel();
    std::thread::Builder::new()
        .name("eirene-mpi-start".to_owned())
        .spawn(move || give.send(Mpi::start(library, &around, &wanted)))
        .map_err(|error| Error::Mpi(format!("the thread that starts it does not start: {error}")))?;
    let deadline = now() + options.timeout + WORD;
    let mut all: Vec<Option<Said>> = vec![None; mesh.size() as usize];
    let mut mpi = None;
    let outcome = loop {
        if all[mesh.rank() as usize].is_none() {
            let said = match take.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    Some(Said::Bad("the thread that starts it has ended".to_owned()))
                }
                Ok(Err(error)) => Some(Said::Bad(error.to_string())),
                Ok(Ok(started)) => {
                    let held = launch.check_mpi(started.rank(), started.size(), &name);
                    mpi = Some(started);
                    Some(held.map_or_else(|error| Said::Bad(error.to_string()), |()| Said::Good(name.clone())))
                }
            };
            if let Some(said) = said {
                tell(mesh, &said)?;
                all[mesh.rank() as usize] = Some(said);
            }
        }
        let waits = if mpi.is_some() { LOOK } else { Duration::ZERO };
        let heard = hear(mesh, &mut all, waits);
        let bad = all.iter().enumerate().find_map(|(rank, said)| match said {
            Some(Said::Bad(why)) => Some(Error::Mpi(format!("rank {rank}: {why}"))),
            _ => None,
        });
        if let Some(error) = bad {
            break Err(error);
        }
        if let Err(error) = heard {
            break Err(error);
        }
        if all.iter().all(Option::is_some) {
            break Ok(());
        }
        if now() >= deadline {
            let missing = (0..).zip(&all).filter(|(_, said)| said.is_none()).map(|(rank, _)| rank).collect();
            break Err(Error::Timeout { waited: options.timeout, what: format!("the start of {name}"), missing });
        }
    };
    match (outcome, mpi) {
        (Ok(()), Some(mpi)) => Ok(mpi),
        (outcome, mpi) => {
            if let Some(mpi) = mpi {
                mpi.forsake();
            }
            Err(outcome.err().unwrap_or_else(|| Error::Mpi(format!("{name} did not start"))))
        }
    }
}

/// Takes what others have said meanwhile.
fn hear(mesh: &Mesh, all: &mut [Option<Said>], longest: Duration) -> Result<(), Error> {
    for (rank, said) in (0..).zip(all).filter(|(rank, said)| *rank != mesh.rank() && said.is_none()) {
        match mesh.receive(rank, TOPIC_MPI, now() + longest) {
            Ok((bytes, _)) => *said = Some(Said::from_bytes(&bytes)),
            Err(eirene_train_mesh::Error::Timeout { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(name: &str) -> Said {
        Said::Good(name.to_owned())
    }

    #[test]
    fn what_is_said_is_heard() {
        for said in [good("MPICH 4"), Said::None("none".to_owned()), Said::Bad(String::new())] {
            assert_eq!(Said::from_bytes(&said.to_bytes()), said);
        }
    }

    #[test]
    fn one_rank_without_mpi_stops_only_worlds_that_must_have_it() {
        let all = [good("MPICH 4"), Said::None("no MPI library was found".to_owned())];
        assert!(objection(&all, false).is_none());
        let error = objection(&all, true).unwrap().to_string();
        assert!(
            error.contains("rank 1: no MPI library") && error.contains("EIRENE_TRAIN_TRANSPORT=builtin"),
            "{error}"
        );
    }

    #[test]
    fn an_mpi_that_will_not_do_and_two_kinds_of_it_are_errors_that_name_the_ranks() {
        let error = objection(&[good("MPICH 4"), Said::Bad("no".to_owned())], false).unwrap().to_string();
        assert!(error.contains("rank 1: no"), "{error}");
        let error = objection(&[good("MPICH 4"), good("MPICH 4"), good("Open MPI 5")], false).unwrap().to_string();
        assert!(error.contains("rank 0 has opened MPICH 4 and rank 2 Open MPI 5"), "{error}");
        assert!(objection(&[good("MPICH 4"), good("MPICH 4")], true).is_none());
    }
}
