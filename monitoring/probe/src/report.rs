//! What programs report of themselves: one JSON object a datagram, `{"step": 12, "loss": 0.25}`.
//!
//! Anything can write there without a library, from Python `socket.socket(AF_UNIX, SOCK_DGRAM).sendto(json.dumps(…).encode(), path)`.
//! Rules: at most [`MOST_DATAGRAM`] bytes; at most [`MOST_NAMES`] names of 1 to 32 small letters, `_` and, behind the first, digits; values are finite
//! numbers. A datagram that breaks one is refused whole and counted. A job has [`MOST_NAMES_KEPT`] names in all, as each is a series for good, and
//! [`MOST_REPORTS_PER_SECOND`] datagrams a second; the last value of each name goes into the next batch, so more would not be seen anyway.
//!
//! The socket is the job's own: it lies in a directory that only the person enters, and its mode is 0600. Nothing is ever answered.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use eirene_monitoring::{Device, MOST_VALUE, Metric, Sample, Series, Text, is_report_name};
use jiff::Timestamp;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};

/// Longest datagram, bytes.
pub const MOST_DATAGRAM: usize = 4096;
/// Most names in one datagram.
pub const MOST_NAMES: usize = 32;
/// Most names that a job has reported under, all in all.
pub const MOST_NAMES_KEPT: usize = 64;
/// Most datagrams in a second that are looked at.
pub const MOST_REPORTS_PER_SECOND: u32 = 100;
/// Most datagrams that one call of [`ReportSocket::receive`] takes out of the socket.
pub const MOST_AT_ONCE: usize = 256;

/// Why a datagram is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedReport {
    /// More than [`MOST_DATAGRAM`] bytes.
    TooLong,
    /// Not one JSON object of names and finite numbers.
    NotUnderstood,
    /// More names than [`MOST_NAMES_KEPT`].
    TooManyNames,
    /// More than [`MOST_REPORTS_PER_SECOND`].
    TooOften,
}

/// How many were refused, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// See [`RefusedReport::TooLong`].
    pub too_long: u64,
    /// See [`RefusedReport::NotUnderstood`].
    pub not_understood: u64,
    /// See [`RefusedReport::TooManyNames`].
    pub too_many_names: u64,
    /// See [`RefusedReport::TooOften`].
    pub too_often: u64,
}

