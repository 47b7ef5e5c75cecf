//! One thread of the generator: it keeps connections busy as the order says, and measures. Sockets and the clock are the
//! [`World`]'s.

mod choosing;
mod ending;
mod moving;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contents::Contents;
use crate::exchange::{Exchange, Expect};
use crate::names::Names;
use crate::pace::Arrivals;
use crate::plan::{Api, Kind, Length, Measure, Nanos, Order, Pace, Phase, Plan};
use crate::population::Population;
use crate::random::Random;
use crate::share::Share;
use crate::signing::Signer;
use crate::tally::{Recent, Tally, Worker};

/// What one read takes at most.
const SCRATCH_BYTES: usize = 256 << 10;
/// What a read takes at most that is to take the head of an answer alone: more than stores' heads have.
const HEAD_BYTES: usize = 2 << 10;
/// What one connection moves before others have their turn.
const TURN_BYTES: u64 = 1 << 20;
/// How often deadlines and cancellation are looked at.
const TICK: Nanos = 50_000_000;
/// How long operations may still take that are under way when the user ends a run. What is dropped in the middle may
/// appear in the store after it was deleted.
const GRACE: Nanos = 2_000_000_000;
/// How long a connection rests that could not be made.
const CONNECT_PAUSE: Nanos = 100_000_000;

/// Connections and a clock. Connections are told apart by numbers from 0 on.
pub trait World {
    /// The time, in nanoseconds since some moment.
    fn now(&self) -> Nanos;
    /// The time of the calendar, in seconds since 1970.
    fn calendar(&self) -> u64;
    /// Begin to connect. Until the connection is there, reads and writes would block.
    fn connect(&mut self, connection: usize) -> io::Result<()>;
    /// Forget a connection.
    fn close(&mut self, connection: usize);
    /// Write what there is room for.
    fn write(&mut self, connection: usize, bytes: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Read what there is: how much, 0 at the end, and whether there may be more.
    fn read(&mut self, connection: usize, into: &mut [u8]) -> io::Result<(usize, bool)>;
    /// Drop what there is, as far as that is possible without looking at it: how much, 0 at the end, and whether there may
    /// be more. Only of connections without TLS.
    fn discard(&mut self, connection: usize, most: u64) -> io::Result<(usize, bool)>;
    /// Wait until that moment, or until connections can go on, which are appended to `ready`, each maybe without reason.
    fn wait(&mut self, until: Nanos, ready: &mut Vec<usize>) -> io::Result<()>;
}

/// What others may see and do while the thread works.
#[derive(Debug, Default)]
pub struct Shared {
    cancelled: AtomicBool,
    recent: Mutex<Recent>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Begin nothing more, and end soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// What happened since the last call.
    pub fn recent(&self) -> Recent {
        lock(&self.recent).take()
    }
}

/// An operation under way.
#[derive(Debug)]
struct Task {
    kind: Kind,
    /// The object, or the container of a listing or of what is done with containers.
    number: u32,
    size: u64,
    intended: Nanos,
    begun: Nanos,
    first_byte: Option<Nanos>,
    is_counted: bool,
    is_resent: bool,
}

#[derive(Debug)]
struct Connection {
    exchange: Exchange,
    is_open: bool,
    /// Whether anything was written since it was opened.
    has_written: bool,
    /// Whether an answer has come over it.
    is_proved: bool,
    task: Option<Task>,
    worker: Worker,
}

/// Which operations count.
#[derive(Debug)]
struct Window {
    from: Nanos,
    /// Not known yet with a count of operations.
    to: Option<Nanos>,
    /// Operations that may still begin and count.
    left: Option<u64>,
}

impl Window {
    fn has(&self, moment: Nanos) -> bool {
        moment >= self.from && self.to.is_none_or(|to| moment < to)
    }
}

/// One thread's state during one order.
pub struct Engine<'a, W> {
    world: W,
    plan: &'a Plan,
    contents: &'a Contents,
    shared: &'a Shared,
    common: String,
    signer: Option<Signer>,
    population: Population,
    random: Random,
    /// Which reads are compared.
    verified: Share,
    /// Operations by the share of all that is up to them.
    mix: Vec<(f64, Kind)>,
    phase: Phase,
    /// The next container, and how many objects are still to be stored.
    next_container: u32,
    container_step: u32,
    fill_left: u32,
    window: Window,
    arrivals: Option<Arrivals>,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    /// Since when at least one connection has been idle without a break.
    free_since: Nanos,
    resting: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Connections that moved their share, and have more to do.
    later: Vec<usize>,
    in_flight: usize,
    /// Nothing begins any more.
    is_ending: bool,
    cancelled_at: Option<Nanos>,
    last_end: Nanos,
    tally: Tally,
    scratch: Vec<u8>,
}

