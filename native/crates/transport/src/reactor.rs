//! One I/O thread: waits, reads, executes commands, writes, and checks its clocks.
//!
//! A connection belongs to one thread and needs no lock. Other threads queue [`Command`]s; their number is bounded by
//! open requests and by the chunks that these may hold.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::Timespec;
use swiftlet_wire::handshake::Refusal;

use crate::around::{Around, Lent, Outcome};
use crate::command::{Command, Shared, Submit};
use crate::connection::{Connection, Fail, Side};
use crate::handles::Handler;
use crate::key::{Key, LISTENER};
use crate::link::{Acceptor, Fabric, Link};
use crate::metrics::Registry;
use crate::peers::Peers;
use crate::settings::Settings;
use crate::watch::{self, Seen, Watch};

/// How long chunks that were lent over a broken connection are kept from being reused, and at least how many times the
/// silence: as long as the peer does not know that the connection is broken, it may read them.
const LENT_GRACE: Duration = Duration::from_secs(10);
const LENT_SILENCES: u32 = 4;
/// How often clocks are checked while something is under way, and while nothing is.
const TICK: Duration = Duration::from_millis(20);
const IDLE_TICK: Duration = Duration::from_millis(100);
/// The most that one read takes besides what goes directly into a chunk.
const SCRATCH_BYTES: usize = 256 << 10;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

const WAKE: u64 = u64::MAX;

/// The parts of a thread that connections use.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) fabrics: Vec<Arc<dyn Fabric>>,
    pub(crate) handler: Option<Arc<dyn Handler>>,
    /// All threads, among which accepted connections are distributed.
    pub(crate) all: Vec<Arc<Shared>>,
}

pub(crate) struct Reactor {
    world: World,
    epoll: OwnedFd,
    slots: Vec<(u32, Option<Connection>)>,
    listeners: Vec<Box<dyn Acceptor>>,
    peers: Peers,
    outcome: Outcome,
    dirty: Vec<Key>,
    graves: Vec<(Instant, Lent)>,
    scratch: Vec<u8>,
    started: Instant,
    next_tick: Instant,
    next_thread: usize,
    accepted: usize,
    stopping: bool,
    watch: Watch,
}

/// Call a method of a connection with its surroundings.
macro_rules! around {
    ($reactor:expr, $now:expr) => {
        Around {
            now: $now,
            now_ms: $now.saturating_duration_since($reactor.started).as_millis() as u64,
            shared: &$reactor.world.shared,
            settings: &$reactor.world.settings,
            registry: &$reactor.world.registry,
            pool: &$reactor.world.settings.pool,
            handler: $reactor.world.handler.as_ref(),
            outcome: &mut $reactor.outcome,
        }
    };
}

