//! `eirene session logs` and `eirene run logs`: a log as it is, or followed to its end through restarts of the portal and lost connections.
//!
//! The portal always sends a log from its beginning, so a reader that comes back passes over what it has printed already.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::api::{Api, Target, may_pass};
use crate::output;
use crate::patience::Patience;
use crate::terminal::Filter;

/// Silence after which the log so far has arrived for sure.
const ARRIVED: Duration = Duration::from_secs(3);
/// Longest time for the log so far to arrive, when its session never stops talking.
const ARRIVING: Duration = Duration::from_secs(30);
/// Silence after which the portal is asked whether the session still goes on, for connections that die unnoticed.
const QUIET: Duration = Duration::from_mins(1);
/// Most that is kept of a line for a program.
const MAX_LINE: usize = 1024 * 1024;

/// Whose log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) of: Target,
    /// Of a run, one rank's lines alone.
    pub(super) rank: Option<u32>,
}

impl From<Target> for Source {
    fn from(of: Target) -> Self {
        Self { of, rank: None }
    }
}

pub(super) async fn logs(api: &Api, source: Source, follow: bool, as_json: bool) -> anyhow::Result<()> {
    if follow {
        return self::follow(api, source, Printer::new(as_json)).await;
    }
    let mut body = api.log(source.of, source.rank).await?.bytes_stream();
    let mut whole = Vec::new();
    let mut printer = Printer::new(false);
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| api.unreachable(error))?;
        if as_json {
            whole.extend_from_slice(&chunk);
        } else {
            printer.print(&chunk)?;
        }
    }
    if as_json {
        output::json(&json!({source.of.noun.word(): source.of.id, "log": String::from_utf8_lossy(&whole)}))?;
    }
    Ok(())
}

async fn follow(api: &Api, source: Source, mut printer: Printer) -> anyhow::Result<()> {
    let mut place = Place::default();
    let mut patience = Patience::new();
    let mut over = api.job(source.of).await?.is_over();
    loop {
        let before = place.printed;
        let outcome = read_on(api, source, over, &mut place, &mut printer).await;
        if place.printed > before {
            patience.restore();
        }
        match outcome {
            // The session was over before the log was opened, and the log was read to its end.
            Ok(()) if over => return printer.finish(),
            // The session is over now, or the portal restarts.
            Ok(()) => patience.pause().await,
            Err(error) => patience.bear(error).await?,
        }
        over = loop {
            match api.job(source.of).await {
                Ok(job) => break job.is_over(),
                Err(error) => patience.bear(error).await?,
            }
        };
    }
}

/// Prints what is new until the portal ends the answer; nothing more comes when the session was `over` before.
async fn read_on(
    api: &Api,
    source: Source,
    over: bool,
    place: &mut Place,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let mut body = api.follow_log(source.of, source.rank).await?.bytes_stream();
    place.begin();
    let opened = Instant::now();
    loop {
        let now = Instant::now();
        let until = if place.is_sought() { (opened + ARRIVING).min(now + ARRIVED) } else { now + QUIET };
        match timeout_at(until, body.next()).await {
            Ok(Some(Ok(chunk))) => printer.print(&place.pass(&chunk))?,
            Ok(Some(Err(error))) => return Err(api.unreachable(error).into()),
            Ok(None) if over => return printer.print(&place.settle()),
            Ok(None) => return Ok(()),
            Err(_) if place.is_sought() => printer.print(&place.settle())?,
            Err(_) => match api.job(source.of).await {
                Ok(job) if job.is_over() => return Ok(()),
                Err(error) if !may_pass(&error) => return Err(error),
                _ => {}
            },
        }
    }
}

/// Where in the log a reader is, and how to find the place again after a break.
#[derive(Debug, Default)]
struct Place {
    /// Bytes printed, ever.
    printed: u64,
    /// Where the reader is in the log as the portal has it.
    position: usize,
    /// The last bytes printed.
    tail: Vec<u8>,
    /// What has come since the break, while the place is sought.
    sought_in: Option<Vec<u8>>,
}

impl Place {
    /// Most bytes remembered of what was printed.
    const TAIL: usize = 16 * 1024;
    /// More than the portal keeps of a log.
    const WHOLE: usize = 2 * 1024 * 1024;

    /// A log begins anew.
    fn begin(&mut self) {
        if self.printed == 0 {
            self.sought_in = None;
        } else {
            self.sought_in = Some(Vec::new());
        }
    }

    fn is_sought(&self) -> bool {
        self.sought_in.is_some()
    }

    /// What is new in `chunk`.
    fn pass(&mut self, chunk: &[u8]) -> Vec<u8> {
        let Some(head) = &mut self.sought_in else {
            return self.note(chunk.to_vec(), self.position);
        };
        head.extend_from_slice(chunk);
        if head.get(..self.position).is_some_and(|old| old.ends_with(&self.tail)) {
            let (fresh, position) = (head.split_off(self.position), self.position);
            self.sought_in = None;
            return self.note(fresh, position);
        }
        if head.len() > Self::WHOLE { self.settle() } else { Vec::new() }
    }

