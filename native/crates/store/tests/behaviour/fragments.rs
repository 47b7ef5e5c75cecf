//! Fragments on a device: what it answers, what it serves, what is left of it after crashes and damage.
//!
//! Fault model: as for objects, see `crash` and `damage`. After each crash the device answers as the slots do that its
//! acknowledged answers made, and each fragment has its bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::crashing::{
    Life, crash_anywhere, crash_at_named_points, fail_anywhere, run, start_from_the_volumes_alone,
};
use crate::common::fragments::{CELL, KEYS, Model, Worker, chosen, counting, fragment, index_of, key, meta, written};
use crate::common::{config, footer, random};
use swiftlet_erasure::{Geometry, Scheme};
use swiftlet_fragments::request::{Answer, Request};
use swiftlet_fragments::slot::MAX_FRAGMENTS;
use swiftlet_fragments::{Accepted, Ballot, Outcome, Version};
use swiftlet_store::disk::{Faults, SimulatedDisk};
use swiftlet_store::model::{Key, PutMeta};
use swiftlet_store::{Error, Fetched, KeptAs, Shape, Store};

/// Steps from one crash to the next.
const STEPS: u64 = 60;

fn open(disk: &Arc<SimulatedDisk>) -> Store {
    Store::open_disk(Arc::clone(disk) as _, config()).expect("it opens")
}

fn version(timestamp: u64) -> Version {
    Version { timestamp, generation: 1 }
}

fn prepare(store: &Store, number: u64, version: Version) -> swiftlet_store::Result<Answer> {
    let (writer, block) = written(store, key(number), version)?;
    writer.prepare(&meta(version), b"etag", block)
}

fn ask(store: &Store, number: u64, request: Request) -> Answer {
    store.about_fragment(key(number), request).expect("an answer")
}

/// Prepared, committed and settled.
fn settle(store: &Store, number: u64, version: Version) {
    assert_eq!(prepare(store, number, version), Ok(Answer::Done));
    assert_eq!(ask(store, number, Request::Commit(version)), Answer::Done);
    assert_eq!(ask(store, number, Request::Settle(version)), Answer::Done);
}

fn bytes_of(store: &Store, number: u64, version: Version) -> Vec<u8> {
    match store.fragment(&key(number), version).expect("read") {
        Fetched::Fragment(fragment) => fragment.cells(0..u64::MAX).expect("sound"),
        Fetched::Not(answer) => panic!("{answer:?}"),
    }
}

#[test]
fn crashes_in_the_middle_of_any_operation() {
    crash_anywhere::<Worker>(200, STEPS, 260);
}

#[test]
fn crashes_at_every_named_point() {
    let points = (1..8).flat_map(|seed| run::<Worker>(seed, STEPS, &[Faults::default()])).collect();
    crash_at_named_points::<Worker>(points, STEPS, 3);
}

#[test]
fn an_io_error_ends_everything_until_the_store_is_opened_again() {
    fail_anywhere::<Worker>(100, STEPS, 500);
}

#[test]
fn an_index_is_made_of_the_volumes_alone() {
    start_from_the_volumes_alone::<Worker>();
}

