//! Container engines: Apptainer specs to argument vectors, Docker Engine for building images.

pub mod apptainer;
#[cfg(feature = "docker")]
pub mod docker;
