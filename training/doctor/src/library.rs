//! What a child finds of one MPI library: by opening it, and by starting it. A library may hang, crash, or end the process in either.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use eirene_train_mpi::{Abi, Environment, Error, Family, Identity, Library, Mpi, Options, Pmix, Surroundings};
use serde_json::{Value, json};

use crate::child::{self, Ended, Ending};

/// What came of opening a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It is an MPI.
    Known(Identity),
    /// There is none of this name.
    NotThere,
    /// It is there, but cannot be used.
    Refused(String),
}

/// What came of starting a library.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Started {
    /// It came up.
    Well { rank: u32, size: u32, threads: String, cuda: Option<bool>, took: Duration, ended: bool },
    /// It said why not.
    Refused(String),
    /// It hung, crashed, or ended the process; with its last words.
    Ended(String),
}

/// How long opening may take.
const OPENING: Duration = Duration::from_secs(3);

/// Opens a library in a child.
pub(crate) fn open(look: &[OsString], library: &Path) -> Opened {
    let words = [look, &["open".into(), library.into()]].concat();
    let ended = child::run(&words, &[], OPENING);
    let Some(answer) = ended.answer() else {
        return Opened::Refused(format!("it is not usable: the process that opened it {}", told(&ended)));
    };
    if let Some(identity) = identity(&answer["identity"]) {
        return Opened::Known(identity);
    }
    match answer["refused"].as_str() {
        Some(_) if answer["absent"] == true => Opened::NotThere,
        Some(why) => Opened::Refused(why.to_owned()),
        None => Opened::Refused("its answer makes no sense".to_owned()),
    }
}

/// Starts a library in a child, in place of this process: the launcher takes the child for this rank.
pub(crate) fn start(look: &[OsString], library: &Path, prefix: Option<&Path>, limit: Duration) -> Started {
    let words = [look, &["start".into(), limit.as_millis().to_string().into()]].concat();
    let words = [words, prefix.map(OsString::from).into_iter().collect()].concat();
    // The child says itself that it takes too long, with what it knows; where it cannot any more, it is ended.
    let ended = child::run(&words, &[("EIRENE_TRAIN_MPI", library.as_os_str())], limit + Duration::from_millis(400));
    let Some(answer) = ended.answer() else { return Started::Ended(told(&ended)) };
    if let Some(why) = answer["refused"].as_str() {
        return Started::Refused(why.to_owned());
    }
    let number = |name: &str| answer[name].as_u64().unwrap_or(0) as u32;
    Started::Well {
        rank: number("rank"),
        size: number("size"),
        threads: answer["threads"].as_str().unwrap_or_default().to_owned(),
        cuda: answer["cuda"].as_bool(),
        took: Duration::from_millis(answer["ms"].as_u64().unwrap_or(0)),
        ended: ended.ending == Ending::Code(0),
    }
}

fn told(ended: &Ended) -> String {
    let words = ended.last_words();
    if words.is_empty() { ended.ending.to_string() } else { format!("{} ({words})", ended.ending) }
}

/// The child's part of [`open`].
pub(crate) fn answer_open(library: &OsStr) -> Value {
    match Library::open(Path::new(library)) {
        Ok(library) => json!({"identity": value(library.identity())}),
        Err(error) => {
            let is_file = library.as_encoded_bytes().contains(&b'/') && Path::new(library).exists();
            let absent = !is_file && matches!(&error, Error::Open { message, .. } if message.contains("No such file"));
            json!({"refused": error.to_string(), "absent": absent})
        }
    }
}

/// The child's part of [`start`]: `answer` is called once, before MPI is ended.
pub(crate) fn answer_start(limit: Duration, prefix: Option<PathBuf>, answer: &mut dyn FnMut(&Value)) {
    let around = Surroundings::of_process(prefix);
    let begun = std::time::Instant::now();
    let options = Options { patience: limit, limit, farewell: limit, ..Options::default() };
    let path = around.environment.get("EIRENE_TRAIN_MPI").unwrap_or_default().to_owned();
    let started = Library::open(Path::new(&path)).and_then(|library| Mpi::start(library, &around, &options));
    match started {
        Ok(mpi) => {
            answer(&json!({
                "rank": mpi.rank(),
                "size": mpi.size(),
                "threads": format!("{:?}", mpi.thread_level()).to_lowercase(),
                "cuda": cuda(&mpi.identity().path),
                "ms": begun.elapsed().as_millis() as u64,
            }));
            // Whether it ends well is seen by the exit code.
            if mpi.finalize().is_err() {
                end(1);
            }
        }
        Err(error) => {
            answer(&json!({"refused": error.to_string()}));
            end(1);
        }
    }
}

