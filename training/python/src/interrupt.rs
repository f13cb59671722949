//! Ctrl-C while the runtime waits: Python's handlers run, and what they raise is kept until the call has come back.

use std::cell::RefCell;

use eirene_train_runtime::Interrupted;
use pyo3::prelude::*;

thread_local! {
    /// What a handler has raised in this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// For the runtime's blocking calls.
pub(crate) fn by_python() -> Interrupted {
    Interrupted::by(asked)
}

/// Whether a handler has raised something. Asks the interpreter, which runs handlers in its main thread alone; nobody is asked once it ends.
pub(crate) fn asked() -> bool {
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let is_raised = raised.is_some();
    RAISED.with(|place| place.replace(raised));
    is_raised
}

/// What made this thread give up.
pub(crate) fn raised() -> Option<PyErr> {
    RAISED.with(RefCell::take)
}
