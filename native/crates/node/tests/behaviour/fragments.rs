//! Writes and reads of erasure-coded objects over real connections: six object servers with a device each, 4+2.
//!
//! The decisions are those of `swiftlet_fragments`; what is here only sends and waits. Fault model: whoever writes may
//! stop between any two of its messages, and two devices may be away. No read mixes two writes, or gives an older one
//! than was acknowledged.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::common::{LONG, Machine, World, content, only_file};
use swiftlet_erasure::Scheme;
use swiftlet_fragments::assembly::Assembly;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::cutting::{Cut, Cutter};
use swiftlet_fragments::read::{Read, Step};
use swiftlet_fragments::recovery::End;
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::restoring::{Given as GivenCell, Wanted};
use swiftlet_fragments::write::{Verdict, Write};
use swiftlet_fragments::{Ballot, Device, Outcome, Terms, Version};
use swiftlet_node::coded::{Devices, Places, Recovering};
use swiftlet_node::message::Request;
use swiftlet_node::message::fragments::{
    Footer, Given, MAX_READ_CELLS, Newest, Request as FragmentRequest, decode_answer, decode_incarnation,
};
use swiftlet_node::{Failure, Limits, Status};
use swiftlet_store::model::{Key, PutMeta};
use swiftlet_transport::{Carrier, Chunk, Completions, Peer, Sink, What};

const CELL: usize = 1024;
/// Messages of a write without faults: six of each step, and one more to who commits after the others were told.
const MESSAGES: usize = 19;

fn scheme() -> Scheme {
    Scheme::new(4, 2).unwrap()
}

fn terms() -> Terms {
    Terms::of(scheme())
}

fn version(timestamp: u64) -> Version {
    Version { timestamp, generation: timestamp * 7 }
}

/// An object's key at a place.
fn key(number: u64, place: usize) -> Key {
    let digest = swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes();
    Key { policy: 2, partition: 32 * (number as u32 % 5) + place as u32, digest }
}

/// An object, cut.
struct Coded {
    cut: Cut,
    cells: Vec<Vec<u8>>,
}

fn coded(object: &[u8]) -> Coded {
    let mut cells = vec![Vec::new(); 6];
    let mut sink = |of_stripe: &[&[u8]]| cells.iter_mut().zip(of_stripe).for_each(|(all, cell)| all.extend(*cell));
    let mut cutter = Cutter::new(scheme(), CELL).unwrap();
    object.chunks(3000).for_each(|piece| cutter.push(piece, &mut sink).unwrap());
    let cut = cutter.finish(&mut sink);
    Coded { cut, cells }
}

/// Six servers, and whoever talks to them.
struct Cluster {
    world: World,
    machines: Vec<Machine>,
    targets: Vec<(Peer, String)>,
    /// The devices, as a proxy chooses them.
    chosen: Arc<[Device]>,
    away: Vec<usize>,
}

impl Cluster {
    fn new(carrier: Carrier) -> Self {
        let world = World::new(carrier);
        let (mut machines, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            let (machine, mut its) = world.machine(1, Limits::default());
            machines.push(machine);
            targets.append(&mut its);
        }
        let mut cluster = Self { world, machines, targets, chosen: Arc::new([]), away: Vec::new() };
        let device = |number: usize| {
            let incarnation = cluster.ask(number, FragmentRequest::Incarnation).unwrap();
            Device { number: number as u32, incarnation: decode_incarnation(&incarnation.header).unwrap() }
        };
        cluster.chosen = (0..6).map(device).collect();
        cluster
    }

    fn ask(&self, place: usize, request: FragmentRequest) -> Result<swiftlet_node::Fetched, Failure> {
        if self.away.contains(&place) {
            return Err(Failure::Damaged("it is away"));
        }
        self.world.client.ask(&self.targets[place], &Request::Fragment(request), None, LONG)
    }

