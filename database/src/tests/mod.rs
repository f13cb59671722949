//! Tests of the repositories, each on both engines: SQLite in a file of its own, PostgreSQL in a database of its own.

mod access;
mod alerts;
mod audit;
mod backup;
mod credentials;
mod events;
mod file_work;
mod job_usage;
mod locks;
mod node_confinement;
mod node_history;
mod old_files;
mod owner_limits;
mod schema;
mod sessions;
mod spaces;
mod statements;
mod storage_history;
mod users;

use std::time::Duration;

use eirene_core::audit::{AuditEntry, NewAuditEvent};
use eirene_core::secret::{Secret, SecretHash};
use eirene_core::{
    ApiToken, Desired, Login, LoginId, Resources, Role, RunProgram, Scope, Session, SessionId, SessionState, TokenId,
    User, UserId, UserState,
};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

use crate::{Counting, Db, Limits, NewAppLogin, Start};

/// A test that waits longer than this for one thing hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// The line in the audit log of what a test arranges.
fn entry() -> AuditEntry {
    let event = NewAuditEvent {
        actor: "system:test".to_owned(),
        action: "test.arrange",
        target: String::new(),
        outcome: "ok",
        details: serde_json::json!({}),
        address: None,
        request_id: None,
    };
    AuditEntry::new(event, at(0))
}

/// Runs each test body on both engines.
macro_rules! on_both {
    ($(async fn $name:ident($db:ident) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn run($db: &Db) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn sqlite() {
                let test = TestDb::sqlite().await;
                run(&test.db).await;
                test.finish().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn postgres() {
                let test = TestDb::postgres().await;
                run(&test.db).await;
                test.finish().await;
            }
        }
    )*};
}
use on_both;

/// Limits for calls that have to succeed on a busy machine, too.
fn patient() -> Limits {
    Limits { busy_timeout: PATIENCE, acquire_timeout: PATIENCE, ..Limits::default() }
}

/// A migrated database that nobody else uses.
struct TestDb {
    db: Db,
    url: String,
    /// Holds the file, on SQLite.
    folder: Option<TempDir>,
    /// Where to drop the database and its name, on PostgreSQL.
    server: Option<(String, String)>,
}

impl TestDb {
    async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("eirene.db").display());
        Self::open(url, Some(folder), None).await
    }

    async fn postgres() -> Self {
        let server = postgres_url();
        let name = format!("test_{}", SessionId::generate());
        let mut connection = PgConnection::connect(&server).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let (address, options) = server.split_once('?').unwrap_or((&server, ""));
        let (host, _) = address.rsplit_once('/').unwrap();
        let url = format!("{host}/{name}?{options}");
        Self::open(url, None, Some((server, name))).await
    }

    async fn open(url: String, folder: Option<TempDir>, server: Option<(String, String)>) -> Self {
        let db = Db::open_with(&url, &patient()).await.unwrap();
        assert_eq!(db.schema_version().await.unwrap(), None);
        db.migrate().await.unwrap();
        Self { db, url, folder, server }
    }

    /// The same database once more.
    async fn again(&self, limits: &Limits) -> Db {
        Db::open_with(&self.url, limits).await.unwrap()
    }

    /// Removes the database. After a failed test a PostgreSQL database stays until the throwaway server goes.
    async fn finish(self) {
        self.db.close().await;
        drop(self.folder);
        if let Some((server, name)) = self.server {
            let mut connection = PgConnection::connect(&server).await.unwrap();
            sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
                .execute(&mut connection)
                .await
                .unwrap();
            connection.close().await.unwrap();
        }
    }
}

fn postgres_url() -> String {
    std::env::var("EIRENE_TEST_POSTGRES_URL")
        .expect("no PostgreSQL server: run `database/tests/with-postgres cargo nextest run -p eirene-database`")
}

/// Seconds after a fixed moment.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn hash(text: &str) -> SecretHash {
    Secret::from_text(text).hash()
}

