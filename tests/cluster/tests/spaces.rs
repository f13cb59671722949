//! Spaces on the real cluster: made by an admin's command, seen by sessions on all their nodes, closed to others, taken away and brought back.

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::{daemon, exec, exec_with_input};
use eirene_cluster_tests::kernel::Kernel;
use eirene_cluster_tests::portal::{NOTICE, Person};
use eirene_cluster_tests::until;
use reqwest::{Method, StatusCode};
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

/// Asks the launcher as the portal does: by its socket, and as the account that the portal is.
async fn launcher(request: &Value) -> anyhow::Result<Value> {
    const ASK: &str = "my $launcher = IO::Socket::UNIX->new(Peer => '/run/eirene/launcher.sock') or die $!; \
                       print {$launcher} scalar(<STDIN>); print scalar(<$launcher>);";
    let perl = ["perl", "-MIO::Socket::UNIX", "-e", ASK];
    let answer = exec_with_input("portal", "eirene", &perl, &format!("{request}\n")).await?;
    serde_json::from_str(&answer).with_context(|| format!("the launcher's answer: {answer}"))
}

/// Puts into the space `$1` what leads to `$2`, and what nobody but its owner, and not even she, may look into.
const FILL: &str = r#"set -e
mkdir "$2/kept" && echo kept > "$2/kept/file" && echo linked > "$2/linked"
cd "$1" && mkdir -p "$(printf 'deep\ndown')/er/closed" && cd deep*
echo one > er/closed/file && ln "$2/linked" er/hard && ln -s "$2/kept/file" er/file-out && ln -s ../../.. er/up
chmod 0 er/closed && ln -s "$2/kept" ../out && for one in $(seq 2000); do : > "er/$one"; done"#;

#[tokio::test]
async fn what_was_taken_away_is_removed_by_the_real_launcher_and_nothing_that_it_leads_to() -> anyhow::Result<()> {
    // Weeks lie between taking away and removing, so both are asked for as the portal asks once they are over; the portal knows nothing of it.
    let (name, id) = (fresh(), uuid::Uuid::now_v7().simple().to_string());
    let (space, outside) = (format!("/shared/project/{name}"), format!("/shared/outside-{name}"));
    let kept = format!("/shared/project/.retired/{id}");
    let of = json!({"group": {"group": "research", "writable": true}});
    let made = launcher(&json!({"verb": "make_space", "root": "project", "name": name, "of": of})).await?;
    ensure!(made["answer"] == "space" && made["made"] == true, "{made}");
    let inode = made["inode"].as_u64().context("an inode")?;
    exec("c1", "root", &["install", "-d", "-o", "ada", "-g", "ada", "-m", "755", &outside]).await?;
    exec("c1", "ada", &["sh", "-c", FILL, "sh", &space, &outside]).await?;
    let hers = r#"umask 077 && mkdir "$1/graces" && echo hers > "$1/graces/file""#;
    exec("c2", "grace", &["sh", "-c", hers, "sh", &space]).await?;
    let all = r#"cd "$1" && find . -printf '%p %m %U %G %s\n' | sort && find . -type f -exec cat {} +"#;
    let seen = async || exec("c2", "root", &["sh", "-c", all, "sh", &outside]).await;
    let links = async || exec("c2", "root", &["stat", "-c", "%h", &format!("{outside}/linked")]).await;
    let is_there = async |path: &str| exec("c2", "root", &["ls", "-d", path]).await.is_ok();
    let before = seen().await?;
    assert_eq!(links().await?, "2\n");

    let retire =
        |inode: u64| json!({"verb": "retire_space", "root": "project", "name": name, "inode": inode, "id": id});
    let remove =
        |inode: u64| json!({"verb": "remove_retired", "root": "project", "inode": inode, "id": id, "serial": 7});
    let early = launcher(&remove(inode)).await?;
    ensure!(early["done"] == true && is_there(&format!("{space}/out")).await, "of what is there nothing goes: {early}");
    let other = launcher(&retire(inode + 1)).await?;
    ensure!(other["code"] == "conflict" && is_there(&space).await, "another directory: {other}");
    let retired = launcher(&retire(inode)).await?;
    ensure!(retired["answer"] == "space" && !is_there(&space).await && is_there(&kept).await, "{retired}");
    let hidden = exec("c1", "ada", &["ls", &kept]).await;
    ensure!(hidden.is_err(), "nobody reaches it: {hidden:?}");

    let other = launcher(&remove(inode + 1)).await?;
    ensure!(other["code"] == "conflict" && is_there(&format!("{kept}/graces/file")).await, "{other}");
    until("all of it is removed", NOTICE, || async {
        let removed = launcher(&remove(inode)).await?;
        ensure!(removed["answer"] == "removed", "{removed}");
        Ok((removed["done"] == true).then_some(()))
    })
    .await?;
    ensure!(!is_there(&kept).await && !is_there(&space).await, "nothing of it is left");
    assert_eq!(seen().await?, before, "what links lead to is as it was");
    assert_eq!(links().await?, "1\n", "a hard link takes one name along and not the file");
    let again = launcher(&remove(inode)).await?;
    ensure!(again["done"] == true, "{again}");
    let noted = exec("portal", "root", &["grep", "-F", &id, "/var/log/eirene/launcher.log"]).await?;
    ensure!(noted.contains("remove_retired"), "{noted}");
    exec("c1", "root", &["rm", "-r", &outside]).await.map(drop)
}

