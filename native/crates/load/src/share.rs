//! Which ones of many make up a share of them: spread evenly, the first one always, and the same in each run.

/// Shares are told apart to a millionth.
const WHOLE: u32 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Share {
    part: u32,
    at: u32,
}

impl Share {
    /// A share from 0 to 1; one above 0 is never rounded to none.
    pub(crate) fn new(share: f64) -> Self {
        let part = (share * f64::from(WHOLE)).round() as u32;
        Self { part: part.clamp(u32::from(share > 0.0), WHOLE), at: 0 }
    }

    /// Whether the next one is among them.
    pub(crate) fn takes_next(&mut self) -> bool {
        let is_taken = self.at < self.part;
        self.at = (self.at + self.part) % WHOLE;
        is_taken
    }
}
