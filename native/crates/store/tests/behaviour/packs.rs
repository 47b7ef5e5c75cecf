//! References to packs on a device: which of them count, what they cost, what is left of them after crashes and damage.
//!
//! Fault model: as for objects, see `crash` and `damage`. A table is there as a whole or not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::crashing::{
    Life, crash_anywhere, crash_at_named_points, fail_anywhere, run, start_from_the_volumes_alone,
};
use crate::common::packs::{Bytes, ID, KEYS, Seen, Worker, key, pack, reference, seen};
use crate::common::{config, content, footer, post_meta, put_meta, random};
use swiftlet_fragments::Version;
use swiftlet_fragments::packs::table::{BLOCK, MAX_MEMBER_BYTES, Table};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::model::PutMeta;
use swiftlet_store::{Error, PackUse, Store};

/// Steps from one crash to the next.
const STEPS: u64 = 40;

fn open(disk: &Arc<SimulatedDisk>) -> Store {
    Store::open_disk(Arc::clone(disk) as _, config()).expect("it opens")
}

#[test]
fn crashes_in_the_middle_of_any_operation() {
    crash_anywhere::<Worker>(100, STEPS, 200);
}

#[test]
fn crashes_at_every_named_point() {
    let points = (1..8).flat_map(|seed| run::<Worker>(seed, STEPS, &[Faults::default()])).collect();
    crash_at_named_points::<Worker>(points, STEPS, 2);
}

#[test]
fn an_io_error_ends_everything_until_the_store_is_opened_again() {
    fail_anywhere::<Worker>(60, STEPS, 400);
}

#[test]
fn an_index_is_made_of_the_volumes_alone() {
    start_from_the_volumes_alone::<Worker>();
}

/// References to these versions of objects.
fn table(of: u64, members: &[(u64, u64)]) -> Table {
    let mut references: Vec<_> =
        members.iter().map(|(number, timestamp)| reference(*number, *timestamp, pack(of))).collect();
    references.sort_unstable_by_key(|reference| reference.digest);
    Table { pack: pack(of), references }
}

fn put(store: &Store, number: u64, timestamp: u64) {
    let data = content(timestamp, 300);
    assert_eq!(store.put(key(number), &put_meta(timestamp), &footer(&data), data), Ok(true));
}

/// The pack in which a version of an object is.
fn packed(store: &Store, number: u64) -> Option<(u64, u64)> {
    let found = store.reference(&key(number)).expect("read")?;
    let of = (0..4).find(|of| pack(*of) == found.pack).expect("a pack");
    assert_eq!(found.reference, reference(number, found.reference.timestamp, pack(of)));
    Some((of, found.reference.timestamp))
}

/// The same after a start from the volumes alone, and with a checkpoint.
fn after_each_start(disk: &Arc<SimulatedDisk>, look: impl Fn(&Store)) {
    for with_checkpoint in [false, true, false] {
        if !with_checkpoint {
            for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("index/")) {
                disk.unlink(&path).expect("removed");
            }
        }
        let store = open(disk);
        assert_eq!(store.recovery().checkpoint, with_checkpoint);
        look(&store);
        assert_eq!(store.check(), Ok(Vec::new()));
        store.checkpoint().expect("a checkpoint");
    }
}

