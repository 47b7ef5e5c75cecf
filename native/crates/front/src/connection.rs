//! One client's connection: bytes in, an answer out, one request at a time.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use swiftlet_node::Replica;
use swiftlet_node::message::Request;
use swiftlet_store::model::Key;
use swiftlet_transport::Ticket;

use crate::attempt::Attempt;
use crate::body::Body;
use crate::bridge::Bridge;
use crate::checking::{Checked, Known};
use crate::head::{Method, PIECE};
use crate::link::{Link, Received};
use crate::made::Made;
use crate::queue::PARTS;
use crate::reading::Weighed;
use crate::routes::Device;
use crate::secure::Secure;
use crate::source::{Assembling, Source};

/// A request for which a device was asked.
pub(crate) struct Asking {
    pub(crate) method: Method,
    /// Where the path is in the bytes that were read.
    pub(crate) target: Range<usize>,
    /// Bytes of the request.
    pub(crate) bytes: usize,
    pub(crate) close: bool,
    pub(crate) id: String,
    pub(crate) begun: Instant,
    /// What devices are asked.
    pub(crate) request: Request,
    pub(crate) attempts: [Option<Attempt>; 2],
    /// When a second device is asked, if it was not.
    pub(crate) late: Option<Instant>,
    /// Whether it is the second one, for bytes that only the description of the object has shown to be needed.
    pub(crate) is_second: bool,
    /// What is reserved for it of the room for large answers.
    pub(crate) reserved: u64,
}

/// A request for an object that is put together from what several devices have.
pub(crate) struct Gathering {
    pub(crate) method: Method,
    /// Where the path is in the bytes that were read.
    pub(crate) target: Range<usize>,
    /// Bytes of the request.
    pub(crate) bytes: usize,
    pub(crate) close: bool,
    pub(crate) id: String,
    pub(crate) begun: Instant,
    pub(crate) key: Key,
    /// The bytes `[start, stop)` that are read.
    pub(crate) range: (u64, u64),
    pub(crate) reading: Assembling,
    /// Whether it is the second read, for bytes that only the description of the object has shown to be needed.
    pub(crate) is_second: bool,
    /// What the object is, weighed against what the client wants, once it is known.
    pub(crate) weighed: Option<Box<Weighed>>,
}

/// The first id of an attempt at a read: those below are replicas of a write, or devices that are asked before it.
pub(crate) const FIRST_ATTEMPT: u8 = 32;
/// The number of ids: the events of an attempt that was cancelled come before the same id is used again.
const ATTEMPTS: u8 = 200;

/// A write that waits until it is known which object there is already.
pub(crate) struct Checking {
    pub(crate) checked: Checked,
    /// Where the path is in the bytes that were read.
    pub(crate) target: Range<usize>,
    /// Bytes of the request, head and body, that are among them.
    pub(crate) bytes: usize,
    pub(crate) body_bytes: u64,
    pub(crate) close: bool,
    /// The devices that may have the object.
    pub(crate) asked: Vec<Attempt>,
    pub(crate) known: Known,
}

/// A PUT that waits until the expirer's task for its object is durable.
pub(crate) struct Queueing {
    pub(crate) checked: Checked,
    /// In the place of a replica in the token of the task.
    pub(crate) attempt: u8,
}

/// A write that the object's devices carry out, and whose row is then listed.
pub(crate) struct Storing {
    pub(crate) method: Method,
    /// Where the path is in the bytes that were read.
    pub(crate) target: Range<usize>,
    /// Bytes of the request, head and body.
    pub(crate) bytes: usize,
    pub(crate) close: bool,
    pub(crate) begun: Instant,
    pub(crate) devices: Vec<Arc<Device>>,
    /// By replica.
    pub(crate) replicas: Vec<Replica>,
    /// Whether a device had an object that it has deleted.
    pub(crate) existed: bool,
    /// Passed on for listing once all have it; None afterwards.
    pub(crate) made: Option<Made>,
    /// Of a long body, whose devices need not receive the rest once the request is handed over.
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) id: String,
    pub(crate) timestamp: u64,
    pub(crate) etag: Vec<u8>,
    pub(crate) body_bytes: u64,
}

impl Storing {
    /// Whether its body is sent in several pieces.
    pub(crate) fn is_long(&self) -> bool {
        self.body_bytes > PIECE as u64
    }
}

