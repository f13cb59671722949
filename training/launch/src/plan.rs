//! From what was found to a plan for the mesh: the one step of detection that touches files and descriptors.

use std::fs::{self, File};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Duration;

use eirene_train_mesh::{Meeting, Plan, Secret};

use crate::descriptor;
use crate::error::Error;
use crate::launch::{Launch, Place, SecretSource};
use crate::meeting::{make_private, make_shared, private_directory};

impl Launch {
    /// Makes the place to meet ready, takes the secret, and gives the plan by which the mesh joins. A listening socket that was
    /// inherited is taken over: ask once.
    ///
    /// # Errors
    /// [`Error::Directory`] when the place is not ours alone, [`Error::Secret`] when the secret cannot be had, [`Error::Missing`]
    /// when the launcher gave the world no name to meet by.
    pub fn plan(&self, timeout: Duration) -> Result<Plan, Error> {
        let mut directory = None;
        let meeting = match &self.place {
            Place::Nobody => Meeting::Nobody,
            Place::Directory(_) => {
                self.has_name()?;
                let path = private_directory(&self.directory, self.uid)?;
                directory = Some(path.clone());
                Meeting::Directory(path)
            }
            Place::File(path) => {
                self.has_name()?;
                if let Some(parent) = path.parent() {
                    make_shared(parent, self.uid)?;
                }
                Meeting::File(path.clone())
            }
            Place::Address { host, port } => Meeting::Address { host: host.clone(), port: *port },
            Place::Listener(number) => Meeting::Listener(descriptor::take_listener(*number)?),
        };
        if let (None, Some(own)) = (&directory, &self.own_directory) {
            make_private(own, self.uid)?;
            directory = Some(own.clone());
        }
        let mut plan = Plan::new(self.rank, self.size, self.world.clone(), meeting);
        plan.secret = self.take_secret()?;
        plan.timeout = timeout;
        plan.directory = directory;
        Ok(plan)
    }

    /// Removes the directory that ranks of one node met in, once they have met; one that `EIRENE_TRAIN_DIRECTORY` names stays. Whoever comes
    /// second finds nothing, which is fine.
    pub fn tidy(&self) {
        if let Place::Directory(_) = self.place
            && self.own_directory.is_none()
        {
            for path in &self.directory {
                let _ = fs::remove_dir(path);
            }
        }
    }

    fn has_name(&self) -> Result<(), Error> {
        if !self.world.is_empty() {
            return Ok(());
        }
        Err(Error::Missing {
            found: format!("{} gave this world no name", self.starter),
            variable: crate::variables::WORLD,
            cure: "set it to a word that is the same for all ranks of this run and for no other run",
        })
    }

    fn take_secret(&self) -> Result<Option<Secret>, Error> {
        match &self.secret {
            SecretSource::None | SecretSource::Meeting => Ok(None),
            SecretSource::File(path) => from_file(path).map(Some),
            SecretSource::Descriptor(number, file) => match (from_descriptor(*number), file) {
                (Ok(secret), _) => Ok(Some(secret)),
                // A program in between closed the descriptor, or took its number for something else.
                (Err(_), Some(path)) => from_file(path).map(Some),
                (Err(error), None) => Err(error),
            },
        }
    }
}

fn from_file(path: &Path) -> Result<Secret, Error> {
    Secret::read_from_file(path)
        .map_err(|error| Error::Secret { place: format!("`{}`", path.display()), problem: error.to_string() })
}

/// Opened anew, so that the position in it is ours and it can be read again by a world that joins twice.
fn from_descriptor(number: RawFd) -> Result<Secret, Error> {
    let place = || format!("descriptor {number} ({})", crate::variables::SECRET_FD);
    let wrong = |problem: String| Error::Secret { place: place(), problem };
    let path = format!("/proc/self/fd/{number}");
    let is_waiting = fs::metadata(&path).map(|found| {
        use std::os::unix::fs::FileTypeExt as _;
        found.is_file() || found.file_type().is_fifo()
    });
    match is_waiting {
        Ok(true) => {}
        Ok(false) => return Err(wrong("it is neither a file nor a pipe".to_owned())),
        Err(_) => return Err(wrong("it is not open: a program in between closed it".to_owned())),
    }
    let file = File::open(&path).map_err(|error| wrong(error.to_string()))?;
    Secret::read_from_fd(file.into()).map_err(|error| wrong(error.to_string()))
}
