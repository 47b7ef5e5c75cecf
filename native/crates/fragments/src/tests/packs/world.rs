//! The places of a partition, what goes between them, and what must hold.
//!
//! A ring names the device of each place. It may change: then another device is at a place, and the former one keeps what
//! it has until it has handed it back, or is a place again. Devices and packers learn of a ring at different times. Spares
//! take writes for places that these do not reach.
//!
//! - A place that no fault has touched, or that was made whole since, has a sound fragment of each pack that anybody
//!   needs. If it has small objects, it has the newest version of each: a fragment, or a copy, or a reference to a pack.
//!   So any k of these places are enough to read everything.
//! - No place has an object that was deleted everywhere and forgotten, and no reference leads to another version.
//! - It has the newest metadata that were posted to a version, beside it or in its bytes.
//! - In the end all places have the same, all packs are needed, none is retired, and no other device has anything.

mod around;
mod packing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use swiftlet_erasure::Scheme;

use super::Rules;
use crate::packs::{Adoption, Answer, Change, Digest, Holdings, Member, Pack, Request, Retirement};
use crate::tests::simulation::chance::Chance;
use crate::{Terms, Version};

const STEPS: usize = 500;

/// What has happened, so that a simulation in which nothing does is noticed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    seeds: usize,
    packs: usize,
    adopted: usize,
    partly_adopted: usize,
    repacked: usize,
    deleted: usize,
    refused: usize,
    replaced: usize,
    rotten: usize,
    learned: usize,
    stopped: usize,
    forgotten: usize,
    posted: usize,
    rings: usize,
    returned: usize,
    stood_in: usize,
    handed_back: usize,
    left_out: usize,
    old_rings: usize,
    dangling: usize,
}

impl Seen {
    pub(super) fn assert_all_kinds(&self) {
        let counts = [
            self.packs,
            self.adopted,
            self.partly_adopted,
            self.repacked,
            self.deleted,
            self.refused,
            self.replaced,
            self.rotten,
            self.learned,
            self.stopped,
            self.forgotten,
            self.posted,
            self.rings,
            self.returned,
            self.stood_in,
            self.handed_back,
            self.left_out,
            self.old_rings,
            self.dangling,
        ];
        assert!(self.seeds < 100 || counts.iter().all(|count| *count > 0), "{self:?}");
    }
}

/// What may happen next, and how often it does by default.
#[derive(Clone, Copy)]
enum Event {
    Write,
    Delete,
    Pack,
    Adopt,
    Retire,
    Sync,
    Leave,
    Return,
    Replace,
    Stop,
    Forget,
    Post,
    ChangeRing,
    LearnRing,
    HandBack,
    Deliver,
}

const EVENTS: [(Event, usize); 16] = [
    (Event::Write, 4),
    (Event::Delete, 2),
    (Event::Pack, 8),
    (Event::Adopt, 5),
    (Event::Retire, 12),
    (Event::Sync, 12),
    (Event::Leave, 2),
    (Event::Return, 12),
    (Event::Replace, 2),
    (Event::Stop, 1),
    (Event::Forget, 2),
    (Event::Post, 2),
    (Event::ChangeRing, 2),
    (Event::LearnRing, 16),
    (Event::HandBack, 2),
    (Event::Deliver, 60),
];

/// What one seed's world is like.
struct Temper {
    weights: [usize; EVENTS.len()],
    /// So many messages arrive one after the other, at most.
    at_once: usize,
}

impl Temper {
    fn new(chance: &mut Chance) -> Self {
        // Where hardly anything fails packs come and go before the end, and rings change meanwhile.
        let is_calm = chance.percent(40);
        let weights = EVENTS.map(|(event, weight)| match event {
            Event::Leave | Event::Replace | Event::Stop | Event::Post if is_calm => 0,
            Event::Delete if is_calm => 1,
            Event::LearnRing if is_calm => 4 * weight,
            _ => weight * [0, 1, 2, 2, 2, 4, 8][chance.below(7)] + 1,
        });
        Self { weights, at_once: if is_calm { 40 } else { 4 } }
    }

    fn choose(&self, chance: &mut Chance) -> Event {
        let mut at = chance.below(self.weights.iter().sum());
        for (weight, (event, _)) in self.weights.iter().zip(EVENTS) {
            if at < *weight {
                return event;
            }
            at -= weight;
        }
        unreachable!("the sum of the weights is more")
    }
}

/// How small objects are kept before they are packed.
#[derive(Clone, Copy)]
struct Form {
    /// Places that have them, the first ones.
    holders: usize,
    /// Holders that a write has to reach.
    quorum: usize,
    /// Holders that are enough to read.
    enough: usize,
}

