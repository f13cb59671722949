//! A large upload on the demo cluster, and everybody who carries it killed on the way.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use eirene_cluster_tests::cli::Cli;
use eirene_cluster_tests::demo::exec;
use eirene_cluster_tests::portal::NOTICE;
use eirene_cluster_tests::until;
use tokio::process::Child;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// In which not half of it can be sent.
const MOMENT: Duration = Duration::from_millis(200);
/// Where the file goes, in ada's home.
const DIRECTORY: &str = "large upload";

/// A file of random bytes that goes with the test.
struct Random(PathBuf);

impl Random {
    fn of(bytes: u64) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("eirene-upload-{}", uuid::Uuid::now_v7()));
        let file = Self(path);
        let mut target = std::fs::File::create_new(&file.0)?;
        std::io::copy(&mut std::fs::File::open("/dev/urandom")?.take(bytes), &mut target)?;
        target.flush()?;
        Ok(file)
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        // What cannot be removed is in the directory for temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn sum(file: &Path) -> anyhow::Result<String> {
    let said = Command::new("sha256sum").arg("--").arg(file).output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    first_word(&String::from_utf8(said.stdout)?)
}

fn first_word(text: &str) -> anyhow::Result<String> {
    text.split_whitespace().next().map(ToOwned::to_owned).context("a word")
}

/// Names and sizes of all there is in the directory, hidden or not, as ada's own eyes see it.
async fn there() -> anyhow::Result<Vec<(String, u64)>> {
    let directory = format!("/home/ada/{DIRECTORY}");
    let lines = exec("portal", "ada", &["find", &directory, "-type", "f", "-printf", "%s %P\n"]).await?;
    let parsed = lines.lines().filter_map(|line| line.split_once(' '));
    parsed.map(|(size, name)| Ok((name.to_owned(), size.parse()?))).collect()
}

fn signal(sender: &Child, signal: &str) -> anyhow::Result<()> {
    let id = sender.id().context("the sender is over")?.to_string();
    ensure!(Command::new("kill").args([signal, &id]).status()?.success(), "{signal} {id}");
    Ok(())
}

/// Lets the sender go on, a moment at a time, until more than so many bytes of the unfinished upload lie there; then it is halted.
async fn got_to(sender: &Child, bytes: u64) -> anyhow::Result<()> {
    until(&format!("{bytes} bytes of the upload"), 3 * NOTICE, || async {
        signal(sender, "-CONT")?;
        tokio::time::sleep(MOMENT).await;
        signal(sender, "-STOP")?;
        let there = there().await?;
        ensure!(!there.iter().any(|(name, _)| name == "random.bin"), "it was whole before it was disturbed");
        Ok(there.iter().any(|(_, size)| *size > bytes).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_gibibyte_arrives_whole_though_the_portal_the_file_process_and_the_sender_are_killed() -> anyhow::Result<()> {
    let ada = Cli::sign_in("ada", &[]).await?;
    exec("portal", "ada", &["rm", "-rf", &format!("/home/ada/{DIRECTORY}")]).await?;
    exec("portal", "ada", &["mkdir", &format!("/home/ada/{DIRECTORY}")]).await?;
    let file = Random::of(GIB)?;
    let (from, to) = (file.0.to_str().context("UTF-8")?, format!("home:{DIRECTORY}/random.bin"));
    let words = ["fs", "cp", from, &to];

    let mut sender = ada.command(&words).spawn()?;
    got_to(&sender, 64 * MIB).await?;
    exec("portal", "root", &["pkill", "-KILL", "-x", "eirened"]).await?;
    let before = there().await?;
    got_to(&sender, 256 * MIB).await?;
    exec("portal", "root", &["pkill", "-KILL", "-u", "ada", "-f", "eirene-files"]).await?;
    got_to(&sender, 512 * MIB).await?;
    ensure!(sender.try_wait()?.is_none(), "the sender goes on by itself through both");
    sender.kill().await?;

    // The same command goes on: with the upload that is there, not with another.
    let part = there().await?;
    ada.good(&words).await?;
    let hidden = |there: &[(String, u64)]| there.iter().map(|(name, _)| name.clone()).max();
    assert_eq!(hidden(&before), hidden(&part), "one upload from beginning to end");
    assert_eq!(there().await?, [("random.bin".to_owned(), GIB)], "whole, and nothing beside it");
    let arrived = exec("portal", "ada", &["sha256sum", &format!("/home/ada/{DIRECTORY}/random.bin")]).await?;
    assert_eq!(first_word(&arrived)?, sum(&file.0)?);
    exec("portal", "ada", &["rm", "-r", &format!("/home/ada/{DIRECTORY}")]).await?;
    Ok(())
}
