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

/// Both crates take other ways for 0, 1 to 3, 4 to 8, 9 to 16, 17 to 128, 129 to 240 and more bytes, and for each block
/// of 1024.
#[test]
fn every_length_has_the_same_digests_from_a_whole_and_from_a_stream() {
    let data = counting(5000);
    for length in (0..2200).chain([3071, 3072, 3073, 4095, 4096, 4097, 5000]) {
        let data = &data[..length];
        assert_eq!(xxh3_64(data), xxhash_rust::xxh3::xxh3_64(data), "xxh3-64 of {length} bytes");
        assert_eq!(xxh3_128(data), xxhash_rust::xxh3::xxh3_128(data), "xxh3-128 of {length} bytes");
        let mut stream = Hasher::new(Digests { md5: false, xxh3: true });
        stream.update(data);
        assert_eq!(stream.xxh3_64(), Some(xxh3_64(data)), "xxh3-64 of a stream of {length} bytes");
        assert_eq!(stream.xxh3_128(), Some(xxh3_128(data)), "xxh3-128 of a stream of {length} bytes");
    }
}

/// (length, xxh3-64, xxh3-128)
#[rustfmt::skip]
const REFERENCE: &[(usize, u64, u128)] = &[
    (1, 0xc44b_dff4_074e_ecdb, 0xa6cd_5e93_9200_0f6a_c44b_dff4_074e_ecdb),
    (5, 0xb075_753a_84ca_0fbe, 0x9434_5321_06a7_c141_c920_d234_7a85_929b),
    (13, 0xb7a5_d8a8_309a_2cb9, 0xae92_e123_e947_2408_bd79_5526_1902_66c0),
    (64, 0x6187_eb90_89b0_ed55, 0x9c6e_140a_4655_45e5_90c1_971d_db04_ce74),
    (136, 0x2ed9_e119_68e2_8542, 0xfde3_026a_a4be_9f80_af6d_d0d0_3c1e_e0b9),
    (200, 0xf42a_8864_feaf_0703, 0xcb03_9531_0643_ba0e_dd97_e9af_3609_d9f5),
    (240, 0x375a_384d_957f_e865, 0x65b5_be86_da55_40e7_c92b_68e1_6f83_bbb6),
    (241, 0x02e8_cd95_421c_6d02, 0x1da1_cb61_bcb8_a2a1_02e8_cd95_421c_6d02),
    (1024, 0xe5d7_8baf_a45b_2aa5, 0xd0ac_1f7b_93bf_57b9_e5d7_8baf_a45b_2aa5),
    (1025, 0xe95c_4228_8f28_186e, 0x2882_ebca_04ec_915c_e95c_4228_8f28_186e),
    (10240, 0xbcd6_3266_df6e_2244, 0x4f63_75cc_a7ec_e1e1_bcd6_3266_df6e_2244),
    (65537, 0x7033_1d53_d92b_bc56, 0x0924_e7a3_a30e_8187_7033_1d53_d92b_bc56),
    (1_048_576, 0x6e0d_7ac3_6b8c_10ff, 0x5373_8d98_098c_abba_6e0d_7ac3_6b8c_10ff),
];

/// Digests of the bytes at % 251, as the reference implementation in C (xxHash 0.8) has them.
#[test]
fn longer_inputs_answer_as_the_reference_does() {
    for (length, short, long) in REFERENCE.iter().copied() {
        let data = counting(length);
        assert_eq!((xxh3_64(&data), xxh3_128(&data)), (short, long), "{length} bytes");
    }
}

#[test]
fn only_the_digests_asked_for_are_kept() {
    let mut neither = Hasher::new(Digests { md5: false, xxh3: false });
    neither.update(b"abc");
    assert_eq!(neither.size(), 3);
    assert_eq!((neither.md5(), neither.xxh3_64(), neither.xxh3_128()), (None, None, None));

    let mut only_md5 = Hasher::new(Digests { md5: true, xxh3: false });
    only_md5.update(b"abc");
    assert_eq!((only_md5.md5(), only_md5.xxh3_64()), (Some(md5(b"abc")), None));

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
    assert_eq!(other.xxh3_64(), Some(xxh3_64(b"abd")));
}

#[test]
fn lengths_around_a_slice_agree_with_one_shot() {
    for length in [SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 3 * SLICE_BYTES + 7] {
        let data = counting(length);
        let mut hasher = Hasher::new(Digests::ALL);
        hasher.update(&data);
        assert_eq!(hasher.md5(), Some(md5(&data)), "MD5 of {length} bytes");
        assert_eq!(hasher.xxh3_64(), Some(xxh3_64(&data)), "xxh3 of {length} bytes");
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

    #[test]
    fn a_short_stream_in_pieces_has_both_widths(data in prop::collection::vec(any::<u8>(), 0..500), cut in 0..500_usize) {
        let (one, two) = data.split_at(cut.min(data.len()));
        let mut hasher = Hasher::new(Digests { md5: false, xxh3: true });
        hasher.update(one);
        prop_assert_eq!((hasher.xxh3_64(), hasher.xxh3_128()), (Some(xxh3_64(one)), Some(xxh3_128(one))));
        hasher.update(two);
        prop_assert_eq!((hasher.xxh3_64(), hasher.xxh3_128()), (Some(xxh3_64(&data)), Some(xxh3_128(&data))));
    }
}

proptest! {
    #[test]
    fn streams_that_are_digested_side_by_side_have_the_digests_that_they_have_alone(
        lengths in prop::collection::vec((0_usize..300, 0_usize..2 * SLICE_BYTES, 0_usize..200), 1..11),
        with_md5 in prop::collection::vec(any::<bool>(), 11),
    ) {
        let bodies: Vec<Vec<u8>> = lengths.iter().map(|(first, second, third)| counting(first + second + third)).collect();
        let mut together: Vec<Hasher> = with_md5
            .iter()
            .take(bodies.len())
            .map(|md5| Hasher::new(Digests { md5: *md5, xxh3: true }))
            .collect();
        for piece in 0..3 {
            let inputs: Vec<&[u8]> = bodies
                .iter()
                .zip(&lengths)
                .map(|(body, (first, second, _))| match piece {
                    0 => &body[..*first],
                    1 => &body[*first..first + second],
                    _ => &body[first + second..],
                })
                .collect();
            Hasher::update_each(&mut together.iter_mut().collect::<Vec<_>>(), &inputs);
        }
        for (hasher, body) in together.iter().zip(&bodies) {
            prop_assert_eq!(hasher.size(), body.len() as u64);
            prop_assert_eq!(hasher.xxh3_128(), Some(xxh3_128(body)));
            prop_assert!(hasher.md5().is_none_or(|digest| digest == md5(body)));
        }
    }
}
