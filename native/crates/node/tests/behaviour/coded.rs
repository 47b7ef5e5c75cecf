//! Writes and reads of erasure-coded objects by what proxies use: real object servers with a device each, 4+2, and
//! servers that do not as they should.
//!
//! Fault model: as many devices as may be away are, in every pattern; some stand still, rot, or have missed writes; the
//! writer goes away. Nothing is mixed, nothing that was acknowledged is lost, and what can't be had is said.

#![allow(clippy::unwrap_used, reason = "tests")]

mod deleting;
mod hedged;
mod listing;
mod messages;
mod packs;
mod packs_made;
mod packs_read;
mod packs_rewritten;
mod packs_served;
mod posting;
mod small;
mod trips;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{LONG, Machine, World, config, content, eventually, meta, only_file, unique};
use swiftlet_erasure::Scheme;
use swiftlet_fragments::Version;
use swiftlet_fragments::request::{Answer as SlotAnswer, Request as Asked};
use swiftlet_fragments::write::Verdict;
use swiftlet_node::coded::{
    Devices, FAR, Owed, Places, ReadEnd, ReadOptions, Reading, RebuildEnd, Rebuilding, Room, Target, WriteEnd,
    WriteOptions, Writing,
};
use swiftlet_node::message::Request;
use swiftlet_node::message::fragments::{Cells, Given, Request as FragmentRequest};
use swiftlet_node::{Failure, Limits};
use swiftlet_store::model::Key;
use swiftlet_transport::{
    Address, Answer, Body, Carrier, Chunk, Completions, Error, Handler, Incoming, Node, Receiver, Responder, What,
};

const CELL: usize = 1024;
const SOON: Duration = Duration::from_millis(20);

fn scheme() -> Scheme {
    Scheme::new(4, 2).unwrap()
}

fn key(number: u64) -> Key {
    let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
    Key { policy: 2, partition: number as u32 % 5, digest }
}

fn writing() -> WriteOptions {
    WriteOptions {
        timeout: LONG,
        body_timeout: LONG,
        choose: LONG,
        lag: LONG,
        rows: Vec::new(),
        trace: "tx".to_owned(),
    }
}

fn reading() -> ReadOptions {
    ReadOptions { timeout: LONG, hedge: None, sound: 0, ahead_bytes: 10_000, small: false, trace: "tx".to_owned() }
}

/// What a reader got: the object's timestamp and the bytes, or how it ended without.
type Got = Result<(u64, Vec<u8>), ReadEnd>;

/// Eight servers: those of the six places, and two to spare.
struct Cluster {
    world: World,
    machines: Vec<Machine>,
    targets: Vec<Option<Target>>,
    /// Cells of the objects.
    cell: usize,
}

impl Cluster {
    fn new(carrier: Carrier) -> Self {
        let world = World::new(carrier);
        let (mut machines, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let (machine, its) = world.machine(1, Limits::default());
            machines.push(machine);
            targets.extend(its.into_iter().map(Some));
        }
        Self { world, machines, targets, cell: CELL }
    }

    /// The places of an object, with so many spares, without those that are away.
    fn places(&self, number: u64, spares: u32, away: &[usize]) -> Places {
        let mut targets = self.targets.clone();
        away.iter().for_each(|number| targets[*number] = None);
        let (at, spares) = ((0..6).collect(), (6..6 + spares).collect());
        Places::new(Devices::new(targets), key(number), (scheme(), self.cell), at, spares).unwrap()
    }

    fn write(&self, places: Places, timestamp: u64, object: &[u8], options: WriteOptions) -> WriteEnd {
        self.written(places, timestamp, object, options).end().unwrap()
    }

    /// A write that has ended; devices that are late may still be told of it.
    fn written(&self, places: Places, timestamp: u64, object: &[u8], options: WriteOptions) -> Writing {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
        let events = Completions::new().unwrap();
        let about = (meta(timestamp), ATTEMPTS.fetch_add(1, SeqCst));
        let writing = Writing::start(places, about, Some(object.len() as u64), options, (events.clone(), 7)).unwrap();
        let mut pieces = object.chunks(3 * CELL);
        loop {
            match (writing.turn(), pieces.clone().next()) {
                (Room::Over, _) => return writing,
                (Room::Later(wait), _) => drop(events.wait(wait)),
                (Room::Now, Some(piece)) => {
                    pieces.next();
                    let _ = writing.push(piece);
                }
                (Room::Now, None) => {
                    let _ = writing.finish(b"etag");
                }
            }
        }
    }

