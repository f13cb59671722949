//! Who asks, and by what means: the first argument of every verb of a service.

use std::net::IpAddr;

use eirene_core::audit::NewAuditEvent;
use eirene_core::{LoginId, Scope, TokenId, User};
use eirene_words::{say, say_with};

use crate::error::AppError;

/// Someone who is signed in.
#[derive(Debug, Clone)]
pub struct Actor {
    /// The person.
    pub user: User,
    /// By what means.
    pub via: Via,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The request's id.
    pub request_id: Option<String>,
}

/// By what means someone is signed in.
#[derive(Debug, Clone)]
pub enum Via {
    /// A browser's log-in on the portal: everything the person may do.
    Login(LoginId),
    /// An API token: what its scopes say, never more than the person may do.
    Token {
        /// Token.
        id: TokenId,
        /// Scopes.
        scopes: Vec<Scope>,
    },
    /// A command on the portal's own machine: whoever may read the database may do everything.
    Cli,
}

impl Actor {
    /// That the means of signing in reach as far as `scope`.
    pub fn require(&self, scope: Scope) -> Result<(), AppError> {
        let allowed = match &self.via {
            Via::Login(_) | Via::Cli => true,
            Via::Token { scopes, .. } => scopes.contains(&scope),
        };
        if allowed {
            return Ok(());
        }
        let text = say_with("problem.insufficient_scope", &[("scope", scope.as_str())]);
        Err(AppError::Forbidden { code: "insufficient_scope", text })
    }

    /// That the actor runs the platform, and that the means of signing in reach as far.
    pub fn require_admin(&self) -> Result<(), AppError> {
        if matches!(self.via, Via::Cli) {
            return Ok(());
        }
        if !self.user.is_admin() {
            return Err(AppError::Forbidden { code: "not_admin", text: say("problem.not_admin") });
        }
        self.require(Scope::Admin)
    }

    /// Whether [`Actor::require_admin`] would pass.
    pub fn acts_as_admin(&self) -> bool {
        self.require_admin().is_ok()
    }

    /// An audit event of this actor.
    pub fn audit(
        &self,
        action: &'static str,
        target: &str,
        outcome: &'static str,
        details: serde_json::Value,
    ) -> NewAuditEvent {
        NewAuditEvent {
            actor: self.user.username.to_string(),
            action,
            target: target.to_owned(),
            outcome,
            details,
            address: self.address.map(|address| address.to_string()),
            request_id: self.request_id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::{Clock as _, Role, SystemClock, UserId, UserState};

    use super::*;

    fn actor(role: Role, via: Via) -> Actor {
        let user = User {
            id: UserId::generate(),
            username: "ada".parse().unwrap(),
            role,
            state: UserState::Active,
            uid: Some(2001),
            created_at: SystemClock.now(),
            access_epoch: 0,
        };
        Actor { user, via, address: None, request_id: None }
    }

    #[test]
    fn a_token_reaches_as_far_as_its_scopes_and_no_further_than_its_owner() {
        let token = |scopes: &[Scope]| Via::Token { id: TokenId::generate(), scopes: scopes.to_vec() };
        let reader = actor(Role::Researcher, token(&[Scope::Read]));
        assert!(reader.require(Scope::Read).is_ok());
        assert!(matches!(
            reader.require(Scope::SessionsWrite),
            Err(AppError::Forbidden { code: "insufficient_scope", .. })
        ));
        let pretender = actor(Role::Researcher, token(&[Scope::Admin]));
        assert!(matches!(pretender.require_admin(), Err(AppError::Forbidden { code: "not_admin", .. })));
        let limited_admin = actor(Role::Admin, token(&[Scope::Read]));
        assert!(!limited_admin.acts_as_admin());
        assert!(actor(Role::Admin, Via::Login(LoginId::generate())).acts_as_admin());
    }
}
