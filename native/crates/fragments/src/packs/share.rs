//! Which packs are to be written anew, since little of them is referred to.
//!
//! Fault model: the numbers are what places have said; a place that was replaced has fewer references than others, and
//! one that has missed deletions more. What is decided here costs work, and decides nothing about what counts.

use super::Pack;
use super::table::MAX_MEMBERS;

/// Packs of which the members are gathered at once: each is read while the new one is written.
pub const MOST_AT_ONCE: usize = 8;

/// How much of a pack is referred to, by the place that refers to most of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The pack.
    pub pack: Pack,
    /// Whether it is retired.
    pub retired: bool,
    /// References.
    pub references: u64,
    /// Bytes of their members.
    pub live: u64,
    /// Bytes of the pack; 0 if that is not known.
    pub size: u64,
}

impl Use {
    /// Whether less than this share of the pack is referred to, but something.
    #[must_use]
    pub fn is_below(&self, share: f64) -> bool {
        self.references > 0 && (self.live as f64) < share * self.size as f64
    }

    /// Whether its members have to go into a new pack. Those of a retired one have to in any case: it takes no reference
    /// any more, so places that lack one can't become equal to those that have it.
    fn has_to_move(&self, share: f64) -> bool {
        self.references > 0 && (self.retired || self.is_below(share))
    }
}

/// The packs that are to be written anew now as one pack of so many bytes at most, by digest: retired ones first, then
/// those of which least is referred to. The first one always fits, as the pack that is written is smaller than it.
#[must_use]
pub fn to_rewrite(all: &[Use], share: f64, most_bytes: u64) -> Vec<Use> {
    let mut chosen: Vec<Use> = all.iter().copied().filter(|one| one.has_to_move(share)).collect();
    let order = |one: &Use, other: &Use| {
        // live / size, without a division by what may be 0.
        let (one_share, other_share) =
            (u128::from(one.live) * u128::from(other.size), u128::from(other.live) * u128::from(one.size));
        (other.retired, one_share, one.pack).cmp(&(one.retired, other_share, other.pack))
    };
    chosen.sort_by(order);
    let (mut live, mut references) = (0, 0);
    let mut taken = 0;
    chosen.retain(|one| {
        let fits = live + one.live <= most_bytes && references + one.references <= MAX_MEMBERS as u64;
        let takes = taken == 0 || (taken < MOST_AT_ONCE && fits);
        if takes {
            (live, references, taken) = (live + one.live, references + one.references, taken + 1);
        }
        takes
    });
    chosen
}
