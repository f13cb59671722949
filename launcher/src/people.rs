//! Who is a person, and who never is.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use eirene_core::launcher::MOST_GROUPS;
use eirene_core::{GroupName, Username};
use nix::unistd::{Gid, Group, User};

use crate::Refusal;
use crate::config::{Beegfs, Config};

/// Accounts nobody is signed in as, whatever their user id.
pub const SYSTEM_NAMES: [&str; 4] = ["root", "slurm", "munge", "nobody"];
/// systemd's dynamic users, `nobody` and the old 16-bit "no user".
const RESERVED_UIDS: std::ops::RangeInclusive<u32> = 61_184..=65_535;
/// "No user" in 32 bits, and its neighbour.
const NO_UIDS: std::ops::RangeInclusive<u32> = u32::MAX - 1..=u32::MAX;

/// Somebody a child may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Log-in name.
    pub name: Username,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home directory, as the user database has it.
    pub home: PathBuf,
}

/// Looks a person up and refuses everybody who is none.
pub fn person(name: &Username, config: &Config) -> Result<Person, Refusal> {
    let person = look_up(name)?;
    let forbidden = |why: &str| Refusal::forbidden_person(format!("`{name}` {why}"));
    let mut accounts = vec![&config.slurm_user, &config.service_account, &config.peer_user];
    accounts.extend(config.beegfs.as_ref().map(|beegfs| &beegfs.account));
    accounts.extend(&config.purge_account);
    if accounts.contains(&name) {
        return Err(forbidden("is an account of the portal, of SLURM or of the storage"));
    }
    if person.uid < config.min_uid {
        return Err(forbidden(&format!("is a system user: the user id is below {}", config.min_uid)));
    }
    // Another name for one of those is no way around.
    for other in accounts {
        if uid_of(other.as_str())? == Some(person.uid) {
            return Err(forbidden("shares its user id with a system account"));
        }
    }
    if person.gid == 0 {
        return Err(forbidden("has root's group"));
    }
    if !person.home.is_absolute() || [Path::new("/"), Path::new("/nonexistent")].contains(&person.home.as_path()) {
        return Err(forbidden("has no home directory"));
    }
    Ok(person)
}

/// The service account, as a child may become it.
pub fn service_account(config: &Config) -> Result<Person, Refusal> {
    let account = look_up(&config.service_account)?;
    if uid_of(config.slurm_user.as_str())? == Some(account.uid) {
        return Err(Refusal::forbidden_person("the service account is SLURM's user"));
    }
    Ok(account)
}

/// The account BeeGFS's tool runs as, as a child may become it: nobody else's, so that nobody else reaches its process or its secret.
pub fn beegfs_account(config: &Config, beegfs: &Beegfs) -> Result<Person, Refusal> {
    let account = look_up(&beegfs.account)?;
    for other in [&config.slurm_user, &config.service_account, &config.peer_user] {
        if uid_of(other.as_str())? == Some(account.uid) {
            return Err(Refusal::forbidden_person("BeeGFS's account shares its user id with another one"));
        }
    }
    Ok(account)
}

/// The names of a person's groups, at most [`MOST_GROUPS`]: those that a process gets that becomes the person. A group without a name is left out.
///
/// # Errors
/// That the user database does not answer; that is never "no groups".
pub fn groups(person: &Person) -> Result<Vec<String>, Refusal> {
    let away = |error: nix::Error| {
        Refusal::away(format!("the user database did not answer for the groups of `{}`: {}", person.name, error.desc()))
    };
    let name = CString::new(person.name.as_str()).map_err(|_| Refusal::bad_request("a name with a zero in it"))?;
    let numbers = nix::unistd::getgrouplist(&name, Gid::from_raw(person.gid)).map_err(away)?;
    if numbers.len() > MOST_GROUPS {
        // Some of them are no answer: which spaces somebody reaches would hang on their order.
        return Err(Refusal::failed(format!("`{}` is in more than {MOST_GROUPS} groups", person.name)));
    }
    let mut names = Vec::new();
    for number in numbers {
        names.extend(Group::from_gid(number).map_err(away)?.map(|group| group.name));
    }
    Ok(names)
}

/// The account that empties spaces, as a child may become it: nobody else's, because for as long as it works it may remove anybody's files.
pub fn purge_account(config: &Config) -> Result<Person, Refusal> {
    let name = config.purge_account.as_ref();
    let name = name.ok_or_else(|| Refusal::not_configured("the launcher's configuration names no `purge_account`"))?;
    let account = look_up(name)?;
    let mut others = vec![&config.slurm_user, &config.service_account, &config.peer_user];
    others.extend(config.beegfs.as_ref().map(|beegfs| &beegfs.account));
    for other in others {
        if uid_of(other.as_str())? == Some(account.uid) {
            return Err(Refusal::forbidden_person("the purge account shares its user id with another one"));
        }
    }
    if account.gid == 0 {
        return Err(Refusal::forbidden_person("the purge account has root's group"));
    }
    Ok(account)
}

/// The number of a group that people may share a space in. Groups of the system have none: whoever is in one of those is there for something else.
pub fn group(name: &GroupName, config: &Config) -> Result<u32, Refusal> {
    let asked = Group::from_name(name.as_str())
        .map_err(|error| Refusal::away(format!("the user database did not answer for `{name}`: {}", error.desc())))?;
    let found = asked
        .filter(|group| group.name == name.as_str())
        .ok_or_else(|| Refusal::unknown_group(format!("there is no group `{name}`")))?;
    let number = found.gid.as_raw();
    if number < config.min_uid || RESERVED_UIDS.contains(&number) || NO_UIDS.contains(&number) {
        return Err(Refusal::unknown_group(format!("`{name}` is a group of the system")));
    }
    Ok(number)
}

fn look_up(name: &Username) -> Result<Person, Refusal> {
    if SYSTEM_NAMES.contains(&name.as_str()) {
        return Err(Refusal::forbidden_person(format!("`{name}` is a system user")));
    }
    let user = ask(name.as_str())?.ok_or_else(|| Refusal::unknown_person(format!("there is no user `{name}`")))?;
    let uid = user.uid.as_raw();
    if uid == 0 || RESERVED_UIDS.contains(&uid) || NO_UIDS.contains(&uid) {
        return Err(Refusal::forbidden_person(format!("`{name}` is a system user")));
    }
    // Some databases answer for another spelling; SLURM would take that for somebody else.
    if user.name != name.as_str() {
        return Err(Refusal::unknown_person(format!("there is no user `{name}`")));
    }
    Ok(Person { name: name.clone(), uid, gid: user.gid.as_raw(), home: user.dir })
}

fn uid_of(name: &str) -> Result<Option<u32>, Refusal> {
    Ok(ask(name)?.map(|user| user.uid.as_raw()))
}

fn ask(name: &str) -> Result<Option<User>, Refusal> {
    User::from_name(name)
        .map_err(|error| Refusal::away(format!("the user database did not answer for `{name}`: {}", error.desc())))
}
