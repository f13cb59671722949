//! A backup of a database in use is whole; a restore takes only such a one, and only when nobody is in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteConnectOptions;

use super::*;
use crate::BackupError;

/// A folder with a backup of a database in which there is ada.
struct Backup {
    folder: TempDir,
    file: PathBuf,
    ada: User,
}

impl Backup {
    async fn new() -> Self {
        let test = TestDb::sqlite().await;
        let ada = add_user(&test.db, "ada").await;
        for _ in 0..200 {
            add_session(&test.db, &ada).await;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.db");
        test.db.backup_to(&file).await.unwrap();
        test.finish().await;
        Self { folder, file, ada }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("eirene.db")
    }

    async fn restore(&self) -> Result<i64, BackupError> {
        Db::restore_from(&self.file, &url(&self.target())).await
    }

    /// Changes the backup by SQL.
    async fn alter(&self, sql: &'static str) {
        let options = SqliteConnectOptions::new().filename(&self.file);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn refused_as_no_backup(restored: Result<i64, BackupError>, why: &str) {
    match restored {
        Err(error @ BackupError::NotABackup { .. }) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_under_write_load_restores_and_opens() {
    let test = TestDb::sqlite().await;
    let ada = add_user(&test.db, "ada").await;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (db, ada, stop, written) = (test.db.clone(), ada.clone(), Arc::clone(&stop), Arc::clone(&written));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let session = add_session(&db, &ada).await;
                    let event = json!({"id": session.id.to_string()});
                    db.append_event(Some(session.id), Some(ada.id), "state", &event, at(0)).await.unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let reached = async |count: usize| {
        while written.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    };
    reached(100).await;
    let before = written.load(Ordering::SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.db");
    test.db.backup_to(&file).await.unwrap();
    let after = written.load(Ordering::SeqCst);
    // The writers go on.
    reached(after + 20).await;
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let target = folder.path().join("eirene.db");
    assert_eq!(Db::restore_from(&file, &url(&target)).await.unwrap(), Db::newest_schema_version());
    let restored = Db::open(&url(&target)).await.unwrap();
    restored.migrate().await.unwrap();
    let events = restored.events_after(0, u32::MAX).await.unwrap();
    // One moment of it: all that was finished before, at most what was begun by its end, no event without its session.
    assert!((before..=after + 4).contains(&events.len()), "{before} {} {after}", events.len());
    for event in events {
        assert!(restored.session(event.session.unwrap()).await.unwrap().is_some());
    }
    assert_eq!(restored.user(ada.id).await.unwrap().as_ref(), Some(&ada));
    add_session(&restored, &ada).await;
    restored.close().await;
    test.finish().await;
}

#[tokio::test]
async fn a_backup_never_writes_over_a_file() {
    let test = TestDb::sqlite().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letter");
    fs::write(&file, "dear ada").unwrap();
    let made = test.db.backup_to(&file).await;
    assert!(matches!(made, Err(BackupError::Exists(_))), "{made:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "dear ada");
    let made = test.db.backup_to(&folder.path().join("missing/backup.db")).await;
    assert!(matches!(made, Err(BackupError::File { .. })), "{made:?}");
    test.finish().await;
}

#[tokio::test]
async fn postgres_is_sent_to_its_own_tools() {
    let test = TestDb::postgres().await;
    let folder = tempfile::tempdir().unwrap();
    let made = test.db.backup_to(&folder.path().join("backup")).await;
    assert!(matches!(made, Err(BackupError::UsePostgresTools)), "{made:?}");
    let restored = Db::restore_from(Path::new("backup"), &test.url).await;
    assert!(matches!(restored, Err(BackupError::UsePostgresTools)), "{restored:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    test.finish().await;
}

#[tokio::test]
async fn a_restore_replaces_and_keeps_what_was_there() {
    let backup = Backup::new().await;
    let db = Db::open(&url(&backup.target())).await.unwrap();
    db.migrate().await.unwrap();
    let grace = add_user(&db, "grace").await;
    db.close().await;
    backup.restore().await.unwrap();
    assert_eq!(backup.names(), ["backup.db", "eirene.db", "eirene.db.replaced"]);
    for (file, there, gone) in [("eirene.db", &backup.ada, &grace), ("eirene.db.replaced", &grace, &backup.ada)] {
        let db = Db::open(&url(&backup.folder.path().join(file))).await.unwrap();
        assert_eq!(db.user(there.id).await.unwrap().as_ref(), Some(there));
        assert_eq!(db.user(gone.id).await.unwrap(), None);
        db.close().await;
    }
    backup.restore().await.unwrap();
    let mode = fs::metadata(backup.target()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_database_in_use_is_not_replaced() {
    let backup = Backup::new().await;
    let db = Db::open(&url(&backup.target())).await.unwrap();
    db.migrate().await.unwrap();
    let grace = add_user(&db, "grace").await;
    // Open and idle is in use, too.
    let restored = backup.restore().await;
    assert!(matches!(restored, Err(BackupError::InUse(_))), "{restored:?}");
    assert!(!backup.names().iter().any(|name| name.ends_with(".restoring") || name.ends_with(".replaced")));
    assert_eq!(db.user(grace.id).await.unwrap().as_ref(), Some(&grace));
    add_user(&db, "ada").await;
    db.close().await;
    backup.restore().await.unwrap();
}

#[tokio::test]
async fn what_a_killed_server_left_in_its_log_is_kept_with_the_replaced_file() {
    let backup = Backup::new().await;
    let db = Db::open(&url(&backup.target())).await.unwrap();
    db.migrate().await.unwrap();
    let grace = add_user(&db, "grace").await;
    // The files as a kill -9 leaves them.
    let killed = backup.folder.path().join("killed.db");
    for ending in ["", "-wal"] {
        let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        fs::copy(name(&backup.target()), name(&killed)).unwrap();
    }
    db.close().await;
    Db::restore_from(&backup.file, &url(&killed)).await.unwrap();
    for (file, wanted) in [("killed.db", &backup.ada), ("killed.db.replaced", &grace)] {
        let db = Db::open(&url(&backup.folder.path().join(file))).await.unwrap();
        assert_eq!(db.user(wanted.id).await.unwrap().as_ref(), Some(wanted), "{file}");
        db.close().await;
    }
}

#[tokio::test]
async fn what_is_no_backup_of_ours_is_refused_and_nothing_is_touched() {
    let backup = Backup::new().await;
    fs::write(backup.target(), "untouched").unwrap();
    let good = fs::read(&backup.file).unwrap();

    fs::write(&backup.file, "dear ada, this is no database at all").unwrap();
    refused_as_no_backup(backup.restore().await, "no database of Eirene");
    fs::write(&backup.file, "").unwrap();
    refused_as_no_backup(backup.restore().await, "no database of Eirene");

    // Half of it, and a page in its middle overwritten.
    fs::write(&backup.file, &good[..good.len() / 2]).unwrap();
    refused_as_no_backup(backup.restore().await, "");
    let mut torn = good.clone();
    let middle = torn.len() / 2 / 4096 * 4096;
    torn[middle..middle + 4096].fill(0xa5);
    fs::write(&backup.file, torn).unwrap();
    refused_as_no_backup(backup.restore().await, "damaged");

    for (sql, why) in [
        ("PRAGMA application_id = 1", "no database of Eirene"),
        ("UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1", "schema 9999"),
        ("UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1", "schema 1"),
        ("DELETE FROM _sqlx_migrations", "empty"),
    ] {
        fs::write(&backup.file, &good).unwrap();
        backup.alter(sql).await;
        refused_as_no_backup(backup.restore().await, why);
    }
    fs::write(&backup.file, &good).unwrap();
    let wal = backup.folder.path().join("backup.db-wal");
    fs::write(&wal, "pages").unwrap();
    refused_as_no_backup(backup.restore().await, "in use");
    fs::remove_file(wal).unwrap();

    assert_eq!(backup.names(), ["backup.db", "eirene.db"]);
    assert_eq!(fs::read_to_string(backup.target()).unwrap(), "untouched");
}

#[tokio::test]
async fn a_damaged_target_is_left_to_its_owner() {
    let backup = Backup::new().await;
    fs::write(backup.target(), "this is no database, and perhaps worth something to somebody").unwrap();
    let restored = backup.restore().await;
    assert!(matches!(restored, Err(BackupError::DamagedTarget(_))), "{restored:?}");
    fs::remove_file(backup.target()).unwrap();
    let wal = backup.folder.path().join("eirene.db-wal");
    fs::write(&wal, "pages of another database").unwrap();
    let restored = backup.restore().await;
    assert!(matches!(restored, Err(BackupError::DamagedTarget(_))), "{restored:?}");
    assert_eq!(backup.names(), ["backup.db", "eirene.db-wal"]);
    fs::remove_file(wal).unwrap();
    backup.restore().await.unwrap();
}

#[tokio::test]
async fn a_restore_that_was_cut_off_is_noticed() {
    let backup = Backup::new().await;
    let left = backup.folder.path().join("eirene.db.restoring");
    fs::write(&left, "half").unwrap();
    let restored = backup.restore().await;
    assert!(matches!(restored, Err(BackupError::Unfinished(_))), "{restored:?}");
    assert_eq!(fs::read_to_string(&left).unwrap(), "half", "it may be another restore's");
    fs::remove_file(left).unwrap();
    backup.restore().await.unwrap();
}
