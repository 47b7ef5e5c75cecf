//! Which partitions of a device may lack acknowledged writes that the device has missed.
//!
//! A device that has just been started, was suspended for a moment, or was told by a proxy that it missed a write, is
//! in doubt until its replicator has proved it equal to the other replicas. Meanwhile reads that ask for proved data
//! are refused with [`Status::Unproved`](crate::Status::Unproved), and other replicas are asked first.
//!
//! Every doubt and every start of a proof has a number from one counter, the *epoch*. A proof applies only to doubts
//! with a number up to the one that was read before the comparison began. The counter begins with a random number, and
//! a number that it has not given proves nothing: the one that was read may be of a process that has ended since.
//!
//! Fault model: the replicator may be slow, absent, or prove something that is doubted again meanwhile, by this process
//! or by the one that takes its place: then the doubt stays. The process may be stopped and continued at any point: the
//! next read or the watching thread, whichever runs first, notices.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A process that was suspended for longer may have missed a write that others have acknowledged.
const PAUSE: Duration = Duration::from_millis(450);
const LOOK: Duration = Duration::from_millis(50);
/// The largest number of partitions in doubt one by one; with more the whole device is in doubt.
const MAX_PARTITIONS: usize = 1 << 16;

/// Policy and partition.
pub(crate) type Place = (u16, u32);

struct State {
    /// The number with which the counter began.
    first: u64,
    epoch: u64,
    /// The number of the doubt about the whole device, and when it began.
    whole: Option<u64>,
    began: Option<Instant>,
    /// Partitions proved since the doubt about the whole device began.
    proved: HashSet<Place>,
    /// Further partitions in doubt, with the numbers of their doubts.
    single: HashMap<Place, u64>,
}

impl State {
    fn counting_from(first: u64) -> Self {
        Self { first, epoch: first, whole: None, began: None, proved: HashSet::new(), single: HashMap::new() }
    }

    fn doubt_whole(&mut self, now: Instant) {
        self.epoch += 1;
        self.whole = Some(self.epoch);
        self.began = Some(now);
        self.proved.clear();
        self.single.clear();
    }

    /// Whether the counter has given this number.
    fn has_given(&self, epoch: u64) -> bool {
        (self.first..=self.epoch).contains(&epoch)
    }
}

/// What is in doubt on one device; at first nothing is.
pub struct Doubts {
    state: Mutex<State>,
    any: AtomicBool,
    begun: Instant,
    /// Milliseconds after `begun` at which the process was last seen to run; 0 when nobody watches.
    seen: AtomicU64,
}

impl Default for Doubts {
    fn default() -> Self {
        // Half of all numbers are left to count.
        Self::counting_from(RandomState::new().hash_one(()) >> 1)
    }
}

