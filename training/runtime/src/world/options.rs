//! How a world is joined: what its first users say, or the environment.

use std::path::PathBuf;
use std::time::Duration;

use eirene_train_launch::{Environment, variables};

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
    /// Algorithms to take whatever is faster: `allreduce=ring:8;broadcast=binomial`, or one for all collectives that have it.
    pub algorithm: Option<String>,
    /// The directory in which rank 0 keeps what was measured.
    pub cache: Option<PathBuf>,
    /// Rank 0 says on stderr what is chosen and why, once for each kind of call.
    pub explain: bool,
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
        }
    }
}

impl Options {
    /// What the environment says; `tuning` where it says nothing of that.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a word that `EIRENE_TRAIN_TUNING` does not know.
    pub fn of_environment(environment: &Environment, tuning: Tuning) -> Result<Self, Error> {
        let text = |name: &str| environment.get(name);
        let tuning = match text(variables::TUNING) {
            None => tuning,
            Some(word) => {
                let known = Tuning::ALL.into_iter().find(|known| known.name() == word);
                known.ok_or_else(|| Error::Invalid {
                    message: format!(
                        "{} is `{word}`; it may be {}",
                        variables::TUNING,
                        Tuning::ALL.map(Tuning::name).join(", ")
                    ),
                })?
            }
        };
        let absolute = |name: &str| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = text(variables::CACHE)
            .map(PathBuf::from)
            .or_else(|| absolute("XDG_CACHE_HOME").map(|path| path.join("eirene-train")))
            .or_else(|| absolute("HOME").map(|path| path.join(".cache/eirene-train")));
        Ok(Self {
            tuning,
            cache,
            algorithm: text(variables::ALGORITHM).map(str::to_owned),
            explain: text(variables::EXPLAIN).is_some_and(|value| value != "0"),
            ..Self::default()
        })
    }
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
    }
}
