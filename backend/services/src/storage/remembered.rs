//! What is known of places from before, also by who was just started: it is in the database, not in one process's memory.

use std::collections::BTreeMap;

use eirene_core::storage::Identity;
use eirene_core::{RootName, Username};
use eirene_database::{Db, DbError};

/// Homes that are looked at to see whether homes answer: one may be gone with its person, and one may lie on a server of its own.
const HOMES: u32 = 3;

/// What is known of places from before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remembered {
    /// People who have a home: those whose homes answered last, so that one that is gone is not asked for any more once others have answered.
    pub homes: Vec<Username>,
    /// The file systems that spaces were made on, by their roots.
    pub made: BTreeMap<RootName, Identity>,
}

impl Remembered {
    /// What the database knows.
    pub async fn of(db: &Db) -> Result<Self, DbError> {
        let made = db.file_systems_of_roots().await?.into_iter().collect();
        Ok(Self { homes: db.people_with_home(HOMES).await?, made })
    }
}
