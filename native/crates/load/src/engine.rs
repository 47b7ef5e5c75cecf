//! One thread of the generator: it keeps connections busy as the order says, and measures. Sockets and the clock are the
//! [`World`]'s.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contents::Contents;
use crate::exchange::{Exchange, Expect, Failure};
use crate::names::Names;
use crate::pace::Arrivals;
use crate::plan::{Kind, Length, Measure, Nanos, Order, Pace, Phase, Plan};
use crate::population::Population;
use crate::random::Random;
use crate::tally::{Recent, Tally, Worker};

/// What one read takes at most.
const SCRATCH_BYTES: usize = 256 << 10;
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
    /// Begin to connect. Until the connection is there, reads and writes would block.
    fn connect(&mut self, connection: usize) -> io::Result<()>;
    /// Forget a connection.
    fn close(&mut self, connection: usize);
    /// Write what there is room for.
    fn write(&mut self, connection: usize, bytes: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Read what there is: how much, 0 at the end, and whether there may be more.
    fn read(&mut self, connection: usize, into: &mut [u8]) -> io::Result<(usize, bool)>;
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
    population: Population,
    random: Random,
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
    /// Do one thread's part of an order: `thread` of all that the plan has. What was measured, and the objects as they
    /// are then.
    pub(crate) fn run(
        world: W,
        plan: &'a Plan,
        contents: &'a Contents,
        shared: &'a Shared,
        order: Order,
        thread: usize,
        population: Population,
    ) -> io::Result<(Tally, Population)> {
        let mut engine = Self::new(world, plan, contents, shared, order, thread, population);
        engine.go()?;
        engine.population.rest();
        Ok((engine.tally, engine.population))
    }

    fn new(
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
            random: Random::new(plan.seed, salt + 2 + u64::from(population.len() as u32)),
            population,
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
        if let (Some(arrivals), false, true) = (&self.arrivals, self.idle.is_empty(), self.may_begin(self.world.now()))
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

    /// The next operation; None when there is none any more.
    fn choose(&mut self) -> Option<(Kind, u32)> {
        let chosen = match self.phase {
            Phase::CreateContainers | Phase::DeleteContainers => {
                let container = self.next_container;
                let kind = match self.phase {
                    Phase::CreateContainers => Kind::CreateContainer,
                    _ => Kind::DeleteContainer,
                };
                (container < self.plan.containers).then(|| {
                    self.next_container += self.container_step;
                    (kind, container)
                })
            }
            Phase::Fill(_) if self.fill_left == 0 => None,
            Phase::Fill(_) => self.population.fresh().map(|number| {
                self.fill_left -= 1;
                (Kind::Create, number)
            }),
            Phase::Empty => self.population.take_last().map(|number| (Kind::Delete, number)),
            Phase::Measure(_) => self.choose_of_mix(),
        };
        if chosen.is_none() {
            self.is_ending = true;
        }
        chosen
    }

    fn draw_kind(&mut self) -> Option<Kind> {
        let place = self.random.unit();
        self.mix.iter().find(|(upto, _)| place <= *upto).or(self.mix.last()).map(|(_, kind)| *kind)
    }

    fn choose_of_mix(&mut self) -> Option<(Kind, u32)> {
        let drawn = self.draw_kind()?;
        // What needs an object where none is free gives way to something else.
        for place in 0..=self.mix.len() {
            let kind = if place == 0 { drawn } else { self.mix[place - 1].1 };
            let number = match kind {
                Kind::Create => self.population.fresh(),
                Kind::Read | Kind::Update | Kind::Head => self.population.pick(&mut self.random),
                Kind::Delete => self.population.take(&mut self.random),
                Kind::List => Some(self.population.any(&mut self.random).unwrap_or(0)),
                Kind::CreateContainer | Kind::DeleteContainer => None,
            };
            if let Some(number) = number {
                return Some((kind, number));
            }
        }
        self.tally.ended_early = Some(match drawn {
            Kind::Create => "there are as many objects as one thread keeps track of",
            _ => "no object was left: store more in advance, or create as many as are deleted",
        });
        None
    }

    fn place(&self, kind: Kind, number: u32) -> String {
        let Plan { target, prefix, containers, page, .. } = self.plan;
        match kind {
            Kind::CreateContainer | Kind::DeleteContainer => format!("{}/{prefix}-{number:06}", target.path),
            Kind::List => {
                let container = number % containers;
                format!("{}/{prefix}-{container:06}?limit={page}&marker={}", target.path, name(number))
            }
            _ => format!("{}/{prefix}-{:06}/{}", target.path, number % containers, name(number)),
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
            Kind::Read if self.plan.verify => Expect::Contents { start, size },
            Kind::Head if self.plan.verify => Expect::Size(size),
            Kind::List if self.plan.verify => Expect::Listing(Names::after(name(number).as_bytes(), self.plan.page)),
            _ => Expect::Nothing,
        };
        let place = self.place(kind, number);
        let one = &mut self.connections[connection];
        one.exchange.begin(kind.method(), &place, &self.common, body, expect);
        let task = Task { kind, number, size, intended, begun: now, first_byte: None, is_counted, is_resent: false };
        one.task = Some(task);
        self.in_flight += 1;
        self.start(connection);
    }

    /// Connect if need be, and send what there is room for.
    fn start(&mut self, connection: usize) {
        if !self.connections[connection].is_open {
            if let Err(error) = self.world.connect(connection) {
                self.failed(connection, Failure::Connect, &error.to_string());
                return;
            }
            let one = &mut self.connections[connection];
            (one.is_open, one.has_written, one.is_proved) = (true, false, false);
        }
        let mut budget = TURN_BYTES;
        if let Err(error) = self.send(connection, &mut budget) {
            self.lost(connection, &error.to_string());
        } else if budget == 0 {
            self.later.push(connection);
        }
    }

    /// Send until there is no room or no budget.
    fn send(&mut self, connection: usize, budget: &mut u64) -> io::Result<()> {
        let (world, contents) = (&mut self.world, self.contents);
        let one = &mut self.connections[connection];
        let mut moved = 0;
        let result = loop {
            if one.exchange.is_sent() || *budget == 0 {
                break Ok(());
            }
            match one.exchange.send(contents, |slices| world.write(connection, slices)) {
                Ok(body) => {
                    one.has_written = true;
                    moved += body;
                    *budget = budget.saturating_sub(body);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.moved(moved);
        result
    }

    fn moved(&mut self, bytes: u64) {
        if bytes > 0 {
            if self.window.has(self.world.now()) {
                self.tally.moved += bytes;
            }
            lock(&self.shared.recent).moved += bytes;
        }
    }

    /// Go on with a connection that may be able to.
    fn drive(&mut self, connection: usize) {
        let mut budget = TURN_BYTES;
        while self.connections[connection].task.is_some() {
            if let Err(error) = self.send(connection, &mut budget) {
                // An answer that came before the request was complete says why.
                if !self.receive_rest(connection) {
                    self.lost(connection, &error.to_string());
                }
                return;
            }
            match self.world.read(connection, &mut self.scratch) {
                Ok((0, _)) => {
                    match self.connections[connection].exchange.end() {
                        Ok(()) => self.ended(connection, true),
                        Err(_) => self.lost(connection, "the store closed the connection"),
                    }
                    return;
                }
                Ok((size, has_more)) => {
                    if !self.received(connection, size, &mut budget) || !has_more {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if budget == 0 {
                        self.later.push(connection);
                    }
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lost(connection, &error.to_string());
                    return;
                }
            }
            if budget == 0 {
                self.later.push(connection);
                return;
            }
        }
        self.look_at_idle(connection);
    }

    /// Take what was read into the scratch; whether the operation goes on.
    fn received(&mut self, connection: usize, size: usize, budget: &mut u64) -> bool {
        let now = self.world.now();
        let one = &mut self.connections[connection];
        if let Some(task) = &mut one.task
            && task.first_byte.is_none()
        {
            task.first_byte = Some(now);
        }
        match one.exchange.take(self.contents, &self.scratch[..size]) {
            Ok(body) => {
                *budget = budget.saturating_sub(body);
                let is_done = one.exchange.is_done();
                self.moved(body);
                if is_done {
                    self.ended(connection, false);
                }
                !is_done
            }
            Err(failure) => {
                self.failed(connection, failure, "the answer can't be understood");
                false
            }
        }
    }

    /// After a write has failed: whether there is an answer nevertheless.
    fn receive_rest(&mut self, connection: usize) -> bool {
        let mut budget = u64::MAX;
        loop {
            match self.world.read(connection, &mut self.scratch) {
                Ok((size, _)) if size > 0 => {
                    if !self.received(connection, size, &mut budget) {
                        return true;
                    }
                }
                _ => return false,
            }
        }
    }

    /// An idle connection has something to say: that it has ended, or what nobody asked for.
    fn look_at_idle(&mut self, connection: usize) {
        if !self.connections[connection].is_open {
            return;
        }
        let is_blocked = |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        match self.world.read(connection, &mut self.scratch) {
            Err(error) if is_blocked(&error) => {}
            _ => self.close(connection),
        }
    }

    fn close(&mut self, connection: usize) {
        self.world.close(connection);
        self.connections[connection].is_open = false;
    }

    /// A connection was lost. One that was good before, and ends before any byte of an answer, was closed for being idle:
    /// its request is sent again, once.
    fn lost(&mut self, connection: usize, why: &str) {
        self.close(connection);
        let one = &mut self.connections[connection];
        let Some(task) = &mut one.task else { return };
        if one.is_proved && !one.exchange.has_answer() && !task.is_resent {
            task.is_resent = true;
            one.exchange.again();
            self.tally.resent += 1;
            self.start(connection);
            return;
        }
        let failure = if one.has_written { Failure::Closed } else { Failure::Connect };
        self.failed(connection, failure, why);
    }

    /// The answer is complete.
    fn ended(&mut self, connection: usize, is_closed: bool) {
        let one = &mut self.connections[connection];
        one.is_proved = true;
        let status = one.exchange.status();
        let Some(task) = &one.task else { return };
        if is_closed || !one.exchange.keeps() {
            self.world.close(connection);
            one.is_open = false;
        }
        if !is_success(task, status, self.phase) {
            self.failed(connection, Failure::Status(status), "");
        } else if let Some(wrong) = one.exchange.wrong() {
            self.failed(connection, Failure::Corrupt, &wrong);
        } else {
            self.succeeded(connection);
        }
    }

    fn succeeded(&mut self, connection: usize) {
        let now = self.world.now();
        let one = &mut self.connections[connection];
        let Some(task) = one.task.take() else { return };
        let bytes = if task.kind == Kind::Head { 0 } else { task.size.max(one.exchange.body_received()) };
        let latency = now - task.intended;
        let is_within = self.window.has(now);
        if task.is_counted {
            one.worker.operations += 1;
            one.worker.bytes += bytes;
            one.worker.busy += now - task.begun;
        }
        if task.is_counted || is_within {
            let counted = self.tally.of(task.kind);
            counted.ended += u64::from(is_within);
            if task.is_counted {
                counted.succeeded += 1;
                counted.bytes += bytes;
                counted.latency.record(latency);
                counted.first_byte.record(task.first_byte.unwrap_or(now).saturating_sub(task.intended));
            }
        }
        {
            let mut recent = lock(&self.shared.recent);
            recent.succeeded += 1;
            recent.latency.record(latency);
        }
        if task.kind == Kind::Create {
            self.population.created(task.number);
        }
        self.release(connection, &task, now, false);
    }

    fn failed(&mut self, connection: usize, failure: Failure, why: &str) {
        let now = self.world.now();
        if !matches!(failure, Failure::Status(_) | Failure::Corrupt) && self.connections[connection].is_open {
            self.close(connection);
        }
        let one = &mut self.connections[connection];
        let Some(task) = one.task.take() else { return };
        if task.is_counted {
            one.worker.busy += now - task.begun;
            let request = one.exchange.request();
            let counted = self.tally.of(task.kind);
            counted.fail(failure, 1, || if why.is_empty() { request } else { format!("{request}: {why}") });
            if failure == Failure::Timeout {
                counted.latency.record(now - task.intended);
            }
        }
        lock(&self.shared.recent).failed += 1;
        self.leave(task.kind, task.number);
        self.release(connection, &task, now, failure == Failure::Connect);
    }

    /// The connection is free for the next operation, at once or after a pause.
    fn release(&mut self, connection: usize, task: &Task, now: Nanos, must_rest: bool) {
        self.in_flight -= 1;
        self.last_end = now;
        if !matches!(task.kind, Kind::List | Kind::CreateContainer | Kind::DeleteContainer) {
            self.population.release(task.number);
        }
        let thinking = match self.phase {
            Phase::Measure(Measure { pace: Pace::Closed(pause), .. }) => pause.draw(&mut self.random),
            _ => 0,
        };
        let rest = if must_rest { thinking.max(CONNECT_PAUSE) } else { thinking };
        if rest == 0 {
            self.make_idle(connection, now);
        } else {
            self.resting.push(Reverse((now + rest, connection)));
        }
    }

    fn check_deadlines(&mut self, now: Nanos) {
        for connection in 0..self.connections.len() {
            let begun = self.connections[connection].task.as_ref().map(|task| task.begun);
            if begun.is_some_and(|begun| now >= begun + self.plan.timeout) {
                let why = format!("not answered within {:.1} s", self.plan.timeout as f64 / 1e9);
                self.failed(connection, Failure::Timeout, &why);
            }
        }
    }

    /// Count what never began, and what connections did; note what became of nothing.
    fn conclude(&mut self) {
        self.count_not_begun();
        for connection in 0..self.connections.len() {
            let one = &mut self.connections[connection];
            self.tally.worker(&one.worker);
            if let Some(task) = one.task.take() {
                self.leave(task.kind, task.number);
            }
        }
        let Window { from, to, left } = self.window;
        let end = if self.is_ending || left.is_some() { self.last_end } else { self.world.now() };
        self.tally.window = to.filter(|_| !self.is_ending).unwrap_or(end).saturating_sub(from);
    }

    fn count_not_begun(&mut self) {
        let Some(to) = self.window.to.filter(|_| !self.is_ending) else { return };
        while let Some(intended) = self.arrivals.as_ref().map(Arrivals::next).filter(|next| *next < to) {
            let Some(kind) = self.draw_kind() else { return };
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance();
            }
            if intended >= self.window.from {
                let counted = self.tally.of(kind);
                counted.fail(Failure::NotBegun, 1, || "no connection was free for it".to_owned());
                counted.latency.record(to - intended);
            }
        }
    }

    /// An operation ended badly, or not at all: its object may or may not exist.
    fn leave(&mut self, kind: Kind, number: u32) {
        match (kind, self.phase) {
            (Kind::Delete, Phase::Empty) => self.population.keep(number),
            (Kind::Create | Kind::Delete, _) => self.population.doubt(number),
            _ => {}
        }
    }
}

/// The name of an object.
fn name(number: u32) -> String {
    format!("{number:010}")
}

fn is_success(task: &Task, status: u16, phase: Phase) -> bool {
    match task.kind {
        Kind::Read | Kind::Head => status == 200,
        Kind::List => matches!(status, 200 | 204),
        Kind::Create | Kind::Update | Kind::CreateContainer => (200..300).contains(&status),
        // What is deleted twice is not there the second time, and what is deleted in the end may never have been.
        Kind::Delete => (200..300).contains(&status) || (status == 404 && (task.is_resent || phase == Phase::Empty)),
        Kind::DeleteContainer => (200..300).contains(&status) || status == 404,
    }
}
