//! What a run would use: the ways between ranks, and where the world's secret lies.

use std::path::{Path, PathBuf};

use eirene_train_launch::{Environment, Launch, Mpi, Place, SecretSource, variables};

use crate::finding::{Finding, Section, bytes};
use crate::mpi::Choice;

/// What decides it.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) launch: Option<Launch>,
    pub(crate) choice: Choice,
    /// What somebody said about encryption.
    pub(crate) encryption: Option<String>,
    /// Where `run` makes its directory, and whether it can.
    pub(crate) base: (PathBuf, Result<(), String>),
    /// Bytes free in the file system of the system's temporary directory; none where it cannot be known.
    pub(crate) room: Option<u64>,
}

impl Facts {
    pub(crate) fn look(environment: &Environment, launch: Option<&Launch>, choice: Choice) -> Self {
        let own = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = own.filter(|path| path.is_dir()).unwrap_or_else(|| PathBuf::from("/tmp"));
        let can = writable(&base);
        let room = nix::sys::statvfs::statvfs("/tmp").ok();
        let room = room.map(|found| found.blocks_available().saturating_mul(found.fragment_size()));
        let encryption = environment.get(variables::ENCRYPTION).map(str::to_owned);
        Self { launch: launch.cloned(), choice, encryption, base: (base, can), room }
    }
}

/// Whether this user may make files in a directory.
pub(crate) fn writable(path: &Path) -> Result<(), String> {
    use nix::unistd::{AccessFlags, access};
    access(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| errno.desc().to_owned())
}

/// Less than this is soon used up.
const LITTLE: u64 = 16 << 20;

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mut findings = vec![
        Finding::ok("used.node", "within a node: shared memory (memfd), handed from rank to rank by descriptor")
            .with("memfd"),
        network(facts.encryption.as_deref()),
        mpi(facts),
        secret(facts),
    ];
    let (base, can) = &facts.base;
    let base = base.display();
    match can {
        Ok(()) => findings.push(Finding::ok(
            "used.directory",
            format!("sockets and the secret's file get a 0700 directory in {base}"),
        )),
        Err(problem) => findings.push(Finding::problem(
            "used.directory",
            format!("nothing can be made in {base}, where ranks of this node meet: {problem}"),
            "set XDG_RUNTIME_DIR to a directory of your own on this node (mode 0700), or make /tmp writable",
        )),
    }
    if let Some(room) = facts.room.filter(|room| *room < LITTLE) {
        let fact = format!("only {} are free in /tmp", bytes(room));
        findings.push(Finding::warning("used.room", fact, "make room: MPIs and torch write there when they start"));
    }
    Section { name: "used", title: "what would be used", findings }
}

fn network(encryption: Option<&str>) -> Finding {
    const ID: &str = "used.network";
    const TCP: &str = "between nodes: TCP connections that prove the world's secret both ways";
    match encryption {
        None | Some("on") => Finding::ok(ID, format!("{TCP} and encrypt what goes over them")).with("tcp"),
        Some("off") => Finding::note(
            ID,
            format!("{TCP}; data is not encrypted ({} is `off` here)", variables::ENCRYPTION),
            "that suits a network that nobody else is on; elsewhere, unset it",
        )
        .with("tcp"),
        Some(word) => Finding::problem(
            ID,
            format!("{} is `{word}`, which means nothing", variables::ENCRYPTION),
            "set it to `on` or `off`, or unset it",
        ),
    }
}

fn mpi(facts: &Facts) -> Finding {
    const ID: &str = "used.mpi";
    let builtin = |why: &str| Finding::ok(ID, format!("messages go by the built-in transport: {why}")).with("builtin");
    let Some(launch) = &facts.launch else {
        return Finding::note(ID, "unknown, for it is unknown who started this process", "see the first section");
    };
    match (launch.mpi, &facts.choice) {
        (Mpi::Never, _) => builtin(match facts.choice {
            Choice::Fits(_) => "nobody started an MPI world here (EIRENE_TRAIN_TRANSPORT=mpi asks for one)",
            Choice::Mismatch(..) | Choice::Nothing | Choice::Off => "nobody started an MPI world here",
        }),
        (Mpi::WhereThere | Mpi::Must, Choice::Fits(identity)) => {
            let fact = format!("the launcher started an MPI world, and {} is taken for it", identity.name);
            Finding::ok(ID, fact).with("mpi")
        }
        (Mpi::WhereThere, Choice::Nothing | Choice::Off) => builtin("there is no MPI, and it needs none"),
        (Mpi::Must, Choice::Nothing | Choice::Off) | (Mpi::WhereThere | Mpi::Must, Choice::Mismatch(..)) => {
            let cure = "see the section on MPI; EIRENE_TRAIN_TRANSPORT=builtin does without";
            Finding::problem(ID, "an MPI world was started, and no MPI here can take part in it", cure)
        }
    }
}

