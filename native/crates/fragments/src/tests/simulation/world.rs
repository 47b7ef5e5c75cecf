//! Everybody, and everything that may happen to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use swiftlet_erasure::Scheme;

use super::chance::{Chance, Event, Temper};
use super::checker::{Checker, Seen};
use super::device::SimDevice;
use super::operations::{Call, Message, Operation, Reply};
use super::rules::Rules;
use crate::deletion::Heard;
use crate::request::{Answer, Request};
use crate::slot::Change;
use crate::write::Sent;
use crate::{Device, Outcome, Terms, Version};

mod deciding;
mod faults;
mod holding;
mod reading;
mod syncing;
mod writing;

/// Devices beside those that have places.
const SPARE: usize = 2;

/// A world.
pub(crate) struct World {
    chance: Chance,
    rules: Rules,
    scheme: Scheme,
    terms: Terms,
    devices: Vec<SimDevice>,
    /// Which device has each place, ring after ring.
    rings: Vec<Vec<usize>>,
    messages: VecDeque<Message>,
    operations: BTreeMap<u64, Operation>,
    next: u64,
    tick: usize,
    most_attempts: usize,
    temper: Temper,
    checker: Checker,
    is_faultless: bool,
    is_traced: bool,
}

impl World {
    /// The history of a seed; what it broke, if anything.
    pub(crate) fn run(seed: u64, rules: Rules) -> Result<Seen, String> {
        let mut world = Self::new(seed, rules);
        for _ in 0..world.chance.below(500) + 100 {
            world.step();
            world.look();
            if let Some(broken) = world.checker.broken.take() {
                return Err(format!("step {}: {broken}", world.tick));
            }
        }
        world.heal();
        match world.checker.broken.take() {
            Some(broken) => Err(format!("in the end: {broken}")),
            None => Ok(Seen { seeds: 1, steps: world.tick, ..world.checker.seen }),
        }
    }

