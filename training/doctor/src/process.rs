//! This process: who started it, and whether what the launcher gave it to find the others still reaches it.

use std::path::Path;

use eirene_train_launch::{Environment, Launch, Starter};
use eirene_train_mpi::Surroundings;
use serde_json::json;

use crate::finding::{Finding, Section, count};

/// What a PMIx server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pmix {
    pub(crate) version: Option<String>,
    /// How many variables say where it listens.
    pub(crate) addresses: usize,
    /// The ports among them, and whether anybody listens there; none where that cannot be known.
    pub(crate) ports: Vec<(u16, Option<bool>)>,
    /// Its directory, and whether that can be seen from here.
    pub(crate) directory: Option<(String, bool)>,
}

/// What is known of the start.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) host: String,
    pub(crate) launch: Result<Launch, String>,
    /// Launchers' variables: the start of their names, and how many there are. Their values are not shown.
    pub(crate) variables: Vec<(&'static str, usize)>,
    pub(crate) pmix: Option<Pmix>,
    /// `PMI_FD`, and whether it is open; none where that cannot be known.
    pub(crate) pmi: Option<(i32, Option<bool>)>,
}

const STARTS: [&str; 8] = ["EIRENE_TRAIN_", "PMIX_", "PMI_", "OMPI_", "PRTE_", "MPI_LOCAL", "SLURM_", "TORCHELASTIC_"];

impl Facts {
    pub(crate) fn look(environment: &Environment, around: &Surroundings) -> Self {
        let number = |start: &str| environment.variables().filter(|(name, _)| name.starts_with(start)).count();
        let variables = STARTS.into_iter().map(|start| (start, number(start))).filter(|(_, number)| *number > 0);
        Self {
            host: environment.hostname().to_owned(),
            launch: Launch::detect(environment).map_err(|error| error.to_string()),
            variables: variables.collect(),
            pmix: pmix(environment, around),
            pmi: environment
                .get("PMI_FD")
                .and_then(|text| text.parse().ok())
                .map(|descriptor| (descriptor, around.descriptors.as_ref().map(|open| open.contains(&descriptor)))),
        }
    }
}

fn pmix(environment: &Environment, around: &Surroundings) -> Option<Pmix> {
    let get = |name: &str| environment.get(name).map(str::to_owned);
    if get("PMIX_RANK").is_none() && get("PMIX_NAMESPACE").is_none() {
        return None;
    }
    let uris = environment.variables().filter(|(name, _)| name.starts_with("PMIX_SERVER_URI")).map(|(_, uri)| uri);
    let uris: Vec<&str> = uris.collect();
    let listens = |port: u16| around.listening.as_ref().map(|ports| ports.contains(&port));
    Some(Pmix {
        version: get("PMIX_VERSION"),
        addresses: uris.len(),
        ports: uris.into_iter().filter_map(port).map(|port| (port, listens(port))).collect(),
        directory: get("PMIX_SERVER_TMPDIR").map(|path| {
            let is_there = Path::new(&path).is_dir();
            (path, is_there)
        }),
    })
}

/// The port of `namespace.rank;tcp4://address:port`.
fn port(uri: &str) -> Option<u16> {
    let (_, address) = uri.split_once("://")?;
    address.rsplit_once(':')?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

const PASS_ON: &str = "a wrapper or container on the way hides it: let containers share the host's network, pass PMIX_* and its directory \
                       through, or start by `eirene-train run` or with EIRENE_TRAIN_TRANSPORT=builtin, which need neither";

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mut findings = vec![match &facts.launch {
        Ok(launch) => {
            let fact = launch.explain();
            let value = json!({"starter": launch.starter.word(), "rank": launch.rank, "size": launch.size});
            if launch.starter == Starter::Alone && fact.contains("this is the script or shell") {
                let cure = "start ranks by `srun --mpi=pmix`, or by `eirene-train run --nodes all --ranks-per-node N`";
                Finding::note("process.starter", fact, cure).with(value)
            } else {
                Finding::ok("process.starter", fact).with(value)
            }
        }
        Err(error) => Finding::problem(
            "process.starter",
            format!("who started this process cannot be told: {error}"),
            "do what the message says; EIRENE_TRAIN_STARTER says whom to believe",
        ),
    }];
    if !facts.variables.is_empty() {
        let list: Vec<String> = facts.variables.iter().map(|(start, number)| format!("{start}* {number}")).collect();
        let fact = format!("variables of launchers: {} (values are not shown)", list.join(", "));
        findings.push(Finding::ok("process.variables", fact));
    }
    if let Some(pmix) = &facts.pmix {
        findings.push(judge_pmix(pmix));
        if let Some((path, false)) = &pmix.directory {
            let fact = format!("the PMIx server's directory {path} cannot be seen from this process");
            findings.push(Finding::warning("process.pmix_directory", fact, PASS_ON));
        }
    }
    match facts.pmi {
        Some((descriptor, Some(false))) => findings.push(Finding::problem(
            "process.pmi",
            format!("the launcher's PMI connection, PMI_FD={descriptor}, is not open in this process"),
            "a wrapper or container on the way closed it: let it pass descriptors on, or start with EIRENE_TRAIN_TRANSPORT=builtin",
        )),
        Some((descriptor, _)) => {
            let fact = format!("the launcher's PMI connection (descriptor {descriptor}) is there");
            findings.push(Finding::ok("process.pmi", fact));
        }
        None => {}
    }
    Section { name: "process", title: "this process", findings }
}

