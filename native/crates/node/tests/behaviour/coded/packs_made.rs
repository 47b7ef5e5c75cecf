//! The packer over real connections: killed after each of its messages, beside others, and beside writes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst as Order};

use super::packs::{HOLDERS, PACK, body, numbers, small};
use super::*;
use swiftlet_fragments::packs::Pack;
use swiftlet_node::Client;
use swiftlet_node::coded::{PackOptions, Packed, Packing, PacksSeen, ReadingMember, Referred, Stopped};
use swiftlet_node::message::packs::Told;
use swiftlet_store::model::{PostMeta, PutMeta};
use swiftlet_store::{Config as StoreConfig, Store, from_member};

pub(super) fn options() -> PackOptions {
    PackOptions {
        timeout: LONG,
        body_timeout: LONG,
        settle: LONG,
        holders: HOLDERS,
        before: 15,
        least_bytes: 1000,
        most_bytes: 64 << 20,
        trace: "tx".to_owned(),
        ..PackOptions::default()
    }
}

/// The version of a pack, and what its digest is drawn from.
pub(super) fn drawn(number: u64) -> (u64, Version) {
    (number << 40 | 7, Version { timestamp: 100 + number, generation: number })
}

pub(super) fn pack_of(number: u64) -> Pack {
    Pack { digest: swiftlet_fragments::packs::digest_of_pack(drawn(number).0), version: drawn(number).1 }
}

/// What can be read of an object at a holder: its version's time and its bytes.
pub(super) fn seen(cluster: &Cluster, number: u64, holder: usize, away: &[usize]) -> Option<(u64, Vec<u8>)> {
    let store = &cluster.machines[holder].stores[0];
    let key = small(number);
    let Some(found) = store.reference(&key).unwrap() else {
        let object = store.get(&key).ok()?;
        return Some((object.info().timestamp, object.read(0, u64::MAX).unwrap()));
    };
    let referred = Referred { pack: found.pack, reference: found.reference, pack_bytes: None };
    let events = Completions::new().unwrap();
    let places = cluster.places(number, 0, away);
    let reading = ReadingMember::start(places, referred, (LONG, LONG), "tx", (events.clone(), 7));
    let bytes = loop {
        if let Some(end) = reading.end() {
            break end?;
        }
        drop(events.wait(reading.turn()));
    };
    let (info, body) = from_member(key.digest, found.reference.timestamp, &bytes, None)?;
    Some((info.timestamp, body.to_vec()))
}

/// A round in which there was nothing to be done.
pub(super) fn nothing() -> Packed {
    Packed { looked_at_all: true, ..Packed::default() }
}

/// What was done, without what was seen before.
fn seen_nothing(done: Packed) -> Packed {
    Packed { seen: PacksSeen::default(), ..done }
}

pub(super) struct Work {
    pub(super) cluster: Cluster,
    client: Client,
    pub(super) all: Vec<u64>,
}

impl Work {
    pub(super) fn new(count: u64) -> Self {
        let cluster = Cluster::new(Carrier::Tcp);
        let all: Vec<u64> = numbers(count).collect();
        all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
        Self { cluster, client: Client::new("tx").unwrap(), all }
    }

    pub(super) fn round(&self, number: u64, go_on: &dyn Fn() -> bool) -> Result<Packed, Stopped> {
        self.round_with(options(), drawn(number), go_on).map(seen_nothing)
    }

    pub(super) fn round_with(
        &self,
        options: PackOptions,
        drawn: (u64, Version),
        go_on: &dyn Fn() -> bool,
    ) -> Result<Packed, Stopped> {
        Packing::new(&self.client, self.cluster.places(PACK, 0, &[]), options, go_on).round(drawn)
    }

    pub(super) fn delete(&self, pack: Pack, go_on: &dyn Fn() -> bool) -> Result<(), Stopped> {
        let places = self.cluster.places(PACK, 0, &[]);
        Packing::new(&self.client, places, options(), go_on).delete(pack, 5000)
    }

    /// How many packs the holders list.
    pub(super) fn listed(&self) -> usize {
        let all = (0..HOLDERS).map(|place| {
            let key = Key { digest: [0; 16], ..self.cluster.fragment(PACK, place) };
            self.cluster.machines[place].stores[0].packs_at(&key).unwrap().len()
        });
        all.sum()
    }

    /// Every object is what it was, at each holder, with some devices away.
    fn check(&self, what: &str) {
        for (at, number) in self.all.iter().enumerate() {
            for holder in 0..HOLDERS {
                let away = [(at + 3) % 6, (at + 4 + holder) % 6].into_iter().filter(|one| *one != holder);
                let got = seen(&self.cluster, *number, holder, &away.collect::<Vec<_>>());
                assert!(got == Some((10, body(*number))), "{what}: {number} at {holder}");
            }
        }
    }

