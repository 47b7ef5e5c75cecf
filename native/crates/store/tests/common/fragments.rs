//! A workload of everything that is asked of fragments, and a model that knows what a device has to answer: the slots
//! of `swiftlet_fragments`, and the bytes of each version.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::request::{Answer, Request, answer};
use swiftlet_fragments::slot::{Change, Shown, Slot};
use swiftlet_fragments::sync::{self, Todo};
use swiftlet_fragments::{Accepted, Ballot, Device, Outcome, Version};
use swiftlet_store::disk::SimulatedDisk;
use swiftlet_store::merge::merge_post;
use swiftlet_store::model::{Key, PostMeta, PutMeta};
use swiftlet_store::{Error, Fetched, Result, Shape, Store};

use super::{Random, content, crashing, random};

pub const CELL: usize = 512;
pub const KEYS: u64 = 5;
const TIMES: u64 = 6;
const GENERATIONS: u64 = 2;

/// A fragment under its place of a ring's partition.
pub fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&[number as u8, 77]).to_be_bytes();
    Key { policy: 3, partition: 32 * (number as u32 % 2) + index_of(number) as u32, digest }
}

pub fn index_of(number: u64) -> usize {
    number as usize % 3
}

pub fn chosen() -> Arc<[Device]> {
    (0..3).map(|number| Device { number, incarnation: 5 }).collect()
}

/// The size of an object follows from its version: none, less than a cell, in a volume, in a file.
fn size_of(version: Version) -> u64 {
    [0, 1, 700, 3000, 9000, 4096][(version.timestamp + version.generation) as usize % 6]
}

/// Fragment `index` of the object that a version is, with its block.
pub fn fragment(version: Version, index: usize) -> (Vec<u8>, Block) {
    let object = content(version.timestamp * 10 + version.generation, size_of(version));
    let mut bytes = Vec::new();
    let mut sink = |cells: &[&[u8]]| bytes.extend_from_slice(cells[index]);
    let mut cutter = Cutter::new(Scheme::new(2, 1).expect("a scheme"), CELL).expect("a cutter");
    cutter.push(&object, &mut sink).expect("cut");
    let block = cutter.finish(&mut sink).block(index, version.generation, chosen()).expect("a block");
    (bytes, block)
}

pub fn meta(version: Version) -> PutMeta {
    PutMeta { name: b"/a/c/o".to_vec(), timestamp: version.timestamp, ..PutMeta::default() }
}

/// Begin a fragment and write all of it.
pub fn written(store: &Store, key: Key, version: Version) -> Result<(swiftlet_store::FragmentWriter, Block)> {
    let (bytes, block) = fragment(version, key.partition as usize % 32);
    let mut writer = store.create_fragment(key, Shape { cell_bytes: CELL, size: None, aggregate_below: None })?;
    for piece in bytes.chunks(700) {
        writer.write(piece)?;
    }
    Ok((writer, Block { cells: Vec::new(), ..block }))
}

/// What a device holds of a fragment: its versions, and the metadata on top of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub slot: Slot,
    pub post: Option<PostMeta>,
}

impl State {
    /// The metadata as far as they count for any version that may be here.
    pub fn posted(&self) -> Option<PostMeta> {
        let floor = self.slot.floor().map_or(0, |floor| floor.timestamp);
        let mut post = self.post.clone().filter(|post| post.timestamp > floor)?;
        if post.content_type_timestamp <= floor {
            (post.content_type, post.content_type_timestamp) = (None, 0);
        }
        Some(post)
    }
}

/// One thing that is asked of a fragment.
#[derive(Clone, Debug)]
pub enum Op {
    Ask(Request),
    Learn(Shown),
    HandBack(Shown),
    /// Metadata on top of a version of this time.
    Post(u64, PostMeta),
}

impl Op {
    /// What a slot makes of it.
    fn change(&self, slot: &Slot) -> Option<Change> {
        match self {
            Self::Ask(request) => answer(slot, request).0,
            Self::Learn(shown) => match sync::compare(slot, Some(shown)) {
                Todo::Append(change) => Some(change),
                _ => None,
            },
            Self::HandBack(shown) => sync::returned(slot, Some(shown)),
            Self::Post(..) => None,
        }
    }

    fn after(&self, state: &State) -> State {
        let mut next = state.clone();
        self.change(&state.slot).iter().for_each(|change| next.slot.apply(change));
        let floor = state.slot.floor();
        if let Self::Post(of, meta) = self
            && floor.is_none_or(|floor| !floor.is_deletion() || floor.timestamp < *of)
        {
            let merged = merge_post(floor.map_or(0, |floor| floor.timestamp), state.posted(), meta.clone());
            next.post = merged.store.or(next.post);
        }
        next
    }
}

