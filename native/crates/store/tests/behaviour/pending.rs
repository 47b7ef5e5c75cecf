//! Pending container updates: as durable as their writes, gone when acknowledged, never forgotten by a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{config, content, footer, key, put_meta, random};
use swiftlet_store::disk::{Faults, SimulatedDisk};
use swiftlet_store::model::PostMeta;
use swiftlet_store::{Done, Error, Store};

fn wait(store: &Store, submit: impl FnOnce(Done)) -> Result<bool, Error> {
    let (tell, told) = mpsc::channel();
    submit(Box::new(move |outcome| drop(tell.send(outcome))));
    store.commit_pending();
    told.recv().expect("an answer")
}

fn put(store: &Store, number: u64, timestamp: u64, row: u32) -> Result<bool, Error> {
    let data = content(timestamp, 100);
    wait(store, |done| {
        store.submit_put_with_row(key(number), &put_meta(timestamp), &footer(&data), data.clone(), row, done);
    })
}

fn pending(store: &Store) -> BTreeSet<(u64, u32)> {
    store.pending_updates(1000, Duration::ZERO).iter().map(|update| (update.timestamp, update.row)).collect()
}

fn open(disk: &Arc<SimulatedDisk>) -> Store {
    Store::open_disk(Arc::clone(disk) as _, config()).expect("opened")
}

#[test]
fn an_update_is_pending_until_it_is_acknowledged_over_starts() {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    put(&store, 1, 10, 1).expect("put");
    put(&store, 2, 11, 2).expect("put");
    put(&store, 3, 12, 0).expect("put");
    assert_eq!(pending(&store), [(10, 1), (11, 2)].into());
    store.acknowledge(&[(key(1), 10)]);
    store.checkpoint().expect("a checkpoint");
    put(&store, 4, 13, 4).expect("put");
    drop(store);
    let disk = disk.after_crash(Faults::default());
    let store = open(&disk);
    assert_eq!(pending(&store), [(11, 2), (13, 4)].into(), "one from the file, one from the tail");
    store.acknowledge(&[(key(2), 11), (key(4), 13)]);
    store.checkpoint().expect("a checkpoint");
    drop(store);
    let store = open(&disk.after_crash(Faults::default()));
    assert_eq!(pending(&store), [].into());
}

#[test]
fn a_newer_update_is_not_acknowledged_with_an_older_one_and_its_object_is_not_forgotten() {
    let store = open(&SimulatedDisk::new(2, Faults::default()));
    put(&store, 1, 10, 1).expect("put");
    put(&store, 1, 20, 2).expect("put");
    store.acknowledge(&[(key(1), 10)]);
    assert_eq!(pending(&store), [(20, 3)].into());
    let id = (key(1).policy, key(1).partition);
    let entry = store.entries(id, key(1).suffix()).expect("entries")[0];
    assert_eq!(store.remove(key(1), entry), Ok(false), "with it its row would be lost");
    store.acknowledge(&[(key(1), 20)]);
    assert_eq!(store.remove(key(1), entry), Ok(true));
    assert_eq!(store.pending_updates(10, Duration::from_secs(60)), []);
}

#[test]
fn an_update_that_nobody_else_delivers_waits_a_moment_only() {
    let store = open(&SimulatedDisk::new(3, Faults::default()));
    for number in 1..=3 {
        put(&store, number, 10 + number, 1).expect("put");
        store.deliver_alone(&key(number), if number == 2 { 5 } else { 10 + number });
    }
    put(&store, 3, 20, 1).expect("put");
    let until = Instant::now() + Duration::from_secs(30);
    let mut early = Vec::new();
    while early.is_empty() && Instant::now() < until {
        early = store.pending_updates(10, Duration::from_secs(3600));
        std::thread::sleep(Duration::from_millis(10));
    }
    let numbers: Vec<u64> = early.iter().map(|update| update.timestamp).collect();
    assert_eq!(numbers, [11], "neither that of another version nor one that was written again by somebody else");
}

fn post(store: &Store, timestamp: u64, content_type: Option<(&str, u64)>, row: u32) -> Result<bool, Error> {
    let meta = PostMeta {
        timestamp,
        metadata: Vec::new(),
        content_type: content_type.map(|(text, _)| text.into()),
        content_type_timestamp: content_type.map_or(0, |(_, at)| at),
        delete_at: 0,
    };
    wait(store, |done| store.submit_post_with_row(key(1), meta, row, done))
}

