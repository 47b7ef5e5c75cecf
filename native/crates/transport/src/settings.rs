//! What a node is told at its start, and what its threads look at.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use swiftlet_wire::handshake::{Identity, Key, Limits};
use swiftlet_wire::limits::DEAD_AFTER_MS;

use crate::pool::Pool;

/// Bytes of one body in memory that is received into, unless a node is told otherwise.
pub const WINDOW_BYTES: u32 = 2 << 20;

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// By this name others know it.
    pub name: String,
    /// The machine that it runs on, for example its boot id. Same node is only what says the same here.
    pub machine: String,
    /// The cluster's keys, the preferred one first.
    pub keys: Vec<Key>,
    /// Its memory for bodies.
    pub pool: Pool,
    /// I/O threads.
    pub threads: usize,
    /// Bytes of one body that are granted beyond what was let go of; at least one chunk is.
    pub window_bytes: u32,
    /// Requests that one connection may have open here.
    pub max_streams: u32,
    /// Bytes of bodies inside them.
    pub inline_bytes: u32,
    /// Connections that are accepted per I/O thread.
    pub max_connections: usize,
    /// Calls that wait per peer.
    pub max_waiting: usize,
    /// How long a peer may be silent before its connection is given up.
    pub silence: Duration,
}

impl Config {
    /// The usual limits.
    #[must_use]
    pub fn new(name: &str, machine: &str, keys: Vec<Key>, pool: Pool) -> Self {
        Self {
            name: name.to_owned(),
            machine: machine.to_owned(),
            keys,
            pool,
            threads: 1,
            window_bytes: WINDOW_BYTES,
            max_streams: 1024,
            inline_bytes: 4 << 20,
            max_connections: 1024,
            max_waiting: 1024,
            silence: Duration::from_millis(DEAD_AFTER_MS),
        }
    }
}

/// What all threads look at.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) keys: RwLock<Vec<Key>>,
    pub(crate) pool: Pool,
    pub(crate) window_bytes: u32,
    pub(crate) max_streams: u32,
    pub(crate) inline_bytes: u32,
    pub(crate) max_connections: usize,
    pub(crate) max_waiting: usize,
    pub(crate) silence: Duration,
}

impl Settings {
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn limits(&self, lent: bool) -> Limits {
        Limits { window_bytes: self.window_bytes, lent, streams: self.max_streams, inline_bytes: self.inline_bytes }
    }

    pub(crate) fn identity(&self, lent: bool) -> Identity {
        Identity { name: self.name.clone(), machine: self.machine.clone(), limits: self.limits(lent) }
    }
}
