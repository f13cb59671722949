//! A portal for one person: two spaces, a secret beside them that permissions do not protect, and the file process.
//!
//! The process is tried in two ways: the program as it is, an ordinary user and confined, and the library alone, without Landlock and with
//! the rights of whoever runs the tests, so that what one wall keeps is not put down to the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use eirene_files::{Settings, serve};
use eirene_files_protocol::{
    Answer, Archive, ArchiveFormat, Archived, Channel, Code, Entry, FromFiles, Hello, HostileText, List, MadeAt, Name,
    Open, OpenSpace, Outcome, Part, Preview, Read, RelativePath, RequestNumber, Sort, SpaceNumber, Stat, SumUp,
    ToFiles, Verb,
};
use rustix::net::sockopt;

/// An ordinary user, where the tests run as root.
pub(crate) const PERSON: u32 = 12_345;
/// The space that is asked for.
pub(crate) const SPACE: SpaceNumber = SpaceNumber(1);
/// What nobody may hear of.
pub(crate) const SECRET: &str = "EIRENE-SECRET-CONTENT";
/// How the file is called that nobody may hear of.
pub(crate) const SECRET_NAME: &str = "secret-of-others";

/// After so long without an answer a test has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// How the process is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Program,
    Library,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Program, Self::Library];
}

/// Ends what goes on beside a test when this is dropped, so also where an assertion fails: a scope waits for its threads, and would for ever.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the tests are root's, as where they can make devices.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The program, to be started as an ordinary user.
pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_eirene-files"));
    if is_root() {
        program.uid(PERSON).gid(PERSON);
    }
    program
}

/// Directories: `space`, `other`, and the secret in `outside`.
pub(crate) struct World {
    base: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    /// The same on another disk.
    pub(crate) fn on(disk: &Path) -> Self {
        Self::in_directory(tempfile::tempdir_in(disk).unwrap())
    }

    fn in_directory(base: tempfile::TempDir) -> Self {
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let world = Self { base };
        for name in ["space", "other", "outside"] {
            std::fs::create_dir(world.path(name)).unwrap();
        }
        std::fs::write(world.path("outside").join(SECRET_NAME), SECRET).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// Where something lies in the space.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path("space").join(name)
    }

    pub(crate) fn secret(&self) -> PathBuf {
        self.path("outside").join(SECRET_NAME)
    }

    /// Makes the spaces, and what the tests put into them, the person's who the process is.
    pub(crate) fn hand_over(&self, way: Way) {
        if is_root() && way == Way::Program {
            let spaces = [self.path("space"), self.path("other")];
            let status = Command::new("chown").arg("-Rh").arg(format!("{PERSON}:{PERSON}")).args(spaces).status();
            assert!(status.unwrap().success());
        }
    }

    /// All that anybody could have done to what lies outside: content, names, permissions, owners, links, and the time of the last change.
    pub(crate) fn outside(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u64, i64, i64)> {
        use std::os::unix::fs::MetadataExt as _;
        let mut found = BTreeMap::new();
        let mut left = vec![self.path("outside")];
        while let Some(path) = left.pop() {
            let looked = std::fs::symlink_metadata(&path).unwrap();
            let content = if looked.is_dir() {
                left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            found.insert(path, (content, looked.mode(), looked.nlink(), looked.ctime(), looked.ctime_nsec()));
        }
        found
    }

    fn spaces(&self, writable: bool) -> Open {
        let space = |number, name: &str| {
            let root = HostileText(self.path(name).as_os_str().as_bytes().to_vec());
            let reserved = vec![Name::parse(b".eirene").unwrap()];
            OpenSpace { number: SpaceNumber(number), root, writable, reserved, made: None }
        };
        Open { spaces: vec![space(1, "space"), space(2, "other")] }
    }

    pub(crate) fn portal(&self, way: Way) -> Portal {
        match way {
            Way::Program => self.portal_with(program()),
            Way::Library => {
                let (near, far) = Channel::pair().unwrap();
                std::thread::spawn(move || serve(far, &Settings { least_uid: 0, landlock: false }));
                Portal::open(near, None, &self.spaces(true))
            }
        }
    }

    /// A portal that lets nothing be changed, and a process that would have the rights to: without Landlock.
    pub(crate) fn portal_read_only(&self) -> Portal {
        let (near, far) = Channel::pair().unwrap();
        std::thread::spawn(move || serve(far, &Settings { least_uid: 0, landlock: false }));
        Portal::open(near, None, &self.spaces(false))
    }

    /// A portal that knows where the space was made.
    pub(crate) fn portal_that_knows(&self, made: MadeAt) -> Portal {
        let (near, far) = Channel::pair().unwrap();
        std::thread::spawn(move || serve(far, &Settings { least_uid: 0, landlock: false }));
        let mut open = self.spaces(true);
        open.spaces[0].made = Some(made);
        Portal::open(near, None, &open)
    }

    /// A portal whose process is started so.
    pub(crate) fn portal_with(&self, mut command: Command) -> Portal {
        let (near, far) = Channel::pair().unwrap();
        let child = command.stdin(Stdio::from(far.into_descriptor())).spawn().unwrap();
        // It holds the far end: a process that ends would not be noticed.
        drop(command);
        Portal::open(near, Some(child), &self.spaces(true))
    }
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) parts: Vec<Part>,
    pub(crate) outcome: Outcome,
    pub(crate) stream: Vec<u8>,
}

