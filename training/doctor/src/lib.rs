//! `eirene-train doctor`: what a run would find on this machine, judged, and how to fix what is wrong.
//!
//! Each section has a module that looks ([`Facts::look`](memory::Facts::look) and its like: touches the machine, never fails) and judges
//! (facts in, [`Finding`]s out: tested with made-up facts). What may hang, crash or end the process (other people's libraries, Python, whole
//! runs) is done by children of this very program, which call [`look`].
//!
//! [`preflight`] does the same for several nodes, seconds before a program's ranks start on them.
//!
//! Nothing here needs privileges, and no value of a variable whose name says that it is secret is ever shown.
//!
//! Left to others: what counts as a launcher (`eirene-train-launch`), which MPI fits (`eirene-train-mpi`).

mod cache;
mod child;
mod devices;
mod finding;
mod group;
mod library;
mod look;
mod memory;
mod mpi;
mod network;
mod node;
pub mod preflight;
mod process;
mod python;
mod report;
mod trial;
mod used;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use eirene_train_launch::{Environment, Starter};

use crate::finding::count;
use crate::mpi::Choice;
use crate::report::{Report, Secrets};

pub use finding::{Finding, Level, Section};
pub use look::look;
pub use report::Look;

/// What the doctor needs to know of the process it is in.
#[derive(Debug, Clone)]
pub struct Patient {
    /// The words by which this very program is started again: `[python, -m, eirene_train]`.
    pub program: Vec<OsString>,
    /// The words behind them that lead to [`look`].
    pub look: Vec<OsString>,
    /// The words by which Python is asked about itself; none where there is no Python around this program.
    pub facts: Option<Vec<OsString>>,
    /// Python's `sys.prefix`, where wheels put their libraries.
    pub prefix: Option<PathBuf>,
    /// The environment.
    pub environment: Environment,
}

/// How to examine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Look only: start no MPI and no ranks, and do not import torch.
    pub quick: bool,
    /// One JSON document instead of text for people.
    pub json: bool,
    /// How text for people looks.
    pub look: Look,
}

/// How long a rank with problems stays after its report: Open MPI 5's launcher throws away what it has not yet read of a task that fails.
const LINGER: Duration = Duration::from_millis(500);

/// What the command exits with where there is a problem.
pub const PROBLEMS: u8 = 1;

/// Examines, section by section, and writes what is found. Gives the exit code: 0, or [`PROBLEMS`].
///
/// Where a launcher started several tasks, each must be examined; rank 0 writes the report, the others only their problems, to `aside`, and
/// end with 0: launchers end all tasks when one fails, and rank 0 would not get to its end.
///
/// # Errors
/// When the report cannot be written.
pub fn examine(patient: &Patient, options: Options, to: &mut dyn Write, aside: &mut dyn Write) -> io::Result<u8> {
    let secrets = Secrets::of(&patient.environment);
    let around = library::surroundings(&patient.environment, patient.prefix.clone());
    let process = process::Facts::look(&patient.environment, &around);
    let launch = process.launch.as_ref().ok();
    let (rank, size) = launch.map_or((0, 1), |launch| (launch.rank, launch.size));
    let speaks = rank == 0;
    // Open MPI's mpirun gives its tasks a terminal at which nobody sits.
    let looks =
        if launch.is_some_and(|launch| launch.starter == Starter::Alone) { options.look } else { Look::default() };

    let mut sections: Vec<Section> = Vec::new();
    let mut add = |section: Section, to: &mut dyn Write| -> io::Result<()> {
        let section = secrets.hide_in(section);
        if speaks && !options.json {
            report::write_section(to, &section, looks)?;
        }
        sections.push(section);
        Ok(())
    };
    let host = process.host.clone();
    let version = env!("CARGO_PKG_VERSION");
    if speaks && !options.json {
        writeln!(to, "eirene-train {version} on {host}")?;
    }

    add(process::judge(&process), to)?;
    let look = [patient.program.as_slice(), &patient.look].concat();
    let mpi = mpi::Facts::look(&look, around);
    add(mpi::judge(&mpi, launch.map(|launch| launch.mpi)), to)?;
    let choice = mpi.choice();
    add(used::judge(&used::Facts::look(&patient.environment, launch, choice.clone())), to)?;
    let groups = group::Groups::look();
    let network = network::Facts::look();
    add(node::judge(&node::Facts::look(&patient.environment, launch, &groups)), to)?;
    add(memory::judge(&memory::Facts::look(&groups, !network.infiniband.is_empty())), to)?;
    add(network::judge(&network), to)?;
    add(devices::judge(&devices::Facts::look(&look, &patient.environment)), to)?;
    // What is really tried comes last but for Python: an MPI that fails may take a launcher's whole job with it.
    add(cache::judge(&cache::Facts::look(&patient.environment)), to)?;
    add(python::judge(&python::Facts::look(patient.facts.as_deref(), options.quick)), to)?;
    if !options.quick {
        let chosen = if let Choice::Fits(identity) = &choice { Some(identity) } else { None };
        let facts = trial::Facts::look(&patient.program, &look, chosen, patient.prefix.as_deref(), launch);
        add(trial::judge(&facts), to)?;
    }

    let problems = report::number(&sections, Level::Problem);
    let warnings = report::number(&sections, Level::Warning);
    if !speaks {
        for finding in sections.iter().flat_map(|section| &section.findings) {
            if let (Level::Problem, cure) = (finding.level, finding.cure.as_deref().unwrap_or_default()) {
                writeln!(aside, "eirene-train: rank {rank}: {}; {cure}", finding.fact)?;
            }
        }
    } else if options.json {
        let ok = problems == 0;
        let report = Report { schema: 1, version, host, rank, size, ok, problems, warnings, sections };
        serde_json::to_writer_pretty(&mut *to, &report)?;
        writeln!(to)?;
    } else {
        let others = if size > 1 {
            format!(" (rank 0 of {}; the others say only their problems)", count(size as usize, "rank"))
        } else {
            String::new()
        };
        writeln!(to, "\n{}{others}", report::summary(problems, warnings))?;
    }
    to.flush()?;
    if speaks && size > 1 && problems > 0 {
        std::thread::sleep(LINGER);
    }
    Ok(if problems == 0 || !speaks { 0 } else { PROBLEMS })
}