#[test]
fn of_one_version_the_latest_pack_counts_and_of_an_object_the_newest_version() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    (0..6).for_each(|number| put(&store, number, 100));
    let all: Vec<(u64, u64)> = (0..6).map(|number| (number, 100)).collect();
    // One that isn't here is not adopted, and neither is another version.
    assert_eq!(store.adopt(ID, table(1, &[(0, 99), (1, 101), (9, 100)])), Ok(false));
    assert_eq!(store.adopt(ID, table(1, &[&all[..5], &[(9, 100)]].concat())), Ok(true));
    assert_eq!((packed(&store, 4), packed(&store, 5), packed(&store, 9)), (Some((1, 100)), None, None));
    // An earlier pack has nothing more to give, a later one takes over.
    assert_eq!(store.adopt(ID, table(0, &all[..5])), Ok(false));
    assert_eq!(store.adopt(ID, table(3, &all[..2])), Ok(true));
    assert_eq!(store.adopt(ID, table(3, &all[..2])), Ok(false));
    // A copy that comes again is not needed.
    let data = content(100, 300);
    assert_eq!(store.put(key(0), &put_meta(100), &footer(&data), data), Ok(false));
    assert_eq!(store.post(key(1), post_meta(150, Some(150))), Ok(true));
    put(&store, 2, 160);
    assert_eq!(store.delete(key(3), 170, b"/a/c/o".to_vec()), Ok(true));
    assert_eq!(store.delete(key(4), 50, b"/a/c/o".to_vec()), Err(Error::Superseded(100)));
    drop(store);
    after_each_start(&disk, |store| {
        let found: Vec<_> = (0..6).map(|number| packed(store, number)).collect();
        assert_eq!(found, [Some((3, 100)), Some((3, 100)), None, None, Some((1, 100)), None]);
        let posted = store.reference(&key(1)).expect("read").expect("a reference").posted;
        assert_eq!(posted, Some(post_meta(150, Some(150))));
        assert!(matches!(seen(store, 2), Ok(Seen::Copy(info, _)) if info.timestamp == 160));
        assert_eq!(seen(store, 3), Ok(Seen::Missing(Some(170))));
        let bytes = |of, number| u64::from(reference(number, 100, pack(of)).length);
        let first = PackUse { pack: pack(1), tables: 1, references: 1, bytes: bytes(1, 4) };
        let last = PackUse { pack: pack(3), tables: 1, references: 2, bytes: bytes(3, 0) + bytes(3, 1) };
        assert_eq!(store.packs(ID), Ok(vec![first, last]));
    });
}

/// A device that was no place while a pack was deleted may still refer to it when it is one again.
#[test]
fn references_to_a_pack_that_was_deleted_are_forgotten_before_its_tombstone() {
    let disks = [6, 7].map(|seed| SimulatedDisk::new(seed, Faults::default()));
    let stores = disks.each_ref().map(open);
    let all: Vec<(u64, u64)> = (0..6).map(|number| (number, 100)).collect();
    for store in &stores {
        (0..6).for_each(|number| put(store, number, 100));
    }
    let [store, other] = &stores;
    assert_eq!(store.adopt(ID, table(1, &all[..2])), Ok(true));
    assert_eq!(store.adopt(ID, table(2, &all[2..5])), Ok(true));
    store.post(key(3), post_meta(150, None)).expect("posted");
    store.keep_pending(key(4), 100, 1);
    // Nothing is known of the packs; then one that was made before has been deleted, and this one is.
    let (at, Version { timestamp, .. }) = (pack(2).digest, pack(2).version);
    let tombstone = |timestamp| {
        let key = swiftlet_store::model::Key { policy: ID.0, partition: ID.1 - 29, digest: at };
        assert_eq!(store.delete(key, timestamp, Vec::new()), Err(Error::NotFound(Some(timestamp))));
        store.reclaim(50)
    };
    assert_eq!(store.reclaim(50), Ok(0));
    assert_eq!(tombstone(timestamp - 1), Ok(0));
    assert_eq!(tombstone(timestamp + 1), Ok(2));
    let found = |store: &Store| (0..6).map(|number| packed(store, number).map(|(of, _)| of)).collect::<Vec<_>>();
    let expected = [Some(1), Some(1), None, None, Some(2), None];
    assert_eq!(found(store), expected, "an update of the last one is to be delivered");
    assert_eq!([seen(store, 2), seen(store, 3)], [Ok(Seen::Missing(None)), Ok(Seen::Missing(None))]);
    assert!(matches!(seen(store, 5), Ok(Seen::Copy(..))));
    assert_ne!(store.root(ID), other.root(ID), "sync sees what is missing");
    // The tombstone is forgotten after the references, in one call too.
    store.acknowledge(&[(key(4), 100)]);
    assert_eq!(store.reclaim(timestamp + 2), Ok(2));
    assert_eq!((packed(store, 4), store.reclaim(timestamp + 2)), (None, Ok(0)));
    for number in 2..5 {
        put(store, number, 100);
    }
    store.reclaim(u64::MAX).expect("reclaimed");
    assert_eq!((0..6).filter(|number| packed(store, *number).is_some()).count(), 2);
    drop(stores);
    after_each_start(&disks[0], |store| {
        assert_eq!(found(store), [Some(1), Some(1), None, None, None, None]);
        assert!((2..6).all(|number| matches!(seen(store, number), Ok(Seen::Copy(..)))));
    });
}

