//! Packs of one partition, simulated: several packers, writers, sync, and everything that may happen to them.
//!
//! A seed chooses the scheme and all that happens: which message arrives next, is lost, or arrives twice; which packer
//! stops; which device is away, or is replaced by an empty one; when a deletion is forgotten; which metadata are posted;
//! when the ring changes, and who has heard of it; which writes a spare takes. Then all faults end, and
//! packers and sync go on until nothing changes. How a write of a coded object commits is simulated elsewhere: here it is
//! one step at the places that it reaches.

mod bytes;
mod mutants;
mod rules;
mod share;
mod world;

use crate::packs::{self, Answer, Change, Holdings, Request};
use world::World;

/// Seeds that every run of the tests tries. `PACK_SEEDS` names another number, `PACK_SEED` the first one.
const SEEDS: u64 = 400;

/// What can be broken.
#[derive(Clone, Copy)]
struct Rules {
    /// What a place answers.
    answer: fn(&Holdings, &Request, bool) -> (Option<Change>, Answer),
    /// Places that have to prove their fragments, of so many.
    proofs: fn(usize) -> usize,
    /// Whether a proof reads the fragment.
    is_read_back: bool,
    /// Places that have to say that they have no references, of so many.
    unused: fn(usize) -> usize,
    /// Whether places are asked by which ring they go before a pack is deleted.
    asks_for_ring: bool,
    /// Whether sync brings metadata that were posted.
    posts_are_brought: bool,
    /// Whether packers and places compare the bytes of copies.
    compares_bytes: bool,
    /// Whether who is no place keeps what it has until all places have shown it.
    hands_back_to_all: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            answer: packs::answer,
            proofs: |places| places,
            is_read_back: true,
            unused: |places| places,
            asks_for_ring: true,
            posts_are_brought: true,
            compares_bytes: true,
            hands_back_to_all: true,
        }
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn packs_keep_what_counts_and_go_when_nothing_refers_to_them() {
    let first = number("PACK_SEED", 1);
    let mut seen = world::Seen::default();
    for seed in first..first + number("PACK_SEEDS", SEEDS) {
        if let Err(broken) = World::run(seed, Rules::default(), &mut seen) {
            panic!("seed {seed}: {broken}\nPACK_SEED={seed} PACK_SEEDS=1 PACK_TRACE=1 tells its history");
        }
    }
    println!("{seen:#?}");
    seen.assert_all_kinds();
}
