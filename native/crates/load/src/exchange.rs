//! One request and its answer, without sockets: what is sent next, and what received bytes mean.

use std::fmt;
use std::io::{self, IoSlice, Write as _};

use crate::chunked::Chunked;
use crate::contents::Contents;
use crate::names::Names;

/// The longest head of an answer.
const MAX_HEAD: usize = 64 << 10;
/// Header lines of an answer.
const MAX_HEADERS: usize = 128;
/// Pieces of a body in one call of the system.
const PIECES: usize = 4;
/// A body of at least so many bytes that nobody looks at is not read together with its head: dropping it costs a call of
/// the system more, and less than copying it.
const WORTH_DROPPING: u64 = 32 << 10;

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// Answered with a status that is not the operation's.
    Status(u16),
    /// There was no connection.
    Connect,
    /// The connection ended before the answer did.
    Closed,
    /// It took longer than it may.
    Timeout,
    /// What was read is not what was written.
    Corrupt,
    /// The answer is not HTTP.
    Malformed,
    /// When the window ended, no connection had been free for it.
    NotBegun,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(to, "status {status}"),
            Self::Connect => to.write_str("no connection"),
            Self::Closed => to.write_str("connection closed"),
            Self::Timeout => to.write_str("timeout"),
            Self::Corrupt => to.write_str("corrupt"),
            Self::Malformed => to.write_str("malformed answer"),
            Self::NotBegun => to.write_str("not begun"),
        }
    }
}

/// What the answer has to be compared with, if it succeeds.
#[derive(Debug)]
pub(crate) enum Expect {
    Nothing,
    /// The whole object.
    Contents {
        start: usize,
        size: u64,
    },
    /// Its size: what `Content-Length` tells, and how many bytes come. The bytes themselves are not looked at.
    Size(u64),
    /// A page of names.
    Listing(Names),
}

#[derive(Debug)]
enum State {
    Head,
    /// So many bytes are left.
    Sized(u64),
    Chunked(Chunked),
    /// The body ends with the connection.
    UntilClosed,
    Done,
}

