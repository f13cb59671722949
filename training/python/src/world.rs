//! All ranks, and how this process came to be one of them.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use eirene_train_command::Context;
use eirene_train_launch::{Environment, Launch, Starter};
use eirene_train_runtime::{Options, Tuning};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{invalid, launch, raised};
use crate::group::Group;
use crate::interrupt;

/// Who started this process as a rank, if anybody did.
#[pyfunction]
pub(crate) fn launched() -> PyResult<Option<String>> {
    let launch = Launch::detect(&Environment::of_this_process()).map_err(|error| launch(&error.to_string()))?;
    Ok((launch.starter != Starter::Alone).then(|| launch.starter.to_string()))
}

/// Addresses by which other ranks may reach this machine, the likeliest first.
#[pyfunction]
pub(crate) fn addresses() -> PyResult<Vec<String>> {
    let found = eirene_train_mesh::reachable(&eirene_train_mesh::listed_interfaces());
    let found = found.map_err(|error| match error {
        eirene_train_mesh::Error::Invalid { .. } => invalid(&format!("EIRENE_TRAIN_INTERFACE: {error}")),
        other => launch(&other.to_string()),
    })?;
    Ok(found.iter().map(IpAddr::to_string).collect())
}

/// Runs `eirene-train` with these arguments, the program's name first, and returns its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let sys = py.import("sys")?;
    let context = Context::of_python(sys.getattr("executable")?.extract()?, sys.getattr("prefix")?.extract()?);
    Ok(py.detach(|| eirene_train_command::main(arguments, &context)))
}

/// All ranks of one run.
#[pyclass(frozen, module = "eirene_train._native")]
pub(crate) struct World {
    inner: eirene_train_runtime::World,
}

#[pymethods]
impl World {
    /// Finds out who started this process and meets the other ranks.
    #[staticmethod]
    fn join(py: Python<'_>, timeout_ms: u64) -> PyResult<Self> {
        let prefix: OsString = py.import("sys")?.getattr("prefix")?.extract()?;
        py.detach(|| {
            let environment = Environment::of_this_process();
            let found = Launch::detect(&environment).map_err(|error| launch(&error.to_string()))?;
            let options = Options::of_environment(&environment, Tuning::Measure).map_err(|error| raised(&error))?;
            let options = Options {
                timeout: Duration::from_millis(timeout_ms),
                prefix: Some(prefix.into()),
                interrupted: Some(interrupt::by_python()),
                ..options
            };
            let inner = eirene_train_runtime::World::join(&found, &options).map_err(|error| raised(&error))?;
            // One handle is never let go of: a forked child that ends like an interpreter must not take apart what its parent uses. The
            // orderly end is `leave`.
            std::mem::forget(inner.clone());
            Ok(Self { inner })
        })
    }

    /// This rank's number.
    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// Number of ranks.
    #[getter]
    fn size(&self) -> u32 {
        self.inner.size()
    }

    /// This rank's number among those of its node.
    #[getter]
    fn local_rank(&self) -> u32 {
        self.inner.local_rank()
    }

    /// Number of ranks on this node.
    #[getter]
    fn local_size(&self) -> u32 {
        self.inner.local_size()
    }

    /// Number of this rank's node.
    #[getter]
    fn node(&self) -> u32 {
        self.inner.node()
    }

    /// Number of nodes.
    #[getter]
    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }

    /// What people may want to know of how the world came about.
    #[getter]
    fn remarks(&self) -> Vec<String> {
        self.inner.remarks().to_vec()
    }

    /// A group of all ranks. Every call builds another one, on all ranks.
    fn everybody(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<Group> {
        let group = py.detach(|| self.inner.everybody(Duration::from_millis(timeout_ms)));
        group.map(Group::new).map_err(|error| raised(&error))
    }

    /// A group of some ranks, in this order.
    #[expect(clippy::needless_pass_by_value, reason = "Python's lists come by value")]
    fn group(&self, py: Python<'_>, ranks: Vec<u32>, key: &str, timeout_ms: u64) -> PyResult<Group> {
        let group = py.detach(|| self.inner.group(&ranks, key, Duration::from_millis(timeout_ms)));
        group.map(Group::new).map_err(|error| raised(&error))
    }

    /// Memory of this rank's that the other ranks of the node can reach in place.
    fn arena(&self, py: Python<'_>, size: usize) -> PyResult<Region> {
        py.detach(|| self.inner.arena(size)).map(|inner| Region { inner }).map_err(|error| raised(&error))
    }

    /// An error once a rank has died, or the world has ended otherwise.
    fn well(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.well()).map_err(|error| raised(&error))
    }

    /// A key that only the ranks of this world have, for a use of its own.
    fn derive<'py>(&self, py: Python<'py>, purpose: &str) -> PyResult<Bound<'py, PyBytes>> {
        let key = self.inner.derive(purpose).map_err(|error| raised(&error))?;
        Ok(PyBytes::new(py, key.as_slice()))
    }

    /// Ends the world for everybody; the others hear why.
    fn abandon(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.inner.abandon(reason));
    }

    /// The orderly end.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| self.inner.leave());
    }
}

/// Shared memory, mapped as long as the object lives.
#[pyclass(frozen, module = "eirene_train._native")]
pub(crate) struct Region {
    inner: eirene_train_runtime::Region,
}

#[pymethods]
impl Region {
    /// Of its first byte.
    #[getter]
    fn address(&self) -> usize {
        self.inner.address()
    }

    fn __len__(&self) -> usize {
        self.inner.bytes()
    }
}
