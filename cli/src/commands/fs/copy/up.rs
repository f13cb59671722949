//! From this machine into a space. Directories are made as they are found; links, and what is no file, are left alone and told.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use futures_util::FutureExt as _;
use futures_util::stream::unfold;
use indicatif::ProgressBar;

use super::super::change::make_directory;
use super::{Did, NotDone, Outcome, Report, Step, beside, run, tree};
use crate::api::files::Entry;
use crate::api::{Api, code};
use crate::arguments::files::CopyFiles;
use crate::output::{self, Meter};
use crate::patience::persist;
use crate::place::{Place, Spot};
use crate::upload::{self, Source};

/// Something of this machine, and where it goes.
struct Todo {
    path: PathBuf,
    to: Spot,
    is_directory: bool,
    named: bool,
}

pub(super) async fn copy(api: &Api, wish: &CopyFiles, to: &Spot, json: bool) -> anyhow::Result<()> {
    ensure!(wish.from.len() == 1 || to.is_directory, "several files go into a directory: end the path with `/`");
    // All that is named is looked at before anything is sent.
    let mut todo = Vec::new();
    for place in &wish.from {
        let Place::Local(path) = place else { continue };
        let found = path.metadata().with_context(|| format!("cannot read `{place}`"))?;
        ensure!(found.is_dir() || found.is_file(), "`{place}` is neither a file nor a directory");
        ensure!(wish.recursive || found.is_file(), "`{place}` is a directory: give `-r` to copy it with all in it");
        let to = to.taking(&name_of(path).with_context(|| format!("`{place}` has no name of its own"))?);
        todo.push(Todo { path: path.clone(), to, is_directory: found.is_dir(), named: true });
    }
    let bar = output::progress(json, 0);
    let mut report = Report::new(wish, json, &bar);
    if !to.is_directory
        && let [Todo { path, to, is_directory: true, .. }] = &todo[..]
    {
        let is_there = match persist(async || api.entry(to).await).await {
            Ok(_) => true,
            Err(error) if code(&error) == Some("no_such_path") => false,
            Err(error) => return Err(error),
        };
        let whole = path.canonicalize()?;
        let marks: [&[u8]; 5] =
            [b"tree", api.base().as_bytes(), whole.as_os_str().as_bytes(), to.space.as_str().as_bytes(), &to.path];
        report.trees.push(tree(&marks, is_there, &Place::Space(to.clone()))?);
    }
    // What was named first goes first.
    todo.reverse();
    let walk = Walk { api, wish, bar: &bar, todo, open: None };
    run(unfold(walk, |mut walk| async move { walk.next().await.map(|step| (step, walk)) }), &mut report).await?;
    report.end()
}

/// What something is called, also where it was said by `.` or `..`.
fn name_of(path: &Path) -> Option<Vec<u8>> {
    let dots = path.as_os_str().as_bytes().ends_with(b"/.");
    let name = |path: &Path| path.file_name().map(|name| name.as_bytes().to_vec());
    match name(path) {
        Some(name) if !dots => Some(name),
        _ => name(&path.canonicalize().ok()?),
    }
}

/// Goes through what is to be sent, a directory at a time.
struct Walk<'a> {
    api: &'a Api,
    wish: &'a CopyFiles,
    bar: &'a ProgressBar,
    todo: Vec<Todo>,
    open: Option<Open>,
}

/// A directory that is gone through.
struct Open {
    entries: fs::ReadDir,
    path: PathBuf,
    to: Spot,
    /// What is there already, by name.
    there: HashMap<Vec<u8>, Entry>,
}

