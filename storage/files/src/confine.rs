//! Landlock: takes away the file system but for the spaces, the network, and other processes. The second wall behind `beneath.rs`.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};

use crate::beneath::Space;

/// The newest that is known here; older kernels confine as far as they can.
const NEWEST: ABI = ABI::V10;

/// What may be done in a space. Programs are never run, devices never made or spoken to; pipes and sockets are made by nobody here either, but
/// the right to it is asked for where one is moved.
fn rights(writable: bool) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSym
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::Refer
        | AccessFs::Truncate;
    if writable { read | write } else { read }
}

/// Confines this thread and all it starts, for good. The version of Landlock that does it; none where the kernel has none.
pub(crate) fn confine<'a>(spaces: impl Iterator<Item = &'a Space>) -> Result<Option<u32>, RulesetError> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let rules = spaces
        .map(|space| Ok(PathBeneath::new(space.root(), rights(space.writable))))
        .try_fold(rules, |rules, rule: Result<_, RulesetError>| rules.add_rule(rule?))?;
    let status = rules.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => u32::try_from(effective_abi as i32).ok(),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    })
}

/// Where systems keep what they look names of users up with: databases, libraries, and the sockets of services that know.
const LOOKUPS: [&str; 7] = ["/etc", "/usr", "/lib", "/lib64", "/run", "/var/lib/sss", "/var/db"];

/// Confines this thread to looking up names: nothing is changed, nothing of anybody's is read, and services of this machine may be asked.
pub(crate) fn confine_to_lookups() -> Result<(), RulesetError> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let rights = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::ResolveUnix;
    LOOKUPS
        .iter()
        .filter_map(|path| PathFd::new(path).ok())
        .try_fold(rules, |rules, path| rules.add_rule(PathBeneath::new(path, rights)))?
        .restrict_self()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eirene_files_protocol::{HostileText, OpenSpace, SpaceNumber};

    use super::*;
    use crate::beneath::Descriptors;

    #[test]
    fn what_lies_outside_of_the_spaces_is_gone_and_what_is_read_only_stays_as_it_is() {
        let base = tempfile::tempdir().unwrap();
        let (inside, outside) = (base.path().join("inside"), base.path().join("outside"));
        for directory in [&inside, &outside] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("file"), "text").unwrap();
        }
        let root = HostileText(inside.to_str().unwrap().into());
        let space = OpenSpace { number: SpaceNumber(1), root, writable: false, reserved: Vec::new(), made: None };
        let space = Space::open(&space, Arc::new(Descriptors::open().unwrap())).unwrap();
        // A thread of its own: what it loses it does not get back.
        let tried = std::thread::spawn(move || {
            let confined = confine([&space].into_iter()).unwrap();
            let read = |directory: &std::path::Path| std::fs::read_to_string(directory.join("file")).ok();
            let written = std::fs::write(inside.join("file"), "other").is_ok();
            (confined, read(&inside), read(&outside), written)
        });
        let (confined, inside, outside, written) = tried.join().unwrap();
        assert_eq!(inside.as_deref(), Some("text"));
        assert_eq!((outside.is_none(), written), (confined.is_some(), confined.is_none()), "Landlock {confined:?}");
    }

    #[test]
    fn who_looks_up_names_reads_the_systems_databases_and_nobodys_files() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let tried = std::thread::spawn(move || {
            confine_to_lookups().unwrap();
            let is_confined = std::fs::read(&file).is_err();
            (is_confined, std::fs::write(&file, "other").is_err(), std::fs::read("/etc/passwd").is_ok())
        });
        let (unread, unwritten, looked_up) = tried.join().unwrap();
        assert!(looked_up);
        // A kernel without Landlock confines nobody.
        assert_eq!(unread, unwritten);
        let is_there = Ruleset::default().handle_access(AccessFs::Execute).unwrap().create().unwrap();
        let is_there = std::thread::spawn(|| is_there.restrict_self().unwrap().landlock).join().unwrap();
        assert_eq!(unread, matches!(is_there, LandlockStatus::Available { .. }));
    }
}
