//! Long answers: their bytes are passed on from a device to the client as they come.
//!
//! What a client does not take stays in the transport's memory, and its device sends no more than that: see
//! [`super::reserved`].
//!
//! Fault model: a device may fail at any byte, be silent, or send what is wrong: another one is asked for the rest of the
//! same version, also one that failed before if others have sent some since. When there is none, or wrong bytes were sent,
//! the connection ends: a short body must not look complete. The client may stop or go away at any byte. What comes of
//! several devices is that of [`super::gathering`].

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use swiftlet_node::Status;
use swiftlet_node::message::{Found, Request};
use swiftlet_store::model::Key;
use swiftlet_transport::{Chunk, What};

use super::calls::call;
use super::reserved::{FLOW_BYTES, share_of};
use super::{Reactor, Then, number};
use crate::answer::{self, Given, LARGE_BYTES};
use crate::connection::{Sending, State, Writing};
use crate::queue::PARTS;
use crate::shared::Served;
use crate::source::{FromDevice, Source};

/// What a connection is sent before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// In the access log: the client read nothing for too long.
const SLOW: u16 = 408;
/// The client has closed the connection.
pub(super) const GONE: u16 = 499;
/// No device has the rest.
pub(super) const UNAVAILABLE: u16 = 503;

impl Reactor {
    /// Ask the device of an attempt for other bytes than before, which its description of the object has shown to be
    /// those that the client is to get.
    pub(super) fn ask_again(&mut self, index: usize, attempt: u8, (start, stop): (u64, u64), now: Instant) {
        let number = number(index, self.slots[index].generation);
        let Some(connection) = &mut self.slots[index].connection else { return };
        let next = connection.next_attempt();
        let State::Asking(asking) = &mut connection.state else { return };
        let bytes = stop - start;
        let has_room = self.reserved.has_room(bytes, asking.reserved, self.shared.settings.large_bytes);
        let asked = asking.attempts.iter().flatten().find(|one| one.id == attempt);
        let (Some(one), Some(key), true, false) = (asked, key_of(&asking.request), has_room, asking.is_second) else {
            return self.hand_over(index);
        };
        let device = Arc::clone(&one.device);
        device.took(now.saturating_duration_since(one.begun));
        asking.attempts.iter().flatten().for_each(|one| one.ticket.cancel());
        self.reserved.all = self.reserved.all - asking.reserved + share_of(bytes);
        asking.reserved = share_of(bytes);
        asking.is_second = true;
        asking.request = Request::Get { key, start, stop, whole: 0, proved: true };
        let late = device.late().map(|late| now + late);
        asking.late = late;
        let first = call(&self.shared, &self.devices, device, &asking.request, (number, next), &asking.id, now);
        let is_asked = first.is_some();
        asking.attempts = [first, None];
        connection.active = now;
        self.hedging.begin(late, number);
        if !is_asked {
            self.hand_over(index);
        }
    }

