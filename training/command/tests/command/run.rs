//! `eirene-train run` on this host: the real command, real processes.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::common::{Run, assert_nothing_left, is_running, living, marks, wait_until};
use crate::deep::{assert_within, deep};
use nix::sys::signal::Signal;

/// A rank's script that lets its processes be found again, and then does something.
fn marked(script: &str) -> String {
    format!(": > $BASE/pid-$$; {script}")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn every_rank_knows_who_it_is_and_every_line_says_whose_it_is() {
    let ended = Run::script(
        3,
        &[],
        "echo $EIRENE_TRAIN_RANK/$EIRENE_TRAIN_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE; echo oh >&2",
    )
    .end();
    assert_eq!(sorted(&ended.stdout()), ["[0] 0/3 0/3 0/3", "[1] 1/3 1/3 1/3", "[2] 2/3 2/3 2/3"]);
    assert_eq!(sorted(&ended.stderr), ["[0] oh", "[1] oh", "[2] oh"]);
    assert_eq!(ended.code, 0);
    ended.assert_nothing_left();
}

#[test]
fn ranks_are_what_detection_takes_them_for() {
    // The variables as the ranks get them, judged by the very function that ranks use.
    let ended = Run::script(2, &["--no-labels"], "[ $RANK = 1 ] && env; exit 0")
        .env("PMIX_RANK", "0")
        .env("PMIX_NAMESPACE", "x")
        .end();
    let text = ended.stdout();
    let variables = text.lines().filter_map(|line| line.split_once('='));
    let launch =
        eirene_train_launch::Launch::detect(&eirene_train_launch::Environment::new(variables, "c1", 1000)).unwrap();
    let line = launch.explain();
    assert!(
        line.starts_with("rank 1 of 2, 1 of 2 on this node; started by eirene-train run (EIRENE_TRAIN_RANK=1"),
        "{line}"
    );
    assert!(line.contains("; no MPI; ranks meet in directory "), "{line}");
}

#[test]
fn the_secret_comes_by_descriptor_and_stands_in_no_variable_or_argument() {
    let script = "od -An -tx1 < /proc/self/fd/$EIRENE_TRAIN_SECRET_FD | tr -d ' '; od -An -tx1 $EIRENE_TRAIN_SECRET_FILE | tr -d ' '; \
                  stat -c %a $EIRENE_TRAIN_SECRET_FILE $EIRENE_TRAIN_DIRECTORY; tr '\\0' '\\n' < /proc/$$/environ; cat /proc/$$/cmdline";
    let ended = Run::script(2, &["--no-labels"], &format!("[ $RANK = 1 ] || exit 0; {script}")).end();
    let text = ended.stdout();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].len(), 32);
    assert_eq!(lines[1..4], [lines[0], "600", "700"]);
    assert_eq!(text.matches(lines[0]).count(), 2);
    assert!(lines.iter().any(|line| line.starts_with("EIRENE_TRAIN_SECRET_FD=")));
}

#[test]
fn lines_of_several_ranks_are_never_torn() {
    // Lines written in pieces, longer than a pipe takes at once.
    let script = "i=0; while [ $i -lt 200 ]; do printf $RANK; printf '%0600d' 0; printf '%0700d' 0; echo $RANK; i=$((i+1)); done";
    let ended = Run::script(4, &[], script).end();
    let text = ended.stdout();
    assert_eq!(text.lines().count(), 800);
    for line in text.lines() {
        let rank = &line[1..2];
        assert_eq!(line.len(), 4 + 1302, "{line}");
        assert!(line.starts_with(&format!("[{rank}] {rank}0")) && line.ends_with(&format!("0{rank}")), "{line}");
    }
}

#[test]
fn bytes_that_are_no_text_pass_and_a_last_line_without_end_is_shown() {
    let ended = Run::script(1, &[], r"printf '\377\000\n\200'; printf 'end' >&2").end();
    assert_eq!(ended.stdout, b"[0] \xff\0\n[0] \x80\n");
    assert_eq!(ended.stderr, "[0] end\n");
    let ended = Run::script(1, &["--no-labels"], r"printf 'a\nb'").end();
    assert_eq!(ended.stdout, b"a\nb\n");
}

#[test]
fn a_progress_bar_is_seen_before_its_end_and_every_byte_of_it_without_labels() {
    let script =
        "printf 'a\\r10%%\\r20%%\\r' >&2; while [ ! -e $BASE/seen ]; do sleep 0.01; done; printf '\\r100%%\\n' >&2";
    let started = Run::script(1, &[], script).start();
    wait_until("the bar is seen", || started.stderr() == "[0] 20%\n");
    std::fs::write(started.base.path().join("seen"), "").unwrap();
    assert_eq!(started.end().stderr, "[0] 20%\n[0] 100%\n");
    // Longer than it takes until a bar is shown with labels.
    let pause = if deep() { "sleep 1.5" } else { ":" };
    let ended = Run::script(1, &["--no-labels"], &format!("printf 'a\\r10%%\\r'; {pause}; printf 'b\\n'")).end();
    assert_eq!(ended.stdout(), "a\r10%\rb\n");
}

