//! The account page.

use eirene_core::account::Role;
use eirene_services::error::FieldError;
use eirene_words::{say, words};

use super::{HOSTILE, Result, Samples};
use crate::views::account::{AccountPage, ScopeChoice, TokenView};
use crate::views::format::Time;
use crate::views::layout::{Layout, Place};
use crate::views::{Choice, Field, FormError};

impl Samples {
    pub(super) fn account(&mut self) -> Result<()> {
        let words = words();
        let token = |name: &str, expires: Option<Time>, last_used: Option<Time>| TokenView {
            name: name.to_owned(),
            scopes: ["scope.read", "scope.sessions_read", "scope.sessions_write"].map(|key| words.get(key)).join(", "),
            created: Time::new(self.now),
            expires,
            last_used,
            delete_href: "/account/tokens/x/delete".to_owned(),
        };
        let tokens =
            vec![token("laptop", Some(Time::new(self.now)), Some(Time::new(self.now))), token(HOSTILE, None, None)];
        let scope = |value: &str, checked| ScopeChoice {
            value: format!("scope_{value}"),
            label: words.get(&format!("scope.{value}")),
            checked,
        };
        let scopes =
            vec![scope("read", true), scope("sessions_read", true), scope("tokens", false), scope("admin", false)];
        let account = |layout: Layout, new_token: &str, errors: Vec<FormError>| AccountPage {
            layout,
            username: "ada".to_owned(),
            role: words.get("role.researcher"),
            uid: "2001".to_owned(),
            tokens: tokens.clone(),
            new_token: new_token.to_owned(),
            token_name: Field::default(),
            scopes: scopes.clone(),
            scopes_error: String::new(),
            lifetimes: vec![
                Choice::new("30", words.get("account.days_30"), "90"),
                Choice::new("90", words.get("account.days_90"), "90"),
            ],
            token_errors: Vec::new(),
            current_password: Field {
                value: String::new(),
                error: errors.first().map(|error| error.text.clone()).unwrap_or_default(),
            },
            new_password: Field::default(),
            password_errors: errors,
        };
        let layout = self.layout(Place::Account, &words.get("account.title"), Role::Researcher)?;
        self.add("account", &account(layout.clone(), "", Vec::new()))?;
        self.add(
            "account-token",
            &account(layout.clone(), "eir_0000000000000000000000000000000000000000000", Vec::new()),
        )?;
        let wrong = vec![FormError::from_service(words, &FieldError::new("present", say("wrong.password")))];
        self.add("account-errors", &account(layout, "", wrong))?;
        Ok(())
    }
}
