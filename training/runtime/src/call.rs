//! What a caller asks of a group, checked.

use std::fmt::Display;

use eirene_train_reduce::{DType, ReduceOp};
use eirene_train_schedule::Collective;

use crate::error::Error;
use crate::extent::{Extent, Table};
use crate::message::{Head, mix};

/// A piece of the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Address of the first element.
    pub address: usize,
    /// Number of elements, which lie one after the other.
    pub elements: usize,
}

impl Part {
    /// As bytes.
    pub(crate) fn extent(self, dtype: DType) -> Extent {
        Extent { address: self.address as *mut u8, bytes: self.elements * dtype.size() }
    }
}

/// One collective operation, as one rank of a group gives it.
///
/// | collective | input | output |
/// |---|---|---|
/// | allreduce, reduce, broadcast | one part | one part, as long (in place: the same address) |
/// | reduce-scatter | a part for each rank | one part, as long as the rank's own input part |
/// | allgather | one part | a part for each rank |
/// | all-to-all | a part for each rank | a part for each rank |
/// | gather | one part | a part for each rank at the root, none elsewhere |
/// | scatter | a part for each rank at the root, none elsewhere | one part |
/// | barrier | none | none |
///
/// Parts of different ranks may differ in length where there is one for each rank, as long as both sides of a transfer agree.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is to be done; the root is a rank of the group.
    pub collective: Collective,
    /// Type of all elements.
    pub dtype: DType,
    /// How elements are combined, where they are.
    pub op: ReduceOp,
    /// What the rank gives.
    pub input: Vec<Part>,
    /// What it gets.
    pub output: Vec<Part>,
}

/// How many parts a side of a call has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    None,
    One,
    Each,
}

impl Call {
    /// A reduction of `elements` at one address into another (or the same), on every rank.
    pub fn all_reduce(input: usize, output: usize, elements: usize, dtype: DType, op: ReduceOp) -> Self {
        let part = |address| vec![Part { address, elements }];
        Self { collective: Collective::AllReduce, dtype, op, input: part(input), output: part(output) }
    }

