//! The thread: accepts connections, reads heads, asks devices, writes answers, hands connections over.
//!
//! Fault model: clients may send anything, at any pace, and go away at any time; devices may refuse, be silent, send
//! damaged data, or be lost. A request whose device does not give a complete good answer is handed over before any
//! byte of an answer was sent. If an answer has begun and can't be finished, its connection ends.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::Timespec;
use swiftlet_hash::beside::Threads;
use swiftlet_transport::{Ticket, together};

use crate::attempt::Attempt;
use crate::connection::{Connection, Read, State, Writing};
use crate::date::http_date;
use crate::hedging::Hedging;
use crate::made::Made;
use crate::random::Random;
use crate::reading::may_be_long;
use crate::replies::Replies;
use crate::shared::{Command, Handed, Served, Shared};
use crate::source::{STILL, Source};
use crate::storing::Clock;
use crate::turns::Turns;
use crate::undecided::Undecided;
use crate::updates::{self, Updates};

use flows::GONE;
use handshakes::{HANDSHAKE_TIME, MAX_HANDSHAKES};
use reserved::Reserved;

mod bridging;
mod calls;
mod checks;
mod deliveries;
mod flows;
mod gathering;
mod handshakes;
mod requests;
mod reserved;

const WAKE: u64 = u64::MAX;
const DEVICES: u64 = u64::MAX - 1;
const UPDATES: u64 = u64::MAX - 2;
const LISTENER: u64 = 1 << 63;
/// The most that one read takes.
const SCRATCH_BYTES: usize = 72 << 10;
/// Connections accepted before others get their turn.
const ACCEPTED_AT_ONCE: usize = 64;
const TICK: Duration = Duration::from_millis(500);
/// How soon it is checked whether there is room for connections again.
const FULL_TICK: Duration = Duration::from_millis(20);
/// How long a connection may at least be idle, even if others wait for its place.
const IDLE_AT_LEAST: Duration = Duration::from_secs(1);
/// How long nothing is accepted when the system has no descriptor left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_secs(1);
/// How much later than the transport the thread itself gives up on a device.
const ANSWER_GRACE: Duration = Duration::from_secs(2);
/// How long listing the rows may take.
const LISTED_GRACE: Duration = Duration::from_secs(60);
/// Bits of a number: connection, replica of a write or attempt at a read, generation, listener.
const REPLICA_SHIFT: u32 = 32;
/// In the place of a replica: the event is one of the pair behind a connection with TLS.
const PAIR: u64 = 0xff << REPLICA_SHIFT;
const GENERATION_SHIFT: u32 = 40;
const MAX_GENERATION: u32 = (1 << (63 - GENERATION_SHIFT)) - 1;
/// How long the rest of a body that has begun may take before the connection is handed over.
const BODY_PATIENCE: Duration = Duration::from_millis(500);
/// How long other threads may take for the MD5 of a body that has come.
const DIGEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long Python may take to decide about a request before it has to answer it. Answering takes longer than deciding:
/// who hands requests over because decisions are late makes them later.
const DECISION_PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may take to close a connection after its last answer.
const LINGER: Duration = Duration::from_secs(2);

/// What is told of a socket.
const EVENTS: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

struct Listener {
    socket: OwnedFd,
    listening: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

pub(crate) struct Reactor {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Answers to what devices are asked.
    devices: Arc<Replies>,
    scratch: Vec<u8>,
    random: Random,
    clock: Clock,
    /// PUTs that became complete in this turn, and where their bodies are.
    complete: Vec<(u64, Range<usize>)>,
    /// Compute the MD5 of bodies of several pieces; started with the first one.
    digesting: Option<Threads>,
    /// Durable since the last turn.
    made: Vec<Made>,
    /// Those of them that Python lists.
    left_to_python: Vec<Made>,
    undecided: Undecided,
    updates: Updates,
    hedging: Hedging,
    /// Answers to what `updates` asks.
    update_events: Arc<Replies>,
    date: (u64, String),
    /// Connections that have more to do, once others have had their turn.
    later: VecDeque<u64>,
    /// What handshakes may still take in this turn.
    handshake_time: Duration,
    handshaking: usize,
    bridged: usize,
    /// What is reserved for large answers.
    reserved: Reserved,
    turns: Turns,
    /// Connections of which something has come, until all events were handled.
    touched: Vec<u64>,
    /// When this turn began.
    ran: Instant,
    next_tick: Instant,
    accept_again: Instant,
    leaving: bool,
    stopping: bool,
}

/// Whether the connection has more to do now.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Wait,
    Close,
    HandOver,
}

