//! A product is one instruction, which multiplies a byte's bits by a matrix of bits; 32 bytes at once.
#![allow(unsafe_code, reason = "instructions that not every machine has")]

use std::arch::x86_64::{
    __m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::Coefficients;
use super::vector::{self, Vector};
use crate::field::BIT_MATRICES;

struct Gfni;

impl Vector for Gfni {
    type Bytes = __m256i;
    type Factor = __m256i;
    type Table = u64;
    const BYTES: usize = 32;
    const EMPTY: u64 = 0;

    #[inline(always)]
    fn table(coefficient: u8) -> u64 {
        BIT_MATRICES[usize::from(coefficient)]
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
    unsafe fn factor(bytes: __m256i) -> __m256i {
        bytes
    }

    #[inline(always)]
    unsafe fn add(sum: __m256i, table: &u64, factor: __m256i) -> __m256i {
        // SAFETY: the caller's word.
        unsafe {
            let matrix = _mm256_set1_epi64x(table.cast_signed());
            _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(factor, matrix))
        }
    }
}

/// [`Kernel::add_products`](super::Kernel::add_products), where there are AVX2 and GFNI.
pub(super) fn run<const R: usize>(coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
    #[target_feature(enable = "avx2,gfni")]
    fn compiled<const R: usize>(coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
        // SAFETY: this function is compiled for AVX2 and GFNI; `Kernel::run` has compared the lengths.
        unsafe { vector::run::<Gfni, R>(coefficients, sources, outputs) }
    }
    // SAFETY: `Kernel` is made for GFNI where the processor has it and AVX2.
    unsafe { compiled(coefficients, sources, outputs) }
}
