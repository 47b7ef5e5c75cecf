//! The thread: accepts, reads heads, asks devices, writes answers, hands over.
//!
//! Fault model: clients may send anything, at any pace, and go away at any time; devices may refuse, be silent, damage what
//! they send, or be lost. A request whose device does not give a whole good answer is handed over before any byte
//! of an answer has left. An answer that has begun and can't be finished ends its connection.

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::Timespec;
use swiftlet_hash::xxh3_64;
use swiftlet_node::Status;
use swiftlet_node::message::{Found, Request};
use swiftlet_store::model::{Info, Key};
use swiftlet_transport::{Call, Chunk, Completions, Event, Sink, Ticket, What};

use crate::answer::{self, Given, MAX_BYTES};
use crate::connection::{Asking, Connection, Read, State, Writing};
use crate::date::http_date;
use crate::front::{Command, Handed, Served, Shared};
use crate::head::{self, Asked, Method};
use crate::name;
use crate::routes::Device;

const WAKE: u64 = u64::MAX;
const DEVICES: u64 = u64::MAX - 1;
const LISTENER: u64 = 1 << 63;
/// One read takes at most this much.
const SCRATCH_BYTES: usize = 16 << 10;
/// Connections accepted before others get their turn.
const ACCEPTED_AT_ONCE: usize = 64;
const TICK: Duration = Duration::from_millis(500);
/// How soon a full house looks whether it has room again.
const FULL_TICK: Duration = Duration::from_millis(20);
/// How long nothing is accepted when the system has no descriptor left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_secs(1);
/// How much later than the transport the thread itself gives a device up.
const ANSWER_GRACE: Duration = Duration::from_secs(2);
const ID_BYTES: usize = 11;

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
    devices: Arc<Completions>,
    scratch: Vec<u8>,
    random: Random,
    date: (u64, String),
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
        let devices = Completions::new()?;
        epoll::add(&epoll, &shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        epoll::add(&epoll, devices.as_fd(), EventData::new_u64(DEVICES), EventFlags::IN)?;
        let now = Instant::now();
        Ok(Self {
            shared,
            epoll,
            listeners: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            devices,
            scratch: vec![0; SCRATCH_BYTES],
            random: Random::new()?,
            date: (u64::MAX, String::new()),
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
            let wait =
                self.next_tick.saturating_duration_since(Instant::now()).min(if full { FULL_TICK } else { TICK });
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            // Interrupted by a signal: the next turn comes soon.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
            let now = Instant::now();
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => self.commands(now),
                    DEVICES => self.answers(),
                    number if number & LISTENER != 0 => self.accept((number & !LISTENER) as usize, now),
                    number => self.ready(number, event.flags),
                }
            }
            if full {
                self.listen_again(now);
            }
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                self.tick(now);
            }
        }
    }

    fn commands(&mut self, now: Instant) {
        for command in self.shared.commands() {
            match command {
                Command::Listen(socket) => {
                    self.listeners.push(Listener { socket, listening: false });
                    self.listen_again(now);
                }
                Command::Adopt(socket, bounces) => self.begin(socket, bounces + 1, now),
                Command::Leave => self.leave(),
                Command::Stop => self.stopping = true,
            }
        }
    }

    // Accepting.

    fn has_room(&self) -> bool {
        let (open, settings) = (self.slots.len() - self.free.len(), &self.shared.settings);
        open < settings.max_connections && self.shared.handed() < settings.max_handed
    }

    fn listen_again(&mut self, now: Instant) {
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
        let Ok(connection) = Connection::new(socket, bounces, now) else { return };
        // Neither can fail on a socket of this kind, and both only help.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&connection.socket, true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&connection.socket, true);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let data = EventData::new_u64(number(index, slot.generation));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if epoll::add(&self.epoll, &connection.socket, data, flags).is_err() {
            self.free.push(index);
            return;
        }
        slot.connection = Some(connection);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        // What is there to be read is told by the set.
    }

    fn end(&mut self, index: usize) -> Option<Connection> {
        let slot = self.slots.get_mut(index)?;
        let connection = slot.connection.take()?;
        slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
        self.free.push(index);
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        // It is in the set; deleted, because the descriptor may live on elsewhere.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        if let State::Asking(asking) = &connection.state {
            asking.ticket.cancel();
        }
        Some(connection)
    }

    // Going on.

    fn ready(&mut self, number: u64, flags: EventFlags) {
        let Some(index) = self.index_of(number) else { return };
        if let Some(connection) = &mut self.slots[index].connection {
            connection.ended |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            connection.readable |= connection.ended || flags.intersects(EventFlags::IN);
        }
        self.go_on(index);
    }

    fn index_of(&self, number: u64) -> Option<usize> {
        let index = (number & u64::from(u32::MAX)) as usize;
        (self.slots.get(index)?.generation == (number >> 32) as u32).then_some(index)
    }

    fn go_on(&mut self, index: usize) {
        loop {
            let Some(connection) = &mut self.slots[index].connection else { return };
            let then = match &mut connection.state {
                State::Asking(_) => Then::Wait,
                State::Writing(_) => self.write(index),
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
            return Then::Close;
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
            Read::End => Then::Close,
        }
    }

    fn hand_over(&mut self, index: usize) {
        if let Some(connection) = self.end(index) {
            let Connection { socket, read, bounces, .. } = connection;
            self.shared.hand_over(Handed { socket, bytes: read, bounces });
        }
    }

    /// Ask a device for the request that stands in what was read.
    fn ask(&mut self, index: usize) -> Then {
        let number = number(index, self.slots[index].generation);
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        let now = Instant::now();
        let Some(asked) = head::parse(&connection.read) else { return Then::HandOver };
        let Some((device, request)) = placed(&self.shared, &asked, self.random.number(), now) else {
            return Then::HandOver;
        };
        let id = self.random.id();
        let Some(ticket) = call(&self.shared, &self.devices, &device, &request, number, &id) else {
            return Then::HandOver;
        };
        let start = asked.method.name().len() + 1;
        let asking = Asking {
            method: asked.method,
            target: start..start + asked.target.len(),
            bytes: asked.bytes,
            close: !asked.keep_alive,
            id,
            begun: now,
            device,
            ticket,
        };
        connection.state = State::Asking(Box::new(asking));
        Then::Wait
    }

    fn answers(&mut self) {
        for Event { token, what } in self.devices.drain() {
            let Some(index) = self.index_of(token) else { continue };
            self.answered(index, what);
        }
    }

    fn answered(&mut self, index: usize, what: What) {
        let now = Instant::now();
        self.refresh_date();
        let Some(connection) = &mut self.slots[index].connection else { return };
        let State::Asking(asking) = &connection.state else { return };
        let good = match what {
            What::Sent(_) => return,
            What::Reply { status, header, body, whole, .. } if whole && status == Status::Ok as u16 => {
                checked(asking.method, &header, body)
            }
            What::Failed(_) => {
                asking.device.failed(now);
                None
            }
            _ => None,
        };
        let Some((info, body)) = good else { return self.hand_over(index) };
        let State::Asking(asking) = mem::replace(&mut connection.state, State::Idle) else { return };
        let close = asking.close || self.leaving;
        let head = answer::head(&info, &Given { id: &asking.id, date: &self.date.1, close });
        let body: &[u8] = body.as_deref().unwrap_or_default();
        let path = connection.read[asking.target].to_vec();
        connection.read.drain(..asking.bytes);
        connection.bounces = 0;
        let sent = connection.send(&head, body);
        connection.active = now;
        let mut left = Vec::new();
        if let Ok(sent) = sent {
            left.extend_from_slice(head.get(sent..).unwrap_or_default());
            left.extend_from_slice(body.get(sent.saturating_sub(head.len())..).unwrap_or_default());
        }
        let Asking { method, id, begun, .. } = *asking;
        let body_bytes = body.len() as u64;
        connection.state = State::Writing(Box::new(Writing { left, method, path, body_bytes, close, id, begun }));
        if sent.is_ok() {
            self.go_on(index);
        } else {
            self.end(index);
        }
    }

    /// Send what is left of an answer; when all is out, note it.
    fn write(&mut self, index: usize) -> Then {
        let Some(connection) = &mut self.slots[index].connection else { return Then::Wait };
        let State::Writing(writing) = &connection.state else { return Then::GoOn };
        if !writing.left.is_empty() {
            let Ok(sent) = connection.send(&writing.left, &[]) else { return Then::Close };
            if sent == 0 {
                return Then::Wait;
            }
            connection.active = Instant::now();
            if let State::Writing(writing) = &mut connection.state {
                writing.left.drain(..sent);
            }
            return Then::GoOn;
        }
        let State::Writing(writing) = mem::replace(&mut connection.state, State::Idle) else { return Then::GoOn };
        let Writing { method, path, body_bytes, close, id, begun, .. } = *writing;
        let remote = Arc::clone(&connection.remote);
        self.shared.served(Served { method, path, bytes: body_bytes, took: begun.elapsed(), remote, id });
        if close { Then::Close } else { Then::GoOn }
    }

    fn refresh_date(&mut self) {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if seconds != self.date.0 {
            self.date = (seconds, http_date(seconds));
        }
    }

    // Ending.

    fn tick(&mut self, now: Instant) {
        let settings = &self.shared.settings;
        let is_over = |connection: &Connection| {
            let idle = now.saturating_duration_since(connection.active);
            match connection.state {
                State::Idle => idle > settings.keepalive,
                State::Writing(_) => idle > settings.client_timeout,
                // The transport ends it in time, unless it was stopped itself.
                State::Asking(_) => idle > settings.answer_timeout + ANSWER_GRACE,
            }
        };
        let over = |(index, slot): (usize, &Slot)| slot.connection.as_ref().is_some_and(is_over).then_some(index);
        let over: Vec<usize> = self.slots.iter().enumerate().filter_map(over).collect();
        for index in over {
            let is_asking = |one: &Connection| matches!(one.state, State::Asking(_));
            if self.slots[index].connection.as_ref().is_some_and(is_asking) {
                self.hand_over(index);
            } else {
                self.end(index);
            }
        }
    }

    fn leave(&mut self) {
        self.leaving = true;
        self.listen_no_more();
        self.listeners.clear();
        for index in 0..self.slots.len() {
            // A request that comes at this moment meets a closed connection, as at any server that closes idle ones.
            let is_idle = |one: &Connection| matches!(one.state, State::Idle) && one.read.is_empty();
            if self.slots[index].connection.as_ref().is_some_and(is_idle) {
                self.end(index);
            }
        }
        self.shared.left.store(true, Ordering::Release);
    }
}