    fn keep(
        &self,
        number: u64,
        place: usize,
        version: Version,
        coded: &Coded,
        certain: bool,
    ) -> Result<Answer, Failure> {
        if self.away.contains(&place) {
            return Err(Failure::Damaged("it is away"));
        }
        let meta = PutMeta { name: b"/a/c/o".to_vec(), timestamp: version.timestamp, ..PutMeta::default() };
        let key = key(number, place);
        let request = FragmentRequest::Keep { key, certain, cell_bytes: CELL as u32, size: None, meta, row: 0 };
        let target = std::slice::from_ref(&self.targets[place]);
        let request = Request::Fragment(request);
        let mut stream = self.world.client.open_put(target, &request, None, LONG)?;
        for piece in coded.cells[place].chunks(1500) {
            stream.send(&Chunk::from(piece.to_vec()));
        }
        let block = coded.cut.block(place, version.generation, self.chosen.clone()).unwrap();
        let footer = Footer { etag: b"etag".to_vec(), block: Block { cells: Vec::new(), ..block } };
        stream.keep(&footer).pop().unwrap()
    }

    /// Send what a decision wants sent to a place; an answer if there is one.
    fn tell(&self, number: u64, place: usize, asked: Asked) -> Option<Answer> {
        let about = FragmentRequest::About { key: key(number, place), asked };
        self.ask(place, about).ok().map(|fetched| decode_answer(&fetched.header).unwrap())
    }

    /// Write, and stop after so many messages; what the client was told.
    fn write(&self, number: u64, version: Version, object: &[u8], most: usize) -> (Option<Verdict>, usize) {
        let coded = coded(object);
        let mut write = Write::new(terms(), version, self.chosen.clone());
        let mut waiting: VecDeque<(usize, Asked)> = write.start().into();
        let mut sent = 0;
        loop {
            while let Some((place, asked)) = waiting.pop_front() {
                if sent == most {
                    return (write.verdict(), sent);
                }
                sent += 1;
                let answer = match &asked {
                    Asked::Prepare { .. } => self.keep(number, place, version, &coded, false).ok(),
                    asked => self.tell(number, place, asked.clone()),
                };
                let Some(answer) = answer else { continue };
                waiting.extend(match asked {
                    Asked::Prepare { .. } => write.prepared(place, &answer),
                    Asked::Commit(_) => write.committed(place, &answer),
                    _ => Vec::new(),
                });
            }
            waiting = write.give_up().into();
            if waiting.is_empty() {
                return (write.verdict(), sent);
            }
        }
    }

    /// What becomes of a version, decided by devices that have waited for its proxy, each with a round of its own, all
    /// at the same time.
    fn recover(&self, number: u64, version: Version, rounds: &[u32]) -> Vec<End> {
        let mut targets: Vec<_> = self.targets.iter().cloned().map(Some).collect();
        self.away.iter().for_each(|place| targets[*place] = None);
        let of_ring = Key { partition: key(number, 0).partition / 32, ..key(number, 0) };
        let devices = Devices::new(targets);
        let places = Places::new(devices, of_ring, (scheme(), CELL), (0..6).collect(), Vec::new()).unwrap();
        let start = |round: &u32| {
            let events = Completions::new().unwrap();
            let ballot = Ballot { round: *round, nonce: u64::from(*round) * 42 };
            let (about, sink) = ((version, self.chosen.clone()), (events.clone() as Arc<dyn Sink>, 7));
            (Recovering::start(places.clone(), about, ballot, (LONG, "tx"), sink).unwrap(), events)
        };
        let started: Vec<_> = rounds.iter().map(start).collect();
        let ended = started.iter().map(|(recovering, events)| {
            let told = events.wait(LONG);
            assert!(matches!(&told[..], [event] if event.token == 7 && matches!(event.what, What::End(_))));
            recovering.end().unwrap()
        });
        ended.collect()
    }

    /// Let all that know of undecided versions of an object find out, and settle what counts.
    fn recover_all(&self, number: u64, round: u32) {
        for machine in &self.machines {
            for undecided in machine.stores[0].undecided_fragments(100) {
                if undecided.key.digest != key(number, 0).digest {
                    continue;
                }
                // A round of sync settles what was decided.
                if self.recover(number, undecided.version, &[round]) == [End::Decided(Outcome::Commit)] {
                    for place in 0..6 {
                        self.tell(number, place, Asked::Settle(undecided.version));
                    }
                }
            }
        }
    }

