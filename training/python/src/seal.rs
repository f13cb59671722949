//! Frames that nobody but the two ends of a connection can read or change, for connections that the Python package makes itself.

use std::sync::{Mutex, PoisonError};

use eirene_train_mesh::{Opening, Sealing, TAG};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One end of a connection.
///
/// It belongs to the process that made it: a forked child has the same keys and counts on from the same frame, and two
/// frames sealed with one key and one count can be read without it.
#[pyclass(frozen, module = "eirene_train._native")]
pub(crate) struct Seal {
    process: u32,
    sealing: Mutex<Sealing>,
    opening: Mutex<Opening>,
}

#[pymethods]
impl Seal {
    /// With a key for each direction, which nothing else uses.
    #[new]
    fn new(ours: &[u8], theirs: &[u8]) -> PyResult<Self> {
        let wrong = || PyValueError::new_err("a key is 32 bytes, another one for each direction");
        let key = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).map_err(|_| wrong());
        if ours == theirs {
            return Err(wrong());
        }
        let (sealing, opening) = (Sealing::new(key(ours)?.into()), Opening::new(key(theirs)?.into()));
        Ok(Self { process: std::process::id(), sealing: Mutex::new(sealing), opening: Mutex::new(opening) })
    }

    /// A frame as it goes over the wire, 16 bytes longer.
    fn seal<'py>(&self, py: Python<'py>, frame: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.check_process()?;
        PyBytes::new_with(py, frame.len() + TAG, |sealed| {
            let (bytes, tag) = sealed.split_at_mut(frame.len());
            bytes.copy_from_slice(frame);
            tag.copy_from_slice(&self.sealing.lock().unwrap_or_else(PoisonError::into_inner).seal(&[], bytes));
            Ok(())
        })
    }

    /// The frame that the other end sealed next.
    fn open<'py>(&self, py: Python<'py>, sealed: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.check_process()?;
        let altered = || PyConnectionError::new_err(eirene_train_mesh::Altered.to_string());
        let (bytes, tag) = sealed.split_last_chunk::<TAG>().ok_or_else(altered)?;
        PyBytes::new_with(py, bytes.len(), |frame| {
            frame.copy_from_slice(bytes);
            let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            opening.open(&[], frame, 0, tag).map(drop).map_err(|_| altered())
        })
    }
}

impl Seal {
    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(format!(
            "this process was forked from process {}, whose connection this is, and only that one may use it",
            self.process
        )))
    }
}
