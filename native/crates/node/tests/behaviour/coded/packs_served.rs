//! Objects that are in packs, as who reads objects gets them: packed by the packer, read like all others, changed, deleted,
//! and partly still copies.

use super::packs::{HOLDERS, PACK, body, numbers, small};
use super::packs_made::{drawn, options};
use super::small::{delete, first, get, post, small_reading};
use super::*;
use swiftlet_fragments::deletion::Deleted;
use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::posting::Posted;
use swiftlet_node::Client;
use swiftlet_node::coded::Packing;
use swiftlet_node::message::packs::Told;
use swiftlet_store::model::{Info, PostMeta, PutMeta};

/// A partition with so many small objects, which are packed.
fn packed(cluster: &Cluster, count: u64) -> Vec<u64> {
    let all: Vec<u64> = numbers(count).collect();
    all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
    assert_eq!(pack(cluster, 1), count as usize);
    all
}

/// Have the packer do a round; returns how many objects it has packed.
fn pack(cluster: &Cluster, number: u64) -> usize {
    let client = Client::new("tx").unwrap();
    Packing::new(&client, cluster.places(PACK, 0, &[]), options(), &|| true).round(drawn(number)).unwrap().packed
}

/// The object, if it can be read.
fn described(places: Places, first: &[usize]) -> Option<(Info, bool)> {
    let events = Completions::new().unwrap();
    let reading = Reading::start(places, first, 0..0, small_reading(), (events.clone(), 7));
    while reading.end().is_none() {
        drop(events.wait(reading.turn()));
    }
    Some((reading.description()?, reading.is_copy()))
}

impl Cluster {
    fn pack_of(&self, number: u64, place: usize) -> Option<Pack> {
        self.machines[place].stores[0].reference(&small(number)).unwrap().map(|referred| referred.pack)
    }
}

#[test]
fn packed_objects_are_read_like_others_with_any_two_devices_away() {
    let cluster = Cluster::knowing();
    for number in packed(&cluster, 8) {
        let object = body(number);
        assert!((0..HOLDERS).all(|place| cluster.pack_of(number, place).is_some()));
        for away in patterns() {
            let places = || cluster.places(number, 2, &away);
            let mut order = first(&[]);
            order.rotate_left(number as usize % 6);
            let what = format!("{number} without {away:?}");
            assert!(get(places(), &order) == Ok((10, object.clone())), "{what}");
            for range in [0..1, 17..900, 500..u64::MAX] {
                let expected = &object[range.start as usize..range.end.min(object.len() as u64) as usize];
                let got = read(places(), &order, range.clone(), small_reading());
                assert!(got == Ok((10, expected.to_vec())), "{what}: {range:?}");
            }
            let beyond = read(places(), &order, object.len() as u64..u64::MAX, small_reading());
            assert_eq!(beyond, Ok((10, Vec::new())), "{what}");
            let (info, is_small) = described(places(), &order).unwrap();
            let told = (info.timestamp, info.size, info.meta_timestamp, &info.content_type[..], is_small);
            assert_eq!(told, (10, object.len() as u64, 10, &b"text/plain"[..], true), "{what}");
            assert_eq!(info.xxh3, swiftlet_hash::xxh3_64(&object));
        }
    }
    // One more is too many for the pack, and for what is not there.
    assert_eq!(get(cluster.places(PACK + 5, 0, &[0, 1, 3]), &first(&[])), Err(ReadEnd::Unavailable));
    assert_eq!(get(cluster.places(PACK + 5 * 50, 0, &[]), &first(&[])), Err(ReadEnd::NotFound(None)));
    cluster.check();
}

#[test]
fn some_places_may_have_copies_while_others_have_references() {
    for adopted in [vec![0], vec![2], vec![0, 1], vec![1, 2]] {
        let cluster = Cluster::knowing();
        let all: Vec<u64> = numbers(3).collect();
        all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
        let written = cluster.pack(PACK, &all, 20);
        for place in &adopted {
            cluster.adopt(PACK, *place, &written);
        }
        for number in all {
            assert!((0..HOLDERS).all(|place| cluster.pack_of(number, place).is_some() == adopted.contains(&place)));
            for away in patterns() {
                let got = get(cluster.places(number, 0, &away), &first(&[]));
                assert!(got == Ok((10, body(number))), "{number}, packed at {adopted:?}, without {away:?}");
            }
        }
    }
}

