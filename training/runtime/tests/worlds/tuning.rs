//! What is measured, kept, asked for and explained, and that all ranks choose alike whatever each of them was told.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::deep::assert_within;
use crate::ranks::{AMPLE, SOON, joining, meeting_place};
use eirene_train_runtime::{Call, Collective, DType, Error, Group, Options, ReduceOp, Tuned, Tuning};

/// Enough to measure the smallest allreduce, and no more.
const BUDGET: Duration = Duration::ZERO;

fn measuring(cache: &Path) -> Options {
    Options { tuning: Tuning::Measure, cache: Some(cache.to_owned()), ..Options::default() }
}

/// Sums of several sizes are right.
#[expect(unsafe_code, reason = "the buffer outlives the call")]
fn check_sums(group: &Group) {
    for elements in [1, 777, 5000, 40_001, 300_007] {
        let mut buffer: Vec<f32> = (0..elements).map(|index| (index % 50) as f32 + group.rank() as f32).collect();
        let address = buffer.as_mut_ptr() as usize;
        let call = Call::all_reduce(address, address, elements, DType::F32, ReduceOp::Sum);
        // SAFETY: the buffer lives until the call is over.
        unsafe { group.run(&call, AMPLE) }.unwrap();
        let size = group.size();
        let ranks = (0..size).map(|rank| rank as f32).sum::<f32>();
        assert!(buffer.iter().enumerate().all(|(i, value)| *value == (i % 50) as f32 * size as f32 + ranks));
    }
}

