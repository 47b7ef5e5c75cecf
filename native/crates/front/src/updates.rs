//! Rows on their way from the thread to container servers: batches by container, what is durable, and the
//! acknowledgements to the objects' devices. Nothing is sent here: [`Updates::todo`] says what has to be done.
//!
//! A batch has been *taken* when all of the container's replicas have its rows. Its clients are answered when those
//! have them that their writes wait for: all, or those of one region. Whenever that does not succeed, whole and soon,
//! the batch goes to Python, which delivers it as it delivers all rows: those that were taken change nothing then. A
//! batch that was answered and is not taken, or does not become durable everywhere, stays pending at the objects'
//! devices, which deliver it later.
//!
//! Fault model: container servers may refuse, be silent, be lost after they have taken rows, or be started anew, and
//! devices may not hear of acknowledgements. Everything that waits here is bounded, in number or by the connections
//! whose requests it belongs to.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use swiftlet_node::Status;
use swiftlet_node::message::updates::{MAX_BATCH_ROWS, Taken as Position, UPDATE, Update, decode_taken};
use swiftlet_transport::{Body, Call, Chunk, What};

use self::acknowledging::Acknowledging;
use self::servers::Servers;
use crate::made::Made;
use crate::name;
use crate::room::Listed;
use crate::routes::{Device, Policy};

mod acknowledging;
mod servers;

/// The largest number of bytes of the rows in a message, which is then sent in one piece.
const MAX_BYTES: usize = 60 << 10;
/// How long container servers may be silent before Python delivers the rows.
const SILENCE: Duration = Duration::from_millis(500);
/// How long a container that a server does not take rows of is left to Python the first time. It may be in its ordinary
/// state again as soon as Python's rows are in its database.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest time for which such a container is left to Python, after many refusals.
const PAUSE_AT_MOST: Duration = Duration::from_millis(500);
/// Batches of one container that are under way at the same time. Rows merge in any order.
const MOST_UNDER_WAY: usize = 2;
/// The largest number of containers of which something is remembered.
const MAX_LANES: usize = 10_000;
/// The largest number of rows that were answered and wait to be durable; more are left to the devices.
const MAX_NOT_DURABLE: usize = 100_000;

/// The fields of [`Rows`] as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    delivering: AtomicUsize,
    not_durable: AtomicUsize,
    acknowledging: AtomicUsize,
    messages: AtomicU64,
    sent: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    others: AtomicU64,
    left_pending: AtomicU64,
    acknowledged: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

/// What has become of rows so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Rows that wait for container servers, or for the batch before theirs.
    pub delivering: usize,
    /// Rows that container servers have taken and not made durable yet.
    pub not_durable: usize,
    /// Acknowledgements that devices have not answered yet.
    pub acknowledging: usize,
    /// Messages with rows to container servers.
    pub messages: u64,
    /// Rows in them.
    pub sent: u64,
    /// Rows that all container servers have taken.
    pub taken: u64,
    /// Rows that Python got because a container server did not take them.
    pub refused: u64,
    /// Rows that Python got without an attempt.
    pub others: u64,
    /// Rows that were taken, and stay pending at the devices.
    pub left_pending: u64,
    /// Acknowledgements that devices have answered.
    pub acknowledged: u64,
    /// Those that devices may not have heard of.
    pub lost: u64,
    /// Those that were too many.
    pub dropped: u64,
}

impl Rows {
    pub(crate) fn of(counts: &Counts) -> Self {
        Self {
            delivering: counts.delivering.load(Relaxed),
            not_durable: counts.not_durable.load(Relaxed),
            acknowledging: counts.acknowledging.load(Relaxed),
            messages: counts.messages.load(Relaxed),
            sent: counts.sent.load(Relaxed),
            taken: counts.taken.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            others: counts.others.load(Relaxed),
            left_pending: counts.left_pending.load(Relaxed),
            acknowledged: counts.acknowledged.load(Relaxed),
            lost: counts.lost.load(Relaxed),
            dropped: counts.dropped.load(Relaxed),
        }
    }
}

