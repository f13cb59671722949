//! Ranks as processes: the test binary runs itself again for each, and talks with them by lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use eirene_train_mesh::{Mesh, Phase, Plan};

use crate::world::{How, soon};

const VARIABLE: &str = "MESH_TEST_RANK";

/// What one rank's process is told; it travels as text in the environment.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) how: How,
    /// Each rank counts as a node of its own.
    pub(crate) apart: bool,
    /// Where directories for sockets are made.
    pub(crate) rooms: Option<std::path::PathBuf>,
    /// That is the directory for all sockets itself.
    pub(crate) shared_rooms: bool,
    /// The rank kills itself when it gets here.
    pub(crate) dies_at: Option<Phase>,
    pub(crate) timeout: Duration,
}

impl Orders {
    pub(crate) fn new(rank: u32, size: u32, how: &How) -> Self {
        let (how, timeout) = (how.clone(), Duration::from_mins(1));
        Self { rank, size, how, apart: false, rooms: None, shared_rooms: false, dies_at: None, timeout }
    }

    fn to_text(&self) -> String {
        let (kind, place) = match &self.how {
            How::Directory(path) => ("directory", path.display().to_string()),
            How::File(path) => ("file", path.display().to_string()),
            How::Address(port) => ("address", port.to_string()),
        };
        let rooms = self.rooms.as_ref().map_or_else(String::new, |path| path.display().to_string());
        let dies_at =
            PHASES.iter().position(|phase| Some(*phase) == self.dies_at).map_or(-1, |at| i32::try_from(at).unwrap());
        let timeout = self.timeout.as_millis();
        format!(
            "{};{};{kind};{place};{};{rooms};{dies_at};{timeout};{}",
            self.rank, self.size, self.apart, self.shared_rooms
        )
    }

    fn parse(text: &str) -> Self {
        let parts: Vec<&str> = text.split(';').collect();
        let how = match parts[2] {
            "directory" => How::Directory(parts[3].into()),
            "file" => How::File(parts[3].into()),
            _ => How::Address(parts[3].parse().unwrap()),
        };
        Self {
            rank: parts[0].parse().unwrap(),
            size: parts[1].parse().unwrap(),
            how,
            apart: parts[4] == "true",
            rooms: Some(parts[5].into()).filter(|path: &std::path::PathBuf| !path.as_os_str().is_empty()),
            dies_at: usize::try_from(parts[6].parse::<i32>().unwrap()).ok().map(|at| PHASES[at]),
            timeout: Duration::from_millis(parts[7].parse().unwrap()),
            shared_rooms: parts[8] == "true",
        }
    }

    fn plan(&self) -> Plan {
        let mut plan = self.how.plan(self.rank, self.size);
        plan.timeout = self.timeout;
        plan.directory = self.rooms.clone().filter(|_| self.shared_rooms);
        plan.node = self.apart.then(|| self.rank.to_string());
        let dies_at = self.dies_at;
        plan.progress = Some(Box::new(move |phase| {
            if Some(phase) == dies_at {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        }));
        plan
    }
}

pub(crate) const PHASES: [Phase; 6] =
    [Phase::Meeting, Phase::Arrived, Phase::Listening, Phase::Calling, Phase::Linked, Phase::Joined];

/// What the process of a rank does: joins, says how that went, then obeys lines until they end.
pub(crate) fn serve(obey: impl Fn(&Mesh, &str)) {
    let Ok(orders) = std::env::var(VARIABLE) else { return };
    let orders = Orders::parse(&orders);
    let mesh = match Mesh::join(orders.plan()) {
        Ok(mesh) => mesh,
        Err(error) => {
            say(&format!("failed: {error}"));
            return;
        }
    };
    say("joined");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "leave" => {
                drop(mesh);
                say("left");
                return;
            }
            "trouble" => {
                let (rung, bell) = channel();
                mesh.on_trouble(Box::new(move || {
                    let _ = rung.send(());
                }));
                bell.recv_timeout(soon() - Instant::now()).unwrap();
                say(&format!("{:?}", mesh.trouble().unwrap()));
            }
            "quiet" => say(&format!("{:?}", mesh.trouble())),
            line => obey(&mesh, line),
        }
    }
}

/// Says a line to the test. Not by `println`, which the test harness keeps.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n@{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A rank's process.
pub(crate) struct Rank {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Rank {
    /// Starts a rank; `entry` names the test that calls [`serve`].
    pub(crate) fn start(entry: &str, orders: &Orders) -> Self {
        Self::start_by(Command::new("env"), entry, orders)
    }

    /// Starts a rank by way of another program.
    pub(crate) fn start_by(mut command: Command, entry: &str, orders: &Orders) -> Self {
        command.arg(std::env::current_exe().unwrap()).args([
            entry,
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
        if let Some(rooms) = &orders.rooms {
            command.env("XDG_RUNTIME_DIR", rooms);
        }
        command.env(VARIABLE, orders.to_text()).env_remove("EIRENE_TRAIN_INTERFACE");
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix('@') {
                    let _ = sender.send(line.to_owned());
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    pub(crate) fn start_all(entry: &str, orders: &[Orders]) -> Vec<Self> {
        orders.iter().map(|orders| Self::start(entry, orders)).collect()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next line; `None` when the process has ended without one.
    pub(crate) fn hear(&self) -> Option<String> {
        match self.lines.recv_timeout(soon() - Instant::now()) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a rank says nothing"),
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear().expect("the rank answers")
    }

    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.hear().as_deref(), Some(line));
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn tell_all(ranks: &mut [Rank], line: &str) {
    for rank in ranks {
        rank.tell(line);
    }
}

pub(crate) fn expect_all(ranks: &[Rank], line: &str) {
    for rank in ranks {
        rank.expect(line);
    }
}

/// The inodes of a process's sockets.
pub(crate) fn sockets(process: &str) -> Vec<String> {
    let links = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let names = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names.filter_map(|name| name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(String::from)).collect()
}
