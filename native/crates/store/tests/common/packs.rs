//! A workload of everything that becomes of small objects and of references to packs, and a model that knows what a
//! device has to hold.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_store::disk::SimulatedDisk;
use swiftlet_store::merge::{self, State, check_delete, check_put, merge_post};
use swiftlet_store::model::{EntryKind, Info, Key, PostMeta, Timestamp};
use swiftlet_store::{Error, Result, Store};

use super::{Random, content, crashing, footer, post_meta, put_meta, random};

/// More than a block of a table has.
pub const KEYS: u64 = 90;
pub const ID: (u16, u32) = (0, 31);
/// Members of a pack have less room than this.
const APART: u64 = 1000;
const PACKS: u64 = 4;

pub fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&[number as u8, 31]).to_be_bytes();
    Key { policy: ID.0, partition: ID.1, digest }
}

/// Objects in the order of their digests.
pub fn sorted() -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..KEYS).collect();
    numbers.sort_unstable_by_key(|number| key(*number).digest);
    numbers
}

pub fn pack(number: u64) -> Pack {
    // The same version twice, so that digests decide, and digests that are not in the order of versions.
    let version = Version { timestamp: 5000 + number / 2, generation: 7 };
    Pack { version, digest: [(7 * number % 5) as u8 + 1; 16] }
}

/// Where a version is in a pack follows from both.
pub fn reference(number: u64, timestamp: Timestamp, pack: Pack) -> Reference {
    let rank = sorted().iter().position(|other| *other == number).expect("an object") as u64;
    let length = 40 + (timestamp * 7 + pack.version.timestamp + u64::from(pack.digest[0])) % (APART - 40);
    Reference { digest: key(number).digest, timestamp, offset: rank * APART, length: length as u32 }
}

/// The bytes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    Deleted,
    Copy(u64),
    In(Pack),
}

/// What is held of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    pub version: Option<(Timestamp, Bytes)>,
    pub post: Option<PostMeta>,
}

/// What a reader of the device is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Missing(Option<Timestamp>),
    Copy(Box<Info>, Vec<u8>),
    In(Pack, Reference, Option<PostMeta>),
}

pub fn seen(store: &Store, number: u64) -> Result<Seen> {
    let key = key(number);
    if let Some(found) = store.reference(&key)? {
        assert!(
            matches!(store.get(&key), Err(Error::Format(_))),
            "what is in a pack is no object that can be read here"
        );
        return Ok(Seen::In(found.pack, found.reference, found.posted));
    }
    match store.get(&key) {
        Ok(object) => Ok(Seen::Copy(Box::new(object.info().clone()), object.read(0, u64::MAX)?)),
        Err(Error::NotFound(tombstone)) => Ok(Seen::Missing(tombstone)),
        Err(error) => Err(error),
    }
}

/// One thing that is asked of the device.
#[derive(Clone, Debug)]
pub enum Op {
    Put(Timestamp, u64),
    Post(Timestamp, Option<Timestamp>),
    Delete(Timestamp),
    Remove,
    Reclaim(Timestamp),
    /// A reference to this version in a pack is offered.
    Adopt(Timestamp, Pack),
    Learn(Timestamp, Pack),
}

impl Object {
    fn state(&self) -> State {
        let kind = |bytes| if bytes == Bytes::Deleted { EntryKind::Tombstone } else { EntryKind::Data };
        State {
            newest: self.version.map(|(timestamp, bytes)| (kind(bytes), timestamp)),
            post: self.post.as_ref().map(|post| (post.timestamp, post.content_type_timestamp)),
        }
    }

    fn now(&mut self, timestamp: Timestamp, bytes: Bytes) {
        self.version = Some((timestamp, bytes));
        self.post = self.post.take().filter(|post| post.timestamp > timestamp);
    }

    pub fn after(&self, op: &Op) -> Self {
        let mut next = self.clone();
        match *op {
            Op::Put(timestamp, size) => {
                if check_put(&self.state(), timestamp) == Ok(true) {
                    next.now(timestamp, Bytes::Copy(size));
                }
            }
            Op::Delete(timestamp) => {
                if check_delete(&self.state(), timestamp) == Ok(true) {
                    next.now(timestamp, Bytes::Deleted);
                }
            }
            Op::Post(timestamp, typed) => {
                if let Some(data) = self.state().data() {
                    let merged = merge_post(data, self.post.clone(), post_meta(timestamp, typed));
                    next.post = merged.store.or(next.post);
                }
            }
            Op::Remove => next = Self::default(),
            Op::Reclaim(before) => {
                let newest = self.version.map(|version| version.0).max(self.post.as_ref().map(|post| post.timestamp));
                if self.state().tombstone().is_some() && newest < Some(before) {
                    next = Self::default();
                }
            }
            Op::Adopt(timestamp, pack) => match self.version {
                Some((held, Bytes::Copy(_))) if held == timestamp => next.now(timestamp, Bytes::In(pack)),
                Some((held, Bytes::In(other))) if held == timestamp && other < pack => {
                    next.now(timestamp, Bytes::In(pack));
                }
                _ => {}
            },
            Op::Learn(timestamp, pack) => {
                if self.version.is_none_or(|(held, _)| held < timestamp) {
                    next.now(timestamp, Bytes::In(pack));
                }
            }
        }
        next
    }

