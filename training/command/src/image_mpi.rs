//! The MPI of a session's image, which decides how the ranks of a step meet.
//!
//! To open one takes longer than all else that is done before a step is asked for: it brings dozens of libraries along, which do much as they come.
//! So what was found is kept for the session's next step, and believed as long as the same would be tried in the same surroundings.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use eirene_train_launch::{Error, ImageMpi, variables};
use eirene_train_mpi::{Candidate, Error as MpiError, Family, Identity, Origin, Surroundings};
use serde::{Deserialize, Serialize};

use crate::beside::Beside;
use crate::context::Context;

const NAME: &str = "mpi.json";
/// What the system's loader knows of libraries' names.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// What was found.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    /// [`fingerprint`] of what it was found in.
    fingerprint: u64,
    mpi: ImageMpi,
}

/// The MPI that ranks of this image would find, and what it meets its ranks by. One that lies there and does not open is said, and done without.
/// What is found is kept beside the session's step socket.
///
/// # Errors
/// [`Error::Usage`] where the person has asked for an MPI that the image does not have.
pub(crate) fn of_session(context: &Context, socket: &Path) -> Result<Option<ImageMpi>, Error> {
    let around = Surroundings::of_process(context.prefix.clone());
    let (memory, fingerprint) = (Beside::new(socket, NAME), fingerprint(&around));
    let known = memory.read::<Found>().filter(|found| Some(found.fingerprint) == fingerprint);
    if let Some(found) = known {
        return Ok(Some(found.mpi));
    }
    let opened = open(&around, context.environment.get(variables::TRANSPORT) == Some("mpi"))?;
    // That there is none is soon seen.
    if let (Some(mpi), Some(fingerprint)) = (&opened, fingerprint) {
        memory.keep(&Found { fingerprint, mpi: mpi.clone() });
    }
    Ok(opened)
}

/// Of everything that decides which MPI opens: the surroundings, and the files that would be tried. None where that is known without opening one.
fn fingerprint(around: &Surroundings) -> Option<u64> {
    let candidates = eirene_train_mpi::find(around).ok()?;
    if candidates.iter().any(|candidate| candidate.origin == Origin::Loaded) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    around.environment.hash(&mut hasher);
    around.ancestors.hash(&mut hasher);
    around.prefix.hash(&mut hasher);
    for Candidate { library, .. } in &candidates {
        library.hash(&mut hasher);
        state(library).hash(&mut hasher);
    }
    // Where those lie that have a name alone.
    state(Path::new(LOADER_CACHE)).hash(&mut hasher);
    for directory in around.environment.get("LD_LIBRARY_PATH").into_iter().flat_map(|path| path.split(':')) {
        state(Path::new(directory)).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// Which file it is, and when it was changed.
fn state(path: &Path) -> Option<[i64; 5]> {
    let about = std::fs::metadata(path).ok()?;
    let which = [about.dev(), about.ino(), about.size()].map(u64::cast_signed);
    let [device, inode, size] = which;
    Some([device, inode, size, about.ctime(), about.ctime_nsec()])
}

/// Opens it to see.
fn open(around: &Surroundings, wants_one: bool) -> Result<Option<ImageMpi>, Error> {
    let why = match eirene_train_mpi::choose(around) {
        Ok(library) => {
            let Identity { name, pmi, family, .. } = library.identity();
            return Ok(Some(ImageMpi { name: name.clone(), pmix: !pmi || *family == Family::OpenMpi }));
        }
        Err(why) => why,
    };
    match why {
        // Only of a library that was asked for by name is this the last word.
        MpiError::Open { .. } | MpiError::NotMpi { .. } => {
            let cure = "name one that the image has, or unset it, and ranks use what they find";
            return Err(Error::Usage(format!("EIRENE_TRAIN_MPI names a library that cannot be used: {why}; {cure}")));
        }
        MpiError::Disabled | MpiError::NotFound { .. } if wants_one => {
            let cure = "unset it, and ranks meet by themselves, or start the session with an image that has an MPI";
            return Err(Error::Usage(format!("EIRENE_TRAIN_TRANSPORT=mpi asks for an MPI, and {why}; {cure}")));
        }
        MpiError::NotFound { broken: Some(broken), .. } => {
            // Who does not read stderr does not want to know.
            let _ = writeln!(
                io::stderr(),
                "eirene-train: an MPI of the image's is of no use: {broken}; ranks do without it"
            );
        }
        _ => {}
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use eirene_train_mpi::Environment;

    use super::*;

    fn around(pairs: &[(&str, &str)]) -> Surroundings {
        Surroundings { environment: pairs.iter().copied().collect::<Environment>(), ..Surroundings::default() }
    }

    #[test]
    fn the_same_surroundings_are_known_again_and_others_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let (library, other) = (directory.path().join("libmpi.so"), directory.path().join("other.so"));
        std::fs::write(&library, "one").unwrap();
        std::fs::write(&other, "two").unwrap();
        let named = |library: &Path| around(&[("EIRENE_TRAIN_MPI", library.to_str().unwrap())]);
        let first = fingerprint(&named(&library)).unwrap();
        assert_eq!(fingerprint(&named(&library)), Some(first));
        assert_ne!(fingerprint(&named(&other)), Some(first), "another library");
        std::fs::rename(&other, &library).unwrap();
        assert_ne!(fingerprint(&named(&library)), Some(first), "another library of the same name");

        let plain = fingerprint(&around(&[("PATH", "/nowhere")]));
        assert!(plain.is_some());
        assert_ne!(fingerprint(&around(&[("PATH", "/nowhere"), ("PMIX_RANK", "0")])), plain, "another launcher");
        let searched = || fingerprint(&around(&[("LD_LIBRARY_PATH", directory.path().to_str().unwrap())]));
        let before = searched();
        std::fs::write(directory.path().join("libmpi.so.40"), "a new one").unwrap();
        assert_ne!(searched(), before, "a library came to where the loader looks");
    }

    #[test]
    fn what_is_known_without_opening_is_not_looked_up() {
        assert_eq!(fingerprint(&around(&[("EIRENE_TRAIN_MPI", "none")])), None);
        let loaded = Surroundings { loaded: vec!["/lib/libmpi.so.40".into()], ..Surroundings::default() };
        assert_eq!(fingerprint(&loaded), None);
    }

    #[test]
    fn what_was_found_is_believed_in_the_same_surroundings_alone() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("steps.sock");
        let context = Context::of_this_program();
        let fingerprint = fingerprint(&Surroundings::of_process(None)).unwrap();
        let mpi = ImageMpi { name: "An MPI that no machine has".to_owned(), pmix: true };
        let memory = Beside::new(&socket, NAME);
        memory.keep(&Found { fingerprint, mpi: mpi.clone() });
        assert_eq!(of_session(&context, &socket).unwrap(), Some(mpi.clone()));
        memory.keep(&Found { fingerprint: fingerprint ^ 1, mpi: mpi.clone() });
        assert_ne!(of_session(&context, &socket).unwrap(), Some(mpi));
    }
}
