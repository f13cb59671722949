//! Data connections between ranks of different nodes: they reach whom they are meant for, sealed or not as both were told.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::world::{How, each, join_all, private, soon, world};
use eirene_train_mesh::{Error, Mesh, Opening, Sealing, Secrecy};

#[test]
fn data_connections_reach_the_rank_that_asked_for_them() {
    let directory = private();
    let how = How::File(directory.path().join("meeting"));
    let plans = (0..3).map(|rank| {
        let mut plan = how.plan(rank, 3);
        plan.node = Some((rank / 2).to_string());
        plan
    });
    let meshes: Vec<Mesh> = join_all(plans.collect()).into_iter().map(Result::unwrap).collect();
    each(&meshes, |mesh| {
        for topic in 0..4 {
            // All pairs at once, also inside the node.
            let mut streams: Vec<_> = (0..3)
                .filter(|&other| other != mesh.rank())
                .map(|other| (other, mesh.connect(other, topic, Secrecy::Clear, soon()).unwrap().stream))
                .collect();
            for (other, stream) in &mut streams {
                assert!(stream.nodelay().unwrap());
                stream.write_all(&[mesh.rank() as u8, *other as u8, topic as u8]).unwrap();
            }
            for (other, stream) in &mut streams {
                let mut bytes = [0; 3];
                stream.read_exact(&mut bytes).unwrap();
                assert_eq!(bytes, [*other as u8, mesh.rank() as u8, topic as u8]);
            }
        }
    });
}

/// Two data connections between two ranks; what they are sealed with, by rank.
fn sealed_twice(meshes: &[Mesh]) -> Vec<[(Sealing, Opening); 2]> {
    let connect = |mesh: &Mesh| {
        let other = 1 - mesh.rank();
        [7, 7].map(|topic| mesh.connect(other, topic, Secrecy::Sealed, soon()).unwrap().ends.unwrap())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = meshes.iter().map(|mesh| scope.spawn(move || connect(mesh))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn each_data_connection_has_keys_of_its_own_for_each_direction() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    let mut seen = HashSet::new();
    for (from, connection) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut ends = sealed_twice(&meshes);
        let mut text = *b"for you alone";
        let tag = ends[from][connection].0.seal(b"", &mut text);
        assert!(seen.insert(text), "never sealed alike");
        assert!(ends[from][connection].1.open(b"", &mut text.clone(), 0, &tag).is_err(), "not where it came from");
        assert!(ends[1 - from][1 - connection].1.open(b"", &mut text.clone(), 0, &tag).is_err(), "in no other");
        assert_eq!(ends[1 - from][connection].1.open(b"", &mut text, 0, &tag).unwrap(), b"for you alone");
    }
    assert_eq!(meshes[0].derive("store").unwrap(), meshes[1].derive("store").unwrap());
    assert_ne!(meshes[0].derive("store").unwrap(), meshes[0].derive("shop").unwrap());
}

#[test]
fn ranks_that_want_another_secrecy_are_told_of_both() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    for (first, second) in [(Secrecy::Sealed, Secrecy::Clear), (Secrecy::Clear, Secrecy::Sealed)] {
        std::thread::scope(|scope| {
            let listens = scope.spawn(|| meshes[0].connect(1, 5, first, Instant::now() + Duration::from_millis(300)));
            match meshes[1].connect(0, 5, second, soon()) {
                Err(Error::Invalid { what }) => {
                    assert!(what.contains("rank 1 wants") && what.contains("rank 0 one"), "{what}");
                }
                other => panic!("{other:?}"),
            }
            assert!(matches!(listens.join().unwrap(), Err(Error::Timeout { .. })));
        });
    }
    let clear = std::thread::scope(|scope| {
        let listens = scope.spawn(|| meshes[0].connect(1, 6, Secrecy::Clear, soon()));
        let calls = meshes[1].connect(0, 6, Secrecy::Clear, soon()).unwrap();
        [listens.join().unwrap().unwrap(), calls]
    });
    assert!(clear.iter().all(|connection| connection.ends.is_none()));
}

#[test]
fn a_data_connection_nobody_comes_for_times_out_and_the_next_one_works() {
    let directory = private();
    let meshes = world(&How::Directory(directory.path().into()), 2, |_| {});
    let shortly = || Instant::now() + Duration::from_millis(50);
    for mesh in &meshes {
        let other = 1 - mesh.rank();
        for _ in 0..2 {
            match mesh.connect(other, 3, Secrecy::Sealed, shortly()) {
                Err(Error::Timeout { missing, .. }) => assert_eq!(missing, [other]),
                other => panic!("{other:?}"),
            }
        }
    }
    each(&meshes, |mesh| {
        mesh.connect(1 - mesh.rank(), 3, Secrecy::Sealed, soon()).unwrap();
    });
}
