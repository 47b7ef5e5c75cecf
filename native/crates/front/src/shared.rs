//! What the answering thread and its owner share: settings and commands, and what is handed over.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use crate::changes::Changes;
use crate::grants::{Grants, Holder};
use crate::head::Method;
use crate::made::Made;
use crate::room::Room;
use crate::routes::Policy;
use crate::secure::Secure;
use crate::updates::Counts;

/// How the thread treats connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The prefix and suffix of a name when it is hashed.
    pub secret: (Vec<u8>, Vec<u8>),
    /// How long a connection may be idle.
    pub keepalive: Duration,
    /// How long a client may read nothing of an answer.
    pub client_timeout: Duration,
    /// How long a device may take to answer.
    pub answer_timeout: Duration,
    /// The process's nonce in timestamps: 14 bits.
    pub nonce: u16,
    /// How long all devices together may take to store an object; most of them, to delete one.
    pub store_timeout: Duration,
    /// The most bytes that answers of more than 64 KiB each may have together; Python answers what finds no room. While
    /// more were read of connections that wait to be fetched, no body of more than 1 MiB is received.
    pub large_bytes: u64,
    /// The largest number of connections; more wait to be accepted.
    pub max_connections: usize,
    /// The largest number of connections that wait to be fetched by Python; more wait to be accepted.
    pub max_handed: usize,
    /// The largest number of answers whose records wait to be fetched; above it the front answers no request itself.
    pub max_served: usize,
}

#[cfg(test)]
impl Settings {
    /// Those of a test that waits for everybody, with so much room for large answers.
    pub(crate) fn patient(large_bytes: u64) -> Self {
        let long = Duration::from_secs(60);
        Self {
            secret: (Vec::new(), Vec::new()),
            keepalive: long,
            client_timeout: long,
            answer_timeout: long,
            nonce: 1,
            store_timeout: long,
            large_bytes,
            max_connections: 100,
            max_handed: 100,
            max_served: 100,
        }
    }
}

/// A connection that is handed over.
#[derive(Debug)]
pub struct Handed {
    /// The connection.
    pub socket: OwnedFd,
    /// Bytes that were read from it and not answered.
    pub bytes: Vec<u8>,
    /// How often in a row it was taken back and handed over again without an answer in between.
    pub bounces: u32,
    /// Whether the bytes begin with a DELETE that devices may have carried out: then the object existed, even if it is
    /// not found any more.
    pub deleted: bool,
    /// The version that devices may have stored of the PUT that the bytes begin with: a condition that holds only while
    /// there is no object is not about that one.
    pub stored: Option<u64>,
    /// For a connection with TLS, of which `socket` is the near end of a pair.
    pub secured: Option<Secured>,
}

/// A connection with TLS that goes on through a pair of sockets.
#[derive(Clone, Copy, Debug)]
pub struct Secured {
    /// Names the connection when it is given back.
    pub token: u64,
    /// The client's address.
    pub remote: SocketAddr,
    /// The address that it has connected to.
    pub local: SocketAddr,
}

/// Health checks come on the same port, and time out quickly.
const WATCHERS: [&[u8]; 3] = [b"GET /healthz ", b"GET /readyz ", b"GET /healthcheck "];

impl Handed {
    fn is_urgent(&self) -> bool {
        WATCHERS.iter().any(|begins| self.bytes.starts_with(begins))
    }
}

/// Connections in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiting {
    /// These are fetched first.
    urgent: VecDeque<Handed>,
    others: VecDeque<Handed>,
    /// What was read of all of them.
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, handed: Handed) {
        self.bytes += handed.bytes.len();
        if handed.is_urgent() { &mut self.urgent } else { &mut self.others }.push_back(handed);
    }

    pub(crate) fn take(&mut self, most: usize) -> Vec<Handed> {
        let count = self.others.len().min(most);
        let taken: Vec<Handed> = self.urgent.drain(..).chain(self.others.drain(..count)).collect();
        self.bytes -= taken.iter().map(|one| one.bytes.len()).sum::<usize>();
        taken
    }

    fn len(&self) -> usize {
        self.urgent.len() + self.others.len()
    }
}

/// An answer that was sent.
#[derive(Clone, Debug)]
pub struct Served {
    /// The method.
    pub method: Method,
    /// The path as sent.
    pub path: Vec<u8>,
    /// Of the answer.
    pub status: u16,
    /// Bytes of the request's body.
    pub received: u64,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// From the request's head to the answer's last byte.
    pub took: Duration,
    /// The client's address.
    pub remote: Arc<str>,
    /// The request's id.
    pub id: String,
}

pub(crate) enum Command {
    /// Rows are listed, or the requests have to be answered by Python.
    Listed(Vec<u64>, bool),
    Listen(OwnedFd),
    Adopt(OwnedFd, u32),
    /// Python has decided, and made a grant or refused to.
    Decided(Holder, bool),
    /// The MD5 of the body that this connection has received is known.
    Digested(u64),
    /// Where container databases are.
    Containers(Option<Policy>),
    /// Python has begun to serve these connections with TLS.
    Taken(Vec<u64>),
    /// It gives one back: its end of the pair, and the bounces.
    Return(u64, OwnedFd, u32),
    Leave,
    Stop,
}

