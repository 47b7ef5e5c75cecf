//! Where the bytes of a long answer come from: a device that has the whole object, or the places of a coded one.
//!
//! Fault model: that of [`crate::flow`] and of `swiftlet_node::coded`. What is put together of a coded object was compared
//! with its digests before it comes here. But what lies in memory that other processes have lent may change once they
//! use it anew: see [`STILL`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use swiftlet_node::Failure;
use swiftlet_node::coded::{ReadEnd, Reading};
use swiftlet_store::model::Key;
use swiftlet_transport::{Chunk, Error};

use crate::attempt::Attempt;
use crate::flow::Flow;
use crate::queue::Queue;
use crate::routes::Device;
use crate::shared::{Shared, lock};

/// For so long this process may stand still while it has bytes to send that were checked. Servers of this node use memory
/// anew that they have lent over a connection that broke more than 10 s ago.
pub(crate) const STILL: Duration = Duration::from_secs(5);

/// A read of a coded object. When it is dropped, nothing more is asked for, and it is counted.
pub(crate) struct Assembling {
    reading: Reading,
    /// In the place of a replica in the token of its events.
    pub(crate) id: u8,
    /// When it is to be looked at next, if it is known to the reactor.
    pub(crate) due: Option<Instant>,
    /// What is reserved for it of the room for coded objects.
    pub(crate) reserved: u64,
    policy: u16,
    shared: Arc<Shared>,
}

impl Assembling {
    pub(crate) fn new(reading: Reading, id: u8, reserved: u64, policy: u16, shared: &Arc<Shared>) -> Self {
        Self { reading, id, due: None, reserved, policy, shared: Arc::clone(shared) }
    }

    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }
}

impl Drop for Assembling {
    fn drop(&mut self) {
        self.shared.hedged.fetch_add(self.reading.hedges(), Relaxed);
        let unreached = |(device, failure): (u32, Failure)| {
            matches!(failure, Failure::Lost(Error::Unreachable(_))).then_some((self.policy, device))
        };
        let unreached: Vec<(u16, u32)> = self.reading.refused().into_iter().filter_map(unreached).collect();
        if !unreached.is_empty() {
            lock(&self.shared.unreached).extend(unreached);
        }
    }
}

/// An object that one device sends.
pub(crate) struct FromDevice {
    pub(crate) flow: Flow,
    pub(crate) key: Key,
    /// The device that sends the object.
    pub(crate) attempt: Attempt,
    /// The first byte that it was asked for, if others were asked before; else 0.
    begun: u64,
    /// Those that failed to send that byte.
    pub(crate) tried: Vec<Arc<Device>>,
}

impl FromDevice {
    /// What the first device sends.
    pub(crate) fn new(flow: Flow, key: Key, attempt: Attempt) -> Self {
        Self { flow, key, attempt, begun: 0, tried: Vec::new() }
    }

    /// Note that another device is to send the rest, which is returned if the answer can be finished; whether this one
    /// has failed. Those that failed before it may be asked again if it has sent anything: they may have been restarted
    /// meanwhile.
    pub(crate) fn lost(&mut self, has_failed: bool, now: Instant) -> Option<(u64, u64)> {
        self.attempt.ticket.cancel();
        // A server uses what it has lent anew, a while after its connection broke.
        self.flow.queue.copy();
        if has_failed {
            self.attempt.device.failed(now);
        }
        let (next, stop) = self.flow.rest()?;
        if next > self.begun {
            self.begun = next;
            self.tried.clear();
        }
        self.tried.push(Arc::clone(&self.attempt.device));
        Some((next, stop))
    }
}

/// An object that is put together from what several devices have.
pub(crate) struct FromPlaces {
    pub(crate) reading: Assembling,
    queue: Queue,
    /// How many bytes are still to come.
    left: u64,
    is_over: bool,
}

impl FromPlaces {
    /// So many bytes come.
    pub(crate) fn new(reading: Assembling, bytes: u64) -> Self {
        Self { reading, queue: Queue::default(), left: bytes, is_over: false }
    }

    /// Take the next bytes; returns whether so many were to come.
    pub(crate) fn take(&mut self, bytes: Chunk) -> bool {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else { return false };
        self.left = left;
        self.queue.push(bytes);
        true
    }

    /// Whether nothing of it waits for the client.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The read has ended; returns whether all bytes have come.
    pub(crate) fn ended(&mut self) -> bool {
        self.is_over = self.left == 0 && self.reading.reading().end() == Some(ReadEnd::Whole);
        self.is_over
    }

    fn copy(&mut self) {
        self.queue.copy();
        self.reading.reading().copy();
    }
}

/// What sends a long answer.
pub(crate) enum Source {
    Device(Box<FromDevice>),
    Places(Box<FromPlaces>),
}

impl Source {
    /// What may be sent to the client.
    pub(crate) fn queue(&self) -> &Queue {
        match self {
            Self::Device(from) => &from.flow.queue,
            Self::Places(from) => &from.queue,
        }
    }

    pub(crate) fn queue_mut(&mut self) -> &mut Queue {
        match self {
            Self::Device(from) => &mut from.flow.queue,
            Self::Places(from) => &mut from.queue,
        }
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Device(from) => from.flow.is_checked(),
            Self::Places(from) => from.is_over,
        }
    }

    /// The client was sent so many bytes more.
    pub(crate) fn taken(&self, bytes: u64) {
        match self {
            Self::Places(from) if !from.is_over => from.reading.reading().taken(bytes),
            _ => {}
        }
    }

    /// The client takes nothing for a while: copy what waits for it out of memory that transfers need. While a device is
    /// still sending, what it has lent is the limit of how much it sends, and if it is lost it is replaced at once.
    pub(crate) fn copy(&mut self) {
        match self {
            Self::Device(from) if from.flow.is_checked() => from.flow.queue.copy(),
            Self::Device(_) => {}
            Self::Places(from) => from.copy(),
        }
    }

    /// Whether what waits may have changed since it was checked, if this process has stood still.
    pub(crate) fn may_have_changed(&self) -> bool {
        self.queue().is_in_any_pool()
    }
}
