//! Work beside everything else: it keeps to its rates, ends at once when the store is closed, and loses nothing by that.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{content, footer, key, put_meta};
use swiftlet_store::{Config, Error, Store};

/// A directory that is gone after the test.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("swiftlet-upkeep-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("cleaned up");
    }
}

fn wait(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn compaction_rests_and_is_ended_by_closing() {
    let root = Root::new("compaction");
    // At this rate a batch of copies is followed by a rest of a day.
    let slow = Config { volume_bytes: 16 << 20, compact_bytes_per_s: 50, live_share: 0.9, ..Config::default() };
    let store = Store::open(&root.0, slow).expect("it opens");
    let data = content(1, 100_000);
    for number in 0..200 {
        store.put(key(number), &put_meta(1000), &footer(&data), data.clone()).expect("stored");
    }
    for number in 0..50 {
        store.delete(key(number), 2000, Vec::new()).expect("deleted");
    }
    wait("the first copies", || store.counters().copied_bytes.load(Ordering::Relaxed) > 0);
    let began = Instant::now();
    store.close().expect("closed");
    assert!(began.elapsed() < Duration::from_secs(20), "a rest holds up nobody");
    assert_eq!(store.counters().compacted.load(Ordering::Relaxed), 0);
    let store = Store::open(&root.0, Config { threads: false, ..Config::default() }).expect("it opens again");
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
    for number in 50..200 {
        assert_eq!(store.get(&key(number)).expect("there").read(0, 100_000).expect("sound"), data);
    }
    assert!(store.compact().expect("compacted"), "the rest was left for the next time");
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn the_auditor_rests_in_the_middle_of_a_large_object() {
    let root = Root::new("audit");
    let store = Store::open(&root.0, Config { audit_bytes_per_s: 1 << 20, ..Config::default() }).expect("it opens");
    let data = content(1, 8 << 20);
    let began = Instant::now();
    let mut writer = store.create(key(1), Some(8 << 20), None).expect("room");
    writer.write(&data).expect("written");
    writer.commit(&put_meta(1000), &footer(&data)).expect("stored");
    wait("the auditor", || {
        store.counters().audits.load(Ordering::Relaxed) > 0
            && store.counters().audited_bytes.load(Ordering::Relaxed) >= 8 << 20
    });
    assert!(began.elapsed() > Duration::from_secs(7), "8 MiB at 1 MiB/s");
    store.close().expect("closed");
}

#[test]
fn many_tombstones_are_forgotten_in_few_batches() {
    let root = Root::new("reclaim");
    let store = Store::open(&root.0, Config { volume_bytes: 16 << 20, ..Config::default() }).expect("it opens");
    let store = std::sync::Arc::new(store);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..100 {
                    let gone = store.delete(key(thread * 100 + number), 2000, Vec::new());
                    assert!(matches!(gone, Err(Error::NotFound(_))), "a tombstone of nothing");
                }
            });
        }
    });
    let before = store.counters().batches.load(Ordering::Relaxed);
    assert_eq!(store.reclaim(3000), Ok(1600));
    let batches = store.counters().batches.load(Ordering::Relaxed) - before;
    assert!(batches < 160, "{batches} batches for 1600 tombstones");
    assert_eq!(store.usage().expect("usage").objects, 0);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn an_index_is_made_anew() {
    let root = Root::new("rebuild");
    let data = content(1, 5000);
    let store = Store::open(&root.0, Config::default()).expect("it opens");
    store.put(key(1), &put_meta(1000), &footer(&data), data.clone()).expect("stored");
    let busy = Store::rebuild(&root.0, Config::default());
    assert!(matches!(busy, Err(Error::Locked(_))));
    store.close().expect("closed");
    let rebuilt = Store::rebuild(&root.0, Config { threads: false, ..Config::default() }).expect("rebuilt");
    assert!(!rebuilt.recovery().checkpoint);
    assert_eq!(rebuilt.recovery().records, 1);
    assert_eq!(rebuilt.get(&key(1)).expect("there").read(0, 5000).expect("sound"), data);
    rebuilt.close().expect("closed");
    let next = Store::open(&root.0, Config::default()).expect("it opens");
    assert!(next.recovery().checkpoint);
    assert_eq!(next.recovery().records, 0);
}
