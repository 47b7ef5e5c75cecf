//! One object of a policy, simulated: proxies, devices, readers and replicators, and everything that may happen to them.
//!
//! A seed chooses the scheme and all that happens: which message arrives next, is lost, or arrives twice; who stops
//! and begins again, is away, or is replaced by an empty device; when clocks give the timestamps of the past; when the
//! ring changes, and who knows of it. Fragments have true bytes, made and restored by the codec. Then all faults end,
//! and replicators go on until nothing changes. [`checker`] says what must hold.
//!
//! Each rule that is worth breaking is one of [`Rules`]; [`mutants`] breaks them one by one.

pub(crate) mod chance;
mod checker;
mod device;
mod mutants;
mod operations;
mod rules;
mod stripes;
mod world;

use rules::Rules;
use world::World;

/// Seeds that every run of the tests tries. `FRAGMENT_SEEDS` names another number, `FRAGMENT_SEED` the first one.
const SEEDS: u64 = 1500;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn what_was_acknowledged_is_read_and_what_was_abandoned_is_gone() {
    let first = number("FRAGMENT_SEED", 1);
    let mut total = checker::Seen::default();
    for seed in first..first + number("FRAGMENT_SEEDS", SEEDS) {
        match World::run(seed, Rules::default()) {
            Ok(seen) => total.add(&seen),
            Err(broken) => panic!("seed {seed}: {broken}\nFRAGMENT_SEED={seed} FRAGMENT_TRACE=1 tells its history"),
        }
    }
    println!("{total:#?}");
    total.assert_all_kinds();
}
