//! A process that writes until it dies, and what a device must then hold of what it has acknowledged.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use swiftlet_erasure::Scheme;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::Cutter;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::{Reference, Table};
use swiftlet_fragments::request::{Answer, Request};
use swiftlet_fragments::{Device, Version};
use swiftlet_store::model::{Footer, Key, PutMeta};
use swiftlet_store::{Config, Error, Shape, Store};

/// The pack to which objects are referred: where one is in it follows from its number and its timestamp.
fn reference(number: u64, timestamp: u64) -> Reference {
    let digest = key(number).digest;
    let rank = (0..OBJECTS).filter(|other| key(*other).digest < digest).count() as u64;
    Reference { digest, timestamp, offset: rank << 20, length: (timestamp % 1000) as u32 }
}

/// Refer to all objects that have data, as they are now.
fn adopt(store: &Store, round: u64) {
    let pack = Pack { version: Version { timestamp: round, generation: 1 }, digest: [7; 16] };
    let mut references: Vec<Reference> = (0..OBJECTS)
        .filter_map(|number| {
            let (is_put, timestamp) = newest(store, number);
            is_put.then(|| reference(number, timestamp))
        })
        .collect();
    references.sort_unstable_by_key(|reference| reference.digest);
    if !references.is_empty() {
        store.adopt((0, 1), Table { pack, references }).expect("it works");
    }
}

/// Whether an object has data, and when it was written or deleted last.
fn newest(store: &Store, number: u64) -> (bool, u64) {
    if let Some(found) = store.reference(&key(number)).expect("it works") {
        assert_eq!(found.reference, reference(number, found.reference.timestamp));
        return (true, found.reference.timestamp);
    }
    match store.stat(&key(number)) {
        Ok(info) => (true, info.timestamp),
        Err(Error::NotFound(tombstone)) => (false, tombstone.unwrap_or(0)),
        Err(error) => panic!("{error}"),
    }
}

/// Says to a process of this test that it is the child: the directory, a space, the seed. The test program has a test
/// `child` that does [`write_if_child`].
pub const CHILD: &str = "SWIFTLET_STORE_TEST_CHILD";
/// How many objects are written to, and how many fragments behind them.
const OBJECTS: u64 = 8;
const FRAGMENTS: u64 = 4;
const CELL: usize = 4096;
/// A life has to begin within this, on an emulated machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// By object: whether it was put, else deleted, and when.
pub type Acknowledged = HashMap<u64, (bool, u64)>;

/// What an object holds follows from its timestamp.
fn content(timestamp: u64) -> Vec<u8> {
    vec![(timestamp % 251) as u8; (timestamp * 7919 % 40_000) as usize]
}

fn key(number: u64) -> Key {
    Key { policy: 0, partition: 1, digest: swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes() }
}

fn fragment_key(number: u64) -> Key {
    Key { policy: 1, partition: 32 * (number as u32 % 2), ..key(number) }
}

/// The first fragment of the object that a timestamp has, and its block.
fn fragment(timestamp: u64) -> (Vec<u8>, Block) {
    let chosen: Arc<[Device]> = (0..3).map(|number| Device { number, incarnation: 5 }).collect();
    let mut bytes = Vec::new();
    let mut sink = |cells: &[&[u8]]| bytes.extend_from_slice(cells[0]);
    let mut cutter = Cutter::new(Scheme::new(2, 1).expect("a scheme"), CELL).expect("a cutter");
    cutter.push(&content(timestamp), &mut sink).expect("cut");
    let block = cutter.finish(&mut sink).block(0, timestamp, chosen).expect("a block");
    (bytes, block)
}

/// The next version of a fragment, settled: its timestamp.
fn write_fragment(store: &Store, number: u64) -> u64 {
    let key = fragment_key(number);
    let before = store.newest_fragment(&key, None).expect("it works").committed;
    let timestamp = before.map_or(1, |version| version.timestamp + 1);
    let version = Version { timestamp, generation: timestamp };
    let (bytes, block) = fragment(timestamp);
    let shape = Shape { cell_bytes: CELL, size: None, aggregate_below: None };
    let mut writer = store.create_fragment(key, shape).expect("it works");
    writer.write(&bytes).expect("it works");
    let meta = PutMeta { timestamp, ..PutMeta::default() };
    let block = Block { cells: Vec::new(), ..block };
    assert_eq!(writer.prepare(&meta, b"", block), Ok(Answer::Done));
    for request in [Request::Commit(version), Request::Settle(version)] {
        assert_eq!(store.about_fragment(key, request), Ok(Answer::Done));
    }
    timestamp
}

/// The newest committed fragment is whole; its timestamp.
fn read_fragment(store: &Store, number: u64, what: &str) -> Option<u64> {
    let newest = store.newest_fragment(&fragment_key(number), None).expect("it works");
    let timestamp = newest.committed?.timestamp;
    let held = newest.fragment.unwrap_or_else(|| panic!("{what}: {number}"));
    assert!(held.cells(0..u64::MAX).expect("sound") == fragment(timestamp).0, "{what}: {number}");
    Some(timestamp)
}

/// Nothing, unless this process is the child: then it writes until it dies.
pub fn write_if_child() {
    if let Ok(task) = std::env::var(CHILD) {
        let (root, seed) = task.rsplit_once(' ').expect("a directory and a seed");
        write_until_killed(Path::new(root), seed.parse().expect("a number"));
    }
}

