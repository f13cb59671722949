//! A run as the pages show it: what a session's view says of its job, and what it carries out.

use eirene_core::run::{FileKind, RunProgram};
use eirene_core::session::Session;
use eirene_services::nodes::{Copied, NodeStatus};
use eirene_services::runs::labelled_ranks;
use eirene_words::Words;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::cluster::FreeView;
use super::layout::Layout;
use super::session::SessionView;
use super::start::{HomeNotice, Sees, StartForm, StartInput};
use super::usage::UsageView;
use super::{Field, FormError};
use crate::pages::Page;

/// A run on any page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RunView {
    /// What it has in common with a session; its addresses are the run's.
    pub(crate) job: SessionView,
    /// What it runs.
    pub(crate) file: String,
    /// Arguments.
    pub(crate) arguments: Vec<String>,
    /// How many ranks; empty for one process.
    pub(crate) ranks: String,
    /// The same in words.
    pub(crate) ranks_text: String,
    /// The number of the last rank; empty where there are none.
    pub(crate) last_rank: String,
    /// Where the executed notebook is left; empty for a script.
    pub(crate) notebook: String,
    /// The program's exit status; empty while there is none.
    pub(crate) exit_status: String,
    /// The run that it repeats; empty for none.
    pub(crate) earlier_href: String,
    /// The run that repeats it; empty for none.
    pub(crate) later_href: String,
    /// Where it is requeued; empty where it cannot be.
    pub(crate) requeue_href: String,
    /// What a requeue means now.
    pub(crate) requeue_text: String,
}

impl RunView {
    /// Shows `run` to its owner; `later` is the run that repeats it.
    pub(crate) fn new(words: &Words, run: &Session, later: Option<&Session>, now: Timestamp) -> Self {
        let mut job = SessionView::new(words, run, now);
        let href = |run: &dyn std::fmt::Display| format!("/runs/{run}");
        let own = href(&run.id);
        if !job.stop_href.is_empty() {
            job.stop_href = format!("{own}/cancel");
        }
        if !job.again_href.is_empty() {
            job.again_href = format!("/runs/new?from={}", run.id);
        }
        job.open_href = String::new();
        job.left_is_short = false;
        let program = run.program.as_ref();
        let ranks = program.and_then(|program| program.ranks);
        let is_notebook = program.is_some_and(|program| program.kind() == FileKind::Notebook);
        let alone = if is_notebook { "run.notebook_ranks" } else { "run.no_ranks" };
        let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let text = if run.state.is_final() { "run.requeue_text" } else { "run.requeue_live_text" };
        Self {
            file: program.map(|program| program.file.clone()).unwrap_or_default(),
            arguments: program.map(|program| program.arguments.clone()).unwrap_or_default(),
            ranks: number(ranks),
            ranks_text: ranks.map_or_else(|| words.get(alone), |ranks| ranks.to_string()),
            last_rank: number(labelled_ranks(run).map(|ranks| ranks.saturating_sub(1))),
            notebook: program.and_then(|program| program.executed(run.id)).unwrap_or_default(),
            exit_status: run.exit_status.map(|status| status.to_string()).unwrap_or_default(),
            earlier_href: run.requeue_of.map(|id| href(&id)).unwrap_or_default(),
            later_href: later.map(|later| href(&later.id)).unwrap_or_default(),
            requeue_href: if later.is_none() { format!("{own}/requeue") } else { String::new() },
            requeue_text: words.get(text),
            job: SessionView { href: own, ..job },
        }
    }

    /// The same, with what runs on its nodes.
    pub(crate) fn with_nodes(mut self, words: &Words, nodes: &[NodeStatus]) -> Self {
        self.job = self.job.with_nodes(words, nodes, &self.file);
        self
    }

    /// The same, with what is being copied to its scratch, or from it.
    pub(crate) fn with_copied(mut self, words: &Words, run: &Session, copied: Option<&Copied>) -> Self {
        self.job = self.job.with_copied(words, run, copied);
        self
    }

    /// The same for an admin who is not the owner: starting anything is the owner's alone.
    pub(crate) fn foreign(mut self) -> Self {
        self.job = self.job.without_app();
        self.requeue_href = String::new();
        self
    }
}

