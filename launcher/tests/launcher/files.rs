//! A person's file process: whose it is, what it holds, who may have one, and when it ends.
//!
//! In its place stands a shell that reads its script from the channel.

use std::collections::HashSet;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use eirene_core::RequestId;
use eirene_core::launcher::{Cause, LauncherAnswer, LauncherCall, LauncherRequest};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType, recv,
    recvmsg, send, socketpair, sockopt,
};

use crate::bench::{Launcher, PATIENCE, PROGRAM, has_ended, wait_for};

/// The portal's end of a channel.
struct Files(OwnedFd);

impl Files {
    /// Has one opened, on a connection that is closed at once; or the code of the refusal.
    fn open(launcher: &Launcher, person: &str) -> Result<Self, String> {
        Self::open_for(launcher, person, Cause::default())
    }

    fn open_for(launcher: &Launcher, person: &str, cause: Cause) -> Result<Self, String> {
        let stream = launcher.connect();
        ask(&stream, person, cause);
        let (answer, mut descriptors) = hear(&stream);
        match answer {
            LauncherAnswer::Files => {
                assert_eq!(descriptors.len(), 1);
                let channel = descriptors.remove(0);
                sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
                assert_eq!(sockopt::socket_type(&channel).unwrap(), SocketType::SEQPACKET);
                Ok(Self(channel))
            }
            LauncherAnswer::Refused { code, .. } => {
                assert!(descriptors.is_empty());
                Err(code)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a script; its answer.
    fn does(&self, script: &str) -> String {
        send(&self.0, format!("{script}\n").as_bytes(), SendFlags::NOSIGNAL).unwrap();
        let mut buffer = vec![0; 65536];
        let (length, _) = recv(&self.0, buffer.as_mut_slice(), RecvFlags::empty()).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    fn pid(&self) -> String {
        self.does("echo $$ >&0")
    }
}

fn ask(mut stream: &UnixStream, person: &str, cause: Cause) {
    let call = LauncherCall { cause, request: LauncherRequest::OpenFiles { person: person.parse().unwrap() } };
    stream.write_all(format!("{}\n", serde_json::to_string(&call).unwrap()).as_bytes()).unwrap();
}

/// An answer, and what came with its first byte.
fn hear(stream: &UnixStream) -> (LauncherAnswer, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut line = vec![0; 4096];
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut line)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let rights = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    assert_eq!(line[received.bytes - 1], b'\n');
    (serde_json::from_slice(&line[..received.bytes]).unwrap(), descriptors)
}

fn threads(launcher: &Launcher, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", launcher.process.id())).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.trim() == name).count()
}

fn has_children(launcher: &Launcher) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", launcher.process.id())).unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).any(|list| !list.is_empty())
}

#[test]
fn the_file_process_is_the_person_within_limits_and_holds_nothing_of_the_launcher() {
    let Some(launcher) = Launcher::start() else { return };
    let files = Files::open(&launcher, "ada").unwrap();
    let said = files.does(
        "said=$(echo \"ids $(id -u) $(id -g) $(id -G)\"; echo \"umask $(umask)\"; echo \"directory $(pwd)\"; \
         echo \"limits $(ulimit -c) $(ulimit -n) $(ulimit -d) $(ulimit -f)\"; echo \"nice $(nice)\"; \
         echo \"oom $(cat /proc/$$/oom_score_adj)\"; \
         echo \"privileges $(grep -E 'NoNewPrivs|CapEff|CapPrm' /proc/$$/status | tr -d '\\t\\n')\"; \
         echo \"signals $(grep SigBlk /proc/$$/status)\"; echo \"arguments $# $0\"; \
         tr '\\0' '\\n' < /proc/$$/environ | sort | sed 's/^/variable /')\necho \"$said\" >&0",
    );
    let having = |begin: &str| {
        said.lines().filter_map(|line| line.strip_prefix(begin)).map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(having("ids "), ["2001 2001 2001 2000"]);
    assert_eq!(having("umask "), ["0027"]);
    assert_eq!(having("directory "), ["/"]);
    assert_eq!(having("limits "), ["0 1024 262144 unlimited"]);
    let ours = String::from_utf8(Command::new("nice").output().unwrap().stdout).unwrap();
    assert_eq!(having("nice "), [(ours.trim().parse::<i32>().unwrap() + 5).min(19).to_string()]);
    assert_eq!(having("oom "), ["500"]);
    // Looked at from outside, and when it waits again: a shell that runs something holds more.
    let descriptors = format!("/proc/{}/fd", files.pid().trim());
    wait_for("the three streams and nothing else", || std::fs::read_dir(&descriptors).unwrap().count() == 3);
    assert_eq!(having("privileges "), ["CapPrm:0000000000000000CapEff:0000000000000000NoNewPrivs:1"]);
    assert_eq!(having("signals SigBlk:"), ["0000000000000000"]);
    assert_eq!(having("arguments "), [format!("0 {}/files", launcher.path().display())]);
    let home = format!("HOME={}", launcher.home("ada").display());
    assert_eq!(having("variable "), [home.as_str(), "LANG=C.UTF-8", "LOGNAME=ada", "USER=ada"]);
}

#[test]
fn it_ends_with_its_channel_and_both_ends_are_in_the_audit_log() {
    let Some(launcher) = Launcher::start() else { return };
    // Each with what it leads to: a connection of the start may still be closing when they are first looked at.
    let descriptors = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", launcher.process.id()))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        all.filter_map(|path| Some((std::fs::read_link(&path).ok()?, path))).collect::<HashSet<_>>()
    };
    let before = descriptors();
    let files = Files::open(&launcher, "ada").unwrap();
    let pid = files.pid();
    files.does("cat /etc/passwd > /dev/null; echo done >&0");
    assert!(!has_ended(&pid));
    drop(files);
    wait_for("its end", || has_ended(&pid));
    wait_for("the audit line", || launcher.audit().iter().any(|line| line["verb"] == "files_ended"));
    let lines = launcher.audit();
    let [begun, ended] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&begun["verb"], &begun["outcome"]), (&"open_files".into(), &"done".into()));
    assert_eq!((&ended["status"], &ended["outcome"]), (&0.into(), &"done".into()));
    for line in [begun, ended] {
        assert_eq!((&line["person"], &line["peer"]["uid"]), (&"ada".into(), &0.into()));
        assert!(line["duration_ms"].is_u64());
    }
    wait_for("its descriptors to be closed", || {
        threads(&launcher, "connection") == 0 && descriptors().is_subset(&before)
    });
    assert_eq!(threads(&launcher, "files") + threads(&launcher, "files-log"), 0);
}

