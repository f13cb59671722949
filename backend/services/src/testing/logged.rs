//! What is logged while a test goes on.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// What this thread logs for as long as it is there, as a site with `log_format = "json"` would read it.
pub struct Logged {
    text: Text,
    _told: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logged {
    /// From now on, nothing below `level`.
    pub fn down_to(level: Level) -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber =
            tracing_subscriber::fmt().json().with_max_level(level).with_writer(move || writer.clone()).finish();
        Self { text, _told: tracing::subscriber::set_default(subscriber) }
    }

    /// The one line that says `message`.
    pub fn line(&self, message: &str) -> Value {
        let text = String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut saying = lines.filter(|line| line["fields"]["message"] == message);
        match (saying.next(), saying.next()) {
            (Some(line), None) => line,
            _ => panic!("not one line says {message:?}: {text}"),
        }
    }
}
