//! The front for its owner: a thread that answers requests, and the calls to it.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::changes::Changes;
use crate::grants::{Granted, Holder, Seen};
use crate::made::{Batch, batches};
use crate::reactor::Reactor;
use crate::records::Records;
use crate::room::{Amounts, Spent};
use crate::routes::Policy;
use crate::secure::{Handshakes, Refused, Secure};
use crate::shared::{Command, Handed, Settings, Shared, lock, unring};
use crate::updates::Rows;

/// A running thread. When it is dropped, all its connections end.
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
    /// Start the thread; changes that any process counts end grants.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(settings: Settings, changes: Arc<Changes>) -> io::Result<Self> {
        Self::start_with(settings, changes, None)
    }

    /// The same for connections with TLS.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_secure(settings: Settings, changes: Arc<Changes>, secure: Secure) -> io::Result<Self> {
        Self::start_with(settings, changes, Some(Arc::new(secure)))
    }

    fn start_with(settings: Settings, changes: Arc<Changes>, secure: Option<Arc<Secure>>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(settings, changes, secure)?);
        let reactor = Reactor::new(Arc::clone(&shared))?;
        let thread = std::thread::Builder::new().name("front".to_owned()).spawn(move || reactor.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Accept connections from a listening socket.
    pub fn listen(&self, socket: OwnedFd) {
        self.shared.post(Command::Listen(socket));
    }

    /// Take back a connection between two requests; `bounces` as it was handed over with.
    pub fn adopt(&self, socket: OwnedFd, bounces: u32) {
        self.shared.post(Command::Adopt(socket, bounces));
    }

    /// The same for a connection with TLS, by the token it was handed over with; `socket` is the end of the pair.
    pub fn adopt_secured(&self, token: u64, socket: OwnedFd, bounces: u32) {
        self.shared.post(Command::Return(token, socket, bounces));
    }

    /// Use this certificate and key, in PEM, for new connections.
    ///
    /// # Errors
    /// They can't be used, or the port is without TLS; then all stays as it is.
    pub fn renew(&self, certificate: &[u8], key: &[u8]) -> Result<(), Refused> {
        match &self.shared.secure {
            Some(secure) => secure.renew(certificate, key),
            None => Err(Refused::without_tls()),
        }
    }

    /// How TLS handshakes ended so far.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        self.shared.secure.as_ref().map(|secure| secure.handshakes()).unwrap_or_default()
    }

    /// Allow whoever sends the token to read, or write, below the path, for `valid` from now; returns whether there
    /// was room. The grant ends earlier when the counters in `seen` change.
    #[must_use]
    pub fn grant(&self, holder: Holder, granted: Granted, seen: Seen, valid: Duration) -> bool {
        let now = Instant::now();
        self.shared.grants().add(holder, granted, seen, now + valid, now)
    }

    /// Let those of these grants that still hold go on, each for so long from now.
    pub fn extend(&self, grants: &[(Holder, Duration)]) {
        let (now, mut live) = (Instant::now(), self.shared.grants());
        grants.iter().for_each(|(holder, valid)| live.extend(holder, now + *valid, now));
    }

    /// Whether there is such a grant.
    #[must_use]
    pub fn has(&self, holder: &Holder) -> bool {
        self.shared.grants().has(holder, Instant::now())
    }

    /// Holders of requests that wait for a decision since the last call; each is to be told by [`Self::decided`]. The
    /// descriptor is the same as for `handed`.
    #[must_use]
    pub fn undecided(&self) -> Vec<Holder> {
        mem::take(&mut *lock(&self.shared.undecided))
    }

    /// A decision was made: requests of this holder go on, by their grant if there is one, or are handed over.
    pub fn decided(&self, holder: Holder, is_granted: bool) {
        self.shared.post(Command::Decided(holder, is_granted));
    }

    /// End all grants in an account, or all.
    pub fn withdraw(&self, account: Option<&[u8]>) {
        self.shared.grants().withdraw(account);
    }

    /// The holders of grants that were used since the last call.
    #[must_use]
    pub fn used(&self) -> Vec<Holder> {
        self.shared.grants().used(Instant::now())
    }

    /// Add a slice of room to a pool, to be used for `valid` from now. Slices have numbers of their own, whatever pool
    /// they belong to.
    pub fn lend(&self, pool: u64, slice: u64, amounts: Amounts, valid: Duration) {
        lock(&self.shared.room).lend(pool, slice, amounts, Instant::now() + valid);
    }

    /// Take no more of a pool.
    pub fn recall(&self, pool: u64) {
        lock(&self.shared.room).recall(pool);
    }

    /// What has become of room since the last call.
    #[must_use]
    pub fn spent(&self) -> Spent {
        lock(&self.shared.room).spent(Instant::now())
    }

    /// Set where a policy's objects are; None makes them unknown.
    pub fn route(&self, index: u16, policy: Option<Policy>) {
        let mut policies = lock(&self.shared.policies);
        match policy {
            Some(policy) => policies.insert(index, Arc::new(policy)),
            None => policies.remove(&index),
        };
    }

    /// Ask others before these devices of a policy, by their numbers, and before no others of it.
    pub fn avoid(&self, index: u16, numbers: &[u32]) {
        if let Some(policy) = self.shared.policy(index) {
            policy.avoid(numbers);
        }
    }

    /// Devices of coded policies that could not be reached since the last call: the numbers of policies and of devices.
    #[must_use]
    pub fn unreached(&self) -> Vec<(u16, u32)> {
        mem::take(&mut *lock(&self.shared.unreached)).into_iter().collect()
    }

    /// Set where container databases are: with it rows are delivered by the thread. None makes that unknown.
    pub fn route_containers(&self, ring: Option<Policy>) {
        self.shared.post(Command::Containers(ring));
    }

    /// Connections that were handed over, in their order, at most so many, and in addition those with health checks.
    /// The descriptor is readable when one was added since the last call, so a caller that leaves some has to call
    /// again.
    #[must_use]
    pub fn handed(&self, most: usize) -> Vec<Handed> {
        unring(&self.shared.ready);
        let handed = lock(&self.shared.handed).take(most);
        let secured: Vec<u64> = handed.iter().filter_map(|one| one.secured).map(|one| one.token).collect();
        if !secured.is_empty() {
            self.shared.post(Command::Taken(secured));
        }
        handed
    }

    /// Connections that were handed over and not fetched.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.handed()
    }

    /// Objects and deletions that became durable since the last call; the descriptor is the same as for `handed`.
    #[must_use]
    pub fn made(&self) -> Vec<Batch> {
        batches(mem::take(&mut *lock(&self.shared.made)))
    }

    /// What was made with these tokens is listed, so that the clients are answered; or Python answers the requests
    /// again.
    pub fn listed(&self, tokens: Vec<u64>, is_listed: bool) {
        self.shared.post(Command::Listed(tokens, is_listed));
    }

    /// Writes that devices carry out, or whose rows are being listed.
    #[must_use]
    pub fn storing(&self) -> usize {
        self.shared.storing.load(Ordering::Acquire)
    }

    /// Reads for which a second device was asked since the last call.
    #[must_use]
    pub fn hedged(&self) -> u64 {
        self.shared.hedged.swap(0, Ordering::Relaxed)
    }

    /// Numbers of container servers in their ring that have failed since the last call.
    #[must_use]
    pub fn silent_containers(&self) -> Vec<u16> {
        mem::take(&mut *lock(&self.shared.silent)).into_iter().collect()
    }

    /// The newest timestamp that was given to a write; 0 before the first one.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.shared.newest.load(Ordering::Acquire)
    }

    /// What has become of rows so far.
    #[must_use]
    pub fn rows(&self) -> Rows {
        Rows::of(&self.shared.rows)
    }

    /// Answers that were sent since the last call, with sums by these bounds of durations, in ascending order.
    #[must_use]
    pub fn records(&self, bounds_s: &[f64]) -> Records {
        let served = mem::take(&mut *lock(&self.shared.served));
        Records::of(&served, bounds_s)
    }

    /// Open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Requests that are being worked on; what was handed over is not among them. Up to half a second old.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.shared.busy.load(Ordering::Relaxed)
    }

    /// Connections with TLS that whoever fetched them serves, or that wait to be fetched.
    #[must_use]
    pub fn bridged(&self) -> usize {
        self.shared.bridged.load(Ordering::Relaxed)
    }

    /// Whether the thread runs; without it nobody accepts connections.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Accept no more, hand over idle connections, and tell the clients of the others that their next answer is the
    /// last.
    pub fn leave(&self) {
        self.shared.post(Command::Leave);
    }

    /// Whether it has stopped accepting: the connections in [`Front::open`] are being answered.
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
