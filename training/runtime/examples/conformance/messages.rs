//! Messages from rank to rank: small beside large ones, out of order by tag, from anybody, to oneself.

use eirene_train_runtime::{DType, Group, Part};

use crate::values::elements;
use crate::{AMPLE, Failure};

/// One lies within a slot of shared memory, one has to be cut.
const LENGTHS: [usize; 4] = [0, 3, 1001, 150_001];

fn content(from: u32, to: u32, tag: usize) -> Vec<u8> {
    let any = |index: usize| i64::from(((from as usize * 17 + to as usize * 5 + tag * 3 + index) % 100) as u32);
    elements((0..LENGTHS[tag]).map(any), DType::I16)
}

fn part(bytes: &[u8]) -> Part {
    Part { address: bytes.as_ptr() as usize, elements: bytes.len() / 2 }
}

/// Everybody sends one message of each length to everybody, and receives them in the opposite order; then a ring from anybody. Says how many
/// messages came.
#[expect(unsafe_code, reason = "messages are given by address")]
pub(crate) fn check(group: &Group) -> Result<usize, Failure> {
    let (me, size) = (group.rank(), group.size());
    let pairs = || (0..size).flat_map(|rank| (0..LENGTHS.len()).map(move |tag| (rank, tag)));
    let outgoing: Vec<Vec<u8>> = pairs().map(|(to, tag)| content(me, to, tag)).collect();
    let incoming: Vec<Vec<u8>> = pairs().map(|(_, tag)| vec![0xEE; LENGTHS[tag] * 2]).collect();
    let mut works = Vec::new();
    for ((to, tag), bytes) in pairs().zip(&outgoing) {
        // SAFETY: the buffers outlive the works, all of which are waited for.
        works.push(unsafe { group.send(to, tag as u32, part(bytes), DType::I16, AMPLE) }?);
    }
    for ((from, tag), bytes) in pairs().zip(&incoming).collect::<Vec<_>>().into_iter().rev() {
        // SAFETY: as above.
        works.push(unsafe { group.receive(Some(from), tag as u32, part(bytes), DType::I16, AMPLE) }?);
    }
    for work in &works {
        work.wait(Some(AMPLE))?;
    }
    for ((from, tag), bytes) in pairs().zip(&incoming) {
        if *bytes != content(from, me, tag) {
            return Err(Failure::Wrong(format!("the message with tag {tag} from rank {from} to rank {me}")));
        }
    }
    let (mine, theirs) = (content(me, me, 1), vec![0xEE; LENGTHS[1] * 2]);
    // SAFETY: as above.
    let (sent, received) = unsafe {
        (
            group.send((me + 1) % size, 99, part(&mine), DType::I16, AMPLE)?,
            group.receive(None, 99, part(&theirs), DType::I16, AMPLE)?,
        )
    };
    received.wait(Some(AMPLE))?;
    sent.wait(Some(AMPLE))?;
    let before = (me + size - 1) % size;
    if received.source() != Some(before) || theirs != content(before, before, 1) {
        return Err(Failure::Wrong(format!("a message from anybody, which came from {:?}", received.source())));
    }
    Ok(incoming.len() + 1)
}
