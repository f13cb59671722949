//! The build context: the recipe's files, and what lets this machine reach the outside.
//!
//! The files are sent without owners and times, so that a copy of a recipe is the same recipe. Only plain files and folders make a
//! recipe; a link could name a file that is none of the recipe's business.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio_util::io::SyncIoBridge;

/// Bytes on their way between the thread that reads the recipe and the connection to the Engine.
const BUFFER_BYTES: usize = 256 * 1024;
/// Settings of the host that a build may need, and the names they get under `host/`.
const HOST_FILES: [(&str, &str); 2] =
    [("etc/ssl/certs/ca-certificates.crt", "ca-certificates.crt"), ("etc/npmrc", "npmrc")];
/// Docker's predefined build arguments: known to every recipe, kept in no layer.
const PROXIES: [&str; 8] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy"];
/// Settings of apt that decide whether a download works at all.
const APT_SETTINGS: [&str; 8] = [
    "Acquire::Check-Valid-Until ",
    "Acquire::Check-Date ",
    "Acquire::http::Proxy ",
    "Acquire::https::Proxy ",
    "Acquire::http::Verify-",
    "Acquire::https::Verify-",
    "Acquire::https::CAInfo ",
    "Acquire::https::CaInfo ",
];

/// What is wrong with a recipe.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// It cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It holds something that is neither a file nor a folder.
    #[error("`{0}` is neither a file nor a folder")]
    Strange(PathBuf),
    /// It has no Dockerfile.
    #[error("`{0}` holds no Dockerfile")]
    NoDockerfile(PathBuf),
    /// The connection took no more of it.
    #[error("the recipe could not be sent")]
    Sent(#[source] io::Error),
}

/// One file of a recipe.
#[derive(Debug)]
struct Entry {
    /// Path below the recipe's folder.
    name: PathBuf,
    executable: bool,
}

/// A hash over the names, contents and executable bits of a recipe's files, lower-case hexadecimal.
pub fn recipe_hash(recipe_dir: &Path) -> Result<String, RecipeError> {
    let mut hash = Sha256::new();
    for entry in entries(recipe_dir)? {
        let path = recipe_dir.join(&entry.name);
        let content = read(&path)?;
        for part in [entry.name.as_os_str().as_encoded_bytes(), &[u8::from(entry.executable)], &content] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    Ok(HEXLOWER.encode(&hash.finalize()))
}

/// The recipe's files, in one order everywhere. Byte code that Python left beside its sources is none of them.
fn entries(recipe_dir: &Path) -> Result<Vec<Entry>, RecipeError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| RecipeError::Unreadable { path, source }
    };
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = recipe_dir.join(&folder);
        for entry in std::fs::read_dir(&path).map_err(unreadable(&path))? {
            let entry = entry.map_err(unreadable(&path))?;
            let metadata = entry.metadata().map_err(unreadable(&entry.path()))?;
            let name = folder.join(entry.file_name());
            if metadata.is_dir() && entry.file_name() != "__pycache__" {
                folders.push(name);
            } else if metadata.is_file() {
                found.push(Entry { name, executable: metadata.permissions().mode() & 0o100 != 0 });
            } else if !metadata.is_dir() {
                return Err(RecipeError::Strange(entry.path()));
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    if !found.iter().any(|entry| entry.name == Path::new("Dockerfile")) {
        return Err(RecipeError::NoDockerfile(recipe_dir.to_owned()));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, RecipeError> {
    let mut content = Vec::new();
    std::fs::File::open(path)
        .and_then(|mut file| file.read_to_end(&mut content))
        .map_err(|source| RecipeError::Unreadable { path: path.to_owned(), source })?;
    Ok(content)
}

/// The context as a tar archive that is made while it is read. A recipe's own `host/` goes before this machine's.
pub(super) fn stream(
    recipe_dir: PathBuf,
    host_files: Vec<(String, Vec<u8>)>,
) -> (DuplexStream, JoinHandle<Result<(), RecipeError>>) {
    let (reader, writer) = tokio::io::duplex(BUFFER_BYTES);
    let writer = SyncIoBridge::new(writer);
    let task = tokio::task::spawn_blocking(move || {
        let mut archive = tar::Builder::new(writer);
        for (name, content) in host_files {
            append(&mut archive, &Path::new("host").join(name), 0o644, &content)?;
        }
        for entry in entries(&recipe_dir)? {
            let content = read(&recipe_dir.join(&entry.name))?;
            append(&mut archive, &entry.name, if entry.executable { 0o755 } else { 0o644 }, &content)?;
        }
        let mut writer = archive.into_inner().map_err(RecipeError::Sent)?;
        writer.shutdown().map_err(RecipeError::Sent)
    });
    (reader, task)
}

fn append(
    archive: &mut tar::Builder<SyncIoBridge<DuplexStream>>,
    name: &Path,
    mode: u32,
    content: &[u8],
) -> Result<(), RecipeError> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive.append_data(&mut header, name, content).map_err(RecipeError::Sent)
}

/// Settings of the machine whose root is `root`, as far as it has any. `pip` is the value of `PIP_CONFIG_FILE`, which takes the place of the
/// machine's configuration of pip. A proxy on the machine's own loopback is of no use in a build.
pub(super) async fn host_files(root: &Path, pip: Option<PathBuf>) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let pip = pip.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| root.join("etc/pip.conf"));
    let host_files = HOST_FILES.map(|(path, name)| (root.join(path), name));
    for (path, name) in host_files.into_iter().chain([(pip, "pip.conf")]) {
        if let Ok(content) = tokio::fs::read(path).await {
            files.push((name.to_owned(), content));
        }
    }
    let apt = tokio::process::Command::new("apt-config").arg("dump").kill_on_drop(true).output().await;
    if let Ok(output) = apt
        && output.status.success()
    {
        let settings = apt_settings(&String::from_utf8_lossy(&output.stdout));
        if !settings.is_empty() {
            files.push(("apt.conf".to_owned(), settings.into_bytes()));
        }
    }
    files
}

