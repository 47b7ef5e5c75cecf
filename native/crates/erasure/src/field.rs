//! Arithmetic of GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1. Addition is xor.

/// The polynomial without its highest term, which a byte has no room for.
const REDUCED: u8 = 0x1d;

/// For each coefficient its products with 0..16, then those with 0x00, 0x10, ... 0xf0. The product with any byte is the
/// xor of two of them.
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibbles();

const fn product(a: u8, b: u8) -> u8 {
    let (mut sum, mut power, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            sum ^= power;
        }
        power = power << 1 ^ if power >> 7 == 1 { REDUCED } else { 0 };
        bit += 1;
    }
    sum
}

const fn nibbles() -> [[u8; 32]; 256] {
    let mut all = [[0; 32]; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            all[coefficient][nibble] = product(coefficient as u8, nibble as u8);
            all[coefficient][16 + nibble] = product(coefficient as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        coefficient += 1;
    }
    all
}

/// `a` times `b`.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    let table = &NIBBLES[usize::from(a)];
    table[usize::from(b & 15)] ^ table[usize::from(16 + (b >> 4))]
}

/// What gives 1 when multiplied by `a`; 0 of 0, which has no inverse.
pub(crate) fn inverse(a: u8) -> u8 {
    // a^255 is 1 for all but 0, so the inverse is a^254 = a^2 a^4 ... a^128.
    let (mut power, mut result) = (a, 1);
    for _ in 1..8 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    result
}

/// Multiplication by each coefficient as a matrix of bits, in the form that the instruction `GF2P8AFFINEQB` takes: byte
/// 7-i has the bits of the factor that make bit i of the product.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) static BIT_MATRICES: [u64; 256] = bit_matrices();

#[cfg(any(target_arch = "x86_64", test))]
const fn bit_matrices() -> [u64; 256] {
    let mut all = [0; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut from = 0;
        while from < 8 {
            let made = product(coefficient as u8, 1 << from);
            let mut to = 0;
            while to < 8 {
                all[coefficient] |= ((made >> to & 1) as u64) << (8 * (7 - to) + from);
                to += 1;
            }
            from += 1;
        }
        coefficient += 1;
    }
    all
}
