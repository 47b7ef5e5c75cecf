//! The head of an answer, byte for byte as the Python part of the proxy would send it.

pub use swiftlet_node::plain::{is_plain, is_plain_at};
use swiftlet_store::model::Info;

use crate::date::http_date;

/// The largest size of an object, or of a part of one, that is answered with here however many clients there are.
pub const MAX_BYTES: u64 = 64 * 1024;
/// The largest that is answered with while answers of more than [`MAX_BYTES`] have room.
pub const LARGE_BYTES: u64 = 1024 * 1024;
/// The ticks of a timestamp are above these bits, which hold its nonce.
const NONCE_BITS: u32 = 14;
const TICKS_PER_SECOND: u64 = 100_000;

/// What an answer needs besides the object.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The request's id.
    pub id: &'a str,
    /// `Date`.
    pub date: &'a str,
    /// Whether the connection ends after it.
    pub close: bool,
}

/// The kind of answer to a read of a plain object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 200: all of it.
    Whole,
    /// 206: bytes `[start, stop)`.
    Part(u64, u64),
    /// 304: the client has this version.
    NotModified,
    /// 412: a condition does not hold.
    Failed,
    /// 416: there is no byte of the range.
    Unsatisfiable,
}

impl Outcome {
    /// The status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Whole => 200,
            Self::Part(..) => 206,
            Self::NotModified => 304,
            Self::Failed => 412,
            Self::Unsatisfiable => 416,
        }
    }

    fn line(self) -> &'static [u8] {
        match self {
            Self::Whole => b"HTTP/1.1 200 OK\r\n",
            Self::Part(..) => b"HTTP/1.1 206 Partial Content\r\n",
            Self::NotModified => b"HTTP/1.1 304 Not Modified\r\n",
            Self::Failed => b"HTTP/1.1 412 Precondition Failed\r\n",
            Self::Unsatisfiable => b"HTTP/1.1 416 Requested Range Not Satisfiable\r\n",
        }
    }

    /// Bytes of the body, if it may have one.
    fn body_bytes(self, info: &Info) -> Option<u64> {
        match self {
            Self::Whole => Some(info.size),
            Self::Part(start, stop) => Some(stop - start),
            Self::NotModified => None,
            Self::Failed | Self::Unsatisfiable => self.reason(info).map(|reason| reason.len() as u64),
        }
    }

    /// The text that says what is wrong with the request, if that is the answer.
    #[must_use]
    pub fn reason(self, info: &Info) -> Option<String> {
        match self {
            Self::Whole | Self::Part(..) | Self::NotModified => None,
            Self::Failed => Some("a condition on the ETag or date of the object does not hold".to_owned()),
            Self::Unsatisfiable => {
                Some(format!("the object has {} bytes; no range of the request lies within it", info.size))
            }
        }
    }
}

/// `Last-Modified` in seconds since 1970.
#[must_use]
pub fn modified_s(info: &Info) -> u64 {
    ticks_of(info).div_ceil(TICKS_PER_SECOND)
}

fn ticks_of(info: &Info) -> u64 {
    info.timestamp.max(info.meta_timestamp) >> NONCE_BITS
}

/// Status line and headers of the answer to a read of a plain object.
#[must_use]
pub fn head(info: &Info, outcome: Outcome, given: &Given<'_>) -> Vec<u8> {
    let ticks = ticks_of(info);
    let (whole, fraction) = (ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND);
    let reason = outcome.reason(info);
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(outcome.line());
    let mut put = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    };
    if reason.is_none() {
        put(b"Content-Type", &info.content_type);
    }
    put(b"Etag", &info.etag);
    put(b"Last-Modified", http_date(modified_s(info)).as_bytes());
    put(b"X-Timestamp", format!("{whole:010}.{fraction:05}").as_bytes());
    if outcome != Outcome::Failed {
        put(b"Accept-Ranges", b"bytes");
        info.metadata.iter().for_each(|(name, value)| put(name, value));
    }
    match outcome {
        Outcome::Part(start, stop) => {
            put(b"Content-Range", format!("bytes {start}-{}/{}", stop - 1, info.size).as_bytes());
        }
        Outcome::Unsatisfiable => put(b"Content-Range", format!("bytes */{}", info.size).as_bytes()),
        Outcome::Whole | Outcome::NotModified | Outcome::Failed => {}
    }
    if reason.is_some() {
        put(b"Content-Type", b"text/plain; charset=utf-8");
    }
    if let Some(bytes) = outcome.body_bytes(info) {
        put(b"Content-Length", bytes.to_string().as_bytes());
    }
    put(b"Date", given.date.as_bytes());
    if given.close {
        put(b"Connection", b"close");
    }
    put(b"X-Trans-Id", given.id.as_bytes());
    put(b"X-Openstack-Request-Id", given.id.as_bytes());
    out.extend_from_slice(b"\r\n");
    out
}

