//! What somebody asks for instead of what is chosen: `allreduce=ring:8;broadcast=binomial`, or one algorithm for every collective that has
//! it.

use std::sync::Arc;

use eirene_train_launch::variables;
use eirene_train_schedule::{Algorithm, Collective, Refused, algorithms, generate};

use crate::choice::Topology;
use crate::error::Error;

/// Every collective, for any root.
pub(crate) const COLLECTIVES: [Collective; 9] = Collective::all(0);

/// A few ranks on a few nodes, on which there is everything.
const SAMPLE: [u32; 4] = [0, 0, 1, 1];

/// What is asked for, for one collective.
#[derive(Debug, Clone)]
pub(crate) struct Override {
    pub(crate) collective: Collective,
    pub(crate) forced: Forced,
    /// As it was asked for.
    pub(crate) words: Arc<str>,
}

/// How a collective is to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forced {
    /// By an algorithm of ours.
    Named(Name),
    /// By the collective of the MPI library.
    Mpi,
}

/// The name of an algorithm; what it is exactly depends on the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    /// The algorithm for ranks on these nodes, and whether its segments go with the size of a call because none were named.
    pub(crate) fn resolve(&self, nodes: &[u32]) -> Option<(Algorithm, bool)> {
        let exact = Algorithm::named(&self.0, nodes).map(|algorithm| (algorithm, false));
        exact.or_else(|| Algorithm::named(&format!("{}/1", self.0), nodes).map(|algorithm| (algorithm, true)))
    }
}

/// Everything that is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) collectives: Vec<Override>,
    /// Messages between two ranks are MPI's own, in the words in which it was asked for.
    pub(crate) messages: Option<Arc<str>>,
}

impl Asked {
    /// The words that ask for something of MPI's, if any do.
    pub(crate) fn mpi(&self) -> Option<&Arc<str>> {
        let collective =
            self.collectives.iter().find(|wanted| wanted.forced == Forced::Mpi).map(|wanted| &wanted.words);
        collective.or(self.messages.as_ref())
    }
}

/// What messages between two ranks are called beside the collectives.
const MESSAGES: &str = "p2p";

/// Reads what is asked for.
///
/// # Errors
/// [`Error::Invalid`] for collectives that do not exist and algorithms that they do not have; it lists those there are.
pub(crate) fn parse(text: &str) -> Result<Asked, Error> {
    let mut asked = Asked::default();
    let all = &mut asked.collectives;
    let items = text.split([';', ',']).map(str::trim).filter(|item| !item.is_empty());
    for item in items {
        let words: Arc<str> = item.into();
        let of = |collective, forced| Override { collective, forced, words: Arc::clone(&words) };
        let found = if let Some((collective, algorithm)) = item.split_once('=') {
            if collective.trim() == MESSAGES {
                let name = algorithm.trim();
                if name != "mpi" {
                    return Err(refused(&format!("{MESSAGES} has no algorithm `{name}`; it has mpi")));
                }
                asked.messages = Some(words);
                continue;
            }
            let collective = collective_named(collective.trim())?;
            vec![of(collective, forced(collective, algorithm.trim())?)]
        } else {
            let having = |collective| forced(collective, item).ok().map(|forced| of(collective, forced));
            COLLECTIVES.into_iter().filter_map(having).collect()
        };
        if item == "mpi" {
            asked.messages = Some(Arc::clone(&words));
        }
        if found.is_empty() {
            return Err(refused(&format!("no collective has an algorithm `{item}`; {}", everything())));
        }
        for wanted in found {
            all.retain(|known| known.collective != wanted.collective);
            all.push(wanted);
        }
    }
    Ok(asked)
}

fn refused(reason: &str) -> Error {
    Error::Invalid { message: format!("{}: {reason}", variables::ALGORITHM) }
}

fn collective_named(name: &str) -> Result<Collective, Error> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let found = COLLECTIVES.into_iter().find(|collective| plain(collective.name()) == plain(name));
    found.ok_or_else(|| {
        let names: Vec<&str> = COLLECTIVES.iter().map(|collective| collective.name()).collect();
        refused(&format!("there is no collective `{name}`; there are {}, {MESSAGES}", names.join(", ")))
    })
}

