//! What admins may wish of a space.

use eirene_core::space::StripeHint;
use eirene_core::{GroupName, RootName, SpaceName, SpaceTitle, Username};
use jiff::Timestamp;

use super::NewLimits;

/// A space to be made.
#[derive(Debug, Clone)]
pub struct NewSpace {
    /// The root it is to lie in.
    pub root: RootName,
    /// Its name; none is that of the root and its owner, where everybody has one there.
    pub name: Option<SpaceName>,
    /// What people read; none is its name, or its root's title.
    pub title: Option<SpaceTitle>,
    /// The person it is for.
    pub owner: Option<Username>,
    /// The group it is for. Without owner and group it is everybody's, to read.
    pub group: Option<GroupName>,
    /// What it is mostly filled with; none is what its root says.
    pub hint: Option<StripeHint>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// How much it may hold.
    pub limits: NewLimits,
}

/// What is to be changed of a space; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct ChangeSpace {
    /// What people read.
    pub title: Option<Title>,
    /// What it is mostly filled with; holds for files that are made afterwards.
    pub hint: Option<StripeHint>,
    /// When it expires.
    pub expires_at: Option<End>,
    /// How much it may hold.
    pub limits: NewLimits,
}

/// What people read of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Title {
    /// Nothing of its own: its root's title where everybody has one there, else its name.
    Usual,
    /// This.
    Is(SpaceTitle),
}

/// When a space expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It does not.
    Never,
    /// Then.
    At(Timestamp),
}

impl End {
    /// When; none is never.
    pub(super) fn at(self) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::At(end) => Some(end),
        }
    }
}
