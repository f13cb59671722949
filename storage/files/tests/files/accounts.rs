//! What owners and groups are called, in every answer that says whose something is.

use std::fs::write;
use std::os::unix::fs::chown;
use std::process::Command;

use eirene_files_protocol::{AccountName, Accounts, AclEntry, Answer, PermissionChange, Rights, Who};

use crate::ask::{look_at_permissions, permissions};
use crate::bench::{Portal, Way, World, is_root};

/// What `id` calls whoever runs the tests.
fn called(option: &str) -> AccountName {
    let output = Command::new("id").arg(option).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned().try_into().unwrap()
}

fn all(portal: &mut Portal) -> [Accounts; 3] {
    let listed = match portal.list(b"").done() {
        Answer::Listed(listed) => listed.accounts,
        other => panic!("{other:?}"),
    };
    let stated = match portal.stat(b"file").done() {
        Answer::Stated(stated) => stated.accounts,
        other => panic!("{other:?}"),
    };
    let looked = match portal.ask(look_at_permissions(b"file")).done() {
        Answer::Permissions(permissions) => permissions.accounts,
        other => panic!("{other:?}"),
    };
    [listed, stated, looked]
}

#[test]
fn owners_and_groups_have_names_where_the_system_knows_them() {
    let (user, group) = (called("-un"), called("-gn"));
    for way in Way::BOTH {
        let world = World::new();
        write(world.at("file"), "text").unwrap();
        let mut portal = world.portal(way);
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let expected = Accounts { users: [(uid, user.clone())].into(), groups: [(gid, group.clone())].into() };
        // Names that are looked up for the first time may come with the next answer.
        while all(&mut portal) != [expected.clone(), expected.clone(), expected.clone()] {}
        if is_root() {
            write(world.at("nobodys"), "text").unwrap();
            chown(world.at("nobodys"), Some(4_000_000_123), Some(4_000_000_124)).unwrap();
            assert_eq!(all(&mut portal)[0], expected, "who is not known is a number");
        }
    }
}

#[test]
fn those_named_in_a_list_have_names_too() {
    let world = World::new();
    write(world.at("file"), "text").unwrap();
    let mut portal = world.portal(Way::Library);
    let line = |who| AclEntry { who, may: Rights::from_bits(4) };
    let access =
        [Who::Owner, Who::User(0), Who::User(4_000_000_123), Who::OwningGroup, Who::Group(0), Who::Other].map(line);
    let change = PermissionChange::Acl { access: access.into(), default: Vec::new() };
    portal.ask(permissions(b"file", change, false)).done();
    let root = AccountName::try_from("root".to_owned()).unwrap();
    loop {
        let [.., accounts] = all(&mut portal);
        assert!(!accounts.users.contains_key(&4_000_000_123));
        if accounts.users.get(&0) == Some(&root) && accounts.groups.get(&0) == Some(&root) {
            break;
        }
    }
}
