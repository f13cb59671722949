//! Where the lines of a chart lie. Charts are drawn by the server, and stand beside a table of the same numbers.

use jiff::{SignedDuration, Timestamp};

/// The chart's size in its own units.
const SIZE: (f64, f64) = (600.0, 140.0);
/// What begins so soon after the end of what was before follows it: clocks are read more than once.
const SLACK: SignedDuration = SignedDuration::from_secs(1);

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

/// A value of some time up to a moment; none where it is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The end of its time.
    pub(super) at: Timestamp,
    /// How long that is.
    pub(super) over: SignedDuration,
    /// What it is then.
    pub(super) value: Option<u64>,
}

impl Sample {
    /// Whether both are known, and this one's time begins where the one before ends, or it ends no later than `apart` after that.
    fn goes_on_from(&self, before: &Self, apart: SignedDuration) -> bool {
        let is_known = self.value.is_some() && before.value.is_some();
        is_known && self.at.duration_since(before.at) <= apart.max(self.over.saturating_add(SLACK))
    }
}

/// A line with gaps, by time: a polyline for each stretch of known values that follow each other. A value alone is as wide as the time it is of.
/// `apart` is for values that are of a part of the time between them alone: those that end so soon after each other follow each other, too.
pub(super) fn stretches(
    samples: &[Sample],
    apart: SignedDuration,
    from: Timestamp,
    until: Timestamp,
    top: u64,
) -> Vec<String> {
    let drawn = |stretch: &[Sample]| {
        let known: Vec<(Timestamp, u64)> =
            stretch.iter().filter_map(|sample| Some((sample.at, sample.value?))).collect();
        match (stretch, &known[..]) {
            (_, []) => None,
            ([sample], [(at, value)]) => Some(line(&[(*at - sample.over, *value), (*at, *value)], from, until, top)),
            _ => Some(line(&known, from, until, top)),
        }
    };
    samples.chunk_by(|before, sample| sample.goes_on_from(before, apart)).filter_map(drawn).collect()
}

/// How far from the top of the chart a value is, with room for the line's own width.
pub(super) fn height(value: u64, top: u64) -> String {
    let room = SIZE.1 - 4.0;
    format!("{:.1}", 2.0 + room - ratio(value, top.max(1)) * room)
}

/// A line with gaps: a polyline for each stretch of known values, spread evenly from the left to the right. One value alone is as wide as its place.
pub(super) fn pieces(values: &[Option<f64>], least: f64, top: f64) -> Vec<String> {
    let width = SIZE.0 / values.len().max(1) as f64;
    let mut at = 0;
    let mut pieces = Vec::new();
    for stretch in values.split_inclusive(Option::is_none) {
        let known: Vec<f64> = stretch.iter().flatten().copied().collect();
        let along = |place: usize, part: f64| (at as f64 + place as f64 + part) * width;
        let point = |x: f64, value: f64| format!("{x:.1},{}", height_of(value, least, top));
        match known[..] {
            [] => {}
            [value] => pieces.push(format!("{} {}", point(along(0, 0.0), value), point(along(0, 1.0), value))),
            _ => {
                let points = known.iter().enumerate().map(|(place, value)| point(along(place, 0.5), *value));
                pieces.push(points.collect::<Vec<_>>().join(" "));
            }
        }
        at += stretch.len();
    }
    pieces
}

