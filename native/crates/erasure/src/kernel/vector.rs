//! The loop that all vector kernels share.
#![allow(unsafe_code, reason = "vectors are read and written through pointers, without a check of bounds for each")]

use super::{Coefficients, scalar};
use crate::scheme::MAX_DATA;

/// Instructions on vectors of bytes. Nothing but a function compiled for these instructions may call the methods, which
/// is why they are unsafe: they become part of it.
pub(super) trait Vector {
    /// A vector of bytes.
    type Bytes: Copy;
    /// A source's bytes, made ready to be multiplied several times.
    type Factor: Copy;
    /// A coefficient, made ready to multiply.
    type Table: Copy;
    /// Bytes in a vector.
    const BYTES: usize;
    /// A table, of any coefficient.
    const EMPTY: Self::Table;

    /// The table of a coefficient.
    fn table(coefficient: u8) -> Self::Table;
    /// # Safety
    /// The machine has these instructions, and `BYTES` bytes can be read at `from`.
    unsafe fn load(from: *const u8) -> Self::Bytes;
    /// # Safety
    /// The machine has these instructions, and `BYTES` bytes can be written at `to`.
    unsafe fn store(to: *mut u8, bytes: Self::Bytes);
    /// # Safety
    /// The machine has these instructions.
    unsafe fn zero() -> Self::Bytes;
    /// # Safety
    /// The machine has these instructions.
    unsafe fn factor(bytes: Self::Bytes) -> Self::Factor;
    /// `sum` and the product.
    ///
    /// # Safety
    /// The machine has these instructions.
    unsafe fn add(sum: Self::Bytes, table: &Self::Table, factor: Self::Factor) -> Self::Bytes;
}

/// [`Kernel::add_products`](super::Kernel::add_products) by vectors.
///
/// # Safety
/// The machine has the instructions of `V`, and the caller is compiled for them. All slices are of the same length, and
/// there are as many sources as coefficients, at most [`MAX_DATA`].
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize>(
    coefficients: &[Coefficients],
    sources: &[&[u8]],
    mut outputs: [&mut [u8]; R],
) {
    let length = outputs[0].len();
    if length < V::BYTES {
        return scalar::run(coefficients, sources, outputs, 0);
    }
    let mut terms = [(std::ptr::null(), [V::EMPTY; R]); MAX_DATA];
    for ((term, source), coefficients) in terms.iter_mut().zip(sources).zip(coefficients) {
        *term = (source.as_ptr(), std::array::from_fn(|row| V::table(coefficients[row])));
    }
    let terms = &terms[..sources.len()];
    let outputs: [*mut u8; R] = std::array::from_fn(|row| outputs[row].as_mut_ptr());

    let mut at = 0;
    while at + 2 * V::BYTES <= length {
        // SAFETY: two vectors from `at` on are within the length of every slice; the rest is the caller's word.
        unsafe { step::<V, R, 2>(terms, &outputs, at) };
        at += 2 * V::BYTES;
    }
    if at + V::BYTES <= length {
        // SAFETY: one vector from `at` on is.
        unsafe { step::<V, R, 1>(terms, &outputs, at) };
        at += V::BYTES;
    }
    if at < length {
        // Bytes that are there already are made once more, from the same sources.
        // SAFETY: `length` is `V::BYTES` at least, so the last vector is within every slice.
        unsafe { step::<V, R, 1>(terms, &outputs, length - V::BYTES) };
    }
}

/// `N` vectors of each output, at `at`.
///
/// # Safety
/// As for [`run`]; and `N` vectors from `at` on can be read of each source and written of each output.
#[inline(always)]
unsafe fn step<V: Vector, const R: usize, const N: usize>(
    terms: &[(*const u8, [V::Table; R])],
    outputs: &[*mut u8; R],
    at: usize,
) {
    // SAFETY: the instructions and the bounds are the caller's word.
    unsafe {
        let mut sums = [[V::zero(); N]; R];
        for (source, tables) in terms {
            let factors: [V::Factor; N] =
                std::array::from_fn(|number| V::factor(V::load(source.add(at + number * V::BYTES))));
            for (sums, table) in sums.iter_mut().zip(tables) {
                for (sum, factor) in sums.iter_mut().zip(factors) {
                    *sum = V::add(*sum, table, factor);
                }
            }
        }
        for (output, sums) in outputs.iter().zip(sums) {
            for (number, sum) in sums.into_iter().enumerate() {
                V::store(output.add(at + number * V::BYTES), sum);
            }
        }
    }
}
