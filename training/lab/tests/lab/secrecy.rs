//! Somebody who reads every packet between the nodes sees nothing of what the ranks send, unless they were told to do without encryption.

use std::os::fd::{AsRawFd as _, OwnedFd};

use eirene_train_lab::{Nodes, enter};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt};

use crate::common::{lab, launcher, said};

/// Four elements as `lab_rank marked` sends them.
const MARK: &[u8; 16] = b"MARKMARKMARKMARK";
/// Elements of each call.
const ELEMENTS: usize = 300_007;

/// Gets every packet that a node sends or receives from now on.
fn listener(nodes: &Nodes, node: u32) -> OwnedFd {
    // A thread that ends in the node need not come back; the socket stays there.
    let inside = || {
        enter(nodes, node).unwrap();
        let kind = SockType::Raw;
        let socket = socket(AddressFamily::Packet, kind, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(256 << 20)).unwrap();
        socket
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
}

/// Bytes of all packets, and in how many the mark stands.
fn heard(listener: &OwnedFd) -> (usize, usize) {
    let mut packet = vec![0; 1 << 17];
    let (mut bytes, mut marked) = (0, 0);
    loop {
        match recv(listener.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Ok(length) => {
                bytes += length;
                marked += usize::from(packet[..length].windows(MARK.len()).any(|window| window == MARK));
            }
            Err(Errno::EAGAIN) => return (bytes, marked),
            Err(Errno::EINTR) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}

#[test]
fn who_reads_the_wire_learns_nothing_of_what_is_sent() {
    let nodes = lab(2);
    for (encryption, is_open) in [(None, false), (Some("on"), false), (Some("off"), true)] {
        let directory = tempfile::tempdir().unwrap();
        let listener = listener(&nodes, 2);
        let mut command = launcher(&nodes, &[1, 1], directory.path(), &["marked", &ELEMENTS.to_string()]);
        command.env_remove("EIRENE_TRAIN_ENCRYPTION");
        command.envs(encryption.map(|word| ("EIRENE_TRAIN_ENCRYPTION", word)));
        said(&command.output().unwrap());
        let (bytes, marked) = heard(&listener);
        // An allreduce, a broadcast, and a message each way: nearly all of it was heard.
        assert!(bytes > 4 * ELEMENTS * size_of::<f32>(), "{encryption:?}: only {bytes} bytes were heard");
        assert_eq!(marked > 0, is_open, "{encryption:?}: in {marked} packets");
    }
    nodes.down().unwrap();
}
