//! From this machine into a space. Directories are made as they are found; links, and what is no file, are left alone and told.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::iter::successors;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use futures_util::FutureExt as _;
use futures_util::stream::unfold;
use indicatif::ProgressBar;

use super::super::change::make_directory;
use super::apart::{apart, outside};
use super::{Did, NotDone, Outcome, Report, Step, Transfer, beside, run, tree};
use crate::api::files::Entry;
use crate::api::{Api, code};
use crate::arguments::files::CopyFiles;
use crate::local::{Directory, is_probe};
use crate::output::{self, Meter};
use crate::patience::persist;
use crate::place::{Place, Spot};
use crate::upload::{self, Source, Version};

/// Something of this machine, and where it goes.
struct Todo {
    path: PathBuf,
    to: Spot,
    is_directory: bool,
    named: bool,
}

/// Of what is moved: what lies there as it lies here, and may be removed here once all does.
#[derive(Default)]
struct Taken {
    /// Each after the one it is in.
    directories: RefCell<Vec<PathBuf>>,
    files: RefCell<Vec<(PathBuf, Version)>>,
    /// Where what was named lies.
    landed: RefCell<Option<Spot>>,
}

pub(super) async fn copy(api: &Api, wish: &CopyFiles, to: &Spot, json: bool) -> anyhow::Result<()> {
    go(api, wish, to, json, None).await.map(drop)
}

/// Moves the one thing of the wish; where it lies then.
pub(super) async fn carry(api: &Api, wish: &CopyFiles, from: &Path, to: &Spot, json: bool) -> anyhow::Result<Spot> {
    let found = from.symlink_metadata()?;
    ensure!(!found.is_symlink(), NotDone("it is a link: name what it leads to".to_owned()));
    let taken = Taken::default();
    let trees = go(api, wish, to, json, Some(&taken)).await?;
    let landed = taken.landed.into_inner().context("nothing is named")?;
    remove(taken.files.into_inner(), &taken.directories.into_inner(), &landed)?;
    trees.iter().try_for_each(Transfer::forget)?;
    Ok(landed)
}

/// Removes here what lies there: files that nobody wrote to since, and directories that are empty then.
fn remove(files: Vec<(PathBuf, Version)>, directories: &[PathBuf], landed: &Spot) -> anyhow::Result<()> {
    let mut stay: Vec<(PathBuf, String)> = Vec::new();
    for (path, version) in files {
        if let Err(error) = remove_file(&path, version) {
            stay.push((path, error.to_string()));
        }
    }
    for directory in directories.iter().rev() {
        match fs::remove_dir(directory) {
            // What stays below is told already.
            Err(error)
                if error.kind() == ErrorKind::DirectoryNotEmpty
                    && stay.iter().any(|(path, _)| path.starts_with(directory)) => {}
            // Or it is nothing of what was copied.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                let first = fs::read_dir(directory).ok().and_then(|mut all| all.next()?.ok());
                let path = first.map_or_else(|| directory.clone(), |first| first.path());
                stay.push((path, "it appeared meanwhile".to_owned()));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => stay.push((directory.clone(), error.to_string())),
            _ => {}
        }
    }
    let Some((first, why)) = stay.first() else { return Ok(()) };
    let (path, more) = (Place::Local(first.clone()), stay.len() - 1);
    let stays = match more {
        0 => format!("`{path}` stays here"),
        _ => format!("`{path}` and {more} more stay here"),
    };
    Err(NotDone(format!("it was copied to `{landed}`, but {stays}: {why}")).into())
}

