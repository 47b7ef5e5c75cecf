//! Metadata of erasure-coded objects: kept by a quorum of places and spares, and read back with devices away.

use super::*;
use swiftlet_fragments::deletion::Deleted;
use swiftlet_fragments::posting::Posted;
use swiftlet_node::coded::{Deleting, Posting, StepOptions};
use swiftlet_store::model::{Info, PostMeta};

fn posting() -> StepOptions {
    StepOptions { timeout: LONG, after_quorum: LONG, rows: vec![1, 2, 4, 1, 2], trace: "tx".to_owned() }
}

fn posted(timestamp: u64, content_type: Option<&str>) -> PostMeta {
    PostMeta {
        timestamp,
        metadata: vec![(b"at".to_vec(), timestamp.to_string().into_bytes())],
        content_type: content_type.map(Into::into),
        content_type_timestamp: if content_type.is_some() { timestamp } else { 0 },
        delete_at: timestamp * 100,
    }
}

/// What came of it: the outcome, the updates that are pending, and the object since.
struct Came {
    end: Posted,
    owed: Vec<Owed>,
    info: Option<Info>,
}

fn post(places: Places, of: u64, meta: PostMeta) -> Came {
    posting_of(places, of, meta).0
}

/// The same once no connection breaks in the middle of it: whoever is lost has a spare in its place, or nobody.
fn post_surely(places: &Places, of: u64, meta: &PostMeta) -> Came {
    let mut last = None;
    eventually("nobody is lost", || {
        let (came, refused) = posting_of(places.clone(), of, meta.clone());
        last = Some(came);
        !is_lost(&refused)
    });
    last.unwrap()
}

fn posting_of(places: Places, of: u64, meta: PostMeta) -> (Came, Vec<(u32, Failure)>) {
    let events = Completions::new().unwrap();
    let posting = Posting::start(places, (of, meta), posting(), (events.clone(), 7));
    loop {
        drop(events.wait(posting.turn()));
        if let Some(end) = posting.end() {
            return (Came { end, owed: posting.owed(), info: posting.info() }, posting.refused());
        }
    }
}

/// The object's timestamp, that of its metadata, and its content type.
fn describe(places: Places, first: &[usize]) -> Result<(u64, u64, String), ReadEnd> {
    let events = Completions::new().unwrap();
    let reading = Reading::start(places, first, 0..0, reading(), (events.clone(), 7));
    loop {
        drop(events.wait(reading.turn()));
        let Some(end) = reading.end() else { continue };
        if end != ReadEnd::Whole {
            return Err(end);
        }
        let info = reading.description().unwrap();
        if info.meta_timestamp > info.timestamp {
            assert_eq!(info.metadata, posted(info.meta_timestamp, None).metadata);
            assert_eq!(info.delete_at, info.meta_timestamp * 100);
        }
        return Ok((info.timestamp, info.meta_timestamp, String::from_utf8(info.content_type).unwrap()));
    }
}

fn is(timestamp: u64, meta_timestamp: u64, content_type: &str) -> Result<(u64, u64, String), ReadEnd> {
    Ok((timestamp, meta_timestamp, content_type.to_owned()))
}

#[test]
fn metadata_are_kept_and_read_with_any_two_devices_away() {
    let cluster = Cluster::new(Carrier::Tcp);
    for (number, away) in (0..).zip(patterns()) {
        cluster.put(number, 10, &content(number, 5000));
        let came = post_surely(&cluster.places(number, 2, &away), 10, &posted(20, Some("text/posted")));
        assert_eq!(came.end, Posted::Done, "{away:?}");
        // Spares have no fragment of it that could be listed, and the last place has no update to keep.
        let mut owed: Vec<(usize, u32)> = came.owed.iter().map(|owed| (owed.device as usize, owed.row)).collect();
        owed.sort_unstable();
        let rows = (0..).zip(posting().rows).filter(|(place, _)| !away.contains(place));
        assert_eq!(owed, rows.collect::<Vec<_>>(), "{away:?}");
        let info = came.info.unwrap();
        assert_eq!((info.timestamp, info.meta_timestamp, info.size), (10, 20, 5000));
        // Those who were away are back; whoever reads knows who it was.
        let mut first: Vec<usize> = (0..6).collect();
        first.sort_by_key(|place| away.contains(place));
        for gone in patterns().into_iter().filter(|gone| gone.iter().all(|place| !away.contains(place))) {
            let got = describe(cluster.places(number, 2, &gone), &first);
            assert_eq!(got, is(10, 20, "text/posted"), "posted without {away:?}, read without {gone:?}");
        }
        // The newest count, from whichever places they come, and so does the newest content type.
        assert_eq!(post(cluster.places(number, 0, &[]), 10, posted(30, None)).end, Posted::Done);
        for gone in patterns() {
            let got = describe(cluster.places(number, 0, &gone), &first);
            assert_eq!(got, is(10, 30, "text/posted"), "read without {gone:?}");
        }
        assert_eq!(post(cluster.places(number, 0, &[]), 10, posted(25, None)).end, Posted::Superseded(30));
    }
}

