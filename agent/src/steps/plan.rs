//! From a request to one step of SLURM's, or to a sentence that says why not: before anything is started, and without asking anybody.

use std::collections::BTreeMap;

use eirene_steps::{ImageMpi, StepRequest};

use crate::allocation::Allocation;
use crate::helpers::{NodeState, Nodes};

/// What a step would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// `srun`'s options.
    pub(super) options: Vec<String>,
    /// What is done and why, in one sentence.
    pub(super) text: String,
    /// Nodes that are used.
    pub(super) nodes: Vec<String>,
    /// Ranks.
    pub(super) ranks: u32,
    /// Threads for each rank.
    pub(super) threads: u32,
}

/// Why nothing is started: a stable code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) &'static str, pub(crate) String);

/// How ranks find each other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    option: String,
    why: String,
}

/// What a request comes to on an allocation, whatever its nodes are doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Nodes that get ranks, in the allocation's order, each with its processors.
    nodes: Vec<(String, u32)>,
    ranks: u32,
    per_node: Option<u32>,
}

impl Wanted {
    /// Whether this node gets ranks.
    pub(super) fn has(&self, name: &str) -> bool {
        self.nodes.iter().any(|(node, _)| node == name)
    }
}

/// What a request comes to.
pub(super) fn wanted(request: &StepRequest, job: &Allocation) -> Result<Wanted, Refusal> {
    let mut nodes = chosen(request, job)?;
    let (ranks, per_node) = ranks(request, nodes.len())?;
    // Where the last nodes would get no rank they are not asked for.
    nodes.truncate(ranks.div_ceil(per_node.unwrap_or(1)) as usize);
    let wanted = Wanted { nodes, ranks, per_node };
    if !request.oversubscribe {
        fits(&wanted)?;
    }
    Ok(wanted)
}

/// Plans a step on the nodes of an allocation. `ways` are what this SLURM offers.
pub(super) fn plan(request: &StepRequest, wanted: Wanted, nodes: &Nodes, ways: &[String]) -> Result<Plan, Refusal> {
    let Wanted { nodes: used, ranks, per_node } = wanted;
    ready(&used, nodes)?;
    let way = way(request.mpi.as_ref(), ways);
    let needed = used.len();
    let names: Vec<String> = used.iter().map(|(name, _)| name.clone()).collect();
    let least = used.iter().map(|(_, processors)| *processors).min().unwrap_or(1);
    let most_on_one = per_node.unwrap_or_else(|| ranks.div_ceil(needed as u32)).max(1);
    let threads = (least / most_on_one).max(1);
    let mut options = vec![
        format!("--nodelist={}", names.join(",")),
        format!("--nodes={needed}"),
        format!("--ntasks={ranks}"),
        format!("--mpi={}", way.option),
        "--distribution=block".to_owned(),
        "--kill-on-bad-exit=1".to_owned(),
        "--overcommit".to_owned(),
        format!("--cpu-bind={}", if request.bind { "cores" } else { "none" }),
    ];
    options.extend(per_node.map(|per_node| format!("--ntasks-per-node={per_node}")));
    options.extend(request.labels.then(|| "--label".to_owned()));
    let text = format!(
        "{} on {}, {}",
        counted(ranks, "rank", "ranks"),
        if needed == 1 { names[0].clone() } else { format!("{needed} nodes ({})", names.join(", ")) },
        way.why,
    );
    Ok(Plan { options, text, nodes: names, ranks, threads })
}

/// The nodes a request means, in the allocation's order, each with its processors.
fn chosen(request: &StepRequest, job: &Allocation) -> Result<Vec<(String, u32)>, Refusal> {
    let all: BTreeMap<&str, u32> = job.nodes.iter().map(|(name, processors)| (name.as_str(), *processors)).collect();
    let own = || job.names().join(", ");
    if let Some(strange) = request.nodes.iter().chain(&request.exclude).find(|name| !all.contains_key(name.as_str())) {
        let text = format!("`{strange}` is not a node of this session, which has {}", own());
        return Err(Refusal("no_such_node", text));
    }
    let used: Vec<_> = job.nodes.iter().filter(|(name, _)| request.wants(name)).cloned().collect();
    if used.is_empty() {
        return Err(Refusal("no_nodes", format!("no node is left: this session has {}", own())));
    }
    Ok(used)
}

/// Whether ranks can be started on these nodes now.
fn ready(used: &[(String, u32)], nodes: &Nodes) -> Result<(), Refusal> {
    for (name, _) in used {
        let text = match nodes.get(name).map(|node| &node.state) {
            Some(NodeState::Ready) => continue,
            Some(NodeState::Lost(why)) => {
                format!("node {name} cannot be used now: {why}. Leave it out with `--exclude {name}`")
            }
            _ => format!("node {name} is still getting the session's container ready: try again in a moment"),
        };
        return Err(Refusal("node_not_ready", text));
    }
    Ok(())
}

