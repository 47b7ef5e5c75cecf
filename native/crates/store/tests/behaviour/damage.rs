//! Flipped bits, full disks, newer formats.

use std::sync::Arc;

use crate::common::crashing::{Life, Model as _};
use crate::common::{KEYS, Worker, config, content, footer, key, put_meta, seen};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::{Error, Store};

fn open(disk: &Arc<SimulatedDisk>) -> swiftlet_store::Result<Store> {
    Store::open_disk(Arc::clone(disk) as _, config())
}

/// A device after a life of its own, what it holds, and what is held of each object.
fn lived(seed: u64) -> (Arc<SimulatedDisk>, Worker) {
    let disk = SimulatedDisk::new(seed, Faults::default());
    let mut worker = Worker::begin(seed);
    for _ in 0..3 {
        let store = open(&disk).expect("it opens");
        worker.work(&store, &disk, 40, "no crash");
        store.checkpoint().expect("a checkpoint");
        worker.work(&store, &disk, 10, "no crash");
        worker.model.check(&store, &format!("seed {seed}"));
        if seed % 4 == 1 {
            store.mark().expect("a mark, as whenever nothing is going on");
        }
    }
    if seed.is_multiple_of(2) {
        open(&disk).and_then(|store| store.checkpoint()).expect("a checkpoint, as at the end of every orderly life");
    }
    (disk, worker)
}

