//! What only real disks with project quotas show: limits and usage of a directory, whoever asks, and disks that become read-only or go.
//! `storage/tests/with-xfs` makes the disks and runs these, as root and one after the other.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use eirene_core::storage::{
    Ability, Bytes, Files, Known, Limit, Quota, QuotaId, QuotaOf, QuotaRange, SharedStorage, StorageError, Why,
};
use eirene_launcher::space_root::{Most, Root, Whose, init, quotas};
use eirene_storage::posix::{Own, look_at};
use eirene_storage::{Look, Posix, Probe, Seen};

use crate::benches::{Bench, posix_on};

const MIB: u64 = 1 << 20;
const DISKS: [&str; 2] = ["EIRENE_TEST_XFS", "EIRENE_TEST_EXT4"];

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Device and mount point.
fn disk(variable: &str) -> (String, String) {
    let said = std::env::var(variable).expect("storage/tests/with-xfs runs this");
    let (device, point) = said.split_once(':').unwrap();
    (device.to_owned(), point.to_owned())
}

fn xfs_quota(variable: &str, command: &str) {
    run("xfs_quota", &["-f", "-x", "-c", command, &disk(variable).1]);
}

/// Gives a directory a project without a limit.
fn project(variable: &str, directory: &Path, project: u32) {
    xfs_quota(variable, &format!("project -s -p {} {project}", directory.display()));
}

