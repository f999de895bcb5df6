//! A run's story for a person: a column for each who takes part.

use std::fmt::Write as _;
use std::time::Duration;

use crate::run::Line;

/// How wide a column is.
const WIDTH: usize = 30;

/// The lines of a story that lie within `before` of `at`, in columns.
pub fn show(story: &[Line], at: Duration, before: Duration) -> String {
    let lines: Vec<&Line> = story.iter().filter(|line| line.at <= at && line.at + before >= at).collect();
    let mut columns: Vec<&str> = lines.iter().map(|line| line.who.as_str()).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut text = String::new();
    let cell = |text: &mut String, what: &str| {
        let mut shown: String = what.chars().take(WIDTH - 2).collect();
        while shown.chars().count() < WIDTH {
            shown.push(' ');
        }
        text.push_str(&shown);
    };
    let _ = write!(text, "{:>12}  ", "seconds");
    columns.iter().for_each(|column| cell(&mut text, column));
    text.truncate(text.trim_end().len());
    for line in lines {
        let _ = write!(text, "\n{:>12.6}  ", line.at.as_secs_f64());
        let place = columns.iter().position(|column| *column == line.who).unwrap_or(0);
        text.push_str(&" ".repeat(place * WIDTH));
        // Whole, however long: nothing else stands on this line.
        text.push_str(&line.what);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_stands_below_its_name() {
        let line = |millis, who: &str, what: &str| Line {
            at: Duration::from_millis(millis),
            who: who.to_owned(),
            what: what.to_owned(),
        };
        let story = [line(1, "m1", "too long ago"), line(1500, "m1", "holds"), line(2000, "m2", "waits")];
        let shown = show(&story, Duration::from_secs(2), Duration::from_secs(1));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert_eq!(lines[0].find("m1"), lines[1].find("holds"));
        assert_eq!(lines[0].find("m2"), lines[2].find("waits"));
    }
}
