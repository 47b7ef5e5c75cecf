//! What goes wrong, and how much of it may.

use super::super::checker::Attempt;
use super::super::device::SimDevice;
use super::super::operations::{Message, Operation};
use super::World;
use crate::request::Request;
use crate::slot::Change;
use crate::write::Verdict;
use crate::{Outcome, Version};

impl World {
    pub(super) fn time_out(&mut self) {
        let all: Vec<u64> = self.operations.keys().copied().collect();
        if let Some(id) = self.chance.pick(&all) {
            self.wait_no_longer(id);
        }
    }

    pub(super) fn wait_no_longer(&mut self, id: u64) {
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
            Operation::Read { read, reading } => self.take(id, read.wait_no_longer(), reading),
            _ => false,
        };
        if goes_on {
            self.operations.insert(id, operation);
        }
    }

    pub(super) fn stop_proxy(&mut self) {
        let proxies = self.operations.iter().filter(|(_, operation)| operation.device().is_none());
        let all: Vec<u64> = proxies.map(|(id, _)| *id).collect();
        if let Some(id) = self.chance.pick(&all) {
            self.checker.seen.proxies_stopped += 1;
            self.operations.remove(&id);
        }
    }

    pub(super) fn restart(&mut self, device: usize) {
        self.checker.seen.devices_restarted += 1;
        self.trace(|| format!("{device} begins again"));
        self.operations.retain(|_, operation| operation.device() != Some(device));
        self.devices[device].restart();
    }

    /// Whether the object has to outlive so many more losses.
    pub(super) fn may_lose(&self, more: usize) -> bool {
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
    pub(super) fn oldest_ring(&self) -> usize {
        self.devices.iter().map(|device| device.ring).min().expect("devices")
    }

    /// Whether nothing can come of an attempt any more.
    pub(super) fn is_gone(&self, version: Version, attempt: &Attempt) -> bool {
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

    pub(super) fn lose_device(&mut self) {
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

    pub(super) fn damage(&mut self) {
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
    pub(super) fn change_ring(&mut self) {
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
}
