//! Pages with one card on them: log in, confirm, error.

use serde::Serialize;

use super::Field;
use super::layout::{Layout, Tone};
use crate::pages::Page;

/// Log in.
#[derive(Debug, Serialize)]
pub(crate) struct LoginPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// Name, kept when the log-in failed; the password never is.
    pub(crate) username: Field,
    /// What went wrong; empty when nothing has yet.
    pub(crate) error: String,
    /// How that is meant.
    pub(crate) tone: Tone,
    /// Where to go afterwards: a path of ours.
    pub(crate) next: String,
}

impl Page for LoginPage {
    const TEMPLATE: &'static str = "pages/login.html";
}

/// Asks once more before something that cannot be taken back.
#[derive(Debug, Serialize)]
pub(crate) struct ConfirmPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The question.
    pub(crate) title: String,
    /// What will happen.
    pub(crate) text: String,
    /// Where yes goes.
    pub(crate) action: String,
    /// What yes is called.
    pub(crate) yes: String,
    /// Where no goes.
    pub(crate) back_href: String,
}

impl Page for ConfirmPage {
    const TEMPLATE: &'static str = "pages/confirm.html";
}

/// Something went wrong.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// HTTP status.
    pub(crate) status: u16,
    /// What is the matter.
    pub(crate) title: String,
    /// What to do.
    pub(crate) text: String,
    /// What finds it in the log; empty when there is none.
    pub(crate) request_id: String,
}

impl Page for ErrorPage {
    const TEMPLATE: &'static str = "pages/error.html";
}
