//! Numbers for jitter and loss, the same for the same seed (SplitMix64, Steele et al. 2014).

/// A generator of numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Begin with a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number that is at least 0 and less than 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