/// How far from the top of the chart a value between `least` and `top` is.
pub(super) fn height_of(value: f64, least: f64, top: f64) -> String {
    let room = SIZE.1 - 4.0;
    let share = ((value - least) / (top - least).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    format!("{:.1}", 2.0 + room - share * room)
}

#[expect(clippy::cast_precision_loss, reason = "a picture of a few hundred points")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use eirene_services::testing::start_time;

    use super::*;

    #[test]
    fn gaps_stay_gaps_and_one_value_alone_is_seen() {
        let values = [Some(0.0), Some(2.0), None, Some(1.0), None, None];
        assert_eq!(pieces(&values, 0.0, 2.0), ["50.0,138.0 150.0,2.0", "300.0,70.0 400.0,70.0"]);
        assert_eq!(pieces(&[Some(-1.0)], -1.0, 1.0), ["0.0,138.0 600.0,138.0"]);
        assert!(pieces(&[], 0.0, 1.0).is_empty());
    }

    #[test]
    fn lines_begin_where_time_begins_and_the_top_is_the_top() {
        let at = |minutes| start_time() + SignedDuration::from_mins(minutes);
        assert_eq!(line(&[(at(30), 0), (at(60), 8)], at(0), at(60), 8), "300.0,138.0 600.0,2.0");
        assert_eq!(line(&[(at(0), 0)], at(0), at(0), 0), "0.0,138.0 600.0,138.0", "one sample of nothing");
        assert_eq!(line(&[(at(-5), 4)], at(0), at(60), 8), "0.0,70.0 600.0,70.0", "what was before lies at the edge");
        assert!(line(&[], at(0), at(60), 8).is_empty());
    }

    fn sample(at: i64, over: i64, value: Option<u64>) -> Sample {
        let minutes = SignedDuration::from_mins;
        Sample { at: start_time() + minutes(at), over: minutes(over), value }
    }

    #[test]
    fn stretches_lie_at_their_time_and_nothing_is_drawn_between_them() {
        let at = |minutes| start_time() + SignedDuration::from_mins(minutes);
        let samples = [
            sample(0, 1, Some(0)),
            sample(30, 30, Some(8)),
            sample(40, 10, None),
            sample(50, 10, None),
            sample(60, 1, Some(4)),
        ];
        let drawn = ["0.0,138.0 300.0,2.0", "590.0,70.0 600.0,70.0"];
        assert_eq!(stretches(&samples, SignedDuration::ZERO, at(0), at(60), 8), drawn);
        assert!(stretches(&[sample(1, 1, None)], SignedDuration::ZERO, at(0), at(60), 8).is_empty());
        assert!(stretches(&[], SignedDuration::ZERO, at(0), at(60), 8).is_empty());
    }

    #[test]
    fn no_line_goes_over_a_time_of_which_nothing_was_told() {
        let at = |minutes| start_time() + SignedDuration::from_mins(minutes);
        let samples = [
            sample(6, 6, Some(8)),
            sample(12, 6, Some(0)),
            // The round at 18 was silent: the next one, at 24, has nothing to compare with.
            sample(30, 6, Some(8)),
            sample(36, 6, Some(4)),
            sample(60, 6, Some(8)),
        ];
        let drawn = ["60.0,2.0 120.0,138.0", "300.0,2.0 360.0,70.0", "540.0,2.0 600.0,2.0"];
        assert_eq!(stretches(&samples, SignedDuration::ZERO, at(0), at(60), 8), drawn);
        let late = Sample { over: SignedDuration::from_millis(359_400), ..sample(12, 6, Some(0)) };
        assert_eq!(
            stretches(&[samples[0], late], SignedDuration::ZERO, at(0), at(60), 8),
            ["60.0,2.0 120.0,138.0"],
            "clocks differ a little"
        );
    }

    #[test]
    fn values_of_a_part_of_the_time_between_them_follow_each_other_unless_one_is_missing() {
        let at = |minutes| start_time() + SignedDuration::from_mins(minutes);
        let samples = [
            sample(6, 1, Some(8)),
            sample(12, 1, Some(0)),
            // Nobody looked at 18.
            sample(24, 1, Some(8)),
            sample(30, 1, Some(4)),
        ];
        let drawn = ["60.0,2.0 120.0,138.0", "240.0,2.0 300.0,70.0"];
        assert_eq!(stretches(&samples, SignedDuration::from_mins(9), at(0), at(60), 8), drawn);
    }
}
