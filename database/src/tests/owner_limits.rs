//! Limits of owners: rows that read back, one for each owner and pool.

use eirene_core::space::{LimitedOwner, OwnerLimit};
use eirene_core::storage::{Bytes, PoolId, QuotaId};

use super::*;

on_both! {
    async fn what_owners_are_limited_to_reads_back_and_is_one_row_for_each_pool(db) {
        let ada = add_user(db, "ada").await;
        let of_ada = OwnerLimit {
            owner: LimitedOwner::Person(ada.id),
            id: QuotaId::User(2001),
            pool: PoolId(1),
            bytes: Bytes(5),
            judged_by: String::new(),
        };
        let of_group = OwnerLimit {
            owner: LimitedOwner::Group("physics".parse().unwrap()),
            id: QuotaId::Group(2001),
            judged_by: "7:present:9".into(),
            ..of_ada.clone()
        };
        let elsewhere = OwnerLimit { pool: PoolId(2), ..of_ada.clone() };
        for limit in [&of_ada, &of_group, &elsewhere] {
            db.put_owner_limit(limit).await.unwrap();
        }
        assert_eq!(db.owner_limits().await.unwrap(), [of_group.clone(), of_ada.clone(), elsewhere.clone()]);
        let more = OwnerLimit { bytes: Bytes(6), judged_by: "1".into(), ..of_ada.clone() };
        db.put_owner_limit(&more).await.unwrap();
        assert_eq!(db.owner_limit(of_ada.id, of_ada.pool).await.unwrap(), Some(more));
        assert_eq!(db.owner_limit(of_ada.id, PoolId(3)).await.unwrap(), None);
        db.forget_owner_limit(of_ada.id, of_ada.pool).await.unwrap();
        assert_eq!(db.owner_limits().await.unwrap(), [of_group, elsewhere]);
    }
}
