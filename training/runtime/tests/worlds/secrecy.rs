//! Whether data between nodes is encrypted: results are the same either way, and rank 0 decides, but never against a rank that insists.

use crate::ranks::{AMPLE, joining};
use eirene_train_runtime::{Call, Collective, DType, Encryption, Error, Group, Options, Part, ReduceOp, World};

fn asking(encryption: Option<Encryption>) -> Options {
    Options { encryption, ..Options::default() }
}

#[expect(unsafe_code, reason = "the buffers outlive the call")]
fn run(group: &Group, collective: Collective, input: &mut [f32], output: &mut [f32]) {
    let part = |buffer: &mut [f32]| Part { address: buffer.as_mut_ptr() as usize, elements: buffer.len() };
    // A part of the output for each of the inputs, where they are kept apart.
    let output = output.chunks_mut(input.len()).map(part).collect();
    let input = vec![part(input)];
    let call = Call { collective, dtype: DType::F32, op: ReduceOp::Sum, input, output };
    // SAFETY: the buffers live until the call is over.
    unsafe { group.run(&call, AMPLE) }.unwrap();
}

/// What collectives and messages of several lengths give, bit by bit: fractions, so that it shows in which order they were added.
#[expect(unsafe_code, reason = "the buffers outlive the works")]
fn results(world: &World) -> Vec<Vec<u32>> {
    let group = world.everybody(AMPLE).unwrap();
    let (me, size) = (group.rank(), group.size());
    let mut all = Vec::new();
    for elements in [1, 33, 4097, 16_381, 150_001] {
        let own: Vec<f32> = (0..elements).map(|at| 1.0 / (1.0 + at as f32 + me as f32)).collect();
        let mut buffer = own.clone();
        run(&group, Collective::AllReduce, &mut buffer.clone(), &mut buffer);
        all.push(buffer);
        let mut buffer = own.clone();
        run(&group, Collective::Broadcast { root: size - 1 }, &mut buffer.clone(), &mut buffer);
        all.push(buffer);
        let mut gathered = vec![0.0; elements * size as usize];
        run(&group, Collective::AllGather, &mut own.clone(), &mut gathered);
        all.push(gathered);
        // Round in a ring, with nothing in it, too.
        for elements in [elements, 0] {
            let mut got = vec![0.0_f32; elements];
            let (to, from) = ((me + 1) % size, (me + size - 1) % size);
            // SAFETY: both buffers live until the works are over.
            let works = unsafe {
                let part = |address| Part { address, elements };
                let received = group.receive(Some(from), 3, part(got.as_mut_ptr() as usize), DType::F32, AMPLE);
                [group.send(to, 3, part(own.as_ptr() as usize), DType::F32, AMPLE), received]
            };
            for work in works {
                work.unwrap().wait(None).unwrap();
            }
            all.push(got);
        }
    }
    all.into_iter().map(|buffer| buffer.into_iter().map(f32::to_bits).collect()).collect()
}

#[test]
fn results_are_the_same_encrypted_or_not() {
    for nodes in [&["a", "b"][..], &["a", "a", "b"], &["a", "b", "c", "a"]] {
        let of = |encryption| joining(nodes, |_| asking(encryption), |world| results(&world.unwrap()));
        let unsaid = of(None);
        assert!(unsaid == of(Some(Encryption::On)) && unsaid == of(Some(Encryption::Off)), "{nodes:?}");
    }
}

#[test]
fn rank_0_decides_and_who_asked_for_encryption_in_vain_is_told_so() {
    let told = joining(
        &["a", "b", "c"],
        |rank| asking((rank == 2).then_some(Encryption::Off)),
        |world| {
            let world = world.unwrap();
            results(&world);
            world.remarks().join("; ")
        },
    );
    let expected = "EIRENE_TRAIN_ENCRYPTION `off` on rank 2 and `on` on rank 0; rank 0's holds for all";
    assert_eq!(told, ["", "", expected]);
    // A rank that was told nothing goes without where rank 0 does.
    let of_zero = |rank| asking((rank == 0).then_some(Encryption::Off));
    let told = joining(&["a", "b"], of_zero, |world| {
        let world = world.unwrap();
        results(&world);
        world.remarks().len()
    });
    assert_eq!(told, [0, 0]);
}

#[test]
fn a_rank_that_insists_on_encryption_joins_no_world_without() {
    let of = |rank| asking(Some(if rank == 0 { Encryption::Off } else { Encryption::On }));
    let outcomes = joining(&["a", "b"], of, |world| world.and_then(|world| world.everybody(AMPLE).map(drop)));
    let both = ["EIRENE_TRAIN_ENCRYPTION is `on` on rank 1", "`off` on rank 0"];
    match &outcomes[1] {
        Err(Error::Invalid { message }) => assert!(both.iter().all(|part| message.contains(part)), "{message}"),
        other => panic!("{other:?}"),
    }
    match &outcomes[0] {
        Err(Error::Aborted { rank: 1, reason }) => assert!(both.iter().all(|part| reason.contains(part)), "{reason}"),
        other => panic!("{other:?}"),
    }
}