#[test]
fn a_write_goes_through_its_steps_and_ends_the_version_before_it() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    settle(&store, 0, version(10));
    let first = store.suffixes((3, key(0).partition)).expect("hashes");
    assert_eq!(prepare(&store, 0, version(11)), Ok(Answer::Done));
    assert_eq!(ask(&store, 0, Request::Commit(version(11))), Answer::Done);
    let newest = store.newest_fragment(&key(0), None).expect("read");
    assert_eq!((newest.committed, newest.floor), (Some(version(11)), Some(version(10))));
    assert_eq!(newest.fragment.expect("here").info().version(), version(11));
    // Nobody knows yet that it counts: other places are shown the one before, and both can be read.
    assert_eq!(store.suffixes((3, key(0).partition)).expect("hashes"), first);
    assert_eq!(bytes_of(&store, 0, version(10)), fragment(version(10), 0).0);
    assert_eq!(bytes_of(&store, 0, version(11)), fragment(version(11), 0).0);
    assert_eq!(ask(&store, 0, Request::Settle(version(11))), Answer::Done);
    assert_ne!(store.suffixes((3, key(0).partition)).expect("hashes"), first);
    let dead = store.fragment(&key(0), version(10)).expect("read");
    assert!(matches!(dead, Fetched::Not(Answer::Superseded(newer)) if newer == version(11)));
    // A fragment is no object, but other places are shown of which time it is.
    assert!(matches!(store.get(&key(0)), Err(Error::NotFound(None))));
    let entries = store.entries((3, key(0).partition), key(0).suffix()).expect("listed");
    assert_eq!(entries.iter().map(|entry| (entry.digest, entry.timestamp)).collect::<Vec<_>>(), [(key(0).digest, 11)]);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn a_policy_is_known_to_be_kept_as_its_objects_are() {
    let store = open(&SimulatedDisk::new(1, Faults::default()));
    assert_eq!(store.kept_as(3), Ok(None));
    // What is only prepared, or deleted, says nothing.
    assert_eq!(prepare(&store, 0, version(10)), Ok(Answer::Done));
    assert_eq!(store.kept_as(3), Ok(None));
    settle(&store, 1, version(10));
    let scheme = Scheme::new(2, 1).expect("a scheme");
    assert_eq!(store.kept_as(3), Ok(Some(KeptAs::Coded { scheme, cell_bytes: CELL })));
    let whole = Key { policy: 4, ..key(0) };
    assert_eq!(store.delete(whole, 5, b"/a/c/o".to_vec()), Err(Error::NotFound(Some(5))));
    assert_eq!(store.kept_as(4), Ok(None));
    store.put(whole, &meta(version(9)), &footer(b"body"), b"body".to_vec()).expect("stored");
    assert_eq!(store.kept_as(4), Ok(Some(KeptAs::Whole)));
}

#[test]
fn equal_versions_have_equal_hashes_at_all_places_and_generations_differ() {
    let hashes = |number: u64, version: Version| {
        let store = open(&SimulatedDisk::new(1, Faults::default()));
        // The same object's fragments, under the keys of their places.
        let key = swiftlet_store::model::Key { partition: index_of(number) as u32, ..key(0) };
        let (writer, block) = written(&store, key, version).expect("written");
        assert_eq!(writer.keep(&meta(version), b"etag", block), Ok(Answer::Done));
        store.suffixes((3, key.partition)).expect("hashes")
    };
    assert_eq!(hashes(0, version(10)), hashes(1, version(10)));
    assert_ne!(hashes(0, version(10)), hashes(0, Version { generation: 2, ..version(10) }));
    assert_ne!(hashes(0, version(10)), hashes(0, version(11)));
}

#[test]
fn a_fifth_fragment_is_refused_and_leaves_nothing() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    for at in 0..MAX_FRAGMENTS as u64 {
        assert_eq!(prepare(&store, 1, version(10 + at)), Ok(Answer::Done));
    }
    let files = |disk: &SimulatedDisk| disk.files().iter().filter(|(path, _)| path.starts_with("large/")).count();
    let before = files(&disk);
    assert_eq!(prepare(&store, 1, version(15)), Ok(Answer::Busy));
    assert_eq!(files(&disk), before);
    assert_eq!(store.undecided_fragments(100).len(), MAX_FRAGMENTS);
    assert_eq!(store.undecided_fragments(3).len(), 3);
    let abort = Request::Decide { version: version(10), outcome: Outcome::Abort };
    assert_eq!(ask(&store, 1, abort), Answer::Done);
    assert_eq!(prepare(&store, 1, version(15)), Ok(Answer::Done));
    assert_eq!(store.undecided_fragments(100)[0].chosen, chosen());
}

#[test]
fn fragments_with_a_time_to_go_are_listed_when_it_has_come() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    let (writer, block) = written(&store, key(1), version(10)).expect("written");
    let meta = PutMeta { delete_at: 500, ..meta(version(10)) };
    assert_eq!(writer.prepare(&meta, b"etag", block), Ok(Answer::Done));
    assert_eq!(store.expired(600), [], "nobody knows whether it counts");
    assert_eq!(ask(&store, 1, Request::Commit(version(10))), Answer::Done);
    assert_eq!(ask(&store, 1, Request::Settle(version(10))), Answer::Done);
    assert_eq!((store.expired(499), store.expired(500)), (vec![], vec![(key(1), 10)]));
    store.checkpoint().expect("written");
    drop(store);
    let disk = disk.after_crash(Faults::default());
    let store = open(&disk);
    assert_eq!((store.expired(499), store.expired(500)), (vec![], vec![(key(1), 10)]));
    settle(&store, 1, version(11));
    assert_eq!(store.expired(u64::MAX), []);
}