fn number(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}

/// A device for a request, and what it is to be asked; nothing if the request is not hot.
fn placed(shared: &Shared, asked: &Asked<'_>, random: u64, now: Instant) -> Option<(Arc<Device>, Request)> {
    let (prefix, object) = name::split(asked.target)?;
    let holder = (asked.token.unwrap_or_default().to_vec(), prefix.to_vec());
    let granted = shared.grants().find(&holder, now)?;
    if !shared.may_serve() {
        return None;
    }
    let secret = &shared.settings.secret;
    let digest = name::digest((&secret.0, &secret.1), &granted.container, object)?;
    let policy = shared.policy(granted.policy)?;
    let partition = policy.partition(&digest);
    let key = Key { policy: granted.policy, partition, digest };
    let request = match asked.method {
        Method::Get => Request::Get { key, start: 0, stop: MAX_BYTES },
        Method::Head => Request::Head(key),
    };
    Some((policy.choose(partition, random, now)?, request))
}

fn call(
    shared: &Shared,
    devices: &Arc<Completions>,
    device: &Device,
    request: &Request,
    token: u64,
    id: &str,
) -> Option<Ticket> {
    let header = request.encode(device.name()).ok()?;
    let timeout = shared.settings.answer_timeout;
    let call = Call { method: request.method(), timeout, trace: id.to_owned(), header, ..Call::default() };
    let sink = Arc::clone(devices) as Arc<dyn Sink>;
    device.peer().call(call, &sink, token).ok()
}