    pub fn seen(&self, number: u64) -> Seen {
        match self.version {
            None => Seen::Missing(None),
            Some((timestamp, Bytes::Deleted)) => Seen::Missing(Some(timestamp)),
            Some((timestamp, Bytes::Copy(size))) => {
                let data = content(timestamp, size);
                let info = merge::info_of(put_meta(timestamp), footer(&data), self.post.clone());
                Seen::Copy(Box::new(info), data)
            }
            Some((timestamp, Bytes::In(pack))) => Seen::In(pack, reference(number, timestamp, pack), self.post.clone()),
        }
    }
}

/// What may be held of each object: one thing, or, with operations under way at a crash, several.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub possible: BTreeMap<u64, Vec<Object>>,
    /// Objects of a table that was under way: all of it is durable, or nothing.
    together: BTreeSet<u64>,
    /// All that was ever held of each.
    pub history: BTreeMap<u64, Vec<Object>>,
}

impl Model {
    pub fn current(&self, number: u64) -> Object {
        self.possible.get(&number).and_then(|objects| objects.last()).cloned().unwrap_or_default()
    }

    fn note(&mut self, number: u64, object: &Object) {
        let history = self.history.entry(number).or_insert_with(|| vec![Object::default()]);
        if history.last() != Some(object) {
            history.push(object.clone());
        }
    }

    pub fn acknowledge(&mut self, number: u64, op: &Op) {
        let next = self.current(number).after(op);
        self.note(number, &next);
        self.possible.insert(number, vec![next]);
    }

    pub fn doubt(&mut self, number: u64, op: &Op) {
        let next = self.current(number).after(op);
        self.note(number, &next);
        if matches!(op, Op::Adopt(..) | Op::Learn(..)) && next != self.current(number) {
            self.together.insert(number);
        }
        self.possible.entry(number).or_insert_with(|| vec![Object::default()]).push(next);
    }

    /// References and bytes of each pack are counted.
    fn check_packs(&self, store: &Store, what: &str) {
        let mut expected: BTreeMap<Pack, (u64, u64)> = BTreeMap::new();
        for number in 0..KEYS {
            if let Some((timestamp, Bytes::In(pack))) = self.current(number).version {
                let counts = expected.entry(pack).or_default();
                let length = u64::from(reference(number, timestamp, pack).length);
                *counts = (counts.0 + 1, counts.1 + length);
            }
        }
        let found = store.packs(ID).expect("packs");
        let found: BTreeMap<Pack, (u64, u64)> =
            found.iter().map(|pack| (pack.pack, (pack.references, pack.bytes))).collect();
        assert_eq!(found, expected, "{what}");
    }
}

impl crashing::Model for Model {
    fn check(&mut self, store: &Store, what: &str) {
        let mut done = BTreeSet::new();
        for number in 0..KEYS {
            let found = seen(store, number).unwrap_or_else(|error| panic!("{what}: object {number}: {error}"));
            let objects = self.possible.entry(number).or_insert_with(|| vec![Object::default()]);
            let Some(at) = objects.iter().rposition(|object| object.seen(number) == found) else {
                panic!("{what}: object {number} is {found:?}, not one of {objects:?}");
            };
            if self.together.contains(&number) {
                done.insert(at > 0);
            }
            *objects = vec![objects[at].clone()];
        }
        assert!(done.len() <= 1, "{what}: a part of a table is durable");
        self.together.clear();
        self.check_packs(store, what);
        let problems = store.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(problems.is_empty(), "{what}: {problems:#?}");
        let recovery = store.recovery();
        assert_eq!((recovery.damaged, recovery.dangling), (0, 0), "{what}");
    }
}

/// Carries a workload out, and keeps the model in step.
pub struct Worker {
    pub random: Random,
    pub clock: Timestamp,
    pub model: Model,
}

type Answers = Arc<Mutex<Vec<(u64, Op, Result<bool>)>>>;

impl Worker {
    fn timestamp(&mut self) -> Timestamp {
        self.clock += 10;
        self.clock - if self.random.below(4) == 0 { self.random.below(60) } else { 0 }
    }

    fn op(&mut self) -> Op {
        let timestamp = self.timestamp();
        match self.random.below(14) {
            0..=7 => Op::Put(timestamp, self.random.below(3) * self.random.below(300)),
            8 => Op::Put(timestamp, 3500),
            9 | 10 => Op::Post(timestamp, (self.random.below(2) == 0).then(|| timestamp - self.random.below(30))),
            11 | 12 => Op::Delete(timestamp),
            _ => Op::Remove,
        }
    }

