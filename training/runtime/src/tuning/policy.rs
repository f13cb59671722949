//! What all ranks of a world go by when they choose. Rank 0 decides it while the world is made and tells everybody: ranks whose variables or
//! files differ would otherwise take different algorithms for one call, and wait for each other's messages for ever.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use eirene_train_launch::variables;
use eirene_train_mesh::Mesh;
use serde::{Deserialize, Serialize};

use super::cache;
use super::explain::Explained;
use super::machine::{Key, Machine};
use super::overrides::{self, Asked, Override};
use super::table::Table;
use crate::choice::Topology;
use crate::error::Error;
use crate::world::{Encryption, Options};

/// Whether algorithms are measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tuning {
    /// No: thresholds decide.
    #[default]
    Off,
    /// No, but what was measured before is used.
    Read,
    /// Yes, where it has not been done yet for this topology.
    Measure,
    /// Yes, also where it has been done.
    Again,
}

impl Tuning {
    pub(crate) const ALL: [Self; 4] = [Self::Off, Self::Read, Self::Measure, Self::Again];

    /// The word for it in `EIRENE_TRAIN_TUNING`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Read => "read",
            Self::Measure => "measure",
            Self::Again => "again",
        }
    }
}

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct Decision {
    tuning: Tuning,
    algorithm: Option<String>,
    table: Option<String>,
    remarks: Vec<String>,
    encryption: Encryption,
}

/// What all ranks of a world go by.
#[derive(Debug)]
pub(crate) struct Policy {
    tuning: Tuning,
    asked: Asked,
    /// What was measured on all ranks.
    table: RwLock<Option<Arc<Table>>>,
    /// This rank's own: only that of a group's rank 0 is used.
    cache: Option<PathBuf>,
    machine: Machine,
    remarks: Vec<String>,
    explained: Option<Arc<Explained>>,
}

impl Policy {
    /// Agrees on it with all ranks.
    ///
    /// # Errors
    /// [`Error::Invalid`] on rank 0 for algorithms that do not exist, and on a rank that was told to keep encryption on where rank 0 goes without;
    /// the others are told.
    pub(crate) fn agree(
        mesh: &Mesh,
        topic: u64,
        topology: &Topology,
        mpi: Option<&str>,
        options: &Options,
        cores: usize,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let encryption = options.encryption.unwrap_or_default();
        let machine = Machine { cores, mpi: mpi.map(str::to_owned), encryption };
        let decision = if mesh.rank() == 0 {
            decide(mesh, topic, topology, options, &machine)?
        } else {
            let (bytes, _) = mesh.receive(0, topic, deadline)?;
            serde_json::from_slice(&bytes).map_err(|error| unreadable(&error.to_string()))?
        };
        let Decision { tuning, algorithm, table, mut remarks, encryption } = decision;
        if options.encryption == Some(Encryption::On) && mpi.is_some() && !topology.is_one_node() {
            let message = format!(
                "{encryption} is `on` on rank {rank}, and MPI carries the messages between nodes, which nobody encrypts: take the built-in \
                 transport ({transport}=builtin), or leave {encryption} unset if MPI's network is your own",
                encryption = variables::ENCRYPTION,
                rank = mesh.rank(),
                transport = variables::TRANSPORT,
            );
            mesh.abort(&message);
            return Err(Error::Invalid { message });
        }
        if options.encryption == Some(Encryption::On) && encryption == Encryption::Off {
            let message = format!(
                "{variable} is `on` on rank {} and `off` on rank 0, whose word holds for all: set it to the same on both",
                mesh.rank(),
                variable = variables::ENCRYPTION
            );
            mesh.abort(&message);
            return Err(Error::Invalid { message });
        }
        let asked = algorithm.as_deref().map_or(Ok(Asked::default()), overrides::parse)?;
        let table = table.as_deref().map(Table::read).transpose().map_err(|reason| unreadable(&reason))?.map(Arc::new);
        remarks.extend(difference(mesh.rank(), options, tuning, algorithm.as_deref(), encryption));
        Ok(Self {
            tuning,
            asked,
            table: RwLock::new(table),
            cache: options.cache.clone(),
            machine: Machine { encryption, ..machine },
            remarks,
            explained: (mesh.rank() == 0 && options.explain).then(Arc::default),
        })
    }

    pub(super) fn tuning(&self) -> Tuning {
        self.tuning
    }

    pub(crate) fn overrides(&self) -> &[Override] {
        &self.asked.collectives
    }

    /// The words that ask for messages between two ranks to be MPI's own, if any do.
    pub(crate) fn messages(&self) -> Option<&Arc<str>> {
        self.asked.messages.as_ref()
    }