/// What has to be done.
#[derive(Debug)]
pub(crate) enum Do {
    /// So many calls follow that belong together, with tokens like this one: only all of their answers bring anything on.
    Expect(u64, usize),
    /// Make a call, whose events come with this number.
    Call(Arc<Device>, Box<Call>, u64),
    /// Answer these clients.
    Answer(Vec<u64>),
    /// These tasks are durable in most replicas: their objects may be stored.
    Queued(Vec<u64>),
    /// Room was taken by rows that count by themselves now.
    Listed(Listed),
    /// Leave these to Python.
    Leave(Vec<Made>),
    /// Tell Python that the server with this number in the ring has failed.
    Report(u16),
}

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Update,
    Durable,
    Hello,
    Acknowledge,
}

const KINDS: [Kind; 4] = [Kind::Update, Kind::Durable, Kind::Hello, Kind::Acknowledge];
const KIND_SHIFT: u32 = 56;
const ID_SHIFT: u32 = 8;
/// The bits of a token that are the same for all messages of a batch.
pub(crate) const BATCH: u64 = !((1 << ID_SHIFT) - 1);

fn token(kind: Kind, id: u64, replica: usize) -> u64 {
    (kind as u64) << KIND_SHIFT | id << ID_SHIFT | replica as u64
}

/// A container whose rows are being delivered, or that is left to Python for a while.
#[derive(Debug)]
struct Lane {
    /// Batches that are under way; with `MOST_UNDER_WAY` others wait.
    under_way: usize,
    waiting: VecDeque<Made>,
    paused_until: Option<Instant>,
    /// How long the next pause is.
    pause: Duration,
}

impl Default for Lane {
    fn default() -> Self {
        Self { under_way: 0, waiting: VecDeque::new(), paused_until: None, pause: PAUSE }
    }
}

impl Lane {
    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    fn pause(&mut self, now: Instant) {
        self.paused_until = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_AT_MOST);
    }

    /// Whether it says nothing that a new one would not.
    fn is_idle(&self, now: Instant) -> bool {
        let is_over = self.paused_until.is_none_or(|until| now > until + PAUSE_AT_MOST);
        self.under_way == 0 && self.waiting.is_empty() && is_over
    }

    /// The next rows that fit into one message.
    fn take(&mut self) -> Vec<Made> {
        let mut bytes = 0;
        let mut count = 0;
        for one in self.waiting.iter().take(MAX_BATCH_ROWS) {
            bytes += one.row.name.len() + one.row.etag.len() + one.row.content_type.len() + ROW_BYTES;
            if count > 0 && bytes > MAX_BYTES {
                break;
            }
            count += 1;
        }
        self.waiting.drain(..count).collect()
    }
}

/// Bytes of a row beside its texts.
const ROW_BYTES: usize = 23;

/// Rows of one container that were sent to all of its replicas.
#[derive(Debug)]
struct Batch {
    made: Vec<Made>,
    servers: Vec<u64>,
    /// By replica.
    taken: Vec<Option<Position>>,
    /// Whether its clients have been answered.
    answered: bool,
}

impl Batch {
    /// The replicas that its clients wait for, as bits.
    fn awaited(&self) -> u32 {
        self.made.iter().fold(0, |all, one| all | one.awaited)
    }

    /// Whether its clients wait for all replicas.
    fn awaits_all(&self) -> bool {
        (0..self.servers.len()).all(|replica| self.awaited() >> replica & 1 == 1)
    }

    /// Whether all replicas have it that its clients wait for.
    fn is_enough(&self) -> bool {
        let awaited = self.awaited();
        let mut missing = self.taken.iter().enumerate().filter(|(_, taken)| taken.is_none());
        missing.all(|(replica, _)| awaited >> replica & 1 == 0)
    }
}

/// Rows that all replicas have taken.
#[derive(Debug)]
struct Taken {
    made: Vec<Made>,
    /// The number of replicas where they are not durable yet.
    left: usize,
    /// With so many left, they are durable in most.
    enough: usize,
}

