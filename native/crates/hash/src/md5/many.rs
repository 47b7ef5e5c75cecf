//! MD5 of several independent inputs at once.
//!
//! One MD5 keeps a core waiting for its own chain of steps. Eight of them side by side, a lane of a vector each, take
//! little longer than one: six times the bytes per second with AVX2. Which inputs come together is up to the caller;
//! lanes go on as long as at least [`WORTH`] inputs have whole blocks left, and each input is ended by itself.

#[cfg(not(target_arch = "x86_64"))]
use super::compress;
use super::{BLOCK_BYTES, Md5};

const LANES: usize = 8;
/// With fewer inputs one after the other is faster.
const WORTH: usize = 2;

type Blocks<'a> = &'a [[u8; BLOCK_BYTES]];

/// The MD5 of each input.
pub(crate) fn digests(inputs: &[&[u8]]) -> Vec<[u8; 16]> {
    inputs.chunks(LANES).flat_map(|some| digests_of_some(some, has_lanes())).collect()
}

fn digests_of_some(inputs: &[&[u8]], in_lanes: bool) -> Vec<[u8; 16]> {
    let mut streams: Vec<Md5> = inputs.iter().map(|_| Md5::new()).collect();
    update_some(&mut streams.iter_mut().collect::<Vec<_>>(), inputs, in_lanes);
    streams.iter().map(Md5::digest).collect()
}

/// Digest the next bytes of each stream.
pub(crate) fn update(streams: &mut [&mut Md5], inputs: &[&[u8]]) {
    let in_lanes = has_lanes();
    for (streams, inputs) in streams.chunks_mut(LANES).zip(inputs.chunks(LANES)) {
        update_some(streams, inputs, in_lanes);
    }
}

fn update_some(streams: &mut [&mut Md5], inputs: &[&[u8]], in_lanes: bool) {
    let mut rests: Vec<&[u8]> = inputs.to_vec();
    if in_lanes {
        // Blocks that were begun are completed first.
        for (stream, rest) in streams.iter_mut().zip(&mut rests) {
            let begun = stream.pending();
            let (first, later) = rest.split_at(rest.len().min((BLOCK_BYTES - begun) % BLOCK_BYTES));
            stream.update(first);
            *rest = later;
        }
        loop {
            let active: Vec<usize> = (0..rests.len()).filter(|at| rests[*at].len() >= BLOCK_BYTES).collect();
            if active.len() < WORTH {
                break;
            }
            let count = active.iter().map(|at| rests[*at].len() / BLOCK_BYTES).min().unwrap_or_default();
            // Lanes without an input repeat the first one.
            let input = |lane: usize| active[if lane < active.len() { lane } else { 0 }];
            let mut states = std::array::from_fn(|lane| streams[input(lane)].state);
            compress_lanes(&mut states, &std::array::from_fn(|lane| &rests[input(lane)].as_chunks().0[..count]));
            for (at, state) in active.into_iter().zip(states) {
                streams[at].state = state;
                streams[at].size += (count * BLOCK_BYTES) as u64;
                rests[at] = &rests[at][count * BLOCK_BYTES..];
            }
        }
    }
    for (stream, rest) in streams.iter_mut().zip(rests) {
        stream.update(rest);
    }
}

