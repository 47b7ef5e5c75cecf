//! What replicators do: sessions, rebuilds, handoffs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::device::Round;
use super::super::operations::{Call, Operation, Pieces, Reply};
use super::super::stripes::restored;
use super::World;
use crate::request::Request;
use crate::slot::{Change, Slot};
use crate::sync::{Todo, is_settled};
use crate::{Device, Version};

impl World {
    pub(super) fn place_of(&self, device: usize) -> Option<usize> {
        self.rings[self.devices[device].ring].iter().position(|at| *at == device)
    }

    pub(super) fn begin_session(&mut self) {
        let device = self.chance.below(self.devices.len());
        let other = self.chance.below(self.terms.places());
        self.ask_other_place(device, other);
    }

    pub(super) fn ask_other_place(&mut self, device: usize, other: usize) {
        let Some(place) = self.place_of(device).filter(|place| *place != other) else { return };
        if self.devices[device].is_away {
            return;
        }
        let to = self.rings[self.devices[device].ring][other];
        let operation = self.begin(Operation::Session { device, place });
        let request = Request::Show;
        self.send(Call { operation, index: other, to, incarnation: None, place: None, request, bytes: None });
    }

    pub(super) fn compare(&mut self, device: usize, place: usize, reply: &Reply) {
        let (Some(other), Some(own)) = (reply.place, self.place_of(device)) else { return };
        if own != place || other == place {
            return;
        }
        let empty = Slot::default();
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

    pub(super) fn is_rebuilt(
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

    pub(super) fn begin_return(&mut self) {
        let all = self.in_custody();
        if let Some((device, place)) = self.chance.pick(&all) {
            self.ask_place(device, place);
        }
    }

    /// Slots whose place another device has.
    pub(super) fn in_custody(&self) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for (at, device) in self.devices.iter().enumerate().filter(|(_, device)| !device.is_away) {
            let own = self.place_of(at);
            all.extend(device.slots.keys().filter(|place| own != Some(**place)).map(|place| (at, *place)));
        }
        all
    }

    pub(super) fn ask_place(&mut self, device: usize, place: usize) {
        let to = self.rings[self.devices[device].ring][place];
        let operation = self.begin(Operation::Return { device, place });
        let request = Request::Show;
        self.send(Call { operation, index: place, to, incarnation: None, place: None, request, bytes: None });
    }

    pub(super) fn hand_back(&mut self, id: u64, device: usize, place: usize, reply: &Reply) {
        let Some(slot) = self.devices[device].slots.get(&place) else { return };
        if reply.request != Request::Show || reply.place != Some(place) || self.place_of(device) == Some(place) {
            return;
        }
        let theirs = reply.shown();
        if let Some(change) = (self.rules.returned)(slot, theirs) {
            self.checker.seen.handed_back += 1;
            return self.append(device, place, &change, None);
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
}
