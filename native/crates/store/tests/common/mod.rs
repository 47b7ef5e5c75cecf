//! A workload of everything that a store does, and a model that knows what it must come to.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod crashing;
pub mod fragments;
pub mod packs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use swiftlet_store::disk::SimulatedDisk;
use swiftlet_store::merge::{self, State};
use swiftlet_store::model::{EntryKind, Footer, Info, Key, PostMeta, PutMeta, Timestamp};
use swiftlet_store::{Config, Error, Result, Store};

/// Small volumes and no threads: what happens is a function of the seed.
pub fn config() -> Config {
    Config { volume_bytes: 48 * 1024, aggregate_below: 3000, threads: false, live_share: 0.6, ..Config::default() }
}

/// A generator of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

pub fn random(seed: u64) -> Random {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.below(2);
    random
}

pub fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
    Key { policy: (number % 2) as u16, partition: (number % 3) as u32, digest }
}

/// Bytes that tell which version they are of.
pub fn content(timestamp: Timestamp, size: u64) -> Vec<u8> {
    let mut random = random(timestamp);
    (0..size).map(|_| random.below(256) as u8).collect()
}

pub fn put_meta(timestamp: Timestamp) -> PutMeta {
    PutMeta {
        name: b"/a/c/o".to_vec(),
        timestamp,
        content_type: format!("type/{timestamp}").into_bytes(),
        metadata: vec![(b"version".to_vec(), timestamp.to_string().into_bytes())],
        sysmeta: vec![(b"s".to_vec(), b"1".to_vec())],
        delete_at: 0,
    }
}

pub fn footer(data: &[u8]) -> Footer {
    Footer { size: data.len() as u64, etag: b"etag".to_vec(), xxh3: swiftlet_hash::xxh3_64(data) }
}

pub fn post_meta(timestamp: Timestamp, typed: Option<Timestamp>) -> PostMeta {
    PostMeta {
        timestamp,
        metadata: vec![(b"posted".to_vec(), timestamp.to_string().into_bytes())],
        content_type: typed.map(|typed| format!("type/{typed}").into_bytes()),
        content_type_timestamp: typed.unwrap_or(0),
        delete_at: 0,
    }
}

/// One thing that is asked of an object.
#[derive(Clone, Debug)]
pub enum Op {
    Put { timestamp: Timestamp, size: u64 },
    Post { timestamp: Timestamp, typed: Option<Timestamp> },
    Delete { timestamp: Timestamp },
    Remove,
    Reclaim { before: Timestamp },
}

/// What is held of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    pub version: Option<(Timestamp, Option<u64>)>,
    pub post: Option<PostMeta>,
}

impl Object {
    fn state(&self) -> State {
        State {
            newest: self.version.map(|(timestamp, size)| {
                (if size.is_some() { EntryKind::Data } else { EntryKind::Tombstone }, timestamp)
            }),
            post: self.post.as_ref().map(|post| (post.timestamp, post.content_type_timestamp)),
        }
    }

    /// What comes of an operation.
    pub fn after(&self, op: &Op) -> Self {
        let mut next = self.clone();
        let newer = |post: &PostMeta, timestamp| post.timestamp > timestamp;
        match *op {
            Op::Put { timestamp, size } => {
                if merge::check_put(&self.state(), timestamp) == Ok(true) {
                    next.version = Some((timestamp, Some(size)));
                    next.post = next.post.filter(|post| newer(post, timestamp));
                }
            }
            Op::Delete { timestamp } => {
                if merge::check_delete(&self.state(), timestamp) == Ok(true) {
                    next.version = Some((timestamp, None));
                    next.post = next.post.filter(|post| newer(post, timestamp));
                }
            }
            Op::Post { timestamp, typed } => {
                if let Some((data, Some(_))) = self.version {
                    let merged = merge::merge_post(data, self.post.clone(), post_meta(timestamp, typed));
                    next.post = merged.store.or(next.post);
                }
            }
            Op::Remove => next = Self::default(),
            Op::Reclaim { before } => {
                let newest = self.version.map(|version| version.0).max(self.post.as_ref().map(|post| post.timestamp));
                if matches!(self.version, Some((_, None))) && newest < Some(before) {
                    next = Self::default();
                }
            }
        }
        next
    }

    /// What a reader sees.
    pub fn seen(&self) -> Seen {
        match self.version {
            Some((timestamp, Some(size))) => {
                let data = content(timestamp, size);
                let info = merge::info_of(put_meta(timestamp), footer(&data), self.post.clone());
                Ok((info, data))
            }
            Some((timestamp, None)) => Err(Some(timestamp)),
            None => Err(None),
        }
    }
}

/// An object with its bytes, or its tombstone.
pub type Seen = std::result::Result<(Info, Vec<u8>), Option<Timestamp>>;

/// What a reader of the store sees.
pub fn seen(store: &Store, key: &Key) -> Result<Seen> {
    match store.get(key) {
        Ok(object) => {
            let data = object.read(0, object.info().size)?;
            Ok(Ok((object.info().clone(), data)))
        }
        Err(Error::NotFound(tombstone)) => Ok(Err(tombstone)),
        Err(error) => Err(error),
    }
}

pub const KEYS: u64 = 7;

/// What may be held of each object: one thing, or, with operations under way at a crash, several.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub possible: BTreeMap<u64, Vec<Object>>,
}

impl Model {
    pub fn current(&self, number: u64) -> Object {
        self.possible.get(&number).and_then(|objects| objects.last()).cloned().unwrap_or_default()
    }

