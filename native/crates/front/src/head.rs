//! The head of a request that the front may answer: a strict subset of HTTP/1.1, which all parsers read in the same
//! way.
//!
//! Fault model: the bytes are untrusted. A head that is not exactly as expected, or cut off, is not answered here; the
//! general parser reads it again from its first byte.

use crate::conditions::Wanted;

/// The largest size of a head.
pub const MAX_HEAD: usize = 4096;
const MAX_HEADERS: usize = 32;

/// The largest size of a body that is accepted here.
pub const MAX_BODY: usize = 32 * 1024 * 1024;
/// The largest size of a body whose MD5 is needed: devices are asked when it is known, which takes longer than a disk.
pub const MAX_DIGESTED_BODY: usize = 16 * 1024 * 1024;
/// Up to this size a body is one piece, and devices are sent it in one.
pub const PIECE: usize = 1024 * 1024;
/// Up to this size a body is read into the connection's own memory.
pub const SHORT_BODY: usize = 64 * 1024;
/// The last second at which an object may go.
const LATEST: u64 = 9_999_999_999;
const MAX_ITEMS: usize = 16;
const MAX_ITEM_NAME: usize = 64;
const MAX_ITEM_VALUE: usize = 256;

/// The methods that are answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The object.
    Get,
    /// All but its bytes.
    Head,
    /// A new object.
    Put,
    /// No object any more.
    Delete,
}

impl Method {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Whether it needs a grant for writes.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Delete)
    }
}

/// The headers of a PUT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Bytes of the body after the head.
    pub bytes: usize,
    /// `Content-Type`; empty if the client does not send one.
    pub content_type: &'a [u8],
    /// The MD5 that the body must have, if the client sends it: 32 hexadecimal digits, lower case.
    pub etag: Option<&'a [u8]>,
    /// `X-Object-Meta-` and a name as the API shows it, with its value.
    pub items: Vec<(Vec<u8>, &'a [u8])>,
    /// Other headers that are kept with the object, by their names as the API shows them.
    pub kept: Vec<(&'static str, &'a [u8])>,
    /// Whether it is allowed only if there is no object: `If-None-Match: *`.
    pub only_new: bool,
    /// `X-Delete-At`, in seconds since 1970.
    pub delete_at: Option<u64>,
    /// `X-Delete-After`, in seconds from now; it counts before `X-Delete-At`.
    pub delete_after: Option<u64>,
    /// Whether the client sends the body once it is told to: `Expect: 100-continue`.
    pub expects: bool,
}

impl Stored<'_> {
    /// When the object goes if it is stored at this time, both in seconds since 1970.
    #[must_use]
    pub fn goes_at(&self, now_s: u64) -> Option<u64> {
        let at = self.delete_after.map(|seconds| now_s + seconds).or(self.delete_at)?;
        Some(at.min(LATEST))
    }
}

/// A request that the front may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// What is asked.
    pub method: Method,
    /// `/v1/...` as sent: only characters of a path, without `?`.
    pub target: &'a [u8],
    /// `X-Auth-Token` as sent.
    pub token: Option<&'a [u8]>,
    /// Whether the client wants to keep the connection.
    pub keep_alive: bool,
    /// Bytes of the head.
    pub bytes: usize,
    /// For a PUT.
    pub stored: Option<Stored<'a>>,
    /// For a GET or HEAD.
    pub wanted: Wanted<'a>,
}

impl Asked<'_> {
    /// Bytes of head and body.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.bytes + self.body_bytes()
    }

    /// Whether it is a PUT that is allowed only if there is no object.
    #[must_use]
    pub fn is_only_new(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.only_new)
    }

    /// Bytes of the body.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.stored.as_ref().map_or(0, |stored| stored.bytes)
    }
}

/// Headers without influence on the answer to a plain read.
const IGNORED: [&[u8]; 6] =
    [b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"pragma"];

/// Headers that are kept with an object.
const KEPT: [&str; 6] =
    ["Content-Disposition", "Content-Encoding", "Content-Language", "Cache-Control", "Expires", "X-Robots-Tag"];