/// How many ranks, and how many on a node if that was said.
fn ranks(request: &StepRequest, nodes: usize) -> Result<(u32, Option<u32>), Refusal> {
    let count = u32::try_from(nodes).unwrap_or(u32::MAX);
    let (ranks, per_node) = match (request.ranks, request.ranks_per_node) {
        (Some(ranks), per_node) => (ranks, per_node),
        (None, Some(per_node)) => (per_node.saturating_mul(count), Some(per_node)),
        (None, None) => {
            return Err(Refusal("no_ranks", "say how many ranks: `-n 4`, or `--ranks-per-node 2`".to_owned()));
        }
    };
    if ranks == 0 || per_node == Some(0) {
        return Err(Refusal("no_ranks", "there must be one rank at least".to_owned()));
    }
    if let Some(per_node) = per_node.filter(|per_node| per_node.saturating_mul(count) < ranks) {
        let on = counted(count, "node", "nodes");
        return Err(Refusal("too_many_ranks", format!("{ranks} ranks do not fit {per_node} a node on {on}")));
    }
    Ok((ranks, per_node))
}

/// Whether each rank gets a processor, however SLURM deals them out.
fn fits(wanted: &Wanted) -> Result<(), Refusal> {
    let cure = "share processors with `--oversubscribe`, or start a larger session";
    let Wanted { nodes, ranks, per_node } = wanted;
    let room = |most: u32| nodes.iter().map(|(_, processors)| most.min(*processors)).sum::<u32>();
    let all = room(u32::MAX);
    if *ranks > all {
        let on = if let [(only, _)] = &nodes[..] { only.clone() } else { format!("{} nodes", nodes.len()) };
        let text = format!(
            "{ranks} ranks are more than the {all} processors this session has on {on}: ask for {all} at most, {cure}"
        );
        return Err(Refusal("too_many_ranks", text));
    }
    let Some(per_node) = per_node.filter(|per_node| *ranks > room(*per_node)) else { return Ok(()) };
    let small = nodes.iter().find(|(_, processors)| *processors < per_node);
    let (name, processors) = small.map_or(("a node", 0), |(name, processors)| (name.as_str(), *processors));
    let text = format!("{ranks} ranks do not fit {per_node} a node: {name} has {processors} processors; {cure}");
    Err(Refusal("too_many_ranks", text))
}

