//! Looking at file systems: as whom, and at what. In the program's place stands one that says how it was started.

use eirene_core::launcher::{LauncherAnswer, LauncherRequest};
use eirene_core::storage::{Place, QuotaOf, QuotaRange};

use crate::bench::{Launcher, sign};

fn measure(place: Place) -> LauncherRequest {
    LauncherRequest::Measure { place }
}

fn home(person: &str) -> LauncherRequest {
    measure(Place::Home(person.parse().unwrap()))
}

fn in_home(person: &str, below: &str) -> LauncherRequest {
    measure(Place::InHome { person: person.parse().unwrap(), below: below.parse().unwrap() })
}

fn own_space(person: &str) -> LauncherRequest {
    let (root, name) = ("scratch".parse().unwrap(), "ada".parse().unwrap());
    measure(Place::OwnSpace { root, name, person: person.parse().unwrap() })
}

fn space(below: Option<&str>) -> LauncherRequest {
    let below = below.map(|below| below.parse().unwrap());
    measure(Place::Space { root: "scratch".parse().unwrap(), name: "ada".parse().unwrap(), below })
}

#[test]
fn homes_are_looked_at_by_their_people_and_all_else_by_the_service_account() {
    let Some(mut launcher) = Launcher::start() else { return };
    launcher.install("eirene-look", "#!/bin/sh\necho \"$(id -u) $*\"\nenv\n");
    let says = |request: LauncherRequest| match launcher.ask(&request) {
        LauncherAnswer::Ran { status: 0, stdout, .. } => stdout.lines().next().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    let scratch = launcher.path().join("scratch").display().to_string();
    assert_eq!(says(home("ada")), format!("2001 home {}", launcher.home("ada").display()));
    assert_eq!(says(in_home("ada", "a/b c")), format!("2001 home {} a/b c", launcher.home("ada").display()));
    assert_eq!(launcher.code(&in_home("root", "a")), "forbidden_person");
    assert_eq!(says(own_space("ada")), format!("2001 own {scratch} ada"));
    assert_eq!(launcher.code(&own_space("root")), "forbidden_person");
    assert_eq!(says(measure(Place::Root("scratch".parse().unwrap()))), format!("1900 root {scratch}"));
    assert_eq!(says(space(None)), format!("1900 root {scratch} ada"));
    assert_eq!(says(space(Some("a/b c"))), format!("1900 root {scratch} ada/a/b c"));
    for system in ["root", "slurm", "portal-again", "op", "bee"] {
        let code = launcher.code(&home(system));
        // Root is the peer here, so the portal's other name is a system user and nothing more.
        assert_eq!(code, "forbidden_person", "{system}");
    }
    let elsewhere = measure(Place::Root("etc".parse().unwrap()));
    assert_eq!(launcher.code(&elsewhere), "not_configured", "a root the configuration does not have");
    for place in [
        "{\"root\":\"../etc\"}",
        "{\"space\":{\"root\":\"scratch\",\"name\":\"..\",\"below\":null}}",
        "{\"space\":{\"root\":\"scratch\",\"name\":\"ada\",\"below\":\"../../etc\"}}",
        "{\"space\":{\"root\":\"scratch\",\"name\":\"ada\",\"below\":\"/etc\"}}",
        "{\"in_home\":{\"person\":\"ada\",\"below\":\"../grace\"}}",
        "{\"in_home\":{\"person\":\"ada\",\"below\":\"/etc\"}}",
        "{\"path\":\"/etc\"}",
    ] {
        let line = format!("{{\"verb\":\"measure\",\"place\":{place}}}\n");
        let answers = launcher.say(line.as_bytes());
        assert!(matches!(&answers[..], [LauncherAnswer::Refused { code, .. }] if code == "bad_request"), "{place}");
    }
    launcher.configure(|text| text.replace("look_program", "# look_program"));
    assert_eq!(launcher.code(&home("ada")), "not_configured", "no program is named");
}

#[test]
fn quotas_are_asked_for_of_roots_of_the_configuration_and_in_bounds() {
    let Some(launcher) = Launcher::start() else { return };
    let code = |root: &str, first, last| {
        let (root, of) = (root.parse().unwrap(), QuotaOf::User);
        launcher.code(&LauncherRequest::ReadQuotas { root, of, first, last })
    };
    assert_eq!(code("etc", 0, 5), "not_configured");
    assert_eq!(code("scratch", 5, 4), "bad_request");
    assert_eq!(code("scratch", 0, QuotaRange::MOST), "bad_request");
    let told = launcher.audit().into_iter().filter(|line| line["verb"] == "read_quotas").count();
    assert_eq!(told, 3);
}

#[test]
fn looks_that_hang_keep_nobody_from_other_calls() {
    let Some(launcher) = Launcher::start() else { return };
    launcher.install("eirene-look", "#!/bin/sh\nexec sleep 1000\n");
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| assert_eq!(launcher.code(&space(None)), "away"));
        }
        let running = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", launcher.process.id())).unwrap().flatten();
            let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
            let children: Vec<String> =
                lists.flat_map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
            let names = children.iter().filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
            names.filter(|name| name == "sleep\n").count()
        };
        crate::bench::wait_for("all four", || running() == 4);
        assert_eq!(launcher.code(&space(None)), "away", "no more of them are started");
        assert!(matches!(launcher.ask(&sign("ada")), LauncherAnswer::Token { .. }));
        launcher.install("eirene-look", "#!/bin/sh\necho seen\n");
        assert!(matches!(launcher.ask(&home("ada")), LauncherAnswer::Ran { status: 0, .. }));
    });
}