    /// Begin the answer of which an attempt has brought the first bytes.
    pub(super) fn begin_flow(&mut self, index: usize, attempt: u8, first: Chunk, now: Instant) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Asking(asking) = &mut connection.state else { return };
        let Some(key) = key_of(&asking.request) else { return };
        let large_bytes = self.shared.settings.large_bytes;
        if !self.reserved.has_room(LARGE_BYTES + 1, asking.reserved, large_bytes) {
            return self.hand_over(index);
        }
        let mut taken = None;
        for slot in &mut asking.attempts {
            let Some(mut one) = slot.take() else { continue };
            one.device.took(now.saturating_duration_since(one.begun));
            match one.coming.take().filter(|_| one.id == attempt) {
                Some(weighed) => taken = Some((one, weighed)),
                None => one.ticket.cancel(),
            }
        }
        let Some((attempt, weighed)) = taken else { return self.hand_over(index) };
        let State::Asking(asking) = mem::replace(&mut connection.state, State::Idle) else { return };
        self.reserved.all = self.reserved.all - asking.reserved + FLOW_BYTES;
        self.reserved.flows += FLOW_BYTES;
        let (info, outcome, flow) = weighed.flow();
        let close = asking.close || (self.leaving && connection.has_only(asking.bytes));
        let head = answer::head(&info, outcome, &Given { id: &asking.id, date: &self.date.1, close });
        let path = connection.read[asking.target.clone()].to_vec();
        connection.answers(asking.bytes, now);
        let id = attempt.id;
        let source = Source::Device(Box::new(FromDevice::new(flow, key, attempt)));
        connection.state = State::Sending(Box::new(Sending {
            head,
            head_sent: 0,
            source,
            waits: None,
            seen_sent: 0,
            method: asking.method,
            path,
            status: outcome.status(),
            close,
            id: asking.id,
            begun: asking.begun,
        }));
        self.flowed(index, id, What::Chunk(first));
    }

    /// Handle what has come from the device that sends a long answer.
    pub(super) fn flowed(&mut self, index: usize, attempt: u8, what: What) {
        let now = Instant::now();
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Sending(sending) = &mut connection.state else { return };
        let Source::Device(from) = &mut sending.source else { return self.assembled(index, attempt, what) };
        if from.attempt.id != attempt {
            return; // It was cancelled.
        }
        let flow = &mut from.flow;
        let (is_good, is_failure) = match what {
            What::Sent(_) => return,
            What::Reply { status, header, body, whole, .. } if status == Status::Ok as u16 => {
                let is_same = Found::decode(&header).is_ok_and(|found| flow.goes_on(&found));
                let is_good = is_same && body.is_none_or(|body| flow.take(body)) && (!whole || flow.ended(&[]));
                (is_good, false)
            }
            What::Reply { .. } => (false, false),
            What::Chunk(chunk) => (flow.take(chunk), true),
            What::End(footer) => (flow.ended(&footer), true),
            What::Failed(_) => (false, true),
        };
        if !is_good {
            return self.replace(index, is_failure, now);
        }
        if sending.waits.take().is_some() {
            connection.active = now;
        }
        self.go_on(index);
    }

    /// Ask another device for the rest.
    fn replace(&mut self, index: usize, has_failed: bool, now: Instant) {
        let number = number(index, self.slots[index].generation);
        let Some(connection) = &mut self.slots[index].connection else { return };
        let next = connection.next_attempt();
        let State::Sending(sending) = &mut connection.state else { return };
        let Source::Device(from) = &mut sending.source else { return };
        let rest = from.lost(has_failed, now);
        let key = from.key;
        let policy = self.shared.policy(key.policy);
        let device = policy.and_then(|policy| policy.another(key.partition, &from.tried, now));
        let (Some(device), Some((start, stop))) = (device, rest) else {
            return self.cut(index, UNAVAILABLE);
        };
        // Any device will do that has the version which is being read.
        let request = Request::Get { key, start, stop, whole: 0, proved: false };
        match call(&self.shared, &self.devices, device, &request, (number, next), &sending.id, now) {
            Some(attempt) => from.attempt = attempt,
            None => return self.cut(index, UNAVAILABLE),
        }
        sending.waits = None;
        // It waits again if nothing is left to be sent.
        self.go_on(index);
    }

    /// Send what has come of a long answer.
    pub(super) fn send_on(&mut self, index: usize) -> Then {
        let number = number(index, self.slots[index].generation);
        let mut left = TURN_BYTES;
        let mut now = Instant::now();
        let Some(connection) = &self.slots[index].connection else { return Then::Wait };
        let State::Sending(sending) = &connection.state else { return Then::GoOn };
        if self.may_have_changed(&sending.source, now) {
            self.cut(index, UNAVAILABLE);
            return Then::Wait;
        }
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        let State::Sending(sending) = &mut connection.state else { return Then::GoOn };
        let before = sending.source.queue().sent_bytes();
        let mut is_blocked = false;
        loop {
            let mut parts = [&[][..]; PARTS];
            let count = sending.fill(&mut parts);
            if count == 0 {
                break;
            }
            if left == 0 {
                self.later.push_back(number);
                is_blocked = true;
                break;
            }
            match connection.link.send_all(&parts[..count]) {
                Ok(0) => {
                    is_blocked = true;
                    break;
                }
                Ok(sent) => {
                    sending.sent(sent);
                    left = left.saturating_sub(sent);
                    now = Instant::now();
                    connection.active = now;
                }
                Err(_) => {
                    self.cut(index, GONE);
                    return Then::Wait;
                }
            }
        }
        // There may be room for more.
        sending.source.taken(sending.source.queue().sent_bytes() - before);
        if is_blocked || !sending.source.is_over() {
            if !is_blocked {
                match connection.link.flush() {
                    Ok(true) => {
                        sending.waits.get_or_insert(now);
                    }
                    Ok(false) => {}
                    Err(_) => {
                        self.cut(index, GONE);
                        return Then::Wait;
                    }
                }
            }
            self.look_later(index, now);
            return Then::Wait;
        }
        let State::Sending(sending) = mem::replace(&mut connection.state, State::Idle) else { return Then::GoOn };
        let Sending { source, method, path, status, close, id, begun, .. } = *sending;
        let body_bytes = source.queue().sent_bytes();
        let (left, sent, reserved, received) = (Vec::new(), 0, 0, 0);
        let writing = Writing { left, sent, reserved, method, path, status, received, body_bytes, close, id, begun };
        connection.state = State::Writing(Box::new(writing));
        self.let_go(&source);
        Then::GoOn
    }

    /// Replace the devices of long answers that were waited for too long, and end the connections of clients that took
    /// nothing for too long. The devices of coded objects replace each other by themselves. What a client has not taken for
    /// a moment leaves the memory of devices that send no more.
    pub(super) fn check_flows(&mut self, now: Instant) {
        let settings = &self.shared.settings;
        let (answer_timeout, client_timeout) = (settings.answer_timeout, settings.client_timeout);
        let (mut silent, mut slow) = (Vec::new(), Vec::new());
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(connection) = &mut slot.connection else { continue };
            let State::Sending(sending) = &mut connection.state else { continue };
            match sending.waits {
                Some(since) if now.saturating_duration_since(since) > answer_timeout => silent.push(index),
                None if now.saturating_duration_since(connection.active) > client_timeout => slow.push(index),
                _ => {}
            }
            let sent = sending.source.queue().sent_bytes();
            if mem::replace(&mut sending.seen_sent, sent) == sent {
                sending.source.copy();
            }
        }
        silent.into_iter().for_each(|index| self.replace(index, true, now));
        slow.into_iter().for_each(|index| self.cut(index, SLOW));
    }

    /// Do without what a long answer has reserved.
    pub(super) fn let_go(&mut self, source: &Source) {
        match source {
            Source::Device(_) => {
                self.reserved.all -= FLOW_BYTES;
                self.reserved.flows -= FLOW_BYTES;
            }
            Source::Places(from) => self.unreserve(&from.reading),
        }
    }

    /// End the connection in the middle of a long answer.
    pub(super) fn cut(&mut self, index: usize, status: u16) {
        let Some(connection) = self.end(index) else { return };
        let State::Sending(sending) = connection.state else { return };
        let Sending { method, path, id, begun, source, .. } = *sending;
        let (remote, took, bytes) = (connection.remote, begun.elapsed(), source.queue().sent_bytes());
        self.shared.served(Served { method, path, status, received: 0, bytes, took, remote, id });
    }
}

fn key_of(request: &Request) -> Option<Key> {
    match request {
        Request::Get { key, .. } | Request::Head { key, .. } => Some(*key),
        _ => None,
    }
}
