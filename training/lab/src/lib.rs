//! Emulated nodes: a machine that pretends to be several, joined by wires of a given rate.
//!
//! A node is a network namespace with one interface, `eth0`; all nodes of a lab hang on a bridge in a namespace of its own. A token bucket at
//! both ends of each wire holds it to its rate, in each direction. To the kernel they are different hosts in everything that goes over the
//! network. Each has processors of its own where there are enough; memory and files they share. What runs in a node sees the node's name as host
//! name. Congestion is avoided as this machine does it: the kernel lets a namespace choose nothing else.
//!
//! Nothing outside the lab is touched. Names say who owns a lab: process and when it began. A lab whose owner is gone, however it went, is
//! taken down by whoever sets up the next one.
//!
//! Left to others: what is run in the nodes.

mod error;
mod inside;
mod names;
mod tools;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub use error::Error;
pub use inside::enter;
pub use names::Owner;

use names::Lab;
use tools::{ip, tc};

/// What went over a node's wire since the lab was set up, as its interface counts it: bytes of packets with their headers, which for large
/// sends are one for up to 64 KiB, for it is on the real wire that they are cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// From the node.
    pub sent: u64,
    /// To the node.
    pub received: u64,
}

/// Emulated nodes, numbered from 1.
#[derive(Debug)]
pub struct Nodes {
    lab: Lab,
    count: u32,
    /// Dropped, it is taken down.
    is_ours: bool,
}

/// Most nodes of a lab.
pub const MOST_NODES: u32 = 100;

/// Tokens of a wire's bucket: larger than the largest packet, so that those stay whole.
const BURST: &str = "128kb";
/// How long packets wait for a wire before they are dropped.
const QUEUE: &str = "20ms";
/// How long killed processes may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);

