//! The verbs that answer at once: tokens, job files, SLURM's programs; and who may ask.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use eirene_core::SessionId;
use eirene_core::job_file::BATCH_SCRIPT;
use eirene_core::launcher::{LauncherAnswer, LauncherRequest, MAX_REQUEST_BYTES, SlurmProgram};
use proptest::prelude::*;
use serde_json::Value;

use crate::bench::{Launcher, PROGRAM, deep, hanging, is_gone, sign, slurm, wait_for, write};

#[test]
fn tokens_are_signed_for_people_and_the_service_account_only() {
    let Some(launcher) = Launcher::start() else { return };
    for request in [sign("ada"), LauncherRequest::SignServiceToken {}] {
        let LauncherAnswer::Token { token, expires_in_s: 300 } = launcher.ask(&request) else { panic!() };
        let payload = token.split('.').nth(1).unwrap();
        let claims: Value =
            serde_json::from_slice(&data_encoding::BASE64URL_NOPAD.decode(payload.as_bytes()).unwrap()).unwrap();
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 300);
        let expected = if request == (LauncherRequest::SignServiceToken {}) { "op" } else { "ada" };
        assert_eq!(claims["sun"], expected);
    }
    for system in [
        "root",
        "slurm",
        "nobody",
        "daemon",
        "portal",
        "op",
        "op-again",
        "slurmadm",
        "slurmadm-again",
        "portal-again",
        "dynamic",
        "homeless",
        "rootish",
    ] {
        assert_eq!(launcher.code(&sign(system)), "forbidden_person", "{system}");
        assert_eq!(launcher.code(&write(system, SessionId::generate(), "x")), "forbidden_person", "{system}");
        let cancel = slurm(Some(system), SlurmProgram::Scancel, "17");
        assert_eq!(launcher.code(&cancel), "forbidden_person", "{system}");
    }
    assert_eq!(launcher.code(&sign("unheard-of")), "unknown_person");
    std::fs::write(launcher.path().join("key"), "").unwrap();
    assert_eq!(launcher.code(&sign("ada")), "failed");
}

#[test]
fn a_job_file_is_the_persons_own_and_nobody_elses() {
    let Some(launcher) = Launcher::start() else { return };
    let session = SessionId::generate();
    let directory = launcher.home("ada").join(format!(".eirene/sessions/{session}"));
    let answer = launcher.ask(&write("ada", session, "the secret"));
    assert_eq!(answer, LauncherAnswer::Written { directory: directory.display().to_string() });
    let file = std::fs::metadata(directory.join("job.json")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (2001, 2001, 0o600));
    let folder = std::fs::metadata(&directory).unwrap();
    assert_eq!((folder.uid(), folder.mode() & 0o7777), (2001, 0o700));
    assert_eq!(std::fs::read_to_string(directory.join("job.json")).unwrap(), "the secret");

    let log = LauncherRequest::ReadJobLog { person: "ada".parse().unwrap(), session };
    assert_eq!(launcher.ask(&log), LauncherAnswer::Log { text: String::new() });
    std::fs::write(directory.join("job.log"), b"caf\xe9\n").unwrap();
    chown(directory.join("job.log"), Some(2001), None).unwrap();
    assert_eq!(launcher.ask(&log), LauncherAnswer::Log { text: "caf\u{fffd}\n".to_owned() });

    let remove = LauncherRequest::RemoveJobFile { person: "ada".parse().unwrap(), session };
    assert_eq!(launcher.ask(&remove), LauncherAnswer::Done);
    assert!(!directory.join("job.json").exists() && directory.join("job.log").exists());
}