    /// Write until it is acknowledged: on a machine that stands still for seconds, connections break.
    fn write_surely(&self, places: Places, timestamp: u64, object: &[u8]) -> WriteEnd {
        self.written_surely(places, timestamp, object).end().unwrap()
    }

    fn written_surely(&self, places: Places, timestamp: u64, object: &[u8]) -> Writing {
        for _ in 0..10 {
            let written = self.written(places.clone(), timestamp, object, writing());
            let end = written.end().unwrap();
            if end.verdict == Verdict::Acknowledged {
                return written;
            }
            assert!(has_lost(&written), "{end:?}");
            // A connection that broke is not made again at once.
            std::thread::sleep(5 * SOON);
        }
        panic!("never acknowledged");
    }

    /// Wait until all places have what was written, or write it again if somebody was lost on the way: who has missed a
    /// write gets it only by sync. There are as many spares as devices are away, so that none has what belongs to a
    /// device that is there.
    fn spread(&self, mut written: Writing, number: u64, timestamp: u64, object: &[u8], behind: &[usize]) {
        let began = std::time::Instant::now();
        while !self.has_all(number, timestamp, behind) {
            if has_lost(&written) {
                let places = self.places(number, behind.len() as u32, behind);
                written = self.written_surely(places, timestamp, object);
            }
            assert!(began.elapsed() < LONG, "without {behind:?}: {:?}, {:?}", written.end(), written.refused());
            std::thread::sleep(SOON);
        }
    }

    /// Write with nobody away, until it is everywhere.
    fn put(&self, number: u64, timestamp: u64, object: &[u8]) {
        let written = self.written_surely(self.places(number, 0, &[]), timestamp, object);
        self.spread(written, number, timestamp, object, &[]);
    }

    /// Each fragment is settled at its place, or for those that were away at the spares, one after the other.
    fn is_everywhere(&self, number: u64, timestamp: u64, away: &[usize]) {
        eventually("all six have theirs", || self.has_all(number, timestamp, away));
    }

    fn has_all(&self, number: u64, timestamp: u64, away: &[usize]) -> bool {
        let has = |machine: usize, place: usize| {
            let key = Key { partition: 32 * key(number).partition + place as u32, ..key(number) };
            shown(&self.machines[machine], &key) == Some((timestamp, true))
        };
        let mut spares = 6..8;
        (0..6).all(|place| has(if away.contains(&place) { spares.next().unwrap() } else { place }, place))
    }

    fn undecided(&self) -> usize {
        self.machines.iter().map(|machine| machine.stores[0].undecided_fragments(100).len()).sum()
    }
}

/// Whether a connection broke during a write.
fn has_lost(written: &Writing) -> bool {
    is_lost(&written.refused())
}

/// Whether one of these is a connection that broke.
fn is_lost(refused: &[(u32, Failure)]) -> bool {
    refused.iter().any(|(_, failure)| matches!(failure, Failure::Lost(_)))
}

/// The timestamp of the version that a device shows, and whether it is settled.
fn shown(machine: &Machine, key: &Key) -> Option<(u64, bool)> {
    let shown = machine.stores[0].shown_fragment(key).unwrap();
    shown.map(|shown| (shown.version.timestamp, shown.settled))
}

