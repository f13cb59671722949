//! What a space may hold, from the launcher's socket to the kernel: set, held against the person, told, changed, and taken back with the space.
//! `storage/tests/with-xfs` makes the disks and runs these, as root and one after the other.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use eirene_core::SpaceId;
use eirene_core::launcher::{Launcher as LauncherPort, LauncherAnswer, LauncherRequest, SpaceFor};
use eirene_core::storage::{Bytes, Files, Known, Limit, Place, Quota, QuotaOf};
use eirene_services::config::Config;
use eirene_services::launcher_client::LauncherClient;
use eirene_services::shared_storage::shared_storage;
use tokio::runtime::Runtime;

use crate::bench::{Launcher, PROGRAM, init_root, wait_for};

const MIB: u64 = 1 << 20;
/// The number of the space, and the first project of those that are the launcher's.
const SERIAL: u32 = 4242;
const FIRST_PROJECT: u32 = 100_000;

/// A launcher whose root of spaces lies on a disk with project quotas, and the portal's way to what it says of usage.
struct Bench {
    launcher: Launcher,
    runtime: Runtime,
    point: PathBuf,
    root: PathBuf,
}

impl Bench {
    fn on(variable: &str) -> Self {
        let said = std::env::var(variable).expect("storage/tests/with-xfs runs this");
        let point = PathBuf::from(said.split_once(':').unwrap().1);
        let root = point.join("spaces-of-the-launcher");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        let mut launcher = Launcher::start().expect("root");
        assert!(init_root(&root).status.success());
        let before = launcher.path().join("scratch").display().to_string();
        launcher.configure(|text| text.replace(&before, &root.display().to_string()));
        // Built with the tests of the storage, beside the program under test.
        fs::copy(Path::new(PROGRAM).with_file_name("eirene-look"), launcher.path().join("bin/eirene-look")).unwrap();
        Self { launcher, runtime: Runtime::new().unwrap(), point, root }
    }

    fn space(&self) -> PathBuf {
        self.root.join("scratch-ada")
    }

    fn limit(&self, inode: u64, bytes: Option<u64>, files: Option<u64>) {
        let (root, name) = ("scratch".parse().unwrap(), "scratch-ada".parse().unwrap());
        let request = LauncherRequest::LimitSpace { root, name, inode, serial: SERIAL, bytes, files };
        assert_eq!(self.launcher.ask(&request), LauncherAnswer::Done);
    }

    /// What the portal is told of the space, by the launcher's own look.
    fn quota(&self) -> Quota {
        let config = Config::from_text(&format!(
            "[server]\nportal_url = \"http://eirene.localhost:8080\"\napps_domain = \"apps.eirene.localhost:8080\"\nstate_dir = \"{0}\"\n\
             [tunnel]\nadvertise = \"127.0.0.1:1\"\n\
             [spaces]\nroots = [{{ name = \"scratch\", kind = \"scratch\", per = \"person\", title = \"Scratch\", path = \"{1}\" }}]\n",
            self.launcher.path().display(),
            self.root.display()
        ));
        let port: Arc<dyn LauncherPort> = Arc::new(LauncherClient::new(self.launcher.socket()));
        let storage = shared_storage(&config.unwrap(), &port);
        let (root, name) = ("scratch".parse().unwrap(), "scratch-ada".parse().unwrap());
        let place = Place::Space { root, name, below: None };
        match self.runtime.block_on(storage.directory_quota(&place)).unwrap() {
            Known::Known(quota) => quota,
            Known::Missing(why) => panic!("{why:?}"),
        }
    }

    /// What is said where Ada does something in the space; nothing where that goes well.
    fn as_ada(&self, script: &str) -> String {
        let mut shell = Command::new("setpriv");
        shell.args(["--reuid=2001", "--regid=2001", "--clear-groups", "/bin/sh", "-c", script]);
        let done = shell.env("LC_ALL", "C").current_dir(self.space()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.success(), said.is_empty(), "{script}: {said}");
        said
    }

