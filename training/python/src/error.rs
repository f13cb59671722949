//! The runtime's errors as Python's exceptions, which `eirene_train/errors.py` defines.

use eirene_train_runtime::Error;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::interrupt;

/// The exception for an error of the runtime.
pub(crate) fn raised(error: &Error) -> PyErr {
    // What a handler has raised goes before whatever the call has come to, which may be what the world ended for just then.
    if let Some(raised) = interrupt::raised() {
        return raised;
    }
    let message = error.to_string();
    Python::attach(|py| match error {
        Error::Timeout { missing, .. } | Error::Absent { missing, .. } => PyTuple::new(py, missing)
            .map_or_else(|failure| failure, |missing| exception(py, "TimedOut", (message, missing))),
        Error::Left { rank, .. } => exception(py, "PeerLeft", (message, *rank)),
        Error::PeerDied { rank, .. } => exception(py, "PeerDied", (message, *rank)),
        Error::Connection { rank, .. } => exception(py, "ConnectionLost", (message, *rank)),
        Error::Aborted { rank, .. } => exception(py, "Aborted", (message, *rank)),
        Error::Mismatch { .. } => exception(py, "Mismatch", (message,)),
        Error::Invalid { .. } => exception(py, "InvalidArgument", (message,)),
        Error::Memory { .. } => exception(py, "MemoryShortage", (message,)),
        Error::Behind { rank } => exception(py, "ResourceExhausted", (message, *rank)),
        // What a handler raised has gone on its way; the calls after that find the world ended.
        Error::Interrupted { .. } | Error::Ended { .. } => exception(py, "WorldEnded", (message,)),
        Error::Meeting(_) => exception(py, "LaunchError", (message,)),
        Error::Mpi(_) => exception(py, "SystemFailure", (message,)),
    })
}

/// A call that cannot be.
pub(crate) fn invalid(message: &str) -> PyErr {
    Python::attach(|py| exception(py, "InvalidArgument", (message,)))
}

/// A start that makes no sense.
pub(crate) fn launch(message: &str) -> PyErr {
    Python::attach(|py| exception(py, "LaunchError", (message,)))
}

fn exception<'py>(py: Python<'py>, name: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    match py
        .import("eirene_train.errors")
        .and_then(|errors| errors.getattr(name))
        .and_then(|class| class.call1(arguments))
    {
        Ok(value) => PyErr::from_value(value),
        // Ctrl-C while the exception was made: that is what is to be raised.
        Err(failure) if !failure.is_instance_of::<PyException>(py) => failure,
        Err(failure) => {
            let error = PyRuntimeError::new_err(format!("an error of the runtime's could not be raised as `{name}`"));
            error.set_cause(py, Some(failure));
            error
        }
    }
}
