//! Commands for an I/O thread, in a queue: from other threads, and from what it calls itself.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::EventfdFlags;

use crate::api::{Answer, Call, Sink};
use crate::key::Key;
use crate::link::{Acceptor, Address, Link};
use crate::metrics::PeerMetrics;
use crate::pool::{Buffer, Chunk, HookOf, Released};
use crate::waking::{self, Sleeper};

/// A call on its way to the I/O thread.
pub(crate) struct Submit {
    pub(crate) peer: usize,
    pub(crate) stream: u64,
    pub(crate) deadline: Instant,
    pub(crate) call: Call,
    pub(crate) upload: Option<u64>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) token: u64,
    pub(crate) queued: Arc<AtomicUsize>,
    /// The pieces of an upload that has not begun yet.
    pub(crate) pieces: VecDeque<Chunk>,
    pub(crate) end: Option<Vec<u8>>,
}

/// What other threads, and this one's handlers, ask of the I/O thread.
pub(crate) enum Command {
    Submit(Box<Submit>),
    Push(usize, u64, Chunk),
    Finish(usize, u64, Vec<u8>),
    Cancel(usize, u64),
    Answer(Key, u64, Box<Answer>),
    Abandon(Key, u64),
    Refill(Key, u64),
    Released(HookOf),
    Memory(Key, u64, Option<Buffer>),
    /// Whether the peer's memory can be fetched.
    Met(Key, std::io::Result<()>),
    /// A lent chunk of a stream, by its offset.
    Fetched(Key, u64, u64, std::io::Result<Buffer>),
    AddPeer(Address, Arc<PeerMetrics>),
    Listen(Box<dyn Acceptor>),
    Adopt(Box<dyn Link>),
    /// Accept no new connections, and no new requests on open ones.
    Leave,
    Stop,
}

/// The commands for an I/O thread.
pub(crate) struct Queue {
    pub(crate) commands: Vec<Command>,
    /// Requests are numbered in the order in which they are sent.
    next_stream: u64,
    peers: usize,
}

/// What other threads share with an I/O thread.
pub(crate) struct Shared {
    queue: Mutex<Queue>,
    /// Readable when the thread has to wake up.
    pub(crate) wake: OwnedFd,
    pub(crate) asleep: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let queue = Mutex::new(Queue { commands: Vec::new(), next_stream: 1, peers: 0 });
        Ok(Self { queue, wake, asleep: AtomicBool::new(false) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn post(self: &Arc<Self>, command: Command) {
        self.lock().commands.push(command);
        waking::wake(Arc::clone(self) as Arc<dyn Sleeper>);
    }

    /// Returns the request's number.
    pub(crate) fn submit(self: &Arc<Self>, mut submit: Box<Submit>) -> u64 {
        let mut queue = self.lock();
        let stream = queue.next_stream;
        queue.next_stream += 1;
        submit.stream = stream;
        queue.commands.push(Command::Submit(submit));
        drop(queue);
        waking::wake(Arc::clone(self) as Arc<dyn Sleeper>);
        stream
    }

    /// Returns the peer's number in this thread.
    pub(crate) fn add_peer(&self, address: Address, metrics: Arc<PeerMetrics>) -> usize {
        let mut queue = self.lock();
        let index = queue.peers;
        queue.peers += 1;
        queue.commands.push(Command::AddPeer(address, metrics));
        drop(queue);
        self.nudge();
        index
    }
}

impl Sleeper for Shared {
    /// A thread that is awake looks at the queue before it sleeps; only a sleeping one has to be woken.
    fn nudge(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // It can only fail when the counter is full, and then the thread is awake anyway.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Released for Shared {
    fn released(self: Arc<Self>, hook: HookOf) {
        self.post(Command::Released(hook));
    }
}