fn judge_pmix(pmix: &Pmix) -> Finding {
    let version = pmix.version.as_deref().unwrap_or("of unknown version");
    if pmix.addresses == 0 {
        let fact = "PMIX_RANK is set, but no PMIX_SERVER_URI: the PMIx server is hidden from this process".to_owned();
        return Finding::problem("process.pmix", fact, PASS_ON);
    }
    match pmix.ports.first() {
        Some((port, _)) if pmix.ports.iter().all(|(_, listens)| *listens == Some(false)) => {
            let fact = format!("PMIx server {version}: nobody listens on port {port} in this network namespace");
            Finding::problem("process.pmix", fact, PASS_ON)
        }
        _ => {
            let ways = count(pmix.addresses, "variable");
            Finding::ok("process.pmix", format!("PMIx server {version} can be reached ({ways} say where)"))
                .with(version)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::finding::Level;

    fn section(variables: &[(&str, &str)]) -> Section {
        let environment = Environment::new(variables.iter().copied(), "c1", 1000);
        let around = Surroundings {
            listening: Some(BTreeSet::from([4000])),
            descriptors: Some(BTreeSet::from([0, 1, 2, 9])),
            ..Surroundings::default()
        };
        judge(&Facts::look(&environment, &around))
    }

    fn level(section: &Section, id: &str) -> Option<Level> {
        section.findings.iter().find(|finding| finding.id == id).map(|finding| finding.level)
    }

    const STEP: [(&str, &str); 8] = [
        ("PMIX_RANK", "1"),
        ("PMIX_NAMESPACE", "slurm.pmix.7.0"),
        ("PMIX_VERSION", "4.2.2"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_STEP_NUM_TASKS", "4"),
    ];

    #[test]
    fn nobody_is_fine() {
        let section = section(&[("HOME", "/home/ada")]);
        assert_eq!(section.findings.len(), 1);
        assert!(section.findings[0].fact.starts_with("rank 0 of 1"), "{section:?}");
    }

    #[test]
    fn a_pmix_hidden_under_slurm_is_a_problem_with_its_cure() {
        let hidden = section(&STEP);
        assert_eq!(level(&hidden, "process.pmix"), Some(Level::Problem), "{hidden:?}");
        let deaf = section(&[&STEP[..], &[("PMIX_SERVER_URI4", "x.0;tcp4://127.0.0.1:4001")]].concat());
        let finding = deaf.findings.iter().find(|finding| finding.id == "process.pmix").unwrap();
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.fact.contains("4.2.2") && finding.fact.contains("port 4001"), "{finding:?}");
        assert!(finding.cure.as_ref().unwrap().contains("share the host's network"), "{finding:?}");
        let well = section(&[&STEP[..], &[("PMIX_SERVER_URI4", "x.0;tcp4://127.0.0.1:4000")]].concat());
        assert_eq!(level(&well, "process.pmix"), Some(Level::Ok));
        let far = [&STEP[..], &[("PMIX_SERVER_TMPDIR", "/nowhere/pmix")]].concat();
        assert_eq!(level(&section(&far), "process.pmix_directory"), Some(Level::Warning));
    }

    #[test]
    fn a_closed_pmi_connection_is_a_problem() {
        let hydra = |descriptor| section(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", descriptor)]);
        assert_eq!(level(&hydra("9"), "process.pmi"), Some(Level::Ok));
        assert_eq!(level(&hydra("8"), "process.pmi"), Some(Level::Problem));
    }

    #[test]
    fn launchers_that_contradict_each_other_are_a_problem() {
        let both = section(&[("PMIX_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("RANK", "1"), ("WORLD_SIZE", "3")]);
        assert_eq!(level(&both, "process.starter"), Some(Level::Problem), "{both:?}");
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let section = section(&[&STEP[..], &[("SLURM_JWT", "hush"), ("PMIX_CREDENTIAL", "hush")]].concat());
        assert!(!format!("{section:?}").contains("hush"), "{section:?}");
    }

    #[test]
    fn ports_are_read_from_addresses() {
        assert_eq!(port("pmix.0;tcp4://10.1.2.3:4711"), Some(4711));
        assert_eq!(port("pmix.0;tcp6://[::1]:80:"), None);
        assert_eq!(port("pmix.0;usock:/tmp/x"), None);
    }
}
