//! Crashes by the thousand, at every named point and in the middle of any operation.
//!
//! Fault model: see `disk::SimulatedDisk`: what was not synced is lost, torn or written in another order. After each
//! crash every acknowledged write is there byte for byte, none is half visible, and the index is what the volumes say.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Worker, config};
use swiftlet_store::Store;
use swiftlet_store::disk::{Faults, SimulatedDisk};

/// Crash, recover and go on, a few times; how often each point was reached.
fn run(seed: u64, rounds: &[Faults]) -> BTreeMap<&'static str, u64> {
    let mut reached = BTreeMap::new();
    let mut worker = Worker::new(seed);
    let mut disk = SimulatedDisk::new(seed, Faults::default());
    for (round, faults) in rounds.iter().enumerate() {
        let what = format!("seed {seed}, round {round}, {faults:?}");
        disk.set_faults(faults.clone());
        if let Ok(store) = Store::open_disk(Arc::clone(&disk) as _, config()) {
            worker.model.check_if_alive(&store, &disk, &what);
            worker.work(&store, &disk, 60);
        }
        for (point, count) in disk.reached() {
            *reached.entry(point).or_default() += count;
        }
        disk = disk.after_crash(Faults::default());
        let store =
            Store::open_disk(Arc::clone(&disk) as _, config()).unwrap_or_else(|error| panic!("{what}: {error}"));
        worker.model.check(&store, &what);
        assert!(store.recovery().damaged == 0, "{what}");
        // What was recovered is there to stay.
        drop(store);
        disk = disk.after_crash(Faults::default());
        let store =
            Store::open_disk(Arc::clone(&disk) as _, config()).unwrap_or_else(|error| panic!("{what}: {error}"));
        worker.model.check(&store, &format!("{what}, again"));
    }
    reached
}

fn chance(seed: u64, limit: u64) -> u64 {
    crate::common::random(seed).below(limit)
}

#[test]
fn crashes_in_the_middle_of_any_operation() {
    for seed in 0..900 {
        let faults = |round| Faults { crash_after: Some(1 + chance(seed * 3 + round, 260)), ..Faults::default() };
        run(seed, &[faults(0), faults(1)]);
    }
}

#[test]
fn crashes_at_every_named_point() {
    let points = run(1, &[Faults::default(), Faults::default(), Faults::default()]);
    let mut points: Vec<&'static str> = points.into_keys().collect();
    points.extend((2..12).flat_map(|seed| run(seed, &[Faults::default()]).into_keys()));
    points.sort_unstable();
    points.dedup();
    assert!(points.len() >= 20, "{points:?}");
    for (number, point) in points.iter().enumerate() {
        for nth in 1..=4 {
            let seed = 10_000 + number as u64 * 10 + nth;
            let faults = Faults { crash_at: Some((point, nth)), ..Faults::default() };
            run(seed, &[Faults::default(), faults.clone(), faults]);
        }
    }
}

#[test]
fn an_io_error_ends_everything_until_the_store_is_opened_again() {
    for seed in 0..300 {
        let faults = Faults { fail_after: Some(1 + chance(seed, 500)), ..Faults::default() };
        run(20_000 + seed, &[faults]);
    }
}
