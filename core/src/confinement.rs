//! Whether jobs on a node have control groups of their own, without which nothing holds them to what they have asked for, and what these hold them
//! to: a group may as well only count. Who looks is the agent of a session there, whose word it is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::name::NodeName;

word_enum! {
    /// What there is that could hold the jobs on a node to what they have asked for; the site's cgroup.conf says what it does.
    Confinement {
        /// Control groups of version 2.
        CgroupV2 = "cgroup_v2",
        /// Control groups of version 1.
        CgroupV1 = "cgroup_v1",
        /// Nothing that an agent can find: a job has no control group of its own.
        Nothing = "none",
    }
}

/// What jobs are held to by their control groups. None is what could not be told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Whether their memory is limited.
    pub memory: Option<bool>,
    /// Whether their CPUs are.
    pub cpus: Option<bool>,
}

impl Held {
    /// To nothing.
    pub const NOTHING: Self = Self { memory: Some(false), cpus: Some(false) };
}

/// A node, as an agent there last said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfinedNode {
    /// The node.
    pub node: NodeName,
    /// What there is to hold the jobs there.
    pub by: Confinement,
    /// What that holds them to.
    pub held: Held,
    /// When it was said.
    pub at: Timestamp,
}
