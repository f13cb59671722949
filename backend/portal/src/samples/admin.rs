//! The admins' pages.

use eirene_core::account::Role;
use eirene_core::audit::AuditEvent;
use eirene_core::id::SessionId;
use eirene_words::words;

use super::{HOSTILE, Result, Samples};
use crate::views::admin::{
    AdoptedView, AllSessionsFragment, AllSessionsPage, AuditPage, AuditView, NewPassword, NodeView, NodesPage,
    PeoplePage, PersonView,
};
use crate::views::format::Time;
use crate::views::layout::{Place, Tone};
use crate::views::session::{Chip, SessionView};
use crate::views::{Choice, Field, FormError};

impl Samples {
    pub(super) fn admin(&mut self) -> Result<()> {
        let words = words();
        let person = |username: &str, active: bool| PersonView {
            username: username.to_owned(),
            role: words.get("role.researcher"),
            chip: Chip {
                label: words.get(if active { "people.active" } else { "people.disabled" }),
                tone: if active { Tone::Good } else { Tone::Still },
            },
            uid: if active { "2001".to_owned() } else { String::new() },
            created: Time::new(self.now),
            disable_href: if active { "/admin/users/ada/disable".to_owned() } else { String::new() },
            enable_href: if active { String::new() } else { "/admin/users/ada/enable".to_owned() },
            reset_href: "/admin/users/ada/reset-password".to_owned(),
        };
        let people = PeoplePage {
            layout: self.layout(Place::People, &words.get("people.title"), Role::Admin)?,
            people: vec![person("ada", true), person("a-very-long-user-name-on-purpose", false)],
            next_href: "/admin/users?cursor=x".to_owned(),
            new_password: Some(NewPassword {
                username: "grace".to_owned(),
                password: "correct-horse-battery".to_owned(),
            }),
            username: Field { value: HOSTILE.to_owned(), error: "1 to 32 of a–z, 0–9".to_owned() },
            roles: vec![Choice::new("researcher", words.get("role.researcher"), "researcher")],
            errors: vec![FormError::new(words, "username", "1 to 32 of a–z, 0–9")],
        };
        self.add("admin-people", &people)?;

        let (live, earlier) = self.views()?;
        let sessions: Vec<SessionView> = live.into_iter().chain(earlier).map(SessionView::without_app).collect();
        let page = AllSessionsPage {
            layout: self.layout(Place::Sessions, &words.get("all.title"), Role::Admin)?,
            sessions: sessions.clone(),
            live_only: true,
            next_href: "/admin/sessions?cursor=x".to_owned(),
            adopted: vec![AdoptedView { job: "12".to_owned(), uid: "2001".to_owned(), seen: Time::new(self.now) }],
            fragment_href: "/fragments/admin/sessions".to_owned(),
        };
        self.add("admin-sessions", &page)?;
        self.add("fragment-all-sessions", &AllSessionsFragment { sessions })?;

        let nodes = Self::nodes()?;
        for (name, nodes, reachable) in [("admin-nodes", nodes, true), ("admin-nodes-empty", Vec::new(), false)] {
            let page = NodesPage {
                layout: self.layout(Place::Nodes, &words.get("nodes.title"), Role::Admin)?,
                nodes: nodes.iter().map(|node| NodeView::new(words, node)).collect(),
                at: reachable.then(|| Time::new(self.now)),
                reachable,
            };
            self.add(name, &page)?;
        }

        self.node_pages()?;
        self.efficiency()?;

        let event = |outcome: &str, actor: &str, details: serde_json::Value| AuditEvent {
            id: 1,
            at: self.now,
            actor: actor.to_owned(),
            action: "session.start".to_owned(),
            target: SessionId::generate().to_string(),
            outcome: outcome.to_owned(),
            details,
            address: Some("192.0.2.7".to_owned()),
            request_id: None,
        };
        let events = [
            event("ok", "ada", serde_json::json!({"cpus": 4, "image": "jupyter"})),
            event("refused", HOSTILE, serde_json::json!({})),
            event("failed", "system:submit", serde_json::json!({})),
        ];
        let page = AuditPage {
            layout: self.layout(Place::Audit, &words.get("audit.title"), Role::Admin)?,
            events: events.iter().map(|event| AuditView::new(words, event)).collect(),
            actor: Field::new("ada"),
            action: Field::default(),
            older_href: "/admin/audit?before=1".to_owned(),
            newest_href: "/admin/audit".to_owned(),
        };
        self.add("admin-audit", &page)?;
        Ok(())
    }
}