/// The request at the beginning of `data`; None if it is incomplete, or not for the front.
#[must_use]
pub fn parse(data: &[u8]) -> Option<Asked<'_>> {
    let window = &data[..data.len().min(MAX_HEAD)];
    let end = window.windows(4).position(|four| four == b"\r\n\r\n")?;
    let mut lines = Lines(&window[..end + 2]);
    let (method, target) = request_line(lines.next()?)?;
    let (mut host, mut token, mut keep_alive) = (false, None, None);
    let (mut stored, mut length, mut wanted) = (Stored::default(), None, Wanted::default());
    for count in 0.. {
        let Some(line) = lines.next() else { break };
        if count == MAX_HEADERS {
            return None;
        }
        let (name, value) = header(line)?;
        if is(name, b"host") {
            if std::mem::replace(&mut host, true) || value.is_empty() {
                return None;
            }
        } else if is(name, b"x-auth-token") {
            if value.is_empty() || token.replace(value).is_some() {
                return None;
            }
        } else if is(name, b"connection") {
            let alive = is(value, b"keep-alive");
            if keep_alive.replace(alive).is_some() || !(alive || is(value, b"close")) {
                return None;
            }
        } else if method.writes() && is(name, b"content-length") {
            let bytes = body_length(value)?;
            if length.replace(bytes).is_some() || (method == Method::Delete && bytes > 0) {
                return None;
            }
        } else if method == Method::Put {
            described(&mut stored, name, value)?;
        } else if method == Method::Head && is(name, b"range") {
            // The whole is described, whatever its value is.
        } else if !is_ignored(name) {
            (!method.writes()).then_some(())?;
            wanted.take(name, value)?;
        }
    }
    let stored = match (method, length) {
        // What is short is mostly sent all the same.
        (Method::Put, Some(bytes)) if stored.expects && bytes <= SHORT_BODY => return None,
        (Method::Put, Some(bytes)) => Some(Stored { bytes, ..stored }),
        (Method::Put, None) => return None,
        _ => None,
    };
    // What is left is a line that does not end as one does.
    let whole = host && lines.0.is_empty();
    whole.then_some(Asked {
        method,
        target,
        token,
        keep_alive: keep_alive.unwrap_or(true),
        bytes: end + 4,
        stored,
        wanted,
    })
}

fn is_ignored(name: &[u8]) -> bool {
    IGNORED.iter().any(|ignored| is(name, ignored))
}

fn body_length(value: &[u8]) -> Option<usize> {
    let digits = (1..=8).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(value).ok()?.parse().ok()?;
    (digits && length <= MAX_BODY).then_some(length)
}

/// Take the expectation out of the head of so many bytes at the beginning of `data`, since it has been met; returns the
/// bytes of the head that is left.
pub(crate) fn met(data: &mut Vec<u8>, head: usize) -> usize {
    let mut start = 0;
    while let Some(length) = data[start..head].windows(2).position(|two| two == b"\r\n") {
        let end = start + length + 2;
        if data[start..end].get(..7).is_some_and(|begins| is(begins, b"expect:")) {
            data.drain(start..end);
            return head - (end - start);
        }
        start = end;
    }
    head
}