    /// Acknowledged: it is so, and nothing else.
    pub fn acknowledge(&mut self, number: u64, op: &Op) {
        let next = self.current(number).after(op);
        self.possible.insert(number, vec![next]);
    }

    /// Under way: it may be so, or as before.
    pub fn doubt(&mut self, number: u64, op: &Op) {
        let current = self.current(number);
        let objects = self.possible.entry(number).or_insert_with(|| vec![Object::default()]);
        objects.push(current.after(op));
    }
}

impl crashing::Model for Model {
    fn check(&mut self, store: &Store, what: &str) {
        for number in 0..KEYS {
            let found = seen(store, &key(number)).unwrap_or_else(|error| panic!("{what}: object {number}: {error}"));
            let objects = self.possible.entry(number).or_insert_with(|| vec![Object::default()]);
            // The entry tells apart what a reader can't: a POST that is held beside a tombstone.
            let matching: Vec<Object> = objects.iter().filter(|object| object.seen() == found).cloned().collect();
            let Some(last) = matching.last().cloned() else {
                let found = found.map(|(info, data)| (info, data.len()));
                panic!("{what}: object {number} is {found:?}, not one of {objects:?}");
            };
            *objects = vec![last];
        }
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
    fn op(&mut self) -> Op {
        self.clock += 10;
        // Some come late.
        let timestamp = self.clock - if self.random.below(4) == 0 { self.random.below(60) } else { 0 };
        match self.random.below(12) {
            0..=5 => Op::Put { timestamp, size: self.random.below(5) * self.random.below(1200) },
            6 | 7 => {
                Op::Post { timestamp, typed: (self.random.below(2) == 0).then(|| timestamp - self.random.below(30)) }
            }
            8 | 9 => Op::Delete { timestamp },
            10 => Op::Remove,
            _ => Op::Reclaim { before: self.clock - self.random.below(100) },
        }
    }

    /// Change the model as the outcome of an operation says.
    fn apply_outcome(&mut self, number: u64, op: &Op, outcome: &Result<bool>) {
        match outcome {
            Ok(_) | Err(Error::NotFound(_) | Error::Superseded(_)) => self.model.acknowledge(number, op),
            Err(Error::DiskFull(_)) => {}
            Err(_) => self.model.doubt(number, op),
        }
    }

    fn apply(&mut self, store: &Store, number: u64, op: &Op) -> Result<bool> {
        let key = key(number);
        match *op {
            Op::Put { timestamp, size } => {
                let data = content(timestamp, size);
                let mut writer = store.create(key, None, None)?;
                for piece in data.chunks(1024) {
                    writer.write(piece)?;
                }
                writer.commit(&put_meta(timestamp), &footer(&data))
            }
            Op::Post { timestamp, typed } => store.post(key, post_meta(timestamp, typed)),
            Op::Delete { timestamp } => store.delete(key, timestamp, b"/a/c/o".to_vec()),
            Op::Remove => {
                let id = (key.policy, key.partition);
                let entries = store.entries(id, key.suffix())?;
                match entries.iter().find(|entry| entry.digest == key.digest) {
                    Some(entry) => store.remove(key, *entry),
                    None => Ok(false),
                }
            }
            Op::Reclaim { before } => {
                // It goes over all objects: the outcome for the others is applied here.
                let outcome = store.reclaim(before);
                for other in (0..KEYS).filter(|other| *other != number) {
                    self.apply_outcome(other, op, &outcome.clone().map(|_| true));
                }
                outcome.map(|_| true)
            }
        }
    }

    /// Several at once, in one batch or more.
    fn burst(&mut self, store: &Store) {
        let answers: Answers = Arc::default();
        let mut asked = 0;
        for _ in 0..1 + self.random.below(6) {
            let (number, op) = (self.random.below(KEYS), self.op());
            let answers = Arc::clone(&answers);
            let kept = op.clone();
            let done: swiftlet_store::Done = Box::new(move |outcome| {
                answers.lock().expect("nobody panicked").push((number, kept, outcome));
            });
            let key = key(number);
            match op {
                Op::Put { timestamp, size } => {
                    let data = content(timestamp, size);
                    store.submit_put(key, &put_meta(timestamp), &footer(&data), data, done);
                }
                Op::Post { timestamp, typed } => store.submit_post(key, post_meta(timestamp, typed), done),
                Op::Delete { timestamp } => store.submit_delete(key, timestamp, b"/a/c/o".to_vec(), done),
                Op::Remove | Op::Reclaim { .. } => continue,
            }
            asked += 1;
        }
        while store.commit_pending() {}
        let answers = std::mem::take(&mut *answers.lock().expect("nobody panicked"));
        assert_eq!(answers.len(), asked, "everyone is answered");
        for (number, op, outcome) in answers {
            self.apply_outcome(number, &op, &outcome);
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
    fn work(&mut self, store: &Store, disk: &SimulatedDisk, steps: u64, _what: &str) {
        for _ in 0..steps {
            if disk.crashed() || store.partitions().is_err() {
                return;
            }
            match self.random.below(20) {
                0 => drop(store.checkpoint()),
                1 | 2 => drop(store.compact()),
                3 => drop(store.punch()),
                4 => drop(store.audit(10_000)),
                5..=9 => self.burst(store),
                _ => {
                    let (number, op) = (self.random.below(KEYS), self.op());
                    let outcome = self.apply(store, number, &op);
                    self.apply_outcome(number, &op, &outcome);
                }
            }
        }
    }
}
