//! The peers that calls are made to: one connection each, made when it is needed, kept, and made again with growing
//! pauses after failures.
//!
//! While a connection is being made, calls wait, up to a limit and their deadlines. After a failure they are refused
//! at once until the pause is over: the caller has other replicas. A peer that gave no answer at all to the last attempt
//! is likely to give none to the next: then calls wait for little more than the time that its last handshake took, and
//! the attempt goes on without them. Otherwise each attempt would hold up calls for as long as it is tried, and a host
//! without power or a region that is cut off would make reads slow that have to ask it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::api::Error;
use crate::around::{Around, Outcome, refuse};
use crate::command::Submit;
use crate::connection::{Connection, Fail, Side};
use crate::key::Key;
use crate::link::{Address, Fabric, Link};
use crate::metrics::PeerMetrics;
use crate::pool::Chunk;

/// Pauses between attempts: doubled each time, up to the last. That one is short, because a peer that is up again can't
/// be reached before it is over: if another peer is away then, the newest version of a quorum may be out of reach.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// How long calls wait at least for a peer that was silent, unless they are refused for another reason.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

/// The pause after so many failures and one more.
fn pause_after(failures: u32) -> Duration {
    (FIRST_PAUSE * 2_u32.saturating_pow(failures.min(16))).min(LAST_PAUSE)
}

struct Peer {
    address: Address,
    name: Arc<str>,
    metrics: Arc<PeerMetrics>,
    current: Option<Key>,
    connecting: Option<Key>,
    /// All connections that are not closed, including those that only finish their requests.
    all: Vec<Key>,
    /// The fabric of the current attempt.
    fabric: usize,
    waiting: VecDeque<Box<Submit>>,
    failures: u32,
    not_before: Option<(Instant, String)>,
    /// When the current attempt began.
    began: Option<Instant>,
    /// How long the last attempt took that succeeded.
    took: Duration,
    /// The last attempt has failed without any answer.
    is_silent: bool,
}

#[derive(Default)]
pub(crate) struct Peers(Vec<Peer>);

impl Peer {
    /// Begin an attempt by the first of the fabrics from `self.fabric` on that can begin one. `why`: the error if
    /// there is none.
    fn connect(
        &mut self,
        around: &mut Around<'_>,
        fabrics: &[Arc<dyn Fabric>],
        mut why: String,
    ) -> Option<Box<dyn Link>> {
        while let Some(fabric) = fabrics.get(self.fabric) {
            match fabric.connect(&self.address) {
                Ok(Some(link)) => return Some(link),
                Ok(None) => {}
                Err(error) => {
                    self.metrics.connect_failures.fetch_add(1, Relaxed);
                    why = error.to_string();
                }
            }
            self.fabric += 1;
        }
        self.pause(around, &why);
        None
    }

    /// Until when calls wait for the current attempt; `None` if only their deadlines end that.
    fn patience(&self) -> Option<Instant> {
        self.began.filter(|_| self.is_silent).map(|began| began + LEAST_PATIENCE.max(self.took * 2))
    }

    fn is_given_up(&self, now: Instant) -> bool {
        self.patience().is_some_and(|until| until <= now)
    }

    /// Why a call is refused that does not wait any longer.
    fn still_silent(&self) -> Error {
        let why = self.not_before.as_ref().map_or("it does not answer", |(_, why)| why.as_str());
        Error::Unreachable(why.to_owned())
    }

    fn pause(&mut self, around: &mut Around<'_>, why: &str) {
        let pause = pause_after(self.failures);
        // Spread over a quarter, so that those who lost the same peer do not come back together.
        let spread = pause / 4 * (around.now_ms.wrapping_mul(0x9e37_79b9) >> 7 & 0xff) as u32 / 256;
        self.failures += 1;
        self.is_silent = false;
        self.fabric = 0;
        self.not_before = Some((around.now + pause - spread, why.to_owned()));
        for submit in self.waiting.drain(..) {
            refuse(around.outcome, &submit, Error::Unreachable(why.to_owned()));
        }
    }
}

impl Peers {
    pub(crate) fn add(&mut self, address: Address, metrics: Arc<PeerMetrics>) {
        self.0.push(Peer {
            name: Arc::from(address.name.as_str()),
            address,
            metrics,
            current: None,
            connecting: None,
            all: Vec::new(),
            fabric: 0,
            waiting: VecDeque::new(),
            failures: 0,
            not_before: None,
            began: None,
            took: Duration::ZERO,
            is_silent: false,
        });
    }

    /// Name and counters for a connection: the peer's; for an accepted one its handshake reveals them.
    pub(crate) fn named(&self, side: Side) -> (Arc<str>, Arc<PeerMetrics>) {
        match side {
            Side::Client(peer) => (Arc::clone(&self.0[peer].name), Arc::clone(&self.0[peer].metrics)),
            Side::Server => (Arc::from(""), Arc::default()),
        }
    }

    pub(crate) fn current(&self, peer: usize) -> Option<Key> {
        self.0[peer].current
    }

    pub(crate) fn connections(&self, peer: usize) -> Vec<Key> {
        self.0[peer].all.clone()
    }

