//! The tables, against arithmetic that is done in another way.

use crate::field::{BIT_MATRICES, inverse, multiply};

/// Powers of x, each one the last one shifted and reduced: all bytes but 0, in an order by which products are sums.
fn powers() -> Vec<u8> {
    let mut power = 1_u16;
    let mut all = Vec::new();
    for _ in 0..255 {
        all.push(power as u8);
        power <<= 1;
        if power & 0x100 != 0 {
            power ^= 0x11d;
        }
    }
    all
}

#[test]
fn products_are_those_of_powers() {
    let powers = powers();
    let mut logarithms = [None; 256];
    for (exponent, power) in powers.iter().enumerate() {
        assert_eq!(logarithms[usize::from(*power)].replace(exponent), None, "{power} is there twice");
    }
    for a in 0..=255_u8 {
        for b in 0..=255_u8 {
            let expected = match (logarithms[usize::from(a)], logarithms[usize::from(b)]) {
                (Some(of_a), Some(of_b)) => powers[(of_a + of_b) % 255],
                _ => 0,
            };
            assert_eq!(multiply(a, b), expected, "{a} times {b}");
        }
    }
}

#[test]
fn inverses_give_one() {
    assert!((1..=255).all(|a| multiply(a, inverse(a)) == 1));
    assert_eq!(inverse(0), 0);
}

/// `GF2P8AFFINEQB` with a constant of 0 as the processor's manual has it: bit i of the result is the parity of the byte
/// and byte 7-i of the matrix.
fn affine(matrix: u64, byte: u8) -> u8 {
    let bit = |at: usize| (matrix.to_le_bytes()[7 - at] & byte).count_ones() as u8 & 1;
    (0..8).fold(0, |made, at| made | bit(at) << at)
}

#[test]
fn bit_matrices_multiply() {
    for coefficient in 0..=255_u8 {
        let matrix = BIT_MATRICES[usize::from(coefficient)];
        assert!((0..=255).all(|byte| affine(matrix, byte) == multiply(coefficient, byte)), "{coefficient}");
    }
}