impl Nodes {
    /// Sets up nodes whose wires have a rate as `tc` writes it (`1gbit`); they go with `owner`.
    ///
    /// # Errors
    /// [`Error::NotRoot`]; [`Error::Tool`] when `ip` or `tc` cannot do it.
    pub fn up(count: u32, rate: &str, owner: Owner) -> Result<Self, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        if !(1..=MOST_NODES).contains(&count) {
            return Err(Error::Count { count });
        }
        sweep();
        let mut number = 0;
        let lab = loop {
            let lab = Lab { owner, number };
            match ip(&["netns", "add", &lab.switch()]) {
                Ok(()) => break lab,
                Err(_) if std::path::Path::new(names::DIRECTORY).join(lab.switch()).exists() => number += 1,
                Err(error) => return Err(error),
            }
        };
        let nodes = Self { lab, count, is_ours: true };
        nodes.wire(rate)?;
        Ok(nodes)
    }

    /// Nodes that somebody else has set up; dropped, they stay.
    ///
    /// # Errors
    /// [`Error::Unknown`] when there are none of that name.
    pub fn of(name: &str) -> Result<Self, Error> {
        let unknown = || Error::Unknown { name: name.to_owned() };
        let lab = Lab::parse(name).ok_or_else(unknown)?;
        let count = names::present().iter().filter(|(of, node)| *of == lab && node.is_some()).count() as u32;
        if count == 0 { Err(unknown()) } else { Ok(Self { lab, count, is_ours: false }) }
    }

    fn wire(&self, rate: &str) -> Result<(), Error> {
        let switch = self.lab.switch();
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        for node in 1..=self.count {
            let (name, port) = (self.lab.node(node), format!("port{node}"));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", INTERFACE, "netns", &name])?;
            ip(&["-n", &switch, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &name, "address", "add", &format!("{}/24", address(node)), "dev", INTERFACE])?;
            for interface in ["lo", INTERFACE] {
                ip(&["-n", &name, "link", "set", interface, "up"])?;
            }
            for (namespace, interface) in [(&name, INTERFACE), (&switch, port.as_str())] {
                let bucket = ["tbf", "rate", rate, "burst", BURST, "latency", QUEUE];
                tc(&[&["-n", namespace, "qdisc", "add", "dev", interface, "root"], &bucket[..]].concat())?;
            }
        }
        Ok(())
    }

    /// The lab's name, for [`Self::of`].
    pub fn name(&self) -> String {
        self.lab.to_string()
    }

    /// How many nodes there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The namespace of a node, as `ip netns` knows it.
    pub fn namespace(&self, node: u32) -> String {
        self.lab.node(node)
    }

    /// The number of a node, given by number or by host name.
    ///
    /// # Errors
    /// [`Error::NoNode`].
    pub fn number(&self, node: &str) -> Result<u32, Error> {
        let number = node.strip_prefix(names::HOST).unwrap_or(node).parse().ok();
        number
            .filter(|number| (1..=self.count).contains(number))
            .ok_or_else(|| Error::NoNode { node: node.to_owned(), count: self.count })
    }

    /// What went over a node's wire.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn bytes(&self, node: u32) -> Result<Bytes, Error> {
        let table = inside::within(&self.lab.node(node), || std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        let table = table.map_err(Error::system("read the interface's counts"))?;
        let line = table.lines().find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'));
        let counts: Vec<u64> = line.unwrap_or_default().split_whitespace().flat_map(str::parse).collect();
        match (counts.first(), counts.get(8)) {
            (Some(received), Some(sent)) => Ok(Bytes { sent: *sent, received: *received }),
            _ => Err(Error::NoNode { node: node.to_string(), count: self.count }),
        }
    }

    /// Pulls a node's plug, or puts it in again: packets are then lost in silence, as when a cable is cut behind a switch.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn plug(&self, node: u32, is_in: bool) -> Result<(), Error> {
        let to = if is_in { &["master", "bridge"][..] } else { &["nomaster"] };
        ip(&[&["-n", &self.lab.switch(), "link", "set", &format!("port{node}")], to].concat())
    }

    /// Sets a node's interface up or down, as its administrator would.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn link(&self, node: u32, is_up: bool) -> Result<(), Error> {
        ip(&["-n", &self.lab.node(node), "link", "set", INTERFACE, if is_up { "up" } else { "down" }])
    }

    /// Ends everything that runs in the nodes and removes them.
    ///
    /// # Errors
    /// [`Error::Tool`] when something cannot be removed.
    pub fn down(mut self) -> Result<(), Error> {
        self.is_ours = false;
        remove(self.lab)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = remove(self.lab);
        }
    }
}

/// The interface of each node.
pub const INTERFACE: &str = "eth0";

/// The address of a node, by number.
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, node as u8)
}

/// The host name of a node, by number.
pub fn host(node: u32) -> String {
    format!("{}{node}", names::HOST)
}

/// Takes down labs whose owners are gone.
fn sweep() {
    let mut orphans: Vec<Lab> = names::present().into_iter().map(|(lab, _)| lab).collect();
    orphans.retain(|lab| !lab.owner.is_alive());
    orphans.dedup();
    for lab in orphans {
        let _ = remove(lab);
    }
}

fn remove(lab: Lab) -> Result<(), Error> {
    let namespaces: Vec<String> = names::present()
        .into_iter()
        .filter(|(of, _)| *of == lab)
        .map(|(lab, node)| node.map_or_else(|| lab.switch(), |node| lab.node(node)))
        .collect();
    for namespace in &namespaces {
        let until = Instant::now() + GONE_WITHIN;
        while inside::kill_all(namespace)? > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // The wires go with either end; the switch, which says that the lab is there, goes last.
    let (switch, nodes): (Vec<_>, Vec<_>) = namespaces.iter().partition(|name| **name == lab.switch());
    let outcomes: Vec<_> = nodes.into_iter().chain(switch).map(|name| ip(&["netns", "delete", name])).collect();
    outcomes.into_iter().collect()
}