/// The answer to a PUT that has stored a version.
#[must_use]
pub fn created(timestamp: u64, etag: &[u8], given: &Given<'_>) -> Vec<u8> {
    let modified = http_date((timestamp >> NONCE_BITS).div_ceil(TICKS_PER_SECOND));
    let mut out = Vec::with_capacity(320);
    out.extend_from_slice(b"HTTP/1.1 201 Created\r\nEtag: ");
    out.extend_from_slice(etag);
    let id = given.id;
    let rest = format!(
        "\r\nLast-Modified: {modified}\r\nContent-Type: text/html; charset=UTF-8\r\nContent-Length: 0\r\nDate: {}\r\n{}\
         X-Trans-Id: {id}\r\nX-Openstack-Request-Id: {id}\r\n\r\n",
        given.date,
        if given.close { "Connection: close\r\n" } else { "" }
    );
    out.extend_from_slice(rest.as_bytes());
    out
}

/// The text of the answer to a PUT that is allowed only if there is no object.
pub const EXISTS: &str = "the object exists, and If-None-Match: * allows only a new one";

/// The head of that answer.
#[must_use]
pub fn exists(given: &Given<'_>) -> Vec<u8> {
    let Given { id, date, close } = given;
    let close = if *close { "Connection: close\r\n" } else { "" };
    let text = format!(
        "HTTP/1.1 412 Precondition Failed\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Date: {date}\r\n{close}X-Trans-Id: {id}\r\nX-Openstack-Request-Id: {id}\r\n\r\n",
        EXISTS.len()
    );
    text.into_bytes()
}

