//! Small objects that are read without a wait for the device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{config, content, footer, key, post_meta, put_meta};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::model::{Info, Key};
use swiftlet_store::{AtOnce, Config, Error, Object, Store};

fn opened() -> (Arc<SimulatedDisk>, Store) {
    let disk = SimulatedDisk::new(1, Faults::default());
    let config = Config { volume_bytes: 1 << 20, aggregate_below: 1 << 20, ..config() };
    let store = Store::open_disk(Arc::clone(&disk) as _, config).expect("it opens");
    (disk, store)
}

fn put(store: &Store, number: u64, timestamp: u64, size: u64) -> Vec<u8> {
    let data = content(timestamp, size);
    store.put(key(number), &put_meta(timestamp), &footer(&data), data.clone()).expect("stored");
    data
}

/// Read one into memory of its own.
fn read(store: &Store, key: &Key) -> Option<Object> {
    match store.get_at_once(key, |_| None::<Vec<u8>>)? {
        AtOnce::Object(object) => Some(object),
        AtOnce::Record(..) => panic!("there was no other memory"),
    }
}

/// Read one, into other memory above 64 KiB, and return what it is.
fn read_elsewhere(store: &Store, key: &Key) -> Option<(Info, Vec<u8>)> {
    match store.get_at_once(key, |bytes| Some(vec![7; bytes]))? {
        AtOnce::Object(object) => Some((object.info().clone(), object.bytes()?.to_vec())),
        AtOnce::Record(info, memory, data) => {
            assert!(data.len() > 60_000, "a copy would cost less");
            Some((info, memory[data].to_vec()))
        }
    }
}

#[test]
fn they_are_what_everybody_reads() {
    let (disk, store) = opened();
    for (number, size) in (0..).zip([0, 1, 10_240, 60_000, 70_000, 130_000]) {
        let data = put(&store, number, 1000, size);
        let (object, other) = (read(&store, &key(number)).expect("read"), store.get(&key(number)).expect("read"));
        assert_eq!((object.bytes(), object.info()), (Some(&data[..]), other.info()));
        assert_eq!(read_elsewhere(&store, &key(number)), Some((other.info().clone(), data)));
    }
    assert_eq!(disk.reads_at_once(), 12);
    put(&store, 1, 2000, 7);
    assert_eq!(read(&store, &key(1)).expect("read").info().timestamp, 2000);
}

#[test]
fn others_are_left_to_those_who_may_wait() {
    let (disk, store) = opened();
    put(&store, 1, 1000, 131_000);
    put(&store, 2, 1000, 100);
    store.post(key(2), post_meta(2000, None)).expect("posted");
    put(&store, 3, 1000, 100);
    store.delete(key(3), 2000, b"/a/c/o".to_vec()).expect("deleted");
    put(&store, 4, 1000, 100);
    disk.set_faults(Faults { cold: true, ..Faults::default() });
    for number in 1..=5 {
        assert!(read(&store, &key(number)).is_none(), "{number}");
    }
    disk.set_faults(Faults::default());
    for number in [1, 2, 3, 5] {
        assert!(read(&store, &key(number)).is_none(), "{number}");
    }
    assert!(read(&store, &key(4)).is_some());
    assert_eq!(disk.reads_at_once(), 1);
}

#[test]
fn an_error_is_for_those_who_handle_it() {
    let (disk, store) = opened();
    put(&store, 1, 1000, 100);
    disk.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    assert!(read(&store, &key(1)).is_none());
    assert!(store.get(&key(1)).is_ok(), "the device has not failed for it");
    disk.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    assert!(matches!(store.get(&key(1)), Err(Error::DeviceFailed(_))));
    assert!(read(&store, &key(1)).is_none(), "of a failed device nothing is read");
}

/// Flip a bit of a byte of an object's record, counted back from the last byte of its data; what is before the record
/// belongs to nobody.
fn damaged(size: u64, byte: u64) -> Store {
    let (disk, store) = opened();
    let data = put(&store, 1, 1000, size);
    let (path, size) = disk.files().into_iter().find(|(path, _)| path.starts_with("volumes/")).expect("a volume");
    let mut raw = vec![0; size as usize];
    disk.open(&path).expect("opened").read_at(&mut raw, 0).expect("read");
    let end = raw.windows(data.len()).position(|window| window == data).expect("in the volume") + data.len();
    disk.flip(&path, (end as u64 - 1 - byte) * 8 + byte % 8);
    store
}

#[test]
fn damage_is_for_those_who_handle_it() {
    // Whole records: header, metadata, and data.
    let small = (0..10).chain(40..700).map(|byte| (300, byte));
    let larger =
        [0, 1, 35_000].into_iter().chain((0..40).map(|number| 69_999 + 10 * number)).map(|byte| (70_000, byte));
    for (size, byte) in small.chain(larger) {
        let store = damaged(size, byte);
        let quarantined = || store.counters().quarantined.load(Ordering::Relaxed);
        if let Some(read) = read_elsewhere(&store, &key(1)) {
            let sound = store.get(&key(1)).expect("sound");
            assert_eq!((Some(&read.1[..]), &read.0), (sound.bytes(), sound.info()), "{size}: {byte}");
            continue;
        }
        assert_eq!(quarantined(), 0, "{size}: {byte}: nothing is done about it yet");
        assert!(store.get(&key(1)).is_err(), "{size}: {byte}");
        assert_eq!(quarantined(), 1, "{size}: {byte}: now it is");
    }
}
