//! Whether what a form asks for can start: now, later or never, and what is short.

use eirene_core::session::Resources;
use eirene_services::cluster::room::{Room, Short};
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::layout::Tone;
use super::session::size;
use super::{FormError, format};
use crate::pages::Page;

/// Whether what the form asks for can start.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    /// Whether it would start now, later, or never; nothing is known without the scheduler.
    pub(crate) tone: Tone,
    /// Icon.
    pub(crate) icon: &'static str,
    /// In one line.
    pub(crate) title: String,
    /// What it is about, or what to do.
    pub(crate) text: String,
    /// What stands in the way.
    pub(crate) errors: Vec<FormError>,
}

impl Verdict {
    /// It cannot run here, and why.
    pub(crate) fn impossible(words: &Words, errors: Vec<FormError>) -> Self {
        Self { tone: Tone::Bad, icon: "alert", title: words.get("verdict.no"), text: String::new(), errors }
    }

    /// It can run; there is room for it now, or it would wait for what is short.
    pub(crate) fn possible(words: &Words, room: &Room, wanted: &Resources, now: Option<Timestamp>) -> Self {
        let time = |minutes: u64| format::minutes(words, minutes);
        let wait = |title: String, sentences: Vec<String>| Self {
            tone: Tone::Wait,
            icon: "clock",
            title,
            text: sentences.join(" "),
            errors: Vec::new(),
        };
        match room {
            Room::Now => Self {
                tone: Tone::Good,
                icon: "check",
                title: words.get("verdict.now"),
                text: words.fill("verdict.asked", &[("size", &size(words, wanted))]),
                errors: Vec::new(),
            },
            Room::Until { walltime_min } => wait(
                words.fill("verdict.until", &[("time", &time((*walltime_min).into()))]),
                vec![words.get("verdict.until_text")],
            ),
            Room::Later { short, fits, from } => {
                let fits = fits.as_ref().map(|fits| {
                    let time = time(fits.walltime_min.into());
                    words.fill("verdict.fits", &[("size", &size(words, fits)), ("time", &time)])
                });
                let from = from.zip(now).map(|(from, now)| {
                    // The last minute counts as a whole one.
                    words.fill("verdict.from", &[("time", &time(format::minutes_between(now, from) + 1))])
                });
                let short = short.map(|short| shortage(words, short, wanted));
                wait(words.get("verdict.later"), [short, fits, from].into_iter().flatten().collect())
            }
        }
    }

    /// The scheduler cannot be asked.
    pub(crate) fn unknown(words: &Words) -> Self {
        Self {
            tone: Tone::Doubt,
            icon: "alert",
            title: words.get("verdict.unknown"),
            text: words.get("verdict.unknown_text"),
            errors: Vec::new(),
        }
    }
}

/// What is short, in a sentence.
pub(crate) fn shortage(words: &Words, short: Short, wanted: &Resources) -> String {
    let of = |key: &str, free: String, asked: String| words.fill(key, &[("free", &free), ("asked", &asked)]);
    match short {
        Short::Nodes => words.get("shortage.nodes"),
        Short::FreeNodes(free) => of("shortage.free_nodes", free.to_string(), wanted.nodes.to_string()),
        Short::Cpus(free) => of("shortage.cpus", free.to_string(), wanted.cpus.to_string()),
        Short::Memory(free) => {
            of("shortage.memory", format::memory(words, free), format::memory(words, wanted.memory_mib))
        }
        Short::Gpus(free) => of("shortage.gpus", free.to_string(), wanted.gpus.to_string()),
        Short::Several => words.get("shortage.several"),
        Short::Planned => words.get("shortage.planned"),
    }
}

/// The verdict by itself.
#[derive(Debug, Serialize)]
pub(crate) struct VerdictFragment {
    /// What the form's content would do.
    pub(crate) verdict: Verdict,
}

impl Page for VerdictFragment {
    const TEMPLATE: &'static str = "fragments/verdict.html";
}
