//! Small objects that are read without a wait for the device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{config, content, footer, key, post_meta, put_meta};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::{Config, Error, Store};

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

#[test]
fn they_are_what_everybody_reads() {
    let (disk, store) = opened();
    for (number, size) in (0..).zip([0, 1, 10_240, 30_000]) {
        let data = put(&store, number, 1000, size);
        let (object, other) = (store.get_at_once(&key(number)).expect("read"), store.get(&key(number)).expect("read"));
        assert_eq!((object.bytes(), object.info()), (Some(&data[..]), other.info()));
    }
    assert_eq!(disk.reads_at_once(), 4);
    put(&store, 1, 2000, 7);
    assert_eq!(store.get_at_once(&key(1)).expect("read").info().timestamp, 2000);
}

#[test]
fn others_are_left_to_those_who_may_wait() {
    let (disk, store) = opened();
    put(&store, 1, 1000, 40_000);
    put(&store, 2, 1000, 100);
    store.post(key(2), post_meta(2000, None)).expect("posted");
    put(&store, 3, 1000, 100);
    store.delete(key(3), 2000, b"/a/c/o".to_vec()).expect("deleted");
    put(&store, 4, 1000, 100);
    disk.set_faults(Faults { cold: true, ..Faults::default() });
    for number in 1..=5 {
        assert!(store.get_at_once(&key(number)).is_none(), "{number}");
    }
    disk.set_faults(Faults::default());
    for number in [1, 2, 3, 5] {
        assert!(store.get_at_once(&key(number)).is_none(), "{number}");
    }
    assert!(store.get_at_once(&key(4)).is_some());
    assert_eq!(disk.reads_at_once(), 1);
}

#[test]
fn an_error_is_for_those_who_handle_it() {
    let (disk, store) = opened();
    put(&store, 1, 1000, 100);
    disk.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    assert!(store.get_at_once(&key(1)).is_none());
    assert!(store.get(&key(1)).is_ok(), "the device has not failed for it");
    disk.set_faults(Faults { fail_after: Some(1), ..Faults::default() });
    assert!(matches!(store.get(&key(1)), Err(Error::DeviceFailed(_))));
    assert!(store.get_at_once(&key(1)).is_none(), "of a failed device nothing is read");
}

#[test]
fn damage_is_for_those_who_handle_it() {
    // Whole records: header, metadata, and data.
    for byte in (0..10).chain(40..700) {
        let (disk, store) = opened();
        let data = put(&store, 1, 1000, 300);
        let (path, size) = disk.files().into_iter().find(|(path, _)| path.starts_with("volumes/")).expect("a volume");
        let mut raw = vec![0; size as usize];
        disk.open(&path).expect("opened").read_at(&mut raw, 0).expect("read");
        let end = raw.windows(data.len()).position(|window| window == data).expect("in the volume") + data.len();
        // Backwards from the last byte of the data; what is before the record belongs to nobody.
        let at = end - 1 - byte;
        disk.flip(&path, at as u64 * 8 + byte as u64 % 8);
        let quarantined = || store.counters().quarantined.load(Ordering::Relaxed);
        if let Some(object) = store.get_at_once(&key(1)) {
            let sound = store.get(&key(1)).expect("sound");
            assert_eq!((object.bytes(), object.info()), (sound.bytes(), sound.info()), "{byte}");
            continue;
        }
        assert_eq!(quarantined(), 0, "{byte}: nothing is done about it yet");
        assert!(store.get(&key(1)).is_err(), "{byte}");
        assert_eq!(quarantined(), 1, "{byte}: now it is");
    }
}
