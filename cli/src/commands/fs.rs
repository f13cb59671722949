//! `eirene fs`: files in spaces, and between them and this machine.

mod change;
mod copy;
mod list;
mod room;
mod trash;

use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value};

use crate::api::files::{Entry, Kind};
use crate::api::{Api, ApiError};
use crate::arguments::files::Fs;
use crate::output;
use crate::patience::persist;
use crate::place::{Place, Spot, put_bytes};

/// Of several things, some were not done; each was said why.
#[derive(Debug, thiserror::Error)]
#[error("{failed} of {all} were not {done}")]
pub(crate) struct SomeFailed {
    failed: u64,
    all: u64,
    done: &'static str,
}

/// Something that was asked for was not done, and this is why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotDone(pub(crate) String);

pub(super) async fn run(api: &Api, verb: Fs, json: bool) -> anyhow::Result<()> {
    match verb {
        Fs::Ls(wish) => list::list(api, &wish, json).await,
        Fs::Cp(wish) => copy::copy(api, &wish, json).await,
        Fs::Mv(wish) => change::rename(api, &wish, json).await,
        Fs::Rm(wish) => change::remove(api, &wish, json).await,
        Fs::Mkdir(wish) => change::make_directories(api, &wish, json).await,
        Fs::Du(wish) => room::measure(api, &wish, json).await,
        Fs::Quota => room::quota(api, json).await,
        Fs::Trash(verb) => trash::run(api, verb, json).await,
    }
}

/// What was not done, before why. That nobody answers stays what it is.
fn undone(error: anyhow::Error, what: String) -> anyhow::Error {
    let nobody = match error.downcast_ref() {
        Some(ApiError::Unreachable { .. }) => true,
        Some(ApiError::Unavailable(problem)) => problem.status != 507,
        _ => false,
    };
    if nobody { error.context(what) } else { error.context(NotDone(what)) }
}

/// What lies there; of a link, what it leads to.
async fn kind_at(api: &Api, spot: &Spot) -> anyhow::Result<Kind> {
    if spot.path.is_empty() {
        return Ok(Kind::Directory);
    }
    let entry: Entry = serde_json::from_value(persist(async || api.entry(spot).await).await?)?;
    Ok(entry.kind_behind())
}

/// What became of each of several things, one line each; at the end, whether all went well.
struct Results {
    json: bool,
    done: &'static str,
    failed: u64,
    all: u64,
    first: Option<anyhow::Error>,
}

impl Results {
    fn new(done: &'static str, json: bool) -> Self {
        Self { json, done, failed: 0, all: 0, first: None }
    }

    /// This was done.
    fn done(&mut self, item: Map<String, Value>, sentence: &str) -> anyhow::Result<()> {
        self.all += 1;
        if self.json {
            return output::json_line(&Value::Object(item));
        }
        output::say(sentence);
        Ok(())
    }

    /// This was not. The first is told at the end where there is nothing else, and else before the others.
    fn failed(&mut self, mut item: Map<String, Value>, what: &str, error: anyhow::Error) -> anyhow::Result<()> {
        self.all += 1;
        self.failed += 1;
        let error = undone(error, what.to_owned());
        if self.json {
            item.insert("state".to_owned(), "failed".into());
            item.insert("error".to_owned(), format!("{error:#}").into());
            output::json_line(&Value::Object(item))?;
        }
        match &self.first {
            None => self.first = Some(error),
            Some(_) if self.json => {}
            Some(_) => output::say(&format!("error: {error:#}")),
        }
        Ok(())
    }

    /// How it went.
    fn end(self) -> anyhow::Result<()> {
        match self.first {
            None => Ok(()),
            Some(error) if self.all == 1 => Err(error),
            Some(error) => {
                if !self.json {
                    output::say(&format!("error: {error:#}"));
                }
                Err(SomeFailed { failed: self.failed, all: self.all, done: self.done }.into())
            }
        }
    }
}

/// One thing in the JSON of a command, by where it is.
fn item(key: &str, place: &Place) -> Map<String, Value> {
    let mut item = Map::new();
    put_place(key, place, &mut item);
    item
}

fn put_place(key: &str, place: &Place, item: &mut Map<String, Value>) {
    match place {
        Place::Local(path) => put_bytes(key, path.as_os_str().as_bytes(), item),
        Place::Space(spot) => put_bytes(key, &[spot.space.as_str().as_bytes(), &spot.path].join(&b':'), item),
    }
}
