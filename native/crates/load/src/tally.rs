//! What is measured: histograms, counts, failures by kind. Its size does not depend on how much is measured.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::exchange::Failure;
use crate::plan::{Kind, Nanos};

/// Times below a microsecond are told as one.
const SHORTEST: Nanos = 1_000;
/// Times above an hour are told as one.
const LONGEST: Nanos = 3_600_000_000_000;
const DIGITS: u8 = 3;
/// The longest text of an example of a failure.
const MAX_EXAMPLE: usize = 300;

/// Times of operations.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Times {
    /// No times yet.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(SHORTEST, LONGEST, DIGITS) {
            Ok(histogram) => Self(histogram),
            Err(error) => unreachable!("the bounds of times are constants that fit: {error}"),
        }
    }

    pub(crate) fn record(&mut self, nanos: Nanos) {
        self.0.saturating_record(nanos.min(LONGEST));
    }

    /// Add those of another one.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }

    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The longest, in nanoseconds.
    pub fn max(&self) -> Nanos {
        self.0.max()
    }

    /// The time that this share of all did not exceed, in nanoseconds; 0 when there are none.
    pub fn quantile(&self, share: f64) -> Nanos {
        self.0.value_at_quantile(share)
    }

    /// All of them: times in nanoseconds, and how many were about as long.
    pub fn counts(&self) -> Vec<(Nanos, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration())).collect()
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    /// How many.
    pub count: u64,
    /// One of them: the request, and what was wrong.
    pub example: String,
}

/// Operations of one kind.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Those that succeeded, of those that began within the window.
    pub succeeded: u64,
    /// Of these, reads whose bytes were compared with what was written.
    pub compared: u64,
    /// Bytes of bodies of these.
    pub bytes: u64,
    /// Those that ended successfully within the window.
    pub ended: u64,
    /// From the intended start to the last byte: of successes, and of what timed out or did not begin.
    pub latency: Times,
    /// From the intended start to the first byte of the answer, of successes.
    pub first_byte: Times,
    /// By kind.
    pub failures: BTreeMap<Failure, Failures>,
}

impl Operations {
    pub(crate) fn fail(&mut self, failure: Failure, count: u64, example: impl FnOnce() -> String) {
        let failures = self.failures.entry(failure).or_insert_with(|| {
            let mut example = example();
            if let Some((place, _)) = example.char_indices().nth(MAX_EXAMPLE) {
                example.truncate(place);
            }
            Failures { count: 0, example }
        });
        failures.count += count;
    }

    fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.compared += other.compared;
        self.bytes += other.bytes;
        self.ended += other.ended;
        self.latency.add(&other.latency);
        self.first_byte.add(&other.first_byte);
        for (failure, found) in &other.failures {
            self.fail(*failure, found.count, || found.example.clone());
        }
    }
}

/// What one connection did, for rates as COSBench has them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worker {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) busy: Nanos,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By kind, of those that there were.
    pub operations: BTreeMap<Kind, Operations>,
    /// Bytes of bodies that moved within the window, in either direction.
    pub moved: u64,
    /// Sum over connections of operations by seconds in which the connection was busy.
    pub workers_operations_per_second: f64,
    /// The same of bytes.
    pub workers_bytes_per_second: f64,
    /// From intended starts that found a free connection to their begin: what the generator itself is late.
    pub lateness: Times,
    /// Requests that were sent again over a new connection.
    pub resent: u64,
    /// The time over which rates are, in nanoseconds.
    pub window: Nanos,
    /// Why it ended before its time.
    pub ended_early: Option<&'static str>,
}

impl Tally {
    pub(crate) fn of(&mut self, kind: Kind) -> &mut Operations {
        self.operations.entry(kind).or_default()
    }

    pub(crate) fn worker(&mut self, worker: &Worker) {
        if worker.busy > 0 {
            let seconds = worker.busy as f64 / 1e9;
            self.workers_operations_per_second += worker.operations as f64 / seconds;
            self.workers_bytes_per_second += worker.bytes as f64 / seconds;
        }
    }

    /// Add what another thread measured.
    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, operations) in &other.operations {
            self.of(*kind).add(operations);
        }
        self.moved += other.moved;
        self.workers_operations_per_second += other.workers_operations_per_second;
        self.workers_bytes_per_second += other.workers_bytes_per_second;
        self.lateness.add(&other.lateness);
        self.resent += other.resent;
        self.window = self.window.max(other.window);
        self.ended_early = self.ended_early.or(other.ended_early);
    }

    /// Failures of all kinds of operations.
    pub fn failed(&self) -> u64 {
        self.operations.values().flat_map(|one| one.failures.values()).map(|one| one.count).sum()
    }
}

/// What happened since somebody looked last.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Operations that succeeded.
    pub succeeded: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Bytes of bodies.
    pub moved: u64,
    /// Of the successes.
    pub latency: Times,
}

impl Recent {
    /// Return it, and begin anew.
    pub(crate) fn take(&mut self) -> Self {
        let taken = self.clone();
        (self.succeeded, self.failed, self.moved) = (0, 0, 0);
        self.latency.clear();
        taken
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.moved += other.moved;
        self.latency.add(&other.latency);
    }
}
