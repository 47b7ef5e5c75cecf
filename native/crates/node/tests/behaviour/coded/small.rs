//! Small objects as copies, beside the fragments of what they were before: written, read, changed and deleted with devices
//! away, and from one form to the other.

use super::*;
use std::collections::HashMap;
use std::sync::Condvar;

use swiftlet_fragments::deletion::Deleted;
use swiftlet_fragments::posting::Posted;
use swiftlet_node::Coding;
use swiftlet_node::coded::{Deleting, Posting, SmallWriting, SmallWritten, StepOptions};
use swiftlet_store::model::{Entry, EntryKind, Footer, PostMeta};
use swiftlet_transport::{Call, Event, Sink};

fn step() -> StepOptions {
    StepOptions { timeout: LONG, after_quorum: LONG, rows: vec![1, 2, 4], trace: "tx".to_owned() }
}

pub(super) fn small_reading() -> ReadOptions {
    ReadOptions { small: true, ..reading() }
}

pub(super) fn get(places: Places, first: &[usize]) -> Got {
    read(places, first, 0..u64::MAX, small_reading())
}

fn copies_of(number: u64) -> Key {
    Key { partition: 32 * key(number).partition + 31, ..key(number) }
}

/// All places, those of `behind` last: whoever reads knows who has missed something.
pub(super) fn first(behind: &[usize]) -> Vec<usize> {
    let mut first: Vec<usize> = (0..6).collect();
    first.sort_by_key(|place| behind.contains(place));
    first
}

/// The outcome, and the updates that are pending.
pub(super) fn write_small(places: Places, timestamp: u64, object: &[u8]) -> (SmallWritten, Vec<Owed>) {
    let events = Completions::new().unwrap();
    let footer = Footer { size: object.len() as u64, etag: b"etag".to_vec(), xxh3: swiftlet_hash::xxh3_64(object) };
    let about = (meta(timestamp), footer, Chunk::from(object.to_vec()));
    let writing = SmallWriting::start(places, about, step(), (events.clone(), 7));
    loop {
        drop(events.wait(writing.turn()));
        if let Some(end) = writing.end() {
            return (end, writing.owed());
        }
    }
}

pub(super) fn delete(places: Places, timestamp: u64) -> Deleted {
    let events = Completions::new().unwrap();
    let deleting = Deleting::start(places, (timestamp, b"/a/c/o".to_vec()), step(), (events.clone(), 7));
    loop {
        drop(events.wait(deleting.turn()));
        if let Some(end) = deleting.end() {
            return end;
        }
    }
}

pub(super) fn post(places: Places, timestamp: u64) -> (Posted, Vec<Owed>) {
    let events = Completions::new().unwrap();
    let metadata = vec![(b"at".to_vec(), timestamp.to_string().into_bytes())];
    let meta = PostMeta { timestamp, metadata, ..PostMeta::default() };
    let posting = Posting::start_small(places, meta, step(), (events.clone(), 7));
    loop {
        drop(events.wait(posting.turn()));
        if let Some(end) = posting.end() {
            return (end, posting.owed());
        }
    }
}

impl Cluster {
    /// Servers that know how the policy is coded.
    pub(super) fn knowing() -> Self {
        let cluster = Self::new(Carrier::Simulated);
        cluster.machines.iter().for_each(know);
        cluster
    }

    /// Write a small object until it is acknowledged.
    pub(super) fn put_small(&self, number: u64, timestamp: u64, object: &[u8], away: &[usize]) {
        let (end, _) = write_small(self.places(number, 2, away), timestamp, object);
        assert_eq!((end.verdict, end.past), (Verdict::Acknowledged, None), "{timestamp} without {away:?}: {end:?}");
    }

    fn entry(&self, machine: usize, key: &Key) -> Option<(EntryKind, u64)> {
        let entry: Option<Entry> = self.machines[machine].stores[0].entry(key).unwrap();
        entry.map(|entry| (entry.kind, entry.timestamp))
    }

