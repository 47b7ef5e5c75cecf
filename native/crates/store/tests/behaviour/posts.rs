//! Metadata that are posted to coded objects: how they merge, what they outlive, and who is shown them.
//!
//! Crashes at every point, and records in any order, are in `fragments` and in the index's own tests.

use std::sync::Arc;
use std::time::Duration;

use crate::common::config;
use crate::common::fragments::{key, meta, written};
use swiftlet_fragments::Version;
use swiftlet_fragments::request::{Answer, Request};
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};
use swiftlet_store::model::{Entry, EntryKind, Key, PostMeta};
use swiftlet_store::{Error, Store};

fn open(disk: &Arc<SimulatedDisk>) -> Store {
    Store::open_disk(Arc::clone(disk) as _, config()).expect("it opens")
}

fn new_store() -> (Arc<SimulatedDisk>, Store) {
    let disk = SimulatedDisk::new(1, Faults::default());
    let store = open(&disk);
    (disk, store)
}

fn version(timestamp: u64) -> Version {
    Version { timestamp, generation: 1 }
}

fn prepare(store: &Store, key: Key, version: Version) {
    let (mut writer, block) = written(store, key, version).expect("room");
    writer.set_row(1);
    assert_eq!(writer.prepare(&meta(version), b"etag", block), Ok(Answer::Done));
}

fn ask(store: &Store, key: Key, request: Request) {
    assert_eq!(store.about_fragment(key, request), Ok(Answer::Done));
}

fn settle(store: &Store, key: Key, version: Version) {
    prepare(store, key, version);
    ask(store, key, Request::Commit(version));
    ask(store, key, Request::Settle(version));
}

fn post(timestamp: u64, content_type: Option<&str>) -> PostMeta {
    PostMeta {
        timestamp,
        metadata: vec![(b"color".to_vec(), timestamp.to_string().into_bytes())],
        content_type: content_type.map(Into::into),
        content_type_timestamp: if content_type.is_some() { timestamp } else { 0 },
        delete_at: 0,
    }
}

/// What a reader is told: of when the metadata are, and which content type they have.
fn described(store: &Store, key: Key) -> (u64, u64, String) {
    let info = store.stat(&key).expect("described");
    (info.timestamp, info.meta_timestamp, String::from_utf8(info.content_type).expect("text"))
}

fn hashes(store: &Store, key: Key) -> Vec<(u16, u128)> {
    store.suffixes((key.policy, key.partition)).expect("hashes")
}

fn entry(store: &Store, key: Key) -> Entry {
    let entries = store.entries((key.policy, key.partition), key.suffix()).expect("listed");
    *entries.iter().find(|entry| entry.digest == key.digest).expect("shown")
}