/// What a session tries to do to the data set, and what came of each: the name of an error, or that it was done.
const TRY_TO_WRITE: &str = r#"
import errno, os
def attempt(what, *arguments):
    try:
        what(*arguments)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
top = "/data/waves"
print(*[
    attempt(open, top + "/new", "w"),
    attempt(open, top + "/waves.csv", "a"),
    attempt(os.truncate, top + "/waves.csv", 0),
    attempt(os.remove, top + "/fit.py"),
    attempt(os.rename, top + "/fit.py", top + "/other.py"),
    attempt(os.link, top + "/fit.py", top + "/other.py"),
    attempt(os.symlink, "/tmp", top + "/link"),
    attempt(os.mkdir, top + "/new"),
    attempt(os.chmod, top, 0o777),
    attempt(os.utime, top + "/waves.csv"),
    attempt(os.setxattr, top + "/waves.csv", "user.x", b"1"),
])
"#;

#[tokio::test]
async fn a_shared_data_set_is_read_in_sessions_and_in_the_file_browser_and_written_by_nobody() -> anyhow::Result<()> {
    let (ada, hers, grace) =
        (Person::sign_in("ada").await?, Cli::sign_in("ada", &[]).await?, Cli::sign_in("grace", &[]).await?);
    let sums = async || {
        let all = "cd /shared/data/waves && find . -printf '%p %m %U %G %T@\n' | sort && find . -type f -exec sha256sum {} + | sort";
        exec("c2", "root", &["sh", "-c", all]).await
    };
    let before = sums().await?;
    ensure!(before.contains("./waves.csv 644 0 0"), "{before}");

    ada.stop_all().await?;
    let session = ada.running(&json!({})).await?;
    let kernel = Kernel::start(&ada, &session).await?;
    let found = kernel
        .run("import subprocess\nprint(subprocess.run(['python3', '/data/waves/fit.py'], capture_output=True, text=True))")
        .await?;
    ensure!(found.contains("2000 samples; the strongest wave has 3.00 Hz"), "{found}");
    let tried = kernel.run(TRY_TO_WRITE).await?;
    let tried: Vec<&str> = tried.split_whitespace().collect();
    assert_eq!(tried.len(), 11, "{tried:?}");
    ensure!(tried.iter().all(|error| matches!(*error, "EROFS" | "EACCES" | "EPERM")), "{tried:?}");
    let mounts = kernel.run("print(*[line for line in open('/proc/mounts') if ' /data/waves ' in line])").await?;
    let options = mounts.split_whitespace().nth(3).context("it is a mount of its own")?;
    ensure!(options.split(',').any(|option| option == "ro"), "{mounts}");
    // Nor beside the container, as the same person on the same node.
    let refused = exec("c1", "ada", &["sh", "-c", "touch /shared/data/waves/new 2>&1 || :"]).await?;
    ensure!(refused.contains("Permission denied"), "{refused}");

    // From the portal everybody reads it, and what would change it is refused whoever asks.
    let own = hers.home.join("own");
    std::fs::write(&own, "mine")?;
    let own = own.to_str().context("a plain name")?;
    for person in [&hers, &grace] {
        let listed = person.good(&["fs", "ls", "waves:"]).await?.out;
        ensure!(listed.contains("waves.csv") && listed.contains("fit.py"), "{listed}");
        for words in [
            &["fs", "cp", own, "waves:own"][..],
            &["fs", "cp", own, "waves:waves.csv", "--on-conflict", "replace"],
            &["fs", "mv", "waves:fit.py", "waves:other.py"],
            &["fs", "mv", "waves:fit.py", "home:fit.py"],
            &["fs", "rm", "waves:waves.csv"],
        ] {
            let said = person.run(words, "").await?;
            assert_eq!(said.code, 1, "{words:?}: {}", said.err);
        }
    }
    let mut program = Person::sign_in("ada").await?;
    program.token = hers.token()?;
    let (status, said) =
        program.call(Method::POST, "spaces/waves/files/directories", Some(&json!({"path": "new"}))).await?;
    assert_eq!((status, &said["code"]), (StatusCode::FORBIDDEN, &json!("read_only")), "{said}");
    assert_eq!(sums().await?, before, "nothing has changed");
    ada.stop_all().await
}