#[test]
fn what_was_posted_before_and_after_packing_counts() {
    let cluster = Cluster::knowing();
    let all: Vec<u64> = numbers(30).collect();
    all.iter().for_each(|number| cluster.copy(*number, 10, &[0, 1, 2]));
    let away: Vec<Vec<usize>> = patterns().into_iter().filter(|away| away.len() < 2).collect();
    // Places that have missed a POST have other metadata on top of the same copy.
    for (number, away) in all.iter().zip(&away) {
        assert_eq!(post(cluster.places(*number, 0, away), 12).0, Posted::Done);
        // A copy of which the update is pending stays one.
        let updated = [(small(*number), 12)];
        cluster.machines[..HOLDERS].iter().for_each(|machine| machine.stores[0].acknowledge(&updated));
    }
    assert_eq!(pack(&cluster, 1), 30);
    for (number, missed) in all.iter().zip(away.iter().chain(&away)) {
        let is_posted = *number < all[away.len()];
        let expect = |posted: u64| {
            let left = |gone: &[usize]| (0..HOLDERS).any(|place| !missed.contains(&place) && !gone.contains(&place));
            for gone in patterns().into_iter().filter(|gone| gone.iter().all(|place| !missed.contains(place))) {
                if left(&gone) {
                    let (info, _) = described(cluster.places(*number, 2, &gone), &first(missed)).unwrap();
                    let told = (info.timestamp, info.meta_timestamp);
                    assert_eq!(told, (10, posted), "{number} at {posted}, without {gone:?}");
                }
            }
            let got = get(cluster.places(*number, 0, &[]), &first(missed));
            assert!(got == Ok((10, body(*number))), "{number}");
        };
        expect(if is_posted { 12 } else { 10 });
        assert_eq!(post(cluster.places(*number, 0, missed), 14).0, Posted::Done);
        expect(14);
        assert_eq!(post(cluster.places(*number, 0, &[]), 13).0, Posted::Superseded(14));
    }
    cluster.check();
}

#[test]
fn the_newest_metadata_count_whoever_has_told_of_them() {
    let cluster = Cluster::knowing();
    let number = PACK + 5;
    cluster.copy(number, 10, &[0, 1, 2]);
    let written = cluster.pack(PACK, &[number], 20);
    let at = |place: usize, timestamp: u64| {
        let metadata = vec![(b"at".to_vec(), timestamp.to_string().into_bytes())];
        let post = PostMeta { timestamp, metadata, ..PostMeta::default() };
        cluster.machines[place].stores[0].post(small(number), post).unwrap();
    };
    let (seen, behind) =
        (|| described(cluster.places(number, 0, &[]), &first(&[])).unwrap().0.meta_timestamp, [3, 4, 5]);
    at(0, 30);
    cluster.adopt(PACK, 0, &written);
    assert_eq!(seen(), 30, "the reference has them, copies do not");
    at(1, 40);
    assert_eq!(seen(), 40, "a copy has newer ones");
    at(0, 50);
    assert_eq!(seen(), 50, "the reference has the newest ones again");
    at(2, 50);
    for places in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let order: Vec<usize> = places.into_iter().chain(behind).collect();
        assert!(get(cluster.places(number, 0, &[]), &order) == Ok((10, body(number))));
        assert_eq!(described(cluster.places(number, 0, &[]), &order).unwrap().0.meta_timestamp, 50, "{order:?}");
    }
}