fn all_versions() -> impl Iterator<Item = Version> {
    (10..10 + TIMES).flat_map(|timestamp| (1..=GENERATIONS).map(move |generation| Version { timestamp, generation }))
}

/// What tells two slots apart.
fn probes() -> Vec<Request> {
    let mut probes = vec![Request::Show, Request::Newest { below: None }];
    for version in all_versions() {
        probes.extend([Request::Fetch(version), Request::Newest { below: Some(version) }]);
    }
    probes
}

/// The same for requests that would change something, by the answers of pure decisions; for the models alone.
fn all_answers(slot: &Slot) -> Vec<Answer> {
    probes().iter().map(|request| answer(slot, request).1).collect()
}

/// A POST as far as it counts where it is: a content type that is older than what is settled doesn't.
pub fn counting(store: &Store, key: Key, post: Option<PostMeta>) -> Option<PostMeta> {
    let floor = store.newest_fragment(&key, None).expect("read").floor.map_or(0, |floor| floor.timestamp);
    let mut post = post?;
    if post.content_type_timestamp <= floor {
        (post.content_type, post.content_type_timestamp) = (None, 0);
    }
    Some(post)
}

/// What may be held of each fragment: one state, or, with operations under way at a crash, several.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub possible: BTreeMap<u64, Vec<State>>,
}

impl Model {
    pub fn current(&self, number: u64) -> State {
        self.possible.get(&number).and_then(|slots| slots.last()).cloned().unwrap_or_default()
    }

    pub fn acknowledge(&mut self, number: u64, op: &Op) {
        let next = op.after(&self.current(number));
        self.possible.insert(number, vec![next]);
    }

    pub fn doubt(&mut self, number: u64, op: &Op) {
        let next = op.after(&self.current(number));
        self.possible.entry(number).or_insert_with(|| vec![State::default()]).push(next);
    }
}

