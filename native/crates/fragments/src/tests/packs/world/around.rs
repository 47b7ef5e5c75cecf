//! What happens to places beside packers: writes, metadata that are posted, sync, rings that change, spares.

use super::{Device, Message, Post, Question, World};
use crate::Version;
use crate::packs::{Change, Digest, Member, Pack, Request};

/// What a write reaches.
struct Reached {
    /// Places.
    places: Vec<usize>,
    /// The spare takes what it does not reach.
    spare: bool,
}

impl World<'_> {
    /// Which of the first places a write reaches: with a spare, where there is one, a quorum at least, and all that no
    /// fault may be added to.
    fn reach(&mut self, holders: usize, quorum: usize, spares: bool) -> Option<Reached> {
        let mut places: Vec<usize> = (0..holders).filter(|place| !self.devices[self.at(*place)].is_away).collect();
        for _ in 0..2 {
            if !self.is_faultless && self.chance.percent(30) {
                let place = self.chance.below(self.places());
                let mut failing: Vec<usize> = (0..holders).filter(|other| !places.contains(other)).collect();
                failing.push(place);
                if self.may_all_fail(&failing) {
                    places.retain(|other| *other != place);
                }
            }
        }
        let spare = spares && places.len() < holders && !self.devices[self.spare()].is_away && self.chance.percent(70);
        (places.len() + usize::from(spare) >= quorum).then_some(Reached { places, spare })
    }

    /// Whether faults at these places leave k others without one.
    pub(super) fn may_all_fail(&self, places: &[usize]) -> bool {
        let mut failing = self.faulted.clone();
        failing.extend((0..self.places()).filter(|place| self.devices[self.at(*place)].is_away));
        failing.extend(places);
        self.places() - failing.len() >= self.terms.data()
    }

    /// The places that a pack's fragments reach.
    pub(super) fn reach_fragments(&mut self) -> Option<Vec<usize>> {
        self.reach(self.places(), self.terms.quorum(), false).map(|reached| reached.places)
    }

    pub(super) fn write(&mut self, deletes: bool) {
        let digest = [self.chance.below(self.objects) as u8; 16];
        let mut version = self.version();
        if deletes {
            if !self.truth.contains_key(&digest) {
                return;
            }
            version = Version::deletion(version.timestamp);
        }
        let spares = self.form.enough == 1;
        let Some(reached) = self.reach(self.form.holders, self.form.quorum, spares) else { return };
        self.truth.insert(digest, version);
        self.posted.remove(&digest);
        let change = Change::Settled(Member { digest, version });
        for place in 0..self.form.holders {
            if reached.places.contains(&place) {
                self.apply(self.at(place), &change);
            } else {
                self.faulted.insert(place);
            }
        }
        if reached.spare {
            self.apply(self.spare(), &change);
            self.seen.stood_in += 1;
        }
    }

    /// Metadata go to the places that have the version; others get them by sync.
    pub(super) fn post(&mut self) {
        let digest = [self.chance.below(self.objects) as u8; 16];
        let Some(of) = self.truth.get(&digest).copied().filter(|version| !version.is_deletion()) else { return };
        let Some(reached) = self.reach(self.form.holders, self.form.quorum, false) else { return };
        let has = |place: &usize| {
            self.devices[self.at(*place)].holdings.object(&digest).is_some_and(|object| object.version == of)
        };
        let places: Vec<usize> = reached.places.into_iter().filter(has).collect();
        if places.len() < self.form.quorum {
            return;
        }
        let post = Post { of, at: self.clock };
        self.posted.insert(digest, post);
        for place in 0..self.form.holders {
            if places.contains(&place) {
                let device = self.at(place);
                self.trace(|| format!("{device}: {post:?} of {}", digest[0]));
                self.devices[device].posts.insert(digest, post);
            } else {
                self.faulted.insert(place);
            }
        }
        self.seen.posted += 1;
    }

    /// A deletion that all places have is forgotten by all. What sync has on its way is that old in no case; and a device
    /// that is no place and has something older was away for so long that it has to come back empty. That is a fault like
    /// others: packers by an old ring may have given it what its place does not have yet.
    pub(super) fn forget(&mut self) {
        let digest = [self.chance.below(self.objects) as u8; 16];
        let is_deleted =
            |device: &Device| device.holdings.object(&digest).is_some_and(|object| object.version.is_deletion());
        let is_everywhere = (0..self.form.holders).all(|place| {
            let object = self.devices[self.at(place)].holdings.object(&digest);
            object.is_some_and(|object| self.truth.get(&digest) == Some(&object.version))
                && is_deleted(&self.devices[self.at(place)])
        });
        let of_sync = |message: &Message| match message {
            Message::Ask { question: Question::Of(Request::Learn { member, .. }), .. } => member.digest == digest,
            _ => false,
        };
        let has_older = |device: &Device| device.holdings.object(&digest).is_some() && !is_deleted(device);
        let others = (0..self.devices.len()).filter(|device| !self.is_place(*device, self.newest_ring()));
        let outdated: Vec<usize> = others.filter(|device| has_older(&self.devices[*device])).collect();
        let of_places = outdated.iter().filter(|device| **device < self.spare());
        let lose: Vec<usize> = of_places.map(|device| self.place_of(*device)).collect();
        if !is_everywhere || self.messages.iter().any(of_sync) || !(lose.is_empty() || self.may_all_fail(&lose)) {
            return;
        }
        self.truth.remove(&digest);
        self.faulted.extend(lose);
        for device in 0..self.devices.len() {
            if outdated.contains(&device) {
                self.empty(device);
            } else {
                self.apply(device, &Change::Forgotten(digest));
            }
        }
        self.seen.forgotten += 1;
    }

    /// The other device of a place comes in the place of the one that is there, which is away from then on, or not. Mostly
    /// it is the place that was changed last.
    pub(super) fn change_ring(&mut self) {
        let last = self.rings.last_chunk().and_then(|[one, two]| (0..self.places()).find(|at| one[*at] != two[*at]));
        let place = match last {
            Some(last) if self.chance.percent(60) => last,
            _ => self.chance.below(self.places()),
        };
        if self.rings.len() > 6 || !self.may_fail(place) {
            return;
        }
        let former = self.at(place);
        self.devices[former].is_away |= self.chance.percent(60);
        let mut ring = self.rings[self.newest_ring()].clone();
        ring[place] = self.other(ring[place]);
        let device = ring[place];
        self.trace(|| format!("{device} comes to place {place}"));
        let holdings = &self.devices[device].holdings;
        self.seen.rings += 1;
        self.seen.returned += usize::from(holdings.objects().next().is_some());
        let known = self.known();
        let leads_nowhere = |pack: Option<Pack>| pack.is_some_and(|pack| !known.contains(&pack));
        let holdings = &self.devices[device].holdings;
        self.seen.dangling += usize::from(holdings.objects().any(|(_, object)| leads_nowhere(object.reference)));
        self.devices[device].is_away = false;
        self.rings.push(ring);
        self.faulted.insert(place);
    }

    /// The others that a device is compared with: places by its ring, which go by the same one.
    fn others(&self, device: usize) -> Vec<usize> {
        let ring = self.devices[device].ring;
        let others = self.present(ring).into_iter();
        others.filter(|other| *other != device && self.devices[*other].ring == ring).collect()
    }

    /// A place compares itself with another one, and takes what it lacks.
    pub(super) fn sync(&mut self, device: usize) {
        let Device { ring, is_away, .. } = self.devices[device];
        if is_away || !self.is_place(device, ring) {
            return;
        }
        let others = self.others(device);
        let Some(other) = self.chance.pick(&others) else { return };
        self.sync_packs(device, other, &others);
        if self.place_of(device) < self.form.holders && self.place_of(other) < self.form.holders {
            self.sync_objects(device, other);
        }
    }

    fn sync_packs(&mut self, device: usize, other: usize, others: &[usize]) {
        for (pack, own) in self.devices[other].holdings.clone().packs() {
            let here = self.devices[device].holdings.own(&pack);
            if own.deleted && !here.deleted {
                self.apply(device, &Change::Deleted(pack));
            } else if own.fragment
                && !here.fragment
                && !here.deleted
                && others.iter().filter(|other| self.is_sound(**other, pack)).count() >= self.terms.data()
            {
                let is_retired = |other: &usize| self.devices[*other].holdings.own(&pack).retired;
                let retired = others.iter().any(is_retired);
                self.apply(device, &Change::Stored { pack, retired });
            }
        }
    }

    fn sync_objects(&mut self, device: usize, other: usize) {
        for (digest, object) in self.devices[other].holdings.clone().objects() {
            let here = self.devices[device].holdings.object(&digest).copied();
            match here {
                Some(here) if here.version > object.version => {}
                Some(here) if here.version == object.version => self.take_post(device, other, digest, object.version),
                _ => self.bring(device, other, digest),
            }
        }
    }

    fn take_post(&mut self, device: usize, other: usize, digest: Digest, of: Version) {
        let at = self.newest_post(other, &digest);
        if at > self.newest_post(device, &digest) && self.rules.posts_are_brought {
            self.trace(|| format!("{device} gets the metadata of {at} of {} from {other}", digest[0]));
            self.devices[device].posts.insert(digest, Post { of, at });
        }
    }

    /// Bring what another device has of an object.
    fn bring(&mut self, device: usize, other: usize, digest: Digest) {
        let Some(object) = self.devices[other].holdings.object(&digest).copied() else { return };
        let member = Member { digest, version: object.version };
        let sources = if self.form.enough == 1 { vec![other] } else { self.others(device) };
        let having = |source: &&usize| {
            let held = self.devices[**source].holdings.object(&digest);
            held.is_some_and(|held| held.version == object.version && held.fragment)
        };
        let is_made = sources.iter().filter(having).count() >= self.form.enough;
        if object.version.is_deletion() {
            self.apply(device, &Change::Settled(member));
        } else if let Some(pack) = object.reference {
            let (question, place) = (Question::Of(Request::Learn { pack, member }), self.place_of(device));
            self.messages.push(Message::Ask { packer: None, pass: 0, place, device, question });
        } else if is_made {
            // A copy has the newest metadata as its own.
            let at = self.newest_post(other, &digest);
            self.apply(device, &Change::Settled(member));
            if at > 0 && self.form.enough == 1 {
                self.devices[device].within.insert(digest, Post { of: object.version, at });
            } else if at > 0 {
                self.devices[device].posts.insert(digest, Post { of: object.version, at });
            }
        }
    }

    /// The fragments of packs that a device has from when it was a place go to the device that is there now. Who makes or
    /// moves one asks all others whether the pack is retired.
    fn hand_packs_back(&mut self, device: usize, ring: usize) {
        if device == self.spare() {
            return;
        }
        let to = self.rings[ring][self.place_of(device)];
        for (pack, own) in self.devices[device].holdings.clone().packs() {
            let here = self.devices[to].holdings.own(&pack);
            if self.is_sound(device, pack) && !here.fragment && !here.deleted {
                let is_retired = |other: &usize| self.devices[*other].holdings.own(&pack).retired;
                let retired = own.retired || self.rings[ring].iter().any(is_retired);
                self.apply(to, &Change::Stored { pack, retired });
            }
        }
    }

    /// A device that is no place by its ring gives all places what they lack, and drops what all have.
    pub(super) fn hand_back(&mut self, device: usize) {
        let Device { ring, is_away, .. } = self.devices[device];
        let holders: Vec<usize> = self.rings[ring][..self.form.holders].to_vec();
        let are_there = holders.iter().all(|one| !self.devices[*one].is_away && self.devices[*one].ring == ring);
        if is_away || self.is_place(device, ring) || !are_there {
            return;
        }
        self.hand_packs_back(device, ring);
        for (digest, object) in self.devices[device].holdings.clone().objects() {
            let mut is_shown = true;
            for holder in &holders {
                let theirs = self.devices[*holder].holdings.object(&digest).copied();
                if theirs.is_none_or(|theirs| theirs.version < object.version) {
                    is_shown = false;
                    self.bring(*holder, device, digest);
                } else if theirs.is_some_and(|theirs| theirs.version == object.version)
                    && self.newest_post(*holder, &digest) < self.newest_post(device, &digest)
                {
                    is_shown = false;
                    self.take_post(*holder, device, digest, object.version);
                }
            }
            if is_shown || !self.rules.hands_back_to_all {
                self.apply(device, &Change::Forgotten(digest));
                self.seen.handed_back += 1;
            }
        }
    }
}
