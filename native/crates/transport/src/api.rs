//! What the layers above see: calls and their events on one side, a handler and its answers on the other.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use swiftlet_wire::limits::{CHUNK_BYTES, FOOTER_BYTES, HEADER_BYTES, OFFERED_BYTES, TRACE_BYTES};
use swiftlet_wire::message::{Reason, UNKNOWN_SIZE};

use crate::metrics::PeerMetrics;
use crate::pool::{Chunk, Pool};
use crate::reactor::{Command, Key, Shared};

/// Why a request got no reply, or not a whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no connection: the request was not made.
    Unreachable(String),
    /// The connection broke: whether the request was carried out is not known.
    Lost(String),
    /// Its time is over; the same is not known.
    Deadline,
    /// The caller wanted it no more.
    Cancelled,
    /// Too many requests wait already, here: it was not made.
    Overloaded,
    /// The reply's body could not be held.
    NoMemory,
    /// The other side ended it.
    Remote(Reason, String),
    /// It can't be made: what is wrong with it.
    Invalid(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(why) => write!(to, "not reachable: {why}"),
            Error::Lost(why) => write!(to, "connection lost: {why}"),
            Error::Deadline => to.write_str("deadline passed"),
            Error::Cancelled => to.write_str("cancelled"),
            Error::Overloaded => to.write_str("too many requests are waiting"),
            Error::NoMemory => to.write_str("no memory for the reply"),
            Error::Remote(reason, text) => write!(to, "ended by the peer: {reason:?} {text}"),
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
    /// How many bytes; the file has to have them.
    pub bytes: u64,
}

/// What a [`Source`] has next.
#[derive(Debug)]
pub enum Next {
    /// Bytes, at most 1 MiB.
    Chunk(Chunk),
    /// Bytes of a file, at most 1 MiB.
    File(FileRange),
    /// Nothing yet; the source's owner says [`Waker::wake`] when there is.
    Later,
    /// Nothing more, and the footer.
    End(Vec<u8>),
    /// It can't go on: the request is cancelled.
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
    /// Bytes in memory: up to 64 KiB travel inside the message, more in chunks.
    Chunk(Chunk),
    /// Bytes of a file.
    File(FileRange),
    /// As they come; its size if it is known.
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

    /// The body as pieces, with this footer behind them.
    pub(crate) fn into_source(self, footer: Vec<u8>) -> Box<dyn Source> {
        match self {
            Body::Empty => Box::new(ChunkSource { left: None, footer }),
            Body::Chunk(chunk) => Box::new(ChunkSource { left: Some(chunk), footer }),
            Body::File(left) => Box::new(FileSource { left, footer }),
            Body::Source(source, _) => source,
        }
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

/// A request to be made.
#[derive(Debug, Default)]
pub struct Call {
    /// The layer above knows what it means.
    pub method: u16,
    /// From now on.
    pub timeout: Duration,
    /// The request's id through all hops, up to 80 bytes.
    pub trace: String,
    /// Opaque, up to 64 KiB.
    pub header: Vec<u8>,
    /// What is sent with it.
    pub body: Body,
    /// Behind a body that is sent in chunks, up to 4 KiB; a [`Body::Source`] has its own.
    pub footer: Vec<u8>,
}

impl Call {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let small = self.header.len() <= HEADER_BYTES && self.footer.len() <= FOOTER_BYTES;
        if !small || self.trace.len() > TRACE_BYTES {
            return Err(Error::Invalid("a header, footer or trace id over the limit"));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout.as_millis() > u128::from(u32::MAX) {
            return Err(Error::Invalid("a timeout below 1 ms or above 2^32 ms"));
        }
        Ok(())
    }
}

/// What becomes of a call, in this order: `Sent` any number of times, `Reply`, `Chunk`s, `End`; or `Failed` at any
/// point. `End`, `Failed` and a `Reply` that is `whole` are the last ones.
#[derive(Debug)]
pub enum What {
    /// So many bytes of the body have left; their memory may be in use for a little longer.
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
    /// No answer, or not a whole one.
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

/// Where events go: all of one turn of an I/O thread together. Must not block; may make further calls.
pub trait Sink: Send + Sync {
    /// Take them out.
    fn events(&self, events: &mut Vec<Event>);
}

/// A request as the server sees it.
#[derive(Debug)]
pub struct Incoming {
    /// The name that the client has proved to be allowed to bear.
    pub peer: Arc<str>,
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

/// Takes a body that comes in chunks. Called in the I/O thread; must not block.
///
/// A chunk's memory counts against the request's window until it is dropped: not before then more is granted.
pub trait Receiver: Send {
    /// The next bytes.
    fn chunk(&mut self, chunk: Chunk);
    /// The body is complete: commit, then answer.
    fn end(&mut self, footer: &[u8]);
    /// It will not be complete: nothing may be left of it.
    fn failed(&mut self, why: &Error);
}

/// Answers requests. Called in the I/O thread; must not block.
pub trait Handler: Send + Sync {
    /// Gives who takes the body, if it comes in chunks. Without one nothing of it is sent.
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>>;
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
    /// Behind a body that is sent in chunks, up to 4 KiB; a [`Body::Source`] has its own.
    pub footer: Vec<u8>,
}

/// The right, and the duty, to answer one request, from any thread. Dropped, it says that the handler failed.
pub struct Responder {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: Key,
    pub(crate) stream: u64,
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) lends: Option<Pool>,
    pub(crate) answered: bool,
}

impl fmt::Debug for Responder {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Responder({})", self.stream)
    }
}

impl Responder {
    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Answer. A header or footer over its limit is the handler's failure.
    pub fn answer(mut self, answer: Answer) {
        if answer.header.len() > HEADER_BYTES || answer.footer.len() > FOOTER_BYTES {
            return; // and `drop` tells the client
        }
        self.answered = true;
        self.shared.post(Command::Answer(self.connection, self.stream, Box::new(answer)));
    }

    /// The memory out of which answers are lent on this connection, if they are: what is put there needs no copy.
    #[must_use]
    pub fn lends(&self) -> Option<&Pool> {
        self.lends.as_ref()
    }

    /// To be kept by the owner of a [`Source`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared), connection: self.connection, stream: self.stream }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.post(Command::Abandon(self.connection, self.stream));
        }
    }
}