/// An answer that is being sent.
pub(crate) struct Writing {
    /// What the kernel did not take at once.
    pub(crate) left: Vec<u8>,
    /// How much of that was sent.
    pub(crate) sent: usize,
    /// What is reserved for it of the room for large answers.
    pub(crate) reserved: u64,
    pub(crate) method: Method,
    pub(crate) path: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) received: u64,
    pub(crate) body_bytes: u64,
    pub(crate) close: bool,
    pub(crate) id: String,
    pub(crate) begun: Instant,
}

/// A long answer, whose bytes are passed on as they come.
pub(crate) struct Sending {
    pub(crate) head: Vec<u8>,
    /// How much of the head was sent.
    pub(crate) head_sent: usize,
    pub(crate) source: Source,
    /// Since when everything that came was sent, and the device is waited for.
    pub(crate) waits: Option<Instant>,
    /// What was sent when it was last looked at.
    pub(crate) seen_sent: u64,
    pub(crate) method: Method,
    pub(crate) path: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) close: bool,
    pub(crate) id: String,
    pub(crate) begun: Instant,
}

impl Sending {
    /// Fill in what is to be sent next; returns how many parts that are.
    pub(crate) fn fill<'a>(&'a self, parts: &mut [&'a [u8]; PARTS]) -> usize {
        match self.head.get(self.head_sent..) {
            Some(head) if !head.is_empty() => {
                parts[0] = head;
                1 + self.source.queue().fill(&mut parts[1..])
            }
            _ => self.source.queue().fill(parts),
        }
    }

    /// So much of it was sent.
    pub(crate) fn sent(&mut self, count: usize) {
        let of_head = count.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        self.source.queue_mut().sent(count - of_head);
    }
}

/// The most that is read of a request's beginning: a head and a small body. A connection that is handed over may have
/// to wait, and then the rest of a body is better kept in the kernel.
const FIRST_BYTES: usize = 16 << 10;
/// The most that is read and dropped after the last answer; a client that sends more has not read it.
const DROPPED_BYTES: usize = 1 << 20;

/// How many reads with TLS may bring no data in a row.
const FRUITLESS_READS: usize = 32;

pub(crate) enum State {
    /// The TLS handshake goes on.
    Handshaking,
    /// Between two requests, or before the first.
    Idle,
    /// It waits until Python has decided whether there is a grant for its request.
    Deciding,
    Asking(Box<Asking>),
    /// The places of a coded object were asked.
    Gathering(Box<Gathering>),
    /// A write waits until it is known which object there is already.
    Checking(Box<Checking>),
    /// A PUT waits until the expirer's task for its object is durable.
    Queueing(Box<Queueing>),
    Storing(Box<Storing>),
    Writing(Box<Writing>),
    Sending(Box<Sending>),
    /// The last answer was sent, and said so. Up to so many more bytes are read and dropped until the client closes: a
    /// connection that is closed with unread bytes is reset, and the client may lose the answer.
    Ending(usize),
    /// With TLS: handed over, and its bytes are passed on in both directions.
    Bridged(Box<Bridge>),
}

impl State {
    /// Whether devices may have deleted an object, and the version that they may have stored.
    pub(crate) fn may_have_written(&self) -> (bool, Option<u64>) {
        match self {
            Self::Storing(storing) => (storing.may_have_deleted(), storing.may_have_stored()),
            _ => (false, None),
        }
    }
}

/// The result of a read.
pub(crate) enum Read {
    Some,
    Nothing,
    End,
}

pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(crate) remote: Arc<str>,
    /// Bytes that were read and not answered.
    pub(crate) read: Vec<u8>,
    /// The long body of a request whose head they begin with: it is not among them.
    pub(crate) body: Option<Box<Body>>,
    pub(crate) state: State,
    /// Whether there may be more to read; the kernel reports it only once.
    pub(crate) readable: bool,
    /// Whether the peer has closed its side, as the kernel reports only once.
    pub(crate) ended: bool,
    /// When bytes were last sent or received.
    pub(crate) active: Instant,
    /// How often it will have been handed over without an answer, if it is handed over next.
    pub(crate) bounces: u32,
    /// Whether Python has decided about the request that was read.
    pub(crate) is_decided: bool,
    /// The number of attempts so far, below `ATTEMPTS`.
    attempts: u8,
}

