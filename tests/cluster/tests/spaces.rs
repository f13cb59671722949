//! Spaces on the real cluster: made by an admin's command, seen by sessions on all their nodes, closed to others, taken away and brought back.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::{daemon, exec};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person};
use eirene_cluster_tests::until;
use serde_json::{Value, json};

/// A name that no other test has.
fn fresh() -> String {
    format!("stars-{}", uuid::Uuid::now_v7())
}

async fn becomes(admin: &Cli, space: &str, state: &str) -> anyhow::Result<Value> {
    until(&format!("{space} is {state}"), NOTICE, || async {
        let shown = admin.json(&["admin", "space", "show", space]).await?;
        Ok((shown["state"] == state).then_some(shown))
    })
    .await
}

/// What a group's space has is on the node's own disk before a session begins, and what it makes is the group's when it has ended.
async fn staged_from_it_and_back(ada: &Person, name: &str) -> anyhow::Result<()> {
    let scratch = json!({
        "kind": "node",
        "stage_in": [{"from": format!("{name}:shared"), "to": "shared"}],
        "stage_out": [{"from": "made", "to": format!("{name}:made")}, {"from": "made", "to": "scratch:made"}],
    });
    let session = ada.running(&json!({"scratch": scratch})).await?;
    let cell = "import os\nos.makedirs('/local/made')\n\
                with open('/local/made/twice', 'w') as file: file.write(2 * open('/local/shared').read())";
    Kernel::start(ada, &session).await?.run(cell).await?;
    let ended = ada.stop(session["id"].as_str().context("id")?).await?;
    assert_eq!((&ended["state"], &ended["scratch_state"]["state"]), (&json!("ended"), &json!("done")), "{ended}");
    let twice = "hers and ourshers and ours";
    assert_eq!(exec("c2", "grace", &["cat", &format!("/shared/project/{name}/made/twice")]).await?, twice);
    let group = exec("c2", "root", &["stat", "-c", "%U %G", &format!("/shared/project/{name}/made/twice")]).await?;
    assert_eq!(group, "ada research\n");
    assert_eq!(exec("c1", "ada", &["cat", "/shared/scratch/scratch-ada/made/twice"]).await?, twice);
    exec("c1", "ada", &["rm", "-r", "/shared/scratch/scratch-ada/made", &format!("/shared/project/{name}/made")])
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_group_s_space_and_one_s_own_are_seen_by_sessions_and_by_nobody_else() -> anyhow::Result<()> {
    let (admin, name) = (Cli::sign_in("admin", &["--admin"]).await?, fresh());
    let ada = Person::sign_in("ada").await?;
    ada.stop_all().await?;
    until("ada's own scratch is there", NOTICE, || async {
        let spaces = admin.json(&["admin", "space", "list"]).await?;
        let found =
            spaces.as_array().context("a list")?.iter().any(|s| s["name"] == "scratch-ada" && s["state"] == "present");
        Ok(found.then_some(()))
    })
    .await?;
    admin.good(&["admin", "space", "create", &name, "--root", "project", "--group", "research"]).await?;
    becomes(&admin, &name, "present").await?;
    assert_eq!(
        exec("c1", "root", &["stat", "-c", "%a %U %G", &format!("/shared/project/{name}")]).await?,
        "2770 root research\n"
    );

    let session = ada.running(&json!({"nodes": 2, "cpus": 2, "memory_mib": 1000})).await?;
    let kernel = Kernel::start(&ada, &session).await?;
    let said = kernel
        .run(&format!(
            "import os, subprocess\n\
             os.umask(0o077)\n\
             with open('/project/{name}/shared', 'w') as file: file.write('hers')\n\
             with open('/scratch/own', 'w') as file: file.write('mine')\n\
             print(subprocess.run(['eirene-rsh', 'c2', 'cat', '/project/{name}/shared', '/scratch/own'], capture_output=True, text=True))\n\
             print(os.listdir('/project'))"
        ))
        .await?;
    ensure!(said.contains("hersmine") && said.contains(&name), "{said}");

    // Whoever is in the group reads and writes what she made, whatever her umask; what is hers alone nobody else reaches.
    let shared = format!("/shared/project/{name}/shared");
    exec("c2", "grace", &["sh", "-c", &format!("printf ' and ours' >> {shared}")]).await?;
    assert_eq!(kernel.run(&format!("print(open('/project/{name}/shared').read())")).await?.trim(), "hers and ours");
    for path in ["/shared/scratch/scratch-ada/own", "/shared/scratch/scratch-ada"] {
        let refused = exec("c1", "grace", &["sh", "-c", &format!("ls {path} 2>&1 || :")]).await?;
        ensure!(refused.contains("Permission denied"), "{refused}");
    }
    let grace = Cli::sign_in("grace", &[]).await?;
    for words in [["fs", "ls", "scratch-ada:"], ["fs", "rm", "scratch-ada:own"]] {
        assert_eq!(grace.run(&words, "").await?.code, 1, "{words:?}");
    }
    grace.good(&["fs", "ls", &format!("{name}:")]).await?;
    for words in [
        &["admin", "space", "retire", &name, "--yes"][..],
        &["admin", "space", "create", "mine", "--root", "project"],
        &["admin", "space", "restore", &name],
    ] {
        assert_eq!(grace.run(words, "").await?.code, 1, "{words:?}");
    }

    staged_from_it_and_back(&ada, &name).await?;

    // Taken away nobody reaches it, and it comes back as it was.
    let unasked = admin.run(&["admin", "space", "retire", &name], "").await?;
    ensure!(unasked.code != 0, "without a terminal it wants --yes: {}", unasked.err);
    admin.good(&["admin", "space", "retire", &name, "--yes"]).await?;
    let gone = becomes(&admin, &name, "retired").await?;
    ensure!(gone["remove_after"].is_string(), "{gone}");
    assert_eq!(grace.run(&["fs", "ls", &format!("{name}:")], "").await?.code, 1);
    let closed =
        exec("c1", "ada", &["sh", "-c", &format!("cat {shared} /shared/project/.retired/*/shared 2>&1 || :")]).await?;
    ensure!(!closed.contains("hers"), "{closed}");
    let next = ada.running(&json!({})).await?;
    let seen = Kernel::start(&ada, &next)
        .await?
        .run("import os; print(os.path.exists('/project') and os.listdir('/project'))")
        .await?;
    ensure!(!seen.contains(&name), "a session that starts now does not see it: {seen}");
    admin.good(&["admin", "space", "restore", &name]).await?;
    becomes(&admin, &name, "present").await?;
    assert_eq!(exec("c1", "grace", &["cat", &shared]).await?, "hers and ours");

    exec("c1", "ada", &["rm", "/shared/scratch/scratch-ada/own", &shared]).await?;
    ada.stop_all().await?;
    admin.good(&["admin", "space", "retire", &name, "--yes"]).await?;
    becomes(&admin, &name, "retired").await.map(drop)
}

#[tokio::test]
async fn a_space_is_made_though_the_launcher_and_the_portal_were_away() -> anyhow::Result<()> {
    let (admin, name) = (Cli::sign_in("admin", &["--admin"]).await?, fresh());
    daemon("portal", "launcher", "stop").await?;
    let wished = admin.good(&["admin", "space", "create", &name, "--root", "project", "--group", "research"]).await;
    exec("portal", "root", &["pkill", "-KILL", "-x", "eirened"]).await?;
    daemon("portal", "launcher", "start").await?;
    wished?;
    let made = until("it is made", NOTICE * 2, || async {
        let shown = admin.run(&["admin", "space", "show", &name, "--json"], "").await?;
        Ok(shown.json().ok().filter(|shown| shown["state"] == "present"))
    })
    .await?;
    ensure!(made.get("reason").is_none_or(Value::is_null), "{made}");
    admin.good(&["admin", "space", "retire", &name, "--yes"]).await?;
    becomes(&admin, &name, "retired").await.map(drop)
}