    /// What was measured on all ranks, if anything was.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this is what was measured on all ranks.
    pub(crate) fn adopt(&self, table: Arc<Table>) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Some(table);
    }

    pub(super) fn cache(&self) -> Option<&PathBuf> {
        self.cache.as_ref()
    }

    /// What measurements on a topology are valid for.
    pub(super) fn key(&self, topology: &Topology) -> Key {
        Key::of(topology, &self.machine)
    }

    /// What people may want to know of how it came about.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Whether data that goes to other nodes over TCP is encrypted.
    pub(crate) fn encryption(&self) -> Encryption {
        self.machine.encryption
    }

    pub(crate) fn explained(&self) -> Option<Arc<Explained>> {
        self.explained.clone()
    }
}

fn unreadable(reason: &str) -> Error {
    Error::Meeting(format!("rank 0 has said something that cannot be read, of how algorithms are chosen: {reason}"))
}

/// Decides for everybody, on rank 0, and tells them.
fn decide(
    mesh: &Mesh,
    topic: u64,
    topology: &Topology,
    options: &Options,
    machine: &Machine,
) -> Result<Decision, Error> {
    let algorithm = options.algorithm.clone();
    if let Err(error) =
        algorithm.as_deref().map_or(Ok(Asked::default()), overrides::parse).and_then(|asked| served(&asked, machine))
    {
        // The others need not wait to learn it.
        mesh.abort(&error.to_string());
        return Err(error);
    }
    let (mut table, mut remarks) = (None, Vec::new());
    if matches!(options.tuning, Tuning::Read | Tuning::Measure)
        && mesh.size() > 1
        && let Some(directory) = &options.cache
    {
        match cache::read(directory, &Key::of(topology, machine)) {
            Ok(found) => table = found.map(|found| found.write()),
            Err(reason) => remarks.push(reason),
        }
    }
    let decision = Decision { tuning: options.tuning, algorithm, table, remarks, encryption: machine.encryption };
    let says = serde_json::to_vec(&decision).map_err(|error| unreadable(&error.to_string()))?;
    for rank in 1..mesh.size() {
        mesh.send(rank, topic, &says, &[])?;
    }
    Ok(decision)
}

/// That everything that is asked for can be had in this world.
fn served(asked: &Asked, machine: &Machine) -> Result<(), Error> {
    match asked.mpi().filter(|_| machine.mpi.is_none()) {
        None => Ok(()),
        Some(words) => Err(Error::Invalid {
            message: format!(
                "{}: `{words}` cannot be: MPI is not in use; EIRENE_TRAIN_TRANSPORT=mpi uses it",
                variables::ALGORITHM
            ),
        }),
    }
}

/// That a rank has been asked for something else than what rank 0 has decided. A rank that was asked for nothing goes by that silently.
fn difference(
    rank: u32,
    options: &Options,
    tuning: Tuning,
    algorithm: Option<&str>,
    encryption: Encryption,
) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(mine) = options.algorithm.as_deref().filter(|mine| Some(*mine) != algorithm) {
        let first = algorithm.map_or_else(|| "nothing".to_owned(), |algorithm| format!("`{algorithm}`"));
        parts.push(format!("{} `{mine}` on rank {rank} and {first} on rank 0", variables::ALGORITHM));
    }
    if options.tuning != tuning && options.tuning != Tuning::default() {
        let (mine, first) = (options.tuning.name(), tuning.name());
        parts.push(format!("{} `{mine}` on rank {rank} and `{first}` on rank 0", variables::TUNING));
    }
    if let Some(mine) = options.encryption.filter(|mine| *mine != encryption) {
        let (mine, first) = (mine.name(), encryption.name());
        parts.push(format!("{} `{mine}` on rank {rank} and `{first}` on rank 0", variables::ENCRYPTION));
    }
    (!parts.is_empty()).then(|| format!("{}; rank 0's holds for all", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_was_asked_for_something_else_is_told_both() {
        let asked = |algorithm: Option<&str>, tuning| Options {
            algorithm: algorithm.map(str::to_owned),
            tuning,
            ..Options::default()
        };
        assert_eq!(difference(3, &asked(None, Tuning::Off), Tuning::Measure, Some("ring"), Encryption::Off), None);
        assert_eq!(difference(3, &asked(Some("ring"), Tuning::Read), Tuning::Read, Some("ring"), Encryption::On), None);
        assert_eq!(
            difference(3, &asked(Some("direct"), Tuning::Read), Tuning::Off, None, Encryption::On).unwrap(),
            "EIRENE_TRAIN_ALGORITHM `direct` on rank 3 and nothing on rank 0, EIRENE_TRAIN_TUNING `read` on rank 3 and `off` on rank 0; \
             rank 0's holds for all"
        );
        let off = Options { encryption: Some(Encryption::Off), ..Options::default() };
        assert_eq!(
            difference(3, &off, Tuning::Off, None, Encryption::On).unwrap(),
            "EIRENE_TRAIN_ENCRYPTION `off` on rank 3 and `on` on rank 0; rank 0's holds for all"
        );
    }
}
