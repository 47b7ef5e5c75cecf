//! Acknowledgements to the devices of objects whose rows are durable in all of their container's replicas.
//!
//! Fault model: a device may hang or be gone, and this process may end with acknowledgements not sent. That only costs
//! a second delivery of the row, by the object server, and so does everything beyond the limit.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use swiftlet_node::Status;
use swiftlet_node::message::{MAX_ACKNOWLEDGED, Request};
use swiftlet_store::model::Key;
use swiftlet_transport::{Call, What};

use super::{Counts, Do, Kind, token};
use crate::made::Made;
use crate::routes::Device;

/// How long versions gather: rows are delivered a second time only after longer, and a message costs as much as one.
const GATHER: Duration = Duration::from_millis(100);
/// The largest number of versions that wait, some 5 MB.
const MAX_WAITING: usize = 100_000;

struct Holder {
    device: Arc<Device>,
    waiting: Vec<(Key, u64)>,
    /// The number of versions of which the device is being told.
    told: usize,
}

pub(super) struct Acknowledging {
    counts: Arc<Counts>,
    timeout: Duration,
    holders: HashMap<u64, Holder>,
    /// By the device's address in memory.
    known: HashMap<usize, u64>,
    next: u64,
    waiting: usize,
    due: Option<Instant>,
    leaving: bool,
}

impl Acknowledging {
    pub(super) fn new(counts: Arc<Counts>, timeout: Duration) -> Self {
        let (holders, known) = (HashMap::new(), HashMap::new());
        Self { counts, timeout, holders, known, next: 0, waiting: 0, due: None, leaving: false }
    }

    /// Acknowledge these rows to all devices of their objects.
    pub(super) fn add(&mut self, made: &[Made], now: Instant, todo: &mut Vec<Do>) {
        let mut is_enough = self.leaving;
        for one in made {
            for device in &one.holders {
                if self.waiting >= MAX_WAITING {
                    self.counts.dropped.fetch_add(1, Relaxed);
                    continue;
                }
                self.waiting += 1;
                let holder = self.holder(device);
                holder.waiting.push((one.key, one.timestamp));
                is_enough |= holder.waiting.len() >= MAX_ACKNOWLEDGED;
            }
        }
        if is_enough {
            self.tell(todo);
        } else {
            self.due.get_or_insert(now + GATHER);
        }
        self.count();
    }

    fn holder(&mut self, device: &Arc<Device>) -> &mut Holder {
        let id = *self.known.entry(Arc::as_ptr(device) as usize).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let new = || Holder { device: Arc::clone(device), waiting: Vec::new(), told: 0 };
        self.holders.entry(id).or_insert_with(new)
    }

    fn count(&self) {
        self.counts.acknowledging.store(self.waiting, Relaxed);
    }

    /// When versions have gathered for long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Tell devices what has gathered for long enough.
    pub(super) fn tick(&mut self, now: Instant, todo: &mut Vec<Do>) {
        if self.due.is_some_and(|due| due <= now) {
            self.tell(todo);
        }
    }

    /// Let nothing gather any more.
    pub(super) fn leave(&mut self, todo: &mut Vec<Do>) {
        self.leaving = true;
        self.tell(todo);
    }

    fn tell(&mut self, todo: &mut Vec<Do>) {
        self.due = None;
        for (id, holder) in self.holders.iter_mut().filter(|(_, holder)| holder.told == 0) {
            tell(*id, holder, self.timeout, todo);
        }
    }

    /// Note a device's answer.
    pub(super) fn told(&mut self, id: u64, what: &What, todo: &mut Vec<Do>) {
        if matches!(what, What::Sent(_)) {
            return;
        }
        let Some(holder) = self.holders.get_mut(&id) else { return };
        let told = mem::take(&mut holder.told);
        self.waiting -= told;
        let is_told = matches!(what, What::Reply { status, .. } if *status == Status::Ok as u16);
        let counter = if is_told { &self.counts.acknowledged } else { &self.counts.lost };
        counter.fetch_add(told as u64, Relaxed);
        if holder.waiting.is_empty() {
            self.known.remove(&(Arc::as_ptr(&holder.device) as usize));
            self.holders.remove(&id);
        } else if self.leaving || self.due.is_none() || holder.waiting.len() >= MAX_ACKNOWLEDGED {
            tell(id, holder, self.timeout, todo);
        }
        self.count();
    }
}

fn tell(id: u64, holder: &mut Holder, timeout: Duration, todo: &mut Vec<Do>) {
    let count = holder.waiting.len().min(MAX_ACKNOWLEDGED);
    if count == 0 {
        return;
    }
    let request = Request::Acknowledge(holder.waiting.drain(..count).collect());
    holder.told = count;
    // A device's name is within its limit, for its objects were stored.
    let header = request.encode(holder.device.name()).unwrap_or_default();
    let call = Call { method: request.method(), timeout, header, ..Call::default() };
    todo.push(Do::Call(Arc::clone(&holder.device), Box::new(call), token(Kind::Acknowledge, id, 0)));
}