    /// A barrier.
    pub fn barrier() -> Self {
        Self {
            collective: Collective::Barrier,
            dtype: DType::U8,
            op: ReduceOp::Sum,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    fn shape(&self, me: u32) -> (Parts, Parts) {
        match self.collective {
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } => {
                (Parts::One, Parts::One)
            }
            Collective::ReduceScatter => (Parts::Each, Parts::One),
            Collective::AllGather => (Parts::One, Parts::Each),
            Collective::AllToAll => (Parts::Each, Parts::Each),
            Collective::Gather { root } => (Parts::One, if root == me { Parts::Each } else { Parts::None }),
            Collective::Scatter { root } => (if root == me { Parts::Each } else { Parts::None }, Parts::One),
            Collective::Barrier => (Parts::None, Parts::None),
        }
    }

    /// Refuses what cannot be carried out, before anybody else is bothered.
    pub(crate) fn check(&self, me: u32, size: u32) -> Result<(), Error> {
        let name = name(self.collective);
        let wrong = |message: String| Err(Error::Invalid { message: format!("{name}: {message}") });
        if root(self.collective).is_some_and(|root| root >= size) {
            return wrong(format!("the root is none of the group's {size} ranks"));
        }
        if reduces(self.collective) && !self.op.defined_for(self.dtype) {
            return wrong(format!("{} is not defined for {}", self.op.name(), self.dtype.name()));
        }
        let (input, output) = self.shape(me);
        for (side, wanted, given) in [("input", input, &self.input), ("output", output, &self.output)] {
            let count = match wanted {
                Parts::None => 0,
                Parts::One => 1,
                Parts::Each => size as usize,
            };
            if given.len() != count {
                return wrong(format!("{} {side} parts are wanted, {} are given", count, given.len()));
            }
        }
        let own = |parts: &[Part], shape: Parts| match shape {
            Parts::None => None,
            Parts::One => Some(parts[0].elements),
            Parts::Each => Some(parts[me as usize].elements),
        };
        if let (Some(gives), Some(gets)) = (own(&self.input, input), own(&self.output, output))
            && gives != gets
        {
            return wrong(format!("the rank's own input has {gives} elements and its output {gets}"));
        }
        Ok(())
    }

    /// What messages of this call say of themselves.
    pub(crate) fn head(&self, number: u64) -> Head {
        let blocks = match self.collective {
            Collective::AllGather => lengths(&self.output),
            Collective::ReduceScatter => lengths(&self.input),
            _ => 0,
        };
        let op = if reduces(self.collective) { 1 + self.op as u8 } else { 0 };
        Head {
            call: number,
            bytes: 0,
            elements: self.elements() as u64,
            root: root(self.collective).unwrap_or(blocks),
            kind: [kind(self.collective), self.dtype as u8, op, 0],
        }
    }

    /// The call in words, as long as it waits for its number.
    pub(crate) fn in_words(&self) -> String {
        described(&self.head(0), "")
    }

    /// Bytes the call is about, of the whole buffer on one rank; 0 where ranks may differ in it, for everybody decides by this alone.
    pub(crate) fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// The same in elements.
    fn elements(&self) -> usize {
        let sum = |parts: &[Part]| parts.iter().map(|part| part.elements).sum::<usize>();
        match self.collective {
            Collective::AllReduce
            | Collective::Broadcast { .. }
            | Collective::Reduce { .. }
            | Collective::ReduceScatter => sum(&self.input),
            Collective::AllGather => sum(&self.output),
            Collective::AllToAll | Collective::Gather { .. } | Collective::Scatter { .. } | Collective::Barrier => 0,
        }
    }

    /// Each side as one run of memory, if it is one and every rank's looks the same; what is needed to find others' memory from one's own.
    pub(crate) fn wholes(&self) -> Option<(Extent, Extent)> {
        let whole = |parts: &[Part]| {
            let first = parts.first()?;
            let mut end = first.address;
            for part in parts {
                if part.address != end || part.elements != first.elements {
                    return None;
                }
                end += part.elements * self.dtype.size();
            }
            Some(Extent { address: first.address as *mut u8, bytes: end - first.address })
        };
        match (whole(&self.input), whole(&self.output)) {
            (Some(input), Some(output)) => Some((input, output)),
            _ => None,
        }
    }
}

/// The parts of one side, cut into as many chunks as a schedule has: one part evenly, a part for each rank each into as many.
pub(crate) fn table(parts: &[Part], dtype: DType, ranks: u32, chunks: u32) -> Table {
    match parts {
        [] => Table::default(),
        [part] => Table::even(part.extent(dtype), dtype.size(), chunks),
        _ => Table::blocks(parts.iter().map(|part| part.extent(dtype)), dtype.size(), chunks / ranks),
    }
}

/// What stands for the lengths of blocks that are not all the same.
fn lengths(blocks: &[Part]) -> u32 {
    if blocks.iter().all(|block| block.elements == blocks[0].elements) {
        return 0;
    }
    let all = blocks.iter().fold(0, |before, block| mix(before, block.elements as u64));
    (all >> 32) as u32 | 1
}

/// The root, where there is one.
pub(crate) fn root(collective: Collective) -> Option<u32> {
    match collective {
        Collective::Broadcast { root }
        | Collective::Reduce { root }
        | Collective::Gather { root }
        | Collective::Scatter { root } => Some(root),
        Collective::AllReduce
        | Collective::ReduceScatter
        | Collective::AllGather
        | Collective::AllToAll
        | Collective::Barrier => None,
    }
}

/// Whether elements are combined.
pub(crate) fn reduces(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter)
}

/// Numbers of collectives in message heads are below this.
pub(crate) const KINDS: usize = 10;

/// A collective's number in message heads.
pub(crate) fn kind(collective: Collective) -> u8 {
    match collective {
        Collective::AllReduce => 1,
        Collective::Broadcast { .. } => 2,
        Collective::Reduce { .. } => 3,
        Collective::ReduceScatter => 4,
        Collective::AllGather => 5,
        Collective::AllToAll => 6,
        Collective::Gather { .. } => 7,
        Collective::Scatter { .. } => 8,
        Collective::Barrier => 9,
    }
}

/// Names by number.
const NAMES: [&str; KINDS] = [
    "point to point",
    "allreduce",
    "broadcast",
    "reduce",
    "reduce-scatter",
    "allgather",
    "all-to-all",
    "gather",
    "scatter",
    "barrier",
];

/// A collective's name.
pub(crate) fn name(collective: Collective) -> &'static str {
    NAMES[kind(collective) as usize]
}

/// A call in words, from a message's head.
pub(crate) fn describe(head: &Head) -> String {
    described(head, &format!(" (call {})", head.call))
}

fn described(head: &Head, number: &str) -> String {
    let [kind, dtype, op, _] = head.kind;
    let text = format!("{}{number}", NAMES.get(kind as usize).unwrap_or(&"something unknown"));
    let dtype = DType::ALL.into_iter().find(|known| *known as u8 == dtype);
    let mut details = Vec::new();
    if let Some(op) = ReduceOp::ALL.into_iter().find(|known| 1 + *known as u8 == op) {
        details.push(op.name().to_owned());
    }
    if (1..=5).contains(&kind) {
        details.push(format!("{} elements", head.elements));
    }
    if let Some(dtype) = dtype
        && kind != 9
    {
        details.push(dtype.name().to_owned());
    }
    if matches!(kind, 2 | 3 | 7 | 8) {
        details.push(format!("root {}", head.root));
    }
    if details.is_empty() { text } else { text + " of " + &details.join(", ") }
}

