//! A node's own page: out of service with a past, and gone; with what Zabbix says of it.

use std::sync::Arc;

use eirene_core::account::Role;
use eirene_core::confinement::{ConfinedNode, Confinement, Held};
use eirene_core::node_history::{GONE, IN_SERVICE, NodeChange};
use eirene_core::{SessionId, SessionState};
use eirene_services::samples::WrongClock;
use eirene_services::upkeep::SeenNode;
use eirene_services::zabbix::{NodeInZabbix, SeenInZabbix, ShownItem};
use eirene_words::words;
use eirene_zabbix::{Item, Point, Problem, Severity};
use jiff::SignedDuration;

use super::{HOSTILE, Result, Samples};
use crate::views::FormError;
use crate::views::layout::Place;
use crate::views::node::NodePage;

impl Samples {
    /// Problems of every severity, one with a hostile name, and items with and without values.
    fn in_zabbix(&self) -> NodeInZabbix {
        let severities = [
            Severity::Disaster,
            Severity::High,
            Severity::Average,
            Severity::Warning,
            Severity::Information,
            Severity::NotClassified,
        ];
        let now = self.now.as_second();
        let problems = severities.iter().zip(1..).map(|(severity, event)| Problem {
            event,
            clock: now - 600,
            name: if event == 1 { HOSTILE.to_owned() } else { "Load average is too high".to_owned() },
            severity: *severity,
            acknowledged: event == 2,
            suppressed: event == 3,
        });
        let item = |id, name: &str, units: &str, values: i64| ShownItem {
            item: Item { id, key: name.into(), name: name.into(), units: units.into(), is_whole: false },
            points: (0..values)
                .map(|place| Point { clock: now - 60 * (values - place), value: (place % 7) as f64 })
                .collect(),
        };
        let items = vec![item(1, "Load average", "", 50), item(2, HOSTILE, "%", 1), item(3, "Memory", "B", 0)];
        NodeInZabbix::Seen(Arc::new(SeenInZabbix {
            at: self.now,
            host: Some("c1".into()),
            problems: problems.collect(),
            items,
        }))
    }

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
        let confined =
            Some(ConfinedNode { node: name.clone(), by: Confinement::Nothing, held: Held::NOTHING, at: self.now });
        let seen = SeenNode { node: Some(node), sessions, history, confined };
        let held = Held { memory: Some(true), cpus: Some(false) };
        let counted = ConfinedNode { node: name.clone(), by: Confinement::CgroupV2, held, at: self.now };
        let in_part = SeenNode { confined: Some(counted), ..seen.clone() };
        let layout = |samples: &Self| samples.layout(Place::Nodes, name.as_str(), Role::Admin);
        let errors = vec![FormError::new(words(), "reason", "1 to 200 printable characters")];
        let page =
            NodePage::new(words(), layout(self)?, name.as_str(), &seen, true).refused(HOSTILE.to_owned(), errors);
        let page = page.with_zabbix(words(), &self.in_zabbix());
        let nothing = SeenInZabbix { at: self.now, host: None, problems: Vec::new(), items: Vec::new() };
        let clock = WrongClock {
            session: SessionId::generate(),
            node: name.to_string(),
            ahead: SignedDuration::from_secs(-4000),
            is_common: false,
        };
        let quiet = NodePage::new(words(), layout(self)?, name.as_str(), &in_part, true)
            .with_clock(&[clock])
            .with_zabbix(words(), &NodeInZabbix::Seen(Arc::new(nothing)));
        let gone = NodePage::new(words(), layout(self)?, name.as_str(), &gone, false)
            .with_zabbix(words(), &NodeInZabbix::Away);
        self.add("admin-node", &page)?;
        self.add("admin-node-no-zabbix-host", &quiet)?;
        self.add("admin-node-gone", &gone)?;
        Ok(())
    }
}