#[test]
fn what_is_not_settled_is_listed_page_by_page() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    settle(&store, 0, version(10));
    for number in 1..KEYS {
        assert_eq!(prepare(&store, number, version(10)), Ok(Answer::Done));
        assert_eq!(prepare(&store, number, version(11)), Ok(Answer::Done));
    }
    let count = Request::Decide { version: version(11), outcome: Outcome::Commit };
    assert_eq!(ask(&store, 1, count), Answer::Done);
    let (all, more) = store.unsettled_fragments(3, None, 100);
    assert!(!more);
    let told: Vec<_> = all.iter().map(|one| (one.of.key, one.of.version, one.certain)).collect();
    let mut expected: Vec<_> =
        (1..KEYS).flat_map(|number| [10, 11].map(|at| (key(number), version(at), (number, at) == (1, 11)))).collect();
    expected.sort_by_key(|(key, version, _)| (key.partition, key.digest, *version));
    assert_eq!(told, expected);
    assert!(all.iter().all(|one| one.of.chosen == chosen()));
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        // The versions of one fragment come together.
        let (page, more) = store.unsettled_fragments(3, after, 1);
        assert_eq!(page.len(), 2);
        after = page.last().map(|last| (last.of.key.partition, last.of.key.digest));
        paged.extend(page);
        if !more {
            break;
        }
    }
    assert_eq!(paged, all);
    assert_eq!(store.unsettled_fragments(4, None, 100), (Vec::new(), false));
}

#[test]
fn what_comes_has_to_be_what_the_footer_says() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    for at in 10..16 {
        let (bytes, block) = fragment(version(at), 0);
        let block = swiftlet_fragments::block::Block { cells: Vec::new(), ..block };
        let send = |bytes: &[u8], block: &swiftlet_fragments::block::Block, cell_bytes: usize| {
            let shape = Shape { cell_bytes, size: None, aggregate_below: None };
            let mut writer = store.create_fragment(key(0), shape).expect("begun");
            writer.write(bytes).expect("written");
            writer.prepare(&meta(version(at)), b"etag", block.clone())
        };
        let longer = [&bytes[..], &[1]].concat();
        assert!(matches!(send(&longer, &block, CELL), Err(Error::SizeMismatch(_))), "{at}");
        assert!(matches!(send(&bytes, &block, CELL + 1), Err(Error::Format(_))), "{at}");
        if let Some(last) = bytes.last() {
            let mut wrong = bytes.clone();
            *wrong.last_mut().expect("a byte") = !last;
            assert!(matches!(send(&wrong, &block, CELL), Err(Error::ChecksumMismatch(_))), "{at}");
            assert!(matches!(send(&bytes[1..], &block, CELL), Err(Error::SizeMismatch(_))), "{at}");
        }
        let mut twice = block.clone();
        twice.chosen = [chosen()[0], chosen()[0], chosen()[2]].into();
        assert!(matches!(send(&bytes, &twice, CELL), Err(Error::Format(_))), "{at}");
        let elsewhere = swiftlet_fragments::block::Block { index: 1, ..block.clone() };
        assert!(matches!(send(&bytes, &elsewhere, CELL), Err(Error::Format(_))), "{at}");
    }
    assert!(store.partitions().expect("none").is_empty());
    assert!(!disk.files().iter().any(|(path, _)| path.starts_with("large/")), "nothing is left");
}

