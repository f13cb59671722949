//! What the ids in an answer are called, by the system's own databases.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Most bytes of a name that is said; one that is longer stays a number.
const MOST_BYTES: usize = 64;

/// The name of a user or a group: 1 to 64 bytes without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountName(String);

/// Not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a user or a group")]
pub struct AccountNameError;

impl AccountName {
    /// The name as it is.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for AccountName {
    type Error = AccountNameError;

    fn try_from(name: String) -> Result<Self, AccountNameError> {
        let fits = (1..=MOST_BYTES).contains(&name.len()) && !name.contains(char::is_control);
        if fits { Ok(Self(name)) } else { Err(AccountNameError) }
    }
}

impl From<AccountName> for String {
    fn from(name: AccountName) -> Self {
        name.0
    }
}

/// What ids are called, as far as that is known: whoever is not in here is a number. At most [`crate::MOST_ACCOUNTS`] of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accounts {
    /// Users, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<u32, AccountName>,
    /// Groups, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<u32, AccountName>,
}

impl Accounts {
    /// Whether nobody is called anything.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MOST_ACCOUNTS, MOST_BYTES as MOST_FRAME};

    #[test]
    fn a_name_is_short_and_steers_no_terminal() {
        for good in ["ada", "EXAMPLE\\ada", "ada@example.org", "é"] {
            assert_eq!(AccountName::try_from(good.to_owned()).unwrap().as_str(), good);
        }
        for bad in ["", "a\nb", "\u{1b}[31m", &"n".repeat(65)] {
            assert!(serde_json::from_value::<AccountName>(bad.into()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn as_many_as_there_may_be_fit_into_a_frame() {
        let name = AccountName::try_from("\\".repeat(MOST_BYTES)).unwrap();
        let all: BTreeMap<_, _> = (0..MOST_ACCOUNTS as u32).map(|id| (u32::MAX - id, name.clone())).collect();
        let accounts = Accounts { users: all.clone(), groups: all };
        let said = serde_json::to_vec(&accounts).unwrap();
        assert!(said.len() < MOST_FRAME - 4096, "{}", said.len());
        assert_eq!(serde_json::from_slice::<Accounts>(&said).unwrap(), accounts);
    }
}