/// What differs between calls of two ranks, in words.
pub(crate) fn difference(me: impl Display, mine: &Head, other: impl Display, theirs: &Head) -> String {
    // Without what stands for the calls before, and then without what stands for the lengths of blocks.
    let alone = |head: &Head| Head { bytes: 0, kind: [head.kind[0], head.kind[1], head.kind[2], 0], ..*head };
    let blind = |head: &Head| if is_in_blocks(head) { Head { root: 0, ..alone(head) } } else { alone(head) };
    let what = describe(mine);
    if alone(mine) == alone(theirs) {
        return format!("rank {me} and rank {other} have called different things before their {what}");
    }
    if blind(mine) == blind(theirs) {
        return format!("rank {me} and rank {other} give blocks other lengths in their {what}");
    }
    format!("rank {me} has called {what}, rank {other} {}", describe(theirs))
}

/// Whether all ranks know the lengths of all blocks of such a call, and a head has what stands for them.
pub(crate) fn is_in_blocks(head: &Head) -> bool {
    matches!(head.kind[0], 4 | 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(elements: usize) -> Part {
        Part { address: 4096, elements }
    }

    #[test]
    fn calls_that_cannot_be_are_refused_with_the_reason() {
        let good = Call::all_reduce(4096, 4096, 8, DType::F32, ReduceOp::Sum);
        assert!(good.check(0, 2).is_ok());
        for (call, reason) in [
            (Call { output: vec![part(7)], ..good.clone() }, "8 elements and its output 7"),
            (Call { input: vec![], ..good.clone() }, "1 input parts are wanted, 0 are given"),
            (Call { collective: Collective::Broadcast { root: 2 }, ..good.clone() }, "none of the group's 2 ranks"),
            (Call { dtype: DType::Bool, op: ReduceOp::Avg, ..good.clone() }, "not defined for bool"),
            (Call { collective: Collective::AllGather, ..good.clone() }, "2 output parts are wanted, 1 are given"),
        ] {
            let error = call.check(0, 2).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_call_is_described_for_people() {
        let call = Call::all_reduce(4096, 4096, 8, DType::F32, ReduceOp::Sum);
        assert_eq!(describe(&call.head(3)), "allreduce (call 3) of sum, 8 elements, float32");
        assert_eq!(call.in_words(), "allreduce of sum, 8 elements, float32");
        assert_eq!(describe(&Call::barrier().head(1)), "barrier (call 1)");
        let none = Call::all_reduce(4096, 4096, 0, DType::F32, ReduceOp::Sum);
        assert_eq!(describe(&none.head(1)), "allreduce (call 1) of sum, 0 elements, float32");
    }

    #[test]
    fn heads_of_calls_that_do_not_fit_differ_and_it_is_said_how() {
        let said = |collective, ours: &[usize], theirs: &[usize]| {
            let head = |lengths: &[usize]| {
                let (blocks, block) = (lengths.iter().map(|elements| part(*elements)).collect(), vec![part(1)]);
                let (input, output) =
                    if collective == Collective::AllGather { (block, blocks) } else { (blocks, block) };
                Call { collective, input, output, ..Call::barrier() }.head(1)
            };
            (head(ours) != head(theirs)).then(|| difference(0, &head(ours), "1 of the group", &head(theirs)))
        };
        for collective in [Collective::AllGather, Collective::ReduceScatter] {
            assert_eq!(said(collective, &[1, 2, 3], &[1, 2, 3]), None);
            for other in [[3, 2, 1], [2, 2, 2]] {
                let said = said(collective, &[1, 2, 3], &other).unwrap();
                assert!(said.contains("rank 0 and rank 1 of the group give blocks other lengths"), "{said}");
            }
            let said = said(collective, &[2, 2, 2], &[2, 2, 3]).unwrap();
            assert!(said.contains("6 elements") && said.contains("rank 1 of the group") && said.contains("7 elements"));
        }
        let head = Call::barrier().head(4);
        let other = Head { kind: [head.kind[0], head.kind[1], head.kind[2], 7], ..head };
        assert!(difference(0, &head, 1, &other).contains("different things before their barrier (call 4)"));
    }

    #[test]
    fn parts_that_touch_are_one_run_of_memory() {
        let each = |addresses: [usize; 2]| addresses.map(|address| Part { address, elements: 2 }).to_vec();
        let call = |output| Call {
            collective: Collective::AllGather,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            input: vec![Part { address: 64, elements: 2 }],
            output,
        };
        assert_eq!(call(each([4096, 4104])).wholes().unwrap().1.bytes, 16);
        assert!(call(each([4096, 4112])).wholes().is_none());
    }
}
