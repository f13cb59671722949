//! A launcher, the people it knows, and how it is asked.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use eirene_core::SessionId;
use eirene_core::launcher::{LauncherAnswer, LauncherRequest, SlurmProgram};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_eirene-launcher");
/// A test that waits longer than this for one thing hangs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const KEY: &[u8] = b"a key that only tests sign with";
const PEOPLE: &str = "root:x:0:0:root:/root:/bin/bash
slurm:x:640:640::/var/lib/slurm:/usr/sbin/nologin
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
daemon:x:1:1::/usr/sbin:/usr/sbin/nologin
portal:x:990:990::/var/lib/eirene:/usr/sbin/nologin
op:x:1900:1900::/nonexistent:/usr/sbin/nologin
op-again:x:1900:1900::/home:/bin/bash
slurmadm:x:1901:1901::/home:/bin/bash
slurmadm-again:x:1901:1901::/home:/bin/bash
portal-again:x:990:990::/home:/bin/bash
bee:x:1950:1950::/nonexistent:/usr/sbin/nologin
bee-again:x:1950:1950::/home:/bin/bash
sweep:x:1970:1970::/nonexistent:/usr/sbin/nologin
sweep-again:x:1970:1970::/home:/bin/bash
dynamic:x:61200:61200::/home:/bin/bash
homeless:x:2004:2004::/nonexistent:/bin/bash
rootish:x:2005:0::/home:/bin/bash
";
const GROUPS: &str = "root:x:0:\nportal:x:990:\nada:x:2001:\ngrace:x:2002:\nresearch:x:2000:ada\nbee:x:1950:\nsweep:x:1970:\nwheel:x:10:\nbeegfs-secret:x:1960:bee\n";
/// A program that does what is said on its standard input, packet by packet, and ends when that ends.
const FILES_STUB: &str = "/bin/dash";
/// Says who it is and what it got, as SLURM's programs would see it.
const PROGRAM_STUB: &str = "#!/bin/sh
echo \"ids $(id -u) $(id -g) $(id -G)\"
echo \"umask $(umask)\"
echo \"directory $(pwd)\"
echo \"privileges $(grep -E 'NoNewPrivs|CapEff|CapPrm|SigBlk' /proc/self/status | tr -d '\\t\\n')\"
echo \"descriptors $(ls /proc/self/fd | tr '\\n' ' ')\"
for argument in \"$@\"; do echo \"argument $argument\"; done
env | sort | sed 's/^/variable /'
sed 's/^/input /'
echo told >&2
exit 4
";

/// Gives this thread, and what it starts, a user database of its own.
fn private_people(directory: &Path) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    let homes = directory.join("home");
    let passwd = format!(
        "{PEOPLE}ada:x:2001:2001::{0}/ada:/bin/bash\ngrace:x:2002:2002::{0}/grace:/bin/bash\n",
        homes.display()
    );
    for (name, text) in [("passwd", passwd.as_str()), ("group", GROUPS)] {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        mount(Some(&path), &Path::new("/etc").join(name), None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    }
    for (name, uid) in [("ada", 2001), ("grace", 2002)] {
        let home = homes.join(name);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::set_permissions(&home, Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(uid), Some(uid)).unwrap();
    }
}

/// A running launcher, its people and its folder.
pub(crate) struct Launcher {
    directory: tempfile::TempDir,
    pub(crate) process: Child,
}

impl Launcher {
    /// A running launcher that serves root; `None`, with a word about it, where the tests do not run as root.
    pub(crate) fn start() -> Option<Self> {
        Self::start_for("root")
    }