/// Rows that are being delivered.
pub(crate) struct Updates {
    secret: (Vec<u8>, Vec<u8>),
    counts: Arc<Counts>,
    servers: Servers,
    acknowledging: Acknowledging,
    lanes: HashMap<Arc<[u8]>, Lane>,
    batches: HashMap<u64, Batch>,
    taken: HashMap<u64, Taken>,
    next: u64,
    todo: Vec<Do>,
}

impl Updates {
    /// Names are hashed with `secret`; servers may take `timeout` to make rows durable, and to note an acknowledgement.
    pub(crate) fn new(secret: (Vec<u8>, Vec<u8>), timeout: Duration, counts: Arc<Counts>) -> Self {
        Self {
            secret,
            servers: Servers::new(timeout),
            acknowledging: Acknowledging::new(Arc::clone(&counts), timeout),
            counts,
            lanes: HashMap::new(),
            batches: HashMap::new(),
            taken: HashMap::new(),
            next: 0,
            todo: Vec::new(),
        }
    }

    /// What has to be done now.
    pub(crate) fn todo(&mut self) -> Vec<Do> {
        mem::take(&mut self.todo)
    }

    /// Container databases are there from now on; None: nobody knows where.
    pub(crate) fn route(&mut self, ring: Option<Policy>) {
        self.servers.route(ring);
    }

