//! What became of a write whose proxy is gone.

use super::super::operations::Operation;
use super::World;
use crate::recovery::{End, Recovery};
use crate::request::Request;
use crate::{Ballot, Outcome, Version};

impl World {
    pub(super) fn lose_patience(&mut self) {
        let found: Vec<(usize, usize, Version)> = self.undecided();
        if let Some((device, place, version)) = self.chance.pick(&found) {
            self.begin_recovery(device, place, version);
        }
    }

    pub(super) fn undecided(&self) -> Vec<(usize, usize, Version)> {
        let mut all = Vec::new();
        for (at, device) in self.devices.iter().enumerate().filter(|(_, device)| !device.is_away) {
            for (place, slot) in &device.slots {
                all.extend(slot.undecided().map(|(version, _)| (at, *place, version)));
            }
        }
        all
    }

    pub(super) fn begin_recovery(&mut self, device: usize, place: usize, version: Version) {
        if !self.rules.is_recovered {
            return;
        }
        let Some(kept) = self.devices[device].slots[&place].get(version).cloned() else { return };
        let known = self.devices[device].rounds.get(&(place, version)).copied().unwrap_or(0);
        let nonce = (self.rules.nonce)(self.chance.number());
        let ballot = Ballot { round: kept.promised.round.max(known) + 1, nonce };
        let recovery = Recovery::new((self.rules.recovering)(self.terms), version, kept.chosen.clone(), ballot);
        let sent = recovery.start();
        self.trace(|| format!("{device} at {place} asks about {version:?} with {ballot:?}"));
        let id = self.begin(Operation::Recovery { device, place, version, recovery });
        self.send_chosen(id, &kept.chosen, sent, &[]);
    }

    pub(super) fn goes_on_recovering(
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
}