impl Connection {
    pub(crate) fn new(
        socket: OwnedFd,
        bounces: u32,
        secure: Option<&Arc<Secure>>,
        now: Instant,
    ) -> std::io::Result<Self> {
        let address = rustix::net::getpeername(&socket)?;
        let address = SocketAddr::try_from(address.ok_or(Errno::NOTCONN)?)?;
        let remote = Arc::from(address.ip().to_string());
        let state = if secure.is_some() { State::Handshaking } else { State::Idle };
        let (link, read) = (Link::new(socket, address, secure)?, Vec::new());
        let (body, readable, ended, is_decided) = (None, true, false, false);
        let attempts = 0;
        Ok(Self { link, remote, read, body, state, readable, ended, active: now, bounces, is_decided, attempts })
    }

    /// The id of another attempt.
    pub(crate) fn next_attempt(&mut self) -> u8 {
        self.attempts = (self.attempts + 1) % ATTEMPTS;
        FIRST_ATTEMPT + self.attempts
    }

    /// Read once; of a request's beginning not more than may have to be kept for others.
    pub(crate) fn fill(&mut self, scratch: &mut [u8]) -> Read {
        let room = if self.read.is_empty() { scratch.len().min(FIRST_BYTES) } else { scratch.len() };
        self.fill_from(&mut scratch[..room])
    }

    /// Read as much as fits into `scratch`.
    pub(crate) fn fill_from(&mut self, scratch: &mut [u8]) -> Read {
        let before = self.read.len();
        for _ in 0..FRUITLESS_READS {
            match self.link.receive(scratch, &mut self.read) {
                Received::Bytes(bytes) => {
                    // A short read has emptied it; what comes later is told anew, the end is not.
                    self.readable = bytes == scratch.len() || self.ended || self.link.has_ended();
                    if self.read.len() > before {
                        return Read::Some;
                    }
                    if !self.readable {
                        return Read::Nothing;
                    }
                }
                Received::Nothing => {
                    self.readable = false;
                    return Read::Nothing;
                }
                Received::End => return Read::End,
            }
        }
        // So much without any data is no use to a client.
        Read::End
    }

    /// Send what is encrypted and waits: whether that is all.
    pub(crate) fn flush(&mut self) -> Result<bool, Errno> {
        let before = self.link.sent();
        let is_all = self.link.flush();
        // A handshake has a limit as a whole.
        if self.link.sent() != before && !matches!(self.state, State::Handshaking) {
            self.active = Instant::now();
        }
        is_all
    }

    /// Begin to answer the request of so many bytes.
    pub(crate) fn answers(&mut self, bytes: usize, now: Instant) {
        self.read.drain(..bytes);
        self.body = None;
        self.bounces = 0;
        self.is_decided = false;
        self.active = now;
    }

    /// Whether all received bytes are the one request of so many bytes, as far as the kernel has reported.
    pub(crate) fn has_only(&self, bytes: usize) -> bool {
        self.read.len() <= bytes && !self.readable
    }

    /// Whether a request is being worked on, whose body may still be on its way.
    pub(crate) fn has_request(&self) -> bool {
        match self.state {
            State::Idle => !self.read.is_empty(),
            State::Handshaking | State::Ending(_) | State::Bridged(_) => false,
            State::Deciding
            | State::Asking(_)
            | State::Gathering(_)
            | State::Checking(_)
            | State::Queueing(_)
            | State::Storing(_)
            | State::Writing(_)
            | State::Sending(_) => true,
        }
    }

    /// Send nothing more, and wait a little for the client to close.
    pub(crate) fn end_politely(&mut self) {
        self.link.end();
        self.state = State::Ending(DROPPED_BYTES);
        (self.read, self.body) = (Vec::new(), None);
        self.active = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn of_a_requests_beginning_little_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("somebody listens");
        client.write_all(&[b'x'; 40 << 10]).expect("room in the kernel");
        let (socket, _) = listener.accept().expect("a client");
        let mut connection = Connection::new(socket.into(), 0, None, Instant::now()).expect("a connected socket");
        let mut scratch = vec![0; 72 << 10];
        assert!(matches!(connection.fill(&mut scratch), Read::Some));
        let first = connection.read.len();
        assert!(first <= FIRST_BYTES);
        // The kernel will not tell again of what is left.
        assert!(connection.readable);
        while connection.read.len() < 40 << 10 {
            assert!(matches!(connection.fill(&mut scratch), Read::Some));
        }
    }
}