    /// Bytes of an object as a reader gets them: its version with them, or what is the matter.
    fn read(&self, number: u64, bytes: std::ops::Range<u64>) -> Result<(Version, Vec<u8>), Step> {
        let mut read = Read::new(terms());
        let mut step = Step::Ask(None);
        let mut blocks: BTreeMap<Version, Block> = BTreeMap::new();
        loop {
            step = match step {
                Step::Ask(below) => {
                    let mut next = Step::Wait;
                    for place in 0..6 {
                        let (start, stop) = (bytes.start, bytes.end);
                        let asked = FragmentRequest::Newest { key: key(number, place), below, start, stop };
                        let Ok(fetched) = self.ask(place, asked) else { continue };
                        let newest = Newest::decode(&fetched.header).unwrap();
                        if let Some((info, cells)) = newest.fragment {
                            check(&info.block, cells.first, &cells.xxh3, &fetched.body);
                            blocks.insert(info.version(), info.block);
                        }
                        let answer = Answer::Newest { committed: newest.committed, floor: newest.floor };
                        next = read.newest(Some(place), &answer);
                        if next != Step::Wait {
                            break;
                        }
                    }
                    if next == Step::Wait { read.wait_no_longer() } else { next }
                }
                Step::Fetch(version) => {
                    let mut next = Step::Wait;
                    for place in 0..6 {
                        let answer = match self.cells(number, place, version, 0..0) {
                            Some(Given::Cells(_)) => Answer::Fragment(self.chosen.clone()),
                            Some(Given::Not(answer)) => answer,
                            None => continue,
                        };
                        let found = read.fetched(version, place, &answer);
                        if found != Step::Wait {
                            next = found;
                        }
                    }
                    if next == Step::Wait { read.wait_no_longer() } else { next }
                }
                Step::Give(version) => return Ok((version, self.assemble(number, version, &blocks[&version], bytes))),
                other => return Err(other),
            }
        }
    }

    fn cells(&self, number: u64, place: usize, version: Version, cells: std::ops::Range<u64>) -> Option<Given> {
        let key = key(number, place);
        let asked = FragmentRequest::Cells { key, version, first: cells.start, end: cells.end };
        Some(Given::decode(&self.ask(place, asked).ok()?.header).unwrap())
    }

    fn assemble(&self, number: u64, version: Version, block: &Block, bytes: std::ops::Range<u64>) -> Vec<u8> {
        let here = |place: &usize| matches!(self.cells(number, *place, version, 0..0), Some(Given::Cells(_)));
        let usable: Vec<usize> = (0..6).filter(here).collect();
        let mut assembly = Assembly::new(block.geometry, bytes, &usable);
        let mut object = Vec::new();
        while let Some(wanted) = assembly.wanted().unwrap().map(<[Wanted]>::to_vec) {
            let fetch = |wanted: &Wanted| {
                let (key, first) = (key(number, wanted.index), wanted.stripe);
                let asked = FragmentRequest::Cells { key, version, first, end: first + 1 };
                let fetched = self.ask(wanted.index, asked).unwrap();
                let Given::Cells(cells) = Given::decode(&fetched.header).unwrap() else { panic!("it was here") };
                (fetched.body, cells.xxh3[0])
            };
            let fetched: Vec<(Vec<u8>, u64)> = wanted.iter().map(fetch).collect();
            let given: Vec<_> = fetched.iter().map(|(bytes, xxh3)| GivenCell { bytes, xxh3: *xxh3 }).collect();
            assembly.give(&given, |bytes| object.extend_from_slice(bytes)).unwrap();
        }
        object
    }
}

