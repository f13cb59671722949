//! Tests of the readers: real lines, then anything.

use proptest::prelude::*;

use super::*;

const STAT: &str =
    "4711 (a) b (c) R 1 4711 4700 0 -1 4194304 1 2 3 4 150 50 7 3 20 0 4 0 991 1000000 2048 18446744073709551615 1 1\n";

#[test]
fn a_process_with_a_hostile_name() {
    let expected =
        Stat { name: "a) b (c".into(), parent: 1, session: 4700, own: 200, children: 10, start: 991, resident: 2048 };
    assert_eq!(stat(STAT), Some(expected));
    let whole = STAT.split(' ').collect::<Vec<_>>();
    assert_eq!(stat(&whole[..20].join(" ")), None, "truncated");
    assert_eq!(stat(""), None);
    assert_eq!(stat(") ("), None);
}

#[test]
fn keys_and_single_numbers() {
    let text = "MemTotal:       16384 kB\nusage_usec 12\nMem 5";
    assert_eq!(keyed(text, "MemTotal"), Some(16384));
    assert_eq!(keyed(text, "usage_usec"), Some(12));
    assert_eq!(keyed(text, "usage"), None);
    assert_eq!((single("42\n"), single("max\n"), single("-1"), single("")), (Some(42), None, None, None));
    assert_eq!(process_io("rchar: 9\nread_bytes: 1\nwrite_bytes: 2\ncancelled_write_bytes: 0\n"), Some((1, 2)));
    assert_eq!(process_io("rchar: 9\nread_bytes: 1\n"), None);
}

#[test]
fn limits_of_both_versions() {
    let none = Some(u64::MAX);
    let read = ["3000000\n", "max\n", "200000 100000\n", "max 100000\n", "-1\n", "", "x"].map(limit);
    assert_eq!(read, [Some(3_000_000), none, Some(200_000), none, none, None, None]);
}

#[test]
fn a_list_of_cores_beside_the_node_s() {
    let of_four = |list: &str| lacks_some(list, &[0, 1, 2, 3]);
    assert_eq!((of_four("0-1\n"), of_four("3"), of_four("0,2-3")), (Some(true), Some(true), Some(true)));
    assert_eq!(of_four("\n"), Some(false), "none of its own");
    assert_eq!((of_four("0-3\n"), of_four("0-7"), of_four("8-9"), of_four("x")), (None, None, None, None));
    assert_eq!(lacks_some("0-1", &[]), None, "nobody knows what the node has");
}

#[test]
fn a_limit_of_memory_beside_the_node_s() {
    let of_1000 = |text: &str| limits_memory(text, Some(1000));
    assert_eq!((of_1000("999\n"), of_1000("0")), (Some(true), Some(true)));
    assert_eq!((of_1000("1000\n"), of_1000("5000"), of_1000("x"), of_1000("")), (None, None, None, None));
    for none in ["max\n", "9223372036854771712\n"] {
        assert_eq!((of_1000(none), limits_memory(none, None)), (Some(false), Some(false)));
    }
    assert_eq!(limits_memory("999", None), None, "nobody knows what the node has");
}

#[test]
fn a_quota_beside_the_time_of_all_cores() {
    let of_four = |text: &str| limits_time(text, 4);
    assert_eq!((of_four("399999 100000\n"), of_four("150000\n 50000\n")), (Some(true), Some(true)));
    assert_eq!((of_four("400000 100000\n"), of_four("900000 100000")), (Some(false), Some(false)));
    assert_eq!((of_four("max 100000\n"), of_four("-1\n")), (Some(false), Some(false)));
    for broken in ["", "100000", "100000 x", "100000 0", "100000 18446744073709551615"] {
        assert_eq!(of_four(broken), None, "{broken}");
    }
    assert_eq!(limits_time("100000 100000", 0), None, "nobody knows what the node has");
}

#[test]
fn mounts_with_blanks_and_controllers() {
    let text = "36 35 98:0 /mnt1 /a\\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
                42 30 0:39 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\nbroken\n";
    let mounts = mounts(text);
    assert_eq!(mounts.len(), 2);
    assert_eq!(
        (mounts[0].point.as_str(), mounts[0].kind.as_str(), mounts[0].device.as_str()),
        ("/a b", "ext3", "98:0")
    );
    assert_eq!(mounts[1].options, "rw,cpu,cpuacct");
}

