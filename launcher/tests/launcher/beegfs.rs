//! BeeGFS's tool: what it may be asked, as whom, and what its being root is worth.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use eirene_core::launcher::{LauncherAnswer, LauncherRequest};

use crate::bench::{Launcher, hanging, is_gone, sign, wait_for};

fn beegfs(line: &str) -> LauncherRequest {
    LauncherRequest::RunBeegfs { arguments: line.split_whitespace().map(str::to_owned).collect() }
}

fn says(launcher: &Launcher, line: &str) -> (i32, String, String) {
    match launcher.ask(&beegfs(line)) {
        LauncherAnswer::Ran { status, stdout, stderr } => (status, stdout, stderr),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_tools_root_is_nobody_outside() {
    let Some(mut launcher) = Launcher::start() else { return };
    let at = |name: &str| launcher.path().join(name);
    let closed = |name: &str, mode: u32, group: u32| {
        std::fs::write(at(name), format!("content of {name}\n")).unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        chown(at(name), Some(0), Some(group)).unwrap();
    };
    closed("conn.auth", 0o640, 1960);
    closed("roots", 0o600, 0);
    closed("all", 0o644, 0);
    std::fs::create_dir(at("open")).unwrap();
    std::fs::set_permissions(at("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "#!/bin/sh
cd {}
echo \"ids $(id -u) $(id -g)\"
echo \"umask $(umask)\"
echo \"privileges $(grep NoNewPrivs /proc/self/status | tr -d '\\t')\"
for argument in \"$@\"; do echo \"argument $argument\"; done
env | sort | sed 's/^/variable /'
sed 's/^/input /'
cat conn.auth roots /etc/shadow 2>/dev/null
echo x 2>/dev/null >> all && echo \"wrote what is root's\"
rm -f all 2>/dev/null; ls all
kill -0 $PPID 2>/dev/null && echo \"reached the launcher\"
kill -0 1 2>/dev/null && echo \"reached init\"
mount -t tmpfs x open 2>/dev/null && echo \"mounted\"
hostname evil 2>/dev/null && echo \"named the machine\"
touch open/made; chown 2001 open/made 2>/dev/null && echo \"gave it away\"
chmod u+s open/made
exit 3
",
        launcher.path().display()
    );
    launcher.install("beegfs-ctl", &script);
    let (status, stdout, stderr) = says(&launcher, "--getquota --uid --range 0 9 --withzero --csv");
    assert_eq!((status, stderr.as_str()), (3, ""), "{stdout}");
    let expected = "ids 0 0\numask 0077\nprivileges NoNewPrivs:1\nargument --cfgFile=/etc/bee.conf\nargument --getquota\n\
                    argument --uid\nargument --range\nargument 0\nargument 9\nargument --withzero\nargument --csv\n";
    let told = stdout.strip_prefix(expected).unwrap_or_else(|| panic!("{stdout}"));
    let (variables, rest): (Vec<&str>, Vec<&str>) = told.lines().partition(|line| line.starts_with("variable "));
    let names = variables.iter().map(|line| line["variable ".len()..].split('=').next().unwrap());
    assert!(names.clone().all(|name| ["LANG", "OLDPWD", "PATH", "PWD", "_"].contains(&name)), "{variables:?}");
    assert_eq!(
        rest,
        ["content of conn.auth", "all"],
        "the secret of its group is read, and nothing of root's is reached"
    );
    let made = std::fs::metadata(at("open/made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (1950, 1950), "what it makes is the account's");
    assert_eq!(std::fs::read_to_string(at("all")).unwrap(), "content of all\n");

    launcher.configure(|text| text + "user_namespace = false\n");
    let (_, stdout, _) = says(&launcher, "--version");
    assert!(stdout.starts_with("ids 1950 1950\n"), "{stdout}");
}

#[test]
fn only_what_the_table_has_is_run_and_only_roots_program() {
    let Some(mut launcher) = Launcher::start() else { return };
    let marker = launcher.path().join("ran");
    std::fs::create_dir(&marker).unwrap();
    std::fs::set_permissions(&marker, std::fs::Permissions::from_mode(0o777)).unwrap();
    launcher.install("beegfs-ctl", &format!("#!/bin/sh\necho \"$@\" > {}/$$\n", marker.display()));
    let ran = || std::fs::read_dir(&marker).unwrap().count();
    for line in [
        "",
        "--version --cfgFile=/tmp/x",
        "--cfgFile=/tmp/x --version",
        "--createfile --ownerid=0 /home/ada/x",
        "--deletenode x",
        "--setquota --uid 0 --sizelimit=1 --inodelimit=1 --storagepoolid=1",
        "--getentryinfo --unmounted /a/../b",
        "version",
    ] {
        assert_eq!(launcher.code(&beegfs(line)), "bad_request", "{line}");
    }
    assert_eq!(ran(), 0);
    let change = "--setquota --uid 2001 --sizelimit=unlimited --inodelimit=100 --storagepoolid=1";
    assert_eq!(says(&launcher, change).0, 0);
    assert_eq!(says(&launcher, "--setpattern --unmounted --numtargets=4 /home/ada").0, 0);
    assert_eq!(says(&launcher, "--liststoragepools").0, 0);
    assert_eq!(ran(), 3);
    let targets: Vec<_> = launcher.audit().iter().rev().take(3).map(|line| line["target"].clone()).collect();
    assert_eq!(targets, [serde_json::Value::Null, "--setpattern --unmounted --numtargets=4".into(), change.into()]);

    let program = launcher.path().join("bin/beegfs-ctl");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o775)).unwrap();
    assert_eq!(launcher.code(&beegfs("--version")), "failed");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for account in ["slurmadm", "op"] {
        // Another name of the same user: the configuration cannot tell.
        launcher.configure(|text| text.replace("account = \"bee\"", &format!("account = \"{account}-again\"")));
        assert_eq!(launcher.code(&beegfs("--version")), "forbidden_person", "{account}");
        launcher.configure(|text| text.replace(&format!("account = \"{account}-again\""), "account = \"bee\""));
    }
    assert_eq!(launcher.code(&sign("bee")), "forbidden_person", "its account is no person");
    assert_eq!(launcher.code(&sign("bee-again")), "forbidden_person");
    launcher.configure(|text| text.split("[beegfs]").next().unwrap().to_owned());
    assert_eq!(launcher.code(&beegfs("--version")), "not_configured", "nothing is configured");
    assert_eq!(ran(), 3);
}

#[test]
fn a_launcher_that_is_killed_takes_the_tool_with_it() {
    let Some(mut launcher) = Launcher::start() else { return };
    let said = hanging(&launcher, "beegfs-ctl");
    let mut stream = launcher.connect();
    let request = serde_json::to_string(&beegfs("--version")).unwrap();
    std::io::Write::write_all(&mut stream, format!("{request}\n").as_bytes()).unwrap();
    wait_for("the tool", || said.exists());
    assert!(!is_gone(&said));
    launcher.kill();
    wait_for("its end", || is_gone(&said));
}