/// Each cell has the digest that came with it.
fn check(block: &Block, first: u64, digests: &[u64], mut body: &[u8]) {
    for (number, digest) in (first..).zip(digests) {
        let cell = block.geometry.stripe(number).and_then(|stripe| stripe.cell(block.index)).unwrap();
        let (bytes, rest) = body.split_at(cell.bytes);
        assert_eq!(swiftlet_hash::xxh3_64(bytes), *digest);
        body = rest;
    }
    assert!(body.is_empty());
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
fn objects_are_written_and_read_with_any_two_devices_away() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    for (number, size) in (0..).zip([0, 1, 4, 1023, 4 * CELL, 4 * CELL + 1, 40_000]) {
        let object = content(number, size);
        let (verdict, messages) = cluster.write(number, version(10), &object, usize::MAX);
        assert_eq!((verdict, messages), (Some(Verdict::Acknowledged), MESSAGES), "{size}");
        for away in patterns() {
            cluster.away = away;
            let what = format!("{size} bytes without {:?}", cluster.away);
            assert_eq!(cluster.read(number, 0..u64::MAX).as_ref(), Ok(&(version(10), object.clone())), "{what}");
            let (start, stop) = (size / 3, size / 3 + 1500.min(size));
            let range = cluster.read(number, start as u64..stop as u64).map(|(_, bytes)| bytes);
            assert_eq!(range.as_deref(), Ok(&object[start..stop.min(size)]), "{what}");
        }
        cluster.away.clear();
    }
    // One more is too many, and is no proof that there is nothing.
    cluster.away = vec![0, 1, 5];
    assert_eq!(cluster.read(6, 0..u64::MAX), Err(Step::Unavailable));
    cluster.away.clear();
    assert_eq!(cluster.read(99, 0..u64::MAX), Err(Step::NotFound));
}

#[test]
fn servers_that_are_gone_are_done_without() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    let (first, second) = (content(1, 20_000), content(2, 30_000));
    assert_eq!(cluster.write(1, version(10), &first, usize::MAX).0, Some(Verdict::Acknowledged));
    cluster.machines.remove(2);
    // q is 5: with one away the write is acknowledged still.
    assert_eq!(cluster.write(1, version(11), &second, usize::MAX).0, Some(Verdict::Acknowledged));
    cluster.machines.remove(3);
    assert_eq!(cluster.read(1, 0..u64::MAX), Ok((version(11), second.clone())));
    // With two it never happens, and the one before it is left.
    assert_eq!(cluster.write(1, version(12), &first, usize::MAX).0, Some(Verdict::Failed));
    assert_eq!(cluster.read(1, 0..u64::MAX), Ok((version(11), second)));
}

/// A writer stops after each of its messages, once on a new object and once over an older version.
#[test]
fn a_writer_may_stop_between_any_two_messages() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (old, new) = (content(1, 9000), content(2, 12_000));
    for is_overwritten in [false, true] {
        for most in 0..MESSAGES {
            let number = 100 + most as u64 * 2 + u64::from(is_overwritten);
            let what = format!("stopped after {most}, overwritten: {is_overwritten}");
            if is_overwritten {
                assert_eq!(cluster.write(number, version(10), &old, usize::MAX).0, Some(Verdict::Acknowledged));
            }
            let (verdict, _) = cluster.write(number, version(11), &new, most);
            let acknowledged = verdict == Some(Verdict::Acknowledged);
            let before = cluster.read(number, 0..u64::MAX);
            cluster.recover_all(number, 1);
            let after = cluster.read(number, 0..u64::MAX);
            for (found, when) in [(&before, "before"), (&after, "after")] {
                match found {
                    Ok((at, bytes)) if *at == version(11) => assert!(*bytes == new, "{what}: {when}"),
                    Ok((at, bytes)) => assert!(is_overwritten && *at == version(10) && *bytes == old, "{what}: {when}"),
                    // That nothing is decided yet may leave a reader without an answer, never with a wrong one.
                    Err(Step::Unavailable) => assert!(when == "before" && !acknowledged, "{what}: {when}"),
                    Err(step) => assert!(!is_overwritten && *step == Step::NotFound, "{what}: {when}: {step:?}"),
                }
            }
            if acknowledged {
                assert_eq!(after, Ok((version(11), new.clone())), "{what}");
            }
            for machine in &cluster.machines {
                let left = machine.stores[0].undecided_fragments(100);
                assert!(left.iter().all(|left| left.key.digest != key(number, 0).digest), "{what}: {left:?}");
            }
            // The proxy that comes back finds what was decided.
            let late = (0..6).filter_map(|place| cluster.tell(number, place, Asked::Commit(version(11))));
            let late: Vec<Answer> = late.collect();
            let decided = matches!(after, Ok((at, _)) if at == version(11));
            let expected = if decided { Outcome::Commit } else { Outcome::Abort };
            let fits = |answer: &Answer| *answer == Answer::Decided(expected) || *answer == Answer::Missing;
            assert!(late.iter().all(fits), "{what}: {late:?}");
        }
    }
    for machine in &cluster.machines {
        assert_eq!(machine.stores[0].check().unwrap(), Vec::<String>::new());
    }
}

