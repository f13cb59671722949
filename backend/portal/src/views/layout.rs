//! What every page has around it: title, navigation, who is signed in, notices.

use eirene_core::account::User;
use eirene_words::Words;
use serde::Serialize;

/// The frame of a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Layout {
    /// Title of the document.
    pub(crate) title: String,
    /// Who is signed in.
    pub(crate) user: Option<Who>,
    /// Where one can go.
    pub(crate) nav: Vec<NavLink>,
    /// Where an admin can go besides.
    pub(crate) admin_nav: Vec<NavLink>,
    /// Token that forms send back; empty for nobody.
    pub(crate) csrf: String,
    /// What has just happened.
    pub(crate) notice: Option<Notice>,
    /// Words for the page's modules, JSON.
    pub(crate) words: String,
    /// Address of the page's event stream; empty when nothing on it lives.
    pub(crate) events: String,
    /// Seconds after which a browser without scripts loads the page again; 0 for never.
    pub(crate) refresh_s: u32,
}

/// Who is signed in.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Who {
    /// Name.
    pub(crate) name: String,
    /// Whether this is the page about them.
    pub(crate) current: bool,
}

/// A link of the navigation.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NavLink {
    /// Where to.
    pub(crate) href: String,
    /// What it is called.
    pub(crate) label: String,
    /// Whether one is there.
    pub(crate) current: bool,
}

/// How a notice is meant; also the end of its CSS class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    /// It worked.
    Good,
    /// It needs a look or patience.
    Wait,
    /// It did not work.
    Bad,
    /// Nothing is known.
    Doubt,
    /// Something is going on.
    Busy,
    /// Nothing goes on any more.
    Still,
}

/// Something to tell at the top of a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Notice {
    /// How it is meant.
    pub(crate) tone: Tone,
    /// What to say.
    pub(crate) text: String,
}

/// The places of the portal that the navigation shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// My sessions.
    Dashboard,
    /// My runs.
    Runs,
    /// My spaces.
    Spaces,
    /// The cluster.
    Cluster,
    /// My alerts.
    Alerts,
    /// The start form.
    Start,
    /// My account.
    Account,
    /// Admin: people.
    People,
    /// Admin: all sessions.
    Sessions,
    /// Admin: all runs.
    AllRuns,
    /// Admin: all alerts.
    AllAlerts,
    /// Admin: nodes.
    Nodes,
    /// Admin: what is used of what is held.
    Efficiency,
    /// Admin: the storage.
    Storage,
    /// Admin: what the portal depends on.
    Health,
    /// Admin: the audit log.
    Audit,
    /// None of them.
    Elsewhere,
}

const NAV: [(Place, &str, &str); 6] = [
    (Place::Dashboard, "/", "nav.dashboard"),
    (Place::Runs, "/runs", "nav.runs"),
    (Place::Spaces, "/spaces", "nav.spaces"),
    (Place::Cluster, "/cluster", "nav.cluster"),
    (Place::Alerts, "/alerts", "nav.alerts"),
    (Place::Start, "/sessions/new", "nav.start"),
];
const ADMIN_NAV: [(Place, &str, &str); 9] = [
    (Place::People, "/admin/users", "nav.people"),
    (Place::Sessions, "/admin/sessions", "nav.sessions"),
    (Place::AllRuns, "/admin/runs", "nav.all_runs"),
    (Place::AllAlerts, "/admin/alerts", "nav.alerts"),
    (Place::Nodes, "/admin/nodes", "nav.nodes"),
    (Place::Efficiency, "/admin/efficiency", "nav.efficiency"),
    (Place::Storage, "/admin/storage", "nav.storage"),
    (Place::Health, "/admin/health", "nav.health"),
    (Place::Audit, "/admin/audit", "nav.audit"),
];

impl Layout {
    /// The frame for somebody who is signed in.
    pub(crate) fn for_user(words: &Words, user: &User, csrf: &str, place: Place, title: &str) -> Self {
        let links = |list: &[(Place, &str, &str)]| {
            list.iter()
                // An admin's own alerts are among all.
                .filter(|(at, ..)| *at != Place::Alerts || !user.is_admin())
                .map(|(at, href, key)| NavLink {
                    href: (*href).to_owned(),
                    label: words.get(key),
                    current: *at == place,
                })
                .collect()
        };
        Self {
            user: Some(Who { name: user.username.to_string(), current: place == Place::Account }),
            nav: links(&NAV),
            admin_nav: if user.is_admin() { links(&ADMIN_NAV) } else { Vec::new() },
            csrf: csrf.to_owned(),
            ..Self::for_nobody(words, title)
        }
    }

    /// The frame for somebody who is not signed in.
    pub(crate) fn for_nobody(words: &Words, title: &str) -> Self {
        Self {
            title: title.to_owned(),
            user: None,
            nav: Vec::new(),
            admin_nav: Vec::new(),
            csrf: String::new(),
            notice: None,
            words: words.for_modules(),
            events: String::new(),
            refresh_s: 0,
        }
    }

    /// The same with an event stream, and a reload every `refresh_s` seconds for browsers without scripts.
    pub(crate) fn live(mut self, events: impl Into<String>, refresh_s: u32) -> Self {
        self.events = events.into();
        self.refresh_s = refresh_s;
        self
    }

    /// The same with a notice.
    pub(crate) fn with_notice(mut self, notice: Option<Notice>) -> Self {
        self.notice = notice;
        self
    }
}