#[test]
fn each_rank_may_have_a_file_instead() {
    let logs = tempfile::tempdir().unwrap();
    let path = logs.path().join("logs");
    let ended = Run::script(11, &["--output", path.to_str().unwrap()], "echo out $RANK; echo err >&2").end();
    assert_eq!((ended.code, ended.stdout(), ended.stderr.as_str()), (0, String::new(), ""));
    assert_eq!(sorted(&std::fs::read_to_string(path.join("rank-03.log")).unwrap()), ["err", "out 3"]);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 11);
    let ended = Run::script(2, &["--output", "/dev/null/no"], "true").end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.starts_with("eirene-train: cannot write to /dev/null/no: "), "{}", ended.stderr);
    ended.assert_nothing_left();
}

#[test]
fn the_first_failure_ends_all_and_is_said_first_and_last() {
    let script = marked(
        "case $RANK in 2) while [ $(ls $BASE | grep -c ready) -lt 3 ]; do :; done; echo 'bad thing' >&2; exit 3;; \
         *) trap 'echo consequence >&2; exit 9' TERM; : > $BASE/ready-$RANK; while :; do :; done;; esac",
    );
    let ended = Run::script(4, &[], &script).end();
    assert_eq!(ended.code, 3);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines[0], "[2] bad thing");
    assert!(
        lines[1].starts_with("eirene-train: rank 2 (on ")
            && lines[1].ends_with(") exited with code 3; ending the other 3 ranks")
    );
    assert_eq!(sorted(&lines[2..5].join("\n")), ["[0] consequence", "[1] consequence", "[3] consequence"]);
    assert!(
        lines[5].starts_with("eirene-train: the run failed: rank 2 (on ") && lines[5].ends_with(") exited with code 3")
    );
    assert_eq!(lines[6..], ["eirene-train: its last line on stderr:", "    bad thing"]);
    ended.assert_nothing_left();
}

#[test]
fn ranks_that_end_because_of_another_do_not_take_its_blame() {
    let script = "case $RANK in 2) while [ $(ls $BASE | grep -c noticed) -lt 2 ]; do :; done; echo 'bad thing' >&2; exit 3;; \
                  *) : > $BASE/noticed-$RANK; exit 113;; esac";
    let ended = Run::script(3, &[], script).end();
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with("exited with code 3\neirene-train: its last line on stderr:\n    bad thing\n"),
        "{}",
        ended.stderr
    );
    // Nobody else failed: it is not waited for without end, nor at all when nobody is left.
    assert_eq!(Run::script(2, &[], "[ $RANK = 1 ] && exit 113; sleep 1000").end().code, 113);
    assert_eq!(Run::script(2, &[], "exit 113").end().code, 113);
}

#[test]
fn a_rank_that_ends_well_before_the_others_is_no_failure() {
    let ended = Run::script(
        2,
        &[],
        "[ $RANK = 0 ] && { : > $BASE/done; exit 0; }; while [ ! -e $BASE/done ]; do sleep 0.01; done; echo late",
    )
    .end();
    assert_eq!((ended.code, ended.stdout().as_str()), (0, "[1] late\n"));
}

#[test]
fn a_rank_killed_by_a_signal_gives_the_code_a_shell_would() {
    let ended = Run::script(2, &[], "[ $RANK = 1 ] && kill -9 $$; sleep 100").end();
    assert_eq!(ended.code, 137);
    assert!(
        ended.stderr.contains(") was killed by signal 9 (SIGKILL): out of memory?; ending the other rank\n"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.ends_with("eirene-train: it wrote nothing to stderr\n"), "{}", ended.stderr);
    assert_eq!(Run::script(1, &[], "kill -SEGV $$").end().code, 139);
    assert_eq!(Run::script(1, &[], "exit 255").end().code, 255);
}

#[test]
fn a_rank_that_does_not_listen_is_killed_with_its_helpers() {
    let script = marked(
        "trap '' TERM INT; (: > $BASE/helper; while :; do sleep 0.05; done) & : > $BASE/pid-$!; \
                         [ $RANK = 0 ] && { while [ $(ls $BASE | grep -c pid-) -lt 4 ]; do :; done; exit 1; }; while :; do sleep 0.05; done",
    );
    let begin = Instant::now();
    let ended = Run::script(2, &["--grace", "0.3"], &script).end();
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("rank 1 did not end within 0.3 s and was killed"), "{}", ended.stderr);
    assert_within(Duration::from_secs(20), begin.elapsed());
    assert_eq!(marks(ended.base.path(), "pid-").len(), 4);
    wait_until("helpers are gone", || living(ended.base.path()).is_empty());
    ended.assert_nothing_left();
}