impl crashing::Model for Model {
    /// The store answers what was acknowledged, and of what was under way all or nothing; fragments have their bytes.
    fn check(&mut self, store: &Store, what: &str) {
        for number in 0..KEYS {
            let key = key(number);
            let found: Vec<Answer> = probes()
                .into_iter()
                .map(|request| store.about_fragment(key, request).unwrap_or_else(|error| panic!("{what}: {error}")))
                .collect();
            let posted = store.posted(&key).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = (found, counting(store, key, posted));
            let slots = self.possible.entry(number).or_insert_with(|| vec![State::default()]);
            // What differs only in what was promised is told apart by a model alone.
            let seen = |state: &State| (all_answers(&state.slot), state.posted());
            let matching: Vec<State> = slots.iter().filter(|state| seen(state) == found).cloned().collect();
            let Some(last) = matching.last().cloned() else {
                panic!("{what}: fragment {number} answers {found:?}, which is none of {slots:#?}");
            };
            *slots = matching;
            for version in all_versions() {
                let is_here = last.slot.get(version).is_some_and(|kept| kept.is_readable());
                match store.fragment(&key, version).unwrap_or_else(|error| panic!("{what}: {error}")) {
                    Fetched::Fragment(held) => {
                        let (bytes, block) = fragment(version, index_of(number));
                        assert!(is_here && held.info().block == block, "{what}: {number}, {version:?}");
                        let cells = held.cells(0..u64::MAX).unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert_eq!(cells, bytes, "{what}: {number}, {version:?}");
                    }
                    Fetched::Not(_) => assert!(!is_here, "{what}: {number}, {version:?}"),
                }
            }
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
    pub model: Model,
}

type Answers = Arc<Mutex<Vec<(u64, Op, Result<Answer>)>>>;

impl Worker {
    pub fn op(&mut self) -> Op {
        let timestamp = 10 + self.random.below(TIMES);
        let version = Version { timestamp, generation: 1 + self.random.below(GENERATIONS) };
        let ballot = Ballot { round: 1 + self.random.below(3) as u32, nonce: self.random.below(2) };
        let outcome = if version.generation == 1 { Outcome::Commit } else { Outcome::Abort };
        let shown = |settled| Shown { version, settled, chosen: chosen() };
        match self.random.below(20) {
            0..=5 => Op::Ask(Request::Prepare { version, chosen: chosen() }),
            6..=8 => Op::Ask(Request::Commit(version)),
            9 => Op::Ask(Request::Settle(version)),
            10 => Op::Ask(Request::Delete { timestamp: version.timestamp }),
            11 => Op::Ask(Request::Promise { version, chosen: chosen(), ballot }),
            12 => Op::Ask(Request::Accept { version, chosen: chosen(), accepted: Accepted { ballot, outcome } }),
            13 | 14 => Op::Ask(Request::Decide { version, outcome }),
            15 => Op::Ask(Request::Keep { version, chosen: chosen() }),
            16 => Op::Learn(shown(self.random.below(2) == 0)),
            17 => Op::HandBack(shown(true)),
            _ => Op::Post(version.timestamp, self.metadata()),
        }
    }

    fn metadata(&mut self) -> PostMeta {
        let timestamp = 10 + self.random.below(TIMES + 3);
        let content_type = (self.random.below(2) == 0).then(|| timestamp.to_string().into_bytes());
        let content_type_timestamp = if content_type.is_some() { timestamp } else { 0 };
        let metadata = vec![(b"x-object-meta-at".to_vec(), timestamp.to_string().into_bytes())];
        PostMeta { timestamp, metadata, content_type, content_type_timestamp, delete_at: timestamp * 100 }
    }

    fn apply_outcome(&mut self, number: u64, op: &Op, outcome: Result<Option<Answer>>, what: &str) {
        match outcome {
            Ok(found) => {
                if let (Op::Ask(request), Some(found)) = (op, found) {
                    let possible = self.model.possible.get(&number).cloned().unwrap_or_default();
                    let expected: Vec<Answer> = possible.iter().map(|state| answer(&state.slot, request).1).collect();
                    // Of several that may be, those that would have answered so are left.
                    let fits = |state: &State| answer(&state.slot, request).1 == found;
                    let fitting: Vec<State> = possible.into_iter().filter(fits).collect();
                    if expected.is_empty() {
                        assert_eq!(found, answer(&Slot::default(), request).1, "{what}: {request:?}");
                    } else {
                        assert!(!fitting.is_empty(), "{what}: {request:?}: {found:?}, not one of {expected:?}");
                        self.model.possible.insert(number, fitting);
                    }
                }
                let slots = self.model.possible.entry(number).or_insert_with(|| vec![State::default()]);
                slots.iter_mut().for_each(|slot| *slot = op.after(slot));
            }
            Err(Error::DiskFull(_)) => {}
            Err(_) => self.model.doubt(number, op),
        }
    }

    fn apply(&mut self, store: &Store, number: u64, op: &Op) -> Result<Option<Answer>> {
        let key = key(number);
        match op {
            Op::Ask(Request::Prepare { version, .. }) => {
                let (writer, block) = written(store, key, *version)?;
                writer.prepare(&meta(*version), b"etag", block).map(Some)
            }
            Op::Ask(Request::Keep { version, .. }) => {
                let (writer, block) = written(store, key, *version)?;
                writer.keep(&meta(*version), b"etag", block).map(Some)
            }
            Op::Ask(request) => store.about_fragment(key, request.clone()).map(Some),
            Op::Learn(shown) => store.learn_of_fragment(key, shown.clone()).map(|_| None),
            Op::HandBack(shown) => store.hand_back_fragment(key, shown.clone()).map(|_| None),
            Op::Post(of, meta) => match store.coded_post(key, *of, meta.clone()) {
                Ok(_) | Err(Error::Superseded(_) | Error::NotFound(_)) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Several at once, in one batch or more.
    fn burst(&mut self, store: &Store, what: &str) {
        let answers: Answers = Arc::default();
        let mut asked = 0;
        for _ in 0..1 + self.random.below(6) {
            let (number, op) = (self.random.below(KEYS), self.op());
            let (answers, kept) = (Arc::clone(&answers), op.clone());
            let told: swiftlet_store::Told = Box::new(move |outcome| {
                answers.lock().expect("nobody panicked").push((number, kept, outcome));
            });
            match &op {
                Op::Ask(Request::Prepare { version, .. }) => match written(store, key(number), *version) {
                    Ok((writer, block)) => writer.submit_prepare(&meta(*version), b"etag", block, told),
                    Err(error) => told(Err(error)),
                },
                Op::Ask(Request::Keep { version, .. }) => match written(store, key(number), *version) {
                    Ok((writer, block)) => writer.submit_keep(&meta(*version), b"etag", block, told),
                    Err(error) => told(Err(error)),
                },
                Op::Ask(request) => store.submit_about_fragment(key(number), request.clone(), told),
                _ => continue,
            }
            asked += 1;
        }
        while store.commit_pending() {}
        let answers = std::mem::take(&mut *answers.lock().expect("nobody panicked"));
        assert_eq!(answers.len(), asked, "{what}: everyone is answered");
        for (number, op, outcome) in answers {
            self.apply_outcome(number, &op, outcome.map(Some), what);
        }
    }
}

impl crashing::Life for Worker {
    type Model = Model;

    fn begin(seed: u64) -> Self {
        Self { random: random(seed), model: Model::default() }
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
                5..=8 => self.burst(store, what),
                _ => {
                    let (number, op) = (self.random.below(KEYS), self.op());
                    let outcome = self.apply(store, number, &op);
                    self.apply_outcome(number, &op, outcome, what);
                }
            }
        }
    }
}