    /// The packs to which the holders refer, and how often each does.
    pub(super) fn packs(&self) -> BTreeSet<(u64, Vec<u64>)> {
        let id = (2, small(PACK).partition);
        let mut found = std::collections::BTreeMap::new();
        for holder in 0..HOLDERS {
            for one in self.cluster.machines[holder].stores[0].packs(id).unwrap() {
                found.entry(one.pack.version.timestamp).or_insert_with(Vec::new).push(one.references);
            }
        }
        found.into_iter().collect()
    }
}

#[test]
fn a_partition_is_packed_once() {
    let work = Work::new(60);
    let done = work.round(1, &|| true).unwrap();
    assert_eq!((done.packed, done.finished, done.retired), (60, 0, 0));
    assert_eq!(work.packs(), BTreeSet::from([(101, vec![60, 60, 60])]));
    work.check("packed");
    assert_eq!(work.round(2, &|| true).unwrap(), nothing());
    // What is younger is left alone, and what came since is packed by itself.
    work.cluster.copy(PACK + 5 * 70, 20, &[0, 1, 2]);
    assert_eq!(work.round(3, &|| true).unwrap(), nothing());
    work.cluster.copy(PACK + 5 * 71, 11, &[0, 1, 2]);
    assert_eq!(work.round(4, &|| true).unwrap().packed, 1);
    assert_eq!(work.packs(), BTreeSet::from([(101, vec![60, 60, 60]), (104, vec![1, 1, 1])]));
}

#[test]
fn copies_that_places_have_with_other_bytes_are_left_out() {
    let work = Work::new(20);
    let (number, missed) = (PACK + 5 * 70, PACK + 5 * 71);
    work.cluster.copy(number, 10, &[0, 2]);
    // One was brought by sync, with the metadata that were posted.
    let data = body(number);
    let posted = PutMeta { metadata: vec![(b"posted".to_vec(), b"1".to_vec())], ..meta(10) };
    let footer = crate::common::footer(&data);
    assert!(work.cluster.machines[1].stores[0].put(small(number), &posted, &footer, data).unwrap());
    // What a place lacks, it gets as a reference.
    work.cluster.copy(missed, 10, &[0, 1]);
    let done = work.round(1, &|| true).unwrap();
    assert_eq!((done.packed, &done.left_out), (21, &vec![(small(number).digest, 10)]));
    assert_eq!(done.unfinished, [swiftlet_fragments::packs::digest_of_pack(drawn(1).0)]);
    assert_eq!(work.packs(), BTreeSet::from([(101, vec![21, 21, 20])]));
    work.check("packed");
    for holder in 0..HOLDERS {
        assert_eq!(seen(&work.cluster, number, holder, &[]), Some((10, body(number))), "a copy at {holder}");
    }
    // Who remembers both asks for neither of them again: for the packs, and for what is cold.
    let messages = AtomicUsize::new(0);
    let counted = || messages.fetch_add(1, Order) < 100;
    let (skipped, left_out) = (done.unfinished.iter().copied().collect(), done.left_out.iter().copied().collect());
    let remembering = PackOptions { skipped, left_out, least_bytes: 1, ..options() };
    let again = Packing::new(&work.client, work.cluster.places(PACK, 0, &[]), remembering, &counted).round(drawn(2));
    let left_out = done.left_out.clone();
    assert_eq!((seen_nothing(again.unwrap()), messages.load(Order)), (Packed { left_out, ..nothing() }, HOLDERS + 1));
    // Who does not find them any more forgets them.
    work.cluster.copy(number, 20, &[0, 1, 2]);
    let left_out = done.left_out.iter().copied().collect();
    let remembering = PackOptions { left_out, ..options() };
    let again = Packing::new(&work.client, work.cluster.places(PACK, 0, &[]), remembering, &|| true).round(drawn(3));
    assert_eq!(again.unwrap().left_out, []);
}

