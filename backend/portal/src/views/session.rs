//! A session as the pages show it: where it is in plain words, what was asked for, what one can do about it.

use eirene_core::session::{Desired, JobKind, Resources, Session, SessionState};
use eirene_services::nodes::{Copied, NodeStatus, RunningStep};
use eirene_tunnel::message::NodeState;
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::alerts::AlertLine;
use super::format::{self, Time};
use super::layout::{Layout, Tone};
use super::scratch::ScratchLine;
use super::usage::UsageView;
use crate::pages::Page;

/// A state as a coloured word.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Chip {
    /// The word.
    pub(crate) label: String,
    /// The colour.
    pub(crate) tone: Tone,
}

/// One of the three steps from the click to the app.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    /// The step's name.
    pub(crate) label: String,
    /// `done`, `now` or `next`.
    pub(crate) status: &'static str,
    /// Whether something is going on right now.
    pub(crate) moving: bool,
    /// What has been reached, for those who do not see the bar.
    pub(crate) status_text: String,
}

/// A node of a session and what runs there.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NodeRow {
    /// Its name.
    pub(crate) name: String,
    /// How it is.
    pub(crate) chip: Chip,
    /// Why it cannot be used; empty when it can.
    pub(crate) text: String,
    /// What runs there, one line each.
    pub(crate) runs: Vec<String>,
}

impl NodeRow {
    fn new(words: &Words, node: &NodeStatus, app: &str) -> Self {
        let (key, tone) = match node.state {
            Some(NodeState::Ready) => ("session_nodes.ready", Tone::Good),
            Some(NodeState::Starting) => ("session_nodes.starting", Tone::Busy),
            Some(NodeState::Lost) => ("session_nodes.lost", Tone::Bad),
            Some(NodeState::Unknown) | None => ("session_nodes.unknown", Tone::Still),
        };
        let step = |step: &RunningStep| {
            let ranks = words.count("session_nodes.ranks", u64::from(step.ranks));
            let (number, on) = (step.number.to_string(), words.count("session_nodes.on", u64::from(step.nodes)));
            let names = [("n", number.as_str()), ("command", &step.command), ("ranks", &ranks), ("on", &on)];
            words.fill("session_nodes.step", &names)
        };
        let runs = node.has_app.then(|| app.to_owned()).into_iter().chain(node.steps.iter().map(step));
        Self {
            name: node.name.to_string(),
            chip: Chip { label: words.get(key), tone },
            text: node.text.as_deref().map(sentence).unwrap_or_default(),
            runs: runs.collect(),
        }
    }
}

/// A session on any page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SessionView {
    /// Id.
    pub(crate) id: String,
    /// What the owner calls it.
    pub(crate) name: String,
    /// Owner's name.
    pub(crate) owner: String,
    /// Its page.
    pub(crate) href: String,
    /// App, in words.
    pub(crate) app: String,
    /// Image.
    pub(crate) image: String,
    /// Project; empty for none.
    pub(crate) project: String,
    /// Partition; empty for the default.
    pub(crate) partition: String,
    /// State, the API's word.
    pub(crate) state: &'static str,
    /// State, for people.
    pub(crate) chip: Chip,
    /// What is going on, in one sentence.
    pub(crate) line: String,
    /// Why, when the line does not say it already.
    pub(crate) reason: String,
    /// That the scheduler cannot be asked; empty when it can.
    pub(crate) doubt: String,
    /// What was asked for, in one line.
    pub(crate) size: String,
    /// Longest time, in words.
    pub(crate) walltime: String,
    /// Nodes it has.
    pub(crate) nodes: String,
    /// Its nodes one by one, on its own page, where there is more to say than their names.
    pub(crate) node_rows: Vec<NodeRow>,
    /// What somebody should know of it, on its own page.
    pub(crate) alerts: Vec<AlertLine>,
    /// How its fast scratch is, where there is something to say.
    pub(crate) scratch: Option<ScratchLine>,
    /// Job number; empty before there is one.
    pub(crate) job: String,
    /// When it was asked for.
    pub(crate) created: Time,
    /// When its allocation began.
    pub(crate) started: Option<Time>,
    /// When its time is over, while it has an allocation.
    pub(crate) ends: Option<Time>,
    /// How much time is left, in words.
    pub(crate) left: String,
    /// Whether so little is left that one should save.
    pub(crate) left_is_short: bool,
    /// When it was over.
    pub(crate) ended: Option<Time>,
    /// When the scheduler expects to start it.
    pub(crate) estimate: Option<Time>,
    /// Where its app opens; empty when it does not.
    pub(crate) open_href: String,
    /// Where it is stopped; empty when it cannot be.
    pub(crate) stop_href: String,
    /// Where the same is started again; empty while it lives.
    pub(crate) again_href: String,
    /// Where a run like it is started; empty for whoever may not, and for what is a run itself.
    pub(crate) run_href: String,
    /// The way from the click to the app; empty when it is over.
    pub(crate) steps: Vec<Step>,
    /// Whether it is over.
    pub(crate) over: bool,
    /// What a screen reader says when it changes.
    pub(crate) announce: String,
}

