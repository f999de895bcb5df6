//! Many durations of one thing, and what they come to.

use std::time::Duration;

use serde_json::{Value, json};

/// Durations of one thing, as measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// In seconds, the value below which `part` of them are; not a number if there are none.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        Summary::of("", self).at(part)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Samples in order, with a name: nothing is rounded away, and there are few enough to keep.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    name: String,
    sorted: Vec<Duration>,
}

impl Summary {
    pub(crate) fn of(name: impl Into<String>, samples: &Samples) -> Self {
        let mut sorted = samples.0.clone();
        sorted.sort_unstable();
        Self { name: name.into(), sorted }
    }

    fn at(&self, part: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let place = (last as f64 * part).round() as usize;
        self.sorted.get(place).map_or(f64::NAN, Duration::as_secs_f64)
    }

    pub(crate) const HEAD: &'static str =
        "| samples, ms | count | min | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|---|\n";

    pub(crate) fn markdown(&self) -> String {
        let [min, p50, p90, p99, max] = [0.0, 0.5, 0.9, 0.99, 1.0].map(|part| self.at(part) * 1e3);
        let (name, count) = (&self.name, self.sorted.len());
        format!("| {name} | {count} | {min:.2} | {p50:.2} | {p90:.2} | {p99:.2} | {max:.2} |\n")
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "count": self.sorted.len(),
            "seconds": {
                "min": self.at(0.0), "p10": self.at(0.1), "p50": self.at(0.5), "p90": self.at(0.9),
                "p99": self.at(0.99), "p999": self.at(0.999), "max": self.at(1.0),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let mut samples = Samples::default();
        assert!(samples.median().is_nan());
        for ms in [5, 1, 3, 2, 4] {
            samples.add(Duration::from_millis(ms));
        }
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| samples.quantile(part)), [0.001, 0.003, 0.005, 0.005]);
    }
}
