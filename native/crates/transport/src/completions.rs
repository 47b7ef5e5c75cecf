//! Events for an event loop: a queue, and a descriptor that is readable while the queue is not empty.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::time::Timespec;

use crate::api::{Event, Sink};

/// Collects events until they are drained. Their number is bounded by the open calls and their windows.
#[derive(Debug)]
pub struct Completions {
    queue: Mutex<Vec<Event>>,
    ready: OwnedFd,
}

impl Completions {
    /// An empty one.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let ready = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { queue: Mutex::default(), ready }))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Make the descriptor readable, for an owner with events of its own.
    pub fn notify(&self) {
        // It can only fail when the counter is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }

    /// Take out all events.
    #[must_use]
    pub fn drain(&self) -> Vec<Event> {
        let mut counter = [0; 8];
        // Read before the queue is taken: what comes between makes it readable again.
        let _ = rustix::io::read(&self.ready, &mut counter);
        mem::take(&mut *self.lock())
    }

    /// Take out all events, and wait for some if there are none; empty after the timeout.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Vec<Event> {
        let end = Instant::now() + timeout;
        loop {
            let events = self.drain();
            let left = end.saturating_duration_since(Instant::now());
            if !events.is_empty() || left.is_zero() {
                return events;
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // Interrupted: the time that is left is computed anew.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.ready, PollFlags::IN)], Some(&left));
        }
    }
}

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Sink for Completions {
    fn events(&self, events: &mut Vec<Event>) {
        let mut queue = self.lock();
        let was_empty = queue.is_empty();
        queue.append(events);
        drop(queue);
        if was_empty {
            self.notify();
        }
    }
}