/// What a world's ranks say of themselves after tuning its first group: what became of it, and why which allreduce of 1 KiB is chosen.
fn tuned(nodes: &[&str], options: impl Fn(u32) -> Options + Sync) -> Vec<(Tuned, String)> {
    joining(nodes, options, |world| {
        let world = world.unwrap();
        let group = world.everybody(AMPLE).unwrap();
        let tuned = group.tune(BUDGET).unwrap();
        check_sums(&group);
        let explained = group.explain(Collective::AllReduce, DType::F32, 256);
        world.leave();
        (tuned, explained)
    })
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn is_measured(tuned: &Tuned) -> bool {
    matches!(tuned, Tuned::Measured { cases, .. } if *cases > 0)
}

#[test]
fn a_topology_is_measured_once() {
    let cache = tempfile::tempdir().unwrap();
    let first = tuned(&["a", "a"], |_| measuring(cache.path()));
    assert!(first.iter().all(|(tuned, _)| is_measured(tuned)), "{first:?}");
    let [file] = files(cache.path()).try_into().unwrap();
    let Tuned::Measured { kept: Some(Ok(kept)), .. } = &first[0].0 else { panic!("{first:?}") };
    assert_eq!(*kept, file);
    let written = std::fs::metadata(&file).unwrap();

    for mode in [Tuning::Measure, Tuning::Read] {
        let second = tuned(&["b", "b"], |_| Options { tuning: mode, ..measuring(cache.path()) });
        assert!(second.iter().all(|(tuned, _)| matches!(tuned, Tuned::Kept { cases, .. } if *cases > 0)), "{second:?}");
        assert!(second.iter().all(|(_, explained)| explained.contains("measured 2") && *explained == second[0].1));
    }
    let read = std::fs::metadata(&file).unwrap();
    assert_eq!((read.ino(), read.mtime_nsec()), (written.ino(), written.mtime_nsec()), "nothing was written again");

    let off = tuned(&["a", "a"], |_| Options { tuning: Tuning::Off, ..measuring(cache.path()) });
    assert!(off.iter().all(|(tuned, explained)| *tuned == Tuned::Off && !explained.contains("measured")), "{off:?}");
    let again = tuned(&["a", "a"], |_| Options { tuning: Tuning::Again, ..measuring(cache.path()) });
    assert!(again.iter().all(|(tuned, _)| is_measured(tuned)), "{again:?}");
    assert_ne!(std::fs::metadata(&file).unwrap().ino(), written.ino(), "measured again");
}

#[test]
fn another_topology_is_measured_anew() {
    let cache = tempfile::tempdir().unwrap();
    for (number, nodes) in [vec!["a", "a"], vec!["a", "b"], vec!["a", "a", "a"], vec!["a", "b", "a"]].iter().enumerate()
    {
        let all = tuned(nodes, |_| measuring(cache.path()));
        assert!(all.iter().all(|(tuned, _)| is_measured(tuned)), "{nodes:?}: {all:?}");
        assert_eq!(files(cache.path()).len(), number + 1);
    }
    let other_cores = tuned(&["a", "a"], |_| Options { cores: Some(77), ..measuring(cache.path()) });
    assert!(other_cores.iter().all(|(tuned, _)| is_measured(tuned)), "{other_cores:?}");
}

#[test]
fn a_file_that_is_of_no_use_is_ignored_and_replaced() {
    let cache = tempfile::tempdir().unwrap();
    tuned(&["a", "a"], |_| measuring(cache.path()));
    let [file] = files(cache.path()).try_into().unwrap();
    let good = std::fs::read_to_string(&file).unwrap();
    let old = good.replace("\"format\": 1", "\"format\": 0");
    assert_ne!(good, old);
    for (content, reason) in [(&good[..good.len() / 2], "EOF"), (old.as_str(), "format 0")] {
        std::fs::write(&file, content).unwrap();
        let read = tuned(&["a", "a"], |_| Options { tuning: Tuning::Read, ..measuring(cache.path()) });
        for (tuned, explained) in &read {
            assert!(matches!(tuned, Tuned::Nothing { remark: Some(remark) } if remark.contains(reason)), "{tuned:?}");
            assert!(explained.contains("is ignored") && explained.contains(reason), "{explained}");
        }
        let all = tuned(&["a", "a"], |_| measuring(cache.path()));
        assert!(all.iter().all(|(tuned, _)| is_measured(tuned) && tuned.to_string().contains(reason)), "{all:?}");
        let all = tuned(&["a", "a"], |_| measuring(cache.path()));
        assert!(all.iter().all(|(tuned, _)| matches!(tuned, Tuned::Kept { .. })), "{all:?}");
    }
}

#[test]
fn without_a_place_to_keep_it_what_was_measured_still_counts() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("file");
    std::fs::write(&file, "").unwrap();
    for cache in [Some(file.join("cache")), None] {
        let all = tuned(&["a", "a"], |_| Options { cache: cache.clone(), ..measuring(base.path()) });
        assert!(all.iter().all(|(tuned, explained)| is_measured(tuned) && explained.contains("measured 2")), "{all:?}");
        let Tuned::Measured { kept: Some(Err(reason)), .. } = &all[0].0 else { panic!("{all:?}") };
        assert!(reason.contains(if cache.is_some() { "file/cache" } else { "HOME" }), "{reason}");
    }
    assert_eq!(files(base.path()), [file]);
}

#[test]
fn later_groups_of_all_ranks_go_by_it_and_others_have_their_own() {
    let cache = tempfile::tempdir().unwrap();
    joining(
        &["a", "a", "a"],
        |_| measuring(cache.path()),
        |world| {
            let world = world.unwrap();
            let explained = |group: &Group| group.explain(Collective::AllReduce, DType::F32, 256);
            let before = world.everybody(AMPLE).unwrap();
            assert!(is_measured(&before.tune(BUDGET).unwrap()));
            let after = world.everybody(AMPLE).unwrap();
            assert_eq!(explained(&before), explained(&after));
            assert!(matches!(after.tune(BUDGET).unwrap(), Tuned::Kept { .. }));
            if world.rank() < 2 {
                let some = world.group(&[1, 0], "some", AMPLE).unwrap();
                assert!(!explained(&some).contains("measured"), "{}", explained(&some));
                assert!(is_measured(&some.tune(BUDGET).unwrap()));
                assert!(explained(&some).contains("measured"), "{}", explained(&some));
                check_sums(&some);
            }
            let alone = world.group(&[world.rank()], "alone", AMPLE).unwrap();
            assert_eq!(alone.tune(BUDGET).unwrap(), Tuned::Alone);
            check_sums(&after);
            world.leave();
        },
    );
    assert_eq!(files(cache.path()).len(), 2);
}