#[test]
fn a_reference_is_learned_where_the_version_is_missing() {
    let disk = SimulatedDisk::new(2, Faults::default());
    let store = open(&disk);
    put(&store, 1, 100);
    put(&store, 2, 90);
    store.post(key(2), post_meta(95, None)).expect("posted");
    put(&store, 3, 110);
    assert_eq!(store.delete(key(4), 100, b"/a/c/o".to_vec()), Err(Error::NotFound(Some(100))));
    assert_eq!(store.delete(key(5), 90, b"/a/c/o".to_vec()), Err(Error::NotFound(Some(90))));
    let all: Vec<(u64, u64)> = (0..6).map(|number| (number, 100)).collect();
    assert_eq!(store.learn_references(ID, table(1, &all)), Ok(true));
    assert_eq!(store.learn_references(ID, table(3, &all)), Ok(false));
    drop(store);
    after_each_start(&disk, |store| {
        let found: Vec<_> = (0..6).map(|number| packed(store, number).is_some()).collect();
        assert_eq!(found, [true, false, true, false, false, true]);
        assert_eq!(store.reference(&key(2)).expect("read").expect("a reference").posted, None);
        assert_eq!(seen(store, 4), Ok(Seen::Missing(Some(100))));
    });
}

#[test]
fn what_is_owed_a_row_or_expires_stays_a_copy() {
    let disk = SimulatedDisk::new(3, Faults::default());
    let store = open(&disk);
    let write = |number: u64, row: u32, delete_at: u64| {
        let data = content(100, 300);
        let mut writer = store.create(key(number), None, None).expect("begun");
        writer.set_row(row);
        writer.write(&data).expect("written");
        writer.commit(&PutMeta { delete_at, ..put_meta(100) }, &footer(&data)).expect("stored");
    };
    write(0, 1, 0);
    write(1, 0, 1 << 33);
    write(2, 0, 0);
    let all: Vec<(u64, u64)> = (0..3).map(|number| (number, 100)).collect();
    assert_eq!(store.adopt(ID, table(1, &all)), Ok(true));
    assert_eq!((0..3).map(|number| packed(&store, number).is_some()).collect::<Vec<_>>(), [false, false, true]);
    store.acknowledge(&[(key(0), 100)]);
    assert_eq!(store.adopt(ID, table(1, &all)), Ok(true));
    assert!(packed(&store, 0).is_some() && packed(&store, 1).is_none());
    // A POST may say when what is in a pack expires.
    let post = swiftlet_store::model::PostMeta { delete_at: 7, ..post_meta(200, None) };
    assert_eq!(store.post(key(2), post), Ok(true));
    assert_eq!(store.expired(7), [(key(2), 100)]);
}

#[test]
fn other_devices_see_nothing_of_packs() {
    let disks = [4, 5].map(|seed| SimulatedDisk::new(seed, Faults::default()));
    let stores = disks.each_ref().map(open);
    for store in &stores {
        (0..KEYS).for_each(|number| put(store, number, 100 + number));
        (0..10).for_each(|number| drop(store.post(key(number), post_meta(300, Some(300)))));
    }
    let members: Vec<(u64, u64)> =
        (0..KEYS).filter(|number| number % 3 > 0).map(|number| (number, 100 + number)).collect();
    assert_eq!(stores[1].adopt(ID, table(1, &members)), Ok(true));
    let same = |one: &Store, other: &Store| {
        assert_eq!(one.suffixes(ID), other.suffixes(ID));
        assert_eq!(one.root(ID), other.root(ID));
        (0..KEYS).for_each(|number| {
            assert_eq!(one.entries(ID, key(number).suffix()), other.entries(ID, key(number).suffix()));
        });
        assert_eq!(one.digests(ID), other.digests(ID));
        assert_eq!(one.usage().map(|usage| usage.objects), other.usage().map(|usage| usage.objects));
    };
    same(&stores[0], &stores[1]);
    for store in &stores {
        put(store, 1, 400);
        store.post(key(2), post_meta(401, None)).expect("posted");
        store.delete(key(4), 402, b"/a/c/o".to_vec()).expect("deleted");
        store.checkpoint().expect("a checkpoint");
    }
    same(&stores[0], &stores[1]);
    drop(stores);
    let stores = disks.each_ref().map(open);
    same(&stores[0], &stores[1]);
}