/// Several devices try to decide at the same time, with two others away; and later those with all others.
#[test]
fn rivals_decide_the_same() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    let object = content(1, 9000);
    let (mut number, mut seen) = (0, BTreeSet::new());
    for most in [4, 6, 8, 9, 11, 12] {
        for away in patterns().into_iter().filter(|away| away.len() == 2).step_by(3) {
            number += 1;
            let what = format!("stopped after {most}, without {away:?}");
            assert_ne!(cluster.write(number, version(10), &object, most).0, Some(Verdict::Failed));
            cluster.away = away;
            let (mut round, mut outcomes) = (1, BTreeSet::new());
            while outcomes.is_empty() {
                for end in cluster.recover(number, version(10), &[round, round + 1, round + 2]) {
                    match end {
                        End::Decided(outcome) => drop(outcomes.insert(outcome)),
                        End::Later(seen) => assert!(seen >= round, "{what}: {end:?}"),
                        End::Superseded => panic!("{what}: nothing is newer"),
                    }
                }
                round += 3;
            }
            cluster.away.clear();
            for end in cluster.recover(number, version(10), &[round, round + 1]) {
                let End::Decided(outcome) = end else { panic!("{what}: {end:?} after it was decided") };
                outcomes.insert(outcome);
            }
            assert_eq!(outcomes.len(), 1, "{what}: {outcomes:?}");
            let found = cluster.read(number, 0..u64::MAX);
            let is_there = outcomes.contains(&Outcome::Commit);
            assert_eq!(found, if is_there { Ok((version(10), object.clone())) } else { Err(Step::NotFound) }, "{what}");
            seen.extend(outcomes);
        }
    }
    assert_eq!(seen.len(), 2, "some were committed, and some aborted");
    // Half of the devices decide nothing.
    cluster.write(99, version(10), &object, 9);
    cluster.away = vec![0, 2, 4];
    assert_eq!(cluster.recover(99, version(10), &[1]), [End::Later(1)]);
}

#[test]
fn two_attempts_at_one_version_are_never_mixed() {
    let cluster = Cluster::new(Carrier::Tcp);
    let (one, other) = (content(1, 9000), content(2, 9000));
    let versions = [Version { timestamp: 10, generation: 1 }, Version { timestamp: 10, generation: 2 }];
    let (first, second) = (coded(&one), coded(&other));
    for place in 0..6 {
        assert_eq!(cluster.keep(1, place, versions[0], &first, false), Ok(Answer::Done));
        assert_eq!(cluster.keep(1, place, versions[1], &second, false), Ok(Answer::Done));
    }
    for place in 0..6 {
        let of = versions[usize::from(place < 3)];
        assert_eq!(cluster.tell(1, place, Asked::Commit(of)), Some(Answer::Done));
    }
    let (version, bytes) = cluster.read(1, 0..u64::MAX).unwrap();
    assert_eq!(bytes, if version == versions[0] { one } else { other });
    for (place, damaged) in [(0, true), (1, false)] {
        let mut wrong = coded(&bytes);
        if damaged {
            wrong.cells[place][5] ^= 1;
        } else {
            wrong.cells[place].push(0);
        }
        let answer = cluster.keep(2, place, versions[0], &wrong, false);
        let status = answer.expect_err("refused").status();
        assert_eq!(status, Some(if damaged { Status::ChecksumMismatch } else { Status::SizeMismatch }));
    }
}

