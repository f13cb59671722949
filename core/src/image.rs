//! The catalogue of container images.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::ImageId;
use crate::name::{AppName, ImageName};

/// An image people may start: one SIF file, addressed by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Id.
    pub id: ImageId,
    /// Name, unique among the images that are not retired.
    pub name: ImageName,
    /// One sentence for the start form.
    pub description: String,
    /// Absolute path of the SIF file, as the compute nodes see it.
    pub path: String,
    /// SHA-256 of the SIF file, lower-case hexadecimal.
    pub sha256: String,
    /// Size of the SIF file in bytes.
    pub size_bytes: i64,
    /// Apps the image can run.
    pub apps: Vec<AppName>,
    /// When it was added.
    pub created_at: Timestamp,
}