impl Reactor {
    pub(crate) fn new(shared: Arc<Shared>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let devices = Replies::new(!PAIR)?;
        epoll::add(&epoll, &shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        epoll::add(&epoll, devices.as_fd(), EventData::new_u64(DEVICES), EventFlags::IN)?;
        let update_events = Replies::new(updates::BATCH)?;
        epoll::add(&epoll, update_events.as_fd(), EventData::new_u64(UPDATES), EventFlags::IN)?;
        let settings = &shared.settings;
        let updates = Updates::new(settings.secret.clone(), settings.answer_timeout, Arc::clone(&shared.rows));
        let (now, nonce) = (Instant::now(), shared.settings.nonce);
        Ok(Self {
            shared,
            epoll,
            listeners: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            devices,
            scratch: vec![0; SCRATCH_BYTES],
            random: Random::new()?,
            clock: Clock { nonce, last: 0 },
            complete: Vec::new(),
            digesting: None,
            made: Vec::new(),
            left_to_python: Vec::new(),
            undecided: Undecided::default(),
            updates,
            hedging: Hedging::default(),
            update_events,
            date: (u64::MAX, String::new()),
            later: VecDeque::new(),
            handshake_time: Duration::ZERO,
            handshaking: 0,
            bridged: 0,
            reserved: Reserved::default(),
            turns: Turns::default(),
            touched: Vec::new(),
            ran: now,
            next_tick: now,
            accept_again: now,
            leaving: false,
            stopping: false,
        })
    }

    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        while !self.stopping {
            let full = self.listeners.iter().any(|one| !one.listening);
            let due = [self.updates.due(), self.hedging.next(), self.turns.next()].into_iter().flatten();
            let next = due.fold(self.next_tick, Instant::min);
            let wait = next.saturating_duration_since(Instant::now()).min(if full { FULL_TICK } else { TICK });
            let wait = if self.later.is_empty() { wait } else { Duration::ZERO };
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            // Interrupted by a signal: the next turn comes soon.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
            let now = Instant::now();
            if now.saturating_duration_since(mem::replace(&mut self.ran, now)) > STILL {
                self.stood_still();
            }
            together(|| self.turn(&mut events, now));
            if full {
                self.listen_again(now);
            }
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                self.tick(now);
            }
        }
    }

    /// Do what there is to do.
    fn turn(&mut self, events: &mut Vec<epoll::Event>, now: Instant) {
        self.handshake_time = HANDSHAKE_TIME;
        for number in mem::take(&mut self.later) {
            if let Some(index) = self.index_of(number) {
                self.go_on(index);
            }
        }
        for event in events.drain(..) {
            match event.data.u64() {
                WAKE => self.commands(now),
                DEVICES => self.answers(),
                UPDATES => self.updated(now),
                number if number & LISTENER != 0 => self.accept((number & !LISTENER) as usize, now),
                number if number & PAIR == PAIR => self.pair_ready(number, event.flags),
                number => self.ready(number, event.flags),
            }
        }
        if now >= self.next_tick {
            // Who looks at what lasts too long knows of all that has come.
            self.answers();
            self.updated(now);
        }
        self.digest();
        self.deliver(now);
        self.hedge(now);
        self.look_again(now);
    }

    fn commands(&mut self, now: Instant) {
        for command in self.shared.commands() {
            match command {
                Command::Listed(tokens, is_listed) => {
                    self.refresh_date();
                    tokens.into_iter().for_each(|token| self.listed(token, is_listed));
                }
                Command::Listen(socket) => {
                    self.listeners.push(Listener { socket, listening: false });
                    self.listen_again(now);
                }
                Command::Adopt(socket, bounces) => self.begin(socket, bounces + 1, now),
                Command::Decided(holder, is_granted) => self.decided(holder, is_granted, now),
                Command::Digested(number) => self.digested(number),
                Command::Containers(ring) => self.updates.route(ring),
                Command::Taken(tokens) => tokens.into_iter().for_each(|token| self.taken(token)),
                Command::Return(token, socket, bounces) => self.returned(token, socket, bounces),
                Command::Leave => self.leave(),
                Command::Stop => self.stopping = true,
            }
        }
    }

    // Accepting.

    fn is_full(&self) -> bool {
        self.slots.len() - self.free.len() - self.bridged >= self.shared.settings.max_connections
    }

    fn has_room(&self) -> bool {
        !self.is_full() && self.handshaking < MAX_HANDSHAKES && self.shared.handed() < self.shared.settings.max_handed
    }

    /// End some of the connections that were idle longest, as others wait to be accepted.
    fn make_room(&mut self, now: Instant) {
        let idle_since = |(index, slot): (usize, &Slot)| {
            let one = slot.connection.as_ref()?;
            let is_idle = matches!(one.state, State::Idle) && one.read.is_empty();
            (is_idle && now.saturating_duration_since(one.active) >= IDLE_AT_LEAST).then_some((one.active, index))
        };
        let mut idle: Vec<(Instant, usize)> = self.slots.iter().enumerate().filter_map(idle_since).collect();
        idle.sort_unstable();
        for (_, index) in idle.into_iter().take(ACCEPTED_AT_ONCE) {
            self.end(index);
        }
    }

    fn listen_again(&mut self, now: Instant) {
        if self.is_full() {
            self.make_room(now);
        }
        if self.handshaking >= MAX_HANDSHAKES {
            self.end_slow_handshakes(now);
        }
        if now < self.accept_again || !self.has_room() {
            return;
        }
        for (at, one) in self.listeners.iter_mut().enumerate().filter(|(_, one)| !one.listening) {
            let data = EventData::new_u64(LISTENER | at as u64);
            one.listening = epoll::add(&self.epoll, &one.socket, data, EventFlags::IN).is_ok();
        }
    }

    fn listen_no_more(&mut self) {
        for one in &mut self.listeners {
            if mem::take(&mut one.listening) {
                // It is in the set, for it was listening.
                let _ = epoll::delete(&self.epoll, &one.socket);
            }
        }
    }

    fn accept(&mut self, at: usize, now: Instant) {
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.has_room() {
                return self.listen_no_more();
            }
            let Some(listener) = self.listeners.get(at).filter(|one| one.listening) else { return };
            match rustix::net::accept_with(&listener.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.begin(socket, 0, now),
                // Of one connection that was gone before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.accept_again = now + OUT_OF_DESCRIPTORS;
                    return self.listen_no_more();
                }
            }
        }
    }

    fn begin(&mut self, socket: OwnedFd, bounces: u32, now: Instant) {
        // A connection that is gone already has no address: nobody misses it.
        let Ok(connection) = Connection::new(socket, bounces, self.shared.secure.as_ref(), now) else { return };
        // Neither can fail on a socket of this kind, and both only help.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&connection.link.socket, true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&connection.link.socket, true);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let data = EventData::new_u64(number(index, slot.generation));
        if epoll::add(&self.epoll, &connection.link.socket, data, EVENTS).is_err() {
            self.free.push(index);
            return;
        }
        self.handshaking += usize::from(matches!(connection.state, State::Handshaking));
        slot.connection = Some(connection);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        // What is there to be read is told by the set.
    }

    fn end(&mut self, index: usize) -> Option<Connection> {
        let slot = self.slots.get_mut(index)?;
        let mut connection = slot.connection.take()?;
        slot.generation = (slot.generation + 1) & MAX_GENERATION;
        self.free.push(index);
        // It is in the set; deleted, because the descriptor may live on elsewhere.
        let _ = epoll::delete(&self.epoll, &connection.link.socket);
        connection.link.say_goodbye();
        if matches!(connection.state, State::Bridged(_)) {
            self.bridged -= 1;
            self.shared.bridged.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.leave_state(&connection.state);
        Some(connection)
    }

    /// Do without what a state waits for.
    fn leave_state(&mut self, state: &State) {
        match state {
            State::Asking(asking) => {
                asking.attempts.iter().flatten().for_each(|one| one.ticket.cancel());
                self.reserved.all -= asking.reserved;
            }
            State::Gathering(gathering) => self.unreserve(&gathering.reading),
            State::Checking(checking) => checking.asked.iter().for_each(|one| one.ticket.cancel()),
            // Devices may go on: what some of them store, whoever does it again makes a newer version of.
            State::Storing(storing) => {
                storing.tickets.iter().for_each(Ticket::cancel);
                self.shared.storing.fetch_sub(1, Ordering::AcqRel);
            }
            State::Handshaking => self.handshaking -= 1,
            State::Writing(writing) => self.reserved.all -= writing.reserved,
            State::Sending(sending) => {
                if let Source::Device(from) = &sending.source {
                    from.attempt.ticket.cancel();
                }
                self.let_go(&sending.source);
            }
            State::Idle | State::Deciding | State::Queueing(_) | State::Ending(_) | State::Bridged(_) => {}
        }
    }

    // Going on.

    fn ready(&mut self, number: u64, flags: EventFlags) {
        let Some(index) = self.index_of(number) else { return };
        if let Some(connection) = &mut self.slots[index].connection {
            connection.ended |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            connection.readable |= connection.ended || flags.intersects(EventFlags::IN);
            if connection.link.tls.is_some() && connection.flush().is_err() {
                return match connection.state {
                    // What was sent of it is logged.
                    State::Sending(_) => self.cut(index, GONE),
                    _ => drop(self.end(index)),
                };
            }
        }
        self.go_on(index);
    }

    fn index_of(&self, number: u64) -> Option<usize> {
        let index = (number & u64::from(u32::MAX)) as usize;
        (self.slots.get(index)?.generation == (number >> GENERATION_SHIFT) as u32).then_some(index)
    }

    fn go_on(&mut self, index: usize) {
        loop {
            let Some(connection) = &mut self.slots[index].connection else { return };
            let then = match &mut connection.state {
                State::Deciding
                | State::Asking(_)
                | State::Gathering(_)
                | State::Checking(_)
                | State::Queueing(_)
                | State::Storing(_) => Then::Wait,
                State::Handshaking => self.shake_hands(index),
                State::Bridged(_) => self.pass_on(index),
                State::Writing(_) => self.write(index),
                State::Sending(_) => self.send_on(index),
                State::Ending(_) => self.drop_rest(index),
                State::Idle if connection.read.is_empty() => self.read(index),
                State::Idle => self.ask(index),
            };
            match then {
                Then::GoOn => {}
                Then::Wait => return,
                Then::Close => {
                    self.end(index);
                    return;
                }
                Then::HandOver => return self.hand_over(index),
            }
        }
    }

    fn read(&mut self, index: usize) -> Then {
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        if self.leaving {
            // Whoever takes it tells the client that its next answer is the last one.
            return Then::HandOver;
        }
        if !connection.readable {
            return Then::Wait;
        }
        match connection.fill(&mut self.scratch) {
            Read::Some => {
                connection.active = Instant::now();
                Then::GoOn
            }
            Read::Nothing => Then::Wait,
            // A body that was cut off is for whoever says so.
            Read::End if !connection.read.is_empty() => Then::HandOver,
            Read::End => Then::Close,
        }
    }

    fn hand_over(&mut self, index: usize) {
        if let Some(connection) = &mut self.slots[index].connection {
            connection.put_body_back();
        }
        if self.shared.secure.is_some() {
            return self.bridge(index);
        }
        if let Some(connection) = self.end(index) {
            let Connection { link, read, bounces, state, .. } = connection;
            let (deleted, stored) = state.may_have_written();
            let secured = None;
            self.shared.hand_over(Handed { socket: link.socket, bytes: read, bounces, deleted, stored, secured });
        }
    }

    /// Send the rest of an answer; when all is sent, record it.
    fn write(&mut self, index: usize) -> Then {
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        let State::Writing(writing) = &connection.state else { return Then::GoOn };
        let left = &writing.left[writing.sent..];
        if !left.is_empty() {
            let Ok(sent) = connection.link.send(left, &[]) else { return Then::Close };
            if sent == 0 {
                return Then::Wait;
            }
            connection.active = Instant::now();
            if let State::Writing(writing) = &mut connection.state {
                writing.sent += sent;
            }
            return Then::GoOn;
        }
        match connection.link.flush() {
            Ok(true) => {}
            Ok(false) => return Then::Wait,
            Err(_) => return Then::Close,
        }
        let State::Writing(writing) = mem::replace(&mut connection.state, State::Idle) else { return Then::GoOn };
        self.reserved.all -= writing.reserved;
        let Writing { method, path, status, received, body_bytes: bytes, close, id, begun, .. } = *writing;
        let (remote, took) = (Arc::clone(&connection.remote), begun.elapsed());
        self.shared.served(Served { method, path, status, received, bytes, took, remote, id });
        if close && self.leaving {
            connection.end_politely();
            return Then::GoOn;
        }
        if close { Then::Close } else { Then::GoOn }
    }

    /// Read and drop what follows the last answer, until the client closes.
    fn drop_rest(&mut self, index: usize) -> Then {
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        if !connection.readable {
            return Then::Wait;
        }
        match connection.fill(&mut self.scratch) {
            Read::Some => {
                let State::Ending(left) = &mut connection.state else { return Then::GoOn };
                *left = left.saturating_sub(connection.read.len());
                let is_enough = *left == 0;
                connection.read.clear();
                if is_enough { Then::Close } else { Then::GoOn }
            }
            Read::Nothing => Then::Wait,
            Read::End => Then::Close,
        }
    }

    fn refresh_date(&mut self) {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if seconds != self.date.0 {
            self.date = (seconds, http_date(seconds));
        }
    }

    // Ending.

    fn tick(&mut self, now: Instant) {
        self.updates.tidy(now);
        self.undecided.tidy(now);
        self.check_flows(now);
        let settings = &self.shared.settings;
        let is_over = |connection: &Connection| {
            let idle = now.saturating_duration_since(connection.active);
            match &connection.state {
                // Its MD5 is being computed.
                State::Idle if connection.has_long_body() => idle > DIGEST_PATIENCE,
                State::Idle if !connection.read.is_empty() => {
                    idle > BODY_PATIENCE || connection.body.as_ref().is_some_and(|body| body.is_late(now))
                }
                State::Idle => idle > settings.keepalive,
                State::Deciding => idle > DECISION_PATIENCE,
                // What most devices say of a deletion is enough for whoever repeats it.
                State::Storing(storing) if storing.waits() && storing.is_mostly_known() => {
                    idle > settings.store_timeout
                }
                // The transport ends it in time; rows are waited for by who brings them, within bounds of their own.
                State::Storing(_) => idle > settings.store_timeout.max(settings.answer_timeout) + LISTED_GRACE,
                State::Writing(_) => idle > settings.client_timeout,
                // It is looked at by itself.
                State::Sending(_) => false,
                State::Asking(asking) if may_be_long(&asking.request) => idle > settings.answer_timeout,
                // The transport ends it in time, unless it was stopped itself.
                State::Asking(_) | State::Gathering(_) | State::Checking(_) | State::Queueing(_) => {
                    idle > settings.answer_timeout + ANSWER_GRACE
                }
                State::Ending(_) => idle > LINGER,
                State::Handshaking => idle > handshakes::patience(self.leaving),
                State::Bridged(bridge) => bridge.is_left() && idle > settings.client_timeout,
            }
        };
        let over = |(index, slot): (usize, &Slot)| slot.connection.as_ref().is_some_and(is_over).then_some(index);
        let over: Vec<usize> = self.slots.iter().enumerate().filter_map(over).collect();
        let answer_timeout = settings.answer_timeout;
        for index in over {
            match self.slots[index].connection.as_mut().map(|one| &mut one.state) {
                Some(State::Storing(storing)) => storing.give_up(now),
                Some(State::Asking(asking)) => {
                    let is_late = |one: &&Attempt| now.saturating_duration_since(one.begun) >= answer_timeout;
                    asking.attempts.iter().flatten().filter(is_late).for_each(|one| one.device.failed(now));
                }
                _ => {}
            }
            // Whoever takes it begins anew, which is too late once the answer has begun.
            let has_answer = |one: &Connection| matches!(one.state, State::Writing(_) | State::Sending(_));
            let is_for_others = |one: &Connection| one.has_request() && !has_answer(one);
            if self.slots[index].connection.as_ref().is_some_and(is_for_others) {
                self.hand_over(index);
            } else {
                self.end_late(index);
            }
        }
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        self.shared.busy.store(connections.filter(|one| one.has_request()).count(), Ordering::Relaxed);
    }

    fn leave(&mut self) {
        self.leaving = true;
        self.updates.leave();
        self.listen_no_more();
        self.listeners.clear();
        for index in 0..self.slots.len() {
            // Whoever takes them answers the next request on each, so that no client finds its connection closed.
            let waits = |one: &Connection| matches!(one.state, State::Idle | State::Deciding);
            if self.slots[index].connection.as_ref().is_some_and(waits) {
                self.hand_over(index);
            }
        }
        self.shared.left.store(true, Ordering::Release);
    }
}

/// A number that identifies a connection, and never a later one in its place.
fn number(index: usize, generation: u32) -> u64 {
    u64::from(generation) << GENERATION_SHIFT | index as u64
}
