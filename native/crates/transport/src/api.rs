//! The interface to the layers above: calls and their events on one side, requests and their answers on the other.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use swiftlet_wire::guest::Session;
use swiftlet_wire::limits::{CHUNK_BYTES, FOOTER_BYTES, HEADER_BYTES, TRACE_BYTES};
use swiftlet_wire::message::{Reason, UNKNOWN_SIZE};

use crate::pool::Chunk;

/// Why a request got no reply, or not a whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no connection: the request was not made.
    Unreachable(String),
    /// The connection broke: whether the request was carried out is unknown.
    Lost(String),
    /// The deadline is over; whether the request was carried out is unknown.
    Deadline,
    /// The caller cancelled it.
    Cancelled,
    /// Too many requests already wait on this side: the request was not made.
    Overloaded,
    /// There was no memory for the reply's body.
    NoMemory,
    /// The other side ended it.
    Remote(Reason, String),
    /// The request is invalid: what is wrong with it.
    Invalid(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(why) => write!(to, "the peer can't be reached: {why}"),
            Error::Lost(why) => write!(to, "the connection was lost: {why}"),
            Error::Deadline => to.write_str("the deadline has passed"),
            Error::Cancelled => to.write_str("the request was cancelled"),
            Error::Overloaded => to.write_str("too many requests are waiting"),
            Error::NoMemory => to.write_str("there is no memory for the reply"),
            Error::Remote(reason, text) => write!(to, "the peer ended the request: {reason:?} {text}"),
            Error::Invalid(what) => to.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// Bytes of an open file, sent without being read into our memory.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// Where to begin.
    pub offset: u64,
    /// How many bytes; the file must have them.
    pub bytes: u64,
}

/// What a [`Source`] returns next.
#[derive(Debug)]
pub enum Next {
    /// Bytes, at most 1 MiB.
    Chunk(Chunk),
    /// Bytes of a file, at most 1 MiB.
    File(FileRange),
    /// Nothing yet; the source's owner calls [`Waker::wake`](crate::Waker::wake) when there is something.
    Later,
    /// Nothing more; the footer.
    End(Vec<u8>),
    /// It can't continue: the request is cancelled.
    Failed,
}

/// A body that is asked for its next piece whenever there is room for it. Called in the I/O thread.
pub trait Source: Send {
    /// The next piece.
    fn next(&mut self) -> Next;
}

/// A body to be sent.
#[derive(Default)]
pub enum Body {
    /// None.
    #[default]
    Empty,
    /// Bytes in memory: up to 64 KiB are sent inside the message, more in chunks.
    Chunk(Chunk),
    /// Bytes of a file.
    File(FileRange),
    /// A source's pieces; its size if it is known.
    Source(Box<dyn Source>, Option<u64>),
}

impl fmt::Debug for Body {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Body({:?} bytes)", self.bytes())
    }
}

impl Body {
    /// Its size, if it is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Chunk(chunk) => Some(chunk.len() as u64),
            Body::File(range) => Some(range.bytes),
            Body::Source(_, bytes) => *bytes,
        }
    }

    pub(crate) fn wire_bytes(&self) -> u64 {
        self.bytes().unwrap_or(UNKNOWN_SIZE)
    }

    /// The body as pieces, followed by this footer.
    pub(crate) fn into_source(self, footer: Vec<u8>) -> Box<dyn Source> {
        match self {
            Body::Empty => Box::new(ChunkSource { left: None, footer }),
            Body::Chunk(chunk) => Box::new(ChunkSource { left: Some(chunk), footer }),
            Body::File(left) => Box::new(FileSource { left, footer }),
            Body::Source(source, _) => source,
        }
    }
}

/// The bytes of these pieces, which have 1 MiB each at most, one behind the other.
impl From<Vec<Chunk>> for Body {
    fn from(mut pieces: Vec<Chunk>) -> Self {
        if pieces.len() > 1 {
            let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
            Body::Source(Box::new(Pieces(pieces.into())), Some(bytes))
        } else {
            pieces.pop().map_or(Body::Empty, Body::Chunk)
        }
    }
}

struct Pieces(VecDeque<Chunk>);

impl Source for Pieces {
    fn next(&mut self) -> Next {
        self.0.pop_front().map_or_else(|| Next::End(Vec::new()), Next::Chunk)
    }
}

struct ChunkSource {
    left: Option<Chunk>,
    footer: Vec<u8>,
}

impl Source for ChunkSource {
    fn next(&mut self) -> Next {
        let Some(left) = self.left.take().filter(|left| !left.is_empty()) else {
            return Next::End(std::mem::take(&mut self.footer));
        };
        let bytes = left.len().min(CHUNK_BYTES);
        self.left = Some(left.part(bytes..left.len()));
        Next::Chunk(left.part(0..bytes))
    }
}

