//! Where this rank is: which machine, which network stack, which addresses.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt as _;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// What is the same for two ranks exactly when they share a running kernel and a network stack.
pub(crate) fn host() -> Result<[u8; 16], Error> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").map_err(Error::system("read the machine's boot id"))?;
    let network = fs::metadata("/proc/self/ns/net").map_err(Error::system("find this process's network"))?;
    let mut digest = Sha256::new();
    digest.update(boot.trim_ascii());
    digest.update(network.dev().to_le_bytes());
    digest.update(network.ino().to_le_bytes());
    Ok(half(&digest.finalize()))
}

/// The node: the host, split further where the plan says so.
pub(crate) fn node(host: [u8; 16], name: Option<&str>) -> [u8; 16] {
    match name {
        None => host,
        Some(name) => {
            let mut digest = Sha256::new();
            digest.update(host);
            digest.update(name.as_bytes());
            half(&digest.finalize())
        }
    }
}

fn half(digest: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    half
}

/// An address, the interface that has it, and whether that is the loopback.
type Found = (String, bool, IpAddr);

/// The interfaces (or addresses) that `EIRENE_TRAIN_INTERFACE` lists, with commas between them; none where all may be used.
pub fn listed_interfaces() -> Vec<String> {
    let listed = std::env::var("EIRENE_TRAIN_INTERFACE").unwrap_or_default();
    listed.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}

/// Addresses by which ranks may reach this machine, as [`addresses`]; its loopback where it has no others, for nodes
/// that are pretended may have nothing else between them.
///
/// # Errors
/// As [`addresses`].
pub fn reachable(only: &[String]) -> Result<Vec<IpAddr>, Error> {
    let mut addresses = addresses(only)?;
    if addresses.is_empty() {
        addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    Ok(addresses)
}

/// Addresses by which other machines may reach this one, the likeliest first. `only`: interfaces (or addresses) to
/// which that is limited.
///
/// # Errors
/// [`Error::Invalid`] for an interface that is not there, [`Error::System`] where the list cannot be had.
pub fn addresses(only: &[String]) -> Result<Vec<IpAddr>, Error> {
    let mut found = Vec::new();
    for interface in getifaddrs().map_err(Error::system("list the network interfaces"))? {
        let Some(address) = interface.address else { continue };
        let ip = if let Some(v4) = address.as_sockaddr_in() {
            IpAddr::V4(v4.ip())
        } else if let Some(v6) = address.as_sockaddr_in6() {
            IpAddr::V6(v6.ip())
        } else {
            continue;
        };
        if interface.flags.contains(InterfaceFlags::IFF_UP) && !link_local(ip) {
            found.push((interface.interface_name, interface.flags.contains(InterfaceFlags::IFF_LOOPBACK), ip));
        }
    }
    chosen(found, only)
}

fn chosen(mut found: Vec<Found>, only: &[String]) -> Result<Vec<IpAddr>, Error> {
    if only.is_empty() {
        found.retain(|(_, loopback, _)| !loopback);
        found.sort_by_key(|(name, _, ip)| (is_local_bridge(name), ip.is_ipv6()));
        return Ok(found.into_iter().map(|(_, _, ip)| ip).collect());
    }
    let mut chosen = Vec::new();
    for wanted in only {
        let before = chosen.len();
        let fits = |name: &str, ip: IpAddr| name == wanted || wanted.parse() == Ok(ip);
        chosen.extend(found.iter().filter(|(name, _, ip)| fits(name, *ip)).map(|(_, _, ip)| *ip));
        if chosen.len() == before {
            let names: BTreeSet<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
            return Err(Error::invalid(format!(
                "there is no interface or address `{wanted}`; there are: {}",
                names.into_iter().collect::<Vec<_>>().join(", ")
            )));
        }
    }
    Ok(chosen)
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Bridges for containers and virtual machines have addresses that lead nowhere from another machine.
fn is_local_bridge(name: &str) -> bool {
    ["docker", "br-", "veth", "virbr", "cni", "podman", "lxc", "flannel"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pretended_node_is_another_on_the_same_host() {
        let host = host().unwrap();
        assert_eq!(node(host, None), host);
        assert_ne!(node(host, Some("a")), node(host, Some("b")));
        assert_eq!(node(host, Some("a")), node(host, Some("a")));
    }

    #[test]
    fn interfaces_are_chosen_by_name_or_address() {
        let by_name = addresses(&["lo".into()]).unwrap();
        assert!(by_name.contains(&"127.0.0.1".parse().unwrap()));
        assert_eq!(addresses(&["127.0.0.1".into()]).unwrap(), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        let error = addresses(&["nosuch0".into()]).unwrap_err().to_string();
        assert!(error.starts_with("there is no interface or address `nosuch0`") && error.contains("lo"), "{error}");
        assert!(addresses(&[]).unwrap().iter().all(|ip| !ip.is_loopback()));
    }
    #[test]
    fn bridges_of_containers_are_tried_last_unless_they_are_what_is_meant() {
        let there = [
            ("lo", true, "127.0.0.1"),
            ("docker0", false, "172.17.0.1"),
            ("eth0", false, "fd00::2"),
            ("br-1", false, "fd01::2"),
            ("eth0", false, "192.0.2.2"),
        ];
        let there: Vec<Found> = there.map(|(name, lo, ip)| (name.into(), lo, ip.parse().unwrap())).to_vec();
        let chosen = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|&word| word.into()).collect();
            chosen(there.clone(), &only).unwrap().iter().map(IpAddr::to_string).collect()
        };
        assert_eq!(chosen(&[]), ["192.0.2.2", "fd00::2", "172.17.0.1", "fd01::2"]);
        assert_eq!(chosen(&["docker0", "fd00:0::2"]), ["172.17.0.1", "fd00::2"]);
        assert_eq!(chosen(&["lo", "127.0.0.1"]), ["127.0.0.1", "127.0.0.1"]);
    }
}
