//! A node's own page: out of service with a past, and gone.

use eirene_core::SessionState;
use eirene_core::account::Role;
use eirene_core::confinement::{ConfinedNode, Confinement};
use eirene_core::node_history::{GONE, IN_SERVICE, NodeChange};
use eirene_words::words;
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::http::portal::views::FormError;
use crate::http::portal::views::layout::Place;
use crate::http::portal::views::node::NodePage;
use crate::services::upkeep::SeenNode;

impl Samples {
    /// Pages of single nodes.
    pub(super) fn node_pages(&mut self) -> Result<()> {
        let mut node = Self::nodes()?.remove(0);
        (node.available, node.reason) = (false, Some(format!("{HOSTILE} (eirene: ada)")));
        "draining".clone_into(&mut node.state);
        let name = node.name.clone();
        let change = |hours: i64, state: &str, reason: Option<&str>| NodeChange {
            node: name.clone(),
            at: self.now - SignedDuration::from_hours(hours),
            state: state.to_owned(),
            reason: reason.map(ToOwned::to_owned),
        };
        let history = vec![
            change(1, "draining", node.reason.as_deref()),
            change(900, IN_SERVICE, None),
            change(901, "down", Some("Not responding")),
        ];
        let gone = SeenNode { node: None, sessions: Vec::new(), history: vec![change(2, GONE, None)], confined: None };
        let sessions = vec![
            self.session("Thesis, chapter 3", SessionState::Running)?,
            self.session(HOSTILE, SessionState::Running)?,
        ];
        let confined = Some(ConfinedNode { node: name.clone(), by: Confinement::Nothing, at: self.now });
        let seen = SeenNode { node: Some(node), sessions, history, confined };
        let layout = |samples: &Self| samples.layout(Place::Nodes, name.as_str(), Role::Admin);
        let errors = vec![FormError::new(words(), "reason", "1 to 200 printable characters")];
        let page =
            NodePage::new(words(), layout(self)?, name.as_str(), &seen, true).refused(HOSTILE.to_owned(), errors);
        let gone = NodePage::new(words(), layout(self)?, name.as_str(), &gone, false);
        self.add("admin-node", &page)?;
        self.add("admin-node-gone", &gone)?;
        Ok(())
    }
}