    /// The numbers that the kernel has for the space's project, if it has any that is not 0.
    fn entry(&self) -> Option<String> {
        let command = ["-f", "-x", "-c", "report -p -n -N -b -i"];
        let output = Command::new("xfs_quota").args(command).arg(&self.point).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let project = format!("#{}", FIRST_PROJECT + SERIAL);
        let report = String::from_utf8(output.stdout).unwrap();
        let mut lines = report.lines().map(str::to_owned);
        lines.find(|line| {
            let mut words = line.split_whitespace();
            let is_its = words.next() == Some(project.as_str());
            // Behind the numbers stands in brackets for how long they have been above a limit.
            is_its && words.filter_map(|word| word.parse::<u64>().ok()).any(|number| number > 0)
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// The whole life of a limit; `refusal` is what the kernel says to whoever is beyond it.
fn a_limit_is_held(variable: &str, refusal: &str) {
    let bench = Bench::on(variable);
    let (root, name) = ("scratch".parse().unwrap(), "scratch-ada".parse().unwrap());
    let make = LauncherRequest::MakeSpace { root, name, of: SpaceFor::Person("ada".parse().unwrap()) };
    let LauncherAnswer::Space { inode, made: true, .. } = bench.launcher.ask(&make) else { panic!() };
    bench.limit(inode, Some(8 * MIB), Some(20));
    let quota = bench.quota();
    assert_eq!(quota.limit, Known::Known(Limit::At(Bytes(8 * MIB))), "{variable}");
    assert_eq!(quota.files_limit, Known::Known(Limit::At(Files(20))), "{variable}");

    let write = |name: &str, mib: u32| bench.as_ada(&format!("head -c {mib}M /dev/zero > {name} && sync {name}"));
    assert_eq!(write("a", 6), "", "{variable}");
    let said = write("b", 6);
    assert!(said.contains(refusal), "{variable}: {said}");
    bench.as_ada("rm b");
    let said = bench.as_ada("for i in $(seq 40); do : > n$i || exit 1; done");
    assert!(said.contains(refusal), "{variable}, of files: {said}");
    bench.as_ada("rm n*");
    let used = bench.quota().used.value().copied().unwrap();
    assert!((6 * MIB..7 * MIB).contains(&used.0), "{variable}: {used:?}");

    // Root is told what the whole file system counts for her, too.
    let (root, of) = ("scratch".parse().unwrap(), QuotaOf::User);
    let asked = LauncherRequest::ReadQuotas { root, of, first: 2001, last: 2001 };
    let LauncherAnswer::Quotas(told) = bench.launcher.ask(&asked) else { panic!("{variable}") };
    assert_eq!(told.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [2001], "{variable}");
    assert!(told.rows[0].used >= 6 * MIB && told.rows[0].limit.is_none(), "{variable}: {told:?}");

    // More, and then no limit at all.
    bench.limit(inode, Some(16 * MIB), None);
    assert_eq!(bench.quota().limit, Known::Known(Limit::At(Bytes(16 * MIB))), "{variable}");
    assert_eq!(write("b", 6), "", "{variable}");
    assert!(write("c", 6).contains(refusal), "{variable}");
    bench.limit(inode, None, None);
    assert_eq!(write("c", 6), "", "{variable}");
    bench.limit(inode, Some(20 * MIB), None);
    assert!(bench.entry().is_some(), "{variable}: it is looked where the kernel has it");

    let (id, root, name) = (SpaceId::generate(), "scratch".parse().unwrap(), "scratch-ada".parse().unwrap());
    // In the place of the program that removes stands a shell, with this for a script.
    fs::write(bench.space().join("purge"), "rm -rf -- * .[!.]*\n").unwrap();
    let retire = LauncherRequest::RetireSpace { root, name, inode, id };
    assert!(matches!(bench.launcher.ask(&retire), LauncherAnswer::Space { .. }), "{variable}");
    let remove = LauncherRequest::RemoveRetired { root: "scratch".parse().unwrap(), inode, id, serial: SERIAL };
    for _ in 0..2 {
        assert_eq!(bench.launcher.ask(&remove), LauncherAnswer::Removed { done: true }, "{variable}");
    }
    assert!(!bench.root.join(".retired").join(id.to_string()).exists());
    wait_for("the end of the project's quota", || bench.entry().is_none());
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn a_limit_of_a_space_on_xfs_is_set_held_told_changed_and_taken_back() {
    // XFS says of projects that there is no room, and of people that their quota is used up.
    a_limit_is_held("EIRENE_TEST_XFS", "No space left on device");
}

#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn a_limit_of_a_space_on_ext4_is_set_held_told_changed_and_taken_back() {
    a_limit_is_held("EIRENE_TEST_EXT4", "Disk quota exceeded");
}