impl Reactor {
    pub(crate) fn new(world: World) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &world.shared.wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let now = Instant::now();
        Ok(Self {
            world,
            epoll,
            slots: Vec::new(),
            listeners: Vec::new(),
            peers: Peers::default(),
            outcome: Outcome::default(),
            dirty: Vec::new(),
            graves: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            started: now,
            next_tick: now,
            next_thread: 0,
            accepted: 0,
            stopping: false,
            watch: Watch::default(),
        })
    }

    /// Run until told to stop.
    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        while !self.stopping {
            self.wait(&mut events);
            let now = Instant::now();
            for event in events.drain(..) {
                self.ready(event.data.u64(), event.flags, now);
            }
            // What handlers and sinks ask for in this turn is done in this turn, as far as it ends.
            for _ in 0..4 {
                let any = self.commands(now);
                if !self.outcome.deliver() && !any {
                    break;
                }
            }
            if now >= self.next_tick {
                self.tick(now);
            }
            for key in mem::take(&mut self.dirty) {
                self.with(key, now, |connection, around| connection.flush(around));
            }
        }
        let now = Instant::now();
        for index in 0..self.slots.len() {
            if let Some(connection) = &mut self.slots[index].1 {
                connection.goodbye();
            }
            self.close(index, Fail::Stopped, now);
        }
        self.peers.stop(&mut self.outcome);
        self.outcome.deliver();
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        if self.watch.is_worth_it() {
            let seen = self.look_until(Instant::now() + watch::AT_MOST, events);
            self.watch.ended(seen);
            if seen == Seen::Something {
                return;
            }
        }
        self.world.shared.asleep.store(true, Ordering::SeqCst);
        let busy = self.has_work();
        let timeout = if busy { Duration::ZERO } else { self.next_tick.saturating_duration_since(Instant::now()) };
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // Interrupted by a signal: the next turn comes soon.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout));
        self.world.shared.asleep.store(false, Ordering::SeqCst);
    }

    /// Stay awake until there is something to do, the time is over, or others want the processor.
    fn look_until(&self, end: Instant, events: &mut Vec<epoll::Event>) -> Seen {
        let mut crowded = false;
        loop {
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&AT_ONCE));
            if !events.is_empty() || self.has_work() {
                return Seen::Something;
            }
            let now = Instant::now();
            if crowded {
                return Seen::Others;
            }
            if now >= end {
                return Seen::Nothing;
            }
            std::thread::yield_now();
            crowded = now.elapsed() >= watch::CROWDED;
        }
    }

    fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.world.shared.lock().commands.is_empty()
    }

    fn ready(&mut self, number: u64, flags: epoll::EventFlags, now: Instant) {
        if number == WAKE {
            let mut counter = [0; 8];
            let _ = rustix::io::read(&self.world.shared.wake, &mut counter);
            return;
        }
        if number & LISTENER != 0 {
            self.accept((number & !LISTENER) as usize, now);
            return;
        }
        let key = Key { index: number as u32, generation: (number >> 32) as u32 };
        let mut scratch = mem::take(&mut self.scratch);
        self.with(key, now, |connection, around| {
            if flags.intersects(epoll::EventFlags::OUT) {
                connection.writable(around)?;
            }
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                connection.readable(around, &mut scratch)?;
            }
            Ok(())
        });
        self.scratch = scratch;
    }

    /// Do something with a connection, if it still exists; close it if that fails; then update its interests.
    fn with(
        &mut self,
        key: Key,
        now: Instant,
        what: impl FnOnce(&mut Connection, &mut Around<'_>) -> Result<(), Fail>,
    ) {
        let index = key.index as usize;
        let Some((generation, Some(connection))) = self.slots.get_mut(index) else { return };
        if *generation != key.generation {
            return;
        }
        let was_open = connection.is_open();
        let mut around = around!(self, now);
        if connection.is_guests()
            && let Some(guests) = &self.world.settings.guests
        {
            around.pool = &guests.pool;
        }
        let result = what(connection, &mut around);
        if let Err(fail) = result {
            self.close(index, fail, now);
            return;
        }
        if connection.is_open() && !was_open {
            self.peers.opened(connection, &mut around!(self, now));
        }
        self.refresh(index, now);
    }

    /// Update the interest in writability, the list of connections with something to write, and requests that wait for
    /// room.
    fn refresh(&mut self, index: usize, now: Instant) {
        let (generation, Some(connection)) = &mut self.slots[index] else { return };
        let key = Key { index: index as u32, generation: *generation };
        if connection.takes_calls() {
            connection.start_waiting(&mut around!(self, now));
        } else if let Side::Client(peer) = connection.side {
            self.peers.retire(peer, key);
        }
        if connection.wants_change() {
            let flags = if connection.wants_write() {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            let data = epoll::EventData::new_u64(key.number());
            if epoll::modify(&self.epoll, connection.descriptor(), data, flags).is_err() {
                self.close(index, Fail::Stopped, now);
                return;
            }
        }
        if connection.is_drained() {
            self.close(index, Fail::Drained, now);
        } else if connection.take_dirty() {
            self.dirty.push(key);
        }
    }

    fn close(&mut self, index: usize, fail: Fail, now: Instant) {
        let (generation, slot) = &mut self.slots[index];
        let Some(mut connection) = slot.take() else { return };
        *generation = (*generation + 1) & 0x7fff_ffff;
        // Closing the descriptor takes it out of the epoll set; deleting it first keeps no stale event.
        let _ = epoll::delete(&self.epoll, connection.descriptor());
        let lent = connection.fail(&fail, &mut around!(self, now));
        if !lent.is_empty() {
            self.graves.push((now + LENT_GRACE.max(self.world.settings.silence * LENT_SILENCES), lent));
        }
        if matches!(connection.side, Side::Server) {
            self.accepted -= 1;
        }
        if let Some(link) = self.peers.closed(&connection, &fail, &mut around!(self, now), &self.world.fabrics) {
            self.add(link.0, Side::Client(link.1), now);
        }
    }

    fn accept(&mut self, which: usize, now: Instant) {
        // A few at a time, so that a crowd does not keep others waiting.
        for _ in 0..16 {
            let Some(listener) = self.listeners.get_mut(which) else { return };
            match listener.accept() {
                Ok(Some(link)) => {
                    self.next_thread = (self.next_thread + 1) % self.world.all.len();
                    let to = &self.world.all[self.next_thread];
                    if Arc::ptr_eq(to, &self.world.shared) {
                        self.adopt(link, now);
                    } else {
                        to.post(Command::Adopt(link));
                    }
                }
                Ok(None) => break,
                // Out of descriptors, or the caller has gone already: the next turn tries again.
                Err(_) => break,
            }
        }
    }

    fn adopt(&mut self, link: Box<dyn Link>, now: Instant) {
        self.accepted += 1;
        let settings = &self.world.settings;
        // Guests' connections are counted for themselves. All threads' are more than this one's: nobody is refused for them.
        let full = self.accepted > settings.max_connections + settings.guests_open.load(Ordering::Relaxed);
        if let Some(index) = self.add(link, Side::Server, now)
            && full
            && let Some(connection) = &mut self.slots[index].1
        {
            connection.refuse_at_hello(Refusal::Full);
        }
    }

    fn add(&mut self, link: Box<dyn Link>, side: Side, now: Instant) -> Option<usize> {
        let index = self.slots.iter().position(|slot| slot.1.is_none()).unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let key = Key { index: index as u32, generation: self.slots[index].0 };
        let connection = Connection::new(key, link, side, self.peers.named(side), &around!(self, now));
        let data = epoll::EventData::new_u64(key.number());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let added = epoll::add(&self.epoll, connection.descriptor(), data, flags);
        self.slots[index].1 = Some(connection);
        if added.is_err() {
            self.close(index, Fail::Stopped, now);
            return None;
        }
        if let Side::Client(peer) = side {
            self.peers.connecting(peer, key);
        }
        Some(index)
    }

    /// Execute commands. Returns whether there were any.
    fn commands(&mut self, now: Instant) -> bool {
        let commands = mem::take(&mut self.world.shared.lock().commands);
        let any = !commands.is_empty();
        for command in commands {
            self.command(command, now);
        }
        any
    }

    fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Submit(submit) => self.submit(submit, now),
            Command::Push(peer, stream, chunk) => {
                if let Some(chunk) = self.peers.push(peer, stream, chunk) {
                    for key in self.peers.connections(peer) {
                        let chunk = chunk.clone();
                        self.with(key, now, |connection, around| connection.push(around, stream, chunk));
                    }
                }
            }
            Command::Finish(peer, stream, footer) => {
                if let Some(footer) = self.peers.finish(peer, stream, footer) {
                    for key in self.peers.connections(peer) {
                        let footer = footer.clone();
                        self.with(key, now, |connection, around| connection.finish(around, stream, footer));
                    }
                }
            }
            Command::Cancel(peer, stream) => {
                if !self.peers.cancel(peer, stream, &mut self.outcome) {
                    for key in self.peers.connections(peer) {
                        self.with(key, now, |connection, around| connection.cancel(around, stream));
                    }
                }
            }
            Command::Answer(key, stream, answer) => {
                self.with(key, now, |connection, around| connection.answer(around, stream, *answer));
            }
            Command::Abandon(key, stream) => {
                self.with(key, now, |connection, around| connection.abandon(around, stream));
            }
            Command::Refill(key, stream) => {
                self.with(key, now, |connection, around| connection.refill(around, stream));
            }
            Command::Released(hook) => {
                self.with(hook.connection, now, |connection, around| connection.released(around, &hook));
            }
            Command::Memory(key, stream, buffer) => {
                self.with(key, now, |connection, around| connection.memory(around, stream, buffer));
            }
            Command::Met(key, result) => {
                self.with(key, now, |connection, _| connection.met(&result));
            }
            Command::Fetched(key, stream, offset, result) => {
                self.with(key, now, |connection, around| connection.fetched(around, stream, offset, result));
            }
            Command::AddPeer(address, metrics) => self.peers.add(address, metrics),
            Command::Listen(acceptor) => {
                let number = LISTENER | self.listeners.len() as u64;
                let data = epoll::EventData::new_u64(number);
                if epoll::add(&self.epoll, acceptor.descriptor(), data, epoll::EventFlags::IN).is_ok() {
                    self.listeners.push(acceptor);
                }
            }
            Command::Adopt(link) => self.adopt(link, now),
            Command::Leave => {
                // Closed, they are gone from what is waited for, too.
                self.listeners.clear();
                for index in 0..self.slots.len() {
                    let (generation, Some(_)) = &self.slots[index] else { continue };
                    let key = Key { index: index as u32, generation: *generation };
                    self.with(key, now, |connection, _| connection.leave());
                }
            }
            Command::Stop => self.stopping = true,
        }
    }

    fn submit(&mut self, submit: Box<Submit>, now: Instant) {
        let peer = submit.peer;
        self.next_tick = self.next_tick.min(now + TICK);
        if let Some(key) = self.peers.current(peer) {
            self.with(key, now, |connection, around| connection.submit(around, submit));
            return;
        }
        if let Some(link) = self.peers.wait(submit, &mut around!(self, now), &self.world.fabrics) {
            self.add(link, Side::Client(peer), now);
        }
    }

    fn tick(&mut self, now: Instant) {
        let mut busy = self.peers.tick(&mut around!(self, now));
        for index in 0..self.slots.len() {
            let (generation, Some(connection)) = &self.slots[index] else { continue };
            busy |= connection.is_busy();
            let key = Key { index: index as u32, generation: *generation };
            self.with(key, now, |connection, around| connection.tick(around));
        }
        self.world.settings.pool.expire(now);
        if let Some(guests) = &self.world.settings.guests {
            guests.pool.expire(now);
        }
        self.graves.retain(|grave| grave.0 > now);
        self.next_tick = now + if busy { TICK } else { IDLE_TICK };
        self.outcome.deliver();
    }
}
