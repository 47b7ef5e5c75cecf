//! Requests to devices on behalf of clients, and the handling of their answers.
//!
//! Fault model: that of the thread: devices may refuse, be silent, send damaged data, or be lost; then the request is
//! handed over before any byte of an answer was sent.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;
use swiftlet_hash::beside::Threads;
use swiftlet_hash::md5_of_each;
use swiftlet_node::Status;
use swiftlet_node::message::Request;
use swiftlet_transport::{Chunk, Event, Sink, Ticket, What};

use super::calls::{call, place_of};
use super::checks::begin_check;
use super::gathering::Begun;
use super::reserved::limit_for;
use super::{REPLICA_SHIFT, Reactor, Then, number};
use crate::answer::{self, Given};
use crate::attempt::Attempt;
use crate::body::{Body, Content};
use crate::checking::{Checked, Queued};
use crate::connection::{Asking, Connection, Queueing, State, Storing, Writing};
use crate::grants::{Granted, Holder};
use crate::head::{self, Asked, MAX_DIGESTED_BODY, Method, PIECE, SHORT_BODY};
use crate::link::Link;
use crate::made::Made;
use crate::name;
use crate::queueing::{may_expire, task};
use crate::reading::{self, Lacks, Told, Weighed};
use crate::receiving::Come;
use crate::routes::Policy;
use crate::shared::{Command, Shared};
use crate::storing::planned;
use crate::undecided::Next;

impl Reactor {
    /// Ask a device for the request in the bytes that were read.
    pub(super) fn ask(&mut self, index: usize) -> Then {
        let number = number(index, self.slots[index].generation);
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        let now = Instant::now();
        let Some(asked) = head::parse(&connection.read) else { return Then::HandOver };
        if asked.method.writes() {
            return self.store(index, None, None);
        }
        let granted = match granted(&self.shared, &asked, now) {
            Decision::Granted(granted) => granted,
            Decision::None(holder) => return self.undecided(index, &holder, now),
            Decision::HandOver => return Then::HandOver,
        };
        let Some((policy, key)) = place_of(&self.shared, &asked, &granted) else { return Then::HandOver };
        if policy.coding().is_some() {
            let begun = Begun::of(&asked);
            return self.gather(index, begun, (&policy, key), now);
        }
        let Some((limit, reserved)) = limit_for(&asked, self.reserved, self.shared.settings.large_bytes) else {
            return Then::HandOver;
        };
        let Some(device) = policy.choose(key.partition, self.random.number(), now) else { return Then::HandOver };
        let request = reading::request(&asked, key, limit);
        let id = self.random.id();
        let start = asked.method.name().len() + 1;
        let (method, target) = (asked.method, start..start + asked.target.len());
        let (bytes, close) = (asked.bytes, !asked.keep_alive);
        let late = device.late().map(|late| now + late);
        let attempt = connection.next_attempt();
        let Some(first) = call(&self.shared, &self.devices, device, &request, (number, attempt), &id, now) else {
            return Then::HandOver;
        };
        self.hedging.begin(late, number);
        let attempts = [Some(first), None];
        let is_second = false;
        let asking =
            Asking { method, target, bytes, close, id, begun: now, request, attempts, late, is_second, reserved };
        self.reserved.all += reserved;
        connection.state = State::Asking(Box::new(asking));
        Then::Wait
    }

    /// Let a request without a grant wait until Python has decided, unless it has.
    fn undecided(&mut self, index: usize, holder: &Holder, now: Instant) -> Then {
        let number = number(index, self.slots[index].generation);
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        if connection.is_decided || self.leaving {
            return Then::HandOver;
        }
        match self.undecided.wait(holder, number, now) {
            Next::HandOver => return Then::HandOver,
            Next::Ask => self.shared.undecided(holder.clone()),
            Next::Wait => {}
        }
        connection.state = State::Deciding;
        connection.active = now;
        Then::Wait
    }

    /// Go on with the requests that waited for this decision.
    pub(super) fn decided(&mut self, holder: Holder, is_granted: bool, now: Instant) {
        for number in self.undecided.decided(holder, is_granted, now) {
            let Some(index) = self.index_of(number) else { continue };
            let Some(connection) = &mut self.slots[index].connection else { continue };
            if matches!(connection.state, State::Deciding) {
                connection.state = State::Idle;
                connection.is_decided = true;
                self.go_on(index);
            }
        }
    }