/// A request, and its answer as far as it has come.
#[derive(Debug)]
pub(crate) struct Exchange {
    head: Vec<u8>,
    body_start: usize,
    body_size: u64,
    /// Of head and body.
    sent: u64,
    is_head: bool,
    expect: Expect,
    received: Vec<u8>,
    state: State,
    status: u16,
    keeps: bool,
    body: u64,
    wrong: Option<String>,
    has_answer: bool,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            head: Vec::new(),
            body_start: 0,
            body_size: 0,
            sent: 0,
            is_head: false,
            expect: Expect::Nothing,
            received: Vec::new(),
            state: State::Done,
            status: 0,
            keeps: true,
            body: 0,
            wrong: None,
            has_answer: false,
        }
    }

    /// Begin a request. `common` are the header lines of every request; a body is the contents from `start` on.
    pub(crate) fn begin(
        &mut self,
        method: &str,
        place: &str,
        common: &str,
        body: Option<(usize, u64)>,
        expect: Expect,
    ) {
        self.head.clear();
        let _ = write!(self.head, "{method} {place} HTTP/1.1\r\n{common}");
        if let Some((_, size)) = body {
            let _ = write!(self.head, "Content-Type: application/octet-stream\r\nContent-Length: {size}\r\n");
        }
        self.head.extend_from_slice(b"\r\n");
        (self.body_start, self.body_size) = body.unwrap_or((0, 0));
        self.is_head = method == "HEAD";
        self.expect = expect;
        self.again();
    }

    /// Send the same request once more, over another connection. Nothing of an answer has come yet.
    pub(crate) fn again(&mut self) {
        self.sent = 0;
        self.received.clear();
        self.state = State::Head;
        self.status = 0;
        self.keeps = true;
        self.body = 0;
        self.wrong = None;
        self.has_answer = false;
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sent == self.head.len() as u64 + self.body_size
    }

    /// Send as much as one call takes; the number of bytes of the body among them.
    pub(crate) fn send(
        &mut self,
        contents: &Contents,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<u64> {
        let head_size = self.head.len() as u64;
        let mut slices = [IoSlice::new(&[]); 1 + PIECES];
        let mut count = 0;
        if self.sent < head_size {
            slices[0] = IoSlice::new(&self.head[self.sent as usize..]);
            count = 1;
        }
        let mut position = self.sent.saturating_sub(head_size);
        for _ in 0..PIECES {
            if position == self.body_size {
                break;
            }
            let piece = contents.piece(self.body_start, position, self.body_size - position);
            position += piece.len() as u64;
            slices[count] = IoSlice::new(piece);
            count += 1;
        }
        let written = write(&slices[..count])? as u64;
        let before = self.sent.max(head_size);
        self.sent += written;
        Ok(self.sent.max(head_size) - before)
    }

    /// Take received bytes; the number of bytes of the body among them.
    pub(crate) fn take(&mut self, contents: &Contents, bytes: &[u8]) -> Result<u64, Failure> {
        let before = self.body;
        self.has_answer |= !bytes.is_empty();
        let mut rest = bytes;
        if matches!(self.state, State::Head) {
            let Some(used) = self.take_head(rest)? else { return Ok(0) };
            rest = &rest[used..];
        }
        let used = match &self.state {
            State::Sized(left) => {
                let here = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.shorten(here as u64);
                self.body(contents, &rest[..here]);
                here
            }
            State::UntilClosed => {
                self.body(contents, rest);
                rest.len()
            }
            State::Chunked(_) => self.take_chunks(contents, rest)?,
            State::Head | State::Done => 0,
        };
        // Nothing was asked that more bytes could be an answer to.
        if used < rest.len() && self.is_done() { Err(Failure::Malformed) } else { Ok(self.body - before) }
    }

    /// How many of the bytes that come next belong to the body and need not be seen.
    pub(crate) fn unseen(&self) -> u64 {
        match (&self.state, &self.expect) {
            (State::Sized(left), Expect::Nothing | Expect::Size(_)) => *left,
            _ => 0,
        }
    }

    /// Whether a head comes next that should be read without the body behind it, so that this one can be dropped.
    pub(crate) fn wants_head_alone(&self) -> bool {
        let is_large = matches!(self.expect, Expect::Size(size) if size >= WORTH_DROPPING);
        is_large && !self.is_head && matches!(self.state, State::Head)
    }

    /// So many bytes of the body have come that nobody has seen: no more than `unseen` told.
    pub(crate) fn dropped(&mut self, size: u64) {
        self.shorten(size);
        self.body += size;
    }

    /// So many bytes of a body whose length is known have come.
    fn shorten(&mut self, size: u64) {
        if let State::Sized(left) = &mut self.state {
            *left = left.saturating_sub(size);
            if *left == 0 {
                self.state = State::Done;
            }
        }
    }

    fn take_chunks(&mut self, contents: &Contents, bytes: &[u8]) -> Result<usize, Failure> {
        let State::Chunked(mut chunked) = std::mem::replace(&mut self.state, State::Done) else { return Ok(0) };
        let used = chunked.take(bytes, |data| self.body(contents, data)).ok_or(Failure::Malformed)?;
        if !chunked.is_complete() {
            self.state = State::Chunked(chunked);
        }
        Ok(used)
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match self.state {
            State::UntilClosed => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(Failure::Closed),
        }
    }

    /// Parse the head; how many of `bytes` belong to it, None while it is not complete.
    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Failure> {
        let mut used = 0;
        loop {
            let known = self.received.len();
            let parsed = if known == 0 {
                parse(&bytes[used..])?
            } else {
                self.received.extend_from_slice(&bytes[used..]);
                parse(&self.received)?
            };
            let Some(head) = parsed else {
                if known == 0 {
                    self.received.extend_from_slice(&bytes[used..]);
                }
                return if self.received.len() > MAX_HEAD { Err(Failure::Malformed) } else { Ok(None) };
            };
            self.received.clear();
            used += head.size - known;
            if head.status >= 200 {
                self.begin_body(&head);
                return Ok(Some(used));
            }
        }
    }

    fn begin_body(&mut self, head: &Head) {
        self.status = head.status;
        let has_body = !(self.is_head || head.status == 204 || head.status == 304);
        let ends_with_connection = has_body && !head.chunked && head.length.is_none();
        self.keeps = head.keeps && !ends_with_connection;
        if let (Expect::Size(size), 200) = (&self.expect, head.status)
            && Some(*size) != head.length
            && (self.is_head || head.length.is_some())
        {
            let told = head.length.map_or_else(|| "missing".to_owned(), |length| length.to_string());
            self.wrong = Some(format!("Content-Length is {told}, the object has {size} bytes"));
        }
        self.state = match (has_body, head.chunked, head.length) {
            (false, ..) | (true, false, Some(0)) => State::Done,
            (true, true, _) => State::Chunked(Chunked::new()),
            (true, false, Some(length)) => State::Sized(length),
            (true, false, None) => State::UntilClosed,
        };
    }

    fn body(&mut self, contents: &Contents, bytes: &[u8]) {
        let position = self.body;
        self.body += bytes.len() as u64;
        if self.wrong.is_some() || !(200..300).contains(&self.status) {
            return;
        }
        match &mut self.expect {
            Expect::Contents { start, size } => {
                let size = *size;
                if self.body > size {
                    self.wrong = Some(format!("the body is longer than the object's {size} bytes"));
                } else if let Some(place) = contents.difference(*start, position, bytes) {
                    self.wrong = Some(format!("byte {place} of {size} is not the one that was written"));
                }
            }
            Expect::Listing(names) => self.wrong = names.take(bytes).map(str::to_owned),
            Expect::Nothing | Expect::Size(_) => {}
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether anything of an answer has come.
    pub(crate) fn has_answer(&self) -> bool {
        self.has_answer
    }

    /// Whether the bytes of the body are compared.
    pub(crate) fn compares(&self) -> bool {
        matches!(self.expect, Expect::Contents { .. })
    }

    /// Whether the connection can be used again.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps && self.is_sent()
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of the body that have come.
    pub(crate) fn body_received(&self) -> u64 {
        self.body
    }

    /// Of a complete answer: what is not as it should be.
    pub(crate) fn wrong(&self) -> Option<String> {
        let size = match &self.expect {
            Expect::Contents { size, .. } => Some(*size),
            Expect::Size(size) if !self.is_head => Some(*size),
            _ => None,
        };
        match (size, &self.wrong, self.status) {
            (Some(size), None, 200..300) if self.body != size => {
                Some(format!("the body has {} bytes, the object {size}", self.body))
            }
            _ => self.wrong.clone(),
        }
    }

    /// The request in a line, without headers.
    pub(crate) fn request(&self) -> String {
        let end = self.head.iter().position(|byte| *byte == b'\r').unwrap_or(0);
        String::from_utf8_lossy(&self.head[..end]).trim_end_matches(" HTTP/1.1").to_owned()
    }
}

struct Head {
    size: usize,
    status: u16,
    length: Option<u64>,
    chunked: bool,
    keeps: bool,
}

/// Parse a head; None while it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let size = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Malformed),
    };
    let mut head =
        Head { size, status: answer.code.unwrap_or(0), length: None, chunked: false, keeps: answer.version == Some(1) };
    for header in answer.headers.iter() {
        let value = str::from_utf8(header.value).unwrap_or("").trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.parse().map_err(|_| Failure::Malformed)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.chunked = value.eq_ignore_ascii_case("chunked");
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.keeps = if head.keeps {
                !value.eq_ignore_ascii_case("close")
            } else {
                value.eq_ignore_ascii_case("keep-alive")
            };
        }
    }
    Ok(Some(head))
}
