//! Images for the catalogue: a recipe is built by Docker Engine, then turned into one SIF file named by its SHA-256.
//!
//! Two steps through the Engine's API, so that nothing but the Engine is needed on the machine that builds, which may be another one
//! (`DOCKER_HOST`). First the recipe's folder is sent as a build context. Then the image is fetched, put into a container of the
//! *builder image* (any image that holds Apptainer), converted there without network and with few capabilities, and the SIF is
//! fetched back. The outcome is written under its final name only when it is complete, and a note beside it says which recipe it
//! came from, so that an unchanged recipe is not built again.
//!
//! A caller that drops the future, or dies, leaves little behind: the container ends by itself, and unfinished files are removed by
//! the next build. The catalogue, and who may add to it, are the backend's.

mod builder;
mod context;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{BuildImageOptionsBuilder, PruneImagesOptionsBuilder, RemoveImageOptionsBuilder};
use eirene_core::ImageName;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

pub use context::{RecipeError, recipe_hash};

/// The longest silence of the Engine that is waited out: a step of a build may compute for long without a word.
const SILENCE_S: u64 = 1800;
/// How often it is tried to remove what a build leaves, where somebody else is removing something …
const PRUNE_TRIES: u32 = 60;
/// … after this pause.
const PRUNE_PAUSE: Duration = Duration::from_millis(500);
/// Prefix of everything unfinished in the output directory.
const UNFINISHED: &str = ".unfinished-";
/// Label of everything the Engine keeps of a build; a recipe of several stages puts it on the others itself.
const LABEL: &str = "org.eirene.image";

/// What to build.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Folder with a `Dockerfile`.
    pub recipe_dir: PathBuf,
    /// Name in the catalogue.
    pub name: ImageName,
    /// A Docker image with Apptainer in it.
    pub builder_image: String,
    /// Where the SIF goes; made when missing.
    pub output_dir: PathBuf,
    /// Build even if the recipe has not changed.
    pub rebuild: bool,
}

/// A finished image file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sif {
    /// `<output directory>/<sha256>.sif`.
    pub path: PathBuf,
    /// SHA-256 of the file, lower-case hexadecimal.
    pub sha256: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// Whether it was there already, made from this very recipe.
    pub unchanged: bool,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The recipe cannot be used as it is.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// Another build writes to the same directory.
    #[error("another build writes to `{0}`")]
    Busy(PathBuf),
    /// A step of the recipe, or the conversion, failed; the words are its last ones.
    #[error("{step} failed: {words}")]
    Failed {
        /// The step.
        step: &'static str,
        /// Its last words.
        words: String,
    },
    /// Docker Engine cannot be reached, or refused.
    #[error("Docker Engine did not do it ({step})")]
    Engine {
        /// What was asked.
        step: &'static str,
        /// Its answer.
        #[source]
        source: Box<bollard::errors::Error>,
    },
    /// The output directory cannot be written to.
    #[error("cannot write to `{path}`")]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl BuildError {
    fn engine(step: &'static str) -> impl FnOnce(bollard::errors::Error) -> Self {
        move |source| Self::Engine { step, source: Box::new(source) }
    }

    fn output(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Output { path: path.to_owned(), source }
    }
}

/// The note beside a SIF: which recipe it came from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    recipe: String,
    sha256: String,
    size_bytes: u64,
}

/// Builds a recipe and converts it, unless that was done before. `progress` gets one line at a time.
pub async fn build_sif(request: &BuildRequest, progress: &mut (dyn FnMut(&str) + Send)) -> Result<Sif, BuildError> {
    let recipe = recipe_hash(&request.recipe_dir)?;
    let _lock = take_output(&request.output_dir)?;
    if !request.rebuild
        && let Some(sif) = known_sif(request, &recipe)
    {
        progress(&format!("{} is unchanged: {}", request.name, sif.path.display()));
        return Ok(sif);
    }

    let docker = connect()?;
    let tag = format!("eirene-image-{}", request.name);
    let built = build_and_convert(&docker, request, &tag, progress).await;
    forget_image(&docker, &tag).await;
    let sif = built?;
    let note = Note { recipe, sha256: sif.sha256.clone(), size_bytes: sif.size_bytes };
    write_note(&note_path(request), &note)?;
    progress(&format!("{}: {} MiB, {}", request.name, sif.size_bytes >> 20, sif.path.display()));
    Ok(sif)
}

