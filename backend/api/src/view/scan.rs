//! What takes the room in a space, as the API shows it.

use eirene_services::files::path::shown;
use eirene_services::scans::{Directory, Sizes};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What takes the room, and how measuring it is going.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Scan)]
pub struct ScanView {
    /// `never`, `running`, `stopped` (it can be gone on with) or `done`.
    #[schema(value_type = String, pattern = "^(never|running|stopped|done)$")]
    state: &'static str,
    /// The operation that measures, while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    operation: Option<String>,
    /// When the last measuring was over; absent while it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    as_of: Option<Timestamp>,
    /// Directories measured so far, of those that are kept.
    dirs_done: u64,
    /// Files and directories measured so far.
    files_done: u64,
    /// Bytes on disk of them.
    bytes_done: u64,
    /// Whether files with several names may have been counted twice.
    approximate: bool,
    /// How much could not be looked at.
    skipped: u64,
    /// The directory that was asked about; absent where it was not measured, or is too small to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    directory: Option<ScannedDirectoryView>,
    /// The directories directly in it, the largest first.
    items: Vec<ScannedDirectoryView>,
}

/// A directory that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ScannedDirectory)]
pub(super) struct ScannedDirectoryView {
    /// Its path below the space; empty for the space itself.
    path: String,
    /// The same as base64url of its bytes, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Bytes on disk of all in it.
    bytes: u64,
    /// Files and directories in it.
    files: u64,
    /// Bytes on disk of what lies directly in it.
    own_bytes: u64,
    /// When it was measured. What lies above it holds what is known of it since.
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
}

impl From<Directory> for ScannedDirectoryView {
    fn from(directory: Directory) -> Self {
        let (path, raw_path) = shown(directory.path.as_bytes());
        let Directory { bytes, files, own_bytes, at: as_of, .. } = directory;
        Self { path, raw_path, bytes, files, own_bytes, as_of }
    }
}

impl From<Sizes> for ScanView {
    fn from(sizes: Sizes) -> Self {
        Self {
            state: sizes.state.as_str(),
            operation: sizes.operation.map(|id| id.to_string()),
            as_of: sizes.as_of,
            dirs_done: sizes.directories_done,
            files_done: sizes.files_done,
            bytes_done: sizes.bytes_done,
            approximate: sizes.approximate,
            skipped: sizes.skipped,
            directory: sizes.here.map(ScannedDirectoryView::from),
            items: sizes.items.into_iter().map(ScannedDirectoryView::from).collect(),
        }
    }
}
