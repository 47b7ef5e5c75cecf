//! Writes and deletions.

use std::sync::Arc;

use super::super::checker::Attempt;
use super::super::operations::{Call, Operation};
use super::super::stripes::{CELL, encoded};
use super::World;
use crate::deletion::Deletion;
use crate::request::Request;
use crate::write::{Sent, Verdict, Write};
use crate::{Device, Version};

impl World {
    pub(super) fn any_ring(&mut self) -> usize {
        let newest = self.rings.len() - 1;
        if self.chance.percent(20) { newest.saturating_sub(1) } else { newest }
    }

    pub(super) fn any_timestamp(&mut self) -> u64 {
        // Of clocks that differ by more than it takes to write.
        (self.tick / 20 + self.chance.below(12)) as u64
    }

    pub(super) fn begin_write(&mut self) {
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

    pub(super) fn attempt(&mut self, operation: u64, version: Version, object: Option<Vec<u8>>) {
        let (started, committing) = (self.tick, object.is_none());
        let attempt =
            Attempt { operation, started, object, committing, acknowledged: false, failed: false, buried: false };
        self.checker.attempts.entry(version).or_insert(attempt);
    }

    pub(super) fn begin_delete(&mut self) {
        if self.checker.attempts.len() >= self.most_attempts {
            return;
        }
        let timestamp = self.any_timestamp();
        let version = Version::deletion(timestamp);
        let ring = self.any_ring();
        self.trace(|| format!("delete {version:?}"));
        let deletion = Deletion::new((self.rules.writing)(self.terms));
        let id = self.begin(Operation::Delete { version, deletion });
        self.attempt(id, version, None);
        for (index, to) in self.rings[ring].clone().into_iter().enumerate() {
            let request = Request::Delete { timestamp };
            self.send(Call { operation: id, index, to, incarnation: None, place: Some(index), request, bytes: None });
        }
    }

    pub(super) fn acknowledge(&mut self, version: Version) {
        if let Some(attempt) = self.checker.attempts.get_mut(&version)
            && !attempt.acknowledged
        {
            attempt.acknowledged = true;
            self.checker.seen.acknowledged += 1;
            self.trace(|| format!("acknowledged {version:?}"));
        }
    }

    pub(super) fn go_on_writing(
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
}
