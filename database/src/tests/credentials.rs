//! The steps by which an agent exchanges its job's secret for a tunnel key.

use super::*;
use crate::AgentCredentials;

fn credentials(restart_count: u32, secret: Option<&str>, key: Option<&str>, pending: Option<&str>) -> AgentCredentials {
    AgentCredentials {
        restart_count,
        secret_hash: secret.map(hash),
        tunnel_key_hash: key.map(hash),
        pending_key_hash: pending.map(hash),
    }
}

on_both! {
    async fn exchange_again_until_confirmed_then_the_secret_is_void(db) {
        let ada = add_user(db, "ada").await;
        let id = add_session(db, &ada).await.id;
        assert_eq!(db.agent_credentials(id).await.unwrap(), None);
        assert!(!db.set_pending_tunnel_key(id, 0, &hash("early")).await.unwrap(), "there is no secret yet");

        assert!(db.set_job_secret(id, 0, &hash("secret")).await.unwrap());
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(credentials(0, Some("secret"), None, None)));
        assert!(!db.confirm_tunnel_key(id, 0, &hash("key 1")).await.unwrap(), "no key was given out");

        // The answer with the first key is lost: the agent exchanges its secret again.
        assert!(db.set_pending_tunnel_key(id, 0, &hash("key 1")).await.unwrap());
        assert!(db.set_pending_tunnel_key(id, 0, &hash("key 2")).await.unwrap());
        let pending = credentials(0, Some("secret"), None, Some("key 2"));
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(pending.clone()));
        assert!(!db.confirm_tunnel_key(id, 0, &hash("key 1")).await.unwrap(), "it was replaced");
        assert!(!db.confirm_tunnel_key(id, 1, &hash("key 2")).await.unwrap(), "another run");
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(pending));

        assert!(db.confirm_tunnel_key(id, 0, &hash("key 2")).await.unwrap());
        let confirmed = credentials(0, None, Some("key 2"), None);
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(confirmed.clone()));
        assert!(db.confirm_tunnel_key(id, 0, &hash("key 2")).await.unwrap(), "its confirmation may have been lost");
        assert!(!db.set_pending_tunnel_key(id, 0, &hash("key 3")).await.unwrap(), "the secret is void");
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(confirmed));
    }

    async fn a_requeue_voids_the_run_before_and_never_the_other_way(db) {
        let ada = add_user(db, "ada").await;
        let (id, other) = (add_session(db, &ada).await.id, add_session(db, &ada).await.id);
        db.set_job_secret(other, 0, &hash("others")).await.unwrap();
        db.set_job_secret(id, 0, &hash("secret 0")).await.unwrap();
        db.set_pending_tunnel_key(id, 0, &hash("key 0")).await.unwrap();
        db.confirm_tunnel_key(id, 0, &hash("key 0")).await.unwrap();

        assert!(db.set_job_secret(id, 1, &hash("secret 1")).await.unwrap());
        let requeued = credentials(1, Some("secret 1"), None, None);
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(requeued.clone()));
        // A late step of the run before.
        assert!(!db.set_pending_tunnel_key(id, 0, &hash("key 0b")).await.unwrap());
        assert!(!db.confirm_tunnel_key(id, 0, &hash("key 0")).await.unwrap());
        assert!(!db.set_job_secret(id, 0, &hash("secret 0b")).await.unwrap());
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(requeued));

        // Submitted again before it ever ran: the same run gets a new secret.
        assert!(db.set_job_secret(id, 1, &hash("secret 1b")).await.unwrap());
        assert_eq!(db.agent_credentials(id).await.unwrap(), Some(credentials(1, Some("secret 1b"), None, None)));
        assert_eq!(db.agent_credentials(other).await.unwrap(), Some(credentials(0, Some("others"), None, None)));
    }

    async fn exchanges_at_once_leave_one_key_that_can_be_confirmed(db) {
        let ada = add_user(db, "ada").await;
        let id = add_session(db, &ada).await.id;
        db.set_job_secret(id, 0, &hash("secret")).await.unwrap();
        let exchanges: Vec<_> = (0..8)
            .map(|n| {
                let db = db.clone();
                tokio::spawn(async move { db.set_pending_tunnel_key(id, 0, &hash(&format!("key {n}"))).await.unwrap() })
            })
            .collect();
        for exchange in exchanges {
            assert!(exchange.await.unwrap());
        }
        let mut confirmed = Vec::new();
        for n in 0..8 {
            let key = hash(&format!("key {n}"));
            if db.confirm_tunnel_key(id, 0, &key).await.unwrap() {
                confirmed.push(key);
            }
        }
        assert_eq!(confirmed.len(), 1);
        let stored = db.agent_credentials(id).await.unwrap().unwrap();
        assert_eq!((stored.secret_hash, stored.tunnel_key_hash.as_ref()), (None, confirmed.first()));
    }
}
