//! Medians and percentiles.

/// The median; 0 of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The value below which `percent` of all lie (nearest rank); 0 of nothing. Reorders `values`.
pub(crate) fn percentile(values: &mut [f64], percent: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
    let index = rank.clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(index, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!((percentile(&mut values, 99.0) - 99.0).abs() < f64::EPSILON);
        assert!((percentile(&mut values, 50.0) - 50.0).abs() < f64::EPSILON);
        assert!((percentile(&mut [7.0], 99.0) - 7.0).abs() < f64::EPSILON);
    }
}