/// A record in a volume.
struct Found {
    path: String,
    /// Bytes from the volume's start.
    at: u64,
    kind: u8,
    digest: [u8; 16],
    /// Bytes of header and metadata.
    length: u64,
}

/// All records of a device, dead ones too.
fn records(disk: &Arc<SimulatedDisk>) -> Vec<Found> {
    let mut found = Vec::new();
    for (path, size) in disk.files().into_iter().filter(|(path, _)| path.starts_with("volumes/")) {
        let mut raw = vec![0; size as usize];
        disk.open(&path).expect("opened").read_at(&mut raw, 0).expect("read");
        for at in (4096..raw.len().saturating_sub(128)).step_by(64).filter(|at| raw[*at..].starts_with(b"SWLR")) {
            let header = &raw[at..at + 128];
            assert_eq!(header[4] == 4, header[5] == 10, "the version of its records");
            let metadata = u32::from_be_bytes(*header[12..].first_chunk().expect("a number"));
            let digest = *header[24..].first_chunk().expect("a digest");
            let (path, at, length) = (path.clone(), at as u64, 128 + u64::from(metadata));
            found.push(Found { path, at, kind: header[5], digest, length });
        }
    }
    found
}

/// The newest table of a device.
fn newest_table(disk: &Arc<SimulatedDisk>) -> Found {
    records(disk).into_iter().rfind(|found| found.kind == 10).expect("a table")
}

/// Bytes of all records that are live.
fn live(store: &Store) -> u64 {
    store.volumes().iter().map(|volume| volume.live_bytes).sum()
}

/// Compact until nothing is to be gained.
fn compact(store: &Store) {
    // A new volume is begun, so that all others can be rewritten.
    let data = content(1, 2900);
    (200..220).for_each(|number| {
        store.put(key(number), &put_meta(1), &footer(&data), data.clone()).expect("stored");
        store.remove(key(number), store.entries(ID, key(number).suffix()).expect("entries")[0]).expect("removed");
    });
    while store.compact().expect("compacted") {}
}

#[test]
fn compaction_drops_copies_and_references_that_do_not_count() {
    let disk = SimulatedDisk::new(6, Faults::default());
    let store = open(&disk);
    (0..KEYS).for_each(|number| put(&store, number, 100));
    let copies = live(&store);
    let all: Vec<(u64, u64)> = (0..KEYS).map(|number| (number, 100)).collect();
    let (some, others) = all.split_at(50);
    assert_eq!(store.adopt(ID, table(1, some)), Ok(true));
    assert_eq!(store.adopt(ID, table(1, others)), Ok(true));
    let tables = live(&store);
    assert!(tables < copies / 10, "{tables} {copies}");
    compact(&store);
    // Both tables are one now.
    let joined = store.packs(ID).expect("packs");
    assert_eq!((joined.len(), joined[0].tables, joined[0].references), (1, 1, KEYS));
    assert!(live(&store) < tables);
    let left = records(&disk);
    let is_copy = |found: &&Found| (0..KEYS).any(|number| found.digest == key(number).digest);
    assert_eq!(left.iter().filter(is_copy).count(), 0);
    assert_eq!(left.iter().filter(|found| found.kind == 10).count(), 1);
    // Of nine in ten a newer version comes, which a later pack has.
    let newer: Vec<(u64, u64)> = (0..KEYS).filter(|number| number % 10 > 0).map(|number| (number, 200)).collect();
    newer.iter().for_each(|(number, timestamp)| put(&store, *number, *timestamp));
    assert_eq!(store.packs(ID).expect("packs")[0].references, KEYS / 10);
    assert_eq!(store.adopt(ID, table(3, &newer)), Ok(true));
    let before = live(&store);
    compact(&store);
    assert!(live(&store) < before, "the first table still has what is replaced");
    // The last reference takes its table along.
    (0..KEYS).filter(|number| number % 10 == 0).for_each(|number| put(&store, number, 300));
    assert_eq!(store.packs(ID).expect("packs").iter().map(|found| found.pack).collect::<Vec<_>>(), [pack(3)]);
    drop(store);
    after_each_start(&disk, |store| {
        (0..KEYS).for_each(|number| {
            assert_eq!(packed(store, number), (number % 10 > 0).then_some((3, 200)), "{number}");
        });
    });
}

