//! `containers/images/assemble` puts together what a recipe is built from. Runs it on a copy of the recipes; needs neither Docker nor a network.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A repository that holds the recipes, the examples and nothing else; removed when dropped.
struct Repository {
    directory: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (folder, name) in [("containers", "images"), ("training", "examples")] {
            let target = directory.path().join(folder);
            fs::create_dir(&target).unwrap();
            let copied = Command::new("cp").arg("-R").arg(root.join(folder).join(name)).arg(target).status().unwrap();
            assert!(copied.success());
        }
        Self { directory }
    }

    fn add_wheel(&self, name: &str) {
        fs::create_dir_all(self.directory.path().join("dist")).unwrap();
        fs::write(self.directory.path().join("dist").join(name), "a wheel\n").unwrap();
    }

    fn target(&self) -> PathBuf {
        self.directory.path().join("assembled")
    }

    fn assemble(&self, recipe: &str) -> Output {
        let program = self.directory.path().join("containers/images/assemble");
        Command::new(program).arg(recipe).arg(self.target()).output().unwrap()
    }

    /// The last line of an `assemble` that must fail.
    fn refused(&self, recipe: &str) -> String {
        let output = self.assemble(recipe);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap().trim_end().to_owned()
    }
}

#[test]
fn a_recipe_that_needs_nothing_is_its_own_files() {
    let repository = Repository::new();
    assert!(repository.assemble("jupyter").status.success());
    let original = repository.directory.path().join("containers/images/jupyter");
    let compared = Command::new("diff").arg("-r").arg(original).arg(repository.target()).output().unwrap();
    assert!(compared.status.success(), "{compared:?}");
}

#[test]
fn pytorch_gets_the_recipe_it_builds_on_the_wheel_and_the_examples() {
    let repository = Repository::new();
    repository.add_wheel("eirene_train-0.1.0-cp310-abi3-any.whl");
    for _ in 0..2 {
        assert!(repository.assemble("pytorch").status.success());
        let recipe = ["Dockerfile", "jupyter/install.sh", "jupyter/check.py"];
        for name in recipe.into_iter().chain(["eirene_train-0.1.0-cp310-abi3-any.whl", "examples/ddp-digits.ipynb"]) {
            assert!(repository.target().join(name).is_file(), "{name}");
        }
    }
}

#[test]
fn a_wheel_that_is_missing_or_there_twice_is_an_error_that_says_how_to_make_one() {
    let repository = Repository::new();
    let none = "assemble: `dist/eirene_train-*.whl` must name one thing, not 0; wheels are built by `make wheel`";
    assert_eq!(repository.refused("pytorch"), none);
    repository.add_wheel("eirene_train-0.1.0-cp310-abi3-any.whl");
    repository.add_wheel("eirene_train-0.2.0-cp310-abi3-any.whl");
    assert_eq!(repository.refused("pytorch"), none.replace("not 0", "not 2"));
}

#[test]
fn an_unknown_recipe_and_a_directory_of_somebody_else_are_refused() {
    let repository = Repository::new();
    assert!(repository.refused("tensorflow").starts_with("assemble: there is no recipe `tensorflow` in "));
    assert!(repository.refused("../images/jupyter").starts_with("assemble: there is no recipe "));
    fs::create_dir(repository.target()).unwrap();
    fs::write(repository.target().join("thesis.tex"), "years of work\n").unwrap();
    assert!(repository.refused("jupyter").ends_with("holds something that is no recipe"));
    assert!(repository.target().join("thesis.tex").is_file());
}
