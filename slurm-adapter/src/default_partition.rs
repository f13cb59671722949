//! Which partition is the default one: the data parsers up to v0.0.44 leave it out of their JSON, so `sinfo` is asked now and then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eirene_core::clock::Clock;
use eirene_core::launcher::{Launcher, SlurmProgram};
use eirene_core::scheduler::{CallAs, Partition};
use jiff::{SignedDuration, Timestamp};

use crate::calls::{Program, run};
use crate::convert;
use crate::wire::Partitions;

/// How long an answer holds; that the default partition changes is rare.
const HOLDS: SignedDuration = SignedDuration::from_mins(10);
/// How long to wait after a failure.
const RETRY: SignedDuration = SignedDuration::from_secs(30);
/// Longest wait for `sinfo`: the list of partitions waits behind it.
const WAIT: Duration = Duration::from_secs(3);

pub(crate) struct DefaultPartition {
    launcher: Arc<dyn Launcher>,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    name: Option<String>,
    until: Option<Timestamp>,
}

impl DefaultPartition {
    pub(crate) fn new(launcher: Arc<dyn Launcher>, clock: Arc<dyn Clock>) -> Self {
        Self { launcher, clock, known: Mutex::default() }
    }

    /// The partitions of an answer. `sinfo` is asked only where the answer does not say which one is the default.
    pub(crate) async fn partitions(&self, answer: &Partitions) -> Vec<Partition> {
        let default = if convert::names_default(answer) { None } else { self.name().await };
        convert::partitions(answer, default.as_deref())
    }

    /// The default partition, where it can be found out; the last one known while it cannot.
    async fn name(&self) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.now();
        if known.until.is_some_and(|until| now < until) {
            return known.name;
        }
        let program = Program::plain(&CallAs::Service, SlurmProgram::Sinfo, &["--noheader", "--all", "--format=%P"]);
        let asked = run(self.launcher.as_ref(), program, "ask sinfo for the default partition");
        let next = match tokio::time::timeout(WAIT, asked).await {
            Ok(Ok(ran)) if ran.status == 0 => Known { name: starred(&ran.stdout), until: Some(now + HOLDS) },
            Ok(_) | Err(_) => Known { name: known.name, until: Some(now + RETRY) },
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&next);
        next.name
    }
}

/// The partition with a star behind its name.
fn starred(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.trim().strip_suffix('*')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_star_marks_the_default() {
        assert_eq!(starred("long\nmain*\n"), Some("main".into()));
        assert_eq!(starred("long\nmain\n"), None);
    }
}