/// The form as it is sent: text as typed, so that it can be shown again.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RunInput {
    /// What to run.
    pub(crate) file: String,
    /// One argument a line.
    pub(crate) arguments: String,
    /// Ranks; empty for one process.
    pub(crate) ranks: String,
    /// `on` where nodes and links are to be tried.
    pub(crate) preflight: String,
    /// Id of the session that it is to be like; empty for none.
    pub(crate) like: String,
    /// See [`StartInput`].
    pub(crate) name: String,
    /// See [`StartInput`].
    pub(crate) image: String,
    /// See [`StartInput`].
    pub(crate) project: String,
    /// See [`StartInput`].
    pub(crate) partition: String,
    /// See [`StartInput`].
    pub(crate) nodes: String,
    /// See [`StartInput`].
    pub(crate) cpus: String,
    /// See [`StartInput`].
    pub(crate) memory_gib: String,
    /// See [`StartInput`].
    pub(crate) gpus: String,
    /// See [`StartInput`].
    pub(crate) gpu_type: String,
    /// See [`StartInput`].
    pub(crate) hours: String,
    /// See [`StartInput`].
    pub(crate) minutes: String,
    /// See [`StartInput`].
    pub(crate) scratch: String,
    /// See [`StartInput`].
    pub(crate) scratch_gib: String,
    /// See [`StartInput`].
    pub(crate) stage_in: String,
    /// See [`StartInput`].
    pub(crate) stage_out: String,
    /// See [`StartInput`].
    pub(crate) stage_out_success: String,
    /// See [`StartInput`].
    pub(crate) key: String,
}

impl RunInput {
    /// The form for what `input` asks for, with nothing to run yet.
    pub(crate) fn of_size(input: StartInput) -> Self {
        Self {
            preflight: "on".to_owned(),
            name: input.name,
            image: input.image,
            project: input.project,
            partition: input.partition,
            nodes: input.nodes,
            cpus: input.cpus,
            memory_gib: input.memory_gib,
            gpus: input.gpus,
            gpu_type: input.gpu_type,
            hours: input.hours,
            minutes: input.minutes,
            scratch: input.scratch,
            scratch_gib: input.scratch_gib,
            stage_in: input.stage_in,
            stage_out: input.stage_out,
            stage_out_success: input.stage_out_success,
            key: input.key,
            ..Self::default()
        }
    }

    /// The form that starts the same as `run` did.
    pub(crate) fn again(run: &Session) -> Self {
        let mut input = Self::of_size(StartInput::again(run));
        if let Some(program) = &run.program {
            input.file.clone_from(&program.file);
            input.arguments = program.arguments.join("\n");
            input.ranks = program.ranks.map(|ranks| ranks.to_string()).unwrap_or_default();
            input.preflight = if program.preflight { "on".to_owned() } else { String::new() };
        }
        input
    }

    /// The form for a run like `session`, with nothing to run yet.
    pub(crate) fn like(session: &Session) -> Self {
        let again = StartInput::again(session);
        let size =
            StartInput { image: again.image, project: again.project, ..StartInput::from_resources(&session.resources) };
        Self { like: session.id.to_string(), ..Self::of_size(size) }
    }

    /// What it has in common with the form for a session.
    pub(crate) fn size(&self) -> StartInput {
        StartInput {
            name: self.name.clone(),
            app: String::new(),
            image: self.image.clone(),
            project: self.project.clone(),
            partition: self.partition.clone(),
            nodes: self.nodes.clone(),
            cpus: self.cpus.clone(),
            memory_gib: self.memory_gib.clone(),
            gpus: self.gpus.clone(),
            gpu_type: self.gpu_type.clone(),
            hours: self.hours.clone(),
            minutes: self.minutes.clone(),
            scratch: self.scratch.clone(),
            scratch_gib: self.scratch_gib.clone(),
            stage_in: self.stage_in.clone(),
            stage_out: self.stage_out.clone(),
            stage_out_success: self.stage_out_success.clone(),
            key: self.key.clone(),
        }
    }

    /// What is to be carried out; a fault names its field.
    pub(crate) fn program(&self, words: &Words) -> Result<RunProgram, FormError> {
        let ranks = match self.ranks.trim() {
            "" => None,
            text => match text.parse() {
                Ok(ranks) => Some(ranks),
                Err(_) => return Err(FormError::new(words, "ranks", words.get("start.error.number"))),
            },
        };
        // A browser ends lines with two characters.
        let lines = self.arguments.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        Ok(RunProgram {
            file: self.file.trim().to_owned(),
            arguments: lines.filter(|line| !line.is_empty()).map(str::to_owned).collect(),
            ranks,
            preflight: !self.preflight.is_empty(),
        })
    }

    /// The part of the form that is a run's own.
    pub(crate) fn fields(&self, errors: &[FormError]) -> RunFields {
        let field =
            |name: &str, value: &str| Field { value: value.to_owned(), error: FormError::text_of(errors, name) };
        RunFields {
            file: field("file", &self.file),
            arguments: field("arguments", &self.arguments),
            ranks: field("ranks", &self.ranks),
            preflight: !self.preflight.is_empty(),
        }
    }
}

/// What only a run's form has.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RunFields {
    /// See [`RunInput`].
    pub(crate) file: Field,
    /// See [`RunInput`].
    pub(crate) arguments: Field,
    /// See [`RunInput`].
    pub(crate) ranks: Field,
    /// See [`RunInput`].
    pub(crate) preflight: bool,
}