fn apt_settings(dump: &str) -> String {
    dump.lines()
        .filter(|line| APT_SETTINGS.iter().any(|setting| line.starts_with(setting)))
        .filter(|line| !on_loopback(line))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// The proxies of the environment as build arguments.
pub(super) fn proxies(variable: impl Fn(&str) -> Option<String>) -> HashMap<String, String> {
    PROXIES
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), variable(name)?)))
        .filter(|(name, value)| !value.is_empty() && (name.eq_ignore_ascii_case("no_proxy") || !on_loopback(value)))
        .collect()
}

fn on_loopback(text: &str) -> bool {
    ["localhost", "127.0.0.", "[::1]"].iter().any(|name| text.contains(name))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn recipe(directory: &Path) -> PathBuf {
        let recipe = directory.join("recipe");
        std::fs::create_dir_all(recipe.join("package")).unwrap();
        std::fs::write(recipe.join("Dockerfile"), "FROM scratch\nCOPY host* /\n").unwrap();
        std::fs::write(recipe.join("package/main.py"), "print(6 * 7)\n").unwrap();
        recipe
    }

    #[test]
    fn the_hash_follows_names_contents_and_modes_only() {
        let directory = tempfile::tempdir().unwrap();
        let recipe_dir = recipe(directory.path());
        let first = recipe_hash(&recipe_dir).unwrap();
        let copy = tempfile::tempdir().unwrap();
        assert_eq!(recipe_hash(&recipe(copy.path())).unwrap(), first);

        std::fs::create_dir(recipe_dir.join("package/__pycache__")).unwrap();
        std::fs::write(recipe_dir.join("package/__pycache__/main.pyc"), "x").unwrap();
        assert_eq!(recipe_hash(&recipe_dir).unwrap(), first, "byte code is no part of a recipe");

        std::fs::rename(recipe_dir.join("package/main.py"), recipe_dir.join("package/other.py")).unwrap();
        let renamed = recipe_hash(&recipe_dir).unwrap();
        std::fs::set_permissions(recipe_dir.join("package/other.py"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let executable = recipe_hash(&recipe_dir).unwrap();
        std::fs::write(recipe_dir.join("package/other.py"), "print(43)\n").unwrap();
        let changed = recipe_hash(&recipe_dir).unwrap();
        let all = std::collections::HashSet::from([first, renamed, executable, changed]);
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn links_and_folders_without_dockerfile_are_no_recipes() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(recipe_hash(directory.path()), Err(RecipeError::NoDockerfile(_))));
        assert!(matches!(recipe_hash(&directory.path().join("none")), Err(RecipeError::Unreadable { .. })));
        let recipe_dir = recipe(directory.path());
        std::os::unix::fs::symlink("/etc/shadow", recipe_dir.join("link")).unwrap();
        assert!(matches!(recipe_hash(&recipe_dir), Err(RecipeError::Strange(_))));
    }

    #[tokio::test]
    async fn the_context_holds_the_recipe_and_the_hosts_settings() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/pip.conf"), "[global]\n").unwrap();
        let mut host_files = host_files(&root, None).await;
        host_files.retain(|(name, _)| name != "apt.conf");
        let (mut reader, task) = stream(recipe(directory.path()), host_files);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).await.unwrap();
        task.await.unwrap().unwrap();
        let names: Vec<String> = tar::Archive::new(bytes.as_slice())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["host/pip.conf", "Dockerfile", "package/main.py"]);
    }

    #[tokio::test]
    async fn a_pip_configuration_of_ones_own_comes_before_the_machines() {
        let directory = tempfile::tempdir().unwrap();
        let (root, own) = (directory.path().join("root"), directory.path().join("own"));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/pip.conf"), "machine").unwrap();
        std::fs::write(&own, "own").unwrap();
        for (variable, expected) in
            [(None, "machine"), (Some(PathBuf::new()), "machine"), (Some(own), "own"), (Some("/dev/null".into()), "")]
        {
            let files: HashMap<_, _> = host_files(&root, variable).await.into_iter().collect();
            assert_eq!(files["pip.conf"], expected.as_bytes());
        }
    }

    #[test]
    fn apt_settings_are_those_that_let_it_reach_the_outside() {
        let dump = "APT \"\";\nAcquire::Check-Date \"false\";\nAcquire::http::Proxy \"http://127.0.0.1:3142\";\n\
                    Acquire::https::Proxy \"http://proxy.example:3128\";\nDir::State \"var/lib/apt\";\n";
        assert_eq!(
            apt_settings(dump),
            "Acquire::Check-Date \"false\";\nAcquire::https::Proxy \"http://proxy.example:3128\";\n"
        );
    }

    #[test]
    fn proxies_of_the_loopback_stay_here() {
        let environment = HashMap::from([
            ("http_proxy", "http://localhost:3128"),
            ("https_proxy", "http://proxy.example:3128"),
            ("no_proxy", "localhost,.example"),
            ("HTTP_PROXY", ""),
        ]);
        let proxies = proxies(|name| environment.get(name).map(ToString::to_string));
        let expected = HashMap::from([
            ("https_proxy".to_owned(), "http://proxy.example:3128".to_owned()),
            ("no_proxy".to_owned(), "localhost,.example".to_owned()),
        ]);
        assert_eq!(proxies, expected);
    }
}