#[test]
fn whole_objects_and_fragments_are_kept_apart() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    let data = crate::common::content(1, 100);
    settle(&store, 0, version(10));
    let refused = store.put(key(0), &crate::common::put_meta(20), &crate::common::footer(&data), data.clone());
    assert!(matches!(refused, Err(Error::Format(_))), "{refused:?}");
    assert!(matches!(store.post(key(0), crate::common::post_meta(20, None)), Err(Error::Format(_))));
    store.put(key(1), &crate::common::put_meta(20), &crate::common::footer(&data), data).expect("an object");
    assert!(matches!(prepare(&store, 1, version(30)), Err(Error::Format(_))));
    assert!(matches!(store.about_fragment(key(1), Request::Commit(version(30))), Err(Error::Format(_))));
    // Deletions are the same for both.
    assert_eq!(store.delete(key(0), 11, b"/a/c/o".to_vec()), Ok(true));
    assert_eq!(store.delete(key(0), 11, b"/a/c/o".to_vec()), Err(Error::NotFound(Some(11))));
    assert!(matches!(store.get(&key(0)), Err(Error::NotFound(Some(11)))));
    assert_eq!(prepare(&store, 0, version(11)), Ok(Answer::Superseded(Version::deletion(11))));
    settle(&store, 0, version(12));
    assert_eq!(store.delete(key(0), 11, b"/a/c/o".to_vec()), Err(Error::Superseded(12)));
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn ranges_of_cells_are_read_into_memory() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    for at in 10..16 {
        settle(&store, 0, version(at));
        let (bytes, block) = fragment(version(at), 0);
        let Fetched::Fragment(held) = store.fragment(&key(0), version(at)).expect("read") else { panic!("not here") };
        let stripes = block.geometry.stripes();
        for first in 0..=stripes {
            for end in first..=stripes + 1 {
                let span = Geometry::span(&block.geometry, 0, first..end);
                let expected = &bytes[span.start as usize..span.end as usize];
                assert_eq!(held.cells(first..end).expect("sound"), expected);
                assert_eq!(held.bytes_of(first..end), expected.len() as u64);
                let mut memory = vec![0; expected.len()];
                held.cells_into(first..end, &mut memory).expect("sound");
                assert_eq!(memory, expected);
                memory.push(0);
                assert!(matches!(held.cells_into(first..end, &mut memory), Err(Error::SizeMismatch(_))));
            }
        }
    }
}

#[test]
fn a_reader_reads_on_when_the_version_is_dead() {
    for (old, new) in [(14, 15), (15, 16)] {
        let disk = SimulatedDisk::new(1, Faults::default());
        let store = open(&disk);
        settle(&store, 0, version(old));
        let Fetched::Fragment(held) = store.fragment(&key(0), version(old)).expect("read") else { panic!("not here") };
        settle(&store, 0, version(new));
        while store.compact().expect("compacted") {}
        store.punch().expect("punched");
        assert_eq!(held.cells(0..u64::MAX).expect("sound"), fragment(version(old), 0).0);
    }
}

#[test]
fn dead_generations_give_their_space_back() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    let live = |store: &Store| store.volumes().iter().map(|volume| volume.live_bytes).sum::<u64>();
    for round in 0..40 {
        for number in 0..KEYS {
            settle(&store, number, Version { timestamp: 10 + round, generation: 1 });
        }
    }
    let held = live(&store);
    while store.compact().expect("compacted") {}
    let bytes: u64 = store.volumes().iter().map(|volume| volume.end).sum();
    assert!(bytes < 150_000, "{bytes}");
    // Settled fragments that were copied need no decision beside them.
    assert!(live(&store) < held, "{held} bytes were live, and {} are", live(&store));
    let files = disk.files().iter().filter(|(path, _)| path.starts_with("large/")).count();
    assert!(files <= KEYS as usize, "{files}");
    drop(store);
    let store = open(&disk);
    for number in 0..KEYS {
        let newest = Version { timestamp: 49, generation: 1 };
        assert_eq!(bytes_of(&store, number, newest), fragment(newest, index_of(number)).0);
    }
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn what_became_of_versions_is_forgotten_when_it_is_old() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    assert_eq!(prepare(&store, 0, version(10)), Ok(Answer::Done));
    assert_eq!(ask(&store, 0, Request::Decide { version: version(10), outcome: Outcome::Abort }), Answer::Done);
    settle(&store, 1, version(10));
    assert_eq!(store.reclaim(1 << 40), Ok(0), "it was decided just now");
    assert_eq!(ask(&store, 0, Request::Fetch(version(10))), Answer::Decided(Outcome::Abort));
    assert_eq!(store.reclaim(u64::MAX), Ok(1));
    assert_eq!(ask(&store, 0, Request::Fetch(version(10))), Answer::Missing);
    drop(store);
    let store = open(&disk);
    assert_eq!(ask(&store, 0, Request::Fetch(version(10))), Answer::Missing);
    assert_eq!(bytes_of(&store, 1, version(10)), fragment(version(10), 1).0);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn a_full_disk_refuses_fragments_and_takes_decisions() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let config = swiftlet_store::Config { reserve_bytes: 1 << 20, ..config() };
    let store = Store::open_disk(Arc::clone(&disk) as _, config).expect("it opens");
    assert_eq!(prepare(&store, 0, version(10)), Ok(Answer::Done));
    disk.set_faults(Faults { full: true, ..Faults::default() });
    assert!(matches!(prepare(&store, 0, version(11)), Err(Error::DiskFull(_))));
    assert_eq!(ask(&store, 0, Request::Commit(version(10))), Answer::Done);
    assert_eq!(ask(&store, 0, Request::Settle(version(10))), Answer::Done);
    disk.set_faults(Faults::default());
    assert_eq!(prepare(&store, 0, version(11)), Ok(Answer::Done));
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

