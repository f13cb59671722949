//! What a space uses, by whom that is told, and what is kept of it.

use eirene_core::space::UsageSource;
use eirene_core::storage::{Bytes, Doubt, DoubtAbout, Why};

use super::*;
use crate::testing::StorageMood;

#[tokio::test]
async fn usage_comes_from_the_narrowest_source_and_is_never_guessed() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let seen = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!((seen.usage.source, seen.usage.used_bytes), (UsageSource::FileSystem, None));
    assert_eq!((seen.usage.free_bytes, seen.usage.missing), (Some(Bytes(500 * GIB)), Some(Why::NotEnabled)));
    assert_eq!(seen.level, Level::Ok);

    counts_users(&test, 3).await;
    test.storage.state().kind = "beegfs";
    let seen = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!((seen.usage.source, seen.usage.used_bytes), (UsageSource::BeegfsUser, Some(Bytes(3))));

    {
        let mut storage = test.storage.state();
        (storage.kind, storage.person) = ("xfs", Some((8, Limit::At(10))));
    }
    let seen = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!(
        (seen.usage.source, seen.usage.used_bytes, seen.level),
        (UsageSource::UserQuota, Some(Bytes(8)), Level::Warning)
    );
    let physics = add(&test, "physics", group("physics")).await;
    test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
    let groups = test.app.db.usage(physics.id).await.unwrap().unwrap().usage;
    assert_eq!((groups.source, groups.used_bytes), (UsageSource::FileSystem, None), "what a person has is no group's");
    let scratch = add(&test, "scratch-ada", person(ada.user.id, "ada")).await;
    test.app.spaces.look_at(&scratch, &mut QuotaRound::default()).await.unwrap();
    let own = test.app.db.usage(scratch.id).await.unwrap().unwrap();
    assert_eq!((own.usage.source, own.usage.used_bytes), (UsageSource::UserQuota, Some(Bytes(8))));
    assert_eq!((own.usage.limit_bytes, own.level), (Some(Limit::At(Bytes(10))), Level::Warning));
    test.storage.state().person = Some((8, Limit::Unlimited));
    let limited = Space { limit_bytes: Limit::At(Bytes(5)), ..scratch };
    test.app.spaces.look_at(&limited, &mut QuotaRound::default()).await.unwrap();
    let own = test.app.db.usage(limited.id).await.unwrap().unwrap().usage;
    assert_eq!(own.limit_bytes, Some(Limit::Unlimited), "all that is hers is not held against the limit of one space");

    test.storage.state().directory = Some((9, Limit::At(10)));
    let seen = look_home(&test, &ada).await;
    let usage = seen.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes), (UsageSource::ProjectQuota, Some(Bytes(9))));
    assert_eq!(seen.seen.unwrap().level, Level::Warning);
}

#[tokio::test]
async fn what_beegfs_counts_is_not_what_a_space_elsewhere_uses() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    counts_users(&test, 3).await;
    let physics = add(&test, "physics", group("physics")).await;
    for pools in [vec![], vec![1, 2]] {
        test.storage.state().quota_pools = pools;
        for (kind, why) in [("nfs4", Why::NotSupported), ("xfs", Why::NotEnabled)] {
            test.storage.state().kind = kind;
            let home = look_home(&test, &ada).await.seen.unwrap();
            test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
            let groups = test.app.db.usage(physics.id).await.unwrap().unwrap();
            for usage in [home.usage, groups.usage] {
                assert_eq!((usage.source, usage.used_bytes, usage.limit_bytes), (UsageSource::FileSystem, None, None));
                assert_eq!(usage.missing, Some(why), "as where there is no BeeGFS at all: {kind}");
            }
        }
    }
    assert_eq!(test.storage.state().questions, [], "nobody is asked for what would not be used");
    assert_eq!(test.storage.state().entries, Vec::<String>::new());
}

