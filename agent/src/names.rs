//! What else this node is called by programs in a session: its full names and addresses. From the kernel and the resolver's file: a statically
//! linked program had better not ask the C library, which would load modules of whatever version is there.

use std::collections::BTreeSet;

/// All of this node's names but those that are every node's.
pub(crate) fn own() -> Vec<String> {
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let domains = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let addresses = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|address| std::net::IpAddr::from(address.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
    });
    // What is the same on each node says nothing: loopback, and a link's own addresses.
    let addresses = addresses.filter(|address| match address {
        std::net::IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        std::net::IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    });
    let names = names(&host, &domains).into_iter();
    names.chain(addresses.map(|address| address.to_string())).collect::<BTreeSet<_>>().into_iter().collect()
}

/// A host's names, by its own and the domains that its resolver looks in (resolv.conf(5)).
fn names(host: &str, resolver: &str) -> Vec<String> {
    let short = host.split('.').next().unwrap_or_default();
    if short.is_empty() {
        return Vec::new();
    }
    let lines = resolver.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let domains = lines.filter_map(|words| match words.split_first() {
        Some((&("search" | "domain"), domains)) => {
            Some(domains.iter().map(|domain| format!("{short}.{domain}")).collect::<Vec<_>>())
        }
        _ => None,
    });
    [host.to_owned(), short.to_owned()].into_iter().chain(domains.flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_short_name_and_one_for_each_domain() {
        let resolver = "# search no.where\nnameserver 10.0.0.1\nsearch cluster.example.org example.org\n";
        assert_eq!(names("c1", resolver), ["c1", "c1", "c1.cluster.example.org", "c1.example.org"]);
        assert_eq!(names("c1.example.org", ""), ["c1.example.org", "c1"]);
        assert!(names("", resolver).is_empty());
    }

    #[test]
    fn no_name_is_that_of_every_node() {
        let own = own();
        for everybody_s in ["127.0.0.1", "::1", "localhost"] {
            assert!(!own.iter().any(|name| name == everybody_s), "{own:?}");
        }
    }
}
