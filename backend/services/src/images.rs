//! The catalogue of images. Adding and retiring is an admin's; a session keeps the file it was started with.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use eirene_core::{AppName, Clock, Image, ImageId, ImageName, Scope, Sentence};
use eirene_database::Db;
use eirene_words::{say, say_with};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::actor::Actor;
use crate::audit::Audit;
use crate::error::{AppError, FieldError};

/// An image about to be added.
#[derive(Debug, Clone)]
pub struct NewImage {
    /// Name.
    pub name: ImageName,
    /// One sentence for the start form.
    pub description: String,
    /// The SIF file, at the same path here and on the compute nodes.
    pub sif: PathBuf,
    /// Apps it can run.
    pub apps: Vec<AppName>,
}

/// The catalogue.
#[derive(Clone)]
pub struct Images {
    db: Db,
    clock: Arc<dyn Clock>,
    audit: Audit,
}

impl Images {
    /// The catalogue kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, audit: Audit) -> Self {
        Self { db, clock, audit }
    }

    /// All images that are not retired.
    pub async fn list(&self, actor: &Actor) -> Result<Vec<Image>, AppError> {
        actor.require(Scope::Read)?;
        Ok(self.db.images().await?)
    }

    /// Adds an image, or puts a new file in the place of an old one of the same name. The same file again changes nothing.
    pub async fn add(&self, actor: &Actor, new: NewImage) -> Result<Image, AppError> {
        actor.require_admin()?;
        let (sha256, size_bytes) = fingerprint(new.sif.clone()).await?;
        let image = Image {
            id: ImageId::generate(),
            name: new.name,
            description: new.description,
            path: new.sif.display().to_string(),
            sha256,
            size_bytes,
            apps: new.apps,
            created_at: self.clock.now(),
        };
        if let Some(known) = self.db.image_by_name(&image.name).await? {
            let same = (&known.sha256, &known.path, &known.apps, &known.description)
                == (&image.sha256, &image.path, &image.apps, &image.description);
            if same {
                return Ok(known);
            }
        }
        let details = json!({"sha256": image.sha256, "path": image.path});
        let entry = self.audit.entry(actor.audit("image.add", image.name.as_str(), "ok", details));
        self.db.insert_image(&image, &entry).await?;
        Ok(image)
    }

    /// Takes an image out of the catalogue; sessions that run it go on.
    pub async fn retire(&self, actor: &Actor, name: &ImageName) -> Result<(), AppError> {
        actor.require_admin()?;
        let entry = self.audit.entry(actor.audit("image.retire", name.as_str(), "ok", json!({})));
        if self.db.retire_image(name, &entry).await? { Ok(()) } else { Err(AppError::NotFound) }
    }
}

async fn fingerprint(path: PathBuf) -> Result<(String, i64), AppError> {
    let wrong = |message: Sentence| AppError::Invalid(vec![FieldError::new("sif", message)]);
    let plain = path.to_str().is_some_and(|text| !text.contains([',', ':']) && !text.chars().any(char::is_control));
    if !path.is_absolute() || !plain {
        return Err(wrong(say("wrong.path")));
    }
    let shown = path.display().to_string();
    let hashed =
        tokio::task::spawn_blocking(move || hash_file(&path)).await.map_err(|e| AppError::Internal(e.into()))?;
    hashed.map_err(|error| wrong(say_with("wrong.unreadable", &[("file", &shown), ("error", &error.to_string())])))
}

fn hash_file(path: &Path) -> std::io::Result<(String, i64)> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    let mut size: i64 = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((HEXLOWER.encode(&hasher.finalize()), size));
        }
        hasher.update(&buffer[..read]);
        size = size.saturating_add_unsigned(read as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_known_by_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let sif = dir.path().join("a.sif");
        std::fs::write(&sif, "abc").unwrap();
        let (sha256, size) = fingerprint(sif).await.unwrap();
        assert_eq!(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(size, 3);
        for bad in ["relative.sif", "/no/such/file.sif", "/a,b.sif", "/a:b.sif"] {
            assert!(matches!(fingerprint(bad.into()).await, Err(AppError::Invalid(_))), "{bad}");
        }
    }
}
