//! Packers, and what devices answer to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Device, Message, Packer, Question, Reply, Work, World};
use crate::packs::{Adoption, Answer, Change, Digest, Member, Pack, Request, Retirement, Step};

/// A member with the time of the metadata that are in its bytes.
type Bytes = (Member, u64);

impl World<'_> {
    pub(super) fn is_sound(&self, device: usize, pack: Pack) -> bool {
        self.devices[device].holdings.own(&pack).fragment && !self.devices[device].rotten.contains(&pack)
    }

    fn having_pack(&self, ring: usize, pack: Pack) -> usize {
        self.present(ring).into_iter().filter(|device| self.is_sound(*device, pack)).count()
    }

    /// Whether the copies, or fragments, of a small object can be read by a ring.
    fn having_fragment(&self, ring: usize, member: Member) -> usize {
        let has = |device: &usize| {
            let object = self.devices[*device].holdings.object(&member.digest);
            object.is_some_and(|object| object.version == member.version && object.fragment)
        };
        self.present(ring).iter().filter(|device| has(device)).count()
    }

    /// By its own ring a device packs what it has, or all that refer to one of its packs.
    pub(super) fn pack(&mut self, device: usize) {
        let Device { ring, is_away, .. } = self.devices[device];
        if is_away || !self.is_place(device, ring) {
            return;
        }
        let packs: Vec<Pack> = self.packs_of(device);
        let old = if self.chance.percent(50) { self.chance.pick(&packs) } else { None };
        let mut cold = Vec::new();
        for (digest, object) in self.devices[device].holdings.clone().objects() {
            if object.fragment && self.chance.percent(60) {
                let at = self.within_copy(device, &digest);
                cold.push((Member { digest, version: object.version }, at));
            }
        }
        self.write_pack(ring, &cold, old);
    }

    pub(super) fn packs_of(&self, device: usize) -> Vec<Pack> {
        let packs = self.devices[device].holdings.packs();
        packs.filter(|(_, own)| own.fragment).map(|(pack, _)| pack).collect()
    }

    /// Whether another place has a copy of the same version with other bytes.
    fn is_left_out(&self, ring: usize, (member, at): Bytes) -> bool {
        self.rings[ring][..self.form.holders].iter().any(|device| {
            let holdings = &self.devices[*device].holdings;
            let object = holdings.object(&member.digest).filter(|object| object.version == member.version);
            object.is_some_and(|object| {
                object.reference.is_none() && object.fragment && self.within_copy(*device, &member.digest) != at
            })
        })
    }

    /// Write these copies as a new pack, with all that refer to an old one.
    pub(super) fn write_pack(&mut self, ring: usize, cold: &[Bytes], old: Option<Pack>) {
        // All places with small objects are asked what they have.
        if self.rings[ring][..self.form.holders].iter().any(|device| self.devices[*device].is_away) {
            return;
        }
        // Of one version a member counts before a copy, of two the newer one.
        let mut members: BTreeMap<Digest, Bytes> = BTreeMap::new();
        for (member, at) in cold.iter().copied() {
            if self.rules.compares_bytes && self.is_left_out(ring, (member, at)) {
                self.seen.left_out += 1;
            } else if self.having_fragment(ring, member) >= self.form.enough {
                members.insert(member.digest, (member, at));
            }
        }
        if let Some(old) = old.filter(|old| self.having_pack(ring, *old) >= self.terms.data()) {
            for device in self.present(ring) {
                for member in self.devices[device].holdings.references(old).collect::<Vec<_>>() {
                    if members.get(&member.digest).is_none_or(|(held, _)| held.version <= member.version) {
                        let at = self.within_pack(old, member.digest);
                        members.insert(member.digest, (member, at));
                    }
                }
            }
        }
        let is_newest = ring == self.newest_ring();
        let reached = if is_newest { self.reach_fragments() } else { self.reach_by_old_ring(ring) };
        let Some(reached) = reached.filter(|_| !members.is_empty()) else { return };
        let version = self.version();
        let pack = Pack { version, digest: [version.generation as u8; 16] };
        self.trace(|| format!("pack {pack:?} has {members:?}"));
        self.within.extend(members.values().map(|(member, at)| ((pack, member.digest), *at)));
        self.contents.insert(pack, members.into_values().map(|(member, _)| member).collect());
        self.seen.packs += 1;
        self.seen.repacked += usize::from(old.is_some());
        for place in reached {
            let device = self.rings[ring][place];
            self.apply(device, &Change::Stored { pack, retired: false });
            if !self.is_faultless && self.chance.percent(2) && self.may_fail(place) {
                self.devices[device].rotten.insert(pack);
                self.seen.rotten += 1;
            }
        }
        if self.is_faultless || !self.chance.percent(10) {
            self.adopt(ring, pack, old);
        }
    }

    /// The places of an old ring that a pack reaches.
    fn reach_by_old_ring(&mut self, ring: usize) -> Option<Vec<usize>> {
        self.seen.old_rings += 1;
        let places: Vec<usize> =
            (0..self.places()).filter(|place| !self.devices[self.rings[ring][*place]].is_away).collect();
        (places.len() >= self.terms.quorum()).then_some(places)
    }

    pub(super) fn adopt_again(&mut self, device: usize) {
        let (ring, packs) = (self.devices[device].ring, self.packs_of(device));
        let pack = self.chance.pick(&packs).filter(|pack| !self.devices[device].holdings.own(pack).retired);
        if let Some(pack) = pack.filter(|_| self.is_place(device, ring)) {
            self.adopt(ring, pack, None);
        }
    }

    pub(super) fn adopt(&mut self, ring: usize, pack: Pack, then: Option<Pack>) {
        let work = Work::Adopting { adoption: Adoption::new(self.terms, self.form.holders), proofs: 0, then };
        self.begin(Packer { pack, ring, work }, Request::Prove(pack));
    }

    pub(super) fn retire(&mut self, device: usize) {
        let (ring, packs) = (self.devices[device].ring, self.packs_of(device));
        if let Some(pack) = self.chance.pick(&packs).filter(|_| self.is_place(device, ring)) {
            let is_used = self.devices[device].holdings.references(pack).next().is_some();
            if !is_used || self.chance.percent(10) {
                self.retire_pack(ring, pack);
            }
        }
    }

    pub(super) fn retire_pack(&mut self, ring: usize, pack: Pack) {
        let work = Work::Retiring { retirement: Retirement::new(self.terms), unused: 0, agreed: BTreeSet::new() };
        self.begin(Packer { pack, ring, work }, Request::Retire(pack));
    }

    fn begin(&mut self, packer: Packer, request: Request) {
        self.next += 1;
        self.packers.insert(self.next, packer);
        self.ask_first(self.places(), self.next, 0, &Question::Of(request));
    }

    fn ask_first(&mut self, places: usize, packer: u64, pass: usize, question: &Question) {
        let Some(Packer { ring, .. }) = self.packers.get(&packer) else { return };
        for (place, device) in self.rings[*ring][..places].iter().copied().enumerate() {
            let question = question.clone();
            self.messages.push(Message::Ask { packer: Some(packer), pass, place, device, question });
        }
    }

    pub(super) fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.chance.below(self.messages.len());
        let fate = self.chance.below(100);
        let message = if fate < self.faults && !self.is_faultless {
            self.messages[at].clone()
        } else {
            self.messages.swap_remove(at)
        };
        if !self.is_faultless && fate >= 100 - self.faults {
            return;
        }
        match message {
            Message::Ask { packer, pass, place, device, question } => {
                if let Some(reply) = self.take(device, &question)
                    && let Some(packer) = packer
                {
                    self.messages.push(Message::Reply { packer, pass, place, question, reply });
                }
            }
            Message::Reply { packer, pass, place, question, reply } => {
                self.reply(packer, pass, place, (&question, reply));
            }
        }
    }

    fn take(&mut self, device: usize, question: &Question) -> Option<Reply> {
        if self.devices[device].is_away {
            return None;
        }
        let Question::Of(request) = question else { return Some(Reply::Ring(self.devices[device].ring)) };
        if let Request::Prove(pack) = request
            && self.rules.is_read_back
            && self.devices[device].rotten.remove(pack)
        {
            self.apply(device, &Change::Damaged(*pack));
        }
        let request = &self.comparing(device, request);
        let (change, answer) = (self.rules.answer)(&self.devices[device].holdings, request, true);
        if let Some(change) = change {
            match change {
                Change::Deleted(_) => self.seen.deleted += 1,
                Change::Adopted { .. } => self.seen.adopted += 1,
                Change::Learned { .. } => self.seen.learned += 1,
                _ => {}
            }
            self.apply(device, &change);
        }
        Some(Reply::Of(answer))
    }

    /// A place adopts only members that have the bytes of its copies, or where the newest metadata lie beside a copy. Of
    /// what it has in another pack it compares no more than how long it is, which is the same here.
    fn comparing(&self, device: usize, request: &Request) -> Request {
        let Request::Adopt { pack, members } = request else { return request.clone() };
        let Device { holdings, posts, .. } = &self.devices[device];
        let has = |member: &&Member| {
            let is_copy = holdings.object(&member.digest).is_some_and(|object| object.fragment);
            let (at, own) = (self.within_pack(*pack, member.digest), self.within_copy(device, &member.digest));
            let is_beside = posts.get(&member.digest).is_some_and(|post| post.at >= own);
            !self.rules.compares_bytes || !is_copy || own == at || is_beside
        };
        Request::Adopt { pack: *pack, members: members.iter().filter(has).copied().collect() }
    }

    fn reply(&mut self, id: u64, pass: usize, place: usize, (question, reply): (&Question, Reply)) {
        let (rules, places) = (self.rules, self.places());
        let Some(Packer { pack, ring, work }) = self.packers.get_mut(&id) else { return };
        let pack = *pack;
        let step = match (work, question, reply) {
            (Work::Adopting { adoption, proofs, .. }, Question::Of(Request::Prove(_)), Reply::Of(answer)) => {
                let step = adoption.proved(place, answer);
                *proofs += usize::from(answer == Answer::Done);
                let enough = (rules.proofs)(places);
                if enough < places && *proofs == enough { Step::Adopt } else { step }
            }
            (Work::Adopting { adoption, .. }, _, Reply::Of(answer)) => adoption.adopted(place, answer),
            (Work::Retiring { retirement, unused, .. }, Question::Of(Request::Retire(_)), Reply::Of(answer)) => {
                let step = retirement.retired(pass, place, answer);
                *unused += usize::from(matches!(answer, Answer::Retired { references: 0, .. }));
                let enough = (rules.unused)(places);
                let is_enough = enough < places && *unused >= enough;
                if is_enough { Step::Delete } else { step }
            }
            (Work::Retiring { agreed, .. }, Question::Ring, Reply::Ring(theirs)) => {
                if theirs != *ring {
                    self.packers.remove(&id);
                    return;
                }
                if agreed.insert(place) && agreed.len() == places {
                    self.ask_first(places, id, 0, &Question::Of(Request::Delete(pack)));
                }
                return;
            }
            (Work::Retiring { retirement, .. }, _, Reply::Of(answer)) => retirement.deleted(place, answer),
            _ => return,
        };
        self.go_on(id, pack, step);
    }

    fn go_on(&mut self, id: u64, pack: Pack, step: Step) {
        let places = self.places();
        match step {
            Step::Wait => {}
            Step::Adopt => {
                let members = Arc::clone(&self.contents[&pack]);
                let request = Request::Adopt { pack, members };
                self.ask_first(self.form.holders, id, 0, &Question::Of(request));
            }
            Step::RetireAgain => {
                let Some(Packer { work: Work::Retiring { retirement, .. }, .. }) = self.packers.get(&id) else {
                    return;
                };
                let pass = retirement.pass();
                self.ask_first(places, id, pass, &Question::Of(Request::Retire(pack)));
            }
            Step::Delete if self.rules.asks_for_ring => self.ask_first(places, id, 0, &Question::Ring),
            Step::Delete => self.ask_first(places, id, 0, &Question::Of(Request::Delete(pack))),
            Step::Done => {
                if let Some(Packer { ring, work: Work::Adopting { then: Some(old), .. }, .. }) =
                    self.packers.remove(&id)
                {
                    self.retire_pack(ring, old);
                }
            }
            Step::GiveUp => {
                self.seen.refused += 1;
                self.packers.remove(&id);
            }
        }
    }
}