    pub(super) fn answers(&mut self) {
        for Event { token, what } in self.devices.drain() {
            let Some(index) = self.index_of(token) else { continue };
            match self.slots[index].connection.as_ref().map(|one| &one.state) {
                Some(State::Asking(_)) => self.answered(index, (token >> REPLICA_SHIFT & 0xff) as u8, what),
                Some(State::Sending(_)) => self.flowed(index, (token >> REPLICA_SHIFT & 0xff) as u8, what),
                Some(State::Gathering(_)) => self.gathered(index, (token >> REPLICA_SHIFT & 0xff) as u8, what),
                Some(State::Checking(_)) => self.checked(index, (token >> REPLICA_SHIFT & 0xff) as usize, &what),
                Some(State::Storing(_)) => self.stored(index, (token >> REPLICA_SHIFT & 0xff) as usize, &what),
                _ => {}
            }
        }
        self.go_on_with_touched();
    }

    /// Ask a second device for those reads whose first one is late.
    pub(super) fn hedge(&mut self, now: Instant) {
        while let Some(number) = self.hedging.late(now) {
            if let Some(index) = self.index_of(number) {
                self.ask_another(index, number, now);
            }
        }
    }

    fn ask_another(&mut self, index: usize, number: u64, now: Instant) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        let attempt = connection.next_attempt();
        let State::Asking(asking) = &mut connection.state else { return };
        if asking.late.is_none_or(|late| late > now) {
            return; // It was another request.
        }
        asking.late = None;
        let [Some(Attempt { device, coming: None, .. }), second @ None] = &mut asking.attempts else { return };
        let (Request::Get { key, .. } | Request::Head { key, .. }) = &asking.request else { return };
        let Some(policy) = self.shared.policy(key.policy) else { return };
        let Some(other) = policy.choose_but(Some(device), key.partition, self.random.number(), now) else { return };
        if self.hedging.take() {
            *second = call(&self.shared, &self.devices, other, &asking.request, (number, attempt), &asking.id, now);
            self.shared.hedged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn answered(&mut self, index: usize, attempt: u8, what: What) {
        let now = Instant::now();
        self.refresh_date();
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Asking(asking) = &mut connection.state else { return };
        let Some(slot) = asking.attempts.iter_mut().find(|one| one.as_ref().is_some_and(|one| one.id == attempt))
        else {
            return; // It was cancelled.
        };
        let Some(one) = slot else { return };
        let good = match what {
            What::Sent(_) => return,
            What::Reply { status, header, body, whole, .. } if status == Status::Ok as u16 => {
                let asked = head::parse(&connection.read);
                let read = reading::to_read(&asking.request);
                let now_s = self.clock.now_s();
                let weigh = |asked: Asked<'_>| Weighed::of(asked.method, &asked.wanted, read, &header, now_s);
                match asked.and_then(weigh).map(|weighed| (weighed.lacks(), weighed)) {
                    Some((Lacks::Others(start, stop), _)) => return self.ask_again(index, attempt, (start, stop), now),
                    Some((Lacks::Nothing, weighed)) => {
                        one.ticket.cancel();
                        Some(weighed.described())
                    }
                    Some((_, weighed)) if whole => weighed.told(body),
                    None => None,
                    Some((_, weighed)) => {
                        one.coming = Some(Box::new(weighed));
                        return;
                    }
                }
            }
            What::Chunk(chunk) => {
                if one.coming.as_ref().is_some_and(|coming| coming.lacks() == Lacks::Flow) {
                    return self.begin_flow(index, attempt, chunk, now);
                }
                if one.coming.as_mut().is_some_and(|coming| coming.take(chunk)) {
                    return;
                }
                None
            }
            What::End(footer) => one.coming.take().and_then(|coming| coming.ended(&footer)),
            What::Reply { status, .. } if status == Status::Unproved as u16 => {
                one.device.unproved(now);
                None
            }
            What::Failed(_) => {
                one.device.failed(now);
                None
            }
            _ => None,
        };
        let Some(Told { info, outcome, body }) = good else {
            if let Some(one) = slot.take() {
                // There may be more of what is of no use.
                one.ticket.cancel();
            }
            // Another device may still have it.
            if asking.attempts.iter().all(Option::is_none) {
                self.hand_over(index);
            }
            return;
        };
        for one in asking.attempts.iter().flatten() {
            // What a device has not answered takes so long at least.
            one.device.took(now.saturating_duration_since(one.begun));
            if one.id != attempt {
                one.ticket.cancel();
            }
        }
        let State::Asking(asking) = mem::replace(&mut connection.state, State::Idle) else { return };
        let close = asking.close || (self.leaving && connection.has_only(asking.bytes));
        let head = answer::head(&info, outcome, &Given { id: &asking.id, date: &self.date.1, close });
        let path = connection.read[asking.target].to_vec();
        let Asking { method, id, begun, bytes, reserved, .. } = *asking;
        let (status, body_bytes) = (outcome.status(), body.iter().map(|part| part.len() as u64).sum());
        let (left, sent, received) = (Vec::new(), 0, 0);
        let writing = Writing { left, sent, reserved, method, path, status, received, body_bytes, close, id, begun };
        self.begin_answer(index, bytes, writing, &head, body, now);
    }

    /// Send the answer to a request of so many bytes. What the kernel does not take at once is copied, so that a slow
    /// client does not keep the memory of devices.
    pub(super) fn begin_answer(
        &mut self,
        index: usize,
        bytes: usize,
        mut writing: Writing,
        head: &[u8],
        body: Vec<Chunk>,
        now: Instant,
    ) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        connection.answers(bytes, now);
        let is_sent = begin_to_send(&mut connection.link, head, &body, &mut writing.left).is_ok();
        let reserved = writing.reserved.min(writing.left.len() as u64);
        self.reserved.all -= writing.reserved - reserved;
        writing.reserved = reserved;
        connection.state = State::Writing(Box::new(writing));
        if is_sent {
            self.go_on(index);
        } else {
            self.end(index);
        }
    }

