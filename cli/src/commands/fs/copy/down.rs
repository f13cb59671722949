//! From a space to this machine. What the portal lists is hostile until it is a name: nothing is written but beneath the directory that was chosen.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, ensure};
use futures_util::FutureExt as _;
use futures_util::stream::unfold;
use indicatif::ProgressBar;
use serde_json::Value;

use super::super::change::throw_away;
use super::apart::{apart, comes_from_outside};
use super::{Did, NotDone, Outcome, Report, Step, Transfer, beside, run, tree, undone, unless_interrupted};
use crate::api::Api;
use crate::api::files::{Entry, Kind};
use crate::arguments::files::CopyFiles;
use crate::download::{self, Fetched};
use crate::local::{Directory, Name, NoName};
use crate::output::{self, Meter};
use crate::patience::persist;
use crate::place::{Place, Spot};

/// Directories in each other, at most: a listing may go on for ever.
const MOST_DEPTH: usize = 256;

/// Something of a space, and where it goes.
struct Todo {
    from: Spot,
    entry: Entry,
    /// The directory that the person chose.
    root: Rc<Directory>,
    /// The names from there on, the last of them its own.
    way: Vec<Name>,
    named: bool,
}

/// Of what is moved: what lies here as it lies there, by its path there, and may go there once all does.
#[derive(Default)]
struct Taken {
    directories: RefCell<HashSet<Vec<u8>>>,
    files: RefCell<HashMap<Vec<u8>, Entry>>,
    /// Where what was named lies, in which directory.
    landed: RefCell<Option<(Rc<Directory>, PathBuf)>>,
}

pub(super) async fn copy(api: &Api, wish: &CopyFiles, spots: &[&Spot], to: &Path, json: bool) -> anyhow::Result<()> {
    go(api, wish, spots, to, json, None).await.map(drop)
}

/// Moves the one thing of the wish; where it lies then.
pub(super) async fn carry(api: &Api, wish: &CopyFiles, from: &Spot, to: &Path, json: bool) -> anyhow::Result<PathBuf> {
    let entry: Entry = serde_json::from_value(persist(async || api.entry(from).await).await?)?;
    ensure!(entry.kind != Kind::Link, NotDone("it is a link: name what it leads to".to_owned()));
    let taken = Taken::default();
    let trees = go(api, wish, &[from], to, json, Some(&taken)).await?;
    let (root, landed) = taken.landed.into_inner().context("nothing is named")?;
    let (directories, files) = (taken.directories.into_inner(), taken.files.into_inner());
    let gone = async {
        root.sync()?;
        unless_interrupted(nothing_else(api, from, directories, files)).await?;
        throw_away(api, from).await
    };
    if let Err(error) = gone.await {
        let at = Place::Local(landed);
        return Err(undone(error, format!("it was copied to `{at}`, and stays where it is as well")));
    }
    trees.iter().try_for_each(Transfer::forget)?;
    Ok(landed)
}