    /// What is new when the log so far has arrived and the place is not where it was: the portal has dropped the log's beginning, or
    /// what was printed includes a remark that is not in the log.
    fn settle(&mut self) -> Vec<u8> {
        let Some(mut head) = self.sought_in.take().filter(|head| !head.is_empty()) else { return Vec::new() };
        let found = [self.tail.len(), 4096, 1024, 256, 64].into_iter().find_map(|length| {
            let end = self.tail.get(self.tail.len().checked_sub(length)?..).filter(|end| !end.is_empty())?;
            head.windows(length).rposition(|window| window == end).map(|at| at + length)
        });
        if found.is_none() {
            self.tail.clear();
            output::say("The connection was lost for a while: parts of the log may be missing here, or come twice.");
        }
        let position = found.unwrap_or(0);
        self.note(head.split_off(position), position)
    }

    /// Remembers `fresh`, which begins at `position` of the log.
    fn note(&mut self, fresh: Vec<u8>, position: usize) -> Vec<u8> {
        self.position = position + fresh.len();
        self.printed += fresh.len() as u64;
        self.tail.extend_from_slice(&fresh);
        self.tail.drain(..self.tail.len().saturating_sub(Self::TAIL));
        fresh
    }
}

/// Prints a log as it comes, or one object a line for programs.
struct Printer {
    /// The line that is not complete yet; none for people, who get every byte at once.
    line: Option<Vec<u8>>,
    /// Between an app's output and a terminal; none where a file or a program takes it.
    filter: Option<Filter>,
}

impl Printer {
    fn new(as_json: bool) -> Self {
        let filter = std::io::stdout().is_terminal().then(Filter::default);
        Self { line: as_json.then(Vec::new), filter }
    }

    fn print(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let Some(line) = &mut self.line else {
            return match &mut self.filter {
                Some(filter) => write_out(&filter.pass(bytes)),
                None => write_out(bytes),
            };
        };
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() > MAX_LINE {
                print_line(&std::mem::take(line))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        match self.line {
            Some(line) if !line.is_empty() => print_line(&line),
            _ => Ok(()),
        }
    }
}

fn print_line(line: &[u8]) -> anyhow::Result<()> {
    output::json_line(&json!({"line": String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line))}))
}

fn write_out(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is printed when each of `connections` sends these chunks and breaks.
    fn printed(connections: &[&[&str]]) -> String {
        let mut place = Place::default();
        let mut out = Vec::new();
        for chunks in connections {
            place.begin();
            for chunk in *chunks {
                out.extend(place.pass(chunk.as_bytes()));
            }
            out.extend(place.settle());
        }
        String::from_utf8(out).unwrap()
    }

    fn lines(numbers: std::ops::Range<u32>) -> String {
        numbers.fold(String::new(), |text, number| text + &format!("line {number}\n"))
    }

    #[test]
    fn nothing_is_printed_twice_after_a_break() {
        assert_eq!(
            printed(&[&["one\n", "two\n"], &["one\ntw", "o\nthree\n"], &["one\ntwo\nthree\n"]]),
            "one\ntwo\nthree\n"
        );
        assert_eq!(printed(&[&[], &["one\n"], &["one\n", "one\n"]]), "one\none\n");
    }

    #[test]
    fn a_break_in_the_middle_of_a_line_leaves_no_trace() {
        assert_eq!(printed(&[&["one\ntw"], &["one\ntwo\n"]]), "one\ntwo\n");
    }

    #[test]
    fn a_log_whose_beginning_was_dropped_goes_on_where_it_was() {
        let (old, new) = (lines(0..5000), lines(5000..5003));
        let cut = format!("[the beginning of this log was dropped]\n{}{new}", &old[old.len() / 2..]);
        let again = format!("{cut}the end\n");
        assert_eq!(printed(&[&[&old], &[&cut], &[&again]]), format!("{old}{new}the end\n"));
    }

    #[test]
    fn a_remark_that_is_not_in_the_log_does_not_make_it_come_twice() {
        let (old, after) = ("a\n".repeat(200) + "b\n", lines(0..100));
        let remark = "[some lines were left out here]\n";
        let there = format!("{old}left out\n{after}");
        let again = format!("{there}new\n");
        assert_eq!(printed(&[&[&old, remark, &after], &[&there], &[&again]]), format!("{old}{remark}{after}new\n"));
    }

    #[test]
    fn a_log_that_was_replaced_is_shown_whole() {
        assert_eq!(printed(&[&["one\n"], &["another log\n"], &["another log\nmore\n"]]), "one\nanother log\nmore\n");
    }
}