    // Storing.

    /// Have all devices carry out the write in the bytes that were read, once it is complete and, if its ETag is one,
    /// the MD5 of its body is known: at the end of the turn, with those of others. One that is allowed only if there is
    /// no object, or may replace one that expires, is `checked` before.
    pub(super) fn store(&mut self, index: usize, md5: Option<[u8; 16]>, checked: Option<Checked>) -> Then {
        let generation = self.slots[index].generation;
        let now = Instant::now();
        let Some(connection) = &self.slots[index].connection else { return Then::Wait };
        let Some(asked) = head::parse(&connection.read) else { return Then::HandOver };
        let granted = match granted(&self.shared, &asked, now) {
            Decision::Granted(granted) => granted,
            Decision::None(holder) => return self.undecided(index, &holder, now),
            Decision::HandOver => return Then::HandOver,
        };
        let now_s = self.clock.now_s();
        if !may_expire(&asked, &granted, now_s) {
            return Then::HandOver;
        }
        if asked.body_bytes() > SHORT_BODY && !connection.has_long_body() {
            let is_long = asked.body_bytes() > PIECE;
            let expects = asked.stored.as_ref().is_some_and(|stored| stored.expects);
            // Whoever asks before it sends is not to send what is refused.
            let may_be_refused = expects && (asked.is_only_new() || !granted.pools.is_empty());
            let is_careful = (is_long || expects) && connection.body.is_none();
            if is_careful && (may_be_refused || !self.may_receive(&asked, &granted, now)) {
                return Then::HandOver;
            }
            let is_digested = is_long && is_md5_needed(&asked, &granted);
            if is_digested && asked.body_bytes() > MAX_DIGESTED_BODY {
                return Then::HandOver;
            }
            let long =
                Long { policy: granted.policy, head: asked.bytes, bytes: asked.body_bytes(), is_digested, expects };
            return self.receive_body(index, &long, now);
        }
        if connection.body.as_ref().is_some_and(|body| body.is_being_digested()) {
            return Then::Wait;
        }
        if asked.body_bytes() <= SHORT_BODY && connection.read.len() < asked.whole() {
            return self.read(index);
        }
        let is_short = asked.body_bytes() <= PIECE;
        if asked.method == Method::Put && is_short && md5.is_none() && !granted.xxh3_etags {
            self.complete.push((number(index, generation), asked.bytes..asked.whole()));
            return Then::Wait;
        }
        let length = (asked.bytes, asked.body_bytes());
        let Some(content) = Content::of(&connection.read, connection.body.as_deref(), length, md5) else {
            return Then::HandOver;
        };
        let bytes = asked.body_bytes() as u64;
        if checked.is_none() && (granted.expiring || asked.is_only_new()) {
            let checked = Checked { id: self.random.id(), begun: now, md5, queued: None };
            let (to, number) = ((&*self.shared, &self.devices), number(index, generation));
            let begun = begin_check(to, number, &asked, &content, &granted, checked);
            return begun.map_or(Then::HandOver, |checking| self.wait_for_check(index, checking));
        }
        let mut queued = checked.as_ref().and_then(|checked| checked.queued);
        let goes_at = asked.stored.as_ref().and_then(|stored| stored.goes_at(now_s));
        if let (Some(delete_at), None) = (goes_at, queued) {
            let Some(mut checked) = checked else { return Then::HandOver };
            let timestamp = self.clock.next();
            self.shared.newest.store(timestamp, Ordering::Release);
            queued = Some(Queued { timestamp, delete_at });
            let task = queued.and_then(|queued| task(&asked, &content, &granted, queued, &checked.id));
            checked.queued = queued;
            return task.map_or(Then::HandOver, |task| self.wait_for_task(index, task, checked));
        }
        let pools: &[u64] = if asked.method == Method::Put { &granted.pools } else { &[] };
        let Some(parts) = self.shared.take_room(pools, bytes, now) else { return Then::HandOver };
        let (id, begun) = checked.map_or_else(|| (self.random.id(), now), |checked| (checked.id, checked.begun));
        let (timestamp, delete_at) = match queued {
            Some(queued) => (queued.timestamp, queued.delete_at),
            None => (self.clock.next(), 0),
        };
        self.shared.newest.fetch_max(timestamp, Ordering::AcqRel);
        let plan = planned(&self.shared, &asked, &content, granted, (timestamp, id, delete_at), now);
        let Some((mut storing, calls)) = plan else {
            self.shared.give_back(&parts, bytes);
            return Then::HandOver;
        };
        storing.begun = begun;
        if let Some(made) = &mut storing.made {
            made.parts.clone_from(&parts);
        }
        let sink = Arc::clone(&self.devices) as Arc<dyn Sink>;
        self.devices.expect(number(index, generation), calls.len());
        let mut tickets = Vec::new();
        for (replica, (device, call)) in storing.devices.iter().zip(calls).enumerate() {
            let token = number(index, generation) | (replica as u64) << REPLICA_SHIFT;
            match device.peer().call(call, &sink, token) {
                Ok(ticket) if bytes > PIECE as u64 => tickets.push(ticket),
                Ok(_) => {}
                Err(_) => {
                    self.devices.forget(token);
                    tickets.iter().for_each(Ticket::cancel);
                    if replica == 0 {
                        self.shared.give_back(&parts, bytes);
                    }
                    return Then::HandOver;
                }
            }
        }
        storing.tickets = tickets;
        if let Some(connection) = &mut self.slots[index].connection {
            connection.active = now;
            connection.state = State::Storing(Box::new(storing));
            self.shared.storing.fetch_add(1, Ordering::AcqRel);
        }
        Then::Wait
    }