impl Heard {
    pub(crate) fn code(&self) -> Option<Code> {
        match &self.outcome {
            Outcome::Done(_) => None,
            Outcome::Problem(problem) => Some(problem.code),
        }
    }

    pub(crate) fn entries(self) -> Vec<Entry> {
        assert_eq!(self.code(), None);
        let entries = self.parts.into_iter().map(|part| match part {
            Part::Entries(entries) => entries,
            other => panic!("a list does nothing else: {other:?}"),
        });
        entries.flatten().collect()
    }

    /// Whether anything of the secret is in it.
    pub(crate) fn assert_innocent(&self, what: &str) {
        let said = format!("{:?} {:?}", self.parts, self.outcome);
        // A link's own text may name what it leads to.
        let about_links = matches!(&self.outcome, Outcome::Done(Answer::Stated(stated)) if stated.link.is_some());
        assert!(about_links || !said.contains(SECRET_NAME), "{what}: {said}");
        assert!(!said.contains(SECRET), "{what}: {said}");
        let content = self.stream.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes());
        assert!(!content, "{what}: the secret came out");
    }
}

/// The portal's side.
pub(crate) struct Portal {
    pub(crate) channel: Channel,
    pub(crate) child: Option<Child>,
    pub(crate) hello: Hello,
    next: u64,
}

impl Portal {
    fn open(channel: Channel, child: Option<Child>, spaces: &Open) -> Self {
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
        channel.send(&ToFiles::Open(spaces.clone()).encode().unwrap(), None).unwrap();
        let mut buffer = Vec::new();
        let packet = channel.receive(&mut buffer).unwrap().expect("the process says hello");
        let FromFiles::Hello(hello) = FromFiles::decode(packet.bytes).unwrap() else { panic!("not a hello") };
        Self { channel, child, hello, next: 1 }
    }

    /// Asks without waiting; the far end of the stream, if the verb has one.
    pub(crate) fn begin(&mut self, verb: Verb) -> (RequestNumber, Option<UnixStream>) {
        let number = RequestNumber(self.next);
        self.next += 1;
        let stream = verb.has_stream().then(|| UnixStream::pair().unwrap());
        let frame = ToFiles::Request(number, verb).encode().unwrap();
        self.channel.send(&frame, stream.as_ref().map(|(_, near)| near.as_fd())).unwrap();
        (number, stream.map(|(far, _)| far))
    }

    /// The next thing that is said of a request, but for its progress, where no other one is under way.
    #[expect(clippy::result_large_err, reason = "an outcome is what the tests look at")]
    pub(crate) fn hear(&self, number: RequestNumber) -> Result<Part, Outcome> {
        let (of, said) = self.hear_any();
        assert_eq!(of, number, "not expected: {said:?}");
        said
    }

