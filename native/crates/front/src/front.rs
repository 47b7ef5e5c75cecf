//! The way to the thread that answers: what it is told, and what it hands over.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use crate::changes::Changes;
use crate::grants::{Granted, Grants, Holder, Seen};
use crate::head::Method;
use crate::made::{Batch, Made, batches};
use crate::reactor::Reactor;
use crate::routes::Policy;

/// How the thread treats connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What stands before and behind a name where it is hashed.
    pub secret: (Vec<u8>, Vec<u8>),
    /// How long a connection may be idle.
    pub keepalive: Duration,
    /// How long a client may take nothing of an answer.
    pub client_timeout: Duration,
    /// How long a device may take to answer.
    pub answer_timeout: Duration,
    /// Told apart from other processes in timestamps: 14 bits.
    pub nonce: u16,
    /// How long all devices together may take to store an object.
    pub store_timeout: Duration,
    /// Connections at one time; more wait to be accepted.
    pub max_connections: usize,
    /// Connections that wait to be taken by whoever answers everything; more wait to be accepted.
    pub max_handed: usize,
    /// Answers whose record waits to be fetched; above it the front answers no request itself.
    pub max_served: usize,
}

/// A connection for somebody else.
#[derive(Debug)]
pub struct Handed {
    /// The connection.
    pub socket: OwnedFd,
    /// What was read of it and not answered.
    pub bytes: Vec<u8>,
    /// How often in a row it was taken back and handed over again without an answer in between.
    pub bounces: u32,
}

/// What watches over the process asks on the same port, briefly and with little patience.
const WATCHERS: [&[u8]; 3] = [b"GET /healthz ", b"GET /readyz ", b"GET /healthcheck "];

impl Handed {
    fn is_urgent(&self) -> bool {
        WATCHERS.iter().any(|begins| self.bytes.starts_with(begins))
    }
}

/// Connections in the order of their coming.
#[derive(Default)]
struct Waiting {
    /// These wait for nobody.
    urgent: VecDeque<Handed>,
    others: VecDeque<Handed>,
}

impl Waiting {
    fn push(&mut self, handed: Handed) {
        if handed.is_urgent() { &mut self.urgent } else { &mut self.others }.push_back(handed);
    }

    fn take(&mut self, most: usize) -> Vec<Handed> {
        let count = self.others.len().min(most);
        self.urgent.drain(..).chain(self.others.drain(..count)).collect()
    }

    fn len(&self) -> usize {
        self.urgent.len() + self.others.len()
    }
}

/// An answer that has left.
#[derive(Clone, Debug)]
pub struct Served {
    /// What was asked.
    pub method: Method,
    /// The path as sent.
    pub path: Vec<u8>,
    /// Of the answer.
    pub status: u16,
    /// Bytes of the body that came.
    pub received: u64,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// From the head to the answer's last byte.
    pub took: Duration,
    /// The client's address.
    pub remote: Arc<str>,
    /// The request's id.
    pub id: String,
}

pub(crate) enum Command {
    /// Rows are listed, or the requests are for somebody else after all.
    Listed(Vec<u64>, bool),
    Listen(OwnedFd),
    Adopt(OwnedFd, u32),
    Leave,
    Stop,
}