/// Two versions of each object, of which the older ones are still in a volume, and the newer ones in a pack alone.
fn with_a_table() -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new(7, Faults::default());
    let store = open(&disk);
    (0..KEYS).for_each(|number| put(&store, number, 90));
    let all: Vec<(u64, u64)> = (0..KEYS).map(|number| (number, 100)).collect();
    assert_eq!(store.learn_references(ID, table(1, &all)), Ok(true));
    store.mark().expect("marked");
    disk
}

/// What is left of a device of [`with_a_table`]: objects with references, those that are missing, and older versions.
fn left(store: &Store) -> (u64, u64, u64) {
    let mut counts = (0, 0, 0);
    for number in 0..KEYS {
        match seen(store, number).expect("read") {
            Seen::In(found, at, None) => {
                assert_eq!((found, at), (pack(1), reference(number, 100, pack(1))));
                counts.0 += 1;
            }
            Seen::Missing(None) => counts.1 += 1,
            Seen::Copy(info, _) if info.timestamp == 90 => counts.2 += 1,
            other => panic!("{other:?}"),
        }
    }
    counts
}

#[test]
fn a_damaged_block_takes_its_members_along_and_nothing_else() {
    let rest = KEYS - BLOCK as u64;
    for (part, expected) in [(0.2, (KEYS - BLOCK as u64, BLOCK as u64, 0)), (0.999, (BLOCK as u64, rest, 0))] {
        for way in ["read", "audited", "started", "compacted"] {
            let what = format!("{part}, {way}");
            let disk = with_a_table();
            let Found { path, at, length, .. } = newest_table(&disk);
            let store = if way == "started" {
                disk.flip(&path, (at + 128 + (part * (length - 128) as f64) as u64) * 8);
                open(&disk)
            } else {
                let store = open(&disk);
                store.checkpoint().expect("a checkpoint");
                disk.flip(&path, (at + 128 + (part * (length - 128) as f64) as u64) * 8);
                store
            };
            match way {
                "audited" => assert_eq!(store.audit(u64::MAX).expect("audited").len(), 1, "{what}"),
                "compacted" => compact(&store),
                "started" => assert_eq!(store.recovery().damaged, 1, "{what}"),
                _ => {}
            }
            assert_eq!(left(&store), expected, "{what}");
            assert_eq!(store.counters().quarantined.load(Ordering::Relaxed), 1, "{what}");
            assert!(disk.files().iter().any(|(path, _)| path.starts_with("quarantined/")), "{what}");
            // Who brings what is missing is not hindered.
            let lost: Vec<(u64, u64)> =
                (0..KEYS).filter(|number| packed(&store, *number).is_none()).map(|number| (number, 100)).collect();
            store.checkpoint().expect("a checkpoint");
            drop(store);
            let store = open(&disk);
            assert_eq!(left(&store), expected, "{what}, again");
            assert_eq!(store.learn_references(ID, table(1, &lost)), Ok(true), "{what}");
            store.checkpoint().expect("a checkpoint");
            drop(store);
            assert_eq!(left(&open(&disk)), (KEYS, 0, 0), "{what}, brought again");
        }
    }
}

#[test]
fn a_table_without_its_head_is_lost_and_reported() {
    let disk = with_a_table();
    let Found { path, at, .. } = newest_table(&disk);
    let store = open(&disk);
    store.checkpoint().expect("a checkpoint");
    disk.flip(&path, (at + 130) * 8);
    assert_eq!(left(&store), (0, KEYS, 0));
    assert_eq!(store.counters().quarantined.load(Ordering::Relaxed), 1);
    assert_eq!(store.packs(ID), Ok(Vec::new()));
}