#[test]
fn ranks_that_were_told_different_things_choose_alike() {
    let caches: Vec<tempfile::TempDir> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    for nodes in [["a", "a", "a", "a"], ["a", "b", "a", "b"]] {
        // One rank's file is there already, and says something else than rank 0 will find.
        let path = |rank: u32| caches[rank as usize].path();
        tuned(&nodes, |_| measuring(path(3)));
        for file in files(path(3)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let (begin, end) = text.split_once("\"measured\": \"").unwrap();
            std::fs::write(&file, format!("{begin}\"measured\": \"2001-01-01{}", &end[10..])).unwrap();
        }
        let options = |rank: u32| match rank {
            0 => Options { algorithm: Some("broadcast=binomial".to_owned()), ..measuring(path(0)) },
            1 => Options { algorithm: Some("allreduce=exchange;broadcast=chain:4".to_owned()), ..Options::default() },
            2 => Options { algorithm: Some("nonsense".to_owned()), tuning: Tuning::Again, ..measuring(path(2)) },
            _ => measuring(path(3)),
        };
        let said = joining(&nodes, options, |world| {
            let world = world.unwrap();
            let group = world.everybody(AMPLE).unwrap();
            assert!(is_measured(&group.tune(BUDGET).unwrap()));
            check_sums(&group);
            let words = |collective: Collective| {
                let text = group.explain(collective, DType::F32, 5000);
                text.split("; EIRENE_TRAIN").next().unwrap().to_owned()
            };
            let measured = group.explain(Collective::AllReduce, DType::F32, 256);
            assert!(measured.contains("measured 2") && !measured.contains("2001-01-01"), "{measured}");
            let explained =
                [measured.split("; EIRENE_TRAIN").next().unwrap().to_owned(), words(Collective::Broadcast { root: 1 })];
            let remarks = world.remarks().to_vec();
            world.leave();
            (explained, remarks)
        });
        assert!(said.iter().all(|(explained, _)| *explained == said[0].0), "{said:?}");
        assert!(said[0].0[1].contains("binomial: asked for by `broadcast=binomial`"), "{said:?}");
        assert!(said[0].1.is_empty() && said[3].1.is_empty(), "{said:?}");
        let remark = &said[1].1[0];
        assert!(remark.contains("`allreduce=exchange;broadcast=chain:4` on rank 1"), "{remark}");
        assert!(remark.contains("`broadcast=binomial` on rank 0"), "{remark}");
        assert!(said[2].1[0].contains("`nonsense` on rank 2"), "{said:?}");
        assert!(said[2].1[0].contains("`again` on rank 2 and `measure` on rank 0"), "{said:?}");
        assert_eq!(files(path(2)).len(), 0, "only rank 0 keeps anything");
    }
}