#[test]
fn one_that_is_killed_is_heard_of_by_its_channel() {
    let Some(launcher) = Launcher::start() else { return };
    let files = Files::open(&launcher, "ada").unwrap();
    // What it leaves behind in its own group ends, too.
    let left = files.does("sleep 1000 <&- & echo $! >&0");
    send(&files.0, b"kill -9 $$\n", SendFlags::NOSIGNAL).unwrap();
    assert_eq!(recv(&files.0, [0; 9].as_mut_slice(), RecvFlags::empty()).unwrap().0, 0);
    wait_for("what it left", || has_ended(&left));
    wait_for("the audit line", || launcher.audit().iter().any(|line| line["status"] == -1));
}

#[test]
fn it_outlives_the_connection_that_asked_for_it_and_not_the_launcher() {
    let Some(mut launcher) = Launcher::start() else { return };
    let files = Files::open(&launcher, "ada").unwrap();
    // The connection's thread has ended: were it the parent, the kernel would have ended the process.
    wait_for("the connection's end", || threads(&launcher, "connection") == 0);
    let pid = files.pid();
    assert!(!has_ended(&pid));
    launcher.kill();
    wait_for("its end", || has_ended(&pid));
    assert_eq!(recv(&files.0, [0; 9].as_mut_slice(), RecvFlags::empty()).unwrap().0, 0);
}

#[test]
fn files_of_nobody_root_slurm_and_the_portal_are_refused() {
    let Some(launcher) = Launcher::start() else { return };
    for system in [
        "root",
        "slurm",
        "nobody",
        "daemon",
        "portal",
        "op",
        "op-again",
        "bee",
        "bee-again",
        "slurmadm",
        "dynamic",
        "homeless",
        "rootish",
    ] {
        assert_eq!(Files::open(&launcher, system).err().as_deref(), Some("forbidden_person"), "{system}");
    }
    assert_eq!(Files::open(&launcher, "unheard-of").err().as_deref(), Some("unknown_person"));
    assert!(!has_children(&launcher) && threads(&launcher, "files") == 0);
}

#[test]
fn a_person_has_two_at_most_and_all_together_have_so_many() {
    let Some(launcher) = Launcher::start() else { return };
    let first = Files::open(&launcher, "ada").unwrap();
    let second = Files::open(&launcher, "ada").unwrap();
    assert_eq!(Files::open(&launcher, "ada").err().as_deref(), Some("away"));
    let third = Files::open(&launcher, "grace").unwrap();
    assert_eq!(Files::open(&launcher, "grace").err().as_deref(), Some("away"), "three in all");
    // Those that are there are not disturbed, and other calls have places of their own.
    assert_eq!([&first, &second, &third].map(|files| files.does("id -un >&0")), ["ada\n", "ada\n", "grace\n"]);
    let session = eirene_core::SessionId::generate();
    assert!(matches!(launcher.ask(&crate::bench::write("ada", session, "x")), LauncherAnswer::Written { .. }));
    drop(second);
    wait_for("a place", || Files::open(&launcher, "grace").is_ok());
}