impl<'a, W: World> Engine<'a, W> {
    /// The state of one thread of an order: `thread` of all that the plan has.
    pub(crate) fn new(
        world: W,
        plan: &'a Plan,
        contents: &'a Contents,
        shared: &'a Shared,
        order: Order,
        thread: usize,
        population: Population,
    ) -> Self {
        let now = world.now();
        let salt = (thread as u64) << 32;
        let (window, arrivals, fill_left) = match order.phase {
            Phase::Measure(Measure { warm_up, length, pace }) => {
                let from = now + warm_up;
                let (to, left) = match length {
                    Length::Time(time) => (Some(from + time), None),
                    Length::Operations(count) => (None, Some(count)),
                };
                let arrivals = match pace {
                    Pace::Open(pause) => Some(Arrivals::new(pause, now, Random::new(plan.seed, salt + 1))),
                    Pace::Closed(_) => None,
                };
                (Window { from, to, left }, arrivals, 0)
            }
            Phase::Fill(count) => (Window { from: now, to: None, left: None }, None, count),
            _ => (Window { from: now, to: None, left: None }, None, 0),
        };
        let mut common = format!("Host: {}\r\nUser-Agent: swiftlet-bench\r\n", plan.target.host);
        for (name, value) in &plan.target.headers {
            common.push_str(&format!("{name}: {value}\r\n"));
        }
        let sum: f64 = plan.mix.iter().map(|(_, weight)| weight).sum();
        let mut upto = 0.0;
        let mix = plan.mix.iter().filter(|(_, weight)| *weight > 0.0).map(|(kind, weight)| {
            upto += weight / sum;
            (upto, *kind)
        });
        let mix = mix.collect();
        let connections = (0..order.connections).map(|_| Connection {
            exchange: Exchange::new(),
            is_open: false,
            has_written: false,
            is_proved: false,
            task: None,
            worker: Worker::default(),
        });
        Self {
            world,
            plan,
            contents,
            shared,
            common,
            signer: match &plan.target.api {
                Api::S3(Some(keys)) => Some(Signer::new(keys)),
                _ => None,
            },
            random: Random::new(plan.seed, salt + 2 + u64::from(population.len() as u32)),
            population,
            // What TLS has decrypted was copied and is at hand: dropping it would save little.
            verified: Share::new(if plan.target.trust.is_some() { plan.verify.ceil() } else { plan.verify }),
            mix,
            phase: order.phase,
            next_container: thread as u32,
            container_step: plan.threads as u32,
            fill_left,
            window,
            arrivals,
            connections: connections.collect(),
            idle: (0..order.connections).collect(),
            free_since: now,
            resting: BinaryHeap::new(),
            later: Vec::new(),
            in_flight: 0,
            is_ending: false,
            cancelled_at: None,
            last_end: now,
            tally: Tally::default(),
            scratch: vec![0; SCRATCH_BYTES],
        }
    }

    /// Do the thread's part of the order. Returns what was measured, and the objects as they are then.
    pub(crate) fn run(mut self) -> io::Result<(Tally, Population)> {
        self.go()?;
        self.population.rest();
        Ok((self.tally, self.population))
    }

    fn go(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut tick = self.world.now() + TICK;
        loop {
            let now = self.world.now();
            if self.shared.is_cancelled() && self.cancelled_at.is_none() {
                self.cancelled_at = Some(now);
                self.tally.ended_early = Some("cancelled");
                self.window.to = Some(self.window.to.map_or(now, |to| to.min(now)).max(self.window.from));
            }
            if self.cancelled_at.is_some_and(|moment| now >= moment + GRACE) {
                break;
            }
            self.wake(now);
            self.begin_due(now);
            if self.in_flight == 0 && !self.may_begin(now) {
                break;
            }
            if now >= tick {
                self.check_deadlines(now);
                tick = now + TICK;
            }
            let until = if self.later.is_empty() { self.next_moment(tick) } else { now };
            ready.clear();
            self.world.wait(until, &mut ready)?;
            ready.append(&mut self.later);
            for connection in &ready {
                self.drive(*connection);
            }
        }
        self.conclude();
        Ok(())
    }