fn read(places: Places, first: &[usize], range: Range<u64>, options: ReadOptions) -> Got {
    let events = Completions::new().unwrap();
    let reading = Reading::start(places, first, range, options, (events.clone(), 7));
    let (mut bytes, mut opened) = (Vec::new(), None);
    loop {
        for event in events.wait(reading.turn()) {
            assert_eq!(event.token, 7);
            match event.what {
                // Told once more, it is to look sooner whether somebody is late.
                What::Sent(_) => {
                    let Some(info) = reading.description() else { continue };
                    assert!(*opened.get_or_insert(info.timestamp) == info.timestamp && info.etag == b"etag");
                }
                What::Chunk(chunk) => {
                    assert!(opened.is_some(), "it is known before what it is");
                    bytes.extend_from_slice(&chunk);
                    reading.taken(chunk.len() as u64);
                }
                _ => {
                    let end = reading.end().unwrap();
                    return if end == ReadEnd::Whole { Ok((opened.unwrap(), bytes)) } else { Err(end) };
                }
            }
        }
    }
}

/// All patterns of up to two devices.
fn patterns() -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new()];
    for one in 0..6 {
        found.push(vec![one]);
        found.extend((one + 1..6).map(|other| vec![one, other]));
    }
    found
}

#[test]
fn objects_are_read_with_any_two_devices_away() {
    let cluster = Cluster::new(Carrier::Tcp);
    for (number, size) in (0..).zip([0, 1, 4, 1023, 4 * CELL, 4 * CELL + 1, 40_000]) {
        let object = content(number, size);
        cluster.put(number, 10, &object);
        for away in patterns() {
            let places = || cluster.places(number, 1, &away);
            let what = format!("{size} bytes without {away:?}");
            assert_eq!(read(places(), &[0, 1, 2], 0..u64::MAX, reading()), Ok((10, object.clone())), "{what}");
            let (start, stop) = (size / 3, size / 3 + 1500.min(size));
            let expected = object[start..stop.min(size)].to_vec();
            let range = start as u64..stop as u64;
            assert_eq!(read(places(), &[2, 0, 1], range, reading()), Ok((10, expected)), "{what}");
            assert_eq!(read(places(), &[1], 0..0, reading()), Ok((10, Vec::new())), "{what}");
            assert_eq!(read(places(), &[1], size as u64..u64::MAX, reading()), Ok((10, Vec::new())), "{what}");
        }
    }
    // One more is too many, and is no proof that there is nothing.
    for away in [[0, 1, 2], [3, 4, 5], [0, 2, 5]] {
        let places = cluster.places(6, 2, &away);
        assert_eq!(read(places, &[0, 1, 2], 0..u64::MAX, reading()), Err(ReadEnd::Unavailable), "{away:?}");
    }
    assert_eq!(read(cluster.places(99, 2, &[0, 3]), &[0], 0..9, reading()), Err(ReadEnd::NotFound(None)));
    // What is asked of an object is a cell of it, where it is there.
    let reading = read(cluster.places(6, 0, &[0, 2, 3, 4, 5]), &[1], 1100..1200, reading());
    assert_eq!(reading, Ok((10, content(6, 40_000)[1100..1200].to_vec())));
}

#[test]
fn an_object_of_many_windows_is_read_as_it_is_taken() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.cell = 64 << 10;
    let object = content(1, 33 << 20);
    cluster.put(1, 10, &object);
    for away in [vec![], vec![1, 4]] {
        let places = cluster.places(1, 0, &away);
        assert!(read(places, &[0], 0..u64::MAX, reading()) == Ok((10, object.clone())), "without {away:?}");
    }
    // Who takes nothing is passed no more than a stripe over what was agreed.
    let events = Completions::new().unwrap();
    let slow = Reading::start(cluster.places(1, 0, &[]), &[0], 0..u64::MAX, reading(), (events.clone(), 7));
    let mut passed = 0;
    while passed == 0 {
        let chunks = events.wait(LONG).into_iter();
        passed += chunks.map(|event| if let What::Chunk(chunk) = event.what { chunk.len() } else { 0 }).sum::<usize>();
    }
    assert_eq!((passed, slow.end()), (256 << 10, None));
    drop(slow);
}

/// Serve at the same address as before, with new connections.
fn restart(cluster: &mut Cluster, number: usize) {
    let (peer, _) = cluster.targets[number].clone().unwrap();
    let machine = &mut cluster.machines[number];
    drop(machine.node.take());
    let server = Arc::clone(&machine.server) as Arc<dyn Handler>;
    let node = Node::start(config(peer.name()), &[], Some(server)).unwrap();
    node.listen(cluster.world.network.listen(peer.name()).unwrap());
    machine.node = Some(node);
}

