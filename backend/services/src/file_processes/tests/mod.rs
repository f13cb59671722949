//! Against file processes that lie, flood, fall silent and go, and against the real one.

mod client;
mod pool;
mod real;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use eirene_core::UserId;
use eirene_files_protocol::{
    Accounts, Answer, Channel, Code, Entry, EntryKind, FromFiles, Hello, HostileText, List, Listed, Name, Open,
    OpenSpace, OpenedSpace, Outcome, Part, Problem, Read, RelativePath, RequestNumber, Sort, SpaceNumber, ToFiles,
    Verb,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::file_processes::{Limits, Owner};
use crate::testing::PATIENCE;

const UID: u32 = 2001;
/// The space of [`one_space`].
const ONE: SpaceNumber = SpaceNumber(1);
/// Long enough for nothing to happen by itself.
fn patient() -> Limits {
    Limits { reply: PATIENCE, idle: PATIENCE, pause: PATIENCE, most: 8 }
}

fn space(number: u32, root: &Path) -> OpenSpace {
    let root = HostileText(root.as_os_str().as_bytes().to_vec());
    OpenSpace { number: SpaceNumber(number), root, writable: false, reserved: Vec::new(), made: None }
}

fn one_space() -> Vec<OpenSpace> {
    vec![space(1, Path::new("/scratch/ada"))]
}

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

fn list() -> Verb {
    Verb::List(List {
        space: SpaceNumber(1),
        path: path(""),
        sort: Sort::Name,
        descending: false,
        hidden: false,
        filter: None,
        after: None,
        limit: 100,
    })
}

fn read(name: &str) -> Verb {
    Verb::Read(Read { space: SpaceNumber(1), path: path(name), from: 0, to: None })
}

fn owner(name: &str) -> Owner {
    Owner { id: UserId::generate(), name: name.parse().unwrap(), uid: UID }
}

/// The far end of a channel, in the hands of a test.
struct Peer {
    channel: Channel,
    buffer: Vec<u8>,
}

impl Peer {
    fn new(channel: Channel) -> Self {
        rustix::net::sockopt::set_socket_timeout(&channel, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))
            .unwrap();
        Self { channel, buffer: Vec::new() }
    }

    /// The next frame; none when the portal has closed the channel.
    fn hear(&mut self) -> Option<ToFiles> {
        let packet = self.channel.receive(&mut self.buffer).ok().flatten()?;
        Some(ToFiles::decode(packet.bytes).unwrap())
    }

    fn hello(&mut self, uid: u32) {
        self.hello_of(uid, |_| None);
    }

    /// A hello in which spaces have problems.
    fn hello_of(&mut self, uid: u32, problem: impl Fn(SpaceNumber) -> Option<Code>) {
        let Some(ToFiles::Open(open)) = self.hear() else { panic!("the portal opens first") };
        let number = |space: &OpenSpace| space.number;
        let opened = |number| OpenedSpace { number, problem: problem(number).map(Problem::from) };
        let spaces = open.spaces.iter().map(number).map(opened).collect();
        self.say(&FromFiles::Hello(Hello { uid, landlock: None, spaces }));
    }

    fn request(&mut self) -> RequestNumber {
        match self.hear() {
            Some(ToFiles::Request(number, _)) => number,
            other => panic!("{other:?}"),
        }
    }

    /// Says it; to nobody where the portal has gone.
    fn say(&self, frame: &FromFiles) {
        let _ = self.channel.send(&frame.encode().unwrap(), None);
    }

    fn say_raw(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
        let _ = sendmsg(&self.channel, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    }
}

fn listed(number: RequestNumber) -> FromFiles {
    let listed = Listed { entries: 0, at_least: false, next: None, accounts: Accounts::default() };
    FromFiles::Reply(number, Outcome::Done(Answer::Listed(listed)))
}

fn entries(many: usize) -> Part {
    let name = Name::parse(b"a").unwrap();
    let entry = Entry {
        name,
        kind: EntryKind::File,
        bytes: None,
        modified: None,
        mode: None,
        owner: None,
        group: None,
        links: None,
    };
    Part::Entries(vec![entry; many])
}
