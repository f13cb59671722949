//! `eirene fs ls`.

use serde_json::Value;

use crate::api::files::{Entry, Kind};
use crate::api::{Api, code};
use crate::arguments::files::ListFiles;
use crate::patience::persist;
use crate::{output, times};

pub(super) async fn list(api: &Api, wish: &ListFiles, json: bool) -> anyhow::Result<()> {
    let mut cursor: Option<String> = None;
    loop {
        let page = persist(async || api.page_of(&wish.place, wish.all, cursor.as_deref()).await).await;
        let page = match page {
            Ok(page) => page,
            // A file is listed as itself.
            Err(error) if cursor.is_none() && code(&error) == Some("not_a_directory") => {
                return show(&api.entry(&wish.place).await?, wish, json);
            }
            Err(error) => return Err(error),
        };
        // Each page as it comes: a directory may have millions of names.
        for item in &page.items {
            show(item, wish, json)?;
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
        }
    }
}

fn show(item: &Value, wish: &ListFiles, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json_line(item);
    }
    let entry: Entry = serde_json::from_value(item.clone())?;
    let path = entry.path()?;
    let name = output::name(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
    let mark = match entry.kind {
        Kind::Directory | Kind::Mount => "/",
        Kind::Link => "@",
        Kind::File | Kind::Other => "",
    };
    if !wish.long {
        return output::line(&format!("{name}{mark}"));
    }
    let kind = match entry.kind {
        Kind::Directory | Kind::Mount => 'd',
        Kind::Link => 'l',
        Kind::File => '-',
        Kind::Other => '?',
    };
    let mode = entry.mode.as_deref().unwrap_or("?????????");
    let owner = entry.owner.clone().or(entry.uid.map(|uid| uid.to_string())).unwrap_or_else(|| "?".to_owned());
    let size = entry.size_bytes.map_or_else(|| "–".to_owned(), output::bytes);
    let time = entry.modified_at.map_or_else(|| "–".to_owned(), times::local);
    output::line(&format!("{kind}{mode}  {owner:<10} {size:>12}  {time:<21}  {name}{mark}"))
}
