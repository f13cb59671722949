//! Files as a person reaches them from the command line, against the real portal; and that nobody else reaches them by any way.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::{Demo, exec};
use eirene_cluster_tests::portal::{Person, client};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A name that no other test has.
fn fresh() -> String {
    format!("cli-{}", uuid::Uuid::now_v7())
}

/// Every file below a directory, by its path in bytes.
fn tree(top: &Path) -> anyhow::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.insert(path.strip_prefix(top)?.as_os_str().as_bytes().to_vec(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a temporary directory of plain text")
}

#[tokio::test]
async fn files_go_up_and_come_down_and_are_looked_after_between() -> anyhow::Result<()> {
    let ada = Cli::sign_in("ada", &[]).await?;
    let (top, name) = (ada.home.join("top"), fresh());
    fs::create_dir_all(top.join("deep/er"))?;
    fs::create_dir(top.join("empty"))?;
    let big: Vec<u8> = (0_u32..3_000_000).flat_map(u32::to_le_bytes).collect();
    fs::write(top.join("deep/big"), &big)?;
    for hard in [&b"a\nb"[..], b"caf\xe9", "\u{202e}gpj.exe".as_bytes(), b"-r", &[b'x'; 255]] {
        fs::write(top.join("deep/er").join(OsStr::from_bytes(hard)), hard)?;
    }
    let before = tree(&top)?;
    let there = format!("home:{name}");
    ada.good(&["fs", "cp", "-r", "--checksum", text(&top)?, &there]).await?;
    let sum = exec("head", "ada", &["sha256sum", &format!("/home/ada/{name}/deep/big")]).await?;
    let local = tokio::process::Command::new("sha256sum").arg(top.join("deep/big")).output().await?;
    let first = |text: &str| text.split_whitespace().next().map(ToOwned::to_owned);
    assert_eq!(first(&sum), first(&String::from_utf8(local.stdout)?), "on the cluster it is what it is here");

    let listed = ada.good(&["fs", "ls", &format!("{there}/deep/er")]).await?.out;
    ensure!(listed.contains("a\\nb\n") && listed.contains("\\u{202e}gpj.exe\n"), "{listed}");
    ensure!(ada.good(&["fs", "ls", "-l", &there]).await?.out.contains("deep/"));
    let down = ada.home.join("down");
    ada.good(&["fs", "cp", "-r", "--checksum", &there, text(&down)?]).await?;
    ensure!(tree(&down)? == before && down.join("empty").is_dir(), "what came back is what went");
    // The same once more has nothing to do.
    let again = ada.good(&["fs", "cp", "-r", &format!("{there}/deep"), &format!("{}/", text(&down)?)]).await?.err;
    ensure!(again.contains("Copied 0 files"), "{again}");

    ada.good(&["fs", "cp", "-r", &format!("{there}/deep"), &format!("{there}/copy")]).await?;
    ada.good(&["fs", "mv", &format!("{there}/copy/big"), &format!("{there}/large")]).await?;
    let du = ada.good(&["fs", "du", "--json", "-d", "0", &there]).await?.json_lines()?;
    ensure!(du[0]["bytes"].as_u64().is_some_and(|bytes| bytes >= 2 * big.len() as u64), "{du:?}");
    let quota = ada.good(&["fs", "quota", "--json"]).await?.json_lines()?;
    ensure!(quota.iter().any(|space| space["kind"] == "home" && space["owner"] == "ada"), "{quota:?}");

    let refused = ada.run(&["fs", "rm", &format!("{there}/copy")], "").await?;
    assert_eq!(refused.code, 1, "a directory needs `-r`: {}", refused.err);
    let removed = ada.good(&["fs", "rm", "-r", "--json", &format!("{there}/deep")]).await?.json_lines()?;
    let id = removed[0]["trash_id"].as_str().context("an id in the trash")?;
    ensure!(ada.good(&["fs", "trash", "ls", "home"]).await?.out.contains(id));
    ensure!(!ada.good(&["fs", "ls", &there]).await?.out.contains("deep"));
    ada.good(&["fs", "trash", "restore", "home", id]).await?;
    let back = ada.home.join("back");
    ada.good(&["fs", "cp", &format!("{there}/deep/big"), text(&back)?]).await?;
    ensure!(fs::read(&back)? == big);

    let unasked = ada.run(&["fs", "rm", "-r", "--delete", &there], "").await?;
    assert_eq!(unasked.code, 2, "without a terminal it asks for --yes: {}", unasked.err);
    ada.good(&["fs", "rm", "-r", "--delete", "--yes", &there]).await?;
    assert_eq!(ada.run(&["fs", "ls", &there], "").await?.code, 1);
    Ok(())
}

#[tokio::test]
async fn nobody_else_reaches_them_by_any_way() -> anyhow::Result<()> {
    let (ada, grace) = (Cli::sign_in("ada", &[]).await?, Cli::sign_in("grace", &[]).await?);
    let name = fresh();
    let secret = ada.home.join("secret");
    fs::write(&secret, "only ada's")?;
    let there = format!("home:{name}/");
    ada.good(&["fs", "cp", "--parents", text(&secret)?, &there]).await?;
    ada.good(&["fs", "cp", text(&secret)?, &format!("home:{name}/gone")]).await?;
    let removed = ada.good(&["fs", "rm", "--json", &format!("home:{name}/gone")]).await?.json_lines()?;
    let trash_id = removed[0]["trash_id"].as_str().context("an id in the trash")?;
    let spaces = ada.good(&["fs", "quota", "--json"]).await?.json_lines()?;
    let home = spaces.iter().find(|space| space["kind"] == "home").context("ada has a home")?;
    let home = home["name"].as_str().context("a name")?;

    // What the command line has no words for: an upload that is not over, and an operation that is.
    let mut person = Person::sign_in("ada").await?;
    person.token = ada.token()?;
    let demo = Demo::load()?;
    let url = reqwest::Url::parse(&demo.portal_url)?;
    let (host, port) = (url.host_str().context("no host")?, url.port_or_known_default().context("no port")?);
    let http = client(&[host], port)?;
    let metadata = "path Y2xpLXVuZmluaXNoZWQ=";
    let made = http
        .post(format!("{}/api/v1/spaces/home/uploads", demo.portal_url))
        .bearer_auth(&person.token)
        .header("tus-resumable", "1.0.0")
        .header("upload-length", "5")
        .header("upload-metadata", metadata)
        .send()
        .await?;
    ensure!(made.status() == StatusCode::CREATED, "{}", made.status());
    let upload = made.headers().get("location").context("an address")?.to_str()?.to_owned();
    let (status, scan) = person.call(Method::POST, "spaces/home/scan", Some(&json!({"path": name}))).await?;
    ensure!(status == StatusCode::ACCEPTED, "{status} {scan}");
    let operation = scan["id"].as_str().context("an id")?;

    let mut stranger = Person::sign_in("grace").await?;
    stranger.token = grace.token()?;
    for method in [Method::HEAD, Method::PATCH, Method::DELETE] {
        let answer = http
            .request(method.clone(), format!("{}{upload}", demo.portal_url))
            .bearer_auth(&stranger.token)
            .header("tus-resumable", "1.0.0")
            .header("upload-offset", "0")
            .header("content-type", "application/offset+octet-stream")
            .body("evil!")
            .send()
            .await?;
        ensure!(answer.status() == StatusCode::NOT_FOUND, "{method}: {}", answer.status());
    }
    let path = format!("{name}/secret");
    let move_it = json!({"items": [{"path": path, "to": "mine"}], "to_space": "home"});
    let paths = json!({"paths": [path]});
    let sure = json!({"paths": [path], "sure": true});
    let none = json!({});
    let asked: [(Method, String, Option<&Value>); 14] = [
        (Method::GET, format!("operations/{operation}"), None),
        (Method::GET, format!("operations/{operation}/results"), None),
        (Method::DELETE, format!("operations/{operation}"), None),
        (Method::POST, format!("spaces/home/trash/{trash_id}/restore"), Some(&none)),
        (Method::POST, format!("spaces/{home}/trash/{trash_id}/restore"), Some(&none)),
        (Method::GET, format!("spaces/{home}/trash"), None),
        (Method::DELETE, format!("spaces/{home}/trash"), None),
        (Method::GET, format!("spaces/{home}/files"), None),
        (Method::GET, format!("spaces/{home}/files/content?path={path}"), None),
        (Method::GET, format!("spaces/{home}/files/archive?path={name}"), None),
        (Method::POST, format!("spaces/{home}/files/move"), Some(&move_it)),
        (Method::POST, format!("spaces/{home}/files/copy"), Some(&move_it)),
        (Method::POST, format!("spaces/{home}/files/trash"), Some(&paths)),
        (Method::POST, format!("spaces/{home}/files/delete"), Some(&sure)),
    ];
    for (method, target, body) in asked {
        let (status, answer) = stranger.call(method.clone(), &target, body).await?;
        ensure!(status == StatusCode::NOT_FOUND, "{method} {target}: {status} {answer}");
    }
    let mine = grace.home.join("mine");
    let (theirs, mine) = (format!("{home}:{path}"), text(&mine)?);
    for words in [
        &["fs", "ls", &format!("{home}:")][..],
        &["fs", "cp", &theirs, mine],
        &["fs", "cp", "-r", &format!("{home}:{name}"), mine],
        &["fs", "cp", &theirs, "home:mine"],
        &["fs", "mv", &theirs, "home:mine"],
        &["fs", "rm", &theirs],
        &["fs", "rm", "--delete", "--yes", &theirs],
        &["fs", "mkdir", &format!("{home}:{name}/x")],
        &["fs", "du", &format!("{home}:")],
        &["fs", "trash", "restore", home, trash_id],
        &["fs", "cp", "/etc/hostname", &format!("{home}:{name}/planted")],
    ] {
        let said = grace.run(words, "").await?;
        assert_eq!(said.code, 1, "{words:?}: {}{}", said.out, said.err);
        ensure!(!said.out.contains("only ada's") && !Path::new(mine).exists(), "{words:?}");
    }
    // Paths that lead out of one's own.
    for way in ["home:../ada", "home:../../etc/passwd", &format!("home:../ada/{path}")] {
        let said = grace.run(&["fs", "cp", way, mine], "").await?;
        ensure!(said.code == 1 && !Path::new(mine).exists(), "{way}: {}{}", said.out, said.err);
    }

    let kept = ada.home.join("kept");
    ada.good(&["fs", "cp", &format!("home:{path}"), text(&kept)?]).await?;
    assert_eq!(fs::read_to_string(kept)?, "only ada's");
    ada.good(&["fs", "trash", "restore", "home", trash_id]).await?;
    ada.good(&["fs", "rm", "-r", "--delete", "--yes", &format!("home:{name}")]).await?;
    let ended = http
        .delete(format!("{}{upload}", demo.portal_url))
        .bearer_auth(&person.token)
        .header("tus-resumable", "1.0.0")
        .send()
        .await?;
    ensure!(ended.status() == StatusCode::NO_CONTENT, "the stranger has not ended it: {}", ended.status());
    Ok(())
}