#[test]
fn a_persons_links_lead_nowhere_the_person_cannot_go() {
    let Some(launcher) = Launcher::start() else { return };
    let session = SessionId::generate();
    // Ada points her folder at Grace's home, and her log at root's file.
    symlink(launcher.home("grace"), launcher.home("ada").join(".eirene")).unwrap();
    assert_eq!(launcher.code(&write("ada", session, "x")), "failed");
    assert_eq!(std::fs::read_dir(launcher.home("grace")).unwrap().count(), 0);
    std::fs::remove_file(launcher.home("ada").join(".eirene")).unwrap();

    launcher.ask(&write("ada", session, "x"));
    let directory = launcher.home("ada").join(format!(".eirene/sessions/{session}"));
    symlink(launcher.path().join("key"), directory.join("job.log")).unwrap();
    let log = LauncherRequest::ReadJobLog { person: "ada".parse().unwrap(), session };
    assert_eq!(launcher.code(&log), "failed");
    std::fs::remove_file(directory.join("job.log")).unwrap();
    std::fs::write(directory.join("job.log"), "root's").unwrap();
    std::fs::set_permissions(directory.join("job.log"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(launcher.code(&log), "failed", "the person may not read root's file");

    std::fs::set_permissions(launcher.home("ada"), Permissions::from_mode(0o500)).unwrap();
    std::fs::remove_dir_all(launcher.home("ada").join(".eirene")).unwrap();
    assert_eq!(
        launcher.code(&write("ada", session, "x")),
        "failed",
        "the person may not write there, so neither may we"
    );
}

#[test]
fn programs_run_as_the_person_with_nothing_of_the_launcher() {
    let Some(launcher) = Launcher::start() else { return };
    let submit = "--parsable --job-name=eirene-0a --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 --mem=512M --time=5 \
                  --signal=B:USR1@60 --requeue --open-mode=append --chdir=/home/ada --output=/home/ada/log --error=/home/ada/log \
                  --export=ALL";
    let LauncherRequest::RunSlurm { person, program, arguments, .. } = slurm(Some("ada"), SlurmProgram::Sbatch, submit)
    else {
        panic!()
    };
    let environment =
        vec![("EIRENE_AGENT".to_owned(), "/opt/agent".to_owned()), ("PATH".to_owned(), "/bin".to_owned())];
    let request = LauncherRequest::RunSlurm { person, program, arguments, environment, input: BATCH_SCRIPT.to_owned() };
    let LauncherAnswer::Ran { status: 4, stdout, stderr } = launcher.ask(&request) else { panic!() };
    assert_eq!(stderr, "told\n");
    let having =
        |begin: &str| stdout.lines().filter_map(|line| line.strip_prefix(begin)).map(str::trim_end).collect::<Vec<_>>();
    assert_eq!(having("ids "), ["2001 2001 2001 2000"]);
    assert_eq!(having("umask "), ["0022"]);
    assert_eq!(having("directory "), ["/"]);
    assert_eq!(
        having("privileges "),
        ["SigBlk:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000NoNewPrivs:1"]
    );
    assert_eq!(having("descriptors "), ["0 1 2 3"], "the three streams, and the listing itself");
    assert_eq!(having("argument ").join(" "), submit.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(having("input ").join("\n") + "\n", BATCH_SCRIPT);
    let variables = having("variable ");
    let known = ["EIRENE_AGENT", "HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SLURM_CONF", "USER", "_"];
    assert!(variables.iter().all(|line| known.contains(&line.split('=').next().unwrap())), "{variables:?}");
    assert!(variables.contains(&"EIRENE_AGENT=/opt/agent") && variables.contains(&"PATH=/bin"), "{variables:?}");
    assert!(variables.contains(&"SLURM_CONF=/etc/slurm/of-the-test.conf"), "{variables:?}");

    let service = slurm(None, SlurmProgram::Scontrol, "--json ping");
    let LauncherAnswer::Ran { stdout, .. } = launcher.ask(&service) else { panic!() };
    assert!(stdout.starts_with("ids 1900 1900 1900\n"), "{stdout}");
    assert_eq!(launcher.code(&slurm(None, SlurmProgram::Scontrol, "shutdown")), "bad_request");
    assert_eq!(launcher.code(&slurm(None, SlurmProgram::Sacct, "--json")), "bad_request");
    let missing = "--json --allusers --duplicates --name=x --starttime=uts1";
    assert_eq!(launcher.code(&slurm(None, SlurmProgram::Sacct, missing)), "failed", "the program is not there");
}

#[test]
fn every_call_leaves_one_line_and_no_secret() {
    let Some(launcher) = Launcher::start() else { return };
    let session = SessionId::generate();
    let LauncherAnswer::Token { token, .. } = launcher.ask(&sign("ada")) else { panic!() };
    launcher.ask(&write("ada", session, "very secret words"));
    launcher.ask(&slurm(Some("ada"), SlurmProgram::Scancel, "17"));
    let submit = format!("--parsable --output=/home/ada/.eirene/sessions/{session}/job.log");
    launcher.ask(&slurm(Some("ada"), SlurmProgram::Sbatch, &submit));
    launcher.ask(&sign("root"));
    launcher.say(b"{\"verb\":\"sign_token\",\"person\":\"very secret words\"}\n");
    let lines = launcher.audit();
    let told = |line: &Value| {
        [&line["verb"], &line["person"], &line["program"], &line["outcome"]].map(|v| v.as_str().map(str::to_owned))
    };
    let said = |words: [&str; 4]| words.map(|word| (!word.is_empty()).then(|| word.to_owned()));
    assert_eq!(
        lines.iter().map(told).collect::<Vec<_>>(),
        [
            said(["sign_token", "ada", "", "done"]),
            said(["write_job_file", "ada", "", "done"]),
            said(["run_slurm", "ada", "scancel", "done"]),
            said(["run_slurm", "ada", "sbatch", "bad_request"]),
            said(["sign_token", "root", "", "forbidden_person"]),
            said(["unknown", "", "", "bad_request"]),
        ]
    );
    assert_eq!(lines[1]["target"], session.to_string());
    assert_eq!(lines[2]["target"], "17");
    assert_eq!(lines[3]["target"], session.to_string(), "also of what the table refuses");
    assert!(
        lines.iter().all(|line| line["peer"]["uid"] == 0 && line["duration_ms"].is_u64() && line["time"].is_string())
    );
    let log = launcher.path().join("audit.log");
    assert_eq!(std::fs::metadata(&log).unwrap().mode() & 0o7777, 0o600);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("very secret") && !text.contains(&token));

    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    assert_eq!(launcher.code(&sign("ada")), "away", "what cannot be audited is not done");
}

#[test]
fn only_the_peer_may_connect_and_others_are_noted() {
    let Some(launcher) = Launcher::start_for("portal") else { return };
    let socket = std::fs::metadata(launcher.socket()).unwrap();
    assert_eq!((socket.uid(), socket.gid(), socket.mode() & 0o777), (0, 990, 0o660));
    // Root gets through the socket's mode, but is not the peer.
    let before = launcher.audit().len();
    let mut stream = launcher.connect();
    let _ = stream.write_all(b"{\"verb\":\"sign_service_token\"}\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    wait_for("the audit line", || launcher.audit().len() > before);
    let line = launcher.audit().pop().unwrap();
    assert_eq!(
        (&line["verb"], &line["outcome"], &line["peer"]["uid"]),
        (&"connect".into(), &"bad_request".into(), &0.into())
    );

    for (uid, gid, answers) in [(990, 990, true), (2001, 2001, false), (2001, 990, false)] {
        let client = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                      s.sendall(b'{\"verb\":\"sign_service_token\"}\\n')\nprint(s.recv(99).decode())";
        let output = Command::new("python3")
            .args(["-c", client])
            .arg(launcher.socket())
            .uid(uid)
            .gid(gid)
            .current_dir("/")
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).contains("\"token\""), answers, "{uid}:{gid} {output:?}");
    }
}

#[test]
fn too_much_and_too_odd_input_is_refused() {
    let Some(launcher) = Launcher::start() else { return };
    let code = |answer: &LauncherAnswer| match answer {
        LauncherAnswer::Refused { code, .. } => code.clone(),
        other => panic!("{other:?}"),
    };
    for line in [
        "",
        "null",
        "[]",
        "{}",
        "\"sign_service_token\"",
        "{\"verb\":\"sign_token\"}",
        "{\"verb\":\"sign_token\",\"person\":\"../root\"}",
        "{\"verb\":\"sign_token\",\"person\":\"ada/\"}",
        "{\"verb\":\"sign_token\",\"person\":\"-ada\"}",
        "{\"verb\":\"sign_token\",\"person\":\"ada\\u0000\"}",
        "{\"verb\":\"sign_token\",\"person\":2001}",
        "{\"verb\":\"sign_token\",\"person\":\"ada\",\"uid\":0}",
        "{\"verb\":\"write_job_file\",\"person\":\"ada\",\"session\":\"../../x\",\"content\":\"\"}",
        "{\"verb\":\"run_slurm\",\"person\":null,\"program\":\"sh\",\"arguments\":[]}",
        "{\"verb\":\"run_slurm\",\"person\":null,\"program\":\"/bin/sh\",\"arguments\":[\"-c\",\"id\"]}",
        "{\"verb\":\"shutdown\"}",
    ] {
        let answers = launcher.say(format!("{line}\n").as_bytes());
        assert_eq!(answers.iter().map(code).collect::<Vec<_>>(), ["bad_request"], "{line}");
    }
    assert_eq!(launcher.say(b"{\"verb\":\"sign_serv").iter().map(code).collect::<Vec<_>>(), ["bad_request"]);
    let mut stream = launcher.connect();
    // The launcher may close before all is written.
    let _ = stream.write_all(&vec![b'['; 4 * MAX_REQUEST_BYTES]);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    wait_for("the audit line", || launcher.audit().iter().any(|line| line["reason"] == "the request is too long"));
    let deep = vec![b'['; MAX_REQUEST_BYTES - 2];
    assert_eq!(launcher.say(&[&deep, b"\n".as_slice()].concat()).iter().map(code).collect::<Vec<_>>(), ["bad_request"]);
    assert!(matches!(launcher.ask(&sign("ada")), LauncherAnswer::Token { .. }), "it goes on for the next one");
}

#[test]
fn random_requests_never_become_programs() {
    let Some(launcher) = Launcher::start() else { return };
    let marker = launcher.path().join("ran");
    std::fs::create_dir(&marker).unwrap();
    std::fs::set_permissions(&marker, Permissions::from_mode(0o777)).unwrap();
    for program in ["sbatch", "scancel", "squeue", "sacct", "scontrol", "sinfo"] {
        let path = launcher.path().join("bin").join(program);
        std::fs::write(&path, format!("#!/bin/sh\necho \"$@\" > {}/$$\n", marker.display())).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    let json = "[ -~]{0,60}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let verb = prop::sample::select(vec![
        "sign_token",
        "write_job_file",
        "read_job_log",
        "run_slurm",
        "remove_job_file",
        "open_files",
    ]);
    let program = prop::sample::select(vec!["sbatch", "scancel", "squeue", "sacct", "scontrol", "sinfo", "bash"]);
    let request = (verb, json.clone(), program, prop::collection::vec(json, 0..6)).prop_map(|(verb, text, program, arguments)| {
        let arguments = arguments.join(",");
        let line = format!(
            "{{\"verb\":\"{verb}\",\"person\":\"ada\",\"program\":\"{program}\",\"arguments\":[{arguments}],\"input\":{text}}}\n"
        );
        line.into_bytes()
    });
    let text = "[ -~]{0,60}".prop_map(|text| serde_json::to_string(&text).unwrap());
    let name = prop_oneof![text, "[a-z.]{1,3}".prop_map(|name| format!("{name:?}"))];
    let form = prop::sample::select(vec![
        "\"verb\":\"make_space\",\"root\":R,\"name\":N,\"of\":{\"person\":O}",
        "\"verb\":\"make_space\",\"root\":R,\"name\":N,\"of\":{\"group\":{\"group\":O,\"writable\":true}}",
        "\"verb\":\"retire_space\",\"root\":R,\"name\":N,\"inode\":7,\"id\":O",
        "\"verb\":\"restore_space\",\"root\":R,\"name\":N,\"inode\":7,\"id\":O",
        "\"verb\":\"remove_retired\",\"root\":R,\"inode\":7,\"id\":O",
    ]);
    let root = prop::sample::select(vec!["\"scratch\"", "\"project\"", "\"../etc\"", "\"\""]);
    let space = (form, root, name.clone(), name).prop_map(|(form, root, name, of)| {
        let line = form.replace('R', root).replace('N', &name).replace('O', &of);
        format!("{{{line}}}\n").into_bytes()
    });
    let noise = prop::collection::vec(any::<u8>(), 0..300).prop_map(|mut bytes| {
        bytes.push(b'\n');
        bytes
    });
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    runner
        .run(&prop_oneof![request, space, noise], |bytes| {
            for answer in launcher.say(&bytes) {
                let refused = matches!(answer, LauncherAnswer::Refused { .. });
                // A lone number is a job that may be cancelled.
                let cancelled = bytes.windows(9).any(|window| window == b"\"scancel\"");
                prop_assert!(refused || cancelled, "{answer:?}");
            }
            Ok(())
        })
        .unwrap();
    for root in ["scratch", "project"] {
        let made = std::fs::read_dir(launcher.path().join(root)).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(made.into_iter().all(|name| name == ".eirene-root" || name == ".retired"), "{root}");
    }
    for entry in std::fs::read_dir(&marker).unwrap() {
        let arguments = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(arguments.trim().parse::<u64>().is_ok(), "{arguments}");
    }
}