#[tokio::test]
async fn of_several_pools_the_one_the_space_lies_in_counts_and_without_a_word_which_none_does() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    counts_users(&test, 3).await;
    {
        let mut storage = test.storage.state();
        (storage.kind, storage.quota_pools) = ("beegfs", vec![2, 1]);
    }
    let usage = look_home(&test, &ada).await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes), (UsageSource::FileSystem, None));
    assert_eq!(usage.missing, Some(Why::NotSupported), "it does not tell how files are spread");
    test.storage.state().spread_over(2);
    let usage = look_home(&test, &ada).await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes, usage.missing), (UsageSource::BeegfsUser, Some(Bytes(3)), None));
    {
        let mut storage = test.storage.state();
        (storage.quota_pools, storage.pools) = (vec![2, 3], Some(vec![2, 3]));
    }
    let usage = look_home(&test, &ada).await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes), (UsageSource::FileSystem, None));
    assert_eq!(usage.missing, Some(Why::NotUnderstood));
}

#[tokio::test]
async fn a_pool_that_came_alone_is_the_only_one_where_the_storage_has_no_other() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    counts_users(&test, 3).await;
    {
        let mut storage = test.storage.state();
        (storage.kind, storage.quota_pools, storage.pools) = ("beegfs", vec![2], Some(vec![2]));
    }
    let good = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!((good.usage.source, good.usage.used_bytes), (UsageSource::BeegfsUser, Some(Bytes(6))));
    assert_eq!(test.storage.state().entries, Vec::<String>::new(), "nobody has to say which it is");

    // Half an answer: the other pool's part is missing, with a word of it or without.
    let doubt = Doubt { about: DoubtAbout::Whole, text: "a server did not answer".into() };
    for doubts in [vec![], vec![doubt]] {
        {
            let mut storage = test.storage.state();
            (storage.pools, storage.quota_doubts) = (Some(vec![1, 2]), doubts);
            storage.spread_over(2);
        }
        let half = look_home(&test, &ada).await;
        assert!(half.space.undetermined, "{half:?}");
        assert_eq!(half.space.reason.unwrap().code, "storage_half");
        assert_eq!(half.seen.unwrap().usage, good.usage, "what was seen before stays");
    }

    // In half an answer the pool that came may be the one; and where pools are not told, nothing says that it is.
    test.storage.state().quota_pools = vec![1];
    let seen = look_home(&test, &ada).await;
    assert!(!seen.space.undetermined);
    assert_eq!(seen.seen.unwrap().usage.used_bytes, Some(Bytes(3)));
    {
        let mut storage = test.storage.state();
        (storage.pools, storage.quota_pools) = (None, vec![2]);
    }
    assert!(look_home(&test, &ada).await.space.undetermined, "new files lie in the first");
}

#[tokio::test]
async fn a_look_without_an_answer_keeps_what_was_seen_and_says_so() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    test.storage.state().directory = Some((50, Limit::At(100)));
    let good = look_home(&test, &ada).await;
    for (mood, code) in [
        (StorageMood::Away, "storage_away"),
        (StorageMood::Refuses, "place_refused"),
        (StorageMood::NotThere, "place_missing"),
    ] {
        test.storage.state().mood = mood;
        let seen = look_home(&test, &ada).await;
        assert!(seen.space.undetermined);
        assert_eq!(seen.space.reason.unwrap().code, code);
        assert_eq!(seen.seen, good.seen);
    }
    test.storage.state().mood = StorageMood::Good;
    let seen = look_home(&test, &ada).await;
    assert!(!seen.space.undetermined && seen.space.reason.is_none());
}

#[tokio::test]
async fn there_is_one_sample_an_hour_of_what_the_space_itself_uses() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let home = "home".parse().unwrap();
    look_home(&test, &ada).await;
    assert_eq!(test.app.spaces.samples(&ada, &home, 30).await.unwrap(), [], "the whole disk is nobody's usage");
    for (minutes, used) in [(0, 1), (5, 2), (55, 3)] {
        test.clock.advance_s(minutes * 60);
        test.storage.state().directory = Some((used, Limit::Unlimited));
        look_home(&test, &ada).await;
    }
    let samples = test.app.spaces.samples(&ada, &home, 30).await.unwrap();
    assert_eq!(samples.iter().map(|sample| sample.used_bytes.0).collect::<Vec<_>>(), [2, 3]);
    assert!(samples.iter().all(|sample| sample.at.as_second() % 3600 == 0));
}
