//! Cells of different lengths, digests, and what is refused.

use proptest::prelude::*;

use super::{encoded, known_bytes, scheme, slices};
use crate::{Decoder, Encoder, Error, Kernel, Scheme};

fn schemes() -> impl Strategy<Value = Scheme> {
    (2..=16_usize, 1..=8_usize).prop_map(|(data, parity)| scheme(data, parity))
}

/// A scheme, and data cells of any lengths.
fn ragged() -> impl Strategy<Value = (Scheme, Vec<Vec<u8>>)> {
    let cell = prop_oneof![Just(vec![]), prop::collection::vec(any::<u8>(), 0..200)];
    schemes().prop_flat_map(move |scheme| (Just(scheme), prop::collection::vec(cell.clone(), scheme.data())))
}

proptest! {
    #[test]
    fn short_cells_count_as_zero_behind_their_end((scheme, data) in ragged()) {
        let longest = data.iter().map(Vec::len).max().unwrap_or(0);
        let mut padded = data.clone();
        padded.iter_mut().for_each(|cell| cell.resize(longest, 0));
        for kernel in Kernel::available() {
            let encoder = Encoder::with_kernel(scheme, kernel);
            let (short, long) = (encoded(&encoder, scheme, &data), encoded(&encoder, scheme, &padded));
            prop_assert_eq!(&short[scheme.data()..], &long[scheme.data()..], "{}", kernel.name());
        }
    }

    #[test]
    fn any_cells_come_back_with_their_lengths_and_digests(
        (scheme, data) in ragged(), order in any::<[u8; 24]>(), lost in 0..9_usize,
    ) {
        let cells = encoded(&Encoder::new(scheme), scheme, &data);
        let mut indices: Vec<usize> = (0..scheme.cells()).collect();
        indices.sort_by_key(|&index| order[index]);
        let (wanted, left) = indices.split_at(lost.min(scheme.parity()));
        let decoder = Decoder::new(scheme, left, wanted).expect("a plan");
        let given: Vec<&[u8]> = decoder.sources().iter().map(|&index| &cells[index][..]).collect();
        let mut restored: Vec<Vec<u8>> = wanted.iter().map(|&index| vec![MARK; cells[index].len()]).collect();
        let mut outputs: Vec<&mut [u8]> = restored.iter_mut().map(|cell| &mut cell[..]).collect();
        let digests = decoder.restore_with_digests(&given, &mut outputs).expect("cells");
        let expected: Vec<&[u8]> = given.iter().copied().chain(wanted.iter().map(|&index| &cells[index][..])).collect();
        prop_assert_eq!(slices(&restored), &expected[given.len()..]);
        let of_cells: Vec<u64> = expected.iter().map(|cell| swiftlet_hash::xxh3_64(cell)).collect();
        prop_assert_eq!(&digests[..], &of_cells[..]);
    }
}

const MARK: u8 = 0xa5;

#[test]
fn digests_of_a_stripe_are_by_index() {
    let scheme = scheme(6, 3);
    let data: Vec<_> = known_bytes(6 * 1000).chunks(1000).map(<[u8]>::to_vec).collect();
    let mut parity = vec![vec![0; 1000]; 3];
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
    let digests = Encoder::new(scheme).encode_with_digests(&slices(&data), &mut outputs).expect("a stripe");
    let expected: Vec<u64> = data.iter().chain(&parity).map(|cell| swiftlet_hash::xxh3_64(cell)).collect();
    assert_eq!(&digests[..], &expected[..]);
}

#[test]
fn other_numbers_and_lengths_are_refused_and_nothing_is_written() {
    let encoder = Encoder::new(scheme(2, 2));
    let try_to_encode = |data: &[&[u8]], lengths: &[usize]| {
        let mut parity: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![MARK; length]).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
        let result = encoder.encode(data, &mut outputs);
        assert!(result.is_ok() || parity.concat().iter().all(|&byte| byte == MARK));
        result
    };
    assert_eq!(try_to_encode(&[b"ab", b"c"], &[2, 2]), Ok(()));
    assert_eq!(try_to_encode(&[b"ab"], &[2, 2]), Err(Error::Count { given: 1, needed: 2 }));
    assert_eq!(try_to_encode(&[b"ab", b"c"], &[2]), Err(Error::Count { given: 1, needed: 2 }));
    assert_eq!(try_to_encode(&[b"ab", b"c"], &[2, 1]), Err(Error::Length { given: 2, needed: 1 }));
    assert_eq!(try_to_encode(&[b"ab", b"c"], &[3, 3]), Err(Error::Length { given: 2, needed: 3 }));

    let decoder = Decoder::new(scheme(2, 2), &[1, 2], &[0, 3]).expect("a plan");
    let try_to_restore = |given: &[&[u8]], lengths: &[usize]| {
        let mut restored: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![MARK; length]).collect();
        let mut outputs: Vec<&mut [u8]> = restored.iter_mut().map(|cell| &mut cell[..]).collect();
        let result = decoder.restore(given, &mut outputs);
        assert!(result.is_ok() || restored.concat().iter().all(|&byte| byte == MARK));
        result
    };
    assert_eq!(try_to_restore(&[b"c", b"pp"], &[2, 2]), Ok(()));
    assert_eq!(try_to_restore(&[b"c", b"pp"], &[1, 2]), Ok(()));
    assert_eq!(try_to_restore(&[b"c"], &[2, 2]), Err(Error::Count { given: 1, needed: 2 }));
    assert_eq!(try_to_restore(&[b"c", b"pp"], &[2]), Err(Error::Count { given: 1, needed: 2 }));
    assert_eq!(try_to_restore(&[b"ccc", b"pp"], &[2, 2]), Err(Error::Length { given: 3, needed: 2 }));
    assert_eq!(try_to_restore(&[b"c", b"pp"], &[2, 1]), Err(Error::Length { given: 2, needed: 1 }));
    assert_eq!(try_to_restore(&[b"c", b"pp"], &[3, 2]), Err(Error::Length { given: 3, needed: 2 }));
}

#[test]
fn schemes_have_bounds_that_are_told() {
    assert!((2..=16).all(|data| (1..=8).all(|parity| Scheme::new(data, parity).is_ok())));
    for (data, parity) in [(1, 1), (17, 1), (2, 0), (2, 9), (0, 0), (usize::MAX, 1)] {
        let error = Scheme::new(data, parity).expect_err("too few or too many");
        assert_eq!(error, Error::Scheme { data, parity });
        assert!(error.to_string().contains("2 to 16 data and 1 to 8 parity cells"), "{error}");
    }
}
