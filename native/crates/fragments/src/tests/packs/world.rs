//! The places of a partition, what goes between them, and what must hold.
//!
//! - A place that no fault has touched, or that was made whole since, has a sound fragment of each pack that anybody
//!   needs. If it has small objects, it has the newest version of each: a fragment, or a copy, or a reference to a pack.
//!   So any k of these places are enough to read everything.
//! - No place has an object that was deleted everywhere and forgotten, and no reference leads to another version.
//! - In the end all places have the same, all packs are needed, and none is retired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use swiftlet_erasure::Scheme;

use super::Rules;
use crate::packs::{Adoption, Answer, Change, Digest, Holdings, Member, Pack, Request, Retirement, Step};
use crate::tests::simulation::chance::Chance;
use crate::{Terms, Version};

const STEPS: usize = 400;

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
    Deliver,
}

const EVENTS: [(Event, usize); 12] = [
    (Event::Write, 4),
    (Event::Delete, 2),
    (Event::Pack, 3),
    (Event::Adopt, 3),
    (Event::Retire, 4),
    (Event::Sync, 12),
    (Event::Leave, 2),
    (Event::Return, 5),
    (Event::Replace, 3),
    (Event::Stop, 1),
    (Event::Forget, 2),
    (Event::Deliver, 60),
];

/// What one seed's world is like.
struct Temper([usize; EVENTS.len()]);

impl Temper {
    fn new(chance: &mut Chance) -> Self {
        Self(EVENTS.map(|(_, weight)| weight * [0, 1, 2, 2, 2, 4, 8][chance.below(7)] + 1))
    }

