//! Launchers in a session of several nodes, on the real cluster: `eirene-rsh` runs a command in the session's container on another node as ssh
//! would, for this person and this session alone, and with the session nothing of it is left.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{exec, exec_with_input, nothing_is_left_of};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person};
use eirene_cluster_tests::until;
use serde_json::{Value, json};

/// What a cell needs: a program, run as it is.
const RUN: &str = r"
import os, signal, subprocess, sys

def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, **more)
    return done.returncode, done.stdout, done.stderr
";

async fn open(person: &Person) -> anyhow::Result<(String, Kernel)> {
    open_as(person, &json!({"nodes": 2, "cpus": 1, "memory_mib": 1000})).await
}

async fn open_as(person: &Person, wanted: &Value) -> anyhow::Result<(String, Kernel)> {
    let session = person.running(wanted).await?;
    let kernel = Kernel::start(person, &session).await?;
    kernel.run(RUN).await?;
    Ok((session["id"].as_str().context("id")?.to_owned(), kernel))
}

async fn is_running(node: &str, line: &str) -> anyhow::Result<bool> {
    Ok(!exec(node, "root", &["sh", "-c", &format!("pgrep -u ada -xf '{line}' || :")]).await?.trim().is_empty())
}

#[tokio::test]
async fn a_command_runs_in_the_container_of_another_node_as_by_ssh() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada).await?;

    // Standard input, output and error, the status and what the command is are as with ssh; nothing else is said.
    let said = [
        ("run('eirene-rsh', 'c2', 'hostname')", "(0, 'c2\\n', '')"),
        ("run('eirene-rsh', '-x', '-o', 'BatchMode=yes', '-l', 'ada', 'c2', 'hostname')", "(0, 'c2\\n', '')"),
        ("run('ssh', 'ada@c2', 'hostname')", "(0, 'c2\\n', '')"),
        ("run('eirene-rsh', 'localhost', 'hostname')", "(0, 'c1\\n', '')"),
        ("run('eirene-rsh', 'c2', 'eirene-rsh c1 hostname')", "(0, 'c1\\n', '')"),
        ("run('eirene-rsh', 'c2', 'exit 7')", "(7, '', '')"),
        ("run('eirene-rsh', 'c2', 'kill -KILL $$')", "(137, '', '')"),
        ("run('eirene-rsh', 'c2', 'no-such-program')[0]", "127"),
        ("run('eirene-rsh', 'c2', 'tr a-z A-Z; echo end >&2', input='words')", "(0, 'WORDS', 'end\\n')"),
        ("run('eirene-rsh', 'c2', input='echo $((6 * 7))')", "(0, '42\\n', '')"),
        (
            "run('eirene-rsh', 'c2', 'echo \"a  b\"', '$EIRENE_NODE_RANK;', 'test -d /.singularity.d && pwd')",
            "(0, 'a  b 1\\n/home/ada\\n', '')",
        ),
        ("run('eirene-rsh', '-n', 'c2', 'cat', input='unread')", "(0, '', '')"),
        ("len(run('eirene-rsh', 'c2', 'cat', input='x' * 3_000_000)[1])", "3000000"),
        ("open(os.environ['EIRENE_HOSTFILE']).read()", "c1 slots=1\nc2 slots=1\n"),
        ("(os.environ['MASTER_ADDR'], os.environ['EIRENE_NODES'])", "('c1', 'c1 c2')"),
    ];
    for (cell, expected) in said {
        assert_eq!(kernel.run(&format!("print({cell})")).await?.trim_end(), expected.trim_end(), "{cell}");
    }

    // What cannot be is one sentence and ssh's own status.
    let refusals = [
        ("run('eirene-rsh', 'c9', 'true')", "eirene-rsh: `c9` is not a node of this session, which has c1, c2\\n"),
        ("run('eirene-rsh', 'head', 'true')", "eirene-rsh: `head` is not a node of this session, which has c1, c2\\n"),
        ("run('ssh', 'head', 'true')", "ssh: `head` is not a node of this session, which has c1, c2\\n"),
        (
            "run('eirene-rsh', 'grace@c2', 'id')",
            "eirene-rsh: a session's commands run as the person whose it is, and not as `grace`\\n",
        ),
        (
            "run('eirene-rsh', '-L', '1:c2:2', 'c2', 'id')",
            "eirene-rsh: `-L` is more than eirene-rsh does: it runs a command on a node of this session\\n",
        ),
        ("run('eirene-rsh')", "eirene-rsh: say on which node: `eirene-rsh NODE COMMAND`\\n"),
        (
            "run('eirene-rsh', 'c2', 'id', env={'EIRENE_TRAIN_STEPS': '/tmp/none', 'PATH': os.environ['PATH']})",
            "eirene-rsh: `c2` cannot be reached: this is not within a session of several nodes (/tmp/none: No such file or directory (os error 2))\\n",
        ),
    ];
    for (cell, sentence) in refusals {
        let said = kernel.run(&format!("print({cell})")).await?;
        // Python quotes by what is in the text.
        ensure!(
            said.trim_end() == format!("(255, '', '{sentence}')")
                || said.trim_end() == format!("(255, '', \"{sentence}\")"),
            "{said}"
        );
    }
    // Many at once, as a launcher on many nodes has them.
    let said = kernel
        .run("every = [subprocess.Popen(['eirene-rsh', 'c2', f'exit {n}'], stdin=subprocess.DEVNULL) for n in range(24)]\nprint([one.wait() for one in every] == list(range(24)))")
        .await?;
    assert_eq!(said.trim(), "True");
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

