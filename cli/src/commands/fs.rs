//! `eirene fs`: files of this machine into spaces.

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::api::Api;
use crate::arguments::CopyFiles;
use crate::{output, upload};

pub(super) async fn copy(api: &Api, wish: &CopyFiles, as_json: bool) -> anyhow::Result<()> {
    ensure!(wish.from.len() == 1 || wish.to.is_directory(), "several files go into a directory: end the path with `/`");
    for file in &wish.from {
        let name = file.file_name().with_context(|| format!("`{}` is no file", file.display()))?;
        let bytes = file.metadata().map(|found| found.len()).unwrap_or_default();
        let bar = output::progress(as_json, bytes);
        bar.set_message(output::printable(&name.to_string_lossy()));
        let path = upload::send(api, file, &wish.to.space, &wish.to.file(name), wish, &bar).await;
        bar.finish_and_clear();
        let path = path?;
        if as_json {
            output::json_line(
                &json!({"file": file.to_string_lossy(), "space": wish.to.space, "path": path, "bytes": bytes}),
            )?;
        } else {
            output::say(&format!("Copied {} to {}:{path}.", file.display(), wish.to.space));
        }
    }
    Ok(())
}