#[test]
fn every_server_may_be_restarted_during_a_read() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.cell = 64 << 10;
    let object = content(1, 33 << 20);
    cluster.put(1, 10, &object);
    let events = Completions::new().unwrap();
    let reading = Reading::start(cluster.places(1, 0, &[]), &[0], 0..u64::MAX, reading(), (events.clone(), 7));
    let (mut bytes, mut restarted) = (Vec::new(), 0);
    while reading.end().is_none() || bytes.len() < object.len() {
        for event in events.wait(reading.turn()) {
            if let What::Chunk(chunk) = event.what {
                reading.taken(chunk.len() as u64);
                bytes.extend_from_slice(&chunk);
            }
        }
        assert!(!matches!(reading.end(), Some(ReadEnd::Cut | ReadEnd::Unavailable)), "with {restarted} restarted");
        if restarted < 6 && bytes.len() > (restarted + 1) * (4 << 20) {
            restart(&mut cluster, restarted);
            restarted += 1;
        }
    }
    assert!((restarted, reading.end()) == (6, Some(ReadEnd::Whole)) && bytes == object);
}

#[test]
fn spares_stand_in_for_who_is_away() {
    let cluster = Cluster::new(Carrier::Tcp);
    let object = content(1, 30_000);
    for (number, away) in (0..).zip(patterns().into_iter().filter(|away| away.len() == 2)) {
        let end = cluster.write(cluster.places(number, 2, &away), 10, &object, writing());
        assert_eq!((end.verdict, end.object_bytes), (Verdict::Acknowledged, 30_000), "{away:?}: {end:?}");
        cluster.is_everywhere(number, 10, &away);
        // Those who were away are back, with nothing, and two others are gone.
        let gone: Vec<usize> = (0..6).filter(|place| !away.contains(place)).take(2).collect();
        let places = cluster.places(number, 2, &gone);
        assert_eq!(read(places, &[0, 1, 2], 0..u64::MAX, reading()), Ok((10, object.clone())), "{away:?}");
    }
}

#[test]
fn a_write_without_a_quorum_leaves_nothing() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (old, new) = (content(1, 9000), content(2, 12_000));
    cluster.put(1, 10, &old);
    let end = cluster.write(cluster.places(1, 0, &[2, 3]), 11, &new, writing());
    assert_eq!((end.verdict, end.prepared, end.refused.len()), (Verdict::Failed, 0, 2), "{end:?}");
    assert_eq!(read(cluster.places(1, 0, &[2, 3]), &[0], 0..u64::MAX, reading()), Ok((10, old.clone())));
    // The writer goes away in the middle of the body.
    let events = Completions::new().unwrap();
    let places = cluster.places(1, 0, &[]);
    let started = Writing::start(places, (meta(12), 1), None, writing(), (events.clone(), 7)).unwrap();
    while started.turn() != Room::Now {
        drop(events.wait(SOON));
    }
    started.push(&new).unwrap();
    drop(started);
    let ended = || events.wait(SOON).iter().any(|event| matches!(event.what, What::End(_)));
    eventually("it is over", ended);
    assert_eq!(cluster.undecided(), 0);
    assert_eq!(read(cluster.places(1, 0, &[]), &[0], 0..u64::MAX, reading()), Ok((10, old)));
}

#[test]
fn what_was_settled_since_is_not_overwritten() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (old, new) = (content(1, 9000), content(2, 12_000));
    cluster.put(1, 20, &new);
    let end = cluster.write(cluster.places(1, 0, &[]), 10, &old, writing());
    assert_eq!(end.past.map(|past| past.timestamp), Some(20), "{end:?}");
    assert_eq!(read(cluster.places(1, 0, &[]), &[0], 0..u64::MAX, reading()), Ok((20, new)));
}