/// Whether nothing lies there but what was copied, as it was then: what goes into the trash goes with all in it.
async fn nothing_else(
    api: &Api,
    from: &Spot,
    mut directories: HashSet<Vec<u8>>,
    mut files: HashMap<Vec<u8>, Entry>,
) -> anyhow::Result<()> {
    let mut todo = Vec::new();
    if directories.remove(&from.path) {
        todo.push(from.clone());
    } else {
        let now: Entry = serde_json::from_value(persist(async || api.entry(from).await).await?)?;
        let same = files.remove(&from.path).is_some_and(|before| now.is_still(&before));
        ensure!(same, NotDone("it was changed meanwhile".to_owned()));
    }
    while let Some(directory) = todo.pop() {
        let mut cursor: Option<String> = None;
        loop {
            let page = persist(async || api.page_of(&directory, true, cursor.as_deref()).await).await?;
            for item in page.items {
                let now: Entry = serde_json::from_value(item)?;
                let path = now.path()?;
                // Each is there once, so that this comes to an end whatever a listing says.
                if now.kind == Kind::Directory && directories.remove(&path) {
                    todo.push(from.at(path));
                    continue;
                }
                let path_shown = || output::name(&path);
                match files.remove(&path) {
                    Some(before) if now.is_still(&before) => {}
                    Some(_) => return Err(NotDone(format!("`{}` was changed meanwhile", path_shown())).into()),
                    None => return Err(NotDone(format!("`{}` appeared meanwhile", path_shown())).into()),
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
    }
    Ok(())
}

async fn go(
    api: &Api,
    wish: &CopyFiles,
    spots: &[&Spot],
    to: &Path,
    json: bool,
    taken: Option<&Taken>,
) -> anyhow::Result<Vec<Transfer>> {
    let shown = Place::Local(to.to_owned());
    let said = to.as_os_str().as_bytes();
    let into = said.ends_with(b"/") || said.ends_with(b"/.") || to.file_name().is_none() || said == b".";
    ensure!(into || spots.len() == 1 || to.is_dir(), "several files go into a directory: end the path with `/`");
    let bar = output::progress(json, 0);
    let mut report = if taken.is_some() { Report::of_move(wish, json, &bar) } else { Report::new(wish, json, &bar) };
    let (mut todo, mut refused) = (Vec::new(), Vec::new());
    for spot in spots {
        let found = look(api, wish, spot).await;
        let (entry, is_directory) = match found {
            Ok(found) => found,
            Err(error) => {
                refused.push(Outcome {
                    from: Place::Space((*spot).clone()),
                    to: shown.clone(),
                    named: true,
                    did: Err(error),
                });
                continue;
            }
        };
        let inside = into || to.is_dir() && (!is_directory || spots.len() > 1);
        let (directory, name) = if inside {
            (to.to_owned(), Name::parse(spot.last_name().unwrap_or(spot.space.as_str().as_bytes()))?)
        } else {
            let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (parent.to_owned(), Name::parse(to.file_name().unwrap_or_default().as_bytes())?)
        };
        if wish.parents {
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make `{}`", Place::Local(directory.clone())))?;
        }
        let root = Rc::new(Directory::open(&directory)?);
        if is_directory && !inside {
            let path = root.path_of(&name);
            let marks: [&[u8]; 5] = [
                b"tree",
                api.base().as_bytes(),
                spot.space.as_str().as_bytes(),
                &spot.path,
                path.as_os_str().as_bytes(),
            ];
            report.trees.push(tree(&marks, root.look(&name)?.is_some(), &shown)?);
        }
        todo.push(Todo { from: (*spot).clone(), entry, root, way: vec![name], named: true });
    }
    for outcome in refused {
        report.take(outcome)?;
    }
    // What was named first goes first.
    todo.reverse();
    let walk = Walk { api, wish, bar: &bar, taken, todo, open: None };
    run(unfold(walk, |mut walk| async move { walk.next().await.map(|step| (step, walk)) }), &mut report).await?;
    report.end()
}

/// What was named, and whether it is a directory.
async fn look(api: &Api, wish: &CopyFiles, spot: &Spot) -> anyhow::Result<(Entry, bool)> {
    let entry: Entry = serde_json::from_value(persist(async || api.entry(spot).await).await?)?;
    match entry.kind_behind() {
        Kind::File => Ok((entry, false)),
        Kind::Directory if wish.recursive => Ok((entry, true)),
        Kind::Directory => Err(NotDone("it is a directory: give `-r` to copy it with all in it".to_owned()).into()),
        Kind::Link | Kind::Mount | Kind::Other => Err(NotDone(NO_FILE.to_owned()).into()),
    }
}

const NO_FILE: &str = "it is neither a file nor a directory of this space";

/// Goes through what is to be fetched, a directory at a time.
struct Walk<'a> {
    api: &'a Api,
    wish: &'a CopyFiles,
    bar: &'a ProgressBar,
    /// Where it is a part of a move.
    taken: Option<&'a Taken>,
    todo: Vec<Todo>,
    open: Option<Open>,
}

/// A directory that is gone through.
struct Open {
    from: Spot,
    root: Rc<Directory>,
    way: Vec<Name>,
    into: Rc<Directory>,
    items: VecDeque<Value>,
    next: Option<String>,
}

impl<'a> Walk<'a> {
    async fn next(&mut self) -> Option<Step<'a>> {
        let api = self.api;
        loop {
            let Some(open) = &mut self.open else {
                let todo = self.todo.pop()?;
                let is_directory =
                    if todo.named { todo.entry.kind_behind() } else { todo.entry.kind } == Kind::Directory;
                if !is_directory {
                    let into = Rc::clone(&todo.root);
                    // What is moved may lie here already: it had come, and was not removed there before that was interrupted.
                    let moves = self.taken.is_some();
                    return Some(if moves { self.compare(todo, into) } else { self.fetch(todo, into, false) });
                }
                match enter(api, &todo, self.taken.is_some()).await {
                    Ok(open) => {
                        if let Some(taken) = self.taken {
                            taken.directories.borrow_mut().insert(todo.from.path.clone());
                            taken.land(&todo, path_of(&todo));
                        }
                        self.open = Some(open);
                    }
                    Err(error) => return Some(said(&todo, Err(error))),
                }
                continue;
            };
            let Some(item) = open.items.pop_front() else {
                let Some(cursor) = open.next.take() else {
                    self.open = None;
                    continue;
                };
                let from = open.from.clone();
                match persist(async || api.page_of(&from, true, Some(&cursor)).await).await {
                    Ok(page) => (open.items, open.next) = (page.items.into(), page.next),
                    Err(error) => {
                        let to = Place::Local(open.root.path_of_way(&open.way));
                        self.open = None;
                        let error = error.context("it could not be listed to its end");
                        return Some(Step::Said(Outcome {
                            from: Place::Space(from),
                            to,
                            named: false,
                            did: Err(error),
                        }));
                    }
                }
                continue;
            };
            let (todo, into) = match believe(open, item) {
                Ok(todo) => (todo, Rc::clone(&open.into)),
                Err((from, error)) => {
                    let to = Place::Local(open.root.path_of_way(&open.way));
                    return Some(Step::Said(Outcome { from: Place::Space(from), to, named: false, did: Err(error) }));
                }
            };
            match todo.entry.kind {
                Kind::Directory => self.todo.push(todo),
                Kind::File => return Some(self.compare(todo, into)),
                Kind::Link => return Some(said(&todo, Err(NotDone("it is a link".to_owned()).into()))),
                Kind::Mount | Kind::Other => return Some(said(&todo, Err(NotDone(NO_FILE.to_owned()).into()))),
            }
        }
    }

    /// Fetches it, unless it is there or something else is.
    fn compare(&self, todo: Todo, into: Rc<Directory>) -> Step<'a> {
        match compare(&todo, &into, self.wish) {
            Ok(None) => self.fetch(todo, into, false),
            Ok(Some(Ok(Did::There))) if self.taken.is_some() => self.fetch(todo, into, true),
            Ok(Some(did)) => said(&todo, did),
            Err(error) => said(&todo, Err(error)),
        }
    }

    /// Fetches it; of what is moved, and `is_there`, whether that is the same is asked instead.
    fn fetch(&self, todo: Todo, into: Rc<Directory>, is_there: bool) -> Step<'a> {
        let (api, wish, bar, taken) = (self.api, self.wish, self.bar, self.taken);
        let copying = async move {
            let to = path_of(&todo);
            let fetched = async {
                let name = todo.way.last().context("nothing is named")?;
                if todo.named && taken.is_some() {
                    apart(api, &into, &todo.from.parent().context("nothing is named")?).await?;
                }
                if todo.named && !wish.recursive {
                    bar.set_message(output::name(todo.from.last_name().unwrap_or_default()));
                }
                let meter = Meter::new(bar, todo.entry.size_bytes.unwrap_or_default());
                let (path, did) = if is_there {
                    download::compare(api, &todo.from, &into, name).await?;
                    meter.to(todo.entry.size_bytes.unwrap_or_default());
                    (into.path_of(name), Did::There)
                } else {
                    let fetching = download::fetch(api, &todo.from, &todo.entry, &into, name, wish, &meter);
                    let Fetched { bytes, path } = fetching.await?;
                    (path, Did::Copied(Some(bytes)))
                };
                if let Some(taken) = taken {
                    taken.files.borrow_mut().insert(todo.from.path.clone(), todo.entry.clone());
                    taken.land(&todo, path.clone());
                }
                Ok::<_, anyhow::Error>((path, did))
            };
            let (to, did) = match fetched.await {
                Ok((path, did)) => (path, Ok(did)),
                Err(error) => (to, Err(error)),
            };
            Outcome { from: Place::Space(todo.from), to: Place::Local(to), named: todo.named, did }
        };
        Step::Copy(copying.boxed_local())
    }
}

