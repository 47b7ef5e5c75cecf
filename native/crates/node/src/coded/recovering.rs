//! What became of a write whose proxy is gone: the devices that it chose are asked, decide, and are told.
//!
//! Fault model: that of the module above, and another device may try the same at any moment. What is decided is decided
//! by `swiftlet_fragments::recovery`; whoever asks may stop between any two messages, and nothing is settled here, as only
//! a round of sync can prove that a quorum has the version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use swiftlet_fragments::recovery::{End, Recovery};
use swiftlet_fragments::request::{Answer, Request as Asked};
use swiftlet_fragments::{Ballot, Device, Version};
use swiftlet_transport::{Error as TransportError, Event, Sink, What};

use super::calls::{Answering, ask};
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
    recovery: Recovery,
    phase: Phase,
    /// By a number: the place, and the phase in which it was asked.
    asked: HashMap<u64, (usize, Phase, Answering)>,
    next: u64,
}

struct Inner {
    me: Weak<Self>,
    places: Places,
    version: Version,
    timeout: Duration,
    trace: String,
    sink: Arc<dyn Sink>,
    token: u64,
    state: Mutex<State>,
}

/// An attempt to decide. Its sink is told `End` when it is over. Dropped before, it ends there.
pub struct Recovering(Arc<Inner>);

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
        (timeout, trace): (Duration, &str),
        (sink, token): (Arc<dyn Sink>, u64),
    ) -> Result<Self, &'static str> {
        if chosen.len() != places.at.len() {
            return Err("a write has chosen one device for each fragment");
        }
        let recovery = Recovery::new(places.terms(), version, chosen, ballot);
        let state = State { recovery, phase: Phase::Promises, asked: HashMap::new(), next: 0 };
        let (state, trace) = (Mutex::new(state), trace.to_owned());
        let inner = Arc::new_cyclic(|me| Inner { me: me.clone(), places, version, timeout, trace, sink, token, state });
        let mut state = inner.lock();
        let sent = state.recovery.start();
        sent.into_iter().for_each(|(place, asked)| inner.ask(&mut state, place, asked));
        inner.go_on(&mut state);
        drop(state);
        Ok(Self(inner))
    }

    /// How it has ended, once all devices were told that can be.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        let state = self.0.lock();
        if state.phase == Phase::Over { state.recovery.end() } else { None }
    }
}

impl Drop for Recovering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.phase = Phase::Over;
        state.asked.clear();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ask the device that was chosen for a place. One that can't be asked is one that doesn't answer.
    fn ask(&self, state: &mut State, place: usize, asked: Asked) {
        let number = state.recovery.chosen()[place].number;
        let request = Request::About { key: self.places.key(place), asked };
        let token = state.next;
        let called = self.me.upgrade().ok_or(Failure::Lost(TransportError::Cancelled)).and_then(|me| {
            let sink = me as Arc<dyn Sink>;
            ask(&self.places, number, request, (self.timeout, &self.trace), (&sink, token))
        });
        if called.is_ok() {
            state.next += 1;
            state.asked.insert(token, (place, state.phase, Answering::new(0)));
        }
    }

    fn answered(&self, state: &mut State, (place, phase): (usize, Phase), answer: &Answer) {
        match phase {
            Phase::Promises => {
                let sent = state.recovery.promised(place, answer);
                self.go_over(state, sent);
            }
            Phase::Acceptances => state.recovery.accepted(place, answer),
            Phase::Telling | Phase::Over => {}
        }
    }

    /// There are promises enough: ask for the outcome that they leave.
    fn go_over(&self, state: &mut State, sent: Vec<(usize, Asked)>) {
        if !sent.is_empty() {
            state.phase = Phase::Acceptances;
            sent.into_iter().for_each(|(place, asked)| self.ask(state, place, asked));
        }
    }

    fn go_on(&self, state: &mut State) {
        loop {
            match (state.phase, state.recovery.end()) {
                (Phase::Over, _) => return,
                (Phase::Promises | Phase::Acceptances, Some(end)) => {
                    state.phase = Phase::Telling;
                    // What others answer now has no consequence.
                    state.asked.clear();
                    if let End::Decided(outcome) = end {
                        let decide = Asked::Decide { version: self.version, outcome };
                        (0..self.places.at.len()).for_each(|place| self.ask(state, place, decide.clone()));
                    }
                }
                _ if !state.asked.is_empty() => return,
                (Phase::Telling, _) => {
                    state.phase = Phase::Over;
                    self.sink.events(&mut vec![Event { token: self.token, what: What::End(Vec::new()) }]);
                }
                (Phase::Promises | Phase::Acceptances, None) => {
                    let sent = state.recovery.wait_no_longer();
                    self.go_over(state, sent);
                }
            }
        }
    }
}

impl Sink for Inner {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        for event in events.drain(..) {
            let Some((place, phase, answering)) = state.asked.get_mut(&event.token) else { continue };
            let about = (*place, *phase);
            let Some(answer) = answering.take(event.what) else { continue };
            state.asked.remove(&event.token);
            if let Ok((header, _)) = answer
                && let Ok(answer) = decode_answer(&header)
            {
                self.answered(&mut state, about, &answer);
            }
        }
        self.go_on(&mut state);
    }
}
