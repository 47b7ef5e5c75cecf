//! A fragment that its place lacks: made of others, proved, and kept by the device there.
//!
//! Another place is asked what is stored with the version. Then cells are read as by a reader: of the fragment itself,
//! where a spare has it, and else k of each stripe. They are sent on as they are made. Only a fragment whose digest is
//! the one that the others know is kept.
//!
//! Fault model: that of the module above. Whoever rebuilds may stop at any moment; nothing is kept then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use swiftlet_fragments::Version;
use swiftlet_fragments::block::Block;
use swiftlet_fragments::request::Answer;
use swiftlet_store::model::FragmentInfo;
use swiftlet_transport::{Chunk, Error as TransportError, Event, Sink, Ticket, Upload, What};

use super::calls::{Answering, ask, call};
use super::fetching::{Fetching, Making, Next, Wish};
use super::places::Places;
use crate::client::Failure;
use crate::message::fragments::{Footer, Given, Newest, Request, decode_answer};

/// With more bytes than these that the device has yet to take, no further cells are made.
const MOST_QUEUED: u64 = 1 << 20;
/// The request that keeps the fragment; others count from 0.
const KEEP: u64 = u64::MAX;

/// How a rebuild has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildEnd {
    /// The device at the place has answered: [`Answer::Done`], or why it doesn't need the fragment.
    Answered(Answer),
    /// Too few fragments can be read. Nothing was kept.
    TooFew,
    /// What was made is not the fragment that the others know. Nothing was kept.
    Unproved,
    /// The device at the place could not keep it.
    Failed(Failure),
}

enum Asked {
    Describe(usize),
    Cells(Wish),
}

enum Stage {
    Describing,
    Making(Box<Fetching>),
    /// The device has all, and has yet to answer.
    Keeping,
    Over(RebuildEnd),
}

struct State {
    stage: Stage,
    asked: BTreeMap<u64, (Asked, Answering, Option<Ticket>)>,
    next: u64,
    upload: Option<Upload>,
    ticket: Option<Ticket>,
    keeping: Answering,
    queued: u64,
}

struct Inner {
    me: Weak<Self>,
    places: Places,
    place: usize,
    version: Version,
    timeout: Duration,
    trace: String,
    sink: Arc<dyn Sink>,
    token: u64,
    state: Mutex<State>,
}

/// A rebuild. Its sink is told `End` when it is over. Dropped before, nothing is kept.
pub struct Rebuilding(Arc<Inner>);

impl Rebuilding {
    /// Make the fragment of a place, of a version that counts, for the device there. Each request has this time limit and
    /// trace; the device has that time for the whole fragment.
    ///
    /// # Errors
    /// There is no such place.
    pub fn start(
        places: Places,
        (place, version): (usize, Version),
        (timeout, trace): (Duration, &str),
        (sink, token): (Arc<dyn Sink>, u64),
    ) -> Result<Self, &'static str> {
        if place >= places.at.len() {
            return Err("there is no such place");
        }
        let state = State {
            stage: Stage::Describing,
            asked: BTreeMap::new(),
            next: 0,
            upload: None,
            ticket: None,
            keeping: Answering::new(0),
            queued: 0,
        };
        let (state, trace) = (Mutex::new(state), trace.to_owned());
        let inner =
            Arc::new_cyclic(|me| Inner { me: me.clone(), places, place, version, timeout, trace, sink, token, state });
        let mut state = inner.lock();
        for index in (0..inner.places.at.len()).filter(|index| *index != place) {
            let request = inner.places.describe(index, version);
            inner.ask(&mut state, inner.places.at[index], request, Asked::Describe(index));
        }
        inner.go_on(&mut state);
        drop(state);
        Ok(Self(inner))
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<RebuildEnd> {
        if let Stage::Over(end) = &self.0.lock().stage { Some(end.clone()) } else { None }
    }
}

impl Drop for Rebuilding {
    fn drop(&mut self) {
        self.0.lock().cancel();
    }
}

