//! Members of packs, and tables of references to them.

use proptest::prelude::*;

use crate::Version;
use crate::packs::Pack;
use crate::packs::member::{Packed, length};
use crate::packs::table::{BLOCK, HEAD, Head, MAX_MEMBER_BYTES, MAX_MEMBERS, Reference, Table, sound_blocks};
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
fn each_block_is_read_without_the_others() {
    for count in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 1000] {
        let chance = &mut Chance::new(count as u64);
        let mut table = table_of(count, chance);
        // Some were not adopted here.
        table.references.retain(|_| chance.percent(70));
        let Some(bytes) = table.encode() else { continue };
        assert_eq!(Table::parse(&bytes).as_ref(), Some(&table));
        let head = Head::parse(&bytes).expect("a head");
        assert_eq!((head.pack(), head.blocks()), (table.pack, table.references.len().div_ceil(BLOCK)));
        for (number, references) in table.references.chunks(BLOCK).enumerate() {
            let entry = head.entry(number, &bytes[head.entry_at(number).expect("a block")]).expect("an entry");
            let block = &bytes[head.block_at(&entry)];
            assert_eq!(head.block(&entry, block).as_deref(), Some(references));
            // It is this block of this table, and no other.
            assert_eq!(head.block(&entry, &block[1..]), None);
            let other = head.entry((number + 1) % head.blocks(), &bytes[head.entry_at(number).expect("a block")]);
            assert!(head.blocks() == 1 || head.block(&other.expect("an entry"), block).is_none());
        }
        assert_eq!(head.entry_at(head.blocks()), None);
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
    assert_eq!(broken(|references| references[2].length = MAX_MEMBER_BYTES + 1), None);
    assert!(broken(|references| references[2].length = MAX_MEMBER_BYTES).is_some());
    assert_eq!(table_of(MAX_MEMBERS + 1, &mut Chance::new(1)).encode(), None);
    assert!(table_of(MAX_MEMBERS, &mut Chance::new(1)).encode().is_some());
}

/// One flipped bit takes a block along at most, unless it is in the head.
#[test]
fn of_a_damaged_table_all_other_blocks_count() {
    let table = table_of(5 * BLOCK + 9, &mut Chance::new(1));
    let bytes = table.encode().expect("a table");
    let whole: Vec<Option<Vec<Reference>>> = table.references.chunks(BLOCK).map(|block| Some(block.to_vec())).collect();
    assert_eq!(sound_blocks(&bytes), Some((table.pack, whole.clone())));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_eq!(Table::parse(&flipped), None, "{at}");
        let Some((pack, blocks)) = sound_blocks(&flipped) else {
            assert!(at < HEAD, "{at}");
            continue;
        };
        let lost = blocks.iter().zip(&whole).filter(|(block, whole)| block != whole);
        assert_eq!((pack, blocks.len(), lost.clone().count()), (table.pack, whole.len(), 1), "{at}");
        assert!(lost.clone().all(|(block, _)| block.is_none()), "{at}");
    }
    for length in 0..bytes.len() {
        let Some((_, blocks)) = sound_blocks(&bytes[..length]) else { continue };
        assert!(blocks.iter().zip(&whole).all(|(block, whole)| block.is_none() || block == whole), "{length}");
    }
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
        prop_assert!(sound_blocks(&[byte; 100]).is_none());
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
