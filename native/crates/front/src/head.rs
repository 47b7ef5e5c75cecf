//! The head of a request, as far as it may be hot: a strict subset of HTTP/1.1, which everybody reads in the same way.
//!
//! Fault model: the bytes are anybody's. What is not exactly as expected, cut off included, is none of ours; it is read
//! anew, from its first byte, by the parser that reads everything.

/// Bytes of a head.
pub const MAX_HEAD: usize = 4096;
const MAX_HEADERS: usize = 32;

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The object.
    Get,
    /// All but its bytes.
    Head,
}

impl Method {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

/// A request that may be hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// What is asked.
    pub method: Method,
    /// `/v1/...` as sent: characters of a path alone, without `?`.
    pub target: &'a [u8],
    /// `X-Auth-Token` as sent.
    pub token: Option<&'a [u8]>,
    /// Whether the client wants to go on behind the answer.
    pub keep_alive: bool,
    /// Bytes of the head.
    pub bytes: usize,
}

/// Headers that say nothing to the answer of a plain read.
const IGNORED: [&[u8]; 6] =
    [b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"pragma"];

/// The request at the beginning of `data`; nothing if it is not all there, or not for us.
#[must_use]
pub fn parse(data: &[u8]) -> Option<Asked<'_>> {
    let window = &data[..data.len().min(MAX_HEAD)];
    let end = window.windows(4).position(|four| four == b"\r\n\r\n")?;
    let mut lines = Lines(&window[..end + 2]);
    let (method, target) = request_line(lines.next()?)?;
    let (mut host, mut token, mut keep_alive) = (false, None, None);
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
        } else if !IGNORED.iter().any(|ignored| is(name, ignored)) {
            return None;
        }
    }
    // What is left is a line that does not end as one does.
    let whole = host && lines.0.is_empty();
    whole.then_some(Asked { method, target, token, keep_alive: keep_alive.unwrap_or(true), bytes: end + 4 })
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
    fn plain_reads_are_hot() {
        let behind = format!("{PLAIN}GET /next");
        let asked = parse(behind.as_bytes()).expect("hot");
        let whole = Asked {
            method: Method::Get,
            target: b"/v1/AUTH_a/c/o",
            token: Some(b"t"),
            keep_alive: true,
            bytes: PLAIN.len(),
        };
        assert_eq!(asked, whole);
        let head = parse(b"HEAD /v1/a/c/%C3%A4//. HTTP/1.1\r\nhost:h\r\nCONNECTION: Close\r\n\r\n").expect("hot");
        assert_eq!((head.method, head.target), (Method::Head, b"/v1/a/c/%C3%A4//.".as_slice()));
        assert_eq!((head.keep_alive, head.token), (false, None));
        for header in ["User-Agent: curl/8 (x; y)", "Accept: */*", "accept-encoding: gzip", "Connection: keep-alive"] {
            assert!(parse(with(header).as_bytes()).is_some(), "{header}");
        }
    }

    #[test]
    fn anything_odd_is_not() {
        for header in [
            "Content-Length: 0",
            "Transfer-Encoding: chunked",
            "Range: bytes=0-1",
            "If-None-Match: *",
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
            "PUT /v1/a/c/o HTTP/1.1",
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

    proptest! {
        #[test]
        fn cut_anywhere_is_not_hot(at in 0..PLAIN.len()) {
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
