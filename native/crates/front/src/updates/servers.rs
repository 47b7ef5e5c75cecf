//! Container servers: whether they are spoken to, and what they have made durable.
//!
//! Fault model: a server may have no native node, refuse, be silent, or be started anew, and then knows nothing of the
//! positions that it told before. It gets rows only once it has answered a question; whether it has failed is found
//! out by another question, never by rows for which clients wait.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_node::Status;
use swiftlet_node::message::updates::{AskDurable, DURABLE};
use swiftlet_transport::{Call, What};

use super::{Do, Kind, Position, token};
use crate::routes::{Device, Policy};

/// How long a server that has failed is not asked.
const SILENT_FOR: Duration = Duration::from_secs(2);
/// How long it may take to answer whether it is there.
const ANSWER_TIME: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has asked.
    Unknown,
    Asked,
    Answers,
    /// It has failed, and is asked again then at the earliest.
    Silent(Instant),
}

/// Rows that a server has taken, and not made durable yet.
#[derive(Debug)]
struct Waiting {
    upto: Position,
    batch: u64,
}

#[derive(Debug)]
struct Server {
    /// In the ring.
    number: u16,
    device: Arc<Device>,
    state: State,
    /// The position that was asked for.
    asked: Option<Position>,
    waiting: VecDeque<Waiting>,
}

impl Server {
    fn fails(&mut self, now: Instant, todo: &mut Vec<Do>) {
        self.state = State::Silent(now + SILENT_FOR);
        todo.push(Do::Report(self.number));
    }
}

/// What a server has said of batches that waited.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// It has made them durable.
    pub(super) durable: Vec<u64>,
    /// That will never be known.
    pub(super) lost: Vec<u64>,
}

/// The servers of the ring, and those of rings before it while something waits for them.
#[derive(Default)]
pub(super) struct Servers {
    ring: Option<Policy>,
    /// By the device's number in the ring.
    current: HashMap<u16, u64>,
    all: HashMap<u64, Server>,
    next: u64,
    durable_timeout: Duration,
}

impl Servers {
    pub(super) fn new(durable_timeout: Duration) -> Self {
        Self { durable_timeout, ..Self::default() }
    }

    /// Container databases are there from now on; None: nobody knows where.
    pub(super) fn route(&mut self, ring: Option<Policy>) {
        self.ring = ring;
        self.current.clear();
        self.all.retain(|_, server| server.asked.is_some());
    }

    /// The partition of a container with this digest, and the servers of all of its replicas in their order; None if
    /// any is not spoken to. Those of which nothing is known are asked.
    pub(super) fn of(&mut self, digest: &[u8; 16], now: Instant, todo: &mut Vec<Do>) -> Option<(u32, Vec<u64>)> {
        let ring = self.ring.as_ref()?;
        let partition = ring.partition(digest);
        let devices = ring.all(partition, now)?;
        let mut found = Vec::with_capacity(devices.len());
        for (number, device) in devices {
            let id = *self.current.entry(number).or_insert_with(|| {
                self.next += 1;
                let server = Server { number, device, state: State::Unknown, asked: None, waiting: VecDeque::new() };
                self.all.insert(self.next, server);
                self.next
            });
            if self.answers(id, now, todo) {
                found.push(id);
            }
        }
        (found.len() == self.replicas(partition)).then_some((partition, found))
    }

    fn replicas(&self, partition: u32) -> usize {
        self.ring.as_ref().map_or(0, |ring| ring.replicas(partition))
    }

    fn answers(&mut self, id: u64, now: Instant, todo: &mut Vec<Do>) -> bool {
        let Some(server) = self.all.get_mut(&id) else { return false };
        match server.state {
            State::Answers => return true,
            State::Asked => return false,
            State::Silent(until) if now < until => return false,
            State::Silent(_) | State::Unknown => {}
        }
        // No server is of this incarnation: whatever it says of it, it has been heard.
        let call = durable(&server.device, Position { incarnation: 0, position: 0 }, ANSWER_TIME);
        server.state = State::Asked;
        todo.push(Do::Call(Arc::clone(&server.device), Box::new(call), token(Kind::Hello, id, 0)));
        false
    }

    pub(super) fn device(&self, id: u64) -> Option<&Arc<Device>> {
        self.all.get(&id).map(|server| &server.device)
    }

    /// Note an answer to whether it is there.
    pub(super) fn said_hello(&mut self, id: u64, what: &What, now: Instant, todo: &mut Vec<Do>) {
        let Some(server) = self.all.get_mut(&id) else { return };
        let strange = [Status::WireError, Status::DeviceFailed, Status::NodeError].map(|status| status as u16);
        match what {
            What::Sent(_) => {}
            What::Reply { status, .. } if !strange.contains(status) => server.state = State::Answers,
            _ => server.fails(now, todo),
        }
    }

    /// It is not asked for a while.
    pub(super) fn failed(&mut self, id: u64, now: Instant, todo: &mut Vec<Do>) {
        if let Some(server) = self.all.get_mut(&id) {
            server.fails(now, todo);
        }
    }

    /// A server has taken a batch, and will be asked when that is durable; false if it can't.
    pub(super) fn taken(&mut self, id: u64, upto: Position, batch: u64, todo: &mut Vec<Do>) -> bool {
        let Some(server) = self.all.get_mut(&id) else { return false };
        server.waiting.push_back(Waiting { upto, batch });
        self.ask(id, todo);
        true
    }

    /// Ask for the highest position of the incarnation that has waited for longest, unless a question is under way.
    fn ask(&mut self, id: u64, todo: &mut Vec<Do>) {
        let Some(server) = self.all.get_mut(&id).filter(|server| server.asked.is_none()) else { return };
        let Some(first) = server.waiting.front() else { return };
        let incarnation = first.upto.incarnation;
        let same = server.waiting.iter().filter(|one| one.upto.incarnation == incarnation);
        let position = same.map(|one| one.upto.position).max().unwrap_or_default();
        let upto = Position { incarnation, position };
        server.asked = Some(upto);
        let call = durable(&server.device, upto, self.durable_timeout);
        todo.push(Do::Call(Arc::clone(&server.device), Box::new(call), token(Kind::Durable, id, 0)));
    }

    /// Note an answer to what is durable, and ask for what else waits.
    pub(super) fn said_durable(&mut self, id: u64, what: &What, now: Instant, todo: &mut Vec<Do>) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(server) = self.all.get_mut(&id) else { return outcome };
        let is_durable = match what {
            What::Sent(_) => return outcome,
            What::Reply { status, .. } => *status == Status::Ok as u16,
            _ => {
                server.fails(now, todo);
                false
            }
        };
        let Some(asked) = server.asked.take() else { return outcome };
        server.waiting.retain(|one| {
            let is_same = one.upto.incarnation == asked.incarnation;
            if is_same && is_durable && one.upto.position <= asked.position {
                outcome.durable.push(one.batch);
                return false;
            }
            if is_same && !is_durable {
                // What was taken after the question may be durable; it is not worth asking a server that has failed.
                outcome.lost.push(one.batch);
                return false;
            }
            true
        });
        if server.waiting.is_empty() && !self.current.values().any(|current| *current == id) {
            self.all.remove(&id);
        } else {
            self.ask(id, todo);
        }
        outcome
    }
}

fn durable(device: &Device, upto: Position, timeout: Duration) -> Call {
    // A message that can't be made is refused, as no device has such a name.
    let header = AskDurable { device: device.name().to_owned(), taken: upto }.encode().unwrap_or_default();
    Call { method: DURABLE, timeout, header, ..Call::default() }
}