impl Form {
    fn fragments(terms: Terms) -> Self {
        Self { holders: terms.places(), quorum: terms.quorum(), enough: terms.data() }
    }

    /// One more than may be lost, and three at least.
    fn copies(terms: Terms) -> Self {
        let holders = (terms.places() - terms.data() + 1).max(3);
        Self { holders, quorum: holders / 2 + 1, enough: 1 }
    }
}

/// An object, its version, and the pack that has it.
type Located = (Digest, Version, Option<Pack>);

/// Metadata that were posted to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Post {
    of: Version,
    at: u64,
}

#[derive(Clone, Default)]
struct Device {
    holdings: Holdings,
    rotten: BTreeSet<Pack>,
    is_away: bool,
    /// The ring by which it goes.
    ring: usize,
    /// The newest metadata that lie on top of its objects.
    posts: BTreeMap<Digest, Post>,
    /// Those that copies have in their own bytes: sync brings them so.
    within: BTreeMap<Digest, Post>,
}

/// What goes to a device.
#[derive(Clone, Debug)]
enum Question {
    Of(Request),
    /// By which ring it goes.
    Ring,
}

#[derive(Clone, Debug)]
enum Reply {
    Of(Answer),
    Ring(usize),
}

#[derive(Clone)]
enum Message {
    /// To a device at a place, for a packer's pass.
    Ask {
        packer: Option<u64>,
        pass: usize,
        place: usize,
        device: usize,
        question: Question,
    },
    Reply {
        packer: u64,
        pass: usize,
        place: usize,
        question: Question,
        reply: Reply,
    },
}

enum Work {
    /// With the pack that is to be retired afterwards.
    Adopting { adoption: Adoption, proofs: usize, then: Option<Pack> },
    /// With the places that have said that they go by its ring.
    Retiring { retirement: Retirement, unused: usize, agreed: BTreeSet<usize> },
}

struct Packer {
    pack: Pack,
    ring: usize,
    work: Work,
}

pub(super) struct World<'a> {
    chance: Chance,
    temper: Temper,
    rules: Rules,
    terms: Terms,
    form: Form,
    objects: usize,
    /// Percent of messages that are lost, and that arrive again.
    faults: usize,
    /// The first devices of all places, the second ones, and the spare.
    devices: Vec<Device>,
    /// The device at each place in each ring.
    rings: Vec<Vec<usize>>,
    contents: BTreeMap<Pack, Arc<[Member]>>,
    /// When the metadata were posted that members have in their bytes.
    within: BTreeMap<(Pack, Digest), u64>,
    truth: BTreeMap<Digest, Version>,
    posted: BTreeMap<Digest, Post>,
    /// Places of the newest ring that may lack something.
    faulted: BTreeSet<usize>,
    messages: Vec<Message>,
    packers: BTreeMap<u64, Packer>,
    next: u64,
    clock: u64,
    is_faultless: bool,
    seen: &'a mut Seen,
    trace: bool,
}