/// What the thread and its owner share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) commands: Mutex<Vec<Command>>,
    pub(crate) wake: OwnedFd,
    pub(crate) grants: Mutex<Grants>,
    pub(crate) room: Mutex<Room>,
    pub(crate) policies: Mutex<HashMap<u16, Arc<Policy>>>,
    pub(crate) handed: Mutex<Waiting>,
    pub(crate) ready: OwnedFd,
    pub(crate) served: Mutex<Vec<Served>>,
    pub(crate) made: Mutex<Vec<Made>>,
    /// What Python is asked to decide.
    pub(crate) undecided: Mutex<Vec<Holder>>,
    pub(crate) open: AtomicUsize,
    /// Connections with a request, as of the last look at all of them.
    pub(crate) busy: AtomicUsize,
    /// None for plain HTTP.
    pub(crate) secure: Option<Arc<Secure>>,
    /// Connections with TLS that Python serves.
    pub(crate) bridged: AtomicUsize,
    /// Writes that devices carry out, or whose rows are being listed.
    pub(crate) storing: AtomicUsize,
    /// Reads for which a second device was asked, since somebody counted.
    pub(crate) hedged: AtomicU64,
    /// The newest timestamp that was given to a write.
    pub(crate) newest: AtomicU64,
    /// Numbers of container servers that have failed; they are those of a ring, so there is room.
    pub(crate) silent: Mutex<BTreeSet<u16>>,
    /// Devices of coded policies that could not be reached, by the numbers of both.
    pub(crate) unreached: Mutex<BTreeSet<(u16, u32)>>,
    pub(crate) rows: Arc<Counts>,
    pub(crate) left: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn ring(bell: &OwnedFd) {
    // It can only fail when the counter is full, and then it is heard anyway.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

pub(crate) fn unring(bell: &OwnedFd) {
    // Nothing to read: nobody rang since.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

impl Shared {
    pub(crate) fn new(settings: Settings, changes: Arc<Changes>, secure: Option<Arc<Secure>>) -> io::Result<Self> {
        let bell = || rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Self {
            settings,
            commands: Mutex::default(),
            wake: bell()?,
            grants: Mutex::new(Grants::new(changes)),
            room: Mutex::default(),
            policies: Mutex::default(),
            handed: Mutex::default(),
            ready: bell()?,
            served: Mutex::default(),
            made: Mutex::default(),
            undecided: Mutex::default(),
            open: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            secure,
            bridged: AtomicUsize::new(0),
            storing: AtomicUsize::new(0),
            hedged: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            silent: Mutex::default(),
            unreached: Mutex::default(),
            rows: Arc::default(),
            left: AtomicBool::new(false),
        })
    }

    pub(crate) fn post(&self, command: Command) {
        lock(&self.commands).push(command);
        ring(&self.wake);
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        unring(&self.wake);
        mem::take(&mut *lock(&self.commands))
    }

    pub(crate) fn grants(&self) -> MutexGuard<'_, Grants> {
        lock(&self.grants)
    }

    /// Take room for an object of so many bytes in each of these pools; None: there is not enough.
    pub(crate) fn take_room(&self, pools: &[u64], bytes: u64, now: Instant) -> Option<Vec<u64>> {
        if pools.is_empty() { Some(Vec::new()) } else { lock(&self.room).take(pools, bytes, now) }
    }

    /// Bring back the parts of an object that is stored nowhere.
    pub(crate) fn give_back(&self, parts: &[u64], bytes: u64) {
        if !parts.is_empty() {
            lock(&self.room).give_back(parts, bytes);
        }
    }

    pub(crate) fn policy(&self, index: u16) -> Option<Arc<Policy>> {
        lock(&self.policies).get(&index).cloned()
    }

    pub(crate) fn hand_over(&self, handed: Handed) {
        lock(&self.handed).push(handed);
        ring(&self.ready);
    }

    pub(crate) fn handed(&self) -> usize {
        lock(&self.handed).len()
    }

    /// How many bytes were read of connections that wait to be fetched.
    pub(crate) fn handed_bytes(&self) -> usize {
        lock(&self.handed).bytes
    }

    pub(crate) fn served(&self, served: Served) {
        lock(&self.served).push(served);
    }

    pub(crate) fn made(&self, made: &mut Vec<Made>) {
        if !made.is_empty() {
            lock(&self.made).append(made);
            ring(&self.ready);
        }
    }

    pub(crate) fn undecided(&self, holder: Holder) {
        lock(&self.undecided).push(holder);
        ring(&self.ready);
    }

    pub(crate) fn may_serve(&self) -> bool {
        lock(&self.served).len() < self.settings.max_served
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_watches_over_the_process_waits_for_nobody() {
        let (_kept, other) = UnixStream::pair().expect("descriptors");
        let mut waiting = Waiting::default();
        let lines =
            ["PUT /v1/a/c/1", "PUT /v1/a/c/2", "GET /readyz HTTP/1.1", "GET /readyzz HTTP/1.1", "GET /healthz "];
        for line in lines {
            let socket = OwnedFd::from(other.try_clone().expect("descriptors"));
            waiting.push(Handed {
                socket,
                bytes: line.into(),
                bounces: 0,
                deleted: false,
                stored: None,
                secured: None,
            });
        }
        let mut taken = |most| -> Vec<_> {
            let took = waiting.take(most).into_iter();
            took.map(|one| lines.iter().position(|line| line.as_bytes() == one.bytes)).collect()
        };
        assert_eq!(taken(0), [Some(2), Some(4)]);
        assert_eq!(taken(2), [Some(0), Some(1)]);
        assert_eq!(taken(2), [Some(3)]);
        assert_eq!((waiting.len(), waiting.bytes), (0, 0));
    }
}