    /// When there is something to do next without an event.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.acknowledging.due()
    }

    /// Do what is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.acknowledging.tick(now, &mut self.todo);
    }

    /// Forget what is not worth remembering.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.lanes.retain(|_, lane| !lane.is_idle(now));
    }

    /// Let acknowledgements wait for no others any more.
    pub(crate) fn leave(&mut self) {
        self.acknowledging.leave(&mut self.todo);
    }

    /// Deliver the rows of these; those of a container that came together are sent together.
    pub(crate) fn add(&mut self, made: Vec<Made>, now: Instant) {
        let mut touched: Vec<Arc<[u8]>> = Vec::new();
        let mut others = Vec::new();
        self.counts.delivering.fetch_add(made.len(), Relaxed);
        for one in made {
            if !touched.contains(&one.container) {
                if self.lanes.len() >= MAX_LANES && !self.lanes.contains_key(&one.container) {
                    others.push(one);
                    continue;
                }
                touched.push(Arc::clone(&one.container));
            }
            self.lanes.entry(Arc::clone(&one.container)).or_default().waiting.push_back(one);
        }
        self.give_up(others, false);
        for container in touched {
            self.send(&container, now);
        }
    }

    /// Leave rows to Python.
    fn give_up(&mut self, made: Vec<Made>, is_refused: bool) {
        if made.is_empty() {
            return;
        }
        let counter = if is_refused { &self.counts.refused } else { &self.counts.others };
        counter.fetch_add(made.len() as u64, Relaxed);
        self.counts.delivering.fetch_sub(made.len(), Relaxed);
        self.todo.push(Do::Leave(made));
    }

    /// Send the rows of a container that wait, unless others are under way.
    fn send(&mut self, container: &Arc<[u8]>, now: Instant) {
        let Some(lane) =
            self.lanes.get_mut(container).filter(|lane| lane.under_way < MOST_UNDER_WAY && !lane.waiting.is_empty())
        else {
            return;
        };
        let digest = name::container_digest((&self.secret.0, &self.secret.1), container);
        let found = if lane.is_paused(now) { None } else { self.servers.of(&digest, now, &mut self.todo) };
        let (partition, servers) = match found {
            Some((partition, servers)) if lane.waiting.iter().all(|one| is_for(&one.rows, servers.len())) => {
                (partition, servers)
            }
            _ => {
                let made = mem::take(&mut lane.waiting).into();
                return self.give_up(made, false);
            }
        };
        let made = lane.take();
        let (Some(body), Ok(name)) = (body(&made), std::str::from_utf8(container)) else {
            self.give_up(made, false);
            return self.send(container, now);
        };
        lane.under_way += 1;
        self.next += 1;
        let batch = self.next;
        let (messages, rows) = (servers.len() as u64, made.len() as u64);
        self.counts.messages.fetch_add(messages, Relaxed);
        self.counts.sent.fetch_add(messages * rows, Relaxed);
        let taken = vec![None; servers.len()];
        let sent = Batch { made, servers, taken, answered: false };
        if sent.awaits_all() {
            self.todo.push(Do::Expect(token(Kind::Update, batch, 0), sent.servers.len()));
        }
        for (replica, server) in sent.servers.iter().enumerate() {
            let Some(device) = self.servers.device(*server) else { continue };
            let trace = sent.made[0].id.clone();
            let header = header(device.name(), partition, name);
            let body = Body::Chunk(body.clone());
            let call = Call { method: UPDATE, timeout: SILENCE, trace, header, body, ..Call::default() };
            let token = token(Kind::Update, batch, replica);
            self.todo.push(Do::Call(Arc::clone(device), Box::new(call), token));
        }
        self.batches.insert(batch, sent);
        self.answer(batch, now);
    }

    /// Have the clients of a batch answered as soon as those replicas have taken it that they wait for.
    fn answer(&mut self, id: u64, now: Instant) {
        let Some(batch) = self.batches.get_mut(&id).filter(|batch| !batch.answered && batch.is_enough()) else {
            return;
        };
        batch.answered = true;
        let rows = batch.made.len();
        self.counts.taken.fetch_add(rows as u64, Relaxed);
        self.counts.delivering.fetch_sub(rows, Relaxed);
        // A container has tasks only, or none.
        if !batch.made[0].is_task {
            self.todo.push(Do::Answer(batch.made.iter().map(|one| one.token).collect()));
        }
        let container = Arc::clone(&batch.made[0].container);
        if rows > MAX_NOT_DURABLE.saturating_sub(self.counts.not_durable.load(Relaxed)) {
            self.counts.left_pending.fetch_add(rows as u64, Relaxed);
            if let Some(batch) = self.batches.remove(&id) {
                if !batch.taken.contains(&None) {
                    self.todo.extend(Listed::of(&batch.made).map(Do::Listed));
                }
                self.give_up_tasks(batch.made);
            }
        } else {
            self.counts.not_durable.fetch_add(rows, Relaxed);
        }
        if let Some(lane) = self.lanes.get_mut(&container) {
            lane.under_way -= 1;
        }
        self.send(&container, now);
    }

    /// Leave the rows of a batch that was answered to the objects' devices.
    fn leave_pending(&mut self, made: Vec<Made>) {
        self.counts.not_durable.fetch_sub(made.len(), Relaxed);
        self.counts.left_pending.fetch_add(made.len() as u64, Relaxed);
        self.give_up_tasks(made);
    }

    /// Leave the requests to Python whose tasks may not be durable.
    fn give_up_tasks(&mut self, mut made: Vec<Made>) {
        made.retain(|one| one.is_task);
        if !made.is_empty() {
            self.todo.push(Do::Leave(made));
        }
    }

    /// Note an event of a call.
    pub(crate) fn event(&mut self, token: u64, what: &What, now: Instant) {
        let Some(kind) = KINDS.get((token >> KIND_SHIFT) as usize) else { return };
        let id = (token & ((1 << KIND_SHIFT) - 1)) >> ID_SHIFT;
        match kind {
            Kind::Update => self.updated(id, (token & 0xff) as usize, what, now),
            Kind::Durable => self.durable(id, what, now),
            Kind::Hello => self.servers.said_hello(id, what, now, &mut self.todo),
            Kind::Acknowledge => self.acknowledging.told(id, what, &mut self.todo),
        }
    }

    /// Note a replica's answer to the rows of a batch.
    fn updated(&mut self, id: u64, replica: usize, what: &What, now: Instant) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        let position = match what {
            What::Sent(_) => return,
            What::Reply { status, header, .. } if *status == Status::Ok as u16 => decode_taken(header).ok(),
            What::Reply { .. } => None,
            _ => {
                self.servers.failed(batch.servers[replica], now, &mut self.todo);
                None
            }
        };
        if position.is_some() {
            batch.taken[replica] = position;
            let is_whole = !batch.taken.contains(&None);
            self.unpause(id);
            self.answer(id, now);
            if is_whole && let Some(batch) = self.batches.remove(&id) {
                self.all_have(id, batch);
            }
            return;
        }
        let Some(batch) = self.batches.remove(&id) else { return };
        let container = Arc::clone(&batch.made[0].container);
        if let Some(lane) = self.lanes.get_mut(&container) {
            lane.under_way -= usize::from(!batch.answered);
            if !lane.is_paused(now) {
                // Else it is about the same as what was refused just before.
                lane.pause(now);
            }
        }
        if batch.answered {
            self.leave_pending(batch.made);
        } else {
            self.give_up(batch.made, true);
        }
        self.send(&container, now);
    }

    /// End the pause of a container whose replicas have all taken a batch.
    fn unpause(&mut self, id: u64) {
        let whole = self.batches.get(&id).filter(|batch| !batch.taken.contains(&None));
        if let Some(lane) = whole.and_then(|batch| self.lanes.get_mut(&batch.made[0].container)) {
            (lane.pause, lane.paused_until) = (PAUSE, None);
        }
    }

    /// Ask when a batch is durable that all replicas have taken.
    fn all_have(&mut self, id: u64, batch: Batch) {
        let Batch { made, servers, taken, .. } = batch;
        self.todo.extend(Listed::of(&made).map(Do::Listed));
        let mut is_asked = true;
        for (server, upto) in servers.iter().zip(taken.into_iter().flatten()) {
            is_asked = is_asked && self.servers.taken(*server, upto, id, &mut self.todo);
        }
        if is_asked {
            let left = servers.len();
            self.taken.insert(id, Taken { made, left, enough: left - (left / 2 + 1) });
        } else {
            self.leave_pending(made);
        }
    }

    /// Note what a server has made durable, or will not say.
    fn durable(&mut self, server: u64, what: &What, now: Instant) {
        let outcome = self.servers.said_durable(server, what, now, &mut self.todo);
        for id in outcome.lost {
            if let Some(Taken { made, .. }) = self.taken.remove(&id) {
                self.leave_pending(made);
            }
        }
        for id in outcome.durable {
            let Some(taken) = self.taken.get_mut(&id) else { continue };
            taken.left -= 1;
            if taken.left == taken.enough && taken.made[0].is_task {
                self.todo.push(Do::Queued(taken.made.iter().map(|one| one.token).collect()));
            }
            if taken.left == 0
                && let Some(Taken { made, .. }) = self.taken.remove(&id)
            {
                // In this order: whoever waits for all of them sees them in one place or the other.
                self.acknowledging.add(&made, now, &mut self.todo);
                self.counts.not_durable.fetch_sub(made.len(), Relaxed);
            }
        }
    }
}

/// Whether the devices of an object keep its update for so many replicas of the container, and no others.
fn is_for(shares: &[u32], replicas: usize) -> bool {
    let all = shares.iter().fold(0, |all, share| all | u64::from(*share));
    replicas > 0 && all == (1_u64 << replicas) - 1
}

fn header(device: &str, partition: u32, container: &str) -> Vec<u8> {
    let mut parts = container.split('/').skip(1);
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let update = Update { device: device.to_owned(), partition, account: part(), container: part() };
    // Whatever is over its limit is refused by the server.
    update.encode().unwrap_or_default()
}

/// The rows in the form in which they are sent; None if any can't be.
fn body(made: &[Made]) -> Option<Chunk> {
    let mut out = Vec::new();
    for one in made {
        one.row.encode(&mut out)?;
    }
    Some(Chunk::from(out))
}

#[cfg(test)]
mod tests;
