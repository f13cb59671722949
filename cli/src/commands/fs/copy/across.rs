//! From one place in spaces to another: the portal copies, and this program waits.

use anyhow::{Context as _, ensure};
use eirene_core::file_work::OnConflict;
use serde_json::{Map, json};

use super::super::change::{make_directory, whole};
use super::super::kind_at;
use super::{Did, NotDone, Outcome, Report};
use crate::api::Api;
use crate::api::files::Kind;
use crate::arguments::files::CopyFiles;
use crate::operations::{self, Interrupted};
use crate::output;
use crate::patience::persist_once;
use crate::place::{Place, Spot};

pub(super) async fn copy(api: &Api, wish: &CopyFiles, spots: &[&Spot], to: &Spot, json: bool) -> anyhow::Result<()> {
    ensure!(spots.len() == 1 || to.is_directory, "several things go into a directory: end `{to}` with `/`");
    ensure!(!wish.checksum, "`--checksum` is for what goes between this machine and a space");
    let mut pairs = Vec::new();
    for spot in spots {
        let name = spot.last_name().with_context(|| format!("`{spot}` is a whole space: name what is in it"))?;
        pairs.push((*spot, to.taking(name)));
    }
    let bar = output::spinner(json);
    let mut report = Report::new(wish, json, &bar);
    // One by one: what was left alone in which of them is said, too.
    for (from, to) in pairs {
        let did = match copy_one(api, wish, from, &to, json).await {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            did => did,
        };
        report.take(Outcome { from: Place::Space(from.clone()), to: Place::Space(to), named: true, did })?;
    }
    report.end().map(drop)
}

async fn copy_one(api: &Api, wish: &CopyFiles, from: &Spot, to: &Spot, json: bool) -> anyhow::Result<Did> {
    if !wish.recursive {
        let is_directory = kind_at(api, from).await? == Kind::Directory;
        ensure!(!is_directory, NotDone("it is a directory: give `-r` to copy it with all in it".to_owned()));
    }
    if wish.parents
        && let Some(parent) = to.parent().filter(|parent| !parent.path.is_empty())
    {
        make_directory(api, &parent, true).await?;
    }
    let mut one = Map::new();
    from.put("path", &mut one);
    to.put("to", &mut one);
    let on_conflict: OnConflict = wish.on_conflict;
    let mut body = json!({"items": [one], "to_space": to.space, "on_conflict": on_conflict});
    if wish.no_resume {
        body["resume"] = json!(false);
    } else if wish.recursive && on_conflict == OnConflict::Refuse {
        // As between this machine and a space: what is there already and is the same is not copied again. Where it is to give way it does, for there
        // may be more in it than in its original.
        body["resume"] = json!(true);
    }
    let path = format!("spaces/{}/files/copy", from.space);
    let begun = persist_once(async || api.post(&path, &body).await).await?;
    let over = operations::wait(api, begun, &output::spinner(json), &format!("Copying {from}")).await?;
    whole(&over)?;
    Ok(Did::Copied(Some(over.progress.bytes)))
}