#[test]
fn without_a_quorum_metadata_are_not_acknowledged() {
    let cluster = Cluster::new(Carrier::Simulated);
    cluster.put(1, 10, &content(1, 9000));
    assert_eq!(post(cluster.places(1, 0, &[0, 1]), 10, posted(20, None)).end, Posted::Unknown);
    assert_eq!(
        describe(cluster.places(1, 0, &[]), &[2, 3, 4, 5]),
        is(10, 20, "text/plain"),
        "what may have happened has"
    );
    assert_eq!(post(cluster.places(1, 1, &[4, 5]), 10, posted(30, None)).end, Posted::Done, "with a spare");
}

#[test]
fn metadata_count_for_every_version_that_is_older() {
    let cluster = Cluster::new(Carrier::Simulated);
    let all = || cluster.places(1, 0, &[]);
    let first = [0, 1, 2, 3, 4, 5];
    cluster.put(1, 10, &content(1, 9000));
    assert_eq!(post(all(), 10, posted(20, None)).end, Posted::Done);
    // One that comes late, as of a clock that is behind.
    cluster.put(1, 15, &content(2, 9000));
    assert_eq!(describe(all(), &first), is(15, 20, "text/plain"));
    cluster.put(1, 25, &content(3, 9000));
    assert_eq!(describe(all(), &first), is(25, 25, "text/plain"));
    assert_eq!(post(all(), 15, posted(22, None)).end, Posted::Superseded(25), "never to a newer one");
    assert_eq!(describe(all(), &first), is(25, 25, "text/plain"));
    let options = StepOptions { timeout: LONG, after_quorum: LONG, rows: Vec::new(), trace: "tx".to_owned() };
    let events = Completions::new().unwrap();
    let deleting = Deleting::start(all(), (35, b"/a/c/o".to_vec()), options, (events.clone(), 7));
    while deleting.end().is_none() {
        drop(events.wait(deleting.turn()));
    }
    assert_eq!(deleting.end(), Some(Deleted::Done { existed: true }));
    assert_eq!(post(all(), 25, posted(40, None)).end, Posted::Deleted(35));
    assert!(matches!(describe(all(), &first), Err(ReadEnd::NotFound(_))));
}

#[test]
fn a_place_that_has_missed_the_object_keeps_its_metadata() {
    let mut cluster = Cluster::new(Carrier::Simulated);
    cluster.put(1, 10, &content(1, 9000));
    cluster.replace(3);
    // Two others are away: without the empty device there were no quorum.
    let came = post(cluster.places(1, 1, &[4, 5]), 10, posted(20, Some("text/posted")));
    assert_eq!(came.end, Posted::Done);
    assert!(came.owed.iter().all(|owed| owed.place < 3), "{:?}", came.owed);
    let generation = cluster.generation(1);
    let end = rebuild(cluster.places(1, 0, &[]), 3, 10, generation);
    assert_eq!(end, RebuildEnd::Answered(SlotAnswer::Done));
    let info = cluster.machines[3].stores[0].stat(&Key { partition: 32 * key(1).partition + 3, ..key(1) }).unwrap();
    assert_eq!((info.timestamp, info.meta_timestamp, &info.content_type[..]), (10, 20, &b"text/posted"[..]));
    for machine in &cluster.machines {
        assert_eq!(machine.stores[0].check().unwrap(), Vec::<String>::new());
    }
}
