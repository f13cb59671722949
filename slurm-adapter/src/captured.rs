//! Tests with answers captured from a real SLURM, whose version is in the file names.

use eirene_core::PartitionName;
use eirene_core::scheduler::{Job, JobState, PartitionAccess, Waiting};
use proptest::prelude::*;
use serde_json::Value;

use crate::api::Api;
use crate::calls::decide;
use crate::convert;
use crate::listing::Listing;
use crate::refusals::Verdict;
use crate::wire::{AccountedJobs, Answer, ApiDescription, Envelope, Jobs, Nodes, Partitions, PersonAccounts};

macro_rules! captured {
    ($file:literal) => {
        include_str!(concat!("../tests/fixtures/", $file, ".json"))
    };
}

/// The same answer by every data parser of slurmrestd.
macro_rules! by_parser {
    ($what:literal) => {
        [
            include_str!(concat!("../tests/fixtures/slurmrestd-24.11.5-v0.0.40-", $what, ".json")),
            include_str!(concat!("../tests/fixtures/slurmrestd-24.11.5-v0.0.41-", $what, ".json")),
            include_str!(concat!("../tests/fixtures/slurmrestd-24.11.5-v0.0.42-", $what, ".json")),
        ]
    };
}

fn read<T: Answer>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

fn verdict(json: &str) -> Verdict {
    decide(&read::<Envelope>(json).errors())
}

fn code(job: &Job) -> &str {
    job.reason.as_ref().map_or("", |reason| reason.code.as_str())
}

#[test]
fn jobs_are_read_alike_from_every_parser_and_from_squeue() {
    let mut lists = by_parser!("jobs").to_vec();
    lists.push(captured!("squeue-24.11.5-jobs"));
    let lists =
        lists.into_iter().map(|json| convert::jobs("demo", &read::<Jobs>(json).jobs).unwrap()).collect::<Vec<_>>();
    for list in &lists {
        let seen = list
            .iter()
            .map(|job| (job.name.as_str(), job.state, code(job), job.nodes.len(), job.restart_count, job.exit_code))
            .collect::<Vec<_>>();
        assert_eq!(
            seen,
            [
                ("eirene-timeout", JobState::TimedOut, "time_limit", 1, 0, Some(143)),
                ("eirene-running", JobState::Running, "", 1, 0, None),
                ("eirene-two", JobState::Running, "", 2, 0, None),
                ("eirene-pending", JobState::Pending, "partition_time", 0, 0, None),
                ("eirene-completed", JobState::Completed, "", 1, 0, Some(0)),
                ("eirene-failed", JobState::Failed, "exit_status", 1, 0, Some(3)),
                ("eirene-signalled", JobState::Failed, "signalled", 1, 0, Some(137)),
                ("eirene-cancelled", JobState::Cancelled, "cancelled", 1, 0, Some(143)),
                ("eirene-requeued", JobState::Pending, "not_before", 0, 1, None),
                ("eirene-held", JobState::Pending, "held_by_owner", 0, 0, None),
                ("odd\n\"name\"", JobState::Completed, "", 1, 0, Some(0)),
            ]
        );
        assert_eq!(list, &lists[0], "all parsers say the same");
    }
    let running = &lists[0][1];
    assert_eq!((running.uid, running.partition.as_str(), running.word.as_str()), (2001, "main", "RUNNING"));
    assert_eq!(running.gpus, [("a100".to_owned(), 1)]);
    let (started, ends) = (running.started_at.unwrap(), running.ends_at.unwrap());
    assert_eq!((ends - started).get_seconds(), 600);
    assert!(running.identity.submitted_at <= started && running.identity.id > 0);
    assert_eq!(lists[0][10].uid, 2002);
    assert_eq!(lists[0][3].ends_at, None, "a job that waits ends at no time");
}

#[test]
fn an_unknown_job_is_the_only_answer_that_says_so() {
    for json in by_parser!("job-unknown") {
        assert_eq!(verdict(json), Verdict::NoSuchJob);
    }
    for json in by_parser!("not-accepted") {
        assert_eq!(verdict(json), Verdict::NotAccepted);
    }
}

#[test]
fn submits_and_refusals_are_read_from_every_parser() {
    for json in by_parser!("submit") {
        let answer = read::<Envelope>(json);
        assert!(answer.errors().is_empty());
        assert!(answer.submitted_id().is_some_and(|id| id > 0));
    }
    for json in by_parser!("submit-refused") {
        let Verdict::Refused(reason) = verdict(json) else { panic!("{json}") };
        assert_eq!(reason.code, "account_unknown");
        assert_eq!(read::<Envelope>(json).submitted_id(), None);
    }
}