/// Tells the I/O thread that a [`Source`] has something.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
    connection: Key,
    stream: u64,
}

impl fmt::Debug for Waker {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Waker({})", self.stream)
    }
}

impl Waker {
    /// Ask the source again.
    pub fn wake(&self) {
        self.shared.post(Command::Refill(self.connection, self.stream));
    }
}

/// A peer to which calls are made; cheap to clone.
#[derive(Clone)]
pub struct Peer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) metrics: Arc<PeerMetrics>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Peer({})", self.name)
    }
}

impl Peer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> &PeerMetrics {
        &self.metrics
    }

    /// Make a call; what becomes of it goes to `sink`, under `token`.
    ///
    /// # Errors
    /// [`Error::Invalid`] alone: everything else is an event.
    pub fn call(&self, call: Call, sink: &Arc<dyn Sink>, token: u64) -> Result<Ticket, Error> {
        call.check()?;
        Ok(self.submit(call, None, sink, token).ticket)
    }

    /// Make a call whose body the caller sends piece by piece. `call.body` is ignored.
    ///
    /// # Errors
    /// As [`Peer::call`].
    pub fn upload(&self, call: Call, bytes: Option<u64>, sink: &Arc<dyn Sink>, token: u64) -> Result<Upload, Error> {
        call.check()?;
        Ok(self.submit(call, Some(bytes.unwrap_or(UNKNOWN_SIZE)), sink, token))
    }

    fn submit(&self, call: Call, upload: Option<u64>, sink: &Arc<dyn Sink>, token: u64) -> Upload {
        let queued = Arc::new(AtomicUsize::new(0));
        let submit = Submit {
            peer: self.index,
            stream: 0,
            deadline: Instant::now() + call.timeout,
            call,
            upload,
            sink: Arc::clone(sink),
            token,
            queued: Arc::clone(&queued),
            pieces: VecDeque::new(),
            end: None,
        };
        let stream = self.shared.submit(Box::new(submit));
        Upload { ticket: Ticket { shared: Arc::clone(&self.shared), peer: self.index, stream }, queued }
    }
}

pub(crate) struct Submit {
    pub(crate) peer: usize,
    pub(crate) stream: u64,
    pub(crate) deadline: Instant,
    pub(crate) call: Call,
    pub(crate) upload: Option<u64>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) token: u64,
    pub(crate) queued: Arc<AtomicUsize>,
    /// Of an upload that has not begun yet.
    pub(crate) pieces: VecDeque<Chunk>,
    pub(crate) end: Option<Vec<u8>>,
}

/// A call that was made.
#[derive(Clone)]
pub struct Ticket {
    shared: Arc<Shared>,
    peer: usize,
    stream: u64,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Ticket({})", self.stream)
    }
}

impl Ticket {
    /// End it: [`Error::Cancelled`], unless it was over before.
    pub fn cancel(&self) {
        self.shared.post(Command::Cancel(self.peer, self.stream));
    }
}

/// A call whose body is being sent.
#[derive(Debug)]
pub struct Upload {
    ticket: Ticket,
    queued: Arc<AtomicUsize>,
}

impl Upload {
    /// The call.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Send the next bytes, at most 1 MiB. A clone of the same chunk may go to other peers.
    ///
    /// # Errors
    /// The chunk itself, if it is empty or too large, or 8 MiB wait to be sent already: wait for [`What::Sent`].
    pub fn send(&self, chunk: Chunk) -> Result<(), Chunk> {
        let bytes = chunk.len();
        if bytes == 0 || bytes > CHUNK_BYTES {
            return Err(chunk);
        }
        if self.queued.fetch_add(bytes, Ordering::AcqRel) + bytes > OFFERED_BYTES as usize {
            self.queued.fetch_sub(bytes, Ordering::AcqRel);
            return Err(chunk);
        }
        self.ticket.shared.post(Command::Push(self.ticket.peer, self.ticket.stream, chunk));
        Ok(())
    }

    /// The body is complete: commit. A footer is up to 4 KiB.
    ///
    /// # Errors
    /// The footer is over the limit.
    pub fn end(self, footer: Vec<u8>) -> Result<(), Error> {
        if footer.len() > FOOTER_BYTES {
            return Err(Error::Invalid("a footer over the limit"));
        }
        self.ticket.shared.post(Command::Finish(self.ticket.peer, self.ticket.stream, footer));
        Ok(())
    }
}
