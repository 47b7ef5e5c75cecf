//! A read of a range of one object, or of its description alone.
//!
//! So many places are asked for their newest version that one of them has what a quorum has committed, as long as no
//! spare stood in for it, and the newest of their answers counts. The first of them sends the cells that it has of the
//! range as well. Everybody is asked if these have nothing. Then cells are asked for, up to two windows ahead of what the
//! caller has taken. Who is late is replaced by others: for cells, by those of other fragments.
//!
//! Who knows that a place has missed a write names it last.
//!
//! Fault model: that of the module above. Nothing is passed on before it was compared with its digest. What can't be put
//! together any more after the first bytes ends there; before them, another version may be given in its place
//! (`swiftlet_fragments::read`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use swiftlet_fragments::Version;
use swiftlet_fragments::read::{Read, Step};
use swiftlet_fragments::request::Answer;
use swiftlet_store::model::FragmentInfo;
use swiftlet_transport::{Chunk, Error as TransportError, Event, Sink, Ticket, What};

use super::calls::{Answering, Whole, ask};
use super::fetching::{Fetching, Next, Wish};
use super::places::Places;
use crate::client::Failure;
use crate::message::fragments::{Cells, Given, MAX_READ_BYTES, Newest, Request};

/// How a read waits.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The time limit of each request.
    pub timeout: Duration,
    /// After this time another device is asked as well.
    pub hedge: Duration,
    /// Bytes that are passed on before the caller takes any.
    pub ahead_bytes: u64,
    /// The id of the requests.
    pub trace: String,
}

/// How a read has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// All of the range was passed on.
    Whole,
    /// There is no such object; the deletion, if there was one.
    NotFound(Option<Version>),
    /// Which version is the newest can't be told, or it can't be put together. Nothing was passed on.
    Unavailable,
    /// The rest can't be put together.
    Cut,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The newest version.
    Newest,
    /// What is stored with this version.
    Describe(Version),
    Cells(Version, Range<u64>),
}

#[derive(Debug)]
struct Asked {
    index: usize,
    device: u32,
    kind: Kind,
    answering: Answering,
    since: Instant,
    ticket: Option<Ticket>,
}

/// What is known of a version.
#[derive(Debug)]
struct Known {
    info: FragmentInfo,
    /// Who has named it, with which fragment.
    holders: Vec<(usize, u32)>,
    /// Cells that came with it.
    cells: Vec<(usize, Cells, Vec<u8>)>,
}

enum Stage {
    Asking {
        everyone: bool,
    },
    /// Somebody knows of a version, but not what it is.
    Describing,
    Fetching(Box<Fetching>),
    Over(ReadEnd),
}

struct State {
    read: Read,
    stage: Stage,
    /// Only older versions are asked for.
    below: Option<Version>,
    /// Places that are asked first, and weren't yet.
    first: VecDeque<usize>,
    /// What the first places have told.
    told: Vec<(usize, Answer)>,
    asked: BTreeMap<u64, Asked>,
    next: u64,
    known: BTreeMap<Version, Known>,
    floor: Option<Version>,
    opened: Option<FragmentInfo>,
    passed: u64,
    taken: u64,
    refused: Vec<(u32, Failure)>,
}

struct Inner {
    me: Weak<Self>,
    places: Places,
    range: Range<u64>,
    options: ReadOptions,
    sink: Arc<dyn Sink>,
    token: u64,
    state: Mutex<State>,
}

/// A read. Its sink is told `Sent` when it is known what the object is, then `Chunk`s, and `End` when it is over, for
/// whatever reason. When it is dropped, nothing more is asked for.
pub struct Reading(Arc<Inner>);

impl Reading {
    /// Begin to read these bytes of an object: to its end if there are fewer, and none if the range is empty. The places
    /// of `first` are asked for what the object is, in their order, as many as are needed.
    #[must_use]
    pub fn start(
        places: Places,
        first: &[usize],
        range: Range<u64>,
        options: ReadOptions,
        (sink, token): (Arc<dyn Sink>, u64),
    ) -> Self {
        let state = State {
            read: Read::new(places.terms()),
            stage: Stage::Asking { everyone: false },
            below: None,
            first: first.iter().copied().filter(|place| *place < places.at.len()).collect(),
            told: Vec::new(),
            asked: BTreeMap::new(),
            next: 0,
            known: BTreeMap::new(),
            floor: None,
            opened: None,
            passed: 0,
            taken: 0,
            refused: Vec::new(),
        };
        let state = Mutex::new(state);
        let inner = Arc::new_cyclic(|me| Inner { me: me.clone(), places, range, options, sink, token, state });
        let mut state = inner.lock();
        (0..inner.places.terms().refusals()).for_each(|_| inner.ask_next(&mut state));
        inner.go_on(&mut state);
        drop(state);
        Self(inner)
    }

