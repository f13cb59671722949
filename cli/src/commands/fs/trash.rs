//! `eirene fs trash`: what was removed and is not gone yet.

use anyhow::{Context as _, ensure};
use eirene_core::SpaceName;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::put_place;
use crate::api::Api;
use crate::api::files::bytes_of;
use crate::arguments::files::Trash;
use crate::commands::done;
use crate::patience::{persist, persist_once};
use crate::place::{Place, Spot};
use crate::{operations, output, times};

/// Something in the trash.
#[derive(Debug, Deserialize)]
struct Trashed {
    id: String,
    path: Option<String>,
    raw_path: Option<String>,
    kind: String,
    size_bytes: Option<u64>,
    deleted_at: Option<Timestamp>,
}

pub(super) async fn run(api: &Api, verb: Trash, json: bool) -> anyhow::Result<()> {
    match verb {
        Trash::Ls { space } => list(api, &space, json).await,
        Trash::Restore { space, id, to, on_conflict } => {
            let mut body = Map::new();
            body.insert("on_conflict".to_owned(), json!(on_conflict));
            if let Some(to) = &to {
                ensure!(to.space == space, "what was removed from `{space}` can be put back there only");
                ensure!(!to.is_directory, "`{to}` is a directory: name what it shall be called");
                to.put("to", &mut body);
            }
            restore(api, &space, &id, &Value::Object(body), json).await
        }
        Trash::Empty { space, yes } => {
            if !yes {
                output::confirm(&format!("Delete all that is in your trash of `{space}` for good?"))?;
            }
            let path = format!("spaces/{space}/trash");
            let begun = persist_once(async || api.delete(&path).await).await?;
            let over = operations::wait(api, begun, &output::spinner(json), "Emptying the trash").await?;
            let freed = json!({"space": space, "bytes": over.progress.bytes, "entries": over.progress.entries});
            let bytes = output::bytes(over.progress.bytes);
            done(&freed, json, &format!("The trash of {space} is empty; that was {bytes}."))?;
            let left = over.progress.skipped_in_all;
            ensure!(left == 0, super::NotDone(format!("{left} things could not be deleted")));
            Ok(())
        }
    }
}

async fn list(api: &Api, space: &SpaceName, json: bool) -> anyhow::Result<()> {
    let items = persist(async || api.list(&format!("spaces/{space}/trash?limit=200")).await).await?;
    if json {
        return items.iter().try_for_each(output::json_line);
    }
    let now = times::now();
    let mut rows = Vec::new();
    for item in items {
        let item: Trashed = serde_json::from_value(item)?;
        let path = item.path.as_deref().map(|path| bytes_of(path, item.raw_path.as_deref())).transpose()?;
        rows.push(vec![
            item.id,
            item.deleted_at.map_or_else(|| "–".to_owned(), |at| times::relative(at, now)),
            item.size_bytes.map_or(item.kind, output::bytes),
            path.map_or_else(|| "–".to_owned(), |path| output::name(&path)),
        ]);
    }
    output::table(&["ID", "REMOVED", "SIZE", "WAS AT"], rows, "Your trash of this space is empty.")
}

async fn restore(api: &Api, space: &SpaceName, id: &str, body: &Value, json: bool) -> anyhow::Result<()> {
    let path = format!("spaces/{space}/trash/{id}/restore");
    let moved = persist_once(async || api.post(&path, body).await).await?;
    let text = |key: &str| moved.get(key).and_then(Value::as_str);
    let path = bytes_of(text("path").context("the portal's answer was not understood")?, text("raw_path"))?;
    let spot = Spot { space: space.clone(), path, is_directory: false };
    let mut item = Map::new();
    put_place("path", &Place::Space(spot.clone()), &mut item);
    item.insert("state".to_owned(), "restored".into());
    done(&Value::Object(item), json, &format!("Restored {spot}."))
}