/// Damage in each cell of a fragment is found by whoever reads it first, and takes nothing else along.
#[test]
fn a_damaged_cell_is_never_served_and_what_is_known_stays_known() {
    for at in 13..16 {
        for rebuilt in [false, true] {
            let disk = SimulatedDisk::new(1, Faults::default());
            let store = open(&disk);
            settle(&store, 0, version(10));
            let (bytes, _) = fragment(version(at), 0);
            let (writer, block) = written(&store, key(0), version(at)).expect("written");
            if rebuilt {
                assert_eq!(writer.keep(&meta(version(at)), b"etag", block), Ok(Answer::Done));
            } else {
                assert_eq!(writer.prepare(&meta(version(at)), b"etag", block), Ok(Answer::Done));
                assert_eq!(ask(&store, 0, Request::Commit(version(at))), Answer::Done);
            }
            flip(&disk, &bytes[bytes.len() - 40.min(bytes.len())..]);
            let Fetched::Fragment(held) = store.fragment(&key(0), version(at)).expect("read") else {
                panic!("{at}: the record is sound")
            };
            assert!(matches!(held.cells(0..u64::MAX), Err(Error::ChecksumMismatch(_))), "{at}");
            assert_eq!(store.counters().quarantined.load(Ordering::Relaxed), 1);
            assert!(disk.files().iter().any(|(path, _)| path.starts_with("quarantined/")));
            for store in [store, open(&disk)] {
                let outcome = ask(&store, 0, Request::Commit(version(at)));
                assert_eq!(outcome, if rebuilt { Answer::Decided(Outcome::Commit) } else { Answer::Missing }, "{at}");
                assert_eq!(bytes_of(&store, 0, version(10)), fragment(version(10), 0).0);
                assert_eq!(store.check().expect("checked"), Vec::<String>::new(), "{at}");
            }
        }
    }
}

