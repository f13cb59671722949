//! The mesh.
