//! What the doctor's children do: each looks at one thing that may go wrong in any way, and answers in one line.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use eirene_train_launch::Environment;
use serde_json::{Value, json};

use crate::child::ANSWER;
use crate::{devices, library, trial};

/// Carries out one look, `words` being what the doctor gave its child. Gives the exit code.
pub fn look(words: &[OsString], environment: &Environment) -> u8 {
    let Some((what, rest)) = words.split_first() else { return 2 };
    match (what.to_str(), rest) {
        (Some("open"), [library]) => say(&library::answer_open(library)),
        (Some("start"), [limit, prefix @ ..]) => {
            let limit = limit.to_str().and_then(|text| text.parse().ok()).unwrap_or(1000);
            let prefix = prefix.first().map(PathBuf::from);
            library::answer_start(Duration::from_millis(limit), prefix, &mut say);
        }
        (Some("nvidia"), []) => say(&devices::answer()),
        (Some("rank"), []) => match trial::rank(environment) {
            Ok(answer) => say(&answer),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "{error}");
                return 1;
            }
        },
        _ => {
            say(&json!({"refused": "there is no such look"}));
            return 2;
        }
    }
    0
}

fn say(answer: &Value) {
    let mut to = std::io::stdout().lock();
    // Whoever asked may be gone.
    let _ = writeln!(to, "{ANSWER}{answer}");
    let _ = to.flush();
}