/// Ends this child without the library's own exit handlers, which may wait for an MPI that has not started.
#[expect(unsafe_code, reason = "_exit")]
pub(crate) fn end(code: i32) -> ! {
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(code) }
}

/// What the library says of itself, where it says anything: it was built to take addresses on a GPU.
#[expect(unsafe_code, reason = "asks a function of the library's")]
fn cuda(library: &Path) -> Option<bool> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(library.as_os_str().as_bytes()).ok()?;
    // SAFETY: the library is open already; this only finds it again.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is good, the name is a C string.
    let address = unsafe { libc::dlsym(handle, c"MPIX_Query_cuda_support".as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: Open MPI and MPICH both give this function this type; MPI is on.
    let ask = unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> libc::c_int>(address) };
    // SAFETY: as above.
    Some(unsafe { ask() } != 0)
}

fn value(identity: &Identity) -> Value {
    let pmix = match identity.pmix {
        Pmix::Absent => json!("absent"),
        Pmix::Unknown => json!("unknown"),
        Pmix::Version(major, minor) => json!([major, minor]),
    };
    json!({
        "abi": match identity.abi { Abi::OpenMpi => "openmpi", Abi::Mpich => "mpich", Abi::Standard => "standard" },
        "family": match identity.family { Family::OpenMpi => "openmpi", Family::Mpich => "mpich" },
        "name": identity.name,
        "standard": [identity.standard.0, identity.standard.1],
        "path": identity.path,
        "pmix": pmix,
        "pmi": identity.pmi,
    })
}

fn identity(value: &Value) -> Option<Identity> {
    let pair = |value: &Value| Some((value[0].as_u64()? as u32, value[1].as_u64()? as u32));
    Some(Identity {
        abi: match value["abi"].as_str()? {
            "openmpi" => Abi::OpenMpi,
            "mpich" => Abi::Mpich,
            "standard" => Abi::Standard,
            _ => return None,
        },
        family: match value["family"].as_str()? {
            "openmpi" => Family::OpenMpi,
            "mpich" => Family::Mpich,
            _ => return None,
        },
        name: value["name"].as_str()?.to_owned(),
        standard: pair(&value["standard"])?,
        path: value["path"].as_str()?.into(),
        pmix: match value["pmix"].as_str() {
            Some("absent") => Pmix::Absent,
            Some(_) => Pmix::Unknown,
            None => pair(&value["pmix"]).map(|(major, minor)| Pmix::Version(major, minor))?,
        },
        pmi: value["pmi"].as_bool()?,
    })
}

/// The same variables, as the other crate reads them.
pub(crate) fn surroundings(environment: &eirene_train_launch::Environment, prefix: Option<PathBuf>) -> Surroundings {
    let variables: Environment = environment.variables().collect();
    Surroundings { environment: variables, ..Surroundings::of_process(prefix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_the_way_from_the_child() {
        for (abi, family, pmix) in [
            (Abi::OpenMpi, Family::OpenMpi, Pmix::Version(4, 2)),
            (Abi::Mpich, Family::Mpich, Pmix::Absent),
            (Abi::Standard, Family::OpenMpi, Pmix::Unknown),
        ] {
            let name = "Open MPI 4.1.4".to_owned();
            let sent = Identity { abi, family, name, standard: (3, 1), path: "/a b".into(), pmix, pmi: true };
            assert_eq!(identity(&value(&sent)), Some(sent));
        }
        assert_eq!(identity(&json!({"abi": "openmpi"})), None);
    }

    #[test]
    fn what_is_no_library_is_told_from_what_is_not_there() {
        assert_eq!(answer_open(OsStr::new("libnosuchmpi.so.1"))["absent"], true);
        let folder = std::env::temp_dir();
        assert_eq!(answer_open(folder.as_os_str())["absent"], false);
        let other = answer_open(OsStr::new("libm.so.6"));
        assert_eq!(other["absent"], false);
        assert!(other["refused"].as_str().unwrap().contains("libm.so.6"), "{other}");
    }
}
