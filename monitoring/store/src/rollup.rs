//! Samples folded into spans of time: least, mean, greatest and how many. Folds of folds are folds, so a minute that was cut in two by the
//! end of a chunk is whole again when both parts are read.

/// Milliseconds of a minute.
pub(crate) const MINUTE_MS: i64 = 60_000;

/// What the samples of one span of time were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where the span begins, milliseconds since the epoch.
    pub at_ms: i64,
    /// The least of them.
    pub min: f64,
    /// Their mean; exact to seven digits where it comes from stored minutes.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
    /// How many there were, at least one.
    pub count: u32,
}

impl Point {
    pub(crate) fn of_sample(at_ms: i64, value: f64) -> Self {
        Self { at_ms, min: value, mean: value, max: value, count: 1 }
    }
}

/// Folds points into spans of `step_ms`.
#[derive(Debug)]
pub(crate) struct Fold {
    step_ms: i64,
    done: Vec<Point>,
    /// The span that is being filled, with the sum for the mean.
    open: Option<Point>,
    ordered: bool,
}

impl Fold {
    pub(crate) fn new(step_ms: i64) -> Self {
        Self { step_ms: step_ms.max(1), done: Vec::new(), open: None, ordered: true }
    }

    /// Spans so far.
    pub(crate) fn len(&self) -> usize {
        self.done.len() + usize::from(self.open.is_some())
    }

    pub(crate) fn add(&mut self, point: &Point) {
        let at_ms = floor(point.at_ms, self.step_ms);
        let sum = point.mean * f64::from(point.count);
        match &mut self.open {
            Some(open) if open.at_ms == at_ms => {
                open.min = open.min.min(point.min);
                open.max = open.max.max(point.max);
                open.mean += sum;
                open.count = open.count.saturating_add(point.count);
            }
            _ => {
                self.close();
                self.open = Some(Point { at_ms, mean: sum, ..*point });
            }
        }
    }

    fn close(&mut self) {
        let Some(mut point) = self.open.take() else { return };
        // The sum's rounding must not carry the mean out of what was measured.
        point.mean = (point.mean / f64::from(point.count.max(1))).max(point.min).min(point.max);
        self.ordered &= self.done.last().is_none_or(|last| last.at_ms < point.at_ms);
        self.done.push(point);
    }

    /// The spans in order, each once.
    pub(crate) fn finish(mut self) -> Vec<Point> {
        self.close();
        if self.ordered {
            return self.done;
        }
        // Chunks lie in order, unless what said so was lost with a broken file.
        self.done.sort_by_key(|point| point.at_ms);
        let mut again = Self::new(self.step_ms);
        for point in &self.done {
            again.add(point);
        }
        again.close();
        again.done
    }
}

/// The minutes of samples, with means as they are stored.
pub(crate) fn minutes(samples: &[(i64, f64)]) -> Vec<Point> {
    let mut fold = Fold::new(MINUTE_MS);
    for &(at, value) in samples {
        fold.add(&Point::of_sample(at, value));
    }
    fold.finish().into_iter().map(stored).collect()
}

/// With a mean of as many digits as are stored: the other half of the bits would be noise that nothing compresses.
pub(crate) fn stored(point: Point) -> Point {
    Point { mean: f64::from(point.mean as f32).max(point.min).min(point.max), ..point }
}

/// The begin of the span of `step` that `at` lies in.
pub(crate) fn floor(at: i64, step: i64) -> i64 {
    at.div_euclid(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_cut_in_two_is_whole_again() {
        let samples: Vec<(i64, f64)> = (0..24).map(|i| (i * 5000, (i % 7) as f64)).collect();
        let whole = minutes(&samples);
        assert_eq!(whole.len(), 2);
        let mut fold = Fold::new(MINUTE_MS);
        let (left, right) = samples.split_at(5);
        minutes(left).iter().chain(&minutes(right)).for_each(|point| fold.add(point));
        for (whole, cut) in whole.iter().zip(fold.finish()) {
            assert_eq!((whole.at_ms, whole.min, whole.max, whole.count), (cut.at_ms, cut.min, cut.max, cut.count));
            assert!((whole.mean - cut.mean).abs() < 1e-6);
        }
    }

    #[test]
    fn spans_out_of_order_are_each_given_once() {
        let mut fold = Fold::new(10);
        for at in [25, 5, 21, 7] {
            fold.add(&Point::of_sample(at, at as f64));
        }
        let points = fold.finish();
        assert_eq!(points.iter().map(|point| (point.at_ms, point.count)).collect::<Vec<_>>(), [(0, 2), (20, 2)]);
        assert!((points[0].mean - 6.0).abs() < f64::EPSILON);
    }

    #[test]
    fn times_before_the_epoch_have_spans_too() {
        assert_eq!(floor(-1, 60_000), -60_000);
        assert_eq!(floor(i64::MIN, 60_000), i64::MIN);
    }
}
