//! What searches and scans found, as long as there is room for it in memory. It is as large as directories are, and so in no database.

use std::collections::BTreeMap;
use std::sync::Arc;

use eirene_core::OperationId;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// How many bytes of all operations together are kept; the oldest operation's go first.
const MOST_BYTES: usize = 16 << 20;

/// Findings by operation, as the text they are told in: that takes a small part of the memory that they take as values.
#[derive(Debug, Default)]
pub(super) struct Findings {
    by_operation: BTreeMap<OperationId, Arc<Vec<Box<RawValue>>>>,
    bytes: usize,
}

impl Findings {
    /// Keeps what an operation found, once.
    pub(super) fn keep(&mut self, id: OperationId, found: &[Value]) {
        let found: Vec<_> = found.iter().filter_map(|one| to_raw_value(one).ok()).collect();
        self.bytes += bytes(&found);
        if let Some(before) = self.by_operation.insert(id, Arc::new(found)) {
            self.bytes -= bytes(&before);
        }
        while self.bytes > MOST_BYTES {
            let Some((_, oldest)) = self.by_operation.pop_first() else { break };
            self.bytes -= bytes(&oldest);
        }
    }

    /// What an operation found; none where it is not kept.
    pub(super) fn get(&self, id: OperationId) -> Option<Arc<Vec<Box<RawValue>>>> {
        self.by_operation.get(&id).map(Arc::clone)
    }
}

/// What findings take, an operation's place among them.
fn bytes(found: &[Box<RawValue>]) -> usize {
    let text: usize = found.iter().map(|one| one.get().len()).sum();
    text + size_of_val(found) + size_of::<(OperationId, Vec<Box<RawValue>>)>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_goes_where_there_is_no_room_and_each_is_counted_once() {
        let mut findings = Findings::default();
        let mut ids: Vec<_> = (0..3).map(|_| OperationId::generate()).collect();
        ids.sort();
        let much: Vec<Value> = (0..MOST_BYTES / 2 / 1024 - 1000).map(|_| json!("x".repeat(1024))).collect();
        findings.keep(ids[0], &much);
        findings.keep(ids[0], &much);
        findings.keep(ids[1], &[json!({"path": "a"})]);
        assert_eq!(findings.get(ids[0]).unwrap().len(), much.len());
        findings.keep(ids[2], &much);
        assert!(findings.get(ids[0]).is_some(), "both have room");
        findings.keep(ids[1], &much);
        assert!(findings.get(ids[0]).is_none() && findings.get(ids[2]).is_some());
        assert_eq!(findings.bytes, findings.by_operation.values().map(|found| bytes(found)).sum::<usize>());
        assert!(findings.bytes <= MOST_BYTES);
    }

    #[test]
    fn more_than_there_is_room_for_is_not_kept_and_nothing_is_found_for_others() {
        let mut findings = Findings::default();
        let id = OperationId::generate();
        findings.keep(id, &[json!("x".repeat(MOST_BYTES))]);
        assert!(findings.get(id).is_none());
        findings.keep(id, &[]);
        assert_eq!(findings.get(id).unwrap().len(), 0, "nothing is a finding as well");
        assert!(findings.get(OperationId::generate()).is_none());
    }
}
