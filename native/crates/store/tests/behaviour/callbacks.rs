//! Behaviour that the Python side's conformance suite does not see: threads, callbacks, large files, expiry, holes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use crate::common::{config, content, footer, key, post_meta, put_meta};
use swiftlet_store::disk::{Faults, SimulatedDisk};
use swiftlet_store::model::{Key, PutMeta};
use swiftlet_store::{Config, Error, Got, Store};

fn open(disk: &Arc<SimulatedDisk>, config: Config) -> Store {
    Store::open_disk(Arc::clone(disk) as _, config).expect("it opens")
}

#[test]
fn many_threads_share_batches() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, Config { threads: true, volume_bytes: 1 << 20, ..Config::default() });
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..100 {
                    let data = content(number, 500);
                    let key = key(thread * 1000 + number);
                    store.put(key, &put_meta(1000), &footer(&data), data).expect("stored");
                    assert_eq!(store.stat(&key).expect("there").size, 500);
                }
            });
        }
    });
    assert_eq!(store.usage().expect("usage").objects, 800);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
    assert!(disk.reached()["batch-synced"] < 800, "several share a sync");
}

#[test]
fn a_callback_comes_once_it_is_durable() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, Config { threads: true, volume_bytes: 1 << 20, ..Config::default() });
    let (done, answers) = mpsc::channel();
    for number in 0..50 {
        let (data, done) = (content(number, 100), done.clone());
        let answer = Box::new(move |outcome| done.send((number, outcome)).expect("somebody listens"));
        store.submit_put(key(number), &put_meta(1000), &footer(&data), data, answer);
    }
    drop(done);
    assert_eq!(answers.iter().filter(|(_, outcome)| *outcome == Ok(true)).count(), 50);
    let next = open(&disk.after_crash(Faults::default()), config());
    assert_eq!(next.usage().expect("usage").objects, 50);
}

#[test]
fn large_objects_are_checked_chunk_by_chunk() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, Config { volume_bytes: 1 << 20, ..config() });
    let data = content(5, 6 << 20);
    let mut writer = store.create(key(1), Some(data.len() as u64), None).expect("begun");
    data.chunks(300_001).for_each(|piece| writer.write(piece).expect("written"));
    writer.commit(&put_meta(1000), &footer(&data)).expect("stored");
    let (path, _) = disk.files().into_iter().find(|(path, _)| path.starts_with("large/")).expect("a file of its own");
    disk.flip(&path, 8 * ((3 << 20) + 5));
    let object = store.get(&key(1)).expect("there");
    assert_eq!(object.read(1_500_000, 1_000_000).expect("sound"), data[1_500_000..2_500_000]);
    assert!(matches!(object.read(3 << 20, 10), Err(Error::ChecksumMismatch(_))));
    assert!(matches!(store.get(&key(1)), Err(Error::NotFound(None))));
    assert!(disk.files().iter().any(|(path, _)| path.starts_with("quarantined/large-")));
}

#[test]
fn what_fits_is_read_into_memory_of_the_callers() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let config = Config { aggregate_below: 2 << 20, volume_bytes: 16 << 20, ..config() };
    let store = open(&disk, config.clone());
    let sizes = [0, 1, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 1, 4 << 20, (4 << 20) + 1];
    for (number, size) in (0..).zip(sizes) {
        let (data, meta) = (content(number, size), put_meta(1000));
        let mut writer = store.create(key(number), Some(size), None).expect("begun");
        writer.write(&data).expect("written");
        writer.commit(&meta, &footer(&data)).expect("stored");
        let mut asked = 0;
        let got = store.get_into(&key(number), |bytes| {
            asked += bytes as u64;
            Some(vec![0; bytes])
        });
        match got.expect("there") {
            Got::Pieces(info, pieces) => {
                assert!((65_537..=4 << 20).contains(&size) && asked == size && info.size == size, "{size}");
                assert!(pieces[..pieces.len() - 1].iter().all(|piece| piece.len() == 1 << 20), "{size}");
                assert!(pieces.concat() == data, "{size}");
            }
            Got::Object(object) => {
                assert!(asked == 0 && !(65_537..=4 << 20).contains(&size), "{size}");
                assert!(object.read(0, size).expect("sound") == data, "{size}");
                let mut end = vec![0; size.saturating_sub(4 << 20) as usize];
                assert_eq!(object.read_into(4 << 20, &mut end).expect("sound"), size > 4 << 20, "whole chunks");
                assert!(end == data[data.len() - end.len()..], "{size}");
                assert!(!object.read_into(1, &mut end).expect("sound"), "not from a chunk's start on");
            }
        }
        let mut left = size.div_ceil(1 << 20).saturating_sub(1);
        let without = store.get_into(&key(number), |bytes| {
            left = left.checked_sub(1)?;
            Some(vec![0; bytes])
        });
        let Ok(Got::Object(object)) = without else { panic!("{size}: memory from nowhere") };
        assert!(object.read(0, size).expect("sound") == data, "{size}");
        assert_eq!(object.info().size, size);
    }
}