    fn outcome(&mut self, number: u64, op: &Op, outcome: &Result<bool>) {
        match outcome {
            Ok(_) | Err(Error::NotFound(_) | Error::Superseded(_)) => self.model.acknowledge(number, op),
            Err(Error::DiskFull(_)) => {}
            Err(_) => self.model.doubt(number, op),
        }
    }

    /// Many operations at once.
    fn burst(&mut self, store: &Store) {
        let answers: Answers = Arc::default();
        for _ in 0..1 + self.random.below(40) {
            let (number, op) = (self.random.below(KEYS), self.op());
            let (told, kept) = (Arc::clone(&answers), op.clone());
            let done: swiftlet_store::Done = Box::new(move |outcome| {
                told.lock().expect("nobody panicked").push((number, kept, outcome));
            });
            match op {
                Op::Put(timestamp, size) => {
                    let data = content(timestamp, size);
                    if size < 3000 {
                        store.submit_put(key(number), &put_meta(timestamp), &footer(&data), data, done);
                    } else {
                        done(store.create(key(number), None, None).and_then(|mut writer| {
                            writer.write(&data)?;
                            writer.commit(&put_meta(timestamp), &footer(&data))
                        }));
                    }
                }
                Op::Post(timestamp, typed) => store.submit_post(key(number), post_meta(timestamp, typed), done),
                Op::Delete(timestamp) => store.submit_delete(key(number), timestamp, b"/a/c/o".to_vec(), done),
                _ => {
                    // What was asked before is done first.
                    while store.commit_pending() {}
                    done(self.remove(store, number));
                }
            }
        }
        while store.commit_pending() {}
        let answers = std::mem::take(&mut *answers.lock().expect("nobody panicked"));
        for (number, op, outcome) in answers {
            self.outcome(number, &op, &outcome);
        }
    }

    fn remove(&self, store: &Store, number: u64) -> Result<bool> {
        let key = key(number);
        let entries = store.entries(ID, key.suffix())?;
        match entries.into_iter().find(|entry| entry.digest == key.digest) {
            Some(entry) => store.remove(key, entry),
            None => Ok(false),
        }
    }

    /// References to a pack are offered, most of them to what is here.
    fn refer(&mut self, store: &Store, what: &str) {
        let pack = pack(self.random.below(PACKS));
        let learns = self.random.below(4) == 0;
        let (share, mut offered) = (1 + self.random.below(10), Vec::new());
        for number in sorted() {
            if self.random.below(10) >= share {
                continue;
            }
            let timestamp = match self.model.current(number).version {
                Some((timestamp, _)) if self.random.below(8) > 0 => {
                    timestamp + u64::from(learns) * self.random.below(3)
                }
                _ => self.timestamp(),
            };
            offered.push((number, timestamp));
        }
        if offered.is_empty() {
            return;
        }
        let references = offered.iter().map(|(number, timestamp)| reference(*number, *timestamp, pack)).collect();
        let table = Table { pack, references };
        let hashes = store.suffixes(ID);
        let outcome = if learns { store.learn_references(ID, table) } else { store.adopt(ID, table) };
        let (mut changes, before) = (false, self.model.clone());
        for (number, timestamp) in offered {
            let op = if learns { Op::Learn(timestamp, pack) } else { Op::Adopt(timestamp, pack) };
            self.outcome(number, &op, &outcome);
            changes |= self.model.current(number) != before.current(number);
        }
        if let Ok(changed) = outcome {
            assert_eq!(changed, changes, "{what}");
            if !learns {
                assert_eq!(store.suffixes(ID), hashes, "{what}: set hashes change when objects are packed");
            }
        }
    }
}

impl crashing::Life for Worker {
    type Model = Model;

    fn begin(seed: u64) -> Self {
        Self { random: random(seed), clock: 1000, model: Model::default() }
    }

    fn model(&mut self) -> &mut Model {
        &mut self.model
    }

    /// Work until so many steps are done or the disk has crashed.
    fn work(&mut self, store: &Store, disk: &SimulatedDisk, steps: u64, what: &str) {
        for _ in 0..steps {
            if disk.crashed() || store.partitions().is_err() {
                return;
            }
            match self.random.below(20) {
                0 => drop(store.checkpoint()),
                1 | 2 => drop(store.compact()),
                3 => drop(store.punch()),
                4 => drop(store.audit(10_000)),
                5 => {
                    let op = Op::Reclaim(self.clock - self.random.below(100));
                    let Op::Reclaim(before) = op else { return };
                    let outcome = store.reclaim(before).map(|_| true);
                    (0..KEYS).for_each(|number| self.outcome(number, &op, &outcome));
                }
                6..=12 => self.burst(store),
                _ => self.refer(store, what),
            }
        }
    }
}
