//! `eirene fs mv`, `rm` and `mkdir`: what is changed where it lies.

use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};

use super::copy::carry;
use super::{NotDone, Results, item, kind_at, put_place};
use crate::api::files::{Kind, Operation, Refusal, bytes_of};
use crate::api::{Api, code};
use crate::arguments::files::{MakeDirectories, MoveFiles, RemoveFiles};
use crate::operations::{self, Interrupted};
use crate::output;
use crate::patience::persist_once;
use crate::place::{Place, Spot};

/// Most things of one request.
const MOST: usize = 1000;

pub(super) async fn rename(api: &Api, wish: &MoveFiles, json: bool) -> anyhow::Result<()> {
    let mut spots = Vec::new();
    for place in &wish.from {
        let Place::Space(spot) = place else { continue };
        let name = spot.last_name().with_context(|| format!("`{spot}` is a whole space: it cannot be moved"))?;
        spots.push((spot, name));
    }
    ensure!(
        spots.is_empty() || spots.len() == wish.from.len(),
        "give what lies on this machine and what lies in spaces to commands of their own"
    );
    let Place::Space(to) = &wish.to else {
        ensure!(
            !spots.is_empty(),
            "neither is a place in a space, such as `home:data/`: on this machine there is `mv`"
        );
        return carry_all(api, wish, json).await;
    };
    ensure!(wish.from.len() == 1 || to.is_directory, "several things go into a directory: end `{to}` with `/`");
    if spots.is_empty() {
        return carry_all(api, wish, json).await;
    }
    let from = spots.into_iter().map(|(spot, name)| (spot, to.taking(name)));
    let mut results = Results::new("moved", json);
    // One by one: each is told for itself, and what is meant by an answer is never guessed at.
    for (spot, target) in from {
        let mut item = item("from", &Place::Space(spot.clone()));
        put_place("to", &Place::Space(target.clone()), &mut item);
        match rename_one(api, spot, &target, wish, json).await {
            Ok(target) => {
                put_place("to", &Place::Space(target.clone()), &mut item);
                item.insert("state".to_owned(), "moved".into());
                results.done(item, &format!("Moved {spot} to {target}."))?;
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => results.failed(item, &format!("`{spot}` was not moved"), error)?,
        }
    }
    results.end()
}

/// Between this machine and a space, one by one: what was named last may well stay where it is, and what came before is moved.
async fn carry_all(api: &Api, wish: &MoveFiles, json: bool) -> anyhow::Result<()> {
    let mut from = Vec::new();
    for place in &wish.from {
        from.push(match place {
            // A slash at its end, or a dot, would lead through a link.
            Place::Local(path) => {
                ensure!(path.file_name().is_some(), "`{place}` has no name of its own");
                Place::Local(path.components().as_path().to_owned())
            }
            Place::Space(_) => place.clone(),
        });
    }
    let to = match &wish.to {
        Place::Local(path) if from.len() > 1 => {
            let ends = path.as_os_str().as_bytes().ends_with(b"/");
            ensure!(ends || path.is_dir(), "several things go into a directory: end the path with `/`");
            // Each of them goes into it.
            Place::Local(path.join(""))
        }
        to => to.clone(),
    };
    let mut results = Results::new("moved", json);
    for place in from {
        let mut item = item("from", &place);
        match carry(api, wish, &place, &to, json).await {
            Ok(at) => {
                put_place("to", &at, &mut item);
                item.insert("state".to_owned(), "moved".into());
                results.done(item, &format!("Moved {place} to {at}."))?;
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                put_place("to", &to, &mut item);
                results.failed(item, &format!("`{place}` was not moved"), error)?;
            }
        }
    }
    results.end()
}

async fn rename_one(api: &Api, from: &Spot, to: &Spot, wish: &MoveFiles, json: bool) -> anyhow::Result<Spot> {
    let mut one = Map::new();
    from.put("path", &mut one);
    to.put("to", &mut one);
    let mut body = json!({"items": [one], "to_space": to.space, "on_conflict": wish.on_conflict});
    let path = format!("spaces/{}/files/move", from.space);
    let items = match persist_once(async || api.post(&path, &body).await).await {
        Ok(answer) => answer.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
        // It is copied there, and only then put into the trash: that takes a while.
        Err(error) if code(&error) == Some("other_file_system") => {
            body["as_operation"] = true.into();
            let begun = persist_once(async || api.post(&path, &body).await).await?;
            operations::wait(api, begun, &output::spinner(json), &format!("Moving {from}")).await?.progress.items
        }
        Err(error) => return Err(error),
    };
    let moved = items.first().context("the portal's answer was not understood")?;
    let text = |key: &str| moved.get(key).and_then(Value::as_str);
    Ok(to.at(bytes_of(text("path").unwrap_or_default(), text("raw_path"))?))
}

pub(super) async fn make_directories(api: &Api, wish: &MakeDirectories, json: bool) -> anyhow::Result<()> {
    let mut results = Results::new("made", json);
    for spot in &wish.places {
        let mut item = item("path", &Place::Space(spot.clone()));
        match make_directory(api, spot, wish.parents).await {
            Ok(made) => {
                item.insert("state".to_owned(), if made { "made" } else { "there" }.into());
                let sentence = if made { format!("Made {spot}.") } else { format!("{spot} was there already.") };
                results.done(item, &sentence)?;
            }
            Err(error) => results.failed(item, &format!("`{spot}` was not made"), error)?,
        }
    }
    results.end()
}

/// Makes a directory; whether it was not there before.
pub(super) async fn make_directory(api: &Api, spot: &Spot, parents: bool) -> anyhow::Result<bool> {
    let mut body = Map::new();
    spot.put("path", &mut body);
    body.insert("parents".to_owned(), parents.into());
    let (path, body) = (format!("spaces/{}/files/directories", spot.space), Value::Object(body));
    let answer = persist_once(async || api.post(&path, &body).await).await?;
    Ok(answer.get("made").and_then(Value::as_bool).unwrap_or(true))
}

pub(super) async fn remove(api: &Api, wish: &RemoveFiles, json: bool) -> anyhow::Result<()> {
    for spot in &wish.places {
        ensure!(!spot.path.is_empty(), "`{spot}` is a whole space: name what is in it");
    }
    let mut results = Results::new("removed", json);
    let mut doomed: Vec<&Spot> = Vec::new();
    for spot in &wish.places {
        let (item, what) = (item("path", &Place::Space(spot.clone())), format!("`{spot}` was not removed"));
        match kind_at(api, spot).await {
            Ok(Kind::Directory) if !wish.recursive => {
                let error = NotDone("it is a directory: give `-r` to remove it with all in it".to_owned());
                results.failed(item, &what, error.into())?;
            }
            Ok(_) => doomed.push(spot),
            Err(error) => results.failed(item, &what, error)?,
        }
    }
    if wish.delete && !wish.yes && !doomed.is_empty() {
        let what = match doomed[..] {
            [one] => one.to_string(),
            _ => format!("{} things", doomed.len()),
        };
        output::confirm(&format!("Delete {what} for good? It does not go to the trash."))?;
    }
    if wish.delete {
        for spot in doomed {
            delete(api, spot, &mut results, json).await?;
        }
        return results.end();
    }
    // Those of one space together, in the order they were named.
    for some in doomed.chunk_by(|a, b| a.space == b.space).flat_map(|some| some.chunks(MOST)) {
        trash(api, some, &mut results).await?;
    }
    results.end()
}

/// Paths of one space, as a body has them.
fn several(some: &[&Spot]) -> Map<String, Value> {
    let (mut paths, mut raw_paths) = (Vec::new(), Vec::new());
    for spot in some {
        match spot.asked() {
            ("path", text) => paths.push(text),
            (_, raw) => raw_paths.push(raw),
        }
    }
    let mut body = Map::new();
    body.insert("paths".to_owned(), paths.into());
    body.insert("raw_paths".to_owned(), raw_paths.into());
    body
}

/// Puts one thing into the trash.
pub(super) async fn throw_away(api: &Api, spot: &Spot) -> anyhow::Result<()> {
    let (path, body) = (format!("spaces/{}/files/trash", spot.space), Value::Object(several(&[spot])));
    let answer = persist_once(async || api.post(&path, &body).await).await?;
    let refused = answer.get("refused").cloned().unwrap_or_default();
    match serde_json::from_value::<Vec<Refusal>>(refused).unwrap_or_default().into_iter().next() {
        Some(refusal) => Err(NotDone(refusal.text).into()),
        None => Ok(()),
    }
}

async fn trash(api: &Api, some: &[&Spot], results: &mut Results) -> anyhow::Result<()> {
    let Some(first) = some.first() else { return Ok(()) };
    let (path, body) = (format!("spaces/{}/files/trash", first.space), Value::Object(several(some)));
    let answer = match persist_once(async || api.post(&path, &body).await).await {
        Ok(answer) => answer,
        Err(error) if some.len() == 1 => {
            return results.failed(
                item("path", &Place::Space((*first).clone())),
                &format!("`{first}` was not removed"),
                error,
            );
        }
        // Of none of them the portal says more than of the first.
        Err(error) => return Err(error),
    };
    for put in answer.get("items").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| put.get(key).and_then(Value::as_str);
        let spot = first.at(bytes_of(text("path").unwrap_or_default(), text("raw_path"))?);
        let mut item = item("path", &Place::Space(spot.clone()));
        item.insert("state".to_owned(), "trashed".into());
        item.insert("trash_id".to_owned(), text("id").into());
        let id = text("id").unwrap_or_default();
        results.done(item, &format!("{spot} is in the trash (`eirene fs trash restore {} {id}`).", first.space))?;
    }
    let refused = answer.get("refused").cloned().unwrap_or_default();
    for refusal in serde_json::from_value::<Vec<Refusal>>(refused).unwrap_or_default() {
        let spot = first.at(refusal.path()?);
        let mut item = item("path", &Place::Space(spot.clone()));
        item.insert("code".to_owned(), refusal.code.into());
        results.failed(item, &format!("`{spot}` was not removed"), NotDone(refusal.text).into())?;
    }
    Ok(())
}

