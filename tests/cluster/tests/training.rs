//! Training that is killed, requeued and moved, on the real cluster: it goes on from its newest checkpoint, and its loss is that of a training
//! nobody disturbed.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::demo::{Restore, begin_now, exec};
use eirene_cluster_tests::portal::{NOTICE, job_id};
use eirene_cluster_tests::training::{began_at, losses, prepare, requeue, same_curve, train};
use eirene_cluster_tests::until;
use serde_json::json;

#[tokio::test]
async fn a_training_whose_rank_node_or_step_is_lost_ends_up_where_an_undisturbed_one_does() -> anyhow::Result<()> {
    let ada = prepare("ada", "undisturbed killed stopped requeued lost").await?;
    let mut undisturbed = BTreeMap::new();
    let id = train(&ada, "undisturbed", json!({})).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut undisturbed).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");

    // A rank is killed: the run says which one, and a new one goes on, on fewer ranks.
    let mut killed = BTreeMap::new();
    let id = train(&ada, "killed", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    exec("c2", "root", &["pkill", "-KILL", "-n", "-u", "ada", "-f", "learn.py"]).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    losses(&ada, &id, &mut killed).await?;
    let log = ada.run_log(&id, "").await?;
    // SLURM may end the task of a rank that was killed before its last line comes; the others have noticed too.
    ensure!(log.contains("on c2 was killed by signal SIGKILL") || log.contains("PeerDied: rank "), "{log}");
    let id = train(&ada, "killed", json!({"nodes": 1, "ranks": 2})).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut killed).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    ensure!(log.contains("from 10 on 2 ranks"), "{log}");
    same_curve(&undisturbed, &killed)?;

    // It is put into the queue by its owner: its ranks save when they are told to end, not only when the next checkpoint is due.
    let mut stopped = BTreeMap::new();
    let id = train(&ada, "stopped", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let next = requeue(&ada, &id).await?;
    ada.over(&id).await?;
    losses(&ada, &id, &mut stopped).await?;
    let run = ada.over(&next).await?;
    let log = losses(&ada, &next, &mut stopped).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    ensure!(began_at(&log)? >= 12, "{log}");
    same_curve(&undisturbed, &stopped)?;

    // The scheduler takes the nodes away and gives them back: the same run goes on.
    let mut requeued = BTreeMap::new();
    let id = train(&ada, "requeued", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let job = job_id(&ada.run(&id).await?)?;
    exec("head", "root", &["scontrol", "requeue", &job]).await?;
    losses(&ada, &id, &mut requeued).await?;
    begin_now(&job).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut requeued).await?;
    assert_eq!((&run["state"], &run["restart_count"]), (&json!("ended"), &json!(1)), "{run} {log}");
    ensure!(began_at(&log)? >= 10, "{log}");
    same_curve(&undisturbed, &requeued)?;

    // A node fails: the run ends and says so, and is started again when the node is back.
    let mut lost = BTreeMap::new();
    let id = train(&ada, "lost", json!({})).await?;
    ada.logged(&id, "step 12 ").await?;
    let restored = Restore::with(&[&["exec", "head", "scontrol", "update", "nodename=c2", "state=resume"]]);
    exec("head", "root", &["scontrol", "update", "nodename=c2", "state=down", "reason=test"]).await?;
    let run = ada.over(&id).await?;
    assert_eq!(run["state"], "failed", "{run}");
    losses(&ada, &id, &mut lost).await?;
    drop(restored);
    let id = requeue(&ada, &id).await?;
    let run = ada.over(&id).await?;
    let log = losses(&ada, &id, &mut lost).await?;
    assert_eq!(run["state"], "ended", "{run} {log}");
    ensure!(began_at(&log)? >= 10, "{log}");
    same_curve(&undisturbed, &lost)?;

    for node in ["c1", "c2"] {
        until("nothing is left on any node", NOTICE, || async {
            let left = exec(node, "root", &["sh", "-c", "ps -o args= -u ada; ls -A /tmp/eirene-2001 2>/dev/null || :"])
                .await?;
            Ok(left.trim().is_empty().then_some(()))
        })
        .await
        .with_context(|| format!("on {node}"))?;
    }
    Ok(())
}