async fn quota(bench: &Bench) -> Quota {
    match bench.storage().directory_quota(&Bench::home()).await.unwrap() {
        Known::Known(quota) => quota,
        Known::Missing(why) => panic!("{why:?}"),
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn the_limit_of_a_directory_and_what_is_used_of_it_are_told() {
    for variable in DISKS {
        let bench = posix_on(variable);
        let home = bench.folder().join("home");
        let storage = bench.storage();
        let before = storage.directory_quota(&Bench::home()).await.unwrap();
        assert_eq!(before, Known::Missing(Why::NotEnabled), "{variable}: no project");
        project(variable, &home, 2001);
        let unlimited = storage.directory_quota(&Bench::home()).await.unwrap();
        assert_eq!(unlimited, Known::Missing(Why::NotEnabled), "{variable}: no limit");
        let whole = storage.file_system(&Bench::home()).await.unwrap();
        xfs_quota(variable, "limit -p bhard=20m ihard=50 2001");
        let empty = quota(&bench).await;
        assert_eq!(empty.limit, Known::Known(Limit::At(eirene_core::storage::Bytes(20 * MIB))), "{variable}");
        assert_eq!(empty.files_limit, Known::Known(Limit::At(Files(50))), "{variable}");
        assert!(empty.used.value().is_some_and(|used| used.0 < MIB), "{variable}: {empty:?}");
        for number in 0..5 {
            let file = std::fs::File::create(home.join(format!("file{number}"))).unwrap();
            std::io::Write::write_all(&mut &file, &vec![7; MIB as usize]).unwrap();
            file.sync_all().unwrap();
        }
        let used = quota(&bench).await;
        let grown = used.used.value().unwrap().0 - empty.used.value().unwrap().0;
        assert!((5 * MIB..6 * MIB).contains(&grown), "{variable}: {grown}");
        let files = used.files_used.value().unwrap().0 - empty.files_used.value().unwrap().0;
        assert_eq!(files, 5, "{variable}");
        // The whole is not taken for the directory's, and the other way round.
        let after = storage.file_system(&Bench::home()).await.unwrap();
        assert_eq!(after.total, whole.total, "{variable}");
        assert!(after.total.0 > 100 * MIB, "{variable}: {after:?}");
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn everybody_may_read_it() {
    for variable in DISKS {
        let bench = posix_on(variable);
        run("chmod", &["755", bench.folder().to_str().unwrap()]);
        project(variable, &bench.folder().join("home"), 2002);
        xfs_quota(variable, "limit -p bhard=9m 2002");
        let mut look = Command::new(env!("CARGO_BIN_EXE_eirene-look"));
        look.arg("root").arg(bench.folder()).arg("home").uid(65_534).gid(65_534);
        let seen: Seen = serde_json::from_slice(&look.output().unwrap().stdout).unwrap();
        let storage = Posix::new(Arc::new(Told(seen.into_look().unwrap())));
        match storage.directory_quota(&Bench::home()).await.unwrap() {
            Known::Known(quota) => {
                assert_eq!(quota.limit, Known::Known(Limit::At(eirene_core::storage::Bytes(9 * MIB))), "{variable}");
            }
            Known::Missing(why) => panic!("{variable}: {why:?}"),
        }
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn what_a_file_system_counts_for_a_person_is_told_to_her_and_to_nobody_else() {
    /// Somebody who has nothing else there.
    const PERSON: u32 = 12_400;
    for variable in DISKS {
        let bench = posix_on(variable);
        let home = bench.folder().join("hers");
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(bench.folder(), PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&home, Some(PERSON), Some(PERSON)).unwrap();
        let quota = async |by: u32| {
            let mut look = Command::new(env!("CARGO_BIN_EXE_eirene-look"));
            look.arg("home").arg(&home).uid(by).gid(by);
            let seen: Seen = serde_json::from_slice(&look.output().unwrap().stdout).unwrap();
            let storage = Posix::new(Arc::new(Told(seen.into_look().unwrap())));
            storage.person_quota(&Bench::home()).await.unwrap()
        };
        let of_her = async || match quota(PERSON).await {
            Known::Known(quota) => quota,
            Known::Missing(why) => panic!("{variable}: {why:?}"),
        };
        let free = of_her().await;
        assert_eq!(free.id, eirene_core::storage::QuotaId::User(PERSON), "{variable}");
        assert_eq!((free.limit, free.files_limit), (Known::Known(Limit::Unlimited), Known::Known(Limit::Unlimited)));
        xfs_quota(variable, &format!("limit -u bsoft=10m bhard=20m ihard=50 {PERSON}"));
        // Hers, wherever on the file system they lie.
        for (number, directory) in [bench.folder(), home.as_path(), home.as_path()].into_iter().enumerate() {
            let path = directory.join(format!("file{number}"));
            let file = std::fs::File::create(&path).unwrap();
            std::io::Write::write_all(&mut &file, &vec![7; MIB as usize]).unwrap();
            file.sync_all().unwrap();
            std::os::unix::fs::chown(&path, Some(PERSON), Some(PERSON)).unwrap();
        }
        let used = of_her().await;
        let limit = eirene_core::storage::Bytes(10 * MIB);
        assert_eq!(used.limit, Known::Known(Limit::At(limit)), "{variable}: the soft one");
        assert_eq!(used.files_limit, Known::Known(Limit::At(Files(50))), "{variable}");
        let grown = used.used.value().unwrap().0 - free.used.value().unwrap().0;
        assert!((3 * MIB..4 * MIB).contains(&grown), "{variable}: {grown}");
        let files = used.files_used.value().unwrap().0 - free.files_used.value().unwrap().0;
        assert_eq!(files, 3, "{variable}");
        let others = quota(65_534).await;
        assert_eq!(others, Known::Missing(Why::NotSupported), "{variable}: it is not his home");
        let in_space = |by: u32| {
            let mut look = Command::new(env!("CARGO_BIN_EXE_eirene-look"));
            look.arg("own").arg(bench.folder()).arg("hers").uid(by).gid(by);
            let seen: Seen = serde_json::from_slice(&look.output().unwrap().stdout).unwrap();
            seen.into_look().unwrap().own
        };
        let Some(Own::Told(own)) = in_space(PERSON) else { panic!("{variable}: nothing is told of her space") };
        let counted = Known::Known(eirene_core::storage::Bytes(own.used));
        assert_eq!((own.uid, counted), (PERSON, used.used), "{variable}: the same as of her home");
        assert_eq!(in_space(65_534), None, "{variable}: it is not his space");
        xfs_quota(variable, &format!("limit -u bsoft=0 bhard=0 ihard=0 {PERSON}"));
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn root_is_told_what_a_file_system_counts_for_everybody_and_nobody_else_is() {
    /// Somebody who has nothing else there, and three numbers behind hers of whom nobody has anything.
    const PERSON: u32 = 12_500;
    const RANGE: QuotaRange = QuotaRange { of: QuotaOf::User, first: PERSON - 1, last: PERSON + 3 };
    for variable in DISKS {
        let bench = posix_on(variable);
        let storage = bench.storage();
        let of_her = async || {
            let quotas = storage.quota(QuotaId::User(PERSON)).await.unwrap();
            assert_eq!((quotas.value.len(), quotas.doubts.len()), (1, 0), "{variable}: {quotas:?}");
            quotas.value[0].clone()
        };
        let before = of_her().await;
        assert_eq!(before.used, Known::Known(Bytes(0)), "{variable}: nothing is hers yet");
        let path = bench.folder().join("hers");
        let file = std::fs::File::create(&path).unwrap();
        std::io::Write::write_all(&mut &file, &vec![7; 3 * MIB as usize]).unwrap();
        file.sync_all().unwrap();
        // XFS keeps room behind the end of a file for as long as it is open.
        drop(file);
        std::os::unix::fs::chown(&path, Some(PERSON), Some(PERSON)).unwrap();
        let unlimited = of_her().await;
        assert_eq!(unlimited.limit, Known::Known(Limit::Unlimited), "{variable}");
        xfs_quota(variable, &format!("limit -u bhard=20m ihard=50 {PERSON}"));
        let hers = of_her().await;
        assert_eq!((hers.id, hers.pool), (QuotaId::User(PERSON), None), "{variable}");
        assert_eq!(hers.limit, Known::Known(Limit::At(Bytes(20 * MIB))), "{variable}");
        assert_eq!(hers.files_limit, Known::Known(Limit::At(Files(50))), "{variable}");
        let used = hers.used.value().unwrap().0;
        assert!((3 * MIB..4 * MIB).contains(&used), "{variable}: {used}");
        assert_eq!(hers.files_used, Known::Known(Files(1)), "{variable}");

        let quotas = storage.quotas(RANGE).await.unwrap();
        let ids: Vec<_> = quotas.value.iter().map(|quota| quota.id).collect();
        assert_eq!(ids, (RANGE.first..=RANGE.last).map(QuotaId::User).collect::<Vec<_>>(), "{variable}");
        assert_eq!(quotas.value[1], hers, "{variable}: in a range as by herself");
        for quota in quotas.value.iter().filter(|quota| quota.id != hers.id) {
            assert_eq!((quota.used, quota.files_used), (Known::Known(Bytes(0)), Known::Known(Files(0))), "{variable}");
        }
        assert_eq!(storage.capabilities().await.quota_read, Ability::Yes, "{variable}");
        let set = storage.set_quota(QuotaId::User(PERSON), None, Some(Limit::Unlimited), None).await;
        assert!(matches!(set, Err(StorageError::Unsupported(_))), "{variable}: {set:?}");

        // The disks count for users and projects: of groups there is a reason, and no number.
        let groups = storage.quotas(QuotaRange { of: QuotaOf::Group, ..RANGE }).await;
        let said =
            matches!(groups, Err(StorageError::Refused { why: Why::NotEnabled, .. } | StorageError::Unsupported(_)));
        assert!(said, "{variable}: {groups:?}");

        // Without the capability to ask of others the kernel refuses, and so does the launcher's own code.
        let mut refused = Command::new("setpriv");
        refused.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]).arg(std::env::current_exe().unwrap());
        refused.args(["--exact", "disks::without_the_capability_nobody_is_told_of_others", "--ignored", "--nocapture"]);
        let output = refused.env("EIRENE_TEST_QUOTAS_REFUSED", bench.folder()).output().unwrap();
        assert!(output.status.success(), "{variable}: {}", String::from_utf8_lossy(&output.stdout));

        xfs_quota(variable, &format!("limit -u bhard=0 ihard=0 {PERSON}"));
    }
}

/// The other half of the test above, which is run by it as root without the capability.
#[test]
#[ignore = "storage/tests/with-xfs runs it"]
fn without_the_capability_nobody_is_told_of_others() {
    let Some(folder) = std::env::var_os("EIRENE_TEST_QUOTAS_REFUSED") else { return };
    let range = QuotaRange { of: QuotaOf::User, first: 12_500, last: 12_500 };
    let refusal = quotas(Path::new(&folder), false, range).unwrap_err();
    assert_eq!(refusal.code, "not_configured", "{}", refusal.text);
    assert!(refusal.text.contains("CAP_SYS_ADMIN"), "{}", refusal.text);
}

/// What another process saw.
struct Told(Look);

#[async_trait::async_trait]
impl Probe for Told {
    async fn look(&self, _: &eirene_core::storage::Place) -> Result<Look, StorageError> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn what_is_read_only_is_said_to_be() {
    for variable in DISKS {
        let bench = posix_on(variable);
        let (_, point) = disk(variable);
        let before = bench.storage().file_system(&Bench::home()).await.unwrap();
        run("mount", &["-o", "remount,ro", &point]);
        let after = bench.storage().file_system(&Bench::home()).await;
        run("mount", &["-o", "remount,rw", &point]);
        let after = after.unwrap();
        assert_eq!((before.read_only, after.read_only), (false, true), "{variable}");
        assert_eq!(after.identity, before.identity, "{variable}: it is the same one");
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn a_mount_that_vanished_has_no_numbers_and_what_lies_there_instead_is_another_one() {
    for variable in DISKS {
        let bench = posix_on(variable);
        let (device, point) = disk(variable);
        let kind = if variable == "EIRENE_TEST_XFS" { "xfs" } else { "ext4" };
        let storage = bench.storage();
        let before = storage.file_system(&Bench::home()).await.unwrap();
        run("umount", &["-l", &point]);
        let gone = storage.file_system(&Bench::home()).await;
        // Somebody makes the directories anew in what is beneath.
        let home = bench.folder().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let other = storage.file_system(&Bench::home()).await;
        std::fs::remove_dir(&home).unwrap();
        std::fs::remove_dir(bench.folder()).unwrap();
        run("mount", &["-t", kind, "-o", "usrquota,prjquota", &device, &point]);
        assert!(matches!(gone, Err(StorageError::NoSuchPlace { .. })), "{variable}: {gone:?}");
        let other = other.unwrap();
        assert_ne!(other.identity.kind, before.identity.kind, "{variable}");
        assert_ne!(other.identity.fs_id, before.identity.fs_id, "{variable}");
        let again = storage.file_system(&Bench::home()).await.unwrap();
        let (again, before) = (again.identity, before.identity);
        assert_eq!((again.kind, again.source, again.root_inode), (before.kind, before.source, before.root_inode));
    }
}

#[tokio::test]
#[ignore = "storage/tests/with-xfs runs it"]
async fn the_launcher_s_limit_of_a_space_is_held_by_the_kernel_and_seen_by_a_look() {
    for variable in DISKS {
        let bench = posix_on(variable);
        let spaces = bench.folder().join("limited");
        std::fs::create_dir(&spaces).unwrap();
        std::fs::set_permissions(bench.folder(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&spaces, PermissionsExt::from_mode(0o755)).unwrap();
        init(&spaces).unwrap();
        let root = Root::open(&spaces).unwrap();
        let stars = "stars".parse().unwrap();
        let inode = root.make(&stars, Whose::Person { uid: 65534, gid: 65534 }).unwrap().inode;
        let most = |bytes, files| Most { bytes, files };
        root.limit(&stars, inode, 300_001, most(None, None)).unwrap();
        root.limit(&stars, inode, 300_001, most(Some(8 * MIB), Some(20))).unwrap();
        let directory = spaces.join("stars");
        let look = look_at(&spaces, Path::new("stars"), true).unwrap();
        assert_eq!(look.project.map(|project| (project.id, project.inherited)), Some((300_001, true)), "{variable}");
        assert_eq!(look.directory.total, 8 * MIB, "{variable}");
        // As the person: root is held by no limit.
        let write = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).current_dir(&directory).uid(65534).gid(65534);
            shell.output().unwrap()
        };
        assert!(write("head -c 6M /dev/zero > a && sync a").status.success(), "{variable}");
        let refused = write("head -c 6M /dev/zero > b && sync b");
        assert!(!refused.status.success(), "{variable}: {refused:?}");
        let _ = write("rm b");
        assert!(!write("for i in $(seq 40); do : > n$i || exit 1; done").status.success(), "{variable}");

        // What is there already counts, and nothing else takes its place.
        root.limit(&stars, inode, 300_001, most(None, None)).unwrap();
        assert!(write("head -c 9M /dev/zero > b && sync b").status.success(), "{variable}");
        assert_eq!(root.limit(&stars, inode + 1, 300_001, most(None, None)).unwrap_err().code, "conflict");
        assert_eq!(
            root.limit(&stars, inode, 300_002, most(None, None)).unwrap_err().code,
            "conflict",
            "another's project"
        );
        let full = "full".parse().unwrap();
        let inode = root.make(&full, Whose::Group { gid: 65534, writable: true }).unwrap().inode;
        std::fs::write(spaces.join("full/before"), "it would not count").unwrap();
        let refused = root.limit(&full, inode, 300_003, most(Some(MIB), None)).unwrap_err();
        assert_eq!(refused.code, "conflict", "{variable}");
        assert!(refused.text.contains("project -s -p") && refused.text.contains("300003"), "{}", refused.text);
        std::fs::remove_file(spaces.join("full/before")).unwrap();
        root.limit(&full, inode, 300_003, most(Some(MIB), None)).unwrap();
        let trash = look_at(&spaces, Path::new("full/.eirene-trash"), true).unwrap();
        assert_eq!(trash.project.map(|project| project.id), Some(300_003), "what is thrown away counts");
    }
}
