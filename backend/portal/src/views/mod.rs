//! What the pages show: plain data, every decision already made, every word already chosen.
//!
//! A view is built from domain types and the catalogue alone, so it can be tested without a server; templates only place it.

pub(crate) mod account;
pub(crate) mod activity;
pub(crate) mod admin;
pub(crate) mod alerts;
mod chart;
pub(crate) mod charts;
pub(crate) mod cluster;
pub(crate) mod cluster_page;
pub(crate) mod efficiency;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod group_limits;
pub(crate) mod health;
pub(crate) mod layout;
pub(crate) mod managing;
pub(crate) mod node;
pub(crate) mod node_map;
pub(crate) mod old_files;
pub(crate) mod permissions;
pub(crate) mod presets;
pub(crate) mod quotas;
pub(crate) mod run;
pub(crate) mod scratch;
pub(crate) mod scratch_form;
pub(crate) mod session;
pub(crate) mod shown;
pub(crate) mod simple;
pub(crate) mod sizes;
pub(crate) mod space;
pub(crate) mod standing;
pub(crate) mod start;
pub(crate) mod storage;
pub(crate) mod stripe;
pub(crate) mod usage;
pub(crate) mod verdict;
pub(crate) mod zabbix;

use eirene_services::error::FieldError;
use eirene_words::Words;
use serde::Serialize;

/// One value of a form and what was wrong with it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Field {
    /// As typed, or the default.
    pub(crate) value: String,
    /// What was wrong; empty when nothing was.
    pub(crate) error: String,
}

impl Field {
    /// A value nobody has found fault with.
    pub(crate) fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), error: String::new() }
    }
}

/// One entry of a choice.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Choice {
    /// What is sent.
    pub(crate) value: String,
    /// What is read.
    pub(crate) label: String,
    /// Whether it is chosen.
    pub(crate) selected: bool,
}

impl Choice {
    /// A choice that is selected when its value is `chosen`.
    pub(crate) fn new(value: impl Into<String>, label: impl Into<String>, chosen: &str) -> Self {
        let value = value.into();
        let selected = value == chosen;
        Self { value, label: label.into(), selected }
    }
}

/// A line of the summary above a form that leads to the field concerned.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FormError {
    /// The field's name; empty when the error is about the whole form.
    pub(crate) field: String,
    /// What the field is called; empty when there is none.
    pub(crate) label: String,
    /// What is wrong.
    pub(crate) text: String,
}

impl FormError {
    /// Something wrong with `field`, which is called as the catalogue says.
    pub(crate) fn new(words: &Words, field: &str, text: impl Into<String>) -> Self {
        let label = words.find(&format!("field.{field}")).unwrap_or_default().to_owned();
        Self { field: field.to_owned(), label, text: text.into() }
    }

    /// What a service found, under the form's name for the field.
    pub(crate) fn from_service(words: &Words, error: &FieldError) -> Self {
        Self::new(words, form_field(&error.field), session::sentence(&error.message))
    }

    /// What is wrong with `field`; empty when nothing is.
    pub(crate) fn text_of(errors: &[Self], field: &str) -> String {
        errors.iter().find(|error| error.field == field).map(|error| error.text.clone()).unwrap_or_default()
    }
}

/// The forms' names for fields of the API and of the services.
fn form_field(service_field: &str) -> &str {
    match service_field {
        "limit_bytes" => "limit_gib",
        "scratch.kind" => "scratch",
        "scratch.size_mib" => "scratch_gib",
        "scratch.stage_in" => "stage_in",
        "scratch.stage_out" => "stage_out",
        "memory_mib" => "memory_gib",
        "walltime_min" | "minutes" => "hours",
        "present" => "current_password",
        "new" => "new_password",
        other => other,
    }
}