/// Parse one of a PUT's headers that say what is stored; None for one that is not for the front.
fn described<'a>(stored: &mut Stored<'a>, name: &'a [u8], value: &'a [u8]) -> Option<()> {
    const ITEM: &[u8] = b"x-object-meta-";
    if is(name, b"content-type") {
        // Parameters of this name are the proxy's own.
        let reserved = value.windows(6).any(|part| part.eq_ignore_ascii_case(b"swift_"));
        return (stored.content_type.is_empty() && !value.is_empty() && !reserved).then(|| stored.content_type = value);
    }
    if is(name, b"etag") {
        let digits = value.len() == 32 && value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        return (digits && stored.etag.replace(value).is_none()).then_some(());
    }
    if name.len() > ITEM.len() && is(&name[..ITEM.len()], ITEM) {
        let fits = name.len() <= ITEM.len() + MAX_ITEM_NAME && (1..=MAX_ITEM_VALUE).contains(&value.len());
        let name = shown(name);
        let is_new = stored.items.iter().all(|(known, _)| *known != name);
        return (fits && is_new && stored.items.len() < MAX_ITEMS).then(|| stored.items.push((name, value)));
    }
    if let Some(kept) = KEPT.iter().find(|kept| name.eq_ignore_ascii_case(kept.as_bytes())) {
        let is_new = stored.kept.iter().all(|(known, _)| known != kept);
        return (is_new && !value.is_empty()).then(|| stored.kept.push((*kept, value)));
    }
    if is(name, b"x-delete-at") {
        return stored.delete_at.replace(seconds(value)?).is_none().then_some(());
    }
    if is(name, b"x-delete-after") {
        return stored.delete_after.replace(seconds(value)?).is_none().then_some(());
    }
    if is(name, b"expect") {
        return (is(value, b"100-continue") && !stored.expects).then(|| stored.expects = true);
    }
    if is(name, b"if-none-match") {
        // Of a write nothing else means anything, and Python says so.
        return (value == b"*" && !stored.only_new).then(|| stored.only_new = true);
    }
    // A copy, a link, another condition: asked for by other headers, none of which is known here.
    is_ignored(name).then_some(())
}

fn seconds(value: &[u8]) -> Option<u64> {
    let digits = (1..=10).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok()?.parse().ok().filter(|_| digits)
}

/// A header's name as the API spells it: each word capitalized.
fn shown(name: &[u8]) -> Vec<u8> {
    let mut begins = true;
    let spelled = |byte: &u8| {
        let one = if begins { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        begins = *byte == b'-';
        one
    };
    name.iter().map(spelled).collect()
}

fn is(one: &[u8], lower: &[u8]) -> bool {
    one.eq_ignore_ascii_case(lower)
}

/// Lines that end with CRLF and hold no other CR, LF or control character.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| !matches!(byte, b' '..=b'~'))?;
        let rest = self.0[end..].strip_prefix(b"\r\n")?;
        let line = &self.0[..end];
        self.0 = rest;
        Some(line)
    }
}

fn request_line(line: &[u8]) -> Option<(Method, &[u8])> {
    let line = line.strip_suffix(b" HTTP/1.1")?;
    let (method, target) = if let Some(target) = line.strip_prefix(b"GET ") {
        (Method::Get, target)
    } else if let Some(target) = line.strip_prefix(b"PUT ") {
        (Method::Put, target)
    } else if let Some(target) = line.strip_prefix(b"DELETE ") {
        (Method::Delete, target)
    } else {
        (Method::Head, line.strip_prefix(b"HEAD ")?)
    };
    let known = target.starts_with(b"/v1/") && target.iter().all(|byte| in_path(*byte));
    known.then_some((method, target))
}

/// RFC 3986's `pchar`, and the slash.
fn in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/".contains(&byte)
}

