//! Who is let in, by which credential, and who stays out.

use eirene_core::scheduler::JobState;
use eirene_core::{Clock as _, Role, SessionId};
use eirene_services::agents::NoTunnel;
use eirene_services::cluster::Snapshot;
use eirene_services::testing::snapshot;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[tokio::test]
async fn an_agent_comes_in_says_ready_and_its_app_is_reached() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    assert_eq!(agent.told().await, Some(FromPortal::SendLog { offset: 0 }));
    door.until_state(SessionState::Starting).await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    let mut stream = door.test.app.tunnels.open_app(door.session.id).await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut app = agent.apps.recv().await.unwrap();
    let mut bytes = [0; 4];
    app.read_exact(&mut bytes).await.unwrap();
    app.write_all(&bytes).await.unwrap();
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"ping");
    let nobody = door.test.app.tunnels.open_app(SessionId::generate()).await;
    assert!(matches!(nobody, Err(NoTunnel)));
}

#[tokio::test]
async fn a_secret_may_be_exchanged_again_until_the_agent_has_confirmed() {
    let door = Door::open().await;
    let (lost, first) = door.introduce(&door.hello()).await.unwrap();
    drop(lost);
    let (mut io, second) = door.introduce(&door.hello()).await.unwrap();
    assert_ne!(first, second);
    handshake::confirm(&mut io).await.unwrap();
    let _agent = Agent::start(io).await;
    assert_eq!(door.refusal(|_| {}).await, ("unknown".into(), false), "the secret is void");
    let stale = first.unwrap();
    assert_eq!(door.refusal(|hello| hello.credential = Credential::TunnelKey(stale)).await.0, "unknown");
}

#[tokio::test]
async fn a_tunnel_key_opens_the_door_again_and_the_newest_connection_counts() {
    let door = Door::open().await;
    let (old, key) = door.agent().await;
    let again = Hello { credential: Credential::TunnelKey(key), ..door.hello() };
    let (mut io, given) = door.introduce(&again).await.unwrap();
    assert_eq!(given, None);
    handshake::confirm(&mut io).await.unwrap();
    let mut new = Agent::start(io).await;
    tokio::time::timeout(PATIENCE, old.moving).await.expect("the old one is closed").unwrap();
    let _stream = door.test.app.tunnels.open_app(door.session.id).await.unwrap();
    assert!(new.apps.recv().await.is_some());
}

#[tokio::test]
async fn a_key_whose_confirmation_was_lost_still_opens() {
    let door = Door::open().await;
    let (io, key) = door.introduce(&door.hello()).await.unwrap();
    drop(io);
    let again = Hello { credential: Credential::TunnelKey(key.unwrap()), ..door.hello() };
    let (mut io, _) = door.introduce(&again).await.unwrap();
    handshake::confirm(&mut io).await.unwrap();
    let _agent = Agent::start(io).await;
    door.until("connected", async || door.test.app.tunnels.is_live(door.session.id)).await;
}

#[tokio::test]
async fn who_does_not_belong_there_stays_out() {
    let door = Door::open().await;
    let refused = |code: &str, permanent| (code.to_owned(), permanent);
    let other = Secret::generate().expose().to_owned();
    // Without a credential that fits, every hello gets the same answer: nobody learns which sessions exist.
    for session in [door.session.id, SessionId::generate()] {
        for credential in [Credential::JobSecret(other.clone()), Credential::TunnelKey(other.clone())] {
            for (restart_count, uid, job) in
                [(0, 2001, 101), (1, 2001, 101), (u32::MAX, 0, 0), (0, 2002, 1), (0, 2001, 999)]
            {
                let answer = door.refusal(|h| {
                    (h.session, h.credential, h.restart_count) = (session, credential.clone(), restart_count);
                    (h.uid, h.slurm_job_id) = (uid, job);
                });
                assert_eq!(answer.await, refused("unknown", false), "{session} {restart_count} {uid} {job}");
            }
        }
    }
    assert_eq!(door.refusal(|h| h.session = SessionId::generate()).await, refused("unknown", false));
    let as_key = door.secret.expose().to_owned();
    assert_eq!(door.refusal(|h| h.credential = Credential::TunnelKey(as_key)).await, refused("unknown", false));
    assert_eq!(door.refusal(|h| h.uid = 2002).await, refused("other_user", true));
    assert_eq!(door.refusal(|h| h.version = 99).await, refused("wrong_version", false));
    assert_eq!(door.refusal(|h| h.restart_count = 1).await, refused("new_restart", false));
    let row = door.row().await;
    assert_eq!((row.state, row.version), (SessionState::Queued, 1), "nothing was changed by any of them");
    assert!(!door.test.app.tunnels.is_live(door.session.id));
}