/// Prints a line per acknowledged operation: what, object, timestamp.
fn write_until_killed(root: &Path, seed: u64) {
    let mut chance = seed;
    let mut random = move |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    let config = Config {
        volume_bytes: 256 * 1024,
        aggregate_below: 20_000,
        checkpoint_bytes: 128 * 1024,
        live_share: 0.7,
        ..Config::default()
    };
    let store = Store::open(root, config).expect("it works");
    let mut out = std::io::stdout();
    for step in 1..=100_000_u64 {
        let number = random(OBJECTS + FRAGMENTS);
        if number >= OBJECTS {
            let timestamp = write_fragment(&store, number);
            writeln!(out, "put {number} {timestamp}").expect("it works");
            out.flush().expect("it works");
            continue;
        }
        let key = key(number);
        // Later lives go on where the ones before them ended.
        let timestamp = newest(&store, number).1 + 1;
        let what = if random(5) == 0 {
            match store.delete(key, timestamp, Vec::new()) {
                Ok(_) | Err(Error::NotFound(_)) => "delete",
                Err(error) => panic!("{error}"),
            }
        } else {
            let data = content(timestamp);
            let mut writer = store.create(key, None, None).expect("it works");
            writer.write(&data).expect("it works");
            let footer = Footer { size: data.len() as u64, etag: Vec::new(), xxh3: swiftlet_hash::xxh3_64(&data) };
            writer.commit(&PutMeta { timestamp, ..PutMeta::default() }, &footer).expect("it works");
            "put"
        };
        writeln!(out, "{what} {number} {timestamp}").expect("it works");
        out.flush().expect("it works");
        match step % 20 {
            3 => adopt(&store, step),
            7 => store.checkpoint().expect("it works"),
            13 => drop(store.compact().expect("it works")),
            17 => drop(store.punch().expect("it works")),
            _ => {}
        }
    }
}

/// A child that runs, and what it has acknowledged so far.
pub struct Life {
    process: Child,
    acknowledged: Arc<Mutex<Acknowledged>>,
    reader: JoinHandle<()>,
}

impl Life {
    /// Let it begin; `failpoint`: where it kills itself.
    pub fn begin(root: &Path, seed: u64, failpoint: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "child", "--nocapture"]).stdout(Stdio::piped());
        command.env(CHILD, format!("{} {seed}", root.display()));
        if let Some(point) = failpoint {
            command.env("SWIFTLET_STORE_FAILPOINT", point);
        }
        let mut process = command.spawn().expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let acknowledged = Arc::<Mutex<Acknowledged>>::default();
        let noted = Arc::clone(&acknowledged);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let parts: Vec<&str> = line.split(' ').collect();
                if let [what @ ("put" | "delete"), number, timestamp] = parts[..] {
                    let (number, timestamp) =
                        (number.parse().expect("a number"), timestamp.parse().expect("a timestamp"));
                    noted.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (what == "put", timestamp));
                }
            }
        });
        Self { process, acknowledged, reader }
    }

    /// What it has acknowledged up to now, at least.
    pub fn acknowledged(&self) -> Acknowledged {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wait for its first sign of life.
    pub fn until_first(&self) {
        let end = Instant::now() + PATIENCE;
        while self.acknowledged().is_empty() {
            assert!(Instant::now() < end, "nothing was acknowledged");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// SIGKILL, unless it has ended by itself.
    pub fn kill(&mut self) {
        self.process.kill().expect("killed");
    }

    /// When it has ended: all that it has acknowledged, and how it ended.
    pub fn end(mut self) -> (Acknowledged, ExitStatus) {
        let status = self.process.wait().expect("it ended");
        self.reader.join().expect("it was read");
        (std::mem::take(&mut *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)), status)
    }
}

/// The device holds of each object what was acknowledged in `floor`, or something whole that came later, up to what was under
/// way behind `last`; index and volumes agree. From here on `floor` is what there is.
pub fn check(root: &Path, floor: &mut Acknowledged, last: &Acknowledged, what: &str) {
    let config = Config { threads: false, volume_bytes: 256 * 1024, ..Config::default() };
    let store = Store::open(root, config).unwrap_or_else(|error| panic!("{what}: {error}"));
    for number in 0..OBJECTS + FRAGMENTS {
        let (is_put, from) = floor.get(&number).copied().unwrap_or((false, 0));
        let upto = last.get(&number).map_or(from, |&(_, at)| at.max(from)) + 1;
        let (found, at) = match store.get(&key(number)) {
            _ if number >= OBJECTS => {
                let at = read_fragment(&store, number, what);
                (at.is_some(), at.unwrap_or(0))
            }
            Err(Error::Format(_)) => newest(&store, number),
            Ok(object) => {
                let at = object.info().timestamp;
                assert_eq!(object.read(0, u64::MAX).expect("sound"), content(at), "{what}: {number}");
                (true, at)
            }
            Err(Error::NotFound(tombstone)) => (false, tombstone.unwrap_or(0)),
            Err(error) => panic!("{what}: {number}: {error}"),
        };
        assert!(
            (at == from && found == is_put) || (from < at && at <= upto),
            "{what}: {number} is at {at} ({found}), not at {from} ({is_put}) to {upto}"
        );
        floor.insert(number, (found, at));
    }
    assert_eq!(store.check().expect("checked"), Vec::<String>::new(), "{what}");
    assert_eq!(store.recovery().damaged, 0, "{what}");
}
