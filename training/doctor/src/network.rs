//! The network: interfaces, which of them other hosts would be told, and InfiniBand.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use eirene_train_mesh::{addresses, listed_interfaces};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use serde_json::json;

use crate::finding::{Finding, Section};

/// A network interface that is up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// Mbit/s, where it says so.
    pub(crate) speed: Option<u64>,
    pub(crate) mtu: Option<u64>,
    pub(crate) loopback: bool,
}

/// A port of an InfiniBand (or RoCE) device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) rate: String,
}

/// What is there.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) interfaces: Result<Vec<Interface>, String>,
    /// What ranks on other hosts would be told, the likeliest first.
    pub(crate) told: Result<Vec<IpAddr>, String>,
    pub(crate) infiniband: Vec<Port>,
}

impl Facts {
    pub(crate) fn look() -> Self {
        Self {
            interfaces: interfaces(),
            told: addresses(&listed_interfaces()).map_err(|error| error.to_string()),
            infiniband: infiniband(Path::new("/sys/class/infiniband")),
        }
    }
}

fn interfaces() -> Result<Vec<Interface>, String> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for entry in getifaddrs().map_err(|errno| errno.desc().to_owned())? {
        let ip = entry.address.as_ref().and_then(|address| {
            let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
            four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
        });
        let (Some(ip), true) = (ip, entry.flags.contains(InterfaceFlags::IFF_UP)) else { continue };
        let name = entry.interface_name;
        let interface = found.entry(name.clone()).or_insert_with(|| {
            let number =
                |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok()?.trim().parse().ok();
            Interface {
                name: name.clone(),
                addresses: Vec::new(),
                // Interfaces without a speed of their own say -1.
                speed: number("speed"),
                mtu: number("mtu"),
                loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            }
        });
        interface.addresses.push(ip);
    }
    Ok(found.into_values().collect())
}

fn infiniband(below: &Path) -> Vec<Port> {
    let mut found = Vec::new();
    for device in fs::read_dir(below).into_iter().flatten().flatten() {
        for port in fs::read_dir(device.path().join("ports")).into_iter().flatten().flatten() {
            let line = |file: &str| fs::read_to_string(port.path().join(file)).unwrap_or_default().trim().to_owned();
            let name = format!("{}/{}", device.file_name().display(), port.file_name().display());
            found.push(Port { name, state: line("state"), rate: line("rate") });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mut findings = Vec::new();
    let all = facts.interfaces.as_deref().unwrap_or_default();
    match &facts.told {
        Ok(told) if told.is_empty() => findings.push(Finding::note(
            "network.told",
            "no interface has an address that other hosts could reach: runs stay on this host",
            "nothing for runs on one host; for several, give the container or virtual machine a network",
        )),
        Ok(told) => {
            let list: Vec<String> = told.iter().map(|ip| place(*ip, all)).collect();
            let fact = format!("ranks on other hosts are told, in this order: {}", list.join(", "));
            findings.push(Finding::ok("network.told", fact).with(json!(told)));
        }
        Err(error) => findings.push(Finding::warning(
            "network.told",
            format!("the interfaces cannot be listed: {error}"),
            "runs on one host work; for several, let the container see the network",
        )),
    }
    for interface in all.iter().filter(|interface| !interface.loopback && interface.addresses.iter().any(is_routed)) {
        findings.push(Finding::ok("network.interface", describe(interface)).with(json!({
            "name": interface.name, "addresses": interface.addresses, "mbit": interface.speed, "mtu": interface.mtu,
        })));
    }
    if all.iter().all(|interface| !interface.loopback) {
        findings.push(Finding::warning(
            "network.loopback",
            "there is no loopback interface",
            "torch's own stores use it: `ip link set lo up`, or start the container with a network",
        ));
    }
    for Port { name, state, rate } in &facts.infiniband {
        let fact = format!("InfiniBand {name}: {state}, {rate}");
        findings
            .push(Finding::ok("network.infiniband", fact).with(json!({"name": name, "state": state, "rate": rate})));
    }
    if facts.infiniband.iter().any(|port| port.state.contains("ACTIVE")) {
        let fact = "eirene-train's own connections between nodes are TCP: over InfiniBand they go by its IP interface";
        let cure = "give the InfiniBand interface an address (ib0), or let an MPI carry what goes between nodes";
        findings.push(Finding::note("network.verbs", fact, cure));
    }
    Section { name: "network", title: "network", findings }
}

/// Containers' ends of a bridge have addresses for their own link only, and there may be hundreds of them.
fn is_routed(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    }
}

fn place(ip: IpAddr, all: &[Interface]) -> String {
    match all.iter().find(|interface| interface.addresses.contains(&ip)) {
        Some(interface) => format!("{ip} ({})", interface.name),
        None => ip.to_string(),
    }
}

fn describe(interface: &Interface) -> String {
    let addresses: Vec<String> = interface.addresses.iter().map(IpAddr::to_string).collect();
    let speed = match interface.speed {
        Some(speed) if speed >= 1000 => format!("{} Gbit/s", speed as f64 / 1000.0),
        Some(speed) => format!("{speed} Mbit/s"),
        None => "speed unknown".to_owned(),
    };
    let mtu = interface.mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
    format!("{}: {}, {speed}{mtu}", interface.name, addresses.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn facts() -> Facts {
        let address: IpAddr = "10.0.0.5".parse().unwrap();
        let ethernet = Interface {
            name: "eth0".into(),
            addresses: vec![address],
            speed: Some(25000),
            mtu: Some(9000),
            loopback: false,
        };
        let own = Interface {
            name: "lo".into(),
            addresses: vec!["127.0.0.1".parse().unwrap()],
            loopback: true,
            ..Interface::default()
        };
        Facts { interfaces: Ok(vec![ethernet, own]), told: Ok(vec![address]), infiniband: Vec::new() }
    }

    #[test]
    fn the_address_that_is_told_is_shown_with_its_interface() {
        let mut facts = facts();
        let inner =
            Interface { name: "veth1".into(), addresses: vec!["fe80::1".parse().unwrap()], ..Interface::default() };
        facts.interfaces.as_mut().unwrap().push(inner);
        let section = judge(&facts);
        assert!(section.findings[0].fact.ends_with("10.0.0.5 (eth0)"), "{section:?}");
        assert_eq!(section.findings[1].fact, "eth0: 10.0.0.5, 25 Gbit/s, MTU 9000");
        assert_eq!(section.findings.len(), 2);
    }

    #[test]
    fn a_host_without_a_network_is_only_a_note() {
        let alone = Facts { interfaces: Ok(Vec::new()), told: Ok(Vec::new()), infiniband: Vec::new() };
        let levels: Vec<Level> = judge(&alone).findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Note, Level::Warning]);
    }

    #[test]
    fn infiniband_is_shown_with_what_it_is_good_for() {
        let port = Port { name: "mlx5_0/1".into(), state: "4: ACTIVE".into(), rate: "200 Gb/sec (4X HDR)".into() };
        let section = judge(&Facts { infiniband: vec![port], ..facts() });
        assert!(section.findings.iter().any(|finding| finding.id == "network.verbs"), "{section:?}");
    }

    #[test]
    fn this_machine_is_seen() {
        let facts = Facts::look();
        assert!(facts.interfaces.is_ok() && facts.told.is_ok(), "{facts:?}");
    }
}