    pub(super) fn check(&self) {
        for machine in &self.machines {
            assert_eq!(machine.stores[0].check().unwrap(), Vec::<String>::new());
        }
    }
}

fn know(machine: &Machine) {
    let coding = Coding { scheme: scheme(), cell_bytes: CELL };
    machine.server.set_codings(HashMap::from([(2, Some(coding))]));
}

#[test]
fn small_objects_are_written_and_read_with_any_two_devices_away() {
    let cluster = Cluster::knowing();
    for (number, away) in (0..).zip(patterns()) {
        for (timestamp, size) in [(10, 0), (20, 1), (30, 5000)] {
            let object = content(number, size);
            let (end, owed) = write_small(cluster.places(number, 2, &away), timestamp, &object);
            assert_eq!((end.verdict, end.past, end.copies), (Verdict::Acknowledged, None, 3), "{away:?}");
            // The updates are pending with the copies, under one key.
            assert_eq!(owed.iter().map(|owed| owed.row).sum::<u32>(), 1 + 2 + 4, "{owed:?}");
            for Owed { key, device, row, .. } in owed {
                assert_eq!(key, copies_of(number));
                let due = cluster.machines[device as usize].stores[0].pending_updates(1000, Duration::ZERO);
                assert!(due.iter().any(|due| (due.key, due.timestamp) == (key, timestamp) && due.row & row == row));
            }
            for gone in patterns().into_iter().filter(|gone| gone.iter().all(|place| !away.contains(place))) {
                let what = format!("{size} bytes, written without {away:?}, read without {gone:?}");
                let places = || cluster.places(number, 2, &gone);
                assert_eq!(get(places(), &first(&away)), Ok((timestamp, object.clone())), "{what}");
                let (start, stop) = (size / 3, size / 3 + 100.min(size - size / 3));
                let expected = object[start..stop].to_vec();
                let got = read(places(), &first(&away), start as u64..stop as u64, small_reading());
                assert_eq!(got, Ok((timestamp, expected)), "{what}");
                assert_eq!(read(places(), &first(&away), 0..0, small_reading()), Ok((timestamp, Vec::new())), "{what}");
            }
        }
    }
    cluster.check();
}

#[test]
fn without_more_than_half_of_the_copies_nothing_is_acknowledged() {
    let cluster = Cluster::knowing();
    let (end, _) = write_small(cluster.places(1, 0, &[0, 2]), 10, b"new");
    assert_eq!((end.verdict, end.copies), (Verdict::Unknown, 1));
    let (end, _) = write_small(cluster.places(2, 0, &[0, 1, 2]), 10, b"new");
    assert_eq!((end.verdict, end.copies), (Verdict::Failed, 0));
    // Two copies, and no other place that could know of them.
    let (end, _) = write_small(cluster.places(3, 0, &[0, 3, 4, 5]), 10, b"new");
    assert_eq!((end.verdict, end.copies), (Verdict::Unknown, 2));
    let (end, _) = write_small(cluster.places(4, 0, &[0, 3, 4]), 10, b"new");
    assert_eq!((end.verdict, end.copies), (Verdict::Acknowledged, 2));
}

#[test]
fn that_there_is_none_takes_the_word_of_those_with_copies() {
    let mut cluster = Cluster::knowing();
    cluster.put_small(1, 10, b"small", &[]);
    // Two were replaced by empty devices.
    for place in [0, 1] {
        cluster.replace(place);
        know(&cluster.machines[place]);
    }
    assert_eq!(get(cluster.places(1, 0, &[]), &first(&[])), Ok((10, b"small".to_vec())));
    assert_eq!(get(cluster.places(1, 0, &[2]), &first(&[])), Err(ReadEnd::Unavailable), "the third one may have it");
    assert_eq!(get(cluster.places(2, 0, &[]), &first(&[])), Err(ReadEnd::NotFound(None)));
    // In a policy without small objects any places say it.
    assert_eq!(read(cluster.places(2, 0, &[2]), &first(&[]), 0..9, reading()), Err(ReadEnd::NotFound(None)));
}