#[test]
fn a_place_that_has_missed_a_write_misleads_nobody() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (old, new) = (content(1, 9000), content(2, 12_000));
    cluster.put(1, 10, &old);
    let end = cluster.write(cluster.places(1, 0, &[0]), 11, &new, writing());
    assert_eq!((end.verdict, end.prepared), (Verdict::Acknowledged, 5), "{end:?}");
    let others = |machine: &Machine, place: u32| {
        let key = Key { partition: 32 * key(1).partition + place, ..key(1) };
        shown(machine, &key) == Some((11, true))
    };
    eventually("others have settled it", || (1..6).all(|place| others(&cluster.machines[place], place as u32)));
    for away in [vec![], vec![1], vec![5]] {
        let places = cluster.places(1, 0, &away);
        assert_eq!(read(places, &[0], 0..u64::MAX, reading()), Ok((11, new.clone())), "without {away:?}");
    }
    // With two more than it away there are too few fragments of the new version, and the old one is none to give.
    let places = cluster.places(1, 0, &[1, 2]);
    assert_eq!(read(places, &[0], 0..u64::MAX, reading()), Err(ReadEnd::Unavailable));
}

#[test]
fn a_rotten_cell_is_replaced() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    cluster.cell = 4 * CELL;
    let object = content(4, 4 * CELL * 1200);
    cluster.put(1, 10, &object);
    for place in [1, 3] {
        let path = only_file(&cluster.machines[place].directories[0].0.join("large"));
        let mut raw = std::fs::read(&path).unwrap();
        raw[200_000] ^= 1;
        std::fs::write(&path, raw).unwrap();
    }
    for _ in 0..2 {
        let got = read(cluster.places(1, 0, &[]), &[1, 0], 0..u64::MAX, reading());
        assert!(got == Ok((10, object.clone())));
    }
}

/// A device that takes what it is sent, and says nothing more than what it is. Asked for cells it may lie.
struct Odd {
    incarnation: u64,
    /// The digest with which it sends cells without anything in them.
    lies: Option<u64>,
    kept: Mutex<Vec<Chunk>>,
    silent: Mutex<Vec<Responder>>,
}

struct Keeping(Arc<Odd>, Responder);

impl Receiver for Keeping {
    fn chunk(&mut self, chunk: Chunk) {
        self.0.kept.lock().unwrap().push(chunk);
    }

    fn end(&mut self, _footer: &[u8]) {}

    fn failed(&mut self, _why: &Error) {
        assert!(self.1.is_cancelled());
    }
}

struct Handling(Arc<Odd>);

impl Handler for Handling {
    fn request(&self, incoming: Incoming, responder: Responder) -> Option<Box<dyn Receiver>> {
        if incoming.method == Request::Fragment(FragmentRequest::Incarnation).method() {
            let header = self.0.incarnation.to_be_bytes().to_vec();
            responder.answer(Answer { header, body: Body::Empty, ..Answer::default() });
            return None;
        }
        if incoming.body.is_none() {
            return Some(Box::new(Keeping(self.0.clone(), responder)));
        }
        let asked = Request::decode(incoming.method, &incoming.header).unwrap().1;
        match asked {
            Request::Fragment(FragmentRequest::Cells { first, end, .. }) if self.0.lies.is_some() => {
                let count = (end - first) as usize;
                let header = Given::Cells(Cells { first, xxh3: vec![self.0.lies.unwrap(); count] }).encode().unwrap();
                let body = Body::Chunk(Chunk::from(vec![0; count * CELL]));
                responder.answer(Answer { header, body, ..Answer::default() });
            }
            _ => self.0.silent.lock().unwrap().push(responder),
        }
        None
    }
}

impl Cluster {
    /// Put a device in the place of another one that falls silent.
    fn silence(&mut self, number: usize, lies: Option<u64>) -> (Node, Arc<Odd>) {
        let name = format!("odd-{}", unique());
        let odd = Arc::new(Odd { incarnation: 77, lies, kept: Mutex::default(), silent: Mutex::default() });
        let node = Node::start(config(&name), &[], Some(Arc::new(Handling(odd.clone())))).unwrap();
        node.listen(self.world.network.listen(&name).unwrap());
        self.targets[number] = Some((self.world.node.peer(Address { name, tcp: None }), "d0".to_owned()));
        (node, odd)
    }
}

