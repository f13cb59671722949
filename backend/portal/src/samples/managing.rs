//! The admins' pages about everybody's spaces.

use eirene_core::UserId;
use eirene_core::account::Role;
use eirene_core::space::{PolicyOutcome, PolicyRun, PolicyStep};
use eirene_services::config::Root;
use eirene_services::spaces::policing::PolicyReport;
use eirene_words::words;

use super::{HOSTILE, Result, Samples};
use crate::views::layout::Place;
use crate::views::managing::{ManagedPage, ManagingPage, PolicyPage, PolicyShown, RowView, SpaceForm};
use crate::views::old_files::OldFilesForm;
use crate::views::{Field, FormError};

impl Samples {
    /// The list with a form that was refused, and the same with nothing in it; spaces that are there, not made, and taken away.
    pub(super) fn managing(&mut self) -> Result<()> {
        let root = r#"{"name": "project", "kind": "project", "title": "Projects", "path": "/project"}"#;
        let roots: Vec<Root> = vec![serde_json::from_str(root)?];
        let spaces = self.seen()?;
        let wrong = FormError::new(words(), "name", "1 to 64 of a–z, 0–9");
        let mut form = SpaceForm::empty(words(), &roots);
        form.name = Field::new(HOSTILE);
        let rows = spaces.iter().map(|seen| RowView::new(words(), seen)).collect();
        let cases = [
            ("admin-spaces", rows, "/admin/storage/spaces?cursor=x", form.refused(vec![wrong])),
            ("admin-spaces-none", Vec::new(), "", SpaceForm::empty(words(), &roots)),
            ("admin-spaces-no-roots", Vec::new(), "", SpaceForm::empty(words(), &[])),
        ];
        for (name, spaces, next_href, form) in cases {
            let layout = self.layout(Place::Storage, &words().get("spaces_admin.title"), Role::Admin)?;
            self.add(name, &ManagingPage { layout, spaces, next_href: next_href.to_owned(), form })?;
        }
        let text = words().fill("spaces_admin.retire_text", &[("until", "21 December 2026")]);
        let cases =
            [(0, "admin-space-home"), (3, "admin-space"), (5, "admin-space-not-made"), (6, "admin-space-retired")];
        for (at, name) in cases {
            let layout = self.layout(Place::Storage, spaces[at].space.title.as_str(), Role::Admin)?;
            let form = SpaceForm::of(words(), &spaces[at]);
            let me = UserId::generate();
            self.add(name, &ManagedPage::new(words(), layout, &spaces[at], me, text.clone(), form))?;
        }
        let run =
            |outcome, step| PolicyRun { step, outcome, why: "it is past <b>its end</b>".to_owned(), at: self.now };
        let runs = vec![
            run(PolicyOutcome::WouldDo, Some(PolicyStep::Retire)),
            run(PolicyOutcome::Warned, Some(PolicyStep::Warn)),
            run(PolicyOutcome::Undetermined, None),
        ];
        let report = |step, outcome, runs| PolicyReport { step, outcome, why: "nothing is due".to_owned(), runs };
        let cases = [
            ("admin-space-policy", report(Some(PolicyStep::Retire), PolicyOutcome::WouldDo, runs)),
            ("admin-space-policy-none", report(None, PolicyOutcome::Nothing, vec![])),
        ];
        for (name, report) in cases {
            let page = PolicyPage {
                layout: self.layout(Place::Storage, &words().get("spaces_admin.policy"), Role::Admin)?,
                name: "a-space-with-a-rather-long-name".to_owned(),
                href: "/admin/storage/spaces/x".to_owned(),
                policy: PolicyShown::new(words(), &report),
                old_files: {
                    let old_files = self.old_files(report.step.is_some());
                    let shared = if report.step.is_some() { Self::shared_old_files(&old_files)? } else { old_files };
                    OldFilesForm::new(words(), "/admin/storage/spaces/x", &shared)
                },
            };
            self.add(name, &page)?;
        }
        Ok(())
    }
}