#[tokio::test]
async fn nobody_is_the_agent_of_a_job_that_is_still_pending() {
    let door = Door::open().await;
    let app = &door.test.app;
    let at = |seconds: i64, state: JobState| {
        let asked_at = door.test.clock.now() + jiff::SignedDuration::from_secs(seconds);
        let job = eirene_services::testing::job(&door.session, 7, state);
        app.cluster.publish(Snapshot { asked_at: Some(asked_at), ..snapshot(vec![job]) });
    };
    let known = eirene_services::testing::job(&door.session, 7, JobState::Pending).identity;
    app.sessions.change(door.session.id, |session| session.job = Some(known.clone())).await.unwrap();
    let hello = door.hello();
    // What is known is old: it is asked for again, and the answer counts.
    at(-1, JobState::Running);
    let look_again = async |state| {
        app.nudges.poll().notified().await;
        at(0, state);
    };
    let (answer, ()) = tokio::join!(door.introduce(&hello), look_again(JobState::Pending));
    assert_eq!(answer.map(|_| ()), Err(("not_started".into(), false)));
    assert_eq!(door.row().await.state, SessionState::Queued);
    at(-1, JobState::Pending);
    let (answer, ()) = tokio::join!(door.introduce(&hello), look_again(JobState::Running));
    assert!(answer.is_ok(), "SLURM has started it since");
    // While SLURM is unreachable, the secret counts.
    app.cluster.publish(Snapshot { reachable: false, ..snapshot(vec![]) });
    assert!(door.introduce(&hello).await.is_ok());
}

