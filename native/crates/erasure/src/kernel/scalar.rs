//! Byte by byte, with tables: what every machine can do, and the ends of cells that are too short for a vector.

use super::Coefficients;
use crate::field::NIBBLES;

/// [`Kernel::add_products`](super::Kernel::add_products) of the bytes from `from` on.
pub(crate) fn run<const R: usize>(
    coefficients: &[Coefficients],
    sources: &[&[u8]],
    outputs: [&mut [u8]; R],
    from: usize,
) {
    for (row, output) in outputs.into_iter().enumerate() {
        let output = &mut output[from..];
        output.fill(0);
        for (source, coefficients) in sources.iter().zip(coefficients) {
            let table = &NIBBLES[usize::from(coefficients[row])];
            for (sum, byte) in output.iter_mut().zip(&source[from..]) {
                *sum ^= table[usize::from(byte & 15)] ^ table[usize::from(16 + (byte >> 4))];
            }
        }
    }
}
