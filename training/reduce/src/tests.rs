use crate::{DType, ReduceOp, Reduction};

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

#[test]
fn two_singles_are_added() {
    let (a, b) = ([1.0_f32, 2.0], [10.0_f32, 20.0]);
    let mut out = [0.0_f32; 2];
    let sum = Reduction::new(DType::F32, ReduceOp::Sum, None).unwrap();
    unsafe { sum.run(&[out.as_mut_ptr().cast()], &[a.as_ptr().cast(), b.as_ptr().cast()], 2) };
    assert_eq!(out.map(f32::to_bits), [11.0_f32, 22.0].map(f32::to_bits));
}