/// What a name means for a collective.
fn forced(collective: Collective, name: &str) -> Result<Forced, Error> {
    if name == "mpi" {
        return Ok(Forced::Mpi);
    }
    let known = Name(name.replace(':', "/"));
    let lists = || format!("it has {}", names(collective));
    let Some((algorithm, _)) = known.resolve(&SAMPLE) else {
        return Err(refused(&format!("{} has no algorithm `{name}`; {}", collective.name(), lists())));
    };
    match generate(collective, &algorithm, SAMPLE.len() as u32) {
        Ok(_) => Ok(Forced::Named(known)),
        Err(Refused::NotThis { .. }) => {
            Err(refused(&format!("{} has no algorithm `{name}`; {}", collective.name(), lists())))
        }
        Err(other) => Err(refused(&format!("`{name}`: {other}"))),
    }
}

/// The names of a collective's algorithms.
fn names(collective: Collective) -> String {
    let topology = Topology::new(&SAMPLE);
    let mut names: Vec<String> = Vec::new();
    for algorithm in algorithms(collective, topology.ranks(), topology.nodes(), true) {
        let shown = algorithm.to_string();
        let mut words = shown.split('/');
        let name = words.next().unwrap_or_default().to_owned();
        let name = match words.count() {
            0 => name,
            1 => name + ":SEGMENTS",
            _ => name + ":RANKS:SEGMENTS",
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.push("mpi".to_owned());
    names.join(", ")
}

fn everything() -> String {
    let each = COLLECTIVES.map(|collective| format!("{}: {}", collective.name(), names(collective)));
    format!("there are {}; {MESSAGES}: mpi", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(Collective, Forced)> {
        parse(text).unwrap().collectives.into_iter().map(|wanted| (wanted.collective, wanted.forced)).collect()
    }

    fn named(name: &str) -> Forced {
        Forced::Named(Name(name.to_owned()))
    }

    #[test]
    fn collectives_are_given_algorithms_one_by_one_or_all_at_once() {
        let root = 0;
        assert_eq!(
            of("allreduce=ring:8; broadcast = binomial"),
            [(Collective::AllReduce, named("ring/8")), (Collective::Broadcast { root }, named("binomial"))]
        );
        assert_eq!(of("all_reduce=direct/4"), [(Collective::AllReduce, named("direct/4"))]);
        let binomial: Vec<Collective> = of("binomial").into_iter().map(|(collective, _)| collective).collect();
        assert_eq!(binomial, [Collective::Broadcast { root }, Collective::Reduce { root }]);
        assert_eq!(of("mpi").len(), 9);
        assert_eq!(of("mpi;allreduce=ring").last(), Some(&(Collective::AllReduce, named("ring"))));
        assert_eq!(of(" ; "), []);
    }

    #[test]
    fn messages_are_mpi_s_where_they_or_everything_is_asked_of_it() {
        let of = |text| parse(text).unwrap().messages.map(|words| words.to_string());
        assert_eq!(of("allreduce=mpi;ring"), None);
        assert_eq!(of("p2p = mpi; ring").unwrap(), "p2p = mpi");
        assert_eq!(of("mpi;allreduce=ring").unwrap(), "mpi");
        assert_eq!(parse("ring;p2p=mpi").unwrap().mpi().unwrap().as_ref(), "p2p=mpi");
        assert!(parse("ring").unwrap().mpi().is_none());
    }

    #[test]
    fn segments_may_be_left_out() {
        let resolve = |name: &str| Name(name.to_owned()).resolve(&[0, 0]);
        assert_eq!(resolve("direct"), Some((Algorithm::Direct { segments: 1 }, true)));
        assert_eq!(resolve("direct/7"), Some((Algorithm::Direct { segments: 7 }, false)));
        assert_eq!(resolve("ring"), Some((Algorithm::Ring, false)));
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        for (text, parts) in [
            (
                "allreduce=binomial",
                &["EIRENE_TRAIN_ALGORITHM", "allreduce has no algorithm `binomial`", "ring:SEGMENTS", "mpi"][..],
            ),
            ("reduce=quick", &["reduce has no algorithm `quick`", "chain-binomial:RANKS:SEGMENTS"]),
            ("gossip=ring", &["there is no collective `gossip`", "reduce-scatter"]),
            ("quick", &["no collective has an algorithm `quick`", "barrier: dissemination"]),
            ("p2p=ring", &["p2p has no algorithm `ring`", "it has mpi"]),
            ("allreduce=ring:0", &["`ring:0`", "not a sensible number of segments"]),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }
}