#[test]
fn a_device_that_stands_still_is_dropped() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.cell = 64 << 10;
    let (_node, odd) = cluster.silence(4, None);
    let object = content(1, 12 << 20);
    let options = WriteOptions { lag: Duration::from_secs(1), ..writing() };
    let end = cluster.write(cluster.places(1, 0, &[]), 10, &object, options);
    assert_eq!((end.verdict, end.prepared), (Verdict::Acknowledged, 5), "{end:?}");
    let kept: usize = odd.kept.lock().unwrap().iter().map(|chunk| chunk.len()).sum();
    assert!(kept < 3 << 20, "{kept} bytes of 3 MiB");
    assert!(read(cluster.places(1, 0, &[4]), &[0], 0..u64::MAX, reading()) == Ok((10, object.clone())));
    // While it is silent, others give its cells.
    let _other = cluster.silence(1, None);
    let options = ReadOptions { hedge: Some(SOON), ..reading() };
    assert!(read(cluster.places(1, 0, &[]), &[1], 0..u64::MAX, options) == Ok((10, object)));
    // With two of them there is no quorum, however long one waits.
    let options = WriteOptions { lag: SOON, timeout: SOON, body_timeout: SOON * 20, ..writing() };
    let end = cluster.write(cluster.places(2, 0, &[]), 10, &content(2, 12 << 20), options);
    assert!(end.verdict == Verdict::Failed && end.prepared <= 4, "{end:?}");
    let options = WriteOptions { timeout: SOON, ..writing() };
    let end = cluster.write(cluster.places(3, 0, &[]), 10, &content(3, 9000), options);
    assert!(end.verdict == Verdict::Failed && end.prepared <= 4, "{end:?}");
}

fn rebuild(places: Places, place: usize, timestamp: u64, generation: u64) -> RebuildEnd {
    rebuilt(places, place, timestamp, generation).end().unwrap()
}

/// A rebuild that has ended.
fn rebuilt(places: Places, place: usize, timestamp: u64, generation: u64) -> Rebuilding {
    let events = Completions::new().unwrap();
    let version = Version { timestamp, generation };
    let rebuilding = Rebuilding::start(places, (place, version), ((LONG, LONG), "tx"), (events.clone(), 7)).unwrap();
    let told = events.wait(LONG);
    assert!(matches!(&told[..], [event] if event.token == 7 && matches!(event.what, What::End(_))));
    rebuilding
}

/// Devices by their numbers, each with the bytes that came from it.
type From = Vec<(u32, u64)>;

impl Cluster {
    /// Put an empty device in the place of another one.
    fn replace(&mut self, place: usize) {
        let (machine, mut target) = self.world.machine(1, Limits::default());
        self.machines[place] = machine;
        self.targets[place] = target.pop();
    }

    fn generation(&self, number: u64) -> u64 {
        let key = Key { partition: 32 * key(number).partition + 1, ..key(number) };
        self.machines[1].stores[0].shown_fragment(&key).unwrap().unwrap().version.generation
    }
}