/// An empty device in the place of a chosen one has no voice about what was written before, and takes no fragment that
/// was meant for its predecessor.
#[test]
fn who_replaces_a_chosen_device_does_not_answer_for_it() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    let object = content(1, 9000);
    // Prepared by all six, and committed by four: neither acknowledged nor impossible.
    assert_eq!(cluster.write(1, version(10), &object, 10).0, None);
    let (machine, mut target) = cluster.world.machine(1, Limits::default());
    cluster.machines[5] = machine;
    cluster.targets[5] = target.remove(0);
    let (ballot, chosen) = (Ballot { round: 1, nonce: 1 }, cluster.chosen.clone());
    let promise = Asked::Promise { version: version(10), chosen, ballot };
    assert_eq!(cluster.tell(1, 5, promise), Some(Answer::Missing));
    assert_eq!(cluster.keep(1, 5, version(10), &coded(&object), false), Ok(Answer::Missing));
    assert_eq!(cluster.cells(1, 5, version(10), 0..1), Some(Given::Not(Answer::Missing)));
    assert_eq!(cluster.recover(1, version(10), &[2]), [End::Decided(Outcome::Commit)]);
    cluster.recover_all(1, 3);
    assert_eq!(cluster.read(1, 0..u64::MAX), Ok((version(10), object)));
}

#[test]
fn an_answer_has_no_more_than_its_limits() {
    let cluster = Cluster::new(Carrier::Simulated);
    let object = content(3, 4 * CELL * 1100);
    assert_eq!(cluster.write(1, version(10), &object, usize::MAX).0, Some(Verdict::Acknowledged));
    let asked = FragmentRequest::Cells { key: key(1, 2), version: version(10), first: 3, end: u64::MAX };
    let fetched = cluster.ask(2, asked).unwrap();
    let Given::Cells(cells) = Given::decode(&fetched.header).unwrap() else { panic!("it is here") };
    assert_eq!((cells.first, cells.xxh3.len() as u64), (3, MAX_READ_CELLS));
    assert_eq!(fetched.body.len(), CELL * MAX_READ_CELLS as usize);
    let newest = FragmentRequest::Newest { key: key(1, 0), below: None, start: 0, stop: u64::MAX };
    let fetched = cluster.ask(0, newest).unwrap();
    assert_eq!(fetched.body.len(), CELL * MAX_READ_CELLS as usize);
    // Only who has data of the range sends some.
    for (place, start, stop, cells) in
        [(0, 0, 10, 1), (1, 0, 10, 0), (1, 1024, 1025, 1), (0, 1024, 4096 + 1, 1), (5, 0, 9999, 0)]
    {
        let newest = FragmentRequest::Newest { key: key(1, place), below: None, start, stop };
        let fetched = cluster.ask(place, newest).unwrap();
        assert_eq!(fetched.body.len(), cells * CELL, "{place}, {start}");
    }
    // A body without a footer behind it is no fragment, and neither is one of another device's place.
    let meta = PutMeta::default();
    let keep =
        FragmentRequest::Keep { key: key(1, 2), certain: false, cell_bytes: CELL as u32, size: None, meta, row: 0 };
    let small = Chunk::from(vec![1, 2, 3]);
    let answer = cluster.world.client.ask(&cluster.targets[2], &Request::Fragment(keep), Some(&small), LONG);
    assert_eq!(answer.expect_err("refused").status(), Some(Status::WireError));
}

#[test]
fn a_rotten_cell_is_replaced_by_others() {
    let cluster = Cluster::new(Carrier::Tcp);
    let object = content(4, 4 * CELL * 1200);
    assert_eq!(cluster.write(1, version(10), &object, usize::MAX).0, Some(Verdict::Acknowledged));
    let path = only_file(&cluster.machines[1].directories[0].0.join("large"));
    let mut raw = std::fs::read(&path).unwrap();
    raw[2000] ^= 1;
    std::fs::write(&path, raw).unwrap();
    let asked = FragmentRequest::Cells { key: key(1, 1), version: version(10), first: 1, end: 2 };
    let refused = cluster.ask(1, asked).expect_err("damaged");
    assert_eq!(refused.status(), Some(Status::ChecksumMismatch));
    assert_eq!(cluster.cells(1, 1, version(10), 0..1), Some(Given::Not(Answer::Missing)));
    assert_eq!(cluster.read(1, 3000..9000), Ok((version(10), object[3000..9000].to_vec())));
    // It comes again, and counts.
    assert_eq!(cluster.keep(1, 1, version(10), &coded(&object), true), Ok(Answer::Done));
    assert!(matches!(cluster.cells(1, 1, version(10), 0..1), Some(Given::Cells(_))));
}
