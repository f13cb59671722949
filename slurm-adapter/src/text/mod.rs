//! SLURM's little languages, each read by one pure function that refuses what it does not understand.

mod duration;
mod hostlist;
mod memory;
mod tres;

pub(crate) use duration::{Limit, parse_minutes};
pub(crate) use hostlist::parse_hostlist;
pub(crate) use memory::parse_mebibytes;
pub(crate) use tres::{Gres, parse_gres, parse_tres};

/// Text that is not of the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}")]
pub(crate) struct TextError {
    what: &'static str,
    text: String,
}

impl TextError {
    fn new(what: &'static str, text: &str) -> Self {
        Self { what, text: eirene_core::text::one_line(text, 80) }
    }
}