/// What runs on each node, as the session's page has it.
async fn shown(person: &Person, id: &str) -> anyhow::Result<[String; 2]> {
    let session = person.session(id).await?;
    let of = |node: &Value| {
        node["steps"]
            .as_array()
            .map(|steps| steps.iter().map(|step| step["command"].to_string()).collect::<Vec<_>>().join(" "))
    };
    let nodes = session["node_details"].as_array().context("node_details")?;
    let [first, second] = nodes.as_slice() else { anyhow::bail!("two nodes: {session}") };
    Ok([of(first).unwrap_or_default(), of(second).unwrap_or_default()])
}

#[tokio::test]
async fn what_launchers_start_is_shown_on_its_node_whichever_node_they_are_on() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada).await?;
    kernel
        .run(
            "there = subprocess.Popen(['eirene-rsh', 'c2', 'eirene-rsh c1 sleep 1003'], stdin=subprocess.DEVNULL)
here = subprocess.Popen(['eirene-rsh', 'localhost', 'sleep 1004'], stdin=subprocess.DEVNULL)",
        )
        .await?;
    until("each program is on its node", NOTICE, || async {
        let [first, second] = shown(&ada, &id).await?;
        let is_there = first.contains("sleep 1003") && first.contains("sleep 1004") && !first.contains("eirene-rsh");
        Ok((is_there && second.contains("eirene-rsh c1 sleep 1003")).then_some(()))
    })
    .await?;
    kernel.run("for one in (there, here): one.terminate()").await?;
    until("no program is told of", NOTICE, || async { Ok((shown(&ada, &id).await? == ["", ""]).then_some(())) })
        .await?;
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

/// Ranks that say who they are, by whatever they were started.
const SUM: &str = r#"
import socket, sys
import torch, torch.distributed as dist
import eirene_train

torch.set_num_threads(1)
dist.init_process_group(sys.argv[1])
total = torch.ones(1)
dist.all_reduce(total)
# In one write: torchrun puts nothing between ranks' own.
sys.stdout.write(f"rank {dist.get_rank()} of {total.item():.0f} on {socket.gethostname()}\n")
sys.stdout.flush()
dist.destroy_process_group()
"#;

/// Lines of docs/launchers.md, each in a session of the image that has the launcher.
const LAUNCHERS: [(&str, &str, &str); 3] = [
    ("pytorch", "mpirun", "mpirun -n 4 python3 sum.py eirene"),
    (
        "pytorch",
        "torchrun",
        r"for node in $EIRENE_NODES; do
    ssh $node 'cd tests && torchrun --nnodes $EIRENE_NODE_COUNT --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29500 sum.py gloo' &
done; wait",
    ),
    (
        "pytorch-mpich",
        "mpiexec.hydra",
        "EIRENE_TRAIN_WORLD=$RANDOM EIRENE_TRAIN_MPI=none mpiexec.hydra -n 4 python3 sum.py eirene",
    ),
];

#[tokio::test]
async fn launchers_start_ranks_on_all_nodes_as_they_are() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let put = ["sh", "-c", "mkdir -p /home/ada/tests && cat > /home/ada/tests/sum.py"];
    exec_with_input("c1", "ada", &put, SUM).await?;
    for image in ["pytorch", "pytorch-mpich"] {
        let wanted = json!({"image": image, "nodes": 2, "cpus": 2, "memory_mib": 3000});
        let (id, kernel) = open_as(&ada, &wanted).await?;
        for (_, name, line) in LAUNCHERS.iter().filter(|(of, ..)| *of == image) {
            let command = serde_json::to_string(&format!("cd $HOME/tests && {line}"))?;
            let said = kernel.run(&format!("print(*run('bash', '-c', {command}))")).await?;
            let mut ranks: Vec<&str> =
                said.lines().filter_map(|line| line.find("rank ").map(|at| &line[at..])).collect();
            ranks.sort_unstable();
            let on = ["c1", "c1", "c2", "c2"].iter().enumerate();
            let expected: Vec<String> = on.map(|(rank, node)| format!("rank {rank} of 4 on {node}")).collect();
            assert_eq!(ranks.len(), 4, "{name}: {said}");
            // Which node torchrun's ranks begin at is its own to say.
            let places = |list: &[&str], node: &str| list.iter().filter(|line| line.ends_with(node)).count();
            assert_eq!((places(&ranks, "c1"), places(&ranks, "c2")), (2, 2), "{name}: {said}");
            ensure!(*name == "torchrun" || ranks == expected, "{name}: {said}");
        }
        // The benchmark is one more: it measures across the session's nodes.
        let bench = r"print(*run('eirene-train', 'bench', 'allreduce', '--contenders', 'eirene,gloo', '-m', '4096:4096', '--rounds', '1', '-i', '2', '-x', '1'))";
        let said = if image == "pytorch" { kernel.run(bench).await? } else { String::new() };
        let shown = ["# 2 ranks on 2 nodes (c1, c2)", "gloo/eirene"].iter().all(|text| said.contains(text));
        ensure!(image != "pytorch" || (said.starts_with('0') && shown), "{said}");
        ada.stop(&id).await?;
        nothing_is_left_of("ada").await?;
    }
    Ok(())
}