#[test]
fn an_object_changes_its_form_with_any_two_devices_away() {
    let cluster = Cluster::knowing();
    for (number, away) in (0..).zip(patterns()) {
        let others = || patterns().into_iter().filter(|gone| gone.iter().all(|place| !away.contains(place)));
        let expect = |timestamp: u64, object: &[u8]| {
            for gone in others() {
                let got = get(cluster.places(number, 2, &gone), &first(&away));
                assert!(got == Ok((timestamp, object.to_vec())), "{timestamp} without {away:?}, read without {gone:?}");
            }
        };
        let (large, larger) = (content(1, 20_000), content(2, 30_000));
        cluster.put(number, 10, &large);
        cluster.put_small(number, 20, b"small", &away);
        expect(20, b"small");
        let written = cluster.written_surely(cluster.places(number, 2, &away), 30, &larger);
        cluster.spread(written, number, 30, &larger, &away);
        expect(30, &larger);
        cluster.put_small(number, 40, b"smaller", &away);
        expect(40, b"smaller");
        assert_eq!(delete(cluster.places(number, 2, &away), 50), Deleted::Done { existed: true });
        for gone in others().filter(|gone| gone.iter().all(|place| *place > 2)) {
            let got = read(cluster.places(number, 2, &gone), &first(&away), 0..u64::MAX, small_reading());
            assert!(
                matches!(got, Err(ReadEnd::NotFound(Some(at))) if at.timestamp == 50),
                "{away:?}, {gone:?}: {got:?}"
            );
        }
    }
    cluster.check();
}

#[test]
fn each_form_ends_what_is_older_of_the_other() {
    use EntryKind::{Data, Tombstone};
    let cluster = Cluster::knowing();
    let at = |place: usize| Key { partition: 32 * key(1).partition + place as u32, ..key(1) };
    cluster.put_small(1, 10, b"small", &[]);
    assert!((3..6).all(|place| cluster.entry(place, &copies_of(1)).is_none()), "there are three copies");
    cluster.put(1, 20, &content(1, 9000));
    // The time is that before the write: nobody takes it for a deletion of it.
    eventually("no copy counts", || (0..3).all(|place| cluster.entry(place, &copies_of(1)) == Some((Tombstone, 19))));
    cluster.put_small(1, 30, b"small", &[]);
    eventually("no fragment counts", || (0..6).all(|place| cluster.entry(place, &at(place)) == Some((Tombstone, 29))));
    // One that comes late is told so, and so is everybody who compares.
    cluster.put(1, 40, &content(1, 9000));
    let (end, _) = write_small(cluster.places(1, 0, &[]), 35, b"late");
    assert_eq!((end.verdict, end.past), (Verdict::Acknowledged, Some(39)));
    assert_eq!(get(cluster.places(1, 0, &[]), &first(&[])), Ok((40, content(1, 9000))));
    assert_eq!(delete(cluster.places(1, 0, &[]), 50), Deleted::Done { existed: true });
    let (end, _) = write_small(cluster.places(1, 0, &[]), 45, b"late");
    assert_eq!((end.verdict, end.past), (Verdict::Acknowledged, Some(50)));
    cluster.put_small(1, 60, b"small", &[]);
    assert_eq!(delete(cluster.places(1, 0, &[]), 70), Deleted::Done { existed: true });
    for place in 0..3 {
        assert_eq!(cluster.entry(place, &copies_of(1)), Some((Tombstone, 70)));
        assert_eq!(cluster.entry(place, &at(place)), Some((Tombstone, 70)));
    }
    assert_eq!(delete(cluster.places(1, 0, &[]), 80), Deleted::Done { existed: false });
    cluster.put_small(1, 90, b"small", &[]);
    assert_eq!(cluster.entry(0, &copies_of(1)), Some((Data, 90)));
    cluster.check();
}