fn user(name: &str) -> User {
    User {
        id: UserId::generate(),
        username: name.parse().unwrap(),
        role: Role::Researcher,
        state: UserState::Active,
        uid: Some(10_001),
        created_at: at(0),
        access_epoch: 0,
    }
}

/// A user who is there.
async fn add_user(db: &Db, name: &str) -> User {
    let user = user(name);
    db.insert_user(&user, "$argon2id$…", &entry()).await.unwrap();
    user
}

/// At this second, whenever a log-in was used last.
fn counting(second: i64) -> Counting {
    Counting { now: at(second), used_after: Timestamp::MIN }
}

fn login(user: &User) -> Login {
    Login {
        id: LoginId::generate(),
        user: user.id,
        created_at: at(0),
        last_seen_at: at(0),
        expires_at: at(1000),
        address: Some("2001:db8::1".to_owned()),
        user_agent: Some("Mozilla/5.0 (Übung)".to_owned()),
    }
}

fn app_login(session: SessionId, user: UserId, login: LoginId, expires_at: Timestamp) -> NewAppLogin {
    NewAppLogin { session, user, login, expires_at }
}

fn token(user: &User, expires_at: Option<Timestamp>) -> ApiToken {
    ApiToken {
        id: TokenId::generate(),
        user: user.id,
        name: "laptop'; DROP TABLE users; --".to_owned(),
        scopes: vec![Scope::Read, Scope::SessionsConnect],
        created_at: at(0),
        expires_at,
        last_used_at: None,
    }
}

fn session(owner: &User) -> Session {
    let id = SessionId::generate();
    Session {
        id,
        owner: owner.id,
        owner_name: owner.username.clone(),
        owner_uid: 10_001,
        name: "Übung 3: <b>'; $(x)".parse().unwrap(),
        app: "jupyterlab".parse().unwrap(),
        program: None,
        requeue_of: None,
        exit_status: None,
        scratch_state: None,
        scratch: None,
        image: "jupyter".parse().unwrap(),
        image_path: "/shared/images/jupyter.sif".to_owned(),
        project: None,
        resources: Resources {
            partition: None,
            nodes: 1,
            cpus: 2,
            memory_mib: 2048,
            gpus: 0,
            gpu_type: None,
            walltime_min: 60,
        },
        desired: Desired::Running,
        state: SessionState::Queued,
        undetermined: false,
        reason: None,
        marker: format!("eirene-{id}"),
        submit_begun_at: None,
        job: None,
        restart_count: 0,
        nodes: Vec::new(),
        start_estimate: None,
        created_at: at(0),
        started_at: None,
        ends_at: None,
        ended_at: None,
        version: 1,
    }
}

/// A run.
fn a_run(owner: &User) -> Session {
    let program = RunProgram {
        file: "Übung 3/'; $(x).py".to_owned(),
        arguments: vec!["--lr".to_owned(), "a\nb \"c\"".to_owned()],
        ranks: Some(8),
        preflight: false,
    };
    let scratch = r#"{"kind":"node","stage_in":[{"from":"home:Übung 3/'; $(x)","to":"in"}],"stage_out":[{"from":"","to":"home:x"}]}"#;
    let scratch = Some(serde_json::from_str(scratch).unwrap());
    Session { app: "run".parse().unwrap(), program: Some(program), scratch, ..session(owner) }
}

/// A session that is there.
async fn add_session(db: &Db, owner: &User) -> Session {
    let session = session(owner);
    db.insert_session(&session, Start::default()).await.unwrap();
    session
}

/// Runs SQL that the repositories do not have, to bring about what they should never see.
async fn meddle(db: &Db, sql: &'static str) -> Result<u64, sqlx::Error> {
    on_db!(db, pool => sqlx::query(sql).execute(pool).await.map(|done| done.rows_affected()))
}