impl Taken {
    fn land(&self, todo: &Todo, path: PathBuf) {
        if todo.named {
            *self.landed.borrow_mut() = Some((Rc::clone(&todo.root), path));
        }
    }
}

fn path_of(todo: &Todo) -> PathBuf {
    todo.root.path_of_way(&todo.way)
}

fn said<'a>(todo: &Todo, did: anyhow::Result<Did>) -> Step<'a> {
    let (from, to) = (Place::Space(todo.from.clone()), Place::Local(path_of(todo)));
    Step::Said(Outcome { from, to, named: todo.named, did })
}

/// Makes a directory, and has it listed. What was named must not come into itself, and what `moves` not be in that directory already.
async fn enter(api: &Api, todo: &Todo, moves: bool) -> anyhow::Result<Open> {
    ensure!(todo.way.len() <= MOST_DEPTH, NotDone("it lies in too many directories".to_owned()));
    if let [name] = &todo.way[..]
        && todo.named
    {
        let is_there = todo.root.look(name)?.is_some();
        let into = if is_there { Rc::new(todo.root.enter(name)?) } else { Rc::clone(&todo.root) };
        comes_from_outside(api, &into, &todo.from).await?;
    }
    let page = persist(async || api.page_of(&todo.from, true, None).await).await?;
    let mut into = Rc::clone(&todo.root);
    for name in &todo.way {
        into = Rc::new(into.enter(name)?);
    }
    if moves {
        apart(api, &into, &todo.from).await?;
    }
    let (from, root, way) = (todo.from.clone(), Rc::clone(&todo.root), todo.way.clone());
    Ok(Open { from, root, way, into, items: page.items.into(), next: page.next })
}