/// Sync brings a copy with the newest metadata in its bytes, and beside it. Of two members of one version a place compares
/// no more than how long they are, so that a later pack may replace such bytes by those of the write.
#[test]
fn metadata_lie_beside_a_copy_whose_bytes_are_replaced_by_older_ones() {
    let cluster = Cluster::knowing();
    let number = PACK + 5;
    let store = |place: usize| &cluster.machines[place].stores[0];
    cluster.copy(number, 10, &[0, 1]);
    let metadata = vec![(b"x".to_vec(), b"30".to_vec())];
    let posted = PostMeta { timestamp: 30, metadata: metadata.clone(), ..PostMeta::default() };
    [0, 1].iter().for_each(|place| assert!(store(*place).post(small(number), posted.clone()).unwrap()));
    let data = body(number);
    let put = PutMeta { metadata: metadata.clone(), ..meta(10) };
    assert!(store(2).put(small(number), &put, &crate::common::footer(&data), data).unwrap());
    let members = [0, 2].map(|place| store(place).member(&small(number)).unwrap().unwrap());
    assert!(members[0] != members[1] && members[0].len() == members[1].len(), "other metadata, as many bytes");
    let (newer, older) = (cluster.pack_from(2, PACK + 5000, &[number], 20), cluster.pack_from(0, PACK, &[number], 21));
    assert_eq!(cluster.adopt(PACK, 2, &older), Told::Done { references: 0 }, "the copy has other bytes");
    assert!(store(2).post(small(number), posted).unwrap());
    assert_eq!(cluster.adopt(PACK + 5000, 2, &newer), Told::Done { references: 1 });
    assert_eq!(cluster.adopt(PACK, 2, &older), Told::Done { references: 1 }, "the reference has as many");
    assert_eq!(cluster.pack_of(number, 2), Some(older.table.pack));
    for away in [vec![0, 1], vec![0], vec![]] {
        let (info, _) = described(cluster.places(number, 0, &away), &first(&away)).unwrap();
        assert_eq!((info.timestamp, info.meta_timestamp, &info.metadata), (10, 30, &metadata), "without {away:?}");
    }
    // Other places are shown as much.
    let entries = [0, 2].map(|place| store(place).entry(&small(number)).unwrap().unwrap());
    assert_eq!((entries[0], entries[1].meta_timestamp), (entries[1], 30));
    cluster.check();
}

#[test]
fn packed_objects_are_overwritten_and_deleted_with_any_two_devices_away() {
    let cluster = Cluster::knowing();
    let all = packed(&cluster, 66);
    for (number, (at, away)) in all.iter().zip((0..3).flat_map(|at| patterns().into_iter().map(move |away| (at, away))))
    {
        let others = || patterns().into_iter().filter(|gone| gone.iter().all(|place| !away.contains(place)));
        let places = || cluster.places(*number, 2, &away);
        let large = content(*number, 20_000);
        let expected = match at {
            0 => {
                cluster.put_small(*number, 30, b"small", &away);
                Some(&b"small"[..])
            }
            1 => {
                let written = cluster.written_surely(places(), 30, &large);
                cluster.spread(written, *number, 30, &large, &away);
                Some(&large[..])
            }
            _ => {
                assert_eq!(delete(places(), 30), Deleted::Done { existed: true });
                None
            }
        };
        for gone in others() {
            let got = get(cluster.places(*number, 2, &gone), &first(&away));
            let what = format!("{number} changed without {away:?}, read without {gone:?}");
            match expected {
                Some(object) => assert!(got == Ok((30, object.to_vec())), "{what}"),
                // It takes the word of those with copies, which may be away.
                None if gone.iter().any(|place| *place < HOLDERS) => assert!(got.is_err(), "{what}"),
                None => assert!(
                    matches!(got, Err(ReadEnd::NotFound(Some(version))) if version.timestamp == 30),
                    "{what}: {got:?}"
                ),
            }
        }
    }
    cluster.check();
}

#[test]
fn a_reference_that_leads_nowhere_counts_as_none() {
    for lost in [[0, 3, 4], [3, 4, 5]] {
        let mut cluster = Cluster::knowing();
        let number = PACK + 5;
        cluster.copy(number, 10, &[0, 1, 2]);
        let written = cluster.pack(PACK, &[number], 20);
        for place in 0..2 {
            cluster.adopt(PACK, place, &written);
        }
        // More fragments of the pack are lost than may be.
        lost.iter().for_each(|place| cluster.replace(*place));
        for order in [first(&[]), vec![2, 1, 0, 3, 4, 5], vec![5, 4, 3, 2, 1, 0]] {
            let got = get(cluster.places(number, 0, &[]), &order);
            assert!(got == Ok((10, body(number))), "a place has a copy, {lost:?} lost: {:?}", got.map(|(at, _)| at));
        }
        cluster.adopt(PACK, 2, &written);
        assert_eq!(get(cluster.places(number, 0, &[]), &first(&[])), Err(ReadEnd::Unavailable));
    }
}

#[test]
fn who_is_silent_is_replaced_for_packed_objects_as_well() {
    let mut cluster = Cluster::knowing();
    let all = packed(&cluster, 6);
    let _first = cluster.silence(1, None);
    let _second = cluster.silence(4, None);
    for number in all {
        let options = ReadOptions { hedge: Some(SOON), ..small_reading() };
        let got = read(cluster.places(number, 0, &[]), &first(&[]), 0..u64::MAX, options);
        assert!(got == Ok((10, body(number))), "{number}");
    }
}
