//! What can be started in a session: one file an app, a table of all.

mod jupyterlab;

use eirene_core::AppName;

/// Where the runtime directory is seen in the container.
pub(crate) const RUNTIME: &str = "/run/eirene";
/// Name of the app's socket in the runtime directory.
pub(crate) const SOCKET: &str = "app.sock";

/// What an app needs to know of its session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppContext<'a> {
    /// The person's home.
    pub(crate) home: &'a str,
    /// The session's origin, as browsers name it.
    pub(crate) origin: &'a str,
}

/// An app: how it is started, and how one knows that it answers.
pub(crate) struct App {
    /// Program and arguments in the container.
    pub(crate) command: fn(AppContext<'_>) -> Vec<String>,
    /// Environment beside the session's own.
    pub(crate) environment: fn(AppContext<'_>) -> Vec<(&'static str, String)>,
    /// Whether it writes into its image's own directories.
    pub(crate) writable_image: bool,
    /// Path that answers 200 as soon as the app does.
    pub(crate) ready_path: &'static str,
}

/// The app of this name.
pub(crate) fn find(name: &AppName) -> Option<&'static App> {
    match name.as_str() {
        "jupyterlab" => Some(&jupyterlab::APP),
        _ => None,
    }
}