#[test]
fn a_post_does_not_acknowledge_older_data_that_only_this_device_may_have() {
    let store = open(&SimulatedDisk::new(5, Faults::default()));
    put(&store, 1, 10, 1).expect("put");
    post(&store, 20, None, 2).expect("posted");
    store.acknowledge(&[(key(1), 20)]);
    assert_eq!(pending(&store), [(21, 3)].into(), "whoever brought the POST's row has not seen the data here");
    store.acknowledge(&[(key(1), 21)]);
    assert_eq!(pending(&store), [].into(), "the device itself acknowledges what it has brought");
}

#[test]
fn a_content_type_that_a_late_post_hands_on_is_pending_beside_the_newer_posts_row() {
    let store = open(&SimulatedDisk::new(6, Faults::default()));
    put(&store, 1, 10, 0).expect("put");
    post(&store, 20, None, 1).expect("posted");
    assert_eq!(post(&store, 15, Some(("text/late", 15)), 2), Err(Error::Superseded(20)));
    store.acknowledge(&[(key(1), 20)]);
    assert_eq!(pending(&store), [(21, 3)].into());
}

#[test]
fn data_take_the_place_of_all_that_is_older() {
    let store = open(&SimulatedDisk::new(7, Faults::default()));
    put(&store, 1, 10, 1).expect("put");
    post(&store, 20, None, 2).expect("posted");
    put(&store, 1, 30, 4).expect("put");
    store.acknowledge(&[(key(1), 30)]);
    assert_eq!(pending(&store), [].into());
}

#[test]
fn a_pending_update_has_a_name_and_an_age() {
    let store = open(&SimulatedDisk::new(4, Faults::default()));
    assert_eq!((store.pending_for(), store.name(&key(1))), (Duration::ZERO, Ok(None)));
    put(&store, 1, 10, 1).expect("put");
    std::thread::sleep(Duration::from_millis(2));
    assert!(store.pending_for() >= Duration::from_millis(2));
    assert_eq!(store.name(&key(1)), Ok(Some(put_meta(10).name)));
    wait(&store, |done| store.submit_delete_with_row(key(1), 30, b"/a/c/o".to_vec(), 1, done)).expect("deleted");
    assert_eq!(store.name(&key(1)), Ok(Some(b"/a/c/o".to_vec())), "a tombstone has one too");
}

#[test]
fn a_deletion_has_a_pending_update_and_a_refused_write_none() {
    let store = open(&SimulatedDisk::new(3, Faults::default()));
    put(&store, 1, 20, 0).expect("put");
    assert_eq!(put(&store, 1, 10, 1), Err(Error::Superseded(20)));
    assert_eq!(pending(&store), [].into());
    wait(&store, |done| store.submit_delete_with_row(key(1), 30, b"/a/c/o".to_vec(), 1, done)).expect("deleted");
    assert_eq!(pending(&store), [(30, 1)].into());
}

#[test]
fn no_crash_loses_a_row_of_an_acknowledged_write() {
    for seed in 0..400 {
        let mut random = random(seed);
        let disk = SimulatedDisk::new(seed, Faults { crash_after: Some(40 + random.below(300)), ..Faults::default() });
        let (mut due, mut clock) = (BTreeSet::new(), 100);
        let Ok(store) = Store::open_disk(Arc::clone(&disk) as _, config()) else { continue };
        for _ in 0..60 {
            clock += 1;
            if put(&store, clock, clock, 1).is_ok() {
                due.insert(clock);
            }
            match random.below(8) {
                0 => {
                    let some: Vec<u64> = due.iter().copied().filter(|_| random.below(2) == 0).collect();
                    store.acknowledge(&some.iter().map(|at| (key(*at), *at)).collect::<Vec<_>>());
                    due.retain(|at| !some.contains(at));
                }
                1 => drop(store.checkpoint()),
                2 => drop(store.compact()),
                _ => {}
            }
        }
        drop(store);
        let store = open(&disk.after_crash(Faults::default()));
        let found: BTreeSet<u64> = pending(&store).iter().map(|(timestamp, _)| *timestamp).collect();
        assert!(due.is_subset(&found), "seed {seed}: lost {:?}", due.difference(&found));
    }
}

#[test]
fn a_damaged_file_is_not_believed() {
    let disk = SimulatedDisk::new(4, Faults::default());
    let store = open(&disk);
    put(&store, 1, 10, 1).expect("put");
    store.checkpoint().expect("a checkpoint");
    put(&store, 2, 11, 1).expect("put");
    drop(store);
    let disk = disk.after_crash(Faults::default());
    for bit in [0, 70, 300, 500] {
        let copy = disk.copy();
        copy.flip("pending", bit);
        let store = open(&copy);
        assert_eq!(pending(&store), [(11, 1)].into(), "what the tail has is pending all the same");
    }
}