/// One by one: what was left alone in which of them is said, too.
async fn delete(api: &Api, spot: &Spot, results: &mut Results, json: bool) -> anyhow::Result<()> {
    let mut body = several(&[spot]);
    body.insert("sure".to_owned(), true.into());
    let (path, body) = (format!("spaces/{}/files/delete", spot.space), Value::Object(body));
    let mut item = item("path", &Place::Space(spot.clone()));
    let deleted = async {
        let begun = persist_once(async || api.post(&path, &body).await).await?;
        whole(&operations::wait(api, begun, &output::spinner(json), "Deleting").await?)
    };
    match deleted.await {
        Ok(()) => {
            item.insert("state".to_owned(), "deleted".into());
            results.done(item, &format!("Deleted {spot}."))
        }
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => results.failed(item, &format!("`{spot}` was not deleted"), error),
    }
}

/// Whether an operation about one thing left nothing of it alone.
pub(super) fn whole(over: &Operation) -> anyhow::Result<()> {
    let left = over.progress.skipped_in_all;
    let Some(first) = over.progress.skipped.first() else {
        ensure!(left == 0, NotDone(format!("{left} things in it were left alone")));
        return Ok(());
    };
    let (path, why) = (output::name(&first.path()?), &first.text);
    let text = match left {
        0 | 1 => format!("`{path}` in it was left alone: {why}"),
        _ => format!("{left} things in it were left alone, first of all `{path}`: {why}"),
    };
    Err(NotDone(text).into())
}