/// The session that a run is to be like, as the form tells of it.
#[derive(Debug, Serialize)]
pub(crate) struct LikeView {
    /// Its id.
    pub(crate) id: String,
    /// What its owner calls it.
    pub(crate) name: String,
}

impl LikeView {
    /// Of `session`.
    pub(crate) fn new(session: &Session) -> Self {
        Self { id: session.id.to_string(), name: session.name.to_string() }
    }
}

/// My runs, page by page.
#[derive(Debug, Serialize)]
pub(crate) struct RunsPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The runs, newest first.
    pub(crate) runs: Vec<RunView>,
    /// Where this part of the list is by itself.
    pub(crate) fragment_href: String,
    /// Older ones; empty on the last page.
    pub(crate) older_href: String,
    /// The newest ones; empty when they are shown.
    pub(crate) newest_href: String,
}

impl Page for RunsPage {
    const TEMPLATE: &'static str = "pages/runs.html";
}

/// The list by itself.
#[derive(Debug, Serialize)]
pub(crate) struct RunsFragment {
    /// The runs, newest first.
    pub(crate) runs: Vec<RunView>,
}

impl Page for RunsFragment {
    const TEMPLATE: &'static str = "fragments/runs.html";
}

/// Everybody's runs.
#[derive(Debug, Serialize)]
pub(crate) struct AllRunsPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The list.
    pub(crate) runs: Vec<RunView>,
    /// Whether only those that live are shown.
    pub(crate) live_only: bool,
    /// The next page; empty on the last.
    pub(crate) next_href: String,
    /// Where the list is fetched again.
    pub(crate) fragment_href: String,
}

impl Page for AllRunsPage {
    const TEMPLATE: &'static str = "pages/admin/runs.html";
}

/// The list of all runs by itself.
#[derive(Debug, Serialize)]
pub(crate) struct AllRunsFragment {
    /// The list.
    pub(crate) runs: Vec<RunView>,
}

impl Page for AllRunsFragment {
    const TEMPLATE: &'static str = "fragments/all_runs.html";
}

/// The page of one run.
#[derive(Debug, Serialize)]
pub(crate) struct RunPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The run.
    pub(crate) run: RunView,
    /// What it uses.
    pub(crate) usage: UsageView,
    /// Where that is fetched again while it grows; empty when it does not.
    pub(crate) usage_href: String,
    /// The rank whose lines are shown; empty for all.
    pub(crate) rank: String,
    /// The log so far.
    pub(crate) log: String,
    /// Where the log grows; empty when it does not.
    pub(crate) log_href: String,
    /// The log as text.
    pub(crate) whole_href: String,
    /// Whether an admin looks at somebody else's run.
    pub(crate) foreign: bool,
}

impl Page for RunPage {
    const TEMPLATE: &'static str = "pages/run.html";
}

/// The part of a run's page that changes with its state.
#[derive(Debug, Serialize)]
pub(crate) struct RunFragment {
    /// The run.
    pub(crate) run: RunView,
    /// Whether an admin looks at somebody else's run.
    pub(crate) foreign: bool,
}

impl Page for RunFragment {
    const TEMPLATE: &'static str = "fragments/run.html";
}

/// The page of the form.
#[derive(Debug, Serialize)]
pub(crate) struct StartRunPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What it has in common with the form for a session.
    pub(crate) form: StartForm,
    /// What it has of its own.
    pub(crate) run: RunFields,
    /// The session that it is to be like, if any.
    pub(crate) like: Option<LikeView>,
    /// What is free.
    pub(crate) free: FreeView,
    /// What was wrong when it was sent.
    pub(crate) errors: Vec<FormError>,
    /// Whether there is an image to start.
    pub(crate) has_images: bool,
    /// What the person's home may do to what they start; nothing while there is room.
    pub(crate) home: Option<HomeNotice>,
    /// What it will see of the person's spaces.
    pub(crate) sees: Sees,
}

impl Page for StartRunPage {
    const TEMPLATE: &'static str = "pages/start_run.html";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_lines_as_they_are() {
        let words = Words::parse("").unwrap();
        let input = RunInput {
            file: " work/train.py ".into(),
            arguments: "--name\r\n  two words; $(id) \"x\"\r\n\r\n--last".into(),
            ranks: " 8 ".into(),
            ..RunInput::default()
        };
        let program = input.program(&words).unwrap();
        assert_eq!(program.file, "work/train.py");
        assert_eq!(program.arguments, ["--name", "  two words; $(id) \"x\"", "--last"]);
        assert_eq!((program.ranks, program.preflight), (Some(8), false));
        let wrong = RunInput { ranks: "many".into(), ..input };
        assert_eq!(wrong.program(&words).unwrap_err().field, "ranks");
        assert_eq!(RunInput::default().program(&words).unwrap().arguments, Vec::<String>::new());
    }
}