#[test]
fn signals_reach_all_ranks_and_the_exit_code_says_so() {
    for (signal, name, code) in
        [(Signal::SIGINT, "INT", 130), (Signal::SIGTERM, "TERM", 143), (Signal::SIGHUP, "HUP", 129)]
    {
        let script =
            marked(&format!("trap 'echo got {name}; exit 0' {name}; : > $BASE/ready-$$; while :; do sleep 0.01; done"));
        let started = Run::script(3, &[], &script).start();
        started.wait_for_marks("ready-", 3);
        started.signal(signal);
        let ended = started.end();
        assert_eq!(ended.code, code, "{}", ended.stderr);
        let expected: Vec<String> = (0..3).map(|rank| format!("[{rank}] got {name}")).collect();
        assert_eq!(sorted(&ended.stdout()), expected);
        ended.assert_nothing_left();
    }
}

#[test]
fn what_warns_is_the_rank_s_own_to_take_and_ends_nothing() {
    for (signal, name) in [(Signal::SIGUSR1, "USR1"), (Signal::SIGUSR2, "USR2")] {
        // A helper of a rank's, as a data loader has them, takes no warnings.
        let script = marked(&format!(
            "sleep 1000 & trap 'echo got {name}; kill $!; exit 0' {name}; : > $BASE/ready-$$; while kill -0 $!; do sleep 0.01; done; echo lost"
        ));
        let started = Run::script(2, &[], &script).start();
        started.wait_for_marks("ready-", 2);
        started.signal(signal);
        let ended = started.end();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(sorted(&ended.stdout()), [format!("[0] got {name}"), format!("[1] got {name}")]);
        ended.assert_nothing_left();
    }
}

#[test]
fn a_second_signal_kills_at_once() {
    let script = marked("trap 'echo no' INT; : > $BASE/ready-$$; while :; do sleep 0.01; done");
    let started = Run::script(2, &["--grace", "1000"], &script).start();
    started.wait_for_marks("ready-", 2);
    started.signal(Signal::SIGINT);
    wait_until("both said no", || String::from_utf8_lossy(&started.stdout()).matches("no").count() == 2);
    started.signal(Signal::SIGINT);
    let ended = started.end();
    assert_eq!(ended.code, 130);
    ended.assert_nothing_left();
}

#[test]
fn a_launcher_killed_without_mercy_leaves_no_process_and_no_directory() {
    // Also a helper that ignores every polite signal, and one in a sub-directory of the run's directory.
    let script = marked(
        "mkdir -p $EIRENE_TRAIN_DIRECTORY/deep/er; : > $EIRENE_TRAIN_DIRECTORY/deep/er/file-$RANK; trap '' TERM INT HUP; \
         (while :; do sleep 0.05; done) & : > $BASE/pid-$!; : > $BASE/ready-$$; while :; do sleep 0.05; done",
    );
    let started = Run::script(4, &[], &script).start();
    started.wait_for_marks("ready-", 4);
    assert_eq!(living(started.base.path()).len(), 8);
    assert_eq!(started.marks("eirene-train-run.").len(), 1);
    started.signal(Signal::SIGKILL);
    let ended = started.end();
    assert_eq!(ended.code, -9);
    wait_until("all processes are gone", || living(ended.base.path()).is_empty());
    wait_until("the directory is gone", || marks(ended.base.path(), "eirene-train-run.").is_empty());
}

