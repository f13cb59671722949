//! How the launcher logs, as its configuration says, and that each call can be found again by what it was made for.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use eirene_core::launcher::{Cause, LauncherAnswer, LauncherCall, LauncherRequest};
use eirene_core::{RequestId, SessionId, SystemClock};
use eirene_launcher::audit::Peer;
use eirene_launcher::verbs::Verbs;
use serde_json::Value;

use crate::bench::{Launcher, PROGRAM};

/// What this thread logs.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The answers to these lines, with what was written to the audit log and to the log, for machines, meanwhile. Nobody needs to be root for that:
/// the person of the calls is one that there is not.
fn answered(directory: &Path, lines: &[String]) -> (Vec<LauncherAnswer>, String, String) {
    let audit = directory.join("audit.log");
    let config = format!(
        "socket = \"{0}/launcher.sock\"\npeer_user = \"portal\"\njwt_key = \"{0}/key\"\nslurm_user = \"slurm\"\n\
         service_account = \"op\"\naudit_log = \"{0}/audit.log\"\n",
        directory.display()
    );
    let verbs = Verbs::new(toml::from_str(&config).unwrap(), Arc::new(SystemClock));
    let text = Text::default();
    let writer = text.clone();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
    let answers = tracing::subscriber::with_default(subscriber, || {
        let peer = Peer { uid: 990, pid: 1 };
        lines.iter().map(|line| verbs.answer(peer, line.as_bytes()).answer).collect()
    });
    let log = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
    (answers, std::fs::read_to_string(audit).unwrap(), log)
}

fn values(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_nobody() -> LauncherRequest {
    LauncherRequest::SignToken { person: "nobody-of-that-name".parse().unwrap() }
}

#[test]
fn a_call_is_logged_and_audited_with_what_it_is_made_for() {
    let directory = tempfile::tempdir().unwrap();
    let (request, session) = (RequestId::generate(), SessionId::generate());
    let line = |request, session| {
        let call = LauncherCall { cause: Cause { request, session }, request: of_nobody() };
        serde_json::to_string(&call).unwrap()
    };
    let lines = [line(Some(request), Some(session)), line(Some(request), None), line(None, None)];
    let (answers, audit, log) = answered(directory.path(), &lines);
    let told: Vec<Value> = [(true, true), (true, false), (false, false)]
        .map(|(of_request, of_session)| {
            let (request, session) = (request.to_string(), session.to_string());
            serde_json::json!([of_request.then_some(request), of_session.then_some(session)])
        })
        .to_vec();
    let audited: Vec<Value> =
        values(&audit).iter().map(|line| serde_json::json!([line["request_id"], line["session_id"]])).collect();
    assert_eq!(audited, told, "{audit}");
    let logged = values(&log);
    let logged: Vec<&Value> = logged.iter().filter(|line| line["message"] == "answered a call").collect();
    let spans: Vec<Value> =
        logged.iter().map(|line| serde_json::json!([line["span"]["request.id"], line["span"]["session.id"]])).collect();
    assert_eq!(spans, told, "{log}");
    assert!(logged.iter().all(|line| line["verb"] == "sign_token"), "{log}");
    // Nothing is decided by it.
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[test]
fn what_is_no_id_is_refused_and_reaches_no_log() {
    let directory = tempfile::tempdir().unwrap();
    let id = RequestId::generate().to_string();
    let long = format!("evil{}", "0".repeat(10_000));
    let hostile = [
        format!("\"{id}\\nevil\""),
        format!("\"{}evil\"", &id[..28]),
        "\"\\u001b[2Jevil\"".to_owned(),
        format!("\"{long}\""),
        "{\"evil\":1}".to_owned(),
        format!("[\"{id}\",\"evil\"]"),
    ];
    let lines: Vec<String> = ["request_id", "session_id"]
        .iter()
        .flat_map(|name| {
            hostile.iter().map(move |id| format!("{{\"{name}\":{id},\"verb\":\"sign_token\",\"person\":\"ada\"}}"))
        })
        .collect();
    let (answers, audit, log) = answered(directory.path(), &lines);
    for answer in &answers {
        assert!(matches!(answer, LauncherAnswer::Refused { code, .. } if code == "bad_request"), "{answer:?}");
    }
    let audited = values(&audit);
    assert_eq!(audited.len(), lines.len());
    for line in &audited {
        assert_eq!((&line["verb"], &line["outcome"]), (&"unknown".into(), &"bad_request".into()));
        assert_eq!((&line["request_id"], &line["session_id"]), (&Value::Null, &Value::Null));
    }
    assert!(!format!("{audit}{log}{answers:?}").contains("evil"), "{audit}{log}{answers:?}");
}

#[test]
fn the_whole_launcher_says_it_in_both_logs() {
    let Some(launcher) = Launcher::start() else { return };
    let request = RequestId::generate();
    let cause = Cause { request: Some(request), session: None };
    let call = LauncherCall { cause, request: LauncherRequest::SignServiceToken {} };
    let line = serde_json::to_string(&call).unwrap() + "\n";
    assert!(matches!(launcher.say(line.as_bytes())[..], [LauncherAnswer::Token { .. }]));
    assert!(matches!(launcher.ask(&LauncherRequest::SignServiceToken {}), LauncherAnswer::Token { .. }));
    let ids: Vec<Value> = launcher.audit().iter().map(|line| line["request_id"].clone()).collect();
    assert_eq!(ids, [Value::from(request.to_string()), Value::Null]);
    let log = std::fs::read_to_string(launcher.path().join("log")).unwrap();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("answered a call")).collect();
    let [with, without] = said[..] else { panic!("{log}") };
    assert!(with.contains(&format!("call{{request.id={request}}}")), "{with}");
    assert!(!without.contains("request.id"), "{without}");
}

#[test]
fn the_log_is_written_for_machines_where_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("launcher.toml");
    // It serves nobody that there is, says so, and stops.
    let says = |section: &str| {
        let text = format!(
            "socket = \"{0}/launcher.sock\"\npeer_user = \"nobody-of-that-name\"\njwt_key = \"{0}/key\"\nslurm_user = \"slurm\"\n\
             service_account = \"op\"\naudit_log = \"{0}/audit.log\"\n{section}",
            directory.path().display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let output = Command::new(PROGRAM).arg("--config").arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let plain = says("");
    assert!(plain.contains("the launcher stopped") && !plain.starts_with('{'), "{plain}");
    if !nix::unistd::geteuid().is_root() {
        // A file that is not root's chooses nothing.
        assert!(!says("[log]\nformat = \"json\"\n").starts_with('{'));
        return;
    }
    let lines = says("[log]\nformat = \"json\"\n");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("nobody-of-that-name"), "{line}");
    assert_eq!(says("[log]\nformat = \"json\"\nfilter = \"off\"\n"), "");
    let wrong = says("[log]\nfilter = \"eirene=loud\"\n");
    assert!(wrong.contains("`log.filter` is not understood"), "{wrong}");
}
