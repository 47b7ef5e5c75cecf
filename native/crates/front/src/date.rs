//! Dates as HTTP writes them (RFC 9110, section 5.6.7).

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
    use super::http_date;

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
}