    /// Let a PUT wait until the expirer's task for its object is durable.
    fn wait_for_task(&mut self, index: usize, task: Made, checked: Checked) -> Then {
        let number = number(index, self.slots[index].generation);
        if let Some(connection) = &mut self.slots[index].connection {
            let attempt = connection.next_attempt();
            self.made.push(Made { token: number | u64::from(attempt) << REPLICA_SHIFT, ..task });
            connection.active = Instant::now();
            connection.state = State::Queueing(Box::new(Queueing { checked, attempt }));
        }
        Then::Wait
    }

    /// Go on with the PUT whose task is durable, or leave it to Python.
    pub(super) fn queued(&mut self, token: u64, is_durable: bool) {
        let Some(index) = self.index_of(token) else { return };
        let Some(connection) = &mut self.slots[index].connection else { return };
        let attempt = (token >> REPLICA_SHIFT & 0xff) as u8;
        if !matches!(&connection.state, State::Queueing(one) if one.attempt == attempt) {
            return; // It is that of a request before this one.
        }
        if !is_durable {
            return self.hand_over(index);
        }
        if let State::Queueing(one) = mem::replace(&mut connection.state, State::Idle) {
            let then = self.store(index, one.checked.md5, Some(one.checked));
            self.then(index, &then);
        }
    }

