//! What a person's groups use and may use on the storage, below their spaces.

use eirene_services::spaces::group_limits::GroupLimit;
use eirene_words::Words;
use serde::Serialize;

use super::session::Chip;
use super::space::{Meter, level_chip, meters};

/// A group that is limited.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct GroupLimitView {
    /// The group.
    name: String,
    /// Which part of the storage; empty where there is one.
    part: String,
    /// How full.
    chip: Chip,
    /// What it uses; none where that is not told.
    meters: Vec<Meter>,
}

/// All groups of a person that are limited.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct GroupLimitsView {
    rows: Vec<GroupLimitView>,
    /// That they cannot be told now; empty where they can.
    unknown: String,
}

impl GroupLimitsView {
    /// Shows `limits`.
    pub(crate) fn new(words: &Words, limits: &[GroupLimit]) -> Self {
        Self { rows: limits.iter().map(|limit| row(words, limit)).collect(), unknown: String::new() }
    }

    /// Says that nobody can tell now.
    pub(crate) fn unknown(words: &Words) -> Self {
        Self { rows: Vec::new(), unknown: words.get("my_spaces.group_limits_unknown") }
    }
}

fn row(words: &Words, limit: &GroupLimit) -> GroupLimitView {
    let part = limit.pool.map(|pool| words.fill("my_spaces.group_limits_part", &[("n", &pool.0.to_string())]));
    GroupLimitView {
        name: limit.group.to_string(),
        part: part.unwrap_or_default(),
        chip: level_chip(words, limit.level),
        meters: meters(words, &limit.usage, limit.level),
    }
}