/// A place that lacked an object when its pack was made got it by sync before it could take the reference: with the
/// metadata that were posted in its bytes, which are other ones and more than the member's.
#[test]
fn a_pack_is_finished_once_metadata_lie_beside_a_copy_with_other_bytes() {
    let work = Work::new(20);
    let number = PACK + 5 * 70;
    work.cluster.copy(number, 10, &[0, 2]);
    let unfinished = [swiftlet_fragments::packs::digest_of_pack(drawn(1).0)];
    let done = work.round(1, &|| true).unwrap();
    assert_eq!((done.packed, &done.unfinished[..]), (21, &unfinished[..]));
    let (store, data) = (|holder: usize| &work.cluster.machines[holder].stores[0], body(number));
    let metadata = vec![(b"posted".to_vec(), b"30".to_vec())];
    let posted = PostMeta { timestamp: 30, metadata: metadata.clone(), ..PostMeta::default() };
    [0, 2].iter().for_each(|holder| assert!(store(*holder).post(small(number), posted.clone()).unwrap()));
    let put = PutMeta { metadata: metadata.clone(), ..meta(10) };
    assert!(store(1).put(small(number), &put, &crate::common::footer(&data), data).unwrap());
    let done = work.round(2, &|| true).unwrap();
    assert_eq!((done.finished, &done.unfinished[..]), (0, &unfinished[..]), "only these bytes tell of the metadata");
    assert!(store(1).post(small(number), posted).unwrap());
    let done = work.round(3, &|| true).unwrap();
    assert_eq!((done.finished, done.unfinished), (1, vec![]));
    assert_eq!(work.packs(), BTreeSet::from([(101, vec![21, 21, 21])]));
    work.check("finished");
    for holder in 0..HOLDERS {
        assert_eq!(seen(&work.cluster, number, holder, &[]), Some((10, body(number))), "at {holder}");
        let found = store(holder).reference(&small(number)).unwrap().unwrap();
        assert_eq!(found.posted.map(|post| (post.timestamp, post.metadata)), Some((30, metadata.clone())));
    }
    assert_eq!(work.round(4, &|| true).unwrap(), nothing());
}

#[test]
fn copies_that_are_left_out_are_in_nobodys_way() {
    let work = Work::new(10);
    let out: Vec<u64> = (100..110).map(|number| PACK + 5 * number).collect();
    for number in &out {
        work.cluster.copy(*number, 5, &[0, 2]);
        let data = body(*number);
        let posted = PutMeta { metadata: vec![(b"posted".to_vec(), b"1".to_vec())], ..meta(5) };
        let footer = crate::common::footer(&data);
        assert!(work.cluster.machines[1].stores[0].put(small(*number), &posted, &footer, data).unwrap());
    }
    // They are the oldest ones, and more than a pack may have.
    let (mut left_out, mut packed) = (BTreeSet::new(), 0);
    for number in 1..30 {
        let few = PackOptions { most_bytes: 9000, left_out: left_out.clone(), ..options() };
        let done = work.round_with(few, drawn(number), &|| true).unwrap();
        packed += done.packed;
        assert!(done.left_out.iter().all(|one| out.iter().any(|number| small(*number).digest == one.0)));
        left_out = done.left_out.into_iter().collect();
    }
    assert_eq!((packed, left_out.len()), (10, 10));
    work.check("packed");
}

#[test]
fn a_packer_may_be_killed_after_each_of_its_messages() {
    let mut finished = BTreeSet::new();
    for most in 0.. {
        let work = Work::new(30);
        let left = AtomicUsize::new(most);
        let alive = || left.fetch_update(Order, Order, |left| left.checked_sub(1)).is_ok();
        let killed = work.round(1, &alive);
        work.check(&format!("killed after {most}"));
        if let Ok(done) = killed {
            assert_eq!(done.packed, 30);
            assert!(most > 12, "{most} messages are too few");
            break;
        }
        let again = work.round(2, &|| true).unwrap();
        assert!((again.finished, again.packed) == (1, 0) || (again.finished, again.packed) == (0, 30), "{again:?}");
        finished.insert(again.finished);
        let packs = work.packs();
        let expected = if again.finished == 1 { 101 } else { 102 };
        assert_eq!(packs, BTreeSet::from([(expected, vec![30, 30, 30])]), "killed after {most}");
        work.check(&format!("gone on after {most}"));
        // Killed before its pack was settled, there may be two of it, of which nobody needs the first.
        let third = work.round(3, &|| true).unwrap();
        let is_over = third == nothing() || (again.packed, third.retired) == (30, 1);
        assert!(is_over, "killed after {most}: {again:?}, {third:?}");
        assert_eq!(third.unused.len(), third.retired);
        for pack in third.unused {
            work.delete(pack, &|| true).unwrap();
        }
        work.check(&format!("in the end after {most}"));
        assert_eq!(work.round(4, &|| true).unwrap(), nothing());
    }
    assert_eq!(finished, BTreeSet::from([0, 1]));
}