struct FileSource {
    left: FileRange,
    footer: Vec<u8>,
}

impl Source for FileSource {
    fn next(&mut self) -> Next {
        if self.left.bytes == 0 {
            return Next::End(std::mem::take(&mut self.footer));
        }
        let bytes = self.left.bytes.min(CHUNK_BYTES as u64);
        let piece = FileRange { bytes, ..self.left.clone() };
        self.left.offset += bytes;
        self.left.bytes -= bytes;
        Next::File(piece)
    }
}

/// A request to be sent.
#[derive(Debug, Default)]
pub struct Call {
    /// The method; its meaning belongs to the layer above.
    pub method: u16,
    /// The time limit from now on.
    pub timeout: Duration,
    /// The request's id through all hops, up to 80 bytes.
    pub trace: String,
    /// Opaque, up to 64 KiB.
    pub header: Vec<u8>,
    /// What is sent with it.
    pub body: Body,
    /// Sent after a body that is sent in chunks, up to 4 KiB; a [`Body::Source`] has its own.
    pub footer: Vec<u8>,
}

impl Call {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let small = self.header.len() <= HEADER_BYTES && self.footer.len() <= FOOTER_BYTES;
        if !small || self.trace.len() > TRACE_BYTES {
            return Err(Error::Invalid("the header, footer or trace id is larger than the limit"));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout.as_millis() > u128::from(u32::MAX) {
            return Err(Error::Invalid("the timeout must be 1 to 2^32 ms"));
        }
        Ok(())
    }
}

/// The events of a call, in this order: `Sent` any number of times, `Reply`, `Chunk`s, `End`; or `Failed` at any
/// point. `End`, `Failed` and a `Reply` that is `whole` are the last ones.
#[derive(Debug)]
pub enum What {
    /// So many bytes of the body have been sent; their memory may be in use for a little longer.
    Sent(usize),
    /// The answer.
    Reply {
        /// The outcome.
        status: u16,
        /// Opaque.
        header: Vec<u8>,
        /// Size of the body, if it is known.
        body_bytes: Option<u64>,
        /// The whole body, if it is small.
        body: Option<Chunk>,
        /// Whether nothing follows.
        whole: bool,
    },
    /// The next bytes of the answer's body.
    Chunk(Chunk),
    /// The answer's body is complete; its footer.
    End(Vec<u8>),
    /// There is no answer, or not a complete one.
    Failed(Error),
}

/// What happened to which call.
#[derive(Debug)]
pub struct Event {
    /// The caller's own number.
    pub token: u64,
    /// What happened.
    pub what: What,
}

/// Receives events: all of one turn of an I/O thread together. Must not block; may make further calls.
pub trait Sink: Send + Sync {
    /// Take them out.
    fn events(&self, events: &mut Vec<Event>);
}

/// The guest at the other end of a connection.
#[derive(Debug)]
pub struct Guest {
    /// The session that it has proved to have.
    pub session: Session,
    /// What the layer above remembers of this connection.
    pub memory: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// A request as the server sees it.
#[derive(Debug)]
pub struct Incoming {
    /// The name that the client has given itself.
    pub peer: Arc<str>,
    /// Who it is if it is a guest; None: it has proved to hold a cluster key.
    pub guest: Option<Arc<Guest>>,
    /// What is asked for.
    pub method: u16,
    /// When the client gives up.
    pub deadline: Instant,
    /// The request's id.
    pub trace: String,
    /// Opaque.
    pub header: Vec<u8>,
    /// The whole body; `None` if it comes in chunks.
    pub body: Option<Chunk>,
    /// Size of the body, if it is known.
    pub body_bytes: Option<u64>,
}

/// Receives a body that comes in chunks. Called in the I/O thread; must not block.
///
/// A chunk's memory counts against the request's window until it is dropped; only then more is granted.
pub trait Receiver: Send {
    /// The next bytes.
    fn chunk(&mut self, chunk: Chunk);
    /// The body is complete: commit, then answer.
    fn end(&mut self, footer: &[u8]);
    /// The body will not be complete: nothing of it may be kept.
    fn failed(&mut self, why: &Error);
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// The outcome.
    pub status: u16,
    /// Opaque, up to 64 KiB.
    pub header: Vec<u8>,
    /// What is sent with it.
    pub body: Body,
    /// Sent after a body that is sent in chunks, up to 4 KiB; a [`Body::Source`] has its own.
    pub footer: Vec<u8>,
}
