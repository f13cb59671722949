//! Host lists as node names.

use eirene_core::NodeName;

use super::TextError;

/// Expands a host list.
pub(crate) fn parse_hostlist(text: &str) -> Result<Vec<NodeName>, TextError> {
    let failed = || TextError::new("host list", text);
    let names = eirene_hostlist::expand(text).map_err(|_| failed())?;
    names.into_iter().map(|name| name.parse().map_err(|_| failed())).collect()
}
