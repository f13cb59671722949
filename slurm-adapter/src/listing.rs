//! The list of all jobs, read while it arrives: ours are kept, everybody's are counted and dropped, so that a long list is never in memory.

use eirene_core::scheduler::{self, JobState, Queue, SchedulerResult};
use serde::{Deserialize, Deserializer};

use crate::convert;
use crate::identity::is_ours;
use crate::wire::{Answer, Failure, WireError, WireJob, failures, list, only};

/// The answer to a question for all jobs.
#[derive(Debug, Deserialize)]
pub(crate) struct Listing {
    #[serde(rename = "jobs", deserialize_with = "read")]
    seen: Seen,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

#[derive(Debug)]
struct Seen {
    ours: Vec<WireJob>,
    queue: Queue,
}

impl Answer for Listing {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

impl Listing {
    /// Our jobs of this cluster, and everybody's as numbers.
    ///
    /// # Errors
    /// [`eirene_core::scheduler::SchedulerError::Malformed`] where one of ours cannot be read.
    pub(crate) fn into_jobs(self, cluster: &str) -> SchedulerResult<scheduler::Jobs> {
        Ok(scheduler::Jobs { ours: convert::jobs(cluster, &self.seen.ours)?, queue: self.seen.queue })
    }
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seen, D::Error> {
    let mut queue = Queue::default();
    let ours = only(deserializer, |job: &WireJob| {
        count(&mut queue, job);
        is_ours(&job.name.0)
    })?;
    Ok(Seen { ours, queue })
}

/// Counts a job; one that cannot be read is left out.
fn count(queue: &mut Queue, wire: &WireJob) {
    let Ok(job) = convert::job("", wire) else { return };
    let tres = convert::job_tres(wire);
    let of = |name: &str| tres.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
    let tasks = if job.state == JobState::Pending { tasks(&wire.array_task_string.0) } else { 1 };
    queue.count(&job, tasks, u32::try_from(of("cpu")).unwrap_or(u32::MAX), of("mem"));
    if let (JobState::Pending, Some(start)) = (job.state, job.started_at) {
        for node in convert::node_names(&wire.scheduled_nodes.0).unwrap_or_default() {
            let first = queue.planned.entry(node).or_insert(start);
            *first = start.min(*first);
        }
    }
}

/// How many tasks of a job array a record stands for: `3,7-9`, `0-98:2`, or `0-7%2` for two at a time. SLURM cuts long lists off (`1,5,9,...`); they
/// count as far as they go.
fn tasks(text: &str) -> u32 {
    let list = text.split_once('%').map_or(text, |(list, _)| list).trim_matches(['[', ']']);
    let sum = list.split(',').filter_map(range).fold(0_u32, u32::saturating_add);
    sum.max(1)
}

fn range(item: &str) -> Option<u32> {
    let (range, step) = item.split_once(':').unwrap_or((item, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    last.checked_sub(first)?.checked_div(step.trim().parse().ok()?)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::{Amount, Waiting};
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn queue(jobs: &str) -> Queue {
        serde_json::from_str::<Listing>(&format!(r#"{{"jobs":[{jobs}]}}"#)).unwrap().seen.queue
    }

    /// A job of somebody else's.
    fn job(state: &str, rest: &str) -> String {
        format!(
            r#"{{"job_id":7,"name":"theirs","user_id":2002,"submit_time":1795800000,"job_state":["{state}"],"partition":"main",{rest}}}"#
        )
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_our_jobs_are_kept() {
        let text = r#"{"jobs":[{"job_id":1,"name":"x"},{"job_id":2,"name":"eirene-a"},{"job_id":3},{"job_id":4,"name":"eirene-b"}]}"#;
        let ours = serde_json::from_str::<Listing>(text).unwrap().seen.ours;
        assert_eq!(ours.iter().map(|job| job.job_id.value).collect::<Vec<_>>(), [Some(2), Some(4)]);
        assert!(ours.capacity() <= 4, "the list does not grow with jobs that are dropped");
        for no_list in [r#"{"jobs":null}"#, r#"{"jobs":{}}"#, "{}", r#"{"jobs":[{"job_id":1,"name":"x"}"#] {
            assert!(serde_json::from_str::<Listing>(no_list).is_err(), "{no_list}");
        }
    }

    #[test]
    fn every_task_of_a_job_array_counts() {
        for (text, expected) in [
            ("", 1),
            ("5", 1),
            ("0-7%2", 8),
            ("3,7-9", 4),
            ("0-98:2", 50),
            ("[1-24]", 24),
            ("1,5,9,...", 3),
            ("9-1", 1),
            ("1-9:0", 1),
            ("0-4294967295", 1),
        ] {
            assert_eq!(tasks(text), expected, "{text}");
        }
    }

    #[test]
    fn everybodys_jobs_are_counted_by_partition() {
        let jobs = [
            job(
                "PENDING",
                r#""array_task_string":"1-24%4","tres_req_str":"cpu=1,mem=1G,node=1,gres/gpu=2,gres/gpu:a100=2""#,
            ),
            // Two parts of a heterogeneous job.
            job("PENDING", r#""het_job_id":{"set":true,"number":9},"het_job_offset":0"#),
            job("PENDING", r#""het_job_id":{"set":true,"number":9},"het_job_offset":1"#),
            job("RUNNING", r#""nodes":"c1","tres_alloc_str":"cpu=1""#).replace(r#""main""#, r#""long""#),
            job("PENDING", r#""nodes":"""#).replace(r#""main""#, r#""main,long""#),
            job("RUNNING", r#""array_task_id":{"set":true,"number":3},"array_task_string":"","nodes":"c1""#),
            job("COMPLETED", r#""nodes":"c1""#),
            r#"{"job_id":8,"job_state":["PENDING"]}"#.to_owned(),
        ];
        let queue = queue(&jobs.join(","));
        assert_eq!(queue.running, [("long".to_owned(), 1), ("main".to_owned(), 1)].into());
        let gpus = [("a100".to_owned(), 48)].into();
        assert_eq!(queue.waiting["main"], Waiting { jobs: 26, gpus });
        assert_eq!((queue.waiting_in(|_| true).jobs, queue.waiting_in(|name| name == "long").jobs), (27, 1));
        assert_eq!((queue.running_in(|_| true), queue.running_in(|name| name == "long")), (2, 1));
    }

    #[test]
    fn what_comes_free_is_summed_up_by_node_and_minute() {
        let held = r#""nodes":"c[1-2]","end_time":{"set":true,"number":1795800541},"tres_alloc_str":"cpu=5,mem=4G,gres/gpu=2,gres/gpu:a100=2""#;
        let jobs = [
            job("RUNNING", held),
            job("COMPLETING", &held.replace("541", "599")),
            job("SUSPENDED", held),
            job("RUNNING", r#""nodes":"c1","tres_alloc_str":"cpu=1""#),
        ];
        let queue = queue(&jobs.join(","));
        let amount = |cpus| Amount { cpus, memory_mib: 4096, gpus: [("a100".to_owned(), 2)].into() };
        let minute = at(1_795_800_600);
        assert_eq!(
            queue.releases,
            [
                ("c1".parse().unwrap(), [(minute, amount(6))].into()),
                ("c2".parse().unwrap(), [(minute, amount(4))].into())
            ]
            .into()
        );
    }

    #[test]
    fn a_node_is_planned_for_the_first_job_that_starts_there() {
        let waits = |start: i64| {
            job("PENDING", &format!(r#""scheduled_nodes":"c[1-2]","start_time":{{"set":true,"number":{start}}}"#))
        };
        let queue =
            queue(&[waits(1_795_900_000), waits(1_795_800_500), job("PENDING", r#""scheduled_nodes":"c3""#)].join(","));
        assert_eq!(queue.planned, ["c1", "c2"].map(|node| (node.parse().unwrap(), at(1_795_800_500))).into());
    }

    #[test]
    fn gpus_are_counted_where_slurm_does_not() {
        for (fields, expected) in [
            // By type, as `AccountingStorageTRES=gres/gpu,gres/gpu:a100` has it.
            (r#""tres_req_str":"cpu=1,gres/gpu=2,gres/gpu:a100=2""#, &[("a100", 2)][..]),
            // `AccountingStorageTRES=gres/gpu`: the types stand in the request.
            (
                r#""tres_req_str":"cpu=1,gres/gpu=2","tres_per_node":"gres/gpu:a100:1","node_count":{"set":true,"number":2}"#,
                &[("a100", 2)],
            ),
            (r#""tres_req_str":"cpu=1,gres/gpu=2""#, &[("", 2)]),
            // Nothing of GPUs in `AccountingStorageTRES`.
            (r#""tres_req_str":"cpu=1,mem=1G","tres_per_node":"gres/gpu:h100:2""#, &[("h100", 2)]),
            (r#""tres_req_str":"cpu=1","tres_per_node":"gres:gpu:1,gres/shard:3""#, &[("", 1)]),
            (
                r#""tres_per_job":"gres/gpu:4","tres_per_node":"gres/gpu:2","node_count":{"set":true,"number":2}"#,
                &[("", 4)],
            ),
            (r#""tres_per_task":"cpu=2,gres/gpu=1","tasks":{"set":true,"number":3}"#, &[("", 3)]),
            (r#""tres_per_socket":"gres/gpu:1","node_count":{"set":true,"number":3}"#, &[("", 3)]),
            (r#""tres_per_job":"gres/gpu:a100:1,gres/gpu:h100:2""#, &[("a100", 1), ("h100", 2)]),
            // Once it runs, what it has been given.
            (
                r#""tres_alloc_str":"cpu=1","gres_detail":["gpu:a100:2(IDX:0-1)","gpu:a100:1(IDX:3)"],"tres_per_job":"gres/gpu:3""#,
                &[("a100", 3)],
            ),
            (r#""tres_alloc_str":"cpu=1","gres_detail":["gpu:(null):1(IDX:0)","gpu:0"]"#, &[("", 1)]),
            (r#""tres_alloc_str":"cpu=1""#, &[]),
        ] {
            let json = format!(r#"{{"jobs":[{}]}}"#, job("RUNNING", fields).replace("theirs", "eirene-ours"));
            let jobs = serde_json::from_str::<Listing>(&json).unwrap().into_jobs("demo").unwrap();
            let seen: Vec<_> = jobs.ours[0].gpus.iter().map(|(gpu_type, count)| (gpu_type.as_str(), *count)).collect();
            assert_eq!(seen, expected, "{fields}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_listed_counts_at_least_once(text in "[0-9,:%.\\[\\]-]{0,40}") {
            prop_assert!(tasks(&text) >= 1);
        }
    }
}
