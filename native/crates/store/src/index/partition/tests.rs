//! A partition against a map that is sorted by somebody else.

use std::collections::BTreeMap;

use super::*;
use crate::model::SUFFIXES;

fn digest(number: u64) -> [u8; 16] {
    swiftlet_hash::xxh3_128(&number.to_be_bytes()).to_be_bytes()
}

fn record(timestamp: Timestamp) -> Record {
    Record { kind: Kind::Put, timestamp, place: Place(timestamp), units: 3, extra: Extra::default() }
}

fn order(digest: [u8; 16]) -> (u16, [u8; 16]) {
    (u16::from_be_bytes([digest[14] & 15, digest[15]]), digest)
}

#[test]
fn it_holds_what_a_map_holds() {
    let mut partition = Partition::default();
    let mut model = BTreeMap::new();
    for step in 0..30_000_u64 {
        let digest = digest(step * 7919 % 5000);
        if step % 3 == 0 {
            let gone = partition.set(&digest, None).map(|held| held.slot.timestamp);
            assert_eq!(gone, model.remove(&order(digest)));
        } else {
            partition.set(&digest, Some(&record(step)));
            model.insert(order(digest), step);
        }
    }
    let seen: Vec<_> = partition.iter().map(|held| (order(held.slot.digest()), held.slot.timestamp)).collect();
    assert_eq!(seen, model.iter().map(|(order, timestamp)| (*order, *timestamp)).collect::<Vec<_>>());
    assert_eq!(partition.len(), model.len());
    assert_eq!(partition.check(), None);
    for suffix in 0..SUFFIXES {
        let listed: Vec<_> = partition.in_suffix(suffix).iter().map(|held| held.slot.digest()).collect();
        let expected: Vec<_> = model.keys().filter(|key| key.0 == suffix).map(|key| key.1).collect();
        assert_eq!(listed, expected);
    }
}

#[test]
fn the_same_in_any_order_has_the_same_hashes() {
    let (mut one, mut other) = (Partition::default(), Partition::default());
    for number in 0..500 {
        one.set(&digest(number), Some(&record(number)));
        other.set(&digest(499 - number), Some(&record(1)));
    }
    for number in 0..500 {
        other.set(&digest(number), Some(&record(number)));
    }
    assert_eq!(one.suffixes(), other.suffixes());
    assert_eq!(one.root(), other.root());
    other.set(&digest(3), None);
    assert_ne!(one.root(), other.root());
}

#[test]
fn a_slot_is_small() {
    assert_eq!(std::mem::size_of::<Slot>(), 40);
}