#[test]
fn a_run_ends_its_keeper() {
    let started = Run::script(1, &[], ": > $BASE/ready; while [ ! -e $BASE/go ]; do sleep 0.01; done").start();
    started.wait_for_marks("ready", 1);
    let keepers = |launcher: u32| {
        let children =
            std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
        let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        children
            .split_whitespace()
            .filter(|pid| name(pid).trim() == "eirene-keeper")
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    wait_until("there is a keeper", || keepers(started.pid()).len() == 1);
    let keepers = keepers(started.pid());
    // It holds nothing but its pipe: whoever waits for the end of the run's outputs does not wait for it.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", keepers[0])).unwrap().count();
    wait_until("it holds its pipe only", || open() == 1);
    std::fs::write(started.base.path().join("go"), "").unwrap();
    assert_eq!(started.end().code, 0);
    assert!(!is_running(&keepers[0]));
}

#[test]
fn sixty_four_ranks_start_and_end() {
    let ended = Run::script(64, &[], "echo $RANK").end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let mut expected: Vec<String> = (0..64).map(|rank| format!("[{rank}] {rank}")).collect();
    expected.sort();
    assert_eq!(sorted(&ended.stdout()), expected);
}

#[test]
fn a_flood_keeps_nobody_from_speaking_and_no_byte_is_lost() {
    // Rank 0 floods until rank 1 was heard.
    let script = "[ $RANK = 1 ] && { while [ ! -e $BASE/flowing ]; do sleep 0.01; done; echo heard; : > $BASE/heard; exit 0; }; \
                  head -c 8388608 /dev/zero | tr '\\0' 'x' | fold -w 99; : > $BASE/flowing; while [ ! -e $BASE/heard ]; do echo more; done";
    let ended = Run::script(2, &[], script).end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let text = ended.stdout();
    assert_eq!(text.bytes().filter(|byte| *byte == b'x').count(), 8_388_608);
    assert_eq!(text.lines().filter(|line| *line == "[1] heard").count(), 1);
}

#[test]
fn nobody_reading_holds_the_ranks_but_not_ctrl_c() {
    let (base, mut child) =
        Run::script(2, &[], ": > $BASE/pid-$$; exec yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
            .start_unread();
    // A held rank does not use its processor: its time stands still.
    let pids = || {
        marks(base.path(), "pid-")
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy()[4..].to_owned())
            .collect::<Vec<_>>()
    };
    wait_until("ranks run", || pids().len() == 2);
    let state = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    wait_until("ranks are held by their pipes", || pids().iter().all(|pid| state(pid).contains("pipe")));
    let memory = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 64 * 1024, "{kilobytes} kB");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    wait_until("the run ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_nothing_left(base.path());
    drop(child.stdout.take());
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let (base, mut child) = Run::script(2, &[], ": > $BASE/pid-$$; exec yes").start_unread();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    wait_until("the run ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("cannot write output: Broken pipe"), "{said}");
    assert_nothing_left(base.path());
}

#[test]
fn a_program_that_is_not_there_is_named() {
    for (program, code) in [("/not/there", 127), ("/etc/passwd", 126)] {
        let ended = Run::new(["-n", "2", program]).end();
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(
            ended.stderr.starts_with(&format!("eirene-train: `{program}` cannot be started on ")),
            "{}",
            ended.stderr
        );
        ended.assert_nothing_left();
    }
}

#[test]
fn variables_and_threads_are_dealt_out() {
    let ended = Run::script(2, &["--no-labels", "--env", "A=b c", "--env", "PATH"], "echo \"$A $OMP_NUM_THREADS\"")
        .env("OMP_NUM_THREADS", "7")
        .end();
    assert_eq!(ended.stdout(), "b c 7\nb c 7\n");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let ended = Run::script(1, &["--no-labels"], "echo $OMP_NUM_THREADS").env("OMP_NUM_THREADS", "").end();
    assert_eq!(ended.stdout(), format!("{cpus}\n"));
    let ended = Run::script(
        u32::try_from(cpus).unwrap(),
        &["--bind", "core", "--no-labels"],
        "grep Cpus_allowed_list /proc/self/status | cut -f 2",
    )
    .end();
    let text = ended.stdout();
    let mut own: Vec<&str> = text.lines().collect();
    own.sort_unstable();
    own.dedup();
    assert_eq!(own.len(), cpus, "{text}");
}

#[test]
fn rank_0_alone_has_the_standard_input_and_only_where_that_is_asked_for() {
    let script = "echo \"$RANK:$(cat)\"";
    let ended = Run::script(3, &["--stdin"], script).input("words\n").end();
    assert_eq!(sorted(&ended.stdout()), ["[0] 0:words", "[1] 1:", "[2] 2:"]);
    ended.assert_nothing_left();
    let ended = Run::script(2, &[], script).input("words\n").end();
    assert_eq!(sorted(&ended.stdout()), ["[0] 0:", "[1] 1:"]);
}

#[test]
fn mistakes_on_the_command_line_have_their_own_code() {
    let usage = |arguments: &[&str]| {
        let ended = Run::new(arguments).end();
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        ended.stderr
    };
    assert_eq!(usage(&["true"]), "eirene-train: say how many ranks to run: `-n 4`\n");
    assert!(
        usage(&["--hostfile", "/not/there", "true"]).starts_with("eirene-train: cannot read host file `/not/there`")
    );
    assert_eq!(usage(&["-n", "2", "/not/there.py"]), "eirene-train: there is no script `/not/there.py`\n");
    assert!(usage(&["-n", "2", "not-there.py"]).starts_with("eirene-train: there is no script `not-there.py` in /"));
    let file = tempfile::Builder::new().suffix(".py").tempdir().unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(usage(&["-n", "2", path]), format!("eirene-train: `{path}` is no file\n"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "c1 slots=2\nc2 slots=x\n").unwrap();
    let path = file.path().to_str().unwrap();
    let expected = format!("eirene-train: host file `{path}`, line 2: `x` is no number of slots from 1 to 4096\n");
    assert_eq!(usage(&["--hostfile", path, "true"]), expected);
}
