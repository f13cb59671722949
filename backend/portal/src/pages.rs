//! The template engine: templates embedded in the binary, loaded once at start, rendered from typed views.
//!
//! Templates are logic-free; a field a view does not have is an error, and so is a word the catalogue does not have. A test renders
//! every page from the samples in [`super::samples`].

use std::sync::Arc;

use axum::response::Html;
use eirene_words::{Words, words};
use rust_embed::RustEmbed;
use serde::Serialize;
use tera::{Context, Kwargs, State, Tera};

use super::assets::Assets;

#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../frontend/templates"]
#[include = "*.html"]
struct Templates;

/// Why the pages could not be loaded or shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PagesError {
    /// A template.
    #[error("a page of the portal could not be made")]
    Template(#[from] tera::Error),
    /// An embedded file is missing or not text.
    #[error("the embedded file `{0}` is missing or not text")]
    File(String),
}

/// A view and the template that shows it.
pub(crate) trait Page: Serialize {
    /// Path below `templates/`.
    const TEMPLATE: &'static str;
}

/// Templates and static files; cheap to clone.
#[derive(Clone)]
pub(crate) struct Pages(Arc<Inner>);

struct Inner {
    tera: Tera,
    assets: Assets,
}

impl Pages {
    /// Loads everything, and fails when a template names an unknown filter, component or file.
    pub(crate) fn load() -> Result<Self, PagesError> {
        let text = |bytes: Option<rust_embed::EmbeddedFile>, name: &str| {
            let file = bytes.ok_or_else(|| PagesError::File(name.to_owned()))?;
            String::from_utf8(file.data.into_owned()).map_err(|_| PagesError::File(name.to_owned()))
        };
        let assets = Assets::load();

        let mut tera = Tera::new();
        tera.register_filter("t", |key: &str, values: Kwargs, _: &State| translate(words(), key, &values));
        let files = assets.clone();
        tera.register_filter("asset", move |name: &str, _: Kwargs, _: &State| {
            if Assets::contains(name) {
                Ok(files.url(name))
            } else {
                Err(tera::Error::message(format!("no static file `{name}`")))
            }
        });
        let mut sources = Vec::new();
        for name in Templates::iter() {
            sources.push((name.to_string(), text(Templates::get(&name), &name)?));
        }
        tera.add_raw_templates(sources)?;
        Ok(Self(Arc::new(Inner { tera, assets })))
    }

    /// The static files.
    pub(crate) fn assets(&self) -> &Assets {
        &self.0.assets
    }

    /// Shows a view.
    pub(crate) fn render<P: Page>(&self, page: &P) -> Result<Html<String>, PagesError> {
        Ok(Html(self.0.tera.render(P::TEMPLATE, &Context::from_serialize(page)?)?))
    }
}

fn translate(words: &Words, key: &str, values: &Kwargs) -> Result<String, tera::Error> {
    let Some(text) = words.find(key) else { return Err(tera::Error::message(format!("no message `{key}`"))) };
    let pairs: Vec<(String, String)> =
        values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Ok(eirene_words::fill(text, &pairs))
}