#[test]
fn cancels_are_read_from_every_parser() {
    for json in by_parser!("cancel") {
        assert!(read::<Envelope>(json).errors().is_empty());
    }
    // The older two do not tell, which is why a cancelled job is read back.
    let [silent, also_silent, clear] = by_parser!("cancel-not-permitted");
    assert!(read::<Envelope>(silent).errors().is_empty() && read::<Envelope>(also_silent).errors().is_empty());
    assert!(matches!(verdict(clear), Verdict::Refused(reason) if reason.code == "not_permitted"));
}

#[test]
fn pings_and_the_api_are_read() {
    for json in by_parser!("ping") {
        assert_eq!(read::<Envelope>(json).version_if_up().as_deref(), Some("SLURM 24.11.5"));
    }
    let down = r#"{"pings":[{"hostname":"head","pinged":"DOWN","responding":false}],"meta":{},"errors":[]}"#;
    assert_eq!(read::<Envelope>(down).version_if_up(), None);
    let described: ApiDescription = serde_json::from_str(captured!("slurmrestd-24.11.5-openapi")).unwrap();
    let api = Api::newest(described.paths.iter().map(String::as_str), u32::MAX).unwrap();
    assert_eq!((api.parser().as_str(), api.accounting.is_some()), ("v0.0.42", true));
}

#[test]
fn nodes_and_partitions_are_read_from_every_parser_and_from_scontrol() {
    let mut lists = by_parser!("nodes").to_vec();
    lists.push(captured!("scontrol-24.11.5-nodes"));
    for json in lists {
        let nodes = convert::nodes(&read::<Nodes>(json));
        let seen = nodes
            .iter()
            .map(|node| {
                let gpus = node
                    .gpus
                    .iter()
                    .map(|gpus| (gpus.gpu_type.as_str(), gpus.total, gpus.allocated))
                    .collect::<Vec<_>>();
                (node.name.as_str(), node.available, node.state.as_str(), node.cpus, node.memory_mib, gpus)
            })
            .collect::<Vec<_>>();
        assert_eq!(
            seen,
            [
                ("c1", true, "mixed", 8, 16_000, vec![("a100", 2, 2)]),
                ("c2", true, "mixed", 8, 16_000, vec![("h100", 2, 0)]),
            ]
        );
        assert!(nodes.iter().all(|node| node.cpus_allocated > 0 && node.memory_allocated_mib > 0));
        assert_eq!(nodes[1].partitions.iter().map(PartitionName::as_str).collect::<Vec<_>>(), ["main", "long"]);
    }
    let mut lists = by_parser!("partitions").to_vec();
    lists.push(captured!("scontrol-24.11.5-partitions"));
    for json in lists {
        let partitions = convert::partitions(&read::<Partitions>(json), Some("main"));
        let seen = partitions
            .iter()
            .map(|p| (p.name.as_str(), p.is_default, p.available, p.max_walltime_min, p.max_nodes, p.nodes.len()))
            .collect::<Vec<_>>();
        assert_eq!(seen, [("main", true, true, Some(480), None, 2), ("long", false, true, Some(2880), None, 1)]);
        assert!(partitions.iter().all(|partition| partition.access == PartitionAccess::default()), "for everybody");
    }
}