/// What the thread and its owner share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    commands: Mutex<Vec<Command>>,
    pub(crate) wake: OwnedFd,
    grants: Mutex<Grants>,
    policies: Mutex<HashMap<u16, Arc<Policy>>>,
    handed: Mutex<Waiting>,
    ready: OwnedFd,
    served: Mutex<Vec<Served>>,
    made: Mutex<Vec<Made>>,
    pub(crate) open: AtomicUsize,
    /// Requests that devices or whoever lists them have.
    pub(crate) storing: AtomicUsize,
    pub(crate) left: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring(bell: &OwnedFd) {
    // It can only fail when the counter is full, and then it is heard anyway.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

pub(crate) fn unring(bell: &OwnedFd) {
    // Nothing to read: nobody rang since.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

impl Shared {
    fn post(&self, command: Command) {
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

    pub(crate) fn served(&self, served: Served) {
        lock(&self.served).push(served);
    }

    pub(crate) fn made(&self, made: &mut Vec<Made>) {
        if !made.is_empty() {
            lock(&self.made).append(made);
            ring(&self.ready);
        }
    }

    pub(crate) fn may_serve(&self) -> bool {
        lock(&self.served).len() < self.settings.max_served
    }
}

/// A running thread. Dropped, it ends all its connections.
pub struct Front {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Front({} connections)", self.open())
    }
}

impl Front {
    /// Start the thread; changes that are counted, by any process, end grants.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(settings: Settings, changes: Arc<Changes>) -> io::Result<Self> {
        let bell = || rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let shared = Arc::new(Shared {
            settings,
            commands: Mutex::default(),
            wake: bell()?,
            grants: Mutex::new(Grants::new(changes)),
            policies: Mutex::default(),
            handed: Mutex::default(),
            ready: bell()?,
            served: Mutex::default(),
            made: Mutex::default(),
            open: AtomicUsize::new(0),
            storing: AtomicUsize::new(0),
            left: AtomicBool::new(false),
        });
        let reactor = Reactor::new(Arc::clone(&shared))?;
        let thread = std::thread::Builder::new().name("front".to_owned()).spawn(move || reactor.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Accept connections from a listening socket.
    pub fn listen(&self, socket: OwnedFd) {
        self.shared.post(Command::Listen(socket));
    }

    /// Take a connection back that stands between two requests; `bounces` as it was handed over with.
    pub fn adopt(&self, socket: OwnedFd, bounces: u32) {
        self.shared.post(Command::Adopt(socket, bounces));
    }

    /// Whoever sends the token may read, or write, what is below the path, until `valid` from now; whether there was
    /// room. It ends before when what was `seen` changes.
    #[must_use]
    pub fn grant(&self, holder: Holder, granted: Granted, seen: Seen, valid: Duration) -> bool {
        let now = Instant::now();
        self.shared.grants().add(holder, granted, seen, now + valid, now)
    }

    /// Whether there is such a grant.
    #[must_use]
    pub fn has(&self, holder: &Holder) -> bool {
        self.shared.grants().has(holder, Instant::now())
    }

    /// End all grants in an account, or all.
    pub fn withdraw(&self, account: Option<&[u8]>) {
        self.shared.grants().withdraw(account);
    }

    /// Whose grants were used since they were given.
    #[must_use]
    pub fn used(&self) -> Vec<Holder> {
        self.shared.grants().used(Instant::now())
    }

    /// Where a policy's objects are from now on; nowhere without one.
    pub fn route(&self, index: u16, policy: Option<Policy>) {
        let mut policies = lock(&self.shared.policies);
        match policy {
            Some(policy) => policies.insert(index, Arc::new(policy)),
            None => policies.remove(&index),
        };
    }

    /// What was handed over, as it came, so many at most and those besides that watch over the process; the descriptor is
    /// readable when something has come since the last time, so that whoever leaves some here has to come back for it.
    #[must_use]
    pub fn handed(&self, most: usize) -> Vec<Handed> {
        unring(&self.shared.ready);
        lock(&self.shared.handed).take(most)
    }

    /// Connections that were handed over and not taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.handed()
    }

    /// What was made durable since the last time; the descriptor is that of what was handed over.
    #[must_use]
    pub fn made(&self) -> Vec<Batch> {
        batches(mem::take(&mut *lock(&self.shared.made)))
    }

    /// What was made under these tokens is listed, and the clients may be told; or somebody else answers the requests
    /// anew.
    pub fn listed(&self, tokens: Vec<u64>, is_listed: bool) {
        self.shared.post(Command::Listed(tokens, is_listed));
    }

    /// Objects that are being stored or listed.
    #[must_use]
    pub fn storing(&self) -> usize {
        self.shared.storing.load(Ordering::Acquire)
    }

    /// What was answered since the last time.
    #[must_use]
    pub fn served(&self) -> Vec<Served> {
        mem::take(&mut *lock(&self.shared.served))
    }

    /// Connections that are here.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Whether the thread runs; without it nobody accepts.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Accept no more, hand over what is idle, and tell the clients of what is not that their next answer is the last.
    pub fn leave(&self) {
        self.shared.post(Command::Leave);
    }

    /// Whether it has left: what is [`Front::open`] is being answered.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.shared.left.load(Ordering::Acquire)
    }
}

impl AsFd for Front {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.post(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended, which is what is wanted here.
            let _ = thread.join();
        }
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
            waiting.push(Handed { socket, bytes: line.into(), bounces: 0 });
        }
        let mut taken = |most| -> Vec<_> {
            let took = waiting.take(most).into_iter();
            took.map(|one| lines.iter().position(|line| line.as_bytes() == one.bytes)).collect()
        };
        assert_eq!(taken(0), [Some(2), Some(4)]);
        assert_eq!(taken(2), [Some(0), Some(1)]);
        assert_eq!(taken(2), [Some(3)]);
        assert_eq!(waiting.len(), 0);
    }
}
