//! The configuration of a node, and what its threads read of it.

use std::sync::atomic::AtomicUsize;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use swiftlet_wire::guest::Session;
use swiftlet_wire::handshake::{Credentials, Identity, Key, Limits};
use swiftlet_wire::limits::DEAD_AFTER_MS;

use crate::pool::Pool;
use crate::shared::{Copies, Regions};

/// The default number of bytes of one body in memory that is received into.
pub const WINDOW_BYTES: u32 = 2 << 20;

/// What guests are given: nothing that members use, and less of it.
#[derive(Clone, Debug)]
pub struct Guests {
    /// Memory for their bodies; members use other memory.
    pub pool: Pool,
    /// Connections of all guests together, in all I/O threads.
    pub max_connections: usize,
    /// Bytes of one body that are granted beyond what was released.
    pub window_bytes: u32,
    /// Requests that one connection may have open.
    pub max_streams: u32,
    /// Bytes of bodies inside them.
    pub inline_bytes: u32,
    /// What is shared with those on the same machine; None: nothing is.
    pub shared: Option<Regions>,
}

impl Guests {
    /// The usual limits.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            max_connections: 2048,
            window_bytes: 1 << 20,
            max_streams: 128,
            inline_bytes: 1 << 20,
            shared: None,
        }
    }

    /// `lent`: whether memory can be shared on this connection.
    fn limits(&self, lent: bool) -> Limits {
        Limits {
            window_bytes: self.window_bytes,
            lent: lent && self.shared.is_some(),
            streams: self.max_streams,
            inline_bytes: self.inline_bytes,
        }
    }
}

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name by which others know it.
    pub name: String,
    /// The machine that it runs on, for example its boot id. Processes with the same value are on the same node.
    pub machine: String,
    /// The cluster's keys, the preferred one first.
    pub keys: Vec<Key>,
    /// Whether guests are let in beside those who have a key, and what they are given.
    pub guests: Option<Guests>,
    /// Its memory for bodies.
    pub pool: Pool,
    /// I/O threads.
    pub threads: usize,
    /// Bytes of one body that are granted beyond what was released; at least one chunk is.
    pub window_bytes: u32,
    /// Requests that one connection may have open here.
    pub max_streams: u32,
    /// Bytes of bodies inside them.
    pub inline_bytes: u32,
    /// Connections that are accepted per I/O thread.
    pub max_connections: usize,
    /// Calls that may wait per peer.
    pub max_waiting: usize,
    /// How long a peer may be silent before its connection is closed.
    pub silence: Duration,
}

impl Config {
    /// A configuration with the usual limits.
    #[must_use]
    pub fn new(name: &str, machine: &str, keys: Vec<Key>, pool: Pool) -> Self {
        Self {
            name: name.to_owned(),
            machine: machine.to_owned(),
            keys,
            guests: None,
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

/// The settings that all threads read.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) keys: RwLock<Vec<Key>>,
    /// The session by which this node connects, and its secret; without one it is a member.
    pub(crate) session: RwLock<Option<(Session, Key)>>,
    pub(crate) guests: Option<Guests>,
    /// Connections that guests have.
    pub(crate) guests_open: AtomicUsize,
    /// Copies from what guests show.
    pub(crate) copies: Copies,
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

    /// What this node proves itself by when it connects.
    pub(crate) fn credentials(&self) -> Credentials {
        match &*self.session.read().unwrap_or_else(PoisonError::into_inner) {
            Some((session, secret)) => Credentials::Guest(*session, secret.clone()),
            None => Credentials::Member(self.keys()),
        }
    }

    /// The limits of guests, if they are let in; `lent`: whether memory can be shared on this connection.
    pub(crate) fn guest_limits(&self, lent: bool) -> Option<Limits> {
        self.guests.as_ref().map(|guests| guests.limits(lent))
    }

    pub(crate) fn limits(&self, lent: bool) -> Limits {
        Limits { window_bytes: self.window_bytes, lent, streams: self.max_streams, inline_bytes: self.inline_bytes }
    }

    pub(crate) fn identity(&self, lent: bool) -> Identity {
        Identity { name: self.name.clone(), machine: self.machine.clone(), limits: self.limits(lent) }
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
