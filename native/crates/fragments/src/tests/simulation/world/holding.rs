//! What is looked at after each step, and in the end.

use super::World;
use crate::Version;
use crate::read::Step;

/// Rounds of replicators in the end.
const ROUNDS: usize = 20;

impl World {
    pub(super) fn look(&mut self) {
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
    pub(super) fn leftovers(&self, version: Option<Version>) -> Option<String> {
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
    pub(super) fn heal(&mut self) {
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

    pub(super) fn finish(&mut self) {
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

    pub(super) fn expect_the_newest(&mut self) {
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
