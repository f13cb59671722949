//! One sample of every page, with hostile and with long content: a test renders them all, `cargo run --example preview` writes them to
//! disk to be looked at.

mod account;
mod admin;
mod alerts;
mod efficiency;
mod files;
mod health;
mod managing;
mod nodes;
mod quotas;
mod runs;
mod sessions;
mod starting;
mod storage;

use eirene_core::account::{Role, User, UserState};
use eirene_core::id::UserId;
use eirene_words::words;
use jiff::Timestamp;

use super::pages::{Page, Pages, PagesError};
use super::views::Field;
use super::views::layout::{Layout, Place, Tone};
use super::views::simple::{ConfirmPage, ErrorPage, LoginPage};

/// A name that would run as a script if anything forgot to escape it.
const HOSTILE: &str = "<script>alert(1)</script>'\"&";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Every sample page: its name and its HTML.
pub fn pages() -> Result<Vec<(String, String)>> {
    Samples::new()?.all()
}

/// Every static file: its address and its content.
pub fn files() -> Result<Vec<(String, Vec<u8>)>> {
    Ok(Pages::load()?.assets().all().collect())
}

/// Makes the samples; the tests take single ones.
pub(super) struct Samples {
    pub(super) pages: Pages,
    pub(super) now: Timestamp,
    out: Vec<(String, String)>,
}

impl Samples {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { pages: Pages::load()?, now: "2026-11-21T08:30:00Z".parse()?, out: Vec::new() })
    }

    fn add<P: Page>(&mut self, name: &str, page: &P) -> std::result::Result<(), PagesError> {
        self.out.push((name.to_owned(), self.pages.render(page)?.0));
        Ok(())
    }

    fn layout(&self, place: Place, title: &str, role: Role) -> Result<Layout> {
        let user = User {
            id: UserId::generate(),
            username: "ada".parse()?,
            role,
            state: UserState::Active,
            uid: Some(2001),
            created_at: self.now,
            access_epoch: 0,
        };
        Ok(Layout::for_user(words(), &user, "sample-csrf", place, title))
    }

    fn all(mut self) -> Result<Vec<(String, String)>> {
        self.simple()?;
        self.sessions()?;
        self.runs()?;
        self.starting()?;
        self.spaces()?;
        self.sizes()?;
        self.storage()?;
        self.activity()?;
        self.quotas()?;
        self.managing()?;
        self.alerts()?;
        self.account()?;
        self.files()?;
        self.admin()?;
        self.health()?;
        Ok(self.out)
    }

    fn simple(&mut self) -> Result<()> {
        let words = words();
        let nobody = Layout::for_nobody(words, &words.get("login.page_title"));
        let login = |error: &str, tone, username: &str| LoginPage {
            layout: nobody.clone(),
            username: Field::new(username),
            error: error.to_owned(),
            tone,
            next: "/".to_owned(),
        };
        self.add("login", &login("", Tone::Bad, ""))?;
        self.add("login-wrong", &login(&words.get("login.wrong"), Tone::Bad, HOSTILE))?;
        self.add("login-limited", &login(&words.fill("login.limited", &[("seconds", "30")]), Tone::Wait, "ada"))?;
        for status in [404_u16, 403, 500, 503] {
            let text = words.find(&format!("error.text_{status}")).unwrap_or(HOSTILE).to_owned();
            let title = words.get(&format!("error.title_{status}"));
            let layout = Layout::for_nobody(words, &title);
            let request_id = "0198f3a2b4c67d1e8f90a1b2c3d4e5f6".to_owned();
            self.add(&format!("error-{status}"), &ErrorPage { layout, status, title, text, request_id })?;
        }
        let layout = self.layout(Place::Elsewhere, "Stop", Role::Researcher)?;
        let confirm = ConfirmPage {
            layout,
            title: words.fill("session.stop_title", &[("name", "Protein folding")]),
            text: words.get("session.stop_text"),
            action: "/sessions/x/stop".to_owned(),
            yes: words.get("session.stop_yes"),
            back_href: "/".to_owned(),
        };
        self.add("confirm", &confirm)?;
        Ok(())
    }
}
