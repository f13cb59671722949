//! Whether a directory of this machine is one of a space: that may be mounted here. Sizes, times and sums cannot tell that; a file that appears there
//! when it is made here does. What is copied into itself would be copied without end, and what is moved onto itself would be gone.

use anyhow::ensure;

use super::NotDone;
use crate::api::files::{Entry, Kind};
use crate::api::{Api, code, status};
use crate::local::{Directory, Probe};
use crate::patience::persist;
use crate::place::{Place, Spot};

/// Refuses to move between a directory and the very same one: each file would be there already, and be the same as itself.
pub(super) async fn apart(api: &Api, here: &Directory, there: &Spot) -> anyhow::Result<()> {
    ensure!(
        !shows(api, there, &here.probe()?).await?,
        NotDone(format!("{}: nothing has to be moved", same(here, there)))
    );
    Ok(())
}

/// Refuses to copy a directory of this machine into itself: it must be none of those on the way to where it goes. One that cannot be written to is
/// compared by its owner and the time of its last change, to the nanosecond: only a faithful copy (`cp -a`) has both, and to refuse that harms nothing,
/// while a bounded depth would still copy all of it that often. What `moves` is not left to that: it removes what it is mistaken about.
pub(super) async fn outside(api: &Api, here: &Directory, way: &[Spot], moves: bool) -> anyhow::Result<()> {
    if way.is_empty() {
        return Ok(());
    }
    let probe = match here.probe() {
        Err(error) if moves => return Err(error),
        probe => probe.ok(),
    };
    for there in way {
        let found = match &probe {
            Some(probe) => shows(api, there, probe).await?,
            None => looks_alike(api, here, there).await?,
        };
        ensure!(!found, NotDone(format!("{}: it cannot be copied into itself", same(here, there))));
    }
    Ok(())
}

/// Refuses to copy a directory of a space into itself: `into`, and the directories that is in, must be none that is it. Where nothing can be written
/// nothing can be copied to either, and how deep it goes is bounded in any case.
pub(super) async fn comes_from_outside(api: &Api, into: &Directory, from: &Spot) -> anyhow::Result<()> {
    let Ok(probe) = into.probe() else { return Ok(()) };
    for below in into.ways() {
        // Where the directory further up is the one of the space, this one is there under the same names.
        let there = if below.is_empty() { from.clone() } else { from.below(below) };
        let found = match shows(api, &there, &probe).await {
            // There is no such place, or none that may be looked at. That somebody asks too often (429) says nothing of it.
            Err(error) if matches!(status(&error), Some(400..=428)) => false,
            found => found?,
        };
        let why = match below {
            b"" => same(into, from),
            _ => format!("`{}` lies in `{from}`", Place::Local(into.path().to_owned())),
        };
        ensure!(!found, NotDone(format!("{why}: it cannot be copied into itself")));
    }
    Ok(())
}

/// Whether what was put into a directory of this machine is in this one, too.
async fn shows(api: &Api, there: &Spot, probe: &Probe<'_>) -> anyhow::Result<bool> {
    let at = there.below(probe.name());
    match persist(async || api.entry(&at).await).await {
        Ok(_) => Ok(true),
        Err(error) if code(&error) == Some("no_such_path") => Ok(false),
        Err(error) => Err(error),
    }
}

async fn looks_alike(api: &Api, here: &Directory, there: &Spot) -> anyhow::Result<bool> {
    let entry: Entry = match persist(async || api.entry(there).await).await {
        Ok(entry) => serde_json::from_value(entry)?,
        Err(error) if code(&error) == Some("no_such_path") => return Ok(false),
        Err(error) => return Err(error),
    };
    let (uid, modified) = here.owner_and_time()?;
    Ok(entry.kind_behind() == Kind::Directory && entry.uid == Some(uid) && entry.modified_at == Some(modified))
}

fn same(here: &Directory, there: &Spot) -> String {
    format!("`{}` and `{there}` are the same directory", Place::Local(here.path().to_owned()))
}
