//! Deletions of erasure-coded objects: a tombstone at each place, or with a spare that stands in for it, by a quorum.

use super::*;
use swiftlet_fragments::deletion::Deleted;
use swiftlet_node::coded::{Deleting, StepOptions};

fn deleting() -> StepOptions {
    StepOptions { timeout: LONG, after_quorum: LONG, rows: vec![1, 2, 4, 1, 2], trace: "tx".to_owned() }
}

/// Delete; the outcome, and the updates that are pending at its end.
fn delete(places: Places, timestamp: u64, options: StepOptions) -> (Deleted, Vec<Owed>) {
    let events = Completions::new().unwrap();
    let deleting = Deleting::start(places, (timestamp, b"/a/c/o".to_vec()), options, (events.clone(), 7));
    loop {
        drop(events.wait(deleting.turn()));
        if let Some(end) = deleting.end() {
            return (end, deleting.owed());
        }
    }
}

fn not_found(timestamp: u64) -> Got {
    Err(ReadEnd::NotFound(Some(Version::deletion(timestamp))))
}

#[test]
fn objects_are_deleted_with_any_two_devices_away() {
    let cluster = Cluster::new(Carrier::Tcp);
    for (number, away) in (0..).zip(patterns()) {
        let object = content(number, 9000);
        cluster.put(number, 10, &object);
        let (end, owed) = delete(cluster.places(number, 2, &away), 11, deleting());
        assert_eq!(end, Deleted::Done { existed: true }, "{away:?}");
        // The updates are pending with the tombstones, under the name of the object.
        assert_eq!(owed.iter().map(|owed| owed.row).sum::<u32>(), 1 + 2 + 4 + 1 + 2, "{owed:?}");
        for Owed { key, device, row, .. } in owed {
            let store = &cluster.machines[device as usize].stores[0];
            let due = store.pending_updates(100, Duration::ZERO);
            assert!(due.iter().any(|due| (due.key, due.timestamp, due.row) == (key, 11, row)), "{due:?}");
            assert_eq!(store.name(&key), Ok(Some(b"/a/c/o".to_vec())));
            store.acknowledge(&[(key, 11)]);
        }
        // Those who were away are back, with what they had; whoever reads knows who it was.
        let mut first: Vec<usize> = (0..6).collect();
        first.sort_by_key(|place| away.contains(place));
        for gone in patterns().into_iter().filter(|gone| gone.iter().all(|place| !away.contains(place))) {
            let got = read(cluster.places(number, 2, &gone), &first, 0..u64::MAX, reading());
            assert_eq!(got, not_found(11), "deleted without {away:?}, read without {gone:?}");
        }
        // Once more it changes nothing; an older write comes too late, and a newer one counts.
        let (end, _) = delete(cluster.places(number, 0, &[]), 11, deleting());
        assert_eq!(end, Deleted::Done { existed: !away.is_empty() }, "{away:?}");
        let end = cluster.write_surely(cluster.places(number, 0, &[]), 10, &object);
        assert_eq!(end.past, Some(Version::deletion(11)));
        cluster.put(number, 12, &object);
        assert_eq!(read(cluster.places(number, 0, &[]), &[0], 0..u64::MAX, reading()), Ok((12, object)));
        assert_eq!(delete(cluster.places(number, 0, &[]), 11, deleting()).0, Deleted::Superseded(12));
    }
    assert_eq!(delete(cluster.places(99, 0, &[]), 11, deleting()).0, Deleted::Done { existed: false });
    assert_eq!(cluster.undecided(), 0);
}

#[test]
fn without_a_quorum_a_deletion_is_not_acknowledged() {
    let cluster = Cluster::new(Carrier::Tcp);
    let object = content(1, 9000);
    for (number, away) in [(1, [0, 1]), (2, [2, 5])] {
        cluster.put(number, 10, &object);
        assert_eq!(delete(cluster.places(number, 0, &away), 11, deleting()).0, Deleted::Unknown);
        // Four have it; that an object isn't there takes three.
        let first = if away.contains(&0) { 2 } else { 0 };
        let got = read(cluster.places(number, 0, &[]), &[first], 0..u64::MAX, reading());
        assert_eq!(got, not_found(11), "what was not acknowledged may have happened");
    }
    // One place and a spare are a quorum with the four others, whatever the last one says.
    cluster.put(3, 10, &object);
    assert_eq!(delete(cluster.places(3, 1, &[4, 5]), 11, deleting()).0, Deleted::Done { existed: true });
}

#[test]
fn who_stands_still_is_waited_for_no_longer_than_agreed() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.put(1, 10, &content(1, 9000));
    let _odd = cluster.silence(3, None);
    let options = StepOptions { after_quorum: SOON, ..deleting() };
    assert_eq!(delete(cluster.places(1, 0, &[]), 11, options).0, Deleted::Done { existed: true });
}

#[test]
fn a_deletion_ends_a_write_in_every_state() {
    let cluster = Cluster::new(Carrier::Tcp);
    let object = content(1, 9000);
    cluster.put(1, 10, &object);
    // A writer that stops when its fragments are prepared, and one whose commits are under way.
    for (timestamp, commits) in [(11, false), (13, true)] {
        let events = Completions::new().unwrap();
        let about = (meta(timestamp), timestamp);
        let writing = Writing::start(cluster.places(1, 0, &[]), about, None, writing(), (events.clone(), 7)).unwrap();
        while writing.turn() != Room::Now {
            drop(events.wait(SOON));
        }
        writing.push(&object).unwrap();
        if commits {
            while writing.finish(b"etag").is_err() {
                drop(events.wait(SOON));
            }
        }
        drop(writing);
        let end = delete(cluster.places(1, 0, &[]), timestamp + 1, deleting()).0;
        assert!(matches!(end, Deleted::Done { .. }), "{end:?}");
        let got = read(cluster.places(1, 0, &[]), &[0], 0..u64::MAX, reading());
        assert_eq!(got, not_found(timestamp + 1));
    }
    eventually("nothing is left", || cluster.undecided() == 0);
}
