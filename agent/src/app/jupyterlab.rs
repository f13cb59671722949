//! JupyterLab, on a unix socket, with kernels on unix sockets: everybody on the node could reach a TCP port.
//!
//! There is no password: the socket lies in a directory that only the person can enter, and the portal authorises every request
//! before it comes here. Jupyter's own cross-site check stays on. Options: jupyter-server's and jupyter-client's documentation.

use super::{App, AppContext, RUNTIME, SOCKET};

/// Packages a person installs go to the home, where they last, and not into an image that forgets them.
pub(super) const APP: App = App { command, environment, writable_image: false, ready_path: "/api" };

fn command(context: AppContext<'_>) -> Vec<String> {
    vec![
        // `jupyter lab` would start Python once more, only to find this program.
        "jupyter-lab".to_owned(),
        "--no-browser".to_owned(),
        format!("--ServerApp.sock={RUNTIME}/{SOCKET}"),
        "--ServerApp.sock_mode=0600".to_owned(),
        format!("--ServerApp.root_dir={}", context.home),
        format!("--ServerApp.allow_origin={}", context.origin),
        // The host name is the portal's to check.
        "--ServerApp.allow_remote_access=True".to_owned(),
        // By itself it would start login shells, whose profile takes the image's and the launchers' programs out of the PATH.
        "--ServerApp.terminado_settings={'shell_command': ['/bin/bash']}".to_owned(),
        // Stopping is done in the portal, where it gives the allocation back.
        "--ServerApp.quit_button=False".to_owned(),
        "--IdentityProvider.token=".to_owned(),
        "--KernelManager.transport=ipc".to_owned(),
    ]
}

fn environment(_: AppContext<'_>) -> Vec<(&'static str, String)> {
    vec![("JUPYTER_RUNTIME_DIR", format!("{RUNTIME}/jupyter"))]
}
