//! What is counted per peer. Counters only grow; readers take differences.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::link::Carrier;

/// Clients that are counted by name; further ones are counted together.
const MAX_COUNTED: usize = 1024;

/// Buckets of the latency histogram: below 2^n µs, the last one without an end.
pub const LATENCY_BUCKETS: usize = 28;

/// One peer's counters, written by its I/O thread.
#[derive(Debug, Default)]
pub struct PeerMetrics {
    pub(crate) requests: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) lent_bytes: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    carrier: AtomicU8,
    latency_us: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS],
}

/// A peer's counters at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSnapshot {
    /// Requests begun.
    pub requests: u64,
    /// Those that ended without a reply, or in the middle of one.
    pub errors: u64,
    /// Bytes written to the link.
    pub sent_bytes: u64,
    /// Bytes read from it.
    pub received_bytes: u64,
    /// Bytes lent to the peer, which no link carried.
    pub lent_bytes: u64,
    /// Bytes fetched from what the peer lent.
    pub fetched_bytes: u64,
    /// Connections established.
    pub connects: u64,
    /// Connections that could not be established, or broke.
    pub connect_failures: u64,
    /// How often another kind of link was used because a better one failed, or bytes were sent that were to be
    /// fetched.
    pub fallbacks: u64,
    /// How it is connected now.
    pub carrier: Option<Carrier>,
    /// The sum of all requests' times in µs.
    pub latency_us: u64,
    /// How many requests took less than 2^n µs (and not less than half of it).
    pub latency: [u64; LATENCY_BUCKETS],
}

impl PeerMetrics {
    pub(crate) fn set_carrier(&self, carrier: Option<Carrier>) {
        self.carrier.store(carrier.map_or(0, |carrier| carrier as u8), Relaxed);
    }

    pub(crate) fn took(&self, time: Duration) {
        let us = time.as_micros() as u64;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.latency[bucket.min(LATENCY_BUCKETS - 1)].fetch_add(1, Relaxed);
        self.latency_us.fetch_add(us, Relaxed);
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> PeerSnapshot {
        PeerSnapshot {
            requests: self.requests.load(Relaxed),
            errors: self.errors.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            lent_bytes: self.lent_bytes.load(Relaxed),
            fetched_bytes: self.fetched_bytes.load(Relaxed),
            connects: self.connects.load(Relaxed),
            connect_failures: self.connect_failures.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
            carrier: match self.carrier.load(Relaxed) {
                1 => Some(Carrier::Tcp),
                2 => Some(Carrier::SameNode),
                3 => Some(Carrier::Simulated),
                4 => Some(Carrier::Rdma),
                5 => Some(Carrier::Tls),
                _ => None,
            },
            latency_us: self.latency_us.load(Relaxed),
            latency: std::array::from_fn(|at| self.latency[at].load(Relaxed)),
        }
    }
}

/// Counters by name.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) servers: Mutex<Vec<(String, Arc<PeerMetrics>)>>,
    pub(crate) clients: Mutex<HashMap<String, Arc<PeerMetrics>>>,
}

impl Registry {
    /// The counters of a client, or those shared by all beyond the limit.
    pub(crate) fn client(&self, name: &str) -> Arc<PeerMetrics> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let name = if clients.contains_key(name) || clients.len() < MAX_COUNTED { name } else { "others" };
        Arc::clone(clients.entry(name.to_owned()).or_default())
    }
}