    fn choose(&self, chance: &mut Chance) -> Event {
        let mut at = chance.below(self.0.iter().sum());
        for (weight, (event, _)) in self.0.iter().zip(EVENTS) {
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

#[derive(Clone, Default)]
struct Device {
    holdings: Holdings,
    rotten: BTreeSet<Pack>,
    is_away: bool,
}

#[derive(Clone)]
enum Message {
    /// To a place, for a packer's pass.
    Ask {
        packer: Option<u64>,
        pass: usize,
        place: usize,
        request: Request,
    },
    Reply {
        packer: u64,
        pass: usize,
        place: usize,
        request: Request,
        answer: Answer,
    },
}

enum Packer {
    /// With the pack that is to be retired afterwards.
    Adopting {
        pack: Pack,
        adoption: Adoption,
        proofs: usize,
        then: Option<Pack>,
    },
    Retiring {
        pack: Pack,
        retirement: Retirement,
        unused: usize,
    },
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
    devices: Vec<Device>,
    contents: BTreeMap<Pack, Arc<[Member]>>,
    truth: BTreeMap<Digest, Version>,
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
            devices: vec![Device::default(); terms.places()],
            contents: BTreeMap::new(),
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
        self.devices.len()
    }

    fn present(&self) -> Vec<usize> {
        (0..self.places()).filter(|place| !self.devices[*place].is_away).collect()
    }

    /// Whether a fault at this place leaves k others without one.
    fn may_fail(&self, place: usize) -> bool {
        let mut failing = self.faulted.clone();
        failing.extend((0..self.places()).filter(|place| self.devices[*place].is_away));
        failing.insert(place);
        self.terms.places() - failing.len() >= self.terms.data()
    }

    fn step(&mut self) {
        self.clock += 1;
        let place = self.chance.below(self.places());
        match self.temper.choose(&mut self.chance) {
            Event::Write => self.write(false),
            Event::Delete => self.write(true),
            Event::Pack if !self.devices[place].is_away => self.pack(place),
            Event::Adopt => self.adopt_again(place),
            Event::Retire => self.retire(place),
            Event::Sync => self.sync(place),
            Event::Leave if self.may_fail(place) => self.devices[place].is_away = true,
            Event::Return => self.devices[place].is_away = false,
            Event::Replace if self.may_fail(place) => {
                self.trace(|| format!("{place} is replaced"));
                self.devices[place] = Device::default();
                self.faulted.insert(place);
                self.seen.replaced += 1;
            }
            Event::Stop => {
                let running: Vec<u64> = self.packers.keys().copied().collect();
                if let Some(packer) = self.chance.pick(&running) {
                    if let Some(Packer::Adopting { pack, .. }) = self.packers.remove(&packer) {
                        let having = |device: &&Device| device.holdings.references(pack).next().is_some();
                        let having = self.devices.iter().filter(having).count();
                        self.seen.partly_adopted += usize::from(having > 0 && having < self.form.holders);
                    }
                    self.seen.stopped += 1;
                }
            }
            Event::Forget => self.forget(),
            Event::Deliver => (0..1 + self.chance.below(4)).for_each(|_| self.deliver()),
            Event::Pack | Event::Leave | Event::Replace => {}
        }
    }

    fn version(&mut self) -> Version {
        self.next += 1;
        Version { timestamp: self.clock, generation: self.next }
    }

    fn apply(&mut self, place: usize, change: &Change) {
        self.trace(|| format!("{place}: {change:?}"));
        self.devices[place].holdings.apply(change);
    }

    /// Which of the first places a write reaches: a quorum at least, and all that no fault may be added to.
    fn reached(&mut self, holders: usize, quorum: usize) -> Option<Vec<usize>> {
        let mut reached: Vec<usize> = self.present().into_iter().filter(|place| *place < holders).collect();
        if !self.is_faultless && self.chance.percent(30) {
            let place = self.chance.below(self.places());
            if self.may_fail(place) || self.faulted.contains(&place) {
                reached.retain(|other| *other != place);
            }
        }
        (reached.len() >= quorum).then_some(reached)
    }

    fn write(&mut self, deletes: bool) {
        let digest = [self.chance.below(self.objects) as u8; 16];
        let mut version = self.version();
        if deletes {
            if !self.truth.contains_key(&digest) {
                return;
            }
            version = Version::deletion(version.timestamp);
        }
        let Some(reached) = self.reached(self.form.holders, self.form.quorum) else { return };
        self.truth.insert(digest, version);
        for place in 0..self.form.holders {
            if reached.contains(&place) {
                self.apply(place, &Change::Settled(Member { digest, version }));
            } else {
                self.faulted.insert(place);
            }
        }
    }

    /// A deletion that all places have is forgotten by all. What sync has on its way is that old in no case.
    fn forget(&mut self) {
        let digest = [self.chance.below(self.objects) as u8; 16];
        let is_everywhere = self.devices[..self.form.holders]
            .iter()
            .all(|device| device.holdings.object(&digest).is_some_and(|object| object.version.is_deletion()));
        let of_sync = |message: &Message| match message {
            Message::Ask { request: Request::Learn { member, .. }, .. } => member.digest == digest,
            _ => false,
        };
        if is_everywhere && !self.messages.iter().any(of_sync) {
            self.truth.remove(&digest);
            (0..self.places()).for_each(|place| self.apply(place, &Change::Forgotten(digest)));
            self.seen.forgotten += 1;
        }
    }

    fn having_fragment(&self, member: Member, except: usize) -> usize {
        let has = |place: &usize| {
            let object = self.devices[*place].holdings.object(&member.digest);
            *place != except && object.is_some_and(|object| object.version == member.version && object.fragment)
        };
        self.present().iter().filter(|place| has(place)).count()
    }

    fn having_pack(&self, pack: Pack, except: usize) -> usize {
        let sound = |place: &usize| *place != except && self.is_sound(*place, pack);
        self.present().iter().filter(|place| sound(place)).count()
    }

    fn is_sound(&self, place: usize, pack: Pack) -> bool {
        self.devices[place].holdings.own(&pack).fragment && !self.devices[place].rotten.contains(&pack)
    }

    fn is_readable(&self, member: Member) -> bool {
        let everybody = usize::MAX;
        let packed = self.present().into_iter().filter_map(|place| {
            let object = self.devices[place].holdings.object(&member.digest)?;
            object.reference.filter(|_| object.version == member.version)
        });
        self.having_fragment(member, everybody) >= self.form.enough
            || packed.into_iter().any(|pack| self.having_pack(pack, everybody) >= self.terms.data())
    }

    /// Gather objects that this place has, or all that refer to one of its packs, and write them as a new pack.
    fn pack(&mut self, place: usize) {
        let packs: Vec<Pack> = self.packs_of(place);
        let old = if self.chance.percent(50) { self.chance.pick(&packs) } else { None };
        let mut members: BTreeSet<Member> = BTreeSet::new();
        if let Some(old) = old {
            self.present().iter().for_each(|place| members.extend(self.devices[*place].holdings.references(old)));
        }
        for (digest, object) in self.devices[place].holdings.objects() {
            if object.fragment && self.chance.percent(60) {
                members.insert(Member { digest, version: object.version });
            }
        }
        self.write_pack(&members, old);
    }

    fn packs_of(&self, place: usize) -> Vec<Pack> {
        let packs = self.devices[place].holdings.packs();
        packs.filter(|(_, own)| own.fragment).map(|(pack, _)| pack).collect()
    }

    fn write_pack(&mut self, members: &BTreeSet<Member>, old: Option<Pack>) {
        // Of two versions of an object, which places that have missed a write have, a pack has the newer one.
        let newest: BTreeMap<Digest, Member> = members.iter().map(|member| (member.digest, *member)).collect();
        let members: Arc<[Member]> = newest.into_values().filter(|member| self.is_readable(*member)).collect();
        let reached = self.reached(self.terms.places(), self.terms.quorum());
        let Some(reached) = reached.filter(|_| !members.is_empty()) else { return };
        let version = self.version();
        let pack = Pack { version, digest: [version.generation as u8; 16] };
        self.trace(|| format!("pack {pack:?} has {members:?}"));
        self.contents.insert(pack, members);
        self.seen.packs += 1;
        self.seen.repacked += usize::from(old.is_some());
        for place in reached {
            self.apply(place, &Change::Stored { pack, retired: false });
            if !self.is_faultless && self.chance.percent(2) && self.may_fail(place) {
                self.devices[place].rotten.insert(pack);
                self.seen.rotten += 1;
            }
        }
        if self.is_faultless || !self.chance.percent(10) {
            self.adopt(pack, old);
        }
    }

    fn adopt_again(&mut self, place: usize) {
        let packs = self.packs_of(place);
        if let Some(pack) = self.chance.pick(&packs).filter(|pack| !self.devices[place].holdings.own(pack).retired) {
            self.adopt(pack, None);
        }
    }

    fn adopt(&mut self, pack: Pack, then: Option<Pack>) {
        let packer = Packer::Adopting { pack, adoption: Adoption::new(self.terms, self.form.holders), proofs: 0, then };
        self.begin(packer, &Request::Prove(pack));
    }

    fn retire(&mut self, place: usize) {
        let packs = self.packs_of(place);
        if let Some(pack) = self.chance.pick(&packs) {
            let is_used = self.devices[place].holdings.references(pack).next().is_some();
            if !is_used || self.chance.percent(10) {
                self.retire_pack(pack);
            }
        }
    }

    fn retire_pack(&mut self, pack: Pack) {
        let packer = Packer::Retiring { pack, retirement: Retirement::new(self.terms), unused: 0 };
        self.begin(packer, &Request::Retire(pack));
    }

    fn begin(&mut self, packer: Packer, request: &Request) {
        self.next += 1;
        self.packers.insert(self.next, packer);
        self.ask_all(self.next, 0, request);
    }

    fn ask_all(&mut self, packer: u64, pass: usize, request: &Request) {
        self.ask_first(self.places(), packer, pass, request);
    }

    fn ask_first(&mut self, places: usize, packer: u64, pass: usize, request: &Request) {
        for place in 0..places {
            self.messages.push(Message::Ask { packer: Some(packer), pass, place, request: request.clone() });
        }
    }

    fn deliver(&mut self) {
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
            Message::Ask { packer, pass, place, request } => {
                if let Some(answer) = self.take(place, &request)
                    && let Some(packer) = packer
                {
                    self.messages.push(Message::Reply { packer, pass, place, request, answer });
                }
            }
            Message::Reply { packer, pass, place, request, answer } => {
                self.reply(packer, pass, place, &request, answer)
            }
        }
    }

    fn take(&mut self, place: usize, request: &Request) -> Option<Answer> {
        if self.devices[place].is_away {
            return None;
        }
        if let Request::Prove(pack) = request
            && self.rules.is_read_back
            && self.devices[place].rotten.remove(pack)
        {
            self.apply(place, &Change::Damaged(*pack));
        }
        let (change, answer) = (self.rules.answer)(&self.devices[place].holdings, request, true);
        if let Some(change) = change {
            match change {
                Change::Deleted(_) => self.seen.deleted += 1,
                Change::Adopted { .. } => self.seen.adopted += 1,
                Change::Learned { .. } => self.seen.learned += 1,
                _ => {}
            }
            self.apply(place, &change);
        }
        Some(answer)
    }

    fn reply(&mut self, id: u64, pass: usize, place: usize, request: &Request, answer: Answer) {
        let (rules, places) = (self.rules, self.places());
        let Some(packer) = self.packers.get_mut(&id) else { return };
        let (pack, step) = match (packer, request) {
            (Packer::Adopting { pack, adoption, proofs, .. }, Request::Prove(_)) => {
                let step = adoption.proved(place, answer);
                *proofs += usize::from(answer == Answer::Done);
                let enough = (rules.proofs)(places);
                (*pack, if enough < places && *proofs == enough { Step::Adopt } else { step })
            }
            (Packer::Adopting { pack, adoption, .. }, _) => (*pack, adoption.adopted(place, answer)),
            (Packer::Retiring { pack, retirement, unused }, Request::Retire(_)) => {
                let step = retirement.retired(pass, place, answer);
                *unused += usize::from(matches!(answer, Answer::Retired { references: 0, .. }));
                let enough = (rules.unused)(places);
                let is_enough = enough < places && *unused >= enough;
                (*pack, if is_enough { Step::Delete } else { step })
            }
            (Packer::Retiring { pack, retirement, .. }, _) => (*pack, retirement.deleted(place, answer)),
        };
        self.go_on(id, pack, step);
    }

    fn go_on(&mut self, id: u64, pack: Pack, step: Step) {
        match step {
            Step::Wait => {}
            Step::Adopt => {
                let members = Arc::clone(&self.contents[&pack]);
                self.ask_first(self.form.holders, id, 0, &Request::Adopt { pack, members });
            }
            Step::RetireAgain => {
                let Some(Packer::Retiring { retirement, .. }) = self.packers.get(&id) else { return };
                let pass = retirement.pass();
                self.ask_all(id, pass, &Request::Retire(pack));
            }
            Step::Delete => self.ask_all(id, 0, &Request::Delete(pack)),
            Step::Done => {
                if let Some(Packer::Adopting { then: Some(old), .. }) = self.packers.remove(&id) {
                    self.retire_pack(old);
                }
            }
            Step::GiveUp => {
                self.seen.refused += 1;
                self.packers.remove(&id);
            }
        }
    }

    /// A place compares itself with another one, and takes what it lacks.
    fn sync(&mut self, place: usize) {
        let others: Vec<usize> = self.present().into_iter().filter(|other| *other != place).collect();
        let Some(other) = self.chance.pick(&others).filter(|_| !self.devices[place].is_away) else { return };
        let theirs = self.devices[other].holdings.clone();
        for (pack, own) in theirs.packs() {
            let here = self.devices[place].holdings.own(&pack);
            if own.deleted && !here.deleted {
                self.apply(place, &Change::Deleted(pack));
            } else if own.fragment
                && !here.fragment
                && !here.deleted
                && self.having_pack(pack, place) >= self.terms.data()
            {
                let is_retired = |other: &usize| self.devices[*other].holdings.own(&pack).retired;
                let retired = others.iter().any(is_retired);
                self.apply(place, &Change::Stored { pack, retired });
            }
        }
        if place >= self.form.holders {
            return;
        }
        for (digest, object) in theirs.objects() {
            let member = Member { digest, version: object.version };
            let here = self.devices[place].holdings.object(&digest).copied();
            let is_here = here.is_some_and(|here| here.version >= object.version);
            if is_here {
                continue;
            }
            let is_made = self.having_fragment(member, place) >= self.form.enough;
            match object.reference {
                _ if object.version.is_deletion() || (is_made && self.chance.percent(50)) => {
                    self.apply(place, &Change::Settled(member));
                }
                Some(pack) => {
                    let request = Request::Learn { pack, member };
                    self.messages.push(Message::Ask { packer: None, pass: 0, place, request });
                }
                None if is_made => self.apply(place, &Change::Settled(member)),
                None => {}
            }
        }
    }

    fn needed(&self) -> BTreeSet<Pack> {
        let objects = self.devices.iter().flat_map(|device| device.holdings.objects());
        let newest = objects.filter(|(digest, object)| self.truth.get(digest) == Some(&object.version));
        newest.filter_map(|(_, object)| object.reference).collect()
    }

    /// Packs that sync brings to a place that lacks them: any of them may be adopted yet.
    fn known(&self) -> BTreeSet<Pack> {
        let packs = || self.devices.iter().flat_map(|device| device.holdings.packs());
        let deleted: BTreeSet<Pack> = packs().filter(|(_, own)| own.deleted).map(|(pack, _)| pack).collect();
        let stored = packs().filter(|(pack, own)| own.fragment && !deleted.contains(pack));
        stored.map(|(pack, _)| pack).collect()
    }

    /// What the place lacks of these packs, and of objects.
    fn lacks(&self, place: usize, packs: &BTreeSet<Pack>) -> Option<String> {
        let holdings = &self.devices[place].holdings;
        let held = self.truth.iter().filter(|_| place < self.form.holders);
        for (digest, version) in held {
            let has = holdings.object(digest).is_some_and(|object| {
                let here = object.fragment || object.reference.is_some_and(|pack| self.is_sound(place, pack));
                object.version == *version && (version.is_deletion() || here)
            });
            if !has {
                return Some(format!("{version:?} of {}: {:?}", digest[0], holdings.object(digest)));
            }
        }
        packs.iter().find(|pack| !self.is_sound(place, **pack)).map(|pack| format!("a fragment of {pack:?}"))
    }

    fn check(&mut self) -> Result<(), String> {
        let (needed, known) = (self.needed(), self.known());
        for place in 0..self.places() {
            match self.lacks(place, &needed) {
                Some(lacked) if !self.faulted.contains(&place) => {
                    return Err(format!(
                        "at {}: place {place}, which no fault has touched, lacks {lacked}",
                        self.clock
                    ));
                }
                None if self.lacks(place, &known).is_none() => {
                    self.faulted.remove(&place);
                }
                _ => {}
            }
            for (digest, object) in self.devices[place].holdings.objects() {
                if self.truth.get(&digest).is_none_or(|newest| *newest < object.version) {
                    return Err(format!(
                        "at {}: place {place} has {object:?} of {}, which is gone",
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
            self.sync(place);
            while !self.messages.is_empty() {
                self.deliver();
                self.check()?;
            }
            self.check()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.is_faultless = true;
        self.packers.clear();
        self.devices.iter_mut().for_each(|device| device.is_away = false);
        for _ in 0..5 {
            self.settle_down()?;
            let known: BTreeSet<Pack> = (0..self.places()).flat_map(|place| self.packs_of(place)).collect();
            for pack in known {
                let holdings = || self.devices.iter().map(|device| &device.holdings);
                let references: BTreeSet<Member> = holdings().flat_map(|here| here.references(pack)).collect();
                let is_retired = holdings().any(|here| here.own(&pack).retired);
                match (references.is_empty(), is_retired) {
                    (true, _) => self.retire_pack(pack),
                    (false, true) => self.write_pack(&references, Some(pack)),
                    (false, false) => self.adopt(pack, None),
                }
                while !self.messages.is_empty() {
                    self.deliver();
                    self.check()?;
                }
            }
        }
        self.settle_down()?;
        if let Some(place) = self.faulted.first() {
            return Err(format!("in the end place {place} lacks {:?}", self.lacks(*place, &self.needed())));
        }
        let first = &self.devices[0].holdings;
        for device in &self.devices[1..self.form.holders] {
            let other = &device.holdings;
            let located = |here: &Holdings| -> Vec<_> {
                here.objects().map(|(digest, object)| (digest, object.version, object.reference)).collect()
            };
            if located(first) != located(other) {
                return Err(format!("in the end places differ: {:?} and {:?}", located(first), located(other)));
            }
        }
        let needed = self.needed();
        let left = self
            .devices
            .iter()
            .flat_map(|device| device.holdings.packs())
            .find(|(pack, own)| own.fragment && (own.retired || !needed.contains(pack)));
        left.map_or(Ok(()), |(pack, own)| Err(format!("in the end {pack:?} is left: {own:?}")))
    }
}