#[test]
fn it_ends_on_request_and_starts_over_a_stale_socket() {
    let Some(mut launcher) = Launcher::start() else { return };
    let second = Command::new(PROGRAM).arg("--config").arg(launcher.path().join("launcher.toml")).output().unwrap();
    assert!(!second.status.success(), "two launchers on one socket");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another launcher"), "{second:?}");

    launcher.kill();
    assert!(launcher.socket().exists(), "a killed launcher leaves its socket");
    launcher.process = Launcher::spawn(launcher.path());
    launcher.wait_until_ready();
    assert!(matches!(launcher.ask(&sign("ada")), LauncherAnswer::Token { .. }));

    // A call is under way when the end is asked for: it is answered first.
    let go = launcher.path().join("go");
    let slow = format!("#!/bin/sh\nuntil [ -e {} ]; do sleep 0.01; done\necho done\n", go.display());
    std::fs::write(launcher.path().join("bin/scancel"), slow).unwrap();
    let mut stream = launcher.connect();
    let request = serde_json::to_string(&slurm(Some("ada"), SlurmProgram::Scancel, "17")).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let child = format!("/proc/{0}/task/{0}/children", launcher.process.id());
    let busy = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", launcher.process.id())).unwrap();
        tasks
            .flatten()
            .any(|task| std::fs::read_to_string(task.path().join("children")).is_ok_and(|list| !list.is_empty()))
    };
    assert!(Path::new(&child).exists());
    wait_for("the program", busy);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(launcher.process.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    std::fs::write(&go, "").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("done"), "{answer}");
    assert!(launcher.process.wait().unwrap().success());
    assert!(!launcher.socket().exists());
}