#[test]
fn references_that_no_pack_has_are_refused() {
    let store = open(&SimulatedDisk::new(8, Faults::default()));
    let refused = |table: Table| matches!(store.adopt(ID, table), Err(Error::Format(_)));
    assert!(refused(table(1, &[])));
    let mut unsorted = table(1, &[(1, 100), (2, 100)]);
    unsorted.references.swap(0, 1);
    assert!(refused(unsorted));
    let mut long = table(1, &[(1, 100)]);
    long.references[0].length = MAX_MEMBER_BYTES + 1;
    assert!(refused(long));
}

/// Whatever bit turns, nothing is ever shown that was never there; what is lost is reported.
#[test]
fn flipped_bits_are_found_and_never_served() {
    let (mut lost, mut unharmed, mut older, mut unknown) = (0, 0, 0, 0);
    for seed in 40_000..40_006 {
        let (mut worker, disk) = (Worker::begin(seed), SimulatedDisk::new(seed, Faults::default()));
        for _ in 0..3 {
            let store = open(&disk);
            worker.work(&store, &disk, 25, "no crash");
            if seed % 2 == 0 {
                store.checkpoint().expect("a checkpoint");
            }
            worker.work(&store, &disk, 8, "no crash");
            store.mark().expect("a mark, as whenever nothing is going on");
        }
        let files: Vec<_> = disk.files().into_iter().filter(|(path, size)| path.contains('/') && *size > 0).collect();
        let tables: Vec<_> = records(&disk).into_iter().filter(|found| found.kind == 10).collect();
        let mut chance = random(seed);
        for flip in 0..150 {
            let disk = disk.copy();
            // Half of them hit tables, of which not all count.
            let (path, at) = if flip % 2 == 0 {
                let table = &tables[chance.below(tables.len() as u64) as usize];
                (&table.path, table.at + chance.below(table.length))
            } else {
                let (path, size) = &files[chance.below(files.len() as u64) as usize];
                (path, chance.below(*size))
            };
            let bit = at * 8 + chance.below(8);
            disk.flip(path, bit);
            let what = format!("seed {seed}, {path}, bit {bit}");
            let store = match Store::open_disk(Arc::clone(&disk) as _, config()) {
                Ok(store) => store,
                Err(Error::Format(_)) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            let mut missing = 0;
            for number in 0..KEYS {
                let found = match seen(&store, number) {
                    Err(Error::ChecksumMismatch(_)) => Seen::Missing(None),
                    other => other.unwrap_or_else(|error| panic!("{what}: {error}")),
                };
                let expected = worker.model.current(number);
                if found == expected.seen(number) {
                    continue;
                }
                missing += 1;
                let held = |found: &Seen| match found {
                    Seen::Missing(at) => at.map(|at| (at, Bytes::Deleted)),
                    Seen::Copy(info, data) => Some((info.timestamp, Bytes::Copy(data.len() as u64))),
                    Seen::In(pack, at, _) => Some((at.timestamp, Bytes::In(*pack))),
                };
                let was = held(&found);
                let history = &worker.model.history[&number];
                assert!(
                    was.is_none() || history.iter().any(|object| object.version == was),
                    "{what}: object {number} is {found:?}"
                );
                older += u64::from(was.is_some() && was.map(|was| was.0) < expected.version.map(|was| was.0));
            }
            let found = store.recovery().damaged + store.recovery().dangling;
            let quarantined = store.counters().quarantined.load(Ordering::Relaxed);
            unknown += u64::from(missing > 0 && found + quarantined == 0);
            if missing > 0 {
                lost += 1
            } else {
                unharmed += 1
            }
            store.audit(u64::MAX).unwrap_or_else(|error| panic!("{what}: {error}"));
            let after = store.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            let wrong: Vec<_> = after.iter().filter(|text| text.contains("reference")).collect();
            assert!(wrong.is_empty(), "{what}: {wrong:?}");
        }
    }
    assert!(lost > 50 && unharmed > 50, "{lost} harmed, {unharmed} not: the flips hit nothing, or everything");
    assert_eq!(unknown, 0, "{older} older ones");
}