impl State {
    fn cancel(&mut self) {
        let asked = std::mem::take(&mut self.asked).into_values();
        asked.filter_map(|(_, _, ticket)| ticket).for_each(|ticket| ticket.cancel());
        if !matches!(self.stage, Stage::Keeping)
            && let Some(ticket) = self.ticket.take()
        {
            self.upload = None;
            ticket.cancel();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn me(&self) -> Result<Arc<dyn Sink>, Failure> {
        self.me.upgrade().map(|me| me as Arc<dyn Sink>).ok_or(Failure::Lost(TransportError::Cancelled))
    }

    fn ask(&self, state: &mut State, device: u32, request: Request, asked: Asked) {
        let most = match &asked {
            Asked::Describe(_) => 0,
            Asked::Cells(wish) => (wish.stripes.end - wish.stripes.start) as usize * self.places.cell_bytes,
        };
        let token = state.next;
        state.next += 1;
        let options = (self.timeout, self.trace.as_str());
        let ticket = self.me().and_then(|me| ask(&self.places, device, request, options, (&me, token)));
        match (ticket, asked) {
            (Ok(ticket), asked) => drop(state.asked.insert(token, (asked, Answering::new(most), Some(ticket)))),
            (Err(_), Asked::Describe(_)) => {}
            (Err(_), Asked::Cells(wish)) => {
                if let Stage::Making(fetching) = &mut state.stage {
                    fetching.answered(&wish, None);
                }
            }
        }
    }

    /// What is stored with the version is known: begin to make the fragment, and to send it.
    fn begin(&self, state: &mut State, info: FragmentInfo) {
        state.cancel();
        let to = self.places.at[self.place];
        let mut sources = self.places.sources(&info, &[]);
        sources[self.place].retain(|device| *device != to);
        match self.open(to, &info) {
            Ok(upload) => {
                state.ticket = Some(upload.ticket().clone());
                state.upload = Some(upload);
                let fetching = Fetching::fragment(info, self.place, sources, self.places.window());
                state.stage = Stage::Making(Box::new(fetching));
            }
            Err(failure) => self.end(state, RebuildEnd::Failed(failure)),
        }
    }

    fn open(&self, to: u32, info: &FragmentInfo) -> Result<Upload, Failure> {
        let target = self.places.devices.target(to).ok_or(Failure::Damaged("the ring has no such device"))?;
        let size = Some(info.block.geometry.fragment_bytes(self.place));
        let request = Request::Keep {
            key: self.places.key(self.place),
            certain: true,
            cell_bytes: self.places.cell_bytes as u32,
            size,
            meta: info.meta.clone(),
        };
        let call = call(target, request, self.timeout, &self.trace)?;
        target.0.upload(call, size, &self.me()?, KEEP).map_err(Failure::Lost)
    }

    fn answered(&self, state: &mut State, asked: Asked, answer: Result<(Vec<u8>, Vec<u8>), Failure>) {
        match asked {
            Asked::Describe(index) => {
                let newest = answer.ok().and_then(|(header, _)| Newest::decode(&header).ok());
                if let Some((info, _)) = newest.and_then(|newest| newest.fragment)
                    && matches!(state.stage, Stage::Describing)
                    && info.version() == self.version
                    && self.places.fits(index, &info)
                {
                    self.begin(state, info);
                }
            }
            Asked::Cells(wish) => {
                let given = answer.ok().and_then(|(header, body)| Some((Given::decode(&header).ok()?, body)));
                if let Stage::Making(fetching) = &mut state.stage {
                    fetching.answered(&wish, given);
                }
            }
        }
    }

    /// What the device at the place says.
    fn kept(&self, state: &mut State, what: What) {
        if let What::Sent(bytes) = what {
            state.queued = state.queued.saturating_sub(bytes as u64);
            return;
        }
        let Some(answer) = state.keeping.take(what) else { return };
        let answer = answer.and_then(|(header, _)| Ok(decode_answer(&header)?));
        (state.upload, state.ticket) = (None, None);
        let end = match answer {
            Ok(answer) => RebuildEnd::Answered(answer),
            Err(failure) => RebuildEnd::Failed(failure),
        };
        self.end(state, end);
    }

    fn end(&self, state: &mut State, end: RebuildEnd) {
        if !matches!(state.stage, Stage::Over(_)) {
            state.cancel();
            state.stage = Stage::Over(end);
            self.sink.events(&mut vec![Event { token: self.token, what: What::End(Vec::new()) }]);
        }
    }

    fn go_on(&self, state: &mut State) {
        loop {
            match &mut state.stage {
                Stage::Over(_) | Stage::Keeping => return,
                Stage::Describing if !state.asked.is_empty() => return,
                Stage::Describing => return self.end(state, RebuildEnd::TooFew),
                Stage::Making(_) if state.queued > MOST_QUEUED => return,
                Stage::Making(fetching) => match fetching.next() {
                    Ok(Next::Bytes(cell)) => {
                        let sent = cell.is_empty()
                            || state.upload.as_ref().is_some_and(|upload| {
                                state.queued += cell.len() as u64;
                                upload.send(Chunk::from(cell)).is_ok()
                            });
                        if !sent {
                            let failure = Failure::Lost(TransportError::Overloaded);
                            return self.end(state, RebuildEnd::Failed(failure));
                        }
                    }
                    Ok(Next::End) => return self.finish(state),
                    Ok(Next::Wait) => {
                        let Ok(wishes) = fetching.wishes() else { return self.end(state, RebuildEnd::TooFew) };
                        if wishes.is_empty() {
                            return;
                        }
                        for wish in wishes {
                            let (key, version) = (self.places.key(wish.index), self.version);
                            let (first, end) = (wish.stripes.start, wish.stripes.end);
                            let request = Request::Cells { key, version, first, end };
                            self.ask(state, wish.device, request, Asked::Cells(wish));
                        }
                    }
                    Err(_) => return self.end(state, RebuildEnd::TooFew),
                },
            }
        }
    }

    /// All cells were made and sent: prove that they are the fragment, and have it kept.
    fn finish(&self, state: &mut State) {
        let Stage::Making(fetching) = std::mem::replace(&mut state.stage, Stage::Keeping) else { return };
        let etag = fetching.info.etag.clone();
        let made = match fetching.made() {
            Making::Fragment(rebuild) => rebuild.finish().ok(),
            Making::Bytes(_) => None,
        };
        let Some(block) = made else {
            state.stage = Stage::Describing;
            return self.end(state, RebuildEnd::Unproved);
        };
        let footer = Footer { etag, block: Block { cells: Vec::new(), ..block } };
        let ended = footer.encode().map_err(Failure::from).and_then(|raw| match state.upload.take() {
            Some(upload) => upload.end(raw).map_err(Failure::Lost),
            None => Err(Failure::Lost(TransportError::Cancelled)),
        });
        if let Err(failure) = ended {
            state.stage = Stage::Describing;
            self.end(state, RebuildEnd::Failed(failure));
        }
    }
}

impl Sink for Inner {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        for event in events.drain(..) {
            if event.token == KEEP {
                self.kept(&mut state, event.what);
                continue;
            }
            let Some((_, answering, _)) = state.asked.get_mut(&event.token) else { continue };
            if let Some(answer) = answering.take(event.what)
                && let Some((asked, _, _)) = state.asked.remove(&event.token)
            {
                self.answered(&mut state, asked, answer);
            }
        }
        self.go_on(&mut state);
    }
}
