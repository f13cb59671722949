//! Steps in a session of several nodes, on the real cluster: asked for in the container, started on all nodes, kept apart from others', and
//! gone without a trace.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, exec, nothing_is_left_of};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person, START, job_id};
use eirene_cluster_tests::{ASKER, until};
use reqwest::Method;
use serde_json::{Value, json};

async fn open(person: &Person, changes: Value) -> anyhow::Result<(String, Kernel)> {
    let mut wanted = json!({"nodes": 2, "cpus": 2, "memory_mib": 1000});
    for (name, value) in changes.as_object().into_iter().flatten() {
        wanted[name] = value.clone();
    }
    let session = person.running(&wanted).await?;
    let kernel = Kernel::start(person, &session).await?;
    kernel.run(ASKER).await?;
    Ok((session["id"].as_str().context("id")?.to_owned(), kernel))
}

#[tokio::test]
async fn ranks_run_on_all_nodes_in_the_session_s_container_and_leave_nothing() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({})).await?;
    assert_eq!(ada.session(&id).await?["nodes"], json!(["c1", "c2"]));

    let said = kernel
        .run(
            r#"
os.environ["MINE"] = "a value; with $(words)"
last, text = step(4, "sh", "-c", 'echo "$SLURM_PROCID $(hostname) $(id -un) $MINE $OMP_NUM_THREADS $PWD ${EIRENE_TRAIN_STEPS:-none} $(test -d /.singularity.d && echo inside)"')
print(last, *sorted(text.splitlines()), sep="\n")
"#,
        )
        .await?;
    let lines: Vec<&str> = said.lines().collect();
    let rank = |rank: u32, node: &str| format!("{rank} {node} ada a value; with $(words) 1 /home/ada none inside");
    assert_eq!(lines[0], "{'kind': 'ended', 'status': 0}");
    assert_eq!(lines[1..], [rank(0, "c1"), rank(1, "c1"), rank(2, "c2"), rank(3, "c2")]);

    // A step's first sentence says which way is taken and why.
    let said = kernel.run("peer, output = begin(2, 'true')\nprint(*answers(peer), sep='\\n')").await?;
    ensure!(said.contains("2 ranks on 2 nodes (c1, c2), the image has no MPI, so ranks meet by themselves"), "{said}");

    // Bad input is one sentence each, before anything starts.
    let refusals = [
        ("step(5, 'true')", "5 ranks are more than the 4 processors this session has on 2 nodes"),
        ("step(0, 'true')", "there must be one rank at least"),
        ("step(None, 'true')", "say how many ranks"),
        ("step(2, 'true', nodes=['c9'])", "`c9` is not a node of this session, which has c1, c2"),
        ("step(2, 'true', exclude=['c1', 'c2'])", "no node is left"),
    ];
    for (cell, sentence) in refusals {
        let said = kernel.run(&format!("print({cell})")).await?;
        ensure!(said.contains("'refused'") && said.contains(sentence), "{cell}: {said}");
    }
    let said = kernel.run("print(step(2, 'no-such-program'))").await?;
    ensure!(said.contains("'status': 127") && said.contains("`no-such-program` cannot be started"), "{said}");
    let said = kernel.run("print(step(1, 'hostname', nodes=['c2']))").await?;
    ensure!(said.contains("'status': 0") && said.contains("c2"), "{said}");

    // The first rank that fails ends the others, and its status is the step's.
    let said = kernel.run("print(step(4, 'sh', '-c', 'test $SLURM_PROCID = 2 && exit 7; exec sleep 1000'))").await?;
    ensure!(said.contains("'status': 7") && said.contains("rank 2 on c2 ended with status 7"), "{said}");

    // One step at a time; a signal reaches every rank, and the program alone.
    let said = kernel
        .run(
            r#"
for name in ["user1", "terminate"]:
    peer, output = begin(4, "sh", "-c", 'trap "echo told; exit 0" USR1 TERM; sleep 1000 & echo up; wait')
    assert [output.readline() for _ in range(4)] == ["up\n"] * 4
    print(step(1, "true"))
    say(peer, {"kind": "signal", "signal": name})
    print(output.read().split(), *answers(peer))
"#,
        )
        .await?;
    ensure!(
        said.contains("a step runs already: `sh -c trap") && said.contains("`%eirene stop` in its notebook"),
        "{said}"
    );
    ensure!(said.matches("['told', 'told', 'told', 'told']").count() == 2, "{said}");
    ensure!(said.matches("'status': 0").count() == 2, "{said}");

    // Who asks and goes takes the ranks along, and the next step waits for that.
    let said = kernel
        .run("peer, output = begin(4, 'sh', '-c', 'echo up; exec sleep 1001')\nassert output.readline() == 'up\\n'\npeer.close()\nprint(step(2, 'true'))")
        .await?;
    ensure!(said.contains("'status': 0"), "the session goes on: {said}");
    for node in ["c1", "c2"] {
        let left = exec(node, "root", &["sh", "-c", "pgrep -u ada -xf 'sleep 1001' || :"]).await?;
        ensure!(left.trim().is_empty(), "ranks of a step that is over, on {node}: {left}");
    }
    // Nine were not refused, the earliest of them before the first sample.
    until("its chart has all steps that began", NOTICE, || async {
        let (_, chart) = ada.call(Method::GET, &format!("sessions/{id}/samples?group=cpu"), None).await?;
        let lines = chart["lines"].as_array().cloned().unwrap_or_default();
        let begun = lines.iter().find(|line| line["metric"] == "steps");
        let count = begun.and_then(|line| line["total"].as_f64());
        ensure!(count.is_none_or(|count| count <= 9.0), "{count:?} steps");
        Ok(count.filter(|count| *count >= 9.0).map(drop))
    })
    .await?;
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn a_plain_step_of_the_person_s_begins_at_once_beside_those_that_watch_the_nodes() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({})).await?;
    let said = kernel.run("print(step(4, 'hostname'))").await?;
    ensure!(said.contains("'status': 0") && said.matches("c2").count() == 2, "both nodes have their helpers: {said}");
    let job = job_id(&ada.session(&id).await?)?;
    let steps = exec("head", "root", &["squeue", "--noheader", "--steps", "--format=%i"]).await?;
    let number = |step: &str| step.trim().strip_prefix(&format!("{job}."))?.parse::<u32>().ok();
    ensure!(steps.lines().any(|step| number(step).is_some()), "no step of ours to wait for: {steps}");
    // All processors and all memory of the session, without `--overlap`: whoever had to wait for a step of ours would be told so by srun, in a
    // line besides. The second comes right after the first, and at a time when ranks of the notebook run.
    let srun = format!("exec timeout 60 srun --jobid={job} --mpi=none --chdir=/tmp -N2 -n2 -c2 hostname 2>&1");
    for around in [
        "pass",
        "peer, output = begin(4, 'sh', '-c', 'echo up; exec sleep 1004')\nassert [output.readline() for _ in range(4)] == ['up\\n'] * 4",
    ] {
        kernel.run(around).await?;
        let said = exec("portal", "ada", &["sh", "-c", &srun]).await?;
        let mut hosts: Vec<&str> = said.lines().collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["c1", "c2"], "{said}");
    }
    kernel.run("peer.close()").await?;
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn long_lines_of_ranks_arrive_whole_and_in_order() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({"image": "pytorch"})).await?;
    let said = kernel
        .run(
            r#"
lengths = [1, 1023, 1024, 1025, 5000, 1_000_000]
write = f"""
import os, sys
own = "ab"[int(os.environ["SLURM_PROCID"])]
for output in (sys.stdout, sys.stderr):
    for length in {lengths}:
        print(own * length, file=output, flush=True)
"""
ran = subprocess.run(["eirene-train", "run", "--no-preflight", "-n", "2", "-c", write], capture_output=True, text=True)
for output in (ran.stdout, ran.stderr):
    for rank, own in enumerate("ab"):
        lines = [line for line in output.splitlines() if line.startswith(f"[{rank}] ")]
        print(lines == [f"[{rank}] {own * length}" for length in lengths], [len(line) - 4 for line in lines])
print("status", ran.returncode)
"#,
        )
        .await?;
    ensure!(said.matches("True [1, 1023, 1024, 1025, 5000, 1000000]").count() == 4, "{said}");
    ensure!(said.contains("status 0"), "{said}");
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn a_killed_rank_is_named_and_its_status_is_the_step_s_whoever_ends_the_others() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({"image": "pytorch"})).await?;
    // By PMIx SLURM ends the step itself, and the other ranks' MPI ends them: both may be faster than the killed rank's task.
    // No rank sends anything: Open MPI 5 crashes in MPI_Init where a faster rank's first message comes before its own communicator is there, and
    // that rank is then rightly the first.
    kernel
        .run(
            r#"
killed = """
import ctypes, os, signal, time
rank = int(os.environ["SLURM_PROCID"])
if "PMIX_NAMESPACE" in os.environ:
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
if rank == 3:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1000)
"""
def kill_one(**more):
    for _ in range(5):
        last, text = step(4, "python3", "-c", killed, **more)
        print(last["status"], [line for line in text.splitlines() if line.startswith("[eirene]")])
"#,
        )
        .await?;
    for way in ["", "mpi={'name': 'Open MPI', 'pmix': True}"] {
        let said = kernel.run(&format!("kill_one({way})")).await?;
        let expected = "137 ['[eirene] rank 3 on c2 was killed by signal SIGKILL']";
        ensure!(said.matches(expected).count() == 5, "{way}: {said}");
    }
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn sessions_on_the_same_nodes_do_not_see_each_other_s_ranks_segments_or_sockets() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    grace.stop_all().await?;
    let size = json!({"cpus": 1, "image": "pytorch", "memory_mib": 2000});
    let (first, one) = open(&ada, size.clone()).await?;
    let (second, two) = open(&ada, size.clone()).await?;
    let (third, three) = open(&grace, size).await?;
    let hide = r#"