/// The answer to a DELETE of an object that existed.
#[must_use]
pub fn deleted(given: &Given<'_>) -> Vec<u8> {
    let Given { id, date, close } = given;
    let close = if *close { "Connection: close\r\n" } else { "" };
    let text = format!(
        "HTTP/1.1 204 No Content\r\nDate: {date}\r\n{close}X-Trans-Id: {id}\r\nX-Openstack-Request-Id: {id}\r\n\
         Content-Length: 0\r\nContent-Type: text/html; charset=UTF-8\r\n\r\n"
    );
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> Info {
        Info {
            name: b"/a/c/o".to_vec(),
            timestamp: (100_000 * 10 + 1) << NONCE_BITS | 7,
            size: 3,
            etag: b"abc".to_vec(),
            xxh3: 0,
            content_type: b"text/plain".to_vec(),
            metadata: vec![(b"X-Object-Meta-Color".to_vec(), "blaü".as_bytes().to_vec())],
            sysmeta: Vec::new(),
            meta_timestamp: 0,
            content_type_timestamp: 0,
            delete_at: 0,
        }
    }

    #[test]
    fn all_that_describes_it() {
        let given = Given { id: "tx1", date: "now", close: true };
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nEtag: abc\r\n\
            Last-Modified: Thu, 01 Jan 1970 00:00:11 GMT\r\nX-Timestamp: 0000000010.00001\r\nAccept-Ranges: bytes\r\n\
            X-Object-Meta-Color: blaü\r\nContent-Length: 3\r\nDate: now\r\nConnection: close\r\n\
            X-Trans-Id: tx1\r\nX-Openstack-Request-Id: tx1\r\n\r\n";
        assert_eq!(String::from_utf8(head(&info(), Outcome::Whole, &given)).expect("text"), expected);
        let posted = Info { meta_timestamp: (100_000 * 20) << NONCE_BITS, ..info() };
        let text = String::from_utf8(head(&posted, Outcome::Whole, &Given { close: false, ..given })).expect("text");
        assert!(text.contains("X-Timestamp: 0000000020.00000\r\n") && text.contains("00:00:20 GMT\r\n"));
        assert!(!text.contains("Connection"));
    }

    #[test]
    fn parts_and_refusals() {
        let given = Given { id: "tx1", date: "now", close: false };
        let (plain, etag) = ("Content-Type: text/plain\r\n", "Etag: abc\r\n");
        let times = "Last-Modified: Thu, 01 Jan 1970 00:00:11 GMT\r\nX-Timestamp: 0000000010.00001\r\n";
        let described = "Accept-Ranges: bytes\r\nX-Object-Meta-Color: blaü\r\n";
        let text = "Content-Type: text/plain; charset=utf-8\r\n";
        let end = "Date: now\r\nX-Trans-Id: tx1\r\nX-Openstack-Request-Id: tx1\r\n\r\n";
        let failed = "a condition on the ETag or date of the object does not hold";
        let outside = "the object has 3 bytes; no range of the request lies within it";
        for (outcome, line, headers, reason) in [
            (
                Outcome::Part(1, 3),
                "206 Partial Content",
                format!("{plain}{etag}{times}{described}Content-Range: bytes 1-2/3\r\nContent-Length: 2\r\n"),
                None,
            ),
            (Outcome::NotModified, "304 Not Modified", format!("{plain}{etag}{times}{described}"), None),
            (
                Outcome::Failed,
                "412 Precondition Failed",
                format!("{etag}{times}{text}Content-Length: {}\r\n", failed.len()),
                Some(failed),
            ),
            (
                Outcome::Unsatisfiable,
                "416 Requested Range Not Satisfiable",
                format!(
                    "{etag}{times}{described}Content-Range: bytes */3\r\n{text}Content-Length: {}\r\n",
                    outside.len()
                ),
                Some(outside),
            ),
        ] {
            let found = String::from_utf8(head(&info(), outcome, &given)).expect("text");
            assert_eq!(found, format!("HTTP/1.1 {line}\r\n{headers}{end}"));
            assert_eq!(outcome.reason(&info()).as_deref(), reason);
            assert!(line.starts_with(&outcome.status().to_string()));
        }
    }

    #[test]
    fn a_version_was_made() {
        let given = Given { id: "tx1", date: "now", close: false };
        let text = String::from_utf8(created((100_000 * 20 + 1) << NONCE_BITS, b"abc", &given)).expect("text");
        let expected = "HTTP/1.1 201 Created\r\nEtag: abc\r\nLast-Modified: Thu, 01 Jan 1970 00:00:21 GMT\r\n\
            Content-Type: text/html; charset=UTF-8\r\nContent-Length: 0\r\nDate: now\r\n\
            X-Trans-Id: tx1\r\nX-Openstack-Request-Id: tx1\r\n\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_object_is_there_already() {
        let text = String::from_utf8(exists(&Given { id: "tx1", date: "now", close: true })).expect("text");
        let expected = "HTTP/1.1 412 Precondition Failed\r\nContent-Type: text/plain; charset=utf-8\r\n\
            Content-Length: 61\r\nDate: now\r\nConnection: close\r\nX-Trans-Id: tx1\r\n\
            X-Openstack-Request-Id: tx1\r\n\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_object_is_no_more() {
        let text = String::from_utf8(deleted(&Given { id: "tx1", date: "now", close: true })).expect("text");
        let expected = "HTTP/1.1 204 No Content\r\nDate: now\r\nConnection: close\r\nX-Trans-Id: tx1\r\n\
            X-Openstack-Request-Id: tx1\r\nContent-Length: 0\r\nContent-Type: text/html; charset=UTF-8\r\n\r\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_not_plain() {
        assert!(is_plain(&info()));
        let pairs = |name: &str, value: &str| vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())];
        let of = |name: &str, value: &str| Info { metadata: pairs(name, value), ..info() };
        for odd in [
            Info { delete_at: 1, ..info() },
            Info { sysmeta: pairs("X-Static-Large-Object", "True"), ..info() },
            Info { sysmeta: pairs("Symlink-Target", "c/o"), ..info() },
            Info { content_type: b"a/b;swift_bytes=1".to_vec(), ..info() },
            Info { content_type: Vec::new(), ..info() },
            Info { content_type: b"a\r\nb".to_vec(), ..info() },
            of("X-Object-Manifest", "c/p"),
            of("X-Delete-At", "1"),
            of("Content-Length", "1"),
            of("X-Object-Meta-A b", "1"),
            of("X-Object-Meta-A", "1\r\n2"),
            of("X-Object-Meta-A", "1\u{0}"),
            of("X-Object-Meta-A", " 1"),
        ] {
            assert!(!is_plain(&odd), "{odd:?}");
        }
        assert!(is_plain(&of("Content-Encoding", "gzip")) && is_plain(&of("X-Robots-Tag", "none")));
    }

    #[test]
    fn a_time_to_go_is_shown_until_it_has_come() {
        let pairs = |name: &str, value: &str| vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())];
        let of = |delete_at, name: &str, value: &str| Info { delete_at, metadata: pairs(name, value), ..info() };
        let good = of(1100, "X-Delete-At", "0000001100");
        assert!(is_plain_at(&good, 1099) && !is_plain_at(&good, 1100) && !is_plain_at(&good, 1101));
        assert!(!is_plain(&good) && is_plain_at(&info(), u64::MAX));
        for odd in [
            of(0, "X-Delete-At", "0000001100"),
            of(1100, "X-Delete-At", "1100"),
            of(1100, "X-Delete-At", "0000001101"),
            of(1100, "X-Object-Meta-A", "0000001100"),
            Info { content_type: b"a/b;swift_bytes=1".to_vec(), ..good.clone() },
            Info { sysmeta: pairs("Symlink-Target", "c/o"), ..good.clone() },
            Info { metadata: [&good.metadata[..], &pairs("X-Delete-At", "1")].concat(), ..good.clone() },
        ] {
            assert!(!is_plain_at(&odd, 1), "{odd:?}");
        }
    }
}
