//! Where ranks meet and where the secret lies: decided without touching a file, then made ready.
//!
//! One node: a directory that only its owner may enter, with a name that follows from the world's. Nobody but its owner can make
//! the directory safe, so one that somebody else made first is refused; another name would not do, for all ranks must agree on it.
//! Several nodes: a file in a directory that all of them see, or the address that `eirene-train run` found.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::detect::Claim;
use crate::environment::Environment;
use crate::error::Error;
use crate::launch::{Place, SecretSource};
use crate::variables;

/// Letters of the world's name that are kept readable in file names.
const READABLE: usize = 20;

/// Where the ranks of a claim's world meet.
pub(crate) fn place(claim: &Claim, environment: &Environment) -> Result<(Place, SecretSource), Error> {
    if claim.size == 1 {
        return Ok((Place::Nobody, SecretSource::None));
    }
    let secret = secret(environment)?;
    let place = match environment.get(variables::MEETING) {
        Some(text) => named(text, claim, environment)?,
        None => agreed(None, claim, environment)?,
    };
    if matches!(place, Place::Address { .. } | Place::Listener(_)) && secret == SecretSource::Meeting {
        return Err(Error::Missing {
            found: format!("{} is an address", variables::MEETING),
            variable: variables::SECRET_FILE,
            cure: "set it to a file that all ranks can read and nobody else, with 32 hexadecimal digits",
        });
    }
    Ok((place, secret))
}

/// What `EIRENE_TRAIN_MEETING` says.
fn named(text: &str, claim: &Claim, environment: &Environment) -> Result<Place, Error> {
    let malformed = || Error::Malformed {
        variable: variables::MEETING.to_owned(),
        value: text.chars().take(60).flat_map(char::escape_default).collect(),
        expected: "must be the absolute path of a directory that all nodes see, or `tcp://HOST:PORT`",
    };
    if let Some(address) = text.strip_prefix("tcp://") {
        let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = crate::detect::parse(port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        return match port {
            Some(port) if !host.is_empty() => Ok(Place::Address { host: host.to_owned(), port }),
            _ => Err(malformed()),
        };
    }
    if let Some(descriptor) = text.strip_prefix("descriptor:") {
        let descriptor = crate::detect::parse(descriptor).and_then(|number| i32::try_from(number).ok());
        return descriptor.filter(|number| *number > 2).map(Place::Listener).ok_or_else(malformed);
    }
    if let Some(path) = directory_named(text) {
        return Ok(Place::Directory(path));
    }
    let path = Path::new(text);
    if path.is_absolute() { agreed(Some(path), claim, environment) } else { Err(malformed()) }
}

/// A place that follows from the world's name alone.
fn agreed(shared: Option<&Path>, claim: &Claim, environment: &Environment) -> Result<Place, Error> {
    if claim.is_one_node() {
        // The first is taken where it can be; `Launch::plan` knows.
        return Ok(Place::Directory(directory(claim, environment).swap_remove(0)));
    }
    let base = match (shared, environment.get("HOME")) {
        (Some(path), _) => path.to_owned(),
        (None, Some(home)) => Path::new(home).join(".cache/eirene-train"),
        (None, None) => {
            return Err(Error::Missing {
                found: format!("{} ranks are on several nodes", claim.size),
                variable: variables::MEETING,
                cure: "set it to a directory that all nodes see, for HOME is not set either",
            });
        }
    };
    Ok(Place::File(base.join(format!("{}-{}.meeting", environment.uid(), file_name(&claim.world)))))
}

fn secret(environment: &Environment) -> Result<SecretSource, Error> {
    let file = environment.get(variables::SECRET_FILE).map(PathBuf::from);
    let Some(text) = environment.get(variables::SECRET_FD) else {
        return Ok(file.map_or(SecretSource::Meeting, SecretSource::File));
    };
    let descriptor = crate::detect::parse(text).and_then(|number| i32::try_from(number).ok());
    match descriptor.filter(|number| *number > 2) {
        Some(descriptor) => Ok(SecretSource::Descriptor(descriptor, file)),
        None => Err(Error::Malformed {
            variable: variables::SECRET_FD.to_owned(),
            value: text.chars().take(60).flat_map(char::escape_default).collect(),
            expected: "must be the number of an open descriptor",
        }),
    }
}

fn directory_named(meeting: &str) -> Option<PathBuf> {
    meeting.strip_prefix("directory:").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The directory on this node that somebody has named: by `EIRENE_TRAIN_MEETING` to meet in, else by `EIRENE_TRAIN_DIRECTORY`.
pub(crate) fn own_directory(environment: &Environment) -> Option<PathBuf> {
    let to_meet_in = environment.get(variables::MEETING).and_then(directory_named);
    to_meet_in.or_else(|| environment.get(variables::DIRECTORY).map(PathBuf::from).filter(|path| path.is_absolute()))
}

/// Where ranks of this node may meet, best first: what the launcher made, the user's run-time directory, the one for all.
pub(crate) fn directory(claim: &Claim, environment: &Environment) -> Vec<PathBuf> {
    if let Some(path) = own_directory(environment) {
        return vec![path];
    }
    let name = format!("eirene-train-{}-{}", environment.uid(), file_name(&claim.world));
    let own = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    own.into_iter().chain([PathBuf::from("/tmp")]).map(|base| base.join(&name)).collect()
}

/// A file name for a world: its first letters and a hash of all of them.
fn file_name(world: &str) -> String {
    let readable: String = world
        .chars()
        .take(READABLE)
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' })
        .collect();
    // FNV-1a: the same in every build, which the standard library's hashes do not promise.
    let hash = world
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{readable}-{hash:016x}")
}

/// The first directory whose parent is there and safe, made if need be; ours, and closed to all others.
pub(crate) fn private_directory(candidates: &[PathBuf], uid: u32) -> Result<PathBuf, Error> {
    for (index, path) in candidates.iter().enumerate() {
        let is_last = index + 1 == candidates.len();
        // A run-time directory that is named but not there, or not ours, is common in containers.
        if !is_last && !path.parent().is_some_and(|parent| is_ours(parent, uid)) {
            continue;
        }
        make_private(path, uid)?;
        return Ok(path.clone());
    }
    Err(Error::Usage("no directory to meet in".to_owned()))
}

fn is_ours(path: &Path, uid: u32) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid)
}

