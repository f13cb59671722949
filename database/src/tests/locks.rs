//! A locked, lost or overloaded database: calls wait, and when waiting is over they say that it is unavailable.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};

use super::*;
use crate::DbError;

/// Somebody else who can lock the database; another connection, as another process would have.
async fn somebody_else(test: &TestDb) -> SqliteConnection {
    test.url.parse::<SqliteConnectOptions>().unwrap().connect().await.unwrap()
}

/// Waits for no lock.
fn impatient() -> Limits {
    Limits { busy_timeout: Duration::from_millis(200), max_connections: 1, ..patient() }
}

async fn tell(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::query(sql).execute(connection).await.unwrap();
}

#[tokio::test]
async fn a_write_waits_for_a_locked_file_and_reads_go_on() {
    let test = TestDb::sqlite().await;
    let ada = add_user(&test.db, "ada").await;
    let mut other = somebody_else(&test).await;
    tell(&mut other, "BEGIN EXCLUSIVE").await;

    let statement = tokio::spawn({
        let (db, id) = (test.db.clone(), ada.id);
        async move { db.set_user_role(id, Role::Admin).await }
    });
    let transaction = tokio::spawn({
        let (db, id) = (test.db.clone(), ada.id);
        async move { db.set_user_state(id, UserState::Disabled, &entry()).await }
    });
    let Db::Sqlite(pool) = &test.db else { unreachable!() };
    let both_write = async {
        while (pool.size() as usize) < pool.num_idle() + 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, both_write).await.expect("both have a connection");
    assert_eq!(test.db.user(ada.id).await.unwrap(), Some(ada.clone()));
    assert!(!statement.is_finished() && !transaction.is_finished(), "a write did not wait");

    tell(&mut other, "COMMIT").await;
    assert!(statement.await.unwrap().unwrap());
    assert!(transaction.await.unwrap().unwrap());
    let now = test.db.user(ada.id).await.unwrap().unwrap();
    assert_eq!((now.role, now.state), (Role::Admin, UserState::Disabled));
    test.finish().await;
}

#[tokio::test]
async fn a_file_that_stays_locked_is_unavailable_and_comes_back() {
    let test = TestDb::sqlite().await;
    let ada = add_user(&test.db, "ada").await;
    let db = test.again(&impatient()).await;
    let mut other = somebody_else(&test).await;
    tell(&mut other, "BEGIN IMMEDIATE").await;
    let statement = db.set_user_role(ada.id, Role::Admin).await;
    assert!(matches!(statement, Err(DbError::Unavailable(_))), "{statement:?}");
    let transaction = db.replace_password(ada.id, "another", None, &entry()).await;
    assert!(matches!(transaction, Err(DbError::Unavailable(_))), "{transaction:?}");
    let migration = Db::open("sqlite::memory:").await.unwrap().migrate().await;
    assert!(migration.is_ok(), "another database is not concerned");
    tell(&mut other, "ROLLBACK").await;
    assert!(db.set_user_role(ada.id, Role::Admin).await.unwrap());
    db.replace_password(ada.id, "another", None, &entry()).await.unwrap();
    db.close().await;
    test.finish().await;
}

#[tokio::test]
async fn a_locked_table_of_postgres_is_unavailable_and_comes_back() {
    let test = TestDb::postgres().await;
    let ada = add_user(&test.db, "ada").await;
    let db = test.again(&impatient()).await;
    let Db::Postgres(pool) = &test.db else { unreachable!() };
    let mut other = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE users IN ACCESS EXCLUSIVE MODE").execute(&mut *other).await.unwrap();
    let read = db.user(ada.id).await;
    assert!(matches!(read, Err(DbError::Unavailable(_))), "{read:?}");
    let transaction = db.set_user_state(ada.id, UserState::Disabled, &entry()).await;
    assert!(matches!(transaction, Err(DbError::Unavailable(_))), "{transaction:?}");
    other.rollback().await.unwrap();
    assert_eq!(db.user(ada.id).await.unwrap(), Some(ada));
    db.close().await;
    test.finish().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("postgres://eirene@localhost/eirene?host={}", folder.path().display());
    let limits = Limits { acquire_timeout: Duration::from_millis(200), ..impatient() };
    let opened = Db::open_with(&url, &limits).await;
    assert!(matches!(opened, Err(DbError::Unavailable(_))), "{opened:?}");
    let no_folder = format!("sqlite:{}/missing/eirene.db", folder.path().display());
    let opened = Db::open(&no_folder).await;
    assert!(matches!(opened, Err(DbError::Unavailable(_))), "{opened:?}");
}

#[tokio::test]
async fn a_connection_cut_by_the_server_is_unavailable_and_replaced() {
    let test = TestDb::postgres().await;
    let db = test.again(&impatient()).await;
    let Db::Postgres(pool) = &db else { unreachable!() };
    let mut tx = pool.begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    let Db::Postgres(others) = &test.db else { unreachable!() };
    let cut = sqlx::query("SELECT pg_terminate_backend($1, 10000)").bind(pid).execute(others).await;
    cut.unwrap();
    let error = sqlx::query("SELECT 1").execute(&mut *tx).await.expect_err("the connection was cut");
    assert!(matches!(DbError::from(error), DbError::Unavailable(_)));
    drop(tx);
    db.ping().await.unwrap();
    db.close().await;
    test.finish().await;
}

on_both! {
    async fn an_exhausted_pool_is_unavailable(db) {
        // The name of the database is all that is needed of it.
        let url = match db {
            Db::Sqlite(pool) => format!("sqlite:{}", pool.connect_options().get_filename().display()),
            Db::Postgres(pool) => {
                let name = pool.connect_options().get_database().unwrap().to_owned();
                let server = postgres_url();
                let (address, options) = server.split_once('?').unwrap();
                format!("{}/{name}?{options}", address.rsplit_once('/').unwrap().0)
            }
        };
        // The first connection has as long as the call that gets none.
        let limits = Limits { acquire_timeout: Duration::from_secs(3), ..impatient() };
        let small = Db::open_with(&url, &limits).await.unwrap();
        on_db!(&small, pool => {
            let held = pool.acquire().await.unwrap();
            assert!(matches!(small.ping().await, Err(DbError::Unavailable(_))));
            drop(held);
        });
        small.close().await;
        assert!(matches!(small.ping().await, Err(DbError::Unavailable(_))), "a closed one too");
    }

    async fn many_writers_queue_up_and_none_fails(db) {
        let ada = add_user(db, "ada").await;
        let writers: Vec<_> = (0..32)
            .map(|n| {
                let (db, ada) = (db.clone(), ada.clone());
                tokio::spawn(async move {
                    let line = entry();
                    let start = Start { most_live: Some(20), audit: Some(&line), ..Start::default() };
                    for m in 0..5 {
                        match n % 5 {
                            0 => db.replace_password(ada.id, "another", None, &entry()).await.map(drop),
                            1 => db.set_user_state(ada.id, UserState::Disabled, &entry()).await.map(drop),
                            2 => db.insert_session(&session(&ada), start).await.map(drop),
                            3 => {
                                let login = login(&ada);
                                let cookie = hash(&format!("{n} {m} ends"));
                                db.insert_login(0, &login, &cookie, &entry()).await.unwrap();
                                db.delete_login(login.id, &entry()).await.map(drop)
                            }
                            _ => db.insert_login(0, &login(&ada), &hash(&format!("{n} {m}")), &entry()).await.map(drop),
                        }
                        .unwrap_or_else(|error| panic!("{error:?}"));
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    }
}