#[test]
fn jobs_of_slurm_26_05_are_read_alike_from_both_adapters() {
    let read_list = |json: &str| convert::jobs("demo", &read::<Jobs>(json).jobs).unwrap();
    let seen = |job: &Job| (job.identity.id, job.state, code(job).to_owned(), job.nodes.len(), job.gpus.clone());
    let gpu = |of_type: &str| vec![(of_type.to_owned(), 1)];
    let waits = |id: u32, code: &str| (id, JobState::Pending, code.to_owned(), 0, vec![]);
    let restd = read_list(captured!("slurmrestd-26.05.5-v0.0.45-jobs"));
    assert_eq!(
        restd.iter().map(seen).collect::<Vec<_>>(),
        [
            (1, JobState::Pending, "nodes_not_available".to_owned(), 0, gpu("a100")),
            (2, JobState::Running, String::new(), 1, gpu("")),
            waits(3, "priority"),
            waits(4, "nodes_not_available"),
            (5, JobState::Failed, "impossible".to_owned(), 0, vec![]),
            waits(6, "nodes_not_available"),
            (7, JobState::Configuring, "nodes_starting".to_owned(), 1, vec![]),
            waits(8, "dependency"),
            waits(9, "not_before"),
            waits(10, "held_by_owner"),
            waits(11, "not_considered_yet"),
            waits(12, "not_considered_yet"),
        ]
    );
    // Without `--states=all`, squeue leaves out the one that failed.
    let squeue = read_list(captured!("squeue-26.05.5-jobs"));
    assert_eq!(squeue, restd.iter().filter(|job| job.identity.id != 5).cloned().collect::<Vec<_>>());
    let running = &restd[1];
    assert_eq!((running.uid, running.partition.as_str(), running.restart_count), (2001, "main", 0));
    let (started, ends) = (running.started_at.unwrap(), running.ends_at.unwrap());
    assert_eq!((started, (ends - started).get_seconds()), (running.identity.submitted_at, 1800));
}

#[test]
fn the_queue_of_slurm_26_05_is_counted() {
    let queue = read::<Listing>(captured!("slurmrestd-26.05.5-v0.0.45-jobs")).into_jobs("demo").unwrap().queue;
    assert_eq!(queue.running, [("cloud".to_owned(), 1), ("main".to_owned(), 1)].into());
    // Six jobs, one of them an array of eight tasks, and the two parts of a heterogeneous one.
    let main = Waiting { jobs: 5 + 8 + 2, gpus: [("a100".to_owned(), 1)].into() };
    assert_eq!(
        queue.waiting,
        [("long".to_owned(), Waiting { jobs: 1, ..Waiting::default() }), ("main".to_owned(), main)].into()
    );
}

#[test]
fn nodes_of_slurm_26_05_are_read_alike_from_both_adapters() {
    for json in [captured!("slurmrestd-26.05.5-v0.0.45-nodes"), captured!("scontrol-26.05.5-nodes")] {
        let nodes = convert::nodes(&read::<Nodes>(json));
        let seen = nodes.iter().map(|node| {
            let gpus = node.gpus.iter().map(|gpus| (gpus.gpu_type.as_str(), gpus.total, gpus.allocated));
            (
                node.name.as_str(),
                node.state.as_str(),
                node.available,
                node.cpus_allocated,
                node.memory_allocated_mib,
                gpus.collect(),
            )
        });
        let none = Vec::new;
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [
                ("cl1", "mixed", true, 1, 8000, none()),
                ("cl2", "idle", true, 0, 0, none()),
                ("n1", "down", false, 0, 0, vec![("a100", 2, 0)]),
                ("n2", "draining", false, 1, 500, vec![("", 2, 1)]),
            ]
        );
        let draining = &nodes[3];
        assert_eq!((draining.cpus, draining.memory_mib, draining.cpu_load), (2, 16_000, Some(46)));
        assert_eq!(draining.reason.as_deref(), Some("Kernel update; see <ticket> 42"));
        assert!(!draining.has_counted_gpus, "its accounting has no `gres/gpu`");
        assert_eq!(draining.partitions.iter().map(PartitionName::as_str).collect::<Vec<_>>(), ["main", "long"]);
    }
}

#[test]
fn partitions_of_slurm_26_05_say_which_is_the_default() {
    for json in [captured!("slurmrestd-26.05.5-v0.0.45-partitions"), captured!("scontrol-26.05.5-partitions")] {
        let answer = read::<Partitions>(json);
        assert!(convert::names_default(&answer));
        let partitions = convert::partitions(&answer, None);
        let seen = partitions
            .iter()
            .map(|p| (p.name.as_str(), p.is_default, p.available, p.max_walltime_min, p.max_nodes, p.nodes.len()))
            .collect::<Vec<_>>();
        let all = [
            ("main", true, true, Some(480), None, 2),
            ("long", false, true, None, None, 1),
            ("cloud", false, true, Some(1440), None, 2),
        ];
        assert_eq!(seen, all);
        assert_eq!(partitions[1].access, PartitionAccess { groups: vec!["ada".to_owned()], by_account: false });
    }
    assert!(!convert::names_default(&read::<Partitions>(captured!("scontrol-24.11.5-partitions"))));
}

