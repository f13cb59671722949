//! Runs: the program that a job without a browser carries out in the app's place.
//!
//! It is one process on the first node, in the same container as a session's app. Several ranks are started by `eirene-train run`, a notebook's
//! cells do it themselves: both through the step socket, as everywhere.

use std::path::{Path, PathBuf};

use eirene_core::RunProgram;
use eirene_core::run::FileKind;

use crate::app::{self, RUNTIME};
use crate::container::Content;
use crate::job::{Environment, Job};

/// Executes a notebook with the image's own Jupyter.
const NOTEBOOK: &str = include_str!("notebook.py");

/// How long ranks may take to end when they are asked, seconds: less than what SLURM leaves to the job.
const GRACE_S: &str = "20";

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum RunError {
    /// No file in the home.
    #[error("there is no file `{0}` in the home directory")]
    NoFile(String),
    /// A directory or the like.
    #[error("`{0}` is no file")]
    NotAFile(String),
    /// It cannot be run as it is.
    #[error("`{0}` is neither Python (`.py`) nor a notebook (`.ipynb`), and not executable: `chmod +x` makes it so")]
    NotExecutable(String),
}

/// What runs in the container.
pub(crate) fn content(run: &RunProgram, environment: &Environment, job: &Job) -> Result<Content, RunError> {
    let home = environment.get("HOME").unwrap_or("/");
    let file = absolute(&run.file, home);
    look(run, &file, home)?;
    let mut own = vec![
        ("EIRENE_RUN", job.file.session.to_string()),
        // Kernels' sockets.
        ("JUPYTER_RUNTIME_DIR", format!("{RUNTIME}/jupyter")),
        // What is printed is read while the program runs.
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ];
    if !run.preflight {
        // A notebook's cells and a program's own calls start ranks too.
        own.push(("EIRENE_TRAIN_PREFLIGHT", "off".to_owned()));
    }
    Ok(Content {
        command: command(run, &file, job),
        environment: app::environment(own, environment, job),
        writable_image: false,
        directory: file.parent().map(|directory| directory.to_string_lossy().into_owned()),
    })
}

fn absolute(file: &str, home: &str) -> PathBuf {
    // Joining an absolute path gives that path.
    Path::new(home).join(file.strip_prefix("~/").unwrap_or(file))
}

/// Whether the file is there, as far as it can be seen from outside of the container: what lies elsewhere may be the image's own.
fn look(run: &RunProgram, file: &Path, home: &str) -> Result<(), RunError> {
    use std::os::unix::fs::PermissionsExt as _;
    if !file.starts_with(home) {
        return Ok(());
    }
    let shown = || run.file.clone();
    let Ok(metadata) = file.metadata() else { return Err(RunError::NoFile(shown())) };
    if !metadata.is_file() {
        return Err(RunError::NotAFile(shown()));
    }
    let executable = metadata.permissions().mode() & 0o111 != 0;
    if run.kind() == FileKind::Program && !executable {
        return Err(RunError::NotExecutable(shown()));
    }
    Ok(())
}

fn command(run: &RunProgram, file: &Path, job: &Job) -> Vec<String> {
    let text = file.to_string_lossy().into_owned();
    let mut words: Vec<String> = Vec::new();
    let mut say = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match (run.kind(), run.ranks) {
        (FileKind::Notebook, _) => {
            let executed = run.executed(job.file.session).unwrap_or_default();
            let executed = file.with_file_name(executed.rsplit('/').next().unwrap_or_default());
            say(&["python3", "-c", NOTEBOOK, &text, &executed.to_string_lossy()]);
        }
        (_, Some(ranks)) => {
            // Ranks that are told to end may write a checkpoint first.
            say(&["eirene-train", "run", "-n", &ranks.to_string(), "--grace", GRACE_S]);
            if !run.preflight {
                // Images from before the variable know the option.
                say(&["--no-preflight"]);
            }
            say(&[&text]);
        }
        (FileKind::Python, None) => say(&["python3", &text]),
        (FileKind::Program, None) => say(&[&text]),
    }
    words.extend(run.arguments.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::job::tests::{environment, file};
    use crate::log::Log;

    async fn job(directory: &Path) -> Job {
        let path = directory.join("job.json");
        crate::job::write_private(&path, &serde_json::to_string(&file(0)).unwrap()).unwrap();
        Job::read(&path, &environment(&[]), &Log::new(std::io::sink())).await.unwrap()
    }

    fn wanted(file: &str, ranks: Option<u32>) -> RunProgram {
        RunProgram { file: file.to_owned(), arguments: Vec::new(), ranks, preflight: true }
    }

    #[tokio::test]
    async fn each_kind_of_file_is_run_in_its_own_way() {
        let home = tempfile::tempdir().unwrap();
        let job = job(home.path()).await;
        let home = home.path().to_str().unwrap();
        std::fs::create_dir(format!("{home}/a")).unwrap();
        for name in ["a/train.py", "a/train.ipynb", "a/tool"] {
            std::fs::write(format!("{home}/{name}"), "").unwrap();
        }
        std::fs::set_permissions(format!("{home}/a/tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let environment = environment(&[("HOME", home)]);
        let content = |run: &RunProgram| content(run, &environment, &job).unwrap();
        let one = content(&wanted("~/a/train.py", None));
        assert_eq!(one.command, ["python3", &format!("{home}/a/train.py")]);
        assert_eq!(one.directory.as_deref(), Some(&*format!("{home}/a")));
        assert!(one.environment.contains(&("EIRENE_RUN".to_owned(), job.file.session.to_string())));
        let mut many = wanted("a/train.py", Some(8));
        (many.preflight, many.arguments) = (false, vec!["--epochs".into(), "3".into()]);
        let script = format!("{home}/a/train.py");
        let words = ["eirene-train", "run", "-n", "8", "--grace", "20", "--no-preflight", &script, "--epochs", "3"];
        let many = content(&many);
        assert_eq!(many.command, words);
        // A notebook's cells start ranks themselves, so what is wanted of nodes is theirs to know too.
        let untried = ("EIRENE_TRAIN_PREFLIGHT".to_owned(), "off".to_owned());
        assert!(many.environment.contains(&untried) && !one.environment.contains(&untried));
        assert_eq!(content(&wanted("a/tool", None)).command, [format!("{home}/a/tool")]);
        assert_eq!(content(&wanted("/opt/images/own", None)).command, ["/opt/images/own"]);
        let notebook = content(&wanted("a/train.ipynb", None)).command;
        let executed = format!("{home}/a/train.run-{}.ipynb", job.file.session);
        assert_eq!((notebook[3].as_str(), notebook[4].as_str()), (&*format!("{home}/a/train.ipynb"), &*executed));
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_or_cannot_be_run_is_named() {
        let home = tempfile::tempdir().unwrap();
        let job = job(home.path()).await;
        let text = home.path().to_str().unwrap();
        std::fs::write(format!("{text}/tool"), "").unwrap();
        let environment = environment(&[("HOME", text)]);
        let error = |name: &str| content(&wanted(name, None), &environment, &job).unwrap_err();
        assert_eq!(error("train.py"), RunError::NoFile("train.py".into()));
        assert_eq!(error("tool"), RunError::NotExecutable("tool".into()));
        assert_eq!(error("."), RunError::NotAFile(".".into()));
    }
}
