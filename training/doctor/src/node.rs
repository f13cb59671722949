//! The node's processors: how many this process may use, and how its control group and the kernel hold it back.

use std::fs;
use std::path::Path;

use eirene_train_launch::{Environment, Launch};
use eirene_train_reduce::Path as Instructions;
use serde_json::json;

use crate::finding::{Finding, Section, count};
use crate::group::{self, Groups};

/// What is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Processors this process may run on, as the kernel writes the list.
    pub(crate) allowed: String,
    pub(crate) usable: usize,
    pub(crate) online: usize,
    /// Each NUMA node's processors, as the kernel writes the list.
    pub(crate) numa: Vec<String>,
    /// Processors' worth of time that the control group grants; none without a limit.
    pub(crate) quota: Option<f64>,
    pub(crate) instructions: &'static str,
    /// Whether system calls are filtered; none where that cannot be known.
    pub(crate) filtered: Option<bool>,
    /// Huge pages for shared memory, as the kernel is set.
    pub(crate) huge: Option<String>,
    pub(crate) threads: Option<String>,
    /// Whether a launcher started this process as one of several.
    pub(crate) is_rank: bool,
}

impl Facts {
    pub(crate) fn look(environment: &Environment, launch: Option<&Launch>, groups: &Groups) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let usable = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).map_or(0, |set| {
            (0..nix::sched::CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).count()
        });
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").ok();
        Self {
            allowed: field(&status, "Cpus_allowed_list").unwrap_or_default().to_owned(),
            usable,
            online: in_list(online.trim()),
            numa: numa(Path::new("/sys/devices/system/node")),
            quota: groups.quota(),
            instructions: Instructions::best().name(),
            filtered: field(&status, "Seccomp").map(|mode| mode != "0"),
            huge: huge.and_then(|text| group::chosen(&text).map(str::to_owned)),
            threads: environment.get("OMP_NUM_THREADS").map(str::to_owned),
            is_rank: launch.is_some_and(|launch| launch.size > 1),
        }
    }
}

/// A line `Name:\tvalue` of `/proc/self/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

/// How many numbers a list like `0-3,7` has.
fn in_list(list: &str) -> usize {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
        })
        .sum()
}

fn numa(below: &Path) -> Vec<String> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    let mut nodes: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some((number, list.trim().to_owned()))
        })
        .collect();
    nodes.sort_unstable();
    nodes.into_iter().map(|(_, list)| list).collect()
}

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mut findings = vec![cores(facts)];
    if let Some(quota) = facts.quota {
        let fact = format!("the control group grants {quota:.1} processors' worth of time");
        let value = json!(quota);
        findings.push(if quota + 0.01 < facts.usable as f64 {
            let fact = format!("{fact}, and {} may be used: ranks that wait by spinning use it up", facts.usable);
            let cure =
                "start no more ranks and threads than it grants (OMP_NUM_THREADS), or ask for a container with more";
            Finding::warning("node.quota", fact, cure).with(value)
        } else {
            Finding::ok("node.quota", fact).with(value)
        });
    }
    if facts.numa.len() > 1 {
        let list: Vec<String> = facts.numa.iter().enumerate().map(|(node, list)| format!("{node}: {list}")).collect();
        let fact = format!("{} NUMA nodes ({})", facts.numa.len(), list.join("; "));
        let cure =
            "ranks that stay on their node are faster: `eirene-train run --bind core`, or your launcher's binding";
        findings.push(Finding::note("node.numa", fact, cure).with(json!(facts.numa)));
    } else {
        findings.push(Finding::ok("node.numa", "one NUMA node").with(json!(facts.numa)));
    }
    let instructions = facts.instructions;
    let reductions = format!("reductions use the {instructions} path");
    findings.push(
        if instructions == Instructions::Portable.name() && cfg!(target_arch = "x86_64") {
            let fact = format!("{reductions}: this processor, or the machine that emulates it, has no AVX2 and F16C");
            Finding::warning(
                "node.instructions",
                fact,
                "let the virtual machine show the host's processor (`host-passthrough`)",
            )
        } else {
            Finding::ok("node.instructions", reductions)
        }
        .with(instructions),
    );
    match facts.filtered {
        Some(true) => findings.push(Finding::ok(
            "node.seccomp",
            "system calls are filtered (seccomp), as in containers; what is needed is tried below",
        )),
        Some(false) => findings.push(Finding::ok("node.seccomp", "system calls are not filtered")),
        None => {}
    }
    if let Some(huge) = &facts.huge {
        findings
            .push(Finding::ok("node.huge_pages", format!("huge pages for shared memory: {huge}")).with(huge.as_str()));
    }
    Section { name: "node", title: "processors", findings }
}

fn cores(facts: &Facts) -> Finding {
    let Facts { usable, online, allowed, .. } = facts;
    let mut fact = format!("{} of {online} may be used ({allowed})", count(*usable, "processor"));
    if let Some(threads) = &facts.threads {
        fact = format!("{fact}; OMP_NUM_THREADS={threads}");
    }
    let value = json!({"usable": usable, "online": online, "allowed": allowed});
    if *usable == 1 && *online > 1 && facts.is_rank {
        let cure = "well for ranks that only compute; with data loaders or threads of their own, ask for more (`mpirun --bind-to none`)";
        return Finding::note("node.cores", format!("{fact}: the launcher bound this rank to it"), cure).with(value);
    }
    if *usable == 1 && *online > 1 {
        let cure = "all ranks started from here would share it: ask your launcher for more (`srun --cpus-per-task`, `mpirun --bind-to none`)";
        return Finding::warning("node.cores", fact, cure).with(value);
    }
    Finding::ok("node.cores", fact).with(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn facts() -> Facts {
        Facts {
            allowed: "0-7".into(),
            usable: 8,
            online: 8,
            numa: vec!["0-7".into()],
            instructions: "avx2",
            ..Facts::default()
        }
    }

    fn level(facts: &Facts, id: &str) -> Level {
        judge(facts).findings.iter().find(|finding| finding.id == id).unwrap().level
    }

    #[test]
    fn what_holds_ranks_back_is_a_warning() {
        assert!(judge(&facts()).findings.iter().all(|finding| finding.level == Level::Ok));
        assert_eq!(level(&Facts { usable: 1, ..facts() }, "node.cores"), Level::Warning);
        assert_eq!(level(&Facts { usable: 1, is_rank: true, ..facts() }, "node.cores"), Level::Note);
        assert_eq!(level(&Facts { quota: Some(2.0), ..facts() }, "node.quota"), Level::Warning);
        assert_eq!(level(&Facts { quota: Some(8.0), ..facts() }, "node.quota"), Level::Ok);
        assert_eq!(level(&Facts { numa: vec!["0-3".into(), "4-7".into()], ..facts() }, "node.numa"), Level::Note);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!([in_list("0-3,7"), in_list("5"), in_list(""), in_list("3-x,1-0")], [5, 1, 0, 0]);
    }

    #[test]
    fn this_machine_is_seen() {
        let facts = Facts::look(&Environment::default(), None, &Groups::look());
        assert!(facts.usable >= 1 && facts.online >= facts.usable, "{facts:?}");
    }
}