#[test]
fn flipped_bits_are_found_and_never_served() {
    let (mut flips, mut lost, mut unharmed, mut unknown) = (0, 0, 0, 0);
    for seed in 0..20 {
        let (disk, worker) = lived(seed);
        let files: Vec<_> = disk.files().into_iter().filter(|(path, size)| path.contains('/') && *size > 0).collect();
        let total: u64 = files.iter().map(|(_, size)| size).sum();
        let mut random = crate::common::random(seed + 77);
        for _ in 0..500 {
            flips += 1;
            let disk = disk.copy();
            let mut at = random.below(total);
            let (path, _) = files
                .iter()
                .find(|(_, size)| {
                    let here = at < *size;
                    at = if here { at } else { at - size };
                    here
                })
                .expect("within the files");
            let bit = at * 8 + random.below(8);
            disk.flip(path, bit);
            let what = format!("seed {seed}, {path}, bit {bit}");
            let store = match open(&disk) {
                Ok(store) => store,
                // A flipped version number, checked before all else, may look like a newer program's.
                Err(Error::Format(_)) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            let mut missing = 0;
            for number in 0..KEYS {
                let expected = worker.model.current(number);
                let found = match seen(&store, &key(number)) {
                    Err(Error::ChecksumMismatch(_)) => {
                        missing += 1;
                        continue;
                    }
                    other => other.unwrap_or_else(|error| panic!("{what}: {error}")),
                };
                if found == expected.seen() {
                    continue;
                }
                missing += 1;
                match (found, expected.seen()) {
                    (Err(_), _) => {}
                    // A damaged POST does not take its object along.
                    (Ok((info, data)), Ok((whole, bytes))) if data == bytes && info.timestamp == whole.timestamp => {}
                    // An older version, whole, where the newer one seems never to have been finished.
                    (Ok((info, data)), _) if seed % 2 == 1 && data == content(info.timestamp, info.size) => {}
                    (Ok((info, _)), _) => panic!("{what}: served {info:?}"),
                }
            }
            let found = store.recovery().damaged + store.recovery().dangling;
            let quarantined = store.counters().quarantined.load(std::sync::atomic::Ordering::Relaxed);
            if missing > 0 && found + quarantined == 0 {
                // Without checkpoint and mark, damage to the last batch looks like a write that was never finished.
                assert!(seed % 4 == 3 && path.starts_with("volumes/"), "{what}: {missing} missing and nobody knows");
                unknown += 1;
            }
            if missing > 0 {
                lost += 1;
            } else {
                unharmed += 1;
            }
        }
    }
    assert_eq!(flips, 10_000);
    assert!(unknown < 150, "{unknown} not noticed");
    assert!(lost > 400 && unharmed > 500, "{lost} harmed, {unharmed} not: the flips hit nothing, or everything");
}

/// The volume with these data, and the byte at which they begin.
fn place_of(disk: &Arc<SimulatedDisk>, data: &[u8]) -> Option<(String, u64)> {
    let volumes = disk.files().into_iter().filter(|(path, _)| path.starts_with("volumes/"));
    volumes.into_iter().find_map(|(path, size)| {
        let mut raw = vec![0; size as usize];
        disk.open(&path).expect("opened").read_at(&mut raw, 0).expect("read");
        let at = raw.windows(data.len()).position(|window| window == data)?;
        Some((path, at as u64))
    })
}

#[test]
fn what_a_damaged_version_had_replaced_does_not_come_back_once_its_record_is_gone() {
    let disk = SimulatedDisk::new(3, Faults::default());
    let store = open(&disk).expect("it opens");
    let put = |store: &Store, number, timestamp, size| {
        let data = content(timestamp, size);
        store.put(key(number), &put_meta(timestamp), &footer(&data), data).expect("stored");
    };
    // The older version is in a volume that stays, and the newer one in one that is rewritten.
    put(&store, 0, 100, 500);
    (1..15).for_each(|number| put(&store, number, 1000 + number, 2900));
    put(&store, 0, 200, 600);
    (20..36).for_each(|number| put(&store, number, 1000 + number, 2900));
    store.mark().expect("marked");
    drop(store);
    let (path, at) = place_of(&disk, &content(200, 600)).expect("the newer version");
    assert_ne!(place_of(&disk, &content(100, 500)).expect("the older one").0, path);
    // What precedes the data is read at the start.
    disk.flip(&path, (at - 1) * 8);

    let store = open(&disk).expect("it opens");
    assert_eq!((seen(&store, &key(0)), store.recovery().damaged), (Ok(Err(None)), 1));
    for key in (20..36).map(key) {
        let entries = store.entries((key.policy, key.partition), key.suffix()).expect("entries");
        let own = entries.into_iter().find(|entry| entry.digest == key.digest).expect("its entry");
        store.remove(key, own).expect("removed");
    }
    while store.compact().expect("compacted") {}
    store.checkpoint().expect("a checkpoint");
    drop(store);
    assert!(disk.files().iter().all(|(found, _)| *found != path), "the volume of the damaged record is gone");
    assert!(place_of(&disk, &content(100, 500)).is_some(), "the older version is still in its volume");

    // Without a checkpoint a start reads all records there are.
    for (path, size) in disk.files().into_iter().filter(|(path, _)| path.starts_with("index/")) {
        (0..size).for_each(|byte| disk.flip(&path, byte * 8));
    }
    let store = open(&disk).expect("it opens");
    assert!(!store.recovery().checkpoint);
    assert_eq!(seen(&store, &key(0)), Ok(Err(None)));
    put(&store, 0, 300, 100);
    drop(store);
    assert!(seen(&open(&disk).expect("it opens"), &key(0)).is_ok_and(|found| found.is_ok()), "it can be stored again");
}

#[test]
fn a_full_disk_takes_deletions_and_comes_back() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let config = swiftlet_store::Config { reserve_bytes: 1 << 20, ..config() };
    let store = Store::open_disk(Arc::clone(&disk) as _, config).expect("it opens");
    let data = content(7, 2000);
    for number in 0..KEYS {
        store.put(key(number), &put_meta(1000), &footer(&data), data.clone()).expect("room");
    }
    disk.set_faults(Faults { full: true, ..Faults::default() });
    let refused = store.put(key(0), &put_meta(2000), &footer(&data), data.clone());
    assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
    assert!(matches!(store.create(key(0), None, None), Err(Error::DiskFull(_))));
    store.delete(key(1), 2000, b"/a/c/o".to_vec()).expect("deleting goes on");
    disk.set_faults(Faults::default());
    store.put(key(0), &put_meta(2000), &footer(&data), data).expect("room again");
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn no_space_in_the_middle_of_a_batch_leaves_nothing_of_it() {
    // Without a reserve the volumes themselves run out of space.
    let disk = SimulatedDisk::new(2, Faults::default());
    let store = open(&disk).expect("it opens");
    let data = content(7, 2900);
    let mut stored = 0;
    for number in 0..60 {
        if number == 20 {
            disk.set_faults(Faults { full: true, ..Faults::default() });
        }
        match store.put(key(number), &put_meta(1000), &footer(&data), data.clone()) {
            Ok(_) => stored += 1,
            Err(Error::DiskFull(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((20..60).contains(&stored));
    disk.set_faults(Faults::default());
    store.put(key(100), &put_meta(1000), &footer(&data), data).expect("room again");
    drop(store);
    let store = open(&disk).expect("it opens");
    assert_eq!(store.usage().expect("usage").objects, stored + 1);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn after_an_io_error_nothing_is_done() {
    let (disk, _) = lived(3);
    let store = open(&disk).expect("it opens");
    disk.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    let data = content(7, 100);
    let first = store.put(key(0), &put_meta(1 << 40), &footer(&data), data.clone());
    assert!(matches!(first, Err(Error::DeviceFailed(_))), "{first:?}");
    disk.set_faults(Faults::default());
    assert!(matches!(store.put(key(0), &put_meta(1 << 40), &footer(&data), data), Err(Error::DeviceFailed(_))));
    assert!(matches!(store.stat(&key(0)), Err(Error::DeviceFailed(_))));
    assert!(matches!(store.partitions(), Err(Error::DeviceFailed(_))));
    assert!(matches!(store.checkpoint(), Err(Error::DeviceFailed(_))));
}

#[test]
fn another_format_is_refused_and_left_alone() {
    let (disk, _) = lived(4);
    let file = disk.open("format").expect("it is there");
    let mut raw = vec![0; 40];
    file.read_at(&mut raw, 0).expect("read");
    raw[9] = 2;
    let check = swiftlet_hash::xxh3_64(&raw[..32]);
    raw[32..].copy_from_slice(&check.to_be_bytes());
    file.write_at(&[std::io::IoSlice::new(&raw)], 0).expect("written");
    let before = disk.files();
    let Err(Error::Format(told)) = open(&disk) else { panic!("it was opened") };
    assert_eq!(
        told,
        "the device has format version 2, this program understands 1: run a release of Swiftlet that understands it"
    );
    assert_eq!(disk.files(), before);
}

#[test]
fn the_index_is_rebuilt_from_the_volumes_alone() {
    for seed in 30..60 {
        let (disk, mut worker) = lived(seed);
        for (path, _) in disk.files() {
            if path.starts_with("index/") || path == "format" {
                disk.unlink(&path).expect("removed");
            }
        }
        let store = open(&disk).expect("it opens");
        assert!(!store.recovery().checkpoint);
        worker.model.check(&store, &format!("seed {seed}, rebuilt"));
    }
}
