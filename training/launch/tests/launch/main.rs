//! Detection, as its users see it.

mod detect;
mod variables;