/// Below this many minutes the time left is shown as a warning.
const SHORT_MINUTES: u64 = 10;

impl SessionView {
    /// Shows `session` to its owner.
    pub(crate) fn new(words: &Words, session: &Session, now: Timestamp) -> Self {
        let id = session.id.to_string();
        let href = format!("/sessions/{id}");
        let over = session.state.is_final();
        let chip = chip(words, session);
        let (line, reason) = lines(words, session);
        let may_stop = !over && session.desired == Desired::Running;
        let ends = session.ends_at.filter(|_| matches!(session.state, SessionState::Starting | SessionState::Running));
        let minutes_left = ends.map(|at| format::minutes_between(now, at));
        let name = session.name.to_string();
        Self {
            announce: words.fill("session.announce", &[("name", &name), ("state", &chip.label), ("line", &line)]),
            name,
            owner: session.owner_name.to_string(),
            app: app_label(words, session.app.as_str()),
            image: session.image.to_string(),
            project: session.project.as_ref().map(ToString::to_string).unwrap_or_default(),
            partition: session.resources.partition.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: session.state.as_str(),
            chip,
            line,
            reason,
            doubt: if session.undetermined && !over { words.get("session.doubt") } else { String::new() },
            size: size(words, &session.resources),
            walltime: format::minutes(words, u64::from(session.resources.walltime_min)),
            nodes: session.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            node_rows: Vec::new(),
            alerts: Vec::new(),
            scratch: ScratchLine::new(words, session, None),
            job: session.job.as_ref().map(|job| job.id.to_string()).unwrap_or_default(),
            created: Time::new(session.created_at),
            started: session.started_at.map(Time::new),
            ends: ends.map(Time::new),
            left: minutes_left
                .map(|n| words.fill("session.left", &[("time", &format::minutes(words, n))]))
                .unwrap_or_default(),
            left_is_short: minutes_left.is_some_and(|n| n < SHORT_MINUTES),
            ended: session.ended_at.filter(|_| over).map(Time::new),
            estimate: session
                .start_estimate
                .filter(|at| session.state == SessionState::Queued && *at > now)
                .map(Time::new),
            open_href: if session.state == SessionState::Running { format!("{href}/open") } else { String::new() },
            stop_href: if may_stop { format!("{href}/stop") } else { String::new() },
            again_href: if over { format!("/sessions/new?from={id}") } else { String::new() },
            run_href: match session.kind() {
                JobKind::Session => format!("/runs/new?like={id}"),
                JobKind::Run => String::new(),
            },
            steps: if over || session.state == SessionState::Stopping {
                Vec::new()
            } else {
                steps(words, session.state)
            },
            over,
            href,
            id,
        }
    }

