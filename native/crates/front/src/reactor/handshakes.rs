//! TLS handshakes, within limits of number and time.
//!
//! Fault model: anybody may connect and say nothing, say wrong things, or begin many handshakes at once. In a turn of
//! the thread handshakes take [`HANDSHAKE_TIME`] and the rest of one step, so that other connections go on.

use std::time::{Duration, Instant};

use super::{ACCEPTED_AT_ONCE, IDLE_AT_LEAST, Reactor, Slot, Then, number};
use crate::connection::{Read, State};

/// The largest number of handshakes at a time; more wait to be accepted.
pub(crate) const MAX_HANDSHAKES: usize = 1024;
/// What handshakes may take in one turn.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// The same when the process is about to end.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// How long a handshake may take.
pub(super) fn patience(leaving: bool) -> Duration {
    if leaving { LAST_PATIENCE } else { PATIENCE }
}

impl Reactor {
    /// Take the next step of a handshake, now or when others have had their turn.
    pub(super) fn shake_hands(&mut self, index: usize) -> Then {
        if self.handshake_time.is_zero() {
            self.later.push_back(number(index, self.slots[index].generation));
            return Then::Wait;
        }
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        if !connection.readable {
            return Then::Wait;
        }
        let begun = Instant::now();
        let read = connection.fill(&mut self.scratch);
        let now = Instant::now();
        self.handshake_time = self.handshake_time.saturating_sub(now.saturating_duration_since(begun));
        let Some(tls) = &connection.link.tls else { return Then::Close };
        if matches!(read, Read::End) {
            tls.count_failed(false);
            return Then::Close;
        }
        if tls.is_handshaking() {
            return if connection.readable { Then::GoOn } else { Then::Wait };
        }
        tls.count_completed();
        connection.state = State::Idle;
        connection.active = now;
        self.handshaking -= 1;
        Then::GoOn
    }

    /// End a connection whose time is over.
    pub(super) fn end_late(&mut self, index: usize) {
        if let Some(connection) = self.end(index)
            && let (State::Handshaking, Some(tls)) = (&connection.state, &connection.link.tls)
        {
            tls.count_failed(true);
        }
    }

    /// End some of the handshakes that have lasted longest, as others wait to be accepted.
    pub(super) fn end_slow_handshakes(&mut self, now: Instant) {
        let since = |(index, slot): (usize, &Slot)| {
            let one = slot.connection.as_ref().filter(|one| matches!(one.state, State::Handshaking))?;
            (now.saturating_duration_since(one.active) >= IDLE_AT_LEAST).then_some((one.active, index))
        };
        let mut slow: Vec<(Instant, usize)> = self.slots.iter().enumerate().filter_map(since).collect();
        slow.sort_unstable();
        for (_, index) in slow.into_iter().take(ACCEPTED_AT_ONCE) {
            self.end_late(index);
        }
    }
}
