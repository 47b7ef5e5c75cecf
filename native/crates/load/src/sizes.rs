//! Sizes of objects: each follows from a seed and the object's number, so that nobody has to remember it.

use crate::random::Random;

/// The largest size, 5 TiB: more than any store takes in one object.
pub const MAX_SIZE: u64 = 5 << 40;
/// Sets a size's random numbers apart from others of the same object.
const SALT: u64 = 0x0073_697a_6573;

/// One distribution, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Always the same.
    Fixed(u64),
    /// All from the first to the second alike.
    Uniform(u64, u64),
    /// Its logarithm is normally distributed; what is outside of the bounds is set to them.
    Lognormal {
        /// Half of the sizes are below it.
        median: u64,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
}

impl Size {
    fn draw(&self, random: &mut Random) -> u64 {
        match *self {
            Self::Fixed(size) => size,
            Self::Uniform(from, to) => from + random.below(to - from + 1),
            Self::Lognormal { median, sigma, least, most } => {
                let drawn = (median as f64) * (sigma * random.normal()).exp();
                (drawn as u64).clamp(least, most)
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let (least, most) = match *self {
            Self::Fixed(size) => (size, size),
            Self::Uniform(from, to) => (from, to),
            Self::Lognormal { median, sigma, least, most } => {
                if !(sigma >= 0.0 && sigma.is_finite()) || median == 0 {
                    return Err("a lognormal size needs a median above 0 and a sigma of at least 0".to_owned());
                }
                (least, most)
            }
        };
        if least > most || most > MAX_SIZE {
            return Err(format!(
                "sizes from {least} to {most}: the first must not be larger, nor the last above 5 TiB"
            ));
        }
        Ok(())
    }
}

/// Several distributions, each with its weight.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// By the share of all that is up to here.
    pieces: Vec<(f64, Size)>,
}

impl Sizes {
    /// Distributions with their weights; a message when they can't be used.
    pub fn new(weighted: &[(f64, Size)]) -> Result<Self, String> {
        let sum: f64 = weighted.iter().map(|(weight, _)| weight).sum();
        if !(sum > 0.0 && sum.is_finite()) || weighted.iter().any(|(weight, _)| *weight < 0.0) {
            return Err("weights of sizes must not be negative, and not all of them 0".to_owned());
        }
        let mut pieces = Vec::with_capacity(weighted.len());
        let mut upto = 0.0;
        for (weight, size) in weighted.iter().filter(|(weight, _)| *weight > 0.0) {
            size.check()?;
            upto += weight / sum;
            pieces.push((upto, *size));
        }
        Ok(Self { pieces })
    }

    /// The size of an object.
    pub fn of(&self, seed: u64, number: u32) -> u64 {
        let mut random = Random::new(seed ^ SALT, u64::from(number));
        let last = self.pieces.len() - 1;
        let chosen = if last == 0 {
            0
        } else {
            let place = random.unit();
            self.pieces.iter().position(|(upto, _)| place <= *upto).unwrap_or(last)
        };
        self.pieces[chosen].1.draw(&mut random)
    }
}
