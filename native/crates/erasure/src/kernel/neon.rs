//! Products by two lookups of 16 entries, 16 bytes at once.
#![allow(unsafe_code, reason = "instructions of this kind of machine")]

use std::arch::aarch64::{uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8};

use super::Coefficients;
use super::vector::{self, Vector};
use crate::field::NIBBLES;

struct Neon;

impl Vector for Neon {
    type Bytes = uint8x16_t;
    /// The low and the high half of each byte.
    type Factor = (uint8x16_t, uint8x16_t);
    type Table = [u8; 32];
    const BYTES: usize = 16;
    const EMPTY: [u8; 32] = [0; 32];

    #[inline(always)]
    fn table(coefficient: u8) -> [u8; 32] {
        NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: the caller's word, and no alignment is needed.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, bytes: uint8x16_t) {
        // SAFETY: the caller's word, and no alignment is needed.
        unsafe { vst1q_u8(to, bytes) }
    }

    #[inline(always)]
    unsafe fn zero() -> uint8x16_t {
        // SAFETY: the caller's word.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    unsafe fn factor(bytes: uint8x16_t) -> (uint8x16_t, uint8x16_t) {
        // SAFETY: the caller's word.
        unsafe { (vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)) }
    }

    #[inline(always)]
    unsafe fn add(sum: uint8x16_t, table: &[u8; 32], (low, high): (uint8x16_t, uint8x16_t)) -> uint8x16_t {
        // SAFETY: the table has 32 bytes; the instructions are the caller's word.
        unsafe {
            let (of_low, of_high) = (vld1q_u8(table.as_ptr()), vld1q_u8(table.as_ptr().add(16)));
            veorq_u8(sum, veorq_u8(vqtbl1q_u8(of_low, low), vqtbl1q_u8(of_high, high)))
        }
    }
}

/// [`Kernel::add_products`](super::Kernel::add_products), where there is NEON.
pub(super) fn run<const R: usize>(coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
    #[target_feature(enable = "neon")]
    fn compiled<const R: usize>(coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
        // SAFETY: this function is compiled for NEON; `Kernel::run` has compared the lengths.
        unsafe { vector::run::<Neon, R>(coefficients, sources, outputs) }
    }
    // SAFETY: `Kernel` is made for NEON where the processor has it.
    unsafe { compiled(coefficients, sources, outputs) }
}
