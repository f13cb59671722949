//! Durations as people read them, on pages and in what is said of a wrong field.

use eirene_words::Words;

/// A duration in days, hours and minutes.
pub fn minutes(words: &Words, total: u64) -> String {
    let (days, hours, minutes) = (total / 1440, total % 1440 / 60, total % 60);
    let mut parts = Vec::new();
    for (key, n) in [("unit.day", days), ("unit.hour", hours), ("unit.minute", minutes)] {
        if n > 0 {
            parts.push(words.count(key, n));
        }
    }
    if parts.is_empty() {
        parts.push(words.count("unit.minute", 0));
    }
    parts.join(" ")
}