#[test]
fn a_ping_of_slurm_26_05_has_lost_a_field_and_is_read() {
    let json = captured!("slurmrestd-26.05.5-v0.0.45-ping");
    assert!(!json.contains("pinged"));
    assert_eq!(read::<Envelope>(json).version_if_up().as_deref(), Some("SLURM 26.05.5"));
    let down = json.replace(r#""responding": true"#, r#""responding": false"#);
    assert_eq!(read::<Envelope>(&down).version_if_up(), None);
}

#[test]
fn used_gpus_count_whatever_type_slurm_names() {
    for (gres, used, expected) in [
        ("gpu:2(S:0-1)", "gpu:(null):1(IDX:0)", &[("", 2, 1)][..]),
        ("gpu:2(S:0-1)", "gpu:(null):0(IDX:N/A)", &[("", 2, 0)]),
        ("gpu:A30:4,shard:A30:16", "gpu:A30:1(IDX:0),shard:(null):3(3/16)", &[("A30", 4, 1)]),
        ("gpu:a100:2,gpu:h100:2", "gpu:h100:1(IDX:2)", &[("a100", 2, 0), ("h100", 2, 1)]),
        ("gpu:a100:2,gpu:h100:2", "gpu:(null):3(IDX:0-2)", &[("a100", 2, 2), ("h100", 2, 1)]),
        ("gpu:a100:2", "gpu::,gpu:a100:2(IDX:0-1)", &[("a100", 2, 2)]),
        ("gpu:1g.5gb+me:7", "gpu:1g.5gb+me:2(IDX:0,1)", &[("1g.5gb+me", 7, 2)]),
    ] {
        let json = format!(r#"{{"nodes":[{{"name":"c1","state":["MIXED"],"gres":"{gres}","gres_used":"{used}"}}]}}"#);
        let nodes = convert::nodes(&read::<Nodes>(&json));
        let seen: Vec<_> =
            nodes[0].gpus.iter().map(|gpus| (gpus.gpu_type.as_str(), gpus.total, gpus.allocated)).collect();
        assert_eq!(seen, expected, "{gres} {used}");
    }
}

#[test]
fn a_node_that_is_only_planned_is_no_node_of_the_cluster() {
    let json = r#"{"nodes":[{"name":"c8","state":["FUTURE"]},{"name":"c9","state":["IDLE","DYNAMIC_FUTURE"]}]}"#;
    let nodes = convert::nodes(&read::<Nodes>(json));
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["c9"]);
}

#[test]
fn the_load_of_a_node_is_read_in_hundredths_and_no_value_is_none() {
    let load = |load: &str| {
        let json = format!(r#"{{"nodes":[{{"name":"c1","state":["IDLE"],"cpus":8,"cpu_load":{load}}}]}}"#);
        convert::nodes(&read::<Nodes>(&json))[0].cpu_load
    };
    assert_eq!((load("305"), load(r#"{"set":true,"infinite":false,"number":7}"#)), (Some(305), Some(7)));
    for none in ["null", "4294967294", "4294967295", r#"{"set":false,"infinite":false,"number":0}"#, "-1"] {
        assert_eq!(load(none), None, "{none}");
    }
}

#[test]
fn whose_jobs_a_partition_takes_is_read() {
    let access = |lists: &str| {
        let json = format!(r#"{{"partitions":[{{"name":"p",{lists}}}]}}"#);
        convert::partitions(&read::<Partitions>(&json), None).remove(0).access
    };
    let named = access(r#""groups":{"allowed":"physics, chem"},"accounts":{"allowed":"ALL","deny":""}"#);
    assert_eq!((named.groups, named.by_account), (vec!["physics".to_owned(), "chem".to_owned()], false));
    for all in ["", "ALL", "(null)"] {
        assert_eq!(access(&format!(r#""groups":{{"allowed":"{all}"}}"#)), PartitionAccess::default(), "{all}");
    }
    assert!(access(r#""accounts":{"allowed":"","deny":"guests"}"#).by_account);
    assert!(access(r#""qos":{"allowed":"high"},"groups":null"#).by_account);
}

#[test]
fn a_job_that_gives_way_says_since_when() {
    let mut list: Value = serde_json::from_str(captured!("squeue-24.11.5-jobs")).unwrap();
    let given = |list: &Value| {
        let jobs = convert::jobs("demo", &read::<Jobs>(&list.to_string()).jobs).unwrap();
        jobs.iter().take(2).map(|job| job.preempted_at.map(jiff::Timestamp::as_second)).collect::<Vec<_>>()
    };
    assert_eq!(given(&list), [None, None]);
    // As SLURM 24.11 writes it; no preemption is the second 0.
    list["jobs"][0]["preempt_time"] = serde_json::json!({"set": true, "infinite": false, "number": 0});
    list["jobs"][1]["preempt_time"] = serde_json::json!({"set": true, "infinite": false, "number": 1_795_361_313});
    assert_eq!(given(&list), [None, Some(1_795_361_313)]);
}

#[test]
fn accounts_are_read_from_every_parser_and_from_sacctmgr() {
    let ada = "ada".parse().unwrap();
    let read_as = |json: &str| {
        let accounts = convert::accounts(&read::<PersonAccounts>(json), &ada);
        accounts.into_iter().map(|account| (account.name.to_string(), account.partition, account.is_default)).collect()
    };
    let mut lists = by_parser!("associations").to_vec();
    lists.push(captured!("sacctmgr-24.11.5-associations"));
    for json in lists {
        let seen: Vec<_> = read_as(json);
        assert_eq!(seen, [("research".to_owned(), None, true), ("spare".to_owned(), None, false)]);
    }
    // In one partition alone, on two clusters, another's, and names that are none.
    let json = r#"{"associations":[
        {"user":"ada","account":"b","partition":"gpu","cluster":"x"},{"user":"ada","account":"b","partition":"gpu","cluster":"y"},
        {"user":"ada","account":"a","partition":"gpu","is_default":true},{"user":"grace","account":"c"},{"user":"","account":"d"},
        {"user":"ada","account":"no name"},{"user":"ada","account":null},{}]}"#;
    let gpu = Some("gpu".parse().unwrap());
    assert_eq!(read_as(json), [("a".to_owned(), gpu.clone(), true), ("b".to_owned(), gpu.clone(), false)]);
    let here = json.replacen('{', r#"{"meta":{"slurm":{"cluster":"y"}},"#, 1);
    assert_eq!(read_as(&here), [("b".to_owned(), gpu, false)]);
}

#[test]
fn accounted_jobs_are_read_from_every_parser_and_from_sacct() {
    let uid_of = |name: &str| (name == "ada").then_some(2001);
    for json in by_parser!("accounted-jobs") {
        let answer = read::<AccountedJobs>(json);
        assert_eq!(convert::owners(&answer), ["ada"]);
        let find = |name| convert::accounted_jobs("demo", &answer, name, 0, uid_of).unwrap();
        let failed = find("eirene-failed");
        let [failed, ..] = failed.as_slice() else { panic!("one job is there") };
        assert_eq!((failed.state, failed.exit_code, failed.uid), (JobState::Failed, Some(3), 2001));
        assert_eq!(find("eirene-running").first().map(|job| job.gpus.clone()), Some(vec![("a100".to_owned(), 1)]));
        assert_eq!(find("eirene-requeued").first().map(|job| job.state), Some(JobState::Pending));
        assert_eq!(find("eirene-cancelled").first().map(|job| job.state), Some(JobState::Cancelled));
        assert!(find("eirene-other").is_empty());
        let from_then = failed.identity.submitted_at.as_second();
        let since = |since_s| convert::accounted_jobs("demo", &answer, "eirene-failed", since_s, uid_of).unwrap().len();
        assert_eq!((since(from_then), since(from_then + 1)), (1, 0), "the second itself counts");
        assert_eq!(convert::accounted_jobs("demo", &answer, "eirene-failed", 0, |_| None).unwrap(), []);
    }
    let answer = read::<AccountedJobs>(captured!("sacct-24.11.5-jobs"));
    let found = convert::accounted_jobs("demo", &answer, "eirene-failed", 0, uid_of).unwrap();
    assert!(matches!(found.as_slice(), [job] if job.state == JobState::Failed));
}

#[test]
fn each_start_of_a_requeued_job_is_an_entry_of_its_own_and_the_last_is_first() {
    let json = r#"{"jobs":[
        {"job_id":7,"name":"eirene-x","user":"ada","restart_cnt":null,"state":{"current":["PENDING","REQUEUED"]},
            "time":{"submission":1795250479,"start":1795250480,"end":1795250500}},
        {"job_id":7,"name":"eirene-x","user":"ada","restart_cnt":null,"state":{"current":["COMPLETED"]},
            "time":{"submission":1795250500,"start":1795250622,"end":1795250700}}]}"#;
    let found = convert::accounted_jobs("demo", &read::<AccountedJobs>(json), "eirene-x", 0, |_| Some(2001)).unwrap();
    let told = |job: &Job| (job.identity.submitted_at.as_second(), job.state, job.restart_count);
    let wanted = [(1_795_250_500, JobState::Completed, 0), (1_795_250_479, JobState::Pending, 0)];
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), wanted);
}

#[test]
fn an_owner_who_is_gone_hides_no_other_job() {
    let list = |owner: &str| {
        let job = |id: u32, owner: &str| {
            format!(
                r#"{{"job_id":{id},"name":"eirene-x","user":"{owner}","state":{{"current":["FAILED"]}},"time":{{"submission":1795250479}}}}"#
            )
        };
        read::<AccountedJobs>(&format!(r#"{{"jobs":[{},{}]}}"#, job(1, owner), job(2, "ada")))
    };
    let uid_of = |name: &str| (name == "ada").then_some(2001);
    let found = convert::accounted_jobs("demo", &list("left"), "eirene-x", 0, uid_of).unwrap();
    assert!(matches!(found.as_slice(), [job] if job.identity.id == 2));
    let nameless = convert::accounted_jobs("demo", &list(""), "eirene-x", 0, uid_of);
    assert!(nameless.unwrap_err().is_undetermined(), "no name is not the name of somebody who is gone");
}

#[test]
fn a_job_of_ours_that_cannot_be_read_spoils_the_list_and_another_does_not() {
    let list = |name: &str| {
        let json = format!(
            r#"{{"jobs":[{{"job_id":7,"name":"{name}","user_id":2001,"job_state":["SLEEPING"],"submit_time":1795250479}}]}}"#
        );
        convert::jobs("demo", &read::<Jobs>(&json).jobs)
    };
    assert_eq!(list("other").unwrap(), []);
    assert!(list("eirene-x").unwrap_err().is_undetermined());
    let odd_counts = r#"{"jobs":[{"job_id":7,"name":"eirene-x","user_id":2001,"job_state":["RUNNING"],
        "submit_time":1795250479,"tres_alloc_str":"cpu=1,bb/fast=1.50T"}]}"#;
    assert_eq!(convert::jobs("demo", &read::<Jobs>(odd_counts).jobs).unwrap().len(), 1);
}

#[test]
fn a_job_without_what_must_be_known_is_not_guessed_at() {
    let whole = r#""job_id":7,"name":"eirene-x","user_id":2001,"job_state":["RUNNING"],"submit_time":1795250479"#;
    let read_one = |fields: &str| convert::one_job("demo", &read::<Jobs>(&format!(r#"{{"jobs":[{{{fields}}}]}}"#)), 7);
    assert!(read_one(whole).is_ok());
    for field in whole.split(',') {
        let without = whole.split(',').filter(|other| *other != field).collect::<Vec<_>>().join(",");
        assert_eq!(read_one(&without).is_err(), !field.contains("name"), "{field}");
    }
    assert!(convert::one_job("demo", &read::<Jobs>(r#"{"jobs":[]}"#), 7).is_err(), "an empty list is no answer");
}

/// Any JSON value.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("(set|number|infinite|id|name)", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// One field of a captured job is replaced by anything: the job is read, or left out, or refused, but never another job.
    #[test]
    fn a_spoilt_field_does_no_harm(job in 0_usize..11, field in any::<prop::sample::Index>(), value in any_json()) {
        let mut json: Value = serde_json::from_str(captured!("squeue-24.11.5-jobs")).unwrap();
        let name = {
            let fields = json["jobs"][job].as_object_mut().unwrap();
            let name = fields.keys().nth(field.index(fields.len())).cloned().unwrap();
            fields.insert(name.clone(), value);
            name
        };
        let Ok(answer) = serde_json::from_value::<Jobs>(json) else { return Ok(()) };
        if let Ok(jobs) = convert::jobs("demo", &answer.jobs) {
            prop_assert!(jobs.len() == 11 || jobs.len() == 10);
            let whole = convert::jobs("demo", &read::<Jobs>(captured!("squeue-24.11.5-jobs")).jobs).unwrap();
            let spoilt = whole[job].identity.id;
            let others = |jobs: &[Job]| jobs.iter().filter(|other| other.identity.id != spoilt).cloned().collect::<Vec<_>>();
            if name != "job_id" {
                prop_assert_eq!(others(&jobs), others(&whole));
            }
        }
    }
}
