//! A write of a small object: copies at the first places, and older fragments that are dead since.
//!
//! The devices of these places are asked at the same time; one that can't take its copy is replaced by the next spare. Once
//! more than half of the copies are durable, all places are told that older fragments are dead, if a device has told of
//! any. Otherwise other places are told only where too few of the first ones know of the write. It counts when both is so
//! (`swiftlet_fragments::forms`).
//!
//! Fault model: that of the module above. Who begins it may go away at any moment: copies that are there stay, and
//! spread. Repeated, it changes nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use swiftlet_fragments::forms::{Answer, SmallWrite};
use swiftlet_fragments::write::Verdict;
use swiftlet_store::model::{Footer, PutMeta};
use swiftlet_transport::{Body, Chunk, Sink};

use super::all_places::{Counted, StepOptions};
use super::answering::Whole;
use super::operation::{self, Operation};
use super::places::{Owed, Places, row_of};
use crate::client::Failure;
use crate::copies::before;
use crate::message::{Request, Written};
use crate::status::Status;

/// How a write of a small object has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallWritten {
    /// Whether it counts, never happened, or may turn out to have happened.
    pub verdict: Verdict,
    /// The newest version or deletion that a device has instead.
    pub past: Option<u64>,
    /// How many copies there are, or something newer in their place.
    pub copies: usize,
}

#[derive(Debug)]
enum About {
    /// The copy for a place, at a device.
    Copy(usize, u32),
    /// A place is told that older fragments are dead.
    Outdate(usize),
}

type Asking = operation::Asking<About>;

struct State {
    meta: PutMeta,
    footer: Footer,
    data: Chunk,
    options: StepOptions,
    write: SmallWrite,
    spares: VecDeque<u32>,
    /// Whether a device has told of older fragments.
    has_older: bool,
    /// Places that were asked to outdate their fragments.
    outdated: BTreeSet<usize>,
    past: Option<u64>,
    owed: Vec<(usize, u32)>,
    counted: Counted,
    end: Option<SmallWritten>,
}

/// A write of a small object. Its sink is told `Sent` when it counts, and `End` when its outcome is known.
pub struct SmallWriting(Operation<State>);

impl SmallWriting {
    /// Write an object with these bytes.
    #[must_use]
    pub fn start(
        places: Places,
        (meta, footer, data): (PutMeta, Footer, Chunk),
        options: StepOptions,
        sink: (Arc<dyn Sink>, u64),
    ) -> Self {
        let (timeout, trace) = (options.timeout, options.trace.clone());
        let counted = Counted::new(options.after_quorum);
        let state = State {
            meta,
            footer,
            data,
            options,
            write: SmallWrite::new(places.numbers()),
            spares: places.spares.iter().copied().collect(),
            has_older: false,
            outdated: BTreeSet::new(),
            past: None,
            owed: Vec::new(),
            counted,
            end: None,
        };
        Self(Operation::start(places, state, (timeout, &trace), sink, |state, asking| {
            for place in 0..asking.places.numbers().holders {
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
            let key = asking.places.copy_key();
            let owed =
                |&(place, device): &(usize, u32)| Owed { key, place, device, row: row_of(place, &state.options.rows) };
            state.owed.iter().map(owed).collect()
        })
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<SmallWritten> {
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
        let (meta, footer) = (self.meta.clone(), Some(self.footer.clone()));
        let request = Request::Put { key: asking.places.copy_key(), meta, footer, row };
        let body = if self.data.is_empty() { Body::Empty } else { Body::Chunk(self.data.clone()) };
        asking.ask_with(About::Copy(place, device), device, request, body);
    }

    fn outdate(&mut self, asking: &mut Asking, place: usize) {
        if self.outdated.insert(place) {
            let (key, timestamp) = (asking.places.key(place), before(self.meta.timestamp, false));
            let name = self.meta.name.clone();
            let device = asking.places.at[place];
            asking.ask(About::Outdate(place), device, Request::Delete { key, timestamp, name, row: 0 });
        }
    }

    fn copied(&mut self, asking: &mut Asking, place: usize, device: u32, answer: Result<Whole, Failure>) {
        let answer = match answer.and_then(|(header, _)| Ok(Written::decode(&header)?)) {
            Ok(Written { pending, existed }) => {
                self.owed.extend(pending.then_some((place, device)));
                self.has_older |= existed;
                Answer::Done
            }
            Err(Failure::Refused(refusal)) if refusal.status == Status::Superseded => {
                self.past = self.past.max(Some(refusal.timestamp));
                Answer::Superseded(refusal.timestamp)
            }
            Err(_) => {
                if let Some(spare) = self.spares.pop_front() {
                    self.ask(asking, place, spare);
                }
                return;
            }
        };
        if asking.places.at[place] == device {
            self.write.heard(place, answer);
        } else {
            self.write.stood_in(place);
        }
    }

    /// Tell places that older fragments are dead, as far as that is needed.
    fn spread(&mut self, asking: &mut Asking) {
        if !self.write.may_outdate() {
            return;
        }
        if self.has_older {
            (0..asking.places.at.len()).for_each(|place| self.outdate(asking, place));
        } else if self.write.lacks() > 0 && !asking.open().any(|about| matches!(about, About::Copy(..))) {
            (asking.places.numbers().holders..asking.places.at.len()).for_each(|place| self.outdate(asking, place));
        }
    }
}

impl operation::State for State {
    type About = About;

    fn answered(&mut self, asking: &mut Asking, about: About, answer: Result<Whole, Failure>) {
        match about {
            About::Copy(place, device) => self.copied(asking, place, device, answer),
            About::Outdate(place) => {
                let is_known = match &answer {
                    Ok((header, _)) => Written::decode(header).is_ok(),
                    Err(Failure::Refused(refusal)) => refusal.status == Status::Superseded,
                    Err(_) => false,
                };
                // A holder without the copy knows of it now, and does not have it.
                if is_known && place >= asking.places.numbers().holders {
                    self.write.heard(place, Answer::Done);
                }
            }
        }
    }

    fn go_on(&mut self, asking: &mut Asking) {
        self.spread(asking);
        if self.end.is_some() {
            return;
        }
        if self.counted.note(self.write.is_durable()) {
            asking.tell();
        }
        if self.counted.is_over() || asking.open().next().is_none() {
            let copies = self.write.copies();
            let verdict = match (self.counted.is_durable(), copies) {
                (true, _) => Verdict::Acknowledged,
                (false, 0) => Verdict::Failed,
                _ => Verdict::Unknown,
            };
            self.end = Some(SmallWritten { verdict, past: self.past, copies });
            asking.end();
        }
    }

    fn dropped(&mut self, _asking: &mut Asking) {}
}
