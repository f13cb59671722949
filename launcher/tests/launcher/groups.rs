//! Asking who somebody is by the user database.

use eirene_core::launcher::{LauncherAnswer, LauncherRequest};

use crate::bench::Launcher;

fn groups_of(person: &str) -> LauncherRequest {
    LauncherRequest::GroupsOf { person: person.parse().unwrap() }
}

#[test]
fn a_persons_groups_and_home_are_told_and_nobody_elses() {
    let Some(launcher) = Launcher::start() else { return };
    for (person, expected) in [("ada", &["ada", "research"][..]), ("grace", &["grace"])] {
        let LauncherAnswer::Groups { home, mut groups } = launcher.ask(&groups_of(person)) else { panic!() };
        groups.sort();
        assert_eq!(groups, expected);
        assert_eq!(home, launcher.home(person).display().to_string());
    }
    for system in ["root", "slurm", "slurmadm-again", "op", "bee", "daemon", "homeless", "rootish"] {
        assert_eq!(launcher.code(&groups_of(system)), "forbidden_person", "{system}");
    }
    assert_eq!(launcher.code(&groups_of("nobody.knows.them")), "unknown_person");
    let asked: Vec<_> = launcher.audit().iter().map(|line| (line["verb"].clone(), line["person"].clone())).collect();
    assert_eq!(asked[0], ("groups_of".into(), "ada".into()));
}