#[test]
fn what_is_written_meanwhile_counts() {
    for at in 0..14 {
        let work = Work::new(20);
        let (newer, deleted) = (work.all[3], work.all[8]);
        let step = AtomicUsize::new(0);
        let write = || {
            if step.fetch_add(1, Order) == at {
                work.cluster.copy(newer, 12, &[0, 1, 2]);
                for place in 0..HOLDERS {
                    let store = &work.cluster.machines[place].stores[0];
                    store.delete(small(deleted), 13, b"/a/c/o".to_vec()).unwrap();
                }
            }
            true
        };
        work.round(1, &write).unwrap();
        for holder in 0..HOLDERS {
            let what = format!("at step {at}, holder {holder}");
            assert!(seen(&work.cluster, newer, holder, &[]) == Some((12, body(newer))), "{what}");
            assert!(seen(&work.cluster, deleted, holder, &[]).is_none(), "{what}");
        }
        // In later rounds that is packed as well.
        work.round(2, &|| true).unwrap();
        for holder in 0..HOLDERS {
            assert!(seen(&work.cluster, newer, holder, &[4]) == Some((12, body(newer))), "at step {at}");
            assert!(work.cluster.machines[holder].stores[0].reference(&small(newer)).unwrap().is_some());
        }
    }
}

#[test]
fn a_pack_that_nobody_needs_any_more_is_retired() {
    let work = Work::new(5);
    let steps = AtomicUsize::new(0);
    // Killed before it is adopted.
    let before_adoption = || steps.fetch_add(1, Order) < 12;
    assert!(matches!(work.round(1, &before_adoption), Err(Stopped::Ended)));
    assert_eq!(work.packs(), BTreeSet::new());
    work.all.iter().for_each(|number| work.cluster.copy(*number, 20, &[0, 1, 2]));
    let pack = pack_of(1);
    assert_eq!(work.round(2, &|| true).unwrap(), Packed { retired: 1, unused: vec![pack], ..nothing() });
    for place in 0..6 {
        let key = Key { digest: pack.digest, ..work.cluster.fragment(PACK, place) };
        let state = work.cluster.machines[place].stores[0].pack_state(&key, pack.version).unwrap();
        assert_eq!(state, swiftlet_store::PackState::Retired, "{place}");
    }
}

#[test]
fn a_deletion_of_a_pack_may_be_killed_after_each_of_its_messages() {
    for most in 0.. {
        let work = Work::new(5);
        assert_eq!(work.round(1, &|| true).unwrap().packed, 5);
        work.all.iter().for_each(|number| work.cluster.copy(*number, 20, &[0, 1, 2]));
        let left = AtomicUsize::new(most);
        let alive = || left.fetch_update(Order, Order, |left| left.checked_sub(1)).is_ok();
        let outcome = work.round(2, &alive).and_then(|done| work.delete(done.unused[0], &alive));
        for number in 3..5 {
            for pack in work.round(number, &|| true).unwrap().unused {
                assert!(outcome.is_err() || number == 3, "after {most}");
                work.delete(pack, &|| true).unwrap();
            }
        }
        assert_eq!(work.listed(), 0, "after {most}");
        for holder in 0..HOLDERS {
            for number in &work.all {
                assert_eq!(seen(&work.cluster, *number, holder, &[]), Some((20, body(*number))), "after {most}");
            }
        }
        for place in 0..6 {
            let key = Key { digest: pack_of(1).digest, ..work.cluster.fragment(PACK, place) };
            let store = &work.cluster.machines[place].stores[0];
            let is_gone = store.shown_fragment(&key).unwrap().is_none_or(|shown| shown.version.is_deletion());
            // When all with small objects have the tombstone nobody lists the pack: sync brings it to the others.
            assert!(is_gone || (place >= HOLDERS && outcome.is_err()), "{place} after {most}");
            // A packer that is late changes nothing any more.
            assert_eq!(store.pack_state(&key, pack_of(1).version).unwrap(), swiftlet_store::PackState::Retired);
        }
        if outcome.is_ok() {
            assert!(most > 20, "{most} messages are too few");
            break;
        }
    }
}