impl Refusals {
    const fn each(self) -> [(u64, &'static str); 4] {
        [
            (self.too_long, "too long"),
            (self.not_understood, "not understood"),
            (self.too_many_names, "with too many names"),
            (self.too_often, "too many for a second"),
        ]
    }

    /// All of them together.
    pub fn total(self) -> u64 {
        self.each().iter().fold(0_u64, |sum, (count, _)| sum.saturating_add(*count))
    }
}

/// How many for which reason, of those there are: `2 too long, 5 not understood`.
impl fmt::Display for Refusals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (count, why) in self.each().into_iter().filter(|(count, _)| *count > 0) {
            write!(formatter, "{between}{count} {why}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// What has been reported and not been taken yet.
#[derive(Debug, Default)]
pub struct Reports {
    /// All names so far; none once its value was taken.
    values: BTreeMap<String, Option<f64>>,
    refusals: Refusals,
    second: Option<i64>,
    in_second: u32,
}

impl Reports {
    /// Takes one datagram.
    ///
    /// # Errors
    /// [`RefusedReport`], which is counted too.
    pub fn accept(&mut self, datagram: &[u8], now: Timestamp) -> Result<(), RefusedReport> {
        let outcome = self.check(datagram, now);
        let count = match outcome {
            Ok(()) => return Ok(()),
            Err(RefusedReport::TooLong) => &mut self.refusals.too_long,
            Err(RefusedReport::NotUnderstood) => &mut self.refusals.not_understood,
            Err(RefusedReport::TooManyNames) => &mut self.refusals.too_many_names,
            Err(RefusedReport::TooOften) => &mut self.refusals.too_often,
        };
        *count = count.saturating_add(1);
        outcome
    }

    fn check(&mut self, datagram: &[u8], now: Timestamp) -> Result<(), RefusedReport> {
        if self.second != Some(now.as_second()) {
            (self.second, self.in_second) = (Some(now.as_second()), 0);
        }
        // Before it is looked at: what is refused costs time as well.
        if self.in_second >= MOST_REPORTS_PER_SECOND {
            return Err(RefusedReport::TooOften);
        }
        self.in_second += 1;
        if datagram.len() > MOST_DATAGRAM {
            return Err(RefusedReport::TooLong);
        }
        let report = parse(datagram).ok_or(RefusedReport::NotUnderstood)?;
        let new = report.keys().filter(|name| !self.values.contains_key(*name)).count();
        if self.values.len() + new > MOST_NAMES_KEPT {
            return Err(RefusedReport::TooManyNames);
        }
        self.values.extend(report.into_iter().map(|(name, value)| (name, Some(value))));
        Ok(())
    }

    /// The last values since the last call, as samples for the next batch.
    pub fn take(&mut self) -> Vec<Sample> {
        let take = |(name, value): (&String, &mut Option<f64>)| {
            let value = value.take()?;
            let device = Device::Name(Text::lossy(name)?);
            Some(Sample { series: Series::with(Metric::Report, device).ok()?, value })
        };
        self.values.iter_mut().filter_map(take).collect()
    }

    /// How many datagrams were refused so far.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }
}

/// Names and numbers of one datagram. A name that is there twice is no report: nobody knows which was meant.
fn parse(datagram: &[u8]) -> Option<BTreeMap<String, f64>> {
    struct Report;
    impl<'de> Visitor<'de> for Report {
        type Value = BTreeMap<String, f64>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "an object of at most {MOST_NAMES} names and numbers")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut report = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, f64>()? {
                if !is_report_name(&name)
                    || value.abs() > MOST_VALUE
                    || report.len() == MOST_NAMES
                    || report.insert(name, value).is_some()
                {
                    return Err(A::Error::custom("not a report"));
                }
            }
            Ok(report)
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(datagram);
    let report = reader.deserialize_map(Report).ok()?;
    reader.end().ok()?;
    (!report.is_empty()).then_some(report)
}

/// The socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the socket for reports `{path}` could not be made")]
pub struct ReportError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Where programs report to. Its file goes with it.
#[derive(Debug)]
pub struct ReportSocket {
    socket: UnixDatagram,
    path: PathBuf,
    room: Vec<u8>,
}

impl ReportSocket {
    /// Makes the socket, in a directory that only the person enters. One that an earlier agent left there is removed.
    ///
    /// # Errors
    /// [`ReportError`].
    pub fn bind(path: &Path) -> Result<Self, ReportError> {
        let failed = |source| ReportError { path: path.to_owned(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let socket = UnixDatagram::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        // One byte more than may be: what fills it was too long.
        Ok(Self { socket, path: path.to_owned(), room: vec![0; MOST_DATAGRAM + 1] })
    }

    /// The socket, to wait for.
    pub fn socket(&self) -> &UnixDatagram {
        &self.socket
    }

    /// Takes what has come and returns how many, [`MOST_AT_ONCE`] where there may be more; refused ones are counted in `reports`.
    ///
    /// # Errors
    /// What recv(2) says, but for nothing being there.
    pub fn receive(&mut self, reports: &mut Reports, now: Timestamp) -> io::Result<usize> {
        for count in 0..MOST_AT_ONCE {
            match self.socket.recv(&mut self.room) {
                Ok(length) => drop(reports.accept(self.room.get(..length).unwrap_or_default(), now)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(MOST_AT_ONCE)
    }
}

impl Drop for ReportSocket {
    fn drop(&mut self) {
        // It may be gone with its directory already.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_last_value_of_each_name_is_taken_once() {
        let mut reports = Reports::default();
        reports.accept(br#"{"step": 1, "loss": 0.5}"#, at(0)).unwrap();
        reports.accept(br#" {"loss": -0.25, "f1": 0.75} "#, at(0)).unwrap();
        let taken: Vec<_> = reports.take().iter().map(|sample| (sample.series.to_string(), sample.value)).collect();
        let wanted = [("report/f1", 0.75), ("report/loss", -0.25), ("report/step", 1.0)];
        assert_eq!(taken, wanted.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(reports.take(), []);
        assert_eq!(reports.refusals(), Refusals::default());
    }

    #[test]
    fn what_is_no_report_is_refused_and_counted() {
        let many = (0..=MOST_NAMES).map(|at| format!(r#""{}":1"#, "a".repeat(at + 1))).collect::<Vec<_>>().join(",");
        let bad = [
            "",
            "{}",
            "[]",
            "1",
            r#"{"a":1}{"a":2}"#,
            r#"{"a":"1"}"#,
            r#"{"a":null}"#,
            r#"{"a":true}"#,
            r#"{"a":{}}"#,
            r#"{"a":NaN}"#,
            r#"{"a":1e999}"#,
            r#"{"a":1e300}"#,
            r#"{"A":1}"#,
            r#"{"":1}"#,
            r#"{"1a":1}"#,
            r#"{"a-1":1}"#,
            r#"{"a":1,"a":2}"#,
            "\u{fffd}",
            &format!("{{{many}}}"),
        ];
        let mut reports = Reports::default();
        for text in bad {
            assert_eq!(reports.accept(text.as_bytes(), at(0)), Err(RefusedReport::NotUnderstood), "{text}");
        }
        let long = format!(r#"{{"a":1{}}}"#, " ".repeat(MOST_DATAGRAM));
        assert_eq!(reports.accept(long.as_bytes(), at(0)), Err(RefusedReport::TooLong));
        let refusals = Refusals { not_understood: bad.len() as u64, too_long: 1, ..Refusals::default() };
        assert_eq!(reports.refusals(), refusals);
        assert_eq!((refusals.total(), Refusals::default().total()), (bad.len() as u64 + 1, 0));
        assert_eq!(refusals.to_string(), format!("1 too long, {} not understood", bad.len()));
        assert_eq!(reports.take(), []);
    }

    #[test]
    fn names_and_rate_are_bounded() {
        let mut reports = Reports::default();
        for count in 0..MOST_NAMES_KEPT {
            let name = ["a", "b", "c"][count % 3].repeat(count / 3 + 1);
            reports.accept(format!(r#"{{"{name}":1}}"#).as_bytes(), at(0)).unwrap();
        }
        assert_eq!(reports.accept(br#"{"other":1}"#, at(0)), Err(RefusedReport::TooManyNames));
        assert_eq!(reports.accept(br#"{"a":2}"#, at(0)), Ok(()), "a known one still goes");
        while reports.accept(br#"{"a":3}"#, at(0)).is_ok() {}
        assert_eq!(reports.refusals().too_often, 1);
        assert_eq!(reports.accept(br#"{"a":4}"#, at(1)), Ok(()));
    }

    #[test]
    fn programs_report_through_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        drop(ReportSocket::bind(&path).unwrap());
        assert!(!path.exists());
        let mut socket = ReportSocket::bind(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let program = UnixDatagram::unbound().unwrap();
        program.send_to(br#"{"loss":1}"#, &path).unwrap();
        program.send_to(&[b' '; 5000], &path).unwrap();
        let mut reports = Reports::default();
        assert_eq!(socket.receive(&mut reports, at(0)).unwrap(), 2);
        assert_eq!(socket.receive(&mut reports, at(0)).unwrap(), 0);
        assert_eq!((reports.take().len(), reports.refusals().too_long), (1, 1));
        assert!(ReportSocket::bind(&directory.path().join("no/report")).is_err());
    }

    proptest! {
        #[test]
        fn anything_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), text in r#"\{"[a-z0-9]{1,3}":-?[0-9.e]{1,6}\}"#) {
            let mut reports = Reports::default();
            let outcomes = [reports.accept(&bytes, at(0)), reports.accept(text.as_bytes(), at(0))];
            let taken = reports.take();
            prop_assert!(taken.iter().all(Sample::is_possible));
            prop_assert_eq!(taken.len(), outcomes.iter().filter(|outcome| outcome.is_ok()).count());
        }
    }
}
