//! How a world is joined: what its first users say, or the environment.

use std::path::PathBuf;
use std::time::Duration;

use eirene_train_launch::{Environment, variables};
use eirene_train_mesh::Secrecy;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::interrupted::Interrupted;
use crate::tuning::policy::Tuning;

/// How a world is joined.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long ranks may take to find each other.
    pub timeout: Duration,
    /// Cores that the ranks of a node share; those this process may use, if none.
    pub cores: Option<usize>,
    /// Asked at least every 100 ms by whoever waits in a blocking call.
    pub interrupted: Option<Interrupted>,
    /// Where Python's packages lie (`sys.prefix`), which may bring an MPI.
    pub prefix: Option<PathBuf>,
    /// A name for this rank's node instead of its machine's: splits one machine into several nodes, as tests want it.
    pub node: Option<String>,
    /// Whether [`Group::tune`](crate::Group::tune) measures which algorithms are fast. What rank 0 says holds for all; so it does for `algorithm`.
    pub tuning: Tuning,
    /// Algorithms to take whatever is faster: `allreduce=ring:8;broadcast=binomial`, or one for all collectives that have it. `p2p=mpi` has
    /// messages between two ranks carried by MPI as they are, also within a node, and `mpi` everything.
    pub algorithm: Option<String>,
    /// The directory in which rank 0 keeps what was measured.
    pub cache: Option<PathBuf>,
    /// Rank 0 says on stderr what is chosen and why, once for each kind of call.
    pub explain: bool,
    /// Whether data that goes to other nodes over TCP is encrypted. What rank 0 says holds for all; it is on where nothing is said. A rank that
    /// was told to keep it on joins no world that goes without.
    pub encryption: Option<Encryption>,
}

/// Whether data that goes to other nodes over TCP is encrypted. What ranks say to each other beside it always is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// Yes, and nobody can change it unnoticed.
    #[default]
    On,
    /// No: nobody else is on the network between the nodes.
    Off,
}

impl Encryption {
    const ALL: [Self; 2] = [Self::On, Self::Off];

    /// The word for it in `EIRENE_TRAIN_ENCRYPTION`.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    pub(super) fn secrecy(self) -> Secrecy {
        match self {
            Self::On => Secrecy::Sealed,
            Self::Off => Secrecy::Clear,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(1),
            cores: None,
            interrupted: None,
            prefix: None,
            node: None,
            tuning: Tuning::Off,
            algorithm: None,
            cache: None,
            explain: false,
            encryption: None,
        }
    }
}

impl Options {
    /// What the environment says; `tuning` where it says nothing of that.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a word that `EIRENE_TRAIN_TUNING` or `EIRENE_TRAIN_ENCRYPTION` does not know.
    pub fn of_environment(environment: &Environment, tuning: Tuning) -> Result<Self, Error> {
        let text = |name: &str| environment.get(name);
        let tuning = word(environment, variables::TUNING, &Tuning::ALL, Tuning::name)?.unwrap_or(tuning);
        let encryption = word(environment, variables::ENCRYPTION, &Encryption::ALL, Encryption::name)?;
        let absolute = |name: &str| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = text(variables::CACHE)
            .map(PathBuf::from)
            .or_else(|| absolute("XDG_CACHE_HOME").map(|path| path.join("eirene-train")))
            .or_else(|| absolute("HOME").map(|path| path.join(".cache/eirene-train")));
        Ok(Self {
            tuning,
            encryption,
            cache,
            algorithm: text(variables::ALGORITHM).map(str::to_owned),
            explain: text(variables::EXPLAIN).is_some_and(|value| value != "0"),
            ..Self::default()
        })
    }
}

/// What a variable says, of some words that it may say.
fn word<T: Copy>(
    environment: &Environment,
    variable: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Option<T>, Error> {
    let Some(word) = environment.get(variable) else { return Ok(None) };
    let known = all.iter().copied().find(|known| name(*known) == word);
    known.map(Some).ok_or_else(|| {
        let words: Vec<_> = all.iter().copied().map(name).collect();
        Error::Invalid { message: format!("{variable} is `{word}`; it may be {}", words.join(", ")) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<Options, Error> {
        Options::of_environment(&Environment::new(variables.iter().copied(), "here", 1000), Tuning::Measure)
    }

    #[test]
    fn the_environment_says_what_is_wanted() {
        let none = options(&[]).unwrap();
        assert_eq!((none.tuning, &none.cache, &none.algorithm, none.explain), (Tuning::Measure, &None, &None, false));
        let all = options(&[
            ("EIRENE_TRAIN_TUNING", "again"),
            ("EIRENE_TRAIN_ALGORITHM", "ring"),
            ("EIRENE_TRAIN_EXPLAIN", "1"),
            ("HOME", "/home/ada"),
        ])
        .unwrap();
        assert_eq!((all.tuning, all.algorithm.as_deref(), all.explain), (Tuning::Again, Some("ring"), true));
        let cache = |more: &[(&str, &str)]| options(&[&[("HOME", "/home/ada")], more].concat()).unwrap().cache.unwrap();
        assert_eq!(cache(&[]), PathBuf::from("/home/ada/.cache/eirene-train"));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/var/c")]), PathBuf::from("/var/c/eirene-train"));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "c")]), PathBuf::from("/home/ada/.cache/eirene-train"));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/c"), ("EIRENE_TRAIN_CACHE", "/d")]), PathBuf::from("/d"));
        let error = options(&[("EIRENE_TRAIN_TUNING", "fast")]).unwrap_err().to_string();
        assert_eq!(error, "EIRENE_TRAIN_TUNING is `fast`; it may be off, read, measure, again");
        let encryption = |word| options(&[("EIRENE_TRAIN_ENCRYPTION", word)]).map(|options| options.encryption);
        assert_eq!(encryption("").unwrap(), None);
        assert_eq!(encryption("on").unwrap(), Some(Encryption::On));
        assert_eq!(encryption("off").unwrap(), Some(Encryption::Off));
        assert_eq!(encryption("0").unwrap_err().to_string(), "EIRENE_TRAIN_ENCRYPTION is `0`; it may be on, off");
    }
}
