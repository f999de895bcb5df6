//! Durations as they are typed: a number and a unit, never a bare number.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration: `250ms`, `5s`, `2m`, `1h`, or several after each other, as in `1m30s`.
///
/// A bare number is refused: flock reads it as seconds, others as milliseconds, and a lock is the wrong place to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: String| format!("{text:?} is no duration: {why}");
        let mut total = Duration::ZERO;
        let mut rest = text;
        if rest.is_empty() {
            return Err(refused("it is empty; write a number and a unit, such as 5s".into()));
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            if number.is_empty() {
                return Err(refused(
                    "it must be whole numbers with units, such as 5s, 250ms or 1m30s".into(),
                ));
            }
            let too_long = || refused("it is too long".into());
            let count: u64 = number.parse().map_err(|_| too_long())?;
            let part = match unit {
                "ms" => Some(Duration::from_millis(count)),
                "s" => Some(Duration::from_secs(count)),
                "m" => count.checked_mul(60).map(Duration::from_secs),
                "h" => count.checked_mul(3600).map(Duration::from_secs),
                "" => {
                    return Err(refused(format!(
                        "the unit is missing; write {number}s for seconds or {number}ms"
                    )));
                }
                "." | "," => {
                    return Err(refused(
                        "parts of a unit are written in a smaller one, such as 1500ms".into(),
                    ));
                }
                other => return Err(refused(format!("the unit {other:?} is not ms, s, m or h"))),
            };
            total = part.and_then(|part| total.checked_add(part)).ok_or_else(too_long)?;
            rest = after;
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1000) { write!(f, "{}s", millis / 1000) } else { write!(f, "{millis}ms") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_numbers_with_units() {
        for (text, millis) in
            [("250ms", 250), ("5s", 5000), ("2m", 120_000), ("1h", 3_600_000), ("1m30s", 90_000), ("0s", 0)]
        {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_a_hint() {
        for (text, hint) in [
            ("5", "write 5s"),
            ("1m30", "write 30s"),
            ("", "such as 5s"),
            ("s", "such as 5s"),
            ("-5s", "such as 5s"),
            ("1.5s", "1500ms"),
            ("5 s", "\" s\""),
            ("5d", "\"d\""),
            ("99999999999999999999s", "too long"),
            ("18446744073709551615h", "too long"),
        ] {
            let why = text.parse::<Span>().unwrap_err();
            assert!(why.contains(hint), "{text:?}: {why}");
        }
    }

    #[test]
    fn a_duration_prints_as_it_is_typed() {
        assert_eq!(Span::seconds(15).to_string(), "15s");
        assert_eq!(Span(Duration::from_millis(1500)).to_string(), "1500ms");
    }
}