fn remove_file(path: &Path, version: Version) -> anyhow::Result<()> {
    let found = match path.symlink_metadata() {
        // Somebody was quicker.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    ensure!(Version::of(&found) == version, "it was changed meanwhile");
    Ok(fs::remove_file(path)?)
}

async fn go(
    api: &Api,
    wish: &CopyFiles,
    to: &Spot,
    json: bool,
    taken: Option<&Taken>,
) -> anyhow::Result<Vec<Transfer>> {
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
    let mut report = if taken.is_some() { Report::of_move(wish, json, &bar) } else { Report::new(wish, json, &bar) };
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
    let tops = todo.iter().filter(|todo| todo.is_directory).map(|todo| todo.to.clone()).collect();
    let walk = Walk { api, wish, bar: &bar, taken, tops, todo, open: None };
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
    /// Where it is a part of a move.
    taken: Option<&'a Taken>,
    /// Where the directories that were named go.
    tops: Vec<Spot>,
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
                    return Some(self.send(todo, false));
                }
                match enter(self.api, self.wish, &self.tops, &todo, self.taken.is_some()).await {
                    Ok(open) => {
                        if let Some(taken) = self.taken {
                            taken.directories.borrow_mut().push(todo.path.clone());
                            taken.land(&todo, &todo.to);
                        }
                        self.open = Some(open);
                    }
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
            if is_probe(name.as_bytes()) {
                continue;
            }
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
                        return Some(match did {
                            Ok(Did::There) if self.taken.is_some() => self.send(todo, true),
                            did => said(&todo, did),
                        });
                    }
                    return Some(self.send(todo, false));
                }
                Ok(kind) => {
                    let what = if kind.is_symlink() { "it is a link" } else { "it is neither a file nor a directory" };
                    return Some(said(&todo, Err(NotDone(what.to_owned()).into())));
                }
                Err(error) => return Some(said(&todo, Err(error.into()))),
            }
        }
    }

    /// Sends it, unless it `is_there`; of what is moved it is compared with what lies there then.
    fn send(&self, todo: Todo, is_there: bool) -> Step<'a> {
        let (api, wish, bar, taken) = (self.api, self.wish, self.bar, self.taken);
        let copying = async move {
            let sent = async {
                if todo.named && taken.is_some() {
                    let here = todo.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
                    apart(api, &Directory::open(here)?, &todo.to.parent().context("nothing is named")?).await?;
                }
                let source = Source::open(&todo.path, todo.named && taken.is_none())?;
                if todo.named && !wish.recursive {
                    bar.set_message(output::name(todo.path.file_name().unwrap_or_default().as_bytes()));
                }
                let meter = Meter::new(bar, source.bytes());
                let Some(taken) = taken else {
                    let to = upload::send(api, &source, &todo.to, wish, &meter).await?;
                    return Ok::<_, anyhow::Error>((to, Did::Copied(Some(source.bytes()))));
                };
                let (to, did) = if is_there || todo.named && lies_there(api, &source, &todo.to).await? {
                    meter.to(source.bytes());
                    (todo.to.clone(), Did::There)
                } else {
                    let to = upload::send(api, &source, &todo.to, wish, &meter).await?;
                    (to, Did::Copied(Some(source.bytes())))
                };
                upload::compare(api, &source, &to).await?;
                taken.files.borrow_mut().push((todo.path.clone(), source.version()));
                taken.land(&todo, &to);
                Ok((to, did))
            };
            let (to, did) = match sent.await {
                Ok((to, did)) => (to, Ok(did)),
                Err(error) => (todo.to, Err(error)),
            };
            Outcome { from: Place::Local(todo.path), to: Place::Space(to), named: todo.named, did }
        };
        Step::Copy(copying.boxed_local())
    }
}

impl Taken {
    fn land(&self, todo: &Todo, to: &Spot) {
        if todo.named {
            *self.landed.borrow_mut() = Some(to.clone());
        }
    }
}

/// Whether a file that is moved lies there already, of the same size and time: it was sent, and not removed here before that was interrupted.
async fn lies_there(api: &Api, source: &Source, to: &Spot) -> anyhow::Result<bool> {
    match persist(async || api.entry(to).await).await {
        Ok(entry) => {
            let there: Entry = serde_json::from_value(entry)?;
            let same = there.is_same_file(source.bytes(), source.modified_s());
            if same {
                upload::forget(api, source, to)?;
            }
            Ok(same)
        }
        Err(error) if code(&error) == Some("no_such_path") => Ok(false),
        Err(error) => Err(error),
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

/// Makes a directory, and says what is in it already. It is nothing of what it goes to: what was named must not be on the way there, and nothing in it
/// be where that goes, as where a space is mounted in it. One that `moves` must not be that directory either.
async fn enter(api: &Api, wish: &CopyFiles, tops: &[Spot], todo: &Todo, moves: bool) -> anyhow::Result<Open> {
    let entries = fs::read_dir(&todo.path).context("it cannot be read")?;
    let here = Directory::open(&todo.path)?;
    let way: Vec<Spot> = if todo.named {
        successors(Some(todo.to.clone()), Spot::parent).collect()
    } else {
        // That has been made, and is found under its own name.
        let name = todo.path.file_name().unwrap_or_default().as_bytes();
        tops.iter().filter(|top| top.last_name() == Some(name)).cloned().collect()
    };
    outside(api, &here, &way, moves).await?;
    // Below what was named a directory that is there is as good; and what was named may be there from before.
    let made = match make_directory(api, &todo.to, !todo.named || wish.parents).await {
        Err(error) if todo.named && code(&error) == Some("exists") => false,
        made => made?,
    };
    // A new one is none that was here.
    if moves && !made && !todo.named {
        apart(api, &here, &todo.to).await?;
    }
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn only_what_was_sent_is_removed_and_what_stays_is_told() {
        let home = tempfile::tempdir().unwrap();
        let (top, below) = (home.path().join("top"), home.path().join("top/d"));
        fs::create_dir_all(&below).unwrap();
        let names = ["same", "other name", "written to", "another", "gone", "d/same"];
        fs::write(top.join("same"), "1").unwrap();
        fs::hard_link(top.join("same"), top.join("other name")).unwrap();
        for name in &names[2..] {
            fs::write(top.join(name), "1").unwrap();
        }
        let files = names.map(|name| {
            let path = top.join(name);
            let version = Source::open(&path, false).unwrap().version();
            (path, version)
        });
        fs::write(top.join("written to"), "12").unwrap();
        fs::write(home.path().join("fresh"), "1").unwrap();
        fs::rename(home.path().join("fresh"), top.join("another")).unwrap();
        fs::remove_file(top.join("gone")).unwrap();
        let Place::Space(landed) = Place::from(OsStr::new("home:up").to_owned()) else { panic!("it is one") };
        let error = remove(files.to_vec(), &[top.clone(), below.clone()], &landed).unwrap_err();
        let first = Place::Local(top.join("written to"));
        let says = format!("it was copied to `home:up`, but `{first}` and 1 more stay here: it was changed meanwhile");
        assert_eq!(error.to_string(), says);
        let mut left: Vec<_> = fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["another", "written to"], "{below:?} was empty");
    }
}