    /// The same, with what runs on its nodes; `program` is its app, or what a run runs.
    pub(crate) fn with_nodes(mut self, words: &Words, nodes: &[NodeStatus], program: &str) -> Self {
        if !self.over && (nodes.len() > 1 || nodes.iter().any(|node| !node.steps.is_empty())) {
            self.node_rows = nodes.iter().map(|node| NodeRow::new(words, node, program)).collect();
        }
        self
    }

    /// The same, with what somebody should know.
    pub(crate) fn with_alerts(self, alerts: Vec<AlertLine>) -> Self {
        Self { alerts, ..self }
    }

    /// The same, with what is being copied to its scratch, or from it.
    pub(crate) fn with_copied(mut self, words: &Words, session: &Session, copied: Option<&Copied>) -> Self {
        self.scratch = ScratchLine::new(words, session, copied);
        self
    }

    /// The same for an admin who is not the owner: the app, and to start anything, is the owner's alone.
    pub(crate) fn without_app(mut self) -> Self {
        self.open_href = String::new();
        self.again_href = String::new();
        self.run_href = String::new();
        self
    }
}

fn chip(words: &Words, session: &Session) -> Chip {
    let key = format!("state.{}", session.state);
    let tone = match session.state {
        SessionState::Queued => Tone::Wait,
        SessionState::Starting | SessionState::Stopping => Tone::Busy,
        SessionState::Running => Tone::Good,
        SessionState::Ended => Tone::Still,
        SessionState::Failed => Tone::Bad,
    };
    let tone = if session.undetermined && !session.state.is_final() { Tone::Doubt } else { tone };
    Chip { label: words.get(&key), tone }
}

/// The sentence for the state, and the reason where it adds something. A session that is over is explained by its reason alone.
fn lines(words: &Words, session: &Session) -> (String, String) {
    let state = match session.state {
        SessionState::Stopping if session.desired == Desired::Running => "finishing",
        state => state.as_str(),
    };
    let general = words.get(&match session.kind() {
        JobKind::Session => format!("line.{state}"),
        JobKind::Run => format!("line.run_{state}"),
    });
    let reason = session.reason.as_ref().map(|reason| sentence(&reason.text)).unwrap_or_default();
    match session.state {
        SessionState::Failed | SessionState::Ended if !reason.is_empty() => (reason, String::new()),
        // Whoever comes back to it has to know why nothing is as they left it.
        SessionState::Running if reason.is_empty() && session.restart_count > 0 => (general, words.get("line.anew")),
        SessionState::Running
        | SessionState::Queued
        | SessionState::Starting
        | SessionState::Stopping
        | SessionState::Ended
        | SessionState::Failed => (general, reason),
    }
}

/// Reasons and errors begin in lower case, name things in backticks and end without a full stop; on a page they are sentences
/// with quotation marks.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut out = String::with_capacity(text.len() + 4);
    let mut opened = false;
    for letter in text.chars() {
        match letter {
            '`' => {
                out.push(if opened { '”' } else { '“' });
                opened = !opened;
            }
            letter if out.is_empty() => out.extend(letter.to_uppercase()),
            letter => out.push(letter),
        }
    }
    if !out.is_empty() && !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

fn steps(words: &Words, state: SessionState) -> Vec<Step> {
    let order = [SessionState::Queued, SessionState::Starting, SessionState::Running];
    let here = order.iter().position(|step| *step == state).unwrap_or(0);
    order
        .iter()
        .enumerate()
        .map(|(index, step)| {
            let (status, key) = match index.cmp(&here) {
                std::cmp::Ordering::Less => ("done", "steps.done"),
                std::cmp::Ordering::Equal => ("now", "steps.now"),
                std::cmp::Ordering::Greater => ("next", "steps.next"),
            };
            let moving = index == here && state != SessionState::Running;
            Step { label: words.get(&format!("steps.{step}")), status, moving, status_text: words.get(key) }
        })
        .collect()
}

/// An app's name for people; an app without words of its own keeps its name.
pub(crate) fn app_label(words: &Words, app: &str) -> String {
    words.find(&format!("app.{app}")).unwrap_or(app).to_owned()
}