    fn new(seed: u64, rules: Rules) -> Self {
        let mut chance = Chance::new(seed);
        let (data, parity) =
            chance.pick(&[(2, 1), (2, 2), (3, 2), (4, 2), (4, 2), (6, 3), (3, 3), (2, 4)]).expect("some");
        let scheme = Scheme::new(data, parity).expect("a scheme");
        let devices = (0..scheme.cells() + SPARE).map(|at| SimDevice::new(at as u32, chance.number(), 0)).collect();
        let ring = (0..scheme.cells()).collect();
        let most_attempts = 1 + chance.below(6);
        let temper = Temper::new(&mut chance);
        Self {
            chance,
            rules,
            scheme,
            terms: Terms::of(scheme),
            devices,
            rings: vec![ring],
            messages: VecDeque::new(),
            operations: BTreeMap::new(),
            next: 0,
            tick: 0,
            most_attempts,
            temper,
            checker: Checker::default(),
            is_faultless: false,
            is_traced: std::env::var("FRAGMENT_TRACE").is_ok(),
        }
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:4} {}", self.tick, what());
        }
    }

    fn step(&mut self) {
        self.tick += 1;
        if !self.messages.is_empty() && self.chance.percent(self.temper.delivers) {
            return self.deliver_any();
        }
        match self.temper.choose(&mut self.chance) {
            Event::Write => self.begin_write(),
            Event::Delete => self.begin_delete(),
            Event::Read => self.begin_read(),
            Event::ReadNow => self.read_with_devices_away(),
            Event::Ask => self.lose_patience(),
            Event::Compare => self.begin_session(),
            Event::HandBack => self.begin_return(),
            Event::TimeOut => self.time_out(),
            Event::StopProxy => self.stop_proxy(),
            Event::Restart => {
                let device = self.chance.below(self.devices.len());
                self.restart(device);
            }
            Event::Leave => self.leave_or_return(),
            Event::Lose => self.lose_device(),
            Event::Damage => self.damage(),
            Event::ChangeRing => self.change_ring(),
            Event::LearnRing => {
                let device = self.chance.below(self.devices.len());
                self.devices[device].ring = self.rings.len() - 1;
            }
        }
    }

    fn leave_or_return(&mut self) {
        let away: Vec<usize> = (0..self.devices.len()).filter(|at| self.devices[*at].is_away).collect();
        match self.chance.pick(&away) {
            Some(device) if self.chance.percent(55) => self.devices[device].is_away = false,
            _ => {
                let device = self.chance.below(self.devices.len());
                self.devices[device].is_away = true;
            }
        }
    }

    fn send(&mut self, call: Call) {
        self.messages.push_back(Message::Call(call));
    }

    /// To devices that a proxy chose, by the order of the fragments.
    fn send_chosen(&mut self, operation: u64, chosen: &[Device], sent: Sent, cells: &[Vec<u8>]) {
        for (index, request) in sent {
            let bytes = matches!(request, Request::Prepare { .. }).then(|| cells[index].clone());
            let Device { number, incarnation } = chosen[index];
            let (to, incarnation, place) = (number as usize, Some(incarnation), Some(index));
            self.send(Call { operation, index, to, incarnation, place, request, bytes });
        }
    }

    fn deliver_any(&mut self) {
        let at = self.chance.below(self.messages.len());
        let Some(message) = self.messages.swap_remove_back(at) else { return };
        if self.chance.percent(self.temper.repeats) {
            self.messages.push_back(message.clone());
        }
        if self.chance.percent(self.temper.drops) {
            return;
        }
        self.deliver(message);
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Call(call) => self.call(call),
            Message::Reply(reply) => self.reply(reply),
        }
    }

    fn call(&mut self, call: Call) {
        let rules = self.rules;
        let device = &self.devices[call.to];
        if device.is_away {
            return;
        }
        let own = self.rings[device.ring].iter().position(|at| *at == call.to);
        let is_meant = rules.is_successor_asked || call.incarnation.is_none_or(|it| it == device.incarnation);
        let mut pieces = Vec::new();
        let (change, answer) = match &call.request {
            _ if !is_meant => (None, Answer::Missing),
            Request::Show => (None, Answer::Showing(own.and_then(|own| device.shown(&rules, own)))),
            Request::Newest { .. } => (None, device.read(&rules, &call.request)),
            Request::Fetch(version) => {
                pieces = device.fragments(&rules, *version);
                (None, device.read(&rules, &call.request))
            }
            request => match call.place.or(own) {
                Some(place) => device.ask(&rules, place, request),
                None => (None, Answer::Missing),
            },
        };
        self.trace(|| format!("{} at {:?}: {:?} -> {answer:?}", call.to, call.place, call.request));
        if self.is_stopped_now() {
            return self.restart(call.to);
        }
        if let (Some(change), Some(place)) = (change, call.place.or(own)) {
            self.append(call.to, place, &change, call.bytes.as_deref());
            if self.is_stopped_now() {
                return self.restart(call.to);
            }
        }
        let Call { operation, index, to, request, .. } = call;
        let ring = self.devices[to].ring;
        let reply = Reply { operation, index, from: to, request, answer, pieces, place: own, ring };
        self.messages.push_back(Message::Reply(reply));
    }

    fn is_stopped_now(&mut self) -> bool {
        !self.is_faultless && self.chance.percent(1)
    }

    fn append(&mut self, device: usize, place: usize, change: &Change, bytes: Option<&[u8]>) {
        self.trace(|| format!("{device} at {place} appends {change:?}"));
        match change {
            Change::Decided { version, outcome } => self.checker.learn(*version, *outcome),
            Change::Rebuilt { version, .. } => self.checker.learn(*version, Outcome::Commit),
            Change::Settled(version) => {
                self.checker.learn(*version, Outcome::Commit);
                self.expect_safe(*version);
            }
            _ => {}
        }
        self.devices[device].append(place, change, bytes);
    }

    /// Before older versions are dead, q devices have committed this one, or had, or something newer is settled there.
    fn expect_safe(&mut self, version: Version) {
        let Some(attempt) = self.checker.attempts.get(&version).filter(|_| !version.is_deletion()) else { return };
        let slots = self.devices.iter().flat_map(|device| &device.slots);
        let having = slots.filter(|(_, slot)| {
            slot.floor() >= Some(version) || slot.get(version).is_some_and(|kept| kept.is_committed())
        });
        let having: BTreeSet<usize> = having.map(|(place, _)| *place).collect();
        let lost = self.checker.losses_since(attempt.started, self.oldest_ring());
        if having.len() + lost < self.terms.quorum() {
            self.checker.fail(format!("{version:?} is settled, and only places {having:?} have it"));
        }
    }

    /// A device does to itself what it would answer to.
    fn tell_itself(&mut self, device: usize, place: usize, request: &Request, bytes: Option<&[u8]>) {
        let (change, _) = self.devices[device].ask(&self.rules, place, request);
        if let Some(change) = change {
            self.append(device, place, &change, bytes);
        }
    }

    fn reply(&mut self, mut reply: Reply) {
        reply.answer = (self.rules.heard)(&reply.request, reply.answer);
        let id = reply.operation;
        let Some(mut operation) = self.operations.remove(&id) else { return };
        if operation.device().is_some_and(|device| self.devices[device].is_away) {
            self.operations.insert(id, operation);
            return;
        }
        let goes_on = match &mut operation {
            Operation::Write { write, version, chosen, cells } => {
                let sent = match &reply.request {
                    Request::Prepare { .. } => write.prepared(reply.index, &reply.answer),
                    Request::Commit(_) => write.committed(reply.index, &reply.answer),
                    _ => Sent::new(),
                };
                self.go_on_writing(id, write, *version, chosen, cells, sent);
                true
            }
            Operation::Delete { version, deletion } => {
                if reply.answer == Answer::Done {
                    deletion.heard(reply.index, Heard::Done { existed: false });
                }
                if deletion.is_durable() {
                    self.acknowledge(*version);
                }
                !deletion.is_durable()
            }
            Operation::Recovery { device, place, version, recovery } => {
                let chosen = recovery.chosen();
                let sent = match &reply.request {
                    Request::Promise { .. } => recovery.promised(reply.index, &reply.answer),
                    Request::Accept { .. } => {
                        recovery.accepted(reply.index, &reply.answer);
                        Sent::new()
                    }
                    _ => Sent::new(),
                };
                self.send_chosen(id, &chosen, sent, &[]);
                self.goes_on_recovering(id, *device, *place, *version, recovery)
            }
            Operation::Read { read, reading } => self.go_on_reading(&reply, read, reading),
            Operation::Rebuild { device, place, version, chosen, pieces } => {
                pieces.extend(reply.pieces);
                !self.is_rebuilt(*device, *place, *version, chosen, pieces)
            }
            Operation::Session { device, place } => {
                self.compare(*device, *place, &reply);
                false
            }
            Operation::Return { device, place } => {
                self.hand_back(id, *device, *place, &reply);
                matches!(reply.request, Request::Keep { .. })
            }
        };
        if goes_on {
            self.operations.insert(id, operation);
        }
    }

    fn begin(&mut self, operation: Operation) -> u64 {
        self.next += 1;
        self.operations.insert(self.next, operation);
        self.next
    }
}
