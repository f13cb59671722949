//! `image build|add|list|retire`: from a recipe to a file, from a file to the catalogue.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use eirene_containers::docker::{BuildRequest, build_sif};
use eirene_core::{AppName, ImageName};
use eirene_services::images::NewImage;

use super::{ConfigFile, open, say};

/// What to do with images.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Build a recipe through Docker Engine into a SIF file; its path is the last line printed.
    Build(Build),
    /// Put a SIF file into the catalogue.
    Add(Add),
    /// Show the catalogue.
    List(ConfigFile),
    /// Take an image out of the catalogue; sessions that run it go on.
    Retire(Retire),
}

/// What to build.
#[derive(Debug, Args)]
pub(super) struct Build {
    /// Folder with a Dockerfile.
    recipe: PathBuf,
    /// Name of the image.
    #[arg(long)]
    name: ImageName,
    /// A Docker image that holds Apptainer.
    #[arg(long, value_name = "IMAGE")]
    builder_image: String,
    /// Directory for the file, which is named by its SHA-256.
    #[arg(long, value_name = "DIRECTORY")]
    output: PathBuf,
    /// Build even if the recipe has not changed.
    #[arg(long)]
    rebuild: bool,
}

/// What to add.
#[derive(Debug, Args)]
pub(super) struct Add {
    #[command(flatten)]
    file: ConfigFile,
    /// Name of the image.
    name: ImageName,
    /// The file, at the same path here and on the compute nodes.
    #[arg(long, value_name = "PATH")]
    sif: PathBuf,
    /// One sentence for the start form.
    #[arg(long, default_value = "JupyterLab with Python")]
    description: String,
    /// Apps it can run.
    #[arg(long = "app", default_value = "jupyterlab")]
    apps: Vec<AppName>,
}

/// What to retire.
#[derive(Debug, Args)]
pub(super) struct Retire {
    #[command(flatten)]
    file: ConfigFile,
    /// Name of the image.
    name: ImageName,
}

impl Action {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Build(build) => build.run().await,
            Self::Add(add) => add.run().await,
            Self::List(file) => list(&file).await,
            Self::Retire(retire) => {
                let offline = open::offline(&retire.file.load()?).await?;
                offline.images.retire(&offline.operator, &retire.name).await?;
                say(&format!("`{}` was retired.", retire.name));
                Ok(())
            }
        }
    }
}

impl Build {
    async fn run(self) -> anyhow::Result<()> {
        let request = BuildRequest {
            recipe_dir: self.recipe,
            name: self.name,
            builder_image: self.builder_image,
            output_dir: self.output,
            rebuild: self.rebuild,
        };
        let sif = build_sif(&request, &mut |line| say(line)).await.context("the image was not built")?;
        say(&sif.path.display().to_string());
        Ok(())
    }
}

impl Add {
    async fn run(self) -> anyhow::Result<()> {
        let offline = open::offline(&self.file.load()?).await?;
        let new = NewImage { name: self.name, description: self.description, sif: self.sif, apps: self.apps };
        let image = offline.images.add(&offline.operator, new).await?;
        say(&format!("`{}` is `{}` (sha256 {}).", image.name, image.path, image.sha256));
        Ok(())
    }
}

async fn list(file: &ConfigFile) -> anyhow::Result<()> {
    let offline = open::offline(&file.load()?).await?;
    for image in offline.images.list(&offline.operator).await? {
        let apps: Vec<&str> = image.apps.iter().map(AppName::as_str).collect();
        say(&format!("{}\t{}\t{}\t{}", image.name, apps.join(","), image.sha256, image.path));
    }
    Ok(())
}