/// What the portal lists in a directory, if it lies in that directory and nowhere else.
fn believe(open: &Open, item: Value) -> Result<Todo, (Spot, anyhow::Error)> {
    let here = |error: anyhow::Error| (open.from.clone(), error);
    let entry: Entry = serde_json::from_value(item).map_err(|error| here(error.into()))?;
    let path = entry.path().map_err(here)?;
    let from = open.from.at(path);
    let below = match &open.from.path[..] {
        b"" => Some(&from.path[..]),
        directory => from.path.strip_prefix(directory).and_then(|rest| rest.strip_prefix(b"/")),
    };
    match below.ok_or(NoName).and_then(Name::parse) {
        Ok(name) => {
            let way = open.way.iter().cloned().chain([name]).collect();
            Ok(Todo { from, entry, root: Rc::clone(&open.root), way, named: false })
        }
        Err(error) => Err((from, error.into())),
    }
}

/// A file that is there already, of the same size and time, was fetched before. What is known of it otherwise, without asking.
fn compare(todo: &Todo, into: &Directory, wish: &CopyFiles) -> anyhow::Result<Option<anyhow::Result<Did>>> {
    let Some(name) = todo.way.last() else { return Ok(None) };
    let Some(found) = into.look(name)? else { return Ok(None) };
    let same = found.is_file && todo.entry.is_same_file(found.bytes, found.modified_s);
    Ok(beside(same, wish, &Place::Local(path_of(todo))))
}