    /// Compute the MD5 of the bodies that became complete in this turn, and go on with their requests.
    pub(super) fn digest(&mut self) {
        let mut complete = mem::take(&mut self.complete);
        // More may have come of a connection whose body was complete already.
        complete.sort_unstable_by_key(|(number, _)| *number);
        complete.dedup_by_key(|(number, _)| *number);
        let mut found = Vec::with_capacity(complete.len());
        for (number, body) in complete {
            let Some(index) = self.index_of(number) else { continue };
            let Some(connection) = &self.slots[index].connection else { continue };
            let body = connection.only_piece().or_else(|| connection.read.get(body));
            let body = body.filter(|_| matches!(connection.state, State::Idle));
            found.extend(body.map(|body| (index, body)));
        }
        let bodies: Vec<&[u8]> = found.iter().map(|(_, body)| *body).collect();
        let digests = md5_of_each(&bodies);
        let indexes: Vec<usize> = found.into_iter().map(|(index, _)| index).collect();
        for (index, md5) in indexes.into_iter().zip(digests) {
            let then = self.store(index, Some(md5), None);
            self.then(index, &then);
        }
    }

    /// Do what a connection has to do next.
    pub(super) fn then(&mut self, index: usize, then: &Then) {
        match then {
            Then::GoOn => self.go_on(index),
            Then::Wait => {}
            Then::Close => drop(self.end(index)),
            Then::HandOver => self.hand_over(index),
        }
    }

    /// Whether a body may be received here that is long, or asked for: the devices are there that would get it, and
    /// Python comes round to what was handed over.
    fn may_receive(&self, asked: &Asked<'_>, granted: &Granted, now: Instant) -> bool {
        let is_free = self.shared.handed_bytes() as u64 <= self.shared.settings.large_bytes;
        let placed = if is_free { place_of(&self.shared, asked, granted) } else { None };
        placed.is_some_and(|(policy, key)| policy.to_write(key.partition, now).is_some())
    }

    /// Threads that compute MD5; None if the system has none left.
    fn digesting(&mut self) -> Option<Threads> {
        if self.digesting.is_none() {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            self.digesting = Threads::start(count).ok();
        }
        self.digesting.clone()
    }

    /// Go on with the request whose body is digested.
    pub(super) fn digested(&mut self, number: u64) {
        let Some(index) = self.index_of(number) else { return };
        let is_complete = |one: &Connection| matches!(one.state, State::Idle) && one.has_long_body();
        if self.slots[index].connection.as_ref().is_some_and(is_complete) {
            self.go_on(index);
        }
    }

    /// Receive a long body.
    fn receive_body(&mut self, index: usize, long: &Long, now: Instant) -> Then {
        let number = number(index, self.slots[index].generation);
        let threads = if long.is_digested { self.digesting() } else { None };
        if long.is_digested && threads.is_none() {
            return Then::HandOver;
        }
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        if connection.body.is_none() {
            let policy = self.shared.policy(long.policy);
            let pool = policy.as_deref().and_then(Policy::pool);
            let Some(mut body) = pool.and_then(|pool| Body::begin(pool, long.head, long.bytes, now)) else {
                return Then::HandOver;
            };
            if long.expects {
                // A client that sends already has not waited for it.
                let is_sent = connection.read.len() > long.head
                    || match connection.link.send(CONTINUE, &[]) {
                        Ok(0) => return Then::HandOver,
                        sent => sent == Ok(CONTINUE.len()),
                    };
                if !is_sent {
                    return Then::Close;
                }
                body.head = head::met(&mut connection.read, long.head);
            }
            connection.body = Some(Box::new(match threads {
                Some(threads) => {
                    let shared = Arc::clone(&self.shared);
                    body.digested_by(&threads, Box::new(move || shared.post(Command::Digested(number))))
                }
                None => body,
            }));
        }
        match connection.receive_body(&mut self.scratch) {
            Come::Whole => Then::GoOn,
            Come::Nothing => Then::Wait,
            Come::More => {
                self.later.push_back(number);
                Then::Wait
            }
            // Whoever gets it says so.
            Come::End => Then::HandOver,
        }
    }

