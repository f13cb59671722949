//! Runs, and the pages about them.

use eirene_core::account::Role;
use eirene_core::id::SessionId;
use eirene_core::run::RunProgram;
use eirene_core::session::{Reason, Session, SessionState};
use eirene_words::{say, say_with, words};

use super::{HOSTILE, Result, Samples};
use crate::views::layout::{Layout, Place};
use crate::views::run::{AllRunsFragment, AllRunsPage, RunFragment, RunPage, RunView, RunsFragment, RunsPage};

impl Samples {
    /// A run of as many ranks; of a notebook without any.
    pub(crate) fn run(&self, name: &str, state: SessionState, ranks: Option<u32>) -> Result<Session> {
        let file = if ranks.is_some() { "thesis/chapter 3/train.py" } else { "thesis/figures.ipynb" };
        let arguments = if ranks.is_some() { vec!["--name".to_owned(), HOSTILE.repeat(4)] } else { Vec::new() };
        let mut run = self.session(name, state)?;
        run.program = Some(RunProgram { file: file.to_owned(), arguments, ranks, preflight: true });
        run.resources.nodes = 2;
        Ok(run)
    }

    pub(super) fn runs(&mut self) -> Result<()> {
        let words = words();
        let mut queued = self.run("train.py", SessionState::Queued, Some(8))?;
        queued.requeue_of = Some(SessionId::generate());
        queued.reason = Some(Reason::new("earlier_run", say("reason.earlier_run")));
        let running = self.run("train.py", SessionState::Running, Some(8))?;
        let mut failed = self.run(HOSTILE, SessionState::Failed, Some(16))?;
        failed.exit_status = Some(3);
        failed.reason = Some(Reason::new("program_failed", say_with("reason.program_failed", &[("status", "3")])));
        let mut ended = self.run("figures.ipynb", SessionState::Ended, None)?;
        ended.exit_status = Some(0);
        ended.reason = Some(Reason::new("program_ended", say("reason.program_ended")));
        let all = [queued, running, failed, ended];
        let view = |run: &Session| RunView::new(words, run, None, self.now);
        let runs: Vec<RunView> = all.iter().map(view).collect();
        let repeated = RunView::new(words, &all[2], Some(&all[0]), self.now);
        let layout = |samples: &Self, title: &str| -> Result<Layout> {
            Ok(samples.layout(Place::Runs, title, Role::Researcher)?.live("/live/events", 15))
        };
        for run in runs.iter().chain([&repeated]) {
            let name = format!("run-{}{}", run.job.state, if run.later_href.is_empty() { "" } else { "-repeated" });
            let page = RunPage {
                layout: layout(self, &run.job.name)?,
                usage: self.usage(run.job.state, 1)?,
                usage_href: String::new(),
                rank: if run.job.state == "running" { "3".to_owned() } else { String::new() },
                log: "[0] epoch 1\n[1] <b>not bold</b>\n".to_owned(),
                log_href: String::new(),
                whole_href: format!("{}/log", run.job.href),
                foreign: run.job.state == "ended",
                run: if run.job.state == "ended" { run.clone().foreign() } else { run.clone() },
            };
            self.add(&name, &page)?;
        }
        self.add("fragment-run", &RunFragment { run: runs[0].clone(), foreign: false })?;
        for (name, runs, more) in [("runs", runs.clone(), true), ("runs-none", Vec::new(), false)] {
            let href = |href: &str| if more { href.to_owned() } else { String::new() };
            let page = RunsPage {
                layout: layout(self, &words.get("runs.title"))?,
                runs,
                fragment_href: "/fragments/runs".to_owned(),
                older_href: href("/runs?cursor=x"),
                newest_href: href("/runs"),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-runs", &RunsFragment { runs: runs.clone() })?;
        for (name, runs) in [("admin-runs", runs.clone()), ("admin-runs-none", Vec::new())] {
            let page = AllRunsPage {
                layout: self.layout(Place::AllRuns, &words.get("all_runs.title"), Role::Admin)?,
                live_only: runs.is_empty(),
                runs: runs.into_iter().map(RunView::foreign).collect(),
                next_href: "/admin/runs?cursor=x".to_owned(),
                fragment_href: "/fragments/admin/runs".to_owned(),
            };
            self.add(name, &page)?;
        }
        self.add("fragment-all-runs", &AllRunsFragment { runs })?;
        Ok(())
    }
}
