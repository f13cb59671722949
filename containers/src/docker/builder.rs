//! The container in which Apptainer makes a SIF.
//!
//! It has no network, no mount of this machine, and of root's powers only those with which files of several owners are unpacked.
//! It ends by itself after a while, so a builder that is killed leaves nothing running for long.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::{ContainerCreateBody, ExecConfig, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, DownloadFromContainerOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    UploadToContainerOptionsBuilder,
};
use data_encoding::HEXLOWER;
use futures_util::{StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};
use tokio_util::io::{ReaderStream, StreamReader, SyncIoBridge};

use super::{BuildError, LastWords};

/// Seconds after which the container ends, whatever happens.
const LIFETIME_S: &str = "3600";
const CAPABILITIES: [&str; 3] = ["CHOWN", "DAC_OVERRIDE", "FOWNER"];
const ARCHIVE: &str = "image.tar";
const SIF: &str = "/var/tmp/image.sif";
const FOLDER: &str = "/var/tmp";
const BUFFER_BYTES: usize = 1024 * 1024;
/// Reads faster than gzip at every start of a session; in kernels and squashfuse for years.
const SQUASHFS: &str = "-comp zstd -Xcompression-level 9";

/// A running builder container; dropping it removes it in the background.
pub(super) struct Builder {
    docker: Docker,
    id: Option<String>,
}

impl Builder {
    /// Starts a container of `image`, labelled with what it is for.
    pub(super) async fn start(docker: &Docker, image: &str, tag: &str) -> Result<Self, BuildError> {
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["/bin/sleep".to_owned(), LIFETIME_S.to_owned()]),
            cmd: Some(Vec::new()),
            network_disabled: Some(true),
            labels: Some([("org.eirene.builder".to_owned(), tag.to_owned())].into()),
            host_config: Some(HostConfig {
                auto_remove: Some(true),
                cap_drop: Some(vec!["ALL".to_owned()]),
                cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
                security_opt: Some(vec!["no-new-privileges".to_owned()]),
                init: Some(false),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let created = docker
            .create_container(None::<CreateContainerOptions>, body)
            .await
            .map_err(BuildError::engine("make the builder's container"))?;
        let builder = Self { docker: docker.clone(), id: Some(created.id) };
        docker
            .start_container(builder.id(), None::<StartContainerOptions>)
            .await
            .map_err(BuildError::engine("start the builder's container"))?;
        Ok(builder)
    }

    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Puts the image's archive into the container.
    pub(super) async fn put(&self, archive: &Path) -> Result<(), BuildError> {
        let (reader, writer) = tokio::io::duplex(BUFFER_BYTES);
        let writer = SyncIoBridge::new(writer);
        let path = archive.to_owned();
        let task = tokio::task::spawn_blocking(move || -> io::Result<()> {
            let mut file = std::fs::File::open(&path)?;
            let mut tar = tar::Builder::new(writer);
            tar.append_file(ARCHIVE, &mut file)?;
            tar.into_inner()?.shutdown()
        });
        let options = UploadToContainerOptionsBuilder::default().path(FOLDER).build();
        let body = bollard::body_try_stream(ReaderStream::with_capacity(reader, BUFFER_BYTES));
        self.docker
            .upload_to_container(self.id(), Some(options), body)
            .await
            .map_err(BuildError::engine("put the image into the builder"))?;
        task.await.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(BuildError::output(archive))
    }

    /// Runs Apptainer.
    pub(super) async fn convert(&self, progress: &mut (dyn FnMut(&str) + Send)) -> Result<(), BuildError> {
        let source = format!("docker-archive:{FOLDER}/{ARCHIVE}");
        let command = ["apptainer", "build", "--force", "--mksquashfs-args", SQUASHFS, SIF, source.as_str()];
        let failed = || BuildError::engine("run Apptainer in the builder");
        let config = ExecConfig {
            cmd: Some(command.map(str::to_owned).to_vec()),
            env: Some(vec![format!("APPTAINER_TMPDIR={FOLDER}"), format!("APPTAINER_CACHEDIR={FOLDER}/cache")]),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let exec = self.docker.create_exec(self.id(), config).await.map_err(failed())?;
        let mut words = LastWords::default();
        if let StartExecResults::Attached { mut output, .. } =
            self.docker.start_exec(&exec.id, None).await.map_err(failed())?
        {
            while let Some(said) = output.next().await {
                let said = said.map_err(failed())?;
                let (LogOutput::StdOut { message }
                | LogOutput::StdErr { message }
                | LogOutput::Console { message }
                | LogOutput::StdIn { message }) = said;
                for line in String::from_utf8_lossy(&message).lines().map(str::trim_end) {
                    words.hear(line);
                    progress(line);
                }
            }
        }
        match self.docker.inspect_exec(&exec.id).await.map_err(failed())?.exit_code {
            Some(0) => Ok(()),
            _ => Err(BuildError::Failed { step: "the conversion", words: words.to_string() }),
        }
    }

    /// Fetches the SIF into `path`: its SHA-256 and size.
    pub(super) async fn fetch(&self, path: &Path) -> Result<(String, u64), BuildError> {
        let options = DownloadFromContainerOptionsBuilder::default().path(SIF).build();
        let stream = self.docker.download_from_container(self.id(), Some(options)).map_err(io::Error::other);
        let reader = SyncIoBridge::new(StreamReader::new(Box::pin(stream)));
        let target = path.to_owned();
        tokio::task::spawn_blocking(move || unpack_one(reader, &target))
            .await
            .unwrap_or_else(|panic| Err(io::Error::other(panic)))
            .map_err(BuildError::output(path))
    }

    /// Removes the container and waits for it.
    pub(super) async fn remove(mut self) {
        if let Some(id) = self.id.take() {
            remove(self.docker.clone(), id).await;
        }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        if let Some(id) = self.id.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(remove(self.docker.clone(), id));
        }
    }
}

async fn remove(docker: Docker, id: String) {
    let options = RemoveContainerOptionsBuilder::default().force(true).build();
    if let Err(error) = docker.remove_container(&id, Some(options)).await {
        tracing::warn!(container.id = %id, %error, "could not remove the builder's container; it ends by itself");
    }
}

/// Writes the one file of a tar archive to `target`.
fn unpack_one(reader: impl Read, target: &PathBuf) -> io::Result<(String, u64)> {
    let mut archive = tar::Archive::new(reader);
    let mut entry = archive.entries()?.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    let mut file = std::fs::File::create(target)?;
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = entry.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        file.write_all(&buffer[..read])?;
        size += read as u64;
    }
    if size != entry.size() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((HEXLOWER.encode(&hash.finalize()), size))
}
