//! One MD5 in the vector registers of a processor with AVX-512.
//!
//! There a step's boolean function is one instruction, and so is its rotation: a step is four instructions long, each
//! of which waits for the one before, where general registers need up to five. Only one lane is looked at.

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_rol_epi32, _mm_set1_epi32, _mm_ternarylogic_epi32,
};

use super::{BLOCK_BYTES, SINES};

/// Whether this processor has what [`compress`] needs.
pub(super) fn is_here() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl")
}

/// A value that is complete before the previous step's result is needed: see [`super::beside_the_chain`].
#[target_feature(enable = "avx512f,avx512vl")]
#[inline]
fn beside_the_chain(mut value: __m128i) -> __m128i {
    // SAFETY: there are no instructions in it.
    #[allow(unsafe_code, reason = "no safe way to tell the compiler not to regroup a sum")]
    unsafe {
        std::arch::asm!("/* {0} */", inout(xmm_reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value
}

/// Digest whole blocks into the state.
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) fn compress(state: &mut [u32; 4], blocks: &[[u8; BLOCK_BYTES]]) {
    let [mut old_a, mut old_b, mut old_c, mut old_d] = state.map(|word| _mm_cvtsi32_si128(word.cast_signed()));
    for block in blocks {
        let words: [__m128i; 16] = std::array::from_fn(|at| {
            _mm_set1_epi32(i32::from_le_bytes([block[4 * at], block[4 * at + 1], block[4 * at + 2], block[4 * at + 3]]))
        });
        let (mut a, mut b, mut c, mut d) = (old_a, old_b, old_c, old_d);

        // `$table` is what the function has for each of the eight combinations of three bits, of which `$b`'s is the
        // highest.
        macro_rules! step {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $word:expr, $turn:literal, $table:literal) => {
                let ready = _mm_add_epi32(_mm_set1_epi32(SINES[$i].cast_signed()), words[$word % 16]);
                let ready = beside_the_chain(_mm_add_epi32($a, ready));
                let sum = _mm_add_epi32(ready, _mm_ternarylogic_epi32::<$table>($b, $c, $d));
                $a = _mm_add_epi32(_mm_rol_epi32::<$turn>(sum), $b);
            };
        }
        macro_rules! f {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                step!($a, $b, $c, $d, $i, $i, $turn, 0b1100_1010);
            };
        }
        macro_rules! g {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                step!($a, $b, $c, $d, $i, 5 * $i + 1, $turn, 0b1110_0100);
            };
        }
        macro_rules! h {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                step!($a, $b, $c, $d, $i, 3 * $i + 5, $turn, 0b1001_0110);
            };
        }
        macro_rules! i {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                step!($a, $b, $c, $d, $i, 7 * $i, $turn, 0b0011_1001);
            };
        }
        rounds!(f, g, h, i, [a, b, c, d]);

        old_a = _mm_add_epi32(old_a, a);
        old_b = _mm_add_epi32(old_b, b);
        old_c = _mm_add_epi32(old_c, c);
        old_d = _mm_add_epi32(old_d, d);
    }
    *state = [old_a, old_b, old_c, old_d].map(|word| _mm_cvtsi128_si32(word).cast_unsigned());
}
