//! Where the lines of a chart lie. Charts are drawn by the server, and stand beside a table of the same numbers.

use jiff::Timestamp;

/// The chart's size in its own units.
const SIZE: (f64, f64) = (600.0, 140.0);

/// A line: the points of a polyline, by the chart's own units. One sample is a line too. `top` is the value that reaches the top.
pub(super) fn line(samples: &[(Timestamp, u64)], from: Timestamp, until: Timestamp, top: u64) -> String {
    let span = (until.as_second() - from.as_second()).max(1).unsigned_abs();
    let along = |at: Timestamp| ratio((at.as_second() - from.as_second()).max(0).unsigned_abs(), span) * SIZE.0;
    let point = |(at, value): &(Timestamp, u64)| format!("{:.1},{}", along(*at), height(*value, top));
    let end = match samples {
        [(_, value)] => Some(format!("{:.1},{}", SIZE.0, height(*value, top))),
        _ => None,
    };
    samples.iter().map(point).chain(end).collect::<Vec<_>>().join(" ")
}

/// How far from the top of the chart a value is, with room for the line's own width.
pub(super) fn height(value: u64, top: u64) -> String {
    let room = SIZE.1 - 4.0;
    format!("{:.1}", 2.0 + room - ratio(value, top.max(1)) * room)
}

#[expect(clippy::cast_precision_loss, reason = "a picture of a few hundred points")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::testing::start_time;

    #[test]
    fn lines_begin_where_time_begins_and_the_top_is_the_top() {
        let at = |minutes| start_time() + SignedDuration::from_mins(minutes);
        assert_eq!(line(&[(at(30), 0), (at(60), 8)], at(0), at(60), 8), "300.0,138.0 600.0,2.0");
        assert_eq!(line(&[(at(0), 0)], at(0), at(0), 0), "0.0,138.0 600.0,138.0", "one sample of nothing");
        assert_eq!(line(&[(at(-5), 4)], at(0), at(60), 8), "0.0,70.0 600.0,70.0", "what was before lies at the edge");
        assert!(line(&[], at(0), at(60), 8).is_empty());
    }
}