#[test]
fn damage_is_not_read_into_memory() {
    for size in [100_000, (1 << 20) + 5, 3 << 20, 5 << 20] {
        let disk = SimulatedDisk::new(1, Faults::default());
        let store = open(&disk, Config { aggregate_below: 2 << 20, volume_bytes: 16 << 20, ..config() });
        let data = content(5, size);
        let mut writer = store.create(key(1), Some(size), None).expect("begun");
        writer.write(&data).expect("written");
        writer.commit(&put_meta(1000), &footer(&data)).expect("stored");
        let kind = if size > 2 << 20 { "large/" } else { "volumes/" };
        let (path, _) = disk.files().into_iter().find(|(path, _)| path.starts_with(kind)).expect("its file");
        disk.flip(&path, 8 * (size - 3));
        match store.get_into(&key(1), |bytes| Some(vec![0; bytes])) {
            Ok(Got::Object(object)) if size == 5 << 20 => {
                assert!(object.read_into(0, &mut vec![0; 4 << 20]).expect("sound"));
                let end = object.read_into(4 << 20, &mut vec![0; 1 << 20]);
                assert!(matches!(end, Err(Error::ChecksumMismatch(_))), "{end:?}");
            }
            Err(Error::NotFound(None)) => {}
            other => panic!("{size}: {:?}", other.map(|_| "read")),
        }
        assert!(matches!(store.get(&key(1)), Err(Error::NotFound(None))), "{size}");
        assert!(disk.files().iter().any(|(path, _)| path.starts_with("quarantined/")), "{size}");
    }
}

#[test]
fn objects_under_another_limit_stay_readable() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let data = content(5, 2000);
    for (number, limit) in [(1, 100), (2, 4000), (3, 0)] {
        let store = open(&disk, Config { aggregate_below: limit, ..config() });
        let mut writer = store.create(key(number), None, None).expect("begun");
        writer.write(&data).expect("written");
        writer.commit(&put_meta(1000), &footer(&data)).expect("stored");
    }
    let store = open(&disk, config());
    for number in 1..=3 {
        assert_eq!(store.get(&key(number)).expect("there").read(0, 9999).expect("sound"), data);
    }
    assert_eq!(disk.files().iter().filter(|(path, _)| path.starts_with("large/")).count(), 2);
}

#[test]
fn each_policy_has_its_own_limit() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, Config { volume_bytes: 16 << 20, ..config() });
    let of = |policy, number| Key { policy, ..key(number) };
    let in_files = || disk.files().iter().filter(|(path, _)| path.starts_with("large/")).count();
    let put = |key: Key, size: u64, timestamp| {
        let data = content(size, size);
        let mut writer = store.create(key, Some(size), None).expect("begun");
        writer.write(&data).expect("written");
        writer.commit(&put_meta(timestamp), &footer(&data)).expect("stored");
    };
    store.set_aggregate_below(&[(1, 0), (2, 1 << 20), (3, 64 << 20)]);
    assert_eq!([0, 1, 2, 3].map(|policy| store.aggregate_below(policy)), [3000, 0, 1 << 20, 4 << 20]);
    // Bytes, and how many of them get a file with each policy's limit.
    for (policy, sizes, files) in [
        (0, vec![2999, 3000, 3001], 1),
        (1, vec![0, 1, 3000], 2),
        (2, vec![3001, (1 << 20) - 1, 1 << 20, (1 << 20) + 1], 1),
        (3, vec![(1 << 20) + 1, 4 << 20, (4 << 20) + 1], 1),
    ] {
        let before = in_files();
        for (number, size) in (0..).zip(&sizes) {
            put(of(policy, number), *size, 1000);
        }
        assert_eq!(in_files() - before, files, "policy {policy}");
    }
    // A change counts for what is written from then on, and a compaction moves nothing to the other kind of place.
    let before = in_files();
    store.set_aggregate_below(&[(0, 10)]);
    while store.compact().expect("rewritten") {}
    assert_eq!(in_files(), before);
    put(of(0, 7), 2999, 2000);
    put(of(1, 7), 2999, 2000);
    assert_eq!(in_files(), before + 1, "policy 1 has the store's own limit again");
    drop(store);
    let store = open(&disk, config());
    assert_eq!(store.get(&of(0, 7)).expect("there").read(0, 9999).expect("sound"), content(2999, 2999));
    assert_eq!(store.get(&of(3, 1)).expect("there").info().size, 4 << 20);
}

#[test]
fn what_is_replaced_gives_its_space_back() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, Config { volume_bytes: 4 << 20, aggregate_below: 1 << 20, ..config() });
    let data = content(5, 900_000);
    store.put(key(1), &put_meta(1000), &footer(&data), data.clone()).expect("stored");
    let reader = store.get(&key(1)).expect("there");
    store.put(key(1), &put_meta(2000), &footer(&data), data.clone()).expect("stored");
    assert_eq!(store.punch().expect("nothing"), 0, "somebody is reading");
    drop(reader);
    assert!(store.punch().expect("punched") > 800_000);
    assert_eq!(store.get(&key(1)).expect("there").read(0, 900_000).expect("sound"), data);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