impl<'a> World<'a> {
    pub(super) fn run(seed: u64, rules: Rules, seen: &'a mut Seen) -> Result<(), String> {
        let mut chance = Chance::new(seed);
        let (data, parity) = [(2, 1), (2, 2), (3, 2), (4, 2), (2, 3)][chance.below(5)];
        let terms = Terms::of(Scheme::new(data, parity).expect("a scheme"));
        let form = if chance.percent(50) { Form::copies(terms) } else { Form::fragments(terms) };
        let (objects, faults) = ([1, 2, 3, 5][chance.below(4)], [1, 4, 12][chance.below(3)]);
        seen.seeds += 1;
        let temper = Temper::new(&mut chance);
        let mut world = Self {
            chance,
            temper,
            rules,
            terms,
            form,
            objects,
            faults,
            devices: vec![Device::default(); 2 * terms.places() + 1],
            rings: vec![(0..terms.places()).collect()],
            contents: BTreeMap::new(),
            within: BTreeMap::new(),
            posted: BTreeMap::new(),
            truth: BTreeMap::new(),
            faulted: BTreeSet::new(),
            messages: Vec::new(),
            packers: BTreeMap::new(),
            next: 0,
            clock: 0,
            is_faultless: false,
            seen,
            trace: std::env::var("PACK_TRACE").is_ok(),
        };
        for _ in 0..STEPS {
            world.step();
            world.check()?;
        }
        world.end()
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{} {}", self.clock, what());
        }
    }

    fn places(&self) -> usize {
        self.terms.places()
    }

    fn newest_ring(&self) -> usize {
        self.rings.len() - 1
    }

    /// The device at a place of the newest ring.
    fn at(&self, place: usize) -> usize {
        self.rings[self.newest_ring()][place]
    }

    fn spare(&self) -> usize {
        2 * self.places()
    }

    /// The other device of the same place.
    fn other(&self, device: usize) -> usize {
        (device + self.places()) % (2 * self.places())
    }

    /// The place of a device, in whichever ring.
    fn place_of(&self, device: usize) -> usize {
        device % self.places()
    }

    /// Whether a device is a place by a ring.
    fn is_place(&self, device: usize, ring: usize) -> bool {
        self.rings[ring].contains(&device)
    }

    /// The devices of a ring that are there.
    fn present(&self, ring: usize) -> Vec<usize> {
        self.rings[ring].iter().copied().filter(|device| !self.devices[*device].is_away).collect()
    }

    /// Whether a fault at this place leaves k others without one.
    fn may_fail(&self, place: usize) -> bool {
        self.may_all_fail(&[place])
    }

    fn step(&mut self) {
        self.clock += 1;
        let place = self.chance.below(self.places());
        let (at, device) = (self.at(place), self.chance.below(self.devices.len()));
        // Others may take themselves for places, too.
        let mostly = if self.chance.percent(75) { at } else { device };
        match self.temper.choose(&mut self.chance) {
            Event::Write => self.write(false),
            Event::Delete => self.write(true),
            Event::Pack => self.pack(mostly),
            Event::Adopt => self.adopt_again(mostly),
            Event::Retire => self.retire(mostly),
            Event::Sync => self.sync(mostly),
            Event::Leave if !self.is_place(device, self.newest_ring()) || self.may_fail(self.place_of(device)) => {
                self.devices[device].is_away = true;
            }
            // Who is no place any more may be away for long.
            Event::Return if self.is_place(device, self.newest_ring()) || self.chance.percent(10) => {
                self.devices[device].is_away = false;
            }
            Event::Replace if self.may_fail(place) => {
                self.empty(at);
                self.faulted.insert(place);
                self.seen.replaced += 1;
            }
            Event::Stop => self.stop(),
            Event::Forget => self.forget(),
            Event::Post => self.post(),
            Event::ChangeRing => self.change_ring(),
            Event::LearnRing => self.devices[device].ring = self.newest_ring(),
            Event::HandBack => self.hand_back(device),
            Event::Deliver => (0..1 + self.chance.below(self.temper.at_once)).for_each(|_| self.deliver()),
            Event::Leave | Event::Return | Event::Replace => {}
        }
    }

    /// Another device, which has nothing.
    fn empty(&mut self, device: usize) {
        self.trace(|| format!("{device} is replaced"));
        let Device { ring, .. } = self.devices[device];
        self.devices[device] = Device { ring, ..Device::default() };
    }

    fn stop(&mut self) {
        let running: Vec<u64> = self.packers.keys().copied().collect();
        if let Some(packer) = self.chance.pick(&running) {
            if let Some(Packer { pack, work: Work::Adopting { .. }, .. }) = self.packers.remove(&packer) {
                let having = |device: &&Device| device.holdings.references(pack).next().is_some();
                let having = self.devices.iter().filter(having).count();
                self.seen.partly_adopted += usize::from(having > 0 && having < self.form.holders);
            }
            self.seen.stopped += 1;
        }
    }

    fn version(&mut self) -> Version {
        self.next += 1;
        Version { timestamp: self.clock, generation: self.next }
    }

    fn apply(&mut self, device: usize, change: &Change) {
        self.trace(|| format!("{device}: {change:?}"));
        let Device { holdings, posts, within, .. } = &mut self.devices[device];
        holdings.apply(change);
        let has = |digest: &Digest, of: Version| holdings.object(digest).is_some_and(|object| object.version == of);
        posts.retain(|digest, post| has(digest, post.of));
        let is_copy = |digest: &Digest| holdings.object(digest).is_some_and(|object| object.fragment);
        within.retain(|digest, post| has(digest, post.of) && is_copy(digest));
    }

    /// When the metadata were posted that a device's copy has in its own bytes; 0 for those of the write itself.
    fn within_copy(&self, device: usize, digest: &Digest) -> u64 {
        self.devices[device].within.get(digest).map_or(0, |post| post.at)
    }

    /// The same of a member of a pack.
    fn within_pack(&self, pack: Pack, digest: Digest) -> u64 {
        self.within.get(&(pack, digest)).copied().unwrap_or(0)
    }

    /// When the newest metadata were posted that a device has of an object, beside it or in its bytes.
    fn newest_post(&self, device: usize, digest: &Digest) -> u64 {
        let Device { holdings, posts, .. } = &self.devices[device];
        let own = match holdings.object(digest).and_then(|object| object.reference) {
            Some(pack) => self.within_pack(pack, *digest),
            None => self.within_copy(device, digest),
        };
        posts.get(digest).map_or(0, |post| post.at).max(own)
    }

    /// Packs to which places without a fault refer.
    fn needed(&self) -> BTreeSet<Pack> {
        let whole = (0..self.places()).filter(|place| !self.faulted.contains(place)).map(|place| self.at(place));
        let objects = whole.flat_map(|device| self.devices[device].holdings.objects());
        let newest = objects.filter(|(digest, object)| self.truth.get(digest) == Some(&object.version));
        newest.filter_map(|(_, object)| object.reference).collect()
    }

    /// Packs that sync brings to a place that lacks them: any of them may be adopted yet.
    fn known(&self) -> BTreeSet<Pack> {
        let devices = (0..self.places()).map(|place| &self.devices[self.at(place)]).collect::<Vec<_>>();
        let packs = || devices.iter().flat_map(|device| device.holdings.packs());
        let deleted: BTreeSet<Pack> = packs().filter(|(_, own)| own.deleted).map(|(pack, _)| pack).collect();
        let stored = packs().filter(|(pack, own)| own.fragment && !deleted.contains(pack));
        stored.map(|(pack, _)| pack).collect()
    }

    /// What a place lacks of these packs, and of objects, which may be in packs that are known. Who goes by an old ring
    /// packs, proves and hands back among the devices of that one, all of them: what the place's other device has counts
    /// until it has handed it back.
    fn lacks(&self, place: usize, packs: &BTreeSet<Pack>, known: &BTreeSet<Pack>) -> Option<String> {
        let (device, other) = (self.at(place), self.other(self.at(place)));
        let lacked = packs.iter().find(|pack| !self.is_sound(device, **pack) && !self.is_sound(other, **pack));
        let mut objects = self.truth.keys().filter(|_| place < self.form.holders);
        let lacks = |digest: &Digest| {
            let lacked = self.lacks_object(device, digest, known);
            lacked.filter(|_| self.lacks_object(other, digest, known).is_some())
        };
        objects.find_map(lacks).or_else(|| lacked.map(|pack| format!("a fragment of {pack:?}")))
    }

    /// Whether the device at a place lacks nothing that the others know of.
    fn is_whole(&self, place: usize, known: &BTreeSet<Pack>) -> bool {
        let device = self.at(place);
        let mut objects = self.truth.keys().filter(|_| place < self.form.holders);
        let has_all = objects.all(|digest| self.lacks_object(device, digest, known).is_none());
        has_all && known.iter().all(|pack| self.is_sound(device, *pack))
    }

    /// Whether the device at a place refers to packs while no other place knows yet which device is here. To packers by an
    /// old ring it is no place: they may delete these packs, as for a device that comes back with what it had.
    fn may_be_left_behind(&self, place: usize) -> bool {
        let device = self.at(place);
        let mut others =
            (0..self.places()).filter(|other| *other != place).map(|other| self.devices[self.at(other)].ring);
        let refers = self.devices[device].holdings.objects().any(|(_, object)| object.reference.is_some());
        refers && others.all(|ring| self.rings[ring][place] != device)
    }

    /// What a device lacks of an object.
    fn lacks_object(&self, device: usize, digest: &Digest, known: &BTreeSet<Pack>) -> Option<String> {
        let (object, version) = (self.devices[device].holdings.object(digest), self.truth[digest]);
        let has = object.is_some_and(|object| {
            let is_there = |pack| known.contains(&pack) && self.is_sound(device, pack);
            let here = object.fragment || object.reference.is_some_and(is_there);
            object.version == version && (version.is_deletion() || here)
        });
        if !has {
            return Some(format!("{version:?} of {}: {object:?}", digest[0]));
        }
        let post = self.posted.get(digest).filter(|post| self.newest_post(device, digest) < post.at);
        post.map(|post| format!("{post:?} of {}: {object:?}", digest[0]))
    }

    fn check(&mut self) -> Result<(), String> {
        let left_behind: Vec<usize> = (0..self.places()).filter(|place| self.may_be_left_behind(*place)).collect();
        self.faulted.extend(left_behind);
        let (needed, known) = (self.needed(), self.known());
        for place in 0..self.places() {
            match self.lacks(place, &needed, &known) {
                Some(lacked) if !self.faulted.contains(&place) => {
                    return Err(format!(
                        "at {}: place {place}, which no fault has touched, lacks {lacked}",
                        self.clock
                    ));
                }
                None if self.is_whole(place, &known) && !self.may_be_left_behind(place) => {
                    self.faulted.remove(&place);
                }
                _ => {}
            }
        }
        for (number, device) in self.devices.iter().enumerate() {
            for (digest, object) in device.holdings.objects() {
                if self.truth.get(&digest).is_none_or(|newest| *newest < object.version) {
                    return Err(format!(
                        "at {}: device {number} has {object:?} of {}, which is gone",
                        self.clock, digest[0]
                    ));
                }
                let member = Member { digest, version: object.version };
                if object.reference.is_some_and(|pack| !self.contents[&pack].contains(&member)) {
                    return Err(format!("{object:?} of {} refers to a pack that does not have it", digest[0]));
                }
            }
        }
        Ok(())
    }

    fn settle_down(&mut self) -> Result<(), String> {
        for _ in 0..self.places() * self.places() * 4 {
            let place = self.chance.below(self.places());
            self.sync(self.at(place));
            let device = self.chance.below(self.devices.len());
            self.hand_back(device);
            self.deliver_all()?;
        }
        Ok(())
    }

    fn deliver_all(&mut self) -> Result<(), String> {
        self.check()?;
        while !self.messages.is_empty() {
            self.deliver();
            self.check()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.is_faultless = true;
        self.packers.clear();
        let ring = self.newest_ring();
        self.devices.iter_mut().for_each(|device| (device.is_away, device.ring) = (false, ring));
        for _ in 0..5 {
            self.settle_down()?;
            let places: Vec<usize> = self.rings[ring].clone();
            let known: BTreeSet<Pack> = places.iter().flat_map(|device| self.packs_of(*device)).collect();
            for pack in known {
                let holdings = || places.iter().map(|device| &self.devices[*device].holdings);
                let references: BTreeSet<Member> = holdings().flat_map(|here| here.references(pack)).collect();
                let is_retired = holdings().any(|here| here.own(&pack).retired);
                match (references.is_empty(), is_retired) {
                    (true, _) => self.retire_pack(ring, pack),
                    (false, true) => self.write_pack(ring, &[], Some(pack)),
                    (false, false) => self.adopt(ring, pack, None),
                }
                self.deliver_all()?;
            }
        }
        self.settle_down()?;
        let (needed, known) = (self.needed(), self.known());
        let is_broken = |place: &usize| self.faulted.contains(place) || !self.is_whole(*place, &known);
        if let Some(place) = (0..self.places()).find(is_broken) {
            return Err(format!("in the end place {place} lacks {:?}", self.lacks(place, &needed, &known)));
        }
        self.all_alike()
    }

    fn all_alike(&self) -> Result<(), String> {
        let located = |place: usize| -> Vec<Located> {
            let objects = self.devices[self.at(place)].holdings.objects();
            objects.map(|(digest, object)| (digest, object.version, object.reference)).collect()
        };
        let is_left_out = |digest: &Digest| {
            (0..self.form.holders).any(|place| self.devices[self.at(place)].within.contains_key(digest))
        };
        for place in 1..self.form.holders {
            let (first, other) = (located(0), located(place));
            // A copy with other bytes than those of other places stays out of packs.
            let differs = |(one, two): (&Located, &Located)| {
                (one.0, one.1) != (two.0, two.1) || (one.2 != two.2 && !is_left_out(&one.0))
            };
            if first.len() != other.len() || first.iter().zip(&other).any(differs) {
                return Err(format!("in the end places differ: {first:?} and {other:?}"));
            }
        }
        let others = (0..self.devices.len()).filter(|device| !self.is_place(*device, self.newest_ring()));
        for device in others {
            if let Some((digest, object)) = self.devices[device].holdings.objects().next() {
                return Err(format!("in the end device {device}, which is no place, has {object:?} of {}", digest[0]));
            }
        }
        let needed = self.needed();
        let places = (0..self.places()).map(|place| &self.devices[self.at(place)]);
        let left = places
            .flat_map(|device| device.holdings.packs())
            .find(|(pack, own)| own.fragment && (own.retired || !needed.contains(pack)));
        left.map_or(Ok(()), |(pack, own)| Err(format!("in the end {pack:?} is left: {own:?}")))
    }
}