    /// Whether something may still begin.
    fn may_begin(&self, now: Nanos) -> bool {
        let is_ending = self.is_ending || self.cancelled_at.is_some();
        !is_ending && self.window.left != Some(0) && self.window.to.is_none_or(|to| now < to)
    }

    /// When there is something to do without any connection.
    fn next_moment(&self, tick: Nanos) -> Nanos {
        let mut next = tick;
        if let Some(Reverse((moment, _))) = self.resting.peek() {
            next = next.min(*moment);
        }
        if let (Some(arrivals), false) = (&self.arrivals, self.idle.is_empty())
            && self.may_begin(self.world.now())
        {
            next = next.min(arrivals.next());
        }
        match self.window.to {
            Some(to) if self.in_flight == 0 => next.min(to),
            _ => next,
        }
    }

    /// Connections that have thought or rested for long enough are idle.
    fn wake(&mut self, now: Nanos) {
        while let Some(Reverse((moment, connection))) = self.resting.peek().copied() {
            if moment > now {
                break;
            }
            self.resting.pop();
            self.make_idle(connection, moment);
        }
    }

    fn make_idle(&mut self, connection: usize, since: Nanos) {
        if self.idle.is_empty() {
            self.free_since = since;
        }
        self.idle.push_back(connection);
    }

    /// Begin what is due, as far as connections are idle.
    fn begin_due(&mut self, mut now: Nanos) {
        while let Some(connection) = self.idle.front().copied() {
            if !self.may_begin(now) {
                return;
            }
            let intended = match &mut self.arrivals {
                Some(arrivals) if arrivals.next() > now => return,
                Some(arrivals) => arrivals.advance(),
                None => now,
            };
            let Some((kind, number)) = self.choose() else { return };
            self.idle.pop_front();
            if self.arrivals.is_some() && self.free_since <= intended && self.window.has(intended) {
                self.tally.lateness.record(now - intended);
            }
            self.begin(connection, kind, number, intended, now);
            now = self.world.now();
        }
    }

    fn begin(&mut self, connection: usize, kind: Kind, number: u32, intended: Nanos, now: Nanos) {
        let is_counted = self.window.has(intended);
        if is_counted && let Some(left) = &mut self.window.left {
            *left -= 1;
        }
        let has_contents = matches!(kind, Kind::Create | Kind::Update | Kind::Read | Kind::Head);
        let size = if has_contents { self.plan.sizes.of(self.plan.seed, number) } else { 0 };
        let start = self.contents.start(number);
        let body = match kind {
            Kind::Create | Kind::Update => Some((start, size)),
            Kind::CreateContainer => Some((0, 0)),
            _ => None,
        };
        let expect = match kind {
            Kind::Read if self.verified.takes_next() => Expect::Contents { start, size },
            Kind::Read | Kind::Head => Expect::Size(size),
            // S3 lists in XML, which is not looked into.
            Kind::List if matches!(self.plan.target.api, Api::Swift) => {
                Expect::Listing(Names::after(choosing::name(number).as_bytes(), self.plan.page))
            }
            _ => Expect::Nothing,
        };
        let place = self.place(kind, number);
        let one = &mut self.connections[connection];
        match &mut self.signer {
            None => one.exchange.begin(kind.method(), &place, &self.common, body, expect),
            Some(signer) => {
                let signed = signer.lines(self.world.calendar(), kind.method(), &self.plan.target.host, &place);
                one.exchange.begin(kind.method(), &place, &(self.common.clone() + &signed), body, expect);
            }
        }
        let task = Task { kind, number, size, intended, begun: now, first_byte: None, is_counted, is_resent: false };
        one.task = Some(task);
        self.in_flight += 1;
        self.start(connection);
    }
}
