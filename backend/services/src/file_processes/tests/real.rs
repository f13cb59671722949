//! The real file process, over a directory of the test.

use std::io::Write as _;
use std::sync::mpsc as threads;
use std::sync::{Arc, Mutex};

use eirene_files_protocol::Stat;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::file_processes::{Event, FilesPool};
use crate::testing::FakeLauncher;

/// The library of `eirene-files` in a thread of its own, which it confines; it says when it ended.
fn real(ended: threads::Sender<bool>) -> FakeLauncher {
    let launcher = FakeLauncher::default();
    let ended = Mutex::new(ended);
    *launcher.files.lock().unwrap() = Some(Arc::new(move |_, channel| {
        let served = eirene_files::serve(channel, &eirene_files::Settings { least_uid: 0, landlock: true });
        ended.lock().unwrap().send(served.is_ok()).unwrap();
    }));
    launcher
}

#[tokio::test]
async fn the_real_file_process_lists_reads_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("one"), "content").unwrap();
    let mut large = std::fs::File::create(directory.path().join("two")).unwrap();
    large.write_all(&vec![7; 4 << 20]).unwrap();
    let (ended, has_ended) = threads::channel();
    let pool = FilesPool::new(Arc::new(real(ended)), patient());
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), ..owner("ada") };
    let channel = pool.channel(&owner, &[space(1, directory.path())], ONE).await.unwrap();
    assert_eq!(channel.hello().spaces[0].problem, None);
    let heard = channel.ask(list()).await.unwrap();
    let names: Vec<_> = heard
        .parts
        .iter()
        .flat_map(|part| if let Part::Entries(entries) = part { entries.clone() } else { Vec::new() })
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, [Name::parse(b"one").unwrap(), Name::parse(b"two").unwrap()]);
    let problem = channel.ask(Verb::Stat(Stat { space: SpaceNumber(1), path: path("none") })).await.unwrap();
    assert!(problem.outcome.is_err());

    let (mut request, mut stream) = channel.begin(read("two")).await.unwrap();
    assert!(matches!(request.next_in_time().await.unwrap(), Event::Part(Part::ReadBegins(_))));
    let mut content = Vec::new();
    stream.read_to_end(&mut content).await.unwrap();
    assert_eq!(content, vec![7; 4 << 20]);
    let last = request.next_in_time().await.unwrap();
    assert!(
        matches!(last, Event::Outcome(Outcome::Done(Answer::Written { bytes, .. })) if bytes == 4 << 20),
        "{last:?}"
    );

    // Given up in the middle: the place comes back, and the process goes on.
    let (request, stream) = channel.begin(read("two")).await.unwrap();
    drop((request, stream));
    while channel.idle_since().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(channel.ask(list()).await.unwrap().outcome.is_ok());
    pool.close();
    let served = tokio::task::spawn_blocking(move || has_ended.recv_timeout(PATIENCE)).await.unwrap();
    assert_eq!(served, Ok(true), "the process ends when its channel does");
}
