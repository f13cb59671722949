//! Which ranks run on which hosts.

use std::path::Path;

use crate::environment::Environment;
use crate::error::Error;
use crate::run::keeper::MOST_GROUPS;
use crate::run::options::{Hosts, Options};

/// A host and the number of its ranks; ranks are dealt out in the order of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    /// As people wrote it, or this host's own name.
    pub(crate) name: String,
    pub(crate) count: u32,
    /// Whether it is this host.
    pub(crate) here: bool,
}

/// A host and how many ranks it takes, where that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) host: String,
    slots: Option<u32>,
}

/// Deals out the ranks.
pub(crate) fn place(options: &Options) -> Result<Vec<Placed>, Error> {
    if options.program.is_empty() {
        return Err(Error::Usage("say which program to run".to_owned()));
    }
    let hosts = match &options.hosts {
        Hosts::Here => vec![Slots { host: "localhost".to_owned(), slots: None }],
        Hosts::List(list) => from_list(list, &options.launcher)?,
        Hosts::File(path) => from_file(path)?,
    };
    let counts = counts(options, &hosts)?;
    let mut placed = Vec::new();
    for (host, count) in hosts.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
        if count as usize > MOST_GROUPS {
            return Err(Error::Usage(format!(
                "{count} ranks on `{}`, but a host takes {MOST_GROUPS} at most",
                host.host
            )));
        }
        let here = is_here(&host.host, &options.launcher);
        let own = options.launcher.hostname();
        let name = if here && !own.is_empty() { own.to_owned() } else { host.host };
        placed.push(Placed { name, count, here });
    }
    Ok(placed)
}

/// How many ranks each host gets.
fn counts(options: &Options, hosts: &[Slots]) -> Result<Vec<u32>, Error> {
    let zero = || Error::Usage("a world has at least one rank".to_owned());
    if options.ranks == Some(0) || options.ranks_per_node == Some(0) {
        return Err(zero());
    }
    let slots: Option<Vec<u32>> = match options.ranks_per_node {
        Some(each) => Some(vec![each; hosts.len()]),
        None => hosts
            .iter()
            .any(|host| host.slots.is_some())
            .then(|| hosts.iter().map(|host| host.slots.unwrap_or(1)).collect()),
    };
    match (options.ranks, slots) {
        (None, Some(slots)) => Ok(slots),
        (None, None) if options.hosts == Hosts::Here => {
            Err(Error::Usage("say how many ranks to run: `-n 4`".to_owned()))
        }
        (None, None) => Ok(vec![1; hosts.len()]),
        (Some(ranks), None) => {
            let many = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
            Ok((0..many).map(|host| ranks / many + u32::from(host < ranks % many)).collect())
        }
        (Some(ranks), Some(slots)) => {
            let room = slots.iter().fold(0_u32, |sum, slots| sum.saturating_add(*slots));
            if ranks > room {
                return Err(Error::Usage(format!("{ranks} ranks were asked for, but the hosts have {room} slots")));
            }
            let mut left = ranks;
            Ok(slots
                .into_iter()
                .map(|slots| {
                    let count = slots.min(left);
                    left -= count;
                    count
                })
                .collect())
        }
    }
}

fn from_list(list: &str, launcher: &Environment) -> Result<Vec<Slots>, Error> {
    let list = if list == "all" {
        let job = launcher.get("SLURM_JOB_NODELIST").or_else(|| launcher.get("SLURM_NODELIST"));
        job.ok_or_else(|| Error::Usage("`--nodes all` are those of SLURM's job, but this is in none".to_owned()))?
    } else {
        list
    };
    let names = eirene_hostlist::expand(list)
        .map_err(|_| Error::Usage(format!("`{}` is no host list like `c[1-4]` or `a,b`", list.escape_default())))?;
    if names.is_empty() {
        return Err(Error::Usage("the list of nodes is empty".to_owned()));
    }
    let mut hosts: Vec<Slots> = Vec::new();
    for host in names {
        if hosts.iter().any(|known| known.host == host) {
            return Err(Error::Usage(format!("host `{host}` is in the list twice; use --ranks-per-node")));
        }
        hosts.push(Slots { host, slots: None });
    }
    Ok(hosts)
}

pub(super) fn from_file(path: &Path) -> Result<Vec<Slots>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::System { what: format!("cannot read host file `{}`", path.display()), source })?;
    let hosts =
        parse_file(&text).map_err(|(line, problem)| Error::HostFile { path: path.to_owned(), line, problem })?;
    if hosts.is_empty() {
        return Err(Error::HostFile {
            path: path.to_owned(),
            line: 1,
            problem: "no host in the whole file".to_owned(),
        });
    }
    Ok(hosts)
}

/// Lines of a host file; what is wrong, and where.
fn parse_file(text: &str) -> Result<Vec<Slots>, (usize, String)> {
    let mut hosts: Vec<Slots> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let parsed = parse_line(line).map_err(|problem| (index + 1, problem))?;
        // A host on several lines has the slots of all of them.
        match hosts.iter_mut().find(|known| known.host == parsed.host) {
            Some(known) => known.slots = Some(known.slots.unwrap_or(1).saturating_add(parsed.slots.unwrap_or(1))),
            None => hosts.push(parsed),
        }
    }
    Ok(hosts)
}

