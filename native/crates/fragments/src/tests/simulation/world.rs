//! Everybody, and everything that may happen to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use swiftlet_erasure::{Decoder, Encoder, Scheme};

use super::chance::Chance;
use super::checker::{Attempt, Checker, Seen};
use super::device::{Round, SimDevice};
use super::operations::{Call, Message, Operation, Pieces, Reply};
use super::rules::Rules;
use crate::read::{Read, Step};
use crate::recovery::{End, Recovery};
use crate::request::{Answer, Request};
use crate::slot::Change;
use crate::sync::{Todo, is_settled};
use crate::write::{Sent, Verdict, Write};
use crate::{Ballot, Device, Outcome, Terms, Version};

/// Devices beside those that have places.
const SPARE: usize = 2;
/// Bytes of a cell.
const CELL: usize = 3;
/// Rounds of replicators in the end.
const ROUNDS: usize = 20;

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
        if !self.messages.is_empty() && self.chance.percent(88) {
            return self.deliver_any();
        }
        match self.chance.below(100) {
            0..14 => self.begin_write(),
            14..17 => self.begin_delete(),
            17..22 => self.begin_read(),
            22..36 => self.read_with_devices_away(),
            36..50 => self.lose_patience(),
            50..65 => self.begin_session(),
            65..71 => self.begin_return(),
            71..78 => self.time_out(),
            78..80 => self.stop_proxy(),
            80..83 => {
                let device = self.chance.below(self.devices.len());
                self.restart(device);
            }
            83..88 => self.leave_or_return(),
            88..91 => self.lose_device(),
            91..93 => self.damage(),
            93..95 => self.change_ring(),
            _ => {
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

    // Messages

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
        if self.chance.percent(3) {
            self.messages.push_back(message.clone());
        }
        if self.chance.percent(3) {
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
            Change::Rebuilt { version, .. } | Change::Settled(version) => {
                self.checker.learn(*version, Outcome::Commit);
            }
            _ => {}
        }
        self.devices[device].append(place, change, bytes);
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
            Operation::Delete { version, done } => {
                if reply.answer == Answer::Done {
                    done.insert(reply.index);
                }
                let acknowledged = done.len() >= (self.rules.writing)(self.terms).quorum();
                if acknowledged {
                    self.acknowledge(*version);
                }
                !acknowledged
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
            Operation::Read { read, ring, version, pieces, floor } => {
                self.go_on_reading(&reply, read, *ring, version, pieces, *floor)
            }
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

    // Writes

    fn any_ring(&mut self) -> usize {
        let newest = self.rings.len() - 1;
        if self.chance.percent(20) { newest.saturating_sub(1) } else { newest }
    }

    fn any_timestamp(&mut self) -> u64 {
        // Of clocks that differ by more than it takes to write.
        (self.tick / 20 + self.chance.below(12)) as u64
    }

    fn begin_write(&mut self) {
        if self.checker.attempts.len() >= self.most_attempts {
            return;
        }
        let version = Version { timestamp: self.any_timestamp(), generation: self.chance.number() >> 1 };
        let ring = self.any_ring();
        let mut devices = self.rings[ring].clone();
        let mut spare: Vec<usize> = (0..self.devices.len()).filter(|at| !devices.contains(at)).collect();
        for device in &mut devices {
            if self.devices[*device].is_away
                && self.chance.percent(70)
                && let Some(other) = spare.pop()
            {
                *device = other;
            }
        }
        let chosen: Arc<[Device]> = devices.iter().map(|at| self.devices[*at].identity()).collect();
        let object: Vec<u8> = (0..self.scheme.data() * CELL).map(|_| self.chance.number() as u8).collect();
        let cells = encoded(self.scheme, &object);
        let write = Write::new((self.rules.writing)(self.terms), version, chosen.clone());
        let sent = write.start();
        self.trace(|| format!("write {version:?} to {devices:?}"));
        let id = self.begin(Operation::Write { write, version, chosen: chosen.clone(), cells: cells.clone() });
        self.attempt(id, version, Some(object));
        self.send_chosen(id, &chosen, sent, &cells);
    }

    fn attempt(&mut self, operation: u64, version: Version, object: Option<Vec<u8>>) {
        let (started, committing) = (self.tick, object.is_none());
        let attempt = Attempt { operation, started, object, committing, acknowledged: false, failed: false, buried: false };
        self.checker.attempts.entry(version).or_insert(attempt);
    }

    fn begin_delete(&mut self) {
        if self.checker.attempts.len() >= self.most_attempts {
            return;
        }
        let timestamp = self.any_timestamp();
        let version = Version::deletion(timestamp);
        let ring = self.any_ring();
        self.trace(|| format!("delete {version:?}"));
        let id = self.begin(Operation::Delete { version, done: BTreeSet::new() });
        self.attempt(id, version, None);
        for (index, to) in self.rings[ring].clone().into_iter().enumerate() {
            let request = Request::Delete { timestamp };
            self.send(Call { operation: id, index, to, incarnation: None, place: Some(index), request, bytes: None });
        }
    }

    fn acknowledge(&mut self, version: Version) {
        if let Some(attempt) = self.checker.attempts.get_mut(&version)
            && !attempt.acknowledged
        {
            attempt.acknowledged = true;
            self.checker.seen.acknowledged += 1;
            self.trace(|| format!("acknowledged {version:?}"));
        }
    }

    fn go_on_writing(
        &mut self,
        id: u64,
        write: &Write,
        version: Version,
        chosen: &[Device],
        cells: &[Vec<u8>],
        sent: Sent,
    ) {
        let commits = sent.iter().any(|(_, request)| matches!(request, Request::Commit(_)));
        if let Some(attempt) = self.checker.attempts.get_mut(&version) {
            attempt.committing |= commits;
        }
        self.send_chosen(id, chosen, sent, cells);
        if write.verdict() == Some(Verdict::Acknowledged) {
            self.acknowledge(version);
        }
    }

    // What became of a write

    fn lose_patience(&mut self) {
        let found: Vec<(usize, usize, Version)> = self.undecided();
        if let Some((device, place, version)) = self.chance.pick(&found) {
            self.begin_recovery(device, place, version);
        }
    }

    fn undecided(&self) -> Vec<(usize, usize, Version)> {
        let mut all = Vec::new();
        for (at, device) in self.devices.iter().enumerate().filter(|(_, device)| !device.is_away) {
            for (place, slot) in &device.slots {
                all.extend(slot.undecided().map(|(version, _)| (at, *place, version)));
            }
        }
        all
    }

    fn begin_recovery(&mut self, device: usize, place: usize, version: Version) {
        if !self.rules.is_recovered {
            return;
        }
        let Some(kept) = self.devices[device].slots[&place].get(version).cloned() else { return };
        let known = self.devices[device].rounds.get(&(place, version)).copied().unwrap_or(0);
        let nonce = (self.rules.nonce)(self.chance.number());
        let ballot = Ballot { round: kept.promised.round.max(known) + 1, nonce };
        let recovery =
            Recovery::new((self.rules.recovering)(self.terms), version, kept.chosen.clone(), ballot);
        let sent = recovery.start();
        self.trace(|| format!("{device} at {place} asks about {version:?} with {ballot:?}"));
        let id = self.begin(Operation::Recovery { device, place, version, recovery });
        self.send_chosen(id, &kept.chosen, sent, &[]);
    }

    fn goes_on_recovering(
        &mut self,
        id: u64,
        device: usize,
        place: usize,
        version: Version,
        recovery: &Recovery,
    ) -> bool {
        match recovery.end() {
            None => return true,
            Some(End::Decided(outcome)) => {
                match outcome {
                    Outcome::Commit => self.checker.seen.recovered_to_commit += 1,
                    Outcome::Abort => self.checker.seen.recovered_to_abort += 1,
                }
                let chosen = recovery.chosen();
                let decide = Request::Decide { version, outcome };
                self.tell_itself(device, place, &decide, None);
                let sent = (0..chosen.len()).map(|index| (index, decide.clone())).collect();
                self.send_chosen(id, &chosen, sent, &[]);
            }
            Some(End::Superseded) => {}
            Some(End::Later(round)) => {
                self.checker.seen.recovered_later += 1;
                self.devices[device].rounds.insert((place, version), round);
            }
        }
        false
    }

    // Reads

    fn begin_read(&mut self) {
        let ring = self.any_ring();
        let read = Read::new((self.rules.reading)(self.terms));
        let floor = self.checker.quiet;
        let id = self.begin(Operation::Read { read, ring, version: None, pieces: Pieces::new(), floor });
        self.ask_all(id, None);
    }

    fn ask_all(&mut self, operation: u64, below: Option<Version>) {
        for to in 0..self.devices.len() {
            let request = Request::Newest { below };
            self.send(Call { operation, index: to, to, incarnation: None, place: None, request, bytes: None });
        }
    }

    fn fetch(&mut self, operation: u64, version: Version, from: impl IntoIterator<Item = usize>) {
        for to in from {
            let request = Request::Fetch(version);
            self.send(Call { operation, index: to, to, incarnation: None, place: None, request, bytes: None });
        }
    }

    fn go_on_reading(
        &mut self,
        reply: &Reply,
        read: &mut Read,
        ring: usize,
        version: &mut Option<Version>,
        pieces: &mut Pieces,
        floor: Option<Version>,
    ) -> bool {
        let place = self.rings[ring].iter().position(|at| *at == reply.from);
        let before = pieces.len();
        let step = hear(read, reply, place, *version, pieces);
        if let (true, Answer::Fragment(chosen), Some(version)) = (before == 0, &reply.answer, *version) {
            self.fetch(reply.operation, version, chosen.iter().map(|device| device.number as usize));
        }
        self.take(reply.operation, step, ring, Some(reply.from), version, pieces, floor)
    }

    /// Do what a read says is next; whether it goes on.
    #[allow(clippy::too_many_arguments, reason = "the parts of the read, which its caller holds")]
    fn take(
        &mut self,
        id: u64,
        step: Step,
        ring: usize,
        from: Option<usize>,
        version: &mut Option<Version>,
        pieces: &mut Pieces,
        floor: Option<Version>,
    ) -> bool {
        match step {
            Step::Wait => true,
            Step::Ask(below) => {
                self.checker.seen.older_given += 1;
                (*version, *pieces) = (None, Pieces::new());
                self.ask_all(id, below);
                true
            }
            Step::Fetch(wanted) => {
                (*version, *pieces) = (Some(wanted), Pieces::new());
                let places = self.rings[ring].clone();
                self.fetch(id, wanted, places.into_iter().chain(from));
                true
            }
            Step::Give(version) => {
                self.checker.seen.given += 1;
                let object = decoded(self.scheme, pieces);
                self.trace(|| format!("read {version:?}"));
                self.checker.gave(version, &object, floor);
                false
            }
            Step::NotFound => {
                self.checker.seen.not_found += 1;
                self.checker.absent(floor);
                false
            }
            Step::Unavailable => {
                self.checker.seen.unavailable += 1;
                false
            }
        }
    }

    /// A read at this moment by the newest ring, while these devices are away.
    fn read_now(&mut self, away: &BTreeSet<usize>) -> (Step, Vec<u8>) {
        let ring = self.rings.last().expect("a ring").clone();
        let mut read = Read::new((self.rules.reading)(self.terms));
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        self.chance.shuffle(&mut order);
        order.sort_by_key(|at| !ring.contains(at));
        order.retain(|at| !away.contains(at));
        let (mut step, mut version, mut pieces) = (Step::Ask(None), None, Pieces::new());
        loop {
            let (request, mut from) = match step {
                Step::Ask(below) => (Request::Newest { below }, VecDeque::from(order.clone())),
                Step::Fetch(wanted) => {
                    (version, pieces) = (Some(wanted), Pieces::new());
                    (Request::Fetch(wanted), order.iter().copied().filter(|at| ring.contains(at)).collect())
                }
                Step::Wait => unreachable!("nobody is left to wait for"),
                Step::Give(_) => return (step, decoded(self.scheme, &pieces)),
                Step::NotFound | Step::Unavailable => return (step, Vec::new()),
            };
            step = Step::Wait;
            while let (Step::Wait, Some(at)) = (step, from.pop_front()) {
                let device = &self.devices[at];
                let answer = device.read(&self.rules, &request);
                if let (true, Answer::Fragment(chosen)) = (pieces.is_empty(), &answer) {
                    let others = chosen.iter().map(|device| device.number as usize);
                    from.extend(others.filter(|other| !ring.contains(other) && !away.contains(other)));
                }
                let found = match version {
                    Some(version) => device.fragments(&self.rules, version),
                    None => Vec::new(),
                };
                let (request, place) = (request.clone(), ring.iter().position(|other| *other == at));
                let reply = Reply {
                    operation: 0,
                    index: at,
                    from: at,
                    request,
                    answer,
                    pieces: found,
                    place: None,
                    ring: 0,
                };
                step = hear(&mut read, &reply, place, version, &mut pieces);
            }
            if step == Step::Wait {
                step = read.wait_no_longer();
            }
        }
    }

    /// With as many devices away as may be, the object is there.
    fn read_with_devices_away(&mut self) {
        let mut away: BTreeSet<usize> = (0..self.devices.len()).filter(|at| self.devices[*at].is_away).collect();
        if !self.may_lose(away.len()) {
            return;
        }
        let mut others: Vec<usize> = (0..self.devices.len()).filter(|at| !away.contains(at)).collect();
        self.chance.shuffle(&mut others);
        for other in others {
            if self.may_lose(away.len() + 1) {
                away.insert(other);
            }
        }
        self.checker.seen.tried_with_devices_away += 1;
        self.expect_readable(&away);
    }

    fn expect_readable(&mut self, away: &BTreeSet<usize>) -> Step {
        let floor = self.checker.quiet;
        let (step, object) = self.read_now(away);
        match step {
            Step::Give(version) => self.checker.gave(version, &object, floor),
            // What a place has missed that nobody else may be: an old deletion.
            Step::NotFound => {
                let acknowledged = self.checker.newest_acknowledged();
                let any_deletion = self.checker.attempts.keys().any(|version| version.is_deletion());
                self.checker.absent(if any_deletion { floor } else { floor.max(acknowledged) });
            }
            // With many places away, that nothing is there can't be proved where nothing is.
            _ if !self.checker.is_something_there() => {}
            _ => self.checker.fail(format!("unreadable with {away:?} away")),
        }
        step
    }

    // Sync

    fn place_of(&self, device: usize) -> Option<usize> {
        self.rings[self.devices[device].ring].iter().position(|at| *at == device)
    }

    fn begin_session(&mut self) {
        let device = self.chance.below(self.devices.len());
        let other = self.chance.below(self.terms.places());
        self.ask_other_place(device, other);
    }

    fn ask_other_place(&mut self, device: usize, other: usize) {
        let Some(place) = self.place_of(device).filter(|place| *place != other) else { return };
        if self.devices[device].is_away {
            return;
        }
        let to = self.rings[self.devices[device].ring][other];
        let operation = self.begin(Operation::Session { device, place });
        let request = Request::Show;
        self.send(Call { operation, index: other, to, incarnation: None, place: None, request, bytes: None });
    }

    fn compare(&mut self, device: usize, place: usize, reply: &Reply) {
        let (Some(other), Some(own)) = (reply.place, self.place_of(device)) else { return };
        if own != place || other == place {
            return;
        }
        let empty = crate::slot::Slot::default();
        let slot = self.devices[device].slots.get(&place).unwrap_or(&empty);
        match (self.rules.compare)(slot, reply.shown()) {
            Todo::Nothing => {}
            Todo::Append(change) => self.append(device, place, &change, None),
            Todo::Rebuild { version, chosen } => {
                let pieces = Pieces::new();
                let others = chosen.iter().map(|device| device.number as usize);
                let asked: BTreeSet<usize> =
                    self.rings[self.devices[device].ring].iter().copied().chain(others).collect();
                let id = self.begin(Operation::Rebuild { device, place, version, chosen, pieces });
                self.fetch(id, version, asked);
            }
            Todo::Equal(version) => {
                let settled = slot.floor() >= Some(version);
                let round = &mut self.devices[device].sync;
                let ring = reply.ring;
                if round.version != Some(version) || round.ring != ring {
                    *round = Round { ring, version: Some(version), equal: BTreeSet::new() };
                }
                round.equal.insert(other);
                let proved = is_settled((self.rules.settling)(self.terms), round.equal.len());
                if proved && !settled && ring == self.devices[device].ring {
                    self.checker.seen.settled_by_sync += 1;
                    self.append(device, place, &Change::Settled(version), None);
                }
            }
        }
    }

    fn is_rebuilt(
        &mut self,
        device: usize,
        place: usize,
        version: Version,
        chosen: &Arc<[Device]>,
        pieces: &Pieces,
    ) -> bool {
        let bytes = match pieces.get(&place) {
            Some(moved) => moved.clone(),
            None if pieces.len() >= self.scheme.data() => restored(self.scheme, pieces, place),
            None => return false,
        };
        self.checker.seen.rebuilt += 1;
        let keep = Request::Keep { version, chosen: chosen.clone() };
        self.tell_itself(device, place, &keep, Some(&bytes));
        true
    }

    fn begin_return(&mut self) {
        let all = self.in_custody();
        if let Some((device, place)) = self.chance.pick(&all) {
            self.ask_place(device, place);
        }
    }

    /// Slots whose place another device has.
    fn in_custody(&self) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for (at, device) in self.devices.iter().enumerate().filter(|(_, device)| !device.is_away) {
            let own = self.place_of(at);
            all.extend(device.slots.keys().filter(|place| own != Some(**place)).map(|place| (at, *place)));
        }
        all
    }

    fn ask_place(&mut self, device: usize, place: usize) {
        let to = self.rings[self.devices[device].ring][place];
        let operation = self.begin(Operation::Return { device, place });
        let request = Request::Show;
        self.send(Call { operation, index: place, to, incarnation: None, place: None, request, bytes: None });
    }

    fn hand_back(&mut self, id: u64, device: usize, place: usize, reply: &Reply) {
        let Some(slot) = self.devices[device].slots.get(&place) else { return };
        if reply.request != Request::Show || reply.place != Some(place) || self.place_of(device) == Some(place) {
            return;
        }
        let theirs = reply.shown();
        if let Some(change) = (self.rules.returned)(slot, theirs) {
            self.checker.seen.handed_back += 1;
            if self.rules.forgets_returned {
                self.devices[device].forget(place);
            } else {
                self.append(device, place, &change, None);
            }
            return;
        }
        let Some(mine) = slot.shown().filter(|mine| theirs.is_none_or(|theirs| theirs.version < mine.version)) else {
            return;
        };
        let (version, chosen) = (mine.version, mine.chosen);
        let (request, bytes) = if version.is_deletion() {
            (Request::Delete { timestamp: version.timestamp }, None)
        } else {
            let found = self.devices[device].fragments(&self.rules, version);
            let bytes = found.into_iter().find(|(at, _)| *at == place).map(|(_, bytes)| bytes);
            (Request::Keep { version, chosen }, bytes)
        };
        let (to, place) = (reply.from, Some(place));
        self.send(Call { operation: id, index: 0, to, incarnation: None, place, request, bytes });
    }

    // Faults

    fn time_out(&mut self) {
        let all: Vec<u64> = self.operations.keys().copied().collect();
        if let Some(id) = self.chance.pick(&all) {
            self.wait_no_longer(id);
        }
    }

    fn wait_no_longer(&mut self, id: u64) {
        let Some(mut operation) = self.operations.remove(&id) else { return };
        let goes_on = match &mut operation {
            Operation::Write { write, version, chosen, .. } => {
                let mut sent = write.give_up();
                if self.rules.discards_always && write.verdict() == Some(Verdict::Unknown) {
                    let abort = Request::Decide { version: *version, outcome: Outcome::Abort };
                    sent = (0..chosen.len()).map(|index| (index, abort.clone())).collect();
                }
                self.send_chosen(id, chosen, sent, &[]);
                match write.verdict() {
                    Some(Verdict::Failed) => {
                        self.checker.seen.failed += 1;
                        if let Some(attempt) = self.checker.attempts.get_mut(version) {
                            attempt.failed = true;
                        }
                    }
                    Some(Verdict::Unknown) => self.checker.seen.unknown += 1,
                    _ => {}
                }
                self.trace(|| format!("{version:?} ends: {:?}", write.verdict()));
                false
            }
            Operation::Recovery { device, place, version, recovery } => {
                let sent = recovery.wait_no_longer();
                let chosen = recovery.chosen();
                self.send_chosen(id, &chosen, sent, &[]);
                self.goes_on_recovering(id, *device, *place, *version, recovery)
            }
            Operation::Read { read, ring, version, pieces, floor } => {
                let step = read.wait_no_longer();
                let (ring, floor) = (*ring, *floor);
                self.take(id, step, ring, None, version, pieces, floor)
            }
            _ => false,
        };
        if goes_on {
            self.operations.insert(id, operation);
        }
    }

    fn stop_proxy(&mut self) {
        let proxies = self.operations.iter().filter(|(_, operation)| operation.device().is_none());
        let all: Vec<u64> = proxies.map(|(id, _)| *id).collect();
        if let Some(id) = self.chance.pick(&all) {
            self.checker.seen.proxies_stopped += 1;
            self.operations.remove(&id);
        }
    }

    fn restart(&mut self, device: usize) {
        self.checker.seen.devices_restarted += 1;
        self.trace(|| format!("{device} begins again"));
        self.operations.retain(|_, operation| operation.device() != Some(device));
        self.devices[device].restart();
    }

    /// Whether the object has to outlive so many more losses.
    fn may_lose(&self, more: usize) -> bool {
        let (checker, terms) = (&self.checker, &self.terms);
        let (since, whole) = checker.whole;
        let oldest = self.oldest_ring();
        if checker.losses_since(since, oldest) + more > terms.places() - terms.data() {
            return false;
        }
        let newer = checker.attempts.iter().filter(|(version, _)| Some(**version) > whole);
        newer.into_iter().all(|(version, attempt)| {
            checker.losses_since(attempt.started, oldest) + more <= terms.quorum() - terms.data()
                || self.is_gone(*version, attempt)
        })
    }

    /// The oldest ring that a device goes by.
    fn oldest_ring(&self) -> usize {
        self.devices.iter().map(|device| device.ring).min().expect("devices")
    }

    /// Whether nothing can come of an attempt any more.
    fn is_gone(&self, version: Version, attempt: &Attempt) -> bool {
        let under_way = self.operations.contains_key(&attempt.operation)
            || self.messages.iter().any(|message| match message {
                Message::Call(call) => call.operation == attempt.operation,
                Message::Reply(_) => false,
            });
        let held = |device: &SimDevice| {
            device.slots.values().any(|slot| {
                slot.floor() == Some(version)
                    || slot.get(version).is_some_and(|kept| kept.decided != Some(Outcome::Abort))
            })
        };
        !under_way && !self.devices.iter().any(held)
    }

    fn lose_device(&mut self) {
        if !self.may_lose(1) {
            return;
        }
        let device = self.chance.below(self.devices.len());
        self.checker.seen.lost += 1;
        self.checker.losses.push((self.tick, 0));
        self.trace(|| format!("{device} is lost, and replaced by an empty one"));
        self.operations.retain(|_, operation| operation.device() != Some(device));
        let (number, incarnation) = (self.devices[device].number, self.chance.number());
        let is_away = self.devices[device].is_away;
        self.devices[device] = SimDevice::new(number, incarnation, self.rings.len() - 1);
        self.devices[device].is_away = is_away;
    }

    fn damage(&mut self) {
        let device = self.chance.below(self.devices.len());
        let slots = self.devices[device].slots.iter();
        let all: Vec<(usize, Version)> = slots
            .flat_map(|(place, slot)| {
                let readable = slot.kept().filter(|(_, kept)| kept.is_readable());
                readable.map(|(version, _)| (*place, version))
            })
            .collect();
        if let Some((place, version)) = self.chance.pick(&all)
            && self.may_lose(1)
        {
            self.checker.seen.damaged += 1;
            self.checker.losses.push((self.tick, 0));
            self.append(device, place, &Change::Damaged(version), None);
        }
    }

    /// A place goes to a spare device, or two places are exchanged.
    fn change_ring(&mut self) {
        let mut ring = self.rings.last().expect("a ring").clone();
        let place = self.chance.below(ring.len());
        let other = self.chance.below(self.devices.len());
        let moved = match ring.iter().position(|at| *at == other) {
            Some(at) if at == place => return,
            Some(at) => {
                ring.swap(at, place);
                2
            }
            None => {
                ring[place] = other;
                1
            }
        };
        if !self.may_lose(moved) {
            return;
        }
        self.trace(|| format!("ring {ring:?}"));
        self.checker.seen.moved += moved;
        self.checker.losses.extend(std::iter::repeat_n((self.tick, self.rings.len()), moved));
        self.rings.push(ring);
    }

    // What holds

    fn look(&mut self) {
        let ring = self.rings.last().expect("a ring");
        if self.oldest_ring() + 1 < self.rings.len() {
            return;
        }
        let shown = |place: usize| self.devices[ring[place]].shown(&self.rules, place).map(|shown| shown.version);
        let first = shown(0);
        if first.is_none() || (1..ring.len()).any(|place| shown(place) != first) {
            return;
        }
        if self.checker.whole.1 <= first {
            self.checker.whole = (self.tick, first);
        }
        if self.leftovers(first).is_none() {
            self.checker.quiet = self.checker.quiet.max(first);
            let older = self.checker.attempts.iter().filter(|(version, _)| Some(**version) < first);
            let gone = older.filter(|(version, attempt)| self.is_gone(**version, attempt));
            let gone: Vec<Version> = gone.map(|(version, _)| *version).collect();
            for version in gone {
                self.checker.attempts.entry(version).and_modify(|attempt| attempt.buried = true);
            }
        }
    }

    /// Something that is kept beside this version at the places, if there is any.
    fn leftovers(&self, version: Option<Version>) -> Option<String> {
        let ring = self.rings.last().expect("a ring");
        for (at, device) in self.devices.iter().enumerate() {
            for (place, slot) in &device.slots {
                let is_place = ring[*place] == at;
                for (other, kept) in slot.kept() {
                    let belongs = is_place && Some(other) == version && slot.floor() == version;
                    if !belongs && (kept.fragment || kept.decided.is_none()) {
                        return Some(format!("{at} keeps {other:?} at {place}: {kept:?}"));
                    }
                }
            }
        }
        None
    }

    /// Faults end, and replicators work until nothing changes.
    fn heal(&mut self) {
        self.trace(|| "all faults end".into());
        self.is_faultless = true;
        self.messages.clear();
        self.operations.clear();
        let newest = self.rings.len() - 1;
        for device in &mut self.devices {
            (device.is_away, device.ring) = (false, newest);
        }
        let mut is_changing = true;
        for _ in 0..ROUNDS {
            let before: Vec<_> = self.devices.iter().map(|device| device.slots.clone()).collect();
            for (device, place, version) in self.undecided() {
                if self.devices[device].slots[&place].get(version).is_some_and(|kept| kept.decided.is_none()) {
                    self.begin_recovery(device, place, version);
                    self.finish();
                }
            }
            for device in 0..self.devices.len() {
                for other in 0..self.terms.places() {
                    self.ask_other_place(device, other);
                    self.finish();
                }
            }
            for (device, place) in self.in_custody() {
                self.ask_place(device, place);
                self.finish();
            }
            is_changing = before.iter().zip(&self.devices).any(|(before, device)| *before != device.slots);
            if !is_changing || self.checker.broken.is_some() {
                break;
            }
        }
        if is_changing {
            self.checker.fail("replicators find no end".into());
        }
        self.expect_the_newest();
    }

    fn finish(&mut self) {
        while let Some(message) = self.messages.pop_front() {
            self.deliver(message);
            if self.messages.is_empty()
                && let Some((id, _)) = self.operations.first_key_value()
            {
                self.wait_no_longer(*id);
            }
        }
        self.operations.clear();
    }

    fn expect_the_newest(&mut self) {
        let ring = self.rings.last().expect("a ring").clone();
        let shown: Vec<Option<Version>> = ring
            .iter()
            .enumerate()
            .map(|(place, device)| {
                let slot = self.devices[*device].slots.get(&place);
                slot.and_then(|slot| slot.shown()).map(|shown| shown.version)
            })
            .collect();
        let version = shown[0];
        let acknowledged = self.checker.newest_acknowledged();
        if shown.iter().any(|other| *other != version) {
            return self.checker.fail(format!("places show {shown:?}"));
        }
        if version < acknowledged.max(self.checker.quiet) {
            return self.checker.fail(format!("{acknowledged:?} was acknowledged, and {version:?} is there"));
        }
        if let Some(left) = self.leftovers(version) {
            return self.checker.fail(left);
        }
        for _ in 0..4 {
            let mut away: Vec<usize> = ring.clone();
            self.chance.shuffle(&mut away);
            let away = away.into_iter().take(self.scheme.parity()).collect();
            let step = self.expect_readable(&away);
            let expected = version.filter(|version| !version.is_deletion());
            let matches = match expected {
                Some(version) => step == Step::Give(version),
                None => matches!(step, Step::NotFound | Step::Unavailable),
            };
            if !matches && self.checker.broken.is_none() {
                self.checker.fail(format!("{step:?} in place of {expected:?}"));
            }
        }
    }
}

/// What a read makes of an answer.
fn hear(read: &mut Read, reply: &Reply, place: Option<usize>, version: Option<Version>, pieces: &mut Pieces) -> Step {
    let Request::Fetch(of) = reply.request else { return read.newest(place, &reply.answer) };
    if Some(of) != version {
        return Step::Wait;
    }
    if reply.pieces.is_empty() {
        return read.fetched(of, 0, &reply.answer);
    }
    for (index, bytes) in &reply.pieces {
        pieces.insert(*index, bytes.clone());
        let step = read.fetched(of, *index, &Answer::Fragment(Arc::new([])));
        if step != Step::Wait {
            return step;
        }
    }
    Step::Wait
}

fn encoded(scheme: Scheme, object: &[u8]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; CELL]; scheme.parity()];
    let data: Vec<&[u8]> = object.chunks(CELL).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
    Encoder::new(scheme).encode(&data, &mut outputs).expect("a stripe");
    data.into_iter().map(<[u8]>::to_vec).chain(parity).collect()
}

fn restored(scheme: Scheme, pieces: &Pieces, index: usize) -> Vec<u8> {
    let available: Vec<usize> = pieces.keys().copied().filter(|at| *at != index).collect();
    let decoder = Decoder::new(scheme, &available, &[index]).expect("cells enough");
    let given: Vec<&[u8]> = decoder.sources().iter().map(|at| &pieces[at][..]).collect();
    let mut made = vec![0; CELL];
    decoder.restore(&given, &mut [&mut made]).expect("cells");
    made
}

fn decoded(scheme: Scheme, pieces: &Pieces) -> Vec<u8> {
    let cell = |index: usize| pieces.get(&index).cloned().unwrap_or_else(|| restored(scheme, pieces, index));
    (0..scheme.data()).flat_map(cell).collect()
}