#[test]
fn a_child_does_nothing_as_root() {
    let output = Command::new(PROGRAM)
        .args(["as-person", "--name=root", "--uid=0", "--gid=0"])
        .arg(format!("--launcher={}", std::process::id()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_child_whose_launcher_has_gone_does_nothing() {
    let Some(launcher) = Launcher::start() else { return };
    let child = |parent: u32| {
        let mut child = Command::new(PROGRAM)
            .args(["as-person", "--name=ada", "--uid=2001", "--gid=2001"])
            .arg(format!("--launcher={parent}"))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let task =
            format!("{{\"read\":{{\"home\":{:?},\"session\":\"{}\"}}}}", launcher.home("ada"), SessionId::generate());
        // It may have ended already.
        let _ = child.stdin.take().unwrap().write_all(&[&(task.len() as u64).to_be_bytes(), task.as_bytes()].concat());
        child.wait_with_output().unwrap()
    };
    let alone = child(1_000_000_000);
    assert_eq!(alone.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("has gone"), "{alone:?}");
    let accompanied = child(std::process::id());
    assert!(accompanied.status.success(), "{accompanied:?}");
}

#[test]
fn a_program_that_hangs_is_ended_before_the_portal_gives_up() {
    let Some(launcher) = Launcher::start() else { return };
    let said = hanging(&launcher, "scancel");
    let begun = Instant::now();
    assert_eq!(launcher.code(&slurm(Some("ada"), SlurmProgram::Scancel, "17")), "away");
    assert!(!deep() || begun.elapsed() < Duration::from_secs(10), "the portal's adapter waits for ten seconds");
    wait_for("its end", || is_gone(&said));
}

#[test]
fn a_launcher_that_is_killed_takes_its_programs_with_it() {
    let Some(mut launcher) = Launcher::start() else { return };
    let said = hanging(&launcher, "scancel");
    let mut stream = launcher.connect();
    let request = serde_json::to_string(&slurm(Some("ada"), SlurmProgram::Scancel, "17")).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    wait_for("the program", || said.exists());
    assert!(!is_gone(&said));
    launcher.kill();
    wait_for("its end without its launcher", || is_gone(&said));
}

#[test]
fn a_launcher_without_descriptors_waits_between_its_attempts() {
    let Some(mut launcher) = Launcher::start() else { return };
    launcher.kill();
    let log = launcher.path().join("log-of-few");
    launcher.process = Command::new("/bin/sh")
        .args(["-c", "ulimit -n 16; exec \"$0\" --config \"$1\" 2> \"$2\""])
        .args([Path::new(PROGRAM), &launcher.path().join("launcher.toml"), &log])
        .spawn()
        .unwrap();
    launcher.wait_until_ready();
    let failures = || std::fs::read_to_string(&log).unwrap_or_default().matches("could not accept").count();
    let connections: Vec<UnixStream> = (0..20).map(|_| launcher.connect()).collect();
    wait_for("a failure", || failures() > 0);
    let (begun, before) = (Instant::now(), failures());
    wait_for("more of them", || failures() >= before + 5);
    assert!(begun.elapsed() > Duration::from_millis(300), "it spins");
    drop(connections);
    // Until it has seen that all of them are gone, it may have no descriptor for what it is asked.
    wait_for("an answer", || matches!(launcher.ask(&sign("ada")), LauncherAnswer::Token { .. }));
}
