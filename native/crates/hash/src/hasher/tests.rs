//! Known answers, and: however a stream is cut, its digests are those of the whole.

use proptest::prelude::*;

use super::{Digests, Hasher, SLICE_BYTES};
use crate::{md5, xxh3_64, xxh3_128};

fn counting(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn xxh3_answers_as_its_reference_does() {
    assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(xxh3_64(b"abc"), 0x78af_5f94_892f_3950);
    assert_eq!(xxh3_128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    assert_eq!(xxh3_128(b"abc"), 0x06b0_5ab6_733a_6185_78af_5f94_892f_3950);
}

#[test]
fn only_the_digests_asked_for_are_kept() {
    let mut neither = Hasher::new(Digests { md5: false, xxh3: false });
    neither.update(b"abc");
    assert_eq!(neither.size(), 3);
    assert_eq!((neither.md5(), neither.xxh3_64(), neither.xxh3_128()), (None, None, None));

    let mut only_md5 = Hasher::new(Digests { md5: true, xxh3: false });
    only_md5.update(b"abc");
    assert_eq!((only_md5.md5(), only_md5.xxh3_128()), (Some(md5(b"abc")), None));

    let mut only_xxh3 = Hasher::new(Digests { md5: false, xxh3: true });
    only_xxh3.update(b"abc");
    assert_eq!((only_xxh3.md5(), only_xxh3.xxh3_64()), (None, Some(xxh3_64(b"abc"))));
}

#[test]
fn a_digest_may_be_read_on_the_way_and_a_clone_goes_its_own_way() {
    let mut hasher = Hasher::new(Digests::ALL);
    hasher.update(b"ab");
    let mut other = hasher.clone();
    assert_eq!(hasher.md5(), Some(md5(b"ab")));
    hasher.update(b"c");
    other.update(b"d");
    assert_eq!(hasher.md5(), Some(md5(b"abc")));
    assert_eq!(other.xxh3_128(), Some(xxh3_128(b"abd")));
}

#[test]
fn lengths_around_a_slice_agree_with_one_shot() {
    for length in [SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 3 * SLICE_BYTES + 7] {
        let data = counting(length);
        let mut hasher = Hasher::new(Digests::ALL);
        hasher.update(&data);
        assert_eq!(hasher.md5(), Some(md5(&data)), "MD5 of {length} bytes");
        assert_eq!(hasher.xxh3_64(), Some(xxh3_64(&data)), "xxh3 of {length} bytes");
        assert_eq!(hasher.xxh3_128(), Some(xxh3_128(&data)), "xxh3 of {length} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_it_is_cut_a_stream_has_the_digests_of_the_whole(
        data in prop::collection::vec(any::<u8>(), 0..2 * SLICE_BYTES),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
        ends.push(data.len());
        ends.sort_unstable();

        let mut hasher = Hasher::new(Digests::ALL);
        let mut start = 0;
        for end in ends {
            hasher.update(&data[start..end]);
            start = end;
        }

        prop_assert_eq!(hasher.size(), data.len() as u64);
        prop_assert_eq!(hasher.md5(), Some(md5(&data)));
        prop_assert_eq!(hasher.xxh3_64(), Some(xxh3_64(&data)));
        prop_assert_eq!(hasher.xxh3_128(), Some(xxh3_128(&data)));
    }
}
