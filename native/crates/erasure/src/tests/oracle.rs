//! The same bytes as another implementation makes.

use super::{encoded, known_bytes, scheme};
use crate::{Encoder, Kernel};

const CELL_BYTES: usize = 64;

#[test]
fn parity_is_liberasurecodes_in_every_scheme() {
    let mut schemes = 0;
    for line in include_str!("../../tests/liberasurecode.txt").lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        let scheme = scheme(number(), number());
        let expected = words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).expect("a digest");
        let data: Vec<_> = known_bytes(scheme.data() * CELL_BYTES).chunks(CELL_BYTES).map(<[u8]>::to_vec).collect();
        for kernel in Kernel::available() {
            let cells = encoded(&Encoder::with_kernel(scheme, kernel), scheme, &data);
            let made = swiftlet_hash::xxh3_64(&cells[scheme.data()..].concat());
            assert_eq!(made, expected, "{} {scheme:?}", kernel.name());
        }
        schemes += 1;
    }
    assert_eq!(schemes, 15 * 8);
}
