//! What crashes leave of a device in the middle of a workload, whatever it keeps: objects, fragments, references.

use std::sync::Arc;

use super::{config, random};
use swiftlet_store::Store;
use swiftlet_store::disk::{Disk, Faults, SimulatedDisk};

/// What a store must hold, by what was acknowledged and what was under way.
pub trait Model: Clone {
    /// The store holds what was acknowledged, and of what was under way all or nothing. From here on it is known which.
    fn check(&mut self, store: &Store, what: &str);

    /// The same, if the disk has lived to be asked.
    fn check_if_alive(&mut self, store: &Store, disk: &SimulatedDisk, what: &str) {
        let mut copy = self.clone();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| copy.check(store, what)));
        match outcome {
            Ok(()) => *self = copy,
            Err(_) if disk.crashed() || store.partitions().is_err() => {}
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Carries a workload out, and keeps a model in step.
pub trait Life {
    type Model: Model;

    /// One that follows from the seed.
    fn begin(seed: u64) -> Self;

    fn model(&mut self) -> &mut Self::Model;

    /// So many steps, or until the disk has crashed.
    fn work(&mut self, store: &Store, disk: &SimulatedDisk, steps: u64, what: &str);
}

fn open(disk: &Arc<SimulatedDisk>, what: &str) -> Store {
    Store::open_disk(Arc::clone(disk) as _, config()).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Work so many steps, crash, recover and go on, once for each of these faults; which named points were reached.
pub fn run<L: Life>(seed: u64, steps: u64, rounds: &[Faults]) -> Vec<&'static str> {
    let (mut life, mut reached) = (L::begin(seed), Vec::new());
    let mut disk = SimulatedDisk::new(seed, Faults::default());
    for (round, faults) in rounds.iter().enumerate() {
        let what = format!("seed {seed}, round {round}, {faults:?}");
        disk.set_faults(faults.clone());
        if let Ok(store) = Store::open_disk(Arc::clone(&disk) as _, config()) {
            life.model().check_if_alive(&store, &disk, &what);
            life.work(&store, &disk, steps, &what);
        }
        reached.extend(disk.reached().into_keys());
        disk = disk.after_crash(Faults::default());
        life.model().check(&open(&disk, &what), &what);
        // What was recovered is there to stay.
        disk = disk.after_crash(Faults::default());
        life.model().check(&open(&disk, &what), &format!("{what}, again"));
    }
    reached
}

/// Crashes in the middle of any operation: twice in each of so many lives, within so many changes of the disk.
pub fn crash_anywhere<L: Life>(seeds: u64, steps: u64, changes: u64) {
    for seed in 0..seeds {
        let faults =
            |round| Faults { crash_after: Some(1 + random(seed * 3 + round).below(changes)), ..Faults::default() };
        run::<L>(seed, steps, &[faults(0), faults(1)]);
    }
}

/// Crashes at each of these named points, the first so many times that it is reached.
pub fn crash_at_named_points<L: Life>(mut points: Vec<&'static str>, steps: u64, times: u64) {
    points.sort_unstable();
    points.dedup();
    assert!(points.len() >= 20, "{points:?}");
    for (number, point) in points.iter().enumerate() {
        for nth in 1..=times {
            let faults = Faults { crash_at: Some((point, nth)), ..Faults::default() };
            run::<L>(10_000 + number as u64 * 10 + nth, steps, &[Faults::default(), faults.clone(), faults]);
        }
    }
}

/// I/O errors in the middle of any operation: one in each of so many lives, within so many changes of the disk.
pub fn fail_anywhere<L: Life>(seeds: u64, steps: u64, changes: u64) {
    for seed in 0..seeds {
        let faults = Faults { fail_after: Some(1 + random(seed).below(changes)), ..Faults::default() };
        run::<L>(20_000 + seed, steps, &[faults]);
    }
}

/// Starts without any checkpoint after long lives.
pub fn start_from_the_volumes_alone<L: Life>() {
    for seed in 30_000..30_030 {
        let (mut life, disk) = (L::begin(seed), SimulatedDisk::new(seed, Faults::default()));
        let what = format!("seed {seed}");
        for _ in 0..3 {
            let store = open(&disk, &what);
            life.work(&store, &disk, 60, "no crash");
        }
        for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("index/")) {
            disk.unlink(&path).expect("removed");
        }
        let store = open(&disk, &what);
        assert!(!store.recovery().checkpoint);
        life.model().check(&store, &what);
    }
}
