//! How a service wakes a reconciler without knowing it: a wish is in the database already, the nudge only saves waiting.

use std::sync::Arc;

use tokio::sync::Notify;

/// One bell per reconciler. A ring while nobody listens is kept, several are one.
#[derive(Debug, Clone, Default)]
pub struct Nudges {
    bells: Arc<Bells>,
}

#[derive(Debug, Default)]
struct Bells {
    submit: Notify,
    stop: Notify,
    poll: Notify,
    spaces: Notify,
    nodes: Notify,
}

impl Nudges {
    /// A session waits to be submitted.
    pub fn submit(&self) -> &Notify {
        &self.bells.submit
    }

    /// A session waits to be stopped.
    pub fn stop(&self) -> &Notify {
        &self.bells.stop
    }

    /// A space is not as it is wanted.
    pub fn spaces(&self) -> &Notify {
        &self.bells.spaces
    }

    /// A node has just been changed: look at the nodes, too, sooner than planned.
    pub fn nodes(&self) -> &Notify {
        &self.bells.nodes
    }

    /// Something has just changed in the scheduler: look sooner than planned.
    pub fn poll(&self) -> &Notify {
        &self.bells.poll
    }
}