    /// The caller has released so many bytes.
    pub fn taken(&self, bytes: u64) {
        let mut state = self.0.lock();
        state.taken += bytes;
        self.0.go_on(&mut state);
    }

    /// Time has passed: ask others for what is late. Returns after which time it is to be called again.
    pub fn turn(&self) -> Duration {
        let mut state = self.0.lock();
        self.0.hedge(&mut state);
        self.0.go_on(&mut state);
        let hedge = self.0.options.hedge;
        let waiting = state.asked.values().map(|asked| hedge.saturating_sub(asked.since.elapsed()));
        waiting.filter(|left| !left.is_zero()).min().unwrap_or(hedge)
    }

    /// What the object is, once it is known: with a fragment's block without digests of cells.
    #[must_use]
    pub fn info(&self) -> Option<FragmentInfo> {
        self.0.lock().opened.clone()
    }

    /// How it has ended; nothing while it is under way.
    #[must_use]
    pub fn end(&self) -> Option<ReadEnd> {
        if let Stage::Over(end) = self.0.lock().stage { Some(end) } else { None }
    }

    /// Why devices, by their numbers, gave no answer.
    #[must_use]
    pub fn refused(&self) -> Vec<(u32, Failure)> {
        self.0.lock().refused.clone()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.lock().cancel();
    }
}

impl State {
    /// Nobody is listened to any more who was asked before.
    fn cancel(&mut self) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Some(ticket) = asked.ticket {
                ticket.cancel();
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, state: &mut State, index: usize, device: u32, kind: Kind) {
        let (key, cell_bytes) = (self.places.key(index), self.places.cell_bytes);
        let (request, most) = match &kind {
            // The first one of all sends cells.
            Kind::Newest if state.next == 0 => {
                let stop = self
                    .range
                    .start
                    .saturating_add(self.places.window() * self.places.stripe_bytes())
                    .min(self.range.end);
                let request = Request::Newest { key, below: state.below, start: self.range.start, stop };
                (request, MAX_READ_BYTES as usize + cell_bytes)
            }
            Kind::Newest => (Request::Newest { key, below: state.below, start: 0, stop: 0 }, 0),
            Kind::Describe(version) => (self.places.describe(index, *version), 0),
            Kind::Cells(version, stripes) => {
                let most = (stripes.end - stripes.start) as usize * cell_bytes;
                (Request::Cells { key, version: *version, first: stripes.start, end: stripes.end }, most)
            }
        };
        let token = state.next;
        state.next += 1;
        let asked = self.me.upgrade().ok_or(Failure::Lost(TransportError::Cancelled)).and_then(|me| {
            let options = (self.options.timeout, self.options.trace.as_str());
            ask(&self.places, device, request, options, (&(me as Arc<dyn Sink>), token))
        });
        let (ticket, failure) = match asked {
            Ok(ticket) => (Some(ticket), None),
            Err(failure) => (None, Some(failure)),
        };
        let answering = Answering::new(most);
        state.asked.insert(token, Asked { index, device, kind, answering, since: Instant::now(), ticket });
        if let Some(failure) = failure {
            self.answered(state, token, Err(failure));
        }
    }

    /// Ask the next of the first places, if there is one.
    fn ask_next(&self, state: &mut State) {
        if let Some(place) = state.first.pop_front() {
            self.ask(state, place, self.places.at[place], Kind::Newest);
        }
    }

    /// The first places have told what they can: go on with the newest version of theirs; with everyone if that is none.
    fn compare(&self, state: &mut State) {
        let mut told = std::mem::take(&mut state.told);
        told.sort_by_key(|(_, answer)| match answer {
            Answer::Newest { committed, floor } => std::cmp::Reverse((*committed).max(*floor)),
            _ => std::cmp::Reverse(None),
        });
        let steps = told.iter().map(|(place, answer)| state.read.newest(Some(*place), answer));
        match steps.into_iter().next().filter(|step| *step != Step::Wait) {
            Some(step) => self.step(state, step),
            None => self.ask_everyone(state, None),
        }
    }