#[test]
fn the_newest_metadata_count_and_the_newest_content_type() {
    let (_, store) = new_store();
    let key = key(1);
    settle(&store, key, version(10));
    assert_eq!(store.coded_post(key, 10, post(30, None)), Ok(true));
    assert_eq!(described(&store, key), (10, 30, String::new()));
    // One that comes late hands its content type on.
    assert_eq!(store.coded_post(key, 10, post(20, Some("text/late"))), Err(Error::Superseded(30)));
    assert_eq!(described(&store, key), (10, 30, "text/late".to_owned()));
    assert_eq!(store.coded_post(key, 10, post(40, None)), Ok(true));
    assert_eq!(described(&store, key), (10, 40, "text/late".to_owned()));
    let held = store.posted(&key).expect("read").expect("held");
    assert_eq!((held.timestamp, held.content_type_timestamp), (40, 20));
    // Repeated, it changes nothing.
    assert_eq!(store.coded_post(key, 10, post(40, None)), Ok(true));
    assert_eq!(store.coded_post(key, 10, post(10, None)), Err(Error::Superseded(10)), "no newer than the object");
    let expected = Entry {
        digest: key.digest,
        kind: EntryKind::Data,
        timestamp: 10,
        meta_timestamp: 40,
        content_type_timestamp: 20,
    };
    assert_eq!(entry(&store, key), expected);
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn places_with_the_same_metadata_have_the_same_hashes_whatever_came_first() {
    let both: Vec<_> = [[20, 30], [30, 20]]
        .into_iter()
        .map(|order| {
            let (_, store) = new_store();
            settle(&store, key(1), version(10));
            let without = hashes(&store, key(1));
            for timestamp in order {
                drop(store.coded_post(key(1), 10, post(timestamp, Some(&timestamp.to_string()))));
            }
            assert_ne!(hashes(&store, key(1)), without);
            hashes(&store, key(1))
        })
        .collect();
    assert_eq!(both[0], both[1]);
}

#[test]
fn metadata_that_come_before_their_fragment_count_when_it_is_here() {
    let (disk, store) = new_store();
    let (one, other) = (key(1), key(2));
    for key in [one, other] {
        assert_eq!(store.coded_post(key, 10, post(20, Some("text/early"))), Ok(true));
    }
    assert_eq!((store.stat(&one), store.name(&one)), (Err(Error::NotFound(None)), Ok(None)));
    assert_eq!(store.pending_count(), 0, "nobody could list what isn't here");
    store.checkpoint().expect("written");
    drop(store);
    let store = open(&disk.after_crash(Faults::default()));
    for (key, seen) in [(one, (10, 20, "text/early".to_owned())), (other, (21, 21, String::new()))] {
        settle(&store, key, version(seen.0));
        assert_eq!(described(&store, key), seen);
    }
    assert_eq!(store.posted(&other), Ok(None), "older than what is settled");
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn metadata_count_for_the_version_before_if_theirs_never_happened() {
    let (_, store) = new_store();
    let key = key(1);
    settle(&store, key, version(10));
    prepare(&store, key, version(12));
    ask(&store, key, Request::Commit(version(12)));
    assert_eq!(store.coded_post(key, 12, post(20, None)), Ok(true));
    let newest = store.newest_fragment(&key, None).expect("read");
    assert_eq!((newest.committed, newest.post.map(|post| post.timestamp)), (Some(version(12)), Some(20)));
    let abort = swiftlet_fragments::Outcome::Abort;
    ask(&store, key, Request::Decide { version: version(12), outcome: abort });
    assert_eq!(described(&store, key), (10, 20, String::new()));
}

#[test]
fn a_deletion_ends_what_was_posted_to_what_it_deleted() {
    let (_, store) = new_store();
    let key = key(1);
    settle(&store, key, version(10));
    assert_eq!(store.coded_post(key, 10, post(20, None)), Ok(true));
    assert_eq!(store.delete(key, 25, b"/a/c/o".to_vec()), Ok(true));
    assert_eq!(store.posted(&key), Ok(None));
    assert_eq!(store.coded_post(key, 10, post(30, None)), Err(Error::NotFound(Some(25))));
    assert_eq!(store.stat(&key), Err(Error::NotFound(Some(25))));
    // What was posted to a later version, which is not here yet, is kept.
    assert_eq!(store.coded_post(key, 27, post(30, None)), Ok(true));
    settle(&store, key, version(27));
    assert_eq!(described(&store, key), (27, 30, String::new()));
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
}

#[test]
fn a_time_to_go_comes_and_goes_with_metadata() {
    let (disk, store) = new_store();
    let key = key(1);
    settle(&store, key, version(10));
    assert_eq!(store.coded_post(key, 10, PostMeta { delete_at: 500, ..post(20, None) }), Ok(true));
    assert_eq!((store.expired(499), store.expired(500)), (vec![], vec![(key, 10)]));
    store.checkpoint().expect("written");
    drop(store);
    let store = open(&disk.after_crash(Faults::default()));
    assert_eq!((store.expired(499), store.expired(500)), (vec![], vec![(key, 10)]));
    assert_eq!(store.coded_post(key, 10, post(30, None)), Ok(true));
    assert_eq!(store.expired(u64::MAX), vec![]);
}

#[test]
fn metadata_are_moved_by_compaction_and_found_in_the_volumes_alone() {
    let (disk, store) = new_store();
    settle(&store, key(1), version(10));
    assert_eq!(store.coded_post(key(1), 10, post(20, Some("text/kept"))), Ok(true));
    for timestamp in 10..200 {
        settle(&store, key(2), version(timestamp));
        assert_eq!(store.coded_post(key(2), timestamp, post(timestamp + 1, None)), Ok(true));
    }
    while store.compact().expect("compacted") {}
    assert_eq!(described(&store, key(1)), (10, 20, "text/kept".to_owned()));
    assert_eq!(store.check().expect("checked"), Vec::<String>::new());
    drop(store);
    let disk = disk.after_crash(Faults::default());
    for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("index/")) {
        disk.unlink(&path).expect("removed");
    }
    let store = open(&disk);
    assert!(!store.recovery().checkpoint);
    assert_eq!(described(&store, key(1)), (10, 20, "text/kept".to_owned()));
    assert_eq!(described(&store, key(2)), (199, 200, String::new()));
}

#[test]
fn damaged_metadata_are_put_aside_and_the_fragment_stays() {
    for audited in [true, false] {
        let (disk, store) = new_store();
        let key = key(1);
        settle(&store, key, version(10));
        assert_eq!(store.coded_post(key, 10, post(20, Some("text/damaged"))), Ok(true));
        let (path, at) = disk
            .files()
            .into_iter()
            .filter(|(path, _)| path.starts_with("volumes/"))
            .find_map(|(path, size)| {
                let mut raw = vec![0; size as usize];
                disk.open(&path).expect("open").read_at(&mut raw, 0).expect("read");
                raw.windows(12).position(|window| window == b"text/damaged").map(|at| (path, at as u64))
            })
            .expect("it is there");
        disk.flip(&path, at * 8 + 1);
        if audited {
            assert_eq!(store.audit(u64::MAX), Ok(vec![key]));
        }
        assert_eq!(described(&store, key), (10, 10, String::new()));
        assert_eq!(store.posted(&key), Ok(None));
        assert_eq!(store.counters().quarantined.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(store.audit(u64::MAX), Ok(vec![]));
        // They come again, from another place.
        assert_eq!(store.coded_post(key, 10, post(20, Some("text/damaged"))), Ok(true));
        assert_eq!(described(&store, key), (10, 20, "text/damaged".to_owned()));
    }
}

#[test]
fn metadata_have_an_update_of_their_own() {
    let (disk, store) = new_store();
    let key = key(1);
    settle(&store, key, version(10));
    store.acknowledge(&[(key, 10)]);
    let (told, heard) = std::sync::mpsc::channel();
    let done = Box::new(move |outcome| told.send(outcome).expect("heard"));
    store.submit_coded_post(key, 10, post(20, None), 6, done);
    while store.commit_pending() {}
    assert_eq!(heard.recv().expect("told"), Ok(true));
    let due = |store: &Store| {
        let due = store.pending_updates(10, Duration::ZERO);
        due.iter().map(|update| (update.timestamp, update.row)).collect::<Vec<_>>()
    };
    assert_eq!(due(&store), [(20, 6)]);
    drop(store);
    let store = open(&disk.after_crash(Faults::default()));
    assert_eq!(due(&store).iter().map(|update| update.1).collect::<Vec<_>>(), [6 | 1], "and the older one again");
    store.acknowledge(&due(&store).iter().map(|update| (key, update.0)).collect::<Vec<_>>());
    assert_eq!(store.pending_count(), 0);
}
