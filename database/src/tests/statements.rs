//! Every statement is understood by the engines it is for, with the schema as it is.

use std::fs;
use std::path::Path;

use sqlx::{Executor as _, SqlSafeStr as _};

use super::*;

/// The statements of each file that has a `statements!` block.
const PORTABLE: &[(&str, &[&str])] = &[
    ("adopted_jobs.rs", crate::adopted_jobs::STATEMENTS),
    ("alerts.rs", crate::alerts::STATEMENTS),
    ("app_access.rs", crate::app_access::STATEMENTS),
    ("audit.rs", crate::audit::STATEMENTS),
    ("credentials.rs", crate::credentials::STATEMENTS),
    ("db.rs", crate::db::STATEMENTS),
    ("events.rs", crate::events::STATEMENTS),
    ("expiry.rs", crate::expiry::STATEMENTS),
    ("images.rs", crate::images::STATEMENTS),
    ("job_usage.rs", crate::job_usage::STATEMENTS),
    ("logins.rs", crate::logins::STATEMENTS),
    ("node_confinement.rs", crate::node_confinement::STATEMENTS),
    ("node_history.rs", crate::node_history::STATEMENTS),
    ("old_files.rs", crate::old_files::STATEMENTS),
    ("operations.rs", crate::operations::STATEMENTS),
    ("owner_limits.rs", crate::owner_limits::STATEMENTS),
    ("sessions.rs", crate::sessions::STATEMENTS),
    ("space_policy.rs", crate::space_policy::STATEMENTS),
    ("space_usage.rs", crate::space_usage::STATEMENTS),
    ("spaces.rs", crate::spaces::STATEMENTS),
    ("storage_history.rs", crate::storage_history::STATEMENTS),
    ("tokens.rs", crate::tokens::STATEMENTS),
    ("uploads.rs", crate::uploads::STATEMENTS),
    ("users.rs", crate::users::STATEMENTS),
];

/// Files whose statements are for one engine.
const DIALECTS: [&str; 2] = ["backup.rs", "dialect.rs"];

async fn prepare(db: &Db, sql: &'static str) -> Result<(), sqlx::Error> {
    on_db!(db, pool => {
        let mut connection = pool.acquire().await?;
        (&mut *connection).prepare(sql.into_sql_str()).await.map(drop)
    })
}

on_both! {
    async fn every_portable_statement_prepares(db) {
        for (file, statements) in PORTABLE {
            assert!(!statements.is_empty(), "{file}");
            for sql in *statements {
                prepare(db, sql).await.unwrap_or_else(|error| panic!("{file}: {error}\n{sql}"));
            }
        }
    }

    async fn a_statement_that_does_not_fit_the_schema_is_noticed(db) {
        assert!(prepare(db, "SELECT no_such_column FROM users").await.is_err());
        assert!(prepare(db, "SELEC 1").await.is_err());
    }
}

#[tokio::test]
async fn every_statement_for_one_engine_prepares_there() {
    let sqlite = TestDb::sqlite().await;
    for sql in crate::dialect::SQLITE_STATEMENTS.iter().chain(crate::backup::SQLITE_STATEMENTS) {
        prepare(&sqlite.db, sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }
    sqlite.finish().await;
    let postgres = TestDb::postgres().await;
    for sql in crate::dialect::POSTGRES_STATEMENTS {
        prepare(&postgres.db, sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }
    postgres.finish().await;
}

/// SQLite does without statistics; PostgreSQL chooses by the size of the tables.
#[tokio::test]
async fn a_page_of_a_list_is_read_from_an_index_of_its_own() {
    use crate::sessions::{
        COUNT_LIVE_RUNS, COUNT_LIVE_SESSIONS, PAGE, PAGE_OF_OWNER, REQUEUED_AS, RUNS, RUNS_OF_OWNER,
    };
    let test = TestDb::sqlite().await;
    let Db::Sqlite(pool) = &test.db else { panic!("this is SQLite") };
    for (sql, index) in [
        (PAGE, "idx_sessions_id_session"),
        (RUNS, "idx_sessions_id_run"),
        (PAGE_OF_OWNER, "idx_sessions_owner_id_id_session"),
        (RUNS_OF_OWNER, "idx_sessions_owner_id_id_run"),
        (REQUEUED_AS, "idx_sessions_requeue_of"),
        (COUNT_LIVE_SESSIONS, "idx_sessions_owner_id_live"),
        (COUNT_LIVE_RUNS, "idx_sessions_owner_id_live"),
    ] {
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(pool).await.unwrap();
        let plan: Vec<String> = plan.into_iter().map(|(_, _, _, step)| step).collect();
        assert!(plan.iter().any(|step| step.contains(&format!("{index} ("))), "{sql}: {plan:#?}");
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "nothing is sorted: {plan:#?}");
    }
    test.finish().await;
}

#[test]
fn no_statement_hides_from_these_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut with_statements = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() || name == "macros.rs" || name == "lib.rs" {
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap();
        for inline in ["query(\"", "query_as(\"", "query_scalar(\"", "raw_sql(", "AssertSqlSafe"] {
            assert!(!text.contains(inline), "{name} has SQL outside of a statements! block: {inline}");
        }
        if text.contains("statements! {") {
            with_statements.push(name);
        } else if text.contains("sqlx::query") {
            assert!(DIALECTS.contains(&name.as_str()), "{name} runs SQL without a statements! block");
        }
    }
    with_statements.sort();
    let listed: Vec<&str> = PORTABLE.iter().map(|(file, _)| *file).collect();
    assert_eq!(with_statements, listed);
}
