//! Container engines: Apptainer specs to argument vectors, Docker Engine for building images.

#[cfg(feature = "docker")]
pub mod docker;
