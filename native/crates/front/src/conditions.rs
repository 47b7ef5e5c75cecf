//! What a read asks beyond the object itself: conditions on its version, and one range of its bytes (RFC 9110, sections
//! 13 and 14), as `services/swiftlet/api/http/conditions.py` and `ranges.py` weigh them.
//!
//! Fault model: the values are untrusted text. A value that is not of the usual form is not for the front.

use swiftlet_node::message::ToRead;

use crate::answer::{LARGE_BYTES, MAX_BYTES};
use crate::date::parse_http_date;

/// Digits of a position in a range; so many always fit into 64 bits.
const MAX_DIGITS: usize = 18;

/// The outcome of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hold.
    Go,
    /// The client has this version already: 304.
    NotModified,
    /// One does not hold: 412.
    Failed,
}

/// One range of bytes as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Positions {
    /// `first-`
    From(u64),
    /// `first-last`
    Between(u64, u64),
    /// `-count`
    Last(u64),
}

impl Positions {
    /// Parse the value of `Range`; None for several ranges, and for anything that is not understood.
    fn parse(value: &[u8]) -> Option<Self> {
        let value = value.strip_prefix(b"bytes=")?;
        let dash = value.iter().position(|byte| *byte == b'-')?;
        match (&value[..dash], &value[dash + 1..]) {
            ([], count) => number(count).map(Self::Last),
            (first, []) => number(first).map(Self::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// `[start, stop)` in an object of so many bytes; None when it has no byte of the range.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let (start, stop) = match self {
            Self::From(first) => (first, size),
            Self::Between(first, last) => (first, size.min(last + 1)),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (start < stop).then_some((start, stop))
    }

    /// What to read of an object of unknown size, if at most `limit` bytes are taken. Where that is not all of the
    /// range, the description tells what is.
    fn to_read(self, limit: u64) -> ToRead {
        let (start, stop) = match self {
            Self::From(first) => (first, first.saturating_add(limit)),
            Self::Between(first, last) if last - first < limit => (first, last + 1),
            Self::Between(..) => return ToRead::NOTHING,
            Self::Last(_) => return ToRead { whole: MAX_BYTES, ..ToRead::NOTHING },
        };
        ToRead { start, stop, whole: 0 }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let plain = (1..=MAX_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| digits.iter().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
}

/// The version of which a range is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfRange<'a> {
    Etag(&'a [u8]),
    Date(u64),
}

impl<'a> IfRange<'a> {
    fn parse(value: &'a [u8]) -> Option<Self> {
        if let Some(date) = parse_http_date(value) {
            return Some(Self::Date(date));
        }
        let etag = unquoted(value);
        // Without blanks and commas it can't be a date of another form.
        let plain = !etag.is_empty() && etag.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        plain.then_some(Self::Etag(etag))
    }
}

fn unquoted(mut tag: &[u8]) -> &[u8] {
    while let [b'"', rest @ ..] | [rest @ .., b'"'] = tag {
        tag = rest;
    }
    tag
}

/// Whether a list of entity tags has this one, or `*`; weak marks do not count.
fn has(list: &[u8], etag: &[u8]) -> bool {
    let mut tags = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty());
    tags.any(|tag| {
        let tag = unquoted(tag.strip_prefix(b"W/").unwrap_or(tag));
        tag == b"*" || tag == etag
    })
}

/// Conditions and range of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    if_match: Option<&'a [u8]>,
    if_none_match: Option<&'a [u8]>,
    if_modified_since: Option<u64>,
    if_unmodified_since: Option<u64>,
    range: Option<Positions>,
    if_range: Option<IfRange<'a>>,
}

impl<'a> Wanted<'a> {
    /// Parse one header; None if it is another one, comes a second time, or has a value that is not for the front.
    pub(crate) fn take(&mut self, name: &[u8], value: &'a [u8]) -> Option<()> {
        fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
            place.replace(value).is_none().then_some(())
        }
        let is = |lower: &[u8]| name.eq_ignore_ascii_case(lower);
        if is(b"range") {
            set(&mut self.range, Positions::parse(value)?)
        } else if is(b"if-range") {
            set(&mut self.if_range, IfRange::parse(value)?)
        } else if is(b"if-modified-since") {
            set(&mut self.if_modified_since, parse_http_date(value)?)
        } else if is(b"if-unmodified-since") {
            set(&mut self.if_unmodified_since, parse_http_date(value)?)
        } else if value.is_empty() {
            None
        } else if is(b"if-match") {
            set(&mut self.if_match, value)
        } else if is(b"if-none-match") {
            set(&mut self.if_none_match, value)
        } else {
            None
        }
    }

    /// How many bytes have to be taken for an answer to be possible, and how many can be of use.
    #[must_use]
    pub fn limits(&self) -> (u64, u64) {
        match self.range {
            None | Some(Positions::From(_)) => (MAX_BYTES, u64::MAX),
            Some(Positions::Between(first, last)) => (last + 1 - first, last + 1 - first),
            Some(Positions::Last(_)) => (MAX_BYTES, MAX_BYTES),
        }
    }

    /// Whether the client has a version already: such a client mostly needs no other one.
    fn has_one(&self) -> bool {
        self.if_none_match.is_some() || self.if_modified_since.is_some()
    }

    /// What to read first, if at most `limit` bytes are taken. An object that is larger may only be described.
    #[must_use]
    pub fn to_read(&self, limit: u64) -> ToRead {
        // Much would be sent in vain.
        let limit = if self.has_one() { limit.min(LARGE_BYTES) } else { limit };
        self.range.map_or(ToRead { whole: limit, ..ToRead::NOTHING }, |range| range.to_read(limit))
    }

    /// The bytes `[start, stop)` to read first of an object that is put together from what several devices have: none
    /// where the description may be enough, or has to be known before.
    #[must_use]
    pub fn to_gather(&self) -> (u64, u64) {
        match self.range {
            _ if self.has_one() => (0, 0),
            None => (0, u64::MAX),
            Some(Positions::From(first)) => (first, u64::MAX),
            Some(Positions::Between(first, last)) => (first, last + 1),
            Some(Positions::Last(_)) => (0, 0),
        }
    }

    /// Weigh the conditions against an entity tag and its `Last-Modified` in whole seconds.
    #[must_use]
    pub fn verdict(&self, etag: &[u8], modified_s: u64) -> Verdict {
        let matches = self.if_match.is_none_or(|list| has(list, etag));
        if !matches || self.if_unmodified_since.is_some_and(|limit| modified_s > limit) {
            return Verdict::Failed;
        }
        let is_known = match (self.if_none_match, self.if_modified_since) {
            // A second is too long to tell versions apart.
            (Some(list), _) => has(list, etag),
            (None, Some(since)) => modified_s <= since,
            (None, None) => false,
        };
        if is_known { Verdict::NotModified } else { Verdict::Go }
    }

    /// Whether only a range of this version is wanted.
    #[must_use]
    pub fn is_partial(&self, etag: &[u8], modified_s: u64) -> bool {
        let applies = match self.if_range {
            None => true,
            Some(IfRange::Etag(wanted)) => wanted == etag,
            Some(IfRange::Date(date)) => date == modified_s,
        };
        self.range.is_some() && applies
    }

    /// The range as `[start, stop)` in an object of so many bytes; None when it has no byte of it.
    #[must_use]
    pub fn span(&self, size: u64) -> Option<(u64, u64)> {
        self.range?.within(size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ETAG: &str = "0123456789abcdef0123456789abcdef";
    const THEN: &str = "Sat, 29 Oct 1994 19:43:31 GMT";
    const THEN_S: u64 = 783_459_811;
    const EARLIER: &str = "Sat, 29 Oct 1994 19:43:30 GMT";
    const LATER: &str = "Sat, 29 Oct 1994 19:43:32 GMT";

    fn wanted<'a>(headers: &[(&str, &'a str)]) -> Option<Wanted<'a>> {
        let mut wanted = Wanted::default();
        for (name, value) in headers {
            wanted.take(name.as_bytes(), value.as_bytes())?;
        }
        Some(wanted)
    }

    #[test]
    fn verdicts() {
        let quoted = format!("\"{ETAG}\"");
        let weak = format!("\"x\" , W/\"{ETAG}\"");
        for (headers, verdict) in [
            (vec![], Verdict::Go),
            (vec![("If-Match", ETAG)], Verdict::Go),
            (vec![("if-match", quoted.as_str())], Verdict::Go),
            (vec![("If-Match", "*")], Verdict::Go),
            (vec![("If-Match", &weak)], Verdict::Go),
            (vec![("If-Match", "\"x\"")], Verdict::Failed),
            (vec![("If-Match", ",")], Verdict::Failed),
            (vec![("If-None-Match", ETAG)], Verdict::NotModified),
            (vec![("If-None-Match", &weak)], Verdict::NotModified),
            (vec![("If-None-Match", "*")], Verdict::NotModified),
            (vec![("If-None-Match", "x")], Verdict::Go),
            (vec![("If-Modified-Since", THEN)], Verdict::NotModified),
            (vec![("If-Modified-Since", EARLIER)], Verdict::Go),
            (vec![("If-Unmodified-Since", THEN)], Verdict::Go),
            (vec![("If-Unmodified-Since", EARLIER)], Verdict::Failed),
            (vec![("If-None-Match", "x"), ("If-Modified-Since", LATER)], Verdict::Go),
            (vec![("If-Match", ETAG), ("If-Unmodified-Since", EARLIER)], Verdict::Failed),
            (vec![("If-Match", ETAG), ("If-None-Match", ETAG)], Verdict::NotModified),
            (vec![("If-Match", "x"), ("If-None-Match", ETAG)], Verdict::Failed),
        ] {
            let found = wanted(&headers).map(|wanted| wanted.verdict(ETAG.as_bytes(), THEN_S));
            assert_eq!(found, Some(verdict), "{headers:?}");
        }
    }

    #[test]
    fn ranges_within_100_bytes() {
        for (value, span) in [
            ("bytes=0-0", Some((0, 1))),
            ("bytes=0-499", Some((0, 100))),
            ("bytes=-10", Some((90, 100))),
            ("bytes=-1000", Some((0, 100))),
            ("bytes=90-", Some((90, 100))),
            ("bytes=99-99", Some((99, 100))),
            ("bytes=100-", None),
            ("bytes=100-200", None),
            ("bytes=-0", None),
            ("bytes=999999999999999999-", None),
        ] {
            let wanted = wanted(&[("Range", value)]).unwrap_or_else(|| panic!("{value}"));
            assert!(wanted.is_partial(b"x", 1));
            assert_eq!(wanted.span(100), span, "{value}");
            let (start, stop) = wanted.to_read(MAX_BYTES).of(100);
            if let Some((first, end)) = span {
                assert!(start <= first && end <= stop, "{value}");
            }
        }
        assert_eq!(wanted(&[("Range", "bytes=0-")]).and_then(|wanted| wanted.span(0)), None);
    }

    #[test]
    fn odd_forms_are_not_for_the_front() {
        for (name, value) in [
            ("Range", ""),
            ("Range", "bytes"),
            ("Range", "bytes="),
            ("Range", "bytes=-"),
            ("Range", "bytes=5-4"),
            ("Range", "bytes=a-b"),
            ("Range", "bytes=0-1,3-4"),
            ("Range", "bytes= 0-1"),
            ("Range", "bytes=0 - 1"),
            ("Range", "Bytes=0-1"),
            ("Range", "lines=0-1"),
            ("Range", "bytes=--1"),
            ("Range", "bytes=1-2-3"),
            ("Range", "bytes=+1-2"),
            ("Range", "bytes=1000000000000000000-"),
            ("If-Match", ""),
            ("If-None-Match", ""),
            ("If-Modified-Since", "yesterday"),
            ("If-Unmodified-Since", "Saturday, 29-Oct-94 19:43:31 GMT"),
            ("If-Range", ""),
            ("If-Range", "\"\""),
            ("If-Range", "W/\"x\""),
            ("If-Range", "\"a b\""),
            ("If-Range", "Sat, 29 Oct 1994"),
            ("Referer", "x"),
        ] {
            assert_eq!(wanted(&[(name, value)]), None, "{name}: {value}");
        }
        for (name, value) in [("Range", "bytes=0-1"), ("If-Match", "*"), ("If-Modified-Since", THEN), ("If-Range", "x")]
        {
            assert!(wanted(&[(name, value)]).is_some());
            assert_eq!(wanted(&[(name, value), (name, value)]), None, "{name} twice");
        }
    }

    #[test]
    fn a_range_of_this_version_only() {
        let quoted = format!("\"{ETAG}\"");
        let partial = |headers: &[(&str, &str)]| wanted(headers).map(|one| one.is_partial(ETAG.as_bytes(), THEN_S));
        let range = ("Range", "bytes=0-1");
        assert_eq!(partial(&[("If-Range", ETAG)]), Some(false), "no range");
        for (condition, applies) in [
            (ETAG, true),
            (quoted.as_str(), true),
            (THEN, true),
            ("\"other\"", false),
            (EARLIER, false),
            (LATER, false),
        ] {
            assert_eq!(partial(&[range, ("If-Range", condition)]), Some(applies), "{condition}");
        }
    }

    proptest! {
        #[test]
        fn a_range_is_inside_of_the_object_and_of_what_is_read(
            first in 0_u64..300_000,
            count in 0_u64..=2 * LARGE_BYTES,
            kind in 0..3,
            size in 0_u64..200_000,
            limit in prop_oneof![Just(MAX_BYTES), Just(LARGE_BYTES), Just(u64::MAX)],
        ) {
            let positions = match kind {
                0 => Positions::From(first),
                1 => Positions::Between(first, first + count),
                _ => Positions::Last(count),
            };
            let wanted = Wanted { range: Some(positions), ..Wanted::default() };
            let (least, most) = wanted.limits();
            prop_assert!(least <= most);
            let (start, stop) = wanted.to_read(limit).of(size);
            prop_assert!(stop - start <= limit);
            if let Some((from, to)) = positions.within(size) {
                prop_assert!(from < to && to <= size);
                if size <= MAX_BYTES && (kind != 1 || count < limit) {
                    prop_assert!(start <= from && to <= stop);
                }
            }
        }

        #[test]
        fn who_has_a_version_is_sent_little_in_vain(
            first in 0_u64..=u64::MAX / 2,
            kind in 0..4_usize,
            size in 0_u64..1 << 40,
        ) {
            let ranges = [
                None,
                Some(Positions::From(first)),
                Some(Positions::Between(first, first * 2)),
                Some(Positions::Last(first)),
            ];
            for wanted in [
                Wanted { range: ranges[kind], if_none_match: Some(b"x"), ..Wanted::default() },
                Wanted { range: ranges[kind], if_modified_since: Some(1), ..Wanted::default() },
            ] {
                let (start, stop) = wanted.to_read(u64::MAX).of(size);
                prop_assert!(stop - start <= LARGE_BYTES);
            }
        }

        #[test]
        fn any_text_is_taken(text in "[ -~]{0,60}", name in 0..6_usize, size in 0_u64..1000) {
            let names =
                ["Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"];
            if let Some(wanted) = wanted(&[(names[name], &text)]) {
                let (start, stop) = wanted.to_read(MAX_BYTES).of(size);
                prop_assert!(start <= stop && stop - start <= MAX_BYTES);
                let _verdict = wanted.verdict(ETAG.as_bytes(), THEN_S);
                if let Some((from, to)) = wanted.span(size) {
                    prop_assert!(from < to && to <= size);
                }
            }
        }
    }
}