#[test]
fn a_lost_fragment_is_made_of_others() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    let objects: Vec<Vec<u8>> = [0, 1, 5, 4 * CELL, 40_000].iter().map(|size| content(1, *size)).collect();
    (0..).zip(&objects).for_each(|(number, object)| cluster.put(number, 10, object));
    for place in [0, 2, 4, 5] {
        cluster.replace(place);
        for (number, object) in (0..).zip(&objects) {
            let generation = cluster.generation(number);
            let what = format!("{} bytes, fragment {place}", object.len());
            // Another one is away meanwhile, and two others afterwards.
            let away = (place + 1) % 6;
            let end = rebuild(cluster.places(number, 0, &[away]), place, 10, generation);
            assert_eq!(end, RebuildEnd::Answered(SlotAnswer::Done), "{what}");
            let end = rebuild(cluster.places(number, 0, &[]), place, 10, generation);
            assert_eq!(end, RebuildEnd::Answered(SlotAnswer::Done), "{what}, again");
            let gone = [(place + 1) % 6, (place + 2) % 6];
            let got = read(cluster.places(number, 0, &gone), &[place], 0..u64::MAX, reading());
            assert!(got == Ok((10, object.clone())), "{what}");
        }
    }
    let generation = cluster.generation(4);
    cluster.replace(3);
    let end = rebuild(cluster.places(4, 0, &[0, 5]), 3, 10, generation);
    assert_eq!(end, RebuildEnd::TooFew);
    let end = rebuild(cluster.places(4, 0, &[]), 3, 11, generation);
    assert_eq!(end, RebuildEnd::TooFew, "there is no such version");
    let end = rebuild(cluster.places(4, 0, &[3]), 3, 10, generation);
    assert!(matches!(end, RebuildEnd::Failed(_)), "{end:?}");
    for machine in &cluster.machines {
        assert_eq!(machine.stores[0].check().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_spares_fragment_is_moved_to_its_place() {
    let cluster = Cluster::new(Carrier::Simulated);
    let object = content(1, 40_000);
    cluster.write_surely(cluster.places(1, 1, &[2]), 10, &object);
    cluster.is_everywhere(1, 10, &[2]);
    // Of the others so few are there that it could not be made of them.
    let end = rebuild(cluster.places(1, 1, &[0, 3, 4, 5]), 2, 10, cluster.generation(1));
    assert_eq!(end, RebuildEnd::Answered(SlotAnswer::Done));
    assert!(read(cluster.places(1, 0, &[0, 5]), &[2], 0..u64::MAX, reading()) == Ok((10, object)));
}

impl Cluster {
    /// Rebuild the fragment of an empty device's place, seen from somewhere; return where its bytes came from.
    fn rebuilt_from(&mut self, number: u64, place: usize, spares: u32, distances: &[u8]) -> From {
        self.replace(place);
        let places = self.places(number, spares, &[]).seen_from(distances.to_vec());
        let rebuilt = rebuilt(places, place, 10, self.generation(number));
        assert_eq!(rebuilt.end(), Some(RebuildEnd::Answered(SlotAnswer::Done)), "{distances:?}");
        rebuilt.read()
    }
}

#[test]
fn a_fragment_is_made_of_near_ones_and_of_as_few_far_ones_as_can_be() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    // Ten cells of each fragment.
    cluster.put(1, 10, &content(1, 40 * CELL));
    let whole = (10 * CELL) as u64;
    let of = |devices: &[u32]| -> From { devices.iter().map(|device| (*device, whole)).collect() };
    assert_eq!(cluster.rebuilt_from(1, 5, 0, &[]), of(&[0, 1, 2, 3]), "all are as near");
    assert_eq!(cluster.rebuilt_from(1, 5, 0, &[1, 0, 0, 0, 0]), of(&[1, 2, 3, 4]), "another zone");
    assert_eq!(cluster.rebuilt_from(1, 5, 0, &[FAR, 0, 1, 1, 0]), of(&[1, 2, 3, 4]), "one is far");
    assert_eq!(cluster.rebuilt_from(1, 5, 0, &[FAR, FAR, 1, 1, 0]), of(&[0, 2, 3, 4]), "one of the far ones is needed");
    // Who has lost its own fragment gives none.
    cluster.replace(2);
    assert_eq!(cluster.rebuilt_from(1, 5, 0, &[FAR, 0, 0, 0, 0]), of(&[0, 1, 3, 4]), "a far one instead of it");
}

#[test]
fn a_far_spares_fragment_is_moved_only_where_near_ones_are_too_few() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.write_surely(cluster.places(1, 1, &[2]), 10, &content(1, 40 * CELL));
    cluster.is_everywhere(1, 10, &[2]);
    let whole = (10 * CELL) as u64;
    let of = |devices: &[u32]| -> From { devices.iter().map(|device| (*device, whole)).collect() };
    let near_spare = [FAR, FAR, FAR, FAR, FAR, FAR, 0];
    assert_eq!(cluster.rebuilt_from(1, 2, 1, &near_spare), of(&[6]));
    let far_spare = [0, 0, 0, 0, FAR, FAR, FAR];
    assert_eq!(
        cluster.rebuilt_from(1, 2, 1, &far_spare),
        of(&[6]),
        "once over the link is less than once and three near"
    );
    let far_spare = [0, 0, 0, 0, 0, FAR, FAR];
    assert_eq!(cluster.rebuilt_from(1, 2, 1, &far_spare), of(&[0, 1, 3, 4]), "nothing passes the link");
}

