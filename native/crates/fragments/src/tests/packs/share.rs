//! Which packs are written anew.

use proptest::prelude::*;

use crate::Version;
use crate::packs::Pack;
use crate::packs::share::{MOST_AT_ONCE, Use, to_rewrite};
use crate::packs::table::MAX_MEMBERS;

fn used(number: u64, live: u64, size: u64) -> Use {
    let pack = Pack { version: Version { timestamp: number, generation: number }, digest: [number as u8; 16] };
    Use { pack, retired: false, references: live.min(10), live, size }
}

fn chosen(all: &[Use], share: f64, most_bytes: u64) -> Vec<u64> {
    to_rewrite(all, share, most_bytes).iter().map(|one| one.pack.version.timestamp).collect()
}

#[test]
fn packs_below_the_share_are_written_anew_those_with_least_first() {
    let all = [used(1, 70, 100), used(2, 69, 100), used(3, 20, 100), used(4, 100, 100), used(5, 0, 100)];
    assert_eq!(chosen(&all, 0.7, 1000), [3, 2]);
    assert_eq!(chosen(&all, 0.2, 1000), [0; 0]);
    // With a share of 0 none are.
    assert_eq!(chosen(&all, 0.0, 1000), [0; 0]);
    // Of which the size is not known is left alone.
    assert_eq!(chosen(&[used(1, 5, 0)], 0.7, 1000), [0; 0]);
}

#[test]
fn what_a_retired_pack_still_has_is_moved_first_whatever_its_share_is() {
    let retired = Use { retired: true, ..used(1, 90, 100) };
    let unknown = Use { retired: true, ..used(2, 5, 0) };
    let empty = Use { retired: true, ..used(3, 0, 100) };
    assert_eq!(chosen(&[used(4, 1, 100), retired, unknown, empty], 0.0, 1000), [1, 2]);
    assert_eq!(chosen(&[used(4, 1, 100), retired, empty], 0.7, 1000), [1, 4]);
}

#[test]
fn they_fit_into_one_pack_but_for_the_first() {
    let all = [used(1, 30, 100), used(2, 31, 100), used(3, 32, 100), used(4, 33, 100)];
    assert_eq!(chosen(&all, 0.7, 64), [1, 2]);
    assert_eq!(chosen(&all, 0.7, 1), [1]);
    let many = |number| Use { references: MAX_MEMBERS as u64 / 2, ..used(number, 10, 100) };
    assert_eq!(chosen(&[many(1), many(2), many(3)], 0.7, 1000), [1, 2]);
    let all: Vec<Use> = (1..20).map(|number| used(number, 1, 100)).collect();
    assert_eq!(chosen(&all, 0.7, 1000).len(), MOST_AT_ONCE);
}

proptest! {
    #[test]
    fn any_numbers_are_taken(
        all in prop::collection::vec((any::<(u64, bool)>(), 0..1_u64 << 40, 0..1_u64 << 40), 0..30), share in 0.0..1.0,
    ) {
        let all: Vec<Use> = all.into_iter().enumerate().map(|(number, ((references, retired), live, size))| {
            Use { retired, references: references >> 8, ..used(number as u64, live, size) }
        }).collect();
        let taken = to_rewrite(&all, share, 1 << 28);
        let has_any = all.iter().any(|one| one.references > 0 && (one.retired || one.is_below(share)));
        prop_assert_eq!(taken.is_empty(), !has_any);
        prop_assert!(taken.len() <= 1 || taken.iter().map(|one| one.live).sum::<u64>() <= 1 << 28);
        prop_assert!(taken.iter().all(|one| one.retired || one.is_below(share)));
    }
}