/// How many were refused for this reason, by this counter: from the first time it is asked on, and others are refused in this process, too.
fn counted(what: &str, reason: &str) -> u64 {
    let name = format!("eirene_{what}_refused_total{{reason=\"{reason}\"}} ");
    let text = crate::health::counted();
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn who_is_refused_is_counted_by_the_reason() {
    let counted = |reason: &str| counted("agent_connections", reason);
    let (unknown, other_user) = (counted("unknown"), counted("other_user"));
    let door = Door::open().await;
    for _ in 0..3 {
        let forged = Credential::TunnelKey(Secret::generate().expose().to_owned());
        assert_eq!(door.refusal(|hello| hello.credential = forged).await.0, "unknown");
    }
    assert_eq!(door.refusal(|hello| hello.uid = 2002).await.0, "other_user");
    assert!(counted("unknown") >= unknown + 3, "{}", counted("unknown"));
    assert!(counted("other_user") > other_user, "{}", counted("other_user"));
    // A secret that was good, until its agent had a key.
    let (_agent, _) = door.agent().await;
    let unknown = counted("unknown");
    assert_eq!(door.refusal(|_| {}).await, ("unknown".into(), false));
    assert!(counted("unknown") > unknown, "{}", counted("unknown"));
}

#[tokio::test]
async fn a_secret_of_ones_own_opens_no_other_session_and_what_is_said_of_it_is_not_kept() {
    let door = Door::open().await;
    let (app, now) = (&door.test.app, door.test.clock.now());
    app.samples.open().unwrap();
    let says = |node: &str| {
        let batch = format!(r#"{{"n":"{node}","t":{},"c":"none","s":[["cpu_seconds",1]]}}"#, now.as_millisecond());
        FromAgent::Samples { batch }
    };
    let on = async |session: SessionId, node: &str| {
        app.sessions.change(session, |session| session.nodes = vec![node.parse().unwrap()]).await.unwrap();
    };
    // Two whose agents are awaited as ada's is: grace's, and another of ada's.
    let grace = door.test.person("grace", 2002, Role::Researcher).await;
    let (graces, _) = app.sessions.start(&grace, TestApp::wish(), None).await.unwrap();
    let (second, _) = app.sessions.start(&door.ada, TestApp::wish(), None).await.unwrap();
    on(door.session.id, "c1").await;
    on(graces.id, "c2").await;
    let mut hellos = Vec::new();
    for session in [&graces, &second] {
        let secret = Secret::generate();
        app.db.set_job_secret(session.id, 0, &secret.hash()).await.unwrap();
        let credential = Credential::JobSecret(secret.expose().to_owned());
        hellos.push(Hello { session: session.id, uid: session.owner_uid, credential, ..door.hello() });
    }
    let own = hellos[0].clone();

    let unknown = counted("agent_connections", "unknown");
    let mut tried = 0;
    for hello in &hellos {
        for uid in [hello.uid, door.session.owner_uid] {
            let forged = Hello { session: door.session.id, uid, ..hello.clone() };
            let refused = door.introduce(&forged).await.map(|_| ()).expect_err("it is another's session");
            assert_eq!(refused, ("unknown".to_owned(), false));
            tried += 1;
        }
    }
    // One that goes on as if it were in talks to nobody.
    let mut io = door.dial(eirene_tunnel::ALPN).await.unwrap();
    let forged = Hello { session: door.session.id, ..own.clone() };
    let refused = handshake::introduce(&mut io, &forged).await;
    assert!(matches!(refused, Err(HandshakeError::Refused { .. })), "{refused:?}");
    let _ = handshake::confirm(&mut io).await;
    let _ = message::write(&mut io, &says("c1")).await;
    assert_eq!(io.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is put out");
    tried += 1;

    // In by its own door, its key opens no other, and what it says of another's node is refused.
    let (mut io, key) = door.introduce(&own).await.unwrap();
    handshake::confirm(&mut io).await.unwrap();
    let mut agent = Agent::start(io).await;
    let by_key = Hello { session: door.session.id, credential: Credential::TunnelKey(key.unwrap()), ..own.clone() };
    assert_eq!(door.introduce(&by_key).await.map(|_| ()), Err(("unknown".to_owned(), false)));
    tried += 1;
    assert!(counted("agent_connections", "unknown") >= unknown + tried, "each is counted");
    let of_another = counted("samples_batches", "node");
    agent.say(&says("c1")).await;
    agent.say(&says("c2")).await;
    let has = async |session: SessionId| !app.samples.last(session).await.unwrap().is_empty();
    door.until("what it says of its own node is kept", async || has(graces.id).await).await;
    assert!(counted("samples_batches", "node") > of_another);
    assert!(!has(door.session.id).await, "nothing is known of ada's");
    assert!(!app.tunnels.is_live(door.session.id));
    let row = door.row().await;
    assert_eq!(row.state, SessionState::Queued, "her agent has not come");
}

#[tokio::test]
async fn an_agent_of_another_job_an_older_restart_or_an_ended_session_stays_out() {
    let door = Door::open().await;
    let job = eirene_services::testing::job(&door.session, 9, eirene_core::scheduler::JobState::Running).identity;
    door.test.app.sessions.change(door.session.id, |s| s.job = Some(job.clone())).await.unwrap();
    assert_eq!(door.refusal(|_| {}).await, ("other_job".into(), false));
    let next = Secret::generate();
    door.test.app.db.set_job_secret(door.session.id, 1, &next.hash()).await.unwrap();
    assert_eq!(door.refusal(|h| h.slurm_job_id = 9).await, ("unknown".into(), false));
    let with_next = |h: &mut Hello| {
        (h.slurm_job_id, h.restart_count) = (9, 0);
        h.credential = Credential::JobSecret(next.expose().to_owned());
    };
    assert_eq!(door.refusal(with_next).await, ("old_restart".into(), true));
    door.test.app.sessions.change(door.session.id, |s| s.state = SessionState::Ended).await.unwrap();
    let over = |h: &mut Hello| {
        with_next(h);
        h.restart_count = 1;
    };
    assert_eq!(door.refusal(over).await, ("session_over".into(), true));
}

#[tokio::test]
async fn noise_at_the_door_harms_nobody() {
    let door = Door::open().await;
    // No TLS, the wrong protocol, a frame of 4 GiB, nonsense, and a crowd that never says anything.
    let mut plain = TcpStream::connect(door.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut wrong = match door.dial(b"h2").await {
        Ok(io) => io,
        Err(_) => door.dial(eirene_tunnel::ALPN).await.unwrap(),
    };
    let _ = wrong.write_all(&u32::MAX.to_be_bytes()).await;
    let mut long = door.dial(eirene_tunnel::ALPN).await.unwrap();
    long.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
    assert_eq!(long.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is put out");
    let mut nonsense = door.dial(eirene_tunnel::ALPN).await.unwrap();
    nonsense.write_all(b"\0\0\0\x03{x}").await.unwrap();
    assert_eq!(nonsense.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is put out");
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(door.address).await.unwrap());
    }
    let (mut agent, _) = door.agent().await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
}