#[test]
fn the_job_s_group_is_the_one_above_the_agent_s_step() {
    let by_job = "0::/system.slice/slurmstepd.scope/job_42/step_batch/user/task_0\n";
    let of_version_1 = "5:cpu,cpuacct:/slurm/uid_1000/job_42/step_0/task_0\n4:memory:/slurm/uid_1000/job_42/step_0/task_0\n\
                        1:name=systemd:/system.slice/slurmd.service\n0::/system.slice/slurmd.service\n";
    let nested =
        "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0/slurmstepd.scope/s5K1KKYAYG5D00/step_batch/user\n";
    for (text, controller, expected) in [
        // SLURM 24.11, and 26.05 with `CgroupJobIdPaths=yes`.
        (by_job, "", Some("/system.slice/slurmstepd.scope/job_42")),
        (
            "0::/system.slice/c1_slurmstepd.scope/job_42/step_0/user/task_3\n",
            "",
            Some("/system.slice/c1_slurmstepd.scope/job_42"),
        ),
        // SLURM 26.05: a SLUID.
        (
            "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_batch/user/task_0\n",
            "",
            Some("/system.slice/slurmstepd.scope/s5K1KKYAYG5D00"),
        ),
        (
            "0::/system.slice/c1_slurmstepd.scope/sEKNKTV3WPV500/step_1/slurm\n",
            "",
            Some("/system.slice/c1_slurmstepd.scope/sEKNKTV3WPV500"),
        ),
        (nested, "", Some(nested[3..].split_once("/step_batch").unwrap().0)),
        // Version 1 goes by the job's number in both.
        (of_version_1, "cpuacct", Some("/slurm/uid_1000/job_42")),
        (of_version_1, "memory", Some("/slurm/uid_1000/job_42")),
        ("9:memory:/slurm_c1/uid_1000/job_42/step_batch\n", "memory", Some("/slurm_c1/uid_1000/job_42")),
        (of_version_1, "cpuset", None),
        // SLURM makes no groups: these are the service's, with all jobs of the node.
        (of_version_1, "", None),
        ("0::/system.slice/slurmd.service\n", "", None),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", "", None),
        ("0::/\n", "", None),
        ("0::/step_0\n", "", None),
        ("", "", None),
    ] {
        assert_eq!(cgroup(text, controller).and_then(job_group), expected, "{text} {controller}");
    }
}

#[test]
fn devices_of_both_versions() {
    let expected = vec![("8:0".to_owned(), 10, 20)];
    assert_eq!(io_stat("8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1\n7:0\n"), expected);
    assert_eq!(blkio("8:0 Read 10\n8:0 Write 20\n8:0 Sync 5\n8:16 Read x\nTotal 30\n"), expected);
}

#[test]
fn pressure_network_and_cores() {
    assert_eq!(pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=1\n"), Some(77));
    assert_eq!(pressure("full avg10=0.00 total=1\n"), None);
    let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n\
                \x20   lo:  1 2 0 0 0 0 0 0 3 4\n  eth0:1000 2 0 0 0 0 0 0 30 4\n eth1: 5 6\n";
    assert_eq!(interfaces(text), [("lo", 1, 3), ("eth0", 1000, 30)]);
    assert_eq!(cores("cpu 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 100 4 5 9 1 1\ncpu1 1 2\nintr 5\n"), [(0, 15)]);
    assert_eq!(usage_by_core("5 0 7 x 9\n"), [(0, 5), (2, 7)]);
    assert!(in_list("0-3,8\n", 3) && in_list("0-3,8\n", 8) && !in_list("0-3,8\n", 4) && !in_list("x-", 0));
}

#[test]
fn bytes_of_network_file_systems() {
    let text = "device proc mounted on /proc with fstype proc\n\
                device srv:/home mounted on /home\\040x with fstype nfs4 statvers=1.1\n\topts:\trw\n\tbytes:\t1 2 3 4 500 600 7 8\n\
                device srv:/b mounted on /b with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3\n";
    assert_eq!(mount_stats(text), [("/home x".to_owned(), 500, 600)]);
}

#[test]
fn environments() {
    assert!(environment_is_of(b"A=1\0SLURM_JOB_ID=42\0", 42));
    assert!(environment_is_of(b"SLURM_JOBID=42", 42));
    assert!(!environment_is_of(b"XSLURM_JOB_ID=42\0SLURM_JOB_ID=421\0", 42));
}

proptest! {
    #[test]
    fn nothing_read_ends_in_a_panic(text in "(?s)[ -~\n:=\\\\/()0-9]{0,300}") {
        let _ = (stat(&text), mounts(&text), io_stat(&text), blkio(&text), pressure(&text), interfaces(&text), mount_stats(&text));
        let _ = (cores(&text), usage_by_core(&text), in_list(&text, 1), job_group(&text), unescape(&text), keyed(&text, "a"));
    }

    #[test]
    fn a_truncated_process_is_none_or_the_same(cut in 0usize..STAT.len()) {
        // Up to the end of the last field that is read, where a number that is cut is a smaller number.
        let complete = STAT.find(" 18446744073709551615").unwrap();
        if cut >= complete {
            prop_assert_eq!(stat(&STAT[..cut]), stat(STAT));
        } else {
            prop_assert!(stat(&STAT[..cut]).is_none_or(|cut| cut.resident < 2048));
        }
    }

    #[test]
    fn a_process_is_read_back(name in "[^\0]{1,15}", parent: u32, session: u32, own in 0u64..1 << 40, start: u64, resident: u64) {
        let text = format!("1 ({name}) S {parent} 1 {session} 0 -1 0 0 0 0 0 {own} 1 2 3 20 0 1 0 {start} 0 {resident} 0\n");
        prop_assert_eq!(stat(&text), Some(Stat { name, parent, session, own: own + 1, children: 5, start, resident }));
    }

    #[test]
    fn paths_are_unescaped(path in "[a-z \\\\\t/]{1,40}") {
        let written: String = path.chars().map(|c| match c {
            ' ' | '\t' | '\\' => format!("\\{:03o}", c as u32),
            c => c.to_string(),
        }).collect();
        prop_assert_eq!(unescape(&written), path);
    }
}