/// PMIx or PMI 2, whichever the image's MPI speaks and this SLURM has; the runtime's own way is always there.
fn way(mpi: Option<&ImageMpi>, ways: &[String]) -> Way {
    let has = |name: &str| ways.iter().any(|way| way == name);
    let by = |option: &str, why: String| Way { option: option.to_owned(), why };
    let own = "so ranks meet by themselves: Eirene's own transport";
    match mpi {
        None if ways.is_empty() => by("none", format!("the image has no MPI and this SLURM offers no PMI, {own}")),
        None => by("none", format!("the image has no MPI, {own}")),
        Some(mpi) if mpi.pmix && has("pmix") => by("pmix", format!("by PMIx, for the image's {}", mpi.name)),
        Some(mpi) if has("pmi2") && !mpi.pmix => by("pmi2", format!("by PMI 2, for the image's {}", mpi.name)),
        Some(mpi) if mpi.pmix => by("none", format!("this SLURM has no PMIx for the image's {}, {own}", mpi.name)),
        // PMIx would do no good: this MPI cannot talk to it.
        Some(mpi) => by("none", format!("this SLURM has no PMI 2 for the image's {}, {own}", mpi.name)),
    }
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helpers::Node;

    fn job() -> Allocation {
        Allocation { nodes: vec![("c1".into(), 4), ("c2".into(), 4)] }
    }

    fn ready() -> Nodes {
        let node = || Node { state: NodeState::Ready, directory: Some("/tmp/x".into()), names: Vec::new() };
        [("c1".to_owned(), node()), ("c2".to_owned(), node())].into()
    }

    fn asked(change: impl FnOnce(&mut StepRequest)) -> Result<Plan, Refusal> {
        let mut request = StepRequest { ranks: Some(8), ..StepRequest::default() };
        change(&mut request);
        planned(&request, &ready(), &["none".into(), "pmi2".into(), "pmix".into()])
    }

    fn planned(request: &StepRequest, nodes: &Nodes, ways: &[String]) -> Result<Plan, Refusal> {
        plan(request, wanted(request, &job())?, nodes, ways)
    }

    fn refused(change: impl FnOnce(&mut StepRequest)) -> (&'static str, String) {
        let Refusal(code, text) = asked(change).unwrap_err();
        (code, text)
    }

    fn mpi(name: &str, pmix: bool) -> ImageMpi {
        ImageMpi { name: name.to_owned(), pmix }
    }

    #[test]
    fn ranks_fill_the_nodes_and_their_threads_share_the_processors() {
        let plan = asked(|_| ()).unwrap();
        assert_eq!((plan.ranks, plan.threads, plan.nodes.len()), (8, 1, 2));
        for option in ["--nodelist=c1,c2", "--nodes=2", "--ntasks=8", "--mpi=none", "--kill-on-bad-exit=1"] {
            assert!(plan.options.iter().any(|given| given == option), "{option}: {:?}", plan.options);
        }
        assert_eq!(asked(|request| request.ranks = Some(2)).unwrap().threads, 4);
        let uneven = asked(|request| request.ranks = Some(3)).unwrap();
        assert_eq!((uneven.threads, uneven.nodes.len()), (2, 2));
        let by_node = asked(|request| (request.ranks, request.ranks_per_node) = (None, Some(3))).unwrap();
        assert_eq!((by_node.ranks, by_node.threads), (6, 1));
        let first = asked(|request| (request.ranks, request.ranks_per_node) = (Some(2), Some(4))).unwrap();
        assert_eq!(first.nodes, ["c1"], "one node is enough");
        let one = asked(|request| request.ranks = Some(1)).unwrap();
        assert_eq!((&one.nodes[..], one.text.split(',').next()), (&["c1".to_owned()][..], Some("1 rank on c1")));
    }

    #[test]
    fn the_way_is_the_one_that_image_and_scheduler_share() {
        let options = |mpi, ways: &[&str]| {
            let ways: Vec<String> = ways.iter().map(|way| (*way).to_owned()).collect();
            let way = way(mpi, &ways);
            (way.option, way.why)
        };
        let all = &["none", "pmi2", "pmix"][..];
        let (open, mpich) = (mpi("Open MPI 5.0.7", true), mpi("MPICH 4.2", false));
        assert_eq!(options(Some(&open), all).0, "pmix");
        assert_eq!(options(Some(&mpich), all).0, "pmi2");
        assert_eq!(options(Some(&mpich), &["pmix"]).0, "none", "it does not speak that");
        assert!(options(Some(&mpich), &["pmix"]).1.contains("this SLURM has no PMI 2 for the image's MPICH 4.2"));
        assert_eq!(options(Some(&open), &["none", "pmi2"]).0, "none");
        assert!(options(Some(&open), &["none"]).1.contains("this SLURM has no PMIx for the image's Open MPI 5.0.7"));
        assert_eq!(options(None, all).0, "none");
        assert!(options(None, &[]).1.contains("the image has no MPI and this SLURM offers no PMI"));
    }

    #[test]
    fn what_cannot_be_is_one_sentence_before_anything_starts() {
        let (code, text) = refused(|request| request.ranks = Some(9));
        assert_eq!(code, "too_many_ranks");
        assert!(text.starts_with("9 ranks are more than the 8 processors this session has on 2 nodes"), "{text}");
        assert!(asked(|request| (request.ranks, request.oversubscribe) = (Some(9), true)).is_ok());
        assert_eq!(refused(|request| request.ranks = Some(0)).0, "no_ranks");
        assert_eq!(refused(|request| request.ranks = None).0, "no_ranks");
        assert_eq!(refused(|request| (request.ranks, request.ranks_per_node) = (Some(5), Some(2))).0, "too_many_ranks");
        assert_eq!(
            refused(|request| request.nodes = vec!["d7".into()]).1,
            "`d7` is not a node of this session, which has c1, c2"
        );
        assert_eq!(refused(|request| request.exclude = vec!["c1".into(), "c2".into()]).0, "no_nodes");
        let one = refused(|request| (request.nodes, request.ranks) = (vec!["c2".into()], Some(5)));
        assert!(one.1.contains("4 processors this session has on c2"), "{}", one.1);
        // Only nodes that get ranks have room for them.
        let crowded = refused(|request| request.ranks_per_node = Some(8));
        assert!(
            crowded.1.starts_with("8 ranks are more than the 4 processors this session has on c1"),
            "{}",
            crowded.1
        );
        // At most five on a node, and SLURM puts three on each.
        assert!(asked(|request| (request.ranks, request.ranks_per_node) = (Some(6), Some(5))).is_ok());
        let uneven = Allocation { nodes: vec![("c1".into(), 6), ("c2".into(), 2)] };
        let request = StepRequest { ranks: Some(7), ranks_per_node: Some(4), ..StepRequest::default() };
        let Refusal(_, text) = wanted(&request, &uneven).unwrap_err();
        assert!(text.starts_with("7 ranks do not fit 4 a node: c2 has 2 processors; share"), "{text}");
        assert!(asked(|request| (request.ranks_per_node, request.oversubscribe) = (Some(8), true)).is_ok());
    }

    #[test]
    fn a_node_that_is_not_ready_is_named() {
        let mut nodes = ready();
        nodes.get_mut("c2").unwrap().state = NodeState::Lost("its helper has ended".into());
        let request = StepRequest { ranks: Some(2), ..StepRequest::default() };
        let Refusal(code, text) = planned(&request, &nodes, &[]).unwrap_err();
        assert_eq!(code, "node_not_ready");
        assert!(text.contains("c2") && text.contains("--exclude c2"), "{text}");
        let without = StepRequest { exclude: vec!["c2".into()], ..request };
        assert_eq!(planned(&without, &nodes, &[]).unwrap().nodes, ["c1"]);
        let one = StepRequest { ranks: Some(1), ..StepRequest::default() };
        assert_eq!(planned(&one, &nodes, &[]).unwrap().nodes, ["c1"], "the other one is not needed");
    }
}
