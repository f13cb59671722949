//! Looks at the storage's servers: newest first, of one role, bounded by number and by age.

use super::*;
use crate::StorageLook;

fn look(second: i64, servers: Option<&str>, users: Option<&str>) -> StorageLook {
    StorageLook { at: at(second), servers: servers.map(ToOwned::to_owned), users: users.map(ToOwned::to_owned) }
}

on_both! {
    async fn looks_come_back_by_role_and_newest_first_whatever_is_in_them(db) {
        let looks = [look(100, Some("{}"), None), look(160, None, Some("'; DROP TABLE users; --")), look(220, None, None)];
        for look in &looks {
            db.put_storage_look("storage", look).await.unwrap();
        }
        let other = look(160, Some("[1]"), None);
        db.put_storage_look("metadata", &other).await.unwrap();
        let [first, second, third] = looks;
        let read = async |role: &str, since, until, most| db.storage_looks(role, at(since), at(until), most).await.unwrap();
        assert_eq!(read("storage", 100, 220, 10).await, [third.clone(), second.clone(), first]);
        assert_eq!(read("storage", 101, 220, 10).await, [third.clone(), second.clone()]);
        assert_eq!(read("storage", 0, 219, 1).await, [second]);
        assert_eq!(read("metadata", 0, 1000, 10).await, [other]);
        assert_eq!(read("management", 0, 1000, 10).await, []);
    }

    async fn a_look_that_two_write_is_written_once(db) {
        let one = look(100, Some("1"), None);
        for written in [&one, &look(100, Some("2"), None)] {
            db.put_storage_look("storage", written).await.unwrap();
        }
        assert_eq!(db.storage_looks("storage", at(0), at(200), 10).await.unwrap(), [one]);
    }

    async fn what_is_old_goes_and_so_does_what_has_not_been_yet(db) {
        for second in [100, 200, 300, 90_000] {
            db.put_storage_look("storage", &look(second, None, Some("1"))).await.unwrap();
            db.put_storage_look("metadata", &look(second, Some("1"), None)).await.unwrap();
        }
        assert_eq!(db.prune_storage_history(at(100), at(90_000)).await.unwrap(), 0);
        assert_eq!(db.prune_storage_history(at(200), at(400)).await.unwrap(), 4);
        for role in ["metadata", "storage"] {
            let kept = db.storage_looks(role, at(0), at(100_000), 10).await.unwrap();
            assert_eq!(kept.iter().map(|look| look.at).collect::<Vec<_>>(), [at(300), at(200)], "{role}");
        }
    }
}
