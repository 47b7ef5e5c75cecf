//! MD5 (RFC 1321), written for a short dependency chain.
//!
//! Each of a block's 64 steps needs the result of the one before, so MD5 is as fast as that chain is short, and
//! nothing else in the step matters. The other summands of a step can be added up while the previous step is still
//! under way. Left alone, the compiler regroups these sums and puts some of them back onto the chain;
//! [`beside_the_chain`] prevents that. This is worth a quarter of the speed over the usual crates, and MD5 is most of
//! the processor time of storing an object.

/// The four rounds of a block, each of sixteen steps that take the state's words in turn: by a round's macro, the step's
/// number and how far to rotate.
macro_rules! rounds {
    ($f:ident, $g:ident, $h:ident, $i:ident, $state:tt) => {
        rounds!(@round $f, 0, $state, 7, 12, 17, 22);
        rounds!(@round $g, 16, $state, 5, 9, 14, 20);
        rounds!(@round $h, 32, $state, 4, 11, 16, 23);
        rounds!(@round $i, 48, $state, 6, 10, 15, 21);
    };
    (@round $op:ident, $first:literal, $state:tt, $s0:literal, $s1:literal, $s2:literal, $s3:literal) => {
        rounds!(@four $op, $first, $state, $s0, $s1, $s2, $s3);
        rounds!(@four $op, ($first + 4), $state, $s0, $s1, $s2, $s3);
        rounds!(@four $op, ($first + 8), $state, $s0, $s1, $s2, $s3);
        rounds!(@four $op, ($first + 12), $state, $s0, $s1, $s2, $s3);
    };
    (
        @four $op:ident, $at:expr, [$a:ident, $b:ident, $c:ident, $d:ident],
        $s0:literal, $s1:literal, $s2:literal, $s3:literal
    ) => {
        $op!($a, $b, $c, $d, ($at), $s0);
        $op!($d, $a, $b, $c, ($at + 1), $s1);
        $op!($c, $d, $a, $b, ($at + 2), $s2);
        $op!($b, $c, $d, $a, ($at + 3), $s3);
    };
}

pub(crate) mod many;
#[cfg(target_arch = "x86_64")]
mod one;

/// Bytes that are digested at a time.
const BLOCK_BYTES: usize = 64;

/// Where the length of the data is in its last block.
const LENGTH_AT: usize = BLOCK_BYTES - size_of::<u64>();

/// The integer parts of 2^32 * abs(sin(i + 1)), i in radians.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// A value that is complete before the previous step's result is needed.
#[inline(always)]
fn beside_the_chain(value: u32) -> u32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut value = value;
        // SAFETY: there are no instructions in it. It only makes the compiler hold the value in a
        // register at this point, since it must assume that it changes here.
        #[allow(unsafe_code, reason = "no safe way to tell the compiler not to regroup a sum")]
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!("/* {0:e} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!("/* {0:w} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
        }
        value
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    value
}

/// Digest whole blocks into the state.
fn compress(state: &mut [u32; 4], blocks: &[[u8; BLOCK_BYTES]]) {
    #[cfg(target_arch = "x86_64")]
    if one::is_here() {
        // SAFETY: the processor has what it needs.
        #[allow(unsafe_code, reason = "what needs a feature of the processor is called when it is there")]
        unsafe {
            one::compress(state, blocks);
        }
        return;
    }
    compress_in_general_registers(state, blocks);
}

/// The same on every processor.
fn compress_in_general_registers(state: &mut [u32; 4], blocks: &[[u8; BLOCK_BYTES]]) {
    for block in blocks {
        let words: [u32; 16] = std::array::from_fn(|at| {
            u32::from_le_bytes([block[4 * at], block[4 * at + 1], block[4 * at + 2], block[4 * at + 3]])
        });
        let [mut a, mut b, mut c, mut d] = *state;

        // One step: `$ready` is what it takes from older words and `$newest` what needs the newest, `$b`.
        macro_rules! step {
            ($a:ident, $b:ident, $i:expr, $word:expr, $turn:expr, $ready:expr, $newest:expr) => {
                let sum = $a.wrapping_add(SINES[$i]).wrapping_add(words[$word % 16]).wrapping_add($ready);
                $a = beside_the_chain(sum).wrapping_add($newest).rotate_left($turn).wrapping_add($b);
            };
        }
        macro_rules! f {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:expr) => {
                step!($a, $b, $i, $i, $turn, 0, (($c ^ $d) & $b) ^ $d)
            };
        }
        // The two halves of g have no bit in common, so a sum may stand for their union.
        macro_rules! g {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:expr) => {
                step!($a, $b, $i, 5 * $i + 1, $turn, $c & !$d, $b & $d)
            };
        }
        macro_rules! h {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:expr) => {
                step!($a, $b, $i, 3 * $i + 5, $turn, 0, beside_the_chain($c ^ $d) ^ $b)
            };
        }
        macro_rules! i {
            ($a:ident, $b:ident, $c:ident, $d:ident, $i:expr, $turn:expr) => {
                step!($a, $b, $i, 7 * $i, $turn, 0, $c ^ ($b | !$d))
            };
        }
        rounds!(f, g, h, i, [a, b, c, d]);

        for (old, new) in state.iter_mut().zip([a, b, c, d]) {
            *old = old.wrapping_add(new);
        }
    }
}

/// MD5 of a stream.
#[derive(Clone)]
pub(crate) struct Md5 {
    state: [u32; 4],
    size: u64,
    /// The first `pending()` bytes are those of the stream that do not fill a block yet.
    partial: [u8; BLOCK_BYTES],
}

impl Md5 {
    pub(crate) fn new() -> Self {
        Self { state: [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476], size: 0, partial: [0; BLOCK_BYTES] }
    }

    /// How many bytes do not fill a block yet.
    fn pending(&self) -> usize {
        (self.size % BLOCK_BYTES as u64) as usize
    }

    pub(crate) fn update(&mut self, mut data: &[u8]) {
        let pending = self.pending();
        self.size = self.size.wrapping_add(data.len() as u64);
        if pending > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK_BYTES - pending));
            self.partial[pending..pending + head.len()].copy_from_slice(head);
            if pending + head.len() < BLOCK_BYTES {
                return;
            }
            compress(&mut self.state, &[self.partial]);
            data = rest;
        }
        let (blocks, rest) = data.as_chunks();
        compress(&mut self.state, blocks);
        self.partial[..rest.len()].copy_from_slice(rest);
    }

    /// The digest of the bytes so far; the stream may continue.
    pub(crate) fn digest(&self) -> [u8; 16] {
        let mut state = self.state;
        let pending = self.pending();
        let mut last = self.partial;
        last[pending] = 0x80;
        last[pending + 1..].fill(0);
        if pending >= LENGTH_AT {
            compress(&mut state, &[last]);
            last = [0; BLOCK_BYTES];
        }
        last[LENGTH_AT..].copy_from_slice(&self.size.wrapping_mul(8).to_le_bytes());
        compress(&mut state, &[last]);

        let mut digest = [0; 16];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }
}

#[cfg(test)]
mod tests;
