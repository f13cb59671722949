//! What is looked at and read: directories, entries, bytes, archives.

use std::collections::HashSet;

use bytes::Bytes;
use eirene_core::{Space, SpaceName};
use eirene_files_protocol::{
    Answer, Archive, ArchiveFormat, Archived, Cursor, Entry, List, Listed, MOST_ARCHIVED, MOST_ENTRIES, Name, Outcome,
    Part, Read, ReadBegins, RelativePath, Sort, Stat, Stated, SumUp, Verb, Version,
};
use eirene_words::say_with;

use super::alike::alike;
use super::outflow::Outflow;
use super::path::{AskedPath, last_name, shown};
use super::{Done, Files, Need, Transfer, Within, answered, wrong_answer};
use crate::actor::Actor;
use crate::error::files::FilesTrouble;
use crate::error::{AppError, FieldError};
use crate::file_processes::Event;

/// A page of a directory, as it is asked for.
#[derive(Debug, Clone)]
pub struct ListWish {
    /// Which directory.
    pub path: AskedPath,
    /// By what.
    pub sort: Sort,
    /// Largest first.
    pub descending: bool,
    /// Whether names that begin with a dot are wanted.
    pub hidden: bool,
    /// Only names with this in them.
    pub filter: Option<String>,
    /// Behind this.
    pub after: Option<Cursor>,
    /// How many at most.
    pub limit: u32,
}

/// A page of a directory.
#[derive(Debug)]
pub struct Listing {
    /// Which directory.
    pub path: RelativePath,
    /// Whether the person may change anything in this space.
    pub writable: bool,
    /// The person's number on the cluster.
    pub uid: u32,
    /// The page.
    pub items: Vec<Entry>,
    /// For each of it, whether another on the page looks like it.
    pub alike: Vec<bool>,
    /// What belongs to it.
    pub listed: Listed,
}

/// One entry.
#[derive(Debug)]
pub struct Looked {
    /// In which space.
    pub space: Space,
    /// Which.
    pub path: RelativePath,
    /// The person's number on the cluster.
    pub uid: u32,
    /// What it is.
    pub stated: Stated,
}

/// A file that is about to be read.
#[derive(Debug, Clone)]
pub struct Content {
    within: Within,
    path: RelativePath,
}

/// A file's bytes, from the first on.
#[derive(Debug)]
pub struct Reading {
    /// Which.
    pub begins: ReadBegins,
    /// The first bytes; none where there are none.
    pub first: Option<Bytes>,
    /// The others.
    pub rest: Outflow,
}

/// A checksum that is being worked out. Dropped, nobody wants it any more.
#[derive(Debug)]
pub struct Summing {
    request: crate::file_processes::Request,
    _place: Transfer,
}

/// An archive, from its first bytes on.
#[derive(Debug)]
pub struct Packed {
    /// What it is called, with its ending.
    pub name: Vec<u8>,
    /// The first bytes.
    pub first: Bytes,
    /// The others.
    pub rest: Outflow,
}

impl Files {
    /// A page of a directory.
    pub async fn list(&self, actor: &Actor, space: &SpaceName, wish: ListWish) -> Result<Listing, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = wish.path.parse()?;
        let limit = wish.limit.clamp(1, MOST_ENTRIES);
        let list = List {
            space: within.number(),
            path: path.clone(),
            sort: wish.sort,
            descending: wish.descending,
            hidden: wish.hidden,
            filter: wish.filter,
            after: wish.after,
            limit,
        };
        let Done { parts, answer } = within.ask(Verb::List(list)).await?;
        let listed = answered!(answer, Answer::Listed(listed) => listed)?;
        let mut items = Vec::new();
        for part in parts {
            items.extend(answered!(part, Part::Entries(entries) => entries)?);
        }
        if items.len() > limit as usize {
            return Err(wrong_answer());
        }
        let writable = within.opens.iter().any(|open| open.number == within.number() && open.writable);
        let alike = alike(&items);
        Ok(Listing { path, writable, uid: within.owner.uid, items, alike, listed })
    }

    /// One entry; a link itself.
    pub async fn look(&self, actor: &Actor, space: &SpaceName, path: &AskedPath) -> Result<Looked, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = path.parse()?;
        let done = within.ask(Verb::Stat(Stat { space: within.number(), path: path.clone() })).await?;
        let stated = answered!(done.answer, Answer::Stated(stated) => stated)?;
        Ok(Looked { space: within.space, path, uid: within.owner.uid, stated })
    }

    /// Begins to work out the SHA-256 of a file, which takes a transfer's place until it is done or dropped.
    pub async fn sum_up(&self, actor: &Actor, space: &SpaceName, path: &AskedPath) -> Result<Summing, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = path.parse_inside()?;
        let place = within.transfer()?;
        let request = within.channel().await?.start(Verb::SumUp(SumUp { space: within.number(), path })).await?;
        Ok(Summing { request, _place: place })
    }

    /// A file, to be read.
    pub async fn content(&self, actor: &Actor, space: &SpaceName, path: &AskedPath) -> Result<Content, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let path = path.parse_inside()?;
        Ok(Content { within, path })
    }

    /// Files and directories with all in them, as one archive: of one, in it by its name; of several, each by its own. All have to be there when
    /// it is asked for; what goes afterwards is left out.
    pub async fn archive(
        &self,
        actor: &Actor,
        space: &SpaceName,
        paths: &[AskedPath],
        format: ArchiveFormat,
    ) -> Result<Packed, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let (name, items) = within.to_archive(paths)?;
        let name = archive_name(name.as_bytes(), format);
        if items.len() > 1 {
            within.all_there(&items).await?;
        }
        let place = self.transfer(actor.user.id)?;
        let verb = Archive { space: within.number(), items, format };
        let (request, stream) = within.begin(Verb::Archive(verb)).await?;
        let (rest, first) = Outflow::new(request, stream, None, place).begun().await?;
        Ok(Packed { name, first, rest })
    }

    /// What an archive of these is called, if all are there.
    pub async fn look_to_archive(
        &self,
        actor: &Actor,
        space: &SpaceName,
        paths: &[AskedPath],
        format: ArchiveFormat,
    ) -> Result<Vec<u8>, AppError> {
        let within = self.within(actor, space, Need::Read).await?;
        let (name, items) = within.to_archive(paths)?;
        within.all_there(&items).await?;
        Ok(archive_name(name.as_bytes(), format))
    }
}

