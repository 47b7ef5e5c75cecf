//! Members of packs, and tables of references to them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::Version;
use crate::packs::Pack;
use crate::packs::member::{Packed, length};
use crate::packs::table::{BLOCK, MAX_MEMBERS, Reference, Table, find};
use crate::tests::simulation::chance::Chance;

fn pack() -> Pack {
    Pack { version: Version { timestamp: 1 << 60, generation: 7 }, digest: [9; 16] }
}

/// Objects of a partition that were written within a month, each of 1 to 10 KiB with metadata.
fn table_of(count: usize, chance: &mut Chance) -> Table {
    let mut digests: Vec<[u8; 16]> = (0..count)
        .map(|_| {
            let digest = u128::from(chance.number()) << 64 | u128::from(chance.number());
            (digest >> 14 | 0x1234 << 114).to_be_bytes()
        })
        .collect();
    digests.sort_unstable();
    let (mut offset, month) = (0, (100_000_u64 << 14) * 86_400 * 30);
    let references = digests.into_iter().map(|digest| {
        let length = length(150, 1024 + chance.below(9217)) as u32;
        offset += u64::from(length);
        let timestamp = (1 << 60) + chance.number() % month;
        Reference { digest, timestamp, offset: offset - u64::from(length), length }
    });
    Table { pack: pack(), references: references.collect() }
}

/// 4+2 takes 1.5 bytes for each byte, and of the user's bytes (body, name, metadata) 3 % more at most.
#[test]
fn small_objects_take_three_percent_more_than_the_code() {
    let table = table_of(20_000, &mut Chance::new(1));
    let packed: u64 = table.references.iter().map(|reference| u64::from(reference.length)).sum();
    let of_users = packed - 40 * table.references.len() as u64;
    let bytes = table.encode().expect("a table").len() as u64;
    let per_byte = (packed as f64 * 1.5 + bytes as f64 * 3.0) / of_users as f64;
    println!("{} bytes for a reference, {per_byte} bytes for a byte", bytes as f64 / table.references.len() as f64);
    assert!(per_byte < 1.53, "{per_byte}");
}

#[test]
fn every_reference_is_found_and_others_are_not() {
    for count in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 1000] {
        let chance = &mut Chance::new(count as u64);
        let mut table = table_of(count, chance);
        let all = table.references.clone();
        // Some were not adopted here.
        table.references.retain(|_| chance.percent(70));
        let Some(bytes) = table.encode() else { continue };
        assert_eq!(Table::parse(&bytes).as_ref(), Some(&table));
        let here: BTreeMap<_, _> = table.references.iter().map(|reference| (reference.digest, *reference)).collect();
        for reference in all {
            assert_eq!(find(&bytes, &reference.digest), here.get(&reference.digest).copied());
        }
        assert_eq!([find(&bytes, &[0; 16]), find(&bytes, &[255; 16])], [None; 2]);
    }
}

#[test]
fn tables_that_no_pack_has_are_refused() {
    let table = table_of(3, &mut Chance::new(1));
    let broken = |change: fn(&mut Vec<Reference>)| {
        let mut other = table.clone();
        change(&mut other.references);
        other.encode()
    };
    assert_eq!(broken(Vec::clear), None);
    assert_eq!(broken(|references| references.swap(0, 1)), None);
    assert_eq!(broken(|references| references[1].offset -= 1), None);
    assert_eq!(broken(|references| references[1].digest = references[0].digest), None);
    assert_eq!(broken(|references| references[2].offset = u64::MAX), None);
    assert_eq!(table_of(MAX_MEMBERS + 1, &mut Chance::new(1)).encode(), None);
    assert!(table_of(MAX_MEMBERS, &mut Chance::new(1)).encode().is_some());
}

proptest! {
    #[test]
    fn a_member_is_what_was_packed(
        digest: [u8; 16], timestamp: u64, metadata: Vec<u8>, body: Vec<u8>, behind: Vec<u8>, at: usize, bit in 0..8_u8,
    ) {
        let packed = Packed { digest, timestamp, metadata: &metadata, body: &body };
        let mut bytes = behind.clone();
        packed.encode(&mut bytes);
        let bytes = bytes.split_off(behind.len());
        prop_assert_eq!(bytes.len(), length(metadata.len(), body.len()));
        prop_assert_eq!(Packed::parse(&bytes), Some(packed));
        let mut flipped = bytes.clone();
        flipped[at % bytes.len()] ^= 1 << bit;
        prop_assert_eq!(Packed::parse(&flipped), None);
        prop_assert_eq!(Packed::parse(&bytes[..at % bytes.len()]), None);
    }

    #[test]
    fn any_bytes_are_one_table_or_none(bytes: Vec<u8>, at: usize, byte: u8, count in 1..200_usize, seed: u64) {
        prop_assert_eq!(Table::parse(&bytes), None);
        let mut bytes = table_of(count, &mut Chance::new(seed)).encode().expect("a table");
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Some(table) = Table::parse(&bytes) {
            prop_assert_eq!(table.encode(), Some(bytes));
        }
        let _ = find(&[byte; 100], &[byte; 16]);
    }

    #[test]
    fn timestamps_may_be_any(timestamps in proptest::collection::vec(any::<u64>(), 1..100), seed: u64) {
        let mut table = table_of(timestamps.len(), &mut Chance::new(seed));
        for (reference, timestamp) in table.references.iter_mut().zip(timestamps) {
            reference.timestamp = timestamp;
        }
        let bytes = table.encode().expect("a table");
        prop_assert_eq!(Table::parse(&bytes), Some(table));
    }
}