peer, output = begin(2, "sh", "-c", 'echo secret > /dev/shm/mine; echo secret > /tmp/mine; echo up; exec sleep 1002')
assert [output.readline() for _ in range(2)] == ["up\n"] * 2
"#;
    one.run(hide).await?;
    let look = r#"print(step(2, "sh", "-c", 'cat /dev/shm/mine /tmp/mine; ls /proc | grep -c "^[0-9]"; for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; done; ls -d /tmp/eirene-* || :'))"#;
    for other in [&two, &three] {
        // One's step keeps nobody else's waiting.
        let said = other.run(look).await?;
        ensure!(said.contains("'status': 0"), "{said}");
        for secret in ["secret", "sleep 1002", &first, "/tmp/eirene-2"] {
            ensure!(!said.contains(secret), "`{secret}` is seen: {said}");
        }
    }
    // Each has a step socket of its own, and only that.
    let socket = r#"
import glob
print(sorted(glob.glob("/run/eirene/**/*.sock", recursive=True)), os.stat(os.environ["EIRENE_TRAIN_STEPS"]).st_ino)
"#;
    let (mut shown, mut own) = (Vec::new(), std::collections::BTreeSet::new());
    for kernel in [&one, &two, &three] {
        let said = kernel.run(socket).await?;
        let (sockets, inode) = said.trim().rsplit_once(' ').context("two words")?;
        ensure!(sockets.contains("/run/eirene/steps.sock"), "{said}");
        shown.push(sockets.to_owned());
        own.insert(inode.to_owned());
    }
    ensure!(own.len() == 3 && shown.iter().all(|sockets| *sockets == shown[0]), "{shown:?} {own:?}");
    // The same look in the first session sees all of it: the test could fail.
    let said = one.run(r#"print(subprocess.run(["sh", "-c", 'cat /dev/shm/mine /tmp/mine; for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; done'], capture_output=True, text=True).stdout)"#).await?;
    ensure!(said.matches("secret").count() >= 2 && said.contains("sleep 1002"), "{said}");
    // From outside of containers the socket is as closed to another person as the directory it is in.
    for node in ["c1", "c2"] {
        let said = exec(node, "grace", &["sh", "-c", "ls /tmp/eirene-2001 2>&1 || :"]).await?;
        ensure!(said.contains("Permission denied"), "{said}");
    }
    one.run("peer.close()").await?;
    // Ranks of all three at once, in worlds and memory of their own: every sum is of their own numbers.
    let sums = |number: u32| {
        format!(
            r#"
program = """
import torch, torch.distributed as dist, eirene_train
torch.set_num_threads(1)
dist.init_process_group("eirene")
for _ in range(300):
    total = torch.full((10_000,), {number}.0)
    dist.all_reduce(total)
    assert total.eq(2 * {number}).all(), total
dist.barrier()
print("own sums of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""
ran = subprocess.run(["eirene-train", "run", "--no-preflight", "-n", "2", "-c", program], capture_output=True, text=True)
print(ran.returncode, ran.stdout, ran.stderr)
"#
        )
    };
    let all = [(&one, sums(1)), (&two, sums(20)), (&three, sums(300))];
    let all = futures_util::future::join_all(all.iter().map(|(kernel, code)| kernel.run(code))).await;
    for said in all {
        let said = said?;
        ensure!(said.starts_with('0') && said.matches("own sums of 2").count() == 2, "{said}");
    }
    for (person, id) in [(&ada, &first), (&ada, &second), (&grace, &third)] {
        person.stop(id).await?;
    }
    nothing_is_left_of("ada").await?;
    nothing_is_left_of("grace").await
}

/// Looks for ranks of a preflight before there is any; what it sees is stopped, and then what that had started until then.
const FREEZE: &str = r#"
ranks() { pgrep -u ada -f preflight-rank; }
while ranks >/dev/null; do sleep 0.02; done
touch "$0"
until seen=$(ranks); do sleep 0.02; done
while [ "$seen" != "$stopped" ]; do
    kill -STOP $seen
    stopped=$seen
    seen=$(ranks)
done
rm "$0"
"#;
/// What is there while it looks.
const LOOKS: &str = "/run/demo/looks-for-ranks";

#[tokio::test]
async fn a_sick_node_is_named_before_ranks_start_and_can_be_left_out() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({"image": "pytorch", "memory_mib": 2000})).await?;
    let run = r#"
def run(*words):
    ran = subprocess.run(["eirene-train", "run", *words], capture_output=True, text=True)
    print(ran.returncode, ran.stdout, ran.stderr)
"#;
    kernel.run(run).await?;
    let said = kernel.run("run('-n', '2', '--ranks-per-node', '1', 'hostname')").await?;
    ensure!(said.starts_with('0') && said.contains("preflight: 2 nodes, 1 link"), "{said}");
    // What cannot be is not worth a look at nodes.
    let said = kernel.run("run('-n', '5', '--preflight', 'always', 'true')").await?;
    ensure!(
        said.starts_with('2') && said.contains("5 ranks are more than the 4") && !said.contains("preflight"),
        "{said}"
    );
    let said = kernel.run("run('-n', '2', 'not-there.py')").await?;
    ensure!(said.starts_with('2') && said.contains("there is no script `not-there.py` in /home/ada"), "{said}");

    for (how, expected) in
        [("always", ["node c2 is sick", "Nothing was started"]), ("exclude", ["node c2 is sick", "left out: c2"])]
    {
        let begun = format!("run('-n', '2', '--preflight', '{how}', 'hostname')");
        let watch = ["timeout", "60", "sh", "-c", FREEZE, LOOKS];
        exec("c2", "root", &["rm", "-f", LOOKS]).await?;
        let begin = async {
            until("somebody looks for ranks", NOTICE, || async {
                exec("c2", "root", &["test", "-e", LOOKS]).await.map(Some)
            })
            .await?;
            kernel.run(&begun).await
        };
        let (said, frozen) = tokio::join!(begin, exec("c2", "root", &watch));
        frozen?;
        let said = said?;
        ensure!(expected.iter().all(|text| said.contains(text)), "{how}: {said}");
        let hosts = said.matches("] c1\n").count();
        assert_eq!(
            (said.starts_with('0'), hosts),
            if how == "exclude" { (true, 2) } else { (false, 0) },
            "{how}: {said}"
        );
    }
    // What was ill a moment ago may be well again.
    let said = kernel.run("run('-n', '2', '--ranks-per-node', '1', 'hostname')").await?;
    ensure!(said.starts_with('0') && said.contains("c2"), "{said}");
    // Torch's own way to meet is a port of the node that rank 0 is on.
    let said = kernel.run("run('-n', '2', '--nodes', 'c2', 'sh', '-c', 'echo $MASTER_ADDR:$MASTER_PORT')").await?;
    ensure!(said.matches("c2:").count() == 2 && !said.contains("c2:\n"), "{said}");
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn a_session_of_one_node_is_not_asked_for_two() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({"nodes": 1, "image": "pytorch"})).await?;
    let node = ada.session(&id).await?["nodes"][0].as_str().context("a node")?.to_owned();
    let other = if node == "c1" { "c2" } else { "c1" };
    let ask = format!(
        "ran = subprocess.run(['eirene-train', 'run', '-n', '2', '--nodes', '{node},{other}', 'true'], capture_output=True, text=True)\nprint(ran.returncode, ran.stderr)"
    );
    let said = kernel.run(&ask).await?;
    ensure!(said.contains(&format!("`{other}` is not a node of this session, which has {node}")), "{said}");
    ensure!(!said.starts_with('0') && said.trim().lines().count() == 1, "{said}");
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn a_helper_that_is_killed_and_a_node_that_fails_leave_the_notebook_usable() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({})).await?;
    let said = kernel.run("print(step(2, 'true'))").await?;
    ensure!(said.contains("'status': 0"), "{said}");

    // With its helper the container of a node ends, and the ranks in it; both come back.
    kernel.run("peer, output = begin(2, 'sh', '-c', 'echo up; exec sleep 1003')\nassert [output.readline() for _ in range(2)] == ['up\\n'] * 2").await?;
    exec("c2", "root", &["pkill", "-KILL", "-f", "eirene-agent helper"]).await?;
    let said = kernel.run("*_, last = answers(peer)\nprint(last)").await?;
    ensure!(said.contains("'ended'") && !said.contains("'status': 0"), "{said}");
    until("the node is ready again", START, || async {
        let said = kernel.run("print(step(4, 'hostname'))").await?;
        Ok((said.contains("'status': 0") && said.matches("c2").count() == 2).then_some(()))
    })
    .await?;

    // A node that fails is not the end of the others.
    let restored = Restore::with(&[&["exec", "head", "scontrol", "update", "nodename=c2", "state=resume"]]);
    exec("head", "root", &["scontrol", "update", "nodename=c2", "state=down", "reason=test"]).await?;
    until("the node's loss is seen", START, || async {
        let said = kernel.run("print(step(4, 'hostname'))").await?;
        Ok(said.contains("'refused'").then_some(()))
    })
    .await?;
    let said = kernel.run("print(step(2, 'hostname', exclude=['c2']))").await?;
    ensure!(said.contains("'status': 0") && said.matches("c1").count() == 2, "{said}");
    assert_eq!(kernel.run("print(6 * 7)").await?.trim(), "42");
    let state = ada.session(&id).await?["state"].clone();
    assert_eq!(state, "running");
    ada.stop(&id).await?;
    drop(restored);
    // Whoever was killed with its node left a directory there: the next session of hers removes it.
    let (next, _) = open(&ada, json!({})).await?;
    ada.stop(&next).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn a_node_whose_slurmd_is_killed_keeps_its_ranks_and_says_so_to_whoever_wants_new_ones() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada, json!({})).await?;
    exec("c1", "ada", &["sh", "-c", "mkdir -p /home/ada/tests; rm -f /home/ada/tests/go"]).await?;
    kernel.run("peer, output = begin(4, 'sh', '-c', 'echo up; until [ -e /home/ada/tests/go ]; do sleep 0.1; done; hostname')\nassert [output.readline() for _ in range(4)] == ['up\\n'] * 4").await?;
    let restored = Restore::with(&[&["exec", "c2", "demo-ctl", "slurmd", "start"]]);
    exec("c2", "root", &["sh", "-c", "touch /run/demo/slurmd.down; kill -KILL \"$(cat /run/demo/slurmd.pid)\""])
        .await?;
    exec("c1", "ada", &["touch", "/home/ada/tests/go"]).await?;
    // Ranks that are there go on to their end.
    let said = kernel.run("print(sorted(output.read().split()), *answers(peer))").await?;
    ensure!(said.contains("['c1', 'c1', 'c2', 'c2']") && said.contains("'status': 0"), "{said}");
    // New ones begin on the other node; that SLURM starts none there is said with the node's name.
    let said = kernel.run("print(step(4, 'hostname'))").await?;
    ensure!(said.contains("failed on node c2") && !said.contains("'status': 0"), "{said}");
    let said = kernel.run("print(step(2, 'hostname', exclude=['c2']))").await?;
    ensure!(said.contains("'status': 0") && said.matches("c1").count() == 2, "{said}");
    drop(restored);
    until("the node takes ranks again", START, || async {
        let said = kernel.run("print(step(4, 'hostname'))").await?;
        Ok((said.contains("'status': 0") && said.matches("c2").count() == 2).then_some(()))
    })
    .await?;
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn a_session_that_loses_its_first_node_is_over_and_says_why() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, _) = open(&ada, json!({})).await?;
    let job = job_id(&ada.session(&id).await?)?;
    let restored = Restore::with(&[&["exec", "head", "scontrol", "update", "nodename=c1", "state=resume"]]);
    exec("head", "root", &["scontrol", "update", "nodename=c1", "state=down", "reason=test"]).await?;
    let over = ada
        .wait(&id, "it is over", START, |session| session["state"] == "failed" || session["state"] == "ended")
        .await?;
    assert_eq!(
        (over["state"].as_str(), over["reason"]["code"].as_str()),
        (Some("failed"), Some("node_failed")),
        "{over}"
    );
    until("the job does not go on without it", NOTICE, || async {
        let shown = exec("head", "root", &["squeue", "--noheader", "--jobs", &job, "--format=%T"]).await;
        Ok(shown.map_or(true, |state| state.trim().is_empty()).then_some(()))
    })
    .await?;
    drop(restored);
    let (next, _) = open(&ada, json!({})).await?;
    ada.stop(&next).await?;
    nothing_is_left_of("ada").await
}
