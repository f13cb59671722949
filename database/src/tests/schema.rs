//! Both engines have the same schema, and the migrations lead there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::DbError;

const SQLITE_COLUMNS: &str = "SELECT m.name || '.' || c.name || ' ' || UPPER(c.type)
        || CASE WHEN c.\"notnull\" = 1 OR c.pk > 0 THEN ' NOT NULL' ELSE '' END
    FROM sqlite_master AS m, pragma_table_info(m.name) AS c
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name <> '_sqlx_migrations'";
const POSTGRES_COLUMNS: &str = "SELECT table_name || '.' || column_name || ' ' || UPPER(data_type)
        || CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END
    FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name <> '_sqlx_migrations'";
const SQLITE_INDEXES: &str = "SELECT m.name || ' ' || i.name || CASE i.\"unique\" WHEN 1 THEN ' UNIQUE' ELSE '' END
    FROM sqlite_master AS m, pragma_index_list(m.name) AS i
    WHERE m.type = 'table' AND i.name LIKE 'idx_%'";
const POSTGRES_INDEXES: &str = "SELECT tablename || ' ' || indexname
        || CASE WHEN indexdef LIKE 'CREATE UNIQUE%' THEN ' UNIQUE' ELSE '' END
    FROM pg_indexes WHERE schemaname = 'public' AND indexname LIKE 'idx_%'";
const SQLITE_LONE_FOREIGN_KEYS: &str = "SELECT m.name || '.' || f.\"from\"
    FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f
    WHERE m.type = 'table' AND NOT EXISTS (
        SELECT 1 FROM pragma_index_list(m.name) AS i, pragma_index_info(i.name) AS c
        WHERE c.seqno = 0 AND c.name = f.\"from\")";

async fn lines(db: &Db, sqlite: &'static str, postgres: &'static str) -> BTreeSet<String> {
    let lines: Vec<String> = match db {
        Db::Sqlite(pool) => sqlx::query_scalar(sqlite).fetch_all(pool).await.unwrap(),
        Db::Postgres(pool) => sqlx::query_scalar(postgres).fetch_all(pool).await.unwrap(),
    };
    // SQLite's key that counts upward has to be called so there.
    lines.into_iter().map(|line| line.replace(" INTEGER", " BIGINT")).collect()
}

#[tokio::test]
async fn tables_columns_and_indexes_are_the_same_on_both_engines() {
    let (sqlite, postgres) = (TestDb::sqlite().await, TestDb::postgres().await);
    for (a, b) in [(SQLITE_COLUMNS, POSTGRES_COLUMNS), (SQLITE_INDEXES, POSTGRES_INDEXES)] {
        let (a, b) = (lines(&sqlite.db, a, b).await, lines(&postgres.db, a, b).await);
        assert!(a.len() > 15, "{a:?}");
        let differ: Vec<&String> = a.symmetric_difference(&b).collect();
        assert!(differ.is_empty(), "{differ:#?}");
    }
    sqlite.finish().await;
    postgres.finish().await;
}

#[tokio::test]
async fn every_foreign_key_has_an_index() {
    let test = TestDb::sqlite().await;
    assert_eq!(lines(&test.db, SQLITE_LONE_FOREIGN_KEYS, "").await, BTreeSet::new());
    test.finish().await;
}

#[test]
fn both_folders_hold_the_same_migrations() {
    let names = |engine: &str| -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations").join(engine);
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let sqlite = names("sqlite");
    assert_eq!(sqlite, names("postgres"));
    for (place, name) in sqlite.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}_", place + 1)), "numbers have a gap before {name}");
    }
    assert_eq!(Db::newest_schema_version(), i64::try_from(sqlite.len()).unwrap());
}

on_both! {
    async fn migrating_again_changes_nothing(db) {
        let ada = add_user(db, "ada").await;
        db.migrate().await.unwrap();
        assert_eq!(db.schema_version().await.unwrap(), Some(Db::newest_schema_version()));
        assert_eq!(db.user(ada.id).await.unwrap(), Some(ada));
        db.ping().await.unwrap();
    }

    async fn a_schema_from_the_future_is_refused(db) {
        meddle(db, "UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1").await.unwrap();
        assert!(matches!(db.migrate().await, Err(DbError::Other(_))));
        assert_eq!(db.schema_version().await.unwrap(), Some(9999));
    }
}

#[tokio::test]
async fn the_sqlite_file_is_private_even_when_it_was_not() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eirene.db");
    let url = format!("sqlite:{}", path.display());
    let db = Db::open(&url).await.unwrap();
    db.migrate().await.unwrap();
    for ending in ["", "-wal", "-shm"] {
        let mut name = path.clone().into_os_string();
        name.push(ending);
        assert_eq!(mode(Path::new(&name)), 0o600, "{name:?}");
    }
    db.close().await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    Db::open(&url).await.unwrap().close().await;
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn addresses_of_other_kinds_are_refused() {
    for url in ["", "mysql://localhost/x", "/var/lib/eirene.db", "sqlite"] {
        assert!(matches!(Db::open(url).await, Err(DbError::Other(_))), "{url}");
    }
}

#[tokio::test]
async fn a_database_in_memory_keeps_what_it_is_told() {
    let db = Db::open("sqlite::memory:").await.unwrap();
    db.migrate().await.unwrap();
    let ada = add_user(&db, "ada").await;
    db.set_user_state(ada.id, eirene_core::UserState::Disabled, &entry()).await.unwrap();
    assert_eq!(db.user(ada.id).await.unwrap().unwrap().state, eirene_core::UserState::Disabled);
}