async fn build_and_convert(
    docker: &Docker,
    request: &BuildRequest,
    tag: &str,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<Sif, BuildError> {
    build_image(docker, &request.recipe_dir, tag, progress).await?;
    let archive = export(docker, tag, &request.output_dir, progress).await?;
    // An image is some gigabytes, and the conversion unpacks it: no copy stays longer than it is needed.
    forget_image(docker, tag).await;
    progress("converting it");
    let builder = builder::Builder::start(docker, &request.builder_image, tag).await?;
    let converted = convert(&builder, archive, &request.output_dir, progress).await;
    builder.remove().await;
    converted
}

/// Removes what the Engine keeps of a build: the SIF is all anybody needs, and a changed recipe begins anew.
async fn forget_image(docker: &Docker, tag: &str) {
    let options = RemoveImageOptionsBuilder::default().force(true).build();
    match docker.remove_image(tag, Some(options), None).await {
        // A build that failed has no image.
        Ok(_) | Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => {}
        Err(error) => tracing::warn!(image = tag, %error, "could not remove a Docker image"),
    }
    let filters = HashMap::from([("dangling", vec!["true".to_owned()]), ("label", vec![format!("{LABEL}={tag}")])]);
    let options = PruneImagesOptionsBuilder::default().filters(&filters).build();
    let mut tries = 0;
    while let Err(error) = docker.prune_images(Some(options.clone())).await {
        tries += 1;
        // The Engine does this for one at a time.
        let is_taken = matches!(error, bollard::errors::Error::DockerResponseServerError { status_code: 409, .. });
        if !is_taken || tries >= PRUNE_TRIES {
            tracing::warn!(image = tag, %error, "could not remove the stages of a Docker image");
            break;
        }
        tokio::time::sleep(PRUNE_PAUSE).await;
    }
}

/// Docker Engine by the usual settings: `DOCKER_HOST`, else the socket of this machine.
fn connect() -> Result<Docker, BuildError> {
    Docker::connect_with_defaults()
        .map(|docker| docker.with_timeout(Duration::from_secs(SILENCE_S)))
        .map_err(BuildError::engine("connect"))
}

/// Builds the recipe's folder as `tag`. What lets this machine reach the outside (CA bundle, pip and apt settings, proxies) is
/// offered to the build as files under `host/` and as Docker's own proxy arguments.
async fn build_image(
    docker: &Docker,
    recipe_dir: &Path,
    tag: &str,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<(), BuildError> {
    let proxies = context::proxies(|name| std::env::var(name).ok());
    let host_files = context::host_files(Path::new("/"), std::env::var_os("PIP_CONFIG_FILE").map(Into::into)).await;
    let (reader, writer) = context::stream(recipe_dir.to_owned(), host_files);
    let labels = HashMap::from([(LABEL, tag)]);
    let options =
        BuildImageOptionsBuilder::default().t(tag).rm(true).forcerm(true).buildargs(&proxies).labels(&labels).build();
    let body = bollard::body_try_stream(ReaderStream::new(reader));
    let mut answers = docker.build_image(options, None, Some(body));
    let mut last_words = LastWords::default();
    let mut failure = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(info) => {
                for text in [info.stream, info.status].into_iter().flatten() {
                    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
                        last_words.hear(line);
                        progress(line);
                    }
                }
                if let Some(detail) = info.error_detail {
                    last_words.hear(detail.message.as_deref().unwrap_or("no reason given"));
                    failure = Some(BuildError::Failed { step: "the build", words: last_words.to_string() });
                }
            }
            Err(bollard::errors::Error::DockerStreamError { error }) => {
                last_words.hear(&error);
                failure = Some(BuildError::Failed { step: "the build", words: last_words.to_string() });
            }
            Err(source) => failure = Some(BuildError::engine("build the image")(source)),
        }
    }
    // What was wrong with the recipe's files explains whatever the Engine said about the broken stream.
    if let Ok(written) = writer.await {
        match written {
            Err(RecipeError::Sent(_)) | Ok(()) => {}
            Err(broken) => return Err(broken.into()),
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Writes the Docker image `tag` into a file, as `docker save` does.
async fn export(
    docker: &Docker,
    tag: &str,
    output_dir: &Path,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<tempfile::NamedTempFile, BuildError> {
    progress("fetching the image");
    let archive = unfinished_file(output_dir)?;
    let mut file = tokio::fs::File::from_std(archive.reopen().map_err(BuildError::output(archive.path()))?);
    let mut image = Box::pin(docker.export_image(tag));
    while let Some(chunk) = image.next().await {
        let chunk = chunk.map_err(BuildError::engine("fetch the image"))?;
        file.write_all(&chunk).await.map_err(BuildError::output(archive.path()))?;
    }
    file.flush().await.map_err(BuildError::output(archive.path()))?;
    Ok(archive)
}

/// Has `builder` make a SIF of what [`export`] wrote.
async fn convert(
    builder: &builder::Builder,
    archive: tempfile::NamedTempFile,
    output_dir: &Path,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<Sif, BuildError> {
    builder.put(archive.path()).await?;
    drop(archive);
    builder.convert(progress).await?;
    let unfinished = unfinished_file(output_dir)?;
    let (sha256, size_bytes) = builder.fetch(unfinished.path()).await?;
    let path = output_dir.join(format!("{sha256}.sif"));
    finish(unfinished, &path)?;
    Ok(Sif { path, sha256, size_bytes, unchanged: false })
}

/// Gives a complete file its name, readable for everybody: people's jobs open it.
fn finish(file: tempfile::NamedTempFile, path: &Path) -> Result<(), BuildError> {
    use std::os::unix::fs::PermissionsExt;
    let written = || -> io::Result<()> {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|failed| failed.error)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    written().map_err(BuildError::output(path))
}

fn unfinished_file(directory: &Path) -> Result<tempfile::NamedTempFile, BuildError> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory).map_err(BuildError::output(directory))
}

/// Makes the output directory this build's own until the answer is dropped, and removes what earlier ones left unfinished.
fn take_output(directory: &Path) -> Result<File, BuildError> {
    let failed = || BuildError::output(directory);
    std::fs::create_dir_all(directory).map_err(failed())?;
    let lock_path = directory.join(".lock");
    let lock = File::options().create(true).append(true).open(&lock_path).map_err(BuildError::output(&lock_path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Err(BuildError::Busy(directory.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => return Err(BuildError::output(&lock_path)(source)),
    }
    for entry in std::fs::read_dir(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            std::fs::remove_file(entry.path()).map_err(BuildError::output(&entry.path()))?;
        }
    }
    Ok(lock)
}

fn note_path(request: &BuildRequest) -> PathBuf {
    request.output_dir.join(format!("{}.recipe.json", request.name))
}

/// The SIF of an earlier build of the same recipe, if it is still there in its full size.
fn known_sif(request: &BuildRequest, recipe: &str) -> Option<Sif> {
    let note: Note = serde_json::from_slice(&std::fs::read(note_path(request)).ok()?).ok()?;
    let path = request.output_dir.join(format!("{}.sif", note.sha256));
    let size_bytes = std::fs::metadata(&path).ok()?.len();
    (note.recipe == recipe && note.size_bytes == size_bytes).then_some(Sif {
        path,
        sha256: note.sha256,
        size_bytes,
        unchanged: true,
    })
}

fn write_note(path: &Path, note: &Note) -> Result<(), BuildError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let unfinished = unfinished_file(directory)?;
    serde_json::to_writer(unfinished.as_file(), note).map_err(|error| BuildError::output(path)(error.into()))?;
    finish(unfinished, path)
}

/// The last lines of something that may fail.
#[derive(Debug, Default)]
struct LastWords(std::collections::VecDeque<String>);

impl LastWords {
    const LINES: usize = 12;
    const LINE_BYTES: usize = 400;

    fn hear(&mut self, line: &str) {
        if self.0.len() == Self::LINES {
            self.0.pop_front();
        }
        let end = line.floor_char_boundary(Self::LINE_BYTES);
        self.0.push_back(line[..end].to_owned());
    }
}

impl std::fmt::Display for LastWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, line) in self.0.iter().enumerate() {
            write!(f, "{}{line}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(directory: &Path) -> BuildRequest {
        let recipe_dir = directory.join("recipe");
        std::fs::create_dir_all(&recipe_dir).unwrap();
        std::fs::write(recipe_dir.join("Dockerfile"), "FROM scratch\n").unwrap();
        BuildRequest {
            recipe_dir,
            name: "tiny".parse().unwrap(),
            builder_image: "none".to_owned(),
            output_dir: directory.join("output"),
            rebuild: false,
        }
    }

    fn write_sif(request: &BuildRequest, bytes: &[u8]) -> Note {
        let recipe = recipe_hash(&request.recipe_dir).unwrap();
        let note = Note { recipe, sha256: "ab".repeat(32), size_bytes: 5 };
        std::fs::create_dir_all(&request.output_dir).unwrap();
        std::fs::write(request.output_dir.join(format!("{}.sif", note.sha256)), bytes).unwrap();
        write_note(&note_path(request), &note).unwrap();
        note
    }

    #[tokio::test]
    async fn an_unchanged_recipe_is_not_built_again() {
        let directory = tempfile::tempdir().unwrap();
        let request = request(directory.path());
        let note = write_sif(&request, b"image");
        let mut lines = Vec::new();
        let sif = build_sif(&request, &mut |line| lines.push(line.to_owned())).await.unwrap();
        assert!(sif.unchanged);
        assert_eq!(sif.sha256, note.sha256);
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn a_changed_recipe_and_a_cut_file_are_built_again() {
        let directory = tempfile::tempdir().unwrap();
        let request = request(directory.path());
        let note = write_sif(&request, b"image");
        assert!(known_sif(&request, &note.recipe).is_some());
        assert_eq!(known_sif(&request, "another recipe"), None);
        write_sif(&request, b"ima");
        assert_eq!(known_sif(&request, &note.recipe), None);
    }

    #[test]
    fn one_build_at_a_time_and_no_leftovers() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".unfinished-x"), "half").unwrap();
        std::fs::write(directory.path().join("whole.sif"), "whole").unwrap();
        let lock = take_output(directory.path()).unwrap();
        assert!(!directory.path().join(".unfinished-x").exists());
        assert!(directory.path().join("whole.sif").exists());
        assert!(matches!(take_output(directory.path()), Err(BuildError::Busy(_))));
        drop(lock);
        take_output(directory.path()).unwrap();
    }

    #[test]
    fn last_words_are_few_and_short() {
        let mut words = LastWords::default();
        for number in 0..100 {
            words.hear(&format!("{number} {}", "ä".repeat(1000)));
        }
        let text = words.to_string();
        assert!(text.starts_with("88 ") && text.len() < 12 * 420, "{}", text.len());
    }
}