/// Flip a bit of the only place where these bytes are.
fn flip(disk: &SimulatedDisk, bytes: &[u8]) {
    let mut flipped = 0;
    for (path, size) in disk.files() {
        let mut raw = vec![0; size as usize];
        let file = swiftlet_store::disk::Disk::open(disk, &path).expect("opened");
        file.read_at(&mut raw, 0).expect("read");
        if let Some(at) = raw.windows(bytes.len()).position(|window| window == bytes) {
            disk.flip(&path, at as u64 * 8);
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
}

/// The auditor finds it in what no place is shown as well, and a settled version stays settled without its fragment.
#[test]
fn the_auditor_checks_every_cell_and_decision() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    settle(&store, 0, version(14));
    assert_eq!(prepare(&store, 1, version(15)), Ok(Answer::Done));
    assert_eq!(ask(&store, 1, Request::Commit(version(15))), Answer::Done);
    assert_eq!(store.audit(1 << 20), Ok(Vec::new()));
    flip(&disk, &fragment(version(14), 0).0[600..700]);
    flip(&disk, &fragment(version(15), 1).0[2000..2100]);
    let mut damaged = store.audit(1 << 20).expect("audited");
    damaged.sort_unstable();
    assert_eq!(damaged, [key(0), key(1)]);
    assert_eq!(store.audit(1 << 20), Ok(Vec::new()));
    assert_eq!(ask(&store, 0, Request::Fetch(version(14))), Answer::Missing);
    assert_eq!(ask(&store, 0, Request::Commit(version(14))), Answer::Decided(Outcome::Commit));
    // It comes again, made from others.
    let (writer, block) = written(&store, key(0), version(14)).expect("written");
    assert_eq!(writer.keep(&meta(version(14)), b"etag", block), Ok(Answer::Done));
    assert_eq!(bytes_of(&store, 0, version(14)), fragment(version(14), 0).0);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

/// A decision that is damaged is written anew from memory; where a start finds it, nothing more is promised.
#[test]
fn a_damaged_promise_is_never_broken() {
    let ballot = Ballot { round: 7, nonce: 3 };
    let promise = |ballot| Request::Promise { version: version(10), chosen: chosen(), ballot };
    for restarted in [false, true] {
        let disk = SimulatedDisk::new(1, Faults::default());
        let store = open(&disk);
        assert_eq!(prepare(&store, 0, version(10)), Ok(Answer::Done));
        assert_eq!(ask(&store, 0, promise(ballot)), Answer::Promised { accepted: None, fragment: true });
        store.mark().expect("marked");
        // Round and nonce of the ballot, which are behind the header.
        flip(&disk, &[&7_u32.to_be_bytes()[..], &3_u64.to_be_bytes()].concat());
        let store = if restarted {
            drop(store);
            open(&disk)
        } else {
            assert_eq!(store.audit(1 << 20), Ok(vec![key(0)]));
            store
        };
        assert_eq!(store.audit(1 << 20), Ok(Vec::new()), "it was written anew");
        let lower = Accepted { ballot: Ballot { round: 6, nonce: 9 }, outcome: Outcome::Abort };
        let accept = |accepted| Request::Accept { version: version(10), chosen: chosen(), accepted };
        for store in [store, open(&disk)] {
            assert!(matches!(ask(&store, 0, accept(lower)), Answer::Outbid(_)));
            assert!(matches!(ask(&store, 0, Request::Commit(version(10))), Answer::Outbid(_)));
            let higher = Ballot { round: 8, nonce: 0 };
            let answer = ask(&store, 0, promise(higher));
            assert_eq!(matches!(answer, Answer::Outbid(_)), restarted, "{answer:?}");
            assert_eq!(bytes_of(&store, 0, version(10)), fragment(version(10), 0).0);
            let problems = store.check().expect("checked");
            assert!(problems.iter().all(|problem| problem.contains("1 records damaged")), "{problems:?}");
        }
    }
}

/// Any flipped bit: nothing wrong is served, and nothing is known otherwise than before without being counted.
#[test]
fn flipped_bits_are_found_and_never_served() {
    let (mut harmed, mut unharmed) = (0, 0);
    for seed in 0..8 {
        let (mut worker, disk) = (Worker::begin(seed), SimulatedDisk::new(seed, Faults::default()));
        for _ in 0..2 {
            let store = open(&disk);
            worker.work(&store, &disk, 50, "no crash");
            store.checkpoint().expect("a checkpoint");
            worker.work(&store, &disk, 12, "no crash");
            store.mark().expect("marked");
        }
        let files: Vec<_> = disk.files().into_iter().filter(|(path, size)| path.contains('/') && *size > 0).collect();
        let total: u64 = files.iter().map(|(_, size)| size).sum();
        let mut random = random(seed + 77);
        for _ in 0..200 {
            let disk = disk.copy();
            let mut at = random.below(total);
            let (path, _) = files
                .iter()
                .find(|(_, size)| {
                    at < *size || {
                        at -= size;
                        false
                    }
                })
                .expect("within the files");
            let bit = at * 8 + random.below(8);
            disk.flip(path, bit);
            let what = format!("seed {seed}, {path}, bit {bit}");
            let store = match Store::open_disk(Arc::clone(&disk) as _, config()) {
                Ok(store) => store,
                Err(Error::Format(_)) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            store.audit(u64::MAX).unwrap_or_else(|error| panic!("{what}: {error}"));
            let same = is_as_before(&worker.model, &store, &what);
            let found = store.recovery().damaged + store.recovery().dangling;
            let quarantined = store.counters().quarantined.load(Ordering::Relaxed);
            assert!(same || found + quarantined > 0, "{what}: changed, and nobody knows");
            harmed += u64::from(!same);
            unharmed += u64::from(same);
            assert_eq!(store.audit(u64::MAX), Ok(Vec::new()), "{what}");
        }
    }
    assert!(harmed > 50 && unharmed > 200, "{harmed} harmed, {unharmed} not: the flips hit nothing, or everything");
}

/// Whether the store answers as the model does. Fragments that it serves must be right in any case.
fn is_as_before(model: &Model, store: &Store, what: &str) -> bool {
    let mut same = true;
    for number in 0..KEYS {
        let state = model.current(number);
        let slot = &state.slot;
        for timestamp in 10..16 {
            for generation in 1..3 {
                let version = Version { timestamp, generation };
                let is_here = slot.get(version).is_some_and(|kept| kept.is_readable());
                match store.fragment(&key(number), version).unwrap_or_else(|error| panic!("{what}: {error}")) {
                    Fetched::Fragment(held) => {
                        let bytes = held.cells(0..u64::MAX).unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert_eq!(bytes, fragment(version, index_of(number)).0, "{what}");
                        same &= is_here;
                    }
                    Fetched::Not(_) => same &= !is_here,
                }
            }
        }
        let newest = store.newest_fragment(&key(number), None).unwrap_or_else(|error| panic!("{what}: {error}"));
        same &= (newest.committed, newest.floor) == (slot.committed(None), slot.floor());
        same &= counting(store, key(number), newest.post) == state.posted();
    }
    same
}

/// Prepared with a pending update for these container replicas.
fn prepare_with_row(store: &Store, number: u64, version: Version, row: u32) {
    let (mut writer, block) = written(store, key(number), version).expect("room");
    writer.set_row(row);
    assert_eq!(writer.prepare(&meta(version), b"etag", block), Ok(Answer::Done));
}

fn pending(store: &Store) -> Vec<(u64, u32)> {
    let due = store.pending_updates(10, Duration::ZERO);
    due.iter().map(|update| (update.timestamp, update.row)).collect()
}

#[test]
fn an_update_waits_for_what_becomes_of_its_fragment() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    settle(&store, 1, version(10));
    prepare_with_row(&store, 1, version(11), 5);
    assert_eq!((pending(&store), store.pending_count()), (vec![], 1), "it may never have happened");
    assert_eq!(ask(&store, 1, Request::Commit(version(11))), Answer::Done);
    assert_eq!(pending(&store), [], "nor is that known to whoever has committed");
    assert_eq!(store.stat(&key(1)).map(|info| info.timestamp), Ok(10));
    drop(store);
    let disk = disk.after_crash(Faults::default());
    let store = open(&disk);
    assert_eq!((pending(&store), store.pending_count()), (vec![], 1));
    assert_eq!(ask(&store, 1, Request::Settle(version(11))), Answer::Done);
    assert_eq!(pending(&store), [(11, 5)]);
    let info = store.stat(&key(1)).expect("it is described");
    let (_, block) = fragment(version(11), index_of(1));
    assert_eq!((info.timestamp, info.size, &info.etag[..]), (11, block.geometry.object_bytes(), &b"etag"[..]));
    assert_eq!(store.name(&key(1)), Ok(Some(b"/a/c/o".to_vec())));
    // With the fragment its row would be lost.
    let shown = store.shown_fragment(&key(1)).expect("asked").expect("shown");
    assert_eq!(store.hand_back_fragment(key(1), shown.clone()), Ok(false));
    store.acknowledge(&[(key(1), 11)]);
    assert_eq!(store.hand_back_fragment(key(1), shown), Ok(true));
    // Of what was aborted nothing is listed but what counts in its place.
    settle(&store, 2, version(10));
    prepare_with_row(&store, 2, version(12), 1);
    prepare_with_row(&store, 4, version(12), 1);
    assert_eq!(pending(&store), []);
    for number in [2, 4] {
        let abort = Request::Decide { version: version(12), outcome: Outcome::Abort };
        assert_eq!(ask(&store, number, abort), Answer::Done);
    }
    assert_eq!(pending(&store), [(12, 1), (12, 1)]);
    assert_eq!(store.stat(&key(2)).map(|info| info.timestamp), Ok(10));
    assert_eq!(store.stat(&key(4)), Err(Error::NotFound(None)));
}