#[test]
fn nothing_is_adopted_before_all_places_have_proved() {
    let mut work = Work::new(10);
    let target = work.cluster.targets[4].take();
    assert!(matches!(work.round(1, &|| true), Err(Stopped::Failed(_))));
    assert_eq!(work.packs(), BTreeSet::new());
    work.check("without a place");
    work.cluster.targets[4] = target;
    let quick = PackOptions { settle: Duration::ZERO, ..options() };
    let places = work.cluster.places(PACK, 0, &[]);
    let refused = Packing::new(&work.client, places, quick, &|| true).round(drawn(2));
    assert!(matches!(refused, Err(Stopped::Refused { place: 4, told: Told::Missing })), "{refused:?}");
    assert_eq!(work.packs(), BTreeSet::new());
    // It is made at the place that has missed it, and the next round goes on.
    let (digest, version) = (swiftlet_fragments::packs::digest_of_pack(drawn(1).0), drawn(1).1);
    let key = Key { digest, ..work.cluster.fragment(PACK, 4) };
    let key_of_ring = Key { digest, ..key };
    let places = Places::new(
        Devices::new(work.cluster.targets.clone()),
        Key { partition: key_of_ring.partition / 32, ..key_of_ring },
        (scheme(), CELL),
        (0..6).collect(),
        Vec::new(),
    );
    let end = rebuild(places.unwrap(), 4, version.timestamp, version.generation);
    assert_eq!(end, RebuildEnd::Answered(SlotAnswer::Done));
    let settle = swiftlet_fragments::request::Request::Settle(version);
    work.cluster.machines[4].stores[0].about_fragment(key, settle).unwrap();
    assert_eq!(work.round(3, &|| true).unwrap(), Packed { finished: 1, ..nothing() });
    assert_eq!(work.packs(), BTreeSet::from([(101, vec![10, 10, 10])]));
    work.check("finished");
}

#[test]
fn packers_side_by_side_lose_nothing() {
    let work = Work::new(40);
    std::thread::scope(|scope| {
        for number in 1..4 {
            let work = &work;
            scope.spawn(move || drop(work.round(number, &|| true)));
        }
    });
    work.check("side by side");
    for number in 4..8 {
        work.round(number, &|| true).unwrap();
    }
    work.check("afterwards");
    let used: Vec<_> = work.packs().into_iter().collect();
    assert!(used.iter().all(|(_, references)| references.len() == HOLDERS), "{used:?}");
    let id = (2, small(PACK).partition);
    let counts = (0..HOLDERS).map(|holder| {
        let all = work.cluster.machines[holder].stores[0].packs(id).unwrap();
        all.iter().map(|one| one.references).sum::<u64>()
    });
    assert_eq!(counts.collect::<Vec<_>>(), [40; HOLDERS]);
}

/// Bytes that count on a device once it is compacted, with those of large files.
fn live_bytes(path: &std::path::Path) -> u64 {
    let config =
        StoreConfig { volume_bytes: 1 << 20, live_share: 0.999, threads: false, ..crate::common::store_config() };
    let mut live = 0;
    // Opening a store seals the volume that was written last, so that each time one more is compacted.
    for _ in 0..3 {
        let store = Store::open(path, config.clone()).unwrap();
        while store.compact().unwrap() {}
        live = store.volumes().iter().map(|volume| volume.live_bytes).sum();
        store.close().unwrap();
    }
    live + large_bytes(&path.join("large"))
}

fn large_bytes(path: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let sizes = entries.map(|entry| {
        let entry = entry.unwrap();
        let size = entry.metadata().unwrap().len();
        if entry.path().is_dir() { large_bytes(&entry.path()) } else { size }
    });
    sizes.sum()
}

#[test]
fn packed_objects_take_three_percent_more_than_their_coded_bytes() {
    let mut cluster = Cluster::new(Carrier::Tcp);
    cluster.cell = 64 << 10;
    let (mut bytes, all) = (0, numbers(2000).collect::<Vec<_>>());
    for number in &all {
        let data = content(*number, 1024 + (number * 7919 % 9216) as usize);
        let name = format!("/AUTH_test/photographs/2026/11/29/{number:08}.json").into_bytes();
        let metadata = vec![(b"X-Object-Meta-Camera".to_vec(), b"one of those that were there before".to_vec())];
        bytes += data.len() + name.len() + metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let meta = PutMeta { name, metadata, sysmeta: Vec::new(), ..meta(10) };
        let footer = crate::common::footer(&data);
        for place in 0..HOLDERS {
            let store = &cluster.machines[place].stores[0];
            assert!(store.put(small(*number), &meta, &footer, data.clone()).unwrap());
        }
    }
    let work = Work { cluster, client: Client::new("tx").unwrap(), all };
    assert_eq!(work.round(1, &|| true).unwrap().packed, 2000);
    let paths: Vec<_> = work.cluster.machines.iter().map(|machine| machine.directories[0].0.clone()).collect();
    for machine in &work.cluster.machines {
        machine.server.stop();
        machine.stores[0].close().unwrap();
    }
    let live: u64 = paths.iter().map(|path| live_bytes(path)).sum();
    let share = live as f64 / bytes as f64;
    assert!((1.5..1.545).contains(&share), "{live} bytes for {bytes}: {share}");
}