fn header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let named = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    named.then(|| (name, value.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = "GET /v1/AUTH_a/c/o HTTP/1.1\r\nHost: h\r\nX-Auth-Token: t\r\n\r\n";

    fn with(header: &str) -> String {
        format!("GET /v1/AUTH_a/c/o HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n")
    }

    #[test]
    fn plain_reads_are_for_the_front() {
        let behind = format!("{PLAIN}GET /next");
        let asked = parse(behind.as_bytes()).expect("a request for the front");
        let whole = Asked {
            method: Method::Get,
            target: b"/v1/AUTH_a/c/o",
            token: Some(b"t"),
            keep_alive: true,
            bytes: PLAIN.len(),
            stored: None,
            wanted: Wanted::default(),
        };
        assert_eq!(asked, whole);
        let head = parse(b"HEAD /v1/a/c/%C3%A4//. HTTP/1.1\r\nhost:h\r\nCONNECTION: Close\r\n\r\n")
            .expect("a request for the front");
        assert_eq!((head.method, head.target), (Method::Head, b"/v1/a/c/%C3%A4//.".as_slice()));
        assert_eq!((head.keep_alive, head.token), (false, None));
        for header in ["User-Agent: curl/8 (x; y)", "Accept: */*", "accept-encoding: gzip", "Connection: keep-alive"] {
            assert!(parse(with(header).as_bytes()).is_some(), "{header}");
        }
    }

    #[test]
    fn conditions_and_a_range_are_for_the_front() {
        let line = "Range: bytes=1-2\r\nif-range: \"abc\"\r\nIf-None-Match: \"x\"\r\nIf-Match: *";
        let plain = with("Accept: */*");
        let asked = with(line);
        let (plain, asked) = (parse(plain.as_bytes()).expect("a read"), parse(asked.as_bytes()).expect("a read"));
        assert_eq!((asked.wanted.to_read(2).of(10), asked.wanted.is_partial(b"abc", 1)), ((1, 3), true));
        assert_eq!(plain.wanted, Wanted::default());
        for value in ["bytes=1-2", "bytes=0-1,3-4", "x", ""] {
            let head = format!("HEAD /v1/a/c/o HTTP/1.1\r\nHost: h\r\nRange: {value}\r\n\r\n");
            assert_eq!(parse(head.as_bytes()).map(|asked| asked.wanted), Some(Wanted::default()), "{value}");
        }
        let head = "HEAD /v1/a/c/o HTTP/1.1\r\nHost: h\r\nIf-None-Match: x\r\n\r\n";
        assert!(parse(head.as_bytes()).is_some_and(|asked| asked.wanted != Wanted::default()));
    }

    #[test]
    fn anything_odd_is_not() {
        for header in [
            "Content-Length: 0",
            "Transfer-Encoding: chunked",
            "Range: bytes=0-1,3-4",
            "Range: bytes=0-1\r\nRange: bytes=0-1",
            "If-None-Match:",
            "If-Modified-Since: yesterday",
            "X-Object-Meta-A: b",
            "Content-Type: a/b",
            "Origin: http://a",
            "Referer: http://a",
            "X-Newest: true",
            "X-Storage-Token: t",
            "Expect: 100-continue",
            "Upgrade: h2c",
            "Connection: upgrade",
            "Connection: close\r\nConnection: close",
            "X-Auth-Token:",
            "X-Auth-Token: a\r\nX-Auth-Token: a",
            "Host: other",
            "Accept : */*",
            "Accept",
            ": x",
            " folded: x",
            "Accept: a\r\n b",
            "Accept: a\nRange: b",
            "Accept: a\rb",
            "Accept: \u{e4}",
            "Accept: a\tb",
            "X-Trans-Id-Extra: mine",
        ] {
            assert_eq!(parse(with(header).as_bytes()), None, "{header:?}");
        }
        for line in [
            "POST /v1/a/c/o HTTP/1.1",
            "get /v1/a/c/o HTTP/1.1",
            "GET  /v1/a/c/o HTTP/1.1",
            "GET /v1/a/c/o  HTTP/1.1",
            "GET /v1/a/c/o HTTP/1.0",
            "GET /v1/a/c/o",
            "GET /v1/a/c/o?x HTTP/1.1",
            "GET /v1/a/c/o#x HTTP/1.1",
            "GET /v1/a/c/o\\ HTTP/1.1",
            "GET /v1/a/c/\"o HTTP/1.1",
            "GET /v1.0/a/c/o HTTP/1.1",
            "GET //v1/a/c/o HTTP/1.1",
            "GET http://h/v1/a/c/o HTTP/1.1",
            "",
        ] {
            let text = format!("{line}\r\nHost: h\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), None, "{line:?}");
        }
        assert_eq!(parse(b"GET /v1/a/c/o HTTP/1.1\r\n\r\n"), None, "no host");
        let many = "Accept: a\r\n".repeat(MAX_HEADERS);
        assert_eq!(parse(with(many.trim_end()).as_bytes()), None, "too many");
        assert_eq!(parse(with(&format!("Accept: {}", "a".repeat(MAX_HEAD))).as_bytes()), None, "too long");
    }

    fn put(headers: &str) -> String {
        format!("PUT /v1/a/c/o HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n")
    }

    #[test]
    fn plain_writes_are_for_the_front() {
        let head = put(
            "Content-Length: 3\r\ncontent-type: a/b\r\nX-Object-Meta-some-NAME: v w\r\nETag: 900150983cd24fb0d6963f7d28e17f72",
        );
        let asked = parse(head.as_bytes()).expect("a request for the front");
        let stored = asked.stored.clone().expect("a PUT");
        assert_eq!((asked.method, asked.whole()), (Method::Put, head.len() + 3));
        assert_eq!((stored.content_type, stored.etag.map(<[u8]>::len)), (b"a/b".as_slice(), Some(32)));
        assert_eq!(stored.items, vec![(b"X-Object-Meta-Some-Name".to_vec(), b"v w".as_slice())]);
        let head = put("Content-Length: 3\r\nCACHE-control: no-cache\r\nPragma: x\r\nContent-Encoding: gzip");
        let stored = parse(head.as_bytes()).and_then(|asked| asked.stored).expect("a PUT");
        let kept = vec![("Cache-Control", b"no-cache".as_slice()), ("Content-Encoding", b"gzip".as_slice())];
        assert_eq!((stored.kept, stored.items, stored.only_new), (kept, Vec::new(), false));
        let head = put("Content-Length: 3\r\nIF-NONE-MATCH:  * \r\nContent-Type: a/b");
        assert!(parse(head.as_bytes()).and_then(|asked| asked.stored).expect("a PUT").only_new);
    }

    #[test]
    fn odd_writes_are_not() {
        let plain = "Content-Length: 3\r\nContent-Type: a/b";
        assert!(parse(put(plain).as_bytes()).is_some());
        for more in [
            "Content-Length: 3",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Content-Type: c/d",
            "ETag: \"900150983cd24fb0d6963f7d28e17f72\"",
            "ETag: short",
            "If-None-Match: \"*\"",
            "If-None-Match: *, *",
            "If-None-Match: *, \"x\"",
            "If-None-Match: x",
            "If-None-Match:",
            "If-None-Match: *\r\nif-none-match: *",
            "If-Match: *",
            "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
            "Range: bytes=0-1",
            "X-Copy-From: c/o",
            "X-Delete-At:",
            "X-Delete-At: 1.5",
            "X-Delete-At: -1",
            "X-Delete-At: +1",
            "X-Delete-At: 10000000000",
            "X-Delete-At: 99\r\nX-Delete-At: 99",
            "X-Delete-After: soon",
            "X-Delete-After: 99\r\nx-delete-after: 98",
            "X-Delete-At: 99\r\nX-Remove-Delete-At: x",
            "X-Object-Manifest: c/p",
            "X-Symlink-Target: c/p",
            "X-Detect-Content-Type: true",
            "X-Timestamp: 1",
            "Content-Encoding:",
            "Content-Disposition: inline\r\ncontent-disposition: inline",
            "X_Robots_Tag: none",
            "X-Object-Meta-: v",
            "X-Object-Meta-A:",
            "X-Object-Meta-A: 1\r\nx-object-meta-a: 2",
        ] {
            assert_eq!(parse(put(&format!("{plain}\r\n{more}")).as_bytes()), None, "{more}");
        }
        for whole in [
            "Content-Type: a/b",
            "Content-Length: -3\r\nContent-Type: a/b",
            "Content-Length: 3, 3\r\nContent-Type: a/b",
            "Content-Length: 0x3\r\nContent-Type: a/b",
            "Content-Length: 3\r\nContent-Type:",
            "Content-Length: +3\r\nContent-Type: a/b",
            "Content-Length: 33554433\r\nContent-Type: a/b",
            "Content-Length: 999999999999999999999\r\nContent-Type: a/b",
            "Content-Length:\r\nContent-Type: a/b",
            "Content-Length: 3\r\nContent-Type: a/b;swift_bytes=1",
        ] {
            assert_eq!(parse(put(whole).as_bytes()), None, "{whole}");
        }
    }

    #[test]
    fn what_is_expected_of_the_server_is_taken_out_of_the_head_when_it_is_done() {
        let with = |line: &str| put(&format!("Content-Length: 100000\r\n{line}X-Object-Meta-Expect: b"));
        let plain = with("");
        for line in ["Expect: 100-continue\r\n", "EXPECT:100-Continue\r\n"] {
            let mut bytes = with(line).into_bytes();
            let asked = parse(&bytes).expect("a request for the front");
            assert!(asked.stored.as_ref().is_some_and(|stored| stored.expects));
            let head = asked.bytes;
            bytes.extend_from_slice(b"Expect: 100-continue\r\n");
            assert_eq!(met(&mut bytes, head), plain.len());
            assert_eq!(bytes, [plain.as_bytes(), b"Expect: 100-continue\r\n"].concat());
            assert_eq!(met(&mut bytes, plain.len()), plain.len());
            assert!(parse(&bytes).and_then(|asked| asked.stored).is_some_and(|stored| !stored.expects));
        }
        for line in ["Expect: 100-continue\r\nExpect: 100-continue\r\n", "Expect: more\r\n", "Expect:\r\n"] {
            assert_eq!(parse(with(line).as_bytes()), None, "{line}");
        }
        assert!(parse(put("Content-Length: 65537\r\nExpect: 100-continue").as_bytes()).is_some());
        assert_eq!(parse(put("Content-Length: 65536\r\nExpect: 100-continue").as_bytes()), None);
    }

    #[test]
    fn when_it_goes() {
        for (headers, at) in [
            ("", None),
            ("x-delete-at: 0099\r\n", Some(99)),
            ("X-Delete-After: 5\r\n", Some(1005)),
            ("X-Delete-After: 5\r\nX-Delete-At: 99\r\n", Some(1005)),
            ("X-Delete-After: 9999999999\r\n", Some(LATEST)),
        ] {
            let head = put(&format!("{headers}Content-Length: 3"));
            let stored = parse(head.as_bytes()).and_then(|asked| asked.stored).expect("a PUT");
            assert_eq!(stored.goes_at(1000), at, "{headers}");
        }
    }

    fn delete(headers: &str) -> String {
        format!("DELETE /v1/a/c/o HTTP/1.1\r\nHost: h\r\nX-Auth-Token: t\r\n{headers}\r\n")
    }

    #[test]
    fn deletions_have_no_body_and_no_conditions() {
        for headers in ["", "Content-Length: 0\r\n", "Accept: */*\r\ncontent-length: 0\r\nConnection: close\r\n"] {
            let head = delete(headers);
            let asked = parse(head.as_bytes()).expect("a request for the front");
            assert_eq!((asked.method, asked.stored.as_ref(), asked.whole()), (Method::Delete, None, head.len()));
        }
        for header in [
            "Content-Length: 1",
            "Content-Length: -0",
            "Content-Length:",
            "Content-Length: 0\r\nContent-Length: 0",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "If-Match: *",
            "If-None-Match: *",
            "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
            "X-If-Delete-At: 1",
            "X-Timestamp: 1",
            "X-Copy-From: c/o",
            "X-Object-Meta-A: b",
            "Origin: http://a",
            "Referer: http://a",
        ] {
            assert_eq!(parse(delete(&format!("{header}\r\n")).as_bytes()), None, "{header:?}");
        }
        for target in ["/v1/a/c/o?multipart-manifest=delete", "/v1/a/c/o?", "/v1/a/c/o#"] {
            let text = format!("DELETE {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), None, "{target:?}");
        }
        assert!(Method::Delete.writes() && Method::Put.writes() && !Method::Get.writes() && !Method::Head.writes());
    }

    proptest! {
        #[test]
        fn cut_anywhere_is_not_for_the_front(at in 0..PLAIN.len()) {
            prop_assert_eq!(parse(&PLAIN.as_bytes()[..at]), None);
        }

        #[test]
        fn any_bytes_are_taken(data in proptest::collection::vec(any::<u8>(), 0..200), at in 0..PLAIN.len()) {
            let mut mixed = PLAIN.as_bytes().to_vec();
            mixed.splice(at..at, data);
            if let Some(asked) = parse(&mixed) {
                prop_assert!(mixed[..asked.bytes].ends_with(b"\r\n\r\n"));
                prop_assert!(asked.target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'?'));
            }
        }
    }
}
