//! The inner loop: bytes at one position of several cells, multiplied and added up, by the fastest instructions that
//! this machine has.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

use std::sync::OnceLock;

use crate::scheme::MAX_DATA;

/// How many cells are made at once: their sums have to stay in registers.
pub(crate) const GROUP: usize = 4;

/// The coefficients of one source, one for each output of a group.
pub(crate) type Coefficients = [u8; GROUP];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Gfni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Scalar,
}

/// Instructions that this machine has: there is no other way to get a kernel than from [`Kernel::best`] or
/// [`Kernel::available`], which ask the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Kind);

impl Kernel {
    /// All kernels that this machine can run, the fastest one first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            if is_x86_feature_detected!("gfni") {
                kernels.push(Self(Kind::Gfni));
            }
            kernels.push(Self(Kind::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            kernels.push(Self(Kind::Neon));
        }
        kernels.push(Self(Kind::Scalar));
        kernels
    }

    /// The fastest kernel, found once per process.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// The instructions by name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni => "GFNI",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => "NEON",
            Kind::Scalar => "scalar",
        }
    }

    /// Set each of at most [`GROUP`] outputs to the sum of all sources, each multiplied by its coefficient for that
    /// output. All slices are of the same length; there are at most [`MAX_DATA`] sources, and one at least.
    pub(crate) fn add_products(self, coefficients: &[Coefficients], sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        match outputs {
            [a] => self.run(coefficients, sources, [a]),
            [a, b] => self.run(coefficients, sources, [a, b]),
            [a, b, c] => self.run(coefficients, sources, [a, b, c]),
            [a, b, c, d] => self.run(coefficients, sources, [a, b, c, d]),
            _ => assert!(outputs.is_empty(), "more outputs than a group has"),
        }
    }

    fn run<const R: usize>(self, coefficients: &[Coefficients], sources: &[&[u8]], outputs: [&mut [u8]; R]) {
        let length = outputs[0].len();
        // The kernels rely on it.
        assert!(sources.len() == coefficients.len() && (1..=MAX_DATA).contains(&sources.len()));
        assert!(sources.iter().all(|source| source.len() == length));
        assert!(outputs.iter().all(|output| output.len() == length));
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni => gfni::run(coefficients, sources, outputs),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::run(coefficients, sources, outputs),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => neon::run(coefficients, sources, outputs),
            Kind::Scalar => scalar::run(coefficients, sources, outputs, 0),
        }
    }
}

#[cfg(test)]
mod tests;