#[cfg(target_arch = "x86_64")]
fn has_lanes() -> bool {
    is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_lanes() -> bool {
    false
}

/// Digest as many whole blocks of each lane; only where `has_lanes`.
#[cfg(target_arch = "x86_64")]
fn compress_lanes(states: &mut [[u32; 4]; LANES], blocks: &[Blocks<'_>; LANES]) {
    assert!(has_lanes());
    // SAFETY: the processor has AVX2.
    #[allow(unsafe_code, reason = "what needs a feature of the processor is called after a look whether it is there")]
    unsafe {
        avx2::compress(states, blocks);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn compress_lanes(states: &mut [[u32; 4]; LANES], blocks: &[Blocks<'_>; LANES]) {
    for (state, blocks) in states.iter_mut().zip(blocks) {
        compress(state, blocks);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_extract_epi64, _mm256_or_si256,
        _mm256_permute2x128_si256, _mm256_set_epi32, _mm256_set_epi64x, _mm256_set1_epi32, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
        _mm256_xor_si256,
    };

    use super::super::SINES;
    use super::{BLOCK_BYTES, Blocks, LANES};

    /// A half of a block.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn half_of(block: &[u8; BLOCK_BYTES], half: usize) -> __m256i {
        let (words, _) = block.as_chunks::<8>();
        let word = |at: usize| i64::from_le_bytes(words[4 * half + at]);
        _mm256_set_epi64x(word(3), word(2), word(1), word(0))
    }

    /// From each lane's eight words, each word's eight lanes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn transposed(lanes: [__m256i; LANES]) -> [__m256i; LANES] {
        let pair = |at: usize| {
            let (one, other) = (lanes[at], lanes[at + 1]);
            (_mm256_unpacklo_epi32(one, other), _mm256_unpackhi_epi32(one, other))
        };
        let four = |at: usize| {
            let ((low, high), (next_low, next_high)) = (pair(at), pair(at + 2));
            [
                _mm256_unpacklo_epi64(low, next_low),
                _mm256_unpackhi_epi64(low, next_low),
                _mm256_unpacklo_epi64(high, next_high),
                _mm256_unpackhi_epi64(high, next_high),
            ]
        };
        let ([a, b, c, d], [e, f, g, h]) = (four(0), four(4));
        [
            _mm256_permute2x128_si256::<0x20>(a, e),
            _mm256_permute2x128_si256::<0x20>(b, f),
            _mm256_permute2x128_si256::<0x20>(c, g),
            _mm256_permute2x128_si256::<0x20>(d, h),
            _mm256_permute2x128_si256::<0x31>(a, e),
            _mm256_permute2x128_si256::<0x31>(b, f),
            _mm256_permute2x128_si256::<0x31>(c, g),
            _mm256_permute2x128_si256::<0x31>(d, h),
        ]
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn gathered(lanes: [u32; LANES]) -> __m256i {
        let [a, b, c, d, e, f, g, h] = lanes.map(u32::cast_signed);
        _mm256_set_epi32(h, g, f, e, d, c, b, a)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn scattered(vector: __m256i) -> [u32; LANES] {
        let pairs = [
            _mm256_extract_epi64::<0>(vector),
            _mm256_extract_epi64::<1>(vector),
            _mm256_extract_epi64::<2>(vector),
            _mm256_extract_epi64::<3>(vector),
        ];
        std::array::from_fn(|lane| (pairs[lane / 2] >> (32 * (lane % 2))) as u32)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn compress(states: &mut [[u32; 4]; LANES], blocks: &[Blocks<'_>; LANES]) {
        let mut state: [__m256i; 4] = std::array::from_fn(|_| _mm256_set1_epi32(0));
        for (at, vector) in state.iter_mut().enumerate() {
            *vector = gathered(states.map(|state| state[at]));
        }
        let [mut old_a, mut old_b, mut old_c, mut old_d] = state;
        let ones = _mm256_set1_epi32(-1);
        for at in 0..blocks[0].len() {
            let mut halves = [[ones; LANES]; 2];
            for (half, lanes) in halves.iter_mut().enumerate() {
                for (lane, blocks) in lanes.iter_mut().zip(blocks) {
                    *lane = half_of(&blocks[at], half);
                }
                *lanes = transposed(*lanes);
            }
            let words = halves.as_flattened();
            let (mut a, mut b, mut c, mut d) = (old_a, old_b, old_c, old_d);

            macro_rules! step {
                ($a:ident, $b:ident, $i:expr, $word:expr, $turn:literal, $newest:expr) => {
                    let sine = _mm256_set1_epi32(SINES[$i].cast_signed());
                    let ready = _mm256_add_epi32($a, _mm256_add_epi32(words[$word % 16], sine));
                    let sum = _mm256_add_epi32(ready, $newest);
                    let turned =
                        _mm256_or_si256(_mm256_slli_epi32::<$turn>(sum), _mm256_srli_epi32::<{ 32 - $turn }>(sum));
                    $a = _mm256_add_epi32(turned, $b);
                };
            }
            macro_rules! f {
                ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                    let either = _mm256_xor_si256(_mm256_and_si256(_mm256_xor_si256($c, $d), $b), $d);
                    step!($a, $b, $i, $i, $turn, either);
                };
            }
            macro_rules! g {
                ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                    let either = _mm256_or_si256(_mm256_and_si256($b, $d), _mm256_andnot_si256($d, $c));
                    step!($a, $b, $i, 5 * $i + 1, $turn, either);
                };
            }
            macro_rules! h {
                ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                    step!($a, $b, $i, 3 * $i + 5, $turn, _mm256_xor_si256(_mm256_xor_si256($c, $d), $b));
                };
            }
            macro_rules! i {
                ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:literal) => {
                    let either = _mm256_xor_si256($c, _mm256_or_si256($b, _mm256_xor_si256($d, ones)));
                    step!($a, $b, $i, 7 * $i, $turn, either);
                };
            }
            rounds!(f, g, h, i, [a, b, c, d]);

            old_a = _mm256_add_epi32(old_a, a);
            old_b = _mm256_add_epi32(old_b, b);
            old_c = _mm256_add_epi32(old_c, c);
            old_d = _mm256_add_epi32(old_d, d);
        }
        for (at, vector) in [old_a, old_b, old_c, old_d].into_iter().enumerate() {
            for (state, word) in states.iter_mut().zip(scattered(vector)) {
                state[at] = word;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use md5_reference::Digest as _;
    use proptest::prelude::*;

    use super::*;

    fn reference(data: &[u8]) -> [u8; 16] {
        md5_reference::Md5::digest(data).into()
    }

    fn check(inputs: &[Vec<u8>]) {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let expected: Vec<[u8; 16]> = inputs.iter().map(|input| reference(input)).collect();
        assert_eq!(digests(&inputs), expected);
        let without: Vec<_> = inputs.chunks(LANES).flat_map(|some| digests_of_some(some, false)).collect();
        assert_eq!(without, expected, "without lanes");
    }

    #[test]
    fn any_number_of_inputs_of_any_length_near_a_block() {
        for count in 0..20 {
            for length in [0, 1, 55, 56, 63, 64, 65, 127, 128, 1000] {
                check(&(0..count).map(|at| vec![at as u8 ^ 0x5a; length + at % 3]).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn inputs_of_very_different_lengths_do_not_disturb_each_other() {
        let lengths = [10_240, 0, 3, 65_536, 64, 10_240, 10_241, 129, 7000, 10_240];
        check(&lengths.iter().map(|length| (0..*length).map(|at| (at * 7 % 251) as u8).collect()).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn they_agree_with_another_implementation(
            inputs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 0..12)
        ) {
            check(&inputs);
        }
    }
}
