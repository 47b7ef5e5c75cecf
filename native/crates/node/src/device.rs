//! One device of the server: its store, its threads, and its limits.
//!
//! Fault model: a device may be slow, full, failed or missing, while others serve; peers may ask for more than it can
//! do. So each device has threads of its own, and limits of the requests at work and of the bytes that they may hold.
//! A request has at most one job at a time: the queue is never longer than the number of requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use swiftlet_store::Store;

use crate::doubts::Doubts;
use crate::message::METHODS;
use crate::status::{Refusal, Status};

/// The limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads that read and write large bodies.
    pub threads: usize,
    /// Requests at work; above it the answer is `NodeBusy`.
    pub max_requests: usize,
    /// Bytes of bodies held outside of the transport's pool; above it the answer is `NodeBusy`.
    pub buffer_bytes: usize,
}

/// Guests together may have this part of a device's requests and bytes: one in so many.
const SHARE_OF_GUESTS: usize = 4;

/// Who makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Member,
    Guest,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threads: 4, max_requests: 512, buffer_bytes: 256 << 20 }
    }
}

/// What a device does now, and counters of what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Requests at work.
    pub requests: usize,
    /// Bytes held for them.
    pub buffered_bytes: usize,
    /// Requests that were refused because there were too many.
    pub refused: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// Requests that were answered: method, status, count; without those that never occurred.
    pub answered: Vec<(u16, Status, u64)>,
}

pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closed: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<Jobs>,
    woken: Condvar,
}

impl Queue {
    fn push(&self, job: Job) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.closed {
            drop(jobs);
            return; // and with the job its responder, which says so
        }
        jobs.waiting.push_back(job);
        drop(jobs);
        self.woken.notify_one();
    }

    /// Run jobs until the queue is closed. A panic ends only its job.
    pub(crate) fn work(&self) {
        loop {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            while jobs.waiting.is_empty() && !jobs.closed {
                jobs = self.woken.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(job) = jobs.waiting.pop_front() else { return };
            drop(jobs);
            // Its responder is dropped as the stack unwinds, and the peer is told that the handler failed.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    }

    pub(crate) fn close(&self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.closed = true;
        let waiting = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        self.woken.notify_all();
        drop(waiting);
    }
}

/// A device, or why it can't be used.
pub(crate) struct Device {
    store: Result<Arc<Store>, String>,
    pub(crate) doubts: Arc<Doubts>,
    pub(crate) queue: Arc<Queue>,
    limits: Limits,
    requests: AtomicUsize,
    buffered: AtomicUsize,
    /// The guests' parts of these.
    requests_of_guests: AtomicUsize,
    buffered_of_guests: AtomicUsize,
    refused: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    answered: [[AtomicU64; Status::ALL.len()]; METHODS],
}

impl Device {
    pub(crate) fn new(store: Result<Arc<Store>, String>, doubts: Arc<Doubts>, limits: Limits) -> Self {
        Self {
            store,
            doubts,
            queue: Arc::default(),
            limits,
            requests: AtomicUsize::new(0),
            buffered: AtomicUsize::new(0),
            requests_of_guests: AtomicUsize::new(0),
            buffered_of_guests: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            answered: Default::default(),
        }
    }

    pub(crate) fn store(&self) -> Result<&Arc<Store>, Refusal> {
        self.store.as_ref().map_err(|why| Refusal::new(Status::DeviceFailed, why))
    }

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.queue.push(Box::new(job));
    }

    pub(crate) fn stats(&self) -> DeviceStats {
        DeviceStats {
            requests: self.requests.load(Relaxed),
            buffered_bytes: self.buffered.load(Relaxed),
            refused: self.refused.load(Relaxed),
            received_bytes: self.received.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
            answered: self.answered(),
        }
    }

    fn answered(&self) -> Vec<(u16, Status, u64)> {
        let rows = (0..).zip(&self.answered);
        let all = rows.flat_map(|(method, row)| {
            Status::ALL.iter().map(move |status| (method, *status, row[*status as usize].load(Relaxed)))
        });
        all.filter(|(_, _, count)| *count > 0).collect()
    }

    /// Count an answered request with so many bytes.
    pub(crate) fn count(&self, method: u16, status: Status, bytes: u64) {
        if let Some(row) = self.answered.get(usize::from(method)) {
            row[status as usize].fetch_add(1, Relaxed);
        }
        self.sent.fetch_add(bytes, Relaxed);
    }

    /// Count received bytes of a body.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    /// Accept a request.
    pub(crate) fn admit(self: &Arc<Self>, who: Who) -> Result<Permit, Refusal> {
        let text = "the device is busy: too many requests are in progress";
        if !taken(&self.requests, 1, self.limits.max_requests) {
            return Err(self.busy(text));
        }
        if who == Who::Guest && !taken(&self.requests_of_guests, 1, self.limits.max_requests / SHARE_OF_GUESTS) {
            self.requests.fetch_sub(1, Relaxed);
            return Err(self.busy(text));
        }
        Ok(Permit { device: Arc::clone(self), who, bytes: 0 })
    }

    fn busy(&self, text: &str) -> Refusal {
        self.refused.fetch_add(1, Relaxed);
        Refusal::new(Status::NodeBusy, text)
    }
}

/// Add to a counter unless it would be above `most`; returns whether it was added.
fn taken(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    let fits = counter.fetch_add(more, Relaxed).saturating_add(more) <= most;
    if !fits {
        counter.fetch_sub(more, Relaxed);
    }
    fits
}

/// An accepted request, and the bytes that it holds; returned when it is dropped.
pub(crate) struct Permit {
    pub(crate) device: Arc<Device>,
    pub(crate) who: Who,
    bytes: usize,
}

impl Permit {
    /// Hold so many more bytes.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        let (device, most) = (&self.device, self.device.limits.buffer_bytes);
        let text = "the device is busy: requests in progress hold too many bytes";
        if !taken(&device.buffered, bytes, most) {
            return Err(device.busy(text));
        }
        if self.who == Who::Guest && !taken(&device.buffered_of_guests, bytes, most / SHARE_OF_GUESTS) {
            device.buffered.fetch_sub(bytes, Relaxed);
            return Err(device.busy(text));
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.device.buffered.fetch_sub(self.bytes, Relaxed);
        self.device.requests.fetch_sub(1, Relaxed);
        if self.who == Who::Guest {
            self.device.buffered_of_guests.fetch_sub(self.bytes, Relaxed);
            self.device.requests_of_guests.fetch_sub(1, Relaxed);
        }
    }
}