#[test]
fn an_algorithm_that_there_is_not_ends_the_world_on_all_ranks_with_what_there_is() {
    for nodes in [["a", "a", "a"], ["a", "b", "b"]] {
        for (algorithm, reason) in [
            ("allreduce=quick", "allreduce has no algorithm `quick`; it has exchange"),
            ("ring;allreduce=binomial", "allreduce has no algorithm `binomial`"),
            ("mpi", "MPI is not in use"),
        ] {
            let options = |rank| Options { algorithm: (rank == 0).then(|| algorithm.to_owned()), ..Options::default() };
            let began = Instant::now();
            let errors = joining(&nodes, options, |world| world.err().unwrap());
            assert!(began.elapsed() < AMPLE, "somebody waited for the end of its time");
            assert!(matches!(errors[0], Error::Invalid { .. }), "{errors:?}");
            for (rank, error) in errors.iter().enumerate() {
                assert!(error.to_string().contains(reason), "rank {rank}: {error}");
                assert!(rank == 0 || matches!(error, Error::Aborted { rank: 0, .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn what_is_asked_for_and_not_possible_is_passed_over_with_the_reason() {
    let wishes = "allgather=doubling;allreduce=shared;broadcast=two-level:4";
    let options = |_| Options { algorithm: Some(wishes.to_owned()), ..Options::default() };
    let said = joining(&["a", "a", "a"], options, |world| {
        let world = world.unwrap();
        let group = world.everybody(AMPLE).unwrap();
        check_sums(&group);
        let explain = |collective| group.explain(collective, DType::F32, 100_000);
        let said = [Collective::AllGather, Collective::AllReduce, Collective::Broadcast { root: 0 }].map(explain);
        world.leave();
        said
    });
    for [gather, reduce, broadcast] in &said {
        assert!(
            gather.contains("direct/1")
                && gather
                    .contains("`allgather=doubling` is not possible: the collective has no such algorithm on 3 ranks")
        );
        assert!(reduce.contains("`allreduce=shared` is for buffers that all lie in arenas"), "{reduce}");
        assert!(reduce.contains("in arenas: shared: asked for by"), "{reduce}");
        assert!(broadcast.contains("`broadcast=two-level:4` is not possible: all ranks of this group are on one node"));
    }
}

struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Processes that tune, by the example program `tune`.
fn processes(nodes: &str, meeting: &Path, times: u32, variables: &[(&str, &str)]) -> Ranks {
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    let spawn = |rank: usize| {
        Command::new(program.join("examples/tune"))
            .args([rank.to_string().as_str(), nodes])
            .arg(meeting)
            .args(["300", times.to_string().as_str()])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    Ranks((0..nodes.len()).map(spawn).collect())
}

#[test]
fn a_rank_that_is_killed_while_it_is_measured_is_named_by_all_others() {
    for nodes in ["aaaa", "abab"] {
        let (meeting, cache) = (meeting_place(), tempfile::tempdir().unwrap());
        let variables = [("EIRENE_TRAIN_TUNING", "again"), ("EIRENE_TRAIN_CACHE", cache.path().to_str().unwrap())];
        let mut ranks = processes(nodes, meeting.path(), 1_000_000, &variables);
        let mut lines: Vec<_> =
            ranks.0.iter_mut().map(|rank| BufReader::new(rank.stdout.take().unwrap()).lines()).collect();
        for lines in &mut lines {
            assert_eq!(lines.next().unwrap().unwrap(), "under way");
        }
        ranks.0[2].kill().unwrap();
        let killed = Instant::now();
        for rank in [0, 1, 3] {
            let error = lines[rank].find(|line| !line.as_ref().unwrap().starts_with("measured ")).unwrap().unwrap();
            assert_within(SOON, killed.elapsed());
            assert!(error.contains("rank 2 has ended"), "rank {rank}: {error}");
            assert!(ranks.0[rank].wait().unwrap().success());
        }
        assert!(files(cache.path()).len() <= 1, "nothing half written is left");
        assert_eq!(files(meeting.path()).len(), 0);
    }
}

#[test]
fn rank_0_alone_says_what_is_chosen_once_for_each_kind_of_call() {
    let (meeting, cache) = (meeting_place(), tempfile::tempdir().unwrap());
    let variables = [("EIRENE_TRAIN_EXPLAIN", "1"), ("EIRENE_TRAIN_CACHE", cache.path().to_str().unwrap())];
    let mut ranks = processes("aa", meeting.path(), 2, &variables);
    let said = [0, 1].map(|rank: usize| {
        let mut text = String::new();
        ranks.0[rank].stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    });
    for rank in &mut ranks.0 {
        assert!(rank.wait().unwrap().success());
    }
    assert_eq!(said[1], "");
    let count = |beginning: &str| said[0].lines().filter(|line| line.starts_with(beginning)).count();
    assert_eq!(count("eirene-train: measured "), 1, "{}", said[0]);
    assert!(said[0].contains(&format!("; kept in {}", cache.path().display())), "{}", said[0]);
    assert_eq!(count("eirene-train: allreduce of 40000 bytes on 2 ranks of 1 node: "), 1, "{}", said[0]);
    assert_eq!(count("eirene-train: allreduce of 400000 bytes on 2 ranks of 1 node: "), 1, "{}", said[0]);
}
