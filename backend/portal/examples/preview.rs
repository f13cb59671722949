//! Writes every sample page and every static file to `var/preview`, where the browser tests look at them.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../var/preview");
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    let pages = eirene_portal::samples::pages().map_err(anyhow::Error::from_boxed)?;
    let pages = pages.into_iter().map(|(name, html)| (format!("{name}.html"), html.into_bytes()));
    let files = eirene_portal::samples::files().map_err(anyhow::Error::from_boxed)?;
    for (name, content) in pages.chain(files) {
        let path = out.join(name.trim_start_matches('/'));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(())
}