    /// Add a call without a connection. Returns a link if one is to be made.
    pub(crate) fn wait(
        &mut self,
        submit: Box<Submit>,
        around: &mut Around<'_>,
        fabrics: &[Arc<dyn Fabric>],
    ) -> Option<Box<dyn Link>> {
        let peer = &mut self.0[submit.peer];
        if let Some((not_before, why)) = &peer.not_before
            && around.now < *not_before
        {
            refuse(around.outcome, &submit, Error::Unreachable(why.clone()));
            return None;
        }
        if peer.waiting.len() >= around.settings.max_waiting {
            refuse(around.outcome, &submit, Error::Overloaded);
            return None;
        }
        if peer.connecting.is_some() {
            if peer.is_given_up(around.now) {
                refuse(around.outcome, &submit, peer.still_silent());
            } else {
                peer.waiting.push_back(submit);
            }
            return None;
        }
        peer.waiting.push_back(submit);
        peer.fabric = 0;
        peer.began = Some(around.now);
        peer.connect(around, fabrics, "its address is not known".to_owned())
    }

    pub(crate) fn connecting(&mut self, peer: usize, key: Key) {
        self.0[peer].connecting = Some(key);
        self.0[peer].all.push(key);
    }

    /// The handshake has succeeded: begin the waiting calls.
    pub(crate) fn opened(&mut self, connection: &mut Connection, around: &mut Around<'_>) {
        let Side::Client(peer) = connection.side else { return };
        let peer = &mut self.0[peer];
        peer.connecting = None;
        peer.current = Some(connection.key());
        peer.failures = 0;
        peer.not_before = None;
        peer.is_silent = false;
        peer.took = peer.began.map_or(Duration::ZERO, |began| around.now.saturating_duration_since(began));
        for submit in peer.waiting.drain(..) {
            // It can't fail: what can is found when it is written.
            let _ = connection.submit(around, submit);
        }
    }

    /// Make no new calls on this connection.
    pub(crate) fn retire(&mut self, peer: usize, key: Key) {
        let current = &mut self.0[peer].current;
        if *current == Some(key) {
            *current = None;
        }
    }

    /// A connection is gone. If it was never open, the next fabric is tried: returns its link, and the peer.
    pub(crate) fn closed(
        &mut self,
        connection: &Connection,
        fail: &Fail,
        around: &mut Around<'_>,
        fabrics: &[Arc<dyn Fabric>],
    ) -> Option<(Box<dyn Link>, usize)> {
        let Side::Client(index) = connection.side else { return None };
        self.retire(index, connection.key());
        let peer = &mut self.0[index];
        peer.all.retain(|key| *key != connection.key());
        if peer.connecting != Some(connection.key()) {
            return None;
        }
        peer.connecting = None;
        peer.fabric += 1;
        if matches!(fail, Fail::Stopped) {
            peer.pause(around, &fail.to_string());
            return None;
        }
        let Some(link) = peer.connect(around, fabrics, fail.to_string()) else {
            // By the last fabric: as long as there is another one, this may be a matter of the fabric.
            peer.is_silent = matches!(fail, Fail::Slow);
            return None;
        };
        peer.metrics.fallbacks.fetch_add(1, Relaxed);
        Some((link, index))
    }

    fn waiting(&mut self, peer: usize, stream: u64) -> Option<&mut Box<Submit>> {
        self.0[peer].waiting.iter_mut().find(|submit| submit.stream == stream)
    }

    /// Add a piece of an upload; it is returned if the call does not wait here.
    pub(crate) fn push(&mut self, peer: usize, stream: u64, chunk: Chunk) -> Option<Chunk> {
        match self.waiting(peer, stream) {
            Some(submit) => {
                submit.pieces.push_back(chunk);
                None
            }
            None => Some(chunk),
        }
    }

    /// Add the end of an upload; it is returned if the call does not wait here.
    pub(crate) fn finish(&mut self, peer: usize, stream: u64, footer: Vec<u8>) -> Option<Vec<u8>> {
        match self.waiting(peer, stream) {
            Some(submit) => {
                submit.end = Some(footer);
                None
            }
            None => Some(footer),
        }
    }

    /// Cancel a call that waits here. Returns whether it did.
    pub(crate) fn cancel(&mut self, peer: usize, stream: u64, outcome: &mut Outcome) -> bool {
        let waiting = &mut self.0[peer].waiting;
        let Some(at) = waiting.iter().position(|submit| submit.stream == stream) else { return false };
        if let Some(submit) = waiting.remove(at) {
            refuse(outcome, &submit, Error::Cancelled);
        }
        true
    }

    /// End calls whose deadline is over. Returns whether any wait.
    pub(crate) fn tick(&mut self, around: &mut Around<'_>) -> bool {
        let mut busy = false;
        for peer in &mut self.0 {
            if peer.is_given_up(around.now) {
                let calls = mem::take(&mut peer.waiting);
                calls.iter().for_each(|submit| refuse(around.outcome, submit, peer.still_silent()));
            }
            peer.waiting.retain(|submit| {
                let over = submit.deadline <= around.now;
                if over {
                    refuse(around.outcome, submit, Error::Deadline);
                }
                !over
            });
            busy |= !peer.waiting.is_empty();
        }
        busy
    }

    /// The process stops.
    pub(crate) fn stop(&mut self, outcome: &mut Outcome) {
        for peer in &mut self.0 {
            for submit in peer.waiting.drain(..) {
                refuse(outcome, &submit, Error::Unreachable(Fail::Stopped.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_none_is_longer_than_a_second() {
        let pauses: Vec<_> = (0..7).map(|failures| pause_after(failures).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause_after(u32::MAX), Duration::from_secs(1));
    }
}
