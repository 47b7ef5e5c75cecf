use super::*;
use crate::answers::put_entry;

fn digest(number: u8) -> [u8; 16] {
    let mut digest = [number; 16];
    digest[14] = 0;
    digest
}

fn data(number: u8, timestamp: Timestamp) -> Entry {
    Entry { digest: digest(number), kind: EntryKind::Data, timestamp, meta_timestamp: 0, content_type_timestamp: 0 }
}

fn deleted(number: u8, timestamp: Timestamp) -> Entry {
    Entry { kind: EntryKind::Tombstone, ..data(number, timestamp) }
}

fn posted(number: u8, timestamp: Timestamp, meta: Timestamp, content_type: Timestamp) -> Entry {
    Entry { meta_timestamp: meta, content_type_timestamp: content_type, ..data(number, timestamp) }
}

fn bytes(list: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    list.iter().for_each(|entry| put_entry(&mut out, entry));
    out
}

fn hashes(list: &[(Suffix, u8)]) -> Vec<u8> {
    list.iter().flat_map(|(suffix, value)| [&suffix.to_be_bytes()[..], &[*value; 16]].concat()).collect()
}

#[test]
fn each_side_lacks_what_is_newer_on_the_other() {
    let mine = bytes(&[data(1, 5), data(2, 5), deleted(3, 7), posted(4, 5, 8, 0), data(6, 5), deleted(7, 5)]);
    let theirs = bytes(&[data(1, 5), data(2, 6), data(3, 5), data(4, 5), data(5, 1), data(7, 5)]);
    let found: Vec<_> =
        newer(&mine, &theirs).iter().flatten().map(|(e, need, fresh)| (e.digest[0], *need, *fresh)).collect();
    let deleted_7 = (7, Need::Tombstone, false);
    assert_eq!(found, [(3, Need::Tombstone, false), (4, Need::Meta, false), (6, Need::Data, true), deleted_7]);
    let found: Vec<_> =
        newer(&theirs, &mine).iter().flatten().map(|(e, need, fresh)| (e.digest[0], *need, *fresh)).collect();
    assert_eq!(found, [(2, Need::Data, false), (5, Need::Data, true)]);
    assert_eq!(newer(&mine, &mine), Some(vec![]));
}

/// Who moves a version to another policy deletes it with its own timestamp.
#[test]
fn a_deletion_counts_where_data_have_the_same_timestamp() {
    let (gone, here) = (bytes(&[deleted(1, 5), deleted(2, 5)]), bytes(&[data(1, 5), deleted(2, 5)]));
    assert_eq!(newer(&gone, &here), Some(vec![(deleted(1, 5), Need::Tombstone, false)]));
    assert_eq!(newer(&here, &gone), Some(vec![]));
}

#[test]
fn a_content_type_or_a_post_newer_than_newer_data_is_lacking_too() {
    let mine = bytes(&[posted(1, 5, 8, 8), posted(2, 5, 9, 0), posted(3, 5, 6, 0)]);
    let theirs = bytes(&[posted(1, 5, 8, 7), data(2, 8), data(3, 7)]);
    let found: Vec<_> = newer(&mine, &theirs).iter().flatten().map(|(e, need, _)| (e.digest[0], *need)).collect();
    assert_eq!(found, [(1, Need::Meta), (2, Need::Meta)]);
}

#[test]
fn entries_out_of_order_are_not_compared() {
    let (ordered, swapped) = (bytes(&[data(1, 5), data(2, 5)]), bytes(&[data(2, 5), data(1, 5)]));
    assert_eq!(newer(&swapped, &ordered), None);
    assert_eq!(newer(&ordered, &swapped), None);
    assert_eq!(newer(&bytes(&[]), &bytes(&[data(1, 5), data(1, 5)])), None);
    assert!(in_order(&ordered, &[1, 2]) && in_order(&ordered, &[0, 1, 2, 3]));
    assert!(!in_order(&ordered, &[1]) && !in_order(&swapped, &[1, 2]) && in_order(&[], &[]));
}

#[test]
fn suffixes_differ_that_one_side_lacks_or_has_otherwise() {
    let (mine, theirs) = (hashes(&[(1, 1), (3, 3), (5, 5), (9, 9)]), hashes(&[(0, 0), (1, 1), (3, 4), (6, 6), (9, 9)]));
    assert_eq!(differing(&mine, &theirs, false), [3, 5]);
    assert_eq!(differing(&mine, &theirs, true), [0, 3, 5, 6]);
    assert_eq!(differing(&theirs, &mine, true), [0, 3, 5, 6]);
    assert!(differing(&mine, &mine, true).is_empty());
}

#[test]
fn answers_are_taken_apart_only_to_their_end() {
    let (first, second) = (hashes(&[(0, 1), (4095, 2)]), hashes(&[]));
    let whole = [&[VERSION, SUFFIX_HASHES, 0, 7, 2, 4, 1, 2][..], &first, &[5, 0, 0], &second].concat();
    let Some(found) = suffix_hashes(&whole) else { panic!("not understood") };
    assert_eq!((found.policy, found.ring_version), (0, 7));
    assert_eq!(found.found[0], Part { partition: 4, primary: true, count: 2, bytes: &first });
    assert_eq!(found.found[1], Part { partition: 5, primary: false, count: 0, bytes: &second });
    for end in 0..whole.len() {
        assert!(suffix_hashes(&whole[..end]).is_none());
    }
    for wrong in [hashes(&[(4, 1), (4, 1)]), hashes(&[(4, 1), (3, 1)]), hashes(&[(4, 1), (4096, 1)])] {
        assert!(suffix_hashes(&[&[VERSION, SUFFIX_HASHES, 0, 7, 1, 4, 1, 2][..], &wrong].concat()).is_none());
    }
    let listed = bytes(&[deleted(1, 5), posted(2, 5, 6, 7)]);
    let whole = [&[VERSION, MANY_ENTRIES, 0, 7, 1, 4, 1, 2][..], &listed].concat();
    let Some(found) = listings(&whole) else { panic!("not understood") };
    assert_eq!(found.found[0], Part { partition: 4, primary: true, count: 2, bytes: &listed });
    assert_eq!(entries(&listed).collect::<Vec<_>>(), [deleted(1, 5), posted(2, 5, 6, 7)]);
    for end in 0..whole.len() {
        assert!(listings(&whole[..end]).is_none());
    }
    for (at, value) in [(6, 2), (8 + 16, 3), (8 + 17, 0xff)] {
        let mut wrong = whole.clone();
        wrong[at] = value;
        assert!(listings(&wrong).is_none(), "{value} at {at}");
    }
}