fn parse_line(line: &str) -> Result<Slots, String> {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let (host, mut slots) = match first.split_once(':') {
        Some((host, count)) => (host, Some(slots(count)?)),
        None => (first, None),
    };
    if !is_host(host) {
        return Err(format!("`{}` is no host name", host.escape_default()));
    }
    for word in words {
        match word.split_once('=') {
            Some(("slots", count)) if slots.is_none() => slots = Some(self::slots(count)?),
            Some(("slots", _)) => return Err("slots are said twice".to_owned()),
            // Open MPI's upper bound; ranks never exceed the slots here.
            Some(("max_slots" | "max-slots", _)) => {}
            Some(_) | None => {
                return Err(format!("`{}` is not understood; write `host slots=4`", word.escape_default()));
            }
        }
    }
    Ok(Slots { host: host.to_owned(), slots })
}

fn slots(text: &str) -> Result<u32, String> {
    let count = crate::detect::parse(text).filter(|count| (1..=MOST_GROUPS as u32).contains(count));
    count.ok_or_else(|| format!("`{}` is no number of slots from 1 to {MOST_GROUPS}", text.escape_default()))
}

/// A name that a remote shell cannot take for an option, perhaps with a user before it.
fn is_host(name: &str) -> bool {
    let (user, host) = name.split_once('@').unwrap_or(("x", name));
    [user, host].iter().all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    })
}

fn is_here(name: &str, launcher: &Environment) -> bool {
    let own = launcher.hostname();
    let short = own.split('.').next().unwrap_or_default();
    name == "localhost" || name == "127.0.0.1" || (!own.is_empty() && (name == own || name == short))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(hosts: Hosts, ranks: Option<u32>, each: Option<u32>) -> Options {
        let launcher = Environment::new([("SLURM_JOB_NODELIST", "c[1-3]")], "here.example", 1000);
        Options {
            ranks,
            ranks_per_node: each,
            hosts,
            ..Options::new(vec!["true".into()], vec!["node".into()], launcher)
        }
    }

    fn placed(options: &Options) -> Vec<(String, u32)> {
        place(options).unwrap().into_iter().map(|placed| (placed.name, placed.count)).collect()
    }

    fn list(text: &str) -> Hosts {
        Hosts::List(text.to_owned())
    }

    #[test]
    fn ranks_are_dealt_out_in_blocks() {
        let names =
            |pairs: &[(&str, u32)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>();
        assert_eq!(placed(&options(Hosts::Here, Some(4), None)), names(&[("here.example", 4)]));
        assert_eq!(placed(&options(list("c[1-3]"), Some(7), None)), names(&[("c1", 3), ("c2", 2), ("c3", 2)]));
        assert_eq!(placed(&options(list("c[1-3]"), None, Some(2))), names(&[("c1", 2), ("c2", 2), ("c3", 2)]));
        assert_eq!(placed(&options(list("c[1-3]"), Some(3), Some(2))), names(&[("c1", 2), ("c2", 1)]));
        assert_eq!(placed(&options(list("all"), None, None)), names(&[("c1", 1), ("c2", 1), ("c3", 1)]));
        let here = place(&options(list("here,c1"), None, None)).unwrap();
        assert_eq!(here.iter().map(|placed| placed.here).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn what_does_not_fit_is_refused_in_words() {
        let refused = |options: &Options| place(options).unwrap_err().to_string();
        assert_eq!(refused(&options(Hosts::Here, None, None)), "say how many ranks to run: `-n 4`");
        assert_eq!(refused(&options(Hosts::Here, Some(0), None)), "a world has at least one rank");
        assert_eq!(
            refused(&options(list("a,b"), Some(5), Some(2))),
            "5 ranks were asked for, but the hosts have 4 slots"
        );
        assert_eq!(
            refused(&options(list("a,a"), Some(2), None)),
            "host `a` is in the list twice; use --ranks-per-node"
        );
        assert_eq!(
            refused(&options(list("a,-oProxyCommand=x"), None, None)),
            "`a,-oProxyCommand=x` is no host list like `c[1-4]` or `a,b`"
        );
    }

    #[test]
    fn a_host_file_has_three_ways_to_say_slots() {
        let hosts = parse_file("# the lab\n\nc1 slots=4 max_slots=8\nc2:2  # two\nada@c3\nc2:1\n").unwrap();
        let slots = |host: &str, slots| Slots { host: host.to_owned(), slots };
        assert_eq!(hosts, [slots("c1", Some(4)), slots("c2", Some(3)), slots("ada@c3", None)]);
    }

    #[test]
    fn a_host_file_s_mistake_is_named_with_its_line() {
        let wrong = |text| parse_file(text).unwrap_err();
        assert_eq!(wrong("c1\nc2 slots=many"), (2, "`many` is no number of slots from 1 to 4096".to_owned()));
        assert_eq!(wrong("-oProxyCommand=x"), (1, "`-oProxyCommand=x` is no host name".to_owned()));
        assert_eq!(wrong("c1 4"), (1, "`4` is not understood; write `host slots=4`".to_owned()));
        assert_eq!(wrong("\n\nc1:0"), (3, "`0` is no number of slots from 1 to 4096".to_owned()));
        assert_eq!(wrong("c1:2 slots=2"), (1, "slots are said twice".to_owned()));
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in "[-a-z0-9:=@ \\n#\u{e4}]{0,80}") {
            if let Ok(hosts) = parse_file(&text) {
                prop_assert!(hosts.iter().all(|host| is_host(&host.host)));
            }
        }

        #[test]
        fn all_ranks_are_placed(ranks in 1_u32..200, hosts in 1_usize..20) {
            let names = (0..hosts).map(|host| format!("c{host}")).collect::<Vec<_>>().join(",");
            let placed = place(&options(list(&names), Some(ranks), None)).unwrap();
            prop_assert_eq!(placed.iter().map(|placed| placed.count).sum::<u32>(), ranks);
        }
    }
}