impl Doubts {
    fn counting_from(first: u64) -> Self {
        let state = Mutex::new(State::counting_from(first));
        Self { state, any: AtomicBool::new(false), begun: Instant::now(), seen: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, state: &State) {
        self.any.store(state.whole.is_some() || !state.single.is_empty(), SeqCst);
    }

    /// Put the whole device in doubt.
    pub fn doubt_all(&self) {
        let mut state = self.state();
        state.doubt_whole(Instant::now());
        self.note(&state);
    }

    /// Put these partitions in doubt.
    pub fn doubt(&self, places: &[Place]) {
        let mut state = self.state();
        state.epoch += 1;
        let epoch = state.epoch;
        state.single.extend(places.iter().map(|place| (*place, epoch)));
        if state.single.len() > MAX_PARTITIONS {
            state.doubt_whole(Instant::now());
        } else {
            state.began = Some(Instant::now());
        }
        self.note(&state);
    }

    /// The epoch to be read before a comparison begins, and the age of the youngest doubt; None when there is no
    /// doubt.
    #[must_use]
    pub fn pending(&self) -> Option<(u64, Duration)> {
        let state = self.state();
        let began = state.began.filter(|_| state.whole.is_some() || !state.single.is_empty())?;
        Some((state.epoch, began.elapsed()))
    }

    /// Record that these partitions were compared since `epoch` was read, and lack nothing.
    pub fn prove(&self, epoch: u64, places: &[Place]) {
        let mut state = self.state();
        if !state.has_given(epoch) {
            return;
        }
        let covers = state.whole.is_some_and(|whole| whole <= epoch);
        for place in places {
            if state.single.get(place).is_some_and(|doubt| *doubt <= epoch) {
                state.single.remove(place);
            }
            if covers {
                state.proved.insert(*place);
            }
        }
        self.note(&state);
    }

    /// Record that everything that belongs on the device was proved since `epoch` was read.
    pub fn prove_all(&self, epoch: u64) {
        let mut state = self.state();
        if !state.has_given(epoch) {
            return;
        }
        state.single.retain(|_, doubt| *doubt > epoch);
        if state.whole.is_some_and(|whole| whole <= epoch) {
            state.whole = None;
            state.proved.clear();
        }
        self.note(&state);
    }

    /// Whether a partition may lack a write.
    #[must_use]
    pub fn has(&self, policy: u16, partition: u32) -> bool {
        self.look();
        if !self.any.load(SeqCst) {
            return false;
        }
        let (state, place) = (self.state(), (policy, partition));
        state.single.contains_key(&place) || (state.whole.is_some() && !state.proved.contains(&place))
    }

    /// Whether the whole device is in doubt, how many partitions were proved since, and how many others are in doubt.
    #[must_use]
    pub fn counts(&self) -> (bool, usize, usize) {
        let state = self.state();
        (state.whole.is_some(), state.proved.len(), state.single.len())
    }

    /// Notice from now on when the process is suspended.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn watch(self: &Arc<Self>) -> std::io::Result<()> {
        self.seen.store(self.now().max(1), SeqCst);
        let watched: Weak<Self> = Arc::downgrade(self);
        std::thread::Builder::new().name("doubts".to_owned()).spawn(move || {
            while let Some(doubts) = watched.upgrade() {
                let now = doubts.look();
                doubts.seen.store(now, SeqCst);
                drop(doubts);
                std::thread::sleep(LOOK);
            }
        })?;
        Ok(())
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Check whether the process was suspended, and record the time. The doubt begins before anybody can see that the
    /// pause was already noticed; a pause in the middle of this function is found by the next call.
    fn look(&self) -> u64 {
        let now = self.now();
        let seen = self.seen.load(SeqCst);
        if seen != 0 && now.saturating_sub(seen) > PAUSE.as_millis() as u64 {
            self.doubt_all();
            self.seen.store(now, SeqCst);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_in_doubt_until_somebody_says_so() {
        let doubts = Doubts::default();
        assert!(!doubts.has(0, 1));
        assert!(doubts.pending().is_none());
    }

    #[test]
    fn a_device_is_proved_partition_by_partition_and_then_as_a_whole() {
        let doubts = Doubts::default();
        doubts.doubt_all();
        let (epoch, _) = doubts.pending().expect("a doubt");
        doubts.prove(epoch, &[(0, 1), (0, 2)]);
        assert!(!doubts.has(0, 1));
        assert!(doubts.has(0, 3));
        assert!(doubts.has(1, 1));
        doubts.prove_all(epoch);
        assert!(!doubts.has(0, 3));
        assert!(doubts.pending().is_none());
    }

    #[test]
    fn a_proof_that_began_before_a_doubt_does_not_end_it() {
        let doubts = Doubts::default();
        doubts.doubt_all();
        let (epoch, _) = doubts.pending().expect("a doubt");
        doubts.doubt(&[(0, 1)]);
        doubts.prove(epoch, &[(0, 1), (0, 2)]);
        doubts.prove_all(epoch);
        assert!(doubts.has(0, 1));
        assert!(!doubts.has(0, 2));
        let (later, _) = doubts.pending().expect("a doubt");
        doubts.doubt_all();
        doubts.prove(later, &[(0, 1)]);
        doubts.prove_all(later);
        assert!(doubts.has(0, 1) && doubts.has(0, 2));
    }

    #[test]
    fn a_proof_that_began_in_a_process_before_this_one_does_not_end_a_doubt() {
        for (before, after) in [(1000, 2000), (2000, 1000)] {
            let former = Doubts::counting_from(before);
            (0..3).for_each(|_| former.doubt_all());
            let (epoch, _) = former.pending().expect("a doubt");
            let doubts = Doubts::counting_from(after);
            doubts.doubt_all();
            doubts.doubt(&[(0, 2)]);
            doubts.prove(epoch, &[(0, 1), (0, 2)]);
            doubts.prove_all(epoch);
            assert!(doubts.has(0, 1) && doubts.has(0, 2) && doubts.has(0, 3), "{before} {after}");
        }
        let numbers: HashSet<u64> = (0..100).map(|_| Doubts::default().state().first).collect();
        assert!(numbers.len() == 100 && numbers.iter().all(|first| first >> 63 == 0), "they count from random numbers");
    }

    #[test]
    fn too_many_partitions_are_the_whole_device() {
        let doubts = Doubts::default();
        let places: Vec<Place> = (0..=MAX_PARTITIONS as u32).map(|partition| (0, partition)).collect();
        doubts.doubt(&places);
        assert_eq!(doubts.counts(), (true, 0, 0));
    }

    #[test]
    fn who_stood_still_is_in_doubt_before_the_next_read() {
        let doubts = Doubts { begun: Instant::now().checked_sub(2 * PAUSE).expect("a past"), ..Doubts::default() };
        doubts.seen.store(1, SeqCst);
        assert!(doubts.has(0, 1));
    }
}