    /// The next thing that is said of any request, but for progress.
    pub(crate) fn hear_any(&self) -> (RequestNumber, Result<Part, Outcome>) {
        loop {
            let mut buffer = Vec::new();
            let packet = self.channel.receive(&mut buffer).unwrap().expect("the process still answers");
            match FromFiles::decode(packet.bytes).unwrap() {
                FromFiles::More(of, part) => return (of, Ok(part)),
                FromFiles::Reply(of, outcome) => return (of, Err(outcome)),
                FromFiles::Progress(..) => {}
                FromFiles::Hello(_) => panic!("a second hello"),
            }
        }
    }

    /// Hears the rest of a request, with all that its stream has.
    pub(crate) fn finish(&self, number: RequestNumber, stream: Option<UnixStream>) -> Heard {
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.map(|mut stream| stream.read_to_end(&mut bytes)).transpose().unwrap();
            bytes
        });
        let mut parts = Vec::new();
        let outcome = loop {
            match self.hear(number) {
                Ok(part) => parts.push(part),
                Err(outcome) => break outcome,
            }
        };
        Heard { parts, outcome, stream: reader.join().unwrap() }
    }

    pub(crate) fn ask(&mut self, verb: Verb) -> Heard {
        let (number, stream) = self.begin(verb);
        self.finish(number, stream)
    }

    pub(crate) fn list(&mut self, path: &[u8]) -> Heard {
        self.ask(Verb::List(list(path)))
    }

    pub(crate) fn stat(&mut self, path: &[u8]) -> Heard {
        self.ask(Verb::Stat(Stat { space: SPACE, path: relative(path) }))
    }

    pub(crate) fn read(&mut self, path: &[u8]) -> Heard {
        self.ask(read(path))
    }

    pub(crate) fn archive(&mut self, path: &[u8]) -> Heard {
        self.ask(archive(path))
    }

    /// Every verb on one path.
    pub(crate) fn every_verb(&mut self, path: &[u8]) -> BTreeMap<&'static str, Heard> {
        let heard = [
            ("list", self.list(path)),
            ("stat", self.stat(path)),
            ("read", self.read(path)),
            ("archive", self.archive(path)),
            ("zip", self.ask(zip(path))),
            ("preview", self.ask(preview(path))),
            ("sum up", self.ask(sum_up(path))),
        ];
        for (verb, heard) in &heard {
            heard.assert_innocent(&format!("{verb} {}", path.escape_ascii()));
        }
        heard.into()
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn relative(path: &[u8]) -> RelativePath {
    RelativePath::parse(path).unwrap()
}

pub(crate) fn list(path: &[u8]) -> List {
    List {
        space: SPACE,
        path: relative(path),
        sort: Sort::Name,
        descending: false,
        hidden: true,
        filter: None,
        after: None,
        limit: 1000,
    }
}

pub(crate) fn read(path: &[u8]) -> Verb {
    Verb::Read(Read { space: SPACE, path: relative(path), from: 0, to: None })
}

pub(crate) fn archive(path: &[u8]) -> Verb {
    archive_of(&[(path, b"top")], ArchiveFormat::Tar)
}

pub(crate) fn sum_up(path: &[u8]) -> Verb {
    Verb::SumUp(SumUp { space: SPACE, path: relative(path) })
}

pub(crate) fn preview(path: &[u8]) -> Verb {
    preview_page(path, 0)
}

pub(crate) fn preview_page(path: &[u8], page: u32) -> Verb {
    Verb::Preview(Preview { space: SPACE, path: relative(path), page })
}

pub(crate) fn zip(path: &[u8]) -> Verb {
    archive_of(&[(path, b"top")], ArchiveFormat::Zip)
}

/// Things by their paths and what they are called in the archive.
pub(crate) fn archive_of(items: &[(&[u8], &[u8])], format: ArchiveFormat) -> Verb {
    let item = |(path, top): &(&[u8], &[u8])| Archived { path: relative(path), top: Name::parse(top).unwrap() };
    Verb::Archive(Archive { space: SPACE, items: items.iter().map(item).collect(), format })
}

/// What a tar has: content by path, links as `-> text`.
pub(crate) fn unpack(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path_bytes().into_owned();
        let mut content = Vec::new();
        match entry.link_name_bytes() {
            Some(link) => content.extend_from_slice(&[b"-> ", link.as_ref()].concat()),
            None => drop(entry.read_to_end(&mut content).unwrap()),
        }
        assert!(found.insert(path, content).is_none(), "a name comes once");
    }
    found
}

pub(crate) fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}