fn secret(facts: &Facts) -> Finding {
    const ID: &str = "used.secret";
    let place = match facts.launch.as_ref().map(|launch| (&launch.secret, &launch.place)) {
        None => return Finding::note(ID, "where the world's secret lies is unknown", "see the first section"),
        Some((SecretSource::None, _)) => {
            "a world of one keeps no secret; `eirene-train run` hands its ranks one by descriptor and in a 0600 file"
                .to_owned()
        }
        Some((SecretSource::Meeting, Place::Directory(_))) => {
            "rank 0 makes the world's secret and leaves it where the ranks meet, readable by its owner only".to_owned()
        }
        Some((SecretSource::Meeting, place)) => {
            format!("rank 0 makes the world's secret and leaves it {place}, readable by its owner only")
        }
        Some((SecretSource::Descriptor(number, None), _)) => format!("the world's secret comes by descriptor {number}"),
        Some((SecretSource::Descriptor(number, Some(file)), _)) => {
            format!("the world's secret comes by descriptor {number}, or from the file {}", file.display())
        }
        Some((SecretSource::File(file), _)) => format!("the world's secret comes from the file {}", file.display()),
    };
    Finding::ok(ID, place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn facts(variables: &[(&str, &str)], choice: Choice) -> Facts {
        let environment = Environment::new(variables.iter().copied(), "c1", 1000);
        let launch = Launch::detect(&environment).unwrap();
        let encryption = environment.get("EIRENE_TRAIN_ENCRYPTION").map(str::to_owned);
        Facts { launch: Some(launch), choice, encryption, base: ("/tmp".into(), Ok(())), room: Some(1 << 40) }
    }

    fn level(facts: &Facts, id: &str) -> Level {
        judge(facts).findings.iter().find(|finding| finding.id == id).unwrap().level
    }

    const HYDRA: [(&str, &str); 4] =
        [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "2")];

    #[test]
    fn a_world_that_no_mpi_can_take_part_in_is_a_problem() {
        assert_eq!(level(&facts(&HYDRA, Choice::Nothing), "used.mpi"), Level::Ok);
        let must = [&HYDRA[..], &[("EIRENE_TRAIN_TRANSPORT", "mpi")]].concat();
        assert_eq!(level(&facts(&must, Choice::Nothing), "used.mpi"), Level::Problem);
        let builtin = [&HYDRA[..], &[("EIRENE_TRAIN_TRANSPORT", "builtin")]].concat();
        assert_eq!(level(&facts(&builtin, Choice::Nothing), "used.mpi"), Level::Ok);
    }

    #[test]
    fn what_is_not_encrypted_is_noted() {
        let network = |word: &str| level(&facts(&[("EIRENE_TRAIN_ENCRYPTION", word)], Choice::Nothing), "used.network");
        assert_eq!([network(""), network("on")], [Level::Ok; 2]);
        assert_eq!((network("off"), network("aes")), (Level::Note, Level::Problem));
    }

    #[test]
    fn a_directory_that_cannot_be_written_in_is_a_problem() {
        let closed = Facts { base: ("/proc".into(), Err("no".to_owned())), ..facts(&[], Choice::Nothing) };
        assert_eq!(level(&closed, "used.directory"), Level::Problem);
        let full = Facts { room: Some(4096), ..facts(&[], Choice::Nothing) };
        assert_eq!(level(&full, "used.room"), Level::Warning);
        assert!(writable(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn the_secret_s_place_is_said_and_never_the_secret() {
        let variables = [
            ("EIRENE_TRAIN_RANK", "0"),
            ("EIRENE_TRAIN_SIZE", "2"),
            ("EIRENE_TRAIN_LOCAL_RANK", "0"),
            ("EIRENE_TRAIN_LOCAL_SIZE", "2"),
            ("EIRENE_TRAIN_WORLD", "run-1"),
            ("EIRENE_TRAIN_SECRET_FILE", "/run/user/1/secret"),
        ];
        let section = judge(&facts(&variables, Choice::Nothing));
        assert!(
            section.findings.iter().any(|finding| finding.fact.contains("from the file /run/user/1/secret")),
            "{section:?}"
        );
    }
}
