//! A rank that has nothing to do, or whose own thread does it, leaves the cores to others. Only the deep tests watch it, for it takes time.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::deep::deep;
use crate::ranks::{AMPLE, on_nodes};
use eirene_train_runtime::{DType, Group, Part, Work};

/// How long is watched.
const WATCHED: Duration = Duration::from_secs(1);

/// How often a thread has gone to sleep.
fn naps(task: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

/// How often all progress threads of this process have, once there are so many: a thread has its name a moment after it was started.
fn naps_of_progress(threads: usize) -> u64 {
    let deadline = Instant::now() + AMPLE;
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
        let progress = tasks
            .filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "eirene-progress\n"));
        let naps: Vec<u64> = progress.filter_map(|task| naps(&task)).collect();
        if naps.len() == threads {
            return naps.iter().sum();
        }
        assert!(Instant::now() < deadline, "{} threads work, and {threads} should", naps.len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[expect(unsafe_code, reason = "the word outlives the message")]
fn pass(group: &Group, word: &mut u64) -> Work {
    let what = Part { address: std::ptr::from_mut(word) as usize, elements: 8 };
    // SAFETY: the caller keeps the word until the work is over, and nobody else uses it.
    let passed = unsafe {
        match group.rank() {
            0 => group.send(1, 1, what, DType::U8, AMPLE),
            _ => group.receive(Some(0), 1, what, DType::U8, AMPLE),
        }
    };
    passed.unwrap()
}

#[test]
fn ranks_of_other_nodes_are_not_looked_for_when_nothing_is_under_way() {
    if !deep() {
        return;
    }
    let together = Barrier::new(2);
    let naps = on_nodes(&["a", "b"], |world| {
        let group = world.everybody(AMPLE).unwrap();
        let mut word = 7;
        // Whoever begins something without waiting for it has a progress thread from then on.
        pass(&group, &mut word).wait(Some(AMPLE)).unwrap();
        together.wait();
        let began = Instant::now();
        let before = naps_of_progress(2);
        std::thread::sleep(WATCHED);
        let naps = naps_of_progress(2) - before;
        // Nobody leaves while the other one counts.
        together.wait();
        naps as f64 / began.elapsed().as_secs_f64()
    });
    // Two threads that sleep for 50 ms at most; at a message's pace they would be at some thousand.
    assert!(naps.iter().all(|rate| *rate < 200.0), "{naps:?}");
}

#[test]
fn who_waits_long_for_a_rank_of_another_node_sleeps_longer_and_longer() {
    if !deep() {
        return;
    }
    let naps = on_nodes(&["a", "b"], |world| {
        let group = world.everybody(AMPLE).unwrap();
        let mut word = 7;
        if group.rank() == 0 {
            std::thread::sleep(WATCHED);
        }
        let (own, began) = (Path::new("/proc/thread-self"), Instant::now());
        let before = naps(own).unwrap();
        pass(&group, &mut word).wait(Some(AMPLE)).unwrap();
        (naps(own).unwrap() - before) as f64 / began.elapsed().as_secs_f64().max(WATCHED.as_secs_f64())
    });
    assert!(naps[1] < 1000.0, "{naps:?}");
}