/// A whole answer with sound bytes, of an object that is plain.
fn checked(method: Method, header: &[u8], body: Option<Chunk>) -> Option<(Info, Option<Chunk>)> {
    let found = Found::decode(header).ok()?;
    if !answer::is_plain(&found.info) {
        return None;
    }
    if method == Method::Head {
        return Some((found.info, None));
    }
    let bytes: &[u8] = body.as_deref().unwrap_or_default();
    let sound = bytes.len() as u64 == found.info.size && found.body_xxh3 == Some(xxh3_64(bytes));
    sound.then_some((found.info, body))
}

/// Numbers for choices and ids, from the system's source, many at a time.
struct Random {
    bytes: Vec<u8>,
    used: usize,
}

impl Random {
    fn new() -> std::io::Result<Self> {
        let mut bytes = vec![0; 4096];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self { bytes, used: 0 })
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        if self.used + N > self.bytes.len() {
            // The source answers once it has begun to; were that to end, ids would repeat, and nothing else.
            let _ = getrandom::fill(&mut self.bytes);
            self.used = 0;
        }
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[self.used..self.used + N]);
        self.used += N;
        out
    }

    fn number(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// `tx` and 21 hexadecimal digits.
    fn id(&mut self) -> String {
        let mut id = String::with_capacity(2 + 2 * ID_BYTES);
        id.push_str("tx");
        for byte in self.take::<ID_BYTES>() {
            for digit in [byte >> 4, byte & 15] {
                id.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        id.truncate(23);
        id
    }
}