/// A scan reads the metadata of dead records, too, and takes what is missing there for damage.
#[test]
fn a_hole_in_a_dead_record_spares_its_metadata() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, Config { volume_bytes: 16 << 20, aggregate_below: 1 << 20, ..config() });
    let data = content(5, 900_000);
    // Metadata that reach into the record's second block, and into its third one.
    for (number, size) in [(1, 5000), (2, 10_000)] {
        let meta = |timestamp| PutMeta { sysmeta: vec![(b"s".to_vec(), vec![b'x'; size])], ..put_meta(timestamp) };
        for timestamp in [1000, 2000] {
            store.put(key(number), &meta(timestamp), &footer(&data), data.clone()).expect("stored");
        }
    }
    store.mark().expect("marked");
    assert!(store.punch().expect("punched") > 1_600_000);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
    drop(store);
    let store = open(&disk, config());
    assert_eq!(store.recovery().damaged, 0);
    assert_eq!(store.get(&key(2)).expect("there").read(0, 900_000).expect("sound"), data);
}

#[test]
fn compaction_keeps_what_counts_and_readers_read_on() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, config());
    let data = content(5, 2500);
    for number in 0..60 {
        store.put(key(number), &put_meta(1000), &footer(&data), data.clone()).expect("stored");
    }
    let reader = store.get(&key(0)).expect("there");
    for number in (0..60).filter(|number| number % 6 != 0) {
        store.delete(key(number), 2000, Vec::new()).expect("deleted");
    }
    let before: u64 = store.volumes().iter().map(|volume| volume.end).sum();
    while store.compact().expect("compacted") {}
    let after: u64 = store.volumes().iter().map(|volume| volume.end).sum();
    assert!(after * 2 < before, "{before} bytes became {after}");
    assert_eq!(reader.read(0, 2500).expect("sound"), data);
    for number in (0..60).step_by(6) {
        assert_eq!(store.get(&key(number)).expect("there").read(0, 2500).expect("sound"), data);
    }
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
    assert_eq!(store.reclaim(3000), Ok(50));
    while store.compact().expect("compacted") {}
    drop(store);
    let store = open(&disk, config());
    assert_eq!(store.usage().expect("usage").objects, 10);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn expired_objects_are_named() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, config());
    let put = |number, delete_at| {
        let meta = PutMeta { delete_at, ..put_meta(1000) };
        store.put(key(number), &meta, &footer(b""), Vec::new()).expect("stored")
    };
    put(1, 500);
    put(2, 900);
    put(3, 0);
    put(4, 500);
    store.post(key(4), post_meta(1100, None)).expect("posted");
    assert_eq!(store.expired(600), vec![(key(1), 1000)]);
    store.checkpoint().expect("a checkpoint");
    drop(store);
    let store = open(&disk, config());
    assert_eq!(store.expired(600), vec![(key(1), 1000)]);
    assert_eq!(store.expired(10_000).len(), 2);
}

#[test]
fn the_auditor_finds_damage_and_begins_again() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk, config());
    for number in 0..7 {
        let data = content(number, 2000);
        store.put(key(number), &put_meta(1000), &footer(&data), data).expect("stored");
    }
    let (volume, size) = disk.files().into_iter().find(|(path, _)| path.starts_with("volumes/")).expect("a volume");
    disk.flip(&volume, 8 * 6000);
    assert!(size > 6000);
    let mut damaged = Vec::new();
    for _ in 0..10 {
        damaged.extend(store.audit(3000).expect("audited"));
    }
    assert_eq!(damaged.len(), 1);
    assert_eq!(store.counters().quarantined.load(Ordering::Relaxed), 1);
    assert!(disk.files().iter().any(|(path, _)| path.starts_with("quarantined/")));
    assert!(matches!(store.get(&damaged[0]), Err(Error::NotFound(None))));
}

#[test]
fn a_device_has_one_owner_and_readers_outlive_it() {
    let root = std::env::temp_dir().join(format!("swiftlet-store-{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a directory");
    let config = Config { volume_bytes: 1 << 20, ..Config::default() };
    let store = Store::open(&root, config.clone()).expect("it opens");
    assert!(matches!(Store::open(&root, config.clone()), Err(Error::Locked(_))));
    let data = content(1, 3000);
    store.put(key(1), &put_meta(1000), &footer(&data), data.clone()).expect("stored");
    let object = store.get(&key(1)).expect("there");
    let range = object.range().expect("a descriptor").expect("a real file");
    store.close().expect("closed");
    assert_eq!(object.read(0, 3000).expect("sound"), data);
    let mut raw = vec![0; range.len as usize];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::from(range.file), &mut raw, range.offset).expect("read");
    assert_eq!(raw, data);
    let next = Store::open(&root, config).expect("it opens again");
    assert_eq!(next.recovery().records, 0, "the checkpoint at the end has it all");
    assert_eq!(next.stat(&key(1)).expect("there").size, 3000);
    drop(next);
    std::fs::remove_dir_all(&root).expect("cleaned up");
}
