//! A deletion of one object, whatever its form was: a tombstone at each place.
//!
//! All places' devices are asked at the same time; one that can't do it is replaced by the next spare. All are waited
//! for, as long as `turn` says, so that it is known whether there was an object.
//!
//! Fault model: that of the module above. Who deletes may go away at any moment; the tombstones that were sent stay, and
//! spread. A repeated deletion changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_fragments::deletion::{Deleted, Deletion, Heard};
use swiftlet_transport::Sink;

use super::answering::Whole;
use super::operation::{self, Operation};
use super::places::{Owed, Places, row_of};
use crate::client::Failure;
use crate::message::{Request, Written};
use crate::status::Status;

/// How a deletion waits.
#[derive(Clone, Debug)]
pub struct DeleteOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// How long the others are waited for once it counts.
    pub after_quorum: Duration,
    /// As with writes, [`WriteOptions::rows`](super::WriteOptions::rows).
    pub rows: Vec<u32>,
    /// The id of the requests.
    pub trace: String,
}

struct State {
    options: DeleteOptions,
    timestamp: u64,
    name: Vec<u8>,
    spares: VecDeque<u32>,
    deletion: Deletion,
    /// Since when it has counted.
    durable: Option<Instant>,
    /// The places whose updates are pending, and at which devices.
    owed: Vec<(usize, u32)>,
    end: Option<Deleted>,
}

/// The place, and the device that was asked.
type About = (usize, u32);
type Asking = operation::Asking<About>;

/// A deletion. Its sink is told `Sent` when it counts, and `End` when its outcome is known.
pub struct Deleting(Operation<State>);

impl Deleting {
    /// Delete the object with this name, `/account/container/object`, as of this timestamp.
    #[must_use]
    pub fn start(
        places: Places,
        (timestamp, name): (u64, Vec<u8>),
        options: DeleteOptions,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let (timeout, trace) = (options.timeout, options.trace.clone());
        let (spares, deletion) = (places.spares.iter().copied().collect(), Deletion::new(places.terms()));
        let (durable, owed, end) = (None, Vec::new(), None);
        let state = State { options, timestamp, name, spares, deletion, durable, owed, end };
        Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            for place in 0..asking.places.at.len() {
                state.ask(asking, place, asking.places.at[place]);
            }
        }))
    }

    /// Time has passed: others are waited for no longer, if it counts. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        self.0.act(|state, _| {
            let since = state.durable.map_or(Duration::ZERO, |durable| durable.elapsed());
            state.options.after_quorum.saturating_sub(since)
        })
    }

    /// The container updates that are pending with the tombstones that there are by now.
    #[must_use]
    pub fn owed(&self) -> Vec<Owed> {
        self.0.look(|state, asking| {
            let owed = |(place, device): &(usize, u32)| asking.places.owed(*place, *device, &state.options.rows);
            state.owed.iter().map(owed).collect()
        })
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<Deleted> {
        self.0.look(|state, _| state.end)
    }

    /// Why devices, by their numbers, did not do it.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }
}

impl State {
    fn ask(&self, asking: &mut Asking, place: usize, device: u32) {
        let row = row_of(place, &self.options.rows);
        let (key, name) = (asking.places.key(place), self.name.clone());
        asking.ask((place, device), device, Request::Delete { key, timestamp: self.timestamp, name, row });
    }
}

impl operation::State for State {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, (place, device): About, answer: Result<Whole, Failure>) {
        let heard = match answer.and_then(|(header, _)| Ok(Written::decode(&header)?)) {
            Ok(Written { pending, existed }) => {
                self.owed.extend(pending.then_some((place, device)));
                Heard::Done { existed }
            }
            Err(Failure::Refused(refusal)) if refusal.status == Status::Superseded => {
                Heard::Superseded(refusal.timestamp)
            }
            Err(_) => {
                if let Some(spare) = self.spares.pop_front() {
                    return self.ask(asking, place, spare);
                }
                Heard::Refused
            }
        };
        self.deletion.heard(place, heard);
    }

    fn go_on(&mut self, asking: &mut Asking) {
        if self.end.is_some() {
            return;
        }
        if self.durable.is_none() && self.deletion.is_durable() {
            self.durable = Some(Instant::now());
            asking.tell();
        }
        let is_over = self.durable.is_some_and(|durable| durable.elapsed() >= self.options.after_quorum);
        if is_over || asking.open().next().is_none() {
            self.end = Some(self.deletion.verdict());
            asking.end();
        }
    }

    fn dropped(&mut self, _asking: &mut Asking) {}
}
