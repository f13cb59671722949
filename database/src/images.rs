//! The catalogue of images. A retired image keeps its row for the record; its name is free for the next version.

use eirene_core::audit::AuditEntry;
use eirene_core::{Image, ImageName};
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    INSERT = "INSERT INTO images (id, name, description, path, sha256, size_bytes, apps, created_at, retired)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, FALSE)";
    BY_NAME = "SELECT id, name, description, path, sha256, size_bytes, apps, created_at
        FROM images WHERE name = $1 AND retired = FALSE";
    ALL = "SELECT id, name, description, path, sha256, size_bytes, apps, created_at
        FROM images WHERE retired = FALSE ORDER BY name";
    RETIRE = "UPDATE images SET retired = TRUE WHERE name = $1 AND retired = FALSE";
}

#[derive(FromRow)]
struct ImageRow {
    id: String,
    name: String,
    description: String,
    path: String,
    sha256: String,
    size_bytes: i64,
    apps: String,
    created_at: i64,
}

impl ImageRow {
    fn into_image(self) -> Result<Image, DbError> {
        let place = Place { table: "images", row: &self.id };
        Ok(Image {
            id: place.text("id", &self.id)?,
            name: place.text("name", &self.name)?,
            apps: place.json("apps", &self.apps)?,
            created_at: place.time("created_at", self.created_at)?,
            description: self.description,
            path: self.path,
            sha256: self.sha256,
            size_bytes: self.size_bytes,
        })
    }
}

impl Db {
    /// Adds an image. One that has its name is retired with it: there is never a moment without. `Conflict` where two are added at the same moment.
    pub async fn insert_image(&self, image: &Image, audit: &AuditEntry) -> Result<(), DbError> {
        let apps = serde_json::to_string(&image.apps).map_err(DbError::encode)?;
        in_transaction!(self, tx => {
            sqlx::query(RETIRE).bind(image.name.as_str()).execute(&mut *tx).await?;
            sqlx::query(INSERT)
                .bind(image.id.to_string())
                .bind(image.name.as_str())
                .bind(image.description.as_str())
                .bind(image.path.as_str())
                .bind(image.sha256.as_str())
                .bind(image.size_bytes)
                .bind(apps.as_str())
                .bind(micros(image.created_at))
                .execute(&mut *tx).await
                .map_err(DbError::conflict("image"))?;
            append!(&mut *tx, audit)?;
            Ok::<(), DbError>(())
        })
    }

    /// The image of this name that is not retired.
    pub async fn image_by_name(&self, name: &ImageName) -> Result<Option<Image>, DbError> {
        let row: Option<ImageRow> =
            on_db!(self, pool => sqlx::query_as(BY_NAME).bind(name.as_str()).fetch_optional(pool).await)?;
        row.map(ImageRow::into_image).transpose()
    }

    /// All images that are not retired, by name.
    pub async fn images(&self) -> Result<Vec<Image>, DbError> {
        let rows: Vec<ImageRow> = on_db!(self, pool => sqlx::query_as(ALL).fetch_all(pool).await)?;
        rows.into_iter().map(ImageRow::into_image).collect()
    }

    /// Takes an image out of the catalogue. False when there was none of this name.
    pub async fn retire_image(&self, name: &ImageName, audit: &AuditEntry) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let done = sqlx::query(RETIRE).bind(name.as_str()).execute(&mut *tx).await?;
            if done.rows_affected() > 0 {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(done.rows_affected() > 0)
        })
    }
}