/// Makes a directory that only its owner may enter, or makes sure that the one that is there is such.
pub(crate) fn make_private(path: &Path, uid: u32) -> Result<(), Error> {
    const CURE: &str = "remove it, or set EIRENE_TRAIN_DIRECTORY to a directory of your own on this node";
    let wrong = |problem: String| Error::Directory { path: path.to_owned(), problem, cure: CURE };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(wrong(format!("cannot be made: {error}"))),
    }
    let metadata = fs::symlink_metadata(path).map_err(|error| wrong(format!("cannot be looked at: {error}")))?;
    if !metadata.is_dir() {
        return Err(wrong("is not a directory".to_owned()));
    }
    if metadata.uid() != uid {
        return Err(wrong(format!("belongs to user {} and not to {uid}: somebody made it first", metadata.uid())));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let mode = metadata.permissions().mode() & 0o7777;
        return Err(wrong(format!("is open to others (mode {mode:04o}, must be 0700)")));
    }
    Ok(())
}

/// The same for the directory of a meeting file, which may lie deeper: those above are made as any directory is.
pub(crate) fn make_shared(path: &Path, uid: u32) -> Result<(), Error> {
    const CURE: &str = "set EIRENE_TRAIN_MEETING to a directory that all nodes see and only you may write in";
    let wrong = |problem: String| Error::Directory { path: path.to_owned(), problem, cure: CURE };
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
        .map_err(|error| wrong(format!("cannot be made: {error}")))?;
    let metadata = fs::metadata(path).map_err(|error| wrong(format!("cannot be looked at: {error}")))?;
    if metadata.uid() != uid {
        return Err(wrong(format!("belongs to user {} and not to {uid}", metadata.uid())));
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return Err(wrong("may be written in by others".to_owned()));
    }
    Ok(())
}