#[test]
fn metadata_of_small_objects_are_kept_by_more_than_half_of_the_copies() {
    let cluster = Cluster::knowing();
    for (number, away) in (0..).zip(patterns().into_iter().filter(|away| away.len() < 2)) {
        cluster.put_small(number, 10, b"small", &[]);
        let (end, owed) = post(cluster.places(number, 2, &away), 20);
        assert_eq!(end, Posted::Done, "{away:?}");
        assert!(owed.len() >= 2 && owed.iter().all(|owed| owed.key == copies_of(number)), "{owed:?}");
        // Two copies have them where the third one has missed them.
        let left = |gone: &[usize]| (0..3).any(|place| !away.contains(&place) && !gone.contains(&place));
        let others = |gone: &Vec<usize>| gone.iter().all(|place| !away.contains(place)) && left(gone);
        for gone in patterns().into_iter().filter(others) {
            let events = Completions::new().unwrap();
            let places = cluster.places(number, 2, &gone);
            let reading = Reading::start(places, &first(&away), 0..0, small_reading(), (events.clone(), 7));
            while reading.end().is_none() {
                drop(events.wait(reading.turn()));
            }
            let info = reading.description().unwrap();
            assert_eq!((info.timestamp, info.meta_timestamp, reading.is_copy()), (10, 20, true), "{away:?}, {gone:?}");
        }
        assert_eq!(post(cluster.places(number, 0, &[]), 15).0, Posted::Superseded(20));
        delete(cluster.places(number, 0, &[]), 30);
        assert_eq!(post(cluster.places(number, 0, &[]), 40).0, Posted::Deleted(30));
    }
    cluster.put_small(99, 10, b"small", &[]);
    assert_eq!(post(cluster.places(99, 0, &[0, 1]), 20).0, Posted::Unknown);
}

#[test]
fn what_is_no_small_object_is_refused() {
    let cluster = Cluster::knowing();
    let client = &cluster.world.client;
    let target = cluster.targets[0].clone().unwrap();
    let put = |key: Key, footer: Option<Footer>, body: &[u8]| {
        let request = Request::Put { key, meta: meta(10), footer, row: 0 };
        client.ask(&target, &request, Some(&Chunk::from(body.to_vec())), LONG)
    };
    let large = vec![0; (1 << 20) + 1];
    assert!(put(copies_of(1), Some(crate::common::footer(&large)), &large).is_err());
    assert!(put(copies_of(1), None, b"small").is_err());
    assert!(put(Key { partition: 3, ..copies_of(1) }, Some(crate::common::footer(b"whole")), b"whole").is_err());
    assert!(put(copies_of(1), Some(crate::common::footer(b"small")), b"small").is_ok());
}

