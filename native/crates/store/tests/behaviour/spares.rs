//! Files of large objects that are written again: the objects are what they would be without it.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::common::{config, content, footer, key, put_meta};
use swiftlet_store::disk::{Faults, SimulatedDisk};
use swiftlet_store::{Config, Error, Store};

/// The first disk is written directly, the other one through the page cache.
const SEEDS: [u64; 2] = [1, 3];

fn open(disk: &Arc<SimulatedDisk>) -> Store {
    Store::open_disk(Arc::clone(disk) as _, Config { spare_bytes: 1 << 20, ..config() }).expect("it opens")
}

fn put(store: &Store, number: u64, timestamp: u64, size: u64) {
    let data = content(timestamp, size);
    let mut writer = store.create(key(number), timestamp.is_multiple_of(2).then_some(size), None).expect("begun");
    data.chunks(10_001).for_each(|piece| writer.write(piece).expect("written"));
    writer.commit(&put_meta(timestamp), &footer(&data)).expect("stored");
}

fn large_files(disk: &SimulatedDisk) -> Vec<(String, u64)> {
    disk.files().into_iter().filter(|(path, _)| path.starts_with("large/")).collect()
}

#[test]
fn an_object_that_is_replaced_again_and_again_has_two_files() {
    for seed in SEEDS {
        let disk = SimulatedDisk::new(seed, Faults::default());
        let store = open(&disk);
        let sizes = [40_000, 50_001, 4096, 65_536, 3001, 120_000, 40_960];
        for (timestamp, size) in (1000..1060).zip(sizes.into_iter().cycle()) {
            put(&store, 1, timestamp, size);
            let found = store.get(&key(1)).expect("there").read(0, u64::MAX).expect("sound");
            assert!(found == content(timestamp, size), "{timestamp}");
        }
        let reached = disk.reached();
        assert_eq!((reached["large-created"], reached["large-reused"]), (2, 58));
        assert!(!reached.contains_key("large-unlink"), "nothing was removed");
        assert_eq!(large_files(&disk).len(), 2);
        store.delete(key(1), 2000, Vec::new()).expect("deleted");
        store.close().expect("closed");
        assert!(large_files(&disk).is_empty(), "a store that is closed has no spares");
    }
}

#[test]
fn an_upload_that_ends_in_the_middle_leaves_a_spare_and_no_trace_of_it() {
    for seed in SEEDS {
        let disk = SimulatedDisk::new(seed, Faults::default());
        let store = open(&disk);
        let mut writer = store.create(key(1), Some(100_000), None).expect("begun");
        writer.write(&content(1, 90_000)).expect("written");
        drop(writer);
        put(&store, 2, 1001, 10_000);
        assert_eq!(disk.reached()["large-reused"], 1);
        assert_eq!(large_files(&disk)[0].1, 10_000);
        drop(store);
        let store = open(&disk.after_crash(Faults::default()));
        assert!(matches!(store.get(&key(1)), Err(Error::NotFound(_))));
        assert_eq!(store.get(&key(2)).expect("there").read(0, u64::MAX).expect("sound"), content(1001, 10_000));
    }
}

#[test]
fn who_reads_a_version_reads_it_to_its_end() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    put(&store, 1, 1000, 40_000);
    let old = store.get(&key(1)).expect("there");
    for timestamp in 1001..1006 {
        put(&store, 1, timestamp, 40_000);
    }
    assert_eq!(old.read(0, u64::MAX).expect("sound"), content(1000, 40_000));
    assert_eq!(disk.reached()["large-reused"], 3, "others are written again meanwhile");
    assert_eq!(disk.reached()["large-unlink"], 1);
}

#[test]
fn what_a_descriptor_was_given_away_of_stays_what_it_was() {
    let root = std::env::temp_dir().join(format!("swiftlet-spares-{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a directory");
    let store = Store::open(&root, Config { spare_bytes: 1 << 20, ..config() }).expect("it opens");
    put(&store, 1, 1000, 40_000);
    let object = store.get(&key(1)).expect("there");
    assert!(object.has_range());
    let range = object.range().expect("a descriptor").expect("a real file");
    drop(object);
    for timestamp in 1001..1004 {
        put(&store, 1, timestamp, 40_000);
    }
    let mut found = vec![0; 40_000];
    std::fs::File::from(range.file).read_exact_at(&mut found, range.offset).expect("read");
    assert_eq!(found, content(1000, 40_000));
    store.close().expect("closed");
    std::fs::remove_dir_all(&root).expect("cleaned up");
}
