//! Builds real images through Docker Engine and runs them with Apptainer.
//!
//! Needs the demo cluster's images (`debian:trixie-slim` and the builder image). Under `EIRENE_UNIT_ONLY`, which is for machines
//! without Docker, the tests say that they do nothing.
#![cfg(feature = "docker")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use eirene_containers::docker::{BuildError, BuildRequest, build_sif};

const BUILDER_IMAGE: &str = "eirene-demo-node";

fn docker(arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).output().expect("the tests need the `docker` command")
}

fn text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

struct Recipe {
    directory: tempfile::TempDir,
    name: &'static str,
}

impl Recipe {
    /// A recipe, or `None` where no Engine is to be used.
    fn new(name: &'static str, dockerfile: &str) -> Option<Self> {
        if std::env::var_os("EIRENE_UNIT_ONLY").is_some() {
            #[expect(clippy::print_stderr, reason = "whoever runs the tests must know")]
            {
                eprintln!("NOT RUN: EIRENE_UNIT_ONLY is set, and this needs Docker Engine");
            }
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("recipe")).unwrap();
        std::fs::write(directory.path().join("recipe/Dockerfile"), dockerfile).unwrap();
        std::fs::write(directory.path().join("recipe/greeting"), "built by the test\n").unwrap();
        Some(Self { directory, name })
    }

    fn output_dir(&self) -> PathBuf {
        self.directory.path().join("output")
    }

    fn request(&self) -> BuildRequest {
        BuildRequest {
            recipe_dir: self.directory.path().join("recipe"),
            name: self.name.parse().unwrap(),
            builder_image: BUILDER_IMAGE.to_owned(),
            output_dir: self.output_dir(),
            rebuild: false,
        }
    }

    /// Builder containers for this recipe that are there now.
    fn builders(&self) -> String {
        let label = format!("label=org.eirene.builder=eirene-image-{}", self.name);
        text(&docker(&["ps", "--all", "--quiet", "--filter", &label]))
    }

    /// Docker images of this recipe.
    fn images(&self) -> String {
        let label = format!("label=org.eirene.image=eirene-image-{}", self.name);
        text(&docker(&["images", "--all", "--quiet", "--filter", &label]))
    }

    fn unfinished(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.output_dir())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".unfinished"))
            .collect()
    }
}

impl Drop for Recipe {
    fn drop(&mut self) {
        docker(&["rmi", "--force", &format!("eirene-image-{}", self.name)]);
    }
}

fn run_in_sif(sif: &Path, command: &[&str]) -> String {
    let mount = format!("{}:/image.sif:ro", sif.display());
    let engine =
        ["run", "--rm", "--network=none", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"];
    let rest = ["--device=/dev/fuse", "--env=HOME=/tmp", "--volume", &mount, "--entrypoint=sh"];
    // Some machines keep the device to root; the container's is its own.
    let as_nobody = "chmod 666 /dev/fuse && exec setpriv --reuid=nobody --regid=nogroup --clear-groups \"$@\"";
    let inner = [BUILDER_IMAGE, "-c", as_nobody, "sh", "apptainer", "exec", "--no-mount=tmp,home", "/image.sif"];
    let output = docker(&[&engine[..], &rest[..], &inner[..], command].concat());
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn a_recipe_becomes_a_sif_that_apptainer_runs() {
    let Some(recipe) = Recipe::new(
        "test-tiny",
        "FROM debian:trixie-slim AS build\nLABEL org.eirene.image=eirene-image-test-tiny\nCOPY greeting host* /tmp/\nRUN ls /tmp > /listing\n\
         FROM debian:trixie-slim\nENV ANSWER=42\nCOPY --from=build /tmp/greeting /listing /\n",
    ) else {
        return;
    };
    let mut lines = Vec::new();
    let sif = build_sif(&recipe.request(), &mut |line| lines.push(line.to_owned())).await.unwrap();

    assert!(lines.iter().any(|line| line.contains("FROM debian:trixie-slim")), "{lines:?}");
    assert_eq!(sif.path, recipe.output_dir().join(format!("{}.sif", sif.sha256)));
    let sum = Command::new("sha256sum").arg(&sif.path).output().unwrap();
    assert_eq!(text(&sum).split(' ').next(), Some(sif.sha256.as_str()));
    assert_eq!(std::fs::metadata(&sif.path).unwrap().len(), sif.size_bytes);
    assert_eq!(run_in_sif(&sif.path, &["cat", "/greeting"]), "built by the test");
    assert_eq!(run_in_sif(&sif.path, &["printenv", "ANSWER"]), "42");
    assert_eq!(run_in_sif(&sif.path, &["id", "-u"]), "65534");
    if Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        assert!(run_in_sif(&sif.path, &["cat", "/listing"]).contains("ca-certificates.crt"));
    }
    assert_eq!(recipe.unfinished(), Vec::<PathBuf>::new());

    assert_eq!(recipe.images(), "");

    let again = build_sif(&recipe.request(), &mut |_| {}).await.unwrap();
    assert!(again.unchanged && again.path == sif.path);
}

#[tokio::test]
async fn a_broken_recipe_says_what_failed() {
    let Some(recipe) = Recipe::new("test-broken", "FROM debian:trixie-slim\nRUN echo it hurts here >&2; exit 3\n")
    else {
        return;
    };
    let failed = build_sif(&recipe.request(), &mut |_| {}).await.unwrap_err();
    let BuildError::Failed { step: "the build", words } = &failed else { panic!("{failed:?}") };
    assert!(words.contains("it hurts here") && words.contains('3'), "{words}");
    assert_eq!(recipe.images(), "");
    assert_eq!(recipe.unfinished(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_builder_without_apptainer_is_an_error_and_leaves_nothing() {
    let Some(recipe) = Recipe::new("test-builder", "FROM debian:trixie-slim\nCOPY greeting /\n") else { return };
    let request = BuildRequest { builder_image: "debian:trixie-slim".to_owned(), ..recipe.request() };
    let failed = build_sif(&request, &mut |_| {}).await.unwrap_err();
    assert!(matches!(failed, BuildError::Failed { step: "the conversion", .. }), "{failed:?}");
    let missing = BuildRequest { builder_image: "eirene-no-such-image".to_owned(), ..recipe.request() };
    let failed = build_sif(&missing, &mut |_| {}).await.unwrap_err();
    assert!(matches!(failed, BuildError::Engine { .. }), "{failed:?}");
    assert_eq!(recipe.builders() + &recipe.images(), "");
    assert_eq!(recipe.unfinished(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_dropped_build_removes_its_container_and_files() {
    let Some(recipe) = Recipe::new("test-dropped", "FROM debian:trixie-slim\nCOPY greeting /\n") else { return };
    let request = recipe.request();
    let (converting, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let build = tokio::spawn(async move {
        build_sif(&request, &mut |line| {
            if line.contains("Starting build") {
                let _ = converting.send(());
            }
        })
        .await
    });
    begun.recv().await.expect("the conversion begins");
    assert_ne!(recipe.builders(), "");
    build.abort();
    assert!(build.await.unwrap_err().is_cancelled());
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !recipe.builders().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the builder's container is still there");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(recipe.unfinished(), Vec::<PathBuf>::new());
}