/// Writes in both forms, deletions and reads at random, with as many devices away as may be, other ones each time. Readers
/// know who was away, and ask them last.
#[test]
fn reads_give_what_was_acknowledged_last_in_whichever_form() {
    let cluster = Cluster::knowing();
    let patterns = patterns();
    for seed in 0..40_u64 {
        let draw = |what: u64, below: u64| {
            let of = [seed.to_be_bytes(), what.to_be_bytes()].concat();
            swiftlet_hash::xxh3_64(&of) % below
        };
        let number = 2000 + seed;
        for turn in 1..9 {
            let behind = &patterns[draw(turn, patterns.len() as u64) as usize];
            let timestamp = turn * 10;
            let places = || cluster.places(number, 2, behind);
            let object = match draw(100 + turn, 5) {
                0 => {
                    let end = delete(places(), timestamp);
                    assert!(matches!(end, Deleted::Done { .. }), "{end:?}");
                    None
                }
                1 | 2 => {
                    let object = content(seed * 100 + turn, 4000 + draw(200 + turn, 20_000) as usize);
                    let written = cluster.written_surely(places(), timestamp, &object);
                    cluster.spread(written, number, timestamp, &object, behind);
                    Some(object)
                }
                _ => {
                    let object = content(seed * 100 + turn, draw(200 + turn, 4000) as usize);
                    cluster.put_small(number, timestamp, &object, behind);
                    Some(object)
                }
            };
            for away in [&Vec::new(), &patterns[draw(300 + turn, patterns.len() as u64) as usize]] {
                if object.is_none() && away.iter().any(|place| *place < 3) {
                    continue;
                }
                let mut order = first(&[]);
                order.rotate_left(draw(400 + turn, 6) as usize);
                order.sort_by_key(|place| behind.contains(place));
                let got = get(cluster.places(number, 2, away), &order);
                let what = format!("{seed}, {turn}: written without {behind:?}, read without {away:?}");
                match (&object, got) {
                    (Some(object), got) => {
                        let told = got.as_ref().map(|(at, bytes)| (at, bytes.len()));
                        assert!(got == Ok((timestamp, object.clone())), "{what}: {told:?}");
                    }
                    (None, Ok((at, _))) => panic!("{what}: {at} is back"),
                    (None, Err(end)) => assert!(matches!(end, ReadEnd::NotFound(_)), "{what}: {end:?}"),
                }
            }
        }
    }
    cluster.check();
}

/// Keeps the thread that delivers events to it until it is told to go on.
struct Stopped(Mutex<bool>, Condvar);

impl Sink for Stopped {
    fn events(&self, events: &mut Vec<Event>) {
        events.clear();
        let mut goes_on = self.0.lock().unwrap();
        while !*goes_on {
            goes_on = self.1.wait(goes_on).unwrap();
        }
    }
}

/// Two holders are away that have what is newest; of the other places one alone knows of it, the last one that is asked.
/// On a busy machine the answers of all others come at once: they are not enough, however few are still waited for.
#[test]
fn answers_that_come_at_once_are_no_more_than_they_are() {
    let cluster = Cluster::knowing();
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    cluster.put_small(1, 10, &old, &[]);
    for place in [0, 1] {
        let footer = crate::common::footer(&new);
        cluster.machines[place].stores[0].put(copies_of(1), &meta(30), &footer, new.clone()).unwrap();
    }
    let known = Key { partition: 32 * key(1).partition + 5, ..key(1) };
    cluster.machines[5].stores[0].delete(known, 29, b"/a/c/o".to_vec()).unwrap_err();
    assert_eq!(get(cluster.places(1, 0, &[]), &first(&[])), Ok((30, new)));
    let (faults, delay) = (cluster.world.network.faults(), Duration::from_millis(200));
    faults.delay_us.store(delay.as_micros() as u64, SeqCst);
    let events = Completions::new().unwrap();
    let places = cluster.places(1, 0, &[0, 1]);
    let reading = Reading::start(places, &first(&[]), 0..u64::MAX, small_reading(), (events.clone(), 7));
    // The questions are on their way. A call that ends at once stops the thread that takes the answers in.
    std::thread::sleep(delay / 4);
    let stopped = Arc::new(Stopped(Mutex::new(false), Condvar::new()));
    let sink = Arc::clone(&stopped) as Arc<dyn Sink>;
    let nobody = cluster.world.node.peer(Address { name: "nobody".to_owned(), tcp: None });
    drop(nobody.call(Call { timeout: LONG, ..Call::default() }, &sink, 1));
    std::thread::sleep(4 * delay);
    *stopped.0.lock().unwrap() = true;
    stopped.1.notify_all();
    faults.delay_us.store(0, SeqCst);
    while reading.end().is_none() {
        drop(events.wait(reading.turn()));
    }
    assert!(matches!(reading.end(), Some(ReadEnd::Unavailable | ReadEnd::NotFound(_))), "{:?}", reading.description());
}
