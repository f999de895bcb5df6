//! Moments as people and programs read them: in UTC, as RFC 3339 has it.

const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// A moment, given in milliseconds since 1970, in whole seconds.
pub(crate) fn utc(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, of_day) = (seconds / SECONDS_A_DAY, seconds % SECONDS_A_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date so many days after 1 January 1970. Years are counted from March, so that the leap day is a year's last.
fn date(days: u64) -> (u64, u64, u64) {
    const FROM_YEAR_0: u64 = 719_468;
    const FOUR_CENTURIES: u64 = 146_097;
    let days = days + FROM_YEAR_0;
    let (era, of_era) = (days / FOUR_CENTURIES, days % FOUR_CENTURIES);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds * 1000 + 999), wanted);
        }
        assert!(utc(u64::MAX).ends_with('Z'), "whatever another client wrote");
    }
}