/// What is asked for, in one line.
pub(crate) fn size(words: &Words, resources: &Resources) -> String {
    let mut parts =
        vec![words.count("unit.cpu", u64::from(resources.cpus)), format::memory(words, resources.memory_mib)];
    if resources.gpus > 0 {
        let count = resources.gpus.to_string();
        parts.push(match &resources.gpu_type {
            Some(kind) => words.fill("unit.gpu_typed", &[("n", &count), ("type", kind.as_str())]),
            None => words.count("unit.gpu", u64::from(resources.gpus)),
        });
    }
    let each = parts.join(", ");
    if resources.nodes > 1 {
        return words.fill("unit.on_nodes", &[("nodes", &resources.nodes.to_string()), ("size", &each)]);
    }
    each
}

/// The page of one session.
#[derive(Debug, Serialize)]
pub(crate) struct SessionPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The session.
    pub(crate) session: SessionView,
    /// What it uses.
    pub(crate) usage: UsageView,
    /// Where that is fetched again while it grows; empty when it does not.
    pub(crate) usage_href: String,
    /// Its log so far.
    pub(crate) log: String,
    /// Whether the log grows while one looks.
    pub(crate) log_href: String,
    /// Whether an admin looks at somebody else's session.
    pub(crate) foreign: bool,
}

impl Page for SessionPage {
    const TEMPLATE: &'static str = "pages/session.html";
}

/// The part of a session's page that changes with its state.
#[derive(Debug, Serialize)]
pub(crate) struct SessionFragment {
    /// The session.
    pub(crate) session: SessionView,
    /// Whether an admin looks at somebody else's session.
    pub(crate) foreign: bool,
}

impl Page for SessionFragment {
    const TEMPLATE: &'static str = "fragments/session.html";
}

/// All of one's sessions, page by page.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The sessions, newest first.
    pub(crate) sessions: Vec<SessionView>,
    /// Older ones; empty on the last page.
    pub(crate) older_href: String,
    /// The newest ones; empty when they are shown.
    pub(crate) newest_href: String,
}

impl Page for HistoryPage {
    const TEMPLATE: &'static str = "pages/sessions.html";
}

/// What one sees in the tab that will become the app.
#[derive(Debug, Serialize)]
pub(crate) struct WaitingPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The session.
    pub(crate) session: SessionView,
}

impl Page for WaitingPage {
    const TEMPLATE: &'static str = "pages/waiting.html";
}

/// The part of the waiting page that changes.
#[derive(Debug, Serialize)]
pub(crate) struct WaitingFragment {
    /// The session.
    pub(crate) session: SessionView,
}

impl Page for WaitingFragment {
    const TEMPLATE: &'static str = "fragments/waiting.html";
}

/// The page that carries a browser over to the session's own origin.
#[derive(Debug, Serialize)]
pub(crate) struct HandoverPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The session's name.
    pub(crate) name: String,
    /// Where the form goes.
    pub(crate) action: String,
    /// The one-time code.
    pub(crate) code: String,
}

impl Page for HandoverPage {
    const TEMPLATE: &'static str = "pages/handover.html";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_become_sentences() {
        assert_eq!(sentence(" the node `c1` failed "), "The node “c1” failed.");
        assert_eq!(sentence("Über alles!"), "Über alles!");
        assert_eq!(sentence(""), "");
    }

    #[test]
    fn what_runs_says_that_it_is_about_to_give_way_and_that_it_began_anew() {
        let words = eirene_words::words();
        let mut session = eirene_services::testing::session("ada");
        session.state = SessionState::Running;
        assert_eq!(lines(words, &session).1, "");
        session.restart_count = 1;
        assert!(lines(words, &session).1.contains("began anew"));
        session.reason = Some(eirene_services::sessions::reasons::giving_way(session.kind()));
        assert!(lines(words, &session).1.contains("Save your work now"));
    }
}
