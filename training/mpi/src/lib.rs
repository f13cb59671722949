//! Any MPI.