    /// Ask all places, and spares for all of their fragments: for the newest version, or about one.
    fn ask_everyone(&self, state: &mut State, about: Option<Version>) {
        state.cancel();
        state.stage = match about {
            None => Stage::Asking { everyone: true },
            Some(_) => Stage::Describing,
        };
        let kind = about.map_or(Kind::Newest, Kind::Describe);
        for (index, device) in self.places.at.iter().enumerate() {
            self.ask(state, index, *device, kind.clone());
        }
        for device in &self.places.spares {
            for index in 0..self.places.at.len() {
                self.ask(state, index, *device, kind.clone());
            }
        }
    }

    fn answered(&self, state: &mut State, token: u64, answer: Result<Whole, Failure>) {
        let Some(Asked { index, device, kind, .. }) = state.asked.remove(&token) else { return };
        if let Err(failure) = &answer {
            state.refused.push((device, failure.clone()));
        }
        match kind {
            Kind::Newest => {
                let newest = answer.and_then(|(header, body)| Ok((Newest::decode(&header)?, body)));
                let told = newest.ok().and_then(|(newest, body)| {
                    let told = Answer::Newest { committed: newest.committed, floor: newest.floor };
                    state.floor = state.floor.max(newest.floor);
                    self.learn(state, (index, device), newest, body).then_some(told)
                });
                match (told, &state.stage) {
                    (Some(told), Stage::Asking { everyone: false }) => {
                        state.told.push((index, told));
                        if state.told.len() >= self.places.terms().refusals() {
                            self.compare(state);
                        }
                    }
                    (Some(told), _) => {
                        let place = (self.places.at[index] == device).then_some(index);
                        let step = state.read.newest(place, &told);
                        self.step(state, step);
                    }
                    (None, Stage::Asking { everyone: false }) => self.ask_next(state),
                    (None, _) => {}
                }
            }
            Kind::Describe(version) => {
                if let Ok((header, body)) = answer
                    && let Ok(newest) = Newest::decode(&header)
                    && self.learn(state, (index, device), newest, body)
                    && state.known.contains_key(&version)
                {
                    self.fetch(state, version);
                }
            }
            Kind::Cells(version, stripes) => {
                let given = answer.and_then(|(header, body)| Ok((Given::decode(&header)?, body)));
                let answer = match &given {
                    Ok((Given::Not(answer), _)) => Some(answer.clone()),
                    Ok((Given::Cells(_), _)) => {
                        state.known.get(&version).map(|known| Answer::Fragment(known.info.block.chosen.clone()))
                    }
                    Err(_) => None,
                };
                if let Some(answer) = answer {
                    state.read.fetched(version, index, &answer);
                }
                if let Stage::Fetching(fetching) = &mut state.stage {
                    fetching.answered(&Wish { index, device, stripes }, given.ok());
                }
            }
        }
    }

    /// Remember what a device says of a version; false if it can't be true.
    fn learn(&self, state: &mut State, holder: (usize, u32), newest: Newest, body: Vec<u8>) -> bool {
        let Some((info, cells)) = newest.fragment else { return true };
        if !self.places.fits(holder.0, &info) {
            return false;
        }
        let version = info.version();
        let known =
            state.known.entry(version).or_insert_with(|| Known { info, holders: Vec::new(), cells: Vec::new() });
        known.holders.push(holder);
        if !cells.xxh3.is_empty() {
            known.cells.push((holder.0, cells, body));
        }
        true
    }

    fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Wait | Step::Give(_) => {}
            Step::Ask(below) => {
                state.below = below;
                self.ask_everyone(state, None);
            }
            Step::Fetch(version) if state.known.contains_key(&version) => self.fetch(state, version),
            Step::Fetch(version) => self.ask_everyone(state, Some(version)),
            Step::NotFound => {
                let end = ReadEnd::NotFound(state.floor.filter(|floor| floor.is_deletion()));
                self.end(state, end);
            }
            Step::Unavailable => self.end(state, ReadEnd::Unavailable),
        }
    }

    /// Begin to fetch the range of a version that is known.
    fn fetch(&self, state: &mut State, version: Version) {
        state.cancel();
        let Some(known) = state.known.get_mut(&version) else { return };
        let sources = self.places.sources(&known.info, &known.holders);
        let mut fetching = Fetching::bytes(known.info.clone(), self.range.clone(), sources, self.places.window());
        for (index, cells, body) in std::mem::take(&mut known.cells) {
            fetching.came(index, &cells, body);
        }
        state.stage = Stage::Fetching(Box::new(fetching));
    }

    fn end(&self, state: &mut State, end: ReadEnd) {
        state.cancel();
        state.stage = Stage::Over(end);
        self.sink.events(&mut vec![Event { token: self.token, what: What::End(Vec::new()) }]);
    }

    /// Draw the consequences of what was heard: pass on what there is, and ask for more.
    fn go_on(&self, state: &mut State) {
        loop {
            match &mut state.stage {
                Stage::Over(_) => return,
                Stage::Asking { .. } | Stage::Describing if !state.asked.is_empty() => return,
                Stage::Asking { everyone: false } => self.compare(state),
                Stage::Asking { .. } | Stage::Describing => {
                    let step = state.read.wait_no_longer();
                    self.step(state, step);
                }
                Stage::Fetching(fetching) => {
                    let version = fetching.version();
                    let may_pass = state.passed.saturating_sub(state.taken) <= self.options.ahead_bytes;
                    let next = if may_pass { fetching.next() } else { Ok(Next::Wait) };
                    let opened = state.opened.is_none().then(|| fetching.info.clone());
                    match next {
                        Ok(Next::Bytes(bytes)) => self.pass(state, opened, bytes),
                        Ok(Next::End) => {
                            self.pass(state, opened, Vec::new());
                            return self.end(state, ReadEnd::Whole);
                        }
                        Ok(Next::Wait) => match fetching.wishes() {
                            Ok(wishes) if wishes.is_empty() => return,
                            Ok(wishes) => {
                                for Wish { index, device, stripes } in wishes {
                                    self.ask(state, index, device, Kind::Cells(version, stripes));
                                }
                            }
                            Err(_) => self.too_few(state),
                        },
                        Err(_) => self.too_few(state),
                    }
                }
            }
        }
    }

    fn pass(&self, state: &mut State, opened: Option<FragmentInfo>, bytes: Vec<u8>) {
        let mut events = Vec::new();
        if opened.is_some() {
            state.opened = opened;
            events.push(Event { token: self.token, what: What::Sent(0) });
        }
        if !bytes.is_empty() {
            state.passed += bytes.len() as u64;
            events.push(Event { token: self.token, what: What::Chunk(Chunk::from(bytes)) });
        }
        if !events.is_empty() {
            self.sink.events(&mut events);
        }
    }

    fn too_few(&self, state: &mut State) {
        if state.opened.is_some() {
            self.end(state, ReadEnd::Cut);
        } else {
            let step = state.read.wait_no_longer();
            self.step(state, step);
        }
    }

    /// Ask others for what is late.
    fn hedge(&self, state: &mut State) {
        let is_late = |asked: &&Asked| asked.since.elapsed() >= self.options.hedge;
        match &mut state.stage {
            Stage::Asking { everyone: false } => {
                let in_time = state.asked.len() - state.asked.values().filter(is_late).count();
                if in_time + state.told.len() >= self.places.terms().refusals() {
                } else if !state.first.is_empty() {
                    self.ask_next(state);
                } else {
                    self.compare(state);
                }
            }
            Stage::Fetching(fetching) => {
                let first = fetching.first();
                let late = state.asked.values().filter(is_late);
                for asked in late {
                    if matches!(&asked.kind, Kind::Cells(_, stripes) if stripes.contains(&first)) {
                        fetching.is_late(asked.index);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Sink for Inner {
    fn events(&self, events: &mut Vec<Event>) {
        let mut state = self.lock();
        for event in events.drain(..) {
            let answer = match state.asked.get_mut(&event.token) {
                Some(asked) => asked.answering.take(event.what),
                None => None,
            };
            if let Some(answer) = answer {
                self.answered(&mut state, event.token, answer);
            }
        }
        self.go_on(&mut state);
    }
}