#[test]
fn what_is_not_the_fragment_is_not_kept() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    let object = content(1, 40 * CELL);
    cluster.put(1, 10, &object);
    let generation = cluster.generation(1);
    cluster.replace(5);
    // Its cells have the digests that it says, and are of another object.
    let _odd = cluster.silence(3, Some(swiftlet_hash::xxh3_64(&[0; CELL])));
    let without_it = rebuild(cluster.places(1, 0, &[3]), 5, 10, generation);
    cluster.replace(5);
    assert_eq!(without_it, RebuildEnd::Answered(SlotAnswer::Done));
    assert_eq!(rebuild(cluster.places(1, 0, &[]), 5, 10, generation), RebuildEnd::Unproved);
    let key = Key { partition: 32 * key(1).partition + 5, ..key(1) };
    assert_eq!(shown(&cluster.machines[5], &key), None);
}

#[test]
fn cells_with_other_digests_are_replaced() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    let object = content(1, 100 * CELL);
    cluster.put(1, 10, &object);
    let _nodes = [cluster.silence(2, Some(1)), cluster.silence(4, Some(1))];
    let got = read(cluster.places(1, 0, &[]), &[0, 1, 3], 0..u64::MAX, reading());
    assert!(got == Ok((10, object)));
    // A third one is too many, and what it sends isn't passed on.
    let _third = cluster.silence(3, Some(1));
    let options = ReadOptions { timeout: SOON * 10, ..reading() };
    let got = read(cluster.places(1, 0, &[]), &[0, 1, 5], 10_000..u64::MAX, options);
    assert_eq!(got.map(|(at, bytes)| (at, bytes.len())), Err(ReadEnd::Unavailable));
}

/// Writes and reads of objects at random, with as many devices away as may be, other ones each time. Readers know who
/// was away, and ask them last.
#[test]
fn reads_give_what_was_acknowledged_last() {
    let cluster = Cluster::new(Carrier::Simulated);
    let patterns = patterns();
    for seed in 0..30_u64 {
        let draw = |what: u64, below: u64| {
            let of = [seed.to_be_bytes(), what.to_be_bytes()].concat();
            swiftlet_hash::xxh3_64(&of) % below
        };
        let number = 1000 + seed;
        for turn in 1..8 {
            let behind = &patterns[draw(turn, patterns.len() as u64) as usize];
            let object = content(seed * 100 + turn, draw(100 + turn, 30_000) as usize);
            let written = cluster.written_surely(cluster.places(number, 2, behind), turn, &object);
            let (start, bytes) = (draw(300 + turn, 30_000), draw(400 + turn, 20_000));
            let mut first: Vec<usize> = (0..6).collect();
            first.rotate_left(draw(500 + turn, 6) as usize);
            first.sort_by_key(|place| behind.contains(place));
            let (begin, stop) = ((start as usize).min(object.len()), ((start + bytes) as usize).min(object.len()));
            let expected: Got = Ok((turn, object[begin..stop].to_vec()));
            // At once, when one device may not have heard of the commit.
            let got = read(cluster.places(number, 2, &[]), &first, start..start + bytes, reading());
            let told = got.as_ref().map(|(at, bytes)| (at, bytes.len()));
            assert!(got == expected, "{seed}, {turn}: {told:?} after {:?}", written.end());
            cluster.spread(written, number, turn, &object, behind);
            let away = &patterns[draw(200 + turn, patterns.len() as u64) as usize];
            let got = read(cluster.places(number, 2, away), &first, start..start + bytes, reading());
            assert!(got == expected, "{seed}, {turn}, without {away:?}");
        }
    }
    eventually("all is decided", || cluster.undecided() == 0);
}
