//! `eirene-rsh` as launchers call it, against a step socket in this process: what it asks for, what it passes on, and what it says when it cannot.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use eirene_steps::{Answer, Descriptors, Receiver, RemoteRequest, Request, frame, parse};

/// A directory with the program under both of its names.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("bin")).unwrap();
        for name in ["eirene-rsh", "ssh"] {
            symlink(env!("CARGO_BIN_EXE_eirene-agent"), directory.path().join("bin").join(name)).unwrap();
        }
        Self(directory)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("steps.sock")
    }

    fn command(&self, name: &str, words: &[&str]) -> Command {
        let bin = self.0.path().join("bin");
        let mut command = Command::new(bin.join(name));
        let path = format!("{}:{}:/usr/bin:/bin", bin.display(), self.0.path().join("image").display());
        command.args(words).env("PATH", path).env("USER", "ada").env("EIRENE_TRAIN_STEPS", self.socket());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, name: &str, words: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, stdout } = self.command(name, words).output().unwrap();
        assert_eq!(String::from_utf8(stdout).unwrap(), "", "nothing was run");
        (status.code(), String::from_utf8(stderr).unwrap())
    }

    /// Answers one request, after `first` was done with what came with it.
    fn answer(
        &self,
        answer: Answer,
        first: impl FnOnce(Descriptors) + Send + 'static,
    ) -> std::thread::JoinHandle<RemoteRequest> {
        let listener = UnixListener::bind(self.socket()).unwrap();
        std::thread::spawn(move || {
            let (mut asker, _) = listener.accept().unwrap();
            let mut receiver = Receiver::default();
            let request = loop {
                assert!(receiver.receive(&asker).unwrap());
                if let Some(request) = parse::<Request>(&mut receiver.bytes).unwrap() {
                    break request;
                }
            };
            first(receiver.descriptors().unwrap());
            asker.write_all(&frame(&answer).unwrap()).unwrap();
            match request {
                Request::Remote(request) => request,
                Request::Step(_) => panic!("a step was asked for"),
            }
        })
    }
}

#[test]
fn a_command_is_one_argument_and_has_the_caller_s_own_input_and_output() {
    let place = Place::new();
    let agent = place.answer(Answer::Ended { status: 7 }, |Descriptors([input, output, errors])| {
        let mut words = String::new();
        std::fs::File::from(input).read_to_string(&mut words).unwrap();
        std::fs::File::from(output).write_all(words.to_uppercase().as_bytes()).unwrap();
        std::fs::File::from(errors).write_all(b"end").unwrap();
    });
    let words =
        ["-x", "-o", "BatchMode=yes", "ada@c2", "PATH=/x:$PATH;", "prted", "--uri", "\"1;tcp://10.0.0.1:2\"", "*"];
    let mut child = place.command("eirene-rsh", &words).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"words").unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), stdout, stderr), (Some(7), b"WORDS".to_vec(), b"end".to_vec()));
    let asked = agent.join().unwrap();
    assert_eq!(asked.node, "c2");
    assert_eq!(asked.program.command, ["PATH=/x:$PATH; prted --uri \"1;tcp://10.0.0.1:2\" *"]);
    assert!(asked.program.environment.is_empty(), "as with ssh, nothing of the caller's is over there");
}

#[test]
fn what_cannot_be_is_one_sentence_and_ssh_s_own_status() {
    let place = Place::new();
    let cannot = |words: &[&str], sentence: &str| {
        let (status, said) = place.run("eirene-rsh", words);
        assert_eq!(status, Some(255), "{said}");
        assert!(said.starts_with(&format!("eirene-rsh: {sentence}")) && said.lines().count() == 1, "{said}");
    };
    cannot(&["c2", "true"], "`c2` cannot be reached: this is not within a session of several nodes");
    cannot(&["grace@c2", "true"], "a session's commands run as the person whose it is, and not as `grace`");
    cannot(
        &["-l", "mallory", "c2", "true"],
        "a session's commands run as the person whose it is, and not as `mallory`",
    );
    cannot(&["-N", "c2"], "`-N` is more than eirene-rsh does");
    cannot(&[], "say on which node");
    let refused = Answer::Refused { code: "no_such_node".into(), text: "`c9` is not a node of this session".into() };
    let agent = place.answer(refused, drop);
    cannot(&["c9", "true"], "`c9` is not a node of this session");
    agent.join().unwrap();
}

fn image_with_ssh(place: &Path) {
    std::fs::create_dir(place.join("image")).unwrap();
    let own = place.join("image/ssh");
    std::fs::write(&own, "#!/bin/sh\nfor word; do echo \"[$word]\" >&2; done\nexit 9\n").unwrap();
    std::fs::set_permissions(own, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_not_about_the_session_goes_to_the_image_s_own_ssh_as_it_is() {
    let place = Place::new();
    image_with_ssh(place.0.path());
    let refused = || Answer::Refused { code: "no_such_node".into(), text: "`c9` is not a node of this session".into() };
    let agent = place.answer(refused(), drop);
    let said = place.run("ssh", &["git@code.example.org", "git-upload-pack", "a  b"]);
    assert_eq!(said, (Some(9), "[git@code.example.org]\n[git-upload-pack]\n[a  b]\n".to_owned()));
    let said = place.run("ssh", &["code.example.org", "x y"]);
    assert_eq!(said, (Some(9), "[code.example.org]\n[x y]\n".to_owned()));
    agent.join().unwrap();
    // What the session refuses for another reason is not tried elsewhere.
    std::fs::remove_file(place.socket()).unwrap();
    let lost = Answer::Refused { code: "node_not_ready".into(), text: "node c2 cannot be used now".into() };
    let agent = place.answer(lost, drop);
    assert_eq!(place.run("ssh", &["c2", "true"]), (Some(255), "ssh: node c2 cannot be used now\n".to_owned()));
    agent.join().unwrap();
}
