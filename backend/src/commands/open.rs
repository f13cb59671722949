//! Opens what the offline commands need: the database and the services on it that ask nobody else.

use std::sync::Arc;

use anyhow::Context as _;
use eirene_core::{Clock, Role, SystemClock, User, UserId, UserState};
use eirene_database::Db;
use eirene_services::access::Access;
use eirene_services::accounts::Accounts;
use eirene_services::actor::{Actor, Via};
use eirene_services::audit::Audit;
use eirene_services::config::Config;
use eirene_services::images::Images;
use eirene_services::passwords::Passwords;
use secrecy::ExposeSecret as _;

use super::owner;

/// The services of an offline command, and whoever may run one on the portal's machine.
pub(super) struct Offline {
    pub(super) db: Db,
    pub(super) accounts: Accounts,
    pub(super) images: Images,
    pub(super) operator: Actor,
}

/// The database of the configuration, for a command that runs beside the portal or before it: as the portal's user.
pub(super) async fn own_database(config: &Config) -> anyhow::Result<Db> {
    owner::check(&config.server.state_dir, nix::unistd::geteuid())?;
    database(config).await
}

/// The database of the configuration.
pub(super) async fn database(config: &Config) -> anyhow::Result<Db> {
    let url = config.database_url()?;
    Db::open(url.expose_secret()).await.context("the database could not be opened")
}

/// Opens the database, brings it up to date, and puts the services on it.
pub(super) async fn offline(config: &Config) -> anyhow::Result<Offline> {
    let db = own_database(config).await?;
    db.migrate().await.context("the database could not be brought up to date")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let audit = Audit::new(db.clone(), clock.clone());
    let access = Access::new(db.clone(), clock.clone(), audit.clone(), None);
    let accounts = Accounts::new(db.clone(), clock.clone(), audit.clone(), Passwords::new()?, access);
    let images = Images::new(db.clone(), clock.clone(), audit);
    let user = User {
        id: UserId::generate(),
        username: "eirened".parse().context("the operator's name")?,
        role: Role::Admin,
        state: UserState::Active,
        uid: None,
        created_at: clock.now(),
        access_epoch: 0,
    };
    let operator = Actor { user, via: Via::Cli, address: None, request_id: None };
    Ok(Offline { db, accounts, images, operator })
}
