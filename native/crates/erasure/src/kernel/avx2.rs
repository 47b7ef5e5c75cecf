//! Products by two lookups of 16 entries, 32 bytes at once.
#![allow(unsafe_code, reason = "instructions that not every machine has")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::Coefficients;
use super::vector::{self, Vector};
use crate::field::NIBBLES;

struct Avx2;

impl Vector for Avx2 {
    type Bytes = __m256i;
    /// The low and the high half of each byte.
    type Factor = (__m256i, __m256i);
    type Table = [u8; 32];
    const BYTES: usize = 32;
    const EMPTY: [u8; 32] = [0; 32];

    #[inline(always)]
    fn table(coefficient: u8) -> [u8; 32] {
        NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller's word, and no alignment is needed.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, bytes: __m256i) {
        // SAFETY: the caller's word, and no alignment is needed.
        unsafe { _mm256_storeu_si256(to.cast(), bytes) }
    }

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller's word.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn factor(bytes: __m256i) -> (__m256i, __m256i) {
        // SAFETY: the caller's word.
        unsafe {
            let half = _mm256_set1_epi8(15);
            (_mm256_and_si256(bytes, half), _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half))
        }
    }

    #[inline(always)]
    unsafe fn add(sum: __m256i, table: &[u8; 32], (low, high): (__m256i, __m256i)) -> __m256i {
        let of_low: *const __m128i = table.as_ptr().cast();
        // SAFETY: the table has 32 bytes; the instructions are the caller's word.
        unsafe {
            let of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_low.add(1)));
            let of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128(of_low));
            let product = _mm256_xor_si256(_mm256_shuffle_epi8(of_low, low), _mm256_shuffle_epi8(of_high, high));
            _mm256_xor_si256(sum, product)
        }
    }
}

/// [`Kernel::add_products`](super::Kernel::add_products), where there is AVX2.
pub(super) fn run<const R: usize>(coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
    #[target_feature(enable = "avx2")]
    fn compiled<const R: usize>(coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
        // SAFETY: this function is compiled for AVX2; `Kernel::run` has compared the lengths.
        unsafe { vector::run::<Avx2, R>(coefficients, sources, outputs) }
    }
    // SAFETY: `Kernel` is made for AVX2 where the processor has it.
    unsafe { compiled(coefficients, sources, outputs) }
}