#[test]
fn a_program_that_others_than_root_can_write_is_not_started() {
    let Some(mut launcher) = Launcher::start() else { return };
    let program = launcher.path().join("files");
    for mode in [0o775, 0o757, 0o644] {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Files::open(&launcher, "ada").err().as_deref(), Some("failed"), "{mode:o}");
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(&program, Some(2001), None).unwrap();
    assert_eq!(Files::open(&launcher, "ada").err().as_deref(), Some("failed"));
    std::fs::remove_file(&program).unwrap();
    assert_eq!(Files::open(&launcher, "ada").err().as_deref(), Some("failed"));
    launcher.configure(|text| text.replace("files_program", "# files_program"));
    assert_eq!(Files::open(&launcher, "ada").err().as_deref(), Some("not_configured"), "no program is named");
    assert!(!has_children(&launcher));
    let audit = launcher.audit();
    let (last, others) = audit.split_last().unwrap();
    assert_eq!(last["outcome"], "not_configured");
    assert!(others.iter().all(|line| line["outcome"] == "failed"));
}

#[test]
fn a_start_that_cannot_be_noted_is_undone() {
    let Some(launcher) = Launcher::start() else { return };
    let log = launcher.path().join("audit.log");
    let _ = std::fs::remove_file(&log);
    std::fs::create_dir(&log).unwrap();
    assert_eq!(Files::open(&launcher, "ada").err().as_deref(), Some("away"));
    wait_for("its end", || !has_children(&launcher));
}

#[test]
fn what_it_says_and_how_it_ends_is_logged_for_the_request_that_started_it() {
    let Some(launcher) = Launcher::start() else { return };
    let request = RequestId::generate();
    let files = Files::open_for(&launcher, "ada", Cause { request: Some(request), session: None }).unwrap();
    assert_eq!(files.does("echo a word >&2; echo done >&0"), "done\n");
    drop(files);
    wait_for("the audit line", || launcher.audit().iter().any(|line| line["verb"] == "files_ended"));
    let ids: Vec<_> = launcher.audit().iter().map(|line| line["request_id"].clone()).collect();
    assert_eq!(ids, [request.to_string(), request.to_string()]);
    let log = || std::fs::read_to_string(launcher.path().join("log")).unwrap();
    wait_for("what it said", || log().contains("process says: a word"));
    let said = log();
    let line = said.lines().find(|line| line.contains("process says: a word")).unwrap();
    assert!(line.contains(&format!("request.id={request}")), "{line}");
}

#[test]
fn one_that_says_too_much_is_not_listened_to_and_goes_on() {
    let Some(launcher) = Launcher::start() else { return };
    let files = Files::open(&launcher, "ada").unwrap();
    let done = files.does(
        "printf 'one \\033[2J word\\n' >&2; i=0; while [ $i -lt 5000 ]; do echo flood >&2 2>/dev/null; i=$((i+1)); done; echo done >&0",
    );
    assert_eq!(done, "done\n");
    let log = || std::fs::read_to_string(launcher.path().join("log")).unwrap();
    wait_for("the word about it", || log().contains("says too much"));
    let said: Vec<String> = log().lines().filter(|line| line.contains("process says:")).map(str::to_owned).collect();
    assert!(said.len() <= 64 && said[0].contains("one \u{fffd}[2J word"), "{said:?}");
    assert_eq!(files.does("echo still there >&0"), "still there\n");
}

#[test]
fn a_task_comes_as_two_packets_and_in_no_other_shape() {
    let Some(launcher) = Launcher::start() else { return };
    let task = format!("{{\"become\":{{\"program\":{:?},\"environment\":[]}}}}", launcher.path().join("files"));
    let status = |packets: &[&[u8]]| {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["as-person", "--name=ada", "--uid=2001", "--gid=2001"])
            .arg(format!("--launcher={}", std::process::id()))
            .stdin(Stdio::from(far))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for packet in packets {
            match send(&near, packet, SendFlags::NOSIGNAL) {
                Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
                Err(error) => panic!("{error}"),
            }
        }
        drop(near);
        child.wait().unwrap().code().unwrap()
    };
    let length = (task.len() as u64).to_be_bytes();
    let huge = u64::MAX.to_be_bytes();
    assert_eq!(status(&[&length, task.as_bytes(), b"exit 7\n"]), 7);
    assert_eq!(status(&[&[&length, task.as_bytes()].concat()]), 125, "the rest of a packet is lost");
    assert_eq!(status(&[&length, &task.as_bytes()[1..]]), 125);
    assert_eq!(status(&[&length[..4], &length[4..], b"{}"]), 125);
    assert_eq!(status(&[&huge, task.as_bytes()]), 125);
    assert_eq!(status(&[&length]), 125);
    assert_eq!(status(&[]), 125);
}
