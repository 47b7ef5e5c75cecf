//! Handles for the layers above: peers to make calls to, and the right to answer requests. Each sends its commands to
//! the I/O thread that it belongs to.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use swiftlet_wire::limits::{CHUNK_BYTES, FOOTER_BYTES, HEADER_BYTES, OFFERED_BYTES};
use swiftlet_wire::message::UNKNOWN_SIZE;

use crate::api::{Answer, Call, Error, Incoming, Receiver, Sink};
use crate::command::{Command, Shared, Submit};
use crate::key::Key;
use crate::metrics::PeerMetrics;
use crate::pool::{Chunk, Pool};

/// Answers requests. Called in the I/O thread; must not block.
pub trait Handler: Send + Sync {
    /// Handle a request. Returns the receiver of the body, if it comes in chunks; without one nothing of it is sent.
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>>;
}

/// The right, and the duty, to answer one request, from any thread. When it is dropped, the handler counts as failed.
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

    /// Answer. A header or footer over its limit counts as the handler's failure.
    pub fn answer(mut self, answer: Answer) {
        if answer.header.len() > HEADER_BYTES || answer.footer.len() > FOOTER_BYTES {
            return; // and `drop` tells the client
        }
        self.answered = true;
        self.shared.post(Command::Answer(self.connection, self.stream, Box::new(answer)));
    }

    /// The memory from which answers are lent on this connection, if they are: an answer in it needs no copy.
    #[must_use]
    pub fn lends(&self) -> Option<&Pool> {
        self.lends.as_ref()
    }

    /// A waker, which the owner of a [`Source`](crate::Source) keeps.
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

/// Tells the I/O thread that a [`Source`](crate::Source) has more.
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
    pub(crate) pool: Pool,
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

    /// The memory from which bodies are lent to it, where they can be.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> &PeerMetrics {
        &self.metrics
    }

    /// Make a call; its events go to `sink`, with `token`.
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
    /// Cancel the call: [`Error::Cancelled`], unless it was over before.
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

    /// Send the next bytes, at most 1 MiB. A clone of the same chunk may be sent to other peers.
    ///
    /// # Errors
    /// The chunk itself, if it is empty or too large, or 8 MiB wait to be sent already: wait for [`What::Sent`](crate::What::Sent).
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

    /// The body is complete: commit. A footer has up to 4 KiB.
    ///
    /// # Errors
    /// The footer is over the limit.
    pub fn end(self, footer: Vec<u8>) -> Result<(), Error> {
        if footer.len() > FOOTER_BYTES {
            return Err(Error::Invalid("the footer is larger than the limit"));
        }
        self.ticket.shared.post(Command::Finish(self.ticket.peer, self.ticket.stream, footer));
        Ok(())
    }
}
