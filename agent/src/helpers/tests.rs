//! Who is believed to be a helper, what is waited for of them, and what they leave behind.

use super::*;
use crate::helper::proof;

/// Listens to a process that says this, and ends then.
async fn listen(keeper: &Keeper, words: &[FromHelper]) -> End {
    listen_until(keeper, words, std::future::ready(())).await
}

/// Listens to a process that says this, and ends when `done` does.
async fn listen_until(keeper: &Keeper, words: &[FromHelper], done: impl Future<Output = ()>) -> End {
    let mut child = tokio::process::Command::new("sh")
        .args(["-c", "printf '%s\\n' \"$@\"; read -r _", "sh"])
        .args(words.iter().map(|words| serde_json::to_string(words).unwrap()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (answers, _answered) = mpsc::channel(ORDERS);
    let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
    let done = async {
        done.await;
        drop(input);
    };
    let (end, ()) = tokio::join!(keeper.listen(output, "secret", 0, &answers), done);
    child.wait().await.unwrap();
    end
}

#[tokio::test]
async fn who_cannot_prove_to_be_a_node_s_helper_is_refused_before_anything_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("job.json");
    write_private(&path, &serde_json::to_string(&crate::job::tests::file(0)).unwrap()).unwrap();
    let environment = crate::job::tests::environment(&[("SLURM_JOB_NODELIST", "c[1-2]")]);
    let log = Log::new(std::io::sink());
    let job = Job::read(&path, &environment, &log).await.unwrap();
    let keeper = Keeper {
        helpers: Helpers::new(&job, directory.path()),
        node: "c2".to_owned(),
        name: job.name(),
        directory: directory.path().to_owned(),
        container: Spec::new(&job.file.app, "/home/ada", None),
        scratch: None,
        nodes: job.allocation.nodes.clone(),
        sampled: job.sampled("c2", 1),
        srun: Srun::of("/usr/bin/srun"),
        log: log.clone(),
    };
    let node = || keeper.helpers.nodes.borrow()["c2"].clone();
    let refused = || log.piece(0).map_or(0, |(_, _, text)| text.matches("could not prove").count());
    let hello = |secret: &str, attempt, node: &str| {
        let proof = proof(secret, &keeper.attempt_name(attempt), node);
        FromHelper::Hello { proof, directory: "/tmp/x".into(), names: vec!["c2.cluster".to_owned()] }
    };
    let nothing = FromHelper::Hello { proof: String::new(), directory: "/tmp/x".into(), names: Vec::new() };
    let strangers =
        [nothing, hello("guess", 0, "c2"), hello("secret", 1, "c2"), hello("secret", 0, "c1"), FromHelper::Ready];
    let before = node();
    for (number, stranger) in strangers.into_iter().enumerate() {
        let end = listen(&keeper, &[stranger, FromHelper::Ready]).await;
        assert!(!end.was_ready && end.why.is_none());
        assert_eq!((node(), refused()), (before.clone(), number + 1));
    }
    let end = listen(&keeper, &[hello("secret", 0, "c2"), FromHelper::Ready]).await;
    assert!(end.was_ready);
    let ready =
        Node { state: NodeState::Ready, directory: Some("/tmp/x".into()), names: vec!["c2.cluster".to_owned()] };
    assert_eq!((node(), refused()), (ready, 5));
    // What its node's launchers start is told of for as long as it runs, or as the helper is there to say so.
    let began =
        |number, node: &str| FromHelper::Began { number, node: node.to_owned(), command: "hostname".to_owned() };
    let words = [hello("secret", 0, "c2"), began(0, "c1"), began(1, "c2"), FromHelper::Over { number: 0 }];
    let mut running = keeper.helpers.running.watch();
    let one_is_left = async {
        let told = running.wait_for(|steps| keeper.helpers.running.counts().0 == 2 && steps.len() == 1).await.unwrap();
        assert_eq!((told[0].nodes[0].as_str(), told[0].command.as_str()), ("c2", "hostname"));
    };
    listen_until(&keeper, &words, one_is_left).await;
    assert_eq!(keeper.helpers.running.counts(), (2, 0));
    assert_eq!(listen(&keeper, &[began(0, "c1")]).await.why, None);
    assert_eq!((keeper.helpers.running.counts(), refused()), ((2, 0), 6), "who has not proven itself");
}

#[tokio::test]
async fn scratches_are_waited_for_as_long_as_their_helpers_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("job.json");
    write_private(&path, &serde_json::to_string(&crate::job::tests::file(0)).unwrap()).unwrap();
    let environment = crate::job::tests::environment(&[("SLURM_JOB_NODELIST", "c[1-4]")]);
    let job = Job::read(&path, &environment, &Log::new(std::io::sink())).await.unwrap();
    let helpers = Helpers::new(&job, directory.path());
    assert_eq!(helpers.filled().await, Ok(()), "nobody has one");
    let trouble = || Trouble::new(crate::scratch::Code::StageInFailed, "no room");
    for node in ["c2", "c3", "c4"] {
        helpers.fill(node, Filling::Waiting);
    }
    helpers.fill("c2", Filling::Filled);
    helpers.set("c3", NodeState::Lost("gone".into()), None);
    let (filled, fourth) = tokio::join!(helpers.filled(), async { helpers.fill("c4", Filling::Filled) });
    assert_eq!((filled, fourth), (Ok(()), ()), "one that is lost may come later");
    helpers.fill("c3", Filling::Failed(trouble()));
    assert_eq!(helpers.filled().await, Err(trouble()));
    let emptying = async {
        helpers.fill("c2", Filling::Emptied(Some(trouble())));
        assert!(helpers.succeeded.borrow().is_some(), "who comes later hears it");
        helpers.gone("c4");
    };
    assert_eq!(tokio::join!(helpers.empty(true), emptying).0, Err(trouble()), "and not before all are done");
    helpers.fill("c3", Filling::Emptied(None));
    let kept = vec![("c2".to_owned(), Some(trouble().text)), ("c4".to_owned(), None)];
    assert_eq!(helpers.not_emptied(), kept, "of the last nobody knows");
}

#[tokio::test]
async fn a_node_names_a_free_port_and_one_that_does_not_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("job.json");
    write_private(&path, &serde_json::to_string(&crate::job::tests::file(0)).unwrap()).unwrap();
    let environment = crate::job::tests::environment(&[("SLURM_JOB_NODELIST", "c[1-2]")]);
    let job = Job::read(&path, &environment, &Log::new(std::io::sink())).await.unwrap();
    let helpers = Helpers::new(&job, directory.path());
    let mut orders = helpers.orders.subscribe();
    let answer = async {
        let Ok(ToHelper::Port { question, node }) = orders.recv().await else { panic!("a question") };
        // Somebody else's answer is passed over.
        for told in [(question + 1, Some(1)), (question, Some(4711))] {
            helpers.ports.send(told).unwrap();
        }
        node
    };
    assert_eq!(tokio::join!(helpers.free_port("c2"), answer), (Some(4711), "c2".to_owned()));
    assert_eq!(helpers.free_port("c2").await, None, "nobody answers");
}

#[test]
fn only_what_was_written_for_helpers_and_ranks_is_tidied_away() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["helper-c2.json", "step-0-1.json", "job.json", "job.log", "step-notes.txt"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    tidy(directory.path());
    let mut left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["job.json", "job.log", "step-notes.txt"]);
}