impl Within {
    /// What is to be archived, and what that is called: by its name where it is one thing, by the directory of the first where it is several.
    fn to_archive(&self, paths: &[AskedPath]) -> Result<(Name, Vec<Archived>), AppError> {
        let whole =
            || Name::parse(self.space.name.as_str().as_bytes()).map_err(|error| AppError::Internal(error.into()));
        let wrong = |message| AppError::Invalid(vec![FieldError::new("path", message)]);
        if let [] | [_] = paths {
            let path = paths.first().map(AskedPath::parse).transpose()?.unwrap_or_default();
            let top = last_name(&path).map_or_else(whole, Ok)?;
            return Ok((top.clone(), vec![Archived { path, top }]));
        }
        if paths.len() > MOST_ARCHIVED {
            return Err(wrong(say_with("wrong.none_or_many", &[("most", &MOST_ARCHIVED.to_string())])));
        }
        let mut items: Vec<Archived> = Vec::with_capacity(paths.len());
        let mut names = HashSet::new();
        for path in paths {
            let path = path.parse_inside()?;
            let top = last_name(&path).map_or_else(whole, Ok)?;
            if !names.insert(top.as_bytes().to_vec()) {
                return Err(wrong(say_with("wrong.same_name", &[("name", &shown(top.as_bytes()).0)])));
            }
            items.push(Archived { path, top });
        }
        let above = items[0].path.split_last().map(|(above, _)| above);
        let name = above.and_then(|above| last_name(&above)).map_or_else(whole, Ok)?;
        Ok((name, items))
    }

    /// Looks at each: what is not there is named by its path.
    async fn all_there(&self, items: &[Archived]) -> Result<(), AppError> {
        for item in items {
            let stat = Stat { space: self.number(), path: item.path.clone() };
            match self.ask(Verb::Stat(stat)).await {
                Ok(_) => {}
                Err(AppError::Files(trouble)) if items.len() > 1 && !trouble.is_silence() => {
                    let (path, why) = (shown(item.path.as_bytes()).0, trouble.text.as_str().to_owned());
                    let text = say_with("problem.one_of_them", &[("path", &path), ("why", &why)]);
                    return Err(FilesTrouble { text, ..*trouble }.into());
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

/// How an archive of what is called so is called.
fn archive_name(top: &[u8], format: ArchiveFormat) -> Vec<u8> {
    let ending: &[u8] = match format {
        ArchiveFormat::Tar => b".tar",
        ArchiveFormat::Zip => b".zip",
    };
    [top, ending].concat()
}

impl Summing {
    /// The SHA-256, and of which content, however long it takes: the process says every second that it goes on.
    ///
    /// # Errors
    /// That it cannot be read to its end, that it changed meanwhile, or that nothing was heard.
    pub async fn finished(mut self) -> Result<(Version, [u8; 32]), AppError> {
        loop {
            match self.request.next_in_time().await? {
                Event::Progress(_) => {}
                Event::Outcome(Outcome::Done(Answer::Summed { version, sha256 })) => return Ok((version, sha256.0)),
                Event::Outcome(Outcome::Problem(problem)) => return Err(problem.into()),
                Event::Part(_) | Event::Outcome(Outcome::Done(_)) => return Err(wrong_answer()),
            }
        }
    }
}

impl Content {
    /// What the file is called.
    pub fn name(&self) -> Option<Name> {
        last_name(&self.path)
    }

    /// Which content it has now.
    ///
    /// # Errors
    /// That it cannot be read.
    pub async fn version(&self) -> Result<Version, AppError> {
        let (begins, _) = self.begin(0, Some(0)).await?;
        Ok(begins.version)
    }

    /// Its bytes, from the first wanted to before the last.
    ///
    /// # Errors
    /// That it cannot be read, or that the person has as many transfers as there may be.
    pub async fn read(&self, from: u64, to: Option<u64>) -> Result<Reading, AppError> {
        let place = self.within.transfer()?;
        let (begins, (request, stream)) = self.begin(from, to).await?;
        let (first, rest) = Outflow::new(request, stream, Some(begins.to - begins.from), place).first().await?;
        Ok(Reading { begins, first, rest })
    }

    async fn begin(
        &self,
        from: u64,
        to: Option<u64>,
    ) -> Result<(ReadBegins, (crate::file_processes::Request, tokio::net::UnixStream)), AppError> {
        let read = Read { space: self.within.number(), path: self.path.clone(), from, to };
        let (mut request, stream) = self.within.begin(Verb::Read(read)).await?;
        match request.next_in_time().await? {
            Event::Part(Part::ReadBegins(begins)) => {
                let size = begins.version.bytes;
                let as_asked = begins.from == from && begins.to == to.map_or(size, |to| to.min(size));
                if as_asked && from <= begins.to { Ok((begins, (request, stream))) } else { Err(wrong_answer()) }
            }
            Event::Outcome(Outcome::Problem(problem)) => Err(problem.into()),
            Event::Outcome(Outcome::Done(_)) | Event::Part(_) | Event::Progress(_) => Err(wrong_answer()),
        }
    }
}
