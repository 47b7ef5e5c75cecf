//! What is stored with fragments, and of decisions: what is accepted is written in one way only.

use std::sync::Arc;

use super::bytes::{devices, known_bytes, scheme, stored};
use crate::block::{Block, BlockError};
use crate::decision;
use crate::slot::Change;
use crate::{Accepted, Ballot, Outcome, Version};

#[test]
fn a_block_has_the_bytes_that_the_design_says() {
    let stored = stored(scheme(2, 1), 4, b"0123456789", &[10]);
    let block = &stored.blocks[1];
    let bytes = block.encode();
    assert_eq!(bytes.len(), 40 + 3 * (12 + 8) + 2 * 8);
    assert_eq!(bytes[..16], [1, 2, 1, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 10]);
    assert_eq!(bytes[16..24], 99_u64.to_be_bytes());
    assert_eq!(bytes[24..40], swiftlet_hash::xxh3_128(b"0123456789").to_be_bytes());
    assert_eq!(bytes[52..64], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 233]);
    assert_eq!(bytes[100..108], swiftlet_hash::xxh3_64(b"4567").to_be_bytes());
    assert_eq!(bytes[84..92], swiftlet_hash::xxh3_64(&bytes[100..]).to_be_bytes());
    assert_eq!(Block::parse(&bytes), Ok(block.clone()));
    assert_eq!(block.fragment_bytes(), 5);
}

#[test]
fn what_is_no_block_is_refused_with_the_reason() {
    let stored = stored(scheme(2, 1), 4, &known_bytes(21), &[21]);
    let bytes = stored.blocks[1].encode();
    for end in 0..bytes.len() {
        assert_eq!(Block::parse(&bytes[..end]), Err(BlockError::Length), "{end}");
    }
    assert_eq!(Block::parse(&[&bytes[..], &[0]].concat()), Err(BlockError::Length));
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        Block::parse(&bytes).expect_err("no block")
    };
    assert_eq!(with(0, &[2]).to_string(), "a fragment's block has version 2, this program understands 1");
    assert!(with(1, &[17]).to_string().contains("17 data and 1 parity cells"));
    assert_eq!(with(3, &[3]), BlockError::Index(3));
    assert!(with(4, &[0; 4]).to_string().contains("a cell of 0 bytes"));
    assert!(matches!(with(4, &[255; 4]), BlockError::Scheme(_)));
    assert!(matches!(with(8, &[255; 8]), BlockError::Stripes(_)));
    assert_eq!(with(16, &[255; 8]), BlockError::Generation);
    assert_eq!(with(55, &[0]).to_string(), "device 0 was chosen for two fragments");
    let last = bytes.len() - 1;
    assert_eq!(with(last, &[!bytes[last]]), BlockError::Cells);
}

#[test]
fn fragments_belong_together_by_all_that_tells_writes_apart() {
    let object = known_bytes(21);
    let stored = stored(scheme(2, 1), 4, &object, &[21]);
    let [one, other, _] = &stored.blocks[..] else { panic!("three") };
    assert!(one.belongs_to(other));
    let changed = [
        Block { generation: 98, ..other.clone() },
        Block { chosen: devices(4), ..other.clone() },
        Block { totals: Arc::new([1, 2, 3]), ..other.clone() },
        Block { object_xxh3: 1, ..other.clone() },
        self::stored(scheme(2, 1), 5, &object, &[21]).blocks[1].clone(),
    ];
    assert!(changed.iter().all(|changed| !one.belongs_to(changed)));
}

#[test]
fn decisions_are_written_and_read() {
    let version = Version { timestamp: 7, generation: 8 };
    let ballot = Ballot { round: 2, nonce: 9 };
    let accepted = |outcome| Change::Accepted { version, chosen: devices(0), accepted: Accepted { ballot, outcome } };
    let changes = [
        Change::Promised { version, chosen: devices(9), ballot },
        accepted(Outcome::Commit),
        accepted(Outcome::Abort),
        Change::Decided { version, outcome: Outcome::Commit },
        Change::Decided { version, outcome: Outcome::Abort },
        Change::Settled(version),
        Change::Returned(version),
        Change::Returned(Version::deletion(7)),
        Change::Damaged(version),
    ];
    for change in &changes {
        let bytes = decision::encode(change).expect("a decision");
        assert_eq!(decision::parse(7, &bytes).as_ref(), Some(change));
        for end in 0..bytes.len() {
            assert_eq!(decision::parse(7, &bytes[..end]), None);
        }
        assert_eq!(decision::parse(7, &[&bytes[..], &[0]].concat()), None, "something behind it");
        for what in [0, 9] {
            let mut bytes = bytes.clone();
            bytes[1] = what;
            assert_eq!(decision::parse(7, &bytes), None, "{what}");
        }
    }
    let settled = decision::encode(&changes[5]).expect("a decision");
    assert_eq!(settled.len(), 23, "128 bytes of header, and up to 64");
    let mut with_a_ballot = settled.clone();
    with_a_ballot[13] = 1;
    assert_eq!(decision::parse(7, &with_a_ballot), None);
    let mut deletion = settled;
    deletion[2..10].fill(255);
    assert_eq!(decision::parse(7, &deletion), None, "deletions are tombstones");
    let fragment = Change::Prepared { version, chosen: devices(3) };
    assert_eq!(decision::encode(&fragment), None);
}
