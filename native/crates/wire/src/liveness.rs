//! When to send a sign of life, and when to consider the peer dead. Times are milliseconds of any monotonic clock.

use crate::limits::PING_AFTER_MS;

/// The silence of both sides of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    heard_ms: u64,
    said_ms: u64,
    dead_after_ms: u64,
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// Nothing before this time.
    QuietUntil(u64),
    /// Send something.
    Ping,
    /// The peer is dead.
    Dead,
}

impl Liveness {
    /// A connection that has just been made, whose peer may be silent for `dead_after_ms`
    /// ([`crate::limits::DEAD_AFTER_MS`] by default).
    #[must_use]
    pub fn new(now_ms: u64, dead_after_ms: u64) -> Self {
        Self { heard_ms: now_ms, said_ms: now_ms, dead_after_ms }
    }

    /// Record that bytes were received.
    pub fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// Record that bytes were sent.
    pub fn said(&mut self, now_ms: u64) {
        self.said_ms = now_ms;
    }

    /// What is due. `now_ms` may have jumped by any time: a process that was suspended and continues finds its peers'
    /// bytes waiting, so the caller reads before it asks.
    #[must_use]
    pub fn pulse(&self, now_ms: u64) -> Pulse {
        if now_ms.saturating_sub(self.heard_ms) >= self.dead_after_ms {
            return Pulse::Dead;
        }
        if now_ms.saturating_sub(self.said_ms) >= PING_AFTER_MS {
            return Pulse::Ping;
        }
        Pulse::QuietUntil((self.heard_ms + self.dead_after_ms).min(self.said_ms + PING_AFTER_MS))
    }
}
