//! One step at all places' devices, which count once a quorum has done it: a deletion, or metadata that are posted.
//!
//! All devices are asked at the same time; one that can't do it is replaced by the next spare. All are waited for, as long
//! as `turn` says.
//!
//! Fault model: that of the module above. Who begins it may go away at any moment: what devices have done stays, and
//! spreads. Repeated, it changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_store::model::Key;
use swiftlet_transport::Sink;

use super::answering::Whole;
use super::operation::{self, Operation};
use super::places::{Owed, Places, row_of};
use crate::client::Failure;
use crate::message::Request;

/// How a step waits.
#[derive(Clone, Debug)]
pub struct StepOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// How long the others are waited for once it counts.
    pub after_quorum: Duration,
    /// As with writes, [`WriteOptions::rows`](super::WriteOptions::rows).
    pub rows: Vec<u32>,
    /// The id of the requests.
    pub trace: String,
}

/// Since when an operation has counted, and how long its other devices are waited for.
pub(super) struct Counted {
    since: Option<Instant>,
    after_quorum: Duration,
}

impl Counted {
    /// It does not count yet.
    pub(super) fn new(after_quorum: Duration) -> Self {
        Self { since: None, after_quorum }
    }

    /// Note whether it counts; true the first time that it does.
    pub(super) fn note(&mut self, is_durable: bool) -> bool {
        let is_first = self.since.is_none() && is_durable;
        if is_first {
            self.since = Some(Instant::now());
        }
        is_first
    }

    pub(super) fn is_durable(&self) -> bool {
        self.since.is_some()
    }

    /// Whether it counts, and the others had their time.
    pub(super) fn is_over(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= self.after_quorum)
    }

    /// After which time it may be over.
    pub(super) fn left(&self) -> Duration {
        self.after_quorum.saturating_sub(self.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}

/// What a device has answered.
pub enum Told<H> {
    /// This counts, and whether the device has a container update pending.
    Heard(H, bool),
    /// It can't do it.
    Unable,
}

/// What is done at each place, and what its answers mean.
pub trait Step: Send + 'static {
    /// What a device's answer means.
    type Heard;
    /// How the step has ended.
    type Verdict: Copy + Send;

    /// How many places do it, the first ones.
    fn count(&self, places: &Places) -> usize {
        places.at.len()
    }

    /// The key under which a place's device does it.
    fn key(&self, places: &Places, place: usize) -> Key {
        places.key(place)
    }

    /// The request to the device of a place, which keeps the container update for these replicas (bits).
    fn request(&self, places: &Places, place: usize, row: u32) -> Request;

    /// What an answer means.
    fn told(&mut self, answer: Result<Vec<u8>, Failure>) -> Told<Self::Heard>;

    /// A place has answered; None: neither its device nor a spare can do it.
    fn heard(&mut self, place: usize, heard: Option<Self::Heard>);

    /// Whether it counts, whatever the others say.
    fn is_durable(&self) -> bool;

    /// How it has ended if nobody else answers.
    fn verdict(&self) -> Self::Verdict;
}

struct State<S: Step> {
    options: StepOptions,
    step: S,
    spares: VecDeque<u32>,
    counted: Counted,
    /// The places whose updates are pending, and at which devices.
    owed: Vec<(usize, u32)>,
    end: Option<S::Verdict>,
}

/// The place, and the device that was asked.
type About = (usize, u32);
type Asking = operation::Asking<About>;

/// A step on its way. Its sink is told `Sent` when it counts, and `End` when its outcome is known.
pub struct AtAllPlaces<S: Step>(Operation<State<S>>);

impl<S: Step> AtAllPlaces<S> {
    pub(super) fn begin(places: Places, step: S, options: StepOptions, sink: (Arc<dyn Sink>, u64)) -> Self {
        let (timeout, trace) = (options.timeout, options.trace.clone());
        let spares = places.spares.iter().copied().collect();
        let counted = Counted::new(options.after_quorum);
        let state = State { options, step, spares, counted, owed: Vec::new(), end: None };
        Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            for place in 0..state.step.count(&asking.places) {
                state.ask(asking, place, asking.places.at[place]);
            }
        }))
    }

    /// Time has passed: others are waited for no longer, if it counts. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        self.0.act(|state, _| state.counted.left())
    }

    /// The container updates that are pending by now.
    #[must_use]
    pub fn owed(&self) -> Vec<Owed> {
        self.0.look(|state, asking| {
            let owed = |&(place, device): &(usize, u32)| Owed {
                key: state.step.key(&asking.places, place),
                place,
                device,
                row: row_of(place, &state.options.rows),
            };
            state.owed.iter().map(owed).collect()
        })
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<S::Verdict> {
        self.0.look(|state, _| state.end)
    }

    /// Why devices, by their numbers, did not do it.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        self.0.look(|state, _| look(&state.step))
    }
}

impl<S: Step> State<S> {
    fn ask(&self, asking: &mut Asking, place: usize, device: u32) {
        let request = self.step.request(&asking.places, place, row_of(place, &self.options.rows));
        asking.ask((place, device), device, request);
    }
}

impl<S: Step> operation::State for State<S> {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, (place, device): About, answer: Result<Whole, Failure>) {
        match self.step.told(answer.map(|(header, _)| header)) {
            Told::Heard(heard, pending) => {
                self.owed.extend(pending.then_some((place, device)));
                self.step.heard(place, Some(heard));
            }
            Told::Unable => match self.spares.pop_front() {
                Some(spare) => self.ask(asking, place, spare),
                None => self.step.heard(place, None),
            },
        }
    }

    fn go_on(&mut self, asking: &mut Asking) {
        if self.end.is_some() {
            return;
        }
        if self.counted.note(self.step.is_durable()) {
            asking.tell();
        }
        if self.counted.is_over() || asking.open().next().is_none() {
            self.end = Some(self.step.verdict());
            asking.end();
        }
    }

    fn dropped(&mut self, _asking: &mut Asking) {}
}