impl<'a> Walk<'a> {
    async fn next(&mut self) -> Option<Step<'a>> {
        loop {
            let Some(open) = &mut self.open else {
                let todo = self.todo.pop()?;
                if !todo.is_directory {
                    return Some(self.send(todo));
                }
                match enter(self.api, self.wish, &todo).await {
                    Ok(open) => self.open = Some(open),
                    Err(error) => return Some(said(&todo, Err(error))),
                }
                continue;
            };
            let entry = match open.entries.next() {
                Some(Ok(entry)) => entry,
                Some(Err(error)) => {
                    let todo = Todo { path: open.path.clone(), to: open.to.clone(), is_directory: true, named: false };
                    self.open = None;
                    return Some(said(
                        &todo,
                        Err(anyhow::Error::from(error).context("it could not be read to its end")),
                    ));
                }
                None => {
                    self.open = None;
                    continue;
                }
            };
            let name = entry.file_name();
            let to = open.to.below(name.as_bytes());
            let mut todo = Todo { path: entry.path(), to, is_directory: false, named: false };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    todo.is_directory = true;
                    self.todo.push(todo);
                }
                Ok(kind) if kind.is_file() => {
                    if let Some(there) = open.there.get(name.as_bytes())
                        && let Some(did) = compare(self.api, &todo, there, self.wish)
                    {
                        return Some(said(&todo, did));
                    }
                    return Some(self.send(todo));
                }
                Ok(kind) => {
                    let what = if kind.is_symlink() { "it is a link" } else { "it is neither a file nor a directory" };
                    return Some(said(&todo, Err(NotDone(what.to_owned()).into())));
                }
                Err(error) => return Some(said(&todo, Err(error.into()))),
            }
        }
    }

    fn send(&self, todo: Todo) -> Step<'a> {
        let (api, wish, bar) = (self.api, self.wish, self.bar);
        let copying = async move {
            let sent = async {
                let source = Source::open(&todo.path, todo.named)?;
                if todo.named && !wish.recursive {
                    bar.set_message(output::name(todo.path.file_name().unwrap_or_default().as_bytes()));
                }
                let meter = Meter::new(bar, source.bytes());
                let to = upload::send(api, &source, &todo.to, wish, &meter).await?;
                Ok::<_, anyhow::Error>((to, source.bytes()))
            };
            let (to, did) = match sent.await {
                Ok((to, bytes)) => (to, Ok(Did::Copied(Some(bytes)))),
                Err(error) => (todo.to, Err(error)),
            };
            Outcome { from: Place::Local(todo.path), to: Place::Space(to), named: todo.named, did }
        };
        Step::Copy(copying.boxed_local())
    }
}

fn said<'a>(todo: &Todo, did: anyhow::Result<Did>) -> Step<'a> {
    let (from, to) = (Place::Local(todo.path.clone()), Place::Space(todo.to.clone()));
    Step::Said(Outcome { from, to, named: todo.named, did })
}

/// A file that is there already, of the same size and time, was sent before. What is known of it otherwise, without asking.
fn compare(api: &Api, todo: &Todo, there: &Entry, wish: &CopyFiles) -> Option<anyhow::Result<Did>> {
    let same = Source::open(&todo.path, false).and_then(|source| {
        let same = there.is_same_file(source.bytes(), source.modified_s());
        if same {
            // It was whole before that was known here.
            upload::forget(api, &source, &todo.to)?;
        }
        Ok(same)
    });
    match same {
        Ok(same) => beside(same, wish, &Place::Space(todo.to.clone())),
        Err(error) => Some(Err(error)),
    }
}

/// Makes a directory, and says what is in it already.
async fn enter(api: &Api, wish: &CopyFiles, todo: &Todo) -> anyhow::Result<Open> {
    let entries = fs::read_dir(&todo.path).context("it cannot be read")?;
    // Below what was named a directory that is there is as good; and what was named may be there from before.
    let made = match make_directory(api, &todo.to, !todo.named || wish.parents).await {
        Err(error) if todo.named && code(&error) == Some("exists") => false,
        made => made?,
    };
    let mut there = HashMap::new();
    let mut cursor: Option<String> = None;
    // In a new one there is nothing.
    loop {
        if made {
            break;
        }
        let page = persist(async || api.page_of(&todo.to, true, cursor.as_deref()).await).await?;
        for item in page.items {
            let entry: Entry = serde_json::from_value(item)?;
            let name = entry.path()?.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            there.insert(name, entry);
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(Open { entries, path: todo.path.clone(), to: todo.to.clone(), there })
}
