//! Crashes by the thousand, at every named point and in the middle of any operation.
//!
//! Fault model: see `disk::SimulatedDisk`: what was not synced is lost, torn or written in another order. After each
//! crash every acknowledged write is there byte for byte, none is half visible, and the index is what the volumes say.

use crate::common::Worker;
use crate::common::crashing::{crash_anywhere, crash_at_named_points, fail_anywhere, run};
use swiftlet_store::disk::Faults;

/// Steps from one crash to the next.
const STEPS: u64 = 60;

#[test]
fn crashes_in_the_middle_of_any_operation() {
    crash_anywhere::<Worker>(900, STEPS, 260);
}

#[test]
fn crashes_at_every_named_point() {
    let mut points = run::<Worker>(1, STEPS, &[Faults::default(), Faults::default(), Faults::default()]);
    points.extend((2..12).flat_map(|seed| run::<Worker>(seed, STEPS, &[Faults::default()])));
    crash_at_named_points::<Worker>(points, STEPS, 4);
}

#[test]
fn an_io_error_ends_everything_until_the_store_is_opened_again() {
    fail_anywhere::<Worker>(300, STEPS, 500);
}
