//! What became of a write whose proxy is gone: the devices that it chose are asked, decide, and are told.
//!
//! Fault model: that of the module above, and another device may try the same at any moment. What is decided is decided
//! by `swiftlet_fragments::recovery`; whoever asks may stop between any two messages, and nothing is settled here, as only
//! a round of sync can prove that a quorum has the version.

use std::sync::Arc;
use std::time::Duration;

use swiftlet_fragments::recovery::{End, Recovery};
use swiftlet_fragments::request::Request as Asked;
use swiftlet_fragments::{Ballot, Device, Version};
use swiftlet_transport::Sink;

use super::answering::Whole;
use super::operation::{self, Operation};
use super::places::Places;
use crate::client::Failure;
use crate::message::fragments::{Request, decode_answer};

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Promises,
    Acceptances,
    /// The outcome is known, and the devices are being told.
    Telling,
    Over,
}

struct State {
    version: Version,
    recovery: Recovery,
    phase: Phase,
}

/// The place that was asked, and in which phase.
type About = (usize, Phase);
type Asking = operation::Asking<About>;

/// An attempt to decide. Its sink is told `End` when it is over. Dropped before, it ends there.
pub struct Recovering(Operation<State>);

impl Recovering {
    /// Ask the chosen devices about a version, with a ballot above all that were heard of. Each request has this time
    /// limit and trace. Whoever asks has to take the outcome itself, where it is none of the chosen devices.
    ///
    /// # Errors
    /// There is not one device for each fragment.
    pub fn start(
        places: Places,
        (version, chosen): (Version, Arc<[Device]>),
        ballot: Ballot,
        limits: (Duration, &str),
        sink: (Arc<dyn Sink>, u64),
    ) -> Result<Self, &'static str> {
        if chosen.len() != places.at.len() {
            return Err("a write has chosen one device for each fragment");
        }
        let recovery = Recovery::new(places.terms(), version, chosen, ballot);
        let state = State { version, recovery, phase: Phase::Promises };
        Ok(Self(Operation::start(places, state, limits, sink, |state, asking| {
            let sent = state.recovery.start();
            sent.into_iter().for_each(|(place, asked)| state.ask(asking, place, asked));
        })))
    }

    /// How it has ended, once all devices were told that can be.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.0.look(|state, _| if state.phase == Phase::Over { state.recovery.end() } else { None })
    }

    /// Why devices, by their numbers, gave no good answer.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.look(|_, asking| asking.refused.clone())
    }
}

impl State {
    /// Ask the device that was chosen for a place.
    fn ask(&self, asking: &mut Asking, place: usize, asked: Asked) {
        let number = self.recovery.chosen()[place].number;
        let request = Request::About { key: asking.places.key(place), asked };
        asking.ask((place, self.phase), number, request);
    }

    /// There are promises enough: ask for the outcome that they leave.
    fn go_over(&mut self, asking: &mut Asking, sent: Vec<(usize, Asked)>) {
        if !sent.is_empty() {
            self.phase = Phase::Acceptances;
            sent.into_iter().for_each(|(place, asked)| self.ask(asking, place, asked));
        }
    }
}

impl operation::State for State {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, (place, phase): About, answer: Result<Whole, Failure>) {
        let Ok(answer) = answer.and_then(|(header, _)| Ok(decode_answer(&header)?)) else { return };
        match phase {
            Phase::Promises => {
                let sent = self.recovery.promised(place, &answer);
                self.go_over(asking, sent);
            }
            Phase::Acceptances => self.recovery.accepted(place, &answer),
            Phase::Telling | Phase::Over => {}
        }
    }

    fn go_on(&mut self, asking: &mut Asking) {
        loop {
            match (self.phase, self.recovery.end()) {
                (Phase::Over, _) => return,
                (Phase::Promises | Phase::Acceptances, Some(end)) => {
                    self.phase = Phase::Telling;
                    // What others answer now has no consequence.
                    asking.forget();
                    if let End::Decided(outcome) = end {
                        let decide = Asked::Decide { version: self.version, outcome };
                        (0..asking.places.at.len()).for_each(|place| self.ask(asking, place, decide.clone()));
                    }
                }
                _ if asking.open().next().is_some() => return,
                (Phase::Telling, _) => {
                    self.phase = Phase::Over;
                    asking.end();
                }
                (Phase::Promises | Phase::Acceptances, None) => {
                    let sent = self.recovery.wait_no_longer();
                    self.go_over(asking, sent);
                }
            }
        }
    }
}