    pub(crate) fn start_for(peer: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            #[expect(clippy::print_stderr, reason = "whoever runs the tests must know")]
            {
                eprintln!("NOT ROOT: only the refusal to start is tested");
            }
            let output = Command::new(PROGRAM).arg("--config=/etc/passwd").output().unwrap();
            assert!(!output.status.success());
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // People must be able to go through it to their homes.
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        private_people(path);
        std::fs::write(path.join("key"), KEY).unwrap();
        for root in ["scratch", "project"] {
            std::fs::create_dir(path.join(root)).unwrap();
            std::fs::set_permissions(path.join(root), Permissions::from_mode(0o755)).unwrap();
            assert!(init_root(&path.join(root)).status.success());
        }
        std::fs::copy(FILES_STUB, path.join("files")).unwrap();
        std::fs::create_dir(path.join("bin")).unwrap();
        for program in ["sbatch", "scancel", "squeue", "scontrol"] {
            std::fs::write(path.join("bin").join(program), PROGRAM_STUB).unwrap();
            std::fs::set_permissions(path.join("bin").join(program), Permissions::from_mode(0o755)).unwrap();
        }
        let config = format!(
            "socket = \"{0}/launcher.sock\"\npeer_user = \"{peer}\"\njwt_key = \"{0}/key\"\nslurm_user = \"slurmadm\"\nservice_account = \"op\"\n\
             slurm_bin_dir = \"{0}/bin\"\naudit_log = \"{0}/audit.log\"\nfiles_program = \"{0}/files\"\nmost_files = 3\nlook_program = \"{0}/bin/eirene-look\"\n\
             purge_account = \"sweep\"\n[[space_root]]\nname = \"scratch\"\npath = \"{0}/scratch\"\nper = \"person\"\n\
             [[space_root]]\nname = \"project\"\npath = \"{0}/project\"\nper = \"group\"\n[beegfs]\ngeneration = 7\nprogram = \"{0}/bin/beegfs-ctl\"\naccount = \"bee\"\nclient_config = \"/etc/bee.conf\"\n",
            path.display()
        );
        std::fs::write(path.join("launcher.toml"), config).unwrap();
        std::fs::set_permissions(path.join("launcher.toml"), Permissions::from_mode(0o644)).unwrap();
        let mut launcher = Self { process: Self::spawn(path), directory };
        launcher.wait_until_ready();
        Some(launcher)
    }

    pub(crate) fn spawn(path: &Path) -> Child {
        Command::new(PROGRAM)
            .arg("--config")
            .arg(path.join("launcher.toml"))
            .env("SLURM_CONF", "/etc/slurm/of-the-test.conf")
            .env("SECRET_OF_THE_LAUNCHER", "1")
            .stderr(std::fs::File::options().append(true).create(true).open(path.join("log")).unwrap())
            .spawn()
            .unwrap()
    }

    /// Puts a program of root's where the configuration expects it.
    pub(crate) fn install(&self, program: &str, script: &str) {
        let path = self.path().join("bin").join(program);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Ends it and starts it again with another configuration.
    pub(crate) fn configure(&mut self, change: impl FnOnce(String) -> String) {
        let path = self.path().join("launcher.toml");
        std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap())).unwrap();
        self.kill();
        self.process = Self::spawn(self.path());
        self.wait_until_ready();
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn wait_until_ready(&mut self) {
        wait_for("the socket", || UnixStream::connect(self.socket()).is_ok());
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("launcher.sock")
    }

    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.path().join("home").join(name)
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn say(&self, lines: &[u8]) -> Vec<LauncherAnswer> {
        let mut stream = self.connect();
        stream.write_all(lines).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let answers = BufReader::new(stream).lines().map_while(Result::ok);
        answers.map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    pub(crate) fn ask(&self, request: &LauncherRequest) -> LauncherAnswer {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        let mut answers = self.say(&line);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    pub(crate) fn code(&self, request: &LauncherRequest) -> String {
        match self.ask(request) {
            LauncherAnswer::Refused { code, .. } => code,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path().join("audit.log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether times that only a quiet machine keeps are measured: with `EIRENE_TEST_DEEP`.
pub(crate) fn deep() -> bool {
    std::env::var_os("EIRENE_TEST_DEEP").is_some_and(|deep| !deep.is_empty())
}

pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Marks a root of spaces, as an administrator does.
pub(crate) fn init_root(path: &Path) -> std::process::Output {
    Command::new(PROGRAM).arg("init-root").arg(path).output().unwrap()
}

pub(crate) fn sign(person: &str) -> LauncherRequest {
    LauncherRequest::SignToken { person: person.parse().unwrap() }
}

pub(crate) fn write(person: &str, session: SessionId, content: &str) -> LauncherRequest {
    LauncherRequest::WriteJobFile { person: person.parse().unwrap(), session, content: content.to_owned() }
}

pub(crate) fn slurm(person: Option<&str>, program: SlurmProgram, arguments: &str) -> LauncherRequest {
    LauncherRequest::RunSlurm {
        person: person.map(|name| name.parse().unwrap()),
        program,
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        environment: Vec::new(),
        input: String::new(),
    }
}

/// Has a program say its process id and then hang; gives the path of what it said.
pub(crate) fn hanging(launcher: &Launcher, program: &str) -> PathBuf {
    let directory = launcher.path().join("said");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    let said = directory.join("pid");
    let script = format!("#!/bin/sh\necho $$ > {0}.new && mv {0}.new {0}\nexec sleep 1000\n", said.display());
    launcher.install(program, &script);
    said
}

pub(crate) fn is_gone(said: &Path) -> bool {
    has_ended(&std::fs::read_to_string(said).unwrap())
}

/// Whether the process of that number has ended.
pub(crate) fn has_ended(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).map_or(true, |stat| stat.contains(") Z "))
}