    /// Handle a device's answer to that. Unless all succeed the request is handed over: when it is repeated, it
    /// becomes a newer version, or a newer deletion.
    fn stored(&mut self, index: usize, replica: usize, what: &What) {
        let token = number(index, self.slots[index].generation);
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Storing(storing) = &mut connection.state else { return };
        if replica >= storing.devices.len() {
            return; // Of a read before it.
        }
        if matches!(what, What::Failed(_)) {
            storing.devices[replica].failed(Instant::now());
        }
        if !storing.note(replica, what) {
            return;
        }
        if storing.is_long() {
            // It takes as long as it takes; another device is waited for as long as for one that is short.
            connection.active = Instant::now();
        }
        if storing.waits() {
            return;
        }
        if !storing.is_done() {
            return self.hand_over(index);
        }
        if let Some(made) = storing.made.take() {
            self.made.push(Made { token, ..made });
        }
    }

    pub(super) fn listed(&mut self, token: u64, is_listed: bool) {
        let Some(index) = self.index_of(token) else { return };
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Storing(storing) = &connection.state else { return };
        if storing.made.is_some() {
            return; // of a request before this one
        }
        if !is_listed {
            return self.hand_over(index);
        }
        let State::Storing(storing) = mem::replace(&mut connection.state, State::Idle) else { return };
        self.shared.storing.fetch_sub(1, Ordering::AcqRel);
        let close = storing.close || (self.leaving && connection.has_only(storing.bytes));
        let given = Given { id: &storing.id, date: &self.date.1, close };
        let (status, head) = match storing.method {
            Method::Delete => (204, answer::deleted(&given)),
            _ => (201, answer::created(storing.timestamp, &storing.etag, &given)),
        };
        let path = connection.read[storing.target.clone()].to_vec();
        let Storing { method, bytes, id, begun, body_bytes: received, .. } = *storing;
        let (left, sent, reserved, body_bytes) = (Vec::new(), 0, 0, 0);
        let writing = Writing { left, sent, reserved, method, path, status, received, body_bytes, close, id, begun };
        self.begin_answer(index, bytes, writing, &head, Vec::new(), Instant::now());
    }
}

/// Send a head and the parts of a body, as far as the kernel takes them; the rest is in `left`.
fn begin_to_send(link: &mut Link, head: &[u8], body: &[Chunk], left: &mut Vec<u8>) -> Result<(), Errno> {
    let parts: Vec<&[u8]> = std::iter::once(head).chain(body.iter().map(|part| &part[..])).collect();
    let mut sent = link.send_all(&parts)?;
    for part in parts {
        let of_it = sent.min(part.len());
        left.extend_from_slice(&part[of_it..]);
        sent -= of_it;
    }
    Ok(())
}

/// What tells a client to send the body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A long body that is to be received.
struct Long {
    policy: u16,
    /// Bytes of the head before it.
    head: usize,
    bytes: usize,
    /// Whether its MD5 is computed beside the thread.
    is_digested: bool,
    /// Whether the client waits for `CONTINUE`.
    expects: bool,
}

/// Whether there is a grant for a request.
enum Decision {
    Granted(Granted),
    /// There is none for this holder.
    None(Holder),
    /// Python has to answer the request.
    HandOver,
}

/// Whether the MD5 of a body is its ETag, or compared with the one that the client has sent.
fn is_md5_needed(asked: &Asked<'_>, granted: &Granted) -> bool {
    !granted.xxh3_etags || asked.stored.as_ref().is_some_and(|stored| stored.etag.is_some())
}

fn granted(shared: &Shared, asked: &Asked<'_>, now: Instant) -> Decision {
    let Some((prefix, _)) = name::split(asked.target) else { return Decision::HandOver };
    let holder = (asked.method.writes(), asked.token.unwrap_or_default().to_vec(), prefix.to_vec());
    if !shared.may_serve() {
        return Decision::HandOver;
    }
    match shared.grants().find(&holder, now) {
        Some(granted) => Decision::Granted(granted),
        None => Decision::None(holder),
    }
}
