//! Reads: on their way by messages, and of one moment.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::super::operations::{Call, Operation, Pieces, Reading, Reply};
use super::super::stripes::decoded;
use super::World;
use crate::Version;
use crate::read::{Read, Step};
use crate::request::{Answer, Request};

impl World {
    pub(super) fn begin_read(&mut self) {
        let (ring, floor) = (self.any_ring(), self.checker.quiet);
        let read = Read::new((self.rules.reading)(self.terms));
        let reading = Reading { ring, floor, version: None, pieces: Pieces::new(), named: None };
        let id = self.begin(Operation::Read { read, reading });
        self.ask_all(id, None);
    }

    pub(super) fn ask_all(&mut self, operation: u64, below: Option<Version>) {
        for to in 0..self.devices.len() {
            let request = Request::Newest { below };
            self.send(Call { operation, index: to, to, incarnation: None, place: None, request, bytes: None });
        }
    }

    pub(super) fn fetch(&mut self, operation: u64, version: Version, from: impl IntoIterator<Item = usize>) {
        for to in from {
            let request = Request::Fetch(version);
            self.send(Call { operation, index: to, to, incarnation: None, place: None, request, bytes: None });
        }
    }

    pub(super) fn go_on_reading(&mut self, reply: &Reply, read: &mut Read, reading: &mut Reading) -> bool {
        let place = self.rings[reading.ring].iter().position(|at| *at == reply.from);
        if let Answer::Newest { committed: Some(committed), .. } = reply.answer {
            reading.named = reading.named.max(Some((committed, reply.from)));
        }
        let before = reading.pieces.len();
        let step = hear(read, reply, place, reading.version, &mut reading.pieces);
        if let (true, Answer::Fragment(chosen), Some(version)) = (before == 0, &reply.answer, reading.version) {
            self.fetch(reply.operation, version, chosen.iter().map(|device| device.number as usize));
        }
        self.take(reply.operation, step, reading)
    }

    /// Do what a read says is next; whether it goes on.
    pub(super) fn take(&mut self, id: u64, step: Step, reading: &mut Reading) -> bool {
        match step {
            Step::Wait => return true,
            Step::Ask(below) => {
                self.checker.seen.asked_again += 1;
                (reading.version, reading.named, reading.pieces) = (None, None, Pieces::new());
                self.ask_all(id, below);
                return true;
            }
            Step::Fetch(wanted) => {
                self.checker.fetched.insert((id, wanted));
                (reading.version, reading.pieces) = (Some(wanted), Pieces::new());
                let named = reading.named.map(|(_, device)| device);
                let places = self.rings[reading.ring].clone();
                self.fetch(id, wanted, places.into_iter().chain(named));
                return true;
            }
            Step::Give(version) => {
                self.checker.seen.given += 1;
                let object = decoded(self.scheme, &reading.pieces);
                self.trace(|| format!("read {version:?}"));
                self.checker.gave(version, &object, reading.floor);
                self.checker.gave_the_newest_of(id, version);
            }
            Step::NotFound => {
                self.checker.seen.not_found += 1;
                self.checker.absent(reading.floor);
            }
            Step::Unavailable => self.checker.seen.unavailable += 1,
        }
        false
    }

    /// A read at this moment by the newest ring, while these devices are away.
    pub(super) fn read_now(&mut self, away: &BTreeSet<usize>) -> (Step, Vec<u8>) {
        let ring = self.rings.last().expect("a ring").clone();
        let mut read = Read::new((self.rules.reading)(self.terms));
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        self.chance.shuffle(&mut order);
        order.sort_by_key(|at| !ring.contains(at));
        order.retain(|at| !away.contains(at));
        let (mut step, mut pieces) = (Step::Ask(None), Pieces::new());
        let mut version;
        let (mut newest, mut named) = (None, None);
        loop {
            let (request, mut from) = match step {
                Step::Ask(below) => {
                    (version, newest, named) = (None, None, None);
                    (Request::Newest { below }, VecDeque::from(order.clone()))
                }
                Step::Fetch(wanted) => {
                    (version, pieces) = (Some(wanted), Pieces::new());
                    let asked = order.iter().copied().filter(|at| ring.contains(at) || named == Some(*at));
                    (Request::Fetch(wanted), asked.collect())
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
                let reply =
                    Reply { operation: 0, index: at, from: at, request, answer, pieces: found, place: None, ring: 0 };
                step = hear(&mut read, &reply, place, version, &mut pieces);
                if let Answer::Newest { committed, .. } = reply.answer
                    && committed > newest
                {
                    (newest, named) = (committed, Some(at));
                }
            }
            if step == Step::Wait {
                step = read.wait_no_longer();
            }
        }
    }

    /// With as many devices away as may be, the object is there.
    pub(super) fn read_with_devices_away(&mut self) {
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

    pub(super) fn expect_readable(&mut self, away: &BTreeSet<usize>) -> Step {
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
