//! Dates as HTTP writes them (RFC 9110, section 5.6.7).

/// Bytes of such a date.
const DATE_BYTES: usize = "Thu, 01 Jan 1970 00:00:00 GMT".len();

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_S: u64 = 86_400;

/// Seconds since 1970 as an HTTP date.
pub(crate) fn http_date(seconds: u64) -> String {
    let (days, rest) = (seconds / DAY_S, seconds % DAY_S);
    let (year, month, day) = civil(days);
    let name = DAYS[(days % 7) as usize];
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{name}, {day:02} {} {year:04} {hour:02}:{minute:02}:{second:02} GMT", MONTHS[month])
}

/// The seconds since 1970 of a date exactly as [`http_date`] writes it; None for any other text.
pub(crate) fn parse_http_date(text: &[u8]) -> Option<u64> {
    let number = |at: usize, digits: usize| -> Option<u64> {
        let part = text.get(at..at + digits)?;
        let digits = part.iter().all(u8::is_ascii_digit);
        digits.then(|| part.iter().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
    };
    if text.len() != DATE_BYTES {
        return None;
    }
    let month = MONTHS.iter().position(|month| month.as_bytes() == &text[8..11])?;
    let days = days(number(12, 4)?, month, number(5, 2)?)?;
    let seconds = days * DAY_S + number(17, 2)? * 3600 + number(20, 2)? * 60 + number(23, 2)?;
    // The day of the week, the blanks and the colons, and numbers that are too large.
    (http_date(seconds).as_bytes() == text).then_some(seconds)
}

/// Days since 1970 until a day, with the month from 0; None for one before 1970.
fn days(year: u64, month: usize, day: u64) -> Option<u64> {
    // Counted from the 1st of March of the year 0, as in `civil`.
    let shifted = (month as u64 + 10) % 12;
    let year = year.checked_sub(u64::from(month < 2))?;
    let of_year = (153 * shifted + 2) / 5 + day.checked_sub(1)?;
    (year * 365 + year / 4 - year / 100 + year / 400 + of_year).checked_sub(719_468)
}

/// Year, month from 0 and day from 1 of a day since 1970.
fn civil(days: u64) -> (u64, usize, u64) {
    // Counted from the 1st of March of the year 0, so that the odd day is the last one of a year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12;
    (era * 400 + year_of_era + u64::from(month < 2), month as usize, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_399), "Mon, 28 Feb 2000 23:59:59 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(951_868_800), "Wed, 01 Mar 2000 00:00:00 GMT");
        assert_eq!(http_date(4_102_444_799), "Thu, 31 Dec 2099 23:59:59 GMT");
        assert_eq!(http_date(9_999_999_999), "Sat, 20 Nov 2286 17:46:39 GMT");
    }

    #[test]
    fn only_exact_dates_are_read() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "sun, 06 nov 1994 08:49:37 gmt",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 06 Nov 1994 08:49:+7 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sat, 01 Jan 0000 00:00:00 GMT",
            "Wed, 30 Feb 2000 00:00:00 GMT",
            "yesterday",
            "",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0_u64..253_402_300_800) {
            prop_assert_eq!(parse_http_date(http_date(seconds).as_bytes()), Some(seconds));
        }

        #[test]
        fn what_is_read_is_what_is_written(
            text in "[A-Z][a-z]{2}, [0-3][0-9] (Jan|Feb|Dec) (0000|1900|1999|9999) [0-2][0-9]:[0-6][0-9]:[0-6][0-9] GMT",
        ) {
            if let Some(seconds) = parse_http_date(text.as_bytes()) {
                prop_assert_eq!(http_date(seconds), text);
            }
        }
    }
}