#[tokio::test]
async fn with_the_caller_its_command_ends_and_a_daemon_stays_as_long_as_the_session() -> anyhow::Result<()> {
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    let (id, kernel) = open(&ada).await?;
    let start = "one = subprocess.Popen(['eirene-rsh', 'c2', 'sleep 4001 & echo up; exec sleep 4002'], stdout=subprocess.PIPE, text=True)\nprint(one.stdout.readline())";
    for signal in ["SIGINT", "SIGKILL"] {
        ensure!(kernel.run(start).await?.contains("up"));
        ensure!(is_running("c2", "sleep 4001").await? && is_running("c2", "sleep 4002").await?);
        kernel.run(&format!("one.send_signal(signal.{signal})\nprint(one.wait())")).await?;
        until("the command is gone with its caller", NOTICE, || async {
            let left = is_running("c2", "sleep 4001").await? || is_running("c2", "sleep 4002").await?;
            Ok((!left).then_some(()))
        })
        .await
        .context(signal)?;
    }

    // What has made itself independent stays: the daemons of mpirun do. The next command sees it, and it does not stay as a corpse.
    let daemon = "run('eirene-rsh', 'c2', 'setsid sleep 4003 < /dev/null > /dev/null 2>&1 & echo $!')";
    let pid = kernel.run(&format!("print({daemon}[1].strip())")).await?;
    let pid = pid.trim();
    ensure!(is_running("c2", "sleep 4003").await?, "the daemon has ended with the command that started it");
    let said = kernel
        .run(&format!(
            "print(run('eirene-rsh', 'c2', 'kill {pid} && while test -e /proc/{pid}; do sleep 0.1; done; echo buried'))"
        ))
        .await?;
    ensure!(said.contains("buried"), "{said}");
    kernel.run(&format!("print({daemon})")).await?;
    ensure!(is_running("c2", "sleep 4003").await?);
    ada.stop(&id).await?;
    nothing_is_left_of("ada").await
}

#[tokio::test]
async fn nobody_else_and_no_other_session_reaches_the_programs_socket() -> anyhow::Result<()> {
    let (ada, grace) = (Person::sign_in("ada").await?, Person::sign_in("grace").await?);
    ada.stop_all().await?;
    grace.stop_all().await?;
    let (first, kernel) = open(&ada).await?;
    let (other, others) = open(&grace).await?;
    // From a node, where both are, and from within another person's session there.
    for node in ["c1", "c2"] {
        let look = "for s in /tmp/eirene-2001/*/inside/*.sock; do test -e \"$s\" && echo \"$s\"; done; ls /tmp/eirene-2001 2>&1 || :";
        let said = exec(node, "grace", &["sh", "-c", look]).await?;
        ensure!(said.contains("Permission denied") && !said.contains(".sock"), "{said}");
    }
    kernel.run("one = subprocess.Popen(['eirene-rsh', 'c2', 'echo secret > /tmp/mine; echo up; exec sleep 4004'], stdout=subprocess.PIPE, text=True)\nprint(one.stdout.readline())").await?;
    let look = "cat /tmp/mine; cat /proc/[0-9]*/cmdline | tr \"\\\\0\" \" \"";
    let said = others.run(&format!("print(run('eirene-rsh', 'c2', '{look}'))")).await?;
    ensure!(said.starts_with('(') && !said.contains("secret") && !said.contains("sleep 4004"), "{said}");
    // The same look from the session itself sees both: the test could fail.
    let said = kernel.run(&format!("print(run('eirene-rsh', 'c2', '{look}'))")).await?;
    ensure!(said.contains("secret") && said.contains("sleep 4004"), "{said}");
    ada.stop(&first).await?;
    grace.stop(&other).await?;
    nothing_is_left_of("ada").await?;
    nothing_is_left_of("grace").await
}
