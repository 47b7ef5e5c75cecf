//! The bytes of objects: stretches of one endless text, each beginning at a place that follows from seed and number.

use crate::random::{Random, mix};

/// After how many bytes the text repeats itself. A prime number: blocks of a disk or a network never begin at the same
/// place of it twice within an object.
const PERIOD: usize = 1_048_573;

/// The text.
#[derive(Debug)]
pub struct Contents {
    text: Vec<u8>,
    seed: u64,
}

impl Contents {
    /// The text of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 0x7465_7874);
        let mut text = Vec::with_capacity(PERIOD + 8);
        while text.len() < PERIOD {
            text.extend_from_slice(&random.next().to_le_bytes());
        }
        text.truncate(PERIOD);
        Self { text, seed }
    }

    /// Where in the text an object begins.
    pub(crate) fn start(&self, number: u32) -> usize {
        (mix(self.seed ^ mix(u64::from(number) + 1)) % PERIOD as u64) as usize
    }

    /// The bytes from a position of an object on, as many as there are in one piece, at most `most`.
    pub(crate) fn piece(&self, start: usize, position: u64, most: u64) -> &[u8] {
        let begin = ((start as u64 + position) % PERIOD as u64) as usize;
        let end = PERIOD.min(begin + usize::try_from(most).unwrap_or(PERIOD).min(PERIOD));
        &self.text[begin..end]
    }

    /// The first byte of `bytes` that is not the object's, which they are part of from `position` on.
    pub(crate) fn difference(&self, start: usize, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut compared = 0;
        while compared < bytes.len() {
            let rest = &bytes[compared..];
            let expected = self.piece(start, position + compared as u64, rest.len() as u64);
            let here = &rest[..expected.len()];
            if here != expected {
                let within = here.iter().zip(expected).position(|(found, right)| found != right).unwrap_or(0);
                return Some(position + (compared + within) as u64);
            }
            compared += expected.len();
        }
        None
    }
}
