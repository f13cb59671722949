mod oracle;

use proptest::prelude::*;

use self::oracle::{BRAIN, Format, HALF, fold, same};
use crate::{DType, Path, ReduceOp, Reduction, Undefined, copy, half};

/// Bytes around a buffer that nobody may touch.
const MARGIN: usize = 64;
const UNTOUCHED: u8 = 0xa5;

/// A tensor at any alignment, with margins.
#[derive(Clone)]
struct Tensor {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Tensor {
    fn new(content: &[u8], misalignment: usize) -> Self {
        let mut memory = vec![UNTOUCHED; content.len() + 3 * MARGIN];
        let start = MARGIN + (memory.as_ptr() as usize + MARGIN).next_multiple_of(MARGIN)
            - (memory.as_ptr() as usize + MARGIN)
            + misalignment % MARGIN;
        let start = start.min(2 * MARGIN);
        memory[start..start + content.len()].copy_from_slice(content);
        Self { memory, start, bytes: content.len() }
    }

    fn content(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    fn address(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    fn margins_are_untouched(&self) -> bool {
        let (before, rest) = self.memory.split_at(self.start);
        before.iter().chain(&rest[self.bytes..]).all(|byte| *byte == UNTOUCHED)
    }
}

/// Numbers that need not be good, only the same every time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Elements that are anything, or small numbers, or the ends of their type.
    fn elements(&mut self, dtype: DType, elements: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(elements * dtype.size());
        for _ in 0..elements {
            let bits = self.throw();
            let (kind, small) = (bits >> 62, f32::from((bits >> 32) as u8) / 8.0 - 8.0);
            let element = match (dtype, kind) {
                (DType::Bool, _) => bits & bits >> 8 & 1,
                (DType::F32, 0 | 1) => u64::from(small.to_bits()),
                (DType::F64, 0 | 1) => f64::from(small).to_bits(),
                (DType::F16, 0 | 1) => u64::from(HALF.nearest(small)),
                (DType::BF16, 0 | 1) => u64::from(BRAIN.nearest(small)),
                (_, 0) => small as i64 as u64,
                (DType::F32, 2) => {
                    u64::from([0.0, -0.0, f32::INFINITY, f32::MIN_POSITIVE][bits as usize % 4].to_bits())
                }
                (DType::F64, 2) => [0.0, -0.0, f64::NEG_INFINITY, f64::NAN][bits as usize % 4].to_bits(),
                (DType::F16, 2) => [0, 0x8000, 0x7c00, 1][bits as usize % 4],
                (DType::BF16, 2) => [0, 0x8000, 0xff80, 1][bits as usize % 4],
                (_, 2) => [0, 1, u64::MAX, 0x8000_0000_0000_0000][bits as usize % 4],
                _ => bits,
            };
            bytes.extend(&element.to_le_bytes()[..dtype.size()]);
        }
        bytes
    }
}

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    op: ReduceOp,
    divisor: Option<u32>,
    path: Path,
    sources: usize,
    elements: usize,
    /// For each output, the source that it is.
    outputs: Vec<Option<usize>>,
    misalignments: Vec<usize>,
    streaming: bool,
    seed: u64,
}

/// Runs the case and compares everything it could have touched with what it should have become.
fn check(case: &Case) {
    let Case { dtype, op, divisor, path, sources: count, elements, outputs, misalignments, streaming, seed } =
        case.clone();
    let reduction = Reduction::on(path, dtype, op, divisor).unwrap();
    let mut dice = Dice(seed | 1);
    let misalignment = |number: usize| misalignments[number % misalignments.len()];
    let mut sources: Vec<Tensor> =
        (0..count).map(|number| Tensor::new(&dice.elements(dtype, elements), misalignment(number))).collect();
    let before = sources.clone();
    let contents: Vec<&[u8]> = before.iter().map(Tensor::content).collect();
    let expected = fold(dtype, op, divisor, &contents);

    let mut fresh: Vec<Tensor> = (0..outputs.len())
        .map(|number| Tensor::new(&dice.elements(dtype, elements), misalignment(count + number)))
        .collect();
    let from: Vec<*mut u8> = sources.iter_mut().map(Tensor::address).collect();
    let into: Vec<*mut u8> = fresh
        .iter_mut()
        .zip(&outputs)
        .map(|(fresh, output)| output.map_or_else(|| fresh.address(), |source| from[source]))
        .collect();
    let from: Vec<*const u8> = from.iter().map(|source| source.cast_const()).collect();
    unsafe {
        if streaming {
            reduction.run_streaming(&into, &from, elements);
        } else {
            reduction.run(&into, &from, elements);
        }
    }

    for (number, source) in sources.iter().enumerate() {
        let written = outputs.contains(&Some(number));
        let is_right =
            if written { same(dtype, source.content(), &expected) } else { source.content() == contents[number] };
        assert!(is_right && source.margins_are_untouched(), "source {number} of {case:?}");
    }
    for (number, (fresh, output)) in fresh.iter().zip(&outputs).enumerate() {
        let is_right = output.is_some() || same(dtype, fresh.content(), &expected);
        assert!(is_right && fresh.margins_are_untouched(), "output {number} of {case:?}");
    }
}

fn paths() -> impl Iterator<Item = Path> {
    Path::ALL.into_iter().filter(|path| path.is_available())
}

fn pairs() -> impl Iterator<Item = (DType, ReduceOp)> {
    DType::ALL
        .into_iter()
        .flat_map(|dtype| ReduceOp::ALL.into_iter().map(move |op| (dtype, op)))
        .filter(|(dtype, op)| op.defined_for(*dtype))
}

#[test]
fn every_type_operation_path_and_number_of_sources_is_as_the_oracle_says() {
    for (dtype, op) in pairs() {
        // More than a tile of every type, and a remainder for every vector.
        let elements = if cfg!(miri) { 37 } else { 1100 / dtype.size() + 37 };
        for path in paths() {
            for sources in 1..=9 {
                for (shape, outputs) in
                    [vec![None], vec![Some(0)], vec![Some(sources - 1), None, Some(0)]].iter().enumerate()
                {
                    let mut outputs = outputs.clone();
                    if sources == 1 {
                        outputs.truncate(2);
                    }
                    check(&Case {
                        dtype,
                        op,
                        divisor: (op == ReduceOp::Avg && shape > 0).then_some(sources as u32),
                        path,
                        sources,
                        elements,
                        outputs,
                        misalignments: vec![0, dtype.size(), 1],
                        streaming: false,
                        seed: sources as u64 * 1_000_003 + 17,
                    });
                }
            }
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let pairs: Vec<_> = pairs().collect();
    let paths: Vec<_> = paths().collect();
    let length = prop_oneof![0..70_usize, 0..=5000_usize];
    let outputs = prop::collection::vec(prop::option::of(0..9_usize), 1..=3);
    let misalignments = prop::collection::vec(0..MARGIN, 1..=12);
    (
        (prop::sample::select(pairs), prop::sample::select(paths), 1..=9_usize, length),
        (outputs, misalignments, any::<bool>(), any::<u64>(), prop::option::of(1..=64_u32)),
    )
        .prop_map(
            |(((dtype, op), path, sources, elements), (mut outputs, misalignments, streaming, seed, divisor))| {
                let mut taken = Vec::new();
                for output in &mut outputs {
                    *output = output.map(|source| source % sources).filter(|source| !taken.contains(source));
                    taken.extend(*output);
                }
                let divisor = divisor.filter(|_| op == ReduceOp::Avg);
                Case { dtype, op, divisor, path, sources, elements, outputs, misalignments, streaming, seed }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 1000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_is_as_the_oracle_says(case in cases()) {
        check(&case);
    }

    #[test]
    fn copies_are_the_same(bytes in 0..20_000_usize, from in 0..MARGIN, to in 0..MARGIN, streaming: bool, seed: u64) {
        let mut from = Tensor::new(&Dice(seed | 1).elements(DType::U8, bytes), from);
        let mut into = Tensor::new(&vec![0; bytes], to);
        unsafe { copy(into.address(), from.address(), bytes, streaming) };
        prop_assert!(into.content() == from.content() && into.margins_are_untouched() && from.margins_are_untouched());
    }
}

#[test]
fn one_source_may_be_both_of_two() {
    for (dtype, op) in pairs() {
        for path in paths() {
            let content = Dice(11).elements(dtype, 777);
            let expected = fold(dtype, op, None, &[&content, &content]);
            let mut tensor = Tensor::new(&content, 2);
            let address = tensor.address();
            let reduction = Reduction::on(path, dtype, op, None).unwrap();
            unsafe { reduction.run(&[address], &[address.cast_const(), address.cast_const()], 777) };
            assert!(same(dtype, tensor.content(), &expected), "{dtype} {op} {path:?}");
        }
    }
}

/// Two sources of 16-bit elements, reduced.
fn reduce16(path: Path, dtype: DType, op: ReduceOp, left: &[u16], right: &[u16]) -> Vec<u16> {
    let mut output = vec![0_u16; left.len()];
    let reduction = Reduction::on(path, dtype, op, None).unwrap();
    unsafe { reduction.run(&[output.as_mut_ptr().cast()], &[left.as_ptr().cast(), right.as_ptr().cast()], left.len()) };
    output
}

#[test]
fn every_pattern_of_16_bits_survives_the_way_to_single_precision_and_back() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let zero = vec![0x8000_u16; all.len()];
    for (dtype, format) in [(DType::F16, HALF), (DType::BF16, BRAIN)] {
        for path in paths() {
            let quiet = 1 << (format.infinity().trailing_zeros() - 1);
            // Minus zero is what adds nothing to anything.
            for (bits, result) in all.iter().zip(reduce16(path, dtype, ReduceOp::Sum, &all, &zero)) {
                let expected = if bits & 0x7fff > format.infinity() { bits | quiet } else { *bits };
                assert_eq!(result, expected, "{bits:#06x} as {dtype} on {path:?}");
            }
        }
    }
}

#[test]
fn what_is_no_number_is_quiet_whatever_it_was() {
    for (dtype, format) in [(DType::F16, HALF), (DType::BF16, BRAIN)] {
        let quiet = 1 << (format.infinity().trailing_zeros() - 1);
        let strange: Vec<u16> = (0..=u16::MAX).filter(|bits| bits & 0x7fff > format.infinity()).collect();
        let zero = vec![0_u16; strange.len()];
        for path in paths() {
            for op in ReduceOp::ALL {
                for (left, right) in [(&strange, &zero), (&zero, &strange)] {
                    let results = reduce16(path, dtype, op, left, right);
                    assert!(
                        results.iter().all(|bits| bits & 0x7fff > format.infinity() && bits & quiet != 0),
                        "{op} of {dtype} on {path:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_pattern_of_16_bits_means_what_its_format_says() {
    for bits in 0..=u16::MAX {
        for (meant, is) in [(HALF.value(bits), half::f16_to_f32(bits)), (BRAIN.value(bits), half::bf16_to_f32(bits))] {
            assert!((meant as f32).to_bits() == is.to_bits() || (meant.is_nan() && is.is_nan()), "{bits:#06x}: {is}");
        }
    }
}

#[test]
fn singles_become_the_nearest_of_16_bits_and_the_even_one_of_two_as_near() {
    let check = |format: &Format, narrow: fn(f32) -> u16, value: f32| {
        let (is, expected) = (narrow(value), format.nearest(value));
        assert!(
            is == expected || (value.is_nan() && is & 0x7fff > format.infinity()),
            "{value:e}: {is:#x}, {expected:#x}"
        );
    };
    let mut dice = Dice(5);
    for (format, narrow) in [(HALF, half::f32_to_f16 as fn(f32) -> u16), (BRAIN, half::f32_to_bf16)] {
        for bits in 0..format.infinity() {
            let (low, high) = (format.value(bits) as f32, format.value(bits + 1) as f32);
            // Half-way in single precision: exact, for both formats have fewer digits; not so below infinity.
            let middle =
                if high.is_finite() { low + (high - low) / 2.0 } else { f32::from_bits(low.to_bits() + 0x8000) };
            for value in [low, middle.next_down(), middle, middle.next_up(), high.next_down()] {
                check(&format, narrow, value);
                check(&format, narrow, -value);
            }
        }
        for _ in 0..200_000 {
            check(&format, narrow, f32::from_bits(dice.throw() as u32));
        }
        for value in
            [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 65519.996, 65520.0, 1e-45, 0.0, -0.0]
        {
            check(&format, narrow, value);
        }
    }
}

#[test]
fn sums_of_16_bits_are_rounded_to_the_nearest_on_every_path() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for (dtype, others) in
        [(DType::F16, [0x0001_u16, 0x0400, 0x2c01, 0x5400]), (DType::BF16, [0x0001, 0x0080, 0x3b81, 0x7f00])]
    {
        for other in others {
            let bytes = |values: &[u16]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
            let other = vec![other; all.len()];
            let expected = fold(dtype, ReduceOp::Sum, None, &[&bytes(&all), &bytes(&other)]);
            for path in paths() {
                let result = bytes(&reduce16(path, dtype, ReduceOp::Sum, &all, &other));
                assert!(same(dtype, &result, &expected), "{dtype} with {:#06x} on {path:?}", other[0]);
            }
        }
    }
}

#[test]
fn sums_of_16_bits_are_rounded_once() {
    // Each addend alone is less than half of the last digit of 1: rounded every time, the sum would stay 1.
    for (dtype, one, little, expected) in [(DType::F16, 0x3c00, 0x0e00, 0x3c01), (DType::BF16, 0x3f80, 0x3b40, 0x3f81)]
    {
        let (one, little) = (vec![one; 50], vec![little; 50]);
        let sources = [&one, &little, &little, &little].map(|source: &Vec<u16>| source.as_ptr().cast());
        for path in paths() {
            let mut output = vec![0_u16; 50];
            let reduction = Reduction::on(path, dtype, ReduceOp::Sum, None).unwrap();
            unsafe { reduction.run(&[output.as_mut_ptr().cast()], &sources, 50) };
            assert_eq!(output, vec![expected; 50], "{dtype} on {path:?}");
        }
    }
}

/// Two sources of singles, each of one value at many places, reduced.
fn reduce_singles(path: Path, op: ReduceOp, left: f32, right: f32) -> f32 {
    let (left, right, mut output) = ([left; 21], [right; 21], [0.0_f32; 21]);
    let reduction = Reduction::on(path, DType::F32, op, None).unwrap();
    unsafe { reduction.run(&[output.as_mut_ptr().cast()], &[left.as_ptr().cast(), right.as_ptr().cast()], 21) };
    assert!(
        output.iter().all(|value| value.to_bits() == output[0].to_bits()),
        "vector and remainder differ: {output:?}"
    );
    output[0]
}

#[test]
fn the_smallest_and_the_greatest_of_strange_numbers() {
    for path in paths() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            for (left, right) in
                [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::NAN, f32::INFINITY), (f32::NEG_INFINITY, f32::NAN)]
            {
                assert!(reduce_singles(path, op, left, right).is_nan(), "{op} of {left} and {right} on {path:?}");
            }
            for (left, right) in [(0.0_f32, -0.0_f32), (-0.0, 0.0)] {
                assert_eq!(reduce_singles(path, op, left, right).to_bits(), right.to_bits(), "{op} on {path:?}");
            }
        }
        assert_eq!(
            reduce_singles(path, ReduceOp::Min, f32::NEG_INFINITY, f32::MIN).to_bits(),
            f32::NEG_INFINITY.to_bits()
        );
        assert!(reduce_singles(path, ReduceOp::Sum, f32::INFINITY, f32::NEG_INFINITY).is_nan());
        assert_eq!(reduce_singles(path, ReduceOp::Sum, f32::MAX, f32::MAX).to_bits(), f32::INFINITY.to_bits());
    }
}

#[test]
fn an_average_in_two_steps_is_the_average_in_one() {
    let sources: Vec<Vec<f32>> =
        (1..=3).map(|source| (0..333).map(|element| (element * source) as f32 / 7.0).collect()).collect();
    let addresses: Vec<*const u8> = sources.iter().map(|source| source.as_ptr().cast()).collect();
    let (mut partial, mut two, mut one) = (vec![0.0_f32; 333], vec![0.0_f32; 333], vec![0.0_f32; 333]);
    let whole = Reduction::new(DType::F32, ReduceOp::Avg, Some(3)).unwrap();
    let part = Reduction::new(DType::F32, ReduceOp::Avg, None).unwrap();
    unsafe {
        whole.run(&[one.as_mut_ptr().cast()], &addresses, 333);
        part.run(&[partial.as_mut_ptr().cast()], &addresses[..2], 333);
        whole.run(&[two.as_mut_ptr().cast()], &[partial.as_ptr().cast(), addresses[2]], 333);
    }
    assert_eq!(one, two);
    assert_eq!(one[7].to_bits(), ((1.0_f32 + 2.0 + 3.0) / 3.0).to_bits());
}

#[test]
fn what_has_no_meaning_is_refused() {
    let refused = |dtype, op, divisor| Reduction::new(dtype, op, divisor).unwrap_err();
    assert_eq!(
        refused(DType::Bool, ReduceOp::Avg, None),
        Undefined::Operation { op: ReduceOp::Avg, dtype: DType::Bool }
    );
    assert_eq!(refused(DType::Bool, ReduceOp::Avg, Some(2)).to_string(), "`avg` is not defined for `bool` elements");
    assert_eq!(refused(DType::F32, ReduceOp::Sum, Some(2)), Undefined::Divisor { op: ReduceOp::Sum });
    assert_eq!(refused(DType::F32, ReduceOp::Avg, Some(0)), Undefined::ZeroDivisor);
}

#[test]
fn nothing_is_written_where_there_is_nothing() {
    let reduction = Reduction::new(DType::F32, ReduceOp::Sum, None).unwrap();
    let (nowhere, from) = (std::ptr::null_mut(), std::ptr::null());
    unsafe {
        reduction.run(&[nowhere], &[from, from, from], 0);
        reduction.run(&[], &[from, from], 12);
    }
}

#[test]
fn names_lead_back_to_what_they_name() {
    for dtype in DType::ALL {
        assert_eq!(DType::from_name(dtype.name()), Some(dtype));
    }
    for op in ReduceOp::ALL {
        assert_eq!(ReduceOp::from_name(op.name()), Some(op));
    }
    assert_eq!(DType::from_name("complex64"), None);
}
