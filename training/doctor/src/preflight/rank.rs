//! What one rank of the preflight does, from its first word to its last.

use std::io::{self, Write};
use std::time::Instant;

use eirene_train_launch::{Environment, Launch};
use eirene_train_mesh::{Error as Refused, Mesh};
use eirene_train_runtime::{Group, Options, Tuning, World};

use super::links::{self, Broken};
use super::words::{Said, Why, Word};
use super::{ALL, MEET, memory};
use crate::group::Groups;

/// Tries this node and its links, and says to `to` what is found. What goes wrong is said as well: a rank that failed would have its launcher end
/// the others before they have said what they saw.
///
/// # Errors
/// When nobody takes what there is to say.
pub fn rank(environment: &Environment, to: &mut dyn Write) -> io::Result<()> {
    let by = Instant::now() + ALL;
    let launch = Launch::detect(environment).map_err(|error| io::Error::other(error.to_string()))?;
    let mut unsaid = Ok(());
    let mut tell = |word: Word| {
        let line = Said { rank: launch.rank, word }.line();
        let said = to.write_all(line.as_bytes()).and_then(|()| to.flush());
        if unsaid.is_ok() {
            unsaid = said;
        }
    };
    let own = launch.node.and_then(|node| launch.nodes.get(node as usize)).cloned();
    let node = own.unwrap_or_else(|| environment.hostname().to_owned());
    tell(Word::Here { nodes: launch.nodes.clone(), node });
    let outcome = try_all(&launch, environment, by, &mut tell);
    tell(match outcome {
        Ok(()) => Word::Done,
        Err(Broken { why, with, text }) => Word::Failed { why, with, text },
    });
    unsaid
}

/// Bytes that this job may still take: what its control group leaves, or the machine, and never more than SLURM has given it on this node, which is
/// all that can be known where a container hides the group.
fn room(environment: &Environment) -> Option<u64> {
    let group = Groups::look().memory().map(|(allowed, used)| allowed.saturating_sub(used));
    let given = environment.get("SLURM_MEM_PER_NODE").and_then(|mebibytes| mebibytes.parse::<u64>().ok());
    let given = given.filter(|mebibytes| *mebibytes > 0).map(|mebibytes| mebibytes.saturating_mul(1 << 20));
    group.into_iter().chain(crate::memory::available()).chain(given).min()
}

/// The ranks meet first: what takes a busy node long is then no reason for the others to miss it.
fn try_all(launch: &Launch, environment: &Environment, by: Instant, tell: &mut dyn FnMut(Word)) -> Result<(), Broken> {
    let met = if launch.size > 1 { Some(meet(launch, environment, by)?) } else { None };
    if met.is_some() {
        tell(Word::Met);
    }
    tell(Word::Memory(memory::check(room(environment), memory::read)));
    tell(Word::Processor { milliseconds: memory::processor() });
    let Some((world, group)) = met else { return Ok(()) };
    links::measure(&group, by, tell)?;
    tell(links::add_up(&group, by)?);
    world.leave();
    Ok(())
}

fn meet(launch: &Launch, environment: &Environment, by: Instant) -> Result<(World, Group), Broken> {
    let own = |text: String| Broken { why: Why::Own, with: Vec::new(), text };
    let plan = launch.plan(MEET).map_err(|error| own(error.to_string()))?;
    let mesh = Mesh::join(plan);
    launch.tidy();
    let mesh = mesh.map_err(|error| refused(&error))?;
    // Of a training's own choices only this one matters; what is wrong with them is the program's to say, which may not even be one.
    let encryption = Options::of_environment(environment, Tuning::Off).ok().and_then(|options| options.encryption);
    let allowed = by.saturating_duration_since(Instant::now());
    let options = Options { timeout: allowed, encryption, ..Options::default() };
    let broken = |error| Broken::of(&error, None).or_over(by);
    let world = World::over(mesh, &options).map_err(broken)?;
    let group = world.everybody(allowed).map_err(broken)?;
    Ok((world, group))
}

/// What the mesh says: all ranks that came are told the same by rank 0.
fn refused(error: &Refused) -> Broken {
    let (why, with) = match error {
        Refused::Timeout { missing, .. } => (Why::Absent, missing.clone()),
        Refused::Died { rank } => (Why::Died, vec![*rank]),
        // Which of the two it was that told is not needed: the link is theirs.
        Refused::Unreachable { from, to } => (Why::Link, vec![*from, *to]),
        Refused::Corrupt { rank } => (Why::Link, vec![*rank]),
        Refused::Aborted { rank, .. } | Refused::Left { rank } => (Why::Follows, vec![*rank]),
        _ => (Why::Own, Vec::new()),
    };
    Broken { why, with, text: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::{State, Words, judge};

    #[test]
    fn a_node_alone_is_tried_without_links() {
        let mut said = Vec::new();
        let environment = Environment::new([("HOME", "/"), ("SLURM_MEM_PER_NODE", "100")], "c1", 0);
        rank(&environment, &mut said).unwrap();
        let verdict = judge(&Words::read(&said, b""), &[]);
        assert_eq!((verdict.nodes[0].name.as_str(), verdict.links.len()), ("c1", 0));
        assert_eq!(verdict.nodes[0].free_bytes, Some(100 << 20), "SLURM gives no more");
        assert_eq!(verdict.state, State::Slow, "{verdict:?}");
    }

    #[test]
    fn what_the_mesh_says_names_ranks() {
        let waited = std::time::Duration::from_secs(9);
        let absent = refused(&Refused::Timeout { waited, missing: vec![2], strangers: 0 });
        assert_eq!((absent.why, absent.with), (Why::Absent, vec![2]));
        let cut = refused(&Refused::Unreachable { from: 1, to: 2 });
        assert_eq!((cut.why, cut.with), (Why::Link, vec![1, 2]));
        let own = refused(&Refused::Invalid { what: "nonsense".to_owned() });
        assert_eq!((own.why, own.with.len(), own.text.as_str()), (Why::Own, 0, "nonsense"));
    }
}
